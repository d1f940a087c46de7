"""Hold what a check computed against the record: every way in which the two can differ, a line each.

A certificate supports an instance only if it is about that shape and that m, if the checker accepts it, and if its scope
settles the claim's own (`utfproof.ground.notions`). Evidence goes by the name of what the instances carry. Where the last recorded run
and this one differ, one of them is wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.scope import is_inequality, scope_of, signature
from utfproof.claims import page
from utfproof.claims.computed import Computed
from utfproof.claims.independence import apart
from utfproof.claims.record import (
    BESIDE,
    BEYOND,
    KNOWN,
    ONE_ROUTE,
    OUTCOMES,
    REPAIR,
    TWO_ROUTES,
    Claim,
    Evidence,
    Instance,
    Verdict,
)
from utfproof.claims.registry import registered
from utfproof.claims.theorems import (
    ABSENT,
    BROKEN,
    BUILT,
    CHECKED,
    HEADLINES,
    PROOFS,
    STATED,
    Headline,
    Standing,
    all_headlines,
)
from utfproof.ground.notions import Targets
from utfproof.shapes import Shape

CHECKOUT = Path(__file__).parents[2]
"""Where docs/proofs lies; an installed package has none."""
CERTIFIED = {Evidence.CERTIFICATE, Evidence.INEQUALITY}


@dataclass
class Observation:
    """What one run of a claim's check gave, before it is compared with anything. refused: certificates, by digest, that the
    checker does not accept, with its words. stopped: why the check did not come to its end, if it did not."""

    instances: list[Instance] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    certificates: dict[str, bytes] = field(default_factory=dict)
    sidecars: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None


def computed_verdict(instances: Sequence[Instance]) -> Verdict:
    """The verdict that these instances give: any failure of the printed statement decides, then any doubt. What stands beside
    a statement does not mend it."""
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
    """The label of the smallest instance that came out so, if any did."""
    fitting = [found for found in instances if found.holds is holds and found.part != BEYOND]
    return min(fitting, key=lambda found: found.order).label if fitting else None


def _differs(computed: Any, recorded: Any) -> bool:
    """Floats are recorded to a few digits; everything else exactly."""
    if isinstance(recorded, float) and isinstance(computed, float | int):
        return not math.isclose(computed, recorded, rel_tol=5e-3)
    return bool(computed != recorded) or isinstance(computed, bool) != isinstance(recorded, bool)


def computed_from(claim: Claim, seen: Observation) -> Computed:
    """What a run on the default grid records about a claim."""
    return Computed(
        claim.words,
        {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in seen.figures.items()},
        smallest(seen.instances, True),
        smallest(seen.instances, False),
        signatures(seen.instances),
        tuple(sorted(routes_of(seen.instances))),
        outcomes(seen.instances),
    )


def judge(claim: Claim, seen: Observation, *, whole: bool) -> list[str]:
    """What is not as recorded, a line each. whole: on the default grid, where the recorded run was made."""
    lines = [] if seen.stopped is None else [seen.stopped]
    if not seen.instances:
        lines.append("nothing was examined")
    for i, found in enumerate(seen.instances):
        if found.certificate is not None:
            lines += _certificate_problems(claim, found, found.certificate, seen.refused.get(seen.digests.get(i, "")))
    verdict = computed_verdict(seen.instances)
    if verdict is not claim.verdict:
        lines.append(f"the verdict is {verdict.value!r}, recorded is {claim.verdict.value!r}")
    lines += [*_figure_problems(claim, seen), *_evidence_problems(claim, seen.instances, whole)]
    lines += [*_recorded_problems(claim, seen.instances, whole), *_page_problems(claim), *_paper_problems(claim)]
    lines += [
        *page.problems(claim),
        *_place_problems(claim),
        *_theorem_problems(claim),
        *_repair_problems(seen.instances),
        *_route_problems(claim, seen.instances),
    ]
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
        said = "served" if made.universal else "not served"
        yield f"{found.label}: a certificate that says '{about}' are {said} does not support a claim about '{wanted}'"


def _figure_problems(claim: Claim, seen: Observation) -> Iterator[str]:
    recorded = claim.figures
    for name in {**recorded, **seen.figures}:
        if name not in seen.figures:
            yield f"figure {name!r} was not computed, recorded is {recorded[name]!r}"
        elif name not in recorded:
            yield f"figure {name!r} is {seen.figures[name]!r} and not recorded"
        elif _differs(seen.figures[name], recorded[name]):
            yield f"figure {name!r} is {seen.figures[name]!r}, recorded is {recorded[name]!r}"
    for name, record, holds in (
        ("smallest instance", claim.smallest, True),
        ("counterexample", claim.counterexample, False),
    ):
        found = smallest(seen.instances, holds)
        if found != record:
            yield f"the {name} is {found}, recorded is {record}"


def kinds_of(found: Instance) -> set[Evidence]:
    """What an instance carries: a certificate, two routes (`ARITHMETIC` for any of them), what is known, or one route."""
    kinds = set()
    if found.certificate is not None:
        kinds.add(Evidence.INEQUALITY if is_inequality(found.certificate.document) else Evidence.CERTIFICATE)
    if len(found.routes) >= 2:
        kinds.add(Evidence.ARITHMETIC)
    if not kinds:
        kinds.add(Evidence.OPEN if found.holds is None or found.routes == (KNOWN,) else Evidence.SINGLE)
    return kinds


_NAMES = {
    Evidence.CERTIFICATE: {Evidence.CERTIFICATE},
    Evidence.INEQUALITY: {Evidence.INEQUALITY},
    Evidence.ARITHMETIC: TWO_ROUTES,
    Evidence.SINGLE: ONE_ROUTE,
    Evidence.OPEN: {Evidence.OPEN},
}
"""What an instance carries -> the names under which a claim may record it."""


def _evidence_problems(claim: Claim, instances: Sequence[Instance], whole: bool) -> Iterator[str]:
    first: dict[Evidence, Instance] = {}
    for found in instances:
        if found.part != BEYOND:
            first = {**dict.fromkeys(kinds_of(found), found), **first}
    for kind, found in first.items():
        if not _NAMES[kind].intersection(claim.evidence):
            yield f"{found.label}: rests on {kind.value!r}, which is not recorded"
    for name in claim.evidence:
        kinds = {kind for kind, names in _NAMES.items() if name in names}
        if whole and kinds and not kinds & set(first):
            yield f"evidence {name.value!r} is recorded, and no instance rests on it"
    if Evidence.INEQUALITY in first and claim.verdict is not Verdict.OPEN:
        beside = [found for found in instances if found.holds is not None and kinds_of(found) != {Evidence.INEQUALITY}]
        if not beside:
            yield "every instance is an inequality of a written proof, and nothing beside it could fail"


def _repair_problems(instances: Sequence[Instance]) -> Iterator[str]:
    """A repair keeps the statement's subject: at a shape where the printed statement fails at one m, it is about that m."""
    failing = {(found.at, found.m) for found in instances if found.part == "" and found.holds is False}
    shapes = {at for at, m in failing if isinstance(at, Shape) and m is not None}
    for found in instances:
        if found.part == REPAIR and found.at in shapes and found.m is not None and (found.at, found.m) not in failing:
            yield f"{found.label}: a repair at another m than the statement's is another theorem, and stands beside it"
        if found.part == BESIDE and found.holds is not True:
            yield f"{found.label}: what stands beside the statement does not hold"


