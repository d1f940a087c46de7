"""The checker in a child process under the system's limits of memory and time: what `utfproof check` runs."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from utfproof.certificates import checker
from utfproof.certificates.checker import INTERNAL, LIMIT, Options, Verdict

PATIENCE = 1.0
"""Seconds beyond the limit after which a child that does not stop by itself is killed."""
PACKAGE = Path(__file__).parents[2]


class Limited:
    """One child process checks one certificate after the other; a new one is started where it had to be killed."""

    def __init__(self, options: Options, memory: int, seconds: int) -> None:
        self.memory, self.seconds = memory, seconds
        self.task = json.dumps([options.numpy, options.weights, memory, seconds])
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Limited:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int | None:
        """Kill the child, if there is one; its exit status."""
        child, self.child = self.child, None
        if child is None:
            return None
        status = child.poll()
        child.kill()
        child.communicate()
        return status if status is not None else child.returncode

    def judge(self, path: str, in_folder: bool) -> Verdict:
        """The child's verdict on one file."""
        if self.child is None:
            paths = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))
            self.child = subprocess.Popen(
                [sys.executable, "-m", __name__, self.task],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
        try:
            return self._asked(self.child, json.dumps([path, in_folder]))
        except BaseException:
            self.stop()
            raise

    def _asked(self, child: subprocess.Popen[bytes], question: str) -> Verdict:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(question.encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            return self._died()
        end, answer = time.monotonic() + self.seconds + PATIENCE, b""
        while not answer.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                self.stop()
                return Verdict(LIMIT, late(self.seconds))
            piece = os.read(child.stdout.fileno(), 2**16)
            if not piece:
                return self._died()
            answer += piece
        return Verdict(*json.loads(answer))

    def _died(self) -> Verdict:
        status = self.stop() or 0
        if -status == signal.SIGXCPU:
            return Verdict(LIMIT, late(self.seconds))
        if -status == signal.SIGKILL:
            return Verdict(LIMIT, f"the system ended the check; {allowed(self.memory)}")
        return Verdict(INTERNAL, f"no verdict, the checking process ended with status {status}; {allowed(self.memory)}")


def late(seconds: int) -> str:
    """What is printed where time ran out."""
    return f"took more than the {seconds} s that --max-seconds allows"


def allowed(memory: int) -> str:
    """The memory that a check may take."""
    return f"--max-memory allows {memory} bytes"


# --- the child -----------------------------------------------------------------------------------------------


class OutOfTime(checker.OverLimit):
    """Raised by the timer."""


def serve(options: Options, memory: int, seconds: int) -> None:
    """Answer each line of standard input, [path, in a folder], with a line, [code, message, facts]."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop

    def ring(_: int, __: FrameType | None) -> None:
        raise OutOfTime(late(seconds))

    signal.signal(signal.SIGALRM, ring)
    limit_memory(memory)
    for line in sys.stdin:
        limit_processor(seconds)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            verdict = checker.judge(*_question(line, options))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except OutOfTime as stop:
            verdict = Verdict(LIMIT, str(stop))
        if verdict.code == LIMIT and verdict.message == checker.NO_MEMORY:
            verdict = replace(verdict, message=f"{verdict.message}; {allowed(memory)}")
        print(json.dumps([verdict.code, verdict.message, verdict.facts]), flush=True)


def _question(line: str, options: Options) -> tuple[str, Options, bool]:
    path, in_folder = json.loads(line)
    return path, options, in_folder


def limit_memory(count: int) -> None:
    """Have the system refuse this process more than so many bytes, where it can."""
    try:
        import resource
    except ImportError:
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    count = count if most == resource.RLIM_INFINITY else min(count, most)
    resource.setrlimit(resource.RLIMIT_AS, (count, most))


def limit_processor(seconds: int) -> None:
    """Have the system end this process when its cores have worked much longer than this from now on: no parent may be left."""
    try:
        import resource
    except ImportError:
        return
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    end = math.ceil(used) + (seconds + 2) * (os.cpu_count() or 1)
    resource.setrlimit(resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))


def main(argv: list[str]) -> None:
    """The child's command line: one JSON array."""
    numpy, weights, memory, seconds = json.loads(argv[0])
    serve(Options(numpy, tuple(weights)), memory, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
