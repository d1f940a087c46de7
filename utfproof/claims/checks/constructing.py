"""Section 3.1, untied: the dimension m-bar, the sparse theorem, its proof sketch and its construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utfproof.attention import RationalAttention
from utfproof.certificates.identities import identity_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import too_small_at_depth
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import at_size, decided, exact_emulation
from utfproof.claims.hosts import most_ones
from utfproof.claims.small_models import LOGIT_MAPS
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension, shared_key_dimension


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


@each("thm:sparse_universal_transformer/far-fewer")
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


MASKS = {"causal": RationalAttention(causal=True), "window": RationalAttention(window=2)}


@each("sec:constructing/masking")
def masking(shape: Shape) -> Iterator[Instance]:
    """Exact outputs under masks: plain Fractions, and the package's forward pass with its own masks."""
    for name in ("sparse", "tied"):
        host = build_host(name, shape)
        for kind, kernel in MASKS.items():
            found = exact_emulation(host, integer_target(shape), (1, 2, 4), LOGIT_MAPS[kind], kernel)
            yield found.at(shape, f"{name}, {kind}", m=host.m)


@check("sec:constructing/theta-dimension/single-head")
def theta_single(run: Run) -> Iterator[Instance | Figure]:
    """Each constant at the depth of the same number; the prefix tree at 3 L max{d, d_in}."""
    for constant in range(1, 9):
        yield too_small_at_depth(constant, 1)
    for shape in run.shapes():
        yield from at_size(shape, "sparse", "3 L max{d, d_in}", part=BESIDE)
