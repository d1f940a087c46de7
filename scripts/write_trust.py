"""Writes the table of line ranges into docs/trust.md: where in the checker a reader finds what the page walks through."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, CHECKER = ROOT / "docs" / "trust.md", ROOT / "utfproof" / "certificates" / "checker.py"
BEGIN, END = "<!-- lines: written by scripts/write_trust.py -->\n", "<!-- end of lines -->"
WALK = {
    "parse_canonical": "a file is canonical JSON, or nothing",
    "record": "an object has exactly the fields asked for",
    "many": "one of the rules that read a field: an array of so many items",
    "read_shape": "H, L, d, d_in, d_out, m",
    "Kind": "what every kind says of itself: verdicts, notions, targets, fields",
    "read_evidence": "the fields that the kind's class declares, each by its rule",
    "check_document": "form first, then content",
    "Identities": "the kind: host, notion and targets that it can state, E and U, what it reduces to",
    "IndexHost": "a construction's columns: `reads`, `move`, `outputs`",
    "SharedKey": "one construction, by its definition",
    "Blocks": "E, block by block, as words",
    "random_prime": "a prime of 192 bits, drawn after the certificate is fixed",
    "WordPoint": "a random target, and words in its matrices",
    "weighted_words": "the host's words, all at once, weighted",
    "require_words": "both sides at the random point",
}
"""What to read, in this order, and what it says."""


def sections(source: str) -> list[tuple[int, int, str]]:
    """(first line, last line, title) of the sections, each between its rule and the next."""
    lines = source.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("# ---")]
    return [(at + 1, end, lines[at + 1][2:]) for at, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def table(source: str) -> str:
    """A row for each section of the kernel, then for each definition: its lines, its name, what it says. KeyError for a name
    that the source lacks."""
    nodes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    rows = ["| lines of checker.py | definition | what it says |", "|---|---|---|"]
    kernel = (section for section in sections(source) if section[2].startswith("KERNEL"))
    rows += [f"| {first}–{last} | section | {title.replace('KERNEL', 'kernel')} |" for first, last, title in kernel]
    for name, says in WALK.items():
        node = nodes[name]
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        rows.append(f"| {first}–{node.end_lineno} | `{name}` | {says} |")
    return "\n".join(rows) + "\n"


def page(text: str, source: str) -> str:
    """The page with its table renewed."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table(source) + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), CHECKER.read_text(encoding="utf-8")), encoding="utf-8")
