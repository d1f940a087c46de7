"""The a priori bound for one host, engine and target: everything that docs/emulation.md needs, gathered in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np

from utfproof.attention import ChunkedAttention
from utfproof.constructions import CONSTRUCTIONS
from utfproof.emulation import underflow
from utfproof.emulation.bound import (
    LAMBDA,
    DenseNoise,
    ErrorBound,
    Noise,
    Propagated,
    RunSizes,
    evaluation_sizes,
    own_noise,
    path_noise,
    propagated,
    residual_sizes,
    right_side_rounding,
    selected_noise,
    settled,
    summed_rounding,
)
from utfproof.emulation.engines import Engine, PathHost, path_columns
from utfproof.emulation.gains import (
    OUTPUT,
    HostGains,
    Reading,
    StreamForms,
    TargetGains,
    first_gains,
    host_gains,
    largest_row,
    selected_sizes,
    target_gains,
)
from utfproof.emulation.norms import longest, spectral_norm
from utfproof.emulation.observe import Observer
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.arrays import to_numpy
from utfproof.ground.notions import Notion
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all, w_all
from utfproof.systems import Target, Universal

_DOUBLE = 2.0**-53


def attention_matching(host: Universal) -> bool:
    """Whether a host's embeddings make logits agree, and not queries and keys."""
    entry = CONSTRUCTIONS.get(host.construction)
    return entry is not None and entry.notion is Notion.ATTENTION_MATCHING


def has_bound(host: Universal) -> bool:
    """Whether the a priori bound is known: queries and keys are the target's, or forms of its stream."""
    return not attention_matching(host) or CONSTRUCTIONS[host.construction].forms is not None


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
    forms = CONSTRUCTIONS[host.construction].forms
    if forms is None:
        raise NotDefined(
            f"no a priori bound is known for {host.construction}: its queries are no forms of the target's stream"
        )
    shape = target.shape
    lead, D, d = (shape.layers, shape.heads), target.width, shape.head_dim
    W_Q, W_K = np.zeros((*lead, D, d)), np.zeros((*lead, D, d))
    for tensor, form in zip((W_Q, W_K), forms(shape, target), strict=True):
        for layer, head in np.ndindex(lead):
            tensor[layer, head, :, : form[layer][head].shape[1]] = form[layer][head]
    W_V, W_O = (np.broadcast_to(a, (*lead, *a.shape[-2:])) for a in (target.W_V, target.W_O))
    return Target(shape, W_Q, W_K, W_V, W_O, target.W_E, target.W_U)


