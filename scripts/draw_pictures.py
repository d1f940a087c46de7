"""Draws docs/pictures/*.svg; `--check` compares instead of writing. Numbers in them come from the frontier and from hosts."""

from __future__ import annotations

import math
import sys

from pages import ROOT, settle

from utfproof.constructions import build_host
from utfproof.frontier.interval import interval
from utfproof.frontier.questions import ALL, ALMOST_ALL, Question
from utfproof.frontier.table import frontier
from utfproof.ground.notions import Notion
from utfproof.reporting import pictures
from utfproof.reporting.report_charts import MARKERS, Axis, Panel, colour
from utfproof.reporting.svg import COLOURS, number, rect, svg, text
from utfproof.shapes import Shape, paper_dimension, paper_looped_dimension
from utfproof.training.figure import PANELS, across, band, beyond, lines, reached_by_rules, scaling_points
from utfproof.training.results import read_results

FOLDER = ROOT / "docs" / "pictures"
PLOTTED = Shape(2, 2, 3, 3)
DRAWN = Shape(2, 2, 1, 2)
DEEPENED = (2, 28, 30)
"""H, d and d_in of the paper's 1-hop and 2-hop tasks, whose depth is varied."""
STYLE = "<style>svg{color:#1f2430}@media(prefers-color-scheme:dark){svg{color:#e4e6eb}}</style>"
"""For a picture that stands alone. Inlined into a page it is left out, and the colour is that of the page's text."""

SAME, FREE = COLOURS["OV"], "currentColor"
STAGES = ("queries, keys", "logits", "attention", "output")
FIXED = {Notion.MATCHING: (0, 1, 2, 3), Notion.ATTENTION_MATCHING: (1, 2, 3), Notion.FUNCTIONAL: (3,)}
"""Which stages of a layer have to be the target's own, by notion (attention-matching: the logits, hence the attention)."""
ASKS = {
    Notion.MATCHING: "whatever the attention map is",
    Notion.ATTENTION_MATCHING: "for maps of logits and positions",
    Notion.FUNCTIONAL: "for softmax of logits",
}

TURNED = "for almost all targets functional implies attention-matching, up to the names of heads within each layer"


def standalone(picture: str) -> str:
    """The picture with colours of its own, for light and for dark."""
    start = picture.index(">") + 1
    return f"{picture[:start]}{STYLE}{picture[start:]}\n"


def stage(x: float, y: float, width: float, words: str, same: bool) -> str:
    """One box of a pipeline: filled where host and target have to agree, dashed where they need not."""
    colour, look = (SAME, 'fill-opacity="0.22"') if same else (FREE, 'fill-opacity="0" stroke-dasharray="3 3"')
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="26" rx="4" fill="{colour}" {look} '
        f'stroke="{colour}" stroke-opacity="0.8"/>' + text(x + width / 2, y + 13, words)
    )


def notions() -> str:
    """Three columns: what one E has to get right for every target."""
    width, gap, body = 190.0, 36.0, []
    for place, notion in enumerate(FIXED):
        left = 20 + place * (width + gap)
        body.append(text(left + width / 2, 20, notion.value))
        body.append(text(left + width / 2, 38, ASKS[notion]))
        for step, words in enumerate(STAGES):
            top = 56 + step * 42
            same = step in FIXED[notion]
            body.append(stage(left, top, width, f"{words} =" if same else words, same))
            if step:
                start = f"M{number(left + width / 2)} {number(top - 15)}"
                body.append(f'<path d="{start}v11m-4 -5l4 5l4 -5" fill="none" stroke="currentColor"/>')
        if place:
            body.append(text(left - gap / 2, 56 + 1.5 * 42 + 13, "⇒"))
        if notion is Notion.FUNCTIONAL:  # docs/proofs/functional-is-attention-matching.md
            body.append(text(left - gap / 2, 56 + 2.5 * 42 + 13, "⇐*"))
    body.append(text(20, 238, "filled: has to be the target's; dashed: may differ", anchor="start"))
    body.append(text(20, 256, f"* {TURNED}", anchor="start"))
    title = f"What host and target have to agree on, by notion of universality; each notion implies the next; {TURNED}"
    return svg(3 * width + 2 * gap + 40, 270, title, body)


def least() -> str:
    """For each notion the least m, proved and reached, at one shape."""
    found = frontier([PLOTTED])
    rows = []
    for notion in FIXED:
        for extent in (ALL, ALMOST_ALL):
            entry = found.at(PLOTTED, Question(notion, extent=extent))
            if entry.reached is None:
                raise SystemExit(f"no host is known for {entry.question}")
            rows.append((f"{notion.value}, {extent} targets", entry.proved.value, entry.reached.value))
    left, scale, body = 250.0, 9.0, []
    end = max(reached for *_, reached in rows)
    for m in range(0, end + 1, 12):
        x = left + m * scale
        body.append(f'<path d="M{number(x)} 24v{number(30 * len(rows))}" stroke="currentColor" stroke-opacity="0.2"/>')
        body.append(text(x, 14, str(m)))
    body.append(text(left - 12, 14, "m", anchor="end"))
    for place, (words, proved, reached) in enumerate(rows):
        y = 32 + place * 30
        body.append(text(left - 12, y + 8, words, anchor="end"))
        body.append(rect(left, y, proved * scale, 16, "Q", opacity=0.35))
        if reached > proved:
            body.append(rect(left + proved * scale, y, (reached - proved) * scale, 16, "", opacity=0.06))
        label = str(reached) if reached == proved else f"{proved} … {reached}"
        body.append(text(left + reached * scale + 8, y + 8, label, anchor="start"))
    low = 24 + 30 * len(rows) + 16
    body.append(text(20, low, "filled: proved to be needed; outlined: up to the smallest known host", anchor="start"))
    s = PLOTTED
    title = f"Least embedding dimension by notion at (H, L, d, d_in) = ({s.heads}, {s.layers}, {s.head_dim}, {s.d_in})"
    return svg(left + end * scale + 90, low + 14, title, body)


