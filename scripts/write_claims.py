"""Write docs/claims.md from the registry: every claim with its recorded verdict.

    python scripts/write_claims.py [--check | --computed [CLAIM...]]

--check writes nothing and fails when the page is not what the registry says. --computed first runs every claim (or those named) on
the default grid and records what it computed in utfproof/claims/computed.json, naming each claim whose record changed and
what the run has against it; whether the verdicts are right is decided by `utfproof verify`, not here.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections import Counter
from pathlib import Path

from pages import settle

from utfproof.claims.computed import recorded, recorded_routes, write, write_routes
from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.claims.independence import CodeSource, shared
from utfproof.claims.independence import words as shared_words
from utfproof.claims.judging import computed_from, judge
from utfproof.claims.page import PAGE, cell, words
from utfproof.claims.record import UNCERTIFIED, Claim, Evidence
from utfproof.claims.registry import SECTIONS, all_claims, select
from utfproof.claims.runner import observe
from utfproof.claims.theorems import file_of
from utfproof.paper.quotations import sentences
from utfproof.shapes import EffectiveHeadDimensionWarning

HEAD = """# Every statement of the paper, decided

Generated from the registry (`utfproof/claims/`) by `python scripts/write_claims.py`. `utfproof verify` computes every verdict anew and
exits 1 when one is not as recorded here; `utfproof verify --html claims.html` gives the same with evidence, certificates and pictures.
Statements are in our own words; labels are those of the paper "Fixed Universal Transformers", with a part after "/" where a
statement splits. "new:" marks results that the paper does not have.

**Notions of universality**, never mixed up:

* *matching*: one embedding E makes queries, keys and outputs agree for every target, so it serves every attention map at once;
* *attention-matching*: attention logits and outputs agree;
* *functional*: outputs agree for every n and X with softmax attention; the paper's definition;
* *shared attention*: outputs agree when attention matrices are supplied from outside; the paper's lower-bound model.

Matching implies attention-matching, which implies functional. "Not universal by matching" does not mean "not universal".

**What a claim is about** is typed: notion; targets (all, almost all, or some that were examined; untied or tied; with biases, positions, any
width; under a condition; normalised); hosts (any, tied, the one examined); what is free with attention from outside; attention maps. One
lattice says what implies what (`utfproof.ground.notions`), for claims, certificates and the frontier. A certificate supports a claim only if it is about that
shape and m and its scope settles the claim's: served, if it implies it; refuted, if the claim's implies it.

**Verdicts**, by one rule:

* *holds*: in the reading that is stated. Where a sentence can be read in several ways, the one that its context asks for is taken, and named in the
  scope ("read …"); the others are not held against it.
* *fails as printed*: an instance of the statement, inside its own hypotheses, is refuted. That another theorem holds beside it, such as the
  same for another m, does not mend it.
* *holds after repair*: the printed statement, formula or construction is refuted as it stands, and a mended one with the same subject (the same m,
  the same class, the same conclusion) is established beside it.
* *open*: neither. Where a bound is asked for, the interval is the frontier's of the day, and the run fails when it closes or moves.

**Evidence**, each kind under its own name: an *exact certificate* is recomputed by the independent checker (ranks, kernels, identities); an *inequality of
a written proof* is certified as arithmetic: two numbers that the checker computes, one of which bounds the other by a page of `docs/proofs/`, and beside
it, where the bound ends, prover and checker must both refuse to refute; *exact arithmetic by two routes*, a symbolic identity and a grid are computed
twice, and the two must agree: one side is most often `utfproof/claims/plain.py`, plain fractions that import nothing of the package. What the two
rest on and share is read from the source, stands in brackets, and may be nothing but the object examined and how it is written down; *by one route* is what it says; a *written proof* stands in `docs/proofs/`, which names the claims that rest on it, and
is not machine-checked. A theorem *stated in Coq* ([proofs/](../proofs/README.md)) is for all sizes, beside what is computed; "in part" says what of the
claim it does not prove. `make proofs` compiles the theorems, and `utfproof verify` says of each whether it is machine-checked, built here from these
sources, or not built here. What each kind makes you trust: [trust](trust.md).

**Figures** and smallest instances are recorded by a run (`python scripts/write_claims.py --computed`, in `utfproof/claims/computed.json`), never typed, and every run
compares. What is said of the paper is pinned to it by a quotation, its place and a digest (`utfproof/paper/quotations.json`).

