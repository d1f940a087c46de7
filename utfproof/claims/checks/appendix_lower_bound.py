"""Appendix E: the lower bound's statement, its two lemmas, and the closing remark on looped transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, GENERIC_UNTIED, least_square_root
from utfproof.certificates.lower_bounds import null_vector_certificate
from utfproof.claims import plain
from utfproof.claims.bounds import below
from utfproof.claims.claim import REPAIR, Agreed, Figure, Instance, Run, agree, check, each, label
from utfproof.claims.decisions import rank_of_matrix, small_input
from utfproof.claims.small_models import array, drawn, path_sum, stochastic_grid, value_grid, values_of
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_dimension
from utfproof.ground.notions import Hosts, Notion, Scope, Targets
from utfproof.shapes import Shape, head_words
from utfproof.systems import GivenAttention, SharedAttentionUniversal, prefix_products


def _values(shape: Shape, m: int, tied: bool) -> Iterator[np.ndarray]:
    """Three hosts: integer draws, all values equal to the identity, and draws of rank one."""
    lead = value_grid(shape, m, 11, tied=tied)
    identity = [[plain.identity(m)] * shape.heads] * shape.layers
    flat = [[[row if i == 0 else [0] * m for i, row in enumerate(matrix)] for matrix in layer] for layer in lead]
    for grid in (lead, identity, flat):
        yield array(grid[0] if tied else grid)


@check("asm:matching-attention")
def matching_attention(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the vectors for positive matrices, by FLINT and by plain integers."""
    from utfproof.exact.symbolic.lower_bound import MOVE, STAY

    eps = Fraction(1, 7)
    stay, move = ([[(1 - eps) * v + eps / 2 for v in row] for row in matrix] for matrix in (STAY, MOVE))
    rows = [*stay, *move]
    proper = all(v > 0 for row in rows for v in row) and all(sum(row) == 1 for row in rows)
    for heads, layers in ((1, 1), (2, 1), (2, 2), (2, 3), (3, 2)):
        words = list(plain.words(heads, layers))
        patterns = [[[stay if a == b else move for a, b in zip(word, s, strict=True)] for word in words] for s in words]
        found = rank_of_matrix([[plain.product(pattern)[0][0] for pattern in row] for row in patterns])
        holds = proper and found.value == len(words)
        yield found.at(f"({heads},{layers})", f"rank {found} of {len(words)}", holds=holds)


@each("thm:lower_bound_matching_attention/untied")
def matching_untied(shape: Shape) -> Iterator[Instance]:
    """Null vectors of given hosts, and the dimension argument, at the largest m below the bound."""
    yield from _broken(shape, tied=False, largest=64)


@each("thm:lower_bound_matching_attention/looped-untied-targets")
def matching_looped_untied(shape: Shape) -> Iterator[Instance]:
    """Null vectors of tied hosts, and the dimension argument for every one."""
    yield from _broken(shape, tied=True, largest=10**6)


def _broken(shape: Shape, *, tied: bool, largest: int) -> Iterator[Instance]:
    """The dimension argument for every host, and null vectors of three hosts that are looked at, for H^L up to a limit."""
    m, every = least_square_root(shape.leaves) - 1, "tied host" if tied else "host"
    targets, detail = ALL_UNTIED if tied else GENERIC_UNTIED, f"every {every}, m² < {shape.leaves}"
    yield below(shape, m, Notion.SHARED_ATTENTION, targets, free="E and U", every=every, detail=detail)
    about = Scope(Notion.SHARED_ATTENTION, Targets.parse("all untied"), Hosts(tied=tied, examined=True), "E and U")
    for R in _values(shape, m, tied) if shape.leaves <= largest else ():
        found = null_vector_certificate(R, shape, tied=tied)
        detail = "a relation and a target that breaks it"
        yield Instance(shape, not found.universal, detail, found, m=m, about=about)


