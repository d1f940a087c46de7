"""One host and one target: what `emulate` and `enclose` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.options import Draw, M, ShapeOptions, StoredResidual, option
from utfproof.commands.hosts import load_host
from utfproof.commands.readings import OWN_LAYOUT, LiveOptions
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape, positive_integer
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget


@dataclass(frozen=True)
class PairOptions(LiveOptions):
    """What runs in a host, and with which E."""

    m: M = None
    target: Annotated[Path | None, option("TARGET.safetensors in place of random targets.")] = None
    layout: Annotated[
        str, option("Names in the target's file: utfproof, or those of a model; auto finds out which.", advanced=True)
    ] = OWN_LAYOUT
    embedding: Annotated[Path | None, option("E.safetensors to run instead of solving for E (needs --target).")] = None
    width: Annotated[
        int | None, option("Width D of random targets (default: d_in).", check=positive_integer, advanced=True)
    ] = None
    tied_targets: Annotated[bool, option("Random targets are weight-tied.", "--tied-targets")] = False
    residual: StoredResidual = None


@dataclass(frozen=True, eq=False)
class Pair:
    """A host, the target of a file or the shape to draw targets of, and E where a file gives it."""

    host: Universal
    targets: Target | BiasedTarget | Shape
    embedding: Any


def pair_of(host: str, law: str, shape: ShapeOptions, pair: PairOptions, draw: Draw, limit: int | None) -> Pair:
    """The host of a HOST argument, and what runs in it. MalformedInput where options contradict one another or the files.
    law: of random targets."""
    from utfproof.weights import read_embedding, read_tensors

    targets: Target | BiasedTarget | Shape
    if pair.target is not None:
        if pair.width is not None or pair.tied_targets or law != "uniform":
            raise MalformedInput("--width, --tied-targets and --target-law describe random targets; --target gives one")
        one = _target(host, pair, pair.target, shape, draw.seed, limit)
        targets = one
        options.agree_with(one.shape, **shape.dimensions)
    elif pair.module is not None or pair.layout != OWN_LAYOUT:
        raise MalformedInput("--module and --layout are about one model: pass --target as well")
    elif pair.embedding is not None:
        raise MalformedInput("--embedding belongs to one target: pass --target as well")
    else:
        targets = shape.shape(residual=_stream(host, shape, pair.residual, limit))
    drawn_by: dict[str, Any] = {"m": pair.m, **vars(draw)}
    served = targets if isinstance(targets, Shape) else targets.shape
    machine = load_host(host, served, layers=shape.layers, **drawn_by, limit=limit)
    if pair.embedding is None:
        return Pair(machine, targets, None)
    E = read_embedding(pair.embedding, max_memory=limit)
    facts = read_tensors(pair.embedding, max_memory=limit).metadata
    options.require_made_for(facts, host, machine.shape.residual, limit)
    options.require_drawn_alike(facts, host, drawn_by | {"m": machine.m})
    if options.stored_stream(facts) not in (None, machine.shape.residual):
        raise MalformedInput(f"{pair.embedding} and {host} differ in whether there is a residual stream")
    return Pair(machine, targets, E)


def _target(
    host: str, pair: PairOptions, path: Path, shape: ShapeOptions, seed: int, limit: int | None
) -> Target | BiasedTarget:
    """The target of a file, or of a model or a part of one; a constant coordinate carries its biases, unless the host serves
    them as they are."""
    from utfproof.constructions import CONSTRUCTIONS
    from utfproof.models import import_model
    from utfproof.weights import read_target

    model = pair.reading(path, seed, limit)
    if model is None and pair.layout == OWN_LAYOUT:
        return read_target(path, layers=shape.layers, residual=pair.residual, max_memory=limit)
    if model is None:
        model = import_model(path, pair.layout, heads=shape.heads, residual=pair.residual, max_memory=limit)
    entry, target = CONSTRUCTIONS.get(host), model.target()
    return target.augmented() if entry is None or entry.models is None else target


def _stream(host: str, shape: ShapeOptions, residual: bool | None, limit: int | None) -> bool:
    """Whether targets drawn for this host have a residual stream: its file may say so."""
    from utfproof.weights import host_shape, read_tensors

    if not options.is_host_file(host):
        return bool(residual)
    file = read_tensors(host, max_memory=limit)
    return host_shape(file, layers=shape.layers, d_in=shape.d_in, residual=residual, mlps=True)[0].residual
