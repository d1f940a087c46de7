"""Producing certificates: is this construction universal at this shape? By matching, unless the notion asked for differs.

{0,1} hosts are settled on index maps in time linear in m; random hosts by the rank of R_all modulo a prime, in
integers drawn straight from the generator; whatever is deficient by m < M or by an exact kernel vector of R_all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from utfproof.certificates import recheck
from utfproof.certificates.format import (
    INLINE_LIMIT,
    ROWS_WRITTEN_OUT,
    STANDARD,
    Certificate,
    certificate,
    integer,
    integer_array,
    shape_of,
)
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.linear_test import linear_test_certificate
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.certificates.residual import (
    missed_distance,
    refuted_column,
    streaming_certificate,
    tied_stream_relation,
)
from utfproof.certificates.sources import DenseSource, RandomDraw, StoredWeights, flint_matrix, host_document
from utfproof.certificates.structure import ATTEMPTS, find_relation
from utfproof.constructions import CONSTRUCTIONS, Construction, build_host, construction, resolve_m
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.exact import gfp, lifting
from utfproof.ground.arrays import require_device, to_numpy
from utfproof.ground.notions import Notion
from utfproof.ground.progress import stage
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import distance_bound, r_all
from utfproof.matching.modular import stacked_memory
from utfproof.shapes import Shape, matching_dimension
from utfproof.weights import HostFile, stored_host

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
class WeightsDecision:
    """What was decided about a host, and the reason in a sentence (no full stop; layers count from 1, heads from 0)."""

    certificate: Certificate
    reason: str

    @property
    def universal(self) -> bool:
        """True if the host is universal by matching, False if that is refuted."""
        return self.certificate.universal


def certify(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    notion: Notion | str | None = None,
    witness: bool = False,
    device: str = "cpu",
    primes: tuple[int, ...] | None = None,
    max_memory: int | None = None,
) -> Certificate:
    """Decide universality of a named construction; the certificate says which way, and by which notion.

    With a residual stream `tied` is about all tied targets (L >= 2), every other construction about all untied ones.
    notion: "matching", the default but for the constructions that serve by attention-matching; or "attention-matching", by
    an identity (shared-key, shared-query, ...) or the linear test (random hosts, d >= d_in), which can only say yes.
    witness: give random hosts' certificates the inverse of a minor, so
    that checking costs matrix-vector products only. device: where random weights are drawn and eliminated ("cpu", or a
    torch device). primes: tried in turn; the default has short entries for witnesses.

    Raises Undecided when no kind of certificate settles the question, NotDefined outside the construction's shapes,
    ResourceLimit before allocating.
    """
    entry = construction(name)
    m = resolve_m(entry, shape, m)
    asked = Notion(notion) if notion is not None else entry.notion or Notion.MATCHING
    if witness and not entry.is_random:
        raise MalformedInput(f"--witness belongs to random constructions; {name} has a certificate of linear size")
    if witness and asked is not Notion.MATCHING:
        raise MalformedInput(f"--witness belongs to certificates by matching, got {asked.value}")
    if not entry.certified:
        raise Undecided(
            f"no kind of certificate names {name}; the evidence is a written proof with tests ({entry.page})"
        )
    if entry.notion not in (None, Notion.MATCHING, Notion.ATTENTION_MATCHING) and asked is not entry.notion:
        raise Undecided(
            f"{name} has no certificate by {asked.value}; it serves {entry.targets} targets by {entry.notion.value}"
        )
    M = matching_dimension(shape)
    square = shape.d_in == shape.d_out  # what the kinds about attention-matching are specified for
    if entry.identity is not None and entry.notion is asked and (square or not entry.is_host):
        return _accepted(identity_certificate(name, shape, m, max_memory=max_memory))
    if asked is Notion.ATTENTION_MATCHING and entry.is_random and square and shape.head_dim >= shape.d_in:
        return linear_test_certificate(
            name, shape, m, seed=seed, law=law, dtype=dtype, device=device, primes=primes, max_memory=max_memory
        )
    if asked is not Notion.MATCHING:
        raise Undecided(
            f"no certificate kind decides {name} by {asked.value} at {shape}; by matching it is "
            + (
                f"refuted (m = {m} < M = {M})"
                if m < M and not shape.residual
                else "a different question, whose yes implies this one's"
            )
            + ": ask with --notion matching"
        )
    if entry.notion is Notion.ATTENTION_MATCHING and not entry.rebuilt:
        if m >= M:
            raise Undecided(f"no certificate kind decides {name} by matching at m = {m} >= M = {M}")
        return dimension_certificate(shape, m)
    host = host_document(entry, seed=seed, law=law, dtype=dtype)
    if entry.permutation and shape.residual:
        return streaming_certificate(entry, shape, m, host, max_memory)
    if not entry.serves_untied(shape):
        return _tied_stream(shape, m, host).certificate
    if m < M:
        return certificate("rank-deficient", shape, m, host, {"method": "dimension"}, rank=None)
    if entry.is_random:
        draw = RandomDraw(shape, m, seed, law, dtype, entry.tied, device)
        return _decide_dense(draw, host, primes, witness, max_memory).certificate
    if entry.permutation and M > ROWS_WRITTEN_OUT:  # the checker derives the rows, which takes it this memory
        require_memory(600 * shape.heads**shape.layers + 5 * M, f"checking {name} at {shape}", max_memory)
        return _accepted(certificate("rank-permutation", shape, m, host, {"rows": STANDARD}, rank=M))
    return _certify_index_map(entry, shape, m, host, max_memory)


def _accepted(stated: Certificate) -> Certificate:
    """What a construction's record says of it and nothing here has computed, once the independent checker has found it so.

    Undecided where it has not: a record may be wrong.
    """
    name, shape = stated.document["claim"]["host"]["construction"], shape_of(stated.document)
    with stage(f"checking {name}"):
        fault = recheck.fault(stated, f"choose a smaller shape: checking {name} at {shape}")
    if fault is not None:
        raise Undecided(f"the record of {name} says how it serves its targets at {shape}, and is wrong: {fault}")
    return stated


def certify_weights(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    primes: tuple[int, ...] | None = None,
    max_memory: int | None = None,
) -> Certificate:
    """The certificate of `decide_weights`."""
    return decide_weights(
        host,
        layers=layers,
        d_in=d_in,
        residual=residual,
        witness=witness,
        device=device,
        primes=primes,
        max_memory=max_memory,
    ).certificate


def decide_weights(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    primes: tuple[int, ...] | None = None,
    max_memory: int | None = None,
) -> WeightsDecision:
    """Decide universality by matching of a host given as a file (its name, or open); the certificate is bound to its content.

    layers: for tied weights whose metadata does not say it. d_in: does not enter R_all; the metadata's or d_out unless
    given. residual: whether there is a residual stream, where the metadata does not say it. Raises as `certify` does, and
    MalformedInput for files that hold no host.
    """
    stored = stored_host(host, layers=layers, d_in=d_in, residual=residual, max_memory=max_memory)
    shape, m, document = stored.shape, stored.m, stored.document
    if stored.tied and shape.residual and shape.layers > 1:
        found = _tied_stream(shape, m, document)
    elif m < stored.M:
        proof = certificate("rank-deficient", shape, m, document, {"method": "dimension"}, rank=None)
        found = WeightsDecision(proof, f"the embedding dimension m = {m} is below M = {stored.M}")
    else:
        source = StoredWeights(stored.file, shape, m, stored.tied, device)
        found = _decide_dense(source, document, primes, witness, max_memory)
    stored.file.require_unchanged()
    return found


def _tied_stream(shape: Shape, m: int, host: dict[str, Any]) -> WeightsDecision:
    """No tied host with a residual stream matches all untied targets for L >= 2, whatever its weights."""
    z = tied_stream_relation(shape)
    reason = (
        "the layers share their weights, so with a residual stream the head words (0, ..., 0, h) and (h, 0, ..., 0) have "
        "equal columns (0 is the stream)"
    )
    return WeightsDecision(_deficient(shape, m, host, z, next(iter(z))), reason)


def _certify_index_map(
    entry: Construction, shape: Shape, m: int, host: dict[str, Any], max_memory: int | None
) -> Certificate:
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
        return certificate("rank-permutation", shape, m, host, {"rows": array}, rank=matrix.shape[1], sidecars=sidecars)
    z = _selection_kernel(matrix) or _dense_kernel(matrix, f"R_all of {entry.name} at {shape}, m = {m},", max_memory)
    return _deficient(shape, m, host, z)


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


def _deficient(shape: Shape, m: int, host: dict[str, Any], z: dict[int, int], column: int | None = None) -> Certificate:
    """The refutation that z gives; the isolating column is the one with the largest entry (the best distance bound). With a
    residual stream it is one for which the routed target is missed (`refuting_column`)."""
    if len(z) > INLINE_LIMIT:
        raise ResourceLimit(f"the kernel vector has {len(z)} entries, a certificate holds at most {INLINE_LIMIT}")
    positions = sorted(z)
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
    return certificate("rank-deficient", shape, m, host, evidence, rank=None)


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


def _decide_dense(
    source: DenseSource, host: dict[str, Any], primes: tuple[int, ...] | None, witness: bool, max_memory: int | None
) -> WeightsDecision:
    asked = primes or gfp.SMALL_PRIMES + (WITNESS_PRIMES if witness else gfp.DEFAULT_PRIMES)
    shape, m, M = source.shape, source.m, matching_dimension(source.shape)
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
            proof = certificate("rank-modular", shape, m, host, evidence, rank=M, sidecars=sidecars)
            return WeightsDecision(proof, f"R_all has full rank, M = {M}, modulo the prime {p}")
        # a small prime misleads too often to look for integers behind it
        if p > SEARCH_FROM:
            require_memory(8 * (6 * m * M + 4 * m * m), f"kernel of {source}", max_memory)
            relation = find_relation(source, source.r_all(p), p, max_memory=max_memory)
            if relation is not None:
                return WeightsDecision(_deficient(shape, m, host, relation.z), relation.reason)
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