@check("thm:lower_bound_matching_attention/looped-remark")
def looped_remark(run: Run) -> Iterator[Instance | Figure]:
    """Whether e_s lies in the column space of the word products: then no relation has s in it."""
    from utfproof.constructions.shared_attention import counting_host
    from utfproof.exact.symbolic.lower_bound import null_vector, word_products

    for layers in (6, 7):
        shape = Shape(2, layers, 1, 1)
        m = counting_dimension(shape)
        R = array(values_of(counting_host(shape, m))[0])
        A = word_products(R, 2, layers, tied=True)
        found = null_vector(R, 2, layers, tied=True)
        rank = rank_of_matrix(A)
        untouched = []
        for i, word in enumerate(head_words(2, layers)):
            if len(set(word)) > 1 and layers > 6:
                continue
            unit = np.zeros((len(A), 1), dtype=object)
            unit[i, 0] = 1
            # the rows of A depend on the counts alone: the distinct columns suffice
            if rank_of_matrix(np.concatenate([_distinct_columns(A), unit], axis=1)).value == rank.value:
                untouched.append(word)
        constant = [word for word in untouched if len(set(word)) == 1]
        assert found is not None  # m^2 < H^L
        detail = f"relations: {shape.leaves - rank.value}; words in none of them: {len(untouched)}"
        yield rank.at(f"({shape.heads},{shape.layers}), m = {m}", detail, holds=len(constant) < shape.heads)


def _distinct_columns(A: np.ndarray) -> np.ndarray:
    kept = {tuple(column): None for column in A.T if any(column)}
    return array(list(kept)).T


def _difference(shape: Shape, m: int, x: plain.Rows, *, tied: bool = False) -> Agreed:
    """T(X) less the host's output under one given attention: by forward passes of the package, and word by word."""
    grid, target = value_grid(shape, m, 5, tied=tied), integer_target(shape, 6)
    E, U, attention = drawn(7, shape.d_in, m), drawn(8, m, shape.d_out), stochastic_grid(shape, len(x), 9)
    model = SharedAttentionUniversal(shape, m, array(grid))
    theirs = target.forward(array(x), GivenAttention(array(attention)))
    own = plain.rows(theirs - model.forward(array(x), array(E), array(U), array(attention)))
    forms = [[plain.maps(target, layer, h)[2] for h in range(shape.heads)] for layer in range(shape.layers)]
    one = plain.identity(shape.d_in)
    ours = [[-v for v in row] for row in path_sum(grid, attention, x, E, U)]
    return agree({"systems": own, "plain path sum": plain.add(path_sum(forms, attention, x, one, one), ours)})


@check("eq:lower_bound_matching_term")
def matching_term(run: Run) -> Iterator[Instance | Figure]:
    """Forward passes of the package against the difference, word by word."""
    for shape in (Shape(*s) for s in [(1, 1, 1, 1), (2, 2, 1, 1), (2, 2, 1, 2), (3, 2, 1, 1)]):
        for tied in (False, True):
            found = _difference(shape, 3, small_input(shape, 2), tied=tied)
            yield found.at(f"{label(shape)}, {'tied' if tied else 'untied'}", "equal differences", holds=True)


@check("app:lower_bound/two-tokens")
def two_tokens(run: Run) -> Iterator[Instance | Figure]:
    """The first row of the difference against v·α in plain Fractions."""
    for shape in (Shape(*s) for s in [(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1), (3, 2, 1, 1)]):
        m, target = 2, integer_target(shape, 6)
        found = _difference(shape, m, [[1], [0]])
        grid, attention = value_grid(shape, m, 5), stochastic_grid(shape, 2, 9)
        E, U, total = drawn(7, 1, m), drawn(8, m, 1), Fraction(0)
        products = prefix_products(target, shape.layers)
        for product, word in zip(products, plain.words(shape.heads, shape.layers), strict=True):
            mixed, routed = plain.identity(2), E
            for layer, head in enumerate(word):
                mixed = plain.multiply(attention[layer][head], mixed)
                routed = plain.multiply(routed, grid[layer][head])
            total += mixed[0][0] * (int(product[0, 0]) - plain.multiply(routed, U)[0][0])
        yield found.at(shape, f"first row {total}", holds=found.value[0][0] == total)


