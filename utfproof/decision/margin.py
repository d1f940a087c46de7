"""The margin that an exact rank does not show: how far R_all is from losing rank, and what that costs in floating point.

Columns of R_all are scaled to length one (R^ = R_all D, W^ = W_all D); sigma_max, sigma_min and kappa = sigma_max / sigma_min
are those of R^. Two figures per number format of unit roundoff u:

* *embedding*, a bound up to the accuracy of kappa itself: the least-norm solution has |E| <= |W^| / sigma_min, and rounding
  its entries moves E by at most u |E|, so |E' R^ - W^| <= u kappa |W^| in the Frobenius norm (no underflow).
* *pass*, a first-order estimate and no bound: E through L + 1 products of length m whose roundings add up like a random walk,
  (L + 1) sqrt(m) u kappa.

Both are relative to |W^| as a whole: where a target's outputs are much smaller than its queries and keys, the outputs' own
relative error is larger by that factor.

A product of low-rank factors that was rounded to its number format has full rank through its rounding alone. It betrays
itself: all but r singular values lie at the level of one rounding, far below the r-th (`rounding_rank`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from utfproof.ground.arrays import one_line
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import r_all
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.weights import StoredHost

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
"""Half the distance from 1 to the next larger number of the format."""
MARGIN_ENTRIES = 2_000_000
"""Largest R_all (entries) that is decomposed."""
VALUE_WORK = 10**10
"""Largest L H m^3 for which the values' singular values are computed."""
GAPS = (1e3, 10.0)
"""Ratio of neighbouring singular values that counts as a drop, before the last one and before more: the last singular value of
honest random weights is g times smaller than the one before with probability about 1/g, the last two with about 1/g^4."""
_EPS = float(np.finfo(np.float64).eps)
_MANTISSA = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}
"""Stored bits of the significand."""
_LEAST_EXPONENT = {"bfloat16": -126, "float16": -14, "float32": -126, "float64": -1022}
_FORMATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class FormatError:
    """Relative errors in one number format: bound for a rounded E, estimate for a whole pass (see the module)."""

    embedding: float
    forward: float


@dataclass(frozen=True)
class RoundedValues:
    """Stored values that are low-rank matrices up to their rounding.

    format: the number formats rounded to. ranks [L or 1][H]: rank up to rounding of each R_V. bound: what rank R_all could be
    at most if the values had these ranks; below M.
    """

    format: str
    ranks: tuple[tuple[int, ...], ...]
    bound: int


@one_line
@dataclass(frozen=True)
class Margin:
    """Numerical rank of R_all in float64 of its M columns, sigma_max and sigma_min with columns scaled to length one.

    sigma_min is 0 where float64 does not see the full rank. rounded: where the exact rank is full only through the rounding of
    the stored values.
    """

    rank: int
    columns: int
    sigma_max: float
    sigma_min: float
    layers: int
    m: int
    rounded: RoundedValues | None = None

    @property
    def condition(self) -> float:
        """kappa; infinite where sigma_min is zero or unknown."""
        return self.sigma_max / self.sigma_min if self.sigma_min > 0 else float("inf")

    @property
    def errors(self) -> dict[str, FormatError]:
        """By number format."""
        factor = (self.layers + 1) * sqrt(self.m)
        return {name: FormatError(u * self.condition, factor * u * self.condition) for name, u in UNIT_ROUNDOFF.items()}

    def document(self) -> dict[str, Any]:
        """For --json."""
        rounded = self.rounded
        return {
            "numerical_rank": self.rank,
            "condition": self.condition,
            "sigma_min": self.sigma_min,
            "errors": {
                name: {"embedding_bound": error.embedding, "pass_estimate": error.forward}
                for name, error in self.errors.items()
            },
            "rounding": None
            if rounded is None
            else {
                "format": rounded.format,
                "ranks": [list(row) for row in rounded.ranks],
                "rank_bound": rounded.bound,
            },
        }


def margin_of(stored: StoredHost, host: Universal, *, universal: bool, max_memory: int | None = None) -> Margin | str:
    """The margin of a host, or one line saying why there is none (too large, m < M, products that overflow).

    universal: rank R_all = M is certified; only then `rounded_values` looks for the cause of a small sigma_min.
    """
    m, M = host.m, stored.M
    if m < M:
        return f"m = {m} is below M = {M}: sigma_min is zero for want of rows"
    matrix: Any = None
    if isinstance(host.U, SelectionMatrix):
        matrix = r_all(host)
        if matrix.unit_rows() is not None:
            return Margin(M, M, 1.0, 1.0, host.shape.layers, m)
    if m * M > MARGIN_ENTRIES:
        return f"R_all has {m * M} entries; singular values are computed up to {MARGIN_ENTRIES}"
    # R_all and the stack behind it, or a copy and what the decomposition works on
    require_memory(8 * m * M * (3 + host.shape.heads), f"R_all at {host.shape}", max_memory)
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = r_all(host) if matrix is None else matrix.to_dense(np.float64)
        values = scaled_singular_values(np.asarray(matrix, dtype=np.float64))
    if values is None:
        return "products of the weights overflow float64, so its arithmetic cannot run this host"
    rank = int((values > max(m, M) * _EPS * values[0]).sum())
    found = Margin(rank, M, float(values[0]), float(values[-1]), host.shape.layers, m)
    if not universal:
        return found
    least = found.sigma_min if rank == M else 0.0
    return replace(found, sigma_min=least, rounded=rounded_values(stored))


