"""`utfproof search exhaustive`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import Heads, Layers, MaxMemory, amount, option, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage

FREE = {"E": "E", "both": "E and U"}


@command("Example: utfproof search exhaustive -H 2 -L 2 --m 2 --looped --json", name="search exhaustive")
def search_exhaustive(
    *,
    heads: Heads = None,
    layers: Layers = None,
    m: Annotated[int | None, option("Embedding dimension m of the hosts.")] = None,
    free: Annotated[str, option("What may depend on the target: E or both.")] = "both",
    looped: Annotated[bool, option("Tied hosts for tied targets.", "--looped")] = False,
    kind: Annotated[str, option("Values R_V: all {0,1} matrices, maps (one 1 a row), injections.")] = "all",
    first: Annotated[bool, option("Stop at the first host that serves.", "--first")] = False,
    seconds: Annotated[float, option("Time limit.", check=amount)] = 600.0,
    output: Annotated[Path | None, written("Document to write (.json).", "-o", "--output", document=True)] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Decide every {0,1} host of m dimensions in the shared-attention model.

    For d_in = 1 and almost all targets. Exit 0: a host serves, exactly. 4: none of this kind does (other values are not
    excluded), or complex targets only, or the time was spent. 2, 3: malformed, too many hosts.
    """
    from utfproof.search.exhaustive import search_all
    from utfproof.search.problem import Problem
    from utfproof.shapes import Shape

    if heads is None or layers is None or m is None:
        raise MalformedInput("the problem is incomplete: --heads, --layers and --m are needed")
    if free not in FREE:
        raise MalformedInput(f"--free {free!r} is unknown; choose {', '.join(FREE)}")
    problem = Problem(Shape(heads, layers, 1, 1), m, FREE[free], looped, looped)
    with stage(f"search exhaustive, at most {seconds:g} s"):
        found = search_all(problem, kind, seconds=seconds, stop_at_first=first, max_memory=max_memory)
    document = {
        "search": "exhaustive",
        "setting": {"seconds": seconds, "first": first},
    } | found.document()
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
