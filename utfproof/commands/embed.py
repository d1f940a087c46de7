"""`utfproof embed`: the embedding E under which a host acts as a target, or as a model from someone else's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.outcome import Outcome
from utfproof.commands import embed_minimize
from utfproof.commands.hosts import agree_with, host_digest, is_host_file, load_host
from utfproof.commands.readings import (
    Module,
    Positions,
    Tokens,
    agreement_code,
    comparison,
    comparison_rows,
    read,
    target_for,
)
from utfproof.errors import MalformedInput
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget

if TYPE_CHECKING:
    from utfproof.matching import Embedding
    from utfproof.models.embedding import Embedded


def embed(
    *,
    host: Annotated[str, typer.Argument(help="HOST.safetensors, or a construction.")],
    target: Annotated[Path, typer.Argument(help="TARGET.safetensors: W_Q, W_K, W_V, W_O (W_E, W_U), or a model's.")],
    output: Annotated[Path, options.written("Embedding to write (.safetensors).", "-o", "--output")],
    residual: options.StoredResidual = None,
    m: options.M = None,
    module: Module = None,
    tokens: Tokens = None,
    positions: Positions = None,
    attention: Annotated[
        str | None, options.rare(help="Models: softmax, causal, window:W, joined by '+'; causal by default.")
    ] = None,
    trials: Annotated[int | None, options.rare(help="Models: random sequences to compare on; 16 by default.")] = None,
    tolerance: Annotated[
        float | None, options.rare(help="Models: largest relative difference of outputs; 1e-8 by default.")
    ] = None,
    minimize: Annotated[
        bool, typer.Option("--minimize", help="Write the smallest host of this target to HOST.")
    ] = False,
    within: Annotated[
        float | None,
        options.rare(
            help="--minimize, models: the smallest host found whose outputs on the test sequences are proven within this "
            "part of the largest output."
        ),
    ] = None,
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    seed: options.Seed = 0,
    law: options.Law = "uniform",
    dtype: options.Dtype = "float64",
    max_memory: options.MaxMemory = None,
) -> Outcome:
    """Find E such that the host with E acts as the target.

    The shape is the target's; shape options are checked against it. The target may be a trained model,
    and outputs are compared with its own, which --module gives. Exit 1: this host cannot carry this target, or outputs differ
    by more than the tolerance; nothing is written. 4: an unknown fact decides.

    Examples: utfproof embed sparse target.safetensors -o E.safetensors; utfproof embed smallest.safetensors target.safetensors
    --minimize -o E.safetensors
    """
    from utfproof.constructions import CONSTRUCTIONS
    from utfproof.matching import embed as solve
    from utfproof.models import embed_model, random_sequences
    from utfproof.models.embedding import HOST_DIGEST, host_facts
    from utfproof.weights import write_embedding

    if within is not None and not minimize:
        raise MalformedInput("--within is about hosts of fewer dimensions: say --minimize")
    dimensions = [heads, layers, head_dim, d_in, d_out]
    part: dict[str, Any] = {"module": module, "tokens": tokens, "positions": positions, "attention": attention}
    model = read(target, dimensions, residual=residual, **part, seed=seed, limit=max_memory)
    agree_with(model.shape, dimensions)
    own = isinstance(model, Target | BiasedTarget)
    if own and (trials is not None or tolerance is not None):
        raise MalformedInput(f"--trials and --tolerance are about models; {target} is a target")
    trials, tolerance = trials or 16, tolerance or 1e-8
    if minimize:
        if isinstance(model, BiasedTarget):
            raise MalformedInput("--minimize is about targets of attention alone; this one has MLPs or biases")
        asked = embed_minimize.Asked(Path(host), output, target, m, within, tolerance, trials, seed, max_memory)
        return embed_minimize.minimize(asked, model)
    drawn: dict[str, Any] = {"seed": seed, "law": law, "dtype": dtype}
    machine = load_host(host, target_for(host, model).shape, layers, m, drawn, max_memory)
    digest = host_digest(host, machine.shape.residual, max_memory) if is_host_file(host) else None
    if isinstance(model, Target | BiasedTarget):
        found = solve(machine, model, max_memory=max_memory)
        write_embedding(output, found.E, host_facts(host, machine, found, {**drawn, HOST_DIGEST: digest}))
        inputs = CONSTRUCTIONS[machine.construction].inputs if machine.construction else ""
        rows = {
            "result": f"the host acts as the target, by {found.notion.value}" + (f", on {inputs}" if inputs else ""),
            "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
            **_rows(found),
            "embedding": str(output),
        }
        return Outcome({**_document(found, machine), "file": str(output)}, f"embed {host}", rows)
    how: dict[str, Any] = {"sequences": random_sequences(model, trials, seed), "tolerance": tolerance, "name": host}
    return _of_model(embed_model(model, machine, **drawn, **how, digest=digest, max_memory=max_memory), output)


def _of_model(found: Embedded, output: Path) -> Outcome:
    """A model, compared with its own outputs; E is written where they agree."""
    model, width, tolerance = found.model, found.model.target.width, found.tolerance
    if found.agrees:
        found.save(output)
    written = str(output) if found.agrees else None
    document = {
        **_document(found.embedding, found.host),
        "verdict": found.verdict,
        "model": model.title,
        "vocabulary": model.vocabulary,
        "positions": model.positions,
        "width": width,
        **comparison(model, found.agreement, tolerance),
        "file": written,
    }
    positions = f"{model.positions} learned positions" if model.positions else "no learned positions"
    positions = f"a row of E for each at {model.positions} positions" if model.ids is not None else positions
    rows = {
        "result": found.verdict,
        "model": f"{model.vocabulary} tokens, {positions}, width {width} and one for a constant coordinate",
        "shape": f"{model.shape}, m = {found.host.m}",
        "read as": model.title,
        **_rows(found.embedding),
        **comparison_rows(model, found.agreement, tolerance),
        "embedding": written or "none",
    }
    return Outcome(document, f"embed {found.name}", rows, agreement_code(model, found.agreement.decided(tolerance)))


def _document(found: Embedding, machine: Universal) -> dict[str, Any]:
    return {
        "notion": found.notion.value,
        "method": found.method,
        "rank": found.rank,
        "columns": found.columns,
        "condition": found.condition,
        "condition_estimated": found.condition_estimated,
        "relative_residual": found.relative_residual,
        "shape": machine.shape.document(machine.m),
    }


def _rows(found: Embedding) -> dict[str, Any]:
    estimated = "estimated in the 1-norm: " if found.condition_estimated else ""
    return {
        "method": found.method,
        **({"rank R_all": f"{found.rank} of M = {found.columns}"} if found.rank is not None else {}),
        **({"condition": f"{estimated}{found.condition:.3g}"} if found.condition is not None else {}),
        **({"relative residual": f"{found.relative_residual:.3g}"} if found.relative_residual is not None else {}),
    }
