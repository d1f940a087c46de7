"""The exact searches: exponents of monomial hosts, all {0,1} hosts of a few dimensions, and systems without solutions."""

import copy
import inspect
import json
import subprocess
import sys
import time
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import run_search_exact

from utfproof.cli.app import run
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.search import exhaustive, impossible, monomial_host
from utfproof.search import monomial as sumsets
from utfproof.search import nullstellensatz as ns
from utfproof.search.budget import Budget, OutOfBudget
from utfproof.search.exhaustive import search_all
from utfproof.search.monomial import MonomialGrid, anneal, exhaust, is_sumset, least_sumset, pack, unpack
from utfproof.search.monomial_host import MonomialHost, faults, find_host, has_solver, route, serves_all
from utfproof.search.problem import Problem
from utfproof.shapes import Shape
from utfproof.systems import SharedAttentionUniversal


def _problem(H: int, L: int, m: int, free: str = "E and U", *, looped: bool) -> Problem:
    return Problem(Shape(H, L, 1, 1), m, free, looped, looped)


# --- exponents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("H", "L", "least"),
    [(2, 1, 2), (3, 1, 2), (4, 1, 3), (5, 1, 3), (2, 2, 2), (3, 2, 3), (2, 3, 4), (3, 3, 6), (2, 4, 4)],
)
def test_least_monomial_size(H: int, L: int, least: int) -> None:
    """H^k ceil((H+1)/2) at these odd L, found with no size given, and every smaller one excluded."""
    grid = MonomialGrid(H, L)
    found, outcomes = least_sumset(grid, seconds=60)
    assert found == least
    assert [o.verdict for o in outcomes[:-1]] == ["none"] * (len(outcomes) - 1)
    assert outcomes[-1].sets is not None
    assert is_sumset(grid, *outcomes[-1].sets)


@pytest.mark.parametrize("L", range(1, 8))
def test_branch_and_bound_against_all_sets(L: int) -> None:
    """Two heads with tied weights: A + B containing 0 ... L, by listing all sets of integers in a wide range."""

    def possible(m: int) -> bool:
        everything = set(range(L + 1))
        for A in combinations(range(-L, L + 1), m):
            if A[0] != -L:  # a translation is free
                continue
            shifts = range(L - max(A) - 2 * L, 2 * L + 1)
            covers = [frozenset(a + b for a in A) & everything for b in range(min(shifts), L - min(A) + 1)]
            if any(
                frozenset().union(*chosen) == everything
                for chosen in combinations(set(covers), min(m, len(set(covers))))
            ):
                return True
        return False

    for m in (1, 2, 3):
        found = exhaust(MonomialGrid(2, L, tied=True), m)
        assert found.complete
        assert (found.sets is not None) == possible(m), (L, m)


def test_orbits_of_starts_count_as_burnside_says() -> None:
    """Subsets of the cube {0,1}^3 up to its 48 symmetries: 1, 3, 3, 6, 3, ... of sizes 1, 2, 3, 4, 5."""
    grid = MonomialGrid(2, 3)
    packed = [pack(p) for p in grid.points()]
    group = grid.symmetries()
    assert len({tuple(row) for row in group.tolist()}) == 48
    for size, orbits in ((1, 1), (2, 3), (3, 3), (4, 6), (5, 3)):
        # m = 8: nothing is dropped as too small
        assert len(sumsets._subsets(packed, group, size, 8, Budget())) == orbits


@pytest.mark.full
def test_budgets_are_kept_and_said() -> None:
    """A spent budget is open, never none."""
    assert exhaust(MonomialGrid(2, 5), 7, most_nodes=50).verdict == "open"
    assert exhaust(MonomialGrid(2, 5), 7, seconds=0.0).verdict == "open"
    assert anneal(MonomialGrid(2, 3), 3, steps=500, restarts=2).verdict == "open"
    assert anneal(MonomialGrid(2, 3), 4, seed=1).verdict == "found"
    assert anneal(MonomialGrid(2, 3), 4, seed=1).sets == anneal(MonomialGrid(2, 3), 4, seed=1).sets
    with pytest.raises(ResourceLimit):
        MonomialGrid(10, 10)


