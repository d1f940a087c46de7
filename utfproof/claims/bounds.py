"""The proved lower bounds that claims speak about, asked for by name, and exact dimensions of target families to hold them
against. The formulas themselves stand in `utfproof.certificates.dimensions`, once, for claims, frontier and prover."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import comb
from operator import matmul
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention
from utfproof.certificates.dimensions import (
    ALL_UNTIED,
    DIMENSION_ROWS,
    GENERIC_UNTIED,
    dimension_certificate,
    least_square_root,
)
from utfproof.certificates.identities import identity_certificate
from utfproof.claims.claim import KNOWN, Agreed, Check, Figure, Instance, Run
from utfproof.claims.decisions import decided, dense, rank_of_matrix
from utfproof.claims.named import CONDITIONS, DIMENSIONS
from utfproof.constructions import CONSTRUCTIONS
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, Undecided
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALMOST_ALL, Question
from utfproof.shapes import Shape, head_words
from utfproof.systems import Target, prefix_products
from utfproof.util.generator import integer_matrix
from utfproof.util.notions import BOTH_FREE, Notion

MOST_RUN = 200
"""Dimensions of hosts that are run as well."""


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
    holds = holds and _own_host_serves(name, shape, m)
    return Instance(shape, holds and found.universal and least in (None, m), detail or f"{name} serves", found, m=m)


def _own_host_serves(name: str, shape: Shape, m: int) -> bool:
    """Whether a host whose attention comes from outside has a target's outputs, exactly, as the package builds both. True
    for other hosts, and for those that are too large to be run."""
    entry = CONSTRUCTIONS[name]
    if entry.shared is None or m > MOST_RUN:
        return True
    kernels = integer_matrix(0, "X", 3 * shape.layers * shape.heads, 3, law="uniform") % 5 - 2
    attention = kernels.astype(object).reshape(shape.layers, shape.heads, 3, 3)
    host, x = entry.shared.host(shape, m), np.eye(3, shape.d_in, dtype=int).astype(object)
    for seed in range(4):  # a target's entries may be 0 or 1
        target = integer_target(shape, seed, tied=entry.targets == "all tied")
        E, U = entry.shared.embed(shape, m, target)
        expected = target.forward(x, GivenAttention(attention))
        if not (host.forward(x, E, dense(U), attention) == expected).all():
            return False
    return True


def functional_bound(shape: Shape) -> int:
    """What is proved, with a certificate, of every host that serves almost all untied targets functionally."""
    return interval(shape, Question(Notion.FUNCTIONAL, extent=ALMOST_ALL), certified=True).lower


def _grouped(shape: Shape) -> int:
    """The m of new:narrow-heads/host."""
    H, S, d, g = shape.heads, shape.word_count, shape.head_dim, -(-shape.d_in // shape.head_dim)
    return shape.d_in * shape.leaves + 2 * d * S - d * (H // g) - d * (H // min(g, H)) * (S - H) // H


def _monomials(heads: int, degree: int) -> int:
    """Monomials of this degree in H variables."""
    return comb(degree + heads - 1, heads - 1)


FORMULAS: dict[str, Callable[[Shape], int]] = {
    **DIMENSIONS,
    "3": lambda s: 3,
    "2dL + d_in": lambda s: 2 * s.head_dim * s.layers + s.d_in,
    "d_in H^L": lambda s: s.d_in * s.leaves,
    "d_in H^ceil(L/2)": lambda s: s.d_in * s.heads ** ((s.layers + 1) // 2),
    "root of H^L": lambda s: least_square_root(s.leaves),
    "root of H^L + 1": lambda s: least_square_root(s.leaves + 1),
    "d_in (1 + 2S)": lambda s: s.d_in * (1 + 2 * s.word_count),
    "d_in (S + H^L)": lambda s: s.d_in * (s.word_count + s.leaves),
    "C(L+H-1, H-1)": lambda s: _monomials(s.heads, s.layers),
    "root of C(L+H-1, H-1)": lambda s: least_square_root(_monomials(s.heads, s.layers)),
    "queries in groups": _grouped,
    "side by side": side_by_side_bound,
    "logit forms": attention_matching_bound,
    "parameter count": parameter_bound,
    "functional bound": functional_bound,
}
"""Names that records use under `bounds` -> least m that they state."""


def shape_at(name: str) -> Shape:
    """The shape at the end of a figure's name, "... at (H,L,d,d_in)"."""
    return Shape(*map(int, name.rpartition("(")[2].rstrip(")").split(",")))


def bounded(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> Check:
    """The check of a record's `bounds`: its rows at each of the claim's shapes (see `least_at`), for the targets and the notion
    of the record. A figure of the record is the m of the first row at the shape that its name ends in."""
    asked = {key: record[key] for key in ("notion", "targets", "free") if key in record}
    stream = record.get("shapes", {}).get("stream", False)

    def lifted(shape: Shape) -> Shape:
        return shape.with_residual() if stream else shape

    def check(run: Run) -> Iterator[Instance | Figure]:
        for shape in run.shapes():
            for row in rows:
                yield from least_at(lifted(shape), **{**asked, **row})
        for name in record.get("figures", ()):
            yield Figure(name, FORMULAS[rows[0]["m"]](lifted(shape_at(name))))

    return check


def least_at(
    shape: Shape,
    *,
    notion: str,
    targets: str,
    m: str,
    free: str | None = None,
    host: str | None = None,
    more: int = 0,
    where: Sequence[str] = (),
    at: Sequence[Sequence[int]] | None = None,
    every: str = "host",
) -> Iterator[Instance]:
    """This construction serves at m dimensions, and no bound refutes that; or without `host`: no host of fewer does. By a
    certificate either way.

    m: a name of `FORMULAS`. more: dimensions of the host beyond it. where: names of `CONDITIONS`, at: shapes, at which the row
    applies. every: "tied host" where the bound is about those alone.
    """
    entry = [shape.heads, shape.layers, shape.head_dim, shape.d_in]
    if (at is not None and entry not in at) or not all(CONDITIONS[name](shape) for name in where):
        return
    size, generic = FORMULAS[m](shape) + more, targets.replace("almost all", "generic")
    if host is None:
        if size > 1:
            yield below(shape, size - 1, Notion(notion), generic, free=free, every=every)
        return
    found = decided(host, shape, size) if notion == Notion.MATCHING else served(host, shape, least=size)
    yield replace(found, holds=found.holds and not _refuted(shape, size, Notion(notion), generic, free))


def _refuted(shape: Shape, m: int, notion: Notion, targets: str, free: str | None) -> bool:
    """Whether some bound says that no host of m dimensions serves these targets."""
    try:
        return not dimension_certificate(shape, m, notion=notion, targets=targets, free=free).universal
    except (MalformedInput, Undecided):  # no bound is proved there, or it says nothing
        return False


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
