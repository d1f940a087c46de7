"""`utfproof certify`: a certificate that a construction is, or is not, universal, by the notion it names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import command
from utfproof.cli.options import (
    Device,
    Draw,
    M,
    MaxMemory,
    Residual,
    ShapeOptions,
    argument,
    option,
    written,
)
from utfproof.cli.outcome import Outcome
from utfproof.constructions import construction as named
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.ground.notions import Notion
from utfproof.shapes import matching_dimension

if TYPE_CHECKING:
    from utfproof.certificates.format import Certificate


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
    ): "for every untied target some E makes the outputs agree, whatever attention is supplied from outside",
    (
        Notion.ATTENTION_MATCHING,
        True,
    ): "for every such target some E makes attention logits and outputs agree, so the outputs "
    "agree for every n and X where attention depends on the logits alone (no RoPE)",
}
"""What a verdict says and does not say, by notion and direction."""


def _known(label: str, name: str) -> str:
    return named(name).name


@command(
    "Example: utfproof certify tied --heads 4 --layers 2 --head-dim 24 --d-in 4 -o tied.json",
)
def certify(
    *,
    construction: Annotated[str, argument("Name of the construction, for example sparse, tied, random.", check=_known)],
    output: Annotated[Path, written("Certificate to write (.json).", "-o", "--output")],
    shape: ShapeOptions,
    m: M = None,
    notion: Annotated[
        str | None,
        option(
            "Notion of universality (default: the construction's own)",
            choices=tuple(notion.word for notion in Notion),
        ),
    ] = None,
    residual: Residual = False,
    draw: Draw,
    witness: Annotated[
        bool, option("Random constructions: evidence that is faster to check (a sidecar).", "--witness", advanced=True)
    ] = False,
    device: Device = "cpu",
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Decide whether a construction is universal, and write the certificate.

    By matching, but shared-key and shared-query by attention-matching, unless --notion says otherwise. Exit 0: universal
    by that notion. 1: refuted (by matching, which does not decide functional universality). With --residual tied serves all
    tied targets.
    """
    from utfproof.certificates.prover import certify

    options.refuse_undrawn(stated, construction, "seed", "law", "dtype", "device")
    require_json(output)
    asked = None if notion is None else Notion.asked(notion)
    how: dict[str, Any] = {**vars(draw), "witness": witness, "device": device, "max_memory": max_memory}
    found = certify(construction, shape.shape(residual=residual), m, notion=asked, **how)
    return report(found, output, f"certify {construction}")


def require_json(output: Path) -> None:
    """MalformedInput unless the certificate's name ends in .json and it can be written: said before any work."""
    if output.suffix != ".json":
        raise MalformedInput(f"a certificate's file name ends in .json, got {output}")
    require_writable(output)


def report(found: Certificate, output: Path, subject: str) -> Outcome:
    """Write a certificate and say what it decides."""
    from utfproof.certificates.format import shape_of

    written = found.write(output)
    shape, dimensions = found.document["shape"], shape_of(found.document)
    notion, targets = Notion(found.document["claim"]["notion"]), found.document["claim"]["targets"]
    verdict = f"{'' if found.universal else 'not '}universal {notion.sense}"
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
    free = found.document["claim"].get("free")
    meaning = MEANINGS[notion, found.universal].replace("every untied", "every " + targets.removeprefix("all "))
    if free is not None:
        document["free"] = free
        meaning = meaning.replace("some E makes", f"some {free} make{'s' * (free == 'E')}")
    rows = {
        "verdict": f"{verdict} (targets: {targets}{f'; {free} free' if free else ''})",
        "shape": f"{dimensions}, m = {shape['m']}, M = {document['M']}",
        "evidence": _evidence(found.document),
        "certificate": ", ".join(document["files"]),
        "means": meaning,
    }
    return Outcome(document, subject, rows, 0 if found.universal else 1)


def _evidence(document: dict[str, Any]) -> str:
    from utfproof.certificates.evidence import of_construction
    from utfproof.decision.counterexample import in_decimals, stored_integer

    evidence = document["evidence"]
    if "distance_squared" not in evidence:
        return of_construction(document)
    numerator, denominator = (stored_integer(part) for part in evidence["distance_squared"])
    return (
        f"{document['kind']}: R_all z = 0 with {len(evidence['z'])} nonzero entries; the "
        f"{'target routed along the word' if document['shape'].get('residual') else 'isolating target'} of column "
        f"{evidence['column']} is missed by at least {in_decimals(Fraction(numerator, denominator), 6):.6f}"
    )