@pytest.mark.parametrize(
    ("H", "L", "tied", "size"),
    [(2, 3, False, 48), (2, 7, False, 5040), (4, 4, False, 4**4 * 24), (12, 2, True, 12)],
)
def test_symmetries_are_a_group_of_bounded_size(H: int, L: int, tied: bool, size: int) -> None:
    """All of them where the table is small, else those of a subgroup: permutations, closed under composition."""
    group = MonomialGrid(H, L, tied).symmetries()
    rows = {tuple(row) for row in group.tolist()}
    assert len(rows) == len(group) == size
    assert all(sorted(row) == list(range(group.shape[1])) for row in rows)
    for one, other in product(group[:: max(1, size // 20)], repeat=2):
        assert tuple(one[other].tolist()) in rows


@pytest.mark.parametrize("fewest", [10, 100, 1 << 23])
def test_a_smaller_group_finds_the_same(monkeypatch: pytest.MonkeyPatch, fewest: int) -> None:
    monkeypatch.setattr(sumsets, "MOST_ENTRIES", fewest)
    for H, L, m, verdict in ((2, 3, 3, "none"), (2, 3, 4, "found"), (4, 1, 2, "none"), (3, 2, 3, "found")):
        assert exhaust(MonomialGrid(H, L), m).verdict == verdict


def test_time_and_memory_of_the_monomial_search() -> None:
    """Sizes whose symmetries nobody can list end with the budget; processor time, for the machine may be busy."""
    began = time.process_time()
    for H, L, m in ((2, 7, 12), (4, 4, 16), (2, 10, 32), (12, 1, 5), (2, 12, 2000)):
        assert exhaust(MonomialGrid(H, L), m, seconds=0.1).note == "budget spent"
    assert anneal(MonomialGrid(2, 12), 3000, budget=Budget.lasting(0.1)).note.startswith("budget spent")
    assert find_host(MonomialGrid(2, 10), 1024, engine="local", seconds=0.1).status == "time spent"
    assert time.process_time() - began < 10
    assert exhaust(MonomialGrid(3, 4), 9, max_memory=1 << 30, seconds=0.1).verdict == "open"
    with pytest.raises(ResourceLimit, match="--max-memory"):
        exhaust(MonomialGrid(3, 4), 9, max_memory=1 << 24)
    with pytest.raises(ResourceLimit):
        anneal(MonomialGrid(2, 3), 3, steps=10**9, budget=Budget(memory=1 << 28))
    with pytest.raises(ResourceLimit, match="exponents"):
        MonomialGrid(4096, 1)


def test_many_coordinates_are_no_mistake() -> None:
    """Wide exponents, and more words than calls may be nested."""
    assert exhaust(MonomialGrid(50, 1), 50).verdict == "found"
    grid, limit = MonomialGrid(120, 1), sys.getrecursionlimit()
    depth = len(inspect.stack())
    try:
        sys.setrecursionlimit(depth + 60)
        assert route(grid, 120, grid.points(), [(0,) * 120], most_steps=500) is not None
    finally:
        sys.setrecursionlimit(limit)


def test_rising_m_stops_where_it_is_open() -> None:
    least, outcomes = least_sumset(MonomialGrid(2, 8), seconds=0.05)
    assert least is None
    assert [found.verdict for found in outcomes] == ["open"]


def test_packing() -> None:
    for vector in [(0, 0), (-3, 5), (7, -1), (-20, -20)]:
        assert unpack(pack(vector), 2) == vector
    assert pack((1, -2)) + pack((-4, 3)) == pack((-3, 1))


# --- monomial hosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "L", "m"), [(2, 2, 2), (3, 2, 3), (2, 3, 4), (3, 3, 6), (2, 5, 8), (4, 3, 12)])
def test_hosts_are_found_and_serve(H: int, L: int, m: int) -> None:
    """Without OR-Tools; the identity as polynomials, and one target through the system itself with attention from outside."""
    host = find_host(MonomialGrid(H, L), m, engine="local", seconds=60).host
    assert host is not None
    assert not faults(host)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, size=(L, H))
    E = np.array([[0.0 if a is None else np.prod(weights.reshape(-1) ** np.array(a)) for a in host.E]])
    U = np.array([[0.0] if b is None else [np.prod(weights.reshape(-1) ** np.array(b))] for b in host.U])
    attention = rng.dirichlet(np.ones(3), size=(L, H, 3))
    x = rng.normal(size=(3, 1))
    system = host.system()
    assert isinstance(system, SharedAttentionUniversal)
    wanted = x
    for layer in range(L):
        wanted = sum(weights[layer, h] * attention[layer, h] @ wanted for h in range(H))
    np.testing.assert_allclose(system.forward(x, E, U, attention), wanted, rtol=1e-9)


def test_two_sided_host_serves_all_targets() -> None:
    host = find_host(MonomialGrid(2, 2), 2, engine="local").host
    assert host is not None
    assert serves_all(host)


def test_faults_are_seen() -> None:
    """A one too many, a one too few, an exponent off by one, a wrong size."""
    host = find_host(MonomialGrid(2, 3), 4, engine="local").host
    assert host is not None
    i, j = next((i, j) for i, j in product(range(4), repeat=2) if host.R[1][0][i][j])
    fewer = copy.deepcopy(host.R)
    fewer[1][0][i][j] = 0
    assert faults(MonomialHost(host.grid, 4, fewer, host.E, host.U))
    seen = 0
    for a, b in product(range(4), repeat=2):
        more = copy.deepcopy(host.R)
        if not more[1][0][a][b]:
            more[1][0][a][b] = 1
            seen += bool(faults(MonomialHost(host.grid, 4, more, host.E, host.U)))
    assert seen
    first = next(k for k, v in enumerate(host.E) if v is not None)
    moved = tuple(tuple(x + 1 for x in v) if v is not None and k == first else v for k, v in enumerate(host.E))
    assert faults(MonomialHost(host.grid, 4, host.R, moved, host.U))
    with pytest.raises(MalformedInput):
        faults(MonomialHost(host.grid, 5, host.R, host.E, host.U))


def test_routes_may_be_missing() -> None:
    """Exponents alone are not a host: with only the sets, two coordinates do not route tied targets at (2,3)."""
    grid = MonomialGrid(2, 3, tied=True)
    found = exhaust(grid, 2)
    assert found.sets is not None
    assert route(grid, 2, *found.sets) is None


@pytest.mark.skipif(not has_solver(), reason="OR-Tools is not installed")
def test_solver_agrees() -> None:
    """CP-SAT: one coordinate is infeasible at (2,2), four are found at (2,3)."""
    assert find_host(MonomialGrid(2, 2), 1, engine="cp-sat", seconds=30).status == "infeasible"
    host = find_host(MonomialGrid(2, 3), 4, engine="cp-sat", seconds=30).host
    assert host is not None
    assert not faults(host)


def test_solver_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monomial_host, "has_solver", lambda: False)
    assert find_host(MonomialGrid(2, 3), 4).engine == "local"
    with pytest.raises(MalformedInput, match="OR-Tools"):
        find_host(MonomialGrid(2, 3), 4, engine="cp-sat")


# --- all {0,1} hosts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "kind", "verdict"),
    [
        (_problem(2, 2, 2, looped=True), "all", "none"),
        (_problem(2, 3, 2, looped=True), "all", "none"),
        (_problem(2, 2, 2, "E", looped=True), "all", "none"),
        (_problem(2, 2, 3, "E", looped=True), "injections", "found"),
        (_problem(2, 3, 3, "E", looped=True), "maps", "none"),
        (_problem(2, 3, 4, "E", looped=True), "injections", "found"),
        (_problem(2, 1, 1, looped=False), "all", "none"),
        (_problem(2, 1, 2, "E", looped=False), "all", "found"),
        (_problem(2, 2, 3, "E", looped=False), "injections", "none"),
    ],
)
def test_all_small_hosts(problem: Problem, kind: str, verdict: str) -> None:
    found = search_all(problem, kind)
    assert found.complete
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("problem", "kind", "classes", "served"),
    [
        (_problem(2, 1, 2, "E", looped=False), "all", 46, 57),
        (_problem(2, 1, 2, "E", looped=True), "all", 76, 100),
        (_problem(3, 1, 3, "E", looped=False), "injections", 252, 341),
        (_problem(2, 2, 3, "E", looped=True), "injections", 120, 36),
    ],
)
def test_as_many_hosts_serve_as_a_plain_count_says(problem: Problem, kind: str, classes: int, served: int) -> None:
    """Counted by loops over all hosts, renamings and U, with FLINT's rank over the integers; most pairs do not serve."""
    found = search_all(problem, kind)
    assert (found.classes, found.served, found.rational) == (classes, served, served)


