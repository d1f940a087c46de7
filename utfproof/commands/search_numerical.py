"""`utfproof search numerical`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.options import DIn, HeadDim, Heads, Layers, MaxMemory, Output, Seed, choice
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.util.files import write_json
from utfproof.util.progress import stage

if TYPE_CHECKING:
    from utfproof.search.exact_host import Verification
    from utfproof.search.restarts import SearchRun

FREE = {"E": "E", "both": "E and U"}
Dimension = Annotated[int | None, typer.Option(help="Embedding dimension m of the hosts.")]
Free = Annotated[str, choice("What may depend on the target", (*FREE,))]
Looped = Annotated[bool, typer.Option("--looped", help="Tied hosts for tied targets.")]


def require_problem(heads: int | None, layers: int | None, m: int | None) -> tuple[int, int, int]:
    """H, L and m; MalformedInput naming what is missing."""
    if heads is None or layers is None or m is None:
        given = {"--heads": heads, "--layers": layers, "--m": m}
        missing = [name for name, value in given.items() if value is None]
        raise MalformedInput(f"the problem is incomplete: {', '.join(missing)} missing")
    return heads, layers, m


def search_numerical(
    *,
    heads: Heads = None,
    layers: Layers = None,
    m: Dimension = None,
    d_in: DIn = None,
    head_dim: HeadDim = None,
    free: Free = "both",
    looped: Looped = False,
    restarts: Annotated[int, typer.Option(help="Random start points.")] = 20,
    seed: Seed = 0,
    output: Output = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Look for a host of m dimensions numerically, from random starts.

    In the shared-attention model. Exit 0: a host was found and verified exactly. 4: a candidate without exact verification,
    an approximation, or nothing; that nothing was found proves nothing.

    Example: utfproof search numerical -H 2 -L 2 --m 2 --free both --restarts 20 --seed 0 -o run.json
    """
    from threadpoolctl import threadpool_limits

    from utfproof.search.problem import Problem
    from utfproof.search.restarts import CHUNK, SearchSetting, search
    from utfproof.search.rounding import verify_candidates

    heads, layers, m = require_problem(heads, layers, m)
    width = 1 if d_in is None else d_in
    shape = Shape(heads, layers, width if head_dim is None else head_dim, width)
    problem = Problem(shape, m, FREE[free], looped, looped)
    with threadpool_limits(1):  # the same bytes for the same command
        with stage("search", -(-restarts // CHUNK), unit="groups of restarts") as doing:
            run = search(problem, SearchSetting(restarts, seed=seed), max_memory=max_memory, progress=doing.advance)
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
    if output is not None:
        write_json(output, document)
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
