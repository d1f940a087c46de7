"""The Typer application and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from utfproof import __version__
from utfproof.cli import bench, build, certify, check, decide, embed, emulate
from utfproof.errors import UtfproofError

INTERRUPTED = 130

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


for module in (certify, decide, check, build, embed, emulate, bench):
    module.register(app)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {_one_line(str(message))}", file=sys.stderr)


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
            result = app(arguments, standalone_mode=False)
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
            # the reader left; nothing more can be said, and the interpreter must not try at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except (KeyboardInterrupt, typer.Abort):
            print("utfproof: interrupted; nothing half-written is left", file=sys.stderr)
            return INTERRUPTED
        except typer.Exit as stop:
            return int(stop.exit_code)
        except SystemExit as stop:  # the checker's own argument parser
            return stop.code if isinstance(stop.code, int) else 2
        except Exception as error:
            # usage errors of the argument parser carry their own message; anything else is a bug and must show
            if hasattr(error, "format_message"):
                print(f"utfproof: {_one_line(error.format_message())} (see --help)", file=sys.stderr)
                return 2
            raise
