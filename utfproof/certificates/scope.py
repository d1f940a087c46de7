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
MOST_NAMED = 3
"""Columns of a kernel vector that a line names: kind, head word and coordinate."""
WORDS = {
    "rank-permutation": "R_all is a permutation matrix (columns are different unit vectors)",
    "rank-permutation, residual": "the columns of R_all that targets tell apart begin in different rows",
    "recompute": "rank {rank} modulo the prime {prime}, to be recomputed",
    "witness": "rank {rank} modulo the prime {prime}, with the inverse of a minor as witness",
    "tied-kernel": "rank R_all = {rank}, and W_all z = 0 for every tied target and all z of its kernel",
    "identity": "E is a rational function of the target, and the equations hold at a target drawn modulo a random prime",
    "gated-identity": "the host turns tables of a target into its queries, keys and outputs, at tables drawn modulo a prime",
    "dimension": "m = {m} is below {bound}",
    "span": "the targets listed span more dimensions than m = {m}",
    "null-vector": "an integer vector annihilates the products R_w",
    "tied-target": "R_all z = 0 but W_all z is not zero for a tied target and an integer vector z",
    "kernel-vector": "R_all z = 0 with {entries} nonzero entries",
}
"""What evidence shows, by its method, or by its kind where that has one."""


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
    method = evidence.get("method", kind + ", residual" * (kind == "rank-permutation" and shape.residual))
    bound = (
        f"M = {matching_dimension(shape)}, the number of columns of R_all"
        if kind == "rank-deficient"
        else "the bound for every host"
    )
    facts = {"rank": claim.get("rank"), "prime": evidence.get("prime"), "m": document["shape"]["m"], "bound": bound}
    said = f"{kind}: {WORDS[method].format(**facts, entries=len(evidence.get('z', ())))}"
    if method != "kernel-vector" or len(evidence["z"]) > MOST_NAMED:
        return said
    columns = (column_at(shape, int(position)) for position, _ in evidence["z"])
    names = (f"{c.kind}({', '.join(map(str, c.word))})[{c.coordinate}]" for c in columns)
    return f"{said} (columns {' and '.join(names)})"
