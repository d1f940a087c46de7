"""Trained models: biases and learned positions absorbed, and a scale in the queries.

What layer normalisation breaks is in `new_normalisation`; sizes of hosts for models of one kind, or for one model, are in
`new_trained_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, RationalAttention
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.small_models import array, scaled
from utfproof.claims.streams import (
    BIASES,
    biased_equations,
    biased_target,
    carries_biases,
    folded,
    forward,
    one_hots,
    run_biased,
)
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


def _both(entry: tuple[int, ...], **options: Any) -> Iterator[Shape]:
    """The shape without and with a residual stream."""
    for residual in (False, True):
        yield Shape(*entry, residual=residual, **options)


def _changed(target: BiasedTarget, **tensors: Any) -> BiasedTarget:
    """The target with some of its tensors exchanged."""
    return replace(target, **tensors)


# --- biases --------------------------------------------------------------------------------------------------------


@check("new:trained/biases")
def biases(run: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs at m = M; without one bias they differ; no host of M - 1 dimensions."""
    for entry, width in PLACES:
        for shape in _both(entry):
            m, target = matching_dimension(shape), biased_target(shape, width, 3)
            host, x = build_host("sparse", shape, m), one_hots([0, shape.d_in - 1, 0], shape.d_in)
            found = carries_biases(host, embed(host, target.augmented()).E, target, x)
            counted = all(
                biased_equations(_changed(target, **{name: None})) != biased_equations(target) for name in BIASES
            )
            bound = dimension_certificate(shape, m - 1)
            holds = bool(found) and counted
            yield Instance(shape, holds, f"width {width}; {m} dimensions do", routes=found.routes, m=m)
            yield Instance(shape, not bound.universal, f"{m - 1} dimensions are too few", bound, m=m - 1)
    yield Figure("biases", len(BIASES))
    yield Figure("M at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1)))
    yield Figure("M_res at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1, residual=True)))


def _given(*sums: Any) -> tuple[GivenAttention, plain.Attention]:
    """One token, every head of layer l with the attention matrix (sums[l])."""

    def attention(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        return [[sums[layer - 1]]]

    return GivenAttention(array([[[[value]]] for value in sums])), attention


@check("new:trained/row-sums")
def row_sums(run: Run) -> Iterator[Instance | Figure]:
    """Outputs for the attention matrix (1/2), of the augmented matrices and of those with b_O folded; package and plain."""
    half = Fraction(1, 2)
    for entry, width in (((1, 1, 1, 1), 1), ((1, 2, 1, 2), 2), ((2, 2, 1, 1), 2)):
        shape = Shape(*entry, residual=True)
        target, x = _plain_ones(shape, width, "b_O"), one_hots([0], shape.d_in)
        if shape.layers > 1:
            target = biased_target(shape, width, 3)
        kernel, attention = _given(*[half] * shape.layers)
        kernel = GivenAttention(np.repeat(kernel.matrices, shape.heads, axis=1))
        truth = run_biased(target, x, attention)
        for part, held in (("", target), ("repair", folded(target))):
            host = build_host("sparse", shape)
            E = embed(host, held.augmented()).E
            package = plain.rows(held.augmented().forward(array(x), kernel))
            ours = forward(host, x, plain.rows(E), attention)
            both = agree({"augmented matrices": package == truth, "host, plain Fractions": ours == truth})
            yield Instance(shape, bool(both), "outputs for row sums of 1/2", routes=both.routes, part=part)
            if not part and shape.layers == 1:
                name = "output at (1,1,1,1), and of the augmented matrices"
                yield Figure(name, f"{truth[0][0]}, {package[0][0]}")


def _plain_ones(shape: Shape, width: int, *names: str) -> BiasedTarget:
    """No biases but these, all ones; W_Q, W_K, W_V, W_O zero; W_E, W_U ones on the diagonal."""
    blank = biased_target(shape, width)
    changed = {name: 0 * getattr(blank, name) for name in ("W_Q", "W_K", "W_V", "W_O", *BIASES)}
    changed |= {name: changed[name] + 1 for name in names}
    changed |= {
        "W_E": array([[int(i == j) for j in range(width)] for i in range(shape.d_in)]),
        "W_U": array([[int(i == j) for j in range(shape.d_out)] for i in range(width)]),
    }
    return _changed(blank, **changed)


class _Seen:
    """Attention matrices from outside; keeps the queries and keys that it was shown."""

    row_stochastic = True  # it is not: what happens then is the question
    logits_only = True

    def __init__(self, sums: tuple[int, ...]) -> None:
        self.sums, self.shown = sums, []  # type: tuple[int, ...], list[Any]

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> np.ndarray:
        return array(self.plain(plain.rows(queries), plain.rows(keys), layer + 1, head))

    def plain(self, queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        """The same for `plain`'s forward passes."""
        self.shown.append((queries, keys))
        return [[self.sums[layer - 1]]]


SCALES = ((1, 1), (2, 1), (1, 2))
"""Row sums of two layers."""


@check("new:trained/row-sums-needed")
def row_sums_needed(run: Run) -> Iterator[Instance | Figure]:
    """For one bias alone: is the target homogeneous (plain), and does the prefix tree with its E agree with it (package)?"""
    shape, carried = Shape(1, 2, 1, 1), []
    x, host = [[1]], build_host("sparse", shape)
    places = [("b_E", None), ("b_U", None)] + [(name, at) for name in ("b_Q", "b_K", "b_V", "b_O") for at in (0, 1)]
    for name, layer in sorted(places, key=str):
        ones = _plain_ones(shape, 1, "W_Q", "W_K", "W_V", "W_O")
        bias = ones.bias(name) * 0 + 1 if layer is None else ones.bias(name) * 0
        if layer is not None:
            bias[layer] += 1
        target = _changed(ones, **{name: bias})
        E = embed(host, target.augmented()).E
        homogeneous = agreeing = True
        first = None
        for sums in SCALES:
            slow, own = _Seen(sums), _Seen(sums)
            output = run_biased(target, x, slow.plain)[0][0]
            (q1, k1), (q2, k2) = ([v[0][0] for v in pair] for pair in slow.shown)
            first = (q1, k1, q2, k2, output) if first is None else first
            a, b = sums
            homogeneous &= (q1, k1, q2, k2, output) == (
                first[0], first[1], a * first[2], a * first[3], a * b * first[4]
            )  # fmt: skip
            found = host.forward(array(x), E, own)[0, 0]
            shown = [(plain.rows(array(q)), plain.rows(array(k))) for q, k in own.shown]
            agreeing &= (shown, found) == (slow.shown, output)
        both = agree({"definition": homogeneous, "host": agreeing})
        expected = name == "b_E" or (layer == 0 and name != "b_O")
        where = name if layer is None else f"{name} of layer {layer + 1}"
        carried += [where] if both else []
        yield Instance(where, bool(both) == expected, "carried" if both else "not homogeneous", routes=both.routes)
    yield Figure("carried for every attention", ", ".join(carried))


@check("new:trained/rank")
def rank(run: Run) -> Iterator[Instance | Figure]:
    """Rank of the output block of the word through head 0 alone, with biases and without: FLINT and plain; two definitions."""
    for entry in ((1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 1, 2), (1, 1, 2, 3)):
        for shape in _both(entry):
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
    unit = array(plain.identity(D))
    b_O = 0 * target.bias("b_O") + 1 if biased else None
    target = _changed(target, **dict.fromkeys(BIASES), W_V=W_V, W_O=W_O, W_E=unit, W_U=unit)
    target = replace(target, b_O=b_O)
    L, letters = shape.layers, shape.heads + shape.residual
    start = matching_dimension(shape) - shape.d_out * letters**L + shape.d_out * int(shape.residual)
    columns = slice(start, start + shape.d_out)
    own = [row[columns] for row in plain.rows(w_all(target.augmented()))]
    slow = [row[columns] for row in biased_equations(target)]
    return rank_of_matrix(agree({"augmented": own, "definition": slow}).value)


# --- positions and scales ------------------------------------------------------------------------------------------


@check("new:trained/positions")
def positions(run: Run) -> Iterator[Instance | Figure]:
    """Outputs by looking embeddings up against the host's, for three constants; and for ones on both."""
    for entry, V, P in (((1, 1, 1), 1, 1), ((2, 1, 1), 2, 2), ((1, 2, 1), 2, 3)):
        for shape in _both((*entry, V + P), d_out=V):
            target = biased_target(shape, 2, 5, positions=P)
            tokens = [i * (V - 1) % V for i in range(P)]
            x = one_hots(tokens, V + P, P)
            truth = _looked_up(target, tokens, V)
            host, held = build_host("sparse", shape), []
            for t in (Fraction(0), Fraction(1, 2), Fraction(1), None):
                c = [1] * (V + P) if t is None else [t] * V + [1 - t] * P
                chosen = replace(target, constant=array(c))
                E = embed(host, chosen.augmented()).E
                own = bool((host.forward(array(x), E, RationalAttention()) == array(truth)).all())
                slow = forward(host, x, plain.rows(E)) == truth
                both = agree({"package": own, "plain Fractions": slow})
                held.append(bool(both))
            unique = _kernel_dimension(V, P) == 1
            detail = "t = 0, 1/2, 1; not ones on both"
            yield Instance(shape, held == [True, True, True, False] and unique, detail, routes=both.routes)
    yield Figure("choices of c at V = 2, P = 3: dimension", _kernel_dimension(2, 3))


def _looked_up(target: BiasedTarget, tokens: list[int], V: int) -> plain.Rows:
    """The model as it was trained: rows W_E[token] + W_pos[place], read by what follows as they are."""
    table = plain.rows(target.W_E)
    rows = [[a + b for a, b in zip(table[t], table[V + i], strict=True)] for i, t in enumerate(tokens)]
    width = target.width
    after = replace(
        target,
        shape=Shape(*_numbers(target.shape), width, target.shape.d_out, residual=target.shape.residual),
        W_E=None,
        constant=None,
    )
    return run_biased(after, rows)


def _numbers(shape: Shape) -> tuple[int, int, int]:
    return shape.heads, shape.layers, shape.head_dim


def _kernel_dimension(V: int, P: int) -> int:
    """Dimension of the c with X c = 0 for every token and place: two vectors c with X c = 1 differ by one of these."""
    pairs = [[int(j == t) for j in range(V)] + [int(j == i) for j in range(P)] for t in range(V) for i in range(P)]
    return V + P - rank_of_matrix(pairs).value


@check("new:trained/scale")
def scale(run: Run) -> Iterator[Instance | Figure]:
    """Outputs of the target under scaled attention, of the host with the folded scale under attention without one."""
    for entry, factor in (
        ((1, 1, 1, 1), Fraction(1, 3)),
        ((2, 1, 1, 2), Fraction(1, 3)),
        ((1, 1, 4, 4), Fraction(1, 2)),
    ):
        for shape in _both(entry):
            target = biased_target(shape, 2, 4)
            x, m = one_hots([0, shape.d_in - 1, 0], shape.d_in), matching_dimension(shape)
            host, held = build_host("sparse", shape, m), with_scale(target, factor)
            E = plain.rows(embed(host, held.augmented()).E)
            truth = run_biased(target, x, scaled if factor == Fraction(1, 3) else _halved)
            found = carries_biases(host, E, held, x)
            both = agree(
                {
                    "package": plain.rows(host.forward(array(x), array(E), RationalAttention())) == truth,
                    "plain Fractions": forward(host, x, E) == truth,
                }
            )
            queries = _queries(shape)
            before, after = biased_equations(target), plain.rows(w_all(held.augmented()))
            columns = all(
                w == (factor * v if j < queries else v)
                for r, s in zip(before, after, strict=True)
                for j, (v, w) in enumerate(zip(r, s, strict=True))
            )
            yield Instance(shape, bool(both) and bool(found) and columns, f"s = {factor}", routes=both.routes, m=m)


def _halved(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
    """Attention with logits times 1/2."""
    return plain.rational_attention([[Fraction(v) / 2 for v in row] for row in queries], keys, layer, head)


def _queries(shape: Shape) -> int:
    """Query columns of W_all, counted."""
    letters = shape.heads + shape.residual
    return sum(shape.head_dim * shape.heads for at in range(shape.layers) for _ in plain.words(letters, at))
