"""The price of universality: seconds of a host's forward pass beside those of the target that it acts as.

| contestant | what runs |
|---|---|
| target | the random target itself, of width d_in |
| HOST m-wide | the host's dense matrices ({0,1} hosts too) |
| HOST index-map | gathers, {0,1} hosts only |
| HOST path-space | the d_in x M numbers E R_all only |

One run, the same target and one-hot tokens, causal softmax in `ChunkedAttention` for all, repetitions interleaved in turn;
medians, and ratios of medians. Processor time stands beside elapsed time on the CPU: with one BLAS thread a busy machine
disturbs it least (several threads wait for each other by spinning, which counts). E is found beforehand: only `Engine.run`
is timed, after a warm-up whose output is compared with the target's in float64.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utfproof.benchmarks.timing import (
    PAUSE,
    Seconds,
    check_counts,
    check_device,
    circumstances,
    library,
    table_shapes,
    timed,
    waiting,
)
from utfproof.constructions import build_host, construction, dense_bytes, resolve_m
from utfproof.constructions import hosts as buildable
from utfproof.errors import MalformedInput, NotDefined, Refuted, ResourceLimit, UtfproofError
from utfproof.ground.notions import Notion
from utfproof.ground.plots import picture_format, write_figure
from utfproof.ground.processes import as_child, run_child
from utfproof.ground.resources import require_memory
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape, matching_dimension

HOSTS = ("random", "sparse", "tied", "shared-key", "shared-query")
"""Hosts that run unless others are asked for."""
TARGET = "target"
REFERENCE = "random m-wide"
"""The contestants that times are divided by: the second is the paper's random host at m = M."""
LARGEST_ERROR = 1e-6
"""Relative error in float64 from which a contestant is not taken for the target's function any more."""
_SAMPLE = 0.1
"""Seconds that one repetition lasts at least, short runs being repeated within it."""
_MOST_CALLS = 50


