"""`utfproof optimum`: a trained target embedded into fixed hosts, and E and U trained on from there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, Refuted
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option
from utfproof.shapes import listed_numbers


@dataclass(frozen=True, kw_only=True)
class Optimum(Limited, Job, order=160):
    """Embed a trained target into fixed hosts, compare accuracies and logits, and fine-tune E and U from there.

    What the target's file has already is not repeated. Exit 1: an embedded host's logits are not the target's.
    """

    examples = (
        "Example: utfproof train parentheses/trained-own-width/attention -o runs/own; "
        "utfproof optimum runs/own --hosts sparse,random --steps 200; utfproof tables"
    )
    folder: Path = argument(..., "RUNDIR of a finished run of host trained-own-width (utfproof train ... -o RUNDIR).")
    hosts: str | None = option(None, "Comma-separated; all that are defined for the target by default.")
    perturbations: str = option("0,0.001,0.01,0.1", "Relative sizes of the noise on E and U; 0: the embedded point.")
    steps: int = option(200, "Steps from each of these points.")
    learning_rate: float | None = option(None, "Of these steps; that of the trained run by default.")
    warmup: int = option(20, "Of these steps, after which the rate falls to 0.")
    eval_sequences: int = option(10000, "Fresh sequences for accuracies and for the agreement of logits.")
    threads: int | None = option(None, "Threads of torch; its own choice by default.", kind="parallel")
    results: Path | None = option(None, "Folder of result files; results/optimum by default.")

    def run(self) -> Outcome:
        from utfproof.ground.arrays import require_device

        require_device("cpu")
        if self.results is not None and self.results.exists() and not self.results.is_dir():
            raise MalformedInput(f"{self.results} is a file; name a folder")
        from utfproof.training.optimum import DEFAULT_FOLDER, OptimumAgreement, OptimumSetting, read_source, run

        if self.threads is not None:
            from utfproof.jobs.train import use_threads

            use_threads(self.threads)
        setting = OptimumSetting(
            hosts=None if self.hosts is None else tuple(word.strip() for word in self.hosts.split(",")),
            perturbations=tuple(listed_numbers("perturbations", self.perturbations, float)),
            steps=self.steps,
            learning_rate=self.learning_rate,
            warmup=self.warmup,
            eval_sequences=self.eval_sequences,
            folder=DEFAULT_FOLDER if self.results is None else self.results,
            max_memory=self.limit,
        )
        setting.check()
        source = read_source(self.folder)
        parts = 1 + len(setting.hosts_of(source)) * (1 + len(setting.perturbations))
        with stage("optimum", parts, unit="parts") as doing:
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
        for part in host["trained_on"]:
            before, after = part["before"], part["after"]
            start = "trained on" if part["perturbation"] == 0 else f"from a perturbation of {part['perturbation']:g}"
            rows[f"{name}, {start}, {part['steps']} steps"] = (
                f"accuracy {before['accuracy']:.2%} -> {after['accuracy']:.2%}, loss {_loss(before)} -> {_loss(after)}"
            )
    rows.update({f"without {name}": reason for name, reason in document["left_out"].items()})
    return rows


def _loss(scores: dict[str, Any]) -> str:
    return "not finite" if scores["loss"] is None else f"{scores['loss']:.4g}"
