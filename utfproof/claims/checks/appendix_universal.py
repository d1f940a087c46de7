"""Appendix A, the lemmas: unrolling, equal attention, equal outputs, and the single-head construction.

Layers count from 1 and the letters are matrices that commute with none, so an identity of words holds for matrices of
every size, for every context length and every attention map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import REPAIR, Figure, Instance, Run, agree, check, each
from utfproof.claims.decisions import decided, rank_of, small_input, symbolic
from utfproof.claims.linear import integer_host
from utfproof.claims.small_models import drawn, path_sum, stochastic_grid
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.selection import pieces, uniform
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import TiedUniversal, Universal

Sizes = Sequence[tuple[int, int]]
ONE_HEAD: Sizes = [(1, L) for L in range(1, 7)]
SEVERAL: Sizes = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)]
"""(H, L) of the expansions with several heads; the induction steps cover the rest."""
STEP = "every layer, from the one before"


@check("lem:unroll")
def unroll(run: Run) -> Iterator[Instance | Figure]:
    """Expansion up to six layers and the induction step, target and host."""
    yield from _unrolling(ONE_HEAD, 1)


def _unrolling(sizes: Sizes, step: int) -> Iterator[Instance]:
    from utfproof.exact.symbolic.free_algebra import unrolling, unrolling_step

    for system in ("target", "host"):
        for H, L in sizes:
            yield symbolic(f"H = {H}, L = {L}, {system}", unrolling(H, L, system=system))
        yield symbolic(f"H = {step}, {STEP}, {system}", unrolling_step(step, system=system))


@check("lem:eqatt")
def equal_attention_single(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by the equations, one head; and with each of them dropped."""
    yield from _attention(ONE_HEAD, 1)


