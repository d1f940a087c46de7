"""The README's commands run, and print what the README says they print."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from utfproof.cli.app import run

ROOT = Path(__file__).parents[1]
EXPECTED_CODES = {"printed-tree-row": 1}


def console_blocks():
    """(command, expected output lines) of every `$ utfproof` line, in order."""
    found = []
    for block in re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:].split("  #")[0].strip(), []))
            elif found and line.strip() and block.startswith("$"):
                found[-1][1].append(line)
    return found


def test_commands_print_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "data" / "parentheses.safetensors", "target.safetensors")  # what the script writes
    commands = console_blocks()
    assert len(commands) >= 10
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        if program != "utfproof":
            assert (ROOT / arguments[0]).exists()
            continue
        code = run(arguments)
        printed = capsys.readouterr().out
        wanted = EXPECTED_CODES.get(arguments[1], 0) if arguments[0] == "certify" else 0
        assert code == wanted, command
        for line in expected:
            assert line in printed.splitlines(), command


def test_python_example_runs():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert code is not None
    names: dict = {}
    exec(code.group(1), names)
    assert names["embedding"].notion == "matching"


def test_the_two_commands_are_make_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in ("verify", "test"):
        assert f"make {target} " in (ROOT / "README.md").read_text()
        assert f"\n{target}:" in makefile


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
