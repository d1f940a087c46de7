"""Hosts with gated MLPs: linear in the depth, and independent of it for tied targets, on inputs with a constant coordinate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import ExactKernel, figures
from utfproof.claims.small_models import array
from utfproof.constructions.gated import embed_gated, gated_dimension, gated_host
from utfproof.constructions.random import integer_target
from utfproof.shapes import Shape
from utfproof.systems import Universal


def forward(host: Universal, x: plain.Rows, E: Any, attention: plain.Attention) -> plain.Rows:
    """The host's outputs from the page's definition, with ReLU gates: y <- y + sum_h A^h y R_V^h, y <- y + (g(yG) * yN) O."""
    gate, inner, outer = (plain.rows(getattr(host.mlp, name)) for name in ("W_gate", "W_in", "W_out"))
    state = plain.multiply(x, plain.rows(E))
    for layer in range(host.shape.layers):
        after = state
        for head in range(host.shape.heads):
            query, key, value = plain.maps(host, layer, head)
            pattern = attention(plain.multiply(state, query), plain.multiply(state, key), layer + 1, head)
            after = plain.add(after, plain.multiply(plain.multiply(pattern, state), value))
        gates, factors = plain.multiply(after, gate), plain.multiply(after, inner)
        hidden = [[max(g, 0) * v for g, v in zip(*pair, strict=True)] for pair in zip(gates, factors, strict=True)]
        state = plain.add(after, plain.multiply(hidden, outer))
    return plain.multiply(state, plain.rows(host.U))


def residues(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
    """Logits modulo 5, plus 1: no zeros, and rows with any sum."""
    return [[v % 5 + 1 for v in row] for row in plain.multiply(queries, plain.transpose(keys))]


def _gated(run: Run, formula: Callable[[Shape], int], *, tied: bool) -> Iterator[Instance]:
    """Exact outputs for attention by logits, rows with any sum, at inputs whose rows sum to 1; at rows that sum to 2 some
    target is missed."""
    for shape in run.shapes(
        anchors=[(1, 1, 1, 1), (2, 2, 1, 2), (2, 3, 1, 1), (2, 4, 1, 2), (1, 2, 2, 2), (2, 2, 2, 3)], largest=20
    ):
        m = gated_dimension(shape, tied=tied)
        host = gated_host(shape, m, tied=tied, activation="relu")
        x = [[3 * i - 2 * j for j in range(1, shape.d_in)] for i in range(3)]
        x = [[1 - sum(row), *row] for row in x]
        own = slow = True
        missed = False
        for seed in range(4):
            target = integer_target(shape, seed, tied=tied)
            E, _ = embed_gated(shape, m, target, tied=tied)
            truth = plain.forward(target, x, None, residues)
            own &= plain.rows(host.forward(array(x), E, ExactKernel(residues))) == truth
            slow &= forward(host, x, E, residues) == truth
            twice = [[[2 * v for v in row] for row in rows] for rows in (x, truth)]
            missed |= forward(host, twice[0], E, residues) != twice[1]
        found = agree({"package": own, "plain integers": slow})
        holds = found.value and missed and m == formula(shape)
        yield Instance(shape, holds, "equal outputs", routes=found.routes, m=m)


def _constants(shape: Shape) -> int:
    """Coordinates beside the slots: H d d_in + 4 H d + d_in + 1."""
    width = shape.heads * shape.head_dim
    return width * shape.d_in + 4 * width + shape.d_in + 1


@check("new:gated/untied")
def untied(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs; the dimension by the formula."""

    def dimension(shape: Shape) -> int:
        H, L, d = shape.heads, shape.layers, shape.head_dim
        layers = 3 * H**2 * d**2 + (H * d**2 * (3 * H - 2) + H * d - 1) * (L - 2) if L > 1 else 0
        return layers + _constants(shape)

    yield from _gated(run, dimension, tied=False)
    yield from figures("m", dimension, ((2, 20, 1, 2), (2, 4, 30, 30)))


@check("new:gated/tied")
def tied(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs for tied targets; the dimension by the formula."""

    def dimension(shape: Shape) -> int:
        return 3 * (shape.heads * shape.head_dim) ** 2 + _constants(shape)

    yield from _gated(run, dimension, tied=True)
    yield from figures("m", dimension, ((2, 1, 1, 2), (2, 300, 1, 2)))
