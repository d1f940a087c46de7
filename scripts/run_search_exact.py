"""Runs the exact searches; writes results/search-exact.json and the tables in docs/search.md (no figure typed by hand).

python scripts/run_search_exact.py            run everything (about an hour on 2 cores) and write both
python scripts/run_search_exact.py --tables   write the tables from the results that are there
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "search-exact.json"
PAGE = ROOT / "docs" / "search.md"
DIRECT = "results/impossible-looped-two-layers.json"

COMMANDS = f"""
impossible looped-two-layers --degree 9 -o {DIRECT}
impossible looped-two-layers-normal-form
impossible looped-three-layers
monomial -H 2 -L 1
monomial -H 3 -L 1
monomial -H 4 -L 1
monomial -H 2 -L 2
monomial -H 3 -L 2
monomial -H 2 -L 3
monomial -H 3 -L 3
monomial -H 2 -L 4
monomial -H 2 -L 5
monomial -H 4 -L 3 --m 9 --seconds 300
monomial -H 4 -L 3 --m 10 --seconds 120
monomial -H 4 -L 3 --m 11 --seconds 10 --restarts 40 --steps 60000
monomial -H 4 -L 3 --m 12 --seconds 5
monomial -H 2 -L 7 --m 15 --seconds 10 --restarts 40 --steps 60000
monomial -H 2 -L 2 --looped
monomial -H 2 -L 3 --looped
monomial -H 2 -L 3 --looped --m 3
monomial -H 3 -L 2 --looped
exhaustive -H 2 -L 2 --m 2 --looped
exhaustive -H 2 -L 3 --m 2 --looped
exhaustive -H 2 -L 3 --m 3 --looped --seconds 1000
exhaustive -H 2 -L 4 --m 3 --looped
exhaustive -H 3 -L 2 --m 3 --looped --kind maps
exhaustive -H 2 -L 2 --m 3 --looped --first
exhaustive -H 2 -L 2 --m 2 --looped --free E
exhaustive -H 2 -L 2 --m 3 --looped --free E
exhaustive -H 2 -L 3 --m 3 --looped --free E
exhaustive -H 2 -L 3 --m 4 --looped --free E --kind injections
exhaustive -H 2 -L 1 --m 2 --free E
exhaustive -H 2 -L 2 --m 3 --free E --kind injections
exhaustive -H 2 -L 2 --m 2
""".strip().splitlines()
"""Arguments after `utfproof search`."""


def run(arguments: str) -> dict[str, Any]:
    """One command as a whole process: exit code, seconds, and its JSON document."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "utfproof", "search", *arguments.split(), "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode not in (0, 4):
        raise SystemExit(f"{arguments}: exit {done.returncode}: {done.stderr.strip()}")
    seconds = round(time.monotonic() - began, 1)
    return {
        "command": f"utfproof search {arguments}",
        "exit": done.returncode,
        "seconds": seconds,
        "document": json.loads(done.stdout),
    }


def results(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The data file."""
    versions = {}
    for name in ("numpy", "sympy", "python-flint", "ortools"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {
        "study": "search-exact",
        "command": "python scripts/run_search_exact.py",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "runs": entries,
    }


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tables(data: dict[str, Any]) -> dict[str, list[str]]:
    """Lines of the table of each kind of search."""
    out = {
        "monomial": ["| command | exponents | sets | host |", "|---|---|---|---|"],
        "exhaustive": [
            "| command | hosts (up to renaming) | pass the linear test | serve | outcome |",
            "|---|---|---|---|---|",
        ],
        "impossible": ["| system | unknowns, equations | cofactors | how |", "|---|---|---|---|"],
    }
    for entry in data["runs"]:
        document = entry["document"]
        kind = document["search"]
        command = "`" + entry["command"].removeprefix("utfproof search ") + "`"
        if kind == "monomial":
            sets = "; ".join(
                f"m = {o['m']}: {o['outcome']} ({o['method']}, {o['nodes']} nodes{', ' + o['note'] if o['note'] else ''})"
                for o in document["sets"]
            )
            host = document["host"]
            text = "–" if host is None else f"{host['engine']}: {host['status']}"
            if host is not None and host["host"] is not None:
                text += ", all targets" if host["all_targets"] else ", nonzero weights"
            out[kind].append(_row([command, str(document["exponents"]), sets, text]))
        elif kind == "exhaustive":
            hosts = f"{document['hosts']} ({document['classes']})"
            outcome = document["outcome"] + "".join(f"; {note}" for note in document["notes"])
            out[kind].append(_row([command, hosts, str(document["linear"]), str(document["served"]), outcome]))
        else:
            size = f"{document['variables']}, {document['equations']}"
            terms = f"{document['terms']} terms, degree at most {document['largest_degree']}"
            how = document["method"] + (
                f", products up to degree {document['attempts'][-1]['degree']}" if document["attempts"] else ""
            )
            out[kind].append(_row([f"`{document['system']}`", size, terms, how]))
    return out


def page(text: str, data: dict[str, Any]) -> str:
    """The page with its tables renewed."""
    for kind, lines in tables(data).items():
        start, end = f"<!-- {kind} table -->\n", f"<!-- end of {kind} table -->"
        if start not in text or end not in text:
            raise SystemExit(f"docs/search.md has no place for the table of {kind}")
        head, rest = text.split(start, 1)
        text = head + start + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]
    return text


def main(arguments: list[str]) -> int:
    """Run, unless --tables is given, and write."""
    if "--tables" not in arguments:
        data = results([run(line) for line in COMMANDS])
        RESULTS.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    data = json.loads(RESULTS.read_text())
    PAGE.write_text(page(PAGE.read_text(), data))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
