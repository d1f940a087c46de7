"""The finite steps of docs/proofs/attention-matching-optimum.md, by exact computation."""

import itertools
import random

import flint
import numpy as np
import pytest
from naive import host_matrices, words

from utfproof.constructions.shared_query import shared_query_host
from utfproof.shapes import Shape

PRIME = 2**31 - 1


def kappa(d, d_in):
    return 2 * d * d_in - d * d


def fibre(H, L, d, d_in):
    """F_L by the page's recursion."""
    forms = H * kappa(d, d_in)
    return H * d_in**2 + forms if L == 1 else H * fibre(H, L - 1, d, d_in) + forms


def least(H, L, d, d_in):
    return -(-fibre(H, L, d, d_in) // d_in)


def test_side_by_side():
    """[C^(1) ... C^(H)] with blocks D_{(i+k) mod H} is a permutation matrix; with fewer coordinates than d_in it cannot be."""
    for H, d, d_in in itertools.product(range(1, 5), range(1, 5), range(1, 7)):
        if d > d_in:
            continue
        parts = [[a for a in range(d_in) if a // d == s] for s in range(H)]
        D = [np.diag([int(a in part) for a in range(d_in)]) for part in parts]
        whole = np.block([[D[(i + k) % H] for k in range(H)] for i in range(H)])
        permutation = (whole.sum(axis=0) == 1).all() and (whole.sum(axis=1) == 1).all()
        assert permutation == (H * d >= d_in)
        assert all(np.trace(matrix) <= d for matrix in D)


def rank_modulo(matrix):
    rows = [[int(v) % PRIME for v in row] for row in matrix]
    return flint.nmod_mat(len(rows), len(rows[0]), [v for row in rows for v in row], PRIME).rank()


def readers(table, U, H, L):
    """rho_i [m, n]: what follows the first letter i, as columns (Q, K of the layers 2 ... L, then the outputs)."""
    out = []
    for i in range(H):
        columns = []
        for layer in range(2, L + 1):
            for rest in words(H, layer - 2):
                R = table["V", 1, i]
                for at, h in enumerate(rest, start=2):
                    R = R @ table["V", at, h] % PRIME
                columns += [R @ table[kind, layer, h] % PRIME for h in range(H) for kind in "QK"]
        for rest in words(H, L - 1):
            R = table["V", 1, i]
            for at, h in enumerate(rest, start=2):
                R = R @ table["V", at, h] % PRIME
            columns.append(R @ U % PRIME)
        out.append(np.concatenate(columns, axis=1))
    return out


def steps(table, U, H, L, d, d_in, m, seed=0):
    """(rank pi, dim P_C) for a random C, modulo a prime."""
    generator = random.Random(seed)
    rho = readers(table, U, H, L)
    n = rho[0].shape[1]

    def drawn(rows, columns):
        return np.array([[generator.randrange(PRIME) for _ in range(columns)] for _ in range(rows)], dtype=object)

    rank_pi = d_in * rank_modulo(np.concatenate(rho, axis=1))
    rows = []
    eye, eye_n = np.eye(d_in, dtype=int).astype(object), np.eye(n, dtype=int).astype(object)
    for i in range(H):
        M = drawn(d_in, d) @ drawn(d, d_in) % PRIME
        rows.append(np.concatenate([np.kron(M, eye_n), -np.kron(eye, rho[i].T)], axis=1))
    unknowns = d_in * n + d_in * m
    nullity = unknowns - rank_modulo(np.concatenate(rows))
    return rank_pi, nullity - (d_in * m - rank_pi)


@pytest.mark.parametrize("dims", [(2, 2, 1, 1), (2, 2, 2, 2), (3, 2, 1, 1), (2, 3, 1, 1), (1, 3, 2, 2)])
def test_steps_on_hosts(dims):
    H, L, d, d_in = dims
    shape = Shape(*dims)
    m = least(*dims)
    table, U = host_matrices(shared_query_host(shape, m))
    rank_pi, a = steps(table, U, H, L, d, d_in, m)
    assert (rank_pi, a) == (H * fibre(H, L - 1, d, d_in), fibre(H, L - 1, d, d_in))
    # a planted fault: a host that forgets a key of layer 2 has less room over C
    spoilt = {key: value * 0 if key == ("K", 2, 0) else value for key, value in table.items()}
    assert steps(spoilt, U, H, L, d, d_in, m)[1] < a


@pytest.mark.parametrize("dims", [(2, 2, 1, 1), (2, 2, 1, 2), (2, 2, 2, 2)])
@pytest.mark.parametrize("extra", [0, 1, 30])
def test_random_hosts_make_room(dims, extra):
    """rank pi >= H dim P_C whatever the host, and dim P_C > 0 as few equations are lost."""
    H, L, d, d_in = dims
    m = least(*dims) + extra
    generator = random.Random(extra)

    def drawn(rows, columns):
        return np.array([[generator.randrange(PRIME) for _ in range(columns)] for _ in range(rows)], dtype=object)

    table = {("V", layer, h): drawn(m, m) for layer in (1, 2) for h in range(H)}
    table |= {(kind, layer, h): drawn(m, d) for kind in "QK" for layer in (1, 2) for h in range(H)}
    rank_pi, a = steps(table, drawn(m, d_in), H, L, d, d_in, m)
    assert rank_pi >= H * a
    assert a > 0