def _recorded_problems(claim: Claim, instances: Sequence[Instance], whole: bool) -> Iterator[str]:
    computed = claim.computed
    if computed.words != claim.words:
        yield "the record is not the one that was last computed (python scripts/write_claims.py --computed)"
    for name, found, recorded in (
        ("certificate", set(signatures(instances)), set(computed.certificates)),
        ("route", routes_of(instances), set(computed.routes)),
    ):
        for line in sorted(found - recorded):
            yield f"a {name} that was not recorded: {line}"
        if whole:
            for line in sorted(recorded - found):
                yield f"a {name} that was recorded and is not here: {line}"
    if whole and signatures(instances) != dict(computed.certificates):
        yield f"certificates are {signatures(instances)}, recorded are {dict(computed.certificates)}"
    if whole and outcomes(instances) != dict(computed.outcomes):
        yield f"instances are {outcomes(instances)}, recorded are {dict(computed.outcomes)}"


def _route_problems(claim: Claim, instances: Sequence[Instance]) -> Iterator[str]:
    """Two routes are known by what they rest on, and share nothing but the object examined."""
    names = {name for found in instances if len(found.routes) >= 2 for name in found.routes}
    known = set() if claim.shared is None else set(claim.shared.routes)
    if names - known:
        yield f"nothing is recorded of what the routes {sorted(names - known)} share"
    for name in apart(() if claim.shared is None else claim.shared.shared):
        yield f"its routes share {name}, which is not about the object examined: they are not two"


