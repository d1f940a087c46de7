"""Writes docs/experiments-tables.md, and the conclusions in docs/experiments.md, from the data files in results/ (no figure in
either is typed by hand).

    python scripts/write_experiments.py [--check] [--results FOLDER]

--check writes nothing and leaves with 1 if a page is not what the data say.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from experiment_choices import (
    NEAR,
    averaged,
    choices_part,
    effects,
    factorial_part,
    factorials,
    in_full,
    of_choices,
    of_printed,
    of_rates,
    printed,
    said_fields,
)
from experiment_summary import in_short, of_lost, of_missing, strongest, tried
from pages import ROOT, settle, table

from utfproof.paper import tables as paper
from utfproof.reporting.document import counted
from utfproof.training.figure import FREE, PANELS, ScalingPoint, lines, panels_of, scaling_points
from utfproof.training.fixed_attention import NAMES
from utfproof.training.optimum import read_documents
from utfproof.training.optimum_table import Table, cells, header, notes, optimum_tables
from utfproof.training.presets import (
    PAPER_HOSTS,
    PAPER_TASKS,
    PAPER_VARIANTS,
    SCALING_TASK,
)
from utfproof.training.results import RunResult, differences, is_cell, read_results, with_seeds
from utfproof.training.run import RunSetting
from utfproof.training.tables import mean_and_spread, percent
from utfproof.training.task import Baseline, standing
from utfproof.training.tasks import best_rule, task_baselines

PAGE = ROOT / "docs" / "experiments.md"
TABLES = ROOT / "docs" / "experiments-tables.md"
BEGIN = "<!-- measured: written by scripts/write_experiments.py -->"
END = "<!-- end of what is measured -->"
TITLE = """# The experiments' tables

Written by `scripts/write_experiments.py` from `results/training/`, `results/optimum/` and `results/bench-train*-cpu.json`.
What follows from them stands in [experiments](experiments.md)."""
BENCH = tuple(f"bench-train{variant}-cpu.json" for variant in ("", "-residual-norm", "-mlp"))
SMALLER = ("shared-key", "shared-query")
SCORED = RunSetting.eval_sequences
"""Sequences that a run is scored on unless said otherwise."""
BESIDE = (*SMALLER, "sparse", "random")


def duration(seconds: float) -> str:
    """Such as 25 min, or 40 s."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def run_rows(runs: list[RunResult]) -> list[list[str]]:
    """A line for each run, or for all that differ in their seed only."""
    rows = []
    for alike in with_seeds(runs).values():
        run = alike[0]
        point, other = run.point, differences(run)
        said = printed(run) if is_cell(run) else None
        changed = [said_fields({name: value for name, value in other.items() if name != "steps"})]
        changed += [f"scored on {run.eval_sequences} sequences"] * (run.eval_sequences < SCORED)
        rows.append(
            [
                f"{point.task}/{point.host}/{point.variant}",
                str(point.m),
                ", ".join(filter(None, changed)),
                f"{run.steps}{'' if run.complete else ' *'}",
                "" if said is None else f"{said:.1f}",
                mean_and_spread([run.accuracy for run in alike]) + f" ({len(alike)} seeds)" * (len(alike) > 1),
                duration(statistics.median(run.seconds for run in alike)) + (f", {run.note}" if run.note else ""),
            ]
        )
    return rows


RUN_HEADER = ["run", "m", "differs in", "steps", "paper, %", "measured, %", "time"]


def cells_part(runs: list[RunResult]) -> str:
    """The runs that are complete, with what the paper prints, and the brief ones."""
    complete = [run for run in runs if in_full(run)]
    text = ["### Cells of the paper's tables, in full"]
    if not complete:
        return "\n\n".join([*text, "None has been run."])
    text.append(table(RUN_HEADER, run_rows(complete)))
    text.append("Times are elapsed ones on shared machines.")
    text += [f"- {sentence}" for run in averaged(complete) for sentence in remarks(run)]
    return "\n\n".join([*text[:3], "\n".join(text[3:])]) if text[3:] else "\n\n".join(text)


def remarks(run: RunResult) -> list[str]:
    """What a complete cell is above or below, and where the paper's figure stands on its curve."""
    point, said, found = run.point, printed(run), []
    if point.task in PAPER_TASKS:
        rules = task_baselines(point.task)
        found.append(f"{point.name}: {percent(run.accuracy)} % is {standing(run.accuracy, rules)}.")
    if said is not None and 100 * run.accuracy > said + NEAR:
        passed = next((step for step, _, accuracy in run.curve if 100 * accuracy >= said), None)
        if passed is not None:
            found.append(f"{point.name}: the paper's {said:.1f} % is passed after {passed} of {run.steps} steps.")
    return found


