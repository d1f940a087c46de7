"""Hosts that normalise their own rows: what fixed weights forbid, hosts of two layers, three layers, open cases."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor, isqrt
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import BESIDE, Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import dense, rank_of_matrix
from utfproof.claims.linear import integer_host
from utfproof.claims.normalised_models import (
    Watching,
    centred,
    context,
    distance,
    dot,
    equal,
    in_balls,
    in_intervals,
    residual,
    run_slowly,
    simple_target,
    square,
    square_root,
    uniform,
)
from utfproof.claims.small_models import array, stochastic_grid
from utfproof.claims.streams import maps
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KAPPA,
    KINDS,
    Norm,
    TwoLayers,
    constant_error,
    constant_host,
    embed_constant,
    embed_final_norm,
    embed_one_layer_host,
    embed_two_layers,
    final_norm_host,
    first_layer_directions,
    normalised_forward,
    one_layer_host,
    shared_scale,
    two_layer_host,
    unit_norm,
)
from utfproof.constructions.random import integer_target
from utfproof.constructions.residual import embed_residual_tree
from utfproof.errors import NotDefined
from utfproof.exact.symbolic.normalisation import Surd
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal


def _largest(target: Target) -> int:
    """The largest absolute value of a weight."""
    return max(abs(int(v)) for name in ("W_Q", "W_K", "W_V", "W_O") for v in np.ravel(getattr(target, name)))


def _served(host: Universal, E: Any, target: Target, norm: Norm, place: str = "pre", n: int = 3) -> Agreed:
    """Equal queries, keys and outputs, host and target both with the norm at this place, attention from outside."""
    shape = target.shape
    x, attention = context([i % shape.d_in for i in range(n)], shape.d_in), stochastic_grid(shape, n, 1)
    ours, theirs = Watching(attention), Watching(attention)
    out = normalised_forward(host, array(x), ours, norm, place, E)
    same = bool((out == normalised_forward(target, array(x), theirs, norm, place)).all()) and ours.saw(theirs)
    slow = equal(
        run_slowly(host, x, attention, norm, place, plain.rows(E)), run_slowly(target, x, attention, norm, place)
    )
    return agree({"combined roots": same, "roots apart": slow})


# --- fixed weights are bounded ---------------------------------------------------------------------------------------


@check("new:normalisation/own-norm-bounded")
def own_norm_bounded(run: Run) -> Iterator[Instance | Figure]:
    """The bound of sample hosts, a target beyond it, and one E of the host within it."""
    for entry in ((1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 1, 2)):
        shape = residual(*entry)
        for host in (build_host("sparse", shape), integer_host(shape, matching_dimension(shape), 3)):
            bound = agree({"package": _bound_squared(host), "plain integers": _bound_squared_slowly(host)})
            for kind in KINDS:
                norm = unit_norm(kind, shape.d_in)
                moved_by_one = _moved_by_values(_scaled_target(1), norm)
                size = isqrt(floor(bound.value / moved_by_one)) + 1  # it moves by `size` times as much
                target = _scaled_target(size)
                moved = agree({"combined roots": _moved(target, norm), "roots apart": _moved_by_values(target, norm)})
                beyond = bound.value < moved.value == size**2 * moved_by_one
                kept = shape.layers > 1 or _host_moved(host, norm) <= bound.value
                detail = f"{kind}: {moved.value} > {bound.value}, squared"
                yield Instance(shape, beyond and kept, detail, routes=(*bound.routes, *moved.routes), m=host.m)


def _bound_squared(host: Universal) -> Fraction:
    """(2 sqrt(m) sum of |R_V U|)^2 <= 4 m H L sum of |R_V U|^2, Frobenius."""
    U, total = dense(host.U), 0
    for layer in range(host.shape.layers):
        for head in range(host.shape.heads):
            total += int(((dense(host.maps(layer, head).value[0]) @ U) ** 2).sum())
    return Fraction(4 * host.m * host.shape.heads * host.shape.layers * total)


def _bound_squared_slowly(host: Universal) -> Fraction:
    H, L, U = host.shape.heads, host.shape.layers, plain.rows(host.U)
    products = [plain.multiply(maps(host, layer, head)[2], U) for layer in range(L) for head in range(H)]
    return Fraction(4 * host.m * H * L * sum(v * v for product in products for row in product for v in row))


def _scaled_target(size: int) -> Target:
    """One layer, constant logits, W_V = size (1, 3)^T: more layers and heads can be silent."""
    return simple_target(residual(1, 1, 1, 2), [[[size], [3 * size]]])


def _moved(target: Target, norm: Norm) -> Fraction:
    """The squared distance of the outputs at token 0 in the contexts (0, 0) and (0, 1), by forward passes."""
    attention = uniform(2, 1)
    fast = [normalised_forward(target, array(context(c, 2)), Watching(attention), norm)[0] for c in ((0, 0), (0, 1))]
    return Fraction(sum(Surd.of(v * v).rational for v in fast[1] - fast[0]))


def _moved_by_values(target: Target, norm: Norm) -> Fraction:
    """The same from the normalised tokens and the values alone."""
    values = maps(target, 0, 0)[2]
    inner = [[v / (square_root(square(row, norm)) or 1) for v in centred(row, norm.kind)] for row in plain.identity(2)]
    moved = plain.multiply([[(b - a) / 2 for a, b in zip(*inner, strict=True)]], values)[0]
    return Fraction(dot(moved, moved))


def _host_moved(host: Universal, norm: Norm) -> Fraction:
    """The same for a host with some large E, from above."""
    E, attention = (
        array([[7 * i - 5 * j + 1 for j in range(host.m)] for i in range(2)]),
        uniform(2, 1, host.shape.heads),
    )
    outs = [normalised_forward(host, array(context(c, 2)), Watching(attention), norm, E=E)[0] for c in ((0, 0), (0, 1))]
    return sum((Surd.of(v) * v for v in outs[1] - outs[0]), Surd({})).enclosure()[1]


@check("new:normalisation/own-norm-equations")
def own_norm_equations(run: Run) -> Iterator[Instance | Figure]:
    """Outputs with the E of the equations, and with the repaired host."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2)):
        shape = residual(*entry)
        target = integer_target(shape, 3, bound=2)
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            if entry != (1, 1, 1, 1) or kind == "rms":  # LayerNorm of a single entry is zero
                tree = build_host("sparse", shape)
                found = _one_token(tree, embed_residual_tree(shape, tree.m, target), target, norm)
                yield Instance(shape, not found.value, f"{kind}, equations", routes=found.routes, m=tree.m)
            host = one_layer_host(shape, _largest(target), kind)
            mended = _served(host, embed_one_layer_host(host, target, norm), target, norm)
            yield Instance(
                shape, mended.value, f"{kind}, spare coordinates", routes=mended.routes, part=BESIDE, m=host.m
            )


