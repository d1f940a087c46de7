"""What underflow adds to the bound of docs/emulation.md, read on through the same gains as rounding.

A result below the least normal number, `tiny`, may lose all of itself (gradual underflow loses less; a device may flush to
zero), whatever kernel computes it. A product of k terms does so in k multiplications and k additions: at most 2 k tiny in an
entry. These losses are no random signs: a vector of p entries of at most s has 2-norm up to s sqrt(p), and they are summed.
The products of the bound itself underflow as well, by less than 2^-52 of what is allowed here.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from utfproof.emulation.gains import (
    NOTHING,
    OUTPUT,
    HostGains,
    Reading,
    TargetGains,
    column_norms,
    readings,
    weighted,
)
from utfproof.emulation.norms import spectral_norm
from utfproof.shapes import Shape
from utfproof.systems import Target

DOUBLE = 2.0**-1022
"""The least normal number of float64."""


def _width(shape: Shape, key: Reading) -> float:
    """What an entry's loss comes to along a unit vector of queries or keys; outputs are read entry by entry."""
    return 1.0 if key == OUTPUT else sqrt(shape.head_dim)


def _last(shape: Shape, key: Reading) -> int:
    """Layers before a reading."""
    return shape.layers if key == OUTPUT else key[1]


def factors_lost(factors: list[tuple[float, float, int]], m: int) -> float:
    """2-norm of what the product of a stream with R_V's factors loses, in units of tiny; m: entries of the result."""
    lost = 0.0
    for place, (spectral, _, terms) in enumerate(factors):
        width = factors[place + 1][2] if place + 1 < len(factors) and factors[place + 1][2] else m
        lost = lost * spectral + 2 * terms * sqrt(width)
    return lost


def dense_lost(gains: HostGains, context: int, tiny: float) -> dict[Reading, float]:
    """What an m-wide run of a dense host loses, by reading: X E, A X, products with R_V, sums over heads, the reading."""
    shape, root = gains.shape, sqrt(gains.m)
    out = {}
    for key in readings(shape):
        lost = 2 * shape.d_in * root * gains.full[0].get(key, NOTHING).two + 2 * gains.m * _width(shape, key)
        for layer in range(_last(shape, key)):
            values = sum(factors_lost(gains.value[(layer, head)], gains.m) for head in range(shape.heads))
            lost += 2 * (context + 1) * root * gains.through[layer].get(key, NOTHING).two
            lost += (shape.letters * root + values) * gains.full[layer + 1].get(key, NOTHING).two
        out[key] = tiny * lost
    return out


def selected_lost(gains: HostGains, context: int, tiny: float, first: np.ndarray | None, x2: float) -> np.ndarray:
    """The same for an index map, in the order of `readings`; first: how layer 1 reads errors of its averages of X, where it
    averages X itself and multiplies by sums of columns of E."""
    shape, root = gains.shape, sqrt(gains.m)
    even = np.ones(gains.m)
    columns = 2 * shape.d_in + 2 * gains.m * sqrt(shape.d_in) * x2 * (first is not None)
    lost = columns * root * weighted(shape, gains.selected[0], even, through=False)
    for layer in range(shape.layers):
        if first is not None and not layer:
            lost += 2 * (context + 1) * sqrt(shape.d_in) * first
        else:
            lost += 2 * (context + 1) * root * weighted(shape, gains.selected[layer], even, through=True)
        values = sum(factors_lost(gains.value[(layer, head)], gains.m) for head in range(shape.heads))
        entry = (shape.letters + 2 * gains.passed[layer] + columns * (first is not None and not layer)) * root + values
        lost += entry * weighted(shape, gains.selected[layer + 1], even, through=False)
    widths = np.array([_width(shape, key) for key in readings(shape)])
    return np.asarray(tiny * (lost + 2 * gains.m * widths))


def path_lost(columns: np.ndarray, shape: Shape, context: int, tiny: float) -> dict[Reading, float]:
    """What a run in path space loses: averages of X, once a layer, and the product with E R_all."""
    out = {}
    for key, norm in column_norms(columns, shape).items():
        entries = shape.words_at(_last(shape, key)) * shape.d_in
        averaged = _last(shape, key) * 2 * (context + 1) * sqrt(entries) * norm
        out[key] = tiny * (averaged + 2 * entries * _width(shape, key))
    return out


def own_lost(gains: TargetGains, target: Target, context: int) -> dict[Reading, float]:
    """What the target's own run loses: X W_E, A X, the products with W_V and W_O, sums over heads, the reading."""
    shape, D, d = target.shape, target.width, int(target.W_V.shape[-1])
    root = sqrt(D)
    out = {}
    for key in readings(shape):
        lost = 2 * shape.d_in * root * gains.full[0].get(key, 0.0) + 2 * D * _width(shape, key)
        for layer in range(_last(shape, key)):
            lost += shape.letters * root * gains.full[layer + 1].get(key, 0.0)
            for head in range(shape.heads):
                at = (layer, head)
                lost += 2 * (context + 1) * root * gains.through[at].get(key, 0.0)
                values = 2 * D * sqrt(d) * gains.out[at] + 2 * d * root
                lost += values * gains.full[layer + 1].get(key, 0.0)
        out[key] = DOUBLE * lost
    return out


def equations_lost(gains: HostGains | None, own: TargetGains, target: Target, E: float, m: int) -> dict[Reading, float]:
    """What E R_all - W_all loses where it is computed, as readings meet it for inputs of length one. gains: of a dense host,
    whose R_all is a product itself; E: the 2-norm of E."""
    shape, D, d = target.shape, target.width, int(target.W_V.shape[-1])
    out = {}
    # sums over words of the norms of W_E M_w and of E R_w, by their length
    prefixes, streams = [1.0 if target.W_E is None else spectral_norm(target.W_E)], [E]
    for layer in range(shape.layers):
        heads = range(shape.heads)
        prefixes.append(prefixes[-1] * (shape.residual + sum(own.value[(layer, h)] for h in heads)))
        norms = [np.prod([s for s, _, _ in gains.value[(layer, h)]]) for h in heads] if gains is not None else []
        streams.append(streams[-1] * float(shape.residual + sum(norms)))
    for key in readings(shape):
        last, width = _last(shape, key), _width(shape, key)
        lost = 2 * (m + D) * sqrt(shape.d_in) * shape.words_at(last) * width
        for layer in range(last):
            rounded = prefixes[layer] * 2 * d * D + 2 * D * sqrt(shape.d_in * D) * shape.words_at(layer)
            lost += shape.heads * rounded * own.full[layer + 1].get(key, 0.0)
            if gains is not None:
                inner = sum(1 + sum(s for s, _, _ in gains.value[(layer, h)]) for h in range(shape.heads))
                lost += streams[layer] * 2 * m * sqrt(m) * width * inner * shape.words_at(last - layer - 1)
        out[key] = DOUBLE * lost
    return out


def logits_lost(d: int, scale: float, q: float, k: float, tiny: float) -> float:
    """Of a logit: turning queries and keys, their product, the scale and what parts add."""
    return tiny * (scale * (2 * d + 4 * sqrt(d) * (q + k)) + 8)


def weights_lost(context: int, tiny: float) -> float:
    """Of a row of attention in 1-norm: each weight may vanish, and so may its quotient by their sum, which is at least 1."""
    return 2 * (context + 1) * tiny
