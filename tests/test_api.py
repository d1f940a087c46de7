"""The stable names of `utfproof`: results in one line, tables for notebooks, and every one of them on the page of the API."""

import doctest
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import utfproof
from utfproof import Shape, weights
from utfproof.util.results import LINE

SMALL = Shape(2, 2, 2, 3)


def results(folder):
    utfproof.certify("tied", SMALL).write(folder / "c.json")
    weights.write_host(folder / "host.safetensors", utfproof.build_host("printed-tree-row", SMALL), dtype="int8")
    yield utfproof.check(folder / "c.json")
    yield utfproof.check(folder / "missing.json")
    yield utfproof.decide(folder / "host.safetensors", d_in=3)
    yield utfproof.emulate("tied", SMALL, contexts=[1, 3], trials=2)
    yield utfproof.emulate(utfproof.build_host("random", SMALL), utfproof.random_target(SMALL, 1))
    yield utfproof.frontier(Shape(2, 2, 1, 1), notions=["shared-attention"])


def test_results_are_a_line_and_a_table(tmp_path):
    for found in results(tmp_path):
        assert repr(found).startswith(f"{type(found).__name__}(")
        assert len(repr(found)) <= LINE
        assert "\n" not in repr(found)
        table = found._repr_html_()
        assert table.count("<tr>") == len(found.rows())
        assert "<script" not in table


def test_results_answer(tmp_path):
    checked, missing, decided, drawn, given, frontier = results(tmp_path)
    assert (checked.valid, missing.valid) == (True, False)
    assert (decided.universal, drawn.holds, given.holds) == (False, True, True)
    assert decided.target.shape == SMALL
    assert not utfproof.check(tmp_path / "host.safetensors").valid
    assert all(entry.proved.value <= entry.reached.value for entry in frontier.entries if entry.reached)


def test_markup_in_names_is_escaped(tmp_path):
    assert "<b>" not in utfproof.check(tmp_path / "<b>.json")._repr_html_()


NAMES = [name for name in utfproof.__all__ if name != "__version__"]


PAGES = {page.stem: page.read_text() for page in (Path(__file__).parents[1] / "docs" / "api").glob("*.md")}
SHOWN = [
    (page, name) for page, text in PAGES.items() for name in re.findall(r"^::: utfproof\.(\S+)$", text, re.MULTILINE)
]


def test_every_stable_name_is_documented():
    assert set(NAMES) < {name for _, name in SHOWN}


@pytest.mark.parametrize(("page", "name"), SHOWN)
def test_every_documented_name_has_an_example_that_runs(page, name, tmp_path, monkeypatch):
    if name == "from_model":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder(recurse=False).find(pkgutil.resolve_name(f"utfproof.{name}"), name, globs={})
    if not example.examples:  # then the page's own block shows it, which tests/test_docs.py runs
        assert re.search(rf"\b{name.rpartition('.')[2]}\(", "".join(re.findall(r"```.*?```", PAGES[page], re.DOTALL)))
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_on_the_page(name):
    assert getattr(utfproof, name).__doc__
    assert f"`{name}`" in PAGES["index"]


def test_the_package_stays_what_it_says_after_its_rooms_are_loaded():
    code = "import utfproof; utfproof.frontier(utfproof.Shape(1, 1, 1, 1)); print(callable(utfproof.frontier))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
