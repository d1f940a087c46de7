"""How errors of queries and keys change attention, and what follows from it: through the target's own later layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, log2, sqrt
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, SoftmaxAttention
from utfproof.emulation.bound import OUTPUT, STREAM, Reading, Rule, as_float64
from utfproof.emulation.norms import block_norms, length, raised, spectral_norm
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.systems import Target

_HIDDEN = 2.0**-40
"""What rounding can hide of a norm that is itself computed in float64, relative to the norms of its factors."""


@dataclass(frozen=True)
class TargetGains:
    """How an error of the target's stream is read later, in 2-norm, summed over words. through[(l, h)]: an error that enters
    before M^{l,h}. value[(l, h)]: the 2-norm of M^{l,h}."""

    through: dict[tuple[int, int], dict[Reading, float]]
    value: dict[tuple[int, int], float]


def target_gains(target: Target) -> TargetGains:
    """From the last layer backwards: every matrix M_w W_Q, M_w W_K and M_w W_U."""
    shape = target.shape
    blocks: dict[Reading, np.ndarray] = {OUTPUT: as_float64(target.unembedding())[None]}
    hidden = {OUTPUT: float(length(blocks[OUTPUT]))}
    through: dict[tuple[int, int], dict[Reading, float]] = {}
    value: dict[tuple[int, int], float] = {}
    for layer in reversed(range(shape.layers)):
        moved: dict[Reading, list[np.ndarray]] = {key: [block] * shape.residual for key, block in blocks.items()}
        larger = {key: size * shape.residual for key, size in hidden.items()}
        for head in range(shape.heads):
            w_v, w_o = (as_float64(matrix) for matrix in target.parameters(layer, head)[2:])
            form, whole = w_v @ w_o, float(length(w_v)) * float(length(w_o))
            value[(layer, head)] = spectral_norm(form) + _HIDDEN * whole
            through[(layer, head)] = {}
            for key, block in blocks.items():
                passed = form @ block
                norm = float(length(passed, 1).sum(axis=0).max() if key == OUTPUT else block_norms(passed).sum())
                through[(layer, head)][key] = norm + _HIDDEN * whole * hidden[key]
                moved[key].append(passed)
                larger[key] += whole * hidden[key]
        blocks, hidden = {key: np.concatenate(parts) for key, parts in moved.items()}, larger
        for head in range(shape.heads):
            for kind, reader in enumerate(target.parameters(layer, head)[:2]):
                blocks[(kind, layer, head)] = as_float64(reader)[None]
                hidden[(kind, layer, head)] = float(length(as_float64(reader)))
    return TargetGains(through, value)


@dataclass(frozen=True)
class RunSizes:
    """Sizes of a run of the target: per (layer, head) the largest 2-norms of queries and keys, and per layer those of the
    stream's rows, and their radius about the mean row."""

    queries: Mapping[tuple[int, int], float]
    keys: Mapping[tuple[int, int], float]
    stream: Mapping[int, float]
    radius: Mapping[int, float]


@dataclass(frozen=True)
class Errors:
    """Of a run: of each query and key in 2-norm, of an output entry, and of the stream's rows by layer."""

    read: dict[Reading, float]
    output: float
    stream: list[float]


def propagated(
    noise: Mapping[Reading, float],
    gains: TargetGains,
    sizes: RunSizes,
    kernel: Any,
    shape: Shape,
    context: int,
    rule: Rule,
    u: float,
    tiny: float,
    gaps: Mapping[tuple[int, int], float] | None = None,
) -> Errors:
    """Errors of a run whose readings carry `noise`: its attention matrices differ by it, so what follows reads another stream.

    gaps: 2-norms of the difference of the two bilinear forms, for hosts that agree in logits only.
    """
    injected: dict[tuple[int, int], float] = {}
    carried, read = 0.0, {}
    # rows of every attention matrix sum to 1 up to this, so noise can grow by it at each layer
    stretch = raised(1 + compound(1 + sum_roundoff(context), u), shape.layers)
    stream = [noise.get((STREAM, 0, 0), 0.0) * stretch]
    for layer in range(shape.layers):
        for head in range(shape.heads):
            for kind in (0, 1):
                key = (kind, layer, head)
                earlier = sum(v * gains.through[at].get(key, 0.0) for at, v in injected.items() if at[0] < layer)
                read[key] = noise[key] * stretch + earlier
        moved = carried * shape.residual
        for head in range(shape.heads):
            whole = sizes.stream[layer] + carried
            gap = gaps[(layer, head)] * whole * whole if gaps else 0.0
            q, k = (
                (sizes.queries[(layer, head)], read[(0, layer, head)]),
                (sizes.keys[(layer, head)], read[(1, layer, head)]),
            )
            apart, relative = attention_difference(kernel, q, k, shape.head_dim, context, rule, u, gap, tiny)
            injected[(layer, head)] = (apart * (sizes.radius[layer] + 2 * carried) + relative * whole) * stretch
            moved += gains.value[(layer, head)] * (carried + injected[(layer, head)])
        carried = moved
        stream.append(carried + noise.get((STREAM, layer + 1, 0), 0.0) * stretch)
    last = sum(v * gains.through[at].get(OUTPUT, 0.0) for at, v in injected.items())
    return Errors(read, noise[OUTPUT] * stretch + last, stream)


def attention_difference(
    kernel: Any,
    queries: tuple[float, float],
    keys: tuple[float, float],
    d: int,
    context: int,
    rule: Rule,
    u: float,
    gap: float = 0.0,
    tiny: float = 0.0,
) -> tuple[float, float]:
    """(a, r): rows of the computed attention matrix are those of A + D and a rest of 1-norm at most r, where D has row
    sum 0 and |D|_1 <= a. queries, keys: (size, error). gap: a difference of the logits besides.

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
    (q, error_q), (k, error_k) = queries, keys
    scale = abs(kernel.factor(d))
    largest = scale * (q + error_q) * (k + error_k) + gap
    change = scale * (q * error_k + k * error_q + error_q * error_k + gap)
    of_product, of_largest, of_mean = kernel.rounding()
    # the product of length d, and turning queries and keys
    product, turned = rule.deviations * rule.units(d, u), compound(of_product, u)
    change += (product + turned + product * turned) * largest
    # exp (6 units: 2.5 units in the last place and its result), the scale and its rounding, and what the maximum is taken
    # from; then what parts do to logits. Relative errors of z_j - max z are met in the mean under the weights, twice, where
    # the mean of |z_j - max z| is at most log n
    above = 1 + compound(16 + 2 * (of_largest + of_mean), u)  # of relative errors, one after the other
    change += u * (6 + (2 + of_largest) * largest + (2 + of_mean) * log(context)) * above
    change += tiny * (scale * (2 * d + 4 * sqrt(d) * (q + error_q + k + error_k)) + 8)
    return min(change, 2.0), compound(1 + sum_roundoff(context), u) + 2 * (context + 1) * tiny


def compound(units: float, u: float) -> float:
    """Most that so many roundings, one after the other, change a number by, relative to it."""
    return units * u / (1 - units * u) if units * u < 1 else inf


def sum_roundoff(context: int) -> float:
    """Units of roundoff of a row's sum of weights, which are summed pairwise over blocks of 128."""
    return min(context, 128) / 8 + 3 + log2(max(context / 128, 1))
