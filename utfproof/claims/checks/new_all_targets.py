"""Numbers, and all targets: the least m of d = d_in = 1 is the same as for almost all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.bounds import attention_matching_bound, below
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.frontiers.interval import interval
from utfproof.frontiers.product_host import defined, dimension, embed, product_host, reader_matrices, solve_products
from utfproof.frontiers.questions import Question
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape
from utfproof.systems import Target


def target_of(shape: Shape, z: np.ndarray, values: np.ndarray) -> Target:
    """The target whose forms are the products of the readers at z [L, H] (at H = 1 [1, L], and values that square to 1), and
    whose values are these [L, H]."""
    q, k = reader_matrices(z.shape[1])
    forms = ((z @ q.T) * (z @ k.T)).reshape(shape.layers, shape.heads)
    W_Q, W_K, W_V = (np.zeros((shape.layers, shape.heads, 1, shape.head_dim), dtype=object) for _ in range(3))
    W_Q[..., 0, 0], W_K[..., 0, 0], W_V[..., 0, 0] = forms, 1, values
    return Target(shape, W_Q, W_K, W_V, W_K.swapaxes(-1, -2))


@check("new:all-targets/products")
def products(run: Run) -> Iterator[Instance | Figure]:
    """Outputs in exact numbers at targets made from their z, the bound below, and products solved for at drawn values."""
    kernel, source = RationalAttention(), np.random.default_rng(7)
    for shape in run.shapes(defined, anchors=[(2, 1, 1, 1), (3, 1, 1, 1), (2, 2, 1, 1), (1, 2, 1, 1)], largest=80):
        host, one = product_host(shape), shape.heads == 1
        z = exact(source.integers(-3, 4, (1, shape.layers) if one else (shape.layers, shape.heads)))
        values = exact(source.integers(-2, 3, (shape.layers, shape.heads)))
        target = target_of(shape, z, values * 0 + 1 if one else values)
        given = iter(z)
        E, x = embed(target, lambda wanted, given=given: next(given)), exact(source.integers(-2, 3, (4, 1)))  # type: ignore[misc]
        same = agree(
            {
                "arrays": bool((host.forward(x, E, kernel) == target.forward(x, kernel)).all()),
                "plain numbers": plain.forward(host, plain.rows(x), E) == plain.forward(target, plain.rows(x)),
            }
        )
        holds = same.value and host.m == dimension(shape)
        yield Instance(shape, holds, "outputs agree", routes=same.routes, m=host.m)
        if shape.head_dim == 1:
            yield below(shape, host.m - 1, Notion.ATTENTION_MATCHING, holds=attention_matching_bound(shape) <= host.m)
    for count in (2, 3, 4, 5):
        q, k = reader_matrices(count)
        wanted = [*source.standard_normal((20, count)), *source.integers(-1, 2, (20, count)).astype(float)]
        missed = max(np.abs((q @ z) * (k @ z) - w).max() for w in wanted for z in [solve_products(w)])
        yield Instance(
            f"{count} products", bool(missed < 1e-6), "40 drawn values are taken", routes=("solved in floats",)
        )
    for entry in ((2, 2, 1, 1), (3, 3, 1, 1)):
        known = interval(Shape(*entry), Question(Notion.FUNCTIONAL))
        yield Figure(f"least m for all targets at {entry}", known.lower if known.closed else str(known))
