"""Sections of the report about numbers that runs gave: frontier, emulation, training, optimum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from utfproof.reporting.charts import available, lines, points, short
from utfproof.reporting.document import counted
from utfproof.reporting.gather import Source
from utfproof.reporting.report_section import Section, Table

MOST_POINTS = 4_000
"""Drawn in one chart; of more, every second, third, ..."""


def shape_text(shape: dict[str, Any]) -> str:
    """(H, L, d, d_in), with d_out where it differs and the residual stream where there is one."""
    text = ", ".join(str(shape[name]) for name in ("heads", "layers", "head_dim", "d_in"))
    out = "" if shape["d_out"] == shape["d_in"] else f", d_out {shape['d_out']}"
    return f"({text}){out}{', residual' if shape.get('residual') else ''}"


# --- frontier ------------------------------------------------------------------------------------------------


def frontier(sources: list[Source]) -> Section:
    """The least m of each question, against the number of layers."""
    made = Section("frontier", "How small a host can be")
    made.text = "m reached by a construction (solid) and proved to be needed (dashed), against the number of layers."
    groups: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[tuple[str, str], tuple[object, ...]] = {}
    exact = 0
    for source in sources:
        for entry in source.document["entries"]:
            key = question(entry), shape_text(entry["shape"])
            proved, reached = entry["proved"]["m"], (entry["reached"] or {}).get("m")
            if reached is not None and proved > reached:
                made.problems.append(f"{source.name}: {key[0]} at {key[1]}: {proved} needed and {reached} reached")
            if key in rows and rows[key][2:4] != (proved, reached):
                made.problems.append(f"{key[0]} at {key[1]}: {source.name} and another file differ")
            exact += key not in rows and proved == reached
            rows[key] = (*key, proved, reached, (entry["paper"] or {}).get("m", ""))
    for entry in (entry for source in sources for entry in source.document["entries"]):
        if entry["reached"] is not None:
            shape = entry["shape"]
            name = f"{question(entry)}; d = {shape['head_dim']}, d_in = {shape['d_in']}"
            for word, side in (("", "reached"), (" needed", "proved")):
                point = (shape["layers"], entry[side]["m"])
                members = groups[name][f"H = {shape['heads']}{word}"]
                if point not in members:
                    members.append(point)
    made.lines.append((not made.problems, f"{counted(len(rows), 'question')} at a shape, {exact} settled"))
    if available():
        alike: dict[str, list[str]] = defaultdict(list)
        for name, series in groups.items():
            alike[repr(sorted(series.items()))].append(name)
        for names in alike.values():
            series = groups[names[0]]
            if max(map(len, series.values())) > 1:
                dashed = {one: one.removesuffix(" needed") for one in series if one.endswith(" needed")}
                more = f" (and {counted(len(names) - 1, 'question')} with the same numbers)" if len(names) > 1 else ""
                made.charts.append((names[0] + more, lines(series, "layers", "m", dashed=dashed, log=True)))
    made.tables.append(
        Table("The least m", ("question", "(H, L, d, d_in)", "needed", "reached", "paper"), [*rows.values()])
    )
    return made


def question(entry: dict[str, Any]) -> str:
    """Notion, targets and hosts of an entry in words."""
    extent = "all" if entry["extent"] == "all" else "almost all"
    host = ", tied host" if entry["host"] == "tied" else ""
    free = f", {entry['free']} free" if entry.get("free") else ""
    return f"{entry['notion']}, {extent} {entry['targets']} targets{host}{free}"


# --- emulation -----------------------------------------------------------------------------------------------


def emulation(sources: list[Source]) -> Section:
    """Every run's error beside its bound."""
    made = Section("emulation", "Emulation: error and bound")
    made.text = "A host runs beside the target that it carries. A point below the line would exceed its bound."
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    rows, runs, undecided = [], 0, 0
    for source in sources:
        for case in source.document.get("cases", [source.document]):
            where = f"{case.get('host', source.name)} at {shape_text(case['shape'])}"
            if case.get("refused") and not case.get("comparisons"):
                rows.append((where, 0, "", "", f"not run: {case['refused']}"))
                continue
            found = case["comparisons"]
            runs += len(found)
            errors = [run["relative_error"] for run in found]
            largest = None if None in errors else max(errors)
            beyond = sum(exceeds(run, case.get("tolerance")) for run in found)
            if beyond and case["holds"] is not False:
                made.problems.append(f"{where}: {source.name} says that it holds, and {beyond} runs exceed their bound")
            elif case["holds"] is False:
                made.problems.append(f"{where}: outputs differ ({source.name})")
            if largest != case["max_relative_error"]:
                made.problems.append(f"{where}: the largest error in {source.name} is not that of its runs")
            state = {True: "agrees", False: "DIFFERS"}.get(case["holds"], "undecided")
            undecided += len(found) * (case["holds"] is None)
            rows.append((where, len(found), "–" if largest is None else short(largest), case["precision"], state))
            drawn = [(run["relative_error"], run["bound"]) for run in found if run["relative_error"] and run["bound"]]
            series[case.get("host", source.name)] += drawn[:: -(-len(drawn) // MOST_POINTS) or 1]
    more = f"; {counted(undecided, 'run')} undecided" if undecided else ""
    made.lines.append((not made.problems, f"{counted(runs, 'run')} of {counted(len(rows), 'host')} at a shape{more}"))
    if available() and any(series.values()):
        drawn_series = {name: members for name, members in series.items() if members}
        made.charts.append(("relative error against its bound", points(drawn_series, "error", "bound")))
    made.tables.append(Table("Hosts", ("host", "runs", "largest error", "numbers", "result"), rows))
    return made


def exceeds(run: dict[str, Any], tolerance: float | None) -> bool:
    """Whether a run's error is beyond its bound, or beyond the tolerance that was asked for."""
    error, limit = run["relative_error"], run["bound"] if tolerance is None else tolerance
    return error is None or (limit is not None and error > limit)


# --- training ------------------------------------------------------------------------------------------------


def training(sources: list[Source]) -> Section:
    """The paper's tables beside measured cells, for each setting; and accuracy against steps."""
    from utfproof.training.presets import SETTINGS
    from utfproof.training.results import column, distinct, from_document, paper_cells
    from utfproof.training.tables import HOSTS, coverage, document, tables

    files, in_lines = [], []
    for source in sources:
        if isinstance(source.document, dict):
            files.append((source.name, from_document(source.document, source.name)))
        else:
            names = [f"{source.name}, line {number}" for number in range(1, len(source.document) + 1)]
            in_lines += [(name, from_document(held, name)) for name, held in zip(names, source.document, strict=True)]
    results = distinct(files, in_lines)
    made = Section("training", "Training", lines=[(True, counted(len(results), "run"))])
    head = ["", *(text for name in HOSTS.values() for text in (f"{name}, paper", "measured"))]
    for setting in SETTINGS:
        cells, further = paper_cells(results, setting)
        if not cells:
            continue
        made.lines.append((True, f"{setting}: {coverage(cells)}"))
        for part in document(tables(cells), {}, further)["tables"]:
            rows = [
                [row["label"], *(text for cell in row["cells"].values() for text in accuracies(cell))]
                for row in part["rows"]
            ]
            made.tables.append(
                Table(f"{part['title']} ({part['label']}), {setting} setting, accuracy in %", head, rows)
            )
    curves: dict[str, dict[str, Sequence[tuple[float, float]]]] = defaultdict(dict)
    for result in results:
        host = column(result)
        if len(result.curve) > 1 and host:
            steps = [(float(step), 100 * accuracy) for step, _, accuracy in result.curve]
            held = curves[f"{result.preset['task']}, {result.variant}, {result.setting} setting"]
            name = f"{HOSTS[host]}, m = {result.preset['m']}"
            if len(held.get(name, ())) < len(steps):
                held[name] = steps
    if available():
        for name, series in curves.items():
            if len(series) <= 6:
                made.charts.append((name, lines(series, "step", "accuracy, %")))
    return made


def accuracies(cell: dict[str, Any]) -> tuple[str, str]:
    """The paper's accuracy and the measured one, in percent."""
    found = cell["measured"]
    if found is None:
        return f"{cell['paper_percent']:.1f}", ""
    return f"{cell['paper_percent']:.1f}", f"{100 * found['mean']:.1f}{'' if found['complete'] else ' (brief)'}"


def optimum(sources: list[Source]) -> Section:
    """Trained models as embeddings of hosts."""
    rows = []
    for source in sources:
        document = source.document
        for host, found in document["hosts"].items():
            values = document["trained"]["accuracy"], found["embedded"]["accuracy"]
            rows.append((document["key"], host, found["m"], *("–" if v is None else f"{100 * v:.1f}" for v in values)))
    made = Section("optimum", "Trained models embedded in hosts")
    made.lines.append((True, f"{counted(len(sources), 'trained model')}"))
    made.tables.append(Table("Accuracy in %", ("model", "host", "m", "model's own", "as embedding"), rows))
    return made
