"""The m-wide engine: the model as the paper defines it, on activations x [B, n, m].

Axis letters: B sequences, n tokens, k positions whose outputs are wanted, H heads, d head dimension.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from utfproof.training.model import Model, maps_of

if TYPE_CHECKING:
    from torch import Tensor

NORM_EPSILON = 1e-5


class WideEngine:
    """Forward passes of a model."""

    name = "wide"

    def __init__(self, model: Model) -> None:
        self.model = model
        self.maps = maps_of(model)

    def logits(self, ids: Tensor, look: Tensor | None = None) -> Tensor:
        """Outputs [B, k, d_out] for token ids [B, n], at the positions look [B, k] (all n without it)."""
        model, preset = self.model, self.model.preset
        x = rows_of(model["E"], ids)
        if "P" in model:
            x = x + model["P"][: ids.shape[1]]
        last = preset.layers - 1
        for layer in range(preset.layers):
            place = layer * (1 + preset.mlp)
            here = look if layer == last else None
            moved = self._attend(layer, self._norm(place, x), here)
            x = pick(x, here) + moved if preset.residual else moved
            if preset.mlp:
                inner = self._mlp(layer, self._norm(place + 1, x))
                x = x + inner if preset.residual else inner
        return self._norm(-1, x) @ model["U"]

    def _norm(self, place: int, x: Tensor) -> Tensor:
        """LN(x), x itself in a variant without it."""
        import torch

        model = self.model
        if not model.preset.norm:
            return x
        gain, shift = (model["gain"][place], model["shift"][place]) if "gain" in model else (None, None)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift, NORM_EPSILON)

    def _attend(self, layer: int, x: Tensor, look: Tensor | None) -> Tensor:
        """sum_h A^h x R_V^h, [B, k, m]."""
        import torch

        model, maps = self.model, self.maps[layer]
        B, n, _ = x.shape
        queries, keys = maps.read(x).view(B, n, 2, model.shape.heads, -1).permute(2, 0, 3, 1, 4)
        later = torch.arange(n, device=x.device) > torch.arange(n, device=x.device)[:, None]
        if look is not None:
            queries = pick(queries.transpose(1, 2).flatten(2), look).view(B, look.shape[1], model.shape.heads, -1)
            queries = queries.transpose(1, 2)
            later = later[look][:, None]
        weights = ((queries * model.scale) @ keys.transpose(-1, -2)).masked_fill(later, float("-inf")).softmax(-1)
        if maps.runs is not None:
            found: Tensor = _function().apply(weights, x, maps.runs, look is None)
            return found
        return sum_of([maps.move(head, weights[:, head] @ x) for head in range(model.shape.heads)])

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        import torch

        inner, bias, outer, shift = (self.model[f"mlp_{name}"][layer] for name in ("in", "in_bias", "out", "out_bias"))
        return torch.nn.functional.gelu(x @ inner + bias) @ outer + shift


def rows_of(E: Tensor, ids: Tensor) -> Tensor:
    """E[ids]. On a GPU as a product with one-hot rows, whose gradient adds up in a fixed order."""
    import torch

    if E.device.type == "cpu":
        return torch.nn.functional.embedding(ids, E)
    return torch.nn.functional.one_hot(ids, len(E)).to(E.dtype) @ E


def pick(x: Tensor, look: Tensor | None) -> Tensor:
    """Rows [B, k, w] of x [B, n, w] at the positions look [B, k]; x itself without it."""
    return x if look is None else x.gather(1, look[..., None].expand(*look.shape, x.shape[-1]))


def sum_of(parts: list[Tensor]) -> Tensor:
    """The sum of at least one tensor."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


_BLOCK = 33
"""Positions that a CPU takes together where all are asked in order: a block needs the keys up to its end only."""


@cache
def _function() -> Any:
    """The autograd function A [B, H, k, n], x [B, n, m], runs -> sum_h A^h x R_V^h [B, k, m], R_V^h copying runs of
    coordinates: no other coordinate is averaged. Made when torch is imported."""
    import torch

    def blocks(A: Any, in_order: bool) -> list[tuple[slice, slice]]:
        """(rows, keys) of the blocks."""
        k, n = A.shape[-2:]
        if not in_order or A.device.type != "cpu":
            return [(slice(0, k), slice(0, n))]
        return [
            (slice(start, min(start + _BLOCK, k)), slice(0, min(start + _BLOCK, n))) for start in range(0, k, _BLOCK)
        ]

    class Moved(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, A: Any, x: Any, runs: Any, in_order: bool) -> Any:
            total = x.new_zeros(len(x), A.shape[2], x.shape[2])
            for head, copied in enumerate(runs):
                for rows, keys in blocks(A, in_order):
                    for source, place in copied:
                        total[:, rows, place] += A[:, head, rows, keys] @ x[:, keys, source]
            context.save_for_backward(A, x)
            context.runs, context.in_order = runs, in_order
            return total

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (A, x), g = context.saved_tensors, gradients[0]
            dA, dx = torch.zeros_like(A), torch.zeros_like(x)
            for head, copied in enumerate(context.runs):
                for rows, keys in blocks(A, context.in_order):
                    for source, place in copied:
                        part = g[:, rows, place]
                        dA[:, head, rows, keys] += part @ x[:, keys, source].transpose(1, 2)
                        dx[:, keys, source] += A[:, head, rows, keys].transpose(1, 2) @ part
            return dA, dx, None, None

    return Moved
