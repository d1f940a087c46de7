"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.ground.files import require_writable, together
from utfproof.ground.notions import Notion, Tying
from utfproof.jobs import options
from utfproof.jobs.certify import decided, require_json
from utfproof.jobs.groups import Limited, residual_of_weights, shared
from utfproof.jobs.job import Context, Found, Job, Outcome, Prepared
from utfproof.jobs.parameters import argument, option, option_of, written
from utfproof.shapes import require_words

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


@dataclass(frozen=True, kw_only=True)
class Decide(Limited, Job, order=30):
    """Decide, exactly, whether these weights are universal; the certificate is bound to their content.

    Floats are taken as the dyadic rationals that they are; factored values are never multiplied out in floats.
    Exit 0: universal by the notion. 1: refuted by matching, which does not decide functional universality; a counterexample is
    written too. 4: undecided, or open (by attention-matching nothing here says no); no certificate then.
    """

    examples = (
        "Examples: utfproof decide host.safetensors -o host.json; utfproof decide host.safetensors --explain -o host.json; "
        "utfproof decide host.safetensors --notion attention-matching -o host.json"
    )
    weights: Path = argument(
        ..., "HOST.safetensors with R_Q, R_K, R_V (or R_Vv, R_Vo) and U.", metavar="HOST", kind="text"
    )
    output: Path = written(..., "Certificate to write (.json).")
    layers: int | None = shared("layers", needed=False)
    d_in: int | None = shared("d_in", needed=False)
    residual: bool | None = residual_of_weights()
    notion: str = option("matching", "Notion of universality: matching or attention-matching.")
    tied_targets: bool = option(False, "Ask about weight-tied targets only (by matching).")
    target: Path | None = written(
        None, "Where to write the counterexample, a target (.safetensors); by default beside the certificate."
    )
    visible: Path | None = written(
        None, "Also write a version of it with generic queries and keys, whose difference shows through softmax."
    )
    context: int = option(
        8, "Tokens n on which the host and the counterexample are compared.", kind="positive", aside=True
    )
    seed: int = option(0, "Seed of those queries, keys and tokens.", kind="seed", aside=True)
    explain: bool = option(False, "A report in words: what, why, margin, and what stays undecided.", aside=True)
    witness: bool = option(False, "Evidence that is much faster to check (a sidecar).")
    device: str = option("cpu", "cpu (NumPy), or a torch device such as cuda.")

    def run(self) -> Outcome:
        from utfproof.decision.explain import Findings
        from utfproof.weights import stored_host

        require_json(self.output)
        notion = _notion(self)
        beside = self.target or self.output.with_name(self.output.stem + ".target.safetensors")
        _require_outputs(self.weights, self.output, beside, self.visible)
        stored = stored_host(self.weights, **self._said, max_memory=self.limit)
        require_words(stored.shape)
        decision = self._decision(stored)
        if notion is Notion.ATTENTION_MATCHING:
            found, targets = Findings(stored, decision), dict[str, Any]()
        else:
            found, targets = self._counterexamples(stored, decision, beside)
        with together():
            files = _write(found, self.output, targets)
        if self.target is None and "certificate" in files and "target" not in files:
            options.remove_earlier_target(beside)
        return _outcome(replace(found, files=files), f"decide {self.weights}", explain=self.explain)

    # --- in a sweep ---

    certified = True

    @classmethod
    def prepared(cls, given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
        from utfproof.weights import stored_host

        _notion(cls.of(given))
        for path in _files(given["weights"], folder):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                host = stored_host(path, **{name: given[name] for name in ("layers", "d_in", "residual")})
            digest, shape = host.file.digest(), host.shape
            known = {"weights": digest, "layers": shape.layers, "d_in": shape.d_in, "residual": shape.residual or None}
            yield {**given, **known}, {digest: str(path)}

    def found(self, context: Context) -> Found:
        from utfproof.ground.arrays import require_device
        from utfproof.weights import stored_host

        if self.device != "cpu":
            require_device(self.device)  # this machine's doing: no result
        path = context.files[str(self.weights)]
        host = stored_host(path, **self._said, max_memory=self.limit)
        if host.file.digest() != str(self.weights):
            raise MalformedInput(f"{path} has changed since the sweep began; start it again")
        decision = self._decision(host)
        reason = decision.reason.replace(str(path), "the weights")  # a path is no part of a result
        if decision.certificate is None:
            return {"verdict": decision.verdict.value, "targets": str(decision.targets), "reason": reason}, {}
        result, files = decided(decision.certificate, context)
        return {**result, "reason": reason}, files

    def _decision(self, host: StoredHost) -> HostDecision:
        """By the notion that is asked about, for the targets that are asked about."""
        from utfproof.decision.attention import decide_attention_matching
        from utfproof.decision.verdict import decide_matching, decide_tied_targets

        if self.tied_targets:
            return decide_tied_targets(host, max_memory=self.limit)
        decide = decide_matching if self.notion == Notion.MATCHING.value else decide_attention_matching
        return decide(host, witness=self.witness, device=self.device, max_memory=self.limit)

    @property
    def _said(self) -> dict[str, Any]:
        """What the options say of the weights where their file does not."""
        return {"layers": self.layers, "d_in": self.d_in, "residual": self.residual}

    def _counterexamples(self, stored: StoredHost, decision: HostDecision, target: Path) -> tuple[Findings, Targets]:
        """What is found beside the decision, and the targets to write: name, (file, target, number format)."""
        from utfproof.decision.counterexample import (
            counterexample,
            measure_difference,
            tied_counterexample,
            visible_counterexample,
        )
        from utfproof.decision.explain import Findings
        from utfproof.decision.verdict import HostVerdict

        if self.tied_targets:
            tied = tied_counterexample(stored, decision)
            return Findings(stored, decision, tied=tied), {} if tied is None else {
                "target": (target, tied.target, "float64")
            }
        machine = _machine(stored)
        findings = Findings(stored, decision, self._margin(stored, decision, machine))
        if decision.verdict is not HostVerdict.REFUTED:
            return findings, {}
        with suppress(ResourceLimit):  # the verdict stands without a name for the target
            findings = replace(findings, counterexample=counterexample(stored, decision, max_memory=self.limit))
        found = findings.counterexample
        if found is None:
            return findings, {}
        targets: Targets = {"target": (target, found.target, "int8")}
        small = stored.m * stored.M <= LEAST_SQUARES_ENTRIES
        if self.visible is None and not (self.explain and small and machine is not None):
            return findings, targets
        with nullcontext() if self.visible is not None else suppress(ResourceLimit):
            shown, _ = visible_counterexample(found, self.seed)
            if self.visible is not None:
                targets["visible"] = (self.visible, shown, "int8")
            if machine is not None:
                difference = measure_difference(
                    machine, shown, context=self.context, seed=self.seed, max_memory=self.limit
                )
                findings = replace(findings, difference=difference)
        return findings, targets

    def _margin(self, stored: StoredHost, decision: HostDecision, machine: Universal | None) -> Margin | str | None:
        """Figures beside the verdict; None where they would take too much memory."""
        from utfproof.decision.margin import margin_of

        if machine is None:
            return "the file holds integers beyond 2^53, which float64 cannot hold"
        with suppress(ResourceLimit):
            return margin_of(stored, machine, universal=decision.universal, max_memory=self.limit)
        return None


def _notion(given: Decide) -> Notion:
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
