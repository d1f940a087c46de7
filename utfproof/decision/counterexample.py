"""Counterexamples: targets that a host cannot match. The isolating target of a column, how far every E stays from it, and a
version of it whose difference shows through softmax.

Where z != 0 has R_all z = 0 and z_c != 0, every E misses the isolating target of column c by |z_c| / |z| or more in the
Frobenius norm of E R_all - W_all (decision theorem); with a residual stream no target isolates a column, and the one routed
along a column's word that z refutes takes its place. Where m rows of R_all are independent, m < M, any column outside a
set of m independent columns will do: E R_all vanishes on those only for E = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, SoftmaxAttention
from utfproof.certificates.residual import missed_distance, refuted_column
from utfproof.certificates.sources import StoredWeights
from utfproof.certificates.structure import find_relation
from utfproof.decision.verdict import HostDecision
from utfproof.emulation.compare import random_input, relative_error
from utfproof.emulation.engines import run_memory
from utfproof.errors import ResourceLimit, Undecided
from utfproof.exact import gfp
from utfproof.ground.arrays import one_line
from utfproof.ground.generator import integer_matrix
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import distance_bound, isolating_target, r_all, w_all
from utfproof.shapes import Column, Shape, column_at, column_groups, matching_dimension
from utfproof.systems import Target, TiedTarget, Universal
from utfproof.weights import StoredHost

CHEAP_KERNEL_ENTRIES = 12_000
"""Largest R_all (entries) of m < M whose kernel vector is computed exactly whatever its rank, in about a second."""
VISIBLE_SEEDS = 64


@one_line
@dataclass(frozen=True)
class Counterexample:
    """The isolating (with a residual stream: routed) target of a column of R_all that a host cannot match.

    column: its number in canonical order. z: a kernel vector of R_all that shows it, by position; None where independent
    rows do. certified: the certificate itself holds z.
    """

    shape: Shape
    column: int
    z: dict[int, int] | None = None
    certified: bool = False

    @property
    def place(self) -> Column:
        """Kind, head word and coordinate of the column."""
        return column_at(self.shape, self.column)

    @property
    def distance_squared(self) -> Fraction | None:
        """z_c^2 / |z|^2: no E comes nearer to this target; None where no z is known. (|W_all z|^2 / |z|^2 with a residual
        stream.)"""
        if self.z is None:
            return None
        if self.shape.residual:
            return missed_distance(self.shape, self.column, self.z)
        return distance_bound([self.z[self.column], *(v for i, v in self.z.items() if i != self.column)], 0)

    @property
    def target(self) -> Target:
        """The 0/1 target itself."""
        return isolating_target(self.shape, self.column)

    def document(self) -> dict[str, Any]:
        """For --json."""
        distance = self.distance_squared
        kind, word, coordinate = self.place
        return {
            "column": self.column,
            "kind": kind,
            "word": list(word),
            "coordinate": coordinate,
            "in_words": column_in_words(self.shape, self.column),
            "distance_squared": None
            if distance is None
            else [written(distance.numerator), written(distance.denominator)],
            "distance": None if distance is None else in_decimals(distance),
            "in_certificate": self.certified,
        }


@one_line
@dataclass(frozen=True)
class TiedCounterexample:
    """A weight-tied target that a host cannot match, with its bound |W_all z|^2 / |z|^2 for a kernel vector z of R_all; both
    are in the certificate."""

    target: TiedTarget
    distance_squared: Fraction


def tied_counterexample(host: StoredHost, decision: HostDecision) -> TiedCounterexample | None:
    """The target that a certificate of method tied-target names; None for others."""
    if decision.certificate is None:
        return None
    evidence = decision.certificate.document["evidence"]
    if evidence.get("method") != "tied-target":
        return None
    shape = host.shape
    sizes = dict.fromkeys(("W_Q", "W_K", "W_V"), (shape.heads, shape.d_in, shape.head_dim))
    sizes["W_O"] = (shape.heads, shape.head_dim, shape.d_in)
    arrays = {name: np.zeros(size, dtype=object) for name, size in sizes.items()}
    for tensor, _, head, i, j, value in evidence["target"]:
        arrays[tensor][head, i, j] = stored_integer(value)
    target = TiedTarget(shape, **arrays)
    z = {int(i): stored_integer(v) for i, v in evidence["z"]}
    missed = sum(x * x for x in _image(target, z))
    return TiedCounterexample(target, Fraction(missed, sum(v * v for v in z.values())))


def _image(target: Target, z: dict[int, int]) -> list[int]:
    """W_all z, exactly. Where it is not zero, no E matches this target on a host with R_all z = 0."""
    return [sum(row[i] * v for i, v in z.items()) for row in np.asarray(w_all(target), dtype=object)]


def column_in_words(shape: Shape, column: int) -> str:
    """A column of R_all: what it holds, its head word and coordinate, and what that is for a target."""
    kind, word, coordinate = column_at(shape, column)
    letters = "(" + ", ".join(map(str, word)) + ")"
    stream = ", 0 for the stream and h + 1 for head h" if shape.residual else ""
    if kind == "OV":
        return f"OV column {column}: head word {letters}{stream}, coordinate {coordinate}: an output after that route"
    what = "a query" if kind == "Q" else "a key"
    route = "(" + ", ".join(map(str, word[:-1])) + ")"
    after = f"after the route {route}" if len(word) > 1 else "on the input itself"
    return (
        f"{kind} column {column}: head word {letters}{stream}, coordinate {coordinate}: {what} of layer {len(word)}, "
        f"head {word[-1] - shape.residual}, {after}"
    )


def in_decimals(distance_squared: Fraction, digits: int = 12) -> float:
    """sqrt of a nonnegative fraction rounded down to this many decimals, so that it stays a lower bound."""
    numerator, denominator = distance_squared.numerator, distance_squared.denominator
    return isqrt(numerator * 10 ** (2 * digits) // denominator) / 10**digits


def counterexample(host: StoredHost, decision: HostDecision, *, max_memory: int | None = None) -> Counterexample | None:
    """A target that the refuted host cannot match: the certificate's, else from an exact kernel where that is cheap, else
    from m independent rows; None where none of them names one (some isolating target is missed all the same)."""
    if decision.certificate is None:
        return None
    evidence = decision.certificate.document["evidence"]
    if "z" in evidence and "column" in evidence:
        z = {stored_integer(i): stored_integer(v) for i, v in evidence["z"]}
        return Counterexample(host.shape, stored_integer(evidence["column"]), z, certified=True)
    if host.m >= host.M:
        return None
    source = StoredWeights(host.file, host.shape, host.m, host.tied)
    p = gfp.DEFAULT_PRIMES[0]
    require_memory(8 * (6 * host.m * host.M + 4 * host.m * host.m), f"a target that {source} misses", max_memory)
    if host.m * host.M > CHEAP_KERNEL_ENTRIES and not host.shape.residual:
        profile = gfp.rank_profile(source.r_all(p), p)
        if len(profile.rows) == host.m:
            # independent modulo p: independent over the rationals, and E R_all = 0 there says E = 0
            return Counterexample(host.shape, min(set(range(host.M)) - set(profile.columns)))
    try:
        relation = find_relation(source, source.r_all(p), p, max_memory=max_memory)
    except ResourceLimit:  # the verdict stands without a name for the target
        relation = None
    if relation is None:
        return None
    if host.shape.residual:
        return Counterexample(host.shape, refuted_column(host.shape, relation.z), relation.z)
    best = max(relation.z, key=lambda c: (abs(relation.z[c]), -c))
    return Counterexample(host.shape, best, relation.z)


def stored_integer(number: int | str) -> int:
    """An integer of a certificate; Python's own conversion refuses long ones."""
    if isinstance(number, int) or len(number) < 4000:
        return int(number)
    from flint import fmpz

    return int(fmpz(number))


