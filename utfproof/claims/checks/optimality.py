"""Section 4: the shared-attention model and the lower bound on the embedding dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt
from typing import Any

from utfproof.certificates.dimensions import ALL_UNTIED, least_square_root, logit_form_dimension
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import attention_matching_bound, below, below_root, generic_form_rank, served
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check, each, label
from utfproof.claims.decisions import dense, outputs, small_input
from utfproof.claims.linear import full_rank_host
from utfproof.claims.small_models import Recording, array, drawn, path_sum, stochastic_grid, value_grid
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_dimension
from utfproof.exact import rational
from utfproof.ground.notions import Notion, Scope, Targets
from utfproof.matching import embed, isolating_target, r_all, w_all
from utfproof.shapes import Column, Shape, column_index, head_words, matching_dimension
from utfproof.systems import SharedAttentionUniversal

SMALL = [Shape(1, 1, 1, 1), Shape(2, 1, 1, 2), Shape(2, 2, 1, 2)]


def _attention(system: Any, x: plain.Rows, E: Any = None) -> Agreed:
    """Every attention matrix of a forward pass, by (layer from 1, head)."""
    own, slow = Recording(), Recording()
    outputs(system, x, E, slow.as_plain(), own)
    return agree({"systems": own.matrices, "plain Fractions": slow.matrices})


@check("sec:optimality/upper-bounds-match")
def upper_bounds_match(run: Run) -> Iterator[Instance | Figure]:
    """Attention matrices of host and target, recorded in both forward passes."""
    for shape in SMALL:
        target, x = integer_target(shape, 5), small_input(shape, 3)
        wanted = _attention(target, x)
        hosts = {name: build_host(name, shape) for name in ("sparse", "tied")}
        hosts |= {"random": full_rank_host(shape), "tied random": full_rank_host(shape, tied=True)}
        for name, host in hosts.items():
            E = rational.solve_left(dense(r_all(host)), array(plain.equations(target)))
            holds = E is not None and _attention(host, x, E) == wanted
            yield wanted.at(f"{label(shape)}, {name}", f"{len(wanted.value)} attention matrices", holds=holds)


@check("def:shared-attention")
def shared_attention(run: Run) -> Iterator[Instance | Figure]:
    """Layer by layer in the package against word by word in plain Fractions."""
    for shape in [*SMALL, Shape(2, 3, 1, 1)]:
        for tied in (False, True):
            for n in (2, 3):
                m, x = 3, small_input(shape, n)
                grid, attention = value_grid(shape, m, 1, tied=tied), stochastic_grid(shape, n, 4)
                E, U = drawn(2, shape.d_in, m, head=7), drawn(3, m, shape.d_out, head=8)
                both = _shared(shape, m, grid, E, U, x, attention, tied=tied)
                yield both.at(f"{label(shape)}, {'tied' if tied else 'untied'}, n = {n}", "equal outputs", holds=True)


def _shared(
    shape: Shape, m: int, grid: Any, E: Any, U: Any, x: plain.Rows, attention: Any, *, tied: bool = False
) -> Agreed:
    """Outputs of the shared-attention model with these values."""
    model = SharedAttentionUniversal(shape, m, array(grid[0] if tied else grid), tied)
    own = plain.rows(model.forward(array(x), array(E), array(U), array(attention)))
    return agree({"systems": own, "plain path sum": path_sum(grid, attention, x, E, U)})


@check("sec:optimality/stronger-model")
def stronger_model(run: Run) -> Iterator[Instance | Figure]:
    """The target's attention, recorded, given to the shared-attention model of the same host."""
    for shape in SMALL:
        for name in ("sparse", "tied"):
            host, target, x = build_host(name, shape), integer_target(shape, 5), small_input(shape, 3)
            heads, layers = range(shape.heads), range(shape.layers)
            seen = _attention(target, x).value
            attention = [[seen[layer + 1, h] for h in heads] for layer in layers]
            grid = [[plain.maps(host, layer, h)[2] for h in heads] for layer in layers]
            E = plain.rows(embed(host, target).E)
            found = _shared(shape, host.m, grid, E, plain.rows(host.U), x, attention)
            yield found.at(f"{label(shape)}, {name}", "equal outputs", holds=found.value == plain.forward(target, x))


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


@each("thm:lower_bound_utf/looped-host")
def lower_bound_looped_host(shape: Shape) -> Iterator[Instance]:
    """No tied host at the largest m with m² < H^L."""
    yield below_root(shape, every="tied host")


@check("thm:lower_bound_utf/looped-targets")
def lower_bound_looped_targets(run: Run) -> Iterator[Instance | Figure]:
    """The counting host wherever its m is below the bound; elsewhere what m² ≥ C(L+H-1, H-1) says."""
    for shape in (Shape(heads, layers, 1, 1) for heads, depth in ((2, 8), (3, 7)) for layers in range(1, depth + 1)):
        m, largest = counting_dimension(shape), isqrt(shape.leaves - 1)
        if m * m < shape.leaves:
            found = identity_certificate("counting", shape)
            m = int(found.document["shape"]["m"])
            yield Instance(shape, not found.universal, f"m² = {m * m} < H^L = {shape.leaves}", found, m=m)
        elif largest**2 < m:
            found = dimension_certificate(
                shape, largest, notion=Notion.SHARED_ATTENTION, targets="all tied", free="E and U"
            )
            yield Instance(shape, not found.universal, f"m² = {largest**2} < {m}", found, m=largest)
        else:
            yield Instance(shape, None, f"m² ≥ {m} proved, m² ≥ {shape.leaves} printed", m=largest)


@check("sec:optimality/exponential")
def exponential(run: Run) -> Iterator[Instance | Figure]:
    """No host at H^{L/2} - 1, and H^{(L+2)/2} = H · H^{L/2}."""
    for heads in (2, 3):
        before = 1
        for layers in (2, 4, 6, 8):
            shape = Shape(heads, layers, 1, 1)
            least = least_square_root(shape.leaves)
            found = dimension_certificate(shape, least - 1, notion=Notion.SHARED_ATTENTION, free="E and U")
            holds = not found.universal and least == heads * before
            yield Instance(shape, holds, f"m ≥ {least} = {heads} · {before}", found, m=least - 1)
            before = least


@each("sec:optimality/paths")
def paths(shape: Shape) -> Iterator[Instance]:
    """Products over all words, at the targets that route along one word: the identity matrix."""
    words = list(head_words(shape.heads, shape.layers))
    targets = [isolating_target(shape, column_index(shape, Column("OV", word, 0))) for word in words]
    own = [[int(v) for v in w_all(target)[0, -len(words) :]] for target in targets]
    slow = [plain.equations(target)[0][-len(words) :] for target in targets]
    found = agree({"matching": own, "plain": slow})
    holds = found.value == plain.identity(len(words)) and len(words) == shape.heads**shape.layers
    yield found.at(shape, f"{len(words)} paths", holds=holds)


@each("sec:optimality/compression")
def compression(shape: Shape) -> Iterator[Instance]:
    """No host just below either bound."""
    for free, m in (("E and U", least_square_root(shape.leaves) - 1), ("E", shape.leaves - 1)):
        about = Scope(Notion.SHARED_ATTENTION, Targets.parse(ALL_UNTIED), free=free)
        detail = f"{free} free, H^L = {shape.leaves}"
        yield replace(below(shape, m, Notion.SHARED_ATTENTION, free=free, detail=detail), about=about)
