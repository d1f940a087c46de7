"""A campaign of mutants: certificates of the corpus and drawn ones, changed in structure or in bytes, before all judges.

    python tests/campaign.py --count 100000 [--seed 1] [--minutes 30]

Prints how many were judged, how the verdicts agree, and every one that should not be: accepted by the checker and not by the
second judge (a falsehood), a check that broke off, one over 20 s, another disagreement. Exit status 0 if there is none.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import make_corpus as corpus
from sceptic import judge
from test_certificates import LIMITS, copy_sidecars
from test_fuzz_checker import Hangs, corpus_inputs, inputs, stop, with_files_of_the_corpus

from utfproof.certificates import checker

SLOW = 20


def judged(path, raw):
    """(the checker's verdict, the second judge's, what is wrong with them or "")."""
    start = time.process_time()
    signal.alarm(60)
    try:
        verdict = checker.check_file(path, LIMITS)
        took = time.process_time() - start
        second = judge(raw, path.parent)
    except Hangs:
        return None, None, "a judge takes more than 60 s"
    except Exception as error:
        return None, None, f"the second judge broke off: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if "broke off" in verdict.message:
        return verdict.code, second, f"the check broke off: {verdict.message}"
    if took > SLOW:
        return verdict.code, second, f"the check took {took:.0f} s"
    if verdict.code == 0 and second in (1, 2):
        return 0, second, "FALSEHOOD: accepted by the checker alone"
    if second is not None and verdict.code != 3 and verdict.code != second:
        return verdict.code, second, "the judges disagree"
    return verdict.code, second, ""


@contextmanager
def held(folder):
    """The corpus as it is now, whatever is done to the files meanwhile."""
    place = corpus.CORPUS
    shutil.copytree(place, folder / "corpus")
    corpus.CORPUS = folder / "corpus"
    try:
        yield
    finally:
        corpus.CORPUS = place


def campaign(count, seed, folder, until):
    """Verdicts counted, and what is wrong: (kind of mutant, what, its bytes)."""
    copy_sidecars(folder)
    with_files_of_the_corpus(folder)
    path, seen, wrong = folder / "mutant.json", Counter(), []
    signal.signal(signal.SIGALRM, stop)
    halves = corpus_inputs(count, seed), inputs(count, seed)
    for number in range(count):
        if time.monotonic() > until:
            break
        how, raw = next(halves[number % 3 == 2])
        path.write_bytes(raw)
        first, second, problem = judged(path, raw)
        seen[first, second] += 1
        if problem:
            wrong.append((how, problem, raw))
            print(f"{problem} ({how}): {raw[:600]!r}", flush=True)
        if number % 2000 == 1999:
            print(f"{number + 1} mutants, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return seen, wrong


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="stop after so many")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, held(Path(folder)):
        seen, wrong = campaign(args.count, args.seed, Path(folder), time.monotonic() + 60 * args.minutes)
    names = {0: "valid", 1: "invalid", 2: "malformed", 3: "over a limit", None: "too large to judge"}
    for (first, second), times in sorted(seen.items(), key=str):
        print(f"{times:8} checker {names[first]}, second judge {names[second]}")
    falsehoods = sum("FALSEHOOD" in problem for _, problem, _ in wrong)
    print(f"{sum(seen.values())} mutants: {falsehoods} accepted falsehoods, {len(wrong)} wrong in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
