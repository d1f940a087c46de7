"""The report's part about benchmarks: ratios of times as bars, and the times themselves as tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from utfproof.ground.forms import conform
from utfproof.reporting.document import counted
from utfproof.reporting.documents import COMMANDS
from utfproof.reporting.page import escape
from utfproof.reporting.report_charts import Bar, bars, short
from utfproof.reporting.report_parts import Section, alarm, figure, folded, panels, paragraph, table
from utfproof.reporting.report_read import Source, refuse

_TARGET, _OURS, _WIDE = "target", "utfproof", "random wide"


def bench_section(sources: Sequence[Source]) -> Section | None:
    """The section, None without such documents. MalformedInput where one is not whole, or where a median or a ratio is not
    what its times give, or contestants are said to agree about ranks that differ."""
    if not sources:
        return None
    parts, lines = [], []
    for source in sources:
        which = source.document["benchmark"]
        conform(source.document, COMMANDS[f"bench {which}"], source.name)
        fine, line, markup = _PARTS[which](source)
        lines.append((fine, f"{line} ({_device(source.document)})"))
        parts.append(f"<h3>{escape(source.name)}</h3>{paragraph(_circumstances(source.document))}{markup}")
    return Section("bench", "Speed", "".join(parts), tuple(lines))


def _device(document: dict[str, Any]) -> str:
    """cpu, cuda: two documents of one command may differ in nothing else that the head of the page says."""
    return str(document.get("setting", document).get("device", "cpu"))  # `bench all` has no choice


def _circumstances(document: dict[str, Any]) -> str:
    known = {name: document.get(name) for name in ("processor", "machine", "cores", "accelerator", "load_average")}
    said = [f"{name.replace('_', ' ')} {value}" for name, value in known.items() if isinstance(value, str | int)]
    load = known["load_average"]
    if isinstance(load, float):
        said.append(f"load average {short(load)}")
    setting = document.get("setting")
    if isinstance(setting, dict):
        said += [f"{name} {value}" for name, value in setting.items() if isinstance(value, str | int)]
    elif isinstance(document.get("device"), str):
        said.append(f"device {document['device']}")
    blas = document.get("blas", {})  # on a GPU the only name that the device has in two kinds of documents
    said += (
        [f"BLAS {blas}"] if isinstance(blas, str) else [f"BLAS of {name} {library}" for name, library in blas.items()]
    )
    return f"{', '.join(said)}. Medians of interleaved repetitions." if said else "Medians of interleaved repetitions."


def _positive(values: Mapping[str, float], source: str) -> None:
    for name, value in values.items():
        if not value > 0:
            refuse(source, f"the median time of {name} is {value}")


def _same(said: float, found: float, what: str, source: str) -> None:
    if not math.isclose(said, found, rel_tol=1e-9, abs_tol=1e-300):
        refuse(source, f"{what} is said to be {said:.6g}, and its times give {found:.6g}")


def _medians(entry: dict[str, Any], where: str, source: str) -> dict[str, float]:
    """Medians by contestant, recomputed."""
    if set(entry["median_seconds"]) != set(entry["seconds"]):
        refuse(source, f"medians and times {where} are of different contestants")
    for name, times in entry["seconds"].items():
        if not times:
            refuse(source, f"{name} has no times {where}")
        _same(entry["median_seconds"][name], statistics.median(times), f"the median of {name} {where}", source)
    _positive(entry["median_seconds"], source)
    return dict(entry["median_seconds"])


def _exact(source: Source) -> tuple[bool, str, str]:
    document, name = source.document, source.name
    drawn, rows, wrong = [], [], []
    for entry in document["results"]:
        where = f"at n = {entry['n']}"
        median = _medians(entry, where, name)
        if entry["agree"] != (len(set(entry["ranks"].values())) <= 1):
            refuse(name, f"agree is {str(entry['agree']).lower()} {where}, and the ranks say otherwise")
        if not entry["agree"]:
            wrong.append(f"{name}: contestants disagree about the rank {where}")
        if _OURS in median:
            if "flint" in median and "flint over our time" in entry["ratios"]:
                said = entry["ratios"]["flint over our time"]
                _same(said, median["flint"] / median[_OURS], f"flint over our time {where}", name)
            found = [_bar(other, seconds, median[_OURS], _OURS, k) for k, (other, seconds) in enumerate(median.items())]
            drawn.append(
                figure(
                    f"n = {entry['n']}: time over that of utfproof, logarithmic",
                    bars(found, f"Times over utfproof's {where}"),
                )
            )
        for other, seconds in median.items():
            rows.append((entry["n"], other, _time(seconds), entry["ranks"].get(other, "–")))
    sizes = ", ".join(str(entry["n"]) for entry in document["results"])
    line = (
        f"rank modulo {document['setting']['prime']} at n = {sizes}: {'contestants DISAGREE' if wrong else 'all agree'}"
    )
    shown = folded("the times", table(f"{name}: median times", ("n", "contestant", "median", "rank"), rows))
    return not wrong, line, alarm(wrong) + panels(drawn) + shown


def _bar(name: str, seconds: float, reference: float, other: str, series: int) -> Bar:
    ratio = seconds / reference
    return Bar(name, ratio, series, f"{name}: {_time(seconds)}, {short(ratio)} times that of {other}")


def _time(seconds: float) -> str:
    return f"{short(seconds)} s" if seconds >= 1 else f"{short(1000 * seconds)} ms"


def _certify(source: Source) -> tuple[bool, str, str]:
    document, name = source.document, source.name
    drawn, rows = [], []
    for entry in document["results"]:
        median = _medians(entry, f"at {entry['shape']}", name)
        found = [Bar(step, seconds, k, f"{step}: {_time(seconds)}") for k, (step, seconds) in enumerate(median.items())]
        caption = f"{entry['shape']}, m = {entry['m']}: seconds"
        drawn.append(figure(caption, bars(found, f"Seconds at {entry['shape']}", log=False, unit=" s")))
        rows += [(entry["shape"], entry["m"], step, _time(seconds)) for step, seconds in median.items()]
    line = f"dense rank certificates made and checked at {counted(len(document['results']), 'shape')}"
    shown = folded("the times", table(f"{name}: median times", ("shape", "m", "step", "median"), rows))
    return True, line, panels(drawn) + shown


def _emulate(source: Source) -> tuple[bool, str, str]:
    document, name = source.document, source.name
    drawn, rows, ratios = [], [], []
    for result in document["results"]:
        where = f"at {result['shape']}"
        median = _contestants(result["contestants"], where, name)
        for entry in result["contestants"]:
            for other, ratio in entry["ratios"].items():
                word, _, reference = other.partition("time over ")
                if word == "" and reference in median:
                    known = median[entry["name"]] / median[reference]
                    _same(ratio, known, f"{entry['name']}, {other} {where}", name)
            _same(
                entry["tokens_per_second"], document["setting"]["context"] / median[entry["name"]],
                f"tokens per second of {entry['name']} {where}", name,
            )  # fmt: skip
            over = median[entry["name"]] / median[_TARGET] if _TARGET in median else None
            rows.append(
                (
                    result["shape"],
                    entry["name"],
                    entry["m"],
                    f"{entry['tokens_per_second']:,.0f}",
                    short(over) if over else "–",
                )
            )
        if _TARGET in median:
            hosts = list(dict.fromkeys(entry["name"].split(" ")[0] for entry in result["contestants"]))
            found = [
                _bar(
                    entry["name"],
                    median[entry["name"]],
                    median[_TARGET],
                    _TARGET,
                    hosts.index(entry["name"].split(" ")[0]),
                )
                for entry in result["contestants"]
                if entry["name"] != _TARGET
            ]
            ratios += [bar.value for bar in found]
            drawn.append(
                figure(
                    f"{result['shape']}: time over the target's, logarithmic",
                    bars(found, f"Times over the target's {where}"),
                )
            )
        rows += [(result["shape"], left, "–", "–", f"absent: {why}") for left, why in result["absent"].items()]
    line = f"the price of universality at {counted(len(document['results']), 'shape')}"
    if ratios:
        line += f": {short(min(ratios))} to {short(max(ratios))} times the target's time"
    head = ("shape", "contestant", "m", "tokens/s", "time over the target's")
    return True, line, panels(drawn) + folded("the speeds", table(f"{name}: medians", head, rows))


def _contestants(entries: list[dict[str, Any]], where: str, source: str) -> dict[str, float]:
    for entry in entries:
        if not entry["seconds"]:
            refuse(source, f"{entry['name']} has no times {where}")
        _same(
            entry["median_seconds"],
            statistics.median(entry["seconds"]),
            f"the median of {entry['name']} {where}",
            source,
        )
    found = {entry["name"]: entry["median_seconds"] for entry in entries}
    if len(found) < len(entries):
        refuse(source, f"a contestant stands there twice {where}")
    _positive(found, source)
    return found


def _train(source: Source) -> tuple[bool, str, str]:
    document, name = source.document, source.name
    drawn, rows, fastest = [], [], []
    for result in document["results"]:
        where = f"of {result['task']}"
        median = _contestants(result["contestants"], where, name)
        for entry in result["contestants"]:
            rows.append((result["task"], entry["name"], entry["m"], _time(median[entry["name"]])))
            said = entry.get(f"speed over {_WIDE}")
            if said is not None and _WIDE in median:
                _same(said, median[_WIDE] / median[entry["name"]], f"the speed of {entry['name']} {where}", name)
        if _WIDE in median:
            found = [
                Bar(other, median[_WIDE] / seconds, k, f"{other}: a step takes {_time(seconds)}")
                for k, (other, seconds) in enumerate(median.items())
            ]
            fastest += [bar.value for bar in found]
            drawn.append(
                figure(
                    f"{result['task']}: speed over {_WIDE}, logarithmic",
                    bars(found, f"Steps a second {where} over {_WIDE}"),
                )
            )
    line = f"training steps of {counted(len(document['results']), 'task')}"
    if fastest:
        line += f": up to {short(max(fastest))} times the speed of the m-wide step"
    return (
        True,
        line,
        panels(drawn) + folded("the times", table(f"{name}: a step", ("task", "contestant", "m", "median"), rows)),
    )


def _all(source: Source) -> tuple[bool, str, str]:
    document, name = source.document, source.name
    drawn, rows = [], []
    for k, entry in enumerate(document["results"]):
        what = f"{entry['work']}, {entry['size']}"
        where = f"{what}, beside {entry['beside']}"
        if entry["ratios"].keys() != entry["processor_seconds"].keys():
            refuse(name, f"ratios and times are of different states: {where}")
        for state, pairs in entry["processor_seconds"].items():
            if not pairs or not all(len(pair) == 2 and min(pair) > 0 for pair in pairs):
                refuse(name, f"no whole pairs of times: {where}")
            _same(entry["ratios"][state], statistics.median(a / b for a, b in pairs), f"the ratio of {where}", name)
        found = {state: short(ratio) for state, ratio in entry["ratios"].items()}
        drawn += [Bar(what, ratio, k, f"{where}: {short(ratio)}") for ratio in list(entry["ratios"].values())[:1]]
        rows.append(
            (entry["work"], entry["size"], entry["beside"], *(found.get(state, "–") for state in ("alone", "busy")))
        )
    head = ("work", "size", "beside", "ratio", "with a busy process a core")
    shown = folded("the ratios", table(f"{name}: medians over pairs", head, rows))
    caption = "processor time over that of a floor or a peer, logarithmic"
    line = f"{counted(len(rows), 'piece')} of work beside floors and peers"
    return True, line, figure(caption, bars(drawn, "Ratios to floors and peers")) + shown


_PARTS: dict[str, Callable[[Source], tuple[bool, str, str]]] = {
    "exact": _exact,
    "certify": _certify,
    "emulate": _emulate,
    "train": _train,
    "all": _all,
}
