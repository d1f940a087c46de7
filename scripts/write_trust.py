"""Writes into docs/trust.md where in the checker stands what the page walks through, and what the last campaign found."""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

from pages import ROOT, settle

PAGE, CHECKER = ROOT / "docs" / "trust.md", ROOT / "utfproof" / "certificates" / "checker.py"
CAMPAIGNS = [ROOT / "results" / name for name in ("campaign-cpu.json", "campaign-again-cpu.json")]
"""One of a million; and the part of it where something was wrong, with the judges as they are since."""
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


def campaign(found: dict[str, Any]) -> str:
    """What stands in the data of a campaign (tests/campaign.py --json): mutants, verdicts of three judges, what went wrong."""
    counts: dict[tuple[str, ...], int] = {}
    for verdicts in found["verdicts (checker / second judge / verified checker)"].values():
        for key, n in verdicts.items():
            counts[tuple(key.split(" / "))] = counts.get(tuple(key.split(" / ")), 0) + n

    def having(place: int, *words: str) -> int:
        return sum(n for key, n in counts.items() if key[place] in words)

    truths = [said for kind in found["statements of the accepted"].values() for said in kind.items()]
    true = sum(n for word, n in truths if word == "true")
    none = "accepted falsehoods, disagreements, crashes, runs over 20 s: none"
    said = "; ".join(f"{name}: {n}" for name, n in sorted(found["wrong"].items())) or none
    judged = [having(0, "valid"), having(1, "valid", "invalid", "malformed"), having(2, "valid", "invalid")]
    slowest = found["slowest check, seconds of a processor"]
    return (
        f"  On record: {found['mutants']:,} mutants, {judged[0]:,} accepted ({true:,} of their statements are found true by "
        f"themselves),\n  {judged[1]:,} judged by the second judge, {judged[2]:,} by the verified checker. "
        f"{said[0].upper() + said[1:]};\n  the slowest took {slowest} s of a processor.\n"
    )


def between(text: str, name: str, new: str) -> str:
    """The page with what stands between its comments of this name renewed."""
    begin, end = f"<!-- {name}: written by scripts/write_trust.py -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + new + "\n" + end + rest.split(end)[1]


def page(text: str, source: str) -> str:
    """The page with its table and its campaigns renewed."""
    first, again = (campaign(json.loads(path.read_text(encoding="utf-8"))) for path in CAMPAIGNS)
    new = f"{first}  The part with it again, the judges mended: {again.removeprefix('  On record: ')}"
    return between(between(text, "lines", table(source)), "campaign", new)


if __name__ == "__main__":
    sys.exit(settle({PAGE: page(PAGE.read_text(encoding="utf-8"), CHECKER.read_text(encoding="utf-8"))}))
