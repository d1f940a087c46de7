"""`utfproof certify`: a certificate that a construction is, or is not, universal by matching."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.notions import Notion
from utfproof.shapes import matching_dimension

EPILOG = "Example: utfproof certify tied --heads 4 --layers 2 --head-dim 24 --d-in 4 -o tied.json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("certify", epilog=EPILOG)(command)


def command(
    construction: Annotated[str, typer.Argument(help="Name of the construction, for example sparse, tied, random.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Certificate to write (.json).")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.EmbeddingDimension = None,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    notion: Annotated[
        str | None, typer.Option("--notion", help="Notion of universality; certificates exist for matching.")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide whether a construction is universal by matching and write the certificate, whichever way it goes.

    Exit 0: universal by matching. 1: refuted by matching (which does not decide functional universality).
    """
    from utfproof.certificates.prover import certify

    shape = options.required_shape(heads, layers, head_dim, d_in, d_out)
    if notion is not None and notion not in {n.value for n in Notion}:
        raise MalformedInput(f"notion {notion!r} is unknown; choose {', '.join(n.value for n in Notion)}")
    if output.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {output}")
    found = certify(
        construction,
        shape,
        m,
        seed=seed,
        law=law,
        dtype=dtype,
        notion=notion,
        max_memory=options.memory_limit(max_memory),
    )
    written = found.write(output)
    verdict = "universal by matching" if found.universal else "not universal by matching"
    document: dict[str, Any] = {
        "verdict": verdict,
        "notion": Notion.MATCHING.value,
        "kind": found.kind,
        "construction": construction,
        "shape": found.document["shape"],
        "M": matching_dimension(shape),
        "files": [str(path) for path in written],
    }
    rows = {
        "verdict": verdict,
        "shape": f"{shape}, m = {found.document['shape']['m']}, M = {document['M']}",
        "evidence": _evidence(found.document),
        "certificate": ", ".join(document["files"]),
    }
    if not found.universal:
        rows["note"] = "matching is sufficient, not necessary: this does not decide functional universality"
    emit(document, f"certify {construction}", rows, as_json=as_json)
    raise typer.Exit(0 if found.universal else 1)


def _evidence(document: dict[str, Any]) -> str:
    evidence = document["evidence"]
    if document["kind"] == "rank-permutation":
        return "rank-permutation: R_all is a permutation matrix (columns are different unit vectors)"
    if document["kind"] == "rank-modular":
        return f"rank-modular: rank R_all = {document['claim']['rank']} modulo the prime {evidence['prime']}"
    if evidence["method"] == "dimension":
        return "rank-deficient: m is below M, the number of columns of R_all"
    numerator, denominator = evidence["distance_squared"]
    return (
        f"rank-deficient: R_all z = 0 with {len(evidence['z'])} nonzero entries; the isolating target of column "
        f"{evidence['column']} is missed by at least sqrt({numerator}/{denominator})"
    )
