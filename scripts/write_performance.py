"""Writes docs/performance.md from the measurements in results/ (no figure in it is typed by hand).

    python scripts/write_performance.py [--check]

--check writes nothing and leaves with 1 if the page is not what the data say.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from gpu_figures import on_a_gpu
from pages import ROOT, settle, table

from utfproof.reporting.report_charts import short

PAGE = ROOT / "docs" / "performance.md"
EXACT = "bench-exact-cpu.json"
CERTIFY = "bench-certify-cpu.json"
EMULATE = "bench-emulate-cpu.json"
TABLES = "emulate-tables-cpu.json"
THREADS = "threads-cpu.json"
MEMORY = "memory-cpu.json"
LARGE = "large-cpu.json"
ALL = "bench-all-cpu.json"
TINY = "bench-tiny"
TABLES_COMMAND = (
    "utfproof emulate sparse,tied,shared-key,shared-query,random --shapes all "
    "--attention all --context 1,64,512,2048 --json"
)


def load(name: str) -> dict[str, Any]:
    """One results file."""
    document: dict[str, Any] = json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))
    return document


def engine(document: dict[str, Any]) -> str:
    """Rank modulo p beside the other engines."""
    names = list(document["results"][-1]["median_seconds"])
    rows = []
    for entry in document["results"]:
        times = [entry["median_seconds"].get(name) for name in names]
        rows.append([str(entry["n"]), *("" if t is None else short(1000 * t) for t in times)])
    ratios = list(dict.fromkeys(name for entry in document["results"] for name in entry["ratios"]))
    ratio_rows = [
        [str(e["n"]), *(short(e["ratios"][name]) if name in e["ratios"] else "" for name in ratios)]
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


def emulation_command(document: dict[str, Any]) -> str:
    """What measures it again."""
    shapes = ",".join(result["shape"] for result in document["results"])
    setting = document["setting"]
    options = f"--context {setting['context']} --threads {setting['threads']} --repetitions {setting['repetitions']}"
    return f"utfproof bench emulate --shapes {shapes} {options} -o results/{EMULATE}"


def noise(document: dict[str, Any]) -> float:
    """Largest ratio of two medians of one computation under two names: path space of the hosts that match."""
    factors = []
    for result in document["results"]:
        rows = [e for e in result["contestants"] if e["notion"] == "matching" and e["engine"] == "path-space"]
        medians = [e["median_seconds"] for e in rows]
        factors.append(max(medians) / min(medians))
    return max(factors)


def emulation(document: dict[str, Any]) -> str:
    """Forward passes of hosts beside the target's: one table a shape."""
    setting = document["setting"]
    parts = [
        f"Medians of {setting['repetitions']} interleaved repetitions: context {setting['context']}, "
        f"{setting['inputs']} tokens, {setting['attention']} softmax, {setting['precision']}, "
        f"BLAS threads: {setting['threads']}, {document['cores']} cores ({document['processor']}), "
        f"load average {document['load_average']:.1f} at the start. BLAS: {document['blas']}."
    ]
    kinds = ("time", "processor time") if document["setting"]["device"] == "cpu" else ("time",)
    compared = [(kind, other) for kind in kinds for other in ("target", "random m-wide")]
    header = ["", "m", "tokens/s", *(f"{kind} / {other}" for kind, other in compared)]
    header += ["multiplications a token", "in attention", "relative error"]
    for result in document["results"]:
        rows = []
        for entry in result["contestants"]:
            ratios = entry["ratios"]
            names = [f"{kind} over {other}" for kind, other in compared]
            rows.append(
                [
                    entry["name"],
                    str(entry["m"]) if entry["host"] else "",
                    f"{entry['tokens_per_second']:.0f}",
                    *(f"{ratios[name]:.3g}" if name in ratios else "" for name in names),
                    str(entry["multiplications_per_token"]),
                    f"{entry['attention_multiplications_per_token']:.0f}",
                    f"{entry['relative_error']:.1e}",
                ]
            )
        dimensions = ", ".join(map(str, result["dimensions"]))
        parts += [f"**{result['shape']}**, (H, L, d, d_in) = ({dimensions}):", table(header, rows)]
        parts += [f"Without {name}: {reason}." for name, reason in result["absent"].items()]
    return "\n\n".join(parts)


