"""The unrolling and equal-attention lemmas as identities of words.

Every matrix is a letter that commutes with none: attention matrices A^{l,h}, values M^{l,h} and R^{l,h}, readers W_Q,
W_K, R_Q, R_K, and X, E, U. An identity of words holds for matrices of all sizes, every context length and every
attention map. The statements are written once; SymPy and plain Python compute both sides of each. Layers count from 1,
heads from 0; layer "l" is any layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from utfproof.errors import ResourceLimit
from utfproof.exact.symbolic.words import IdentityResult, Letter, Letters, Plain, Sides, decide
from utfproof.shapes import Word, head_words, positive_integer

TARGET, HOST = "target", "host"
X, E, U = Letter("X"), Letter("E"), Letter("U")
KINDS = ("Q", "K")
Equation = tuple[str, Word]
"""('Q' | 'K' | 'OV', head word): one matching equation; for Q and K the word's last letter reads."""
PREFIXES = ("u", "v")
"""Two indeterminate head words stand for any sum of them: the layer map is linear."""
MOST_WORDS = 2_000
"""H^L above which an expansion is refused: the induction steps cover every H and L's pattern anyway."""


def _require_few(heads: int, layers: int) -> None:
    positive_integer("heads", heads), positive_integer("layers", layers)
    # H^L is compared through logarithms first: it may be a number of absurd length
    if (heads > 1 and layers * (heads.bit_length() - 1) > MOST_WORDS.bit_length()) or heads**layers > MOST_WORDS:
        raise ResourceLimit(
            f"{heads} heads and {layers} layers have {heads}^{layers} head words, the limit is {MOST_WORDS}; "
            "choose a smaller shape, or use the induction step"
        )


def _added(parts: Iterable[Any]) -> Any:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


# --- letters -----------------------------------------------------------------------------------------------------


def attention(system: str, layer: int | str, head: int) -> Letter:
    """A^{l,h} of the target, A~^{l,h} of the host."""
    return Letter("A" if system == TARGET else "A~", layer, head)


def value(system: str, layer: int | str, head: int) -> Letter:
    """M^{l,h} = W_V W_O, or R_V^{l,h}."""
    return Letter("M" if system == TARGET else "R", layer, head)


def values(system: str, word: Word) -> Letters:
    """M_w or R_w as a word."""
    return tuple(value(system, layer, head) for layer, head in enumerate(word, start=1))


def reader(system: str, kind: str, layer: int | str, head: int) -> Letter:
    """W_Q^{l,h} and W_K^{l,h}, or R_Q^{l,h} and R_K^{l,h}."""
    return Letter(("W_" if system == TARGET else "R_") + kind, layer, head)


def start(system: str) -> Letters:
    """X^0, or X^0 E."""
    return (X,) if system == TARGET else (X, E)


def unrolled_word(system: str, word: Word) -> Letters:
    """lem:multiunroll's summand: A^{l,h_l} ... A^{1,h_1} X^0 (E) M^{1,h_1} ... M^{l,h_l} (R for a host)."""
    moved = [attention(system, layer, head) for layer, head in enumerate(word, start=1)]
    return (*reversed(moved), *start(system), *values(system, word))


def prose_word(system: str, word: Word) -> Letters:
    """The host's summand as the proof of lem:multiunroll words it: E R_V^{t,h_t} for each value matrix, E every time."""
    moved = [attention(system, layer, head) for layer, head in enumerate(word, start=1)]
    return (*reversed(moved), X, *(letter for matrix in values(system, word) for letter in (E, matrix)))


def equation(kind: str, word: Word) -> tuple[Letters, Letters]:
    """The matching equation as a rewriting rule, host's word -> target's: E R_w R_Q -> M_w W_Q, E R_w U -> M_w."""
    if kind == "OV":
        return (E, *values(HOST, word), U), values(TARGET, word)
    layer, head, prefix = len(word), word[-1], word[:-1]
    host = (E, *values(HOST, prefix), reader(HOST, kind, layer, head))
    return host, (*values(TARGET, prefix), reader(TARGET, kind, layer, head))


def rules(heads: int, kind: str, length: int, dropped: Equation | None = None) -> dict[Letters, Letters]:
    """All equations of this kind for words of this length, but for the dropped one."""
    return dict(equation(kind, word) for word in head_words(heads, length) if (kind, word) != dropped)


def prefixed(system: str, prefix: str) -> Letters:
    """P X N, or P~ X E R: the summand of X^{l-1} that belongs to an indeterminate word."""
    path, moved = ("P", "N") if system == TARGET else ("P~", "R")
    return (Letter(path, prefix), *start(system), Letter(moved, prefix))


# --- unrolling ---------------------------------------------------------------------------------------------------


def _layer(words: Plain, heads: int, system: str, before: Any, layer: int | str) -> Any:
    """One layer of the recursion: the sum over heads of A^{l,h} X M^{l,h}."""
    return _added(
        words.word((attention(system, layer, head),)) * before * words.word((value(system, layer, head),))
        for head in range(heads)
    )


def _layer_inputs(words: Plain, heads: int, layers: int, system: str) -> list[Any]:
    """X^0, X^1, ..., X^L."""
    out = [words.word(start(system))]
    for layer in range(1, layers + 1):
        out.append(_layer(words, heads, system, out[-1], layer))
    return out


