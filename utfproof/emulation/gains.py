"""What a host does to rounding noise in its stream: norms of everything that reads the stream, computed once per host.

Letters as in docs/emulation.md: a *reading* is (kind, t, h), the queries (kind 0) or keys (kind 1) of layer t and head h, or
OUTPUT. Layers count from 0. All norms are upper bounds (spectral norms of large matrices with the stated probability).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import Any

import numpy as np

from utfproof.emulation.engines import READ_BLOCK
from utfproof.emulation.norms import block_norms, exponents, length, longest, spectral_norm, tamed
from utfproof.ground.arrays import to_numpy
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import SuffixStack, suffix_stacks
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

Reading = tuple[int, int, int]
"""(kind, layer, head) with kind 0 for queries and 1 for keys; OUTPUT for the output."""

OUTPUT: Reading = (2, -1, -1)

_TOGETHER = 2**18
"""Entries of blocks that are copied at a time."""


def readings(shape: Shape) -> Iterator[Reading]:
    """Every reading of the stream."""
    for kind in (0, 1):
        for layer in range(shape.layers):
            for head in range(shape.heads):
                yield kind, layer, head
    yield OUTPUT


@dataclass(frozen=True)
class Norms:
    """Of the blocks B that belong to one reading, summed over the words on the way: `inf` the largest 2-norm of a row and
    `two` the 2-norm of B (for the output, of single columns): how large B v can be, entry by entry and in 2-norm, for a
    unit vector v of queries or keys."""

    inf: float = 0.0
    two: float = 0.0


NOTHING = Norms()


@dataclass(frozen=True)
class Selected:
    """The reading columns of an index-map host before one layer: the ones' coordinates and, for each, its column; where each
    block starts, the number of its reading, and whether it passes the values of the layer."""

    rows: np.ndarray
    columns: np.ndarray
    count: int
    starts: np.ndarray
    reading: np.ndarray
    through: np.ndarray


@dataclass(frozen=True)
class HostGains:
    """Norms of a host.

    full[l], through[l]: for the stream before layer l (l = L: read by U), the norms of everything that reads it, and of what
    reads it through the values of layer l. value[(l, h)]: 2-norm and largest column norm of the factors of R_V^{l,h}, and
    how many numbers each adds up; passed[l]: as many, for the stream that passes. read: rounding factor of the product that
    reads (in units of the roundoff and the stream's norm), evaluate: the same for a product with R_all. selected: for
    index-map hosts, the columns themselves.
    """

    shape: Shape
    m: int
    full: dict[int, dict[Reading, Norms]] = field(default_factory=dict)
    through: dict[int, dict[Reading, Norms]] = field(default_factory=dict)
    value: dict[tuple[int, int], list[tuple[float, float, int]]] = field(default_factory=dict)
    passed: dict[int, int] = field(default_factory=dict)
    read: dict[Reading, float] = field(default_factory=dict)
    evaluate: dict[Reading, float] = field(default_factory=dict)
    selected: dict[int, Selected] = field(default_factory=dict)


def _reading_numbers(shape: Shape, stack: SuffixStack) -> np.ndarray:
    """The number of each block's reading, in the order of `readings`."""
    per_kind = shape.layers * shape.heads
    layer = stack.layer + stack.length - 1
    number = stack.kind * per_kind + layer * shape.heads + stack.word % shape.heads
    return np.where(stack.kind == 2, 2 * per_kind, number)


def _first_letters(shape: Shape, stack: SuffixStack) -> np.ndarray:
    """The letter of each block's word in the stack's layer, -1 where a word ends there: a query or key read at once, and
    the output behind the last layer."""
    reads = stack.kind != 2
    later = np.maximum(stack.length - 1 - reads, 0)
    letters = stack.word // (np.where(reads, shape.heads, 1) * shape.letters**later)
    return np.where(stack.length > reads, letters, -1)


def _deeper(shape: Shape, stack: SuffixStack) -> np.ndarray:
    """Which blocks pass attention and values of the stack's layer; those of a residual stream pass neither."""
    return np.asarray(_first_letters(shape, stack) >= shape.residual)


def _starts(shape: Shape, stack: SuffixStack) -> np.ndarray:
    widths = stack.widths(shape)
    return np.asarray(np.cumsum(widths) - widths)


def _block_columns(columns: np.ndarray, starts: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """Blocks [rows, count, width] that start at these columns, so many at a time that their copies stay small."""
    step = max(1, _TOGETHER // (columns.shape[0] * width))
    for first in range(0, len(starts), step):
        yield columns[:, starts[first : first + step, None] + np.arange(width)]


def _joined(parts: Iterable[np.ndarray], *tail: int) -> np.ndarray:
    """One array [count, *tail] of these pieces, of which there may be none."""
    return np.concatenate([np.zeros((0, *tail)), *parts])


class _Measured:
    """Norms of every block of a dense stack [m, columns]: of Q/K blocks as in `Norms`, of output blocks by column."""

    def __init__(self, shape: Shape, stack: SuffixStack, columns: np.ndarray) -> None:
        self.shape = shape
        starts = _starts(shape, stack)
        self.last = stack.kind == 2
        self.numbers = _reading_numbers(shape, stack)
        self.inf, self.two = np.zeros(len(starts)), np.zeros(len(starts))
        reads = [
            (length(blocks, 2).max(axis=0), block_norms(blocks))
            for blocks in _block_columns(columns, starts[~self.last], shape.head_dim)
        ]
        self.inf[~self.last], self.two[~self.last] = (_joined(part[i] for part in reads) for i in (0, 1))
        outputs = [
            (np.abs(blocks).max(axis=0), length(blocks, 0))
            for blocks in _block_columns(columns, starts[self.last], shape.d_out)
        ]
        self.out_inf, self.out_two = (_joined((part[i] for part in outputs), shape.d_out) for i in (0, 1))

    def summed(self, keep: np.ndarray) -> dict[Reading, Norms]:
        """Over the words of each reading, of the blocks to keep."""
        inf, two = (
            np.bincount(self.numbers[keep], weights=values[keep], minlength=2 * self.shape.layers * self.shape.heads)
            for values in (self.inf, self.two)
        )
        out = {key: Norms(i, t) for key, i, t in zip(readings(self.shape), inf.tolist(), two.tolist(), strict=False)}
        words = keep[self.last]
        out[OUTPUT] = Norms(*(float(v[words].sum(axis=0).max(initial=0.0)) for v in (self.out_inf, self.out_two)))
        return out


def _selected(shape: Shape, stack: SuffixStack) -> Selected | None:
    """None where a row has two ones in one block: then a column's norm says too little of the block."""
    if stack.repeats(shape):
        return None
    rows, columns = stack.columns.coordinates()
    starts = _starts(shape, stack)
    return Selected(
        rows, columns, stack.columns.shape[1], starts, _reading_numbers(shape, stack), _deeper(shape, stack)
    )


def weighted(shape: Shape, selected: Selected, sizes: np.ndarray, *, through: bool) -> np.ndarray:
    """How an index-map host reads noise whose entry j is of size `sizes[j]` [m], in the order of `readings`: every block has
    at most one 1 in a row, so its 2-norm is that of its largest column; summed over words."""
    met, most = sizes[selected.rows], np.zeros(selected.count)
    np.maximum.at(most, selected.columns, met)
    scale = exponents(most)  # of every column by itself
    squares = np.bincount(
        selected.columns, weights=np.ldexp(met, -scale[selected.columns]) ** 2, minlength=selected.count
    )
    largest = np.maximum.reduceat(np.ldexp(np.sqrt(squares), scale), selected.starts)
    keep = selected.through if through else np.ones(len(largest), dtype=bool)
    count = 2 * shape.layers * shape.heads + 1
    return np.bincount(selected.reading[keep], weights=largest[keep], minlength=count)


def _blocked_factors(matrix: Any) -> np.ndarray:
    """Rounding factor of each entry of y R, in units of the roundoff and |y|_2 (docs/emulation.md, rounding of a product).

    Dense: summed in blocks of READ_BLOCK, the root of block size times the largest block's squared norm plus number of
    blocks times the squared norm. An index map rounds where it adds.
    """
    if isinstance(matrix, SelectionMatrix):
        count = np.bincount(matrix.coordinates()[1], minlength=matrix.shape[1]).astype(np.float64)
        return np.where(count > 1, count, 0.0)
    columns = to_numpy(matrix).astype(np.float64, copy=False)
    starts = range(0, columns.shape[0], READ_BLOCK)
    lengths = np.array([length(columns[at : at + READ_BLOCK], 0) for at in starts])
    factors: np.ndarray = np.hypot(
        sqrt(min(READ_BLOCK, columns.shape[0])) * lengths.max(axis=0), sqrt(len(starts)) * length(lengths, 0)
    )
    return factors


def canonical_stack(shape: Shape, columns: Any) -> SuffixStack:
    """R_all [m, M] as the suffix stack of layer 0, its blocks in canonical order."""
    lengths = range(1, shape.layers + 1)
    length = np.concatenate([np.full(shape.readers_at(t), t) for t in lengths])
    word = np.concatenate([np.arange(shape.readers_at(t)) for t in lengths])
    leaves = np.arange(shape.words_at(shape.layers))
    return SuffixStack(
        0,
        columns,
        np.repeat([0, 1, 2], [len(word), len(word), len(leaves)]),
        np.concatenate([length, length, np.full(len(leaves), shape.layers)]),
        np.concatenate([word, word, leaves]),
    )


def _stacks(host: Universal, columns: Any) -> Iterator[SuffixStack]:
    """The suffix stacks, with R_all itself for the last, which is the most expensive."""
    for stack in suffix_stacks(host):
        yield stack
        if stack.layer == 1:
            break
    yield canonical_stack(host.shape, columns)


def first_gains(shape: Shape, columns: np.ndarray) -> np.ndarray:
    """2-norms of how errors of A X in layer 1 are read through E R_all = columns [d_in, M], in the order of `readings`."""
    stack = canonical_stack(shape, columns)
    norms = _Measured(shape, stack, columns).summed(_deeper(shape, stack))
    return np.array([norms[key].two for key in readings(shape)])


def _dense(columns: Any) -> np.ndarray:
    if isinstance(columns, SelectionMatrix):
        return columns.to_dense(np.float64)
    return to_numpy(columns).astype(np.float64, copy=False)


def host_gains(host: Universal, columns: Any) -> HostGains:
    """The norms of a host with R_all = columns [m, M], from the last layer backwards."""
    shape = host.shape
    gains = HostGains(shape, host.m)
    if isinstance(columns, SelectionMatrix):
        found = {stack.layer: _selected(shape, stack) for stack in _stacks(host, columns)}
        gains.selected.update({layer: s for layer, s in found.items() if s is not None})
        if len(gains.selected) < len(found):
            gains.selected.clear()
    if not gains.selected:
        for stack in _stacks(host, columns):
            measured = _Measured(shape, stack, _dense(stack.columns))
            gains.full[stack.layer] = measured.summed(np.ones(len(stack.kind), dtype=bool))
            gains.through[stack.layer] = measured.summed(_deeper(shape, stack))
        largest = np.maximum.reduceat(_blocked_factors(_dense(columns)), _starts(shape, stack))
        numbers = _reading_numbers(shape, stack)
        found_at = {key: float(length(largest[numbers == number])) for number, key in enumerate(readings(shape))}
        gains.evaluate.update(found_at)
    known: dict[tuple[int, str], tuple[Any, Any]] = {}
    for layer in range(shape.layers):
        way = host.carried(layer)
        gains.passed[layer] = 0 if way is None else _value_norms(way)[2]
        for head in range(shape.heads):
            maps = host.maps(layer, head)
            for kind, reader in ((0, maps.query), (1, maps.key)):
                gains.read[(kind, layer, head)] = _once(known, reader, _read_factor)
            gains.value[(layer, head)] = [_once(known, factor, _value_norms) for factor in maps.value]
    gains.read[OUTPUT] = _read_factor(host.U)
    return gains


def _read_factor(matrix: Any) -> float:
    return float(_blocked_factors(matrix).max(initial=0.0))


def _once(known: dict[tuple[int, str], tuple[Any, Any]], matrix: Any, measure: Any) -> Any:
    """Tied matrices are measured once. `known` keeps what it measured, so that no address is used again."""
    address = matrix.__array_interface__["data"][0] if isinstance(matrix, np.ndarray) else id(matrix)
    key = (address, measure.__name__)
    if key not in known:
        known[key] = (measure(matrix), matrix)
    return known[key][0]


def _value_norms(matrix: Any) -> tuple[float, float, int]:
    """(2-norm, largest column norm, numbers added up per entry; 0 where an entry is copied and not rounded)."""
    if isinstance(matrix, SelectionMatrix):
        terms = int(np.bincount(matrix.coordinates()[1]).max(initial=0))
        return spectral_norm(matrix), sqrt(terms), terms if terms > 1 else 0
    dense = to_numpy(matrix).astype(np.float64, copy=False)
    plain, exponent = tamed(dense)
    two = np.sqrt(np.einsum("ij,ij->j", plain, plain))  # takes no copy
    return spectral_norm(matrix), float(np.ldexp(two.max(initial=0.0), exponent)), int(matrix.shape[0])


def reading_blocks(columns: np.ndarray, shape: Shape) -> dict[Reading, np.ndarray]:
    """Columns in canonical order [d_in, M] by reading: [d_in, words, d] of a layer and head, [d_in, words, d_out] at the
    end."""
    H, d = shape.heads, shape.head_dim
    out, start = {}, 0
    for kind in (0, 1):
        for layer in range(shape.layers):
            words = shape.words_at(layer)
            block = columns[:, start : start + words * H * d].reshape(-1, words, H, d)
            for head in range(H):
                out[(kind, layer, head)] = block[:, :, head]
            start += words * H * d
    out[OUTPUT] = columns[:, start:].reshape(columns.shape[0], shape.words_at(shape.layers), shape.d_out)
    return out


def column_norms(columns: np.ndarray, shape: Shape) -> dict[Reading, float]:
    """2-norm of the stacked columns [words d_in, d] of each reading; for the output of its largest column."""
    out = {}
    for key, block in reading_blocks(columns, shape).items():
        stacked = block.transpose(1, 0, 2).reshape(-1, block.shape[2])
        out[key] = longest(stacked, 0) if key == OUTPUT else spectral_norm(stacked)
    return out


# --- how large the host's stream can be --------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamSizes:
    """What the host's stream can reach, by layer l = 0 ... L.

    two: largest row norm of the exact stream. partial: of its partial sums over heads (and the stream before). hull: for any
    attention at all, that is for inputs in the convex hull of the rows of X, summed over words. entries [m]: the largest size
    of each entry, likewise.
    """

    two: list[float]
    partial: list[float]
    hull: list[float]
    entries: list[np.ndarray]


class StreamForms:
    """E R_w for all words w, kept as what the sizes of the stream need: Gram matrices over words of one length, each with the
    binary exponent e of a scale (the matrix is 4^e times what is kept), and column norms summed over words. E [d_in, m] and the
    host's dense matrices in float64."""

    def __init__(self, host: Universal, E: np.ndarray) -> None:
        self.shape, self.m = host.shape, host.m
        self.grams: list[tuple[np.ndarray, int]] = []
        self.columns: list[np.ndarray] = []
        self.largest: list[np.ndarray] = []
        products = np.asarray(E, dtype=np.float64)[None]
        for layer in range(host.shape.layers + 1):
            flat = products.reshape(-1, host.m)
            plain, exponent = tamed(flat)
            self.grams.append((plain @ plain.T, exponent))
            self.columns.append(length(products, 1).sum(axis=0))
            self.largest.append(np.abs(products).max(axis=1).sum(axis=0))
            if layer < host.shape.layers:
                steps = [flat] * host.shape.residual
                steps += [_value(flat, host, layer, head) for head in range(host.shape.heads)]
                products = np.stack([s.reshape(products.shape) for s in steps], axis=1).reshape(-1, *products.shape[1:])

    def sizes(self, rows: np.ndarray, paths: list[np.ndarray]) -> StreamSizes:
        """For inputs X = rows [n, d_in] and P_w of the target's own run, [n, words d_in] for l = 0 ... L."""
        letters, width = self.shape.letters, rows.shape[1]
        two, partial, hull = [], [], []
        for layer, (gram, exponent) in enumerate(self.grams):
            words = self.shape.words_at(layer)
            blocks = gram.reshape(words, width, words, width)
            hull.append(sum(_row_norm(rows, blocks[w, :, w], exponent) for w in range(words)))
            two.append(_row_norm(paths[layer], gram, exponent))
            # the last letter of a word is the head whose values came last; a residual stream is the first summand
            upto = [np.flatnonzero(np.arange(words * width) // width % letters <= a) for a in range(1, letters - 1)]
            sums = [_row_norm(paths[layer][:, c], gram[np.ix_(c, c)], exponent) for c in (upto if layer else [])]
            partial.append(max([two[-1], *sums]))
        norm, absolute = largest_row(rows), float(np.abs(rows).sum(axis=1).max())
        entries = [np.minimum(norm * c, absolute * a) for c, a in zip(self.columns, self.largest, strict=True)]
        return StreamSizes(two, partial, hull, entries)


def selected_sizes(host: Universal, E: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """`entries` of an index-map host: sizes move with the stream, and add up where the host adds."""
    norm, absolute = largest_row(rows), float(np.abs(rows).sum(axis=1).max())
    sizes = np.minimum(norm * length(E, 0), absolute * np.abs(E).max(axis=0))
    found = [sizes]
    for layer in range(host.shape.layers):
        way = host.carried(layer)
        passed = [sizes if way is None else (sizes[None] @ way)[0]] * host.shape.residual
        sizes = sum(passed + [_value(sizes[None], host, layer, head)[0] for head in range(host.shape.heads)])
        found.append(sizes)
    return found


def largest_row(rows: np.ndarray) -> float:
    return longest(rows, 1)


def _row_norm(rows: np.ndarray, gram: np.ndarray, exponent: int) -> float:
    """Largest 2-norm of a row of rows @ B, with B B^T = 4^exponent gram; the last summand is what rounding can hide."""
    squares = ((rows @ gram) * rows).sum(axis=1)
    hidden = 1e-14 * (np.abs(rows) @ np.sqrt(np.diagonal(gram))) ** 2
    return float(np.ldexp(np.sqrt((np.maximum(squares, 0) + hidden).max()), exponent))


def _value(product: np.ndarray, host: Universal, layer: int, head: int) -> np.ndarray:
    for matrix in host.maps(layer, head).value:
        product = product @ (
            matrix if isinstance(matrix, SelectionMatrix) else to_numpy(matrix).astype(np.float64, copy=False)
        )
    return product


# --- the target's side ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetGains:
    """How an error of the target's own stream is read later: through[(l, h)], error before M^{l,h}; full[l], error in the
    stream before layer l. 2-norms, summed over words; for the output the largest column norm. value[(l, h)], out[(l, h)]: the
    2-norms of M and W_O; run[(l, h)]: rounding factor of x W_V W_O in any direction, in units of the roundoff and |x|; form,
    split[(l, h)]: the same for y (W_V W_O) and for W_V W_O itself; begin: for x W_E; reader: the largest column norm of W_Q,
    W_K or W_U times the root of D."""

    through: dict[tuple[int, int], dict[Reading, float]]
    full: dict[int, dict[Reading, float]]
    value: dict[tuple[int, int], float]
    run: dict[tuple[int, int], float]
    form: dict[tuple[int, int], float]
    split: dict[tuple[int, int], float]
    begin: float
    reader: dict[Reading, float]
    out: dict[tuple[int, int], float] = field(default_factory=dict)


def as_host(target: Target) -> Universal:
    """The target's own matrices in the form of a host of embedding dimension D."""
    from utfproof.systems import TiedUniversal

    kind = TiedUniversal if target.tied else Universal
    return kind(target.shape, target.width, target.W_Q, target.W_K, target.W_V, target.unembedding(), R_Vo=target.W_O)


def target_gains(target: Target) -> TargetGains:
    """The norms of a target (float64 weights)."""
    shape = target.shape
    H = shape.heads
    through: dict[tuple[int, int], dict[Reading, float]] = {}
    full: dict[int, dict[Reading, float]] = {}
    for stack in suffix_stacks(as_host(target)):
        measured = _Measured(shape, stack, to_numpy(stack.columns).astype(np.float64))
        norms = measured.two
        norms[measured.last] = measured.out_two.max(axis=1)
        full[stack.layer] = _table(shape, measured.numbers, norms)
        if stack.layer < shape.layers:
            first = _first_letters(shape, stack)
            for head in range(H):
                keep = first == head + shape.residual
                through[(stack.layer, head)] = _table(shape, measured.numbers[keep], norms[keep])
    value, out, run, form, split, reader = {}, {}, {}, {}, {}, {}
    D, d = target.width, shape.head_dim
    for layer in range(shape.layers):
        for head in range(H):
            w_q, w_k, w_v, w_o = target.parameters(layer, head)
            at = (layer, head)
            value[at], out[at] = spectral_norm(w_v @ w_o), spectral_norm(w_o)
            # each entry of a product of inner length k is a sum of k terms; its rounding points in no special direction
            run[at] = hypot(
                sqrt(D) * _largest_column(w_v) * out[at], sqrt(d) * spectral_norm(w_v) * _largest_column(w_o)
            )
            form[at] = sqrt(D) * _largest_column(w_v @ w_o)
            split[at] = sqrt(d) * _largest_column(w_v.T) * _largest_column(w_o)
            reader[(0, layer, head)], reader[(1, layer, head)] = (sqrt(D) * _largest_column(w) for w in (w_q, w_k))
    reader[OUTPUT] = 0.0 if target.W_U is None else sqrt(D) * _largest_column(target.W_U)
    begin = 0.0 if target.W_E is None else sqrt(shape.d_in) * _largest_column(target.W_E)
    return TargetGains(through, full, value, run, form, split, begin, reader, out)


def _table(shape: Shape, numbers: np.ndarray, norms: np.ndarray) -> dict[Reading, float]:
    """Norms of blocks summed by reading, given by its number."""
    sums = np.bincount(numbers, weights=norms, minlength=2 * shape.layers * shape.heads + 1)
    return dict(zip(readings(shape), sums.tolist(), strict=True))


def _largest_column(matrix: Any) -> float:
    return longest(to_numpy(matrix), 0)
