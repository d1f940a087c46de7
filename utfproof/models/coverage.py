"""On which inputs a comparison rests: how many sequences, which lengths, which tokens."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.shapes import decimal

CONTEXT, TOKENS = "compared_context", "compared_tokens"
"""Metadata of an embedding: the longest context, and the tokens (all, or a bit for each in base64), that were compared."""


def ranges(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 -> "1 to 3, 7"."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and parts[-1][-1] == n - 1:
            parts[-1] = [parts[-1][0], n]
        else:
            parts.append([n])
    return ", ".join(" to ".join(map(str, part)) for part in parts)


@dataclass(frozen=True, eq=False)
class Coverage:
    """sequences: how many; lengths: theirs; tokens [V]: whether each one stands in some sequence (all, where inputs are
    real); batch: most sequences that were asked at once, 0 where nothing was asked."""

    sequences: int
    lengths: tuple[int, ...]
    tokens: np.ndarray
    batch: int = 0

    @staticmethod
    def of(given: Iterable[np.ndarray], vocabulary: int, batch: int = 0) -> Coverage:
        """Of tokens [n], or inputs [n, d_in], whose first V columns are the tokens'."""
        seen, lengths, count = np.zeros(vocabulary, dtype=bool), set(), 0
        for part in given:
            if part.ndim == 1:
                seen[part] = True
            else:
                seen |= np.any(part[:, :vocabulary] != 0, axis=0)
            lengths.add(len(part))
            count += 1
        return Coverage(count, tuple(sorted(lengths)), seen, batch)

    @property
    def context(self) -> int:
        """The longest."""
        return max(self.lengths)

    def words(self) -> str:
        """For people."""
        all_of_them, seen = len(self.tokens), int(self.tokens.sum())
        tokens = f"all {seen} token ids" if seen == all_of_them else f"{seen} of the {all_of_them} token ids"
        sequences = f"{self.sequences} sequence{'s' * (self.sequences != 1)}"
        batches = f", in batches of at most {self.batch}" if self.batch else ""
        return f"{sequences} of length{'s' * (len(self.lengths) > 1)} {ranges(self.lengths)}, with {tokens}{batches}"

    def facts(self) -> dict[str, str]:
        """Metadata of an embedding."""
        packed = base64.b64encode(np.packbits(self.tokens).tobytes()).decode()
        return {CONTEXT: str(self.context), TOKENS: "all" if self.tokens.all() else packed}


def read_limits(facts: Mapping[str, str], vocabulary: int) -> tuple[int | None, np.ndarray | None]:
    """(longest context, tokens [V]) that an embedding's metadata say were compared, None where there is no such limit.
    MalformedInput for what no embedding says."""
    if CONTEXT not in facts and TOKENS not in facts:
        return None, None
    context, text = decimal(facts.get(CONTEXT)), facts.get(TOKENS, "")
    if not context:
        raise MalformedInput(f"the embedding's metadata field {CONTEXT} is {facts.get(CONTEXT)!r}, expected a number")
    if text == "all":
        return context, None
    try:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8))
    except ValueError as error:
        raise MalformedInput(f"the embedding's metadata field {TOKENS} is not base64: {error}") from error
    if not vocabulary <= len(bits) < vocabulary + 8:
        raise MalformedInput(f"the embedding's metadata field {TOKENS} is not about its {vocabulary} tokens")
    return context, bits[:vocabulary].astype(bool)
