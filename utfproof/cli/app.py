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
from utfproof.cli.command import WIDTH, Group, Shown
from utfproof.cli.output import plain
from utfproof.cli.registry import GROUPS, NAMES, help_of, load
from utfproof.errors import UtfproofError, install

INTERRUPTED = 130
READER_LEFT = 141
OUTPUT_FAILED = 74
INTERNAL_ERROR = 70
"""Outside 0 ... 4, so that a script never takes a failure for a verdict."""
_NO_NAMES = {getattr(errno, name) for name in ("ENAMETOOLONG", "ELOOP") if hasattr(errno, name)}
"""What the system says of names that no file can have."""

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
    """The command line with the commands of this first word, with all of them where none is said; outlined: their names and
    sentences alone, for --help and for a name that is none, without importing them."""
    app = typer.Typer(
        name="utfproof",
        cls=Group,
        help="Can a fixed transformer act as every transformer of a class when only its input embedding changes? "
        "Exit codes: 0 holds or valid, 1 refuted or invalid, 2 malformed input, 3 resource limit, 4 undecided.",
        epilog="Example: utfproof certify tied -H 4 -L 2 -d 24 --d-in 4 -o tied.json; utfproof check tied.json",
        no_args_is_help=True,
        context_settings={"max_content_width": WIDTH},
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(root)
    made: dict[str, typer.Typer] = {}
    for entry in NAMES:
        word, grouped, name = entry.partition(" ")
        if first not in (None, word):
            continue
        if grouped and word not in made:
            made[word] = typer.Typer(cls=Group, help=GROUPS[word], no_args_is_help=True, rich_markup_mode=None)
            app.add_typer(made[word], name=word)
        place, name = (made[word], name) if grouped else (app, word)
        if outlined:
            place.command(name, help=help_of(entry), cls=Shown)(lambda: None)
        else:
            load(entry).register(place, name)
    return app


def _asked_for(arguments: list[str]) -> typer.Typer:
    """The command line that these arguments need: one command, none for the version, outlines for help and for a name that is
    none; all where a shell asks how to complete them, or where options come first."""
    if any(name.endswith("_COMPLETE") for name in os.environ):
        return application()
    first = arguments[0] if arguments else "--help"
    if first == "--version" or any(first == name.partition(" ")[0] for name in NAMES):
        return application(first)
    return application(outlined=first == "--help" or not first.startswith("-"))


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


def _drop_output() -> None:
    """Nothing more can be said, and the interpreter must not try to flush at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no output at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def _has_folder() -> bool:
    """Whether the working directory is there."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _system_failure(error: OSError) -> int:
    """The same where the system would not have it; files are handled where they are opened."""
    if isinstance(error, BrokenPipeError):
        _drop_output()  # the reader left
        return READER_LEFT
    if isinstance(error, FileNotFoundError) and not _has_folder():
        _say("utfproof: the working directory does not exist any more; change to one that does")
        return 2
    if error.errno in _NO_NAMES and error.filename is not None:
        _say(f"utfproof: nothing can be called {_one_line(str(error.filename))}: {error.strerror}")
        return 2
    # the output, or a temporary folder
    _say(f"utfproof: cannot write the output: {_one_line(str(error.strerror or error))}")
    _drop_output()
    return OUTPUT_FAILED


def _is_out_of_memory(error: BaseException) -> bool:
    """Of Python, of a device of torch, or of torch on the processor, which has no class of its own for it."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    return isinstance(error, MemoryError)


def _failure(error: BaseException) -> int:
    """The exit code of what ended a command, and its line."""
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
    if isinstance(error, UtfproofError):
        _say(f"utfproof: {_one_line(str(error))}")
        return error.exit_code
    if _is_out_of_memory(error):
        _say("utfproof: out of memory; choose a smaller shape or lower --max-memory")
        return 3
    if isinstance(error, OSError):
        return _system_failure(error)
    # usage errors of the argument parser carry their own message; anything else is a bug, and no verdict
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
        package = (error.name or "").partition(".")[0]
        _say(f"utfproof: this needs {package}, which is not installed: {install(package)}")
        return 2
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without its command: the help, as it is
        _say(str(error))
        return 2
    if hasattr(error, "format_message"):
        _say(f"utfproof: {_one_line(error.format_message())} (see --help)")
        return 2
    if os.environ.get("UTFPROOF_DEBUG"):
        raise error
    what = _one_line(f"{type(error).__name__}: {error}")[:300]
    _say(f"utfproof: internal error, nothing was decided: {what}; please report it (UTFPROOF_DEBUG=1 shows where)")
    return INTERNAL_ERROR
