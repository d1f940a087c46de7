"""Parenthesis balancing (Section 5.1 and Appendix G): a string of parentheses, "?", and whether it is balanced.

Ids: 0 pad, 1 "(", 2 ")", 3 "?". The answer to a balanced string is ")", to any other "(". The law of the strings: with
probability 1/3 a uniform string of uniform length, else a balanced string by recursion (`balanced_strings`), of which half
are left as they are; two fair bits decide for all others whether places are swapped and whether places are flipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from utfproof.errors import MalformedInput
from utfproof.training.task import Baseline, Batch, Kind, check_loss, check_size, paper_setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PAD, OPEN, CLOSE, ASK = range(4)
_COIN_BITS = 30
_SHARE_BITS = 25
"""A place among at most 60 is drawn as a share of 2^25 (it fits 32 bits): its probability is off by less than 2^-25."""

LEVELS_BEFORE_LOOKING = {"cpu": 1}
"""How often the recursion asks whether all strings are done: an accelerator would have to stop for the answer."""


@dataclass(frozen=True)
class Parentheses:
    """The task with strings of up to `pairs` pairs. Loss "answer": at the "?" only; "sequence": at every position, pads too."""

    pairs: int = 30
    loss: str = "answer"

    def __post_init__(self) -> None:
        check_loss(self.loss)
        if not 1 <= self.pairs <= _COIN_BITS:
            raise MalformedInput(f"pairs {self.pairs}: from 1 to {_COIN_BITS}, please")

    @property
    def name(self) -> str:
        """parentheses."""
        return "parentheses"

    @property
    def vocabulary(self) -> int:
        """4 (d_in = d_out)."""
        return 4

    @property
    def context(self) -> int:
        """All of the 2 pairs + 3 places but the last: 62 tokens."""
        return 2 * self.pairs + 2

    @property
    def input_ids(self) -> tuple[int, ...]:
        """All four."""
        return PAD, OPEN, CLOSE, ASK

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh sequences [size, context] on the generator's device."""
        import torch

        text, length = strings(check_size(size), self.pairs, generator)
        answer = torch.where(is_balanced(text, length), CLOSE, OPEN)
        sequence = torch.nn.functional.pad(text, (0, 3), value=PAD)  # [size, 2 pairs + 3]
        ask = length[:, None]
        sequence.scatter_(1, ask, ASK).scatter_(1, ask + 1, answer[:, None])
        inputs, targets = sequence[:, :-1].contiguous(), sequence[:, 1:].contiguous()
        if self.loss == "answer":
            asked = torch.ones_like(ask, dtype=torch.bool)
            return Batch(inputs, answer[:, None], asked, asked, asked, look=ask)
        scored = inputs == ASK
        return Batch(inputs, targets, torch.ones_like(scored), scored, scored)


