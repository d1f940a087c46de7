"""Section 2: the definitions, as the package computes them and as plain Fractions do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Instance, agree, each
from utfproof.claims.decisions import (
    decided,
    matched,
    outputs,
    small_input,
)
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import drawn
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.matching import embed, isolating_target, r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal

CONTEXTS = (1, 2, 3)
KERNEL = RationalAttention()


@each("def:transformer")
def transformer(shape: Shape) -> Iterator[Instance]:
    """Target.forward over object arrays against the definition in Fractions."""
    found = [outputs(integer_target(shape), small_input(shape, n), kernel=KERNEL) for n in CONTEXTS]
    sizes = [(len(y.value), len(y.value[0])) for y in found]
    yield found[0].at(shape, "n = 1, 2, 3", holds=sizes == [(n, shape.d_in) for n in CONTEXTS])


@each("def:utf-model")
def model(shape: Shape) -> Iterator[Instance]:
    """Universal.forward over object arrays and index maps against the definition in Fractions."""
    for host in (integer_host(shape, 2), build_host("sparse", shape)):
        E = drawn(2, shape.d_in, host.m)
        found = [outputs(host, small_input(shape, n), E, kernel=KERNEL) for n in CONTEXTS]
        yield found[0].at(shape, host.construction or "dense integers", holds=all(map(bool, found)), m=host.m)


@each("def:universal-transformer")
def definition(shape: Shape) -> Iterator[Instance]:
    """Certificates for the prefix tree; a host of zeros against a target that is not zero."""
    yield decided("sparse", shape)
    target = isolating_target(shape, matching_dimension(shape) - 1)
    wanted = outputs(target, [[1] * shape.d_in, [2] * shape.d_in], kernel=KERNEL)
    yield wanted.at(shape, "not universal: zeros give 0, this target does not", holds=any(map(any, wanted.value)))


@each("sec:preliminaries/description")
def description(shape: Shape) -> Iterator[Instance]:
    """A rank certificate with m = M; two targets, two embeddings, both matched by the same host."""
    unique = decided("sparse", shape)
    yield replace(unique, holds=unique.holds is True and unique.m == matching_dimension(shape))
    host, targets = build_host("sparse", shape), [integer_target(shape, seed) for seed in (0, 1)]
    both = [matched(host, target) for target in targets]
    first, second = (plain.rows(embed(host, target).E) for target in targets)
    apart = agree({"E": first != second, "W_all": plain.equations(targets[0]) != plain.equations(targets[1])})
    yield both[0].at(shape, "two targets, two embeddings", holds=all(both) and bool(apart))


@each("def:looped-utf")
def looped(shape: Shape) -> Iterator[Instance]:
    """Looped against repeated layers: forward passes and R_all."""
    host, L = integer_host(shape, 2, tied=True), shape.layers
    repeated = Universal(shape, 2, [host.R_Q] * L, [host.R_K] * L, [host.R_V] * L, host.U)
    E, inputs = drawn(2, shape.d_in, 2), [small_input(shape, n) for n in CONTEXTS]
    ours, theirs = ([outputs(one, x, E, kernel=KERNEL) for x in inputs] for one in (host, repeated))
    columns = agree({"systems": plain.rows(r_all(host)), "plain Fractions": plain.equations(host)})
    holds = ours == theirs and columns.value == plain.rows(r_all(repeated))
    yield columns.at(shape, "outputs and R_all", holds=holds, m=2)
