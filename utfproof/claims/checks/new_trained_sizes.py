"""How small hosts of trained models can be: shared keys count once, and one model needs the ranks of its Hankel matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from utfproof.attention import RationalAttention
from utfproof.certificates.format import Certificate
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.definition import (
    both,
    carries,
    drawn,
    ends,
    equations,
    maps,
    matches,
    one_hots,
    run,
    states,
    value,
)
from utfproof.claims.small_models import array
from utfproof.matching import isolating_target
from utfproof.models.grouped import embed_grouped, grouped_matching_dimension, grouped_tree_host
from utfproof.models.realization.certificate import certificate
from utfproof.models.realization.hankel import forms, least_dimension, without_dead_heads
from utfproof.models.realization.host import least_host
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import AugmentedTarget, Target

# --- shared keys ---------------------------------------------------------------------------------------------------

GROUPED = [
    ((2, 1, 1, 1), 1),
    ((2, 1, 2, 2), 1),
    ((2, 2, 1, 1), 1),
    ((4, 1, 1, 1), 2),
    ((3, 1, 1, 2), 1),
    ((2, 1, 1, 2), 2),
]
"""Shapes, and heads G of keys and values."""


def _grouped_target(shape: Shape, G: int, seed: int) -> Target:
    """An integer target whose consecutive H/G heads share W_K and W_V."""
    H, L, d, D = shape.heads, shape.layers, shape.head_dim, shape.d_in
    keys, values = (np.repeat(drawn(seed, code, L, G, D, d), H // G, axis=1) for code in (21, 22))
    return Target(shape, drawn(seed, 20, L, H, D, d), keys, values, drawn(seed, 23, L, H, d, D))


def _shared(target: Target, G: int) -> Target:
    """The target with keys and values of a group added up: one that routes through a head a layer gets the same W_all, but for
    the keys of its group."""
    H, L, d, D = target.shape.heads, target.shape.layers, target.shape.head_dim, target.shape.d_in
    keys, values = (
        np.repeat(W.reshape(L, G, H // G, D, d).sum(axis=2), H // G, axis=1) for W in (target.W_K, target.W_V)
    )
    return replace(target, W_K=keys, W_V=values)


@check("new:trained/shared-keys")
def shared_keys(_: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs of grouped integer targets; m is the number of different columns of R_all."""
    for entry, G in GROUPED:
        for shape in both(entry):
            m, target = grouped_matching_dimension(shape, G), _grouped_target(shape, G, 3)
            host, x = grouped_tree_host(shape, G, m), one_hots([0, shape.d_in - 1], shape.d_in)
            found, rows = carries(host, embed_grouped(target, G, m), target, x), equations(host)
            different = {tuple(column) for column in plain.transpose(rows)}
            holds = found.value and len(different) == m == rank_of_matrix(rows).value
            yield Instance(shape, holds, f"G = {G}", routes=found.routes, m=m)
    for name, shape in zip(("M_G, M at (2,2,1,1), G = 1", "with a residual stream"), both((2, 2, 1, 1)), strict=True):
        yield Figure(name, f"{grouped_matching_dimension(shape, 1)}, {matching_dimension(shape)}")


@check("new:trained/shared-keys-least")
def shared_keys_least(_: Run) -> Iterator[Instance | Figure]:
    """The rank of the rows W_all over grouped 0/1 targets, by FLINT and plain integers."""
    names = {"(2,2,1,1)": "rank at (2,2,1,1), G = 1", "(2,2,1,1) residual": "with a residual stream"}
    for entry, G in GROUPED:
        for shape in both(entry):
            m = grouped_matching_dimension(shape, G)
            routed = [_shared(isolating_target(shape, column), G) for column in range(matching_dimension(shape))]
            rows, more = (
                {tuple(row): None for target in targets for row in equations(target) if any(row)}
                for targets in (routed, [*routed, *(_grouped_target(shape, G, seed) for seed in range(2))])
            )
            found = rank_of_matrix(rows)
            holds = found.value == rank_of_matrix(more).value == m
            yield Instance(shape, holds, f"rank {found.value}, G = {G}", routes=found.routes, m=m)
            if label(shape) in names:
                yield Figure(names[label(shape)], found.value)


# --- the smallest host of one model --------------------------------------------------------------------------------


def _hankel_ranks(target: Target) -> tuple[list[int], list[int]]:
    """(rank H_l for l = 0 ... L, rank for l = 1 ... L of the rows known before layer l read from layer l on), from the full
    matrices: a row for every input and word, a column for every reader."""
    shape, reached = target.shape, states(target)
    read = [[ends(target)[1]]]
    for layer in reversed(range(shape.layers)):
        following = [maps(target, layer, head)[kind] for head in range(shape.heads) for kind in (0, 1)]
        for reader in read[0]:
            following += [reader] if shape.residual else []
            following += [plain.multiply(value(target, layer, head), reader) for head in range(shape.heads)]
        read.insert(0, following)

    def rank(rows: int, columns: int) -> int:
        return plain.rank(plain.multiply(list(chain.from_iterable(reached[rows])), plain.beside(read[columns])))

    L = shape.layers
    return [rank(at, at) for at in range(L + 1)], [rank(at - 1, at) for at in range(1, L + 1)]


def _sizes(target: Target) -> Agreed:
    """The least m by bases and by the full Hankel matrices."""
    ranks, overlaps = _hankel_ranks(target)
    by_ranks = ranks[0] + sum(ranks[1:]) - sum(overlaps) if target.shape.residual else max(ranks)
    return agree({"ranks of bases": least_dimension(target).m, "full Hankel matrices": max(1, by_ranks)})


