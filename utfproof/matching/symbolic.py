"""R_all with one symbol for every parameter, and what follows for almost every host: the argument of thm:random-R, by hand.

p = det R_all at m = M is a polynomial in the parameters. At the sparse host it is 1 or -1, so it is not zero, and almost every
host of that shape has rank M. Where p is too large to be written out, it is known on a line through the sparse host, and the
result says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.constructions import build_host
from utfproof.errors import ResourceLimit
from utfproof.exact.symbolic import (
    BlockDiagonal,
    DeterminantPolynomial,
    GenericMatrix,
    LinePolynomial,
    Multilinearity,
    Spanning,
    along_line,
    block_diagonal,
    block_sizes,
    determinant_degree,
    determinant_polynomial,
    generic_r_all,
    homogeneous_columns,
    line_polynomial,
    multilinearity,
    spanning,
)
from utfproof.ground.generator import integer_matrix
from utfproof.ground.laws import check_seed
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching.equations import r_all
from utfproof.shapes import Shape, matching_dimension, require_plain, require_words
from utfproof.systems import TiedUniversal, Universal

LARGEST = 120
"""M up to which determinants along a line are computed."""


@dataclass(frozen=True)
class Symbolic:
    """What is found at a shape; None where it is over a limit, with the reason in `limits`.

    generic: R_all in symbols, untied or tied. determinant: p in full. line: p along the line from the sparse (tied) host,
    t = 0, to an integer host drawn from `seed`, t = 1. blocks: of the sparse host's R_all. spanning: of the attention products.
    """

    shape: Shape
    tied: bool
    seed: int
    degree: int
    sizes: list[tuple[str, int, int]]
    generic: GenericMatrix | None
    multilinear: Multilinearity | None
    homogeneous: bool | None
    determinant: DeterminantPolynomial | None
    line: LinePolynomial | None
    blocks: BlockDiagonal | None
    spanning: Spanning | None
    limits: tuple[str, ...]

    @property
    def nonzero(self) -> bool | None:
        """Whether p is shown to be a nonzero polynomial; None where nothing was computed."""
        if self.line is not None:
            return self.line.degree >= 0
        return None if self.determinant is None else bool(self.determinant.polynomial)


def symbolic(shape: Shape, *, tied: bool = False, seed: int = 0, seconds: float | None = None) -> Symbolic:
    """All of it at m = M, as far as the limits allow. NotDefined with a residual stream; MalformedInput for a bad seed.
    ResourceLimit where determinants along the line take more than `seconds`."""
    require_plain(shape, "R_all in symbols")
    require_words(shape, "R_all in symbols")
    check_seed(seed)
    limits: list[str] = []
    generic = homogeneous = linear = determinant = line = blocks = words = None
    try:
        generic = generic_r_all(shape, tied=tied)
        linear, (homogeneous, _) = multilinearity(generic), homogeneous_columns(generic)
    except ResourceLimit as error:
        limits.append(f"R_all is not written out: {error}")
    try:
        determinant = determinant_polynomial(shape, tied=tied)
    except ResourceLimit as error:
        limits.append(f"p is not expanded, so its number of terms is not known: {error}")
    M = matching_dimension(shape)
    if M <= LARGEST:
        host = build_host("tied" if tied else "sparse", shape)
        blocks, line = block_diagonal(_dense(r_all(host))), _line(shape, host, tied, seed, seconds)
    else:
        limits.append(f"M = {M} is above {LARGEST}: no determinants along a line")
    try:
        words = spanning(shape.heads, shape.layers)
    except ResourceLimit as error:
        limits.append(f"the spanning argument is not carried out: {error}")
    return Symbolic(
        shape,
        tied,
        seed,
        determinant_degree(shape),
        block_sizes(shape),
        generic,
        linear,
        homogeneous,
        determinant,
        line,
        blocks,
        words,
        tuple(limits),
    )


def _dense(matrix: object) -> np.ndarray:
    return matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix)


def _line(shape: Shape, host: Universal, tied: bool, seed: int, seconds: float | None) -> LinePolynomial:
    """p from the sparse host towards a host with integers in -2 ... 2."""
    M, kind = matching_dimension(shape), TiedUniversal if tied else Universal
    layers, heads = range(1 if tied else shape.layers), range(shape.heads)

    def grid(part: str) -> np.ndarray:
        maps = [[host.maps(layer, head) for head in heads] for layer in layers]
        drawn = [[_dense(found.value[0] if part == "value" else getattr(found, part)) for found in row] for row in maps]
        return np.array(drawn[0] if tied else drawn, dtype=object)

    def integers(tensor: str, columns: int) -> np.ndarray:
        drawn = [
            [integer_matrix(seed, tensor, M, columns, law="binomial", layer=layer, head=head) % 5 - 2 for head in heads]
            for layer in layers
        ]
        return np.array(drawn[0] if tied else drawn, dtype=object)

    start = (grid("query"), grid("key"), grid("value"), _dense(host.U))
    unembedding = integer_matrix(seed, "U", M, shape.d_out, law="binomial") % 5 - 2
    end = (integers("R_Q", shape.head_dim), integers("R_K", shape.head_dim), integers("R_V", M), unembedding)
    direction = tuple(
        np.asarray(b, dtype=object) - np.asarray(a, dtype=object) for a, b in zip(start, end, strict=True)
    )
    line = along_line(lambda *parts: _dense(r_all(kind(shape, M, *parts))).tolist(), start, direction)
    return line_polynomial(line, determinant_degree(shape), seconds=seconds)
