"""Producing certificates: is this construction universal at this shape? By matching, unless the notion asked for differs.

{0,1} hosts are settled on index maps in time linear in m; random hosts by the rank of R_all modulo a prime, in
integers drawn straight from the generator; whatever is deficient by m < M or by an exact kernel vector of R_all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from utfproof.certificates import recheck
from utfproof.certificates.examined import Examined, constructed, opened, require_witness, settings_of
from utfproof.certificates.format import (
    INLINE_LIMIT,
    ROWS_WRITTEN_OUT,
    STANDARD,
    Certificate,
    certificate,
    integer,
    integer_array,
)
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.linear_test import linear_test
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.certificates.residual import (
    missed_distance,
    refuted_column,
    streaming_certificate,
    tied_stream_relation,
)
from utfproof.certificates.sources import flint_matrix
from utfproof.certificates.structure import ATTEMPTS, find_relation
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import ResourceLimit, Undecided
from utfproof.exact import gfp, lifting
from utfproof.ground.arrays import require_device, to_numpy
from utfproof.ground.notions import Notion
from utfproof.ground.progress import stage
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import distance_bound, r_all
from utfproof.matching.modular import stacked_memory
from utfproof.shapes import Shape, matching_dimension
from utfproof.weights import HostFile

WITNESS_PRIMES = (65521, 65519, 65497)
"""The three largest primes below 2^16, for witnesses where small primes fail: 2 bytes an entry."""
MAX_DIGITS = 100_000
"""Most decimal digits of an integer in a certificate (docs/certificate-format.md)."""
LONG_BITS = 10_000
"""Longer integers are written by FLINT: Python's own conversion refuses some."""
SEARCH_FROM = 2**15
"""Primes above this are large enough to name the columns of an exact relation."""
MORE_PRIMES = 8
"""How many primes are tried beyond those asked for, before a rank that is deficient modulo each of them stays undecided."""


@dataclass(frozen=True)
class Decision:
    """What was decided about a host, and the reason in a sentence (no full stop; layers count from 1, heads from 0)."""

    certificate: Certificate
    reason: str = ""

    @property
    def universal(self) -> bool:
        """True if the host is universal by the certificate's notion, False if that is refuted."""
        return self.certificate.universal


def certify(name: str, shape: Shape, m: int | None = None, **options: Any) -> Certificate:
    """Decide universality of a named construction; the certificate says which way, and by which notion.

    With a residual stream `tied` is about all tied targets (L >= 2), every other construction about all untied ones.
    options: seed, law and dtype of random hosts; notion, "matching" by default but for the constructions that serve by
    attention-matching; and those of `examined.Settings` (witness, device, primes, max_memory).

    Raises Undecided when no kind of certificate settles the question, NotDefined outside the construction's shapes,
    ResourceLimit before allocating.
    """
    settings = settings_of(options)
    return decide(constructed(name, shape, m, settings=settings, **options)).certificate


def certify_weights(host: HostFile, **options: Any) -> Certificate:
    """The certificate of `decide_weights`."""
    return decide_weights(host, **options).certificate


def decide_weights(host: HostFile, **options: Any) -> Decision:
    """Decide universality by matching of a host given as a file (its name, or open); the certificate is bound to its content.

    options: layers, d_in and residual as for `examined.opened`, and those of `examined.Settings`. Raises as `certify` does,
    and MalformedInput for files that hold no host.
    """
    settings = settings_of(options)
    return decide(opened(host, settings=settings, **options))


def decide(host: Examined) -> Decision:
    """The stages after the first: ask each strategy in turn whether it can decide the host, and have it build the evidence."""
    require_witness(host)
    chosen = next((strategy for strategy in STRATEGIES if strategy.can(host)), None)
    if chosen is None:
        raise Undecided(_no_kind(host))
    found = chosen.build(host)
    if chosen.of_the_record:
        _require_accepted(found.certificate, host)
    host.require_unchanged()
    return found


def _no_kind(host: Examined) -> str:
    """Why no kind of certificate is for this host and notion."""
    entry, asked, m, M = host.construction, host.notion, host.m, host.M
    if not entry.certified:
        return f"no kind of certificate names {entry.name}; the evidence is a written proof with tests ({entry.page})"
    if entry.notion not in (None, Notion.MATCHING, Notion.ATTENTION_MATCHING) and asked is not entry.notion:
        return f"{entry.name} has no certificate by {asked.value}; it serves {entry.targets} targets by {entry.notion.value}"
    if asked is Notion.MATCHING:
        return f"no certificate kind decides {entry.name} by matching at m = {m} >= M = {M}"
    below = m < M and not host.shape.residual
    other = f"refuted (m = {m} < M = {M})" if below else "a different question, whose yes implies this one's"
    return (
        f"no certificate kind decides {entry.name} by {asked.value} at {host.shape}; by matching it is {other}: ask with "
        "--notion matching"
    )


