"""Emulation of targets by one host, from names or arrays to a verdict: `utfproof.emulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, named_kernel
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.emulation.compare import CompareSetting, EmulationReport, compare
from utfproof.emulation.laws import draw_target
from utfproof.emulation.predict import attention_matching
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.util.results import Result


@dataclass(frozen=True, repr=False, eq=False)
class Emulation(Result):
    """One host and its targets, run side by side; report: every comparison. width: of the targets, D; trials: how many;
    tied: whether they were drawn weight-tied."""

    report: EmulationReport
    host: Universal
    width: int
    trials: int
    attention: tuple[str, ...]
    contexts: tuple[int, ...]
    tied: bool

    @property
    def holds(self) -> bool | None:
        """Whether all outputs agree; None where that is not known."""
        return self.report.holds

    def rows(self) -> dict[str, Any]:
        """For people."""
        plural = "s" if self.trials != 1 else ""
        return {
            "result": _verdict(self.report),
            "shape": f"{self.host.shape}, target width {self.width}, m = {self.host.m}",
            "runs": f"{self.trials} {'tied ' * self.tied}target{plural}, contexts {', '.join(map(str, self.contexts))}, "
            f"attention {', '.join(self.attention)}",
            **_figures(self.report),
        }

    def document(self) -> dict[str, Any]:
        """For --json."""
        verdict = {True: "outputs agree", False: "outputs differ", None: "undecided"}[self.holds]
        shape = self.host.shape.document(self.host.m)
        return {"verdict": verdict, **self.report.document(), "shape": shape}


def emulate(
    host: Universal | str,
    targets: Target | BiasedTarget | Shape,
    *,
    embedding: np.ndarray | None = None,
    attention: Sequence[str] = ("softmax", "causal"),
    contexts: Sequence[int] = (1, 7, 64),
    trials: int = 1,
    seed: int = 0,
    m: int | None = None,
    law: str = "uniform",
    dtype: str = "float64",
    target_law: str = "uniform",
    width: int | None = None,
    tied_targets: bool = False,
    tolerance: float | None = None,
    setting: CompareSetting | None = None,
    max_memory: int | None = None,
    advance: Callable[[], None] | None = None,
) -> Emulation:
    """Find E for each target, run the host with E beside the target, and compare outputs with a bound on rounding.

    host: a host, or the name of a construction, built at the targets' shape with m, seed, law and dtype. targets: one target
    (its biases carried by a constant coordinate), or a shape, of which `trials` targets are drawn by target_law, width D and
    tied_targets. embedding: E [d_in, m] to run instead of solving for it. attention: names of kernels; contexts: numbers of
    tokens n. tolerance: the largest relative
    error besides the bound. Raises MalformedInput for a kernel that the host cannot serve, CannotCarry for a target that it
    cannot, ResourceLimit before allocating.

    >>> from utfproof import Shape, emulate
    >>> emulate("tied", Shape(2, 2, 2, 3), trials=2).holds
    True
    """
    entry = CONSTRUCTIONS.get(host if isinstance(host, str) else host.construction)
    if isinstance(targets, BiasedTarget) and targets.mlp is None and (entry is None or entry.models is None):
        targets = targets.augmented()
    drawn, one = (targets, None) if isinstance(targets, Shape) else (targets.shape, targets)
    machine = host
    if isinstance(machine, str):
        machine = build_host(machine, drawn, m, seed=seed, law=law, dtype=dtype, max_memory=max_memory)
    kernels = [(name, served(machine, name)) for name in attention]
    tied = one is None and (tied_targets or tied_targets_only(machine))
    target = drawn_targets(targets, seed, target_law, width=width, tied=tied, max_memory=max_memory)
    trials = trials if one is None else 1
    how: dict[str, Any] = {"trials": trials, "seed": seed, "setting": setting, "tolerance": tolerance}
    report = compare(
        machine, target, kernels, contexts, **how, embedding=embedding, max_memory=max_memory, progress=advance
    )
    names = tuple(name for name, _ in kernels)
    return Emulation(report, machine, target(0).width, trials, names, tuple(contexts), tied)


def served(host: Universal, name: str) -> AttentionKernel:
    """The kernel of that name. MalformedInput where this host cannot serve it."""
    kernel = named_kernel(name, host.shape.heads)
    if reason := kernel.unfit(host.shape.head_dim):
        raise MalformedInput(f"attention {name!r}: {reason}")
    if attention_matching(host) and not kernel.logits_only:
        raise MalformedInput(
            f"attention {name!r}: {host.construction} matches attention logits only; use a host that is universal by "
            "matching (sparse, tied, random)"
        )
    return kernel


def tied_targets_only(host: Universal) -> bool:
    """Whether a host can match tied targets only: a tied one with a residual stream, from L = 2 on, where it cannot tell the
    words (0, h) and (h, 0) apart (docs/proofs/residual.md), or one that is made for them."""
    entry = CONSTRUCTIONS.get(host.construction)
    made = entry is not None and entry.targets == "all tied"
    return made or (host.tied and host.shape.residual and host.shape.layers > 1)


def drawn_targets(
    targets: Target | BiasedTarget | Shape,
    seed: int,
    law: str,
    *,
    width: int | None,
    tied: bool,
    max_memory: int | None,
) -> Callable[[int], Any]:
    """Target number n: always the given one, or of a shape the one that seed + n draws."""
    if not isinstance(targets, Shape):
        return lambda _: targets
    return lambda n: draw_target(targets, seed + n, law, width=width, tied=tied, max_memory=max_memory)


def _verdict(report: EmulationReport) -> str:
    if report.unsolved is not None and report.tolerance is None:
        return f"E does not solve the equations: {report.unsolved}"
    if report.holds:
        proved = ": within the estimate, the bound says nothing" if report.rests_on_estimate else ""
        return f"outputs agree ({report.sense}){proved}"
    if report.holds is None:
        judged = isfinite(report.max_relative_error) and report.tolerance is None
        hint = "; --tolerance decides by the error alone" if judged else ""
        return f"undecided ({report.sense}): {report.undecided}{hint}"
    return f"outputs DIFFER ({report.sense}): {len(report.broken)} of {len(report.comparisons)} runs"


def _figures(report: EmulationReport) -> dict[str, str]:
    """The rows that say how far host and target are apart, and why."""
    shown = report.broken or report.open or report.comparisons
    worst = max(shown, key=lambda c: (c.relative_error != c.relative_error, c.relative_error))
    limit = "" if report.tolerance is None else f"; tolerance {report.tolerance:g}"
    rows = {
        "max relative error": f"{report.max_relative_error:.3g} (n = {worst.context}, {worst.attention}{limit})",
    }
    if worst.bound is not None:
        ratio = "" if report.ratios is None else f"; bound / error {report.ratios[0]:.0f} to {report.ratios[1]:.0f}"
        rows["bound"] = f"{worst.bound:.3g} for that run{ratio}" + (
            "; 1 or more: says nothing about the outputs" if worst.bound >= 1 else ""
        )
        rows["estimate"] = f"{worst.estimate:.3g}, for independent rounding errors; not proved"
    rows["engine"] = f"{report.engine}, {report.precision}"
    if report.condition is not None:
        rows["condition"] = f"{report.condition:.3g}"
    if report.unsolved is not None or report.unknown is not None:
        rows["equations"] = report.unsolved or f"beyond float64: {report.unknown}"
    return rows
