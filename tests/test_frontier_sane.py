"""Every shape with H, L <= 4 and d, d_in <= 5: no lower bound above an upper one under any notion, and no host that the package
builds, or that a recorded search found, below a printed bound. The sentences and the table at one shape."""

import itertools
import json
import warnings
from pathlib import Path

import pytest

from utfproof.cli.app import run
from utfproof.constructions import CONSTRUCTIONS
from utfproof.frontiers.bounds import BOUNDS
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, TIED, UNTIED, Question
from utfproof.frontiers.streams import RESIDUAL_BOUNDS
from utfproof.frontiers.table import frontier
from utfproof.frontiers.words import paragraph, side_by_side
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape
from utfproof.util.notions import Notion

pytestmark = pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
ROOT = Path(__file__).parents[1]
QUICK = [bound for bound in (*BOUNDS, *RESIDUAL_BOUNDS) if bound.name != "span"]
"""Without the bounds that an elimination finds."""


def grid(residual):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return [Shape(*dims, residual=residual) for dims in itertools.product(*[range(1, 5)] * 2, *[range(1, 6)] * 2)]


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "residual"])
def every(request):
    return frontier(grid(request.param), bounds=QUICK)


def test_no_lower_bound_exceeds_an_upper_one(every):
    assert len(every.entries) == 400 * 40
    for entry in every.entries:
        assert entry.reached is None or entry.proved.value <= entry.reached.value, entry


def test_almost_all_targets_functionally_are_those_of_attention_matching(every):
    """Where d = d_in one number, and the same by both notions."""
    closed = 0
    by = {(entry.shape, entry.question): entry for entry in every.entries}
    for (shape, asked), entry in by.items():
        if asked != Question(Notion.FUNCTIONAL, None, UNTIED, ALMOST_ALL):
            continue
        other = by[shape, Question(Notion.ATTENTION_MATCHING, None, UNTIED, ALMOST_ALL)]
        assert (entry.proved.value, entry.reached.value) == (other.proved.value, other.reached.value)
        if shape.head_dim == shape.d_in:
            assert entry.exact
            words = shape.words_at(shape.layers)
            plain = words + (words - 1 if shape.residual else sum(shape.heads**t for t in range(1, shape.layers + 1)))
            assert entry.reached.value == shape.d_in * plain
            closed += 1
    assert closed == 80


def test_no_host_that_is_built_lies_below_a_bound(every):
    """Each construction's least m against what is proved for its own notion and targets."""
    by = {(entry.shape, entry.question): entry for entry in every.entries}
    compared = 0
    for entry in CONSTRUCTIONS.values():
        if entry.notion is None or entry.is_random or entry.inputs:  # bounds are about all real inputs
            continue
        extent = ALL if entry.targets == "all untied" else ALMOST_ALL
        for shape in {shape for shape, _ in by}:
            targets = UNTIED if entry.serves_untied(shape) else TIED
            if not entry.defined(shape):
                continue
            m = entry.least_m(shape)
            free = None if entry.shared is None else entry.shared.free
            known = by[shape, Question(entry.notion, free, targets, extent, TIED if entry.tied else ANY)]
            assert known.proved.value <= m, (entry.name, shape)
            compared += 1
            if not entry.certified:
                continue
            assert known.reached is not None, (entry.name, shape)
            assert known.reached.value <= m, (entry.name, shape)
    assert compared > 200


# --- words -------------------------------------------------------------------------------------------------------------

SAID = [
    (
        (2, 4, 30, 30),
        False,
        ["m < 1380 serves almost all", "m = 1380 does (shared-query", "least m", "The paper's has 2280"],
    ),
    ((2, 1, 1, 2), False, ["m < 7 serves almost all", "m = 7 does", "m < 8 serves all untied", "m = 8 does"]),
    ((2, 1, 1, 1), False, ["m < 4 serves almost all", "m = 4 does", "The same holds for all targets."]),
    ((2, 2, 1, 1), True, ["m < 17 serves", "m = 17 does", "The same holds for all targets."]),
    ((2, 2, 1, 2), False, ["m = 17 does", "The paper's has 20. Its looped one has 14, too few."]),
    ((96, 1, 128, 12288), False, ["m = 1204096 does", "this is the least m"]),
]


@pytest.mark.parametrize(("dims", "residual", "texts"), SAID)
def test_a_paragraph_in_words(dims, residual, texts):
    shape = Shape(*dims, residual=residual)
    found = frontier([shape])
    said = paragraph(found, shape)
    assert all(text in said for text in texts), said
    table = side_by_side(found, shape)
    assert all(len(line) <= 100 for line in table)
    rows = {tuple(line.split("  ")[0:1]): line for line in table if "  untied " in line}
    for notion in (Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL):
        entry = found.at(shape, Question(notion, None, UNTIED, ALMOST_ALL))
        assert str(entry.proved.value) in rows[(notion.value,)]


def test_functional_lower_bounds_say_which_inputs_they_are_about():
    shape = Shape(2, 4, 30, 30)
    said = paragraph(frontier([shape]), shape)
    assert "on all real inputs" in said
    assert "on one-hot tokens alone m = 1378 suffices" in said
    matched = frontier([shape], notions=[Notion.MATCHING])
    assert "real inputs" not in paragraph(matched, shape)


def test_the_command_says_it_at_one_shape(capsys):
    assert run(["frontier", "--heads", "2", "--layers", "2", "--notion", "functional", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "m < 10 serves almost all untied targets" in document["words"][0]
    assert run(["frontier", "--heads", "2", "--layers", "1..2", "--notion", "functional"]) == 0
    assert "no fixed transformer" not in capsys.readouterr().out
