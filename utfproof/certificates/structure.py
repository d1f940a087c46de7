"""Exact kernel vectors of R_all, with few entries where the host's structure allows, and a sentence that says why.

Elimination modulo a prime names a set of dependent columns of R_all, as few as it finds. They are rebuilt exactly from the
host's own matrices, from the deepest one that they share upwards, until they depend (S_l, then R_Vo S_l, then R_V S_l, ...): a
rank-one reader, a repeated head or values of inner dimension d_v give z with 2, 2 and at most d_v + 1 entries, whatever the
size. With a residual stream letter 0 takes columns over as they are, and letter h + 1 is head h. Each z is then put through
R_all z by the recursion of docs/certificate-format.md section 6.2, in integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import gcd, lcm
from typing import Any

import numpy as np

from utfproof.certificates.format import INLINE_LIMIT
from utfproof.certificates.sources import DenseSource
from utfproof.errors import ResourceLimit
from utfproof.exact import lifting
from utfproof.exact.rational import primitive
from utfproof.ground.resources import require_memory
from utfproof.shapes import Column, Shape, Word, column_at, matching_dimension

ATTEMPTS = 3
"""How many sets of dependent columns of one prime are tried, cheapest first."""


@dataclass(frozen=True)
class Relation:
    """z, the nonzero entries of a primitive integer vector with R_all z = 0, and what in the host makes it so."""

    z: dict[int, int]
    reason: str


@dataclass(frozen=True)
class _Block:
    """Exact columns: true column j is units[j] times the integers columns[j]."""

    columns: list[list[Any]]
    units: list[Fraction]

    def matrix(self) -> Any:
        """The integers, an fmpz_mat [rows, columns]."""
        from flint import fmpz_mat

        flat = [x for column in self.columns for x in column]
        return fmpz_mat(len(self.columns), len(self.columns[0]), flat).transpose()


@dataclass(frozen=True)
class _Stage:
    """Where columns first depend: in the subtree of `layer` (head None), or after a value tensor of one of its heads."""

    layer: int
    head: int | None = None
    tensor: str = ""


class IntegerHost:
    """Exact products with the matrices of a host. ResourceLimit before one that does not fit into memory."""

    def __init__(self, source: DenseSource, max_memory: int | None = None) -> None:
        self.source = source
        self.shape: Shape = source.shape
        self.max_memory = max_memory

    def matrix(self, tensor: str, layer: int, head: int) -> Any:
        """The integers of one matrix, an fmpz_mat."""
        return self.source.exact(tensor, layer, head)[0]

    def times(self, tensor: str, layer: int, head: int, block: _Block) -> _Block:
        """matrix @ block."""
        matrix, unit = self.source.exact(tensor, layer, head)
        right = block.matrix()
        rows, count = matrix.nrows(), right.ncols()
        bits = _height(matrix) + _height(right) + rows.bit_length()
        require_memory(
            matrix.nrows() * (150 * matrix.ncols() + count * (150 + bits // 2)),
            f"{count} exact columns of {self.source}",
            self.max_memory,
        )
        flat = (matrix * right).transpose().entries()
        columns = [flat[j * rows : (j + 1) * rows] for j in range(count)]
        return _Block(columns, [unit * u for u in block.units])

    def values(self, layer: int, head: int, block: _Block) -> _Block:
        """R_V^{layer, head} @ block, factor by factor."""
        for tensor in reversed(self.source.values):
            block = self.times(tensor, layer, head, block)
        return block

    def picked(self, tensor: str, layer: int, head: int, coordinates: Iterable[int]) -> _Block:
        """Columns of one matrix."""
        matrix, unit = self.source.exact(tensor, layer, head)
        flat, width = matrix.entries(), matrix.ncols()
        columns = [flat[c::width] for c in coordinates]
        return _Block(columns, [unit] * len(columns))

    def subtree(self, layer: int, wanted: list[Column]) -> _Block:
        """These columns of S_layer, words counted from that layer (0-based): R_w R_Q, R_w R_K or R_w U."""
        found: dict[Column, tuple[list[Any], Fraction]] = {}

        def keep(names: list[Column], block: _Block) -> None:
            found.update(zip(names, zip(block.columns, block.units, strict=True), strict=True))

        outputs = [c for c in wanted if not c.word]
        if outputs:
            keep(outputs, self.picked("U", 0, 0, [c.coordinate for c in outputs]))
        routed = [c for c in wanted if _route(c)]
        tails = list(dict.fromkeys(_tail(c, 1) for c in routed))
        below = self.subtree(layer + 1, tails) if tails else _Block([], [])
        place = {tail: i for i, tail in enumerate(tails)}

        def taken(names: list[Column]) -> _Block:
            chosen = [place[_tail(c, 1)] for c in names]
            return _Block([below.columns[i] for i in chosen], [below.units[i] for i in chosen])

        for head in range(self.shape.heads):
            letter = head + self.shape.residual
            for kind in ("Q", "K"):
                names = [c for c in wanted if c.kind == kind and c.word == (letter,)]
                if names:
                    keep(names, self.picked("R_" + kind, layer, head, [c.coordinate for c in names]))
            names = [c for c in routed if c.word[0] == letter]
            if names:
                keep(names, self.values(layer, head, taken(names)))
        names = [c for c in routed if self.shape.residual and c.word[0] == 0]
        if names:
            keep(names, taken(names))
        return _Block([found[c][0] for c in wanted], [found[c][1] for c in wanted])

    def is_kernel_vector(self, z: dict[int, int]) -> bool:
        """Whether R_all z = 0 for the true entries, by the recursion T(w) from the last layer to the first."""
        shape = self.shape
        inputs: dict[tuple[str, int], dict[Word, _Block]] = {}
        for index, value in z.items():
            kind, word, coordinate = column_at(shape, index)
            vectors = inputs.setdefault((kind, len(word)), {})
            width = shape.d_out if kind == "OV" else shape.head_dim
            vectors.setdefault(word, _Block([[0] * width], [Fraction(1)])).columns[0][coordinate] = value
        sums = self._image("U", 0, 0, inputs.get(("OV", shape.layers), {}))
        for layer in reversed(range(shape.layers)):
            parts = [_ending(sums, 0)] if shape.residual else []
            for head in range(shape.heads):
                letter = head + shape.residual
                for kind in ("Q", "K"):
                    read = _ending(inputs.get((kind, layer + 1), {}), letter)
                    parts.append(self._image("R_" + kind, layer, head, read))
                moved = _ending(sums, letter)
                for tensor in reversed(self.source.values):
                    moved = self._image(tensor, layer, head, moved)
                parts.append(moved)
            sums = _added(parts)
        return not sums

    def _image(self, tensor: str, layer: int, head: int, vectors: dict[Word, _Block]) -> dict[Word, _Block]:
        """One matrix times one vector for each word."""
        if not vectors:
            return {}
        columns = [block.columns[0] for block in vectors.values()]
        block = self.times(tensor, layer, head, _Block(columns, [block.units[0] for block in vectors.values()]))
        return {word: _Block([block.columns[i]], [block.units[i]]) for i, word in enumerate(vectors)}


def _height(matrix: Any) -> int:
    return max((int(x.height_bits()) for x in matrix.entries()), default=0)


def _ending(vectors: dict[Word, _Block], letter: int) -> dict[Word, _Block]:
    """The vectors of words that end in this letter, by the rest of the word."""
    return {word[:-1]: block for word, block in vectors.items() if word[-1] == letter}


def _added(parts: list[dict[Word, _Block]]) -> dict[Word, _Block]:
    """Sums word by word; those that are zero are left out."""
    sums = {}
    for word in dict.fromkeys(word for part in parts for word in part):
        terms = [part[word] for part in parts if word in part]
        units = [term.units[0] for term in terms]
        unit = Fraction(gcd(*(u.numerator for u in units)), lcm(*(u.denominator for u in units)))
        factors = [int(u / unit) for u in units]
        rows = zip(*(term.columns[0] for term in terms), strict=True)
        total = [sum(f * x for f, x in zip(factors, row, strict=True)) for row in rows]
        if any(total):
            sums[word] = _Block([total], [unit])
    return sums


def _route(column: Column) -> Word:
    """The letters whose values act on the column: all but a reader's own."""
    return column.word if column.kind == "OV" else column.word[:-1]


