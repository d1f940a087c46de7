"""`mlp-tree-K`: one host with gated MLPs for all targets with at most K hidden units, whatever the width of their stream
(docs/proofs/gated-mlp.md, Theorem D). `mlp-tree-K-relu-ungated`: a smaller one without gates, for MLPs x -> relu(x W_in) W_out.

Coordinates hold functionals of the target's stream y, found from the output backwards: before a layer the host needs, for each
functional c that is needed after it, what the MLP and the heads add to y c. The functionals of each stage come first among
those of the stage before.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from utfproof.constructions.gated_models import model_host, served_target
from utfproof.constructions.multiplying import copied, selected
from utfproof.constructions.record import Construction
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP, MULTIPLYING
from utfproof.util.arrays import Array
from utfproof.util.resources import require_memory

_NAME = re.compile(rf"mlp-tree-([1-9][0-9]{{0,5}})(?:-({'|'.join(MULTIPLYING)}))?((?<=-relu)-ungated)?")
_FORMS = ((1, 0), (0, 1), (1, 1), (1, -1))
_GIVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Two functionals gain |u| - |v| and |u + v| - |u - v|: the sum of |forms of (u, v)| times what each gives."""


def stages(shape: Shape, hidden: int, *, gated: bool = True) -> list[tuple[int, int]]:
    """(functionals after a layer, functionals between its attention and its MLP) of layers 1 to L, and (m, 0) before the first
    one at the front. Without gates functionals come in pairs."""
    sizes, n = list[tuple[int, int]](), shape.d_out if gated else shape.d_out + shape.d_out % 2
    for _ in range(shape.layers):
        between = n * (1 + hidden) + hidden * gated
        sizes.append((n, between))
        n = between * (1 + shape.heads) + 2 * shape.heads * shape.head_dim
    return [(n, 0), *reversed(sizes)]


def mlp_tree_host(
    shape: Shape, hidden: int, activation: str, m: int | None = None, construction: str = "", *, gated: bool = True
) -> Universal:
    """The host, entries 0 and 1, without gates -1 too. `shape` is the targets', with their residual stream. ResourceLimit
    before allocating."""
    (least, _), *sizes = stages(shape, hidden, gated=gated)
    m, H, d = least if m is None else m, shape.heads, shape.head_dim
    mlp = _units(m, hidden, activation, sizes, gated=gated)
    queries, keys, values = [], [], []
    for _, between in sizes:
        first, heads = between * (1 + H), range(H)
        queries.append(tuple(selected(m, first + np.arange(h * d, (h + 1) * d), d) for h in heads))
        keys.append(tuple(selected(m, first + np.arange((H + h) * d, (H + h + 1) * d), d) for h in heads))
        place = np.arange(between)
        values.append(tuple(copied(m, (1 + h) * between + place, place) for h in heads))
    plain = Shape(H, shape.layers, d, shape.d_in, shape.d_out)
    U = selected(m, np.arange(shape.d_out), shape.d_out)
    return Universal(plain, m, queries, keys, values, U, construction, mlp=mlp)


