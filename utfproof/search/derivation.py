"""A written proof as a computation: elements of the ideal of a polynomial system, kept with their cofactors.

Sums and multiples of such elements are again such elements, so a proof that ends in 1 leaves the cofactors of a certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from utfproof.search import nullstellensatz as ns


@dataclass(frozen=True)
class Member:
    """An element of the ideal, kept as its cofactors: sum_i cofactors[i] f_i."""

    cofactors: dict[int, ns.Polynomial]

    def __add__(self, other: Member) -> Member:
        return _sum((self, other))

    def times(self, factor: ns.Polynomial) -> Member:
        """A multiple."""
        return Member({i: product for i, c in self.cofactors.items() if (product := ns.multiply(factor, c))})


MemberMatrix = list[list[Member]]
NORMAL = ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1))
"""Words of three letters: the first of those with k letters 1."""


def _sum(members: Iterable[Member]) -> Member:
    terms: dict[int, list[ns.Polynomial]] = {}
    for member in members:
        for i, cofactor in member.cofactors.items():
            terms.setdefault(i, []).append(cofactor)
    return Member({i: ns.add(*found) for i, found in terms.items()})


def _filled(entry: Callable[[int, int], Member]) -> MemberMatrix:
    return [[entry(i, j) for j in range(2)] for i in range(2)]


def _left_times(A: ns.Matrix, B: MemberMatrix) -> MemberMatrix:
    return _filled(lambda i, j: _sum(B[k][j].times(A[i][k]) for k in range(2)))


def _right_times(B: MemberMatrix, A: ns.Matrix) -> MemberMatrix:
    return _filled(lambda i, j: _sum(B[i][k].times(A[k][j]) for k in range(2)))


class _ThreeLayers:
    """looped-three-layers: hosts R_0, R_1 of dimension 2, X = sum x_k N_k and Y = sum y_k N_k, N_k the product of word k.

    Equations, in order: words of one letter 1 (001 = 010, 001 = 100), of two (011 = 101, 011 = 110), four entries each; then
    X = E_01 and Y = E_10.
    """

    X, Y = 8, 12
    """First unknowns of the combinations."""
    IS_X, IS_Y = 16, 20
    """Their equations."""

    def __init__(self) -> None:
        names, self.equations = ns.SYSTEMS["looped-three-layers"]()
        self.width = len(names)
        self.R = [[[self.unknown(4 * h + 2 * i + j) for j in range(2)] for i in range(2)] for h in range(2)]
        self.minus = ns.constant(-1, self.width)

    def unknown(self, number: int) -> ns.Polynomial:
        return ns.variable(number, self.width)

    def equation(self, first: int) -> MemberMatrix:
        """The four equations from that one on, as a matrix."""
        return _filled(lambda i, j: Member({first + 2 * i + j: ns.constant(1, self.width)}))

    def unit(self, row: int, column: int) -> ns.Matrix:
        one = ns.constant(1, self.width)
        return [[one if (i, j) == (row, column) else {} for j in range(2)] for i in range(2)]

    def combination(self, first: int) -> ns.Matrix:
        """X or Y, by its first unknown."""
        total: ns.Matrix = [[{}, {}], [{}, {}]]
        for k, (a, b, c) in enumerate(NORMAL):
            product = ns.matrix_product(self.R[a], ns.matrix_product(self.R[b], self.R[c]))
            scaled = [[ns.multiply(self.unknown(first + k), entry) for entry in row] for row in product]
            total = [[ns.add(total[i][j], scaled[i][j]) for j in range(2)] for i in range(2)]
        return total

    def commutator(self) -> MemberMatrix:
        """C = R_0 R_1 - R_1 R_0 as an element of the ideal: R_i C = 0, so E_01 C and E_10 C, combinations of the R_w C, vanish;
        E_01 C has row 1 of C in row 0, E_10 C has row 0 of C in row 1."""
        R = self.R
        there, back = ns.matrix_product(R[0], R[1]), ns.matrix_product(R[1], R[0])
        C = [[ns.add(there[i][j], ns.scale(-1, back[i][j])) for j in range(2)] for i in range(2)]
        late, early = self.equation(12), self.equation(8)
        # R_0 C = R_0 R_0 R_1 - R_0 R_1 R_0; R_1 C = R_1 R_0 R_1 - R_1 R_1 R_0 = (011 - 110) - (011 - 101)
        RC = [self.equation(0), _filled(lambda i, j: late[i][j] + early[i][j].times(self.minus))]

        def through(first: int, equation: int, row: int, j: int) -> Member:
            """Entry j of row `row` of X C - (X - E) C = E C."""
            terms = []
            for k, (a, b, last) in enumerate(NORMAL):
                left = ns.matrix_product(R[a], R[b])[row]
                terms += [RC[last][i][j].times(ns.multiply(self.unknown(first + k), left[i])) for i in range(2)]
            held = self.equation(equation)[row]
            return _sum([*terms, *(held[i].times(ns.multiply(self.minus, C[i][j])) for i in range(2))])

        return _filled(lambda i, j: through(self.X, self.IS_X, 0, j) if i else through(self.Y, self.IS_Y, 1, j))

    def against(self, first: int, inner: Callable[[int], MemberMatrix | None]) -> MemberMatrix:
        """[X, A] (or [Y, A]) by the product rule; inner(letter): [R_letter, A], None where that is 0."""
        parts: list[MemberMatrix] = []
        for k, word in enumerate(NORMAL):
            for place, letter in enumerate(word):
                part = inner(letter)
                if part is None:
                    continue
                for g in reversed(word[:place]):
                    part = _left_times(self.R[g], part)
                for g in word[place + 1 :]:
                    part = _right_times(part, self.R[g])
                parts.append([[entry.times(self.unknown(first + k)) for entry in row] for row in part])
        return _filled(lambda i, j: _sum(part[i][j] for part in parts))


def derive_three_layers() -> list[ns.Polynomial]:
    """Cofactors for looped-three-layers, along the written proof: C = [R_0, R_1] vanishes, so all R_w commute, but E_01 and
    E_10 do not."""
    system = _ThreeLayers()
    C = system.commutator()
    negative = [[entry.times(system.minus) for entry in row] for row in C]

    def with_letter(h: int) -> MemberMatrix:
        """[X, R_h]: [R_0, R_1] = C."""
        return system.against(system.X, lambda letter: None if letter == h else C if letter < h else negative)

    with_letters = [with_letter(h) for h in range(2)]
    both = system.against(system.Y, lambda letter: with_letters[letter])
    # [X, Y] - [E_01, E_10] = (X - E_01) Y - Y (X - E_01) + E_01 (Y - E_10) - (Y - E_10) E_01
    dX, dY = system.equation(system.IS_X), system.equation(system.IS_Y)
    Y, unit = system.combination(system.Y), system.unit(0, 1)
    first = _right_times(dX, Y)[0][0] + _left_times(Y, dX)[0][0].times(system.minus)
    second = _left_times(unit, dY)[0][0] + _right_times(dY, unit)[0][0].times(system.minus)
    # entry (0,0) of [E_01, E_10] is 1
    member = both[0][0] + (first + second).times(system.minus)
    return [member.cofactors.get(i, {}) for i in range(len(system.equations))]


DERIVATIONS = {"looped-three-layers": derive_three_layers}
"""Systems whose cofactors are computed along a written proof."""
