"""Section 4: the shared-attention model and the lower bound on the embedding dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt

from utfproof.attention import GivenAttention
from utfproof.certificates.dimensions import ALL_UNTIED, dimension_certificate, least_square_root, logit_form_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import attention_matching_bound, below, below_root, generic_form_rank, served
from utfproof.claims.claim import Figure, Instance, Run, agree, check, each, label
from utfproof.claims.decisions import small_input
from utfproof.claims.small_models import array, drawn, path_sum, stochastic_grid, value_grid
from utfproof.constructions.counting import counting_dimension
from utfproof.constructions.random import integer_target
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import SharedAttentionUniversal
from utfproof.util.notions import Notion, Scope


@check("def:shared-attention", "eq:lower_bound_matching_term")
def shared_attention(run: Run) -> Iterator[Instance | Figure]:
    """Layer by layer in the package against word by word in plain Fractions, of host and target under one given attention."""
    for shape in (Shape(*s) for s in [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2), (3, 2, 1, 1), (2, 3, 1, 1)]):
        target, x, one = integer_target(shape, 6), small_input(shape, 2), plain.identity(shape.d_in)
        forms = [[plain.maps(target, layer, h)[2] for h in range(shape.heads)] for layer in range(shape.layers)]
        E, U, attention = drawn(7, shape.d_in, 3), drawn(8, 3, shape.d_out), stochastic_grid(shape, 2, 9)
        for tied in (False, True):
            grid = value_grid(shape, 3, 5, tied=tied)
            model = SharedAttentionUniversal(shape, 3, array(grid[0] if tied else grid))
            own = [
                target.forward(array(x), GivenAttention(array(attention))),
                model.forward(array(x), array(E), array(U), array(attention)),
            ]
            slow = [path_sum(forms, attention, x, one, one), path_sum(grid, attention, x, E, U)]
            both = agree({"systems": list(map(plain.rows, own)), "plain path sum": slow})
            yield both.at(f"{label(shape)}, {'tied' if tied else 'untied'}", "equal outputs", holds=True)


@each("sec:optimality/strictly-stronger")
def strictly_stronger(shape: Shape) -> Iterator[Instance]:
    """The two-sided register's certificate, and the attention-matching bound above its m."""
    bound = attention_matching_bound(shape)
    found = served("two-sided", shape, detail=f"attention-matching needs m ≥ {bound}")
    yield replace(found, holds=found.holds and int(found.m or 0) < bound)
    about = Scope.of(Notion.ATTENTION_MATCHING, ALL_UNTIED)
    yield replace(below(shape, int(found.m or 0), Notion.ATTENTION_MATCHING), about=about)


@each("sec:optimality/attention-matching")
def attention_matching(shape: Shape) -> Iterator[Instance]:
    """No host at m = d_in H^L, which is at least H^{L/2}; the dimension of the logit forms that it would have to hold."""
    m, root = shape.d_in * shape.leaves, least_square_root(shape.leaves)
    detail = f"m ≥ {attention_matching_bound(shape)} > {m} ≥ {root}"
    yield below(shape, m, Notion.ATTENTION_MATCHING, detail=detail, holds=m >= root)
    if matching_dimension(shape) <= 16:
        rank = generic_form_rank(shape)
        yield rank.at(shape, f"logit forms: {rank}", holds=rank.value == logit_form_dimension(shape))


@each("thm:lower_bound_utf/looped-host", "thm:lower_bound_matching_attention/looped-untied-targets")
def lower_bound_looped_host(shape: Shape) -> Iterator[Instance]:
    """No tied host at the largest m with m² < H^L."""
    yield below_root(shape, every="tied host")


@check("thm:lower_bound_utf/looped-targets")
def lower_bound_looped_targets(run: Run) -> Iterator[Instance | Figure]:
    """The counting host wherever its m is below the bound; elsewhere what m² ≥ C(L+H-1, H-1) says."""
    for shape in (Shape(heads, layers, 1, 1) for heads, depth in ((2, 8), (3, 7)) for layers in range(1, depth + 1)):
        m, largest = counting_dimension(shape), isqrt(shape.leaves - 1)
        if m * m < shape.leaves:
            host = served("counting", shape, detail=f"m² = {m * m} < H^L = {shape.leaves}")
            yield replace(host, holds=not host.holds)
        elif largest**2 < m:
            found = dimension_certificate(
                shape, largest, notion=Notion.SHARED_ATTENTION, targets="all tied", free="E and U"
            )
            yield Instance(shape, not found.universal, f"m² = {largest**2} < {m}", found, m=largest)
        else:
            yield Instance(shape, None, f"m² ≥ {m} proved, m² ≥ {shape.leaves} printed", m=largest)