@check("lem:spanning")
def spanning_lemma(run: Run) -> Iterator[Instance | Figure]:
    """The absorbing identities, and all vectors v at small H and L."""
    from utfproof.exact.symbolic.lower_bound import MOVE, STAY, spanning

    pairs = [(STAY, MOVE), (MOVE, STAY), (MOVE, MOVE)]
    found = agree(
        {
            "NumPy": all((array(a) @ array(b) == array(MOVE)).all() for a, b in pairs),
            "plain integers": all(plain.multiply(a, b) == MOVE for a, b in pairs),
        }
    )
    yield found.at("every H, L", "I B = B I = B B = B")
    for heads, layers in sorted({(s.heads, s.layers) for s in run.shapes() if s.leaves <= 128}):
        result = spanning(heads, layers)
        holds = result.holds and result.rank == heads**layers
        yield Instance(f"({heads},{layers})", holds, f"rank {result.rank}", routes=result.routes)


@check("lem:spanning/order")
def spanning_order(run: Run) -> Iterator[Instance | Figure]:
    """Products of positive matrices in both orders; then the lemma in the unrolling's order."""
    from utfproof.exact.symbolic.lower_bound import spanning

    for heads, layers in ((2, 1), (2, 2), (2, 3), (3, 2)):
        attention = stochastic_grid(Shape(heads, layers, 1, 1), 2, 3)
        slow = own = True
        for word in head_words(heads, layers):
            factors = [attention[layer][head] for layer, head in enumerate(word)]
            slow &= plain.product(factors)[0][0] == plain.product(factors[::-1])[0][0]
            arrays = [array(factor) for factor in factors]
            own &= reduce(np.matmul, arrays)[0, 0] == reduce(np.matmul, arrays[::-1])[0, 0]
        found = agree({"NumPy": own, "plain Fractions": slow})
        yield found.at(f"({heads},{layers})", "(1,1) entries in both orders")
        result = spanning(heads, layers, order="unrolling")
        at = f"({heads},{layers}), unrolling's order"
        yield Instance(at, result.holds, f"rank {result.rank}", routes=result.routes, part=REPAIR)


@each("lem:null-vector")
def null_vector_lemma(shape: Shape) -> Iterator[Instance]:
    """Relations and pairings; the augmented matrix [A, b] has a larger rank."""
    from utfproof.exact.symbolic.lower_bound import null_vector, word_products

    m = least_square_root(shape.leaves) - 1
    for tied in (False, True):
        for R in _values(shape, m, tied):
            found = null_vector(R, shape.heads, shape.layers, tied=tied)
            assert found is not None
            b = [[int(word == found.word)] for word in head_words(shape.heads, shape.layers)]
            A = word_products(R, shape.heads, shape.layers, tied=tied)
            wider = rank_of_matrix(np.concatenate([A, array(b)], axis=1))
            holds = found.pairing != 0 and wider.value == found.rank + 1
            kind = "tied" if tied else "untied"
            yield wider.at(shape, f"{kind}, rank {found.rank} then {wider}", holds=holds, m=m)


