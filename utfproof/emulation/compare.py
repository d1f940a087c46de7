"""Run targets and hosts side by side and measure how far their outputs are apart, against the bound of docs/emulation.md.

The host runs in the engine, on the device and in the precision asked for; the target always in float64, so a lower
precision is compared with the truth and not with its own rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, ChunkedAttention, SeededAttention
from utfproof.constructions import CONSTRUCTIONS
from utfproof.emulation.engines import Engine, Placement, changed
from utfproof.emulation.given import equation_gap
from utfproof.emulation.observe import Observer
from utfproof.emulation.predict import Predictor, attention_matching, has_bound
from utfproof.errors import MalformedInput, NotDefined
from utfproof.matching import Embedder, Embedding
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.util.arrays import Array, one_line, to_numpy
from utfproof.util.generator import integer_matrix
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory

Kernels = Sequence[tuple[str, AttentionKernel | Callable[[int], AttentionKernel]]]
"""Names and kernels; a function of the context length where the kernel depends on it (matrices from outside)."""

INPUTS = ("uniform", "one-hot", "sum-one")


@dataclass(frozen=True)
class Comparison:
    """One run: which target, kernel and context length n.

    relative_error: max |Z - Y| / max |Y| over the outputs Y of the target. bound: what rounding cannot make it exceed;
    estimate: what rounding is not expected to make it exceed; None where they were not computed.
    """

    trial: int
    attention: str
    context: int
    relative_error: float
    bound: float | None = None
    estimate: float | None = None

    @property
    def ratio(self) -> float | None:
        """Bound over observed error; None without a bound or an error, or where it is no number of float64."""
        if self.bound is None or not self.relative_error > 0:
            return None
        found = self.bound / self.relative_error
        return found if isfinite(found) else None

    @property
    def within(self) -> bool:
        """Whether the error is within the bound, where there is one."""
        return self.bound is None or not self.relative_error > self.bound

    @property
    def bounded(self) -> bool:
        """Whether the bound says something about the outputs: 1 or more, or beyond float64, says nothing."""
        return self.bound is not None and self.bound < 1

    @property
    def rests_on_estimate(self) -> bool:
        """Whether only the estimate says something about the outputs."""
        return not self.bounded and self.estimate is not None and self.estimate < 1

    def agrees(self, tolerance: float | None) -> bool | None:
        """Whether the outputs agree. False: rounding does not explain the error, or it exceeds the tolerance. None where
        that is not known: numbers are beyond float64, the error exceeds the estimate alone, or nothing says anything."""
        if not isfinite(self.relative_error):
            return None
        if not self.within or (tolerance is not None and self.relative_error > tolerance):
            return False
        if self.bounded or tolerance is not None:
            return True
        return True if self.rests_on_estimate and self.relative_error <= self.estimate else None  # type: ignore[operator]

    def undecided(self, tolerance: float | None) -> str | None:
        """Why it is not known whether the outputs agree."""
        if self.agrees(tolerance) is not None:
            return None
        if not isfinite(self.relative_error):
            return "an output is beyond the run's numbers"
        if self.bound is None:
            return "there is neither a bound nor a tolerance"
        if self.rests_on_estimate:
            return "the bound is 1 or more, and the error exceeds the estimate"
        return "the bound says nothing, it is " + ("1 or more" if isfinite(self.bound) else "beyond float64")


@one_line
@dataclass(frozen=True)
class EmulationReport:
    """All comparisons of one host, the notion its embeddings achieve, and whether every error is within its bound, and
    within the tolerance where one was given. `unsolved`: where an E given by the user misses the equations by more than
    rounding explains; decisive unless a tolerance was given. `unknown`: where float64 does not hold what the equations ask.
    `inputs`: those that the notion is about, where these are not all."""

    @property
    def sense(self) -> str:
        """The notion, and the inputs that it is about."""
        return self.notion.value + (f", on {self.inputs}" if self.inputs else "")

    notion: Notion
    tolerance: float | None
    comparisons: tuple[Comparison, ...]
    condition: float | None
    relative_residual: float | None
    engine: str = "m-wide"
    precision: str = "float64"
    unsolved: str | None = None
    unknown: str | None = None
    inputs: str = ""

    @property
    def max_relative_error(self) -> float:
        """The largest error; NaN if any is NaN."""
        return float(np.max([c.relative_error for c in self.comparisons]))

    @property
    def broken(self) -> tuple[Comparison, ...]:
        """Runs whose error exceeds the bound or the tolerance."""
        return tuple(c for c in self.comparisons if c.agrees(self.tolerance) is False)

    @property
    def open(self) -> tuple[Comparison, ...]:
        """Runs of which it is not known whether they agree."""
        return tuple(c for c in self.comparisons if c.agrees(self.tolerance) is None)

    @property
    def ratios(self) -> tuple[float, float] | None:
        """Smallest and largest bound / observed error; None without bounds."""
        known = [c.ratio for c in self.comparisons if c.ratio is not None]
        return (min(known), max(known)) if known else None

    @property
    def rests_on_estimate(self) -> bool:
        """Whether the verdict rests on the estimate: without a tolerance, some bound says nothing and its estimate does."""
        return self.tolerance is None and any(c.rests_on_estimate for c in self.comparisons)

    @property
    def holds(self) -> bool | None:
        """Every error within its bound and the tolerance, and E a solution unless only a tolerance counts; None where that is
        not known."""
        judged = self.tolerance is None
        if self.broken or (judged and self.unsolved is not None):
            return False
        return None if self.open or (judged and self.unknown is not None) else True

    @property
    def undecided(self) -> str | None:
        """Why it is not known whether host and target agree."""
        if self.holds is not None:
            return None
        if not self.open:
            return f"E R_all - W_all is beyond float64: {self.unknown}"
        return f"{self.open[0].undecided(self.tolerance)}, in {len(self.open)} of {len(self.comparisons)} runs"

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "notion": self.notion.value,
            **({"inputs": self.inputs} if self.inputs else {}),
            "holds": self.holds,
            "rests_on": "estimate" if self.rests_on_estimate else "bound" if self.tolerance is None else "tolerance",
            "undecided": len(self.open),
            "engine": self.engine,
            "precision": self.precision,
            "max_relative_error": self.max_relative_error,
            "tolerance": self.tolerance,
            "bound_over_error": None if self.ratios is None else list(self.ratios),
            "condition": self.condition,
            "relative_residual": self.relative_residual,
            "unsolved": self.unsolved,
            "comparisons": [asdict(c) for c in self.comparisons],
        }


def relative_error(output: Array, reference: Array) -> float:
    """max |output - reference| / max |reference| (absolute where the reference is zero throughout)."""
    output, reference = to_numpy(output), to_numpy(reference)
    scale = float(np.max(np.abs(reference), initial=0.0))
    error = float(np.max(np.abs(output - reference), initial=0.0))
    return error / scale if scale else error


def random_input(shape: Shape, context: int, seed: int, trial: int = 0, law: str = "uniform") -> np.ndarray:
    """X [n, d_in] from the seeded generator: uniform on (-1, 1), one-hot tokens ("one-hot"), or uniform but for the last
    column, which makes each row sum to 1 ("sum-one")."""
    numerators = integer_matrix(seed, "X", context, shape.d_in, law="uniform", layer=trial, head=context)
    if law in ("uniform", "sum-one"):
        drawn = numerators.astype(np.float64) * 2.0**-32
        if law == "sum-one":
            drawn[:, -1] = 1 - drawn[:, :-1].sum(axis=1)
        return drawn
    if law != "one-hot":
        raise MalformedInput(f"inputs {law!r} are unknown; choose {', '.join(INPUTS)}")
    tokens = np.argmax(numerators, axis=1)
    return np.eye(shape.d_in)[tokens]


def require_compatible(host: Universal, kernels: Iterable[tuple[str, Any]]) -> None:
    """MalformedInput for a kernel that an attention-matching host cannot serve."""
    if not attention_matching(host):
        return
    for name, kernel in kernels:
        if not getattr(kernel, "logits_only", True):
            raise MalformedInput(
                f"{host.construction} matches attention logits only, and attention {name!r} looks at queries and keys "
                "separately (RoPE): use a host that is universal by matching (sparse, tied, random)"
            )


@dataclass(frozen=True)
class CompareSetting:
    """How to run: engine (None: the host's own), device, precision, the inputs' law, and whether the bound is computed."""

    engine: str | None = None
    device: str = "cpu"
    precision: str = "float64"
    inputs: str = "one-hot"
    bounds: bool = True


def compare(
    host: Universal,
    targets: Sequence[Target | BiasedTarget] | Callable[[int], Target | BiasedTarget],
    kernels: Kernels,
    contexts: Sequence[int],
    *,
    trials: int = 1,
    seed: int = 0,
    setting: CompareSetting | None = None,
    tolerance: float | None = None,
    embedding: np.ndarray | None = None,
    max_memory: int | None = None,
    progress: Callable[[], None] | None = None,
) -> EmulationReport:
    """Embed each target once, then run it and the host on the same inputs for every kernel and context length.

    One host and one E serve every n and kernel. `embedding` uses this E instead of solving for one; it is checked against the
    equations. Raises what `Embedder.embed` raises, MalformedInput for a kernel the host cannot
    serve, ResourceLimit before allocating.
    """
    setting = setting or CompareSetting()
    require_compatible(host, kernels)
    if embedding is not None and not has_bound(host) and (tolerance is None or host.mlp is None):
        raise NotDefined(
            f"no bound is known for {host.construction or 'this host'}: its embedding cannot be given"
            + (" without --tolerance" if host.mlp is not None else "")
        )
    served_inputs = _served_inputs(host, setting.inputs)
    if embedding is not None and trials != 1:
        raise MalformedInput(f"an embedding belongs to one target, got {trials} trials")
    place = Placement(setting.device, setting.precision)
    # a lower precision means another host: its weights rounded once, and E found for those
    used = host if setting.precision == "float64" else changed(host, place.rounded)
    embedder = Embedder(used, max_memory=max_memory)
    engine = Engine(embedder, setting.engine, place)
    drawn = any(isinstance(kernel, SeededAttention) for _, kernel in kernels)
    for context in contexts:
        needed = engine.memory(context) + (SeededAttention.memory(context) if drawn else 0)
        require_memory(needed, f"a context of {context} at m = {host.m} ({engine.name})", max_memory)
    predictor = Predictor(engine) if has_bound(host) and (setting.bounds or embedding is not None) else None
    unsolved = unknown = None
    results: list[Comparison] = []
    found: list[Embedding] = []
    for trial in range(trials):
        model = targets(trial) if callable(targets) else targets[trial]
        found.append(_embedding(embedder, model, embedding))
        pair = _Pair(engine, predictor, model, found[-1], trial, seed, setting)
        if embedding is not None and predictor is not None:
            unsolved, unknown = _equations(host, pair)
            if unsolved is None and unknown is None:
                found[-1] = replace(found[-1], notion=_notion(host))
        for result in pair.runs(kernels, contexts):
            results.append(result)
            if progress is not None:
                progress()
    conditions, relative_residuals = [e.condition for e in found], [e.relative_residual for e in found]
    return EmulationReport(
        found[-1].notion,
        tolerance,
        tuple(results),
        _largest(conditions),
        _largest(relative_residuals),
        engine.name,
        setting.precision,
        unsolved,
        unknown,
        served_inputs,
    )


def _served_inputs(host: Universal, law: str) -> str:
    """The inputs that the host serves its targets on, "" for all; NotDefined for a law of others."""
    entry = CONSTRUCTIONS.get(host.construction)
    served = "" if entry is None else entry.inputs
    if served and law == "uniform":
        raise NotDefined(f"{host.construction} serves {served}; choose --inputs one-hot or sum-one")
    return served


def _equations(host: Universal, pair: _Pair) -> tuple[str | None, str | None]:
    """`unsolved` and `unknown` of an E given by the user: about E and the host themselves, not about what a run in a lower
    precision makes of them."""
    prediction = pair.prediction
    if prediction is None:
        return "E is not finite", None
    if pair.setting.precision != "float64" and isinstance(pair.target, Target):
        whole = Engine(Embedder(host, max_memory=pair.engine.embedder.max_memory))
        prediction = Predictor(whole).of(pair.target, pair.E)
    gap = equation_gap(prediction)
    if not gap.known:
        return None, str(gap)
    return None if gap.explained else str(gap), None


def _notion(host: Universal) -> Notion:
    return Notion.ATTENTION_MATCHING if attention_matching(host) else Notion.MATCHING


def _embedding(embedder: Embedder, target: Target | BiasedTarget, given: np.ndarray | None) -> Embedding:
    if given is None:
        return embedder.embed(target)
    expected = (embedder.host.shape.d_in, embedder.host.m)
    if given.shape != expected:
        raise MalformedInput(f"E has shape {list(given.shape)}, expected {list(expected)}")
    return Embedding(given, Notion.FUNCTIONAL, "given")


class _Pair:
    """A target with its embedding, in one engine."""

    def __init__(
        self,
        engine: Engine,
        predictor: Predictor | None,
        target: Target | BiasedTarget,
        embedding: Embedding,
        trial: int,
        seed: int,
        setting: CompareSetting,
    ) -> None:
        self.engine, self.setting, self.seed = engine, setting, seed
        self.target, self.trial = target, trial
        self.E = np.asarray(to_numpy(embedding.E), dtype=np.float64)
        self.reference = Placement(setting.device, "float64")
        self.model = changed(target, self.reference.array)
        self.prepared = engine.prepare(self.E)
        self.prediction = None
        if predictor is not None and isinstance(target, Target) and np.isfinite(self.E).all():
            self.prediction = predictor.of(target, self.E)

    def runs(self, kernels: Kernels, contexts: Sequence[int]) -> Iterator[Comparison]:
        for context in contexts:
            x = random_input(self.engine.host.shape, context, self.seed, self.trial, self.setting.inputs)
            for name, entry in kernels:
                kernel = entry(context) if not hasattr(entry, "logits_only") else entry
                yield self._run(name, context, kernel, x)

    def _run(self, name: str, context: int, kernel: Any, x: np.ndarray) -> Comparison:
        attended = ChunkedAttention(kernel)
        observed = None if self.prediction is None else Observer(attended)
        output = to_numpy(_double(self.engine.run(self.engine.place.array(x), self.prepared, attended)))
        with self.reference.strict():
            expected = to_numpy(self.model.forward(self.reference.array(x), observed or attended))
        bound = estimate = None
        if self.prediction is not None and observed is not None:
            # what the host is given is X rounded to its precision; that rounding is counted like E's
            bound, estimate = self.prediction.bounds(observed, kernel, x, expected)
        return Comparison(self.trial, name, context, relative_error(output, expected), bound, estimate)


def _double(array: Array) -> Array:
    return array.double() if hasattr(array, "double") else array


def _largest(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None
