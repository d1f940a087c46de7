"""Decide claims: run their checks, have the independent checker read every certificate, compare with the record."""

from __future__ import annotations

import contextlib
import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.certificates import checker
from utfproof.claims.grid import Grid
from utfproof.claims.record import UNCERTIFIED, Claim, Evidence, Figure, Instance, RoutesDisagree, Run, Verdict
from utfproof.claims.registry import all_claims
from utfproof.claims.theorems import standing
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.notions import Notion

CHECKER_OPERATIONS = 600 * 10**9
"""Work allowed to the checker for one certificate, in its own units."""


@dataclass
class Outcome:
    """One claim decided: `document` as docs and reports want it, `certificates` by digest (canonical bytes)."""

    claim: str
    document: dict[str, Any]
    certificates: dict[str, bytes] = field(default_factory=dict)
    sidecars: dict[str, bytes] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether everything computed is what the record says."""
        return not self.document["problems"]


def computed_verdict(instances: Sequence[Instance]) -> Verdict:
    """The verdict that these instances give: any failure of the printed statement decides, then any doubt."""
    printed = [found.holds for found in instances if found.part != "repair"]
    repair = [found.holds for found in instances if found.part == "repair"]
    if False in printed:
        mended = bool(repair) and all(holds is True for holds in repair)
        return Verdict.REPAIRED if mended else Verdict.FAILS
    everything = printed + repair
    if everything and all(holds is True for holds in everything):
        return Verdict.HOLDS
    return Verdict.OPEN


def _smallest(instances: Sequence[Instance], holds: bool) -> str | None:
    fitting = [found for found in instances if found.holds is holds]
    return min(fitting, key=lambda found: found.order).label if fitting else None


def _unsupported(claim: Claim, found: Instance) -> bool:
    """A decided instance without a certificate or a second route, in a claim whose evidence needs one."""
    if found.holds is None or found.certificate is not None or len(found.routes) >= 2:
        return False
    return not UNCERTIFIED.intersection(claim.evidence)


_STRENGTH = (Notion.FUNCTIONAL, Notion.ATTENTION_MATCHING, Notion.MATCHING)


def _mixed_notions(claim: Claim, found: Instance) -> list[str]:
    """A certificate must speak of the claim's own notion, or of one that implies what it is used for: universality by a
    stronger notion, or a refutation by a weaker one. Shared attention stands apart."""
    if claim.notion is None or found.certificate is None:
        return []
    notion = Notion(found.certificate.document["claim"]["notion"])
    if notion is claim.notion:
        return []
    if Notion.SHARED_ATTENTION not in (notion, claim.notion):
        stronger = _STRENGTH.index(notion) > _STRENGTH.index(claim.notion)
        if stronger is found.certificate.universal:
            return []
    return [f"{found.label}: a certificate about {notion.value} does not support a claim about {claim.notion.value}"]


def _differs(computed: Any, recorded: Any) -> bool:
    """Floats are recorded to a few digits; everything else exactly."""
    if isinstance(recorded, float) and isinstance(computed, float | int):
        return not math.isclose(computed, recorded, rel_tol=5e-3)
    return bool(computed != recorded) or isinstance(computed, bool) != isinstance(recorded, bool)


def decide(claim: Claim, grid: Grid, *, keep: Path | None = None) -> Outcome:
    """Run one claim's check and compare it with its record; certificates are written to `keep` (or a temporary folder)."""
    start = time.perf_counter()
    instances: list[Instance] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    outcome = Outcome(claim.id, {})
    rows = []
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            for found in claim.check(Run(grid)):
                if isinstance(found, Figure):
                    figures[found.name] = found.value
                    continue
                instances.append(found)
                digest = _recheck(found, folder, outcome, problems)
                problems += _mixed_notions(claim, found)
                if _unsupported(claim, found):
                    problems.append(f"{found.label}: neither a certificate nor a second route supports it")
                rows.append(_row(found, digest))
        except RoutesDisagree as error:
            problems.append(f"two routes disagree: {error}")
        except UtfproofError as error:
            problems.append(f"the check stopped: {error}")
        except Exception as error:  # a fault in the code under test must name the claim, not end the run
            problems.append(f"the check failed: {type(error).__name__}: {error}")
    verdict = computed_verdict(instances)
    problems += _differences(claim, verdict, instances, figures)
    theorems = standing(claim.theorem)
    problems += [found.problem for found in theorems if found.problem is not None]
    outcome.document = {
        **_description(claim),
        "theorems": [{"name": found.name, "status": found.status, "detail": found.detail} for found in theorems],
        "verdict": verdict.value,
        "agrees": not problems,
        "problems": [" ".join(problem.split())[:400] for problem in problems],
        "figures": figures,
        "smallest": _smallest(instances, True),
        "counterexample": _smallest(instances, False),
        "instances": rows,
        "seconds": round(time.perf_counter() - start, 3),
    }
    return outcome


