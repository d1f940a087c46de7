"""Shapes, head words, the canonical column order of R_all, and every dimension formula.

Heads count from 0. Layers count from 0 in arrays and from 1 in the mathematics; a formula about
"layer l" says which. A head word w = (h_1, ..., h_t) names the route through heads h_1 (first layer) to h_t.

With a residual stream, X^l = X^{l-1} + sum_h A^{l,h} X^{l-1} M^{l,h}, the stream is one more letter: words are over
0 ... H, the letter 0 passes a layer by (R_V^{l,0} = M^{l,0} = I) and the letter h + 1 is head h. The reading letter of a
query or key is never 0.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from typing import Any, NamedTuple

from utfproof.errors import MalformedInput, NotDefined, ResourceLimit

Word = tuple[int, ...]


class EffectiveHeadDimensionWarning(UserWarning):
    """d > d_in: attention logits see a bilinear form of rank at most d_in."""


def listed(name: str, text: str) -> list[str]:
    """The items of a comma-separated list; MalformedInput where one is empty."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise MalformedInput(f"{name} {text!r} has an empty item; separate values by single commas")
    return items


def listed_integers(name: str, text: str) -> list[int]:
    """The positive integers of a comma-separated list; MalformedInput for anything else, however long."""
    items = listed(name, text)
    for item in items:
        if decimal(item, 15) is None:
            shown = item if len(item) <= 40 else f"{item[:40]}…"
            raise MalformedInput(f"{name} holds {shown!r}, expected positive integers separated by commas")
    return [positive_integer(name, int(item)) for item in items]


def decimal(text: str | None, digits: int = 18) -> int | None:
    """The integer that these ASCII digits write, None for anything else and for more digits than these."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= digits else None


def span(text: str) -> tuple[int, int] | None:
    """(first, last) of a range such as 1..4, or of a single integer; None for anything else."""
    found = re.fullmatch(r"(-?[0-9]{1,20})(?:\.\.(-?[0-9]{1,20}))?", text.replace(" ", ""), re.ASCII)
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def positive_integer(name: str, value: object) -> int:
    """`value` as a positive int, or MalformedInput naming the field (bool, float and NumPy bools are refused)."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise MalformedInput(f"{name} must be a positive integer, got {value!r} ({type(value).__name__})")
    number = int(value.__index__())  # type: ignore[attr-defined]
    if number < 1:
        raise MalformedInput(f"{name} must be a positive integer, got {number}")
    return number


def require_shape(value: object) -> None:
    """MalformedInput unless this is a Shape; four numbers in a tuple are none."""
    if not isinstance(value, Shape):
        wanted = "a Shape, such as Shape(heads=2, layers=2, head_dim=2, d_in=3)"
        raise MalformedInput(f"the shape is of type {type(value).__name__}, expected {wanted}")


