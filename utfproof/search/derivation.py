"""A written proof as a computation: elements of the ideal of a polynomial system, kept with their cofactors.

Sums and multiples of such elements are again such elements, so a proof that ends in 1 leaves the cofactors of a certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from utfproof.search import nullstellensatz as ns


@dataclass(frozen=True)
class Member:
    """An element of the ideal, kept as its cofactors: sum_i cofactors[i] f_i."""

    cofactors: dict[int, ns.Polynomial]

    def __add__(self, other: Member) -> Member:
        keys = self.cofactors.keys() | other.cofactors.keys()
        return Member({i: ns.add(self.cofactors.get(i, {}), other.cofactors.get(i, {})) for i in keys})

    def times(self, factor: ns.Polynomial) -> Member:
        """A multiple."""
        return Member({i: product for i, c in self.cofactors.items() if (product := ns.multiply(factor, c))})


def _sum(members: Iterable[Member]) -> Member:
    total = Member({})
    for member in members:
        total = total + member
    return total


def derive_three_layers() -> list[ns.Polynomial]:
    """Cofactors for looped-three-layers, along the written proof: R_i C = 0 for C = R_0 R_1 - R_1 R_0; so E_01 C and E_10
    C, which are combinations of the R_w C, vanish, that is C = 0; all R_w commute, but E_01 and E_10 do not.

    Equations of the system, in order: words of one letter 1 (001 = 010, 001 = 100), of two (011 = 101, 011 = 110), four
    entries each; then sum x_k N_k = E_01 and sum y_k N_k = E_10, N_k the first word with k letters 1.
    """
    names, equations = ns.SYSTEMS["looped-three-layers"]()
    width = len(names)
    R = [[[ns.variable(4 * h + 2 * i + j, width) for j in range(2)] for i in range(2)] for h in range(2)]
    minus = ns.constant(-1, width)

    def entry(first: int, i: int, j: int) -> Member:
        return Member({first + 2 * i + j: ns.constant(1, width)})

    # R_0 C = R_0 R_0 R_1 - R_0 R_1 R_0; R_1 C = R_1 R_0 R_1 - R_1 R_1 R_0 = (011 - 110) - (011 - 101)
    RC = [
        [[entry(0, i, j) for j in range(2)] for i in range(2)],
        [[entry(12, i, j) + entry(8, i, j).times(minus) for j in range(2)] for i in range(2)],
    ]
    normal = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1)]
    commutator = [
        [
            ns.add(ns.matrix_product(R[0], R[1])[i][j], ns.scale(-1, ns.matrix_product(R[1], R[0])[i][j]))
            for j in range(2)
        ]
        for i in range(2)
    ]

    def through(first_variable: int, first_equation: int, row: int) -> list[Member]:
        """Row `row` of (sum_k x_k N_k) C - (sum_k x_k N_k - E) C = E C."""
        out = []
        for j in range(2):
            terms = []
            for k, (a, b, last) in enumerate(normal):
                left = ns.matrix_product(R[a], R[b])
                x = ns.variable(first_variable + k, width)
                terms += [RC[last][i][j].times(ns.multiply(x, left[row][i])) for i in range(2)]
            terms += [entry(first_equation, row, i).times(ns.multiply(minus, commutator[i][j])) for i in range(2)]
            out.append(_sum(terms))
        return out

    # E_01 C has row 1 of C in row 0, E_10 C has row 0 of C in row 1
    C = [through(12, 20, 1), through(8, 16, 0)]
    Y = _combination(R, normal, 12, width)
    one = ns.constant(1, width)
    unit = {
        (i, j): [[one if (a, b) == (i, j) else {} for b in range(2)] for a in range(2)] for i, j in ((0, 1), (1, 0))
    }

    def left_times(A: ns.Matrix, B: list[list[Member]]) -> list[list[Member]]:
        return [[_sum(B[k][j].times(A[i][k]) for k in range(2)) for j in range(2)] for i in range(2)]

    def right_times(B: list[list[Member]], A: ns.Matrix) -> list[list[Member]]:
        return [[_sum(B[i][k].times(A[k][j]) for k in range(2)) for j in range(2)] for i in range(2)]

    # [X, R_h] and then [X, Y] by the product rule, as elements of the ideal: [R_0, R_1] = C
    def against(h: int, A: Sequence[tuple[int, int, int]], first: int) -> list[list[Member]]:
        """[sum_k x_k N_k, R_h]."""
        total = [[Member({}) for _ in range(2)] for _ in range(2)]
        for k, word in enumerate(A):
            for place, letter in enumerate(word):
                if letter == h:
                    continue
                sign = (
                    ns.variable(first + k, width) if letter < h else ns.multiply(minus, ns.variable(first + k, width))
                )
                inner = C
                for g in reversed(word[:place]):
                    inner = left_times(R[g], inner)
                for g in word[place + 1 :]:
                    inner = right_times(inner, R[g])
                total = [[total[i][j] + inner[i][j].times(sign) for j in range(2)] for i in range(2)]
        return total

    with_letters = [against(h, normal, 8) for h in range(2)]
    total = [[Member({}) for _ in range(2)] for _ in range(2)]
    for k, word in enumerate(normal):
        y = ns.variable(12 + k, width)
        for place, letter in enumerate(word):
            inner = with_letters[letter]
            for g in reversed(word[:place]):
                inner = left_times(R[g], inner)
            for g in word[place + 1 :]:
                inner = right_times(inner, R[g])
            total = [[total[i][j] + inner[i][j].times(y) for j in range(2)] for i in range(2)]
    # [X, Y] - [E_01, E_10] = (X - E_01) Y - Y (X - E_01) + E_01 (Y - E_10) - (Y - E_10) E_01
    dX = [[entry(16, i, j) for j in range(2)] for i in range(2)]
    dY = [[entry(20, i, j) for j in range(2)] for i in range(2)]
    first = right_times(dX, Y)[0][0] + left_times(Y, dX)[0][0].times(minus)
    second = left_times(unit[0, 1], dY)[0][0] + right_times(dY, unit[0, 1])[0][0].times(minus)
    # entry (0,0) of [E_01, E_10] is 1
    member = total[0][0] + (first + second).times(minus)
    return [member.cofactors.get(i, {}) for i in range(len(equations))]


def _combination(R: list[ns.Matrix], words: Sequence[tuple[int, ...]], first: int, width: int) -> ns.Matrix:
    """sum_k x_k N_k."""
    total: ns.Matrix = [[{}, {}], [{}, {}]]
    for k, (a, b, c) in enumerate(words):
        product = ns.matrix_product(R[a], ns.matrix_product(R[b], R[c]))
        x = ns.variable(first + k, width)
        total = [[ns.add(total[i][j], ns.multiply(x, product[i][j])) for j in range(2)] for i in range(2)]
    return total


DERIVATIONS = {"looped-three-layers": derive_three_layers}
"""Systems whose cofactors are computed along a written proof."""
