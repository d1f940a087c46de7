"""Normalised models a second time, in plain Fractions with every square root kept apart, and the targets of the claims."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Any

from utfproof.claims import plain
from utfproof.claims.small_models import Grid, array
from utfproof.claims.streams import maps
from utfproof.constructions.normalised import Norm
from utfproof.shapes import Shape
from utfproof.systems import Target

Terms = list[tuple[Fraction, list[Any]]]
"""The sum of vector / sqrt(s) over pairs (s, vector)."""


def square_root(value: Fraction) -> Fraction | None:
    """The rational square root, if there is one."""
    top, bottom = isqrt(value.numerator), isqrt(value.denominator)
    found = Fraction(top, bottom)
    return found if found * found == value else None


def vanishes(terms: Terms) -> bool:
    """Whether the sum is zero: roots whose ratio is rational are put together, different ones are independent."""
    groups: Terms = []
    for s, vector in terms:
        for i, (other, total) in enumerate(groups):
            ratio = square_root(other / s)
            if ratio is not None:
                groups[i] = (other, [a + ratio * b for a, b in zip(total, vector, strict=True)])
                break
        else:
            groups.append((Fraction(s), list(vector)))
    return not any(any(total) for _, total in groups)


def scaled(terms: Terms, factor: Any) -> Terms:
    """The sum times a number."""
    return [(s, [factor * v for v in vector]) for s, vector in terms]


def centred(row: Sequence[Any], kind: str) -> list[Any]:
    """The row, less its mean for LayerNorm."""
    mean = Fraction(sum(row)) / len(row) if kind == "layer" else 0
    return [v - mean for v in row]


def dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """The inner product."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def square(row: Sequence[Any], norm: Norm) -> Fraction:
    """Mean square of the centred row plus eps."""
    values = centred(row, norm.kind)
    return Fraction(dot(values, values)) / len(values) + norm.eps


def run_slowly(
    system: Any, x: plain.Rows, attention: Grid, norm: Norm, place: str, E: plain.Rows | None = None
) -> list[Terms]:
    """The rows of the output. attention [L][H][n][n]. The norms of all layers but the last must be rational ("pre") or
    the model has one layer ("post")."""
    is_target = isinstance(system, Target)
    state = plain.multiply(x, plain.rows(system.embedding() if is_target else E))
    output = plain.rows(system.unembedding() if is_target else system.U)
    L, H = system.shape.layers, system.shape.heads
    out: list[Terms] = []
    for layer in range(L):
        last, inner = layer == L - 1, state
        squares = [square(row, norm) if place == "pre" else Fraction(1) for row in state]
        if place == "pre":
            inner = [centred(row, norm.kind) for row in state]
        terms: list[Terms] = [[(Fraction(1), row)] for row in state]
        for head in range(H):
            moved = plain.multiply(inner, maps(system, layer, head)[2])
            for i, row in enumerate(attention[layer][head]):
                terms[i] += [(squares[j], [weight * v for v in moved[j]]) for j, weight in enumerate(row) if weight]
        if last and place == "pre":
            return [[(s, plain.multiply([v], output)[0]) for s, v in row] for row in terms]
        state = [_rational(row) for row in terms]
    for row in state:
        s = square(row, norm) if place in ("post", "final") else Fraction(1)
        values = centred(row, norm.kind) if place in ("post", "final") else row
        out.append([(s, plain.multiply([values], output)[0])])
    return out


def _rational(terms: Terms) -> list[Any]:
    total = [Fraction(0)] * len(terms[0][1])
    for s, vector in terms:
        root = square_root(s)
        if root is None:
            raise ArithmeticError(f"the norm sqrt({s}) of an inner layer is irrational")
        total = [a + b / root for a, b in zip(total, vector, strict=True)]
    return total


def equal(ours: list[Terms], theirs: list[Terms]) -> bool:
    """Whether two outputs are the same, row by row."""
    return all(vanishes(a + scaled(b, -1)) for a, b in zip(ours, theirs, strict=True))


class Watching:
    """Attention matrices from outside [L][H][n][n] that keeps the queries and keys it is shown."""

    logits_only = True

    def __init__(self, attention: Grid) -> None:
        self._attention = attention
        self.seen: list[tuple[Any, Any]] = []

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> Any:
        self.seen.append((queries, keys))
        return array(self._attention[layer][head])

    def saw(self, other: Watching) -> bool:
        """Whether both saw the same."""
        return all(
            bool((a == b).all())
            for ours, theirs in zip(self.seen, other.seen, strict=True)
            for a, b in zip(ours, theirs, strict=True)
        )


def residual(*entry: int) -> Shape:
    """A shape with a residual stream."""
    return Shape(*entry, residual=True)


def simple_target(shape: Shape, M: Sequence[plain.Rows], W_E: Any = None, W_U: Any = None) -> Target:
    """One head with constant logits, W_Q = 0; W_V = M[l] [D, d] in layer l and W_O the first d rows of the identity."""
    D, d = len(M[0]), shape.head_dim
    nothing, ones = (array([[[[value] * d] * D]] * shape.layers) for value in (0, 1))
    out = array([[[[int(i == j) for j in range(D)] for i in range(d)]]] * shape.layers)
    return Target(shape, nothing, ones, array([[values] for values in M]), out, W_E, W_U)


