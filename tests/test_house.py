"""Starts are light, layers hold, the checker stands alone, files and functions are short."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import fault_injection
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "utfproof").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
HEAVY = ("torch", "sympy", "flint", "numpy", "scipy", "rich", "safetensors")
CHECKER = ROOT / "utfproof" / "certificates" / "checker.py"
ONE_FILE = (CHECKER, ROOT / "tests" / "second_checker.py")
"""One file each by design: they run where nothing is installed."""


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_is_light():
    loaded = python(f"import sys, utfproof; print([m for m in {(*HEAVY, 'typer')} if m in sys.modules])")
    assert loaded == "[]"


def test_import_is_fast():
    code = "import time; t = time.process_time(); import utfproof; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(3)) < 0.3


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_start_light(arguments):
    code = (
        "import contextlib, io, sys; from utfproof.cli.app import run\n"
        f"with contextlib.redirect_stdout(io.StringIO()): run({arguments})\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_the_checker_imports_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import utfproof.certificates.checker; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'utfproof', '__mp_main__'}))"
    )
    assert python(code) == "[]"
    code = "import sys; import utfproof.certificates.checker; print(sorted(m for m in sys.modules if m.startswith('utfproof')))"
    assert python(code) == "['utfproof', 'utfproof.certificates', 'utfproof.certificates.checker']"


def test_the_checker_runs_as_a_single_file(tmp_path):
    alone = tmp_path / "alone.py"
    alone.write_bytes(CHECKER.read_bytes())
    example = next((ROOT / "certificates").glob("tied-*.json"))
    command = [sys.executable, "-I", str(alone), str(example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_resolve():
    import utfproof

    for name in utfproof.__all__:
        assert getattr(utfproof, name) is not None
    with pytest.raises(AttributeError):
        _ = utfproof.nonsense


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE + TESTS if path not in ONE_FILE}
    assert {path: lines for path, lines in lengths.items() if lines > (500 if path in PACKAGE else 600)} == {}


def test_every_planted_fault_finds_its_line():
    for fault in fault_injection.tables().values():
        source = Path(importlib.util.find_spec(fault.module).origin).read_text()
        assert source.count(fault.old) == 1, (fault.table, fault.name)


def test_no_docstring_holds_a_heading_or_a_fence():
    """The API pages show docstrings as prose."""
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = (ast.get_docstring(node) or "").splitlines()
                assert not any(line.startswith(("#", ":::", "```")) for line in lines), (path, node.lineno)
