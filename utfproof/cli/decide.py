"""`utfproof decide`: is the host in this file universal by matching?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from utfproof.cli import options
from utfproof.cli.certify import report, require_json

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
    found = certify_weights(
        host,
        layers=layers,
        d_in=d_in,
        witness=witness,
        device=device,
        max_memory=options.memory_limit(max_memory),
    )
    report(found, output, f"decide {host}", as_json=as_json)
