"""Programs with layer normalisation. LN bends the stream only by one number for each position, and path space knows it.

A stream is x = p Y, with coefficients p over rows Y that all positions share. LN(x) = s(p) p Z with Z = Y C the rows less their
means (C = I - 11^T/m) and s(p) = (p G p^T + eps)^{-1/2} for the Gram matrix G = Z Z^T/m. So a layer reads the
coefficients s(p) p over rows Z, and what it moves are rows Z R_V: the next rows are Y (with a residual stream) and Z R_V for
each head. A gain multiplies the columns of Z; a shift is one row more, whose coefficient is 1 everywhere.

Before the first layer, without learned positions, x is a row of E: LN is applied to the rows themselves. Post-LN, which stands
after each layer, replaces the stream: its coefficients become s(p) p and its rows Z.

Axis letters: S seeds, c rows, H heads, m embedding dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.training.matrices import Matrix, add_product, add_symmetric, mirror, times
from utfproof.training.models import NORM_EPSILON, Model, dense, projection
from utfproof.training.programs import Tables, trained_matrices

if TYPE_CHECKING:
    from torch import Tensor


class NormedProgram:
    """Tables of any host or trained transformer with LN: rows pass through the layers, m-wide."""

    def __init__(self, model: Model, max_memory: int | None = None) -> None:
        self.model = model
        self.shifted, self.post = "shift" in model, model.norm_place == "post"
        layers = range(model.shape.layers)
        self._frozen: list[_FrozenMaps] = []
        if model.hosts is None:
            self._trained = trained_matrices(model)
            return
        shape, m = model.shape, model.m
        if not isinstance(model.hosts[0].U, SelectionMatrix):
            each = m * shape.heads * (2 * shape.head_dim + m)
            size = 8 * len(model.hosts) * each * shape.layers
            require_memory(size, f"dense hosts at {shape}, m = {m},", max_memory)
        self._frozen = [_FrozenMaps(model, layer) for layer in layers]

    def _maps(self) -> Sequence[_FrozenMaps | _TrainedMaps]:
        """Of each layer, for one step."""
        if self._frozen:
            return self._frozen
        readers, values = ([matrices.take() for matrices in kind] for kind in self._trained)
        return [
            _TrainedMaps([matrix[layer] for matrix in readers], [matrix[layer] for matrix in values])
            for layer in range(self.model.shape.layers)
        ]

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables:
        """See Program. grams[l]: G [S, c, c] of what layer l reads (l = L: of what U reads), None where rows carry LN."""
        import torch

        model, H = self.model, self.model.shape.heads
        queries: list[Tensor] = []
        keys: list[Tensor] = []
        grams: list[Tensor | None] = []
        for layer, maps in enumerate(self._maps()):
            read, gram = self._read(layer, rows)
            rows = read if self.post else rows
            grams.append(gram)
            S, c, _ = read.shape
            both = maps.readers(read).view(S, c, 2, H, -1).permute(2, 0, 3, 1, 4)
            queries.append(both[0])
            keys.append(both[1])
            moved = [maps.move(head, read) for head in range(H)]
            rows = torch.cat([rows, *moved] if model.residual else moved, 1)
        read, gram = self._read(model.shape.layers, rows)
        return Tables(queries, keys, times(read, unembedding), [*grams, gram], self.shifted, self.post)

    def _read(self, place: int, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The rows that are read by layer `place` (or by U), [S, c, m], or one more with a shift; and their Gram matrix."""
        import torch

        model = self.model
        if self.post and place == 0:
            return rows, None
        centred = rows - rows.mean(-1, keepdim=True)
        gram = None
        if place == 0 and not model.learned_positions:
            scale = (centred.square().mean(-1, keepdim=True) + NORM_EPSILON).rsqrt()
            centred = centred * scale
        else:
            gram = _functions()[2].apply(centred)
        if not self.shifted:
            return centred, gram
        which = place - self.post
        centred, shift = centred * model["gain"][:, which, None], model["shift"][:, which, None]
        return (centred + shift, None) if gram is None else (torch.cat([centred, shift], 1), gram)


class _FrozenMaps:
    """One layer of fixed hosts. Value maps that are diagonal projections are masks [S, 1, m]."""

    def __init__(self, model: Model, layer: int) -> None:
        import torch

        assert model.hosts is not None
        like, heads = model["E"], range(model.shape.heads)
        entries = [[host.maps(layer, head) for head in heads] for host in model.hosts]
        blocks = [np.concatenate([dense(e.query) for e in maps] + [dense(e.key) for e in maps], 1) for maps in entries]
        self._readers = torch.stack([torch.as_tensor(block).to(like) for block in blocks])
        self._values = []
        for head in heads:
            values = [maps[head].value[0] for maps in entries]
            masks = [projection(value) for value in values]
            parts = [dense(value) if mask is None else mask[None] for value, mask in zip(values, masks, strict=True)]
            self._values.append(torch.stack([torch.as_tensor(part).to(like) for part in parts]))

    def readers(self, rows: Tensor) -> Tensor:
        """[S, c, 2 H d]: the queries of all heads, then the keys."""
        return times(rows, _for_each(self._readers, rows))

    def move(self, head: int, rows: Tensor) -> Tensor:
        """Z R_V, [S, c, m]."""
        value = self._values[head]
        return rows * value if value.shape[1] == 1 else times(rows, _for_each(value, rows))


def _for_each(matrix: Tensor, rows: Tensor) -> Tensor:
    """One host for all seeds, or one for each."""
    return matrix if len(matrix) == len(rows) else matrix.expand(len(rows), -1, -1)


