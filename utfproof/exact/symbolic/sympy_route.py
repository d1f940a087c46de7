"""The SymPy route of `free_algebra`: non-commuting symbols, SymPy's own expansion and substitution."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import sympy as sp

from utfproof.exact.symbolic import statements
from utfproof.exact.symbolic.statements import HOST, KINDS, PREFIXES, TARGET, ClosedWord, Equation, Systems, U
from utfproof.exact.symbolic.words import Letter, Letters, Polynomial
from utfproof.shapes import head_words

Comparisons = dict[str, tuple[Polynomial, Polynomial]]


class Symbols:
    """SymPy symbols for letters, and SymPy expressions read back as words."""

    def __init__(self) -> None:
        self._letters: dict[Any, Letter] = {}

    def letter(self, letter: Letter) -> Any:
        """The non-commuting symbol of a letter."""
        symbol = sp.Symbol(str(letter), commutative=False)
        self._letters[symbol] = letter
        return symbol

    def word(self, letters: Letters) -> Any:
        """The product of letters, in this order."""
        return reduce(mul, map(self.letter, letters), sp.Integer(1))

    def read(self, expression: Any) -> Polynomial:
        """An expanded expression as a dict of words."""
        out: Polynomial = {}
        for term in sp.Add.make_args(sp.expand(expression)):
            coefficients, factors = term.args_cnc()
            coefficient = int(sp.Mul(*coefficients))
            word = tuple(letter for factor in factors for letter in self._factor(factor))
            if coefficient:
                out[word] = out.get(word, 0) + coefficient
        return out

    def _factor(self, factor: Any) -> Letters:
        base, exponent = factor.as_base_exp()
        return (self._letters[base],) * int(exponent)


def layer_inputs(symbols: Symbols, systems: Systems, system: str) -> list[Any]:
    """X^0, X^1, ..., X^L by the layer recursion."""
    stream = [symbols.word(systems.start(system))]
    for layer in range(1, systems.layers + 1):
        total = sp.Integer(0)
        for head in range(systems.heads):
            attention = symbols.letter(systems.attention(system, layer, head))
            total += attention * stream[-1] * symbols.letter(systems.value(system, layer, head))
        stream.append(sp.expand(total))
    return stream


def unrolling(systems: Systems, system: str, closed: ClosedWord) -> Comparisons:
    """X^l by recursion against the sum of closed words, for every l."""
    symbols, out = Symbols(), {}
    for layer, found in enumerate(layer_inputs(symbols, systems, system)):
        total = sp.Add(*(symbols.word(closed(systems, system, word)) for word in head_words(systems.heads, layer)))
        out[f"X^{layer}"] = (symbols.read(found), symbols.read(total))
    return out


def unrolling_step(systems: Systems, system: str) -> Comparisons:
    """One layer applied to indeterminate summands, against the summands of the longer words."""
    symbols, heads = Symbols(), range(systems.heads)
    before = sp.Add(*(symbols.word(statements.step_summand(systems, system, prefix)) for prefix in PREFIXES))
    after = sp.Add(
        *(
            symbols.letter(systems.attention(system, "l", head))
            * before
            * symbols.letter(systems.value(system, "l", head))
            for head in heads
        )
    )
    words = [statements.step_closed(systems, system, prefix, head) for prefix in PREFIXES for head in heads]
    return {"X^l from X^(l-1)": (symbols.read(after), symbols.read(sp.Add(*map(symbols.word, words))))}


def _rewritten(symbols: Symbols, expression: Any, rules: dict[Letters, Letters]) -> Any:
    for left, right in rules.items():
        expression = expression.subs(symbols.word(left), symbols.word(right))
    return sp.expand(expression)


def agreement(
    systems: Systems, *, literal: bool = False, output: bool = False, dropped: Equation | None = None
) -> Comparisons:
    """Queries and keys (and outputs) of target and host after rewriting; attention is identified layer by layer."""
    symbols = Symbols()
    target, host = layer_inputs(symbols, systems, TARGET), layer_inputs(symbols, systems, HOST)
    same: dict[Any, Any] = {}
    out: Comparisons = {}
    for layer in range(1, systems.layers + 1):
        if literal and layer < systems.layers:
            continue
        differences: dict[int, list[Any]] = {head: [] for head in range(systems.heads)}
        for kind in KINDS:
            rules = systems.rules(kind, layer, dropped)
            for head in range(systems.heads):
                left = sp.expand(target[layer - 1] * symbols.letter(systems.reader(TARGET, kind, layer, head)))
                right = sp.expand(host[layer - 1] * symbols.letter(systems.reader(HOST, kind, layer, head)))
                relevant = {ours: theirs for ours, theirs in rules.items() if ours[-1].head == head}
                right = _rewritten(symbols, right.xreplace(same), relevant)
                out[f"{kind}[{layer},{head}]"] = (symbols.read(left), symbols.read(right))
                differences[head].append(sp.expand(left - right))
        for head, found in differences.items():
            if all(difference == 0 for difference in found):
                ours = symbols.letter(systems.attention(HOST, layer, head))
                same[ours] = symbols.letter(systems.attention(TARGET, layer, head))
    out = {label: out[label] for label in _ordered(systems, out)}
    if output:
        right = sp.expand(host[-1] * symbols.letter(U)).xreplace(same)
        right = _rewritten(symbols, right, systems.rules("OV", systems.layers, dropped))
        out["OV"] = (symbols.read(target[-1]), symbols.read(right))
    return out


def _ordered(systems: Systems, labels: Comparisons) -> list[str]:
    """Labels by layer, head, kind: the order in which the lemma's proof meets them."""
    wanted = [
        f"{kind}[{layer},{head}]"
        for layer in range(1, systems.layers + 1)
        for head in range(systems.heads)
        for kind in KINDS
    ]
    return [label for label in wanted if label in labels]


def agreement_step(systems: Systems, *, literal: bool = False) -> Comparisons:
    """The same for indeterminate prefix words, whatever the layer."""
    symbols, out = Symbols(), {}
    target = sp.Add(*(symbols.word(statements.step_summand(systems, TARGET, prefix)) for prefix in PREFIXES))
    host = sp.Add(*(symbols.word(statements.step_summand(systems, HOST, prefix)) for prefix in PREFIXES))
    for label, theirs, ours in statements.step_readers(systems):
        left, right = sp.expand(target * symbols.word(theirs)), sp.expand(host * symbols.word(ours))
        for prefix in PREFIXES:
            equation = symbols.word((statements.E, statements.step_value(HOST, prefix), *ours))
            right = right.subs(equation, symbols.word((statements.step_value(TARGET, prefix), *theirs)))
            if not literal:
                attention = symbols.letter(statements.step_attention(HOST, prefix))
                right = right.xreplace({attention: symbols.letter(statements.step_attention(TARGET, prefix))})
        out[label] = (symbols.read(left), symbols.read(right))
    return out
