"""The few array operations that elimination is made of, for NumPy arrays and for torch tensors on any device.

Products go to BLAS in slabs of rows, into work space that is allocated once and stays in cache. Reductions modulo p go over
chunks that fit in a core's caches, and are put off: `accumulate` keeps count of the products summed so far and reduces only
before the count would pass `block_length(p)` (see `field`).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.exact.gfp import field
from utfproof.util.arrays import is_torch

_SLAB = 1 << 18
"""Entries of product work space: what is multiplied is subtracted while it is in a cache that other programs share."""
_ROWS = 256
"""Rows of it at least: BLAS packs the other factor anew for each slab."""


class Kernels(ABC):
    """What both kinds of arrays share: sums of products that are reduced only when they must be."""

    p: int
    length: int

    @abstractmethod
    def reduce(self, array: Any) -> None:
        """Replace exact integers by residues."""

    @abstractmethod
    def _subtract(self, c: Any, a: Any, b: Any) -> None:
        """c -= a b, not reduced."""

    def accumulate(self, c: Any, a: Any, b: Any, debt: int) -> int:
        """c -= a b in place, c [m, n], a [m, k], b [k, n], reduced no more often than exactness asks for.

        debt: how many products each entry of c carries on top of a residue; the new debt is returned. a, b are residues.
        """
        inner = a.shape[1]
        for start in range(0, inner, self.length):
            count = min(self.length, inner - start)
            if debt + count > self.length:
                self.reduce(c)
                debt = 0
            self._subtract(c, a[:, start : start + count], b[start : start + count])
            debt += count
        return debt

    def subtract_product(self, c: Any, a: Any, b: Any) -> None:
        """c -= a b modulo p, in place, on residues."""
        if self.accumulate(c, a, b, 0):
            self.reduce(c)


def kernels_for(array: Any, p: int) -> NumpyKernels | TorchKernels:
    """The kernels that fit an array or tensor; MalformedInput unless it is two-dimensional, of float64 or for small primes of
    float32."""
    dtype = str(array.dtype).removeprefix("torch.")
    if array.ndim != 2 or not (dtype == "float64" or (dtype == "float32" and field.block_length(p, dtype) >= 1)):
        raise MalformedInput(
            f"residues must be a float64 matrix (or float32, for small primes), got {array.dtype} of shape "
            f"{tuple(array.shape)}; convert with residues_of_floats or residues_of_integers"
        )
    return TorchKernels(p, array.device, dtype) if is_torch(array) else NumpyKernels(p, dtype)


class NumpyKernels(Kernels):
    """Residues modulo p in NumPy arrays of float64 or float32."""

    def __init__(self, p: int, dtype: str = "float64") -> None:
        self.p = p
        self.dtype = np.dtype(dtype)
        self.length = field.block_length(p, dtype)
        # zero-dimensional arrays: converting a Python scalar costs as much as a short ufunc
        self._p = np.array(p, dtype)
        self._inverse = np.array(1 / p, dtype)
        self._scratch = np.empty(field.CHUNK, dtype)
        self._space = np.empty(0, dtype)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A C-contiguous copy."""
        return np.array(array, order="C")

    def reduce(self, array: np.ndarray) -> None:
        """Replace exact integers by residues."""
        rows, columns = array.shape
        if not columns:
            return
        step = max(1, field.CHUNK // columns)
        if columns > self._scratch.size:
            self._scratch = np.empty(columns, self.dtype)
        scratch = self._scratch[: step * columns].reshape(step, columns)
        for start in range(0, rows, step):
            x = array[start : start + step]
            quotient = scratch[: len(x)]
            np.multiply(x, self._inverse, quotient)
            np.rint(quotient, quotient)
            np.multiply(quotient, self._p, quotient)
            np.subtract(x, quotient, x)

    def centre(self, array: np.ndarray) -> None:
        """Replace exact integers [rows, columns] by centred residues."""
        half = (self.p - 1) // 2
        step = max(1, field.CHUNK // max(1, array.shape[1]))
        for start in range(0, array.shape[0], step):
            part = array[start : start + step]
            self.reduce(part)
            if part.size and (part.max() > half or part.min() < -half):  # near a tie the quotient may be off by one
                part[part > half] -= self.p
                part[part < -half] += self.p

    def zeros(self, rows: int, columns: int) -> np.ndarray:
        """A zero matrix."""
        return np.zeros((rows, columns), self.dtype)

    def host(self, array: np.ndarray) -> np.ndarray:
        """A C-contiguous copy in main memory."""
        return np.array(array, order="C")

    def device(self, array: np.ndarray) -> np.ndarray:
        """The reverse of `host`, without a copy where possible."""
        return array

    def reducer(self, array: np.ndarray) -> Callable[[], None]:
        """`reduce` of one small array, to be called again and again: nothing is looked up anew."""
        quotient, inverse, p = np.empty_like(array), self._inverse, self._p
        multiply, rint, subtract = np.multiply, np.rint, np.subtract

        def reduce() -> None:
            multiply(array, inverse, quotient)
            rint(quotient, quotient)
            multiply(quotient, p, quotient)
            subtract(array, quotient, array)

        return reduce

    def _subtract(self, c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        """c -= a b, not reduced."""
        rows, columns = c.shape
        if not (rows and columns):
            return
        step = min(rows, max(_ROWS, _SLAB // columns))
        if self._space.size < step * columns:
            self._space = np.empty(step * columns, self.dtype)
        for start in range(0, rows, step):
            part = c[start : start + step]
            space = self._space[: part.size].reshape(part.shape)
            np.matmul(a[start : start + step], b, space)
            np.subtract(part, space, part)

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """a b modulo p, a new array."""
        if a.shape[1] <= self.length:
            out = np.matmul(a, b)
            self.reduce(out)
            return out
        out = self.zeros(a.shape[0], b.shape[1])
        self.subtract_product(out, a, b)
        return np.negative(out, out)

    def permute_rows(self, array: np.ndarray, targets: np.ndarray, sources: np.ndarray) -> None:
        """Rows `targets` become what rows `sources` were."""
        array[targets] = array[sources]

    def stack(self, parts: list[np.ndarray], axis: int) -> np.ndarray:
        """Matrices one below the other (axis 0) or side by side (axis 1)."""
        return np.concatenate(parts, axis=axis)


class TorchKernels(Kernels):
    """Residues modulo p in torch tensors on one device; the same operations.

    On CUDA, float32 residues modulo primes below 2^8 are multiplied as int8: tensor cores add the products in int32, and
    `block_length` keeps the sums exact in float32.
    """

    def __init__(self, p: int, device: Any, dtype: str = "float64") -> None:
        self.p = p
        self.length = field.block_length(p, dtype)
        self._torch = sys.modules["torch"]
        self._device = self._torch.device(device)
        self._dtype = getattr(self._torch, dtype)
        self._scratch = self._torch.empty(0, dtype=self._dtype, device=device)
        self.int8 = dtype == "float32" and p < 2**8 and self._device.type == "cuda"

    def copy(self, array: Any) -> Any:
        """A contiguous copy."""
        return array.detach().clone(memory_format=self._torch.contiguous_format)

    def reduce(self, array: Any) -> None:
        """Replace exact integers by residues."""
        if not array.numel():
            return
        if self._scratch.numel() < array.numel():
            self._scratch = array.new_empty(array.numel())
        quotient = self._scratch[: array.numel()].view(array.shape)
        self._torch.mul(array, 1 / self.p, out=quotient)
        quotient.round_()
        array.sub_(quotient, alpha=self.p)

    def zeros(self, rows: int, columns: int) -> Any:
        """A zero matrix."""
        return self._torch.zeros((rows, columns), dtype=self._dtype, device=self._device)

    def host(self, array: Any) -> np.ndarray:
        """A C-contiguous copy in main memory."""
        return np.array(array.cpu().numpy(), order="C")

    def device(self, array: np.ndarray) -> Any:
        """The reverse of `host`."""
        return self._torch.from_numpy(array).to(self._device)

    def _subtract(self, c: Any, a: Any, b: Any) -> None:
        """c -= a b, not reduced."""
        if c.numel() and self.int8:
            c.sub_(self._by_bytes(a, b))
        elif c.numel():
            c.addmm_(a, b, alpha=-1)

    def _by_bytes(self, a: Any, b: Any) -> Any:
        """a b in int32. Both are padded with zeros to whole multiples of 8, and to 24 rows, as cuBLAS asks."""
        (rows, inner), columns = a.shape, b.shape[1]

        def padded(x: Any, height: int, width: int) -> Any:
            out = self._torch.zeros((height, width), dtype=self._torch.int8, device=self._device)
            out[: x.shape[0], : x.shape[1]] = x
            return out

        tall, deep, wide = max(24, -(-rows // 8) * 8), -(-inner // 8) * 8, -(-columns // 8) * 8
        return self._torch._int_mm(padded(a, tall, deep), padded(b, deep, wide))[:rows, :columns]

    def product(self, a: Any, b: Any) -> Any:
        """a b modulo p, a new tensor."""
        if a.shape[1] <= self.length:
            out = self._by_bytes(a, b).to(self._dtype) if self.int8 and a.numel() and b.numel() else a @ b
            self.reduce(out)
            return out
        out = self.zeros(a.shape[0], b.shape[1])
        self.subtract_product(out, a, b)
        return out.neg_()

    def permute_rows(self, array: Any, targets: np.ndarray, sources: np.ndarray) -> None:
        """Rows `targets` become what rows `sources` were."""
        array[self.device(targets)] = array[self.device(sources)]

    def stack(self, parts: list[Any], axis: int) -> Any:
        """Matrices one below the other (axis 0) or side by side (axis 1)."""
        return self._torch.cat(parts, dim=axis)