class _TrainedMaps:
    """One layer's matrices that are trained: of queries and keys, and the factors of values, by head."""

    def __init__(self, readers: list[list[Matrix]], values: list[list[Matrix]]) -> None:
        self._readers, self._values = readers, values

    def readers(self, rows: Tensor) -> Tensor:
        import torch

        return torch.cat([matrix.after(rows) for matrices in self._readers for matrix in matrices], -1)

    def move(self, head: int, rows: Tensor) -> Tensor:
        for matrices in self._values:
            rows = matrices[head].after(rows)
        return rows


# --- the scale of a position ---------------------------------------------------------------------------------------------

_CHUNK = 200_000
"""Coefficients held at a time on a CPU: they pass from product to product within the cache."""


def normalised(p: Tensor, gram: Tensor, shifted: bool) -> Tensor:
    """s(p) p for coefficients p [S, B, k, c] and G [S, c, c], with a column of ones more where a shift is added."""
    import torch

    S, B, k, c = p.shape
    scaled: Tensor = _functions()[0].apply(p.reshape(S, B * k, c), gram).view(S, B, k, c)
    return torch.cat([scaled, scaled.new_ones(S, B, k, 1)], 3) if shifted else scaled


def normalised_times(p: Tensor, gram: Tensor, matrix: Tensor, shifted: bool) -> Tensor:
    """s(p) p M [S, B, k, f] for M [S, c, f]; with a shift M has one row more, which is added."""
    S, B, k, c = p.shape
    found: Tensor = _functions()[1].apply(p.reshape(S, B * k, c), gram, matrix[:, :c]).view(S, B, k, -1)
    return found + matrix[:, None, c:] if shifted else found


def chunks(p: Tensor) -> list[tuple[slice, slice]]:
    """Positions taken together: all on a GPU."""
    S, rows, c = p.shape
    size = max(1, _CHUNK // c) if p.device.type == "cpu" else max(1, rows)
    every = [slice(0, S)] if p.device.type != "cpu" else [slice(s, s + 1) for s in range(S)]
    return [(seed, slice(start, start + size)) for seed in every for start in range(0, rows, size)]


def _scale(half: Tensor, p: Tensor) -> Tensor:
    """s(p), from half the gradient of p G p^T. Rounding may leave a variance a little below 0."""
    return ((half * p).sum(-1, keepdim=True).clamp_min_(0) + NORM_EPSILON).rsqrt_()


@cache
def _functions() -> tuple[Any, ...]:
    """The autograd functions, made when torch is there. Backward, with v = p G p^T: ds/dv = -s^3/2, dv/dp = 2 p G,
    dv/dG = p^T p. Last, the Gram matrix of rows: its gradient is one product, not one for each factor."""
    import torch

    class Normalise(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, p: Any, gram: Any) -> Any:
            found, half = torch.empty_like(p), torch.empty_like(p)
            scale = p.new_empty(*p.shape[:2], 1)
            for part in chunks(p):
                torch.bmm(p[part], gram[part[0]], out=half[part])
                scale[part] = _scale(half[part], p[part])
                torch.mul(p[part], scale[part], out=found[part])
            context.save_for_backward(p, half, scale)
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            p, half, scale = context.saved_tensors
            g, dp = gradients[0].contiguous(), torch.empty_like(p)
            dG = p.new_zeros(len(p), p.shape[2], p.shape[2])
            for part in chunks(p):
                s, x = scale[part], p[part]
                by_variance = (g[part] * x).sum(-1, keepdim=True) * s.pow(3) * -0.5
                add_symmetric(dG[part[0]], x, x * by_variance)
                torch.addcmul(g[part] * s, half[part], 2 * by_variance, out=dp[part])
            mirror(dG)
            return dp, dG

    class NormaliseTimes(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, p: Any, gram: Any, matrix: Any) -> Any:
            half = torch.empty_like(p)
            found = p.new_empty(*p.shape[:2], matrix.shape[-1])
            scale = p.new_empty(*p.shape[:2], 1)
            for part in chunks(p):
                torch.bmm(p[part], gram[part[0]], out=half[part])
                scale[part] = _scale(half[part], p[part])
                found[part] = (p[part] @ matrix[part[0]]).mul_(scale[part])
            context.save_for_backward(p, half, scale, found, matrix)
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            p, half, scale, found, matrix = context.saved_tensors
            g, dp, dM = gradients[0].contiguous(), torch.empty_like(p), torch.zeros_like(matrix)
            dG = p.new_zeros(len(p), p.shape[2], p.shape[2])
            for part in chunks(p):
                s, x = scale[part], p[part]
                by_variance = (g[part] * found[part]).sum(-1, keepdim=True) * s.square() * -0.5
                scaled = g[part] * s
                add_symmetric(dG[part[0]], x, x * by_variance)
                add_product(dM[part[0]], x.transpose(1, 2), scaled)
                torch.bmm(scaled, matrix[part[0]].transpose(1, 2), out=dp[part])
                dp[part].addcmul_(half[part], 2 * by_variance)
            mirror(dG)
            return dp, dG, dM

    class Gram(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, rows: Any) -> Any:
            context.save_for_backward(rows)
            return times(rows, rows.transpose(1, 2)) / rows.shape[-1]

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (rows,), g = context.saved_tensors, gradients[0]
            return times((g + g.transpose(1, 2)) / rows.shape[-1], rows)

    return Normalise, NormaliseTimes, Gram