@check("lem:null-vector/sharp")
def null_vector_sharp(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the word products of the two-sided register."""
    from utfproof.constructions.shared_attention import two_sided_host
    from utfproof.exact.symbolic.lower_bound import word_products

    for shape in (Shape(*s) for s in [(2, 2, 1, 1), (3, 2, 1, 1), (2, 4, 1, 1)]):
        m = least_square_root(shape.leaves)
        R = array(values_of(two_sided_host(shape, m)))
        found = rank_of_matrix(word_products(R, shape.heads, shape.layers))
        yield found.at(shape, f"rank {found}", holds=found.value == shape.leaves == m * m, m=m)


@check("lem:null-vector/U-transposed")
def u_transposed(run: Run) -> Iterator[Instance | Figure]:
    """Multiply with the theorem's U as it stands in the model, and with its transpose."""
    for m in (2, 3):
        shape = Shape(2, 2, 1, 1)
        grid, E, tall = value_grid(shape, m, 5), drawn(7, 1, m), drawn(8, m, 1)
        model = SharedAttentionUniversal(shape, m, array(grid))
        theorem = tall if _taken(model, E, tall) else plain.transpose(tall)
        routed = plain.multiply(plain.multiply(E, grid[0][0]), grid[1][1])
        wanted = plain.multiply(routed, tall)
        for part, U, name in (("", theorem, "theorem's U"), (REPAIR, plain.transpose(theorem), "lemma's U")):
            found = _times(routed, U)
            yield found.at(f"m = {m}, {name}", "sizes and value", holds=found.value == wanted, part=part)


def _times(routed: plain.Rows, U: plain.Rows) -> Agreed:
    """routed Uᵀ, None where the sizes do not fit."""
    numpy = _or_none(lambda: plain.rows(array(routed) @ array(U).T))
    return agree({"NumPy": numpy, "plain": _or_none(lambda: plain.multiply(routed, plain.transpose(U)))})


def _taken(model: SharedAttentionUniversal, E: plain.Rows, U: plain.Rows) -> bool:
    """Whether the model takes an unembedding of this size."""
    attention = stochastic_grid(model.shape, 1)
    return _or_none(lambda: model.forward(array([[1]]), array(E), array(U), array(attention))) is not None


def _or_none(product: Callable[[], Any]) -> Any:
    """A product, None where the sizes do not fit."""
    try:
        return product()
    except ValueError:
        return None


@check("lem:null-vector/trace")
def trace(run: Run) -> Iterator[Instance | Figure]:
    """The padding identity at d_in = 1 is the trace identity."""
    yield from _padded(1)


@check("lem:null-vector/any-width")
def any_width(run: Run) -> Iterator[Instance | Figure]:
    """The padding identity at d_in = 2."""
    yield from _padded(2)


def _padded(d_in: int) -> Iterator[Instance]:
    """Targets M^{l,h} = W^{l,h} e_1 e_1^T. (E R_w U)_{1,1} is bilinear in the first row of E and the first column of U: units
    say it for all E and U."""
    from utfproof.exact.symbolic.lower_bound import null_vector

    for heads, layers, m in ((2, 2, 1), (3, 2, 2), (2, 3, 2)):
        grid = value_grid(Shape(heads, layers, 1, 1), m, 11)
        relation = null_vector(array(grid), heads, layers)
        assert relation is not None
        words = list(head_words(heads, layers))
        sums = {"NumPy": np.zeros((m, m), dtype=object), "plain integers": np.zeros((m, m), dtype=object)}
        traces = True
        for coefficient, word in zip(relation.y, words, strict=True):
            factors = [grid[layer][head] for layer, head in enumerate(word)]
            for i, j in np.ndindex(m, m):
                E, U = drawn(1, d_in, m), drawn(2, m, d_in)
                E[0] = [int(k == i) for k in range(m)]
                U = [[int(k == j), *row[1:]] for k, row in enumerate(U)]
                X = plain.multiply([row[:1] for row in U], E[:1])
                entry = plain.product([E, *factors, U])[0][0]
                traces &= entry == np.trace(reduce(np.matmul, map(array, [*factors, X])))
                sums["plain integers"][i, j] += coefficient * entry
                sums["NumPy"][i, j] += coefficient * reduce(np.matmul, map(array, [E, *factors, U]))[0, 0]
        vanish = agree({name: not total.any() for name, total in sums.items()})
        holds = traces and vanish.value and relation.pairing == relation.y[words.index(relation.word)] != 0
        yield vanish.at(Shape(heads, layers, 1, 1), f"{len(words)} words", holds=holds, m=m)


@check("lem:null-vector/looped-weights")
def looped_weights(run: Run) -> Iterator[Instance | Figure]:
    """The weights of every word, layer by layer, against constancy; the count is H."""
    from utfproof.exact.symbolic.lower_bound import NullVector

    for heads, layers in ((2, 2), (3, 2), (2, 6)):
        weights, words = [], []
        for word in plain.words(heads, layers):
            one_hot = tuple(tuple(int(head == letter) for head in range(heads)) for letter in word)
            weights.append(NullVector(heads, layers, 1, (), word, one_hot, 1, 0).tied_target)
            words.append(len(set(word)) == 1)
        tied = agree({"weights": weights, "words": words})
        yield tied.at(f"({heads},{layers})", f"{sum(words)} words", holds=sum(words) == heads)