def _tail(column: Column, letters: int) -> Column:
    return Column(column.kind, column.word[letters:], column.coordinate)


def _common_prefix(words: list[Word]) -> Word:
    first, last = min(words), max(words)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]


# --- the search --------------------------------------------------------------------------------------------


def find_relation(source: DenseSource, matrix: Any, p: int, *, max_memory: int | None = None) -> Relation | None:
    """A kernel vector from R_all modulo p [m, M]; None if none was found: the rank modulo p is M, or p misled.

    Raises ResourceLimit, with the figures, where there is one but its integers are too many, too long or too costly.
    """
    columns = [column_at(source.shape, c) for c in range(matching_dimension(source.shape))]
    # a column costs the matrices that are multiplied for it: so many times longer are its integers
    weights = np.array([len(_route(c)) + 1 for c in columns])
    exact = IntegerHost(source, max_memory)
    refused: ResourceLimit | None = None
    for chosen in islice(lifting.circuits(matrix, p, weights), ATTEMPTS):
        try:
            found = _relation_of(exact, {c: columns[c] for c in chosen}, next(lifting.primes_below(p)))
        except ResourceLimit as error:
            refused = refused or error
            continue
        if found is not None:
            return found
    if refused is not None:
        raise refused
    return None


def _relation_of(exact: IntegerHost, chosen: dict[int, Column], q: int) -> Relation | None:
    """The exact relation between these columns, looked for modulo q at each stage from the deepest; None if there is none."""
    if len(chosen) > INLINE_LIMIT:
        raise ResourceLimit(
            f"{exact.source} has a kernel vector of {len(chosen)} entries, a certificate holds at most {INLINE_LIMIT}"
        )
    prefix = _common_prefix([_route(c) for c in chosen.values()])
    tails = [_tail(c, len(prefix)) for c in chosen.values()]
    stage = _Stage(len(prefix))
    block = exact.subtree(stage.layer, tails)
    first = int(exact.shape.residual)  # the letter of head 0
    steps = [
        _Stage(layer, prefix[layer] - first, tensor)
        for layer in reversed(range(len(prefix)))
        if prefix[layer] >= first
        for tensor in reversed(exact.source.values)
    ]
    y = lifting.relation(block.matrix(), str(exact.source), q)
    for stage in steps if y is None else []:
        assert stage.head is not None
        block = exact.times(stage.tensor, stage.layer, stage.head, block)
        y = lifting.relation(block.matrix(), str(exact.source), q)
        if y is not None:
            break
    if y is None:
        return None
    true = [value / unit for value, unit in zip(y, block.units, strict=True)]
    z = {c: value for c, value in zip(chosen, primitive(true), strict=True) if value}
    if not exact.is_kernel_vector(z):
        raise AssertionError(f"{exact.source}: the kernel vector found is none; this is an error in the search")
    return Relation(z, _Explanation(exact, stage, [_tail(chosen[c], len(prefix)) for c in z]).sentence())


