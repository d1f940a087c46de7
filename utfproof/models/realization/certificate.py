"""Certificates of kind `realization`, that m is least for one target: a host of that size, and ranks that no smaller host can
have (docs/certificate-format.md section 13)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

import numpy as np

from utfproof.certificates import checker, recheck
from utfproof.certificates.format import SAFE_INTEGER, Certificate, stating
from utfproof.errors import ResourceLimit
from utfproof.ground.notions import Notion
from utfproof.models.realization import linear
from utfproof.models.realization.hankel import Forms, LeastHost, Reader, Row
from utfproof.systems import Universal

KIND = "realization"
TARGETS = "this one"
VERDICT = "least m"
PRIMES = (2**31 - 1, 2**31 - 19, 2**31 - 61, 2**31 - 69, 2**30 - 35, 2**29 - 3)
"""Moduli that are tried for the minors."""
MAX_DIGITS = checker.MAX_DIGITS
"""Of one integer of a certificate."""


def _integer(value: int) -> int | str:
    """An integer as the format writes it; FLINT writes long ones, too."""
    from flint import fmpz

    if abs(value) <= SAFE_INTEGER:
        return value
    if value.bit_length() > 3.3 * MAX_DIGITS:
        raise ResourceLimit(
            f"a number of the evidence has more than {MAX_DIGITS} digits, which a certificate does not hold; "
            "the least m is exact all the same"
        )
    return str(fmpz(value))


@dataclass(frozen=True)
class _Numbers:
    """Exact numbers with their least common denominator."""

    numerators: list[int]
    denominator: int

    def document(self) -> dict[str, Any]:
        return {"denominator": _integer(self.denominator), "numerators": [_integer(x) for x in self.numerators]}


def _numbers(values: Iterable[Any]) -> _Numbers:
    """Of ints and Fractions."""
    flat = list(values)
    denominator = lcm(*(int(x.denominator) for x in flat))
    return _Numbers([int(x.numerator) * (denominator // int(x.denominator)) for x in flat], denominator)


def _of_matrices(matrices: Sequence[Any]) -> _Numbers:
    return _numbers(linear.fraction(x) for matrix in matrices for x in matrix.entries())


@dataclass(frozen=True)
class _Written:
    """A target's forms in numerators: what the evidence and the digest have, and the denominators by layer."""

    tensors: dict[str, _Numbers | list[_Numbers]]
    width: int

    @classmethod
    def of(cls, target: Forms) -> _Written:
        tensors: dict[str, _Numbers | list[_Numbers]] = {
            name: [_of_matrices(layer) for layer in getattr(target, name)] for name in ("W_Q", "W_K", "M")
        }
        return cls({**tensors, "W_E": _of_matrices([target.W_E]), "W_U": _of_matrices([target.W_U])}, target.width)

    def document(self) -> dict[str, Any]:
        fields = {
            name: [layer.document() for layer in held] if isinstance(held, list) else held.document()
            for name, held in self.tensors.items()
        }
        return {**fields, "width": _integer(self.width)}

    def denominator(self, name: str, layer: int | None = None) -> int:
        """Of a tensor, or of its layer (from 0)."""
        held = self.tensors[name]
        return held[layer or 0].denominator if isinstance(held, list) else held.denominator

    def along(self, word: Sequence[int], start: int, residual: bool) -> int:
        """By what a product of numerators of M along a word, from layer `start` on, exceeds the product."""
        scale = 1
        for layer, letter in enumerate(word, start):
            if letter >= residual:
                scale *= self.denominator("M", layer)
        return scale


def target_document(target: Forms) -> dict[str, Any]:
    """The evidence's `target`: numerators over least common denominators, by layer."""
    return _Written.of(target).document()


def target_digest(document: dict[str, Any]) -> str:
    """How the claim names a target: SHA-256 of its canonical JSON."""
    import rfc8785

    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()


def _host_document(host: Universal, E: np.ndarray) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: [_numbers(layer.reshape(-1)).document() for layer in np.asarray(getattr(host, name), dtype=object)]
        for name in ("R_Q", "R_K", "R_V")
    }
    for name, array in (("U", host.U), ("E", E)):
        fields[name] = _numbers(np.asarray(array, dtype=object).reshape(-1)).document()
    return fields


def _start(least: LeastHost) -> int:
    """The last boundary whose rank is all of the dimension up to there."""
    boundaries = least.staircase.boundaries
    if not least.staircase.target.shape.residual:
        return int(np.argmax(least.ranks))
    return max(at for at, b in enumerate(boundaries) if len(b.active) == b.rows.nrows())


