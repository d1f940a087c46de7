"""The unrolling and equal-attention lemmas, and the logits of the hosts below M, as identities of words.

Every matrix is a letter that commutes with none: attention matrices A^{l,h}, values M^{l,h} and R^{l,h}, readers W_Q,
W_K, R_Q, R_K, and X, E, U. An identity of words holds for matrices of all sizes, every context length and every
attention map. Each is expanded by SymPy and again in plain Python; the two must agree on every word.
"""

from __future__ import annotations

from collections.abc import Callable
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
from utfproof.exact.symbolic.words import Letter, Letters
from utfproof.shapes import Word, head_words

__all__ = [
    "HOST",
    "TARGET",
    "equal_attention",
    "equal_attention_step",
    "equal_output",
    "literal_counterexample",
    "printed_prose_word",
    "shared_key_blocks",
    "shared_key_identity",
    "shared_query_blocks",
    "shared_query_identity",
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


# --- hosts below M -----------------------------------------------------------------------------------------------

Blocks = Callable[[Systems, str, Word], Letters]
"""What E holds in a block: a word of letters for each trie ("query", "key" or "output") and block name."""


def shared_key_blocks(systems: Systems, trie: str, word: Word) -> Letters:
    """E of the shared-key host: query block (w,h) = M_w A^{l,h} with l = |w| + 1, key block w = M_w."""
    if trie == "query":
        return (*systems.values(TARGET, word[:-1]), Letter("A", len(word), word[-1]))
    return systems.values(TARGET, word)


def shared_query_blocks(systems: Systems, trie: str, word: Word) -> Letters:
    """E of the shared-query host: leaf v = M_v, key block (w,h) = M_w (A^{l,h})^T Y^{-T} with
    Y = M^{l,0} M^{l+1,0} ... M^{L,0} and l = |w| + 1."""
    if trie != "key":
        return systems.values(TARGET, word)
    later = [systems.value(TARGET, layer, 0) for layer in range(len(word), systems.layers + 1)]
    undo = [letter.inverted().flipped() for letter in later]  # (Y^-1)^T keeps the order of Y's letters
    return (*systems.values(TARGET, word[:-1]), Letter("A", len(word), word[-1]).flipped(), *undo)


def _read(prefix: Word, block: Word, length: int | None = None) -> Word:
    """The block of E that E R_w e_block shows: R_V^h e_w = e_(h,w), applied from the word's last letter to its first.

    length: a shift register of words of this length, where the last letter falls off.
    """
    for head in reversed(prefix):
        block = (head, *block)[:length]
    return block


def _prefixes(systems: Systems) -> list[Word]:
    return [word for length in range(systems.layers) for word in head_words(systems.heads, length)]


def shared_key_identity(heads: int, layers: int, *, blocks: Blocks = shared_key_blocks) -> IdentityResult:
    """Shared-key tries (d >= d_in): (E R_w R_Q^h)(E R_v R_K^h)^T = M_w A^{l,h} M_v^T for all words w, v of length l - 1,
    and E R_w U = M_w for |w| = L. Readers: R_Q^h = query block (h), R_K^h = U = the key trie's root. W_E = W_U = I."""
    systems = _systems(heads, layers)
    every = [(w, h) for w in _prefixes(systems) for h in range(heads)]
    queries = {(w, h): blocks(systems, "query", _read(w, (h,))) for w, h in every}
    keys = {(w, h): blocks(systems, "key", _read(w, ())) for w, h in every}
    outputs = {w: blocks(systems, "output", _read(w, ())) for w in head_words(heads, layers)}
    return _logits("shared-key", systems, queries, keys, outputs)


def shared_query_identity(heads: int, layers: int, *, blocks: Blocks = shared_query_blocks) -> IdentityResult:
    """Shared-query shift register (d >= d_in, invertible M^{l,0}): the same identities, with R_Q^h = U = leaf (0,...,0)
    for every head and R_K^h = key block (h); queries are M_w Y, keys undo Y. W_E = W_U = I."""
    systems = _systems(heads, layers)
    every = [(w, h) for w in _prefixes(systems) for h in range(heads)]
    root = (0,) * layers
    queries = {(w, h): blocks(systems, "query", _read(w, root, layers)) for w, h in every}
    keys = {(w, h): blocks(systems, "key", _read(w, (h,))) for w, h in every}
    outputs = {w: blocks(systems, "output", _read(w, root, layers)) for w in head_words(heads, layers)}
    return _logits("shared-query", systems, queries, keys, outputs)


def _logits(
    name: str,
    systems: Systems,
    queries: dict[tuple[Word, int], Letters],
    keys: dict[tuple[Word, int], Letters],
    outputs: dict[Word, Letters],
) -> IdentityResult:
    from utfproof.exact.symbolic import sympy_route

    return decide(
        f"{name} logits and outputs, H = {systems.heads}, L = {systems.layers}",
        sympy_route.logit_forms(systems, queries, keys, outputs),
        plain_route.logit_forms(systems, queries, keys, outputs),
    )
