"""Does a host match all *tied* targets (the same W_Q, W_K, W_V, W_O in every layer)? With a certificate either way.

Rows W_all of tied targets may span less than all M columns, so R_all may be deficient and the host still match them: what
counts is whether every kernel vector z of R_all has W_all z = 0 for every tied target. If one has not, a target says so
(method `tied-target`); if all have, that is an identity of polynomials in the target's entries (kind `tied-kernel`). Below the
dimension that tied targets span no host matches them (kind `lower-bound`). See docs/certificate-format.md sections 7, 10, 11.

With a residual stream the columns of a tied host repeat, and those of every W_all with them, where words agree up to zeros:
the differences are vectors z of the second kind, and often all there are.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_TIED, dimension_certificate
from utfproof.certificates.format import Certificate, certificate, pairs
from utfproof.certificates.hosts import Examined
from utfproof.certificates.kernel import exact_columns
from utfproof.certificates.lower_bounds import (
    TARGET_BOUND,
    span_certificate,
    span_dimension,
    target_entries,
)
from utfproof.constructions.random import integer_target
from utfproof.errors import NotDefined, Undecided
from utfproof.exact import gfp
from utfproof.exact.rational import primitive
from utfproof.matching import w_all
from utfproof.shapes import (
    Column,
    Shape,
    column_at,
    column_index,
    matching_dimension,
    require_words,
    tied_targets_dimension,
)

KERNEL_ENTRIES = 40_000
"""Largest R_all (entries) whose kernel is computed over the rationals."""
TRIALS = 4
"""Random targets that a kernel vector is tested with before it is taken to be annihilated by all; the checker proves that."""


class ByTiedTargets:
    """Stored hosts of which tied targets alone are asked: each kind of certificate that may say so, the cheapest first."""

    def can(self, host: Examined) -> bool:
        return host.tied_targets

    def build(self, host: Examined) -> Certificate:
        """The certificate. A host of full rank M gets that for all untied targets, which says more; one about every host of
        this dimension is not bound to the file.

        Raises Undecided where no certificate settles it (the message has what is known of the dimension that tied targets
        span), NotDefined unless d_in = d_out, ResourceLimit before allocating.
        """
        shape, m, M, source = host.shape, host.m, host.M, host.source
        assert source is not None
        if not host.square:
            raise NotDefined(f"tied targets are decided for d_in = d_out only, got {shape}, d_out = {shape.d_out}")
        require_words(shape)
        least = tied_targets_dimension(shape)
        if m < least and min(shape.d_in, shape.head_dim) >= shape.layers:
            return dimension_certificate(shape, m, targets=ALL_TIED)
        source.require_room("the rank of", 8 * (3 * m * M + 4 * m * m), host.max_memory)
        ranks = {}
        for p in gfp.DEFAULT_PRIMES:
            ranks[p] = gfp.rank(source.r_all(p), p, overwrite=True)
            if ranks[p] == M:
                return certificate("rank-modular", shape, m, host.document, {"method": "recompute", "prime": p}, rank=M)
        found = max(ranks.values())
        if shape.residual and host.tied and found >= least:  # nothing but the repetitions makes columns dependent
            return _tied_kernel(host, repetitions(shape), ranks)
        spanned = span_dimension(shape, tied=True)
        if m < spanned:
            return span_certificate(shape, m, tied=True)
        if m * M > KERNEL_ENTRIES:
            raise Undecided(
                f"R_all of {host.name} has {m} x {M} entries and rank {found} modulo a prime; a rational kernel is computed up "
                f"to {KERNEL_ENTRIES} entries. Tied targets at {shape} span at least {spanned} dimensions, m = {m}"
            )
        every = [column_at(shape, c) for c in range(M)]
        basis = kernel_basis(*exact_columns(source, every))
        if not basis:
            raise Undecided(
                f"R_all of {host.name} at {shape}, m = {m}, has full rank; no certificate kind says so here"
            )
        refuted = _tied_target(host, basis)
        return refuted if refuted is not None else _tied_kernel(host, basis, ranks)


def repetitions(shape: Shape) -> list[list[int]]:
    """e_c - e_c' for every column c whose word has letters 0 to drop, c' being that of the word without them (outputs: with
    them at the end). These are in the kernel of R_all of every tied host with a residual stream, and of W_all of every tied
    target; they span it if the other columns are independent."""
    M, basis = matching_dimension(shape), []
    for index in range(M):
        kind, word, coordinate = column_at(shape, index)
        letters = tuple(letter for letter in word if letter)
        if kind == "OV":
            letters += (0,) * (len(word) - len(letters))
        if letters != word:
            z = [0] * M
            z[column_index(shape, Column(kind, letters, coordinate))], z[index] = -1, 1
            basis.append(z)
    return basis


def kernel_basis(matrix: Any, units: list[Fraction]) -> list[list[int]]:
    """Primitive integer vectors that span the kernel of an fmpz_mat whose columns count these units, one a free column: that of
    the last entry, which is positive."""
    kernel, dimension = matrix.nullspace()
    basis = [primitive([int(kernel[i, j]) / unit for i, unit in enumerate(units)]) for j in range(dimension)]
    return [z if next(x for x in reversed(z) if x) > 0 else [-x for x in z] for z in basis]


def _pairs(z: list[int], host: Examined) -> list[list[int | str]]:
    return pairs({i: v for i, v in enumerate(z) if v}, f"a kernel vector of {host.name}")


def _tied_target(host: Examined, basis: list[list[int]]) -> Certificate | None:
    """The refutation by the kernel vector with the fewest digits that some drawn target does not annihilate."""
    vectors = sorted(basis, key=lambda z: (sum(abs(v).bit_length() for v in z), z))
    columns = np.array(vectors, dtype=object).T
    for seed in range(TRIALS):
        target = integer_target(host.shape, seed, tied=True, bound=TARGET_BOUND)
        missed = np.asarray(w_all(target), dtype=object) @ columns  # [d_in, k]
        for at, z in enumerate(vectors):
            rows = np.flatnonzero(missed[:, at])
            if len(rows):
                refuting = {"target": target_entries(target), "z": _pairs(z, host)}
                evidence = {"method": "tied-target", "row": int(rows[0]), **refuting}
                return certificate("rank-deficient", host.shape, host.m, host.document, evidence, targets=ALL_TIED)
    return None


def _tied_kernel(host: Examined, basis: list[list[int]], ranks: dict[int, int]) -> Certificate:
    rank = host.M - len(basis)
    vectors = np.array(basis, dtype=object)
    for p, known in ranks.items():
        if known >= rank and gfp.rank(gfp.residues(vectors, p), p) == len(basis):
            evidence = {"basis": [_pairs(z, host) for z in basis], "prime": p}
            return certificate("tied-kernel", host.shape, host.m, host.document, evidence, rank=rank, targets=ALL_TIED)
    raise Undecided(
        f"R_all of {host.name} has rank {rank} over the rationals but less modulo {', '.join(map(str, ranks))}"
    )