def test_first_host_with_both_free() -> None:
    """Untied (2,2), m = 2: the two-sided register's size; looped (2,2), m = 3: the counting host's."""
    for problem in (_problem(2, 2, 2, looped=False), _problem(2, 2, 3, looped=True)):
        found = search_all(problem, stop_at_first=True)
        assert found.rational == 1
        assert not found.complete


def test_hosts_that_serve_complex_targets_only_are_no_find() -> None:
    """Untied (3,1), m = 2: the R_h leave one X + tZ, whose determinant is a quadratic in t; a root of it is rational in the
    weights for three classes of injections only, and the first class that serves is none of them."""
    problem = _problem(3, 1, 2, looped=False)
    every, first = (search_all(problem, "injections", stop_at_first=stop) for stop in (False, True))
    assert (every.served, every.rational, every.verdict) == (5, 3, "found")
    for found in (every, first):
        assert found.first is not None
        assert found.first["rational"]
    assert (first.served, first.rational, first.verdict) == (2, 1, "found")
    every.rational = 0
    assert every.verdict == "complex"


def test_classes_account_for_all_hosts() -> None:
    """Looped, m = 2: the classes' orbits have 256 members together."""
    table, chosen, total = exhaustive.tied_hosts(2, 2, "all")
    number = {matrix.tobytes(): i for i, matrix in enumerate(table)}
    swapped = [number[np.ascontiguousarray(matrix[::-1, ::-1]).tobytes()] for matrix in table]
    orbits = [
        {tuple(pair) for pair in ([a, b], [b, a], [swapped[a], swapped[b]], [swapped[b], swapped[a]])}
        for a, b in chosen.tolist()
    ]
    assert sum(len(orbit) for orbit in orbits) == total == 256
    assert len(set().union(*orbits)) == 256


