"""Written proofs on shared attention and residual streams, held against computations."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import sympy
from naive import words
from test_proofs import along, determinant, identity, integers, rank, rank_modulo, rational_inverse, unit, zeros

# --- shared-attention.md ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "L"), [(2, 1), (2, 3), (3, 2), (3, 3), (1, 4)])
def test_spanning_lemma(H, L):
    B = np.array([[0, 1], [0, 1]], dtype=object)
    for s in words(H, L):
        alive = {}
        for w in words(H, L):
            P = identity(2)
            for h, chosen in zip(w, s, strict=True):
                P = (identity(2) if h == chosen else B) @ P
            alive[w] = P[0, 0]
        assert {w: v for w, v in alive.items() if v} == {s: 1}


def positions(H, length, width):
    return {word: i * width for i, word in enumerate(words(H, length))}


def block_moves(size, width, moves):
    out = zeros(size, size)
    for source, target in moves:
        out[source : source + width, target : target + width] = identity(width)
    return out


def register(H, L, b):
    """R_V per head, U."""
    at = positions(H, L, b)
    R = [block_moves(len(at) * b, b, [(at[h, *w[:-1]], at[w]) for w in at]) for h in range(H)]
    U = zeros(len(at) * b, b)
    U[:b] = identity(b)
    return R, U, at


def random_values(rng, H, L, b):
    return [[integers(rng, b, b) for _ in range(H)] for _ in range(L)]


@pytest.mark.parametrize(("H", "L", "b"), [(2, 1, 2), (2, 3, 1), (2, 2, 2), (3, 2, 2), (1, 3, 2)])
def test_register(H, L, b):
    M = random_values(random.Random(7), H, L, b)
    R, U, at = register(H, L, b)
    assert len(U) == b * H**L
    E = np.concatenate([along(M, w, b) for w in at], axis=1)
    assert all(np.array_equal(E @ along([R] * L, w, len(U)) @ U, along(M, w, b)) for w in words(H, L))
    # exactly as many columns as rows, all of them independent: fewer coordinates cannot do (section 2)
    assert rank(np.concatenate([along([R] * L, w, len(U)) @ U for w in words(H, L)], axis=1)) == b * H**L


def two_sided(H, k, b, middle=None):
    """R_V [layers][heads] of section 5, or section 6 with the H matrices `middle` (b x b) between."""
    at = positions(H, k, b)
    size = len(at) * b
    tails = list(words(H, k - 1)) if k else []
    first = [block_moves(size, b, [(at[h, *s], at[*s, 0]) for s in tails]) for h in range(H)]
    second = [block_moves(size, b, [(at[0, *s], at[*s, h]) for s in tails]) for h in range(H)]
    inner = []
    if middle is not None:
        for B in middle:
            R = zeros(size, size)
            R[:b, :b] = B
            inner.append(R)
    return [first] * k + ([inner] if inner else []) + [second] * k, at


@pytest.mark.parametrize(("H", "k", "b"), [(2, 1, 1), (2, 2, 1), (3, 1, 2), (2, 3, 1), (3, 2, 1), (2, 2, 2)])
def test_two_sided_register(H, k, b):
    M = random_values(random.Random(9), H, 2 * k, b)
    R, at = two_sided(H, k, b)
    assert len(at) * b == b * H**k
    E = np.concatenate([along(M[:k], w, b) for w in at], axis=1)
    U = np.concatenate([along(M[k:], w, b) for w in at])
    for w in words(H, 2 * k):
        assert np.array_equal(E @ along(R, w, len(U)) @ U, along(M, w, b))
    R[k] = R[0]  # a fault: the second half turned the wrong way
    assert not all(np.array_equal(E @ along(R, w, len(U)) @ U, along(M, w, b)) for w in words(H, 2 * k))


def path_map(H):
    """B_h of section 6's path, padded to q x q, and the solver for nonzero c."""
    q = (H + 2) // 2
    edges = [(h // 2 + h % 2, h // 2) for h in range(H)]  # p_0 u_0, p_1 u_0, p_1 u_1, ...
    matrices = [unit(q, q, i, j) for i, j in edges]

    def solve(c):
        p, u = zeros(q), zeros(q)
        p[0] = Fraction(1)
        for h, (i, j) in enumerate(edges):
            if h % 2:
                p[i] = c[h] / u[j]
            else:
                u[j] = c[h] / p[i]
        return p, u

    return matrices, solve


def star_map(H):
    q = (H + 1) // 2 + 1
    edges = [(0, j) for j in range(1, (H + 1) // 2 + 1)] + [(i, 0) for i in range(1, H // 2 + 1)]

    def solve(c):
        p, u = zeros(q), zeros(q)
        p[0] = u[0] = 1
        for value, (i, j) in zip(c, edges, strict=True):
            if i:
                p[i] = value
            else:
                u[j] = value
        return p, u

    return [unit(q, q, i, j) for i, j in edges], solve


@pytest.mark.parametrize(("H", "k"), [(2, 0), (2, 1), (3, 1), (5, 1), (2, 2), (4, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["path", "stars"])
def test_middle_layer(H, k, kind):
    rng = random.Random(10)
    matrices, solve = path_map(H) if kind == "path" else star_map(H)
    q = len(matrices[0])
    assert q == (-(-(H + 1) // 2) if kind == "path" else -(-H // 2) + 1)
    M = [[Fraction(rng.choice([-3, -2, -1, 1, 2, 5])) for _ in range(H)] for _ in range(2 * k + 1)]
    if kind == "stars":
        M[k][0] = Fraction(0)  # all targets, zeros included
    p, u = solve(M[k])
    R, at = two_sided(H, k, q, matrices)
    m = q * H**k
    E = np.concatenate([math.prod((M[i][h] for i, h in enumerate(w)), start=Fraction(1)) * p for w in at])
    U = np.concatenate([math.prod((M[k + 1 + i][h] for i, h in enumerate(w)), start=Fraction(1)) * u for w in at])
    assert len(E) == m
    for w in words(H, 2 * k + 1):
        assert E @ along(R, w, m) @ U == math.prod(M[i][h] for i, h in enumerate(w))
    assert m * m >= H ** (2 * k + 1)


def test_odd_depth_values():
    for (H, L), upper, lower in (((3, 3), 6, 6), ((5, 3), 15, 12), ((3, 5), 18, 16), ((2, 3), 4, 3)):
        assert H ** (L // 2) * -(-(H + 1) // 2) == upper
        assert math.isqrt(H**L - 1) + 1 == lower


def counting(H, L):
    """Coordinates and R_V^h of the counting host."""
    cells = [c for c in itertools.product(range(L + 1), repeat=H - 1) if sum(c) <= L]
    at = {c: i for i, c in enumerate(cells)}
    R = [identity(len(cells))]
    for h in range(H - 1):
        step = zeros(len(cells), len(cells))
        for c in cells:
            if sum(c) < L:
                step[at[*c[:h], c[h] + 1, *c[h + 1 :]], at[c]] = 1
        R.append(step)
    return R, cells


@pytest.mark.parametrize(("H", "L", "d", "b"), [(2, 1, 1, 2), (2, 3, 1, 2), (3, 2, 1, 3), (1, 2, 2, 2)])
def test_split_target(H, L, d, b):
    """Section 3: a target with (M_w)_12 = 0 for all w, (M_w)_11 and (M_w)_22 not all zero, ranks at most d."""
    if H >= 2:
        M = [[unit(b, b, 0, 0), unit(b, b, 1, 1)] + [zeros(b, b)] * (H - 2)] * L
    else:
        M = [[unit(b, b, 0, 0) + unit(b, b, 1, 1)]] * L
    assert all(rank(form) <= d for step in M for form in step)
    entries = {ij: [along(M, w, b)[ij] for w in words(H, L)] for ij in ((0, 0), (0, 1), (1, 1))}
    assert (any(entries[0, 0]), any(entries[0, 1]), any(entries[1, 1])) == (True, False, True)


@pytest.mark.parametrize(("H", "L"), [(2, 2), (2, 5), (3, 2), (3, 3), (4, 2), (1, 3)])
def test_counting_host(H, L):
    mu = [2, 3, 5, 7][:H]
    R, cells = counting(H, L)
    assert len(cells) == math.comb(L + H - 1, H - 1)
    E = np.array(
        [mu[0] ** (L - sum(c)) * math.prod(mu[i + 1] ** v for i, v in enumerate(c)) for c in cells], dtype=object
    )
    routed = {w: along([R] * L, w, len(cells))[:, 0] for w in words(H, L)}
    assert all(E @ column == math.prod(mu[h] for h in w) for w, column in routed.items())
    assert rank(np.array(list(routed.values()))) == len(cells)


def test_looped_bound_fails():
    """m = L + 1 at H = 2 against 2^{L/2}: (L+1)^2 < 2^L first at L = 6."""
    assert next(L for L in range(1, 20) if (L + 1) ** 2 < 2**L) == 6
    assert all((L + 1) ** 2 < 2**L for L in range(6, 200))


@pytest.mark.parametrize(("H", "L", "b"), [(2, 1, 2), (2, 2, 2), (3, 2, 2), (2, 3, 2), (1, 2, 2), (2, 2, 3), (2, 3, 1)])
def test_value_family_dimension(H, L, b):
    M = random_values(random.Random(11), H, L, b)
    rows = []
    for layer, head, i, j in itertools.product(range(L), range(H), range(b), range(b)):
        moved = [list(step) for step in M]
        moved[layer][head] = unit(b, b, i, j)
        blocks = [along(moved, w, b) if w[layer] == head else zeros(b, b) for w in words(H, L)]
        rows.append(np.concatenate(blocks, axis=1).ravel())
    assert rank(rows) == b * b * (L * (H - 1) + 1)


def test_parameter_count_bound():
    def bound(H, L, b):
        return -(-(b * b * (L * (H - 1) + 1) + 1) // (2 * b))

    assert bound(2, 2, 2) == 4 == 2 * 2
    for H, L, b in itertools.product(range(1, 5), (2, 4), range(1, 6)):
        assert bound(H, L, b) <= b * H ** (L // 2)


def test_determinant_signatures():
    """det on 2x2 matrices has signature (2,2); on the complement of Z it is (1,2) or (2,1) by the sign of det Z."""
    polar = sympy.Matrix([[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]]) / 2

    def signature(form):
        values = [(v, count) for v, count in form.eigenvals().items()]
        positive = sum(count for v, count in values if v.is_positive)
        negative = sum(count for v, count in values if v.is_negative)
        assert positive + negative == form.rows
        return positive, negative

    a = sympy.Matrix(sympy.symbols("a:4"))
    assert sympy.expand((a.T * polar * a)[0] - (a[0] * a[3] - a[1] * a[2])) == 0
    assert signature(polar) == (2, 2)
    for Z, expected in (
        ((1, 0, 0, 1), (1, 2)),
        ((1, 0, 0, -1), (2, 1)),
        ((0, 1, 1, 0), (2, 1)),
        ((0, 1, -1, 0), (1, 2)),
    ):
        vector = sympy.Matrix(Z)
        basis = sympy.Matrix.hstack(*(polar * vector).T.nullspace())
        assert signature(basis.T * polar * basis) == expected
        assert expected == ((1, 2) if (vector.T * polar * vector)[0] > 0 else (2, 1))


def test_degrees_of_factors():
    """Polynomial multiplication: q = ceil((H+1)/2), and degrees whose parities allow every real form to factor."""
    for H in range(1, 201):
        if H % 2 == 0:
            alpha, beta = H // 2, H // 2 - 1
            assert (alpha + beta) % 2 == 1
        elif H % 4 == 1:
            alpha = beta = (H - 1) // 2
            assert alpha % 2 == 0
        else:
            assert ((H - 1) // 2) % 2 == 1
            continue
        assert alpha + beta == H - 1
        assert max(alpha, beta) + 1 == -(-(H + 1) // 2)
        assert 2 * (max(alpha, beta) + 1) - 1 >= H


# --- residual.md -----------------------------------------------------------------------------------------


def residual_dimension(H, L, d, d_in):
    return 2 * d * H * sum((H + 1) ** t for t in range(L)) + d_in * (H + 1) ** L


def residual_labels(H, L, d, d_in):
    labels = []
    for kind in "QK":
        for length in range(L):
            labels += [(kind, w, h, j) for w in words(H + 1, length) for h in range(1, H + 1) for j in range(d)]
    return labels + [("OV", w, 0, j) for w in words(H + 1, L) for j in range(d_in)]


def residual_stack(L, labels, values, readers, out, size):
    """Columns of R_all or W_all for these labels; values[l][0] is the identity, readers[kind][l][h]."""
    columns = {}
    for kind, w, h, _ in labels:
        if (kind, w, h) not in columns:
            last = out if kind == "OV" else readers[kind][len(w)][h]
            columns[kind, w, h] = along(values, w, size) @ last
    return np.array([columns[kind, w, h][:, j] for kind, w, h, j in labels]).T


def residual_host(H, L, d, d_in, project_zero=False):
    labels = residual_labels(H, L, d, d_in)
    at = {label: i for i, label in enumerate(labels)}
    m = len(labels)

    def projection(layer, h):
        out = zeros(m, m)
        for (_, w, _, _), i in at.items():
            out[i, i] = int(len(w) > layer and w[layer] == h)
        return out

    values = [[projection(t, h) if h or project_zero else identity(m) for h in range(H + 1)] for t in range(L)]
    readers = {}
    for kind in "QK":
        readers[kind] = [[zeros(m, d) for _ in range(H + 1)] for _ in range(L)]
    U = zeros(m, d_in)
    for (kind, w, h, j), i in at.items():
        if kind == "OV":
            U[i, j] = 1
        else:
            readers[kind][len(w)][h][i, j] = 1
    return labels, residual_stack(L, labels, values, readers, U, m)


RESIDUAL_SHAPES = [(1, 1, 1, 1), (2, 1, 1, 2), (1, 2, 1, 2), (2, 2, 1, 1), (1, 3, 1, 1), (2, 2, 2, 2)]


@pytest.mark.parametrize("dims", RESIDUAL_SHAPES)
def test_residual_host_is_unimodular(dims):
    labels, R = residual_host(*dims)
    assert len(labels) == residual_dimension(*dims)
    assert abs(determinant(R)) == 1
    # another object, for comparison: heads 0 projected as well gives a permutation, which the stream does not allow
    assert sorted(np.nonzero(residual_host(*dims, project_zero=True)[1].T)[1]) == list(range(len(labels)))
    assert not np.array_equal(R, residual_host(*dims, project_zero=True)[1])


def residual_target(rng, H, L, d, d_in):
    values = [[identity(d_in)] + [integers(rng, d_in, d) @ integers(rng, d, d_in) for _ in range(H)] for _ in range(L)]
    readers = {k: [[integers(rng, d_in, d) for _ in range(H + 1)] for _ in range(L)] for k in "QK"}
    return values, readers


@pytest.mark.parametrize("dims", RESIDUAL_SHAPES)
def test_residual_embedding(dims):
    H, L, _, d_in = dims
    labels, R = residual_host(*dims)
    W = residual_stack(L, labels, *residual_target(random.Random(12), *dims), identity(d_in), d_in)
    at = {label: i for i, label in enumerate(labels)}
    E = zeros(*W.shape)
    for (kind, v, h, j), i in at.items():
        for w in itertools.product(*[range(H + 1) if letter == 0 else (letter,) for letter in v]):
            sign = (-1) ** sum(a != b for a, b in zip(v, w, strict=True))
            E[:, i] += sign * W[:, at[kind, w, h, j]]
    assert np.array_equal(E @ R, W)
    unsigned = W @ np.abs(rational_inverse(R))  # a fault: all signs taken positive
    assert not np.array_equal(unsigned @ R, W)


@pytest.mark.parametrize("dims", [(1, 1, 1, 2), (2, 2, 1, 2), (1, 3, 2, 2), (2, 3, 1, 2)])
def test_residual_refuting_targets(dims):
    """Section 1: for random z the alternating sum over routed targets is z_c, for every column c."""
    H, L, d, d_in = dims
    rng = random.Random(13)
    labels = residual_labels(*dims)
    for c, (kind, w, h, j) in enumerate(labels):
        z = integers(rng, len(labels))
        if kind != "OV":
            z = np.array([0 if label[0] == "OV" else v for v, label in zip(z, labels, strict=True)], dtype=object)
        places = [t for t, letter in enumerate(w) if letter]
        row = j if kind == "OV" and not places else 0
        total = 0
        for size in range(len(places) + 1):
            for chosen in itertools.combinations(places, size):
                values = [[identity(d_in)] + [zeros(d_in, d_in) for _ in range(H)] for _ in range(L)]
                readers = {k: [[zeros(d_in, d) for _ in range(H + 1)] for _ in range(L)] for k in "QK"}
                for t in chosen:
                    values[t][w[t]] = unit(d_in, d_in, 0, j if kind == "OV" and t == places[-1] else 0)
                if kind != "OV":
                    readers[kind][len(w)][h] = unit(d_in, d, 0, j)
                W = residual_stack(L, labels, values, readers, identity(d_in), d_in)
                total += (-1) ** (len(places) - size) * (W @ z)[row]
        assert total == z[c]


def test_residual_tied_host_cannot():
    """Words 0h and h0 give a tied host equal columns, whatever its weights; an untied host need not."""
    rng = random.Random(14)
    H, L, d, d_in = 2, 2, 1, 1
    labels = residual_labels(H, L, d, d_in)
    m = len(labels)
    tied = [identity(m)] + [integers(rng, m, m) for _ in range(H)]
    head = [zeros(m, d)] + [integers(rng, m, d) for _ in range(H)]
    U = integers(rng, m, d_in)
    R = residual_stack(L, labels, [tied] * L, {k: [head] * L for k in "QK"}, U, m)
    at = {label: i for i, label in enumerate(labels)}
    for h in range(1, H + 1):
        assert np.array_equal(R[:, at["OV", (0, h), 0, 0]], R[:, at["OV", (h, 0), 0, 0]])
    assert rank_modulo(R) < m
    values = [[identity(m)] + [integers(rng, m, m) for _ in range(H)] for _ in range(L)]
    readers = {k: [[zeros(m, d)] + [integers(rng, m, d) for _ in range(H)] for _ in range(L)] for k in "QK"}
    assert rank_modulo(residual_stack(L, labels, values, readers, U, m)) == m


def reduced_labels(H, L, d, d_in):
    labels = []
    for kind in "QK":
        for length in range(L):
            labels += [(kind, w, h, j) for w in words(H, length) for h in range(H) for j in range(d)]
    return labels + [("OV", w, 0, j) for length in range(L + 1) for w in words(H, length) for j in range(d_in)]


REDUCED_SHAPES = [(2, 1, 1, 1), (2, 2, 1, 2), (1, 3, 1, 1), (2, 3, 1, 1), (3, 2, 2, 1)]


@pytest.mark.parametrize("dims", REDUCED_SHAPES)
def test_residual_tied_trie(dims):
    H, L, d, d_in = dims
    labels = reduced_labels(*dims)
    S = sum(H**t for t in range(1, L + 1))
    m = 2 * d * S + d_in * (1 + S)
    assert len(labels) == m
    at = {}
    for kind, w, h, j in labels:  # coordinate of block (w, h) of the first trie, or of block w of the second
        at[kind, (*w, h) if kind != "OV" else w, j] = len(at)
    values = []
    for h in range(H):
        R = zeros(m, m)
        for (kind, v, j), i in at.items():
            if (kind, (h, *v), j) in at:
                R[at[kind, (h, *v), j], i] = 1
        values.append(R)
    readers = {k: [zeros(m, d) for _ in range(H)] for k in "QK"}
    U = zeros(m, d_in)
    for (kind, v, j), i in at.items():
        if kind == "OV" and v == ():
            U[i, j] = 1
        elif kind != "OV" and len(v) == 1:
            readers[kind][v[0]][i, j] = 1
    R_all = residual_stack(L, labels, [values] * L, {k: [r] * L for k, r in readers.items()}, U, m)
    assert np.array_equal(R_all, identity(m))


def test_residual_tied_span():
    """Rows of tied residual targets' reduced systems span everything at d_in = d = L = 2, exactly."""
    H, L, d, d_in = 2, 2, 2, 2
    rng = random.Random(15)
    labels = reduced_labels(H, L, d, d_in)
    rows = []
    for _ in range(40):
        values = [integers(rng, d_in, d) @ integers(rng, d, d_in) for _ in range(H)]
        readers = {k: [[integers(rng, d_in, d) for _ in range(H)]] * L for k in "QK"}
        rows.append(residual_stack(L, labels, [values] * L, readers, identity(d_in), d_in))
    assert rank_modulo(np.concatenate(rows)) == len(labels) == 2 * d * 6 + d_in * 7
