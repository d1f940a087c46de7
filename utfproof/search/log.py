"""What a numerical search leaves behind: one JSON document with problem, budgets, every start point's path, the verification.

Nothing in it depends on the clock: the same command on the same machine writes the same bytes (one BLAS thread a process).
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.files import read_bytes
from utfproof.ground.notions import Notion
from utfproof.search.exact_host import Verification
from utfproof.search.problem import Problem
from utfproof.search.restarts import FIRST, OUTCOMES, RIDGES, SearchRun, SearchSetting, model
from utfproof.shapes import Shape

KIND = "numerical"
EXACT_FIND = "found"


def outcome_of(run: SearchRun, verification: Verification | None) -> str:
    """ "found" only with an exact verification; else candidate, approximate only or not found."""
    return run.outcome if verification is None else EXACT_FIND


def run_document(
    run: SearchRun, verification: Verification | None = None, notes: list[str] | None = None
) -> dict[str, Any]:
    """The document of a run."""
    candidate = None
    if run.candidates:
        number = run.best.number
        candidate = {"restart": number, **model(run.problem).host_document(run.problem, run.candidates[number])}
    return {
        "search": KIND,
        "problem": run.problem.document(),
        "setting": {
            **{name: getattr(run.setting, name) for name in SearchSetting.__dataclass_fields__},
            "targets": run.targets,
            "ridges": list(RIDGES),
            "first ridge of restart k": [FIRST[k % len(FIRST)] for k in range(len(FIRST))],
        },
        "engine": run.engine.document(),
        "machine": machine(),
        "outcome": outcome_of(run, verification),
        "counts": {name: run.count(name) for name in OUTCOMES},
        "restarts": [restart.document() for restart in run.restarts],
        "candidate": candidate,
        "verification": None if verification is None else verification.document(),
        "notes": list(notes or []),
    }


def machine() -> dict[str, str]:
    """The class of machine and the versions that decide the last bits."""
    return {"machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__}


def read_problem(given: dict[str, Any]) -> Problem:
    """The problem of a document of `Problem.document`; KeyError, TypeError or ValueError where it is none."""
    tied_targets, tied = given["targets"] == "all tied", given["host"] == "tied"
    return Problem(Shape(**given["shape"]), given["m"], given["free"], tied_targets, tied, Notion(given["notion"]))


def read_run(path: Path) -> tuple[Problem, SearchSetting]:
    """Problem and setting of a logged run, to repeat it. MalformedInput for anything else."""
    try:
        document = json.loads(read_bytes(path))
        problem, setting = read_problem(document["problem"]), document["setting"]
        return problem, SearchSetting(**{name: setting[name] for name in SearchSetting.__dataclass_fields__})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedInput(f"{path} is no log of a numerical search: {error}") from error
