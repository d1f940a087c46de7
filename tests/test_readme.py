"""The README's commands run, and print what the README says they print."""

import re
from pathlib import Path

import console
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_commands_print_what_is_printed(furnished, capsys):
    assert console.run_page(README, "README.md", furnished, capsys) >= 3


@pytest.mark.exhaustive
def test_commands_with_training(furnished, capsys):
    assert console.run_page(README, "README.md", furnished, capsys, slow=True, real=True) >= 3


def test_every_command_has_a_prompt():
    for block in console.blocks(README, "README.md"):
        assert console.unprompted(block) == [], f"{block.place}: write `$ ` before commands"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([\w-]+)", README, flags=re.MULTILINE):
        assert f"\n{target}:" in makefile
