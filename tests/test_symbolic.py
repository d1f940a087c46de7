"""Symbolic identities: each holds on its grid, and each planted fault is seen."""

import random

import numpy as np
import pytest
from cases import TABLE_SHAPES

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact.symbolic import free_algebra as fa
from utfproof.exact.symbolic import generic as generic_module
from utfproof.exact.symbolic import lower_bound, statements
from utfproof.exact.symbolic.determinant import determinant_polynomial
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
    differing = np.argwhere(np.array(generic.evaluate(*parameters), dtype=object) != found)
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


# --- unrolling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "layers"), GRID)
@pytest.mark.parametrize("system", BOTH)
@pytest.mark.parametrize("tied", [False, True])
def test_unrolling(heads, layers, system, tied):
    found = fa.unrolling(heads, layers, system=system, tied=tied)
    assert (found.holds, found.difference) == (True, "0")
    assert found.terms == geometric(heads, 0, layers)
    assert found.routes == ("SymPy", "plain integers")


@pytest.mark.parametrize("system", BOTH)
def test_unrolling_step(system):
    for heads in (1, 2, 3):
        found = fa.unrolling_step(heads, system=system)
        assert found.holds
        assert found.terms == 2 * heads


def attention_in_layer_order(systems, system, word):
    letters = statements.unrolled_word(systems, system, word)
    return (*reversed(letters[: len(word)]), *letters[len(word) :])


def values_reversed(systems, system, word):
    letters = statements.unrolled_word(systems, system, word)
    split = len(letters) - len(word)
    return (*letters[:split], *reversed(letters[split:]))


def one_layer_late(systems, system, word):
    values = tuple(systems.value(system, layer, head) for layer, head in enumerate(word, start=2))
    letters = statements.unrolled_word(systems, system, word)
    return letters[: len(letters) - len(word)] + values


def attention_of_other_head(systems, system, word):
    moved = (*word[:-1], (word[-1] + 1) % systems.heads) if word else ()
    return (
        statements.unrolled_word(systems, system, moved)[: len(word)]
        + statements.unrolled_word(systems, system, word)[len(word) :]
    )


@pytest.mark.parametrize("system", BOTH)
@pytest.mark.parametrize(
    "fault",
    [attention_in_layer_order, values_reversed, one_layer_late, attention_of_other_head],
    ids=lambda f: f.__name__,
)
def test_unrolling_faults(fault, system):
    found = fa.unrolling(2, 3, system=system, closed=fault)
    assert not found.holds
    assert found.difference != "0"


def test_a_step_with_prefixes_exchanged_is_seen(monkeypatch):
    straight = fa.step_summand

    def crossed(systems, system, prefix):
        letters = straight(systems, system, prefix)
        return (
            letters
            if system == "target"
            else (*letters[:-1], statements.step_value(system, {"u": "v"}.get(prefix, "u")))
        )

    monkeypatch.setattr(fa, "step_summand", crossed)
    assert not fa.equal_attention_step(2).holds


def test_a_broken_route_is_never_a_verdict(monkeypatch):
    right = Words.__mul__
    monkeypatch.setattr(Words, "__mul__", lambda a, b: right(b, a))
    for call in (lambda: fa.unrolling(2, 2), lambda: fa.equal_attention(2, 2)):
        with pytest.raises(RoutesDisagree):
            call()


def test_limits_and_malformed():
    for call in (
        lambda: fa.unrolling(2, 40),
        lambda: fa.equal_attention(10**9, 10**9),
        lambda: lower_bound.spanning(2, 12),
        lambda: lower_bound.null_vector([], 10**6, 10**6),
    ):
        with pytest.raises(ResourceLimit):
            call()
    for call in (
        lambda: fa.unrolling(0, 1),
        lambda: fa.unrolling(2, 1, system="neither"),
        lambda: fa.equal_attention(2, 2, dropped=("Q", (2,))),
        lambda: fa.equal_output(2, 2, dropped=("OV", (0,))),
        lambda: fa.equal_output(2, 2, dropped=("V", (0,))),
        lambda: lower_bound.spanning(2, 2, order="sideways"),
    ):
        with pytest.raises(MalformedInput):
            call()


# --- equal attention, equal outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "layers"), GRID[:-2])
@pytest.mark.parametrize(("tied_host", "tied_target"), [(False, False), (True, False), (True, True)])
def test_equal_attention_and_outputs(heads, layers, tied_host, tied_target):
    found = fa.equal_attention(heads, layers, tied_host=tied_host, tied_target=tied_target)
    assert (found.holds, found.difference) == (True, "0")
    assert found.terms == 2 * geometric(heads, 1, layers)
    output = fa.equal_output(heads, layers, tied_host=tied_host, tied_target=tied_target)
    assert output.holds
    assert output.terms == found.terms + heads**layers


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


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_read_literally_multieqatt_fails_from_two_layers_on(heads):
    assert fa.equal_attention(heads, 1, literal=True).holds
    for layers in (2, 3):
        found = fa.equal_attention(heads, layers, literal=True)
        assert not found.holds
        assert "A~" in found.difference
        # nothing cancels: each head word is there once with A and once with A~
        assert found.terms == 2 * 2 * heads**layers
    assert fa.equal_attention_step(heads).holds
    assert not fa.equal_attention_step(heads, literal=True).holds


def test_literal_counterexample():
    found = fa.literal_counterexample()
    assert not found.holds
    assert found.difference == "e*(e - 1)/(2*(e + 1)**2)"


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
    with pytest.raises(MalformedInput, match="R_V has shape"):
        generic.evaluate(R_Q, R_K, R_V[..., :2], U)


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
        with pytest.raises(ResourceLimit):
            determinant_polynomial(shape)


# --- null vectors ------------------------------------------------------------------------------------------------


def values(heads, layers, m, seed=0, tied=False):
    return integers(random.Random(seed), *(() if tied else (layers,)), heads, m, m)
