"""`utfproof embed`: the embedding E under which a host acts as a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.output import emit
from utfproof.systems import Target, Universal

EPILOG = (
    "Examples: utfproof embed sparse target.safetensors -o E.safetensors; "
    "utfproof embed host.safetensors target.safetensors -o E.safetensors"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("embed", epilog=EPILOG)(command)


def load_host(
    host: str,
    target: Target,
    *,
    layers: int | None,
    m: int | None,
    seed: int,
    law: str,
    dtype: str,
    limit: int | None,
) -> Universal:
    """The host that a HOST argument means: a file's, or a construction at the target's shape."""
    from utfproof.constructions import build_host
    from utfproof.weights import read_host

    if options.is_host_file(host):
        stream = True if target.shape.residual else None  # a host's own metadata may still say otherwise
        found = read_host(host, layers=layers, d_in=target.shape.d_in, residual=stream, max_memory=limit)
        if m is not None and m != found.m:
            from utfproof.errors import MalformedInput

            raise MalformedInput(f"--m {m} contradicts {host}, which has m = {found.m}")
        return found
    return build_host(host, target.shape, m, seed=seed, law=law, dtype=dtype, max_memory=limit)


def command(
    host: Annotated[str, typer.Argument(help="HOST.safetensors, or the name of a construction.")],
    target: Annotated[Path, typer.Argument(help="TARGET.safetensors with W_Q, W_K, W_V, W_O (W_E, W_U).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Embedding to write (.safetensors).")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: options.ResidualFile = None,
    m: options.EmbeddingDimension = None,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Find E such that the host with E acts as the target, and say by which notion.

    The shape is the target's; shape options are only checked against it (--layers is needed where tied weights do not
    say how often they are used). A construction is never written out, so a sparse host of millions of dimensions will do.
    Exit 1 when this host cannot carry this target, with rank and residual.
    """
    from utfproof.matching import embed
    from utfproof.weights import read_target, write_embedding

    limit = options.memory_limit(max_memory)
    options.require_distinct(output, target, Path(host))
    model = read_target(target, layers=layers, residual=residual, max_memory=limit)
    options.agree_with(model.shape, heads=heads, layers=layers, head_dim=head_dim, d_in=d_in, d_out=d_out)
    machine = load_host(host, model, layers=layers, m=m, seed=seed, law=law, dtype=dtype, limit=limit)
    found = embed(machine, model, max_memory=limit)
    write_embedding(output, found.E, {"notion": found.notion.value, "host": Path(host).name})
    document: dict[str, Any] = {
        "notion": found.notion.value,
        "method": found.method,
        "rank": found.rank,
        "columns": found.columns,
        "condition": found.condition,
        "residual": found.residual,
        "shape": options.shape_document(model.shape, machine.m),
        "file": str(output),
    }
    rows = {
        "result": f"the host acts as the target, by {found.notion.value}",
        "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
        "method": found.method,
        **({"rank R_all": f"{found.rank} of M = {found.columns}"} if found.rank is not None else {}),
        **({"condition": f"{found.condition:.3g}"} if found.condition is not None else {}),
        **({"residual": f"{found.residual:.3g}"} if found.residual is not None else {}),
        "embedding": str(output),
    }
    emit(document, f"embed {host}", rows, as_json=as_json)
