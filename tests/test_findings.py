"""The figures beside a verdict: counterexamples and words."""

from dataclasses import replace
from fractions import Fraction

import pytest

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.prover import certify
from utfproof.decision import counterexample, findings
from utfproof.decision.verdict import HostVerdict, decision_of
from utfproof.errors import Undecided
from utfproof.shapes import Column, Shape, column_index
from utfproof.util.notions import Hosts, Notion, Scope, Targets

pytestmark = pytest.mark.numerical

# --- counterexamples --------------------------------------------------------------------------------------------------


def test_distances_are_rounded_down_and_have_any_number_of_digits():
    z = {3: 10**6000 + 1, 5: 1}
    found = counterexample.Counterexample(Shape(2, 1, 1, 2), 3, z, certified=True)
    assert found.distance_squared == Fraction((10**6000 + 1) ** 2, (10**6000 + 1) ** 2 + 1)
    assert (
        counterexample.in_decimals(found.distance_squared, 6) == 1.0
        or counterexample.in_decimals(found.distance_squared, 6) < 1
    )
    assert counterexample.in_decimals(Fraction(1, 2), 6) == 0.707106
    assert "n of 12001 and q of 12001 digits" in findings._distance(found.distance_squared, "|z_c|", "")
    assert counterexample.stored_integer(counterexample.written(z[3])) == z[3]
    assert (counterexample.stored_integer("17"), counterexample.stored_integer(-3), counterexample.written(-3)) == (
        17,
        -3,
        "-3",
    )


def test_columns_in_words():
    shape = Shape(2, 2, 2, 3)
    words = [counterexample.column_in_words(shape, column_index(shape, Column(*c))) for c in (
        ("Q", (1,), 0), ("K", (0, 1), 1), ("OV", (1, 0), 2))]  # fmt: skip
    assert words[0].endswith("head word (1), coordinate 0: a query of layer 1, head 1, on the input itself")
    assert words[1].endswith("head word (0, 1), coordinate 1: a key of layer 2, head 1, after the route (0)")
    assert words[2].endswith("head word (1, 0), coordinate 2: an output after that route")


# --- words ---------------------------------------------------------------------------------------------------


def test_a_certificate_decides_only_what_its_scope_supports():
    shape = Shape(2, 2, 2, 2)
    for_all, matched = Targets.parse("all untied"), certify("sparse", shape)
    for notion in (Notion.MATCHING, Notion.ATTENTION_MATCHING):
        question = Scope(notion, for_all, Hosts(examined=True))
        found = decision_of(matched, question)
        assert (found.universal, found.scope) == (True, question)
    refuted = dimension_certificate(shape, 1)
    assert decision_of(refuted, Scope(Notion.MATCHING, for_all, Hosts(examined=True))).verdict is HostVerdict.REFUTED
    with pytest.raises(Undecided, match="does not decide"):  # not matched says nothing of attention-matching
        decision_of(refuted, Scope(Notion.ATTENTION_MATCHING, for_all, Hosts(examined=True)))
    almost = certify("shared-query-groups", shape)
    with pytest.raises(Undecided, match="does not decide"):
        decision_of(almost, Scope(Notion.ATTENTION_MATCHING, for_all, Hosts(tied=True, examined=True)))
    question = Scope(Notion.ATTENTION_MATCHING, Targets.parse("almost all untied"), Hosts(tied=True, examined=True))
    assert decision_of(almost, question).universal
    with pytest.raises(Undecided, match="does not decide"):  # almost all untied targets: perhaps no tied one
        decision_of(almost, replace(question, targets=Targets.parse("almost all tied")))
