"""The local test of mathematics: a full-rank Jacobian at one solution reaches all nearby targets, below M too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, check
from utfproof.claims.decisions import rank_of_matrix
from utfproof.claims.small_models import seven_dimension_embedding, seven_dimension_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.decision.local_test import local_test
from utfproof.matching import embed
from utfproof.systems import Target, prefix_products


@check("new:local-test/seven")
def seven(run: Run) -> Iterator[Instance | Figure]:
    """The exact rank of the Jacobian, by FLINT and by plain integers."""
    host, examined = seven_dimension_host(), 0
    for seed in range(60):
        target = integer_target(host.shape, seed, bound=3)
        E = seven_dimension_embedding(target)
        if E is None or examined == 6 or plain.rank(plain.rows(target.attention_form(0, 0))) == 0:
            continue
        found = local_test(host, target, np.array(E, dtype=object))
        ranks = rank_of_matrix(found.jacobian)
        detail = f"rank {ranks.value} of {found.equations}"
        yield Instance(f"target {examined}", found.rank == ranks.value == found.equations, detail, routes=ranks.routes)
        if examined == 0:
            yield Figure("rank", ranks.value)
            yield Figure("equations", found.equations)
            yield Figure("unknowns", found.unknowns)
        examined += 1


@check("new:local-test/at-M")
def at_matching_dimension(run: Run) -> Iterator[Instance | Figure]:
    """The tied host at m = M, at targets whose queries have full rank."""
    for shape in run.shapes(lambda s: s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), (2, 2, 1, 2)], largest=20):
        host = build_host("tied", shape)
        target = next(
            found for found in (integer_target(shape, seed) for seed in range(100)) if _queries_have_full_rank(found)
        )
        found = local_test(host, target, embed(host, target).E)
        ranks = rank_of_matrix(found.jacobian)
        trivial = all((gauge == np.eye(shape.head_dim, dtype=object)).all() for row in found.gauges for gauge in row)
        holds = trivial and found.rank == ranks.value == found.equations
        yield Instance(shape, holds, f"rank {ranks.value} of {found.equations}", routes=ranks.routes, m=host.m)


def _queries_have_full_rank(target: Target) -> bool:
    """Every head's stacked queries M_w W_Q have rank d, so that gauges are determined."""
    shape = target.shape
    stacked = [np.concatenate(prefix_products(target, layer)) for layer in range(shape.layers)]
    queries = (rows @ target.parameters(layer, h)[0] for layer, rows in enumerate(stacked) for h in range(shape.heads))
    return all(plain.rank(matrix) == shape.head_dim for matrix in queries)
