"""What a certificate is about, as a `Scope`, in which way it settles it, and what its evidence shows, in words."""

from __future__ import annotations

from typing import Any

from utfproof.certificates.format import shape_of
from utfproof.constructions import CONSTRUCTIONS
from utfproof.shapes import column_at, matching_dimension
from utfproof.util.notions import Hosts, Notion, Scope, Targets

_TIED = {entry.name for entry in CONSTRUCTIONS.values() if entry.tied}
"""Constructions that use the same matrices in every layer."""

INEQUALITY = "dimension"
"""The method of certificates whose arithmetic is an inequality of a written proof (docs/certificate-format.md, section 10)."""
IDENTITY = "E is a rational function of the target, and the equations hold at a target drawn modulo a random prime"
"""What certificates of kind `identity` show."""
TABLES = "the host turns tables of a target into its queries, keys and outputs, at tables drawn modulo a random prime"
"""What certificates of kind `gated-identity` show."""
MOST_NAMED = 3
"""Columns of a kernel vector that a line names: kind, head word and coordinate."""


def scope_of(document: dict[str, Any]) -> Scope:
    """The scope of a certificate's claim. Its host is either every host of a kind, or the one examined."""
    claim = document["claim"]
    host = claim["host"]
    every = host.get("every")
    if every is not None:
        hosts = Hosts(tied=every == "tied host")
    else:
        looped = str(host.get("system", "")).startswith("looped")
        hosts = Hosts(tied=looped or host.get("construction") in _TIED, examined=True)
    targets = claim["targets"] + (f", if inputs have {claim['inputs']}" if "inputs" in claim else "")
    return Scope(Notion(claim["notion"]), Targets.parse(targets), hosts, claim.get("free"))


def is_inequality(document: dict[str, Any]) -> bool:
    """Whether the certificate's arithmetic is an inequality of a written proof, rather than a thing to recompute."""
    return bool(document["evidence"].get("method") == INEQUALITY)


def signature(document: dict[str, Any]) -> str:
    """Kind, method, verdict and scope in a line: what a certificate says, whatever its shape."""
    method = document["evidence"].get("method")
    parts = [document["kind"], *([method] if isinstance(method, str) else []), document["claim"]["verdict"]]
    return f"{', '.join(parts)} | {scope_of(document)}"


def in_words(document: dict[str, Any]) -> str:
    """The kind of a certificate about universality and what its evidence shows, in a line."""
    kind, claim, evidence, shape = document["kind"], document["claim"], document["evidence"], shape_of(document)
    method, rank, m = evidence.get("method"), claim.get("rank"), document["shape"]["m"]
    how = f"modulo the prime {evidence.get('prime')}, to be recomputed"
    if method == "witness":
        how = f"modulo the prime {evidence['prime']}, with the inverse of a minor as witness"
    said = {
        "rank-permutation": "R_all is a permutation matrix (columns are different unit vectors)",
        "rank-modular": f"rank R_all = {rank} {how}",
        "linear-test": f"the test matrix has full rank {rank} {how}",
        "tied-kernel": f"rank R_all = {rank}, and W_all z = 0 for every tied target and each of "
        f"{len(evidence.get('basis', ()))} vectors z that span its kernel",
        "dimension": f"m = {m} is below the bound for every host",
        "span": f"the targets listed span more dimensions than m = {m}",
        "null-vector": "an integer vector annihilates the products R_w",
        "tied-target": "R_all z = 0 but W_all z is not zero for a tied target and an integer vector z",
        "kernel-vector": f"R_all z = 0 with {len(evidence.get('z', ()))} nonzero entries",
    }
    if kind == "rank-permutation" and shape.residual and claim["host"]["construction"] == "sparse":
        return f"{kind}: every column of R_all begins in a row of its own"
    if kind == "rank-permutation" and shape.residual:
        unlike = f"the {rank} columns of R_all for words without the stream's letter are different unit vectors"
        return f"{kind}: {unlike}, and the others repeat them"
    if kind == "identity":
        return f"{kind}: {IDENTITY}"
    if kind == "gated-identity":
        return f"{kind}: {TABLES}"
    if kind == "rank-deficient" and method == "dimension":
        return f"{kind}: m = {m} is below M = {matching_dimension(shape)}, the number of columns of R_all"
    if method == "kernel-vector" and len(evidence["z"]) <= MOST_NAMED:
        named = (column_at(shape, int(place)) for place, _ in evidence["z"])
        columns = " and ".join(f"{c.kind}({', '.join(map(str, c.word))})[{c.coordinate}]" for c in named)
        return f"{kind}: {said[method]} (columns {columns})"
    return f"{kind}: {said[kind] if kind in said else said[method]}"
