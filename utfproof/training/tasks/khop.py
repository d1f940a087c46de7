"""k-hop induction heads (Section 5.1 and Appendix G): at every position, the character that k hops back lead to.

Ids: 0 ... 16 the queries for so many hops, 17 ... 20 the characters, 21 "does not exist", 22 blank; the vocabulary has
30 ids, as in the paper, the last seven unused. One hop from a source position goes to the last strictly earlier
occurrence of its character, then to the position after that; once there is none, there is none for all further hops.

Baselines are exact. Read backwards from a position, the characters are a uniform walk on the complete graph of four
vertices, and each hop waits for the walk to return to one character. Counting walks gives the probability of each answer
at every position, also given a window of the last characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.training.task import Baseline, Batch, Kind, Setting, check_loss, check_size, fixed_attention

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST_HOPS = 16
"""The largest query."""
FIRST_CHARACTER = MOST_HOPS + 1
CHARACTERS = 4
NOWHERE = FIRST_CHARACTER + CHARACTERS
BLANK = NOWHERE + 1
VOCABULARY = 30


@dataclass(frozen=True)
class KHop:
    """The k-hop task: a query for k hops, k uniform from min_hops to max_hops, then all but two of `length` characters.

    Targets: blank, then the k-hop character of every position (or "does not exist"). Loss "sequence": over all positions;
    "answer": without the blank.
    """

    min_hops: int = 2
    max_hops: int = 2
    length: int = 100
    loss: str = "sequence"

    def __post_init__(self) -> None:
        check_loss(self.loss)
        if not 0 <= self.min_hops <= self.max_hops <= MOST_HOPS:
            raise MalformedInput(
                f"hops from {self.min_hops} to {self.max_hops}: need 0 <= least <= most <= {MOST_HOPS}"
            )
        if self.length < 3:
            raise MalformedInput(f"length {self.length}: k-hop strings have at least 3 characters")

    @property
    def name(self) -> str:
        """Such as 2-hop, or 1-4-hop for queries of several kinds."""
        return f"{self.max_hops}-hop" if self.min_hops == self.max_hops else f"{self.min_hops}-{self.max_hops}-hop"

    @property
    def vocabulary(self) -> int:
        """30 (d_in = d_out), of which 23 are used."""
        return VOCABULARY

    @property
    def context(self) -> int:
        """The query and all characters but two: 99 tokens."""
        return self.length - 1

    @property
    def input_ids(self) -> tuple[int, ...]:
        """The queries that are asked, and the characters."""
        return (*range(self.min_hops, self.max_hops + 1), *range(FIRST_CHARACTER, NOWHERE))

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh sequences [size, context] on the generator's device."""
        import torch

        device = generator.device
        text = characters(check_size(size), self.length - 2, generator)  # the last two characters change no answer
        if self.min_hops == self.max_hops:
            query = torch.full((size, 1), self.max_hops, device=device)
        else:
            query = torch.randint(self.min_hops, self.max_hops + 1, (size, 1), generator=generator, device=device)
        answers = hop_answers(text, query, self.min_hops, self.max_hops)
        inputs = torch.cat([query, text + FIRST_CHARACTER], 1)
        targets = torch.cat([torch.full_like(query, BLANK), answers], 1)
        everywhere = torch.ones_like(inputs, dtype=torch.bool)
        answered = everywhere.clone()
        answered[:, 0] = False
        return Batch(inputs, targets, everywhere if self.loss == "sequence" else answered, everywhere, answered)


def characters(size: int, length: int, generator: torch.Generator) -> Tensor:
    """Uniform strings over 0 ... 3 [size, length] whose neighbours differ: a uniform start, then differences 1, 2, 3."""
    import torch

    steps = torch.randint(1, CHARACTERS, (size, length), generator=generator, device=generator.device)
    steps[:, 0] = torch.randint(0, CHARACTERS, (size,), generator=generator, device=generator.device)
    return steps.cumsum(1) % CHARACTERS


def sources_after_hop(text: Tensor) -> Tensor:
    """Where one hop leads from each position, [B, n + 1]: n stands for nowhere, and leads to itself."""
    import torch

    n = text.shape[1]
    place = torch.arange(n, device=text.device)
    seen = torch.where(text[:, None, :] == torch.arange(CHARACTERS, device=text.device)[:, None], place, -1)
    latest = seen.cummax(2).values  # [B, characters, n]: the last place up to here that holds the character
    before = torch.nn.functional.pad(latest[:, :, :-1], (1, 0), value=-1)
    previous = before.gather(1, text[:, None, :])[:, 0]
    return torch.nn.functional.pad(torch.where(previous >= 0, previous + 1, n), (0, 1), value=n)


