"""Certificates of kind `identity`: an embedding whose blocks are words in the target's own matrices.

For the constructions below M, the matching or attention equations are identities of words: the certificate says which word
stands in which block of E (and of U where it is free), and a checker follows the blocks (docs/certificate-format.md section 9).
"""

from __future__ import annotations

from typing import Any

from utfproof.certificates.format import STANDARD, WRITTEN_OUT, Certificate, certificate, integer
from utfproof.certificates.hosts import Examined
from utfproof.constructions import CONSTRUCTIONS, Construction, resolve_m
from utfproof.constructions.record import Identity
from utfproof.constructions.words import Blocks
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape, geometric, require_plain

MOST_MOVES = 1_000_000_000
"""What a checker follows in its default hour: some microseconds a move."""
MOVES_PER_NUMBER = 5
"""Where a standard form is named, so many moves (columns of a permutation) count as one number that is written out."""
NANOSECONDS_PER_NUMBER = 15_000
"""What five moves take."""
IDENTITIES: dict[str, Construction] = {
    name: entry for name, entry in CONSTRUCTIONS.items() if entry.identity is not None
}
"""The constructions that the kind `identity` is specified for."""


class ByIdentity:
    """Constructions whose embedding is made of the target's own matrices, by their own notion."""

    def can(self, host: Examined) -> bool:
        named = host.entry is not None and host.entry.identity is not None
        return named and host.construction.notion is host.notion and (host.square or not host.construction.is_host)

    def build(self, host: Examined) -> Certificate:
        return identity_certificate(host.name, host.shape, host.m, max_memory=host.max_memory)


def identity_of(name: str) -> tuple[Construction, Identity]:
    """A construction and what its identity says. MalformedInput for constructions without one."""
    entry = IDENTITIES.get(name)
    if entry is None or entry.identity is None:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    return entry, entry.identity


def require_identity(name: str, shape: Shape) -> None:
    """NotDefined unless the construction is defined there and d_in = d_out; words are of targets without a stream."""
    entry, identity = identity_of(name)
    if identity.words is not None:
        require_plain(shape, f"the identity of {name}")
    if shape.d_in != shape.d_out:
        raise NotDefined(
            f"an identity of {name} is defined for d_in = d_out, got d_in {shape.d_in}, d_out {shape.d_out}"
        )
    resolve_m(entry, shape, None)


def is_standard(name: str, shape: Shape) -> bool:
    """Whether the standard embedding is named, not written out: always where E is a rational function, else where its blocks
    would take more than 100 000 numbers."""
    entry, identity = identity_of(name)
    return identity.words is None or (identity.moves is not None and _numbers(entry, shape) > WRITTEN_OUT)


def _numbers(entry: Construction, shape: Shape) -> int:
    """Roughly the letters and numbers of the evidence, written out."""
    return entry.least_m(shape) // shape.d_in * (shape.layers + 1)


def identity_size(name: str, shape: Shape) -> int:
    """Roughly the numbers that the certificate writes, or as much checking: moves of blocks, or products of a drawn target."""
    entry, identity = identity_of(name)
    if identity.words is None:
        b, d, H, L = shape.d_in, shape.head_dim, shape.heads, shape.layers
        nodes = geometric(shape.letters, 0, L)
        columns = 2 * d * H * geometric(shape.letters, 0, L - 1) + b * shape.words_at(L)
        work = 600 * (columns * (b * b + L) + L * H * 8 * b * b * (b + d) + nodes * b**3) + 10**9
        return work // NANOSECONDS_PER_NUMBER
    if identity.moves is not None and is_standard(name, shape):
        return max(WRITTEN_OUT, identity.moves(shape) // MOVES_PER_NUMBER)
    return _numbers(entry, shape)


def identity_certificate(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    max_memory: int | None = None,
    standard: bool | None = None,
    tied_targets: bool = False,
) -> Certificate:
    """The identity by which this construction serves its targets at this shape; m defaults to the least one.

    standard: name the standard embedding in place of its blocks, by default as `is_standard` says. The certificate has the same
    size at every shape then, and the checker follows the words (ResourceLimit where they are too many for that).
    tied_targets: state a rational function's certificate for tied targets. Raises MalformedInput for other constructions,
    NotDefined outside the construction's shapes and below its least m, ResourceLimit before allocating.
    """
    entry, identity = identity_of(name)
    require_identity(name, shape)
    m, targets = resolve_m(entry, shape, m), entry.targets
    evidence: dict[str, Any] = {"E": STANDARD}
    if is_standard(name, shape) if standard is None else standard:
        if identity.moves is None and identity.words is not None:
            raise MalformedInput(f"no standard embedding of {name} is defined in the certificate format")
        moves = 0 if identity.moves is None else identity.moves(shape)
        if moves > MOST_MOVES:
            raise ResourceLimit(
                f"checking {name} at {shape} needs {moves} moves of blocks, at most {MOST_MOVES} are followed"
            )
        if tied_targets and identity.words is None:
            targets = targets.replace("untied", "tied")
    else:
        assert identity.words is not None
        # a block: its letters (8 bytes each, strings of some 60), the list and the pair
        needed = entry.least_m(shape) * (200 + 70 * (2 * shape.layers + shape.heads))
        require_memory(needed, f"an identity of {name} at {shape}", max_memory)
        E, U = identity.words(shape)
        evidence = {"E": _blocks(E)} if U is None else {"E": _blocks(E), "U": _blocks(U)}
    return certificate(
        "identity",
        shape,
        m,
        {"construction": identity.host or name},
        evidence,
        notion=entry.notion or "",
        targets=targets,
        free=None if entry.shared is None else entry.shared.free,
        verdict="universal",
    )


def _blocks(blocks: Blocks) -> list[list[Any]]:
    return [[integer(start), word] for start, word in blocks]
