"""Enclosures: limits and refusals, and the checker's interval functions."""

import random
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_enclosure import case, scaled

from utfproof.attention import SoftmaxAttention
from utfproof.certificates import checker
from utfproof.cli.app import run
from utfproof.constructions import build_host, random_target
from utfproof.emulation.enclosure import enclose, exact_embedding
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.matching import embed, exact_target
from utfproof.shapes import Shape

pytestmark = pytest.mark.numerical


# --- limits and refusals -------------------------------------------------------------------------------------------------


def test_sizes_are_refused_before_anything_is_allocated():
    host, target, E, _ = case("tied", (2, 2, 2, 2))
    start = time.process_time()
    with pytest.raises(ResourceLimit, match="products of words"):
        enclose(host, target, E, np.ones((512, 2)), SoftmaxAttention(), 1000, max_memory=2**40)
    with pytest.raises(ResourceLimit, match="needs about"):
        enclose(host, target, E, np.ones((512, 2)), SoftmaxAttention(), 30, max_memory=2**20)
    with pytest.raises(ResourceLimit, match="the limit is 10000"):
        enclose(host, target, E, np.ones((8, 2)), SoftmaxAttention(), 10001)
    wide = Shape(2, 2, 24, 24)
    with pytest.raises(ResourceLimit, match="--embedding"):
        exact_embedding(build_host("random", wide, 384), random_target(wide, 0))
    assert time.process_time() - start < 5


def test_the_system_ends_what_takes_too_long():
    """Exit code 3 after a second of the clock, where the estimate allows minutes."""
    shape = ["-H", "2", "-L", "4", "-d", "3", "--d-in", "3", "--context", "12", "--digits", "9000"]
    began = time.monotonic()
    assert run(["enclose", "tied", *shape, "--max-seconds", "1"]) == 3
    assert time.monotonic() - began < 10


def test_a_difference_that_is_a_unit_exactly_is_not_settled():
    """One token: the outputs differ by 1/10 whatever the kernel."""
    shape = Shape(1, 1, 1, 1)
    host, target = build_host("tied", shape), random_target(shape, 0)
    E = embed(host, exact_target(target)).E
    E[0, 2] += Fraction(1, 10)
    one = np.array([[Fraction(1)]], dtype=object)
    with pytest.raises(ResourceLimit, match="do not settle digit 1"):
        enclose(host, target, E, one, SoftmaxAttention(), 1)
    E[0, 2] += Fraction(1, 5)
    assert enclose(host, target, E, one, SoftmaxAttention(), 1).units in ((2, 3), (2, 4), (3, 4))


@pytest.mark.parametrize("convert", [float, np.longdouble])
@pytest.mark.parametrize("objects", [False, True])
def test_floats_are_the_rational_numbers_that_they_are(convert, objects):
    """Long doubles have more bits than a float, and objects may be floats."""
    host, target = build_host("tied", Shape(1, 1, 1, 1)), random_target(Shape(1, 1, 1, 1), 0)
    right, one = embed(host, exact_target(target)).E, np.array([[Fraction(1)]], dtype=object)
    E = np.array([[convert(x.numerator) / convert(x.denominator) for x in right[0]]])
    E[0, 2] = np.nextafter(E[0, 2], convert(1))
    E = E.astype(object) if objects else E
    true = abs(Fraction(*E[0, 2].as_integer_ratio()) - right[0, 2])
    assert 0 < true < 2.0 ** -np.finfo(convert).nmant
    found = enclose(host, target, E, one, SoftmaxAttention(), 40)
    assert 0 < found.lower <= true <= found.upper
    with pytest.raises(MalformedInput, match=r"entry \(0, 0\) is not finite"):
        enclose(host, target, E * convert("nan"), one, SoftmaxAttention(), 40)


def test_what_does_not_fit_is_malformed():
    host, target, E, X = case("sparse")
    for wrong, match in (((E[:, :-1], X), "E has shape"), ((E, X[:, :1]), "X has shape"), ((E, X[:0]), "X has shape"),
                         ((np.full(E.shape, np.nan), X), "not finite")):  # fmt: skip
        with pytest.raises(MalformedInput, match=match):
            enclose(host, target, *wrong, SoftmaxAttention(), 10)
    with pytest.raises(MalformedInput, match="digits"):
        enclose(host, target, E, X, SoftmaxAttention(), 0)
    odd = case("sparse", (1, 1, 1, 1))
    with pytest.raises(MalformedInput, match="even head dimension"):
        enclose(*odd, SoftmaxAttention(rope_base=10000.0), 10)


# --- the checker's interval functions --------------------------------------------------------------------------------------

BITS = st.sampled_from([64, 65, 100, 184, 464, 1000, 2048])


@given(BITS, st.data())
@settings(max_examples=150)
def test_exponential_encloses(bits, data):
    size = data.draw(st.sampled_from([-bits, -3, 0, 2, 5, 7, 9, 12]))
    x = -data.draw(st.integers(0, 2 ** max(bits + size, 1))) if size else data.draw(st.integers(-(2**bits), 2**bits))
    low, high = checker.exponential(x, bits)
    with mpmath.workprec(3 * bits + 100):
        value = scaled(mpmath.exp(mpmath.mpf(x) / 2**bits), bits)
    assert low <= value <= high
    assert high - low <= (2 if x <= 0 else 4)


