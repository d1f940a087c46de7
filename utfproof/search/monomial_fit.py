"""E and U as monomials of the target's weights, read off a rounded host's numerical solutions and verified exactly. d_in = 1.

Coordinates of E and U are set to 0 or to 1 for all targets at once where the equations allow it; what is left is compared with
c x^k, k integers. The identity sum_ij (R_w)_ij E_i U_j = M_w is then checked term by term, as Laurent polynomials.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.errors import Undecided
from utfproof.search.exact_host import ExactHost, Verification, certified, sample_target
from utfproof.search.levenberg import levenberg_marquardt
from utfproof.search.numerical import TARGET, Equations, State, draw_targets, draw_weights
from utfproof.search.restarts import EXACT, SearchRun
from utfproof.shapes import head_words

LARGEST = 1e3
"""Entries of E and U beyond this mean that a coordinate was wrongly set."""
STEPS = 80
INTEGER = 1e-4
"""How near to integers exponents must be; the exact check follows."""

Term = tuple[Fraction, tuple[int, ...]]
"""Coefficient and exponents, layer by layer and head by head (one layer for tied targets)."""


@dataclass(frozen=True, eq=False)
class MonomialSolution:
    """An exact host with E_i and U_j as terms, None where zero."""

    host: ExactHost
    E: tuple[Term | None, ...]
    U: tuple[Term | None, ...]


def fit_monomials(run: SearchRun, host: ExactHost, state: State) -> MonomialSolution:
    """Terms for E and U of a rounded host; state: its floats and a solution for the first of the run's targets (one restart).

    Raises Undecided where the solutions are no monomials, or d_in > 1.
    """
    problem, m = run.problem, run.problem.m
    if problem.shape.d_in != 1 or problem.free != "E and U":
        raise Undecided("monomials are fitted for d_in = 1, E and U free")
    seed, positive, count = run.setting.seed, run.setting.positive, state.E.shape[1]
    wanted = draw_targets(problem, seed, TARGET, count, positive=positive)
    weights = draw_weights(problem, seed, TARGET, count, positive=positive)
    width = weights[0].size
    if count < width + 4:
        raise Undecided(f"{count} targets are too few to fit {width} exponents; pass --targets")
    solution = _sparse(Equations(problem, wanted, frozen_host=True), state)
    # targets were scaled to mean square 1, which is no monomial: the scale is one more variable, dropped from E U afterwards
    first = np.prod(np.abs(weights[:, :, 0]), axis=1)
    first = first**problem.shape.layers if problem.tied_targets else first
    scale = np.abs(wanted[:, 0, 0, 0]) / first
    logs = np.concatenate([np.log(np.abs(weights.reshape(len(weights), -1))), np.log(scale)[:, None]], axis=1)
    terms = [_term(column, weights.reshape(len(weights), -1), scale, logs) for column in solution.T]
    return MonomialSolution(host, tuple(terms[:m]), tuple(terms[m:]))


def _sparse(equations: Equations, state: State) -> np.ndarray:
    """(E, U) [t, 2m] with as many coordinates as possible 0, then 1, for all targets."""
    fixed: dict[int, float] = {}

    def attempt(entry: int, value: float) -> State | None:
        mask = np.ones(equations.local_size)
        mask[[*fixed, entry]] = 0
        step = np.zeros((1, equations.targets, equations.local_size))
        step[..., entry] = value - equations.local_vector(state)[..., entry]
        moved = equations.moved(state, np.zeros((1, 0)), step)
        fit = levenberg_marquardt(equations, moved, ridge=0.0, iterations=STEPS, goal=1e-13, local_mask=mask, stall=0.3)
        return fit.state if fit.residual[0] <= EXACT and fit.largest[0] <= LARGEST else None

    for value in (0.0, 1.0):
        sizes = np.abs(equations.local_vector(state)[0]).max(axis=0)
        for entry in np.argsort(sizes, kind="stable"):
            if int(entry) in fixed:
                continue
            found = attempt(int(entry), value)
            if found is not None:
                state, fixed[int(entry)] = found, value
    out: np.ndarray = equations.local_vector(state)[0].copy()
    for entry, value in fixed.items():
        out[:, entry] = value
    return out


def _term(values: np.ndarray, weights: np.ndarray, scale: np.ndarray, logs: np.ndarray) -> Term | None:
    """c x^k with these values [t], the scale's power apart; Undecided if there is none."""
    if not values.any():
        return None
    if not values.all():
        raise Undecided("a coordinate vanishes for some targets only")
    design = np.concatenate([logs, np.ones((len(logs), 1))], axis=1)
    found = np.linalg.lstsq(design, np.log(np.abs(values)), rcond=None)[0]
    exponents = np.rint(found[:-1]).astype(int)
    if np.abs(found[:-1] - exponents).max() > INTEGER:
        raise Undecided("a coordinate of E or U is no monomial of the target's weights")
    constant = values / np.prod(weights ** exponents[:-1], axis=1) / scale ** float(exponents[-1])
    coefficient = Fraction(float(np.median(constant))).limit_denominator(12)
    if not coefficient or np.abs(constant - float(coefficient)).max() > INTEGER * abs(coefficient):
        raise Undecided("a coordinate of E or U has a coefficient that is no small rational number")
    return coefficient, tuple(int(k) for k in exponents[:-1])


