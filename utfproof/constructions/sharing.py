"""Shared query columns for heads of width d <= d_out: all targets by attention-matching (docs/proofs/all-targets.md, P).

Subspaces of dimension d in R^b meet once 2d > b: g of them in j_g = g d - (g - 1) b dimensions. So a form A^h = X_h Y_h^T can
be factored with columns of X_h that other heads have as well. Coordinates: for each word shorter than L the different columns
of the X_h, then the Y_h; for each word of length L one block of d_out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from utfproof.constructions.layout import Layout, register, trie
from utfproof.constructions.record import Construction, Domain, Readers
from utfproof.errors import NotDefined, OutsideClass
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal
from utfproof.util.arrays import is_exact, is_torch
from utfproof.util.notions import Notion
from utfproof.util.selection import SelectionMatrix, uniform

NAME = "sharing"
_TRIES = 16
"""Combinations tried for a shared column; the one farthest from the columns chosen before is taken."""


@lru_cache(maxsize=64)
def shared_heads(shape: Shape) -> tuple[range, ...]:
    """Sets of heads that share a column, larger ones first: the i-th family cuts the heads into sets of at most g, the largest
    g with j_g >= i, so that no head is in more than j_g sets of g heads or more."""
    H, d, b = shape.heads, shape.head_dim, shape.d_out
    found = []
    for i in range(1, d + 1):
        size = max((g for g in range(1, H + 1) if g * d - (g - 1) * b >= i), default=1)
        sets = [range(first, min(first + size, H)) for first in range(0, H, size)]
        found += [heads for heads in sets if len(heads) > 1]
    return tuple(sorted(found, key=len, reverse=True))


def sharing_dimension(shape: Shape) -> int:
    """M - (1 + H + ... + H^(L-1)) times the columns saved for each word."""
    saved = sum(len(heads) - 1 for heads in shared_heads(shape))
    return matching_dimension(shape) - saved * shape.word_count // shape.heads


def _query_columns(shape: Shape) -> np.ndarray:
    """Which column of a word's group is column i of X_h, [H, d]: shared ones first, in the order of `shared_heads`."""
    held: list[list[int]] = [[] for _ in range(shape.heads)]
    count = 0
    for heads in shared_heads(shape):
        for head in heads:
            held[head].append(count)
        count += 1
    for own in held:
        own += range(count, count + shape.head_dim - len(own))
        count = max(count, own[-1] + 1)
    return np.array(held)


Read = Callable[[int], SelectionMatrix]


def host_of_groups(name: str, shape: Shape, m: int, group: int, query: Read, key: Read) -> Universal:
    """A trie of groups of this many coordinates for the words shorter than L, which query and key [m, d] of each head read
    at the empty word, and a shift register for the words of length L."""
    layout, outputs, L = Layout(shape, m, 1), group * shape.word_count // shape.heads, shape.layers

    def value(head: int) -> SelectionMatrix:
        return layout.moved(trie(shape, head, 0, L - 1, 0, group), register(shape, head, outputs, shape.d_out))

    return layout.tied(name, query, key, value, outputs)


def sharing_host(shape: Shape, m: int) -> Universal:
    """`sharing`: a word's group holds the different columns of the X_h, then the Y_h."""
    d, places = shape.head_dim, _query_columns(shape)
    keys, columns = int(places.max()) + 1, np.arange(d)

    def reader(rows: np.ndarray) -> SelectionMatrix:
        return SelectionMatrix(uniform(m, 1), uniform(d, 1), rows, columns)

    return host_of_groups(
        NAME,
        shape,
        m,
        keys + shape.heads * d,
        lambda head: reader(places[head]),
        lambda head: reader(keys + head * d + columns),
    )


# --- the embedding ---------------------------------------------------------------------------------------------


def _orthonormal(columns: np.ndarray, count: int) -> np.ndarray:
    """[b, count]: the left singular vectors of the largest singular values; they span the columns, if `count` is their rank
    or more."""
    return np.asarray(np.linalg.svd(columns, full_matrices=True)[0][:, :count])


