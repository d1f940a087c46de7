"""What is known of a model beside its tensors, and on whose word: a configuration's fields, metadata, options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from utfproof.models.families import families
from utfproof.models.family import FACTS, Family
from utfproof.weights import TensorFile


@dataclass
class Facts:
    """What is known of a model, and who says so."""

    file: TensorFile
    values: dict[str, Any]
    sources: dict[str, str]

    def set(self, name: str, value: Any, source: str) -> None:
        """Record a fact. MalformedInput where another source says something else."""
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
            if meaning is not None and meaning.only is not None and not _among(value, meaning.only):
                raise self.file.refuse(f"{source} field {name} = {short(value)}: {meaning.why}")

    def read(self, family: Family, config: Mapping[str, Any], source: str, *, whole: bool) -> tuple[str, ...]:
        """Facts of a configuration's fields. whole: a field that the family does not know is refused; else its name is
        returned. MalformedInput naming a field under whose value the model is not read."""
        left = []
        for name, value in config.items():
            meaning = family.config.get(name)
            if meaning is None:
                if not whole:
                    self._refuse_elsewhere(name, value, source)
                if whole:
                    raise self.file.refuse(
                        f"{source} field {name} = {short(value)} is not known for {family.title}, and may change outputs"
                    )
                left.append(name)
                continue
            if meaning.only is not None and not _among(value, meaning.only):
                raise self.file.refuse(f"{source} field {name} = {short(value)}: {meaning.why}")
            if meaning.fact:
                found = value if meaning.convert is None else meaning.convert(value)
                if found is not None:
                    self.set(meaning.fact, found, f"{source} field {name}")
        return tuple(left)


def _among(value: Any, allowed: tuple[Any, ...] | Callable[[Any], bool]) -> bool:
    """Whether the value is one of these, or passes the test; True is not 1."""
    if callable(allowed):
        return allowed(value)
    return any(value is a or (type(value) is not bool and type(a) is not bool and value == a) for a in allowed)


def short(value: Any) -> str:
    """A value for a message."""
    return repr(value)[:60]
