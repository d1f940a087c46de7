"""`utfproof emulate`: run targets and hosts side by side and compare their outputs with the a priori bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli import declare, options
from utfproof.cli.embed import load_host
from utfproof.cli.output import emit, emit_table
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.ground.files import require_writable
from utfproof.ground.progress import stage
from utfproof.shapes import PAPER_TABLE_SHAPES, Shape, listed, listed_integers, positive_integer

if TYPE_CHECKING:
    from utfproof.emulation.compare import EmulationReport
    from utfproof.emulation.sweep import Outcome, Plan

EPILOG = (
    "Examples: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --trials 3 --context 1,7,64 "
    "--attention softmax,causal,scaled+alibi+window:8,rope; "
    "utfproof emulate sparse,tied,random --shapes parentheses,1-hop --attention all --target-law uniform,graded; "
    "utfproof emulate tied -H 2 -L 2 -d 2 --d-in 3 --digits 30 -o enclosure.json"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    declare.add(app, "emulate", command, epilog=EPILOG)


def command(
    given: typer.Context,
    host: Annotated[
        str, typer.Argument(help="Name of a construction (several, comma-separated), or HOST.safetensors.")
    ],
    heads: options.Heads = None,
    layers: options.Layers = None,
    head_dim: options.HeadDim = None,
    d_in: options.DIn = None,
    d_out: options.DOut = None,
    residual: Annotated[
        bool | None,
        typer.Option(
            "--residual/--no-residual",
            help="With a residual stream, in hosts and targets; what a file's metadata says comes first, none by default.",
        ),
    ] = None,
    m: options.EmbeddingDimension = None,
    shapes: Annotated[
        str | None,
        typer.Option("--shapes", help=f"Table shapes in place of a shape: {', '.join(PAPER_TABLE_SHAPES)}, or all."),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="TARGET.safetensors in place of random targets.")
    ] = None,
    embedding: Annotated[
        Path | None,
        typer.Option("--embedding", help="E.safetensors to run instead of solving for E (needs --target)."),
    ] = None,
    width: Annotated[int | None, typer.Option("--width", help="Width D of random targets; d_in by default.")] = None,
    tied_targets: Annotated[bool, typer.Option("--tied-targets", help="Random targets are weight-tied.")] = False,
    target_law: Annotated[
        str,
        typer.Option(
            "--target-law",
            help="Laws of random targets, comma-separated, or all: uniform, binomial, signs, graded, sharp, rank-one, "
            "dead-heads.",
        ),
    ] = "uniform",
    trials: Annotated[int, typer.Option("--trials", help="Random targets of each law.")] = 1,
    context: Annotated[str, typer.Option("--context", help="Context lengths n, comma-separated.")] = "1,7,64",
    attention: Annotated[
        str,
        typer.Option(
            "--attention",
            help="Kernels, comma-separated; each joins softmax, scaled, causal, window:W, alibi, rope with '+'; "
            "given: matrices from outside; all: one of each.",
        ),
    ] = "softmax,causal",
    inputs: Annotated[
        str, typer.Option("--inputs", help="Law of the inputs X: one-hot tokens, or uniform.")
    ] = "one-hot",
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="m-wide, index-map ({0,1} hosts) or path-space; the host's own by default."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu (NumPy), or a torch device such as cuda.")] = "cpu",
    precision: Annotated[
        str, typer.Option("--precision", help="Numbers the host runs in: float64, float32, bfloat16.")
    ] = "float64",
    batch: Annotated[int, typer.Option("--batch", help="Targets run together.")] = 1,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Queries attended at a time; as many as fit 2^22 logits by default.")
    ] = None,
    bounds: Annotated[
        bool, typer.Option("--bounds/--no-bounds", help="Compute the a priori bound of every run.")
    ] = True,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Largest relative error allowed, besides the bound.")
    ] = None,
    digits: Annotated[
        int | None,
        typer.Option("--digits", help="Enclose one emulation rigorously to so many decimal places (small shapes)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", writable=True, help="Certificate of --digits to write (.json).")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", writable=True, help="random, random-tied: plot the error against m/M and L (.png, .pdf, .svg)."
        ),
    ] = None,
    seed: options.Seed = 0,
    law: options.LawName = "uniform",
    dtype: options.DtypeName = "float64",
    max_memory: options.MaxMemory = None,
    as_json: options.AsJson = False,
) -> None:
    """Embed targets into hosts and compare outputs, for every kernel and context length, with an a priori bound.

    Exit 0: every relative error is within its bound (and the tolerance). 1: some is not, or a host cannot carry a target.
    """
    from utfproof.emulation.compare import INPUTS, Setting
    from utfproof.emulation.laws import TARGET_LAWS, check_target_law
    from utfproof.emulation.sweep import Plan

    require_writable(output, plot)
    positive_integer("--trials", trials)
    positive_integer("--batch", batch)
    if rows is not None:
        positive_integer("--rows", rows)
    if tolerance is not None and not tolerance > 0:
        raise MalformedInput(f"--tolerance must be positive, got {tolerance}")
    if inputs not in INPUTS:
        raise MalformedInput(f"--inputs {inputs!r} is unknown; choose {', '.join(INPUTS)}")
    plan = Plan(
        _kernels(attention),
        listed_integers("--context", context),
        trials,
        seed,
        m,
        law,
        dtype,
        width,
        tied_targets,
        tolerance,
        Setting(engine, device, precision, inputs, batch, bounds, rows),
        options.memory_limit(max_memory),
    )
    laws = [
        check_target_law(name) for name in (TARGET_LAWS if target_law == "all" else listed("--target-law", target_law))
    ]
    hosts = listed("HOST", host)
    if len(hosts) == 1:
        options.refuse_undrawn(given, host, "law", "dtype")
    if target is not None and options.was_given(given, "trials"):
        raise MalformedInput("--trials counts random targets; --target gives one: leave one of them out")
    dimensions = (heads, layers, head_dim, d_in, d_out)
    if shapes is not None and any(value is not None for value in dimensions):
        raise MalformedInput("--shapes names table shapes; it cannot be combined with --heads, --layers and the others")
    if plot is not None:
        if any(given is not None for given in (target, embedding, digits, output, shapes)):
            raise MalformedInput(
                "--plot draws random targets: leave out --target, --embedding, --digits, -o and --shapes"
            )
        _slack(hosts, dimensions, plan, plot, as_json, residual=bool(residual))
    if shapes is None and len(hosts) == 1 and len(laws) == 1:
        _single(hosts[0], dimensions, residual, plan, laws[0], target, embedding, digits, output, as_json)
    if target is not None or embedding is not None or digits is not None:
        raise MalformedInput("--target, --embedding and --digits are about one host and one shape")
    if output is not None:
        raise MalformedInput("-o writes the certificate of --digits N; use --json for the figures of a run")
    stream = bool(residual)
    where = (
        _table_shapes(shapes, stream) if shapes is not None else [options.required_shape(*dimensions, residual=stream)]
    )
    _sweep(where, hosts, laws, plan, as_json)


def _single(
    host: str,
    dimensions: tuple[int | None, ...],
    residual: bool | None,
    plan: Plan,
    target_law: str,
    target: Path | None,
    embedding: Path | None,
    digits: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """One host, targets of one law or one from a file."""
    from utfproof.emulation.compare import compare
    from utfproof.emulation.laws import draw_target
    from utfproof.emulation.sweep import served, tied_targets_only
    from utfproof.weights import host_shape, read_embedding, read_target, read_tensors

    heads, layers, head_dim, d_in, d_out = dimensions
    limit, trials = plan.max_memory, plan.trials
    if target is not None:
        if plan.width is not None or plan.tied_targets or target_law != "uniform":
            raise MalformedInput("--width, --tied-targets and --target-law describe random targets; --target gives one")
        model = read_target(target, layers=layers, residual=residual, max_memory=limit)
        options.agree_with(model.shape, heads=heads, layers=layers, head_dim=head_dim, d_in=d_in, d_out=d_out)
        trials = 1
    else:
        if embedding is not None:
            raise MalformedInput("--embedding belongs to one target: pass --target as well")
        stream = bool(residual)
        if options.is_host_file(host):
            file = read_tensors(host, max_memory=limit)
            stream = host_shape(file, layers=layers, d_in=d_in, residual=residual)[0].residual
        shape = options.required_shape(heads, layers, head_dim, d_in, d_out, stream)
        model = draw_target(shape, plan.seed, target_law, width=plan.width, tied=plan.tied_targets, max_memory=limit)
    shape = model.shape
    machine = load_host(
        host, model, layers=layers, m=plan.m, seed=plan.seed, law=plan.law, dtype=plan.dtype, limit=limit
    )
    tied = plan.tied_targets
    if target is None and not tied and tied_targets_only(machine):
        tied = True
        model = draw_target(shape, plan.seed, target_law, width=plan.width, tied=True, max_memory=limit)
    given = None if embedding is None else read_embedding(embedding, max_memory=limit)
    if digits is not None:
        _enclose(host, machine, model, plan, digits, output, given, as_json)
    if output is not None:
        raise MalformedInput("-o writes the certificate of --digits N; use --json for the figures of a run")
    kernels, left_out = served(machine, plan.attention)
    if left_out:
        name, reason = left_out[0]
        hint = "; use a host that is universal by matching (sparse, tied, random)" if "logits only" in reason else ""
        raise MalformedInput(f"attention {name!r}: {reason}{hint}")

    def nth(trial: int) -> Any:
        if trial == 0:
            return model
        return draw_target(shape, plan.seed + trial, target_law, width=plan.width, tied=tied, max_memory=limit)

    total = trials * len(kernels) * len(plan.contexts)
    with stage(f"emulate {host}", total, unit="runs") as doing:
        report = compare(
            machine,
            nth,
            kernels,
            plan.contexts,
            trials=trials,
            seed=plan.seed,
            setting=plan.setting,
            tolerance=plan.tolerance,
            embedding=given,
            max_memory=limit,
            progress=doing.advance,
        )
    rows = {
        "result": _verdict(report),
        "shape": f"{shape}, target width {model.width}, m = {machine.m}",
        "runs": f"{trials} {'tied ' * tied}target{'s' * (trials != 1)}, contexts {list(plan.contexts)}, "
        f"attention {[k for k, _ in kernels]}",
        **_figures(report),
    }
    document = {
        "host": host,
        **report.document(),
        "shape": options.shape_document(shape, machine.m),
        **({"tied_targets": True} if tied and not plan.tied_targets else {}),
        "device": plan.setting.device,
        "dtype": plan.setting.precision,
    }
    emit(document, f"emulate {host}", rows, as_json=as_json)
    raise typer.Exit(0 if report.holds else 1)


def _verdict(report: EmulationReport) -> str:
    if report.unsolved is not None and report.tolerance is None:
        return f"E does not solve the equations: {report.unsolved}"
    if report.holds:
        return f"outputs agree ({report.notion.value})"
    return f"outputs DIFFER ({report.notion.value}): {len(report.broken)} of {len(report.comparisons)} runs"


def _figures(report: EmulationReport) -> dict[str, str]:
    """The rows that say how far host and target are apart, and why."""
    shown = report.broken or report.comparisons
    worst = max(shown, key=lambda c: (c.relative_error != c.relative_error, c.relative_error))
    limit = "" if report.tolerance is None else f"; tolerance {report.tolerance:g}"
    rows = {
        "max relative error": f"{report.max_relative_error:.3g} (n = {worst.context}, {worst.attention}{limit})",
        "quantiles": ", ".join(f"{name} {value:.2g}" for name, value in report.quantiles().items()),
    }
    if worst.bound is not None:
        ratio = "" if report.ratios is None else f"; bound / error {report.ratios[0]:.0f} to {report.ratios[1]:.0f}"
        rows["a priori bound"] = f"{worst.bound:.3g} for that run{ratio}" + (
            "; 1 or more: says nothing about the outputs" if worst.bound >= 1 else ""
        )
    growth = report.first_growth
    if growth is not None:
        place = "the output" if growth == len(worst.layer_errors) else f"the logits of layer {growth}"
        rows["error first grows"] = f"at {place}"
    rows["engine"] = f"{report.engine}, {report.precision}"
    if report.condition is not None:
        rows["condition"] = f"{report.condition:.3g}"
    if report.unsolved is not None:
        rows["equations"] = report.unsolved
    return rows


def _enclose(
    argument: str, host: Any, target: Any, plan: Plan, digits: int, output: Path | None, given: Any, as_json: bool
) -> None:
    """--digits: one emulation of the first kernel and context, enclosed."""
    from utfproof.cli.enclose import run_enclosure

    if len(plan.attention) != 1 or len(plan.contexts) != 1:
        raise MalformedInput("--digits encloses one emulation: pass one --attention and one --context")
    outcome = run_enclosure(
        argument,
        host,
        target,
        attention=plan.attention[0],
        context=plan.contexts[0],
        seed=plan.seed,
        digits=digits,
        output=output,
        embedding=given,
        law=plan.law,
        dtype=plan.dtype,
        max_memory=plan.max_memory,
    )
    emit(outcome.document, f"emulate {argument}", outcome.rows, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _slack(
    hosts: list[str], dimensions: tuple[int | None, ...], plan: Plan, path: Path, as_json: bool, *, residual: bool
) -> None:
    """--plot: the error of a random host against m / M and depth."""
    from utfproof.emulation import slack

    if len(hosts) != 1 or hosts[0] not in slack.HOSTS:
        raise MalformedInput(f"--plot shows the error of a random host; choose one of {', '.join(slack.HOSTS)}")
    heads, layers, head_dim, d_in, d_out = dimensions
    shape = options.required_shape(heads, layers, head_dim, d_in, d_out, residual)
    steps = slack.slack_steps(shape, slack.RATIOS, plan.trials)
    with stage("m / M and depth", steps, unit="runs") as doing:
        found = slack.run_slack(
            shape,
            hosts[0],
            seed=plan.seed,
            trials=plan.trials,
            plot_path=path,
            law=plan.law,
            max_memory=plan.max_memory,
            progress=doing.advance,
        )
    full = [row for row in found if row.layers == shape.layers]
    errors = slack.medians(full, lambda row: row.ratio, lambda row: row.error)
    conditions = slack.medians(full, lambda row: row.ratio, lambda row: row.condition)
    rows = {
        f"m = {ratio:g} M": f"condition {conditions[ratio]:.3g}, relative error {error:.2g}"
        for ratio, error in errors.items()
    }
    emit(
        {**slack.document(found), "plot": str(path)},
        f"{hosts[0]} at {shape}: recommended m = {slack.RECOMMENDED_RATIO:g} M",
        {**rows, "plot": str(path)},
        as_json=as_json,
    )
    raise typer.Exit(0)


def _sweep(where: list[Shape], hosts: list[str], laws: list[str], plan: Plan, as_json: bool) -> None:
    """Every shape x host x law, a line each; refused pairs are named with the reason."""
    from utfproof.constructions import construction
    from utfproof.emulation.sweep import Case, run_case, totals

    for name in hosts:
        construction(name)
    cases = [Case(shape, name, law) for shape in where for name in hosts for law in laws]
    outcomes: list[Outcome] = []
    with stage("emulate", len(cases), unit="cases") as doing:
        for case in cases:
            outcomes.append(run_case(case, plan))
            doing.advance()
    summary = totals(outcomes)
    header = ["shape", "host", "targets", "m", "error", "bound/error", "result"]
    emit_table(
        {"totals": summary, "cases": [outcome.document() for outcome in outcomes]},
        f"emulate: {summary['runs']} runs, {summary['broken']} beyond their bound, {summary['refused']} cases refused",
        header,
        [_line(outcome) for outcome in outcomes],
        notes=_notes(outcomes),
        as_json=as_json,
    )
    if summary["broken"] or summary["failed"]:
        raise typer.Exit(1)
    if not summary["runs"]:
        raise UtfproofError(f"nothing could be run: {outcomes[0].refusal}")
    raise typer.Exit(0)


def _line(outcome: Outcome) -> list[str]:
    shape = outcome.case.shape
    start = [_short(shape), outcome.case.host, outcome.case.law]
    report = outcome.report
    if report is None:
        return [*start, "", "", "", "FAILED" if outcome.failed else "refused"]
    ratio = "" if report.ratios is None else f"{report.ratios[0]:.0f} to {report.ratios[1]:.0f}"
    verdict = "agree" if report.holds else f"DIFFER in {len(report.broken)} of {len(report.comparisons)}"
    return [*start, str(outcome.m), f"{report.max_relative_error:.1e}", ratio, verdict]


def _notes(outcomes: list[Outcome]) -> list[str]:
    """Why pairs were refused and kernels left out, each once; and which hosts are ill-conditioned."""
    from utfproof.emulation.sweep import ILL_CONDITIONED

    notes = []
    for outcome in outcomes:
        if outcome.refusal is not None:
            notes.append(f"{'failed' if outcome.failed else 'refused'}: {outcome.refusal}")
        elif outcome.report is not None and (outcome.report.condition or 0) > ILL_CONDITIONED:
            where = f"{outcome.case.host} at {_short(outcome.case.shape)}"
            notes.append(f"{where}: condition {outcome.report.condition:.2g}, the bound is loose there")
        if outcome.tied_targets:
            notes.append(
                f"{outcome.case.host}: tied targets, the only ones that a tied host with a residual stream matches"
            )
        notes += [f"{outcome.case.host} without {name}: {reason}" for name, reason in outcome.left_out]
    return list(dict.fromkeys(notes))


def _short(shape: Shape) -> str:
    text = str(shape.without_residual()).removeprefix("(H, L, d, d_in) = ").replace(", ", ",").strip("()")
    return f"{text} residual" if shape.residual else text


def _table_shapes(text: str, residual: bool) -> list[Shape]:
    names = list(PAPER_TABLE_SHAPES) if text == "all" else listed("--shapes", text)
    unknown = [name for name in names if name not in PAPER_TABLE_SHAPES]
    if unknown:
        raise MalformedInput(f"shape {unknown[0]!r} is unknown; choose {', '.join(PAPER_TABLE_SHAPES)}, or all")
    return [Shape(*PAPER_TABLE_SHAPES[name], residual=residual) for name in names]


def _kernels(text: str) -> list[str]:
    from utfproof.attention import EVERY_KERNEL

    return list(EVERY_KERNEL) if text == "all" else listed("--attention", text)
