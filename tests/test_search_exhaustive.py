"""All {0,1} hosts of a few dimensions."""

import time
from itertools import product

import numpy as np
import pytest

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.search import exhaustive
from utfproof.search.exhaustive import Budget, OutOfTime, Words, search_all
from utfproof.search.problem import Problem
from utfproof.shapes import Shape


def _problem(H: int, L: int, m: int, free: str = "E and U", *, looped: bool) -> Problem:
    return Problem(Shape(H, L, 1, 1), m, free, looped, looped)


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


def test_solvable_over_the_field_of_the_weights() -> None:
    """The two-sided host at (2,2) is solvable by rational functions; the same with two equal heads is not."""
    unit = [[[0, 0], [0, 0]] for _ in range(4)]
    for k, (i, j) in enumerate(product(range(2), repeat=2)):
        unit[k][i][j] = 1
    assert exhaustive.solvable(unit, Words(2, 2)) == (True, True)
    unit[3] = unit[2]
    assert exhaustive.solvable(unit, Words(2, 2)) == (False, False)


def test_time_inside_a_groebner_basis() -> None:
    """Which may take longer than all else."""
    unit = np.eye(4, dtype=np.int64).reshape(4, 2, 2).tolist()
    with pytest.raises(OutOfTime):
        exhaustive.solvable(unit, Words(2, 2), Budget(0))


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
    assert len(exhaustive.tied_hosts(12, 1, "all")[1]) == 13


def test_the_command(cli) -> None:
    for arguments, code in (
        ("-L 2 --m 2 --looped", 4),
        ("-L 1 --m 2 --free E", 0),
        ("-L 3 --m 5 --looped", 3),
        ("-L 2 --m 2 --kind some", 2),
        ("-L 2", 2),
    ):
        assert cli("search", "exhaustive", "-H", 2, *arguments.split())[0] == code, arguments