def _outside(vectors: np.ndarray, spans: list[np.ndarray], generator: np.random.Generator) -> np.ndarray:
    """A unit vector [b] in the span of orthonormal vectors [b, k], as far as may be from each of these spans."""
    projections = [span @ np.linalg.pinv(span) @ vectors for span in spans if span.size]
    near = sum((p.T @ p for p in projections), np.zeros((vectors.shape[1],) * 2))
    weights = [np.linalg.eigh(near)[1][:, 0], *generator.normal(size=(_TRIES, vectors.shape[1]))]
    units = [weight / np.linalg.norm(weight) for weight in weights]
    distance = [min((1 - float(np.linalg.norm(p @ unit)) for p in projections), default=1.0) for unit in units]
    return np.asarray(vectors @ units[int(np.argmax(distance))])


def shared_readers(shape: Shape, forms: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """X_h and Y_h [b, d] with X_h Y_h^T = A^h for any forms [b, b] of rank at most d, where heads share columns of X."""
    d, b, generator = shape.head_dim, shape.d_out, np.random.default_rng(0)
    spaces = [_orthonormal(form, d) for form in forms]
    chosen = [np.zeros((b, 0)) for _ in forms]
    for heads in shared_heads(shape):
        outside = np.vstack([np.eye(b) - spaces[h] @ spaces[h].T for h in heads])
        common = np.linalg.svd(outside)[2][b - (len(heads) * d - (len(heads) - 1) * b) :].T
        column = _outside(common, [chosen[h] for h in heads], generator)
        for h in heads:
            chosen[h] = np.column_stack([chosen[h], column])
    queries, keys = [], []
    for form, space, first in zip(forms, spaces, chosen, strict=True):
        rest = space - first @ (np.linalg.pinv(first) @ space)
        X = np.column_stack([first, _orthonormal(rest, d - first.shape[1])])
        queries.append(X)
        keys.append((np.linalg.pinv(X) @ form).T)
    return queries, keys


def widened_target(name: str, shape: Shape, target: Target) -> Target:
    """The target in width d_out, with zeros. OutsideClass for wider ones, NotDefined for weights that are not float64."""
    if is_exact(target.W_Q) or is_torch(target.W_Q):
        raise NotDefined(f"{name} finds bases in floats; give the target's weights as NumPy floats")
    b, D = shape.d_out, target.width
    if b < D:
        raise OutsideClass(f"{name} at {shape} serves targets of width at most d_out = {b}, this one has width {D}")
    eye = np.eye(D, b)
    W_Q, W_K, W_V = (eye.T @ np.asarray(part) for part in (target.W_Q, target.W_K, target.W_V))
    ends = target.embedding() @ eye, eye.T @ target.unembedding()
    return type(target)(target.shape, W_Q, W_K, W_V, np.asarray(target.W_O) @ eye, *ends)


def sharing_readers(shape: Shape, target: Target) -> Readers:
    """X_h and Y_h, [D, d], and the largest condition number of an X_h."""
    wide, heads, D = widened_target(NAME, shape, target), range(shape.heads), target.width
    found = [shared_readers(shape, [wide.attention_form(layer, h) for h in heads]) for layer in range(shape.layers)]
    condition = max(float(np.linalg.cond(X)) for queries, _ in found for X in queries)
    return Readers(
        [[X[:D] for X in queries] for queries, _ in found], [[Y[:D] for Y in keys] for _, keys in found], condition
    )


SHARING = Construction(
    NAME,
    "heads share columns of their queries; d_out/2 < d <= d_out and H >= 2, all targets",
    True,
    Notion.ATTENTION_MATCHING,
    sharing_dimension,
    sharing_host,
    Domain(
        "d_out < 2 head_dim <= 2 d_out, two heads or more, and d_in = d_out",
        lambda s: s.d_in == s.d_out and s.head_dim <= s.d_out < 2 * s.head_dim and s.heads > 1,
    ),
    readers=sharing_readers,
    page="docs/proofs/all-targets.md, Theorem P",
)
