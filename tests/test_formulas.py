"""Formulas stand once: those that README and docs write down are those that the package computes, wherever they apply."""

import itertools
import re
from pathlib import Path

import pytest
from formulas import NoFormula, formulas, value

from utfproof.certificates.dimensions import DIMENSION_ROWS
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import UtfproofError
from utfproof.shapes import Shape, matching_dimension, paper_dimension, paper_looped_dimension

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHER = {"paper-verdicts.md", "certificate-format.md"}
"""Claims once more; and the format page has formulas of its own, for a second checker."""
APART = {
    "5 d H^L", "2S", "2H(H^L − 1)/(H − 1)", "4·H^L·d + H^L·d_in", "4dH^L + d_in·H^L", "S·d", "S(d_in/H − 2d)", "2d − H^L·d_in",
    "1 + S + H^L", "2dS(1 − 1/H)", "d_in H^L + 2dS − d⌊H/g⌋ − d", "(S − H)/H", "H^L + H", "d_in(S + H²)", "H^L + 1", "d + H^L",
    "H^Ld + H^L", "H^Ld+H^L",
}  # fmt: skip
"""Of the claims' statements, which computation decides: parts of formulas, counts of one claim, and what fails as printed."""
REGIMES = {
    "every shape": lambda s: True,
    "d <= d_in": lambda s: s.head_dim <= s.d_in,
    "d >= d_in": lambda s: s.head_dim >= s.d_in,
    "d = d_in": lambda s: s.head_dim == s.d_in,
    "d > d_in, H, L >= 2": lambda s: s.head_dim > s.d_in and min(s.heads, s.layers) > 1,
    "d_in = 1": lambda s: s.d_in == 1,
    "d > d_in = 1, H, L >= 2": lambda s: s.head_dim > s.d_in == 1 and min(s.heads, s.layers) > 1,
}
SHAPES = [Shape(*values) for values in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3))]
COUNTS = {
    "S": lambda s: s.word_count,
    "words and the empty one": lambda s: 1 + s.word_count,
    "H^L": lambda s: s.leaves,
    "S + H^L": lambda s: s.word_count + s.leaves,
    "H^L d": lambda s: s.leaves * s.head_dim,
    "paper's M of the looped system": lambda s: s.word_count * s.head_dim + s.leaves * s.d_in,
    "M": matching_dimension,
    "m-bar": paper_dimension,
    "looped m-bar": paper_looped_dimension,
    "tied targets": lambda s: s.d_in * (1 + s.word_count) + 2 * s.head_dim * s.word_count,
}


def sources():
    """Every count and dimension of the package, by name: shape -> number, None where it does not apply."""

    def of(entry):
        def least(shape):
            try:
                return entry.least_m(shape)
            except UtfproofError:
                return None

        return least

    found = COUNTS | {name: of(entry) for name, entry in CONSTRUCTIONS.items()}
    for i, row in enumerate(DIMENSION_ROWS):
        found[f"{row.name} {i}"] = lambda s, row=row: row.least(s) if row.applies(s) and not row.residual else None
        found[f"at most {row.name} {i}"] = lambda s, row=row: (
            row.least(s) - 1 if row.applies(s) and not row.residual else None
        )
    return found


@pytest.fixture(scope="module")
def tables():
    return {name: [source(shape) for shape in SHAPES] for name, source in sources().items()}


def named(shape):
    d, b = shape.head_dim, shape.d_in
    return {
        **{
            "H": shape.heads,
            "L": shape.layers,
            "d": d,
            "d_in": b,
            "b": b,
            "r": min(shape.heads * d, b),
            "g": -(-b // d),
        },
        **{"S": shape.word_count, "M": matching_dimension(shape)},
    }


def regime(text, tables):
    """(source, regime) of a formula, rounded up: where the two agree at all shapes of a regime, of which there are several."""
    numbers = []
    for shape in SHAPES:
        try:
            numbers.append(-(-value(text, named(shape)) // 1))
        except ZeroDivisionError:  # as printed for H >= 2
            numbers.append(None)
    for where, fits in REGIMES.items():
        places = [i for i, shape in enumerate(SHAPES) if fits(shape)]
        for name, table in tables.items():
            pairs = [(table[i], numbers[i]) for i in places if None not in (table[i], numbers[i])]
            if len(pairs) >= 9 and all(a == b for a, b in pairs):
                return name, where
    return None


def written():
    """Page, line and formula, but for the ends of sums that are written out and what stands apart."""
    for page in PAGES:
        if page.name not in OTHER:
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                for text in formulas(line):
                    if text[0] not in "+-−" and not (page.name == "claims.md" and text in APART):
                        yield page, number, text


def test_formulas_on_the_pages_are_the_packages(tables):
    found = list(written())
    assert len(found) >= 90
    unknown = []
    for page, number, text in found:
        try:
            source = regime(text, tables)
        except NoFormula as error:
            source = None
            text = f"{text} ({error})"
        if source is None:
            unknown.append(f"{page.name}:{number}: {text}")
    assert unknown == [], "formulas that nothing in the package computes"


@pytest.mark.parametrize(
    "wrong",
    [
        "d_in(1 + 5S)",
        "d_in(S + 2H^L)",
        "2dS + 2d_in·H^L",
        "bH^L + 5dS − d²(H/b + (S−H)/r)",
        "b(H^L + LH) + 3",
        "S + H^L − 2",
    ],
)
def test_a_wrong_formula_is_noticed(wrong, tables):
    (text,) = formulas(f"at least {wrong}, and")
    assert regime(text, tables) is None


def test_no_bound_is_typed_into_the_frontier():
    """Bounds and hosts' dimensions are asked for: no module of the frontier has a formula in d_in H^L and S."""
    typed = re.compile(r"d_in \* (?:shape\.)?leaves|head_dim \* (?:shape\.)?word_count|heads\*\*")
    for path in (ROOT / "utfproof/frontier").glob("*.py"):
        assert not typed.search(path.read_text(encoding="utf-8")), path
