"""`utfproof certify`: a certificate that a construction is, or is not, universal, by the notion it names."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.outcome import Outcome
from utfproof.shapes import matching_dimension
from utfproof.util.notions import Notion

if TYPE_CHECKING:
    from utfproof.certificates.format import Certificate

MEANINGS = {
    "matching": "queries, keys and outputs agree, so the outputs agree for every n and X",
    "functional": "the outputs agree, for every n and X, with softmax attention",
    "shared attention": "the outputs agree, whatever attention is supplied from outside",
    "attention-matching": "attention logits and outputs agree, so the outputs agree for every n and X where attention depends "
    "on the logits alone (no RoPE)",
}
"""What a suitable E reaches for every target, by notion."""
REFUTED = "no E solves the matching equations for every target; this does not decide functional universality"


SLOW = 2.0
"""Seconds from which on the time is said."""


def certify(
    *,
    construction: Annotated[
        str,
        typer.Argument(
            help="Name of the construction, for example sparse, tied, random.", parser=options.known_construction
        ),
    ],
    output: options.Certificate,
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.M = None,
    notion: Annotated[
        str | None, options.choice("Notion of universality (default: the construction's own)", options.NOTIONS)
    ] = None,
    residual: options.Residual = False,
    seed: options.Seed = 0,
    law: options.Law = "uniform",
    dtype: options.Dtype = "float64",
    witness: Annotated[
        bool, options.rare("--witness", help="Random constructions: evidence that is faster to check (a sidecar).")
    ] = False,
    device: options.Device = "cpu",
    max_memory: options.MaxMemory = None,
) -> Outcome:
    """Decide and certify whether a construction is universal.

    By matching, but shared-key and shared-query by attention-matching, unless --notion says otherwise. Exit 0: universal
    by that notion. 1: refuted (by matching, which does not decide functional universality). With --residual tied serves all
    tied targets.

    Example: utfproof certify tied --heads 4 --layers 2 --head-dim 24 --d-in 4 -o tied.json
    """
    from utfproof.certificates.format import shape_of
    from utfproof.certificates.prover import certify

    shape = options.shape_of(heads, layers, head_dim, d_in, d_out, residual=residual)
    asked = None if notion is None else Notion.asked(notion)
    how: dict[str, Any] = {"seed": seed, "law": law, "dtype": dtype, "witness": witness, "device": device}
    began = time.monotonic()
    found = certify(construction, shape, m, notion=asked, **how, max_memory=max_memory)
    seconds = time.monotonic() - began
    files = [str(path) for path in found.write(output)]
    claim, dimensions = found.document["claim"], shape_of(found.document)
    by, targets, free, inputs = Notion(claim["notion"]), claim["targets"], claim.get("free"), claim.get("inputs")
    limited = f", on inputs with {inputs}" if inputs else ""
    every = f"n and every X with {inputs}" if inputs else "n and X"
    document: dict[str, Any] = {
        "verdict": f"{'' if found.universal else 'not '}universal {by.sense}",
        "notion": by.value,
        "targets": targets,
        "kind": found.kind,
        "host": claim["host"],
        "shape": found.document["shape"],
        "M": matching_dimension(dimensions),
        "files": files,
        **({} if free is None else {"free": free}),
        **({} if inputs is None else {"inputs": inputs}),
    }
    suited = f"some {free or 'E'} make{'s' * (free in (None, 'E'))}"
    meaning = f"for every {targets.removeprefix('all ')} target {suited} {MEANINGS[by.value].replace('n and X', every)}"
    rows = {
        "verdict": f"{document['verdict']} (targets: {targets}{f'; {free} free' if free else ''}){limited}",
        "shape": f"{dimensions}, m = {document['shape']['m']}, M = {document['M']}",
        "evidence": _evidence(found),
        "certificate": ", ".join(files),
        "means": meaning if found.universal else REFUTED,
        **({"time": f"{seconds:.1f} s"} if seconds >= SLOW else {}),
    }
    return Outcome(document, f"certify {construction}", rows, 0 if found.universal else 1)


def _evidence(found: Certificate) -> str:
    from utfproof.certificates.format import shape_of
    from utfproof.certificates.kernel import missed_distance
    from utfproof.certificates.scope import in_words
    from utfproof.decision.counterexample import in_decimals, stored_integer

    document, evidence, said = found.document, found.document["evidence"], in_words(found.document)
    if evidence.get("method") != "kernel-vector":
        return said
    z = {stored_integer(i): stored_integer(value) for i, value in evidence["z"]}
    distance = missed_distance(shape_of(document), stored_integer(evidence["column"]), z)
    return (
        f"{said}; the "
        f"{'target routed along the word' if document['shape'].get('residual') else 'isolating target'} of column "
        f"{evidence['column']} is missed by at least {in_decimals(distance, 6):.6f}"
    )
