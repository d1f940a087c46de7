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

from utfproof.shapes import Shape, matching_dimension

PROOFS = Path(__file__).parents[1] / "docs" / "proofs"


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


# --- fibre-dimension.md ----------------------------------------------------------------------------------


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


# --- attention-matching-bound.md -------------------------------------------------------------------------


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
