"""Written proofs on shared attention and residual streams, held against computations."""

import itertools
import random

import numpy as np
import pytest
import sympy
from naive import words
from test_proofs import along, identity, integers, rank, unit, zeros

# --- shared-attention.md ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "L", "d", "b"), [(2, 1, 1, 2), (2, 3, 1, 2), (3, 2, 1, 3), (1, 2, 2, 2)])
def test_split_target(H, L, d, b):
    """Section 3: a target with (M_w)_12 = 0 for all w, (M_w)_11 and (M_w)_22 not all zero, ranks at most d."""
    if H >= 2:
        M = [[unit(b, b, 0, 0), unit(b, b, 1, 1)] + [zeros(b, b)] * (H - 2)] * L
    else:
        M = [[unit(b, b, 0, 0) + unit(b, b, 1, 1)]] * L
    assert all(rank(form) <= d for step in M for form in step)
    entries = {ij: [along(M, w, b)[ij] for w in words(H, L)] for ij in ((0, 0), (0, 1), (1, 1))}
    assert (any(entries[0, 0]), any(entries[0, 1]), any(entries[1, 1])) == (True, False, True)


def test_determinant_signatures():
    """det on 2x2 matrices has signature (2,2); on the complement of Z it is (1,2) or (2,1) by the sign of det Z."""
    polar = sympy.Matrix([[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]]) / 2

    def signature(form):
        values = [(v, count) for v, count in form.eigenvals().items()]
        positive = sum(count for v, count in values if v.is_positive)
        negative = sum(count for v, count in values if v.is_negative)
        assert positive + negative == form.rows
        return positive, negative

    a = sympy.Matrix(sympy.symbols("a:4"))
    assert sympy.expand((a.T * polar * a)[0] - (a[0] * a[3] - a[1] * a[2])) == 0
    assert signature(polar) == (2, 2)
    for Z, expected in (
        ((1, 0, 0, 1), (1, 2)),
        ((1, 0, 0, -1), (2, 1)),
        ((0, 1, 1, 0), (2, 1)),
        ((0, 1, -1, 0), (1, 2)),
    ):
        vector = sympy.Matrix(Z)
        basis = sympy.Matrix.hstack(*(polar * vector).T.nullspace())
        assert signature(basis.T * polar * basis) == expected
        assert expected == ((1, 2) if (vector.T * polar * vector)[0] > 0 else (2, 1))


# --- residual.md -----------------------------------------------------------------------------------------


def residual_labels(H, L, d, d_in):
    labels = []
    for kind in "QK":
        for length in range(L):
            labels += [(kind, w, h, j) for w in words(H + 1, length) for h in range(1, H + 1) for j in range(d)]
    return labels + [("OV", w, 0, j) for w in words(H + 1, L) for j in range(d_in)]


def residual_stack(L, labels, values, readers, out, size):
    """Columns of R_all or W_all for these labels; values[l][0] is the identity, readers[kind][l][h]."""
    columns = {}
    for kind, w, h, _ in labels:
        if (kind, w, h) not in columns:
            last = out if kind == "OV" else readers[kind][len(w)][h]
            columns[kind, w, h] = along(values, w, size) @ last
    return np.array([columns[kind, w, h][:, j] for kind, w, h, j in labels]).T


@pytest.mark.parametrize("dims", [(1, 1, 1, 2), (2, 2, 1, 2), (1, 3, 2, 2), (2, 3, 1, 2)])
def test_residual_refuting_targets(dims):
    """Section 1: for random z the alternating sum over routed targets is z_c, for every column c."""
    H, L, d, d_in = dims
    rng = random.Random(13)
    labels = residual_labels(*dims)
    for c, (kind, w, h, j) in enumerate(labels):
        z = integers(rng, len(labels))
        if kind != "OV":
            z = np.array([0 if label[0] == "OV" else v for v, label in zip(z, labels, strict=True)], dtype=object)
        places = [t for t, letter in enumerate(w) if letter]
        row = j if kind == "OV" and not places else 0
        total = 0
        for size in range(len(places) + 1):
            for chosen in itertools.combinations(places, size):
                values = [[identity(d_in)] + [zeros(d_in, d_in) for _ in range(H)] for _ in range(L)]
                readers = {k: [[zeros(d_in, d) for _ in range(H + 1)] for _ in range(L)] for k in "QK"}
                for t in chosen:
                    values[t][w[t]] = unit(d_in, d_in, 0, j if kind == "OV" and t == places[-1] else 0)
                if kind != "OV":
                    readers[kind][len(w)][h] = unit(d_in, d, 0, j)
                W = residual_stack(L, labels, values, readers, identity(d_in), d_in)
                total += (-1) ** (len(places) - size) * (W @ z)[row]
        assert total == z[c]


def test_residual_tied_host_cannot():
    """Words 0h and h0 give a tied host equal columns, whatever its weights; an untied host need not."""
    rng = random.Random(14)
    H, L, d, d_in = 2, 2, 1, 1
    labels = residual_labels(H, L, d, d_in)
    m = len(labels)
    tied = [identity(m)] + [integers(rng, m, m) for _ in range(H)]
    head = [zeros(m, d)] + [integers(rng, m, d) for _ in range(H)]
    U = integers(rng, m, d_in)
    R = residual_stack(L, labels, [tied] * L, {k: [head] * L for k in "QK"}, U, m)
    at = {label: i for i, label in enumerate(labels)}
    for h in range(1, H + 1):
        assert np.array_equal(R[:, at["OV", (0, h), 0, 0]], R[:, at["OV", (h, 0), 0, 0]])
    assert rank(R) < m
    values = [[identity(m)] + [integers(rng, m, m) for _ in range(H)] for _ in range(L)]
    readers = {k: [[zeros(m, d)] + [integers(rng, m, d) for _ in range(H)] for _ in range(L)] for k in "QK"}
    assert rank(residual_stack(L, labels, values, readers, U, m)) == m
