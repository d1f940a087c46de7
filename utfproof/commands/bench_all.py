"""`utfproof bench`: measurements side by side with what a user would otherwise use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from utfproof.cli.command import command
from utfproof.cli.options import option, written
from utfproof.cli.outcome import Outcome
from utfproof.errors import Refuted

GROUP = "Measurements side by side with what a user would otherwise use."


@command(
    "Examples: utfproof bench all -o results/bench-all-cpu.json; utfproof bench all --tiny --against results/tiny",
    name="bench all",
)
def bench_all(
    *,
    tiny: Annotated[bool, option("The smallest sizes: under a minute.", "--tiny")] = False,
    repetitions: Annotated[int, option("Pairs; the median counts.")] = 3,
    against: Annotated[
        Path | None,
        option(
            "Folder of --tiny runs on record: the one with this processor's kernel of BLAS, else the slowest of all."
        ),
    ] = None,
    output: Annotated[
        Path | None, written("Also write the JSON document here.", "-o", "--output", document=True)
    ] = None,
) -> Outcome:
    """Measure every large piece of work beside a floor or a peer, in pairs.

    Prints ratios of processor seconds.
    Exit 1 when --against has a run whose ratio is passed by more than 30 % in three measurements; only rows that seem slower
    are measured again.
    """
    from utfproof.benchmarks import ratios as benchmark

    setting = benchmark.RatioSetting(tiny, repetitions=repetitions)
    if against is None:
        document = benchmark.run(setting)
    else:
        recorded = benchmark.recorded_ratios(against, benchmark.kernel())
        document = benchmark.run_against(setting, recorded)
    rows = {
        f"{entry['work']}, {entry['size']}": f"{entry['ratios']['alone']:.3g} of {entry['beside']}"
        for entry in document["results"]
    }
    rows |= {f"without {name}": reason for name, reason in document["absent"].items()}
    slow = [
        f"{entry['work']}, {entry['size']}: {entry['ratio']:.3g} of {entry['beside']}, on record {entry['recorded']:.3g}"
        for entry in document.get("worse", ())
    ]
    failure = Refuted(f"slower than on record: {'; '.join(slow)}") if slow else None
    return Outcome(document, "processor seconds over those of a floor or a peer, medians", rows, failure=failure)
