"""`utfproof bench`: measurements side by side with what a user would otherwise use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import Refuted
from utfproof.ground.files import write_json
from utfproof.ground.plots import picture_format
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import option, written
from utfproof.paper.tables import TABLE_ROWS
from utfproof.shapes import listed_numbers

GROUP = "Measurements side by side with what a user would otherwise use."


@dataclass(frozen=True, kw_only=True)
class BenchExact(Limited, Job, order=220, name="bench exact"):
    """Rank modulo a prime: this engine, FLINT, SymPy, FFLAS-FFPACK, and a float64 product as the yardstick.

    Exit 1 when two of them disagree about a rank.
    """

    examples = "Example: utfproof bench exact --sizes 512,1024,2280 --threads 2 --json"
    sizes: str = option("512,1024,2280", "Matrix sizes n, comma-separated, up to 8192 on a CPU.")
    prime: int | None = option(None, "Odd prime below 2^27; the engine's own by default.")
    device: str = option("cpu", "cpu (NumPy) or cuda (torch).")
    threads: int = option(2, "BLAS threads of every contestant.", kind="parallel")
    repetitions: int = option(5, "Interleaved repetitions.")
    skip: str = option("", "Contestants left out: product, fflas-ffpack, flint, sympy.")
    seed: int = shared("seed")
    output: Path | None = written(None, "Also write the JSON document here.")
    plot: Path | None = written(None, "Speed against size, as .png, .pdf or .svg.")

    def run(self) -> Outcome:
        from utfproof.benchmarks import exact as benchmark
        from utfproof.exact import gfp

        if self.plot is not None:
            picture_format(self.plot)
        setting = benchmark.ExactSetting(
            sizes=tuple(listed_numbers("sizes", self.sizes, int)),
            prime=gfp.DEFAULT_PRIMES[0] if self.prime is None else self.prime,
            device=self.device,
            threads=self.threads,
            repetitions=self.repetitions,
            seed=self.seed,
            skip=tuple(word.strip() for word in self.skip.split(",") if word.strip()),
        )
        document = benchmark.run(setting, self.limit)
        if self.output is not None:
            write_json(self.output, document)
        if self.plot is not None:
            benchmark.plot(document, str(self.plot))
        wrong = [str(entry["n"]) for entry in document["results"] if not entry["agree"]]
        failure = Refuted(f"contestants disagree about the rank at n = {', '.join(wrong)}") if wrong else None
        title = f"rank modulo {setting.prime}, {self.threads} BLAS threads"
        return Outcome(document, title, _rows(document), failure=failure)


@dataclass(frozen=True, kw_only=True)
class BenchCertify(Job, order=221, name="bench certify"):
    """Dense rank certificates end to end: certify and check as whole processes, with and without a witness."""

    examples = "Example: utfproof bench certify --shapes parentheses,1-hop --repetitions 3"
    shapes: str = option("1-hop,parentheses", "Table shapes, comma-separated: parentheses, 1-hop, 2-hop, 4-hop.")
    device: str = option("cpu", "cpu (NumPy), or a torch device such as cuda.")
    repetitions: int = option(3, "Interleaved repetitions.")
    recompute: bool = option(False, "Also check the certificate without a witness (minutes at 4-hop).")
    output: Path | None = written(None, "Also write the JSON document here.", document=True)

    def run(self) -> Outcome:
        from utfproof.benchmarks import certify as benchmark
        from utfproof.ground.arrays import require_device

        if self.device != "cpu":
            require_device(self.device)
        document = benchmark.run(
            _names(self.shapes), device=self.device, repetitions=self.repetitions, recompute=self.recompute
        )
        rows = {
            f"{entry['shape']}, m = {entry['m']}": "; ".join(
                f"{step} {t:.2f} s" for step, t in entry["median_seconds"].items()
            )
            for entry in document["results"]
        }
        return Outcome(document, "dense rank certificates, median of whole processes", rows)


@dataclass(frozen=True, kw_only=True)
class BenchEmulate(Limited, Job, order=222, name="bench emulate"):
    """The price of universality: tokens per second of hosts, dense, as index maps and in path space, beside the target's.

    Exit 1 when a host's output is not the target's.
    """

    examples = "Example: utfproof bench emulate --shapes parentheses,4-hop --context 256 --hosts random,shared-key"
    shapes: str = option("parentheses,4-hop", "Table shapes, comma-separated: parentheses, 1-hop, 2-hop, 4-hop.")
    context: int = option(256, "Context length n.")
    hosts: str | None = option(None, "Constructions, comma-separated; random,sparse,tied,shared-key,shared-query.")
    device: str = option("cpu", "cpu (NumPy) or cuda (torch).")
    precision: str = option("float64", "Numbers of hosts and target: float64, float32, bfloat16.")
    threads: int = option(2, "BLAS threads of every contestant.", kind="parallel")
    repetitions: int = option(5, "Interleaved repetitions.")
    seed: int = shared("seed")
    output: Path | None = written(None, "Also write the JSON document here.")
    plot: Path | None = written(None, "Tokens per second, as .png, .pdf or .svg.")

    def run(self) -> Outcome:
        from utfproof.benchmarks import emulate as benchmark

        if self.plot is not None:
            picture_format(self.plot)
        document = benchmark.run(
            _names(self.shapes),
            context=self.context,
            device=self.device,
            precision=self.precision,
            threads=self.threads,
            repetitions=self.repetitions,
            seed=self.seed,
            hosts=None if self.hosts is None else _names(self.hosts),
            max_memory=self.limit,
        )
        if self.output is not None:
            write_json(self.output, document)
        if self.plot is not None:
            benchmark.plot(document, str(self.plot))
        title = f"forward pass, context {self.context}, {self.precision} on {self.device}, {self.threads} BLAS threads, medians"
        return Outcome(document, title, _emulate_rows(document))


def _emulate_rows(document: dict[str, Any]) -> dict[str, str]:
    names = ("target", "random m-wide")
    rows = {"times": f"over those of {' and of '.join(names)}"}
    for result in document["results"]:
        for entry in result["contestants"]:
            ratios = entry["ratios"]
            times = [f"{ratios[f'time over {name}']:.3g}" for name in names if f"time over {name}" in ratios]
            label = f"{result['shape']}: {entry['name']}" + (f", m = {entry['m']}" if entry["host"] else "")
            rows[label] = f"{entry['tokens_per_second']:,.0f} tokens/s; {', '.join(times)}"
        rows.update({f"{result['shape']}, without {name}": reason for name, reason in result["absent"].items()})
    return rows


@dataclass(frozen=True, kw_only=True)
class BenchTrain(Limited, Job, order=223, name="bench train"):
    """Training steps in path space and m-wide: steps a second and multiplications a step, every task in one run."""

    examples = "Example: utfproof bench train --tasks parentheses,4-hop --repetitions 3 -o results/bench-train-cpu.json"
    tasks: str = option(",".join(TABLE_ROWS), f"Tasks with presets, comma-separated, such as {', '.join(TABLE_ROWS)}.")
    variant: str = option("attention", "attention, residual, residual-norm, mlp or mlp-norm.")
    hosts: str = option("sparse,random", "Hosts, comma-separated; each m-wide and by the engine that auto takes.")
    device: str = option("cpu", "cpu, or a torch device such as cuda.")
    dtype: str = option("float32", "float32, float64 or bfloat16.")
    threads: int = option(2, "Threads of every contestant.", kind="parallel")
    repetitions: int = option(3, "Interleaved repetitions.")
    batch: int | None = option(None, "Sequences a step; the preset's by default.")
    seed: int = shared("seed")
    output: Path | None = written(None, "Also write the JSON document here.", document=True)

    def run(self) -> Outcome:
        from utfproof.ground.arrays import require_device

        require_device(self.device)
        from utfproof.benchmarks import train as benchmark

        setting = benchmark.TrainSetting(
            tasks=_names(self.tasks),
            hosts=_names(self.hosts),
            variant=self.variant,
            device=self.device,
            dtype=self.dtype,
            threads=self.threads,
            repetitions=self.repetitions,
            batch=self.batch,
            seed=self.seed,
            max_memory=self.limit,
        )
        with stage("bench train", len(setting.tasks) * self.repetitions, unit="measurements") as doing:
            document = benchmark.run(setting, doing.advance)
        rows = {
            f"{result['task']}: {entry['name']}, m = {entry['m']}": f"{entry['steps_per_second']:.3g} steps/s, "
            f"{entry['multiplications']:.3g} multiplications a step"
            + "".join(
                f", {entry[f'speed over {other}']:.3g} times {other}"
                for other in dict.fromkeys(("random wide", f"{entry['host']} wide"))
                if f"speed over {other}" in entry
            )
            for result in document["results"]
            for entry in result["contestants"]
        }
        return Outcome(
            document, f"training steps, {self.dtype} on {self.device}, {self.threads} threads, medians", rows
        )


@dataclass(frozen=True, kw_only=True)
class BenchAll(Job, order=224, name="bench all"):
    """Every large piece of work beside its floor or a peer: ratios of processor seconds, measured in pairs in one run.

    Exit 1 when --against has a run whose ratio is passed by more than 30 % in three measurements; only rows that seem slower
    are measured again.
    """

    examples = (
        "Examples: utfproof bench all -o results/bench-all-cpu.json; utfproof bench all --tiny --against results/tiny"
    )
    tiny: bool = option(False, "The smallest sizes, beside no busy processes: under a minute.")
    repetitions: int = option(3, "Pairs; the median counts.")
    against: Path | None = option(
        None, "Folder of --tiny runs on record: the one with this processor's kernel of BLAS, else the slowest of all."
    )
    output: Path | None = written(None, "Also write the JSON document here.", document=True)

    def run(self) -> Outcome:
        from utfproof.benchmarks import ratios as benchmark

        setting = benchmark.RatioSetting(self.tiny, not self.tiny, repetitions=self.repetitions)
        if self.against is None:
            document = benchmark.run(setting)
        else:
            recorded = benchmark.recorded_ratios(self.against, benchmark.kernel())
            document = benchmark.run_against(setting, recorded)
        rows = {
            f"{entry['work']}, {entry['size']}": f"{_ratios(entry['ratios'])} of {entry['beside']}"
            for entry in document["results"]
        }
        rows |= {f"without {name}": reason for name, reason in document["absent"].items()}
        slow = [
            f"{entry['work']}, {entry['size']}: {entry['ratio']:.3g} of {entry['beside']}, on record {entry['recorded']:.3g}"
            for entry in document.get("worse", ())
        ]
        failure = Refuted(f"slower than on record: {'; '.join(slow)}") if slow else None
        return Outcome(document, "processor seconds over those of a floor or a peer, medians", rows, failure=failure)


def _ratios(found: dict[str, float]) -> str:
    return f"{found['alone']:.3g}" + (f" ({found['busy']:.3g} beside busy processes)" if "busy" in found else "")


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _rows(document: dict[str, Any]) -> dict[str, str]:
    rows = {}
    for entry in document["results"]:
        times = [
            f"{name} {1000 * seconds:.3g} ms ({entry['gflops'][name]:.3g} GFLOP/s)"
            for name, seconds in entry["median_seconds"].items()
        ]
        if entry["flint_conversion_seconds"] is not None:
            times.append(f"conversion for flint {1000 * entry['flint_conversion_seconds']:.3g} ms")
        rows[f"n = {entry['n']}"] = "; ".join(times)
        rows[f"ratios at {entry['n']}"] = "; ".join(f"{name} {value:.3g}" for name, value in entry["ratios"].items())
    rows.update({f"BLAS of {name}": text for name, text in document["blas"].items()})
    rows.update({f"without {name}": reason for name, reason in document["absent"].items()})
    return rows
