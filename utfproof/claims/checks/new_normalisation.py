"""Layer normalisation against hosts that have none: where they fail whatever m is, and the one place where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.linear import integer_host
from utfproof.claims.normalised_models import (
    Terms,
    Watching,
    centred,
    context,
    dot,
    equal,
    residual,
    run_slowly,
    scaled,
    simple_target,
    square,
    square_root,
    uniform,
    vanishes,
)
from utfproof.claims.small_models import array, stochastic_grid
from utfproof.claims.streams import maps
from utfproof.constructions import build_host
from utfproof.constructions.normalised import (
    KINDS,
    Norm,
    embed_one_layer,
    normalised_forward,
    one_layer_equations,
    unit_norm,
)
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.exact.symbolic.normalisation import Polynomial, common_factor, derivative, trimmed
from utfproof.matching import r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target

NEEDS_A_LAYER = ("post", "final")


def _target(shape: Shape) -> Target:
    """M^l = W_V W_O of rank 1, the first row of W_V being l + 1 and the second 3: nothing cancels."""
    columns = [[[layer + 1 if i == 0 else 3] for i in range(shape.d_in)] for layer in range(shape.layers)]
    return simple_target(shape, columns)


# --- a host without normalisation ------------------------------------------------------------------------------


@check("new:normalisation/all-inputs")
def all_inputs(run: Run) -> Iterator[Instance | Figure]:
    """T(2x) - 2 T(x) for one token, with square roots combined and kept apart; a host's is zero."""
    for entry, kind in (((1, 1, 1, 1), "rms"), ((1, 1, 1, 2), "rms"), ((1, 1, 1, 2), "layer"), ((1, 2, 1, 2), "rms")):
        shape = residual(*entry)
        target, attention = _target(shape), uniform(1, shape.layers)
        x = [[2 * j + 1 for j in range(shape.d_in)]]
        double = [[2 * v for v in x[0]]]
        host = integer_host(shape, matching_dimension(shape), 3)
        E = array([[i - j + 1 for j in range(host.m)] for i in range(shape.d_in)])
        linear = bool(
            (
                host.forward(array(double), E, Watching(attention))
                == 2 * host.forward(array(x), E, Watching(attention))
            ).all()
        )
        for place in ("pre", *NEEDS_A_LAYER):
            if place in ("pre", "post") and shape.layers > 1:
                continue  # two irrational norms in a row: one layer says it already
            for eps in (0, 1):
                norm = Norm(kind, Fraction(eps))
                once, twice = (
                    normalised_forward(target, array(v), Watching(attention), norm, place) for v in (x, double)
                )
                slow = [run_slowly(target, v, attention, norm, place)[0] for v in (x, double)]
                differs = agree(
                    {
                        "combined roots": bool((twice != once + once).any()),
                        "roots apart": not vanishes(slow[1] + scaled(slow[0], -2)),
                    }
                )
                yield Instance(shape, differs.value and linear, f"{kind}, {place}, eps = {eps}", routes=differs.routes)
    one = residual(1, 1, 1, 1)
    values = [
        normalised_forward(_target(one), array([[v]]), Watching(uniform(1, 1)), Norm("rms"))[0, 0] for v in (1, 2)
    ]
    yield Figure("RMS before the layer at (1,1,1,1), eps = 0: T(1), T(2)", f"{values[0]}, {values[1]}")


@check("new:normalisation/every-attention")
def every_attention(run: Run) -> Iterator[Instance | Figure]:
    """Outputs at three attention rows, exactly; a sample host's are in arithmetic progression."""
    for place, entry in (("final", (1, 1, 1, 2)), ("post", (1, 1, 1, 2)), ("pre", (1, 2, 1, 2))):
        shape = residual(*entry)
        target, x = _target(shape), context((0, 1), shape.d_in)
        host = integer_host(shape, matching_dimension(shape), 3)
        E = array([[i - j + 1 for j in range(host.m)] for i in range(shape.d_in)])
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            fast, slow, ours = [], [], []
            for a in (Fraction(0), Fraction(1, 2), Fraction(1)):
                attention = uniform(2, shape.layers)
                attention[0][0] = [[1 - a, a], [0, 1]]
                fast.append(normalised_forward(target, array(x), Watching(attention), norm, place)[0])
                slow.append(run_slowly(target, x, attention, norm, place)[0])
                ours.append(host.forward(array(x), E, Watching(attention))[0])
            bends = agree(
                {
                    "combined roots": bool((fast[0] + fast[2] != fast[1] + fast[1]).any()),
                    "roots apart": not vanishes(slow[0] + slow[2] + scaled(slow[1], -2)),
                }
            )
            affine = bool((ours[0] + ours[2] == 2 * ours[1]).all())
            yield Instance(shape, bends.value and affine, f"{kind}, {place}", routes=bends.routes)


