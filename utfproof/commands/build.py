"""`utfproof build`: a host, or a random target, as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput, choose
from utfproof.shapes import Shape
from utfproof.systems import Target
from utfproof.systems.biases import BiasedTarget
from utfproof.util.laws import DTYPES

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def build(
    *,
    what: Annotated[str, typer.Argument(help="Construction, or 'target' for a random target.")],
    output: Annotated[Path, options.written("File to write (.safetensors).", "-o", "--output")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.M = None,
    width: Annotated[int | None, typer.Option(help="Target only: its width D (default: d_in).")] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Target only: width K of SwiGLU MLPs, with biases everywhere; needs --residual.")
    ] = None,
    tied: Annotated[bool, typer.Option("--tied", help="Target only: one set of weights for all layers.")] = False,
    residual: options.Residual = False,
    seed: options.Seed = 0,
    law: options.Law = "uniform",
    dtype: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(DTYPES)}; {{0,1}} hosts also int8 (default: int8, drawn weights float64)."),
    ] = None,
    max_memory: options.MaxMemory = None,
) -> Outcome:
    """Write a host, or a random target, to a file of weights.

    A host has R_Q, R_K, R_V, U; a target W_Q, W_K, W_V, W_O (W_E, W_U).

    Examples: utfproof build tied -H 2 -L 2 -d 3 --d-in 4 -o host.safetensors; utfproof build target -H 2 -L 2 -d 3 --d-in 4
    --width 6 --seed 7 -o target.safetensors
    """
    shape = options.shape_of(heads, layers, head_dim, d_in, d_out, residual=residual)
    draw: dict[str, Any] = {"seed": seed, "law": law}
    if what == "target":
        if m is not None:
            raise MalformedInput("--m is a host's embedding dimension; a target has --width")
        if hidden is not None and (tied or dtype not in (None, "float64")):
            raise MalformedInput("a target with MLPs (--hidden) is untied and float64; leave --tied and --dtype out")
        facts = _target(output, shape, width, hidden, tied, dtype or "float64", draw, max_memory)
    elif width is not None or hidden is not None or tied:
        raise MalformedInput(
            "--width, --hidden and --tied belong to 'build target'; tied hosts are constructions of their own"
        )
    else:
        facts = _host(what, output, shape, m, dtype, draw, max_memory)
    facts["file"] = str(output)
    document = {**facts, "shape": shape.document(facts.get("m"))}
    return Outcome(document, f"build {what}", {"shape": shape, **facts})


def _target(
    output: Path,
    shape: Shape,
    width: int | None,
    hidden: int | None,
    tied: bool,
    dtype: str,
    draw: dict[str, Any],
    limit: int | None,
) -> dict[str, Any]:
    from utfproof.constructions import random_target
    from utfproof.constructions.random import random_model
    from utfproof.weights import write_target

    target: Target | BiasedTarget
    if hidden is None:
        target = random_target(shape, width=width, tied=tied, **draw, dtype=dtype, max_memory=limit)
    else:
        target = random_model(shape, width=width or shape.d_in, hidden=hidden, **draw, max_memory=limit)
    write_target(output, target, dtype=dtype, metadata={name: str(value) for name, value in draw.items()})
    facts = {"system": "looped-target" if tied else "target", "width": target.width, "dtype": dtype}
    return facts if hidden is None else {**facts, "hidden": hidden}


def _host(
    name: str, output: Path, shape: Shape, m: int | None, dtype: str | None, draw: dict[str, Any], limit: int | None
) -> dict[str, Any]:
    from utfproof.constructions import build_host, construction, dense_bytes
    from utfproof.util.resources import require_memory
    from utfproof.weights import write_host

    entry = construction(name)
    kind = dtype or ("float64" if entry.is_random else "int8")
    known = DTYPES if entry.is_random else (*DTYPES, "int8")
    if kind not in known:
        raise MalformedInput(f"dtype {kind!r} is unknown; {choose(kind, known)}")
    m = entry.dimension(shape, m)
    size = dense_bytes(shape, m, tied=entry.tied, itemsize=ITEM_BYTES[kind])
    require_memory(size * (1 if entry.models is None else 3), f"a file of {name} at {shape}, m = {m},", limit)
    host = build_host(name, shape, m, **draw, dtype=kind if entry.is_random else "float64", max_memory=limit)
    facts = {"seed": str(draw["seed"]), "law": draw["law"], "dtype": kind} if entry.is_random else {}
    write_host(output, host, dtype=kind, metadata=facts)
    system = "looped-universal" if entry.tied else "universal"
    return {"system": system, "construction": name, "m": m, "dtype": kind}
