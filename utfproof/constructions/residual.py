"""Residual streams, X^l = X^{l-1} + sum_h A^{l,h} X^{l-1} M^{l,h}: the embeddings of their hosts.

Words are over the letters 0 ... H, letter 0 for the stream itself (shapes.py). The prefix tree over these words (`sparse`,
sparse.py) has a unimodular R_all at m = M_res: E R_w reads block w and, for every zero of w, the blocks with any other letter
in that place, so E comes from W_all by inclusion and exclusion over the zero letters.
"""

from __future__ import annotations

from typing import NamedTuple

from utfproof.constructions.record import Construction, index_map_bytes
from utfproof.constructions.tied import tied_host
from utfproof.errors import NotDefined, OutsideClass
from utfproof.shapes import Shape, geometric, matching_dimension, tied_targets_dimension, word_index
from utfproof.systems import Target, prefix_stacks
from utfproof.util.arrays import Array, hstack, namespace, zeros
from utfproof.util.notions import Notion

# --- untied: the prefix tree -------------------------------------------------------------------------------


def moebius(table: Array, letters: int, length: int) -> Array:
    """g [letters^length, ...] with f(w) = sum of g(v) over all v that agree with w in its nonzero letters, for f given on
    all words of one length in lexicographic order: in each place g(a) = f(a) for a > 0, and g(0) = f(0) - f(1) - ... ."""
    trailing = table.shape[1:]
    for place in range(length):
        split = table.reshape(letters**place, letters, -1)
        zero = split[:, :1]
        for letter in range(1, letters):
            zero = zero - split[:, letter : letter + 1]
        table = namespace(table).concatenate([zero, split[:, 1:]], axis=1)
    return table.reshape(letters**length, *trailing)


def embed_residual_tree(shape: Shape, m: int, target: Target) -> Array:
    """E [d_in, m] of the prefix tree (`sparse` with a residual stream): E R_all = W_all for any untied or tied target of any
    width, in its arithmetic; linear in the size of E, times L."""
    E = zeros(target.W_Q, shape.d_in, m)
    begin = 0
    for depth, products in enumerate(prefix_stacks(target)):
        if depth == shape.layers:
            readers = target.unembedding()
        else:
            pairs = [target.parameters(depth, head)[:2] for head in range(shape.heads)]
            readers = hstack([*(q for q, _ in pairs), *(k for _, k in pairs)])  # Q_0 ..., K_0 ...
        blocks = products @ readers
        if shape.residual:
            blocks = moebius(blocks, shape.letters, depth)
        columns = namespace(blocks).moveaxis(blocks, 1, 0).reshape(shape.d_in, -1)
        E[:, begin : begin + columns.shape[1]] = columns
        begin += columns.shape[1]
    return E


# --- tied targets ------------------------------------------------------------------------------------------


def embed_residual_tied(shape: Shape, m: int, target: Target) -> Array:
    """E [d_in, m] of `tied` with a residual stream: block (w, h) = W_E M_w [W_Q^h, W_K^h], output block w = W_E M_w W_U.
    OutsideClass for untied targets from L = 2 on."""
    if not target.tied and shape.layers > 1:
        raise OutsideClass(f"tied at {shape} serves tied targets by matching; this one is untied")
    d, trie, out = shape.head_dim, 0, 2 * shape.head_dim * shape.without_residual().word_count
    E = zeros(target.W_Q, shape.d_in, m)
    for length, products in enumerate(prefix_stacks(target, stream=False)):
        for product in products:
            E[:, out : out + shape.d_out] = product @ target.unembedding()
            out += shape.d_out
            if length == shape.layers:
                continue
            for head in range(shape.heads):
                w_q, w_k, _, _ = target.parameters(length, head)
                E[:, trie : trie + d] = product @ w_q
                E[:, trie + d : trie + 2 * d] = product @ w_k
                trie += 2 * d
    return E


class TiedObstruction(NamedTuple):
    """Why no tied host matches this untied target: `left` and `right` are the first columns of two blocks of R_all that
    are equal for every tied host, and `gap` is the difference of the target's two blocks [d_in, d_out], not zero."""

    left: int
    right: int
    gap: Array


def tied_obstruction(target: Target) -> TiedObstruction | None:
    """The words (0, ..., 0, h) and (h, 0, ..., 0) that a tied host cannot tell apart, for the first head and pair of layers
    where the target's output does; None where none of the words with a single head does.

    With a residual stream R_w of a tied host forgets where the zeros of w stand, so L >= 2 and untied targets never go
    together by matching. NotDefined at L = 1, where tied and untied are the same, and without a residual stream.
    """
    shape = target.shape
    if shape.layers < 2 or not shape.residual:
        raise NotDefined(f"a tied host can serve untied targets at L = 1 or without a residual stream, got {shape}")
    L = shape.layers
    first = matching_dimension(shape) - shape.d_out * shape.words_at(L)
    for head in range(shape.heads):
        outputs = [target.embedding() @ target.value_form(layer, head) @ target.unembedding() for layer in range(L)]
        for layer in range(1, L):
            gap = outputs[0] - outputs[layer]
            if bool((gap != 0).any()):
                words = (tuple(head + 1 if place == at else 0 for place in range(L)) for at in (0, layer))
                left, right = (first + shape.d_out * word_index(word, shape.letters) for word in words)
                return TiedObstruction(left, right, gap)
    return None


TIED = Construction(
    "tied",
    "trie and shift register, weight-tied",
    True,
    Notion.MATCHING,
    tied_targets_dimension,
    tied_host,
    streams=True,
    solve=embed_residual_tied,
    memory=lambda shape, m: index_map_bytes(
        shape, 2 * shape.heads * geometric(shape.letters, 0, shape.layers - 1) + shape.letters**shape.layers
    ),
    permutation=True,
    rebuilt=True,
)
