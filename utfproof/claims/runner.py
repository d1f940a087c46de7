"""Decide claims: run their checks, have the independent checker read every certificate, compare with the record."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from utfproof.certificates import checker
from utfproof.certificates.scope import signature
from utfproof.claims.claim import OUTCOMES, Claim, Evidence, Figure, Instance, RoutesDiffer, Run
from utfproof.claims.grid import Grid
from utfproof.claims.registry import all_claims
from utfproof.claims.theorems import ABSENT, BROKEN, BUILT, CHECKED, STATED, Standing, standing
from utfproof.claims.verdicts import Observation, computed_verdict, examined, figures, judge, smallest
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.util.files import write_bytes

SPENT = ("seconds", "processor_seconds")
"""Of a claim's document: what differs from run to run."""
WORDS = (
    *("id", "section", "place", "quotation", "statement", "targets", "scope"),
    *("proof", "theorems_lack", "cause", "sentence"),
)
"""Fields of a claim that its document repeats."""


@dataclass
class ClaimOutcome:
    """One claim decided: `document` as docs and reports want it, `certificates` by digest (canonical bytes)."""

    claim: str
    document: dict[str, Any]
    certificates: dict[str, bytes] = field(default_factory=dict)
    sidecars: dict[str, bytes] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether everything computed is what the record says."""
        return not self.document["problems"]


def observe(claim: Claim, grid: Grid, *, keep: Path | None = None) -> Observation:
    """Run a claim's check and have the checker read every certificate (written to `keep` or a temporary folder)."""
    run = Run(grid, claim.shapes)
    seen = Observation(run=run)
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        try:
            for found in claim.check(run):
                if isinstance(found, Figure):
                    seen.figures[found.name] = found.value
                    continue
                seen.instances.append(found)
                _recheck(seen, folder, kept=keep is not None)
        except RoutesDiffer as error:
            seen.stopped = f"two routes disagree: {error}"
        except UtfproofError as error:
            seen.stopped = f"the check stopped: {error}"
        except Exception as error:  # a fault in the code under test must name the claim, not end the run
            seen.stopped = f"the check failed: {type(error).__name__}: {error}"
    return seen


def _recheck(seen: Observation, folder: Path, *, kept: bool) -> None:
    """Write the newest instance's certificate and have the independent checker read it. kept: each file appears whole, for
    those who read the folder later; a temporary one that is lost with its folder need not."""
    found = seen.instances[-1]
    if found.certificate is None:
        return
    data = found.certificate.to_bytes()
    whole = hashlib.sha256(data).hexdigest()
    digest = seen.digests[len(seen.instances) - 1] = whole[:16]
    if digest in seen.certificates:
        return
    path = folder / f"{digest}.json"
    beside = {f"{name}.bin": content for name, content in found.certificate.sidecars.items()}
    seen.sidecars |= beside
    seen.certificates[digest] = data
    if kept or whole not in _accepted():
        for place, content in [*((folder / name, content) for name, content in beside.items()), (path, data)]:
            (write_bytes if kept else Path.write_bytes)(place, content)
    if whole in _accepted():
        return
    answer = checker.check_file(path)
    if answer.code == checker.VALID:
        _accepted().add(whole)
    else:
        seen.refused[digest] = answer.message


@lru_cache(maxsize=1)
def _accepted() -> set[str]:
    """SHA-256 of the certificates that the checker has accepted in this process: many claims rest on the same ones. What lies
    beside a certificate is named by its digest in it, so that equal bytes say the same."""
    return set()


