"""The first stage of every decision: the host that is examined, constructed by name or opened once, and what is asked of it.

Dense hosts are exact integers, drawn from a seed or stored in a file. An entry is an integer times one unit per kind of matrix,
so columns of R_all are scaled by constants, and the rank over the rationals is that of the integers
(docs/certificate-format.md sections 4.7 and 4.8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.format import integer
from utfproof.constructions import Construction, construction
from utfproof.errors import MalformedInput, NotDefined
from utfproof.exact import gfp
from utfproof.matching import r_all
from utfproof.matching.modular import r_all_modulo, stacked_memory
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal
from utfproof.util.arrays import require_device
from utfproof.util.generator import (
    check_dtype,
    check_law,
    check_seed,
    integer_matrix,
    integer_matrix_torch,
    unit,
    unit_exponent,
)
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory
from utfproof.weights import HostFile, StoredHost, stored_host

Draw = Callable[[str, int, int, int], Any]
"""(tensor, columns, layer, head) -> that matrix of the host; layers and heads count from 0."""
_CHUNK = 1 << 15
"""Entries drawn together: a chunk and what is computed from it stay in a core's second-level cache."""
_TYPE_EXPONENTS = {"F64": 1074, "F32": 149, "F16": 24, "BF16": 133}


# --- dense hosts -------------------------------------------------------------------------------------------


def assemble(shape: Shape, m: int, tied: bool, draw: Draw, values: tuple[str, ...] = ("R_V",)) -> Universal:
    """The host whose matrices are draw(tensor, columns, layer, head); values: R_V, or the factors R_Vv and R_Vo."""

    def grid(tensor: str, columns: int) -> list[Any]:
        layers = [
            [draw(tensor, columns, layer, head) for head in range(shape.heads)]
            for layer in range(1 if tied else shape.layers)
        ]
        return layers[0] if tied else layers

    d = shape.head_dim
    factors = [grid(name, m) for name in values]
    U, R_Vo = draw("U", shape.d_out, 0, 0), factors[1] if len(factors) > 1 else None
    return Universal(shape, m, grid("R_Q", d), grid("R_K", d), factors[0], U, R_Vo=R_Vo)


class DenseSource:
    """A host whose R_all is decided by elimination; layers and heads count from 0. device: "cpu", or a torch device."""

    shape: Shape
    m: int
    tied: bool
    device: str

    @property
    def values(self) -> tuple[str, ...]:
        """The tensors whose product is R_V."""
        return ("R_V",)

    def size(self, tensor: str) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        raise NotImplementedError

    def residues(self, tensor: str, layer: int, head: int, part: slice, p: int) -> np.ndarray:
        """Rows of one matrix modulo p, centred, of the type that fits p."""
        raise NotImplementedError

    def on_device(self, tensor: str, layer: int, head: int, p: int) -> Any:
        """One matrix modulo p, a tensor on the device."""
        import torch

        return torch.from_numpy(self.residues(tensor, layer, head, slice(None), p)).to(self.device)

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit): the true entries are unit times integer."""
        raise NotImplementedError

    def r_all(self, p: int) -> Any:
        """R_all modulo p [m, M], centred residues; factors of R_V are never multiplied first."""

        def rows(tensor: str, layer: int, head: int, part: slice) -> np.ndarray:
            return self.residues(tensor, layer, head, part, p)

        if self.device == "cpu":
            return r_all_modulo(self.shape, self.m, p, rows, self.values)

        def draw(tensor: str, _: int, layer: int, head: int) -> gfp.ResidueMatrix:
            return gfp.ResidueMatrix(self.size(tensor), p, lambda: self.on_device(tensor, layer, head, p))

        return r_all(assemble(self.shape, self.m, self.tied, draw, self.values)).array

    def require_room(self, what: str, needed: int, max_memory: int | None) -> None:
        """ResourceLimit, before anything is allocated, unless R_all and so many bytes more fit; the device has to exist."""
        m, M = self.m, matching_dimension(self.shape)
        if self.device != "cpu":
            require_device(self.device)
            needed = max(needed, 8 * (3 * m * M + 4 * m * m))
        require_memory(max(needed, stacked_memory(self.shape, m, M)), f"{what} {self}", max_memory)


@dataclass(frozen=True)
class RandomDraw(DenseSource):
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

    def size(self, tensor: str) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        return self.m, {"R_V": self.m, "U": self.shape.d_out}.get(tensor, self.shape.head_dim)

    def integers(self, tensor: str, layer: int, head: int, part: slice = slice(None)) -> np.ndarray:
        """The integers that stand for the entries of one matrix, or of some of its rows (section 4.7 of the format)."""
        return integer_matrix(
            self.seed,
            tensor,
            *self.size(tensor),
            law=self.law,
            dtype=self.dtype,
            layer=0 if self.tied else layer,
            head=head,
            part=part,
        )

    def residues(self, tensor: str, layer: int, head: int, part: slice, p: int) -> np.ndarray:
        drawn = self.integers(tensor, layer, head, part)
        if self.dtype == "float64":  # numerators, below 2^33
            return np.asarray(gfp.centred(drawn, p, out=np.empty(drawn.shape, gfp.dtype_for(p))))
        return np.asarray(gfp.residues_of_integers(drawn, p)).astype(gfp.dtype_for(p))

    def on_device(self, tensor: str, layer: int, head: int, p: int) -> Any:
        """One matrix modulo p, drawn on the device where it can be."""
        if self.dtype != "float64":
            return super().on_device(tensor, layer, head, p)
        import torch

        drawn = integer_matrix_torch(
            self.seed, tensor, *self.size(tensor), law=self.law, layer=layer, head=head, device=self.device
        )
        return gfp.residues_of_integers(drawn, p).to(getattr(torch, gfp.dtype_for(p)))

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit)."""
        u = unit(self.law, self.m)
        if self.dtype != "float64":
            u = Fraction(2) ** unit_exponent(self.law, self.m)
        return flint_matrix(self.integers(tensor, layer, head)), u