def unrolling(
    heads: int, layers: int, *, system: str = TARGET, summand: Callable[[str, Word], Letters] | None = None
) -> IdentityResult:
    """lem:multiunroll (lem:unroll when H = 1) for X^0, ..., X^L: the layer recursion against the sum over head words.
    summand: another word than `unrolled_word`."""
    _require_few(heads, layers)
    summand = summand or unrolled_word

    def sides(words: Plain) -> Sides:
        out: Sides = {}
        for layer, found in enumerate(_layer_inputs(words, heads, layers, system)):
            total = _added(words.word(summand(system, word)) for word in head_words(heads, layer))
            out[f"X^{layer}"] = (words.read(found), words.read(total))
        return out

    return decide(f"unrolling, {system}, H = {heads}, L = {layers}", sides)


def unrolling_step(heads: int, *, system: str = TARGET) -> IdentityResult:
    """The induction step of lem:multiunroll, once and for every layer: X^{l-1} = sum over prefix words of P X N gives
    X^l = sum over words (prefix, h) of A^{l,h} P X N M^{l,h}."""
    _require_few(heads, 1)

    def sides(words: Plain) -> Sides:
        summands = [prefixed(system, prefix) for prefix in PREFIXES]
        longer = ((attention(system, "l", h), *word, value(system, "l", h)) for word in summands for h in range(heads))
        after = _layer(words, heads, system, _added(map(words.word, summands)), "l")
        return {"X^l from X^(l-1)": (words.read(after), words.read(_added(map(words.word, longer))))}

    return decide(f"unrolling, induction step, {system}, H = {heads}", sides)


# --- equal attention, equal outputs ------------------------------------------------------------------------------


def _agreement(words: Plain, heads: int, layers: int, output: bool, dropped: Equation | None) -> Sides:
    """Queries and keys (and outputs) of target and host after rewriting; attention is identified layer by layer."""
    target, host = (_layer_inputs(words, heads, layers, system) for system in (TARGET, HOST))
    same: dict[Letter, Letter] = {}
    out: Sides = {}
    for layer in range(1, layers + 1):
        established = {}
        for head in range(heads):
            agree = True
            for kind in KINDS:
                theirs, ours = (words.word((reader(system, kind, layer, head),)) for system in (TARGET, HOST))
                known = {old: new for old, new in rules(heads, kind, layer, dropped).items() if old[-1].head == head}
                right = words.rewritten(words.renamed(host[layer - 1] * ours, same), known)
                sides = words.read(target[layer - 1] * theirs), words.read(right)
                out[f"{kind}[{layer},{head}]"] = sides
                agree &= sides[0] == sides[1]
            if agree:
                established[attention(HOST, layer, head)] = attention(TARGET, layer, head)
        same |= established
    if output:
        right = words.renamed(host[-1] * words.word((U,)), same)
        right = words.rewritten(right, rules(heads, "OV", layers, dropped))
        out["OV"] = (words.read(target[-1]), words.read(right))
    return out


def equal_attention(heads: int, layers: int, *, dropped: Equation | None = None) -> IdentityResult:
    """lem:multieqatt (lem:eqatt when H = 1): under the matching equations (QK) queries and keys agree in every layer.

    Layer by layer: once all queries and keys of head h agree in a layer, its attention letters are identified, since
    attention is a map of them. dropped: an equation to do without, such as ("Q", (0, 1)).
    """
    _require_few(heads, layers)
    sides = partial(_agreement, heads=heads, layers=layers, output=False, dropped=dropped)
    return decide(f"equal attention, H = {heads}, L = {layers}", sides)


def equal_output(heads: int, layers: int, *, dropped: Equation | None = None) -> IdentityResult:
    """Equal input-output behaviour: under (QK) and (OV) the host's output X~^L U is the target's X^L."""
    _require_few(heads, layers)
    sides = partial(_agreement, heads=heads, layers=layers, output=True, dropped=dropped)
    return decide(f"equal outputs, H = {heads}, L = {layers}", sides)


def equal_attention_step(heads: int) -> IdentityResult:
    """The induction step of equal attention, and the step from it to equal outputs, for every layer at once.

    The prefix words are indeterminate: from P~ = P (earlier layers agree) and E R reader -> N reader, the host's
    queries, keys and output are the target's.
    """
    _require_few(heads, 1)

    def sides(words: Plain) -> Sides:
        target, host = (_added(words.word(prefixed(system, p)) for p in PREFIXES) for system in (TARGET, HOST))
        same = {Letter("P~", prefix): Letter("P", prefix) for prefix in PREFIXES}
        readers: dict[str, list[Letters]] = {
            f"{kind}[l,{head}]": [(reader(system, kind, "l", head),) for system in (TARGET, HOST)]
            for kind in KINDS
            for head in range(heads)
        }
        readers["OV"] = [(), (U,)]
        out: Sides = {}
        for label, (theirs, ours) in readers.items():
            known = {(E, Letter("R", p), *ours): (Letter("N", p), *theirs) for p in PREFIXES}
            right = words.rewritten(words.renamed(host * words.word(ours), same), known)
            out[label] = (words.read(target * words.word(theirs)), words.read(right))
        return out

    return decide(f"equal attention, induction step, H = {heads}", sides)
