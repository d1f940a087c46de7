"""Claims and the numbers of the paper against its text, where UTFPROOF_PAPER names the LaTeX source (one file)."""

import ast
import os
import re
from pathlib import Path

import pytest

from utfproof.claims.registry import all_claims
from utfproof.paper import tables

ROOT = Path(__file__).parents[1]
CLAIMS = all_claims()
QUOTED = {entry.id: entry.quotation for entry in CLAIMS.values() if entry.quotation is not None}


def words(text):
    return " ".join(text.split())


@pytest.fixture(scope="module")
def paper():
    path = os.environ.get("UTFPROOF_PAPER")
    if not path:
        pytest.skip("UTFPROOF_PAPER does not name the paper's source")
    return words(Path(path).read_text(encoding="utf-8"))


def test_the_paper_has_every_sentence_that_is_quoted(paper):
    assert [text for text in QUOTED.values() if text not in paper] == []


def test_the_paper_has_every_accuracy_of_the_tables(paper):
    cells = {cell for table in tables.ABLATIONS.values() for row in table.values() for cell in row}
    assert sorted(cell for cell in cells if f"{cell:.1f}" not in paper) == []


def test_figures_of_the_text_are_those_of_its_sentences():
    def figures(name):
        return tuple(float(found) for found in re.findall(r"\d+(?:\.\d+)?(?=\\%)", QUOTED[name]))

    assert figures("sec:experiments/guessing") == (tables.GUESSING,)
    assert figures("sec:experiments/residual-ln-random") == tables.RANDOM_RANGE
    assert figures("sec:experiments/parentheses-robust") == (tables.ROBUST_PARENTHESES,)


def test_the_plain_route_shares_no_code():
    """`claims.plain`, one side of most pairs of routes, imports nothing of the package: both share the object examined."""
    tree = ast.parse((ROOT / "utfproof/claims/plain.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.startswith("utfproof")}
