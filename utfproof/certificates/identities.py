"""Certificates of kind `identity`: an embedding that is a rational function of the target.

For the constructions below M, the matching or attention equations are identities, which a checker tests at a target that is
drawn modulo a random prime (docs/certificate-format.md section 9). The construction's name says what E is (and U, where free).
"""

from __future__ import annotations

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined
from utfproof.constructions import CONSTRUCTIONS, Construction, resolve_m
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.shapes import Shape, geometric

MOST_BLOCKS = 2**22
"""Of a host that a checker follows."""
TOO_LARGE = 2**62
"""The size of what no checker follows."""
NANOSECONDS_PER_NUMBER = 15_000
"""What five columns of a permutation take a checker: as much work as a number that is written out."""
IDENTITIES: dict[str, Construction] = {name: entry for name, entry in CONSTRUCTIONS.items() if entry.identity}
"""The constructions that the kind `identity` is specified for."""


class ByIdentity:
    """Constructions whose embedding is a rational function of the target, by their own notion."""

    def can(self, host: Examined) -> bool:
        named = host.entry is not None and host.entry.identity
        return (
            bool(named) and host.construction.notion is host.notion and (host.square or not host.construction.is_host)
        )

    def build(self, host: Examined) -> Certificate:
        return identity_certificate(host.name, host.shape, host.m)


def identity_of(name: str) -> Construction:
    """A construction that has identities. MalformedInput for others."""
    if name not in IDENTITIES:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    return IDENTITIES[name]


def require_identity(name: str, shape: Shape) -> None:
    """NotDefined unless the construction is defined there and d_in = d_out."""
    entry = identity_of(name)
    if shape.d_in != shape.d_out:
        raise NotDefined(
            f"an identity of {name} is defined for d_in = d_out, got d_in {shape.d_in}, d_out {shape.d_out}"
        )
    resolve_m(entry, shape, None)


def identity_size(name: str, shape: Shape) -> int:
    """Roughly the work of a checker, in that of a number that is written; `TOO_LARGE` where it is over a limit."""
    entry = identity_of(name)
    if entry.least_m(shape) // shape.d_in > MOST_BLOCKS:
        return TOO_LARGE
    b, d, H, L = shape.d_in, shape.head_dim, shape.heads, shape.layers
    nodes = geometric(shape.letters, 0, L)
    columns = 2 * d * H * geometric(shape.letters, 0, L - 1) + b * shape.words_at(L)
    work = 600 * (columns * (b * b + L) + L * H * 8 * b * b * (b + d) + nodes * b**3) + 10**9
    return work // NANOSECONDS_PER_NUMBER


def identity_certificate(name: str, shape: Shape, m: int | None = None, *, tied_targets: bool = False) -> Certificate:
    """The identity by which this construction serves its targets at this shape; m defaults to the least one.

    tied_targets: of shared-query-groups and residual-key the certificate for tied targets. Raises MalformedInput for other
    constructions, NotDefined outside the construction's shapes and below its least m, ResourceLimit where its blocks are too
    many for a checker.
    """
    entry = identity_of(name)
    require_identity(name, shape)
    m = resolve_m(entry, shape, m)
    if identity_size(name, shape) == TOO_LARGE:
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
