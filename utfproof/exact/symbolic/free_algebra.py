"""The unrolling and equal-attention lemmas as identities of words.

Every matrix is a letter that commutes with none: attention matrices A^{l,h}, values M^{l,h} and R^{l,h}, readers W_Q,
W_K, R_Q, R_K, and X, E, U. An identity of words holds for matrices of all sizes, every context length and every
attention map. The statements are written once; SymPy and plain Python compute both sides of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from utfproof.errors import ResourceLimit
from utfproof.exact.symbolic.statements import (
    HOST,
    KINDS,
    PREFIXES,
    TARGET,
    ClosedWord,
    E,
    Equation,
    Systems,
    U,
    step_attention,
    step_summand,
    step_value,
    unrolled_word,
)
from utfproof.exact.symbolic.words import ROUTES, IdentityResult, Letter, Letters, Plain, RoutesDisagree, Sides, decide
from utfproof.shapes import head_words

MOST_WORDS = 2_000
"""H^L above which an expansion is refused: the induction steps cover every H and L's pattern anyway."""


def _systems(heads: int, layers: int, tied_host: bool = False, tied_target: bool = False) -> Systems:
    systems = Systems(heads, layers, tied_host, tied_target)
    # H^L is compared through logarithms first: it may be a number of absurd length
    if (heads > 1 and layers * (heads.bit_length() - 1) > MOST_WORDS.bit_length()) or heads**layers > MOST_WORDS:
        raise ResourceLimit(
            f"{heads} heads and {layers} layers have {heads}^{layers} head words, the limit is {MOST_WORDS}; "
            "choose a smaller shape, or use the induction step"
        )
    return systems


def _added(parts: Iterator[Any] | Sequence[Any]) -> Any:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


# --- unrolling ---------------------------------------------------------------------------------------------------


def _layer(words: Plain, systems: Systems, system: str, before: Any, layer: int | str) -> Any:
    """One layer of the recursion: the sum over heads of A^{l,h} X M^{l,h}."""
    return _added(
        words.word((systems.attention(system, layer, head),))
        * before
        * words.word((systems.value(system, layer, head),))
        for head in range(systems.heads)
    )


def _layer_inputs(words: Plain, systems: Systems, system: str) -> list[Any]:
    """X^0, X^1, ..., X^L."""
    out = [words.word(systems.start(system))]
    for layer in range(1, systems.layers + 1):
        out.append(_layer(words, systems, system, out[-1], layer))
    return out


def unrolling(
    heads: int, layers: int, *, system: str = TARGET, tied: bool = False, closed: ClosedWord = unrolled_word
) -> IdentityResult:
    """lem:multiunroll (lem:unroll when H = 1) for X^0, ..., X^L: the layer recursion against the sum over head words.

    system: "target" or "host". closed: the summand of a word, the lemma's own unless said otherwise.
    """
    systems = _systems(heads, layers, tied, tied)

    def sides(words: Plain) -> Sides:
        out: Sides = {}
        for layer, found in enumerate(_layer_inputs(words, systems, system)):
            total = _added(words.word(closed(systems, system, word)) for word in head_words(heads, layer))
            out[f"X^{layer}"] = (words.read(found), words.read(total))
        return out

    return decide(f"unrolling, {'tied ' if tied else ''}{system}, H = {heads}, L = {layers}", sides)


def unrolling_step(heads: int, *, system: str = TARGET, tied: bool = False) -> IdentityResult:
    """The induction step of lem:multiunroll, once and for every layer: X^{l-1} = sum over prefix words of P X N (two
    indeterminate words stand for any sum) gives X^l = sum over words (prefix, h) of A^{l,h} P X N M^{l,h}."""
    systems = _systems(heads, 1, tied, tied)

    def sides(words: Plain) -> Sides:
        summands = [step_summand(systems, system, prefix) for prefix in PREFIXES]
        longer = (
            (systems.attention(system, "l", head), *summand, systems.value(system, "l", head))
            for summand in summands
            for head in range(heads)
        )
        after = _layer(words, systems, system, _added(map(words.word, summands)), "l")
        return {"X^l from X^(l-1)": (words.read(after), words.read(_added(map(words.word, longer))))}

    return decide(f"unrolling, induction step, {'tied ' if tied else ''}{system}, H = {heads}", sides)


# --- equal attention, equal outputs ------------------------------------------------------------------------------


def _agreement(words: Plain, systems: Systems, literal: bool, output: bool, dropped: Equation | None) -> Sides:
    """Queries and keys (and outputs) of target and host after rewriting; attention is identified layer by layer."""
    target, host = (_layer_inputs(words, systems, system) for system in (TARGET, HOST))
    same: dict[Letter, Letter] = {}
    out: Sides = {}
    for layer in range(systems.layers if literal else 1, systems.layers + 1):
        established = {}
        for head in range(systems.heads):
            agree = True
            for kind in KINDS:
                readers = [words.word((systems.reader(system, kind, layer, head),)) for system in (TARGET, HOST)]
                rules = systems.rules(kind, layer, dropped)
                rules = {ours: theirs for ours, theirs in rules.items() if ours[-1].head == head}
                right = words.rewritten(words.renamed(host[layer - 1] * readers[1], same), rules)
                sides = words.read(target[layer - 1] * readers[0]), words.read(right)
                out[f"{kind}[{layer},{head}]"] = sides
                agree &= sides[0] == sides[1]
            if agree:
                established[systems.attention(HOST, layer, head)] = systems.attention(TARGET, layer, head)
        same |= established
    if output:
        right = words.renamed(host[-1] * words.word((U,)), same)
        right = words.rewritten(right, systems.rules("OV", systems.layers, dropped))
        out["OV"] = (words.read(target[-1]), words.read(right))
    return out


