"""`utfproof search monomial`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import require_writable
from utfproof.ground.generator import check_seed
from utfproof.ground.progress import stage
from utfproof.shapes import positive_integer

EPILOG = "Example: utfproof search monomial -H 2 -L 3 --json"


def register(group: typer.Typer) -> None:
    """Add the command to `utfproof search`."""
    declare.add(group, "monomial", monomial, epilog=EPILOG)


def monomial(
    heads: options.Heads = None,
    layers: options.Layers = None,
    m: Annotated[int | None, typer.Option("--m", help="This m only; by default m rises until sets are found.")] = None,
    looped: Annotated[bool, typer.Option("--looped", help="Tied targets (the hosts are untied).")] = False,
    engine: Annotated[
        str, typer.Option("--engine", help="For hosts: auto, cp-sat (needs OR-Tools) or local.")
    ] = "auto",
    seconds: Annotated[float, typer.Option("--seconds", help="Budget of each exhaustive search.")] = 120.0,
    host_seconds: Annotated[float, typer.Option("--host-seconds", help="Budget for finding a host.")] = 60.0,
    restarts: Annotated[int, typer.Option("--restarts", help="Local search where the budget ran out: starts.")] = 20,
    steps: Annotated[int, typer.Option("--steps", help="Steps of each start.")] = 50_000,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Document to write (.json).")
    ] = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """The least m for which E and U may be monomials in the target's weights: exponents A + B containing all words; then a
    {0,1} host.

    d_in = 1, both free. Exit 0: a host was found and verified exactly. 4: none (a lower bound for monomial hosts only),
    sets without a host, or the budget was spent. 2, 3: malformed, too large.
    """
    from utfproof.search.log import write_document
    from utfproof.search.monomial import MOST_WORDS, Grid
    from utfproof.search.monomial_host import search_monomial

    if heads is None or layers is None:
        raise MalformedInput("the problem is incomplete: --heads and --layers are needed")
    options.require_seconds("--seconds", seconds)
    options.require_seconds("--host-seconds", host_seconds)
    positive_integer("--restarts", restarts)
    positive_integer("--steps", steps)
    check_seed(seed)
    if m is not None and positive_integer("--m", m) > MOST_WORDS:
        raise ResourceLimit(f"m = {m}; this search takes at most {MOST_WORDS}, as many as there may be words")
    require_writable(output)
    grid = Grid(heads, layers, looped)
    with stage("search monomial", expected=lambda: seconds):
        document = search_monomial(
            grid,
            m,
            engine=engine,
            seconds=seconds,
            host_seconds=host_seconds,
            restarts=restarts,
            steps=steps,
            seed=seed,
        )
    if output is not None:
        write_document(output, document)
    title = f"search monomial: ({heads},{layers})" + (", tied targets" if looped else "")
    emit(document, title, _rows(document), as_json=as_json)
    raise typer.Exit(0 if document["outcome"] == "found" else 4)


MEANING = {
    "found": "a {0,1} host, verified exactly",
    "sets only": "exponents were found, but no {0,1} host: a candidate",
    "none": "no exponents at this m: no host whose E and U are monomials; other hosts are not excluded",
    "open": "nothing found within the budget, which proves nothing",
}


def _rows(document: dict[str, Any]) -> dict[str, str]:
    rows = {
        "outcome": f"{document['outcome']}: {MEANING[document['outcome']]}",
        "least m": str(document["least_m"] or "not decided"),
    }
    for entry in document["sets"]:
        note = f"; {entry['note']}" if entry["note"] else ""
        effort = f"{entry['nodes']} nodes, {entry['seconds']:.1f} s"
        rows[f"m = {entry['m']}, {entry['method']}"] = f"{entry['outcome']}, {effort}{note}"
    host = document["host"]
    if host is not None:
        rows["host"] = f"{host['engine']}: {host['status']}, {host['seconds']:.1f} s"
        if host["host"] is not None:
            rows["serves"] = "all targets" if host["all_targets"] else "targets with nonzero weights"
    return rows
