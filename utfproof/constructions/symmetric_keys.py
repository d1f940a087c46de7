"""Heads wider than the input at d_in = 1: one symmetric table of keys D_i D_c serves all heads. Almost all targets.

With D_i = M^{1,i} and a scalar alpha, queries g_h e_i and keys alpha D_j (D_0, ..., D_{e-1}) give g_h alpha D_i D_j in every
head, e = min(d, H). The table is symmetric and its column c = 0 is an output. `symmetric-keys` (L = 2) is tied and has
m = 2 H^2 + H - e(e-1)/2; `symmetric-keys-deep` (L >= 3) is untied. docs/proofs/wide-heads.md. Coordinates:
docs/certificate-format.md section 9.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from utfproof.constructions.record import Construction, Domain, Identity, scalar
from utfproof.errors import OutsideClass, SingularTarget
from utfproof.ground.arrays import Array, is_exact, to_numpy, zeros
from utfproof.ground.notions import Notion
from utfproof.ground.selection import Partition, SelectionMatrix, uniform
from utfproof.shapes import Shape, Word, geometric, head_words
from utfproof.systems import Target, TiedUniversal, Universal

SHALLOW, DEEP = "symmetric-keys", "symmetric-keys-deep"
Name = tuple[Any, ...]
"""A number that E holds: ("a", h), ("u", w), ("g", l, h, w'), ("g", l, h, w', i) for i >= e, ("s", v, c, j) for 1 <= c <= j."""


def _wide_scalar(shape: Shape) -> bool:
    """d_in = d_out = 1, d >= 2, H >= 2."""
    return scalar(shape) and min(shape.head_dim, shape.heads) >= 2


def _columns(shape: Shape) -> int:
    return min(shape.head_dim, shape.heads)


@lru_cache(maxsize=8)
def _numbers(shape: Shape) -> dict[Name, int]:
    """Where E holds each number: the a's, the outputs, the g's by layer, the symmetric tables."""
    H, L, e = shape.heads, shape.layers, _columns(shape)
    names: list[Name] = [("a", h) for h in range(H)]
    names += [("u", *w) for w in head_words(H, L)]
    for layer in range(2, L + 1):
        for h in range(H):
            for w in head_words(H, layer - 2):
                names += [("g", layer, h, w), *(("g", layer, h, w, i) for i in range(e, H))]
    names += [("s", v, c, j) for v in head_words(H, L - 2) for c in range(1, e) for j in range(c, H)]
    if L == 2:  # the readers of layer 1, being those of layer 2, find a_h and the first output first
        taken = {
            **{_place(shape, "Q", 2, h, (), 0): ("a", h) for h in range(H)},
            _place(shape, "K", (), 0): ("u", 0, 0),
        }
        others = iter(name for name in names if name not in taken.values())
        return {taken[i] if i in taken else next(others): i for i in range(len(names))}
    return {name: i for i, name in enumerate(names)}


@lru_cache(maxsize=8)
def _places(shape: Shape) -> dict[Name, int]:
    """Coordinates after the first letter: queries ("Q", l, h, w', c), keys ("K", v, c), whose column 0 is the output
    ("O", v, 0), outputs ("O", v, k); at L = 2 one more, "out", for the output after the second."""
    H, L, e = shape.heads, shape.layers, _columns(shape)
    names: list[Name] = [
        ("Q", layer, h, w, c)
        for layer in range(2, L + 1)
        for h in range(H)
        for w in head_words(H, layer - 2)
        for c in range(e)
    ]
    names += [("K", v, c) for v in head_words(H, L - 2) for c in range(e)]
    names += [("O", v, k) for v in head_words(H, L - 2) for k in range(1, H)]
    names += [("out",)] * (L == 2)
    return {name: i for i, name in enumerate(names)}


def _place(shape: Shape, *name: Any) -> int:
    return _places(shape)[("K", name[1], 0) if name[0] == "O" and name[2] == 0 else name]


def symmetric_dimension(shape: Shape) -> int:
    """H^L + H + (H + ... + H^(L-1)) (H-e+1) + H^(L-2) (H(e-1) - e(e-1)/2), e = min(d, H), or what is needed after the first
    letter: at L = 2 it is 2 H^2 + H - e(e-1)/2."""
    H, L, e = shape.heads, shape.layers, _columns(shape)
    held = H**L + H + geometric(H, 1, L - 1) * (H - e + 1) + H ** (L - 2) * (H * (e - 1) - e * (e - 1) // 2)
    after = geometric(H, 1, L - 1) * e + H ** (L - 2) * (e + H - 1) + (L == 2)
    return int(max(held, after))


def _product(shape: Shape, i: int, c: int, v: Word) -> Name:
    """The number alpha D_i D_c M_v."""
    if not min(i, c):
        return ("u", max(i, c), *v, 0)
    return ("s", v, min(i, c), max(i, c))


def _first_letter(shape: Shape, i: int) -> Iterable[tuple[int, int]]:
    """(coordinate of E, coordinate after the letter i)."""
    H, L, e = shape.heads, shape.layers, _columns(shape)
    numbers = _numbers(shape)
    for layer in range(2, L + 1):
        for h in range(H):
            for w in head_words(H, layer - 2):
                name = ("g", layer, h, w) if i < e else ("g", layer, h, w, i)
                yield numbers[name], _place(shape, "Q", layer, h, w, min(i, e - 1))
    for v in head_words(H, L - 2):
        for c in range(1, e):
            yield numbers[_product(shape, i, c, v)], _place(shape, "K", v, c)
        for k in range(H):
            yield numbers[("u", i, *v, k)], _place(shape, "O", v, k)


def _next_letter(shape: Shape, layer: int, letter: int) -> Iterable[tuple[int, int]]:
    """1 < layer < L: whatever has the letter at this layer goes where 0 stands in its place."""

    def moved(word: Word) -> Word | None:
        at = layer - 2
        return None if len(word) <= at or word[at] else (*word[:at], letter, *word[at + 1 :])

    for name, column in _places(shape).items():
        at = 3 if name[0] == "Q" else 1
        longer = moved(name[at])
        if longer is not None:
            yield _places(shape)[(*name[:at], longer, *name[at + 1 :])], column


def _selected(m: int, pairs: Iterable[tuple[int, int]], columns: Partition | None = None) -> SelectionMatrix:
    cells = uniform(m, 1)
    rows, places = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
    return SelectionMatrix(cells, cells if columns is None else columns, rows, places)


def shallow_host(shape: Shape, m: int) -> TiedUniversal:
    """`symmetric-keys`: the same readers and maps in both layers."""
    heads, reader, e = range(shape.heads), uniform(shape.head_dim, 1), _columns(shape)
    out = _place(shape, "out")
    return TiedUniversal(
        shape,
        m,
        tuple(_selected(m, [(_place(shape, "Q", 2, h, (), c), c) for c in range(e)], reader) for h in heads),
        tuple(_selected(m, [(_place(shape, "K", (), c), c) for c in range(e)], reader) for _ in heads),
        tuple(_selected(m, [*_first_letter(shape, h), (_place(shape, "O", (), h), out)]) for h in heads),
        _selected(m, [(out, 0)], uniform(1, 1)),
        SHALLOW,
    )


def deep_host(shape: Shape, m: int) -> Universal:
    """`symmetric-keys-deep`: the first letter unfolds the tables, the others choose among them."""
    H, L, e = shape.heads, shape.layers, _columns(shape)
    heads, reader, zero = range(H), uniform(shape.head_dim, 1), (0,) * (L - 2)
    first = _numbers(shape)
    queries, keys, values = [], [], []
    for layer in range(1, L + 1):
        if layer == 1:
            queries.append(tuple(_selected(m, [(first[("a", h)], 0)], reader) for h in heads))
            keys.append(tuple(_selected(m, [(first[("u", *zero, 0, 0)], 0)], reader) for _ in heads))
            values.append(tuple(_selected(m, _first_letter(shape, h)) for h in heads))
            continue
        begins = [[(_place(shape, "Q", layer, h, zero[: layer - 2], c), c) for c in range(e)] for h in heads]
        queries.append(tuple(_selected(m, pairs, reader) for pairs in begins))
        keys.append(tuple(_selected(m, [(_place(shape, "K", zero, c), c) for c in range(e)], reader) for _ in heads))
        if layer < L:
            values.append(tuple(_selected(m, _next_letter(shape, layer, h)) for h in heads))
        else:
            values.append(tuple(_selected(m, [(_place(shape, "O", zero, h), 0)]) for h in heads))
    return Universal(shape, m, queries, keys, values, _selected(m, [(0, 0)], uniform(1, 1)), DEEP)


def embed_symmetric(shape: Shape, m: int, target: Target) -> tuple[Array, float | None]:
    """E [1, m] for targets of width 1 with M^{1,h}, M^{2,0}, ..., M^{L,0} not zero. OutsideClass for wider ones, SingularTarget
    for others."""
    if target.width != 1:
        raise OutsideClass(f"this host at {shape} serves targets of width 1, this one has width {target.width}")
    e, L, heads = _columns(shape), shape.layers, range(shape.heads)
    precise = is_exact(target.W_Q)

    def number(matrix: Array) -> Any:
        return Fraction(matrix[0, 0]) if precise else matrix[0, 0]

    W_E, W_U = number(target.embedding()), number(target.unembedding())
    M = [[number(target.value_form(layer, h)) for h in heads] for layer in range(L)]
    A = [[number(target.attention_form(layer, h)) * W_E * W_E for h in heads] for layer in range(L)]
    needed = [*M[0][:e], *(row[0] for row in M[1:]), W_E, W_U]
    if any(value == 0 for value in needed):
        raise SingularTarget("this host serves targets whose M^(1,h), M^(2,0), ..., M^(L,0), W_E and W_U are not zero")

    def along(word: Word, first: int) -> Any:
        value: Any = 1
        for layer, head in enumerate(word, first):
            value = value * M[layer][head]
        return value

    alpha = W_E * W_U * M[L - 1][0] / M[0][0]
    E = np.zeros((1, m), dtype=object) if precise else zeros(target.W_Q, 1, m)
    numbers = _numbers(shape)
    for (kind, *name), at in numbers.items():
        if kind == "u":
            E[0, at] = W_E * along(tuple(name), 0) * W_U
        elif kind == "s":
            v, c, j = name
            E[0, at] = alpha * M[0][c] * M[0][j] * along(v, 1)
        elif kind == "g":
            layer, h, w, *later = name
            # the keys of layer l are those of layer L with the letters 0 behind
            scale = alpha * along((0,) * (L - layer), layer - 1)
            ratio = M[0][later[0]] / M[0][e - 1] if later else 1
            E[0, at] = A[layer - 1][h] * along(w, 1) / scale * ratio
    for h in heads:
        rest: Any = 0
        if L == 2:  # what else the readers of layer 2 find in E
            for c in range(1, e):
                rest = rest + E[0, _place(shape, "Q", 2, h, (), c)] * E[0, _place(shape, "K", (), c)]
        first = numbers[("u", *(0,) * L)]
        E[0, numbers[("a", h)]] = (A[0][h] - rest) / E[0, first]
    sizes = [abs(float(to_numpy(value))) for value in needed] if not precise else [1.0]
    return E, None if precise else max(sizes) / min(sizes)


SYMMETRIC_KEYS = Construction(
    SHALLOW,
    "d_in = 1, L = 2, d >= 2: one symmetric table of keys for all heads; almost all targets",
    True,
    Notion.ATTENTION_MATCHING,
    symmetric_dimension,
    shallow_host,
    Domain("d_in = d_out = 1, head_dim >= 2, heads >= 2 and L = 2", lambda s: _wide_scalar(s) and s.layers == 2),
    targets="generic untied",
    embed=embed_symmetric,
    identity=Identity(),
)

SYMMETRIC_KEYS_DEEP = Construction(
    DEEP,
    "d_in = 1, L >= 3, d >= 2: the first letter unfolds symmetric tables of keys; untied, almost all targets",
    False,
    Notion.ATTENTION_MATCHING,
    symmetric_dimension,
    deep_host,
    Domain("d_in = d_out = 1, head_dim >= 2, heads >= 2 and L >= 3", lambda s: _wide_scalar(s) and s.layers > 2),
    targets="generic untied",
    embed=embed_symmetric,
    identity=Identity(),
)
