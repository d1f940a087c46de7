"""What simple rules reach on each task, so that an accuracy can be read: computed, exactly where that is possible.

k-hop is a walk: read backwards from a position, the characters are a uniform walk on the complete graph of four, and each hop
waits for the walk's return to one character. Counting walks gives the law of the answer at every position as integers over
powers of 3, also given a window of the last characters. Parentheses: the rules are counted on sequences drawn from the task;
rules that look at the last characters are fitted on one half of them and scored on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.training.tasks import TASKS, seeded

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCES = 200_000
WINDOWS = range(1, 6)
"""Numbers of last characters that rules look at."""
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


def standing(accuracy: float, rules: Sequence[Baseline]) -> str:
    """What rules an accuracy passes and which is the next that it does not, such as: above counting (93.1 %), below ..."""
    ordered = sorted(rules, key=lambda rule: rule.accuracy)
    passed = [rule for rule in ordered if rule.accuracy < accuracy]
    ahead = ordered[len(passed) :]
    said = [
        f"{word} {rule.name} ({100 * rule.accuracy:.1f} %)"
        for word, group in (("above", passed[-1:]), ("below", ahead[:1]))
        for rule in group
    ]
    return ", ".join(said)


# --- k-hop ---------------------------------------------------------------------------------------------------


Window = tuple[int, ...]
"""The last characters, the latest first, renamed in the order in which they appear: 0, 1, ..."""


def windows(size: int) -> dict[Window, Fraction]:
    """Probability of every window of so many characters. Neighbours differ; a renaming gives equal laws."""
    found: dict[Window, Fraction] = {(0,): Fraction(1)}
    for _ in range(size - 1):
        longer: dict[Window, Fraction] = {}
        for window, chance in found.items():
            known = max(window) + 1
            for there in range(min(known + 1, len(_CHARACTERS))):
                if there != window[-1]:
                    names = len(_CHARACTERS) - known if there == known else 1
                    longer[*window, there] = chance * names / 3
        found = longer
    return found


def answer_laws(hops: int, positions: int, window: Window = (0, 1)) -> Iterator[tuple[Fraction, dict[int, Fraction]]]:
    """For position i = 0, 1, ...: the probability that the answer does not exist, and that of each character, given the last
    characters (those of them that there are: i + 1 at most).

    The state of the walk is (hops done, character awaited, character where it stands); a number of walks over 3^D is a
    probability, D steps behind the window. A hop ends when the awaited character is met: then the one after it is the new
    character, which is where the walk stood.
    """
    if hops < 1:
        raise MalformedInput(f"baselines are for at least one hop, got {hops}")
    for size in range(1, min(len(window), positions + 1)):
        yield _known(hops, window[:size])
    if positions < len(window):
        return
    none, law = _known(hops, window)
    if not none:
        for _ in range(len(window) - 1, positions):
            yield none, dict(law)
        return
    walks = {_walked(hops, window): 1}
    for steps in range(1, positions - len(window) + 2):
        yield Fraction(1 - sum(law.values())), dict(law)
        following: dict[tuple[int, int, int], int] = {}
        for (done, awaited, here), count in walks.items():
            for there in _CHARACTERS:
                if there == here:
                    continue
                state = _step(hops, (done, awaited, here), there)
                if isinstance(state, int):
                    law[state] += Fraction(count, 3**steps)
                else:
                    following[state] = following.get(state, 0) + count
        walks = following


def _step(hops: int, state: tuple[int, int, int], there: int) -> tuple[int, int, int] | int:
    """The walk's state after one more character, or the answer."""
    done, awaited, here = state
    if there != awaited:
        return done, awaited, there
    return (done + 1, here, there) if done + 1 < hops else here


def _walked(hops: int, window: Window) -> Any:
    """The walk's state behind a window, or the answer where the window holds it."""
    state: Any = (0, window[0], window[0])
    for there in window[1:]:
        state = _step(hops, state, there)
        if isinstance(state, int):
            return state
    return state


def _known(hops: int, window: Window) -> tuple[Fraction, dict[int, Fraction]]:
    """The law where nothing stands behind the window: the answer in it, or none."""
    state = _walked(hops, window)
    law = dict.fromkeys(_CHARACTERS, Fraction(0))
    if isinstance(state, int):
        law[state] = Fraction(1)
    return Fraction(not isinstance(state, int)), law


