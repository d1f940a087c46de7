"""`pairs`: two heads of width d <= d_out that share j - 1 keys, and mix one more (docs/proofs/all-targets.md, Theorem S).

Forms A^0, A^1 of rank at most d have factors X_h Y_h^T such that, with s^h_i the columns of X_h,

    columns 1 ... j-1 of Y_0 and Y_1 agree,   column j is s^0_1 + s^1_3 in Y_0 and s^0_2 + s^1_4 in Y_1,   j = 2d - b.

So a word's group holds 4d - j - 1 columns: the shared keys, X_0, X_1, and the other columns of Y_0 and Y_1. All targets are
served where b >= 3 (b - d) + 7. Functionals w (A^h w = v) and spaces are found in floats, at random points of the affine spaces
that the proof says to be nonempty; of some attempts the best conditioned one is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utfproof.constructions.record import Construction, Domain, Readers
from utfproof.constructions.sharing import host_of_groups, widened_target
from utfproof.errors import Undecided
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix, uniform

NAME = "pairs"
TRIES, ENOUGH = 48, 8
"""Attempts at most; so many that reach the forms are compared."""
_ZERO = 1e-11
"""Singular values below this part of the largest count as zero."""
_SMALL = 1e-3
"""Rows below this norm are compared with it: the forms have norms up to 1, and products that vanish leave rounding errors."""
_MISSED = 1e-8
"""Largest relative error of the factors X_h Y_h^T."""
Factors = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""X_0, Y_0, X_1, Y_1 [b, d]."""


def common(shape: Shape) -> int:
    """j = 2d - b, the least dimension in which two spaces of dimension d meet."""
    return 2 * shape.head_dim - shape.d_out


def defined(shape: Shape) -> bool:
    """H = 2, d <= b = d_in = d_out and b >= 3 (b - d) + 7, no residual stream."""
    b, d = shape.d_out, shape.head_dim
    return shape.heads == 2 and shape.d_in == b and d <= b and b >= 3 * (b - d) + 7 and not shape.residual


def most_keys(shape: Shape) -> int:
    """The most mixed keys k a head with b >= 3 (b - d) + 7k; more than one serve almost all targets."""
    return (shape.d_out - 3 * (shape.d_out - shape.head_dim)) // 7


def dimension(shape: Shape, keys: int = 1) -> int:
    """M - (j + k) (2^L - 1)."""
    return matching_dimension(shape) - (common(shape) + keys) * (2**shape.layers - 1)


def _places(shape: Shape) -> tuple[np.ndarray, np.ndarray, int]:
    """Columns of a word's group: of X_h [2, d]; of Y_h [2, d], where -1 is the mixed one; and how many there are."""
    d, shared = shape.head_dim, common(shape) - 1
    queries = shared + np.arange(2 * d).reshape(2, d)
    own = d - shared - 1
    keys = np.full((2, d), -1)
    keys[:, :shared] = np.arange(shared)
    keys[:, shared + 1 :] = shared + 2 * d + np.arange(2 * own).reshape(2, own)
    return queries, keys, shared + 2 * d + 2 * own


def pairs_host(shape: Shape, m: int) -> Universal:
    """`pairs`: a trie of groups for the words shorter than L, a shift register for those of length L."""
    queries, keys, group = _places(shape)
    d, shared = shape.head_dim, common(shape) - 1
    cells, columns = uniform(m, 1), uniform(d, 1)

    def key(head: int) -> SelectionMatrix:
        mixed = [queries[0, head], queries[1, 2 + head]]
        at = np.delete(np.arange(d), shared)
        rows = np.concatenate([keys[head, at], mixed])
        return SelectionMatrix(cells, columns, rows, np.concatenate([at, [shared, shared]]))

    return host_of_groups(
        NAME, shape, m, group, lambda head: SelectionMatrix(cells, columns, queries[head], np.arange(d)), key
    )


# --- the lemma ---------------------------------------------------------------------------------------------------


