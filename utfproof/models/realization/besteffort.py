"""When m is too small: the E of least squares, and a rigorous bound of the output error that its residual implies.

The bound holds for exact arithmetic, every context length n and every input whose rows are one-hot (or one one-hot per group
of coordinates, as tokens beside positions), and for softmax attention of any scale, mask, ALiBi or RoPE. It is computed in
ball arithmetic from E R_all - W_all; the derivation is in docs/minimal-hosts.md. Letters as in `shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, SoftmaxAttention
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import exact, one_line, to_numpy
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all, w_all
from utfproof.models.realization.hankel import Forms, forms
from utfproof.shapes import Shape, Word, matching_dimension
from utfproof.systems import Target, Universal

BITS = 160
"""Precision of the balls."""


@dataclass(frozen=True)
class OutputBound:
    """max |UTF(X, E) - T(X)| <= error for every allowed X. logits: per (layer, head), from 0, how far differences of logits
    of one query may be off; attention: how far a row of the attention matrix may be, in l1 (at most 2). half_range: half of
    the range that the target's outputs themselves are known to keep to."""

    error: Fraction
    logits: dict[tuple[int, int], Fraction]
    attention: dict[tuple[int, int], Fraction]
    half_range: Fraction

    @property
    def vacuous(self) -> bool:
        """Whether the bound says no more than that a constant output would do."""
        return self.error >= self.half_range

    def document(self) -> dict[str, Any]:
        """For JSON; numbers rounded upwards."""
        heads = [
            {
                "layer": at[0],
                "head": at[1],
                "logits": rounded_up(self.logits[at]),
                "attention": rounded_up(self.attention[at]),
            }
            for at in sorted(self.logits)
        ]
        return {
            "error": rounded_up(self.error),
            "half_range": rounded_up(self.half_range),
            "vacuous": self.vacuous,
            "heads": heads,
        }


def rounded_up(value: Fraction) -> float:
    """The next float that is no smaller."""
    found = float(value)
    return found if Fraction(found) >= value else float(np.nextafter(found, np.inf))


@one_line
@dataclass(frozen=True, eq=False)
class BestEffort:
    """E [d_in, m] of least squares in float64 (exact as the dyadic rationals that they are), ||E R_all - W_all|| / ||W_all||
    as computed, the rank of R_all in float64, and the bound of the output error."""

    E: np.ndarray
    misfit: float
    rank: int
    bound: OutputBound

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"m": int(self.E.shape[1]), "misfit": self.misfit, "rank": self.rank, "bound": self.bound.document()}


def best_effort(
    host: Universal,
    target: Target,
    *,
    kernel: SoftmaxAttention | GivenAttention | None = None,
    groups: Sequence[int] | None = None,
    max_memory: int | None = None,
) -> BestEffort:
    """The E of `least_squares`, and what it implies for outputs. Raises as it does."""
    E, misfit, rank = least_squares(host, target, max_memory)
    bound = output_bound(host, target, E, kernel=kernel, groups=groups, max_memory=max_memory)
    return BestEffort(E, misfit, rank, bound)


def least_squares(host: Universal, target: Target, max_memory: int | None = None) -> tuple[np.ndarray, float, int]:
    """(E, relative residual, rank of R_all): the E that comes closest to E R_all = W_all in the Frobenius norm, of least norm.

    Raises MalformedInput for shapes that differ, ResourceLimit before allocating.
    """
    shape = host.shape
    if target.shape != shape:
        raise MalformedInput(f"host and target differ: host {shape}, target {target.shape}")
    M = matching_dimension(shape)
    require_memory(8 * M * (4 * host.m + 3 * shape.d_in), f"least squares at {shape}, m = {host.m},", max_memory)
    matrix = r_all(host)
    held = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else to_numpy(matrix).astype(np.float64)
    right = to_numpy(w_all(target)).astype(np.float64)
    if not (np.isfinite(held).all() and np.isfinite(right).all()):
        raise MalformedInput("weights hold NaN or infinity, or products overflow")
    solution, _, rank, _ = np.linalg.lstsq(held.T, right.T, rcond=None)
    E = np.ascontiguousarray(solution.T)
    scale = float(np.linalg.norm(right)) or 1.0
    return E, float(np.linalg.norm(E @ held - right)) / scale, int(rank)


def relative_residual(host: Universal, target: Target, E: np.ndarray) -> float:
    """||E R_all - W_all|| / ||W_all|| in float64."""
    matrix, goal = r_all(host), to_numpy(w_all(target)).astype(np.float64)
    held = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else to_numpy(matrix).astype(np.float64)
    return float(np.linalg.norm(E @ held - goal) / (np.linalg.norm(goal) or 1.0))