def _require_accepted(stated: Certificate, host: Examined) -> None:
    """Undecided where the checker rejects what a construction's record says of it, which nothing here has computed."""
    with stage(f"checking {host.name}"):
        fault = recheck.fault(stated, f"choose a smaller shape: checking {host.name} at {host.shape}")
    if fault is not None:
        raise Undecided(
            f"the record of {host.name} says how it serves its targets at {host.shape}, and is wrong: {fault}"
        )


class Strategy(Protocol):
    """A way to decide hosts by one kind of certificate. of_the_record: it states what the construction's record says."""

    of_the_record: bool = False

    def can(self, host: Examined) -> bool:
        """Whether this is the kind for the host; asked in the order of STRATEGIES."""
        ...

    def build(self, host: Examined) -> Decision:
        """The decision with its evidence, or Undecided."""
        ...


class ByIdentity(Strategy):
    """Constructions whose embedding is made of the target's own matrices."""

    of_the_record = True

    def can(self, host: Examined) -> bool:
        entry = host.entry
        if entry is None or not entry.certified or entry.identity is None:
            return False
        return entry.notion is host.notion and (host.square or not entry.is_host)

    def build(self, host: Examined) -> Decision:
        return Decision(identity_certificate(host.name, host.shape, host.m, max_memory=host.settings.max_memory))


class ByLinearTest(Strategy):
    """Random hosts by attention-matching."""

    def can(self, host: Examined) -> bool:
        asked = host.notion is Notion.ATTENTION_MATCHING and host.source is not None
        return asked and host.square and host.shape.head_dim >= host.shape.d_in

    def build(self, host: Examined) -> Decision:
        return Decision(linear_test(host))


class OfMatching(Strategy):
    """The rest is about matching, for hosts that the kinds of certificates name."""

    def can(self, host: Examined) -> bool:
        """Constructions that have a notion of their own are decided by it, if they can be asked about matching at all."""
        if host.notion is not Notion.MATCHING or (host.entry and not host.entry.certified):
            return False
        own = host.entry.notion if host.entry else None
        return own in (None, Notion.MATCHING, Notion.ATTENTION_MATCHING) and (
            host.entry is None or own is not Notion.ATTENTION_MATCHING or host.entry.rebuilt
        )


class ByEveryHost(Strategy):
    """Below M no host at all is universal: for constructions whose matrices no checker rebuilds."""

    def can(self, host: Examined) -> bool:
        entry = host.entry
        asked = entry is not None and entry.certified and entry.notion is Notion.ATTENTION_MATCHING
        return asked and host.notion is Notion.MATCHING and not host.construction.rebuilt and host.m < host.M

    def build(self, host: Examined) -> Decision:
        return Decision(dimension_certificate(host.shape, host.m))


class ByStreamingColumns(OfMatching):
    """`sparse` and `tied` with a residual stream."""

    def can(self, host: Examined) -> bool:
        return super().can(host) and host.shape.residual and host.entry is not None and host.entry.permutation

    def build(self, host: Examined) -> Decision:
        made = streaming_certificate(host.construction, host.shape, host.m, host.document, host.settings.max_memory)
        return Decision(made)


class ByEqualColumns(OfMatching):
    """No tied host with a residual stream matches all untied targets for L >= 2, whatever its weights."""

    def can(self, host: Examined) -> bool:
        if not super().can(host):
            return False
        if host.entry is not None:
            return not host.entry.serves_untied(host.shape)
        return host.tied and host.shape.residual and host.shape.layers > 1

    def build(self, host: Examined) -> Decision:
        z = tied_stream_relation(host.shape)
        reason = (
            "the layers share their weights, so with a residual stream the head words (0, ..., 0, h) and (h, 0, ..., 0) "
            "have equal columns (0 is the stream)"
        )
        return Decision(_deficient(host, z, next(iter(z))), reason)


class ByDimension(OfMatching):
    """Below M, the number of columns, the rank cannot be M."""

    def can(self, host: Examined) -> bool:
        return super().can(host) and host.m < host.M

    def build(self, host: Examined) -> Decision:
        proof = certificate("rank-deficient", host.shape, host.m, host.document, {"method": "dimension"}, rank=None)
        return Decision(proof, f"the embedding dimension m = {host.m} is below M = {host.M}")


class ByElimination(OfMatching):
    """The rank of R_all modulo a prime, or an exact kernel vector: random hosts, and weights from a file."""

    def can(self, host: Examined) -> bool:
        return super().can(host) and host.source is not None

    def build(self, host: Examined) -> Decision:
        return _decide_dense(host)