def smaller_part(runs: list[RunResult]) -> str:
    """The smaller hosts, and the sparse and random ones that were trained in the same way."""
    shown = [run for run in runs if run.point.variant == "attention" and run.point.host in BESIDE]
    schedules: dict[tuple[Any, ...], list[RunResult]] = {}
    for run in shown:
        schedules.setdefault(_schedule(run), []).append(run)
    text = []
    for (task, steps, batch, *_), group in sorted(schedules.items(), key=str):
        if not any(run.point.host in SMALLER for run in group) or len(group) == 1:
            continue
        group.sort(key=lambda run: -run.accuracy)
        text += [
            f"{task}, {steps} steps of {batch} sequences, best first:",
            table(RUN_HEADER, run_rows(group)),
        ]
    return "\n\n".join(["### Smaller hosts: m, or the structure?", *text]) if text else ""


def _schedule(run: RunResult) -> tuple[Any, ...]:
    """What two runs have in common that were trained in the same way."""
    point = run.point
    names = ("learning_rate", "warmup", "length", "loss", "positions", "init_std", "heads", "layers", "head_dim")
    return (point.task, run.steps, point.batch, *(getattr(point, name) for name in names))


def ablation_part(runs: list[RunResult]) -> str:
    """Variants and hosts of one task side by side, for each setting other than the paper's under which many were run."""
    settings: dict[str, dict[tuple[str, str], RunResult]] = {}
    for run in runs:
        point, other = run.point, differences(run)
        if point.host in PAPER_HOSTS and set(other) - {"steps"} and not set(other) & {"m", "head_dim"} and not run.seed:
            settings.setdefault(f"{point.task}, {said_fields(other)}", {})[point.variant, point.host] = run
    text = []
    for setting, cells_run in sorted(settings.items()):
        if len(cells_run) < 10:
            continue
        task = setting.split(",")[0]
        rows = []
        for variant, printed_name in PAPER_VARIANTS.items():
            row = [printed_name]
            for number, host in enumerate(PAPER_HOSTS):
                held = cells_run.get((variant, host))
                row.append(f"{paper.ABLATIONS[task][printed_name][number]:.1f}")
                row.append("" if held is None else percent(held.accuracy))
            rows.append(row)
        head = ["variant", *(f"{host}, {whose} %" for host in PAPER_HOSTS for whose in ("paper", "here"))]
        text += [f"{setting}:", table(head, rows)]
        length = next(iter(cells_run.values())).preset.get("length")
        if (best := best_rule(task, length or 0)) is not None:
            text.append(f"The {best.name} alone tell {percent(best.accuracy)} %.")
    if not text:
        return ""
    said = (
        "Every variant of one task under one setting, smaller than the paper's (whose figures stand beside, for the order "
        "only)."
    )
    return "\n\n".join(["### Variants, scaled down", said, *text])


SWEPT = 2
"""Points that a line of the scaling figure has where it is told of."""


def scaling_lines(runs: list[RunResult]) -> list[tuple[dict[str, Any], list[list[ScalingPoint]]]]:
    """(what is changed from the paper's setting, lines of the scaling figure) of each setting in which something was swept."""
    settings = {json.dumps(changed, sort_keys=True): changed for run in runs if (changed := _changed(run)) is not None}
    found = [
        (changed, [line for line in lines(scaling_points(runs, changed)) if len(line) >= SWEPT])
        for changed in sorted(settings.values(), key=len)
    ]
    return [(changed, swept) for changed, swept in found if swept]


def _changed(run: RunResult) -> dict[str, Any] | None:
    """In what a run differs from the paper's setting of the scaling figure, but for what that sweeps; None for other runs."""
    if not panels_of(run.point):
        return None
    return {name: value for name, value in differences(run).items() if name not in FREE}


def scaling_part(runs: list[RunResult]) -> str:
    """The points of the scaling figure, one table for each setting."""
    text = []
    for setting, swept in scaling_lines(runs):
        rows = [
            [
                PANELS[point.panel],
                f"{point.host}, {point.variant}",
                str(point.head_dim),
                str(point.m),
                f"{point.measured.steps}{'' if point.measured.complete else ' *'}",
                " ± ".join(
                    percent(value) for value in (point.measured.mean, point.measured.deviation) if value is not None
                ),
                str(len(point.measured.accuracies)),
            ]
            for line in swept
            for point in line
        ]
        changed = said_fields(setting) or "nothing"
        arguments = [f"--set {name}={value}" for name, value in sorted(setting.items())]
        text += [
            f"Changed from the paper's setting: {changed} (`{' '.join(['utfproof figure scaling', *arguments])}`). "
            "Accuracy on 2-hop, in percent:",
            table(["panel", "model", "head dimension", "m", "steps", "mean ± sd", "seeds"], rows),
        ]
    return "\n\n".join(["### The scaling figure", *text]) if text else ""


