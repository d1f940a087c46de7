"""Kernel vectors of large integer matrices: which columns depend, modulo a prime; with which integers, by p-adic lifting.

A kernel vector modulo p only names columns (a circuit: as few as it finds). The integers come from solving one square system
exactly: digit by digit in base p (Dixon's lifting) as long as short integers may do, so that short relations cost little
whatever the size, else by FLINT. What is returned satisfies matrix @ z = 0 over all rows, tested with integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.errors import ResourceLimit
from utfproof.exact import gfp
from utfproof.util.arrays import to_numpy
from utfproof.util.progress import LARGE, stage, staged

MAX_BITS = 165_000
"""Largest entries of a kernel vector that are looked for: z_c^2 / |z|^2 then has at most 100,000 digits."""
MAX_TOTAL_BITS = 180_000_000
"""Largest kernel vector, all entries together: about 54 MB of decimal digits."""
SHORT_BITS = 2_000
"""Bits of the p^k that lifting goes to: entries of half as many are found quickly, whatever the bounds."""
MAX_WORK = 10**11
"""Multiplications of machine words that lifting may cost; 10^10 of them take about a minute."""


def primes_below(p: int) -> Iterator[int]:
    """The odd primes below p, largest first."""
    from flint import fmpz

    return (q for q in range(p - 1, 2, -1) if q % 2 and fmpz(q).is_prime())


def circuits(matrix: Any, p: int, weights: np.ndarray) -> Iterator[list[int]]:
    """Sets of columns (ascending) that are dependent modulo p and independent when one is left out, cheapest first.

    matrix [m, n] of residues; weights [n]: what a column costs, light ones are preferred. There is one set for each column
    that depends on columns before it, taken by weight: none at all exactly where the rank modulo p is n.
    """
    order = np.argsort(weights, kind="stable")
    basis = to_numpy(gfp.nullspace(matrix[:, order.tolist()], p)) != 0
    costs = weights[order] @ basis
    for k in np.argsort(costs, kind="stable"):
        yield sorted(int(c) for c in order[basis[:, k]])


def relation(columns: Any, what: str, p: int) -> list[int] | None:
    """A primitive integer vector z != 0 with columns @ z = 0, exactly, for an fmpz_mat [rows, k]; None if none was found.

    None says that the columns are independent modulo p, or that p misled. Raises ResourceLimit, saying the figures, where
    the entries, or the work to find them, may exceed this module's limits and no short vector exists.
    """
    from flint import fmpz, fmpz_mat

    rows, k = columns.nrows(), columns.ncols()
    if not rows or not k:
        return [1] + [0] * (k - 1) if k else None
    reduced = residues(columns, p)
    pivots = gfp.rank_profile(reduced, p).columns
    if len(pivots) == k:
        return None
    dependent = next(c for c in range(k) if c >= len(pivots) or pivots[c] != c)
    z = [fmpz(0)] * k
    z[dependent] = fmpz(1)
    if dependent:
        chosen = gfp.rank_profile(reduced[:, :dependent], p).rows
        table = columns.entries()
        square = fmpz_mat(dependent, dependent, [table[i * k + j] for i in chosen for j in range(dependent)])
        right = fmpz_mat(dependent, 1, [-table[i * k + dependent] for i in chosen])
        inverse = gfp.inverse(reduced[chosen, :dependent], p)
        z[:dependent], z[dependent] = _solve(square, right, inverse, p, what)
    if any(columns * fmpz_mat(k, 1, z)):
        return None
    return primitive([int(v) for v in z])


def primitive(z: list[int]) -> list[int]:
    """z divided by the greatest common divisor of its entries."""
    from flint import fmpz

    divisor = fmpz(0)
    for v in z:
        divisor = divisor.gcd(v)
    return [int(fmpz(v) // divisor) for v in z]


def residues(matrix: Any, p: int) -> np.ndarray:
    """An fmpz_mat modulo p, centred float64 [rows, columns]."""
    from flint import nmod_mat

    entries = np.array([int(x) for x in nmod_mat(matrix, p).entries()], dtype=np.float64)
    return np.asarray(gfp.centred(entries.reshape(matrix.nrows(), matrix.ncols()), p))


def hadamard_bits(square: Any, right: Any) -> int:
    """Bits that bound every numerator and denominator of the solution: Hadamard's inequality, by rows or by columns."""
    size = square.nrows()
    table, last = square.entries(), right.entries()
    rows = [[*table[i * size : (i + 1) * size], last[i]] for i in range(size)]
    columns = [*(table[j::size] for j in range(size)), last]
    lengths = [[(int(sum(v * v for v in line)).bit_length() + 1) / 2 for line in lines] for lines in (rows, columns)]
    return int(min(sum(lengths[0]), sum(lengths[1]) - min(lengths[1]))) + 1


