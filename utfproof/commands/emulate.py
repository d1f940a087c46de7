"""`utfproof emulate`: run targets and hosts side by side and compare their outputs with a bound on rounding."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.attention import EVERY_KERNEL, KERNEL_NAMES, parse_kernel
from utfproof.cli import questions as options
from utfproof.cli.command import Context, Found, Given, Prepared, command
from utfproof.cli.options import (
    Device,
    DIn,
    DOut,
    Dtype,
    HeadDim,
    Heads,
    Law,
    Layers,
    M,
    MaxMemory,
    MaxSeconds,
    Seed,
    amount,
    argument,
    option,
    required_shape,
    shape_of,
)
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import OWN_NORM
from utfproof.commands.pairs import pair_of
from utfproof.emulation.compare import INPUTS
from utfproof.emulation.engines import ENGINES, PRECISIONS
from utfproof.emulation.laws import TARGET_LAWS, check_target_law
from utfproof.errors import MalformedInput, UtfproofError
from utfproof.ground.progress import stage
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, listed, listed_integers, positive_integer

EXIT_CODES = {True: 0, False: 1, None: 4}
"""By whether outputs agree."""

if TYPE_CHECKING:
    from utfproof.emulation.compare import EmulationReport
    from utfproof.emulation.sweep import CaseOutcome as Ran
    from utfproof.emulation.sweep import Plan


def _own_norm(given: Given) -> Outcome:
    """A model with norms beside its host."""
    from utfproof.commands import own_norm

    used = {
        "host",
        "target",
        "embedding",
        "config",
        "module",
        "context",
        "trials",
        "seed",
        "tolerance",
        "max_memory",
    }
    others = [name for name in vars(given) if name not in {*used, "stated"}]
    why = "own-norm runs one model beside its host, whose shape and attention are the model's"
    options.refuse_given(given.stated, why, *others)
    if given.target is None:
        raise MalformedInput("own-norm is the host of one model: pass --target MODEL, with --config or --module")
    contexts = list(listed_integers("--context", given.context))
    within = 1e-8 if given.tolerance is None else given.tolerance
    files = (given.target, given.config, given.module, given.embedding)
    return own_norm.emulate(*files, contexts, given.trials, given.seed, within, given.max_memory)


def _plan(given: Given) -> Plan:
    """What all cases have in common."""
    from utfproof.emulation.compare import CompareSetting
    from utfproof.emulation.sweep import Plan

    return Plan(
        _kernels("--attention", given.attention),
        listed_integers("--context", given.context),
        given.trials,
        given.seed,
        given.m,
        given.law,
        given.dtype,
        given.width,
        given.tied_targets,
        given.tolerance,
        CompareSetting(
            given.engine, given.device, given.precision, given.inputs, given.batch, given.bounds, given.rows
        ),
        given.max_memory,
    )


def _single(given: Given, plan: Plan) -> Outcome:
    """One host, targets of one law or one from a file."""
    from utfproof.emulation.compare import compare
    from utfproof.emulation.sweep import served

    pair = pair_of(given, given.host, given.target_law)
    machine, model = pair.host, pair.target
    kernels, left_out = served(machine, plan.attention)
    if left_out:
        name, reason = left_out[0]
        hint = "; use a host that is universal by matching (sparse, tied, random)" if "logits only" in reason else ""
        raise MalformedInput(f"attention {name!r}: {reason}{hint}")
    trials = plan.trials if given.target is None else 1
    total = trials * len(kernels) * len(plan.contexts)
    with stage(f"emulate {given.host}", total, unit="runs") as doing:
        report = compare(
            machine,
            pair.nth,
            kernels,
            plan.contexts,
            trials=trials,
            seed=plan.seed,
            setting=plan.setting,
            tolerance=plan.tolerance,
            embedding=pair.embedding,
            max_memory=plan.max_memory,
            progress=doing.advance,
        )
    rows = {
        "result": _verdict(report),
        "shape": f"{model.shape}, target width {model.width}, m = {machine.m}",
        "runs": f"{trials} {'tied ' * pair.tied}target{'s' * (trials != 1)}, contexts {list(plan.contexts)}, "
        f"attention {[k for k, _ in kernels]}",
        **_figures(report),
    }
    document = {
        "host": given.host,
        **report.document(),
        "shape": options.shape_document(model.shape, machine.m),
        **({"tied_targets": True} if pair.tied and not plan.tied_targets else {}),
        "device": plan.setting.device,
        "dtype": plan.setting.precision,
    }
    return Outcome(document, f"emulate {given.host}", rows, EXIT_CODES[report.holds])


def _prepared(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    from utfproof.constructions import construction

    entry, shape = construction(given["host"]), options.quiet(shape_of, given)
    kernels = _kernels("attention", given["attention"])
    for name in kernels:
        parse_kernel(name, shape.heads, 2)  # whether heads are wide enough for it is said in the result
    check_target_law(given["target_law"])
    found = {**given, "host": entry.name, "attention": kernels, "d_out": shape.d_out}
    found |= {"context": listed_integers("context", given["context"]), "residual": shape.residual or None}
    if not entry.is_random:  # the seed still draws targets and inputs
        del found["law"], found["dtype"]
    yield found, {}


def _found(given: Given, context: Context) -> Found:
    from utfproof.emulation.engines import Placement
    from utfproof.emulation.sweep import Case, run_case

    Placement(given.device, given.precision)  # a missing device is this machine's doing: no result
    shape = options.quiet(lambda: given.shape)
    try:
        outcome = run_case(Case(shape, given.host, given.target_law), _plan(given))
    except MalformedInput as error:
        return {"verdict": "refused", "reason": str(error)}, {}
    if outcome.report is None:
        verdict = "cannot carry the target" if outcome.failed else "refused"
        return {"verdict": verdict, "reason": outcome.refusal, "report": outcome.document()}, {}
    said = {True: "outputs agree", False: "outputs differ", None: "undecided"}
    return {"verdict": said[outcome.report.holds], "report": outcome.document()}, {}


@command(
    "Examples: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --trials 3 --context 1,7,64 "
    "--attention softmax,causal,scaled+alibi+window:8,rope; "
    "utfproof emulate sparse,tied,random --shapes parentheses,1-hop --attention all --target-law uniform,graded",
    prepare=_prepared,
    find=_found,
)
def emulate(
    *,
    host: Annotated[
        str,
        argument(
            "Name of a construction (several, comma-separated), HOST.safetensors, or own-norm beside a model with norms."
        ),
    ],
    shapes: Annotated[
        str | None, option(f"Table shapes in place of a shape: {', '.join(PAPER_TABLE_SHAPES)}, or all.", aside=True)
    ] = None,
    target_law: Annotated[
        str, option(f"Laws of random targets, comma-separated, or all: {', '.join(TARGET_LAWS)}.")
    ] = "uniform",
    trials: Annotated[int, option("Random targets of each law.", check=positive_integer)] = 1,
    context: Annotated[str, option("Context lengths n, comma-separated.")] = "1,7,64",
    attention: Annotated[
        str,
        option(
            f"Kernels, comma-separated; each joins {', '.join(KERNEL_NAMES)} with '+'; "
            "given: matrices from outside; all: one of each."
        ),
    ] = "softmax,causal",
    inputs: Annotated[str, option("Law of the inputs X", choices=INPUTS)] = "one-hot",
    engine: Annotated[
        str | None, option("The host's own by default, index-map is for {0,1} hosts", choices=ENGINES)
    ] = None,
    device: Device = "cpu",
    precision: Annotated[str, option("Numbers the host runs in", choices=tuple(PRECISIONS))] = "float64",
    batch: Annotated[int, option("Targets run together.", check=positive_integer)] = 1,
    rows: Annotated[
        int | None,
        option(
            "Queries attended at a time; as many as fit 2^19 logits by default.", check=positive_integer, aside=True
        ),
    ] = None,
    bounds: Annotated[bool, option("Compute the bound and the estimate of every run.", "--bounds/--no-bounds")] = True,
    tolerance: Annotated[
        float | None, option("Largest relative error allowed, besides the bound.", check=amount)
    ] = None,
    config: Annotated[Path | None, option("own-norm: the model's configuration (.json).", aside=True)] = None,
    module: Annotated[
        str | None, option("own-norm: package.module:factory, called with TARGET's path; runs that code.", aside=True)
    ] = None,
    residual: Annotated[
        bool | None,
        option(
            "With a residual stream, in hosts and targets; what a file's metadata says comes first, none by default.",
            "--residual/--no-residual",
        ),
    ] = None,
    m: M = None,
    target: Annotated[Path | None, option("TARGET.safetensors in place of random targets.")] = None,
    embedding: Annotated[Path | None, option("E.safetensors to run instead of solving for E (needs --target).")] = None,
    width: Annotated[int | None, option("Width D of random targets; d_in by default.", check=positive_integer)] = None,
    tied_targets: Annotated[bool, option("Random targets are weight-tied.", "--tied-targets")] = False,
    heads: Heads = None,
    layers: Layers = None,
    head_dim: HeadDim = None,
    d_in: DIn = None,
    d_out: DOut = None,
    seed: Seed = 0,
    law: Law = "uniform",
    dtype: Dtype = "float64",
    max_memory: MaxMemory = None,
    max_seconds: MaxSeconds = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Embed targets into hosts and compare outputs, for every kernel and context length, with a bound on rounding.

    Where the proved bound says nothing (1 or more), the verdict rests on an estimate and says so. Exit 0: every relative error
    is within its bound, or its estimate (and the tolerance). 1: some error exceeds its bound or the tolerance, or a host
    cannot carry a target. 4: neither is known; --tolerance decides by the error.
    """
    given = Given(locals())
    if host == OWN_NORM:
        return _own_norm(given)
    options.refuse_given(stated, "they are about models with norms, HOST own-norm", "config", "module")
    laws = TARGET_LAWS if target_law == "all" else listed("--target-law", target_law)
    laws = [check_target_law(name) for name in laws]
    plan, hosts = _plan(given), listed("HOST", host)
    if len(hosts) == 1:
        options.refuse_undrawn(stated, host, "law", "dtype")
    if target is not None and "trials" in stated:
        raise MalformedInput("--trials counts random targets; --target gives one: leave one of them out")
    if shapes is not None and any(value is not None for value in given.dimensions.values()):
        raise MalformedInput("--shapes names table shapes; it cannot be combined with --heads, --layers and the others")
    if shapes is None and len(hosts) == 1 and len(laws) == 1:
        return _single(given, plan)
    if target is not None or embedding is not None:
        raise MalformedInput("--target and --embedding are about one host and one shape")
    stream = bool(residual)
    where = [required_shape(locals(), residual=residual)] if shapes is None else _table_shapes(shapes, stream)
    return _grid(where, hosts, laws, plan)