def brief_part(runs: list[RunResult]) -> str:
    """Everything that is no complete cell, and told of nowhere else."""
    swept = [
        (changed, line[0].panel, line[0].host, line[0].variant, line[0].measured.steps)
        for changed, found in scaling_lines(runs)
        for line in found
    ]

    def told(run: RunResult) -> bool:
        point = run.point
        places = [(_changed(run), panel, point.host, point.variant, run.steps) for panel in panels_of(point)]
        return in_full(run) or any(place in swept for place in places)

    kept = [run for run in runs if not told(run)]
    if not kept:
        return ""
    said = (
        "Runs that show that every variant goes from start to end, and those that belong to the tables above. * brief: fewer "
        "steps than the paper's."
    )
    return "\n\n".join(["### Brief runs, and other settings", said, table(RUN_HEADER, run_rows(kept))])


def optimum_part(tables: list[Table]) -> str:
    """The tables of the known optimum, and what they say."""
    if not tables:
        return ""
    text = [
        "### The optimum known",
        "A transformer is trained at its own width, embedded into fixed hosts (E from the target, U the host's own), and E "
        "and U are trained on from there, also after noise of a relative size was added to both. Accuracies in percent, "
        "before → after; *held*: embedded. *logits differ*: the largest difference from the target's logits in float64, beside "
        "the largest logit. *from N(0, 0.02²)*: the same host trained from the start that the paper uses, on the same task.",
    ]
    for found in tables:
        names = header(found)
        text += [f"**{found.title}**", table(names, cells(found)), "\n".join(f"- {note}" for note in notes(found))]
        text += [_noise(found, size) for size in _noises(found)]
        text += [sentence] if (sentence := _sharp(found)) else []
    return "\n\n".join(text)


GAP_HEADER = ["target", "host", "holds at least, %", "training finds, %", "in steps", "best simple rule, %", "gap"]


def gaps_part(tables: list[Table]) -> list[str]:
    """What each host holds, what training from scratch finds there in as many steps or more, and what a simple rule tells."""
    rows = []
    for found in tables:
        rule = "" if found.baseline is None else f"{percent(found.baseline[1])} ({found.baseline[0]})"
        untried: dict[tuple[int, float], list[str]] = {}
        for line in found.lines:
            best = tried(found, line)
            if best is None:
                untried.setdefault((line.m, line.embedded), []).append(line.host)
                continue
            reached = mean_and_spread([run.accuracy for run in best.runs])
            notes = [*best.schedule[1:], *[f"best of {best.tried} schedules"] * (best.tried > 1)]
            how = f" ({', '.join(notes)})" if notes else ""
            held = [f"{line.host}, m = {line.m}", percent(line.embedded)]
            rows.append([found.title, *held, reached + how, str(best.runs[0].steps), rule, f"{best.gap:z.1f}"])
        rows += [
            [found.title, f"{', '.join(hosts)}, m = {m}", percent(embedded), "", "", rule, ""]
            for (m, embedded), hosts in untried.items()
        ]
    said = (
        "What a host holds at least: a target trained at its own width, embedded exactly. What training from N(0, 0.02²) finds "
        "in the same host, in as many steps or more (blank: not tried), at the paper's rate unless said otherwise, on whole "
        "strings, also where the target's grew; targets have schedules of their own. The best simple rule is told where it is "
        "exact. Accuracies in percent, the gap in points."
    )
    return [said, table(GAP_HEADER, rows)] if rows else []


def _noises(found: Table) -> list[float]:
    """The sizes of noise that every host of a table has, where there is more than one host."""
    sizes = [{part.perturbation for part in line.trained_on} - {0.0} for line in found.lines]
    return sorted(set.intersection(*sizes)) if len(sizes) > 1 else []


def _noise(found: Table, size: float) -> str:
    """What noise of one size leaves of the accuracy in each host, before and after training on."""
    kept = [
        (part.before, part.after, line) for line in found.lines for part in line.trained_on if part.perturbation == size
    ]
    kept.sort(key=lambda entry: (-entry[0], entry[2].host))
    words = [f"{line.host} {percent(before)} → {percent(after)}" for before, after, line in kept]
    return f"Noise {size:g}: {', '.join(words)}."


