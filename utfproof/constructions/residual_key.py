"""`residual-key`: a residual stream, d >= d_in, all targets, attention-matching, m = d_in (2 (H+1)^L - 1).

The stream passes every layer by, so the output of a word that stops early is there already: E R_w U = M_w for every |w| <= L.
The host reads it as the key of every head. Theorem C of docs/proofs/sharper-frontier.md. Coordinates:
docs/certificate-format.md section 9.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from utfproof.constructions.layout import Layout
from utfproof.constructions.record import Construction, Domain, Readers
from utfproof.constructions.shared_key import key_readers
from utfproof.errors import OutsideClass
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

NAME = "residual-key"


def _starts(shape: Shape) -> list[int]:
    """First coordinate of the query blocks of words of length 0 ... L-1 over 0 ... H, then of the outputs."""
    widths = (shape.words_at(layer) * shape.heads * shape.d_in for layer in range(shape.layers))
    return list(accumulate(widths, initial=0))


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


def output_readers(shape: Shape, target: Target) -> Readers:
    """A and I, for any untied or tied target of width d_in: keys are outputs."""
    if target.W_E is not None or target.W_U is not None:
        raise OutsideClass(f"{NAME} at {shape} serves targets of width d_in = d_out, this one has W_E or W_U")
    return key_readers(shape, target)


RESIDUAL_KEY = Construction(
    NAME,
    "with a residual stream: a tree of queries and outputs, keys read the output; d >= d_in",
    False,
    Notion.ATTENTION_MATCHING,
    key_dimension,
    key_host,
    Domain("d_in = d_out <= head_dim (keys are outputs)", lambda s: s.d_in == s.d_out <= s.head_dim, stream=True),
    streams=True,
    readers=output_readers,
    identity=NAME,
    tied_too=True,
)
