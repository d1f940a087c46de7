"""Causal softmax attention with its gradient by hand, in blocks that stay in the cache and leave out what nobody sees.

Queries come in rows, `repeat` of them for each position (the heads, where all share keys and values). Without `look` the
positions asked are all n in order, and a block of the first positions needs the first keys only. Where there is a compiler,
compiled code takes the place of torch's operations on a CPU (`compiled`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from utfproof.training import compiled
from utfproof.training.matrices import add_product

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 32
"""Positions of a block that are asked in order on a CPU: softmax and products are fastest over multiples of 16 numbers."""
_CHUNK = 200_000
"""Attention weights held at a time on a CPU, within the second-level cache."""


def attention(queries: Tensor, keys: Tensor, values: Tensor, look: Tensor | None, repeat: int = 1) -> Tensor:
    """softmax(q k^T) v over the keys not after each query's position, for q [N, k repeat, e], keys [N, n, e], v [N, n, f].

    look [N, k]: the positions asked; all n in order without it (k = n).
    """
    function = compiled.compiled_attention() if compiled.fits(queries) else _function()
    found: Tensor = function.apply(queries, keys, values, look, repeat)
    return found


def blocks(positions: int, repeat: int, on_cpu: bool) -> list[tuple[int, int, int]]:
    """(first row, last row + 1, keys seen) of the blocks that all positions in order are cut into: one on a GPU."""
    ends = [*range(_BLOCK, positions, _BLOCK), positions] if on_cpu else [positions]
    starts = [0, *ends[:-1]]
    return [(start * repeat, end * repeat, end) for start, end in zip(starts, ends, strict=True)]


def seen(positions: int, keys: int, repeat: int, on_cpu: bool, in_order: bool) -> int:
    """Pairs of a query row and a key that are multiplied."""
    if not in_order:
        return positions * repeat * keys
    return sum((end - start) * width for start, end, width in blocks(positions, repeat, on_cpu))


class _Piece(NamedTuple):
    """Sequences and rows that are taken together, the keys that they see some of, and of those from `first` on 0 for what
    they see and -inf for what they do not see ([rows, keys] or [N, rows, keys])."""

    part: slice
    rows: slice
    width: int
    first: int
    hidden: Tensor


def _hidden(n: int, asked: Tensor, repeat: int, dtype: Any) -> Tensor:
    """-inf [..., k repeat, n] at the keys after each of the positions asked [..., k], 0 at others."""
    import torch

    later = torch.arange(n, device=asked.device) > asked.repeat_interleave(repeat, -1)[..., None]
    return torch.zeros(later.shape, dtype=dtype, device=asked.device).masked_fill_(later, float("-inf"))


@cache
def _in_order(n: int, repeat: int, dtype: Any, device: Any) -> Tensor:
    """The same with all n positions asked in order."""
    import torch

    return _hidden(n, torch.arange(n, device=device), repeat, dtype)


def _pieces(q: Tensor, n: int, look: Tensor | None, repeat: int) -> list[_Piece]:
    """All sequences together on a GPU, as many as the cache holds on a CPU."""
    (N, R, _), on_cpu = q.shape, q.device.type == "cpu"
    found = []
    for start, end, width in blocks(n, repeat, on_cpu) if look is None else [(0, R, n)]:
        size = max(1, _CHUNK // ((end - start) * width)) if on_cpu else N
        first = 0 if look is not None else start // repeat
        if look is None:
            hidden = _in_order(end // repeat - first, repeat, q.dtype, q.device)[:, : width - first]
        else:
            hidden = _hidden(n, look, repeat, q.dtype)
        for sequence in range(0, N, size):
            part = slice(sequence, min(sequence + size, N))
            found.append(_Piece(part, slice(start, end), width, first, hidden if look is None else hidden[part]))
    return found


@cache
def _function() -> Any:
    """The autograd function, made when torch is there."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, q: Any, k: Any, v: Any, look: Any, repeat: int) -> Any:
            shared, on_cpu = k is v, q.device.type == "cpu"
            q, k = q.contiguous(), k.contiguous()
            v = k if shared else v.contiguous()
            found = q.new_empty(*q.shape[:2], v.shape[-1])
            pieces, weights = _pieces(q, k.shape[1], look, repeat), []
            for part, rows, width, first, hidden in pieces:
                A = q[part, rows] @ k[part, :width].transpose(1, 2)
                A[..., first:].add_(hidden)
                A = torch.softmax(A, -1, out=A) if on_cpu else torch.softmax(A, -1)
                weights.append(A)
                found[part, rows] = A @ v[part, :width]
            context.save_for_backward(q, k, v, found, *weights)
            context.pieces, context.shared = pieces, shared
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            q, k, v, found, *weights = context.saved_tensors
            g, shared = gradients[0].contiguous(), context.shared
            dq, dk = torch.empty_like(q), torch.zeros_like(k)
            dv = dk if shared else torch.zeros_like(v)
            for (part, rows, width, _, _), A in zip(context.pieces, weights, strict=True):
                Q, G = q[part, rows], g[part, rows]
                lost = (G * found[part, rows]).sum(-1, keepdim=True)
                dS = (G @ v[part, :width].transpose(1, 2)).sub_(lost).mul_(A)
                dq[part, rows] = dS @ k[part, :width]
                by_weights = A.transpose(1, 2) @ G
                if shared:
                    dk[part, :width] += add_product(by_weights, dS.transpose(1, 2), Q)
                else:
                    dv[part, :width] += by_weights
                    dk[part, :width] += dS.transpose(1, 2) @ Q
            return dq, dk, None if shared else dv, None, None

    return Attention
