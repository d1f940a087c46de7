"""Hosts that are nearly right, with attention from outside; and what an open set of targets asks beside almost all of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from operator import mul

import numpy as np

from utfproof.certificates.tied import kernel_basis
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided
from utfproof.claims.linear import dense, determinant_of, integer_host
from utfproof.constructions.random import integer_target
from utfproof.exact.rational import kernel_vector
from utfproof.ground.arrays import exact
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal, prefix_products


def signs(shape: Shape) -> Iterator[Target]:
    """Every target whose W_V and W_O hold +1 and -1 (and whose W_Q and W_K are 0)."""
    L, H, b, d = shape.layers, shape.heads, shape.d_in, shape.head_dim
    sizes = [(L, H, b, d), (L, H, d, b)]
    zero = np.zeros(sizes[0], dtype=object)
    for entries in product((1, -1), repeat=sum(map(prod, sizes))):
        drawn = exact(np.array(entries))
        W_V, W_O = (part.reshape(size) for part, size in zip(np.split(drawn, 2), sizes, strict=True))
        yield Target(shape, zero, zero, W_V, W_O)


@check("new:approximate/outputs")
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
        for m in range(1, K + 1):
            # E holds the first m columns of [M_w]_w, which the host's words bring to U
            reached = _first_columns(shape, m)
            missed = sum(((table - table[:, :m] @ reached) ** 2).sum() for table in tables)
            share = Fraction(int(missed), int(np.trace(moments)))
            yield Instance(shape, share == 1 - Fraction(m, K), f"error {share}", routes=found.routes, m=m)
    yield Figure("dimensions for an error of 1/2 at (2,4,30,30)", Shape(2, 4, 30, 30).leaves * 30 * 3 // 4)


def _first_columns(shape: Shape, m: int) -> np.ndarray:
    """[R_w U]_w side by side [m, K] of an untied {0,1} host of m <= K dimensions: coordinate c belongs to a word, R_V^{l,h}
    keeps
    those whose word has h at place l, and U reads c as its column of that word."""
    words, b = list(plain.words(shape.heads, shape.layers)), shape.d_in
    places = [(words[c // b], c % b) for c in range(m)]
    U = np.array([[int(j == column) for j in range(b)] for _, column in places], dtype=object)
    blocks = []
    for word in words:
        product = np.eye(m, dtype=int).astype(object)
        for layer, head in enumerate(word):
            product = product @ np.diag([int(kept[layer] == head) for kept, _ in places]).astype(object)
        blocks.append(product @ U)
    return np.hstack(blocks)


def _dot(left: list[int], right: list[int]) -> int:
    return sum(map(mul, left, right))


def _missed(host: Universal, seed: int) -> tuple[list[list[int]], int]:
    """(W_Q, W_K and M z side by side, l.l'): a target near which this host of M - 1 dimensions misses all, if at every nonzero
    solution of W_Q a + W_K a' in R M z the sign of a.a' is one that l.l' has not."""
    shape, maps = host.shape, host.maps(0, 0)
    d, out = shape.head_dim, dense(maps.value[0]) @ dense(host.U)
    tied = kernel_vector(np.hstack([dense(maps.query), dense(maps.key), -out]))
    assert tied is not None
    inner = _dot(tied[:d], tied[d : 2 * d])
    sign = -1 if inner > 0 else 1
    given, other = integer_target(shape, seed), integer_target(shape, seed + 1)
    queries, keys = given.W_Q[0, 0] * 50, other.W_K[0, 0] - sign * 50 * given.W_Q[0, 0]
    image = given.W_V[0, 0] @ given.W_O[0, 0] @ exact(np.array(tied[2 * d :]))
    return np.hstack([queries, keys, image[:, None]]).tolist(), inner


@check("new:one-layer/one-head")
def one_head(run: Run) -> Iterator[Instance | Figure]:
    """For sample hosts of M - 1 dimensions: a target on whose solutions the form is definite, with the other sign."""
    for entry in ((1, 1, 1, 2), (1, 1, 2, 3), (1, 1, 2, 4), (1, 1, 3, 4)):
        shape = Shape(*entry)
        M = matching_dimension(shape)
        yield decided("tied", shape, M)
        for seed in range(3):
            matrix, inner = _missed(integer_host(shape, M - 1, seed), seed)
            d, other, solutions = shape.head_dim, 1 if inner <= 0 else -1, kernel_basis(exact(np.array(matrix)))
            gram = [[other * (_dot(u[:d], v[d:-1]) + _dot(v[:d], u[d:-1])) for v in solutions] for u in solutions]
            minors = [determinant_of([row[:k] for row in gram[:k]]) for k in range(1, len(gram) + 1)]
            definite = all(minor.value > 0 for minor in minors)
            open_set = len(solutions) == 2 * d - shape.d_in + 1
            detail = f"host {seed} misses a target and all near it"
            yield Instance(shape, definite and open_set, detail, routes=minors[0].routes, m=M - 1)