def equal_attention(
    heads: int,
    layers: int,
    *,
    tied_host: bool = False,
    tied_target: bool = False,
    literal: bool = False,
    dropped: Equation | None = None,
) -> IdentityResult:
    """lem:multieqatt (lem:eqatt when H = 1): under the matching equations (QK) queries and keys agree in every layer.

    Layer by layer: once all queries and keys of head h agree in a layer, its attention letters are identified, since
    attention is a map of them. literal: the lemma read literally, layer L alone with its own equations and no earlier
    letters identified; this fails from L = 2 on. dropped: an equation to do without, such as ("Q", (0, 1)).
    """
    systems = _systems(heads, layers, tied_host, tied_target)
    systems.check_equation(dropped)
    name = f"equal attention{', read literally' if literal else ''}, H = {heads}, L = {layers}"
    return decide(name, partial(_agreement, systems=systems, literal=literal, output=False, dropped=dropped))


def equal_output(
    heads: int,
    layers: int,
    *,
    tied_host: bool = False,
    tied_target: bool = False,
    dropped: Equation | None = None,
) -> IdentityResult:
    """Equal input-output behaviour: under (QK) and (OV) the host's output X~^L U is the target's X^L."""
    systems = _systems(heads, layers, tied_host, tied_target)
    systems.check_equation(dropped)
    name = f"equal outputs, H = {heads}, L = {layers}"
    return decide(name, partial(_agreement, systems=systems, literal=False, output=True, dropped=dropped))


def equal_attention_step(heads: int, *, literal: bool = False) -> IdentityResult:
    """The induction step of equal attention, and the step from it to equal outputs, for every layer at once.

    The prefix words are indeterminate: from P~ = P (earlier layers agree) and E R reader -> N reader, the host's
    queries, keys and output are the target's. literal: without P~ = P, which fails.
    """
    systems = _systems(heads, 1)

    def sides(words: Plain) -> Sides:
        before = {
            system: _added(words.word(step_summand(systems, system, prefix)) for prefix in PREFIXES)
            for system in (TARGET, HOST)
        }
        same = {step_attention(HOST, prefix): step_attention(TARGET, prefix) for prefix in PREFIXES}
        readers: dict[str, list[Letters]] = {
            f"{kind}[l,{head}]": [(systems.reader(system, kind, "l", head),) for system in (TARGET, HOST)]
            for kind in KINDS
            for head in range(heads)
        }
        out: Sides = {}
        readers["OV"] = [(), (U,)]
        for label, (theirs, ours) in readers.items():
            rules = {(E, step_value(HOST, p), *ours): (step_value(TARGET, p), *theirs) for p in PREFIXES}
            right = words.renamed(before[HOST] * words.word(ours), {} if literal else same)
            left = before[TARGET] * words.word(theirs)
            out[label] = (words.read(left), words.read(words.rewritten(right, rules)))
        return out

    return decide(f"equal attention, induction step{', read literally' if literal else ''}, H = {heads}", sides)


def literal_counterexample() -> IdentityResult:
    """lem:multieqatt read literally is false, not merely unproved: H = 1, L = 2, d = d_in = m = 1, softmax.

    The target has all weights 1; the host too, but R_Q^1 = 0. Layer 2's equations hold (E R_V R_Q = 1 = M W_Q, and
    keys), layer 1's do not. On X^0 = (1, 0) the first token of layer 2 scores token 1 above token 2 by
    x_1 (x_1 - x_2): 0 in the host, positive in the target. So A^2 differs; `difference` is the target's gap.
    Routes: SymPy with e exact; plain fractions with 2 < e < 3.
    """
    import sympy as sp

    def layer_one(query: int) -> sp.Matrix:
        x = sp.Matrix([1, 0])
        logits = (x * query) * x.T
        weights = logits.applyfunc(sp.exp)
        return sp.Matrix(2, 2, lambda i, j: weights[i, j] / sum(weights[i, k] for k in range(2))) * x

    def gap(x: sp.Matrix) -> sp.Expr:
        return sp.factor(sp.together(x[0] * x[0] - x[0] * x[1]))

    target, host = gap(layer_one(1)), gap(layer_one(0))
    # the first token's layer-1 output is e/(1+e), which lies between 2/3 and 3/4; the second's is 1/2
    low, high = (x * (x - Fraction(1, 2)) for x in (Fraction(2, 3), Fraction(3, 4)))
    if host != 0 or not bool(sp.Rational(low) < target) or not bool(target < sp.Rational(high)):
        raise RoutesDisagree(f"literal counterexample: SymPy finds the gaps {target} and {host}, not ({low}, {high})")
    shown = str(target.subs(sp.E, sp.Symbol("e")))
    return IdentityResult(
        "layer 2's equations alone give equal attention in layer 2, H = 1", not low > 0, 1, shown, ROUTES
    )