def strings(size: int, pairs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Strings [size, 2 pairs] of OPEN and CLOSE, padded with PAD, and their lengths [size], by the task's law."""
    import torch

    device = generator.device

    def uniform(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator, device=device)

    kind, mutations, keep = uniform(3, size), uniform(4, size), uniform(2, size)
    random_string = kind == 0
    mutations = torch.where(random_string | (keep == 0), mutations, 0)
    amount = uniform(pairs, size) + 1
    text = balanced_strings(amount, pairs, generator)
    any_length = uniform(2 * pairs, size) + 1
    length = torch.where(random_string, any_length, 2 * amount)
    inside = torch.arange(2 * pairs, device=device) < length[:, None]
    text = torch.where(random_string[:, None], uniform(2, size, 2 * pairs) + OPEN, text)
    text = torch.where(inside, text, PAD)
    swaps = torch.where(mutations % 2 == 1, _geometric(uniform(1 << _COIN_BITS, size)), 0)
    flips = torch.where(mutations >= 2, _geometric(uniform(1 << _COIN_BITS, size)), 0)
    flips = torch.where(uniform(3, size) > 0, 2 * flips, flips)
    most_swaps, most_flips = torch.stack([swaps.max(), flips.max()]).tolist()  # one wait for the device
    if most_swaps:
        swap_places(text, _places(length, 2 * most_swaps, generator).view(size, most_swaps, 2), swaps)
    if most_flips:
        flip_places(text, _places(length, most_flips, generator), flips)
    return text, length


def _geometric(bits: Tensor) -> Tensor:
    """1, 2, ... with probability 1/2, 1/4, ...: one more than the number of trailing ones of fair bits."""
    return trailing_ones(bits).long() + 1


def trailing_ones(bits: Tensor) -> Tensor:
    """How many ones end a number below 2^30; 30 ones count as 30."""
    import torch

    lowest_zero = ~bits & (bits + 1)  # a power of two: its exponent as a float is the answer
    return (lowest_zero.float().view(torch.int32) >> 23) - 127


def _places(length: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Places [B, count], uniform in each string."""
    import torch

    bits = torch.randint(0, 1 << _SHARE_BITS, (len(length), count), generator=generator, device=generator.device)
    return (bits * length[:, None]) >> _SHARE_BITS


def swap_places(text: Tensor, places: Tensor, counts: Tensor) -> None:
    """Swap, one after another and in place, the first counts[b] pairs of places [B, most, 2] that are in order p < q."""
    import torch

    for step in range(places.shape[1]):
        pair = places[:, step]
        wanted = (pair[:, :1] < pair[:, 1:]) & (counts[:, None] > step)
        old = text.gather(1, pair)
        # where nothing is to be swapped both places may be the same one, and are given back what they hold
        text.scatter_(1, pair, torch.where(wanted, old.flip(1), old))


def flip_places(text: Tensor, places: Tensor, counts: Tensor) -> None:
    """Flip, in place, the first counts[b] of the places [B, most]; a place that is drawn twice is flipped twice."""
    import torch

    drawn = torch.arange(places.shape[1], device=text.device) < counts[:, None]
    times = torch.zeros_like(text).scatter_add_(1, places, drawn.long())
    text.copy_(torch.where(times % 2 == 1, OPEN + CLOSE - text, text))


def balanced_strings(amount: Tensor, pairs: int, generator: torch.Generator) -> Tensor:
    """Balanced strings [B, 2 pairs] of amount[b] <= pairs pairs: CLOSE beyond their ends.

    The law is the recursion's: one pair is "()"; more are, with probability 1/2, a pair around a string of one pair less, else
    two strings, the first of uniform length. All strings of a batch are cut up level by level. Opening parentheses are numbered
    from the left; a segment of them, first ... last, is one call of the recursion. A level draws how many wraps come first
    (a geometric number: they belong to the first openings, each of which closes where the segment ends) and cuts the rest.
    Every cut, at place g, starts two segments that have their own random numbers, (g, left) and (g, right): so the numbers are
    drawn once, and the levels only look them up.
    """
    import torch

    size, device = len(amount), generator.device
    # slot 0 for the whole string, then two for each place where a cut can be
    slots = 2 * pairs + 1
    shape = size, slots
    bits = torch.randint(0, 1 << (_COIN_BITS + _SHARE_BITS), shape, generator=generator, device=device).view(-1)
    wraps = trailing_ones((bits & ((1 << _COIN_BITS) - 1)).int())
    share = (bits >> _COIN_BITS).int()
    every = torch.arange(pairs, dtype=torch.int32, device=device).expand(size, pairs)
    # openings that the string does not have are segments of their own
    missing = every >= amount[:, None]
    closed_after = every.reshape(-1).clone()  # the opening after which each one is closed, flat over the batch
    # one entry for each opening that is still in a segment with others; what becomes of it depends on its segment alone
    opening = torch.arange(size * pairs, device=device)
    number = every.flatten()
    first = torch.where(missing, every, 0).flatten()
    last = torch.where(missing, every, amount.int()[:, None] - 1).flatten()
    slot = (torch.arange(size, device=device) * slots).repeat_interleave(pairs)
    string, closed = slot, number
    wait = LEVELS_BEFORE_LOOKING.get(device.type, 8)
    for level in range(pairs - 1):
        if level % wait == wait - 1:
            closed_after.index_copy_(0, opening, closed)
            live = (first < last).nonzero()[:, 0]
            if not len(live):
                break
            entries = opening, number, first, last, slot, string, closed
            opening, number, first, last, slot, string, closed = (entry.index_select(0, live) for entry in entries)
        rest = torch.minimum(first + wraps.index_select(0, slot), last)
        wrapped = number < rest
        closed = torch.where(wrapped, last, closed)
        cut = rest + (
            (share.index_select(0, slot) * (last - rest)) >> _SHARE_BITS
        )  # the left part ends at `cut` < last
        right = number > cut
        slot = string + 2 * cut + 1 + right
        first = torch.where(wrapped, number, torch.where(right, cut + 1, rest))
        last = torch.where(wrapped, number, torch.where(right | (rest == last), last, cut))
    closed_after.index_copy_(0, opening, closed)
    # an opening stands after all openings before it and all that are closed before it
    ends = closed_after.view(size, pairs).long()
    closings = torch.zeros_like(ends).scatter_add_(1, ends, torch.ones_like(ends))
    place = every + closings.cumsum(1) - closings
    text = torch.full((size, 2 * pairs), CLOSE, device=device)
    # missing openings stand beyond the end of the string
    return text.scatter_(1, place, torch.where(missing, CLOSE, OPEN))


def is_balanced(text: Tensor, length: Tensor) -> Tensor:
    """Whether each string [B, n] is balanced, [B]: the depth is never negative and ends at zero (pads change nothing)."""
    import torch

    depth = torch.where(text == OPEN, 1, torch.where(text == CLOSE, -1, 0)).cumsum(1)
    return (depth.min(1).values >= 0) & (depth[:, -1] == 0)


# --- what simple rules reach -------------------------------------------------------------------------------------


def parentheses_rules(text: Tensor, length: Tensor) -> dict[str, Tensor]:
    """What each rule says of strings [B, n] with these lengths [B]: bool [B]."""
    equal = (text == OPEN).sum(1) == (text == CLOSE).sum(1)
    ends = (text[:, 0] == OPEN) & (text.gather(1, length[:, None] - 1)[:, 0] == CLOSE)
    return {"counting": equal, "counting and both ends": equal & ends}


RULES = {
    "majority class": ("always balanced", 0.5259),
    "counting": ("balanced when there are as many ( as )", 0.9307),
    "counting and both ends": ("and the first is ( and the last is )", 0.9770),
    "fixed attention": ("the best readout of causal means of the tokens", 0.788),
    "fixed attention, residual": ("the best readout of the tokens and their causal means", 0.809),
}
"""How often each rule is right on 200 000 drawn sequences. Tests draw others."""


def baselines(length: int) -> list[Baseline]:
    """What simple rules reach; beside chance only at the usual length (0 or 30 pairs)."""
    chance = Baseline("chance", "a uniform guess between the two answers", 0.5)
    usual = length in (0, Parentheses.pairs)
    return [chance, *(Baseline(name, *rule) for name, rule in RULES.items() if usual)]


KINDS = (
    Kind("parentheses", Parentheses, baselines, length="pairs", setting=paper_setting("parentheses", "parentheses")),
)
