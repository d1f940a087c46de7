"""Tables of the known optimum: what a target reaches, the same embedded, trained on from there, and what training E and U of
the same host from N(0, 0.02^2) finds. Only arranged here; numbers come from data files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utfproof.training.presets import PAPER_VARIANTS, PRESETS, Preset
from utfproof.training.results import RunResult, differences
from utfproof.training.tables import mean_and_spread, percent
from utfproof.training.tasks import best_rule

_SAME = (
    *("task", "heads", "layers", "head_dim", "residual", "norm", "norm_place", "norm_gain", "mlp"),
    *("loss", "positions", "length", "min_hops", "max_hops"),
)
"""Fields in which a run from scratch is the target's."""
_SCHEDULE = ("batch", "learning_rate", "warmup", "decay", "weight_decay", "max_grad_norm", "grow_from")
"""Fields that are said where they are not the presets'."""
_SETTING = ("heads", "layers", "head_dim", "length", "loss", "positions")
"""Fields that are the paper's own where a target shows what hosts hold in its tables."""
START = 0.02
"""The standard deviation of what "from scratch" starts from."""


@dataclass(frozen=True)
class TrainedOn:
    """From the embedded point, perturbed by a relative size: accuracies (fractions) before and after so many steps."""

    perturbation: float
    steps: int
    learning_rate: float
    before: float
    after: float
    loss_before: float | None
    loss_after: float | None


@dataclass(frozen=True)
class FromScratch:
    """A run of the same host and task from N(0, 0.02^2). other: its batch and rate where they are not the paper's."""

    accuracy: float
    steps: int
    seed: int
    other: str


@dataclass(frozen=True)
class Line:
    """One host. condition: of the equations that E solves, None where a formula gives it."""

    host: str
    m: int
    condition: float | None
    embedded: float
    largest_difference: float
    largest_logit: float
    trained_on: tuple[TrainedOn, ...]
    from_scratch: tuple[FromScratch, ...]


@dataclass(frozen=True)
class Table:
    """One target. usual: at the paper's shape, length and loss; trained: its accuracy on so many sequences; baseline: of the
    best simple rule that is computed exactly at this length (None: none)."""

    title: str
    task: str
    variant: str
    usual: bool
    trained: float
    steps: int
    sequences: int
    lines: tuple[Line, ...]
    baseline: tuple[str, float] | None
    left_out: tuple[str, ...]


def optimum_tables(documents: Iterable[dict[str, Any]], runs: Sequence[RunResult]) -> list[Table]:
    """A table for each target."""
    return [_table(document, runs) for document in documents if document["hosts"]]


def _table(document: dict[str, Any], runs: Sequence[RunResult]) -> Table:
    preset = Preset(**{**document["preset"], "betas": tuple(document["preset"]["betas"])})
    lines = tuple(
        Line(
            name,
            host["m"],
            host["condition"],
            host["embedded"]["accuracy"],
            host["agreement"]["largest_difference"],
            host["agreement"]["largest_logit"],
            tuple(_trained_on(part) for part in host["trained_on"]),
            tuple(_from_scratch(preset, name, host["m"], runs)),
        )
        for name, host in document["hosts"].items()
    )
    length = f", length {preset.length}" if preset.length else ""
    length += f", strings growing from {preset.grow_from}" if preset.grow_from else ""
    title = (
        f"{preset.task}, {preset.variant}, {preset.shape}, trained at width {preset.m}{length}, seed {document['seed']}"
    )
    baseline = None
    if (best := best_rule(preset.task, preset.length)) is not None:
        baseline = best.name, best.accuracy
    sequences = document["trained"]["eval_sequences"]
    left_out = tuple(f"without {name}: {reason}" for name, reason in document["left_out"].items())
    home = PRESETS.get(f"{preset.task}/{preset.host}/{preset.variant}")
    return Table(
        title,
        preset.task,
        preset.variant,
        home is not None and all(getattr(preset, name) == getattr(home, name) for name in _SETTING),
        document["trained"]["accuracy"],
        preset.steps,
        sequences,
        lines,
        baseline,
        left_out,
    )


def held(tables: Iterable[Table]) -> dict[tuple[str, str], float]:
    """The largest accuracy that fixed hosts are known to hold, from an embedded target or from E and U found by training, by
    task and variant (as the paper's tables call it), at the paper's setting."""
    found: dict[tuple[str, str], float] = {}
    for table in tables:
        at = (table.task, PAPER_VARIANTS.get(table.variant, table.variant))
        if table.usual:
            shown = [
                known for line in table.lines for known in (line.embedded, *(run.accuracy for run in line.from_scratch))
            ]
            found[at] = max([found.get(at, 0.0), *shown])
    return found


