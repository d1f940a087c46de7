"""New: the emulation lemma. Matching equations give equal outputs, for any attention, any width, and with biases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import dense, exact_emulation
from utfproof.claims.linear import full_rank_host
from utfproof.claims.small_models import array
from utfproof.claims.wider_targets import PlainBiasedTarget, biased_target, wide_target
from utfproof.constructions import build_host, random_target
from utfproof.constructions.random import integer_target
from utfproof.exact import rational
from utfproof.matching import r_all
from utfproof.shapes import Shape
from utfproof.systems import Universal

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]


@check("new:emulation-lemma/any-attention")
def any_attention(run: Run) -> Iterator[Instance | Figure]:
    """Exact forward passes with two attentions."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        target = integer_target(shape, seed=2, bound=1)
        for name in ("sparse", "tied"):
            for attention in (plain.rational_attention, plain.separate_attention):
                equal = exact_emulation(build_host(name, shape), target, contexts=(1, 2), attention=attention)
                yield Instance(f"{name} at {label(shape)}, {attention.__name__}", equal.value, routes=equal.routes)


@check("new:emulation-lemma/softmax")
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


@check("new:emulation-lemma/any-width")
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs of targets wider and narrower than the input."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        for width in (1, 3, 4):
            target = wide_target(shape, width, seed=4)
            equal = exact_emulation(build_host("tied", shape), target, contexts=(2,))
            yield Instance(f"D = {width} at {label(shape)}", equal.value, routes=equal.routes)


@check("new:emulation-lemma/biases")
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


@check("new:emulation-lemma/biases-need-constants")
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
