"""Everything about one target's smallest host in one go: what `utfproof embed --minimize` reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import GivenAttention, SoftmaxAttention
from utfproof.certificates.format import Certificate
from utfproof.errors import ResourceLimit
from utfproof.ground.arrays import one_line
from utfproof.ground.progress import stage
from utfproof.models.realization.besteffort import best_effort
from utfproof.models.realization.certificate import certificate, require_valid
from utfproof.models.realization.hankel import LeastHost, forms, least_dimension
from utfproof.models.realization.host import least_host
from utfproof.models.realization.numerical import TOLERANCE, numerical_host, truncated_host
from utfproof.models.realization.simplify import with_short_logits, without_dead_heads
from utfproof.models.realization.tied import tied_host
from utfproof.systems import Target, TiedTarget, Universal


@one_line
@dataclass(frozen=True, eq=False)
class Minimized:
    """document: JSON-able. host and E: exact at the least m (entries ints and Fractions) unless document["host"] says float64.
    certificate: that m is least, re-checked by the independent checker; None where numbers are too long for one."""

    document: dict[str, Any]
    host: Universal
    E: np.ndarray
    certificate: Certificate | None


def minimize(
    target: Target,
    *,
    m: int | None = None,
    kernel: SoftmaxAttention | GivenAttention | None = None,
    groups: Sequence[int] | None = None,
    tolerance: float = TOLERANCE,
    certify: bool = True,
    max_memory: int | None = None,
) -> Minimized:
    """The least m for this target, a host of that size with its E, what dead heads and short logits save, the float64 host at
    this tolerance; and for an m that is too small the closest host found, its E of least squares and a bound of its output
    error.

    kernel and groups are those of `besteffort.output_bound`. certify: write and re-check a certificate (most of the time, at
    large widths); what is said is computed exactly without one too. Raises MalformedInput for weights that are not finite.
    """
    held = forms(target)
    with stage("least m for this target"):
        least = least_dimension(held)
    document: dict[str, Any] = {"least": least.document(), "structure": structure(least)}
    evidence = None
    try:
        with stage("host of that size"):
            host, E, least = least_host(held, least=least)
        document["host"] = {
            "m": host.m,
            "arithmetic": "rational",
            "notion": "matching",
            "verified": "E R_all = W_all exactly",
        }
        try:
            if certify:
                with stage("certificate that m is least"):
                    evidence = certificate(least, host, E)
                    require_valid(evidence)
                document["certificate"] = evidence.document["claim"]
        except ResourceLimit as error:
            evidence = None
            document["certificate"] = {"left_out": str(error)}
    except ResourceLimit as error:
        with stage("host in floats"):
            found = numerical_host(target, tolerance=tolerance, max_memory=max_memory)
        host, E = found.host, found.E
        document["host"] = {**found.document(), "exact_left_out": str(error)}
    with stage("dead heads and short logits"):
        pruned, dead = without_dead_heads(held, least)
        short = with_short_logits(pruned)
        fewer = least_dimension(pruned).m if dead else least.m
        shortest = fewer if short is pruned else least_dimension(short).m
    document["without_dead_heads"] = {
        "m": fewer,
        "heads": [list(pair) for pair in dead],
        "notion": "functional (matches the target without its dead heads, whose outputs are the same)",
    }
    document["short_logits"] = {
        "m": shortest,
        "notion": "attention-matching of the target without its dead heads; not claimed least",
    }
    if isinstance(target, TiedTarget):
        document["tied"] = tied_host(target).document()
    with stage("host in floats"):
        document["numerical"] = numerical_host(target, tolerance=tolerance, max_memory=max_memory).document()
    if m is not None and m < least.m:
        smaller = truncated_host(target, m)
        effort = best_effort(smaller.host, target, kernel=kernel, groups=groups, max_memory=max_memory)
        document["best_effort"] = {**effort.document(), "asked_m": m}
    return Minimized(document, host, E, evidence)


def structure(least: LeastHost) -> dict[str, list[str]]:
    """What makes a target smaller than its width, by kind: heads (layer.head, from 0) that nothing reads, that repeat another
    of their layer, and whose queries, keys, logits or values have a rank below their width on the states that reach them."""
    d = least.staircase.target.shape.head_dim
    out: dict[str, list[str]] = {}
    inner = least.staircase.target.inner
    live = [head for head in least.heads if head.rank_value]
    out["dead heads"] = [f"{layer}.{head}" for layer, head in least.dead_heads]
    out["repeated heads"] = [f"{h.layer}.{h.head} is {h.layer}.{h.repeats}" for h in live if h.repeats is not None]
    for name, field, full in (
        ("low-rank queries", "rank_query", d),
        ("low-rank keys", "rank_key", d),
        ("low-rank logits", "rank_logits", d),
        ("low-rank values", "rank_value", inner),
    ):
        ranks = [(h, getattr(h, field)) for h in live]
        out[name] = [f"{h.layer}.{h.head} ({rank} of {full})" for h, rank in ranks if rank < full]
    return out
