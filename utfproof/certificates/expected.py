"""How long a check is expected to take, nearer than the figures by which the checker refuses.

The checker's own are bounds that its readers can follow; for some evidence they are hundreds of times too large, most of all
for identities whose words meet in few coordinates. Here the operations of these are counted kind by kind, times what each takes
(fitted to processor time on the machine of results/check-cpu.json, scripts/measure_check.py). Nothing here has a part in what a
check accepts: it only says what is refused for its time, and memory is the checker's business throughout.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from utfproof.certificates import checker
from utfproof.certificates.checker import Blocks, Claim, Costs, IndexHost, Pairs, Shape

FAR = 1000
"""How far the checker's own figure may be above the allowance before anything is counted; it was never seen as far off."""
SAID = 1
"""Seconds from which a figure is told: below, what is started and read counts for as much, and nobody waits."""
NANOSECONDS = {
    "file": 5_400_000, "moves": 74, "read": 3330, "named": 305, "blocks": 125, "entries": 880, "drawn": 1190, "products": 2480,
    "multiplied": 130, "eliminated": 230, "followed": 930, "traced": 460, "placed": 1610, "columns": 130, "ones": 290,
    "drawing": 0.77, "summed": 0.33,
}  # fmt: skip


def powers(a: int, count: int) -> int:
    """1 + a + ... + a^(count-1)."""
    return count if a == 1 else (a**count - 1) // (a - 1)


def mixed(a: int, b: int, count: int) -> int:
    """The sum of a^t b^(count-t) for t = 0 ... count-1; a > b."""
    return b * (a**count - b**count) // (a - b)


