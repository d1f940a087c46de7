"""`utfproof emulate`: run targets and hosts side by side and compare their outputs with a bound on rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from utfproof.attention import EVERY_KERNEL, KERNEL_NAMES
from utfproof.cli import questions as options
from utfproof.cli.command import command
from utfproof.cli.options import Device, Draw, MaxMemory, ShapeOptions, amount, argument, option
from utfproof.cli.outcome import Outcome
from utfproof.commands.pairs import PairOptions, pair_of
from utfproof.emulation.compare import INPUTS
from utfproof.emulation.engines import ENGINES, PRECISIONS
from utfproof.emulation.laws import TARGET_LAWS
from utfproof.errors import MalformedInput
from utfproof.ground.progress import stage
from utfproof.shapes import listed, listed_integers, positive_integer

EXIT_CODES = {True: 0, False: 1, None: 4}
"""By whether outputs agree."""


@dataclass(frozen=True)
class RunOptions:
    """How targets and hosts run."""

    context: Annotated[str, option("Context lengths n, comma-separated.")] = "1,7,64"
    attention: Annotated[
        str,
        option(f"Kernels: parts {', '.join(KERNEL_NAMES)} joined with '+'; or given (from outside), or all."),
    ] = "softmax,causal"
    tolerance: Annotated[float | None, option("Largest relative error allowed, besides the bound.", check=amount)] = (
        None
    )
    inputs: Annotated[str, option("Law of the inputs X", choices=INPUTS, advanced=True)] = "one-hot"
    engine: Annotated[
        str | None,
        option("The host's own by default, index-map is for {0,1} hosts", choices=ENGINES, advanced=True),
    ] = None
    device: Device = "cpu"
    precision: Annotated[str, option("Numbers the host runs in", choices=tuple(PRECISIONS), advanced=True)] = "float64"
    bounds: Annotated[
        bool, option("Compute the bound and the estimate of every run.", "--bounds/--no-bounds", advanced=True)
    ] = True

    def setting(self) -> Any:
        """As `compare` takes it."""
        from utfproof.emulation.compare import CompareSetting

        return CompareSetting(self.engine, self.device, self.precision, self.inputs, self.bounds)


@command(
    "Example: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --trials 3 --attention softmax,rope",
)
def emulate(
    *,
    host: Annotated[str, argument("Name of a construction, or HOST.safetensors.")],
    shape: ShapeOptions,
    pair: PairOptions,
    trials: Annotated[int, option("Random targets.", check=positive_integer)] = 1,
    target_law: Annotated[str, option("Law of random targets", choices=TARGET_LAWS, advanced=True)] = "uniform",
    run: RunOptions,
    draw: Draw,
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Embed targets into a host and compare outputs, with a bound on rounding.

    Where the proved bound is 1 or more, the verdict rests on an estimate and says so. Exit 0: every error is within its bound
    or estimate (and the tolerance). 1: some error exceeds it, or the host cannot carry a target. 4: neither is known.
    """
    from utfproof.emulation.emulate import emulate as compared

    options.refuse_undrawn(stated, host, "law", "dtype")
    if pair.target is not None and "trials" in stated:
        raise MalformedInput("--trials counts random targets; --target gives one: leave one of them out")
    found = pair_of(host, target_law, shape, pair, draw, max_memory)
    attention, contexts = _kernels("--attention", run.attention), listed_integers("--context", run.context)
    count = trials if pair.target is None else 1
    with stage(f"emulate {host}", count * len(attention) * len(contexts), unit="runs") as doing:
        result = compared(
            found.host,
            found.targets,
            embedding=found.embedding,
            attention=attention,
            contexts=contexts,
            trials=count,
            seed=draw.seed,
            target_law=target_law,
            width=pair.width,
            tied_targets=pair.tied_targets,
            tolerance=run.tolerance,
            setting=run.setting(),
            max_memory=max_memory,
            advance=doing.advance,
        )
    document = {
        "host": host,
        **result.document(),
        **({"tied_targets": True} if result.tied and not pair.tied_targets else {}),
        "device": run.device,
        "dtype": run.precision,
    }
    return Outcome(document, f"emulate {host}", result.rows(), EXIT_CODES[result.holds])


def _kernels(label: str, text: str) -> list[str]:
    return list(EVERY_KERNEL) if text == "all" else listed(label, text)