class _Lower:
    """Makes the evidence's `lower`: names of rows and columns, and the minors that they have in the numerators."""

    def __init__(self, least: LeastHost, written: _Written) -> None:
        self.stairs, self.written = least.staircase, written
        self.residual = least.staircase.target.shape.residual
        self.start = _start(least)
        self.minors: list[Any] = []

    def document(self) -> dict[str, Any]:
        boundary, columns = self.stairs.boundaries[self.start], self.stairs.columns[self.start]
        table = boundary.active_rows * columns.matrix
        chosen = linear.independent_columns(table)
        readers = [columns.names[i] for i in chosen]
        rows = [_padded(boundary.names[i], self.start) for i in boundary.active]
        self._keep(linear.columns_of(table, chosen), rows, [self._factor(reader, self.start) for reader in readers])
        later = range(self.start + 1, len(self.stairs.boundaries)) if self.residual else ()
        steps = [self._step(at) for at in later if self.stairs.boundaries[at].new]
        return {
            "boundary": self.start,
            "columns": [_column(reader) for reader in readers],
            "prime": _prime(self.minors),
            "rows": [_row(row) for row in rows],
            "steps": steps,
        }

    def _step(self, at: int) -> dict[str, Any]:
        """Combinations of columns that vanish on what was known, and the new rows."""
        here, readers = self.stairs.boundaries[at], self.stairs.columns[at]
        known = self.stairs.boundaries[at - 1].rows * readers.matrix
        kernel = linear.left_kernel(known.transpose()).transpose()
        new = range(here.rows.nrows() - here.new, here.rows.nrows())
        seen = linear.rows_of(here.rows, new) * readers.matrix * kernel
        picked = linear.independent_columns(seen)
        combined = linear.from_flint(linear.columns_of(kernel, picked))
        used = [i for i, line in enumerate(combined) if any(line)]
        factors = [self._factor(readers.names[i], at) for i in used]
        combinations, scales = [], []
        for column in combined[used].T:
            wanted = _numbers(x / factor for x, factor in zip(column, factors, strict=True))
            common = gcd(*wanted.numerators)
            combinations.append([_integer(x // common) for x in wanted.numerators])
            scales.append(Fraction(wanted.denominator, common))
        rows = [_padded(here.names[i], at) for i in new]
        self._keep(linear.columns_of(seen, picked), rows, scales)
        return {
            "boundary": at,
            "combinations": combinations,
            "columns": [_column(readers.names[i]) for i in used],
            "rows": [_row(row) for row in rows],
        }

    def _factor(self, reader: Reader, boundary: int) -> int:
        """By what the column is multiplied when it is made of numerators."""
        kind, layer, word, _ = reader
        if kind == "OV":
            return self.written.denominator("W_U") * self.written.along(word, boundary, self.residual)
        last = self.written.denominator(f"W_{kind}", layer - 1)
        return last * self.written.along(word[:-1], boundary, self.residual)

    def _keep(self, minor: Any, rows: list[Row], columns: Sequence[int | Fraction]) -> None:
        """Keeps the minor with its columns multiplied by these numbers, and its rows made of numerators."""
        entries = linear.from_flint(minor)
        for line, (_, word) in zip(entries, rows, strict=True):
            line *= self.written.denominator("W_E") * self.written.along(word, 0, self.residual)
        for line, factor in zip(entries.T, columns, strict=True):
            line *= factor
        self.minors.append(entries)


def _padded(name: Row, length: int) -> Row:
    return name[0], (*name[1], *(0,) * (length - len(name[1])))


def _row(row: Row) -> list[Any]:
    return [row[0], list(row[1])]


def _column(reader: Reader) -> list[Any]:
    kind, _, word, coordinate = reader
    return [kind, list(word), coordinate]


def _prime(minors: list[np.ndarray]) -> int:
    """The first of PRIMES modulo which none of these nonsingular integer matrices is singular."""
    for p in PRIMES:
        if all(_nonsingular(minor, p) for minor in minors):
            return p
    raise ResourceLimit(f"none of the moduli {', '.join(map(str, PRIMES))} shows the ranks of this target")


def _nonsingular(minor: np.ndarray, p: int) -> bool:
    from flint import nmod_mat

    k = len(minor)
    return k == 0 or nmod_mat(k, k, [int(x) % p for x in minor.reshape(-1)], p).rank() == k


def certificate(least: LeastHost, host: Universal, E: np.ndarray) -> Certificate:
    """The certificate of what `least_host` returned.

    Raises ResourceLimit for numbers, or so many of them, that a certificate does not hold.
    """
    written = _Written.of(least.staircase.target)
    target = written.document()
    claim = {
        "host": {"every": "host"},
        "notion": Notion.MATCHING.value,
        "target": target_digest(target),
        "targets": TARGETS,
        "verdict": VERDICT,
    }
    evidence = {"host": _host_document(host, E), "lower": _Lower(least, written).document(), "target": target}
    made = stating(KIND, host.shape, host.m, claim, evidence)
    size = len(made.to_bytes())
    if size > checker.MAX_JSON:
        raise ResourceLimit(
            f"the certificate would have {size} bytes, the limit is {checker.MAX_JSON}; the least m is exact all the same"
        )
    return made


def require_valid(made: Certificate) -> None:
    """Re-check a certificate with the independent checker before it is handed on; AssertionError where it does not hold.

    Raises ResourceLimit where that takes more than the checker's limits.
    """
    fault = recheck.fault(made, "the certificate was not re-checked: it")
    if fault is not None:
        raise AssertionError(f"the certificate that m = {made.document['shape']['m']} is least: {fault}")
