"""The m-wide engine: the host as it is defined, on activations [B, n, m]. The reference, and the only way with MLPs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.training.matrices import product
from utfproof.training.models import NORM_EPSILON, Model, dense, projection

if TYPE_CHECKING:
    from torch import Tensor


class _Layer:
    """One layer of one frozen host as tensors: all readers side by side [m, 2Hd], and a value map for each head.

    Rows that no reader reads are left out of the product. Values: a mask [m] where R_V is a diagonal projection, else dense;
    kept: the runs of coordinates that each head's mask keeps, where all have one.
    """

    def __init__(self, model: Model, number: int, layer: int) -> None:
        import torch

        host = model.host(number)
        like = model["E"]
        heads = range(model.shape.heads)
        maps = [host.maps(layer, head) for head in heads]
        readers = np.concatenate([*(dense(entry.query) for entry in maps), *(dense(entry.key) for entry in maps)], 1)
        used = np.flatnonzero(readers.any(1))
        self.first, self.last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
        self.readers = torch.as_tensor(readers[self.first : self.last]).to(like)
        self.values = [_value(entry.value[0], like) for entry in maps]
        diagonal = all(value.dim() == 1 for value in self.values)
        self.kept = [_runs(value) for value in self.values] if diagonal else None

    def read(self, x: Tensor) -> Tensor:
        return product(x[..., self.first : self.last], self.readers)

    def move(self, head: int, x: Tensor) -> Tensor:
        value = self.values[head]
        return x * value if value.dim() == 1 else product(x, value)


def _value(matrix: object, like: Tensor) -> Tensor:
    import torch

    mask = projection(matrix)
    return torch.as_tensor(dense(matrix) if mask is None else mask).to(like)


class WideEngine:
    """Forward passes of a model, m-wide. Nothing is left out but what no output reads."""

    name = "wide"
    folds = False
    """Whether U is multiplied into the last MLP."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._layers: list[list[_Layer]] = []
        self._parts: dict[str, tuple[Tensor, ...]] = {}  # of one pass
        if model.hosts is not None:
            per_seed = len(model.hosts)
            self._layers = [[_Layer(model, s, layer) for layer in range(model.shape.layers)] for s in range(per_seed)]

    def logits(self, inputs: Tensor, look: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """Outputs [S, B, k, d_out] for token ids [S, B, n], at the positions look [S, B, k] (all without it).

        tokens belongs to path space and plays no part here.
        """
        import torch

        self._parts = {}
        looks = [None] * len(inputs) if look is None else look
        return torch.stack([self._outputs(number, ids, looks[number]) for number, ids in enumerate(inputs)])

    def _outputs(self, number: int, ids: Tensor, look: Tensor | None) -> Tensor:
        """Outputs [B, k, d_out] of one model at the positions look [B, k]; at all without it."""
        x = self._looked(number, ids, look)
        if self.model.norm and self.model.norm_place == "pre":
            x = self._norm(number, x, -1)
        return x @ self.model["U"][number]

    def _part(self, name: str, *place: int) -> Tensor:
        """model[name][place] at a seed, layer (or LN), and head where there are heads. All are taken at once: the gradient of
        a single one is as large as the parameter."""
        tensor = self.model[name]
        axes = 3 if tensor.dim() == 5 else 2
        if name not in self._parts:
            self._parts[name] = tensor.flatten(0, axes - 1).unbind(0)
        flat = 0
        for index, size in zip(place, tensor.shape, strict=False):
            flat = flat * size + index % size  # -1: the last of this seed, not of the one before
        return self._parts[name][flat]

    def _looked(self, number: int, ids: Tensor, look: Tensor | None) -> Tensor:
        """X^L of one model at the positions look [B, k], [B, k, m]; at all without it."""
        model = self.model
        x = handed_out(model["E"][number], ids)
        if model.learned_positions:
            x = x + model["P"][number][: ids.shape[1]]
        for layer in range(model.shape.layers):
            x = self._through(number, layer, x, partial(self._attend, number, layer))
        return x if look is None else x.gather(1, look[..., None].expand(-1, -1, x.shape[-1]))

    def _through(
        self, number: int, layer: int, x: Tensor, attend: Callable[[Tensor], Tensor], mlp: bool = True
    ) -> Tensor:
        """Rows x [..., m] after a layer, or before its MLP; attend: of the rows that it reads, what the layer's attention moves
        to them."""
        model = self.model
        for part in (attend, partial(self._mlp, number, layer)) if model.mlp and mlp else (attend,):
            place = layer * (1 + model.mlp) + (part is not attend)
            moved = part(self._read_at(number, x, place))
            x = x + moved if model.residual else moved
            x = self._norm(number, x, place) if model.norm and model.norm_place == "post" else x
        return x

    def _read_at(self, number: int, x: Tensor, place: int) -> Tensor:
        """What is read of the stream there: LN(x) where LN comes before."""
        return self._norm(number, x, place) if self.model.norm and self.model.norm_place == "pre" else x

    def _attend(self, number: int, layer: int, x: Tensor) -> Tensor:
        """sum_h A^h x R_V^h for x [B, n, m]."""
        import torch

        model, (B, n, _) = self.model, x.shape
        H, d = model.shape.heads, model.shape.head_dim
        queries, keys = self._read(number, layer, x).view(B, n, 2, H, d).permute(2, 0, 3, 1, 4)
        hidden = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        logits = (queries * model.scale) @ keys.transpose(-1, -2)
        attention = logits.masked_fill(hidden, float("-inf")).softmax(-1)
        kept = self._kept(number, layer)
        if kept is not None:
            found: Tensor = _function().apply(attention, x, kept)
            return found
        total = None
        for head in range(H):
            moved = self._move(number, layer, head, attention[:, head] @ x)
            total = moved if total is None else total + moved
        assert total is not None
        return total

    def _read(self, number: int, layer: int, x: Tensor) -> Tensor:
        """All queries, then all keys, [B, n, 2 H d]."""
        import torch

        model = self.model
        if model.hosts is not None:
            return self._layers[number % len(self._layers)][layer].read(x)
        names = ("W_Q", "W_K") if "W_Q" in model else ("R_Q", "R_K")
        parts = [self._part(name, number, layer, head) for name in names for head in range(model.shape.heads)]
        return product(x, torch.cat(parts, 1))

    def _kept(self, number: int, layer: int) -> list[list[slice]] | None:
        """The coordinates that each head moves, where a frozen host's R_V are projections."""
        return self._layers[number % len(self._layers)][layer].kept if self.model.hosts is not None else None

    def _move(self, number: int, layer: int, head: int, x: Tensor) -> Tensor:
        model = self.model
        if model.hosts is not None:
            return self._layers[number % len(self._layers)][layer].move(head, x)
        if "W_V" in model:
            narrow = product(x, self._part("W_V", number, layer, head))
            return product(narrow, self._part("W_O", number, layer, head))
        return product(x, self._part("R_V", number, layer, head))

    def _norm(self, number: int, x: Tensor, place: int) -> Tensor:
        import torch

        gain = shift = None
        if "gain" in self.model:
            gain, shift = self._part("gain", number, place), self._part("shift", number, place)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift, NORM_EPSILON)

    def _mlp(self, number: int, layer: int, x: Tensor) -> Tensor:
        weight, bias, back, shift = self._mlp_parts(number, layer)
        return product(gelu(product(x, weight) + bias), back) + shift

    def _mlp_parts(self, number: int, layer: int) -> list[Tensor]:
        """W_in [m, w], b_in [w], W_out [w, m], b_out [m]."""
        return [self._part(f"mlp_{name}", number, layer) for name in ("in", "in_bias", "out", "out_bias")]


