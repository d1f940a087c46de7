"""k-hop induction heads (Section 5.1 and Appendix G): at every position, the character that k hops back lead to.

Ids: 0 ... 16 the queries for so many hops, 17 ... 20 the characters, 21 "does not exist", 22 blank; the vocabulary has
30 ids, as in the paper, the last seven unused. One hop from a source position goes to the last strictly earlier
occurrence of its character, then to the position after that; once there is none, there is none for all further hops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from utfproof.errors import MalformedInput
from utfproof.training.task import Baseline, Batch, Kind, check_loss, check_size, paper_setting

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


RULES = {
    "majority class": "always the most frequent answer",
    "last character": "the likeliest answer given the last character",
    "last two characters": "the likeliest answer given the last two characters",
    "last three characters": "the likeliest answer given the last three characters",
    "last four characters": "the likeliest answer given the last four characters",
    "last five characters": "the likeliest answer given the last five characters",
    "fixed attention": "the best readout of causal means of the tokens",
    "fixed attention, residual": "the best readout of the tokens and their causal means",
}
REACHED = {
    1: (0.2374, 0.3266, 0.4987, 0.6692, 0.7817, 0.8560, 0.2879, 0.4931),
    2: (0.2298, 0.4735, 0.4836, 0.4937, 0.5567, 0.6354, 0.3010, 0.5250),
    3: (0.2222, 0.2700, 0.3284, 0.3862, 0.4278, 0.4761, 0.3173, 0.4390),
    4: (0.2147, 0.3078, 0.3180, 0.3281, 0.3539, 0.3847, 0.3387, 0.4194),
}
"""By hops, at length 100: the accuracy of each rule. Tests compute these from drawn sequences."""


def baselines(hops: int, length: int) -> list[Baseline]:
    """What simple rules reach; beside chance only at the usual length (0 or 100) and for 1 to 4 hops."""
    positions = (length or KHop.length) - 2
    chance = Baseline(
        "chance", "the blank, then a uniform guess among 5 answers", (1 + positions / 5) / (positions + 1)
    )
    if length not in (0, KHop.length) or hops not in REACHED:
        return [chance]
    rules = zip(RULES.items(), REACHED[hops], strict=True)
    return [chance, *(Baseline(name, words, accuracy) for (name, words), accuracy in rules)]


def _kind(hops: int) -> Kind:
    return Kind(
        f"{hops}-hop",
        lambda **options: KHop(**{"min_hops": hops, "max_hops": hops, **options}),
        lambda length: baselines(hops, length),
        options=("min_hops", "max_hops"),
        setting=paper_setting(f"{hops}-hop", "k-hop"),
    )


KINDS = tuple(_kind(hops) for hops in range(1, MOST_HOPS + 1))