@dataclass(frozen=True)
class EmulateSetting:
    """What to measure. shapes: names and (H, L, d, d_in). hosts: names of constructions. threads: of BLAS."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    context: int = 256
    device: str = "cpu"
    precision: str = "float64"
    threads: int = 2
    repetitions: int = 5
    seed: int = 0
    hosts: tuple[str, ...] = HOSTS
    max_memory: int | None = None

    def check(self) -> None:
        """MalformedInput or ResourceLimit, before anything is allocated."""
        from utfproof.emulation.engines import PRECISIONS
        from utfproof.ground.generator import check_seed

        check_counts(self.threads, self.repetitions, self.context)
        if self.precision not in PRECISIONS:
            raise MalformedInput(f"precision {self.precision!r} is unknown; choose {', '.join(PRECISIONS)}")
        if not self.hosts:
            raise MalformedInput(f"no hosts given; choose from {', '.join(buildable(printed=False))}")
        for name in self.hosts:
            if construction(name).notion is None:
                raise MalformedInput(f"{name} is no universal host; choose from {', '.join(buildable(printed=False))}")
        check_seed(self.seed)
        check_device(self.device)
        for name, dimensions in self.shapes:
            require_memory(self._memory(Shape(*dimensions)), f"the comparison at {name}", self.max_memory)

    def _memory(self, shape: Shape) -> int:
        """Bytes of all hosts of a shape side by side in dense form, of R_all and its factors, and of the widest run."""
        M, total, widest = matching_dimension(shape), 0, shape.d_in
        plain = self.device == "cpu" and self.precision == "float64"
        for name in self.hosts:
            entry = construction(name)
            try:
                m = resolve_m(entry, shape, None)
            except NotDefined:
                continue
            copies = 3 if entry.is_random and not plain else 1  # as drawn, rounded, placed
            total += copies * dense_bytes(shape, m, tied=entry.tied)
            total += 8 * m * M * (8 + shape.heads) if entry.is_random else 0
            widest = max(widest, m)
        run = 8 * (self.context * widest * (3 * shape.heads + 3) + 4 * max(1 << 22, 16 * self.context))
        return total + run


def run(
    names: Sequence[str],
    *,
    context: int = 256,
    device: str = "cpu",
    precision: str = "float64",
    threads: int = 2,
    repetitions: int = 5,
    seed: int = 0,
    hosts: Sequence[str] | None = None,
    max_memory: int | None = None,
) -> dict[str, Any]:
    """The document of one comparison at these table shapes, measured in a child process: BLAS fixes its threads when it
    is loaded.

    Raises MalformedInput for an unknown name, device or precision; ResourceLimit before allocating; Refuted where a
    contestant's output is not the target's (in float64, by more than LARGEST_ERROR).
    """
    setting = EmulateSetting(
        table_shapes(names),
        context,
        device,
        precision,
        threads,
        repetitions,
        seed,
        HOSTS if hosts is None else tuple(dict.fromkeys(hosts)),
        max_memory,
    )
    setting.check()
    document = json.loads(
        run_child("utfproof.benchmarks.emulate", json.dumps(asdict(setting)), threads, "choose a smaller shape")
    )
    if "error" in document:
        raise _ERRORS[document["error"]](document["message"])
    return document


# --- operations, counted from shapes ---------------------------------------------------------------------------


def multiplications(shape: Shape, engine: str, m: int, lumped: Any = None) -> int:
    """Multiplications per token by weights and embeddings, attention left out, dense products in full; gathers are free.

    `engine`: one of the engines, or "target" (of width d_in = m). In path space it is d_in M. lumped: what an index map runs.
    """
    H, L, d = shape.heads, shape.layers, shape.head_dim
    if engine == TARGET:
        return 4 * L * H * shape.d_in * d
    if engine == "path-space":
        return shape.d_in * matching_dimension(shape)
    if lumped is not None:
        return shape.d_in * (lumped.widths[0] + H * lumped.widths[1])
    return shape.d_in * m + L * H * m * (m + 2 * d) + m * shape.d_out


def attention_multiplications(shape: Shape, engine: str, m: int, lumped: Any, context: int) -> float:
    """Multiplications per token of logits and attention averages over the (n + 1)/2 keys that a token sees on average."""
    H, L = shape.heads, shape.layers
    keys = (context + 1) / 2
    if engine == "path-space":
        return keys * sum(H * (shape.head_dim + shape.d_in * H**layer) for layer in range(L))
    return keys * (L * H * shape.head_dim + (L * H * m if lumped is None else sum(lumped.averaged)))


# --- in the child process ------------------------------------------------------------------------------------


def measure(setting: EmulateSetting) -> dict[str, Any]:
    """Time all contestants in this process."""
    about = circumstances()
    results = [_one_shape(name, Shape(*dimensions), setting) for name, dimensions in setting.shapes]
    given = {key: value for key, value in asdict(setting).items() if key not in ("shapes", "max_memory")}
    return {
        "benchmark": "emulate",
        "setting": {**given, "hosts": list(setting.hosts), "attention": "causal", "inputs": "one-hot"},
        "blas": _library(setting),
        **about,
        "results": results,
    }


@dataclass
class _Contestant:
    """Something to time; `call` runs it once."""

    name: str
    host: str | None
    engine: str
    m: int
    notion: Notion | None
    call: Callable[[], Any]
    condition: float | None = None
    lumped: Any = None
    error: float = 0.0
    calls: int = 1


def _one_shape(name: str, shape: Shape, setting: EmulateSetting) -> dict[str, Any]:
    from utfproof.attention import ChunkedAttention, SoftmaxAttention
    from utfproof.emulation.compare import random_input, relative_error
    from utfproof.emulation.engines import Placement, changed
    from utfproof.emulation.laws import draw_target
    from utfproof.ground.arrays import to_numpy

    place = Placement(setting.device, setting.precision)
    kernel = ChunkedAttention(SoftmaxAttention(causal=True))
    target = draw_target(shape, setting.seed, max_memory=setting.max_memory)
    tokens = random_input(shape, setting.context, setting.seed, law="one-hot")
    expected = target.forward(tokens, kernel)
    x, placed = place.array(tokens), changed(target, place.array)

    def forward() -> Any:
        with place.strict():
            return placed.forward(x, kernel)

    contestants = [_Contestant(TARGET, None, TARGET, shape.d_in, None, forward)]
    absent: dict[str, str] = {}
    for host in setting.hosts:
        try:
            contestants += _of_host(host, shape, target, x, kernel, setting)
        except NotDefined as reason:
            absent[host] = str(reason)
    wait = waiting(setting.device)
    for contestant in contestants:
        output = contestant.call()
        output = to_numpy(output.double() if hasattr(output, "double") else output)
        contestant.error = relative_error(output, expected)
        _require_same(contestant, name, setting.precision)
        # the check was the warm-up: threads started, work space mapped
        contestant.calls = min(
            _MOST_CALLS, int(_SAMPLE / max(timed(contestant.call, contestant.calls, wait).elapsed, 1e-9)) + 1
        )
    times: dict[str, list[Seconds]] = {contestant.name: [] for contestant in contestants}
    for _ in range(setting.repetitions):
        for contestant in contestants:
            time.sleep(PAUSE)
            times[contestant.name].append(timed(contestant.call, contestant.calls, wait))
    entries = [_entry(contestant, shape, setting, times) for contestant in contestants]
    return {
        "shape": name,
        "dimensions": [shape.heads, shape.layers, shape.head_dim, shape.d_in],
        "matching_dimension": matching_dimension(shape),
        "absent": absent,
        "same_function": _same_function(contestants),
        "contestants": entries,
    }


def _of_host(name: str, shape: Shape, target: Any, x: Any, kernel: Any, setting: EmulateSetting) -> list[_Contestant]:
    """The engines of one host, embedded for this target. NotDefined where the construction is not."""
    from utfproof.emulation.engines import Engine, Placement, changed
    from utfproof.ground.arrays import to_numpy
    from utfproof.matching import Embedder

    place = Placement(setting.device, setting.precision)
    drawn = build_host(name, shape, seed=setting.seed, max_memory=setting.max_memory)
    # a lower precision means another host: its weights rounded once, and E found for those
    host = drawn if setting.precision == "float64" else changed(drawn, place.rounded)
    embedder = Embedder(host, max_memory=setting.max_memory)
    embedding = embedder.embed(target)
    E = to_numpy(embedding.E)
    found = []
    for engine in ("m-wide", "path-space") if construction(name).is_random else ("m-wide", "index-map", "path-space"):
        runner = Engine(embedder, engine, place)
        call = _caller(runner, x, E, kernel)
        label = f"{name} {engine}"
        found.append(
            _Contestant(label, name, engine, host.m, embedding.notion, call, embedding.condition, runner.lumped)
        )
    return found


def _caller(engine: Any, x: Any, E: Any, kernel: Any) -> Callable[[], Any]:
    prepared = engine.prepare(E)
    return lambda: engine.run(x, prepared, kernel)


def _require_same(contestant: _Contestant, shape: str, precision: str) -> None:
    """Refuted where this is not the target's function, up to the rounding of float64 (lower precisions: where it is NaN)."""
    limit = LARGEST_ERROR if precision == "float64" else sys.float_info.max
    if not contestant.error <= limit:
        known = "" if contestant.condition is None else f" (condition of its embedding {contestant.condition:.3g})"
        raise Refuted(
            f"{contestant.name} at {shape} does not act as the target: relative error {contestant.error:.3g}{known}, "
            f"at most {limit:.3g} is allowed; no times are reported"
        )