def test_ranks_against_flint() -> None:
    from flint import fmpz_mat

    rng = np.random.default_rng(3)
    stack = rng.integers(-2, 3, size=(200, 4, 6))
    stack[::3, 3] = stack[::3, 0] + stack[::3, 1]
    stack[0] *= 10**6  # past the bound: the other route
    expected = [fmpz_mat(matrix.tolist()).rank() for matrix in stack]
    assert exhaustive.ranks(stack).tolist() == expected


def test_solvable_over_the_field_of_the_weights() -> None:
    """The two-sided host at (2,2) is solvable by rational functions; the same with two equal heads is not."""
    unit = [[[0, 0], [0, 0]] for _ in range(4)]
    for k, (i, j) in enumerate(product(range(2), repeat=2)):
        unit[k][i][j] = 1
    assert exhaustive.solvable(unit, MonomialGrid(2, 2)) == (True, True)
    unit[3] = unit[2]
    assert exhaustive.solvable(unit, MonomialGrid(2, 2)) == (False, False)


def test_time_inside_a_groebner_basis() -> None:
    """Which may take longer than all else."""
    unit = np.eye(4, dtype=np.int64).reshape(4, 2, 2).tolist()
    with pytest.raises(OutOfBudget):
        exhaustive.solvable(unit, MonomialGrid(2, 2), Budget.lasting(0))