def _solve(square: Any, right: Any, inverse: Any, p: int, what: str) -> tuple[list[Any], Any]:
    """(numerators, denominator) of the x with square x = right.

    inverse: of `square`, modulo p. Lifting: with R_0 = right, x_i = inverse R_i mod p and R_{i+1} = (R_i - square x_i) / p, the
    sum of x_i p^i over i < k is x modulo p^k.
    """
    from flint import fmpz, fmpz_mat

    size = square.nrows()
    digits: list[list[int]] = []
    rest, check, last = right, 2, SHORT_BITS // (p.bit_length() - 1)
    large = 10.0 * size * size * last > LARGE
    for step in staged("p-adic digits of a relation", range(1, last + 1), last, unit="at most", large=large):
        residue = gfp.centred(np.array([[int(v % p)] for v in rest.entries()], dtype=np.float64), p)
        digits.append([int(v) for v in gfp.multiply(inverse, residue, p)[:, 0]])
        change = (square * fmpz_mat(size, 1, digits[-1])).entries()
        rest = fmpz_mat(size, 1, [(v - c) // p for v, c in zip(rest.entries(), change, strict=True)])
        if step in (check, last):
            check *= 3
            values = [_joined(list(entry), p) for entry in zip(*digits, strict=True)]
            solution = _fractions(values, fmpz(p) ** step)
            if solution is not None and square * fmpz_mat(size, 1, solution[0]) == right * solution[1]:
                return solution
    bound = hadamard_bits(square, right)
    words = 1 + max(v.height_bits() for v in square.entries()) // 64
    work = bound // 32 * size * size * (1 + words)
    if bound > MAX_BITS or bound * (size + 1) > MAX_TOTAL_BITS or work > MAX_WORK:
        raise ResourceLimit(
            f"{what} has a kernel vector through {size + 1} columns, with entries of about {_digits(bound)} digits (Hadamard's "
            f"bound; at most {_digits(MAX_BITS)} an entry and {_digits(MAX_TOTAL_BITS)} in all can be stored), and finding it "
            f"takes about {work:.1e} multiplications (the limit is {MAX_WORK:.0e})"
        )
    with stage("relation over the rationals", large=work > LARGE):
        exact = square.solve(right).entries()
    common = fmpz(1)
    for value in exact:
        common = common.lcm(value.q)
    return [value.p * (common // value.q) for value in exact], common


def _digits(bits: int) -> int:
    return bits * 30103 // 100_000 + 1


def _joined(digits: list[Any], p: int) -> Any:
    """The sum of digits[i] p^i, by halves."""
    from flint import fmpz

    values, base = [fmpz(d) for d in digits], fmpz(p)
    while len(values) > 1:
        if len(values) % 2:
            values.append(fmpz(0))
        values = [low + base * high for low, high in zip(values[::2], values[1::2], strict=True)]
        base *= base
    return values[0]


def _fractions(values: list[Any], modulus: Any) -> tuple[list[Any], Any] | None:
    """Numerators n_i and one denominator d with n_i = values[i] d modulo the modulus, all below sqrt(modulus / 2) in size."""
    limit = (modulus // 2).isqrt()
    common = modulus // modulus
    for value in values:
        numerator = _centred(value * common, modulus)
        if abs(numerator) > limit:
            # half of Euclid's algorithm: the first remainder within the limit, with its cofactor
            before, now, cofactor_before, cofactor = modulus, numerator % modulus, 0 * common, common // common
            while now > limit:
                quotient, remainder = divmod(before, now)
                before, now = now, remainder
                cofactor_before, cofactor = cofactor, cofactor_before - quotient * cofactor
            common *= abs(cofactor)
            if common > limit:
                return None
    numerators = [_centred(value * common, modulus) for value in values]
    return (numerators, common) if all(abs(n) <= limit for n in numerators) else None


def _centred(value: Any, modulus: Any) -> Any:
    value %= modulus
    return value - modulus if 2 * value > modulus else value
