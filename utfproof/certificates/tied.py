"""Does a host match all *tied* targets (the same W_Q, W_K, W_V, W_O in every layer)? With a certificate either way.

Rows W_all of tied targets may span less than all M columns, so R_all may be deficient and the host still match them: what
counts is whether every kernel vector z of R_all has W_all z = 0 for every tied target. If one has not, a target says so
(method `tied-target`); if all have, that is an identity of polynomials in the target's entries (kind `tied-kernel`). Below the
dimension that tied targets span no host matches them (kind `lower-bound`). See docs/certificate-format.md sections 7, 10, 11.

With a residual stream the columns of a tied host repeat, and those of every W_all with them, where words agree up to zeros:
the differences are vectors z of the second kind, and often all there are.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb, gcd
from typing import Any

import numpy as np

from utfproof.certificates.examined import Examined, constructed, opened, settings_of
from utfproof.certificates.format import INLINE_LIMIT, Certificate, certificate, integer
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.lower_bounds import (
    ALL_TIED,
    TARGET_BOUND,
    dimension_certificate,
    span_certificate,
    span_dimension,
    target_entries,
)
from utfproof.certificates.prover import decide
from utfproof.certificates.residual import reduced_columns
from utfproof.certificates.sources import RandomDraw, require_rebuilt
from utfproof.constructions import build_host, construction
from utfproof.constructions.random import integer_target
from utfproof.errors import NotDefined, ResourceLimit, Undecided
from utfproof.exact import gfp
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all, w_all
from utfproof.shapes import (
    Column,
    Shape,
    column_at,
    column_index,
    matching_dimension,
    require_words,
    tied_targets_dimension,
)
from utfproof.systems import TiedUniversal, Universal
from utfproof.weights import HostFile

KERNEL_ENTRIES = 40_000
"""Largest R_all (entries) whose kernel is computed over the rationals."""
TRIALS = 4
"""Random targets that a kernel vector is tested with before it is taken to be annihilated by all; the checker proves that."""


def certify_tied(name: str, shape: Shape, m: int | None = None, **options: Any) -> Certificate:
    """Decide whether a named construction matches all tied targets of width d_in = d_out.

    A host of full rank M gets the certificate for all untied targets, which says more; `commuting-trie` that of its
    identity. options: as for `certify`, without a notion. Raises Undecided where no certificate settles it (the message has
    what is known of the dimension that tied targets span), NotDefined unless d_in = d_out and outside the construction's
    shapes, ResourceLimit before allocating.
    """
    _require_square(shape)
    settings = settings_of(options)
    entry = construction(name)
    if entry.identity is not None and (entry.notion, entry.targets) == (Notion.MATCHING, "all tied"):
        return identity_certificate(name, shape, m, max_memory=settings.max_memory)
    host = constructed(name, shape, m, notion=Notion.MATCHING, settings=settings, **options)
    require_rebuilt(entry)
    return decide(host).certificate if entry.permutation else _decide(host)


def certify_tied_weights(host: HostFile, **options: Any) -> Certificate:
    """The same for a host given as a file; options as for `certify_weights`. The certificate is bound to the file's content,
    but for one that no host of this dimension matches all tied targets."""
    settings = settings_of(options)
    examined = opened(host, settings=settings, **options)
    _require_square(examined.shape)
    found = _decide(examined)
    examined.require_unchanged()
    return found


def _rational(host: Examined) -> np.ndarray:
    """R_all [m, M] in exact true entries."""
    shape, m = host.shape, host.m
    if host.stored is not None:
        parts = {tensor: exact(array) for tensor, array in host.stored.file.tensors.items()}
        first = parts["R_Vv" if "R_Vv" in parts else "R_V"]
        kind = TiedUniversal if host.tied else Universal
        return _dense(r_all(kind(shape, m, parts["R_Q"], parts["R_K"], first, parts["U"], R_Vo=parts.get("R_Vo"))))
    limit = host.settings.max_memory
    if not isinstance(host.source, RandomDraw):
        return _dense(r_all(build_host(host.name, shape, m, max_memory=limit)))
    drawn = host.source
    made = build_host(host.name, shape, m, seed=drawn.seed, law=drawn.law, dtype=drawn.dtype, max_memory=limit)
    R_Q, R_K, R_V, U = (exact(tensor) for tensor in (made.R_Q, made.R_K, made.R_V, made.U))
    return _dense(r_all(replace(made, R_Q=R_Q, R_K=R_K, R_V=R_V, U=U)))


def span_upper_bound(shape: Shape) -> int:
    """A proved upper bound for the dimension that W_all of tied targets of width d_in = d_out span.

    For d_in = 1 the factors M_h are numbers, so columns with the same letters before their reader are equal; else M, or with
    a residual stream 2dS + d_out (1 + S), the number of columns of words without the letter 0.
    """
    H, L, d = shape.heads, shape.layers, shape.head_dim
    M = tied_targets_dimension(shape)
    if shape.d_in != 1 or shape.d_out != 1:
        return M
    outputs = comb(L + H, H) if shape.residual else comb(L + H - 1, H - 1)
    return min(M, 2 * d * H * comb(L - 1 + H, H) + outputs)


def _require_square(shape: Shape) -> None:
    if shape.d_in != shape.d_out:
        raise NotDefined(f"tied targets are decided for d_in = d_out only, got {shape}, d_out = {shape.d_out}")
    require_words(shape)


def _dense(matrix: Any) -> np.ndarray:
    return matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix, dtype=object)


def _decide(host: Examined) -> Certificate:
    shape, m, M, max_memory = host.shape, host.m, host.M, host.settings.max_memory
    tried = host.settings.primes or gfp.DEFAULT_PRIMES
    if m < tied_targets_dimension(shape) and min(shape.d_in, shape.head_dim) >= shape.layers:
        return dimension_certificate(shape, m, targets=ALL_TIED)
    require_memory(8 * (3 * m * M + 4 * m * m), f"the rank of R_all of {host.name} at {shape}, m = {m},", max_memory)
    ranks = {}
    if host.source is not None:
        for p in tried:
            ranks[p] = gfp.rank(host.source.r_all(p), p, overwrite=True)
            if ranks[p] == M:
                evidence = {"method": "recompute", "prime": p}
                return certificate("rank-modular", shape, m, host.document, evidence, rank=M)
    if shape.residual and host.tied and max(ranks.values(), default=0) >= tied_targets_dimension(shape):
        # nothing but the repetitions makes columns dependent
        return _tied_kernel(host, repetitions(shape), ranks, tried, f"m = {m}")
    spanned = span_dimension(shape, tied=True)
    if m < spanned:
        return span_certificate(shape, m, tied=True)
    known = f"tied targets at {shape} span between {spanned} and {span_upper_bound(shape)} dimensions, m = {m}"
    if m * M > KERNEL_ENTRIES:
        rank = f" and R_all has rank {max(ranks.values())} modulo a prime" if ranks else ""
        raise Undecided(
            f"R_all of {host.name} has {m} x {M} entries; a rational kernel is computed up to {KERNEL_ENTRIES} entries. "
            f"{known}{rank}"
        )
    basis = kernel_basis(_rational(host))
    if not basis:
        raise Undecided(f"R_all of {host.name} at {shape}, m = {m}, has full rank; no certificate kind says so here")
    refuted = _tied_target(host, basis)
    return refuted if refuted is not None else _tied_kernel(host, basis, ranks, tried, known)


def repetitions(shape: Shape) -> list[list[int]]:
    """e_c - e_c' for every column c whose word has letters 0 to drop, c' being that of the word without them (outputs: with
    them at the end). These are in the kernel of R_all of every tied host with a residual stream, and of W_all of every tied
    target; they span it if the other columns are independent."""
    M, kept = matching_dimension(shape), reduced_columns(shape)
    basis = []
    for index in sorted(set(range(M)) - set(kept)):
        kind, word, coordinate = column_at(shape, index)
        letters = tuple(letter for letter in word if letter)
        if kind == "OV":
            letters += (0,) * (len(word) - len(letters))
        z = [0] * M
        z[column_index(shape, Column(kind, letters, coordinate))], z[index] = -1, 1
        basis.append(z)
    return basis


def kernel_basis(matrix: np.ndarray) -> list[list[int]]:
    """Primitive integer vectors that span the kernel of an exact matrix [rows, columns], one for each free column."""
    from flint import fmpz_mat

    rows, columns = matrix.shape
    integers = []
    for row in matrix:
        scale = 1
        for x in row:
            scale = scale * x.denominator // gcd(scale, x.denominator)
        integers += [int(x * scale) for x in row]
    reduced, denominator, rank = fmpz_mat(rows, columns, integers).rref()
    pivots: list[int] = []
    for column in range(columns):
        if len(pivots) < rank and reduced[len(pivots), column] != 0:
            pivots.append(column)
    basis = []
    for free in sorted(set(range(columns)) - set(pivots)):
        z = [0] * columns
        z[free] = int(denominator)
        for i, pivot in enumerate(pivots):
            z[pivot] = -int(reduced[i, free])
        divisor = gcd(*z) * (-1 if z[free] < 0 else 1)
        basis.append([v // divisor for v in z])
    return basis


def _pairs(z: list[int], name: str) -> list[list[int | str]]:
    pairs = [[integer(i), integer(v)] for i, v in enumerate(z) if v]
    if len(pairs) > INLINE_LIMIT:
        raise ResourceLimit(f"a kernel vector of {name} has {len(pairs)} entries, a certificate holds {INLINE_LIMIT}")
    return pairs


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
                evidence = {
                    "method": "tied-target",
                    "row": int(rows[0]),
                    "target": target_entries(target),
                    "z": _pairs(z, host.name),
                }
                return certificate(
                    "rank-deficient", host.shape, host.m, host.document, evidence, rank=None, targets=ALL_TIED
                )
    return None


def _tied_kernel(
    host: Examined, basis: list[list[int]], ranks: dict[int, int], primes: tuple[int, ...], known: str
) -> Certificate:
    shape, m = host.shape, host.m
    rank = matching_dimension(shape) - len(basis)
    if host.source is None:
        raise Undecided(
            f"{host.name} at {shape}, m = {m}: every tied target drawn annihilates the kernel of R_all, but the certificate "
            "kind that says so is for random hosts and weights from a file; write the host to a file and decide that"
        )
    vectors = np.array(basis, dtype=object)
    for p in primes:
        if ranks[p] >= rank and gfp.rank(gfp.residues(vectors, p), p) == len(basis):
            evidence = {"basis": [_pairs(z, host.name) for z in basis], "prime": p}
            return certificate("tied-kernel", shape, m, host.document, evidence, rank=rank, targets=ALL_TIED)
    raise Undecided(
        f"R_all of {host.name} has rank {rank} over the rationals but less modulo {', '.join(map(str, primes))}; "
        f"pass other primes. {known}"
    )
