"""`utfproof search exhaustive`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import option, written

FREE = {"E": "E", "both": "E and U"}


@dataclass(frozen=True, kw_only=True)
class SearchExhaustive(Limited, Job, order=144, name="search exhaustive"):
    """Decide every {0,1} host of m dimensions in the shared-attention model, d_in = 1, for almost all targets.

    Exit 0: a host serves, exactly. 4: none of this kind does (other values are not excluded), or complex targets only, or the
    time was spent. 2, 3: malformed, too many hosts.
    """

    examples = "Example: utfproof search exhaustive -H 2 -L 2 --m 2 --looped --json"
    heads: int | None = shared("heads")
    layers: int | None = shared("layers")
    m: int | None = option(None, "Embedding dimension m of the hosts.")
    free: str = option("both", "What may depend on the target: E or both.")
    looped: bool = option(False, "Tied hosts for tied targets.")
    kind: str = option("all", "Values R_V: all {0,1} matrices, maps (one 1 a row), injections.")
    first: bool = option(False, "Stop at the first host that serves.")
    seconds: float = option(600.0, "Time limit.", kind="seconds")
    output: Path | None = written(None, "Document to write (.json).", document=True)

    def run(self) -> Outcome:
        from utfproof.search.exhaustive import search_all
        from utfproof.search.problem import Problem
        from utfproof.shapes import Shape

        if self.heads is None or self.layers is None or self.m is None:
            raise MalformedInput("the problem is incomplete: --heads, --layers and --m are needed")
        if self.free not in FREE:
            raise MalformedInput(f"--free {self.free!r} is unknown; choose {', '.join(FREE)}")
        problem = Problem(Shape(self.heads, self.layers, 1, 1), self.m, FREE[self.free], self.looped, self.looped)
        with stage("search exhaustive, at most", expected=lambda: self.seconds):
            found = search_all(
                problem, self.kind, seconds=self.seconds, stop_at_first=self.first, max_memory=self.limit
            )
        document = {
            "search": "exhaustive",
            "setting": {"seconds": self.seconds, "first": self.first},
        } | found.document()
        return Outcome(document, f"search exhaustive: {problem}", _rows(document), 0 if found.rational else 4)


def _rows(document: dict[str, Any]) -> dict[str, str]:
    tests = f"{document['linear']} pass the linear test, {document['decided']} decided"
    rows = {
        "outcome": document["outcome"] + (": the run is not complete" if document["outcome"] == "open" else ""),
        "hosts": f"{document['hosts']} of kind {document['kind']}, {document['classes']} up to renaming"
        if document["classes"]
        else "not listed",
        "decided": tests,
        "serve": f"{document['served']} (E and U rational in the weights: {document['rational']})",
        "does not mean": "anything about hosts with other numbers than 0 and 1",
    }
    if document["first"] is not None:
        rows["first"] = f"ones of R_V {document['first']['ones_of_R_V']}, U {document['first']['U'] or 'free'}"
    for number, note in enumerate(document["notes"]):
        rows[f"note {number + 1}"] = note
    return rows