def handed_out(x: Tensor, index: Tensor) -> Tensor:
    """x[index] for x [G, ...] and index of any shape. Its gradient is added up in one order whatever the number of threads,
    which that of x[index] is not."""
    import torch

    return torch.nn.functional.embedding(index, x.flatten(1)).view(*index.shape, *x.shape[1:])


def gelu(x: Tensor) -> Tensor:
    import torch

    return torch.nn.functional.gelu(x)


def _runs(mask: Tensor) -> list[slice]:
    """Where a mask [m] of zeros and ones is not 0."""
    edges = mask.new_zeros(len(mask) + 2)
    edges[1:-1] = mask
    places = edges.diff().nonzero()[:, 0].tolist()
    return [slice(start, end) for start, end in zip(places[::2], places[1::2], strict=True)]


@cache
def _function() -> Any:
    """The autograd function A [B, H, n, n], x [B, n, m] -> sum_h A^h x P^h [B, n, m], P^h the projection onto the coordinates
    kept[h]: no other is computed. Made when torch is there."""
    import torch

    class Projected(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, A: Any, x: Any, kept: Any) -> Any:
            total = torch.zeros_like(x)
            for head, runs in enumerate(kept):
                for run in runs:
                    total[..., run] += A[:, head] @ x[..., run]
            context.save_for_backward(A, x)
            context.kept = kept
            return total

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (A, x), g = context.saved_tensors, gradients[0]
            dA, dx = torch.zeros_like(A), torch.zeros_like(x)
            for head, runs in enumerate(context.kept):
                for run in runs:
                    dA[:, head] += g[..., run] @ x[..., run].transpose(-1, -2)
                    dx[..., run] += A[:, head].transpose(-1, -2) @ g[..., run]
            return dA, dx, None

    return Projected
