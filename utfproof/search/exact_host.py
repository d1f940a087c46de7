"""Exact verification of a host found by a search: E R_w U = M_w for all targets, as polynomial identities over the rationals.

| method | for | argument |
|---|---|---|
| linear | E free | what annihilates the columns R_w U annihilates all targets' entries, as polynomials |
| rank one | E, U free, d_in = 1, untied targets, m^2 = H^L | X(a) with tr(R_w^T X) = a_w has vanishing 2x2 minors: X = E U^T |

Everything is integer or Fraction arithmetic; one target is solved and checked besides, so that no identity is vacuous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, Undecided
from utfproof.exact import rational
from utfproof.search.problem import Problem
from utfproof.shapes import head_words
from utfproof.util.resources import require_memory

Array = np.ndarray
Polynomial = dict[tuple[Any, ...], int]
"""Sorted tuple of variables -> coefficient."""


@dataclass(frozen=True, eq=False)
class ExactHost:
    """R_V [layers, H, m, m] (one layer when tied), and U [m, d] where it is fixed with the host; object arrays of
    Fractions."""

    problem: Problem
    R: Array
    U: Array | None = None

    def __post_init__(self) -> None:
        problem = self.problem
        expected = (problem.host_layers, problem.shape.heads, problem.m, problem.m)
        if self.R.shape != expected:
            raise MalformedInput(f"R_V has shape {list(self.R.shape)}, expected {list(expected)}")
        found = None if self.U is None else self.U.shape
        if found != ((problem.m, problem.shape.d_in) if problem.free == "E" else None):
            raise MalformedInput(
                f"U is {'fixed with the host' if problem.free == 'E' else 'free'}: give it accordingly"
            )

    def value(self, layer: int, head: int) -> Array:
        """R_V of a head; layers count from 0."""
        out: Array = self.R[0 if self.problem.tied_host else layer, head]
        return out

    def word_products(self) -> Array:
        """R_w for all words of length L, [w, m, m]."""
        out = exact_array(np.eye(self.problem.m, dtype=np.int64))[None]
        for layer in range(self.problem.shape.layers):
            heads = [self.value(layer, head) for head in range(self.problem.shape.heads)]
            out = np.stack([matrix @ step for matrix in out for step in heads])
        return out

    def document(self) -> dict[str, Any]:
        """Entries as decimal strings, for JSON."""
        arrays = {"R_V": self.R, "U": self.U}
        return {name: np.vectorize(str)(array).tolist() for name, array in arrays.items() if array is not None}


@dataclass(frozen=True)
class Verification:
    """A host that serves almost all targets of its class, exactly. method as above; facts: what was counted; instance: one
    target with its E and U; known: the construction of the same class with the fewest dimensions, and how many."""

    host: ExactHost
    method: str
    facts: dict[str, Any]
    instance: dict[str, Any]
    known: tuple[str, int] | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method,
            "facts": self.facts,
            "host": self.host.document(),
            "instance": self.instance,
            "known": None if self.known is None else {"construction": self.known[0], "m": self.known[1]},
        }


def exact_array(array: Any) -> Array:
    """The same numbers as Fractions, object array."""
    flat = np.asarray(array, dtype=object)
    out = np.empty(flat.shape, dtype=object)
    out[...] = np.vectorize(Fraction, otypes=[object])(flat) if flat.size else flat
    return out


def verify(host: ExactHost) -> Verification:
    """Exact verification, or Undecided with the reason: the host fails, or no method here applies."""
    method, decide = ("linear", _linear) if host.problem.free == "E" else ("rank one", _rank_one)
    facts, instance = decide(host)
    return Verification(host, method, facts, instance, least_known(host.problem))


def least_known(problem: Problem) -> tuple[str, int] | None:
    """The construction with the fewest dimensions that serves this class in this model, and its m."""
    found = []
    for entry in CONSTRUCTIONS.values():
        shared = entry.shared
        fits = shared is not None and (shared.free, entry.targets == "all tied") == (problem.free, problem.tied_targets)
        if fits and entry.defined(problem.shape):
            found.append((entry.least_m(problem.shape), entry.name))
    return min(found)[::-1] if found else None


# --- the targets' entries as polynomials -------------------------------------------------------------------


def target_entries(problem: Problem) -> Iterator[list[list[Polynomial]]]:
    """M_w entry by entry, [d][d] polynomials, for the words w of length L in lexicographic order.

    Variables are (layer, head, i, j), entries of M^{l,h}; for head_dim < d_in those of W_V and W_O.
    """
    shape = problem.shape
    d, rank = shape.d_in, min(shape.head_dim, shape.d_in)
    require_memory(300 * shape.leaves * d**2 * (d * rank) ** shape.layers, f"targets' polynomials at {shape}")
    for word in head_words(shape.heads, shape.layers):
        yield [[_entry(problem, word, i, j, rank) for j in range(d)] for i in range(d)]


def _entry(problem: Problem, word: Sequence[int], i: int, j: int, rank: int) -> Polynomial:
    d, L = problem.shape.d_in, problem.shape.layers
    out: Polynomial = {}
    for inner in product(range(d), repeat=L - 1):
        path = (i, *inner, j)
        for middle in product(range(rank), repeat=L if rank < d else 0):
            variables: list[Any] = []
            for layer, head in enumerate(word):
                at = (0 if problem.tied_targets else layer, head)
                a, b = path[layer], path[layer + 1]
                variables += [("V", *at, a, middle[layer]), ("O", *at, middle[layer], b)] if middle else [(*at, a, b)]
            key = tuple(sorted(variables))
            out[key] = out.get(key, 0) + 1
    return out


def combined(terms: Sequence[tuple[Any, Polynomial]]) -> Polynomial:
    """Sum of coefficient times polynomial, without zeros."""
    out: Polynomial = {}
    for coefficient, polynomial in terms:
        for monomial, value in polynomial.items():
            out[monomial] = out.get(monomial, 0) + coefficient * value
    return {monomial: value for monomial, value in out.items() if value}


def sample_target(problem: Problem, number: int) -> tuple[Array, list[Any]]:
    """(M_w [w, d, d] as Fractions, the value forms as nested lists): small nonzero integers, the same for every caller."""
    shape = problem.shape
    H, L, d, rank = shape.heads, shape.layers, shape.d_in, min(shape.head_dim, shape.d_in)
    layers = 1 if problem.tied_targets else L
    generator = np.random.default_rng(number)
    size = (layers, H, d, rank)
    left, right = generator.integers(1, 8, size), generator.integers(1, 8, size).swapaxes(-1, -2)
    forms = exact_array(left) if d == 1 else exact_array(left @ right)
    products = exact_array(np.eye(d, dtype=np.int64))[None]
    for layer in range(L):
        step = forms[0 if problem.tied_targets else layer]
        products = np.stack([matrix @ form for matrix in products for form in step])
    return products, np.vectorize(int)(forms).tolist()


# --- E free -----------------------------------------------------------------------------------------------


def _linear(host: ExactHost) -> tuple[dict[str, Any], dict[str, Any]]:
    problem, d = host.problem, host.problem.shape.d_in
    assert host.U is not None
    columns = np.concatenate([matrix @ host.U for matrix in host.word_products()], axis=1)  # [m, (w, c)]
    kernel, rank = _right_kernel(columns)
    entries = list(target_entries(problem))
    for vector in kernel:
        for row in range(d):
            terms = [(int(z), entries[k // d][row][k % d]) for k, z in enumerate(vector) if z]
            rest = combined(terms)
            if rest:
                raise Undecided(
                    f"a relation between the columns R_w U is no identity of the targets: {len(rest)} terms remain"
                )
    wanted, forms = sample_target(problem, 0)
    right = np.concatenate(list(wanted), axis=1)
    E = rational.solve_left(columns, right)
    if E is None or (E @ columns != right).any():
        raise Undecided("the equations of a sample target have no solution")
    facts = {"columns": int(columns.shape[1]), "rank": rank, "relations checked": len(kernel)}
    instance = {"value forms": forms, "E": np.vectorize(str)(E).tolist(), "U": np.vectorize(str)(host.U).tolist()}
    return facts, instance


def _right_kernel(matrix: Array) -> tuple[list[list[int]], int]:
    """Integer basis of {z: matrix z = 0}, and the rank."""
    import flint

    whole = [[int(v) for v in _integers(row)] for row in matrix]
    basis, nullity = flint.fmpz_mat(whole).nullspace()
    columns = basis.table()
    vectors = [[int(columns[i][j]) for i in range(matrix.shape[1])] for j in range(nullity)]
    if any(any(sum(a * z for a, z in zip(row, vector, strict=True)) for row in whole) for vector in vectors):
        raise AssertionError("a kernel vector fails")
    return vectors, int(matrix.shape[1]) - int(nullity)


def _integers(row: Array) -> list[Fraction]:
    """A row times the common denominator."""
    scale = lcm(*(value.denominator for value in row))
    return [value * scale for value in row]


# --- both free: X = E U^T ----------------------------------------------------------------------------------


def _rank_one(host: ExactHost) -> tuple[dict[str, Any], dict[str, Any]]:
    problem, m = host.problem, host.problem.m
    shape = problem.shape
    if shape.d_in != 1 or problem.tied_targets or m * m != shape.leaves:
        raise Undecided(
            f"no exact method for {problem}: with E and U free, the method here is for d_in = 1, untied targets, m^2 = H^L"
        )
    products = host.word_products()
    system = products.reshape(shape.leaves, m * m)  # row w: sum_ij N_w[i,j] X[i,j] = a_w
    inverse = rational.inverse(system)
    if inverse is None:
        raise Undecided("the products R_w are linearly dependent")
    monomials = [next(iter(entry[0][0])) for entry in target_entries(problem)]
    X = [[_form(inverse[i * m + j], monomials) for j in range(m)] for i in range(m)]
    minors = 0
    for i, k in product(range(m), repeat=2):
        for j, n in product(range(m), repeat=2):
            if i < k and j < n:
                minors += 1
                rest = combined([(1, _times(X[i][j], X[k][n])), (-1, _times(X[i][n], X[k][j]))])
                if rest:
                    raise Undecided(f"minor {(i, k)}, {(j, n)} of X is not zero: {len(rest)} terms remain")
    wanted, forms = sample_target(problem, 0)
    solved = (inverse @ wanted[:, 0, 0]).reshape(m, m)
    i, j = next((i, j) for i in range(m) for j in range(m) if solved[i, j])
    U, E = solved[i], solved[:, j] / solved[i, j]
    if any(E @ matrix @ U != value for matrix, value in zip(products, wanted[:, 0, 0], strict=True)):
        raise Undecided("the E and U of a sample target fail")
    facts = {"words": shape.leaves, "minors checked": minors}
    instance = {"value forms": forms, "E": [str(v) for v in E], "U": [str(v) for v in U]}
    return facts, instance


def _form(row: Array, monomials: list[tuple[Any, ...]]) -> Polynomial:
    return {monomial: value for monomial, value in zip(monomials, row, strict=True) if value}


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            key = tuple(sorted(a + b))
            out[key] = out.get(key, 0) + x * y
    return out
