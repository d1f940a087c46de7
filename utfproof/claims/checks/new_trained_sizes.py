"""How small hosts of trained models can be: shared keys count once, and one model needs the ranks of its Hankel matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from utfproof.attention import RationalAttention
from utfproof.certificates.format import Certificate
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import dense, rank_of_matrix
from utfproof.claims.small_models import array
from utfproof.claims.streams import (
    carries,
    drawn,
    equations,
    forward,
    hankel_ranks,
    least_by_ranks,
    one_hots,
    routed_targets,
)
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import AugmentedTarget, Target, Universal


def _both(entry: tuple[int, ...]) -> Iterator[Shape]:
    """The shape without and with a residual stream."""
    for residual in (False, True):
        yield Shape(*entry, residual=residual)


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


def _kept(shape: Shape, G: int) -> list[int]:
    """Columns of W_all with the keys of the first head of each group only, counted in canonical order."""
    H, L, stream = shape.heads, shape.layers, int(shape.residual)
    at = 0
    kept: list[int] = []
    for kind in "QK":
        for length in range(L):
            for _ in plain.words(H + stream, length):
                for head in range(H):
                    if kind == "Q" or head % (H // G) == 0:
                        kept += range(at, at + shape.head_dim)
                    at += shape.head_dim
    return kept + list(range(at, at + shape.d_out * (H + stream) ** L))


@check("new:trained/shared-keys")
def shared_keys(run: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs of grouped integer targets; m is the number of different columns of R_all."""
    from utfproof.models.grouped import embed_grouped, grouped_matching_dimension, grouped_tree_host

    for entry, G in GROUPED:
        for shape in _both(entry):
            m, target = grouped_matching_dimension(shape, G), _grouped_target(shape, G, 3)
            host, x = grouped_tree_host(shape, G, m), one_hots([0, shape.d_in - 1], shape.d_in)
            found = carries(host, embed_grouped(target, G, m), target, x)
            rows = equations(host)
            different = {tuple(column) for column in plain.transpose(rows)}
            holds = bool(found) and len(different) == m == len(_kept(shape, G)) == rank_of_matrix(rows).value
            yield Instance(shape, holds, f"G = {G}", routes=found.routes, m=m)
    for name, shape in zip(("M_G, M at (2,2,1,1), G = 1", "with a residual stream"), _both((2, 2, 1, 1)), strict=True):
        yield Figure(name, f"{grouped_matching_dimension(shape, 1)}, {matching_dimension(shape)}")


