"""`utfproof bench`: measurements side by side with what a user would otherwise use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit
from utfproof.errors import MalformedInput, Refuted
from utfproof.ground.files import require_writable, write_bytes
from utfproof.ground.plots import picture_format
from utfproof.ground.progress import stage

EPILOG = "Example: utfproof bench exact --sizes 512,1024,2280 --threads 2 --json"


CERTIFY_EPILOG = "Example: utfproof bench certify --shapes parentheses,1-hop --repetitions 3"


EMULATE_EPILOG = "Example: utfproof bench emulate --shapes parentheses,4-hop --context 256 --hosts random,shared-key"


TRAIN_EPILOG = "Example: utfproof bench train --tasks parentheses,4-hop --repetitions 3 -o results/bench-train-cpu.json"


HELP = "Measurements side by side with what a user would otherwise use."


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = declare.group(app, "bench", HELP)
    declare.add(group, "exact", exact, epilog=EPILOG)
    declare.add(group, "certify", certify, epilog=CERTIFY_EPILOG)
    declare.add(group, "emulate", emulate, epilog=EMULATE_EPILOG)
    declare.add(group, "train", train, epilog=TRAIN_EPILOG)


def exact(
    sizes: Annotated[
        str, typer.Option("--sizes", help="Matrix sizes n, comma-separated, up to 8192.")
    ] = "512,1024,2280",
    prime: Annotated[
        int | None, typer.Option("--prime", help="Odd prime below 2^27; the engine's own by default.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy) or cuda (torch).")] = "cpu",
    threads: Annotated[int, typer.Option("--threads", help="BLAS threads of every contestant.")] = 2,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Interleaved repetitions.")] = 5,
    skip: Annotated[
        str, typer.Option("--skip", help="Contestants left out: product, fflas-ffpack, flint, sympy.")
    ] = "",
    seed: options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Also write the JSON document here.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", writable=True, help="Speed against size, as .png, .pdf or .svg.")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Rank modulo a prime: this engine, FLINT, SymPy, FFLAS-FFPACK, and a float64 product as the yardstick.

    Exit 1 when two of them disagree about a rank.
    """
    from utfproof.benchmarks import exact as benchmark
    from utfproof.exact import gfp

    _require_places(output, plot)
    setting = benchmark.Setting(
        sizes=tuple(_numbers(sizes)),
        prime=gfp.DEFAULT_PRIMES[0] if prime is None else prime,
        device=device,
        threads=threads,
        repetitions=repetitions,
        seed=seed,
        skip=tuple(word.strip() for word in skip.split(",") if word.strip()),
    )
    document = benchmark.run(setting, options.memory_limit(max_memory))
    _write(output, document)
    if plot is not None:
        benchmark.plot(document, str(plot))
    emit(document, f"rank modulo {setting.prime}, {threads} BLAS threads", _rows(document), as_json=as_json)
    wrong = [str(entry["n"]) for entry in document["results"] if not entry["agree"]]
    if wrong:
        raise Refuted(f"contestants disagree about the rank at n = {', '.join(wrong)}")


def certify(
    shapes: Annotated[
        str, typer.Option("--shapes", help="Table shapes, comma-separated: parentheses, 1-hop, 2-hop, 4-hop.")
    ] = "1-hop,parentheses",
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy), or a torch device such as cuda.")] = "cpu",
    repetitions: Annotated[int, typer.Option("--repetitions", help="Interleaved repetitions.")] = 3,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Also check the certificate without a witness (minutes at 4-hop).")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Also write the JSON document here.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Dense rank certificates end to end: certify and check as whole processes, with and without a witness."""
    from utfproof.benchmarks import certify as benchmark
    from utfproof.ground.arrays import require_device

    _require_places(output, None)
    if device != "cpu":
        require_device(device)
    document = benchmark.run(_names(shapes), device=device, repetitions=repetitions, recompute=recompute)
    _write(output, document)
    rows = {
        f"{entry['shape']}, m = {entry['m']}": "; ".join(
            f"{step} {t:.2f} s" for step, t in entry["median_seconds"].items()
        )
        for entry in document["results"]
    }
    emit(document, "dense rank certificates, median of whole processes", rows, as_json=as_json)