def _one_token(host: Universal, E: Any, target: Target, norm: Norm) -> Agreed:
    """Whether host and target, both normalised, give the same output for each single token."""
    attention, fast, slow = uniform(1, 1, target.shape.heads), True, True
    for token in range(target.shape.d_in):
        x = context((token,), target.shape.d_in)
        ours = normalised_forward(host, array(x), Watching(attention), norm, E=E)
        fast &= bool((ours == normalised_forward(target, array(x), Watching(attention), norm)).all())
        theirs = run_slowly(target, x, attention, norm, "pre")
        slow &= equal(run_slowly(host, x, attention, norm, "pre", plain.rows(E)), theirs)
    return agree({"combined roots": fast, "roots apart": slow})


@check("new:normalisation/final-norm")
def final_norm(run: Run) -> Iterator[Instance | Figure]:
    """Queries, keys and outputs, with the norm after the layer and at the end."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2)):
        shape = residual(*entry)
        target = integer_target(shape, 3, bound=2)
        for kind in KINDS:
            norm = Norm(kind, Fraction(1, 3))
            host = final_norm_host(shape, _largest(target), norm)
            E = embed_final_norm(host, target, norm)
            for place in ("post", "final"):
                found = _served(host, E, target, norm, place)
                yield Instance(shape, found.value, f"{kind}, {place}", routes=found.routes, m=host.m)


# --- two layers ------------------------------------------------------------------------------------------------------


@check("new:normalisation/two-layers")
def two_layers(run: Run) -> Iterator[Instance | Figure]:
    """Forward passes, and the Gram conditions that give them for all attention matrices."""
    for entry in ((1, 2, 1, 1), (1, 2, 1, 2), (2, 2, 1, 2)):
        shape = residual(*entry)
        target = integer_target(shape, 3, bound=2)
        for kind in KINDS:
            if kind == "layer" and entry == (2, 2, 1, 2):
                continue  # a second and more; the others say it
            norm = unit_norm(kind, shape.d_in)
            plan = TwoLayers(shape, _largest(target), norm)
            host, E = two_layer_host(plan), embed_two_layers(plan, target)
            found = _served(host, E, target, norm, n=2)
            holds = found.value and _isometric(host, plain.rows(E), target, norm)
            yield Instance(shape, holds, f"{kind}: outputs and Gram matrices", routes=found.routes, m=host.m)
            if entry == (1, 2, 1, 2):
                yield Figure(f"m at (1,2,1,2), {'RMS' if kind == 'rms' else 'LayerNorm'}", host.m)


def _isometric(host: Universal, E: plain.Rows, target: Target, norm: Norm) -> bool:
    """The conditions of the page, section 5: first layer, Gram matrices, readers, values and outputs of the second."""
    shape, D, kind = target.shape, target.width, norm.kind
    tokens = plain.identity(D)
    roots = [square_root(square(row, norm)) for row in tokens]
    if any(root is None for root in roots):
        return False
    inner = [[v / root for v in centred(row, kind)] for row, root in zip(tokens, roots, strict=True) if root]
    theirs: plain.Rows = []
    ours: plain.Rows = []
    own = [[v / (KAPPA * root) for v in centred(row, kind)] for row, root in zip(E, roots, strict=True) if root]
    fits = all(square(row, norm) == (KAPPA * root) ** 2 for row, root in zip(E, roots, strict=True) if root)
    for head in range(shape.heads):
        (q, k, M), (r_q, r_k, r_v) = maps(target, 0, head), maps(host, 0, head)
        fits &= plain.multiply(own, r_q) == plain.multiply(inner, q) and plain.multiply(own, r_k) == plain.multiply(
            inner, k
        )
        theirs, ours = theirs + plain.multiply(inner, M), ours + plain.multiply(own, r_v)
    U = plain.rows(host.U)
    theirs, ours = [*tokens, *theirs], [*E, *ours]
    fits &= plain.multiply(ours, U) == theirs
    t, o = [centred(row, kind) for row in theirs], [centred(row, kind) for row in ours]
    for i in range(len(t)):
        for j in range(i, len(t)):
            if j < D and i != j:
                continue  # two tokens' own rows never meet in one row of the stream
            constant = norm.eps * (KAPPA**2 - 1) if i == j < D else 0
            fits &= Fraction(dot(o[i], o[j])) / host.m == Fraction(KAPPA**2 * dot(t[i], t[j])) / D + constant
    for head in range(shape.heads):
        (q, k, M), (r_q, r_k, r_v) = maps(target, 1, head), maps(host, 1, head)
        for theirs_read, ours_read in ((q, r_q), (k, r_k), (M, plain.multiply(r_v, U))):
            wanted = [[KAPPA * v for v in row] for row in plain.multiply(t, theirs_read)]
            fits &= plain.multiply(o, ours_read) == wanted
    return fits


# --- three layers ----------------------------------------------------------------------------------------------------


@check("new:normalisation/three-layers")
def three_layers(run: Run) -> Iterator[Instance | Figure]:
    """The common scale of sample hosts and targets, by plain integers and FLINT; the hypothesis on directions."""
    for entry, m in (((2, 3, 1, 2), 4), ((2, 3, 1, 2), 9), ((3, 3, 1, 3), 6)):
        shape, target = residual(*entry), _alive_target(residual(*entry))
        span = rank_of_matrix(first_layer_directions(target, unit_norm("rms", shape.d_in)))
        host = integer_host(shape, m, 3)
        itself = _as_host(target)
        none = agree(
            {
                "Faddeev and Euclid": len(shared_scale(host, target)) <= 1,
                "FLINT polynomials": not _shared_by_flint(host, target),
            }
        )
        own = agree(
            {
                "Faddeev and Euclid": len(shared_scale(itself, target)) > 1,
                "FLINT polynomials": _shared_by_flint(itself, target),
            }
        )
        routes = (*span.routes, *own.routes)
        holds = span.value == shape.d_in and none.value and own.value
        yield Instance(shape, holds, "no common scale", routes=routes, m=m)


def _alive_target(shape: Shape) -> Target:
    """An integer target whose M^{2,h} have nonzero, different traces and whose first layer moves the stream everywhere."""
    for seed in range(100):
        target = integer_target(shape, seed, bound=5)
        traces = {abs(np.trace(target.value_form(1, h))) for h in range(shape.heads)}
        directions = first_layer_directions(target, unit_norm("rms", shape.d_in))
        if 0 not in traces and len(traces) == shape.heads and plain.rank(directions) == shape.d_in:
            return target
    raise AssertionError("generic targets are easily found")


def _as_host(target: Target) -> Universal:
    """The target's own parameters as a host with m = d_in."""
    shape, layers, heads = target.shape, range(target.shape.layers), range(target.shape.heads)
    values = [[target.value_form(layer, h) for h in heads] for layer in layers]
    return Universal(shape, target.width, target.W_Q, target.W_K, values, array(plain.identity(target.width)))


