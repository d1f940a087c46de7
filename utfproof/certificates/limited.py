"""The checker in a process of its own, under the system's limit of memory: started by `checking`, which limits its time."""

from __future__ import annotations

import json
import signal
import sys

from utfproof.certificates import checker


def limit_memory(count: int) -> None:
    """Have the system refuse this process more than so many bytes, where it can."""
    try:
        import resource
    except ImportError:
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (count if most == resource.RLIM_INFINITY else min(count, most), most))


def main(task: str) -> None:
    """Answer each line of standard input, [path, in a folder], with a line, [code, message, facts]. task: JSON of [bytes of
    memory, whether to use NumPy, files and folders of weights]."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    memory, numpy, weights = json.loads(task)
    limit_memory(memory)
    options = checker.Options(numpy, tuple(weights))
    for line in sys.stdin:
        path, in_folder = json.loads(line)
        verdict = checker.judge(path, options, in_folder)
        print(json.dumps([verdict.code, verdict.message, verdict.facts]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
