"""What is known of a model beside its tensors, and on whose word: a configuration's fields, metadata, options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from utfproof.models.families import families
from utfproof.models.family import FACTS, SIZES, Family, Meaning, number, whole
from utfproof.weights import TensorFile

OWN_OUTPUTS = "the module's own outputs"
"""Who says a fact that is tried on a live module."""
WRONG = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError)
"""What tests and conversions of a field raise for values of a type that they were not written for."""


def _flags(*names: str) -> dict[str, tuple[Callable[[Any], bool], str]]:
    return dict.fromkeys(names, (lambda value: isinstance(value, bool), "true or false"))


def _positive(value: Any) -> bool:
    return number(value) and value > 0


def _numbers(value: Any) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(map(number, value))


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(SIZES.values(), (lambda value: whole(value, 1), "a positive integer")),
    **_flags("causal", "stream", "scaled", "scale_by_layer", "local", "clamped", "adjacent", "tied", "biased"),
    **_flags("norm_first", "first", "final"),
    "window": (whole, "a whole number, 0 for none"),
    "scale": (
        lambda value: value == "1/sqrt(d)" or (number(value) and value != 0),
        "'1/sqrt(d)', or a number that is not 0",
    ),
    "divisor": (lambda value: number(value) and value != 0, "a number that is not 0"),
    "cap": (lambda value: number(value) and value >= 0, "a number, 0 for none"),
    "clamp": (_positive, "a positive number"),
    "slopes": (_numbers, "a list of numbers"),
    "layer_types": (
        lambda value: isinstance(value, tuple | list) and all(kind in ("local", "global") for kind in value),
        "a list of 'local' and 'global'",
    ),
    "rotary_base": (_positive, "a positive number"),
    "rotary_base_local": (_positive, "a positive number"),
    "rotary_factor": (_positive, "a positive number"),
    "rotary_dim": (
        lambda value: value == "all" or (whole(value, 2) and value % 2 == 0),
        "an even number of coordinates, or null for all",
    ),
    "eps": (lambda value: number(value) and value >= 0, "one number that is not negative"),
    "offset": (number, "a number"),
    "position_factor": (lambda value: number(value) or value == "1/sqrt(D)", "a number"),
}
"""What each fact has to be: the test, and the words for people."""


@dataclass
class Facts:
    """What is known of a model, and who says so."""

    file: TensorFile
    values: dict[str, Any]
    sources: dict[str, str]

    def set(self, name: str, value: Any, source: str) -> None:
        """Record a fact. MalformedInput where it is none of its kind, or another source says something else."""
        test, words = KINDS.get(name, (None, ""))
        if test is not None and not test(value):
            raise self.file.refuse(f"{source} is {short(value)}, expected {words}")
        if name in self.values and self.values[name] != value:
            raise self.file.refuse(
                f"{source} says {FACTS.get(name, name)} {value}, {self.sources[name]} says {self.values[name]}"
            )
        if name not in self.values:
            self.values[name], self.sources[name] = value, source

    def get(self, name: str, default: Any = None) -> Any:
        """The fact, or the default."""
        return self.values.get(name, default)

    def _refuse_elsewhere(self, name: str, value: Any, source: str) -> None:
        """MalformedInput for a field that this family does not have and another refuses: it contradicts whatever is read."""
        for other in families().values():
            meaning = other.config.get(name)
            if meaning is not None and not _allowed(meaning, value):
                raise self.file.refuse(f"{source} field {name} = {short(value)}: {meaning.why}")

    def read(self, family: Family, config: Mapping[str, Any], source: str, *, whole: bool) -> tuple[str, ...]:
        """Facts of a configuration's fields. whole: a field that the family does not know is refused; else its name is
        returned. MalformedInput naming a field under whose value the model is not read."""
        left = []
        implied = {} if family.implies is None else family.implies(config)
        for name, value in config.items():
            meaning = family.config.get(name)
            if meaning is not None:
                found = self._value(meaning, value, f"{source} field {name}")
                if found is not None and meaning.fact not in implied:
                    self.set(meaning.fact, found, f"{source} field {name}")
                continue
            if whole:
                raise self.file.refuse(
                    f"{source} field {name} = {short(value)} is not known for {family.title}, and may change outputs"
                )
            self._refuse_elsewhere(name, value, source)
            left.append(name)
        for name, value in implied.items():
            self.set(name, value, f"the {source} as a whole")
        return tuple(left)

    def _value(self, meaning: Meaning, value: Any, source: str) -> Any:
        """The fact that a field sets, None where it sets none. MalformedInput for a value under which the model is not read."""
        if not _allowed(meaning, value):
            raise self.file.refuse(f"{source} = {short(value)}: {meaning.why}")
        if not meaning.fact or meaning.convert is None:
            return value if meaning.fact else None
        try:
            return meaning.convert(value)
        except WRONG as error:
            expected = KINDS.get(meaning.fact, (None, "something else"))[1]
            raise self.file.refuse(f"{source} = {short(value)}: expected {expected}") from error


def _allowed(meaning: Meaning, value: Any) -> bool:
    """Whether a field's value is one of those, or passes the test, under which the model is read."""
    try:
        return meaning.only is None or _among(value, meaning.only)
    except WRONG:
        return False


def _among(value: Any, allowed: tuple[Any, ...] | Callable[[Any], bool]) -> bool:
    """Whether the value is one of these, or passes the test; True is not 1."""
    if callable(allowed):
        return allowed(value)
    return any(value is a or (type(value) is not bool and type(a) is not bool and value == a) for a in allowed)


def short(value: Any) -> str:
    """A value for a message."""
    return repr(value)[:60]
