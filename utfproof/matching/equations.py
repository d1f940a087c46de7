"""Both sides of the matching equations E R_all = W_all, and the targets that isolate a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.constructions.record import Readers
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape, column_at
from utfproof.systems import Target, Universal, prefix_stacks
from utfproof.util.arrays import Array, exact, hstack, is_torch, namespace, take_column_blocks, zeros
from utfproof.util.progress import LARGE, staged


def _widened_array(array: Any) -> Any:
    """Fixed-width integers become Python integers, so that products cannot overflow; floats become float64; those among
    objects, which are exact, become the rationals that they are."""
    if is_torch(array):
        return array.double()
    if isinstance(array, np.ndarray) and array.dtype.kind in "iubO":
        return exact(array)
    if isinstance(array, np.ndarray) and array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    return array


def _held(matrix: Any) -> Any:
    """A parameter ready for products: drawn if it is drawn on demand, its numbers widened."""
    return matrix.materialise() if hasattr(matrix, "materialise") else _widened_array(matrix)


def blocks_before(
    shape: Shape, kind: np.ndarray, length: np.ndarray, word: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kind, length and word of the blocks of S_l in `r_all`, from those of S_{l+1}: kind 0 Q, 1 K, 2 OV; letters of the
    block's word, for Q and K with the reading head; its number in canonical order."""
    heads, letters = np.arange(shape.heads), np.arange(shape.letters)
    # words of a block's length: the reading letter of a query or key is a head
    count = np.where(kind == 2, shape.letters**length, shape.heads * shape.letters ** np.maximum(length - 1, 0))
    word = np.concatenate([heads, heads, (letters[:, None] * count + word).reshape(-1)])
    length = np.concatenate([0 * heads + 1, 0 * heads + 1, np.tile(length + 1, shape.letters)])
    return np.concatenate([0 * heads, 0 * heads + 1, np.tile(kind, shape.letters)]), length, word


def r_all(host: Universal) -> Any:
    """R_all [m, M] in canonical column order, in the host's own arithmetic (a SelectionMatrix for index-map hosts).

    From the last layer backwards, one product per layer and head, never word by word: S_L = [U] and
    S_l = [R_Q^l, R_K^l, R_V^{l,0} S_{l+1}, R_V^{l,1} S_{l+1}, ...]; with a residual stream S_{l+1} itself comes first of these.
    S_l is everything that reads the stream before layer l. The blocks of S_0 are put in order once, at the end.

    >>> from utfproof import Shape, build_host, r_all
    >>> r_all(build_host("random", Shape(2, 1, 1, 1), m=8)).shape
    (8, 6)
    """
    if not isinstance(host, Universal):
        raise MalformedInput(f"R_all is a host's, got a {type(host).__name__}")
    host.require_attention_only("R_all")
    shape = host.shape
    kind, length, word = np.array([2]), np.array([0]), np.array([0])
    columns = _held(host.U)
    large = hasattr(columns, "dtype") and 2.0 * host.m * host.m * shape.d_out * shape.letters**shape.layers > LARGE
    for layer in staged("R_all", reversed(range(shape.layers)), shape.layers, unit="layers", large=large):
        maps = [host.maps(layer, head) for head in range(shape.heads)]
        parts = [*(_held(entry.query) for entry in maps), *(_held(entry.key) for entry in maps)]
        if shape.residual:
            parts.append(columns)
        for entry in maps:
            product = columns
            for matrix in reversed(entry.value):
                product = _held(matrix) @ product
            parts.append(product)
        columns = hstack(parts)
        kind, length, word = blocks_before(shape, kind, length, word)
    widths = np.where(kind == 2, shape.d_out, shape.head_dim)
    return take_column_blocks(columns, widths, canonical_order(kind, length, word))


