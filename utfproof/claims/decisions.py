"""Computations that many claims share: instances decided by certificate, or by two routes that must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from utfproof.attention import RationalAttention
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.prover import certify
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Check, Figure, Instance, Run, agree
from utfproof.claims.named import CONDITIONS, DIMENSIONS
from utfproof.exact import gfp, rational
from utfproof.matching import embed, r_all, w_all
from utfproof.shapes import Shape, matching_dimension, tied_targets_dimension
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.util.generator import integer_matrix
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

# --- by certificate ------------------------------------------------------------------------------------------------


def certified(rows: Sequence[Mapping[str, Any]]) -> Check:
    """The check of a record's `certify`: its rows, one after the other, at each of the claim's shapes (see `at_size`)."""

    def check(run: Run) -> Iterator[Instance | Figure]:
        for shape in run.shapes():
            for row in rows:
                yield from at_size(shape, **row)

    return check


def at_size(
    shape: Shape,
    host: str | None = None,
    m: str | None = None,
    *,
    more: int = 0,
    where: str | None = None,
    largest: int | None = None,
    most: str | None = None,
    part: str = "",
) -> Iterator[Instance]:
    """This construction is universal by matching at m, or without `host`: no host of m dimensions is.

    m: a name of `DIMENSIONS`, to which `more` is added; the construction's own dimension by default. Below M a certified
    lower bound decides. where: a name of `CONDITIONS`. largest: constructions are built up to this M. most: a name of
    `DIMENSIONS`, an upper limit on m that the statement makes.
    """
    if where is not None and not CONDITIONS[where](shape):
        return
    size, M = None if m is None else DIMENSIONS[m](shape) + more, plain.columns(shape)
    if size is not None and size < M:
        bound = dimension_certificate(shape, size)
        yield Instance(shape, host is None, f"m = {size} < M = {M}", bound, part=part, m=size)
    elif host is None:
        yield Instance(shape, None, f"m = {size} >= M = {M}", part=part, m=size)
    elif largest is None or M <= largest:
        found = decided(host, shape, size, part=part)
        fits = most is None or (found.m or 0) <= DIMENSIONS[most](shape)
        yield replace(found, holds=found.holds and fits)


def decided(name: str, shape: Shape, m: int | None = None, *, part: str = "", **options: Any) -> Instance:
    """Is this construction universal by matching at this shape? With the prover's certificate, whichever way."""
    found = _certified(name, shape, m, **options)
    size = int(found.document["shape"]["m"])
    return Instance(shape, of_full_rank(found), told(found), found, part=part, m=size)


@cache
def _certified(name: str, shape: Shape, m: int | None, **options: Any) -> Certificate:
    """Made once in a process: many claims ask for the same."""
    return certify(name, shape, m, notion=Notion.MATCHING, **options)


def of_full_rank(found: Certificate) -> bool:
    """Whether the certificate says universal, with the rank that the formula gives for its targets."""
    claim, shape = found.document["claim"], shape_of(found.document)
    dimension = tied_targets_dimension if claim["targets"] == "all tied" else matching_dimension
    return found.universal and claim["rank"] == dimension(shape)


def told(found: Certificate) -> str:
    """A rank certificate in a few words."""
    shape = found.document["shape"]
    M = matching_dimension(shape_of(found.document))
    if shape.get("residual") and "method" not in found.document["evidence"]:
        rank = found.document["claim"]["rank"]
        return f"the {rank} columns of R_all for words without the stream are different unit vectors; M = {M}"
    if found.universal:
        return f"rank R_all = M = {M}"
    if found.document["evidence"]["method"] == "dimension":
        return f"m = {shape['m']} < M = {M}"
    return f"an integer vector z != 0 with R_all z = 0; M = {M}"


# --- by two routes -------------------------------------------------------------------------------------------------


def figures(name: str, value: Callable[[Shape], Any], entries: Iterable[tuple[int, ...]]) -> Iterator[Figure]:
    """A figure for each shape (H, L, d, d_in), or (H, L) for widths of 1, called "name at (H,L,d,d_in)"."""
    for entry in entries:
        shape = Shape(*entry, *[1] * (4 - len(entry)))
        yield Figure(f"{name} at ({','.join(map(str, entry))})", value(shape))


def symbolic(at: str, found: Any, *, fails: bool = False, part: str = "") -> Instance:
    """A symbolic identity as an instance; fails: one that has to fail."""
    return Instance(at, found.holds is not fails, found.difference, routes=found.routes, part=part)


