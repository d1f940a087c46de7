"""`mlp-D-K`: one host with gated MLPs for all targets with MLPs and biases of stream width up to D and MLP width up to K
(docs/proofs/gated-mlp.md, Theorem C).

Three blocks for each layer of the target: attention moves v to o, and the MLP adds o W_O to the stream y and reads the MLP's
two factors from both; the second block multiplies g(first factor) by the second; the third one adds the result times W_out to
y and reads the next layer's q, k, v. Biases are constants of E, added where y is read. The host's coordinates hold y without
its biases.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from utfproof.constructions.multiplying import Places, Product, copied, multiplier, selected, times
from utfproof.constructions.record import CONSTANT, Construction, Domain
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import AugmentedTarget, Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MULTIPLYING
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion

FAMILY = (
    "mlp-D-K serves targets with MLPs: stream width up to D, MLP width up to K, SwiGLU (others: mlp-D-K-gelu); "
    "mlp-tree-K those of any stream width"
)
_NAME = re.compile(rf"mlp-([1-9][0-9]{{0,5}})-(0|[1-9][0-9]{{0,5}})(?:-({'|'.join(MULTIPLYING)}))?")


@lru_cache(maxsize=8)
def _places(shape: Shape, width: int, hidden: int) -> Places:
    """Coordinates: "y" [D], "out" [d_out]; of each layer "q", "k", "v", "o" [H d], "gate", "in", "hidden" [K], constants."""
    at, heads, L = Places(), shape.heads * shape.head_dim, shape.layers
    at("y", width)
    at("out", shape.d_out)
    for layer in range(L):
        for name in "qkvo":
            at((name, layer), heads)
        for name in ("gate", "in", "hidden"):
            at((name, layer), hidden)
        following = 3 * heads if layer + 1 < L else shape.d_out
        sizes = {
            "O": (heads, width),
            "out": (hidden, width),
            "next": (width, following),
            "out next": (hidden, following),
        }
        sizes |= {
            "y gate": (width, hidden),
            "o gate": (heads, hidden),
            "y in": (width, hidden),
            "o in": (heads, hidden),
        }
        for name, size in sizes.items():
            at(("constant", name, layer), *size)
    return at


def _following(at: Places, shape: Shape, layer: int) -> np.ndarray:
    """What the third block of a layer writes: q, k, v of the next layer, or the output."""
    if layer + 1 == shape.layers:
        return at("out")
    return np.concatenate([at((name, layer + 1)) for name in "qkv"])


def gated_model_host(
    shape: Shape, width: int, hidden: int, activation: str = "silu", m: int | None = None, construction: str = ""
) -> Universal:
    """The host of 3 L blocks for targets of stream width and MLP width up to these, with that activation; `shape` is the
    targets' (with their residual stream). ResourceLimit where its MLPs do not fit in memory."""
    at, H, d, nothing = _places(shape, width, hidden), shape.heads, shape.head_dim, np.zeros(0, dtype=np.int64)
    m, blocks = at.size if m is None else m, list[list[Product]]()
    for layer in range(shape.layers):
        o, y = at(("o", layer)), at("y")
        constants = {name: at(("constant", name, layer)) for name in ("O", "out", "next", "out next")}
        first = [times(o, constants["O"], y)]
        for name in ("gate", "in"):
            first += [
                times(x, at(("constant", f"{n} {name}", layer)), at((name, layer))) for n, x in (("y", y), ("o", o))
            ]
        third = [times(at(("hidden", layer)), constants["out"], y)]
        third.append(times(y, constants["next"], _following(at, shape, layer)))
        third.append(times(at(("hidden", layer)), constants["out next"], _following(at, shape, layer)))
        gate, factor, hidden_units = (at((name, layer)) for name in ("gate", "in", "hidden"))
        blocks += [first, [Product(gate, factor, hidden_units, gated=True)], third]
    mlp = multiplier(blocks, m, activation, tied=False)

    def read(name: str, block: int, head: int) -> np.ndarray:
        return at((name, block // 3)).reshape(H, d)[head] if block % 3 == 0 else nothing

    grid = [[(block, head) for head in range(H)] for block in range(3 * shape.layers)]
    readers = [[tuple(selected(m, read(name, *place), d) for place in row) for row in grid] for name in "qk"]
    values = [tuple(copied(m, read("v", *place), read("o", *place)) for place in row) for row in grid]
    blocked = Shape(H, 3 * shape.layers, d, shape.d_in, shape.d_out)
    U = selected(m, at("out"), shape.d_out)
    return Universal(blocked, m, readers[0], readers[1], values, U, construction, mlp=mlp)


def served_target(
    shape: Shape, width: int | None, hidden: int, activation: str, target: BiasedTarget | Target
) -> BiasedTarget:
    """The target with its biases apart. OutsideClass unless it has this shape, at most this width (None: any) and these hidden
    units, and this activation."""
    if isinstance(target, AugmentedTarget):
        raise OutsideClass("give this host the target with its biases, not with biases absorbed")
    if isinstance(target, Target):
        target = BiasedTarget.plain(target)
    mlp, D = target.mlp, target.width
    K = 0 if mlp is None else mlp.width
    if target.shape != shape or D > (width or D) or hidden < K:
        raise OutsideClass(
            f"this host serves {shape}, widths {width or 'of any size'} and {hidden}; the target has {target.shape}, "
            f"{D} and {K}"
        )
    if mlp is not None and mlp.activation != activation:
        raise OutsideClass(f"this host has the activation {activation}, the target {mlp.activation}")
    return target


def embed_gated_model(
    shape: Shape, m: int, width: int, hidden: int, activation: str, target: BiasedTarget | Target
) -> Array:
    """E [d_in, m], float64, for a target of this shape with or without MLPs and biases, on inputs with X c = 1 for the
    target's c. OutsideClass where the target is wider than the host, or has another activation."""
    target = served_target(shape, width, hidden, activation, target)
    mlp, D, heads = target.mlp, target.width, range(shape.heads)
    K = 0 if mlp is None else mlp.width
    at, E, c = _places(shape, width, hidden), np.zeros((shape.d_in, m)), target.constant_vector()

    def hold(name: Any, values: Array) -> None:
        """The same values in each row of the host's input, zeros beyond them."""
        place = at(name)[tuple(slice(size) for size in values.shape)]
        E[:, place.reshape(-1)] = np.multiply.outer(c, values.reshape(-1))

    def readers(layer: int) -> tuple[Array, Array]:
        """What is read after a layer: [D, 3 H d] and its biases, or W_U and b_U."""
        if layer == shape.layers:
            return target.without_biases().unembedding(), target.bias("b_U")
        columns = [w[layer][h] for w in (target.W_Q, target.W_K, target.W_V) for h in heads]
        return np.hstack(columns), np.concatenate([target.bias(f"b_{x}")[layer].reshape(-1) for x in "QKV"])

    stream, lacking = target.without_biases().embedding(), target.bias("b_E")
    E[:, at("y")[:D]] = stream
    matrix, bias = readers(0)
    E[:, np.concatenate([at((name, 0)) for name in "qkv"])] = stream @ matrix + np.multiply.outer(
        c, bias + lacking @ matrix
    )
    for layer in range(shape.layers):
        W_O = np.concatenate([target.W_O[layer][h] for h in heads])
        hold(("constant", "O", layer), W_O)
        lacking = lacking + target.bias("b_O")[layer]
        if mlp is not None:
            names = {"gate": "in" if mlp.W_gate is None else "gate"} | ({} if mlp.W_gate is None else {"in": "in"})
            for factor, name in names.items():
                W = mlp.part(f"W_{name}", layer)
                hold(("constant", f"y {factor}", layer), W)
                hold(("constant", f"o {factor}", layer), W_O @ W)
                hold((factor, layer), mlp.part(f"b_{name}", layer) + lacking @ W)
            if mlp.W_gate is None:
                hold(("in", layer), np.ones(K))
            lacking = lacking + mlp.part("b_out", layer)
        matrix, bias = readers(layer + 1)
        hold(("constant", "next", layer), matrix)
        if mlp is not None:
            hold(("constant", "out", layer), mlp.part("W_out", layer))
            hold(("constant", "out next", layer), mlp.part("W_out", layer) @ matrix)
        E[:, _following(at, shape, layer)] += np.multiply.outer(c, bias + lacking @ matrix)
    return E


def model_host(
    name: str,
    serves: str,
    least_m: Callable[[Shape], int],
    index_map: Callable[[Shape, int], Universal],
    embed: Callable[[Shape, int, Target], Array],
    *,
    blocks: int,
    page: str,
) -> Construction:
    """The record of a host for targets with MLPs, with so many blocks for each of the target's layers."""
    return Construction(
        name,
        f"{serves}; inputs with X c = 1",
        False,
        Notion.FUNCTIONAL,
        least_m,
        index_map,
        Domain("every shape with a residual stream", stream=True),
        streams=True,
        embed=lambda shape, m, target: (embed(shape, m, target), None),
        memory=lambda shape, m: 0,  # the host asks for it
        inputs=CONSTANT,
        models=lambda s: Shape(s.heads, s.layers // blocks, s.head_dim, s.d_in, s.d_out, residual=True),
        page=page,
    )


@lru_cache(maxsize=64)
def family(name: str) -> Construction | None:
    """The host of a name mlp-D-K or mlp-D-K-ACTIVATION; None for other names."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    width, hidden, activation = int(found[1]), int(found[2]), found[3] or "silu"
    return model_host(
        name,
        f"gated MLPs: targets with MLPs and biases, widths up to {width} and {hidden}",
        lambda shape: _places(shape, width, hidden).size,
        lambda shape, m: gated_model_host(shape, width, hidden, activation, m, name),
        lambda shape, m, target: embed_gated_model(shape, m, width, hidden, activation, target),
        blocks=3,
        page="docs/proofs/gated-mlp.md, Theorem C",
    )
