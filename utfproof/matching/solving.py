"""Solving the matching equations for E: by a permutation, exactly, or in float64 by least squares."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, host_of_shape
from utfproof.errors import MalformedInput, OutsideClass
from utfproof.exact import rational
from utfproof.matching.equations import r_all, read_as, w_all, widened
from utfproof.matching.floats import (
    Embedding,
    FloatSolver,
    deficient,
    least_squares,
    relative,
    require_finite,
)
from utfproof.shapes import Shape, matching_dimension, tied_targets_dimension
from utfproof.systems import Target, Universal, same_parameters
from utfproof.systems.biases import BiasedTarget
from utfproof.util.arrays import Array, is_exact, is_torch, to_numpy, zeros
from utfproof.util.notions import Notion
from utfproof.util.resources import LIBRARIES, require_memory
from utfproof.util.selection import SelectionMatrix


def require_same_class(host: Universal, target: Target | BiasedTarget) -> None:
    """MalformedInput naming the first dimension in which host and target differ."""
    entry = CONSTRUCTIONS.get(host.construction)
    served = host.shape if entry is None else entry.target_shape(host.shape)
    if isinstance(target, BiasedTarget):
        if entry is None or entry.models is None:
            raise OutsideClass(
                "this target has MLPs or biases; a host such as mlp-8-16 serves it, where 8 and 16 are widths"
            )
    elif not isinstance(target, Target):
        raise MalformedInput(f"the host comes first, then the target; got a {type(target).__name__} as the target")
    for field in ("heads", "layers", "head_dim", "d_in", "d_out"):
        ours, theirs = getattr(served, field), getattr(target.shape, field)
        if ours != theirs:
            raise MalformedInput(f"host and target differ in {field}: host {ours}, target {theirs}")
    if served.residual != target.shape.residual:
        which = "host" if served.residual else "target"
        raise MalformedInput(f"only the {which} has a residual stream; give both one, or neither (--residual)")


def embed(host: Universal, target: Target | BiasedTarget, *, max_memory: int | None = None) -> Embedding:
    """The embedding E [d_in, m] under which the host acts as the target, for every n and X; see `Embedder`.

    >>> from utfproof import Shape, build_host, embed, random_target
    >>> shape = Shape(2, 2, 2, 3)
    >>> found = embed(build_host("tied", shape), random_target(shape, seed=1))
    >>> found.E.shape, str(found.notion)
    ((3, 36), 'matching')
    """
    return Embedder(host, max_memory=max_memory).embed(target)


class Embedder:
    """Embeddings of many targets into one host: R_all is assembled and factored once, when first needed.

    By substitution for index-map hosts with a permutation R_all, with a residual stream, and for those that match attention
    alone, whose queries and keys are forms of the target; a rational solve for exact weights; else least squares with scaled
    columns and one refinement step, in float64. Hosts with MLPs have formulas of their own.
    """

    def __init__(self, host: Universal, *, max_memory: int | None = None) -> None:
        if not isinstance(host, Universal):
            raise MalformedInput(f"the host comes first, then the target; got a {type(host).__name__} as the host")
        self.host = host
        self.max_memory = max_memory
        self.entry = entry = CONSTRUCTIONS.get(host.construction)
        self.streams = entry is not None and entry.permutation and host.shape.residual
        if entry is not None and (self.streams or entry.embed or entry.readers):
            _require_genuine(host)

    @cached_property
    def index_columns(self) -> SelectionMatrix | None:
        """R_all as an index map; None for dense hosts."""
        return r_all(self.host) if isinstance(self.host.U, SelectionMatrix) else None

    @cached_property
    def unit_rows(self) -> np.ndarray | None:
        """Where R_all is a permutation (or part of one): the row of each of its columns."""
        return None if self.index_columns is None else self.index_columns.unit_rows()

    @cached_property
    def columns(self) -> Any:
        """R_all [m, M], dense, in the host's own arithmetic. ResourceLimit before allocating."""
        shape, m = self.host.shape, self.host.m
        M = matching_dimension(shape)
        # R_all, its scaled factors and the stack behind it; SciPy itself
        needed = 8 * m * M * (2 + shape.heads) + LIBRARIES
        require_memory(needed, f"R_all at {shape}, m = {m},", self.max_memory)
        return r_all(self.host) if self.index_columns is None else self.index_columns

    @cached_property
    def solver(self) -> FloatSolver:
        """R_all factored in float64: its numerical rank and condition are the margin that an exact rank does not show."""
        matrix = self.columns
        dense = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else _float64(matrix)
        return FloatSolver(dense, self.host.shape)

    def embed(self, target: Target | BiasedTarget) -> Embedding:
        """E [d_in, m] for this target.

        Raises CannotCarry when R_all is deficient and this target is out of reach, OutsideClass and SingularTarget where a
        formula does not apply, MalformedInput when shapes differ, ResourceLimit before allocating.
        """
        host = self.host
        require_same_class(host, target)
        shape, m = host.shape, host.m
        M = 0 if host.mlp is not None else matching_dimension(shape)
        require_memory(8 * shape.d_in * (3 * m + 2 * M), f"an embedding at {shape}, m = {m},", self.max_memory)
        entry = self.entry
        if entry is not None and entry.notion is not None and (entry.embed or entry.readers):
            wide: Any = widened(target) if isinstance(target, Target) else target
            if entry.embed is not None:
                E, condition = entry.embed(target.shape, m, wide)
            else:
                E, condition = self._by_readers(wide)
            _require_finite("E", E)
            return Embedding(E, entry.notion, "formula", condition=condition)
        assert isinstance(target, Target)
        right = w_all(target)
        _require_finite("W_all", right)
        if self.streams and (target.tied or not host.tied or shape.layers == 1):
            with np.errstate(over="ignore", invalid="ignore"):
                E = substituted(self.index_columns, right)
                error = _relative_residual(E @ self.index_columns, right)
            require_finite("E R_all - W_all", error)
            rank = tied_targets_dimension(shape) if host.tied else M
            return Embedding(E, Notion.MATCHING, "inclusion and exclusion", rank, M, None, error)
        if self.index_columns is not None and self.unit_rows is not None:
            return Embedding(substituted(self.index_columns, right), Notion.MATCHING, "closed form", M, M, 1.0, 0.0)
        matrix = self.columns
        if is_exact(right) and (isinstance(matrix, SelectionMatrix) or is_exact(matrix)):
            exactly = matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else matrix
            return _solve_exact(exactly, right, shape)
        solved = self.solver.solve(_float64(right))
        if is_torch(right):
            import torch

            return replace(solved, E=torch.from_numpy(solved.E).to(right.device))
        return solved

    def _by_readers(self, target: Target) -> tuple[Array, float | None]:
        """E, and the condition number of the forms that queries and keys are."""
        assert self.entry is not None
        assert self.entry.readers is not None
        readers = self.entry.readers(target.shape, target)
        return substituted(self.index_columns, w_all(read_as(target, readers))), readers.condition


