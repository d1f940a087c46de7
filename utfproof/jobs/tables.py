"""`utfproof tables`: the paper's tables beside what has been measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.ground.console import console
from utfproof.ground.progress import stage
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import option

if TYPE_CHECKING:
    from utfproof.training.optimum_table import Table
    from utfproof.training.tables import Further, Rule, TablePart


SHORT = 16
"""Characters of cells that stay on one line."""


def results_folder(given: Path | None) -> Path:
    """The folder of results: the default one may be missing (nothing was measured), one that is named may not."""
    from utfproof.training.results import DEFAULT_FOLDER

    if given is None:
        return DEFAULT_FOLDER
    if not given.is_dir():
        made = "is a file; name the folder that it lies in"
        missing = f"is no folder; `utfproof train --results {given}` makes it"
        raise MalformedInput(f"--results {given} {made if given.exists() else missing}")
    return given


@dataclass(frozen=True, kw_only=True)
class Tables(Job, order=170):
    """The paper's four tables: what it prints, what was measured (mean ± sd, seeds, steps, device), the optimum where it is
    known, and the best simple rule; below them all rules, and what `utfproof optimum` has measured.

    Exit 0, also when nothing was measured. 2: a file of the folder is no result.
    """

    examples = (
        "Examples: utfproof tables; utfproof tables --results results/training --markdown; utfproof tables --json"
    )
    results: Path | None = option(None, "Folder of finished runs; results/training by default.")
    optimum: Path | None = option(None, "Folder of `utfproof optimum`; results/optimum by default, beside --results.")
    sequences: int | None = option(None, "Sequences that baselines of parentheses are counted on.")
    as_markdown: bool = option(False, "Markdown in place of drawn tables.", "--markdown")

    def run(self) -> Outcome:
        from utfproof.training import optimum_table
        from utfproof.training.optimum import read_documents
        from utfproof.training.results import paper_cells, read_results
        from utfproof.training.tables import coverage, document, markdown, tables

        if self.says("as_json") and self.as_markdown:
            raise MalformedInput("--json and --markdown exclude each other")
        runs = read_results(results_folder(self.results))
        cells, further = paper_cells(runs)
        found = optimum_table.optimum_tables(read_documents(_optimum_folder(self.optimum, self.results)), runs)
        parts = tables(cells, optimum_table.held(found))
        with stage("baselines"):
            rules = _rules(self.sequences)

        def show() -> None:
            if self.as_markdown:
                print(f"{coverage(cells)}.\n\n{markdown(parts, rules, further)}", end="")
                print(f"\n{optimum_table.markdown(found)}" if found else "", end="")
            else:
                print(f"{coverage(cells)}\n")
                _print(parts, rules, further)
                _print_optimum(found)

        return Outcome({**document(parts, rules, further), "optimum": optimum_table.document(found)}, text=show)


def _optimum_folder(given: Path | None, results: Path | None) -> Path:
    """The folder of `utfproof optimum`: the default one may be missing, one that is named may not."""
    from utfproof.training.optimum import DEFAULT_FOLDER

    if given is not None and not given.is_dir():
        raise MalformedInput(f"--optimum {given} is no folder; `utfproof optimum --results {given}` makes it")
    if given is not None:
        return given
    return DEFAULT_FOLDER if results is None else results.parent / DEFAULT_FOLDER.name


def _rules(sequences: int | None) -> dict[str, list[Rule]]:
    from utfproof.training.presets import PAPER_TASKS
    from utfproof.training.tables import Rule
    from utfproof.training.task import SEQUENCES
    from utfproof.training.tasks import task_baselines

    return {
        task: [
            Rule(b.name, b.rule, b.accuracy, b.answers, b.standard_error, b.sequences)
            for b in task_baselines(task, SEQUENCES if sequences is None else sequences)
        ]
        for task in PAPER_TASKS
    }


def _print(parts: list[TablePart], rules: dict[str, list[Rule]], further: list[Further]) -> None:
    from rich.text import Text

    from utfproof.training.tables import BRIEF, HOSTS, REMARK, SAME, baseline_line, by_difference, row_cells

    screen = console()
    sides = [f"{host if side == 'paper' else ''}\n{side}" for host in HOSTS for side in ("paper", "here")]
    for part in parts:
        lines = [row_cells(row, rules) for row in part.rows]
        _draw(screen, f"{part.title} ({part.label})", ["", *sides, "optimum\n≥", "best\nrule"], lines)
        screen.print(Text(f"{part.circumstances}\n" if part.circumstances else ""))
    for task, found in rules.items():
        screen.print(Text(baseline_line(task, found)))
    screen.print()
    if further:
        screen.print(Text("Further runs", style="bold"))
        for differences, runs in by_difference(further).items():
            screen.print(Text(f"\n{differences}:" if differences != SAME else "\nhosts that the paper does not train:"))
            width = max(len(item.name) for item in runs)
            for item in runs:
                screen.print(Text(f"  {item.name:{width}}  {item.said}"), soft_wrap=True)
        screen.print()
    screen.print(Text(f"{REMARK}; {BRIEF}"))


def _print_optimum(found: list[Table]) -> None:
    from rich.text import Text

    from utfproof.training.optimum_table import cells, header, notes

    screen = console()
    for table in found:
        screen.print()
        _draw(screen, f"The optimum known: {table.title}", header(table), cells(table))
        for note in notes(table):
            screen.print(Text(note))


def _draw(screen: Any, title: str, header: list[str], lines: list[list[str]]) -> None:
    from rich import box
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", padding=(0, 1, 0, 0)
    )
    for name, column in zip(header, zip(*lines, strict=True), strict=True):
        whole = all(len(cell) <= SHORT for cell in column)
        words = [part for cell in (name, *column) for part in (cell.split("\n") if whole else cell.split())]
        table.add_column(Text(name), overflow="fold", no_wrap=whole, min_width=max(map(len, words), default=1))
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    least = Measurement.get(screen, screen.options.update(width=1000), table).minimum
    console(least=least).print(table)  # rather beyond the edge than cut
