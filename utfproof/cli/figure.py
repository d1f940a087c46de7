"""`utfproof figure`: pictures of the training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.cli.tables import results_folder
from utfproof.cli.train import name_values
from utfproof.errors import MalformedInput

FIGURES = ("scaling",)
EPILOG = "Example: utfproof figure scaling --results results/training -o scaling.svg"


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "figure", command, epilog=EPILOG)


def command(
    name: Annotated[str, typer.Argument(help=f"Which figure: {', '.join(FIGURES)}.")],
    output: Annotated[Path, typer.Option("-o", "--output", writable=True, help="Picture to write (.png, .svg, .pdf).")],
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of finished runs; results/training by default.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="NAME=VALUE: the experiment with this field changed (length, batch, ...); repeatable."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Accuracy on 2-hop against m: at m = m-bar, at m = H d, and from 0.5 to 2 times m-bar; ± 1 sd over seeds.

    Without --set, runs of the paper's setting, brief ones too; with it, those that differ from it in just these fields. Exit 0;
    panels without runs say that nothing was measured.
    """
    from dataclasses import asdict

    from utfproof.ground.plots import picture_format

    if name not in FIGURES:
        raise MalformedInput(f"figure {name!r} is unknown; choose {', '.join(FIGURES)}")
    picture_format(output)
    from utfproof.training.figure import PANELS, plot_scaling
    from utfproof.training.results import read_results

    points = plot_scaling(read_results(results_folder(results)), output, name_values(changes or []))
    document = {"figure": name, "file": str(output), "points": [asdict(point) for point in points]}
    counts = {panel: sum(point.panel == panel for point in points) for panel in PANELS}
    rows = {panel: f"{counts[panel]} points" if counts[panel] else "nothing measured" for panel in PANELS}
    emit(document, f"figure {name}", {**rows, "file": output}, as_json=as_json)