def _entry(
    contestant: _Contestant, shape: Shape, setting: EmulateSetting, times: dict[str, list[Seconds]]
) -> dict[str, Any]:
    counted = (shape, contestant.engine, contestant.m, contestant.lumped)
    return {
        "name": contestant.name,
        "host": contestant.host,
        "engine": contestant.engine,
        "m": contestant.m,
        "notion": None if contestant.notion is None else contestant.notion.value,
        "relative_error": contestant.error,
        "condition": contestant.condition,
        "calls": contestant.calls,
        "multiplications_per_token": multiplications(*counted),
        "attention_multiplications_per_token": attention_multiplications(*counted, setting.context),
        **summary(contestant.name, setting.context, times, processor=setting.device == "cpu"),
    }


def summary(name: str, context: int, times: dict[str, list[Seconds]], *, processor: bool) -> dict[str, Any]:
    """Seconds of one contestant, their median and least, tokens per second (of the median), and ratios of medians to the
    target and to the random m-wide host; of processor times too where they say anything."""
    median = {other: statistics.median(s.elapsed for s in values) for other, values in times.items()}
    used = {other: statistics.median(s.processor for s in values) for other, values in times.items()}
    ratios = {}
    for other in (TARGET, REFERENCE):
        if other in times:
            ratios[f"time over {other}"] = median[name] / median[other]
            if processor and used[other] > 0:
                ratios[f"processor time over {other}"] = used[name] / used[other]
    return {
        "seconds": [s.elapsed for s in times[name]],
        "processor_seconds": [s.processor for s in times[name]] if processor else None,
        "median_seconds": median[name],
        "best_seconds": min(s.elapsed for s in times[name]),
        "median_processor_seconds": used[name] if processor else None,
        "tokens_per_second": context / median[name],
        "ratios": ratios,
    }


