"""What the lemmas say, letter by letter: the layer recursion's letters, closed words and matching equations.

Shared by both routes of `free_algebra`: only the arithmetic is done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from utfproof.errors import MalformedInput
from utfproof.exact.symbolic.words import Letter, Letters
from utfproof.shapes import Word, head_words, positive_integer

X = Letter("X")
E = Letter("E")
U = Letter("U")

TARGET, HOST = "target", "host"
KINDS = ("Q", "K")
Equation = tuple[str, Word]
"""('Q' | 'K' | 'OV', head word): one matching equation; for Q and K the word's last letter reads."""
ClosedWord = Callable[["Systems", str, Word], Letters]


@dataclass(frozen=True)
class Systems:
    """A target and a host with H heads and L layers, each of them tied or not. Layers count from 1, heads from 0."""

    heads: int
    layers: int
    tied_host: bool = False
    tied_target: bool = False

    def __post_init__(self) -> None:
        positive_integer("heads", self.heads)
        positive_integer("layers", self.layers)

    def _layer(self, system: str, layer: int | str) -> int | str:
        if system not in (TARGET, HOST):
            raise MalformedInput(f"system {system!r} is neither {TARGET!r} nor {HOST!r}")
        return "" if (self.tied_target if system == TARGET else self.tied_host) else layer

    def attention(self, system: str, layer: int | str, head: int) -> Letter:
        """A^{l,h} of the target, A~^{l,h} of the host: never tied, for activations differ from layer to layer."""
        self._layer(system, layer)
        return Letter("A" if system == TARGET else "A~", layer, head)

    def value(self, system: str, layer: int | str, head: int) -> Letter:
        """M^{l,h} = W_V W_O, or R_V^{l,h}."""
        return Letter("M" if system == TARGET else "R", self._layer(system, layer), head)

    def reader(self, system: str, kind: str, layer: int | str, head: int) -> Letter:
        """W_Q^{l,h} and W_K^{l,h}, or R_Q^{l,h} and R_K^{l,h}."""
        return Letter(("W_" if system == TARGET else "R_") + kind, self._layer(system, layer), head)

    def start(self, system: str) -> Letters:
        """X^0, or X^0 E."""
        return (X,) if system == TARGET else (X, E)

    def values(self, system: str, word: Word) -> Letters:
        """M_w or R_w as a word."""
        return tuple(self.value(system, layer, head) for layer, head in enumerate(word, start=1))

    def equation(self, kind: str, word: Word) -> tuple[Letters, Letters]:
        """The matching equation as a rewriting rule, host's word -> target's: E R_w R_Q -> M_w W_Q, E R_w U -> M_w."""
        if kind == "OV":
            return (E, *self.values(HOST, word), U), self.values(TARGET, word)
        layer, head, prefix = len(word), word[-1], word[:-1]
        host = (E, *self.values(HOST, prefix), self.reader(HOST, kind, layer, head))
        return host, (*self.values(TARGET, prefix), self.reader(TARGET, kind, layer, head))

    def rules(self, kind: str, length: int, dropped: Equation | None = None) -> dict[Letters, Letters]:
        """All equations of this kind for words of this length, but for the dropped one."""
        words = (word for word in head_words(self.heads, length) if (kind, word) != dropped)
        return dict(self.equation(kind, word) for word in words)

    def check_equation(self, equation: Equation | None) -> None:
        """MalformedInput unless `equation` names a matching equation of these systems (None is fine)."""
        if equation is None:
            return
        kind, word = equation
        lengths = [self.layers] if kind == "OV" else range(1, self.layers + 1) if kind in KINDS else []
        if len(word) not in lengths or not all(0 <= letter < self.heads for letter in word):
            raise MalformedInput(f"{equation} names no matching equation for {self.heads} heads, {self.layers} layers")


def unrolled_word(systems: Systems, system: str, word: Word) -> Letters:
    """lem:multiunroll's summand: A^{l,h_l} ... A^{1,h_1} X^0 (E) M^{1,h_1} ... M^{l,h_l} (R for a host)."""
    attention = [systems.attention(system, layer, head) for layer, head in enumerate(word, start=1)]
    return (*reversed(attention), *systems.start(system), *systems.values(system, word))


def printed_prose_word(systems: Systems, system: str, word: Word) -> Letters:
    """The host's summand as the proof of lem:multiunroll words it: E R_V^{t,h_t} for each value matrix, E every time."""
    attention = [systems.attention(system, layer, head) for layer, head in enumerate(word, start=1)]
    values = systems.values(system, word)
    if system == TARGET or not word:
        return (*reversed(attention), *systems.start(system), *values)
    return (*reversed(attention), X, *(letter for value in values for letter in (E, value)))


# --- one step of the inductions, with indeterminate prefixes ---------------------------------------------------

PREFIXES = ("u", "v")
"""Two indeterminate head words stand for any sum of them: the layer map is linear."""


def step_attention(system: str, prefix: str) -> Letter:
    """The attention prefix A^{l-1,h_{l-1}} ... A^{1,h_1} of an indeterminate word."""
    return Letter("P" if system == TARGET else "P~", prefix)


def step_value(system: str, prefix: str) -> Letter:
    """The value prefix M_w or R_w of an indeterminate word."""
    return Letter("N" if system == TARGET else "R", prefix)


def step_summand(systems: Systems, system: str, prefix: str) -> Letters:
    """P X N, or P~ X E R: the summand of X^{l-1} that belongs to an indeterminate word."""
    return (step_attention(system, prefix), *systems.start(system), step_value(system, prefix))
