"""Exact verification of a host found by a search: E R_w U = M_w for all targets, as polynomial identities over the rationals.

| method | for | argument |
|---|---|---|
| linear | one of E, U free | what annihilates the columns R_w U annihilates all targets' entries, as polynomials |
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

from utfproof.certificates.format import Certificate
from utfproof.certificates.identities import identity_certificate
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, Undecided
from utfproof.exact import rational
from utfproof.ground.resources import require_memory
from utfproof.search.problem import Problem
from utfproof.shapes import head_words

Array = np.ndarray
Polynomial = dict[tuple[Any, ...], int]
"""Sorted tuple of variables -> coefficient."""


@dataclass(frozen=True, eq=False)
class ExactHost:
    """R_V [layers, H, m, m] (one layer when tied), E [d, m] or U [m, d] where fixed with the host;
    object arrays of Fractions."""

    problem: Problem
    R: Array
    E: Array | None = None
    U: Array | None = None

    def __post_init__(self) -> None:
        problem, d = self.problem, self.problem.shape.d_in
        expected = (problem.host_layers, problem.shape.heads, problem.m, problem.m)
        if self.R.shape != expected:
            raise MalformedInput(f"R_V has shape {list(self.R.shape)}, expected {list(expected)}")
        for name, array, size in (("E", self.E, (d, problem.m)), ("U", self.U, (problem.m, d))):
            fixed = name not in problem.free
            if (array is not None) != fixed or (array is not None and array.shape != size):
                raise MalformedInput(
                    f"{name} is {'fixed with the host' if fixed else 'free'}: give it accordingly, {list(size)}"
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
        arrays = {"R_V": self.R, "E": self.E, "U": self.U}
        return {name: np.vectorize(str)(array).tolist() for name, array in arrays.items() if array is not None}


@dataclass(frozen=True)
class Verification:
    """A host that serves almost all targets of its class, exactly. method as above; facts: what was counted; construction: the
    known one of the same class with at most as many dimensions, and its identity certificate, where there is one; equivalent:
    whether the host is that construction up to changes of coordinates; instance: one target with its E and U."""

    host: ExactHost
    method: str
    facts: dict[str, Any]
    instance: dict[str, Any]
    construction: str | None
    mirrored: bool
    equivalent: bool
    certificate: Certificate | None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method,
            "facts": self.facts,
            "host": self.host.document(),
            "instance": self.instance,
            "construction": self.construction,
            "mirrored": self.mirrored,
            "equivalent": self.equivalent,
            "certificate": None if self.certificate is None else self.certificate.document,
        }


def exact_array(array: Any) -> Array:
    """The same numbers as Fractions, object array."""
    flat = np.asarray(array, dtype=object)
    out = np.empty(flat.shape, dtype=object)
    out[...] = np.vectorize(Fraction, otypes=[object])(flat) if flat.size else flat
    return out


def verify(host: ExactHost) -> Verification:
    """Exact verification, or Undecided with the reason: the host fails, or no method here applies."""
    problem = host.problem
    if problem.free == "U":
        mirror = mirrored(host)
        facts, instance, tight = _linear(mirror)
        return certified(host, "linear", facts, instance, mirror.problem, tight=tight, mirrored=True)
    if problem.free == "E":
        facts, instance, tight = _linear(host)
        return certified(host, "linear", facts, instance, problem, tight=tight)
    facts, instance, tight = _rank_one(host)
    return certified(host, "rank one", facts, instance, problem, tight=tight)


def mirrored(host: ExactHost) -> ExactHost:
    """Transposed matrices, layers in reverse, E and U exchanged: it serves the transposed targets, the same class."""
    p = host.problem
    free = {"E": "U", "U": "E"}.get(p.free, p.free)
    problem = Problem(p.shape, p.m, free, p.tied_targets, p.tied_host)
    E = None if host.U is None else host.U.T
    U = None if host.E is None else host.E.T
    return ExactHost(problem, host.R[::-1].swapaxes(-1, -2), E, U)


def certified(
    host: ExactHost,
    method: str,
    facts: dict[str, Any],
    instance: dict[str, Any],
    problem: Problem,
    *,
    tight: bool,
    mirrored: bool = False,
) -> Verification:
    """The record, with the identity certificate of a known construction for the same class of at most as many dimensions;
    tight: the host has that construction's products up to changes of coordinates, if it has as many dimensions."""
    name, certificate, least = None, None, None
    for entry in CONSTRUCTIONS.values():
        shared = entry.shared
        if shared is None or not shared.canonical:
            continue
        if (shared.free, entry.targets == "all tied") != (problem.free, problem.tied_targets):
            continue
        if not entry.defined(problem.shape):
            continue
        least = entry.least_m(problem.shape)
        if least <= problem.m:
            name, certificate = entry.name, identity_certificate(entry.name, problem.shape, problem.m)
    equivalent = name is not None and tight and least == problem.m
    return Verification(host, method, facts, instance, name, mirrored, equivalent, certificate)


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


# --- one of E and U free -----------------------------------------------------------------------------------


def _linear(host: ExactHost) -> tuple[dict[str, Any], dict[str, Any], bool]:
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
    return facts, instance, rank == problem.m


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


def _rank_one(host: ExactHost) -> tuple[dict[str, Any], dict[str, Any], bool]:
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
    return facts, instance, two_sided_form(products, shape.heads, shape.layers)


def _form(row: Array, monomials: list[tuple[Any, ...]]) -> Polynomial:
    return {monomial: value for monomial, value in zip(monomials, row, strict=True) if value}


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for a, x in left.items():
        for b, y in right.items():
            key = tuple(sorted(a + b))
            out[key] = out.get(key, 0) + x * y
    return out


def two_sided_form(products: Array, heads: int, layers: int) -> bool:
    """Whether R_{uv} = (x_u p_u)(y_v q_v^T) for the words u of the first half of the layers and v of the second, p_u and q_v
    being bases: then a change of coordinates of E and of U makes these products those of `two-sided`."""
    if layers % 2:
        return False
    n = heads ** (layers // 2)
    table = products.reshape(n, n, *products.shape[1:])
    if products.shape[-1] != n:
        return False
    first = table[0, 0]
    i, j = next(((i, j) for i in range(n) for j in range(n) if first[i, j]), (None, None))
    if i is None:
        return False
    p, q = table[:, 0, :, j], table[0, :, i, :]  # R_{u0} e_j and e_i^T R_{0v}
    scale = first[i, j]
    fits = all((table[u, v] * scale == np.outer(p[u], q[v])).all() for u in range(n) for v in range(n))
    return bool(fits and rational.inverse(p) is not None and rational.inverse(q) is not None)
