"""What compiled code does where there is a compiler, on a CPU in float32 and float64: attention of `kernel`, whose weights are
computed again on the way back, from the largest logit of each row and one over its sum; a few rows times a large matrix; and
averages of states that sequences share."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.ground.compiler import shared_library

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).with_suffix(".cpp")
_NAMES = {"torch.float32": "float", "torch.float64": "double"}
_FEW = 32
"""Rows up to which a product with a large matrix waits for memory."""
_LARGE = 2**20
"""Entries from which on a matrix is large: it stays in no cache of a core."""


def library() -> ctypes.CDLL | None:
    """The compiled functions, or None without a compiler."""
    return shared_library(SOURCE)


@cache
def _columns(name: str) -> int:
    """Columns that are one piece of work: block_columns of a product, piece_columns of the states' gradients."""
    found = library()
    assert found is not None
    return ctypes.c_long.in_dll(found, name).value


def fits(queries: Tensor) -> bool:
    """Whether compiled code can be had for such tensors."""
    return queries.device.type == "cpu" and str(queries.dtype) in _NAMES and library() is not None


def _call(name: str, count: int, numbers: tuple[int, ...], tensors: list[Tensor | None], like: Tensor) -> None:
    """Run a function over `count` pieces of work, a part for each thread."""
    import torch

    function = library()[f"{name}_{_NAMES[str(like.dtype)]}"]  # type: ignore[index]
    function.argtypes = [ctypes.c_long] * (2 + len(numbers)) + [ctypes.c_void_p] * len(tensors)
    places = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    threads = torch.get_num_threads()
    cuts = [count * part // threads for part in range(threads + 1)]
    if threads == 1:
        function(0, count, *numbers, *places)
    else:
        list(_pool(threads).map(lambda start, end: function(start, end, *numbers, *places), cuts[:-1], cuts[1:]))


def is_few(x: Tensor, y: Tensor) -> bool:
    """Whether `few_times` is for x [rows, a] and y [a, b]: few rows, and a large matrix or its transpose as it stands."""
    return len(x) <= _FEW and y.numel() >= _LARGE and fits(x) and (y.is_contiguous() or y.t().is_contiguous())


def few_times(x: Tensor, y: Tensor) -> Tensor:
    """x @ y, reading y once."""
    x, found = x.contiguous(), x.new_empty(len(x), y.shape[1])
    name, matrix = ("few", y) if y.is_contiguous() else ("few_back", y.t())
    _call(name, -(-y.shape[1] // _columns("block_columns")), (*x.shape, y.shape[1]), [x, matrix, found], x)
    return found


def is_few_averages(A: Tensor) -> bool:
    """Whether `averages` is for A [B, r, n]: few rows a sequence."""
    return A.shape[1] <= _FEW and fits(A)


def averages(A: Tensor, x: Tensor, index: Tensor, seen: Tensor) -> Tensor:
    """sum_k A[b, r, k] x[index[b, k]] over k < seen[b], [B, r, m], for A [B, r, n], x [G, m], index [B, n], seen [B]."""
    found = A.new_empty(*A.shape[:2], x.shape[1])
    _call("averages", len(A), (*A.shape[1:], x.shape[1]), [A, x, index, seen, found], A)
    return found


def averages_back(A: Tensor, x: Tensor, index: Tensor, seen: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of A and x, for that of what `averages` found."""
    dA, dx = A.new_empty(A.shape), x.new_zeros(x.shape)
    numbers = (*A.shape[1:], x.shape[1])
    _call("averages_weights", len(A), numbers, [g, x, index, seen, dA], A)
    _call(
        "averages_states", -(-x.shape[1] // _columns("piece_columns")), (len(A), *numbers), [A, g, index, seen, dx], A
    )
    return dA, dx


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


@cache
def compiled_attention() -> Any:
    """The autograd function of q, k, v, look and repeat, made when torch is there."""
    import torch

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, q: Any, k: Any, v: Any, look: Any, repeat: int) -> Any:
            shared = k is v
            q, k, look = q.contiguous(), k.contiguous(), None if look is None else look.contiguous()
            v = k if shared else v.contiguous()
            found, rows = q.new_empty(*q.shape[:2], v.shape[2]), q.new_empty(2, *q.shape[:2])
            shapes = (len(q), q.shape[1], k.shape[1], q.shape[2], v.shape[2], repeat)
            _call("forward", len(q), shapes, [q, k, v, look, found, *rows], q)
            context.save_for_backward(q, k, v, look, rows)
            context.shapes, context.shared = shapes, shared
            return found

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            q, k, v, look, rows = context.saved_tensors
            dq, dk = torch.empty_like(q), torch.empty_like(k)
            dv = None if context.shared else torch.empty_like(v)
            v = k if context.shared else v
            tensors = [q, k, v, look, *rows, gradients[0].contiguous(), dq, dk, dv]
            _call("backward", len(q), context.shapes, tensors, q)
            return dq, dk, dv, None, None

    return Compiled