def scaled_singular_values(matrix: np.ndarray) -> np.ndarray | None:
    """Singular values, descending, with nonzero columns scaled to length one; None if entries are not finite."""
    if not np.isfinite(matrix).all():
        return None
    largest = np.maximum(matrix.max(axis=0), -matrix.min(axis=0))
    matrix = matrix / np.where(largest > 0, largest, 1)  # so that no square overflows or vanishes
    norms = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
    matrix /= np.where(norms > 0, norms, 1)
    values: np.ndarray = np.linalg.svd(matrix, compute_uv=False)
    return values


# --- values of full rank through rounding only ---------------------------------------------------------------


def rounded_values(stored: StoredHost) -> RoundedValues | None:
    """Whether the rank of R_all is full only through the rounding of the stored R_V; None for factors (nothing was rounded),
    for integers, where no R_V has a low rank up to rounding, or where those ranks still allow rank M."""
    if stored.factor_width is not None or stored.file.types["R_V"] not in _FORMATS:
        return None
    shape, layers = stored.shape, 1 if stored.tied else stored.shape.layers
    if layers * shape.heads * stored.m**3 > VALUE_WORK:
        return None
    low: set[str] = set()
    ranks: tuple[tuple[int, ...], ...] = ()
    for row in stored.file.tensors["R_V"].reshape(layers, shape.heads, stored.m, stored.m):
        found = []
        for weights in row:
            matrix = weights.astype(np.float64)  # one at a time
            name = rounding_format(matrix)
            found.append(stored.m if name is None else rounding_rank(matrix, name))
            if name is not None and found[-1] < stored.m:
                low.add(name)
        ranks += (tuple(found),)
    bound = rank_bound(shape, stored.m, ranks)
    return RoundedValues(" and ".join(sorted(low)), ranks, bound) if bound < stored.M else None


def rank_bound(shape: Shape, m: int, ranks: tuple[tuple[int, ...], ...]) -> int:
    """The largest rank that R_all [m, M] can have with values of these ranks [L or 1][H]: from the last layer backwards,
    2dH + sum over h of min(rank R_V^{l,h}, the bound behind it); with a residual stream that bound itself comes on top."""
    behind = min(m, shape.d_out)
    for layer in reversed(range(shape.layers)):
        row = ranks[layer if len(ranks) > 1 else 0]
        stream = behind if shape.residual else 0
        behind = min(m, 2 * shape.head_dim * shape.heads + stream + sum(min(r, behind) for r in row))
    return behind


def _spacing(array: np.ndarray, name: str) -> np.ndarray:
    """Distance from each entry (float64) to its neighbour in the format."""
    _, exponent = np.frexp(array)
    spacing: np.ndarray = np.ldexp(1.0, np.maximum(exponent - 1, _LEAST_EXPONENT[name]) - _MANTISSA[name])
    return spacing


def rounding_format(array: np.ndarray) -> str | None:
    """The narrowest number format that holds all entries, if they look rounded to it: at least an eighth of the nonzero ones
    have its last bit set, as about half of rounded numbers have. None for entries that look exact (0, 1, small integers)."""
    entries = array[array != 0]
    for name in _MANTISSA:
        steps = entries / _spacing(entries, name)
        if (steps == np.rint(steps)).all() and (name != "float16" or np.abs(entries).max(initial=0) <= 65504):
            odd = int((np.fmod(steps, 2) != 0).sum())
            return name if 8 * odd >= len(entries) > 0 else None
    return None


def rounding_rank(matrix: np.ndarray, name: str) -> int:
    """The least r such that this square matrix looks like one of rank r rounded to the format; its order if there is none.

    Two things must hold. The singular values after the r-th have no more energy than rounding gives: rounding an entry adds
    spacing^2 / 12 on average, 16 times that is allowed, and once more for each of the r terms that the product's sums have.
    And they are much smaller than the r-th (GAPS): the last singular values of honest random weights in a short format also
    lie below its rounding, but without a drop.
    """
    if not matrix.any():
        return 0
    largest = np.abs(matrix).max()
    values = np.linalg.svd(matrix / largest, compute_uv=False)
    energy = float(((_spacing(matrix, name) / largest) ** 2).sum()) / 12
    # what the decomposition itself adds, in float64
    own = len(matrix) * (4 * _EPS * float(values[0])) ** 2
    tails = np.append(np.cumsum((values**2)[::-1])[::-1], 0.0)
    for r in range(1, len(values)):
        gap = GAPS[min(len(values) - r, len(GAPS)) - 1]
        if tails[r] <= (16 + r) * energy + own and values[r - 1] >= gap * values[r]:
            return r
    return len(values)
