"""`utfproof search numerical`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import DIn, HeadDim, Heads, Layers, MaxMemory, Seed, option, option_of, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.shapes import Shape, positive_integer

if TYPE_CHECKING:
    from utfproof.search.exact_host import Verification
    from utfproof.search.restarts import SearchRun

FREE = {"E": "E", "both": "E and U"}


@command(
    "Example: utfproof search numerical -H 2 -L 2 --m 2 --free both --restarts 20 --seed 0 -o run.json",
    name="search numerical",
)
def search_numerical(
    *,
    heads: Heads = None,
    layers: Layers = None,
    m: Annotated[int | None, option("Embedding dimension m of the hosts.", check=positive_integer)] = None,
    d_in: DIn = None,
    head_dim: HeadDim = None,
    free: Annotated[str, option("What may depend on the target", choices=tuple(FREE))] = "both",
    looped: Annotated[bool, option("Tied hosts for tied targets.", "--looped")] = False,
    tied_host: Annotated[bool, option("Tied hosts, whatever the targets.", "--tied-host", advanced=True)] = False,
    tied_targets: Annotated[bool, option("Tied targets, whatever the hosts.", "--tied-targets", advanced=True)] = False,
    restarts: Annotated[int, option("Random start points.", check=positive_integer)] = 20,
    seed: Seed = 0,
    iterations: Annotated[int, option("Steps at each ridge, at most.", check=positive_integer, advanced=True)] = 200,
    fresh: Annotated[
        int, option("Fresh targets that a candidate must serve.", check=positive_integer, advanced=True)
    ] = 12,
    output: Annotated[Path | None, written("Log of the run to write (.json).", "-o", "--output", document=True)] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Look for a host of m dimensions numerically, from random starts.

    In the shared-attention model. Exit 0: a host was found and verified exactly. 4: a candidate without exact verification,
    an approximation, or nothing; that nothing was found proves nothing.
    """
    from threadpoolctl import threadpool_limits

    from utfproof.search.problem import Problem
    from utfproof.search.restarts import CHUNK, SearchSetting, search
    from utfproof.search.rounding import verify_candidates

    given = {"heads": heads, "layers": layers, "m": m}
    if heads is None or layers is None or m is None:
        missing = [option_of(name) for name, value in given.items() if value is None]
        raise MalformedInput(f"the problem is incomplete: {', '.join(missing)} missing")
    width = 1 if d_in is None else d_in
    shape = Shape(heads, layers, width if head_dim is None else head_dim, width)
    problem = Problem(shape, m, FREE[free], looped or tied_targets, looped or tied_host)
    setting = SearchSetting(restarts, iterations, seed, fresh)
    with threadpool_limits(1):  # the same bytes for the same command
        with stage("search", -(-restarts // CHUNK), unit="groups of restarts") as doing:
            run = search(problem, setting, max_memory=max_memory, progress=doing.advance)
        with stage("exact verification"):
            verification, notes = verify_candidates(run)
    outcome = run.best.outcome if verification is None else "found"
    document = {
        "search": "numerical",
        "outcome": outcome,
        **run.document(),
        "verification": None if verification is None else verification.document(),
        "notes": notes,
    }
    rows = _rows(run, verification, outcome) | {f"note {number}": note for number, note in enumerate(notes, 1)}
    return Outcome(document, f"search numerical: {problem}", rows, 0 if verification is not None else 4)


def _rows(run: SearchRun, verification: Verification | None, outcome: str) -> dict[str, Any]:
    best, counts = run.best, run.document()["counts"]
    ridge, residual, largest = best.path[-1]
    rows = {
        "outcome": outcome if verification else f"{outcome}; proves nothing",
        "restarts": ", ".join(f"{count} {name}" for name, count in counts.items()),
        "best": f"residual {residual:.2g} at ridge {ridge:g}, largest weight {largest:.3g} (restart {best.number})",
    }
    if best.fresh:
        rows["fresh targets"] = f"residuals {best.fresh[0]:.2g} to {best.fresh[-1]:.2g}"
    if verification is not None:
        facts = ", ".join(f"{name} {count}" for name, count in verification.facts.items())
        rows["exact verification"] = f"{verification.method}: {facts}"
        if verification.known is not None:
            name, least = verification.known
            rows["known"] = f"{name} serves the same targets with m = {least}"
    return rows