def _least(target: Target) -> tuple[Agreed, bool, Certificate]:
    """(The least m, also as a certificate says it; whether a host of that size matches; the certificate)."""
    host, E, least = least_host(target)
    proof, found = certificate(least, host, E), _sizes(target)
    agree({"ranks": found.value, "certificate": int(proof.document["shape"]["m"])})
    return found, host.m == found.value and matches(host, E, target).value, proof


def _target(shape: Shape, width: int, seed: int, *, inner: int | None = None) -> Target:
    """An integer target of this width; inner: the rank of its value forms, d where none is given."""
    lead, d, k = (shape.layers, shape.heads), shape.head_dim, inner or shape.head_dim
    heads = ((*lead, width, d), (*lead, width, d), (*lead, width, k), (*lead, k, width))
    sizes = (*heads, (shape.d_in, width), (width, shape.d_out))
    kind: Callable[..., Target] = Target if inner is None else AugmentedTarget
    return kind(shape, *(drawn(seed, 31 + code, *size) for code, size in enumerate(sizes)))


def _thinned(target: Target) -> Target:
    """The same with many zeros: dead ends, and states that come late."""
    tensors = {name: getattr(target, name) for name in ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")}
    thin = {name: W * (drawn(9, 40 + code, *W.shape) > 0) for code, (name, W) in enumerate(tensors.items())}
    return replace(target, **thin)


SMALL = [((1, 1, 1, 1, 1), 2), ((2, 1, 1, 6, 1), 7), ((1, 2, 1, 4, 1), 5), ((2, 2, 1, 4, 4), 8), ((1, 3, 1, 3, 2), 4)]
"""Shapes with d_out, and widths of the targets."""


@check("new:trained/least")
def least(_: Run) -> Iterator[Instance | Figure]:
    """Least m by three routes, and the equations of a host of that size by two."""
    yield from _least_of_all(False, "least m, width, M at (2,2,1,4)")


def _least_of_all(residual: bool, figure: str) -> Iterator[Instance | Figure]:
    for entry, width in SMALL:
        shape = Shape(*entry, residual=residual)
        dense = _target(shape, width, 3)
        for detail, target in ((f"width {width}", dense), (f"width {width}, many zeros", _thinned(dense))):
            found, matched, proof = _least(target)
            holds = matched and found.value <= min(width, matching_dimension(shape))
            yield Instance(shape, holds, f"{detail}: {found.value}", proof, routes=found.routes, m=found.value)
            if target is dense and width == 8:
                yield Figure(figure, f"{found.value}, 8, {matching_dimension(shape)}")


@check("new:trained/least-residual")
def least_residual(_: Run) -> Iterator[Instance | Figure]:
    """The same, with the target whose ranks are all 1."""
    yield from _least_of_all(True, "least m, width, M_res at (2,2,1,4)")
    zero = array([[[[0], [0]]]])
    shape = Shape(1, 1, 1, 1, residual=True)
    target = Target(shape, zero, zero, array([[[[1], [0]]]]), array([[[[0, 1]]]]), array([[1, 0]]), array([[0], [1]]))
    found, matched, proof = _least(target)
    largest = max(_hankel_ranks(target)[0])
    holds = matched and found.value > largest
    yield Instance(shape, holds, f"ranks {largest}", proof, routes=found.routes, m=found.value)
    yield Figure("least m and largest rank at (1,1,1,1)", f"{found.value}, {largest}")


def _without(target: Target, *names: str) -> Target:
    """Zeros for these weights of the last layer's last head."""
    changed = {name: getattr(target, name).copy() for name in names}
    for tensor in changed.values():
        tensor[-1, -1] = 0
    return replace(target, **changed)


@check("new:trained/dead-head")
def dead_head(_: Run) -> Iterator[Instance | Figure]:
    """Least m of both targets, the package's own pruning, and the outputs of the smaller host."""
    for H, L, d in ((2, 1, 1), (2, 1, 2), (2, 2, 1)):
        for columns in both((H, L, d, 1)):
            # nothing is saved: value forms of full rank, as many inputs as columns and one more
            M = matching_dimension(columns)
            shape = Shape(H, L, d, M + 1, 1, residual=columns.residual)
            target = _target(shape, M + 2, 5, inner=M + 2)
            mute, pruned = _without(target, "W_V"), _without(target, "W_V", "W_Q", "W_K")
            with_readers, without = _sizes(mute), _sizes(pruned)
            own, heads = without_dead_heads(forms(mute))
            host, E, _least = least_host(own)
            x, rows = one_hots([0, 1, 0], shape.d_in), plain.rows(E)
            outputs = agree(
                {
                    "package": plain.rows(host.forward(array(x), E, RationalAttention())),
                    "plain Fractions": run(host, x, rows),
                }
            )
            saved = 2 * d * (H + shape.residual) ** (L - 1)
            holds = with_readers.value == without.value + saved and least_dimension(own).m == without.value == host.m
            holds &= heads == [(L - 1, H - 1)] and outputs.value == run(mute, x)
            holds &= plain.multiply(rows, equations(host)) != equations(mute)
            where = f"({H},{L},{d})" + (" residual" if shape.residual else "")
            detail = f"{with_readers.value}, {without.value}"
            yield Instance(where, holds, detail, routes=(*with_readers.routes, *outputs.routes))
            if where == "(2,1,1)":
                yield Figure("(2,1,1): least m with W_V = 0, and with W_Q, W_K = 0 too", detail)
