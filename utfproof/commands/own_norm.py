"""The host with a norm of its own: `embed`, `export` and `emulate own-norm`, for models with norms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from utfproof.cli import questions as options
from utfproof.cli.outcome import Outcome
from utfproof.commands import readings
from utfproof.errors import MalformedInput
from utfproof.ground.files import together
from utfproof.models import (
    Embedded,
    Reading,
    embed_normalised,
    from_model,
    import_model,
    make_module,
    read_config,
    read_normalised,
    write_kernel,
    write_normalised,
)
from utfproof.models.own_norm import compare_normalised, write_tensors
from utfproof.weights import read_embedding, read_tensors


def _document(found: Embedded) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "notion": found.notion.value,
        "up_to_a_constant": found.constant is not None,
        "shape": found.host.shape.document(found.host.m),
    }


def embed(
    model: Reading, output: Path, sequences: list[Any], tolerance: float, plus_constant: bool, limit: int | None
) -> Outcome:
    """E for a model with norms, compared with the model's own outputs, or with its reading."""
    found = embed_normalised(
        model, plus_constant=plus_constant, sequences=sequences, tolerance=tolerance, max_memory=limit
    )
    if found.agrees:
        found.save(output)
    written = str(output) if found.agrees else None
    host = found.host
    document = {
        **_document(found),
        "layout": model.family,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": host.width,
        "theta": host.theta,
        "bound": host.bound,
        **readings.comparison(model, found.agreement, tolerance),
        "file": written,
    }
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {model.positions or 'no'} learned positions, width {host.width}",
        "shape": f"{host.shape}, m = {host.m}, a row of E for each token"
        + (" at each position" * (model.positions > 0)),
        "read as": model.title,
        **readings.comparison_rows(model, found.agreement, tolerance),
        "embedding": written or "none",
    }
    return Outcome(document, "embed own-norm", rows, readings.agreement_code(model, found.decided))


def export(E: np.ndarray, facts: dict[str, str], output: Path, layout: str, context: int, limit: int | None) -> Outcome:
    """The host that E's metadata describe, with E, as a module or under TransformerLens' names."""
    host, kernel, vocabulary, positions, constant = read_normalised(facts, len(E), limit)
    written = [output]
    if layout == "module":
        with together():
            write_normalised(output, E, facts, limit)
        written.append(output.with_suffix(".safetensors"))
    else:
        write_tensors(output, host, E, kernel, positions, context, limit, constant)
    document: dict[str, Any] = {
        "layout": layout,
        "shape": host.shape.document(host.m),
        "vocabulary": vocabulary,
        "positions": positions,
        "files": [str(path) for path in written],
    }
    rows = {
        "shape": f"{host.shape}, m = {host.m}, {host.norm.words()}",
        "inputs": f"{vocabulary} tokens" + (f" at {positions} learned positions" if positions else ""),
        **options.assumed_rows(facts),
        "files": ", ".join(map(str, written)),
    }
    document |= {"assumed": rows["assumed"]} if "assumed" in rows else {}
    return Outcome(document, "export own-norm", rows)


def emulate(
    target: Path,
    config: Path | None,
    module: str | None,
    embedding: Path | None,
    contexts: list[int],
    trials: int,
    seed: int,
    tolerance: float,
    limit: int | None,
) -> Outcome:
    """The host beside a model with norms, on random tokens of every context length: with the E of a file, whose metadata say
    the host, or one that is found here."""
    fields = None if config is None else read_config(config)
    if module is None:
        model = import_model(target, config=fields, max_memory=limit)
    else:
        model = from_model(make_module(module, target), config=fields, seed=seed)
    rng = np.random.default_rng(seed)
    by_context = {n: [rng.integers(0, model.vocabulary, n) for _ in range(trials)] for n in contexts}
    for tokens in (row for rows in by_context.values() for row in rows):
        model.one_hots(tokens)
    every = [tokens for rows in by_context.values() for tokens in rows]
    if embedding is None:
        found = embed_normalised(model, sequences=every, tolerance=tolerance, max_memory=limit)
        host, E, constant = found.host, found.E, found.constant
    else:
        E, facts = read_embedding(embedding, max_memory=limit), read_tensors(embedding).metadata
        host, kernel, *sizes, constant = read_normalised(facts, len(E), limit)
        if sizes != [model.vocabulary, model.positions] or write_kernel(kernel) != write_kernel(model.kernel):
            raise MalformedInput(
                f"{embedding} is for {sizes[0]} tokens, {sizes[1]} positions, attention {facts['attention'][:80]}"
            )
        found = compare_normalised(model, host, E, every, tolerance, constant)
    errors = {
        n: compare_normalised(model, host, E, rows, tolerance, constant).agreement.relative_difference
        for n, rows in by_context.items()
    }
    document = {
        **_document(found),
        "witness": model.witness,
        "tolerance": tolerance,
        "errors": {str(n): error for n, error in errors.items()},
    }
    rows = {
        "result": found.verdict,
        "shape": f"{found.host.shape}, m = {found.host.m}",
        **{f"context {n}": f"largest relative error {error:.3g} on {trials} sequences" for n, error in errors.items()},
    }
    return Outcome(document, "emulate own-norm", rows, readings.agreement_code(model, found.decided))
