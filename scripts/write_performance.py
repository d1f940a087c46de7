"""Writes docs/performance.md from the measurements in results/ (no figure in it is typed by hand).

    python scripts/write_performance.py [--check]

--check writes nothing and leaves with 1 if the page is not what the data say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
EXACT = "bench-exact-cpu.json"
CERTIFY = "bench-certify-cpu.json"


def load(name: str) -> dict[str, Any]:
    """One results file."""
    document: dict[str, Any] = json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))
    return document


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def engine(document: dict[str, Any]) -> str:
    """Rank modulo p beside the other engines."""
    names = list(document["results"][-1]["median_seconds"])
    rows = []
    for entry in document["results"]:
        times = [entry["median_seconds"].get(name) for name in names]
        rows.append([str(entry["n"]), *("" if t is None else f"{1000 * t:.0f}" for t in times)])
    ratios = list(dict.fromkeys(name for entry in document["results"] for name in entry["ratios"]))
    ratio_rows = [
        [str(e["n"]), *(f"{e['ratios'][name]:.2f}" if name in e["ratios"] else "" for name in ratios)]
        for e in document["results"]
    ]
    setting = document["setting"]
    blas = "; ".join(f"{name}: {text}" for name, text in document["blas"].items())
    return "\n\n".join(
        [
            f"Median milliseconds of the rank of a random n × n matrix modulo {setting['prime']}, "
            f"{setting['threads']} BLAS threads, {setting['repetitions']} interleaved repetitions on {document['cores']} cores "
            f"({document['processor']}). BLAS: {blas}.",
            table(["n", *names], rows),
            "Ratios in the same run:",
            table(["n", *ratios], ratio_rows),
        ]
    )


def certificates(document: dict[str, Any]) -> str:
    """Certify and check, end to end."""
    steps = list(document["results"][-1]["median_seconds"])
    rows = [
        [
            entry["shape"],
            str(entry["m"]),
            *(f"{entry['median_seconds'].get(step, float('nan')):.1f}" for step in steps),
            f"{entry['witness_bytes'] / 2**20:.1f}",
        ]
        for entry in document["results"]
    ]
    return "\n\n".join(
        [
            f"Median seconds of whole processes (float64 weights, uniform law), {document['cores']} cores, "
            f"Python {document['python']}:",
            table(["shape", "m = M", *(f"`{step}`" for step in steps), "witness, MiB"], rows),
        ]
    )


def page() -> str:
    """The whole page."""
    return f"""# Performance

Written by `python scripts/write_performance.py` from the files in `results/`; measure again with the commands below.

## Rank modulo a prime

`utfproof bench exact --sizes 512,1024,2280,4560 -o results/{EXACT}`

{engine(load(EXACT))}

## Certificates of dense weights, end to end

`utfproof bench certify --shapes 1-hop,parentheses,2-hop,4-hop -o results/{CERTIFY}`

{certificates(load(CERTIFY))}

{{0,1}} hosts are certified on index maps, in time linear in m: (H, L, d, d_in) = (4, 6, 64, 128), m of 1.2 million,
is part of the default tests, m of 20 million of the exhaustive ones.

## On a GPU

The same code runs on any torch device (`--device cuda`): weights are drawn there from the seeded generator, one matrix
at a time, R_all is assembled and eliminated there. It is tested on torch's CPU device, where it gives the same bytes.
**No GPU figure exists yet.**
"""


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
