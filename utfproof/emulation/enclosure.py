"""How far one host with one embedding E is from one target on one input X, enclosed rigorously.

Weights, E and X are exact numbers (floats are the dyadic rationals that they are); attention is evaluated in ball arithmetic
(FLINT's arb) whose precision is doubled until the enclosure is as narrow as asked for.
A statement about one emulation says nothing about other targets, inputs or embeddings. Axis letters as in `systems`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, SoftmaxAttention
from utfproof.attention.softmax import BASE
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.matching import Embedding, embed, exact_target, require_same_class
from utfproof.shapes import matching_dimension, positive_integer
from utfproof.systems import Target, Universal
from utfproof.util.arrays import Array, exact
from utfproof.util.progress import stage
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix

MAX_DIGITS = 10_000
"""Most decimal places of an enclosure."""
PRODUCTS = 2 * 10**9
"""Most products of words of 64 bits that one enclosure may take at its first precision, estimated: minutes."""
LARGEST = 10**6
"""Binary logarithm of the largest difference that is written out."""
SOLVED = 200
"""Largest M for which a dense host's matching equations are solved over the rationals."""
DOUBLINGS = 4
"""How often the precision is doubled before an enclosure is given up; 2^13 bits are always tried."""


@dataclass(frozen=True)
class Enclosure:
    """lower <= max |UTF(X, E) - T(X)| <= upper, both multiples of 10^-digits, for this one X, E and target.

    precision_bits: of the ball arithmetic that showed it. The bounds are at most two units
    apart, and the lower one is 0 only if the upper one is one unit.
    """

    lower: Fraction
    upper: Fraction
    digits: int
    precision_bits: int

    @property
    def verdict(self) -> str:
        """ "within" 10^-digits, or "apart" by at least the lower bound."""
        return "apart" if self.lower else "within"

    @property
    def units(self) -> tuple[int, int]:
        """The bounds in units of 10^-digits."""
        return int(self.lower * 10**self.digits), int(self.upper * 10**self.digits)


def _ball(x: Any) -> Any:
    """A ball around an int or a Fraction."""
    from flint import arb, fmpq

    return arb(fmpq(x.numerator, x.denominator))


