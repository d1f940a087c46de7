"""Certificates of kind `lower-bound`: no host of dimension m or less is universal, or a given one is not.

By the dimension arguments, by targets whose rows span too much, or by a vector that annihilates all word products of a given
shared-attention host (docs/certificate-format.md section 10).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, log2
from typing import Any

import numpy as np

from utfproof.arrays import exact
from utfproof.certificates.format import INLINE_LIMIT, Certificate, certificate, integer
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.exact import gfp, rational
from utfproof.matching import w_all
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.selection import SelectionMatrix
from utfproof.shapes import Shape, matching_dimension, positive_integer
from utfproof.systems import Target

ALL_UNTIED = "all untied"
ALL_TIED = "all tied"
TARGET_BOUND = 16
"""Drawn targets have weights in -16 ... 16: generic enough for spans, and short in a certificate."""
NULL_ENTRIES = 10**6
"""Largest m^2 H^L whose null vector is computed over the rationals."""


def _require_words(shape: Shape) -> None:
    """ResourceLimit before H^L is computed."""
    if shape.layers * log2(shape.heads) > 60 or shape.layers > 2**20:
        raise ResourceLimit(f"{shape} has more than 2^60 head words or 2^20 layers; choose a smaller shape")


# --- dimension ---------------------------------------------------------------------------------------------


def dimension_bound(
    shape: Shape, m: int, *, notion: Notion | str, targets: str = ALL_UNTIED, free: str | None = None
) -> tuple[int, int, str]:
    """(a, b, what they are): no host of dimension m is universal if a < b. MalformedInput where no bound is proved."""
    notion = Notion(notion)
    _require_words(shape)
    d, d_in, H, L = shape.head_dim, shape.d_in, shape.heads, shape.layers
    wanted = (notion, targets, free)
    if wanted == (Notion.MATCHING, ALL_UNTIED, None):
        return m, matching_dimension(shape), "m and M"
    if wanted == (Notion.MATCHING, ALL_TIED, None) and min(d, d_in) >= L:
        return m, matching_dimension(shape), "m and M"
    if wanted == (Notion.SHARED_ATTENTION, ALL_UNTIED, "E"):
        return m, shape.d_out * shape.leaves, "m and d_out H^L"
    if wanted == (Notion.SHARED_ATTENTION, ALL_UNTIED, "E and U"):
        return m * m, shape.leaves, "m^2 and H^L"
    if wanted == (Notion.SHARED_ATTENTION, ALL_TIED, "E"):
        return m, comb(L + H - 1, H - 1), "m and C(L+H-1, H-1)"
    if wanted == (Notion.SHARED_ATTENTION, ALL_TIED, "E and U"):
        return m * m, comb(L + H - 1, H - 1), "m^2 and C(L+H-1, H-1)"
    if wanted == (Notion.FUNCTIONAL, ALL_UNTIED, None) and L == 1 and d <= d_in == shape.d_out:
        return d_in * m, H * (d_in * d_in + 2 * d * d_in - d * d), "d_in m and H (d_in^2 + 2 d d_in - d^2)"
    said = f"{notion.value}, targets {targets!r}" + (f", free {free!r}" if free else "")
    raise MalformedInput(f"no dimension bound is proved for {said} at {shape}, d_out = {shape.d_out}")


def dimension_certificate(
    shape: Shape,
    m: int,
    *,
    notion: Notion = Notion.MATCHING,
    targets: str = ALL_UNTIED,
    free: str | None = None,
    every: str = "host",
) -> Certificate:
    """No host (every="host" or "tied host") of embedding dimension m or less is universal, by the dimension argument.

    free: "E" or "E and U" for shared attention. Raises Undecided where m is not below the bound, MalformedInput where no
    bound is proved.
    """
    m = positive_integer("m", m)
    _require_every(every)
    have, needed, what = dimension_bound(shape, m, notion=notion, targets=targets, free=free)
    if have >= needed:
        raise Undecided(f"{what} are {have} and {needed} at {shape}: m = {m} is not below the bound, nothing follows")
    return certificate(
        "lower-bound",
        shape,
        m,
        {"every": every},
        {"method": "dimension"},
        notion=Notion(notion),
        targets=targets,
        free=free,
        universal=False,
    )


def _require_every(every: str) -> None:
    if every not in ("host", "tied host"):
        raise MalformedInput(f"every is 'host' or 'tied host', got {every!r}")


# --- span --------------------------------------------------------------------------------------------------


def target_entries(target: Target) -> list[list[Any]]:
    """[tensor, l, h, i, j, v] for the nonzero entries, as section 10.2 writes them. MalformedInput for targets that are
    not of width d_in = d_out or not of integers."""
    if target.W_E is not None or target.W_U is not None:
        raise MalformedInput("a span certificate holds targets of width d_in = d_out, without W_E and W_U")
    entries: list[list[Any]] = []
    for tensor in ("W_K", "W_O", "W_Q", "W_V"):
        array = np.asarray(getattr(target, tensor))
        if array.dtype.kind not in "Oiu" or not all(isinstance(v, int | np.integer) for v in array.reshape(-1)):
            raise MalformedInput(f"a span certificate holds integer targets; {tensor} has other entries")
        table = array[None] if target.tied else array
        for index in np.ndindex(table.shape):
            value = int(table[index])
            if value:
                layer, head, i, j = index
                entries.append([tensor, 0 if target.tied else layer + 1, head, i, j, integer(value)])
    return entries


def target_rows(targets: Sequence[Target], p: int) -> np.ndarray:
    """All rows of the W_all modulo p [targets * d_in, M], centred residues in float64."""
    return np.concatenate([gfp.residues(np.asarray(w_all(target), dtype=object), p) for target in targets])


def span_dimension(shape: Shape, *, tied: bool, seed: int = 0, prime: int = gfp.DEFAULT_PRIMES[0]) -> int:
    """Rank modulo a prime of the rows W_all of random small targets, drawn until doubling their number adds nothing.

    Always a lower bound for the dimension that all targets of the class span (and for every host's m by matching); the
    dimension itself except with small probability.
    """
    found = 0
    count = 2
    while True:
        targets = _drawn(shape, tied, seed, count)
        rank = gfp.rank(target_rows(targets, prime), prime)
        if rank in (found, matching_dimension(shape)):
            return rank
        found, count = rank, 2 * count


def _drawn(shape: Shape, tied: bool, seed: int, count: int) -> list[Target]:
    """The first `count` targets of a seed below 2^32; ResourceLimit before they fill memory."""
    _require_words(shape)
    if shape.d_in != shape.d_out:
        raise MalformedInput(f"span certificates are for d_in = d_out, got {shape}")
    M = matching_dimension(shape)
    require_memory(200 * count * shape.d_in * M, f"{count} targets at {shape}, M = {M},")
    return [integer_target(shape, (seed << 32) + i, tied=tied, bound=TARGET_BOUND) for i in range(count)]


def span_certificate(
    shape: Shape,
    m: int,
    targets: Sequence[Target] | None = None,
    *,
    tied: bool,
    every: str = "host",
    seed: int = 0,
    prime: int = gfp.DEFAULT_PRIMES[0],
) -> Certificate:
    """No host of dimension m or less matches all targets (tied or untied), d_in = d_out: the rows W_all of these targets
    have rank above m modulo the prime. Without `targets`, small random integer ones are drawn, and those not needed dropped.

    Raises Undecided where the rank found is m or less, MalformedInput for targets of another shape, width or class.
    """
    m = positive_integer("m", m)
    _require_every(every)
    chosen = _searched(shape, m, tied, seed, prime) if targets is None else list(targets)
    for target in chosen:
        if target.shape != shape or target.tied is not tied:
            raise MalformedInput(f"a target of the span is not of the class {'tied' if tied else 'untied'} at {shape}")
    rows = target_rows(chosen, prime) if chosen else np.zeros((0, matching_dimension(shape)))
    rank = gfp.rank(rows, prime)
    if rank <= m:
        raise Undecided(f"the rows W_all found have rank {rank} at {shape}, not above m = {m}: nothing follows")
    return certificate(
        "lower-bound",
        shape,
        m,
        {"every": every},
        {"method": "span", "prime": prime, "targets": [target_entries(target) for target in chosen]},
        notion=Notion.MATCHING,
        targets=ALL_TIED if tied else ALL_UNTIED,
        universal=False,
    )


def _searched(shape: Shape, m: int, tied: bool, seed: int, prime: int) -> list[Target]:
    """Random targets, doubled in number while that helps; then only those that the first m + 1 independent rows come from."""
    if m >= matching_dimension(shape):
        raise Undecided(f"m = {m} is not below M = {matching_dimension(shape)} at {shape}: no rows have a larger rank")
    count, before = -(-(m + 1) // shape.d_in), -1
    while True:
        targets = _drawn(shape, tied, seed, count)
        independent = gfp.rank_profile(target_rows(targets, prime), prime).rows
        if len(independent) > m:
            needed = sorted({row // shape.d_in for row in independent[: m + 1]})
            return [targets[i] for i in needed]
        if len(independent) == before:
            raise Undecided(
                f"{'tied' if tied else 'untied'} targets at {shape} were found to span {before} dimensions, not more "
                f"than m = {m}: nothing follows"
            )
        before, count = len(independent), 2 * count


# --- null vectors ------------------------------------------------------------------------------------------


def word_products(R_V: Sequence[Sequence[np.ndarray]], layers: int) -> list[np.ndarray]:
    """R_w for all words of length `layers` in lexicographic order; R_V [layers or 1][H] of exact matrices."""
    products: list[np.ndarray] = []
    for layer in range(layers):
        values = R_V[layer if len(R_V) > 1 else 0]
        products = [product @ value for product in products for value in values] if layer else list(values)
    return products


def null_vector_certificate(R_V: Any, shape: Shape, *, tied: bool) -> Certificate:
    """This shared-attention host (R_V [L][H], or [H] when tied, of integer matrices [m, m] or SelectionMatrix) does not serve
    all untied targets even with E and U free, because some y != 0 has sum_w y_w R_w = 0.

    Raises Undecided where the R_w are independent, MalformedInput for other than integer matrices of one size,
    ResourceLimit beyond the size that is solved or written.
    """
    _require_words(shape)
    grid = [_integer_matrices(R_V, shape, "R_V")] if tied else [_integer_matrices(row, shape, "R_V") for row in R_V]
    if len(grid) != (1 if tied else shape.layers):
        raise MalformedInput(f"R_V has {len(grid)} layers, expected {1 if tied else shape.layers}")
    m = len(grid[0][0])
    if any(value.shape != (m, m) for row in grid for value in row):
        raise MalformedInput("the matrices of R_V are not all square of one size")
    if m * m * shape.leaves > NULL_ENTRIES:
        raise ResourceLimit(
            f"the products R_w at {shape}, m = {m}, have {m * m * shape.leaves} entries; a null vector is computed up to "
            f"{NULL_ENTRIES}"
        )
    products = word_products(grid, shape.layers)
    y = rational.kernel_vector(np.stack([product.reshape(-1) for product in products], axis=1))
    if y is None:
        raise Undecided(f"the {len(products)} products R_w are linearly independent at m = {m}: nothing follows")
    pairs = [[i, integer(value)] for i, value in enumerate(y) if value]
    if len(pairs) > INLINE_LIMIT:
        raise ResourceLimit(f"the null vector has {len(pairs)} entries, a certificate holds at most {INLINE_LIMIT}")
    system = "looped-shared-attention-universal" if tied else "shared-attention-universal"
    host = {"R_V": [[[[integer(int(x)) for x in row] for row in v] for v in layer] for layer in grid], "system": system}
    return certificate(
        "lower-bound",
        shape,
        m,
        host,
        {"method": "null-vector", "word": pairs[0][0], "y": pairs},
        notion=Notion.SHARED_ATTENTION,
        targets=ALL_UNTIED,
        free="E and U",
        universal=False,
    )


def _integer_matrices(values: Any, shape: Shape, name: str) -> list[np.ndarray]:
    if len(values) != shape.heads:
        raise MalformedInput(f"{name} has {len(values)} heads, expected {shape.heads}")
    matrices = []
    for value in values:
        matrix = value.to_dense(object) if isinstance(value, SelectionMatrix) else np.asarray(value)
        if matrix.ndim != 2 or not all(isinstance(x, int | np.integer) for x in matrix.reshape(-1)):
            raise MalformedInput(f"{name} must hold integer matrices")
        matrices.append(exact(np.array([[int(x) for x in row] for row in matrix], dtype=object)))
    return matrices