def depth() -> str:
    """The least m against L for almost all targets, functionally: the paper's dimensions, what is proved, what is reached."""
    layers = range(1, 7)
    asked = Question(Notion.FUNCTIONAL, extent=ALMOST_ALL)
    lines: dict[str, list[int]] = {"paper, m̄": [], "paper, looped": [], "reached": [], "proved": []}
    for length in layers:
        shape = Shape(*DEEPENED[:1], length, *DEEPENED[1:])
        known = interval(shape, asked)
        if known.upper is None:
            raise SystemExit(f"no host is known for {asked}")
        for line, m in zip(
            lines.values(),
            (paper_dimension(shape), paper_looped_dimension(shape), known.upper, known.lower),
            strict=True,
        ):
            line.append(m)
    left, right, top, bottom = 60.0, 400.0, 20.0, 250.0
    low, high = math.log10(50), math.log10(20000)

    def place(length: int, m: int) -> tuple[float, float]:
        across = left + (right - left) * (length - 1) / (len(layers) - 1)
        return across, bottom - (bottom - top) * (math.log10(m) - low) / (high - low)

    body = []
    for m in (100, 1000, 10000):
        _, y = place(1, m)
        body.append(
            f'<path d="M{number(left)} {number(y)}H{number(right)}" stroke="currentColor" stroke-opacity="0.2"/>'
        )
        body.append(text(left - 8, y, str(m), anchor="end"))
    for length in layers:
        body.append(text(place(length, 100)[0], bottom + 16, f"L = {length}"))
    looks = {"paper, m̄": ("K", "6 3"), "paper, looped": ("K", "2 3"), "reached": ("OV", ""), "proved": ("Q", "4 2")}
    for rank, (name, values) in enumerate(lines.items()):
        kind, dashes = looks[name]
        points = [place(length, m) for length, m in zip(layers, values, strict=True)]
        way = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        style = f'stroke="{COLOURS[kind]}" stroke-width="1.8" fill="none"' + (
            f' stroke-dasharray="{dashes}"' if dashes else ""
        )
        body.append(f'<path d="M{way}" {style}/>')
        y = top + 8 + 20 * rank
        body.append(f'<path d="M{number(left + 14)} {number(y)}h28" {style}/>')
        body.append(text(left + 50, y, f"{name}: {values[1]} at L = 2", anchor="start"))
    H, d, b = DEEPENED
    title = f"Least m against L for almost all targets, functionally, at H = {H}, d = {d}, d_in = {b} (logarithmic)"
    body.append(text((left + right) / 2, bottom + 38, f"H = {H}, d = {d}, d_in = {b}; m on a logarithmic scale"))
    return svg(right + 60, bottom + 54, title, body)


def scaling() -> str:
    """Accuracy on 2-hop against m at the paper's setting: the random host with LN, one line for each panel of the figure."""
    points = [
        point
        for point in scaling_points(read_results(ROOT / "results" / "training"))
        if point.measured.complete and (point.host, point.variant) == ("random", "residual-norm")
    ]
    low, high = band(points)
    embedding = Axis.of([point.m for point in points], log=True, name="m (logarithmic)")
    panel = Panel(embedding, Axis(low, high, name="accuracy on 2-hop, %"), width=560.0)
    rules = reached_by_rules()
    for reached, name in across(rules, low, high, 0.08):
        panel.line([(embedding.low, reached), (embedding.high, reached)], "currentColor", dash="1 3", width=0.9)
        if name:
            panel.note(embedding.low, reached, name, shift=6)
    for edge, said in beyond(rules, low, high).items():
        panel.note(embedding.high, high if edge == "top" else low, said, anchor="end", shift=-6)
    for place, line in enumerate(lines(points)):
        tone, shape = colour(place), MARKERS[place]
        panel.line([(point.m, 100 * point.measured.mean) for point in line], tone)
        for point in line:
            panel.mark(
                point.m, 100 * point.measured.mean, shape, tone, title=f"m = {point.m}: {point.measured.accuracy}"
            )
            spread = 100 * (point.measured.deviation or 0)
            panel.line([(point.m, 100 * point.measured.mean + sign * spread) for sign in (-1, 1)], tone, width=1.0)
        height = high - (0.06 + 0.08 * place) * (high - low)
        panel.mark(1.1 * embedding.low, height, shape, tone)
        panel.note(1.1 * embedding.low, height, PANELS[line[0].panel], shift=8)
    return panel.drawing("Accuracy on 2-hop against m at the paper's setting: random host, residual stream and LN")


def drawings() -> dict[str, str]:
    """Every picture by its file name."""
    return {
        "notions.svg": notions(),
        "least-m.svg": least(),
        "depth.svg": depth(),
        "prefix-tree.svg": pictures.embedding_svg(build_host("sparse", DRAWN)),
        "scaling.svg": scaling(),
        "r-all-tied.svg": pictures.r_all_svg(build_host("tied", DRAWN)),
    }


if __name__ == "__main__":
    sys.exit(settle({FOLDER / name: standalone(drawn) for name, drawn in drawings().items()}))
