"""Decide a host's weights: the verdict, its certificate, and for refuted hosts a target that they cannot match."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.decision.counterexample import counterexample, tied_counterexample
from utfproof.decision.findings import Findings
from utfproof.decision.verdict import (
    HostDecision,
    HostVerdict,
    decide_attention_matching,
    decide_matching,
    decide_tied_targets,
)
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import require_words
from utfproof.systems import Target
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion
from utfproof.weights import StoredHost, stored_host, write_target


def decide(
    weights: Path | str | StoredHost,
    *,
    notion: Notion | str = Notion.MATCHING,
    tied_targets: bool = False,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> Findings:
    """Decide exactly whether the host in a .safetensors file (R_Q, R_K, R_V or R_Vv and R_Vo, U) is universal.

    notion: "matching" or "attention-matching", for all untied targets; tied_targets: for all weight-tied ones, by matching.
    layers, d_in, residual: what the file's metadata do not say. Raises MalformedInput for a file that is no host, ResourceLimit
    before allocating.

    >>> from utfproof import Shape, build_host, decide
    >>> from utfproof.weights import write_host
    >>> write_host("host.safetensors", build_host("printed-tree-row", Shape(2, 2, 1, 2)))
    >>> decide("host.safetensors", d_in=2).universal
    False
    """
    notion = decidable(notion, tied_targets=tied_targets)
    stored = weights
    if not isinstance(stored, StoredHost):
        stored = stored_host(stored, layers=layers, d_in=d_in, residual=residual, max_memory=max_memory)
    require_words(stored.shape)
    how: dict[str, Any] = {"tied_targets": tied_targets, "witness": witness, "device": device}
    found = Findings(stored, verdict(stored, notion, **how, max_memory=max_memory))
    if found.decision.verdict is not HostVerdict.REFUTED:
        return found
    if tied_targets:
        return replace(found, tied=tied_counterexample(stored, found.decision))
    with suppress(ResourceLimit):  # the verdict holds without a named target
        return replace(found, counterexample=counterexample(stored, found.decision, max_memory=max_memory))
    return found


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


def write(found: Findings, output: Path, target: Path) -> Findings:
    """Write the certificate and the counterexample, both or neither; the findings with the files' names."""
    files: dict[str, str] = {}
    if found.target is not None:
        tied = found.tied is not None
        write_target(target, _as_float64(found.target) if tied else found.target, dtype="float64" if tied else "int8")
        files["target"] = str(target)
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
