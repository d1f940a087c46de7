"""Certificates that m is least for one target: a host of that size, and ranks that no smaller host can have (`verify` checks
them)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.errors import ResourceLimit
from utfproof.realization import linear
from utfproof.realization.hankel import Columns, Forms, LeastHost, Row
from utfproof.realization.verify import FORMAT, KIND, MAX_DIGITS, VERSION, target_digest
from utfproof.shapes import Shape
from utfproof.systems import Universal

PRIMES = (2**53 - 111, 2**31 - 1, 2**27 - 39, 1_000_003)
"""Moduli that are tried for the minors; JSON holds integers below 2^53."""


def _text(value: Any) -> str:
    number = Fraction(value)
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > 3.3 * MAX_DIGITS:
        raise ResourceLimit(
            f"a number of the evidence has more than {MAX_DIGITS} digits, which a certificate does not hold; "
            "the least m is exact all the same"
        )
    return str(number)


def _nested(array: np.ndarray) -> Any:
    return [_nested(x) for x in array] if array.ndim > 1 else [_text(x) for x in array]


def target_document(target: Forms) -> dict[str, Any]:
    """The target's forms as the certificate has them: numbers as strings in lowest terms."""

    def grid(matrices: list[list[Any]]) -> Any:
        return [[_nested(linear.from_flint(x)) for x in row] for row in matrices]

    return {
        "W_E": _nested(linear.from_flint(target.W_E)),
        "W_Q": grid(target.W_Q),
        "W_K": grid(target.W_K),
        "M": grid(target.M),
        "W_U": _nested(linear.from_flint(target.W_U)),
    }


def _shape_document(shape: Shape, m: int) -> dict[str, Any]:
    names = ("heads", "layers", "head_dim", "d_in", "d_out")
    fields: dict[str, Any] = {name: getattr(shape, name) for name in names} | {"m": m}
    return {**fields, "residual": True} if shape.residual else fields


def _row(name: Row, length: int) -> list[Any]:
    return [name[0], [*name[1], *(0,) * (length - len(name[1]))]]


def _columns(columns: Columns, chosen: list[int]) -> list[list[Any]]:
    return [[kind, layer, list(word), c] for kind, layer, word, c in (columns.names[i] for i in chosen)]


def _start(least: LeastHost) -> int:
    """The last boundary whose rank is all of the dimension up to there."""
    boundaries = least.staircase.boundaries
    if not least.staircase.target.shape.residual:
        return int(np.argmax(least.ranks))
    return max(at for at, b in enumerate(boundaries) if len(b.active) == b.rows.nrows())


def _lower(least: LeastHost) -> dict[str, Any]:
    stairs, start = least.staircase, _start(least)
    boundary, columns = stairs.boundaries[start], stairs.columns[start]
    table = boundary.active_rows * columns.matrix
    chosen = linear.independent_columns(table)
    minors = [linear.columns_of(table, chosen)]
    steps = []
    later = range(start + 1, len(stairs.boundaries)) if stairs.target.shape.residual else ()
    for at in later:
        here, readers = stairs.boundaries[at], stairs.columns[at]
        if not here.new:
            continue
        known = stairs.boundaries[at - 1].rows * readers.matrix
        kernel = linear.left_kernel(known.transpose()).transpose()
        rows = range(here.rows.nrows() - here.new, here.rows.nrows())
        seen = linear.rows_of(here.rows, rows) * readers.matrix * kernel
        picked = linear.independent_columns(seen)
        minors.append(linear.columns_of(seen, picked))
        coefficients = linear.from_flint(linear.columns_of(kernel, picked))
        used = [i for i, row in enumerate(coefficients) if any(row)]
        steps.append(
            {
                "boundary": at,
                "rows": [_row(here.names[i], at) for i in rows],
                "columns": _columns(readers, used),
                "coefficients": _nested(coefficients[used]),
            }
        )
    return {
        "p": _modulus(minors),
        "start": start,
        "rows": [_row(boundary.names[i], start) for i in boundary.active],
        "columns": _columns(columns, chosen),
        "steps": steps,
    }


def _modulus(minors: list[Any]) -> int:
    """The first of PRIMES that divides no denominator and none of these nonzero determinants."""
    for p in PRIMES:
        if all(_nonzero(minor, p) for minor in minors):
            return p
    raise ResourceLimit(f"none of the moduli {', '.join(map(str, PRIMES))} shows the ranks of this target")


def _nonzero(minor: Any, p: int) -> bool:
    from flint import nmod_mat

    integers, denominator = minor.numer_denom()
    return int(denominator) % p != 0 and nmod_mat(integers, p).rank() == minor.nrows()


def certificate(least: LeastHost, host: Universal, E: np.ndarray, *, inline: bool = True) -> dict[str, Any]:
    """The certificate's JSON object for what `least_host` returned. inline=False leaves the target out; whoever verifies it
    passes the target's forms.

    Raises ResourceLimit for numbers that a certificate does not hold.
    """
    target = target_document(least.staircase.target)
    evidence: dict[str, Any] = {
        "host": {**{name: _nested(getattr(host, name)) for name in ("R_Q", "R_K", "R_V", "U")}, "E": _nested(E)},
        "lower": _lower(least),
    }
    if inline:
        evidence["target"] = target
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": KIND,
        "shape": _shape_document(host.shape, host.m),
        "claim": {"target": target_digest(target), "notion": "matching", "verdict": "least m"},
        "evidence": evidence,
    }
