"""Mutants of the registry: each record, and what its check computed, changed in one thing that makes it false or weaker.

A mutant is seen if `judge` has anything against it: by computation, on docs/claims.md, which has statement and scope as a
reader sees them, or only by the digest of the record's words, which says no more than that a run must be made anew.

    python tests/mutants.py [CLAIM...]        prints how many mutants of each class were seen, and how
"""

import dataclasses
import sys
import warnings
from collections import Counter
from collections.abc import Iterator

from utfproof.certificates.format import Certificate
from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.claims.judging import Observation, judge
from utfproof.claims.record import BEYOND, Claim, Evidence, Instance, Verdict
from utfproof.claims.registry import all_claims, select
from utfproof.claims.runner import observe
from utfproof.ground.notions import Attention, Extent, Hosts, Notion, Scope, Tying

DIGEST = "the record is not the one that was last computed"
PAGE = "docs/claims.md says something else"
PAGES = ("docs/proofs/biases.md", "docs/proofs/three-dimensions-do-not-suffice.md")
Mutant = tuple[str, Claim, Observation]
change = dataclasses.replace


def mutants(claim: Claim, seen: Observation) -> Iterator[Mutant]:
    """(class of fault, claim, observation), one thing changed in each."""
    for name, made in _records(claim):
        yield name, made, seen
    for name, computed in _computed(claim):
        yield name, change(claim, computed=computed), seen
    for name, observed in _observations(seen):
        yield name, claim, observed


def _records(claim: Claim) -> Iterator[tuple[str, Claim]]:
    for verdict in set(Verdict) - {claim.verdict}:
        yield "verdict", change(claim, verdict=verdict)
    others = [entry for entry in all_claims().values() if entry.id != claim.id]
    yield "label", change(claim, id=others[0].id)
    yield "label", change(claim, id=claim.id + "x")
    yield "label", change(claim, section=next(o.section for o in others if o.section != claim.section))
    yield "statement", change(claim, statement=claim.statement.replace(" ", "  ", 1) + " for every m")
    yield "scope", change(claim, scope=claim.scope + ", and beyond")
    for page in PAGES if claim.proof else ():
        if page != claim.proof:
            yield "page", change(claim, proof=page)
    if claim.proof:
        yield "page", change(claim, proof=None)
    else:
        yield "page", change(claim, proof=PAGES[0])
    for kind in claim.evidence:
        yield "evidence", change(claim, evidence=tuple(other for other in claim.evidence if other is not kind))
    swapped = {Evidence.INEQUALITY: Evidence.CERTIFICATE, Evidence.SINGLE: Evidence.ARITHMETIC}
    for weak, strong in swapped.items():
        if weak in claim.evidence:
            kinds = dict.fromkeys(strong if kind is weak else kind for kind in claim.evidence)
            yield "evidence", change(claim, evidence=tuple(kinds))
    yield from _quotations(claim, others)
    if claim.shared is not None:
        yield "routes", change(claim, shared=None)
        yield "routes", change(claim, shared=change(claim.shared, shared=(*claim.shared.shared, "claims.plain:rank")))
    if claim.about is not None:
        for name, about in _scopes(claim.about):
            yield name, change(claim, about=about, targets=str(about.targets))


def _quotations(claim: Claim, others: list[Claim]) -> Iterator[tuple[str, Claim]]:
    theirs = next(other.quotation for other in others if other.quotation is not None)
    yield "quotation", change(claim, quotation=theirs)
    if claim.quotation is not None:
        yield "quotation", change(claim, quotation=None)
        yield "quotation", change(claim, quotation=change(claim.quotation, text=claim.quotation.text + "."))
        yield "quotation", change(claim, quotation=change(claim.quotation, at=claim.quotation.at + 1))


def _scopes(about: Scope) -> Iterator[tuple[str, Scope]]:
    for notion in set(Notion) - {about.notion}:
        free = "E and U" if notion is Notion.SHARED_ATTENTION else None
        yield "notion", Scope(notion, about.targets, about.hosts, free)
    if about.free is not None:
        yield "scope", change(about, free="E" if about.free == "E and U" else "E and U")
    for attention in (Attention.ANY, Attention.SOFTMAX):
        if attention is not about.attention:
            yield "scope", change(about, attention=attention)
    hosts = about.hosts
    yield "scope", change(about, hosts=Hosts(not hosts.tied, hosts.examined))
    yield "scope", change(about, hosts=Hosts(hosts.tied, not hosts.examined))
    targets = about.targets
    for extent in set(Extent) - {targets.extent}:
        yield "targets", change(about, targets=change(targets, extent=extent))
    other = Tying.TIED if targets.tying is Tying.UNTIED else Tying.UNTIED
    yield "targets", change(about, targets=change(targets, tying=other))
    yield "targets", change(about, targets=change(targets, only=targets.only ^ {"G heads share keys and values"}))
    yield "targets", change(about, targets=change(targets, also=targets.also ^ {"biases"}))
    yield "targets", change(about, targets=change(targets, normalised=not targets.normalised))


