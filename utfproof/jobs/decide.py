"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
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
from utfproof.jobs.parameters import argument, option, written
from utfproof.shapes import require_words

if TYPE_CHECKING:
    from utfproof.decision.explain import Findings
    from utfproof.decision.margin import Margin
    from utfproof.decision.verdict import HostDecision
    from utfproof.systems import Target, Universal
    from utfproof.weights import StoredHost

MISS_ENTRIES = 2_000_000
"""Largest R_all (entries) that least squares is done on to measure a miss."""


@dataclass(frozen=True, kw_only=True)
class Decide(Limited, Job, order=30):
    """Decide, exactly, whether these weights are universal; the certificate is bound to their content.

    Floats are taken as the dyadic rationals that they are; factored values are never multiplied out in floats.
    Exit 0: universal by the notion. 1: refuted by matching, which does not decide functional universality; a target that is
    missed is written too. 4: undecided, or open (by attention-matching nothing here says no); no certificate then.
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
        None, "Where to write a target that is missed (.safetensors); beside the certificate unless said otherwise."
    )
    visible: Path | None = written(
        None, "Also write a version of it with generic queries and keys, whose miss shows through softmax."
    )
    context: int = option(8, "Tokens n on which a miss is measured.", kind="positive", aside=True)
    seed: int = option(0, "Seed of those queries, keys and tokens.", kind="seed", aside=True)
    explain: bool = option(False, "A report in words: what, why, margin, and what stays undecided.", aside=True)
    witness: bool = option(False, "Evidence that is much faster to check (a sidecar).")
    device: str = option("cpu", "cpu (NumPy), or a torch device such as cuda.")

    def run(self) -> Outcome:
        from utfproof.decision.explain import Findings

        require_json(self.output)
        chosen = _notion(self.notion, self.tied_targets, self.visible is not None)
        beside = self.target or self.output.with_name(self.output.stem + ".target.safetensors")
        _require_outputs(self.weights, self.output, beside, self.visible)
        if chosen is Notion.ATTENTION_MATCHING:
            found, matched = self._by_attention()
            targets = {} if self.target is None or matched is None else {"target": (self.target, matched, "float64")}
        else:
            found, targets = self._by_matching(beside)
        with together():
            files = _write(found, self.output, targets)
        if self.target is None and "certificate" in files and "target" not in files:
            options.remove_earlier_target(beside)
        return _outcome(Findings(**{**found.__dict__, "files": files}), f"decide {self.weights}", explain=self.explain)

    # --- in a sweep ---

    certified = True

    @classmethod
    def prepared(cls, given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
        from utfproof.weights import stored_host

        _notion(given["notion"], given["tied_targets"], False)
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
        host = stored_host(path, **self._said)
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
            return decide_tied_targets(host, **self._said)
        more: dict[str, Any] = {**self._said, "witness": self.witness, "device": self.device}
        if self.notion == Notion.MATCHING.value:
            return decide_matching(host, **more)
        return decide_attention_matching(host, **more).decision

    @property
    def _said(self) -> dict[str, Any]:
        """What is said of the weights where their file does not say it, and the memory limit."""
        return {"layers": self.layers, "d_in": self.d_in, "residual": self.residual, "max_memory": self.limit}

    def _by_attention(self) -> tuple[Findings, Target | None]:
        from utfproof.decision.attention import decide_attention_matching
        from utfproof.decision.explain import Findings
        from utfproof.weights import stored_host

        given = self._said
        stored = stored_host(self.weights, **given)
        require_words(stored.shape)
        found = decide_attention_matching(stored, witness=self.witness, device=self.device, **given)
        findings = Findings(stored, found.decision, local=found.local, local_reason=found.local_reason)
        return findings, found.local.target if found.local is not None else None

    def _by_matching(self, target: Path) -> tuple[Findings, dict[str, tuple[Path, Target, str]]]:
        """What is found, and the targets to write: name, (file, target, number format)."""
        from utfproof.decision.explain import Findings
        from utfproof.decision.margin import margin_of
        from utfproof.decision.missed import measure_miss, missed_target, missed_tied_target, visible_miss
        from utfproof.decision.verdict import HostVerdict, decide_matching, decide_tied_targets
        from utfproof.weights import stored_host

        given = self._said
        stored = stored_host(self.weights, **given)
        require_words(stored.shape)
        if self.tied_targets:
            tied = decide_tied_targets(stored, **given)
            lost = missed_tied_target(stored, tied)
            return Findings(stored, tied, missed_tied=lost), {} if lost is None else {
                "target": (target, lost.target, "float64")
            }
        limit = given["max_memory"]
        decision = decide_matching(stored, witness=self.witness, device=self.device, **given)
        machine = _machine(stored)
        margin: Margin | str | None = None
        if machine is None:
            margin = "the file holds integers beyond 2^53, which float64 cannot hold"
        else:
            with suppress(ResourceLimit):  # figures beside a verdict that stands without them
                margin = margin_of(stored, machine, universal=decision.universal, max_memory=limit)
        missed = None
        if decision.verdict is HostVerdict.REFUTED:
            with suppress(ResourceLimit):
                missed = missed_target(stored, decision, max_memory=limit)
        if missed is None:
            return Findings(stored, decision, margin), {}
        targets = {"target": (target, missed.target, "int8")}
        miss = None
        if self.visible is not None:
            shown, _ = visible_miss(missed, self.seed)
            targets["visible"] = (self.visible, shown, "int8")
            if machine is not None:
                miss = measure_miss(machine, shown, context=self.context, seed=self.seed, max_memory=limit)
        elif self.explain and machine is not None and stored.m * stored.M <= MISS_ENTRIES:
            with suppress(ResourceLimit):
                shown, _ = visible_miss(missed, self.seed)
                miss = measure_miss(machine, shown, context=self.context, seed=self.seed, max_memory=limit)
        return Findings(stored, decision, margin, missed, miss=miss), targets


def _notion(text: str, tied_targets: bool, visible: bool) -> Notion:
    allowed = (Notion.MATCHING.value, Notion.ATTENTION_MATCHING.value)
    if text not in allowed:
        raise MalformedInput(f"notion {text!r} cannot be decided for given weights; choose {', '.join(allowed)}")
    if tied_targets and text != Notion.MATCHING.value:
        raise MalformedInput("--tied-targets asks about matching; leave out --notion")
    if tied_targets and visible:
        raise MalformedInput("--visible is for untied targets; leave out --tied-targets")
    return Notion(text)


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


def _write(found: Findings, output: Path, targets: dict[str, tuple[Path, Target, str]]) -> dict[str, str]:
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
    if decision.verdict is HostVerdict.REFUTED and decision.targets.tying is Tying.UNTIED:
        lines = words.target_lines(found.missed, stored.shape.residual)
        rows["missed"] = "; ".join(lines)
        document["missed"] = _missed_document(found)
    elif decision.verdict is HostVerdict.REFUTED:
        rows["missed"] = "; ".join(words.tied_lines(found.missed_tied))
    if found.miss is not None:
        rows["visible miss"] = words.miss_line(found.miss)
        document["visible_miss"] = dict(vars(found.miss))
    if decision.verdict is HostVerdict.OPEN:
        rows["near one target"] = words.local_line(found.local, found.local_reason)
        document["local_test"] = {
            "rank": found.local and found.local.rank,
            "equations": found.local and found.local.equations,
            "reaches_nearby": found.local is not None and found.local.reaches_nearby,
            "reason": found.local_reason,
        }
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
    if explain:
        report = words.explanation(found)
        document["explanation"] = [{"heading": heading, "lines": lines} for heading, lines in report]
    text = partial(_print_report, report) if explain else None
    return Outcome(document, subject, rows, decision.verdict.exit_code, text=text)


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


def _missed_document(found: Findings) -> dict[str, Any] | None:
    from utfproof.decision.missed import column_in_words, in_decimals, written

    missed = found.missed
    if missed is None:
        return None
    distance = missed.distance_squared
    kind, word, coordinate = missed.place
    return {
        "column": missed.column,
        "kind": kind,
        "word": list(word),
        "coordinate": coordinate,
        "in_words": column_in_words(missed.shape, missed.column),
        "distance_squared": None if distance is None else [written(distance.numerator), written(distance.denominator)],
        "distance": None if distance is None else in_decimals(distance),
        "in_certificate": missed.certified,
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
