"""Producing certificates, in stages: construct the host or open it, choose the kind of evidence, check what nothing computed.

Each kind is one strategy: `can(host)` says whether it is for the host and the question, `build(host)` makes the certificate.
"""

from __future__ import annotations

from typing import Any, Protocol

from utfproof.certificates import checker
from utfproof.certificates.dimensions import ByEveryHost
from utfproof.certificates.format import Certificate
from utfproof.certificates.gated import ByTables
from utfproof.certificates.hosts import Examined, constructed, opened
from utfproof.certificates.identities import ByIdentity
from utfproof.certificates.linear_test import ByLinearTest
from utfproof.certificates.rank import (
    ByDimension,
    ByElimination,
    ByEqualColumns,
    ByPermutation,
    ByRepeatedColumn,
)
from utfproof.certificates.tied import ByTiedTargets
from utfproof.errors import ResourceLimit, Undecided
from utfproof.shapes import Shape
from utfproof.util.notions import Notion
from utfproof.util.progress import stage
from utfproof.weights import HostFile


class Strategy(Protocol):
    """A way to decide hosts by one kind of certificate."""

    def can(self, host: Examined) -> bool:
        """Whether this is the kind for the host; asked in the order of STRATEGIES."""
        ...

    def build(self, host: Examined) -> Certificate:
        """The certificate, or Undecided."""
        ...


STRATEGIES: tuple[Strategy, ...] = (
    ByTiedTargets(),
    ByIdentity(),
    ByTables(),
    ByLinearTest(),
    ByEveryHost(),
    ByEqualColumns(),
    ByDimension(),
    ByElimination(),
    ByPermutation(),
    ByRepeatedColumn(),
)
"""In the order in which they are asked."""


def certify(name: str, shape: Shape, m: int | None = None, **options: Any) -> Certificate:
    """Decide universality of a named construction; the certificate says which way, and by which notion.

    With a residual stream `tied` is about all tied targets (L >= 2), every other construction about all untied ones.
    options: seed, law and dtype of random hosts; notion, by default the one that the construction serves by, else "matching";
    witness, device and max_memory (in bytes).

    Raises Undecided when no kind of certificate settles the question, NotDefined outside the construction's shapes,
    ResourceLimit before allocating.

    >>> from utfproof import Shape, certify
    >>> certify("tied", Shape(2, 2, 2, 3)).write("tied.json")
    [PosixPath('tied.json')]
    """
    return decide(constructed(name, shape, m, **options))


def certify_weights(host: HostFile, **options: Any) -> Certificate:
    """Decide universality of a host given as a file (its name, or open); the certificate is bound to the file's content.

    options: layers, d_in, residual, notion and tied_targets as for `hosts.opened`; witness, device and max_memory. Raises as
    `certify` does, and MalformedInput for files that hold no host.
    """
    return decide(opened(host, **options))


def decide(host: Examined) -> Certificate:
    """Ask each strategy in turn whether it can decide the host, and have the first one that can make the certificate."""
    if host.entry is not None and not host.entry.certified:
        raise Undecided(
            f"no kind of certificate names {host.name}; the evidence is a written proof with tests ({host.entry.page})"
        )
    chosen = next((strategy for strategy in STRATEGIES if strategy.can(host)), None)
    if chosen is None:
        raise Undecided(_no_kind(host))
    found = chosen.build(host)
    if not found.document["evidence"]:
        _require_accepted(found, host)
    if host.stored is not None:
        host.stored.file.require_unchanged()
    return found


def _no_kind(host: Examined) -> str:
    """Why no kind of certificate is for this host and notion."""
    about = f"no certificate kind decides {host.name} by {host.notion.value} at {host.shape}, m = {host.m}"
    own = host.entry.notion if host.entry else None
    if own not in (None, host.notion):
        return f"{about}; it serves {host.construction.targets} targets by {own.value}: ask with --notion {own.word}"
    return about + "; by matching it may be decided: ask with --notion matching" * (host.notion is not Notion.MATCHING)


def _require_accepted(stated: Certificate, host: Examined) -> None:
    """Undecided where the checker rejects what a construction's record says of it, which nothing here has computed."""
    try:
        with stage(f"checking {host.name}"):
            checker.check_document(checker.parse_canonical(stated.to_bytes()), "", checker.Options(), {})
    except checker.OverLimit as error:
        raise ResourceLimit(f"choose a smaller shape: checking {host.name} at {host.shape} {error}") from None
    except checker.Stop as error:
        raise Undecided(
            f"the record of {host.name} says how it serves its targets at {host.shape}, and is wrong: {error}"
        ) from None
