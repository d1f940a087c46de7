"""Docstrings for the documentation site: prose as it is written, so that `[L][H]` is no link and `m < M` no tag."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

Base: Any = importlib.import_module("griffe").Extension if importlib.util.find_spec("griffe") else object


def prose(docstring: str) -> str:
    """A docstring whose brackets and angle brackets are text, code spans and indented blocks aside."""

    def plain(line: str) -> str:
        if line.startswith("    "):
            return line
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(
            part if part.startswith("`") else part.replace("[", "\\[").replace("<", "&lt;") for part in parts
        )

    return "\n".join(plain(line) for line in docstring.split("\n"))


class PlainProse(Base):
    """Applies `prose` to every docstring that is read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = prose(obj.docstring.value)