def emulate(
    shapes: Annotated[
        str, typer.Option("--shapes", help="Table shapes, comma-separated: parentheses, 1-hop, 2-hop, 4-hop.")
    ] = "parentheses,4-hop",
    context: Annotated[int, typer.Option("--context", help="Context length n.")] = 256,
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", help="Constructions, comma-separated; random,sparse,tied,shared-key,shared-query."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy) or cuda (torch).")] = "cpu",
    precision: Annotated[
        str, typer.Option("--precision", help="Numbers of hosts and target: float64, float32, bfloat16.")
    ] = "float64",
    threads: Annotated[int, typer.Option("--threads", help="BLAS threads of every contestant.")] = 2,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Interleaved repetitions.")] = 5,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Also write the JSON document here.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", writable=True, help="Tokens per second, as .png, .pdf or .svg.")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """The price of universality: tokens per second of hosts, dense, as index maps and in path space, beside the target's.

    Exit 1 when a host's output is not the target's.
    """
    from utfproof.benchmarks import emulate as benchmark

    _require_places(output, plot)
    document = benchmark.run(
        _names(shapes),
        context=context,
        device=device,
        precision=precision,
        threads=threads,
        repetitions=repetitions,
        seed=seed,
        hosts=None if hosts is None else _names(hosts),
        max_memory=options.memory_limit(max_memory),
    )
    _write(output, document)
    if plot is not None:
        benchmark.plot(document, str(plot))
    title = f"forward pass, context {context}, {precision} on {device}, {threads} BLAS threads, medians"
    emit(document, title, _emulate_rows(document), as_json=as_json)


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


def train(
    tasks: Annotated[
        str, typer.Option("--tasks", help="Tasks, comma-separated: parentheses, 1-hop, 2-hop, 3-hop, 4-hop.")
    ] = "parentheses,1-hop,2-hop,3-hop,4-hop",
    hosts: Annotated[
        str, typer.Option("--hosts", help="Hosts, comma-separated; each in path space and m-wide.")
    ] = "sparse,random",
    variant: Annotated[str, typer.Option("--variant", help="attention, residual or residual-norm.")] = "attention",
    device: Annotated[str, typer.Option("--device", help="cpu, or a torch device such as cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, float64 or bfloat16.")] = "float32",
    threads: Annotated[int, typer.Option("--threads", help="Threads of every contestant.")] = 2,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Interleaved repetitions.")] = 3,
    batch: Annotated[int | None, typer.Option("--batch", help="Sequences a step; the preset's by default.")] = None,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Also write the JSON document here.")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Training steps in path space and m-wide: steps a second and multiplications a step, every task in one run."""
    from utfproof.ground.arrays import require_device

    require_device(device)
    from utfproof.benchmarks import train as benchmark

    _require_places(output, None)
    setting = benchmark.Setting(
        tasks=_names(tasks),
        hosts=_names(hosts),
        variant=variant,
        device=device,
        dtype=dtype,
        threads=threads,
        repetitions=repetitions,
        batch=batch,
        seed=seed,
        max_memory=options.memory_limit(max_memory),
    )
    with stage("bench train", len(setting.tasks) * repetitions, unit="measurements") as doing:
        document = benchmark.run(setting, doing.advance)
    _write(output, document)
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
    emit(document, f"training steps, {dtype} on {device}, {threads} threads, medians", rows, as_json=as_json)


def _require_places(output: Path | None, plot: Path | None) -> None:
    """MalformedInput before anything is measured that could not be written."""
    require_writable(output, plot)
    if plot is not None:
        picture_format(plot)


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _write(output: Path | None, document: dict[str, Any]) -> None:
    """The document as a data file, all or nothing."""
    if output is not None:
        write_bytes(output, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise MalformedInput(f"sizes {text!r} are not comma-separated integers") from None


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
