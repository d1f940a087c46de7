"""Trained models: biases and learned positions absorbed, and a scale in the queries.

What layer normalisation breaks is in `new_normalisation`; sizes of hosts for models of one kind, or for one model, are in
`new_trained_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from utfproof.attention import GivenAttention, RationalAttention
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.definition import (
    BIASES,
    Watching,
    biased_target,
    both,
    carries,
    equations,
    given,
    one_hots,
    run,
)
from utfproof.claims.small_models import array
from utfproof.constructions import build_host
from utfproof.matching import embed, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems.biases import BiasedTarget, with_scale

PLACES = [
    ((1, 1, 1, 1), 1),
    ((1, 1, 1, 2), 2),
    ((2, 1, 1, 2), 1),
    ((1, 2, 1, 2), 2),
    ((2, 2, 1, 1), 2),
    ((2, 2, 2, 2), 3),
]
"""Shapes, and widths D of the targets."""


@check("new:trained/biases")
def biases(_: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs at m = M; without one bias they differ; no host of M - 1 dimensions."""
    for entry, width in PLACES:
        for shape in both(entry):
            m, target = matching_dimension(shape), biased_target(shape, width, 3)
            host, x = build_host("sparse", shape, m), one_hots([0, shape.d_in - 1, 0], shape.d_in)
            found = carries(host, embed(host, target.augmented()).E, target, x)
            columns = equations(target.augmented())
            counted = all(equations(_changed(target, {name: None}).augmented()) != columns for name in BIASES)
            yield Instance(
                shape, found.value and counted, f"width {width}; {m} dimensions do", routes=found.routes, m=m
            )
            bound = dimension_certificate(shape, m - 1)
            yield Instance(shape, not bound.universal, f"{m - 1} dimensions are too few", bound, m=m - 1)
    yield Figure("biases", len(BIASES))
    yield Figure("M at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1)))
    yield Figure("M_res at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1, residual=True)))


@check("new:trained/row-sums")
def row_sums(_: Run) -> Iterator[Instance | Figure]:
    """Outputs for the attention matrix (1/2), of the augmented matrices and of those with b_O folded; package and plain."""
    for entry, width in (((1, 1, 1, 1), 1), ((1, 2, 1, 2), 2), ((2, 2, 1, 1), 2)):
        shape = Shape(*entry, residual=True)
        target = biased_target(shape, width, 3) if shape.layers > 1 else _ones(shape, "b_O")
        grid, x = [[[[Fraction(1, 2)]]] * shape.heads] * shape.layers, one_hots([0], shape.d_in)
        truth, host = run(target, x, attention=given(grid)), build_host("sparse", shape)
        for part, held in (("", target), ("repair", folded(target))):
            package = plain.rows(held.augmented().forward(array(x), GivenAttention(array(grid))))
            ours = run(host, x, plain.rows(embed(host, held.augmented()).E), given(grid))
            agreed = agree({"augmented matrices": package == truth, "host, plain Fractions": ours == truth})
            yield Instance(shape, agreed.value, "outputs for row sums of 1/2", routes=agreed.routes, part=part)
            if not part and shape.layers == 1:
                name = "output at (1,1,1,1), and of the augmented matrices"
                yield Figure(name, f"{truth[0][0]}, {package[0][0]}")


def folded(target: BiasedTarget) -> BiasedTarget:
    """With a residual stream: the same outputs for every attention, and no b_O. The sum of b_O up to a layer goes into the
    biases of everything that reads behind it."""
    so_far, shifted = target.bias("b_O")[0] * 0, {name: target.bias("b_" + name).copy() for name in "QKV"}
    for layer in range(target.shape.layers):
        for name, bias in shifted.items():
            for head in range(target.shape.heads):
                bias[layer, head] += so_far @ getattr(target, "W_" + name)[layer, head]
        so_far = so_far + target.bias("b_O")[layer]
    b_U = target.bias("b_U") + so_far @ target.W_U
    return replace(target, **{"b_" + name: bias for name, bias in shifted.items()}, b_O=None, b_U=b_U)


def _changed(target: BiasedTarget, tensors: dict[str, Any]) -> BiasedTarget:
    """The target with some of its tensors exchanged."""
    return replace(target, **tensors)


def _ones(shape: Shape, *names: str) -> BiasedTarget:
    """A target of width 1: ones for these tensors, W_E and W_U, zeros for all others."""
    blank = biased_target(shape, 1)
    tensors = {name: 0 * getattr(blank, name) for name in ("W_Q", "W_K", "W_V", "W_O", *BIASES)}
    tensors |= {name: tensors[name] + 1 for name in names}
    return replace(blank, **tensors, W_E=0 * blank.W_E + 1, W_U=0 * blank.W_U + 1)


@check("new:trained/row-sums-needed")
def row_sums_needed(_: Run) -> Iterator[Instance | Figure]:
    """For one bias alone: is the target homogeneous (plain), and does the prefix tree with its E agree with it (package)?"""
    shape, carried = Shape(1, 2, 1, 1), []
    host = build_host("sparse", shape)
    for name in sorted(BIASES):
        for layer in (None,) if name in ("b_E", "b_U") else (0, 1):
            target = _ones(shape, "W_Q", "W_K", "W_V", "W_O")
            bias = 0 * target.bias(name)
            bias[... if layer is None else layer] += 1
            target = _changed(target, {name: bias})
            E = embed(host, target.augmented()).E
            first = _shown(target, None, 1, 1)
            homogeneous = agreeing = True
            for a, b in ((1, 1), (2, 1), (1, 2)):
                theirs, factors = _shown(target, None, a, b), (1, 1, a, a, a * b)
                homogeneous &= theirs == [factor * v for factor, v in zip(factors, first, strict=True)]
                agreeing &= _shown(host, E, a, b) == theirs
            found = agree({"definition": homogeneous, "host": agreeing})
            where = name if layer is None else f"{name} of layer {layer + 1}"
            carried += [where] if found else []
            expected = name == "b_E" or (layer == 0 and name != "b_O")
            detail = "carried" if found else "not homogeneous"
            yield Instance(where, found.value == expected, detail, routes=found.routes)
    yield Figure("carried for every attention", ", ".join(carried))


def _shown(system: Any, E: Any, a: int, b: int) -> list[Any]:
    """Queries and keys of two layers and the output for one token, where attention is (a) in the first layer, (b) then."""
    watched = Watching(given([[[[a]]], [[[b]]]]))
    if E is None:
        output = run(system, [[1]], attention=watched.plain)
    else:
        output = system.forward(array([[1]]), E, watched).tolist()
    return [matrix[0][0] for matrix in (*watched.seen, output)]


@check("new:trained/rank")
def rank(_: Run) -> Iterator[Instance | Figure]:
    """Rank of the output block of the word through head 0 alone, with biases and without: FLINT and plain; two definitions."""
    for entry in ((1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 1, 2), (1, 1, 2, 3)):
        for shape in both(entry):
            found, bare = _block_rank(shape, True), _block_rank(shape, False)
            holds = found.value == shape.head_dim + 1 and bare.value <= shape.head_dim
            yield Instance(shape, holds, f"rank {found.value}, without biases {bare.value}", routes=found.routes)
    yield Figure("rank at (1,1,1,2), d = 1", _block_rank(Shape(1, 1, 1, 2), True).value)
    yield Figure("rank at (1,1,1,1), d = 1", _block_rank(Shape(1, 1, 1, 1), True).value)


def _block_rank(shape: Shape, biased: bool) -> Agreed:
    """Rank of the OV block of the word 0 ... 0 h, h the first head (without a stream, of heads 0)."""
    target = biased_target(shape, shape.d_in, 3)
    # W_V, W_O of rank d, W_E and W_U the identity, one bias: what the rank is does not hang on luck
    d, D = shape.head_dim, shape.d_in
    W_V, W_O = 0 * target.W_V, 0 * target.W_O
    for k in range(d):
        W_V[..., k % D, k] = W_O[..., k, k % D] = 1
    target = _changed(target, dict.fromkeys((*BIASES, "W_E", "W_U")) | {"W_V": W_V, "W_O": W_O})
    held = replace(target, b_O=array([[int(biased)] * D] * shape.layers)).augmented()
    letters = shape.heads + shape.residual
    start = matching_dimension(shape) - shape.d_out * (letters**shape.layers - int(shape.residual))
    own, slow = ([row[start : start + D] for row in rows] for rows in (plain.rows(w_all(held)), equations(held)))
    return rank_of_matrix(agree({"package": own, "definition": slow}).value)


@check("new:trained/positions")
def positions(_: Run) -> Iterator[Instance | Figure]:
    """Outputs by looking embeddings up against the host's, for three constants; and for ones on both."""
    for (H, L, d), V, P in (((1, 1, 1), 1, 1), ((2, 1, 1), 2, 2), ((1, 2, 1), 2, 3)):
        for shape in both((H, L, d, V + P), d_out=V):
            target, tokens = biased_target(shape, 2, 5, positions=P), [i * (V - 1) % V for i in range(P)]
            x, host, held = one_hots(tokens, V + P, P), build_host("sparse", shape), []
            # the model as it was trained: rows W_E[token] + W_pos[place], read by what follows as they are
            rows = plain.rows([target.W_E[token] + target.W_E[V + i] for i, token in enumerate(tokens)])
            inner = Shape(H, L, d, target.width, V, residual=shape.residual)
            truth = run(replace(target, shape=inner, W_E=None, constant=None), rows)
            for t in (Fraction(0), Fraction(1, 2), Fraction(1), None):
                c = [1] * (V + P) if t is None else [t] * V + [1 - t] * P
                E = embed(host, replace(target, constant=array(c)).augmented()).E
                own = plain.rows(host.forward(array(x), E, RationalAttention())) == truth
                found = agree({"package": own, "plain Fractions": run(host, x, plain.rows(E)) == truth})
                held.append(found.value)
            holds = held == [True, True, True, False] and _kernel_dimension(V, P) == 1
            yield Instance(shape, holds, "t = 0, 1/2, 1; not ones on both", routes=found.routes)
    yield Figure("choices of c at V = 2, P = 3: dimension", _kernel_dimension(2, 3))


def _kernel_dimension(V: int, P: int) -> int:
    """Dimension of the c with X c = 0 for every token and place: two vectors c with X c = 1 differ by one of these."""
    pairs = [[int(j == t) for j in range(V)] + [int(j == i) for j in range(P)] for t in range(V) for i in range(P)]
    return V + P - rank_of_matrix(pairs).value


@check("new:trained/scale")
def scale(_: Run) -> Iterator[Instance | Figure]:
    """Outputs of the target under scaled attention, of the host with the folded scale under attention without one."""
    third, half = Fraction(1, 3), Fraction(1, 2)
    for entry, factor in (((1, 1, 1, 1), third), ((2, 1, 1, 2), third), ((1, 1, 4, 4), half)):
        for shape in both(entry):
            target, m = biased_target(shape, 2, 4), matching_dimension(shape)
            x, host = one_hots([0, shape.d_in - 1, 0], shape.d_in), build_host("sparse", shape, m)
            held = with_scale(target, factor)

            def scaled(queries: plain.Rows, *rest: Any, factor: Fraction = factor) -> plain.Rows:
                return plain.rational_attention([[factor * v for v in row] for row in queries], *rest)

            found = carries(host, embed(host, held.augmented()).E, held, x)
            same = run(target, x, attention=scaled) == run(held, x)
            queries = (
                shape.head_dim * shape.heads * sum((shape.heads + shape.residual) ** t for t in range(shape.layers))
            )
            before, after = equations(target.augmented()), equations(held.augmented())
            columns = [[factor * v if j < queries else v for j, v in enumerate(row)] for row in before] == after
            yield Instance(shape, found.value and same and columns, f"s = {factor}", routes=found.routes, m=m)
