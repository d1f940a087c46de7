"""The driver of a sweep: jobs without a result run, all others are left alone. A killed driver loses only running jobs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import Stopped
from utfproof.sweeps.cluster import Run, WorkersLost
from utfproof.sweeps.jobs import Answer, Find, SweepJob, SweepTask, code_digest, run_batch, verdict_of
from utfproof.sweeps.spec import Sweep
from utfproof.sweeps.store import Store

BATCH_SECONDS, LARGEST_BATCH = 1.0, 500
"""Work in a batch, and its most jobs."""


@dataclass
class Summary:
    """How a run ended. before: results that were there; verdicts: of all results, named, by command; failures: jobs that could
    not be run, with the reason and whether it was for want of memory."""

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
        """0: every job has a result, whichever. 3: some could not be run for want of memory alone. 4: otherwise."""
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
    workers: Any,
    *,
    find: Find,
    reuse: bool = False,
    max_memory: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    function: Run = run_batch,
) -> Summary:
    """Run the jobs of a sweep that have no result in `folder` yet (which is made; its parent must exist).

    reuse: keep results of other code. max_memory: bytes allowed to one job. progress: called with the number of jobs that
    ended or have a result. Raises MalformedInput for a folder that cannot serve, Stopped on Ctrl-C, WorkersLost (exit code 4)
    when a cluster is gone. workers: has `run`, as `DaskWorkers`.
    """
    summary, store, pace = Summary(len(sweep.jobs)), Store(folder), _Pace()
    out: dict[str, tuple[int, SweepJob]] = {}
    code = code_digest()

    def missing() -> Iterator[list[SweepTask]]:
        planned = iter(sweep.jobs)
        while chunk := list(itertools.islice(planned, pace.jobs)):
            tasks = []
            for job in chunk:
                found = store.known(job)
                if found is not None:
                    summary.verdicts[job.command, verdict_of(found)] += 1
                    summary.before += 1
                else:
                    out[job.key] = store.position - 1, job
                    tasks.append(SweepTask(job, code, find, max_memory))
            store.db.commit()
            progress(len(chunk) - len(tasks))
            if tasks:
                yield tasks

    try:
        with store.opened(sweep.name, code, jobs=len(sweep.jobs), reuse=reuse):
            batches = missing()
            first = next(batches, None)
            if first is not None:
                with closing(workers.run(itertools.chain([first], batches), function)) as ended:
                    for answers in ended:
                        _keep(answers, out, store, summary)
                        pace.saw(answers)
                        progress(len(answers))
            summary.failures.sort(key=lambda failure: failure[0].key)
            store.finish([(job, reason) for job, reason, _ in summary.failures])
    except KeyboardInterrupt:
        raise Stopped(f"interrupted: {summary.so_far}") from None
    except WorkersLost as error:
        raise WorkersLost(f"{error}: {summary.so_far}") from error
    return summary


def _keep(answers: list[Answer], out: dict[str, tuple[int, SweepJob]], store: Store, summary: Summary) -> None:
    whole = []
    for answer in answers:
        position, job = out.pop(answer.key)
        if answer.result is None:
            summary.failures.append((job, answer.failure or "no answer", answer.resource))
        else:
            whole.append((position, answer))
            summary.verdicts[job.command, verdict_of(answer.result)] += 1
    store.keep(whole)


class _Pace:
    """How many jobs go into a batch: about BATCH_SECONDS of work."""

    def __init__(self) -> None:
        self.jobs, self.work, self.seen = 1, 0.0, 0

    def saw(self, answers: list[Answer]) -> None:
        """Jobs took so long."""
        self.work, self.seen = self.work + sum(answer.seconds for answer in answers), self.seen + len(answers)
        self.jobs = max(1, min(LARGEST_BATCH, 2 * self.jobs, int(BATCH_SECONDS / max(self.work / self.seen, 1e-6))))
