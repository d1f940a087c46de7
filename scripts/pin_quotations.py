"""Find the quotations of utfproof/paper/quotations.json in the paper's text and write where they stand.

    UTFPROOF_PAPER=paper.tex python scripts/pin_quotations.py

UTFPROOF_PAPER: the paper's LaTeX source in one file. Add a quotation or a sentence with its text (and claims); this fills
in the rest. Exit 1, and nothing is written, where a text is not found.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

from utfproof.paper.quotations import collapse, document, seal, write

HEADINGS = [
    (r"\section{Introduction}", "1 Introduction"),
    (r"\section{Preliminaries}", "2 Preliminaries"),
    (r"\section{Constructing universal", "3 Constructing universal transformers"),
    (r"\section{Optimality}", "4 Optimality"),
    (r"\section{Experimental studies}", "5 Experimental studies"),
    (r"\section{Conclusion", "6 Conclusion"),
    (r"\section{Proof of \Cref{thm:sparse_universal_transformer}", "A Universal transformer"),
    (r"\section{Proof of \Cref{thm:random_universal_transformer}", "B Random universal transformer"),
    (r"\section{Proof of \Cref{thm:looped_sparse", "C, D Looped universal transformers"),
    (r"\section{Lower bound on", "E Lower bound"),
    (r"\section{Additional ablation", "5 Experimental studies"),
]
"""How the paper's sections begin, and their titles in the registry."""


TABLES = (
    "summary, attention-only",
    "summary, residual and LN",
    "parentheses",
    "2-hop",
    "1-hop",
    "3-hop",
    "4-hop",
    "hyperparameters, parentheses",
    "hyperparameters, k-hop",
)
"""The tables in the order of the source."""


def tables(source: str) -> dict[str, dict[str, list[str]]]:
    """Every table's cells by row, read from the LaTeX source alone."""
    found = {}
    bodies = re.findall(r"\\midrule(.*?)\\bottomrule", source, re.DOTALL)
    if len(bodies) != len(TABLES):
        sys.exit(f"{len(bodies)} tables are in the source, {len(TABLES)} were expected")
    for name, body in zip(TABLES, bodies, strict=True):
        rows = [[cell.strip() for cell in row.split("&")] for row in body.split(r"\\") if "&" in row]
        found[name] = {_cell(row[0]): [_cell(cell) for cell in row[1:]] for row in rows}
    return found


def _cell(text: str) -> str:
    """A cell without its markup."""
    return text.replace("$", "").replace(r"\%", "").strip()


def main() -> None:
    """Pin everything, or say what is not found."""
    name = os.environ.get("UTFPROOF_PAPER")
    if not name:
        sys.exit("set UTFPROOF_PAPER to the paper's LaTeX source")
    source = Path(name).read_bytes()
    text, given = collapse(source.decode()), document()
    missing = []

    def place(quoted: str, start: int = 0) -> int:
        at = text.find(quoted, start)
        if at < 0:
            missing.append(quoted)
        return at

    starts = [[place(heading), title] for heading, title in HEADINGS]
    pinned = {}
    for claim, entry in given["quotations"].items():
        quoted = collapse(entry["text"])
        at = place(quoted)
        pinned[claim] = {"text": quoted, "at": at, "digest": seal(claim, at, quoted)}
    listed = []
    for entry in given["sentences"]:
        quoted = collapse(entry["text"])
        listed.append({**entry, "text": quoted, "at": place(quoted)})
    if missing:
        sys.exit("\n".join(f"not in the paper: {quoted}" for quoted in missing))
    made = {
        "sha256": hashlib.sha256(source).hexdigest(),
        "sections": starts,
        "quotations": pinned,
        "sentences": sorted(listed, key=lambda entry: entry["at"]),
        "tables": tables(source.decode()),
    }
    write(made)


if __name__ == "__main__":
    main()
