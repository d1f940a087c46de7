"""Hosts whose matrices select coordinates, over a prime field, and the attention-matching equations for them, slowly.

Every column of a reader is a sum of columns of E, every column of E R_V one column of E or zero. Shared by the tests of the
frontier's written proofs; no code of the package.
"""

import itertools
from typing import NamedTuple

import flint
import numpy as np

PRIME = 1_000_003  # products of residues summed in int64


def words(letters, length):
    return list(itertools.product(range(letters), repeat=length))


def drawn(rng, *shape):
    return rng.integers(0, PRIME, size=shape)


def product(*factors):
    out = factors[0]
    for factor in factors[1:]:
        out = out @ factor % PRIME
    return out


def as_flint(matrix):
    rows = np.asarray(matrix) % PRIME
    return flint.nmod_mat(*rows.shape, [int(v) for v in rows.ravel()], PRIME)


def rank(matrix):
    matrix = np.asarray(matrix)
    return as_flint(matrix).rank() if matrix.size else 0


def solve(matrix, right):
    """matrix^-1 right; ZeroDivisionError if it is singular."""
    out = as_flint(matrix).solve(as_flint(right))
    return np.array([[int(v) for v in row] for row in out.tolist()], dtype=np.int64).reshape(np.shape(right))


def null_space(matrix):
    """Columns that span {x : matrix x = 0}."""
    found, nullity = as_flint(matrix).nullspace()
    table = np.array([[int(v) for v in row] for row in found.tolist()], dtype=np.int64)
    return table[:, :nullity]


def inverse(matrix):
    return solve(matrix, np.eye(len(matrix), dtype=np.int64))


class Target(NamedTuple):
    """A[l][h], M[l][letter] (b x b; with a stream the letter 0 is the identity), and the factors Q, K, V, O."""

    A: list
    M: list
    factors: list


def drawn_target(rng, H, L, d, b, stream=False):
    factors = [
        [(drawn(rng, b, d), drawn(rng, b, d), drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H)] for _ in range(L)
    ]
    A = [[product(q, k.T) for q, k, _, _ in layer] for layer in factors]
    eye = [np.eye(b, dtype=np.int64)] if stream else []
    return Target(A, [eye + [product(v, o) for *_, v, o in layer] for layer in factors], factors)


def along(matrices, word, b):
    out = np.eye(b, dtype=np.int64)
    for layer, letter in zip(matrices, word, strict=False):
        out = product(out, layer[letter])
    return out


class Host(NamedTuple):
    """Coordinates have names; readers and U are lists of lists of them, values[l][letter] a dict new: old (None: identity)."""

    names: list
    queries: list
    keys: list
    values: list
    U: list

    @property
    def m(self):
        return len(self.names)

    def pick(self, E, columns):
        at = {name: i for i, name in enumerate(self.names)}
        return (
            np.stack(
                [sum((E[:, at[name]] for name in column), np.zeros(len(E), dtype=np.int64)) for column in columns],
                axis=1,
            )
            % PRIME
        )

    def moved(self, E, layer, letter):
        """E R_V."""
        moves = self.values[layer][letter]
        if moves is None:
            return E
        out, at = np.zeros_like(E), {name: i for i, name in enumerate(self.names)}
        for new, old in moves.items():
            out[:, at[new]] = E[:, at[old]]
        return out

    def states(self, E):
        """[{word: E R_w}] for lengths 0 ... L."""
        out = [{(): E}]
        for layer, values in enumerate(self.values):
            out.append(
                {(*w, i): self.moved(state, layer, i) for w, state in out[-1].items() for i in range(len(values))}
            )
        return out

    def readings(self, E):
        """(X[l][h], Y[l][h], outputs): E R_w R_Q, E R_w R_K, E R_w U as [word, rows, columns]."""
        states = self.states(E)

        def read(readers):
            return [
                [np.stack([self.pick(s, columns) for s in states[layer].values()]) for columns in heads]
                for layer, heads in enumerate(readers)
            ]

        return read(self.queries), read(self.keys), np.stack([self.pick(s, self.U) for s in states[-1].values()])


def serves(host, E, target):
    """All equations, exactly."""
    b = len(E)
    X, Y, outputs = host.readings(E)
    letters = len(host.values[0])
    for layer, heads in enumerate(target.A):
        D = np.concatenate([along(target.M, w, b) for w in words(letters, layer)])
        for h, form in enumerate(heads):
            if (
                product(X[layer][h].reshape(len(D), -1), Y[layer][h].reshape(len(D), -1).T) != product(D, form, D.T)
            ).any():
                return False
    return all((outputs[i] == along(target.M, w, b)).all() for i, w in enumerate(words(letters, len(target.A))))


def jacobian_rank(host, E):
    """Rank of the derivative of all left sides in E."""
    b, m = E.shape
    X, Y, _ = host.readings(E)
    RX, RY, RU = host.readings(np.eye(m, dtype=np.int64))
    rows = []
    for i in range(b):
        for j in range(m):

            def step(R, i=i, j=j):
                out = np.zeros((len(R), b, R.shape[2]), dtype=np.int64)
                out[:, i] = R[:, j]
                return out.reshape(len(R) * b, -1)

            row = [step(RU).ravel()]
            for layer, heads in enumerate(X):
                for h, x in enumerate(heads):
                    size = len(x) * b
                    x, y = x.reshape(size, -1), Y[layer][h].reshape(size, -1)
                    row.append((product(step(RX[layer][h]), y.T) + product(x, step(RY[layer][h]).T)).ravel() % PRIME)
            rows.append(np.concatenate(row))
    return rank(np.array(rows))


def spoilt(E, column):
    """E with one column changed."""
    out = E.copy()
    out[0, column] = (out[0, column] + 1) % PRIME
    return out
