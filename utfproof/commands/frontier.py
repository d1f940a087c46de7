"""`utfproof frontier`: the least m that is proved and the least that is reached, for each notion, with certificates."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.options import Residual, written
from utfproof.cli.outcome import Outcome, console
from utfproof.errors import MalformedInput
from utfproof.shapes import span
from utfproof.util.files import make_folder
from utfproof.util.notions import Notion
from utfproof.util.progress import stage

if TYPE_CHECKING:
    from utfproof.frontiers.table import Frontier as Found
    from utfproof.frontiers.table import FrontierEntry, FrontierGroup, Side

MOST_SHAPES = 400
WIDTH = 100
"""Columns of a paragraph."""


def frontier(
    *,
    heads: Annotated[str, typer.Option("--heads", "-H", help="Heads: 3, 1..4 or 1,2,5.")] = "1..4",
    layers: Annotated[str, typer.Option("--layers", "-L", help="Layers, in the same way.")] = "1..10",
    head_dim: Annotated[int, typer.Option("--head-dim", "-d", help="Head dimension d.", metavar="d")] = 1,
    d_in: Annotated[int, typer.Option(help="Input and output dimension.")] = 1,
    residual: Residual = False,
    notion: Annotated[
        list[str] | None,
        typer.Option(help="matching, attention-matching, functional or shared-attention; each of them by default."),
    ] = None,
    plot: Annotated[Path | None, written("Picture to write: m against L, reached and proved.")] = None,
    certificates: Annotated[Path | None, typer.Option(help="Folder for every certificate; made if missing.")] = None,
) -> Outcome:
    """Show the least m that is proved and reached, for each notion.

    A number without a mark is proved in Coq or checked by its certificate (--certificates DIR, then: utfproof check DIR).
    † cites a written proof. For * the certificate would be too large. --json names bound, page and certificate of each.

    Example: utfproof frontier --heads 1..4 --layers 1..6 --notion shared-attention --certificates proofs/
    """
    from utfproof.frontiers.table import frontier, shapes

    notions = [_notion(name) for name in notion] if notion else list(Notion)
    grid = shapes(_numbers("--heads", heads), _numbers("--layers", layers), head_dim, d_in, residual=residual)
    if len(grid) > MOST_SHAPES:
        raise MalformedInput(f"{len(grid)} shapes asked for, at most {MOST_SHAPES} are shown at once")
    if certificates is not None:
        make_folder(certificates)
    if plot is not None:
        from utfproof.util.plots import picture_format

        picture_format(plot)
    with stage("frontier", len(grid), unit="shapes") as doing:
        found = frontier(grid, notions=notions, advance=doing.advance)
    files = [str(path) for path in found.write(certificates)] if certificates is not None else []
    if plot is not None:
        from utfproof.frontiers.plotting import plot as draw

        draw(found, plot)
    document = _document(found, files, None if plot is None else str(plot))
    return Outcome(document, text=partial(_print, found, document))


def _notion(name: str) -> Notion:
    try:
        return Notion.asked(name)
    except ValueError:
        known = ", ".join(notion.word for notion in Notion)
        raise MalformedInput(f"--notion {name!r} is unknown; choose {known}") from None


def _numbers(option: str, text: str) -> list[int]:
    """3, 1..4, 1,2,5 or a mixture."""
    numbers: list[int] = []
    for part in text.split(","):
        found = span(part)
        if found is None:
            raise MalformedInput(f"{option} {text!r} is no list of numbers such as 1..4 or 1,2,5")
        low, high = found
        if not 1 <= low <= high <= 4096 or len(numbers) + high - low >= 64:
            raise MalformedInput(f"{option} {text!r}: at most 64 numbers from 1 to 4096, ranges increasing, please")
        numbers += range(low, high + 1)
    return sorted(set(numbers))


def _side(side: Side | None, entry: FrontierEntry) -> dict[str, Any] | None:
    from utfproof.frontiers.table import file_name

    if side is None:
        return None
    document: dict[str, Any] = {"m": side.value, "status": side.status, "rests_on": side.rests_on}
    if side is entry.impossible and side.status != "certificate":
        del document["m"]  # no host of any dimension will do; a certificate is about one that can be written for any
    if side.bound is not None:
        document |= {"bound": side.bound.name, "proves": str(side.bound.question), "place": side.bound.place}
        names = {"claim": side.bound.claim, "theorem": side.bound.theorem}
        document |= {name: value for name, value in names.items() if value}
        if side.status == "certificate":
            document["file"] = file_name(side.bound, entry.shape)
    return document


def _document(found: Found, files: list[str], picture: str | None) -> dict[str, Any]:
    entries = []
    for entry in found.entries:
        asked = entry.question
        entries.append(
            {
                "shape": entry.shape.document(),
                "notion": asked.notion.value,
                "free": asked.free,
                "targets": asked.targets,
                "extent": asked.extent,
                "host": asked.host,
                "proved": _side(entry.proved, entry),
                "reached": _side(entry.reached, entry),
                "exact": entry.exact,
                **({} if entry.impossible is None else {"impossible": _side(entry.impossible, entry)}),
                "paper": None
                if entry.paper is None
                else {"side": entry.paper.side, "m": entry.paper.value, "label": entry.paper.label,
                      "refuted": entry.paper_refuted},
            }
        )  # fmt: skip
    return {
        **_at_one_shape(found),
        **_gated(found),
        "entries": entries,
        "certificates": len(found.certified),
        "sides": Counter(side.status for side in found.sides),
        "rests_on": Counter(side.rests_on for side in found.sides if side.rests_on),
        "files": files,
        "plot": picture,
    }


def _at_one_shape(found: Found) -> dict[str, Any]:
    """A paragraph, and the notions side by side, where there is one shape."""
    from utfproof.frontiers.words import paragraph, side_by_side

    shapes = {entry.shape for entry in found.entries}
    if len(shapes) != 1:
        return {}
    (shape,) = shapes
    words = paragraph(found, shape)
    return {"words": [words] if words else [], "side_by_side": side_by_side(found, shape)}


def _gated(found: Found) -> dict[str, Any]:
    """What hosts with gated MLPs reach at each shape, where functional universality was asked for."""
    from utfproof.frontiers.words import GATED_HOSTS, with_gated_mlps

    asked = {entry.shape: None for entry in found.entries if entry.question.notion is Notion.FUNCTIONAL}
    rows = [
        {
            "shape": shape.document(),
            "inputs": GATED_HOSTS["untied"].inputs,
            **{targets: with_gated_mlps(shape, targets) for targets in GATED_HOSTS},
        }
        for shape in asked
        if not shape.residual
    ]
    return {"gated_mlps": rows} if rows else {}


# --- for people ----------------------------------------------------------------------------------------------


def _print(found: Found, document: dict[str, Any]) -> None:
    from rich.text import Text

    from utfproof.frontiers.table import groups

    screen = console(soft_wrap=True)
    single = "side_by_side" in document
    if single:
        for text in document["words"]:
            screen.print(Text(fill(text, WIDTH, break_on_hyphens=False)), end="\n\n")
        screen.print(Text("\n".join(document["side_by_side"])), end="\n\n")
    for group in groups(found) if not single else ():
        screen.print(Text(group.title, style="bold"))
        screen.print(Text("\n".join(_grid(found, group))), end="\n\n")
    if not single and "gated_mlps" in document:
        screen.print(Text("functional, hosts with gated MLPs — all untied (all tied) targets ‡", style="bold"))
        screen.print(Text("\n".join(_gated_table(document["gated_mlps"]))), end="\n\n")
    for note in _notes(found, document):
        screen.print(Text(fill(note, WIDTH, break_on_hyphens=False) if single else note))


def _notes(found: Found, document: dict[str, Any]) -> list[str]:
    """The lines below the tables: their signs, and what the numbers rest on."""
    from utfproof.frontiers.words import GATED

    basis = document["rests_on"]
    single = "side_by_side" in document
    told = not single and any(entry.paper is not None or not entry.shape.residual for entry in found.entries)
    functional = any(entry.question.notion is Notion.FUNCTIONAL for entry in found.entries)
    paper = " (paper's bound, for looped hosts second where it differs)" * told
    notes = [
        f"m proved … m reached{paper}: no host below the first number, a host at the second; one number: exact.",
        *(["Functional lower bounds are about all real inputs; one-hot tokens may need less."] * functional),
        *([f"{GATED} No lower bound here is about them."] if "gated_mlps" in document else []),
        f"{basis['proved']} numbers are proved in Coq, {basis['checked']} checked by a certificate, {basis['cited']} cited "
        f"(†: from a written proof, which --json names). --certificates writes {document['certificates']} certificates.",
    ]
    if claims := sorted({side.bound.claim for side in found.sides if side.bound is not None and side.bound.claim}):
        notes.append(f"utfproof verify tests what is cited: {', '.join(claims)}.")
    if any(entry.impossible is not None for entry in found.entries):
        notes.append("none: no host of any m serves these targets.")
    if formulas := document["sides"]["formula"]:
        notes.append(
            f"* {formulas} numbers by formula alone: the certificate would be too large; the same construction is "
            "certified at smaller shapes."
        )
    refuted = [(e.paper, e.question.notion) for e in found.entries if e.paper_refuted and e.paper is not None]
    if refuted and not single:
        notes.append("! the paper's bound contradicts what is certified here.")
    elif refuted:
        said = {
            f"{paper.label} (m {paper}) contradicts what is certified for {notion.value}." for paper, notion in refuted
        }
        notes += sorted(said)
    return notes


def _gated_table(rows: list[dict[str, Any]]) -> list[str]:
    cells = {(r["shape"]["heads"], r["shape"]["layers"]): f"{r['untied']} ({r['tied']})" for r in rows}
    return _table(cells)


def _grid(found: Found, group: FrontierGroup) -> list[str]:
    entries = {(entry.shape.heads, entry.shape.layers): entry for entry in found.of[group.questions[0]]}
    papers: dict[tuple[int, int], list[str]] = {}  # one for untied hosts, one for tied ones
    for entry in (entry for question in group.questions for entry in found.of[question]):
        if entry.paper is not None:
            told = papers.setdefault((entry.shape.heads, entry.shape.layers), [])
            text = f"{entry.paper}{'!' if entry.paper_refuted else ''}"
            if text not in told and f"{text}!" not in told:
                told[:] = [other for other in told if other != text.rstrip("!")] + [text]
    return _table({at: entry.cell(papers.get(at, [])) for at, entry in entries.items()})


def _table(cells: dict[tuple[int, int], str]) -> list[str]:
    """A row for each number of layers, a column for each number of heads."""
    heads = sorted({h for h, _ in cells})
    layers = sorted({length for _, length in cells})
    widths = {h: max(len(f"H = {h}"), *(len(cells[h, length]) for length in layers)) for h in heads}
    lines = ["   L  " + "  ".join(f"H = {h}".ljust(widths[h]) for h in heads)]
    lines += [f"  {length:2}  " + "  ".join(cells[h, length].ljust(widths[h]) for h in heads) for length in layers]
    return [line.rstrip() for line in lines]