@dataclass(frozen=True, init=False)
class Shape:
    """Shape (H, L, d, d_in, d_out) of a class of targets and of the hosts that serve it.

    heads H, layers L, head_dim d, d_in (input width), d_out (output width, d_in unless said otherwise); residual: whether
    hosts and targets have a residual stream.
    Raises MalformedInput naming the field for anything but positive integers; warns
    (EffectiveHeadDimensionWarning) when d > d_in.

    >>> from utfproof import Shape
    >>> Shape(heads=2, layers=2, head_dim=2, d_in=3)
    Shape(heads=2, layers=2, head_dim=2, d_in=3, d_out=3, residual=False)
    """

    heads: int
    layers: int
    head_dim: int
    d_in: int
    d_out: int
    residual: bool

    def __init__(
        self, heads: int, layers: int, head_dim: int, d_in: int, d_out: int | None = None, *, residual: bool = False
    ) -> None:
        values = {"heads": heads, "layers": layers, "head_dim": head_dim, "d_in": d_in}
        values["d_out"] = d_in if d_out is None else d_out
        for name, value in values.items():
            object.__setattr__(self, name, positive_integer(name, value))
        if not isinstance(residual, bool):
            raise MalformedInput(f"residual must be true or false, got {residual!r} ({type(residual).__name__})")
        object.__setattr__(self, "residual", residual)
        if self.head_dim > self.d_in:
            warnings.warn(
                f"head_dim {self.head_dim} exceeds d_in {self.d_in}: for functions of the attention logits "
                f"the effective head dimension is {self.d_in}",
                EffectiveHeadDimensionWarning,
                stacklevel=2,
            )

    def __str__(self) -> str:
        text = f"(H, L, d, d_in) = ({self.heads}, {self.layers}, {self.head_dim}, {self.d_in})"
        text = text if self.d_out == self.d_in else f"{text}, d_out = {self.d_out}"
        return f"{text}, with a residual stream" if self.residual else text

    def document(self, m: int | None = None) -> dict[str, Any]:
        """The dimensions by name, for --json."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ("heads", "layers", "head_dim", "d_in", "d_out")}
        found |= {"residual": True} if self.residual else {}
        return found if m is None else {**found, "m": m}

    @property
    def letters(self) -> int:
        """Letters of head words: H, or H + 1 with a residual stream."""
        return self.heads + self.residual

    @property
    def word_count(self) -> int:
        """S = H + H^2 + ... + H^L, the number of non-empty head words up to length L. NotDefined with a residual stream,
        whose words have one letter more (`words_at`, `readers_at`)."""
        return geometric(require_plain(self, "S = H + ... + H^L").heads, 1, self.layers)

    @property
    def leaves(self) -> int:
        """H^L, the number of head words of length L. NotDefined with a residual stream (`words_at`)."""
        return int(require_plain(self, "H^L").heads ** self.layers)

    def words_at(self, length: int) -> int:
        """Number of head words of this length, H^length or (H+1)^length."""
        return int(self.letters**length)

    def readers_at(self, layer: int) -> int:
        """Number of words that end in a reading head of `layer` (1 ... L): prefixes of layer - 1 letters, times H."""
        return self.words_at(layer - 1) * self.heads

    def with_residual(self, residual: bool = True) -> Shape:
        """The same shape with a residual stream, or without one; itself where nothing changes."""
        if residual == self.residual:
            return self
        return Shape(self.heads, self.layers, self.head_dim, self.d_in, self.d_out, residual=residual)

    def without_residual(self) -> Shape:
        """The same shape without the residual stream."""
        return self.with_residual(False)


def require_plain(shape: Shape, what: str) -> Shape:
    """The shape, or NotDefined where it has a residual stream, of which `what` knows nothing."""
    if shape.residual:
        raise NotDefined(f"{what} is defined without a residual stream only, got {shape}")
    return shape


def geometric(base: int, first: int, last: int) -> int:
    """base^first + ... + base^last (0 when last < first)."""
    if base == 1:
        return max(0, last - first + 1)
    return 0 if last < first else (base ** (last + 1) - base**first) // (base - 1)


# --- head words over any alphabet ------------------------------------------------------------------------


def head_words(alphabet: int, length: int) -> Iterator[Word]:
    """All words of the given length over the letters 0 ... alphabet-1, in lexicographic order.

    The alphabet is the number of heads, or heads + 1 where letter 0 is the residual stream.
    """
    positive_integer("alphabet", alphabet)
    if length < 0:
        raise MalformedInput(f"word length must be at least 0, got {length}")
    return itertools.product(range(alphabet), repeat=length)


def word_at(index: int, length: int, alphabet: int) -> Word:
    """The word of the given length at this position of the lexicographic order."""
    if not 0 <= index < alphabet**length:
        raise MalformedInput(f"word index {index} is outside 0 ... {alphabet**length - 1}")
    letters = []
    for _ in range(length):
        index, letter = divmod(index, alphabet)
        letters.append(letter)
    return tuple(reversed(letters))


# --- canonical column order ------------------------------------------------------------------------------


class Column(NamedTuple):
    """One column of R_all: kind 'Q', 'K' or 'OV'; the word (its last letter reads, for Q and K); the coordinate.

    With a residual stream the letters are 0 (the stream) and 1 ... H (heads 0 ... H-1).
    """

    kind: str
    word: Word
    coordinate: int


class ColumnGroup(NamedTuple):
    """Consecutive columns of R_all: one kind and word length; `words` words of `width` columns from `start`."""

    kind: str
    length: int
    start: int
    words: int
    width: int


def column_groups(shape: Shape) -> list[ColumnGroup]:
    """R_all's columns in canonical order: Q for l = 1 ... L, K for l = 1 ... L, then OV."""
    groups = []
    start = 0
    for kind in ("Q", "K"):
        for length in range(1, shape.layers + 1):
            count = shape.readers_at(length)
            groups.append(ColumnGroup(kind, length, start, count, shape.head_dim))
            start += count * shape.head_dim
    groups.append(ColumnGroup("OV", shape.layers, start, shape.words_at(shape.layers), shape.d_out))
    return groups


