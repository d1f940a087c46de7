"""Universality by attention-matching of a host given as a file: what can be proved, and what stays open.

Yes comes from the linear test (d >= d_in = d_out), from matching, which implies it, or from the identity of a named
construction. There is no way here to a no: where the host is not universal by these, the local test may show that a
neighbourhood of one target is reached, never that all targets are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.linear_test import linear_test_weights
from utfproof.certificates.prover import certify
from utfproof.certificates.sources import assemble
from utfproof.constructions import CONSTRUCTIONS
from utfproof.decision.local_test import local_test
from utfproof.decision.verdict import HostDecision, HostVerdict, asked, decide_matching, decision_of
from utfproof.errors import NotDefined, Refuted, Undecided
from utfproof.exact import rational
from utfproof.ground.arrays import exact, one_line
from utfproof.ground.generator import integer_matrix
from utfproof.ground.notions import Extent, Notion
from utfproof.matching import r_all, w_all
from utfproof.shapes import column_groups
from utfproof.systems import Target, Universal
from utfproof.weights import HostFile, StoredHost, read_host, stored_host

LOCAL_ENTRIES = 20_000
"""Largest Jacobian (entries) of the local test run here."""
LOCAL_SEEDS = 3


@one_line
@dataclass(frozen=True)
class LocalFinding:
    """The local test at one exactly matched target: the rank of its Jacobian among its equations, and the target."""

    rank: int
    equations: int
    target: Target
    E: np.ndarray

    @property
    def reaches_nearby(self) -> bool:
        """Every target near this one is reached by attention-matching; False says nothing."""
        return self.rank == self.equations


@one_line
@dataclass(frozen=True)
class AttentionDecision:
    """The verdict (UNIVERSAL or OPEN), why; the local test's finding, or why there is none."""

    decision: HostDecision
    local: LocalFinding | None = None
    local_reason: str = ""


def decide_attention_matching(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> AttentionDecision:
    """Universality by attention-matching, for all untied targets: UNIVERSAL with a certificate, else OPEN.

    Raises MalformedInput for files that hold no host, ResourceLimit before allocating.
    """
    given: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual, "max_memory": max_memory}
    options = {**given, "device": device}
    stored = stored_host(host, **given)
    question = asked(Notion.ATTENTION_MATCHING, stored)
    reasons = []
    try:
        return AttentionDecision(decision_of(linear_test_weights(stored, **options), question))
    except (Undecided, NotDefined) as error:
        reasons.append(str(error))
    name = stored.file.metadata.get("construction", "")
    if name in CONSTRUCTIONS and CONSTRUCTIONS[name].notion is Notion.ATTENTION_MATCHING:
        named = _by_identity(name, stored, given)
        if named is not None:
            return AttentionDecision(named)
    matching = decide_matching(stored, witness=witness, **options)
    if matching.universal:
        reason = "universal by matching, which implies attention-matching"
        assert matching.certificate is not None
        return AttentionDecision(decision_of(matching.certificate, question, reason))
    reasons.append(
        "not universal by matching, which does not decide it"
        if matching.verdict is HostVerdict.REFUTED
        else f"undecided by matching ({matching.reason})"
    )
    opened = HostDecision(question, HostVerdict.OPEN, None, "; ".join(reasons))
    found = _local(stored, max_memory)
    return AttentionDecision(opened, None, found) if isinstance(found, str) else AttentionDecision(opened, found)


def _by_identity(name: str, stored: StoredHost, given: dict[str, Any]) -> HostDecision | None:
    """The identity certificate of the construction that these weights are, entry by entry (`read_host` compares them)."""
    host = read_host(stored)
    try:
        found = certify(name, host.shape, stored.m, max_memory=given["max_memory"])
        if not found.universal:
            return None
        almost = asked(Notion.ATTENTION_MATCHING, stored, extent=Extent.ALMOST_ALL)
        reason = f"the weights are those of the construction {name}, which the certificate names"
        return decision_of(found, almost, reason)
    except (Undecided, NotDefined):
        return None


