"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.generator import check_dtype, check_law, check_seed
from utfproof.ground.resources import parse_bytes
from utfproof.jobs.parameters import (
    DIMENSIONS,
    DRAW,
    EMBEDDING_DIMENSION,
    REQUIRED,
    RESIDUAL_OF_WEIGHTS,
    SHAPE,
    Parameter,
    option,
    shape_of,
)
from utfproof.shapes import Shape


def declared(name: str, parameter: Parameter, *, deniable: bool = False) -> Any:
    """A parameter as an option; deniable: with --no-NAME besides, so that silence is told from no."""
    long = option(name)
    names = [f"{long}/--no-{name}" if deniable else long, *([f"-{parameter.letter}"] if parameter.letter else [])]
    return typer.Option(*names, help=parameter.whole_help, metavar=parameter.letter or None)


Heads = Annotated[int | None, declared("heads", SHAPE["heads"])]
Layers = Annotated[int | None, declared("layers", SHAPE["layers"])]
HeadDim = Annotated[int | None, declared("head_dim", SHAPE["head_dim"])]
DIn = Annotated[int | None, declared("d_in", SHAPE["d_in"])]
DOut = Annotated[int | None, declared("d_out", SHAPE["d_out"])]
Residual = Annotated[bool, declared("residual", SHAPE["residual"])]
ResidualFile = Annotated[bool | None, declared("residual", RESIDUAL_OF_WEIGHTS, deniable=True)]
EmbeddingDimension = Annotated[int | None, declared("m", EMBEDDING_DIMENSION)]
Seed = Annotated[int, declared("seed", DRAW["seed"])]
LawName = Annotated[str, declared("law", DRAW["law"])]
DtypeName = Annotated[str, declared("dtype", DRAW["dtype"])]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
MaxMemory = Annotated[
    str | None,
    typer.Option("--max-memory", help="Memory limit such as 4G; 80 % of RAM unless said otherwise."),
]


def require_seconds(name: str, seconds: float) -> None:
    """MalformedInput unless a time limit is a positive number (inf: none)."""
    if not seconds > 0:
        raise MalformedInput(f"{name} must be a positive number of seconds, got {seconds:g}")


def required_shape(
    heads: int | None,
    layers: int | None,
    head_dim: int | None,
    d_in: int | None,
    d_out: int | None,
    residual: bool = False,
) -> Shape:
    """The shape, or MalformedInput naming the options that are missing."""
    given = dict(zip(DIMENSIONS, (heads, layers, head_dim, d_in, d_out), strict=True))
    needed = [name for name, parameter in DIMENSIONS.items() if parameter.default is REQUIRED]
    missing = [option(name) for name in needed if given[name] is None]
    if missing:
        raise MalformedInput(
            f"the shape is incomplete: {', '.join(missing)} missing (all of {', '.join(map(option, needed))} are needed)"
        )
    return shape_of({**given, "residual": residual})


def agree_with(shape: Shape, **given: int | None) -> None:
    """MalformedInput when an option contradicts a file's shape."""
    for name, value in given.items():
        if value is not None and value != getattr(shape, name):
            raise MalformedInput(
                f"{option(name)} {value} contradicts the file, which has {name} = {getattr(shape, name)}"
            )


def memory_limit(text: str | None) -> int | None:
    """Bytes of --max-memory, None for the default."""
    return None if text is None else parse_bytes(text)


def require_distinct(output: Path, *inputs: Path) -> None:
    """MalformedInput when a result would overwrite one of its own inputs."""
    for given in inputs:
        if output.exists() and given.exists() and output.samefile(given):
            raise MalformedInput(f"writing {output} would overwrite an input of this command; choose another name")


def remove_earlier_target(path: Path) -> None:
    """Take away the target that an earlier run refuted a host with, where the certificate beside it now says otherwise.

    Only a file that says of itself that it is a target goes: nobody else's.
    """
    from utfproof.weights import read_tensors

    try:
        if path.is_file() and read_tensors(path).metadata.get("system") in ("target", "looped-target"):
            path.unlink()
    except (MalformedInput, ResourceLimit, OSError):
        return


def refuse_undrawn(context: typer.Context, host: str, *names: str) -> None:
    """MalformedInput for options about drawn weights beside a host whose weights are not: they would say nothing.

    A {0,1} construction takes a seed, a law and a number format that are well-formed, so that one command serves a list of
    constructions; a stored host takes none.
    """
    drawn = CONSTRUCTIONS[host].is_random if host in CONSTRUCTIONS else not Path(host).exists()
    checks = {"seed": check_seed, "law": check_law, "dtype": check_dtype} if host in CONSTRUCTIONS else {}
    for name in set(names) & checks.keys():
        if was_given(context, name):
            checks[name](context.params[name])
    given = [f"--{name}" for name in names if name not in checks and was_given(context, name)]
    if given and not drawn:
        them = "it" if len(given) == 1 else "them"
        raise MalformedInput(
            f"{', '.join(given)} would change nothing: the weights of {host} are not drawn; leave {them} out"
        )


def refuse_given(context: typer.Context, why: str, *names: str) -> None:
    """MalformedInput for options that stand on the command line and would say nothing."""
    given = [f"--{name.replace('_', '-')}" for name in names if was_given(context, name)]
    if given:
        raise MalformedInput(f"{', '.join(given)} would change nothing: {why}")


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, whatever its value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def is_host_file(name: str) -> bool:
    """Whether a HOST argument is a file rather than a construction's name."""
    if name in CONSTRUCTIONS:
        return False
    if name.endswith(".safetensors") or Path(name).exists():
        return True
    raise MalformedInput(
        f"{name!r} is neither a construction ({', '.join(CONSTRUCTIONS)}) nor an existing .safetensors file"
    )


def shape_document(shape: Shape, m: int | None = None) -> dict[str, Any]:
    """A shape for --json."""
    document = {name: getattr(shape, name) for name in DIMENSIONS}
    if shape.residual:
        document["residual"] = True
    return document if m is None else {**document, "m": m}
