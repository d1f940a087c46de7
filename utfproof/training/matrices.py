"""Matrices that are trained, and products with them whose gradients are written where they stay from step to step.

A parameter [S, L, H, a, b] is taken apart into its matrices [S, a, b] once a step. Gradients of slices would each be as large
as the parameter, and even those of its parts would have to be put together: on a CPU mapping so many fresh pages costs more
than computing them. So each product writes its matrix's gradient into one buffer, which becomes the parameter's gradient.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from utfproof.training import compiled

if TYPE_CHECKING:
    from torch import Tensor


_NARROW = 8
"""Least side of a product that oneDNN takes."""
_NARROW_GRADIENT = 32
"""The same of a matrix's gradient: sums of thousands of terms, where others are as fast unless both sides are wide."""
_LARGE = 2**22
"""Least number of multiplications that oneDNN takes: below, a call costs more than it saves."""
_BANDED = 128
"""Side from which on a symmetric matrix is computed in bands."""


def times(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for [S, a, b] and [S, b, c]; a single model's is a plain product, which uses all threads."""
    import torch

    if len(x) > 1:
        return x @ y
    x, y = x.squeeze(0), y.squeeze(0)  # not indexed: the gradient of an index is filled with zeros first
    if not (torch.is_grad_enabled() and y.requires_grad) and compiled.is_few(x, y):
        found: Tensor = _functions()[2].apply(x, y)
        return found.unsqueeze(0)
    return product(x, y).unsqueeze(0)


def product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y for x [..., a] and y [a, b]: large ones in float32 on a CPU by oneDNN, whose kernels use what the processor has
    (MKL's stop at AVX2 on some: half the speed where there is AVX-512)."""
    if not _is_large(x, y, _NARROW):
        return x @ y
    found: Tensor = _functions()[3].apply(x, y)
    return found


def _is_large(x: Tensor, y: Tensor, narrow: int) -> bool:
    import torch

    if x.dtype != torch.float32 or y.dtype != torch.float32 or x.device.type != "cpu" or not _has_onednn():
        return False
    return min(x.shape[-1], *y.shape, x.numel() // max(1, x.shape[-1])) >= narrow and x.numel() * y.shape[1] >= _LARGE


@cache
def _has_onednn() -> bool:
    import torch

    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _by_onednn(x: Tensor, y: Tensor) -> Tensor:
    import torch

    if not (y.is_contiguous() or y.t().is_contiguous()):  # a narrow part of a matrix would meet its slowest kernel
        y = y.contiguous()
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, y.t(), None, "none", [], "")
    return found


def add_product(total: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """total [S, a, c] += x @ y, in place."""
    import torch

    return torch.baddbmm(total, x, y, out=total)


def add_symmetric(total: Tensor, x: Tensor, y: Tensor) -> None:
    """total [S, c, c] += x^T y for x, y [S, a, c] whose product is symmetric, in place: no block below the diagonal, which
    `mirror` fills in the end."""
    for start, end in _bands(total.shape[-1], total.device.type == "cpu"):
        band = total[:, start:end, start:]
        add_product(band, x[..., start:end].transpose(1, 2), y[..., start:])


def mirror(total: Tensor) -> None:
    """Fill the blocks that `add_symmetric` leaves out."""
    for start, end in _bands(total.shape[-1], total.device.type == "cpu"):
        total[:, end:, start:end] = total[:, start:end, end:].transpose(1, 2)


def symmetric_entries(c: int, on_cpu: bool) -> int:
    """Of the c^2 entries, those that `add_symmetric` computes."""
    return sum((end - start) * (c - start) for start, end in _bands(c, on_cpu))


def _bands(c: int, on_cpu: bool) -> list[tuple[int, int]]:
    """Rows of a symmetric matrix whose blocks from the diagonal on are computed together: four bands where that saves time."""
    count = 4 if c >= _BANDED and on_cpu else 1
    return [(c * band // count, c * (band + 1) // count) for band in range(count)]


class Matrix:
    """A matrix [S, a, b] of a parameter, and where its gradient goes: there once, to a fresh tensor in any further product."""

    def __init__(self, value: Tensor, into: Tensor | None) -> None:
        self.value, self._into = value, into

    def after(self, x: Tensor) -> Tensor:
        """x [S, c, a] times the matrix."""
        return self._product(x, False)

    def before(self, y: Tensor) -> Tensor:
        """y [S, c, b] times the matrix's transpose: columns, written as rows, times which it stands."""
        return self._product(y, True)

    def _product(self, x: Tensor, flipped: bool) -> Tensor:
        into, self._into = self._into, None
        found: Tensor = _functions()[1].apply(x, self.value, into, flipped)
        return found


class Matrices:
    """The matrices of one trained parameter [S, L, H, a, b]."""

    def __init__(self, parameter: Tensor) -> None:
        self._parameter = parameter
        self._buffer: Tensor | None = None

    def take(self) -> list[list[Matrix]]:
        """By layer and head, for one step; its backward pass overwrites the gradient of the step before."""
        import torch

        parameter = self._parameter
        L, H = parameter.shape[1:3]
        if self._buffer is None and parameter.device.type == "cpu" and torch.is_grad_enabled():
            self._buffer = torch.empty_like(parameter, requires_grad=False)
        values = _functions()[0].apply(parameter, self._buffer)
        places = [None] * (L * H) if self._buffer is None else self._buffer.flatten(1, 2).unbind(1)
        found = [Matrix(value, into) for value, into in zip(values, places, strict=True)]
        return [found[layer * H : (layer + 1) * H] for layer in range(L)]


@cache
def _functions() -> tuple[Any, ...]:
    """The autograd functions, made when torch is there: a parameter's matrices, a product with one of them, one of few
    rows with a large matrix that is not trained, and a large one."""
    import torch

    class Split(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, parameter: Any, buffer: Any) -> Any:
            context.buffer, context.shape = buffer, parameter.shape
            return tuple(part.detach() for part in parameter.flatten(1, 2).unbind(1))

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            buffer = context.buffer
            if buffer is not None:
                places = buffer.flatten(1, 2).unbind(1)
                for place, gradient in zip(places, gradients, strict=True):
                    if place.data_ptr() != gradient.data_ptr():
                        place.copy_(gradient)
                return buffer.detach(), None
            return torch.stack(gradients, 1).view(context.shape), None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, y: Any, into: Any, flipped: bool) -> Any:
            context.save_for_backward(x, y)
            context.into, context.flipped = into, flipped
            return times(x, y.transpose(1, 2) if flipped else y)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (x, y), g = context.saved_tensors, gradients[0]
            if context.flipped:
                return times(g, y), _written(g.transpose(1, 2), x, context.into), None, None
            return times(g, y.transpose(1, 2)), _written(x.transpose(1, 2), g, context.into), None, None

    class Few(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, y: Any) -> Any:
            context.save_for_backward(y)
            return compiled.few_times(x, y)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            return times(gradients[0].unsqueeze(0), context.saved_tensors[0].t().unsqueeze(0)).squeeze(0), None

    class Large(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, y: Any) -> Any:
            context.save_for_backward(x, y)
            return _by_onednn(x, y)

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            (x, y), g, (of_x, of_y) = context.saved_tensors, gradients[0], context.needs_input_grad
            return _by_onednn(g, y.t()) if of_x else None, _gradient(x, g) if of_y else None

    return Split, Product, Few, Large


def _gradient(x: Tensor, g: Tensor) -> Tensor:
    """x^T g [a, b] for x [..., a] and g [..., b], the gradient of a matrix."""
    x, g = x.reshape(-1, x.shape[-1]).t(), g.reshape(-1, g.shape[-1])
    return _by_onednn(x, g) if _is_large(x, g, _NARROW_GRADIENT) else x @ g


def _written(x: Tensor, y: Tensor, place: Tensor | None) -> Tensor:
    """x @ y, written there."""
    import torch

    if place is None:
        return times(x, y)
    if len(x) == 1:
        torch.mm(x[0], y[0], out=place[0])
        return place
    return place.copy_(x @ y)
