"""The corpus: what the form of a kind rules out, derived from valid certificates. Each has one value at one place that the
published form (docs/schemas) does not admit there; no file holds them."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_corpus import encoded

from utfproof.certificates.forms import CERTIFICATES
from utfproof.errors import MalformedInput
from utfproof.ground.forms import DIGITS, Either, conform

VALID = Path(__file__).parent / "certificates" / "valid"
BAD = {"null": None, "true": True, "fraction": 1.5, "number": 7, "negative": -7, "text": "x", "digits": "7", "list": [],
       "object": {}, "null in a list": [None], "list in a list": [[]]}  # fmt: skip
NOT_CANONICAL = {"digits": "7", "huge": 2**53}
"""Numbers from 2^53 on are written as text, and only these."""
Place = tuple[str | int, ...]


def admits(form: Any, value: Any) -> bool:
    try:
        conform(value, form, "it")
    except MalformedInput:
        return False
    return not (isinstance(form, dict) and value.keys() - {name.rstrip("?") for name in form})


def chosen(form: Any, value: Any) -> Any:
    """Of several forms that of this value."""
    return next(one for one in form.forms if admits(one, value)) if isinstance(form, Either) else form


def inside(value: Any, form: Any) -> dict[str | int, tuple[Any, Any]]:
    """The parts of a value with their forms: all fields of an object, of a list the first entry of each type."""
    if isinstance(form, dict):
        return {key: (value[key], part) for name, part in form.items() if (key := name.rstrip("?")) in value}
    if not isinstance(form, list):
        return {}
    return {
        index: (value[index], form[0]) for index in {type(part): i for i, part in [*enumerate(value)][::-1]}.values()
    }


@functools.cache
def texts() -> dict[Any, set[str]]:
    """By the name of a field: the texts, or names of its own fields, that some kind admits there. No verdicts: one that a kind
    does not prove is invalid, not malformed."""
    found: dict[Any, set[str]] = {}

    def walk(form: Any, name: str) -> None:
        if isinstance(form, tuple | dict) and name != "verdict":
            found.setdefault(name, set()).update(part.rstrip("?") for part in form)
        for inner, part in form.items() if isinstance(form, dict) else ():
            walk(part, inner.rstrip("?"))

    for form in CERTIFICATES.values():
        walk(form, "")
    return found


def faults(value: Any, form: Any, place: Place = ()) -> Iterator[tuple[Place, str, Any]]:
    """(place, fault, what stands for `value` then), from the outside in."""
    others = {name: other for name, other in BAD.items() if not admits(form, other)}
    elsewhere = texts().get(place[-1] if place else "", set())
    if isinstance(form, tuple):
        wrong = {"", value.upper(), f"{value} "} | elsewhere
        others |= {f"now {text}": text for text in sorted(wrong - set(form))}
    elif form == DIGITS:
        others |= NOT_CANONICAL | ({"zero": 0, "negative": -7} if place[0] == "shape" else {})
    yield from ((place, name, other) for name, other in others.items())
    form = chosen(form, value)
    if isinstance(form, dict):
        names = {"zzz", "__class__", "", "\0", *(key.upper() for key in value)} | elsewhere
        for name in sorted(names - {name.rstrip("?") for name in form}):
            yield (*place, name), "unknown", {**value, name: 1}
        for key in form.keys() & value.keys():
            yield (*place, key), "missing", {name: part for name, part in value.items() if name != key}
    for key, (part, its_form) in inside(value, form).items():
        for where, name, other in faults(part, its_form, (*place, key)):
            yield (
                where,
                name,
                {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1 :]],
            )


@functools.cache
def valid() -> list[dict[str, Any]]:
    """The valid certificates, from the shortest on."""
    paths = sorted(VALID.glob("*.json"), key=lambda path: (path.stat().st_size, path.name))
    return [json.loads(path.read_bytes()) for path in paths]


def derived(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place and fault, malformed certificate) of this kind, each once."""
    seen = set()
    for document in valid():
        for place, fault, changed in faults(document, CERTIFICATES[kind]) if document["kind"] == kind else ():
            name = f"{'.'.join(map(str, place))}: {fault}"
            if name not in seen:
                seen.add(name)
                yield name, changed


def written(kinds: tuple[str, ...], folder: Path) -> list[Path]:
    """The same as files."""
    for kind in kinds:
        for number, (_, document) in enumerate(derived(kind)):
            (folder / f"{kind}-{number}.json").write_bytes(encoded(document))
    return sorted(folder.iterdir())
