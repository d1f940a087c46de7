"""`utfproof search numerical`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.ground.notions import Notion
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited, shared
from utfproof.jobs.job import Context, Found, Job, Outcome, Prepared
from utfproof.jobs.parameters import option, option_of, parameters, written
from utfproof.shapes import Shape, positive_integer

if TYPE_CHECKING:
    from utfproof.search.problem import Problem
    from utfproof.search.restarts import SearchSetting

GROUP = "Search the shared-attention model for smaller hosts. A find counts only with an exact verification."
FREE = {"E": "E", "U": "U", "both": "E and U"}
_SAID_ALWAYS = ("free", "notion", "looped", "restarts", "iterations", "seed")
"""In the key of a sweep's job even where they are the default."""
NOTIONS = {notion.word: notion for notion in (Notion.SHARED_ATTENTION, Notion.ATTENTION_MATCHING)}


def workers_option() -> Any:
    """How many processes search."""
    words = "Processes, one BLAS thread each; 0: in this one, with its threads."
    return option(1, words, aside=True)


def _engine(device: str, torch: bool) -> Any:
    from utfproof.search.levenberg import NUMPY, TORCH, SearchEngine

    return SearchEngine(TORCH if torch or device != "cpu" else NUMPY, device)


@dataclass(frozen=True, kw_only=True)
class SearchNumerical(Limited, Job, order=140, name="search numerical"):
    """Look for a host of m dimensions in the shared-attention model, or by attention-matching, numerically, from random starts.

    Exit 0: a host was found and verified exactly. 4: a candidate without exact verification, an approximation, or nothing; that
    nothing was found proves nothing.
    """

    examples = "Example: utfproof search numerical -H 2 -L 2 --m 2 --free both --restarts 20 --seed 0 -o run.json"
    heads: int | None = shared("heads")
    layers: int | None = shared("layers")
    m: int | None = shared("m", help="Embedding dimension m of the hosts to look for.", needed=True)
    d_in: int | None = shared("d_in", needed=False)
    head_dim: int | None = shared("head_dim", needed=False)
    free: str = option("both", "What may depend on the target", choices=tuple(FREE))
    looped: bool = option(False, "Tied hosts for tied targets.")
    tied_host: bool = option(False, "Tied hosts, whatever the targets.")
    tied_targets: bool = option(False, "Tied targets, whatever the hosts.")
    restarts: int = option(20, "Random start points.", kind="positive")
    iterations: int = option(200, "Steps at each ridge, at most.", kind="positive")
    targets: int | None = option(None, "Targets solved at once; enough by default.", kind="positive")
    fresh: int = option(12, "Fresh targets that a candidate must serve.", kind="positive")
    positive: bool = option(False, "Targets with positive weights only (d_in = 1).")
    notion: str = option(
        "shared-attention", "With attention-matching U, R_Q, R_K are fixed and E is free", choices=tuple(NOTIONS)
    )
    rounding: bool = option(True, "Round candidates to exact hosts.", "--rounding/--no-rounding")
    workers: int = workers_option()
    device: str = option(
        "cpu", "cpu, or a torch device such as cuda: restarts and targets in one batch there.", aside=True
    )
    torch: bool = option(False, "Compute with torch on the CPU too, in place of NumPy.", aside=True)
    repeat: Path | None = option(None, "Repeat the run logged in RUN.json.")
    output: Path | None = written(None, "Log of the run to write (.json).", document=True)
    seed: int = shared("seed")

    def run(self) -> Outcome:
        from utfproof.search import log
        from utfproof.search.restarts import batches, search
        from utfproof.search.rounding import verify_run

        if self.repeat is not None:
            if any(value is not None for value in (self.heads, self.layers, self.m, self.d_in, self.head_dim)):
                raise MalformedInput("--repeat takes the problem from the log: give no shape and no --m")
            problem, setting = log.read_run(self.repeat)
        else:
            problem, setting = self._problem(), self._setting()
        limit, engine = self.limit, _engine(self.device, self.torch)
        workers = _workers(self.workers) if self.device == "cpu" else 0
        groups = -(-setting.restarts // batches(setting.restarts, engine))
        with stage("search", groups, unit="groups of restarts") as doing:
            run = search(problem, setting, workers=workers, engine=engine, max_memory=limit, progress=doing.advance)
        verification, notes = verify_run(run, workers=workers) if self.rounding else (None, [])
        document = log.run_document(run, verification, notes)
        return Outcome(document, f"search numerical: {problem}", _rows(document), 0 if verification is not None else 4)

    def _problem(self) -> Problem:
        from utfproof.search.problem import Problem

        missing = [option_of(name) for name in ("heads", "layers", "m") if getattr(self, name) is None]
        if self.heads is None or self.layers is None or self.m is None:
            raise MalformedInput(f"the problem is incomplete: {', '.join(missing)} missing")
        width = 1 if self.d_in is None else self.d_in
        shape = Shape(self.heads, self.layers, width if self.head_dim is None else self.head_dim, width)
        matched = self.notion == "attention-matching"  # U is fixed in this notion
        free = "E" if matched and self.free == "both" else FREE[self.free]
        tied = (self.looped or self.tied_targets, self.looped or self.tied_host)
        return Problem(shape, self.m, free, *tied, NOTIONS[self.notion])

    def _setting(self) -> SearchSetting:
        from utfproof.search.restarts import SearchSetting

        return SearchSetting(
            self.restarts, self.iterations, self.seed, self.targets, self.fresh, positive=self.positive
        )

    # --- in a sweep: in one process ---

    version = 2

    @classmethod
    def prepared(cls, given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
        cls.of(given)._problem()
        kept = {name: value for name, value in given.items() if value != parameters(cls)[name].default}
        yield kept | {name: given[name] for name in _SAID_ALWAYS} | {"d_in": given["d_in"] or 1}, {}

    def found(self, context: Context) -> Found:
        from utfproof.search.log import run_document
        from utfproof.search.restarts import search
        from utfproof.search.rounding import verify_run

        run = search(self._problem(), self._setting(), workers=0, max_memory=context.max_memory)
        verification, notes = verify_run(run, workers=0) if self.rounding else (None, [])
        document = run_document(run, verification, notes)
        names = ("counts", "problem", "verification", "notes")
        return {"verdict": document["outcome"], **{name: document[name] for name in names}}, {}


def _rows(document: dict[str, Any]) -> dict[str, str]:
    from utfproof.search.restarts import OUTCOMES

    best = min(document["restarts"], key=lambda restart: (OUTCOMES.index(restart["outcome"]), restart["path"][-1][1]))
    ridge, residual, largest = best["path"][-1]
    rows = {
        "outcome": document["outcome"] + ("" if document["verification"] else "; proves nothing"),
        "restarts": ", ".join(f"{count} {name}" for name, count in document["counts"].items()),
        "best": f"residual {residual:.2g} at ridge {ridge:g}, largest weight {largest:.3g} (restart {best['number']})",
    }
    if best["fresh"]:
        rows["fresh targets"] = f"residuals {best['fresh'][0]:.2g} to {best['fresh'][-1]:.2g}"
    found = document["verification"]
    if found is not None:
        facts = ", ".join(f"{name} {count}" for name, count in found["facts"].items())
        rows["exact verification"] = f"{found['method']}: {facts}"
        if found["construction"]:
            same = "the host is that one up to changes of coordinates" if found["equivalent"] else "of the same class"
            mirror = ", mirrored" if found["mirrored"] else ""
            rows["certificate"] = f"identity of {found['construction']}{mirror}; {same}"
    for number, note in enumerate(document["notes"]):
        rows[f"note {number + 1}"] = note
    return rows


def _workers(count: int) -> int:
    return 0 if count == 0 else positive_integer("--workers", count)
