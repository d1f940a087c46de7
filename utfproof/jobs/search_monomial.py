"""`utfproof search monomial`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.jobs.groups import Limited, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import option, written


@dataclass(frozen=True, kw_only=True)
class SearchMonomial(Limited, Job, order=143, name="search monomial"):
    """The least m for which E and U may be monomials in the target's weights: exponents A + B containing all words; then a
    {0,1} host.

    d_in = 1, both free. Exit 0: a host was found and verified exactly. 4: none (a lower bound for monomial hosts only),
    sets without a host, or the budget was spent. 2, 3: malformed, too large.
    """

    examples = "Example: utfproof search monomial -H 2 -L 3 --json"
    heads: int | None = shared("heads")
    layers: int | None = shared("layers")
    m: int | None = option(None, "This m only; by default m rises until sets are found.", kind="positive")
    looped: bool = option(False, "Tied targets (the hosts are untied).")
    engine: str = option("auto", "For hosts: auto, cp-sat (needs OR-Tools) or local.")
    seconds: float = option(
        120.0,
        "Budget of each exhaustive search; of local search as well where neither --restarts nor --steps is given.",
        kind="seconds",
    )
    host_seconds: float = option(60.0, "Budget for finding a host.", kind="seconds")
    restarts: int = option(20, "Local search where the budget ran out: starts.", kind="positive")
    steps: int = option(50000, "Steps of each start.", kind="positive")
    output: Path | None = written(None, "Document to write (.json).", document=True)
    seed: int = shared("seed")

    def run(self) -> Outcome:
        from utfproof.search.monomial import MOST_WORDS, MonomialGrid
        from utfproof.search.monomial_host import search_monomial

        if self.heads is None or self.layers is None:
            raise MalformedInput("the problem is incomplete: --heads and --layers are needed")
        if self.m is not None and self.m > MOST_WORDS:
            raise ResourceLimit(f"m = {self.m}; this search takes at most {MOST_WORDS}, as many as there may be words")
        grid = MonomialGrid(self.heads, self.layers, self.looped)
        document = search_monomial(
            grid,
            self.m,
            engine=self.engine,
            seconds=self.seconds,
            host_seconds=self.host_seconds,
            restarts=self.restarts,
            steps=self.steps,
            seed=self.seed,
            local_seconds=inf if self.says("restarts") or self.says("steps") else self.seconds,
            max_memory=self.limit,
        )
        title = f"search monomial: ({self.heads},{self.layers})" + (", tied targets" if self.looped else "")
        return Outcome(document, title, _rows(document), 0 if document["outcome"] == "found" else 4)


MEANING = {
    "found": "a {0,1} host, verified exactly",
    "sets only": "exponents were found, but no {0,1} host: a candidate",
    "none": "no exponents at this m: no host whose E and U are monomials; other hosts are not excluded",
    "open": "nothing found within the budget, which proves nothing",
}


def _rows(document: dict[str, Any]) -> dict[str, str]:
    rows = {
        "outcome": f"{document['outcome']}: {MEANING[document['outcome']]}",
        "least m": str(document["least_m"] or "not decided"),
    }
    for entry in document["sets"]:
        note = f"; {entry['note']}" if entry["note"] else ""
        effort = f"{entry['nodes']} nodes, {entry['seconds']:.1f} s"
        rows[f"m = {entry['m']}, {entry['method']}"] = f"{entry['outcome']}, {effort}{note}"
    host = document["host"]
    if host is not None:
        rows["host"] = f"{host['engine']}: {host['status']}, {host['seconds']:.1f} s"
        if host["host"] is not None:
            rows["serves"] = "all targets" if host["all_targets"] else "targets with nonzero weights"
    return rows
