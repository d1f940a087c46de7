"""Models with a residual stream, with biases, or with both, written out slowly in plain Python: the second route of the claims
about residual streams and trained models.

Words are over the heads 0 ... H-1, or with a residual stream over 0 ... H, letter 0 for the stream and h + 1 for head h.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from utfproof.attention import RationalAttention
from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.claims.small_models import array
from utfproof.ground.generator import integer_matrix
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget

# --- hosts and targets ---------------------------------------------------------------------------------------------


def maps(system: Any, layer: int, head: int) -> tuple[plain.Rows, plain.Rows, plain.Rows]:
    """(query, key, value) of a head, target's or host's."""
    if isinstance(system, Target):
        w_q, w_k, w_v, w_o = system.parameters(layer, head)
        return plain.rows(w_q), plain.rows(w_k), plain.product([w_v, w_o])
    found = system.maps(layer, head)
    return plain.rows(found.query), plain.rows(found.key), plain.product(found.value)


def ends(system: Any) -> tuple[plain.Rows, plain.Rows]:
    """What words start from and what reads them at the end: W_E and W_U of a target, I [m, m] and U of a host."""
    if isinstance(system, Target):
        return plain.rows(system.embedding()), plain.rows(system.unembedding())
    return plain.identity(system.m), plain.rows(system.U)


def equations(system: Any) -> plain.Rows:
    """R_all of a host, W_all of a target, from the definition: Q and K by prefix and reading head, then OV by word."""
    H, L, stream = system.shape.heads, system.shape.layers, int(system.shape.residual)
    start, output = ends(system)
    heads = [[maps(system, layer, head) for head in range(H)] for layer in range(L)]
    prefixes = [[start]]  # by length, words in lexicographic order
    for layer in heads:
        moved = []
        for state in prefixes[-1]:
            moved += [state] if stream else []
            moved += [plain.multiply(state, value) for _, _, value in layer]
        prefixes.append(moved)
    blocks = []
    for kind in (0, 1):
        for layer, states in zip(heads, prefixes[:-1], strict=True):
            blocks += [plain.multiply(state, parts[kind]) for state in states for parts in layer]
    blocks += [plain.multiply(state, output) for state in prefixes[-1]]
    return plain.beside(blocks)


def forward(
    system: Any, x: plain.Rows, E: plain.Rows | None = None, attention: plain.Attention = plain.rational_attention
) -> plain.Rows:
    """The outputs of a target for X, of a host for X and E: the stream, where there is one, plus every head's term."""
    start, output = ends(system)
    state = plain.multiply(x, start if E is None else E)
    for layer in range(system.shape.layers):
        terms = [state] if system.shape.residual else []
        for head in range(system.shape.heads):
            query, key, value = maps(system, layer, head)
            pattern = attention(plain.multiply(state, query), plain.multiply(state, key), layer + 1, head)
            terms.append(plain.multiply(plain.multiply(pattern, state), value))
        state = terms[0]
        for term in terms[1:]:
            state = plain.add(state, term)
    return plain.multiply(state, output)


def carries(host: Universal, E: Any, target: Target, x: plain.Rows) -> Agreed:
    """Whether E R_all = W_all and host and target give the same outputs for X: the package's, and the definitions."""
    kernel, e = RationalAttention(), plain.rows(E)
    own = bool((array(e) @ _dense(r_all(host)) == w_all(target)).all())
    own &= bool((host.forward(array(x), array(e), kernel) == target.forward(array(x), kernel)).all())
    slow = plain.multiply(e, equations(host)) == equations(target)
    slow &= forward(host, x, e) == forward(target, x)
    return agree({"package": own, "plain Fractions": slow})


def _dense(matrix: Any) -> Any:
    return array(plain.rows(matrix))


