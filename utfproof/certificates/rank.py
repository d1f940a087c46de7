"""Is R_all of full rank? The kinds of certificates about universality by matching, for all untied targets.

Hosts of zeros and ones are decided on index maps in time linear in m; dense hosts by the rank of R_all modulo a prime;
whatever is deficient by m < M or by an exact kernel vector of R_all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from utfproof.certificates import checker
from utfproof.certificates.format import Certificate, certificate, integer, pairs
from utfproof.certificates.hosts import Examined
from utfproof.certificates.kernel import Vector, equal_columns, find_relation, refuted_column
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import Undecided
from utfproof.exact import gfp, lifting
from utfproof.matching import r_all
from utfproof.shapes import Column, column_index, tied_targets_dimension
from utfproof.util.arrays import to_numpy
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix

WITNESS_PRIMES = (65521, 65519, 65497)
"""The three largest primes below 2^16, for witnesses where small primes fail: 2 bytes an entry."""
LOOKED_AT = 2**16
"""Columns of R_all of a permutation host that are computed, beside what its record says."""
SEARCH_FROM = 2**15
"""Primes above this are large enough to name the columns of an exact relation."""
MORE_PRIMES = 8
"""How many primes are tried beyond the usual ones, before a rank that is deficient modulo each of them stays undecided."""


def asks_for_rank(host: Examined) -> bool:
    """Whether the question is about the rank of R_all of a host that the kinds of certificates name."""
    return host.notion is Notion.MATCHING and not host.tied_targets and (host.entry is None or host.entry.rebuilt)


class ByEqualColumns:
    """No tied host with a residual stream matches all untied targets for L >= 2, whatever its weights."""

    def can(self, host: Examined) -> bool:
        """Constructions made for tied targets are asked about these."""
        streaming = host.tied and host.shape.residual and host.shape.layers > 1
        return asks_for_rank(host) and streaming and not (host.entry and host.entry.permutation)

    def build(self, host: Examined) -> Certificate:
        """The first columns of the words (0, ..., 0, 1) and (1, 0, ..., 0) are equal; the target routed along the first, and
        that alone, is missed."""
        zeros = (0,) * (host.shape.layers - 1)
        first, second = (column_index(host.shape, Column("OV", word, 0)) for word in ((*zeros, 1), (1, *zeros)))
        return deficient(host, {first: 1, second: -1})


class ByDimension:
    """Below M, the number of columns, the rank cannot be M."""

    def can(self, host: Examined) -> bool:
        return asks_for_rank(host) and host.m < host.M and not (host.entry and host.entry.permutation)

    def build(self, host: Examined) -> Certificate:
        return certificate("rank-deficient", host.shape, host.m, host.document, {"method": "dimension"})


class ByElimination:
    """Random hosts, and weights from a file: full rank modulo a prime, or an exact kernel vector that elimination modulo a
    large prime leads to."""

    def can(self, host: Examined) -> bool:
        return asks_for_rank(host) and host.source is not None

    def build(self, host: Examined) -> Certificate:
        """Undecided where each prime misleads, ResourceLimit before allocating."""
        source, m, M, witness = host.source, host.m, host.M, host.witness
        assert source is not None
        # a witness: R_all is eliminated in place, beside the inverse and, where rows are chosen, a copy of them
        more = 8 * ((2 + (m > M)) * m * M + min(2 * m * M, 2**22) + 1000 * M) if witness else 0
        source.require_room("rank of", more, host.max_memory)
        tried, deficit = 0, False
        for p in _primes(gfp.SMALL_PRIMES + (WITNESS_PRIMES if witness else gfp.DEFAULT_PRIMES)):
            if deficit and p in gfp.SMALL_PRIMES:
                continue
            tried += 1
            rank, evidence = _witness(source.r_all(p), p) if witness else _recomputed(source.r_all(p), p)
            if rank == M:
                return certificate("rank-modular", host.shape, m, host.document, evidence, rank=M)
            deficit = rank < M - 1  # a random matrix loses two from its rank modulo p with probability about p^-4
            if p > SEARCH_FROM:  # a small prime misleads too often to look for integers behind it
                require_memory(8 * (6 * m * M + 4 * m * m), f"kernel of {source}", host.max_memory)
                z = find_relation(source, source.r_all(p), p)
                if z is not None:
                    return deficient(host, z)
        raise Undecided(
            f"{source} is rank-deficient modulo {tried} primes, which proves nothing, and no kernel vector was found"
        )


class ByPermutation:
    """Constructions whose columns of R_all begin in different rows, which the checker traces.

    With a residual stream R_all of `sparse` is unimodular and not a permutation. `tied`, which cannot tell (0, h) from (h, 0),
    is then about tied targets, which cannot either: only words without the letter 0 are looked at.
    """

    def can(self, host: Examined) -> bool:
        return asks_for_rank(host) and host.construction.permutation

    def build(self, host: Examined) -> Certificate:
        """Undecided where the package builds another host than the checker, ResourceLimit where tracing takes more memory."""
        entry, shape, m = host.construction, host.shape, host.m
        if not shape.residual and host.M <= LOOKED_AT:
            _require_specified(host)
        require_memory(
            600 * shape.words_at(shape.layers) + 5 * host.M, f"checking {host.name} at {shape}", host.max_memory
        )
        rank = tied_targets_dimension(shape) if shape.residual and entry.tied else host.M
        targets = "all untied" if entry.serves_untied(shape) else "all tied"
        return certificate("rank-permutation", shape, m, host.document, {}, rank=rank, targets=targets)


class ByRepeatedColumn:
    """Other constructions of zeros and ones: two equal columns of R_all, or one that is zero."""

    def can(self, host: Examined) -> bool:
        return asks_for_rank(host)

    def build(self, host: Examined) -> Certificate:
        z = equal_columns(_matrix(host))
        if z is not None:
            return deficient(host, z)
        known = ", ".join(other.name for other in CONSTRUCTIONS.values() if other.permutation)
        raise Undecided(
            f"{host.name} at {host.shape}, m = {host.m}: no two columns of R_all are equal, and the certificate kind for full "
            f"rank is specified for {known} only"
        )


# --- {0,1} hosts -------------------------------------------------------------------------------------------


def _matrix(host: Examined) -> SelectionMatrix:
    """R_all of the host that the package builds."""
    matrix = r_all(build_host(host.name, host.shape, host.m, max_memory=host.max_memory))
    assert isinstance(matrix, SelectionMatrix)
    return matrix


def _require_specified(host: Examined) -> None:
    """Undecided unless the package's R_all is the permutation that the checker traces."""
    shape = host.shape
    numbers = shape.heads, shape.layers, shape.head_dim, shape.d_in, shape.d_out
    rebuilt = checker.INDEX_HOSTS[host.name](checker.Shape(*numbers, host.m))
    rows = [
        np.arange(row, row + width)
        for runs, width in checker.traced(rebuilt, [shape.layers], stream=False)
        for row, _ in runs
    ]
    found, columns = _matrix(host).coordinates()
    if not np.array_equal(found[np.argsort(columns)], np.concatenate(rows)):
        raise Undecided(f"{host.name} at {shape} is built here with other matrices than the certificate format says")


