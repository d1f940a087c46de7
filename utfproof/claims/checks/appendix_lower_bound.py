"""Appendix E: the lower bound's statement, its two lemmas, and the closing remark on looped transformers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.certificates.dimensions import ALL_UNTIED, least_square_root
from utfproof.claims import plain
from utfproof.claims.bounds import below
from utfproof.claims.claim import Figure, Instance, Run, agree, check, same
from utfproof.claims.decisions import rank_of_matrix, small_input
from utfproof.claims.small_models import array, drawn, path_sum, stochastic_grid, value_grid, values_of
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_dimension
from utfproof.ground.notions import Hosts, Notion, Scope, Targets
from utfproof.shapes import Shape, head_words
from utfproof.systems import GivenAttention, SharedAttentionUniversal, prefix_products

WIDE = [(2, 2, 1, 1), (2, 3, 1, 1), (3, 2, 1, 1), (2, 4, 1, 1)]
"""Shapes at which value matrices of more than one entry are below the bound, from (2,3) on."""


def _at(shape: Shape, m: int) -> str:
    return f"({shape.heads},{shape.layers}), m = {m}"


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

    def inward(matrix: Sequence[Sequence[int]]) -> plain.Rows:
        return [[(1 - eps) * v + eps / 2 for v in row] for row in matrix]

    stay, move = inward(STAY), inward(MOVE)
    positive = all(v > 0 for matrix in (stay, move) for row in matrix for v in row)
    stochastic = all(sum(row) == 1 for matrix in (stay, move) for row in matrix)
    for heads, layers in ((1, 1), (2, 1), (2, 2), (2, 3), (3, 2)):
        words = list(plain.words(heads, layers))
        table = []
        for s in words:
            entries = []
            for word in words:
                product = plain.identity(2)
                for letter, wanted in zip(word, s, strict=True):
                    product = plain.multiply(product, stay if letter == wanted else move)
                entries.append(product[0][0])
            table.append(entries)
        found = rank_of_matrix(table)
        holds = positive and stochastic and found.value == heads**layers
        yield Instance(f"({heads},{layers})", holds, f"rank {found.value} of {heads**layers}", routes=found.routes)


@check("thm:lower_bound_matching_attention/untied")
def matching_untied(run: Run) -> Iterator[Instance | Figure]:
    """Null vectors of given hosts, and the dimension argument, at the largest m below the bound."""
    for shape in run.shapes(
        lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), *WIDE, (2, 6, 1, 1)]
    ):
        m = least_square_root(shape.leaves) - 1
        yield below(shape, m, Notion.SHARED_ATTENTION, free="E and U", detail=f"every host, m² < {shape.leaves}")
        if shape.leaves <= 64:
            yield from _broken(shape, m, tied=False)


def _broken(shape: Shape, m: int, *, tied: bool) -> Iterator[Instance]:
    """Null vectors of three hosts that are looked at."""
    from utfproof.certificates.lower_bounds import null_vector_certificate

    for R in _values(shape, m, tied):
        found = null_vector_certificate(R, shape, tied=tied)
        about = Scope(Notion.SHARED_ATTENTION, Targets.parse("all untied"), Hosts(tied=tied, examined=True), "E and U")
        detail = "a relation and a target that breaks it"
        yield Instance(shape, not found.universal, detail, found, m=m, about=about)


@check("thm:lower_bound_matching_attention/looped-untied-targets")
def matching_looped_untied(run: Run) -> Iterator[Instance | Figure]:
    """Null vectors of tied hosts, and the dimension argument for every one."""
    for shape in run.shapes(
        lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), *WIDE], largest=60
    ):
        m = least_square_root(shape.leaves) - 1
        detail = f"every tied host, m² < {shape.leaves}"
        yield below(shape, m, Notion.SHARED_ATTENTION, ALL_UNTIED, free="E and U", every="tied host", detail=detail)
        yield from _broken(shape, m, tied=True)


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
        holds = len(constant) < shape.heads
        detail = f"relations: {shape.leaves - rank.value}; words in none of them: {len(untouched)}"
        yield Instance(_at(shape, m), holds, detail, routes=rank.routes)
        if layers == 6:
            yield Figure("independent relations at (2,6), m = 7", shape.leaves - rank.value)
            yield Figure("words that occur in no relation", len(untouched))


def _distinct_columns(A: np.ndarray) -> np.ndarray:
    kept = {tuple(column): None for column in A.T if any(column)}
    return array(list(kept)).T


@check("eq:lower_bound_matching_term")
def matching_term(run: Run) -> Iterator[Instance | Figure]:
    """Forward passes of the package against the difference, word by word."""
    for shape in (Shape(*s) for s in [(1, 1, 1, 1), (2, 2, 1, 1), (2, 2, 1, 2), (3, 2, 1, 1)]):
        for tied in (False, True):
            m, n = 3, 2
            grid, target = value_grid(shape, m, 5, tied=tied), integer_target(shape, 6)
            E, U = drawn(7, shape.d_in, m), drawn(8, m, shape.d_out)
            attention, x = stochastic_grid(shape, n, 9), small_input(shape, n)
            model = SharedAttentionUniversal(shape, m, array(grid))
            theirs = target.forward(array(x), GivenAttention(array(attention)))
            own = plain.rows(theirs - model.forward(array(x), array(E), array(U), array(attention)))
            forms = [
                [plain.product(target.parameters(layer, h)[2:]) for h in range(shape.heads)]
                for layer in range(shape.layers)
            ]
            one = plain.identity(shape.d_in)
            slow = plain.add(
                path_sum(forms, attention, x, one, one),
                [[-v for v in row] for row in path_sum(grid, attention, x, E, U)],
            )
            at = f"({shape.heads},{shape.layers},{shape.head_dim},{shape.d_in}), {'tied' if tied else 'untied'}"
            both = same({"systems": own, "plain path sum": slow})
            yield Instance(at, both.value, "equal differences", routes=both.routes)


@check("app:lower_bound/two-tokens")
def two_tokens(run: Run) -> Iterator[Instance | Figure]:
    """The first row of the package's difference against v·α in plain Fractions."""
    for shape in (Shape(*s) for s in [(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1), (3, 2, 1, 1)]):
        m = 2
        grid, target, attention = value_grid(shape, m, 5), integer_target(shape, 6), stochastic_grid(shape, 2, 9)
        E, U, x = drawn(7, 1, m), drawn(8, m, 1), [[1], [0]]
        model = SharedAttentionUniversal(shape, m, array(grid))
        theirs = target.forward(array(x), GivenAttention(array(attention)))
        own = (theirs - model.forward(array(x), array(E), array(U), array(attention)))[0, 0]
        products = prefix_products(target, shape.layers)
        total = Fraction(0)
        for i, word in enumerate(plain.words(shape.heads, shape.layers)):
            mixed, routed = plain.identity(2), E
            for layer, head in enumerate(word):
                mixed = plain.multiply(attention[layer][head], mixed)
                routed = plain.multiply(routed, grid[layer][head])
            total += mixed[0][0] * (int(products[i][0, 0]) - plain.multiply(routed, U)[0][0])
        both = same({"systems": own, "plain path sum": total})
        yield Instance(shape, both.value, f"first row {total}", routes=both.routes)


