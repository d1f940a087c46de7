"""Training runs as jobs of `utfproof sweep` (docs/sweeps.md): one preset and seed a job, in one process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput

VERSION = 1
"""Of the results; raised when their content changes."""

PARAMETERS: dict[str, tuple[type, Any]] = {
    "preset": (str, ...),
    "seed": (int, 0),
    "steps": (int, None),
    "batch": (int, None),
    "m": (int, None),
    "head_dim": (int, None),
    "host": (str, None),
    "learning_rate": (float, None),
    "weight_decay": (float, None),
    "warmup": (int, None),
    "positions": (str, None),
    "loss": (str, None),
    "engine": (str, "auto"),
    "dtype": (str, "float32"),
    "device": (str, "cpu"),
    "eval_sequences": (int, 10_000),
}
_OF_THE_RUN = ("preset", "seed", "engine", "dtype", "device", "eval_sequences")
_PLACES = ("engine", "dtype", "device")


def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same parameters, checked, with what the preset fills in. MalformedInput naming the one that cannot be."""
    from utfproof.ground.generator import check_seed
    from utfproof.training.loop import engine_name
    from utfproof.training.models import DTYPES

    chosen = _preset(parameters)
    check_seed(parameters["seed"])
    if parameters["eval_sequences"] < 1:
        raise MalformedInput(f"eval_sequences must be a positive integer, got {parameters['eval_sequences']}")
    if parameters["dtype"] not in DTYPES:
        raise MalformedInput(f"dtype {parameters['dtype']!r} is unknown; choose {', '.join(DTYPES)}")
    filled = {name: getattr(chosen, name) for name in PARAMETERS if name not in _OF_THE_RUN}
    return {**parameters, **filled, "engine": engine_name(chosen, parameters["engine"])}


def _preset(parameters: dict[str, Any]) -> Any:
    from utfproof.training.presets import preset

    return preset(parameters["preset"], **{k: v for k, v in parameters.items() if k not in _OF_THE_RUN})


def run(parameters: dict[str, Any], *, key: str, max_memory: int | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The accuracy as the verdict, the result without its times, and the log beside it."""
    from utfproof.training import run as runs
    from utfproof.training.results import to_document

    places = {name: parameters[name] for name in _PLACES}
    with tempfile.TemporaryDirectory() as name:
        setting = runs.Setting(
            **places,
            folder=Path(name),
            results=None,
            eval_sequences=parameters["eval_sequences"],
            max_memory=max_memory,
        )
        (result,) = runs.run(_preset(parameters), [parameters["seed"]], setting)
        log = (Path(name) / runs.LOG).read_bytes()
    document = {name: value for name, value in to_document(result).items() if name != "seconds"}
    return {"verdict": f"accuracy {result.accuracy:.4f}", **document}, {f"{key}.jsonl": log}