@check("lem:multieqatt/all-layers")
def equal_attention_multi(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by the equations; and with each of them dropped."""
    yield from _attention(SEVERAL, 3)


def _attention(sizes: Sizes, step: int) -> Iterator[Instance]:
    from utfproof.exact.symbolic.free_algebra import equal_attention, equal_attention_step

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
    yield from _outputs(ONE_HEAD)


@check("lem:equal-io-multi")
def equal_io_multi(run: Run) -> Iterator[Instance | Figure]:
    """Rewriting by all equations; without one output equation; and the step on to a layer more, of outputs too."""
    from utfproof.exact.symbolic.free_algebra import equal_attention_step

    yield from _outputs(SEVERAL)
    yield symbolic(f"H = 3, {STEP}", equal_attention_step(3))


def _outputs(sizes: Sizes) -> Iterator[Instance]:
    from utfproof.exact.symbolic.free_algebra import equal_output

    for H, L in sizes:
        yield symbolic(f"H = {H}, L = {L}", equal_output(H, L))
        without = equal_output(H, L, dropped=("OV", (0,) * L))
        yield symbolic(f"H = {H}, L = {L}, one output equation dropped", without, fails=True)


# --- lem:single_head ------------------------------------------------------------------------------------------


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


@each("lem:single_head/construction")
def single_head_construction(shape: Shape) -> Iterator[Instance]:
    """The refutation of the printed construction, and the rank of R_all of both repairs."""
    yield decided("printed-single-head", shape)
    for shifted in (False, True):
        host = one_head_blocks(shape, shifted=shifted)
        rank = rank_of(host)
        detail = f"rank {rank}, {'left shift, readers at B_1' if shifted else 'R_V = I'}"
        holds = rank.value == matching_dimension(shape) and host.tied is shifted
        yield rank.at(shape, detail, holds=holds, part=REPAIR, m=host.m)


@each("lem:single_head/equivalently")
def equivalently(shape: Shape) -> Iterator[Instance]:
    """Block numbers pushed through the printed R_V, by the package and in plain integers."""
    host = build_host("printed-single-head", shape)
    b = host.m // (shape.layers + 1)
    labels = [[1 + i // b for i in range(host.m)]]
    state, slow = np.array(labels, dtype=object), labels
    moved = []
    for layer in range(1, shape.layers):
        value = host.maps(layer - 1, 0).value[0]
        state, slow = state @ value, plain.multiply(slow, plain.rows(value))
        row = agree({"index maps": plain.rows(state), "plain integers": slow}).value[0]
        moved.append((row[layer * b : (layer + 1) * b] == [1] * b, row[:b] == [layer + 1] * b))
    as_printed, front = (all(column) for column in zip(*moved, strict=True))
    routes = ("index maps", "plain integers")
    yield Instance(shape, as_printed, "B_l has B_1's content", routes=routes)
    yield Instance(shape, front, "B_1 has B_l's content", routes=routes, part=REPAIR)


@each("app:looped/single-head-tied")
def single_head_tied(shape: Shape) -> Iterator[Instance]:
    """Readers of all layers side by side."""
    host = build_host("printed-single-head", shape)
    maps = [host.maps(layer, 0) for layer in range(shape.layers)]
    by_index = {str([part.coordinates() for part in (entry.query, entry.key, entry.value[0])]) for entry in maps}
    by_entry = {str(plain.maps(host, layer, 0)) for layer in range(shape.layers)}
    both = agree({"index maps": len(by_index), "plain integers": len(by_entry)})
    yield both.at(shape, f"{both} different layers", holds=both.value == 1)
    shifted = one_head_blocks(shape, shifted=True)
    rank = rank_of(shifted)
    whole = shifted.tied and shifted.m == host.m and rank.value == matching_dimension(shape)
    yield rank.at(shape, "left shift, readers at B_1", holds=whole, part=REPAIR)


# --- several heads --------------------------------------------------------------------------------------------


@check("lem:multiunroll")
def multiunroll(run: Run) -> Iterator[Instance | Figure]:
    """Expansion, the induction step, and the sum over words in exact forward passes."""
    yield from _unrolling(SEVERAL, 3)
    for shape in run.shapes():
        x, grid, one = small_input(shape, 2), stochastic_grid(shape, 2, 3), plain.identity(shape.d_in)
        host, E, target = integer_host(shape, 2), drawn(2, shape.d_in, 2), integer_target(shape)
        ours, theirs = (
            [[plain.maps(system, layer, head)[2] for head in range(shape.heads)] for layer in range(shape.layers)]
            for system in (host, target)
        )

        def given(queries: plain.Rows, keys: plain.Rows, layer: int, head: int, grid: object = grid) -> plain.Rows:
            return grid[layer - 1][head]  # type: ignore[index]

        words = [path_sum(theirs, grid, x, one, one), path_sum(ours, grid, x, E, plain.rows(host.U))]
        passes = [plain.forward(target, x, None, given), plain.forward(host, x, E, given)]
        yield agree({"sum over words": words, "recursion": passes}).at(str(shape), "n = 2", holds=True)


@check("lem:multiunroll/prose")
def prose(run: Run) -> Iterator[Instance | Figure]:
    """The closed word as the prose has it, and as the lemma has it."""
    from utfproof.exact.symbolic.free_algebra import unrolling
    from utfproof.exact.symbolic.statements import printed_prose_word

    for H, L in ((1, 2), (2, 2), (2, 3)):
        yield symbolic(f"H = {H}, L = {L}", unrolling(H, L, system="host", closed=printed_prose_word))
        yield symbolic(f"H = {H}, L = {L}, as the lemma says", unrolling(H, L, system="host"), part=REPAIR)


@check("lem:multieqatt/layer-alone")
def layer_alone(run: Run) -> Iterator[Instance | Figure]:
    """The counterexample with softmax; the words with earlier attention left apart."""
    from utfproof.exact.symbolic.free_algebra import equal_attention, equal_attention_step, literal_counterexample

    yield symbolic("H = 1, L = 2, softmax", literal_counterexample(), fails=True)
    for H, L in ((1, 2), (2, 2), (2, 3)):
        yield symbolic(f"H = {H}, L = {L}", equal_attention(H, L, literal=True), fails=True)
        yield symbolic(f"H = {H}, L = {L}, all layers", equal_attention(H, L))
    yield symbolic(f"H = 2, {STEP}", equal_attention_step(2, literal=True), fails=True)


@check("app:looped/lemmas")
def looped_lemmas(run: Run) -> Iterator[Instance | Figure]:
    """The identities with tied letters."""
    from utfproof.exact.symbolic.free_algebra import equal_attention, equal_output, unrolling

    for H, L in sorted({(s.heads, s.layers) for s in run.shapes() if s.heads**s.layers <= 9}):
        results = [unrolling(H, L, system=system, tied=True) for system in ("host", "target")]
        for tied_target in (False, True):
            results.append(equal_attention(H, L, tied_host=True, tied_target=tied_target))
            results.append(equal_output(H, L, tied_host=True, tied_target=tied_target))
        holds = all(result.holds for result in results)
        yield Instance(f"H = {H}, L = {L}", holds, f"{sum(r.terms for r in results)} words", routes=results[0].routes)