def _trained_on(part: dict[str, Any]) -> TrainedOn:
    before, after = part["before"], part["after"]
    return TrainedOn(
        part["perturbation"],
        part["steps"],
        part["learning_rate"],
        before["accuracy"],
        after["accuracy"],
        before["loss"],
        after["loss"],
    )


def _from_scratch(preset: Preset, host: str, m: int, runs: Sequence[RunResult]) -> list[FromScratch]:
    """Runs of this host at this task of as many steps as the target's or more, or where there are none those with most steps; a
    host that is called otherwise in presets is the same one."""
    found = []
    for run in runs:
        theirs = run.point
        same = all(getattr(theirs, name) == getattr(preset, name) for name in _SAME)
        if not same or (theirs.host, theirs.m) != (host, m) or theirs.init_std != START:
            continue
        other = [
            f"{name.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{name.replace('_', ' ')} {value}"
            for name, value in sorted(differences(run).items())
            if name in _SCHEDULE
        ]
        found.append(FromScratch(run.accuracy, run.steps, run.seed, ", ".join(other)))
    least = min(preset.steps, max((run.steps for run in found), default=0))
    return sorted((run for run in found if run.steps >= least), key=lambda run: (run.steps, run.other, run.seed))


# --- printed -------------------------------------------------------------------------------------------------------


def header(table: Table) -> list[str]:
    """The columns of one table."""
    sizes = _sizes(table)
    trained_on = [f"noise {size:g}" if size else "trained on" for size in sizes]
    return ["host", "m", "cond.", "held", "logits differ", *trained_on, f"from N(0, {START:g}²)"]


def cells(table: Table) -> list[list[str]]:
    """One line for each host; accuracies in percent, before → after."""
    found = []
    for line in table.lines:
        parts = []
        for size in _sizes(table):
            these = [part for part in line.trained_on if part.perturbation == size]
            several = len(these) > 1
            said = [f"{percent(p.before)} → {percent(p.after)}{f' ({_schedule(p)})' if several else ''}" for p in these]
            parts.append("; ".join(said))
        scratch = "; ".join(
            f"{mean_and_spread([run.accuracy for run in alike])} ({', '.join(said)})"
            for said, alike in by_schedule(line.from_scratch).items()
        )
        gap = f"{line.largest_difference:.1e} of {line.largest_logit:.3g}"
        condition = "" if line.condition is None else f"{line.condition:.3g}"
        found.append([line.host, str(line.m), condition, percent(line.embedded), gap, *parts, scratch])
    return found


def by_schedule(runs: Iterable[FromScratch]) -> dict[tuple[str, ...], list[FromScratch]]:
    """Runs that differ in their seed only, by how long and how they were trained."""
    found: dict[tuple[str, ...], list[FromScratch]] = {}
    for run in runs:
        found.setdefault((f"{run.steps} steps", *filter(None, [run.other])), []).append(run)
    return found


def notes(table: Table) -> list[str]:
    """What stands below a table."""
    baseline = f"; {table.baseline[0]} alone: {percent(table.baseline[1])}" if table.baseline else ""
    return [
        f"the target itself: {percent(table.trained)} after {table.steps} steps, on {table.sequences} sequences{baseline}",
        f"cond.: of the equations for E; trained on {_schedules(table)}",
        *table.left_out,
    ]


def _schedule(part: TrainedOn) -> str:
    return f"{part.steps} steps, learning rate {part.learning_rate:g}"


def _schedules(table: Table) -> str:
    """For how long E and U are trained on, and with which learning rate, by host where they differ."""
    found: dict[str, list[str]] = {}
    for line in table.lines:
        for part in line.trained_on:
            found.setdefault(_schedule(part), []).append(line.host)
    if not found:
        return "nowhere"
    if len(found) == 1:
        return f"for {next(iter(found))}"
    return "; ".join(f"for {schedule}: {', '.join(dict.fromkeys(hosts))}" for schedule, hosts in found.items())


def _sizes(table: Table) -> list[float]:
    return sorted({part.perturbation for line in table.lines for part in line.trained_on})


def markdown(tables: Iterable[Table]) -> str:
    """All tables as Markdown; empty where there are none."""
    text = []
    for table in tables:
        names = header(table)
        text += [f"### The optimum known: {table.title}", "", _bar(names), _bar(["---"] * len(names))]
        text += [_bar(line) for line in cells(table)]
        text += ["", *(f"- {note}" for note in notes(table)), ""]
    return "\n".join(text)


def _bar(items: Iterable[str]) -> str:
    return f"| {' | '.join(item.replace('|', chr(92) + '|') for item in items)} |"


def document(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """For --json."""
    return [asdict(table) for table in tables]