# --- the bound ---------------------------------------------------------------------------------------------


def balls(array: np.ndarray) -> Any:
    """A matrix of balls of radius 0, as far as the precision allows: floats are dyadic rationals."""
    from flint import arb, arb_mat, fmpq

    rows, columns = array.shape
    values = (Fraction(x) for x in exact(array).reshape(-1))
    return arb_mat(rows, columns, [arb(fmpq(x.numerator, x.denominator)) for x in values])


def of_rationals(matrix: Any) -> Any:
    """The same of a matrix of rationals."""
    from flint import arb, arb_mat

    return arb_mat(matrix.nrows(), matrix.ncols(), [arb(x) for x in matrix.entries()])


def dense_balls(matrix: Any) -> Any:
    """The same of an array or an index map."""
    return balls(matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else to_numpy(matrix))


def largest(values: Sequence[Any]) -> Any:
    """A ball of radius 0 that is at least every one of these nonnegative numbers."""
    from flint import arb

    top = arb(0)
    for value in values:
        upper = value.abs_upper()
        if not upper.is_finite():
            raise MalformedInput("the bound is not finite: weights are too large for it")
        top = max(top, upper)
    return top


def upper(number: Any) -> Fraction:
    """The upper end of a ball's absolute value."""
    significand, exponent = (int(x) for x in number.abs_upper().man_exp())
    return significand * Fraction(2) ** exponent


