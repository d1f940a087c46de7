"""What `utfproof check` announces of its time: near what a check takes, and of no weight for what it says."""

import json
from pathlib import Path

import measure_check
import pytest

from utfproof.certificates import checker, expected
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.prover import certify
from utfproof.cli.app import run
from utfproof.errors import ResourceLimit
from utfproof.shapes import Shape

ROOT = Path(__file__).parent.parent
MEASURED = json.loads((ROOT / "results" / "check-cpu.json").read_text())
ROWS = MEASURED["rows"]
LIGHT = [
    ("counting", (20, 4, 1, 1)),
    ("commuting-trie", (2, 40, 1, 1)),
    ("shared-query-groups", (2, 12, 1, 1)),
    ("sparse-front", (4, 8, 1, 1)),
    ("random-tied --residual", (2, 2, 30, 30)),
]
"""Rows that take about a second to make and to check."""


def test_what_was_announced_is_within_a_factor_two_of_what_was_taken():
    assert {"machine", "python", "shown from, s", "checked", "rows"} == set(MEASURED)
    assert MEASURED["checked"] > 800
    for row in ROWS:
        assert set(row) == {"certificate", "m", "kind", "announced", "taken"}
        assert row["taken"] >= MEASURED["shown from, s"], row
        assert 0.5 <= row["announced"] / row["taken"] <= 2, row
    assert {456, 912, 1824, 3648} <= {row["m"] for row in ROWS}
    assert {"identity", "rank-modular", "rank-permutation", "rank-triangular", "rank-deficient"} == {
        row["kind"] for row in ROWS
    }


@pytest.mark.parametrize(("name", "shape"), LIGHT)
def test_figures_are_those_of_the_code(name, shape, tmp_path):
    """A formula that changed is measured again: a row of the data says what is announced now."""
    certify(name.split()[0], Shape(*shape, residual="--residual" in name)).write(tmp_path / "c.json")
    found = measure_check.checked(tmp_path / "c.json", numpy=False)
    rows = {row["certificate"]: row for row in ROWS}
    assert found["announced"] == pytest.approx(rows[f"{name} at {shape}"]["announced"], rel=0.05)


@pytest.mark.full
def test_a_certificate_that_takes_a_second_is_not_refused_for_minutes(tmp_path, capsys):
    """The checker's own figure is 300 s: it refuses by itself, the command does not, and its message has the nearer one."""
    path = tmp_path / "c.json"
    certify("commuting-trie", Shape(4, 12, 2, 1)).write(path)
    assert checker.main([str(path), "--max-seconds", "100"]) == checker.LIMIT
    assert run(["check", str(path), "--max-seconds", "2", "--progress", "none"]) == 0
    limits = expected.Expected(operations=10**8)
    found = checker.check_file(path, limits)
    assert (found.code, found.message[:27]) == (checker.LIMIT, "needs about 1 s of arithmet")
    assert checker.Limits is not expected.Expected
    assert checker.Limits.__module__ == checker.__name__


def test_what_would_take_hours_is_refused_at_once(tmp_path):
    path, shape = tmp_path / "c.json", Shape(2, 4, 600, 600, residual=True)
    with pytest.raises(ResourceLimit, match="checking residual-key at"):  # nor is it written
        certify("residual-key", shape, max_memory=10**10)
    identity_certificate("residual-key", shape).write(path)
    assert checker.check_file(path, expected.Expected()).code == checker.LIMIT


@pytest.mark.full
def test_time_is_told_while_the_checker_works(tmp_path):
    told = []
    certify("shared-query-groups", Shape(3, 3, 40, 40)).write(tmp_path / "c.json")
    with expected.expecting(told.append):
        assert checker.main([str(tmp_path / "c.json"), "--quiet"]) == 0
    assert told
    assert max(told) <= 4


def test_false_certificates_are_as_false(tmp_path):
    files = sorted((ROOT / "tests/certificates/invalid").glob("*.json"))[::17]
    assert {checker.check_file(path, expected.Expected()).code for path in files} == {checker.INVALID}
