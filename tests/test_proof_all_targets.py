"""docs/proofs/all-targets.md, step by step: the isolating targets of Theorem N, the shared columns and host of Theorem P."""

from itertools import product

import numpy as np
import pytest
from flint import nmod_mat

PRIME = 2**31 - 1


def words(H, length):
    return list(product(range(H), repeat=length))


# --- Theorem N ---------------------------------------------------------------------------------------------


def isolating(H, L, d, b, layer, head, word):
    """Queries, keys and maps of the target that singles out the query of this layer, head and word; M_w by word."""
    first, second = np.eye(b)[:, :d], np.eye(b)[:, d : 2 * d]
    queries = {at: first if at == (layer, head) else second for at in product(range(1, L + 1), range(H))}
    maps = {
        (t, h): (first if t < layer and h == word[t - 1] else second) for t, h in product(range(1, L + 1), range(H))
    }
    along = {(): np.eye(b)}
    for t in range(1, L + 1):
        for w in words(H, t):
            along[w] = along[w[:-1]] @ maps[t, w[-1]] @ maps[t, w[-1]].T
    return queries, dict.fromkeys(queries, second), along


@pytest.mark.parametrize("shape", [(2, 1, 1, 2), (3, 1, 1, 2), (2, 2, 1, 2), (2, 3, 1, 3), (3, 2, 2, 4), (1, 1, 2, 5)])
def test_each_query_is_singled_out(shape):
    """Readers have full rank, and the first d rows of all blocks vanish but for one, where they are invertible."""
    H, L, d, b = shape
    for layer, head in product(range(1, L + 1), range(H)):
        for word in words(H, layer - 1):
            queries, keys, along = isolating(H, L, d, b, layer, head, word)
            for at in queries:
                stacked = np.vstack([along[w] for w in words(H, at[0] - 1)])
                for readers in (queries, keys):
                    assert np.linalg.matrix_rank(stacked @ readers[at]) == d
                    for w in words(H, at[0] - 1):
                        rows = (along[w] @ readers[at])[:d]
                        single = readers is queries and at == (layer, head) and w == word
                        assert np.array_equal(rows, np.eye(d)) if single else not rows.any()
            assert not any(along[w][:d].any() for w in words(H, L))


def test_narrow_readers_lose_rank_with_one_head():
    """Why H = 1, L = 2 is left out."""
    queries, _, along = isolating(1, 2, 1, 2, 2, 0, (0,))
    assert not (along[(0,)] @ queries[1, 0]).any()


# --- Theorem P ---------------------------------------------------------------------------------------------


def modular(rows):
    return nmod_mat([[int(x) % PRIME for x in row] for row in rows], PRIME)


def columns(matrix):
    return [[int(matrix[i, j]) for i in range(matrix.nrows())] for j in range(matrix.ncols())]


def rank(vectors):
    return modular(vectors).rank() if vectors else 0


def completed(vectors, size, pool):
    """Vectors of the pool added until there are `size` independent ones."""
    chosen = []
    for vector in [*vectors, *pool]:
        if len(chosen) < size and rank([*chosen, vector]) > len(chosen):
            chosen.append(vector)
    return chosen


def meet(left, right):
    """A basis of the intersection of two spans."""
    stacked = modular([*left, *[[-x for x in vector] for vector in right]]).transpose()
    kernel, nullity = stacked.nullspace()
    basis = modular(left).transpose()
    return [columns(basis * modular([[int(kernel[i, k])] for i in range(len(left))]))[0] for k in range(nullity)]


def shared_readers(forms, d, sets, generator):
    """X_h, Y_h (lists of d columns) with A^h = X_h Y_h^T, where the heads of each set share a column of X."""
    b = len(forms[0])
    pool = generator.integers(1, PRIME, (3 * b, b)).tolist()
    spaces = [completed(np.array(form).T.tolist(), d, pool) for form in forms]
    chosen = [[] for _ in forms]
    for heads in sorted(sets, key=len, reverse=True):
        common = spaces[heads[0]]
        for head in heads[1:]:
            common = meet(common, spaces[head])
        weights = modular([generator.integers(1, PRIME, len(common)).tolist()])
        vector = [int(x) for x in (weights * modular(common)).entries()]
        for head in heads:
            chosen[head].append(vector)
            assert rank(chosen[head]) == len(chosen[head])
    readers = []
    for form, space, part in zip(forms, spaces, chosen, strict=True):
        X = completed(part, d, space)
        square = modular(completed(X, b, pool)).transpose()
        coefficients = square.inv() * modular(form)  # rows d ... b - 1 vanish
        readers.append((X, [[int(coefficients[i, j]) for j in range(b)] for i in range(d)]))
        assert modular(X).transpose() * modular(readers[-1][1]) == modular(form)
    return readers


def forms_of(kind, H, d, b, generator):
    def low(r):
        return generator.integers(-3, 4, (b, r)) @ generator.integers(-3, 4, (r, b))

    return {
        "generic": lambda: [low(d) for _ in range(H)],
        "parallel": lambda: [(h + 1) * form for form in [low(d)] for h in range(H)],
        "deficient": lambda: [low(int(generator.integers(0, d + 1))) for _ in range(H)],
        "zero but one": lambda: [low(d) if h == 0 else 0 * low(d) for h in range(H)],
        "opposite": lambda: [(-1) ** h * np.diag([1] * d + [0] * (b - d)) for h in range(H)],
    }[kind]()


@pytest.mark.parametrize("kind", ["generic", "parallel", "deficient", "zero but one", "opposite"])
@pytest.mark.parametrize(
    ("H", "d", "b", "sets"),
    [(2, 2, 3, [(0, 1)]), (3, 3, 4, [(0, 1, 2), (0, 1)]), (3, 2, 2, [(0, 1, 2)] * 2), (2, 5, 6, [(0, 1)] * 4)],
)
def test_shared_columns_serve_every_form(H, d, b, sets, kind):
    """Modulo 2^31 - 1; the queries of one layer have Hd - sum(|e| - 1) different columns."""
    generator = np.random.default_rng(1)
    for _ in range(4):
        forms = [form.tolist() for form in forms_of(kind, H, d, b, generator)]
        readers = shared_readers(forms, d, sets, generator)
        different = {tuple(column) for X, _ in readers for column in X}
        assert len(different) <= H * d - sum(len(heads) - 1 for heads in sets)


def test_the_groups_arrive_where_they_are_read():
    """R_V^h moves group hw to w, and (h, v) to v among the long ones: after a word, each place holds what the proof says."""
    H, L = 2, 3
    for word in words(H, L):
        short = {w: w for t in range(L) for w in words(H, t)}
        long = {v: v for v in words(H, L)}
        for t, head in enumerate(word):
            assert short[()] == word[:t]
            short = {w: short.get((head, *w)) for w in short}
            long = {v: long[(head, *v[:-1])] for v in long}
        assert set(long.values()) == {word}
