"""The finite and arithmetic steps of docs/proofs/, by exact computation: one section per page.

Everything is written out from the pages' own definitions; integers, Fractions, FLINT and SymPy only. One test encloses
reals by FLINT balls and says so.
"""

import functools
import itertools
import math
import random
import re
from fractions import Fraction
from pathlib import Path

import flint
import numpy as np
import pytest
import sympy
from naive import words

from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, matching_dimension, paper_looped_dimension

PROOFS = Path(__file__).parents[1] / "docs" / "proofs"
PRIME = 2**31 - 1


def zeros(*shape):
    return np.full(shape, 0, dtype=object)


def identity(n):
    out = zeros(n, n)
    for i in range(n):
        out[i, i] = 1
    return out


def unit(rows, columns, i, j):
    out = zeros(rows, columns)
    out[i, j] = 1
    return out


def integers(rng, *shape, bound=9):
    return np.array([rng.randint(-bound, bound) for _ in range(math.prod(shape))], dtype=object).reshape(shape)


def rank(matrix):
    """Exact rank of a matrix of integers."""
    return flint.fmpz_mat([[int(v) for v in row] for row in matrix]).rank()


def rank_modulo(matrix, prime=PRIME):
    return flint.nmod_mat(len(matrix), len(matrix[0]), [int(v) % prime for row in matrix for v in row], prime).rank()


def determinant(matrix):
    return int(flint.fmpz_mat([[int(v) for v in row] for row in matrix]).det())


def rational_inverse(matrix):
    entries = [[flint.fmpq(Fraction(v).numerator, Fraction(v).denominator) for v in row] for row in matrix]
    inverse = flint.fmpq_mat(entries).inv().tolist()
    return np.array([[Fraction(int(v.p), int(v.q)) for v in row] for row in inverse], dtype=object)


def along(values, word, size):
    """values[0][h_1] values[1][h_2] ...: the product along a word."""
    return functools.reduce(lambda out, step: out @ values[step[0]][step[1]], enumerate(word), identity(size))