@check("lem:spanning")
def spanning_lemma(run: Run) -> Iterator[Instance | Figure]:
    """The absorbing identities, and all vectors v at small H and L."""
    from utfproof.exact.symbolic.lower_bound import absorbing_identity, spanning

    found = absorbing_identity()
    yield Instance("every H, L", found.holds, "I B = B I = B B = B", routes=found.routes)
    shapes = {(s.heads, s.layers) for s in run.shapes(anchors=[(2, 6, 1, 1), (3, 4, 1, 1)]) if s.leaves <= 128}
    for heads, layers in sorted(shapes):
        result = spanning(heads, layers)
        holds = result.holds and result.rank == heads**layers
        yield Instance(f"({heads},{layers})", holds, f"rank {result.rank}", routes=result.routes)
    yield Figure("vectors at (2,6)", spanning(2, 6).vectors)


@check("lem:spanning/order")
def spanning_order(run: Run) -> Iterator[Instance | Figure]:
    """Products of positive matrices in both orders; then the lemma in the unrolling's order."""
    from utfproof.exact.symbolic.lower_bound import spanning

    for heads, layers in ((2, 1), (2, 2), (2, 3), (3, 2)):
        shape = Shape(heads, layers, 1, 1)
        attention = stochastic_grid(shape, 2, 3)
        same = {"NumPy": True, "plain Fractions": True}
        for word in head_words(heads, layers):
            factors = [attention[layer][head] for layer, head in enumerate(word)]
            forward, backward = plain.product(factors), plain.product(factors[::-1])
            same["plain Fractions"] &= forward[0][0] == backward[0][0]
            arrays = [array(factor) for factor in factors]
            same["NumPy"] &= _chain(arrays)[0, 0] == _chain(arrays[::-1])[0, 0]
        found = agree(same)
        yield Instance(f"({heads},{layers})", bool(found), "(1,1) entries in both orders", routes=found.routes)
        result = spanning(heads, layers, order="unrolling")
        at = f"({heads},{layers}), unrolling's order"
        yield Instance(at, result.holds, f"rank {result.rank}", routes=result.routes, part="repair")


