"""What a certificate is about, as a `Scope`, and in which way it settles it."""

from __future__ import annotations

from typing import Any

from utfproof.constructions import CONSTRUCTIONS
from utfproof.ground.notions import Hosts, Notion, Scope, Targets

_TIED = {entry.name for entry in CONSTRUCTIONS.values() if entry.tied}
"""Constructions that use the same matrices in every layer."""

INEQUALITY = "dimension"
"""The method of certificates whose arithmetic is an inequality of a written proof (docs/certificate-format.md, section 10)."""


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
    return Scope(Notion(claim["notion"]), Targets.parse(claim["targets"]), hosts, claim.get("free"))


def is_inequality(document: dict[str, Any]) -> bool:
    """Whether the certificate's arithmetic is an inequality of a written proof, rather than a thing to recompute."""
    return bool(document["evidence"].get("method") == INEQUALITY)


def signature(document: dict[str, Any]) -> str:
    """Kind, method, verdict and scope in a line: what a certificate says, whatever its shape."""
    method = document["evidence"].get("method")
    parts = [document["kind"], *([method] if isinstance(method, str) else []), document["claim"]["verdict"]]
    return f"{', '.join(parts)} | {scope_of(document)}"