class BallAttention(SoftmaxAttention):
    """A softmax kernel on object arrays of balls (or exact numbers), at the precision set when it is called."""

    def factor(self, head_dim: int) -> Any:
        return 1 / _ball(head_dim).sqrt() if isinstance(self.scale, str) else _ball(Fraction(self.scale))

    def slope(self, head: int) -> Any:
        return _ball(2) ** _ball(Fraction(-8 * (head + 1), self.alibi_heads or 1))

    def rotation(self, positions: np.ndarray, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
        frequencies = [
            _ball(Fraction(self.rope_base or BASE)) ** _ball(Fraction(-t, head_dim)) for t in range(0, head_dim, 2)
        ]
        pairs = [[(frequency * int(position)).sin_cos() for frequency in frequencies] for position in positions]
        sin, cos = np.moveaxis(np.array(pairs, dtype=object), -1, 0)
        return cos, sin

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        """Attention matrix [n, n] of balls."""
        from flint import arb

        places = np.array([int(position) for position in positions])
        queries, keys = self.turned(queries, places), self.turned(keys, places)
        logits, mask = self.logits(queries, keys, places, places, head=head), self.mask(places, places)
        out: Array = np.full(logits.shape, arb(0), dtype=object)
        for i, row in enumerate(logits):
            chosen = range(len(row)) if mask is None else np.flatnonzero(mask[i])
            top = max(row[j].mid() for j in chosen)  # any common shift leaves softmax as it is
            powers = [(row[j] - top).exp() for j in chosen]
            total = sum(powers, arb(0))
            for j, power in zip(chosen, powers, strict=True):
                out[i, j] = power / total
        return out


def _end(number: Any, *, up: bool) -> Fraction | None:
    """A number >= 0 (a ball of radius 0), rounded where it is below 2^-LARGEST; None above 2^LARGEST or if it is not finite."""
    if not number.is_finite():
        return None
    significand, exponent = (int(x) for x in number.man_exp())
    size = significand.bit_length() + exponent
    if significand and size > LARGEST:
        return None
    if significand and size < -LARGEST:
        return Fraction(up, 2**LARGEST)
    return significand * Fraction(2) ** exponent


def exact_embedding(host: Universal, target: Target, *, max_memory: int | None = None) -> Embedding:
    """The exact E [d_in, m] of `matching.embed`, with its method: closed form, formula or rational solve.

    Raises ResourceLimit for a dense host whose equations are too many to be solved over the rationals, and what `embed` raises.
    """
    columns = matching_dimension(host.shape)
    if not isinstance(host.U, SelectionMatrix) and max(columns, host.m) > SOLVED:
        raise ResourceLimit(
            f"E for this host at {host.shape}, m = {host.m} is found over the rationals up to M = {SOLVED}, here M = "
            f"{columns}; pass a float64 E with --embedding to enclose the error that it makes"
        )
    return embed(exact_host(host), exact_target(target), max_memory=max_memory)


def exact_host(host: Universal) -> Universal:
    """The same host with exact rational weights (floats are dyadic rationals); index maps stay as they are."""
    return _with_arrays(host, exact)


def _with_arrays(system: Any, convert: Callable[[Array], Array]) -> Any:
    names = ("R_Q", "R_K", "R_V", "R_Vo", "U", "W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    arrays = {name: getattr(system, name, None) for name in names}
    # tuples hold index maps
    kept = (type(None), tuple, list, SelectionMatrix)
    return replace(system, **{name: convert(x) for name, x in arrays.items() if not isinstance(x, kept)})


def _balls(array: Array) -> Array:
    out = np.empty(array.shape, dtype=object)
    out.reshape(-1)[:] = [_ball(x) for x in array.reshape(-1)]
    return out


def _prepared(host: Universal, target: Target, E: Array, X: Array) -> tuple[Universal, Target, Array, Array]:
    """All of it exact. MalformedInput for shapes that do not fit, or numbers that are not finite."""
    host.require_attention_only("an enclosure")
    require_same_class(host, target)
    E, X = exact(E), exact(X)
    if E.shape != (host.shape.d_in, host.m):
        raise MalformedInput(f"E has shape {list(E.shape)}, expected {[host.shape.d_in, host.m]}")
    if X.ndim != 2 or X.shape[1] != host.shape.d_in or not len(X):
        raise MalformedInput(f"X has shape {list(X.shape)}, expected [n, {host.shape.d_in}] with n >= 1")
    return exact_host(host), exact_target(target), E, X


def _difference(host: Universal, target: Target, E: Array, X: Array, kernel: AttentionKernel) -> Array:
    return host.forward(X, E, kernel) - target.forward(X, kernel)


def enclose(
    host: Universal,
    target: Target,
    E: Array,
    X: Array,
    kernel: SoftmaxAttention,
    digits: int,
    *,
    max_memory: int | None = None,
) -> Enclosure:
    """Enclose max |UTF(X, E) - T(X)| between two multiples of 10^-digits, in ball arithmetic.

    E [d_in, m] and X [n, d_in]; floats are taken as the dyadic rationals that they are. Positions are 0 ... n-1.
    Raises MalformedInput for what does not fit, ResourceLimit before allocating, beyond sizes that take minutes, and where
    the precision allowed does not settle the last digit (the difference may be a multiple of 10^-digits exactly).
    """
    bits = first_bits(digits)
    if reason := kernel.unfit(host.shape.head_dim):
        raise MalformedInput(reason)
    host, target, E, X = _prepared(host, target, E, X)
    require_size(host, target, len(X), bits, max_memory)
    most = max(bits << DOUBLINGS, 2**13)
    while True:
        with stage(f"enclosure with {bits} bits"):
            bounds = _bounds(host, target, E, X, kernel, digits, bits)
        if bounds is not None and (bounds == (0, 1) or (bounds[0] and bounds[1] - bounds[0] <= 2)):
            low, high = (Fraction(bound, 10**digits) for bound in bounds)
            return Enclosure(low, high, digits, bits)
        if bits >= most:
            raise ResourceLimit(
                f"{bits} bits do not settle digit {digits} of the difference of the outputs; ask for other digits"
            )
        bits *= 2


def first_bits(digits: int) -> int:
    """The precision that is tried first. MalformedInput or ResourceLimit for such a number of digits."""
    digits = positive_integer("digits", digits)
    if digits > MAX_DIGITS:
        raise ResourceLimit(f"{digits} digits were asked for, the limit is {MAX_DIGITS}")
    return 64 + 4 * digits


def _bounds(
    host: Universal, target: Target, E: Array, X: Array, kernel: SoftmaxAttention, digits: int, bits: int
) -> tuple[int, int] | None:
    """Integers below and above 10^digits times the difference, at this precision; None where nothing useful is known.

    They are below and above strictly (but for 0), so that whoever recomputes them has room.
    """
    from flint import ctx

    with ctx.workprec(bits):
        balls = (_with_arrays(host, _balls), _with_arrays(target, _balls), _balls(E), _balls(X))
        gaps = [abs(x) for x in _difference(*balls, BallAttention(**vars(kernel))).reshape(-1)]
        lows = [_end(gap.abs_lower(), up=False) for gap in gaps]
        highs = [_end(gap.abs_upper(), up=True) for gap in gaps]
    known = [x for x in (*lows, *highs) if x is not None]
    if len(known) < 2 * len(gaps):
        return None
    low, high = max(known[: len(gaps)]), max(known[len(gaps) :])
    return max(0, ceil(low * 10**digits) - 1), floor(high * 10**digits) + 1


def require_size(host: Universal, target: Target, n: int, bits: int, max_memory: int | None = None) -> None:
    """ResourceLimit with the figure before anything is allocated: n tokens, and the bits that are tried first."""
    shape, D, m = host.shape, target.width, host.m
    heads, words = shape.layers * shape.heads, 1 + bits // 64
    dense = not isinstance(host.U, SelectionMatrix)
    held = m * shape.d_in + 4 * n * (m + D + n) + 4 * heads * D * shape.head_dim
    held += (1 if host.tied else shape.layers) * shape.heads * m * (m + 2 * shape.head_dim) if dense else 0
    require_memory(held * (250 + 16 * words), f"an enclosure at {shape}, m = {m}, n = {n},", max_memory)
    products = n * (shape.d_in * m + heads * (n * (m + D + 40) + 4 * D * shape.head_dim))
    products += n * heads * m * (m + 2 * shape.head_dim) if dense else 0
    if products * words > PRODUCTS:
        raise ResourceLimit(
            f"an enclosure at {shape}, m = {m}, n = {n} with {bits} bits takes about {products * words:.2g} products of "
            f"words, the limit is {PRODUCTS:.2g}; choose a smaller shape or context"
        )