def decide(claim: Claim, grid: Grid, *, keep: Path | None = None) -> ClaimOutcome:
    """Run one claim's check and compare it with its record; certificates are written to `keep` (or a temporary folder)."""
    start, used = time.perf_counter(), time.process_time()
    seen = observe(claim, grid, keep=keep)
    theorems = standing(claim.theorems)
    problems = judge(claim, seen, default_grid=grid.default)
    problems += [found.problem for found in theorems if found.problem is not None]
    verdict = computed_verdict(seen.instances).value
    about = claim.about
    attention = None if about is None or about.attention is None else about.attention.value
    document = {
        **{name: getattr(claim, name) for name in WORDS},
        "category": claim.category.value,
        "notion": None if about is None else about.notion.value,
        "hosts": None if about is None else str(about.hosts),
        "free": None if about is None else about.free,
        "attention": attention,
        "recorded": claim.verdict.value,
        "evidence": [_machine(theorems) if kind is Evidence.MACHINE else kind.value for kind in claim.evidence],
        "basis": basis(claim, theorems, verdict),
        "theorems": [{"name": found.name, "status": found.status, "detail": found.detail} for found in theorems],
        "verdict": verdict,
        "grid_note": None if grid.default else examined(seen.run),
        "agrees": not problems,
        "problems": [" ".join(problem.split())[:400] for problem in problems],
        "figures": figures(claim, seen),
        "smallest": smallest(seen.instances, True),
        "counterexample": smallest(seen.instances, False),
        "instances": [_row(found, seen.digests.get(i)) for i, found in enumerate(seen.instances)],
        **dict(zip(SPENT, (round(time.perf_counter() - start, 3), round(time.process_time() - used, 3)), strict=True)),
    }
    return ClaimOutcome(claim.id, document, seen.certificates, seen.sidecars)


def basis(claim: Claim, theorems: Sequence[Standing], verdict: str) -> str:
    """How a verdict is known: "proved" in Coq, here and all of it; "cited" from a written proof, or from one in Coq that was
    not built here; else "checked" by what was computed. An open claim is "open"."""
    if verdict == "open":
        return verdict
    if theorems and not claim.theorems_lack and all(found.status in CHECKED for found in theorems):
        return "proved"
    cited = {Evidence.WRITTEN, Evidence.INEQUALITY, Evidence.MACHINE} & set(claim.evidence)
    return "cited" if cited else "checked"


def _machine(theorems: Sequence[Standing]) -> str:
    """How the theorems behind a claim stand here: compiled, only stated, or not as they should be."""
    if theorems and all(found.status in CHECKED for found in theorems):
        return BUILT
    return STATED if any(found.status == ABSENT for found in theorems) else BROKEN


def _row(found: Instance, digest: str | None) -> dict[str, Any]:
    return {
        "at": found.label,
        "outcome": OUTCOMES[found.holds],
        "detail": found.detail,
        "part": found.part,
        "certificate": digest,
        "says": None if found.certificate is None else signature(found.certificate.document),
        "routes": list(found.routes),
    }


def _decide_by_id(name: str, grid_text: str, keep: Path | None) -> ClaimOutcome:
    """For worker processes: everything in and out is plain data."""
    import warnings

    from utfproof.shapes import EffectiveHeadDimensionWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return decide(all_claims()[name], Grid.parse(grid_text), keep=keep)


def verify(
    claims: Sequence[Claim],
    grid: Grid,
    *,
    executor: Executor | None = None,
    keep: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], list[ClaimOutcome]]:
    """Decide these claims on this grid: the verify document and the outcomes with their certificates.

    executor: any concurrent.futures executor, which the caller ends; in this process without one. keep: an existing folder in
    which every certificate is left. progress is called after each claim.
    """
    if keep is not None and not keep.is_dir():
        raise MalformedInput(f"{keep} is not a folder; make it first")
    start = time.perf_counter()
    if executor is None:
        arriving = (_decide_by_id(entry.id, grid.text, keep) for entry in claims)
    else:
        # claims with certificates take longest: starting with them evens out the workers
        slow_first = sorted(claims, key=lambda entry: Evidence.CERTIFICATE not in entry.evidence)
        futures = [executor.submit(_decide_by_id, entry.id, grid.text, keep) for entry in slow_first]
        arriving = (future.result() for future in as_completed(futures))
    outcomes = {}
    for outcome in arriving:
        outcomes[outcome.claim] = outcome
        progress()
    ordered = [outcomes[entry.id] for entry in claims]
    document = {
        "grid": grid.text,
        "holds": all(outcome.agrees for outcome in ordered),
        "seconds": round(time.perf_counter() - start, 3),
        "claims": [outcome.document for outcome in ordered],
    }
    return document, ordered
