"""`utfproof search numerical` and `utfproof search calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.output import emit, emit_table
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.ground.notions import Notion
from utfproof.ground.progress import stage
from utfproof.shapes import positive_integer

EPILOG = "Example: utfproof search numerical -H 2 -L 2 --m 2 --free both --restarts 20 --seed 0 -o run.json"
CALIBRATE_EPILOG = "Example: utfproof search calibrate --quick"
OPEN_EPILOG = "Example: utfproof search open --workers 2 -o results/search-cpu.json"
FREE = {"E": "E", "U": "U", "both": "E and U"}
NOTIONS = {"shared-attention": Notion.SHARED_ATTENTION, "attention-matching": Notion.ATTENTION_MATCHING}

Workers = Annotated[
    int, typer.Option("--workers", help="Processes, one BLAS thread each; 0: in this one, with its threads.")
]


Device = Annotated[
    str, typer.Option("--device", help="cpu, or a torch device such as cuda: restarts and targets in one batch there.")
]
Torch = Annotated[bool, typer.Option("--torch", help="Compute with torch on the CPU too, in place of NumPy.")]


def register(group: typer.Typer) -> None:
    """Add the commands to `utfproof search`."""
    declare.add(group, "numerical", numerical, epilog=EPILOG)
    declare.add(group, "calibrate", calibrate, epilog=CALIBRATE_EPILOG)
    declare.add(group, "open", open_problems, epilog=OPEN_EPILOG)


def _engine(device: str, torch: bool) -> Any:
    from utfproof.search.levenberg import NUMPY, TORCH, Engine

    return Engine(TORCH if torch or device != "cpu" else NUMPY, device)


def numerical(
    heads: options.Heads = None,
    layers: options.Layers = None,
    m: Annotated[int | None, typer.Option("--m", help="Embedding dimension m of the hosts to look for.")] = None,
    d_in: options.DIn = None,
    head_dim: options.HeadDim = None,
    free: Annotated[str, typer.Option("--free", help="What may depend on the target: E, U or both.")] = "both",
    looped: Annotated[bool, typer.Option("--looped", help="Tied hosts for tied targets.")] = False,
    tied_host: Annotated[bool, typer.Option("--tied-host", help="Tied hosts, whatever the targets.")] = False,
    tied_targets: Annotated[bool, typer.Option("--tied-targets", help="Tied targets, whatever the hosts.")] = False,
    restarts: Annotated[int, typer.Option("--restarts", help="Random start points.")] = 20,
    iterations: Annotated[int, typer.Option("--iterations", help="Steps at each ridge, at most.")] = 200,
    targets: Annotated[int | None, typer.Option("--targets", help="Targets solved at once; enough by default.")] = None,
    fresh: Annotated[int, typer.Option("--fresh", help="Fresh targets that a candidate must serve.")] = 12,
    positive: Annotated[
        bool, typer.Option("--positive", help="Targets with positive weights only (d_in = 1).")
    ] = False,
    notion: Annotated[
        str, typer.Option("--notion", help="shared-attention or attention-matching (fixed U, R_Q, R_K; E free).")
    ] = "shared-attention",
    rounding: Annotated[bool, typer.Option("--rounding/--no-rounding", help="Round candidates to exact hosts.")] = True,
    workers: Workers = 1,
    device: Device = "cpu",
    torch: Torch = False,
    repeat: Annotated[Path | None, typer.Option("--repeat", help="Repeat the run logged in RUN.json.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Log of the run to write (.json).")
    ] = None,
    seed: options.Seed = 0,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Look for a host of m dimensions in the shared-attention model, or by attention-matching, numerically, from random starts.

    Exit 0: a host was found and verified exactly. 4: a candidate without exact verification, an approximation, or nothing; that
    nothing was found proves nothing.
    """
    from utfproof.search import log
    from utfproof.search.problem import Problem
    from utfproof.search.restarts import Setting, batches, search
    from utfproof.search.rounding import verify_run
    from utfproof.shapes import Shape

    require_writable(output)
    if repeat is not None:
        if any(value is not None for value in (heads, layers, m, d_in, head_dim)):
            raise MalformedInput("--repeat takes the problem from the log: give no shape and no --m")
        problem, setting = log.read_run(repeat)
    else:
        missing = [name for name, value in (("--heads", heads), ("--layers", layers), ("--m", m)) if value is None]
        if heads is None or layers is None or m is None:
            raise MalformedInput(f"the problem is incomplete: {', '.join(missing)} missing")
        if free not in FREE:
            raise MalformedInput(f"--free {free!r} is unknown; choose {', '.join(FREE)}")
        width = 1 if d_in is None else d_in
        shape = Shape(heads, layers, width if head_dim is None else head_dim, width)
        if notion not in NOTIONS:
            raise MalformedInput(f"--notion {notion!r} is unknown; choose {', '.join(NOTIONS)}")
        if notion == "attention-matching" and free == "both":
            free = "E"  # the default; U is fixed in this notion
        tied = (looped or tied_targets, looped or tied_host)
        problem = Problem(shape, m, FREE[free], *tied, NOTIONS[notion])
        setting = Setting(restarts, iterations, seed, targets, fresh, positive=positive)
    limit, engine = options.memory_limit(max_memory), _engine(device, torch)
    workers = _workers(workers) if device == "cpu" else 0
    groups = -(-setting.restarts // batches(setting.restarts, engine))
    with stage("search", groups, unit="groups of restarts") as doing:
        run = search(problem, setting, workers=workers, engine=engine, max_memory=limit, progress=doing.advance)
    verification, notes = verify_run(run, workers=workers) if rounding else (None, [])
    document = log.run_document(run, verification, notes)
    if output is not None:
        log.write_document(output, document)
    emit(document, f"search numerical: {problem}", _rows(document), as_json=as_json)
    raise typer.Exit(0 if verification is not None else 4)


def _rows(document: dict[str, Any]) -> dict[str, str]:
    from utfproof.search.restarts import OUTCOMES

    best = min(document["restarts"], key=lambda restart: (OUTCOMES.index(restart["outcome"]), restart["path"][-1][1]))
    ridge, residual, largest = best["path"][-1]
    rows = {
        "outcome": document["outcome"] + ("" if document["verification"] else "; proves nothing"),
        "restarts": ", ".join(f"{count} {name}" for name, count in document["counts"].items()),
        "best": f"residual {residual:.2g} at ridge {ridge:g}, largest weight {largest:.3g} (restart {best['number']})",
    }
    if best["fresh"]:
        rows["fresh targets"] = f"residuals {best['fresh'][0]:.2g} to {best['fresh'][-1]:.2g}"
    found = document["verification"]
    if found is not None:
        facts = ", ".join(f"{name} {count}" for name, count in found["facts"].items())
        rows["exact verification"] = f"{found['method']}: {facts}"
        if found["construction"]:
            same = "the host is that one up to changes of coordinates" if found["equivalent"] else "of the same class"
            mirror = ", mirrored" if found["mirrored"] else ""
            rows["certificate"] = f"identity of {found['construction']}{mirror}; {same}"
    for number, note in enumerate(document["notes"]):
        rows[f"note {number + 1}"] = note
    return rows


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Small problems and few restarts.")] = False,
    workers: Workers = 1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Document to write (.json).")
    ] = None,
    seed: options.Seed = 0,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Look from random starts for what is known, and where nothing can be.

    Exit 0: every case came out as known. 1: some did not, so that searches are not to be trusted.
    """
    from utfproof.search import calibration, log

    require_writable(output)
    count = sum(bool(case.quick if quick else case.restarts) for case in calibration.CASES)
    with stage("calibrate", count, unit="cases") as doing:
        found = calibration.calibrate(
            quick=quick,
            seed=seed,
            workers=_workers(workers),
            max_memory=options.memory_limit(max_memory),
            progress=doing.advance,
        )
    document = calibration.calibration_document(found)
    if output is not None:
        log.write_document(output, document)
    header = ["problem", "expected", "outcome", "candidates", "residual", "seconds"]
    lines = [
        [
            _label(entry.case.problem),
            entry.case.expected,
            entry.outcome + ("" if entry.passed else " (FAILS)"),
            f"{entry.run.count('candidate') + entry.run.count('partial')}/{len(entry.run.restarts)}",
            f"{entry.run.best.residual:.1e}",
            f"{entry.seconds:.1f}",
        ]
        for entry in found
    ]
    passed = sum(entry.passed for entry in found)
    title = f"search calibrate: {passed} of {len(found)} cases as known, {document['seconds']:.0f} s"
    emit_table(document, title, header, lines, notes=[], as_json=as_json)
    raise typer.Exit(0 if document["passed"] else 1)


def open_problems(
    workers: Workers = 1,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Document to write (.json).")
    ] = None,
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Calibrate, then set the search a fixed list of open problems with fixed budgets (about ten minutes on two cores).

    Exit 0: some host was found and verified exactly. 4: none was, which proves nothing. 1: the calibration fails.
    """
    from utfproof.search import calibration, log

    require_writable(output)
    count, limit = len(calibration.CASES) + len(calibration.OPEN), options.memory_limit(max_memory)
    with stage("search", count, unit="problems") as doing:
        cases = calibration.calibrate(workers=_workers(workers), max_memory=limit, progress=doing.advance)
        runs = calibration.survey(workers=_workers(workers), max_memory=limit, progress=doing.advance)
    document: dict[str, Any] = {
        "search": "open problems",
        "command": "utfproof search open",
        "machine": log.machine(),
        "calibration": calibration.calibration_document(cases),
        "runs": runs,
    }
    if output is not None:
        log.write_document(output, document)
    lines = []
    for run in runs:
        best = min(restart["path"][-1][1] for restart in run["restarts"])
        given, shape = run["problem"], run["problem"]["shape"]
        at = f"{given['notion']}, ({shape['heads']},{shape['layers']}), d {shape['head_dim']}, d_in {shape['d_in']}, "
        at += f"{given['host']} host, {given['targets']} targets" + ", positive" * run["setting"]["positive"]
        interval = calibration.known(calibration.problem_of(given))
        lines.append([at, interval, str(given["m"]), run["outcome"], str(len(run["restarts"])), f"{best:.1e}"])
    header = ["problem", "least m", "m", "outcome", "restarts", "least residual"]
    emit_table(document, "search open", header, lines, notes=["not found proves nothing"], as_json=as_json)
    if not document["calibration"]["passed"]:
        raise typer.Exit(1)
    raise typer.Exit(0 if any(run["verification"] for run in runs) else 4)


def _label(problem: Any) -> str:
    shape = problem.shape
    at = f"({shape.heads},{shape.layers})" if shape.d_in == 1 else f"({shape.heads},{shape.layers}), d_in {shape.d_in}"
    looped = ", looped" if problem.looped_targets else ""
    asked = problem.free if problem.notion == Notion.SHARED_ATTENTION else problem.notion.value
    return f"{at}, m {problem.m}, {asked}{looped}"


def _workers(count: int) -> int:
    return 0 if count == 0 else positive_integer("--workers", count)
