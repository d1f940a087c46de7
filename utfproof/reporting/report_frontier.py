"""The report's part about frontier documents: for each question the least m that is proved and the least that is reached,
beside the paper's, against the number of layers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.frontier.paper import Paper
from utfproof.frontier.questions import Question
from utfproof.frontier.table import Frontier, FrontierEntry, FrontierGroup, Side, groups
from utfproof.ground.forms import conform
from utfproof.ground.notions import Notion
from utfproof.reporting.document import counted
from utfproof.reporting.documents import COMMANDS
from utfproof.reporting.mathematics import formulas
from utfproof.reporting.report_charts import MARKERS, Axis, Panel, colour, swatch
from utfproof.reporting.report_parts import Section, figure, folded, legend, panels, paragraph, table
from utfproof.reporting.report_read import Source, refuse
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape

_Key = tuple[Shape, Question]

MOST_BANDS = 6
"""Numbers of heads up to which what is open is tinted."""

_DASH, _WRONG = "4 3", "#c8452f"


def entries_of(source: Source) -> list[FrontierEntry]:
    """The entries of a document. MalformedInput where it is not whole or contradicts itself: more proved than reached, "exact"
    or "refuted" against its own numbers, one question twice, a host where none can be."""
    conform(source.document, COMMANDS["frontier"], source.name)
    found: dict[_Key, FrontierEntry] = {}
    for item in source.document["entries"]:
        entry = _entry(item, source.name)
        at = f"{entry.question} at {entry.shape}"
        if (entry.shape, entry.question) in found:
            refuse(source.name, f"{at} stands there twice")
        if entry.reached is not None and entry.proved.value > entry.reached.value:
            refuse(
                source.name, f"{at}: {entry.proved.value} is proved to be needed and {entry.reached.value} is reached"
            )
        if entry.impossible is not None and entry.reached is not None:
            refuse(source.name, f"{at}: no m is enough, and {entry.reached.value} is")
        if item["exact"] != entry.exact:
            refuse(source.name, f"{at}: exact is {str(item['exact']).lower()}, and the numbers say otherwise")
        if item["paper"] and item["paper"]["refuted"] != entry.paper_refuted:
            refuse(
                source.name, f"{at}: refuted is {str(item['paper']['refuted']).lower()}, and the numbers say otherwise"
            )
        found[entry.shape, entry.question] = entry
    return list(found.values())


def _entry(item: dict[str, Any], source: str) -> FrontierEntry:
    shape = item["shape"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
            sizes = [shape[name] for name in ("heads", "layers", "head_dim", "d_in", "d_out")]
            made = Shape(*sizes, residual=bool(shape.get("residual", False)))
    except MalformedInput as error:
        raise MalformedInput(f"{source}: {error}") from None
    asked = Question(Notion(item["notion"]), item["free"], item["targets"], item["extent"], item["host"])
    paper = item["paper"] and Paper(item["paper"]["side"], item["paper"]["m"], item["paper"]["label"])
    none = item.get("impossible")
    proved = _side(item["proved"])
    assert proved is not None
    return FrontierEntry(
        made, asked, proved, _side(item["reached"]), paper,
        None if none is None else Side(none.get("m", 1), None, none["status"]),
    )  # fmt: skip


def _side(item: dict[str, Any] | None) -> Side | None:
    return None if item is None else Side(item["m"], None, item["status"])


def merged(sources: Sequence[Source]) -> list[FrontierEntry]:
    """The entries of all documents, the better number of each side where two speak of one question. MalformedInput where the
    lower bound of one exceeds what another reaches, or where they quote the paper differently."""
    found: dict[_Key, tuple[FrontierEntry, str]] = {}
    for source in sources:
        for new in entries_of(source):
            key = new.shape, new.question
            if key not in found:
                found[key] = new, source.name
                continue
            old, name = found[key]
            hosts = [entry.reached for entry in (old, new) if entry.reached is not None]
            reached = min(hosts, key=lambda side: side.value) if hosts else None
            proved = max(old.proved, new.proved, key=lambda side: side.value)
            impossible = old.impossible or new.impossible
            best = FrontierEntry(new.shape, new.question, proved, reached, old.paper, impossible)
            clash = reached is not None and (proved.value > reached.value or impossible is not None)
            if clash or old.paper != new.paper:
                raise MalformedInput(
                    f"{name} and {source.name} contradict each other about {new.question} at {new.shape}; keep one of them"
                )
            found[key] = best, name
    return [entry for entry, _ in found.values()]


def frontier_section(sources: Sequence[Source]) -> Section | None:
    """The section, None without such documents."""
    entries = merged(sources)
    if not entries:
        return None
    families: dict[tuple[int, int, int, bool], list[FrontierEntry]] = {}
    for entry in entries:
        shape = entry.shape
        families.setdefault((shape.head_dim, shape.d_in, shape.d_out, shape.residual), []).append(entry)
    refuted = sum(entry.paper_refuted for entry in entries)
    exact = sum(entry.exact for entry in entries)
    said = f"{counted(len(entries), 'question')} about the least m, {exact} of them answered exactly"
    against = f"; the paper's bound is refuted in {refuted}" if refuted else ""
    body = [
        paragraph(
            "The least embedding dimension m of a universal host, against the number of layers L. No host below the dashed "
            "line, a host on the solid one; the tint between them is what is open. “Not universal by matching” does not "
            "mean “not universal”: each panel is about its own notion."
        )
    ]
    for (d, d_in, d_out, residual), members in sorted(families.items()):
        out = "" if d_out == d_in else f", d_out = {d_out}"
        stream = ", with a residual stream" if residual else ""
        body.append(formulas(f"<h3>d = {d}, d_in = {d_in}{out}{stream}</h3>") + _family(members))
    return Section("frontier", "How small a universal transformer can be", "".join(body), ((True, said + against),))


def _family(entries: list[FrontierEntry]) -> str:
    heads = sorted({entry.shape.heads for entry in entries})
    said = [(swatch(colour(k), MARKERS[k % len(MARKERS)], dash=""), f"H = {h}") for k, h in enumerate(heads)]
    said += [
        (swatch("currentColor", "circle", dash=""), "reached, with a certificate"),
        (swatch("currentColor", "circle", hollow=True, dash=""), "reached, certificate on demand or a written proof"),
        (swatch("currentColor", "", dash=_DASH), "proved to be needed"),
        (swatch("currentColor", "bar"), "the paper's bound"),
        (swatch(_WRONG, "cross"), "the paper's bound, refuted here"),
    ]
    found = Frontier(entries)
    return legend(said) + panels(_figure(found, group, heads) for group in groups(found))


def _figure(found: Frontier, group: FrontierGroup, heads: list[int]) -> str:
    entries = found.of[group.questions[0]]
    papers: dict[tuple[int, int], list[tuple[Paper, bool]]] = {}
    for entry in found.entries:
        if entry.question in group.questions and entry.paper is not None:
            told = papers.setdefault((entry.shape.heads, entry.shape.layers), [])
            if (entry.paper, entry.paper_refuted) not in told:
                told.append((entry.paper, entry.paper_refuted))
    below = folded("the numbers", _numbers(entries, papers, heads))
    return figure(group.title, _chart(entries, papers, heads, group.title), below=below)


def _chart(
    entries: list[FrontierEntry], papers: dict[tuple[int, int], list[tuple[Paper, bool]]], heads: list[int], title: str
) -> str:
    values = [side.value for entry in entries for side in (entry.proved, entry.reached) if side is not None]
    values += [paper.value for told in papers.values() for paper, _ in told]
    layers = [entry.shape.layers for entry in entries]
    panel = Panel(Axis.of(layers, name="layers L", whole=True), Axis.of(values, log=True, name="m"))
    ends: list[tuple[float, float, str]] = []
    for index, head in enumerate(heads):
        mine = sorted((entry for entry in entries if entry.shape.heads == head), key=lambda entry: entry.shape.layers)
        tone, shape = colour(index), MARKERS[index % len(MARKERS)]
        proved = [(float(entry.shape.layers), float(entry.proved.value)) for entry in mine]
        sides = [(entry.shape.layers, entry.reached) for entry in mine if entry.reached is not None]
        reached = [(float(length), float(side.value)) for length, side in sides]
        if len(reached) == len(proved) > 1 and len(heads) <= MOST_BANDS:
            panel.band(proved, reached, tone)
        panel.line(proved, tone, dash=_DASH, width=1.1)
        panel.line(reached, tone)
        for length, side in sides:
            said = f"H = {head}, L = {length}: m = {side.value} reached ({side.status})"
            panel.mark(length, side.value, shape, tone, hollow=side.status != "certificate", title=said)
        for entry in mine:
            for paper, refuted in papers.get((head, entry.shape.layers), []):
                said = f"H = {head}, L = {entry.shape.layers}: the paper's m {paper}{', refuted' * refuted} ({paper.label})"
                panel.mark(
                    entry.shape.layers,
                    paper.value,
                    "cross" if refuted else "bar",
                    _WRONG if refuted else tone,
                    title=said,
                )
        if line := reached or proved:
            ends.append((*line[-1], f"H={head}"))
    _name_ends(panel, ends)
    return panel.drawing(f"Least m against the number of layers: {title}")


def _name_ends(panel: Panel, ends: list[tuple[float, float, str]]) -> None:
    """Names at the ends of the lines, where they do not cover each other."""
    used: list[float] = []
    for x, y, name in sorted(ends, key=lambda end: -end[1]):
        down = panel.at(x, y)[1]
        if all(abs(down - other) >= 11 for other in used):
            panel.note(x, y, name, shift=8)
            used.append(down)


def _numbers(
    entries: list[FrontierEntry], papers: dict[tuple[int, int], list[tuple[Paper, bool]]], heads: list[int]
) -> str:
    at = {(entry.shape.heads, entry.shape.layers): entry for entry in entries}
    rows = []
    for length in sorted({length for _, length in at}):
        told = {h: [f"{paper}{'!' * refuted}" for paper, refuted in papers.get((h, length), [])] for h in heads}
        cells = [at[h, length].cell(told[h], none="no m") if (h, length) in at else "" for h in heads]
        rows.append((length, *cells))
    return table(
        "m proved … m reached (the paper's); one number: both; *, **, †: no certificate made; ! refuted",
        ("L", *(f"H = {h}" for h in heads)), rows,
    )  # fmt: skip
