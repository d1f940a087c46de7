"""Results that show themselves: one line in a console, a table of two columns in a notebook."""

from __future__ import annotations

from html import escape
from typing import Any

LINE = 120
"""Longest repr of a public object."""


class Result:
    """Base of what `decide`, `check`, `frontier` and `emulate` return."""

    def rows(self) -> dict[str, Any]:
        """What is found, by name; the first entry is the answer."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name, answer = next(iter(self.rows().items()))
        text = f"{type(self).__name__}({name}: {' '.join(str(answer).split())})"
        return text if len(text) <= LINE else f"{text[: LINE - 2]}…)"

    def _repr_html_(self) -> str:
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(str(said))}</td></tr>" for name, said in self.rows().items())
        return f"<table>{''.join(lines)}</table>"
