"""What the registry says of the paper, held against the paper: quotations, places, tables, and which sentence is decided where.

The paper's text is not in this repository. With UTFPROOF_PAPER naming its LaTeX source everything is compared with it; without,
with what was read from it once.
"""

import ast
import hashlib
import importlib
import os
import re
import sys
from pathlib import Path

import pytest

from utfproof.claims.registry import all_claims
from utfproof.paper import tables
from utfproof.paper.quotations import collapse, document, quotations, sentences

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
pin_quotations = importlib.import_module("pin_quotations")

CLAIMS = all_claims()
PAPER = os.environ.get("UTFPROOF_PAPER")
FROM_PAPER = [entry for entry in CLAIMS.values() if not entry.id.startswith("new:")]


# --- the text itself, where it is at hand ---------------------------------------------------------------------------

with_text = pytest.mark.skipif(not PAPER, reason="UTFPROOF_PAPER does not name the paper's source")


@with_text
def test_the_text_is_the_one_that_was_read():
    assert hashlib.sha256(Path(PAPER).read_bytes()).hexdigest() == document()["sha256"]


@with_text
def test_every_quotation_and_sentence_stands_where_it_is_said_to():
    text = collapse(Path(PAPER).read_text(encoding="utf-8"))
    for quoted in [*quotations().values(), *sentences()]:
        assert text[quoted.at : quoted.at + len(quoted.text)] == quoted.text
    for start, title in document()["sections"]:
        heading = next(
            heading for heading, named in pin_quotations.HEADINGS if named == title and text.find(heading) == start
        )
        assert text.startswith(heading, start)


@with_text
def test_the_transcription_is_what_the_source_says():
    assert pin_quotations.tables(Path(PAPER).read_text(encoding="utf-8")) == document()["tables"]


# --- what was read from it -------------------------------------------------------------------------------------------


def test_every_claim_about_the_paper_quotes_it():
    assert set(quotations()) == {entry.id for entry in FROM_PAPER}
    for entry in FROM_PAPER:
        assert entry.quotation.sound, entry.id
        assert entry.quotation.section == entry.section, entry.id
        assert 8 <= len(entry.quotation.text) <= 260, entry.id


def test_places_name_the_section_that_the_quotation_stands_in():
    for entry in FROM_PAPER:
        number = re.match(r"(?:Section|Appendix) (\w)|Table|Figure", entry.place)
        assert number, f"{entry.id}: {entry.place}"
        first = entry.section[0]
        if number[1] is None or (entry.section.startswith("5") and number[1] in "FG"):
            continue
        assert number[1] == first or (first == "C" and number[1] == "D"), f"{entry.id}: {entry.place}, {entry.section}"


def test_every_checkable_sentence_is_decided_or_says_why_not():
    listed = sentences()
    assert len(listed) >= 150
    assert [entry.at for entry in listed] == sorted(entry.at for entry in listed)
    for entry in listed:
        assert entry.claims or entry.why, entry.text
        assert set(entry.claims) <= set(CLAIMS), entry.text
    decided = {name for entry in listed for name in entry.claims}
    assert {entry.id for entry in FROM_PAPER} <= decided


def numbers(cells):
    return tuple(float(cell) for cell in cells)


@pytest.mark.parametrize("task", list(tables.ABLATIONS))
def test_cells_of_the_ablations_are_the_papers(task):
    names = dict(zip(tables.VARIANTS, document()["tables"][task], strict=True))
    assert names["residual and LN"] == "+ residual and LN"
    read = {variant: numbers(document()["tables"][task][row]) for variant, row in names.items()}
    assert read == tables.ABLATIONS[task]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("summary, attention-only", tables.SUMMARY_ATTENTION_ONLY),
        ("summary, residual and LN", tables.SUMMARY_RESIDUAL_LN),
    ],
)
def test_cells_of_the_summary_are_the_papers(name, ours):
    read = document()["tables"][name]
    assert [row.split()[0] for row in read] == ["Parenthesis", *list(ours)[1:]]
    assert [numbers(cells) for cells in read.values()] == list(ours.values())


def test_hyperparameters_are_the_papers():
    read = {row: cells[0] for row, cells in document()["tables"]["hyperparameters, parentheses"].items()}
    ours = tables.HYPERPARAMETERS_PARENTHESES
    names = {
        "heads": "Number of heads H",
        "layers": "Depth L",
        "head_dim": "Head dimension d",
        "m": "Embedding dimension m",
    }
    assert {name: int(read[row]) for name, row in names.items()} == {name: ours[name] for name in names}
    hops = {row: cells[0] for row, cells in document()["tables"]["hyperparameters, k-hop"].items()}
    assert int(hops["Number of heads H"]) == tables.HYPERPARAMETERS_K_HOP["heads"]
    assert int(hops["Vocabulary size"]) == tables.HYPERPARAMETERS_K_HOP["vocabulary"] == 30
    for found, task in ((read, "parentheses"), (hops, "k-hop")):
        assert int(found["Batch size"]) == tables.OPTIMISATION[task]["batch"]
        assert int(found["Warmup steps"]) == tables.OPTIMISATION[task]["warm-up"]
        power = re.fullmatch(r"10\^\{(-\d)\}", found["Learning rate"])
        assert tables.OPTIMISATION[task]["learning rate"] == pytest.approx(10 ** int(power[1]))
    assert int(hops["Number of character tokens"]) == tables.HYPERPARAMETERS_K_HOP["character tokens"]
    power = re.fullmatch(r"10\^(\d)", read["Training steps"])
    assert tables.OPTIMISATION["parentheses"]["steps"] == 10 ** int(power[1])


def figures(text):
    return tuple(float(figure) for figure in re.findall(r"\d+(?:\.\d+)?(?=\\%)", text))


def test_figures_of_the_text_are_the_papers():
    """Those that no table has: in the sentences that are quoted."""
    quoted = {claim: figures(found.text) for claim, found in quotations().items()}
    assert quoted["sec:experiments/guessing"] == (tables.GUESSING,)
    assert quoted["sec:experiments/residual-ln-random"] == tables.RANDOM_RANGE
    assert quoted["sec:experiments/residual-ln-sparse"] == (tables.SPARSE_WITH_RESIDUAL_LN,)
    assert quoted["sec:experiments/parentheses-robust"] == (tables.ROBUST_PARENTHESES,)
    said = next(entry.text for entry in sentences() if "training steps" in entry.text)
    hops, steps = (map(int, re.findall(r"\d+", part)) for part in said.split("training steps"))
    assert {f"{k}-hop": count for k, count in zip(hops, steps, strict=True)} == tables.TRAINING_STEPS


# --- what two routes share --------------------------------------------------------------------------------------------


def test_the_plain_route_shares_no_code():
    """`claims.plain`, one side of most pairs of routes, imports nothing of the package: both share the object examined."""
    tree = ast.parse((ROOT / "utfproof/claims/plain.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in imported if name.startswith("utfproof")}
