"""Certificates that a polynomial system has no solution: cofactors c_i with sum_i c_i f_i = 1, over the rationals.

Standard library only, and nothing of the rest of the package: `python nullstellensatz.py FILE` checks one file. The
polynomials f_i are not taken from the file: they are built here from the name of the system, by its definition
(docs/search.md, "Impossibility"), and the file's own must be the same. What the system says about hosts is a written
argument; what is checked is that it has no solution in any field that contains the rationals.
"""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

FORMAT, VERSION = "utfproof-nullstellensatz", 1
MOST_PRODUCTS = 50_000_000
"""Products of terms that a check may take."""

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, Fraction]
"""Exponents of all variables -> nonzero coefficient."""
Matrix = list[list[Polynomial]]
System = tuple[list[str], list[Polynomial]]
"""Names of the variables, and the polynomials that would all be zero."""


class Malformed(ValueError):
    """Not a certificate at all."""


class Excessive(Exception):
    """Larger than the limits of this check."""


# --- polynomials -------------------------------------------------------------------------------------------


def constant(value: int | Fraction, width: int) -> Polynomial:
    """A constant polynomial in `width` variables."""
    return {(0,) * width: Fraction(value)} if value else {}


def variable(place: int, width: int) -> Polynomial:
    """One variable."""
    return {tuple(int(k == place) for k in range(width)): Fraction(1)}


def add(*terms: Polynomial) -> Polynomial:
    """Their sum."""
    total: Polynomial = {}
    for term in terms:
        for monomial, value in term.items():
            held = total.get(monomial)
            total[monomial] = value if held is None else held + value
    return {monomial: value for monomial, value in total.items() if value}


