"""`utfproof figure`: pictures of the training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from utfproof.cli.command import command
from utfproof.cli.options import argument, option, written
from utfproof.cli.outcome import Outcome
from utfproof.commands.tables import results_folder
from utfproof.errors import MalformedInput

FIGURES = ("scaling",)


@command("Example: utfproof figure scaling --results results/training -o scaling.svg")
def figure(
    *,
    name: Annotated[str, argument(f"Which figure: {', '.join(FIGURES)}.")],
    output: Annotated[Path, written("Picture to write (.png, .svg, .pdf).", "-o", "--output")],
    results: Annotated[Path | None, option("Folder of finished runs; results/training by default.")] = None,
    setting: Annotated[str, option("Of which runs", choices=("paper", "theory"))] = "paper",
) -> Outcome:
    """Draw accuracy on 2-hop against m.

    Panels: at m = m-bar, at m = H d, and from 0.5 to 2 times m-bar; ± 1 sd over seeds.
    Brief runs are dashed. Exit 0; panels without runs say that nothing was measured.
    """
    from dataclasses import asdict

    from utfproof.ground.plots import picture_format

    if name not in FIGURES:
        raise MalformedInput(f"figure {name!r} is unknown; choose {', '.join(FIGURES)}")
    picture_format(output)
    from utfproof.training.figure import PANELS, plot_scaling
    from utfproof.training.results import read_results

    points = plot_scaling(read_results(results_folder(results)), output, setting)
    document = {"figure": name, "file": str(output), "points": [asdict(point) for point in points]}
    counts = {panel: sum(point.panel == panel for point in points) for panel in PANELS}
    rows = {panel: f"{counts[panel]} points" if counts[panel] else "nothing measured" for panel in PANELS}
    return Outcome(document, f"figure {name}", {**rows, "file": output})
