"""Errors that a user can act on. Each carries the exit code of the command line (0 holds,
1 refuted, 2 malformed, 3 resource limit, 4 undecided; 74: the output failed)."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterable


class UtfproofError(Exception):
    """Base class. The message is one line: what was given, what was expected, what to do."""

    exit_code = 2


class MalformedInput(UtfproofError, ValueError):
    """Input that no computation can start from: a wrong type, shape, name or file."""

    exit_code = 2


class MalformedFile(MalformedInput):
    """A file that does not hold what it should; the message begins with its name."""


class NotDefined(MalformedInput):
    """A construction asked for at a shape where it does not exist."""


class Refuted(UtfproofError):
    """The answer is no; the message names the notion of universality and the reason."""

    exit_code = 1


class CannotCarry(Refuted):
    """This host cannot carry this target.

    Attributes: rank of R_all, its number of columns M, relative_residual ||E R_all - W_all|| / ||W_all||.
    """

    def __init__(self, message: str, *, rank: int, columns: int, relative_residual: float) -> None:
        super().__init__(message)
        self.rank = rank
        self.columns = columns
        self.relative_residual = relative_residual


class OutsideClass(Refuted):
    """A target outside the class that a construction serves (too wide, say)."""


class SingularTarget(OutsideClass):
    """shared-query: some M^{l,0} of the target is singular."""


class ResourceLimit(UtfproofError):
    """More memory or time than allowed; the message says the figure and the limit."""

    exit_code = 3


class Stopped(UtfproofError):
    """Ctrl-C. The message says what is kept."""

    exit_code = 130


class Undecided(UtfproofError):
    """Neither established nor refuted."""

    exit_code = 4


class OutputFailed(UtfproofError):
    """A result could not be written: the disk is full, say. Outside 0 ... 4, as no verdict is left behind."""

    exit_code = 74


def install(package: str) -> str:
    """What installs a missing package for the Python that runs this, published or not."""
    more = {"dask": "dask distributed pyarrow", "distributed": "dask distributed pyarrow"}.get(package, package)
    return f"{shlex.quote(sys.executable)} -m pip install {more}"


def choose(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: the nearest known one, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 3, 0.7)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose {', '.join(known)}"