class _Groups:
    """Rows of E R_w and W_E M_w by groups of input coordinates: an input row is one of each group, added."""

    def __init__(self, groups: Sequence[int] | None, d_in: int) -> None:
        sizes = [d_in] if groups is None else [int(size) for size in groups]
        if sum(sizes) != d_in or min(sizes) < 1:
            raise MalformedInput(f"groups {sizes} are positive and add up to {sum(sizes)}, expected d_in = {d_in}")
        ends = np.cumsum(sizes)
        self.spans = [range(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]

    def norm(self, matrix: Any) -> Any:
        """At least |p matrix| for rows p that are a probability vector on each group."""
        from flint import arb

        total = arb(0)
        for span in self.spans:
            squares = [sum((matrix[i, c] ** 2 for c in range(matrix.ncols())), arb(0)) for i in span]
            total += largest(squares).sqrt()
        return total

    def diameter(self, matrix: Any) -> Any:
        """At least |p matrix - p' matrix| for two such rows."""
        from flint import arb

        gram = matrix * matrix.transpose()
        total = arb(0)
        for span in self.spans:
            squares = [gram[i, i] + gram[j, j] - 2 * gram[i, j] for i in span for j in span if j < i]
            total += largest(squares).sqrt()
        return total

    def size(self, matrix: Any, column: int) -> Any:
        """At least |(p matrix)_column|."""
        from flint import arb

        return sum((largest([matrix[i, column] for i in span]) for span in self.spans), arb(0))

    def range(self, matrix: Any, column: int) -> Any:
        """At least the difference of (p matrix)_column for two such rows."""
        from flint import arb

        total = arb(0)
        for span in self.spans:
            entries = [matrix[i, column] for i in span]
            total += largest([max(x.upper() for x in entries) - min(x.lower() for x in entries)])
        return total


def output_bound(
    host: Universal,
    target: Target | Forms,
    E: np.ndarray,
    *,
    kernel: SoftmaxAttention | GivenAttention | None = None,
    groups: Sequence[int] | None = None,
    max_memory: int | None = None,
) -> OutputBound:
    """The bound for this host, target and E; kernel None is softmax of q k^T.

    groups: sizes of consecutive groups of input coordinates with a one-hot each (None: one group). Raises MalformedInput for
    kernels without a bound and shapes that do not fit, ResourceLimit before allocating.
    """
    from flint import ctx

    kernel = SoftmaxAttention() if kernel is None else kernel
    if not isinstance(kernel, SoftmaxAttention | GivenAttention):
        raise MalformedInput("the output bound knows softmax attention and attention from outside only")
    held = target if isinstance(target, Forms) else forms(target)
    shape, m = host.shape, host.m
    if held.shape != shape:
        raise MalformedInput(f"host and target differ: host {shape}, target {held.shape}")
    if tuple(E.shape) != (shape.d_in, m):
        raise MalformedInput(f"E has shape {list(E.shape)}, expected {[shape.d_in, m]}")
    words = shape.words_at(shape.layers)
    entries = shape.layers * shape.heads * m * m + words * shape.d_in * (m + held.width + 2 * shape.d_out)
    require_memory(200 * entries, f"an output bound at {shape}, m = {m},", max_memory)
    with ctx.workprec(BITS):
        return _Bounding(host, held, E, kernel, _Groups(groups, shape.d_in)).run()


class _Bounding:
    def __init__(
        self, host: Universal, target: Forms, E: np.ndarray, kernel: SoftmaxAttention | GivenAttention, groups: _Groups
    ) -> None:
        self.host, self.target, self.kernel, self.groups = host, target, kernel, groups
        # word -> (E R_w, W_E M_w)
        self.streams: dict[Word, tuple[Any, Any]] = {(): (dense_balls(E), of_rationals(target.W_E))}
        self.attention: dict[tuple[int, int], Any] = {}
        self.logits: dict[tuple[int, int], Any] = {}

    def _moved(self, word: Word) -> Any:
        """eta_w: how far a row of P_w may be off in l1."""
        from flint import arb

        shape: Shape = self.host.shape
        total = arb(0)
        for layer, letter in enumerate(word):
            if letter >= shape.residual:
                total += self.attention[layer, letter - shape.residual]
        return min(total.abs_upper(), arb(2))

    def _readings(self, readers: tuple[Any, Any]) -> Any:
        """Per word the target's block, how far the host's is off, and eta_w."""
        ours, theirs = readers
        for word, (mine, its) in self.streams.items():
            block = its * theirs
            yield block, mine * ours - block, self._moved(word)

    def _vector(self, readers: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        """(error, largest norm, diameter) of the vectors that a head reads here."""
        from flint import arb

        error, norm, diameter = arb(0), arb(0), arb(0)
        for block, off, moved in self._readings(readers):
            spread = self.groups.diameter(block)
            error += moved * spread / 2 + self.groups.norm(off)
            norm += self.groups.norm(block)
            diameter += spread
        return error.abs_upper(), norm.abs_upper(), diameter.abs_upper()

    def _head(self, layer: int, head: int, query: Any, key: Any) -> None:
        """The head's logits and attention."""
        from flint import arb

        if isinstance(self.kernel, GivenAttention):
            self.logits[layer, head] = self.attention[layer, head] = arb(0)
            return
        target = self.target
        off_q, norm_q, _ = self._vector((dense_balls(query), of_rationals(target.W_Q[layer][head])))
        off_k, norm_k, spread_k = self._vector((dense_balls(key), of_rationals(target.W_K[layer][head])))
        # rotations by position differ between keys, so only norms serve
        across = 2 * norm_k if not self.kernel.logits_only else min((2 * norm_k).abs_upper(), spread_k)
        spread = off_q * across + 2 * (norm_q + off_q) * off_k
        for part in self.kernel.parts:
            factor = part.ball_factor(self.host.shape.head_dim)
            spread *= 1 if factor is None else abs(factor)
        self.logits[layer, head] = spread.abs_upper()
        self.attention[layer, head] = min((2 * (spread / 4).tanh()).abs_upper(), arb(2))

    def run(self) -> OutputBound:
        """All layers, then the output."""
        shape = self.host.shape
        for layer in range(shape.layers):
            maps = [self.host.maps(layer, head) for head in range(shape.heads)]
            for head, (query, key, _) in enumerate(maps):
                self._head(layer, head, query, key)
            after: dict[Word, tuple[Any, Any]] = {}
            values = [[dense_balls(factor) for factor in entry.value] for entry in maps]
            forms_here = [of_rationals(self.target.M[layer][head]) for head in range(shape.heads)]
            for word, (mine, its) in self.streams.items():
                if shape.residual:
                    after[(*word, 0)] = (mine, its)
                for head in range(shape.heads):
                    moved = mine
                    for factor in values[head]:
                        moved = moved * factor
                    after[(*word, head + shape.residual)] = (moved, its * forms_here[head])
            self.streams = after
        readings = list(self._readings((dense_balls(self.host.U), of_rationals(self.target.W_U))))
        error, half = Fraction(0), Fraction(0)
        for column in range(shape.d_out):
            off = width = 0 * readings[0][2]
            for block, difference, moved in readings:
                across = self.groups.range(block, column)
                off += moved * across / 2 + self.groups.size(difference, column)
                width += across / 2
            error, half = max(error, upper(off)), max(half, upper(width))
        logits, attention = ({k: upper(v) for k, v in x.items()} for x in (self.logits, self.attention))
        return OutputBound(error, logits, attention, half)
