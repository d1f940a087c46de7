"""`utfproof search exhaustive`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from utfproof.cli.options import Heads, Layers, MaxMemory, Output, choice
from utfproof.cli.outcome import Outcome
from utfproof.commands.search_numerical import FREE, Dimension, Free, Looped, require_problem
from utfproof.util.files import write_json
from utfproof.util.progress import stage

KINDS = ("all", "maps", "injections")


def search_exhaustive(
    *,
    heads: Heads = None,
    layers: Layers = None,
    m: Dimension = None,
    free: Free = "both",
    looped: Looped = False,
    kind: Annotated[str, choice("Values R_V, {0,1} matrices; maps: one 1 a row", KINDS)] = "all",
    seconds: Annotated[float, typer.Option(help="Time limit.")] = 600.0,
    output: Output = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Decide every {0,1} host of m dimensions in the shared-attention model.

    For d_in = 1 and almost all targets. Exit 0: a host serves, exactly. 4: none of this kind does (other values are not
    excluded), or complex targets only, or the time was spent. 2, 3: malformed, too many hosts.

    Example: utfproof search exhaustive -H 2 -L 2 --m 2 --looped --json
    """
    from utfproof.search.exhaustive import search_all
    from utfproof.search.problem import Problem
    from utfproof.shapes import Shape

    heads, layers, m = require_problem(heads, layers, m)
    problem = Problem(Shape(heads, layers, 1, 1), m, FREE[free], looped, looped)
    with stage(f"search exhaustive, at most {seconds:g} s"):
        found = search_all(problem, kind, seconds=seconds, max_memory=max_memory)
    document = {"search": "exhaustive", "setting": {"seconds": seconds}} | found.document()
    if output is not None:
        write_json(output, document)
    return Outcome(document, f"search exhaustive: {problem}", _rows(document), 0 if found.rational else 4)


def _rows(document: dict[str, Any]) -> dict[str, str]:
    tests = f"{document['linear']} pass the linear test, {document['decided']} decided"
    rows = {
        "outcome": document["outcome"] + (": the run is not complete" if document["outcome"] == "open" else ""),
        "hosts": f"{document['hosts']} of kind {document['kind']}, {document['classes']} up to renaming"
        if document["classes"]
        else "not listed",
        "decided": tests,
        "serve": f"{document['served']} (E and U rational in the weights: {document['rational']})",
        "does not mean": "anything about hosts with other numbers than 0 and 1",
    }
    if document["first"] is not None:
        rows["first"] = f"ones of R_V {document['first']['ones_of_R_V']}, U {document['first']['U'] or 'free'}"
    for number, note in enumerate(document["notes"]):
        rows[f"note {number + 1}"] = note
    return rows
