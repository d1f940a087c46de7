"""Starts are light, layers hold, the checker stands alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from utfproof.cli import app
from utfproof.jobs.registry import commands

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "sympy", "flint", "numpy", "scipy", "typer", "rich", "safetensors")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_is_light():
    loaded = python(f"import sys, utfproof; print([m for m in {HEAVY} if m in sys.modules])")
    assert loaded == "[]"


def test_import_is_fast():
    code = "import time; t = time.process_time(); import utfproof; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(3)) < 0.3


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["certifi"]])
def test_help_and_version_start_light(arguments):
    """No command's own imports: NumPy alone takes longer than the rest of the start."""
    heavy = [name for name in HEAVY if name != "typer"]
    code = (
        "import contextlib, io, sys, time; from utfproof.cli.app import run; out = io.StringIO(); "
        f"stack = contextlib.redirect_stdout(out); stack.__enter__(); run({arguments}); stack.__exit__(None, None, None); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_the_outlined_help_is_the_whole_one(capsys):
    """What is read from the source is what the commands say when they are imported."""
    shown = []
    for outlined in (True, False):
        assert not app.application(outlined=outlined)(["--help"], standalone_mode=False)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert all(f"\n  {name} " in shown[0] for name in {entry.partition(" ")[0] for entry in commands()})


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
    checker = tmp_path / "alone.py"
    checker.write_bytes((ROOT / "utfproof" / "certificates" / "checker.py").read_bytes())
    example = next((ROOT / "certificates").glob("tied-*.json"))
    command = [sys.executable, "-I", str(checker), str(example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_resolve():
    import utfproof

    for name in utfproof.__all__:
        assert getattr(utfproof, name) is not None
    with pytest.raises(AttributeError):
        _ = utfproof.nonsense


def test_layers_hold():
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