@check("new:normalisation/tokens")
def tokens(run: Run) -> Iterator[Instance | Figure]:
    """The quadratic from three contexts and from the weights; its discriminant and greatest common divisors."""
    for place, entry in (("final", (1, 1, 1, 2)), ("post", (1, 1, 1, 2)), ("pre", (1, 2, 1, 2))):
        shape = residual(*entry)
        target = _target(shape)
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            inner = "pre" if place == "pre" else "none"
            direct = [_stream(target, token, norm, inner) for token in (0, 1)]
            quadratics = [_under_root(rows, norm) for rows in direct]
            sampled = [_sampled(target, token, norm, inner) for token in (0, 1)]
            found = agree({"from the weights": quadratics, "from three contexts": sampled})
            simple = agree(
                {
                    "discriminant": _discriminant(quadratics[0]) != 0,
                    "common factor": len(common_factor(quadratics[0], derivative(quadratics[0]))) == 1,
                }
            )
            alive = _alive(direct[0], quadratics, target if place == "pre" else None, kind)
            detail = f"{kind}, {place}: {', '.join(str(c) for c in quadratics[0])}"
            yield Instance(shape, simple.value and alive, detail, routes=(*found.routes, *simple.routes))
            if (place, kind) == ("final", "rms"):
                yield Figure("under the root, RMS at the end", ", ".join(str(c) for c in quadratics[0]))


def _stream(target: Target, token: int, norm: Norm, place: str) -> tuple[list[Any], list[Any]]:
    """(constant, slope) of the row of `token` after layer 1, as a function of the share t of token 1 (token 0 has 1 - t)."""
    values = maps(target, 0, 0)[2]
    rows = plain.identity(target.width)
    inner = rows
    if place == "pre":
        roots = [square_root(square(row, norm)) for row in rows]
        inner = [[v / root for v in centred(row, norm.kind)] for row, root in zip(rows, roots, strict=True) if root]
    moved = plain.multiply(inner, values)
    return plain.add([rows[token]], [moved[0]])[0], [b - a for a, b in zip(moved[0], moved[1], strict=True)]


def _under_root(rows: tuple[list[Any], list[Any]], norm: Norm) -> Polynomial:
    """Coefficients in t of the mean square of constant + t slope, plus eps."""
    constant, slope = (centred(row, norm.kind) for row in rows)
    size = len(constant)
    parts = [dot(constant, constant), 2 * dot(constant, slope), dot(slope, slope)]
    return trimmed([Fraction(parts[0]) / size + norm.eps, Fraction(parts[1]) / size, Fraction(parts[2]) / size])


def _sampled(target: Target, token: int, norm: Norm, place: str) -> Polynomial:
    """The same by interpolation between t = 0, 1/2 and 1, from the package's forward pass with a row of that attention."""
    shape = target.shape
    first = Target(
        residual(1, 1, shape.head_dim, shape.d_in), target.W_Q[:1], target.W_K[:1], target.W_V[:1], target.W_O[:1]
    )
    found = []
    for t in (Fraction(0), Fraction(1, 2), Fraction(1)):
        rows = [[1 - t, t]] * 2
        out = normalised_forward(first, array(context((0, 1), shape.d_in)), Watching([[rows]]), norm, place)
        found.append(norm.mean_square(out[token]))
    low, middle, high = found
    return trimmed([low, 4 * middle - high - 3 * low, 2 * (low + high - 2 * middle)])


def _discriminant(quadratic: Polynomial) -> Fraction:
    c, b, a = quadratic
    return b * b - 4 * a * c