def _page_problems(claim: Claim) -> Iterator[str]:
    if (claim.proof is not None) != (Evidence.WRITTEN in claim.evidence):
        yield f"{Evidence.WRITTEN.value!r} and a page of docs/proofs belong together"
    folder = CHECKOUT / "docs" / "proofs"
    if claim.proof is None or not folder.is_dir():
        return
    proof = CHECKOUT / claim.proof
    if not proof.is_file():
        yield f"{claim.proof} does not exist"
    elif f"`{claim.id}`" not in proof.read_text(encoding="utf-8"):
        yield f"{claim.proof} does not name this claim among those that it proves"


@lru_cache(maxsize=1)
def _headlines() -> dict[str, Headline]:
    return all_headlines() if (PROOFS / HEADLINES).is_file() else {}


def _theorem_problems(claim: Claim) -> Iterator[str]:
    """A theorem speaks of the claim's notion, and of a class of targets that holds the claim's."""
    if bool(claim.theorem) != (Evidence.MACHINE in claim.evidence):
        yield f"{Evidence.MACHINE.value!r} and theorems belong together"
    linked = [_headlines()[name] for name in claim.theorem if name in _headlines()]
    if claim.about is None or not linked:
        return
    if claim.about.notion not in {notion for theorem in linked for notion in theorem.notions}:
        yield f"none of its theorems is about {claim.about.notion.value}"
    served = [Targets.parse(targets) for theorem in linked for targets in theorem.targets]
    if not any(targets.implies(claim.about.targets) for targets in served):
        yield f"none of its theorems is about {claim.about.targets} targets"


def _place_problems(claim: Claim) -> Iterator[str]:
    """A check of the registry decides the claim that it stands under, in the section of its module."""
    under = registered().get(claim.check, {(claim.id, claim.section)})
    if (claim.id, claim.section) not in under:
        yield f"its check decides {sorted(under)}"


def _paper_problems(claim: Claim) -> Iterator[str]:
    quoted = claim.quotation
    if (quoted is None) != claim.id.startswith("new:"):
        yield "a statement of the paper has a quotation, and no other has one (utfproof/paper/quotations.json)"
    if quoted is None:
        return
    if quoted.claim != claim.id or not quoted.sound:
        yield "its quotation is not the one that was found in the paper for it"
    if quoted.section != claim.section:
        yield f"its quotation stands in {quoted.section!r}, the claim in {claim.section!r}"


def signatures(instances: Sequence[Instance]) -> dict[str, int]:
    """What the certificates say, whatever their shapes, which way the instances count that rest on them, and how many do."""
    counted = Counter(
        f"{OUTCOMES[found.holds]}{f', {found.part}' * bool(found.part)} | {signature(found.certificate.document)}"
        for found in instances
        if found.certificate is not None
    )
    return dict(sorted(counted.items()))


def routes_of(instances: Sequence[Instance]) -> set[str]:
    """The pairs (or more) of routes that instances rest on."""
    return {" = ".join(sorted(found.routes)) for found in instances if found.routes}


def outcomes(instances: Sequence[Instance]) -> dict[str, int]:
    """How many instances came out which way, by part and by what they carry."""
    counted: Counter[str] = Counter()
    for found in instances:
        part = f"{found.part}: " if found.part else ""
        carried = " and ".join(sorted(kind.name.lower() for kind in kinds_of(found)))
        counted[f"{part}{OUTCOMES[found.holds]}, {carried}"] += 1
    return dict(sorted(counted.items()))


def refuted_by(claim: Claim) -> list[dict[str, Any]]:
    """What a computation would have to give to refute the record, for machines; any one entry is enough."""
    against: dict[Verdict, list[dict[str, Any]]] = {
        Verdict.HOLDS: [{"instance": "fails"}],
        Verdict.FAILS: [{"instances": "none fails"}],
        Verdict.REPAIRED: [{"instances": "none fails as printed"}, {"instance": "fails after repair"}],
        Verdict.OPEN: [{"instances": "none is open"}, {"instance": "fails"}],
    }
    found = list(against[claim.verdict])
    for line in claim.computed.certificates:
        _, said, scope = line.split(" | ")
        opposite = "universal" if "not universal" in said else "not universal"
        found.append({"certificate": opposite, "scope": scope, "at": "shape and m of an instance"})
    found += [{"routes": pair.split(" = "), "disagree": True} for pair in claim.computed.routes]
    found += [{"figure": name, "other than": value} for name, value in claim.figures.items()]
    return found


def evidence_here(claim: Claim, theorems: Sequence[Standing]) -> list[str]:
    """The claim's evidence by name; of its theorems, whether they are built here."""
    built = bool(theorems) and all(found.status in CHECKED for found in theorems)
    absent = any(found.status == ABSENT for found in theorems)
    machine = BUILT if built else STATED if absent else BROKEN
    return [machine if kind is Evidence.MACHINE else kind.value for kind in claim.evidence]