@check("new:trained/shared-keys-least")
def shared_keys_least(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the rows W_all over grouped 0/1 targets, by FLINT and plain integers."""
    from utfproof.models.grouped import grouped_matching_dimension

    ranks = {}
    for entry, G in GROUPED:
        for shape in _both(entry):
            m = grouped_matching_dimension(shape, G)
            targets = list(routed_targets(shape, G))
            rows = [row for target in targets for row in equations(target) if any(row)]
            found, samples = rank_of_matrix(rows), [_grouped_target(shape, G, seed) for seed in range(2)]
            more = rank_of_matrix([*rows, *(row for target in samples for row in plain.rows(w_all(target)))])
            holds = found.value == more.value == m
            ranks[label(shape)] = found.value
            yield Instance(shape, holds, f"rank {found.value}, G = {G}", routes=found.routes, m=m)
    yield Figure("rank at (2,2,1,1), G = 1", ranks["(2,2,1,1)"])
    yield Figure("with a residual stream", ranks["(2,2,1,1) residual"])


# --- the smallest host of one model --------------------------------------------------------------------------------


def _target(shape: Shape, width: int, seed: int, *, inner: int | None = None) -> Target:
    """An integer target of this width; inner: the rank of its value forms, d where none is given."""
    lead, d, k = (shape.layers, shape.heads), shape.head_dim, inner or shape.head_dim
    kind: Callable[..., Target] = Target if inner is None else AugmentedTarget
    return kind(
        shape,
        drawn(seed, 31, *lead, width, d),
        drawn(seed, 32, *lead, width, d),
        drawn(seed, 33, *lead, width, k),
        drawn(seed, 34, *lead, k, width),
        drawn(seed, 35, shape.d_in, width),
        drawn(seed, 36, width, shape.d_out),
    )


def _thinned(target: Target) -> Target:
    """The same with many zeros: dead ends, and states that come late."""
    changed = {}
    for code, name in enumerate(("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")):
        tensor = getattr(target, name)
        changed[name] = tensor * (drawn(9, 40 + code, *tensor.shape) > 0)
    return replace(target, **changed)


def _least(target: Target) -> tuple[Agreed, bool, Certificate]:
    """(The least m by a staircase of bases, by the full Hankel matrices, and as a certificate says it; whether a host of that
    size matches, by the package and by the definitions; the certificate)."""
    from utfproof.models.realization.certificate import certificate
    from utfproof.models.realization.hankel import least_dimension
    from utfproof.models.realization.host import least_host

    host, E, least = least_host(target)
    proof = certificate(least, host, E)
    found = agree(
        {
            "ranks of bases": least_dimension(target).m,
            "full Hankel matrices": least_by_ranks(target),
            "certificate": int(proof.document["shape"]["m"]),
        }
    )
    return found, host.m == found.value and _matches(host, E, target), proof


def _matches(host: Universal, E: np.ndarray, target: Target) -> bool:
    own = bool((E @ dense(r_all(host)) == dense(w_all(target))).all())
    slow = plain.multiply(plain.rows(E), equations(host)) == equations(target)
    return agree({"package": own, "plain Fractions": slow}).value


SMALL = [((1, 1, 1, 1, 1), 2), ((2, 1, 1, 6, 1), 7), ((1, 2, 1, 4, 1), 5), ((2, 2, 1, 4, 4), 8), ((1, 3, 1, 3, 2), 4)]
"""Shapes with d_out, and widths of the targets."""


def _examined(residual: bool) -> Iterator[tuple[Shape, str, Target]]:
    """A dense and a thin integer target at each shape."""
    for entry, width in SMALL:
        shape = Shape(*entry, residual=residual)
        target = _target(shape, width, 3)
        yield shape, f"width {width}", target
        yield shape, f"width {width}, many zeros", _thinned(target)


@check("new:trained/least")
def least(run: Run) -> Iterator[Instance | Figure]:
    """Least m by three routes, and the equations of a host of that size by two."""
    yield from _least_of_all(False, "least m, width, M at (2,2,1,4)")


def _least_of_all(residual: bool, figure: str) -> Iterator[Instance | Figure]:
    for shape, what, target in _examined(residual):
        found, matched, proof = _least(target)
        holds = matched and found.value <= min(target.width, matching_dimension(shape))
        yield Instance(shape, holds, f"{what}: {found.value}", proof, routes=found.routes, m=found.value)
        if shape == Shape(2, 2, 1, 4, residual=residual) and what == "width 8":
            yield Figure(figure, f"{found.value}, 8, {matching_dimension(shape)}")


@check("new:trained/least-residual")
def least_residual(run: Run) -> Iterator[Instance | Figure]:
    """The same, with the target whose ranks are all 1."""
    yield from _least_of_all(True, "least m, width, M_res at (2,2,1,4)")
    zero = array([[[[0], [0]]]])
    shape = Shape(1, 1, 1, 1, residual=True)
    target = Target(shape, zero, zero, array([[[[1], [0]]]]), array([[[[0, 1]]]]), array([[1, 0]]), array([[0], [1]]))
    found, matched, proof = _least(target)
    largest = max(hankel_ranks(target)[0])
    yield Instance(
        shape, matched and found.value > largest, f"ranks {largest}", proof, routes=found.routes, m=found.value
    )
    yield Figure("least m and largest rank at (1,1,1,1)", f"{found.value}, {largest}")


def _counted(shape: Shape, layer: int, head: int) -> tuple[int, int]:
    """Columns of W_all whose word passes or reads with this head of this layer (from 0), and its prefixes."""
    H, L, stream = shape.heads, shape.layers, int(shape.residual)
    letter, passing = head + stream, 0
    for length in range(L):
        for word in plain.words(H + stream, length):
            readers = H if word[layer : layer + 1] == (letter,) else int(length == layer)
            passing += 2 * shape.head_dim * readers
    passing += sum(shape.d_out for word in plain.words(H + stream, L) if word[layer] == letter)
    return passing, (H + stream) ** layer


def _wide(entry: tuple[int, int, int], residual: bool) -> Target:
    """A target wide enough that nothing is saved: value forms of full rank, as many inputs as columns and one more."""
    H, L, d = entry
    M = matching_dimension(Shape(H, L, d, 1, 1, residual=residual))
    return _target(Shape(H, L, d, M + 1, 1, residual=residual), M + 2, 5, inner=M + 2)


PLANTED = [(2, 1, 1), (2, 1, 2), (1, 2, 1)]
MUTE = [(2, 1, 1), (2, 1, 2), (2, 2, 1)]
"""(H, L, d)."""


def _sizes(target: Target) -> Agreed:
    """The least m by bases and by the full Hankel matrices."""
    from utfproof.models.realization.hankel import least_dimension

    return agree({"ranks of bases": least_dimension(target).m, "full Hankel matrices": least_by_ranks(target)})


@check("new:trained/planted")
def planted(run: Run) -> Iterator[Instance | Figure]:
    """Least m of the drawn target, of one with a head of zeros, a repeated head, queries of rank one."""
    for entry in PLANTED:
        for residual in (False, True):
            base = _wide(entry, residual)
            shape, M = base.shape, matching_dimension(base.shape)
            layer, head = shape.layers - 1, shape.heads - 1
            passing, prefixes = _counted(shape, layer, head)
            found, expected = [_sizes(base)], [M]
            found.append(_sizes(_without(base, layer, head, ("W_Q", "W_K", "W_V"))))
            expected.append(M - passing)
            if shape.heads > 1:
                found.append(_sizes(_repeated(base, layer)))
                expected.append(M - passing)
            if shape.head_dim > 1:
                found.append(_sizes(_rank_one(base, layer, head)))
                expected.append(M - prefixes * (shape.head_dim - 1))
            sizes = [agreed.value for agreed in found]
            where = "({},{},{})".format(*entry) + (" residual" if residual else "")
            detail = ", ".join(map(str, sizes))
            yield Instance(where, sizes == expected, detail, routes=found[0].routes)
            if entry == (2, 1, 2):
                figure = (
                    "(2,1,2) residual" if residual else "(2,1,2): M, head of zeros, repeated head, rank-one queries"
                )
                yield Figure(figure, detail)


def _without(target: Target, layer: int, head: int, names: tuple[str, ...]) -> Target:
    """Zeros for these weights of one head."""
    changed = {name: getattr(target, name).copy() for name in names}
    for tensor in changed.values():
        tensor[layer, head] = 0
    return replace(target, **changed)


def _repeated(target: Target, layer: int) -> Target:
    """The last head of a layer equal to the first."""
    changed = {name: getattr(target, name).copy() for name in ("W_Q", "W_K", "W_V", "W_O")}
    for tensor in changed.values():
        tensor[layer, -1] = tensor[layer, 0]
    return replace(target, **changed)


def _rank_one(target: Target, layer: int, head: int) -> Target:
    """Queries of one head that are multiples of their first coordinate."""
    W_Q = target.W_Q.copy()
    for j in range(1, target.shape.head_dim):
        W_Q[layer, head][:, j] = (j + 1) * W_Q[layer, head][:, 0]
    return replace(target, W_Q=W_Q)


@check("new:trained/dead-head")
def dead_head(run: Run) -> Iterator[Instance | Figure]:
    """Least m of both targets, the package's own pruning, and the outputs of the smaller host."""
    from utfproof.models.realization.hankel import forms, least_dimension, without_dead_heads
    from utfproof.models.realization.host import least_host

    for entry in MUTE:
        for residual in (False, True):
            base = _wide(entry, residual)
            shape = base.shape
            layer, head = shape.layers - 1, shape.heads - 1
            mute, pruned = (_without(base, layer, head, names) for names in (("W_V",), ("W_V", "W_Q", "W_K")))
            with_readers, without = _sizes(mute), _sizes(pruned)
            own, heads = without_dead_heads(forms(mute))
            saved = 2 * shape.head_dim * _counted(shape, layer, head)[1]
            host, E, _ = least_host(own)
            x = one_hots([0, 1, 0], shape.d_in)
            outputs = agree(
                {
                    "package": plain.rows(host.forward(array(x), E, RationalAttention())),
                    "plain Fractions": forward(host, x, plain.rows(E)),
                }
            )
            unmatched = plain.multiply(plain.rows(E), equations(host)) != equations(mute)
            holds = with_readers.value == without.value + saved and least_dimension(own).m == without.value == host.m
            holds = holds and heads == [(layer, head)] and outputs.value == forward(mute, x) and unmatched
            where = "({},{},{})".format(*entry) + (" residual" if residual else "")
            detail = f"{with_readers.value}, {without.value}"
            yield Instance(where, holds, detail, routes=(*with_readers.routes, *outputs.routes))
            if where == "(2,1,1)":
                yield Figure("(2,1,1): least m with W_V = 0, and with W_Q, W_K = 0 too", detail)
