"""The unrolling and equal-attention lemmas as identities of words.

Every matrix is a letter that commutes with none: attention matrices A^{l,h}, values M^{l,h} and R^{l,h}, readers W_Q,
W_K, R_Q, R_K, and X, E, U. An identity of words holds for matrices of all sizes, every context length and every
attention map. Each is expanded by SymPy and again in plain Python; the two must agree on every word.
"""

from __future__ import annotations

from fractions import Fraction

from utfproof.errors import ResourceLimit
from utfproof.exact.symbolic import plain_route
from utfproof.exact.symbolic.results import ROUTES, IdentityResult, RoutesDisagree, decide
from utfproof.exact.symbolic.statements import (
    HOST,
    TARGET,
    ClosedWord,
    Equation,
    Systems,
    printed_prose_word,
    unrolled_word,
)

__all__ = [
    "HOST",
    "TARGET",
    "equal_attention",
    "equal_attention_step",
    "equal_output",
    "literal_counterexample",
    "printed_prose_word",
    "unrolled_word",
    "unrolling",
    "unrolling_step",
]

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


# --- unrolling ---------------------------------------------------------------------------------------------------


def unrolling(
    heads: int,
    layers: int,
    *,
    system: str = TARGET,
    tied: bool = False,
    closed: ClosedWord = unrolled_word,
) -> IdentityResult:
    """lem:multiunroll (lem:unroll when H = 1) for X^0, ..., X^L: the layer recursion against the sum over head words.

    system: "target" or "host". closed: the summand of a word, the lemma's own unless said otherwise.
    """
    from utfproof.exact.symbolic import sympy_route

    systems = _systems(heads, layers, tied, tied)
    name = f"unrolling, {'tied ' if tied else ''}{system}, H = {heads}, L = {layers}"
    return decide(name, sympy_route.unrolling(systems, system, closed), plain_route.unrolling(systems, system, closed))


def unrolling_step(heads: int, *, system: str = TARGET, tied: bool = False) -> IdentityResult:
    """The induction step of lem:multiunroll, once and for every layer: X^{l-1} = sum over prefix words of P X N (two
    indeterminate words stand for any sum) gives X^l = sum over words (prefix, h) of A^{l,h} P X N M^{l,h}."""
    from utfproof.exact.symbolic import sympy_route

    systems = _systems(heads, 1, tied, tied)
    name = f"unrolling, induction step, {'tied ' if tied else ''}{system}, H = {heads}"
    return decide(name, sympy_route.unrolling_step(systems, system), plain_route.unrolling_step(systems, system))


# --- equal attention, equal outputs ------------------------------------------------------------------------------


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
    from utfproof.exact.symbolic import sympy_route

    systems = _systems(heads, layers, tied_host, tied_target)
    systems.check_equation(dropped)
    name = f"equal attention{', read literally' if literal else ''}, H = {heads}, L = {layers}"
    return decide(
        name,
        sympy_route.agreement(systems, literal=literal, dropped=dropped),
        plain_route.agreement(systems, literal=literal, dropped=dropped),
    )


def equal_output(
    heads: int,
    layers: int,
    *,
    tied_host: bool = False,
    tied_target: bool = False,
    dropped: Equation | None = None,
) -> IdentityResult:
    """Equal input-output behaviour: under (QK) and (OV) the host's output X~^L U is the target's X^L."""
    from utfproof.exact.symbolic import sympy_route

    systems = _systems(heads, layers, tied_host, tied_target)
    systems.check_equation(dropped)
    return decide(
        f"equal outputs, H = {heads}, L = {layers}",
        sympy_route.agreement(systems, output=True, dropped=dropped),
        plain_route.agreement(systems, output=True, dropped=dropped),
    )


def equal_attention_step(heads: int, *, literal: bool = False) -> IdentityResult:
    """The induction step of equal attention, and the step from it to equal outputs, for every layer at once.

    The prefix words are indeterminate: from P~ = P (earlier layers agree) and E R reader -> N reader, the host's
    queries, keys and output are the target's. literal: without P~ = P, which fails.
    """
    from utfproof.exact.symbolic import sympy_route

    systems = _systems(heads, 1)
    name = f"equal attention, induction step{', read literally' if literal else ''}, H = {heads}"
    return decide(
        name,
        sympy_route.agreement_step(systems, literal=literal),
        plain_route.agreement_step(systems, literal=literal),
    )


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
