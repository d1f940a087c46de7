"""Words in the target's own matrices: what the blocks of an embedding hold, by letter (docs/certificate-format.md §9)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from utfproof.errors import OutsideClass
from utfproof.exact import rational
from utfproof.shapes import Shape, Word
from utfproof.systems import Target
from utfproof.util.arrays import Array, exact, is_exact, namespace, transpose, zeros

Blocks = list[tuple[int, list[str]]]
"""(first coordinate, letters of the word), by first coordinate."""


def values(word: Word, first: int = 1) -> list[str]:
    """The letters of M_w for a word whose first head is in this layer (from 1)."""
    return [f"M{layer}.{head}" for layer, head in enumerate(word, first)]


def powers(counts: tuple[int, ...]) -> list[str]:
    """A product of tied value forms, head by head."""
    return [letter for head, count in enumerate(counts) for letter in [f"M.{head}"] * count]


# --- at a target -------------------------------------------------------------------------------------------


def embedded(
    shape: Shape, m: int, target: Target, words: Callable[[Shape], tuple[Blocks, Blocks | None]]
) -> tuple[Array, Array]:
    """(E [d_in, m], U [m, d_out]) of these words at a target of width d_in at most, in its arithmetic, U zero where no block
    says it. OutsideClass for wider targets, and where a word inverts a singular matrix."""
    if target.width > shape.d_in:
        raise OutsideClass(
            f"this host at {shape} serves targets of width at most {shape.d_in}, this one has {target.width}"
        )
    left, right = words(shape)
    E, U = zeros(target.W_Q, shape.d_in, m), zeros(target.W_Q, m, shape.d_out)
    letter = lru_cache(maxsize=None)(partial(letter_of, target))
    before: dict[tuple[str, ...], Array] = {(): target.embedding()}
    behind: dict[tuple[str, ...], Array] = {(): target.unembedding()}

    def prefix(word: tuple[str, ...]) -> Array:
        if word not in before:
            before[word] = prefix(word[:-1]) @ letter(word[-1])
        return before[word]

    def suffix(word: tuple[str, ...]) -> Array:
        if word not in behind:
            behind[word] = letter(word[0]) @ suffix(word[1:])
        return behind[word]

    for start, word in left:
        value = prefix(tuple(word))
        E[:, start : start + value.shape[1]] = value
    for start, word in right or []:
        value = suffix(tuple(word))
        U[start : start + value.shape[0]] = value
    return E, U


def require_tied_scalar(name: str, shape: Shape, target: Target) -> None:
    """OutsideClass unless the target is tied and of width 1: only then do its value forms commute and agree in all layers."""
    if not target.tied:
        raise OutsideClass(f"{name} at {shape} serves tied targets; this one is untied")
    if target.width != 1:
        raise OutsideClass(f"{name} at {shape} serves targets of width 1, this one has width {target.width}")


def letter_of(target: Target, letter: str) -> Array:
    """The matrix of a letter M, A, Q or K, with its layer (from 1; none for tied targets), head, T and I."""
    place, tail = letter[1:].split(".")
    head, suffix = int(tail.rstrip("IT")), tail.lstrip("0123456789")
    layer = int(place or 1) - 1
    if letter[0] in "QK":
        return target.parameters(layer, head)["QK".index(letter[0])]
    found = target.value_form(layer, head) if letter[0] == "M" else target.attention_form(layer, head)
    if "I" in suffix:
        found = _inverted(found, letter)
    return transpose(found) if "T" in suffix else found


def _inverted(matrix: Array, letter: str) -> Array:
    exactly = is_exact(matrix)
    try:
        inverse = rational.inverse(exact(np.asarray(matrix))) if exactly else namespace(matrix).linalg.inv(matrix)
    except np.linalg.LinAlgError:
        inverse = None
    if inverse is None:
        raise OutsideClass(f"this host inverts {letter.rstrip('IT')}, which is singular for this target")
    return inverse
