"""Refuting a host of the shared-attention model: R_V from a file, attention from outside, E and U both free for each target.

Some y != 0 with sum_w y_w R_w = 0 over the words of length L refutes it: the target whose M_w is e_1 e_1^T on one word with
y_w != 0, and zero on all others, would give 0 = y_w. With m^2 < H^L there always is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utfproof.certificates.format import Certificate
from utfproof.certificates.lower_bounds import dimension_certificate, null_vector_certificate
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit, Undecided
from utfproof.ground.arrays import one_line
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.matching import isolating_target
from utfproof.shapes import Column, Shape, Word, column_index, decimal, positive_integer, too_many_words, word_at
from utfproof.systems import Target
from utfproof.weights import TensorFile, read_tensors, require_finite

SYSTEMS = {
    "universal": False,
    "shared-attention-universal": False,
    "looped-universal": True,
    "looped-shared-attention-universal": True,
}
"""Systems that a file's metadata may name, and whether they are tied."""
NULL_WORK = 60_000
"""Largest m^2 H^L whose null vector is computed here, in about two seconds."""
UNUSED = ("R_Q", "R_K", "U")
"""Tensors of a whole host that the shared-attention model leaves out."""


@one_line
@dataclass(frozen=True)
class SharedHost:
    """R_V [L, H, m, m] or, tied, [H, m, m], as integers: the stored numbers times 2^shift. unused: tensors left out."""

    shape: Shape
    m: int
    R_V: np.ndarray
    tied: bool
    shift: int
    unused: tuple[str, ...]


@one_line
@dataclass(frozen=True)
class SharedRefutation:
    """certificate: method null-vector, or dimension where the null vector is too large; word and target: what no E and U
    serve, None without a null vector."""

    certificate: Certificate
    word: Word | None
    target: Target | None


def read_shared_host(
    path: Path | str,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    head_dim: int | None = None,
    max_memory: int | None = None,
) -> SharedHost:
    """R_V of a host's file (or of one with R_V alone); d_in and head_dim name the targets, 1 unless the file or the caller
    says otherwise. Factors R_Vv, R_Vo are multiplied exactly.

    Raises MalformedInput for files that hold no R_V, for tied ones whose number of layers nobody says, NotDefined for hosts
    with a residual stream.
    """
    file = read_tensors(path, max_memory=max_memory)
    if file.metadata.get("residual", "false") != "false":
        raise NotDefined(f"{path}: the refutation by shared attention is defined without a residual stream only")
    names = ("R_Vv", "R_Vo") if file.tensors.keys() & {"R_Vv", "R_Vo"} else ("R_V",)
    missing = set(names) - file.tensors.keys()
    if missing:
        raise file.refuse(f"tensor {', '.join(sorted(missing))} is missing; found {', '.join(sorted(file.tensors))}")
    unknown = file.tensors.keys() - set(names) - set(UNUSED)
    if unknown:
        raise file.refuse(f"tensor {', '.join(sorted(unknown))} is not understood")
    for name in names:
        require_finite(file, name)
    tied = _tied(file, names[0])
    array = file.tensors[names[0]]
    rows, columns = array.shape[-2], file.tensors[names[-1]].shape[-1]
    inner = {name: file.tensors[name].shape for name in names}
    fits = rows == columns and len({shape[:-2] for shape in inner.values()}) == 1
    if len(names) == 2:
        fits = fits and inner["R_Vv"][-1] == inner["R_Vo"][-2]
    if not fits or 0 in array.shape:
        said = ", ".join(f"{name} {list(shape)}" for name, shape in inner.items())
        raise file.refuse(f"values must be square matrices [(L,) H, m, m] or factors of such, got {said}")
    said_layers = decimal(file.metadata.get("layers"), 9)
    found_layers = said_layers if tied else array.shape[0]
    for claimed in (layers, said_layers):
        if None not in (claimed, found_layers) and claimed != found_layers:
            raise file.refuse(f"the file has {found_layers} layers, {claimed} were said")
    found_layers = layers if found_layers is None else found_layers
    if found_layers is None:
        raise file.refuse("tied parameters do not say how many layers they are used for; pass --layers")
    shape = _shape(file, array.shape[-3], positive_integer("layers", found_layers), d_in, head_dim)
    require_memory(200 * array.size, f"exact integers of {path}", max_memory)
    integers, shift = _integers(file, names)
    unused = tuple(name for name in UNUSED if name in file.tensors)
    return SharedHost(shape, int(rows), integers, tied, shift, unused)


