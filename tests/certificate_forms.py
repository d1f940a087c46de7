"""The form of a certificate of each kind, from which `corpus.py` derives malformed ones. The format page says what each part
means and which numbers are in range.

A form is `str` or `bool`; WHOLE (an integer from 0 on) or DIGITS (an integer, or its digits as text); a tuple of texts; [form]
for lists; {name: form} for objects, where names ending in "?" may be missing; Either of several forms.
"""

from __future__ import annotations

from typing import Any

WHOLE, DIGITS = "a whole number", "an integer or its digits"


class Either:
    """One of several forms."""

    def __init__(self, *forms: Any) -> None:
        self.forms = forms


def admits(form: Any, value: Any) -> bool:
    """Whether a value has the form; numbers are below 1e300, and true is none."""
    if isinstance(form, Either):
        return any(admits(one, value) for one in form.forms)
    if isinstance(form, dict):
        parts = {name.rstrip("?"): part for name, part in form.items()}
        needed = {name for name in form if not name.endswith("?")}
        fits = isinstance(value, dict) and needed <= value.keys() <= parts.keys()
        return fits and all(admits(parts[name], item) for name, item in value.items())
    if isinstance(form, list):
        return isinstance(value, list) and all(admits(form[0], item) for item in value)
    if isinstance(form, tuple):
        return isinstance(value, str) and value in form
    if form in (str, bool):
        return isinstance(value, form)
    if form == DIGITS and isinstance(value, str):
        return value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal()
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and (form == DIGITS or 0 <= value < 1e300)


NUMBERS = {"denominator": DIGITS, "numerators": [DIGITS]}
"""Rational numbers over one denominator."""
SIDECAR = {"dtype": ("uint8", "uint16", "uint32"), "length": WHOLE, "sidecar": str}
"""Integers in a file beside the certificate, which its SHA-256 names."""
INTEGERS = Either([DIGITS], SIDECAR)
DRAWN = {
    "construction?": str, "dtype?": ("float64", "float32", "float16", "bfloat16"), "law?": str, "seed?": DIGITS,
    "system?": ("universal", "looped-universal"), "weights?": str,
}  # fmt: skip
"""A construction by its name, with the seed where weights are drawn; or weights by their digest."""
SHAPE = {
    "heads": DIGITS, "layers": DIGITS, "head_dim": DIGITS, "d_in": DIGITS, "d_out": DIGITS, "m": DIGITS, "residual?": bool,
}  # fmt: skip
UNIVERSAL, NOT, MATCHING = ("universal",), ("not universal",), ("matching",)
NOTIONS = ("matching", "attention-matching", "functional", "shared attention")
UNTIED, TARGETS = ("all untied",), ("all untied", "all tied")
CLASSES = (*TARGETS, "generic untied", "generic tied")
TARGET = {"system": ("target", "looped-target"), "width": WHOLE}
_TENSORS = ("W_Q", "W_K", "W_V", "W_O")


def _kind(name: str, claim: dict[str, Any], evidence: dict[str, Any]) -> dict[str, Any]:
    named = {"format": ("utfproof-certificate",), "version": WHOLE, "kind": (name,)}
    return {**named, "shape": SHAPE, "claim": claim, "evidence": evidence}


def _claim(host: Any, notion: Any, targets: Any, verdict: Any, **more: Any) -> dict[str, Any]:
    return {"host": host, "notion": notion, "targets": targets, "verdict": verdict, **more}


NAMED = {"construction": str}
SHARED = ("shared-attention-universal", "looped-shared-attention-universal")
CERTIFICATES: dict[str, dict[str, Any]] = {
    "rank-permutation": _kind("rank-permutation", _claim(NAMED, MATCHING, TARGETS, UNIVERSAL, rank=DIGITS), {}),
    "rank-modular": _kind(
        "rank-modular",
        _claim(DRAWN, MATCHING, UNTIED, UNIVERSAL, rank=DIGITS),
        {"method": ("recompute", "witness"), "prime": WHOLE, "inverse?": INTEGERS, "rows?": INTEGERS},
    ),
    "rank-deficient": _kind(
        "rank-deficient",
        _claim(DRAWN, MATCHING, TARGETS, NOT),
        {
            "method": ("dimension", "kernel-vector", "tied-target"), "column?": DIGITS, "row?": DIGITS,
            "z?": [[DIGITS]], "target?": [[Either(DIGITS, str)]],
        },
    ),
    "tied-kernel": _kind(
        "tied-kernel", _claim(DRAWN, MATCHING, ("all tied",), UNIVERSAL, rank=DIGITS), {"basis": [[[DIGITS]]], "prime": WHOLE}
    ),
    "linear-test": _kind(
        "linear-test",
        _claim(DRAWN, ("attention-matching",), UNTIED, UNIVERSAL, rank=DIGITS),
        {"method": ("recompute",), "prime": WHOLE},
    ),
    "identity": _kind(
        "identity",
        _claim(NAMED, NOTIONS, str, UNIVERSAL) | {"free?": ("E", "E and U")},
        {},
    ),
    "gated-identity": _kind(
        "gated-identity",
        _claim(NAMED, ("attention-matching", "functional"), TARGETS, UNIVERSAL, inputs=("rows that sum to 1",)),
        {},
    ),
    "lower-bound": _kind(
        "lower-bound",
        _claim(
            {"every?": str, "R_V?": [[[[DIGITS]]]], "system?": SHARED},
            NOTIONS, CLASSES, NOT,
        ) | {"free?": ("E", "E and U")},
        {
            "method": str, "word?": DIGITS, "y?": [[DIGITS]], "prime?": WHOLE, "targets?": [[[Either(DIGITS, str)]]],
        },
    ),
    "enclosure": _kind(
        "enclosure",
        _claim(DRAWN, ("one emulation",), ("this one",), ("within", "apart"))
        | {"attention": str, "context": WHOLE, "difference": [DIGITS], "digits": WHOLE, "E": str, "X": str, "target": str},
        {
            "E": NUMBERS, "X": NUMBERS,
            "target": TARGET | dict.fromkeys(_TENSORS, NUMBERS) | {"W_E?": NUMBERS, "W_U?": NUMBERS},
        },
    ),
}  # fmt: skip
"""By kind."""
