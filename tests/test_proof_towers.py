"""The finite steps of docs/proofs/functional-by-towers.md: simplices are irreducible, their multiples have more monomials, and
the logits of a generic second layer have poles of their own."""

import itertools

import numpy as np
import pytest

PRIME = 2017
"""2016 = 2^5 * 3^2 * 7: roots of unity of all orders that occur below are residues."""


def points(terms):
    """How many (u, v), both not 0 modulo the prime, solve sum c u^a v^b = 0, terms {(a, b): c}."""
    powers = [np.array([pow(x, e % (PRIME - 1), PRIME) for x in range(1, PRIME)]) for e in range(-8, 9)]
    total = sum(c * np.outer(powers[a + 8], powers[b + 8]) % PRIME for (a, b), c in terms.items())
    return int((total % PRIME == 0).sum())


PAIRS = [((1, 0), (0, 1)), ((2, 0), (0, 2)), ((3, 0), (0, 2)), ((2, 1), (0, 3)), ((2, 2), (1, -1)), ((-2, 1), (1, 3))]


@pytest.mark.parametrize("exponents", PAIRS)
def test_simplices_are_irreducible(exponents):
    """Lemma 3: a curve of one component has p points, up to a multiple of the root of p."""
    for coefficients in ((5, 11), (3, 1999), (7, 2)):
        D = {(0, 0): 1} | dict(zip(exponents, coefficients, strict=True))
        assert abs(points(D) - PRIME) < PRIME / 2, D


def test_two_terms_and_dependent_exponents_are_not():
    square = next(x for x in range(2, PRIME) if pow(x, (PRIME - 1) // 2, PRIME) == 1)
    assert points({(0, 0): 1, (2, 0): -square}) == 2 * (PRIME - 1)
    assert points({(0, 0): 1, (1, 1): 3, (2, 2): 2}) == 2 * (PRIME - 1)  # (1 + uv)(1 + 2uv)


def times(left, right):
    out = {}
    for (a, c), (b, d) in itertools.product(left.items(), right.items()):
        at = tuple(x + y for x, y in zip(a, b, strict=True))
        out[at] = (out.get(at, 0) + c * d) % PRIME
    return {at: c for at, c in out.items() if c}


@pytest.mark.parametrize("r", [3, 4, 5])
def test_multiples_with_few_monomials(r):
    """Lemma 3: D times a sum of several monomials has more than r; with two terms some have not."""
    rng = np.random.default_rng(r)
    simplex = [(0,) * (r - 1), *(tuple(int(i == j) for j in range(r - 1)) for i in range(r - 1))]
    for _ in range(400):
        D = {at: int(rng.integers(1, PRIME)) for at in simplex}
        factor = {tuple(map(int, rng.integers(-2, 3, r - 1))): int(rng.integers(1, PRIME)) for _ in range(6)}
        Q = dict(list(factor.items())[: int(rng.integers(2, 5))])
        if len(Q) > 1:
            assert len(times(D, Q)) > r
    assert len(times({(0,): 1, (1,): 1}, {(0,): 1, (1,): -1, (2,): 1})) == 2  # 1 + u^3
    assert len(times({(0, 0): 1, (1, 0): 1, (0, 1): 1}, {(0, 0): 1, (1, 0): -1})) == 4


def residue(A1, A2, M1, tokens, z, n, seed):
    """The largest |N M V| over the heads g of layer 1, at complex weights on the hyperplane D^{1,g}(z) = 0."""
    rng = np.random.default_rng(seed)
    found = []
    for g in range(len(A1)):
        nu = rng.uniform(0.5, 2, len(tokens)).astype(complex) * np.exp(1j * rng.uniform(0, 1, len(tokens)))
        tau = np.exp(z @ A1[g] @ tokens.T)
        nu[0] = -(nu[1:] @ tau[1:]) / tau[0]

        def state(p, nu=nu):
            weights = [nu * np.exp(p @ A @ tokens.T) for A in A1]
            return sum((w @ tokens) @ M / w.sum() for w, M in zip(weights, M1, strict=True))

        Y = np.array([state(y) for y in tokens])
        V = sum(n[h, k - 1] * A2[h] @ (Y[k] - Y[0]) for h in range(len(A2)) for k in range(1, len(tokens)))
        found.append(abs((nu * tau) @ tokens @ M1[g] @ V))
    return np.max(found)


@pytest.mark.parametrize(("H", "b"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_poles_of_the_second_layer(H, b):
    """(P) at l = 2, random targets: no small integer combination loses its pole; planted ones do."""
    rng = np.random.default_rng(10 * H + b)
    A1, A2, M1 = rng.standard_normal((3, H, b, b))
    tokens, z = rng.standard_normal((3, b)), rng.standard_normal(b)
    for entries in itertools.islice(itertools.product((0, 1, -1), repeat=2 * H), 1, 60):
        n = np.array(entries).reshape(H, 2)
        assert residue(A1, A2, M1, tokens, z, n, 1) > 1e-6
        assert residue(A1, A2, 0 * M1, tokens, z, n, 1) == 0
    if H > 1:
        n = np.zeros((H, 2), dtype=int)
        n[0, 0], n[1, 0] = 1, -1
        same = np.array([A2[0]] * H)
        assert residue(A1, same, M1, tokens, z, n, 1) < 1e-12 < residue(A1, A2, M1, tokens, z, n, 1)
