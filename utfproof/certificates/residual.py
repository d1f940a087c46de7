"""What residual streams change in certificates: the columns of R_all of `sparse` and `tied`, and the targets that are missed.

Words have H + 1 letters, 0 for the stream itself (shapes.py). R_all of `sparse` is unimodular and not a permutation: kind
rank-triangular. A tied host cannot tell (0, h) from (h, 0); for tied targets, which cannot either, `tied` is looked at in
words without the letter 0: kind rank-permutation. See docs/certificate-format.md sections 5 and 7.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.format import Certificate, certificate, integer_array
from utfproof.constructions import Construction, build_host
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all, refuting_column
from utfproof.shapes import Column, Shape, column_at, column_index, head_words, matching_dimension


def refuted_column(shape: Shape, z: dict[int, int]) -> int:
    """`refuting_column` of a vector given by its nonzero entries."""
    dense = [0] * matching_dimension(shape)
    for i, v in z.items():
        dense[i] = v
    return refuting_column(shape, dense)


def missed_distance(shape: Shape, column: int, z: dict[int, int]) -> Fraction:
    """|W_all z|^2 / |z|^2 for the `isolating_target` of a column that `refuting_column` chooses for z: z_c^2 / |z|^2, but that
    the target of the word (0, ..., 0), whose W_all has W_E W_U there, shows the other entries of z in that block too."""
    kind, word, coordinate = column_at(shape, column)
    missed = [z[column]]
    if shape.residual and kind == "OV" and not any(word):
        first, square = column - coordinate, shape.d_in == shape.d_out
        others = (j for j in range(min(shape.d_in, shape.d_out)) if (j != coordinate if square else j > 0))
        missed += [z.get(first + j, 0) for j in others]
    return Fraction(sum(v * v for v in missed), sum(v * v for v in z.values()))


def tied_stream_relation(shape: Shape) -> dict[int, int]:
    """z with R_all z = 0 for every tied host with a residual stream, L >= 2: the first columns of the words (0, ..., 0, 1) and
    (1, 0, ..., 0) are equal. The target routed along the first, and that alone, is missed. NotDefined elsewhere."""
    if not shape.residual or shape.layers < 2:
        raise NotDefined(f"tied hosts lose words with a residual stream and L >= 2, got {shape}")
    zeros = (0,) * (shape.layers - 1)
    first, second = (column_index(shape, Column("OV", word, 0)) for word in ((*zeros, 1), (1, *zeros)))
    return {first: 1, second: -1}


def streaming_certificate(
    entry: Construction, shape: Shape, m: int, host: dict[str, Any], max_memory: int | None
) -> Certificate:
    """`sparse` for all untied targets or `tied` for all tied ones, with a residual stream. MalformedInput for others,
    ResourceLimit before allocating."""
    if entry.solve is None or not shape.residual:
        raise MalformedInput(
            f"certificates of this kind are for sparse and tied with a residual stream, got {entry.name}"
        )
    matrix = r_all(build_host(entry.name, shape, m, max_memory=max_memory))
    assert isinstance(matrix, SelectionMatrix)
    rows = _reduced_rows(shape, matrix) if entry.tied else _pivots(matrix)
    array, sidecars = integer_array(rows)
    return certificate(
        "rank-permutation" if entry.tied else "rank-triangular",
        shape,
        m,
        host,
        {"rows": array},
        rank=len(rows),
        sidecars=sidecars,
        targets="all untied" if entry.serves_untied(shape) else "all tied",
    )


def _pivots(matrix: SelectionMatrix) -> np.ndarray:
    """For each column the row in which it is the last column with a 1: so the chosen rows are triangular."""
    ones, columns = matrix.coordinates()
    last = np.full(matrix.shape[0], -1, dtype=np.int64)
    np.maximum.at(last, ones, columns)
    own = last[ones] == columns
    pivots = np.full(matrix.shape[1], -1, dtype=np.int64)
    pivots[columns[own]] = ones[own]
    assert int(own.sum()) == matrix.shape[1]
    assert bool((pivots >= 0).all())
    return pivots


def reduced_columns(shape: Shape) -> list[int]:
    """The columns of R_all that can differ for tied hosts with a residual stream, in the order of the certificate format:
    those of words without the letter 0, for outputs of 0 ... L letters (followed by zeros in R_all)."""
    places = []
    for kind in ("Q", "K"):
        for length in range(1, shape.layers + 1):
            for word in head_words(shape.heads, length):
                letters = tuple(h + 1 for h in word)
                places += [column_index(shape, Column(kind, letters, j)) for j in range(shape.head_dim)]
    for length in range(shape.layers + 1):
        for word in head_words(shape.heads, length):
            letters = tuple(h + 1 for h in word) + (0,) * (shape.layers - length)
            places += [column_index(shape, Column("OV", letters, j)) for j in range(shape.d_out)]
    return places


def _reduced_rows(shape: Shape, matrix: SelectionMatrix) -> np.ndarray:
    """The row of the one 1 in each of the reduced columns."""
    ones, columns = matrix.coordinates()
    count = np.bincount(columns, minlength=matrix.shape[1])
    row = np.zeros(matrix.shape[1], dtype=np.int64)
    row[columns] = ones
    places = np.array(reduced_columns(shape))
    assert bool((count[places] == 1).all())
    assert len(set(row[places].tolist())) == len(places)
    return np.asarray(row[places])