def context(tokens: Sequence[int], d_in: int) -> plain.Rows:
    """One-hot rows."""
    return [[int(j == token) for j in range(d_in)] for token in tokens]


def uniform(n: int, layers: int, heads: int = 1) -> Grid:
    """Every token attends to all alike."""
    return [[[[Fraction(1, n)] * n for _ in range(n)] for _ in range(heads)] for _ in range(layers)]


# --- outputs of normalised hosts, enclosed ------------------------------------------------------------------------

Interval = tuple[Fraction, Fraction]
DIGITS = 10**60


def distance(rows: list[list[Interval]], wanted: plain.Rows) -> Interval:
    """The largest squared distance of a row from the wanted one: from below and from above."""
    lows, highs = [], []
    for row, goal in zip(rows, wanted, strict=True):
        low = high = Fraction(0)
        for (a, b), value in zip(row, goal, strict=True):
            a, b = a - value, b - value
            low += 0 if a <= 0 <= b else min(a * a, b * b)
            high += max(a * a, b * b)
        lows.append(low)
        highs.append(high)
    return max(lows), max(highs)


def in_intervals(values: Grid, U: plain.Rows, start: plain.Rows, attention: Any, norm: Norm) -> list[list[Interval]]:
    """A host's outputs from its values [L][H], U and X E, its norm before each layer: the row factor 1 / root as an interval of
    rationals, rounded outwards."""
    state = [[(v, v) for v in row] for row in start]
    for layer, heads in enumerate(values):
        inner = [_normalised(row, norm) for row in state]
        for head, value in enumerate(heads):
            moved = _combined(inner, value)
            state = [
                [_sum([v, *(_times(w, moved[j][c]) for j, w in enumerate(weights))]) for c, v in enumerate(row)]
                for row, weights in zip(state, attention[layer][head], strict=True)
            ]
    return _combined(state, U)


def _sum(parts: list[Interval]) -> Interval:
    low, high = sum(p[0] for p in parts), sum(p[1] for p in parts)
    return Fraction(low * DIGITS // 1, DIGITS), Fraction(-(-high * DIGITS // 1), DIGITS)


def _times(factor: Any, value: Interval) -> Interval:
    ends = (factor * value[0], factor * value[1])
    return min(ends), max(ends)


def _combined(rows: list[list[Interval]], matrix: plain.Rows) -> list[list[Interval]]:
    columns = list(zip(*matrix, strict=True))
    zero: Interval = (Fraction(0), Fraction(0))
    return [
        [_sum([_times(c, v) for c, v in zip(column, row, strict=True) if c] or [zero]) for column in columns]
        for row in rows
    ]


def _normalised(row: list[Interval], norm: Norm) -> list[Interval]:
    size = len(row)
    if norm.kind == "layer":
        mean = _times(Fraction(1, size), _sum(row))
        row = [_sum([v, (-mean[1], -mean[0])]) for v in row]
    squares = [(0 if a <= 0 <= b else min(a * a, b * b), max(a * a, b * b)) for a, b in row]
    total = [Fraction(sum(s[end] for s in squares)) / size + norm.eps for end in (0, 1)]
    low, high = _root(total[0])[0], _root(total[1])[1]
    factors = (1 / high, 1 / low)
    return [_sum([(min(a * f for f in factors), max(b * f for f in factors))]) for a, b in row]


def _root(value: Fraction) -> Interval:
    below = isqrt(value.numerator * DIGITS**2 // value.denominator)
    return Fraction(below, DIGITS), Fraction(below + 1, DIGITS)


def in_balls(values: Grid, U: plain.Rows, start: plain.Rows, attention: Any, norm: Norm) -> list[list[Interval]]:
    """The same in FLINT's ball arithmetic with 300 bits, returned as rational intervals."""
    from flint import arb, ctx, fmpq

    before, ctx.prec = ctx.prec, 300
    try:

        def ball(value: Any) -> Any:
            value = Fraction(value)
            return arb(fmpq(value.numerator, value.denominator))

        state = [[ball(v) for v in row] for row in start]
        size = len(state[0])
        for layer, heads in enumerate(values):
            inner = []
            for row in state:
                mean = sum(row, arb(0)) / size if norm.kind == "layer" else arb(0)
                moved = [v - mean for v in row]
                root = (sum((v * v for v in moved), arb(0)) / size + ball(norm.eps)).sqrt()
                inner.append([v / root for v in moved])
            for head, value in enumerate(heads):
                matrix = [[ball(v) for v in row] for row in value]
                moved = [[dot(row, column) for column in zip(*matrix, strict=True)] for row in inner]
                mixed = [[ball(w) for w in weights] for weights in attention[layer][head]]
                terms = [[dot(weights, column) for column in zip(*moved, strict=True)] for weights in mixed]
                state = [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(state, terms, strict=True)]
        output = [[ball(v) for v in row] for row in U]
        out = [[dot(row, column) for column in zip(*output, strict=True)] for row in state]
        return [[(_fraction(v.lower()), _fraction(v.upper())) for v in row] for row in out]
    finally:
        ctx.prec = before


def _fraction(value: Any) -> Fraction:
    mantissa, exponent = value.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
