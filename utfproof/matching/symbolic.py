"""R_all with one symbol for every parameter, and what follows for almost every host: the argument of thm:random-R, by hand.

p = det R_all at m = M is a polynomial in the parameters. At the sparse host it is 1 or -1, so it is not zero, and almost every
host of that shape has rank M. p itself is too large to be written out: it is computed on a line through the sparse host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.constructions import build_host
from utfproof.errors import ResourceLimit
from utfproof.exact.symbolic.determinant import (
    LinePolynomial,
    along_line,
    determinant_degree,
    line_polynomial,
)
from utfproof.exact.symbolic.generic import GenericMatrix, Multilinearity, generic_r_all, multilinearity
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

    generic: R_all in symbols, untied or tied. line: p along the line from the sparse (tied) host, t = 0, to an integer host
    drawn from `seed`, t = 1.
    """

    shape: Shape
    tied: bool
    seed: int
    degree: int
    generic: GenericMatrix | None
    multilinear: Multilinearity | None
    line: LinePolynomial | None
    limits: tuple[str, ...]

    @property
    def nonzero(self) -> bool | None:
        """Whether p is shown to be a nonzero polynomial; None where nothing was computed."""
        return None if self.line is None else self.line.degree >= 0


def symbolic(shape: Shape, *, tied: bool = False, seed: int = 0) -> Symbolic:
    """All of it at m = M, as far as the limits allow. NotDefined with a residual stream; MalformedInput for a bad seed."""
    require_plain(shape, "R_all in symbols")
    require_words(shape, "R_all in symbols")
    check_seed(seed)
    limits: list[str] = []
    generic = linear = line = None
    try:
        generic = generic_r_all(shape, tied=tied)
        linear = multilinearity(generic)
    except ResourceLimit as error:
        limits.append(f"R_all is not written out: {error}")
    M = matching_dimension(shape)
    if M <= LARGEST:
        line = line_from(build_host("tied" if tied else "sparse", shape), seed)
    else:
        limits.append(f"M = {M} is above {LARGEST}: no determinants along a line")
    return Symbolic(shape, tied, seed, determinant_degree(shape), generic, linear, line, tuple(limits))


def _dense(matrix: object) -> np.ndarray:
    return matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix)


def line_from(host: Universal, seed: int) -> LinePolynomial:
    """p from a {0,1} host of m = M towards a host with integers in -2 ... 2, tied if this one is."""
    shape, M, tied = host.shape, host.m, host.tied
    layers, heads, kind = range(1 if tied else shape.layers), range(shape.heads), TiedUniversal if tied else Universal

    def grid(entry: Callable[[int, int], Any]) -> np.ndarray:
        rows = [[_dense(entry(layer, head)) for head in heads] for layer in layers]
        return np.array(rows[0] if tied else rows, dtype=object)

    def drawn(tensor: str, columns: int) -> Callable[[int, int], np.ndarray]:
        return lambda layer, head: (
            integer_matrix(seed, tensor, M, columns, law="binomial", layer=layer, head=head) % 5 - 2
        )

    start = (
        grid(lambda layer, head: host.maps(layer, head).query),
        grid(lambda layer, head: host.maps(layer, head).key),
        grid(lambda layer, head: host.maps(layer, head).value[0]),
        _dense(host.U),
    )
    widths = {"R_Q": shape.head_dim, "R_K": shape.head_dim, "R_V": M}
    end = (*(grid(drawn(name, width)) for name, width in widths.items()), drawn("U", shape.d_out)(0, 0))
    direction = tuple(np.asarray(b, dtype=object) - a for a, b in zip(start, end, strict=True))
    line = along_line(lambda *parts: _dense(r_all(kind(shape, M, *parts))), start, direction)
    return line_polynomial(line, determinant_degree(shape))
