"""What the paper leaves open, tried both ways: for docs/experiments.md and its tables, which write_experiments.py writes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

from pages import table

from utfproof.paper import tables as paper
from utfproof.reporting.document import counted
from utfproof.training.presets import PAPER_HOSTS, PAPER_VARIANTS, PRESETS, Preset, field_names
from utfproof.training.results import RunResult, differences, is_cell, measured, with_seeds
from utfproof.training.tables import Measured, percent
from utfproof.training.tasks import kind_of, task_baselines
from utfproof.training.tasks.khop import MOST_HOPS

NEAR = 5
"""Points that count as near the paper's figure."""


def printed(run: RunResult) -> float | None:
    """What the paper prints for this cell, in percent."""
    point = run.point
    if point.host not in PAPER_HOSTS or point.variant not in PAPER_VARIANTS:
        return None
    row = paper.ABLATIONS[point.task][PAPER_VARIANTS[point.variant]]
    return float(row[PAPER_HOSTS.index(point.host)])


def in_full(run: RunResult) -> bool:
    """Whether the run is of a cell of the paper's tables, with its number of steps: a longer one is another experiment."""
    return is_cell(run) and run.complete and not differences(run)


def averaged(runs: list[RunResult]) -> list[RunResult]:
    """A run for all that differ in their seed only, with their mean accuracy."""
    groups = with_seeds(runs).values()
    return [replace(group[0], accuracy=measured(group).mean) for group in groups]


def said_field(name: str, value: Any) -> str:
    """Such as batch 32, or positions learned."""
    return f"{name} {plain(value)}"


def plain(value: Any) -> str:
    """A number without zeros at its end, anything else as it is."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def said_fields(fields: dict[str, Any]) -> str:
    """All of them, by name."""
    return ", ".join(said_field(name, fields[name]) for name in sorted(fields))


def without(point: Preset, *fields: str) -> tuple[Any, ...]:
    """What tells an experiment, but for these fields and the seed."""
    return tuple(getattr(point, name) for name in sorted(field_names() - {"name", "seed", *fields}))


CHOICES = {
    "positions": (
        "learned",
        "The theory has no positions, and the paper does not say whether its experiments have. Runs that differ in nothing but "
        "a learned vector for each position (`--positions learned`), added to E's row:",
    ),
    "norm_place": (
        "post",
        "LN stands before what a layer reads (pre), or after each layer, on the stream itself (`--set norm_place=post`):",
    ),
    "norm_gain": (
        True,
        "LN has no gain and no shift of its own in frozen hosts, or both and trained (`--set norm_gain=true`):",
    ),
    "decay": (
        "constant",
        "The rate falls to 0 after the warm-up, or stays (`--set decay=constant`):",
    ),
    "max_grad_norm": (
        1.0,
        "All gradients together are scaled down to norm 1 where theirs is larger, as Hugging Face's Trainer does unless told "
        "otherwise, with which public code trains parentheses (`--set max_grad_norm=1`), or never:",
    ),
    "loss": (
        "sequence",
        "The paper's text can be read either way: the loss looks at the answer alone (the presets of parentheses), or at every "
        "position (`--loss sequence`). Runs that differ in nothing else; accuracies are at the answer:",
    ),
}
"""Fields that the paper leaves open: the value beside the preset's, and what the page says of it."""
TITLES = {
    "positions": "Positions",
    "norm_place": "Where normalisation stands",
    "norm_gain": "Gains and shifts of normalisation",
    "decay": "Decay of the learning rate",
    "max_grad_norm": "Largest norm of gradients",
    "loss": "Where the loss looks",
}


def word(value: object) -> str:
    """A choice as the page calls it."""
    return "trained" if value is True else plain(value) if value else "none"