def _local(stored: StoredHost, max_memory: int | None) -> LocalFinding | str:
    """The local test at a target that this host matches exactly; one line where none is found or it is too large."""
    shape = stored.shape
    if shape.residual:
        return "it is defined without a residual stream only"
    if shape.d_in != shape.d_out or shape.head_dim < shape.d_in:
        return "targets matched exactly are looked for at d_in = d_out <= head_dim only"
    equations = shape.d_in * stored.M
    unknowns = shape.d_in * stored.m + shape.layers * shape.heads * shape.head_dim**2
    if unknowns < equations:
        return (
            f"the local test has {unknowns} unknowns for {equations} equations, so its Jacobian cannot have full rank"
        )
    if equations * unknowns > LOCAL_ENTRIES:
        return f"the local test's Jacobian has {equations} x {unknowns} entries; it is computed up to {LOCAL_ENTRIES}"
    host = exact_host(stored)
    best: LocalFinding | None = None
    for seed in range(LOCAL_SEEDS):
        solved = matched_target(host, seed)
        if solved is None:
            continue
        target, E = solved
        try:
            found = local_test(host, target, E, max_memory=max_memory)
        except Refuted:
            continue
        if best is None or found.rank > best.rank:
            best = LocalFinding(found.rank, found.equations, target, E)
        if best.reaches_nearby:
            break
    return best if best is not None else "no target was found at which to run the local test"


def exact_host(stored: StoredHost) -> Universal:
    """The host with the rationals that its floats are, as object arrays."""

    def draw(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        return exact(stored.matrix(tensor, layer, head))

    return assemble(stored.shape, stored.m, stored.tied, draw, stored.values)


def matched_target(host: Universal, seed: int = 0) -> tuple[Target, np.ndarray] | None:
    """A target and an E [d_in, m] with E R_all = W_all exactly, for d >= d_in = d_out; None if none is found.

    Below the last layer the target's M^{l,h} are numbers c times the identity; E is then any matrix whose rows make the
    queries, keys and last outputs of all routes agree up to those numbers, which is linear, and the target's W_Q, W_K and
    M^{L,h} are read off.
    """
    shape, m = host.shape, host.m
    H, L, d, d_in = shape.heads, shape.layers, shape.head_dim, shape.d_in
    numbers = [[_draw(seed, "W_O", 1, 1, layer, h)[0, 0] or 3 for h in range(H)] for layer in range(L)]
    matrix = r_all(host)
    conditions, places = [], []
    for group in column_groups(shape):
        routes = group.words // H
        for head in range(H):
            blocks = [
                slice(start, start + group.width)
                for start in (group.start + (w * H + head) * group.width for w in range(routes))
            ]
            scales = [_product(numbers, w, group.length - 1, H) for w in range(routes)]
            places.append((group.kind, group.length - 1, head, blocks[0], scales[0]))
            for block, scale in zip(blocks[1:], scales[1:], strict=True):
                conditions.append(matrix[:, block] * scales[0] - matrix[:, blocks[0]] * scale)
    E = _draw(seed, "X", d_in, m)
    if conditions:
        wrong = np.concatenate(conditions, axis=1)
        correction = rational.solve_left(wrong, E @ wrong)
        assert correction is not None  # E itself is a solution
        E = E - correction
    if rational.rank(E) < d_in:
        return None
    reached = E @ matrix
    lead = (L, H)
    W_Q, W_K, W_V = (np.zeros((*lead, d_in, d), dtype=object) for _ in range(3))
    W_O = np.zeros((*lead, d, d_in), dtype=object)
    identity = np.eye(d_in, dtype=object)
    W_O[:, :, :d_in] = identity
    for layer in range(L - 1):
        for head in range(H):
            W_V[layer, head, :, :d_in] = identity * numbers[layer][head]
    for kind, layer, head, block, scale in places:
        read = reached[:, block] * Fraction(1, scale)
        if kind == "OV":
            W_V[layer, head, :, :d_in] = read
        else:
            (W_Q if kind == "Q" else W_K)[layer, head] = read
    target = Target(shape, W_Q, W_K, W_V, W_O)
    return (target, E) if (w_all(target) == reached).all() else None


def _draw(seed: int, tensor: str, rows: int, columns: int, layer: int = 0, head: int = 0) -> np.ndarray:
    """Integers in -3 ... 3 from the seeded generator, as Python integers."""
    drawn = integer_matrix(seed, tensor, rows, columns, law="uniform", layer=layer, head=head)
    return np.array([[int(v) // 2 % 7 - 3 for v in row] for row in drawn], dtype=object)


def _product(numbers: list[list[int]], word: int, length: int, heads: int) -> int:
    """c_w for the word of this number and length."""
    out = 1
    for layer in reversed(range(length)):
        word, letter = divmod(word, heads)
        out *= numbers[layer][letter]
    return out
