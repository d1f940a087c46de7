"""Section 3.1, untied: the dimension m-bar, the sparse theorem, its proof sketch and its construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utfproof.attention import RationalAttention
from utfproof.certificates.identities import identity_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import too_small_at_depth
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import at_size, decided, exact_emulation, rank_of, symbolic
from utfproof.claims.hosts import most_ones
from utfproof.claims.linear import integer_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension, shared_key_dimension
from utfproof.systems import Universal


def _dimensions(shape: Shape) -> tuple[int, int]:
    """m-bar and M, each by two routes."""
    m = agree({"printed formula": printed.m_bar(shape), "shapes": paper_dimension(shape)})
    M = agree({"words counted": plain.columns(shape), "shapes": matching_dimension(shape)})
    return m.value, M.value


@each("eq:m-bar/heads", "eq:m-bar/single-head")
def m_bar(shape: Shape) -> Iterator[Instance]:
    """The printed formula, the package's, and words counted one at a time."""
    m, M = _dimensions(shape)
    equal = shape.heads > 1 or shape.d_in == 2 * shape.head_dim
    routes = ("printed formula", "words counted")
    yield Instance(shape, m >= M and (m == M) == equal, f"m-bar = {m}, M = {M}", routes=routes)


@each("sec:constructing/minimal-dimension", "thm:sparse_universal_transformer/far-fewer")
def shared_key(shape: Shape) -> Iterator[Instance]:
    """Identity certificates of the shared-key tries below m-bar: universal by attention-matching, hence as defined."""
    m, m_bar = shared_key_dimension(shape), paper_dimension(shape)
    found = identity_certificate("shared-key", shape, m)
    yield Instance(shape, found.universal and m < m_bar, f"m-bar = {m_bar}", found, m=m)


@each("thm:sparse_universal_transformer/least-single-head")
def least_single(shape: Shape) -> Iterator[Instance]:
    """The prefix tree at M, nothing at M - 1, and M against m-bar."""
    m, M = _dimensions(shape)
    found = decided("sparse", shape, M)
    less = (M < m) == (shape.d_in != 2 * shape.head_dim)
    yield replace(found, holds=found.holds and less, detail=f"matched at {M}, m-bar = {m}")
    yield from at_size(shape, m="M", more=-1)
    yield from at_size(shape, m="M", more=-1, part=BESIDE)


@each("thm:sparse_universal_transformer/binary", "thm:sparse_universal_transformer/nonzeros")
def binary(shape: Shape) -> Iterator[Instance | Figure]:
    """Every entry looked at, and the index maps without repetition; the fullest matrix of each host against m."""
    for name in ("sparse", "sparse-front"):
        yield _zero_one(shape, name)


@each("thm:looped_sparse_universal_transformer/binary")
def looped_binary(shape: Shape) -> Iterator[Instance | Figure]:
    """The same of the tied host and of the host that serves almost all targets."""
    for name in ("tied", "shared-key" if shape.head_dim >= shape.d_in else "shared-query-groups"):
        yield _zero_one(shape, name)


def _zero_one(shape: Shape, name: str) -> Instance:
    host = build_host(name, shape)
    most = most_ones(host)
    holds = most.value is not None and most.value <= host.m
    return most.at(shape, f"{name}: at most {most} of {host.m}", holds=holds, m=host.m)


@check("sec:constructing/unrolled")
def unrolled(run: Run) -> Iterator[Instance | Figure]:
    """Identities of words for a target and a host, tied or not."""
    from utfproof.exact.symbolic.free_algebra import unrolling, unrolling_step

    sizes = sorted({(shape.heads, shape.layers) for shape in run.shapes()})
    for system in ("target", "host"):
        for H, L in sizes:
            yield symbolic(f"H = {H}, L = {L}, {system}", unrolling(H, L, system=system, tied=L == 3))
        yield symbolic(f"H = 2, layer l from layer l-1, {system}", unrolling_step(2, system=system))


