"""Sums of words in letters that do not commute, in plain Python and in SymPy, and how the two are held against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from operator import mul
from typing import Any, NamedTuple

from utfproof.errors import Undecided

ROUTES = ("SymPy", "plain integers")


class RoutesDisagree(Undecided):
    """Two computations of the same object differ: a defect of the software, never a verdict."""


class Letter(NamedTuple):
    """A matrix with no relations: its name, its layer (from 1; "" when tied) and head (from 0; "" for X, E, U)."""

    name: str
    layer: int | str = ""
    head: int | str = ""

    def __str__(self) -> str:
        place = ",".join(str(part) for part in (self.layer, self.head) if part != "")
        return self.name + (f"[{place}]" if place else "")


Letters = tuple[Letter, ...]


class Words(dict[Letters, int]):
    """An integer combination of words, without zero coefficients."""

    @staticmethod
    def collect(terms: Iterable[tuple[Letters, int]]) -> Words:
        """The sum of these terms."""
        out = Words()
        for word, coefficient in terms:
            out[word] = out.get(word, 0) + coefficient
        return Words({word: coefficient for word, coefficient in out.items() if coefficient})

    def __add__(self, other: Words) -> Words:
        return Words.collect([*self.items(), *other.items()])

    def __sub__(self, other: Words) -> Words:
        return Words.collect([*self.items(), *((word, -coefficient) for word, coefficient in other.items())])

    def __mul__(self, other: Words) -> Words:
        return Words.collect((u + v, a * b) for u, a in self.items() for v, b in other.items())

    def __str__(self) -> str:
        """A few terms, plus and minus in turn; "0" for zero."""
        # words may mix layers "" and 1, 2, ...: compare their printed form
        ordered = sorted(self.items(), key=lambda term: [str(letter) for letter in term[0]])
        signs = [[term for term in ordered if (term[1] < 0) == negative] for negative in (False, True)]
        mixed = [term for pair in zip_longest(*signs) for term in pair if term is not None]
        parts = []
        for word, c in mixed[:4]:
            factor = "" if abs(c) == 1 else f"{abs(c)} "
            parts.append(("- " if c < 0 else "+ ") + factor + (" ".join(map(str, word)) or "1"))
        text = " ".join(parts).removeprefix("+ ") or "0"
        return text + (f" and {len(self) - len(parts)} more" if len(self) > len(parts) else "")


class Plain:
    """The arithmetic of `Words`: values that know + and *, from letters and back."""

    def word(self, letters: Letters) -> Any:
        """A single word."""
        return Words({letters: 1})

    def renamed(self, value: Any, names: Mapping[Letter, Letter]) -> Any:
        """Each letter replaced by its new name, where it has one."""
        return Words.collect((tuple(names.get(letter, letter) for letter in word), c) for word, c in value.items())

    def rewritten(self, value: Any, rules: Mapping[Letters, Letters]) -> Any:
        """The left side of each rule replaced by its right side. Rules start with a letter that a word holds at most once."""

        def rewrite(word: Letters) -> Letters:
            for left, right in rules.items():
                for start in range(len(word) - len(left) + 1):
                    if word[start : start + len(left)] == left:
                        return word[:start] + right + word[start + len(left) :]
            return word

        return Words.collect((rewrite(word), c) for word, c in value.items())

    def read(self, value: Any) -> Words:
        """The words of a value."""
        return Words(value)


class SymPy(Plain):
    """The same by SymPy's non-commuting symbols, expansion and substitution."""

    def __init__(self) -> None:
        self._letters: dict[Any, Letter] = {}

    def _symbol(self, letter: Letter) -> Any:
        import sympy as sp

        symbol = sp.Symbol(str(letter), commutative=False)
        self._letters[symbol] = letter
        return symbol

    def word(self, letters: Letters) -> Any:
        import sympy as sp

        return reduce(mul, map(self._symbol, letters), sp.Integer(1))

    def renamed(self, value: Any, names: Mapping[Letter, Letter]) -> Any:
        return value.expand().xreplace({self._symbol(old): self._symbol(new) for old, new in names.items()})

    def rewritten(self, value: Any, rules: Mapping[Letters, Letters]) -> Any:
        value = value.expand()
        for left, right in rules.items():
            value = value.subs(self.word(left), self.word(right))
        return value

    def read(self, value: Any) -> Words:
        import sympy as sp

        def letters(factor: Any) -> Letters:
            base, exponent = factor.as_base_exp()
            return (self._letters[base],) * int(exponent)

        terms = (term.args_cnc() for term in sp.Add.make_args(value.expand()))
        return Words.collect((sum(map(letters, factors), ()), int(sp.Mul(*numbers))) for numbers, factors in terms)


@dataclass(frozen=True)
class IdentityResult:
    """An identity, checked. `terms`: words compared; `difference`: "0", or where and by how much the first failing
    comparison fails; `routes`: the computations that agreed on every word."""

    statement: str
    holds: bool
    terms: int
    difference: str
    routes: tuple[str, ...] = ROUTES


Sides = dict[str, tuple[Words, Words]]
"""Named comparisons: the left and the right side of each."""


def decide(statement: str, sides: Callable[[Plain], Sides]) -> IdentityResult:
    """The verdict on all comparisons, computed in SymPy and in plain Python. RoutesDisagree names the first comparison in which
    the two differ."""
    first, second = sides(SymPy()), sides(Plain())
    terms, difference = 0, "0"
    for label, (left, right) in first.items():
        if (left, right) != second.get(label):
            raise RoutesDisagree(f"{statement}: {ROUTES[0]} and {ROUTES[1]} differ at {label}")
        terms += len(left.keys() | right.keys())
        if difference == "0" and left != right:
            difference = f"{label}: {left - right}"
    if terms == 0 or len(first) != len(second):
        raise RoutesDisagree(f"{statement}: nothing was compared, or not the same")
    return IdentityResult(statement, difference == "0", terms, difference)
