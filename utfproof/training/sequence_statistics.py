"""Statistics that tell one law of task sequences from another, each a mean over sequences with its standard error."""

from __future__ import annotations

import numpy as np


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
