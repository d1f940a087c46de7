"""`utfproof optimum`: a trained target embedded into fixed hosts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from utfproof.cli.options import MaxMemory, rare
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput

if TYPE_CHECKING:
    from utfproof.training.optimum import Held, Optimum


def optimum(
    *,
    folder: Annotated[
        Path, typer.Argument(help="RUNDIR of a finished run of host trained-own-width.", metavar="RUNDIR")
    ],
    hosts: Annotated[
        str | None, typer.Option(help="Comma-separated; all that are defined for the target by default.")
    ] = None,
    eval_sequences: Annotated[int, rare(help="Fresh sequences for accuracies and logits.")] = 10000,
    results: Annotated[Path | None, typer.Option(help="Folder of result files; results/optimum by default.")] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Embed a trained target into fixed hosts; compare accuracies.

    Logits are compared too. Exit 1: an embedded host's logits are not the target's.

    Example: utfproof train parentheses/trained-own-width/attention -o runs/own; utfproof optimum runs/own --hosts
    sparse-front,random; utfproof tables
    """
    from utfproof.util.arrays import require_device

    require_device("cpu")
    if results is not None and results.exists() and not results.is_dir():
        raise MalformedInput(f"{results} is a file; name a folder")
    from utfproof.training import optimum as training

    asked = [] if hosts is None else [word.strip() for word in hosts.split(",")]
    found = training.optimum(training.read_source(folder), asked, eval_sequences, max_memory)
    training.write_document(found, training.DEFAULT_FOLDER if results is None else results)
    return Outcome(asdict(found), f"optimum {found.key}", _rows(found))


def _rows(found: Optimum) -> dict[str, str]:
    rows = {"trained": f"accuracy {found.accuracy:.2%}, loss {_loss(found)}"}
    for name, held in found.hosts.items():
        rows[f"{name}, m = {held.m}"] = (
            f"embedded: accuracy {held.accuracy:.2%}, loss {_loss(held)}; logits differ by at most "
            f"{held.largest_difference:.1e} (largest {held.largest_logit:.3g})"
        )
    return rows | {f"without {name}": reason for name, reason in found.left_out.items()}


def _loss(found: Optimum | Held) -> str:
    return "not finite" if found.loss is None else f"{found.loss:.4g}"
