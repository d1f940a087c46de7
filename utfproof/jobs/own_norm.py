"""The host with a norm of its own: `embed`, `export` and `emulate own-norm`, for models with norms."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.files import together
from utfproof.jobs import options
from utfproof.jobs.job import Outcome
from utfproof.models import (
    ImportedModel,
    embed_normalised,
    from_model,
    import_model,
    make_module,
    read_config,
    read_normalised,
    write_kernel,
    write_normalised,
)
from utfproof.models.normalised import compare_normalised, write_tensors
from utfproof.shapes import listed_integers
from utfproof.weights import read_embedding, read_tensors

if TYPE_CHECKING:
    from utfproof.jobs.embed import Embed
    from utfproof.jobs.emulate import Emulate


def embed(job: Embed, model: ImportedModel) -> Outcome:
    """E for a model with norms, compared with the model's own outputs, or with its reading."""
    found = embed_normalised(
        model,
        plus_constant=job.plus_constant,
        sequences=job.sequences(model),
        tolerance=job.allowed,
        max_memory=job.limit,
    )
    if found.agrees:
        found.save(job.output)
    written = str(job.output) if found.agrees else None
    host = found.host
    document = {
        "verdict": found.verdict,
        "notion": found.notion.value,
        "up_to_a_constant": found.constant is not None,
        "layout": model.layout,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": host.width,
        "shape": options.shape_document(host.shape, host.m),
        "theta": host.theta,
        "bound": host.bound,
        **job.comparison(model, found.agreement),
        "file": written,
    }
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {model.positions or 'no'} learned positions, width {host.width}",
        "shape": f"{host.shape}, m = {host.m}, a row of E for each token"
        + (" at each position" * (model.positions > 0)),
        "read as": model.reading.family.title,
        **job.comparison_rows(model, found.agreement),
        "embedding": written or "none",
    }
    return Outcome(document, "embed own-norm", rows, options.agreement_code(model, found.decided))


def export(E: np.ndarray, facts: dict[str, str], output: Path, layout: str, context: int, limit: int | None) -> Outcome:
    """The host that E's metadata describe, with E, as a module or under TransformerLens' names."""
    host, kernel, vocabulary, positions, constant = read_normalised(facts, len(E), limit)
    written = [output]
    if layout == "module":
        with together():
            write_normalised(output, host, E, kernel, vocabulary, positions, constant)
        written.append(output.with_suffix(".safetensors"))
    else:
        write_tensors(output, host, E, kernel, positions, context, limit, constant)
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
        **options.assumed_rows(facts),
        "files": ", ".join(map(str, written)),
    }
    document |= {"assumed": rows["assumed"]} if "assumed" in rows else {}
    return Outcome(document, "export own-norm", rows)


def emulate(job: Emulate) -> Outcome:
    """The host beside a model with norms (--target, with --config or --module), on random tokens of every context length: with
    the E of --embedding, whose metadata say the host, or one that is found here."""
    used = {"host", "target", "embedding", "config", "module", "context", "trials", "seed", "tolerance", "max_memory"}
    others = [part.name for part in fields(job) if part.name not in used and part.name != "stated"]
    options.refuse_given(
        job, "own-norm runs one model beside its host, whose shape and attention are the model's", *others
    )
    if job.target is None:
        raise MalformedInput("own-norm is the host of one model: pass --target MODEL, with --config or --module")
    within = 1e-8 if job.tolerance is None else job.tolerance
    config = None if job.config is None else read_config(job.config)
    if job.module is None:
        model = import_model(job.target, config=config, norms=True, max_memory=job.limit)
    else:
        model = from_model(make_module(job.module, job.target), config=config, norms=True, seed=job.seed)
    contexts = listed_integers("--context", job.context)
    rng = np.random.default_rng(job.seed)
    sequences = [rng.integers(0, model.vocabulary, n) for n in contexts for _ in range(job.trials)]
    for tokens in sequences:
        model.one_hots(tokens)
    if job.embedding is None:
        found = embed_normalised(model, sequences=sequences, tolerance=within, max_memory=job.limit)
    else:
        E, facts = read_embedding(job.embedding, max_memory=job.limit), read_tensors(job.embedding).metadata
        host, kernel, *sizes, constant = read_normalised(facts, len(E), job.limit)
        if sizes != [model.vocabulary, model.positions] or write_kernel(kernel) != write_kernel(model.attention):
            raise MalformedInput(
                f"{job.embedding} is for {sizes[0]} tokens, {sizes[1]} positions, attention {facts['attention'][:80]}"
            )
        found = compare_normalised(model, host, E, sequences, within, constant)
    errors = {n: float(np.max(found.errors[i * job.trials : (i + 1) * job.trials])) for i, n in enumerate(contexts)}
    document = {
        "verdict": found.verdict,
        "notion": found.notion.value,
        "up_to_a_constant": found.constant is not None,
        "witness": model.witness,
        "shape": options.shape_document(found.host.shape, found.host.m),
        "tolerance": within,
        "errors": {str(n): error for n, error in errors.items()},
    }
    rows = {
        "result": found.verdict,
        "shape": f"{found.host.shape}, m = {found.host.m}",
        **{
            f"context {n}": f"largest relative error {error:.3g} on {job.trials} sequences"
            for n, error in errors.items()
        },
    }
    return Outcome(document, "emulate own-norm", rows, options.agreement_code(model, found.decided))