def choices_part(runs: list[RunResult]) -> str:
    """Runs that differ in one field that the paper leaves open, side by side."""
    text = []
    for name, (value, said) in CHOICES.items():
        pairs = twins(runs, name, value)
        if not pairs:
            continue
        rows = []
        for one, other in pairs:
            point = one.measured
            rows.append(
                [
                    one.runs[0].point.name,
                    str(one.runs[0].point.m),
                    said_fields(one.changed),
                    str(point.steps),
                    "" if one.printed is None else f"{one.printed:.1f}",
                    point.accuracy.rstrip(" *"),
                    other.measured.accuracy.rstrip(" *"),
                    str(len(one.runs)),
                ]
            )
        usual = getattr(pairs[0][0].runs[0].point, name)
        columns = [f"{word(choice)}, %" for choice in (usual, value)]
        head = ["run", "m", "changed in both", "steps", "paper, %", *columns, "seeds"]
        text += [f"### {TITLES[name]}", said, table(head, rows)]
    return "\n\n".join(text)


class Side(NamedTuple):
    """Runs that differ in their seed only, what the paper prints for their cell, and what both sides have changed."""

    runs: list[RunResult]
    measured: Measured
    printed: float | None
    changed: dict[str, Any]


def twins(runs: list[RunResult], name: str, value: object) -> list[tuple[Side, Side]]:
    """Pairs of runs (all seeds of each) that differ in this field alone: as the preset has it, and with this value."""
    groups = {without(group[0].point): group for group in with_seeds(runs).values()}
    found = []
    for group in groups.values():
        point = group[0].point
        if getattr(point, name) != value or point.name not in PRESETS:
            continue
        usual = getattr(PRESETS[point.name], name)
        twin = groups.get(without(replace(point, **{name: usual}))) if usual != value else None
        if twin is None:
            continue
        seeds = {run.seed for run in group} & {run.seed for run in twin}
        sides = [[run for run in side if run.seed in seeds] for side in (twin, group)]
        if not seeds:
            continue
        other = {n: v for n, v in differences(twin[0]).items() if n not in ("steps", "m")}
        said = printed(twin[0]) if point.m == PRESETS[point.name].m else None
        one, other_side = (Side(side, measured(side), said, other) for side in sides)
        found.append((one, other_side))
    return sorted(found, key=lambda pair: (pair[0].runs[0].point.name, pair[0].runs[0].point.m))


FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "positions": {"none": {"positions": "none"}, "learned": {"positions": "learned"}},
    "hops": {"k": {"min_hops": -1, "max_hops": -1}, "drawn": {"min_hops": 0, "max_hops": MOST_HOPS}},
    "decay": {"linear": {"decay": "linear"}, "constant": {"decay": "constant"}},
}
"""What the paper leaves open and its public sources answer: fields by what the page calls their values, the preset's first."""


class Factorial(NamedTuple):
    """A cell trained under every combination of the factors' values, alike in all else; accuracies by combination."""

    run: RunResult
    accuracies: dict[tuple[str, ...], float]

    @property
    def usual(self) -> tuple[str, ...]:
        """The presets' own combination."""
        return tuple(next(iter(values)) for values in FACTORS.values())

    def nearest(self, said: float) -> tuple[str, ...]:
        """The combination that ends nearest to a figure in percent."""
        return min(self.accuracies, key=lambda key: abs(100 * self.accuracies[key] - said))

    def effects(self) -> dict[str, dict[tuple[str, ...], float]]:
        """What the second value of each factor adds, in points, under each combination of the others: by the combination with
        the first value."""
        return {
            name: {
                key: 100 * (self.accuracies[(*key[:place], values[1], *key[place + 1 :])] - accuracy)
                for key, accuracy in self.accuracies.items()
                if key[place] == values[0]
            }
            for place, (name, values) in enumerate((name, list(values)) for name, values in FACTORS.items())
        }


def factorials(runs: list[RunResult]) -> list[Factorial]:
    """Of one seed each: the cells that were trained, for the paper's number of steps, under all combinations."""
    known = {without(run.point): run for run in runs if run.complete and not run.seed}
    found = []
    for run in known.values():
        if not in_full(run) or "max_hops" not in kind_of(run.point.task).options:
            continue
        accuracies = {}
        for key in itertools.product(*FACTORS.values()):
            fields = {k: v for name, value in zip(FACTORS, key, strict=True) for k, v in FACTORS[name][value].items()}
            twin = known.get(without(replace(run.point, **fields)))
            if twin is not None:
                accuracies[key] = twin.accuracy
        if len(accuracies) == 2 ** len(FACTORS):
            found.append(Factorial(run, accuracies))
    return found


