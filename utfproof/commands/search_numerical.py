"""`utfproof search numerical`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import Context, Found, Prepared, command, grouped
from utfproof.cli.options import DIn, HeadDim, Heads, Layers, MaxMemory, Seed, option, option_of, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.notions import Notion
from utfproof.ground.progress import stage
from utfproof.shapes import Shape, positive_integer

if TYPE_CHECKING:
    from utfproof.search.problem import Problem
    from utfproof.search.restarts import SearchSetting

FREE = {"E": "E", "U": "U", "both": "E and U"}
_SAID_ALWAYS = ("free", "notion", "looped", "restarts", "iterations", "seed")
"""In the key of a sweep's job even where they are the default."""
NOTIONS = {notion.word: notion for notion in (Notion.SHARED_ATTENTION, Notion.ATTENTION_MATCHING)}


@dataclass(frozen=True)
class ProblemOptions:
    """What host is looked for, and for which targets."""

    heads: Heads = None
    layers: Layers = None
    m: Annotated[int | None, option("Embedding dimension m of the hosts.", check=positive_integer)] = None
    d_in: DIn = None
    head_dim: HeadDim = None
    free: Annotated[str, option("What may depend on the target", choices=tuple(FREE))] = "both"
    looped: Annotated[bool, option("Tied hosts for tied targets.", "--looped")] = False
    tied_host: Annotated[bool, option("Tied hosts, whatever the targets.", "--tied-host", advanced=True)] = False
    tied_targets: Annotated[bool, option("Tied targets, whatever the hosts.", "--tied-targets", advanced=True)] = False
    notion: Annotated[
        str, option("With attention-matching U, R_Q, R_K are fixed and E is free", choices=tuple(NOTIONS))
    ] = "shared-attention"

    def problem(self) -> Problem:
        """The problem; MalformedInput naming the options that are missing."""
        from utfproof.search.problem import Problem

        if self.heads is None or self.layers is None or self.m is None:
            missing = [option_of(name) for name in ("heads", "layers", "m") if getattr(self, name) is None]
            raise MalformedInput(f"the problem is incomplete: {', '.join(missing)} missing")
        width = 1 if self.d_in is None else self.d_in
        shape = Shape(self.heads, self.layers, width if self.head_dim is None else self.head_dim, width)
        matched = self.notion == "attention-matching"  # U is fixed in this notion
        free = "E" if matched and self.free == "both" else FREE[self.free]
        tied = (self.looped or self.tied_targets, self.looped or self.tied_host)
        return Problem(shape, self.m, free, *tied, NOTIONS[self.notion])


@dataclass(frozen=True)
class SearchOptions:
    """How long it is looked for."""

    restarts: Annotated[int, option("Random start points.", check=positive_integer)] = 20
    seed: Seed = 0
    iterations: Annotated[int, option("Steps at each ridge, at most.", check=positive_integer, advanced=True)] = 200
    targets: Annotated[
        int | None, option("Targets solved at once (default: enough).", check=positive_integer, advanced=True)
    ] = None
    fresh: Annotated[
        int, option("Fresh targets that a candidate must serve.", check=positive_integer, advanced=True)
    ] = 12
    positive: Annotated[bool, option("Targets with positive weights only (d_in = 1).", "--positive", advanced=True)] = (
        False
    )

    def setting(self) -> SearchSetting:
        """As `search` takes it."""
        from utfproof.search.restarts import SearchSetting

        return SearchSetting(
            self.restarts, self.iterations, self.seed, self.targets, self.fresh, positive=self.positive
        )


def _prepared(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    grouped(ProblemOptions, given).problem()
    kept = {name: value for name, value in given.items() if value != search_numerical.command.parameters[name].default}
    yield kept | {name: given[name] for name in _SAID_ALWAYS} | {"d_in": given["d_in"] or 1}, {}


def _found(given: dict[str, Any], context: Context) -> Found:
    from utfproof.search.log import run_document
    from utfproof.search.restarts import search
    from utfproof.search.rounding import verify_run

    problem, setting = grouped(ProblemOptions, given).problem(), grouped(SearchOptions, given).setting()
    run = search(problem, setting, workers=0, max_memory=context.max_memory)
    verification, notes = verify_run(run, workers=0) if given["rounding"] else (None, [])
    document = run_document(run, verification, notes)
    names = ("counts", "problem", "verification", "notes")
    return {"verdict": document["outcome"], **{name: document[name] for name in names}}, {}


@command(
    "Example: utfproof search numerical -H 2 -L 2 --m 2 --free both --restarts 20 --seed 0 -o run.json",
    name="search numerical",
    version=2,
    prepare=_prepared,
    find=_found,
)
def search_numerical(
    *,
    problem: ProblemOptions,
    options: SearchOptions,
    rounding: Annotated[
        bool, option("Round candidates to exact hosts.", "--rounding/--no-rounding", advanced=True)
    ] = True,
    workers: Annotated[
        int, option("Processes, one BLAS thread each; 0: in this one, with its threads.", aside=True, advanced=True)
    ] = 1,
    device: Annotated[
        str,
        option(
            "cpu, or a torch device such as cuda: restarts and targets in one batch there.", aside=True, advanced=True
        ),
    ] = "cpu",
    repeat: Annotated[Path | None, option("Repeat the run logged in RUN.json.")] = None,
    output: Annotated[Path | None, written("Log of the run to write (.json).", "-o", "--output", document=True)] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Look for a host of m dimensions numerically, from random starts.

    In the shared-attention model, or by attention-matching. Exit 0: a host was found and verified exactly. 4: a candidate
    without exact verification, an approximation, or nothing; that nothing was found proves nothing.
    """
    from utfproof.search import log
    from utfproof.search.levenberg import NUMPY, TORCH, SearchEngine
    from utfproof.search.restarts import batches, search
    from utfproof.search.rounding import verify_run

    if repeat is not None:
        if any(getattr(problem, name) is not None for name in ("heads", "layers", "m", "d_in", "head_dim")):
            raise MalformedInput("--repeat takes the problem from the log: give no shape and no --m")
        asked, setting = log.read_run(repeat)
    else:
        asked, setting = problem.problem(), options.setting()
    engine = SearchEngine(NUMPY if device == "cpu" else TORCH, device)
    if workers:
        positive_integer("--workers", workers)
    workers = workers if device == "cpu" else 0
    groups = -(-setting.restarts // batches(setting.restarts, engine))
    with stage("search", groups, unit="groups of restarts") as doing:
        run = search(asked, setting, workers=workers, engine=engine, max_memory=max_memory, progress=doing.advance)
    verification, notes = verify_run(run, workers=workers) if rounding else (None, [])
    document = log.run_document(run, verification, notes)
    return Outcome(document, f"search numerical: {asked}", _rows(document), 0 if verification is not None else 4)


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
