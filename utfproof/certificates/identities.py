"""Certificates of kind `identity`: an embedding whose blocks are words in the target's own matrices.

For the constructions below M, the matching or attention equations are identities of words: the certificate says which word
stands in which block of E (and of U where it is free), and a checker follows the blocks (docs/certificate-format.md section 9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utfproof.certificates.format import STANDARD, WRITTEN_OUT, Certificate, certificate, integer
from utfproof.constructions import CONSTRUCTIONS, Construction, resolve_m
from utfproof.constructions.record import Identity
from utfproof.constructions.words import Blocks
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape, geometric, require_plain

MOST_MOVES = 1_000_000_000
"""What a checker follows in its default hour: some microseconds a move."""


@dataclass(frozen=True)
class IdentityKind:
    """A construction and what its identity says."""

    entry: Construction
    identity: Identity

    @property
    def targets(self) -> str:
        """Which targets, as the certificate says it."""
        return self.entry.targets

    @property
    def free(self) -> str | None:
        """ "E" or "E and U" for shared attention, else None."""
        return None if self.entry.shared is None else self.entry.shared.free

    @property
    def words(self) -> Callable[[Shape], tuple[Blocks, Blocks | None]] | None:
        """Of the blocks; None for rational functions."""
        return self.identity.words

    @property
    def moves(self) -> Callable[[Shape], int] | None:
        """Moves of blocks where the format has a standard embedding (section 9.1)."""
        return self.identity.moves

    @property
    def notion(self) -> Notion:
        """The construction's."""
        assert self.entry.notion is not None
        return self.entry.notion

    def least_m(self, shape: Shape) -> int:
        """The construction's."""
        return self.entry.least_m(shape)

    def defined(self, shape: Shape) -> None:
        """NotDefined unless the construction is defined there and d_in = d_out; words are of targets without a stream."""
        if self.words is not None:
            require_plain(shape, f"the identity of {self.entry.name}")
        if shape.d_in != shape.d_out:
            raise NotDefined(
                f"an identity of {self.entry.name} is defined for d_in = d_out, got d_in {shape.d_in}, d_out {shape.d_out}"
            )
        resolve_m(self.entry, shape, None)

    def numbers(self, shape: Shape) -> int:
        """Roughly the letters and numbers of the evidence, written out."""
        return self.least_m(shape) // shape.d_in * (shape.layers + 1)

    def is_standard(self, shape: Shape) -> bool:
        """Whether the standard embedding is named, not written out."""
        return self.words is None or (self.moves is not None and self.numbers(shape) > WRITTEN_OUT)

    def work(self, shape: Shape) -> int:
        """Nanoseconds of a check at a drawn target, roughly."""
        b, d, H, L = shape.d_in, shape.head_dim, shape.heads, shape.layers
        nodes = geometric(shape.letters, 0, L)
        columns = 2 * d * H * geometric(shape.letters, 0, L - 1) + b * shape.words_at(L)
        return 600 * (columns * (b * b + L) + L * H * 8 * b * b * (b + d) + nodes * b**3) + 10**9


IDENTITIES: dict[str, IdentityKind] = {
    entry.name: IdentityKind(entry, entry.identity) for entry in CONSTRUCTIONS.values() if entry.identity is not None
}
"""The constructions that the kind `identity` is specified for."""


def identity_evidence(document: dict[str, Any]) -> str:
    """What an identity certificate shows, in half a sentence."""
    E, name = document["evidence"]["E"], document["claim"]["host"]["construction"]
    if name in IDENTITIES and IDENTITIES[name].words is None:
        return "E is a rational function of the target, and the equations hold at a target drawn modulo a random prime"
    blocks = "the blocks of the standard E" if E == STANDARD else f"{len(E)} blocks"
    return f"E is made of {blocks}, each a product of the target's own matrices"


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

    standard: name the standard embedding of register, shared-key or shared-query in place of its blocks; by default where
    these take more than 100 000 numbers. The certificate has the same size at every shape then, and the checker follows
    the words (ResourceLimit where they are too many for that). Embeddings of rational functions (shared-query-groups,
    residual-key, ...) are always named; tied_targets: such a certificate about tied targets.

    The claim says which targets: "all untied" (shared-key, register, two-sided), "untied with invertible M^(l,0)"
    (shared-query), "all tied" (counting, commuting-trie). shared-query-functional is shared-query at H = d_in = 1, where a
    target with a singular M^(l,0) is zero. Raises MalformedInput for other constructions, NotDefined outside
    the construction's shapes and below its least m, ResourceLimit before allocating.
    """
    if name not in IDENTITIES:
        raise MalformedInput(f"no identity certificates for {name!r}; choose {', '.join(IDENTITIES)}")
    kind = IDENTITIES[name]
    kind.defined(shape)
    m, least = resolve_m(kind.entry, shape, m), kind.least_m(shape)
    if kind.is_standard(shape) if standard is None else standard:
        return _standard(name, kind, shape, m, tied_targets)
    assert kind.words is not None
    # a block: its letters (8 bytes each, strings of some 60), the list and the pair
    require_memory(
        least * (200 + 70 * (2 * shape.layers + shape.heads)), f"an identity of {name} at {shape}", max_memory
    )
    E, U = kind.words(shape)
    return _stated(name, kind, shape, m, E, U)


def _standard(name: str, kind: IdentityKind, shape: Shape, m: int, tied_targets: bool) -> Certificate:
    if kind.moves is None and kind.words is not None:
        raise MalformedInput(f"no standard embedding of {name} is defined in the certificate format")
    moves = 0 if kind.moves is None else kind.moves(shape)
    if moves > MOST_MOVES:
        raise ResourceLimit(
            f"checking {name} at {shape} needs {moves} moves of blocks, at most {MOST_MOVES} are followed"
        )
    return certificate(
        "identity",
        shape,
        m,
        {"construction": kind.identity.host or name},
        {"E": STANDARD},
        notion=kind.notion,
        targets=kind.targets.replace("untied", "tied") if tied_targets and kind.words is None else kind.targets,
        free=kind.free,
        universal=True,
    )


def _stated(name: str, kind: IdentityKind, shape: Shape, m: int, E: Blocks, U: Blocks | None) -> Certificate:
    """The certificate with these blocks."""
    evidence: dict[str, Any] = {"E": [[integer(start), word] for start, word in E]}
    if U is not None:
        evidence["U"] = [[integer(start), word] for start, word in U]
    return certificate(
        "identity",
        shape,
        m,
        {"construction": kind.identity.host or name},
        evidence,
        notion=kind.notion,
        targets=kind.targets,
        free=kind.free,
        universal=True,
    )
