"""Dense hosts as exact integers: drawn from a seed, or stored in a file. R_all modulo a prime, and each matrix exactly.

An entry is an integer times one unit per kind of matrix, so columns of R_all are scaled by constants, and the rank over the
rationals is that of the integers (docs/certificate-format.md sections 4.7 and 4.8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from utfproof.certificates.format import integer
from utfproof.constructions import Construction
from utfproof.errors import NotDefined
from utfproof.exact import gfp
from utfproof.ground.generator import (
    check_dtype,
    check_law,
    check_seed,
    integer_matrix,
    integer_matrix_torch,
    unit,
    unit_exponent,
)
from utfproof.matching import r_all
from utfproof.matching.modular import r_all_modulo
from utfproof.shapes import Shape
from utfproof.systems import TiedUniversal, Universal
from utfproof.weights import StoredHost

Draw = Callable[[str, int, int, int], Any]
"""(tensor, columns, layer, head) -> that matrix of the host; layers and heads count from 0."""
_CHUNK = 1 << 15
"""Entries drawn together: a chunk and what is computed from it stay in a core's second-level cache."""
_TYPE_EXPONENTS = {"F64": 1074, "F32": 149, "F16": 24, "BF16": 133}


class DenseSource(Protocol):
    """A host whose R_all is decided by elimination."""

    @property
    def shape(self) -> Shape: ...

    @property
    def m(self) -> int: ...

    @property
    def device(self) -> str:
        """ "cpu" for NumPy, else a torch device."""
        ...

    def r_all(self, p: int) -> Any:
        """R_all modulo p [m, M], centred residues."""
        ...

    @property
    def tied(self) -> bool:
        """Whether every layer uses the matrices of layer 0."""
        ...

    @property
    def values(self) -> tuple[str, ...]:
        """The tensors whose product is R_V."""
        ...

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit): the true entries are unit times integer. Layers and heads count from 0."""
        ...


def assemble(shape: Shape, m: int, tied: bool, draw: Draw, values: tuple[str, ...] = ("R_V",)) -> Universal:
    """The host whose matrices are draw(tensor, columns, layer, head); values: R_V, or the factors R_Vv and R_Vo."""

    def grid(tensor: str, columns: int) -> list[Any]:
        layers = [
            [draw(tensor, columns, layer, head) for head in range(shape.heads)]
            for layer in range(1 if tied else shape.layers)
        ]
        return layers[0] if tied else layers

    factors = [grid(name, m) for name in values]
    kind = TiedUniversal if tied else Universal
    return kind(
        shape,
        m,
        grid("R_Q", shape.head_dim),
        grid("R_K", shape.head_dim),
        factors[0],
        draw("U", shape.d_out, 0, 0),
        R_Vo=factors[1] if len(factors) > 1 else None,
    )


def flint_matrix(entries: np.ndarray) -> Any:
    """An integer array [rows, columns] (fixed width, or Python ints) as an fmpz_mat."""
    from flint import fmpz_mat

    rows, columns = entries.shape
    return fmpz_mat(rows, columns, entries.reshape(-1).tolist())


def dyadic_integers(array: np.ndarray) -> tuple[np.ndarray, int]:
    """(integers, e) with array = integers * 2^e exactly, for finite floats or integers; e as large as can be (0 for integers).

    The integers are int64 where they fit, else Python ints.
    """
    if array.dtype.kind != "f":
        return array, 0
    significand, exponent = np.frexp(array.astype(np.float64))
    integers = (significand * 2.0**53).astype(np.int64)
    nonzero = integers != 0
    if not nonzero.any():
        return integers, 0
    # the lowest set bit of each integer, so that the common exponent is as large as can be
    trailing = np.frexp((integers & -integers).astype(np.float64))[1] - 1
    lowest = int((exponent + trailing)[nonzero].min())
    shift = np.where(nonzero, exponent - lowest, 0)
    integers >>= np.where(nonzero, np.minimum(trailing, 62), 0)
    shift += trailing * nonzero
    if int((shift + np.frexp(np.abs(integers).astype(np.float64))[1]).max()) <= 62:
        return integers << shift, lowest - 53
    wide = np.empty(array.shape, dtype=object)
    wide.reshape(-1)[:] = [
        v << s for v, s in zip(integers.reshape(-1).tolist(), shift.reshape(-1).tolist(), strict=True)
    ]
    return wide, lowest - 53


@dataclass(frozen=True)
class RandomDraw:
    """A random host at a shape: everything that its weights depend on, and where they are drawn."""

    shape: Shape
    m: int
    seed: int
    law: str
    dtype: str
    tied: bool
    device: str = "cpu"

    def __str__(self) -> str:
        name = "random-tied" if self.tied else "random"
        return f"R_all of {name} at {self.shape}, m = {self.m}, seed {self.seed}, law {self.law},"

    def _columns(self, tensor: str) -> int:
        return {"R_V": self.m, "U": self.shape.d_out}.get(tensor, self.shape.head_dim)

    def integers(self, tensor: str, layer: int, head: int, part: slice = slice(None)) -> np.ndarray:
        """The integers that stand for the entries of one matrix, or of some of its rows (section 4.7 of the format)."""
        layer = 0 if self.tied else layer
        return integer_matrix(
            self.seed,
            tensor,
            self.m,
            self._columns(tensor),
            law=self.law,
            dtype=self.dtype,
            layer=layer,
            head=head,
            part=part,
        )

    def _on_device(self, tensor: str, columns: int, layer: int, head: int, p: int) -> Any:
        """The same modulo p, a tensor of the type that fits p; drawn on the device where it can be."""
        import torch

        if self.dtype == "float64":
            drawn = integer_matrix_torch(
                self.seed, tensor, self.m, columns, law=self.law, layer=layer, head=head, device=self.device
            )
        else:
            drawn = torch.from_numpy(self.integers(tensor, layer, head)).to(self.device)
        return gfp.residues_of_integers(drawn, p).to(getattr(torch, gfp.dtype_for(p)))

    def r_all(self, p: int) -> Any:
        """R_all modulo p [m, M], centred residues, a slab of one matrix of the host in memory at a time."""
        if self.device == "cpu":

            def rows(tensor: str, layer: int, head: int, part: slice) -> np.ndarray:
                first, last, _ = part.indices(self.m)
                columns = self._columns(tensor)
                out = np.empty((last - first, columns), gfp.dtype_for(p))
                step = max(1, _CHUNK // columns)
                for start in range(first, last, step):  # reduced while they are in cache
                    drawn = self.integers(tensor, layer, head, slice(start, min(start + step, last)))
                    reduced = out[start - first : start - first + step]
                    if self.dtype == "float64":  # numerators, below 2^33
                        gfp.centred(drawn, p, out=reduced)
                    else:
                        reduced[:] = gfp.residues_of_integers(drawn, p)
                return out

            return r_all_modulo(self.shape, self.m, p, rows)

        def draw(tensor: str, columns: int, layer: int, head: int) -> gfp.ResidueMatrix:
            return gfp.ResidueMatrix((self.m, columns), p, lambda: self._on_device(tensor, columns, layer, head, p))

        return r_all(assemble(self.shape, self.m, self.tied, draw)).array

    @property
    def values(self) -> tuple[str, ...]:
        """R_V."""
        return ("R_V",)

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit): the true entries are unit times integer."""
        u = unit(self.law, self.m)
        if self.dtype != "float64":
            u = Fraction(2) ** unit_exponent(self.law, self.m)
        return flint_matrix(self.integers(tensor, layer, head)), u


