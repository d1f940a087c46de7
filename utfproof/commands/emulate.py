"""`utfproof emulate`: run targets and hosts side by side and compare their outputs with a bound on rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.attention import EVERY_KERNEL, KERNEL_NAMES, parse_kernel
from utfproof.cli import questions as options
from utfproof.cli.command import Prepared, command
from utfproof.cli.options import Device, Draw, MaxMemory, ShapeOptions, amount, argument, option, required_shape
from utfproof.cli.outcome import Outcome
from utfproof.commands.pairs import PairOptions, pair_of
from utfproof.emulation.compare import INPUTS
from utfproof.emulation.engines import ENGINES, PRECISIONS
from utfproof.emulation.laws import TARGET_LAWS, check_target_law
from utfproof.errors import MalformedInput, UtfproofError, choose
from utfproof.ground.progress import stage
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import Shape, listed, listed_integers, positive_integer

if TYPE_CHECKING:
    from utfproof.emulation.sweep import CaseOutcome as Ran
    from utfproof.emulation.sweep import Plan

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
    batch: Annotated[int, option("Targets run together.", check=positive_integer, advanced=True)] = 1
    rows: Annotated[
        int | None,
        option(
            "Queries attended at a time (default: what fits 2^19 logits).",
            check=positive_integer,
            aside=True,
            advanced=True,
        ),
    ] = None
    bounds: Annotated[
        bool, option("Compute the bound and the estimate of every run.", "--bounds/--no-bounds", advanced=True)
    ] = True

    def setting(self) -> Any:
        """As `compare` takes it."""
        from utfproof.emulation.compare import CompareSetting

        return CompareSetting(self.engine, self.device, self.precision, self.inputs, self.batch, self.bounds, self.rows)


def _plan(run: RunOptions, pair: PairOptions, draw: Draw, trials: int, limit: int | None) -> Plan:
    """What all cases have in common."""
    from utfproof.emulation.sweep import Plan

    return Plan(
        _kernels("--attention", run.attention),
        listed_integers("--context", run.context),
        trials,
        m=pair.m,
        **vars(draw),
        width=pair.width,
        tied_targets=pair.tied_targets,
        tolerance=run.tolerance,
        setting=run.setting(),
        max_memory=limit,
    )


def _prepared(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    from utfproof.constructions import construction

    entry, shape = construction(given["host"]), options.quiet(required_shape, given)
    kernels = _kernels("attention", given["attention"])
    for name in kernels:
        parse_kernel(name, shape.heads, 2)  # whether heads are wide enough for it is said in the result
    check_target_law(given["target_law"])
    found = {**given, "host": entry.name, "attention": kernels, "d_out": shape.d_out}
    found |= {"context": listed_integers("context", given["context"]), "residual": shape.residual or None}
    if not entry.is_random:  # the seed still draws targets and inputs
        del found["law"], found["dtype"]
    yield found, {}


@command(
    "Examples: utfproof emulate sparse -H 4 -L 2 -d 24 --d-in 4 --trials 3 --attention softmax,rope; "
    "utfproof emulate sparse,tied,random --shapes all --attention all --target-law uniform,graded",
    version=2,
    prepare=_prepared,
)
def emulate(
    *,
    host: Annotated[str, argument("Constructions, comma-separated; or HOST.safetensors.")],
    shape: ShapeOptions,
    shapes: Annotated[str | None, option(f"Table shapes: {', '.join(PAPER_TABLE_SHAPES)}, or all.", aside=True)] = None,
    pair: PairOptions,
    trials: Annotated[int, option("Random targets of each law.", check=positive_integer)] = 1,
    target_law: Annotated[
        str, option(f"Laws of random targets, comma-separated, or all: {', '.join(TARGET_LAWS)}.", advanced=True)
    ] = "uniform",
    run: RunOptions,
    draw: Draw,
    max_memory: MaxMemory = None,
    stated: frozenset[str] = frozenset(),
) -> Outcome:
    """Embed targets into hosts and compare outputs, with a bound on rounding.

    Where the proved bound is 1 or more, the verdict rests on an estimate and says so. Exit 0: every error is within its bound
    or estimate (and the tolerance). 1: some error exceeds it, or a host cannot carry a target. 4: neither is known.
    """
    laws = TARGET_LAWS if target_law == "all" else listed("--target-law", target_law)
    laws = [check_target_law(name) for name in laws]
    plan, hosts = _plan(run, pair, draw, trials, max_memory), listed("HOST", host)
    if len(hosts) == 1:
        options.refuse_undrawn(stated, host, "law", "dtype")
    if pair.target is not None and "trials" in stated:
        raise MalformedInput("--trials counts random targets; --target gives one: leave one of them out")
    if shapes is not None and any(value is not None for value in shape.dimensions.values()):
        raise MalformedInput("--shapes names table shapes; it cannot be combined with --heads, --layers and the others")
    if shapes is None and len(hosts) == 1 and len(laws) == 1:
        return _single(host, laws[0], shape, pair, draw, plan)
    if pair.target is not None or pair.embedding is not None:
        raise MalformedInput("--target and --embedding are about one host and one shape")
    stream = bool(pair.residual)
    where = [shape.shape(residual=stream)] if shapes is None else _table_shapes(shapes, stream)
    return _grid(where, hosts, laws, plan)


def _single(host: str, law: str, shape: ShapeOptions, options_: PairOptions, draw: Draw, plan: Plan) -> Outcome:
    """One host, targets of one law or one from a file."""
    from utfproof.emulation.emulate import emulate

    pair = pair_of(host, law, shape, options_, draw, plan.max_memory)
    trials = plan.trials if options_.target is None else 1
    with stage(f"emulate {host}", trials * len(plan.attention) * len(plan.contexts), unit="runs") as doing:
        found = emulate(
            pair.host,
            pair.targets,
            embedding=pair.embedding,
            attention=plan.attention,
            contexts=plan.contexts,
            trials=trials,
            seed=plan.seed,
            target_law=law,
            width=plan.width,
            tied_targets=plan.tied_targets,
            tolerance=plan.tolerance,
            setting=plan.setting,
            max_memory=plan.max_memory,
            advance=doing.advance,
        )
    document = {
        "host": host,
        **found.document(),
        **({"tied_targets": True} if found.tied and not plan.tied_targets else {}),
        "device": plan.setting.device,
        "dtype": plan.setting.precision,
    }
    return Outcome(document, f"emulate {host}", found.rows(), EXIT_CODES[found.holds])


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
            notes.append(f"{outcome.case.host}: tied targets, the only ones that this host serves")
        notes += [f"{outcome.case.host} without {name}: {reason}" for name, reason in outcome.left_out]
    return list(dict.fromkeys(notes))


def _short(shape: Shape) -> str:
    text = str(shape.without_residual()).removeprefix("(H, L, d, d_in) = ").replace(", ", ",").strip("()")
    return f"{text} residual" if shape.residual else text


def _table_shapes(text: str, residual: bool) -> list[Shape]:
    names = list(PAPER_TABLE_SHAPES) if text == "all" else listed("--shapes", text)
    unknown = [name for name in names if name not in PAPER_TABLE_SHAPES]
    if unknown:
        raise MalformedInput(f"shape {unknown[0]!r} is unknown; {choose(unknown[0], [*PAPER_TABLE_SHAPES, 'all'])}")
    return [Shape(*PAPER_TABLE_SHAPES[name], residual=residual) for name in names]


def _kernels(label: str, text: str) -> list[str]:
    return list(EVERY_KERNEL) if text == "all" else listed(label, text)
