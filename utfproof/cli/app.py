"""The Typer application and the one place where errors become a line and an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Any

import typer

from utfproof import __version__
from utfproof.cli import (
    bench,
    build,
    certify,
    check,
    decide,
    embed,
    emulate,
    export,
    figure,
    frontier,
    refute_lower,
    search,
    sweep,
    tables,
    train,
    verify,
)
from utfproof.errors import UtfproofError

INTERRUPTED = 130
OUTPUT_FAILED = 74
INTERNAL_ERROR = 70
"""Outside 0 ... 4, so that a script never takes a failure for a verdict."""

app = typer.Typer(
    name="utfproof",
    help="Can a fixed transformer act as every transformer of a class when only its embedding changes? "
    "Certificates, an independent checker, embeddings and exact emulation. "
    "Exit codes: 0 holds or valid, 1 refuted or invalid, 2 malformed input, 3 resource limit, 4 undecided.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        print(f"utfproof {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options before the command."""


for module in (
    verify,
    certify,
    decide,
    refute_lower,
    check,
    build,
    embed,
    export,
    emulate,
    frontier,
    search,
    train,
    tables,
    figure,
    sweep,
    bench,
):
    module.register(app)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {_one_line(str(message))}", file=sys.stderr)


def _drop_output() -> None:
    """Nothing more can be said, and the interpreter must not try to flush at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no output at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: list[str]) -> int:
    """Run the command line on these arguments and return the exit code; prints at most one line of error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        seen: set[str] = set()

        def note_once(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in seen:
                seen.add(str(message))
                _note(message)

        warnings.showwarning = note_once
        try:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="backslashreplace")  # file names need not fit the terminal's encoding
            result = app(arguments, standalone_mode=False)
            if sys.stdout is not None:
                sys.stdout.flush()
            if result == INTERRUPTED:  # how the argument parser hands on Ctrl-C
                raise KeyboardInterrupt
            return result if isinstance(result, int) else 0
        except UtfproofError as error:
            print(f"utfproof: {_one_line(str(error))}", file=sys.stderr)
            return error.exit_code
        except MemoryError:
            print("utfproof: out of memory; choose a smaller shape or lower --max-memory", file=sys.stderr)
            return 3
        except BrokenPipeError:
            _drop_output()  # the reader left
            return 141
        except (KeyboardInterrupt, typer.Abort):
            print("utfproof: interrupted; nothing half-written is left", file=sys.stderr)
            return INTERRUPTED
        except typer.Exit as stop:
            return int(stop.exit_code)
        except SystemExit as stop:  # the checker's own argument parser
            return stop.code if isinstance(stop.code, int) else 2
        except OSError as error:  # files are handled where they are opened: this is the output
            print(f"utfproof: cannot write the output: {error.strerror or error}", file=sys.stderr)
            _drop_output()
            return OUTPUT_FAILED
        except Exception as error:
            # usage errors of the argument parser carry their own message; anything else is a bug, and no verdict
            if hasattr(error, "format_message"):
                print(f"utfproof: {_one_line(error.format_message())} (see --help)", file=sys.stderr)
                return 2
            if os.environ.get("UTFPROOF_DEBUG"):
                raise
            what = _one_line(f"{type(error).__name__}: {error}")[:300]
            print(
                f"utfproof: internal error, nothing was decided: {what}; please report it (UTFPROOF_DEBUG=1 shows where)",
                file=sys.stderr,
            )
            return INTERNAL_ERROR
