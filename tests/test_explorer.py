"""The page with sliders: its numbers are the frontier's, it fetches nothing, and moving a shape shows them, in a browser."""

import re

import pytest
from write_explorer import NOTIONS, TARGETS, content, data, key, page

from utfproof.frontier.interval import interval
from utfproof.frontier.questions import Question
from utfproof.shapes import Shape

pytestmark = pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
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


def test_the_page_has_the_frontiers_numbers():
    made = data(SHAPES)["shapes"]
    for shape in SHAPES:
        cell = made[key(shape)][1][NOTIONS.index("functional") * len(TARGETS)]
        assert tuple(cell[:2]) == ALMOST[key(shape)]


def test_the_page_names_the_bounds():
    shape = Shape(2, 2, 1, 2)
    known = interval(shape, Question(NOTIONS[2], None, "untied", "almost all"), quick=0)
    text = page([shape], {}, (2, 2, 1, 2))
    assert known.below.name in text
    assert known.above.place in text
    assert not re.search(r'(src|href)="', text)


def test_in_a_browser(browser, tmp_path):
    (tmp_path / "page.html").write_text(content(), encoding="utf-8")
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