# --- a kernel vector ---------------------------------------------------------------------------------------


def deficient(host: Examined, z: Vector) -> Certificate:
    """The refutation that R_all z = 0 gives: a target that every E misses."""
    evidence = {
        "method": "kernel-vector",
        "column": integer(refuted_column(host.shape, z)),
        "z": pairs(z, f"a kernel vector of {host.name}"),
    }
    return certificate("rank-deficient", host.shape, host.m, host.document, evidence)


# --- dense hosts -------------------------------------------------------------------------------------------


def _primes(usual: tuple[int, ...]) -> Iterator[int]:
    """The usual ones, then a few more of the kind."""
    yield from usual
    top = min(p for p in usual if p > SEARCH_FROM)
    yield from islice(lifting.primes_below(top), MORE_PRIMES)


def _recomputed(matrix: Any, p: int) -> tuple[int, dict[str, Any]]:
    """The rank of R_all modulo p, and the evidence where it is M."""
    return gfp.rank(matrix, p, overwrite=True), {"method": "recompute", "prime": p}


def _witness(matrix: Any, p: int) -> tuple[int, dict[str, Any]]:
    """M, and an inverse of M rows of R_all [m, M] modulo p; or a number below M, which the rank modulo p is at least."""
    m, M = matrix.shape
    rows = list(range(M)) if m == M else gfp.rank_profile(matrix, p).rows
    inverse = gfp.inverse(matrix if m == M else matrix[rows], p, overwrite=True) if len(rows) == M else None
    del matrix
    if inverse is None:
        return min(len(rows), M - 1), {}
    values = np.empty(M * M, dtype="uint8" if p < 2**8 else "uint16" if p < 2**16 else "uint32")
    for row, line in enumerate(to_numpy(inverse)):
        values[row * M : (row + 1) * M] = line + p * (line < 0)
    return M, {"inverse": values, "method": "witness", "prime": p, "rows": np.array(rows)}
