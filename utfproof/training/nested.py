"""Layer normalisation beside a residual stream in a prefix tree, where one head a layer moves a coordinate until it rests.

As without LN (`programs.IndexProgram`), a coordinate with the heads w = h_1 ... h_l behind it is moved by head h from x to
x + A^h LN(x). LN(x) = s (x - mu 1) has one scale s and one mean mu for each position. So the coordinates of a word w are c_w Y,
with coefficients c_w over the rows Y of E and one more row of ones, through which means are passed on; where they rest, c_w
stays as it is.

Mean and variance are sums over words: c_w y_w and c_w G_w c_w^T - mu^2, where y_w and G_w are the sums and products of the rows
over the coordinates of w, divided by m. Words that are alive are read by a layer; those that rest are added up once.
Rows of E are taken less their means: LN does not see these, and the first layer's mean is 0.

Axis letters: S seeds, v rows (tokens and ones), c = W v coefficients for W words, K forms.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.ground.selection import SelectionMatrix
from utfproof.training.matrices import add_symmetric, mirror, times
from utfproof.training.models import NORM_EPSILON, Model
from utfproof.training.normed import chunks
from utfproof.training.programs import IndexProgram, Tables, heads_that_move, word_maps

if TYPE_CHECKING:
    from torch import Tensor


def is_nested(model: Model) -> bool:
    """Whether a model's LN can be passed through in nested streams: before layers, without gains, over tokens alone."""
    if model.hosts is None or not isinstance(model.hosts[0].U, SelectionMatrix) or model.learned_positions:
        return False
    plain = model.residual and model.norm and model.norm_place == "pre" and "shift" not in model
    return plain and heads_that_move(model.host(0)) is not None


