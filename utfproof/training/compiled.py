"""Attention of `kernel` in compiled code, where there is a compiler: on a CPU, in float32 and float64. Weights are computed
again on the way back, from the largest logit of each row and one over its sum."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.ground.compiler import shared_library

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = Path(__file__).with_name("attention.cpp")
_NAMES = {"torch.float32": "float", "torch.float64": "double"}
_SHAPES = 8
"""First and last sequence of a part, sequences, rows, keys, widths of keys and values, rows of a position."""


def library() -> ctypes.CDLL | None:
    """The compiled functions, or None without a compiler."""
    return shared_library(SOURCE)


def fits(queries: Tensor) -> bool:
    """Whether compiled code can be had for such tensors."""
    return queries.device.type == "cpu" and str(queries.dtype) in _NAMES and library() is not None


def _call(way: str, shapes: tuple[int, ...], tensors: list[Tensor | None], like: Tensor) -> None:
    """Run one way over all sequences, a part for each thread."""
    import torch

    function = library()[f"{way}_{_NAMES[str(like.dtype)]}"]  # type: ignore[index]
    function.argtypes = [ctypes.c_long] * _SHAPES + [ctypes.c_void_p] * len(tensors)
    places = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    count, threads = len(like), torch.get_num_threads()
    cuts = [count * part // threads for part in range(threads + 1)]
    if threads == 1:
        function(0, count, count, *shapes, *places)
    else:
        list(_pool(threads).map(lambda start, end: function(start, end, count, *shapes, *places), cuts[:-1], cuts[1:]))


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
            shapes = (q.shape[1], k.shape[1], q.shape[2], v.shape[2], repeat)
            _call("forward", shapes, [q, k, v, look, found, *rows], q)
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
            _call("backward", context.shapes, tensors, q)
            return dq, dk, dv, None, None

    return Compiled