def _alive(rows: tuple[list[Any], list[Any]], quadratics: list[Polynomial], second: Target | None, kind: str) -> bool:
    """Whether some output coordinate keeps the root: its numerator shares no zero with the quadratic, nor, before a second
    layer, does token 1's quadratic."""
    constant, slope = (centred(row, kind) for row in rows)
    if second is not None:
        values = maps(second, 1, 0)[2]
        constant, slope = (plain.multiply([row], values)[0] for row in (constant, slope))
        if len(common_factor(*quadratics)) != 1:
            return False
    numerators = [trimmed([a, b]) for a, b in zip(constant, slope, strict=True)]
    return any(numerator and len(common_factor(numerator, quadratics[0])) == 1 for numerator in numerators)


# --- one layer: the norm of a token is known beforehand ----------------------------------------------------------


@check("new:normalisation/one-layer")
def one_layer(run: Run) -> Iterator[Instance | Figure]:
    """Rank, equations, queries, keys and outputs."""
    for entry in [(1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2), (1, 1, 2, 2), (2, 1, 2, 3)]:
        shape = residual(*entry)
        m = matching_dimension(shape)
        host, target = build_host("sparse", shape), integer_target(shape, 4)
        matrix = r_all(host)
        matrix = matrix.to_dense(object) if hasattr(matrix, "to_dense") else matrix
        ranks = agree({"FLINT": rational.rank(array(plain.rows(matrix))), "plain integers": plain.rank(matrix)})
        for kind in KINDS:
            norm = unit_norm(kind, shape.d_in)
            E = embed_one_layer(shape, target, norm)
            solved = bool((E @ array(plain.rows(matrix)) == one_layer_equations(target, norm)).all())
            same = _same_outputs(host, E, target, norm)
            holds = ranks.value == m and solved and same.value
            yield Instance(shape, holds, kind, routes=(*ranks.routes, *same.routes), m=m)


def _same_outputs(host: Any, E: Any, target: Target, norm: Norm) -> Agreed:
    """Host without a norm, target with one before its layer: attention from outside, and the package's from logits."""
    shape = target.shape
    x, attention = context([i % shape.d_in for i in range(3)], shape.d_in), stochastic_grid(shape, 3, 1)
    theirs = run_slowly(target, x, attention, norm, "pre")
    ours = run_slowly(host, x, attention, norm, "none", plain.rows(E))
    kernel = RationalAttention()
    fast = bool((host.forward(array(x), E, kernel) == normalised_forward(target, array(x), kernel, norm)).all())
    return agree({"roots apart, given attention": equal(ours, theirs), "package, rational attention": fast})


@check("new:normalisation/positions")
def positions(run: Run) -> Iterator[Instance | Figure]:
    """f(a,1) + f(b,2) - f(a,2) - f(b,1), each token attending to itself; then with pairs."""
    sums = [[1], [3], [-1], [1]]  # tokens 1 and -1, positions 0 and 2
    shape, norm = Shape(1, 1, 1, 4, 1, residual=True), Norm("rms")
    one = array([[1]])
    split = simple_target(shape, [[[1]]], array([[1], [-1], [0], [2]]), one)
    x = [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]]
    attention = [[plain.identity(4)]]
    fast = normalised_forward(split, array(x), Watching(attention), norm)
    slow = run_slowly(split, x, attention, norm, "pre")
    defect: Terms = [*slow[0], *slow[3], *scaled(slow[1], -1), *scaled(slow[2], -1)]
    additive = agree(
        {"combined roots": bool((fast[0] + fast[3] == fast[1] + fast[2]).all()), "roots apart": vanishes(defect)}
    )
    yield Instance(shape, additive.value, "a sum over token and position?", routes=additive.routes)
    yield Figure("normalised rows (a,1), (a,2), (b,1), (b,2)", ", ".join(str(v) for v in norm(array(sums))[:, 0]))
    pairs = simple_target(shape, [[[1]]], array(sums), one)
    host = build_host("sparse", shape)
    served = _same_outputs(host, embed_one_layer(shape, pairs, norm), pairs, norm)
    yield Instance(shape, served.value, "one one-hot for each pair", routes=served.routes, part="repair", m=host.m)
