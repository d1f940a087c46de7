"""`utfproof export`: a host with its embedding for people who do not have this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.attention import EXPORTED_NAMES
from utfproof.cli import questions as options
from utfproof.cli.command import Given, command
from utfproof.cli.options import (
    M,
    MaxMemory,
    ShapeOptions,
    StoredResidual,
    argument,
    option,
    required_shape,
    written,
)
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput
from utfproof.shapes import decimal
from utfproof.systems import Universal


def _said(given: Given, facts: dict[str, str]) -> tuple[dict[str, int | None], dict[str, str | None]]:
    """Numbers and words of the host, from the options or the embedding's metadata."""
    names = ("heads", "layers", "head_dim", "d_in", "d_out", "m", "positions", "seed")
    said = {name: _agreed(facts, name, getattr(given, name)) for name in names}
    return said, {name: _agreed_text(facts, name, getattr(given, name)) for name in ("law", "dtype")}


@command("Example: utfproof export sparse E.safetensors -o model.py")
def export(
    *,
    host: Annotated[str, argument("HOST.safetensors, or the construction that E was found for.")],
    embedding: Annotated[Path, argument("E.safetensors, as written by `utfproof embed`.")],
    output: Annotated[Path, written("File to write (.py); the tensors are written beside it.", "-o", "--output")],
    residual: StoredResidual = None,
    m: M = None,
    positions: Annotated[
        int | None, option("Rows of E, the last ones, that are learned positions.", advanced=True)
    ] = None,
    attention: Annotated[
        str | None, option(f"{', '.join(EXPORTED_NAMES)}, joined by '+'; the embedding's own, or causal.")
    ] = None,
    seed: Annotated[int | None, option("Seed of a random host; the embedding's own.")] = None,
    law: Annotated[str | None, option("Law of a random host; the embedding's own.", advanced=True)] = None,
    dtype: Annotated[str | None, option("Number format of a random host.", advanced=True)] = None,
    shape: ShapeOptions,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Write a host with E as a plain torch.nn.Module.

    The module is OUTPUT.py and the tensors beside it, and needs PyTorch alone. What the embedding's file says about its host is
    used where options are not given, and contradictions are refused.
    """
    given = Given(locals())
    from utfproof.attention import SoftmaxAttention
    from utfproof.models import ModelAttention, read_kernel
    from utfproof.models.comparison import read_limits
    from utfproof.models.embedding import read_ids
    from utfproof.models.exporting import require_own, write_module
    from utfproof.weights import read_embedding, read_tensors

    limit = max_memory
    written = [output, output.with_suffix(".safetensors")]
    for path in written:
        options.require_distinct(path, embedding, Path(host))
    require_own(*written)
    E = read_embedding(embedding, max_memory=limit)
    facts = read_tensors(embedding, max_memory=limit).metadata
    said, words = _said(given, facts)
    stored = options.stored_stream(facts)
    warned = options.require_made_for(facts, host, bool(residual if stored is None else stored), limit)
    machine = _host(host, facts, said, words, residual, limit)
    rows, ids = said["positions"] or 0, read_ids(facts)
    tokens = machine.shape.d_in - rows if ids is None else len(ids)
    if _agreed(facts, "vocabulary", None) not in (None, tokens):
        raise MalformedInput(
            f"the embedding's metadata say vocabulary {facts['vocabulary']} and {rows} positions, which are not the "
            f"{machine.shape.d_in} rows that d_in says"
        )
    seen = _agreed_text(facts, "attention", attention) or "causal"
    kernel = read_kernel(seen, machine.shape.heads, machine.shape.head_dim)
    if not isinstance(kernel, SoftmaxAttention | ModelAttention):
        *most, last = EXPORTED_NAMES
        raise MalformedInput(f"matrices from outside cannot be exported; choose {', '.join(most)} or {last}")
    limits = read_limits(facts, tokens)
    sizes: dict[str, Any] = {"vocabulary": tokens, "positions": rows, "max_memory": limit}
    write_module(output, machine, E, kernel, limits=limits, ids=ids, **sizes)
    paths = [str(path) for path in written]
    document: dict[str, Any] = {
        "shape": machine.shape.document(machine.m),
        "vocabulary": tokens,
        "positions": rows,
        "files": paths,
    }
    apart = f"and {rows} learned" if ids is None else f"at {rows}"
    table: dict[str, Any] = {
        "shape": f"{machine.shape}, m = {machine.m}",
        "inputs": f"{tokens} tokens" + (f" {apart} positions" if rows else ""),
        **(
            {"compared": f"contexts of at most {limits[0]} tokens: the module refuses longer ones"} if limits[0] else {}
        ),
        **options.assumed_rows(facts),
        **warned,
        "files": ", ".join(paths),
    }
    document |= {key: table[key] for key in ("assumed", "warning") if key in table}
    return Outcome(document, f"export {host}", table)


def _agreed(facts: dict[str, str], name: str, value: int | None) -> int | None:
    """An option, else the metadata's number; MalformedInput where they differ."""
    text = facts.get(name)
    if text is None:
        return value
    number = decimal(text, 19)
    if number is None:
        raise MalformedInput(f"the embedding's metadata field {name} is {text[:40]!r}, expected a number")
    if value is not None and value != number:
        raise MalformedInput(f"--{name.replace('_', '-')} {value} contradicts the embedding, which says {text}")
    return number


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
    from utfproof.weights import read_host

    stored = options.stored_stream(facts)
    if stored is not None and residual is not None and stored != residual:
        raise MalformedInput(f"--{'' if residual else 'no-'}residual contradicts the embedding")
    stream = residual if stored is None else stored
    if options.is_host_file(host):
        return read_host(host, layers=said["layers"], d_in=said["d_in"], residual=stream, max_memory=limit)
    shape = required_shape(said, residual=bool(stream))
    if host in CONSTRUCTIONS:
        shape = CONSTRUCTIONS[host].target_shape(shape)
    return build_host(
        host,
        shape,
        said["m"],
        seed=said["seed"] or 0,
        law=words["law"] or "uniform",
        dtype=words["dtype"] or "float64",
        max_memory=limit,
    )
