"""How well random hosts emulate, against their slack m / M and their depth, and where the error comes from.

A host of m >= M dimensions carries every target exactly in real numbers. In float64 it does so up to unit roundoff
times the *cancellation*: how much larger E is than it would have to be if no product with R_all cancelled.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, parse_kernel
from utfproof.constructions import CONSTRUCTIONS, build_host, dense_bytes
from utfproof.constructions.random import random_target
from utfproof.emulation.compare import random_input, relative_error
from utfproof.emulation.initialisation import orthogonal_host, rescaled_host, rotated_host, value_gain
from utfproof.emulation.refine import ExactProducts, Factors, column_scale, refine_embedding, relative_residual
from utfproof.errors import MalformedInput
from utfproof.ground.generator import LAWS, check_seed
from utfproof.ground.plots import picture_format, write_figure
from utfproof.ground.resources import require_memory
from utfproof.matching import embed, r_all, w_all
from utfproof.shapes import (
    EffectiveHeadDimensionWarning,
    Shape,
    column_groups,
    geometric,
    matching_dimension,
    positive_integer,
    require_plain,
    require_words,
)
from utfproof.systems import Universal

RATIOS: tuple[float, ...] = (1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
RECOMMENDED_RATIO = 1.25
"""m / M from which more slack gains less than a factor of about two (docs/random-hosts.md)."""
INITIALISATIONS = (*LAWS, "orthogonal", "rotated")
"""Laws of i.i.d. entries, and the hosts of `initialisation`; NAME:GAIN multiplies R_V so that its gain is GAIN."""
REFINEMENTS = ("unscaled", "scaled", "one step", "extended")
"""QR as it is; columns scaled; `matching.embed` (scaled, one step in float64); residuals in twice the precision."""
HOSTS = {entry.name: entry.tied for entry in CONSTRUCTIONS.values() if entry.is_random}
_CONTEXT = 8
_WIDER = bool(np.finfo(np.longdouble).eps < np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SlackRow:
    """One host, target, embedding and input.

    gain: of R_V (`value_gain`). condition: of R_all, columns scaled to length one. misfit: ||W_all - E R_all|| / ||W_all||,
    columns scaled, in twice the working precision. cancellation, predicted: see `cancellation`, `predicted_cancellation`.
    error: max |Z - Y| / max |Y| of the float64 host's output Z against the target's Y. error_float32: the host's forward
    pass in float32. error_of_E and error_of_rounding: the same forward pass in extended precision against the target's, and
    against the float64 pass (None where long double is no wider than double, or not asked for).
    """

    heads: int
    layers: int
    head_dim: int
    d_in: int
    columns: int
    m: int
    ratio: float
    law: str
    tied: bool
    refinement: str
    seed: int
    gain: float
    condition: float
    misfit: float
    cancellation: float
    predicted: float | None
    error: float
    error_float32: float
    error_of_E: float | None
    error_of_rounding: float | None


# --- what the error is made of ---------------------------------------------------------------------------------


def cancellation(matrix: np.ndarray, right: np.ndarray, E: np.ndarray, outputs: int) -> float:
    """Root mean square of E's entries over that of the last `outputs` columns of W_all, each divided by its column's length.

    About 1 where E is no larger than products with unit vectors in general position ask for; c where these
    products are c times smaller than their factors, so that c times unit roundoff is lost.
    """
    wanted = right[:, -outputs:] / np.linalg.norm(matrix[:, -outputs:], axis=0)
    scale = float(np.sqrt(np.mean(wanted**2)))
    size = float(np.sqrt(np.mean(E**2)))
    return size / scale if scale else float("inf")


def predicted_norm(shape: Shape, m: int, right: np.ndarray, *, reader: float, value: float) -> float | None:
    """Square root of the expected ||E||_F^2 of least norm, for an untied host of independent Gaussian entries.

    reader, value: standard deviations of the entries of R_Q, R_K, U and of R_V. From the last layer backwards the columns
    of R_all are G T with G [m, M_k] Gaussian, independent of T, and the mean of (G^T G)^-1 is 1 / (m - M_k - 1);
    M_k is M of the layers k ... L. None for m < M + 2, where the mean is infinite.
    """
    M = matching_dimension(require_plain(shape, "the expected norm of E"))
    if m < M + 2:
        return None
    H, d = shape.heads, shape.head_dim
    left = range(shape.layers, -1, -1)
    outward = [2 * d * geometric(H, 1, layers) + shape.d_out * H**layers for layers in left]
    total = 0.0
    for group in column_groups(shape):
        columns = right[:, group.start : group.start + group.words * group.width]
        length = group.length + (group.kind == "OV")
        factor = 1 / reader**2
        for k in range(length):
            factor /= m - outward[k] - 1
        total += float(np.sum(columns**2)) * factor / value ** (2 * (length - 1))
    return float(np.sqrt(total))


def predicted_cancellation(host: Universal, right: np.ndarray) -> float | None:
    """`cancellation` with ||E|| and the columns' lengths as expected for Gaussian entries of this host's variances.

    For tied hosts the same formula, whose proof needs independent layers: there it is a guess. None for m < M + 2.
    """
    shape, m = host.shape, host.m
    reader = float(np.std(np.concatenate([np.ravel(host.R_Q), np.ravel(host.R_K)]), dtype=np.float64))
    gain = value_gain(host)
    norm = predicted_norm(shape, m, right, reader=reader, value=gain / m**0.5)
    if norm is None:
        return None
    wanted = right[:, -shape.d_out * shape.leaves :] / (reader * m**0.5 * gain**shape.layers)
    return norm / float(np.sqrt(np.mean(wanted**2) * right.shape[0] * m))


# --- the study -------------------------------------------------------------------------------------------------


def build(law: str, shape: Shape, m: int, *, seed: int, tied: bool, max_memory: int | None = None) -> Universal:
    """The host of an initialisation NAME or NAME:GAIN. MalformedInput for an unknown name or gain."""
    name, _, text = law.partition(":")
    try:
        gain = float(text) if text else None
    except ValueError:
        gain = float("nan")
    if name not in INITIALISATIONS or (gain is not None and not 0 < gain < float("inf")):
        raise MalformedInput(f"initialisation {law!r} is unknown; choose {', '.join(INITIALISATIONS)}, or NAME:GAIN")
    if name in LAWS:
        kind = "random-tied" if tied else "random"
        host = build_host(kind, shape, m, seed=seed, law=name, max_memory=max_memory)
        return host if gain is None else rescaled_host(host, gain / value_gain(host))
    make = orthogonal_host if name == "orthogonal" else rotated_host
    return make(shape, m, seed=seed, tied=tied, gain=1.0 if gain is None else gain, max_memory=max_memory)


def slack_study(
    shapes: Sequence[Shape],
    ratios: Sequence[float] = RATIOS,
    laws: Sequence[str] = ("uniform",),
    *,
    ties: Sequence[bool] = (False,),
    refinements: Sequence[str] = ("one step",),
    trials: int = 1,
    seed: int = 0,
    separate: bool = False,
    max_memory: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[SlackRow]:
    """One row for each shape, ratio m / M, law, tying, trial and refinement; `progress` is called after each row.

    Trial t draws host, target and input from seed + t. separate: forward passes in extended precision too (slow).
    Raises MalformedInput for ratios below 1 and unknown names, ResourceLimit before anything is allocated.
    """
    unknown = sorted(set(refinements) - set(REFINEMENTS))
    if unknown:
        raise MalformedInput(f"refinement {', '.join(unknown)} is unknown; choose {', '.join(REFINEMENTS)}")
    if not all(1 <= ratio < float("inf") for ratio in ratios):
        raise MalformedInput(f"ratios m / M start at 1, got {', '.join(map(str, ratios))}")
    positive_integer("trials", trials), check_seed(seed), check_seed(seed + trials - 1)
    for shape in shapes:
        M = matching_dimension(require_plain(shape, "the study of slack"))
        m = ceil(max(ratios, default=1) * M)
        held = dense_bytes(shape, m, tied=not all(ties)) * 3 // 2 + 8 * m * M * (10 if "extended" in refinements else 6)
        require_memory(held, f"random hosts at {shape}, m = {m},", max_memory)
    rows = []
    for shape in shapes:
        for ratio in ratios:
            m = ceil(ratio * matching_dimension(shape))
            for law in laws:
                for tied in ties:
                    for trial in range(trials):
                        host = build(law, shape, m, seed=seed + trial, tied=tied, max_memory=max_memory)
                        case = _Case(host, law, ratio, seed + trial, separate, max_memory)
                        for row in case.rows(refinements):
                            rows.append(row)
                            if progress is not None:
                                progress()
    return rows


class _Case:
    """One host with one target and input; R_all and its factors serve every refinement."""

    def __init__(
        self, host: Universal, law: str, ratio: float, seed: int, separate: bool, max_memory: int | None
    ) -> None:
        shape = host.shape
        self.host, self.law, self.ratio, self.seed, self.limit = host, law, ratio, seed, max_memory
        self.target = random_target(shape, seed)
        self.kernel: AttentionKernel = parse_kernel("scaled+causal", shape.heads, shape.head_dim)
        self.x = random_input(shape, _CONTEXT, seed)
        self.output = self.target.forward(self.x, self.kernel)
        self.separate = separate and _WIDER
        self.matrix, self.right = r_all(host), w_all(self.target)
        self.products = ExactProducts(self.matrix)

    def rows(self, refinements: Sequence[str]) -> Iterator[SlackRow]:
        factors = Factors(self.matrix) if set(refinements) - {"one step"} else None
        condition = None if factors is None else factors.condition()
        narrow = _narrow(self.host)
        for name in refinements:
            if factors is None or name == "one step":
                found = embed(self.host, self.target, max_memory=self.limit)
                E = found.E
                condition = found.condition if condition is None else condition
            elif name == "unscaled":
                E = _unscaled(self.matrix, self.right)
            else:
                E = factors.solve(self.right)
                if name == "extended":
                    E, _ = refine_embedding(self.matrix, self.right, E, factors=factors, max_memory=self.limit)
            assert condition is not None
            yield self._row(name, E, condition, narrow)

    def _row(self, refinement: str, E: np.ndarray, condition: float, narrow: Universal) -> SlackRow:
        shape, m = self.host.shape, self.host.m
        output = self.host.forward(self.x, E, self.kernel)
        of_E = of_rounding = None
        if self.separate:
            x = self.x.astype(np.longdouble)
            wide = self.host.forward(x, E.astype(np.longdouble), self.kernel)
            of_E = relative_error(wide, self.target.forward(x, self.kernel))
            of_rounding = relative_error(output.astype(np.longdouble), wide)
        coarse = narrow.forward(self.x.astype(np.float32), E.astype(np.float32), self.kernel)
        iid = self.law.partition(":")[0] in LAWS
        return SlackRow(
            heads=shape.heads,
            layers=shape.layers,
            head_dim=shape.head_dim,
            d_in=shape.d_in,
            columns=self.matrix.shape[1],
            m=m,
            ratio=float(self.ratio),
            law=self.law,
            tied=self.host.tied,
            refinement=refinement,
            seed=self.seed,
            gain=value_gain(self.host),
            condition=condition,
            misfit=relative_residual(self.products.residual(self.right, E), self.right, column_scale(self.matrix)),
            cancellation=cancellation(self.matrix, self.right, E, shape.d_out * shape.leaves),
            predicted=predicted_cancellation(self.host, self.right) if iid else None,
            error=relative_error(output, self.output),
            error_float32=relative_error(coarse.astype(np.float64), self.output),
            error_of_E=of_E,
            error_of_rounding=of_rounding,
        )


def _narrow(host: Universal) -> Universal:
    names = ("R_Q", "R_K", "R_V", "U")
    changes: dict[str, Any] = {name: getattr(host, name).astype(np.float32) for name in names}
    return replace(host, **changes)


def _unscaled(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    import scipy.linalg

    orthogonal, triangle = scipy.linalg.qr(matrix, mode="economic")
    E: np.ndarray = (orthogonal @ scipy.linalg.solve_triangular(triangle, right.T, trans="T")).T
    return E


# --- for the command line and for people -------------------------------------------------------------------------


def slack_steps(shape: Shape, ratios: Sequence[float] = RATIOS, trials: int = 3) -> int:
    """Rows that `run_slack` will measure: depths 1 ... L, each ratio and trial."""
    return shape.layers * len(_with_ends(ratios)) * trials


def _with_ends(ratios: Sequence[float]) -> tuple[float, ...]:
    """The ratios with m = M and the recommended one, which the plot compares."""
    return tuple(sorted({1.0, RECOMMENDED_RATIO, *map(float, ratios)}))


def run_slack(
    shape: Shape,
    host_name: str = "random",
    ratios: Sequence[float] = RATIOS,
    seed: int = 0,
    trials: int = 3,
    plot_path: Path | str | None = None,
    *,
    law: str = "uniform",
    max_memory: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[SlackRow]:
    """The study of one random host at depths 1 ... L of this shape; a plot where `plot_path` is given.

    host_name: "random" or "random-tied". The ratios 1 and RECOMMENDED_RATIO are always among those measured. Raises
    MalformedInput (before measuring, where matplotlib is missing or the plot's format unknown) and ResourceLimit.
    """
    require_plain(shape, "the study of slack")
    require_words(shape, "the study of slack")
    if host_name not in HOSTS:
        raise MalformedInput(f"slack is a question about random hosts: {', '.join(HOSTS)}; got {host_name!r}")
    if plot_path is not None:
        picture_format(plot_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)  # said once, of `shape`
        depths = range(1, shape.layers + 1)
        shapes = [Shape(shape.heads, layers, shape.head_dim, shape.d_in, shape.d_out) for layers in depths]
    rows = slack_study(
        shapes,
        _with_ends(ratios),
        (law,),
        ties=(HOSTS[host_name],),
        trials=trials,
        seed=seed,
        max_memory=max_memory,
        progress=progress,
    )
    if plot_path is not None:
        plot_slack(rows, plot_path)
    return rows


def document(rows: Sequence[SlackRow]) -> dict[str, Any]:
    """For --json."""
    return {"recommended_ratio": RECOMMENDED_RATIO, "rows": [asdict(row) for row in rows]}


def medians(
    rows: Sequence[SlackRow], key: Callable[[SlackRow], Any], value: Callable[[SlackRow], float]
) -> dict[Any, float]:
    """Median of a value over the rows that share a key, in order of the keys."""
    groups: dict[Any, list[float]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(value(row))
    return {k: statistics.median(groups[k]) for k in sorted(groups)}


def plot_slack(rows: Sequence[SlackRow], path: Path | str) -> None:
    """Two panels: error against m / M for each depth, and error against L at m = M and at the recommended m.

    Medians over trials. MalformedInput where matplotlib is missing, rows are, or `path` cannot be written.
    """
    picture_format(path)
    from matplotlib.figure import Figure

    if not rows:
        raise MalformedInput("there are no rows to plot")
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)

    def name(row: SlackRow) -> tuple[str, ...]:
        return row.law, "tied" if row.tied else "untied", row.refinement

    several = len({name(row) for row in rows}) > 1
    for series in sorted({name(row) for row in rows}):
        ours = [row for row in rows if name(row) == series]
        suffix = f", {' '.join(series)}" if several else ""
        for layers in sorted({row.layers for row in ours}):
            points = medians([r for r in ours if r.layers == layers], lambda r: r.ratio, lambda r: r.error)
            left.plot([r - 1 for r in points], list(points.values()), marker="o", label=f"L = {layers}{suffix}")
        for ratio, line in ((1.0, "-"), (RECOMMENDED_RATIO, "--")):
            points = medians([r for r in ours if r.ratio == ratio], lambda r: r.layers, lambda r: r.error)
            if points:
                right.plot(
                    list(points),
                    list(points.values()),
                    line,
                    marker="o",
                    label=f"m = {'' if ratio == 1 else f'{ratio:g} '}M{suffix}",
                )
    ticks = sorted({row.ratio for row in rows})
    left.set_xscale("symlog", linthresh=0.01)
    left.set_xticks([r - 1 for r in ticks], [f"{r:g}" for r in ticks])
    left.minorticks_off()
    left.set_xlabel("m / M")
    left.set_ylabel("relative output error, float64")
    right.set_xticks(sorted({row.layers for row in rows}))
    right.set_xlabel("layers L")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    write_figure(figure, path)
