"""Appendix A, the lemmas: unrolling, equal attention, equal outputs, and the single-head construction.

Layers count from 1 and the letters are matrices that commute with none, so an identity of words holds for matrices of
every size, for every context length and every attention map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import decided, rank_of, small_input, symbolic
from utfproof.claims.hosts import one_head, small_embedding, small_host
from utfproof.claims.small_models import Grid, array, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.selection import pieces, uniform
from utfproof.shapes import Shape, matching_dimension, paper_dimension
from utfproof.systems import Target, TiedUniversal, Universal

DEPTHS = range(1, 7)
SEVERAL = ((2, 1), (2, 2), (2, 3), (3, 1), (3, 2))
"""(H, L) of the expansions with several heads; the induction steps cover the rest."""
STEP = "every layer, from the one before"


@check("lem:unroll")
def unroll(run: Run) -> Iterator[Instance | Figure]:
    """Expansion up to six layers and the induction step, target and host."""
    yield from _unrolling([(1, L) for L in DEPTHS], 1)


def _unrolling(sizes: list[tuple[int, int]], step: int) -> Iterator[Instance]:
    from utfproof.exact.symbolic import unrolling, unrolling_step

    for system in ("target", "host"):
        for H, L in sizes:
            yield symbolic(f"H = {H}, L = {L}, {system}", unrolling(H, L, system=system))
        yield symbolic(f"H = {step}, {STEP}, {system}", unrolling_step(step, system=system))


@check("lem:eqatt")
def equal_attention_single(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by the equations, one head; and with each of them dropped."""
    yield from _attention([(1, L) for L in DEPTHS], 1)


def _attention(sizes: list[tuple[int, int]], step: int) -> Iterator[Instance]:
    from utfproof.exact.symbolic import equal_attention, equal_attention_step

    for H, L in sizes:
        yield symbolic(f"H = {H}, L = {L}", equal_attention(H, L))
        words = [(kind, word) for t in range(1, L + 1) for word in plain.words(H, t) for kind in "QK"]
        without = [equal_attention(H, L, dropped=each) for each in words]
        where = f"H = {H}, L = {L}, any of {len(words)} equations dropped"
        differ = not any(each.holds for each in without)
        yield Instance(where, differ, without[-1].difference, routes=without[-1].routes)
    yield symbolic(f"H = {step}, {STEP}", equal_attention_step(step))


