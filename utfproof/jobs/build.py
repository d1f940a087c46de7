"""`utfproof build`: a host, or a random target, as a safetensors file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.generator import DTYPES
from utfproof.jobs import options
from utfproof.jobs.groups import Limited, Shaped, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written
from utfproof.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class Build(Shaped, Limited, Job, order=60):
    """Write a host's parameters R_Q, R_K, R_V, U, or a random target's W_Q, W_K, W_V, W_O (W_E, W_U)."""

    examples = (
        "Examples: utfproof build tied -H 2 -L 2 -d 3 --d-in 4 -o host.safetensors; "
        "utfproof build target -H 2 -L 2 -d 3 --d-in 4 --width 6 --seed 7 -o target.safetensors"
    )
    what: str = argument(..., "Construction, or 'target' for a random target.")
    output: Path = written(..., "File to write (.safetensors).")
    m: int | None = shared("m")
    width: int | None = option(None, "Target only: its width D; d_in by default.")
    tied: bool = option(False, "Target only: one set of weights for all layers.")
    seed: int = shared("seed")
    law: str = shared("law")
    dtype: str | None = option(None, f"{', '.join(DTYPES)}; int8 (the default) or any of these for a {{0,1}} host.")

    def run(self) -> Outcome:
        shape = self.shape
        limit = self.limit
        if self.what == "target":
            if self.m is not None:
                raise MalformedInput("--m is a host's embedding dimension; a target has --width")
            facts = _target(
                self.output, shape, self.width, self.seed, self.law, self.dtype or "float64", self.tied, limit
            )
        else:
            if self.width is not None or self.tied:
                raise MalformedInput(
                    "--width and --tied belong to 'build target'; tied hosts are constructions of their own"
                )
            options.refuse_undrawn(self, self.what, "seed", "law")
            facts = _host(self.output, self.what, shape, self.m, self.seed, self.law, self.dtype, limit)
        facts["file"] = str(self.output)
        rows = {name: value for name, value in facts.items() if name != "shape"}
        return Outcome(
            {**facts, "shape": options.shape_document(shape, facts.get("m"))},
            f"build {self.what}",
            {"shape": shape, **rows},
        )


def _target(
    output: Path,
    shape: Shape,
    width: int | None,
    seed: int,
    law: str,
    dtype: str,
    tied: bool,
    limit: int | None,
) -> dict[str, Any]:
    from utfproof.constructions import random_target
    from utfproof.weights import write_target

    target = random_target(shape, seed, width=width, law=law, dtype=dtype, tied=tied, max_memory=limit)
    write_target(output, target, dtype=dtype, metadata={"seed": str(seed), "law": law})
    return {"system": "looped-target" if tied else "target", "width": target.width, "dtype": dtype}


def _host(
    output: Path,
    name: str,
    shape: Shape,
    m: int | None,
    seed: int,
    law: str,
    dtype: str | None,
    limit: int | None,
) -> dict[str, Any]:
    from utfproof.constructions import build_host, construction, dense_bytes, resolve_m
    from utfproof.ground.resources import require_memory
    from utfproof.weights import write_host

    entry = construction(name)
    kind = dtype or ("float64" if entry.is_random else "int8")
    if kind not in DTYPES and (entry.is_random or kind != "int8"):
        raise MalformedInput(
            f"dtype {kind!r} is unknown; choose {', '.join(DTYPES)}" + ("" if entry.is_random else ", int8")
        )
    m = resolve_m(entry, shape, m)
    itemsize = {"float64": 8, "float32": 4, "int8": 1}.get(kind, 2)
    require_memory(
        dense_bytes(shape, m, tied=entry.tied, itemsize=itemsize),
        f"a file of {name} at {shape}, m = {m},",
        limit,
    )
    host = build_host(
        name,
        shape,
        m,
        seed=seed,
        law=law,
        dtype=dtype or "float64" if entry.is_random else "float64",
        max_memory=limit,
    )
    facts = {"seed": str(seed), "law": law, "dtype": kind} if entry.is_random else {}
    write_host(output, host, dtype=kind, metadata=facts)
    return {
        "system": "looped-universal" if entry.tied else "universal",
        "construction": name,
        "m": m,
        "dtype": kind,
    }