def _verdict(report: EmulationReport) -> str:
    if report.unsolved is not None and report.tolerance is None:
        return f"E does not solve the equations: {report.unsolved}"
    if report.holds:
        proved = ": within the estimate, the bound says nothing" if report.rests_on_estimate else ""
        return f"outputs agree ({report.sense}){proved}"
    if report.holds is None:
        judged = isfinite(report.max_relative_error) and report.tolerance is None
        hint = "; --tolerance decides by the error alone" if judged else ""
        return f"undecided ({report.sense}): {report.undecided}{hint}"
    return f"outputs DIFFER ({report.sense}): {len(report.broken)} of {len(report.comparisons)} runs"


def _figures(report: EmulationReport) -> dict[str, str]:
    """The rows that say how far host and target are apart, and why."""
    shown = report.broken or report.open or report.comparisons
    worst = max(shown, key=lambda c: (c.relative_error != c.relative_error, c.relative_error))
    limit = "" if report.tolerance is None else f"; tolerance {report.tolerance:g}"
    rows = {
        "max relative error": f"{report.max_relative_error:.3g} (n = {worst.context}, {worst.attention}{limit})",
        "quantiles": ", ".join(f"{name} {value:.2g}" for name, value in report.quantiles().items()),
    }
    if worst.bound is not None:
        ratio = "" if report.ratios is None else f"; bound / error {report.ratios[0]:.0f} to {report.ratios[1]:.0f}"
        rows["bound"] = f"{worst.bound:.3g} for that run{ratio}" + (
            "; 1 or more: says nothing about the outputs" if worst.bound >= 1 else ""
        )
        rows["estimate"] = f"{worst.estimate:.3g}, for independent rounding errors; not proved"
    growth = report.first_growth
    if growth is not None:
        place = "the output" if growth == len(worst.layer_errors) else f"the logits of layer {growth}"
        rows["error first grows"] = f"at {place}"
    rows["engine"] = f"{report.engine}, {report.precision}"
    if report.condition is not None:
        rows["condition"] = f"{report.condition:.3g}"
    if report.unsolved is not None or report.unknown is not None:
        rows["equations"] = report.unsolved or f"beyond float64: {report.unknown}"
    return rows


