"""What Python shows of the package's objects fits a line."""

import numpy as np

import utfproof
from utfproof import SoftmaxAttention, build_host, certify, embed, r_all, random_target
from utfproof.attention import GivenAttention
from utfproof.shapes import Shape
from utfproof.util.arrays import LINE, brief

SMALL, LARGE = Shape(2, 2, 3, 4), Shape(3, 3, 7, 9, 5, residual=True)


def objects():
    for shape in (SMALL, LARGE):
        yield shape
        target = random_target(shape, 7)
        yield target
        yield random_target(shape, 7, tied=True)
        for name in ("sparse", "random", "random-tied"):
            host = build_host(name, shape)
            yield host
            if name != "random-tied":
                yield embed(host, target)
        yield r_all(build_host("sparse", shape))
        yield certify("sparse", shape)
    yield SoftmaxAttention(scale="1/sqrt(d)", causal=True, window=8)
    yield GivenAttention(np.ones((2, 2, 5, 5)))
    yield utfproof.RationalAttention()


def test_a_line():
    for thing in objects():
        said = repr(thing)
        assert "\n" not in said
        assert len(said) <= LINE
        assert said.startswith(type(thing).__name__)


def test_what_a_line_says():
    target = repr(random_target(SMALL, 7))
    assert "(H, L, d, d_in) = (2, 2, 3, 4)" in target
    assert "W_Q=float64[2, 2, 4, 3]" in target
    assert brief(list(range(9))) == "9 entries"
    assert brief([1, 2]) == "[1, 2]"
    assert brief("x" * 99) == "str(…)"