def _description(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "section": claim.section,
        "place": claim.place,
        "statement": claim.statement,
        "category": claim.category.value,
        "notion": None if claim.notion is None else claim.notion.value,
        "targets": claim.targets,
        "scope": claim.scope,
        "recorded": claim.verdict.value,
        "evidence": [kind.value for kind in claim.evidence],
        "proof": claim.proof,
        "theorems_lack": claim.theorems_lack,
        "sentence": claim.sentence,
    }


def _row(found: Instance, digest: str | None) -> dict[str, Any]:
    outcomes = {True: "holds", False: "fails", None: "open"}
    return {
        "at": found.label,
        "outcome": outcomes[found.holds],
        "detail": found.detail,
        "part": found.part,
        "certificate": digest,
        "routes": list(found.routes),
    }


def _recheck(found: Instance, folder: Path, outcome: Outcome, problems: list[str]) -> str | None:
    """Write the instance's certificate, have the independent checker read it, and return its digest."""
    if found.certificate is None:
        return None
    data = found.certificate.to_bytes()
    digest = hashlib.sha256(data).hexdigest()[:16]
    if digest in outcome.certificates:
        return digest
    path = folder / f"{digest}.json"
    for written in found.certificate.write(path):
        if written != path:
            outcome.sidecars[written.name] = written.read_bytes()
    outcome.certificates[digest] = data
    answer = checker.check_file(path, checker.Limits(operations=CHECKER_OPERATIONS))
    if answer.code != checker.VALID:
        problems.append(f"{found.label}: the checker does not accept certificate {digest}: {answer.message}")
    return digest


def _differences(claim: Claim, verdict: Verdict, instances: Sequence[Instance], figures: dict[str, Any]) -> list[str]:
    """Every way in which what was computed is not what the record says, a line each."""
    lines = []
    if not instances:
        lines.append("nothing was examined")
    if verdict is not claim.verdict:
        lines.append(f"the verdict is {verdict.value!r}, recorded is {claim.verdict.value!r}")
    for name in {**claim.figures, **figures}:
        if name not in figures:
            lines.append(f"figure {name!r} was not computed, recorded is {claim.figures[name]!r}")
        elif name not in claim.figures:
            lines.append(f"figure {name!r} is {figures[name]!r} and not recorded")
        elif _differs(figures[name], claim.figures[name]):
            lines.append(f"figure {name!r} is {figures[name]!r}, recorded is {claim.figures[name]!r}")
    for name, recorded, holds in (
        ("smallest instance", claim.smallest, True),
        ("counterexample", claim.counterexample, False),
    ):
        found = _smallest(instances, holds)
        if recorded is not None and found != recorded:
            lines.append(f"the {name} is {found}, recorded is {recorded}")
    if Evidence.CERTIFICATE in claim.evidence and not any(found.certificate is not None for found in instances):
        lines.append("evidence 'exact certificate' is recorded and no certificate was made")
    return lines


def _decide_by_id(name: str, grid_text: str, keep: str | None) -> Outcome:
    """For worker processes: everything in and out is plain data."""
    import warnings

    from utfproof.shapes import EffectiveHeadDimensionWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return decide(all_claims()[name], Grid.parse(grid_text), keep=None if keep is None else Path(keep))


def verify(
    claims: Sequence[Claim],
    grid: Grid,
    *,
    executor: Executor | None = None,
    keep: Path | None = None,
    progress: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], list[Outcome]]:
    """Decide these claims on this grid: the verify document (docs/claims.md) and the outcomes with their certificates.

    executor: any concurrent.futures executor (processes here, a cluster elsewhere), which the caller ends; in this process
    without one.
    keep: an existing folder in which every certificate is left. progress is called after each claim.
    """
    if keep is not None and not keep.is_dir():
        raise MalformedInput(f"{keep} is not a folder; make it first")
    start = time.perf_counter()
    folder = None if keep is None else str(keep)
    outcomes: dict[str, Outcome] = {}

    def arrived(outcome: Outcome) -> None:
        outcomes[outcome.claim] = outcome
        if progress is not None:
            progress()

    if executor is None:
        for entry in claims:
            arrived(_decide_by_id(entry.id, grid.text, folder))
    else:
        futures: list[Future[Outcome]] = [
            executor.submit(_decide_by_id, entry.id, grid.text, folder) for entry in _longest_first(claims)
        ]
        for future in as_completed(futures):
            arrived(future.result())
    ordered = [outcomes[entry.id] for entry in claims]
    document = {
        "grid": grid.text,
        "holds": all(outcome.agrees for outcome in ordered),
        "seconds": round(time.perf_counter() - start, 3),
        "claims": [outcome.document for outcome in ordered],
    }
    return document, ordered


def _longest_first(claims: Sequence[Claim]) -> list[Claim]:
    """Claims with certificates on a grid take longest; starting with them evens out the workers."""
    return sorted(claims, key=lambda entry: Evidence.CERTIFICATE not in entry.evidence)