class _Missed(Exception):
    """An attempt met a singular system."""


def _null(rows: np.ndarray, size: int) -> np.ndarray:
    """Orthonormal columns [size, k] that these rows annihilate."""
    if not len(rows):
        return np.eye(size)
    _, values, V = np.linalg.svd(rows)
    rank = int((values > _ZERO * max(values.max(initial=0.0), _SMALL)).sum())
    return V[rank:].T


def _span(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of the columns."""
    U, values, _ = np.linalg.svd(columns, full_matrices=False)
    return U[:, values > _ZERO * max(values.max(initial=0.0), 1e-300)]


def _off(space: np.ndarray) -> np.ndarray:
    """Rows that annihilate exactly this space of orthonormal columns."""
    return _null(space.T, space.shape[0]).T


def _meet(*spaces: np.ndarray) -> np.ndarray:
    return _null(np.vstack([_off(space) for space in spaces]), spaces[0].shape[0])


class _Lemma:
    """One attempt for two forms [b, b]; random points come from the generator."""

    def __init__(self, forms: Sequence[np.ndarray], d: int, generator: np.random.Generator) -> None:
        self.A, self.d, self.draw = list(forms), d, generator
        self.b = forms[0].shape[0]
        self.shared = 2 * d - self.b - 1

    def point(self, rows: np.ndarray, right: np.ndarray, within: np.ndarray | None = None) -> np.ndarray:
        """A random solution x, in the span of orthonormal columns `within`, of rows x = right; _Missed where there is none."""
        basis = np.eye(rows.shape[1]) if within is None else within
        matrix = rows @ basis
        x = self.draw.normal(size=basis.shape[1])
        if len(matrix):
            x = x + np.linalg.lstsq(matrix, right - matrix @ x, rcond=_ZERO)[0]
            if np.abs(matrix @ x - right).max() > 1e-9 * max(1.0, float(np.abs(x).max())):
                raise _Missed
        return np.asarray(basis @ x)

    def generic(self, space: np.ndarray, count: int | None = None) -> np.ndarray:
        """A random vector of this space, or the span of so many."""
        if count is None:
            return np.asarray(space @ self.draw.normal(size=space.shape[1]))
        if space.shape[1] < count:
            raise _Missed
        return np.linalg.qr(space @ self.draw.normal(size=(space.shape[1], count)))[0]

    def extended(self, space: np.ndarray, count: int) -> np.ndarray:
        """Orthonormal columns of a space of this dimension that contains the given one."""
        rest = _null(space.T, self.b)
        return np.column_stack([space, self.generic(rest, count - space.shape[1])]) if count > space.shape[1] else space

    def dual(self, T: np.ndarray, functionals: Sequence[np.ndarray]) -> np.ndarray:
        """A basis of the span of T whose first members are dual to the functionals; the others are annihilated by them."""
        values = np.array(functionals) @ T
        if np.linalg.svd(values, compute_uv=False).min() < 1e-6 * np.linalg.norm(values):
            raise _Missed
        return T @ np.column_stack([np.linalg.pinv(values), _null(values, T.shape[1])])

    def completed(
        self, first: np.ndarray, space: np.ndarray, functionals: Sequence[np.ndarray], count: int
    ) -> np.ndarray:
        """The columns `first` and others of the space, annihilated by the functionals, that make `count` independent ones."""
        room, more = _meet(space, _null(np.array(functionals), self.b)), count - first.shape[1]
        _, values, V = np.linalg.svd(room - first @ (np.linalg.pinv(first) @ room))
        if more and (len(values) < more or values[more - 1] < _ZERO):
            raise _Missed
        return np.column_stack([first, room @ V[:more].T])

    def full(self) -> Factors:
        """Both forms of rank d."""
        A0, A1 = self.A
        V0, V1, K0, K1 = _span(A0), _span(A1), _span(A0.T), _span(A1.T)
        P0, P1 = np.linalg.pinv(A0), np.linalg.pinv(A1)
        y = self.generic(_meet(K0, _span(np.column_stack([V0, V1]))))
        pair_0, N1 = y @ P0, _off(V1)  # v -> <v, y>_0
        v1 = self.point(np.vstack([N1, pair_0]), np.append(N1 @ y, 0), V0)
        v1_, v2_ = y - v1, self.generic(_meet(V1, _span(np.column_stack([V0, K1]))))
        W1, NK = [P1 @ v1_, P1 @ v2_], _off(K1)
        rows = np.vstack([NK, pair_0, *W1])
        v2 = self.point(rows, -np.concatenate([NK @ v2_, [0], [w @ v2_ for w in W1]]), V0)
        W0 = [P0 @ v1, P0 @ v2]
        T = self.dual(self.generic(_meet(K0, K1), self.shared), [*W0, *W1])
        Y0 = self.completed(np.column_stack([T, y]), K0, W0, self.d)
        Y1 = self.completed(np.column_stack([T, v2 + v2_]), K1, W1, self.d)
        return A0 @ np.linalg.pinv(Y0).T, Y0, A1 @ np.linalg.pinv(Y1).T, Y1

    def deficient(self) -> Factors:
        """rank A^1 < d and A^0 not zero."""
        (A0, A1), b, d = self.A, self.b, self.d
        base, V0 = _span(A0.T), _span(A0)
        K1 = self.extended(_span(A1.T), d - 1)
        if V0.shape[1] <= d - 2:
            a = self.generic(V0)
            more = [a]
            if np.linalg.norm(_off(K1) @ a) < 1e-9 * np.linalg.norm(a):
                more.append(A1 @ self.draw.normal(size=b))
            base = _span(np.column_stack([base, *(x / max(float(np.linalg.norm(x)), 1e-300) for x in more)]))
        K0 = self.extended(base, d)
        T, NK = self.generic(_meet(K0, K1), self.shared), _off(K0)
        both = np.hstack([A0, A1])
        G = _null(NK @ both, 2 * b)
        off_T = _off(T)
        if np.linalg.norm(off_T @ both @ G) > 1e-9 * max(1.0, float(np.linalg.norm(both))):
            u = self.generic(G)
            p, p_, g = u[:b], u[b:], both @ u
            y_ = self.point(np.vstack([p_, p]), np.array([0, p @ g]), T)
            y = y_ - g
            w1, w1_ = self.generic(_null(y[None], b)), np.asarray(self.draw.normal(size=b))
            w2, w2_ = p + w1, p_ + w1_
        else:
            w2, w2_, y_ = self._within(T, NK)
            w1, w1_ = np.asarray(self.draw.normal(size=b)), np.asarray(self.draw.normal(size=b))
            y = self.generic(_meet(K0, _null(np.array([w1, w2]), b)))
        z = (y - A0 @ w1 - A1 @ w1_) / (y_ @ w1_)
        T = self.dual(T, [w1, w2, w1_, w2_])
        Y0 = self.completed(np.column_stack([T, y]), K0, [w1, w2], d)
        rest = self.completed(T, K1, [w1_, w2_], d - 1)
        S = A1 @ np.linalg.pinv(rest).T
        eta = np.linalg.lstsq(T, y_, rcond=None)[0]
        count = self.shared
        X1 = np.column_stack([S[:, :count] + np.outer(z, eta), -z, S[:, count:]])
        Y1 = np.column_stack([T, y_, rest[:, count:]])
        return A0 @ np.linalg.pinv(Y0).T, Y0, X1, Y1

    def _within(self, T: np.ndarray, NK: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(p, p', g) with g = A^0 p + A^1 p' != 0 and p' g = 0, where all such g in K_0 lie in T."""
        A0, A1 = self.A
        D0, D1 = _null(NK @ A0, self.b), _null(NK @ A1, self.b)
        p_ = self.generic(D1)
        p = self.point((p_ @ A0)[None], np.array([-(p_ @ A1 @ p_)]), D0)
        g = A0 @ p + A1 @ p_
        if np.linalg.norm(g) < 1e-9 * max(1.0, float(np.linalg.norm(A0 @ p))):
            a = _span(A0 @ D0)
            p_, p = self.generic(_meet(D1, _null(a.T, self.b))), self.generic(D0)
            g = A0 @ p + A1 @ p_
        return p, p_, g


def _error(lemma: _Lemma, factors: Factors) -> float:
    """How far the factors are from the forms and from the columns that are to agree, relative to the factors."""
    X0, Y0, X1, Y1 = factors
    n = lemma.shared
    forms = X0 @ Y0.T - lemma.A[0], X1 @ Y1.T - lemma.A[1]
    mixed = Y0[:, n] - X0[:, 0] - X1[:, 2], Y1[:, n] - X0[:, 1] - X1[:, 3]
    off = [np.linalg.norm(part) for part in (*forms, Y0[:, :n] - Y1[:, :n])] + [np.linalg.norm(part) for part in mixed]
    return float(max(off)) / max(1.0, _size(factors))


def _size(factors: Factors) -> float:
    return max(float(np.linalg.norm(part)) for part in factors)


def mixed_readers(forms: Sequence[np.ndarray], d: int) -> tuple[Factors, float]:
    """X_0, Y_0, X_1, Y_1 of the lemma for any forms [b, b] of rank at most d, and their largest norm where the larger form
    has norm 1. Undecided where no attempt reaches the forms to 8 digits."""
    b = forms[0].shape[0]
    scale = max(float(np.linalg.norm(A, 2)) for A in forms)
    if scale == 0:
        nothing = np.zeros((b, d))
        return (nothing, nothing, nothing, nothing), 0.0
    ranks = [_span(A).shape[1] for A in forms]
    exchanged = min(ranks) < d and (ranks[1] == d or ranks[0] == 0)
    reached: list[Factors] = []
    for attempt in range(TRIES):
        lemma = _Lemma([A / scale for A in (forms[::-1] if exchanged else forms)], d, np.random.default_rng(attempt))
        try:
            found = lemma.full() if min(ranks) == d else lemma.deficient()
        except (_Missed, np.linalg.LinAlgError):
            continue
        if _error(lemma, found) < _MISSED:
            reached.append(found)
        if len(reached) == ENOUGH:
            break
    if not reached:
        raise Undecided(f"{NAME} found no factors of these forms to 8 digits; use the host sharing")
    best = min(reached, key=_size)
    size = _size(best)
    if exchanged:  # then the columns 1, 2 and 4, 3 of the other head take each other's places
        order = [3, 2, 1, 0, *range(4, d)]
        X1, Y1, X0, Y0 = (part[:, order] for part in best)
        best = X0, Y0, X1, Y1
    X0, Y0, X1, Y1 = (np.sqrt(scale) * part for part in best)
    return (X0, Y0, X1, Y1), size


def pairs_readers(shape: Shape, target: Target) -> Readers:
    """X_h and Y_h, [D, d], and the largest norm of a factor."""
    wide, D, layers = widened_target(NAME, shape, target), target.width, range(shape.layers)
    found = [mixed_readers([wide.attention_form(layer, h) for h in range(2)], shape.head_dim) for layer in layers]
    queries, keys = ([[factors[side][:D], factors[side + 2][:D]] for factors, _ in found] for side in (0, 1))
    return Readers(queries, keys, max(size for _, size in found))


PAIRS = Construction(
    NAME,
    "two heads share keys and mix one more with their queries; d_out >= 3 (d_out - d) + 7, all targets",
    True,
    Notion.ATTENTION_MATCHING,
    dimension,
    pairs_host,
    Domain("two heads, head_dim <= d_out = d_in and d_out >= 3 (d_out - head_dim) + 7", defined),
    readers=pairs_readers,
    page="docs/proofs/all-targets.md, Theorem S",
)
