"""Section 4: the shared-attention model and the lower bound on the embedding dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt

from utfproof.certificates.dimensions import ALL_UNTIED, least_square_root, logit_form_dimension
from utfproof.claims import plain
from utfproof.claims.bounds import attention_matching_bound, below, below_root, generic_form_rank, served
from utfproof.claims.claim import Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import dense, small_input
from utfproof.claims.linear import full_rank_host
from utfproof.claims.small_models import Recording, array, drawn, path_sum, stochastic_grid, value_grid
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_dimension
from utfproof.exact import rational
from utfproof.ground.notions import Notion, Scope, Targets
from utfproof.matching import embed, r_all
from utfproof.shapes import Shape, head_words, matching_dimension
from utfproof.systems import SharedAttentionUniversal

SMALL = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]


@check("sec:optimality/upper-bounds-match")
def upper_bounds_match(run: Run) -> Iterator[Instance | Figure]:
    """Attention matrices of host and target, recorded in both forward passes."""
    for shape in (Shape(*entry) for entry in SMALL):
        target, x = integer_target(shape, 5), small_input(shape, 3)
        hosts = {name: build_host(name, shape) for name in ("sparse", "tied")}
        hosts |= {"random": full_rank_host(shape), "tied random": full_rank_host(shape, tied=True)}
        for name, host in hosts.items():
            E = rational.solve_left(dense(r_all(host)), array(plain.w_all(target)))
            assert E is not None, "R_all has full rank"
            ours, theirs, slow_ours, slow_theirs = (Recording() for _ in range(4))
            host.forward(array(x), E, ours)
            target.forward(array(x), theirs)
            plain.run_host(host, E, x, slow_ours.as_plain())
            plain.run_target(target, x, slow_theirs.as_plain())
            found = agree(
                {
                    "systems": ours.matrices == theirs.matrices,
                    "plain Fractions": slow_ours.matrices == slow_theirs.matrices,
                }
            )
            count = len(theirs.matrices)
            at = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}), {name}"
            yield Instance(at, bool(found), f"{count} attention matrices", routes=found.routes)


@check("def:shared-attention")
def shared_attention(run: Run) -> Iterator[Instance | Figure]:
    """Layer by layer in the package against word by word in plain Fractions."""
    for shape in (Shape(*entry) for entry in [*SMALL, (2, 3, 1, 1)]):
        for tied in (False, True):
            for n in (2, 3):
                m = 3
                grid = value_grid(shape, m, 1, tied=tied)
                E, U = drawn(2, shape.d_in, m, head=7), drawn(3, m, shape.d_out, head=8)
                attention, x = stochastic_grid(shape, n, 4), small_input(shape, n)
                model = SharedAttentionUniversal(shape, m, array(grid[0] if tied else grid), tied)
                own = plain.rows(model.forward(array(x), array(E), array(U), array(attention)))
                slow = path_sum(grid, attention, x, E, U)
                at = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}), {'tied' if tied else 'untied'}, n = {n}"
                both = same({"systems": own, "plain path sum": slow})
                yield Instance(at, both.value, "equal outputs", routes=both.routes)


@check("sec:optimality/stronger-model")
def stronger_model(run: Run) -> Iterator[Instance | Figure]:
    """The target's attention, recorded, given to the shared-attention model of the same host."""
    for shape in (Shape(*entry) for entry in SMALL):
        for name in ("sparse", "tied"):
            host, target = build_host(name, shape), integer_target(shape, 5)
            E, x, seen = embed(host, target).E, small_input(shape, 3), Recording()
            wanted = plain.run_target(target, x, seen.as_plain())
            heads, layers = range(shape.heads), range(shape.layers)
            attention = [[seen.matrices[layer + 1, h] for h in heads] for layer in layers]
            grid = [[plain.rows(host.maps(layer, h).value[0]) for h in heads] for layer in layers]
            U = plain.rows(host.U)
            model = SharedAttentionUniversal(shape, host.m, array(grid))
            found = agree(
                {
                    "systems": plain.rows(model.forward(array(x), E, array(U), array(attention))) == wanted,
                    "plain path sum": path_sum(grid, attention, x, plain.rows(E), U) == wanted,
                }
            )
            at = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}), {name}"
            yield Instance(at, bool(found), "equal outputs", routes=found.routes)


@check("sec:optimality/strictly-stronger")
def strictly_stronger(run: Run) -> Iterator[Instance | Figure]:
    """The two-sided register's certificate, and the attention-matching bound above its m."""
    for shape in run.shapes(
        lambda s: s.heads > 1 and s.layers == 2 and s.head_dim == s.d_in == 1, anchors=[(2, 2, 1, 1), (2, 4, 1, 1)]
    ):
        bound = attention_matching_bound(shape)
        found = served("two-sided", shape, detail=f"attention-matching needs m ≥ {bound}")
        yield replace(found, holds=found.holds and int(found.m or 0) < bound)
        about = Scope.of(Notion.ATTENTION_MATCHING, ALL_UNTIED)
        yield replace(below(shape, int(found.m or 0), Notion.ATTENTION_MATCHING), about=about)


