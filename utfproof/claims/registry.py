"""The registry: every claim by its id, filled in by the modules of this folder, one per section of the paper."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from utfproof.claims.computed import UNRECORDED, recorded, recorded_routes
from utfproof.claims.links import LINKS, Link
from utfproof.claims.record import LABELLED, Category, Check, Claim, Evidence, Found
from utfproof.claims.theorems import MACHINE
from utfproof.errors import MalformedInput, choose
from utfproof.ground.notions import Scope, Targets
from utfproof.paper.quotations import quotations

SECTIONS: dict[str, str] = {
    "introduction": "1 Introduction",
    "preliminaries": "2 Preliminaries",
    "constructing": "3 Constructing universal transformers",
    "constructing_looped": "3 Constructing universal transformers",
    "constructing_random": "3 Constructing universal transformers",
    "constructing_sufficient": "3 Constructing universal transformers",
    "optimality": "4 Optimality",
    "experiments": "5 Experimental studies",
    "experiments_said": "5 Experimental studies",
    "appendix_universal": "A Universal transformer",
    "appendix_universal_construction": "A Universal transformer",
    "appendix_random": "B Random universal transformer",
    "appendix_random_determinant": "B Random universal transformer",
    "appendix_looped": "C, D Looped universal transformers",
    "appendix_looped_random": "C, D Looped universal transformers",
    "appendix_lower_bound": "E Lower bound",
    "new_matching": "New: matching",
    "new_emulation": "New: matching",
    "new_matching_hosts": "New: matching",
    "new_frontier": "New: below M and lower bounds",
    "new_bounds": "New: below M and lower bounds",
    "new_sharper": "New: below M and lower bounds",
    "new_all_targets": "New: below M and lower bounds",
    "new_local": "New: below M and lower bounds",
    "new_shared_attention": "New: shared attention",
    "new_bilinear": "New: shared attention",
    "new_approximate": "New: shared attention",
    "new_looped_shared": "New: shared attention",
    "new_smaller_hosts": "New: shared attention",
    "new_residual": "New: residual streams",
    "new_normalisation": "New: normalisation",
    "new_normalisation_hosts": "New: normalisation",
    "new_trained_models": "New: trained models",
    "new_trained_sizes": "New: trained models",
}
"""Module of this folder -> title of the section of the paper, in reading order."""

_CLAIMS: dict[str, Claim] = {}


def claim(
    id: str,
    *,
    place: str,
    statement: str,
    verdict: Found,
    scope: str,
    sentence: str,
    category: Category | None = None,
    about: Scope | None = None,
    targets: str | None = None,
    proof: str | None = None,
) -> Callable[[Check], Check]:
    """Register a check as a claim (fields: see `Claim`). The section comes from the module it stands in, the theorems and
    the evidence that they are from `LINKS`, figures and smallest instances from the last recorded run. category: without
    one what its label begins with (`LABELLED`). targets: where no notion is named, or to say them in other words than `about`.
    proof: the page that it stands on, if that is one of docs/proofs and the evidence a written proof."""
    judged, evidence = verdict
    page = place if proof is None and Evidence.WRITTEN in evidence and place.startswith("docs/proofs/") else proof

    def register(check: Check) -> Check:
        if id in _CLAIMS:
            raise ValueError(f"claim {id} is registered twice")
        if (page is not None) != (Evidence.WRITTEN in evidence):
            raise ValueError(f"claim {id}: evidence 'written proof' and a page of docs/proofs belong together")
        if Evidence.MACHINE in evidence:
            raise ValueError(f"claim {id}: evidence {MACHINE!r} comes with its theorem in utfproof.claims.links")
        if about is not None and targets is not None and Targets.parse(targets) != about.targets:
            raise ValueError(f"claim {id} is said to be about {targets!r} and {about.targets} targets")
        if (kind := category or LABELLED.get(id.split(":")[0])) is None:
            raise ValueError(f"claim {id} has no category, and its label stands for none")
        link = LINKS.get(id, Link(()))
        _CLAIMS[id] = Claim(
            id,
            SECTIONS[check.__module__.rpartition(".")[2]],
            place,
            statement,
            kind,
            about,
            str(about.targets) if about and targets is None else targets,
            scope,
            judged,
            (*evidence, Evidence.MACHINE) if link.names else evidence,
            sentence,
            check,
            recorded().get(id, UNRECORDED),
            recorded_routes().get(id),
            quotations().get(id),
            page,
            link.names,
            link.missing,
        )
        return check

    return register


def all_claims() -> dict[str, Claim]:
    """Every claim by id, in the order of the paper, whichever module was imported first."""
    for module in SECTIONS:
        importlib.import_module(f"utfproof.claims.{module}")
    modules, sections = list(SECTIONS), list(SECTIONS.values())

    def place(entry: Claim) -> tuple[int, int]:
        return sections.index(entry.section), modules.index(entry.check.__module__.rpartition(".")[2])

    return dict(sorted(_CLAIMS.items(), key=lambda item: place(item[1])))


def registered() -> dict[Check, set[tuple[str, str]]]:
    """The ids and sections under which each check stands."""
    found: dict[Check, set[tuple[str, str]]] = {}
    for entry in _CLAIMS.values():
        found.setdefault(entry.check, set()).add((entry.id, entry.section))
    return found


def select(names: Sequence[str]) -> list[Claim]:
    """The claims named: by id, by the paper's label (all its parts) or by a prefix ending in "*"; all for no names.

    MalformedInput for a name that fits none.
    """
    known = all_claims()
    if not names:
        return list(known.values())
    chosen: dict[str, Claim] = {}
    for name in names:
        fits = [
            entry
            for entry in known.values()
            if entry.id == name or entry.label == name or (name.endswith("*") and entry.id.startswith(name[:-1]))
        ]
        if not fits:
            near = choose(name, [*known, *{entry.label for entry in known.values()}]).partition("?")
            hint = f"{near[0]}? " if near[1] else ""
            raise MalformedInput(f"no claim is called {name!r}; {hint}`utfproof verify --list` names them all")
        chosen.update((entry.id, entry) for entry in fits)
    return [entry for entry in known.values() if entry.id in chosen]
