"""Numerical searches as jobs of `utfproof sweep` (docs/sweeps.md): one problem and budget a job, in one process."""

from __future__ import annotations

from typing import Any

from utfproof.errors import MalformedInput

VERSION = 2
"""Of the results; raised when their content changes."""

PARAMETERS: dict[str, tuple[type, Any]] = {
    "heads": (int, ...),
    "layers": (int, ...),
    "m": (int, ...),
    "d_in": (int, 1),
    "free": (str, "both"),
    "notion": (str, "shared-attention"),
    "looped": (bool, False),
    "restarts": (int, 20),
    "iterations": (int, 200),
    "seed": (int, 0),
}
FREE = {"E": "E", "U": "U", "both": "E and U"}
NOTIONS = ("shared-attention", "attention-matching")


def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same parameters, checked. MalformedInput naming the one that cannot be."""
    _problem(parameters)
    for name in ("restarts", "iterations"):
        if parameters[name] < 1:
            raise MalformedInput(f"{name} must be a positive integer, got {parameters[name]}")
    return parameters


def _problem(parameters: dict[str, Any]) -> Any:
    from utfproof.ground.notions import Notion
    from utfproof.search.problem import Problem
    from utfproof.shapes import Shape

    if parameters["free"] not in FREE:
        raise MalformedInput(f"free {parameters['free']!r} is unknown; choose {', '.join(FREE)}")
    if parameters["notion"] not in NOTIONS:
        raise MalformedInput(f"notion {parameters['notion']!r} is unknown; choose {', '.join(NOTIONS)}")
    matched = parameters["notion"] == NOTIONS[1]
    free = "E" if matched and parameters["free"] == "both" else FREE[parameters["free"]]
    notion = Notion.ATTENTION_MATCHING if matched else Notion.SHARED_ATTENTION
    width = parameters["d_in"]
    shape = Shape(parameters["heads"], parameters["layers"], width, width)
    return Problem(shape, parameters["m"], free, parameters["looped"], parameters["looped"], notion)


def run(parameters: dict[str, Any], *, key: str, max_memory: int | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The outcome as the verdict ("found" only with an exact verification), and how the restarts ended."""
    from utfproof.search.log import run_document
    from utfproof.search.restarts import Setting, search
    from utfproof.search.rounding import verify_run

    setting = Setting(parameters["restarts"], parameters["iterations"], parameters["seed"])
    found = search(_problem(parameters), setting, workers=0, max_memory=max_memory)
    verification, notes = verify_run(found, workers=0)
    document = run_document(found, verification, notes)
    kept = ("outcome", "counts", "problem", "verification", "notes")
    return {"verdict": document["outcome"], **{name: document[name] for name in kept[1:]}}, {}