class ByStandardRows(OfMatching):
    """Permutations of many columns: the checker derives the rows, which takes it this memory."""

    of_the_record = True

    def can(self, host: Examined) -> bool:
        return super().can(host) and host.construction.permutation and host.M > ROWS_WRITTEN_OUT

    def build(self, host: Examined) -> Decision:
        needed = 600 * host.shape.heads**host.shape.layers + 5 * host.M
        require_memory(needed, f"checking {host.name} at {host.shape}", host.settings.max_memory)
        evidence = {"rows": STANDARD}
        return Decision(certificate("rank-permutation", host.shape, host.m, host.document, evidence, rank=host.M))


class ByIndexMap(OfMatching):
    """Constructions of zeros and ones: a permutation, or a kernel vector."""

    def build(self, host: Examined) -> Decision:
        return Decision(_certify_index_map(host))


STRATEGIES: tuple[Strategy, ...] = (
    ByIdentity(),
    ByLinearTest(),
    ByEveryHost(),
    ByStreamingColumns(),
    ByEqualColumns(),
    ByDimension(),
    ByElimination(),
    ByStandardRows(),
    ByIndexMap(),
)
"""In the order in which they are asked."""


def _certify_index_map(host: Examined) -> Certificate:
    entry, shape, m, max_memory = host.construction, host.shape, host.m, host.settings.max_memory
    matrix = r_all(build_host(entry.name, shape, m, max_memory=max_memory))
    assert isinstance(matrix, SelectionMatrix)
    rows = matrix.unit_rows()
    if rows is not None and not entry.permutation:
        raise Undecided(
            f"{entry.name} at {shape}, m = {m}: R_all is a permutation, so it is universal by matching here, but the "
            f"certificate kind that says so is specified for {', '.join(_permutations())} only"
        )
    if rows is not None:
        array, sidecars = integer_array(rows)
        return certificate(
            "rank-permutation", shape, m, host.document, {"rows": array}, rank=matrix.shape[1], sidecars=sidecars
        )
    z = _selection_kernel(matrix) or _dense_kernel(matrix, f"R_all of {entry.name} at {shape}, m = {m},", max_memory)
    return _deficient(host, z)


def _permutations() -> list[str]:
    return [known.name for known in CONSTRUCTIONS.values() if known.permutation]


def _dense_kernel(matrix: SelectionMatrix, what: str, max_memory: int | None) -> dict[int, int]:
    """A kernel vector of R_all [m, M] as a matrix of zeros and ones; Undecided where it has none."""
    require_memory(8 * 6 * matrix.shape[0] * matrix.shape[1], what, max_memory)
    dense = matrix.to_dense(np.float64)
    for p in gfp.DEFAULT_PRIMES:
        found = list(islice(lifting.circuits(dense, p, np.ones(matrix.shape[1])), ATTEMPTS))
        if not found:
            raise Undecided(f"{what} has full rank but is no permutation; no certificate kind says so")
        for chosen in found:
            z = lifting.relation(flint_matrix(dense[:, chosen].astype(np.int64)), what, next(lifting.primes_below(p)))
            if z is not None:
                return {c: v for c, v in zip(chosen, z, strict=True) if v}
    raise Undecided(f"{what} is rank-deficient modulo {len(gfp.DEFAULT_PRIMES)} primes, which proves nothing")


def _selection_kernel(matrix: SelectionMatrix) -> dict[int, int] | None:
    """A kernel vector that two equal columns, or one zero column, of a {0,1} matrix give at once."""
    rows, columns = matrix.coordinates()
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(columns, np.arange(matrix.shape[1] + 1))
    seen: dict[bytes, int] = {}
    for column in range(matrix.shape[1]):
        content = rows[starts[column] : starts[column + 1]].tobytes()
        if not content:
            return {column: 1}
        if content in seen:
            return {seen[content]: 1, column: -1}
        seen[content] = column
    return None


def _deficient(host: Examined, z: dict[int, int], column: int | None = None) -> Certificate:
    """The refutation that z gives; the isolating column is the one with the largest entry (the best distance bound). With a
    residual stream it is one for which the routed target is missed (`refuting_column`)."""
    if len(z) > INLINE_LIMIT:
        raise ResourceLimit(f"the kernel vector has {len(z)} entries, a certificate holds at most {INLINE_LIMIT}")
    shape, positions = host.shape, sorted(z)
    values = [z[i] for i in positions]
    if shape.residual:
        column = refuted_column(shape, z) if column is None else column
        distance = missed_distance(shape, column, z)
    else:
        best = max(range(len(values)), key=lambda k: (abs(values[k]), -k))
        column, distance = positions[best], distance_bound(values, best)
    evidence = {
        "method": "kernel-vector",
        "column": _written(column),
        "distance_squared": [_written(distance.numerator), _written(distance.denominator)],
        "z": [[_written(i), _written(v)] for i, v in zip(positions, values, strict=True)],
    }
    return certificate("rank-deficient", shape, host.m, host.document, evidence, rank=None)


