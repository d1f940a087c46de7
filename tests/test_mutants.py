"""The registry sees its own faults: every mutant of a record, and of what its check computed, has something against it."""

import mutants
import pytest

SAMPLE = ["intro:embedding-shape", "new:fibre/bound", "thm:lower_bound_utf/untied", "new:one-by-one/functional"]
BY_COMPUTATION = ("verdict", "figure", "outcome", "routes", "certificate", "quotation")
"""Classes in which no mutant is left to the digest of the record's words."""


def test_a_sample_of_mutants_is_seen():
    made, computed, unseen = mutants.run(SAMPLE)
    assert unseen == []
    assert {kind: computed[kind] for kind in BY_COMPUTATION} == {kind: made[kind] for kind in BY_COMPUTATION}
    assert min(made.values()) >= 1


@pytest.mark.exhaustive
def test_every_mutant_of_the_registry_is_seen():
    made, computed, unseen = mutants.run([])
    print(dict(made), dict(computed))
    assert unseen == []
    assert made.total() >= 5000
    assert {kind: computed[kind] for kind in BY_COMPUTATION} == {kind: made[kind] for kind in BY_COMPUTATION}
    assert computed.total() >= 0.7 * made.total()
