"""Certificates of kind `identity`: an embedding that is a rational function of the target.

For the constructions below M, the matching or attention equations are identities, which a checker tests at a target that is
drawn modulo a random prime (docs/certificate-format.md section 9). The construction's name says what E is (and U, where free).
"""

from __future__ import annotations

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined
from utfproof.constructions import CONSTRUCTIONS, Construction
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.shapes import Shape

MOST_BLOCKS = 2**22
"""Of a host that a checker follows."""
IDENTITIES: dict[str, Construction] = {name: entry for name, entry in CONSTRUCTIONS.items() if entry.identity}
"""The constructions that the kind `identity` is specified for."""


class ByIdentity:
    """Constructions whose embedding is a rational function of the target, by their own notion."""

    def can(self, host: Examined) -> bool:
        named = host.entry is not None and bool(host.entry.identity)
        return named and host.construction.notion is host.notion and (host.square or not host.construction.is_host)

    def build(self, host: Examined) -> Certificate:
        return identity_certificate(host.name, host.shape, host.m)


def identity_certificate(name: str, shape: Shape, m: int | None = None, *, tied_targets: bool = False) -> Certificate:
    """The identity by which this construction serves its targets at this shape; m defaults to the least one.

    tied_targets: of shared-query-groups and residual-key the certificate for tied targets. Raises MalformedInput for other
    constructions, NotDefined outside the construction's shapes and below its least m, ResourceLimit where its blocks are too
    many for a checker.
    """
    entry = IDENTITIES.get(name)
    if entry is None:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    if shape.d_in != shape.d_out:
        raise NotDefined(
            f"an identity of {name} is defined for d_in = d_out, got d_in {shape.d_in}, d_out {shape.d_out}"
        )
    m = entry.dimension(shape, m)
    if entry.least_m(shape) // shape.d_in > MOST_BLOCKS:
        raise ResourceLimit(f"checking {name} at {shape} would follow more than {MOST_BLOCKS} blocks of E")
    return certificate(
        "identity",
        shape,
        m,
        {"construction": entry.identity},
        {},
        notion=entry.notion or "",
        targets=entry.targets.replace("untied", "tied") if tied_targets and entry.tied_too else entry.targets,
        free=None if entry.shared is None else entry.shared.free,
        verdict="universal",
    )
