"""Certificates of kind `gated-identity`: hosts with gated MLPs, on inputs whose rows sum to 1.

A checker draws tables modulo a random prime and follows queries, keys and outputs of the host from layer to layer
(docs/certificate-format.md section 16). Every target has such tables (docs/proofs/gated-mlp.md, Theorems B and E).
"""

from __future__ import annotations

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined

INPUTS = "rows that sum to 1"


class ByTables:
    """`gated` and `gated-tied`, by their own notion."""

    def can(self, host: Examined) -> bool:
        return host.entry is not None and host.entry.gated and host.entry.notion is host.notion

    def build(self, host: Examined) -> Certificate:
        return certificate(
            "gated-identity",
            host.shape,
            host.m,
            host.document,
            {},
            notion=host.notion,
            targets=host.construction.targets,
            verdict="universal",
            inputs=INPUTS,
        )
