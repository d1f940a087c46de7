"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from utfproof.certificates import checker
from utfproof.certificates.checker import Verdict
from utfproof.certificates.checking import SECONDS, Judge
from utfproof.cli import signals
from utfproof.cli.entry import AsJson, HelpAll, Progress, watched
from utfproof.cli.options import MaxMemory, one_of, positive, rare
from utfproof.errors import MalformedInput
from utfproof.util.progress import stage

INTERRUPTED = 130
LACKING = 4
"""Exit code where --require asks for more than is established."""
ENOUGH = {None: (checker.PROVED, checker.CHECKED, checker.CITED), checker.CHECKED: (checker.PROVED, checker.CHECKED)}
"""What a certificate may rest on, by --require."""


def check(
    *,
    paths: Annotated[
        list[str], typer.Argument(help="Certificates, and folders of them.", metavar="CERTIFICATE|FOLDER")
    ],
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing about valid certificates.")] = False,
    require: Annotated[
        str | None,
        typer.Option(
            help="Exit with 4 unless every certificate is proved, or at least checked (not only cited).",
            parser=one_of((checker.PROVED, checker.CHECKED)),
            metavar=f"{checker.PROVED}|{checker.CHECKED}",
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of weights, tried before those beside the certificate, or a folder of them, tried after.",
            metavar="FILE|FOLDER",
        ),
    ] = None,
    numpy: Annotated[bool, typer.Option("--numpy", help="Ranks and witnesses with NumPy (trusted then, too).")] = False,
    max_memory: MaxMemory = None,
    max_seconds: Annotated[
        int, rare(help="Time limit for one certificate in seconds.", parser=positive, metavar="N")
    ] = SECONDS,
    progress: Progress = "auto",
    help_all: HelpAll = False,
) -> None:
    """Check certificates, without any code of the prover.

    Each valid certificate is proved (the verified checker accepted it, too: make checker), checked (by the Python checker
    alone) or cited (it rests on a written proof). Exit 0: all are valid, whichever way they decide. Else 1: one is invalid.
    Else 70: a check broke off, which is no verdict. Else 2: one is malformed. Else 3: one is over a limit.

    Example: utfproof check certificates/
    """
    if max_memory == 0:
        raise MalformedInput("--max-memory 0: no certificate is checked without memory; write for example 500M or 4G")
    options = checker.Options(numpy, tuple(weights or ()))
    for place in options.weights:
        if not os.path.exists(place):
            raise MalformedInput(f"--weights {place}: there is no such file or folder")

    def code_of(found: list[Verdict]) -> int:
        known = {verdict.status for verdict in found}
        code = checker.exit_code(found)
        return LACKING if code == checker.VALID and not known <= {*ENOUGH.get(require, (checker.PROVED,))} else code

    with watched(progress), stage("check", whole=True) as doing, Judge(options, max_memory, max_seconds) as judge:

        def told(path: str, in_folder: bool) -> Verdict:
            verdict = judge(path, in_folder)
            doing.reach(doing.done + 1, f"{doing.done + 1:.0f}: {path}")
            return verdict

        code = checker.reported(paths, told, as_json=as_json, quiet=quiet, trusted=judge.trusted, code_of=code_of)
        alone = judge.second is None
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    if code == LACKING:
        print(f"not every certificate is {require}", file=sys.stderr)
        if alone:
            print("there is no verified checker here: make checker builds it", file=sys.stderr)
    raise typer.Exit(code)
