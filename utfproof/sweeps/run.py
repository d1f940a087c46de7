"""The driver of a sweep: jobs without a result run, all others are left alone. A killed driver loses only running jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from utfproof.errors import Stopped
from utfproof.sweeps.cluster import WorkersLost
from utfproof.sweeps.folder import Folder
from utfproof.sweeps.jobs import SweepJob, code_digest, verdict_of
from utfproof.sweeps.spec import Sweep


@dataclass
class Summary:
    """How a run ended. before: results that were there; lines: all results by key; failures: jobs that could not be run, with
    the reason and whether it was for want of memory or time."""

    total: int
    before: int = 0
    lines: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[tuple[SweepJob, str, bool]] = field(default_factory=list)

    @property
    def verdicts(self) -> Counter[tuple[str, str]]:
        """How many results there are of each command and verdict."""
        return Counter((line["job"]["command"], verdict_of(line)) for line in self.lines.values())

    @property
    def so_far(self) -> str:
        """For those who have to run it again."""
        return f"{len(self.lines)} of {self.total} finished; run again to resume"

    @property
    def exit_code(self) -> int:
        """0: every job has a result, whichever. 3: some could not be run for want of memory alone. 4: otherwise."""
        if not self.failures:
            return 0
        return 3 if all(resource for _, _, resource in self.failures) else 4

    def document(self) -> dict[str, Any]:
        """For --json."""
        counted = sorted(self.verdicts.items())
        return {
            "jobs": self.total,
            "before": self.before,
            "finished": len(self.lines),
            "verdicts": [{"command": name, "verdict": verdict, "jobs": n} for (name, verdict), n in counted],
            "failures": [
                {"key": job.key, "job": job.label, "reason": reason, "resource": resource}
                for job, reason, resource in self.failures
            ],
        }


def run_sweep(
    sweep: Sweep,
    place: Path | str,
    workers: Any,
    *,
    reuse: bool = False,
    max_memory: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Run the jobs of a sweep that have no result in the folder `place` yet (which is made; its parent must exist).

    workers: as `DaskWorkers`. reuse: keep results of other code. max_memory: bytes allowed to one job. progress: called with
    the number of jobs that ended or have a result. Raises MalformedInput for a folder that cannot serve, Stopped on Ctrl-C,
    WorkersLost (exit code 4) when a cluster is gone.
    """
    summary, folder, code = Summary(len(sweep.jobs)), Folder(place), code_digest()
    jobs = {job.key: job for job in sweep.jobs}
    try:
        with folder.opened(sweep.name, code, reuse=reuse):
            known = folder.known()
            summary.lines = {key: known[key] for key in jobs if key in known}
            summary.before = len(summary.lines)
            progress(summary.before)
            missing = [job for key, job in jobs.items() if key not in known]
            if missing:
                with closing(workers.run(missing, code, max_memory)) as ended:
                    for answer in ended:
                        if answer.line is None:
                            summary.failures.append((jobs[answer.key], answer.failure or "no answer", answer.resource))
                        else:
                            folder.keep(answer)
                            summary.lines[answer.key] = answer.line
                        progress(1)
            summary.failures.sort(key=lambda failure: failure[0].key)
            summary.lines = {key: summary.lines[key] for key in jobs if key in summary.lines}
            folder.finish([*summary.lines.values()], [(job, reason) for job, reason, _ in summary.failures])
    except KeyboardInterrupt:
        raise Stopped(f"interrupted: {summary.so_far}") from None
    except WorkersLost as error:
        raise WorkersLost(f"{error}: {summary.so_far}") from error
    return summary
