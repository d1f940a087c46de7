"""The path-space engine: the same function as `wide`, from streams P_w of token weights; nothing m-wide is formed per token.

X^l = sum_w P_w (E R_w) over words w of length l, with P_w = A^{l,h_l} ... A^{1,h_1} X^0. The stream after layer l is the P_w
side by side, [n, W v] for v tokens that occur, so a head's logits are P (Q K^T) P^T with tables Q = E R_w R_Q, K = E R_w R_K
of W v rows, and outputs P (E R_w U). Where that is cheaper than the head dimension, keys and values are the stream itself,
and all heads share them.

* First layer: logits depend on two tokens only, so P_h needs the v x v table and the counts of tokens in the prefix.
* Last layer: only at the positions looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.training.models import Model
from utfproof.training.programs import Tables, program_of, times

if TYPE_CHECKING:
    from torch import Tensor

_WIDTH = 16
"""On a CPU, batched products are fastest from this inner width on: narrower streams are padded."""
_CHUNK = 640_000
"""Attention weights held at a time on a CPU: a few megabytes, about the second-level cache."""


class PathEngine:
    """Forward passes of a model in path space. Raises MalformedInput with LN or an MLP."""

    name = "paths"

    def __init__(self, model: Model, *, counting: bool = True, max_memory: int | None = None) -> None:
        """counting=False: the first layer attends like the others."""
        if not model.linear:
            raise MalformedInput("path space has neither LN nor MLPs: they are not linear; use engine wide")
        self.model = model
        self.counting = counting and not model.learned_positions
        self.program = program_of(model, max_memory)

    def logits(self, inputs: Tensor, look: Tensor | None = None, tokens: Tensor | None = None) -> Tensor:
        """Outputs [S, B, k, d_out] for token ids [S, B, n], at the positions look [S, B, k] (all without it).

        tokens [v]: the ids that may occur, in increasing order; by default those that do (which makes a GPU wait).
        """
        import torch

        model = self.model
        if tokens is None:
            tokens = inputs.unique()
        place = torch.searchsorted(tokens, inputs)
        rows = model["E"].index_select(1, tokens)
        stream = torch.nn.functional.one_hot(place, len(tokens)).to(rows.dtype)
        if model.learned_positions:
            n = inputs.shape[2]
            here = torch.eye(n, dtype=rows.dtype, device=rows.device).expand(*inputs.shape, n)
            rows, stream = torch.cat([rows, model["P"][:, :n]], 1), torch.cat([stream, here], 3)
        return self.run(stream, self.program.tables(rows, model["U"]), look)

    def run(self, stream: Tensor, tables: Tables, look: Tensor | None = None) -> Tensor:
        """Outputs from X^0 [S, B, n, v] (one-hot rows where the first layer counts) and the tables."""
        import torch

        model = self.model
        last = model.shape.layers - 1
        for layer in range(last + 1):
            seen = look if layer == last else None
            queries, keys = tables.queries[layer] * model.scale, tables.keys[layer]
            here = stream if seen is None else _pick(stream, seen)
            if layer == 0 and self.counting:
                counts = stream.cumsum(2)
                moved = _by_counts(here, counts if seen is None else _pick(counts, seen), queries, keys)
            else:
                moved = self._attend(stream, here, seen, queries, keys, tables.outputs if layer == last else None)
            if layer == last and moved.shape[-1] == model.shape.d_out and self._early(layer, stream):
                break
            stream = torch.cat([here, moved], 3) if model.residual else moved
        else:
            return _rows_times(stream, tables.outputs)
        if model.residual:  # the values were read by U before they were averaged: the stream's own letter is left
            moved = moved + _rows_times(here, tables.outputs[:, : stream.shape[-1]])
        return moved

    def _early(self, layer: int, stream: Tensor) -> bool:
        """Whether values are read by U before they are averaged: only in the last layer, where U is narrower."""
        if layer < self.model.shape.layers - 1 or (layer == 0 and self.counting):
            return False
        return not self._shared(stream) and self.model.shape.d_out < stream.shape[-1]

    def _shared(self, stream: Tensor) -> bool:
        """Whether the stream itself serves as keys and values of all heads."""
        return shares_keys(stream.shape[-1], self.model.shape.head_dim)

    def _attend(
        self, stream: Tensor, here: Tensor, look: Tensor | None, queries: Tensor, keys: Tensor, outputs: Tensor | None
    ) -> Tensor:
        """All heads' averages of the stream [S, B, k, H w] (or, read by U first, their sum [S, B, k, d_out]) at the rows `here`
        [S, B, k, w] of the stream [S, B, n, w]."""
        S, B, n, w = stream.shape
        k, H, d = here.shape[2], self.model.shape.heads, self.model.shape.head_dim
        if self._shared(stream):
            form = queries @ keys.transpose(-1, -2)  # [S, H, w, w]: logits are P form P^T
            asked = _rows_times(here, form.transpose(1, 2).reshape(S, w, H * w)).view(S * B, k * H, w)
            held = stream.reshape(S * B, n, w)
            return _attention(asked, held, held, _hidden(stream, look, H)).reshape(S, B, k, H * w)
        asked = _rows_times(here, queries.transpose(1, 2).reshape(S, w, H * d)).view(S, B, k, H, d)
        held = _rows_times(stream, keys.transpose(1, 2).reshape(S, w, H * d)).view(S, B, n, H, d)
        if outputs is not None and self._early(self.model.shape.layers - 1, stream):
            out = outputs.shape[-1]
            tables = outputs.view(S, -1, w, out)[:, int(self.model.residual) :]
            values = _rows_times(stream, tables.transpose(1, 2).reshape(S, w, H * out)).view(S, B, n, H, out)
            values = values.transpose(2, 3)
        else:
            out = w
            values = stream[:, :, None].expand(S, B, H, n, w)
        found = _attention(
            asked.transpose(2, 3).reshape(S * B * H, k, d),
            held.transpose(2, 3).reshape(S * B * H, n, d),
            values.reshape(S * B * H, n, out),
            _hidden(stream, look, 1, H),
        ).reshape(S, B, H, k, out)
        if self._early(self.model.shape.layers - 1, stream) and outputs is not None:
            return found.sum(2)
        return found.transpose(2, 3).reshape(S, B, k, H * w)


def shares_keys(width: int, head_dim: int) -> bool:
    """Whether the stream itself serves as keys and values: for widths up to about twice the head dimension, since nothing has
    to be copied for each head."""
    return width <= 2 * head_dim


def _rows_times(x: Tensor, matrix: Tensor) -> Tensor:
    """[S, B, n, w] times [S, w, c]: one product for each seed."""
    S, B, n, w = x.shape
    return times(x.reshape(S, B * n, w), matrix).view(S, B, n, matrix.shape[-1])


def _pick(x: Tensor, look: Tensor) -> Tensor:
    """Rows [S, B, k, w] of x [S, B, n, w]."""
    return x.gather(2, look[..., None].expand(*look.shape, x.shape[-1]))


def _by_counts(here: Tensor, counts: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """The first layer's P_h side by side [S, B, k, H v]: softmax over tokens of logit + log(count in the prefix).

    here [S, B, k, v] one-hot, counts [S, B, k, v], queries and keys [S, H, v, d].
    """
    S, B, k, v = here.shape
    H = queries.shape[1]
    table = (queries @ keys.transpose(-1, -2)).transpose(-1, -2)  # [S, H, of keys, of queries]
    # tokens before positions: a softmax over a last axis as short as this is slow
    asked, known = (x.reshape(S, B * k, v).transpose(1, 2) for x in (here, counts))
    logits = times(table.reshape(S, H * v, v), asked.contiguous()).view(S, H, v, B * k)
    shares = (logits + known.log()[:, None]).softmax(2).view(S, H * v, B * k)
    return shares.transpose(1, 2).reshape(S, B, k, H * v)


def _hidden(stream: Tensor, look: Tensor | None, repeat: int, heads: int = 1) -> Tensor:
    """0 where a query may look, -inf where it may not: [k repeat, n], or [N heads, k repeat, n] for positions of each sequence.
    Rows of one position stand together, `repeat` of them."""
    import torch

    n = stream.shape[2]
    keys = torch.arange(n, device=stream.device)
    asked = keys if look is None else look.reshape(-1, look.shape[-1])
    blocked = keys > asked.repeat_interleave(repeat, -1)[..., None]
    if look is not None and heads > 1:
        blocked = blocked.repeat_interleave(heads, 0)
    return torch.zeros(blocked.shape, dtype=stream.dtype, device=stream.device).masked_fill_(blocked, float("-inf"))


# --- attention by hand -----------------------------------------------------------------------------------------------


def _attention(queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    """softmax(q k^T + hidden) v for q [N, R, e], k [N, n, e], v [N, n, f] and hidden [R, n] or [N, R, n]."""
    found: Tensor = _attention_function().apply(queries, keys, values, hidden)
    return found


def _chunks(queries: Tensor, keys: Tensor) -> list[slice]:
    """Sequences taken together: all on a GPU, as many as the cache holds on a CPU."""
    N, R, n = len(queries), queries.shape[1], keys.shape[1]
    size = N if queries.device.type != "cpu" else max(1, _CHUNK // (R * n))
    return [slice(start, min(start + size, N)) for start in range(0, N, size)]


def _widened(x: Tensor, width: int) -> Tensor:
    import torch

    missing = width - x.shape[-1]
    return torch.nn.functional.pad(x, (0, missing)) if missing > 0 else x


_ATTENTION: list[Any] = []


def _attention_function() -> Any:
    """The autograd function: forward and backward in chunks that stay in the cache, each product written once."""
    if not _ATTENTION:
        import torch

        class Attention(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, q: Any, k: Any, v: Any, hidden: Any) -> Any:
                shared, widths = k is v, (q.shape[-1], v.shape[-1])
                least = _WIDTH if q.device.type == "cpu" else 1
                q, k = _widened(q, least), _widened(k, least)
                v = k if shared else _widened(v, least)
                chunks, weights, parts = _chunks(q, k), [], []
                for part in chunks:
                    mask = hidden if hidden.dim() == 2 else hidden[part]
                    A = torch.baddbmm(mask, q[part], k[part].transpose(1, 2))
                    A = torch.softmax(A, -1, out=A) if A.device.type == "cpu" else torch.softmax(A, -1)
                    weights.append(A)
                    parts.append(A @ v[part])
                found = torch.cat(parts) if len(parts) > 1 else parts[0]
                context.save_for_backward(q, k, v, found, *weights)
                context.chunks, context.widths = chunks, widths
                return found[..., : widths[1]]

            @staticmethod
            def backward(context: Any, *gradients: Any) -> Any:
                q, k, v, found, *weights = context.saved_tensors
                g = _widened(gradients[0], v.shape[-1])
                lost = (g * found).sum(-1, keepdim=True)
                dq, dk, dv = [], [], []
                for part, A in zip(context.chunks, weights, strict=True):
                    dv.append(A.transpose(1, 2) @ g[part])
                    dS = torch.baddbmm(lost[part], g[part], v[part].transpose(1, 2), beta=-1).mul_(A)
                    dq.append(dS @ k[part])
                    dk.append(dS.transpose(1, 2) @ q[part])
                dq, dk, dv = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in (dq, dk, dv))
                e, f = context.widths
                return dq[..., :e], dk[..., :e], dv[..., :f], None

        _ATTENTION.append(Attention)
    return _ATTENTION[0]