class NestedNormedProgram:
    """Tables of a {0,1} host whose heads add to the coordinates that they move, with LN before layers."""

    def __init__(self, model: Model) -> None:
        import torch

        self.index, host = IndexProgram(model), model.host(0)
        moved = heads_that_move(host)
        assert moved is not None
        words = [np.stack([word.diagonal() for word in level]) for level in word_maps(host, host.shape.heads, False)]
        # [m, words]: of each length those that are alive (for a layer to read), then those of them that rest from then on
        self._counts = [len(level) for level in words]
        parts = [part for level, rest in zip(words, [*(1 - moved), None], strict=True)
                 for part in ((level,) if rest is None else (level, level * rest))]  # fmt: skip
        self._members = torch.as_tensor(np.concatenate(parts).T / model.m).to(model["E"])

    def tables(self, rows: Tensor, unembedding: Tensor) -> Tables:
        """See Program: rows of E only; one of ones is added. Queries and keys of the first layer carry its scale."""
        import torch

        centred = rows - rows.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + NORM_EPSILON).rsqrt()
        whole = torch.cat([centred, torch.ones_like(rows[:, :1])], 1)
        scales = torch.cat([scale, torch.ones_like(scale[:, :1])], 1)
        tables = self.index.tables(whole, unembedding)
        for kind in (tables.queries, tables.keys):
            kind[0] = kind[0] * scales[:, None]
        return tables._replace(scales=scales.view(len(rows), 1, 1, -1), moments=self._moments(whole))

    def _moments(self, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For words of each length, those alive and those that rest: G_w side by side on a diagonal [S, K, c, c], y_w
        [S, K, c]. K = 1 for the longest words."""
        import torch

        S, v, m = rows.shape
        products = (rows[:, :, None] * rows[:, None]).view(S, v * v, m) @ self._members
        sums = rows @ self._members
        found, start = [], 0
        for length, W in enumerate(self._counts):
            K = 1 if length == len(self._counts) - 1 else 2
            part = products[..., start : start + K * W].view(S, v, v, K, W).permute(0, 3, 1, 2, 4)
            forms = torch.diag_embed(part, dim1=2, dim2=4).reshape(S, K, W * v, W * v)
            found.append(
                (forms, sums[..., start : start + K * W].reshape(S, v, K, W).permute(0, 2, 3, 1).reshape(S, K, -1))
            )
            start += K * W
        return found


class PositionScales:
    """Scales and means of positions, layer by layer: what rests is summed up."""

    def __init__(self, moments: list[tuple[Tensor, Tensor]], v: int) -> None:
        self._moments, self._v, self._level = moments, v, 0
        self._rest: Tensor | float = 0.0

    def measure(self, stream: Tensor, look: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """s and mu [S, B, k, 1] of positions with coefficients [S, B, k, c] over the words of the next length. look [S, B, k]:
        these positions among those measured before."""
        S, B, k, c = stream.shape
        forms, sums = self._moments[self._level]
        if look is not None and not isinstance(self._rest, float):
            self._rest = self._rest.gather(2, look[..., None].expand(*look.shape, 2))
        found = _functions()[0].apply(stream.reshape(S, B * k, c), forms, sums).view(S, B, k, -1, 2)
        square, mean = (found[..., 0, :] + self._rest).split(1, -1)
        if found.shape[3] > 1:
            self._rest = self._rest + found[..., 1, :]
        self._level += 1
        return ((square - mean.square()).clamp_min(0) + NORM_EPSILON).rsqrt(), mean

    def read(self, stream: Tensor, *, scaled: bool = True) -> Tensor:
        """Coefficients of LN(x): the mean is taken from each word's ones. Not scaled: as they are, of mean 0."""
        scale, mean = self.measure(stream)
        return _functions()[1].apply(stream, scale, mean, self._v) if scaled else stream

    def outputs(self, streams: list[Tensor], tables: Tensor, look: Tensor | None) -> Tensor:
        """What U reads of LN(x) [S, B, k, d_out], from coefficients over the words of each length."""
        scale, mean = self.measure(streams[-1], look)
        of_ones = tables.view(len(tables), -1, self._v, tables.shape[-1])[:, :, -1].sum(1)
        parts = tables.split([stream.shape[-1] for stream in streams], 1)
        found = -mean * of_ones[:, None, None]
        for stream, part in zip(streams, parts, strict=True):
            found = found + times(stream.flatten(1, 2), part).view_as(found)
        return scale * found


@cache
def _functions() -> tuple[Any, Any]:
    """The autograd functions, made when torch is there: from c [S, n, c], symmetric G [S, K, c, c] and y [S, K, c] to c G c^T
    and c y [S, n, 2 K]; and s (c - mu where c belongs to a row of ones)."""
    import torch

    class Moments(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, p: Any, forms: Any, sums: Any) -> Any:
            K = forms.shape[1]
            halves, found = p.new_empty(K, *p.shape), p.new_empty(*p.shape[:2], 2 * K)
            for part in chunks(p):
                for number in range(K):
                    half = torch.bmm(p[part], forms[part[0], number], out=halves[number][part])
                    found[..., 2 * number][part] = (half * p[part]).sum(-1)
            found[..., 1::2] = p @ sums.transpose(1, 2)
            context.save_for_backward(p, halves, sums)
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (p, halves, sums), g = context.saved_tensors, gradients[0].contiguous()
            K, c = len(halves), p.shape[2]
            dp, dG = g[..., 1::2] @ sums, p.new_zeros(len(p), K, c, c)
            for part in chunks(p):
                for number in range(K):
                    weight, x = g[..., 2 * number, None][part], p[part]
                    dp[part].addcmul_(halves[number][part], weight, value=2)
                    add_symmetric(dG[part[0], number], x, x * weight)
            mirror(dG.flatten(0, 1))
            return dp, dG, g[..., 1::2].transpose(1, 2) @ p

    class Read(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, p: Any, scale: Any, mean: Any, v: int) -> Any:
            context.save_for_backward(p, scale, mean)
            context.v, found = v, p * scale
            found[..., v - 1 :: v].sub_(scale * mean)
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (p, scale, mean), g = context.saved_tensors, gradients[0]
            of_ones = g[..., context.v - 1 :: context.v].sum(-1, keepdim=True)
            return g * scale, (g * p).sum(-1, keepdim=True) - mean * of_ones, -scale * of_ones, None

    return Moments, Read
