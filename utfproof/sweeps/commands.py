"""What a job of each command takes and does: certify, decide, emulate and verify here; search and train from their own
packages, where installed (docs/sweeps.md says what such a package provides).

`prepare` turns one combination of a grid into canonical parameters, everything filled in, so that two ways of asking for the
same thing have one key; None is left out of it. `run` gets None for what is left out, and returns the result, which has a
"verdict", and the files to keep beside it.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, NotDefined, Undecided
from utfproof.jobs.parameters import (
    DIMENSIONS,
    DRAW,
    EMBEDDING_DIMENSION,
    REQUIRED,
    RESIDUAL_OF_WEIGHTS,
    SHAPE,
    Parameter,
    shape_of,
)
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape, listed, listed_integers

RESULT_VERSION = 1
"""Of what `run` returns here; raised when its content changes."""


@dataclass(frozen=True)
class Context:
    """What a run may know beside its parameters; nothing of it may enter the result. key: for naming files."""

    key: str
    files: Mapping[str, str] = field(default_factory=dict)
    max_memory: int | None = None


Prepared = tuple[dict[str, Any], dict[str, str]]
"""Canonical parameters, and the files that they name by digest."""
Found = tuple[dict[str, Any], dict[str, bytes]]
"""A result and the files beside it."""


@dataclass(frozen=True)
class Command:
    """One kind of job."""

    name: str
    parameters: Mapping[str, Parameter]
    prepare: Callable[[dict[str, Any], Path], Iterator[Prepared]]
    run: Callable[[dict[str, Any], Context], Found]
    versions: Callable[[], dict[str, int | str]]


EXTERNAL = {"search": "utfproof.search.jobs", "train": "utfproof.training.jobs"}
"""Commands that other packages bring: a module with VERSION, PARAMETERS, run and perhaps prepare."""


def command(name: str) -> Command:
    """The command of this name; MalformedInput where there is none."""
    if name in COMMANDS:
        return COMMANDS[name]
    if name in EXTERNAL:
        try:
            return _external(name, importlib.import_module(EXTERNAL[name]))
        except ModuleNotFoundError as error:
            raise MalformedInput(
                f"command {name!r} cannot run here: module {error.name} is missing; choose {', '.join(COMMANDS)}"
            ) from error
    raise MalformedInput(f"command {name!r} is unknown; choose {', '.join([*COMMANDS, *EXTERNAL])}")


# --- certify ---------------------------------------------------------------------------------------------------


def _certificate_versions() -> dict[str, int | str]:
    from utfproof.certificates.format import VERSION

    return {"certificate": VERSION, "result": RESULT_VERSION}


def _quiet_shape(parameters: Mapping[str, Any]) -> Shape:
    """The shape, without a word on d > d_in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return shape_of(parameters)


def _stream(residual: bool) -> dict[str, Any]:
    """The key of a residual stream: without one it says nothing and is left out."""
    return {"residual": residual or None}


def _prepare_certify(given: dict[str, Any], _: Path) -> Iterator[Prepared]:
    from utfproof.constructions import construction, resolve_m
    from utfproof.ground.notions import Notion

    entry = construction(given["construction"])
    shape = _quiet_shape(given)
    found = {
        "construction": entry.name,
        **{name: getattr(shape, name) for name in DIMENSIONS},
        **_stream(shape.residual),
    }
    try:
        found["m"] = resolve_m(entry, shape, given["m"])
    except NotDefined:  # a grid may hold shapes where a construction does not exist: the result says so
        found["m"] = given["m"]
    found["notion"] = given["notion"] or (entry.notion or Notion.MATCHING).value
    if given["witness"] and not entry.is_random:
        raise MalformedInput(f"witness belongs to random constructions; {entry.name} has a certificate of linear size")
    if entry.is_random:  # the others are the same for every seed
        found |= {name: given[name] for name in ("seed", "law", "dtype", "witness", "device")}
    yield found, {}


def _run_certify(parameters: dict[str, Any], context: Context) -> Found:
    from utfproof.certificates.prover import certify
    from utfproof.ground.arrays import require_device

    names = ("notion", "seed", "law", "dtype", "witness", "device")
    given = {name: parameters[name] for name in names if parameters[name] is not None}
    if given.get("device", "cpu") != "cpu":
        require_device(given["device"])  # this machine's doing: no result
    try:
        found = certify(
            parameters["construction"],
            _quiet_shape(parameters),
            parameters["m"],
            **given,
            max_memory=context.max_memory,
        )
    except Undecided as error:
        return {"verdict": "undecided", "reason": str(error)}, {}
    except MalformedInput as error:
        return {"verdict": "refused", "reason": str(error)}, {}
    return _decided(found, context)


def _decided(found: Any, context: Context) -> Found:
    """The result and files of a certificate."""
    claim = found.document["claim"]
    files = {f"{context.key}.json": found.to_bytes()}
    files |= {f"{digest}.bin": content for digest, content in found.sidecars.items()}
    return {"verdict": claim["verdict"], "kind": found.kind, "targets": claim["targets"]}, files


