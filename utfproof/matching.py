"""The matching equations E R_all = W_all: both sides, isolating targets, and solving for the embedding E.

By the decision theorem a host is universal *by matching* (for all untied targets) iff rank R_all = M. `embed` solves
for one target. For the two hosts below M it fills in E by formula instead, and says *by attention-matching*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from utfproof.arrays import (
    Array,
    exact,
    hstack,
    is_exact,
    is_torch,
    namespace,
    take_column_blocks,
    to_numpy,
    zeros,
)
from utfproof.constructions import build_host
from utfproof.constructions.residual import embed_residual_tied, embed_residual_tree
from utfproof.constructions.shared_key import embed_shared_key
from utfproof.constructions.shared_query import embed_shared_query
from utfproof.errors import CannotCarry, MalformedInput
from utfproof.exact import rational
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.selection import SelectionMatrix
from utfproof.shapes import Shape, column_at, matching_dimension, tied_targets_dimension
from utfproof.systems import Target, Universal, prefix_products

_ATTENTION_MATCHING = {"shared-key": embed_shared_key, "shared-query": embed_shared_query}
_ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Embedding:
    """An embedding E [d_in, m] for one target, and how good it is.

    notion: what E achieves. method: "closed form", "inclusion and exclusion" (residual streams), "formula",
    "least squares" or "rational solve". rank and columns:
    of R_all (None where a formula did not need them; numerical where E comes from least squares). condition: 2-norm
    condition number of R_all with columns scaled to length one (1 for a permutation; for shared-query of the matrices
    that it inverts; None where not computed). residual: ||E R_all - W_all|| / ||W_all||, 0 where exact.
    """

    E: Array
    notion: Notion
    method: str
    rank: int | None = None
    columns: int | None = None
    condition: float | None = None
    residual: float | None = None


def _widened_array(array: Any) -> Any:
    """Fixed-width integers become Python integers, so that products cannot overflow; floats become float64."""
    if is_torch(array):
        return array.double()
    if isinstance(array, np.ndarray) and array.dtype.kind in "iub":
        return exact(array)
    if isinstance(array, np.ndarray) and array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    return array


def _held(matrix: Any) -> Any:
    """A parameter ready for products: drawn if it is drawn on demand, its numbers widened."""
    return matrix.materialise() if hasattr(matrix, "materialise") else _widened_array(matrix)


class SuffixStack(NamedTuple):
    """Everything that reads the stream before `layer` (0-based): `columns` [m, ...] in blocks R_u R_Q^{t,h}, R_u R_K^{t,h}
    and R_u U, with u the letters of the layers from `layer` on.

    Per block: kind (0 Q, 1 K, 2 OV), length (letters of its word, for Q and K with the reading head), word (its number in
    canonical order).
    """

    layer: int
    columns: Any
    kind: np.ndarray
    length: np.ndarray
    word: np.ndarray

    def widths(self, shape: Shape) -> np.ndarray:
        """Columns of each block."""
        return np.where(self.kind == 2, shape.d_out, shape.head_dim)


def suffix_stacks(host: Universal) -> Iterator[SuffixStack]:
    """The stacks S_L = [U], ..., S_0 from the last layer backwards: S_l = [R_Q^l, R_K^l, R_V^{l,0} S_{l+1}, R_V^{l,1} S_{l+1},
    ...], one product per layer and head, never word by word; with a residual stream S_{l+1} itself comes first of these."""
    shape, H = host.shape, host.shape.heads
    kind, length, word = np.array([2]), np.array([0]), np.array([0])
    columns = _held(host.U)
    yield SuffixStack(host.shape.layers, columns, kind, length, word)
    for layer in reversed(range(host.shape.layers)):
        maps = [host.maps(layer, head) for head in range(H)]
        parts = [*(_held(entry.query) for entry in maps), *(_held(entry.key) for entry in maps)]
        if shape.residual:
            parts.append(columns)
        for entry in maps:
            product = columns
            for matrix in reversed(entry.value):
                product = _held(matrix) @ product
            parts.append(product)
        columns = hstack(parts)
        heads, letters = np.arange(H), np.arange(shape.letters)
        # words of a block's length: the reading letter of a query or key is a head
        count = np.where(kind == 2, shape.letters**length, H * shape.letters ** np.maximum(length - 1, 0))
        kind = np.concatenate([0 * heads, 0 * heads + 1, np.tile(kind, shape.letters)])
        word = np.concatenate([heads, heads, (letters[:, None] * count + word).reshape(-1)])
        length = np.concatenate([0 * heads + 1, 0 * heads + 1, np.tile(length + 1, shape.letters)])
        yield SuffixStack(layer, columns, kind, length, word)


def r_all(host: Universal) -> Any:
    """R_all [m, M] in canonical column order, in the host's own arithmetic (a SelectionMatrix for index-map hosts).

    The last of the suffix stacks, its blocks put in canonical order once, at the end.
    """
    *_, stack = suffix_stacks(host)
    order = np.lexsort((stack.word, stack.length, stack.kind))
    return take_column_blocks(stack.columns, stack.widths(host.shape), order)


def w_all(target: Target) -> Array:
    """W_all [d_in, M] in canonical column order: W_E M_w W_Q, W_E M_w W_K, W_E M_w W_U."""
    target = _widened(target)
    heads = range(target.shape.heads)

    def columns(products: Array, readers: list[Array]) -> Array:
        """[H^t, d_in, D] times each reader [D, k] -> [d_in, H^t * readers * k]."""
        xp = namespace(products)
        blocks = xp.stack([products @ reader for reader in readers], axis=1)
        blocks = xp.moveaxis(blocks, 2, 0)
        return blocks.reshape(blocks.shape[0], -1)

    queries, keys = [], []
    for layer in range(target.shape.layers):
        products = prefix_products(target, layer)
        parameters = [target.parameters(layer, head) for head in heads]
        queries.append(columns(products, [p[0] for p in parameters]))
        keys.append(columns(products, [p[1] for p in parameters]))
    outputs = columns(prefix_products(target, target.shape.layers), [target.unembedding()])
    return hstack([*queries, *keys, outputs])


def _converted(target: Target, convert: Callable[[Array], Array]) -> Target:
    """The same target with each of its tensors converted."""
    names = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U")
    arrays = {name: getattr(target, name) for name in names}
    changes: dict[str, Any] = {name: None if a is None else convert(a) for name, a in arrays.items()}
    return replace(target, **changes)


def _widened(target: Target) -> Target:
    return _converted(target, _widened_array)


def isolating_target(shape: Shape, column: int) -> Target:
    """The 0/1 target whose W_all is zero except for a 1 in row 0 of this column of R_all (integer arrays).

    It routes along the column's word with M = e_1 e_1^T and is zero off the word and after the reading layer. With a
    residual stream no target isolates a column: this one routes along the letters other than 0, and a column whose word has
    other letters still, or a letter in another place, is zero (`refuting_column` chooses for which it refutes).
    Raises MalformedInput for a column outside 0 ... M-1.
    """
    kind, word, coordinate = column_at(shape, column)
    H, L, d = shape.heads, shape.layers, shape.head_dim
    D = max(shape.d_in, shape.d_out)
    W_Q, W_K, W_V = (np.zeros((L, H, D, d), dtype=np.int64) for _ in range(3))
    W_O = np.zeros((L, H, d, D), dtype=np.int64)
    first = int(shape.residual)  # the letter of head 0
    letters = word if kind == "OV" else word[:-1]
    route = [(layer, letter - first) for layer, letter in enumerate(letters) if letter >= first]
    for layer, head in route:
        W_V[layer, head, 0, 0] = W_O[layer, head, 0, 0] = 1
    if kind != "OV":
        (W_Q if kind == "Q" else W_K)[len(letters), word[-1] - first, 0, coordinate] = 1
    elif route:
        W_O[route[-1]][0] = 0
        W_O[(*route[-1], 0, coordinate)] = 1
    if shape.d_in == shape.d_out:
        return Target(shape, W_Q, W_K, W_V, W_O)
    W_E, W_U = np.eye(D, dtype=np.int64)[: shape.d_in], np.eye(D, dtype=np.int64)[:, : shape.d_out]
    if kind == "OV" and not route:  # the stream alone: W_all has W_E W_U here
        W_E[0] = 0
        W_E[0, coordinate] = 1
    return Target(shape, W_Q, W_K, W_V, W_O, W_E, W_U)


def refuting_column(shape: Shape, z: Sequence[int]) -> int:
    """The column c with z_c != 0 whose `isolating_target` has |W_all z| >= |z_c|, for a nonzero z [M].

    Any such column without a residual stream (the first is taken). With one, the target's W_all also has entries at the
    words that arise when letters of the routed word become 0, and outputs at those of every query or key: outputs come
    before queries and keys, fewer letters before more, so that z vanishes at all of these.
    """
    support = [index for index, value in enumerate(z) if value]
    if not support:
        raise MalformedInput("z is zero: it refutes nothing")
    if not shape.residual:
        return support[0]

    def rank(index: int) -> tuple[bool, int, int]:
        column = column_at(shape, index)
        return column.kind != "OV", sum(letter > 0 for letter in column.word), index

    return min(support, key=rank)


# --- solving for E -----------------------------------------------------------------------------------------


def require_same_class(host: Universal, target: Target) -> None:
    """MalformedInput naming the first dimension in which host and target differ."""
    for field in ("heads", "layers", "head_dim", "d_in", "d_out"):
        ours, theirs = getattr(host.shape, field), getattr(target.shape, field)
        if ours != theirs:
            raise MalformedInput(f"host and target differ in {field}: host {ours}, target {theirs}")
    if host.shape.residual != target.shape.residual:
        which = "host" if host.shape.residual else "target"
        raise MalformedInput(f"only the {which} has a residual stream; give both one, or neither (--residual)")


def embed(host: Universal, target: Target, *, max_memory: int | None = None) -> Embedding:
    """The embedding E [d_in, m] under which the host acts as the target, for every n and X; see `Embedder`."""
    return Embedder(host, max_memory=max_memory).embed(target)


class Embedder:
    """Embeddings of many targets into one host: R_all is assembled and factored once, when first needed.

    Closed form for index-map hosts with a permutation R_all, and by inclusion and exclusion with a residual stream; a
    rational solve for exact weights; else least squares with scaled columns and one refinement step, in float64. For
    `shared-key` and `shared-query` the formulas of attention-matching.
    """

    def __init__(self, host: Universal, *, max_memory: int | None = None) -> None:
        self.host = host
        self.max_memory = max_memory
        if host.construction in _ATTENTION_MATCHING or self._stream_formula:
            _require_genuine(host)

    @property
    def _stream_formula(self) -> bool:
        """Whether E comes from W_all by a formula of residual.py."""
        return self.host.shape.residual and self.host.construction in ("sparse", "tied")

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
        require_memory(8 * (4 * m * M + m * shape.heads * M), f"R_all at {shape}, m = {m},", self.max_memory)
        return r_all(self.host) if self.index_columns is None else self.index_columns

    @cached_property
    def solver(self) -> FloatSolver:
        """R_all factored in float64."""
        matrix = self.columns
        dense = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else _float64(matrix)
        return FloatSolver(dense, self.host.shape)

    def embed(self, target: Target) -> Embedding:
        """E [d_in, m] for this target.

        Raises CannotCarry with rank and residual when R_all is deficient and this target is out of reach, OutsideClass and
        SingularTarget where a formula does not apply, MalformedInput when shapes differ, ResourceLimit before allocating.
        """
        host = self.host
        require_same_class(host, target)
        shape, m = host.shape, host.m
        M = matching_dimension(shape)
        require_memory(8 * shape.d_in * (3 * m + 2 * M), f"an embedding at {shape}, m = {m},", self.max_memory)
        if host.construction in _ATTENTION_MATCHING:
            E, condition = _ATTENTION_MATCHING[host.construction](shape, m, _widened(target))
            _require_finite("E", E)
            return Embedding(E, Notion.ATTENTION_MATCHING, "formula", condition=condition)
        right = w_all(target)
        _require_finite("W_all", right)
        if self._stream_formula and (target.tied or not host.tied or shape.layers == 1):
            formula = embed_residual_tied if host.tied else embed_residual_tree
            E = formula(shape, m, _widened(target))
            error = _relative_error(E @ self.index_columns, right)
            rank = tied_targets_dimension(shape) if host.tied else M
            return Embedding(E, Notion.MATCHING, "inclusion and exclusion", rank, M, None, error)
        if self.unit_rows is not None:
            E = zeros(right, shape.d_in, m)
            E[:, _index(self.unit_rows, right)] = right
            return Embedding(E, Notion.MATCHING, "closed form", M, M, 1.0, 0.0)
        matrix = self.columns
        if is_exact(right) and (isinstance(matrix, SelectionMatrix) or is_exact(matrix)):
            exactly = matrix.to_dense(object) if isinstance(matrix, SelectionMatrix) else matrix
            return _solve_exact(exactly, right, shape)
        solved = self.solver.solve(_float64(right))
        if is_torch(right):
            import torch

            return replace(solved, E=torch.from_numpy(solved.E).to(right.device))
        return solved


def _relative_error(found: Array, wanted: Array) -> float:
    """||found - wanted|| / ||wanted||, 0 where they are equal."""
    difference = found - wanted
    if is_exact(difference):
        return 0.0 if not any(difference.reshape(-1)) else _relative(_float64(difference), _float64(wanted))
    return _relative(_float64(difference), _float64(wanted))


def _require_finite(name: str, array: Array) -> None:
    """MalformedInput for floats that are not finite: weights hold NaN or infinity, or their products overflow."""
    if not is_exact(array) and not bool(namespace(array).isfinite(array).all()):
        raise MalformedInput(f"{name} is not finite: the target's weights hold NaN or infinity, or products overflow")


def _require_genuine(host: Universal) -> None:
    """MalformedInput unless the host's matrices are those of the construction whose name it carries."""
    genuine = build_host(host.construction, host.shape, host.m)

    def entries(matrix: Any) -> Any:
        rows, columns = matrix.coordinates()
        return np.sort(rows * matrix.shape[1] + columns)

    layers = 1 if host.tied else host.shape.layers
    for layer, head in np.ndindex(layers, host.shape.heads):
        ours, theirs = host.maps(layer, head), genuine.maps(layer, head)
        pairs = [
            (ours.query, theirs.query),
            (ours.key, theirs.key),
            (ours.value[0], theirs.value[0]),
            (host.U, genuine.U),
        ]
        for a, b in pairs:
            if not isinstance(a, SelectionMatrix) or not np.array_equal(entries(a), entries(b)):
                raise MalformedInput(
                    f"this host carries the name {host.construction} but its matrices differ; "
                    'drop the name (construction="") to solve the matching equations for it'
                )


