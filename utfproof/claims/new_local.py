"""The local test of mathematics: a full-rank Jacobian at one solution reaches all nearby targets, below M too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.claims.small_models import seven_dimension_embedding, seven_dimension_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.decision.local_test import local_test
from utfproof.exact import rational
from utfproof.ground.notions import Notion, Scope
from utfproof.matching import embed


@claim(
    "new:local-test/seven",
    place="docs/proofs/fibre-dimension.md, the host of seven dimensions",
    statement="At (2,1,1,2) and m = 7 < M = 8 the equations E R_Q = W_Q G, E R_K = W_K G^{-T}, E R_V U = M have a Jacobian of full rank in (E, gauges G) at integer targets: all targets near these are reached.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "some untied, if near those examined"),
    scope="(2,1,1,2); six integer targets",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="16 equations, 14 entries of E and 2 gauges: rank 16, so the implicit function theorem applies; at m = 6 there are 14 unknowns only.",
)
def seven(run: Run) -> Iterator[Instance | Figure]:
    """The exact rank of the Jacobian, by FLINT and by plain integers."""
    host, examined = seven_dimension_host(), 0
    for seed in range(60):
        target = integer_target(host.shape, seed, bound=3)
        E = seven_dimension_embedding(target)
        if E is None or examined == 6 or plain.rank(plain.rows(target.attention_form(0, 0))) == 0:
            continue
        found = local_test(host, target, np.array(E, dtype=object))
        ranks = agree({"FLINT": rational.rank(found.jacobian), "plain integers": plain.rank(found.jacobian)})
        detail = f"rank {ranks.value} of {found.equations}"
        yield Instance(f"target {examined}", found.rank == ranks.value == found.equations, detail, routes=ranks.routes)
        if examined == 0:
            yield Figure("rank", ranks.value)
            yield Figure("equations", found.equations)
            yield Figure("unknowns", found.unknowns)
        examined += 1


@claim(
    "new:local-test/at-M",
    place="utfproof/decision/local_test.py",
    statement="At a host that is universal by matching the Jacobian has full rank d_in M, with trivial gauges: the local test agrees with the decision by rank.",
    about=Scope.of(Notion.ATTENTION_MATCHING, "some untied, if near one integer target"),
    scope="d ≤ d_in, M ≤ 20, the tied host, at a target whose queries have rank d in every head",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="R_all has rank M, so the columns of E alone reach every right-hand side.",
)
def at_matching_dimension(run: Run) -> Iterator[Instance | Figure]:
    """The tied host at m = M, at targets whose queries have full rank."""
    for shape in run.shapes(lambda s: s.head_dim <= s.d_in, anchors=[(1, 1, 1, 1), (2, 2, 1, 2)], largest=20):
        host = build_host("tied", shape)
        target = next(
            found for found in (integer_target(shape, seed) for seed in range(100)) if _queries_have_full_rank(found)
        )
        found = local_test(host, target, embed(host, target).E)
        ranks = agree({"FLINT": rational.rank(found.jacobian), "plain integers": plain.rank(found.jacobian)})
        trivial = all((gauge == np.eye(shape.head_dim, dtype=object)).all() for row in found.gauges for gauge in row)
        holds = trivial and found.rank == ranks.value == found.equations
        yield Instance(shape, holds, f"rank {ranks.value} of {found.equations}", routes=ranks.routes, m=host.m)


def _queries_have_full_rank(target: object) -> bool:
    """Every head's stacked queries M_w W_Q have rank d, so that gauges are determined."""
    from utfproof.systems import Target, prefix_products

    assert isinstance(target, Target)
    for layer in range(target.shape.layers):
        prefixes = prefix_products(target, layer)
        for head in range(target.shape.heads):
            w_q = target.parameters(layer, head)[0]
            if plain.rank(np.concatenate([prefix @ w_q for prefix in prefixes])) < target.shape.head_dim:
                return False
    return True
