"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.generator import DTYPES, LAWS, check_dtype, check_law, check_seed
from utfproof.resources import parse_bytes
from utfproof.shapes import Shape

Heads = Annotated[int | None, typer.Option("--heads", "-H", help="Heads H per layer.", metavar="H")]
Layers = Annotated[int | None, typer.Option("--layers", "-L", help="Layers L.", metavar="L")]
HeadDim = Annotated[int | None, typer.Option("--head-dim", "-d", help="Head dimension d.", metavar="d")]
DIn = Annotated[int | None, typer.Option("--d-in", help="Input dimension d_in (vocabulary size for one-hots).")]
DOut = Annotated[int | None, typer.Option("--d-out", help="Output dimension; d_in unless said otherwise.")]
Residual = Annotated[
    bool,
    typer.Option("--residual", help="With a residual stream: X^l = X^(l-1) + sum over heads, in hosts and targets."),
]
ResidualFile = Annotated[
    bool | None,
    typer.Option(
        "--residual/--no-residual",
        help="Whether weights have a residual stream, where their metadata does not say it; none by default.",
    ),
]
EmbeddingDimension = Annotated[
    int | None,
    typer.Option("--m", help="Embedding dimension m; the construction's own unless said otherwise."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of random weights, 0 ... 2^64-1.")]
LawName = Annotated[str, typer.Option("--law", help=f"Law of random weights: {', '.join(LAWS)}.")]
DtypeName = Annotated[str, typer.Option("--dtype", help=f"Number format of random weights: {', '.join(DTYPES)}.")]
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
    given = {"--heads": heads, "--layers": layers, "--head-dim": head_dim, "--d-in": d_in}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise MalformedInput(
            f"the shape is incomplete: {', '.join(missing)} missing (all of {', '.join(given)} are needed)"
        )
    H, L, d, width = (value for value in given.values() if value is not None)
    return Shape(H, L, d, width, d_out, residual=residual)


def agree_with(shape: Shape, **given: int | None) -> None:
    """MalformedInput when an option contradicts a file's shape."""
    for name, value in given.items():
        if value is not None and value != getattr(shape, name):
            option = "--" + name.replace("_", "-")
            raise MalformedInput(f"{option} {value} contradicts the file, which has {name} = {getattr(shape, name)}")


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
    document = {name: getattr(shape, name) for name in ("heads", "layers", "head_dim", "d_in", "d_out")}
    if shape.residual:
        document["residual"] = True
    return document if m is None else {**document, "m": m}
