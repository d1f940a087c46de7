"""The host with a norm of its own: `utfproof embed own-norm` and `utfproof export own-norm`, for models with norms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.ground.files import together
from utfproof.jobs import options
from utfproof.jobs.job import Outcome
from utfproof.models import ImportedModel, embed_normalised, read_normalised, write_normalised
from utfproof.models.normalised import write_tensors

if TYPE_CHECKING:
    from utfproof.jobs.embed import ComparisonOptions


def embed(model: ImportedModel, output: Path, test: ComparisonOptions, limit: int | None) -> Outcome:
    """E for a model with norms, compared with the model's own outputs, or with its reading."""
    sequences = test.sequences(model, limit)
    found = embed_normalised(model, sequences=sequences, tolerance=test.limit, max_memory=limit)
    if found.agrees:
        found.save(output)
    written = str(output) if found.agrees else None
    host = found.host
    document = {
        "verdict": found.verdict,
        "notion": found.notion.value,
        "layout": model.layout,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": host.width,
        "shape": options.shape_document(host.shape, host.m),
        "theta": host.theta,
        "bound": host.bound,
        **test.document(model, found.agreement),
        "file": written,
    }
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {model.positions or 'no'} learned positions, width {host.width}",
        "shape": f"{host.shape}, m = {host.m}, a row of E for each token"
        + (" at each position" * (model.positions > 0)),
        "read as": model.reading.family.title,
        **test.rows(model, found.agreement),
        "embedding": written or "none",
    }
    return Outcome(document, "embed own-norm", rows, options.agreement_code(model, found.agrees))


def export(E: np.ndarray, facts: dict[str, str], output: Path, layout: str, context: int, limit: int | None) -> Outcome:
    """The host that E's metadata describe, with E, as a module or under TransformerLens' names."""
    host, kernel, vocabulary, positions = read_normalised(facts, len(E), limit)
    written = [output]
    if layout == "module":
        with together():
            write_normalised(output, host, E, kernel, vocabulary, positions)
        written.append(output.with_suffix(".safetensors"))
    else:
        write_tensors(output, host, E, kernel, positions, context, limit)
    document: dict[str, Any] = {
        "layout": layout,
        "shape": options.shape_document(host.shape, host.m),
        "vocabulary": vocabulary,
        "positions": positions,
        "files": [str(path) for path in written],
    }
    rows = {
        "shape": f"{host.shape}, m = {host.m}, {host.norm.words()}",
        "inputs": f"{vocabulary} tokens" + (f" at {positions} learned positions" if positions else ""),
        "files": ", ".join(map(str, written)),
    }
    return Outcome(document, "export own-norm", rows)
