"""The a priori bound of an emulation's rounding error: from the host's and the target's norms, E and the unit roundoff.

The derivation, with the same letters, is in docs/emulation.md. In short: in exact arithmetic host and target agree, so
the outputs differ by (1) rounding noise injected into the host's stream, which has the size of E R_w (hence of the
condition number of R_all) and is read by everything that follows, (2) the residual of E R_all = W_all, (3) attention
matrices that differ because of both, and (4) the target's own rounding. Nothing of the host's run enters.

Sums of many rounding errors are bounded under the usual model of independent errors of mean zero (Hoeffding's inequality
with LAMBDA, so that one number of a billion exceeds its bound with probability below 10^-4). What underflow loses is added
(underflow.py). Overflow is not modelled: a run or a bound that overflows is not finite, and then nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, log, log2, sqrt
from typing import Any

import numpy as np

from utfproof.attention import KEY_BLOCK, GivenAttention, SoftmaxAttention
from utfproof.emulation.gains import (
    NOTHING,
    OUTPUT,
    HostGains,
    Norms,
    Reading,
    StreamSizes,
    TargetGains,
    column_norms,
    largest_row,
    reading_blocks,
    readings,
    weighted,
)
from utfproof.emulation.norms import block_norms, length, longest, raised, spectral_norm
from utfproof.emulation.underflow import (
    dense_lost,
    factors_lost,
    logits_lost,
    path_lost,
    selected_lost,
    weights_lost,
)
from utfproof.errors import MalformedInput
from utfproof.ground.arrays import to_numpy
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal, prefix_products

LAMBDA = 8.0
"""Standard deviations: 2 exp(-64/2) is below 10^-13."""

_DOUBLE = 2.0**-53


@dataclass(frozen=True)
class RunSizes:
    """Sizes met on a run of the target in float64 (never the host's): per (layer, head) the largest 2-norms of the queries
    and keys that the host computes, and of the stream; and the stream's radius about its mean row.

    scale: the largest |output|. context: n. rows: the input X [n, d_in].
    """

    queries: Mapping[tuple[int, int], float]
    keys: Mapping[tuple[int, int], float]
    own_queries: Mapping[tuple[int, int], float]
    own_keys: Mapping[tuple[int, int], float]
    stream: Mapping[int, float]
    radius: Mapping[int, float]
    scale: float
    rows: np.ndarray


@dataclass(frozen=True)
class Noise:
    """Error of each reading before any attention differs: along any fixed unit vector of queries or keys; for OUTPUT of one
    entry."""

    size: dict[Reading, float]


def attention_roundoff(context: int) -> float:
    """Units of roundoff in one entry of A X, relative to |A||X|: a sum in blocks of KEY_BLOCK, and the division."""
    return sqrt(min(context, KEY_BLOCK) + context / KEY_BLOCK + 4)


def _met(norms: Norms, two: float, inf: float) -> float:
    """The size of a noise of independent entries of size up to `inf` and of 2-norm up to `two`, as a reading sees it."""
    return min(two * norms.inf, inf * norms.two)


def _read_selected(host: Universal, entries: list[np.ndarray]) -> dict[Reading, float]:
    """Rounding of an index map that reads and adds, in units of the roundoff: each column by the entries that it takes."""
    last = host.shape.layers
    found = {}
    for key in readings(host.shape):
        maps = None if key == OUTPUT else host.maps(key[1], key[2])
        matrix = host.U if maps is None else (maps.query, maps.key)[key[0]]
        taken = entries[last if key == OUTPUT else key[1]][None] @ matrix
        added = np.bincount(matrix.coordinates()[1], minlength=matrix.shape[1]) - 1
        found[key] = float((np.sqrt(np.maximum(added, 0)) * taken[0]).max(initial=0.0))
    return found


def selected_noise(
    host: Universal,
    gains: HostGains,
    entries: list[np.ndarray],
    residual: dict[Reading, float],
    x2: float,
    context: int,
    roundoff: float,
    tiny: float = 0.0,
    first: np.ndarray | None = None,
) -> Noise:
    """Noise of an index-map host, run as gathers or as dense matrices: X E, sums over tokens, over heads, and of R_V, R_Q,
    R_K and U where they add; and the residual of E. x2: the largest row norm of X. first: where layer 1 averages X and not
    X E, how errors of these averages move each reading."""
    shape, u = gains.shape, roundoff
    gamma = attention_roundoff(context)
    parts = [sqrt(shape.d_in) * u * weighted(shape, gains.selected[0], entries[0], through=False)]
    most = 0
    for layer in range(shape.layers):
        through = weighted(shape, gains.selected[layer], entries[layer], through=True)
        after = weighted(shape, gains.selected[layer + 1], entries[layer + 1], through=False)
        summed = (t for h in range(shape.heads) for _, _, t in gains.value[(layer, h)])
        added = shape.letters - 1 + max(gains.passed[layer], *summed)
        most = max(most, added)
        averaged = gamma * u * through
        if first is not None and not layer:
            averaged = gamma * u * x2 * first
            added += shape.d_in
        parts += [averaged, sqrt(added) * u * after]
    # noise is itself carried along with the stream, whose sizes `entries` are sums of sizes: second order
    growth = raised(1 + LAMBDA * (sqrt(shape.d_in) + sqrt(most) + gamma) * u, 2 * shape.layers + 1)
    lost = selected_lost(gains, context, tiny, first, x2)
    read = _read_selected(host, entries)
    return Noise(
        {
            key: (LAMBDA * hypot(whole, u * read[key]) + missing) * growth + residual[key]
            for key, whole, missing in zip(readings(shape), length(parts, 0).tolist(), lost.tolist(), strict=True)
        }
    )


class DenseNoise:
    """Noise of an m-wide run of a dense host on X: products with E and R_V, attention, reading, the residual of E."""

    def __init__(
        self,
        gains: HostGains,
        sizes: StreamSizes,
        E: np.ndarray,
        residual: dict[Reading, float],
        rows: np.ndarray,
        roundoff: float,
        tiny: float = 0.0,
    ) -> None:
        self.gains, self.sizes, self.residual, self.roundoff = gains, sizes, residual, roundoff
        self.tiny, self.context = tiny, len(rows)
        self.lost = dense_lost(gains, len(rows), tiny)
        self.gamma = attention_roundoff(len(rows))
        self.x2 = largest_row(rows)
        self.spec_E, self.col_E = spectral_norm(E), longest(E, 0)
        self.row_E = largest_row(E)

    def _carried(self, apart: list[float]) -> tuple[list[float], list[float], list[float], list[float]]:
        """Sizes of the host's own stream (two, partial, entries, and of the noise in it), when rows of P_w differ from the
        target's by apart[l] in 1-norm, for words of length l."""
        shape, u = self.gains.shape, self.roundoff
        noise, two, partial, entries = [], [], [], []
        root, context = sqrt(self.gains.m), self.context
        off = LAMBDA * u * sqrt(shape.d_in) * self.x2 * self.spec_E + self.tiny * 2 * shape.d_in * root
        for layer in range(shape.layers + 1):
            hull = self.sizes.hull[layer]
            moved = min(apart[layer], 2.0) * hull + off
            noise.append(off)
            two.append(min(self.sizes.two[layer] + moved, hull + off))
            partial.append(self.sizes.partial[layer] + moved)
            entries.append(float(self.sizes.entries[layer].max()) + off)
            if layer < shape.layers:
                values = [self.gains.value[(layer, head)] for head in range(shape.heads)]
                norms = [float(np.prod([s for s, _, _ in factors])) for factors in values]
                whole = shape.residual + sum(norms)
                terms = (sqrt(sum(t for _, _, t in f)) * s for f, s in zip(values, norms, strict=True))
                new = two[-1] * hypot(self.gamma * sum(norms), *terms, sqrt(shape.letters - 1) * whole)
                lost = 2 * (context + 1) * root * sum(norms) + shape.letters * root
                lost += sum(factors_lost(factors, self.gains.m) for factors in values)
                off = whole * off + LAMBDA * u * new + self.tiny * lost
        return two, partial, entries, noise

    def noise(self, apart: list[float]) -> Noise:
        """The readings' noise, with attention that differs by `apart` from layer to layer (only sizes depend on it)."""
        gains, u = self.gains, self.roundoff
        shape, gamma = gains.shape, self.gamma
        two, partial, entries, _ = self._carried(apart)
        size = {}
        for key in readings(shape):
            begin = _met(gains.full[0].get(key, NOTHING), self.x2 * self.spec_E, self.x2 * self.col_E)
            parts = [sqrt(shape.d_in) * u * begin]
            last = shape.layers if key == OUTPUT else key[1]
            for layer in range(last):
                through = gains.through[layer].get(key, NOTHING)
                after = gains.full[layer + 1].get(key, NOTHING)
                parts.append(gamma * u * _met(through, two[layer], entries[layer]))
                for head in range(shape.heads):
                    parts += _value_noise(gains.value[(layer, head)], two[layer], entries[layer], after, u)
                parts.append(sqrt(shape.letters - 1) * u * _met(after, partial[layer + 1], entries[layer + 1]))
            # the residual was itself computed with R_all, in float64
            parts += [_DOUBLE * self.x2 * self.row_E * gains.evaluate[key], u * gains.read[key] * two[last]]
            size[key] = LAMBDA * hypot(*parts) + self.lost[key] + self.residual[key]
        return Noise(size)


def _value_noise(
    factors: list[tuple[float, float, int]], two: float, inf: float, after: Norms, u: float
) -> list[float]:
    """Rounding of Y R_V as a later reading sees it, and R_all's own rounding (in float64): deviations, for `hypot`."""
    if len(factors) == 2:  # Y R_Vv, then times R_Vo
        (first, _, terms), (second, _, inner) = factors
        whole = two * first * second
        own = u * whole * hypot(sqrt(terms) * after.two, sqrt(inner) * after.inf)
        return [own, _DOUBLE * whole * sqrt(terms + inner) * after.two]
    spectral, column, terms = factors[0]
    rounding = u * min(two * spectral * after.inf, two * column * after.two)
    return [sqrt(terms) * rounding, sqrt(terms) * _DOUBLE * spectral * inf * after.two]


def path_noise(
    columns: np.ndarray,
    shape: Shape,
    residual: dict[Reading, float],
    rows: np.ndarray,
    roundoff: float,
    tiny: float = 0.0,
) -> Noise:
    """Noise of a run in path space: streams are averages of X, read by E R_all itself (columns [d_in, M])."""
    u, gamma = roundoff, attention_roundoff(len(rows))
    x2, lost = largest_row(rows), path_lost(columns, shape, len(rows), tiny)
    size = {}
    for key, norm in column_norms(columns, shape).items():
        kind, layer, _ = key
        last = shape.layers if kind == 2 else layer
        words = shape.words_at(last)
        deviation = sqrt(shape.d_in * words + last * gamma**2) * (u * x2 * sqrt(words) * norm)
        size[key] = LAMBDA * deviation + lost[key] + residual[key]
    return Noise(size)


def summed_rounding(E: np.ndarray, columns: SelectionMatrix) -> np.ndarray:
    """Deviation of the rounding of each entry of E R_all [d_in, M] for an index map R_all, in units of the roundoff: a sum of k
    entries rounds k - 1 times, a single one is copied. The embedding by inclusion and exclusion that undoes these sums rounds
    as much (docs/emulation.md)."""
    terms = np.bincount(columns.coordinates()[1], minlength=columns.shape[1])
    if terms.max(initial=0) <= 1:
        return np.zeros((E.shape[0], columns.shape[1]))
    found: np.ndarray = (np.abs(E) @ columns) * np.sqrt(np.maximum(terms - 1, 0))
    return found


def evaluation_sizes(deviation: np.ndarray, shape: Shape) -> dict[Reading, float]:
    """How much independent errors of these deviations in the entries of E R_all move each reading, for inputs of length one."""
    out = {}
    for key, block in reading_blocks(deviation, shape).items():
        out[key] = LAMBDA * float(length(length(block, 0).max(axis=1)))
    return out


_CHUNK = 1 << 22


def residual_sizes(difference: np.ndarray, shape: Shape, rows: np.ndarray) -> dict[Reading, float]:
    """How much E R_all - W_all [d_in, M] moves each reading: for every word another row in the hull of X's, then summed."""
    x2, absolute = largest_row(rows), np.unique(np.abs(rows), axis=0)
    out = {}
    for key, block in reading_blocks(difference, shape).items():
        # [d_in, words, 1] of queries and keys, in 2-norm; [d_in, words, d_out]
        by_row = np.abs(block) if key == OUTPUT else length(block, 2)[:, :, None]
        whole = length(by_row, 0)
        step = max(1, _CHUNK // (len(absolute) * by_row.shape[2]))
        reached = np.empty_like(whole)
        for start in range(0, len(whole), step):
            part = by_row[:, start : start + step]
            met = absolute @ part.reshape(len(part), -1)
            reached[start : start + step] = met.max(axis=0).reshape(part.shape[1:])
        out[key] = float(np.minimum(x2 * whole, reached).sum(axis=0).max())
    return out


def right_side_rounding(target: Target, gains: TargetGains, rows: np.ndarray) -> dict[Reading, float]:
    """How much the rounding of W_all itself (computed in float64 from the target's weights) moves each reading.

    Every product of a prefix M_w with the next value form, and with a reader, rounds by itself; what it rounds is read on
    like any error of the stream. One rounded form W_V W_O serves all words that pass it, and all layers of a tied target; where
    heads repeat each other everything they round is the same, and is summed. In a tied target with a residual stream a word
    and the same word with letters 0 elsewhere are one product, which rounds once: all of it is summed, over layers too.
    """
    shape = target.shape
    echoed = target.tied and shape.residual
    repeated = echoed or _heads_repeat(target)
    keys = list(readings(shape))
    alone: dict[Reading, list[float]] = {key: [] for key in keys}  # sizes of what rounds by itself
    shared = {key: np.zeros((shape.layers, shape.heads)) for key in keys}  # sizes of what a form's rounding does
    for layer in range(shape.layers + 1):
        products = to_numpy(prefix_products(target, layer)).astype(np.float64)
        norms = block_norms(products.transpose(1, 0, 2))
        words, several = float(norms.sum()), float(norms.sum() if repeated else length(norms))
        for key in keys:
            last = shape.layers if key == OUTPUT else key[1]
            if last == layer:
                alone[key].append(several * gains.reader[key])
        if layer < shape.layers:
            for head in range(shape.heads):
                for key, norm in gains.full[layer + 1].items():
                    alone[key].append(several * gains.split[(layer, head)] * norm)
                    shared[key][layer, head] = words * gains.form[(layer, head)] * norm
    out = {}
    for key in keys:
        forms = shared[key].sum(axis=0, keepdims=True) if target.tied else shared[key]
        if repeated:
            forms = forms.sum(axis=1, keepdims=True)
        split = float(length(alone[key])) * (sqrt(len(alone[key]) if echoed else shape.heads) if repeated else 1)
        out[key] = LAMBDA * _DOUBLE * largest_row(rows) * hypot(float(length(forms)), split)
    return out


def _heads_repeat(target: Target) -> bool:
    """Whether two heads of a layer that are not zero have the same W_V and W_O."""
    for layer in range(1 if target.tied else target.shape.layers):
        seen = []
        for head in range(target.shape.heads):
            _, _, w_v, w_o = (to_numpy(a) for a in target.parameters(layer, head))
            if w_v.any() and w_o.any():
                seen.append(w_v.tobytes() + w_o.tobytes())
        if len(set(seen)) < len(seen):
            return True
    return False


# --- through the attention of all layers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Propagated:
    """error: of an output entry. apart: by layer, how far rows of the two attention matrices are apart in 1-norm, the largest
    over the heads."""

    error: float
    apart: list[float]


def propagated(
    noise: Noise,
    gains: TargetGains,
    sizes: RunSizes,
    kernel: Any,
    roundoff: float,
    shape: Shape,
    *,
    own: bool,
    tiny: float = 0.0,
    gaps: Mapping[tuple[int, int], float] | None = None,
) -> Propagated:
    """Largest error of an output entry of a run whose readings carry `noise`: attention matrices differ by it, and what
    follows reads other streams. own: the target's own run, else the host's. gaps: 2-norms of the difference of the two
    bilinear forms, for hosts that agree in logits only."""
    queries, keys = (sizes.own_queries, sizes.own_keys) if own else (sizes.queries, sizes.keys)
    injected: dict[tuple[int, int], float] = {}
    carried = 0.0  # how far the stream is off
    largest = []
    # rows of every attention matrix sum to 1 up to this, so noise can grow by it at each layer
    stretch = raised(1 + roundoff * (1 + sum_roundoff(len(sizes.rows))), shape.layers)
    for layer in range(shape.layers):
        stream = sizes.stream[layer] + carried
        largest.append(0.0)
        for head in range(shape.heads):
            error = []
            for kind in (0, 1):
                key = (kind, layer, head)
                earlier = sum(v * gains.through[at].get(key, 0.0) for at, v in injected.items() if at[0] < layer)
                error.append(noise.size[key] * stretch + earlier)
            q, k = queries[(layer, head)], keys[(layer, head)]
            gap = gaps[(layer, head)] * stream * stream if gaps else 0.0
            apart, relative = attention_difference(
                kernel, q, k, error[0], error[1], shape.head_dim, len(sizes.rows), roundoff, gap, tiny
            )
            largest[-1] = max(largest[-1], apart + relative)
            injected[(layer, head)] = apart * (sizes.radius[layer] + 2 * carried) + relative * stream
        moved = sum(gains.value[(layer, h)] * (carried + injected[(layer, h)]) for h in range(shape.heads))
        carried = moved + shape.residual * carried
    last = sum(v * gains.through[at].get(OUTPUT, 0.0) for at, v in injected.items())
    return Propagated(noise.size[OUTPUT] * stretch + last, largest)


def settled(noise_of: Callable[[list[float]], Noise], carry: Callable[[Noise], Propagated], layers: int) -> float:
    """The output's error where the noise depends on the sizes of the host's own stream, and these on how far its attention
    is off: layer by layer, since noise up to a layer depends on attention before it."""
    apart = [0.0] * (layers + 1)
    found = carry(noise_of(apart))
    for _ in range(layers):
        now = [0.0, *np.cumsum(found.apart).tolist()]
        if now == apart:
            break
        apart = now
        found = carry(noise_of(apart))
    return found.error


def attention_difference(
    kernel: Any,
    q: float,
    k: float,
    error_q: float,
    error_k: float,
    d: int,
    context: int,
    u: float,
    gap: float = 0.0,
    tiny: float = 0.0,
) -> tuple[float, float]:
    """(a, r): rows of the computed attention matrix are those of A + D and a rest of 1-norm at most r, where D has row
    sum 0 and |D|_1 <= a. gap: a difference of the logits besides.

    Softmax moves by at most the largest change of a logit, in 1-norm (its Jacobian takes a change of logits to its mean
    absolute deviation under the weights).
    """
    kernel = getattr(kernel, "kernel", kernel)
    if isinstance(kernel, GivenAttention):
        if not kernel.row_stochastic:  # errors are averaged, and streams stay in the hull of X's rows, only then
            raise MalformedInput(
                "there is no rounding bound for attention matrices with negative entries or rows that do not sum to 1; "
                "compare without bounds"
            )
        return 0.0, 2 * u
    if not isinstance(kernel, SoftmaxAttention):
        raise MalformedInput(
            f"there is no rounding bound for attention {type(kernel).__name__}; compare without bounds"
        )
    scale = abs(kernel.factor(d))
    largest = scale * (q + error_q) * (k + error_k) + gap
    # errors along a fixed direction, and one error along the other: each is at most sqrt(d) + LAMBDA deviations long
    crossed = error_q * error_k * (1 + sqrt(d) / LAMBDA) ** 2
    change = scale * (q * error_k + k * error_q + crossed + gap)
    of_product, of_largest, of_mean = kernel.rounding()
    # the product of length d, and turning queries and keys
    change += u * largest * (min(float(d), LAMBDA * sqrt(d)) + of_product)
    # exp (6 units: 2.5 units in the last place and its result), the scale and its rounding, and what the maximum is taken
    # from; then what parts do to logits. Relative errors of z_j - max z are met in the mean under the weights, twice, where
    # the mean of |z_j - max z| is at most log n
    change += u * (6 + (2 + of_largest) * largest + (2 + of_mean) * log(context))
    change += logits_lost(d, scale, q + error_q, k + error_k, tiny)
    return min(change, 2.0), u * (1 + sum_roundoff(context)) + weights_lost(context, tiny)


def sum_roundoff(context: int) -> float:
    """Units of roundoff of a row's sum of weights, which are summed pairwise over blocks of 128."""
    return min(context, 128) / 8 + 3 + log2(max(context / 128, 1))


@dataclass(frozen=True)
class ErrorBound:
    """Relative to the largest |output|: what host and target may differ by. `host` and `target` are the two runs' shares."""

    host: float
    target: float

    @property
    def total(self) -> float:
        """Their sum; 1 or more says nothing about the outputs."""
        return self.host + self.target


def own_noise(
    gains: TargetGains, sizes: RunSizes, shape: Shape, roundoff: float, lost: Mapping[Reading, float] | None = None
) -> Noise:
    """Noise of the readings of the target's own run: the products of every layer, its sums over tokens and over heads. lost:
    what underflow adds."""
    gamma, x2 = attention_roundoff(len(sizes.rows)), largest_row(sizes.rows)
    size = {}
    for key in readings(shape):
        last = shape.layers if key == OUTPUT else key[1]
        # the reading, X W_E, and then every layer
        parts = [gains.reader[key] * sizes.stream[last], gains.begin * x2 * gains.full[0].get(key, 0.0)]
        for layer in range(last):
            after = gains.full[layer + 1].get(key, 0.0)
            # partial sums over heads can be larger than their sum
            values = shape.residual + sum(gains.value[(layer, head)] for head in range(shape.heads))
            parts.append(sqrt(shape.letters - 1) * sizes.stream[layer] * values * after)
            for head in range(shape.heads):
                at = (layer, head)
                parts.append(gamma * sizes.stream[layer] * gains.through[at].get(key, 0.0))
                parts.append(gains.run[at] * sizes.stream[layer] * after)
        size[key] = LAMBDA * roundoff * hypot(*parts) + (lost[key] if lost else 0.0)
    return Noise(size)