def routed_targets(shape: Shape, G: int) -> Iterator[Target]:
    """0/1 targets, keys and values shared by the H / G heads of a group. M = e_1 e_1ᵀ along a word, one head a layer at most
    (with
    a residual stream, none too), then W_Q, W_K = e_1 e_jᵀ behind it, or e_1 e_jᵀ as its last M."""
    H, L, d, D = shape.heads, shape.layers, shape.head_dim, shape.d_in
    size = H // G

    def blank() -> list[np.ndarray]:
        return [np.zeros((L, H, D, d), dtype=object) for _ in range(3)] + [np.zeros((L, H, d, D), dtype=object)]

    def group(head: int) -> slice:
        return slice(head // size * size, head // size * size + size)

    # a letter None: no head of this layer writes
    letters = [*([None] if shape.residual else []), *range(H)]
    for length in range(L + 1):
        for word in itertools.product(letters, repeat=length):
            W_Q, W_K, W_V, W_O = blank()
            used = [(layer, head) for layer, head in enumerate(word) if head is not None]
            for layer, head in used:
                W_V[layer, group(head), 0, 0] = W_O[layer, head, 0, 0] = 1
            if length == L:
                for j in range(D):
                    last = W_O.copy()
                    if used:
                        last[used[-1]][0] = 0
                        last[(*used[-1], 0, j)] = 1
                    yield Target(shape, W_Q, W_K, W_V, last)
                continue
            for head, j in itertools.product(range(H), range(d)):
                queries, keys, _, _ = blank()
                queries[length, head, 0, j] = 1
                yield Target(shape, queries, W_K, W_V, W_O)
                if head % size == 0:
                    keys[length, group(head), 0, j] = 1
                    yield Target(shape, W_Q, keys, W_V, W_O)


# --- one target's Hankel matrices ----------------------------------------------------------------------------------


def hankel_ranks(target: Target) -> tuple[list[int], list[int]]:
    """(rank H_l for l = 0 ... L, rank for l = 1 ... L of the rows known before layer l read from layer l on), from the full
    matrices: a row for every input and word, a column for every reader."""
    H, L, stream = target.shape.heads, target.shape.layers, int(target.shape.residual)
    start, output = ends(target)
    states = [[start]]
    for layer in range(L):
        following = []
        for state in states[-1]:
            following += [state] if stream else []
            following += [plain.multiply(state, maps(target, layer, head)[2]) for head in range(H)]
        states.append(following)
    readers = [output]
    read = [readers]
    for layer in reversed(range(L)):
        following = [maps(target, layer, head)[kind] for head in range(H) for kind in (0, 1)]
        for reader in readers:
            following += [reader] if stream else []
            following += [plain.multiply(maps(target, layer, head)[2], reader) for head in range(H)]
        readers = following
        read.insert(0, readers)

    def rank(rows: int, columns: int) -> int:
        stacked = list(itertools.chain.from_iterable(states[rows]))
        return plain.rank(plain.multiply(stacked, plain.beside(read[columns])))

    return [rank(at, at) for at in range(L + 1)], [rank(at - 1, at) for at in range(1, L + 1)]


def least_by_ranks(target: Target) -> int:
    """The least m that these ranks say."""
    ranks, overlaps = hankel_ranks(target)
    if not target.shape.residual:
        return max(1, *ranks)
    return max(1, ranks[0] + sum(ranks[1:]) - sum(overlaps))


# --- targets with biases -------------------------------------------------------------------------------------------

BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U")


def drawn(seed: int, code: int, *size: int) -> np.ndarray:
    """An object array of integers in -2 ... 2; different codes give different numbers."""
    numbers = integer_matrix(seed, "W_E", 1, int(np.prod(size)), law="binomial", layer=code, head=7)
    return array([int(v) % 5 - 2 for v in numbers.reshape(-1)]).reshape(size)


def sizes(shape: Shape, width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a biased target's tensors."""
    lead, d = (shape.layers, shape.heads), shape.head_dim
    out: dict[str, tuple[int, ...]] = dict.fromkeys(("W_Q", "W_K", "W_V"), (*lead, width, d))
    out |= {"W_O": (*lead, d, width), "W_E": (shape.d_in, width), "W_U": (width, shape.d_out)}
    out |= dict.fromkeys(("b_Q", "b_K", "b_V"), (*lead, d))
    return out | {"b_O": (shape.layers, width), "b_E": (width,), "b_U": (shape.d_out,)}


def biased_target(shape: Shape, width: int, seed: int = 0, *, positions: int = 0) -> BiasedTarget:
    """Odd weights and biases, none of them zero; the last `positions` inputs are positions, and the constant counts tokens."""
    arrays = {name: 2 * drawn(seed, code, *size) + 1 for code, (name, size) in enumerate(sizes(shape, width).items())}
    tokens = shape.d_in - positions
    return BiasedTarget(shape, **arrays, constant=array([1] * tokens + [0] * positions))


def one_hots(tokens: list[int], inputs: int, positions: int = 0) -> plain.Rows:
    """X for these tokens, each with the one-hot of its place beside it where there are positions."""
    count = inputs - positions
    places = range(len(tokens))
    return [
        [int(j == t) for j in range(count)] + [int(j == i) for j in range(positions)]
        for i, t in zip(places, tokens, strict=True)
    ]


def _plus(matrix: plain.Rows, bias: Any) -> plain.Rows:
    return [[v + b for v, b in zip(row, bias, strict=True)] for row in matrix]


def run_biased(
    target: BiasedTarget, x: plain.Rows, attention: plain.Attention = plain.rational_attention
) -> plain.Rows:
    """The outputs of a target with biases, from the definition; attention of any row sums."""
    part = _parts(target)
    state = _plus(plain.multiply(x, part["W_E"]), part["b_E"])
    for layer in range(target.shape.layers):
        total = [list(row) for row in state] if target.shape.residual else [[0] * target.width for _ in x]
        for head in range(target.shape.heads):
            query, key, value = (
                _plus(plain.multiply(state, part["W_" + name][layer][head]), part["b_" + name][layer][head])
                for name in "QKV"
            )
            mixed = plain.multiply(attention(query, key, layer + 1, head), value)
            total = plain.add(total, plain.multiply(mixed, part["W_O"][layer][head]))
        state = _plus(total, part["b_O"][layer])
    return _plus(plain.multiply(state, part["W_U"]), part["b_U"])


def biased_equations(target: BiasedTarget) -> plain.Rows:
    """W_all of a target with biases, from the definition: along a word the inputs' rows and the constant c side by side, each
    head adding c times its bias; head 0 adds b_O, and carries c where no stream does."""
    H, L, stream = target.shape.heads, target.shape.layers, int(target.shape.residual)
    part, c = _parts(target), plain.rows([target.constant_vector().tolist()])[0]
    start = plain.add(part["W_E"], [[v * b for b in part["b_E"]] for v in c])

    def prefix(word: tuple[int, ...]) -> tuple[plain.Rows, list[Any]]:
        rows, constant = start, c
        for layer, letter in enumerate(word):
            if letter < stream:
                continue
            head = letter - stream
            moved = _read(rows, constant, part["W_V"][layer][head], part["b_V"][layer][head])
            rows = plain.multiply(moved, part["W_O"][layer][head])
            if head == 0:
                rows = plain.add(rows, [[v * b for b in part["b_O"][layer]] for v in constant])
            constant = constant if head == 0 and not stream else [0 * v for v in constant]
        return rows, constant

    blocks = []
    for name in "QK":
        for length in range(L):
            for word in plain.words(H + stream, length):
                for head in range(H):
                    blocks.append(
                        _read(*prefix(word), part["W_" + name][length][head], part["b_" + name][length][head])
                    )
    blocks += [_read(*prefix(word), part["W_U"], part["b_U"]) for word in plain.words(H + stream, L)]
    return plain.beside(blocks)


def _read(rows: plain.Rows, constant: list[Any], weight: plain.Rows, bias: list[Any]) -> plain.Rows:
    return plain.add(plain.multiply(rows, weight), [[v * b for b in bias] for v in constant])


def _parts(target: BiasedTarget) -> dict[str, Any]:
    """Every tensor as nested lists, zeros and identities written out."""
    found = {name: getattr(target, name).tolist() for name in ("W_Q", "W_K", "W_V", "W_O")}
    found["W_E"] = plain.identity(target.width) if target.W_E is None else target.W_E.tolist()
    found["W_U"] = plain.identity(target.width) if target.W_U is None else target.W_U.tolist()
    return found | {name: target.bias(name).tolist() for name in BIASES}


def carries_biases(host: Universal, E: Any, target: BiasedTarget, x: plain.Rows) -> Agreed:
    """Whether E R_all = W_all of the augmented target and the host gives the outputs with biases: the package's, and the
    definitions."""
    kernel, e = RationalAttention(), plain.rows(E)
    own = bool((array(e) @ _dense(r_all(host)) == w_all(target.augmented())).all())
    own &= bool((host.forward(array(x), array(e), kernel) == target.forward(array(x), kernel)).all())
    slow = plain.multiply(e, equations(host)) == biased_equations(target)
    slow &= forward(host, x, e) == run_biased(target, x)
    return agree({"package": own, "plain Fractions": slow})


def folded(target: BiasedTarget) -> BiasedTarget:
    """With a residual stream: the same outputs for every attention, and no b_O. The sum of b_O up to a layer goes into the
    biases of everything that reads behind it."""
    so_far = target.bias("b_O")[0] * 0
    shifted: dict[str, list[Any]] = {"b_Q": [], "b_K": [], "b_V": []}
    for layer in range(target.shape.layers):
        for name, weight in (("b_Q", target.W_Q), ("b_K", target.W_K), ("b_V", target.W_V)):
            shifted[name].append(
                [target.bias(name)[layer][head] + so_far @ weight[layer][head] for head in range(target.shape.heads)]
            )
        so_far = so_far + target.bias("b_O")[layer]
    b_Q, b_K, b_V = (array([[row.tolist() for row in layer] for layer in found]) for found in shifted.values())
    W_U = array(plain.identity(target.width)) if target.W_U is None else target.W_U
    return replace(target, b_Q=b_Q, b_K=b_K, b_V=b_V, b_O=None, b_U=target.bias("b_U") + so_far @ W_U)
