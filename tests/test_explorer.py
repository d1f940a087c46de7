"""The page with sliders: its numbers are the frontier's, it fetches nothing, and moving a shape shows them, in a browser."""

import json
import re
import shutil
from pathlib import Path

import pytest
from write_explorer import MOST, NOTIONS, TARGETS, data, key, page

from utfproof.frontier.interval import interval
from utfproof.frontier.questions import Question
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape

pytestmark = pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "docs" / "frontier-explorer.html"
SHAPES = [
    Shape(2, 2, 1, 1),
    Shape(2, 2, 1, 2),
    Shape(2, 1, 1, 2),
    Shape(2, 2, 2, 1),
    Shape(2, 3, 2, 1),
    Shape(1, 2, 1, 1, residual=True),
    Shape(2, 3, 1, 1, residual=True),
    Shape(2, 2, 28, 30),
    Shape(2, 4, 30, 30),
]
ALMOST = {"2,2,1,1,0": (10, 10), "2,2,1,2,0": (17, 17), "2,1,1,2,0": (7, 7), "2,2,2,1,0": (9, 9), "2,3,2,1,0": (15, 18),
          "1,2,1,1,1": (7, 7), "2,3,1,1,1": (53, 53), "2,2,28,30,0": (300, 372), "2,4,30,30,0": (1380, 1380)}  # fmt: skip
"""Functionally, almost all untied targets."""


def stored():
    return json.loads(re.search(r'id="data">(.*?)</script>', WRITTEN.read_text(encoding="utf-8"), re.S)[1])


def test_the_written_page_has_the_frontiers_numbers():
    """The shapes above anew, and how many there are; python scripts/write_explorer.py writes all of them."""
    had, made = stored(), data(SHAPES)
    for shape in SHAPES:
        ours, theirs = made["shapes"][key(shape)], had["shapes"][key(shape)]
        assert ours[0] == theirs[0]
        for mine, written in zip(ours[1], theirs[1], strict=True):
            assert mine[:2] == written[:2], (shape, "run python scripts/write_explorer.py")
            assert [made["bounds"][i] for i in mine[2:]] == [had["bounds"][i] for i in written[2:]]
        cell = theirs[1][NOTIONS.index("functional") * len(TARGETS)]
        assert tuple(cell[:2]) == ALMOST[key(shape)]
    H, L, d, b = MOST
    assert len(had["shapes"]) == 2 * (H * L * d * b + len(PAPER_TABLE_SHAPES))


def test_the_page_names_the_bounds():
    shape = Shape(2, 2, 1, 2)
    known = interval(shape, Question(NOTIONS[2], None, "untied", "almost all"), quick=0)
    text = page([shape], {}, (2, 2, 1, 2))
    assert known.below.name in text
    assert known.above.place in text
    assert not re.search(r'(src|href)="', text)


def test_in_a_browser(browser, tmp_path):
    shutil.copy(WRITTEN, tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri())
    for shape in SHAPES:
        H, L, d, b, residual = key(shape).split(",")
        browser.run(
            """const [H, L, d, b, stream, known] = arguments;
            if (Number(d) > 4) {
              const list = document.getElementById("known"); list.value = known;
              list.dispatchEvent(new Event("input")); return;
            }
            for (const [id, value] of Object.entries({H, L, d, b})) document.getElementById(id).value = value;
            const box = document.getElementById("stream"); box.checked = stream === "1";
            box.dispatchEvent(new Event("input"));""",
            H, L, d, b, residual, key(shape),
        )  # fmt: skip
        rows = browser.run(
            "return [...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        lower, upper = ALMOST[key(shape)]
        assert rows[2][:2] == ["functional", str(lower) if lower == upper else f"{lower} … {upper}"], shape
        assert [row[0] for row in rows] == ["matching", "attention-matching", "functional"]
    browser.run("const t = document.getElementById('targets'); t.value = '1'; t.dispatchEvent(new Event('input'));")
    assert browser.run("return document.querySelectorAll('#rows td.m')[2].textContent") == "1380 … 1830"
    none = "const k = document.getElementById('known'); k.value = ''; k.dispatchEvent(new Event('input'));"
    browser.run(none)
    assert browser.run("return document.querySelectorAll('#rows td.m')[2].textContent") == "1380 … 1830", (
        "no shape chosen"
    )
    for width in (320, 768, 1280):
        browser.window(width)
        wide = "const all = [...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().right);"
        assert browser.run(wide + "return Math.max(document.documentElement.scrollWidth, ...all)") <= width
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.console() == []
