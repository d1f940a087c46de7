"""The driver of a sweep: what has a result is left alone, what is missing runs, and whatever kills the driver costs only the
jobs that were running."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import Stopped
from utfproof.sweeps.executor import Workers, WorkersLost
from utfproof.sweeps.jobs import Answer, SweepJob, SweepTask, code_digest, run_task, verdict_of
from utfproof.sweeps.layout import layout
from utfproof.sweeps.segments import ResultBatch, Segments, run_batch
from utfproof.sweeps.spec import Sweep
from utfproof.sweeps.store import Store


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
    progress: Callable[[int], None] | None = None,
    function: Callable[[SweepTask], Any] = run_task,
) -> Summary:
    """Run the jobs of a sweep that have no result in `folder` yet (which is made; its parent must exist).

    Few jobs are planned first, run one at a time and have a file each; many are planned while others run, go to workers in
    batches and are kept in segments; a folder that is there keeps its layout. reuse: keep results of other code. max_memory:
    bytes allowed to one job. started is called once with the number of results found, progress with the number of jobs that
    ended. Raises MalformedInput for a folder that cannot serve, Stopped on Ctrl-C, WorkersLost (exit code 4) when a cluster's
    scheduler is gone.
    """
    summary = Summary(sweep.size)
    kind = layout(Path(folder)) or (Segments if sweep.is_large else Store)
    told = started or (lambda _: None), progress or (lambda _: None)
    run = _Run(sweep, workers, summary, code_digest(), max_memory, reuse, *told)
    try:
        if kind is Segments:
            run.in_batches(Segments(folder))
        else:
            run.one_by_one(Store(folder), function)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted: {summary.so_far}") from None
    except WorkersLost as error:
        raise WorkersLost(f"{error}: {summary.so_far}") from error
    return summary


@dataclass(frozen=True)
class _Run:
    """What a run is given, as `run_sweep` has it, and the summary of what it comes to."""

    sweep: Sweep
    workers: Workers
    summary: Summary
    code: str
    max_memory: int | None
    reuse: bool
    started: Callable[[int], None]
    progress: Callable[[int], None]

    def one_by_one(self, store: Store, function: Callable[[SweepTask], Any]) -> None:
        """Every result is on disk before the next one is looked at."""
        jobs, summary = self.sweep.jobs, self.summary
        by_key = {job.key: job for job in jobs}
        summary.total = len(by_key)
        with store.opened(self.sweep.name, jobs, self.code, reuse=self.reuse):
            missing = []
            for job in jobs:
                found = store.result(job.key)
                if found is None:
                    missing.append(self._task(job))
                else:
                    summary.verdicts[job.command, verdict_of(found)] += 1
            summary.before = summary.finished
            self.started(summary.before)
            store.begin()
            with closing(self.workers.run(missing, function)) as answers:  # type: ignore[type-var]
                for answer in answers:
                    if answer.result is None:
                        self._failed(by_key[answer.key], answer)
                    else:
                        store.keep(answer)
                        summary.verdicts[by_key[answer.key].command, verdict_of(answer.result)] += 1
                    self.progress(1)
            order = {key: i for i, key in enumerate(by_key)}
            summary.failures.sort(key=lambda entry: order[entry[0].key])
            store.compile(jobs, [(job, reason) for job, reason, _ in summary.failures])

    def in_batches(self, store: Segments) -> None:
        """A segment is on disk, all or nothing, before the next one is looked at; only what runs is held here."""
        summary, pace = self.summary, _Pace()
        out: dict[str, tuple[SweepJob, int]] = {}
        with store.opened(self.sweep.name, self.code, jobs=self.sweep.size, reuse=self.reuse):
            self.started(store.count())
            store.begin()
            with closing(self.workers.run(self._missing(store, out, pace), run_batch)) as segments:  # type: ignore[type-var]
                for segment in segments:
                    ended = [out.pop(key) for key in segment.keys]
                    store.keep(segment, [position for _, position in ended])
                    for (job, _), verdict in zip(ended, segment.verdicts, strict=True):
                        summary.verdicts[job.command, verdict] += 1
                    for answer in segment.failures:
                        self._failed(out.pop(answer.key)[0], answer)
                    pace.saw(segment.seconds)
                    self.progress(len(segment.keys) + len(segment.failures))
            store.compile([(job, reason) for job, reason, _ in summary.failures])

    def _missing(self, store: Segments, out: dict[str, tuple[SweepJob, int]], pace: _Pace) -> Iterator[ResultBatch]:
        """Batches of jobs that have no result, planned when they are asked for; out: gets job and position by key."""
        planned = self.sweep.planned()
        while chunk := list(itertools.islice(planned, pace.jobs)):
            todo, first = [], store.position
            for position, (job, verdict) in enumerate(zip(chunk, store.found(chunk), strict=True), start=first):
                if verdict is None:
                    out[job.key] = job, position
                    todo.append(self._task(job))
                else:
                    self.summary.verdicts[job.command, verdict] += 1
                    self.summary.before += 1
            if todo:
                yield ResultBatch(tuple(todo))
        self.summary.total = store.position - store.first

    def _task(self, job: SweepJob) -> SweepTask:
        return SweepTask(job, self.code, self.max_memory)

    def _failed(self, job: SweepJob, answer: Answer) -> None:
        self.summary.failures.append((job, answer.failure or "no answer", answer.resource))


class _Pace:
    """How many jobs go into a batch: a few seconds of work."""

    SECONDS, MOST = 2.0, 1000

    def __init__(self) -> None:
        self.jobs, self.work, self.seen = 16, 0.0, 0

    def saw(self, seconds: Sequence[float]) -> None:
        """So long jobs took."""
        self.work, self.seen = self.work + sum(seconds), self.seen + len(seconds)
        if self.seen:
            self.jobs = max(1, min(self.MOST, int(self.SECONDS / max(self.work / self.seen, 1e-6))))
