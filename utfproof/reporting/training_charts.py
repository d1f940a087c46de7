"""Charts of the training runs for the page on the experiments: every number comes from result files or the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from utfproof.paper import tables as paper
from utfproof.reporting.charts import SERIES, chart, lines
from utfproof.training.results import column, differences, paper_cells
from utfproof.training.tables import HOSTS

if TYPE_CHECKING:
    from markupsafe import Markup

    from utfproof.training.results import RunResult

TASKS = ("1-hop", "2-hop")


def variants(runs: Sequence[RunResult]) -> Markup:
    """Accuracy of each variant of 1-hop and 2-hop: a mark for the paper's figure, one for each setting's mean."""
    measured = {setting: paper_cells(runs, setting)[0] for setting in ("paper", "theory")}
    cells = [(task, variant, k) for task in TASKS for variant in paper.ABLATIONS[task] for k in range(len(HOSTS))]
    with chart(7.0, 0.22 * len(cells)) as (axes, drawn):
        series: dict[str, list[tuple[float, int]]] = {"the paper": [], "setting paper": [], "setting theory": []}
        for row, (task, variant, k) in enumerate(cells):
            series["the paper"].append((paper.ABLATIONS[task][variant][k], row))
            for setting, found in measured.items():
                cell = found.get((task, list(HOSTS)[k], variant))
                if cell is not None and cell.complete:
                    series[f"setting {setting}"].append((100 * fmean(cell.accuracies), row))
        for (name, points), marker, colour in zip(series.items(), "|oD", SERIES, strict=False):
            xs, ys = zip(*points, strict=True) if points else ((), ())
            axes.plot(xs, ys, marker, color=colour, label=name, markersize=7 if marker == "|" else 4)
        axes.set_yticks(range(len(cells)), [f"{task}, {variant}, {list(HOSTS)[k]}" for task, variant, k in cells])
        axes.invert_yaxis()
        axes.set_xlabel("accuracy, %")
        axes.legend(fontsize=7)
        return drawn()


def curves(runs: Sequence[RunResult]) -> Markup:
    """Accuracy of training batches against steps, for full runs of the 1-hop cells with residual stream and normalisation."""
    found = {
        f"{HOSTS[column(run)]}, {run.setting}, seed {run.seed}": [(step, 100 * share) for step, _, share in run.curve]
        for run in runs
        if (run.preset["task"], run.variant) == ("1-hop", "residual-norm")
        and run.complete and column(run) and not differences(run)
    }  # fmt: skip
    return lines(found, "step", "accuracy, %")
