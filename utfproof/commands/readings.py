"""Models as commands take them: the options that read one, and how its comparison is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.options import option
from utfproof.errors import MalformedInput
from utfproof.shapes import positive_integer, span

if TYPE_CHECKING:
    from utfproof.models import Agreement, Reading

MOST_TOKENS = 10**6
"""Token ids of a part of a model."""


OWN_LAYOUT = "utfproof"


@dataclass(frozen=True)
class LiveOptions:
    """A live model, or a part of one."""

    module: Annotated[str | None, option("Models: package.module:factory, called with TARGET's path.")] = None
    tokens: Annotated[str | None, option("--module: only layer 0's attention, on these ids (1,2,5..9).")] = None
    positions: Annotated[int | None, option("--tokens: at most so many positions.", check=positive_integer)] = None
    upto: Annotated[
        str | None, option("--tokens: submodule whose output is meant; the first attention's.", advanced=True)
    ] = None

    def reading(self, target: Path, seed: int, limit: int | None) -> Reading | None:
        """The model or part that --module makes, None without it. MalformedInput where options contradict each other."""
        from utfproof.models import from_model, make_module

        if self.module is None:
            if any(value is not None for value in (self.tokens, self.positions, self.upto)):
                raise MalformedInput("--tokens, --positions and --upto are about a part of a live model: pass --module")
            return None
        if self.tokens is None and (self.positions is not None or self.upto is not None):
            raise MalformedInput("--positions and --upto are about a part of a model: pass --tokens")
        ids = None if self.tokens is None else token_ids(self.tokens)
        made = make_module(self.module, target)
        return from_model(made, tokens=ids, positions=self.positions, upto=self.upto, seed=seed, max_memory=limit)


@dataclass(frozen=True)
class ModelOptions(LiveOptions):
    """A model: live, or what is said of it beside its file."""

    attention: Annotated[
        str | None, option("Models: softmax, causal, window:W, joined by '+'; causal by default.", advanced=True)
    ] = None

    def read(
        self, target: Path, layout: str, *, heads: int | None, residual: bool | None, seed: int, limit: int | None
    ) -> Reading:
        """The model of a file, or of the module that --module makes. MalformedInput where options contradict each other."""
        from utfproof.models import import_model

        if self.module is not None and self.attention is not None:
            raise MalformedInput("--attention says what a live module shows by itself: leave it out")
        live = self.reading(target, seed, limit)
        if live is not None:
            return live
        return import_model(target, layout, attention=self.attention, heads=heads, residual=residual, max_memory=limit)


def token_ids(text: str) -> list[int]:
    """Token ids and ranges of them, such as 1,2,5..9."""
    spans = [span(item) for item in text.split(",")]
    if None in spans or sum(last - first + 1 for first, last in filter(None, spans)) > MOST_TOKENS:
        raise MalformedInput(f"--tokens {text[:40]!r}: expected at most {MOST_TOKENS} token ids, such as 1,2,5..9")
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
    from utfproof.models.importing import FACTS

    largest = f"{agreement.relative_difference:.3g} relative (tolerance {tolerance:.3g})"
    unknown = "; ".join(f"{FACTS[name][0]} (say it by {FACTS[name][1]})" for name in model.unknown)
    return {
        **(model.facts or {}),
        "biases": model.biases(),
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