# --- decide ----------------------------------------------------------------------------------------------------

_SAID_OF_WEIGHTS = ("layers", "d_in", "residual")
"""Where a file's metadata does not say it."""


def _prepare_decide(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    from utfproof.weights import stored_host

    if given["tied_targets"] and given["notion"] != "matching":
        raise MalformedInput("tied_targets asks about matching; leave out notion")
    for path in _weights(given["weights"], folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            host = stored_host(path, **{name: given[name] for name in _SAID_OF_WEIGHTS})
        digest, shape = host.file.digest(), host.shape
        known = {"weights": digest, "layers": shape.layers, "d_in": shape.d_in, **_stream(shape.residual)}
        yield {**given, **known}, {digest: str(path)}


def _weights(text: str, folder: Path) -> list[Path]:
    """The file, or the files of a pattern, beside the sweep's own file unless absolute."""
    if not any(sign in text for sign in "*?["):
        return [(folder / text).resolve()]
    place = Path(text)
    top = Path(place.anchor) if place.is_absolute() else folder
    found = sorted(top.glob(str(place.relative_to(place.anchor))))
    if not found:
        raise MalformedInput(f"no file fits weights = {text!r}")
    return [path.resolve() for path in found]


def _run_decide(parameters: dict[str, Any], context: Context) -> Found:
    from utfproof.decision.attention import decide_attention_matching
    from utfproof.decision.verdict import decide_matching, decide_tied_targets
    from utfproof.ground.arrays import require_device
    from utfproof.weights import stored_host

    path = context.files[parameters["weights"]]
    given: dict[str, Any] = {name: parameters[name] for name in _SAID_OF_WEIGHTS}
    given["max_memory"] = context.max_memory
    if parameters["device"] != "cpu":
        require_device(parameters["device"])
    host = stored_host(path, **given)
    if host.file.digest() != parameters["weights"]:
        raise MalformedInput(f"{path} has changed since the sweep began; start it again")
    if parameters["tied_targets"]:
        decision = decide_tied_targets(host, **given)
    elif parameters["notion"] == "matching":
        decision = decide_matching(host, **given, witness=parameters["witness"], device=parameters["device"])
    else:
        decision = decide_attention_matching(
            host, **given, witness=parameters["witness"], device=parameters["device"]
        ).decision
    reason = decision.reason.replace(str(path), "the weights")  # a path is no part of a result
    if decision.certificate is None:
        return {"verdict": decision.verdict.value, "targets": str(decision.targets), "reason": reason}, {}
    result, files = _decided(decision.certificate, context)
    return {**result, "reason": reason}, files


# --- emulate ---------------------------------------------------------------------------------------------------


def _float_versions() -> dict[str, int | str]:
    return {"result": RESULT_VERSION}


def _prepare_emulate(given: dict[str, Any], _: Path) -> Iterator[Prepared]:
    from utfproof.attention import EVERY_KERNEL, parse_kernel
    from utfproof.constructions import construction
    from utfproof.emulation.compare import INPUTS
    from utfproof.emulation.engines import ENGINES, PRECISIONS
    from utfproof.emulation.laws import check_target_law

    entry = construction(given["host"])
    shape = _quiet_shape(given)
    kernels = list(EVERY_KERNEL) if given["attention"] == "all" else listed("attention", given["attention"])
    for name in kernels:
        parse_kernel(name, shape.heads, 2)  # whether heads are wide enough for it is said in the result
    contexts = listed_integers("context", str(given["context"]))
    check_target_law(given["target_law"])
    for name, known in (("inputs", INPUTS), ("precision", PRECISIONS), ("engine", (None, *ENGINES))):
        if given[name] not in known:
            raise MalformedInput(f"{name} {given[name]!r} is unknown; choose {', '.join(filter(None, known))}")
    if given["tolerance"] is not None and not given["tolerance"] > 0:
        raise MalformedInput(f"tolerance must be positive, got {given['tolerance']}")
    found = {**given, "host": entry.name, "attention": kernels, "context": contexts, "d_out": shape.d_out}
    found |= _stream(shape.residual)
    if not entry.is_random:  # the seed still draws targets and inputs
        del found["law"], found["dtype"]
    yield found, {}


def _run_emulate(parameters: dict[str, Any], context: Context) -> Found:
    from utfproof.emulation.compare import Setting
    from utfproof.emulation.engines import Placement
    from utfproof.emulation.sweep import Case, Plan, run_case

    Placement(parameters["device"], parameters["precision"])  # a missing device is this machine's doing: no result
    names = ("engine", "device", "precision", "inputs", "batch", "bounds")
    plan = Plan(
        parameters["attention"],
        parameters["context"],
        parameters["trials"],
        parameters["seed"],
        parameters["m"],
        parameters["law"] or "uniform",
        parameters["dtype"] or "float64",
        parameters["width"],
        parameters["tied_targets"],
        parameters["tolerance"],
        Setting(**{name: parameters[name] for name in names}),
        context.max_memory,
    )
    try:
        outcome = run_case(Case(_quiet_shape(parameters), parameters["host"], parameters["target_law"]), plan)
    except MalformedInput as error:
        return {"verdict": "refused", "reason": str(error)}, {}
    if outcome.report is None:
        verdict = "cannot carry the target" if outcome.failed else "refused"
        return {"verdict": verdict, "reason": outcome.refusal, "report": outcome.document()}, {}
    verdict = "outputs agree" if outcome.report.holds else "outputs differ"
    return {"verdict": verdict, "report": outcome.document()}, {}


# --- verify ----------------------------------------------------------------------------------------------------


def _prepare_verify(given: dict[str, Any], _: Path) -> Iterator[Prepared]:
    from utfproof.claims.grid import Grid
    from utfproof.claims.registry import select

    Grid.parse(given["grid"])
    for entry in select([given["claim"]]):
        yield {"claim": entry.id, "grid": given["grid"]}, {}


def _run_verify(parameters: dict[str, Any], context: Context) -> Found:
    from utfproof.claims.grid import Grid
    from utfproof.claims.registry import all_claims
    from utfproof.claims.runner import SPENT, decide

    outcome = decide(all_claims()[parameters["claim"]], Grid.parse(parameters["grid"]))
    for problem in outcome.document["problems"]:
        if problem.startswith(("the check stopped", "the check failed")):  # for want of memory, say: no result
            raise Undecided(problem)
    document = {name: value for name, value in outcome.document.items() if name not in SPENT}
    files = {f"{digest}.json": data for digest, data in outcome.certificates.items()} | outcome.sidecars
    verdict = document.pop("verdict") + ("" if outcome.agrees else " (not as recorded)")
    return {"verdict": verdict, **document}, files


# --- commands of other packages ---------------------------------------------------------------------------------

_KINDS = {int: "integer", float: "number", bool: "flag", str: "text"}


def _external(name: str, module: Any) -> Command:
    parameters = {key: Parameter(_KINDS[kind], default) for key, (kind, default) in module.PARAMETERS.items()}
    check = getattr(module, "prepare", dict)

    def prepare(given: dict[str, Any], _: Path) -> Iterator[Prepared]:
        yield check(given), {}

    def run(given: dict[str, Any], context: Context) -> Found:
        return module.run(given, key=context.key, max_memory=context.max_memory)

    return Command(name, parameters, prepare, run, lambda: {"result": module.VERSION})


# --- the table --------------------------------------------------------------------------------------------------

_NOTIONS = ("matching", "attention-matching", "functional", "shared attention")


def _commands() -> dict[str, Command]:
    flag, cpu = Parameter("flag", False), Parameter("text", "cpu")
    certify = {
        "construction": Parameter("text", REQUIRED),
        **SHAPE,
        "m": EMBEDDING_DIMENSION,
        **DRAW,
        "notion": Parameter("text", None, _NOTIONS),
        "witness": flag,
        "device": cpu,
    }
    decide = {
        "weights": Parameter("text", REQUIRED),
        "layers": Parameter("positive"),
        "d_in": Parameter("positive"),
        "residual": RESIDUAL_OF_WEIGHTS,
        "notion": Parameter("text", "matching", _NOTIONS[:2]),
        "tied_targets": flag,
        "witness": flag,
        "device": cpu,
    }
    emulate = {
        "host": Parameter("text", REQUIRED),
        **SHAPE,
        "m": EMBEDDING_DIMENSION,
        **DRAW,
        "target_law": Parameter("text", "uniform"),
        "attention": Parameter("text", "softmax,causal"),
        "context": Parameter("lengths", "1,7,64"),
        "trials": Parameter("positive", 1),
        "width": Parameter("positive"),
        "tied_targets": flag,
        "inputs": Parameter("text", "one-hot"),
        "engine": Parameter("text"),
        "precision": Parameter("text", "float64"),
        "device": cpu,
        "batch": Parameter("positive", 1),
        "bounds": Parameter("flag", True),
        "tolerance": Parameter("number"),
    }
    from utfproof.claims.grid import DEFAULT_GRID

    verify = {"claim": Parameter("text", "*"), "grid": Parameter("text", DEFAULT_GRID)}
    return {
        "certify": Command("certify", certify, _prepare_certify, _run_certify, _certificate_versions),
        "decide": Command("decide", decide, _prepare_decide, _run_decide, _certificate_versions),
        "emulate": Command("emulate", emulate, _prepare_emulate, _run_emulate, _float_versions),
        "verify": Command("verify", verify, _prepare_verify, _run_verify, _certificate_versions),
    }


COMMANDS = _commands()
