"""Below M for d >= d_in, and lower bounds: what is known of the least m functionally and by attention-matching."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from utfproof.certificates.prover import certify
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import ExactKernel, exact_emulation, figures, rank_of_matrix, small_input
from utfproof.claims.small_models import LOGIT_MAPS, array
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.errors import SingularTarget
from utfproof.matching import embed
from utfproof.shapes import (
    EffectiveHeadDimensionWarning,
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_looped_dimension,
)
from utfproof.systems import Target, Universal, prefix_products
from utfproof.util.notions import Notion

SHARED = ("shared-key", "shared-query")


def _wide(shape: Shape) -> bool:
    return shape.head_dim >= shape.d_in


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
    for shape in run.shapes(_wide, anchors=[(1, 1, 1, 1), (2, 1, 3, 1), (2, 2, 2, 1)], largest=60):
        m = linear_test_dimension(shape)
        counted = (shape.head_dim + shape.d_in) * shape.word_count + shape.d_in * shape.leaves
        for name in ("random", "random-tied"):
            found = certify(name, shape, m, notion=Notion.ATTENTION_MATCHING)
            below = m < matching_dimension(shape) or shape.head_dim == shape.d_in
            holds = found.universal and below and int(found.document["claim"]["rank"]) == counted == m
            yield Instance(shape, holds, f"{name}, rank {m}, M = {matching_dimension(shape)}", found, m=m)
    anchor = [(4, 2, 24, 4)]
    yield from figures("m", linear_test_dimension, anchor)
    yield from figures("M", matching_dimension, anchor)
    yield from figures("m-bar of the paper, looped,", paper_looped_dimension, anchor)
