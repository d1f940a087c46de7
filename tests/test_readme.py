"""The README's commands run, and print what the README says they print."""

import re
import subprocess
import sys
from pathlib import Path

import console
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_commands_print_what_is_printed(furnished, capsys):
    assert console.run_page(README, "README.md", furnished, capsys) >= 10


@pytest.mark.exhaustive
def test_commands_with_training(furnished, capsys):
    assert console.run_page(README, "README.md", furnished, capsys, slow=True, real=True) >= 10


def test_every_command_has_a_prompt():
    for block in console.blocks(README, "README.md"):
        assert console.unprompted(block) == [], f"{block.place}: write `$ ` before commands"


def test_python_example_runs(furnished):
    (block,) = (block for block in console.blocks(README, "README.md") if block.language == "python")
    names: dict = {}
    exec("\n".join(block.lines), names)
    assert names["embedding"].notion == "matching"


def test_the_two_commands_are_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("verify", "test"):
        assert f"make {target} " in README
        assert f"\n{target}:" in makefile


GENERATED = (
    "write_claims.py",
    "write_schemas.py",
    "write_verdicts.py",
    "write_options.py",
)


@pytest.mark.parametrize("script", GENERATED)
def test_generated_pages_are_what_their_sources_say(script):
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"scripts/{script} --check: {done.stdout}{done.stderr}"


def test_the_first_screen_ends_with_a_result():
    """Install, one command, its answer and what it means: within forty lines."""
    before = README[: README.index("## Five jobs")]
    assert len(before.splitlines()) <= 40
    assert "make verify" in before
    assert "certify tied" in before
    assert "valid     tied.json" in before


def test_every_step_is_named():
    """Commands are called as the environment of the two commands has them; no line asks for what is not published."""
    assert ". .venv/bin/activate" in README
    assert "pip install" not in README
    for target in re.findall(r"`make ([\w-]+)`", README):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()