def bounds(document: dict[str, Any]) -> str:
    """Errors and their a priori bounds at the table shapes; refused pairs are left out of the table."""
    rows = []
    for case in document["cases"]:
        if case["refused"]:
            continue
        shape, (low, high) = case["shape"], case["bound_over_error"]
        dimensions = ", ".join(str(shape[name]) for name in ("heads", "layers", "head_dim", "d_in"))
        condition = "" if case["condition"] is None else f"{case['condition']:.2g}"
        rows.append(
            [
                f"({dimensions})",
                case["host"],
                str(shape["m"]),
                str(len(case["comparisons"])),
                f"{case['max_relative_error']:.1e}",
                f"{low:.0f} to {high:.2g}",
                condition,
            ]
        )
    totals = document["totals"]
    return "\n\n".join(
        [
            f"{totals['runs']} runs, {totals['broken']} beyond their bound, {totals['refused']} pairs refused "
            "(`shared-key` and `shared-query` need d ≥ d_in).",
            table(["shape", "host", "m", "runs", "largest relative error", "bound / error", "condition"], rows),
        ]
    )


def threads(document: dict[str, Any]) -> str:
    """Two BLAS threads against one."""
    rows = document["rows"]
    found = [
        [
            str(n),
            *(f"{row['ratio']:.2f}" for busy in (False, True) for row in rows if (row["n"], row["busy"]) == (n, busy)),
        ]
        for n in dict.fromkeys(row["n"] for row in rows)
    ]
    return table(["n", "idle", "a busy process on each core"], found)


def memory(document: dict[str, Any]) -> str:
    """Announced over taken memory."""
    rows = document["rows"]
    sizes = list(dict.fromkeys(row["m"] for row in rows))
    found = []
    for command in dict.fromkeys(row["command"] for row in rows):
        cells = {row["m"]: row["announced"] / row["taken"] for row in rows if row["command"] == command}
        found.append([f"`{command}`", *(f"{cells[m]:.2f}" if m in cells else "" for m in sizes)])
    return table(["announced / taken", *(f"m = {m}" for m in sizes)], found)


def large(document: dict[str, Any]) -> str:
    """What the largest host of dense weights took."""
    heads = ["command", "m = M", "seconds", "of a processor", "announced, GB", "taken, GB"]
    rows = [
        [f"`{row['command']}`", str(row["m"]), f"{row['seconds']:.0f}", f"{row['processor_seconds']:.0f}",
         f"{row['announced'] / 1e9:.2f}", f"{row['taken'] / 1e9:.2f}"]
        for row in document["rows"]
    ]  # fmt: skip
    return table(heads, rows)


def everything(document: dict[str, Any]) -> str:
    """Every piece of work beside its floors and peers."""
    rows = [
        [
            entry["work"],
            entry["size"],
            entry["beside"] + (" (peer)" if entry["peer"] else ""),
            short(1000 * statistics.median(pair[0] for pair in entry["processor_seconds"]["alone"])),
            *(f"{entry['ratios'][state]:.2f}" for state in ("alone", "busy")),
        ]
        for entry in document["results"]
    ]
    parts = [
        table(["work", "size", "beside", "processor ms", "ratio", "with a busy process a core"], rows),
        f"{document['cores']} cores, kernel {document['kernel']}, one thread, {document['setting']['repetitions']} pairs each.",
        *(f"Without {name}: {reason}." for name, reason in document["absent"].items()),
    ]
    return "\n\n".join(parts)


def recorded() -> str:
    """The ratios of the smallest sizes, by kernel of BLAS."""
    runs = {
        d["kernel"]: d for d in (load(f"{TINY}/{path.name}") for path in sorted((ROOT / "results" / TINY).iterdir()))
    }
    rows: dict[tuple[str, str, str], list[str]] = {}
    for document in runs.values():
        for entry in document["results"]:
            key = (entry["work"], entry["size"], entry["beside"])
            rows.setdefault(key, []).append(f"{entry['ratios']['alone']:.2f}")
    return table(["work", "size", "beside", *runs], [[*key, *found] for key, found in rows.items()])


