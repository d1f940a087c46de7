"""Decide a host's weights: the verdict, its certificate, and for refuted hosts a target that they cannot match."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.decision.attention import decide_attention_matching
from utfproof.decision.counterexample import (
    counterexample,
    measure_difference,
    tied_counterexample,
    visible_counterexample,
)
from utfproof.decision.findings import Findings
from utfproof.decision.margin import Margin, margin_of
from utfproof.decision.verdict import HostDecision, HostVerdict, decide_matching, decide_tied_targets
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.arrays import exact
from utfproof.ground.files import together
from utfproof.ground.notions import Notion
from utfproof.shapes import require_words
from utfproof.systems import Target, Universal
from utfproof.weights import StoredHost, read_host, stored_host, write_target


def decide(
    weights: Path | str | StoredHost,
    *,
    notion: Notion | str = Notion.MATCHING,
    tied_targets: bool = False,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    visible: bool = False,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> Findings:
    """Decide exactly whether the host in a .safetensors file (R_Q, R_K, R_V or R_Vv and R_Vo, U) is universal.

    notion: "matching" or "attention-matching", for all untied targets; tied_targets: for all weight-tied ones, by matching.
    layers, d_in, residual: what the file's metadata do not say. visible: also find a counterexample whose difference shows
    through softmax, and run it beside the host where float64 holds it. Raises MalformedInput for a file that is no host,
    ResourceLimit before allocating.
    """
    notion = decidable(notion, tied_targets=tied_targets)
    stored = weights
    if not isinstance(stored, StoredHost):
        stored = stored_host(stored, layers=layers, d_in=d_in, residual=residual, max_memory=max_memory)
    require_words(stored.shape)
    how: dict[str, Any] = {"tied_targets": tied_targets, "witness": witness, "device": device}
    decision = verdict(stored, notion, **how, max_memory=max_memory)
    if notion is Notion.ATTENTION_MATCHING:
        return Findings(stored, decision)
    if tied_targets:
        return Findings(stored, decision, tied=tied_counterexample(stored, decision))
    machine = _machine(stored)
    findings = Findings(stored, decision, _margin(stored, decision, machine, max_memory))
    if decision.verdict is HostVerdict.REFUTED:
        return _refuted(findings, machine, visible, max_memory)
    return findings


def decidable(notion: Notion | str, *, tied_targets: bool = False) -> Notion:
    """The notion; MalformedInput where nothing decides it for given weights."""
    if notion not in (Notion.MATCHING, Notion.ATTENTION_MATCHING):
        raise MalformedInput(
            f"notion {str(notion)!r} cannot be decided for given weights; choose matching, attention-matching"
        )
    if tied_targets and notion != Notion.MATCHING:
        raise MalformedInput("tied targets are decided by matching alone; leave out the notion")
    return Notion(notion)


def verdict(
    stored: StoredHost, notion: Notion, *, tied_targets: bool, witness: bool, device: str, max_memory: int | None
) -> HostDecision:
    """The decision alone."""
    if tied_targets:
        return decide_tied_targets(stored, max_memory=max_memory)
    decide = decide_matching if notion is Notion.MATCHING else decide_attention_matching
    return decide(stored, witness=witness, device=device, max_memory=max_memory)


def _refuted(findings: Findings, machine: Universal | None, visible: bool, limit: int | None) -> Findings:
    """With a counterexample, and a visible one where that was asked for and can be had."""
    stored = findings.stored
    with suppress(ResourceLimit):  # the verdict stands without a name for the target
        findings = replace(findings, counterexample=counterexample(stored, findings.decision, max_memory=limit))
    found = findings.counterexample
    if found is None or not visible:
        return findings
    shown, _ = visible_counterexample(found)
    measured = None if machine is None else measure_difference(machine, shown, max_memory=limit)
    return replace(findings, visible=shown, difference=measured)


def _margin(
    stored: StoredHost, decision: HostDecision, machine: Universal | None, limit: int | None
) -> Margin | str | None:
    """Figures beside the verdict; None where they would take too much memory."""
    if machine is None:
        return "the file holds integers beyond 2^53, which float64 cannot hold"
    with suppress(ResourceLimit):
        return margin_of(stored, machine, universal=decision.universal, max_memory=limit)
    return None


def _machine(stored: StoredHost) -> Universal | None:
    """The host in float64; None where it holds integers that float64 cannot."""
    for array in stored.file.tensors.values():
        if array.dtype.kind != "f" and array.size and (int(array.max()) > 2**53 or int(array.min()) < -(2**53)):
            return None
    return read_host(stored)


def write(found: Findings, output: Path, target: Path, visible: Path | None = None) -> Findings:
    """Write the certificate and the counterexamples, all or none of them; the findings with the files' names."""
    files: dict[str, str] = {}
    with together():
        if found.target is not None:
            tied = found.tied is not None
            write_target(
                target, _as_float64(found.target) if tied else found.target, dtype="float64" if tied else "int8"
            )
            files["target"] = str(target)
        if visible is not None and found.visible is not None:
            write_target(visible, found.visible, dtype="int8")
            files["visible"] = str(visible)
        if found.certificate is not None:
            *sidecars, written = found.certificate.write(output)
            files["certificate"] = str(written)
            files |= {f"sidecar {i}": str(path) for i, path in enumerate(sidecars, start=1)}
    return replace(found, files=files)


def _as_float64(target: Target) -> Target:
    """The same target in floats; MalformedInput where they cannot hold it exactly."""
    arrays = []
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        weights = np.asarray(getattr(target, name))
        floats = weights.astype(np.float64)
        if not np.isfinite(floats).all() or (exact(floats) != weights).any():
            raise MalformedInput(f"the target's {name} does not fit float64 exactly; leave out --target")
        arrays.append(floats)
    return type(target)(target.shape, *arrays)
