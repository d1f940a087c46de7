"""Targets and models as commands take them, and how a model's comparison is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.options import rare
from utfproof.errors import MalformedInput
from utfproof.shapes import span
from utfproof.systems import Target
from utfproof.systems.biases import BiasedTarget

if TYPE_CHECKING:
    from utfproof.models import Agreement, Reading

MOST_TOKENS = 10**6
"""Token ids of a part of a model."""

Module = Annotated[str | None, typer.Option(help="A model: package.module:factory, called with TARGET.")]
Tokens = Annotated[str | None, rare(help="--module: only layer 0's attention, on these ids (1,2,5..9).")]
Positions = Annotated[int | None, rare(help="--tokens: at most so many positions.")]
TargetFile = Annotated[Path | None, typer.Option(help="TARGET.safetensors; random targets by default.")]
EmbeddingFile = Annotated[Path | None, typer.Option(help="E.safetensors of this target; solved for by default.")]
TiedTargets = Annotated[bool, rare("--tied-targets", help="Random targets are weight-tied.")]


def read(
    target: Path,
    dimensions: list[int | None],
    *,
    residual: bool | None,
    module: str | None,
    tokens: str | None,
    positions: int | None,
    seed: int,
    limit: int | None,
    attention: str | None = None,
) -> Target | BiasedTarget | Reading:
    """A file's target, or a model, by the names in the file or from --module, or a part of one. MalformedInput where options
    contradict each other."""
    from utfproof.models.importing import import_model, is_model
    from utfproof.models.live import from_model
    from utfproof.models.modules import make_module
    from utfproof.weights import read_target

    heads, layers = dimensions[:2]
    needs = {"--tokens": tokens is not None and module is None, "--positions": positions is not None and tokens is None}
    if missing := [name for name, lacking in needs.items() if lacking]:
        raise MalformedInput(f"{missing[0]} is about a part of a live model: pass --module and --tokens")
    if tokens is not None and positions is None:
        raise MalformedInput("--tokens is about a part of a model at some positions: pass --positions too")
    if module is not None:
        if attention is not None:
            raise MalformedInput("--attention is about files of models; a live module shows its own: leave it out")
        ids = None if tokens is None else token_ids(tokens)
        return from_model(make_module(module, target), tokens=ids, positions=positions, seed=seed, max_memory=limit)
    if is_model(target, limit):
        return import_model(target, attention=attention, heads=heads, residual=residual, max_memory=limit)
    if attention is not None:
        raise MalformedInput(f"--attention is about models, and {target} is a target: leave it out")
    return read_target(target, layers=layers, residual=residual, max_memory=limit)


def target_for(host: str, model: Target | BiasedTarget | Reading) -> Target | BiasedTarget:
    """A model as a target; a constant coordinate carries its biases, unless the host serves them as they are."""
    from utfproof.constructions import CONSTRUCTIONS

    if isinstance(model, Target | BiasedTarget):
        return model
    entry, target = CONSTRUCTIONS.get(host), model.target
    return target.augmented() if entry is None or entry.models is None else target


def token_ids(text: str) -> list[int]:
    """Token ids and ranges of them, such as 1,2,5..9."""
    spans = [span(item) for item in text.split(",")]
    if None in spans or sum(last - first + 1 for first, last in filter(None, spans)) > MOST_TOKENS:
        raise MalformedInput(f"token ids {text[:40]!r}: expected at most {MOST_TOKENS} token ids, such as 1,2,5..9")
    return [token for first, last in filter(None, spans) for token in range(first, last + 1)]


def comparison(model: Reading, agreement: Agreement, tolerance: float) -> dict[str, Any]:
    """How far the model is from the host, for --json."""
    seen = model.coverage
    return {
        "relative_difference": agreement.relative_difference,
        "tolerance": tolerance,
        "agrees": agreement.within(tolerance),
        "sequences": agreement.sequences,
        "compared_positions": agreement.positions,
        "witness": model.witness,
        "coverage": None if seen is None else seen.words(),
        "read_as": model.facts,
        "unknown": list(model.unknown),
    }


def comparison_rows(model: Reading, agreement: Agreement, tolerance: float) -> dict[str, str]:
    """For people: every fact under which the model was read, and on whose word; then the comparison."""
    from utfproof.models.importing import LIVE, SETTLED

    largest = f"{agreement.relative_difference:.3g} relative (tolerance {tolerance:.3g})"
    unknown = "; ".join(f"{name} (say it by {SETTLED.get(name, LIVE)})" for name in model.unknown)
    return {
        **model.facts,
        "compared with": model.witness or "its own reading of the file alone: pass --module",
        **({"compared on": model.coverage.words()} if model.coverage is not None else {}),
        **({"unknown": f"outputs depend on these, and nobody says them (exit 4): {unknown}"} if unknown else {}),
        "largest difference": f"{largest}, sequence {agreement.sequence}",
        "host compared on": f"{agreement.sequences} sequences, {agreement.positions} positions",
    }


def agreement_code(model: Reading, agrees: bool | None) -> int:
    """1 where outputs differ; 4 where that is not known (None), or a fact that changes outputs is known to nobody; 0
    otherwise."""
    return 1 if agrees is False else 4 if agrees is None or model.unknown else 0
