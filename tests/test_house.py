"""The house itself: light imports, layering, module length, planted faults in the constructions."""

import ast
import itertools
import re
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from utfproof.cli import app
from utfproof.jobs.registry import commands

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "sympy", "flint", "numpy", "scipy", "typer", "rich", "safetensors")
STANDALONE = {"checker.py"}
"""The checker is one file by design: it runs where nothing is installed."""


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


@pytest.mark.parametrize("path", sorted((ROOT / "utfproof").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_short(path):
    if path.name not in STANDALONE:
        assert len(path.read_text().splitlines()) <= 500


# --- no parser is written twice ------------------------------------------------------------------------------

READS = {
    "split",
    "partition",
    "rpartition",
    "fullmatch",
    "match",
    "finditer",
    "splitlines",
    "loads",
    "isdecimal",
    "isdigit",
}
MAKES = {"int", "float", "Fraction", "loads", "MalformedInput"}
INDEPENDENT = ("checker.py", "checker_numpy.py", "nullstellensatz.py")
ALIKE = 0.8
"""Share of what two parsers have in common from which on they are one."""


class Nameless(ast.NodeTransformer):
    """Code without its names and constants."""

    def visit_Name(self, node):
        return ast.Name("x", node.ctx)

    def visit_Constant(self, node):
        return ast.Constant(type(node.value).__name__)

    def visit_JoinedStr(self, node):
        return ast.Constant("str")


def parsers(source):
    """{name: words of its code without names} of the functions that take a text apart and make values of it, or refuse it."""
    found = {}
    for node in ast.parse(source).body:
        for function in [node, *getattr(node, "body", [])]:
            if isinstance(function, ast.FunctionDef):
                calls = [part.func for part in ast.walk(function) if isinstance(part, ast.Call)]
                called = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
                if called & READS and called & MAKES:
                    body = [Nameless().visit(part) for part in function.body[ast.get_docstring(function) is not None :]]
                    found[function.name] = re.findall(r"\w+", ast.dump(ast.Module(body, [])))
    return found


def twins(found):
    """Pairs of parsers that are alike but for names."""
    pairs = []
    for (one, left), (other, right) in itertools.combinations(found.items(), 2):
        match = SequenceMatcher(None, left, right, autojunk=False)
        if match.real_quick_ratio() >= ALIKE and match.quick_ratio() >= ALIKE and match.ratio() >= ALIKE:
            pairs.append((one, other))
    return pairs


def package_parsers():
    paths = [path for path in (ROOT / "utfproof").rglob("*.py") if path.name not in INDEPENDENT]
    return {(path.stem, name): words for path in paths for name, words in parsers(path.read_text()).items()}


def test_no_parser_is_written_twice():
    found = package_parsers()
    assert len(found) > 50
    assert twins(found) == []


def test_a_parser_that_is_written_again_is_found():
    again = """
def ends(word):
    hit = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", word.replace("_", ""), re.ASCII)
    return None if hit is None else (int(hit[1]), int(hit[2] or hit[1]))
"""
    assert twins(package_parsers() | parsers(again)) == [(("shapes", "span"), "ends")]


def test_digits_are_recognised_in_one_place():
    """Numbers of any length, and digits of other scripts, are met once; a form's check makes no number."""
    places = [
        path
        for path in (ROOT / "utfproof").rglob("*.py")
        if re.search(r"\.is(decimal|digit|numeric)\(", path.read_text())
    ]
    assert {path.name for path in places} - set(INDEPENDENT) == {"shapes.py", "forms.py"}
