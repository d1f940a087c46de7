"""Symbolic identities: each holds on its grid, and each planted fault is seen."""

import random

import numpy as np
import pytest
from cases import TABLE_SHAPES

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.symbolic import free_algebra as fa
from utfproof.exact.symbolic import generic as generic_module
from utfproof.exact.symbolic.generic import generic_r_all, generic_terms, multilinearity
from utfproof.exact.symbolic.words import Letter, Plain, RoutesDisagree, Words
from utfproof.matching import r_all
from utfproof.shapes import Shape, geometric, head_words, matching_dimension
from utfproof.systems import TiedUniversal, Universal

GRID = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (2, 4)]
"""(H, L)."""
BOTH = ("target", "host")


def integers(rng, *extent):
    flat = [rng.randint(-3, 3) for _ in range(int(np.prod(extent)))]
    return np.array(flat, dtype=object).reshape(extent)


def random_parameters(rng, shape, m, tied):
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    d = shape.head_dim
    sizes = [(*lead, m, d), (*lead, m, d), (*lead, m, m), (m, shape.d_out)]
    return [integers(rng, *extent) for extent in sizes]


def first_difference(generic, found, *parameters):
    """(row, column) of the first entry in which R_all differs from the generic one at these parameters."""
    values = [int(v) for array in parameters for v in array.reshape(-1)]
    differing = np.argwhere(np.array(generic.at(values), dtype=object) != found)
    return tuple(differing[0]) if len(differing) else None


def numeric(shape, m, tied):
    kind = TiedUniversal if tied else Universal
    return lambda *parameters: r_all(kind(shape, m, *parameters))


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


# --- R_all in symbols --------------------------------------------------------------------------------------------

GENERIC = [((1, 1, 1, 1), None), ((2, 1, 1, 2), None), ((1, 2, 2, 1), None), ((2, 2, 1, 2), 3), ((2, 3, 1, 1), 2)]


@pytest.mark.parametrize(("dims", "m"), GENERIC)
@pytest.mark.parametrize("tied", [False, True])
def test_generic_matrix_against_numbers(dims, m, tied):
    shape = Shape(*dims)
    generic = generic_r_all(shape, m, tied=tied)
    size = generic.layout.m
    assert size == (m or matching_dimension(shape))
    assert generic.terms <= generic_terms(shape, size)
    rng = random.Random(str(dims))
    for _ in range(3):
        parameters = random_parameters(rng, shape, size, tied)
        found = numeric(shape, size, tied)(*parameters)
        assert first_difference(generic, found, *parameters) is None
        wrong = found.copy()
        wrong[-1, -1] += 1
        assert first_difference(generic, wrong, *parameters) == (size - 1, matching_dimension(shape) - 1)


def test_generic_matrix_sees_a_wrong_order():
    shape, m = Shape(2, 2, 1, 2), 3
    generic = generic_r_all(shape, m)
    parameters = random_parameters(random.Random(5), shape, m, False)
    R_Q, R_K, R_V, U = parameters
    evaluate = numeric(shape, m, False)
    for wrong in (
        [R_K, R_Q, R_V, U],
        [R_Q, R_K, R_V.swapaxes(-1, -2), U],
        [R_Q, R_K, R_V[::-1], U],
        [R_Q, R_K, R_V[:, ::-1], U],
        [R_Q[:, ::-1], R_K, R_V, U],
    ):
        assert first_difference(generic, evaluate(*wrong), *parameters) is not None


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)])
def test_multilinear_untied_not_tied(heads, layers):
    shape = Shape(heads, layers, 1, 1)
    untied = multilinearity(generic_r_all(shape, 2))
    assert (untied.holds, untied.highest, untied.monomial) == (True, 1, "")
    tied = multilinearity(generic_r_all(shape, 2, tied=True))
    assert tied.holds == (layers == 1)
    assert tied.highest == layers if layers > 1 else tied.highest == 1
    if layers == 2:
        assert tied.monomial == "R_V[0][0,0]^2 U[0,0]"


def test_multilinearity_sees_a_planted_square():
    generic = generic_r_all(Shape(1, 1, 1, 1), 2)
    generic.entries[1][2][0, 0] = 1
    assert multilinearity(generic) == generic_module.Multilinearity(False, 2, "R_Q[0,0][0,0]^2")


def test_paths_through_the_wrong_head_are_no_matrix(monkeypatch):
    right = generic_module.word_at
    monkeypatch.setattr(generic_module, "word_at", lambda *place: right(*place)[::-1])
    with pytest.raises(RoutesDisagree):
        generic_r_all(Shape(2, 2, 1, 1), 2)


def test_generic_limits():
    for shape in (Shape(2, 2, 2, 3), Shape(2, 400, 1, 1), Shape(*TABLE_SHAPES["4-hop"])):
        with pytest.raises(ResourceLimit):
            generic_r_all(shape)
