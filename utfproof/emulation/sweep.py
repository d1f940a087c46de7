"""Emulation over shapes x hosts x target laws: every combination is run, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, named_kernel
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.emulation.compare import CompareSetting, EmulationReport, compare
from utfproof.emulation.laws import draw_target
from utfproof.emulation.predict import attention_matching
from utfproof.errors import CannotCarry, NotDefined, OutsideClass, Undecided
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

ILL_CONDITIONED = 100.0
"""Condition numbers beyond which the bound may be more than 10^4 times the error (docs/emulation.md)."""


@dataclass(frozen=True)
class Case:
    """One host at one shape with targets of one law."""

    shape: Shape
    host: str
    law: str


@dataclass(frozen=True)
class CaseOutcome:
    """A case and its report, or why it was refused; `failed` where the host cannot carry the target, which is a refutation
    and no refusal; kernels that this host cannot serve, with the reason. tied_targets: targets were tied because this host
    serves no others."""

    case: Case
    m: int | None
    report: EmulationReport | None
    refusal: str | None = None
    failed: bool = False
    left_out: tuple[tuple[str, str], ...] = ()
    tied_targets: bool = False

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "shape": {**self.case.shape.document(), "m": self.m},
            "host": self.case.host,
            "target_law": self.case.law,
            **({"tied_targets": True} if self.tied_targets else {}),
            "refused": self.refusal,
            "left_out": [{"attention": name, "reason": reason} for name, reason in self.left_out],
            **({} if self.report is None else self.report.document()),
        }


@dataclass(frozen=True)
class Plan:
    """What every case has in common. `m` None: each host's own embedding dimension."""

    attention: Sequence[str]
    contexts: Sequence[int]
    trials: int = 1
    seed: int = 0
    m: int | None = None
    law: str = "uniform"
    dtype: str = "float64"
    width: int | None = None
    tied_targets: bool = False
    tolerance: float | None = None
    setting: CompareSetting = field(default_factory=CompareSetting)
    max_memory: int | None = None


def tied_targets_only(host: Universal) -> bool:
    """Whether a host can match tied targets only: a tied one with a residual stream, from L = 2 on, where it cannot tell the
    words (0, h) and (h, 0) apart (docs/proofs/residual.md), or one that is made for them."""
    entry = CONSTRUCTIONS.get(host.construction)
    made = entry is not None and entry.targets == "all tied"
    return made or (host.tied and host.shape.residual and host.shape.layers > 1)


def served(host: Universal, names: Sequence[str]) -> tuple[list[tuple[str, AttentionKernel]], list[tuple[str, str]]]:
    """The kernels this host can serve, and the others with the reason."""
    kernels: list[tuple[str, AttentionKernel]] = []
    left_out = []
    for name in names:
        kernel = named_kernel(name, host.shape.heads)
        reason = kernel.unfit(host.shape.head_dim)
        if reason is None and attention_matching(host) and not kernel.logits_only:
            reason = f"{host.construction} matches attention logits only"
        if reason is None:
            kernels.append((name, kernel))
        else:
            left_out.append((name, reason))
    return kernels, left_out


def run_case(case: Case, plan: Plan, progress: Callable[[], None] | None = None) -> CaseOutcome:
    """Run one case. Refusals (a construction not defined at the shape, targets outside its class) are outcomes, not errors."""
    try:
        host = build_host(
            case.host, case.shape, plan.m, seed=plan.seed, law=plan.law, dtype=plan.dtype, max_memory=plan.max_memory
        )
        only_tied = tied_targets_only(host)
        kernels, left_out = served(host, plan.attention)
        if not kernels:
            return CaseOutcome(case, host.m, None, left_out[0][1], left_out=tuple(left_out))

        def target(trial: int) -> Target:
            return draw_target(
                case.shape,
                plan.seed + trial,
                case.law,
                width=plan.width,
                tied=plan.tied_targets or only_tied,
                max_memory=plan.max_memory,
            )

        report = compare(
            host,
            target,
            kernels,
            plan.contexts,
            trials=plan.trials,
            seed=plan.seed,
            setting=plan.setting,
            tolerance=plan.tolerance,
            max_memory=plan.max_memory,
            progress=progress,
        )
    except (NotDefined, OutsideClass, Undecided) as error:
        return CaseOutcome(case, None, None, str(error))
    except CannotCarry as error:
        return CaseOutcome(case, plan.m, None, str(error), failed=True)
    return CaseOutcome(case, host.m, report, left_out=tuple(left_out), tied_targets=only_tied)


def totals(outcomes: Sequence[CaseOutcome]) -> dict[str, Any]:
    """Of all outcomes: runs, broken bounds, runs left open, refusals, the largest error, and the range of bound / error."""
    ran = [o for o in outcomes if o.report is not None]
    ratios = [c.ratio for o in ran if o.report for c in o.report.comparisons if c.ratio is not None]
    reports = [o.report for o in ran if o.report is not None]
    return {
        "runs": sum(len(r.comparisons) for r in reports),
        "broken": sum(len(r.broken) for r in reports),
        "undecided": sum(len(r.open) for r in reports),
        "refused": sum(o.refusal is not None and not o.failed for o in outcomes),
        "failed": sum(o.failed for o in outcomes),
        "max_relative_error": float(np.max([r.max_relative_error for r in reports])) if reports else None,
        "bound_over_error": [min(ratios), max(ratios)] if ratios else None,
    }
