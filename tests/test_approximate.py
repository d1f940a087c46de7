"""docs/proofs/approximate.md: what hosts that are nearly right need."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, TIED, UNTIED, Question
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, prefix_products
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion


def signs(shape):
    """Every target whose W_V and W_O hold +1 and -1 (and whose W_Q and W_K are 0)."""
    L, H, b, d = shape.layers, shape.heads, shape.d_in, shape.head_dim
    sizes = [(L, H, b, d), (L, H, d, b)]
    zero = np.zeros(sizes[0], dtype=object)
    for entries in itertools.product((1, -1), repeat=sum(map(math.prod, sizes))):
        drawn = exact(np.array(entries))
        W_V, W_O = (part.reshape(size) for part, size in zip(np.split(drawn, 2), sizes, strict=True))
        yield Target(shape, zero, zero, W_V, W_O)


def tables(shape):
    """[targets, d_in, d_in H^L] and [targets, H^L, d_in, d_in]."""
    found = np.array([prefix_products(target, shape.layers) for target in signs(shape)]).astype(float)
    return found.transpose(0, 2, 1, 3).reshape(len(found), shape.d_in, -1), found


@pytest.mark.parametrize("dims", [(2, 2, 1, 1), (3, 1, 1, 1), (2, 1, 1, 2)])
def test_no_embedding_does_better(dims):
    """Theorem 1 with the best E for each target, for random hosts of every m: equality, as all columns weigh the same."""
    shape, rng = Shape(*dims), np.random.default_rng(0)
    rows, _ = tables(shape)
    K = rows.shape[2]
    for m in range(1, K + 1):
        basis = np.linalg.qr(rng.standard_normal((K, m)))[0]
        missed = ((rows - rows @ basis @ basis.T) ** 2).sum() / (rows**2).sum()
        assert missed == pytest.approx(1 - m / K, abs=1e-12)


def test_words_that_are_correlated_are_cheaper():
    """Not so for tied targets: M_(0,1) = M_(1,0) at d_in = 1."""
    shape = Shape(2, 2, 1, 1)
    values = np.array(list(itertools.product((-1, 1), repeat=2)), dtype=float)
    rows = np.array([[x * y for x, y in itertools.product(value, repeat=2)] for value in values])
    moments = rows.T @ rows / len(rows)
    assert np.linalg.matrix_rank(moments) == 2 < shape.leaves


@pytest.mark.parametrize(("heads", "layers"), [(2, 2), (3, 2), (2, 3)])
def test_routed_attention_shows_one_word(heads, layers):
    stay, other = np.eye(2), np.array([[0, 1], [0, 1]])
    for s in itertools.product(range(heads), repeat=layers):
        for w in itertools.product(range(heads), repeat=layers):
            path = np.eye(2)
            for letter, mine in zip(w, s, strict=True):
                path = (stay if letter == mine else other) @ path
            assert path[0, 0] == (w == s)


def left_sides(parameters, H, L, b):
    """(M_w), |w| = L, and M_w A^{l,h} M_v^T, |w| = |v| = l - 1."""
    A, M = parameters.reshape(2, L, H, b, b)
    words, found = [np.eye(b)], []
    for layer in range(L):
        found += [w @ A[layer, h] @ v.T for h in range(H) for w in words for v in words]
        words = [w @ M[layer, h] for w in words for h in range(H)]
    return np.concatenate([x.reshape(-1) for x in (*found, *words)])


@pytest.mark.parametrize(("H", "L", "b"), [(1, 1, 2), (2, 2, 1), (2, 2, 2), (1, 3, 2), (2, 3, 1), (3, 2, 1)])
def test_dimension_of_the_family(H, L, b):
    """Theorem 3: D = b^2 (2LH - L + 1), which at L = 1 is b times the least m and never more."""
    rng = np.random.default_rng(5)
    at, step = rng.standard_normal(2 * L * H * b * b), 1e-5
    slopes = [
        (left_sides(at + step * e, H, L, b) - left_sides(at - step * e, H, L, b)) / (2 * step) for e in np.eye(len(at))
    ]
    D = b * b * (2 * L * H - L + 1)
    assert np.linalg.matrix_rank(np.array(slopes), tol=1e-6) == D
    least = interval(Shape(H, L, b, b), Question(Notion.FUNCTIONAL, extent=ALMOST_ALL))
    assert least.closed
    assert D <= b * least.lower
    assert (D == b * least.lower) == (L == 1 or H == 1)


@pytest.mark.parametrize("extent", [ALL, ALMOST_ALL])
@pytest.mark.parametrize(("d", "b"), [(1, 2), (2, 3), (3, 4), (2, 5), (3, 3), (3, 2)])
def test_the_least_m_of_one_narrow_head(d, b, extent):
    """At H = L = 1 and d < b it is M, whichever way targets and hosts are tied; at d = b fewer do for almost all."""
    shape = Shape(1, 1, d, b)
    for targets, host in itertools.product((UNTIED, TIED), (ANY, TIED)):
        found = interval(shape, Question(Notion.FUNCTIONAL, None, targets, extent, host))
        assert (found.lower == matching_dimension(shape)) == (d < b), found
        assert found.closed or d >= b
    for other in (Shape(2, 1, d, b), Shape(1, 2, d, b), replace(shape, residual=True)):
        below = interval(other, Question(Notion.FUNCTIONAL, extent=extent)).below
        assert below is None or below.name != "one narrow head"