@dataclass(frozen=True)
class StoredWeights(StoredHost):
    """A host's weights from a file, in the number formats they were stored in."""

    device: str = "cpu"

    def __str__(self) -> str:
        return f"R_all of {self.file.path} at {self.shape}, m = {self.m},"

    def r_all(self, p: int) -> Any:
        """R_all modulo p [m, M], centred residues, of the integers of section 4.8; factors are never multiplied first."""
        if self.device == "cpu":

            def rows(tensor: str, layer: int, head: int, part: slice) -> np.ndarray:
                matrix = self.matrix(tensor, layer, head)[part]
                return self._residues(matrix, tensor, layer, head, part.start or 0, p, gfp.dtype_for(p))

            return r_all_modulo(self.shape, self.m, p, rows, self.values)

        def draw(tensor: str, columns: int, layer: int, head: int) -> gfp.ResidueMatrix:
            matrix = self.matrix(tensor, layer, head)

            def residues() -> Any:
                import torch

                array = torch.from_numpy(np.array(matrix)).to(self.device)
                return self._residues(array, tensor, layer, head, 0, p).to(getattr(torch, gfp.dtype_for(p)))

            return gfp.ResidueMatrix((int(matrix.shape[0]), int(matrix.shape[1])), p, residues)

        return r_all(assemble(self.shape, self.m, self.tied, draw, self.values)).array

    def _residues(
        self, array: Any, tensor: str, layer: int, head: int, first: int, p: int, dtype: str = "float64"
    ) -> Any:
        """Residues of rows of one matrix, from row `first` on, as integers of section 4.8."""
        scale = 1 << _TYPE_EXPONENTS.get(self.file.types[tensor], 0)
        rows = f", rows from {first} on," if first else ","
        name = f"{self.file.path}: {tensor} of layer {layer}, head {head}{rows}"
        return gfp.residues(array, p, name=name, factor=scale, dtype=dtype)

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit): the true entries are unit times integer."""
        integers, exponent = dyadic_integers(self.matrix(tensor, layer, head))
        return flint_matrix(integers), Fraction(2) ** exponent


def require_rebuilt(entry: Construction) -> Construction:
    """The construction, or NotDefined where a checker knows its identity and not its matrices on their own."""
    if not entry.rebuilt:
        entry.require_host()
        raise NotDefined(
            f"certificates of this kind name {entry.name} by its weights only: write them with utfproof build {entry.name}, "
            "and pass that file"
        )
    return entry


def host_document(entry: Construction, *, seed: int, law: str, dtype: str) -> dict[str, Any]:
    """The claim's `host` field."""
    if not entry.is_random:
        return {"construction": entry.name}
    return {
        "construction": entry.name,
        "dtype": check_dtype(dtype),
        "law": check_law(law),
        "seed": integer(check_seed(seed)),
    }