def written(number: int) -> str:
    """The decimal digits of an integer, however many."""
    if number.bit_length() < 12_000:
        return str(number)
    from flint import fmpz

    return str(fmpz(number))


# --- a difference that shows through softmax -----------------------------------------------------------------------


def _small_integers(seed: int, tensor: str, rows: int, columns: int, layer: int, head: int) -> np.ndarray:
    """Entries -2, -1, 1 or 2 from the seeded generator."""
    drawn = integer_matrix(seed, tensor, rows, columns, law="uniform", layer=layer, head=head)
    small: np.ndarray = np.array([-2, -1, 1, 2])[(drawn >> 8) % 4]
    return small


def visible_target(shape: Shape, column: int, seed: int = 0) -> Target:
    """The isolating target of a column plus small integers from a seed in W_Q and W_K of every head; integer arrays.

    For a Q or K column also in W_V and W_O of the head that reads and of all later layers: the isolating target's own
    outputs are zero there, and no attention could be seen in them.
    """
    target = isolating_target(shape, column)
    kind, word, _ = column_at(shape, column)
    D, d = target.width, shape.head_dim

    def grid(tensor: str, rows: int, columns: int) -> np.ndarray:
        return np.stack(
            [
                np.stack([_small_integers(seed, tensor, rows, columns, layer, h) for h in range(shape.heads)])
                for layer in range(shape.layers)
            ]
        )

    W_V, W_O = target.W_V.copy(), target.W_O.copy()
    if kind != "OV":
        later = np.zeros((shape.layers, shape.heads), dtype=bool)
        later[len(word) :] = True
        later[len(word) - 1, word[-1] - shape.residual] = True
        W_V[later], W_O[later] = grid("W_V", D, d)[later], grid("W_O", d, D)[later]
    W_Q, W_K = target.W_Q + grid("W_Q", D, d), target.W_K + grid("W_K", D, d)
    return Target(shape, W_Q, W_K, W_V, W_O, target.W_E, target.W_U)