def hop_answers(text: Tensor, query: Tensor, least: int, most: int) -> Tensor:
    """Ids of the answers [B, n] for strings over 0 ... 3 [B, n] and queries [B, 1] between `least` and `most` hops."""
    import torch

    n = text.shape[1]
    hop = sources_after_hop(text)
    source = torch.arange(n, device=text.device).expand_as(text)
    for done in range(most):
        following = hop.gather(1, source)
        source = following if done < least else torch.where(query > done, following, source)
    ids = torch.nn.functional.pad(text + FIRST_CHARACTER, (0, 1), value=NOWHERE)
    return ids.gather(1, source)


# --- what simple rules reach -------------------------------------------------------------------------------------

_LETTERS = range(CHARACTERS)
Window = tuple[int, ...]
"""The last characters, the latest first, renamed in the order in which they appear: 0, 1, ..."""


def windows(size: int) -> dict[Window, Fraction]:
    """Probability of every window of so many characters. Neighbours differ; a renaming gives equal laws."""
    found: dict[Window, Fraction] = {(0,): Fraction(1)}
    for _ in range(size - 1):
        longer: dict[Window, Fraction] = {}
        for window, chance in found.items():
            known = max(window) + 1
            for there in range(min(known + 1, len(_LETTERS))):
                if there != window[-1]:
                    names = len(_LETTERS) - known if there == known else 1
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
            for there in _LETTERS:
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
    law = dict.fromkeys(_LETTERS, Fraction(0))
    if isinstance(state, int):
        law[state] = Fraction(1)
    return Fraction(not isinstance(state, int)), law


def _window_rule(hops: int, positions: int, size: int) -> Fraction:
    """Expected number of `positions` that the likeliest answer gets right, given the position and the last `size`
    characters."""
    return sum(
        (
            chance * max(none, *law.values())
            for window, chance in windows(size).items()
            for none, law in answer_laws(hops, positions, window)
        ),
        Fraction(0),
    )


WINDOWS = {1: "last character", 2: "last two characters", 3: "last three characters", 4: "last four characters",
           5: "last five characters"}  # fmt: skip
FIXED_ATTENTION = {1: (0.2879, 0.4931), 2: (0.3010, 0.5250), 3: (0.3173, 0.4390), 4: (0.3387, 0.4194)}
"""By hops, at length 100: the best model whose heads attend to everything alike, without and with a residual stream.
`tests/fixed_attention.py` computes these."""


@cache
def k_hop_baselines(hops: int, length: int = 100) -> list[Baseline]:
    """What simple rules reach on the k-hop task: `length` - 2 answers after one blank. Exact, but for fixed attention."""
    positions = length - 2
    laws = list(answer_laws(hops, positions))
    nowhere = sum((none for none, _ in laws), Fraction(0))

    def rule(name: str, words: str, right: Fraction, blank: int = 1) -> Baseline:
        return Baseline(name, words, float((right + blank) / (positions + 1)), float(right / positions))

    most = max(("does not exist", nowhere), ("one character", (positions - nowhere) / 4), key=lambda pair: pair[1])
    at_position = sum((max(none, (1 - none) / 4) for none, _ in laws), Fraction(0))
    found = [
        rule("chance", 'a uniform guess among 4 characters and "does not exist"', Fraction(positions, 5)),
        rule("majority class", f"always the most frequent answer ({most[0]})", most[1], 0),
        rule("position", "the likeliest answer at each position", at_position),
    ]
    for size, name in WINDOWS.items():
        words = f"the likeliest answer given the position and the {name}"
        found.append(rule(name, words, _window_rule(hops, positions, size)))
    if length == KHop.length and hops in FIXED_ATTENTION:
        found += fixed_attention(FIXED_ATTENTION[hops], 1010)
    return found


def _setting(name: str) -> Setting | None:
    """As the paper trains it, where it does."""
    if name not in paper.TRAINING_STEPS:
        return None
    row, numbers = paper.TABLE_ROWS[name], paper.OPTIMISATION["k-hop"]
    return Setting(
        **{key: row[key] for key in ("heads", "layers", "head_dim", "m")},
        steps=paper.TRAINING_STEPS[name],
        batch=int(numbers["batch"]),
        learning_rate=float(numbers["learning rate"]),
        warmup=int(numbers["warm-up"]),
    )


def _kind(hops: int) -> Kind:
    return Kind(
        f"{hops}-hop",
        lambda **options: KHop(**{"min_hops": hops, "max_hops": hops, **options}),
        lambda length: k_hop_baselines(hops, length or KHop.length),
        options=("min_hops", "max_hops"),
        setting=_setting(f"{hops}-hop"),
    )


KINDS = tuple(_kind(hops) for hops in range(1, MOST_HOPS + 1))
