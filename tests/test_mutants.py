"""The registry sees its own faults: every mutant of a record, and of what its check computed, has something against it."""

import dataclasses

import mutants
import pytest

from utfproof.certificates.format import Certificate
from utfproof.certificates.scope import signature
from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.claims.judging import judge, refuted_by
from utfproof.claims.record import REPAIR, RoutesDiffer, agree
from utfproof.claims.registry import select
from utfproof.claims.runner import observe

SAMPLE = ["intro:embedding-shape", "new:fibre/bound", "thm:lower_bound_utf/untied", "new:one-by-one/functional"]
CLASSES = (
    *("verdict", "figure", "outcome", "routes", "certificate", "quotation", "page", "label"),
    *("statement", "scope", "notion", "targets"),
)
"""Classes in which no mutant is left to the digest of the record's words. Of evidence a few are: where two names for two routes
stand side by side, dropping one leaves the other."""


def test_a_sample_of_mutants_is_seen():
    made, _, found, unseen = mutants.run(SAMPLE)
    assert unseen == []
    assert {kind: found[kind] for kind in CLASSES} == {kind: made[kind] for kind in CLASSES}
    assert min(made.values()) >= 1


@pytest.mark.exhaustive
def test_every_mutant_of_the_registry_is_seen():
    made, computed, found, unseen = mutants.run([])
    print(dict(made), dict(computed))
    assert unseen == []
    assert made.total() >= 5000
    assert made["evidence"] - found["evidence"] <= 4
    assert {kind: found[kind] for kind in CLASSES} == {kind: made[kind] for kind in CLASSES}


def refuted(entry, claim, seen):
    """What a run would have observed had a computation come out as this line of `refuted_by` says."""
    change = dataclasses.replace
    if "instance" in entry or "instances" in entry:
        part = REPAIR if "repair" in str(entry) else ""
        said = entry.get("instance") or entry["instances"]
        holds = said not in ("fails", "fails after repair")
        whole = "instances" in entry
        place = next((i for i, found in enumerate(seen.instances) if found.part == part), 0)
        instances = [
            change(found, holds=holds) if (whole and found.part != REPAIR) or i == place else found
            for i, found in enumerate(seen.instances)
        ]
        return change(seen, instances=instances)
    if "figure" in entry:
        return change(seen, figures={**seen.figures, entry["figure"]: "another"})
    if "routes" in entry:
        with pytest.raises(RoutesDiffer) as stopped:
            agree(dict(zip(entry["routes"], range(len(entry["routes"])), strict=True)))
        return change(seen, stopped=f"two routes disagree: {stopped.value}")
    for i, found in enumerate(seen.instances):
        document = None if found.certificate is None else found.certificate.document
        if document is not None and signature(document).endswith(entry["scope"]):
            opposite = {**document, "claim": {**document["claim"], "verdict": entry["certificate"]}}
            put = change(
                found, certificate=Certificate(opposite), holds=None if found.holds is None else not found.holds
            )
            return change(seen, instances=[*seen.instances[:i], put, *seen.instances[i + 1 :]])
    raise AssertionError(entry)


def happens(names):
    """How many lines of `refuted_by` were made to happen; each must speak against the record."""
    count = 0
    for claim in select(names):
        seen = observe(claim, Grid.parse(DEFAULT_GRID))
        lines = refuted_by(claim)
        assert lines, claim.id
        for entry in lines:
            assert judge(claim, refuted(entry, claim, seen), whole=True), (claim.id, entry)
            count += 1
    return count


def test_what_is_said_to_refute_a_claim_does():
    assert happens(SAMPLE) >= 2 * len(SAMPLE)


@pytest.mark.exhaustive
def test_what_is_said_to_refute_any_claim_does():
    assert happens([]) >= 800
