"""How far rounding can take a host's outputs from its target's: a rigorous bound, and an estimate.

The derivation is in docs/emulation.md. In exact arithmetic host and target agree. A run of the host differs by (1) rounding
noise in its stream, which later products read, (2) the residual of E R_all = W_all, (3) attention matrices that differ
because of both, and by (4) the target's own rounding. Only the host's matrices, E, the target and X enter, and sizes of a run
of the target.

`RIGOROUS` adds worst cases: a sum of k terms errs by k u / (1 - k u). `ESTIMATE` takes rounding errors for independent numbers
of mean zero: a sum errs by LAMBDA sqrt(k) u. Steered low bits exceed the estimate; nothing exceeds the bound, if the libraries
keep to this: every operation rounds within u (products of matrices in any order), exp within 2.5 units in the last place,
eigenvalues of Gram matrices within 1e-9. Overflow is not modelled: a run or a bound that overflows decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from utfproof.attention import KEY_BLOCK
from utfproof.emulation.engines import READ_BLOCK, ReadHost
from utfproof.emulation.norms import block_norms, length, longest, spectral_norm
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.util.arrays import to_numpy
from utfproof.util.selection import SelectionMatrix

LAMBDA = 8.0
"""Standard deviations of the estimate."""
DOUBLE, DOUBLE_TINY = 2.0**-53, 2.0**-1022
"""Unit roundoff and least normal number of float64."""

Reading = tuple[int, int, int]
"""What reads the stream: (0, layer, head) for queries, (1, layer, head) for keys, OUTPUT for the output."""
OUTPUT: Reading = (2, -1, -1)
STREAM = 3
"""Kind of the stream itself, (STREAM, layer, 0)."""


def readings(shape: Shape) -> Iterator[Reading]:
    """Every reading of the stream; layers and heads count from 0."""
    for kind in (0, 1):
        for layer in range(shape.layers):
            for head in range(shape.heads):
                yield kind, layer, head
    yield OUTPUT


def last_layer(shape: Shape, key: Reading) -> int:
    """Layers before a reading."""
    return shape.layers if key == OUTPUT else key[1]


@dataclass(frozen=True)
class Rule:
    """How rounding errors add up."""

    rigorous: bool

    def units(self, terms: float, u: float) -> float:
        """Error of a sum of so many products, in any order, relative to the sum of their sizes."""
        if not self.rigorous:
            return sqrt(terms) * u
        return terms * u / (1 - terms * u) if terms * u < 1 else inf

    def total(self, *parts: Any) -> Any:
        """Of several errors (numbers or arrays)."""
        if self.rigorous:
            return sum(parts)
        found = np.sqrt(sum(np.square(part) for part in parts))
        return found if isinstance(found, np.ndarray) else float(found)  # Python's numbers overflow in silence

    @property
    def deviations(self) -> float:
        """Factor from what the rule adds up to an error."""
        return 1.0 if self.rigorous else LAMBDA


RIGOROUS, ESTIMATE = Rule(True), Rule(False)


@dataclass(frozen=True)
class Inputs:
    """X [n, d_in]: the number of rows, and their largest 1-norm and 2-norm."""

    context: int
    one: float
    two: float

    @classmethod
    def of(cls, rows: np.ndarray) -> Inputs:
        return cls(len(rows), float(np.abs(rows).sum(axis=1).max(initial=0.0)), longest(rows, 1))

    def met(self, blocks: np.ndarray, *, entries: bool = False) -> float:
        """The largest 2-norm of x B (with `entries`, of one entry) for x in the convex hull of X's rows, summed over blocks B
        [d_in, count, width]."""
        if entries:
            found = np.minimum(self.one * np.abs(blocks).max(axis=0), self.two * length(blocks, 0))
            return float(found.sum(axis=0).max())
        rows = length(blocks, 2).max(axis=0)
        return float(np.minimum(self.one * rows, self.two * block_norms(blocks.transpose(1, 0, 2))).sum())

    def spread(self, blocks: np.ndarray, *, entries: bool = False) -> np.ndarray:
        """The same for |x||B|, by block."""
        if entries:
            return np.minimum(self.one * np.abs(blocks).max(axis=0), self.two * length(blocks, 0))
        rows = length(blocks, 2)
        return np.minimum(self.one * rows.max(axis=0), self.two * length(rows, 0))[:, None]


def attention_terms(context: int) -> float:
    """Terms of the longest chain of additions in A X: blocks of KEY_BLOCK, their sum, the division."""
    return min(context, KEY_BLOCK) + context / KEY_BLOCK + 4


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


# --- dense matrices: hosts of weights, and the target -------------------------------------------------------------------


@dataclass(frozen=True)
class Norms:
    """Of a matrix: 2-norm, Frobenius norm, largest column norm, rows (terms of a product with it)."""

    two: float
    whole: float
    column: float
    terms: int

    @classmethod
    def of(cls, matrix: Any) -> Norms:
        if isinstance(matrix, SelectionMatrix):
            matrix = matrix.to_dense(np.float64)
        dense = to_numpy(matrix).astype(np.float64, copy=False)
        return cls(spectral_norm(dense), float(length(dense)), longest(dense, 0), dense.shape[0])


class DenseModel:
    """A host of dense matrices, or a target in the form of a host. blocked: readers are summed in blocks of READ_BLOCK."""

    def __init__(self, host: Universal, *, blocked: bool, reads_output: bool = True) -> None:
        self.host, self.shape, self.m = host, host.shape, host.m
        self.blocked, self.reads_output = blocked, reads_output
        known: dict[int, tuple[Norms, Any]] = {}

        def norms(matrix: Any) -> Norms:
            address = matrix.__array_interface__["data"][0] if isinstance(matrix, np.ndarray) else id(matrix)
            if address not in known:  # tied matrices are measured once
                known[address] = (Norms.of(matrix), matrix)
            return known[address][0]

        self.values, self.readers = {}, {OUTPUT: norms(host.U)}
        for layer in range(self.shape.layers):
            for head in range(self.shape.heads):
                query, key, value = host.maps(layer, head)
                self.values[(layer, head)] = [norms(factor) for factor in value]
                self.readers[(0, layer, head)], self.readers[(1, layer, head)] = norms(query), norms(key)

    def columns(self, E: np.ndarray | None) -> tuple[list[np.ndarray], dict[Reading, np.ndarray]]:
        """E R_w for the words of length 0 ... L, [d_in, words, m] each, and E R_all by reading, computed from the left."""
        shape = self.shape
        stream = (np.eye(self.m) if E is None else np.asarray(E, dtype=np.float64))[:, None]
        streams, read = [], {}
        for layer in range(shape.layers + 1):
            streams.append(stream)
            if layer == shape.layers:
                read[OUTPUT] = stream @ as_float64(self.host.U)
                break
            parts = [stream] * shape.residual
            for head in range(shape.heads):
                query, key, value = self.host.maps(layer, head)
                read[(0, layer, head)], read[(1, layer, head)] = stream @ as_float64(query), stream @ as_float64(key)
                moved = stream
                for factor in value:
                    moved = moved @ as_float64(factor)
                parts.append(moved)
            stream = np.stack(parts, axis=2).reshape(len(stream), -1, self.m)
        return streams, read

    def noise(
        self, sizes: list[float], begin: float, rule: Rule, u: float, tiny: float, context: int | None
    ) -> dict[Reading, float]:
        """Error of each reading in 2-norm (of one entry of the output), attention being equal.

        sizes: 2-norms of rows of the stream before layer l = 0 ... L. begin: error of the embedding. context: n; None where
        words are multiplied one by one, without attention.
        """
        shape, root, out = self.shape, sqrt(self.m), {}
        error = begin
        for layer in range(shape.layers + 1):
            size = sizes[layer] + error
            out[(STREAM, layer, 0)] = rule.deviations * error
            for key in (key for key in self.readers if last_layer(shape, key) == layer):
                out[key] = rule.deviations * self._read(key, size, error, rule, u, tiny)
            if layer == shape.layers:
                break
            averaged = 0.0
            if context is not None:
                averaged = rule.units(attention_terms(context), u) * size + 2 * (context + 1) * tiny * root
            carried = [error] * shape.residual
            products, whole = [], size * shape.residual
            for head in range(shape.heads):
                gain, rounded, largest = self._value(layer, head, size + averaged, rule, u, tiny)
                carried.append(gain * rule.total(error, averaged))
                products.append(rounded)
                whole += largest
            added = rule.units(shape.letters - 1, u) * whole if context is not None else 0.0
            # the same noise passes every head: its ways are added up
            error = float(rule.total(sum(carried), added, *products)) + shape.letters * tiny * root
        return out

    def _gain(self, norms: Norms, rule: Rule) -> float:
        """How a product with a matrix lengthens noise: in the worst case, or noise without a direction."""
        return norms.two if rule.rigorous else norms.whole / sqrt(norms.terms)

    def _value(
        self, layer: int, head: int, size: float, rule: Rule, u: float, tiny: float
    ) -> tuple[float, float, float]:
        """Of the product of rows of this size with R_V: how it lengthens noise, what it rounds, how large it is."""
        gain, rounded = 1.0, 0.0
        for norms in self.values[(layer, head)]:
            own = rule.units(norms.terms, u) * size * norms.whole + 2 * norms.terms * tiny * sqrt(self.m)
            step = self._gain(norms, rule)
            gain, rounded = gain * step, float(rule.total(rounded * step, own))
            size = size * norms.two + (rounded if rule.rigorous else 0.0)
        return gain, rounded, size

    def _read(self, key: Reading, size: float, error: float, rule: Rule, u: float, tiny: float) -> float:
        norms = self.readers[key]
        if key == OUTPUT and not self.reads_output:
            return error if rule.rigorous else error / sqrt(self.m)
        terms = min(norms.terms, READ_BLOCK) + norms.terms / READ_BLOCK if self.blocked else norms.terms
        gain, whole = (norms.column, norms.column) if key == OUTPUT else (norms.two, norms.whole)
        lost = 2 * norms.terms * tiny * (1 if key == OUTPUT else sqrt(self.shape.head_dim))
        if not rule.rigorous:  # along one direction of queries or keys
            gain, whole = gain / sqrt(self.m), gain
        return float(rule.total(gain * error, rule.units(terms, u) * size * whole)) + lost


def as_float64(matrix: Any) -> np.ndarray:
    return to_numpy(matrix).astype(np.float64, copy=False)


def as_host(target: Target) -> Universal:
    """The target's own matrices in the form of a host of embedding dimension D."""
    readers = target.W_Q, target.W_K
    return Universal(target.shape, target.width, *readers, target.W_V, target.unembedding(), R_Vo=target.W_O)


