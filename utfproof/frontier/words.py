"""The frontier at one shape in words, and its notions side by side."""

from __future__ import annotations

from utfproof.frontier.paper import paper_bound
from utfproof.frontier.questions import ALL, ALMOST_ALL, ANY, TIED, UNTIED, Question
from utfproof.frontier.table import Entry, Frontier
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape

BY = {
    Notion.FUNCTIONAL: "Functionally, as the paper defines it,",
    Notion.ATTENTION_MATCHING: "By attention-matching",
    Notion.MATCHING: "By matching",
    Notion.SHARED_ATTENTION: "With attention from outside",
}
"""How a sentence about the notion begins."""


def paragraph(found: Frontier, shape: Shape) -> str:
    """What is known of the least m of any host for untied targets, functionally where that was asked for: almost all targets,
    then all of them, then the paper's own dimension."""
    notions = {entry.question.notion for entry in found.entries if entry.shape == shape}
    chosen = next((n for n in BY if n in notions and n is not Notion.SHARED_ATTENTION), None)
    if chosen is None:
        return ""
    almost, every = (found.at(shape, Question(chosen, None, UNTIED, extent)) for extent in (ALMOST_ALL, ALL))
    text = f"{BY[chosen]} at {shape}: {_sentence(almost)}"
    if (every.proved.value, _reached(every)) == (almost.proved.value, _reached(almost)):
        text += " The same holds for all targets."
    else:
        text += f" For all of them, {_sentence(every)}"
    told = paper_bound(Question(chosen, host=ANY), shape)
    looped = paper_bound(Question(chosen, host=TIED), shape)
    if told is not None:
        text += f" The paper's has {told.value}"
        text += f", its looped one {looped.value}." if looped is not None and looped.value != told.value else "."
    return text


def _reached(entry: Entry) -> int | None:
    return None if entry.reached is None else entry.reached.value


def _sentence(entry: Entry) -> str:
    """Both sides, each with the bound and the page behind it."""
    targets = f"{entry.question.extent} {entry.question.targets} targets"
    low, high = entry.proved, entry.reached
    text = ""
    if low.bound is not None:
        text = f"no fixed transformer with m < {low.value} serves {targets} (“{low.bound.name}”, {low.bound.place})"
    if high is None or high.bound is None:
        return f"{text or 'nothing is proved below'}; no host is known."
    text += f"{'; ' if text else ''}one with m = {high.value} does ({high.bound.name}, {high.bound.place})"
    if entry.exact:
        return f"{text}: this is the least m."
    proof = entry.written
    if proof is not None and proof.bound is not None:
        return f"{text}; one with m = {proof.value} by a written proof alone ({proof.bound.name}, {proof.bound.place})."
    return f"{text}; between the two it is open."


COLUMNS = [(extent, targets) for targets in (UNTIED, TIED) for extent in (ALMOST_ALL, ALL)]


def side_by_side(found: Frontier, shape: Shape) -> list[str]:
    """A line for each notion: the least m of any host, for almost all and for all untied and tied targets."""
    rows = [["least m of any host", *(f"{extent} {targets}" for extent, targets in COLUMNS)]]
    asked = {(q.notion, q.free): None for entry in found.entries if entry.shape == shape for q in [entry.question]}
    for notion, free in asked:
        cells = []
        for extent, targets in COLUMNS:
            entry = found.at(shape, Question(notion, free, targets, extent))
            cells.append(f"{entry.reached}" if entry.exact else f"{entry.proved} … {entry.reached or 'open'}")
        rows.append([notion.value + (f", {free} free" if free else ""), *cells])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