def _window_rules(hops: int, positions: int, size: int) -> tuple[Fraction, Fraction]:
    """Positions that the likeliest answer given a window gets right, the position known and unknown, of `positions`.

    Unseen characters are alike, so a rule chooses among those of the window, "does not exist", and one unseen.
    """
    placed = Fraction(0)
    sums: dict[Window, dict[int | None, Fraction]] = {}
    for window, chance in windows(size).items():
        for place, (none, law) in enumerate(answer_laws(hops, positions, window)):
            seen = window[: place + 1]  # before the window is full it is another rule's
            total = sums.setdefault(seen, {})
            for answer, share in ({None: none} | law).items():
                total[answer] = total.get(answer, Fraction(0)) + chance * share
            placed += chance * max(none, *law.values())
    # windows cut by the start of the string are windows of their own: they are told by their length
    unplaced = sum((max(total.values()) for total in sums.values()), Fraction(0))
    return placed, unplaced


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
    found = [
        Baseline("chance", "a uniform guess among 4 characters and \"does not exist\", after the blank",
                 *over_all(Fraction(positions, 5), True)),
        Baseline("majority class", f"always the most frequent id ({majority})", *over_all(*constants[majority])),
        Baseline("always blank", "always the blank", *over_all(*constants["blank"])),
        Baseline("position", "the likeliest answer at each position", *over_all(at_position, True)),
    ]  # fmt: skip
    for size in WINDOWS:
        placed, unplaced = _window_rules(hops, positions, size)
        name = window_name(size)
        found.append(
            Baseline(f"{name}, no position", f"the likeliest answer given the {name}", *over_all(unplaced, True))
        )
        found.append(Baseline(name, f"the likeliest answer given the position and the {name}", *over_all(placed, True)))
    return found


def window_name(size: int) -> str:
    """Such as last two characters."""
    return "last character" if size == 1 else f"last {('two', 'three', 'four', 'five')[size - 2]} characters"


# --- parentheses ---------------------------------------------------------------------------------------------


@cache
def parentheses_baselines(sequences: int = SEQUENCES, seed: int = 0) -> list[Baseline]:
    """Baselines of parenthesis balancing, counted on `sequences` fresh sequences (chance: exact)."""
    if sequences < 1:
        raise MalformedInput(f"baselines need at least one sequence, got {sequences}")
    import torch

    from utfproof.training.tasks.parentheses import is_balanced, strings

    right = {"balanced": 0, "counting": 0, "counting and ends": 0}
    seen = {
        (size, placed): torch.zeros(2, 2, 4**size * (61 if placed else 1), dtype=torch.int64)
        for size in WINDOWS
        for placed in (False, True)
    }
    drawn = 0
    while drawn < sequences:
        size = min(_CHUNK, sequences - drawn)
        text, length = strings(size, 30, seeded(seed, "baselines", drawn // _CHUNK))
        wanted = is_balanced(text, length)
        right["balanced"] += int(wanted.sum())
        for name, guess in parentheses_rules(text, length).items():
            right[name] += int((guess == wanted).sum())
        for (window, placed), counts in seen.items():
            keys = _endings(text, length, window, placed)
            for half, answer in ((0, 0), (0, 1), (1, 0), (1, 1)):
                chosen = keys[half::2][wanted[half::2] == bool(answer)]
                counts[half, answer] += torch.bincount(chosen, minlength=counts.shape[2])
        drawn += size
    share = {name: count / sequences for name, count in right.items()}
    majority = "balanced" if share["balanced"] > 0.5 else "not balanced"
    rules = [
        ("majority class", f"always {majority}", max(share["balanced"], 1 - share["balanced"])),
        ("counting", "balanced when there are as many ( as )", share["counting"]),
        ("counting and both ends", "and the first is ( and the last is )", share["counting and ends"]),
    ]
    chance = Baseline("chance", "a uniform guess between the two answers", 0.5, 0.5)
    found = [chance, *(Baseline(name, rule, value, value, sequences) for name, rule, value in rules)]
    for (window, placed), counts in seen.items():
        name = window_name(window) + ("" if placed else ", no length")
        rule = f"the likelier answer given the {'length and the ' if placed else ''}{window_name(window)}"
        value = _fitted_share(*counts)
        found.append(Baseline(name, rule, value, value, sequences // 2))
    return found


def _endings(text: Tensor, length: Tensor, window: int, placed: bool) -> Tensor:
    """A number for the last characters of each string [B] (pads where it is shorter), with its length where that counts."""
    import torch

    places = length[:, None] - 1 - torch.arange(window, device=text.device)
    last = torch.where(places >= 0, text.gather(1, places.clamp(min=0)), 0)
    return (last * 4 ** torch.arange(window, device=text.device)).sum(1) + 4**window * (length * placed)


def _fitted_share(fitted: Tensor, scored: Tensor) -> float:
    """What the likelier answers [2, keys] of one half get right in the other; "balanced" is guessed of what was not seen."""
    balanced = fitted[1] >= fitted[0]
    return float((scored[1][balanced].sum() + scored[0][~balanced].sum()) / scored.sum().clamp(min=1))


def parentheses_rules(text: Tensor, length: Tensor) -> dict[str, Tensor]:
    """What each rule says of strings [B, n] with these lengths [B]: bool [B]."""
    from utfproof.training.tasks.parentheses import CLOSE, OPEN

    equal = (text == OPEN).sum(1) == (text == CLOSE).sum(1)
    ends = (text[:, 0] == OPEN) & (text.gather(1, length[:, None] - 1)[:, 0] == CLOSE)
    return {"counting": equal, "counting and ends": equal & ends}