def _same_function(contestants: list[_Contestant]) -> list[dict[str, Any]]:
    """Which contestants are one function, and under which attention; rounding differs throughout."""
    matching = [c for c in contestants if c.notion is Notion.MATCHING]
    groups = [
        ("attention that depends on the logits alone, every input and context", contestants),
        ("every attention map, every input and context", [contestants[0], *matching]),
        ("the same numbers too, E R_all = W_all", [c for c in matching if c.engine == "path-space"]),
    ]
    return [{"scope": scope, "contestants": [c.name for c in group]} for scope, group in groups if len(group) > 1]


def _library(setting: EmulateSetting) -> str:
    if setting.device != "cpu" or setting.precision != "bfloat16":
        return library(setting.device)
    import torch

    return f"torch {torch.__version__} on the CPU"


# --- for people ----------------------------------------------------------------------------------------------


def plot(document: dict[str, Any], path: str) -> None:
    """Tokens per second of every contestant, one panel per shape; MalformedInput where matplotlib is missing."""
    picture_format(path)
    from matplotlib.figure import Figure

    results = document["results"]
    height = 0.3 * sum(len(result["contestants"]) for result in results) + len(results)
    figure = Figure(figsize=(8, height), layout="constrained")
    ratios = [len(result["contestants"]) for result in results]
    panels = figure.subplots(len(results), 1, squeeze=False, height_ratios=ratios)[:, 0]
    for axes, result in zip(panels, results, strict=True):
        entries = result["contestants"][::-1]
        labels = [f"{entry['name']}, m = {entry['m']}" if entry["host"] else entry["name"] for entry in entries]
        axes.barh(labels, [entry["tokens_per_second"] for entry in entries])
        axes.set_xscale("log")
        axes.set_title(f"{result['shape']}, (H, L, d, d_in) = ({', '.join(map(str, result['dimensions']))})")
        axes.grid(alpha=0.3, axis="x")
    setting = document["setting"]
    panels[-1].set_xlabel(f"tokens/s, context {setting['context']}, {setting['precision']}, {setting['device']}")
    write_figure(figure, path)


_ERRORS: dict[str, type[UtfproofError]] = {error.__name__: error for error in (Refuted, ResourceLimit, MalformedInput)}


def main() -> None:
    """Read a setting on standard input, write the document, or what was wrong, to standard output."""
    given = json.load(sys.stdin)
    shapes = tuple((name, tuple(dimensions)) for name, dimensions in given["shapes"])
    warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)  # the parent has warned
    try:
        document = measure(EmulateSetting(**{**given, "shapes": shapes, "hosts": tuple(given["hosts"])}))
    except UtfproofError as error:
        kind = next((name for name, base in _ERRORS.items() if isinstance(error, base)), "MalformedInput")
        document = {"error": kind, "message": str(error)}
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    with as_child():
        main()
