"""`utfproof refute-lower`: refute a host of the shared-attention model, E and U both free."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from utfproof.cli.options import Certificate, Layers, MaxMemory
from utfproof.cli.outcome import Outcome
from utfproof.commands.hosts import counterexample_of, remove_earlier


def refute_lower(
    *,
    host: Annotated[Path, typer.Argument(help="HOST.safetensors with R_V [L, H, m, m], or [H, m, m] when tied.")],
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

    beside = counterexample_of(output, host)
    values = read_shared_host(host, layers=layers, d_in=d_in, head_dim=head_dim, max_memory=max_memory)
    found = refute_shared(values)
    files = []
    if found.target is not None:
        write_target(beside, found.target, dtype="int8")
        files.append(str(beside))
    files += [str(path) for path in found.certificate.write(output)]
    if found.target is None:
        remove_earlier(beside)
    shape, m, words = values.shape, values.m, values.shape.leaves
    evidence = found.certificate.document["evidence"]
    document: dict[str, Any] = {
        "verdict": "not universal in the shared-attention model",
        "notion": "shared attention",
        "targets": "all untied",
        "free": "E and U",
        "method": evidence["method"],
        "shape": shape.document(m),
        "words": words,
        "word": None if found.word is None else list(found.word),
        "unused": list(values.unused),
        "files": files,
    }
    if found.word is None:
        why = f"m^2 = {m * m} < H^L = {words}: some vector annihilates the products R_w (too large to write down)"
        missed = "some target of one word; none is named"
    else:
        why = f"an integer vector with {len(evidence['y'])} nonzero entries annihilates the {words} products R_w"
        missed = f"the target whose only nonzero route is head word ({', '.join(map(str, found.word))}), M = e_1 e_1^T along it"
    rows = {
        "verdict": f"{document['verdict']} (E and U both free, targets: all untied)",
        "shape": f"{shape}, m = {m}, m^2 = {m * m}, H^L = {words}, {'tied' if values.tied else 'untied'} values",
        "why": why,
        "not served": missed,
        "means": "no E and U give this target's outputs under every attention from outside",
        "does not mean": "that the host is not universal functionally, where its own softmax makes the attention, nor that "
        "it fails for weight-tied targets",
        **({"not used": f"{', '.join(values.unused)} (the model has R_V only)"} if values.unused else {}),
        "written": ", ".join(files),
    }
    return Outcome(document, f"refute-lower {host}", rows, 1)
