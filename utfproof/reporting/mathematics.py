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


def formulas(escaped: str) -> str:
    """HTML text without tags, its formulas set as MathML."""
    return FORMULA.sub(lambda found: f"<math>{_scripted(found)}</math>", escaped)


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
        elif part[0][0].isalpha() or part[0] in "()[]|":  # brackets stay on the line, as in the text around
            parts.append(f"<mtext>{part[0]}</mtext>")
        elif part[0].strip():
            parts.append(f"<mo>{part[0].replace('-', '−')}</mo>")
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"
