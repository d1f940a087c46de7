"""`utfproof certify`: a certificate that a construction is, or is not, universal, by the notion it names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, together
from utfproof.ground.notions import Notion
from utfproof.shapes import matching_dimension

if TYPE_CHECKING:
    from utfproof.certificates.format import Certificate

EPILOG = "Example: utfproof certify tied --heads 4 --layers 2 --head-dim 24 --d-in 4 -o tied.json"

MEANINGS = {
    (
        Notion.MATCHING,
        True,
    ): "for every untied target some E makes queries, keys and outputs agree, so the outputs agree for every n and X",
    (Notion.MATCHING, False): "no E solves the matching equations for every target; this does not decide functional "
    "universality",
    (
        Notion.FUNCTIONAL,
        True,
    ): "for every untied target some E makes the outputs agree, for every n and X, with softmax attention",
    (
        Notion.SHARED_ATTENTION,
        True,
    ): "for every untied target some E (and U where it is free) makes the outputs agree, whatever attention is "
    "supplied from outside",
    (
        Notion.ATTENTION_MATCHING,
        True,
    ): "for every such target some E makes attention logits and outputs agree, so the outputs "
    "agree for every n and X where attention depends on the logits alone (no RoPE)",
}
"""What a verdict says and does not say, by notion and direction."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "certify", command, epilog=EPILOG)


def command(
    context: typer.Context,
    construction: Annotated[str, typer.Argument(help="Name of the construction, for example sparse, tied, random.")],
    output: Annotated[Path, typer.Option("-o", "--output", writable=True, help="Certificate to write (.json).")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: options.Residual = False,
    m: options.EmbeddingDimension = None,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    notion: Annotated[
        str | None, typer.Option("--notion", help="Notion of universality: matching or attention-matching.")
    ] = None,
    witness: Annotated[
        bool, typer.Option("--witness", help="Random constructions: evidence that is much faster to check (a sidecar).")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", help="Random constructions: cpu (NumPy), or a torch device such as cuda.")
    ] = "cpu",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide whether a construction is universal and write the certificate, whichever way it goes.

    By matching, but shared-key and shared-query by attention-matching, unless --notion says otherwise. Exit 0: universal
    by that notion. 1: refuted (by matching, which does not decide functional universality). With --residual tied serves all
    tied targets.
    """
    from utfproof.certificates.prover import certify

    shape = options.required_shape(heads, layers, head_dim, d_in, d_out, residual)
    if notion is not None and notion not in {n.value for n in Notion}:
        raise MalformedInput(f"notion {notion!r} is unknown; choose {', '.join(n.value for n in Notion)}")
    options.refuse_undrawn(context, construction, "seed", "law", "dtype", "device")
    require_json(output)
    found = certify(
        construction,
        shape,
        m,
        seed=seed,
        law=law,
        dtype=dtype,
        notion=notion,
        witness=witness,
        device=device,
        max_memory=options.memory_limit(max_memory),
    )
    report(found, output, f"certify {construction}", as_json=as_json)


def require_json(output: Path) -> None:
    """MalformedInput unless the certificate's name ends in .json and it can be written: said before any work."""
    if output.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {output}")
    require_writable(output)


def report(found: Certificate, output: Path, subject: str, *, as_json: bool) -> None:
    """Write a certificate, say what it decides, and leave with the code of its verdict."""
    from utfproof.certificates.format import shape_of

    with together():
        written = found.write(output)
    shape, dimensions = found.document["shape"], shape_of(found.document)
    notion, targets = Notion(found.document["claim"]["notion"]), found.document["claim"]["targets"]
    sense = "in the functional sense" if notion is Notion.FUNCTIONAL else f"by {notion.value}"
    verdict = f"universal {sense}" if found.universal else f"not universal {sense}"
    document: dict[str, Any] = {
        "verdict": verdict,
        "notion": notion.value,
        "targets": targets,
        "kind": found.kind,
        "host": found.document["claim"]["host"],
        "shape": shape,
        "M": matching_dimension(dimensions),
        "files": [str(path) for path in written],
    }
    rows = {
        "verdict": f"{verdict} (targets: {targets})",
        "shape": f"{dimensions}, m = {shape['m']}, M = {document['M']}",
        "evidence": _evidence(found.document),
        "certificate": ", ".join(document["files"]),
        "means": MEANINGS[notion, found.universal].replace("every untied", "every " + targets.removeprefix("all ")),
    }
    emit(document, subject, rows, as_json=as_json)
    raise typer.Exit(0 if found.universal else 1)


def _evidence(document: dict[str, Any]) -> str:
    evidence = document["evidence"]
    if document["kind"] == "identity":
        from utfproof.certificates.identities import identity_evidence

        return f"identity: {identity_evidence(document)}"
    if document["kind"] == "linear-test":
        rank, prime = document["claim"]["rank"], evidence["prime"]
        return f"linear-test: the test matrix has full rank {rank} modulo the prime {prime}, to be recomputed"
    if document["kind"] == "rank-triangular":
        return "rank-triangular: R_all is triangular with unit diagonal, in the rows and order given"
    if document["kind"] == "rank-permutation" and document["shape"].get("residual"):
        return (
            f"rank-permutation: the {document['claim']['rank']} columns of R_all for words without the stream's letter are "
            "different unit vectors, and the others repeat them"
        )
    if document["kind"] == "rank-permutation":
        return "rank-permutation: R_all is a permutation matrix (columns are different unit vectors)"
    if document["kind"] == "rank-modular":
        how = "with the inverse of a minor as witness" if evidence["method"] == "witness" else "to be recomputed"
        return f"rank-modular: rank R_all = {document['claim']['rank']} modulo the prime {evidence['prime']}, {how}"
    if evidence["method"] == "dimension":
        return f"{document['kind']}: m is below M, the number of columns of R_all"
    from utfproof.decision.missed import in_decimals, stored_integer

    numerator, denominator = (stored_integer(part) for part in evidence["distance_squared"])
    return (
        f"rank-deficient: R_all z = 0 with {len(evidence['z'])} nonzero entries; the "
        f"{'target routed along the word' if document['shape'].get('residual') else 'isolating target'} of column "
        f"{evidence['column']} is missed by at least {in_decimals(Fraction(numerator, denominator), 6):.6f}"
    )