def factorial_part(runs: list[RunResult]) -> str:
    """A table for each factorial, and what each factor does."""
    text = []
    for found in factorials(runs):
        said = printed(found.run)
        assert said is not None
        rows = [
            [*key, percent(accuracy), f"{100 * accuracy - said:+.1f}"] for key, accuracy in found.accuracies.items()
        ]
        point = found.run.point
        text += [
            f"{point.name}, {found.run.steps} steps, seed 0; the paper prints {said:.1f} %:",
            table([*FACTORS, "measured, %", "points from the paper's"], rows),
            "\n".join(f"- {sentence}" for sentence in effects(found)),
        ]
    if not text:
        return ""
    head = (
        "Positions none or learned; hops fixed at k or drawn from 0 to 16 in training, as public code does it; the rate "
        "falling to 0 or constant after the warm-up. All combinations, alike in all else:"
    )
    return "\n\n".join(["### Positions, drawn hops and schedule together", head, *text])


def effects(found: Factorial) -> list[str]:
    """Which combination ends nearest to the paper's figure, and what each factor adds, on average and at its least and most."""
    said = printed(found.run)
    assert said is not None
    shares = {key: 100 * accuracy for key, accuracy in found.accuracies.items()}
    key, usual = found.nearest(said), shares[found.usual]
    choice = ", ".join(f"{name} {value}" for name, value in zip(FACTORS, key, strict=True))
    near = (
        f"{found.run.point.name} under all {len(shares)} combinations of {', '.join(FACTORS)}, at the paper's batch, rate and "
        f"steps: {min(shares.values()):.1f} to {max(shares.values()):.1f} %; nearest to the paper's {said:.1f} is {choice} "
        f"with {shares[key]:.1f} % ({usual:.1f} as the presets have it). Strength of the evidence: one cell, one seed each."
    )
    return [near] + [
        f"{name} {list(FACTORS[name])[1]} adds {said_effect(added)}." for name, added in found.effects().items()
    ]


def said_effect(added: dict[tuple[str, ...], float]) -> str:
    """From the least to the most points; where the sign changes with another factor, with each of its values apart."""
    if min(added.values()) < 0 < max(added.values()):
        for place, (name, values) in enumerate(FACTORS.items()):
            parts = {v: [points for key, points in added.items() if key[place] == v] for v in values}
            if all(parts.values()) and all(min(part) > 0 or max(part) < 0 for part in parts.values()):
                return " but ".join(f"{_span(part)} with {name} {value}" for value, part in parts.items())
    return f"{_span(list(added.values()))} under the {len(added)} combinations of the others"


def _span(points: list[float]) -> str:
    return f"{min(points):+.1f} to {max(points):+.1f} points"


def by_rate(runs: list[RunResult]) -> list[list[list[RunResult]]]:
    """The paper's cells that were trained at other learning rates too, alike in all else: runs that differ in their seed, by
    rate."""
    groups: dict[tuple[Any, ...], list[list[RunResult]]] = {}
    for alike in with_seeds(run for run in runs if run.complete and run.point.host in PAPER_HOSTS).values():
        groups.setdefault(without(alike[0].point, "learning_rate"), []).append(alike)
    return [
        sorted(group, key=lambda alike: alike[0].point.learning_rate)
        for group in groups.values()
        if len(group) > 1 and any(in_full(alike[0]) for alike in group)
    ]


def best_rates(runs: list[RunResult]) -> str:
    """How many of these cells gain more than NEAR points by another rate, and which the most."""
    gains, groups = [], by_rate(runs)
    for group in groups:
        usual = next(alike for alike in group if is_cell(alike[0]))
        best = max(group, key=lambda alike: measured(alike).mean)
        gains.append((100 * (measured(best).mean - measured(usual).mean), usual, best))
    if not gains:
        return ""
    highest = sum(best is group[-1] for (*_, best), group in zip(gains, groups, strict=True))
    _, usual, best = max(gains, key=lambda gain: gain[0])
    point, other = usual[0].point, best[0].point
    return (
        f"Of {counted(len(gains), 'cell')} that were trained at other learning rates too, in as many steps, "
        f"{sum(points > NEAR for points, *_ in gains)} gain over {NEAR} points by one; the most gains {point.name}: "
        f"{percent(measured(usual).mean)} % at {point.learning_rate:g}, the paper's, {percent(measured(best).mean)} at "
        f"{other.learning_rate:g} (seeds: {len(usual)} and {len(best)}). "
        f"The highest rate that was tried is the best in {highest} of them."
    )


