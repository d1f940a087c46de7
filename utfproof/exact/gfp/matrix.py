"""Products, and matrices over GF(p) that are drawn when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.exact.gfp.field import centred
from utfproof.exact.gfp.kernels import kernels_for
from utfproof.util.arrays import namespace, take_column_blocks


def multiply(a: Any, b: Any, p: int) -> Any:
    """a b modulo p: a [m, k], b [k, n] residues (NumPy, or torch on one device), centred residues out."""
    if a.shape[1] != b.shape[0]:
        raise MalformedInput(f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not multiply")
    if a.dtype != b.dtype:
        raise MalformedInput(f"residues of types {a.dtype} and {b.dtype} do not multiply")
    return centred(kernels_for(a, p).product(a, b), p)


class ResidueMatrix:
    """A matrix over GF(p) drawn when it is first needed, for `matching.r_all`: supports @, hstack and materialise.

    Its arrays are NumPy arrays or torch tensors (any device); all matrices of one computation are of one kind.
    """

    def __init__(self, shape: tuple[int, int], p: int, draw: Callable[[], Any]) -> None:
        self.shape = shape
        self.p = p
        self._draw = draw

    @classmethod
    def of(cls, array: Any, p: int) -> ResidueMatrix:
        """Wrap centred residues."""
        rows, columns = array.shape
        return cls((rows, columns), p, lambda: array)

    @property
    def array(self) -> Any:
        """Centred residues [rows, columns], drawn anew at each call unless materialised."""
        return self._draw()

    def materialise(self) -> ResidueMatrix:
        """The same matrix, held in memory."""
        return ResidueMatrix.of(self._draw(), self.p)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, ResidueMatrix):
            return NotImplemented
        return ResidueMatrix.of(multiply(self.array, other.array, self.p), self.p)

    def take_column_blocks(self, widths: Any, order: Any) -> ResidueMatrix:
        """The same columns, cut into consecutive blocks of these widths, with the blocks in this order."""
        return ResidueMatrix.of(take_column_blocks(self.array, widths, order), self.p)

    def hstack_with(self, others: list[ResidueMatrix]) -> ResidueMatrix:
        """This matrix and others side by side."""
        arrays = [self.array, *(part.array for part in others)]
        return ResidueMatrix.of(namespace(arrays[0]).concatenate(arrays, axis=1), self.p)
