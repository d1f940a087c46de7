"""Steps of docs/proofs/normalisation.md: the hosts of sections 4 and 6 in floats, and the lemmas behind 7 and 9."""

import itertools
import random

import flint
import numpy as np
import pytest
import sympy

pytestmark = pytest.mark.numerical


def rms(eps):
    return lambda x: x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps)


def layer_norm(eps):
    return lambda x: rms(eps)(x - x.mean(axis=1, keepdims=True))


def run(stream, layers, norm):
    """X <- X + sum of A^h nu(X) M^h over the heads, with softmax attention; a layer is a list of (W_Q, W_K, M)."""
    for heads in layers:
        inner, after = norm(stream), stream
        for query, key, value in heads:
            weights = np.exp(inner @ query @ (inner @ key).T)
            after = after + weights / weights.sum(axis=1, keepdims=True) @ inner @ value
        stream = after
    return stream


def drawn(rng, layers, heads, D, d):
    """Random targets of rank d, as `run` takes them."""
    draw = rng.normal
    return [
        [(draw(size=(D, d)), draw(size=(D, d)), draw(size=(D, d)) @ draw(size=(d, D)) / D) for _ in range(heads)]
        for _ in range(layers)
    ]


def units(m, start, count):
    """[m, count] that reads the coordinates start, start + 1, ..."""
    return np.eye(m)[:, start : start + count]


def test_one_layer_needs_no_norm_in_the_host():
    """Section 4: the host has no norm, and E holds the normalised rows for its heads."""
    rng, D, d = np.random.default_rng(1), 3, 2
    for norm in (rms(0.1), layer_norm(0.1), lambda x: x[:, ::-1] ** 2 - 3):
        (heads,) = drawn(rng, 1, 2, D, d)
        inner = norm(np.eye(D))
        blocks = [*(inner @ h[i] for i in (0, 1) for h in heads), np.eye(D), *(inner @ h[2] for h in heads)]
        starts = np.cumsum([0, *(block.shape[1] for block in blocks)])
        m, E = int(starts[-1]), np.concatenate(blocks, axis=1)
        out = units(m, int(starts[4]), D)
        hosts = [
            (units(m, int(starts[h]), d), units(m, int(starts[2 + h]), d), units(m, int(starts[5 + h]), D) @ out.T)
            for h in (0, 1)
        ]
        x = np.eye(D)[[0, 2, 1, 1]]
        assert np.allclose(run(x @ E, [hosts], lambda y: y) @ out, run(x, [heads], norm), rtol=0, atol=1e-12)


def two_layer_host(H, d, D, scale, theta):
    """Section 6, kappa = 2: coordinates of T, the program of layer 1 (queries, keys, values), a spare one."""
    read, image = 2 * d * H + D * H, 2 * d * H + D * (H + 2)
    m = image + 2 * d * H + H * image + 1
    alpha = 2 * np.sqrt(m / D)

    def reader(start, factor):
        return factor * units(m, start, d)

    back, values = scale * 2 / alpha, image + 2 * d * H
    first = [
        (
            reader(image + h * d, theta),
            reader(image + (H + h) * d, theta),
            theta * units(m, values + h * image, image) @ np.eye(image, m),
        )
        for h in range(H)
    ]
    second = [
        (reader(h * d, back), reader((H + h) * d, back), 2 * units(m, 2 * d * H + h * D, D) @ units(m, read, D).T)
        for h in range(H)
    ]
    return m, alpha, [first, second], scale / alpha * units(m, read, D)


def test_two_layers_with_a_norm_of_the_hosts_own():
    """Section 6: the host is fixed by bounds on the weights; it serves every target within them, and with its own eps alone."""
    H, d, D, eps, scale, theta = 2, 1, 2, 0.5, 20.0, 60.0
    m, alpha, host, U = two_layer_host(H, d, D, scale, theta)
    x, norm = np.eye(D)[[0, 1, 1, 0, 1]], rms(eps)
    for seed in range(3):
        first, second = layers = drawn(np.random.default_rng(seed), 2, H, D, d)
        T = np.hstack([*(h[0] for h in second), *(h[1] for h in second), *(h[2] for h in second), np.eye(D)]) / scale
        T = np.hstack([T, np.linalg.cholesky(np.eye(D) - T @ T.T)])
        program = np.hstack([*(h[0] for h in first), *(h[1] for h in first), *(alpha * h[2] @ T for h in first)])
        rows = 2 / theta * program
        spare = np.sqrt(m * eps * 3 - (rows**2).sum(axis=1, keepdims=True))
        E = np.hstack([alpha * T, rows, spare])
        truth = run(x, layers, norm)
        assert np.allclose(run(x @ E, host, norm) @ U, truth, rtol=0, atol=1e-10)
        assert not np.allclose(run(x @ E, host, rms(eps / 2)) @ U, truth, rtol=0, atol=1e-4)
        after = [(run(rows, part, norm) ** 2).mean(axis=1) + eps for rows, part in ((x, layers[:1]), (x @ E, host[:1]))]
        assert np.allclose(after[1], 4 * after[0])


