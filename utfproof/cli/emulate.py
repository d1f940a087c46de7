"""`utfproof emulate`: run targets and a host side by side and compare their outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import options
from utfproof.cli.embed import load_host
from utfproof.cli.output import emit, progress
from utfproof.errors import MalformedInput
from utfproof.shapes import positive_integer

EPILOG = (
    "Example: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --trials 3 --context 1,7,64 "
    "--attention softmax,causal,scaled+alibi+window:8,rope"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("emulate", epilog=EPILOG)(command)


def command(
    host: Annotated[str, typer.Argument(help="Name of a construction, or HOST.safetensors.")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.EmbeddingDimension = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="TARGET.safetensors in place of random targets.")
    ] = None,
    embedding: Annotated[
        Path | None,
        typer.Option("--embedding", help="E.safetensors to run instead of solving for E (needs --target)."),
    ] = None,
    width: Annotated[int | None, typer.Option("--width", help="Width D of random targets; d_in by default.")] = None,
    tied_targets: Annotated[bool, typer.Option("--tied-targets", help="Random targets are weight-tied.")] = False,
    trials: Annotated[int, typer.Option("--trials", help="Random targets.")] = 1,
    context: Annotated[str, typer.Option("--context", help="Context lengths n, comma-separated.")] = "1,7,64",
    attention: Annotated[
        str,
        typer.Option(
            "--attention",
            help="Kernels, comma-separated; each joins softmax, scaled, causal, window:W, alibi, rope with '+'.",
        ),
    ] = "softmax,causal",
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy), or a torch device such as cuda.")] = "cpu",
    tolerance: Annotated[float, typer.Option("--tolerance", help="Largest relative error allowed.")] = 1e-9,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Embed targets into the host and compare outputs in float64, for every kernel and context length.

    Exit 0: every relative error is within the tolerance. 1: some is not, or the host cannot carry a target.
    """
    from utfproof.attention import parse_kernel
    from utfproof.constructions import random_target
    from utfproof.emulation.compare import compare
    from utfproof.weights import read_embedding, read_target

    limit = options.memory_limit(max_memory)
    positive_integer("--trials", trials)
    if not tolerance > 0:
        raise MalformedInput(f"--tolerance must be positive, got {tolerance}")
    if target is not None:
        if width is not None or tied_targets:
            raise MalformedInput("--width and --tied-targets describe random targets; --target gives one")
        model = read_target(target, layers=layers, max_memory=limit)
        options.agree_with(model.shape, heads=heads, layers=layers, head_dim=head_dim, d_in=d_in, d_out=d_out)
        trials = 1
    else:
        if embedding is not None:
            raise MalformedInput("--embedding belongs to one target: pass --target as well")
        shape = options.required_shape(heads, layers, head_dim, d_in, d_out)
        model = random_target(shape, seed, width=width, tied=tied_targets, max_memory=limit)
    shape = model.shape
    machine = load_host(host, model, layers=layers, m=m, seed=seed, law=law, dtype=dtype, limit=limit)
    kernels = [(name, parse_kernel(name, shape.heads, shape.head_dim)) for name in _items("--attention", attention)]
    contexts = [_length(text) for text in _items("--context", context)]

    def nth(trial: int) -> Any:
        return (
            model
            if trial == 0
            else random_target(shape, seed + trial, width=width, tied=tied_targets, max_memory=limit)
        )

    total = trials * len(kernels) * len(contexts)
    with progress(f"emulate {host}", total, enabled=not as_json) as advance:
        report = compare(
            machine,
            nth,
            kernels,
            contexts,
            trials=trials,
            seed=seed,
            device=device,
            tolerance=tolerance,
            embedding=None if embedding is None else read_embedding(embedding, max_memory=limit),
            max_memory=limit,
            progress=advance,
        )
    worst = max(report.comparisons, key=lambda c: (c.relative_error != c.relative_error, c.relative_error))
    rows = {
        "result": ("outputs agree" if report.holds else "outputs DIFFER") + f" ({report.notion.value})",
        "shape": f"{shape}, target width {model.width}, m = {machine.m}",
        "runs": f"{trials} target{'s' * (trials != 1)}, contexts {contexts}, attention {[k for k, _ in kernels]}",
        "max relative error": f"{report.max_relative_error:.3g} (n = {worst.context}, {worst.attention}); "
        f"tolerance {tolerance:g}",
        **({"condition": f"{report.condition:.3g}"} if report.condition is not None else {}),
    }
    document = {
        **report.document(),
        "shape": options.shape_document(shape, machine.m),
        "device": device,
        "dtype": "float64",
    }
    emit(document, f"emulate {host}", rows, as_json=as_json)
    raise typer.Exit(0 if report.holds else 1)


def _items(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise MalformedInput(f"{option} {text!r} has an empty item; separate values by single commas")
    return items


def _length(text: str) -> int:
    if not text.isdecimal():
        raise MalformedInput(f"--context holds {text!r}, expected positive integers separated by commas")
    return positive_integer("--context", int(text))
