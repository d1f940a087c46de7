"""`utfproof enclose`: one emulation, enclosed rigorously, with its certificate if one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.attention import KERNEL_NAMES
from utfproof.cli import options
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import (
    agree_with,
    drawn_shape,
    host_digest,
    is_host_file,
    load_host,
    read_own_embedding,
)
from utfproof.commands.readings import EmbeddingFile, TargetFile
from utfproof.errors import MalformedInput, NotDefined
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget


def enclose(
    *,
    host: Annotated[str, typer.Argument(help="Name of a construction, or HOST.safetensors.")],
    digits: Annotated[int, typer.Option(help="Decimal places N.")] = 30,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Certificate to write (.json).", parser=options.certificate_to_write, metavar="FILE"
        ),
    ] = None,
    context: Annotated[int, typer.Option(help="Context length n.")] = 1,
    attention: Annotated[str, typer.Option(help=f"Kernel: {', '.join(KERNEL_NAMES)} joined with '+'.")] = "softmax",
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.M = None,
    residual: options.StoredResidual = None,
    target: TargetFile = None,
    embedding: EmbeddingFile = None,
    seed: options.Seed = 0,
    law: options.Law = "uniform",
    dtype: options.Dtype = "float64",
    max_memory: options.MaxMemory = None,
) -> Outcome:
    """Enclose the outputs' difference of one emulation rigorously.

    For small shapes. A statement about one target, one E and one input X, not about universality. Exit 0: outputs are equal or
    within 10^-N. 1: they differ by more.

    Example: utfproof enclose tied -H 2 -L 2 -d 2 --d-in 3 --context 3 --digits 30 -o enclosure.json
    """
    from utfproof.attention import SoftmaxAttention, parse_kernel
    from utfproof.certificates.enclosures import attention_name, enclosure_certificate
    from utfproof.emulation import enclosure
    from utfproof.emulation.compare import random_input
    from utfproof.emulation.emulate import drawn_targets, tied_targets_only
    from utfproof.weights import read_target

    dimensions = [heads, layers, head_dim, d_in, d_out]
    targets: Target | BiasedTarget | Shape
    if target is None:
        if embedding is not None:
            raise MalformedInput("--embedding belongs to one target: pass --target as well")
        targets = drawn_shape(host, dimensions, residual, max_memory)
    else:
        targets = read_target(target, layers=layers, residual=residual, max_memory=max_memory)
        agree_with(targets.shape, dimensions)
    if isinstance(targets, BiasedTarget):
        raise MalformedInput("an enclosure is for targets of attention alone; this one has MLPs or biases")
    drawn = {"seed": seed, "law": law, "dtype": dtype}
    served = targets if isinstance(targets, Shape) else targets.shape
    machine = load_host(host, served, layers, m, drawn, max_memory)
    tied = tied_targets_only(machine)
    one = drawn_targets(targets, seed, "uniform", width=None, tied=tied, max_memory=max_memory)(0)
    kernel = parse_kernel(attention, machine.shape.heads, machine.shape.head_dim)
    if not isinstance(kernel, SoftmaxAttention):
        raise MalformedInput(f"an enclosure is for softmax attention, got --attention {attention}")
    enclosure.require_size(machine, one, context, enclosure.first_bits(digits), max_memory)
    name = attention_name(kernel, machine.shape.heads)
    X = random_input(machine.shape, context, seed)
    if embedding is None:
        solved = enclosure.exact_embedding(machine, one, max_memory=max_memory)
        E, method = solved.E, f"exact ({solved.method})"
    else:
        E, method = read_own_embedding(embedding, host, machine, drawn, max_memory), "given"
    found = enclosure.enclose(machine, one, E, X, kernel, digits, max_memory=max_memory)
    files = []
    if output is not None:
        named = named_host(host, machine, drawn, max_memory)
        made = enclosure_certificate(named, machine, one, E, X, kernel, found)
        if bool(made.document["shape"].get("residual")) != machine.shape.residual:
            raise NotDefined(
                f"a certificate of kind enclosure cannot say what stream there is at {machine.shape}; leave -o out"
            )
        files = [str(path) for path in made.write(output)]
    low, high = (decimal(units, found.digits) for units in found.units)
    within = found.verdict == "within"
    document = {
        "verdict": found.verdict,
        "notion": "one emulation",
        "difference": {"at_least": low, "at_most": high},
        "digits": found.digits,
        "precision_bits": found.precision_bits,
        "attention": name,
        "context": context,
        "embedding": method,
        "shape": machine.shape.document(machine.m),
        "files": files,
    }
    rows = {
        "result": f"outputs within 10^-{found.digits}" if within else "outputs DIFFER",
        "max |UTF(X, E) - T(X)|": f"at most {high}" if within else f"between {low} and {high}",
        "shape": f"{machine.shape}, m = {machine.m}",
        "run": f"one target, one input of n = {context}, attention {name}",
        "E": method,
        "arithmetic": f"balls of {found.precision_bits} bits; every rounding is enclosed",
        "means": "a statement about this target, E and X only, not about universality",
        **({"certificate": ", ".join(files)} if files else {}),
    }
    return Outcome(document, f"enclose {host}", rows, 0 if within else 1)


def named_host(argument: str, host: Universal, drawn: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """A certificate's `host` field for a HOST argument: a construction, or a file by the digest of its content."""
    from utfproof.certificates.hosts import host_document, require_rebuilt
    from utfproof.constructions import construction

    if not is_host_file(argument):
        return host_document(require_rebuilt(construction(argument)), **drawn)
    system = "looped-universal" if host.tied else "universal"
    return {"system": system, "weights": host_digest(argument, host.shape.residual, limit)}


def decimal(units: int, digits: int) -> str:
    """units * 10^-digits, to the last digit."""
    whole, part = divmod(units, 10**digits)
    return f"{whole}.{part:0{digits}d}" if units % 10**digits else str(whole)
