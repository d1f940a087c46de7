"""The tables of docs/search.md from results/search-cpu.json: python scripts/write_search.py [--check]."""

from __future__ import annotations

import json
import sys
from typing import Any

from pages import ROOT, settle

from utfproof.errors import MalformedInput
from utfproof.ground.files import read_bytes
from utfproof.ground.notions import Notion
from utfproof.search.calibration import known, problem_of

DATA, PAGE = ROOT / "results" / "search-cpu.json", ROOT / "docs" / "search.md"
MARKS = {"calibration": "numerical calibration", "runs": "numerical open problems"}
"""Each table stands between `<!-- NAME -->` and `<!-- end of NAME -->`."""


def calibration_table(document: dict[str, Any]) -> str:
    """Success rates and times of the calibration."""
    lines = [
        "| problem | expected | candidates, partial | least residual | fresh targets, worst | seconds |",
        "|" + "---|" * 6,
    ]
    for case in document["cases"]:
        fresh = "" if case["fresh residuals"] is None else f"{case['fresh residuals'][1]:.0e}"
        counts = f"{case['candidates']}, {case['partial']} of {case['restarts']}"
        cells = (
            f"{_label(case['problem'])}: {case['why']}",
            case["expected"] + ("" if case["passed"] else " (FAILS)"),
            counts,
            f"{case['best residual']:.0e}",
            fresh,
            f"{case['seconds']:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def runs_table(runs: list[dict[str, Any]]) -> str:
    """What was tried on open problems; the interval known is the frontier's of today."""
    lines = ["| problem | least m known | restarts | outcome | least residual | its largest weight |", "|" + "---|" * 6]
    for run in runs:
        best = min((restart["path"][-1] for restart in run["restarts"]), key=lambda step: step[1])
        counts = ", ".join(f"{count} {name}" for name, count in run["counts"].items() if count)
        positive = ", positive weights" if run["setting"]["positive"] else ""
        cells = (
            _label(run["problem"]) + positive,
            known(problem_of(run["problem"])),
            str(len(run["restarts"])),
            f"{run['outcome']} ({counts})",
            f"{best[1]:.0e}",
            f"{best[2]:.1f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _label(problem: dict[str, Any]) -> str:
    shape = problem["shape"]
    wide = f", d_in = {shape['d_in']}" if shape["d_in"] > 1 else ""
    tied = ", looped" if problem["targets"] == "all tied" else ""
    if problem["notion"] == Notion.SHARED_ATTENTION:
        return f"({shape['heads']},{shape['layers']}){wide}{tied}, {problem['free']} free, m = {problem['m']}"
    larger = f", d = {shape['head_dim']}" if shape["head_dim"] != shape["d_in"] else ""
    host = ", tied host" if problem["host"] == "tied" else ""
    return f"{problem['notion']}, ({shape['heads']},{shape['layers']}){wide}{larger}{tied}{host}, m = {problem['m']}"


def with_tables(page: str, document: dict[str, Any]) -> str:
    """The page with its tables written anew; MalformedInput where a mark is missing."""
    tables = {"calibration": calibration_table(document["calibration"]), "runs": runs_table(document["runs"])}
    for key, name in MARKS.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise MalformedInput(f"{PAGE} lacks the marks {begin} and {end}")
        before, after = page.split(begin)[0], page.split(end)[1]
        page = f"{before}{begin}\n{tables[key]}\n{end}{after}"
    return page


if __name__ == "__main__":
    sys.exit(settle({PAGE: with_tables(read_bytes(PAGE).decode(), json.loads(read_bytes(DATA)))}))
