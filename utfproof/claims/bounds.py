"""The proved lower bounds that claims speak about, asked for by name, and exact dimensions of target families to hold them
against. The formulas themselves stand in `utfproof.certificates.dimensions`, once, for claims, frontier and prover."""

from __future__ import annotations

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, DIMENSION_ROWS, GENERIC_UNTIED, least_square_root
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims.claim import KNOWN, Agreed, Instance, agree
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


def _unit(rows: int, columns: int, i: int, j: int) -> np.ndarray:
    out = np.zeros((rows, columns), dtype=object)
    out[i, j] = 1
    return out


def form_rank(target: Target) -> Agreed:
    """Rank of the differential of (W_Q, W_K) -> (M_w A^{l,h} M_v^T), |w| = |v| = l-1, summed over layers and heads
    (they are independent). FLINT and plain integers."""
    shape = target.shape
    totals: dict[str, int] = {}
    for layer in range(shape.layers):
        stacked = prefix_products(target, layer).reshape(-1, shape.d_in)
        for head in range(shape.heads):
            w_q, w_k, _, _ = target.parameters(layer, head)
            rows = []
            for i in range(shape.d_in):
                for j in range(shape.head_dim):
                    step = _unit(shape.d_in, shape.head_dim, i, j)
                    rows.append((stacked @ (step @ w_k.T) @ stacked.T).reshape(-1))
                    rows.append((stacked @ (w_q @ step.T) @ stacked.T).reshape(-1))
            found = rank_of_matrix(np.array(rows, dtype=object))
            for route in found.routes:
                totals[route] = totals.get(route, 0) + found.value
    return agree(totals)


def generic_form_rank(shape: Shape) -> Agreed:
    """The largest `form_rank` among four integer targets: the generic rank is at least that, and at most the formula's."""
    return max(
        (form_rank(integer_target(shape, seed, bound=3)) for seed in range(4)), key=lambda found: int(found.value)
    )


def word_family_rank(target: Target) -> Agreed:
    """Rank of the differential of (M^{l,h}) -> (M_w)_w, |w| = L, at a target's forms. FLINT and plain integers."""
    shape = target.shape
    forms = [[dense(target.value_form(t, h)) for h in range(shape.heads)] for t in range(shape.layers)]
    rows = []
    for layer in range(shape.layers):
        for head in range(shape.heads):
            for i in range(shape.d_in):
                for j in range(shape.d_in):
                    parts = []
                    for word in head_words(shape.heads, shape.layers):
                        product = np.eye(shape.d_in, dtype=int).astype(object)
                        for t, h in enumerate(word):
                            product = product @ (_unit(shape.d_in, shape.d_in, i, j) if t == layer else forms[t][h])
                        parts.append(product * int(word[layer] == head))
                    rows.append(np.concatenate(parts).reshape(-1))
    return rank_of_matrix(np.array(rows, dtype=object))