@given(BITS, st.data())
@settings(max_examples=150)
def test_cosine_and_sine_are_enclosed(bits, data):
    x = data.draw(st.integers(0, 2 ** (bits + data.draw(st.sampled_from([-bits + 1, -3, 0, 2, 5, 12])))))
    cos, sin, error = checker.cosine_sine(x, bits)
    with mpmath.workprec(2 * bits + 100):
        angle = mpmath.mpf(x) / 2**bits
        assert abs(scaled(mpmath.cos(angle), bits) - cos) <= error
        assert abs(scaled(mpmath.sin(angle), bits) - sin) <= error
    assert error <= 2


@given(BITS, st.integers(1, 10**40), st.integers(1, 10**40), st.integers(1, 40))
@settings(max_examples=150)
def test_roots_are_enclosed(bits, n, q, degree):
    low, high = checker.root(n, q, degree, bits)
    assert low**degree * q <= n << bits * degree
    assert n << bits * degree <= high**degree * q
    assert high - low == (low**degree * q != n << bits * degree)
    assert checker.integer_root(n, degree) ** degree <= n < (checker.integer_root(n, degree) + 1) ** degree


@given(st.integers(0, 2**32), st.sampled_from([64, 128, 300]))
@settings(max_examples=40)
def test_products_carry_their_error(seed, bits):
    """Matrices within the errors stated, anywhere: the product's error covers theirs."""
    source = random.Random(seed)
    rows, inner, columns = (source.randint(1, 4) for _ in range(3))

    def ball(height, width):
        error = source.choice([0, 1, 7, 2 ** (bits // 2)])
        middle = [[source.randint(-(2**bits), 2**bits) for _ in range(width)] for _ in range(height)]
        unit = Fraction(1, source.choice([2**bits, 3**40, 2 ** (bits - 3)]))
        true = [[(x + Fraction(source.randint(-error, error))) * unit for x in row] for row in middle]
        return checker.Ball(middle, unit, error), np.array(true, dtype=object).reshape(height, width)

    a, true_a = ball(rows, inner)
    b, true_b = ball(inner, columns)
    product, true = a.times(b, bits), true_a @ true_b
    assert product.unit == Fraction(1, 2**bits)
    for i in range(rows):
        for j in range(columns):
            assert abs(true[i, j] / product.unit - product.rows[i][j]) <= product.error


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_softmax_encloses_whatever_the_logits_are(seed):
    source = random.Random(seed)
    bits, n = source.choice([64, 200]), source.randint(1, 4)
    error = source.choice([0, 3, 2 ** (bits // 2), 2 ** (bits - 1), 2 ** (bits + 5)])
    logits = [[source.randint(-(3 << bits), 3 << bits) for _ in range(n)] for _ in range(n)]
    parts = frozenset(part for part in ("causal",) if source.random() < 0.5)
    attention = checker.Attention(checker.Shape(1, 1, 1, 1, 1, 1), "", parts, source.choice([0, 0, 1, 2]))
    found = attention.softmax(checker.Ball(logits, Fraction(1, 2**bits), error), bits)
    for _ in range(3):
        true = [[x + source.choice([-error, error, source.randint(-error, error)]) for x in row] for row in logits]
        with mpmath.workprec(3 * bits):
            for i in range(n):
                seen = attention.visible(i, n)
                weights = {j: mpmath.exp(mpmath.mpf(true[i][j]) / 2**bits) for j in seen}
                for j in range(n):
                    value = scaled(weights.get(j, mpmath.mpf(0)) / mpmath.fsum(weights.values()), bits)
                    assert abs(value - found.rows[i][j]) <= found.error + Fraction(1, 2**bits)
    assert {j for j, x in enumerate(found.rows[-1]) if x or j in attention.visible(n - 1, n)} == set(
        attention.visible(n - 1, n)
    )


@pytest.mark.full
@pytest.mark.parametrize("fault", ["taylor", "roots", "cosines", "errors of products", "softmax", "rounding"])
def test_unsound_arithmetic_in_the_checker_is_seen(fault, monkeypatch):
    """The properties above fail if a bound is left out: each is able to."""

    class Plain(checker.Ball):
        def times(self, other, bits):
            found = super().times(other, bits)
            return Plain(found.rows, found.unit, 0)

        def at(self, bits):
            found = super().at(bits)
            return Plain(found.rows, found.unit, 0)

    if fault == "taylor":
        monkeypatch.setattr(checker, "taylor", lambda x, bits: [1 << bits, x])
        with pytest.raises(AssertionError):
            test_exponential_encloses()
    elif fault == "roots":
        monkeypatch.setattr(checker, "root", lambda n, q, degree, bits: (low := checker.integer_root((n << bits * degree)
                                                                         // q, degree), low))  # fmt: skip
        with pytest.raises(AssertionError):
            test_roots_are_enclosed()
    elif fault == "cosines":
        real = checker.cosine_sine
        monkeypatch.setattr(checker, "cosine_sine", lambda x, bits: (*real(x, bits)[:2], 0))
        with pytest.raises(AssertionError):
            test_cosine_and_sine_are_enclosed()
    elif fault == "errors of products":
        monkeypatch.setattr(checker, "Ball", Plain)
        with pytest.raises(AssertionError):
            test_products_carry_their_error()
    elif fault == "softmax":
        real = checker.Attention.softmax
        monkeypatch.setattr(
            checker.Attention, "softmax", lambda self, x, bits: real(self, checker.Ball(x.rows, x.unit), bits)
        )
        with pytest.raises(AssertionError):
            test_softmax_encloses_whatever_the_logits_are()
    else:
        real = checker.exponential
        monkeypatch.setattr(checker, "exponential", lambda x, bits: (real(x, bits)[0],) * 2)
        with pytest.raises(AssertionError):
            test_exponential_encloses()
