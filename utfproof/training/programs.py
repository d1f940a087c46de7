"""A host seen through its program alone: the tables E R_w R_Q, E R_w R_K and E R_w U, for all head words w.

With rows of E for the tokens that occur (and for positions, where learned), these v x M numbers are all that path space needs
of a host, and all that gradients pass through. Words are ordered with their *last* letter slowest, so that the stream after a
layer is the streams of its letters side by side; with a residual stream letter 0 is the stream itself.

Axis letters: S seeds, v rows (tokens, positions), W words, H heads, m embedding dimension.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.systems import Universal
from utfproof.training.matrices import Matrices, times
from utfproof.training.models import Model, dense, projection

if TYPE_CHECKING:
    from torch import Tensor


class Tables(NamedTuple):
    """queries[l], keys[l]: [S, H, W v, d] with W words of length l; outputs [S, W v, d_out] with words of length L.

    nested: heads add to the coordinates that they move, so words are of heads alone although there is a stream; outputs are
    then those of words of length 0, 1, ... L. grams: where LN stands, see `normed`; ones: whether LN adds one more
    coefficient, always 1; kept: whether the stream itself is what LN gives (post), not only what is read (pre). scales
    [S, 1, 1, v], moments: where LN stands and heads add to what they move, see `nested`.
    """

    queries: list[Tensor]
    keys: list[Tensor]
    outputs: Tensor
    grams: list[Tensor | None] | None = None
    ones: bool = False
    kept: bool = False
    nested: bool = False
    scales: Tensor | None = None
    moments: list[tuple[Tensor, Tensor]] | None = None


class Program(Protocol):
    """What turns rows of E [S, v, m] and U [S, m, d_out] into tables."""

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables: ...


# --- index maps ------------------------------------------------------------------------------------------------


def _padded(targets: np.ndarray, sources: np.ndarray, count: int, filler: int) -> np.ndarray:
    """[count, K]: the sources of every target, in order, filled up with `filler`."""
    order = np.argsort(targets, kind="stable")
    targets, sources = targets[order], sources[order]
    sizes = np.bincount(targets, minlength=count)
    place = np.arange(len(targets)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.full((count, max(1, int(sizes.max(initial=0)))), filler, dtype=np.int64)
    table[targets, place] = sources
    return table


class _Gather:
    """The 0/1 map x [..., a] -> [..., b] with a one for every pair (row, column), by gathers in both directions: no sums whose
    order a device may change."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, size: int, count: int, device: Any) -> None:
        import torch

        self.forward = torch.as_tensor(_padded(columns, rows, count, size)).to(device)
        self.backward = torch.as_tensor(_padded(rows, columns, size, count)).to(device)

    def __call__(self, x: Tensor) -> Tensor:
        found: Tensor = _gather_function().apply(x, self.forward, self.backward)
        return found


def _take(x: Tensor, table: Tensor) -> Tensor:
    import torch

    wide = torch.nn.functional.pad(x, (0, 1))
    taken = wide.index_select(-1, table.reshape(-1))
    return taken if table.shape[1] == 1 else taken.view(*x.shape[:-1], *table.shape).sum(-1)


@cache
def _gather_function() -> Any:
    """The autograd function of `_Gather`, made when torch is there."""
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, forth: Any, back: Any) -> Any:
            context.back = back
            return _take(x, forth)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return _take(gradients[0], context.back), None, None

    return Gather


