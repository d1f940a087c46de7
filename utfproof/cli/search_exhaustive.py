"""`utfproof search exhaustive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.ground.progress import stage

EPILOG = "Example: utfproof search exhaustive -H 2 -L 2 --m 2 --looped --json"
FREE = {"E": "E", "both": "E and U"}


def register(group: typer.Typer) -> None:
    """Add the command to `utfproof search`."""
    declare.add(group, "exhaustive", exhaustive, epilog=EPILOG)


def exhaustive(
    heads: options.Heads = None,
    layers: options.Layers = None,
    m: Annotated[int | None, typer.Option("--m", help="Embedding dimension m of the hosts.")] = None,
    free: Annotated[str, typer.Option("--free", help="What may depend on the target: E or both.")] = "both",
    looped: Annotated[bool, typer.Option("--looped", help="Tied hosts for tied targets.")] = False,
    kind: Annotated[
        str, typer.Option("--kind", help="Values R_V: all {0,1} matrices, maps (one 1 a row), injections.")
    ] = "all",
    first: Annotated[bool, typer.Option("--first", help="Stop at the first host that serves.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", help="Time limit.")] = 600.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Document to write (.json).")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide every {0,1} host of m dimensions in the shared-attention model, d_in = 1, for almost all targets.

    Exit 0: a host serves, exactly. 4: none of this kind does (other values are not excluded), or the time was spent. 2, 3:
    malformed, too many hosts.
    """
    from utfproof.search.exhaustive import search_all
    from utfproof.search.log import write_document
    from utfproof.search.problem import Problem
    from utfproof.shapes import Shape

    if heads is None or layers is None or m is None:
        raise MalformedInput("the problem is incomplete: --heads, --layers and --m are needed")
    if free not in FREE:
        raise MalformedInput(f"--free {free!r} is unknown; choose {', '.join(FREE)}")
    options.require_seconds("--seconds", seconds)
    require_writable(output)
    problem = Problem(Shape(heads, layers, 1, 1), m, FREE[free], looped, looped)
    with stage("search exhaustive, at most", expected=lambda: seconds):
        found = search_all(problem, kind, seconds=seconds, stop_at_first=first)
    document = {"search": "exhaustive", "setting": {"seconds": seconds, "first": first}} | found.document()
    if output is not None:
        write_document(output, document)
    emit(document, f"search exhaustive: {problem}", _rows(document), as_json=as_json)
    raise typer.Exit(0 if found.rational else 4)


def _rows(document: dict[str, Any]) -> dict[str, str]:
    tests = f"{document['linear']} pass the linear test, {document['decided']} decided"
    rows = {
        "outcome": document["outcome"]
        + ("" if document["complete"] or document["served"] else ": the run is not complete"),
        "hosts": f"{document['hosts']} of kind {document['kind']}, {document['classes']} up to renaming",
        "decided": tests,
        "serve": f"{document['served']} (E and U rational in the weights: {document['rational']})",
        "does not mean": "anything about hosts with other numbers than 0 and 1",
    }
    if document["first"] is not None:
        rows["first"] = f"ones of R_V {document['first']['ones_of_R_V']}, U {document['first']['U'] or 'free'}"
    for number, note in enumerate(document["notes"]):
        rows[f"note {number + 1}"] = note
    return rows