def _grid(where: list[Shape], hosts: list[str], laws: list[str], plan: Plan) -> Outcome:
    """Every shape x host x law, a line each; refused pairs are named with the reason."""
    from utfproof.constructions import construction
    from utfproof.emulation.sweep import Case, run_case, totals

    for name in hosts:
        construction(name)
    cases = [Case(shape, name, law) for shape in where for name in hosts for law in laws]
    outcomes = []
    with stage("emulate", len(cases), unit="cases") as doing:
        for case in cases:
            outcomes.append(run_case(case, plan))
            doing.advance()
    summary = totals(outcomes)
    wrong = bool(summary["broken"] or summary["failed"])
    open_runs = f"{summary['undecided']} undecided, " if summary["undecided"] else ""
    none = f"nothing could be run: {outcomes[0].refusal}"
    return Outcome(
        {"totals": summary, "cases": [outcome.document() for outcome in outcomes]},
        f"emulate: {summary['runs']} runs, {summary['broken']} beyond their bound, {open_runs}"
        f"{summary['refused']} cases refused",
        exit_code=1 if wrong else 4 if summary["undecided"] else 0,
        header=("shape", "host", "targets", "m", "error", "bound/error", "result"),
        lines=[_line(outcome) for outcome in outcomes],
        notes=_notes(outcomes),
        failure=None if wrong or summary["runs"] else UtfproofError(none),
    )


