"""What else a model may be where nobody says a fact, and whether its own outputs tell it from what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import ModelAttention, Rotary
from utfproof.models.comparison import measured
from utfproof.models.norms import OwnNorm
from utfproof.models.reading import Reading
from utfproof.models.reading_attention import geometric_slopes
from utfproof.models.sizes import AGREEMENT

CAP = 50.0
"""A usual cap of logits (Gemma 2)."""

References = Sequence[tuple[np.ndarray, np.ndarray]]


def left_open(reading: Reading, references: References) -> tuple[str, ...]:
    """The facts that nobody says and that these outputs (tokens [n] or inputs [n, V + P], logits [n, O]) do not show: some
    other reading gives them as well, or contexts longer than theirs may be read through a window."""
    longest = max((len(given) for given, _ in references), default=0)
    return tuple(name for name in reading.unknown if not _shown(reading, name, references, longest))


def _shown(reading: Reading, name: str, references: References, longest: int) -> bool:
    if name == "window" and longest < (reading.positions or longest + 1):
        return False  # a window of that length hides nothing yet; without learned positions there are always longer contexts
    others = list(_others(reading, name, longest))
    return bool(others) and not any(_gives(other, references) for other in others)


def _gives(reading: Reading, references: References) -> bool:
    """Whether a reading gives these outputs."""
    given = [x for x, _ in references]
    try:
        with np.errstate(all="ignore"):
            pairs = [(reading.stages(x)["logits"], logits) for x, logits in references]
            return measured(reading, given, pairs).within(AGREEMENT)
    except MalformedInput:
        return False


def _others(reading: Reading, name: str, longest: int) -> Iterator[Reading]:
    """Readings in which this fact is another one; none for a fact that has no other reading here."""
    yield from _OTHERS[name](reading, longest) if name in _OTHERS else ()


def _with(reading: Reading, **changes: object) -> Reading:
    """The reading with its layers' attention changed."""
    layers = tuple(replace(layer, **changes) for layer in reading.attention.layers)  # type: ignore[arg-type]
    return replace(reading, attention=ModelAttention(layers))


def _masks(reading: Reading, longest: int) -> Iterator[Reading]:
    yield _with(reading, causal=not reading.attention.layers[0].causal)


def _windows(reading: Reading, longest: int) -> Iterator[Reading]:
    """The longest window that hides something, and half of it."""
    for window in {longest - 1, longest // 2} - {0}:
        yield _with(reading, window=window)


def _scales(reading: Reading, longest: int) -> Iterator[Reading]:
    """Logits as they are, over the root of the head dimension, and twice what was assumed."""
    factors, d = reading.factors, reading.arrays["W_Q"].shape[-1]
    for other in ((1.0,) * len(factors), (d**-0.5,) * len(factors), tuple(2 * f for f in factors)):
        if not np.allclose(other, factors, rtol=1e-6):
            yield replace(reading, factors=other)


def _caps(reading: Reading, longest: int) -> Iterator[Reading]:
    yield _with(reading, cap=CAP)


def _norms(reading: Reading, longest: int) -> Iterator[Reading]:
    """Rows over their sizes before layers, at the end, or both."""
    for first, final in ((True, False), (False, True), (True, True)):
        yield replace(reading, norm=OwnNorm("rms", 1e-5, final, first))


def _positions(reading: Reading, longest: int) -> Iterator[Reading]:
    """Learned positions left out or for queries and keys alone, rotations, ALiBi."""
    heads, d = reading.arrays["W_Q"].shape[1], reading.arrays["W_Q"].shape[-1]
    pos = reading.arrays["W_pos"]
    without = replace(reading, arrays={**reading.arrays, "W_pos": np.zeros_like(pos)})
    if len(pos):
        yield without
        yield replace(reading, shortformer=not reading.shortformer)
    if d > 1:
        yield _with(without, rotary=Rotary.of_base(longest, d // 2, 10000.0, False))
    layers = [replace(layer, slopes=geometric_slopes(heads)) for layer in reading.attention.layers]
    yield replace(without, attention=ModelAttention(tuple(layers)))


_OTHERS: dict[str, Callable[[Reading, int], Iterator[Reading]]] = {
    "causal": _masks,
    "window": _windows,
    "scale": _scales,
    "cap": _caps,
    "norm": _norms,
    "positions": _positions,
}
