"""The onto bilinear map of docs/proofs/shared-attention.md section 6 at H = 7: all values are taken, and found."""

import itertools

import numpy as np
import pytest

from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALL, BOTH, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape


def corrected_product(i):
    """(4e, [the points of l, those of l']): the form of degree 4i, leading coefficient first, that corrects products of forms
    of degree 2i, and the points at which u and p are evaluated."""
    e = np.array([4, -4 * i, -(2 * i + 1)], dtype=object)  # (2x + 1)(2x - 2i - 1)
    for k in range(1, 2 * i):
        e = np.convolve(e, np.array([1, 0, k * k], dtype=object))
    return e, [list(range(i + 1)), list(range(i + 1, 2 * i + 2))]


def corrected_matrices(heads):
    """B_h [H, q, q], H = 4i + 3, q = 2i + 2, of ((p, s), (u, t)) -> (4 p u + s t e, s l(u), t l'(p)), e as above."""
    i, q = (heads - 3) // 4, (heads + 1) // 2
    e, points = corrected_product(i)
    found = np.zeros((heads, q, q), dtype=object)
    for a in range(q - 1):
        for b in range(q - 1):
            found[a + b, a, b] = 4
        found[heads - 2, q - 1, a] = sum(x ** (q - 2 - a) for x in points[0])
        found[heads - 1, a, q - 1] = sum(x ** (q - 2 - a) for x in points[1])
    found[: heads - 2, q - 1, q - 1] = e
    return found


FORM, POINTS = corrected_product(1)
STEPS = np.exp(np.linspace(-14, 9, 500))


def pairs(form):
    """Real monic quadratics (p, u) with p u = form / (leading coefficient); 1e-5 apart, roots count as complex ones."""
    roots = np.roots(form)
    real = [z.real for z in roots if abs(z.imag) < 1e-5 * max(1, abs(z))]
    others = [np.poly([z, z.conjugate()]).real for z in roots if z.imag >= 1e-5 * max(1, abs(z))]
    if len(real) == 4:
        halves = [(s, tuple(set(range(4)) - set(s))) for s in itertools.combinations(range(4), 2)]
        return [tuple(np.poly([real[k] for k in half]) for half in split) for split in halves]
    whole = [*others, *([np.poly(real)] if len(real) == 2 else [])]
    return [(whole[0], whole[1]), (whole[1], whole[0])] if len(whole) == 2 else []


def reader(f, points):
    return sum(np.polyval(f, x) for x in points)


def solved(c, alpha, beta, points=POINTS):
    """((p, s), (u, t)) with the value (c, alpha, beta), alpha beta != 0, or None: g - gamma changes its sign along tau."""
    e, gamma = FORM.astype(float) / 4, alpha * beta
    c = np.array(c, dtype=float)

    def along(tau):
        f = c - tau * e
        return [(tau * f[0] * reader(u, points[0]) * reader(p, points[1]) - gamma, p, u) for p, u in pairs(f)]

    for sign in (1, -1) if c[0] == 0 else (-np.sign(c[0]),):
        before = None
        for size in STEPS:
            here = sorted(along(sign * size), key=lambda item: item[0])
            if before and len(here) == len(before[1]):
                for k in range(len(here)):
                    if before[1][k][0] * here[k][0] < 0:
                        low, high, down = before[0], size, before[1][k][0] < 0
                        for _ in range(80):
                            middle = (low + high) / 2
                            at = sorted(along(sign * middle), key=lambda item: item[0])
                            if len(at) != len(here):
                                break
                            low, high = (middle, high) if (at[k][0] < 0) == down else (low, middle)
                        else:
                            _, p, u = at[k]
                            u = (c[0] - sign * middle * e[0]) * u
                            return [*p, alpha / reader(u, points[0])], [*u, beta / reader(p, points[1])]
            before = (size, here)
    return None


def value(p, u):
    return np.array([np.array(p) @ matrix.astype(float) @ np.array(u) for matrix in corrected_matrices(7)])


FIXED = [
    (0, 0, 0, 0, 0),
    (0, 0, 0, 1, 0),
    (0, 0, 1, 0, 1),
    (0, 1, 0, 1, 0),
    (1, 0, 0, 0, 0),
    (0, 0, 0, 0, -1),
    (1, 0, 2, 0, 1),
]
DRAWN = [tuple(row) for row in np.random.default_rng(0).standard_normal((12, 5))]


@pytest.mark.parametrize(
    "values", [[*FIXED[:2], DRAWN[0]], pytest.param([*FIXED[2:], *DRAWN[1:]], marks=pytest.mark.full)]
)
def test_drawn_and_degenerate_values(values):
    for c in values:
        for alpha, beta in ((1.0, 0.5), (1.0, -0.5), (-20.0, 1.0), (0.05, 1.0)):
            found = solved(c, alpha, beta)
            assert found is not None, (c, alpha, beta)
            wanted = [*(4 * np.array(c, dtype=float)), alpha, beta]
            assert np.abs(value(*found) - wanted).max() < 1e-6 * (1 + np.abs(wanted).max()), (c, alpha, beta)


def test_readers_at_the_same_points_do_not_do():
    """c = 0 has pairs p u = -tau e only, and then one sign."""
    same = [POINTS[0], POINTS[0]]
    assert solved((0, 0, 0, 0, 0), 1.0, 1.0) is not None
    assert solved((0, 0, 0, 0, 0), 1.0, -1.0) is not None
    assert [solved((0, 0, 0, 0, 0), 1.0, beta, same) is None for beta in (1.0, -1.0)].count(True) == 1


@pytest.mark.parametrize("i", [1, 2, 3])
def test_positive_readers_and_the_form(i):
    """Squares have positive values under both readers; the form has two real roots, simple ones."""
    rng = np.random.default_rng(i)
    form, points = corrected_product(i)
    for _ in range(50):
        f = np.convolve(*[rng.integers(-3, 4, i + 1)] * 2)
        if f.any():
            assert min(reader(f, points[0]), reader(f, points[1])) > 0
    roots = np.roots(form.astype(float))
    assert len(roots) == 4 * i
    assert sorted(z.real for z in roots if abs(z.imag) < 1e-9) == pytest.approx([-0.5, i + 0.5])


def test_the_frontier_is_closed_at_seven_heads():
    found = interval(Shape(7, 1, 1, 1), Question(Notion.SHARED_ATTENTION, BOTH, extent=ALL))
    assert (found.lower, found.upper) == (4, 4)
    assert interval(Shape(3, 1, 1, 1), Question(Notion.SHARED_ATTENTION, BOTH, extent=ALL)).upper == 3