@dataclass(frozen=True)
class StoredWeights(StoredHost, DenseSource):
    """A host's weights from a file, in the number formats they were stored in."""

    device: str = "cpu"

    def __str__(self) -> str:
        return f"R_all of {self.file.path} at {self.shape}, m = {self.m},"

    def size(self, tensor: str) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        rows, columns = self.matrix(tensor, 0, 0).shape
        return rows, columns

    def residues(self, tensor: str, layer: int, head: int, part: slice, p: int) -> np.ndarray:
        """Rows of one matrix modulo p, as integers of section 4.8."""
        scale = 1 << _TYPE_EXPONENTS.get(self.file.types[tensor], 0)
        rows = f", rows from {part.start} on," if part.start else ","
        name = f"{self.file.path}: {tensor} of layer {layer}, head {head}{rows}"
        entries = self.matrix(tensor, layer, head)[part]
        return np.asarray(gfp.residues(entries, p, name=name, factor=scale, dtype=gfp.dtype_for(p)))

    def exact(self, tensor: str, layer: int, head: int) -> tuple[Any, Fraction]:
        """One matrix as (an fmpz_mat, its unit)."""
        integers, exponent = dyadic_integers(self.matrix(tensor, layer, head))
        return flint_matrix(integers), Fraction(2) ** exponent


def flint_matrix(entries: np.ndarray) -> Any:
    """An integer array [rows, columns] (fixed width, or Python ints) as an fmpz_mat."""
    from flint import fmpz_mat

    rows, columns = entries.shape
    return fmpz_mat(rows, columns, entries.reshape(-1).tolist())


def dyadic_integers(array: np.ndarray) -> tuple[np.ndarray, int]:
    """(integers, e) with array = integers * 2^e exactly, for finite floats or integers (e = 0)."""
    if array.dtype.kind != "f":
        return array, 0
    bits = np.finfo(array.dtype).nmant + 1
    significand, exponent = np.frexp(array.astype(np.float64))
    integers = (significand * 2.0**bits).astype(np.int64)
    lowest = int(exponent[integers != 0].min(initial=2000))
    shifts = np.where(integers != 0, exponent - lowest, 0)
    return integers.astype(object) << shifts.astype(object), lowest - bits


# --- the host and the question -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Examined:
    """A host of embedding dimension m, the notion that is asked for, and of which targets (untied ones, or tied ones alone).

    document: the claim's `host`. entry: its construction; None for stored weights. stored: these; None for constructions.
    source: its matrices as exact integers; None for constructions of zeros and ones. witness: give its certificate the
    inverse of a minor, so that checking costs matrix-vector products only. max_memory: in bytes.
    """

    shape: Shape
    m: int
    document: dict[str, Any]
    notion: Notion
    tied: bool
    tied_targets: bool = False
    entry: Construction | None = None
    stored: StoredHost | None = None
    source: DenseSource | None = None
    witness: bool = False
    max_memory: int | None = None

    @property
    def M(self) -> int:
        """Columns of R_all."""
        return matching_dimension(self.shape)

    @property
    def square(self) -> bool:
        """Whether d_in = d_out: what the kinds about attention-matching are specified for."""
        return self.shape.d_in == self.shape.d_out

    @property
    def name(self) -> str:
        """The construction, or the file."""
        return self.stored.file.path if self.stored is not None else self.construction.name

    @property
    def construction(self) -> Construction:
        """The construction of a host that has one."""
        assert self.entry is not None
        return self.entry


def constructed(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    notion: Notion | str | None = None,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> Examined:
    """A construction by name; m defaults to its own, notion to the one that it serves by.

    Raises NotDefined outside its shapes, MalformedInput where a witness is asked for that no certificate of it has."""
    entry = construction(name)
    m = entry.dimension(shape, m)
    asked = Notion(notion) if notion is not None else entry.notion or Notion.MATCHING
    document = host_document(entry, seed=seed, law=law, dtype=dtype)
    if witness and not entry.is_random:
        raise MalformedInput(f"--witness belongs to random constructions; {name} has a certificate of linear size")
    if witness and asked is not Notion.MATCHING:
        raise MalformedInput(f"--witness belongs to certificates by matching, got {asked.value}")
    source = RandomDraw(shape, m, seed, law, dtype, entry.tied, device) if entry.is_random else None
    return Examined(
        shape, m, document, asked, entry.tied, entry=entry, source=source, witness=witness, max_memory=max_memory
    )


def opened(
    host: HostFile,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    residual: bool | None = None,
    notion: Notion | str = Notion.MATCHING,
    tied_targets: bool = False,
    witness: bool = False,
    device: str = "cpu",
    max_memory: int | None = None,
) -> Examined:
    """A host from a file (its name, or open). layers: for tied weights whose metadata does not say it. d_in: does not enter
    R_all; the metadata's or d_out unless given. residual: whether there is a residual stream, where the metadata does not
    say it. MalformedInput for files that hold no host."""
    stored = stored_host(host, layers=layers, d_in=d_in, residual=residual, max_memory=max_memory)
    shape, m, tied = stored.shape, stored.m, stored.tied
    source = StoredWeights(stored.file, shape, m, tied, device)
    return Examined(
        shape, m, stored.document, Notion(notion), tied, tied_targets, None, stored, source, witness, max_memory
    )


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
