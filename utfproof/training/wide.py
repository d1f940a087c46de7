"""The m-wide engine: the model as the paper defines it, on activations x [B, n, m].

Axis letters: B sequences, n tokens, k positions whose outputs are wanted, v tokens that may occur, H heads, d head dimension.

The input of the first layer has only n v distinct rows, E[token] + P[place]. So its norm, queries, keys and products with a
dense R_V are computed on those rows, and then handed out to the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from utfproof.training.maps import Copies, Maps
from utfproof.training.model import Model

if TYPE_CHECKING:
    from torch import Tensor

NORM_EPSILON = 1e-5


class WideEngine:
    """Forward passes of a model. tokens: the ids that inputs may hold, in increasing order."""

    name = "wide"

    def __init__(self, model: Model, tokens: tuple[int, ...]) -> None:
        import torch

        self.model, self.maps = model, [Maps(model, layer) for layer in range(model.shape.layers)]
        self._tokens = torch.tensor(tokens, device=model["E"].device)

    def logits(self, ids: Tensor, look: Tensor | None = None) -> Tensor:
        """Outputs [B, k, d_out] for token ids [B, n], at the positions look [B, k] (all n without it)."""
        preset = self.model.preset
        x, spread = self._input(ids)
        for layer in range(preset.layers):
            place = layer * (1 + preset.mlp)
            here = look if layer == preset.layers - 1 else None
            moved = self._attend(layer, self._norm(place, x), here, spread)
            x = pick(spread(x) if spread else x, here) + moved if preset.residual else moved
            if preset.mlp:
                inner = self._mlp(layer, self._norm(place + 1, x))
                x = x + inner if preset.residual else inner
            spread = None
        return self._norm(-1, x) @ self.model["U"]

    def _input(self, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor] | None]:
        """The distinct rows [n, v, m] of the input, and the function that hands them out, [n, v, w] -> [B, n, w]: a product
        with one-hot rows, whose gradient adds up in a fixed order on a GPU too."""
        import torch

        n = ids.shape[1]
        rows = self.model["E"].index_select(0, self._tokens).expand(n, -1, -1)
        if "P" in self.model:
            rows = rows + self.model["P"][:n, None]
        chosen = (ids[..., None] == self._tokens).to(rows.dtype).transpose(0, 1)  # [n, B, v]
        return rows, lambda table: torch.bmm(chosen, table).transpose(0, 1).contiguous()

    def _norm(self, place: int, x: Tensor) -> Tensor:
        """LN(x), x itself in a variant without it."""
        import torch

        model = self.model
        if not model.preset.norm:
            return x
        gain, shift = (model["gain"][place], model["shift"][place]) if "gain" in model else (None, None)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift, NORM_EPSILON)

    def _attend(self, layer: int, x: Tensor, look: Tensor | None, spread: Callable[[Tensor], Tensor] | None) -> Tensor:
        """sum_h A^h x R_V^h, [B, k, m]. spread: hands out the rows of x, in the first layer."""
        import torch

        maps, H = self.maps[layer], self.model.shape.heads
        read = maps.read(x)
        read = spread(read) if spread else read
        B, n, _ = read.shape
        queries, keys = read.view(B, n, 2, H, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(n, device=x.device)
        later = place > (place[:, None] if look is None else look[:, None, :, None])
        if look is not None:
            queries = queries.gather(2, look[:, None, :, None].expand(B, H, -1, queries.shape[-1]))
        weights = ((queries * self.model.scale) @ keys.transpose(-1, -2)).masked_fill(later, float("-inf")).softmax(-1)
        if maps.copies is not None:
            return self._average(weights, spread(x) if spread else x, maps.copies)
        if spread is not None:
            return sum_of([weights[:, head] @ spread(maps.move(head, x)) for head in range(H)])
        return sum_of([maps.move(head, weights[:, head] @ x) for head in range(H)])

    def _average(self, weights: Tensor, x: Tensor, copies: list[Copies]) -> Tensor:
        """The same for copies: no coordinate that is not copied is averaged."""
        import torch

        found: dict[tuple[int, int], Tensor] = {}
        for head, copied in enumerate(copies):
            for source, place in copied.runs:
                part, at = weights[:, head] @ x[..., source], (place.start, place.stop)
                found[at] = found[at] + part if at in found else part
        m = x.shape[-1]
        return sum_of([torch.nn.functional.pad(part, (at[0], m - at[1])) for at, part in found.items()])

    def _mlp(self, layer: int, x: Tensor) -> Tensor:
        import torch

        inner, bias, outer, shift = (self.model[f"mlp_{name}"][layer] for name in ("in", "in_bias", "out", "out_bias"))
        return torch.nn.functional.gelu(x @ inner + bias) @ outer + shift


def pick(x: Tensor, look: Tensor | None) -> Tensor:
    """Rows [B, k, w] of x [B, n, w] at the positions look [B, k]; x itself without it."""
    return x if look is None else x.gather(1, look[..., None].expand(*look.shape, x.shape[-1]))


def sum_of(parts: list[Tensor]) -> Tensor:
    """The sum of at least one tensor."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
