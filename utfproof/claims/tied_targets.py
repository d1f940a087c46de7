"""Tied targets and the rows of their W_all: isolating targets, spans, and lower bounds that follow."""

from __future__ import annotations

import numpy as np

from utfproof.certificates.format import Certificate
from utfproof.certificates.lower_bounds import span_certificate
from utfproof.claims import plain
from utfproof.claims.decisions import dense
from utfproof.constructions.random import integer_target
from utfproof.errors import Undecided
from utfproof.matching import w_all
from utfproof.shapes import Shape, column_at, matching_dimension
from utfproof.systems import Target


def tied_span_refutes(shape: Shape, m: int) -> Certificate | None:
    """A certificate that no host of dimension m matches all tied targets, when sample targets span more; else None."""
    try:
        return span_certificate(shape, m, tied=True)
    except Undecided:
        return None


def tied_rows(shape: Shape, count: int) -> np.ndarray:
    """The rows of W_all of this many tied targets with small integer weights [count * d_in, M], exact."""
    return np.concatenate([dense(w_all(integer_target(shape, seed, tied=True, bound=8))) for seed in range(count)])


def tied_isolating_target(shape: Shape, column: int) -> Target:
    """A tied 0/1 target whose W_all has the unit vector of this column as its first row (d, d_in >= L).

    States 1 ... L of the input: the word's letters lead from state t to t + 1, its last letter reads state l (or leads
    to the output coordinate).
    """
    kind, word, coordinate = column_at(shape, column)
    H, d, D = shape.heads, shape.head_dim, shape.d_in
    forms = np.zeros((H, D, D), dtype=object)
    readers = {name: np.zeros((H, D, d), dtype=object) for name in ("Q", "K")}
    for state, head in enumerate(word[:-1]):
        forms[head][state, state + 1] = 1
    last = len(word) - 1
    if kind == "OV":
        forms[word[-1]][last, coordinate] = 1
    else:
        readers[kind][word[-1]][last, coordinate] = 1
    w_v, w_o = np.zeros((H, D, d), dtype=object), np.zeros((H, d, D), dtype=object)
    for head in range(H):
        for row, state in enumerate(np.flatnonzero(forms[head].any(axis=1)).tolist()):
            w_v[head][state, row] = 1
            w_o[head][row] = forms[head][state]
    return Target(shape, readers["Q"], readers["K"], w_v, w_o)


def isolates(target: Target, column: int) -> tuple[bool, bool]:
    """Whether the first row of W_all is the unit vector of this column: by the package, and in plain integers."""
    M = matching_dimension(target.shape)
    unit = [int(j == column) for j in range(M)]
    return dense(w_all(target))[0].tolist() == unit, plain.equations(target)[0] == unit
