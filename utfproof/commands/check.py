"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from utfproof.certificates import checker
from utfproof.certificates.checker import Verdict
from utfproof.certificates.checking import SECONDS, Judge
from utfproof.cli import signals
from utfproof.cli.entry import AsJson, HelpAll, Progress, watched
from utfproof.cli.options import MaxMemory, one_of, positive, rare
from utfproof.cli.outcome import plain
from utfproof.errors import MalformedInput
from utfproof.util.progress import stage

INTERRUPTED = 130
LACKING = 4
"""Exit code where --require asks for more than is established."""
UNIVERSAL = "universal"
REQUIRED: dict[str, Callable[[Verdict], bool]] = {
    checker.PROVED: lambda verdict: verdict.status == checker.PROVED,
    checker.CHECKED: lambda verdict: verdict.status in (checker.PROVED, checker.CHECKED),
    UNIVERSAL: lambda verdict: verdict.facts.get("verdict") == UNIVERSAL,
}
"""Whether a valid certificate is enough for a word of --require."""


def check(
    *,
    paths: Annotated[
        list[str], typer.Argument(help="Certificates, and folders of them.", metavar="CERTIFICATE|FOLDER")
    ],
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing about valid certificates.")] = False,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 4 unless every certificate is proved, or at least checked (not only cited), or shows that its "
            "host is universal; repeatable.",
            parser=one_of(tuple(REQUIRED)),
            metavar="|".join(REQUIRED),
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

    Examples: utfproof check certificates/; utfproof check certificates/ --require universal --require checked
    """
    if max_memory == 0:
        raise MalformedInput("--max-memory 0: no certificate is checked without memory; write for example 500M or 4G")
    options = checker.Options(numpy, tuple(weights or ()))
    for place in options.weights:
        if not os.path.exists(place):
            raise MalformedInput(f"--weights {place}: there is no such file or folder")

    lacking: dict[str, str] = {}

    def code_of(found: list[Verdict]) -> int:
        code = checker.exit_code(found)
        return LACKING if code == checker.VALID and lacking else code

    with watched(progress), stage("check", whole=True) as doing, Judge(options, max_memory, max_seconds) as judge:

        def told(path: str, in_folder: bool) -> Verdict:
            verdict = judge(path, in_folder)
            doing.reach(doing.done + 1, f"{doing.done + 1:.0f}: {path}")
            if verdict.code == checker.VALID:
                lacking.update({word: path for word in require or () if not REQUIRED[word](verdict)})
            return verdict

        code = checker.reported(paths, told, as_json=as_json, quiet=quiet, trusted=judge.trusted, code_of=code_of)
        alone = judge.second is None
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    if code == LACKING:
        for word, path in lacking.items():
            what = "shows that its host is universal" if word == UNIVERSAL else f"is {word}"
            print(plain(f"not every certificate {what}: {path}"), file=sys.stderr)
        if alone and checker.PROVED in lacking:
            print("there is no verified checker here: make checker builds it", file=sys.stderr)
    raise typer.Exit(code)
