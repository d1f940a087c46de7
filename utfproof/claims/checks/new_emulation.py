"""New: the emulation lemma. Matching equations give equal outputs, for any attention, any width, and with biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utfproof.attention import parse_kernel
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, check, label
from utfproof.claims.decisions import exact_emulation
from utfproof.claims.small_models import array, drawn
from utfproof.constructions import build_host, random_target
from utfproof.constructions.random import integer_target
from utfproof.emulation.compare import compare
from utfproof.shapes import Shape
from utfproof.systems import Target

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
    names = ("softmax", "scaled", "causal", "window:3", "scaled+causal+window:4", "alibi+causal", "rope")
    for place in ((2, 2, 2, 3), (2, 3, 2, 2)):
        shape = Shape(*place)
        kernels = [(name, parse_kernel(name, shape.heads, shape.head_dim)) for name in names]
        for name in ("sparse", "tied"):
            report = compare(build_host(name, shape), [random_target(shape, 1)], kernels, (1, 9), tolerance=1e-9)
            yield Instance(f"{name} at {label(shape)}", report.holds, f"largest error {report.max_relative_error:.1e}")
    yield Figure("kernels", len(names))


def _wide_target(shape: Shape, width: int) -> Target:
    """A target of this width with small integer weights, W_E [d_in, D] and W_U [D, d_in]."""
    inner = integer_target(Shape(shape.heads, shape.layers, shape.head_dim, width), 4, bound=1)
    return replace(inner, shape=shape, W_E=array(drawn(4, shape.d_in, width)), W_U=array(drawn(5, width, shape.d_out)))


@check("new:emulation-lemma/any-width")
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs of targets wider and narrower than the input."""
    for shape in run.shapes(anchors=SMALLEST, largest=14):
        for width in (1, 3, 4):
            equal = exact_emulation(build_host("tied", shape), _wide_target(shape, width), contexts=(2,))
            yield Instance(f"D = {width} at {label(shape)}", equal.value, routes=equal.routes)
