"""Errors of the identity at a random point (section 9 of the format): degrees are measured, and a false identity that
passes as often as its degree allows does not pass more often."""

import random
from contextlib import suppress

import corpus
import pytest

from utfproof.certificates import checker

Q = 2**61 - 1


def shape(heads, layers, head_dim, b, *, residual=False):
    return checker.Shape(heads, layers, head_dim, b, b, 10**6, residual)


# ----------------------------------------------------------------------------------------------------
# Degrees of E as a rational function of the target, along a line


def interpolated(values):
    """Coefficients of the polynomial modulo Q with these values at 0, 1, ..., lowest first; and of that which is zero there."""
    found, zero = [0], [1]
    for t, value in enumerate(values):
        scale = (value - at(found, t)) * pow(at(zero, t), -1, Q) % Q
        found = [(a + scale * b) % Q for a, b in zip([*found, *[0] * (len(zero) - len(found))], zero, strict=True)]
        zero = [(a - t * b) % Q for a, b in zip([0, *zero], [*zero, 0], strict=True)]
    return found, zero


def at(polynomial, t):
    total = 0
    for coefficient in reversed(polynomial):
        total = (total * t + coefficient) % Q
    return total


def trimmed(polynomial):
    while polynomial and polynomial[-1] == 0:
        polynomial.pop()
    return polynomial


def degree_along(values):
    """Of numerator and denominator together, in lowest terms: Euclid's algorithm stopped half way."""
    low, high = interpolated(values)
    (r, u), (s, v) = (trimmed(high), []), (trimmed(low), [1])
    while len(s) > len(values) // 2:
        inverse = pow(s[-1], -1, Q)
        while len(r) >= len(s):
            scale, shift = r[-1] * inverse % Q, len(r) - len(s)
            for i, x in enumerate(s):
                r[i + shift] = (r[i + shift] - scale * x) % Q
            u = [*u, *[0] * (len(v) + shift - len(u))]
            for i, x in enumerate(v):
                u[i + shift] = (u[i + shift] - scale * x) % Q
            trimmed(r)
        (r, u), (s, v) = (s, v), (r, u)
    return max(0, len(s) - 1) + max(0, len(trimmed(v)) - 1)


HOSTS = {
    "queries shared": (checker.SharedQuery, shape(2, 2, 2, 2)),
    "keys shared": (checker.SharedKey, shape(2, 2, 2, 2)),
    "groups": (checker.SharedQueryGroups, shape(2, 2, 1, 2)),
    "groups shorter than the input": (checker.SharedQueryGroups, shape(2, 2, 1, 3)),
    "stream, keys shared": (checker.ResidualKey, shape(2, 2, 1, 1, residual=True)),
}


@pytest.mark.parametrize("name", HOSTS)
def test_degrees_of_rational_embeddings_are_within_what_the_page_says(name, monkeypatch):
    kind, s = HOSTS[name]
    source, points = random.Random(1), 100
    claim = type("Claim", (), {"shape": s, "targets": "generic untied", "construction": name})
    table = []
    line = [(source.randrange(Q), source.randrange(Q)) for _ in range(5000)]
    for t in range(points):
        entries = iter(line)

        def drawn(_, rows, columns, t=t, entries=entries):
            return [[(a + t * b) % Q for a, b in (next(entries) for _ in range(columns))] for _ in range(rows)]

        monkeypatch.setattr(checker, "random_matrix", drawn)
        found = kind(s).embed(checker.Point(claim, Q), [1] + [0] * (s.d_in - 1))
        table.append([row[0] for _, row in sorted(found.items(), key=str)])
    degrees = [degree_along(values) for values in list(zip(*table, strict=True))[:: max(1, len(table[0]) // 4)]]
    bound = 64 * (s.d_in + 1) * (s.head_dim + 1) * (s.layers + 1)
    assert 0 < max(degrees) < points - 2  # so they were determined
    assert 4 * (max(degrees) + 2 * s.layers + 2) < bound  # two of them are multiplied, and the denominators of both


# ----------------------------------------------------------------------------------------------------
# How often a false identity passes


def test_a_false_identity_passes_as_often_as_its_degree_allows(monkeypatch):
    """M^25 in place of M: 25 of 241 numbers M have the two equal, as 24 divides 240."""
    q, power, trials, passed = 241, 25, 600, 0
    monkeypatch.setattr(checker, "random_prime", lambda: q)
    source = random.Random(3)
    monkeypatch.setattr(checker.secrets, "randbelow", source.randrange)

    def powers(self, point, x):
        return {("R", (0,)): [x[0] * pow(point.values[0][0][0][0], power, q) % q]}

    monkeypatch.setattr(checker.Register, "embed", powers)
    document = corpus.document("identity", "register", (1, 1, 1, 1, 1), 1, {}, notion="shared attention", free="E")
    raw, limits = corpus.canonical(document), checker.Options()
    for _ in range(trials):
        with suppress(checker.Stop):
            checker.check_document(checker.parse_canonical(raw), "", limits, {})
            passed += 1
    degree = (2 * power + 4 + 4) * 2 + 4
    assert power / q * 0.8 < passed / trials < degree / q
