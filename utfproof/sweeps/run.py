"""The driver of a sweep: what has a result is left alone, what is missing runs, and every result is on disk before the next
one is looked at, so that whatever kills the driver costs only the jobs that were running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import Stopped
from utfproof.sweeps.executor import Workers, WorkersLost
from utfproof.sweeps.jobs import SweepJob, SweepTask, code_digest, run_task
from utfproof.sweeps.spec import Sweep
from utfproof.sweeps.store import Store


@dataclass
class Summary:
    """How a run ended. before: results that were there; verdicts: of all results, by command; failures: jobs that could not be
    run, with the reason and whether it was for want of memory."""

    total: int
    before: int = 0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[tuple[SweepJob, str, bool]] = field(default_factory=list)

    @property
    def finished(self) -> int:
        """Jobs with a result."""
        return sum(self.verdicts.values())

    @property
    def so_far(self) -> str:
        """For those who have to run it again."""
        return f"{self.finished} of {self.total} finished; run again to resume"

    @property
    def exit_code(self) -> int:
        """0: every job has a result, whatever it says. 3: some could not be run for want of memory alone. 4: otherwise."""
        if not self.failures:
            return 0
        return 3 if all(resource for _, _, resource in self.failures) else 4

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "jobs": self.total,
            "before": self.before,
            "finished": self.finished,
            "verdicts": [
                {"command": command, "verdict": verdict, "jobs": count}
                for (command, verdict), count in sorted(self.verdicts.items())
            ],
            "failures": [
                {"key": job.key, "job": job.label, "reason": reason, "resource": resource}
                for job, reason, resource in self.failures
            ],
        }


def run_sweep(
    sweep: Sweep,
    folder: Path | str,
    workers: Workers,
    *,
    reuse: bool = False,
    max_memory: int | None = None,
    started: Callable[[int], None] | None = None,
    progress: Callable[[], None] | None = None,
    function: Callable[[SweepTask], Any] = run_task,
) -> Summary:
    """Run the jobs of a sweep that have no result in `folder` yet (which is made; its parent must exist).

    reuse: keep results of other code. max_memory: bytes allowed to one job. started is called once with the number of
    results found, progress for every job that ends. Raises MalformedInput for a folder that cannot serve, Stopped on
    Ctrl-C, WorkersLost (exit code 4) when a cluster's scheduler is gone.
    """
    store, code = Store(folder), code_digest()
    by_key = {job.key: job for job in sweep.jobs}
    summary = Summary(len(by_key))
    with store.opened(sweep.name, sweep.jobs, code, reuse=reuse):
        try:
            missing = []
            for job in sweep.jobs:
                found = store.result(job.key)
                if found is None:
                    missing.append(job)
                else:
                    summary.verdicts[job.command, found["result"]["verdict"]] += 1
            summary.before = summary.finished
            if started is not None:
                started(summary.before)
            store.begin()
            answers = workers.run([SweepTask(job, code, max_memory) for job in missing], function)
            try:
                for answer in answers:
                    job = by_key[answer.key]
                    if answer.result is None:
                        summary.failures.append((job, answer.failure or "no answer", answer.resource))
                    else:
                        store.keep(answer)
                        summary.verdicts[job.command, answer.result["result"]["verdict"]] += 1
                    if progress is not None:
                        progress()
            finally:
                answers.close()  # type: ignore[attr-defined]
            order = {job.key: i for i, job in enumerate(sweep.jobs)}
            summary.failures.sort(key=lambda entry: order[entry[0].key])
            store.compile(sweep.jobs, [(job, reason) for job, reason, _ in summary.failures])
        except KeyboardInterrupt:
            raise Stopped(f"interrupted: {summary.so_far}") from None
        except WorkersLost as error:
            raise WorkersLost(f"{error}: {summary.so_far}") from error
    return summary
