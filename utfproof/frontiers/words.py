"""The frontier at one shape in words, and its notions side by side."""

from __future__ import annotations

from utfproof.constructions.gated import GATED as GATED_HOST
from utfproof.constructions.gated import GATED_TIED
from utfproof.frontiers.bounds import UPPER
from utfproof.frontiers.paper import paper_bound
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, TIED, UNTIED, E, Question
from utfproof.frontiers.table import Frontier, FrontierEntry
from utfproof.shapes import Shape
from utfproof.util.notions import Notion

BY = {
    Notion.FUNCTIONAL: "Functionally, as the paper defines it,",
    Notion.ATTENTION_MATCHING: "By attention-matching",
    Notion.MATCHING: "By matching",
    Notion.SHARED_ATTENTION: "With attention from outside and E free",
}
"""How a sentence about the notion begins."""


GATED_HOSTS = {UNTIED: GATED_HOST, TIED: GATED_TIED}
"""Hosts with gated MLPs, by the targets that they serve."""


def paragraph(found: Frontier, shape: Shape) -> str:
    """What is known of the least m of any host for untied targets, functionally where that was asked for: almost all targets,
    then all of them, then the paper's own dimension."""
    notions = {entry.question.notion for entry in found.entries if entry.shape == shape}
    chosen = next((notion for notion in BY if notion in notions), None)
    if chosen is None:
        return ""
    free = E if chosen is Notion.SHARED_ATTENTION else None
    almost, every = (found.at(shape, Question(chosen, free, UNTIED, extent)) for extent in (ALMOST_ALL, ALL))
    text = f"{BY[chosen]} at {shape}: {_sentence(almost)} {_all_of_them(almost, every)}"
    if chosen is Notion.FUNCTIONAL:
        text += _on_tokens(shape)
    for host, whose in ((ANY, "The paper's"), (TIED, "Its looped one")):
        told = paper_bound(Question(chosen, free, host=host), shape)
        if told is None or told.side != UPPER or (host == TIED and f" has {told.value}" in text):
            continue
        text += f" {whose} has {told.value}"
        if told.value < almost.proved.value:
            text += ", too few"
        elif told.value < every.proved.value:
            text += ", too few for all of them"
        text += "."
    return text


def _on_tokens(shape: Shape) -> str:
    """What the lower bound is about, and the m that one-hot tokens need where that is known."""
    if shape.residual or shape.head_dim != shape.d_in:
        return " Lower bounds are about all real inputs; one-hot tokens may need less."
    least = shape.d_in * (shape.word_count + shape.leaves) - shape.heads
    return (
        f" Lower bounds are about all real inputs: on one-hot tokens alone m = {least} suffices for almost all targets."
    )


def _all_of_them(almost: FrontierEntry, every: FrontierEntry) -> str:
    """The sentence about all targets, where almost all have been spoken of."""
    if every.proved.value != almost.proved.value:
        return f"For all of them, {_sentence(every)}"
    if (almost.reached and almost.reached.value) == (every.reached and every.reached.value):
        return "The same holds for all targets."
    return f"For all of them the same is proved, and {_hosts(every)}"


def _sentence(entry: FrontierEntry) -> str:
    """Both sides, each with the bound and the page behind it."""
    targets = f"{entry.question.extent} {entry.question.targets} targets"
    low = entry.proved
    if low.bound is None:
        return f"nothing is proved below, and {_hosts(entry)}"
    inputs = " on all real inputs" if entry.question.notion is Notion.FUNCTIONAL else ""
    proved = (
        f"no fixed transformer with m < {low.value} serves {targets}{inputs} (“{low.bound.name}”, {low.bound.place})"
    )
    return f"{proved}; {_hosts(entry)}"


def _hosts(entry: FrontierEntry) -> str:
    """What is reached, and what is left between."""
    high = entry.reached
    if high is None or high.bound is None:
        return "no host is known."
    text = f"one with m = {high.value} does ({high.bound.name}, {high.bound.place})"
    return f"{text}: this is the least m." if entry.exact else f"{text}; between the two it is open."


GATED = f"‡ reached by hosts with gated MLPs ({GATED_HOSTS[UNTIED].page}), on {GATED_HOSTS[UNTIED].inputs}."
"""What a row or table with MLPs is about."""


def with_gated_mlps(shape: Shape, targets: str) -> int | None:
    """The m of a tied host with gated MLPs that serves all of these targets functionally, on inputs whose rows sum to 1; None
    with a residual stream. The bounds of the frontier are about hosts of attention alone."""
    if shape.residual:
        return None
    served = GATED_HOSTS.values() if targets == TIED else [GATED_HOSTS[UNTIED]]
    return min(host.least_m(shape) for host in served)


def side_by_side(found: Frontier, shape: Shape) -> list[str]:
    """One table: a row for each notion and class of targets, the least m of any host for almost all and for all targets, a row
    for tied hosts wherever they need more, and what hosts with gated MLPs reach."""
    asked = {
        (q.notion, q.free, q.targets): None for entry in found.entries if entry.shape == shape for q in [entry.question]
    }
    rows = [["least m", "targets", "hosts", "almost all", "all"]]
    for notion, free, targets in asked:
        cells = []
        for host in (ANY, TIED):
            entries = [found.at(shape, Question(notion, free, targets, extent, host)) for extent in (ALMOST_ALL, ALL)]
            cells.append(["none" if entry.impossible is not None else entry.numbers for entry in entries])
        rows.append([notion.value + (f", {free} free" if free else ""), targets, "any", *cells[0]])
        if cells[1] != cells[0]:
            rows.append(["", "", "tied", *cells[1]])
        if notion is Notion.FUNCTIONAL and (m := with_gated_mlps(shape, targets)) is not None:
            rows.append(["", "", "gated MLPs", f"{m}‡", f"{m}‡"])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