@pytest.mark.parametrize("page", sorted(PROOFS.glob("*.md")), ids=lambda p: p.stem)
def test_pages_cite_tests_that_exist(page):
    cited = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    assert cited
    files = Path(__file__).parent.glob("test_*.py")
    assert cited <= {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


# --- decision-theorem.md ---------------------------------------------------------------------------------


def w_all(H, L, WQ, WK, M):
    """W_all of a target given by M [L][H] (width x width) and readers, in canonical order."""
    D = M[0][0].shape[0]
    blocks = []
    for readers in (WQ, WK):
        for layer in range(L):
            for word in words(H, layer + 1):
                blocks.append(along(M, word[:-1], D) @ readers[layer][word[-1]])
    blocks += [along(M, word, D) for word in words(H, L)]
    return np.concatenate(blocks, axis=1)


def column_labels(H, L, d, d_in):
    """(kind, word, coordinate) in canonical order."""
    labels = []
    for kind in "QK":
        for layer in range(1, L + 1):
            labels += [(kind, word, j) for word in words(H, layer) for j in range(d)]
    return labels + [("OV", word, j) for word in words(H, L) for j in range(d_in)]


def isolating(H, L, d, d_in, label):
    """Section 2's target: readers WQ, WK and value forms."""
    kind, word, j = label
    readers = {k: [[zeros(d_in, d) for _ in range(H)] for _ in range(L)] for k in "QK"}
    M = [[zeros(d_in, d_in) for _ in range(H)] for _ in range(L)]
    for t, h in enumerate(word[:-1]):
        M[t][h] = unit(d_in, d_in, 0, 0)
    if kind == "OV":
        M[L - 1][word[-1]] = unit(d_in, d_in, 0, j)
    else:
        readers[kind][len(word) - 1][word[-1]] = unit(d_in, d, 0, j)
    return readers["Q"], readers["K"], M


@pytest.mark.parametrize("dims", [(2, 1, 1, 2), (2, 2, 1, 2), (2, 3, 2, 2), (1, 3, 2, 3), (3, 2, 2, 1)])
def test_isolating_targets_have_one_entry(dims):
    H, L = dims[:2]
    labels = column_labels(*dims)
    assert len(labels) == matching_dimension(Shape(*dims))
    for c, label in enumerate(labels):
        W = w_all(H, L, *isolating(*dims, label))
        assert {(i, k): W[i, k] for i, k in zip(*np.nonzero(W), strict=True)} == {(0, c): 1}


def tied_path(H, L, d, d_in, label):
    """Section 5's target for a column: (WQ, WK, M), one per head."""
    kind, word, j = label
    readers = {k: [zeros(d_in, d) for _ in range(H)] for k in "QK"}
    M = [zeros(d_in, d_in) for _ in range(H)]
    for t, h in enumerate(word[:-1]):
        M[h][t, t + 1] = 1
    if kind == "OV":
        M[word[-1]][len(word) - 1, j] = 1
    else:
        readers[kind][word[-1]][len(word) - 1, j] = 1
    return readers["Q"], readers["K"], M


@pytest.mark.parametrize("dims", [(2, 1, 1, 1), (2, 2, 2, 2), (3, 2, 2, 3), (2, 3, 3, 3), (1, 3, 3, 4), (2, 4, 4, 4)])
def test_tied_paths_isolate(dims):
    H, L, d, d_in = dims
    assert min(d, d_in) >= L
    for c, label in enumerate(column_labels(*dims)):
        WQ, WK, M = tied_path(*dims, label)
        assert all(rank(form) <= d for form in M)
        first = w_all(H, L, [WQ] * L, [WK] * L, [M] * L)[0]
        assert (list(np.nonzero(first)[0]), first[c]) == ([c], 1)


def test_a_path_that_repeats_a_state_does_not_isolate():
    """The states of a path must differ: with both steps leaving state 1, other words stay alive."""
    M = [unit(2, 2, 0, 0), unit(2, 2, 0, 1)]
    first = w_all(2, 2, [[zeros(2, 1)] * 2] * 2, [[zeros(2, 1)] * 2] * 2, [M] * 2)[0]
    assert len(np.nonzero(first)[0]) > 1


def test_tied_span_below_the_path_size():
    """(H, L, d_in) = (2, 4, 2): the OV rows of tied targets span 32 of 32 for d = 2 and 28 for d = 1."""
    for d, expected in ((2, 32), (1, 28)):
        rng = random.Random(d)
        rows = []
        for _ in range(40):
            M = [integers(rng, 2, d) @ integers(rng, d, 2) for _ in range(2)]
            rows.append(np.concatenate([along([M] * 4, word, 2) for word in words(2, 4)], axis=1))
        stacked = np.concatenate(rows)
        assert rank_modulo(stacked) == expected
        assert rank(stacked[:60]) == expected
    # d = 1: the columns (w, j) depend on first and last letter and on the multiset of steps only: 28 different ones
    classes = {(w[0], w[-1], tuple(sorted(itertools.pairwise(w)))) for w in words(2, 4)}
    assert 2 * len(classes) == 28


def test_tied_paths_with_another_output_width():
    """d_out != d_in: the last step leads to state 1, and W_U = E_{1j}."""
    H, L, D, d_out = 2, 3, 3, 2
    for w, j in itertools.product(words(H, L), range(d_out)):
        M = [zeros(D, D) for _ in range(H)]
        for t, h in enumerate(w):
            M[h][t, (t + 1) % L] = 1
        first = {v: (along([M] * L, v, D) @ unit(D, d_out, 0, j))[0] for v in words(H, L)}
        assert {v: list(row) for v, row in first.items() if any(row)} == {w: list(unit(1, d_out, 0, j)[0])}


def test_distance_bound():
    """min over E of ||E R - W|| against |z_c| / ||z||, exactly, for the isolating target of each column."""
    rng = random.Random(5)
    for trial in range(5):
        R = integers(rng, 4, 6, bound=3)
        if trial == 0:
            R[3] = R[2]  # a deficient row space as well
        basis = [row for row in R if any(row)]
        while rank(basis) < len(basis):
            basis.pop()
        B = np.array(basis)
        projector = B.T @ rational_inverse(B @ B.T) @ B
        kernel = sympy.Matrix([[int(v) for v in row] for row in R]).nullspace()
        for z in kernel:
            z = np.array([Fraction(int(v.p), int(v.q)) for v in z], dtype=object)
            assert not any(R @ z)
            for c in np.nonzero(z)[0]:
                residual = unit(1, 6, 0, c)[0] - projector[c]
                assert residual @ residual >= z[c] ** 2 / (z @ z)
                assert residual @ residual > 0


def stochastic(rng, n):
    out = np.array([[Fraction(rng.randint(1, 9)) for _ in range(n)] for _ in range(n)], dtype=object)
    return out / out.sum(axis=1, keepdims=True)


def test_biases_are_absorbed():
    """A model with biases against the hatted matrices, with arbitrary rational attention: streams, queries, keys, outputs."""
    rng = random.Random(8)
    H, L, d, d_in, D, d_out, n = 2, 3, 1, 3, 2, 2, 4
    gamma = np.array([[1]] * d_in, dtype=object)
    X = np.array([identity(d_in)[rng.randrange(d_in)] for _ in range(n)], dtype=object)
    W_E, b_E, W_U, b_U = integers(rng, d_in, D), integers(rng, 1, D), integers(rng, D, d_out), integers(rng, 1, d_out)
    stream, hat = X @ W_E + b_E, X @ np.concatenate([W_E + gamma @ b_E, gamma], axis=1)
    for _ in range(L):
        after, hat_after = zeros(n, D), zeros(n, D + 1)
        b_O = integers(rng, 1, D)
        for _ in range(H):
            A, W_Q, b_Q = stochastic(rng, n), integers(rng, D, d), integers(rng, 1, d)
            W_V, b_V, W_O = integers(rng, D, d), integers(rng, 1, d), integers(rng, d, D)
            assert np.array_equal(stream @ W_Q + b_Q, hat @ np.concatenate([W_Q, b_Q]))
            after = after + A @ (stream @ W_V + b_V) @ W_O
            M_hat = zeros(D + 1, D + 1)
            M_hat[:D, :D], M_hat[D, :D] = W_V @ W_O, (b_V @ W_O + b_O * Fraction(1, H))[0]
            M_hat[D, D] = Fraction(1, H)
            hat_after = hat_after + A @ hat @ M_hat
        stream, hat = after + b_O, hat_after
        assert np.array_equal(hat, np.concatenate([stream, zeros(n, 1) + 1], axis=1))
    assert np.array_equal(stream @ W_U + b_U, hat @ np.concatenate([W_U, b_U]))


def test_deficient_modulo_a_prime_proves_nothing():
    matrix = [[3, 1], [2, 3]]
    assert (rank(matrix), rank_modulo(matrix, 7), rank_modulo(matrix, 5)) == (2, 1, 2)


# --- fibre-dimension.md ----------------------------------------------------------------------------------


def fibre_bound(H, d, d_in):
    """The least integer m with d_in m >= H (d_in^2 + 2 d d_in - d^2)."""
    return -(-H * (d_in**2 + 2 * d * d_in - d**2) // d_in)


def test_softmax_term_splits():
    x, y, k, r = sympy.symbols("x y k r")
    assert sympy.simplify((x + k * r * y) / (1 + k * r) - (y + (x - y) / (1 + k * r))) == 0
    # heads with different r have different poles: residues -(1/r)(x - y) at k = -1/r
    assert sympy.limit((x + k * r * y) / (1 + k * r) * (k + 1 / r), k, -1 / r).equals((x - y) / r)


def jacobian_of_products(left, right):
    """Jacobian of (P, Q) -> P Q^T at given P, Q [rows, d]; rows = parameters."""
    n, d = left.shape
    rows = []
    for i, j in itertools.product(range(n), range(d)):
        rows.append((unit(n, d, i, j) @ right.T).ravel())
        rows.append((left @ unit(n, d, i, j).T).ravel())
    return np.array(rows)


def test_rank_variety_dimension():
    rng = random.Random(1)
    for d_in in range(1, 6):
        for d in range(1, d_in + 1):
            P, Q = integers(rng, d_in, d), integers(rng, d_in, d)
            assert rank(jacobian_of_products(P, Q)) == 2 * d * d_in - d**2


def test_fibre_bound_values():
    assert (fibre_bound(2, 1, 2), paper_looped_dimension(Shape(2, 1, 1, 2)), fibre_bound(1, 1, 1)) == (7, 6, 2)
    shapes = [(H, d, d_in) for H in range(2, 6) for d_in in range(1, 9) for d in range(1, d_in + 1)]
    below = [s for s in shapes if paper_looped_dimension(Shape(s[0], 1, s[1], s[2])) < fibre_bound(*s)]
    assert (len(shapes), len(below), below[0]) == (144, 78, (2, 1, 2))
    for H, d_in in itertools.product(range(1, 6), range(1, 9)):
        assert fibre_bound(H, d_in, d_in) == 2 * H * d_in
    for H, d, d_in in shapes:  # never above what is known to suffice by matching
        assert fibre_bound(H, d, d_in) <= matching_dimension(Shape(H, 1, d, d_in))


def one_layer_forms(E, RQ, RK, RVU):
    return [((E @ q) @ (E @ k).T, E @ v) for q, k, v in zip(RQ, RK, RVU, strict=True)]


def test_seven_dimensions_serve():
    """(2, 1, 1, 2) at m = 7: the page's host and embedding, exactly, at random rational targets."""
    rng = random.Random(2)
    e = identity(7)
    RQ, RK = [e[:, [6]], e[:, [6]] + e[:, [0]]], [e[:, [4]], e[:, [5]]]
    RVU = [e[:, 0:2], e[:, 2:4]]
    served = 0
    for _ in range(40):
        q, k = [integers(rng, 2, 1) for _ in range(2)], [integers(rng, 2, 1) for _ in range(2)]
        M = [integers(rng, 2, 1) @ integers(rng, 1, 2) for _ in range(2)]
        u = M[0][:, [0]]
        system = np.concatenate([-q[0], q[1]], axis=1)  # (lambda, mu): mu q_1 - lambda q_0 = u
        if determinant(system) == 0:
            continue
        lam, mu = (rational_inverse(system) @ u)[:, 0]
        if lam == 0 or mu == 0:
            continue
        E = np.concatenate([M[0], M[1], k[0] / lam, k[1] / mu, q[0] * lam], axis=1)
        forms = one_layer_forms(E, RQ, RK, RVU)
        for h in range(2):
            assert np.array_equal(forms[h][0], q[h] @ k[h].T)
            assert np.array_equal(forms[h][1], M[h])
        served += 1
    assert served > 20


def test_two_dimensions_serve_one_head():
    e = identity(2)
    for a, b in itertools.product(range(-4, 5), repeat=2):
        E = np.array([[Fraction(a, b), b]], dtype=object) if b else zeros(1, 2)
        A, M = one_layer_forms(E, [e[:, [0]]], [e[:, [1]]], [e[:, [1]]])[0]
        assert M[0, 0] == b
        assert A[0, 0] == (a if b else 0)  # b = 0: the function is zero, the attention is not matched


# --- attention-matching-bound.md -------------------------------------------------------------------------


def attention_matching_bound(H, L, d, d_in):
    e = min(d, d_in)
    r = min(H * e, d_in)
    family = H * (2 * e * d_in - e**2) + (L - 1) * H * (2 * e * r - e**2)
    return d_in * H**L + -(-family // d_in)


def test_attention_matching_values():
    found = {shape: attention_matching_bound(*shape) for shape in PAPER_TABLE_SHAPES.values()}
    assert found == {(4, 2, 24, 4): 96, (2, 2, 28, 30): 240, (2, 3, 28, 30): 420, (2, 4, 30, 30): 720}
    for H, L, d, d_in in itertools.product(range(1, 5), range(1, 4), range(1, 6), range(1, 6)):
        bound = attention_matching_bound(H, L, d, d_in)
        assert bound <= matching_dimension(Shape(H, L, d, d_in))
        if H * d >= d_in:
            e = min(d, d_in)
            assert bound == math.ceil(d_in * H**L + L * H * (2 * e - Fraction(e * e, d_in)))
        if L == 1 and d <= d_in:
            assert bound == fibre_bound(H, d, d_in)


def stacked_words(H, layers, d, d_in, M):
    return np.concatenate([along(M, word, d_in) for word in words(H, layers)])


AM_SHAPES = [(2, 2, 1, 2), (2, 3, 1, 3), (3, 2, 1, 2), (2, 2, 2, 3), (2, 3, 3, 2), (1, 2, 1, 2)]


@pytest.mark.parametrize("dims", AM_SHAPES)
def test_generic_rank_of_stacked_words(dims):
    """min(H d', d_in) at the page's point, and no more at random points."""
    H, L, d, d_in = dims
    e = min(d, d_in)
    rng = random.Random(3)
    for length in range(1, L):
        projection = zeros(d_in, d_in)
        for i in range(e):
            projection[i, i] = 1
        M = [[projection] * H for _ in range(length)]
        for h in range(H):
            form = zeros(d_in, d_in)
            for i in range(e):
                form[i, (h * e + i) % d_in] = 1
            M[length - 1] = [*M[length - 1][:h], form, *M[length - 1][h + 1 :]]
        assert rank(stacked_words(H, length, d, d_in, M)) == min(H * e, d_in)
        drawn = [[integers(rng, d_in, d) @ integers(rng, d, d_in) for _ in range(H)] for _ in range(length)]
        assert rank(stacked_words(H, length, d, d_in, drawn)) == min(H * e, d_in)


@pytest.mark.parametrize("dims", AM_SHAPES)
def test_form_family_dimension(dims):
    """The Jacobian of (W_Q, W_K) -> (C W_Q)(C W_K)^T has rank 2 d' r - d'^2, C the stacked words."""
    H, L, d, d_in = dims
    e = min(d, d_in)
    rng = random.Random(4)
    M = [[integers(rng, d_in, d, bound=4) @ integers(rng, d, d_in, bound=4) for _ in range(H)] for _ in range(L)]
    for length in range(L):
        C = stacked_words(H, length, d, d_in, M) if length else identity(d_in)
        r = d_in if length == 0 else min(H * e, d_in)
        W_Q, W_K = integers(rng, d_in, d), integers(rng, d_in, d)
        rows = []
        for i, j in itertools.product(range(d_in), range(d)):
            rows.append((C @ unit(d_in, d, i, j) @ (C @ W_K).T).ravel())
            rows.append((C @ W_Q @ (C @ unit(d_in, d, i, j)).T).ravel())
        assert rank_modulo(np.array(rows)) == 2 * e * r - e**2


def separation(H, t, d_in, slopes, tokens):
    """Ball enclosing the determinant of [1 | F_{w,a}] at as many tokens as columns, for the target of section 2."""
    arb = flint.arb
    y = [arb(v.numerator) / v.denominator for v in tokens]
    n = len(y)
    stream = list(y)
    functions = [[value**a for value in y] for a in range(1, d_in + 1)]
    for layer in range(t):
        attention = []
        for slope in slopes[layer]:
            weights = [[(stream[i] * stream[j] * slope).exp() for j in range(n)] for i in range(n)]
            attention.append([[w / sum(row, arb(0)) for w in row] for row in weights])

        def attend(h, f, attention=attention):
            return [sum((attention[h][i][j] * f[j] for j in range(n)), arb(0)) for i in range(n)]

        functions = [attend(h, f) for f in functions for h in range(H)]
        stream = attend(0, stream)
    columns = [[arb(1)] * n, *functions]
    assert len(columns) == n == 1 + H**t * d_in
    return flint.arb_mat([list(row) for row in zip(*columns, strict=True)]).det()


@pytest.mark.parametrize(
    ("H", "t", "d_in"), [(2, 1, 1), (2, 1, 2), (3, 1, 1), (2, 2, 1), (2, 2, 2), (3, 2, 1), (2, 3, 1)]
)
def test_separating_contexts(H, t, d_in):
    """A context that is separating at length t, by balls: the determinant's enclosure excludes zero."""
    n = 1 + H**t * d_in
    tokens = [Fraction(3 * i, 2) - Fraction(3, 2) + Fraction(i * i % 7, 5) for i in range(n)]
    slopes = [[flint.arb(1) * (h + 1) / 2 for h in range(H)] for _ in range(t)]
    before = flint.ctx.prec
    flint.ctx.prec = 900
    try:
        found = separation(H, t, d_in, slopes, tokens)
        assert not found.contains(0)
        slopes[-1][H - 1] = slopes[-1][0]  # two heads of equal slope: dependent, and seen to be
        assert separation(H, t, d_in, slopes, tokens).contains(0)
    finally:
        flint.ctx.prec = before


def test_pole_positions():
    """At delta = 0: exp(s_k u_j) = exp(s_0 u_j) omega_j^k, and the Vandermonde determinant in the omega_j."""
    u = sympy.symbols("u1:5", real=True)
    lam = sympy.symbols("lam", real=True)
    step = 2 * sympy.pi * sympy.I / (u[1] - u[0])
    s = [(lam + sympy.pi * sympy.I * (2 * k + 1)) / (u[1] - u[0]) for k in range(3)]
    for k, j in itertools.product(range(3), range(1, 4)):
        assert sympy.simplify(s[k] * u[j] - (s[0] * u[j] + k * step * u[j])) == 0
    nu1, nu2 = sympy.symbols("nu1 nu2", positive=True)
    zero = (sympy.log(nu1 / nu2) + sympy.pi * sympy.I) / (u[1] - u[0])
    assert sympy.simplify(sympy.expand(zero * (u[1] - u[0]))).equals(sympy.log(nu1 / nu2) + sympy.I * sympy.pi)
    assert sympy.simplify(nu1 + nu2 * sympy.exp(sympy.log(nu1 / nu2) + sympy.I * sympy.pi)) == 0
    nodes = sympy.symbols("w2:5")
    vandermonde = sympy.Matrix(3, 3, lambda k, j: nodes[j] ** k)
    product = sympy.prod(nodes[j] - nodes[i] for i in range(3) for j in range(i + 1, 3))
    assert sympy.expand(vandermonde.det() - product) == 0


# --- three-dimensions-do-not-suffice.md ------------------------------------------------------------------


def degrees():
    return list(itertools.product((0, 1), repeat=3))


def forms(degree):
    """Dimension of the forms of a multidegree in 0/1: two weights for each layer that occurs."""
    return 2 ** sum(degree)


def test_multidegree_cases():
    # rank Z >= 2: X = p q^T with deg p + deg q = (1,1,1): at most 6 < 8 dimensions
    spans = [min(3, forms(p)) * min(3, forms(tuple(1 - v for v in p))) for p in degrees()]
    assert (max(spans), forms((1, 1, 1))) == (6, 8)
    assert all(min(sum(p), 3 - sum(p)) <= 1 for p in degrees())
    # rank Z = 1: degrees of (f, g, h), f and g not constant
    cases = [c for c in itertools.product(degrees(), repeat=3) if all(sum(v) == 1 for v in zip(*c, strict=True))]
    cases = [c for c in cases if sum(c[0]) and sum(c[1])]
    assert len(cases) == 12
    for f, g, h in cases:
        if sum(h) == 0:
            assert min(sum(f), sum(g)) == 1
        else:
            assert sum(f) == sum(g) == sum(h) == 1


def test_minors_without_the_free_entry():
    pairs = list(itertools.combinations(range(3), 2))
    minors = list(itertools.product(pairs, pairs))
    free = [(r, c) for r, c in minors if not (2 in r and 2 in c)]
    assert (len(minors), len(free)) == (9, 5)
    assert set(free) == {((0, 1), c) for c in pairs} | {(r, (0, 1)) for r in pairs}


def test_gcd_case_spans():
    """f_i y and z g_j at h = 0: 3 of the 4 dimensions, whatever the linear forms y and z; in the basis of products."""
    rng = random.Random(6)
    for _ in range(20):
        f, g = integers(rng, 2, 2), integers(rng, 2, 2)
        y, z = integers(rng, 2), integers(rng, 2)
        products = [np.outer(f[i], y).ravel() for i in range(2)] + [np.outer(z, g[j]).ravel() for j in range(2)]
        assert rank(products) <= 3
    generic = [np.outer(f, y).ravel() for f in identity(2) for y in identity(2)]
    assert rank(generic) == 4  # what they would have to span


def looped_two_layers():
    """Theorem 3, L = 2: the polynomial system and the non-degeneracy c det K."""
    k1, k2, k3, c1, c4, c = unknowns = sympy.symbols("k1 k2 k3 c1 c4 c")
    K, J = sympy.Matrix([[k1, k2], [k2, k3]]), sympy.Matrix([[0, 1], [-1, 0]])
    E11, E22, S = sympy.diag(1, 0), sympy.diag(0, 1), sympy.Matrix([[0, 1], [1, 0]]) / 2
    R1 = K * (E11 + c1 * J) + (1 - k1) / 2 * sympy.eye(2)
    R2 = K * (E22 + c4 * J) + (1 - k3) / 2 * sympy.eye(2)
    entries = [*(R1 * R1 - K * (E11 + c1 * J)), *(R2 * R2 - K * (E22 + c4 * J))]
    entries += [*(R1 * R2 - K * (S + c * J)), *(R2 * R1 - K * (S - c * J)), R1.trace() - 1, R2.trace() - 1]
    return [e for e in map(sympy.expand, entries) if e != 0], sympy.expand(c * K.det()), unknowns


def test_looped_two_layers_groebner():
    system, nondegenerate, unknowns = looped_two_layers()
    s = sympy.Symbol("s")
    assert sympy.groebner([*system, s * nondegenerate - 1], s, *unknowns, order="grevlex").exprs == [1]
    assert sympy.groebner(system, *unknowns, order="grevlex").exprs != [1]
    # steps before: tr R_1R_2 = tr R_2R_1, and det(S + cJ) = c^2 - 1/4
    c = sympy.Symbol("c")
    J, S = sympy.Matrix([[0, 1], [-1, 0]]), sympy.Matrix([[0, 1], [1, 0]]) / 2
    assert sympy.expand((S + c * J).det() - (c**2 - sympy.Rational(1, 4))) == 0
    a, b, e, f = sympy.symbols("a b e f")
    assert (sympy.Matrix([[a, b], [e, f]]) * J).trace() == e - b
    t1, t2 = sympy.symbols("t1 t2")
    delta = sympy.diag(t1, t2)
    assert delta * J * delta == t1 * t2 * J
