"""What is said of a model beside its tensors, and by whom: a configuration's fields, a file's metadata, options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from utfproof.weights import TensorFile

OWN_OUTPUTS = "the module's own outputs"
"""Source of a fact that is tried on a live module."""
WRONG = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)
"""What tests and conversions of a field raise for a value of another type."""

FACTS: dict[str, tuple[str, str]] = {
    "causal": ("mask", "--attention causal, or softmax where positions see both ways"),
    "window": ("window", "--attention causal where there is none, or causal+window:W"),
    "scale": ("logits times", "--scale"),
    "positions": ("positions", '--config with "positional_embedding_type"'),
    "norm": ("normalisation", '--config with "normalization_type" (null where there is none)'),
    "cap": ("cap of logits", '--config with "attn_scores_soft_cap" (-1 where there is none)'),
    "output_cap": ("cap of outputs", '--config with "output_logits_soft_cap" (-1 where there is none)'),
    "zero_attn": ("attention to no token", '--config with "add_zero_attn"'),
    "stream": ("residual stream", "--residual or --no-residual"),
    "mlp": ("MLP", '--config with "attn_only"'),
    "rotary_base": ("base of the rotation", '--config with "rotary_base"'),
    "rotary_dim": ("rotated coordinates", '--config with "rotary_dim"'),
    "adjacent": ("adjacent pairs are rotated", '--config with "rotary_adjacent_pairs"'),
    "others": ("other fields of the configuration", "--config with all of the model's cfg.to_dict()"),
}
"""Facts that change outputs and that tensors do not show: the word for people, and the option that settles each."""
ROTATION = ("rotary_base", "rotary_dim", "adjacent")
"""Facts on which outputs depend where positions are rotated."""


def number(value: Any) -> bool:
    """Whether a field's value is a finite number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def whole(value: Any, least: int = 0) -> bool:
    """Whether a field's value is a whole number, at least so large, and no more than any size is."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def size(value: Any) -> bool:
    """Whether a field's value is a positive whole number."""
    return whole(value, 1)


def positive(value: Any) -> bool:
    """Whether a field's value is a positive number."""
    return number(value) and value > 0


def flag(value: Any) -> bool:
    """Whether a field's value is true or false."""
    return isinstance(value, bool)


@dataclass(frozen=True)
class Meaning:
    """What a field of a configuration says. fact: the fact that it sets, "" where it sets none; allowed: whether a model with
    this value is read; why: why others are refused; convert: the field's value -> the fact's, None where it says nothing."""

    fact: str = ""
    allowed: Callable[[Any], bool] = lambda value: True
    why: str = ""
    convert: Callable[[Any], Any] = lambda value: value


def sets(fact: str, values: Mapping[Any, Any] | Callable[[Any], bool], why: str = "") -> Meaning:
    """A field that sets a fact: a table of values, or a test of the value (null says nothing then)."""
    if callable(values):
        return Meaning(fact, lambda value: value is None or values(value), why or "its value is of another type")
    return Meaning(fact, lambda value: _among(value, tuple(values)), why or "this value is not read", values.get)


def only(*values: Any, why: str) -> Meaning:
    """A field under whose other values no embedding carries the model (or this reader does not)."""
    return Meaning("", lambda value: _among(value, values), why)


def harmless(*names: str) -> dict[str, Meaning]:
    """Fields that no output depends on; a text may hold several names, separated by spaces."""
    return dict.fromkeys(" ".join(names).split(), Meaning())


def limit(fact: str, least: int = 0) -> Meaning:
    """A field that is a whole number, or null where there is no such limit (0 for the fact)."""
    return Meaning(
        fact, lambda n: n is None or whole(n, least), f"it is no whole number from {least} on", lambda n: n or 0
    )


def cap(fact: str, why: str) -> Meaning:
    """A field that is a positive number, or 0, -1 or null where there is no cap (0 for the fact)."""
    return Meaning(
        fact,
        lambda c: c is None or (number(c) and (c >= 0 or c == -1)),
        why,
        lambda c: float(c) if c and c > 0 else 0.0,
    )


def _among(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether the value is one of these; True is not 1."""
    return any(value is a or (type(value) is not bool and type(a) is not bool and value == a) for a in allowed)


def short(value: Any) -> str:
    """A value for a message."""
    return repr(value)[:60]


class Facts:
    """What is known of a model, and who says so."""

    def __init__(self, file: TensorFile) -> None:
        self.file = file
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def set(self, name: str, value: Any, source: str) -> None:
        """Record a fact. MalformedInput where another source says something else."""
        if name in self.values and self.values[name] != value:
            word = FACTS.get(name, (name,))[0]
            raise self.file.refuse(f"{source} says {word} {value}, {self.sources[name]} says {self.values[name]}")
        if name not in self.values:
            self.values[name], self.sources[name] = value, source

    def get(self, name: str, default: Any = None) -> Any:
        """The fact, or the default."""
        return self.values.get(name, default)

    def read(
        self, fields: Mapping[str, Meaning], config: Mapping[str, Any], source: str, title: str = ""
    ) -> tuple[str, ...]:
        """Set the facts that a configuration's fields say. title: of the family, where a field that it does not know is to be
        refused; else such names are returned. MalformedInput naming a field under whose value the model is not read."""
        left = []
        for name, value in config.items():
            meaning, place = fields.get(name), f"{source} field {name}"
            if meaning is None:
                if title:
                    raise self.file.refuse(f"{place} = {short(value)} is not known for {title}, and may change outputs")
                left.append(name)
                continue
            try:
                allowed = meaning.allowed(value)
                fact = meaning.convert(value) if allowed and meaning.fact else None
            except WRONG:
                allowed = False
            if not allowed:
                raise self.file.refuse(f"{place} = {short(value)}: {meaning.why}")
            if fact is not None:
                self.set(meaning.fact, fact, place)
        return tuple(left)


def metadata_fields(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Metadata's texts as values: true, false, none, numbers, lists and objects in JSON."""
    words = {"true": True, "false": False, "none": None, "null": None, "": None}

    def value(text: str) -> Any:
        low = text.strip().lower()
        if low in words:
            return words[low]
        for kind in (int, float):
            with suppress(ValueError):
                return kind(low)
        with suppress(ValueError, RecursionError):
            return json.loads(text) if text.startswith(("[", "{")) else text
        return text

    return {name: value(text) for name, text in metadata.items()}
