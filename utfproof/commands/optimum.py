"""`utfproof optimum`: a trained target embedded into fixed hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from utfproof.cli.command import command
from utfproof.cli.options import MaxMemory, argument, option, parallel
from utfproof.cli.outcome import Outcome
from utfproof.errors import MalformedInput, Refuted
from utfproof.ground.progress import stage


@command(
    "Example: utfproof train parentheses/trained-own-width/attention -o runs/own; "
    "utfproof optimum runs/own --hosts sparse-front,random; utfproof tables"
)
def optimum(
    *,
    folder: Annotated[
        Path, argument("RUNDIR of a finished run of host trained-own-width (utfproof train ... -o RUNDIR).")
    ],
    hosts: Annotated[str | None, option("Comma-separated; all that are defined for the target by default.")] = None,
    eval_sequences: Annotated[
        int, option("Fresh sequences for accuracies and for the agreement of logits.", advanced=True)
    ] = 10000,
    threads: Annotated[
        int | None, option("Threads of torch; its own choice by default.", check=parallel, advanced=True)
    ] = None,
    results: Annotated[Path | None, option("Folder of result files; results/optimum by default.")] = None,
    max_memory: MaxMemory = None,
) -> Outcome:
    """Embed a trained target into fixed hosts, and compare accuracies and logits.

    What the target's file has already is not repeated. Exit 1: an embedded host's logits are not the target's.
    """
    from utfproof.ground.arrays import require_device

    require_device("cpu")
    if results is not None and results.exists() and not results.is_dir():
        raise MalformedInput(f"{results} is a file; name a folder")
    from utfproof.training.optimum import DEFAULT_FOLDER, OptimumAgreement, OptimumSetting, read_source, run

    if threads is not None:
        from utfproof.commands.train import use_threads

        use_threads(threads)
    setting = OptimumSetting(
        hosts=None if hosts is None else tuple(word.strip() for word in hosts.split(",")),
        eval_sequences=eval_sequences,
        folder=DEFAULT_FOLDER if results is None else results,
        max_memory=max_memory,
    )
    setting.check()
    source = read_source(folder)
    with stage("optimum", len(setting.hosts_of(source)), unit="hosts") as doing:
        document = run(source, setting, lambda _: doing.advance())
    wrong = [name for name, host in document["hosts"].items() if not OptimumAgreement(**host["agreement"]).holds]
    failure = None
    if wrong:
        gap = document["hosts"][wrong[0]]["agreement"]["largest_difference"]
        failure = Refuted(f"host {wrong[0]}: logits of the embedded model differ from the target's by {gap:.3g}")
    return Outcome(document, f"optimum {document['key']}", _rows(document), failure=failure)


def _rows(document: dict[str, Any]) -> dict[str, str]:
    trained = document["trained"]
    rows = {"trained": f"accuracy {trained['accuracy']:.2%}, loss {_loss(trained)}"}
    for name, host in document["hosts"].items():
        gap, scores = host["agreement"], host["embedded"]
        rows[f"{name}, m = {host['m']}"] = (
            f"embedded: accuracy {scores['accuracy']:.2%}, loss {_loss(scores)}; logits differ by at most "
            f"{gap['largest_difference']:.1e} (largest {gap['largest_logit']:.3g})"
        )
    rows.update({f"without {name}": reason for name, reason in document["left_out"].items()})
    return rows


def _loss(scores: dict[str, Any]) -> str:
    return "not finite" if scores["loss"] is None else f"{scores['loss']:.4g}"
