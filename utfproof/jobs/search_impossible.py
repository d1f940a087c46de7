"""`utfproof search impossible`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import read_bytes, write_bytes
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written


@dataclass(frozen=True, kw_only=True)
class SearchImpossible(Limited, Job, order=145, name="search impossible"):
    """Show that a polynomial system has no solution: cofactors with sum c_i f_i = 1 over the rationals.

    Exit 0: certified (or, with --check, valid). 1: --check found the certificate invalid. 4: no cofactors within the
    budget. 2, 3: malformed, too large.
    """

    examples = "Example: utfproof search impossible looped-three-layers -o looped-three-layers.json"
    system: str | None = argument(None, "Name of the polynomial system; none with --check.")
    check: Path | None = option(None, "Check this certificate instead.")
    degree: int | None = option(
        None,
        "Search, with products up to this degree; else a written derivation is used where there is one.",
        kind="positive",
    )
    seconds: float = option(600.0, "No further degree after this time.", kind="seconds")
    output: Path | None = written(None, "Certificate to write (.json).")

    def run(self) -> Outcome:
        from utfproof.search import impossible as search
        from utfproof.search import nullstellensatz as ns

        if (self.system is None) == (self.check is None):
            raise MalformedInput(f"name one system ({', '.join(ns.SYSTEMS)}), or a file with --check")
        if self.check is not None:
            try:
                valid, why = ns.check(ns.read(read_bytes(self.check)))
            except ns.Malformed as error:
                raise MalformedInput(f"{self.check}: {error}") from error
            except ns.Excessive as error:
                raise ResourceLimit(f"{self.check}: {error}") from error
            verdict = {"verdict": "valid" if valid else "invalid", "why": why}
            return Outcome(dict(verdict), f"search impossible --check {self.check}", dict(verdict), 0 if valid else 1)
        assert self.system is not None
        limit = self.limit
        with stage("search impossible", expected=lambda: self.seconds):
            found = search.certify(self.system, most_degree=self.degree, max_memory=limit, seconds=self.seconds)
        document = found.summary() | {"setting": {"seconds": self.seconds, "degree": self.degree}}
        if self.output is not None and found.document is not None:
            write_bytes(
                self.output, (json.dumps(found.document, separators=(",", ":"), sort_keys=True) + "\n").encode()
            )
        nothing = "no cofactors within the budget, which proves nothing"
        rows: dict[str, Any] = {
            "outcome": "certified: no solution" if found.certified else nothing,
            "says": document["says"],
        }
        for attempt in found.attempts:
            is_one = "1 is" if attempt.spanned else "1 is not"
            size = f"{attempt.products} products, {attempt.monomials} monomials"
            rows[f"degree {attempt.degree}"] = f"{size}: {is_one} a combination"
        if found.certified:
            rows["certificate"] = f"{document['terms']} terms in {document['equations']} cofactors, checked"
            if self.output is not None:
                rows["written"] = str(self.output)
        return Outcome(document, f"search impossible: {self.system}", rows, 0 if found.certified else 4)
