"""Seeds of the corpus (`tests/certificates`), and certificates that are derived from them when tests run.

Seeds are few: for each kind a valid one of each method and host, each reason for which the checker rejects one, and every fault
that was ever found; a file's name says the attack. `derived` has what the published form of a kind rules out at some place, and
`mutants` other values at any place.
"""

import copy
import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from certificate_forms import CERTIFICATES, DIGITS, Either, admits

CORPUS = Path(__file__).parent / "certificates"
FOLDERS = {"valid": 0, "invalid": 1, "malformed": 2}
FILES = {path: code for folder, code in FOLDERS.items() for path in sorted((CORPUS / folder).glob("*.json"))}
FIELDS = ("heads", "layers", "head_dim", "d_in", "d_out", "m")
BAD = {"null": None, "true": True, "fraction": 1.5, "number": 7, "negative": -7, "text": "x", "digits": "7", "list": [],
       "object": {}, "null in a list": [None], "list in a list": [[]]}  # fmt: skip
NOT_CANONICAL = {"digits": "7", "huge": 2**53}
"""Numbers from 2^53 on are written as text, and only these."""
Place = tuple[str | int, ...]


def canonical(document: Any) -> bytes:
    """Canonical apart from what has no canonical form."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@functools.cache
def valid() -> list[tuple[str, dict[str, Any]]]:
    """(name, valid certificate), from the shortest on."""
    paths = sorted((CORPUS / "valid").glob("*.json"), key=lambda path: (path.stat().st_size, path.name))
    return [(path.stem, json.loads(path.read_bytes())) for path in paths]


def seed(kind: str, **claim: Any) -> dict[str, Any]:
    """A copy of the shortest valid certificate of this kind whose claim has these fields, without weights of a file."""
    return copy.deepcopy(
        next(
            found
            for _, found in valid()
            if found["kind"] == kind
            and claim.items() <= found["claim"].items()
            and "weights" not in found["claim"]["host"]
        )
    )


# --- by hand -------------------------------------------------------------------------------------------------


def written(n: int) -> int | str:
    return n if abs(n) < 2**53 else str(n)


def document(kind, host, dims, m, evidence, *, rank=None, notion="matching", targets="all untied", free=None):
    """A certificate's JSON object; host: a construction's name, or the claim's `host`; dims = (H, L, d, d_in, d_out)."""
    if host in ("random", "random-tied"):
        host = {"construction": host, "dtype": "float64", "law": "uniform", "seed": 0}
    claim = {"host": {"construction": host} if isinstance(host, str) else host, "notion": notion, "targets": targets}
    universal = rank is not None or kind == "identity"
    claim |= {"verdict": "universal" if universal else "not universal"}
    claim |= ({} if rank is None else {"rank": written(rank)}) | ({} if free is None else {"free": free})
    shape = {field: written(value) for field, value in zip(FIELDS, (*dims, m), strict=True)}
    named = {"format": "utfproof-certificate", "version": 2, "kind": kind}
    return {**named, "shape": shape, "claim": claim, "evidence": evidence}


def kernel_evidence(z: dict[int, int]) -> dict[str, Any]:
    """z as {position: value}; the isolated column is the largest entry's."""
    column = max(z, key=lambda i: (abs(z[i]), -i))
    return {
        "method": "kernel-vector",
        "column": written(column),
        "z": [[written(i), written(z[i])] for i in sorted(z)],
    }


def changed(base, *path_and_value):
    """A copy with the value at a path replaced (or deleted: `...`)."""
    *path, last, value = path_and_value
    result = copy.deepcopy(base)
    place = result
    for step in path:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return result


# --- what a form rules out -----------------------------------------------------------------------------------


