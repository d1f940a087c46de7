"""The README's commands run, and print what the README says they print."""

import re
import subprocess
import sys
from pathlib import Path

import console
import pytest

from utfproof.claims.registry import all_claims

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    console.furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_commands_print_what_is_printed(folder, capsys):
    assert console.run_page(README, "README.md", folder, capsys) >= 10


@pytest.mark.exhaustive
def test_commands_with_training(folder, capsys):
    assert console.run_page(README, "README.md", folder, capsys, slow=True, real=True) >= 10


def test_every_command_has_a_prompt():
    for block in console.blocks(README, "README.md"):
        assert console.unprompted(block) == [], f"{block.place}: write `$ ` before commands"


def test_python_example_runs(folder):
    (block,) = (block for block in console.blocks(README, "README.md") if block.language == "python")
    names: dict = {}
    exec("\n".join(block.lines), names)
    assert names["embedding"].notion == "matching"


def test_the_two_commands_are_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("verify", "test"):
        assert f"make {target} " in README
        assert f"\n{target}:" in makefile


def test_findings_are_the_registry_s():
    """Each row of the table names a claim, and its notion and verdict are the recorded ones."""
    rows = re.findall(r"^\|.*\(`([^`]+)`\).*\|\s*([^|]+?)\s*\|\s*([^|]+?)\s*\|$", README, flags=re.MULTILINE)
    assert len(rows) >= 15
    for name, notion, verdict in rows:
        claim = all_claims()[name]
        assert verdict == claim.verdict.value, name
        assert notion == (claim.notion.value if claim.notion else "–"), name


def test_performance_page_is_what_the_data_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_performance.py"), "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, "run python scripts/write_performance.py"


def test_claims_page_is_what_the_registry_says():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_claims.py"), "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, "run python scripts/write_claims.py"