def _computed(claim: Claim) -> Iterator[tuple[str, object]]:
    computed = claim.computed
    for name, value in computed.figures.items():
        wrong = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}0"
        wrong = 1.1 * value + 1e-300 if isinstance(value, float) else wrong
        yield "figure", change(computed, figures={**computed.figures, name: wrong})
        yield "figure", change(computed, figures={k: v for k, v in computed.figures.items() if k != name})
    yield "figure", change(computed, smallest="(9,9,9,9)")
    yield "figure", change(computed, counterexample="(9,9,9,9)")


def _observations(seen: Observation) -> Iterator[tuple[str, Observation]]:
    def put(place: int, *found: Instance) -> Observation:
        return change(seen, instances=[*seen.instances[:place], *found, *seen.instances[place + 1 :]])

    first: dict[str, int] = {}
    for i, found in enumerate(seen.instances):
        said = "" if found.certificate is None else str(found.certificate.document["claim"]["targets"])
        kind = f"{found.holds} {found.part} {said} {found.certificate is None} {len(found.routes)}"
        first.setdefault(kind, i)
    for i in first.values():
        found = seen.instances[i]
        for holds in {True, False, None} - {found.holds}:
            yield "outcome", put(i, change(found, holds=holds))
        yield "outcome", put(i)
        if found.certificate is None and len(found.routes) >= 2 and found.part != BEYOND:
            yield "routes", put(i, change(found, routes=found.routes[:1]))
        if found.certificate is not None:
            yield "certificate", put(i, change(found, certificate=None, routes=()))
            for document in _weaker(found.certificate.document):
                yield "certificate", put(i, change(found, certificate=Certificate(document)))


def _weaker(document: dict) -> Iterator[dict]:
    """The certificate swapped for one that says less, or something else."""
    claim, shape = document["claim"], document["shape"]
    yield {**document, "shape": {**shape, "m": int(shape["m"]) + 1}}
    yield {**document, "shape": {**shape, "heads": int(shape["heads"]) + 1}}
    opposite = "not universal" if claim["verdict"] == "universal" else "universal"
    yield {**document, "claim": {**claim, "verdict": opposite}}
    for notion in {"matching", "attention-matching", "functional"} - {claim["notion"]}:
        yield {**document, "claim": {**{k: v for k, v in claim.items() if k != "free"}, "notion": notion}}
    swaps = {"all untied": "all tied", "generic untied": "all untied", "all tied": "generic tied"}
    if claim["targets"] in swaps:
        yield {**document, "claim": {**claim, "targets": swaps[claim["targets"]]}}
    every = claim["host"].get("every")
    if every is not None:
        host = {"every": "tied host" if every == "host" else "host"}
        yield {**document, "claim": {**claim, "host": host}}
    if document["evidence"].get("method") != "dimension":
        yield {**document, "evidence": {"method": "dimension"}}


def run(names: list[str]) -> tuple[Counter, Counter, Counter, list[str]]:
    """(mutants by class, those seen by computation, those seen so or on the page, those that nothing saw) of these claims, all
    for none."""
    made: Counter[str] = Counter()
    computed: Counter[str] = Counter()
    found: Counter[str] = Counter()
    unseen: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for claim in select(names):
            seen = observe(claim, Grid.parse(DEFAULT_GRID))
            assert judge(claim, seen, whole=True) == [], claim.id
            for number, (kind, mutant, observed) in enumerate(mutants(claim, seen)):
                lines = judge(mutant, observed, whole=True)
                made[kind] += 1
                computed[kind] += any(not line.startswith((DIGEST, PAGE)) for line in lines)
                found[kind] += any(not line.startswith(DIGEST) for line in lines)
                if not lines:
                    unseen.append(f"{claim.id}: {kind}, mutant {number}")
    return made, computed, found, unseen


if __name__ == "__main__":
    made, computed, found, unseen = run(sys.argv[1:])
    print("class        mutants  by computation  or on the page  by the digest alone")
    for kind, count in [*made.most_common(), ("all", made.total())]:
        seen, here = (sum(c.values()) if kind == "all" else c[kind] for c in (computed, found))
        print(f"{kind:12} {count:7} {seen:15} {here:15} {count - here:20}")
    print(f"{len(unseen)} unseen")
    sys.exit("\n".join(unseen) if unseen else 0)