def test_refusals() -> None:
    with pytest.raises(MalformedInput):
        search_all(Problem(Shape(2, 2, 1, 2), 2))
    with pytest.raises(MalformedInput):
        search_all(Problem(Shape(2, 2, 1, 1), 2, "U", True, True))
    with pytest.raises(MalformedInput):
        search_all(Problem(Shape(2, 2, 1, 1), 2, "E", False, True))
    with pytest.raises(MalformedInput):
        exhaustive.matrices(2, "some")
    with pytest.raises(ResourceLimit):
        search_all(_problem(2, 3, 4, looped=True))
    spent = search_all(_problem(2, 2, 3, looped=True), seconds=0.0)
    assert spent.verdict == "open"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (_problem(10, 1, 3, looped=False), "all"),
        (_problem(2, 8, 4, "E", looped=False), "all"),
        (_problem(500, 1, 3, looped=True), "all"),
        (_problem(1, 1, 10**9, looped=True), "maps"),
    ],
)
def test_too_many_hosts_are_counted_not_listed(problem: Problem, kind: str) -> None:
    with pytest.raises(ResourceLimit, match="choose a smaller"):
        search_all(problem, kind, seconds=1)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (_problem(2, 1, 4, looped=False), "all"),
        (_problem(1, 1, 7, looped=True), "injections"),
        (_problem(2, 12, 3, looped=True), "all"),
        (_problem(2, 12, 3, "E", looped=True), "all"),
    ],
)
def test_time_of_the_exhaustive_search(problem: Problem, kind: str) -> None:
    """While hosts are listed, and where none passes the linear test."""
    began = time.process_time()
    found = search_all(problem, kind, seconds=0.2)
    assert found.verdict == "open"
    assert not found.complete
    assert any(note.startswith("time spent") for note in found.notes)
    assert time.process_time() - began < 5


def test_heads_are_sorted_rather_than_permuted() -> None:
    """Twelve heads of 1x1 matrices, up to renaming: how many of them are 1."""
    assert len(exhaustive.tied_hosts(12, 1, "all", budget=Budget.lasting(60))[1]) == 13


# --- systems without solutions ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    path = tmp_path_factory.mktemp("certificates") / "normal-form.json"
    assert run(["search", "impossible", "looped-two-layers-normal-form", "-o", str(path)]) == 0
    other = impossible.certify("looped-three-layers")
    assert other.certified
    return {"looped-two-layers-normal-form": json.loads(path.read_text()), "looped-three-layers": other.document}


def _value(polynomial: ns.Polynomial, point: list[int]) -> object:
    total = 0
    for monomial, value in polynomial.items():
        term = value
        for x, e in zip(point, monomial, strict=True):
            term *= x**e
        total += term
    return total


@pytest.mark.full
def test_cofactors_give_one(certificates: dict[str, dict]) -> None:
    """The check, and apart from it the identity at integer points."""
    for name, document in certificates.items():
        assert ns.check(json.loads(json.dumps(document)))[0]
        names, equations = ns.SYSTEMS[name]()
        cofactors = [ns.from_terms(c, len(names)) for c in document["cofactors"]]
        for seed in range(3):
            point = np.random.default_rng(seed).integers(-3, 4, size=len(names)).tolist()
            assert sum(_value(c, point) * _value(e, point) for c, e in zip(cofactors, equations, strict=True)) == 1