def scale(factor: int | Fraction, a: Polynomial) -> Polynomial:
    """A multiple."""
    return {monomial: value * factor for monomial, value in a.items()} if factor else {}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Their product."""
    total: Polynomial = {}
    for left, value in a.items():
        for right, other in b.items():
            monomial = tuple(map(operator.add, left, right))
            held = total.get(monomial)
            total[monomial] = value * other if held is None else held + value * other
    return {monomial: value for monomial, value in total.items() if value}


def matrix_product(a: Matrix, b: Matrix) -> Matrix:
    """Product of matrices of polynomials."""
    return [[add(*(multiply(row[k], b[k][j]) for k in range(len(b)))) for j in range(len(b[0]))] for row in a]


def _subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    return add(a, scale(-1, b))


# --- the systems -------------------------------------------------------------------------------------------


def _square(places: Sequence[int], width: int) -> Matrix:
    """A 2x2 matrix of variables, row by row."""
    entries = [variable(place, width) for place in places]
    return [entries[:2], entries[2:]]


def looped_two_layers() -> System:
    """(H, L) = (2, 2), looped, m = 2: G R_i R_j has the same symmetric part as E_ij, for i, j in {0, 1}.

    Unknowns: R_0, R_1, G, all 2x2, row by row.
    """
    names = [f"{matrix}{i}{j}" for matrix in ("r0_", "r1_", "g") for i in range(2) for j in range(2)]
    width = len(names)
    R = [_square(range(4), width), _square(range(4, 8), width)]
    G = _square(range(8, 12), width)
    equations = []
    for i, j in product(range(2), repeat=2):
        P = matrix_product(G, matrix_product(R[i], R[j]))
        equations.append(_subtract(P[0][0], constant(int(i == j == 0), width)))
        equations.append(add(P[0][1], P[1][0], constant(-int(i != j), width)))
        equations.append(_subtract(P[1][1], constant(int(i == j == 1), width)))
    return names, equations


def looped_two_layers_normal_form() -> System:
    """The same after the reductions of docs/proofs/three-dimensions-do-not-suffice.md, Theorem 3: symmetric K with entries
    k00, k01, k11, numbers c0, c1, c and s; R_i = R_i^2 - det R_i, the four products, and s c det K = 1."""
    names = ["k00", "k01", "k11", "c0", "c1", "c", "s"]
    width = len(names)
    k00, k01, k11, c0, c1, c, s = (variable(place, width) for place in range(width))
    one, half, zero = constant(1, width), constant(Fraction(1, 2), width), constant(0, width)
    K = [[k00, k01], [k01, k11]]
    products = {
        (0, 0): matrix_product(K, [[one, c0], [scale(-1, c0), zero]]),
        (0, 1): matrix_product(K, [[zero, add(half, c)], [_subtract(half, c), zero]]),
        (1, 0): matrix_product(K, [[zero, _subtract(half, c)], [add(half, c), zero]]),
        (1, 1): matrix_product(K, [[zero, c1], [scale(-1, c1), one]]),
    }
    R = []
    for i, trace in enumerate((k00, k11)):
        shift = scale(Fraction(1, 2), _subtract(one, trace))
        square = products[i, i]
        R.append([[add(square[0][0], shift), square[0][1]], [square[1][0], add(square[1][1], shift)]])
    equations = []
    for (i, j), wanted in products.items():
        found = matrix_product(R[i], R[j])
        equations += [_subtract(found[a][b], wanted[a][b]) for a, b in product(range(2), repeat=2)]
    determinant = _subtract(multiply(k00, k11), multiply(k01, k01))
    equations.append(_subtract(multiply(multiply(s, c), determinant), one))
    return names, [e for e in equations if e]


def looped_three_layers() -> System:
    """(H, L) = (2, 3), looped, m = 2: products of three of R_0, R_1 agree where the counts of their letters do, and the
    four that are left combine to E_01 (coefficients x_k) and to E_10 (y_k), k the number of letters 1."""
    names = [f"r{h}_{i}{j}" for h in range(2) for i in range(2) for j in range(2)]
    names += [f"{letter}{k}" for letter in "xy" for k in range(4)]
    width = len(names)
    R = [_square(range(4), width), _square(range(4, 8), width)]
    by_count: dict[int, list[Matrix]] = {k: [] for k in range(4)}
    for i, j, k in product(range(2), repeat=3):
        by_count[i + j + k].append(matrix_product(R[i], matrix_product(R[j], R[k])))
    equations = []
    for matrices in by_count.values():
        for other in matrices[1:]:
            equations += [_subtract(matrices[0][a][b], other[a][b]) for a, b in product(range(2), repeat=2)]
    for first, (row, column) in ((8, (0, 1)), (12, (1, 0))):
        for a, b in product(range(2), repeat=2):
            total = add(*(multiply(variable(first + k, width), by_count[k][0][a][b]) for k in range(4)))
            equations.append(_subtract(total, constant(int((a, b) == (row, column)), width)))
    return names, equations


SYSTEMS: dict[str, Callable[[], System]] = {
    "looped-two-layers": looped_two_layers,
    "looped-two-layers-normal-form": looped_two_layers_normal_form,
    "looped-three-layers": looped_three_layers,
}
"""Systems by name."""


# --- documents ---------------------------------------------------------------------------------------------


def to_terms(a: Polynomial) -> list[list[Any]]:
    """JSON: [coefficient, [[variable, exponent], ...]] term by term, sorted by exponents."""
    terms = []
    for monomial in sorted(a, reverse=True):
        powers = [[place, power] for place, power in enumerate(monomial) if power]
        terms.append([str(a[monomial]), powers])
    return terms


def _integer(value: Any, what: str) -> int:
    if type(value) is not int or value < 0 or value > 10**6:
        raise Malformed(f"{what} is no integer from 0 to 10^6: {str(value)[:40]}")
    return value


def from_terms(terms: Any, width: int) -> Polynomial:
    """The polynomial of a JSON array of terms, strictly: no zero coefficients, no repeated monomials."""
    if not isinstance(terms, list):
        raise Malformed("a polynomial is an array of terms")
    out: Polynomial = {}
    for term in terms:
        if not (isinstance(term, list) and len(term) == 2 and isinstance(term[0], str) and isinstance(term[1], list)):
            raise Malformed("a term is [coefficient, powers], the coefficient a string")
        if len(term[0]) > 4000 or not re.fullmatch(r"-?(0|[1-9][0-9]*)(/[1-9][0-9]*)?", term[0], flags=re.ASCII):
            raise Malformed(f"coefficient {term[0][:40]!r} is no integer or fraction")
        value = Fraction(term[0])
        exponents = [0] * width
        previous = -1
        for power in term[1]:
            if not (isinstance(power, list) and len(power) == 2):
                raise Malformed("a power is [variable, exponent]")
            place, exponent = _integer(power[0], "variable"), _integer(power[1], "exponent")
            if not previous < place < width or exponent == 0:
                raise Malformed("variables increase strictly and exponents are positive")
            exponents[place] = exponent
            previous = place
        key = tuple(exponents)
        if not value or key in out:
            raise Malformed("a coefficient is zero or a monomial is repeated")
        out[key] = value
    return out


def document(name: str, cofactors: Sequence[Polynomial]) -> dict[str, Any]:
    """The certificate of a named system, one cofactor for each equation."""
    names, equations = SYSTEMS[name]()
    return {
        "format": FORMAT,
        "version": VERSION,
        "system": name,
        "variables": names,
        "equations": [to_terms(e) for e in equations],
        "cofactors": [to_terms(c) for c in cofactors],
    }


def check(data: Any) -> tuple[bool, str]:
    """(valid, why) of a certificate as read from JSON. Raises Malformed, and Excessive beyond MOST_PRODUCTS."""
    fields = {"format", "version", "system", "variables", "equations", "cofactors"}
    if not isinstance(data, dict) or set(data) != fields:
        raise Malformed(f"a certificate has exactly the fields {', '.join(sorted(fields))}")
    if data["format"] != FORMAT or type(data["version"]) is not int or data["version"] != VERSION:
        raise Malformed(f"not a certificate of format {FORMAT}, version {VERSION}")
    if not isinstance(data["system"], str) or data["system"] not in SYSTEMS:
        raise Malformed(f"unknown system; known are {', '.join(SYSTEMS)}")
    names, equations = SYSTEMS[data["system"]]()
    if data["variables"] != names:
        return False, "the variables are not those of the system"
    if not isinstance(data["equations"], list) or not isinstance(data["cofactors"], list):
        raise Malformed("equations and cofactors are arrays")
    if [from_terms(e, len(names)) for e in data["equations"]] != equations:
        return False, "the equations are not those of the system"
    if len(data["cofactors"]) != len(equations):
        raise Malformed(f"{len(data['cofactors'])} cofactors for {len(equations)} equations")
    cofactors = [from_terms(c, len(names)) for c in data["cofactors"]]
    work = sum(len(c) * len(e) for c, e in zip(cofactors, equations, strict=True))
    if work > MOST_PRODUCTS:
        raise Excessive(f"{work} products of terms, the limit is {MOST_PRODUCTS}")
    total: Polynomial = {}
    for cofactor, equation in zip(cofactors, equations, strict=True):
        for monomial, value in multiply(cofactor, equation).items():
            total[monomial] = total.get(monomial, Fraction(0)) + value
    total = {monomial: value for monomial, value in total.items() if value}
    if total != constant(1, len(names)):
        return False, f"the combination is not 1: {len(total)} terms"
    return True, f"{data['system']}: {len(equations)} equations in {len(names)} variables have no common zero"


def _no_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise Malformed("a key is repeated")
    return out


def read(text: bytes | str) -> Any:
    """JSON without repeated keys. Raises Malformed."""
    try:
        return json.loads(text, object_pairs_hook=_no_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {str(error)[:100]}") from error


def main(arguments: list[str]) -> int:
    """Exit code: 0 valid, 1 invalid, 2 malformed, 3 beyond the limits."""
    if len(arguments) != 1:
        print("usage: python nullstellensatz.py FILE", file=sys.stderr)
        return 2
    try:
        with open(arguments[0], "rb") as stream:
            valid, why = check(read(stream.read()))
    except OSError as error:
        print(f"malformed: cannot read {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 2
    except Malformed as error:
        print(f"malformed: {error}", file=sys.stderr)
        return 2
    except (Excessive, MemoryError) as error:
        print(f"limit: {error}", file=sys.stderr)
        return 3
    print(f"{'valid' if valid else 'invalid'}: {why}")
    return 0 if valid else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