def _line(outcome: Ran) -> list[str]:
    shape = outcome.case.shape
    start = [_short(shape), outcome.case.host, outcome.case.law]
    report = outcome.report
    if report is None:
        return [*start, "", "", "", "FAILED" if outcome.failed else "refused"]
    ratio = "" if report.ratios is None else f"{report.ratios[0]:.0f} to {report.ratios[1]:.0f}"
    differ = f"DIFFER in {len(report.broken)} of {len(report.comparisons)}"
    left_open = f"undecided in {len(report.open)} of {len(report.comparisons)}"
    agree = "agree (estimate)" if report.rests_on_estimate else "agree"
    verdict = {True: agree, False: differ, None: left_open}[report.holds]
    return [*start, str(outcome.m), f"{report.max_relative_error:.1e}", ratio, verdict]


def _notes(outcomes: list[Ran]) -> list[str]:
    """Why pairs were refused and kernels left out, each once; and which hosts are ill-conditioned."""
    from utfproof.emulation.sweep import ILL_CONDITIONED

    notes = []
    for outcome in outcomes:
        if outcome.refusal is not None:
            notes.append(f"{'failed' if outcome.failed else 'refused'}: {outcome.refusal}")
        elif outcome.report is not None and (outcome.report.condition or 0) > ILL_CONDITIONED:
            where = f"{outcome.case.host} at {_short(outcome.case.shape)}"
            notes.append(f"{where}: condition {outcome.report.condition:.2g}, the bound is loose there")
        if outcome.report is not None and outcome.report.undecided is not None:
            notes.append(f"{outcome.case.host} at {_short(outcome.case.shape)}: {outcome.report.undecided}")
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


def _kernels(label: str, text: str) -> list[str]:

    return list(EVERY_KERNEL) if text == "all" else listed(label, text)
