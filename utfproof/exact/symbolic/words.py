"""Words in a free algebra, in plain Python: letters, words as tuples, polynomials as dicts word -> integer.

Letters do not commute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple


class Letter(NamedTuple):
    """A matrix with no relations: its name, its layer (from 1; "" when tied) and head (from 0; "" for X, E, U)."""

    name: str
    layer: int | str = ""
    head: int | str = ""

    def __str__(self) -> str:
        place = ",".join(str(part) for part in (self.layer, self.head) if part != "")
        return self.name + (f"[{place}]" if place else "")


Letters = tuple[Letter, ...]
Polynomial = dict[Letters, int]


def collect(terms: Iterable[tuple[Letters, int]]) -> Polynomial:
    """The sum of these terms, without zero coefficients."""
    out: Polynomial = {}
    for word, coefficient in terms:
        total = out.get(word, 0) + coefficient
        if total:
            out[word] = total
        else:
            out.pop(word, None)
    return out


def add(*summands: Polynomial) -> Polynomial:
    """Sum of polynomials."""
    return collect(term for summand in summands for term in summand.items())


def subtract(left: Polynomial, right: Polynomial) -> Polynomial:
    """left - right."""
    return collect([*left.items(), *((word, -coefficient) for word, coefficient in right.items())])


def multiply(*factors: Polynomial) -> Polynomial:
    """Product of polynomials, in this order."""
    out: Polynomial = {(): 1}
    for factor in factors:
        out = collect((u + v, a * b) for u, a in out.items() for v, b in factor.items())
    return out


def one(*letters: Letter) -> Polynomial:
    """The polynomial that is a single word."""
    return {letters: 1}


def renamed(polynomial: Polynomial, names: Mapping[Letter, Letter]) -> Polynomial:
    """Each letter replaced by its new name, where it has one."""
    return collect((tuple(names.get(letter, letter) for letter in word), c) for word, c in polynomial.items())


def rewritten(polynomial: Polynomial, rules: Mapping[Letters, Letters]) -> Polynomial:
    """Each word with the first subword that is some rule's left side replaced by its right side, once.

    Rules are meant to start with a letter that a word holds at most once (E), so once is enough.
    """
    lengths = sorted({len(left) for left in rules}, reverse=True)

    def rewrite(word: Letters) -> Letters:
        for start in range(len(word)):
            for length in lengths:
                right = rules.get(word[start : start + length])
                if right is not None:
                    return word[:start] + right + word[start + length :]
        return word

    return collect((rewrite(word), c) for word, c in polynomial.items())


def show(polynomial: Polynomial, limit: int = 4) -> str:
    """A few terms, for people; "0" for zero."""
    if not polynomial:
        return "0"
    # words may mix layers "" and 1, 2, ...: compare their printed form; plus and minus in turn
    ordered = sorted(polynomial.items(), key=lambda term: [str(letter) for letter in term[0]])
    signs = [[term for term in ordered if (term[1] < 0) == negative] for negative in (False, True)]
    mixed = [term for pair in zip_longest(*signs) for term in pair if term is not None]
    parts = []
    for word, c in mixed[:limit]:
        factor = "" if abs(c) == 1 else f"{abs(c)} "
        parts.append(("- " if c < 0 else "+ ") + factor + (" ".join(map(str, word)) or "1"))
    rest = len(polynomial) - len(parts)
    text = " ".join(parts).removeprefix("+ ")
    return text + (f" and {rest} more" if rest else "")
