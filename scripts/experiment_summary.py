"""The experiments in a few sentences, each computed: the top of what write_experiments.py writes into docs/experiments.md.

A sentence that judges stands only where the data say so; without the data that it needs it is left out.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import NamedTuple

from experiment_choices import FACTORS, NEAR, Factorial, best_rates, factorials, in_full, printed

from utfproof.reporting.document import counted
from utfproof.training.fixed_attention import NAMES
from utfproof.training.models import is_trained
from utfproof.training.optimum_table import FromScratch, Line, Table, by_schedule
from utfproof.training.presets import PAPER_HOSTS, PAPER_TASKS, PAPER_VARIANTS
from utfproof.training.results import RunResult, paper_cells
from utfproof.training.tables import coverage, percent
from utfproof.training.task import WINDOWS, Baseline, window_name
from utfproof.training.tasks import kind_of, task_baselines


class Tried(NamedTuple):
    """A host that holds an embedded target, and the runs of the schedule that does best there from scratch; `reached`: their
    mean accuracy; `tried`: schedules, this one included."""

    target: Table
    line: Line
    runs: list[FromScratch]
    schedule: tuple[str, ...]
    reached: float
    tried: int

    @property
    def gap(self) -> float:
        """Points by which the host holds more than training finds."""
        return 100 * (self.line.embedded - self.reached)


def tried(target: Table, line: Line) -> Tried | None:
    """None where nothing was trained for as many steps as the target was."""
    schedules = by_schedule(run for run in line.from_scratch if run.steps >= target.steps)
    means = {key: statistics.mean(run.accuracy for run in alike) for key, alike in schedules.items()}
    if not means:
        return None
    best = max(means, key=lambda key: means[key])
    return Tried(target, line, schedules[best], best, means[best], len(means))


def strongest(tables: list[Table]) -> list[Table]:
    """Without hosts, at the paper's setting, that another target of the same task and variant shows to hold more."""
    most: dict[tuple[str, str, str, int], float] = {}
    for target in tables:
        for line in target.lines if target.usual else ():
            at = (target.task, target.variant, line.host, line.m)
            most[at] = max(most.get(at, 0.0), line.embedded)

    def stands(target: Table, line: Line) -> bool:
        return not target.usual or line.embedded == most[target.task, target.variant, line.host, line.m]

    kept = [replace(target, lines=tuple(line for line in target.lines if stands(target, line))) for target in tables]
    return [target for target in kept if target.lines]


def tries(entry: Tried) -> str:
    """How many seeds the figure is of, and of how many schedules it is the best."""
    best = f", the best of {entry.tried} schedules" if entry.tried > 1 else ", the only schedule tried"
    return counted(len(entry.runs), "seed") + best


def in_short(complete: list[RunResult], runs: list[RunResult], tables: list[Table]) -> list[str]:
    """complete: the paper's cells that were run in full, means over seeds; runs: all; tables: of the known optimum."""
    hops = [run for run in complete if "max_hops" in kind_of(run.point.task).options]
    rules = {task: task_baselines(task) for task in dict.fromkeys(run.point.task for run in complete)}
    found = [
        of_coverage(complete, runs),
        of_averages(hops, rules),
        of_rules(hops, rules),
        best_rates(runs),
        of_gaps(tables),
    ]
    return [sentence for sentence in [*found, *map(of_factorial, factorials(runs))] if sentence]


def of_coverage(complete: list[RunResult], runs: list[RunResult]) -> str:
    """How many cells there are, how many of them end as the paper's do, and of how many seeds and which devices they are."""
    off = [abs(100 * run.accuracy - said) for run in complete if (said := printed(run)) is not None]
    near = sum(gap <= NEAR for gap in off)
    ends = f"; {near} of them end within {NEAR} points of the paper's figure" if off else ""
    cells = list(paper_cells(filter(in_full, runs))[0].values())
    alone, there = sum(len(cell.accuracies) == 1 for cell in cells), sum("cuda" in cell.devices for cell in cells)
    facts = [f"{alone} of these cells are of one seed"] if alone else []
    if there:
        facts.append(f"{there} were trained on a GPU, where one seed draws other batches than on a processor")
    return f"{coverage(paper_cells(complete)[0])}{ends}." + (f" {'; '.join(facts)}." if facts else "")


