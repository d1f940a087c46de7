"""Hosts and counts that the claims of Sections 2, 3 and Appendix A share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.certificates.sources import assemble
from utfproof.claims import plain
from utfproof.claims.claim import Instance, agree
from utfproof.ground.generator import integer_matrix
from utfproof.ground.selection import SelectionMatrix
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape
from utfproof.systems import Universal

TABLES = tuple(PAPER_TABLE_SHAPES.values())
WIDE_TABLES = tuple(shape for shape in TABLES if shape[2] >= shape[3])
"""Table shapes with d >= d_in."""


def heads(shape: Shape) -> bool:
    """H >= 2."""
    return shape.heads > 1


def one_head(shape: Shape) -> bool:
    """H = 1."""
    return shape.heads == 1


def counted(shape: Shape) -> int:
    """M by counting words one at a time."""
    reading = sum(1 for length in range(1, shape.layers + 1) for _ in plain.words(shape.heads, length))
    leaves = sum(1 for _ in plain.words(shape.heads, shape.layers))
    return 2 * shape.head_dim * reading + shape.d_in * leaves


def parameters(host: Universal) -> Iterator[tuple[str, SelectionMatrix]]:
    """Every parameter matrix of a {0,1} host with its name."""
    for layer in range(1 if host.tied else host.shape.layers):
        for head in range(host.shape.heads):
            maps = host.maps(layer, head)
            yield f"R_Q[{layer},{head}]", maps.query
            yield f"R_K[{layer},{head}]", maps.key
            for value in maps.value:
                yield f"R_V[{layer},{head}]", value
    yield "U", host.U


def is_binary(host: Universal) -> tuple[bool, tuple[str, ...]]:
    """Whether all entries are 0 or 1: by the index maps (no cell twice), and by looking at each entry."""
    maps = entries = True
    for _, matrix in parameters(host):
        rows, columns = matrix.coordinates()
        maps &= len(np.unique(rows * matrix.shape[1] + columns)) == matrix.nonzeros
        entries &= all(value in (0, 1) for row in plain.rows(matrix) for value in row)
    both = agree({"index maps": maps, "plain integers": entries})
    return both.value, both.routes


def most_nonzeros(host: Universal) -> tuple[int, tuple[str, ...]]:
    """The largest number of nonzero entries of a parameter matrix, by the index maps and by counting."""
    own = max(matrix.nonzeros for _, matrix in parameters(host))
    slow = max(sum(1 for row in plain.rows(matrix) for value in row if value) for _, matrix in parameters(host))
    both = agree({"index maps": own, "plain integers": slow})
    return both.value, both.routes


def no_matching(shape: Shape, m: int, *, holds: bool = True, part: str = "") -> Instance:
    """No host of dimension m matches all untied targets: with a certificate where m < M, undecided elsewhere."""
    from utfproof.certificates.lower_bounds import dimension_certificate

    M = counted(shape)
    if m >= M:
        return Instance(shape, None, f"m = {m} >= M = {M}", part=part, m=m)
    return Instance(shape, holds, f"m = {m} < M = {M}", dimension_certificate(shape, m), part=part, m=m)


def small_host(shape: Shape, m: int, *, tied: bool, seed: int = 0) -> Universal:
    """A host with integer weights in -2 ... 2 (object arrays) from the seeded generator."""

    def draw(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        numbers = integer_matrix(seed, tensor, m, columns, law="binomial", layer=layer, head=head)
        return np.array([[int(v) % 5 - 2 for v in row] for row in numbers], dtype=object)

    return assemble(shape, m, tied, draw)


def small_embedding(shape: Shape, m: int, seed: int = 0) -> np.ndarray:
    """E [d_in, m] with entries in -1 ... 1."""
    numbers = integer_matrix(seed, "W_E", shape.d_in, m, law="binomial")
    return np.array([[int(v) % 3 - 1 for v in row] for row in numbers], dtype=object)
