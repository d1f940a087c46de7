"""The little that differs between NumPy arrays (float or exact object arrays) and torch tensors.

Exact matrices are NumPy arrays of dtype object holding Python ints or Fractions; `@`, `+` and `*` work on them
as on floats, so that every forward pass is written once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from utfproof.errors import MalformedInput, install
from utfproof.util.results import LINE

Array = Any
"""A NumPy array (numeric or exact object dtype) or a torch tensor."""


def is_torch(array: Array) -> bool:
    """True for torch tensors; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Array) -> Any:
    """The module (numpy or torch) whose functions apply to `array`."""
    return sys.modules["torch"] if is_torch(array) else np


def is_exact(array: Array) -> bool:
    """True for exact arrays: object dtype (ints, Fractions) or NumPy integers."""
    return not is_torch(array) and np.asarray(array).dtype.kind in "Oiu"


def exact(array: Array) -> np.ndarray:
    """`array` as an object array of Python ints or Fractions; floats of any width, those among objects too, become the dyadic
    rationals that they are.

    Raises MalformedInput for NaN and infinities, naming the first index.
    """
    source = to_numpy(array)
    if source.dtype.kind == "b":
        source = source.astype(np.int8)
    if source.dtype.kind in "iu":
        return source.astype(object, order="C")
    out = source.astype(object, order="C")
    flat = out.reshape(-1)
    for place, x in enumerate(flat):
        if isinstance(x, float | np.floating):
            try:  # a long double has more bits than a float
                flat[place] = Fraction(x) if isinstance(x, float) else Fraction(*x.as_integer_ratio())
            except (OverflowError, ValueError) as error:
                index = tuple(int(i) for i in np.unravel_index(place, out.shape))
                raise MalformedInput(f"entry {index} is not finite; exact values are needed") from error
        elif isinstance(x, np.integer):  # whose products overflow
            flat[place] = int(x)
    return out


def zeros(like: Array, *shape: int) -> Array:
    """Zeros of the dtype and device of `like`."""
    if is_torch(like):
        return like.new_zeros(shape)
    return np.zeros(shape, dtype=like.dtype)


def hstack(parts: list[Array]) -> Array:
    """Columns side by side."""
    first = parts[0]
    if hasattr(first, "hstack_with"):
        return first.hstack_with(parts[1:])
    return namespace(first).concatenate(parts, axis=-1)


def block_coordinates(widths: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Coordinates of consecutive blocks of these widths, the blocks taken in this order."""
    starts = np.cumsum(widths) - widths
    taken = widths[order]
    ends = np.cumsum(taken)
    return np.repeat(starts[order] - ends + taken, taken) + np.arange(int(ends[-1]))


def take_column_blocks(matrix: Array, widths: np.ndarray, order: np.ndarray) -> Array:
    """The same columns, cut into consecutive blocks of these widths, with the blocks in this order."""
    if hasattr(matrix, "take_column_blocks"):
        return matrix.take_column_blocks(widths, order)
    return matrix[:, block_coordinates(widths, order)]


def transpose(array: Array) -> Array:
    """Swap the last two axes."""
    return array.swapaxes(-1, -2)


def to_numpy(array: Array) -> np.ndarray:
    """A NumPy array with the same values (torch tensors leave their device; bfloat16 becomes float32, which is exact)."""
    if not is_torch(array):
        return np.asarray(array)
    held = array.detach().cpu()
    return (held.float() if held.dtype == namespace(held).bfloat16 else held).numpy()


def eye(size: int, like: Array) -> Array:
    """Identity matrix of the dtype and device of `like`."""
    if is_torch(like):
        return namespace(like).eye(size, dtype=like.dtype, device=like.device)
    return np.eye(size, dtype=like.dtype)


def require_device(device: str) -> Any:
    """The torch module, once `device` is known to work; MalformedInput saying what is missing otherwise."""
    try:
        import torch
    except ImportError as error:
        wanted, otherwise = ("this", "") if device == "cpu" else (f"device {device!r}", ", or use --device cpu")
        raise MalformedInput(
            f"{wanted} needs PyTorch, which is not installed: {install('torch')}{otherwise}"
        ) from error
    try:
        torch.zeros(1, dtype=torch.float64, device=device).cpu().numpy()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).splitlines()[0]
        if device.startswith("cuda") and not torch.backends.cuda.is_built():
            reason = (
                f"PyTorch {torch.__version__} is built for CPUs: pytorch.org/get-started lists the command for a GPU"
            )
        raise MalformedInput(f"device {device!r} is not available here ({reason}); use --device cpu") from error
    return torch


@contextmanager
def whole_products(*, tf32: bool = False) -> Iterator[None]:
    """Products of torch's tensors in their own precision, whatever the process has set: TF32 (unless asked for) and sums of
    reduced precision are off inside, and as before outside."""
    import torch

    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision(), matmul.allow_bf16_reduced_precision_reduction
    try:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        matmul.allow_bf16_reduced_precision_reduction = False
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        matmul.allow_bf16_reduced_precision_reduction = before[1]


T = TypeVar("T", bound=type)


def one_line(cls: T) -> T:
    """Class decorator: a dataclass whose repr is one line, arrays by number type and shape, what is long by its length."""

    def text(self: Any) -> str:
        named = [f"{field.name}={brief(getattr(self, field.name))}" for field in fields(self)]
        whole = f"{type(self).__name__}({', '.join(named)})"
        return whole if len(whole) <= LINE else f"{whole[: LINE - 2]}…)"

    cls.__repr__ = text  # type: ignore[assignment]
    return cls


def brief(value: Any) -> str:
    """A value in a few characters: float64[2, 3], 12 entries, or its own repr where that is short and one line."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict | list | tuple | set | frozenset | bytes) and len(value) > 3:
        return f"{len(value)} {'bytes' if isinstance(value, bytes) else 'entries'}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(brief, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {brief(item)}" for key, item in value.items()) + "}"
    said = next((text for text in (repr(value), str(value)) if len(text) <= 60), repr(value))
    return said if len(said) <= 60 and "\n" not in said else f"{type(value).__name__}(…)"
