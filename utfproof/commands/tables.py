"""`utfproof tables`: the paper's tables beside what has been measured."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import option
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 100
"""Columns of a table, at most."""


def results_folder(given: Path | None) -> Path:
    """The folder of results: the default one may be missing, a named one may not."""
    from utfproof.training.results import DEFAULT_FOLDER

    if given is None:
        return DEFAULT_FOLDER
    if not given.is_dir():
        made = "is a file; name the folder that it lies in"
        missing = f"is no folder; `utfproof train --results {given}` makes it"
        raise MalformedInput(f"--results {given} {made if given.exists() else missing}")
    return given


@command("Examples: utfproof tables; utfproof tables --results results/training --markdown; utfproof tables --json")
def tables(
    *,
    results: Annotated[Path | None, option("Folder of finished runs; results/training by default.")] = None,
    optimum: Annotated[
        Path | None, option("Folder of `utfproof optimum`; results/optimum by default, beside --results.")
    ] = None,
    as_markdown: Annotated[bool, option("Markdown in place of drawn tables.", "--markdown")] = False,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Show the paper's tables beside what was measured.

    Measured: mean ± sd over the seeds, steps, device.
    First the setting `paper` (learned positions), then `theory` (no positions), then what `utfproof optimum` has measured.
    Needs no PyTorch. Exit 0, also when nothing was measured. 2: a file of the folder is no result.
    """
    from utfproof.training import optimum_table, tables
    from utfproof.training.optimum import read_documents
    from utfproof.training.presets import PAPER_TASKS
    from utfproof.training.results import paper_cells, read_results
    from utfproof.training.tasks import kind_of

    if "as_json" in stated and as_markdown:
        raise MalformedInput("--json and --markdown exclude each other")
    folder = results_folder(results)
    runs = read_results(folder)
    cells, theory = (paper_cells(runs, setting) for setting in ("paper", "theory"))
    lines = optimum_table.optimum_lines(read_documents(_optimum_folder(optimum, results)), runs)
    parts, rules = tables.tables(cells), {task: kind_of(task).baselines(0) for task in PAPER_TASKS}
    places = {setting: tables.coverage(found) for setting, found in (("paper", cells), ("theory", theory))}

    def show() -> None:
        if not runs:
            print(f"No run in {folder.absolute()}; name another folder with --results FOLDER.\n")
        if as_markdown:
            print(tables.markdown(parts, rules, theory), end="")
            if lines:
                print(f"\n### What fixed hosts hold\n\n{_markdown(lines)}", end="")
            return
        _write(f"Setting paper (learned positions): {places['paper']}.\n")
        for part in parts:
            _draw(f"{part.title} ({part.label})", tables.HEADER, [tables.row_cells(row, rules) for row in part.rows])
            _write(*part.circumstances)
        _write(tables.REMARK, "", "Simple rules:", *(tables.rule_line(task, found) for task, found in rules.items()))
        if theory:
            _write("", f"Setting theory (no positions): {places['theory']}.\n")
            _draw("Measured without positions", ["", *tables.HOSTS.values()], tables.compact(theory))
        if lines:
            _draw("What fixed hosts hold", optimum_table.HEADER, optimum_table.cells(lines))
            _write(optimum_table.REMARK)

    document = {
        **tables.document(parts, rules),
        "theory": tables.document(tables.tables(theory), {}),
        "coverage": places,
        "folder": str(folder),
        "optimum": optimum_table.document(lines),
    }
    return Outcome(document, text=show)


def _markdown(lines: Sequence[Any]) -> str:
    from utfproof.training.optimum_table import HEADER, REMARK, cells
    from utfproof.training.tables import markdown_table

    return f"{markdown_table(HEADER, cells(lines))}\n{REMARK}\n"


def _optimum_folder(given: Path | None, results: Path | None) -> Path:
    """The folder of `utfproof optimum`: the default one may be missing, a named one may not."""
    from utfproof.training.optimum import DEFAULT_FOLDER

    if given is not None and not given.is_dir():
        raise MalformedInput(f"--optimum {given} is no folder; `utfproof optimum --results {given}` makes it")
    if given is not None:
        return given
    return DEFAULT_FOLDER if results is None else results.parent / DEFAULT_FOLDER.name


def _write(*lines: str) -> None:
    for line in lines:
        print("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  ")) + "\n" * line.endswith("\n"))


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
        table.add_row(*(Text(cell) for cell in line))
    Console(highlight=False, width=WIDTH).print(table)
