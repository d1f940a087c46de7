"""Section 2: the definitions, as the package computes them and as plain Fractions do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from utfproof.attention import RationalAttention, softmax
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import decided, exact_emulation, matched, rank_of_matrix, small_input, symbolic
from utfproof.claims.hosts import small_embedding, small_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.generator import integer_matrix
from utfproof.matching import embed, isolating_target, r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal

SMALL = ((1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2))
"""Anchors of the forward passes."""


@check("def:softmax")
def row_softmax(run: Run) -> Iterator[Instance | Figure]:
    """Float64 softmax against FLINT balls, with and without a causal mask."""
    import flint

    bits, flint.ctx.prec = flint.ctx.prec, 100
    try:
        for n in range(1, 7):
            logits = integer_matrix(n, "X", n, n, law="uniform") % 480 / 8.0 - 30
            mask = np.tril(np.ones((n, n), dtype=bool))
            rounded, exact = [], []
            for visible in (None, mask):
                found = softmax(logits, visible)
                for i in range(n):
                    seen = range(n if visible is None else i + 1)
                    powers = [flint.arb(float(logits[i, j])).exp() for j in seen]
                    total = sum(powers, flint.arb(0))
                    for j in range(n):
                        rounded.append(float(found[i, j]))
                        exact.append(float((powers[j] / total).mid()) if j in seen else 0.0)
            both = _nearly({"NumPy": rounded, "FLINT balls": exact})
            yield Instance(f"n = {n}", both.value < 2e-15, f"relative error {both.value:.1e}", routes=both.routes)
    finally:
        flint.ctx.prec = bits


def _nearly(routes: Mapping[str, Sequence[float]]) -> Agreed:
    """The largest relative difference of the first route to the second; absolute where that is zero; NaN if one is."""
    ours, exact = routes.values()
    errors = [abs(a - b) / (b or 1) for a, b in zip(ours, exact, strict=True)]
    return Agreed(float(np.max(errors)), tuple(routes))


@check("def:transformer")
def transformer(run: Run) -> Iterator[Instance | Figure]:
    """Target.forward over object arrays against the definition in Fractions."""
    for shape in run.shapes(anchors=SMALL, largest=44):
        target, holds = integer_target(shape), True
        for n in (1, 2, 3):
            x = small_input(shape, n)
            found = plain.rows(target.forward(np.array(x, dtype=object), RationalAttention()))
            both = same({"systems": found, "plain Fractions": plain.run_target(target, x)})
            holds &= both.value and len(found) == n and len(found[0]) == shape.d_in
        yield Instance(shape, holds, "n = 1, 2, 3", routes=both.routes)


@check("def:utf-model")
def model(run: Run) -> Iterator[Instance | Figure]:
    """Universal.forward over object arrays and index maps against the definition in Fractions."""
    for shape in run.shapes(anchors=SMALL, largest=30):
        for host in (small_host(shape, 2, tied=False), build_host("sparse", shape)):
            E, holds = small_embedding(shape, host.m), True
            for n in (1, 2, 3):
                x = small_input(shape, n)
                found = plain.rows(host.forward(np.array(x, dtype=object), E, RationalAttention()))
                both = same({"systems": found, "plain Fractions": plain.run_host(host, E, x)})
                holds &= both.value
            yield Instance(shape, holds, host.construction or "dense integers", routes=both.routes, m=host.m)


@check("def:universal-transformer")
def definition(run: Run) -> Iterator[Instance | Figure]:
    """Certificates for the prefix tree; a host of zeros against a target that is not zero."""
    for shape in run.shapes(anchors=SMALL, largest=60):
        yield decided("sparse", shape)
        target = isolating_target(shape, matching_dimension(shape) - 1)
        x = [[1] * shape.d_in, [2] * shape.d_in]
        wanted = agree(
            {
                "systems": plain.rows(target.forward(np.array(x, dtype=object), RationalAttention())),
                "plain Fractions": plain.run_target(target, x),
            }
        )
        missed = any(any(row) for row in wanted.value)
        yield Instance(shape, missed, "not universal: zeros give 0, this target does not", routes=wanted.routes)


@check("def:universal-transformer/uniform-in-n")
def uniform(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs at n = 1 ... 6 for an E that is computed once; the emulation lemma as words."""
    from utfproof.exact.symbolic import equal_output

    for shape in run.shapes(anchors=SMALL, largest=14):
        holds = exact_emulation(build_host("sparse", shape), integer_target(shape), (1, 2, 3, 6))
        yield Instance(shape, holds.value, "n = 1, 2, 3, 6", routes=holds.routes)
    for heads, layers in ((1, 2), (2, 2)):
        yield symbolic(f"H = {heads}, L = {layers}, every n", equal_output(heads, layers))


@check("sec:preliminaries/description")
def description(run: Run) -> Iterator[Instance | Figure]:
    """A rank certificate with m = M; two targets, two embeddings, both matched by the same host."""
    for shape in run.shapes(anchors=SMALL, largest=30):
        unique = decided("sparse", shape)
        assert unique.m is not None
        yield Instance(
            shape,
            unique.holds is True and unique.m == matching_dimension(shape),
            unique.detail,
            unique.certificate,
            m=unique.m,
        )
        host = build_host("sparse", shape)
        targets = integer_target(shape, 0), integer_target(shape, 1)
        both = [matched(host, target) for target in targets]
        first, second = (plain.rows(embed(host, target).E) for target in targets)
        apart = agree({"E": first != second, "W_all": plain.w_all(targets[0]) != plain.w_all(targets[1])})
        yield Instance(shape, all(both) and bool(apart), "two targets, two embeddings", routes=both[0].routes)


@check("def:utf-model/not-in-its-own-class")
def own_class(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the prefix tree's first R_V by FLINT and plain integers, and by the count."""
    anchors = [(1, 1, 1, 2), (2, 2, 2, 3)]
    for shape in run.shapes(lambda s: s.layers > 1 or s.d_in > s.head_dim, anchors=anchors, largest=44):
        host = build_host("sparse", shape)
        rank = rank_of_matrix(host.maps(0, 0).value[0])
        kept = (matching_dimension(shape) - 2 * shape.head_dim * shape.heads) // shape.heads
        holds = rank.value == kept and kept > shape.head_dim
        yield Instance(shape, holds, f"rank {rank.value}, d = {shape.head_dim}", routes=rank.routes, m=host.m)
        if shape == Shape(2, 2, 2, 3):
            yield Figure("rank of R_V^{1,1} at (2,2,2,3)", rank.value)


@check("def:looped-utf")
def looped(run: Run) -> Iterator[Instance | Figure]:
    """Looped against repeated layers: forward passes and R_all."""
    for shape in run.shapes(anchors=SMALL, largest=30):
        host = small_host(shape, 2, tied=True)
        L = shape.layers
        repeated = Universal(shape, 2, [host.R_Q] * L, [host.R_K] * L, [host.R_V] * L, host.U)
        E, holds = small_embedding(shape, 2), True
        for n in (1, 2, 3):
            x = small_input(shape, n)
            array = np.array(x, dtype=object)
            outputs = {
                "systems": plain.rows(host.forward(array, E, RationalAttention())),
                "plain Fractions": plain.run_host(host, E, x),
            }
            holds &= agree(outputs).value == plain.rows(repeated.forward(array, E, RationalAttention()))
        same = agree({"systems": plain.rows(r_all(host)), "plain Fractions": plain.r_all(host)})
        holds &= same.value == plain.rows(r_all(repeated))
        yield Instance(shape, holds, "outputs and R_all", routes=same.routes, m=2)
