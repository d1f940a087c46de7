"""`utfproof tables`: the paper's tables beside what has been measured."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from utfproof.cli.outcome import Outcome, plain
from utfproof.errors import MalformedInput

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 100
"""Columns of a table, at most."""


def results_folder(given: Path | None) -> Path:
    """The folder of results; MalformedInput where it is missing."""
    from utfproof.training.results import DEFAULT_FOLDER

    if given is not None and not given.is_dir():
        raise MalformedInput(f"--results {given} is no folder; `utfproof train --results {given}` makes it")
    if given is None and not DEFAULT_FOLDER.is_dir():
        raise MalformedInput(
            f"there is no folder {DEFAULT_FOLDER} here: run this in a clone of the project, or name a folder of results with "
            "--results (utfproof train writes one)"
        )
    return given or DEFAULT_FOLDER


def tables(
    *,
    results: Annotated[Path | None, typer.Option(help="Folder of finished runs; results/training by default.")] = None,
) -> Outcome:
    """Show the paper's tables beside what was measured.

    Measured: mean ± sd over the seeds, steps, device.
    First the setting `paper` (learned positions), then `theory` (no positions), then what `utfproof optimum` has measured.
    Needs no PyTorch. Exit 0, also when nothing was measured. 2: no folder of results, or a file of it is none.

    Examples: utfproof tables; utfproof tables --results results/training --json
    """
    from utfproof.training import optimum, tables
    from utfproof.training.presets import PAPER_TASKS
    from utfproof.training.results import paper_cells, read_results
    from utfproof.training.tasks import kind_of

    folder = results_folder(results)
    runs = read_results(folder)
    cells, theory = (paper_cells(runs, setting) for setting in ("paper", "theory"))
    held = optimum.read_documents(folder.parent / optimum.DEFAULT_FOLDER.name)
    lines = list(optimum.rows(held, runs))
    parts, rules = tables.tables(cells), {task: kind_of(task).baselines(0) for task in PAPER_TASKS}
    places = {setting: tables.coverage(found) for setting, found in (("paper", cells), ("theory", theory))}

    def show() -> None:
        if not runs:
            print(f"No run in {plain(str(folder.absolute()))}; name another folder with --results FOLDER.\n")
        _write(f"Setting paper (learned positions): {places['paper']}.\n")
        for part in parts:
            _draw(f"{part.title} ({part.label})", tables.HEADER, [tables.row_cells(row, rules) for row in part.rows])
            _write(*part.circumstances)
        _write(tables.REMARK, "", "Simple rules:", *(tables.rule_line(task, found) for task, found in rules.items()))
        if theory:
            _write("", f"Setting theory (no positions): {places['theory']}.\n")
            _draw("Measured without positions", ["", *tables.HOSTS.values()], tables.compact(theory))
        if lines:
            _draw("What fixed hosts hold", optimum.HEADER, lines)
            _write(optimum.REMARK)

    document = {
        **tables.document(parts, rules),
        "theory": tables.document(tables.tables(theory), {}),
        "coverage": places,
        "folder": str(folder),
        "optimum": [asdict(found) for found in held],
    }
    return Outcome(document, text=show)


def _write(*lines: str) -> None:
    for line in lines:
        print("\n".join(textwrap.wrap(plain(line), WIDTH, subsequent_indent="  ")) + "\n" * line.endswith("\n"))


def _draw(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table of at most WIDTH columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", padding=(0, 1, 0, 0)
    )
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for line in lines:
        table.add_row(*(Text(plain(cell)) for cell in line))
    Console(highlight=False, width=WIDTH).print(table)
