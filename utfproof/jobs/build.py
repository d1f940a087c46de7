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
        if self.what == "target":
            if self.m is not None:
                raise MalformedInput("--m is a host's embedding dimension; a target has --width")
            facts = self._target(shape)
        else:
            if self.width is not None or self.tied:
                raise MalformedInput(
                    "--width and --tied belong to 'build target'; tied hosts are constructions of their own"
                )
            options.refuse_undrawn(self, self.what, "seed", "law")
            facts = self._host(shape)
        facts["file"] = str(self.output)
        document = {**facts, "shape": options.shape_document(shape, facts.get("m"))}
        return Outcome(document, f"build {self.what}", {"shape": shape, **facts})

    def _target(self, shape: Shape) -> dict[str, Any]:
        from utfproof.constructions import random_target
        from utfproof.weights import write_target

        drawn: dict[str, Any] = {"law": self.law, "dtype": self.dtype or "float64"}
        target = random_target(shape, self.seed, width=self.width, tied=self.tied, **drawn, max_memory=self.limit)
        write_target(self.output, target, dtype=drawn["dtype"], metadata={"seed": str(self.seed), "law": self.law})
        system = "looped-target" if self.tied else "target"
        return {"system": system, "width": target.width, "dtype": drawn["dtype"]}

    def _host(self, shape: Shape) -> dict[str, Any]:
        from utfproof.constructions import build_host, construction, dense_bytes, resolve_m
        from utfproof.ground.resources import require_memory
        from utfproof.weights import write_host

        name, entry = self.what, construction(self.what)
        kind = self.dtype or ("float64" if entry.is_random else "int8")
        if kind not in DTYPES and (entry.is_random or kind != "int8"):
            raise MalformedInput(
                f"dtype {kind!r} is unknown; choose {', '.join(DTYPES)}" + ("" if entry.is_random else ", int8")
            )
        m = resolve_m(entry, shape, self.m)
        itemsize = {"float64": 8, "float32": 4, "int8": 1}.get(kind, 2)
        size = dense_bytes(shape, m, tied=entry.tied, itemsize=itemsize)
        require_memory(size, f"a file of {name} at {shape}, m = {m},", self.limit)
        dtype = kind if entry.is_random else "float64"
        host = build_host(name, shape, m, seed=self.seed, law=self.law, dtype=dtype, max_memory=self.limit)
        facts = {"seed": str(self.seed), "law": self.law, "dtype": kind} if entry.is_random else {}
        write_host(self.output, host, dtype=kind, metadata=facts)
        system = "looped-universal" if entry.tied else "universal"
        return {"system": system, "construction": name, "m": m, "dtype": kind}