def identity(claim: Claim, make: Callable[[], IndexHost], e: Blocks | None, u: Blocks | None) -> Counter[str]:
    """Of `require_words`: how words act is the same for all columns of a reader, and E is read where they end."""
    s, (host, _, targets, _) = claim.shape, checker.IDENTITIES[claim.construction]
    counting, symmetric = issubclass(host, checker.Counting), issubclass(host, checker.SymmetricKeys)
    gauged = targets == checker.GENERIC and not symmetric
    b, d, H, L, every = s.d_in, s.head_dim, s.heads, s.layers, s.heads * s.layers
    group, letters = min(-(-b // d), H), s.letters

    def ends(t: int) -> int:
        """Coordinates in which one ends, over the words of length t."""
        return math.comb(t + H - 1, H - 1) if counting else letters**t

    def passed(t: int) -> int:
        """The sum of those of shorter words."""
        return math.comb(t + H - 1, H) if counting else powers(letters, t)

    found = Counter[str](file=1)
    if claim.notion != "shared attention":
        runs = H * (2 * min(d, H) if symmetric else 3 if gauged else 2)  # of a layer's readers
        width = 1 if symmetric else min(b, d) if gauged else d if host is checker.CommutingTrie else b
        found["moves"] += sum(runs * letters * passed(layer) for layer in range(L))
        found["read"] += sum(runs * width * ends(layer) for layer in range(L))
    if u is None:
        found["moves"] += letters * passed(L)
        found["read"] += ends(L) * b
    else:
        found["moves"] += every * len(u.blocks) * b
        found["read"] += len(u.blocks) * b
    products = L * every + every * (1 + (claim.notion == "matching"))  # of a vector and a matrix of the target
    if e is not None:
        products += 2 * sum(len(word) for part in (e, u) if part is not None for _, word in part.blocks)
        found["drawn"] += every * b * (b if claim.notion == "shared attention" else 2 * b + 2 * d * (counting))
        found["eliminated"] += 2 * L * b**3 * e.inverses
        return found + Counter(products=products, multiplied=products * b**2)
    found["named"] += found["moves"] * L  # coordinates go by words, which are tuples
    if symmetric:
        found["blocks"] += (H**L + H * powers(H, L) * (H - group + 1)) * L
    else:
        layers = 1 if claim.targets in checker.TIED else L
        found["drawn"] += 4 * layers * H * b * d
        inside = s.m - b * s.leaves  # columns of E, d_in times d_in for each; the others are products of values
        found["multiplied"] += 2 * layers * H * d * b**2 + s.readers(L) * b**3 + inside * b**2
        found["entries"] += s.readers(L) * b**2 + inside * b
        found["blocks"] += s.readers(L) + inside // min(b, d) + s.leaves
        if gauged:
            groups, wide = L * (H // group), group * d
            found["multiplied"] += groups * (b * b * (wide + d) + wide * d * b + 2 * group * b * d * d)
            found["eliminated"] += groups * 2 * (b**3 + group * d**3)
    return found + Counter(products=products, multiplied=products * b**2)


def standard(claim: Claim) -> Counter[str]:
    """Of `require_standard`: every word of every reader is followed."""
    s = claim.shape
    H, L, readers = s.heads, s.layers, 2 * s.heads * (checker.IDENTITIES[claim.construction][0] is not checker.Register)
    followed = powers(H, L + 1) + readers * sum(powers(H, layer) for layer in range(1, L + 1))
    return Counter(file=1, followed=followed)


def traced(s: Shape, kind: type[IndexHost], columns: int) -> Counter[str]:
    """Of `traced` without the stream as a letter: of a reader's words one after the other, all shorter ones on the way; where
    readers have a 1 for each word, each of these 1s is looked at by each head at every step."""
    H, L, readers = s.heads, s.layers, 2 * s.heads
    if kind.spread:
        moves = sum(readers * H * t * H**t for t in range(1, L)) + L * H ** (L + 1)
    else:
        moves = sum(readers * H * powers(H, t) for t in range(1, L)) + H * powers(H, L) * (L if s.residual else 1)
    blocks = readers * powers(H, L) + (powers(H, L + 1) if s.residual else H**L)
    return Counter(file=1, traced=moves, placed=blocks, columns=columns)


def triangle(s: Shape, columns: int) -> Counter[str]:
    """Of `traced` with the stream: a 1 at a word stays at the letter 0 and, where its own letter is a head, goes there too."""
    H, L, spread = s.heads, s.layers, 2 * s.heads + 1
    moves = H * (sum(2 * H * mixed(spread, s.letters, layer) for layer in range(L)) + mixed(spread, s.letters, L))
    return Counter(
        file=1, traced=moves, ones=2 * s.head_dim * H * powers(spread, L) + s.d_out * spread**L, columns=columns
    )


def kernel(claim: Claim, z: Pairs, layers: dict[int, list[checker.Entry]], times: int) -> Counter[str]:
    """Of `require_kernel`: of a dense host the matrices that are on the way to an entry are drawn, and each word on the way is
    one product of a vector."""
    s = claim.shape
    if checker.index_kind(claim) is not None:
        return Counter(own=1)
    words = {word for _, word, *_ in layers.get(s.layers + 1, [])}
    numbers, moved = s.m * s.d_out * bool(words), 0
    for layer in range(s.layers, 0, -1):
        along = [word % s.letters for word in words]
        along = [letter for letter in along if letter or not s.residual]
        moved += len(along)
        numbers += len(set(along)) * s.m**2
        words = {word // s.letters for word in words}
        for part in (checker.R_Q, checker.R_K):
            read = [word for at, word, *_ in layers.get(layer, []) if at == part]
            words |= {word // s.heads for word in read}
            numbers += len({word % s.heads for word in read}) * s.m * s.head_dim
    whole = s.layers * s.heads * s.m * (s.m + 2 * s.head_dim)
    share = checker.drawing_work(claim) * numbers // whole  # nanoseconds, as the checker has them
    bits = checker.value_bits(z) + s.layers * (200 if claim.weights is None else 2300) // 2
    return Counter(file=1, drawing=share * times, summed=moved * s.m**2 * (60 + bits // 16) * times)


OWN = {"cost_matrix": (0.7, 0.9), "cost_witness": (0.6, 0.75)}
"""What the checker's own figures of dense hosts are multiplied by: without NumPy and with it."""
NEARER: dict[str, Callable[..., Counter[str]]] = {
    "cost_words": identity,
    "cost_drawn": lambda s: Counter(),  # of the identity that comes next
    "cost_standard": standard,
    "cost_traced": traced,
    "cost_triangle": triangle,
    "cost_kernel": kernel,
}
"""By the checker's own estimate, with the same arguments."""


class Expected(checker.Limits):
    """The checker's limits with nearer estimates of time."""

    def allow(self, costs: Costs) -> None:
        """As `Limits.allow`. Raises OverLimit for the checker's figure of memory, and for this one of operations."""
        name = costs.__name__  # type: ignore[attr-defined]
        nearer, given = NEARER.get(name), inspect.getgeneratorlocals(costs)  # type: ignore[arg-type]
        part = OWN[name][given["numpy"]] if name in OWN else 1
        operations = 0
        for memory, operations in costs:
            self.require(memory, round(operations * part) if nearer is None else operations // FAR)
        if nearer is not None:
            counts = nearer(**given)
            own = "own" in counts
            self.require(0, operations if own else round(sum(NANOSECONDS[name] * n for name, n in counts.items())))


@contextmanager
def expecting(tell: Callable[[int], None]) -> Iterator[None]:
    """The checker's command makes its limits itself; in this block they are these, and `tell` gets the seconds of each piece of
    work that is expected to take SAID of them."""

    class Limits(Expected):
        def require(self, memory: int, operations: int) -> None:
            super().require(memory, operations)
            if operations >= SAID * 10**9:
                tell(round(operations / 1e9))

    own = checker.Limits
    checker.Limits = Limits  # type: ignore[misc]
    try:
        yield
    finally:
        checker.Limits = own  # type: ignore[misc]
