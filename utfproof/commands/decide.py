"""`utfproof decide`: is the host in this file universal, by matching or by attention-matching?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from utfproof.cli import questions as options
from utfproof.cli.command import Context, Found, Prepared, command, decided
from utfproof.cli.options import Device, DIn, Layers, MaxMemory, StoredResidual, argument, option, written
from utfproof.cli.outcome import Outcome
from utfproof.commands.certify import require_json
from utfproof.errors import MalformedInput
from utfproof.ground.files import require_writable
from utfproof.ground.notions import Notion

_STORED = ("layers", "d_in", "residual")
"""Options that say of the weights what their file does not."""
_HOW = ("tied_targets", "witness", "device", "max_memory")


def _prepared(given: dict[str, Any], folder: Path) -> Iterator[Prepared]:
    from utfproof.decision.host import decidable
    from utfproof.weights import stored_host

    decidable(given["notion"], tied_targets=given["tied_targets"])
    for path in _files(given["weights"], folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            host = stored_host(path, **{name: given[name] for name in _STORED})
        digest, shape = host.file.digest(), host.shape
        known = {"weights": digest, "layers": shape.layers, "d_in": shape.d_in, "residual": shape.residual or None}
        yield {**given, **known}, {digest: str(path)}


def _found(given: dict[str, Any], context: Context) -> Found:
    from utfproof.decision.host import verdict
    from utfproof.weights import stored_host

    path = context.files[given["weights"]]
    host = stored_host(path, **{name: given[name] for name in _STORED}, max_memory=context.max_memory)
    if host.file.digest() != given["weights"]:
        raise MalformedInput(f"{path} has changed since the sweep began; start it again")
    decision = verdict(host, Notion(given["notion"]), **{name: given[name] for name in _HOW})
    reason = decision.reason.replace(str(path), "the weights")  # a path is no part of a result
    found = decision.certificate
    if found is None:
        return {"verdict": decision.verdict.value, "targets": str(decision.targets), "reason": reason}, {}
    files = {f"{context.key}.json": found.to_bytes()} | {f"{name}.bin": data for name, data in found.sidecars.items()}
    return {**decided(found.document), "reason": reason}, files


@command(
    "Examples: utfproof decide host.safetensors -o host.json; utfproof decide host.safetensors --tied-targets -o tied.json",
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
    layers: Layers = None,
    d_in: DIn = None,
    residual: StoredResidual = None,
    notion: Annotated[str, option("Notion of universality: matching or attention-matching.")] = "matching",
    tied_targets: Annotated[
        bool, option("Ask about weight-tied targets only (by matching).", "--tied-targets")
    ] = False,
    target: Annotated[
        Path | None, written("Counterexample to write, a target (default: beside the certificate).")
    ] = None,
    visible: Annotated[
        Path | None, written("Also write a counterexample whose difference shows through softmax.")
    ] = None,
    witness: Annotated[
        bool, option("Evidence that is faster to check (a sidecar).", "--witness", advanced=True)
    ] = False,
    device: Device = "cpu",
    max_memory: MaxMemory = None,
) -> Outcome:
    """Decide exactly whether these weights are universal, and write the certificate.

    Floats are read as exact rationals. Exit 0: universal by the notion. 1: refuted by matching, which does not decide
    functional universality; a counterexample is written too. 4: undecided, or open (nothing says no by attention-matching).
    """
    from utfproof.decision.host import decide, write

    require_json(output)
    beside = target or output.with_name(output.stem + ".target.safetensors")
    _require_options(weights, output, beside, target, visible, notion, tied_targets)
    stored: dict[str, Any] = {"layers": layers, "d_in": d_in, "residual": residual}
    how: dict[str, Any] = {"tied_targets": tied_targets, "witness": witness, "device": device, "max_memory": max_memory}
    found = decide(weights, notion=notion, **stored, **how, visible=visible is not None)
    found = write(found, output, beside, visible)
    if target is None and found.certificate is not None and found.target is None:
        options.remove_earlier_target(beside)
    return Outcome(found.document(), f"decide {weights}", found.rows(), found.decision.verdict.exit_code)


def _require_options(
    weights: Path, output: Path, beside: Path, target: Path | None, visible: Path | None, notion: str, tied: bool
) -> None:
    """MalformedInput, before any work, for options that exclude one another and files that would overwrite one another."""
    about_matching = {"--tied-targets": tied, "--target": target, "--visible": visible}
    if notion != "matching" and (said := [name for name, value in about_matching.items() if value]):
        raise MalformedInput(f"{said[0]} is about matching; leave out --notion")
    if tied and visible:
        raise MalformedInput("--visible is for untied targets; leave out --tied-targets")
    require_writable(beside)
    options.require_distinct(beside, weights)
    if beside.resolve() in {path.resolve() for path in (output, visible) if path is not None}:
        raise MalformedInput(f"certificate and targets need different names, got {beside} twice")


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
