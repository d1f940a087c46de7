"""Producing certificates: is this construction universal *by matching* at this shape?

{0,1} hosts are settled on index maps in time linear in m; random hosts by the rank of R_all modulo a prime, in
integers drawn straight from the generator; whatever is deficient by m < M or by an exact kernel vector of R_all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.arrays import exact
from utfproof.certificates.format import INLINE_LIMIT, Certificate, certificate, integer, integer_array
from utfproof.constructions import Construction, build_host, construction, resolve_m
from utfproof.errors import ResourceLimit, Undecided
from utfproof.exact import gfp, rational
from utfproof.generator import (
    check_dtype,
    check_law,
    check_seed,
    integer_matrix,
    unit,
    weight_matrix,
)
from utfproof.matching import distance_bound, r_all
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.selection import SelectionMatrix
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import LoopedUniversal, Universal

KERNEL_ENTRIES = 400_000
"""Largest R_all (entries) whose kernel is computed over the rationals."""


def certify(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    notion: Notion | str | None = None,
    primes: tuple[int, ...] = gfp.DEFAULT_PRIMES,
    max_memory: int | None = None,
) -> Certificate:
    """Decide universality by matching of a named construction; the certificate says which way.

    notion: only "matching" has certificates; it is the default except for the constructions that serve by
    attention-matching, where it has to be asked for. Raises Undecided when no kind of certificate settles the question,
    NotDefined outside the construction's shapes, ResourceLimit before allocating.
    """
    entry = construction(name)
    m = resolve_m(entry, shape, m)
    asked = Notion(notion) if notion is not None else entry.notion or Notion.MATCHING
    M = matching_dimension(shape)
    if asked is not Notion.MATCHING:
        raise Undecided(
            f"no certificate kind decides {name} by {asked.value} yet; by matching it is "
            + (f"refuted at {shape} (m = {m} < M = {M})" if m < M else "a different question")
            + ": ask with --notion matching"
        )
    host = host_document(entry, seed=seed, law=law, dtype=dtype)
    if m < M:
        return certificate("rank-deficient", shape, m, host, {"method": "dimension"}, rank=None)
    if entry.is_random:
        return _certify_random(entry, shape, m, host, seed, law, dtype, primes, max_memory)
    return _certify_index_map(entry, shape, m, host, max_memory)


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


def _certify_index_map(
    entry: Construction, shape: Shape, m: int, host: dict[str, Any], max_memory: int | None
) -> Certificate:
    matrix = r_all(build_host(entry.name, shape, m, max_memory=max_memory))
    assert isinstance(matrix, SelectionMatrix)
    rows = matrix.unit_rows()
    if rows is not None:
        array, sidecars = integer_array(rows)
        return certificate("rank-permutation", shape, m, host, {"rows": array}, rank=matrix.shape[1], sidecars=sidecars)
    z = _selection_kernel(matrix)
    if z is None:
        require_kernel_size(matrix.shape, f"R_all of {entry.name} at {shape}, m = {m},")
        dense = rational.kernel_vector(matrix.to_dense(object))
        z = None if dense is None else {i: v for i, v in enumerate(dense) if v}
    if z is None:
        raise Undecided(
            f"{entry.name} at {shape}, m = {m}: R_all has full rank but is no permutation; no certificate kind says so"
        )
    return _deficient(shape, m, host, z)


def _selection_kernel(matrix: SelectionMatrix) -> dict[int, int] | None:
    """A kernel vector that two equal columns, or one zero column, of a {0,1} matrix give at once."""
    rows, columns = matrix.coordinates()
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(columns, np.arange(matrix.shape[1] + 1))
    seen: dict[bytes, int] = {}
    for column in range(matrix.shape[1]):
        content = rows[starts[column] : starts[column + 1]].tobytes()
        if not content:
            return {column: 1}
        if content in seen:
            return {seen[content]: 1, column: -1}
        seen[content] = column
    return None


def require_kernel_size(size: tuple[int, int], what: str) -> None:
    """ResourceLimit beyond the size at which a rational kernel is computed."""
    if size[0] * size[1] > KERNEL_ENTRIES:
        raise ResourceLimit(
            f"{what} has {size[0]} x {size[1]} entries; a rational kernel vector is computed up to {KERNEL_ENTRIES} entries"
        )


def _deficient(shape: Shape, m: int, host: dict[str, Any], z: dict[int, int]) -> Certificate:
    """The refutation that z gives; the isolating column is the one with the largest entry (the best distance bound)."""
    if len(z) > INLINE_LIMIT:
        raise ResourceLimit(f"the kernel vector has {len(z)} entries, a certificate holds at most {INLINE_LIMIT}")
    positions = sorted(z)
    values = [z[i] for i in positions]
    best = max(range(len(values)), key=lambda k: (abs(values[k]), -k))
    distance = distance_bound(values, best)
    evidence = {
        "method": "kernel-vector",
        "column": integer(positions[best]),
        "distance_squared": [integer(distance.numerator), integer(distance.denominator)],
        "z": [[integer(i), integer(v)] for i, v in zip(positions, values, strict=True)],
    }
    return certificate("rank-deficient", shape, m, host, evidence, rank=None)


def _certify_random(
    entry: Construction,
    shape: Shape,
    m: int,
    host: dict[str, Any],
    seed: int,
    law: str,
    dtype: str,
    primes: tuple[int, ...],
    max_memory: int | None,
) -> Certificate:
    M = matching_dimension(shape)
    # R_all, its elimination copy, one m x m matrix with its products, in float64
    require_memory(8 * (3 * m * M + 4 * m * m), f"rank of R_all of {entry.name} at {shape}, m = {m},", max_memory)
    for p in primes:
        matrix = random_r_all(shape, m, p, seed=seed, law=law, dtype=dtype, tied=entry.tied)
        if gfp.rank(matrix, p) == M:
            return certificate("rank-modular", shape, m, host, {"method": "recompute", "prime": p}, rank=M)
    what = f"R_all of {entry.name} at {shape}, m = {m}, seed {seed}, law {law},"
    if m * M > KERNEL_ENTRIES:
        raise Undecided(
            f"{what} is rank-deficient modulo {len(primes)} primes, which proves nothing, and too large for a rational kernel"
        )
    z = rational.kernel_vector(r_all(_exact_host(shape, m, seed, law, dtype, entry.tied)))
    if z is None:
        raise Undecided(f"{what} has full rank over the rationals but not modulo {primes}; pass other primes")
    return _deficient(shape, m, host, {i: v for i, v in enumerate(z) if v})


def random_r_all(shape: Shape, m: int, p: int, *, seed: int, law: str, dtype: str, tied: bool) -> np.ndarray:
    """R_all modulo p (centred residues, [m, M]) of a random host, one matrix drawn at a time.

    For float64 the integer numerators stand for the entries: each matrix has one common unit, so columns of R_all are
    scaled by constants and the rank over the rationals is the same.
    """

    def draw(tensor: str, columns: int, layer: int, head: int) -> gfp.ResidueMatrix:
        def residues() -> np.ndarray:
            if dtype == "float64":
                integers = integer_matrix(seed, tensor, m, columns, law=law, layer=layer, head=head)
                return gfp.residues_of_integers(integers, p)
            weights = weight_matrix(seed, tensor, m, columns, law=law, dtype=dtype, layer=layer, head=head)
            return gfp.residues_of_floats(weights, p)

        return gfp.ResidueMatrix((m, columns), p, residues)

    return r_all(_host_of(shape, m, tied, draw)).array


def _exact_host(shape: Shape, m: int, seed: int, law: str, dtype: str, tied: bool) -> Universal:
    """The random host in exact rationals."""

    def draw(tensor: str, columns: int, layer: int, head: int) -> np.ndarray:
        if dtype == "float64":
            integers = integer_matrix(seed, tensor, m, columns, law=law, layer=layer, head=head)
            return exact(integers) * unit(law, m)
        return exact(weight_matrix(seed, tensor, m, columns, law=law, dtype=dtype, layer=layer, head=head))

    return _host_of(shape, m, tied, draw)


def _host_of(shape: Shape, m: int, tied: bool, draw: Any) -> Universal:
    def grid(tensor: str, columns: int) -> list[Any]:
        layers = [
            [draw(tensor, columns, layer, head) for head in range(shape.heads)]
            for layer in range(1 if tied else shape.layers)
        ]
        return layers[0] if tied else layers

    kind = LoopedUniversal if tied else Universal
    d = shape.head_dim
    return kind(shape, m, grid("R_Q", d), grid("R_K", d), grid("R_V", m), draw("U", shape.d_out, 0, 0), "random")
