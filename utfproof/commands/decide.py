"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import Context, Found, Given, Prepared, command
from utfproof.cli.options import (
    Device,
    MaxMemory,
    MaxSeconds,
    StoredDIn,
    StoredLayers,
    StoredResidual,
    argument,
    option,
    option_of,
    written,
)
from utfproof.cli.options import seed as seed_check
from utfproof.cli.outcome import Outcome
from utfproof.commands.certify import decided, require_json
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import require_writable, together
from utfproof.ground.notions import Notion, Tying
from utfproof.shapes import positive_integer, require_words

if TYPE_CHECKING:
    from utfproof.decision.explain import Findings
    from utfproof.decision.margin import Margin
    from utfproof.decision.verdict import HostDecision
    from utfproof.systems import Target, Universal
    from utfproof.weights import StoredHost

Targets = dict[str, tuple[Path, "Target", str]]
"""By name: file, target and number format."""
LEAST_SQUARES_ENTRIES = 2_000_000
"""Largest R_all (entries) for which --explain solves least squares to run a counterexample."""


def _prepared(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    from utfproof.weights import stored_host

    _notion(Given(given))
    for path in _files(given["weights"], folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            host = stored_host(path, **{name: given[name] for name in ("layers", "d_in", "residual")})
        digest, shape = host.file.digest(), host.shape
        known = {"weights": digest, "layers": shape.layers, "d_in": shape.d_in, "residual": shape.residual or None}
        yield {**given, **known}, {digest: str(path)}


def _found(given: Given, context: Context) -> Found:
    from utfproof.ground.arrays import require_device
    from utfproof.weights import stored_host

    if given.device != "cpu":
        require_device(given.device)  # this machine's doing: no result
    path = context.files[str(given.weights)]
    host = stored_host(path, **_said(given), max_memory=given.max_memory)
    if host.file.digest() != str(given.weights):
        raise MalformedInput(f"{path} has changed since the sweep began; start it again")
    decision = _decision(given, host)
    reason = decision.reason.replace(str(path), "the weights")  # a path is no part of a result
    if decision.certificate is None:
        return {"verdict": decision.verdict.value, "targets": str(decision.targets), "reason": reason}, {}
    result, files = decided(decision.certificate, context)
    return {**result, "reason": reason}, files


def _decision(given: Given, host: StoredHost) -> HostDecision:
    """By the notion that is asked about, for the targets that are asked about."""
    from utfproof.decision.attention import decide_attention_matching
    from utfproof.decision.verdict import decide_matching, decide_tied_targets

    if given.tied_targets:
        return decide_tied_targets(host, max_memory=given.max_memory)
    decide = decide_matching if given.notion == Notion.MATCHING.value else decide_attention_matching
    return decide(host, witness=given.witness, device=given.device, max_memory=given.max_memory)


def _said(given: Given) -> dict[str, Any]:
    """What the options say of the weights where their file does not."""
    return {"layers": given.layers, "d_in": given.d_in, "residual": given.residual}


def _counterexamples(
    given: Given, stored: StoredHost, decision: HostDecision, target: Path
) -> tuple[Findings, Targets]:
    """What is found beside the decision, and the targets to write: name, (file, target, number format)."""
    from utfproof.decision.counterexample import (
        counterexample,
        measure_difference,
        tied_counterexample,
        visible_counterexample,
    )
    from utfproof.decision.explain import Findings
    from utfproof.decision.verdict import HostVerdict

    if given.tied_targets:
        tied = tied_counterexample(stored, decision)
        return Findings(stored, decision, tied=tied), {} if tied is None else {
            "target": (target, tied.target, "float64")
        }
    machine = _machine(stored)
    findings = Findings(stored, decision, _margin(given, stored, decision, machine))
    if decision.verdict is not HostVerdict.REFUTED:
        return findings, {}
    with suppress(ResourceLimit):  # the verdict stands without a name for the target
        findings = replace(findings, counterexample=counterexample(stored, decision, max_memory=given.max_memory))
    found = findings.counterexample
    if found is None:
        return findings, {}
    targets: Targets = {"target": (target, found.target, "int8")}
    small = stored.m * stored.M <= LEAST_SQUARES_ENTRIES
    if given.visible is None and not (given.explain and small and machine is not None):
        return findings, targets
    with nullcontext() if given.visible is not None else suppress(ResourceLimit):
        shown, _ = visible_counterexample(found, given.seed)
        if given.visible is not None:
            targets["visible"] = (given.visible, shown, "int8")
        if machine is not None:
            difference = measure_difference(
                machine, shown, context=given.context, seed=given.seed, max_memory=given.max_memory
            )
            findings = replace(findings, difference=difference)
    return findings, targets


def _margin(given: Given, stored: StoredHost, decision: HostDecision, machine: Universal | None) -> Margin | str | None:
    """Figures beside the verdict; None where they would take too much memory."""
    from utfproof.decision.margin import margin_of

    if machine is None:
        return "the file holds integers beyond 2^53, which float64 cannot hold"
    with suppress(ResourceLimit):
        return margin_of(stored, machine, universal=decision.universal, max_memory=given.max_memory)
    return None


@command(
    "Examples: utfproof decide host.safetensors -o host.json; utfproof decide host.safetensors --explain -o host.json; "
    "utfproof decide host.safetensors --notion attention-matching -o host.json",
    certified=True,
    prepare=_prepared,
    find=_found,
)
def decide(
    *,
    weights: Annotated[
        Path, argument("HOST.safetensors with R_Q, R_K, R_V (or R_Vv, R_Vo) and U.", metavar="HOST", text=True)
    ],
    output: Annotated[Path, written("Certificate to write (.json).", "-o", "--output")],
    layers: StoredLayers = None,
    d_in: StoredDIn = None,
    residual: StoredResidual = None,
    notion: Annotated[str, option("Notion of universality: matching or attention-matching.")] = "matching",
    tied_targets: Annotated[
        bool, option("Ask about weight-tied targets only (by matching).", "--tied-targets")
    ] = False,
    target: Annotated[
        Path | None,
        written("Where to write the counterexample, a target (.safetensors); by default beside the certificate."),
    ] = None,
    visible: Annotated[
        Path | None,
        written("Also write a version of it with generic queries and keys, whose difference shows through softmax."),
    ] = None,
    context: Annotated[
        int,
        option("Tokens n on which the host and the counterexample are compared.", check=positive_integer, aside=True),
    ] = 8,
    seed: Annotated[int, option("Seed of those queries, keys and tokens.", check=seed_check, aside=True)] = 0,
    explain: Annotated[
        bool, option("A report in words: what, why, margin, and what stays undecided.", "--explain", aside=True)
    ] = False,
    witness: Annotated[bool, option("Evidence that is much faster to check (a sidecar).", "--witness")] = False,
    device: Device = "cpu",
    max_memory: MaxMemory = None,
    max_seconds: MaxSeconds = None,
) -> Outcome:
    """Decide, exactly, whether these weights are universal; the certificate is bound to their content.

    Floats are taken as the dyadic rationals that they are; factored values are never multiplied out in floats.
    Exit 0: universal by the notion. 1: refuted by matching, which does not decide functional universality; a counterexample is
    written too. 4: undecided, or open (by attention-matching nothing here says no); no certificate then.
    """
    given = Given(locals())
    from utfproof.decision.explain import Findings
    from utfproof.weights import stored_host

    require_json(output)
    notion = _notion(given)
    beside = target or output.with_name(output.stem + ".target.safetensors")
    _require_outputs(weights, output, beside, visible)
    stored = stored_host(weights, **_said(given), max_memory=max_memory)
    require_words(stored.shape)
    decision = _decision(given, stored)
    if notion is Notion.ATTENTION_MATCHING:
        found, targets = Findings(stored, decision), dict[str, Any]()
    else:
        found, targets = _counterexamples(given, stored, decision, beside)
    with together():
        files = _write(found, output, targets)
    if target is None and "certificate" in files and "target" not in files:
        options.remove_earlier_target(beside)
    return _outcome(replace(found, files=files), f"decide {weights}", explain=explain)


def _notion(given: Given) -> Notion:
    """The notion asked about; MalformedInput where it is unknown or other options are about another one."""
    allowed = (Notion.MATCHING.value, Notion.ATTENTION_MATCHING.value)
    if given.notion not in allowed:
        raise MalformedInput(
            f"notion {given.notion!r} cannot be decided for given weights; choose {', '.join(allowed)}"
        )
    if given.notion != Notion.MATCHING.value:
        for name in ("tied_targets", "target", "visible"):
            if getattr(given, name):
                raise MalformedInput(f"{option_of(name)} is about matching; leave out --notion")
    if given.tied_targets and given.visible:
        raise MalformedInput("--visible is for untied targets; leave out --tied-targets")
    return Notion(given.notion)


def _files(text: str, folder: Path) -> list[Path]:
    """The file, or the files of a pattern, beside the sweep's own file unless absolute."""
    if not any(sign in text for sign in "*?["):
        return [(folder / text).resolve()]
    place = Path(text)
    top = Path(place.anchor) if place.is_absolute() else folder
    found = sorted(top.glob(str(place.relative_to(place.anchor))))
    if not found:
        raise MalformedInput(f"no file fits weights = {text!r}")
    return [path.resolve() for path in found]


def _require_outputs(host: Path, output: Path, target: Path, visible: Path | None) -> None:
    """MalformedInput, before any work, for names that cannot be written or that would overwrite one another."""
    named = [output, target, *([visible] if visible is not None else [])]
    for path in named:
        require_writable(path)
        options.require_distinct(path, host)
    if len({path.resolve() for path in named}) < len(named):
        raise MalformedInput(f"certificate and targets need different names, got {', '.join(map(str, named))}")


def _machine(stored: StoredHost) -> Universal | None:
    """The host in float64; None where it holds integers that float64 cannot."""
    from utfproof.weights import read_host

    for array in stored.file.tensors.values():
        if array.dtype.kind != "f" and array.size and (int(array.max()) > 2**53 or int(array.min()) < -(2**53)):
            return None
    return read_host(stored)


def _write(found: Findings, output: Path, targets: Targets) -> dict[str, str]:
    """Write targets and certificate, each all or nothing; the paths by what they hold."""
    from utfproof.weights import write_target

    files = {}
    for name, (path, target, dtype) in targets.items():
        if dtype == "float64":
            target = _as_float64(target)
        write_target(path, target, dtype=dtype)
        files[name] = str(path)
    if found.decision.certificate is not None:
        *sidecars, written = found.decision.certificate.write(output)
        files["certificate"] = str(written)
        files.update({f"sidecar {i}": str(path) for i, path in enumerate(sidecars, start=1)})
    return files


def _as_float64(target: Target) -> Target:
    """The same target in floats; MalformedInput where they cannot hold it exactly."""
    import numpy as np

    from utfproof.ground.arrays import exact

    arrays = []
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        weights = np.asarray(getattr(target, name))
        floats = weights.astype(np.float64)
        if not np.isfinite(floats).all() or (exact(floats) != weights).any():
            raise MalformedInput(f"the target's {name} does not fit float64 exactly; leave out --target")
        arrays.append(floats)
    return type(target)(target.shape, *arrays)


def _outcome(found: Findings, subject: str, *, explain: bool) -> Outcome:
    from utfproof.decision import explain as words
    from utfproof.decision.margin import Margin
    from utfproof.decision.verdict import HostVerdict

    stored, decision = found.stored, found.decision
    document = _verdict_document(found)
    rows = {
        "verdict": f"{document['verdict']} (targets: {decision.targets})",
        "shape": f"{stored.shape}, m = {stored.m}, M = {stored.M}",
        "why": document["reason"],
        "means": document["implies"],
        "does not say": document["does_not_imply"],
    }
    if decision.verdict is HostVerdict.REFUTED:
        rows["counterexample"] = "; ".join(words.counterexample_lines(found))
        if decision.targets.tying is Tying.UNTIED:
            document["missed"] = _counterexample_document(found)
    if found.difference is not None:
        rows["run side by side"] = words.difference_line(found.difference)
        document["visible_miss"] = dict(vars(found.difference))
    if isinstance(found.margin, Margin):
        document |= _margin_document(found.margin)
    if found.margin is not None:
        lines = words.margin_lines(found.margin, universal=decision.universal)
        if isinstance(found.margin, Margin) and found.margin.rounded is not None:
            rows["beside that"] = lines.pop(0)
            rows["verdict"] += ", but full rank only through rounding: see below"
        rows["margin"] = "; ".join(lines)
    for name, path in found.files.items():
        rows["written" if name == "certificate" else f"written ({name})"] = path
    if not explain:
        return Outcome(document, subject, rows, decision.verdict.exit_code)
    report = words.explanation(found)
    document["explanation"] = [{"heading": heading, "lines": lines} for heading, lines in report]
    return Outcome(document, subject, rows, decision.verdict.exit_code, text=partial(_print_report, report))


def _verdict_document(found: Findings) -> dict[str, Any]:
    """What every verdict's document says."""
    from utfproof.decision import explain as words

    stored, decision = found.stored, found.decision
    certificate = decision.certificate
    return {
        "verdict": words.verdict_in_words(decision),
        "notion": decision.notion.value,
        "targets": str(decision.targets),
        "scope": str(decision.scope),
        "kind": None if certificate is None else certificate.kind,
        "host": None if certificate is None else certificate.document["claim"].get("host"),
        "shape": options.shape_document(stored.shape, stored.m),
        "M": stored.M,
        "reason": words.why(found),
        "implies": words.implies(decision),
        "does_not_imply": words.does_not_imply(decision),
        "files": list(found.files.values()),
    }


def _counterexample_document(found: Findings) -> dict[str, Any] | None:
    from utfproof.decision.counterexample import column_in_words, in_decimals, written

    given = found.counterexample
    if given is None:
        return None
    distance = given.distance_squared
    kind, word, coordinate = given.place
    return {
        "column": given.column,
        "kind": kind,
        "word": list(word),
        "coordinate": coordinate,
        "in_words": column_in_words(given.shape, given.column),
        "distance_squared": None if distance is None else [written(distance.numerator), written(distance.denominator)],
        "distance": None if distance is None else in_decimals(distance),
        "in_certificate": given.certified,
        "file": found.files.get("target"),
    }


def _margin_document(margin: Margin) -> dict[str, Any]:
    return {
        "numerical_rank": margin.rank,
        "condition": margin.condition,
        "sigma_min": margin.sigma_min,
        "errors": {
            name: {"embedding_bound": error.embedding, "pass_estimate": error.forward}
            for name, error in margin.errors.items()
        },
        "rounding": None
        if margin.rounded is None
        else {
            "format": margin.rounded.format,
            "ranks": [list(row) for row in margin.rounded.ranks],
            "rank_bound": margin.rounded.bound,
        },
    }


def _print_report(report: list[tuple[str, list[str]]]) -> None:
    for heading, lines in report:
        print(heading)
        for line in lines:
            print(f"  {line}")
        print()