def _shared_by_flint(host: Universal, target: Target) -> bool:
    """Whether some nonzero kappa makes kappa tr(M^{2,h}) an eigenvalue of R_V^{2,h} for all heads."""
    from flint import fmpq_mat, fmpq_poly, fmpz_mat

    found = fmpq_poly([0])
    for h in range(host.shape.heads):
        trace = int(np.trace(target.value_form(1, h)))
        scaled = fmpq_mat(fmpz_mat([[int(v) for v in row] for row in plain.rows(host.maps(1, h).value[0])])).charpoly()
        found = found.gcd(scaled(fmpq_poly([0, trace])))
    coefficients = list(found.coeffs())
    return sum(map(bool, coefficients)) > 1


# --- targets without a norm ------------------------------------------------------------------------------------------


@check("new:normalisation/large-constant")
def large_constant(run: Run) -> Iterator[Instance | Figure]:
    """The error for two sizes of the constant, in intervals of rationals and in FLINT's balls."""
    for entry in ((1, 1, 1, 1), (1, 1, 1, 2), (1, 2, 1, 1)):
        shape = residual(*entry)
        free, target = build_host("sparse", shape), integer_target(shape, 3, bound=2)
        E = embed_residual_tree(shape, free.m, target)
        x, attention = context([i % shape.d_in for i in range(2)], shape.d_in), stochastic_grid(shape, 2, 1)
        wanted = plain.rows(free.forward(array(x), E, Watching(attention)))
        for kind in KINDS:
            norm, errors, holds = Norm(kind, Fraction(1, 4)), [], True
            for rho in (10**4, 10**5):
                host, wide = constant_host(free, rho, kind), plain.rows(embed_constant(E, rho, norm))
                values = [[maps(host, layer, h)[2] for h in range(shape.heads)] for layer in range(shape.layers)]
                given = (values, plain.rows(host.U), plain.multiply(x, wide), attention, norm)
                low, high = distance(in_intervals(*given), wanted)
                ball = distance(in_balls(*given), wanted)
                bound = constant_error(free, E, rho) ** 2
                inside = agree(
                    {"rational intervals": 0 < low <= high <= bound, "FLINT balls": 0 < ball[0] <= ball[1] <= bound}
                )
                holds &= inside.value
                errors.append((low, high))
            # squared errors: 10^4 for a tenfold constant, to a hundredth
            falls = errors[0][0] > 9900 * errors[1][1] and errors[0][1] < 10100 * errors[1][0]
            detail = f"{kind}: within the bound at two sizes"
            yield Instance(shape, holds and falls, detail, routes=inside.routes, m=host.m)