def substituted(columns: Any, right: Array) -> Array:
    """E [d_in, m] with E R = right, R [m, M] an index map: columns are solved in turn, each for the one coordinate that it
    reads and those before have not settled. Zero where nothing is read; equations left over are not looked at."""
    rows, places = columns.coordinates()
    order = np.argsort(places, kind="stable")
    rows, places = rows[order], places[order]
    E, settled = zeros(right, right.shape[0], columns.shape[0]), np.zeros(columns.shape[0], dtype=bool)
    while True:
        new = ~settled[rows]
        new &= (np.bincount(places[new], minlength=columns.shape[1]) == 1)[places]
        if not new.any():
            return E
        found, last = np.unique(rows[new][::-1], return_index=True)
        rest = right - E @ columns if settled.any() else right
        E[:, _index(found, right)] = rest[:, _index(places[new][::-1][last], right)]
        settled[found] = True


def _relative_residual(found: Array, wanted: Array) -> float:
    """||found - wanted|| / ||wanted||, 0 where they are equal."""
    difference = found - wanted
    if is_exact(difference) and not any(difference.reshape(-1)):
        return 0.0
    return relative(_float64(difference), _float64(wanted))


def _require_finite(name: str, array: Array) -> None:
    """MalformedInput for floats that are not finite; exact numbers always are."""
    if not is_exact(array):
        require_finite(name, to_numpy(array))


def _require_genuine(host: Universal) -> None:
    """MalformedInput unless the host's matrices are those of the construction whose name it carries."""
    genuine = host_of_shape(host.construction, host.shape, host.m)
    if not isinstance(host.U, SelectionMatrix) or not same_parameters(host, genuine):
        raise MalformedInput(
            f"this host carries the name {host.construction} but its matrices differ; "
            'drop the name (construction="") to solve the matching equations for it'
        )


def _index(rows: np.ndarray, like: Array) -> Any:
    if is_torch(like):
        import torch

        return torch.from_numpy(rows).to(like.device)
    return rows


def _float64(array: Array) -> np.ndarray:
    return to_numpy(array).astype(np.float64, copy=False)


def _solve_exact(matrix: np.ndarray, right: np.ndarray, shape: Shape) -> Embedding:
    M = matrix.shape[1]
    rank = rational.rank(matrix)
    E = rational.solve_left(matrix, right)
    if E is None:
        _, relative_residual = least_squares(_float64(matrix), _float64(right))
        raise deficient(shape, rank, M, relative_residual, "rank")
    return Embedding(E, Notion.MATCHING, "rational solve", rank, M, None, 0.0)
