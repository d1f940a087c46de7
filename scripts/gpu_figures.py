"""What results/ holds of a GPU, for docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu
from pages import table

from utfproof.training.results import DEFAULT_FOLDER, read_results

Show = Callable[[dict[str, Any]], str]
LONG = "emulate-long-context-cuda.json"
LONG_COMMAND = (
    "utfproof emulate shared-key --shapes parentheses --attention causal --trials 100 --batch 100 "
    "--context 16384 --device cuda --json"
)


def training_steps(document: dict[str, Any]) -> str:
    """Steps of each engine on each host."""
    rows = [
        [
            result["task"],
            entry["host"],
            entry["engine"],
            str(entry["m"]),
            f"{1000 * entry['median_seconds']:.3g}",
            "" if (speed := entry.get(f"speed over {entry['host']} wide")) is None else f"{speed:.3g}",
        ]
        for result in document["results"]
        for entry in result["contestants"]
    ]
    head = ["task", "host", "engine", "m", "milliseconds a step", "speed over m-wide on that host"]
    setting = document["setting"]
    said = f"{setting['variant']}, {setting['dtype']}, medians of {setting['repetitions']} interleaved repetitions, "
    said += f"on {document.get('accelerator', 'a processor')}."
    return f"{said}\n\n{table(head, rows)}"


def targets(document: dict[str, Any]) -> str:
    """Errors of many targets in one host, and their bounds where these were asked for."""
    (case,) = document["cases"]
    shape, (low, high) = case["shape"], case["bound_over_error"] or (None, None)
    dimensions = ", ".join(str(shape[name]) for name in ("heads", "layers", "head_dim", "d_in"))
    contexts = sorted({run["context"] for run in case["comparisons"]})
    within = "all within their bound" if case["holds"] else f"{document['totals']['broken']} beyond their bound"
    error = "relative error at most" if low is None else f"{within}, largest relative error"
    said = (
        f"{len(case['comparisons'])} targets at (H, L, d, d_in) = ({dimensions}), context {', '.join(map(str, contexts))}, "
        f"in one host, {case['host']}, m = {shape['m']}, {case['precision']}: {error} {case['max_relative_error']:.1e}"
    )
    return f"{said}." if low is None else f"{said}; bound over error {low:.0f} to {high:.2g}."


def cells_on_a_gpu(folder: Path) -> str:
    """Runs of the paper's experiments that were trained on one."""
    runs = [run for run in read_results(folder) if run.device.startswith("cuda")]
    if not runs:
        return "No run of the paper's experiments was trained on a GPU."
    where = "; ".join(sorted({run.note for run in runs}))
    least, most = (pick(run.seconds / 60 for run in runs) for pick in (min, max))
    return (
        f"{len(runs)} runs of the [paper's experiments](experiments-tables.md) were trained on a GPU ({where}), "
        f"in {least:.0f} to {most:.0f} minutes each."
    )


def on_a_gpu(results: Path, exact: Show, emulation: Show, *, device: str = "cuda", tiny: bool = False) -> str:
    """Every measurement of `make gpu` that is there, what is wanted still, and what else was run."""
    show = {"exact": exact, "emulate": emulation, "train": training_steps}
    parts, wanted = [], []
    for part in gpu.measurements(results, device, tiny):
        if not part.output.exists():
            wanted.append(part.name)
            continue
        command = part.arguments[len(gpu.COMMAND) :]
        shown = show[command[1]] if command[0] == "bench" else targets
        said = " ".join(command).replace(str(part.output), f"results/{part.output.name}")
        parts += [f"`utfproof {said}`", shown(json.loads(part.output.read_text(encoding="utf-8")))]
    if (results / LONG).exists():
        parts += [f"`{LONG_COMMAND}`", targets(json.loads((results / LONG).read_text(encoding="utf-8")))]
    parts.append(cells_on_a_gpu(results / DEFAULT_FOLDER.name))
    if wanted:
        parts.append(f"Not measured yet on any GPU: {'; '.join(wanted)}. This page takes them up once they are.")
    return "\n\n".join(parts)