def of_missing(complete: list[RunResult]) -> str:
    """The cells that were not run in full, by task and variant; hosts where only some of them are missing."""
    have, told = {run.point.name for run in complete}, []
    for task in PAPER_TASKS:
        variants = []
        for variant in PAPER_VARIANTS:
            hosts = [host for host in PAPER_HOSTS if f"{task}/{host}/{variant}" not in have]
            if hosts:
                variants.append(variant + f" ({', '.join(hosts)})" * (len(hosts) < len(PAPER_HOSTS)))
        if variants:
            told.append(f"{task} {', '.join(variants)}")
    return f"Not run in full: {'; '.join(told)}." if told else ""


def of_lost(cells: list[RunResult]) -> str:
    """Runs that end far below what one of their own training batches had; cells are scored on the law that they train on."""
    told = []
    for run in cells:
        step, _, best = max(run.curve, key=lambda entry: entry[2], default=(0, 0.0, 0.0))
        if 100 * (best - run.accuracy) > NEAR:
            name = f"{run.point.name} (seed {run.seed})"
            told.append(f"{name} has {percent(best)} at step {step}, ends at {percent(run.accuracy)}")
    return f"Learned and lost again, in percent (the first of a training batch): {'; '.join(told)}." if told else ""


def of_averages(hops: list[RunResult], rules: dict[str, list[Baseline]]) -> str:
    """How far frozen hosts without normalisation and MLP are from heads that look at nothing."""
    gaps = []
    for run in hops:
        point, known = run.point, {rule.name: rule.accuracy for rule in rules[run.point.task]}
        name = NAMES[point.residual]
        if not is_trained(point.host) and not (point.norm or point.mlp) and name in known:
            gaps.append(100 * (run.accuracy - known[name]))
    if not gaps:
        return ""
    return (
        f"k-hop, the {len(gaps)} cells of frozen hosts without normalisation and MLP: {min(gaps):+.1f} to {max(gaps):+.1f} "
        f"points from the best model whose heads attend to everything alike (fixed attention)."
    )


def of_rules(hops: list[RunResult], rules: dict[str, list[Baseline]]) -> str:
    """Which cells are beyond every simple rule."""
    beyond = [run.point for run in hops if run.accuracy > max(rule.accuracy for rule in rules[run.point.task])]
    if not hops:
        return ""
    names = f": {', '.join(point.name for point in beyond)}" if beyond else ""
    judged = "; all of these have normalisation" if beyond and all(point.norm for point in beyond) else ""
    widest = window_name(WINDOWS[-1])
    best = {max(rules[run.point.task], key=lambda rule: rule.accuracy).name for run in hops}
    more = (
        f". The best of these rules looks at the {widest}; more characters would tell more" if best == {widest} else ""
    )
    return f"k-hop: {len(beyond)} of {len(hops)} cells pass every rule that is computed here{names}{judged}{more}."


def of_gaps(tables: list[Table]) -> str:
    """How much more hosts hold than training finds."""
    known = [entry for target in tables for line in target.lines if (entry := tried(target, line)) is not None]
    if not known:
        return ""
    more = [entry for entry in known if entry.gap > NEAR]
    most = max(known, key=lambda entry: entry.gap)
    once = sum(entry.tried == 1 for entry in known)
    schedules = (
        f"With {once} of the pairs one schedule alone was tried" if once else "Each was tried at two schedules or more"
    )
    return (
        f"Of {len(known)} pairs of a trained target and a fixed host that holds it embedded, {len(more)} hold over {NEAR} "
        f"points more than training the host from scratch finds, in as many steps. The largest gap: {most.target.task}, "
        f"{most.target.variant}, {most.line.host}, m = {most.line.m}, holds {percent(most.line.embedded)} %, training finds "
        f"{percent(most.reached)} ({tries(most)}). {schedules}: better ones would narrow the gaps."
    )


def of_factorial(found: Factorial) -> str:
    """What the combination that ends nearest to the paper's figure does."""
    said, shares = printed(found.run), {key: 100 * accuracy for key, accuracy in found.accuracies.items()}
    assert said is not None
    usual, nearest = found.usual, found.nearest(said)
    changed = [f"{name} {value}" for name, value, plain in zip(FACTORS, nearest, usual, strict=True) if value != plain]
    if not changed:
        return ""
    return (
        f"{found.run.point.name} ends at {shares[usual]:.1f} % as the presets read the paper, at {shares[nearest]:.1f} with "
        f"{' and '.join(changed)}, the nearest of {len(shares)} combinations of what the paper leaves open; the paper prints "
        f"{said:.1f}. One seed each."
    )
