"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import Certificate, Device, DIn, Layers, MaxMemory, StoredResidual, rare
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import counterexample_of, remove_earlier
from utfproof.errors import MalformedInput


def decide(
    *,
    weights: Annotated[
        Path, typer.Argument(help="HOST.safetensors with R_Q, R_K, R_V (or R_Vv, R_Vo) and U.", metavar="HOST")
    ],
    output: Certificate,
    layers: Layers = None,
    d_in: DIn = None,
    residual: StoredResidual = None,
    notion: Annotated[str, typer.Option(help="Notion of universality: matching or attention-matching.")] = "matching",
    tied_targets: Annotated[
        bool, typer.Option("--tied-targets", help="Ask about weight-tied targets only (by matching).")
    ] = False,
    witness: Annotated[bool, rare("--witness", help="Evidence that is faster to check (a sidecar).")] = False,
    device: Device = "cpu",
    max_memory: MaxMemory = None,
) -> Outcome:
    """Decide exactly whether the weights in a file are universal.

    Writes the certificate. Floats are read as exact rationals. Exit 0: universal by the notion. 1: refuted by matching, which
    does not decide functional universality; a target that shows it is written beside the certificate. 4: undecided, or open
    (nothing says no by attention-matching).

    Examples: utfproof decide host.safetensors -o host.json; utfproof decide host.safetensors --tied-targets -o tied.json
    """
    from utfproof.decision.host import decide, write

    if notion != "matching" and tied_targets:
        raise MalformedInput("--tied-targets is about matching; leave out --notion")
    beside = counterexample_of(output, weights)
    stored: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual}
    how: dict[str, Any] = {"tied_targets": tied_targets, "witness": witness, "device": device, "max_memory": max_memory}
    found = write(decide(weights, notion=notion, **stored, **how), output, beside)
    if found.certificate is not None and found.target is None:
        remove_earlier(beside)
    return Outcome(found.document(), f"decide {weights}", found.rows(), found.decision.verdict.exit_code)
