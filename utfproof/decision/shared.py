"""Refuting a host of the shared-attention model: R_V from a file, attention from outside, E and U both free for each target.

Some y != 0 with sum_w y_w R_w = 0 over the words of length L refutes it: the target whose M_w is e_1 e_1^T on one word with
y_w != 0, and zero on all others, would give 0 = y_w. With m^2 < H^L there always is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.format import Certificate
from utfproof.certificates.lower_bounds import null_vector_certificate
from utfproof.errors import NotDefined, ResourceLimit, Undecided
from utfproof.matching import isolating_target
from utfproof.shapes import Column, Shape, Word, column_index, too_many_words, word_at
from utfproof.systems import Target
from utfproof.util.arrays import exact, one_line
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory
from utfproof.weights import (
    TensorFile,
    known_system,
    read_tensors,
    require_finite,
    require_tensors,
    stored_layers,
    tied_by_rank,
)

SYSTEMS = ("universal", "shared-attention-universal", "looped-universal", "looped-shared-attention-universal")
"""Systems that a file's metadata may name."""
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

    Raises MalformedInput for files that hold no R_V, for tied ones without a number of layers, NotDefined for hosts
    with a residual stream.
    """
    file = read_tensors(path, max_memory=max_memory)
    if file.metadata.get("residual", "false") != "false":
        raise NotDefined(f"{path}: the refutation by shared attention is defined without a residual stream only")
    names = ("R_Vv", "R_Vo") if file.tensors.keys() & {"R_Vv", "R_Vo"} else ("R_V",)
    require_tensors(file, set(names), set(UNUSED))
    for name in names:
        require_finite(file, name)
    tied = tied_by_rank(file, names[0], known_system(file, SYSTEMS))
    first, last = file.tensors[names[0]].shape, file.tensors[names[-1]].shape
    inner = len(names) == 1 or first[-1] == last[-2]
    if first[:-2] != last[:-2] or first[-2] != last[-1] or not inner or 0 in first:
        given = ", ".join(f"{name} {list(file.tensors[name].shape)}" for name in names)
        raise file.refuse(f"values must be square matrices [(L,) H, m, m] or factors of such, got {given}")
    shape = _shape(file, first[-3], stored_layers(file, names[0], tied, layers), d_in, head_dim)
    require_memory(200 * file.tensors[names[0]].size, f"exact integers of {path}", max_memory)
    integers, shift = _integers([file.tensors[name] for name in names])
    unused = tuple(name for name in UNUSED if name in file.tensors)
    return SharedHost(shape, int(first[-2]), integers, tied, shift, unused)


def _shape(file: TensorFile, heads: int, layers: int, d_in: int | None, head_dim: int | None) -> Shape:
    """The class of targets: from the options, else from what the file holds besides R_V, else of width and head_dim 1."""
    U, R_Q = file.tensors.get("U"), file.tensors.get("R_Q")
    width = d_in or (int(U.shape[-1]) if U is not None and U.ndim == 2 else 1)
    inner = head_dim or (int(R_Q.shape[-1]) if R_Q is not None and R_Q.ndim >= 2 else 1)
    return Shape(heads, layers, inner, width)


def _integers(factors: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """The product of the factors times a power of two that makes each of them integers, and the power's exponent."""
    integers, shift = [], 0
    for factor in factors:
        entries = exact(factor)
        scale = max(x.denominator for x in entries.flat)
        shift += scale.bit_length() - 1
        integers.append(np.vectorize(int, otypes=[object])(entries * scale))
    return reduce(np.matmul, integers), shift


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
