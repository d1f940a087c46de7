"""Statistics of the tasks' sequences, by the public generators that the paper builds on, for tests/data/upstream-tasks.json.

    python scripts/upstream_statistics.py DYCK.py HOPS.py [--samples 60000] [-o tests/data/upstream-tasks.json]

DYCK.py: task_dyckstream.py of github.com/fjzzq2002/random_transformers. HOPS.py: src/tasks.py of
github.com/chsanford/hop-induction-heads (needs the package bidict). Both are run as they are, from copies that you fetch; none
of their code is here. tests/test_upstream_tasks.py holds this project's generators against the file.
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

from utfproof.training.tasks.khop import FIRST_CHARACTER, NOWHERE

HOPS = (1, 2, 4)
PAIRS = 30


def _mean(values: np.ndarray) -> list[float]:
    """[mean, standard error] over sequences [B]."""
    values = np.asarray(values, dtype=np.float64)
    return [float(values.mean()), float(values.std() / np.sqrt(len(values)))]


def of_parentheses(rows: np.ndarray) -> dict[str, list[float]]:
    """Of sequences [B, 63] of ids 0 pad, 1 "(", 2 ")", 3 "?", the answer behind the "?"."""
    steps = (rows == 1) * 1 - (rows == 2) * 1
    asked = (rows == 3).argmax(1)
    place = np.arange(rows.shape[1])
    steps = np.where(place < asked[:, None], steps, 0)
    depth = steps.cumsum(1)
    answer = rows[np.arange(len(rows)), asked + 1]
    return {
        "length": _mean(asked),
        "length squared": _mean(asked**2),
        "odd length": _mean(asked % 2),
        "balanced": _mean(answer == 2),
        "as many of both": _mean(depth[:, -1] == 0),
        "excess": _mean(depth[:, -1]),
        "excess squared": _mean(depth[:, -1] ** 2),
        "greatest depth": _mean(depth.max(1)),
        "least depth": _mean(depth.min(1)),
        "first is open": _mean(rows[:, 0] == 1),
        "last is close": _mean(rows[np.arange(len(rows)), asked - 1] == 2),
        "adjacent pairs": _mean(((rows[:, :-1] == 1) & (rows[:, 1:] == 2)).sum(1)),
    }


def of_k_hop(text: np.ndarray, answers: np.ndarray) -> dict[str, list[float]]:
    """Of characters [B, n] in 0 ... 3 and answers [B, n], 4 where there is none."""
    return {
        "equal neighbours": _mean((text[:, 1:] == text[:, :-1]).mean(1)),
        "first character": _mean(text[:, 0] == 0),
        "no answer": _mean((answers == 4).mean(1)),
        "no answer at 20": _mean(answers[:, 20] == 4),
        "answer is the character": _mean((answers == text).mean(1)),
        "answer is the one before": _mean((answers[:, 1:] == text[:, :-1]).mean(1)),
        "answer of the neighbour": _mean((answers[:, 1:] == answers[:, :-1]).mean(1)),
    }


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
    found["parentheses"] = of_parentheses(dyck_rows(given.dyck, given.samples))
    for hops in HOPS:
        few = given.samples // 20  # a sequence has 98 answers
        found["k-hop"][str(hops)] = of_k_hop(*hop_rows(given.hops, hops, few)) | {"samples": few}
    given.output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    assert FIRST_CHARACTER + 4 == NOWHERE
    sys.exit(main())
