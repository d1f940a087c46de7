"""`utfproof bench`: measurements side by side with what a user would otherwise use."""

from __future__ import annotations

from typing import Annotated

import typer

from utfproof.cli.options import Output
from utfproof.cli.outcome import Outcome
from utfproof.util.files import write_json


def bench_all(
    *,
    tiny: Annotated[bool, typer.Option("--tiny", help="The smallest sizes: under a minute.")] = False,
    repetitions: Annotated[int, typer.Option(help="Pairs; the median counts.")] = 3,
    output: Output = None,
) -> Outcome:
    """Measure every large piece of work beside a floor or a peer, in pairs.

    Prints ratios of processor seconds.

    Examples: utfproof bench all --tiny; utfproof bench all -o results/bench-all-cpu.json
    """
    from utfproof.benchmarks import ratios as benchmark

    document = benchmark.run(benchmark.RatioSetting(tiny, repetitions=repetitions))
    rows = {
        f"{entry['work']}, {entry['size']}": f"{entry['ratios']['alone']:.3g} of {entry['beside']}"
        for entry in document["results"]
    }
    rows |= {f"without {name}": reason for name, reason in document["absent"].items()}
    if output is not None:
        write_json(output, document)
    return Outcome(document, "processor seconds over those of a floor or a peer, medians", rows)
