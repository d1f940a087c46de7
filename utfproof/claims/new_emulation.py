"""New: the emulation lemma. Matching equations give equal outputs, for any attention, any width, and with biases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.decisions import dense, exact_emulation
from utfproof.claims.linear import full_rank_host
from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict, agree, label
from utfproof.claims.registry import claim
from utfproof.claims.small_models import array
from utfproof.claims.wider_targets import PlainBiasedTarget, biased_target, wide_target
from utfproof.constructions import build_host, random_target
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.shapes import Shape
from utfproof.systems import Universal

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]
THEOREM = "docs/proofs/decision-theorem.md"


@claim(
    "new:emulation-lemma/any-attention",
    place="beside Appendix A",
    statement="If E solves the matching equations, host and target have equal outputs for every n and X, for any map from queries, keys and positions to attention matrices.",
    scope="every shape; an attention of logits, and one that looks at queries and keys separately",
    verdict=Verdict.HOLDS.by(Evidence.GRID, Evidence.WRITTEN),
    proof=THEOREM,
    sentence="Layer by layer queries and keys agree, hence attention matrices do; outputs were compared as rational numbers.",
)
def any_attention(run: Run) -> Iterator[Instance | Figure]:
    """Exact forward passes with two attentions."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        target = integer_target(shape, seed=2, bound=1)
        for name in ("sparse", "tied"):
            for attention in (plain.rational_attention, plain.separate_attention):
                equal = exact_emulation(build_host(name, shape), target, contexts=(1, 2), attention=attention)
                yield Instance(f"{name} at {label(shape)}, {attention.__name__}", equal.value, routes=equal.routes)


@claim(
    "new:emulation-lemma/softmax",
    place="beside Appendix A",
    statement="The same host and E emulate the target under softmax with scaling, causal and sliding-window masks, ALiBi and RoPE.",
    scope="(2,2,2,3) and (2,3,2,2), contexts 1 and 9, float64 to 1e-9",
    verdict=Verdict.HOLDS.by(Evidence.SAMPLED),
    sentence="Instances of the lemma, run in float64 with softmax itself.",
)
def softmax_kernels(run: Run) -> Iterator[Instance | Figure]:
    """Outputs side by side in float64."""
    from utfproof.attention import parse_kernel
    from utfproof.emulation.compare import compare

    names = ("softmax", "scaled", "causal", "window:3", "scaled+causal+window:4", "alibi+causal", "rope")
    for place in ((2, 2, 2, 3), (2, 3, 2, 2)):
        shape = Shape(*place)
        kernels = [(name, parse_kernel(name, shape.heads, shape.head_dim)) for name in names]
        for name in ("sparse", "tied"):
            report = compare(build_host(name, shape), [random_target(shape, 1)], kernels, (1, 9), tolerance=1e-9)
            yield Instance(f"{name} at {label(shape)}", report.holds, f"largest error {report.max_relative_error:.1e}")
    yield Figure("kernels", len(names))


@claim(
    "new:emulation-lemma/any-width",
    place="beside Appendix A",
    statement="A host with rank R_all = M carries targets of any width D, with token embedding W_E and unembedding W_U.",
    scope="every shape; widths 1, 3 and 4",
    verdict=Verdict.HOLDS.by(Evidence.GRID, Evidence.WRITTEN),
    proof=THEOREM,
    sentence="The right-hand sides become W_E M_w W_Q, W_E M_w W_K and W_E M_w W_U; full rank accepts any.",
)
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs of targets wider and narrower than the input."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        for width in (1, 3, 4):
            target = wide_target(shape, width, seed=4)
            equal = exact_emulation(build_host("tied", shape), target, contexts=(2,))
            yield Instance(f"D = {width} at {label(shape)}", equal.value, routes=equal.routes)


@claim(
    "new:emulation-lemma/biases",
    place="beside Appendix A",
    statement="On inputs X with Xγ = 1 for one fixed column γ, such as one-hots, and for attention whose rows sum to 1, a full-rank host carries targets with biases of queries, keys, values and outputs.",
    scope="one-hot inputs, attention with row sums 1, every shape",
    verdict=Verdict.HOLDS.by(Evidence.GRID, Evidence.WRITTEN),
    proof=THEOREM,
    sentence="A constant coordinate is carried through all layers (the heads share it out); W_all comes from the augmented matrices, of rank d + 1.",
)
def biases(run: Run) -> Iterator[Instance | Figure]:
    """A target with biases, run as it is, against hosts with E solved for the augmented right-hand side."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        target = biased_target(shape, seed=6)
        for host in (build_host("tied", shape), full_rank_host(shape)):
            augmented = target.w_all()
            E = rational.solve_left(dense(r_all(host)), array(augmented))
            solutions = agree({"equations": _solves(host, E, augmented), "outputs": _biased_outputs(host, target, E)})
            yield Instance(
                f"{host.construction or 'integer host'} at {label(shape)}", solutions.value, routes=solutions.routes
            )


def _solves(host: Universal, E: np.ndarray | None, augmented: plain.Rows) -> bool:
    return E is not None and plain.rows(E @ dense(r_all(host))) == augmented


def _biased_outputs(host: Universal, target: PlainBiasedTarget, E: np.ndarray | None) -> bool:
    one_hots = [[int(j == (2 * i) % host.shape.d_in) for j in range(host.shape.d_in)] for i in range(3)]
    return E is not None and all(
        plain.run_host(host, E, one_hots, attention) == target.run(one_hots, attention)
        for attention in (plain.rational_attention, plain.separate_attention)
    )


@claim(
    "new:emulation-lemma/biases-need-constants",
    place="beside Appendix A",
    statement="Not on every input: at X = 0 every attention-only host gives 0, and a target with biases in general does not.",
    scope="X = 0, at targets with integer biases",
    verdict=Verdict.HOLDS.by(Evidence.GRID),
    sentence="Attention-only hosts map X = 0 to 0 and a target with biases does not: the constant has to come with the input.",
)
def biases_need_constants(run: Run) -> Iterator[Instance | Figure]:
    """X = 0 through a target with biases and through the host."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        target, host = biased_target(shape, seed=6), build_host("tied", shape)
        E = rational.solve_left(dense(r_all(host)), array(target.w_all()))
        assert E is not None
        x = [[0] * shape.d_in for _ in range(2)]
        y = target.run(x, plain.rational_attention)
        differ = agree({"outputs": plain.run_host(host, E, x) != y, "zero output": any(map(any, y))})
        yield Instance(shape, differ.value, "X = 0", routes=differ.routes)