def _sharp(found: Table) -> str:
    """What the least noise costs the sparse and the random host, "" unless both have been measured."""
    lines = {line.host: line for line in found.lines}
    sizes = _noises(found)
    if not sizes or not {"sparse", "random"} <= set(lines):
        return ""
    lost = {
        name: 100 * (line.embedded - next(part.before for part in line.trained_on if part.perturbation == sizes[0]))
        for name, line in lines.items()
    }
    random = lines["random"]
    condition = "" if random.condition is None else f" (condition {random.condition:.3g})"
    return (
        f"The same target, the same noise of {sizes[0]:g}: it costs the sparse host {lost['sparse']:.1f} points, the random "
        f"one{condition} {lost['random']:.1f}. The random host has the optimum too, but a sharper one in this measure."
        if lost["random"] > lost["sparse"]
        else f"Noise of {sizes[0]:g} costs the sparse host {lost['sparse']:.1f} points, the random one {lost['random']:.1f}."
    )


def bench_part(folder: Path) -> str:
    """Steps in path space beside dense m-wide ones."""
    texts = [bench_table(folder / name) for name in BENCH if (folder / name).exists()]
    return "\n\n".join(["### Speed", *texts]) if texts else ""


def bench_table(path: Path) -> str:
    """One document of `utfproof bench train`."""
    document = json.loads(path.read_text(encoding="utf-8"))
    setting, rows = document["setting"], []
    for result in document["results"]:
        for entry in result["contestants"]:
            ratio = entry.get("speed over random wide")
            used = entry.get("less processor time than random wide")
            fewer = entry.get("fewer multiplications than random wide")
            rows.append(
                [
                    result["task"],
                    entry["name"],
                    str(entry["m"]),
                    str(result["batch"]),
                    f"{entry['steps_per_second']:.3g}",
                    f"{entry['multiplications']:.2e}",
                    *("" if value is None else f"{value:.3g}" for value in (ratio, used, fewer)),
                ]
            )
    head = [
        "task",
        "what",
        "m",
        "batch",
        "steps/s",
        "multiplications",
        "speed",
        "processor time",
        "multiplications, ratio",
    ]
    threads = counted(setting["threads"], "thread")
    said = (
        f"`utfproof bench train`, variant {setting['variant']}, {setting['dtype']}, {threads}, load average "
        f"{document['load_average']:.1f} on {document['cores']} cores, {setting['repetitions']} repetitions. The last three "
        "columns are over the dense m-wide step of the random host."
    )
    return f"{said}\n\n{table(head, rows)}"


def conclusions(folder: Path) -> str:
    """What the data say, a sentence each: the part of the page between its two marks."""
    runs = read_results(folder / "training")
    cells = [run for run in runs if in_full(run)]
    complete = averaged(cells)
    text = [
        of_missing(complete),
        *of_cells(complete),
        of_lost(cells),
        *of_printed(complete),
        *of_rates(runs),
        *of_choices(runs),
        *of_scaling(runs),
    ]
    text += [" ".join(said[0].upper() + said[1:] for said in effects(found)) for found in factorials(runs)]
    text += [sentence for name in BENCH if (folder / name).exists() for sentence in of_speed(folder / name)]
    tables = strongest(optimum_tables(read_documents(folder / "optimum"), runs))
    lists = [
        "\n".join(f"* {sentence}" for sentence in part if sentence) for part in (in_short(complete, runs, tables), text)
    ]
    return "\n\n".join([BEGIN, lists[0], "In detail:", lists[1], *gaps_part(tables), END])


def of_cells(complete: list[RunResult]) -> list[str]:
    """How the cells that were run in full stand to the paper's figures and to simple rules."""
    text = []
    off = [(100 * run.accuracy - said, run) for run in complete if (said := printed(run)) is not None]
    for word, sign in (("Above", 1), ("Below", -1)):
        far = sorted((-sign * gap, run.point.name) for gap, run in off if sign * gap > NEAR)
        if far:
            told = ", ".join(f"{name} by {-gap:.1f}" for gap, name in far)
            text.append(f"{word} the paper's figure, in points (means, where several seeds were run): {told}.")
    rules = {task: task_baselines(task) for task in dict.fromkeys(run.point.task for run in complete)}
    for task, known in rules.items():
        best = max(known, key=lambda rule: rule.accuracy)
        here = [run for run in complete if run.point.task == task]
        passed = [run.point.name for run in here if run.accuracy > best.accuracy]
        text += of_fixed_attention(task, here, known)
        text.append(
            f"{task}: {len(passed)} of {len(here)} cells pass every rule that is computed here (the best, {best.name}, has "
            f"{percent(best.accuracy)} %){': ' + ', '.join(passed) if passed else ''}."
        )
    return text


