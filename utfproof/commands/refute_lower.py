"""`utfproof refute-lower`: refute a host of the shared-attention model, E and U both free."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from utfproof.cli.entry import require_apart
from utfproof.cli.options import Certificate, Layers, MaxMemory
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import remove_earlier_target
from utfproof.ground.files import require_writable

if TYPE_CHECKING:
    from utfproof.decision.shared import SharedHost, SharedRefutation


def refute_lower(
    *,
    host: Annotated[
        Path, typer.Argument(help="HOST.safetensors with R_V [L, H, m, m], or [H, m, m] when tied.", metavar="HOST")
    ],
    output: Certificate,
    layers: Layers = None,
    head_dim: Annotated[
        int | None, typer.Option("--head-dim", "-d", help="Head dimension of the targets; the file's, else 1.")
    ] = None,
    d_in: Annotated[int | None, typer.Option(help="Width of the targets; the file's, else 1.")] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Refute universality in the paper's lower-bound model.

    E and U are both free. The model supplies attention from outside; E and U depend on the target. A vector y != 0 with
    sum_w y_w R_w = 0 over the words of length L refutes it; with m^2 < H^L there always is one, and special values may have one
    beyond. Floats are read as exact rationals. A target that no E and U serve is written beside the certificate. Exit 1:
    refuted, for untied targets. 4: open; this command never says universal.

    Example: utfproof refute-lower values.safetensors -o values.json
    """
    from utfproof.decision.shared import read_shared_host, refute_shared
    from utfproof.weights import write_target

    beside = output.with_name(output.stem + ".target.safetensors")
    require_writable(beside)
    require_apart({"the target": beside}, {"HOST": host})
    values = read_shared_host(host, layers=layers, d_in=d_in, head_dim=head_dim, max_memory=max_memory)
    found = refute_shared(values)
    files = []
    if found.target is not None:
        write_target(beside, found.target, dtype="int8")
        files.append(str(beside))
    files += [str(path) for path in found.certificate.write(output)]
    if found.target is None:
        remove_earlier_target(beside)
    return _outcome(values, found, files, f"refute-lower {host}")


def _outcome(given: SharedHost, found: SharedRefutation, files: list[str], subject: str) -> Outcome:
    """What is said of a host that some target refutes."""
    shape, m = given.shape, given.m
    method = found.certificate.document["evidence"]["method"]
    document: dict[str, Any] = {
        "verdict": "not universal in the shared-attention model",
        "notion": "shared attention",
        "targets": "all untied",
        "free": "E and U",
        "method": method,
        "shape": shape.document(m),
        "words": shape.leaves,
        "word": None if found.word is None else list(found.word),
        "unused": list(given.unused),
        "files": files,
    }
    if found.word is None:
        why = (
            f"m^2 = {m * m} < H^L = {shape.leaves}: some vector annihilates the products R_w (too large to write down)"
        )
        missed = "some target of one word; none is named"
    else:
        entries = len(found.certificate.document["evidence"]["y"])
        why = f"an integer vector with {entries} nonzero entries annihilates the {shape.leaves} products R_w"
        word = ", ".join(map(str, found.word))
        missed = f"the target whose only nonzero route is head word ({word}), M = e_1 e_1^T along it"
    rows = {
        "verdict": f"{document['verdict']} (E and U both free, targets: all untied)",
        "shape": f"{shape}, m = {m}, m^2 = {m * m}, H^L = {shape.leaves}, {'tied' if given.tied else 'untied'} values",
        "why": why,
        "not served": missed,
        "means": "no E and U give this target's outputs under every attention from outside",
        "does not mean": "that the host is not universal functionally, where its own softmax makes the attention, nor that "
        "it fails for weight-tied targets",
        **({"not used": ", ".join(given.unused) + " (the model has R_V only)"} if given.unused else {}),
        "written": ", ".join(files),
    }
    return Outcome(document, subject, rows, 1)