def test_lemma_of_section_seven_needs_the_norms_to_be_proportional():
    """p^2 q_x = yhat^2 q_y with p irreducible and not a factor of q_y: only yhat = kappa p, q_x = kappa^2 q_y."""
    a, b = sympy.symbols("a b")
    coefficients = sympy.symbols("c0:3 d0:6")
    p, q = a + 2 * b - 1, sympy.expand((a**2 + (b - 1) ** 2) / 2 + sympy.Rational(1, 3))
    other = coefficients[0] + coefficients[1] * a + coefficients[2] * b
    q_x = sum(c * m for c, m in zip(coefficients[3:], (1, a, b, a * a, a * b, b * b), strict=True))
    equations = sympy.Poly(sympy.expand(p**2 * q_x - other**2 * q), a, b).coeffs()
    solved = sympy.solve(equations, coefficients[3:] + coefficients[:2], dict=True)
    for solution in solved:
        ratio = [sympy.simplify(c.subs(solution)) for c in coefficients[:3]]
        assert sympy.simplify(ratio[0] * 2 + ratio[2]) == 0
        assert sympy.simplify(ratio[1] * 2 - ratio[2]) == 0
        assert sympy.simplify(q_x.subs(solution) - (ratio[2] / 2) ** 2 * q) == 0
    assert solved