# --- what the relation means -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Explanation:
    """Says what makes these columns of the subtree depend at this stage, as a fact that has been tested exactly."""

    host: IntegerHost
    stage: _Stage
    columns: list[Column]

    def sentence(self) -> str:
        """One sentence, without a full stop; layers and heads as in the certificate format (layers from 1)."""
        if self.stage.head is not None:
            return self._values(self.stage.head)
        if all(c.kind == "OV" and not c.word for c in self.columns):
            return self._reader("U", "U", [("U", 0)], [c.coordinate for c in self.columns])
        if all(c.kind != "OV" and len(c.word) == 1 for c in self.columns):
            return self._readers()
        tails = {_tail(c, 1) for c in self.columns if _route(c)}
        letters = [c.word[0] for c in self.columns if _route(c)]
        if len(tails) == 1 and len(letters) == len(self.columns) and min(letters) >= self._first:
            heads = [letter - self._first for letter in letters]
            if len(heads) == 2 and self._equal(self.host.source.values, *heads):
                return f"heads {heads[0]} and {heads[1]}{self._of_layer()} share R_V"
            return f"R_V of heads {_listed(heads)}{self._of_layer()} are linearly dependent on a column below them"
        if self.stage.layer == 0:
            return self._general()
        return (
            f"{len(self.columns)} of the {self._size(self.stage.layer)} columns that layer {self.stage.layer + 1} and those "
            "below it read are linearly dependent"
        )

    @property
    def _tied(self) -> bool:
        return self.host.source.tied

    @property
    def _first(self) -> int:
        """The letter of head 0."""
        return int(self.host.shape.residual)

    def _of_layer(self) -> str:
        return "" if self._tied else f" of layer {self.stage.layer + 1}"

    def _place(self, head: int) -> str:
        return f"head {head}" if self._tied else f"layer {self.stage.layer + 1}, head {head}"

    def _size(self, layer: int) -> int:
        """Columns of the subtree that begins at this layer (0-based)."""
        shape, size = self.host.shape, self.host.shape.d_out
        for _ in range(layer, shape.layers):
            size = shape.heads * 2 * shape.head_dim + shape.letters * size
        return size

    def _equal(self, tensors: Iterable[str], first: int, second: int) -> bool:
        source, layer = self.host.source, self.stage.layer
        return all(source.exact(t, layer, first) == source.exact(t, layer, second) for t in tensors)

    def _reader(self, one: str, all_of_them: str, tensors: list[tuple[str, int]], coordinates: list[int]) -> str:
        """A dependence between the columns of a few readers: their exact rank."""
        from flint import fmpz_mat

        if len(coordinates) == 1:
            return f"column {coordinates[0]} of {one} is zero"
        stacked: list[Any] = []
        for tensor, head in tensors:
            matrix = self.host.matrix(tensor, self.stage.layer, head)
            stacked += matrix.transpose().entries()
        width = len(stacked) // self.host.source.m
        rank = fmpz_mat(width, self.host.source.m, stacked).rank()
        return f"{all_of_them} {'has' if len(tensors) == 1 else 'together have'} rank {rank} of {width}"

    def _readers(self) -> str:
        kinds = sorted({c.kind for c in self.columns})
        letters = sorted({c.word[0] - self._first for c in self.columns})
        coordinates = [c.coordinate for c in self.columns]
        if len(letters) == 1:
            names = " and ".join(f"R_{kind}" for kind in sorted(kinds, reverse=True))
            place = f"{names} of {self._place(letters[0])}"
            tensors = [(f"R_{kind}", letters[0]) for kind in kinds]
            if len(kinds) == 2 and coordinates[0] == coordinates[-1] and len(coordinates) == 2:
                source, layer = self.host.source, self.stage.layer
                if source.exact("R_Q", layer, letters[0]) == source.exact("R_K", layer, letters[0]):
                    return f"{place} are equal"
            return self._reader(place, place, tensors, coordinates)
        if len(self.columns) == 2 and len(kinds) == 1 and self._equal([f"R_{kinds[0]}"], *letters):
            return f"heads {letters[0]} and {letters[1]}{self._of_layer()} share R_{kinds[0]}"
        every = [(f"R_{kind}", head) for head in letters for kind in ("Q", "K")]
        return self._reader("", f"R_Q and R_K of heads {_listed(letters)}{self._of_layer()}", every, coordinates)

    def _values(self, head: int) -> str:
        host, layer = self.host, self.stage.layer
        place, below = self._place(head), self._size(layer + 1)
        if not all(any(host.matrix(tensor, layer, head).entries()) for tensor in host.source.values):
            return f"R_V of {place} is zero"
        if len(host.source.values) == 2:
            inner = host.matrix("R_Vo", layer, head).nrows()
            if inner < below:
                return (
                    f"the values of {place} have inner dimension {inner}: "
                    f"the {below} columns below span at most {inner} dimensions after them"
                )
        else:
            lines = [x != 0 for x in host.matrix("R_V", layer, head).entries()]
            nonzero = np.array(lines).reshape(host.source.m, host.source.m)
            for axis, name in ((1, "row"), (0, "column")):
                if (count := int(nonzero.any(axis=axis).sum())) < below:
                    lines_left = f"{count} nonzero {name}{'s' * (count > 1)}"
                    return f"R_V of {place} has only {lines_left}: the {below} columns below it become dependent"
        if len(self.columns) == 1:
            return f"R_V of {place} sends one of the {below} columns below it to zero"
        return f"R_V of {place} makes {len(self.columns)} of the {below} columns below it linearly dependent"

    def _general(self) -> str:
        host, m, M = self.host, self.host.source.m, self._size(0)
        read = np.zeros(m, dtype=bool)
        for head in range(host.shape.heads):
            for tensor in ("R_Q", "R_K", host.source.values[0]):
                matrix = host.matrix(tensor, 0, head)
                read |= np.array([x != 0 for x in matrix.entries()]).reshape(m, matrix.ncols()).any(axis=1)
        if int(read.sum()) < M and not host.shape.residual:  # the stream carries all coordinates on
            return f"the first layer reads only {int(read.sum())} of the {m} coordinates, below M = {M}"
        return f"{len(self.columns)} of the {M} columns of R_all are linearly dependent"


def _listed(numbers: list[int]) -> str:
    names = [str(n) for n in sorted(set(numbers))]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 2 else names)