def verify_monomial(solution: MonomialSolution) -> Verification:
    """Exact verification that these terms solve the equations; Undecided, with the word that fails, if not.

    The targets served are all whose weights are nonzero, or all if no exponent is negative.
    """
    host, problem = solution.host, solution.host.problem
    shape = problem.shape
    products = host.word_products()
    terms = 0
    for word, matrix in zip(head_words(shape.heads, shape.layers), products, strict=True):
        total: dict[tuple[int, ...], Fraction] = {}
        for i, j in zip(*np.nonzero(matrix), strict=True):
            e, u = solution.E[i], solution.U[j]
            if e is None or u is None:
                continue
            key = tuple(a + b for a, b in zip(e[1], u[1], strict=True))
            total[key] = total.get(key, Fraction(0)) + matrix[i, j] * e[0] * u[0]
            terms += 1
        if {key: value for key, value in total.items() if value} != {_exponents(problem, word): Fraction(1)}:
            raise Undecided(f"the monomials do not solve the equation of word {word}")
    wanted, forms = sample_target(problem, 0)
    weights = [Fraction(int(value)) for value in np.asarray(forms, dtype=object).reshape(-1)]
    E, U = ([_value(term, weights) for term in side] for side in (solution.E, solution.U))
    for matrix, value in zip(products, wanted[:, 0, 0], strict=True):
        if sum(E[i] * matrix[i, j] * U[j] for i, j in zip(*np.nonzero(matrix), strict=True)) != value:
            raise Undecided("the E and U of a sample target fail")
    negative = any(k < 0 for term in (*solution.E, *solution.U) if term for k in term[1])
    facts: dict[str, Any] = {
        "words": shape.leaves,
        "terms checked": terms,
        "targets served": "those without zero weights" if negative else "all",
        "E": [_show(term) for term in solution.E],
        "U": [_show(term) for term in solution.U],
    }
    instance = {"value forms": forms, "E": [str(v) for v in E], "U": [str(v) for v in U]}
    return certified(host, "monomials", facts, instance, problem, tight=False)


def _exponents(problem: Any, word: tuple[int, ...]) -> tuple[int, ...]:
    H = problem.shape.heads
    out = [0] * (H * (1 if problem.tied_targets else problem.shape.layers))
    for layer, head in enumerate(word):
        out[head if problem.tied_targets else layer * H + head] += 1
    return tuple(out)


def _value(term: Term | None, weights: list[Fraction]) -> Fraction:
    if term is None:
        return Fraction(0)
    out = term[0]
    for weight, k in zip(weights, term[1], strict=True):
        out *= weight**k
    return out


def _show(term: Term | None) -> list[Any] | None:
    return None if term is None else [str(term[0]), list(term[1])]
