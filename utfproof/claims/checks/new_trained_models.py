"""Trained models in a fixed host: biases and learned positions absorbed, and a scale in the queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from utfproof.attention import RationalAttention
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import carries, rank_of_matrix
from utfproof.claims.small_models import BIASES, array, biased_target, both, one_hots
from utfproof.constructions import build_host
from utfproof.matching import embed
from utfproof.shapes import Shape, matching_dimension

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
            columns = plain.equations(target.augmented())
            without: list[dict[str, Any]] = [{name: None} for name in BIASES]
            counted = all(plain.equations(replace(target, **none).augmented()) != columns for none in without)
            yield Instance(
                shape, found.value and counted, f"width {width}; {m} dimensions do", routes=found.routes, m=m
            )
            bound = dimension_certificate(shape, m - 1)
            yield Instance(shape, not bound.universal, f"{m - 1} dimensions are too few", bound, m=m - 1)
    yield Figure("biases", len(BIASES))
    yield Figure("M at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1)))
    yield Figure("M_res at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1, residual=True)))


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
            truth = plain.forward(replace(target, shape=inner, W_E=None, constant=None), rows)
            for t in (Fraction(0), Fraction(1, 2), Fraction(1), None):
                c = [1] * (V + P) if t is None else [t] * V + [1 - t] * P
                E = embed(host, replace(target, constant=array(c)).augmented()).E
                own = plain.rows(host.forward(array(x), E, RationalAttention())) == truth
                found = agree({"package": own, "plain Fractions": plain.forward(host, x, plain.rows(E)) == truth})
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
            held = replace(target, W_Q=target.W_Q * factor, b_Q=target.b_Q * factor)

            def scaled(queries: plain.Rows, *rest: Any, factor: Fraction = factor) -> plain.Rows:
                return plain.rational_attention([[factor * v for v in row] for row in queries], *rest)

            found = carries(host, embed(host, held.augmented()).E, held, x)
            same = plain.forward(target, x, attention=scaled) == plain.forward(held, x)
            queries = (
                shape.head_dim * shape.heads * sum((shape.heads + shape.residual) ** t for t in range(shape.layers))
            )
            before, after = plain.equations(target.augmented()), plain.equations(held.augmented())
            columns = [[factor * v if j < queries else v for j, v in enumerate(row)] for row in before] == after
            yield Instance(shape, found.value and same and columns, f"s = {factor}", routes=found.routes, m=m)