def dense(matrix: Any) -> np.ndarray:
    """A matrix with exact Python numbers."""
    return matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix)


def rank_of(host: Universal) -> Agreed:
    """rank R_all: FLINT on the package's R_all, and plain integers on one formed word by word."""
    return agree({"FLINT": rational.rank(dense(r_all(host))), "plain integers": plain.rank(plain.equations(host))})


def rank_of_matrix(matrix: Any) -> Agreed:
    """The rank of an integer or rational matrix by FLINT and by plain integers."""
    listed = plain.rows(matrix)
    return agree({"FLINT": rational.rank(np.array(listed, dtype=object)), "plain integers": plain.rank(listed)})


def rank_modulo(matrix: np.ndarray, prime: int = gfp.DEFAULT_PRIMES[0]) -> int:
    """Rank modulo a prime by the package's own engine: a lower bound for the rank over the rationals."""
    return int(gfp.rank(gfp.residues(matrix, prime), prime))


def small_input(shape: Shape, context: int, seed: int = 0) -> plain.Rows:
    """X [n, d_in] with integer entries in -2 ... 2."""
    numbers = integer_matrix(seed, "X", context, shape.d_in, law="binomial", head=context)
    return [[int(v) % 5 - 2 for v in row] for row in numbers]


class ExactKernel:
    """An attention of `plain` for the package's own forward passes; `seen` keeps the queries and keys that it was shown."""

    logits_only = row_stochastic = True

    def __init__(self, attention: plain.Attention) -> None:
        self._attention = attention
        self.seen: list[plain.Rows] = []

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> np.ndarray:
        shown = plain.rows(queries), plain.rows(keys)
        self.seen += shown
        return np.array(self._attention(*shown, layer + 1, head), dtype=object)


def outputs(
    system: Universal | Target,
    x: plain.Rows,
    E: Any = None,
    attention: plain.Attention = plain.rational_attention,
    kernel: Any = None,
) -> Agreed:
    """T(X), or UTF(X, E) for a host with E: plain Fractions with this attention, and the package's forward pass with this
    kernel (the same attention by default)."""
    forward: Any = system.forward
    before = [] if E is None else [np.array(plain.rows(E), dtype=object)]
    own = forward(np.array(x, dtype=object), *before, kernel or ExactKernel(attention))
    slow = plain.forward(system, x, E, attention)
    return agree({"plain Fractions": slow, "systems": plain.rows(own)})


def same_outputs(
    host: Universal,
    E: Any,
    target: Target,
    contexts: Sequence[int] = (1, 2, 3),
    attention: plain.Attention = plain.rational_attention,
    kernel: Any = None,
) -> Agreed:
    """Whether host with this E and target give the same rational outputs, by both routes of `outputs`."""
    inputs = [small_input(host.shape, context) for context in contexts]
    ours = [outputs(host, x, E, attention, kernel) for x in inputs]
    theirs = [outputs(target, x, None, attention, kernel) for x in inputs]
    return Agreed(ours == theirs, ours[0].routes)


def exact_emulation(
    host: Universal,
    target: Target,
    contexts: Sequence[int] = (1, 2, 3),
    attention: plain.Attention = plain.rational_attention,
    kernel: Any = None,
) -> Agreed:
    """The same with E from `embed`."""
    return same_outputs(host, embed(host, target).E, target, contexts, attention, kernel)


def matched(host: Universal, target: Target, E: Any = None) -> Agreed:
    """Whether E R_all = W_all exactly, E from `embed` by default: the package's matrices, and plain ones."""
    E = dense(embed(host, target).E if E is None else E)
    own = bool((E @ dense(r_all(host)) == dense(w_all(target))).all())
    slow = plain.multiply(plain.rows(E), plain.equations(host)) == plain.equations(target)
    return agree({"plain Fractions": slow, "matching": own})


def carries(host: Universal, E: Any, target: Target | BiasedTarget, x: plain.Rows) -> Agreed:
    """Whether E R_all = W_all, and host and target give the same outputs for X: the package's, and the definitions. A target
    with biases is matched with them absorbed, and run with them."""
    held = target.augmented() if isinstance(target, BiasedTarget) else target
    truth = plain.forward(target, x)
    own = plain.rows(host.forward(np.array(x, dtype=object), E, RationalAttention())) == truth
    same = agree({"package": own, "plain Fractions": plain.forward(host, x, E) == truth})
    found = matched(host, held, E)
    return Agreed(found.value and same.value, found.routes)
