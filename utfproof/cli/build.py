"""`utfproof build`: a host, or a random target, as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.ground.generator import DTYPES
from utfproof.shapes import Shape

EPILOG = (
    "Examples: utfproof build tied -H 2 -L 2 -d 3 --d-in 4 -o host.safetensors; "
    "utfproof build target -H 2 -L 2 -d 3 --d-in 4 --width 6 --seed 7 -o target.safetensors"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "build", command, epilog=EPILOG)


def command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="Construction, or 'target' for a random target.")],
    output: Annotated[Path, typer.Option("-o", "--output", writable=True, help="File to write (.safetensors).")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: options.Residual = False,
    m: options.EmbeddingDimension = None,
    width: Annotated[int | None, typer.Option("--width", help="Target only: its width D; d_in by default.")] = None,
    tied: Annotated[bool, typer.Option("--tied", help="Target only: one set of weights for all layers.")] = False,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help=f"{', '.join(DTYPES)}; int8 (the default) or any of these for a {{0,1}} host."),
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a host's parameters R_Q, R_K, R_V, U, or a random target's W_Q, W_K, W_V, W_O (W_E, W_U)."""
    shape = options.required_shape(heads, layers, head_dim, d_in, d_out, residual)
    limit = options.memory_limit(max_memory)
    require_writable(output)
    if what == "target":
        if m is not None:
            raise MalformedInput("--m is a host's embedding dimension; a target has --width")
        facts = _target(output, shape, width, seed, law, dtype or "float64", tied, limit)
    else:
        if width is not None or tied:
            raise MalformedInput(
                "--width and --tied belong to 'build target'; tied hosts are constructions of their own"
            )
        options.refuse_undrawn(context, what, "seed", "law")
        facts = _host(output, what, shape, m, seed, law, dtype, limit)
    facts["file"] = str(output)
    rows = {name: value for name, value in facts.items() if name != "shape"}
    emit(
        {**facts, "shape": options.shape_document(shape, facts.get("m"))},
        f"build {what}",
        {"shape": shape, **rows},
        as_json=as_json,
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
