"""The Typer application and the one place where errors become a line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer

from utfproof import __version__
from utfproof.cli import signals
from utfproof.cli.entry import Shown, entry
from utfproof.cli.outcome import plain
from utfproof.cli.registry import GROUPS, NAMES, help_of, load
from utfproof.errors import UtfproofError, install

INTERRUPTED = 130
READER_LEFT = 141
OUTPUT_FAILED = 74
INTERNAL_ERROR = 70
"""Outside 0 ... 4, so that a script never takes a failure for a verdict."""
WIDTH = 100
"""Columns of a help text, at most."""
EXTRAS = ("torch", "matplotlib", "dask", "distributed", "pyarrow")
"""Packages that are installed on request."""


def _version(value: bool) -> None:
    if value:
        print(f"utfproof {__version__}")
        raise typer.Exit()


def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options before the command."""


def application(first: str | None = None, *, outlined: bool = False) -> typer.Typer:
    """The command line with the commands of this first word, all of them by default; outlined: their names and sentences
    alone, without importing them."""
    app = typer.Typer(
        name="utfproof",
        help="Can a fixed transformer act as every transformer of a class when only its input embedding changes? "
        "Exit codes: 0 holds or valid, 1 refuted or invalid, 2 malformed input, 3 resource limit, 4 undecided.",
        epilog="Example: utfproof certify tied -H 4 -L 2 -d 24 --d-in 4 -o tied.json; utfproof check tied.json",
        no_args_is_help=True,
        context_settings={"max_content_width": WIDTH},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(root)
    groups: dict[str, typer.Typer] = {}
    for name in NAMES:
        word, _, inner = name.partition(" ")
        if first not in (None, word):
            continue
        if inner and word not in groups:
            groups[word] = typer.Typer(
                help=GROUPS[word], short_help=GROUPS[word], no_args_is_help=True, rich_markup_mode=None
            )
            app.add_typer(groups[word], name=word)
        function: Callable[..., Any] = (lambda: None) if outlined else load(name)
        if not outlined and name != "check":  # which prints the checker's own lines
            function = entry(name, function)
        place = groups[word] if inner else app
        settings = {"max_content_width": WIDTH}
        said = help_of(name)
        summary = " ".join(said.split("\n\n")[0].split())
        place.command(inner or word, help=said, short_help=summary, cls=Shown, context_settings=settings)(function)
    return app


def _asked_for(arguments: list[str]) -> typer.Typer:
    """The command line that these arguments need: one command, none for the version, outlines for help and for an unknown
    name; all where a shell asks how to complete them, or where options come first."""
    if any(name.endswith("_COMPLETE") for name in os.environ):
        return application()
    first = arguments[0] if arguments else "--help"
    if first == "--version" or any(first == name.partition(" ")[0] for name in NAMES):
        return application(first)
    return application(outlined=first == "--help" or not first.startswith("-"))


def run(arguments: list[str], *, begin: Callable[[], None] | None = None) -> int:
    """Run the command line on these arguments and return the exit code; prints at most one line of error.

    begin: called first, where whatever it makes happen is reported already.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # of interest to developers, who see them in the tests
        notes: dict[str, None] = {}  # said once, at the end: beside a refusal there is one line only

        def hold(message: Warning | str, *_: Any, **__: Any) -> None:
            notes[str(message)] = None

        warnings.showwarning = hold
        try:
            if begin is not None:
                begin()
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(errors="backslashreplace")  # file names need not fit the terminal's encoding
            result = _asked_for(arguments)(arguments, standalone_mode=False)
            _flush()
            _say_all(notes)
            if result == INTERRUPTED:  # how the argument parser hands on Ctrl-C
                raise KeyboardInterrupt
            return result if isinstance(result, int) else 0
        except BaseException as error:
            if not (isinstance(error, UtfproofError) and error.exit_code in (2, 3)):
                _say_all(notes)
            return _failure(error)


# --- what ended a command ------------------------------------------------------------------------------------------


def _failure(error: BaseException) -> int:
    """The exit code of what ended a command; its line is printed."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        error = error.__context__  # Typer makes it exit code 1, which is a verdict here
    if isinstance(error, typer.Exit | SystemExit):  # a verdict; SystemExit: the checker's own argument parser
        try:
            _flush()
        except OSError as lost:
            return _failure(lost)
        stop = error.exit_code if isinstance(error, typer.Exit) else error.code
        return stop if isinstance(stop, int) else 2
    number = signals.received()
    if number is None and isinstance(error, KeyboardInterrupt | typer.Abort):
        number = signal.SIGINT
    if number is not None:  # whatever the interrupted code made of it
        kept = isinstance(error, UtfproofError) and error.exit_code == INTERRUPTED  # a sweep says what it has kept
        _say(f"utfproof: {_one_line(str(error))}" if kept else signals.line(number))
        _drop_output()
        return signals.code(number)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without its command: the help, as it is
        _say(str(error))
        return 2
    code, line = _said(error)
    if code == INTERNAL_ERROR and os.environ.get("UTFPROOF_DEBUG"):
        raise error
    if line:
        _say(f"utfproof: {_one_line(line)}")
    if code in (READER_LEFT, OUTPUT_FAILED):
        _drop_output()
    return code


def _said(error: BaseException) -> tuple[int, str]:
    """Exit code and line of an error; no line where nobody reads it."""
    if isinstance(error, UtfproofError):
        return error.exit_code, str(error)
    if _is_out_of_memory(error):
        return 3, "out of memory; choose a smaller shape or lower --max-memory"
    if isinstance(error, BrokenPipeError):
        return READER_LEFT, ""
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return 2, "the working directory does not exist any more; change to one that does"
    if isinstance(error, OSError):  # files are handled where they are opened
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) and error.filename is not None:
            return 2, f"nothing can be called {error.filename}: {error.strerror}"
        return OUTPUT_FAILED, f"cannot write the output: {error.strerror or error}"
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRAS:
        return 2, f"this needs {package}, which is not installed: {install(package)}"
    if type(error) is typer.BadParameter and error.param is not None:
        label = max(error.param.opts, key=len)
        label = label if label.startswith("-") else label.upper()
        return 2, f"{label} {error.message} (see --help)"
    if hasattr(error, "format_message"):  # of the argument parser
        return 2, f"{error.format_message()} (see --help)"
    what = _one_line(f"{type(error).__name__}: {error}")[:300]
    return (
        INTERNAL_ERROR,
        f"internal error, nothing was decided: {what}; please report it (UTFPROOF_DEBUG=1 shows where)",
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """Of Python, of a device of torch, or of torch on the processor, which has no class of its own for it."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError)


def _has_folder() -> bool:
    """Whether the working directory is there."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _one_line(text: str) -> str:
    return plain(" ".join(text.split()))


def _say_all(notes: dict[str, None]) -> None:
    """The notes of a command, each of them once."""
    while notes:
        _say(f"note: {_one_line(notes.popitem()[0])}")


def _say(line: str) -> None:
    """A line on standard error; where that is gone too, the exit code has to do."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """Nothing more can be said, and the interpreter must not try to flush at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no output at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
