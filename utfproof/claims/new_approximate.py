"""Hosts that are nearly right: with attention from outside an error in the mean costs its own share of the dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion, Scope
from utfproof.shapes import Shape
from utfproof.systems import Target, prefix_products

PAGE = "docs/proofs/approximate.md"


def signs(shape: Shape) -> Iterator[Target]:
    """Every target whose W_V and W_O hold +1 and -1 (and whose W_Q and W_K are 0)."""
    L, H, b, d = shape.layers, shape.heads, shape.d_in, shape.head_dim
    sizes = [(L, H, b, d), (L, H, d, b)]
    zero = np.zeros(sizes[0], dtype=object)
    for entries in product((1, -1), repeat=sum(map(prod, sizes))):
        drawn = exact(np.array(entries))
        W_V, W_O = (part.reshape(size) for part, size in zip(np.split(drawn, 2), sizes, strict=True))
        yield Target(shape, zero, zero, W_V, W_O)


@claim(
    "new:approximate/outputs",
    place=PAGE,
    statement="With attention from outside and E free, whatever E a host of m dimensions has for each target, its mean square error over targets with independent entries is at least 1 − m/(d_in H^L) of the whole; an untied {0,1} host has equality for every m up to d_in H^L.",
    about=Scope.of(Notion.SHARED_ATTENTION, "almost all untied", free="E"),
    scope="d_in = d_out, every H, L, d; entries of mean 0 and equal variance; so an error ε in outputs needs m ≥ (1 − ε²)d_in H^L",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC, Evidence.WRITTEN),
    sentence="Products of different words are uncorrelated, so no m-dimensional space of rows holds more than m of the second moments.",
)
def outputs(run: Run) -> Iterator[Instance | Figure]:
    """Second moments over all targets of signs, and the error of the hosts that keep some of the words."""
    for entry in ((2, 1, 1, 1), (2, 2, 1, 1), (3, 1, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (1, 3, 1, 1)):
        shape = Shape(*entry)
        K, tables = shape.d_in * shape.leaves, []
        for target in signs(shape):
            tables.append(prefix_products(target, shape.layers).transpose(1, 0, 2).reshape(shape.d_in, K))
        moments = sum(table.T @ table for table in tables)
        each = shape.d_in * shape.head_dim**shape.layers * shape.d_in ** (shape.layers - 1) * len(tables)
        found = agree({"enumerated": moments.tolist(), "v I": (each * np.eye(K, dtype=int)).tolist()})
        for words in range(shape.leaves):
            kept = np.diag([c < words * shape.d_in for c in range(K)]).astype(int).astype(object)
            missed = sum(((table - table @ kept) ** 2).sum() for table in tables)
            share = Fraction(int(missed), int(np.trace(moments)))
            m = words * shape.d_in
            yield Instance(shape, share == 1 - Fraction(m, K), f"error {share}", routes=found.routes, m=m)
    yield Figure("dimensions for an error of 1/2 at (2,4,30,30)", Shape(2, 4, 30, 30).leaves * 30 * 3 // 4)