@check("lem:equal-io")
def equal_io_single(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by all equations, one head; and without the output equation."""
    yield from _outputs([(1, L) for L in DEPTHS])


def _outputs(sizes: list[tuple[int, int]]) -> Iterator[Instance]:
    from utfproof.exact.symbolic import equal_output

    for H, L in sizes:
        yield symbolic(f"H = {H}, L = {L}", equal_output(H, L))
        without = equal_output(H, L, dropped=("OV", (0,) * L))
        where = f"H = {H}, L = {L}, one output equation dropped"
        yield Instance(where, not without.holds, without.difference, routes=without.routes)


# --- lem:single_head ------------------------------------------------------------------------------------------


@check("lem:single_head/statement")
def single_head(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of the prefix tree at the lemma's m, and padded."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 4, 2, 3)]):
        yield decided("sparse", shape, paper_dimension(shape))
        yield decided("sparse", shape, paper_dimension(shape) + 3)


def one_head_blocks(shape: Shape, *, shifted: bool) -> Universal:
    """The lemma's L+1 blocks with R_V = I and readers at B_l, or (shifted, tied) with readers at B_1 and a left shift."""
    d, L = shape.head_dim, shape.layers
    b = max(2 * d, shape.d_in)
    m = (L + 1) * b
    cells, reader, output = uniform(m, 1), uniform(d, 1), uniform(shape.d_in, 1)
    every = np.arange(m)
    move = pieces(cells, cells, every[b:], every[:-b], 1, 1) if shifted else pieces(cells, cells, every, every, 1, 1)

    def read(start: int, columns: int) -> object:
        return pieces(cells, output if columns > 0 else reader, np.array([start]), np.array([0]), columns or d, 1)

    if shifted:
        return TiedUniversal(shape, m, (read(0, 0),), (read(d, 0),), (move,), read(0, shape.d_in))
    queries, keys = [(read(layer * b, 0),) for layer in range(L)], [(read(layer * b + d, 0),) for layer in range(L)]
    return Universal(shape, m, queries, keys, [(move,)] * L, read(L * b, shape.d_in))


@check("lem:single_head/construction")
def single_head_construction(run: Run) -> Iterator[Instance | Figure]:
    """The refutation of the printed construction, and the rank of R_all of both repairs."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 3, 1, 1)]):
        yield decided("printed-single-head", shape)
        for shifted in (False, True):
            host = one_head_blocks(shape, shifted=shifted)
            rank = rank_of(host)
            detail = f"rank {rank.value}, {'left shift, readers at B_1' if shifted else 'R_V = I'}"
            holds = rank.value == matching_dimension(shape) and host.tied is shifted
            yield Instance(shape, holds, detail, routes=rank.routes, part="repair", m=host.m)
    rank = rank_of(build_host("printed-single-head", Shape(1, 3, 1, 1)))
    yield Figure("rank of R_all at (1,3,1,1)", f"{rank.value} of {matching_dimension(Shape(1, 3, 1, 1))}")


@check("lem:single_head/equivalently")
def equivalently(run: Run) -> Iterator[Instance | Figure]:
    """Block numbers pushed through the printed R_V, by the package and in plain integers."""
    for shape in run.shapes(lambda s: one_head(s) and s.layers > 1, anchors=[(1, 2, 1, 1), (1, 3, 1, 2)]):
        host = build_host("printed-single-head", shape)
        b = host.m // (shape.layers + 1)
        labels = [[1 + i // b for i in range(host.m)]]
        state, slow = np.array(labels, dtype=object), labels
        as_printed = front = True
        for layer in range(1, shape.layers):
            value = host.maps(layer - 1, 0).value[0]
            state, slow = state @ value, plain.multiply(slow, plain.rows(value))
            row = agree({"index maps": plain.rows(state), "plain integers": slow}).value[0]
            as_printed &= row[layer * b : (layer + 1) * b] == [1] * b
            front &= row[:b] == [layer + 1] * b
        routes = ("index maps", "plain integers")
        yield Instance(shape, as_printed, "B_l has B_1's content", routes=routes)
        yield Instance(shape, front, "B_1 has B_l's content", routes=routes, part="repair")


# --- several heads --------------------------------------------------------------------------------------------


@check("lem:multiunroll")
def multiunroll(run: Run) -> Iterator[Instance | Figure]:
    """Expansion, the induction step, and the sum over words in exact forward passes."""
    yield from _unrolling(list(SEVERAL), 3)
    for shape in run.shapes(lambda s: s.heads > 1, anchors=[(2, 2, 1, 2)], largest=20):
        host, E = small_host(shape, 2, tied=False), small_embedding(shape, 2)
        target, x = integer_target(shape), small_input(shape, 2)
        grid = stochastic_grid(shape, 2, 3)

        def given(queries: plain.Rows, keys: plain.Rows, layer: int, head: int, grid: Grid = grid) -> plain.Rows:
            return grid[layer - 1][head]

        both = same(
            {
                "sum over words": [_summed(target, None, x, grid), _summed(host, E, x, grid)],
                "recursion": [plain.run_target(target, x, given), plain.run_host(host, E, x, given)],
            }
        )
        yield Instance(str(shape), both.value, "n = 2", routes=both.routes)


def _summed(system: Universal | Target, E: object, x: plain.Rows, attention: Grid) -> plain.Rows:
    """The output as a sum over head words, one product for each word."""
    total: Any = 0
    for word in plain.words(system.shape.heads, system.shape.layers):
        term = array(x)
        if isinstance(system, Universal):
            term = term @ array(plain.rows(E))
        for layer, head in enumerate(word):
            term = array(attention[layer][head]) @ term
            values = (
                system.maps(layer, head).value if isinstance(system, Universal) else system.parameters(layer, head)[2:]
            )
            for value in values:
                term = term @ array(plain.rows(value))
        total = total + (term @ array(plain.rows(system.U)) if isinstance(system, Universal) else term)
    return plain.rows(total)


@check("lem:multiunroll/prose")
def prose(run: Run) -> Iterator[Instance | Figure]:
    """The closed word as the prose has it, and as the lemma has it."""
    from utfproof.exact.symbolic import printed_prose_word, unrolling

    for H, L in ((1, 2), (2, 2), (2, 3)):
        yield symbolic(f"H = {H}, L = {L}", unrolling(H, L, system="host", closed=printed_prose_word))
        mended = unrolling(H, L, system="host")
        where = f"H = {H}, L = {L}, as the lemma says"
        yield Instance(where, mended.holds, mended.difference, routes=mended.routes, part="repair")


@check("lem:multieqatt/all-layers")
def equal_attention_multi(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by the equations; and with each of them dropped."""
    yield from _attention(list(SEVERAL), 3)


@check("lem:multieqatt/layer-alone")
def layer_alone(run: Run) -> Iterator[Instance | Figure]:
    """The counterexample with softmax; the words with earlier attention left apart."""
    from utfproof.exact.symbolic import equal_attention, equal_attention_step, literal_counterexample

    yield symbolic("H = 1, L = 2, softmax", literal_counterexample(), fails=True)
    for H, L in ((1, 2), (2, 2), (2, 3)):
        yield symbolic(f"H = {H}, L = {L}", equal_attention(H, L, literal=True), fails=True)
        yield symbolic(f"H = {H}, L = {L}, all layers", equal_attention(H, L))
    yield symbolic(f"H = 2, {STEP}", equal_attention_step(2, literal=True), fails=True)


@check("lem:equal-io-multi")
def equal_io_multi(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by all equations; without one output equation; and the step on to a layer more, of outputs too."""
    from utfproof.exact.symbolic import equal_attention_step

    yield from _outputs(list(SEVERAL))
    yield symbolic(f"H = 3, {STEP}", equal_attention_step(3))
