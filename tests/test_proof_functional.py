"""The finite steps and the conclusion of docs/proofs/functional-is-attention-matching.md, by computation."""

import itertools
from typing import NamedTuple

import flint
import mpmath as mp
import numpy as np
import pytest
import sympy
from word_model import Model, drawn_target, jacobian, left_sides, outputs

# --- section 1: probes -----------------------------------------------------------------------------------


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def last_row(A, M, X, stream, causal):
    """The network itself, row of the last token."""
    hidden = np.triu(np.ones((len(X), len(X)), dtype=bool), 1)
    for forms, values in zip(A, M, strict=True):
        new = X if stream else 0
        for form, value in zip(forms, values, strict=True):
            logits = X @ form @ X.T
            new = new + softmax(np.where(hidden, -np.inf, logits) if causal else logits) @ X @ value
        X = new
    return X[-1]


def probe(A, M, types, weights, x, stream):
    """X^L of the page's section 1."""
    rows = np.array([*types, x])
    for forms, values in zip(A, M, strict=True):
        Y, new = rows[:-1], rows if stream else 0
        for form, value in zip(forms, values, strict=True):
            new = new + softmax(rows @ form @ Y.T + np.log(weights)) @ Y @ value
        rows = new
    return rows[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_long_inputs_tend_to_probes(stream, causal):
    rng = np.random.default_rng(4)
    A, M = drawn_target(Model(2, 2, 2), rng)
    types, x = rng.uniform(-0.7, 0.7, size=(3, 2)), rng.uniform(-0.7, 0.7, size=2)
    pattern = [0, 1, 0, 2, 0, 1]  # frequencies 3 : 2 : 1
    limit = probe(A, M, types, np.array([1, 2 / 3, 1 / 3]), x, stream)
    errors = []
    for n in (120, 480):
        X = np.concatenate([types[np.resize(pattern, n)], [x]])
        errors.append(np.abs(last_row(A, M, X, stream, causal) - limit).max())
    assert errors[1] < errors[0] / 2.5 < 0.05
    # other weights, or the other kind of network, are not the limit
    for wrong in (
        probe(A, M, types, np.array([1, 2 / 3, 2 / 3]), x, stream),
        probe(A, M, types, np.array([1, 2 / 3, 1 / 3]), x, not stream),
    ):
        assert np.abs(last_row(A, M, X, stream, causal) - wrong).max() > 20 * errors[1]


# --- section 2: chain poles ------------------------------------------------------------------------------


class Probe(NamedTuple):
    """A tied target [H], b = 2, and a two-type context on a line, in mpmath's numbers (rows are 1 x b)."""

    A: list
    M: list
    Y: list
    nu: mp.mpf
    x0: mp.matrix
    x1: mp.matrix
    stream: bool

    def layer(self, at, x):
        """X^(at+1) from X^at."""
        first, second = self.Y[at]
        new = x if self.stream else x * 0
        for form, value in zip(self.A, self.M, strict=True):
            g = (x * form * (first - second).T)[0]
            new = new + (second + (first - second) / (1 + self.nu * mp.exp(-g))) * value
        return new

    def state(self, t, level):
        x = self.x0 + t * self.x1
        for at in range(level):
            x = self.layer(at, x)
        return x

    def g(self, t, level, h):
        first, second = self.Y[level - 1]
        return (self.state(t, level - 1) * self.A[h] * (first - second).T)[0]

    def delta(self, level):
        return self.Y[level][0] - self.Y[level][1]


def drawn_probe(stream):
    """Entries are square roots of different primes: no relation between pivots is to be feared."""
    primes = iter(sympy.primerange(2, 200))

    def entry(scale):
        return (-1) ** (next(primes) % 4 // 2) * mp.sqrt(next(primes)) / scale

    def matrix():
        return mp.matrix([[entry(8) for _ in range(2)] for _ in range(2)])

    A, M = [matrix() for _ in range(2)], [matrix() for _ in range(2)]
    types = [mp.matrix([[mp.mpf(3) / 4, -mp.mpf(1) / 3]]), mp.matrix([[-mp.mpf(2) / 5, mp.mpf(4) / 7]])]
    made = Probe(
        A,
        M,
        [types],
        mp.mpf(7) / 3,
        mp.matrix([[mp.mpf(1) / 5, mp.mpf(1) / 9]]),
        mp.matrix([[1, mp.mpf(1) / 2]]),
        stream,
    )
    for at in range(2):
        made.Y.append([made.layer(at, y) for y in made.Y[at]])
    return made


def zero(f, t, around):
    """Newton's zero of f from t, derivative by differences; stays within the disc around the start."""
    start = t
    for _ in range(80):
        step = mp.mpf(10) ** -38 * abs(around)
        move = f(t) * 2 * step / (f(t + step) - f(t - step))
        t -= move
        assert abs(t - start) < abs(around), "left the disc"
        if abs(move) < mp.mpf(10) ** -60 * abs(around):
            return t
    raise AssertionError("no convergence")


@pytest.mark.parametrize("stream", [False, True])
def test_chain_poles_and_residues(stream):
    """Levels 1 and 2: which denominators vanish at q_m, the residue, and z(q_m) = 1/(2 pi i m); 70 digits."""
    with mp.workdps(70):
        made = drawn_probe(stream)
        log_nu = mp.log(made.nu) + mp.pi * 1j
        small = mp.mpf(10) ** -30
        # level 1: g^(1,h) is linear in t
        s, m = 0, 1
        slope = made.g(1, 1, s) - made.g(0, 1, s)
        q = (log_nu + 2j * mp.pi * m - made.g(0, 1, s)) / slope
        pole = made.delta(0) * made.M[s]
        assert examined(made, q, 1, s, mp.mpf(1)) == [True, True]
        rho = 1 / slope
        # level 2: the q_m with z(q_m) = 1/(2 pi i m) near q
        for h, m in itertools.product(range(2), (150, 151)):
            pivot = (pole * made.A[h] * made.delta(1).T)[0]
            constant = (made.g(q + small, 2, h) + made.g(q - small, 2, h)) / 2
            away = rho * pivot / (log_nu + 2j * mp.pi * m - constant)
            found = zero(lambda t, h=h, m=m: 1 / (made.g(t, 2, h) - log_nu) - 1 / (2j * mp.pi * m), q + away, away)
            assert examined(made, found, 2, h, away) == [True, True]
        # with a vector that is not the next level's, or the slope in place of its inverse, it is seen
        assert examined(made, found, 2, 1 - h, away) == [False, False]


def examined(made, q, level, h, scale):
    """[the denominator of this head alone vanishes at q, the residue of X^level is Delta M / g'] at 24 digits."""
    step = mp.mpf(10) ** -28 * abs(scale)
    sizes = {
        key: abs(1 + made.nu * mp.exp(-made.g(q, *key))) for key in itertools.product(range(1, level + 1), range(2))
    }
    alone = [key for key, size in sizes.items() if size < mp.mpf(10) ** -40] == [(level, h)]
    assert all(size > mp.mpf(10) ** -20 or size < mp.mpf(10) ** -40 for size in sizes.values())
    derivative = (made.g(q + step, level, h) - made.g(q - step, level, h)) / (2 * step)
    residue = step * (made.state(q + step, level) - made.state(q - step, level)) / 2
    expected = made.delta(level - 1) * made.M[h]
    return [alone, mp.norm(residue * derivative - expected) < mp.mpf(10) ** -24 * mp.norm(expected)]


# --- section 4: the moving zero --------------------------------------------------------------------------


# --- section 5: separating inputs ------------------------------------------------------------------------


def separation(H, t, b, slopes, tokens, stream):
    """Ball around the determinant of [1 | F_{w,a}] at as many tokens as columns, for the target of section 5."""
    n, g = len(tokens), list(tokens)
    functions = [[value**a for value in tokens] for a in range(1, b + 1)]
    zero_ball = flint.arb(0)
    for _ in range(t):
        attention = []
        for slope in slopes:
            weights = [[(g[i] * g[j] * slope).exp() for j in range(n)] for i in range(n)]
            attention.append([[w / sum(row, zero_ball) for w in row] for row in weights])
        heads = [
            [[sum((x * y for x, y in zip(row, f, strict=True)), zero_ball) for row in head] for head in attention]
            for f in (*functions, g)
        ]
        g = [new + (old if stream else 0) for new, old in zip(heads.pop()[0], g, strict=True)]
        functions = [image for images in heads for image in images] + (functions if stream else [])
    assert n == 1 + (H + stream) ** t * b
    return flint.arb_mat([[1, *row] for row in zip(*functions, strict=True)]).det()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("H", "t", "b"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (2, 2, 1)])
def test_separating_inputs(H, t, b, stream):
    before, flint.ctx.prec = flint.ctx.prec, 700
    try:
        tokens = [(flint.arb(3 * i) + flint.arb(i * i % 7) / 3) / 4 - 1 for i in range(1 + (H + stream) ** t * b)]
        slopes = [flint.arb(h + 1) / 2 for h in range(H)]
        assert not separation(H, t, b, slopes, tokens, stream).contains(0)
        tokens[1] = tokens[0]  # too few different tokens do not separate
        assert separation(H, t, b, slopes, tokens, stream).contains(0)
    finally:
        flint.ctx.prec = before


# --- the conclusion --------------------------------------------------------------------------------------


def inputs(model, rng, contexts, n):
    return rng.normal(size=(contexts, n, model.width)) * rng.uniform(0.4, 2.4, size=(contexts, 1, 1))


def conditioning(J):
    """Least over largest singular value, columns normalised."""
    size = np.linalg.svd(J / np.maximum(np.linalg.norm(J, axis=0), 1e-300), compute_uv=False)
    return size[-1] / size[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("H", "b"), [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_one_length_and_one_layer(H, b, stream):
    model, rng = Model(H, 1, b, stream, True), np.random.default_rng(3)
    A, M = drawn_target(model, rng)
    X = inputs(model, rng, 90, 3)
    ranks = []
    for n in (1, 2, 3):
        J = jacobian(model, left_sides(model, A, M), X[:, :n]).reshape(90, n, b, -1)[:, -1].reshape(90 * b, -1)
        ranks.append(conditioning(J) > 1e-9)
    assert ranks == [False, True, True]
    # heads with values of sum 0: all forms and values changed in sign
    M[0][-1] = M[0][-1] - sum(M[0])
    flipped = [[-form for form in A[0]]], [[-value for value in M[0]]]
    difference = outputs(model, left_sides(model, A, M), X) - outputs(model, left_sides(model, *flipped), X)
    assert np.abs(difference[:, 1]).max() < 1e-10
    assert H == 1 or np.abs(difference[:, 2]).max() > 1e-3


def test_names_of_heads():
    """The example of section 6: forms fk and fk - f^2, values p and q; served with names kept where A^0 > A^1 alone."""
    rng = np.random.default_rng(11)
    unit = np.eye(4)
    moves = (np.outer(unit[0], unit[0]), np.outer(unit[1], unit[0]))
    queries, keys = (unit[2], unit[2]), (unit[3], unit[3] - unit[2])
    kept = 0
    for _ in range(50):
        A, M = rng.normal(size=2), rng.normal(size=2)
        names = (0, 1) if A[0] > A[1] else (1, 0)
        f = np.sqrt(abs(A[0] - A[1]))
        E = np.array([M[names[0]], M[names[1]], f, A[names[0]] / f])
        forms = [(E @ q) * (E @ k) for q, k in zip(queries, keys, strict=True)]
        values = [E @ move @ unit[0] for move in moves]
        X = rng.normal(size=(5, 1))
        host = last_row([[np.array([[a]]) for a in forms]], [[np.array([[v]]) for v in values]], X, False, False)
        target = last_row([[np.array([[a]]) for a in A]], [[np.array([[v]]) for v in M]], X, False, False)
        assert np.abs(host - target).max() < 1e-12
        assert np.allclose(forms, A) == (names == (0, 1))
        assert forms[0] > forms[1]
        kept += names == (0, 1)
    assert 0 < kept < 50
