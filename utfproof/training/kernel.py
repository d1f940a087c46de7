"""Causal softmax attention with its gradient by hand, in blocks that stay in the cache and leave out what nobody sees.

Queries come in rows, `repeat` of them for each position (the heads, where all share keys and values). Without `look` the
positions asked are all n in order, and a block of the first positions needs the first keys only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

WIDTH = 16
"""On a CPU, batched products are fastest from this inner width on: narrower streams are padded."""
_CHUNK = 320_000
"""Attention weights held at a time on a CPU: about a megabyte, within the second-level cache."""
_BLOCKS = 4
"""Blocks that positions asked in order are cut into: 5/8 of the products are left of which half would do."""


def attention(queries: Tensor, keys: Tensor, values: Tensor, look: Tensor | None, repeat: int = 1) -> Tensor:
    """softmax(q k^T) v over the keys not after each query's position, for q [N, k repeat, e], keys [N, n, e], v [N, n, f].

    look [N, k]: the positions asked; all n in order without it (k = n).
    """
    hidden = None if look is None else _hidden(look, keys.shape[1], repeat, queries.dtype)
    found: Tensor = _function().apply(queries, keys, values, hidden, repeat)
    return found


def blocks(positions: int, repeat: int, on_cpu: bool) -> list[tuple[int, int, int]]:
    """(first row, last row + 1, keys seen) of the blocks that all positions in order are cut into: one on a GPU."""
    count = min(_BLOCKS, positions) if on_cpu else 1
    ends = [round(positions * (i + 1) / count) for i in range(count)]
    starts = [0, *ends[:-1]]
    return [(start * repeat, end * repeat, end) for start, end in zip(starts, ends, strict=True)]


def seen(positions: int, keys: int, repeat: int, on_cpu: bool, in_order: bool) -> int:
    """Pairs of a query row and a key that are multiplied."""
    if not in_order:
        return positions * repeat * keys
    return sum((end - start) * width for start, end, width in blocks(positions, repeat, on_cpu))


def aligned(width: int, on_cpu: bool) -> int:
    """The inner width that products are done at."""
    return max(width, WIDTH) if on_cpu else width


def _hidden(look: Tensor, n: int, repeat: int, dtype: Any) -> Tensor:
    """0 where a query may look, -inf where it may not, [N, k repeat, n]."""
    import torch

    blocked = torch.arange(n, device=look.device) > look.repeat_interleave(repeat, -1)[..., None]
    return torch.zeros(blocked.shape, dtype=dtype, device=look.device).masked_fill_(blocked, float("-inf"))


def _triangle(start: int, end: int, width: int, repeat: int, like: Tensor) -> Tensor:
    """The same for rows start ... end - 1 of all positions in order: [end - start, width]."""
    import torch

    position = torch.arange(start, end, device=like.device) // repeat
    blocked = torch.arange(width, device=like.device) > position[:, None]
    return torch.zeros(blocked.shape, dtype=like.dtype, device=like.device).masked_fill_(blocked, float("-inf"))


def _chunks(sequences: int, pairs: int, on_cpu: bool) -> list[slice]:
    """Sequences taken together: all on a GPU, as many as the cache holds on a CPU."""
    size = max(1, _CHUNK // max(1, pairs)) if on_cpu else sequences
    return [slice(start, min(start + size, sequences)) for start in range(0, sequences, size)]


def _widened(x: Tensor, width: int) -> Tensor:
    import torch

    missing = width - x.shape[-1]
    return torch.nn.functional.pad(x, (0, missing)) if missing > 0 else x.contiguous()


_FUNCTION: list[Any] = []


def _function() -> Any:
    """The autograd function, made when torch is there."""
    if not _FUNCTION:
        import torch

        class Attention(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, q: Any, k: Any, v: Any, hidden: Any, repeat: int) -> Any:
                shared, widths, on_cpu = k is v, (q.shape[-1], v.shape[-1]), q.device.type == "cpu"
                q, k = _widened(q, aligned(widths[0], on_cpu)), _widened(k, aligned(widths[0], on_cpu))
                v = k if shared else _widened(v, aligned(widths[1], on_cpu))
                (N, R, _), n = q.shape, k.shape[1]
                if hidden is None:
                    cuts = blocks(n, repeat, on_cpu)
                    masks = [_triangle(*cut, repeat, q) for cut in cuts]
                else:
                    cuts, masks = [(0, R, n)], [hidden]
                found = q.new_empty(N, R, v.shape[-1])
                weights = []
                for part in _chunks(N, R * n, on_cpu):
                    for (start, end, width), mask in zip(cuts, masks, strict=True):
                        seen_by = mask if mask.dim() == 2 else mask[part]
                        A = torch.baddbmm(seen_by, q[part, start:end], k[part, :width].transpose(1, 2))
                        A = torch.softmax(A, -1, out=A) if on_cpu else torch.softmax(A, -1)
                        weights.append(A)
                        if len(cuts) == 1:
                            torch.bmm(A, v[part, :width], out=found[part])
                        else:
                            found[part, start:end] = A @ v[part, :width]
                context.save_for_backward(q, k, v, found, *weights)
                context.cuts, context.widths = cuts, widths
                return found[..., : widths[1]]

            @staticmethod
            def backward(context: Any, *gradients: Any) -> Any:
                q, k, v, found, *weights = context.saved_tensors
                (N, R, _), n, on_cpu = q.shape, k.shape[1], q.device.type == "cpu"
                g = _widened(gradients[0], v.shape[-1])
                held = iter(weights)
                dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
                for part in _chunks(N, R * n, on_cpu):
                    lost = (g[part] * found[part]).sum(-1, keepdim=True)
                    for start, end, width in context.cuts:
                        A, rows = next(held), (part, slice(start, end))
                        seen = (part, slice(0, width))
                        dv[seen] += A.transpose(1, 2) @ g[rows]
                        dS = torch.baddbmm(lost[:, start:end], g[rows], v[seen].transpose(1, 2), beta=-1).mul_(A)
                        dq[rows] = dS @ k[seen]
                        dk[seen] += dS.transpose(1, 2) @ q[rows]
                e, f = context.widths
                return dq[..., :e], dk[..., :e], dv[..., :f], None, None

        _FUNCTION.append(Attention)
    return _FUNCTION[0]
