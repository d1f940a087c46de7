"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import argparse
import inspect
import signal
from typing import Any

import typer

from utfproof.certificates import checker
from utfproof.certificates.limited import Limited
from utfproof.cli import signals, verified
from utfproof.cli.command import Shown
from utfproof.cli.display import require_mode, shown
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.ground.resources import default_limit, parse_bytes

INTERRUPTED = 130
EPILOG = "Example: utfproof check certificates/"
SECONDS = 3600


def check(context: typer.Context) -> None:
    """Re-check certificates (files or folders) with a program that shares no code with the prover.

    Exit 0 iff every certificate is valid, whichever way it decides. Options: see utfproof check --help.
    """
    args, options = _parsed(context.args)
    if args.verified:
        verified.require(args.json)
    memory = default_limit() if args.max_memory is None else args.max_memory
    with (
        shown(args.progress),
        stage("check", whole=True) as doing,
        Limited(options, memory, args.max_seconds) as limited,
    ):
        code = checker.reported(
            args, limited.judge, lambda path: doing.reach(doing.done + 1, f"{doing.done + 1:.0f}: {path}")
        )
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    if args.verified and code == 0:
        code = verified.run(args.paths)
    raise typer.Exit(code)


class _Own:
    """The command; its options are the checker's own, the limits, --progress and --verified."""

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
    parser.add_argument(
        "--verified",
        action="store_true",
        help="have the verified checker (make checker) judge valid certificates as well; exit 4 for what it does not cover",
    )
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
