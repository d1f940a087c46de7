"""The proved lower bounds that claims speak about, asked for by name, and exact dimensions of target families to hold them
against. The formulas themselves stand in `utfproof.certificates.dimensions`, once, for claims, frontier and prover."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import matmul
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, DIMENSION_ROWS, GENERIC_UNTIED, least_square_root
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims.claim import KNOWN, Agreed, Instance
from utfproof.claims.decisions import dense, rank_of_matrix
from utfproof.constructions.random import integer_target
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import Question
from utfproof.ground.notions import BOTH_FREE, Notion
from utfproof.shapes import Shape, head_words
from utfproof.systems import Target, prefix_products


def proved(name: str, shape: Shape, notion: Notion, free: str | None = None) -> int:
    """The least m that the named bound for generic untied targets allows at this shape, to which it applies."""
    asked = (name, notion, GENERIC_UNTIED, free)
    (row,) = (
        row for row in DIMENSION_ROWS if (row.name, row.notion, row.targets, row.free) == asked and row.applies(shape)
    )
    return row.least(shape)


def fibre_bound(shape: Shape) -> int:
    """L = 1, d <= d_in, functional: the least m with d_in m >= H (d_in^2 + 2 d d_in - d^2)."""
    return proved("side by side", shape, Notion.FUNCTIONAL)


def side_by_side_bound(shape: Shape) -> int:
    """The least m with d_in m >= d_in^2 H^L + S (2d d_in - d^2): d <= d_in, and H d >= d_in unless L = 1."""
    return proved("side by side", shape, Notion.ATTENTION_MATCHING)


def attention_matching_bound(shape: Shape) -> int:
    """The least m with d_in (m - d_in H^L) >= the dimension of the logit forms: a bound by attention-matching, every L."""
    return proved("logit forms", shape, Notion.ATTENTION_MATCHING)


def parameter_bound(shape: Shape) -> int:
    """E and U free, d >= d_in: the least m with 2 d_in m - 1 >= the dimension of the family of the M_w."""
    return proved("parameter count", shape, Notion.SHARED_ATTENTION, free=BOTH_FREE)


def below(
    shape: Shape,
    m: int,
    notion: Notion,
    targets: str = GENERIC_UNTIED,
    *,
    free: str | None = None,
    every: str = "host",
    detail: str = "",
    holds: bool = True,
    routes: tuple[str, ...] = (),
) -> Instance:
    """No host (or tied host) of m dimensions serves these targets: the certificate of the best bound that says so."""
    found = dimension_certificate(shape, m, notion=notion, targets=targets, free=free, every=every)
    return Instance(shape, holds and not found.universal, detail or f"m ≥ {m + 1}", found, routes, m=m)


def served(
    name: str, shape: Shape, m: int | None = None, *, least: int | None = None, holds: bool = True, detail: str = ""
) -> Instance:
    """The host of that name serves: its identity certificate, at m or at its own dimension, which has to be `least`."""
    found = identity_certificate(name, shape, m)
    m = int(found.document["shape"]["m"])
    return Instance(shape, holds and found.universal and least in (None, m), detail or f"{name} serves", found, m=m)


def square(shape: Shape) -> bool:
    """d = d_in."""
    return shape.head_dim == shape.d_in


def attained(
    shapes: Iterable[Shape],
    least: Callable[[Shape], int],
    notion: Notion,
    host: str | None = None,
    *,
    targets: str = GENERIC_UNTIED,
    free: str | None = None,
    met: Callable[[Shape], bool] = lambda shape: True,
) -> Iterator[Instance]:
    """At each shape nothing below `least` serves, and the host does at it where the bound is `met`."""
    for shape in shapes:
        m = least(shape)
        if m > 1:
            yield below(shape, m - 1, notion, targets, free=free)
        if host is not None and met(shape):
            yield served(host, shape, least=m)


def below_root(shape: Shape, every: str = "host") -> Instance:
    """Attention from outside, E and U free: no host serves all untied targets at the largest m with m² < H^L."""
    m = least_square_root(shape.leaves) - 1
    detail = f"m² = {m * m} < H^L = {shape.leaves}"
    return below(shape, m, Notion.SHARED_ATTENTION, ALL_UNTIED, free=BOTH_FREE, every=every, detail=detail)


def too_small_at_depth(constant: int, width: int) -> Instance:
    """One head, d = d_in: no host of m = constant · d serves almost all untied targets functionally once L is that constant, as
    (L+1)d dimensions are needed. Refutes that one constant does for all depths."""
    shape = Shape(1, constant, width, width)
    m, least = constant * width, side_by_side_bound(shape)
    return below(shape, m, Notion.FUNCTIONAL, detail=f"m = {m} < {least}", holds=False)


def open_question(shape: Shape, notion: Notion) -> Instance:
    """What the frontier knows of the least m: open as long as its interval is, and held to be known where it has closed."""
    known = interval(shape, Question(notion))
    return Instance(shape, True if known.closed else None, str(known), routes=(KNOWN,), m=known.lower)


def gap(shape: Shape, notion: Notion) -> str:
    """The frontier's interval in a few words."""
    known = interval(shape, Question(notion))
    return f"{known.lower} to {known.upper}"


# --- exact dimensions at one integer target --------------------------------------------------------------------


def _differential_rank(values: Callable[[], np.ndarray], matrices: Iterable[np.ndarray]) -> Agreed:
    """Rank of the differential of values(), which is affine in each entry of these matrices. FLINT and plain integers."""
    start, rows = values(), []
    for matrix in matrices:
        for place in np.ndindex(matrix.shape):
            matrix[place] += 1
            rows.append((values() - start).reshape(-1))
            matrix[place] -= 1
    return rank_of_matrix(np.array(rows, dtype=object))


def form_rank(target: Target) -> Agreed:
    """Rank of the differential of (W_Q, W_K) -> (M_w A^{l,h} M_v^T), |w| = |v| = l-1, summed over layers and heads
    (they are independent)."""
    ranks = []
    for layer in range(target.shape.layers):
        stacked = prefix_products(target, layer).reshape(-1, target.shape.d_in)
        for head in range(target.shape.heads):
            w_q, w_k = (matrix.copy() for matrix in target.parameters(layer, head)[:2])

            def forms(w_q: Any = w_q, w_k: Any = w_k, stacked: Any = stacked) -> np.ndarray:
                return (stacked @ w_q) @ (stacked @ w_k).T

            ranks.append(_differential_rank(forms, (w_q, w_k)))
    return Agreed(sum(found.value for found in ranks), ranks[0].routes)


def word_family_rank(target: Target) -> Agreed:
    """Rank of the differential of (M^{l,h}) -> (M_w)_w, |w| = L, at a target's forms."""
    H, L = target.shape.heads, target.shape.layers
    forms = [[dense(target.value_form(t, h)) for h in range(H)] for t in range(L)]

    def products() -> np.ndarray:
        return np.array([reduce(matmul, (forms[t][h] for t, h in enumerate(word))) for word in head_words(H, L)])

    return _differential_rank(products, itertools.chain(*forms))


def generic_rank(rank: Callable[[Target], Agreed], shape: Shape) -> Agreed:
    """The largest among four integer targets: the generic rank is at least that, and at most the formula's."""
    return max((rank(integer_target(shape, seed, bound=3)) for seed in range(4)), key=lambda found: int(found.value))


def generic_form_rank(shape: Shape) -> Agreed:
    """`generic_rank` of the logit forms."""
    return generic_rank(form_rank, shape)