def page() -> str:
    """The whole page."""
    return f"""# Performance

Written by `python scripts/write_performance.py` from the files in `results/`; measure again with the commands below.

## Everything beside its floor

`utfproof bench all -o results/{ALL}`

Processor time of each piece of work over that of a floor, which it cannot do without, or of a peer, which a user would take
otherwise: measured in turn in one process with one BLAS thread, medians over the pairs. Processor time of pairs says the same
on a busy machine, up to what caches and memory share. Sizes are m for (H, L) = (2, 4), d = d_in
and m = M = 76 d, n for ranks. The
command measures more rows than these: what is not here has not been measured with nothing else running.

{everything(load(ALL))}

CI measures the smallest sizes (`utfproof bench all --tiny --against results/{TINY}`) and fails where a ratio is
more than 1.3 times the one on record, in three measurements of three pairs each. What is recorded depends on the kernel that
BLAS chooses for a processor, so each has a run of its own (`OPENBLAS_CORETYPE=Haswell utfproof bench all --tiny
-o results/{TINY}/Haswell.json`); on any other processor the largest of each row counts. The records were made
beside much other work, so that an idle machine has some room more.

{recorded()}

## Rank modulo a prime

`utfproof bench exact --sizes 512,1024,2280,4560 -o results/{EXACT}`

{engine(load(EXACT))}

Time with two BLAS threads over time with one, medians, each in processes of its own
(`python scripts/measure_threads.py -o results/{THREADS}`): a second thread is taken only where it is worth it and a core
is idle.

{threads(load(THREADS))}

## Certificates of dense weights, end to end

`utfproof bench certify --shapes 1-hop,parentheses,2-hop,4-hop -o results/{CERTIFY}`

{certificates(load(CERTIFY))}

{{0,1}} hosts are certified on index maps, in time linear in m: (H, L, d, d_in) = (4, 6, 64, 128), m of 1.2 million,
is part of the default tests, m of 20 million of the exhaustive ones.

## Memory

`python scripts/measure_memory.py -o results/{MEMORY}`

What guards announce (what is asked for, beside what the process holds by then) over the largest anonymous resident set, at
(H, L) = (2, 4). A guard that would pass `--max-memory` refuses. What is empty was not measured.

{memory(load(MEMORY))}

The largest so far, a random host at (H, L, d, d_in) = (2, 4, 250, 250) on a busy machine (the seconds of the clock are mostly
waiting):
`python scripts/measure_memory.py --d 250 --only "certify --witness" --only "check --numpy, witness" -o results/{LARGE}`

{large(load(LARGE))}

## The price of universality

`{emulation_command(load(EMULATE))}`

The forward pass of hosts that act as one random target, beside that target's own: as dense m × m matrices (m-wide), as
gathers ({{0,1}} hosts), and in path space, where only the d_in × M numbers E R_all are multiplied. Within a shape all rows
are one function of the tokens for attention by logits; those of random, sparse and tied for any attention map. `random` is
the paper's host at m = M. Multiplications are counted from shapes, dense zeros included; those in attention are logits and
averages over the keys that a causal mask leaves, and they grow with the context. Finding E is not timed. The path-space
rows of random, sparse and tied multiply the same numbers, so what tells their times apart is noise: up to a factor of
{noise(load(EMULATE)):.2f} within a shape here.

{emulation(load(EMULATE))}

## Emulation against its bound

`{TABLES_COMMAND}`

The four table shapes, one target of the uniform law each, one-hot inputs, all attention kernels, contexts up to 2048,
float64. The bound is derived in
[emulation.md](emulation.md); it is loose where the
condition number is large (`shared-query` inverts a product of L matrices; `random` is at m = M, where 1.25 M is advised).

{bounds(load(TABLES))}

## On a GPU

The same code runs on any torch device (`--device cuda`): weights are drawn there from the seeded generator, one matrix
at a time, R_all is assembled and eliminated there. `make gpu` runs on any CUDA machine what wants one, until its hours are
spent: the tests that are marked so (ranks, decisions, emulation, training steps of every host and variant, each against the
processor), the measurements below, then the paper's experiments that have not been run. Small shapes do not fill a GPU: the
rank of a small matrix and the pass of one short string take about as long as their kernels take to launch.

{on_a_gpu(ROOT / "results", engine, emulation)}
"""


if __name__ == "__main__":
    sys.exit(settle({PAGE: page()}))
