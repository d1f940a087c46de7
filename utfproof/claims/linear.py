"""Small exact linear algebra for claims: integer hosts, determinants, minors and left inverses along two routes."""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.certificates.hosts import assemble
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.claims.decisions import dense, rank_modulo
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal
from utfproof.util.generator import integer_matrix


def integer_host(shape: Shape, m: int, seed: int = 0, *, tied: bool = False, equal_readers: bool = False) -> Universal:
    """A host with integer weights in -2 ... 2 (object arrays) from the seeded generator. equal_readers: R_K is R_Q in the
    first head, so that R_all has two equal columns."""

    def draw(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        name = "R_Q" if equal_readers and (tensor, layer, head) == ("R_K", 0, 0) else tensor
        numbers = integer_matrix(seed, name, m, columns, law="binomial", layer=layer, head=head)
        return np.array([int(v) % 5 - 2 for v in numbers.reshape(-1)], dtype=object).reshape(m, columns)

    return assemble(shape, m, tied, draw)


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


def left_inverse(matrix: Any) -> Agreed:
    """Whether X [columns, rows] with X @ matrix = I exists: FLINT solves, plain integers count independent columns."""
    listed = plain.rows(matrix)
    identity = np.array(plain.identity(len(listed[0])), dtype=object)
    found = rational.solve_left(np.array(listed, dtype=object), identity)
    return agree({"FLINT": found is not None, "plain integers": plain.rank(listed) == len(identity)})


def full_rank_host(shape: Shape, *, tied: bool = False) -> Universal:
    """The first host with small integer entries and full rank (entries of five values can be unlucky)."""
    M = matching_dimension(shape)
    hosts = (integer_host(shape, M, seed, tied=tied) for seed in range(100))
    return next((host for host in hosts if rank_modulo(dense(r_all(host))) == M), integer_host(shape, M, tied=tied))