def test_systems_say_what_they_should() -> None:
    """Equations at random matrices: word products, symmetric parts and the normal form, computed with NumPy."""
    rng = np.random.default_rng(5)
    R, G = rng.integers(-3, 4, size=(2, 2, 2)), rng.integers(-3, 4, size=(2, 2))
    _, equations = ns.SYSTEMS["looped-two-layers"]()
    values = [_value(e, [*R.reshape(-1).tolist(), *G.reshape(-1).tolist()]) for e in equations]
    wanted = []
    for i, j in product(range(2), repeat=2):
        P = G @ R[i] @ R[j] - np.eye(2, dtype=int)[:, [i]] @ np.eye(2, dtype=int)[[j]]
        wanted += [P[0, 0], P[0, 1] + P[1, 0], P[1, 1]]
    assert values == wanted
    _, equations = ns.SYSTEMS["looped-three-layers"]()
    x, y = rng.integers(-3, 4, size=(2, 4))
    values = [_value(e, [*R.reshape(-1).tolist(), *x.tolist(), *y.tolist()]) for e in equations]
    N = {w: R[w[0]] @ R[w[1]] @ R[w[2]] for w in product(range(2), repeat=3)}
    wanted = []
    for first, *others in ([(0, 0, 1), (0, 1, 0), (1, 0, 0)], [(0, 1, 1), (1, 0, 1), (1, 1, 0)]):
        for other in others:
            wanted += (N[first] - N[other]).reshape(-1).tolist()
    normal = [N[w] for w in ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1))]
    for coefficients, place in ((x, (0, 1)), (y, (1, 0))):
        total = sum(c * M for c, M in zip(coefficients, normal, strict=True))
        total[place] -= 1
        wanted += total.reshape(-1).tolist()
    assert values == wanted


@pytest.mark.full
def test_planted_faults_are_caught(certificates: dict[str, dict], tmp_path: Path) -> None:
    """A coefficient, an equation, a missing cofactor, another system's name, and forms that are no certificate."""
    good = certificates["looped-two-layers-normal-form"]

    def changed(**fields: object) -> dict:
        return json.loads(json.dumps({**good, **fields}))

    wrong = changed()
    wrong["cofactors"][0][0][0] = "12345"
    assert not ns.check(wrong)[0]
    wrong = changed()
    wrong["equations"][0][0][0] = "7"
    assert not ns.check(wrong)[0]
    wrong = changed()
    wrong["equations"], wrong["cofactors"] = [[["1", []]]], [[["1", []]]]  # 1 = 0 added to the system
    assert not ns.check(wrong)[0]
    assert not ns.check(changed(system="looped-two-layers"))[0]
    for bad in (
        changed(system="none"),
        changed(cofactors=[]),
        changed(cofactors=[[["0", []]]] * len(good["cofactors"])),
        changed(cofactors=[[["1.5", []]]] * len(good["cofactors"])),
        changed(cofactors=[[["1", [[0, -1]]]]] * len(good["cofactors"])),
        changed(version=True),
        changed(more=1),
        [],
    ):
        with pytest.raises(ns.Malformed):
            ns.check(bad)
    with pytest.raises(ns.Malformed):
        ns.read('{"a": 1, "a": 2}')
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(wrong))
    assert ns.main([str(path)]) == 1


