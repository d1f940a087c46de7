"""Small exact linear algebra for claims: integer hosts, determinants, minors and left inverses along two routes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.claims.decisions import dense, rank_modulo
from utfproof.exact import rational
from utfproof.ground.generator import integer_matrix
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import TiedUniversal, Universal


def integer_host(shape: Shape, m: int, seed: int = 0, *, tied: bool = False, equal_readers: bool = False) -> Universal:
    """A host with integer weights in -2 ... 2 (object arrays) from the seeded generator. equal_readers: R_K is R_Q in the
    first head, so that R_all has two equal columns."""
    lead = (1 if tied else shape.layers, shape.heads)

    def grid(tensor: str, columns: int) -> np.ndarray:
        drawn = [_small(seed, tensor, m, columns, layer, head) for layer in range(lead[0]) for head in range(lead[1])]
        out = np.array(drawn, dtype=object).reshape(*lead, m, columns)
        return out[0] if tied else out

    queries, keys = grid("R_Q", shape.head_dim), grid("R_K", shape.head_dim)
    if equal_readers:
        first = 0 if tied else (0, 0)
        keys[first] = queries[first]
    kind = TiedUniversal if tied else Universal
    return kind(shape, m, queries, keys, grid("R_V", m), _small(seed, "U", m, shape.d_out, 0, 0))


def _small(seed: int, tensor: str, rows: int, columns: int, layer: int, head: int) -> np.ndarray:
    drawn = integer_matrix(seed, tensor, rows, columns, law="binomial", layer=layer, head=head)
    return np.array([int(v) % 5 - 2 for v in drawn.reshape(-1)], dtype=object).reshape(rows, columns)


def determinant_of(matrix: Any) -> Agreed:
    """Determinant of a square integer matrix: FLINT, and plain integers."""
    from flint import fmpz_mat

    from utfproof.exact.symbolic.determinant import integer_determinant

    listed = plain.rows(matrix)
    return agree({"FLINT": int(fmpz_mat(listed).det()), "plain integers": integer_determinant(listed)})


def flint_rank(matrix: Any, prime: int) -> int:
    """The rank modulo a prime by FLINT."""
    from flint import nmod_mat

    numbers = np.asarray(matrix)
    return int(nmod_mat(*numbers.shape, [int(v) % prime for v in numbers.reshape(-1).tolist()], prime).rank())


def minors(matrix: Any) -> dict[tuple[int, ...], int]:
    """Every maximal minor of a tall integer matrix [m, M] by its rows (the two routes agree on each)."""
    listed = plain.rows(matrix)
    columns = len(listed[0])
    choices = itertools.combinations(range(len(listed)), columns)
    return {chosen: determinant_of([listed[i] for i in chosen]).value for chosen in choices}


def left_inverse(matrix: Any) -> Agreed:
    """Whether X [columns, rows] with X @ matrix = I exists: FLINT solves, plain Fractions build X = (A^T A)^-1 A^T."""
    listed = plain.rows(matrix)
    identity = np.array(plain.identity(len(listed[0])), dtype=object)
    found = rational.solve_left(np.array(listed, dtype=object), identity)
    gram = plain.multiply(plain.transpose(listed), listed)
    inverse = inverted(gram)
    own = inverse is not None and plain.multiply(plain.multiply(inverse, plain.transpose(listed)), listed) == (
        plain.identity(len(gram))
    )
    return agree({"FLINT": found is not None, "plain Fractions": own})


def inverted(matrix: Sequence[Sequence[Any]]) -> plain.Rows | None:
    """The inverse of a square matrix by Gauss-Jordan elimination over the rationals; None if it is singular."""
    size = len(matrix)
    left = [[Fraction(v) for v in row] + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    for k in range(size):
        pivot = next((i for i in range(k, size) if left[i][k]), None)
        if pivot is None:
            return None
        left[k], left[pivot] = left[pivot], left[k]
        head = left[k][k]
        left[k] = [v / head for v in left[k]]
        for i in range(size):
            factor = left[i][k]
            if i != k and factor:
                left[i] = [v - factor * w for v, w in zip(left[i], left[k], strict=True)]
    return [row[size:] for row in left]


def full_rank_host(shape: Shape, *, tied: bool = False) -> Universal:
    """The first host with small integer entries and full rank (entries of five values can be unlucky)."""
    M = matching_dimension(shape)
    hosts = (integer_host(shape, M, seed, tied=tied) for seed in range(100))
    return next((host for host in hosts if rank_modulo(dense(r_all(host))) == M), integer_host(shape, M, tied=tied))
