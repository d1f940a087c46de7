"""Formulas of dimensions as the pages write them, read: "d_in(1 + 2S)", "2dS + b·H^L", "d_in H^L + S(2d − d²/d_in)"."""

import re
from collections.abc import Iterator
from fractions import Fraction

TOKEN = re.compile(r"\s*(min\(|d_in|[HLdbSMrg]|\d+|,|\^\{|[()+\-−·*/^{}⌊⌋⌈⌉²])")
PART = re.compile(
    r"\s*((?<![A-Za-zΣ_`])\d*(?:d_in|[HLdbSMrg])+(?![A-Za-z_₀-₉'])|\d+(?![A-Za-z])|min\(|(?<=g),|\^\{|[()+\-−·*/^}⌊⌋⌈⌉²])"
)
"""A letter, number or sign; and such letters run together, where no word of prose stands."""


class NoFormula(Exception):
    """The text is not a formula in H, L, d, d_in (b), S and M."""


def formulas(text: str) -> Iterator[str]:
    """The longest runs of such parts in a text that have H^L or S, an operation and whole brackets."""
    start = 0
    while start < len(text):
        end, depth, best = start, 0, 0
        while found := PART.match(text, end):
            part, end = found[1], found.end()
            if end == found.start(1) + 1 and part in "+−-·*/^)" and found.start(1) == start:
                break
            depth += (part in ("(", "⌊", "⌈", "^{", "min(")) - (part in (")", "⌋", "⌉", "}"))
            if depth < 0:
                break
            if depth == 0 and part not in "+-−·*/^":
                best = end
        run = text[start:best].strip() if best > start else ""
        if re.search(r"H\^L|S", run) and re.search(r"[+−\-·(]|[\db]S|in ?[HS]|[HLdb] ?H", run):
            yield run
        start = max(best, start + 1)


class Reader:
    """A recursive reader: sums of products (signs of multiplication may be missing) of powers."""

    def __init__(self, text: str, values: dict[str, int]) -> None:
        self.tokens = [found[1] for found in TOKEN.finditer(text)]
        if "".join(self.tokens).replace(" ", "") != re.sub(r"\s", "", text):
            raise NoFormula(text)
        self.values, self.at = values, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def whole(self) -> Fraction:
        found = self.sum()
        if self.peek():
            raise NoFormula(self.peek())
        return found

    def sum(self) -> Fraction:
        total = self.product()
        while self.peek() and self.peek() in "+-−":
            sign = 1 if self.take() == "+" else -1
            total += sign * self.product()
        return total

    def product(self) -> Fraction:
        total = self.power()
        while self.peek() and (self.peek() in "·*/(⌊⌈" or self.peek()[0].isalnum()):
            sign = self.take() if self.peek() in "·*/" else "*"
            factor = self.power()
            total = total / factor if sign == "/" else total * factor
        return total

    def power(self) -> Fraction:
        base = self.atom()
        while self.peek() in ("^", "^{", "²"):
            mark = self.take()
            if mark == "²":
                base *= base
                continue
            exponent = self.sum() if mark == "^{" else self.atom()
            if mark == "^{" and self.take() != "}":
                raise NoFormula("an exponent does not end")
            if exponent.denominator != 1 or exponent > 12:
                raise NoFormula("exponent")
            base = base ** int(exponent)
        return base

    def atom(self) -> Fraction:
        token = self.take() if self.peek() else ""
        if token.isdigit():
            return Fraction(int(token))
        if token in self.values:
            return Fraction(self.values[token])
        if token == "min(":
            first = self.sum()
            if self.take() != ",":
                raise NoFormula("min of two")
            found = min(first, self.sum())
            if self.take() != ")":
                raise NoFormula("a bracket does not end")
            return found
        ends = {"(": ")", "⌊": "⌋", "⌈": "⌉"}
        if token not in ends:
            raise NoFormula(token)
        inside = self.sum()
        if not self.peek() or self.take() != ends[token]:
            raise NoFormula("a bracket does not end")
        return inside if token == "(" else Fraction(inside // 1 if token == "⌊" else -(-inside // 1))


def value(text: str, values: dict[str, int]) -> Fraction:
    """The formula at these H, L, d, d_in, b, S, M. NoFormula where it is none, ZeroDivisionError where it has no value."""
    return Reader(text, values).whole()
