"""Numerical search: derivatives, cautious outcomes, exact verification with planted faults, the commands."""

import json
from fractions import Fraction

import numpy as np
import pytest

from utfproof.constructions import construction
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.search import restarts
from utfproof.search.exact_host import ExactHost, exact_array, verify
from utfproof.search.levenberg import levenberg_marquardt
from utfproof.search.numerical import (
    FRESH,
    TARGET,
    Equations,
    State,
    draw_targets,
    start,
)
from utfproof.search.problem import Problem
from utfproof.search.restarts import (
    APPROXIMATE,
    CANDIDATE,
    NOT_FOUND,
    OVERFITTED,
    SearchSetting,
    outcome_of,
    search,
)
from utfproof.shapes import Shape, head_words

LOOPED = {"tied_targets": True, "tied_host": True}


def problem(H, L, m, d=1, head_dim=None, **options):
    return Problem(Shape(H, L, head_dim or d, d), m, **options)


PROBLEMS = {
    "untied": problem(2, 2, 2),
    "three heads": problem(3, 2, 3),
    "odd": problem(2, 3, 3),
    "looped": problem(2, 3, 3, **LOOPED),
    "E free": problem(2, 2, 3, free="E", **LOOPED),
    "wide": problem(2, 2, 3, d=2),
    "wide, looped, E free": problem(2, 2, 3, d=2, free="E", **LOOPED),
    "rank one": problem(2, 2, 2, d=2, head_dim=1),
}


# --- problems ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problem(2, 2, 0), "m must be a positive integer"),
        (lambda: problem(2, 2, True), "m must be a positive integer"),
        (lambda: problem(2, 2, 2, free="both"), "free is 'both'"),
        (lambda: Problem(Shape(2, 2, 1, 1, 2), 2), "d_in = d_out"),
    ],
)
def test_problems_are_checked(make, message):
    with pytest.raises(MalformedInput, match=message):
        make()


# --- equations ---------------------------------------------------------------------------------------------


def random_state(asked, targets=4, batch=2):
    equations = Equations(asked, draw_targets(asked, 0, TARGET, targets))
    return equations, start(asked, 5, range(batch), targets)


