"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
from typing import Any

import typer

from utfproof.certificates import checker
from utfproof.certificates.checker import Verdict
from utfproof.certificates.checking import SECONDS, judging
from utfproof.cli import signals
from utfproof.cli.command import Shown
from utfproof.cli.display import require_mode, shown
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.ground.resources import parse_bytes

INTERRUPTED = 130
EPILOG = "Example: utfproof check certificates/"


def check(context: typer.Context) -> None:
    """Check certificates with a program that shares no code with the prover.

    Each valid certificate is proved (the verified checker accepted it, too: make checker), checked (by the Python checker
    alone) or cited (it rests on a written proof). Exit 0 iff every certificate is valid, whichever way it decides.
    """
    args, options = _parsed(context.args)
    with (
        shown(args.progress),
        stage("check", whole=True) as doing,
        judging(options, args.max_memory, args.max_seconds) as judge,
    ):

        def told(path: str, in_folder: bool) -> Verdict:
            verdict = judge(path, in_folder)
            doing.reach(doing.done + 1, f"{doing.done + 1:.0f}: {path}")
            return verdict

        code = checker.reported(args, told, judge.trusted)
        alone = judge.second is None
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    if code == checker.LACKING and alone:
        print("there is no verified checker here: make checker builds it", file=sys.stderr)
    raise typer.Exit(code)


class _Own:
    """The command; its options are the checker's own, the limits and --progress."""

    def register(self, app: typer.Typer, name: str) -> None:
        """Add it to an application."""
        settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        more: dict[str, Any] = {"epilog": EPILOG, "help": inspect.getdoc(check), "context_settings": settings}
        app.command(name, cls=Shown, **more)(check)


check.command = _Own()  # type: ignore[attr-defined]


def _parsed(words: list[str]) -> tuple[argparse.Namespace, checker.Options]:
    parser = checker.parser("utfproof check")
    parser.add_argument(
        "--max-memory", type=_bytes, metavar="BYTES", help="such as 500M or 4G (default: 80%% of the machine's)"
    )
    parser.add_argument(
        "--max-seconds", type=_seconds, default=SECONDS, metavar="N", help=f"for one certificate (default {SECONDS})"
    )
    parser.add_argument("--progress", default="auto", metavar="MODE", help="auto, plain or none")
    args = parser.parse_args(words)
    require_mode(args.progress)
    return args, checker.options_of(parser, args)


def _bytes(text: str) -> int:
    try:
        found = parse_bytes(text)
    except MalformedInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found == 0:
        raise argparse.ArgumentTypeError("no certificate is checked without memory; write for example 500M or 4G")
    return found


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise argparse.ArgumentTypeError(f"{checker.quote(text)} is not a positive number of seconds")
    return int(text)
