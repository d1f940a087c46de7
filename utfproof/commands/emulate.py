"""`utfproof emulate`: run targets and hosts side by side and compare their outputs with a bound on rounding."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from utfproof.attention import EVERY_KERNEL, KERNEL_NAMES
from utfproof.cli import options
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import agree_with, drawn_shape, load_host, read_own_embedding
from utfproof.commands.readings import (
    EmbeddingFile,
    Module,
    Positions,
    TargetFile,
    TiedTargets,
    Tokens,
    read,
    target_for,
)
from utfproof.emulation.compare import INPUTS
from utfproof.emulation.engines import ENGINES, PRECISIONS
from utfproof.emulation.laws import TARGET_LAWS
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape, listed, listed_integers
from utfproof.systems import Target
from utfproof.systems.biases import BiasedTarget
from utfproof.util.progress import stage

EXIT_CODES = {True: 0, False: 1, None: 4}
"""By whether outputs agree."""


def emulate(
    *,
    host: Annotated[str, typer.Argument(help="Name of a construction, or HOST.safetensors.")],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    m: options.M = None,
    residual: options.StoredResidual = None,
    target: TargetFile = None,
    embedding: EmbeddingFile = None,
    module: Module = None,
    tokens: Tokens = None,
    positions: Positions = None,
    trials: Annotated[int | None, typer.Option(help="Random targets (default: 1).")] = None,
    tied_targets: TiedTargets = False,
    width: Annotated[int | None, options.rare(help="Width D of random targets (default: d_in).")] = None,
    target_law: Annotated[
        str, options.choice("Law of random targets", TARGET_LAWS, panel=options.ADVANCED)
    ] = "uniform",
    context: Annotated[str, typer.Option(help="Context lengths n, comma-separated.")] = "1,7,64",
    attention: Annotated[
        str, typer.Option(help=f"Comma-separated: {', '.join(KERNEL_NAMES)} joined by '+', given, or all.")
    ] = "softmax,causal",
    tolerance: Annotated[float | None, typer.Option(help="Largest relative error, besides the bound.")] = None,
    inputs: Annotated[str, options.choice("Law of the inputs X", INPUTS, panel=options.ADVANCED)] = "one-hot",
    engine: Annotated[
        str | None,
        options.choice("The host's own by default, index-map is for {0,1} hosts", ENGINES, panel=options.ADVANCED),
    ] = None,
    device: options.Device = "cpu",
    precision: Annotated[
        str, options.choice("Numbers the host runs in", (*PRECISIONS,), panel=options.ADVANCED)
    ] = "float64",
    bounds: Annotated[
        bool, options.rare("--bounds/--no-bounds", help="Compute the bound and the estimate of every run.")
    ] = True,
    seed: options.Seed = 0,
    law: options.Law = "uniform",
    dtype: options.Dtype = "float64",
    max_memory: options.MaxMemory = None,
) -> Outcome:
    """Run targets in a host and compare outputs, within a bound.

    Where the proved bound is 1 or more, the verdict rests on an estimate and says so. Exit 0: every error is within its bound
    or estimate (and the tolerance). 1: some error exceeds it, or the host cannot carry a target. 4: neither is known.

    Example: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --attention rope
    """
    from utfproof.emulation.compare import CompareSetting
    from utfproof.emulation.emulate import emulate as compared

    dimensions = [heads, layers, head_dim, d_in, d_out]
    targets: Target | BiasedTarget | Shape
    if target is None:
        if module is not None or embedding is not None:
            raise MalformedInput("--module and --embedding belong to one target: pass --target as well")
        targets = drawn_shape(host, dimensions, residual, max_memory)
    else:
        if trials is not None or width is not None or tied_targets or target_law != "uniform":
            raise MalformedInput(
                "--trials, --width, --tied-targets and --target-law describe random targets; --target gives one"
            )
        part: dict[str, Any] = {"module": module, "tokens": tokens, "positions": positions}
        model = read(target, dimensions, residual=residual, **part, seed=seed, limit=max_memory)
        targets = target_for(host, model)
        agree_with(targets.shape, dimensions)
    drawn = {"seed": seed, "law": law, "dtype": dtype}
    served = targets if isinstance(targets, Shape) else targets.shape
    machine = load_host(host, served, layers, m, drawn, max_memory)
    E = None if embedding is None else read_own_embedding(embedding, host, machine, drawn, max_memory)
    kernels = list(EVERY_KERNEL) if attention == "all" else listed("--attention", attention)
    contexts, count = listed_integers("--context", context), trials or 1
    with stage(f"emulate {host}", count * len(kernels) * len(contexts), unit="runs") as doing:
        result = compared(
            machine,
            targets,
            embedding=E,
            attention=kernels,
            contexts=contexts,
            trials=count,
            seed=seed,
            target_law=target_law,
            width=width,
            tied_targets=tied_targets,
            tolerance=tolerance,
            setting=CompareSetting(engine, device, precision, inputs, bounds),
            max_memory=max_memory,
            advance=doing.advance,
        )
    document = {
        "host": host,
        **result.document(),
        **({"tied_targets": True} if result.tied and not tied_targets else {}),
        "device": device,
        "dtype": precision,
    }
    return Outcome(document, f"emulate {host}", result.rows(), EXIT_CODES[result.holds])