def embedding_noise(E: np.ndarray | None, inputs: Inputs, rule: Rule, u: float, tiny: float) -> float:
    """Error of a row of X E in 2-norm."""
    if E is None:
        return 0.0
    size = min(inputs.one * longest(E, 1), inputs.two * float(length(E)))
    return rule.units(len(E), u) * size + 2 * len(E) * tiny * sqrt(E.shape[1])


# --- index maps ---------------------------------------------------------------------------------------------------------


def index_map_noise(
    read: ReadHost, E: np.ndarray, inputs: Inputs, rule: Rule, u: float, tiny: float
) -> dict[Reading, float]:
    """Error of each reading of a {0,1} host, entry by entry, in either engine.

    A reading is a sum of coordinates, the ones of a column of S_0. An engine adds them before or after attention: on any way
    from E to the reading there are fewer additions than ones.
    """
    shape, n, out = read.shape, inputs.context, {}
    columns, rows = np.abs(E) @ read.columns, read.columns.shape[0]
    ones = np.bincount(read.columns.coordinates()[1], minlength=read.columns.shape[1]).max(initial=1)
    average, lost = rule.units(attention_terms(n), u), 4 * (n + 1 + rows) * tiny * ones
    sizes = np.minimum(inputs.one * columns.max(axis=0), inputs.two * length(columns, 0))
    errors = rule.units(shape.d_in + ones - 1, u) * sizes + 2 * (shape.d_in + rows) * tiny * ones
    averaged = lost * (1 + columns.sum(axis=0))  # of the inputs, which may meet these columns afterwards
    for layer in range(shape.layers):
        *readers, values = read.parts(layer)
        for kind, parts in enumerate(readers):
            for head, part in enumerate(parts):
                found = length(errors[part]) if rule.rigorous else errors[part].max(initial=0.0)
                out[(kind, layer, head)] = rule.deviations * float(found)
        moved = rule.total(errors, average * (sizes + errors)) + averaged
        ways = [errors[part] for part in values[: shape.residual]] + [moved[part] for part in values[shape.residual :]]
        sizes = sum(sizes[part] for part in values)
        errors = sum(ways) if rule.rigorous else rule.total(*ways)
        added = rule.units(shape.letters - 1, u) * (sizes + errors)
        errors, averaged = rule.total(errors, added) + shape.letters * tiny, lost
    out[OUTPUT] = rule.deviations * float(errors.max(initial=0.0))
    return out