@check("sec:constructing/two-conditions")
def two_conditions(run: Run) -> Iterator[Instance | Figure]:
    """The emulation lemma as identities of words; each dropped equation must spoil it."""
    from utfproof.exact.symbolic.free_algebra import equal_attention_step, equal_output

    for H, L in ((1, 1), (1, 3), (2, 1), (2, 2)):
        yield symbolic(f"H = {H}, L = {L}", equal_output(H, L))
        for dropped in (("OV", (H - 1,) * L), ("Q", (H - 1,) * L), ("K", (0,))):
            where = f"H = {H}, L = {L}, without {dropped[0]} of the word {dropped[1]}"
            yield symbolic(where, equal_output(H, L, dropped=dropped), fails=True)
    yield symbolic("H = 3, equal paths given", equal_attention_step(3))


MASKS: dict[str, tuple[bool, int | None]] = {
    "causal": (True, None),
    "window of 2": (False, 2),
    "causal, window of 2": (True, 2),
}
"""Name -> (causal, window): a window of w lets a token see those less than w away."""


def masked(causal: bool, window: int | None) -> plain.Attention:
    """Rows proportional to 1 + s + s², s = q·k, over the visible keys, in Fractions."""

    def seen(i: int, j: int) -> bool:
        return not (causal and j > i) and (window is None or abs(i - j) < window)

    def attention(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        rows = plain.rational_attention(queries, keys, layer, head)
        kept = [[value * seen(i, j) for j, value in enumerate(row)] for i, row in enumerate(rows)]
        return [[value / sum(row) for value in row] for row in kept]

    return attention


@each("sec:constructing/masking")
def masking(shape: Shape) -> Iterator[Instance]:
    """Exact outputs under masks: plain Fractions, and the package's forward pass with its own masks."""
    for name in ("sparse", "tied"):
        host = build_host(name, shape)
        for kind, mask in MASKS.items():
            kernel = RationalAttention(*mask)
            found = exact_emulation(host, integer_target(shape), (1, 2, 4), masked(*mask), kernel)
            yield found.at(shape, f"{name}, {kind}", m=host.m)


@check("sec:constructing/theta-dimension/single-head")
def theta_single(run: Run) -> Iterator[Instance | Figure]:
    """Each constant at the depth of the same number; the prefix tree at 3 L max{d, d_in}."""
    for constant in range(1, 9):
        yield too_small_at_depth(constant, 1)
    for shape in run.shapes():
        yield from at_size(shape, "sparse", "3 L max{d, d_in}", part=BESIDE)


@each("sec:constructing/non-degeneracy")
def non_degeneracy(shape: Shape) -> Iterator[Instance]:
    """Ranks of R_all as drawn, and with the query maps of two heads equal, by FLINT and plain integers."""
    M = matching_dimension(shape)
    host = integer_host(shape, M)
    alike = Universal(shape, M, [[row[0]] * shape.heads for row in host.R_Q], host.R_K, host.R_V, host.U)
    full, less = rank_of(host), rank_of(alike)
    yield full.at(shape, f"ranks {full}, {less} of {M}", holds=full.value == M and less.value < M, m=M)


@each("sec:constructing/matrix-count")
def matrix_count(shape: Shape) -> Iterator[Instance]:
    """Distinct matrices that the layers use, and matrices that the containers hold."""
    counts = []
    for name in ("tied", "sparse"):
        host = build_host(name, shape)
        maps = [host.maps(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]
        used = {id(part) for each_head in maps for part in (each_head.query, each_head.key, *each_head.value)}
        held = [len(grid) if host.tied else sum(map(len, grid)) for grid in (host.R_Q, host.R_K, host.R_V)]
        counts.append(agree({"matrices used": len(used) + 1, "matrices held": sum(held) + 1}))
    looped, untied = counts
    holds = looped.value == printed.matrices(shape, looped=True) and untied.value == printed.matrices(shape)
    yield looped.at(shape, f"{looped} and {untied}", holds=holds)
