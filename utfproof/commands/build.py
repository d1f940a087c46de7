"""`utfproof build`: a host, or a random target, as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import Given, command
from utfproof.cli.options import (
    DIn,
    DOut,
    HeadDim,
    Heads,
    Law,
    Layers,
    M,
    MaxMemory,
    Residual,
    Seed,
    argument,
    option,
    required_shape,
    written,
)
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.ground.laws import DTYPES
from utfproof.shapes import Shape


def _target(given: Given, shape: Shape) -> dict[str, Any]:
    from utfproof.constructions import random_target
    from utfproof.weights import write_target

    drawn: dict[str, Any] = {"law": given.law, "dtype": given.dtype or "float64"}
    target = random_target(shape, given.seed, width=given.width, tied=given.tied, **drawn, max_memory=given.max_memory)
    write_target(given.output, target, dtype=drawn["dtype"], metadata={"seed": str(given.seed), "law": given.law})
    system = "looped-target" if given.tied else "target"
    return {"system": system, "width": target.width, "dtype": drawn["dtype"]}


def _host(given: Given, shape: Shape) -> dict[str, Any]:
    from utfproof.constructions import build_host, construction, dense_bytes, resolve_m
    from utfproof.ground.resources import require_memory
    from utfproof.weights import write_host

    name, entry = given.what, construction(given.what)
    kind = given.dtype or ("float64" if entry.is_random else "int8")
    if kind not in DTYPES and (entry.is_random or kind != "int8"):
        raise MalformedInput(
            f"dtype {kind!r} is unknown; choose {', '.join(DTYPES)}" + ("" if entry.is_random else ", int8")
        )
    m = resolve_m(entry, shape, given.m)
    itemsize = {"float64": 8, "float32": 4, "int8": 1}.get(kind, 2)
    size = dense_bytes(shape, m, tied=entry.tied, itemsize=itemsize)
    require_memory(size, f"a file of {name} at {shape}, m = {m},", given.max_memory)
    dtype = kind if entry.is_random else "float64"
    host = build_host(name, shape, m, seed=given.seed, law=given.law, dtype=dtype, max_memory=given.max_memory)
    facts = {"seed": str(given.seed), "law": given.law, "dtype": kind} if entry.is_random else {}
    write_host(given.output, host, dtype=kind, metadata=facts)
    system = "looped-universal" if entry.tied else "universal"
    return {"system": system, "construction": name, "m": m, "dtype": kind}


@command(
    "Examples: utfproof build tied -H 2 -L 2 -d 3 --d-in 4 -o host.safetensors; "
    "utfproof build target -H 2 -L 2 -d 3 --d-in 4 --width 6 --seed 7 -o target.safetensors"
)
def build(
    *,
    what: Annotated[str, argument("Construction, or 'target' for a random target.")],
    output: Annotated[Path, written("File to write (.safetensors).", "-o", "--output")],
    m: M = None,
    width: Annotated[int | None, option("Target only: its width D; d_in by default.")] = None,
    tied: Annotated[bool, option("Target only: one set of weights for all layers.", "--tied")] = False,
    seed: Seed = 0,
    law: Law = "uniform",
    dtype: Annotated[
        str | None, option(f"{', '.join(DTYPES)}; int8 (the default) or any of these for a {{0,1}} host.")
    ] = None,
    residual: Residual = False,
    heads: Heads = None,
    layers: Layers = None,
    head_dim: HeadDim = None,
    d_in: DIn = None,
    d_out: DOut = None,
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Write a host's parameters R_Q, R_K, R_V, U, or a random target's W_Q, W_K, W_V, W_O (W_E, W_U)."""
    given = Given(locals())
    shape = required_shape(locals(), residual=residual)
    if what == "target":
        if m is not None:
            raise MalformedInput("--m is a host's embedding dimension; a target has --width")
        facts = _target(given, shape)
    else:
        if width is not None or tied:
            raise MalformedInput(
                "--width and --tied belong to 'build target'; tied hosts are constructions of their own"
            )
        options.refuse_undrawn(stated, what, "seed", "law")
        facts = _host(given, shape)
    facts["file"] = str(output)
    document = {**facts, "shape": options.shape_document(shape, facts.get("m"))}
    return Outcome(document, f"build {what}", {"shape": shape, **facts})
