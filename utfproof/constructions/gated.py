"""Hosts with gated MLPs: m grows linearly with L, on inputs with a constant coordinate (docs/proofs/gated-mlp.md, Theorem B).

The same block in every layer keeps q, k, v, o of each head, the output, a coordinate that is 1, and constants: the target's
W_O^{l,h} W_{Q,K,V}^{l+1,h'} in a shift register of L - 1 slots (`gated`; one slot that stays for tied targets, `gated-tied`),
and W_O^{L,h} W_U. Attention copies v to o; the MLP multiplies o with the first slot, which gives the next q, k, v.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from utfproof.constructions.multiplying import Places, Product, copied, multiplier, scaled, selected, times
from utfproof.constructions.record import CONSTANT, Construction
from utfproof.errors import OutsideClass
from utfproof.ground.arrays import Array, namespace, zeros
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape
from utfproof.systems import AugmentedTarget, Target, TiedUniversal

READERS = "QKV"


def gated_dimension(shape: Shape, *, tied: bool = False) -> int:
    """3 (H d)^2 (L - 1) + H d d_out + 4 H d + d_out + 1; with 1 in place of L - 1 for tied targets."""
    width, slots = shape.heads * shape.head_dim, 1 if tied else shape.layers - 1
    return 3 * width**2 * slots + width * shape.d_out + 4 * width + shape.d_out + 1


@lru_cache(maxsize=8)
def _places(shape: Shape, *, tied: bool) -> Places:
    """Coordinates: "one"; "Q", "K", "V", "O" [H d]; "out", "last" [H d, d_out]; (slot, reader) [H d, H d] by head."""
    at, width = Places(), shape.heads * shape.head_dim
    for name, sizes in (("one", (1,)), *((x, (width,)) for x in "QKVO"), ("out", (shape.d_out,))):
        at(name, *sizes)
    at("last", width, shape.d_out)
    for slot in range(1 if tied else shape.layers - 1):
        for reader in READERS:
            at((slot, reader), width, width)
    return at


def _products(at: Places, slots: int, *, tied: bool) -> list[Product]:
    """What the MLP of every block adds."""
    one, moved, products = at("one"), at("O"), [times(at("O"), at("last"), at("out"))]
    if slots:
        products += [times(moved, at((0, reader)), at(reader)) for reader in READERS]
    shifted = [(slot, reader) for slot in range(0 if tied else slots) for reader in READERS]
    products += [scaled(at((slot + 1, x)), one, at((slot, x))) for slot, x in shifted if slot + 1 < slots]
    replaced = [*READERS, "O", "out", *shifted]
    return [*products, *(scaled(at(name), one, at(name), -1) for name in replaced)]


def gated_host(shape: Shape, m: int, *, tied: bool = False, activation: str = "silu") -> TiedUniversal:
    """`gated` or `gated-tied`: R_V^h copies v^h to o^h, the MLP multiplies. ResourceLimit where it does not fit."""
    at, H, d = _places(shape, tied=tied), shape.heads, shape.head_dim
    slots = 1 if tied else shape.layers - 1
    by_head = {name: at(name).reshape(H, d) for name in "QKVO"}
    return TiedUniversal(
        shape,
        m,
        tuple(selected(m, by_head["Q"][h], d) for h in range(H)),
        tuple(selected(m, by_head["K"][h], d) for h in range(H)),
        tuple(copied(m, by_head["V"][h], by_head["O"][h]) for h in range(H)),
        selected(m, at("out"), shape.d_out),
        "gated-tied" if tied else "gated",
        mlp=multiplier([_products(at, slots, tied=tied)], m, activation, tied=True),
    )


def embed_gated(
    shape: Shape, m: int, target: Target, *, tied: bool = False, constant: Array | None = None
) -> tuple[Array, None]:
    """E [d_in, m], in the target's arithmetic: W_E W_{Q,K,V}^1, and c times each constant. constant: c [d_in] with X c = 1,
    ones if None. OutsideClass for untied targets of `gated-tied`, and for targets with absorbed biases."""
    if isinstance(target, AugmentedTarget):
        raise OutsideClass("gated hosts serve targets with values of width head_dim; this one has absorbed biases")
    if tied and not target.tied and shape.layers > 1:
        raise OutsideClass(f"gated-tied at {shape} serves tied targets; this one is untied, use gated")
    at, heads = _places(shape, tied=tied), range(shape.heads)
    E = zeros(target.W_Q, shape.d_in, m)
    c = zeros(target.W_Q, shape.d_in) + 1 if constant is None else constant

    def stacked(layer: int, which: int) -> Array:
        """W_Q, W_K, W_V of all heads side by side [D, H d] (which 0, 1, 2), or W_O one below another [H d, D]."""
        parts = [target.parameters(layer, head)[which] for head in heads]
        return namespace(parts[0]).concatenate(parts, axis=0 if which == 3 else 1)

    def hold(name: Any, values: Array) -> None:
        """The same values in each row of the host's input."""
        E[:, at(name).reshape(-1)] = c[:, None] * values.reshape(1, -1)

    hold("one", c[:1] * 0 + 1)
    hold("last", stacked(shape.layers - 1, 3) @ target.unembedding())
    for which, reader in enumerate(READERS):
        E[:, at(reader)] = target.embedding() @ stacked(0, which)
        for slot in range(1 if tied else shape.layers - 1):
            hold((slot, reader), stacked(slot, 3) @ stacked(0 if tied else slot + 1, which))
    return E, None


def _record(name: str, summary: str, targets: str, *, tied: bool) -> Construction:
    return Construction(
        name,
        summary,
        True,
        Notion.FUNCTIONAL,
        partial(gated_dimension, tied=tied),
        partial(gated_host, tied=tied),
        targets=targets,
        embed=partial(embed_gated, tied=tied),
        memory=lambda shape, m: 0,  # `multiplier` asks for it
        inputs=CONSTANT,
        page="docs/proofs/gated-mlp.md, Theorem B",
    )


GATED = _record("gated", "gated MLPs: m grows with L, not with H^L; inputs with X c = 1", "all untied", tied=False)
GATED_TIED = _record(
    "gated-tied", "gated MLPs, tied targets: m does not depend on L; inputs with X c = 1", "all tied", tied=True
)
