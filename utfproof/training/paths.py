"""The path-space engine: the function of `wide` for models without LN, MLPs and positions; no token is m wide.

X^l = sum_w P_w E R_w over words w of heads, with P_w = A^{l,h_l} ... A^{1,h_1} X^0 over the v tokens that may occur. The
stream after layer l is the P_w side by side, [B, n, W v], so queries are P (E R_w R_Q), keys P (E R_w R_K), outputs
P (E R_w U). The rows E R_w [W v, m] pass through the layers once a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from utfproof.training.maps import Maps
from utfproof.training.model import Model
from utfproof.training.wide import pick, sum_of

if TYPE_CHECKING:
    from torch import Tensor


class PathEngine:
    """Forward passes in path space of a model without LN, MLPs and learned positions (see `engine_name`).
    tokens: the ids that inputs may hold, in increasing order."""

    name = "paths"

    def __init__(self, model: Model, tokens: tuple[int, ...]) -> None:
        import torch

        self.model, self.maps = model, [Maps(model, layer) for layer in range(model.shape.layers)]
        self._tokens = torch.tensor(tokens, device=model["E"].device)

    def logits(self, ids: Tensor, look: Tensor | None = None) -> Tensor:
        """Outputs [B, k, d_out] for token ids [B, n], at the positions look [B, k] (all n without it)."""
        import torch

        preset, H = self.model.preset, self.model.shape.heads
        rows = self.model["E"].index_select(0, self._tokens)
        stream = (ids[..., None] == self._tokens).to(rows.dtype)
        for layer, maps in enumerate(self.maps):
            last = layer == preset.layers - 1
            weights = self._weights(maps.read(rows), stream, look if last else None)
            moved = [maps.move(head, rows) for head in range(H)]
            if last:
                parts = [weights[:, head] @ (stream @ (moved[head] @ self.model["U"])) for head in range(H)]
                kept = [pick(stream, look) @ (rows @ self.model["U"])] if preset.residual else []
                return sum_of([*parts, *kept])
            rows = torch.cat([rows, *moved] if preset.residual else moved)
            averages = [weights[:, head] @ stream for head in range(H)]
            stream = torch.cat([stream, *averages] if preset.residual else averages, 2)
        raise AssertionError("there is a last layer")

    def _weights(self, read: Tensor, stream: Tensor, look: Tensor | None) -> Tensor:
        """Attention [B, H, k, n] from the queries and keys of the rows, [W v, 2 H d]."""
        import torch

        H, n = self.model.shape.heads, stream.shape[1]
        queries, keys = read.view(len(read), 2, H, -1).permute(1, 2, 0, 3)
        asked, place = pick(stream, look), torch.arange(n, device=stream.device)
        later = place > (place[:, None] if look is None else look[:, None, :, None])
        logits = (asked[:, None] @ (queries * self.model.scale)) @ (stream[:, None] @ keys).transpose(-1, -2)
        return logits.masked_fill(later, float("-inf")).softmax(-1)
