"""Certificates of kind `lower-bound` beside the dimension bounds: by targets whose rows span too much, or by a vector that
annihilates all word products of a given shared-attention host (docs/certificate-format.md sections 10.2 and 10.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_TIED, ALL_UNTIED, BOTH, GENERIC_TIED, GENERIC_UNTIED
from utfproof.certificates.format import Certificate, certificate, integer, pairs
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.exact import gfp, rational
from utfproof.shapes import Shape, matching_dimension, positive_integer, require_plain, require_words
from utfproof.systems import Target, dense
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory

TARGET_BOUND = 16
"""Drawn targets have weights in -16 ... 16: generic enough for spans, and short in a certificate."""
PRIME = gfp.DEFAULT_PRIMES[0]
NULL_ENTRIES = 10**6
"""Largest m^2 H^L whose null vector is computed over the rationals."""


# --- span --------------------------------------------------------------------------------------------------


def target_entries(target: Target) -> list[list[Any]]:
    """[tensor, l, h, i, j, v] for the nonzero entries, as section 10.2 writes them. MalformedInput for targets that are
    not of width d_in = d_out or not of integers."""
    names = ("W_K", "W_O", "W_Q", "W_V")
    tables = {name: np.asarray(getattr(target, name)) for name in names}
    whole = all(isinstance(v, int | np.integer) for array in tables.values() for v in array.reshape(-1))
    if target.W_E is not None or target.W_U is not None or not whole:
        raise MalformedInput("a certificate holds integer targets of width d_in = d_out, without W_E and W_U")
    entries: list[list[Any]] = []
    for name, array in tables.items():
        by_layer = array[None] if target.tied else array
        for layer, *place in np.argwhere(by_layer).tolist():
            value = by_layer[layer, *place]
            entries.append([name, 0 if target.tied else layer + 1, *place, integer(int(value))])
    return entries


def target_rows(
    targets: Sequence[Target], p: int, notion: Notion = Notion.MATCHING, free: str | None = None
) -> np.ndarray:
    """Rows modulo p that the targets make a host's dimension bound, centred residues: by matching all rows of the
    W_all [targets * d_in, M]; for shared attention with E free the rows of their output columns [targets * d_in, d_in H^L];
    with E and U free the entries ((M_w)_ij)_w [targets * d_in^2, H^L]."""
    shape, count, tied = targets[0].shape, len(targets), targets[0].tied
    b, eye = shape.d_in, np.eye(shape.d_in, dtype=np.int64)

    def residues(tensor: str) -> np.ndarray:
        """[targets, L or 1, H, rows, columns], 0 ... p-1, whose products fit 64 bits."""
        found = np.array([np.asarray(getattr(target, tensor), dtype=object) for target in targets]) % p
        return (found[:, None] if tied else found).astype(np.int64)

    readers, values = [residues("W_Q"), residues("W_K")], residues("W_V") @ residues("W_O") % p
    if shape.residual:
        values = np.concatenate([np.broadcast_to(eye, (*values.shape[:2], 1, b, b)), values], axis=2)
    products = np.broadcast_to(eye, (count, 1, b, b))  # [targets, words, d_in, d_in]
    read: list[list[np.ndarray]] = [[], []]
    for layer in range(shape.layers):
        at = 0 if tied else layer
        for part, matrices in zip(read, readers if notion is Notion.MATCHING else (), strict=False):
            part.append((products[:, :, None] @ matrices[:, None, at]).transpose(0, 3, 1, 2, 4).reshape(count, b, -1))
        products = (products[:, :, None] @ values[:, None, at] % p).reshape(count, -1, b, b)
    if free == BOTH:
        rows = products.transpose(0, 2, 3, 1).reshape(count * b * b, -1)
    else:
        outputs = products.transpose(0, 2, 1, 3).reshape(count, b, -1)
        rows = np.concatenate([*read[0], *read[1], outputs], axis=2).reshape(count * b, -1)
    return np.asarray(gfp.residues(rows, p))


def span_columns(shape: Shape, notion: Notion, free: str | None) -> tuple[int, int]:
    """Columns of `target_rows`, the largest dimension that targets can span, and rows for each target. NotDefined for shared
    attention with a residual stream."""
    require_words(shape)
    if notion is Notion.MATCHING:
        return matching_dimension(shape), shape.d_in
    require_plain(shape, "the span by shared attention")
    return (shape.leaves, shape.d_in**2) if free == BOTH else (shape.d_in * shape.leaves, shape.d_in)


def span_dimension(shape: Shape, *, tied: bool, notion: Notion = Notion.MATCHING, free: str | None = None) -> int:
    """Rank modulo a prime of the `target_rows` of random small targets, drawn until doubling their number adds nothing.

    Always a lower bound for the dimension that all targets of the class span (and for every host's m by matching, or for
    shared attention with E free; for its m^2 with E and U free); the dimension itself except with small probability.
    """
    most = span_columns(shape, notion, free)[0] - 1
    return len(_independent(shape, tied, notion, free, 2, most)[1])


def _independent(
    shape: Shape, tied: bool, notion: Notion, free: str | None, count: int, most: int
) -> tuple[list[Target], list[int]]:
    """Random targets, and independent ones of their rows: at first `count` targets, doubled in number until these rows are
    more than `most`, or no more than before. ResourceLimit before they fill memory."""
    if shape.d_in != shape.d_out:
        raise MalformedInput(f"span certificates are for d_in = d_out, got {shape}")
    (columns, height), before = span_columns(shape, notion, free), -1
    while True:
        require_memory(200 * count * columns * height, f"{count} targets at {shape}")
        targets = [integer_target(shape, seed, tied=tied, bound=TARGET_BOUND) for seed in range(count)]
        rows = list(gfp.rank_profile(target_rows(targets, PRIME, notion, free), PRIME).rows)
        if len(rows) > most or len(rows) == before:
            return targets, rows
        before, count = len(rows), 2 * count


def span_certificate(
    shape: Shape,
    m: int,
    targets: Sequence[Target] | None = None,
    *,
    tied: bool,
    notion: Notion = Notion.MATCHING,
    free: str | None = None,
    generic: bool = False,
) -> Certificate:
    """No host of dimension m or less is universal by this notion (matching, or shared attention, generic only), d_in = d_out:
    the `target_rows` of these targets have rank above m modulo the prime (above m^2 with E and U free). Without `targets`,
    small random integer ones are drawn, and those not needed dropped.

    Raises Undecided where the rank found is not above, MalformedInput for targets of another shape, width or class.
    """
    m = positive_integer("m", m)
    if notion is not Notion.MATCHING and not (generic and notion is Notion.SHARED_ATTENTION):
        raise MalformedInput("span certificates are for matching, and for shared attention with generic targets")
    most = m * m if free == BOTH else m
    chosen = _searched(shape, most, tied, notion, free) if targets is None else list(targets)
    if any(target.shape != shape or target.tied is not tied for target in chosen):
        raise MalformedInput(f"a target of the span is not of the class {'tied' if tied else 'untied'} at {shape}")
    rank = gfp.rank(target_rows(chosen, PRIME, notion, free), PRIME) if chosen else 0
    if rank <= most:
        raise Undecided(f"the rows of the targets found have rank {rank} at {shape}, not above {most}: nothing follows")
    evidence = {"method": "span", "prime": PRIME, "targets": [target_entries(target) for target in chosen]}
    wanted = (GENERIC_TIED if tied else GENERIC_UNTIED) if generic else (ALL_TIED if tied else ALL_UNTIED)
    return certificate("lower-bound", shape, m, {"every": "host"}, evidence, notion=notion, targets=wanted, free=free)


def _searched(shape: Shape, most: int, tied: bool, notion: Notion, free: str | None) -> list[Target]:
    """Random targets that the first most + 1 independent rows come from."""
    columns, height = span_columns(shape, notion, free)
    if most >= columns:
        raise Undecided(f"{most} is not below the {columns} columns at {shape}: no rows have a larger rank")
    targets, rows = _independent(shape, tied, notion, free, -(-(most + 1) // height), most)
    if len(rows) <= most:
        raise Undecided(
            f"{'tied' if tied else 'untied'} targets at {shape} were found to span {len(rows)} dimensions, not more "
            f"than {most}: nothing follows"
        )
    return [targets[i] for i in sorted({row // height for row in rows[: most + 1]})]


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

    Raises NotDefined with a residual stream, Undecided where the R_w are independent, MalformedInput for other than integer
    matrices of one size, ResourceLimit beyond the size that is solved or written.
    """
    require_words(require_plain(shape, "the null vector of a shared-attention host"))
    grid = [[np.asarray(dense(value), dtype=object) for value in row] for row in ([R_V] if tied else R_V)]
    m, layers = len(grid[0][0]), 1 if tied else shape.layers
    whole = all(isinstance(x, int) for row in grid for value in row for x in value.reshape(-1))
    square = all(value.shape == (m, m) for row in grid for value in row)
    if len(grid) != layers or {len(row) for row in grid} != {shape.heads} or not square or not whole:
        raise MalformedInput(
            f"R_V must hold integer matrices [{layers}, {shape.heads}, m, m], got [{len(grid)}, {len(grid[0])}] of "
            f"{grid[0][0].shape}"
        )
    if m * m * shape.leaves > NULL_ENTRIES:
        raise ResourceLimit(
            f"the products R_w at {shape}, m = {m}, have {m * m * shape.leaves} entries; a null vector is computed up to "
            f"{NULL_ENTRIES}"
        )
    products = word_products(grid, shape.layers)
    y = rational.kernel_vector(np.stack([product.reshape(-1) for product in products], axis=1))
    if y is None:
        raise Undecided(f"the {len(products)} products R_w are linearly independent at m = {m}: nothing follows")
    pairs_of_y = pairs({i: value for i, value in enumerate(y) if value}, "the null vector")
    evidence = {"method": "null-vector", "word": pairs_of_y[0][0], "y": pairs_of_y}
    system = "looped-shared-attention-universal" if tied else "shared-attention-universal"
    host = {
        "R_V": [[[[integer(x) for x in line] for line in value] for value in row] for row in grid],
        "system": system,
    }
    return certificate("lower-bound", shape, m, host, evidence, notion=Notion.SHARED_ATTENTION, free=BOTH)
