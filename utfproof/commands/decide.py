"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import command
from utfproof.cli.options import Device, DIn, Layers, MaxMemory, StoredResidual, argument, option, written
from utfproof.cli.outcome import Outcome
from utfproof.commands.certify import require_json
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable


@command(
    "Examples: utfproof decide host.safetensors -o host.json; utfproof decide host.safetensors --tied-targets -o tied.json",
)
def decide(
    *,
    weights: Annotated[Path, argument("HOST.safetensors with R_Q, R_K, R_V (or R_Vv, R_Vo) and U.", metavar="HOST")],
    output: Annotated[Path, written("Certificate to write (.json).", "-o", "--output")],
    layers: Layers = None,
    d_in: DIn = None,
    residual: StoredResidual = None,
    notion: Annotated[str, option("Notion of universality: matching or attention-matching.")] = "matching",
    tied_targets: Annotated[
        bool, option("Ask about weight-tied targets only (by matching).", "--tied-targets")
    ] = False,
    target: Annotated[
        Path | None, written("Counterexample to write, a target (default: beside the certificate).")
    ] = None,
    witness: Annotated[
        bool, option("Evidence that is faster to check (a sidecar).", "--witness", advanced=True)
    ] = False,
    device: Device = "cpu",
    max_memory: MaxMemory = None,
) -> Outcome:
    """Decide exactly whether these weights are universal, and write the certificate.

    Floats are read as exact rationals. Exit 0: universal by the notion. 1: refuted by matching, which does not decide
    functional universality; a counterexample is written too. 4: undecided, or open (nothing says no by attention-matching).
    """
    from utfproof.decision.host import decide, write

    require_json(output)
    beside = target or output.with_name(output.stem + ".target.safetensors")
    _require_options(weights, beside, target, notion, tied_targets)
    stored: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual}
    how: dict[str, Any] = {"tied_targets": tied_targets, "witness": witness, "device": device, "max_memory": max_memory}
    found = write(decide(weights, notion=notion, **stored, **how), output, beside)
    if target is None and found.certificate is not None and found.target is None:
        options.remove_earlier_target(beside)
    return Outcome(found.document(), f"decide {weights}", found.rows(), found.decision.verdict.exit_code)


def _require_options(weights: Path, beside: Path, target: Path | None, notion: str, tied: bool) -> None:
    """MalformedInput, before any work, for options that exclude one another and files that would overwrite one another."""
    about_matching = {"--tied-targets": tied, "--target": target}
    if notion != "matching" and (said := [name for name, value in about_matching.items() if value]):
        raise MalformedInput(f"{said[0]} is about matching; leave out --notion")
    require_writable(beside)
    options.require_distinct(beside, weights)