def of_rates(runs: list[RunResult]) -> list[str]:
    """What the paper's cells reach at other learning rates than its table's."""
    text = []
    for group in by_rate(runs):
        said = []
        for alike in group:
            notes = ["the paper's"] * is_cell(alike[0]) + [f"{len(alike)} seeds"] * (len(alike) > 1)
            note = f" ({', '.join(notes)})" if notes else ""
            said.append(f"{percent(measured(alike).mean)} at {alike[0].point.learning_rate:g}{note}")
        text.append(f"{group[0][0].point.name} {', '.join(said)}")
    return [f"By learning rate, in percent, one seed unless said otherwise: {'; '.join(text)}."] if text else []


def of_choices(runs: list[RunResult]) -> list[str]:
    """A paragraph: which reading ends nearer to the paper's figures where its text is open, and how strong the evidence is."""
    told, every = [], []
    for name, (value, _) in CHOICES.items():
        pairs = [pair for pair in twins(runs, name, value) if pair[0].printed is not None]
        if not pairs:
            continue
        gaps = [[abs(100 * side.measured.mean - (one.printed or 0)) for side in (one, other)] for one, other in pairs]
        usual = getattr(pairs[0][0].runs[0].point, name)
        words = [word(choice) for choice in (usual, value)]
        near = [sum(gap[side] <= NEAR for gap in gaps) for side in (0, 1)]
        told.append(
            f"{TITLES[name].lower()}, {words[1]} in place of {words[0]}: nearer in {sum(b < a for a, b in gaps)} of "
            f"{counted(len(pairs), 'pair')} ({counted(_cells(pairs), 'cell')}), within {NEAR} points in {near[1]} (before, in "
            f"{near[0]})"
        )
        every += pairs
    if not told:
        return []
    full = sum(one.measured.complete and not FULL & set(one.changed) for one, _ in every)
    alone = sum(len(one.runs) == 1 for one, _ in every)
    return [
        "Where the paper's text is open, pairs of runs that differ in nothing else, by how far they end from its figure: "
        f"{'; '.join(told)}. Strength of the evidence: {counted(len(every), 'pair')} of {counted(_cells(every), 'cell')}, not "
        f"independent; {alone} of one seed, {full} at the paper's own batch, rate, length and steps."
    ]


FULL = {"batch", "learning_rate", "warmup", "length"}
"""Fields in which a run is the paper's, beside its steps."""


def _cells(pairs: list[tuple[Side, Side]]) -> int:
    return len({one.runs[0].point.name for one, _ in pairs})


def of_printed(complete: list[RunResult]) -> list[str]:
    """Printed k-hop figures below chance, beside the rule of as many percent, and beside what the same cells do here."""
    low = []
    for task, rows in paper.ABLATIONS.items():
        rules = {rule.name: 100 * rule.accuracy for rule in task_baselines(task)}
        if "does not exist" not in rules:
            continue
        ours = {run.point.name: 100 * run.accuracy for run in complete if run.point.task == task and not run.seed}
        for variant, row in PAPER_VARIANTS.items():
            for host, said in zip(PAPER_HOSTS, rows[row], strict=True):
                name = f"{task}/{host}/{variant}"
                if said < rules["chance"]:
                    here = f"; here it ends at {ours[name]:.1f} %" if name in ours else ""
                    low.append(
                        f"The paper prints {said:.1f} % for {name}, below the {rules['chance']:.1f} % of a uniform guess: to "
                        f'say "does not exist" everywhere after the blank has {rules["does not exist"]:.2f} %{here}.'
                    )
    return low
