"""The tiers: what is left out is said, nothing runs twice in CI, and CI begins with what a stranger sees."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import full_where

ROOT = Path(__file__).parents[1]


def test_slow_values_are_in_the_second_tier():
    quick, slow = full_where(lambda value: value > 1, [1, 2])
    assert quick == 1
    assert (slow.values, [mark.name for mark in slow.marks]) == ((2,), ["full"])


def test_ci_begins_with_what_a_stranger_sees():
    stages = re.findall(r"^ *stage (\S+) (.+)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    assert [name for name, _ in stages[:2]] == ["newcomer", "newcomer-busy"]
    commands = " ".join(command for _, command in stages)
    for target in (
        "make full",
        "make kernels",
        "make lint",
        "make certificates",
        "make tables",
        "make docs",
        "make wheel",
    ):
        assert target in commands
    for script in ("run", "newcomer", "kernels"):
        assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / script)], check=False).returncode == 0


def test_the_clean_environment_hides_what_is_installed_by_hand():
    """Its PATH holds the tools of the list, and none of them is one that the tests would take for granted."""
    text = (ROOT / ".ci" / "newcomer").read_text()
    tools = re.search(r'^tools="([^"]+)"', text, flags=re.MULTILINE)[1].split()
    assert {"make", "git", "bash"} <= set(tools)
    assert not {"coqc", "chromium", "chromedriver", "cc", "gcc", "g++", "apt-get", "pip", "sudo"} & set(tools)
    for setting in (
        "env -i",
        "HOME=/dev/null/home",
        "LANG=C",
        "COLUMNS=57",
        "PYTHONNOUSERSITE=1",
        "PIP_NO_CACHE_DIR=1",
    ):
        assert setting in text


@pytest.mark.full
def test_what_has_passed_is_left_out(tmp_path):
    def run(*options):
        """As CI says it: by the environment, the tests in processes of their own."""
        command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "tests/test_shapes.py"]
        environ = os.environ | {"PYTEST_ADDOPTS": shlex.join(options)}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)

    passed = tmp_path / "passed"
    first = run(f"--passed-to={passed}", "--deselect=tests/test_shapes.py::test_figures_of_the_frontier")
    assert first.returncode == 0, first.stdout
    assert "the second tier is left out (make full)" in first.stdout
    names = passed.read_text().splitlines()
    assert len(names) > 100
    passed.write_text("\n".join(names[1:]) + "\n")
    second = run(f"--passed-in={passed}")
    assert re.search(r"\b2 passed", second.stdout), second.stdout