@pytest.mark.parametrize("name", PROBLEMS)
def test_residuals_are_those_of_the_words(name):
    asked = PROBLEMS[name]
    equations, state = random_state(asked)
    found = equations.residual(state)
    for b in range(2):
        for t in range(4):
            for w, word in enumerate(head_words(asked.shape.heads, asked.shape.layers)):
                row = state.E[b, t if state.E.shape[1] > 1 else 0]
                for layer, head in enumerate(word):
                    row = row @ state.R[b, 0 if asked.tied_host else layer, head]
                out = row @ state.U[b, t if state.U.shape[1] > 1 else 0] - equations.wanted[0, t, w]
                np.testing.assert_allclose(found[b, t, w], out, atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("frozen", [False, True])
def test_derivatives_are_difference_quotients(name, frozen):
    asked = PROBLEMS[name]
    targets = 3
    equations = Equations(asked, draw_targets(asked, 0, TARGET, targets), frozen_host=frozen)
    state = start(asked, 5, range(2), targets)
    host, local = equations.linearised(state)
    P, n = equations.global_size, equations.local_size
    generator = np.random.default_rng(0)
    step_host, step_local = generator.standard_normal((2, P)), generator.standard_normal((2, targets, n))
    h = 1e-6

    def at(scale):
        moved = equations.moved(state, scale * step_host, scale * step_local)
        return equations.residual(moved).reshape(2, targets, -1)

    quotient = (at(h) - at(-h)) / (2 * h)
    predicted = np.einsum("btrp,bp->btr", host, step_host) + np.einsum("btrn,btn->btr", local, step_local)
    np.testing.assert_allclose(predicted, quotient, atol=1e-7)


def test_targets_are_those_of_the_systems():
    for looped in (False, True):
        asked = problem(2, 3, 3, tied_targets=looped)
        for w in draw_targets(asked, 3, FRESH, 3)[:, :, 0, 0]:
            assert np.isclose(np.mean(w**2), 1)
            cube = w.reshape(2, 2, 2)
            if looped:
                np.testing.assert_allclose(cube, cube.transpose(1, 0, 2))
            # rank one: every flattening has vanishing minors
            assert np.linalg.matrix_rank(cube.reshape(2, 4), tol=1e-9) == 1


def test_masks_hold_entries():
    asked = PROBLEMS["untied"]
    equations, state = random_state(asked, targets=12, batch=1)
    mask = np.ones(equations.global_size)
    mask[[0, 5]] = 0
    fit = levenberg_marquardt(equations, state, ridge=1e-3, iterations=20, mask=mask)
    before, after = equations.global_vector(state)[0], equations.global_vector(fit.state)[0]
    assert set(np.flatnonzero(before == after)) == {0, 5}


# --- outcomes ----------------------------------------------------------------------------------------------

GOOD = [(1e-2, 1e-3, 1.5), (1e-4, 1e-5, 1.5), (1e-8, 1e-9, 1.5), (0.0, 1e-14, 1.5)]
SERVED = (1e-16, 1e-15, 1e-14)
OUTCOMES = {
    "a host": (GOOD, SERVED, CANDIDATE),
    "weights grow": ([*GOOD[:3], (0.0, 1e-14, 9.0)], SERVED, APPROXIMATE),
    "residual too large": ([*GOOD[:3], (0.0, 1e-7, 1.5)], (1e-7, 1e-7, 1e-6), APPROXIMATE),
    "fresh targets missed": (GOOD, (1e-15, 0.1, 0.2), OVERFITTED),
    "a fresh target missed": (GOOD, (1e-15, 1e-15, 0.2), OVERFITTED),
    "slow fall": ([(1e-4, 7e-3, 1.8), (1e-8, 2e-4, 3.6)], None, APPROXIMATE),
    "no fall": ([(1e-4, 3e-2, 4.5), (1e-8, 2.5e-2, 9.0)], None, NOT_FOUND),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes(name):
    path, fresh, expected = OUTCOMES[name]
    assert outcome_of(path, fresh) == expected


def test_searches_are_refused_before_memory_runs_out():
    with pytest.raises(ResourceLimit, match="a search at"):
        search(problem(4, 4, 40), SearchSetting(restarts=1), max_memory=2**20)
    with pytest.raises(MalformedInput, match="restarts"):
        SearchSetting(restarts=0)


# --- exact verification ------------------------------------------------------------------------------------


def shared_host(name, asked):
    """A construction of the shared-attention model as an exact host."""
    entry = construction(name).shared
    built = entry.host(asked.shape, asked.m)
    layers, H = asked.host_layers, asked.shape.heads

    def dense(matrix):
        return np.eye(matrix.shape[0], dtype=np.int64) @ matrix

    R = np.array([[dense(built.value(layer, h)) for h in range(H)] for layer in range(layers)])
    U = None
    if "U" not in asked.free:
        U = exact_array(dense(entry.embed(asked.shape, asked.m, integer_target(asked.shape, 0, tied=True))[1]))
    return ExactHost(asked, exact_array(R), U)


HOSTS = {
    "two-sided": ("two-sided", problem(2, 2, 2), "rank one"),
    "two-sided, four layers": ("two-sided", problem(2, 4, 4), "rank one"),
    "register": ("register", problem(2, 2, 4, free="E", tied_host=True), "linear"),
    "register, wide": ("register", problem(2, 2, 8, d=2, free="E", tied_host=True), "linear"),
    "register, more dimensions": ("register", problem(2, 2, 5, free="E", tied_host=True), "linear"),
    "counting": ("counting", problem(2, 3, 4, free="E", **LOOPED), "linear"),
    "counting, three heads": ("counting", problem(3, 2, 6, free="E", **LOOPED), "linear"),
}


@pytest.mark.parametrize("name", HOSTS)
def test_constructions_are_verified(name):
    construction, asked, method = HOSTS[name]
    found = verify(shared_host(construction, asked))
    assert found.method == method
    assert found.known[1] <= asked.m
    assert found.known == (construction, asked.m) or "more" in name


def test_an_instance_solves_the_equations():
    found = verify(shared_host("two-sided", problem(2, 2, 2)))
    E, U = ([Fraction(v) for v in found.instance[side]] for side in "EU")
    forms = found.instance["value forms"]
    for word, matrix in zip(head_words(2, 2), found.host.word_products(), strict=True):
        value = forms[0][word[0]][0][0] * forms[1][word[1]][0][0]
        assert np.array(E) @ matrix @ np.array(U) == value


@pytest.mark.full
@pytest.mark.parametrize("name", ["two-sided", "register", "counting"])
def test_planted_faults_are_caught(name, monkeypatch):
    """Every single entry of R_V raised by 1, every nonzero one set to 0: still a host or refused, as another route says too."""
    monkeypatch.setattr(restarts, "FRESH_ATTEMPTS", 2)
    construction, asked, _ = HOSTS[name]
    host = shared_host(construction, asked)
    refused = kept = 0
    changes = [(place, host.R[place] + 1) for place in np.ndindex(host.R.shape)]
    changes += [(place, Fraction(0)) for place in zip(*np.nonzero(host.R), strict=True)]
    for place, value in changes:
        R = host.R.copy()
        R[place] = value
        changed = ExactHost(asked, R, host.U)
        try:
            verify(changed)
        except Undecided:
            refused += 1
            assert not numerically_serves(changed)
        else:
            kept += 1
            assert numerically_serves(changed)
    assert refused > 3
    assert kept > 3


def numerically_serves(host):
    """Another route: the frozen host's equations on fresh targets, in floats."""
    asked = host.problem
    U = np.ones((1, 1, asked.m, 1)) if host.U is None else host.U.astype(float)[None, None]
    state = State(host.R.astype(float)[None], np.ones((1, 1, 1, asked.m)), U)
    (fresh,) = restarts.fresh_residuals(asked, state, SearchSetting(fresh=2, iterations=60))
    return fresh[-1] < 1e-9


def test_hosts_of_another_form_are_refused():
    host = shared_host("counting", problem(2, 2, 3, free="E", **LOOPED))
    with pytest.raises(MalformedInput, match="U is fixed with the host"):
        ExactHost(host.problem, host.R)
    with pytest.raises(MalformedInput, match="R_V has shape"):
        ExactHost(host.problem, host.R[:, :1], host.U)


# --- commands ----------------------------------------------------------------------------------------------

NUMERICAL = ("search", "numerical", "-H", 2, "-L", 2)


@pytest.mark.full
def test_a_find_exits_with_0_and_repeats_bit_for_bit(cli, tmp_path):
    for name in ("run.json", "again.json"):
        code, out, _ = cli(*NUMERICAL, "--m", 2, "--restarts", 2, "-o", name, "--json")
        document = json.loads(out)
        assert (code, document["outcome"]) == (0, "found")
        assert document["verification"]["known"] == {"construction": "two-sided", "m": 2}
    assert (tmp_path / "run.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_nothing_found_exits_with_4(cli):
    code, out, _ = cli(*NUMERICAL, "--m", 2, "--looped", "--restarts", 3)
    assert code == 4
    assert "proves nothing" in out


@pytest.mark.full
def test_a_candidate_without_an_exact_method_exits_with_4(cli):
    wide = ("search", "numerical", "-H", 2, "-L", 1, "--m", 3, "--d-in", 2, "--restarts", 2, "--json")
    code, out, _ = cli(*wide)
    document = json.loads(out)
    assert (code, document["outcome"], document["verification"]) == (4, "candidate", None)
    assert "no exact method" in document["notes"][0]
    assert document["candidate"]["restart"] in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (NUMERICAL, 2, "--m missing"),
        ((*NUMERICAL, "--m", 2, "--free", "F"), 2, "--free 'F' is unknown"),
        ((*NUMERICAL, "--m", 2, "-o", "nowhere/run.json"), 2, "folder nowhere does not exist"),
        (("search", "numerical", "-H", 3, "-L", 4, "--m", 40, "--max-memory", "100M"), 3, "the limit is"),
    ],
)
def test_refusals(cli, arguments, code, message):
    found, _, error = cli(*arguments)
    assert found == code
    assert message in error
