"""The least m of any host that matches one given target, from the ranks of its Hankel matrices; exact.

For a layer boundary l = 0 ... L the Hankel matrix H_l has a row W_E[i] M_w for each i < d_in and each word w of length l, and
a column for everything that reads the stream from there on: M_v W_Q^{t,h}, M_v W_K^{t,h} with v on the layers l+1 ... t-1,
and M_v W_U. Without a residual stream the least m is max_l rank H_l. With one, rows stay in the stream: the least m is rank
H_0 + sum_{l>=1} (rank H_l - rank of the rows known before layer l, read from layer l on). Proofs:
docs/proofs/least-host-of-one-target.md. H_l is never formed: a basis of its rows (at most D of them) times a basis of its
columns (at most D) has the same rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utfproof.errors import ResourceLimit
from utfproof.exact.rational import to_flint
from utfproof.matching import exact_target
from utfproof.models.realization import linear
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target
from utfproof.util.arrays import exact, one_line

MAX_WIDTH = 512
"""Largest width of a target whose ranks are computed exactly; they take time like the fourth power of it."""


@dataclass(frozen=True, eq=False)
class Forms:
    """What matching sees of a target, exact (FLINT matrices): W_E [d_in, D], per layer and head W_Q, W_K [D, d] and M [D, D],
    and W_U [D, d_out]. The shape says whether there is a residual stream; inner bounds the rank of every M."""

    shape: Shape
    W_E: Any
    W_Q: list[list[Any]]
    W_K: list[list[Any]]
    M: list[list[Any]]
    W_U: Any
    inner: int

    @property
    def width(self) -> int:
        """D."""
        return int(self.W_E.ncols())


def forms(target: Target) -> Forms:
    """The target's forms over the rationals; floats are read as exact rationals, and products are exact. Raises MalformedInput
    for weights that are not finite, ResourceLimit for widths that are out of reach."""
    if target.width > MAX_WIDTH:
        raise ResourceLimit(f"exact ranks of a target of width {target.width} were asked for, the limit is {MAX_WIDTH}")
    held, shape = exact_target(target), target.shape
    weights = [
        [[to_flint(exact(x)) for x in held.parameters(layer, head)] for head in range(shape.heads)]
        for layer in range(shape.layers)
    ]
    W_Q, W_K = ([[head[i] for head in heads] for heads in weights] for i in range(2))
    M = [[W_V * W_O for _, _, W_V, W_O in heads] for heads in weights]
    W_E, W_U = (to_flint(exact(x)) for x in (held.embedding(), held.unembedding()))
    return Forms(shape, W_E, W_Q, W_K, M, W_U, int(target.W_V.shape[-1]))


def observed(target: Forms) -> list[Any]:
    """A basis [D, c] of the columns of H_l's right factor at each boundary 0 ... L, chosen among the columns themselves."""
    last = linear.columns_of(target.W_U, linear.independent_columns(target.W_U))
    found = [last]
    for layer in reversed(range(target.shape.layers)):
        parts = [*target.W_Q[layer], *target.W_K[layer], *(form * last for form in target.M[layer])]
        everything = linear.side_by_side([*parts, last] if target.shape.residual else parts)
        last = linear.columns_of(everything, linear.independent_columns(everything))
        found.append(last)
    return found[::-1]


@dataclass(frozen=True, eq=False)
class Boundary:
    """One layer boundary: `rows` [t, D] of the states held there; `active`: those of them that are a basis modulo what no later
    reader sees; `known` of these were held before (with a residual stream)."""

    rows: Any
    active: list[int]
    known: int

    @property
    def active_rows(self) -> Any:
        """[rank H_l, D]."""
        return linear.rows_of(self.rows, self.active)


@one_line
@dataclass(frozen=True, eq=False)
class LeastHost:
    """The least m of any host (untied or tied, of the target's H, L, d) that matches this one target, E and all parameters
    free. boundaries, columns: rows and columns that show all the ranks."""

    target: Forms
    boundaries: list[Boundary]
    columns: list[Any]

    @property
    def ranks(self) -> tuple[int, ...]:
        """rank H_l for l = 0 ... L."""
        return tuple(len(boundary.active) for boundary in self.boundaries)

    @property
    def m(self) -> int:
        """The least m, at least 1."""
        if self.target.shape.residual:  # less the rows that are known before each layer, read from it on
            return max(1, sum(self.ranks) - sum(boundary.known for boundary in self.boundaries[1:]))
        return max(1, *self.ranks)

    def structure(self) -> dict[str, list[str]]:
        """What makes the target smaller than its width, by kind: heads (layer.head, from 0) that nothing reads, that repeat
        another of their layer, and whose queries, keys, logits or values have a rank below their width on the states that
        reach the head (values: between these states and what reads the head's output)."""
        target, d = self.target, self.target.shape.head_dim
        full = {"queries": d, "keys": d, "logits": d, "values": target.inner}
        dead, repeated, low = [], [], {kind: [] for kind in full}  # type: ignore[var-annotated]
        for layer in range(target.shape.layers):
            rows, readers = self.boundaries[layer].active_rows, self.columns[layer + 1]
            seen: list[tuple[Any, Any, Any]] = []
            for head in range(target.shape.heads):
                query, key = rows * target.W_Q[layer][head], rows * target.W_K[layer][head]
                value, at = rows * target.M[layer][head] * readers, f"{layer}.{head}"
                ranks = {kind: linear.rank(x) for kind, x in (("queries", query), ("keys", key))}
                ranks["logits"] = min(ranks.values())
                if d not in ranks.values():  # a factor of full column rank leaves the rank of the product to the other
                    ranks["logits"] = linear.rank(query * key.transpose(), ranks["logits"])
                ranks["values"] = linear.rank(value, target.inner)
                if ranks["values"]:
                    repeated += [
                        f"{at} is {layer}.{k}" for k, other in enumerate(seen) if other == (query, key, value)
                    ][:1]
                    for kind in full:
                        low[kind] += [f"{at} ({ranks[kind]} of {full[kind]})"] if ranks[kind] < full[kind] else []
                else:
                    dead.append(at)
                seen.append((query, key, value))
        return {"dead heads": dead, "repeated heads": repeated, **{f"low-rank {kind}": low[kind] for kind in full}}

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "m": self.m,
            "notion": "matching",
            "residual": self.target.shape.residual,
            "ranks": list(self.ranks),
            "target_width": self.target.width,
            "universal_m": matching_dimension(self.target.shape),
        }


def least_dimension(target: Target | Forms) -> LeastHost:
    """The least m by matching for this target, exact over the rationals. MalformedInput for weights that are not finite.

    With a residual stream a state that has once been there stays, so the rows of a boundary contain those before it.
    """
    held = target if isinstance(target, Forms) else forms(target)
    columns = observed(held)
    active = linear.independent_rows(held.W_E * columns[0])
    boundaries = [Boundary(linear.rows_of(held.W_E, active), list(range(len(active))), 0)]
    for layer in range(held.shape.layers):
        before, readers = boundaries[-1], columns[layer + 1]
        candidates = linear.stacked([before.active_rows * form for form in held.M[layer]])
        known = before.rows if held.shape.residual else linear.rows_of(before.rows, [])
        old, chosen = linear.extended_basis(known * readers, candidates * readers)
        rows, count = linear.stacked([known, linear.rows_of(candidates, chosen)]), known.nrows()
        boundaries.append(Boundary(rows, [*old, *range(count, count + len(chosen))], len(old)))
    return LeastHost(held, boundaries, columns)
