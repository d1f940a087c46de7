"""One host and one target: what `emulate` and `enclose` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import rare, shape_of
from utfproof.commands.hosts import is_host_file, load_host, require_drawn_alike, require_made_for, stored_stream
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget

TargetFile = Annotated[Path | None, typer.Option(help="TARGET.safetensors; random targets by default.")]
EmbeddingFile = Annotated[Path | None, typer.Option(help="E.safetensors of this target; solved for by default.")]
TiedTargets = Annotated[bool, rare("--tied-targets", help="Random targets are weight-tied.")]


@dataclass(frozen=True, eq=False)
class Pair:
    """A host, the target of a file or the shape to draw targets of, and E where a file gives it."""

    host: Universal
    targets: Target | BiasedTarget | Shape
    embedding: Any


def drawn_shape(host: str, dimensions: list[int | None], residual: bool | None, limit: int | None) -> Shape:
    """The shape of targets drawn for a host; its file may say that there is a residual stream."""
    from utfproof.weights import host_shape, read_tensors

    stream = bool(residual)
    if is_host_file(host):
        layers, d_in = dimensions[1], dimensions[3]
        file = read_tensors(host, max_memory=limit)
        stream = host_shape(file, layers=layers, d_in=d_in, residual=residual, mlps=True)[0].residual
    return shape_of(*dimensions, residual=stream)


def pair_of(
    host: str,
    targets: Target | BiasedTarget | Shape,
    embedding: Path | None,
    *,
    layers: int | None,
    m: int | None,
    seed: int,
    law: str | None,
    dtype: str | None,
    limit: int | None,
) -> Pair:
    """The host of a HOST argument, and what runs in it. MalformedInput where E was found for another host."""
    from utfproof.weights import read_embedding, read_tensors

    served = targets if isinstance(targets, Shape) else targets.shape
    drawn: dict[str, Any] = {"seed": seed, "law": law, "dtype": dtype}
    machine = load_host(host, served, layers=layers, m=m, **drawn, limit=limit)
    if embedding is None:
        return Pair(machine, targets, None)
    if isinstance(targets, Shape):
        raise MalformedInput("--embedding belongs to one target: pass --target as well")
    E = read_embedding(embedding, max_memory=limit)
    facts = read_tensors(embedding, max_memory=limit).metadata
    require_made_for(facts, host, machine.shape.residual, limit)
    require_drawn_alike(
        facts, host, {"m": machine.m, "seed": seed, "law": law or "uniform", "dtype": dtype or "float64"}
    )
    if stored_stream(facts) not in (None, machine.shape.residual):
        raise MalformedInput(f"{embedding} and {host} differ in whether there is a residual stream")
    return Pair(machine, targets, E)