class Predictor:
    """Bounds for one engine: the host's norms are computed once, when first needed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @cached_property
    def gains(self) -> HostGains:
        """Norms of the host as it is run."""
        lumped = self.engine.lumped
        return (
            host_gains(self.engine.host, self.engine.embedder.columns)
            if lumped is None
            else host_gains(lumped, r_all(lumped))
        )

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
        engine = self.predictor.engine
        self.engine = engine
        self.roundoff = engine.place.roundoff
        # in path space E R_all is what the run holds, and E is not rounded
        self.held = self.E if engine.name == "path-space" else engine.place.rounded(self.E)
        if not np.isfinite(self.held).all():
            raise MalformedInput(f"E overflows in {engine.place.precision}: run this target in a wider precision")
        self.read_as = reading_target(engine.host, self.target)
        self.gains: TargetGains = target_gains(self.read_as)
        self.own_gains = self.gains if self.read_as is self.target else target_gains(self.target)
        columns = path_columns(engine.embedder, self.held)
        if engine.name == "path-space":
            columns = engine.place.rounded(columns)
        self.columns = columns
        self.goal = to_numpy(w_all(self.read_as))
        self.difference = columns - self.goal

    @cached_property
    def forms(self) -> StreamForms:
        """Sizes of E R_w of a dense host."""
        return StreamForms(self.engine.host, self.held)

    @cached_property
    def first(self) -> np.ndarray:
        """How errors of what layer 1 averages are read, where that is X."""
        return first_gains(self.target.shape, self.columns)

    @cached_property
    def rounding(self) -> dict[Reading, float]:
        """What the rounding of W_all moves, for inputs of length one."""
        return right_side_rounding(self.read_as, self.gains, np.eye(self.target.shape.d_in))

    @cached_property
    def lost(self) -> dict[Reading, float]:
        """What E R_all - W_all loses to underflow, for inputs of length one."""
        host, dense = self.engine.host, not isinstance(self.engine.embedder.columns, SelectionMatrix)
        gains = self.predictor.gains if dense else None
        return underflow.equations_lost(gains, self.gains, self.read_as, spectral_norm(self.held), host.m)

    @cached_property
    def summed(self) -> np.ndarray | None:
        """`summed_rounding` of E R_all in float64, for index maps."""
        matrix = self.engine.embedder.columns
        return summed_rounding(self.held, matrix) if isinstance(matrix, SelectionMatrix) else None

    def residual(self, rows: np.ndarray) -> dict[Reading, float]:
        """How much E R_all differs from W_all, and the X that the host is given from X, as every reading meets it."""
        shape = self.target.shape
        found = residual_sizes(self.difference, shape, rows)
        x2 = largest_row(rows)
        for key, value in self.rounding.items():
            found[key] += (value + self.lost[key]) * x2
        if self.summed is not None and self.engine.name != "path-space":
            # E R_all was itself computed, where a run takes E; in path space it is what runs
            for key, value in evaluation_sizes(self.summed, shape).items():
                found[key] += _DOUBLE * value * x2
        if self.roundoff > _DOUBLE:
            for key, value in residual_sizes(self.columns, shape, self.roundoff * np.abs(rows)).items():
                found[key] += value
        return found

    def noise(self, rows: np.ndarray, kernel: Any) -> Callable[[list[float]], Noise]:
        """Noise of the host's readings on inputs X [n, d_in], as a function of how far its attention is off by layer."""
        shape, residual, lumped = self.target.shape, self.residual(rows), self.engine.lumped
        tiny = self.engine.place.tiny
        if self.engine.name == "path-space":
            found = path_noise(self.columns, shape, residual, rows, self.roundoff, tiny)
            return lambda apart: found
        if self.predictor.gains.selected:
            host, E = (self.engine.host, self.held) if lumped is None else (lumped, lumped.taken(self.held))
            entries = selected_sizes(host, E, rows)
            first, x2 = None if lumped is None else self.first, largest_row(rows)
            moved = selected_noise(
                host, self.predictor.gains, entries, residual, x2, len(rows), self.roundoff, tiny, first
            )
            return lambda apart: moved
        paths = PathHost(shape, self.goal).streams(rows, kernel)
        sizes = self.forms.sizes(rows, paths)
        return DenseNoise(self.predictor.gains, sizes, self.held, residual, rows, self.roundoff, tiny).noise

    def bound(self, observed: Observer, index: int | None, kernel: Any, rows: np.ndarray, output: np.ndarray) -> float:
        """The largest relative error on this input: `observed` is the target's run, `output` its result."""
        shape = self.target.shape
        sizes = self.sizes(observed, index, rows, output)

        def carry(noise: Noise) -> Propagated:
            tiny = self.engine.place.tiny
            return propagated(
                noise, self.gains, sizes, kernel, self.roundoff, shape, own=False, tiny=tiny, gaps=self.form_gaps
            )

        host = settled(self.noise(rows, ChunkedAttention(kernel)), carry, shape.layers)
        lost = underflow.own_lost(self.own_gains, self.target, len(rows))
        own = own_noise(self.own_gains, sizes, shape, _DOUBLE, lost)
        target = propagated(own, self.own_gains, sizes, kernel, _DOUBLE, shape, own=True, tiny=underflow.DOUBLE).error
        scale = sizes.scale
        found = ErrorBound(host / scale, target / scale) if scale else ErrorBound(host, target)
        return found.total

    @cached_property
    def form_gaps(self) -> dict[tuple[int, int], float]:
        """2-norms of B_Q B_K^T - W_Q W_K^T for a host that reads other queries and keys than the target's, and what the
        rounding of these two products, entry by entry a sum of d terms, can hide along two given rows."""
        if self.read_as is self.target:
            return {}
        gaps = {}
        for layer in range(self.target.shape.layers):
            for head in range(self.target.shape.heads):
                forms, rounding = [], 0.0
                for model in (self.read_as, self.target):
                    w_q, w_k, _, _ = model.parameters(layer, head)
                    forms.append(w_q @ w_k.T)
                    rounding += LAMBDA * sqrt(w_q.shape[1]) * _DOUBLE * longest(w_q, 1) * longest(w_k, 1)
                    rounding += 2 * w_q.size * underflow.DOUBLE
                gaps[(layer, head)] = spectral_norm(forms[0] - forms[1]) + rounding
        return gaps

    def sizes(self, observed: Observer, index: int | None, rows: np.ndarray, output: np.ndarray) -> RunSizes:
        """Sizes of the target's run."""

        def one(value: np.ndarray) -> float:
            return float(value if index is None else value[index])

        queries = {at: one(value) for at, value in observed.queries.items()}
        keys = {at: one(value) for at, value in observed.keys.items()}
        stream, radius, host_queries, host_keys = {}, {}, dict(queries), dict(keys)
        for layer, streams in observed.streams.items():
            x = streams if index is None else streams[index]
            stream[layer] = longest(x, 1)
            radius[layer] = longest(x - x.mean(axis=0), 1)
            if self.read_as is not self.target:
                for head in range(self.target.shape.heads):
                    w_q, w_k, _, _ = self.read_as.parameters(layer, head)
                    host_queries[(layer, head)] = longest(x @ w_q, 1)
                    host_keys[(layer, head)] = longest(x @ w_k, 1)
        # the stream after the last layer, as large as the values make it
        last = self.target.shape.layers
        values = [self.own_gains.value[(last - 1, head)] for head in range(self.target.shape.heads)]
        stream[last] = stream[last - 1] * (self.target.shape.residual + sum(values))
        scale = float(np.abs(output).max(initial=0.0))
        return RunSizes(host_queries, host_keys, queries, keys, stream, radius, scale, rows)


__all__ = ["OUTPUT", "Prediction", "Predictor", "Reading", "attention_matching", "has_bound", "reading_target"]