def of_fixed_attention(task: str, complete: list[RunResult], rules: list[Baseline]) -> list[str]:
    """How far beyond heads that look at nothing the cells without normalisation and MLP are."""
    reached = {rule.name: rule.accuracy for rule in rules}
    said = [
        f"{point.host} {point.variant} {percent(run.accuracy)} (fixed {percent(reached[name])})"
        for run in complete
        if (point := run.point).variant in ("attention", "residual") and not run.seed
        if (name := NAMES[point.residual]) in reached
    ]
    if not said:
        return []
    return [f"{task}, in percent, beside the best model of fixed attention: {', '.join(said)}."]


def of_scaling(runs: list[RunResult]) -> list[str]:
    """What the figure's points of each setting span, beside the best simple rule."""
    text = []
    for setting, swept in scaling_lines(runs):
        points = {(p.host, p.variant, p.m, p.head_dim, p.measured.steps): p for line in swept for p in line}.values()
        low, high = (pick(points, key=lambda point: point.measured.mean) for pick in (min, max))
        best = best_rule(SCALING_TASK, setting.get("length", 0))
        assert best is not None
        changed = said_fields(setting) or "the paper's setting"
        steps, seeds = ({pick(p.measured) for p in points} for pick in (lambda m: m.steps, lambda m: len(m.accuracies)))
        text.append(
            f"The scaling figure, {changed}, {_range(steps, 'step')}, {_range(seeds, 'seed')}: {len(points)} settings of m and "
            "head dimension from "
            f"{percent(low.measured.mean)} % (m = {low.m}) to {percent(high.measured.mean)} % (m = {high.m}); the "
            f"{best.name} alone tell {percent(best.accuracy)} %"
            f"{', which none passes: learning of hops is not shown' if high.measured.mean < best.accuracy else ''}."
        )
    return text


def _range(numbers: set[int], what: str) -> str:
    """Such as 5 seeds, or 1 to 5 seeds."""
    return counted(max(numbers), what) if len(numbers) == 1 else f"{min(numbers)} to {counted(max(numbers), what)}"


def of_speed(path: Path) -> list[str]:
    """Processor time of the m-wide step of each host over that of the engine that is used in its place, like for like."""
    document = json.loads(path.read_text(encoding="utf-8"))
    told, engines = [], set()
    for host in dict.fromkeys(entry["host"] for result in document["results"] for entry in result["contestants"]):
        over = f"less processor time than {host} wide"
        ratios = [
            (result["task"], entry["engine"], entry[over])
            for result in document["results"]
            for entry in result["contestants"]
            if entry["host"] == host and entry["engine"] != "wide" and over in entry
        ]
        if ratios:
            told.append(f"{host} {', '.join(f'{ratio:.3g} ({task})' for task, _, ratio in ratios)}")
            engines |= {f"`{engine}`" for _, engine, _ in ratios}
    if not told:
        return []
    return [
        f"{document['setting']['variant']}: the m-wide step of a host takes so many times the processor time of "
        f"{' or '.join(sorted(engines))} on the same host: {'; '.join(told)}."
    ]


def measured_part(folder: Path) -> str:
    """The page of tables."""
    runs = read_results(folder / "training")
    tables = optimum_tables(read_documents(folder / "optimum"), runs)
    parts = [
        cells_part(runs),
        ablation_part(runs),
        choices_part(runs),
        factorial_part(runs),
        optimum_part(tables),
        smaller_part(runs),
        scaling_part(runs),
    ]
    parts += [bench_part(folder), brief_part(runs)]
    return "\n\n".join([TITLE, *(part.replace("### ", "## ") for part in parts if part)]) + "\n"


def page(text: str, folder: Path) -> str:
    """The page with its conclusions written anew."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has not both marks {BEGIN} and {END}")
    return before + conclusions(folder) + after


def main(arguments: list[str] | None = None) -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args(arguments)
    wanted = {
        PAGE: page(PAGE.read_text(encoding="utf-8"), options.results),
        TABLES: measured_part(options.results),
    }
    return settle(wanted, ["--check"] * options.check)


if __name__ == "__main__":
    sys.exit(main())