def visible_counterexample(found: Counterexample, seed: int = 0) -> tuple[Target, int]:
    """The first visible target, counted from a seed, with outputs that are not all zero and that z refutes exactly (where
    z is known), and its seed. Undecided if none of VISIBLE_SEEDS does."""
    outputs = column_groups(found.shape)[-1].start
    for candidate in range(seed, seed + VISIBLE_SEEDS):
        target = visible_target(found.shape, found.column, candidate)
        shows = np.asarray(w_all(target))[:, outputs:].any()
        if shows and (found.z is None or any(_image(target, found.z))):
            return target, candidate
    raise Undecided(f"none of the seeds {seed} ... {seed + VISIBLE_SEEDS - 1} gives a target whose difference shows")


class _Recording:
    """A kernel that keeps the logits that it sees."""

    def __init__(self, kernel: AttentionKernel) -> None:
        self.kernel = kernel
        self.logits: list[np.ndarray] = []

    @property
    def logits_only(self) -> bool:
        return self.kernel.logits_only

    def __call__(self, queries: Any, keys: Any, positions: Any, *, layer: int, head: int) -> Any:
        self.logits.append(queries @ keys.swapaxes(-1, -2))
        return self.kernel(queries, keys, positions, layer=layer, head=head)


@one_line
@dataclass(frozen=True)
class MeasuredDifference:
    """Host, with the E of least squares, and target run side by side in float64: max |difference| / max |target's|, of
    outputs and of logits, over all heads; misfit: ||E R_all - W_all|| / ||W_all||."""

    context: int
    output_error: float
    logit_error: float
    misfit: float


def measure_difference(
    host: Universal, target: Target, *, context: int = 8, seed: int = 0, max_memory: int | None = None
) -> MeasuredDifference:
    """Run both on `context` tokens of the seeded generator through softmax. Another E may do better: this is a measurement
    of one, no proof. ResourceLimit before allocating."""
    M, m = matching_dimension(host.shape), host.m
    require_memory(8 * (6 * m * M + m * host.shape.heads * M), f"least squares at {host.shape}, m = {m},", max_memory)
    require_memory(run_memory(host, context), f"a context of {context} at m = {m}", max_memory)
    matrix = r_all(host)
    dense = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else np.asarray(matrix, np.float64)
    right = np.asarray(w_all(target), dtype=np.float64)
    E = np.linalg.lstsq(dense.T, right.T, rcond=None)[0].T
    x = random_input(host.shape, context, seed)
    kernels = _Recording(SoftmaxAttention()), _Recording(SoftmaxAttention())
    ours, theirs = host.forward(x, E, kernels[0]), _as_float(target).forward(x, kernels[1])
    logits = [np.stack(kernel.logits) for kernel in kernels]
    misfit = float(np.linalg.norm(E @ dense - right) / np.linalg.norm(right))
    return MeasuredDifference(context, relative_error(ours, theirs), relative_error(*logits), misfit)


def _as_float(target: Target) -> Target:
    arrays = (target.W_Q, target.W_K, target.W_V, target.W_O, target.W_E, target.W_U)
    return Target(target.shape, *(None if a is None else np.asarray(a, dtype=np.float64) for a in arrays))
