"""The finite steps of docs/proofs/sharper-frontier.md, exactly: hosts, Jacobians and spans modulo a prime."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from residue_hosts import (
    PRIME,
    Host,
    along,
    drawn,
    drawn_target,
    inverse,
    jacobian_rank,
    product,
    rank,
    serves,
    solve,
    spoilt,
    words,
)

# --- the bounds ------------------------------------------------------------------------------------------


def kappa(rho, d):
    return 2 * d * rho - d * d


def powers(H, first, last):
    return sum(H**t for t in range(first, last + 1))


def fibre(H, L, d, b, rho=None):
    """F_L(rho), rho = b unless given: Theorem A where H d < b, else attention-matching-optimum.md."""
    rho = b if rho is None else rho
    forms = H * kappa(rho, d)
    if L == 1:
        return H * rho * b + forms
    if H * d < b:
        return Fraction(rho, d) * fibre(H, L - 1, d, b, H * d) + forms
    return H * fibre(H, L - 1, d, b, rho) + forms


def bound_a(H, L, d, b):
    S, r = powers(H, 1, L), min(H * d, b)
    return b * H**L + 2 * d * S - d * d * (Fraction(H, b) + Fraction(S - H, r))


def host_b(H, L, d, b):
    S, g = powers(H, 1, L), -(-b // d)
    return b * H**L + 2 * d * S - d * (H // g) - d * (H // min(g, H)) * (S - H) // H


def growth(H, d, b):
    """How much more room a layer with a stream has than the next."""
    return H + 1 if (H + 1) * d >= b else Fraction(b, b - H * d)


def fibre_stream(H, L, d, b):
    """F_L: by the recursion of the outputs and of the forms."""
    forms = (
        H * kappa(b, d)
        if L == 1
        else growth(H, d, b) * (fibre_stream(H, L - 1, d, b) - b * b * (H + 1) ** (L - 1)) + H * kappa(b, d)
    )
    return b * b * (H + 1) ** L + forms


def bound_c(H, L, d, b):
    return b * (H + 1) ** L + H * (2 * d - Fraction(d * d, b)) * sum(growth(H, d, b) ** t for t in range(L))


def host_c(H, L, d, b):
    g, readers = -(-b // d), (H + 1) ** L - 1
    return b * (H + 1) ** L + 2 * d * readers - d * (H // g) * readers // H


def test_values_of_the_bounds():
    for H, L, b in itertools.product(range(1, 5), range(1, 5), range(1, 7)):
        for d in range(1, b + 1):
            assert fibre(H, L, d, b) == b * bound_a(H, L, d, b)
            assert host_b(H, L, d, b) >= bound_a(H, L, d, b)
            S = powers(H, 1, L)
            if H * d < b:
                assert host_b(H, L, d, b) == b * H**L + 2 * d * H + d * (2 * H - 1) * powers(H, 1, L - 1)
            attained = host_b(H, L, d, b) < bound_a(H, L, d, b) + 1
            if b % d == 0 and H % (b // d) == 0:
                assert host_b(H, L, d, b) == bound_a(H, L, d, b) == b * H**L + S * (2 * d - Fraction(d * d, b))
            elif (d == 1 and L == 1) or H * d * d < b:
                assert attained
            assert fibre_stream(H, L, d, b) == b * bound_c(H, L, d, b)
            assert host_c(H, L, d, b) >= bound_c(H, L, d, b)
            if (H + 1) * d >= b:
                assert bound_c(H, L, d, b) == b * (H + 1) ** L + (2 * d - Fraction(d * d, b)) * ((H + 1) ** L - 1)
            else:  # above the count of the families alone
                assert (bound_c(H, L, d, b) - b * (H + 1) ** L) * b >= L * H * kappa(b, d)
            if b % d == 0 and H % (b // d) == 0:
                assert host_c(H, L, d, b) == bound_c(H, L, d, b)
            if L == d == 1:
                assert host_c(H, L, d, b) == math.ceil(bound_c(H, L, d, b)) == b * (H + 1) + 2 * H - H // b
    exact = {(2, 1, 1, 2): 7, (4, 1, 1, 2): 14, (5, 1, 1, 3): 24, (2, 2, 1, 2): 17, (2, 3, 1, 2): 37}
    exact |= {(4, 2, 1, 2): 62, (1, 2, 1, 2): 5, (2, 2, 1, 3): 22, (2, 4, 30, 30): 1380, (2, 2, 1, 1): 10}
    for dims, m in exact.items():
        assert host_b(*dims) == math.ceil(bound_a(*dims)) == m
    for dims, m, low in [((2, 2, 28, 30), 372, 300), ((2, 3, 28, 30), 828, 659), ((3, 2, 1, 2), 38, 36)]:
        assert (host_b(*dims), math.ceil(bound_a(*dims))) == (m, low)
    assert (math.ceil(bound_c(1, 2, 1, 3)), host_c(1, 2, 1, 3)) == (17, 18)
    for dims, m in {(1, 2, 1, 1): 7, (2, 2, 1, 1): 17, (2, 3, 1, 1): 53}.items():
        assert host_c(*dims) == bound_c(*dims) == m


# --- hosts -----------------------------------------------------------------------------------------------


def columns(block, width):
    return [[(block, i)] for i in range(width)]


def added(*readers):
    return [list(itertools.chain(*parts)) for parts in zip(*readers, strict=True)]


def split(H, g):
    """{head: its group} for the last heads of full groups of g."""
    return {first + g - 1: range(first, first + g) for first in range(0, H - g + 1, g)}


def theorem_b_host(H, L, d, b):
    g = -(-b // d)
    last = [split(H, g)] + [split(H, min(g, H))] * (L - 1)
    widths = {("O", w): b for w in words(H, L)}
    widths |= {("K", w): d for t in range(1, L + 1) for w in words(H, t)}
    widths |= {("Q", w): d for t in range(1, L + 1) for w in words(H, t) if w[-1] not in last[t - 1]}
    names = [(block, i) for block, width in widths.items() for i in range(width)]

    def values(h):
        moves = {("O", (*v, 0)): ("O", (h, *v)) for v in words(H, L - 1)}
        moves |= {(kind, w): (kind, (h, *w)) for kind, w in widths if kind != "O" and (kind, (h, *w)) in widths}
        return {(new, i): (old, i) for new, old in moves.items() for i in range(widths[new])}

    def query(h):
        groups = [layer[h] for layer in last if h in layer]
        if not groups:
            return columns(("Q", (h,)), d)
        parts = [columns(("O", (0,) * L), d)] + [columns(("Q", (x,)), d) for x in groups[-1] if x != h]
        return added(*parts, *([columns(("Q", (h,)), d)] if ("Q", (h,)) in widths else []))

    layers = range(L)
    return Host(
        names,
        [[query(h) for h in range(H)] for _ in layers],
        [[columns(("K", (h,)), d) for h in range(H)] for _ in layers],
        [[values(h) for h in range(H)] for _ in layers],
        columns(("O", (0,) * L), b),
    ), last


def gauges(target, H, L, d, b, last, read, rng):
    """G[l][h] with (3); read[l]: u_l, the first d columns of what all queries of the last heads have for nothing."""
    G = [[drawn(rng, d, d) for _ in range(H)] for _ in range(L)]
    for layer, groups in enumerate(last):
        for h, group in groups.items():
            q = np.concatenate([target.factors[layer][x][0] for x in group], axis=1)
            right = read[layer]
            if len(group) * d < b:  # one group of H: modulo the kernel of all M_w
                stacked = np.concatenate([target.factors[layer - 1][x][3] for x in group])
                q, right = product(stacked, q), product(stacked, right)
            full = np.concatenate([-G[layer][x] if x != h else G[layer][x] for x in group]) % PRIME
            size = len(q)
            full[:size] = solve(q[:, :size], (right - product(q[:, size:], full[size:])) % PRIME)
            for at, x in enumerate(group):
                G[layer][x] = full[at * d : at * d + d] * (1 if x == h else -1) % PRIME
    return G


def theorem_b_embedding(host, last, target, H, L, d, b, rng):
    Y = [along(target.M[layer:], (0,) * (L - layer), b) for layer in range(L)]
    G = gauges(target, H, L, d, b, last, [y[:, :d] for y in Y], rng)
    blocks = {}
    for kind, w in dict.fromkeys(block for block, _ in host.names):
        M = along(target.M, w if kind == "O" else w[:-1], b)
        if kind == "O":
            blocks[kind, w] = M
            continue
        W_Q, W_K, *_ = target.factors[len(w) - 1][w[-1]]
        gauge = G[len(w) - 1][w[-1]]
        if kind == "K":
            blocks[kind, w] = product(M, W_K, inverse(gauge).T)
        else:
            blocks[kind, w] = product(M, W_Q, gauge)
    # a last head with a block of its own at layer 1
    for h in range(H):
        if ("Q", (h,)) in blocks and any(h in layer for layer in last):
            others = sum(blocks["Q", (x,)] for x in range(h))
            W_Q, W_K, *_ = target.factors[0][h]
            blocks["Q", (h,)] = (W_Q - Y[0][:, :d] - others) % PRIME
            blocks["K", (h,)] = W_K
    return np.stack([blocks[block][:, i] for block, i in host.names], axis=1)


B_SHAPES = [
    (2, 1, 1, 2),
    (5, 1, 1, 3),
    (2, 2, 1, 1),
    (2, 2, 1, 2),
    (1, 2, 1, 2),
    (2, 2, 1, 3),
    (1, 3, 1, 2),
    (2, 2, 2, 3),
]
B_SHAPES += [(3, 2, 1, 2), (2, 2, 2, 5), (2, 3, 1, 2), (4, 2, 1, 2), (3, 2, 1, 4), (2, 3, 1, 3)]


def b_host(dims, seed=0):
    rng = np.random.default_rng(seed)
    host, last = theorem_b_host(*dims)
    target = drawn_target(rng, *dims)
    return host, theorem_b_embedding(host, last, target, *dims, rng), target


def theorem_c_host(H, L, d, b):
    g = -(-b // d)
    last, lam = split(H, g), H + 1
    widths = {("O", w): b for w in words(lam, L)}
    for layer, h, kind in itertools.product(range(L), range(H), "KQ"):
        if kind == "K" or h not in last:
            widths |= {(kind, layer, h, w): d for w in words(lam, layer)}
    names = [(block, i) for block, width in widths.items() for i in range(width)]

    def values(t, letter):
        moves = {}
        for block, width in widths.items():
            w = block[-1]
            if len(w) > t and w[t] == letter:
                new = (*block[:-1], (*w[:t], 0, *w[t + 1 :]))
                moves |= {(new, i): (block, i) for i in range(width)}
        return moves

    def query(layer, h):
        if h not in last:
            return columns(("Q", layer, h, (0,) * layer), d)
        return added(
            columns(("O", (0,) * L), d), *(columns(("Q", layer, x, (0,) * layer), d) for x in last[h] if x != h)
        )

    return Host(
        names,
        [[query(layer, h) for h in range(H)] for layer in range(L)],
        [[columns(("K", layer, h, (0,) * layer), d) for h in range(H)] for layer in range(L)],
        [[None] + [values(t, i) for i in range(1, lam)] for t in range(L)],
        columns(("O", (0,) * L), b),
    ), [last] * L


def c_host(dims, seed=0):
    H, L, d, b = dims
    rng = np.random.default_rng(seed)
    host, last = theorem_c_host(*dims)
    target = drawn_target(rng, *dims, stream=True)
    G = gauges(target, H, L, d, b, last, [np.eye(b, d, dtype=np.int64)] * L, rng)
    blocks = {}
    for block in dict.fromkeys(block for block, _ in host.names):
        M = along(target.M, block[-1], b)
        if block[0] == "O":
            blocks[block] = M
        else:
            kind, layer, h, _ = block
            W_Q, W_K, *_ = target.factors[layer][h]
            blocks[block] = product(M, W_K, inverse(G[layer][h]).T) if kind == "K" else product(M, W_Q, G[layer][h])
    return host, np.stack([blocks[block][:, i] for block, i in host.names], axis=1), target


C_SHAPES = [
    (1, 2, 1, 1),
    (2, 2, 1, 1),
    (2, 1, 1, 2),
    (2, 2, 1, 2),
    (1, 1, 1, 3),
    (1, 2, 2, 3),
    (3, 1, 2, 3),
    (1, 3, 1, 1),
]


@pytest.mark.parametrize("dims", [("B", *dims) for dims in B_SHAPES] + [("C", *dims) for dims in C_SHAPES])
def test_hosts_serve_random_targets(dims):
    kind, *shape = dims
    host, E, target = (b_host if kind == "B" else c_host)(shape)
    assert host.m == (host_b if kind == "B" else host_c)(*shape)
    assert serves(host, E, target)
    other = drawn_target(np.random.default_rng(9), *shape, stream=kind == "C")
    assert not serves(host, E, other)
    for column in range(0, host.m, max(1, host.m // 5)):
        assert not serves(host, spoilt(E, column), target)


JACOBIANS = [
    ("B", 2, 1, 1, 2),
    ("B", 2, 2, 1, 1),
    ("B", 2, 2, 1, 2),
    ("B", 1, 2, 1, 2),
    ("B", 2, 2, 1, 3),
    ("C", 1, 2, 1, 1),
    ("C", 2, 1, 1, 2),
]
JACOBIANS += [
    ("C", 1, 2, 1, 3),
    ("B", 2, 2, 2, 5),
    ("B", 2, 3, 1, 2),
    ("B", 3, 2, 1, 4),
    ("B", 2, 3, 1, 3),
    ("B", 3, 2, 1, 2),
    ("C", 2, 2, 1, 2),
    ("C", 1, 2, 2, 3),
]


@pytest.mark.parametrize("dims", JACOBIANS)
def test_jacobian_reaches_the_bound(dims):
    """Rank >= F_L at a solution; so solutions form no more dimensions than the bound allows."""
    kind, *shape = dims
    host, E, _ = (b_host if kind == "B" else c_host)(shape)
    least = fibre(*shape) if kind == "B" else fibre_stream(*shape)
    found = jacobian_rank(host, E)
    assert least <= found <= E.size
    if host.m == (bound_a if kind == "B" else bound_c)(*shape):
        assert found == least == E.size


# --- steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "d", "b"), [(2, 1, 2), (1, 1, 3), (3, 1, 2), (2, 2, 3)])
def test_base_cases_span(H, d, b):
    rng = np.random.default_rng(1)
    for rho in {b, max(d, min(H * d, b))}:
        plain, stream = [], []
        for _ in range((H + 1) * b * b + 2):
            M = [product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H)]
            front, G = drawn(rng, rho, b), drawn(rng, b, b)
            plain.append(np.concatenate([product(front, m) for m in M]).ravel())
            stream.append(np.concatenate([G, *(product(G, m) for m in M)]).ravel())
        assert rank(np.array(plain)) == H * rho * b
        assert rank(np.array(stream)) == (H + 1) * b * b
        fixed = [np.concatenate([np.eye(b, dtype=np.int64).ravel(), row[b * b :]]) for row in stream]
        assert rank(np.array(fixed)) == H * b * b + 1  # without a matrix in front M_{0...0} = I does not vary


@pytest.mark.parametrize(("H", "rho", "d", "n"), [(2, 3, 2, 2), (2, 4, 2, 1), (3, 3, 1, 2), (1, 4, 3, 2), (2, 2, 2, 2)])
def test_room_of_random_spaces(H, rho, d, n):
    """dim pi >= (rho/d) dim P_B for random B and random spaces; equality for spaces that are products over the rows."""
    rng = np.random.default_rng(2)
    size = H * rho * n
    for dimension in range(0, size + 1, max(1, size // 6)):
        space = drawn(rng, dimension, size)
        assert rho * room(rng, space, H, rho, d, n) <= d * rank(space)
    # {(row-wise copies of a fixed subspace of R^(H x n))}
    kept = drawn(rng, max(1, H * n // 2), H, n)
    rows = []
    for r, part in itertools.product(range(rho), kept):
        element = np.zeros((H, rho, n), dtype=np.int64)
        element[:, r] = part
        rows.append(element.ravel())
    space = np.array(rows)
    eye = [np.eye(rho, d, dtype=np.int64)] * H
    found = room(rng, space, H, rho, d, n, eye)
    assert rho * found == d * rank(space)
    assert (rho + 1) * found > d * rank(space)  # a larger factor would be false


@pytest.mark.parametrize(("H", "d", "b", "n"), [(1, 1, 3, 2), (2, 1, 4, 1), (1, 2, 5, 1), (1, 1, 2, 2)])
def test_room_of_random_spaces_with_a_stream(H, d, b, n):
    """dim pi_0 >= b/(b - H d) dim P_C for random spaces; equality for products that live in block 0, and no larger factor."""
    rng, lam = np.random.default_rng(4), H + 1
    parts = [drawn(rng, b, b), *(product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H))]
    size = lam * b * n
    for dimension in range(0, size + 1, max(1, size // 6)):
        space = drawn(rng, dimension, size)
        assert b * stream_room(space, parts, n) <= (b - H * d) * rank(space)
    rows = [np.eye(1, size, r * n + c, dtype=np.int64)[0] for r in range(b) for c in range(n)]
    at = [range(b - H * d), *(range(b - (H - i) * d, b - (H - i - 1) * d) for i in range(H))]
    chosen = [np.diag([int(r in part) for r in range(b)]) for part in at]
    found = stream_room(np.array(rows), chosen, n)
    assert b * found == (b - H * d) * len(rows)
    assert stream_room(np.array(rows), parts, n) <= found


def stream_room(space, parts, n):
    """dim {p : C p in the span of the rows of space}, C = parts stacked."""
    C, b = np.concatenate(parts), len(parts[0])
    images = np.array([(C @ np.eye(1, b * n, j, dtype=np.int64).reshape(b, n) % PRIME).ravel() for j in range(b * n)])
    return b * n + rank(space) - rank(np.concatenate([images, space]))


def room(rng, space, H, rho, d, n, blocks=None):
    """dim {p : B p in the span of the rows of space}."""
    B = np.zeros((H * rho, H * d), dtype=np.int64)
    for i in range(H):
        B[i * rho : i * rho + rho, i * d : i * d + d] = drawn(rng, rho, d) if blocks is None else blocks[i]
    images = []
    for j in range(H * d * n):
        p = np.zeros((H * d, n), dtype=np.int64)
        p.ravel()[j] = 1
        images.append((B @ p % PRIME).ravel())
    return len(images) + rank(space) - rank(np.concatenate([np.array(images), space]))


@pytest.mark.parametrize(
    ("H", "d", "b"), [(1, 1, 2), (1, 1, 3), (2, 1, 3), (2, 1, 4), (1, 2, 3), (1, 2, 5), (3, 2, 8), (3, 2, 9)]
)
def test_side_by_side_with_a_stream(H, d, b):
    rng, lam = np.random.default_rng(3), H + 1
    tall = [
        np.concatenate([drawn(rng, b, b), *(product(drawn(rng, b, d), drawn(rng, d, b)) for _ in range(H))])
        for _ in range(lam)
    ]
    assert (rank(np.concatenate(tall, axis=1)) == lam * b) == (lam * d >= b)
    if lam * d >= b:
        D = [np.diag([int(a // d == s) for a in range(b)]) for s in range(lam)]
        whole = np.block([[D[(i + k) % lam] for k in range(lam)] for i in range(lam)])
        assert (whole.sum(axis=0) == 1).all()
        assert (whole.sum(axis=1) == 1).all()


def no_scales(l0, k0, l1, k1, gamma, p):
    """No s, t != 0 solve (5) for either permutation; l, k the coefficients of queries and keys."""
    for s, t in itertools.product(range(1, p), repeat=2):
        s_, t_ = pow(s, -1, p), pow(t, -1, p)
        same = (l0 * s + l1 * t) % p == 0 and (k0 * s_ + gamma * k1 * t_) % p == 0
        other = (l0 * t + l1 * s) % p == 0 and (gamma * k0 * t_ + k1 * s_) % p == 0
        if same or other:
            return False
    return True


def test_one_layer_no_scales():
    """Theorem D (i), last case, modulo 31: every gamma but the two named ones works; the named ones do not."""
    p = 31
    for l0, k0, l1, k1 in [(1, 1, 1, 1), (1, 2, 3, 4), (5, 7, 11, 13), (2, 3, 30, 17), (1, 1, 1, 30)]:
        named = {l0 * k0 * pow(l1 * k1, -1, p) % p, l1 * k1 * pow(l0 * k0, -1, p) % p}
        assert {gamma for gamma in range(1, p) if not no_scales(l0, k0, l1, k1, gamma, p)} == named
    # one coefficient zero: no gamma fails
    assert all(no_scales(1, 2, 0, 3, gamma, p) for gamma in range(1, p))
