"""Docstrings for the documentation site: prose as it is written, so that `[L][H]` is no link and `m < M` no tag."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

Base: Any = importlib.import_module("griffe").Extension if importlib.util.find_spec("griffe") else object


def prose(docstring: str) -> str:
    """A docstring whose brackets and angle brackets are text, code aside; its example is a block of code."""

    def plain(line: str) -> str:
        if line.startswith("    "):
            return line
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(
            part if part.startswith("`") else part.replace("[", "\\[").replace("<", "&lt;") for part in parts
        )

    words, prompt, example = docstring.partition("\n\n>>> ")
    text = "\n".join(plain(line) for line in words.split("\n"))
    return f"{text}\n\n```pycon\n>>> {example.rstrip()}\n```" if prompt else text


class PlainProse(Base):
    """Applies `prose` to every docstring that is read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = prose(obj.docstring.value)
