"""The bound and the estimate for one host, engine and target: everything that docs/emulation.md needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from utfproof.constructions import CONSTRUCTIONS
from utfproof.emulation.bound import (
    DOUBLE,
    DOUBLE_TINY,
    ESTIMATE,
    OUTPUT,
    RIGOROUS,
    DenseModel,
    Inputs,
    Reading,
    Rule,
    as_host,
    embedding_noise,
    index_map_noise,
    reading_blocks,
    readings,
)
from utfproof.emulation.engines import Engine, ReadHost
from utfproof.emulation.norms import length, longest, spectral_norm
from utfproof.emulation.observe import Observer
from utfproof.emulation.propagation import Errors, RunSizes, TargetGains, propagated, target_gains
from utfproof.errors import MalformedInput, NotDefined
from utfproof.matching.equations import read_as
from utfproof.systems import Target, Universal
from utfproof.util.arrays import to_numpy
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix

_ABOVE = 1 + 2.0**-10
"""The formulas are themselves computed in float64, and rows of given matrices sum to 1 within 1e-6."""


class Bounds(NamedTuple):
    """Of max |Z - Y| / max |Y|: what rounding cannot exceed, and what it is not expected to exceed."""

    bound: float
    estimate: float


def attention_matching(host: Universal) -> bool:
    """Whether a host's embeddings make logits agree, and not queries and keys."""
    entry = CONSTRUCTIONS.get(host.construction)
    return entry is not None and entry.notion is Notion.ATTENTION_MATCHING


def has_bound(host: Universal) -> bool:
    """Whether the bound is known: attention alone, with queries and keys that are the target's or forms of its stream."""
    return host.mlp is None and (not attention_matching(host) or CONSTRUCTIONS[host.construction].readers is not None)


def reading_target(host: Universal, target: Target) -> Target:
    """The target with W_Q and W_K replaced by what the host's queries and keys are of the target's stream (padded with zero
    columns): the same for matching, else the construction's forms."""
    if not attention_matching(host):
        return target
    if target.shape.residual != host.shape.residual:
        more = "with" if host.shape.residual else "without"
        raise NotDefined(
            f"{host.construction} here is read {more} a residual stream only, got a target of the other kind"
        )
    readers = CONSTRUCTIONS[host.construction].readers
    if readers is None:
        raise NotDefined(f"no bound is known for {host.construction}: its queries are no forms of the target's stream")
    return read_as(target, readers(target.shape, target))


