"""`utfproof figure`: pictures of the training runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utfproof.errors import MalformedInput
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written
from utfproof.jobs.tables import results_folder

FIGURES = ("scaling",)


@dataclass(frozen=True, kw_only=True)
class Figure(Job, order=180):
    """Accuracy on 2-hop against m: at m = m-bar, at m = H d, and from 0.5 to 2 times m-bar; ± 1 sd over seeds.

    Brief runs are dashed. Exit 0; panels without runs say that nothing was measured.
    """

    examples = "Example: utfproof figure scaling --results results/training -o scaling.svg"
    name: str = argument(..., f"Which figure: {', '.join(FIGURES)}.")
    output: Path = written(..., "Picture to write (.png, .svg, .pdf).")
    results: Path | None = option(None, "Folder of finished runs; results/training by default.")
    setting: str = option("paper", "Of which runs", choices=("paper", "theory"))

    def run(self) -> Outcome:
        from dataclasses import asdict

        from utfproof.ground.plots import picture_format

        if self.name not in FIGURES:
            raise MalformedInput(f"figure {self.name!r} is unknown; choose {', '.join(FIGURES)}")
        picture_format(self.output)
        from utfproof.training.figure import PANELS, plot_scaling
        from utfproof.training.results import read_results

        points = plot_scaling(read_results(results_folder(self.results)), self.output, self.setting)
        document = {"figure": self.name, "file": str(self.output), "points": [asdict(point) for point in points]}
        counts = {panel: sum(point.panel == panel for point in points) for panel in PANELS}
        rows = {panel: f"{counts[panel]} points" if counts[panel] else "nothing measured" for panel in PANELS}
        return Outcome(document, f"figure {self.name}", {**rows, "file": self.output})
