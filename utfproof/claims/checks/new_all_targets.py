"""All targets by attention-matching: numbers, where M is least, and hosts whose heads share columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.claims import plain
from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided, figures
from utfproof.constructions import build_host
from utfproof.emulation.compare import random_input, relative_error
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.matching import embed, w_all
from utfproof.shapes import Column, Shape, Word, column_groups, column_index, matching_dimension
from utfproof.systems import Target


def _projections(shape: Shape, kind: str, word: Word, first: range, other: range) -> Target:
    """Unit columns `first` at the reader of this block (kind Q or K, the word's last letter reads), `other` at all other
    readers; W_V = W_O^T of `first` at the heads of the word before it, and of `other` elsewhere."""
    lead, d, b = (shape.layers, shape.heads), shape.head_dim, shape.d_in
    parts = {}
    for name in ("Q", "K", "V"):
        chosen = set(enumerate(word[:-1])) if name == "V" else {(len(word) - 1, word[-1])} if name == kind else set()
        part = np.zeros((*lead, b, d), dtype=object)
        for place in np.ndindex(lead):
            for column, unit in enumerate(first if place in chosen else other):
                part[place][unit, column] = 1
        parts[name] = part
    return Target(shape, parts["Q"], parts["K"], parts["V"], parts["V"].swapaxes(-1, -2))


def singled_out(shape: Shape, rows: plain.Rows, block: Column) -> bool:
    """Whether the readers of W_all have rank d over all words before them, so that queries and keys are known up to an
    invertible matrix, and rows 1 ... d vanish but for this block, which is I there."""
    d, H, matrix = shape.head_dim, shape.heads, np.array(rows, dtype=object)
    for group in column_groups(shape)[:-1]:
        blocks = np.split(matrix[:, group.start : group.start + group.words * d], group.words, axis=1)
        if any(plain.rank(np.concatenate(blocks[head::H])) < d for head in range(H)):
            return False
    wanted, start = np.zeros((d, matrix.shape[1]), dtype=object), column_index(shape, block)
    wanted[range(d), range(start, start + d)] = 1
    return bool((matrix[:d] == wanted).all())


@check("new:all-targets/narrow-heads")
def narrow_heads(run: Run) -> Iterator[Instance | Figure]:
    """At M a host; for each block of R_all the targets of the proof, their W_all by the package and word by word."""

    def narrow(shape: Shape) -> bool:
        return 2 * shape.head_dim <= shape.d_in and (shape.heads > 1 or shape.layers == 1)

    for shape in run.shapes(narrow, anchors=[(1, 1, 1, 2), (2, 2, 1, 2), (3, 1, 1, 2), (5, 1, 1, 2)], largest=40):
        d, M = shape.head_dim, matching_dimension(shape)
        yield decided("tied", shape, M)
        own = slow = targets = 0
        for group in column_groups(shape)[:-1]:
            for word in plain.words(shape.heads, group.length):
                target = _projections(shape, group.kind, word, range(d), range(d, 2 * d))
                block, targets = Column(group.kind, word, 0), targets + 1
                own += singled_out(shape, plain.rows(w_all(target)), block)
                slow += singled_out(shape, plain.equations(target), block)
        for word in plain.words(shape.heads, shape.layers):
            for i in range(shape.d_in):
                target = _projections(shape, "", (*word, 0), range(i, i + 1), range(0))
                unit, targets = np.zeros((shape.d_in, M), dtype=object), targets + 1
                unit[i, column_index(shape, Column("OV", word, i))] = 1
                own += bool((w_all(target) == unit).all())
                slow += plain.equations(target) == unit.tolist()
        found = agree({"package": own, "plain integers": slow})
        yield Instance(shape, found.value == targets, f"{targets} targets", routes=found.routes, m=M - 1)
    yield from figures("least m", matching_dimension, ((2, 2, 1, 2), (3, 1, 1, 2), (5, 1, 1, 2)))


def shared_columns_dimension(shape: Shape) -> int:
    """M - S/H sum_i (H - ceil(H/g_i)), g_i the most heads whose column spaces meet in i dimensions: g d - (g - 1) d_in >= i."""
    H, d, b = shape.heads, shape.head_dim, shape.d_in
    sizes = [max((g for g in range(1, H + 1) if g * d - (g - 1) * b >= i), default=1) for i in range(1, d + 1)]
    return matching_dimension(shape) - shape.word_count // H * sum(H - -(-H // g) for g in sizes)


@check("new:all-targets/sharing")
def sharing(run: Run) -> Iterator[Instance | Figure]:
    """Softmax outputs on real inputs, for targets of several kinds; the dimension against the statement's."""

    def wide(shape: Shape) -> bool:
        return shape.heads > 1 and shape.head_dim <= shape.d_in < 2 * shape.head_dim

    kernel = SoftmaxAttention(causal=True)
    for shape in run.shapes(wide, anchors=[(2, 1, 2, 3), (2, 2, 2, 3), (3, 2, 3, 4)], largest=60):
        host, worst, x = build_host("sharing", shape), 0.0, random_input(shape, 5, 1)
        for seed, law in enumerate(TARGET_LAWS):
            target = draw_target(shape, seed, law)
            ours = host.forward(x, embed(host, target).E, kernel)
            worst = max(worst, relative_error(ours, target.forward(x, kernel)))
        holds = worst < 1e-8 and host.m == shared_columns_dimension(shape) < matching_dimension(shape)
        detail = f"{len(TARGET_LAWS)} targets, M = {matching_dimension(shape)}"
        yield Instance(shape, holds, detail, m=host.m)
    yield from figures("m", shared_columns_dimension, ((2, 1, 2, 3), (2, 2, 28, 30)))
