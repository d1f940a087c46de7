"""`utfproof check`: the independent checker, also `python -m utfproof.certificates.checker`."""

from __future__ import annotations

import signal

import typer

from utfproof.certificates import checker
from utfproof.cli import signals

INTERRUPTED = 130
EPILOG = "Example: utfproof check certificates/"


def register(app: typer.Typer) -> None:
    """Add the command; its options are the checker's own."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("check", epilog=EPILOG, context_settings=settings)(command)


def command(context: typer.Context) -> None:
    """Re-check certificates (files or folders) with a program that shares no code with the prover.

    Exit 0 iff every certificate is valid, whichever way it decides. Options: see utfproof check --help.
    """
    code = checker.main(context.args, program="utfproof check")
    if code == INTERRUPTED:  # it has said so itself
        raise SystemExit(signals.code(signals.received() or signal.SIGINT))
    raise typer.Exit(code)
