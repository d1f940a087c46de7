"""The finite steps of docs/proofs/wide-heads.md, exactly: hosts, dimensions and ranks modulo a prime."""

import functools
import itertools
from fractions import Fraction

import flint
import numpy as np
import pytest
from residue_hosts import (
    PRIME,
    Host,
    along,
    drawn,
    drawn_target,
    inverse,
    null_space,
    product,
    rank,
    serves,
    spoilt,
    words,
)


def powers(H, first, last):
    return sum(H**t for t in range(first, last + 1))


def theorem_a(H, L, b):
    return b * H**L + L * H * b + 1


def theorem_b(H, d):
    e = min(d, H)
    return 2 * H * H + H - e * (e - 1) // 2


def own_and_room(H, L):
    own = H**L + H + powers(H, 1, L - 1) + H ** (L - 1) * (H - 1) // 2
    return own, powers(H, 1, L) + 2 * H ** (L - 1) - H ** (L - 2) - H


def deeper(H, L):
    return max(own_and_room(H, L))


def theorem_c(H, d, b):
    """Theorem C (i) at L = 2, rounded up."""
    tau, K = (d - b) // 2, min(H, b * b)
    return -((K * H * tau * (d - tau) - b * b * H * (H + 1 + K)) // b)


def test_values_of_wide_heads():
    pairs = {(2, 2): 9, (3, 2): 20, (3, 3): 18, (4, 2): 35, (4, 3): 33, (4, 4): 30, (5, 5): 45, (6, 4): 72}
    for (H, d), m in pairs.items():
        assert theorem_b(H, d) == m < H + 2 * H * H
    assert theorem_a(2, 2, 1) == theorem_b(2, 2) == 9
    assert [deeper(*dims) for dims in ((2, 3), (3, 3), (2, 4))] == [18, 51, 40]
    assert [theorem_a(*dims) for dims in ((2, 3, 1), (3, 3, 1), (2, 4, 1))] == [15, 37, 25]
    assert [own_and_room(H, 3)[0] - own_and_room(H, 3)[1] for H in range(2, 8)] == [
        H * (H - 2) * (H - 3) // 2 for H in range(2, 8)
    ]
    for H in range(2, 7):
        assert deeper(H, 2) == theorem_b(H, H)
        for L in range(2, 6):
            assert theorem_a(H, L, 1) <= deeper(H, L)
    for b in range(2, 5):
        for H in range(2, b * b + 1):
            assert theorem_c(H, b + 1, b) == theorem_c(H, b, b) == b * (H + 2 * H * H) >= theorem_a(H, 2, b)
            assert all(theorem_c(H, d, b) <= b * (H + 2 * H * H) for d in range(b, 4 * b))
    assert theorem_c(2, 3, 2) == 20
    assert (theorem_c(3, 5, 3), theorem_a(3, 2, 3), 3 * (3 + 2 * 9)) == (51, 46, 63)


# --- Theorem B: hosts ------------------------------------------------------------------------------------


def one_row_host(H, d):
    """The page's host at L = 2, b = 1; coordinates are named by what they hold, positions are coordinates."""
    e = min(d, H)
    kept = [("u", i, j) for i in range(H) for j in range(H)]
    kept += [("key", c, j) for c in range(1, e) for j in range(c, H)]
    kept += [("g", h, i) for h in range(H) for i in (e - 1, *range(e, H))] + [("a", h) for h in range(H)]

    def key(i, c):
        return ("u", i, 0) if c == 0 else ("u", c, 0) if i == 0 else ("key", min(i, c), max(i, c))

    positions = {("k", 0): ("u", 0, 0)} | {("q", h, 0): ("a", h) for h in range(H)}
    free = iter(name for name in kept if name not in positions.values())
    wanted = [("q", h, c) for h in range(H) for c in range(1, e)] + [("k", c) for c in range(1, e)]
    positions |= {name: next(free) for name in [*wanted, *(("o", j) for j in range(1, H)), "out"]}
    positions["o", 0] = positions["k", 0]

    def moves(i):
        new = {("q", h, min(i, e - 1)): ("g", h, max(i, e - 1)) for h in range(H)}
        new |= {("k", c): key(i, c) for c in range(e)}
        new |= {("o", j): ("u", i, j) for j in range(1, H)}
        return {positions[name]: old for name, old in new.items()} | {positions["out"]: positions["o", i]}

    def padded(names):
        return [[positions[name]] for name in names] + [[] for _ in range(d - e)]

    query = [padded(("q", h, c) for c in range(e)) for h in range(H)]
    keys = [padded(("k", c) for c in range(e))] * H
    return Host(kept, [query] * 2, [keys] * 2, [[moves(i) for i in range(H)]] * 2, [[positions["out"]]])


def scalars(target):
    """D_i, m_j (and so on) and the forms, b = 1."""
    values = [[int(M[0, 0]) for M in layer] for layer in target.M]
    return values, [[int(A[0, 0]) for A in layer] for layer in target.A]


def reciprocal(value):
    return pow(int(value), -1, PRIME)


def one_row_embedding(host, target, H, d):
    e = min(d, H)
    (D, m), A = scalars(target)
    alpha = m[0] * reciprocal(D[0]) % PRIME
    made = {("u", i, j): D[i] * m[j] for i in range(H) for j in range(H)}
    made |= {name: alpha * D[name[1]] % PRIME * D[name[2]] for name in host.names if name[0] == "key"}
    for h in range(H):
        g = A[1][h] * reciprocal(alpha) % PRIME
        made["g", h, e - 1] = g
        made |= {("g", h, i): g * D[i] % PRIME * reciprocal(D[e - 1]) for i in range(e, H)}
        made["a", h] = 0
    E = np.array([[made[name] % PRIME for name in host.names]], dtype=np.int64)
    queries, keys, _ = host.readings(E)
    for h in range(H):
        missing = (A[0][h] - int(product(queries[0][h][0], keys[0][h][0].T)[0, 0])) * reciprocal(made["u", 0, 0])
        E[0, host.names.index(("a", h))] = missing % PRIME
    return E


@pytest.mark.parametrize(("H", "d"), [(2, 2), (2, 5), (3, 2), (3, 3), (4, 2), (4, 3), (4, 4), (5, 5), (6, 4)])
def test_hosts_of_one_row(H, d):
    host = one_row_host(H, d)
    assert host.m == len(set(host.names)) == theorem_b(H, d)
    rng = np.random.default_rng(H + d)
    for _ in range(3):
        target = drawn_target(rng, H, 2, d, 1)
        E = one_row_embedding(host, target, H, d)
        assert serves(host, E, target)
    assert not any(serves(host, spoilt(E, column), target) for column in range(host.m))


def deeper_host(H, L):
    kept = [("u", w) for w in words(H, L)]
    kept += [("key", c, j, v) for j in range(H) for c in range(1, j + 1) for v in words(H, L - 2)]
    kept += [("g", t, h, v) for t in range(2, L + 1) for h in range(H) for v in words(H, t - 2)] + [
        ("a", h) for h in range(H)
    ]

    def key(j, c, v):
        return ("u", (j, *v, 0)) if c == 0 else ("u", (c, *v, 0)) if j == 0 else ("key", min(j, c), max(j, c), v)

    places = [("o", w) for w in words(H, L - 1)] + [("k", c, v) for c in range(1, H) for v in words(H, L - 2)]
    places += [("q", t, h, v, c) for t in range(2, L + 1) for h in range(H) for v in words(H, t - 2) for c in range(H)]
    names = kept + [("spare", i) for i in range(max(0, len(places) - len(kept)))]
    at = dict(zip(places, names, strict=False))
    at |= {("k", 0, v): at["o", (*v, 0)] for v in words(H, L - 2)}

    def first(j):
        new = {at["o", w]: ("u", (j, *w)) for w in words(H, L - 1)}
        new |= {at["k", c, v]: key(j, c, v) for c in range(H) for v in words(H, L - 2)}
        return new | {
            at["q", t, h, v, j]: ("g", t, h, v) for t in range(2, L + 1) for h in range(H) for v in words(H, t - 2)
        }

    def later(layer, i):
        """What follows the letter i of this layer: it becomes 0 in outputs, keys, and queries of deeper layers."""
        s = layer - 2  # its place in the words after the first letter

        def before(w):
            return (*w[:s], i, *w[s + 1 :])

        new = {at["o", w]: at["o", before(w)] for w in words(H, L - 1) if w[s] == 0}
        if s < L - 2:
            new |= {at["k", c, v]: at["k", c, before(v)] for c in range(H) for v in words(H, L - 2) if v[s] == 0}
        for t, h, c in itertools.product(range(layer + 1, L + 1), range(H), range(H)):
            new |= {at["q", t, h, v, c]: at["q", t, h, before(v), c] for v in words(H, t - 2) if v[s] == 0}
        return new

    zeros = (0,) * (L - 2)
    queries = [[[[("a", h)]] for h in range(H)]]
    queries += [[[[at["q", t, h, zeros[: t - 2], c]] for c in range(H)] for h in range(H)] for t in range(2, L + 1)]
    keys = [[[[("u", (0,) * L)]]] * H] + [[[[at["k", c, zeros]] for c in range(H)]] * H] * (L - 1)
    values = [[first(j) for j in range(H)]] + [[later(t, i) for i in range(H)] for t in range(2, L + 1)]
    return Host(names, queries, keys, values, [[at["o", (0,) * (L - 1)]]])


def deeper_embedding(host, target, H, L):
    M, A = scalars(target)

    def value(word, start=0):
        return functools.reduce(lambda out, step: out * M[start + step[0]][step[1]] % PRIME, enumerate(word), 1)

    top = M[L - 1][0] * reciprocal(M[0][0]) % PRIME
    made = {("u", w): value(w) for w in words(H, L)}
    for name in host.names:
        if name[0] == "key":
            _, c, j, v = name
            made[name] = top * M[0][c] % PRIME * M[0][j] % PRIME * value(v, 1)
        if name[0] == "g":
            _, t, h, v = name
            alpha = top * value((0,) * (L - t), t - 1) % PRIME
            made[name] = A[t - 1][h] * value(v, 1) % PRIME * reciprocal(alpha)
        if name[0] == "a":
            made[name] = A[0][name[1]] * reciprocal(made["u", (0,) * L])
    return np.array([[made.get(name, 0) % PRIME for name in host.names]], dtype=np.int64)


@pytest.mark.parametrize(("H", "L"), [(2, 2), (3, 2), (2, 3), (3, 3), (2, 4), (4, 3)])
def test_deeper_hosts(H, L):
    host = deeper_host(H, L)
    assert host.m == len(set(host.names)) == deeper(H, L)
    target = drawn_target(np.random.default_rng(L), H, L, H, 1)
    E = deeper_embedding(host, target, H, L)
    assert serves(host, E, target)
    used = [i for i, name in enumerate(host.names) if name[0] != "spare"]
    assert not any(serves(host, spoilt(E, column), target) for column in used[:: max(1, len(used) // 12)])


# --- Theorem A: the part of degree one -------------------------------------------------------------------


def part_of_degree_one(H, b, stream, rng, fixed=False):
    """Dimension of the affine (without a stream: linear) maps beta(M) with columns and rows in col D for all M = M^(1,.)."""
    n = (H + stream) * b
    coefficients = H * b * b + stream
    unknowns, rows, D = n * n * coefficients, [], None
    while len(rows) < 2 * unknowns:  # those of one D depend on each other
        if D is None or not fixed:
            D = drawn(rng, H * b, b)
        at = np.concatenate([np.ones(stream, dtype=np.int64), D.ravel()])
        N = null_space(np.concatenate([np.eye(b, dtype=np.int64)] * stream + [D]).T).T
        if not len(N):
            return unknowns
        for r, k in itertools.product(range(len(N)), range(n)):
            for side in range(2):
                row = np.zeros((n, n, coefficients), dtype=np.int64)
                for i in range(n):
                    row[(i, k) if side == 0 else (k, i)] = N[r, i] * at % PRIME
                rows.append(row.ravel())
    return unknowns - rank(np.array(rows))


@pytest.mark.parametrize(("H", "b", "stream"), [(2, 1, 0), (3, 1, 0), (2, 2, 0), (1, 1, 1), (2, 1, 1), (1, 2, 1)])
def test_degree_one_part(H, b, stream):
    """None but 0, with H = 1 for a stream too; without one H = 1 says nothing, and neither does a single D."""
    rng = np.random.default_rng(7)
    assert part_of_degree_one(H, b, stream, rng) == 0
    assert part_of_degree_one(H, b, stream, rng, fixed=True) > 0
    assert part_of_degree_one(1, b, 0, rng) == b**4


# --- Theorem C -------------------------------------------------------------------------------------------


def phi(H, b, w, v):
    return (H - v) * (b * w - v) - w * (b - w)


def counted(H, b):
    return all(phi(H, b, w, v) > 0 for w in range(1, b + 1) for v in range(H) if v * b < H * w)


def test_a_limit_of_smaller_hosts():
    """(1,2,2,1) with a stream: six coordinates, one below the bound, are off by delta A^1 / M^1 in layer 2 and nowhere else."""
    read = np.eye(6, dtype=int)  # 1, M^2, M^1, M^1 M^2, f, g
    moved = {1: np.zeros((6, 6), dtype=int), 2: np.zeros((6, 6), dtype=int)}
    for there, here in ((0, 2), (1, 3), (4, 5)):
        moved[1][here, there] = 1
    moved[2][1, 0] = 1
    for A1, A2, M1, M2 in ((3, -5, 7, 2), (1, 1, -2, 9)):
        for delta in (Fraction(1, 10), Fraction(1, 10**6)):
            wrong = delta * A1 / M1
            E = np.array([1, M2, M1, M1 * M2, A2 + wrong, A2 * M1], dtype=object)
            rows = [E, E @ moved[1]]
            outputs = [row @ step @ read[:, 0] for row in rows for step in (np.eye(6, dtype=int), moved[2])]
            assert outputs == [1, M2, M1, M1 * M2]
            assert (E[4] * E[2] - E[5] * E[0]) / delta == A1
            forms = [[row[4] * other[0] for other in rows] for row in rows]
            assert forms == [[A2 + wrong, (A2 + wrong) * M1], [A2 * M1, A2 * M1 * M1]]


def test_dimension_count_is_positive():
    for b in range(1, 13):
        assert all(counted(H, b) for H in range(1, b * b + 1))
        assert not any(counted(H, b) for H in range(b * b + 1, b * b + 6))


def certified(H, b, rng):
    """A nonsingular sum of Delta_r (x) T_r, sizes H b: then no W has a small image, whatever the field."""
    total = np.zeros((H * b, H * b), dtype=np.int64)
    for _ in range(b):
        total = (total + np.kron(drawn(rng, H, b), drawn(rng, b, H))) % PRIME
    return rank(total) == H * b


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_semistable_representations(b):
    rng = np.random.default_rng(b)
    for H in range(1, b * b + 3):
        assert certified(H, b, rng) == (b * b >= H)


def spread(matrices, rng):
    """Certificate: sum_r Delta_r (x) T_r is nonsingular, row k of Delta_r being row r of the k-th matrix."""
    K, b = len(matrices), len(matrices[0])
    total = np.zeros((K * b, K * b), dtype=np.int64)
    for r in range(b):
        total = (total + np.kron(np.stack([N[r] for N in matrices]), drawn(rng, b, K))) % PRIME
    return rank(total) == K * b


def lemma_words(H, q, b):
    """The words of Lemma 1: both halves, read in base H, below b (q = 1: the first b^2 letters)."""
    if q == 1:
        return [(i,) for i in range(min(H, b * b))]
    half = (q + 1) // 2

    def number(part):
        return sum(letter * H**t for t, letter in enumerate(part))

    return [w for w in words(H, q) if number(w[:half]) < b and number(w[half:]) < b]


def spread_words(H, q, b):
    """The lower bound for K_q."""
    return max([1] + [len(lemma_words(H, n, b)) for n in range(1, q + 1)])


SPREAD = [(2, 2, 2), (2, 3, 3), (2, 3, 4), (2, 4, 4), (3, 2, 3), (2, 3, 2), (3, 2, 2), (5, 1, 2), (4, 2, 3), (3, 3, 2)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("H", "q", "b"), SPREAD)
def test_products_are_spread(H, q, b, stream):
    """H letters; with a stream the letter 0 has the value I."""
    rng = np.random.default_rng(H + q + b)
    M = [[drawn(rng, b, b) for _ in range(H)] for _ in range(q)]
    if stream:
        M = [[np.eye(b, dtype=np.int64), *layer[1:]] for layer in M]
    chosen = lemma_words(H, q, b)
    if q > 1:
        assert len(chosen) == min(b, H ** ((q + 1) // 2)) * min(b, H ** (q // 2))
    assert len(chosen) <= min(H**q, b * b)
    assert spread([along(M, w, b) for w in chosen], rng)
    assert spread([along(M, w, b) for w in words(H, q)], rng) == (H**q <= b * b)
    if q > 1:
        M[0][1] = M[0][0]
        assert not spread([along(M, w, b) for w in chosen], rng)


@pytest.mark.parametrize("b", [2, 3, 4])
def test_clock_and_shift(b):
    """b^2 f(S) >= |S| b dim W for random W and S, and left translates have equal f; modulo a prime with b-th roots of unity."""
    p = next(q for q in range(10_000 // b * b + 1, 40_000, b) if all(q % n for n in range(2, 200)))
    root = next(
        r for r in (pow(g, (p - 1) // b, p) for g in range(2, 100)) if all(pow(r, n, p) != 1 for n in range(1, b))
    )
    rng = np.random.default_rng(b)
    shift = np.roll(np.eye(b, dtype=np.int64), 1, axis=0)
    element = {
        (a, c): np.linalg.matrix_power(shift, a) @ np.diag([pow(root, c * k, p) for k in range(b)])
        for a in range(b)
        for c in range(b)
    }

    def f(chosen, W):
        rows = [[int(v) % p for v in (element[g] @ W).ravel()] for g in chosen]
        return flint.nmod_mat(len(rows), len(rows[0]), [v for row in rows for v in row], p).rank()

    for _ in range(40):
        w, size = rng.integers(1, b + 1), rng.integers(1, b * b + 1)
        W = np.array(rng.integers(0, 3, size=(b, w)) if rng.integers(2) else rng.integers(0, p, size=(b, w)))
        W = W @ np.diag(rng.integers(1, 3, size=w))
        dimension = flint.nmod_mat(b, int(w), [int(v) % p for v in W.ravel()], p).rank()
        chosen = [tuple(divmod(int(g), b)) for g in rng.choice(b * b, size=size, replace=False)]
        assert f(list(element), W) == b * dimension
        assert b * f(chosen, W) >= size * dimension
        a, c = rng.integers(0, b, size=2)
        assert f(chosen, W) == f([((g + a) % b, (h + c) % b) for g, h in chosen], W)
    # one matrix many times is not spread
    assert b * f([(0, 0)] * (b + 1), np.eye(b, dtype=np.int64)) < (b + 1) * b


def theorem_c_deep(H, L, b, d=None):
    """(i) with Lemma 1's numbers, rounded up; d = b + 1 unless given."""
    d = b + 1 if d is None else d
    tau, K = (d - b) // 2, [spread_words(H, q, b) for q in range(L)]
    return -((H * tau * (d - tau) * sum(K[1:]) - b * b * (H**L + H * sum(K))) // b)


def test_count_of_layers():
    for dims, m in {(2, 2, 2): 20, (2, 3, 2): 44, (2, 3, 3): 66, (3, 2, 2): 42, (2, 3, 4): 88}.items():
        H, L, b = dims
        assert theorem_c_deep(*dims) == b * (powers(H, 1, L) + H**L) == m
    assert (theorem_c_deep(5, 2, 2), theorem_a(5, 2, 2), 2 * (30 + 25)) == (100, 71, 110)
    for dims, m in {(2, 2, 2): 34, (1, 2, 2): 14}.items():
        H, L, b = dims
        assert (
            b * (H + 1) ** L + b * H * sum(spread_words(H + 1, q, b) for q in range(L))
            == b * (2 * (H + 1) ** L - 1)
            == m
        )
    assert 3 * (powers(2, 1, 4) + 2**4) == 138 > theorem_c_deep(2, 4, 3) == 138 - 6 * 2
    for H, L, b in itertools.product(range(2, 5), range(2, 6), range(1, 6)):
        assert theorem_c_deep(H, L, b) <= b * (powers(H, 1, L) + H**L)
        exact = all(spread_words(H, q, b) == H**q for q in range(L))
        assert exact == (theorem_c_deep(H, L, b) == b * (powers(H, 1, L) + H**L))
        named = H <= b * b if L == 2 else H ** (L - 1) <= b * b if L % 2 else H ** (L // 2) <= b
        assert exact or not named
        if b > 1:
            assert theorem_c_deep(H, L, b) >= theorem_a(H, L, b)
    for H, b, d in itertools.product(range(2, 12), range(1, 4), range(1, 9)):
        if d >= b:
            assert theorem_c_deep(H, 2, b, d) == theorem_c(H, d, b)
    # summation by parts: among all omega with these tails the least sum has equal omegas
    rng = np.random.default_rng(12)
    for _ in range(50):
        L = int(rng.integers(2, 6))
        steps = np.sort(rng.integers(0, 9, size=L - 1))
        omega = rng.integers(0, 12, size=L - 1)
        tails = np.cumsum(omega[::-1])[::-1]
        unit = min(tail / count for tail, count in zip(tails, range(L - 1, 0, -1), strict=True))
        assert steps @ omega >= steps.sum() * unit - 1e-9
    assert [1, 0] @ np.array([0, 2]) < 1  # with weights that fall it is false


def subspaces(b, p):
    """Bases of all nonzero subspaces of F_p^b, as reduced echelon matrices."""
    for w in range(1, b + 1):
        for pivots in itertools.combinations(range(b), w):
            free = [(i, j) for i in range(w) for j in range(pivots[i] + 1, b) if j not in pivots]
            for entries in itertools.product(range(p), repeat=len(free)):
                basis = np.zeros((w, b), dtype=np.int64)
                basis[range(w), pivots] = 1
                for place, value in zip(free, entries, strict=True):
                    basis[place] = value
                yield basis


@pytest.mark.parametrize(("b", "p"), [(2, 11), (3, 5)])
def test_images_of_all_subspaces(b, p):
    """Some Delta over a small field have all images large, H <= b^2; none has for H > b^2."""
    rng = np.random.default_rng(8)

    def small_rank(matrix):
        return flint.nmod_mat(*matrix.shape, [int(v) % p for v in matrix.ravel()], p).rank()

    for H in range(1, b * b + 2):
        good = False
        for _ in range(4):
            Delta = rng.integers(0, p, size=(b, H, b))
            good = good or all(
                b * small_rank(np.concatenate([basis @ step.T for step in Delta])) >= H * len(basis)
                for basis in subspaces(b, p)
            )
        assert good == (b * b >= H)


def test_recursion_for_subrepresentations():
    """Schofield: a general representation has a subrepresentation of dimension beta iff ext(beta, alpha - beta) = 0."""
    for b in range(1, 4):

        def euler(x, y, b=b):
            return x[0] * y[0] + x[1] * y[1] - b * x[0] * y[1]

        @functools.cache
        def ext(x, y):
            return max(-euler(sub, y) for sub in parts(x))

        @functools.cache
        def parts(x):
            every = itertools.product(range(x[0] + 1), range(x[1] + 1))
            return [s for s in every if s in ((0, 0), x) or ext(s, (x[0] - s[0], x[1] - s[1])) == 0]

        for H in range(1, b * b + 4):
            semistable = all(v * b >= H * w for w, v in parts((b, H)))
            assert semistable == (b * b >= H)


@pytest.mark.parametrize(("H", "b", "d"), [(2, 2, 4), (2, 2, 6), (3, 1, 4), (2, 1, 2), (2, 3, 4)])
def test_row_spaces(H, b, d):
    """X = [D x, X', 0], Y = [D y, 0, Y'] in any gauge: dim V_X + dim V_Y = d - b, and no more."""
    rng = np.random.default_rng(d)
    D, A = drawn(rng, H * b, b), drawn(rng, b, b)
    N = null_space(D.T).T
    room = len(N)
    for s in range(d - b + 1):
        t = d - b - s
        x, gauge = drawn(rng, b, b), drawn(rng, d, d)
        X = np.concatenate([product(D, x), drawn(rng, H * b, s), np.zeros((H * b, t), dtype=np.int64)], axis=1)
        Y = np.concatenate(
            [product(D, A.T, inverse(x).T), np.zeros((H * b, s), dtype=np.int64), drawn(rng, H * b, t)], axis=1
        )
        X, Y = product(X, gauge), product(Y, inverse(gauge).T)
        assert (product(X, Y.T) == product(D, A, D.T)).all()
        sizes = rank(product(N, X)), rank(product(N, Y))
        assert sizes == (min(s, room), min(t, room))
        assert (product(X, product(N, Y).T) == 0).all()
        # the derivative's lemma: Y p is in col D for p orthogonal to V_Y
        p = null_space(product(N, Y)) if sizes[1] else np.eye(d, dtype=np.int64)
        assert rank(np.concatenate([D, product(Y, p)], axis=1)) == b


def shared_query_parts(H, b, d, rng):
    """The shared-query host at L = 2, as a Host, with an embedding and its target."""
    widths = {("O", w): b for w in words(H, 2)} | {("K", w): b for t in (1, 2) for w in words(H, t)}
    names = [(block, i) for block, width in widths.items() for i in range(width)]

    def moves(h):
        new = {("O", (v, 0)): ("O", (h, v)) for v in range(H)} | {("K", (w,)): ("K", (h, w)) for w in range(H)}
        return {(x, i): (y, i) for x, y in new.items() for i in range(b)}

    def padded(block):
        return [[(block, i)] for i in range(b)] + [[] for _ in range(d - b)]

    keys = [padded(("K", (h,))) for h in range(H)]
    host = Host(
        names,
        [[padded(("O", (0, 0)))] * H] * 2,
        [keys] * 2,
        [[moves(h) for h in range(H)]] * 2,
        padded(("O", (0, 0)))[:b],
    )
    target = drawn_target(rng, H, 2, d, b)
    blocks = {("O", w): along(target.M, w, b) for w in words(H, 2)}
    for t, w in itertools.chain(((1, w) for w in words(H, 1)), ((2, w) for w in words(H, 2))):
        Y = along(target.M[t - 1 :], (0,) * (3 - t), b)
        blocks["K", w] = product(along(target.M, w[:-1], b), target.A[t - 1][w[-1]].T, inverse(Y).T)
    E = np.stack([blocks[block][:, i] for block, i in names], axis=1)
    return host, E, target


def test_count_at_a_solution():
    """(2,2,3,2): the tangent space over fixed values, its parts, the ranks, and equality in the count of Theorem C."""
    H, b, d = 2, 2, 3
    host, E, target = shared_query_parts(H, b, d, np.random.default_rng(11))
    assert serves(host, E, target)
    m = host.m
    assert m == theorem_c(H, d, b) == 20
    k = m - b * H * H
    D = np.concatenate(target.M[0])
    X, Y, _ = host.readings(E)
    RX, RY, RU = host.readings(np.eye(m, dtype=np.int64))
    fixed = np.concatenate(list(RU), axis=1)  # m x b H^2
    over = null_space(fixed.T)  # rows v = c over^T with c in R^(b x k)
    assert over.shape == (m, k)
    x, y = ([part[1][h].reshape(H * b, d) for h in range(H)] for part in (X, Y))
    rx, ry = ([[product(over.T, part[1][h][j]) for j in range(H)] for h in range(H)] for part in (RX, RY))

    def derivative(i, j):
        """[d(form of head h) for the unit step (i, j)], layer 2."""
        out = []
        for h in range(H):
            steps = []
            for part in (rx, ry):
                step = np.zeros((H, b, d), dtype=np.int64)
                step[:, i] = np.stack([part[h][word][j] for word in range(H)])
                steps.append(step.reshape(H * b, d))
            out.append((product(steps[0], y[h].T) + product(x[h], steps[1].T)) % PRIME)
        return np.concatenate([form.ravel() for form in out])

    unknowns = [derivative(i, j) for i in range(b) for j in range(k)]
    for h, p, q in itertools.product(range(H), range(b), range(b)):
        change = np.zeros((H, H * b, H * b), dtype=np.int64)
        change[h] = -np.outer(D[:, p], D[:, q]) % PRIME
        unknowns.append(change.ravel() % PRIME)
    tangent = null_space(np.array(unknowns).T)
    assert rank(tangent) == 2 * H * b * b == tangent.shape[1]
    keys = np.concatenate([ry[h][j] for h in range(H) for j in range(H)], axis=1)
    # eta: keys are D y, so a step's change of keys determines it
    moved = np.array([[product(v[: b * k].reshape(b, k), keys).ravel()] for v in tangent.T]).reshape(
        tangent.shape[1], -1
    )
    w_1 = rank(moved)
    kernel = product(tangent, null_space(moved.T))
    w_0 = rank(kernel[b * k :])
    rho_1 = rank(keys)
    rest = null_space(keys.T)
    queries = np.concatenate([rx[h][j] for h in range(H) for j in range(H)], axis=1)
    rho_0 = rank(product(rest.T, queries))
    assert (w_1, w_0, rho_1, rho_0) == (H * b * b, 0, H * H * b, 0)
    assert b * rho_1 >= H * w_1
    assert 2 * H * b * b == w_1 + w_0 + b * (k - rho_1 - rho_0)
    assert Fraction(b * k) == 2 * H * b * b + (H - 1) * H * b * b
