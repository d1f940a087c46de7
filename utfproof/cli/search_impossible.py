"""`utfproof search impossible`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import read_bytes, require_writable, write_bytes
from utfproof.ground.progress import stage
from utfproof.shapes import positive_integer

EPILOG = "Example: utfproof search impossible looped-three-layers -o looped-three-layers.json"


def register(group: typer.Typer) -> None:
    """Add the command to `utfproof search`."""
    declare.add(group, "impossible", impossible, epilog=EPILOG)


def impossible(
    system: Annotated[str | None, typer.Argument(help="Name of the polynomial system; none with --check.")] = None,
    check: Annotated[Path | None, typer.Option("--check", help="Check this certificate instead.")] = None,
    degree: Annotated[
        int | None,
        typer.Option(
            "--degree",
            help="Search, with products up to this degree; else a written derivation is used where there is one.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="No further degree after this time.")] = 600.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Certificate to write (.json).")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Show that a polynomial system has no solution: cofactors with sum c_i f_i = 1 over the rationals.

    Exit 0: certified (or, with --check, valid). 1: --check found the certificate invalid. 4: no cofactors within the
    budget. 2, 3: malformed, too large.
    """
    from utfproof.search import impossible as search
    from utfproof.search import nullstellensatz as ns

    if (system is None) == (check is None):
        raise MalformedInput(f"name one system ({', '.join(ns.SYSTEMS)}), or a file with --check")
    if check is not None:
        try:
            valid, why = ns.check(ns.read(read_bytes(check)))
        except ns.Malformed as error:
            raise MalformedInput(f"{check}: {error}") from error
        except ns.Excessive as error:
            raise ResourceLimit(f"{check}: {error}") from error
        verdict = {"verdict": "valid" if valid else "invalid", "why": why}
        emit(dict(verdict), f"search impossible --check {check}", dict(verdict), as_json=as_json)
        raise typer.Exit(0 if valid else 1)
    options.require_seconds("--seconds", seconds)
    if degree is not None:
        positive_integer("--degree", degree)
    require_writable(output)
    assert system is not None
    limit = options.memory_limit(max_memory)
    with stage("search impossible", expected=lambda: seconds):
        found = search.certify(system, most_degree=degree, max_memory=limit, seconds=seconds)
    document = found.summary() | {"setting": {"seconds": seconds, "degree": degree}}
    if output is not None and found.document is not None:
        write_bytes(output, (json.dumps(found.document, separators=(",", ":"), sort_keys=True) + "\n").encode())
    nothing = "no cofactors within the budget, which proves nothing"
    rows: dict[str, Any] = {
        "outcome": "certified: no solution" if found.certified else nothing,
        "says": document["says"],
    }
    for attempt in found.attempts:
        is_one = "1 is" if attempt.spanned else "1 is not"
        size = f"{attempt.products} products, {attempt.monomials} monomials"
        rows[f"degree {attempt.degree}"] = f"{size}: {is_one} a combination"
    if found.certified:
        rows["certificate"] = f"{document['terms']} terms in {document['equations']} cofactors, checked"
        if output is not None:
            rows["written"] = str(output)
    emit(document, f"search impossible: {system}", rows, as_json=as_json)
    raise typer.Exit(0 if found.certified else 4)
