"""`utfproof slack`: the error of a random host against m / M and depth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from utfproof.emulation.slack import HOSTS
from utfproof.ground.progress import stage
from utfproof.jobs.groups import Limited, Shaped, shared
from utfproof.jobs.job import Job, Outcome
from utfproof.jobs.parameters import argument, option, written


@dataclass(frozen=True, kw_only=True)
class Slack(Shaped, Limited, Job, order=92):
    """Measure the error of a random host of your shape against m / M and depth, beside the recommended m.

    Exit 0: measured, whatever the errors are.
    """

    examples = "Example: utfproof slack random -H 2 -L 3 -d 4 --d-in 4 -o error.png"
    host: str = argument(..., "Random host", choices=tuple(HOSTS))
    output: Path | None = written(None, "Picture to write: error against m / M and L (.png, .pdf, .svg).")
    trials: int = option(1, "Random targets at each point.", kind="positive")
    seed: int = shared("seed")
    law: str = shared("law")

    def run(self) -> Outcome:
        from utfproof.emulation import slack

        shape = self.shape
        steps = slack.slack_steps(shape, slack.RATIOS, self.trials)
        with stage("m / M and depth", steps, unit="runs") as doing:
            found = slack.run_slack(
                shape,
                self.host,
                seed=self.seed,
                trials=self.trials,
                plot_path=self.output,
                law=self.law,
                max_memory=self.limit,
                progress=doing.advance,
            )
        full = [row for row in found if row.layers == shape.layers]
        errors = slack.medians(full, lambda row: row.ratio, lambda row: row.error)
        conditions = slack.medians(full, lambda row: row.ratio, lambda row: row.condition)
        rows = {
            f"m = {ratio:g} M": f"condition {conditions[ratio]:.3g}, relative error {error:.2g}"
            for ratio, error in errors.items()
        }
        plot = {} if self.output is None else {"plot": str(self.output)}
        title = f"{self.host} at {shape}: recommended m = {slack.RECOMMENDED_RATIO:g} M"
        return Outcome({**slack.document(found), **plot}, title, {**rows, **plot})