@pytest.mark.parametrize(("D", "d"), [(3, 1), (3, 2), (4, 1), (4, 3), (5, 2)])
def test_stacked_operators_without_epsilon(D, d):
    """Section 9: k = ceil(D/e) heads make F -> (P Lambda^-1 F R^h - P M^h F)_h injective; k - 1 do not at R = 0."""
    generator, prime, m = random.Random(10 * D + d), 1_000_003, D + 2

    def drawn(rows, columns):
        return [[generator.randrange(prime) for _ in range(columns)] for _ in range(rows)]

    def table(rows):
        return flint.nmod_mat(len(rows), len(rows[0]), [v for row in rows for v in row], prime)

    def annihilator(columns):
        """Independent rows that annihilate the given columns."""
        found, nullity = table(columns).nullspace()
        return table([[int(found[i, j]) for i in range(D)] for j in range(nullity)])

    def kernel(P, scale, values, readers):
        """dim {F : P Lambda^-1 F R^h = P M^h F for all h}."""
        rows = []
        for i, j in itertools.product(range(D), range(m)):
            F = table([[int((a, b) == (i, j)) for b in range(m)] for a in range(D)])
            images = [p * scale * F * R - p * M * F for p, M, R in zip(P, values, readers, strict=True)]
            rows.append([int(v) for image in images for v in image.entries()])
        return D * m - table(rows).rank()

    e = min(d, D - 2)
    k = -(-D // e)
    values = [table(drawn(D, d)) * table(drawn(d, D)) for _ in range(k)]
    inverse = [generator.randrange(1, prime) for _ in range(D)]
    scale = table([[inverse[i] * (i == j) for j in range(D)] for i in range(D)])
    P = annihilator([[1] * D, inverse])
    assert (P.nrows(), P.rank()) == (D - 2, D - 2)
    stacked = table([[int(v) for v in row] for M in values for row in (P * M).tolist()])
    assert stacked.rank() == D
    readers = [table(drawn(m, m)) for _ in range(k)]
    nothing = [table([[0] * m for _ in range(m)])] * k
    assert kernel([P] * k, scale, values, readers) == kernel([P] * k, scale, values, nothing) == 0
    assert kernel([P] * (k - 1), scale, values[1:], nothing[1:]) > 0
    # annihilating 1 and M^h 1 instead leaves solutions for nilpotent readers, however many heads there are
    nilpotent = [
        table([[int(i > 0 and j == 0) * generator.randrange(prime) for j in range(m)] for i in range(m)])
        for _ in range(4 * k)
    ]
    many = [table(drawn(D, d)) * table(drawn(d, D)) for _ in range(4 * k)]
    other = [annihilator([[1] * D, [int(v) for v in (M * table([[1]] * D)).entries()]]) for M in many]
    one = table([[int(i == j) for j in range(D)] for i in range(D)])
    assert kernel(other, one, many, nilpotent) > 0
    assert kernel([P] * 4 * k, scale, many, nilpotent) == 0


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("D", [3, 5])
def test_layer_norm_is_rms_of_one_coordinate_fewer(D, final):
    """Section 7: the centred stream of a LayerNorm target is the stream of an RMS target of width D - 1, in floats."""
    rng = np.random.default_rng(D)
    H, L, d, n, eps = 2, 3, 2, 4, 0.3
    draw = rng.normal
    W_Q, W_K, W_V, W_O = (
        draw(size=(L, H, D, d)),
        draw(size=(L, H, D, d)),
        draw(size=(L, H, D, d)),
        draw(size=(L, H, d, D)),
    )
    W_U = draw(size=(D, 3))
    Pi = np.eye(D) - 1 / D
    B = np.linalg.svd(Pi)[2][: D - 1]
    g = np.sqrt(D / (D - 1))
    assert np.allclose(B.T @ B, Pi)

    def run(stream, norm, Q, K, V, out, U):
        rows = []
        for layer in range(L):
            inner, after = norm(stream), stream
            for h in range(H):
                logits = inner @ Q[layer, h] @ (inner @ K[layer, h]).T
                weights = np.exp(logits)
                after = after + weights / weights.sum(axis=1, keepdims=True) @ inner @ V[layer, h] @ out[layer, h]
            rows.append(inner @ Q[layer, 0])
            stream = after
        return rows, stream, norm(stream) @ U

    def rms(e):
        return lambda x: x / np.sqrt((x**2).mean(axis=1, keepdims=True) + e)

    y = draw(size=(n, D))
    layer = run(y, lambda x: rms(eps)(x @ Pi), W_Q, W_K, W_V, W_O, W_U)
    reduced = (g * np.einsum("ij,lhjk->lhik", B, W) for W in (W_Q, W_K, W_V))
    small = run(y @ B.T, rms(eps * D / (D - 1)), *reduced, W_O @ B.T, g * B @ W_U)
    assert all(np.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(layer[0], small[0], strict=True))
    assert np.allclose(layer[1] @ B.T, small[1], rtol=0, atol=1e-11)
    if final:
        assert np.allclose(layer[2], small[2], rtol=0, atol=1e-11)
    wrong = rms(eps)(y @ B.T) @ (g * B @ W_Q[0, 0])
    assert not np.allclose(layer[0][0], wrong)


def kernel(A):
    """Orthonormal columns that A [., D] annihilates."""
    _, values, V = np.linalg.svd(A)
    return V[(values > 1e-9).sum() :].T


def flag(V, values):
    """Section 10: U_0 = 0, U_1, ..., U_D for rows V and the M^{2,h}, as orthonormal columns."""
    D, off, spaces = V.shape[1], kernel(V), [np.zeros((V.shape[1], 0))]
    for _ in range(D):
        rest = kernel(np.hstack([off, spaces[-1]]).T).T
        spaces.append(kernel(np.vstack([rest @ M for M in values])))
    return off, spaces


@pytest.mark.parametrize(
    ("H", "d", "D", "whole"), [(1, 1, 2, True), (1, 2, 3, True), (2, 1, 4, True), (2, 1, 3, False), (1, 2, 2, False)]
)
def test_readings_of_the_third_layer(H, d, D, whole):
    """Section 10: nilpotent A_h that agree with M^{2,h} on V, the isometry J and its shift; kappa = 2."""
    rng, norm = np.random.default_rng(1), rms(0.3)
    (first, second), rows = drawn(rng, 2, H, D, d), norm(rng.normal(size=(D + 2, D)))
    V, values = np.vstack([(rows[1:] - rows[0]) @ h[2] for h in first]), [h[2] for h in second]
    off, spaces = flag(V, values)
    assert (spaces[-1].shape[1] == D) is whole
    if not whole:
        return
    basis, images = np.zeros((D, 0)), [np.zeros((D, 0)) for _ in values]
    for below, space in itertools.pairwise(spaces):
        new = space @ kernel(below.T @ space) if below.size else space
        parts = np.linalg.pinv(np.hstack([off, below]), rcond=1e-9)
        images = [
            np.hstack([A, below @ (parts @ M @ new)[off.shape[1] :]]) for A, M in zip(images, values, strict=True)
        ]
        basis = np.hstack([basis, new])
    readings = [A @ np.linalg.inv(basis) for A in images]
    assert all(np.allclose(V @ A, V @ M) for A, M in zip(readings, values, strict=True))
    words = [w for length in range(D + 1) for w in itertools.product(range(H), repeat=length)]
    product = {w: np.linalg.multi_dot([np.eye(D), np.eye(D), *(readings[h] for h in w)]) for w in words}
    assert max(np.abs(product[w]).max() for w in words if len(w) == D) < 1e-9
    mu = 2 * H * max(np.linalg.norm(A, 2) for A in readings) + 1
    Phi = np.linalg.cholesky(np.eye(D) - sum(A @ A.T for A in readings) / mu**2)
    blocks = {w: product[w] @ Phi / mu ** len(w) for w in words if len(w) < D}
    J = np.hstack(list(blocks.values()))
    assert np.allclose(J @ J.T, np.eye(D))
    for h, M in enumerate(values):
        moved = np.hstack([2 * mu * blocks.get((h, *w), np.zeros((D, D))) for w in blocks])
        assert np.allclose(V @ moved, 2 * V @ M @ J)
