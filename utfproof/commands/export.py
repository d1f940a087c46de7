"""`utfproof export`: a host with its embedding for people who do not have this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from utfproof.cli.entry import require_apart
from utfproof.cli.options import MaxMemory, shape_of, written
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import is_host_file, require_made_for, stored_stream
from utfproof.commands.readings import token_ids
from utfproof.errors import MalformedInput
from utfproof.shapes import decimal
from utfproof.systems import Universal

NUMBERS = ("heads", "layers", "head_dim", "d_in", "d_out", "m", "positions", "seed", "vocabulary", "compared_context")
"""Metadata of an embedding that are numbers."""


def export(
    *,
    host: Annotated[str, typer.Argument(help="HOST.safetensors, or the construction that E was found for.")],
    embedding: Annotated[Path, typer.Argument(help="E.safetensors, as written by `utfproof embed`.")],
    output: Annotated[Path, written("File to write (.py); the tensors are written beside it.", "-o", "--output")],
    attention: Annotated[
        str | None,
        typer.Option(help="softmax, scaled, causal, window:W, joined by '+'; the embedding's own, or causal."),
    ] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Write a host with E as a plain torch.nn.Module.

    The module is OUTPUT.py and the tensors beside it, and needs PyTorch and safetensors. The embedding's file says which host
    at which shape it is for.

    Example: utfproof export sparse E.safetensors -o model.py
    """
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.attention import ModelAttention, read_kernel
    from utfproof.models.embedding import CONTEXT, IDS
    from utfproof.models.exporting import require_own, write_module
    from utfproof.weights import read_embedding, read_tensors

    written = [output, output.with_suffix(".safetensors")]
    require_apart({"the tensors' file": written[1]}, {"EMBEDDING": embedding, "HOST": Path(host)})
    require_own(output)
    E = read_embedding(embedding, max_memory=max_memory)
    facts = read_tensors(embedding, max_memory=max_memory).metadata
    numbers, stream = {name: _number(facts, name) for name in NUMBERS}, stored_stream(facts)
    require_made_for(facts, host, bool(stream), max_memory)
    machine = _host(host, facts, numbers, stream, max_memory)
    rows = numbers["positions"] or 0
    ids = np.array(token_ids(facts[IDS])) if IDS in facts else None
    tokens = machine.shape.d_in - rows if ids is None else len(ids)
    if numbers["vocabulary"] not in (None, tokens):
        raise MalformedInput(
            f"the embedding's metadata say vocabulary {facts['vocabulary']} and {rows} positions, which are not the "
            f"{machine.shape.d_in} rows that d_in says"
        )
    seen = facts.get("attention", attention) or "causal"
    if attention not in (None, seen):
        raise MalformedInput(f"--attention {attention} contradicts the embedding, which says {seen}")
    kernel = read_kernel(seen, machine.shape.heads, machine.shape.head_dim, machine.shape.layers)
    if not isinstance(kernel, SoftmaxAttention | ModelAttention):
        raise MalformedInput("matrices from outside cannot be exported; choose softmax, scaled, causal or window:W")
    context = numbers[CONTEXT]
    sizes: dict[str, Any] = {"vocabulary": tokens, "positions": rows, "max_memory": max_memory}
    write_module(output, machine, E, kernel, context=context, ids=ids, **sizes)
    paths = [str(path) for path in written]
    document: dict[str, Any] = {
        "shape": machine.shape.document(machine.m),
        "vocabulary": tokens,
        "positions": rows,
        "files": paths,
    }
    apart = f"and {rows} learned" if ids is None else f"at {rows}"
    longest = f"contexts of at most {context} tokens: the module refuses longer ones"
    table: dict[str, Any] = {
        "shape": f"{machine.shape}, m = {machine.m}",
        "inputs": f"{tokens} tokens" + (f" {apart} positions" if rows else ""),
        **({"compared": longest} if context else {}),
        "files": ", ".join(paths),
    }
    return Outcome(document, f"export {host}", table)


def _number(facts: dict[str, str], name: str) -> int | None:
    """A number of the metadata; None where it is not there."""
    text = facts.get(name)
    number = decimal(text, 20)
    if text is not None and number is None:
        raise MalformedInput(f"the embedding's metadata field {name} is {text[:40]!r}, expected a number")
    return number


def _host(
    host: str, facts: dict[str, str], numbers: dict[str, int | None], stream: bool | None, limit: int | None
) -> Universal:
    """The host of the HOST argument, at the shape that the embedding's metadata say."""
    from utfproof.constructions import build_host, construction
    from utfproof.weights import read_host

    if is_host_file(host):
        return read_host(host, layers=numbers["layers"], d_in=numbers["d_in"], residual=stream, max_memory=limit)
    if numbers["heads"] is None:
        raise MalformedInput("the embedding does not say the shape of its host; write it with utfproof embed")
    shape = shape_of(*(numbers[name] for name in NUMBERS[:5]), residual=stream)
    drawn: dict[str, Any] = {"seed": numbers["seed"] or 0}
    drawn |= {"law": facts.get("law", "uniform"), "dtype": facts.get("dtype", "float64")}
    return build_host(host, construction(host).target_shape(shape), numbers["m"], **drawn, max_memory=limit)