@check("sec:optimality/attention-matching")
def attention_matching(run: Run) -> Iterator[Instance | Figure]:
    """No host at m = d_in H^L, which is at least H^{L/2}; the dimension of the logit forms that it would have to hold."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (4, 2, 24, 4), (2, 4, 30, 30)]):
        m, root = shape.d_in * shape.leaves, least_square_root(shape.leaves)
        yield below(shape, m, Notion.ATTENTION_MATCHING, detail=f"m > {m} ≥ {root}", holds=m >= root)
        if matching_dimension(shape) <= 16:
            rank = generic_form_rank(shape)
            yield Instance(
                shape, rank.value == logit_form_dimension(shape), f"logit forms: {rank.value}", routes=rank.routes
            )
    yield Figure("bound at (4,2,24,4)", attention_matching_bound(Shape(4, 2, 24, 4)))
    yield Figure("H^{L/2} at (4,2,24,4)", least_square_root(Shape(4, 2, 24, 4).leaves))


@check("thm:lower_bound_utf/untied")
def lower_bound_untied(run: Run) -> Iterator[Instance | Figure]:
    """No host at the largest m with m² < H^L."""
    for shape in run.shapes(lambda s: s.heads > 1 and s.d_in == 1, anchors=[(2, 1, 1, 1), (2, 6, 1, 1), (4, 3, 1, 1)]):
        yield below_root(shape)


@check("thm:lower_bound_utf/looped-host")
def lower_bound_looped_host(run: Run) -> Iterator[Instance | Figure]:
    """No tied host at the largest m with m² < H^L."""
    for shape in run.shapes(lambda s: s.heads > 1 and s.d_in == 1, anchors=[(2, 1, 1, 1), (2, 6, 1, 1)]):
        yield below_root(shape, every="tied host")


@check("thm:lower_bound_utf/looped-targets")
def lower_bound_looped_targets(run: Run) -> Iterator[Instance | Figure]:
    """The counting host wherever its m is below the bound; elsewhere what m² ≥ C(L+H-1, H-1) says."""
    from utfproof.certificates.identities import identity_certificate
    from utfproof.certificates.lower_bounds import dimension_certificate

    first: dict[int, int] = {}
    for heads, depth in ((2, 8), (3, 7)):
        for layers in range(1, depth + 1):
            shape = Shape(heads, layers, 1, 1)
            m, largest = counting_dimension(shape), isqrt(shape.leaves - 1)
            if m * m < shape.leaves:
                first.setdefault(heads, layers)
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
    yield Figure("first L with L + 1 < 2^{L/2}", first.get(2, 0))
    yield Figure("first L with C(L+2,2) < 3^{L/2}", first.get(3, 0))


@check("sec:optimality/exponential")
def exponential(run: Run) -> Iterator[Instance | Figure]:
    """No host at H^{L/2} - 1, and H^{(L+2)/2} = H · H^{L/2}."""
    from utfproof.certificates.lower_bounds import dimension_certificate

    for heads in (2, 3):
        before = 1
        for layers in (2, 4, 6, 8):
            shape = Shape(heads, layers, 1, 1)
            least = least_square_root(shape.leaves)
            found = dimension_certificate(shape, least - 1, notion=Notion.SHARED_ATTENTION, free="E and U")
            holds = not found.universal and least == heads * before
            yield Instance(shape, holds, f"m ≥ {least} = {heads} · {before}", found, m=least - 1)
            before = least
        yield Figure(f"least m at ({heads},8)", before)


@check("sec:optimality/paths")
def paths(run: Run) -> Iterator[Instance | Figure]:
    """Products over all words, at the targets that route along one word: the identity matrix."""
    from utfproof.matching import isolating_target, w_all
    from utfproof.shapes import Column, column_index

    for shape in run.shapes(
        lambda s: s.head_dim == s.d_in == 1, anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1)], largest=60
    ):
        words = list(head_words(shape.heads, shape.layers))
        own, slow = [], []
        for word in words:
            target = isolating_target(shape, column_index(shape, Column("OV", word, 0)))
            own.append([int(v) for v in w_all(target)[0, -len(words) :]])
            slow.append(plain.w_all(target)[0][-len(words) :])
        found = agree({"matching": own == plain.identity(len(words)), "plain": slow == plain.identity(len(words))})
        count = shape.heads**shape.layers
        yield Instance(shape, bool(found) and len(words) == count, f"{count} paths", routes=found.routes)
    for heads, layers in ((2, 4), (4, 2)):
        yield Figure(f"paths at ({heads},{layers})", sum(1 for _ in head_words(heads, layers)))


@check("sec:optimality/compression")
def compression(run: Run) -> Iterator[Instance | Figure]:
    """No host just below either bound."""
    for shape in run.shapes(
        lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), (2, 2, 1, 1), (2, 4, 1, 1)]
    ):
        for free, m in (("E and U", least_square_root(shape.leaves) - 1), ("E", shape.leaves - 1)):
            about = Scope(Notion.SHARED_ATTENTION, Targets.parse(ALL_UNTIED), free=free)
            detail = f"{free} free, H^L = {shape.leaves}"
            yield replace(below(shape, m, Notion.SHARED_ATTENTION, free=free, detail=detail), about=about)
