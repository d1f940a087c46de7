"""`mlp-tree-K`: one host with gated MLPs for all targets with at most K hidden units, whatever the width of their stream
(docs/proofs/gated-mlp.md, Theorem D).

Coordinates hold functionals of the target's stream y, found from the output backwards: before a layer the host needs, for each
functional c that is needed after it, what the MLP and the heads add to y c. The functionals of each stage come first among
those of the stage before.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from utfproof.constructions.gated_models import served_target
from utfproof.constructions.multiplying import copied, selected
from utfproof.constructions.record import CONSTANT, Construction, Domain
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP, MULTIPLYING
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory

_NAME = re.compile(rf"mlp-tree-([1-9][0-9]{{0,5}})(?:-({'|'.join(MULTIPLYING)}))?")


def stages(shape: Shape, hidden: int) -> list[tuple[int, int]]:
    """(functionals after a layer, functionals between its attention and its MLP) of layers 1 to L, and (m, 0) before the first
    one at the front."""
    sizes, n = list[tuple[int, int]](), shape.d_out
    for _ in range(shape.layers):
        between = n * (1 + hidden) + hidden
        sizes.append((n, between))
        n = between * (1 + shape.heads) + 2 * shape.heads * shape.head_dim
    return [(n, 0), *reversed(sizes)]


def mlp_tree_host(
    shape: Shape, hidden: int, activation: str, m: int | None = None, construction: str = ""
) -> Universal:
    """The host, entries 0 and 1. `shape` is the targets', with their residual stream. ResourceLimit before allocating."""
    (least, _), *sizes = stages(shape, hidden)
    m, H, d = least if m is None else m, shape.heads, shape.head_dim
    units = sizes[0][0] * hidden
    require_memory(4 * 8 * shape.layers * m * units, f"MLPs of {units} hidden units at m = {m}")
    gate, factor = (np.zeros((shape.layers, m, units), dtype=np.int64) for _ in range(2))
    out = np.zeros((shape.layers, units, m), dtype=np.int64)
    queries, keys, values = [], [], []
    for layer, (n, between) in enumerate(sizes):
        unit = np.arange(n * hidden)
        gate[layer, n + unit % hidden, unit] = 1
        factor[layer, n + hidden + unit, unit] = 1
        out[layer, unit, unit // hidden] = 1
        first, heads = between * (1 + H), range(H)
        queries.append(tuple(selected(m, first + np.arange(h * d, (h + 1) * d), d) for h in heads))
        keys.append(tuple(selected(m, first + np.arange((H + h) * d, (H + h + 1) * d), d) for h in heads))
        place = np.arange(between)
        values.append(tuple(copied(m, (1 + h) * between + place, place) for h in heads))
    plain = Shape(H, shape.layers, d, shape.d_in, shape.d_out)
    U = selected(m, np.arange(shape.d_out), shape.d_out)
    return Universal(plain, m, queries, keys, values, U, construction, mlp=MLP(activation, factor, out, gate))


def embed_mlp_tree(shape: Shape, m: int, hidden: int, activation: str, target: BiasedTarget | Target) -> Array:
    """E [d_in, m], float64, on inputs with X c = 1 for the target's c. OutsideClass for another shape or activation, or more
    hidden units."""
    target = served_target(shape, None, hidden, activation, target)
    F, constant = target.without_biases().unembedding(), target.bias("b_U")  # y F + constant is what coordinates hold
    for layer in reversed(range(shape.layers)):
        if target.mlp is not None:
            F, constant = _before_mlp(target.mlp, layer, hidden, F, constant)
        else:
            more = hidden * (1 + F.shape[1])
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


def _before_mlp(mlp: MLP, layer: int, hidden: int, F: Array, constant: Array) -> tuple[Array, Array]:
    """The functionals that give y F + constant after the MLP: the same, the gates, and a factor for each column and unit."""

    def units(array: Array) -> Array:
        """The last axis filled with zeros up to K."""
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, hidden - mlp.width)])

    W, b = units(mlp.part("W_in", layer)), units(mlp.part("b_in", layer))
    if mlp.W_gate is None:
        gate, shift, W, b = W, b, np.zeros_like(W), np.ones_like(b)
    else:
        gate, shift = units(mlp.part("W_gate", layer)), units(mlp.part("b_gate", layer))
    weights = units((mlp.part("W_out", layer) @ F).T)  # [columns, K]
    factors = (W[:, None] * weights).reshape(len(W), -1)
    constants = constant + mlp.part("b_out", layer) @ F, shift, (b * weights).reshape(-1)
    return np.hstack([F, gate, factors]), np.concatenate(constants)


@lru_cache(maxsize=64)
def family(name: str) -> Construction | None:
    """The host that a name mlp-tree-K or mlp-tree-K-ACTIVATION stands for; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    hidden, activation = int(found[1]), found[2] or "silu"
    return Construction(
        name,
        f"gated MLPs: targets with MLPs of up to {hidden} hidden units and biases, of any width; inputs with X c = 1",
        False,
        Notion.FUNCTIONAL,
        lambda shape: stages(shape, hidden)[0][0],
        lambda shape, m: mlp_tree_host(shape, hidden, activation, m, name),
        Domain("every shape with a residual stream", stream=True),
        streams=True,
        targets="all untied",
        embed=lambda shape, m, target: (embed_mlp_tree(shape, m, hidden, activation, target), None),
        memory=lambda shape, m: 0,  # the host asks for it
        inputs=CONSTANT,
        models=lambda shape: Shape(shape.heads, shape.layers, shape.head_dim, shape.d_in, shape.d_out, residual=True),
        page="docs/proofs/gated-mlp.md, Theorem D",
    )
