"""Forms of JSON documents: one small language for what a document holds, checked in one line of error, and as JSON Schema.

A form is a type (str, bool); NUMBER (finite), WHOLE (an integer from 0 on), INTEGER or DIGITS (an integer, or its digits as
text); ANY; a tuple of admitted texts; [form] for lists; {name: form} for objects, where names ending in "?" may be missing;
Each, Maybe and Either.
"""

from __future__ import annotations

import json
import re
from typing import Any

from utfproof.errors import MalformedInput

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def plain(value: object) -> str:
    """Text that terminals, XML and HTML can carry: control characters, bidirectional overrides, lone surrogates and
    noncharacters become U+FFFD; carriage returns become line feeds."""
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", text)


class Each:
    """A mapping whose values all have one form."""

    def __init__(self, form: Any) -> None:
        self.form = form


class Maybe:
    """null, or what has the form."""

    def __init__(self, form: Any) -> None:
        self.form = form


class Either:
    """One of several forms."""

    def __init__(self, *forms: Any) -> None:
        self.forms = forms


NUMBER, WHOLE, INTEGER, DIGITS, ANY = "a number", "a whole number", "an integer", "an integer or its digits", "anything"
_WORDS = {"str": "text", "bool": "true or false"}
_LEAVES: dict[Any, dict[str, Any]] = {
    NUMBER: {"type": "number"},
    WHOLE: {"type": "integer", "minimum": 0},
    INTEGER: {"type": "integer"},
    DIGITS: {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]},
    ANY: {},
    str: {"type": "string"},
    bool: {"type": "boolean"},
}


def conform(value: Any, form: Any, where: str) -> None:
    """MalformedInput, naming the place, unless `value` has the form; further names in objects are let be."""
    if isinstance(form, Maybe):
        if value is not None:
            conform(value, form.form, where)
    elif isinstance(form, Either):
        _either(value, form, where)
    elif isinstance(form, Each):
        _require(isinstance(value, dict), where, value, "an object")
        for name, item in value.items():
            conform(item, form.form, f"{where}.{plain(name)[:60]}")
    elif isinstance(form, dict):
        _require(isinstance(value, dict), where, value, "an object")
        for name, item in form.items():
            key = name.rstrip("?")
            if key in value:
                conform(value[key], item, f"{where}.{key}")
            elif not name.endswith("?"):
                raise MalformedInput(f"{where} lacks {key}")
    elif isinstance(form, list):
        _require(isinstance(value, list), where, value, "a list")
        for index, item in enumerate(value):
            conform(item, form[0], f"{where}[{index}]")
    elif isinstance(form, tuple):
        _require(isinstance(value, str) and value in form, where, value, f"one of {', '.join(form)}")
    else:
        _require(_is_leaf(value, form), where, value, form if isinstance(form, str) else _WORDS[form.__name__])


def _either(value: Any, form: Either, where: str) -> None:
    reasons = []
    for choice in form.forms:
        try:
            conform(value, choice, where)
            return
        except MalformedInput as error:
            reasons.append(str(error))
    raise MalformedInput(reasons[-1])


def _is_leaf(value: Any, form: Any) -> bool:
    """A single value. Numbers are finite and below 1e300; true is no number."""
    if form == ANY:
        return True
    if form in (str, bool):
        return isinstance(value, form)
    if form == DIGITS and isinstance(value, str):
        return value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal()
    if not is_number(value):
        return form == DIGITS and isinstance(value, int) and not isinstance(value, bool)
    return form == NUMBER or (isinstance(value, int) and (value >= 0 or form != WHOLE))


def is_number(value: Any) -> bool:
    """A finite number that a float can hold: an integer of JSON may have hundreds of digits, and `math.isfinite` takes none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _require(fine: bool, where: str, value: Any, expected: str) -> None:
    if not fine:
        raise MalformedInput(f"{where} is {plain(json.dumps(value))[:60]}, expected {expected}")


def json_schema(form: Any, *, closed: bool = True) -> dict[str, Any]:
    """The form as a JSON Schema (2020-12). closed: objects have no further names."""
    if isinstance(form, Maybe):
        return {"anyOf": [{"type": "null"}, json_schema(form.form, closed=closed)]}
    if isinstance(form, Either):
        return {"anyOf": [json_schema(choice, closed=closed) for choice in form.forms]}
    if isinstance(form, Each):
        return {"type": "object", "additionalProperties": json_schema(form.form, closed=closed)}
    if isinstance(form, dict):
        return {
            "type": "object",
            "properties": {name.rstrip("?"): json_schema(item, closed=closed) for name, item in form.items()},
            "required": [name for name in form if not name.endswith("?")],
            **({"additionalProperties": False} if closed else {}),
        }
    if isinstance(form, list):
        return {"type": "array", "items": json_schema(form[0], closed=closed)}
    if isinstance(form, tuple):
        return {"enum": list(form)}
    return dict(_LEAVES[form])
