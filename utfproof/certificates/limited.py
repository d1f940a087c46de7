"""The checker in a process of its own: started by `checking`, which limits its memory and its time."""

from __future__ import annotations

import json
import signal
import sys

from utfproof.certificates import checker


def main(numpy: bool, weights: list[str]) -> None:
    """Answer each line of standard input, [path, in a folder], with a line, [code, message, facts]."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    options = checker.Options(numpy, tuple(weights))
    for line in sys.stdin:
        path, in_folder = json.loads(line)
        verdict = checker.judge(path, options, in_folder)
        print(json.dumps([verdict.code, verdict.message, verdict.facts]), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
