"""Statistics of the tasks' sequences, by the public generators that the paper builds on, for tests/data/upstream-tasks.json.

    python scripts/upstream_statistics.py DYCK.py HOPS.py [--samples 60000] [-o tests/data/upstream-tasks.json]

DYCK.py: task_dyckstream.py of github.com/fjzzq2002/random_transformers. HOPS.py: src/tasks.py of
github.com/chsanford/hop-induction-heads (needs the package bidict). Both are run as they are, from copies that you fetch; none
of their code is here. tests/test_upstream_tasks.py holds this project's generators against the file. What is counted:
`utfproof.training.sequence_statistics`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.training import sequence_statistics as statistics
from utfproof.training.tasks.khop import FIRST_CHARACTER, NOWHERE

HOPS = (1, 2, 4)
PAIRS = 30


def dyck_rows(source: Path, samples: int) -> np.ndarray:
    """Sequences [samples, 63] of the parenthesis generator: its functions alone, not the training around them."""
    random.seed(0)
    space: dict[str, Any] = {"random": random, "np": np, "task": f"dyckstream_{PAIRS}", "Trainer": object}
    exec(compile(source.read_text(), str(source), "exec"), space)
    return np.array([space["gen_single"]() for _ in range(samples)])


def hop_rows(source: Path, hops: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Characters [samples, 98] (0 ... 3) and answers (0 ... 3, 4 for "does not exist") of the k-hop generator."""
    space: dict[str, Any] = {"__name__": "tasks"}
    exec(compile(source.read_text(), str(source), "exec"), space)
    made = space["InductionHopsFullSequenceTask"](100, 4, 0, 16, np.random.RandomState(hops))
    texts, answers = [], []
    for _ in range(samples):
        text, answer = made.get_strings(hops=hops)
        texts.append([ord(c) - ord("a") for c in text[1:]])
        answers.append([4 if c == made.DOES_NOT_EXIST_CHAR else ord(c) - ord("a") for c in answer[1:]])
    return np.array(texts), np.array(answers)


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dyck", type=Path)
    parser.add_argument("hops", type=Path)
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("-o", "--output", type=Path, default=Path("tests/data/upstream-tasks.json"))
    given = parser.parse_args()
    found: dict[str, Any] = {"samples": given.samples, "sources": {}, "parentheses": {}, "k-hop": {}}
    for path in (given.dyck, given.hops):
        found["sources"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    found["parentheses"] = statistics.of_parentheses(dyck_rows(given.dyck, given.samples))
    for hops in HOPS:
        few = given.samples // 20  # a sequence has 98 answers
        found["k-hop"][str(hops)] = statistics.of_k_hop(*hop_rows(given.hops, hops, few)) | {"samples": few}
    given.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    assert FIRST_CHARACTER + 4 == NOWHERE
    sys.exit(main())