def canonical_order(kind: np.ndarray, length: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The blocks of S_0 in the order of R_all's columns."""
    return np.lexsort((word, length, kind))


def w_all(target: Target) -> Array:
    """W_all [d_in, M] in canonical column order: W_E M_w W_Q, W_E M_w W_K, W_E M_w W_U.

    >>> from utfproof import Shape, random_target, w_all
    >>> w_all(random_target(Shape(2, 2, 2, 3))).shape
    (3, 36)
    """
    if not isinstance(target, Target):
        raise MalformedInput(f"W_all is a target's, got a {type(target).__name__}")
    target = widened(target)
    heads = range(target.shape.heads)

    def columns(products: Array, readers: list[Array]) -> Array:
        """[H^t, d_in, D] times each reader [D, k] -> [d_in, H^t * readers * k]."""
        xp = namespace(products)
        blocks = xp.stack([products @ reader for reader in readers], axis=1)
        blocks = xp.moveaxis(blocks, 2, 0)
        return blocks.reshape(blocks.shape[0], -1)

    queries, keys = [], []
    *stacks, last = prefix_stacks(target)
    for layer, products in enumerate(stacks):
        parameters = [target.parameters(layer, head) for head in heads]
        queries.append(columns(products, [p[0] for p in parameters]))
        keys.append(columns(products, [p[1] for p in parameters]))
    outputs = columns(last, [target.unembedding()])
    return hstack([*queries, *keys, outputs])


def read_as(target: Target, readers: Readers) -> Target:
    """The target with W_Q and W_K replaced by what a host's queries and keys are of its stream, with zero columns up to d."""
    shape, D = target.shape, target.width
    lead = (shape.layers, shape.heads)
    W_Q, W_K = (zeros(target.W_Q, *lead, D, shape.head_dim) for _ in range(2))
    for tensor, matrices in ((W_Q, readers.queries), (W_K, readers.keys)):
        for layer, head in np.ndindex(lead):
            tensor[layer, head, :, : matrices[layer][head].shape[1]] = matrices[layer][head]
    W_V, W_O = (namespace(a).broadcast_to(a, (*lead, *a.shape[-2:])) for a in (target.W_V, target.W_O))
    return type(target)(shape, W_Q, W_K, W_V, W_O, target.W_E, target.W_U)


def _converted(target: Target, convert: Callable[[Array], Array]) -> Target:
    """The same target with each of its tensors converted."""
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    arrays = {name: getattr(target, name) for name in names}
    changes: dict[str, Any] = {name: None if a is None else convert(a) for name, a in arrays.items()}
    return replace(target, **changes)


def widened(target: Target) -> Target:
    """The same target in arithmetic that does not overflow: fixed-width integers as Python's, floats as float64."""
    return _converted(target, _widened_array)


def isolating_target(shape: Shape, column: int) -> Target:
    """The 0/1 target whose W_all is zero except for a 1 in row 0 of this column of R_all (integer arrays).

    It routes along the column's word with M = e_1 e_1^T and is zero off the word and after the reading layer. With a
    residual stream no target isolates a column: this one routes along the letters other than 0, and a column whose word has
    other letters still, or a letter in another place, is zero (`refuting_column` chooses for which it refutes).
    Raises MalformedInput for a column outside 0 ... M-1.
    """
    kind, word, coordinate = column_at(shape, column)
    H, L, d = shape.heads, shape.layers, shape.head_dim
    D = max(shape.d_in, shape.d_out)
    W_Q, W_K, W_V = (np.zeros((L, H, D, d), dtype=np.int64) for _ in range(3))
    W_O = np.zeros((L, H, d, D), dtype=np.int64)
    first = int(shape.residual)  # the letter of head 0
    letters = word if kind == "OV" else word[:-1]
    route = [(layer, letter - first) for layer, letter in enumerate(letters) if letter >= first]
    for layer, head in route:
        W_V[layer, head, 0, 0] = W_O[layer, head, 0, 0] = 1
    if kind != "OV":
        (W_Q if kind == "Q" else W_K)[len(letters), word[-1] - first, 0, coordinate] = 1
    elif route:
        W_O[route[-1]][0] = 0
        W_O[(*route[-1], 0, coordinate)] = 1
    if shape.d_in == shape.d_out:
        return Target(shape, W_Q, W_K, W_V, W_O)
    W_E, W_U = np.eye(D, dtype=np.int64)[: shape.d_in], np.eye(D, dtype=np.int64)[:, : shape.d_out]
    if kind == "OV" and not route:  # the stream alone: W_all has W_E W_U here
        W_E[0] = 0
        W_E[0, coordinate] = 1
    return Target(shape, W_Q, W_K, W_V, W_O, W_E, W_U)


def refuting_column(shape: Shape, z: Sequence[int]) -> int:
    """The column c with z_c != 0 whose `isolating_target` has |W_all z| >= |z_c|, for a nonzero z [M].

    Any such column without a residual stream (the first is taken). With one, the target's W_all also has entries at the
    words that arise when letters of the routed word become 0, and outputs at those of every query or key: outputs come
    before queries and keys, fewer letters before more, so that z vanishes at all of these.
    """
    support = [index for index, value in enumerate(z) if value]
    if not support:
        raise MalformedInput("z is zero: it refutes nothing")
    if not shape.residual:
        return support[0]

    def rank(index: int) -> tuple[bool, int, int]:
        column = column_at(shape, index)
        return column.kind != "OV", sum(letter > 0 for letter in column.word), index

    return min(support, key=rank)


def exact_target(target: Target) -> Target:
    """The same target with exact rational weights (floats are dyadic rationals)."""
    return _converted(target, exact)


def distance_bound(z: list[int], column: int) -> Fraction:
    """z_c^2 / |z|^2: the squared distance by which the isolating target of column c misses, for R_all z = 0."""
    return Fraction(z[column] ** 2, sum(v * v for v in z))