**The document** of `utfproof verify --json`: `grid`, `holds`, `seconds`, `certificates` (by the first 16 digits of the SHA-256 of their
canonical bytes) and `claims`, each with `id`, `section`, `place`, `quotation`, `statement`, `category`, `notion`, `targets`, `hosts`, `free`, `attention`, `scope`,
`recorded` and `verdict`, `agrees` and `problems`, `evidence`, `refuted_by` (what a computation would have to give to refute the record, for machines), `independence` (of routes: the modules and libraries of each,
the modules that made what two were `given`, and the functions `shared` by two), `proof`, `theorems`
(each with `name`, `status`, `detail`), `theorems_lack`, `sentence`, `figures`, `smallest`, `counterexample`, `seconds`, `processor_seconds`, and `instances`: where (`at`), `outcome` (holds,
fails, open), `detail`, `part` ("repair" for the mended statement, "beside" for another theorem, "beyond" where a bound ends), `certificate` and what it `says`, `routes`.

"""


def theorems(entry: Claim) -> str:
    """The theorems behind a claim, each with a link to its file."""
    links = ", ".join(f"[{name}](../proofs/{file_of(name)})" for name in entry.theorem)
    return f"stated in Coq: {f'in part (missing: {entry.theorems_lack}), ' if entry.theorems_lack else ''}{links}"


def row(entry: Claim) -> str:
    """One line of the table."""
    kinds = ", ".join(kind.value for kind in entry.evidence)
    if entry.proof is not None:
        kinds = kinds.replace(Evidence.WRITTEN.value, f"[written proof]({Path(entry.proof).relative_to('docs')})")
    if entry.theorem:
        kinds = kinds.replace(Evidence.MACHINE.value, theorems(entry))
    if entry.shared is not None:
        kinds += f" ({' = '.join(entry.shared.routes)}: {shared_words(entry.shared)})"
    texts = (*words(entry), cell(entry.counterexample or entry.smallest or ""), cell(kinds))
    return "| " + " | ".join(texts) + " |"


def sentences_page() -> str:
    """Every checkable sentence of the paper, and what decides it."""
    rows = [
        f"| `` {cell(entry.text)} `` | {', '.join(f'`{name}`' for name in entry.claims)}{': ' * bool(entry.claims and entry.why)}{cell(entry.why or '')} |"
        for entry in sentences()
    ]
    return (
        "\n## Every checkable sentence of the paper\n\nIn its order, by a few words of its source. Claims that decide it, or why none does.\n\n"
        "| the paper | decided by |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def page() -> str:
    """The whole page."""
    claims = list(all_claims().values())
    counts = Counter(entry.verdict.value for entry in claims)
    written = sum(1 for entry in claims if UNCERTIFIED.intersection(entry.evidence))
    checked = [entry for entry in claims if entry.theorem]
    in_part = sum(1 for entry in checked if entry.theorems_lack)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    parts = [
        HEAD,
        f"{len(claims)} claims: {summary}. {written} of them rest in part on a written proof, sampling or recorded figures. "
        f"{len(checked)} have theorems in Coq for all sizes, {in_part} of these in part.\n",
    ]
    for section in dict.fromkeys(SECTIONS.values()):
        chosen = [entry for entry in claims if entry.section == section]
        if chosen:
            parts.append(
                f"\n## {section}\n\n| claim | statement | about | verdict | smallest | evidence |\n|---|---|---|---|---|---|\n"
            )
            parts.append("\n".join(row(entry) for entry in chosen) + "\n")
    parts.append(sentences_page())
    return "".join(parts)


def record(names: list[str]) -> None:
    """Run claims on the default grid and record what they computed; print what changed, and what speaks against a claim."""
    claims, parts, routes, source = all_claims(), dict(recorded()), dict(recorded_routes()), CodeSource()
    for entry in select(names):
        seen = observe(entry, Grid.parse(DEFAULT_GRID))
        part = computed_from(entry, seen)
        if part != parts.get(entry.id):
            print(f"{entry.id}: recorded anew")
        parts[entry.id] = part
        found = shared(entry.check, part.named_routes, source) if part.named_routes else None
        routes.pop(entry.id, None)
        routes |= {} if found is None else {entry.id: found}
        for line in judge(dataclasses.replace(entry, computed=part, shared=found), seen, whole=True):
            print(f"{entry.id}: {line}")
    write({name: parts[name] for name in claims if name in parts})
    write_routes({name: routes[name] for name in claims if name in routes})


def main() -> int:
    """Write or check the page, or record a run and start again with what it recorded."""
    if "--computed" in sys.argv[1:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
            record([name for name in sys.argv[1:] if name != "--computed"])
        os.execv(sys.executable, [sys.executable, __file__])
    return settle({PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
