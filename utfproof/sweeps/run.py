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
from utfproof.sweeps.jobs import SweepJob, SweepTask, code_digest, run_task
from utfproof.sweeps.layout import layout
from utfproof.sweeps.segments import ResultBatch, Segments, run_batch
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
    code = code_digest()
    begin = started or (lambda _: None)
    advance = progress or (lambda _: None)
    summary = Summary(sweep.size)
    kind = layout(Path(folder)) or (Segments if sweep.is_large else Store)
    run = _in_batches if kind is Segments else _one_by_one
    try:
        run(sweep, kind(folder), workers, summary, (code, max_memory), reuse, begin, advance, function)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        raise Stopped(f"interrupted: {summary.so_far}") from None
    except WorkersLost as error:
        raise WorkersLost(f"{error}: {summary.so_far}") from error
    return summary


def _one_by_one(
    sweep: Sweep,
    store: Store,
    workers: Workers,
    summary: Summary,
    terms: tuple[str, int | None],
    reuse: bool,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
    function: Callable[[SweepTask], Any],
) -> None:
    """Every result is on disk before the next one is looked at."""
    code, max_memory = terms
    by_key = {job.key: job for job in sweep.jobs}
    summary.total = len(by_key)
    with store.opened(sweep.name, sweep.jobs, code, reuse=reuse):
        missing = []
        for job in sweep.jobs:
            found = store.result(job.key)
            if found is None:
                missing.append(job)
            else:
                summary.verdicts[job.command, found["result"]["verdict"]] += 1
        summary.before = summary.finished
        begin(summary.before)
        store.begin()
        with closing(workers.run([SweepTask(job, code, max_memory) for job in missing], function)) as answers:  # type: ignore[type-var]
            for answer in answers:
                job = by_key[answer.key]
                if answer.result is None:
                    summary.failures.append((job, answer.failure or "no answer", answer.resource))
                else:
                    store.keep(answer)
                    summary.verdicts[job.command, answer.result["result"]["verdict"]] += 1
                advance(1)
        order = {job.key: i for i, job in enumerate(sweep.jobs)}
        summary.failures.sort(key=lambda entry: order[entry[0].key])
        store.compile(sweep.jobs, [(job, reason) for job, reason, _ in summary.failures])


def _in_batches(
    sweep: Sweep,
    store: Segments,
    workers: Workers,
    summary: Summary,
    terms: tuple[str, int | None],
    reuse: bool,
    begin: Callable[[int], None],
    advance: Callable[[int], None],
    function: Callable[[SweepTask], Any],
) -> None:
    """A segment is on disk, all or nothing, before the next one is looked at; only what runs is held here."""
    code, max_memory = terms
    out: dict[str, tuple[SweepJob, int]] = {}
    pace = _Pace()

    def missing() -> Iterator[ResultBatch]:
        planned = sweep.planned()
        while chunk := list(itertools.islice(planned, pace.jobs)):
            todo, first = [], store.position
            for position, (job, verdict) in enumerate(zip(chunk, store.found(chunk), strict=True), start=first):
                if verdict is None:
                    out[job.key] = job, position
                    todo.append(SweepTask(job, code, max_memory))
                else:
                    summary.verdicts[job.command, verdict] += 1
                    summary.before += 1
            if todo:
                yield ResultBatch(tuple(todo))
        summary.total = store.position - store.first

    with store.opened(sweep.name, code, jobs=sweep.size, reuse=reuse):
        begin(store.count())
        store.begin()
        with closing(workers.run(missing(), run_batch)) as segments:  # type: ignore[type-var]
            for segment in segments:
                ended = [out.pop(key) for key in segment.keys]
                store.keep(segment, [position for _, position in ended])
                for (job, _), verdict in zip(ended, segment.verdicts, strict=True):
                    summary.verdicts[job.command, verdict] += 1
                for answer in segment.failures:
                    job, _ = out.pop(answer.key)
                    summary.failures.append((job, answer.failure or "no answer", answer.resource))
                pace.saw(segment.seconds)
                advance(len(segment.keys) + len(segment.failures))
        store.compile([(job, reason) for job, reason, _ in summary.failures])


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
