"""Symbolic identities: each holds on its grid, and each planted fault is seen."""

import pytest

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.symbolic import free_algebra as fa
from utfproof.exact.symbolic.words import Letter, Plain, RoutesDisagree, Words
from utfproof.shapes import geometric, head_words

GRID = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (2, 4)]
"""(H, L)."""
BOTH = ("target", "host")


# --- words -------------------------------------------------------------------------------------------------------


def test_words_do_not_commute():
    a, b, word = Letter("a"), Letter("b", 1, 0), Plain().word
    assert word((a,)) * word((b,)) != word((b,)) * word((a,))
    assert Plain().rewritten(word((a, b, a)), {(b, a): (b,)}) == word((a, b))
    assert word((a,)) - word((a,)) == {}
    assert str(Words()) == "0"
    assert str(Words({(a, b): -2, (): 1})) == "1 - 2 a b[1,0]"


def test_a_broken_route_is_never_a_verdict(monkeypatch):
    right = Words.__mul__
    monkeypatch.setattr(Words, "__mul__", lambda a, b: right(b, a))
    for call in (lambda: fa.unrolling(2, 2), lambda: fa.equal_attention(2, 2)):
        with pytest.raises(RoutesDisagree):
            call()


# --- unrolling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "layers"), GRID)
@pytest.mark.parametrize("system", BOTH)
def test_unrolling(heads, layers, system):
    found = fa.unrolling(heads, layers, system=system)
    assert (found.holds, found.difference) == (True, "0")
    assert found.terms == geometric(heads, 0, layers)
    assert found.routes == ("SymPy", "plain integers")


@pytest.mark.parametrize("system", BOTH)
def test_unrolling_step(system):
    for heads in (1, 2, 3):
        found = fa.unrolling_step(heads, system=system)
        assert found.holds
        assert found.terms == 2 * heads


def attention_in_layer_order(system, word):
    letters = right_word(system, word)
    return (*reversed(letters[: len(word)]), *letters[len(word) :])


def values_reversed(system, word):
    letters = right_word(system, word)
    split = len(letters) - len(word)
    return (*letters[:split], *reversed(letters[split:]))


def attention_of_other_head(system, word):
    moved = (*word[:-1], 1 - word[-1]) if word else ()
    return right_word(system, moved)[: len(word)] + right_word(system, word)[len(word) :]


right_word = fa.unrolled_word


@pytest.mark.parametrize("system", BOTH)
@pytest.mark.parametrize("fault", [attention_in_layer_order, values_reversed, attention_of_other_head])
def test_unrolling_faults(fault, system, monkeypatch):
    monkeypatch.setattr(fa, "unrolled_word", fault)
    found = fa.unrolling(2, 3, system=system)
    assert not found.holds
    assert found.difference != "0"


def test_limits():
    for call in (lambda: fa.unrolling(2, 40), lambda: fa.equal_attention(10**9, 10**9)):
        with pytest.raises(ResourceLimit):
            call()
    with pytest.raises(MalformedInput):
        fa.unrolling(0, 1)


# --- equal attention, equal outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "layers"), GRID[:-2])
def test_equal_attention_and_outputs(heads, layers):
    found = fa.equal_attention(heads, layers)
    assert (found.holds, found.difference) == (True, "0")
    assert found.terms == 2 * geometric(heads, 1, layers)
    output = fa.equal_output(heads, layers)
    assert output.holds
    assert output.terms == found.terms + heads**layers
    assert fa.equal_attention_step(heads).holds


@pytest.mark.parametrize("layers", [1, 2])
def test_every_equation_is_needed(layers):
    heads = 2
    readers = [(kind, word) for length in range(1, layers + 1) for word in head_words(heads, length) for kind in "QK"]
    for equation in readers:
        assert not fa.equal_attention(heads, layers, dropped=equation).holds
        assert not fa.equal_output(heads, layers, dropped=equation).holds
    for word in head_words(heads, layers):
        assert fa.equal_attention(heads, layers, dropped=("OV", word)).holds
        found = fa.equal_output(heads, layers, dropped=("OV", word))
        assert not found.holds
        assert found.difference.startswith("OV")


def test_a_step_with_prefixes_exchanged_is_seen(monkeypatch):
    straight = fa.prefixed

    def crossed(system, prefix):
        letters = straight(system, prefix)
        return letters if system == "target" else (*letters[:-1], Letter("R", {"u": "v"}.get(prefix, "u")))

    monkeypatch.setattr(fa, "prefixed", crossed)
    assert not fa.equal_attention_step(2).holds
