"""Compute a claim's verdict from its instances and compare it with the record.

A certificate supports an instance only if it is about that shape and that m, if the checker accepts it, and if its scope
settles the claim's own (`utfproof.util.notions`).

Rules for readings, the same for every claim: a sentence about accuracies in words ("matches", "exceeds", "near-perfect")
is judged with the tolerance `TOLERANCE` of percentage points; a number that the paper prints is compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.scope import is_inequality, scope_of
from utfproof.claims.claim import BESIDE, KNOWN, REPAIR, Claim, Evidence, Instance, Run, Verdict
from utfproof.shapes import Shape

TOLERANCE = 5.0
"""Percentage points by which accuracies may differ where the paper compares them in words."""


@dataclass
class Observation:
    """What one run of a check gave. digests: of certificates, by the number of their instance. refused: certificates that
    the checker does not accept, by digest, with its message. stopped: why the check did not finish, if it did not."""

    run: Run
    instances: list[Instance] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    certificates: dict[str, bytes] = field(default_factory=dict)
    sidecars: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None


def computed_verdict(instances: Sequence[Instance]) -> Verdict:
    """A failure of the printed statement decides first, then an undecided instance. Instances beside it do not mend it."""
    printed = [found.holds for found in instances if found.part not in (REPAIR, BESIDE)]
    repair = [found.holds for found in instances if found.part == REPAIR]
    if False in printed:
        mended = bool(repair) and all(holds is True for holds in repair)
        return Verdict.REPAIRED if mended else Verdict.FAILS
    everything = printed + repair
    if everything and all(holds is True for holds in everything):
        return Verdict.HOLDS
    return Verdict.OPEN


def smallest(instances: Sequence[Instance], holds: bool) -> str | None:
    """The label of the smallest instance with this outcome."""
    fitting = [found for found in instances if found.holds is holds]
    return min(fitting, key=lambda found: found.order).label if fitting else None


def judge(claim: Claim, seen: Observation, *, default_grid: bool) -> list[str]:
    """What contradicts the record, a line each. On the default grid, where the record was made, everything must be as
    recorded; on another grid, nothing may refute the recorded verdict."""
    lines = [] if seen.stopped is None else [seen.stopped]
    if not seen.instances:
        lines.append("nothing was examined")
    for i, found in enumerate(seen.instances):
        if found.certificate is not None:
            lines += _certificate_problems(claim, found, found.certificate, seen.refused.get(seen.digests.get(i, "")))
    lines += [*_evidence_problems(claim, seen.instances, default_grid), *_repair_problems(seen.instances)]
    verdict = computed_verdict(seen.instances)
    if default_grid:
        if verdict is not claim.verdict:
            lines.append(f"the verdict is {verdict.value!r}, recorded is {claim.verdict.value!r}")
        lines += _figure_problems(claim, seen)
    elif claim.verdict in (Verdict.HOLDS, Verdict.OPEN) and verdict in (Verdict.FAILS, Verdict.REPAIRED):
        lines.append(f"the verdict on this grid is {verdict.value!r}, recorded is {claim.verdict.value!r}")
    elif any(found.part == REPAIR and found.holds is False for found in seen.instances):
        lines.append("the repair fails on this grid")
    return lines


def _certificate_problems(claim: Claim, found: Instance, made: Certificate, refused: str | None) -> Iterator[str]:
    document = made.document
    if refused is not None:
        yield f"{found.label}: the checker does not accept its certificate: {refused}"
    if isinstance(found.at, Shape):
        if shape_of(document) != found.at:
            yield f"{found.label}: its certificate is about {shape_of(document)}"
        if found.m != int(document["shape"]["m"]):
            yield f"{found.label}: its certificate is about m = {document['shape']['m']}"
    wanted = claim.about if found.about is None else found.about
    if wanted is None:
        return
    about, layers = scope_of(document), int(document["shape"]["layers"])
    if not about.supports(wanted, universal=made.universal, layers=layers):
        served = "served" if made.universal else "not served"
        yield f"{found.label}: a certificate that '{about}' are {served} does not support a claim about '{wanted}'"


def figures(claim: Claim, seen: Observation) -> dict[str, Any]:
    """The figures computed, and the details of those instances that the record has among its figures."""
    details = {found.label: found.detail for found in seen.instances if found.label in claim.figures}
    return details | seen.figures


def _figure_problems(claim: Claim, seen: Observation) -> Iterator[str]:
    computed = figures(claim, seen)
    for name in {**claim.figures, **computed}:
        if name not in computed:
            yield f"figure {name!r} was not computed, recorded is {claim.figures[name]!r}"
        elif name not in claim.figures:
            yield f"figure {name!r} is {computed[name]!r} and not recorded"
        elif _differs(computed[name], claim.figures[name]):
            yield f"figure {name!r} is {computed[name]!r}, recorded is {claim.figures[name]!r}"
    for name, record, holds in (
        ("smallest instance", claim.smallest, True),
        ("counterexample", claim.counterexample, False),
    ):
        found = smallest(seen.instances, holds)
        if found != record:
            yield f"the {name} is {found}, recorded is {record}"


def _differs(computed: Any, recorded: Any) -> bool:
    """Floats are recorded to a few digits; everything else exactly."""
    if isinstance(recorded, float) and isinstance(computed, float | int):
        return not math.isclose(computed, recorded, rel_tol=5e-3)
    return bool(computed != recorded) or isinstance(computed, bool) != isinstance(recorded, bool)


RECORDED_AS = {
    Evidence.CERTIFICATE: {Evidence.CERTIFICATE},
    Evidence.INEQUALITY: {Evidence.INEQUALITY},
    Evidence.ARITHMETIC: {Evidence.SYMBOLIC, Evidence.GRID, Evidence.ARITHMETIC, Evidence.SAMPLED},
    Evidence.SINGLE: {Evidence.SINGLE, Evidence.SAMPLED, Evidence.RECORD},
    Evidence.OPEN: {Evidence.OPEN},
}
"""What an instance carries -> the evidence that a claim may record for it."""


def evidence_of(found: Instance) -> set[Evidence]:
    """What an instance carries: a certificate, two routes (`ARITHMETIC`), what the frontier knows, or one route."""
    kinds = set()
    if found.certificate is not None:
        kinds.add(Evidence.INEQUALITY if is_inequality(found.certificate.document) else Evidence.CERTIFICATE)
    if len(found.routes) >= 2:
        kinds.add(Evidence.ARITHMETIC)
    if not kinds:
        kinds.add(Evidence.OPEN if found.holds is None or found.routes == (KNOWN,) else Evidence.SINGLE)
    return kinds


def _evidence_problems(claim: Claim, instances: Sequence[Instance], default_grid: bool) -> Iterator[str]:
    first: dict[Evidence, Instance] = {}
    for found in instances:
        first = {**dict.fromkeys(evidence_of(found), found), **first}
    for kind, found in first.items():
        if not RECORDED_AS[kind].intersection(claim.evidence) and (default_grid or kind is not Evidence.OPEN):
            yield f"{found.label}: rests on {kind.value!r}, which is not recorded"
    for name in claim.evidence:
        kinds = {kind for kind, names in RECORDED_AS.items() if name in names}
        if default_grid and kinds and not kinds & set(first):
            yield f"evidence {name.value!r} is recorded, and no instance rests on it"


def _repair_problems(instances: Sequence[Instance]) -> Iterator[str]:
    """A repair is about the same m: at a shape where the printed statement fails at one m, it must be at that m."""
    failing = {(found.at, found.m) for found in instances if found.part == "" and found.holds is False}
    shapes = {at for at, m in failing if isinstance(at, Shape) and m is not None}
    for found in instances:
        if found.part == REPAIR and found.at in shapes and found.m is not None and (found.at, found.m) not in failing:
            yield f"{found.label}: a repair at another m than the statement's is another theorem; mark it BESIDE"
        if found.part == BESIDE and found.holds is not True:
            yield f"{found.label}: what is recorded beside the statement does not hold"


def examined(run: Run) -> str:
    """On a grid other than the default one: how many of its shapes the check looked at, in a sentence."""
    found, left_out = len(run.examined), len(run.too_large - run.examined)
    text = f"{found} of {len(list(run.grid.shapes()))} shapes of this grid examined"
    text += f", {left_out} too large for this check" if left_out else ""
    return text if found else f"{text}; the verdict is about the claim's own shapes"