class Predictor:
    """Bounds for one engine: the host's norms are computed once, when first needed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @cached_property
    def model(self) -> DenseModel | None:
        """Norms of a dense host; None for an index map."""
        host = self.engine.host
        return None if isinstance(host.U, SelectionMatrix) else DenseModel(host, blocked=True)

    @cached_property
    def read(self) -> ReadHost:
        """What is read of an index map."""
        return self.engine.read or ReadHost(self.engine.host)

    def of(self, target: Target, E: np.ndarray) -> Prediction:
        """The bound of one target with its E [d_in, m]; float64 weights."""
        return Prediction(self, _in_float64(target), E)


def _in_float64(target: Target) -> Target:
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    arrays: dict[str, Any] = {name: getattr(target, name) for name in names}
    converted: dict[str, Any] = {
        name: None if a is None else to_numpy(a).astype(np.float64) for name, a in arrays.items()
    }
    return replace(target, **converted)


@dataclass
class Prediction:
    """What host and target may differ by, for one target and E, on any input and kernel."""

    predictor: Predictor
    target: Target
    E: np.ndarray

    def __post_init__(self) -> None:
        engine = self.engine = self.predictor.engine
        self.shape = self.target.shape
        self.held = engine.place.rounded(self.E)
        if not np.isfinite(self.held).all():
            raise MalformedInput(f"E overflows in {engine.place.precision}: run this target in a wider precision")
        self.read_as = reading_target(engine.host, self.target)
        self.gains: TargetGains = target_gains(self.read_as)
        self.own_gains = self.gains if self.read_as is self.target else target_gains(self.target)
        self.own = DenseModel(as_host(self.target), blocked=False, reads_output=self.target.W_U is not None)
        self.equations = self.own if self.read_as is self.target else DenseModel(as_host(self.read_as), blocked=False)
        self.goal_streams, self.goal = self.equations.columns(self.target.W_E)
        self.columns = self._columns()
        self.difference = {key: self.columns[key] - goal for key, goal in self.goal.items()}

    @cached_property
    def _words(self) -> tuple[list[np.ndarray], dict[Reading, np.ndarray]]:
        """E R_w by word length, and E R_all by reading, of a dense host."""
        assert self.predictor.model is not None
        return self.predictor.model.columns(self.held)

    def _columns(self) -> dict[Reading, np.ndarray]:
        """E R_all by reading, as the host is run with it."""
        if self.predictor.model is not None:
            return self._words[1]
        columns = np.asarray(self.held @ self.engine.embedder.columns)
        # an index map is run with these very numbers, rounded
        return reading_blocks(columns if self.engine.read is None else self.engine.place.rounded(columns), self.shape)

    # --- E R_all = W_all ---

    def goal_rounding(self, rule: Rule) -> dict[Reading, float]:
        """What float64 loses of W_all, for rows of W_E."""
        return self._evaluated(self.equations, self.goal_streams, rule)

    def evaluation(self, rule: Rule) -> dict[Reading, np.ndarray]:
        """What float64 loses of E R_all, by reading: of each row of E and word, [d_in, words]; a number for dense hosts."""
        if self.predictor.model is not None:
            found = self._evaluated(self.predictor.model, self._words[0], rule)
            return {key: np.asarray(value) for key, value in found.items()}
        matrix = self.engine.embedder.columns
        added = np.maximum(np.bincount(matrix.coordinates()[1], minlength=matrix.shape[1]) - 1, 0)
        units = np.array([rule.units(k, DOUBLE) for k in range(int(added.max(initial=0)) + 1)])[added]
        lost = rule.deviations * (np.abs(self.held) @ matrix) * units
        return {
            key: block.max(axis=2) if key == OUTPUT else length(block, 2)
            for key, block in reading_blocks(lost, self.shape).items()
        }

    def _evaluated(self, model: DenseModel, streams: list[np.ndarray], rule: Rule) -> dict[Reading, float]:
        sizes = [float(length(stream, 2).max(axis=0).sum()) for stream in streams]
        tiny = DOUBLE_TINY * self.shape.words_at(self.shape.layers)
        return model.noise(sizes, 0.0, rule, DOUBLE, tiny, None)

    def residual(self, inputs: Inputs, rule: Rule) -> dict[Reading, float]:
        """How much E R_all differs from W_all, and the X that the host is given from X, as every reading meets it."""
        out, goal, held = {}, self.goal_rounding(rule), self.evaluation(rule)
        u = self.engine.place.roundoff
        for key, block in self.difference.items():
            evaluated = float(held[key].max(axis=0).sum())
            out[key] = inputs.met(block, entries=key == OUTPUT) + inputs.one * (evaluated + goal[key])
            if u > DOUBLE:
                spread = inputs.spread(self.columns[key], entries=key == OUTPUT)
                out[key] += u * float(spread.sum(axis=0).max())
        return out

    # --- a run ---

    def noise(self, rows: np.ndarray, rule: Rule) -> dict[Reading, float]:
        """Rounding noise of the host's readings on inputs X [n, d_in], the residual of E left out."""
        engine, inputs = self.engine, Inputs.of(rows)
        u, tiny = engine.place.roundoff, engine.place.tiny
        model = self.predictor.model
        if model is None:
            return index_map_noise(self.predictor.read, self.held, inputs, rule, u, tiny)
        sizes = [inputs.met(stream) for stream in self._words[0]]
        begin = embedding_noise(self.held, inputs, rule, u, tiny)
        return model.noise(sizes, begin, rule, u, tiny, inputs.context)

    def bounds(self, observed: Observer, kernel: Any, rows: np.ndarray, output: np.ndarray) -> Bounds:
        """Of the relative error on this input: `observed` is the target's run, `output` its result."""
        scale = float(np.abs(output).max(initial=0.0)) or 1.0
        found = (self.error(observed, kernel, rows, rule) * _ABOVE / scale for rule in (RIGOROUS, ESTIMATE))
        return Bounds(*found)

    def error(self, observed: Observer, kernel: Any, rows: np.ndarray, rule: Rule) -> float:
        """The largest difference of an output entry, by one rule."""
        inputs, shape, place = Inputs.of(rows), self.shape, self.engine.place
        sizes = self.sizes(observed)
        begin = embedding_noise(self.target.W_E, inputs, rule, DOUBLE, DOUBLE_TINY)
        streams = [sizes.stream[layer] for layer in range(shape.layers + 1)]
        noise = self.own.noise(streams, begin, rule, DOUBLE, DOUBLE_TINY, inputs.context)
        own = propagated(noise, self.own_gains, sizes, kernel, shape, inputs.context, rule, DOUBLE, DOUBLE_TINY)
        noise, residual = self.noise(rows, rule), self.residual(inputs, rule)
        noise = {key: noise[key] + residual[key] for key in readings(shape)}
        host = propagated(
            noise,
            self.gains,
            self.exact_sizes(observed, sizes, own),
            kernel,
            shape,
            inputs.context,
            rule,
            place.roundoff,
            place.tiny,
            self.form_gaps,
        )
        return own.output + host.output

    @cached_property
    def form_gaps(self) -> dict[tuple[int, int], float]:
        """2-norms of B_Q B_K^T - W_Q W_K^T for a host that reads other queries and keys than the target's, and what the
        rounding of these two products, entry by entry a sum of d terms, can hide along two given rows."""
        if self.read_as is self.target:
            return {}
        gaps = {}
        for layer in range(self.shape.layers):
            for head in range(self.shape.heads):
                forms, rounding = [], 0.0
                for model in (self.read_as, self.target):
                    w_q, w_k, _, _ = model.parameters(layer, head)
                    forms.append(w_q @ w_k.T)
                    rounding += RIGOROUS.units(w_q.shape[1], DOUBLE) * float(length(w_q) * length(w_k))
                    rounding += 2 * w_q.size * DOUBLE_TINY
                gaps[(layer, head)] = spectral_norm(forms[0] - forms[1]) + rounding
        return gaps

    def sizes(self, observed: Observer) -> RunSizes:
        """Sizes of the target's run, as it was computed."""
        stream, radius = {}, {}
        for layer, x in observed.streams.items():
            stream[layer], radius[layer] = longest(x, 1), longest(x - x.mean(axis=0), 1)
        # the stream after the last layer, as large as the values make it
        last = self.shape.layers
        values = [self.own_gains.value[(last - 1, head)] for head in range(self.shape.heads)]
        stream[last] = stream[last - 1] * (self.shape.residual + sum(values))
        return RunSizes(observed.queries, observed.keys, stream, radius)

    def exact_sizes(self, observed: Observer, sizes: RunSizes, own: Errors) -> RunSizes:
        """Sizes of the target's exact run: queries and keys as the host reads them, and what the computed run can err by."""
        stream = {layer: size + own.stream[layer] for layer, size in sizes.stream.items()}
        radius = {layer: size + 2 * own.stream[layer] for layer, size in sizes.radius.items()}
        found: list[dict[tuple[int, int], float]] = [{}, {}]
        for layer, head in sizes.queries:
            for kind, computed in enumerate((sizes.queries, sizes.keys)):
                size = computed[(layer, head)] + own.read[(kind, layer, head)]
                if self.read_as is not self.target:
                    reader = self.read_as.parameters(layer, head)[kind]
                    size = longest(observed.streams[layer] @ reader, 1) * _ABOVE + own.stream[layer] * spectral_norm(
                        reader
                    )
                found[kind][(layer, head)] = size
        return RunSizes(found[0], found[1], stream, radius)