def _chain(matrices: Sequence[np.ndarray]) -> Any:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = product @ matrix
    return product


@check("lem:null-vector")
def null_vector_lemma(run: Run) -> Iterator[Instance | Figure]:
    """Relations and pairings; the augmented matrix [A, b] has a larger rank."""
    from utfproof.exact.symbolic.lower_bound import null_vector, word_products

    for shape in run.shapes(
        lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), *WIDE], largest=60
    ):
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
                yield Instance(shape, holds, f"{kind}, rank {found.rank} then {wider.value}", routes=wider.routes, m=m)


@check("lem:null-vector/sharp")
def null_vector_sharp(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the word products of the two-sided register."""
    from utfproof.constructions.shared_attention import two_sided_host
    from utfproof.exact.symbolic.lower_bound import word_products

    for shape in (Shape(*s) for s in [(2, 2, 1, 1), (3, 2, 1, 1), (2, 4, 1, 1)]):
        m = least_square_root(shape.leaves)
        R = array(values_of(two_sided_host(shape, m)))
        found = rank_of_matrix(word_products(R, shape.heads, shape.layers))
        yield Instance(shape, found.value == shape.leaves == m * m, f"rank {found.value}", routes=found.routes, m=m)


@check("lem:null-vector/U-transposed")
def u_transposed(run: Run) -> Iterator[Instance | Figure]:
    """Multiply with the theorem's U as it stands in the model, and with its transpose."""
    for m in (2, 3):
        shape = Shape(2, 2, 1, 1)
        grid, E, entries = value_grid(shape, m, 5), drawn(7, 1, m), drawn(8, m, 1)
        model = SharedAttentionUniversal(shape, m, array(grid))
        tall, flat = entries, plain.transpose(entries)
        theorem = tall if _taken(model, E, tall) else flat
        routed = plain.multiply(plain.multiply(E, grid[0][0]), grid[1][1])
        wanted = plain.multiply(routed, tall)
        for part, U, name in (("", theorem, "theorem's U"), ("repair", plain.transpose(theorem), "lemma's U")):
            found = agree({"NumPy": _numpy_product(routed, U), "plain": _plain_product(routed, U)})
            yield Instance(f"m = {m}, {name}", found.value == wanted, "sizes and value", routes=found.routes, part=part)


def _taken(model: SharedAttentionUniversal, E: plain.Rows, U: plain.Rows) -> bool:
    """Whether the model takes an unembedding of this size."""
    attention = stochastic_grid(model.shape, 1)
    try:
        model.forward(array([[1]]), array(E), array(U), array(attention))
    except ValueError:
        return False
    return True


def _numpy_product(routed: plain.Rows, U: plain.Rows) -> plain.Rows | None:
    try:
        return plain.rows(array(routed) @ array(U).T)
    except ValueError:
        return None


def _plain_product(routed: plain.Rows, U: plain.Rows) -> plain.Rows | None:
    try:
        return plain.multiply(routed, plain.transpose(U))
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
    from utfproof.exact.symbolic.lower_bound import null_vector, padding_identity

    for heads, layers, m in ((2, 2, 1), (3, 2, 2), (2, 3, 2)):
        shape = Shape(heads, layers, 1, 1)
        R = array(value_grid(shape, m, 11))
        relation = null_vector(R, heads, layers)
        assert relation is not None
        found = padding_identity(R, relation, d_in)
        yield Instance(shape, found.holds, f"{found.terms} terms compared", routes=found.routes, m=m)


@check("lem:null-vector/looped-weights")
def looped_weights(run: Run) -> Iterator[Instance | Figure]:
    """The weights of every word, layer by layer, against constancy; the count is H."""
    from utfproof.exact.symbolic.lower_bound import NullVector

    for heads, layers in ((2, 2), (3, 2), (2, 6)):
        tied = 0
        for word in itertools.product(range(heads), repeat=layers):
            weights = tuple(tuple(int(head == letter) for head in range(heads)) for letter in word)
            both = agree(
                {
                    "weights": NullVector(heads, layers, 1, (), word, weights, 1, 0).tied_target,
                    "words": len(set(word)) == 1,
                }
            )
            tied += both.value
        yield Instance(f"({heads},{layers})", tied == heads, f"{tied} words", routes=both.routes)
        if (heads, layers) == (2, 6):
            yield Figure("words at (2,6) whose weights are tied", tied)
