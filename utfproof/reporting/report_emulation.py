"""The report's part about emulation: the error of every run against its a priori bound."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utfproof.emulation.compare import Comparison, EmulationReport
from utfproof.ground.forms import conform
from utfproof.ground.notions import Notion
from utfproof.reporting.document import counted
from utfproof.reporting.documents import CASES, EMULATION, SHAPE
from utfproof.reporting.page import escape
from utfproof.reporting.report_charts import MARKERS, Axis, Panel, colour, short, swatch
from utfproof.reporting.report_parts import Markup, Section, alarm, figure, legend, panels, paragraph, shape_text, table
from utfproof.reporting.report_read import Source, refuse

MOST_MARKS = 6_000
"""Points drawn in one panel; of more, every second, third, ... of those within their bound."""


@dataclass(frozen=True)
class ReportedCase:
    """One host at one shape: its runs, or why there are none."""

    source: str
    shape: dict[str, Any]
    host: str
    law: str
    report: EmulationReport | None
    refusal: str | None


def cases_of(source: Source) -> list[ReportedCase]:
    """The cases of a document, of a sweep or of a single host. MalformedInput where it is not whole, or where a verdict, a
    largest error or a total is not what the runs give."""
    document, name = source.document, source.name
    if "cases" not in document:
        document = _of_now(document)
        conform(document, {"shape": SHAPE, "host?": str, **EMULATION}, name)
        host = document.get("host", name.removesuffix(".json"))
        return [ReportedCase(name, document["shape"], host, "", _report(document, name), None)]
    conform(document, CASES, name)
    found = []
    for index, item in enumerate(document["cases"]):
        where = f"{name}.cases[{index}]"
        report = None
        if item["refused"] is None or "comparisons" in item:
            item = _of_now(item)
            conform(item, EMULATION, where)
            report = _report(item, where)
        found.append(ReportedCase(name, item["shape"], item["host"], item["target_law"], report, item["refused"]))
    _check_totals(document["totals"], found, name)
    return found


def _of_now(item: dict[str, Any]) -> dict[str, Any]:
    """A report with the names of today: the misfit was called a residual."""
    return {"misfit": item["residual"], **item} if "residual" in item else item


def _report(item: dict[str, Any], where: str) -> EmulationReport:
    if not item["comparisons"]:
        refuse(where, "it has no runs")
    runs = tuple(
        Comparison(
            run["trial"], run["attention"], run["context"],
            math.nan if run["relative_error"] is None else run["relative_error"], run["bound"], run.get("estimate"),
        )
        for run in item["comparisons"]
    )  # fmt: skip
    report = EmulationReport(
        Notion(item["notion"]), item["tolerance"], runs, item["condition"], item["misfit"], item["engine"],
        item["precision"], item["unsolved"],
    )  # fmt: skip
    if any(run["relative_error"] is None for run in item["comparisons"]):
        if item["max_relative_error"] is not None:
            refuse(where, "a run has no finite error, and the largest is finite")
        return report
    if item["holds"] is not _said(report, item):
        refuse(where, f"holds is {json.dumps(item['holds'])}, and the errors and bounds of its runs say otherwise")
    if report.max_relative_error != item["max_relative_error"]:
        largest = report.max_relative_error
        refuse(where, f"the largest error is said to be {item['max_relative_error']}, and a run has {largest}")
    return report


def _said(report: EmulationReport, item: dict[str, Any]) -> bool | None:
    """What a document with these runs says of them; earlier ones took a bound that says nothing for agreement."""
    if "undecided" not in item:
        return report.holds is not False
    if item["undecided"] and item["holds"] is None and report.holds:  # equations beyond float64, the runs agree
        return None
    return report.holds


def _check_totals(said: dict[str, Any], cases: list[ReportedCase], name: str) -> None:
    reports = [case.report for case in cases if case.report is not None]
    counts = {
        "runs": sum(len(report.comparisons) for report in reports),
        "broken": sum(len(report.broken) for report in reports),
        "refused": sum(case.refusal is not None for case in cases) - said["failed"],
    }
    for key, count in counts.items():
        if said[key] != count and not (key == "broken" and _unknown(reports)):
            refuse(name, f"{key} is said to be {said[key]}, and its cases give {count}")
    largest = max((report.max_relative_error for report in reports), default=None)
    if not _unknown(reports) and said["max_relative_error"] != largest:
        refuse(name, f"the largest error is said to be {said['max_relative_error']}, and its cases give {largest}")


def _unknown(reports: Sequence[EmulationReport]) -> bool:
    return any(math.isnan(run.relative_error) for report in reports for run in report.comparisons)


def emulation_section(sources: Sequence[Source]) -> Section | None:
    """The section, None without such documents."""
    cases = [case for source in sources for case in cases_of(source)]
    if not cases:
        return None
    reports = [case.report for case in cases if case.report is not None]
    runs = [run for report in reports for run in report.comparisons]
    broken = [case for case in cases if case.report is not None and case.report.holds is False]
    failed = sum(int(source.document.get("totals", {}).get("failed", 0)) for source in sources)
    beyond = sum(len(report.broken) for report in reports)
    largest = max((run.relative_error for run in runs if not math.isnan(run.relative_error)), default=0.0)
    said = f"{counted(len(runs), 'emulation')}, {beyond} beyond the bound or the tolerance"
    said += f", largest relative error {short(largest)}"
    if silent := sum(len(report.open) for report in reports):
        said += f"; {counted(silent, 'run')} undecided, where the bound says nothing"
    if failed:
        said += f"; {counted(failed, 'host')} could not carry a target"
    problems = [_problem(case) for case in broken]
    if failed:
        problems.append(f"{counted(failed, 'host')} could not carry a target, which is a refutation: see the table")
    body = (
        paragraph(
            "A host runs beside the target that it carries. Across: how far their outputs are apart, relative to the "
            "largest output. Up: the a priori bound on it, computed before anything ran. A point below the diagonal "
            "would break its bound; a bound of 1 or more says nothing, and leaves the run undecided."
        )
        + alarm(problems)
        + _charts(cases)
        + table("Every host at every shape", _HEAD, map(_row, cases))
    )
    return Section("emulation", "Emulation: bound against observed error", body, ((not problems, said),))


def _problem(case: ReportedCase) -> str:
    assert case.report is not None
    where = f"{case.host} at {shape_text(case.shape)} ({case.source})"
    if case.report.unsolved is not None and case.report.tolerance is None:
        return f"{where}: E does not solve the equations: {case.report.unsolved}"
    return f"{where}: outputs differ in {len(case.report.broken)} of {counted(len(case.report.comparisons), 'run')}"


def _charts(cases: list[ReportedCase]) -> str:
    hosts = list(dict.fromkeys(case.host for case in cases if case.report is not None))
    shapes: dict[str, list[ReportedCase]] = {}
    for case in cases:
        if case.report is not None:
            shapes.setdefault(shape_text(case.shape), []).append(case)
    ran = [case.report for case in cases if case.report is not None]
    values = [
        value
        for report in ran
        for run in report.comparisons
        if _drawn(run)
        for value in (run.relative_error, run.bound or 0)
    ]
    if not values:
        return paragraph("No run has both an error above 0 and a bound: nothing to draw.")
    errors, limits = Axis.of(values[::2], log=True), Axis.of(values, log=True)
    across = Axis(errors.low, errors.high, True, "relative error")
    up = Axis(limits.low, limits.high, True, "bound")
    said = [(swatch(colour(k), MARKERS[k % len(MARKERS)]), host) for k, host in enumerate(hosts)]
    said.append((swatch("currentColor", "", dash="4 3"), "error = bound"))
    drawn = [_panel(name, members, hosts, across, up) for name, members in shapes.items()]
    return legend(said) + panels(drawn)


def _drawn(run: Comparison) -> bool:
    return run.bound is not None and run.bound > 0 and run.relative_error > 0


def _panel(name: str, cases: list[ReportedCase], hosts: list[str], across: Axis, up: Axis) -> str:
    panel = Panel(across, up, height=280.0)
    low, high = (across.low, across.low), (across.high, across.high)
    panel.band([(across.low, up.low), (across.high, up.low)], [low, high], "#c8452f")
    panel.line([low, high], "currentColor", dash="4 3", width=1)
    zeros = bare = shown = 0
    total = sum(len(case.report.comparisons) for case in cases if case.report is not None)
    every = -(-total // MOST_MARKS)
    for case in cases:
        assert case.report is not None
        series = hosts.index(case.host)
        for index, run in enumerate(case.report.comparisons):
            if not _drawn(run):
                zeros += run.relative_error == 0
                bare += run.bound is None
                continue
            if index % every and run.within:
                continue
            shown += 1
            assert run.bound is not None
            numbers = f"error {short(run.relative_error)}, bound {short(run.bound)}"
            said = f"{case.host}, {run.attention}, n = {run.context}: {numbers}"
            panel.mark(
                run.relative_error,
                run.bound,
                MARKERS[series % len(MARKERS)],
                colour(series),
                hollow=True,
                title=said,
                size=2.6,
            )
    notes = [f"{counted(shown, 'run')} drawn"]
    notes += [f"{zeros} without any error"] * (zeros > 0) + [f"{bare} without a bound"] * (bare > 0)
    return figure(f"(H, L, d, d_in) = {name}: {', '.join(notes)}", panel.drawing(f"Bound against error at {name}"))


_HEAD = (
    "host", "(H, L, d, d_in)", "targets", "m", "numbers", "runs", "largest error", "bound / error", "condition", "result",
)  # fmt: skip


def _row(case: ReportedCase) -> tuple[object, ...]:
    m = case.shape.get("m")
    start = (
        Markup(f"<code>{escape(case.host)}</code>"),
        shape_text(case.shape),
        case.law or "–",
        "–" if m is None else m,
    )
    report = case.report
    if report is None:
        return (*start, "–", "–", "–", "–", "–", f"not run: {case.refusal}")
    ratios = "–" if report.ratios is None else f"{short(report.ratios[0])} to {short(report.ratios[1])}"
    agreed = f"agree ({report.notion.value})" if report.holds else f"DIFFER in {len(report.broken)}"
    if report.holds is None:
        agreed = f"undecided: {report.undecided}"
    condition = "–" if report.condition is None else short(report.condition)
    return (
        *start,
        report.precision,
        len(report.comparisons),
        short(report.max_relative_error),
        ratios,
        condition,
        agreed,
    )