class IndexProgram:
    """Tables of a {0,1} host, the same for all seeds.

    Queries and keys are gathers of E's coordinates. For outputs, coordinates whose pair (row, column) occurs in the same words
    R_w form a group: one product E_rows U_columns for each group, and words are sums of groups.

    nested: beside a residual stream a coordinate that head h moves becomes (1 + A^h) x, others rest. In a prefix tree each is
    moved by one head a layer until it is read, so H^l streams do for (H + 1)^l words.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        host = model.host(0)
        moved = heads_that_move(host) if model.residual else None
        self.nested = moved is not None
        self.letters = model.letters - self.nested
        levels = word_maps(host, self.letters, model.residual and not self.nested)
        device = model["E"].device
        self._readers = self._query_maps(host, levels, device)
        if moved is not None:
            resting = [*(1 - moved), np.ones(host.m, dtype=np.int64)]
            read = [word.multiply(rest) for words, rest in zip(levels, resting, strict=True) for word in words]
        self._group(levels[-1] if moved is None else read, device)

    def _query_maps(self, host: Universal, levels: list[list[Any]], device: Any) -> _Gather:
        H, d = host.shape.heads, host.shape.head_dim
        rows, columns, start = [], [], 0
        for layer in range(host.shape.layers):
            for kind in range(2):
                for head in range(H):
                    entry = host.maps(layer, head)
                    reader = _sparse((entry.query, entry.key)[kind])
                    for word in levels[layer]:
                        product = (word @ reader).tocoo()
                        count = product.data.astype(np.int64)
                        rows.append(np.repeat(product.row, count))
                        columns.append(np.repeat(product.col, count) + start)
                        start += d
        return _Gather(np.concatenate(rows), np.concatenate(columns), host.m, start, device)

    def _group(self, words: list[Any], device: Any) -> None:
        """Group the pairs of the words of length L by the words in which they occur."""
        import torch

        m = self.model.m
        pairs, word = [], []
        for number, matrix in enumerate(words):
            entries = matrix.tocoo()
            count = entries.data.astype(np.int64)
            pairs.append(np.repeat(entries.row.astype(np.int64) * m + entries.col, count))
            word.append(np.full(len(pairs[-1]), number))
        distinct, place = np.unique(np.concatenate(pairs), return_inverse=True)
        occurs = np.zeros((len(distinct), len(words)), dtype=np.int64)
        np.add.at(occurs, (place.reshape(-1), np.concatenate(word)), 1)
        signatures, group = np.unique(occurs, axis=0, return_inverse=True)
        group = group.reshape(-1)
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group, minlength=len(signatures))
        by_size = np.argsort(sizes, kind="stable")
        members = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
        chosen = np.concatenate([members[g] for g in by_size]) if len(sizes) else order
        rows, columns = distinct[chosen] // m, distinct[chosen] % m
        places = np.arange(len(chosen))
        self._left = _Gather(rows, places, m, len(places), device)
        self._right = _Gather(columns, places, m, len(places), device)
        self._buckets = [(int(size), int((sizes == size).sum())) for size in np.unique(sizes)]
        mix = signatures[by_size].T
        self._mix = torch.as_tensor(mix).to(self.model["E"])
        # usual case, without a residual stream: one group a word
        self._order = torch.as_tensor(np.argmax(mix, 1)).to(device) if _one_each(mix) else None

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables:
        """See Program."""
        shape, letters = self.model.shape, self.letters
        S, v, _ = rows.shape
        H, d = shape.heads, shape.head_dim
        counts = [letters**layer for layer in range(shape.layers)]
        # split, not sliced: the gradients of slices are sums of padded ones
        blocks = self._readers(rows).split([H * words * d for words in counts for _ in range(2)], -1)
        found = [
            block.reshape(S, v, H, counts[number // 2], d).permute(0, 2, 3, 1, 4).reshape(S, H, -1, d)
            for number, block in enumerate(blocks)
        ]
        return Tables(found[::2], found[1::2], self._outputs(rows, unembedding), nested=self.nested)

    def _outputs(self, rows: Tensor, unembedding: Tensor) -> Tensor:
        import torch

        S, v, _ = rows.shape
        out = unembedding.shape[-1]
        left, right = self._left(rows), self._right(unembedding.transpose(1, 2)).transpose(1, 2)
        products, start = [], 0
        for size, count in self._buckets:
            part = left[..., start : start + size * count].view(S, v, count, size).transpose(1, 2)
            products.append(part @ right[:, start : start + size * count].view(S, count, size, out))
            start += size * count
        groups = torch.cat(products, 1) if len(products) > 1 else products[0]  # [S, groups, v, out]
        if self._order is not None:
            return groups.index_select(1, self._order).view(S, -1, out)
        return (self._mix @ groups.view(S, groups.shape[1], v * out)).view(S, -1, out)


def _one_each(mix: np.ndarray) -> bool:
    return mix.shape[0] == mix.shape[1] and bool((mix.sum(0) == 1).all() and (mix.sum(1) == 1).all())


def _sparse(matrix: SelectionMatrix) -> Any:
    from scipy.sparse import csr_array

    rows, columns = matrix.coordinates()
    return csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=matrix.shape)


def heads_that_move(host: Universal) -> np.ndarray | None:
    """[L, m]: the number of heads that move each coordinate, where it is 0 or 1, moved coordinates stay in place, and no layer
    reads or moves what rested before; None for other hosts."""
    heads, found = range(host.shape.heads), []
    live = np.ones(host.m, dtype=bool)
    for layer in range(host.shape.layers):
        maps = [host.maps(layer, head) for head in heads]
        diagonals = [diagonal for entry in maps if (diagonal := projection(entry.value[0])) is not None]
        if len(diagonals) < len(maps):
            return None
        read = [matrix.coordinates()[0] for entry in maps for matrix in (entry.query, entry.key)]
        moved = np.sum(diagonals, axis=0).astype(np.int64)
        if moved.max() > 1 or moved[~live].any() or not live[np.concatenate(read)].all():
            return None
        live &= moved > 0
        found.append(moved)
    return np.array(found)


def word_maps(host: Universal, letters: int, residual: bool) -> list[list[Any]]:
    """R_w as SciPy sparse matrices for all words w of length 0 ... L, last letter slowest."""
    from scipy.sparse import eye_array

    levels = [[eye_array(host.m, dtype=np.int64, format="csr")]]
    for layer in range(host.shape.layers):
        values = [_sparse(host.maps(layer, head).value[0]) for head in range(host.shape.heads)]
        moved = [word @ value for value in values for word in levels[-1]]
        levels.append([*levels[-1], *moved] if residual else moved)
    assert len(levels[-1]) == letters**host.shape.layers
    return levels


# --- dense hosts -------------------------------------------------------------------------------------------------


class DenseProgram:
    """Tables of dense hosts, one for each seed. R_w R_Q and R_w R_K are multiplied out once; E R_w U is met in the middle,
    where U changes with every step: E passes through the first layers, U back through the others."""

    def __init__(self, model: Model, max_memory: int | None = None) -> None:
        import torch

        self.model = model
        shape, m, like = model.shape, model.m, model["E"]
        readers = 2 * shape.heads * shape.head_dim * sum(model.letters**layer for layer in range(shape.layers))
        size = len(model.seeds) * m * (3 * readers + 2 * shape.layers * shape.heads * m)
        require_memory(8 * size, f"dense hosts and their R_w R_Q at {shape}, m = {m},", max_memory)
        seeds = range(len(model.seeds))
        self._readers = torch.stack([torch.as_tensor(reader_columns(model.host(s), model)).to(like) for s in seeds])
        layers, heads = range(shape.layers), range(shape.heads)
        self._values = [
            [torch.stack([torch.as_tensor(dense(model.host(s).maps(layer, h).value[0])).to(like) for s in seeds])
             for h in heads]
            for layer in layers
        ]  # fmt: skip

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables:
        """See Program."""
        shape, letters = self.model.shape, self.model.letters
        S, v, _ = rows.shape
        H, d = shape.heads, shape.head_dim
        counts = [letters**layer for layer in range(shape.layers)]
        blocks = times(rows, self._readers).split([2 * H * words * d for words in counts], -1)
        queries, keys = [], []
        for words, block in zip(counts, blocks, strict=True):
            both = block.reshape(S, v, 2, H, words, d).permute(2, 0, 3, 4, 1, 5).reshape(2, S, H, words * v, d)
            queries.append(both[0])
            keys.append(both[1])
        split = self.split(v)
        forth = rows
        for layer in range(split):
            forth = _forward(forth, [times(forth, value) for value in self._values[layer]], self.model.residual)
        back = _back(unembedding, self._values[split:], self.model.residual)
        return Tables(queries, keys, _meet(forth, back, shape.d_out))

    def split(self, v: int) -> int:
        """Through how many layers E passes: the cheapest number, for v rows."""
        return min(range(self.model.shape.layers + 1), key=lambda s: self.output_multiplications(v, s))

    def output_multiplications(self, v: int, split: int) -> int:
        """Multiplications of E R_w U for v rows when E passes through the first `split` layers (forward pass)."""
        shape, letters, m = self.model.shape, self.model.letters, self.model.m
        forth = sum(letters**t for t in range(split)) * v
        back = sum(letters**t for t in range(shape.layers - split)) * shape.d_out
        return shape.heads * m * m * (forth + back) + m * v * shape.d_out * letters**shape.layers


def _forward(rows: Tensor, moved: list[Tensor], residual: bool) -> Tensor:
    """Rows for words one letter longer, last letter slowest: [S, letters W v, m]."""
    import torch

    return torch.cat([rows, *moved] if residual else moved, 1)


def _back(unembedding: Tensor, values: list[list[Tensor]], residual: bool) -> Tensor:
    """(R_u U)^T for all words u of the last layers, [S, W d_out, m], last letter slowest. In rows: a large matrix times a few
    columns takes the processor three times as long where the gradient needs its transpose."""
    import torch

    S, m, out = unembedding.shape
    found = unembedding.transpose(1, 2).contiguous().view(S, 1, out, m)
    for layer in reversed(values):
        flat = found.reshape(S, -1, m)
        moved = [times(flat, value.transpose(1, 2)).view(found.shape) for value in layer]
        found = torch.stack([found, *moved] if residual else moved, 2).reshape(S, -1, out, m)
    return found.reshape(S, -1, m)


def _meet(forth: Tensor, back: Tensor, out: int) -> Tensor:
    """E R_w U [S, W v, d_out] from E R_u [S, W_u v, m] and (R_u' U)^T [S, W_u' d_out, m]."""
    S, rows, _ = forth.shape
    return times(forth, back.transpose(1, 2)).view(S, rows, -1, out).transpose(1, 2).reshape(S, -1, out)


def reader_columns(host: Universal, model: Model) -> np.ndarray:
    """[m, columns] in float64: for each layer the blocks R_w R_Q^{l,h}, then R_w R_K^{l,h}, by head, then word, then
    coordinate."""
    shape, m = host.shape, host.m
    heads = range(shape.heads)
    parts = []
    for layer in range(shape.layers):
        maps = [host.maps(layer, head) for head in heads]
        block = np.stack([*(dense(e.query) for e in maps), *(dense(e.key) for e in maps)], 1)[:, :, None, :]
        for before in reversed(range(layer)):
            flat = block.reshape(m, -1)
            moved = [(dense(host.maps(before, head).value[0]) @ flat).reshape(block.shape) for head in heads]
            block = np.stack([block, *moved] if model.residual else moved, 3)
            block = block.reshape(m, 2 * shape.heads, -1, shape.head_dim)
        parts.append(block.reshape(m, -1))
    return np.concatenate(parts, 1)


# --- trained -----------------------------------------------------------------------------------------------------


class TrainedProgram:
    """Tables of a transformer whose own matrices are trained, m-wide or at its own width: rows of E pass through all layers,
    and gradients through every product."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._own = "W_V" in model
        self._readers, self._values = trained_matrices(model)

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables:
        """See Program."""
        import torch

        model, shape = self.model, self.model.shape
        readers, values = ([matrices.take() for matrices in kind] for kind in (self._readers, self._values))
        queries: list[Tensor] = []
        keys: list[Tensor] = []
        for layer in range(shape.layers):
            for matrices, found in zip(readers, (queries, keys), strict=True):
                found.append(torch.stack([matrix.after(rows) for matrix in matrices[layer]], 1))
            if layer + 1 == shape.layers and not self._own and rows.shape[1] > shape.d_out:
                # U is narrower than the rows are many: let it pass through the last layer instead
                last = [matrix.before(unembedding.transpose(1, 2)) for matrix in values[0][layer]]
                columns = [unembedding] * model.residual + [x.transpose(1, 2) for x in last]
                return Tables(queries, keys, torch.cat([times(rows, column) for column in columns], 1))
            moved = [rows] * shape.heads
            for factor in values:
                moved = [matrix.after(x) for x, matrix in zip(moved, factor[layer], strict=True)]
            rows = _forward(rows, moved, model.residual)
        return Tables(queries, keys, times(rows, unembedding))


def trained_matrices(model: Model) -> tuple[list[Matrices], list[Matrices]]:
    """Of queries and keys, and the factors of values: R_Q, R_K, R_V, or W_Q, W_K, W_V, W_O at the target's own width."""
    readers, values = (("W_Q", "W_K"), ("W_V", "W_O")) if "W_V" in model else (("R_Q", "R_K"), ("R_V",))
    return [Matrices(model[name]) for name in readers], [Matrices(model[name]) for name in values]
