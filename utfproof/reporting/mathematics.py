"""Formulas of running text as MathML, which browsers draw by themselves: R_V^{l,h}, H^{L/2}, d_in, m̄_loop, 2^-53.

Texts of the project write indices in one way, `_` and `^` behind a letter, a number or a bracket, with braces around what is
longer than a word. Everything else stays as it is: names of files and options, code, and what only looks like an index.
"""

from __future__ import annotations

import re

_INDEX = r"(?:\{[^{}<>]{1,60}\}|[A-Za-z0-9]{1,5}(?![A-Za-z0-9_]|\.[a-z]))"
_POWER = r"(?:\{[^{}<>]{1,60}\}|\([^()<>]{1,24}\)|[-−]?\d+|[^\W\d_]′?(?![A-Za-z0-9])|\*)"
_LETTER = r"[^\W\d_][\u0300-\u036f]*"
FORMULA = re.compile(
    rf"((?<![A-Za-z_/.]){_LETTER}|[)\]])_({_INDEX})(?:\^({_POWER}))?"
    rf"|((?<![A-Za-z_/.]){_LETTER}|(?<![A-Za-z_/.\d])\d{{1,6}}|[)\]])\^({_POWER})(?:_({_INDEX}))?"
)
"""A base with an index, an exponent, or both. A base of several letters is a word, and none."""
_PART = re.compile(rf"({FORMULA.pattern})|(\d+(?:\.\d+)?)|([^\W\d_]+[\u0300-\u036f]*)|(&[a-z]+;)|(\s+)|(.)", re.DOTALL)
_KEPT = re.compile(r"(<(code|pre|svg|math|script|style|head|title)\b.*?</\2>|<[^>]+>)", re.DOTALL)


def formulas(escaped: str) -> str:
    """HTML text without tags, its formulas set as MathML."""
    return FORMULA.sub(lambda found: f"<math>{_scripted(found)}</math>", escaped)


def in_html(html: str) -> str:
    """The same for a piece of HTML: code, pictures and tags stay as they are."""
    parts, position = [], 0
    for kept in _KEPT.finditer(html):
        parts += [formulas(html[position : kept.start()]), kept[0]]
        position = kept.end()
    return "".join(parts) + formulas(html[position:])


_WORD = r"[A-Za-z][a-z]{2,}|(?:as|at|by|if|in|is|of|on|or|so|to)"
_TOKEN = re.compile(
    rf"({FORMULA.pattern})|(?P<number>\d+(?:\.\d+)?)|(?P<word>(?<![^\W\d_])(?:{_WORD})(?![^\W\d_]))|(?P<raised>[ᵀ²³])"
    rf"|(?P<letter>{_LETTER})"
    r"|(?P<entity>&[a-z]+;|&\#\d+;)|(?P<space>\s+)|(?P<sign>:=|.)",
    re.DOTALL,
)
_RAISED = {"ᵀ": "<mi>T</mi>", "²": "<mn>2</mn>", "³": "<mn>3</mn>"}
_UNTOLD = re.compile(r"\{[^}]*\b[a-z]{2,}\s|_[a-z]+[A-Z]")
"""Indices that hold a sentence, or perhaps a factor behind them."""
_UPRIGHT = "()[]{}|‖⌈⌉⌊⌋′'./"
"""Signs that stand as they are, without the space or the height of an operator."""
_RELATION = re.compile(r"=|≤|≥|∈|⟺|&lt;|&gt;")


def display(escaped: str) -> str | None:
    """One line of HTML text as MathML of its own line; None where it is no formula, or where an index or exponent is written in
    a way that cannot be told (braces in braces, an index behind a prime, a sentence)."""
    if "\n" in escaped or not _RELATION.search(escaped):
        return None
    tokens = list(_TOKEN.finditer(escaped.strip()))
    if any(
        (token["sign"] and token["sign"] in "_^$`\\") or (token[1] and _UNTOLD.search(token[1])) for token in tokens
    ):
        return None
    parts: list[str] = []
    for place, token in enumerate(tokens):
        if token["raised"]:
            if not parts or tokens[place - 1]["space"]:
                return None
            parts.append(f"<msup>{parts.pop()}{_RAISED[token[0]]}</msup>")
            continue
        around = tokens[max(place - 1, 0)], tokens[min(place + 1, len(tokens) - 1)]
        parts.append(_set(token, beside_word=any(other["word"] for other in around)))
    return f'<math display="block"><mrow>{"".join(parts)}</mrow></math>'


def _set(token: re.Match[str], *, beside_word: bool) -> str:
    """One token of a displayed formula."""
    text = token[0]
    if token["space"]:  # one is a product's, more part two formulas
        return f'<mspace width="{2.0 if len(text) > 1 else 0.3 if beside_word else 0.15}em"/>'
    if token["number"]:
        return f"<mn>{text}</mn>"
    if token["letter"]:
        return f"<mi>{text}</mi>"
    if token["word"] or text in _UPRIGHT:
        return f"<mtext>{text}</mtext>"
    if token["sign"] or token["entity"]:
        return f"<mo>{text.replace('-', '−')}</mo>"
    return _scripted(FORMULA.fullmatch(text) or token)


def _scripted(found: re.Match[str]) -> str:
    base, index, power = found[1] or found[4], found[2] or found[6], found[3] or found[5]
    if index and power:
        return f"<msubsup>{_row(base)}{_row(index)}{_row(power)}</msubsup>"
    return f"<msub>{_row(base)}{_row(index)}</msub>" if index else f"<msup>{_row(base)}{_row(power)}</msup>"


def _row(text: str) -> str:
    """One MathML element for a base, an index or an exponent, which may hold formulas itself."""
    inner = text[1:-1] if text[0] == "{" and text[-1] == "}" else text
    parts = []
    for part in _PART.finditer(inner):
        nested = FORMULA.fullmatch(part[1]) if part[1] else None
        if nested:
            parts.append(_scripted(nested))
        elif re.fullmatch(r"\d+(?:\.\d+)?", part[0]):
            parts.append(f"<mn>{part[0]}</mn>")
        elif re.fullmatch(_LETTER, part[0]):
            parts.append(f"<mi>{part[0]}</mi>")
        elif part[0][0].isalpha() or part[0] in "()[]|":  # brackets stand on the line, as in the text around
            parts.append(f"<mtext>{part[0]}</mtext>")
        elif part[0].strip():
            parts.append(f"<mo>{part[0].replace('-', '−')}</mo>")
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"