def _column_scale(matrix: np.ndarray) -> np.ndarray:
    """Factors that give each nonzero column length one."""
    norms = np.linalg.norm(matrix, axis=0)
    scale: np.ndarray = 1 / np.where(norms > 0, norms, 1)
    return scale


def _count_significant(values: np.ndarray, size: tuple[int, ...]) -> int:
    """Numerical rank: singular values (descending) above rounding, for a matrix of this size."""
    return int((values > max(size) * _ROUNDING * values[0]).sum()) if values[0] > 0 else 0


def numerical_rank(host: Universal, *, max_memory: int | None = None) -> tuple[int, float]:
    """(numerical rank of R_all in float64, condition number), columns scaled to length one: the margin that an exact
    rank does not show. Infinite condition where the numerical rank is below M. ResourceLimit before allocating."""
    M = matching_dimension(host.shape)
    require_memory(8 * (4 * host.m * M + host.m * host.shape.heads * M), f"R_all at {host.shape}", max_memory)
    matrix = r_all(host)
    dense = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else _float64(matrix)
    values = np.linalg.svd(dense * _column_scale(dense), compute_uv=False)
    rank = _count_significant(values, dense.shape)
    return rank, float(values[0] / values[-1]) if rank == M else float("inf")


def _index(rows: np.ndarray, like: Array) -> Any:
    if is_torch(like):
        import torch

        return torch.from_numpy(rows).to(like.device)
    return rows


