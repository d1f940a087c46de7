"""Formulas on lines of their own: what they become, what stays as it is written, and which of the pages' have been set."""

import re
from pathlib import Path
from xml.etree import ElementTree

import docs_hooks
import pytest

from utfproof.reporting.mathematics import display

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("M := 2dS + d_in·H^L", ["<mo>:=</mo>", "<mn>2</mn><mi>d</mi><mi>S</mi>", "<msup><mi>H</mi><mi>L</mi></msup>"]),
        ("A = M_vᵀ", ["<msup><msub><mi>M</mi><mi>v</mi></msub><mi>T</mi></msup>"]),
        ("b² ≥ 1   or n", ["<msup><mi>b</mi><mn>2</mn></msup>", '<mspace width="2.0em"/><mtext>or</mtext>']),
        ("Σ_{t&lt;L} (H+1)^t = 0", ["<msub><mi>Σ</mi><mrow><mi>t</mi><mo>&lt;</mo><mi>L</mi></mrow></msub>"]),
        ("bk = R_w^{l}", ["<mi>b</mi><mi>k</mi>", "<msubsup><mi>R</mi><mi>w</mi><mi>l</mi></msubsup>"]),
    ],
)  # fmt: skip
def test_a_formula_is_set(line, parts):
    made = display(line)
    assert made is not None
    assert [part for part in parts if part not in made] == []
    math = ElementTree.fromstring(made)
    assert (math.tag, math.get("display")) == ("math", "block")
    written = re.sub(r"[\s_^{}ᵀ²³]", "", line.replace("&lt;", "<"))
    said = re.sub(r"[\s{}]", "", "".join(math.itertext()))
    assert sorted(said) == sorted(written + "T" * line.count("ᵀ") + "2" * line.count("²"))  # no sign is lost


@pytest.mark.parametrize(
    "line",
    [
        "e^{v_{k,0}} = 1",
        "l'_h = 0",
        "R_h = Σ_{x in the group} x",
        "dim T_fF ≤ 1",
        "$ utfproof frontier --heads=2",
        "(2, 1, 1, 2) 8 10",
        "M = [ A ]\n    [ B ]",
    ],
)
def test_what_cannot_be_told_stays_as_it_is(line):
    assert display(line) is None


def test_indented_formulas_are_set_and_fenced_ones_are_code():
    def block(text):
        return f'<div class="language-text highlight"><pre><span></span><code>{text}\n</code></pre></div>'

    html = block("m = H^L") + block("m ≥ d_in")
    made = docs_hooks.displayed(html, "Text:\n\n    m = H^L\n\n```\nm ≥ d_in\n```\n")
    assert made.startswith('<div class="formula"><math display="block">')
    assert made.endswith(block("m ≥ d_in"))
    assert docs_hooks.in_html(made) == made  # what is set is not set again
