"""The tied ("looped") host: a trie for queries and keys and a shift register for outputs; universal by matching, m = M.

It repairs
thm:designed-R-looped, whose printed dimension is below M. R_V^h e_w = e_{(h,w)} on trie blocks, and on register blocks
e_(w_1..w_L) goes to e_(h,w_1..w_{L-1}). With a residual stream `tied` serves tied targets instead: the stream keeps a word as
it is, so words over the H heads are all there is, and the outputs of those of every length stand in a trie too. Coordinates:
docs/certificate-format.md section 4.3.
"""

from __future__ import annotations

from utfproof.constructions.layout import Layout, register, trie
from utfproof.constructions.record import Construction
from utfproof.shapes import Shape, tied_targets_dimension
from utfproof.systems import Universal
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix


def tied_host(shape: Shape, m: int) -> Universal:
    """`tied`: the trie's blocks of width 2d, queries before keys, then outputs: the register's blocks, or with a residual
    stream those of the words of length 0 ... L."""
    d, b, L, plain = shape.head_dim, shape.d_out, shape.layers, shape.without_residual()
    layout, outputs = Layout(shape, m), 2 * d * plain.word_count

    def value(head: int) -> SelectionMatrix:
        outs = trie(plain, head, 0, L, outputs, b) if shape.residual else register(shape, head, outputs, b)
        return layout.moved(trie(plain, head, 1, L, 0, 2 * d), outs)

    return layout.tied("tied", *layout.halves(), value, outputs)


TIED = Construction(
    "tied",
    "trie and shift register, weight-tied",
    True,
    Notion.MATCHING,
    tied_targets_dimension,
    tied_host,
    streams=True,
    permutation=True,
    rebuilt=True,
)