def inside(value: Any, form: Any) -> dict[str | int, tuple[Any, Any]]:
    """The parts of a value with their forms: all fields of an object, of a list the first entry of each type."""
    if isinstance(form, dict):
        return {key: (value[key], part) for name, part in form.items() if (key := name.rstrip("?")) in value}
    if not isinstance(form, list):
        return {}
    first = {type(part): i for i, part in [*enumerate(value)][::-1]}
    return {index: (value[index], form[0]) for index in first.values()}


def faults(value: Any, form: Any, place: Place = ()) -> Iterator[tuple[Place, str, Any]]:
    """(place, fault, what replaces `value` then), from the outside in."""
    others = {name: other for name, other in BAD.items() if not admits(form, other)}
    if isinstance(form, tuple):
        others |= {f"now {text!r}": text for text in ("", value.upper(), f"{value} ") if text not in form}
    elif form == DIGITS:
        others |= NOT_CANONICAL | ({"zero": 0, "negative": -7} if place[0] == "shape" else {})
    yield from ((place, name, other) for name, other in others.items())
    if isinstance(form, Either):
        form = next(one for one in form.forms if admits(one, value))
    if isinstance(form, dict):
        for name in {"zzz", "__class__", "", "\0", *(key.upper() for key in value)} - {k.rstrip("?") for k in form}:
            yield (*place, name), "unknown", {**value, name: 1}
        for key in form.keys() & value.keys():
            yield (*place, key), "missing", {name: part for name, part in value.items() if name != key}
    for key, (part, its_form) in inside(value, form).items():
        for where, name, other in faults(part, its_form, (*place, key)):
            yield where, name, put(value, key, other)


def put(value: Any, key: str | int, other: Any) -> Any:
    return {**value, key: other} if isinstance(value, dict) else [*value[:key], other, *value[key + 1 :]]


def derived(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place and fault, malformed certificate) of this kind, each once."""
    seen = set()
    for _, found in valid():
        for place, fault, other in faults(found, CERTIFICATES[kind]) if found["kind"] == kind else ():
            name = f"{'.'.join(map(str, place))}: {fault}"
            if name not in seen:
                seen.add(name)
                yield name, other


# --- other values --------------------------------------------------------------------------------------------


def mutants(count: int, number: int, most: int = 20_000) -> Iterator[tuple[str, dict[str, Any]]]:
    """(seed's name, it with one or two values changed): `count` of them from seeds of up to `most` bytes."""
    source = random.Random(number)
    seeds = [(name, raw) for name, found in valid() if len(raw := canonical(found)) <= most]
    for _ in range(count):
        name, raw = source.choice(seeds)
        found = json.loads(raw)
        for _ in range(source.choice((1, 1, 2))):
            mutate(found, source)
        yield name, found


def mutate(found: Any, source: random.Random) -> None:
    """Change one value somewhere inside, in place."""
    while True:
        keys = [*found] if isinstance(found, dict) else range(len(found))
        inner = [key for key in keys if isinstance(found[key], dict | list) and found[key]]
        if inner and source.random() < 0.85:
            found = found[source.choice(inner)]
            continue
        if keys:
            break
        return
    key = source.choice([*keys])
    value, fate = found[key], source.random()
    if fate < 0.08:
        del found[key]
    elif fate < 0.14 and isinstance(found, list):
        found.insert(key, copy.deepcopy(value))
    elif fate < 0.2 and isinstance(found, list) and len(found) > 1:
        other = source.randrange(len(found))
        found[key], found[other] = found[other], value
    elif type(value) is int:
        found[key] = source.choice((value + 1, value - 1, -value, 2 * value, 0, 1, written(value + 2**53), str(value)))
    elif isinstance(value, str) and value.lstrip("-").isdigit():
        found[key] = written(int(value) + source.choice((-1, 1)))
    elif isinstance(value, str):
        _, other = source.choice(valid())
        words = [word for word in [*other["claim"].values(), *other["claim"]["host"].values()] if isinstance(word, str)]
        found[key] = source.choice(words)
    else:
        found[key] = source.choice((None, True, [], {}, value[::-1] if isinstance(value, list) else 7))
