"""Below M for d >= d_in, and lower bounds: what is known of the least m functionally and by attention-matching."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import ExactKernel, decided, exact_emulation, figures, rank_of_matrix, small_input
from utfproof.claims.small_models import LOGIT_MAPS, array, drawn
from utfproof.constructions import build_host, random_target
from utfproof.constructions.random import integer_target
from utfproof.errors import OutsideClass, SingularTarget
from utfproof.matching import embed
from utfproof.shapes import (
    EffectiveHeadDimensionWarning,
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_looped_dimension,
    shared_key_dimension,
    shared_query_dimension,
)
from utfproof.systems import Target, Universal, prefix_products

TABLE = [(4, 2, 24, 4), (2, 4, 30, 30)]
"""The table shapes with d >= d_in."""
SHARED = ("shared-key", "shared-query")


def _wide(shape: Shape) -> bool:
    return shape.head_dim >= shape.d_in


@check("new:shared-key")
def shared_key(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates, and the dimension formula at the certified m."""
    yield from _shared(run, "shared-key", lambda s: s.d_in * (1 + 2 * s.word_count))


@check("new:shared-query")
def shared_query(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates, and the dimension formula at the certified m."""
    yield from _shared(run, "shared-query", lambda s: s.d_in * (s.word_count + s.leaves))


def _shared(run: Run, name: str, formula: Callable[[Shape], int]) -> Iterator[Instance | Figure]:
    for shape in run.shapes(_wide, anchors=[(1, 1, 1, 1), *TABLE], largest=3000):
        yield served(name, shape, least=formula(shape))
    yield from figures("m", formula, TABLE)


def _refused(host: Universal, target: Target, error: type[Exception]) -> bool:
    """Whether `embed` raises this error."""
    try:
        embed(host, target)
    except error:
        return True
    return False


@check("new:shared/emulation")
def shared_emulation(run: Run) -> Iterator[Instance | Figure]:
    """Exact emulation of an integer target under each attention map."""
    maps = {"plain": plain.rational_attention, **LOGIT_MAPS}
    for shape in (Shape(1, 1, 1, 1), Shape(2, 1, 2, 2), Shape(2, 2, 1, 1), Shape(2, 2, 2, 2)):
        for name in SHARED:
            host, target = build_host(name, shape), _invertible_target(shape)
            for kind, attention in maps.items():
                found = exact_emulation(host, target, (1, 3), attention)
                yield Instance(
                    f"{label(shape)}, {name}, {kind}", bool(found), "equal rational outputs", routes=found.routes
                )


def _invertible_target(shape: Shape) -> Target:
    """An integer target with nonzero queries and keys and invertible M^{l,0}: the first seed that has them."""
    for seed in range(200):
        target = integer_target(shape, seed)
        forms = [plain.product(target.parameters(layer, 0)[2:]) for layer in range(shape.layers)]
        logits = [target.attention_form(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]
        if all(plain.rank(form) == shape.d_in for form in forms) and all(form.any() for form in logits):
            return target
    raise AssertionError(f"no target with invertible forms at {shape} among 200 seeds")


@check("new:shared/separate-attention")
def separate_attention(run: Run) -> Iterator[Instance | Figure]:
    """Exact emulation under an attention that is no function of the logits."""
    for shape in (Shape(1, 1, 2, 2), Shape(2, 1, 2, 2), Shape(2, 2, 1, 1), Shape(2, 2, 2, 2)):
        target = _invertible_target(shape)
        for name in (*SHARED, "tied"):
            found = exact_emulation(build_host(name, shape), target, (3,), plain.separate_attention)
            holds = found.value is (name == "tied")
            yield Instance(f"{label(shape)}, {name}", holds, f"equal outputs: {found.value}", routes=found.routes)


@check("new:shared/rope")
def rope(run: Run) -> Iterator[Instance | Figure]:
    """Float forward passes of host and target under two kernels."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.emulation.compare import random_input, relative_error

    shape = Shape(2, 2, 4, 4)
    target, x = random_target(shape, seed=1), random_input(shape, 6, 1)
    target = replace(target, W_Q=3 * target.W_Q, W_K=3 * target.W_K)  # logits of order 1 and more
    small = large = 0
    for name in SHARED:
        host = build_host(name, shape)
        E = embed(host, target).E
        for kind, kernel in (
            ("causal ALiBi", SoftmaxAttention(causal=True, alibi_heads=2)),
            ("RoPE", SoftmaxAttention(rope_base=100.0)),
        ):
            error = relative_error(host.forward(x, E, kernel), target.forward(x, kernel))
            holds = error > 0.1 if kind == "RoPE" else error < 1e-9
            small, large = small + (error < 1e-9), large + (error > 0.1)
            yield Instance(f"{label(shape)}, {name}, {kind}", holds, f"relative error {error:.1e}")
    yield Figure("errors below 1e-9 with causal ALiBi", small)
    yield Figure("errors above 0.1 with RoPE", large)


@check("new:shared/not-by-matching")
def not_by_matching(run: Run) -> Iterator[Instance | Figure]:
    """The matching refutation of each host."""
    for shape in run.shapes(_wide, anchors=[(1, 1, 1, 1), *TABLE], largest=3000):
        for name, least in (("shared-key", shared_key_dimension), ("shared-query", shared_query_dimension)):
            if least(shape) < matching_dimension(shape):
                found = decided(name, shape)
                yield Instance(shape, found.holds is False, f"{name}, {found.detail}", found.certificate, m=found.m)
    yield from figures("M", matching_dimension, TABLE)


@check("new:shared-query/singular")
def singular(run: Run) -> Iterator[Instance | Figure]:
    """The refusal; the register forced by the output equations; ranks of forced and wanted logit forms."""
    for shape in (Shape(1, 1, 1, 1), Shape(2, 1, 2, 2), Shape(2, 2, 1, 1), Shape(2, 2, 2, 2)):
        target = _invertible_target(shape)
        W_V, W_Q, W_K = target.W_V.copy(), target.W_Q.copy(), target.W_K.copy()
        W_V[-1][0] = 0
        for head in range(shape.heads):
            W_Q[-1][head] = W_K[-1][head] = np.eye(shape.d_in, shape.head_dim, dtype=int).astype(object)
        broken = Target(shape, W_Q, W_K, W_V, target.W_O)
        host = build_host("shared-query", shape)
        refused = _refused(host, broken, SingularTarget)
        # layer L reads the query block of the empty word behind word w: column e_(0...0) of R_w = block (w,0) of E
        last = shape.layers - 1
        words, reader = list(plain.words(shape.heads, last)), plain.rows(host.maps(last, 0).query)
        reads = [plain.multiply(plain.routed(host, (*word, 0)), plain.rows(host.U)) for word in words]
        queries = [plain.multiply(plain.routed(host, word), reader) for word in words]
        zeros = [0] * (shape.head_dim - shape.d_out)
        same = [[[*row, *zeros] for row in read] for read in reads] == queries
        have, need = (
            rank_of_matrix(products.reshape(-1, shape.d_in))
            for products in (prefix_products(broken, shape.layers)[:: shape.heads], prefix_products(broken, last))
        )
        holds = refused and same and have.value == 0 < need.value
        yield Instance(shape, holds, f"query rank {have.value}, wanted {need.value}", routes=need.routes)


@check("new:shared/width")
def width(run: Run) -> Iterator[Instance | Figure]:
    """Exact emulation at every width up to d_in; refusal above."""
    for shape in (Shape(1, 1, 2, 2), Shape(2, 2, 2, 2), Shape(2, 1, 3, 3)):
        for name in SHARED:
            host = build_host(name, shape)
            for D in range(1, shape.d_in + 2):
                target = _narrow_target(shape, D)
                at = f"{label(shape)}, {name}, D = {D}"
                if shape.d_in >= D:
                    found = exact_emulation(host, target, (2,))
                    yield Instance(at, bool(found), "equal rational outputs", routes=found.routes)
                    continue
                refused = _refused(host, target, OutsideClass)
                outside = agree({"embed": refused, "widths": min(shape.head_dim, shape.d_in) < D})
                yield Instance(at, bool(outside), "refused", routes=outside.routes)


def _narrow_target(shape: Shape, D: int) -> Target:
    """An integer target of width D with unimodular forms in head 0 and W_E, W_U of full rank."""

    def triangular(rows: int, columns: int, seed: int) -> np.ndarray:
        noise = drawn(seed, rows, columns)
        return array([[1 if i == j else noise[i][j] * int(j > i) for j in range(columns)] for i in range(rows)])

    L, H, d = shape.layers, shape.heads, shape.head_dim

    def grid(rows: int, columns: int, seed: int) -> np.ndarray:
        parts = [triangular(rows, columns, seed + 10 * layer + head) for layer in range(L) for head in range(H)]
        return np.stack(parts).reshape(L, H, rows, columns)

    W_E, W_U = triangular(shape.d_in, D, 5), triangular(D, shape.d_out, 6)
    return Target(shape, grid(D, d, 100), grid(D, d, 200), grid(D, d, 300), grid(d, D, 400), W_E, W_U)


@check("new:effective-head-dimension")
def effective_head_dimension(run: Run) -> Iterator[Instance | Figure]:
    """The narrow target's outputs against the wide one's; the warning."""
    kernel = ExactKernel(plain.rational_attention)
    for entry in ((1, 1, 2, 1), (2, 2, 2, 1), (2, 2, 3, 2)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shape, inner = Shape(*entry), Shape(entry[0], entry[1], entry[3], entry[3])
        warned = [w.category for w in caught] == [EffectiveHeadDimensionWarning]
        target, x = integer_target(shape, 3), small_input(shape, 3)
        logits, values = target.W_Q @ target.W_K.swapaxes(-1, -2), target.W_V @ target.W_O
        identity = np.broadcast_to(array(plain.identity(shape.d_in)), values.shape)
        narrow = Target(inner, logits, identity, values, identity)
        found = agree(
            {
                "plain Fractions": plain.forward(target, x) == plain.forward(narrow, x),
                "systems": bool((target.forward(array(x), kernel) == narrow.forward(array(x), kernel)).all()),
            }
        )
        holds, detail = found.value and warned, f"head dimension {shape.d_in} does the same"
        yield Instance(shape, holds, detail, routes=found.routes)
    yield from figures("M", matching_dimension, ((4, 2, 24, 4), (4, 2, 4, 4)))


@check("new:linear-test")
def linear_test(run: Run) -> Iterator[Instance | Figure]:
    """Linear-test certificates of random hosts, tied and untied."""
    from utfproof.certificates.linear_test import linear_test_certificate

    for shape in run.shapes(_wide, anchors=[(1, 1, 1, 1), (2, 1, 3, 1), (2, 2, 2, 1)], largest=60):
        m = linear_test_dimension(shape)
        counted = (shape.head_dim + shape.d_in) * shape.word_count + shape.d_in * shape.leaves
        for name in ("random", "random-tied"):
            found = linear_test_certificate(name, shape, m)
            below = m < matching_dimension(shape) or shape.head_dim == shape.d_in
            holds = found.universal and below and int(found.document["claim"]["rank"]) == counted == m
            yield Instance(shape, holds, f"{name}, rank {m}, M = {matching_dimension(shape)}", found, m=m)
    anchor = [(4, 2, 24, 4)]
    yield from figures("m", linear_test_dimension, anchor)
    yield from figures("M", matching_dimension, anchor)
    yield from figures("m-bar of the paper, looped,", paper_looped_dimension, anchor)
