"""`utfproof export`: a host with its embedding for people who do not have this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable, together
from utfproof.systems import Universal

EPILOG = (
    "Examples: utfproof export sparse E.safetensors -o model.py; "
    "utfproof export host.safetensors E.safetensors --layout transformer-lens -o model.safetensors"
)
OWN_NORM = "own-norm"
LAYOUTS = ("module", "transformer-lens")


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "export", command, epilog=EPILOG)


def command(
    given: typer.Context,
    host: Annotated[
        str, typer.Argument(help="HOST.safetensors, or the construction (or own-norm) that E was found for.")
    ],
    embedding: Annotated[Path, typer.Argument(help="E.safetensors, as written by `utfproof embed`.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", writable=True, help="File to write: .py (module) or .safetensors.")
    ],
    layout: Annotated[str, typer.Option("--layout", help=f"What to write: {', '.join(LAYOUTS)}.")] = "module",
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: options.ResidualFile = None,
    m: options.EmbeddingDimension = None,
    positions: Annotated[
        int | None, typer.Option("--positions", help="Rows of E, the last ones, that are learned positions.")
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            "--attention", help="softmax, scaled, causal, window:W, joined by '+'; the embedding's own, or causal."
        ),
    ] = None,
    context: Annotated[
        int, typer.Option("--context", help="transformer-lens without learned positions: contexts to provide for.")
    ] = 64,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of a random host; the embedding's own.")] = None,
    law: Annotated[str | None, typer.Option("--law", help="Law of a random host; the embedding's own.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Number format of a random host.")] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the host with E as a plain torch.nn.Module, or as TransformerLens-named tensors (hosts with a residual stream).

    A module is OUTPUT.py and the tensors beside it, and needs PyTorch alone. What the embedding's file says about its host
    is used where options are not given, and contradictions are refused.
    """
    from utfproof.attention import SoftmaxAttention
    from utfproof.models import ModelAttention, read_kernel
    from utfproof.models.exporting import require_own, transformer_lens_tensors, write_arrays, write_module
    from utfproof.weights import read_embedding, read_tensors

    if layout not in LAYOUTS:
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(LAYOUTS)}")
    limit = options.memory_limit(max_memory)
    require_writable(output)
    written = [output, output.with_suffix(".safetensors")]
    for path in written:
        options.require_distinct(path, embedding, Path(host))
    require_own(output, *([written[1]] if layout == "module" else []))
    E = read_embedding(embedding, max_memory=limit)
    facts = read_tensors(embedding, max_memory=limit).metadata
    if OWN_NORM in (host, facts.get("host")):
        from utfproof.cli import own_norm

        unused = ("heads", "layers", "head_dim", "d_in", "d_out", "m", "positions", "attention", "seed", "law", "dtype")
        options.refuse_given(given, "own-norm is made of what the embedding's metadata say", *unused)
        if facts.get("host") != host:
            raise MalformedInput(f"this embedding was found for the host {facts.get('host')}, not for {host}")
        own_norm.export(E, facts, output, layout, context, limit, as_json)
        return
    sizes = {"heads": heads, "layers": layers, "head_dim": head_dim, "d_in": d_in, "d_out": d_out, "m": m}
    said = {name: _agreed(facts, name, value) for name, value in sizes.items()}
    said["positions"] = _agreed(facts, "positions", positions)
    said["seed"] = _agreed(facts, "seed", seed)
    words = {"law": _agreed_text(facts, "law", law), "dtype": _agreed_text(facts, "dtype", dtype)}
    machine = _host(host, facts, said, words, residual, limit)
    rows = said["positions"] or 0
    tokens = machine.shape.d_in - rows
    seen = _agreed_text(facts, "attention", attention) or "causal"
    kernel = read_kernel(seen, machine.shape.heads, machine.shape.head_dim)
    if not isinstance(kernel, SoftmaxAttention | ModelAttention):
        raise MalformedInput("matrices from outside cannot be exported; choose softmax, scaled, causal or window:W")
    if layout == "module":
        with together():
            write_module(output, machine, E, kernel, vocabulary=tokens, positions=rows, max_memory=limit)
    else:
        tensors, metadata = transformer_lens_tensors(
            machine, E, kernel, vocabulary=tokens, positions=rows, context=context, max_memory=limit
        )
        write_arrays(output, tensors, metadata)
        written = [output]
    document: dict[str, Any] = {
        "layout": layout,
        "shape": options.shape_document(machine.shape, machine.m),
        "vocabulary": tokens,
        "positions": rows,
        "files": [str(path) for path in written],
    }
    table: dict[str, Any] = {
        "shape": f"{machine.shape}, m = {machine.m}",
        "inputs": f"{tokens} tokens" + (f" and {rows} learned positions" if rows else ""),
        "files": ", ".join(str(path) for path in written),
    }
    if layout != "module":
        document["d_head"] = table["d_head"] = int(metadata["d_head"])
    emit(document, f"export {host}", table, as_json=as_json)


def _agreed(facts: dict[str, str], name: str, value: int | None) -> int | None:
    """An option, else the metadata's number; MalformedInput where they differ."""
    text = facts.get(name)
    if text is None:
        return value
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise MalformedInput(f"the embedding's metadata field {name} is {text[:40]!r}, expected a number")
    if value is not None and value != int(text):
        raise MalformedInput(f"--{name.replace('_', '-')} {value} contradicts the embedding, which says {text}")
    return int(text)


def _agreed_text(facts: dict[str, str], name: str, value: str | None) -> str | None:
    text = facts.get(name)
    if text is not None and value is not None and text != value:
        raise MalformedInput(f"--{name} {value} contradicts the embedding, which says {text}")
    return value if text is None else text


def _host(
    host: str,
    facts: dict[str, str],
    said: dict[str, int | None],
    words: dict[str, str | None],
    residual: bool | None,
    limit: int | None,
) -> Universal:
    """The host of the HOST argument, at the shape that options and the embedding's metadata say."""
    from utfproof.constructions import CONSTRUCTIONS, build_host
    from utfproof.models import grouped_tree_host
    from utfproof.models.embedding import GROUPED
    from utfproof.weights import read_host

    stored = {"true": True, "false": False}.get(facts.get("residual", ""))
    if stored is not None and residual is not None and stored != residual:
        raise MalformedInput(f"--{'' if residual else 'no-'}residual contradicts the embedding")
    stream = residual if stored is None else stored
    made_for = facts.get("host", host)
    if host != made_for and {host, made_for} & {*CONSTRUCTIONS, GROUPED}:
        raise MalformedInput(f"this embedding was found for the host {made_for}, not for {host}")
    if host != GROUPED and options.is_host_file(host):
        return read_host(host, layers=said["layers"], d_in=said["d_in"], residual=stream, max_memory=limit)
    names = ("heads", "layers", "head_dim", "d_in", "d_out")
    heads, layers, head_dim, d_in, d_out = (said[name] for name in names)
    shape = options.required_shape(heads, layers, head_dim, d_in, d_out, bool(stream))
    if host == GROUPED:
        shared = _agreed(facts, "kv_heads", None)
        if shared is None:
            raise MalformedInput("the embedding does not say how many heads share keys (kv_heads)")
        return grouped_tree_host(shape, shared, said["m"])
    return build_host(
        host,
        shape,
        said["m"],
        seed=said["seed"] or 0,
        law=words["law"] or "uniform",
        dtype=words["dtype"] or "float64",
        max_memory=limit,
    )