def _units(m: int, hidden: int, activation: str, sizes: list[tuple[int, int]], *, gated: bool) -> MLP:
    """The host's MLPs: a unit for each functional and hidden unit of the target, or eight for a pair of functionals."""
    layers, units = len(sizes), sizes[0][0] * hidden * (1 if gated else 4)
    require_memory(4 * 8 * layers * m * units, f"MLPs of {units} hidden units at m = {m}")
    gate, factor = (np.zeros((layers, m, units), dtype=np.int64) for _ in range(2))
    out = np.zeros((layers, units, m), dtype=np.int64)
    for layer, (n, _) in enumerate(sizes):
        if gated:
            unit = np.arange(n * hidden)
            gate[layer, n + unit % hidden, unit] = 1
            factor[layer, n + hidden + unit, unit] = 1
            out[layer, unit, unit // hidden] = 1
            continue
        pair = np.arange(n // 2 * hidden)
        for i, (form, gives) in enumerate(zip(_FORMS, _GIVES, strict=True)):
            for sign in (1, -1):  # |z| = relu(z) + relu(-z)
                unit = 8 * pair + 2 * i + (sign < 0)
                for j in range(2):
                    factor[layer, n + 2 * pair + j, unit] = sign * form[j]
                    out[layer, unit, 2 * (pair // hidden) + j] = gives[j]
    return MLP(activation, factor, out, gate if gated else None)


def embed_mlp_tree(
    shape: Shape, m: int, hidden: int, activation: str, target: BiasedTarget | Target, *, gated: bool = True
) -> Array:
    """E [d_in, m], float64, on inputs with X c = 1 for the target's c. OutsideClass for another shape or activation, more
    hidden units, or gates where the host has none."""
    target = served_target(shape, None, hidden, activation, target)
    if not gated and target.mlp is not None and target.mlp.W_gate is not None:
        raise OutsideClass(f"this host serves MLPs without gates; the target's have gates, use mlp-tree-{hidden}-relu")
    F, constant = target.without_biases().unembedding(), target.bias("b_U")  # y F + constant is what coordinates hold
    if not gated:
        F, constant = np.pad(F, ((0, 0), (0, F.shape[1] % 2))), np.pad(constant, (0, len(constant) % 2))
    for layer in reversed(range(shape.layers)):
        if target.mlp is not None:
            before = _before_mlp if gated else _before_relu
            F, constant = before(target.mlp, layer, hidden, F, constant)
        else:
            more = hidden * (gated + F.shape[1])
            F, constant = np.pad(F, ((0, 0), (0, more))), np.pad(constant, (0, more))
        columns, constants = [F], [constant + target.bias("b_O")[layer] @ F]
        for head in range(shape.heads):
            moved = target.W_O[layer][head] @ F
            columns.append(target.W_V[layer][head] @ moved)
            constants.append(target.bias("b_V")[layer][head] @ moved)
        for name in "QK":
            columns += list(getattr(target, f"W_{name}")[layer])
            constants.append(target.bias(f"b_{name}")[layer].reshape(-1))
        F, constant = np.hstack(columns), np.concatenate(constants)
    E = np.zeros((shape.d_in, m))
    E[:, : F.shape[1]] = target.without_biases().embedding() @ F
    E[:, : F.shape[1]] += np.multiply.outer(target.constant_vector(), constant + target.bias("b_E") @ F)
    return E


def _padded(array: Array, hidden: int) -> Array:
    """The last axis filled with zeros up to K."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, hidden - array.shape[-1])])


def _before_relu(mlp: MLP, layer: int, hidden: int, F: Array, constant: Array) -> tuple[Array, Array]:
    """The same without gates: relu(z) = (z + |z|) / 2, so half of it is a functional. Two functionals, two by two, gain
    t_1 |z| and t_2 |z| from u = alpha z, v = beta z with |alpha| - |beta| = t_1 and |alpha + beta| - |alpha - beta| = t_2."""
    W, b = _padded(mlp.part("W_in", layer), hidden), _padded(mlp.part("b_in", layer), hidden)
    half = _padded((mlp.part("W_out", layer) @ F).T / 2, hidden)  # [columns, K]
    first, second = half[::2], half[1::2]
    alpha = np.abs(second) / 2 + np.maximum(first, 0)
    beta = np.where(second < 0, -1, 1) * (np.abs(second) / 2 + np.maximum(-first, 0))
    weights = np.stack([alpha, beta], axis=-1)  # [pairs, K, 2]
    columns = (W[:, None, :, None] * weights).reshape(len(W), -1)
    constants = constant + mlp.part("b_out", layer) @ F + half @ b, (b[:, None] * weights).reshape(-1)
    return np.hstack([F + W @ half.T, columns]), np.concatenate(constants)


def _before_mlp(mlp: MLP, layer: int, hidden: int, F: Array, constant: Array) -> tuple[Array, Array]:
    """The functionals that give y F + constant after the MLP: the same, the gates, and a factor for each column and unit."""
    W, b = (_padded(mlp.part(name, layer), hidden) for name in ("W_in", "b_in"))
    if mlp.W_gate is None:
        gate, shift, W, b = W, b, np.zeros_like(W), np.ones_like(b)
    else:
        gate, shift = (_padded(mlp.part(name, layer), hidden) for name in ("W_gate", "b_gate"))
    weights = _padded((mlp.part("W_out", layer) @ F).T, hidden)  # [columns, K]
    factors = (W[:, None] * weights).reshape(len(W), -1)
    constants = constant + mlp.part("b_out", layer) @ F, shift, (b * weights).reshape(-1)
    return np.hstack([F, gate, factors]), np.concatenate(constants)


@lru_cache(maxsize=64)
def family(name: str) -> Construction | None:
    """The host that a name mlp-tree-K or mlp-tree-K-ACTIVATION stands for, or mlp-tree-K-relu-ungated; None for other
    names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    hidden, activation, gated = int(found[1]), found[2] or "silu", found[3] is None
    kind = "gated MLPs: targets with MLPs" if gated else "MLPs without gates: targets with such MLPs"
    return model_host(
        name,
        f"{kind} of up to {hidden} hidden units and biases, of any width",
        lambda shape: stages(shape, hidden, gated=gated)[0][0],
        lambda shape, m: mlp_tree_host(shape, hidden, activation, m, name, gated=gated),
        lambda shape, m, target: embed_mlp_tree(shape, m, hidden, activation, target, gated=gated),
        blocks=1,
        page="docs/proofs/gated-mlp.md, Theorem D",
    )