def column_at(shape: Shape, index: int) -> Column:
    """The column of R_all at this position of the canonical order. Inverse of `column_index`."""
    for group in column_groups(shape):
        offset = index - group.start
        if 0 <= offset < group.words * group.width:
            number, coordinate = divmod(offset, group.width)
            if group.kind == "OV":
                return Column("OV", word_at(number, group.length, shape.letters), coordinate)
            prefix, reader = divmod(number, shape.heads)
            word = (*word_at(prefix, group.length - 1, shape.letters), reader + shape.residual)
            return Column(group.kind, word, coordinate)
    raise MalformedInput(f"column {index} is outside 0 ... M-1 = {matching_dimension(shape) - 1}")


def column_index(shape: Shape, column: Column) -> int:
    """Position of a column in the canonical order."""
    kind, word, coordinate = column
    group = next((g for g in column_groups(shape) if (g.kind, g.length) == (kind, len(word))), None)
    reads = kind != "OV"
    letters = (*word[:-1], word[-1] - shape.residual) if reads and word else word
    most = [shape.letters] * (len(word) - reads) + [shape.heads] * reads
    within = all(0 <= letter < size for letter, size in zip(letters, most, strict=False))
    if group is None or not within or not 0 <= coordinate < group.width:
        raise MalformedInput(f"{column} names no column of R_all at {shape}")
    number = 0
    for letter, size in zip(letters, most, strict=True):
        number = number * size + letter
    return group.start + number * group.width + coordinate


def too_many_words(shape: Shape, length: int | None = None) -> bool:
    """Whether there are more words of that length (layers unless said) than any machine can hold; H^L is not computed."""
    length = shape.layers if length is None else length
    return length * log2(shape.letters) > 60 or shape.layers > 2**20


def require_words(shape: Shape, what: str = "", length: int | None = None) -> None:
    """ResourceLimit where there are `too_many_words`; the line begins with `what`."""
    if too_many_words(shape, length):
        about = f"{what} at {shape}" if what else str(shape)
        raise ResourceLimit(f"{about} has more than 2^60 head words or 2^20 layers; choose a smaller shape")


# --- dimensions ------------------------------------------------------------------------------------------


def matching_dimension(shape: Shape) -> int:
    """M = 2dS + d_out H^L, with a residual stream M_res = 2dH sum_{t<L} (H+1)^t + d_out (H+1)^L: columns of R_all, and the
    least m of any host that is universal by matching for all untied targets."""
    readers = shape.heads * geometric(shape.letters, 0, shape.layers - 1)
    return 2 * shape.head_dim * readers + shape.d_out * shape.words_at(shape.layers)


def tied_targets_dimension(shape: Shape) -> int:
    """2dS + d_out (1 + S) with a residual stream, M without: m of the tied tries that serve tied targets. With tied
    parameters a word counts through its letters other than 0 alone."""
    if not shape.residual:
        return matching_dimension(shape)
    S = geometric(shape.heads, 1, shape.layers)
    return 2 * shape.head_dim * S + shape.d_out * (1 + S)


def paper_dimension(shape: Shape) -> int:
    """The paper's m-bar (thm:sparse_universal_transformer): (L+1) max{2d, d_out} when H = 1, M otherwise."""
    require_plain(shape, "the paper's m-bar")
    if shape.heads == 1:
        return (shape.layers + 1) * max(2 * shape.head_dim, shape.d_out)
    H, L = shape.heads, shape.layers
    return 2 * H * (H**L - 1) // (H - 1) * shape.head_dim + H**L * shape.d_out


def paper_looped_dimension(shape: Shape) -> int:
    """The paper's looped m-bar (thm:designed-R-looped): (1 + S) max{2d, d_out}. Below M at its table shapes."""
    return (1 + shape.word_count) * max(2 * shape.head_dim, shape.d_out)


def linear_test_dimension(shape: Shape) -> int:
    """(d + d_in) S + d_out H^L, with a residual stream (d + d_in) H sum_{t<L} (H+1)^t + d_out (H+1)^L: columns of the linear
    test for attention-matching when d > d_in."""
    readers = shape.heads * geometric(shape.letters, 0, shape.layers - 1)
    return (shape.head_dim + shape.d_in) * readers + shape.d_out * shape.words_at(shape.layers)


def shared_key_dimension(shape: Shape) -> int:
    """Least m of the shared-key tries (d >= d_in): d_in (1 + 2S) when d_out = d_in. Attention-matching."""
    inner = geometric(shape.heads, 0, shape.layers - 1)
    return shape.d_in * shape.word_count + max(shape.d_in, shape.d_out) * inner + shape.d_out * shape.leaves


def shared_query_dimension(shape: Shape) -> int:
    """Least m of the shared-query shift register (d >= d_out): d_out (S + H^L). Attention-matching, for almost all
    targets (those with invertible M^{l,0})."""
    return shape.d_out * (shape.word_count + shape.leaves)
