"""`utfproof glossary`: the words and symbols that commands print (glossary.md, which the site shows too)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput, choose


def entries() -> dict[str, str]:
    """Word, or words with commas between them, and their meaning."""
    page = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (?!word \| meaning)(\S.*?) \| (.*) \|$", page, re.MULTILINE))


def glossary(
    *,
    words: Annotated[list[str] | None, typer.Argument(help="Words to explain; all if none is given.")] = None,
) -> Outcome:
    """Explain the words and symbols that commands print.

    Exit 0: each word is known. 2: one is not; the message names near ones.

    Examples: utfproof glossary; utfproof glossary M matching
    """
    known = entries()
    named = {word: line for line in known for word in (line, *line.split(", "))}
    for word in words or ():
        if word not in named:
            raise MalformedInput(
                f"the glossary has no {word!r}: {choose(word, dict.fromkeys(line.split(', ')[0] for line in known))}"
            )
    rows = {named[word]: known[named[word]] for word in words or known}
    return Outcome(
        {"glossary": rows}, "glossary", {name: text.replace("*", "").replace("`", "") for name, text in rows.items()}
    )