def _tied(file: TensorFile, name: str) -> bool:
    rank = file.tensors[name].ndim
    if rank not in (3, 4):
        raise file.refuse(f"{name} has {rank} axes, expected 4 (layer, head, rows, columns) or 3 when tied")
    system = file.metadata.get("system")
    if system is not None and system not in SYSTEMS:
        raise file.refuse(f"metadata says system {system!r}, expected {' or '.join(SYSTEMS)}")
    if system is not None and SYSTEMS[system] != (rank == 3):
        raise file.refuse(f"metadata says {system!r} but {name} has {rank} axes")
    return rank == 3


def _shape(file: TensorFile, heads: int, layers: int, d_in: int | None, head_dim: int | None) -> Shape:
    """The class of targets: from the options, else from what the file holds besides R_V, else of width and head_dim 1."""
    U, R_Q = file.tensors.get("U"), file.tensors.get("R_Q")
    width = d_in or (int(U.shape[-1]) if U is not None and U.ndim == 2 else 1)
    inner = head_dim or (int(R_Q.shape[-1]) if R_Q is not None and R_Q.ndim >= 2 else 1)
    return Shape(heads, layers, inner, width)


def _integers(file: TensorFile, names: tuple[str, ...]) -> tuple[np.ndarray, int]:
    """The values times the least power of two that makes them integers, as Python integers, and that power."""
    product, shift = None, 0
    for name in names:
        array = file.tensors[name]
        if array.dtype.kind == "f":
            pairs = [float(x).as_integer_ratio() for x in array.reshape(-1)]
        else:
            pairs = [(int(x), 1) for x in array.reshape(-1)]
        power = max((denominator.bit_length() - 1 for _, denominator in pairs), default=0)
        entries = np.empty(array.size, dtype=object)
        entries[:] = [numerator * (2**power // denominator) for numerator, denominator in pairs]
        integers = entries.reshape(array.shape)
        product, shift = integers if product is None else _multiplied(product, integers), shift + power
    assert product is not None
    return product, shift


def _multiplied(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix by matrix, exact."""
    lead = left.shape[:-2]
    out = np.empty((*lead, left.shape[-2], right.shape[-1]), dtype=object)
    for index in np.ndindex(lead):
        out[index] = left[index] @ right[index]
    return out


def refute_shared(host: SharedHost) -> SharedRefutation:
    """The certificate that this host is not universal in the shared-attention model, E and U both free, untied targets, and
    the target that no E and U serve.

    Where m^2 < H^L and the null vector is too large, the dimension certificate, which is about every host of that m, and no
    target. Raises Undecided where the word products are independent (then m^2 >= H^L), ResourceLimit where m^2 >= H^L and
    the products are too large to look for a relation.
    """
    shape, m = host.shape, host.m
    if too_many_words(shape):
        return SharedRefutation(_by_dimension(shape, m), None, None)  # says that these are too many words
    below, size = m * m < shape.leaves, m * m * shape.leaves
    if size > NULL_WORK and below:
        return SharedRefutation(_by_dimension(shape, m), None, None)
    if size > NULL_WORK:
        raise ResourceLimit(
            f"m^2 = {m * m} is not below H^L = {shape.leaves}, and the products R_w have {size} entries; a relation between "
            f"them is looked for up to {NULL_WORK}"
        )
    try:
        found = null_vector_certificate(host.R_V, shape, tied=host.tied)
    except ResourceLimit:
        if below:
            return SharedRefutation(_by_dimension(shape, m), None, None)
        raise
    except Undecided as error:
        raise Undecided(
            f"open in the shared-attention model: m^2 = {m * m} is not below H^L = {shape.leaves}, and the {shape.leaves} "
            "products R_w are linearly independent, so no null vector refutes this host; that does not make it universal"
        ) from error
    word = word_at(int(found.document["evidence"]["word"]), shape.layers, shape.heads)
    return SharedRefutation(found, word, isolating_target(shape, column_index(shape, Column("OV", word, 0))))


def _by_dimension(shape: Shape, m: int) -> Certificate:
    return dimension_certificate(shape, m, notion=Notion.SHARED_ATTENTION, free="E and U")


def require_widths(d_in: int | None, head_dim: int | None) -> None:
    """MalformedInput for sizes of targets that are not positive."""
    for name, value in (("--d-in", d_in), ("--head-dim", head_dim)):
        if value is not None and value < 1:
            raise MalformedInput(f"{name} must be a positive integer, got {value}")
