"""Counterexamples: targets that a host cannot match, and how far every E stays from them.

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

from utfproof.certificates.hosts import StoredWeights
from utfproof.certificates.kernel import find_relation, missed_distance, refuted_column
from utfproof.decision.verdict import HostDecision
from utfproof.errors import ResourceLimit
from utfproof.exact import gfp
from utfproof.matching import isolating_target, w_all
from utfproof.shapes import Column, Shape, column_at
from utfproof.systems import Target
from utfproof.util.arrays import one_line
from utfproof.util.resources import require_memory
from utfproof.weights import StoredHost

CHEAP_KERNEL_ENTRIES = 12_000
"""Largest R_all (entries) of m < M whose kernel vector is computed exactly whatever its rank, in about a second."""


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
        return missed_distance(self.shape, self.column, self.z)

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

    target: Target
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
    target = Target(shape, **arrays)
    z = {int(i): stored_integer(v) for i, v in evidence["z"]}
    image = [sum(row[i] * v for i, v in z.items()) for row in np.asarray(w_all(target), dtype=object)]
    return TiedCounterexample(target, Fraction(sum(x * x for x in image), sum(v * v for v in z.values())))


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
        found = find_relation(source, source.r_all(p), p)
    except ResourceLimit:  # the verdict holds without a named target
        return None
    return None if found is None else Counterexample(host.shape, refuted_column(host.shape, found), found)


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
