"""A model's reading and its comparison, as the commands print them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from utfproof.models import Agreement, Reading


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
        "not_read": list(model.not_read),
    }


def comparison_rows(model: Reading, agreement: Agreement, tolerance: float) -> dict[str, str]:
    """For people: every fact under which the model was read, and on whose word; then the comparison."""
    from utfproof.models.configuration import FACTS

    largest = f"{agreement.relative_difference:.3g} relative (tolerance {tolerance:.3g})"
    unknown = "; ".join(f"{FACTS[name][0]} (say it by {FACTS[name][1]})" for name in model.unknown)
    return {
        **(model.facts or {}),
        "biases": model.biases(),
        **({"metadata not read": ", ".join(model.not_read)} if model.not_read else {}),
        "compared with": model.witness or "its own reading of the file alone: pass --reference or --module",
        **({"compared on": model.coverage.words()} if model.coverage is not None else {}),
        **({"unknown": f"outputs depend on these, and nobody says them (exit 4): {unknown}"} if unknown else {}),
        "largest difference": f"{largest}, sequence {agreement.sequence}",
        "host compared on": f"{agreement.sequences} sequences, {agreement.positions} positions",
    }


def agreement_code(model: Reading, agrees: bool | None) -> int:
    """1 where outputs differ; 4 where that is not known (None), or a fact that changes outputs is known to nobody; 0
    otherwise."""
    return 1 if agrees is False else 4 if agrees is None or model.unknown else 0