def test_checker_stands_alone(certificates: dict[str, dict], tmp_path: Path) -> None:
    """Run as a file in isolated mode: nothing but the standard library is there."""
    path = tmp_path / "good.json"
    path.write_text(json.dumps(certificates["looped-two-layers-normal-form"]))
    done = subprocess.run(
        [sys.executable, "-I", "-S", ns.__file__, str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout[:5]) == (0, "valid")


def test_a_second_route_agrees(certificates: dict[str, dict]) -> None:
    """SymPy's Gröbner basis modulo a prime is {1}; and s c det K = 1 is used: the other equations do have solutions."""
    sympy = pytest.importorskip("sympy")
    names, equations = ns.SYSTEMS["looped-two-layers-normal-form"]()
    assert all((4 * v).denominator == 1 for equation in equations for v in equation.values())
    symbols = sympy.symbols(names)
    sums = [
        sum(int(4 * v) * sympy.prod(x**e for x, e in zip(symbols, m, strict=True)) for m, v in equation.items())
        for equation in equations
    ]
    assert sympy.groebner(sums, *reversed(symbols), order="grevlex", modulus=32003).exprs == [1]
    assert certificates["looped-two-layers-normal-form"]["cofactors"][-1]


def test_committed_certificate() -> None:
    """The direct system at (2,2), m = 2: none of the proof's reductions beyond E and U linear in the weights."""
    path = Path(__file__).parent.parent / "results" / "impossible-looped-two-layers.json"
    document = ns.read(path.read_bytes())
    assert document["system"] == "looped-two-layers"
    assert ns.check(document)[0]
    document["cofactors"][0][0][0] = "9"
    assert not ns.check(document)[0]


def test_gradings() -> None:
    """Every equation is homogeneous for every weight."""
    for name in ns.SYSTEMS:
        _, equations = ns.SYSTEMS[name]()
        for weight in impossible.gradings(equations):
            for equation in equations:
                assert len({sum(w * e for w, e in zip(weight, m, strict=True)) for m in equation}) == 1


def test_tables_are_those_of_the_results() -> None:
    """docs/search.md holds what results/search-exact.json says, and every command of the script was run."""
    data = json.loads(run_search_exact.RESULTS.read_text())
    text = run_search_exact.PAGE.read_text()
    assert run_search_exact.page(text, data) == text
    assert [entry["command"] for entry in data["runs"]] == [
        f"utfproof search {line}" for line in run_search_exact.COMMANDS
    ]


def test_hosts_in_the_results_serve() -> None:
    """Every monomial host in the data file, verified again."""
    root = Path(__file__).parent.parent
    count = 0
    for entry in json.loads((root / "results" / "search-exact.json").read_text())["runs"]:
        found = (entry["document"].get("host") or {}).get("host") if entry["document"]["search"] == "monomial" else None
        if found is None:
            continue
        m, grid = found["m"], MonomialGrid(found["heads"], found["layers"], found["looped_targets"])
        R = tuple(
            tuple([[int([i, j] in ones) for j in range(m)] for i in range(m)] for ones in layer)
            for layer in found["ones_of_R_V"]
        )
        E, U = (tuple(None if v is None else tuple(v) for v in found[name]) for name in "EU")
        host = MonomialHost(grid, m, R, E, U)
        assert not faults(host)
        assert serves_all(host) == entry["document"]["host"]["all_targets"]
        count += 1
    assert count >= 10


# --- the command line --------------------------------------------------------------------------------------


def test_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path, certificates: dict[str, dict]) -> None:
    out = tmp_path / "found.json"
    assert run(["search", "monomial", "-H", "2", "-L", "3", "--engine", "local", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    assert (document["outcome"], document["least_m"]) == ("found", 4)
    assert run(["search", "monomial", "-H", "2", "-L", "3", "--m", "3"]) == 4
    assert run(["search", "monomial", "-H", "2"]) == 2
    assert run(["search", "monomial", "-H", "10", "-L", "10"]) == 3
    assert run(["search", "exhaustive", "-H", "2", "-L", "2", "--m", "2", "--looped"]) == 4
    assert run(["search", "exhaustive", "-H", "2", "-L", "1", "--m", "2", "--free", "E"]) == 0
    assert run(["search", "exhaustive", "-H", "2", "-L", "3", "--m", "5", "--looped"]) == 3
    assert run(["search", "exhaustive", "-H", "2", "-L", "2", "--m", "2", "--kind", "some"]) == 2
    certificate = tmp_path / "certificate.json"
    certificate.write_text(json.dumps(certificates["looped-two-layers-normal-form"]))
    assert run(["search", "impossible", "--check", str(certificate)]) == 0
    text = certificate.read_text()
    certificate.write_text(text.replace('"1/2"', '"1/3"') if '"1/2"' in text else text.replace('"2"', '"3"'))
    assert run(["search", "impossible", "--check", str(certificate)]) == 1
    certificate.write_text("{}")
    assert run(["search", "impossible", "--check", str(certificate)]) == 2
    assert run(["search", "impossible", "looped-two-layers", "--degree", "3"]) == 4
    # a degree asks for a search, although this one has a written derivation
    assert run(["search", "impossible", "looped-three-layers", "--degree", "3"]) == 4
    assert run(["search", "impossible", "no-such-system"]) == 2
    assert run(["search", "impossible"]) == 2
