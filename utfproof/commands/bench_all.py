"""`utfproof bench`: measurements side by side with what a user would otherwise use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from utfproof.cli.command import command
from utfproof.cli.options import option, written
from utfproof.cli.outcome import Outcome

GROUP = "Measurements side by side with what a user would otherwise use."


@command(
    "Examples: utfproof bench all --tiny; utfproof bench all -o results/bench-all-cpu.json",
    name="bench all",
)
def bench_all(
    *,
    tiny: Annotated[bool, option("The smallest sizes: under a minute.", "--tiny")] = False,
    repetitions: Annotated[int, option("Pairs; the median counts.")] = 3,
    output: Annotated[
        Path | None, written("Also write the JSON document here.", "-o", "--output", document=True)
    ] = None,
) -> Outcome:
    """Measure every large piece of work beside a floor or a peer, in pairs.

    Prints ratios of processor seconds.
    """
    from utfproof.benchmarks import ratios as benchmark

    document = benchmark.run(benchmark.RatioSetting(tiny, repetitions=repetitions))
    rows = {
        f"{entry['work']}, {entry['size']}": f"{entry['ratios']['alone']:.3g} of {entry['beside']}"
        for entry in document["results"]
    }
    rows |= {f"without {name}": reason for name, reason in document["absent"].items()}
    return Outcome(document, "processor seconds over those of a floor or a peer, medians", rows)
