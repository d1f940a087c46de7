"""Exact kernel vectors of R_all, and what they refute.

Elimination modulo a prime names a set of dependent columns of R_all, as few as it finds. These columns are computed exactly
from the host's own matrices, and the integers z with R_all z = 0 by p-adic lifting. With a residual stream letter 0 takes
columns over as they are, and letter h + 1 is head h.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from utfproof.certificates.format import INLINE_LIMIT
from utfproof.certificates.hosts import DenseSource
from utfproof.errors import ResourceLimit
from utfproof.exact import lifting
from utfproof.exact.rational import primitive
from utfproof.shapes import Column, Shape, Word, column_at, matching_dimension
from utfproof.util.selection import SelectionMatrix

ATTEMPTS = 3
"""How many sets of dependent columns of one prime are tried, cheapest first."""
Vector = dict[int, int]
"""The nonzero entries of an integer vector [M], by position."""


def find_relation(source: DenseSource, matrix: Any, p: int) -> Vector | None:
    """A primitive z with R_all z = 0 from R_all modulo p [m, M]; None if none was found: the rank modulo p is M, or p misled.

    Raises ResourceLimit, with the figures, where there is one but its integers are too many, too long or too costly.
    """
    columns = [column_at(source.shape, c) for c in range(matching_dimension(source.shape))]
    # a column costs the matrices that are multiplied for it: so many times longer are its integers
    weights = np.array([len(_route(c)) + 1 for c in columns])
    refused: ResourceLimit | None = None
    for chosen in islice(lifting.circuits(matrix, p, weights), ATTEMPTS):
        try:
            if len(chosen) > INLINE_LIMIT:
                raise ResourceLimit(
                    f"{source} has a kernel vector of {len(chosen)} entries, a certificate holds at most {INLINE_LIMIT}"
                )
            block, units = exact_columns(source, [columns[c] for c in chosen])
            y = lifting.relation(block, str(source), next(lifting.primes_below(p)))
        except ResourceLimit as error:
            refused = refused or error
            continue
        if y is not None:
            z = primitive([value / unit for value, unit in zip(y, units, strict=True)])
            return {c: value for c, value in zip(chosen, z, strict=True) if value}
    if refused is not None:
        raise refused
    return None


def exact_columns(source: DenseSource, wanted: list[Column]) -> tuple[Any, list[Fraction]]:
    """These columns of R_all: an fmpz_mat [m, columns], and for each column the unit that its integers count."""
    from flint import fmpz_mat

    shape, first = source.shape, int(source.shape.residual)  # the letter of head 0
    columns: list[list[Any]] = [[] for _ in wanted]
    units = [Fraction(1)] * len(wanted)

    def read(tensor: str, layer: int, head: int, places: list[int]) -> None:
        if not places:
            return
        matrix, unit = source.exact(tensor, layer, head)
        for place in places:
            columns[place] = [matrix[i, wanted[place].coordinate] for i in range(source.m)]
            units[place] = unit

    read("U", 0, 0, [i for i, c in enumerate(wanted) if c.kind == "OV"])
    for layer in reversed(range(shape.layers)):
        for head in range(shape.heads):
            moved = [i for i, c in enumerate(wanted) if _route(c)[layer : layer + 1] == (head + first,)]
            for tensor in reversed(source.values) if moved else ():
                matrix, unit = source.exact(tensor, layer, head)
                right = fmpz_mat(len(moved), matrix.ncols(), [x for i in moved for x in columns[i]]).transpose()
                product = (matrix * right).transpose().entries()
                for number, i in enumerate(moved):
                    columns[i] = product[number * matrix.nrows() : (number + 1) * matrix.nrows()]
                    units[i] *= unit
            for kind in ("Q", "K"):
                ending = [i for i, c in enumerate(wanted) if (c.kind, c.word[layer:]) == (kind, (head + first,))]
                read(f"R_{kind}", layer, head, ending)
    return fmpz_mat(len(wanted), source.m, [x for column in columns for x in column]).transpose(), units


def _route(column: Column) -> Word:
    """The letters whose values act on the column: all but a reader's own."""
    return column.word if column.kind == "OV" else column.word[:-1]


def equal_columns(matrix: SelectionMatrix) -> Vector | None:
    """A kernel vector that two equal columns, or one zero column, of a {0,1} matrix give at once; None where it has none."""
    rows, columns = matrix.coordinates()
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(columns, np.arange(matrix.shape[1] + 1))
    seen: dict[bytes, int] = {}
    for column in range(matrix.shape[1]):
        content = rows[starts[column] : starts[column + 1]].tobytes()
        if not content:
            return {column: 1}
        if content in seen:
            return {seen[content]: 1, column: -1}
        seen[content] = column
    return None


# --- the target that z refutes -------------------------------------------------------------------------------


def refuted_column(shape: Shape, z: Vector) -> int:
    """The column whose `isolating_target` the host misses, for R_all z = 0: that of z's largest entry (the best distance).

    With a residual stream the target of a word also has entries at the words that arise when letters become 0: outputs come
    before queries and keys, fewer letters before more, so that z vanishes at all of these.
    """
    if not shape.residual:
        return max(z, key=lambda c: (abs(z[c]), -c))

    def rank(index: int) -> tuple[bool, int, int]:
        column = column_at(shape, index)
        return column.kind != "OV", sum(letter > 0 for letter in column.word), index

    return min(z, key=rank)


def missed_distance(shape: Shape, column: int, z: Vector) -> Fraction:
    """The squared distance that every E keeps from the `isolating_target` of a column that `refuted_column` chooses for z:
    |W_all z|^2 / |z|^2. That is z_c^2 / |z|^2, but that with a residual stream the target of the word (0, ..., 0), whose W_all
    has W_E W_U there, shows the other entries of z in that block too."""
    kind, word, coordinate = column_at(shape, column)
    missed = [z[column]]
    if shape.residual and kind == "OV" and not any(word):
        first, square = column - coordinate, shape.d_in == shape.d_out
        others = (j for j in range(min(shape.d_in, shape.d_out)) if (j != coordinate if square else j > 0))
        missed += [z.get(first + j, 0) for j in others]
    return Fraction(sum(v * v for v in missed), sum(v * v for v in z.values()))
