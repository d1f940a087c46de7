"""`utfproof decide`: is the host in this file universal by matching?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from utfproof.cli import options
from utfproof.cli.certify import report, require_json

MARGIN_ENTRIES = 2_000_000
"""Largest R_all (entries) whose numerical rank is said beside the exact one."""
EPILOG = "Example: utfproof decide host.safetensors -o host.json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("decide", epilog=EPILOG)(command)


def command(
    host: Annotated[Path, typer.Argument(help="HOST.safetensors with R_Q, R_K, R_V (or R_Vv, R_Vo) and U.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Certificate to write (.json).")],
    layers: options.Layers = None,
    d_in: options.DIn = None,
    witness: Annotated[
        bool, typer.Option("--witness", help="Evidence that is much faster to check (a sidecar).")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy), or a torch device such as cuda.")] = "cpu",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide, exactly, whether these weights are universal by matching; the certificate is bound to their content.

    Floats are taken as the dyadic rationals that they are; factored values are never multiplied out in floats.
    Exit 0: universal by matching. 1: refuted by matching, which does not decide functional universality. 4: undecided.
    """
    from utfproof.certificates.prover import certify_weights

    require_json(output)
    limit = options.memory_limit(max_memory)
    found = certify_weights(
        host,
        layers=layers,
        d_in=d_in,
        witness=witness,
        device=device,
        max_memory=limit,
    )
    report(found, output, f"decide {host}", as_json=as_json, margin=_margin(host, layers, d_in, limit))


def _margin(host: Path, layers: int | None, d_in: int | None, limit: int | None) -> tuple[int, float] | None:
    """Numerical rank and condition of R_all; None where a singular value decomposition would take minutes."""
    from utfproof.matching import numerical_rank
    from utfproof.shapes import matching_dimension
    from utfproof.weights import read_host

    machine = read_host(host, layers=layers, d_in=d_in, max_memory=limit)
    if machine.m * matching_dimension(machine.shape) > MARGIN_ENTRIES:
        return None
    return numerical_rank(machine, max_memory=limit)
