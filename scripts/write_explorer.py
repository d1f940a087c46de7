"""The page frontier-explorer.html of the site: the frontier's numbers at small shapes and at the paper's, with sliders. The
site's build makes it (docs_hooks.py).

A reader moves a shape and sees the least m that is proved and reached under each notion. All numbers stand in the page, which
fetches nothing; they come from `utfproof.frontier.interval`, with the bound's name and page beside each; bounds that an
elimination finds are left out.
"""

from __future__ import annotations

import html
import itertools
import json
import warnings
from collections.abc import Iterable
from pathlib import Path

from utfproof.frontier.bounds import Bound
from utfproof.frontier.interval import interval
from utfproof.frontier.paper import paper_bound
from utfproof.frontier.questions import ALL, ALMOST_ALL, TIED, UNTIED, Question
from utfproof.ground.notions import Notion
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape

MOST = (4, 5, 4, 4)
"""Ends of the sliders for H, L, d and d_in."""
NOTIONS = (Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL)
TARGETS = ((ALMOST_ALL, UNTIED), (ALL, UNTIED), (ALMOST_ALL, TIED), (ALL, TIED))
NOTHING = "m ≥ 1, or no host known"


def key(shape: Shape) -> str:
    """A shape's name in the data."""
    return f"{shape.heads},{shape.layers},{shape.head_dim},{shape.d_in},{int(shape.residual)}"


def _named(bound: Bound | None) -> str:
    return NOTHING if bound is None else f"{bound.name} ({bound.place})"


def data(shapes: Iterable[Shape]) -> dict[str, object]:
    """For every shape: the paper's two dimensions (0 where it has none), and for each notion and class of targets lower and
    upper (0 where no host is known) and the numbers of the bounds behind them."""
    bounds: dict[str, int] = {NOTHING: 0}
    found: dict[str, object] = {}
    for shape in shapes:
        cells = []
        for notion in NOTIONS:
            for extent, tying in TARGETS:
                known = interval(shape, Question(notion, None, tying, extent), quick=0)
                sides = [bounds.setdefault(_named(bound), len(bounds)) for bound in (known.below, known.above)]
                cells.append([known.lower, known.upper or 0, *sides])
        told = [paper_bound(Question(Notion.MATCHING, host=host), shape) for host in ("any", TIED)]
        found[key(shape)] = [[0 if bound is None else bound.value for bound in told], cells]
    return {
        "shapes": found,
        "bounds": list(bounds),
        "notions": [notion.value for notion in NOTIONS],
        "targets": [f"{extent} {tying} targets" for extent, tying in TARGETS],
    }


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 Georgia, serif; max-width: 54rem; margin: 1.5rem auto; padding: 0 1rem; }
form { display: grid; grid-template-columns: max-content minmax(8rem, 1fr) 3rem; gap: .4rem 1rem; align-items: center; }
form .wide { grid-column: 2 / span 2; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #8886; vertical-align: top; }
td { overflow-wrap: anywhere; }
td.m { font-weight: bold; white-space: nowrap; }
#stream { justify-self: start; }
@media (max-width: 40rem) {
  h1 { font-size: 1.5rem; }
  form { grid-template-columns: minmax(0, 1fr) 3rem; }
  label, form .wide { grid-column: 1 / -1; }
  select { width: 100%; }
  thead { display: none; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid #8886; }
  td { display: block; padding: 0; border: 0; }
  td:first-child { font-style: italic; }
  td.m::before { content: "m: "; }
  td.m + td::before { content: "proved by "; }
  td.m + td + td::before { content: "reached by "; }
}
"""


def page(shapes: list[Shape], named: dict[str, Shape], most: tuple[int, int, int, int]) -> str:
    """The whole page. named: shapes offered by name; most: the ends of the sliders for H, L, d and d_in."""
    texts = ("heads H", "layers L", "head dimension d", "input dimension d_in")
    sliders = "".join(
        f'<label for="{name}">{words}</label><input type="range" id="{name}" min="1" max="{end}" value="{min(2, end)}">'
        f'<output id="{name}-value" for="{name}"></output>'
        for name, words, end in zip("HLdb", texts, most, strict=True)
    )
    options = "".join(f'<option value="{i}">{extent} {tying}</option>' for i, (extent, tying) in enumerate(TARGETS))
    offered = '<option value="">choose …</option>' + "".join(
        f'<option value="{key(shape)}">{html.escape(name)}</option>' for name, shape in named.items()
    )
    content = json.dumps(data([*shapes, *named.values()]), ensure_ascii=False, separators=(",", ":")).replace(
        "</", "<\\/"
    )
    script = Path(__file__).with_name("explorer.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>How small can a universal transformer be?</title><style>{STYLE}</style></head><body>
<h1>How small can a universal transformer be?</h1>
<p>The least embedding dimension m of a fixed transformer that acts as every transformer of a class when only its embedding
changes: proved … reached, or one number where both meet. The class has H heads, L layers, head dimension d, and d_in inputs and
outputs.</p>
<form onsubmit="return false">{sliders}
<label for="stream">residual stream</label><input class="wide" type="checkbox" id="stream">
<label for="targets">targets</label><select class="wide" id="targets">{options}</select>
<label for="known">a shape of the paper's</label><select class="wide" id="known">{offered}</select></form>
<h2 id="shape" aria-live="polite"></h2>
<table><thead><tr><th>notion</th><th>least m</th><th>proved by</th><th>reached by</th></tr></thead>
<tbody id="rows"></tbody></table>
<p id="paper"></p>
<p>Any host, tied or not. “Almost all” means all but a set of measure zero. The numbers were computed when the page was made,
and nothing is fetched; for tied targets <code>utfproof frontier</code> sometimes proves more, by elimination.</p>
<script type="application/json" id="data">{content}</script><script>{script}</script></body></html>
"""


def content() -> str:
    """The page."""
    warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
    dims = itertools.product(*(range(1, end + 1) for end in MOST))
    shapes = [Shape(*values, residual=residual) for values in dims for residual in (False, True)]
    named = {
        f"{task}: (H, L, d, d_in) = {values}{', with a residual stream' * residual}": Shape(*values, residual=residual)
        for task, values in PAPER_TABLE_SHAPES.items()
        for residual in (False, True)
    }
    return page(shapes, named, MOST)