# --- open ------------------------------------------------------------------------------------------------------------


@check("new:normalisation/zero-eps")
def zero_eps(run: Run) -> Iterator[Instance | Figure]:
    """The room that eps leaves, and that the construction refuses eps = 0."""
    shape = residual(1, 2, 1, 2)
    rooms = [TwoLayers(shape, 1, Norm("rms", eps)).room for eps in (Fraction(1, 2), Fraction(1, 8))]
    yield Figure("room at (1,2,1,2) for eps = 1/2, 1/8", f"{rooms[0]}, {rooms[1]}")
    try:
        TwoLayers(shape, 1, Norm("rms"))
        refused = False
    except NotDefined:
        refused = True
    yield Instance(shape, None if refused else True, "the isometric host is not defined")


@check("new:normalisation/single-head")
def single_head(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the first layer's directions, and that the construction refuses three layers."""
    told = []
    for entry in ((1, 3, 2, 2), (1, 3, 3, 3)):
        shape = residual(*entry)
        ranks = [
            rank_of_matrix(first_layer_directions(integer_target(shape, s), unit_norm("rms", shape.d_in)))
            for s in range(4)
        ]
        most = max(found.value for found in ranks)
        told.append(f"{most} of {shape.d_in}")
        try:
            TwoLayers(shape, 1, unit_norm("rms", shape.d_in))
            refused = False
        except NotDefined:
            refused = True
        undecided = refused and most < shape.d_in
        yield Instance(shape, None if undecided else False, f"directions: {told[-1]}", routes=ranks[0].routes)
    yield Figure("directions at (1,3,2,2), (1,3,3,3)", ", ".join(told))
