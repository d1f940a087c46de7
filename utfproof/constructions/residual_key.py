"""`residual-key`: a residual stream, d >= d_in, all targets, attention-matching, m = d_in (2 (H+1)^L - 1).

The stream passes every layer by, so the output of a word that stops early is there already: E R_w U = M_w for every |w| <= L.
The host reads it as the key of every head. Theorem C of docs/proofs/sharper-frontier.md. Coordinates:
docs/certificate-format.md section 9.
"""

from __future__ import annotations

import numpy as np

from utfproof.constructions.layout import Layout, padded_columns, side_by_side
from utfproof.constructions.record import Construction, Domain, Identity
from utfproof.constructions.shared_key import key_forms
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal, prefix_stacks
from utfproof.util.arrays import Array
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

NAME = "residual-key"


def _starts(shape: Shape) -> list[int]:
    """First coordinate of the query blocks of words of length 0 ... L-1 over 0 ... H, then of the outputs."""
    starts = [0]
    for layer in range(shape.layers):
        starts.append(starts[-1] + shape.words_at(layer) * shape.heads * shape.d_in)
    return starts


def key_dimension(shape: Shape) -> int:
    """d_in (2 (H+1)^L - 1): least m of `residual-key`."""
    return _starts(shape)[-1] + shape.d_out * shape.words_at(shape.layers)


def key_host(shape: Shape, m: int) -> Universal:
    """Query blocks of width d_in; keys and U read the output block 0 ... 0."""
    b, d, starts = shape.d_in, shape.head_dim, _starts(shape)
    layout = Layout(shape, m, b)

    def value(layer: int, head: int) -> SelectionMatrix:
        """Each block whose word has the letter head + 1 at this layer goes to the block of the word with 0 in its place."""
        moves = []
        for length in range(layer + 1, shape.layers + 1):
            size = b if length == shape.layers else shape.heads * b
            words, rest = np.arange(shape.words_at(length)), shape.words_at(length - layer - 1)
            zero = words[words // rest % shape.letters == 0]
            moves.append((starts[length] + (zero + (head + 1) * rest) * size, starts[length] + zero * size, size))
        return layout.moved(*moves)

    heads, layers = range(shape.heads), range(shape.layers)
    queries = [tuple(layout.read([starts[layer] + head * b], b, d) for head in heads) for layer in layers]
    keys = [tuple(layout.read([starts[-1]], b, d) for _ in heads) for _ in layers]
    values = [tuple(value(layer, head) for head in heads) for layer in layers]
    return Universal(shape, m, queries, keys, values, layout.read([starts[-1]], b, b), NAME)


def embed_key(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [d_in, m] for any untied or tied target of width d_in: M_w A, then M_w."""
    if target.W_E is not None or target.W_U is not None:
        raise OutsideClass(f"{NAME} at {shape} serves targets of width d_in = d_out, this one has W_E or W_U")
    readers = [*key_forms(shape, target)[0], [target.unembedding()]]
    return padded_columns([side_by_side(*pair) for pair in zip(prefix_stacks(target), readers, strict=True)], m), None


RESIDUAL_KEY = Construction(
    NAME,
    "with a residual stream: a tree of queries and outputs, keys read the output; d >= d_in",
    False,
    Notion.ATTENTION_MATCHING,
    key_dimension,
    key_host,
    Domain("d_in = d_out <= head_dim (keys are outputs)", lambda s: s.d_in == s.d_out <= s.head_dim, stream=True),
    streams=True,
    embed=embed_key,
    forms=key_forms,
    identity=Identity(tied_too=True),
)
