"""What simple rules reach on each task, so that an accuracy can be read: computed, exactly where that is possible.

k-hop is a walk: read backwards from a position, the characters are a uniform walk on the complete graph of four, and each hop
waits for the walk's return to one character. Counting walks gives the law of the answer at every position as integers over
powers of 3, also given the last one or two characters. Parentheses: the rules are counted on sequences drawn from the task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from utfproof.errors import MalformedInput
from utfproof.training.tasks import TASKS, seeded

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES = 200_000
_CHARACTERS = range(4)
_CHUNK = 4000


@dataclass(frozen=True)
class Baseline:
    """What a rule reaches. `answers` is the task's second accuracy; `sequences` are those drawn, 0 where it is exact."""

    name: str
    rule: str
    accuracy: float
    answers: float
    sequences: int = 0

    @property
    def standard_error(self) -> float:
        """Of the accuracy; 0 where it is exact."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.sequences) if self.sequences else 0.0


def task_baselines(task: str, sequences: int = SEQUENCES) -> list[Baseline]:
    """All baselines of a task by name. MalformedInput for an unknown one."""
    if task not in TASKS:
        raise MalformedInput(f"task {task!r} is unknown; it has no baselines")
    return parentheses_baselines(sequences) if task == "parentheses" else k_hop_baselines(int(task.split("-")[0]))


# --- k-hop ---------------------------------------------------------------------------------------------------


def answer_laws(hops: int, positions: int) -> Iterator[tuple[Fraction, dict[int, Fraction]]]:
    """For position i = 0, 1, ...: the probability that the answer does not exist, and that of each character, given that
    the character at i is 0 and the one before it 1 (at i = 0 there is none, and no answer either).

    The state of the walk is (hops done, character awaited, character where it stands), at D steps before position i - 1; a
    number of walks over 3^D is a probability. A hop ends when the awaited character is met: then the one after it is the
    new character, which is where the walk stood.
    """
    if hops < 1:
        raise MalformedInput(f"baselines are for at least one hop, got {hops}")
    walks = {(0, 0, 1): 1}
    law = dict.fromkeys(_CHARACTERS, Fraction(0))
    for steps in range(positions):
        # from position i the walk can take i - 1 steps before it leaves the string
        yield Fraction(1 - sum(law.values())), dict(law)
        if steps == 0:
            continue
        following: dict[tuple[int, int, int], int] = {}
        for (done, awaited, here), count in walks.items():
            for there in _CHARACTERS:
                if there == here:
                    continue
                if there != awaited:
                    state = (done, awaited, there)
                elif done + 1 < hops:
                    state = (done + 1, here, there)
                else:
                    law[here] += Fraction(count, 3**steps)
                    continue
                following[state] = following.get(state, 0) + count
        walks = following


@cache
def k_hop_baselines(hops: int, length: int = 100) -> list[Baseline]:
    """Exact baselines of the k-hop task with that query: `length` - 2 answers, after one blank."""
    positions = length - 2
    laws = list(answer_laws(hops, positions))
    nowhere = sum((none for none, _ in laws), Fraction(0))
    character = (positions - nowhere) / len(_CHARACTERS)

    def over_all(right: Fraction, blank: bool) -> tuple[float, float]:
        return float((right + blank) / (positions + 1)), float(right / positions)

    constants = {"blank": (Fraction(0), True), "does not exist": (nowhere, False), "one character": (character, False)}
    majority = max(constants, key=lambda name: constants[name][0] + constants[name][1])
    at_position = sum((max(none, (1 - none) / 4) for none, _ in laws), Fraction(0))
    # of the other characters none is told from another when only the last one is known; two are when two are
    one = sum((max(none, law[0], (1 - none - law[0]) / 3) for none, law in laws), Fraction(0))
    two = sum((max(none, *law.values()) for none, law in laws), Fraction(0))
    return [
        Baseline("chance", "a uniform guess among 4 characters and \"does not exist\", after the blank",
                 *over_all(Fraction(positions, 5), True)),
        Baseline("majority class", f"always the most frequent id ({majority})", *over_all(*constants[majority])),
        Baseline("always blank", "always the blank", *over_all(*constants["blank"])),
        Baseline("position", "the likeliest answer at each position", *over_all(at_position, True)),
        Baseline("last character", "the likeliest answer given the position and its character", *over_all(one, True)),
        Baseline("last two characters", "the likeliest answer given the position, its character and the one before",
                 *over_all(two, True)),
    ]  # fmt: skip


# --- parentheses ---------------------------------------------------------------------------------------------


@cache
def parentheses_baselines(sequences: int = SEQUENCES, seed: int = 0) -> list[Baseline]:
    """Baselines of parenthesis balancing, counted on `sequences` fresh sequences (chance: exact)."""
    if sequences < 1:
        raise MalformedInput(f"baselines need at least one sequence, got {sequences}")
    from utfproof.training.tasks.parentheses import is_balanced, strings

    right = {"balanced": 0, "counting": 0, "counting and ends": 0}
    drawn = 0
    while drawn < sequences:
        size = min(_CHUNK, sequences - drawn)
        text, length = strings(size, 30, seeded(seed, "baselines", drawn // _CHUNK))
        wanted = is_balanced(text, length)
        right["balanced"] += int(wanted.sum())
        for name, guess in parentheses_rules(text, length).items():
            right[name] += int((guess == wanted).sum())
        drawn += size
    share = {name: count / sequences for name, count in right.items()}
    majority = "balanced" if share["balanced"] > 0.5 else "not balanced"
    rules = [
        ("majority class", f"always {majority}", max(share["balanced"], 1 - share["balanced"])),
        ("counting", "balanced when there are as many ( as )", share["counting"]),
        ("counting and both ends", "and the first is ( and the last is )", share["counting and ends"]),
    ]
    chance = Baseline("chance", "a uniform guess between the two answers", 0.5, 0.5)
    return [chance, *(Baseline(name, rule, value, value, sequences) for name, rule, value in rules)]


def parentheses_rules(text: Tensor, length: Tensor) -> dict[str, Tensor]:
    """What each rule says of strings [B, n] with these lengths [B]: bool [B]."""
    from utfproof.training.tasks.parentheses import CLOSE, OPEN

    equal = (text == OPEN).sum(1) == (text == CLOSE).sum(1)
    ends = (text[:, 0] == OPEN) & (text.gather(1, length[:, None] - 1)[:, 0] == CLOSE)
    return {"counting": equal, "counting and ends": equal & ends}