def _float64(array: Array) -> np.ndarray:
    return to_numpy(array).astype(np.float64)


def _deficient(shape: Shape, rank: int, columns: int, residual: float, kind: str = "numerical rank") -> CannotCarry:
    return CannotCarry(
        f"this host cannot carry this target by matching: {kind} R_all = {rank} of M = {columns} at {shape}, "
        f"relative residual of E R_all = W_all {residual:.3g} (this does not decide functional universality)",
        rank=rank,
        columns=columns,
        residual=residual,
    )


def _solve_exact(matrix: np.ndarray, right: np.ndarray, shape: Shape) -> Embedding:
    M = matrix.shape[1]
    rank = rational.rank(matrix)
    E = rational.solve_left(matrix, right)
    if E is None:
        _, residual = _least_squares(_float64(matrix), _float64(right))
        raise _deficient(shape, rank, M, residual, "rank")
    return Embedding(E, Notion.MATCHING, "rational solve", rank, M, None, 0.0)


def _relative(difference: np.ndarray, reference: np.ndarray) -> float:
    scale = float(np.linalg.norm(reference))
    return float(np.linalg.norm(difference)) / scale if scale else float(np.linalg.norm(difference))


def _least_squares(matrix: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Minimum-norm E and the relative residual, for a matrix of any rank."""
    solution = np.linalg.lstsq(matrix.T, right.T, rcond=max(matrix.shape) * _ROUNDING)[0].T
    return solution, _relative(solution @ matrix - right, right)


class FloatSolver:
    """E R_all = W_all in float64 for one R_all [m, M] and many right-hand sides: QR with scaled columns.

    rank is numerical; condition is the 2-norm condition number of R_all with columns of length one, infinite below rank M.
    Raises MalformedInput for entries that are not finite.
    """

    def __init__(self, matrix: np.ndarray, shape: Shape) -> None:
        import scipy.linalg

        if not np.isfinite(matrix).all():
            raise MalformedInput("R_all is not finite: weights hold NaN or infinity, or products overflow")
        m, M = matrix.shape
        self.shape = shape
        self.scale = _column_scale(matrix)
        self.scaled = matrix * self.scale
        if m < M:
            values = np.linalg.svd(self.scaled, compute_uv=False)
        else:
            self.orthogonal, self.triangle = scipy.linalg.qr(self.scaled, mode="economic")
            values = np.linalg.svd(self.triangle, compute_uv=False)
        self.rank = _count_significant(values, matrix.shape)
        self.condition = float(values[0] / values[-1]) if self.rank == M else float("inf")

    def _minimum_norm(self, right: np.ndarray) -> np.ndarray:
        import scipy.linalg

        solution = self.orthogonal @ scipy.linalg.solve_triangular(self.triangle, right.T, trans="T")
        return np.ascontiguousarray(solution.T)

    def solve(self, right: np.ndarray) -> Embedding:
        """The E of least norm for W_all [d_in, M]; CannotCarry where a deficient R_all does not reach it."""
        m, M = self.scaled.shape
        if not np.isfinite(right).all():
            raise MalformedInput("W_all is not finite: weights hold NaN or infinity, or products overflow")
        goal = right * self.scale
        if self.rank < M:
            E, residual = _least_squares(self.scaled, goal)
            if residual > 8 * max(m, M) * _ROUNDING:
                raise _deficient(self.shape, self.rank, M, residual)
            return Embedding(E, Notion.MATCHING, "least squares", self.rank, M, float("inf"), residual)
        E = self._minimum_norm(goal)
        E = E + self._minimum_norm(goal - E @ self.scaled)  # one refinement step
        residual = _relative(E @ self.scaled - goal, goal)
        return Embedding(E, Notion.MATCHING, "least squares", self.rank, M, self.condition, residual)


def exact_target(target: Target) -> Target:
    """The same target with exact rational weights (floats are dyadic rationals)."""
    return _converted(target, exact)


def distance_bound(z: list[int], column: int) -> Fraction:
    """z_c^2 / |z|^2: the squared distance by which the isolating target of column c misses, for R_all z = 0."""
    return Fraction(z[column] ** 2, sum(v * v for v in z))