def _written(value: int) -> int | str:
    """An integer as the format writes it, however long. ResourceLimit beyond the digits that a certificate holds."""
    if value.bit_length() <= LONG_BITS:
        return integer(value)
    from flint import fmpz

    text = str(fmpz(value))
    if len(text) > MAX_DIGITS:
        raise ResourceLimit(
            f"the kernel vector's distance has {len(text)} digits, an integer of a certificate has at most {MAX_DIGITS}"
        )
    return text


def _decide_dense(host: Examined) -> Decision:
    source, settings = host.source, host.settings
    assert source is not None
    primes, witness, max_memory = settings.primes, settings.witness, settings.max_memory
    asked = primes or gfp.SMALL_PRIMES + (WITNESS_PRIMES if witness else gfp.DEFAULT_PRIMES)
    shape, m, M = host.shape, host.m, matching_dimension(host.shape)
    if source.device != "cpu":
        require_device(source.device)
    needed = stacked_memory(shape, m, M) if source.device == "cpu" else 8 * (3 * m * M + 4 * m * m)
    if witness:  # R_all is eliminated in place, beside the inverse and, where rows are chosen, a copy of them
        needed = max(needed, 8 * ((2 + (m > M)) * m * M + min(2 * m * M, 2**22) + 1000 * M))
    require_memory(needed, f"rank of {source}", max_memory)
    tried, deficient = 0, False
    for p in _primes(asked):
        if deficient and p in gfp.SMALL_PRIMES and not primes:
            continue
        tried += 1
        rank, found = _modular_evidence(source.r_all(p), p, witness)
        deficient = rank < M - 1  # a random matrix loses two from its rank modulo p with probability about p^-4
        if found is not None and primes and p not in primes:
            raise Undecided(f"{source} has full rank over the rationals but not modulo {primes}; pass other primes")
        if found is not None:
            evidence, sidecars = found
            proof = certificate("rank-modular", shape, m, host.document, evidence, rank=M, sidecars=sidecars)
            return Decision(proof, f"R_all has full rank, M = {M}, modulo the prime {p}")
        # a small prime misleads too often to look for integers behind it
        if p > SEARCH_FROM:
            require_memory(8 * (6 * m * M + 4 * m * m), f"kernel of {source}", max_memory)
            relation = find_relation(source, source.r_all(p), p, max_memory=max_memory)
            if relation is not None:
                return Decision(_deficient(host, relation.z), relation.reason)
    raise Undecided(
        f"{source} is rank-deficient modulo {tried} primes, which proves nothing, and no kernel vector was found"
    )


def _primes(asked: tuple[int, ...]) -> Iterator[int]:
    """Those asked for, then a few more of the kind."""
    yield from asked
    top = min((p for p in asked if p > SEARCH_FROM), default=WITNESS_PRIMES[-1])
    yield from islice((q for q in lifting.primes_below(top) if q not in asked), MORE_PRIMES)


def _modular_evidence(matrix: Any, p: int, witness: bool) -> tuple[int, tuple[dict[str, Any], dict[str, bytes]] | None]:
    """The rank of R_all [m, M] modulo p (a lower bound of it where a witness is asked for); evidence and sidecars that it is M,
    or None."""
    m, M = matrix.shape
    if not witness:
        rank = gfp.rank(matrix, p, overwrite=True)
        return rank, ({"method": "recompute", "prime": p}, {}) if rank == M else None
    rows = list(range(M)) if m == M else gfp.rank_profile(matrix, p).rows
    inverse = gfp.inverse(matrix if m == M else matrix[rows], p, overwrite=True) if len(rows) == M else None
    del matrix
    if inverse is None:
        return min(len(rows), M - 1), None
    dtype = "uint8" if p < 2**8 else "uint16" if p < 2**16 else "uint32"
    values = np.empty(M * M, dtype=dtype)
    for row, line in enumerate(to_numpy(inverse)):
        values[row * M : (row + 1) * M] = line + p * (line < 0)
    del inverse
    chosen, first = integer_array(np.array(rows))
    entries, second = integer_array(values, dtype=dtype)
    return M, ({"inverse": entries, "method": "witness", "prime": p, "rows": chosen}, first | second)
