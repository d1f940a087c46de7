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
from utfproof.claims.decisions import rank_of_matrix, small_input
from utfproof.claims.record import Category, Evidence, Figure, Instance, Run, Verdict, agree, same
from utfproof.claims.registry import claim
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


@claim(
    "asm:matching-attention",
    place="Appendix E, the assumption",
    statement="Attention matrices may be any row-stochastic ones; for the argument those with positive entries, which softmax gives, are enough: their vectors v span all H^L dimensions too.",
    scope="I and B moved inwards by ε = 1/7; at (H, L) = (1,1), (2,1), (2,2), (2,3), (3,2)",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="The assumption asks for matrices with zero entries that softmax never gives; the span stays full for positive ones.",
)
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


@claim(
    "thm:lower_bound_matching_attention/untied",
    place="Appendix E, thm:lower_bound_matching_attention",
    statement="For d_in = 1 and values R_V with m² < H^L some untied target cannot be served by any E and U, whatever the values are.",
    about=Scope.of(Notion.SHARED_ATTENTION, "all untied", free="E and U"),
    scope="d_in = 1, H ≥ 2; E and U are chosen before the attention matrices, as the proof uses it (after them too, if n is free: §1 of the page); certificates for three hosts at each shape and for every host by dimension",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    sentence="A relation Σ y_w R_w = 0 and the 0/1 target along a word with y_w ≠ 0: the products break the relation.",
    proof="docs/proofs/shared-attention.md",
)
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


@claim(
    "thm:lower_bound_matching_attention/looped-untied-targets",
    place="Appendix E, closing remark, looped host",
    statement="For a weight-tied host with m² < H^L some untied target cannot be served: the argument does not need untied values.",
    about=Scope.of(Notion.SHARED_ATTENTION, "all untied", hosts="tied", free="E and U"),
    scope="d_in = 1, H ≥ 2; certificates for three tied hosts at each shape and for every tied host by dimension",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY),
    sentence="The relation between the word products of tied values is broken by an untied 0/1 target.",
)
def matching_looped_untied(run: Run) -> Iterator[Instance | Figure]:
    """Null vectors of tied hosts, and the dimension argument for every one."""
    for shape in run.shapes(
        lambda s: s.heads > 1 and s.head_dim == s.d_in == 1, anchors=[(2, 1, 1, 1), *WIDE], largest=60
    ):
        m = least_square_root(shape.leaves) - 1
        detail = f"every tied host, m² < {shape.leaves}"
        yield below(shape, m, Notion.SHARED_ATTENTION, ALL_UNTIED, free="E and U", every="tied host", detail=detail)
        yield from _broken(shape, m, tied=True)


@claim(
    "thm:lower_bound_matching_attention/looped-remark",
    place="Appendix E, closing remark, choice of the weights",
    statement="For every tied host with m² < H^L some relation Σ y_w R_w = 0 has y ≠ 0 at a constant word h*, so that the remark's weights 1[h = h*_l] are the same in every layer and give a looped target.",
    category=Category.REMARK,
    scope="d_in = 1, H = 2, the counting host at m = L + 1, where m² < H^L",
    verdict=Verdict.FAILS.by(Evidence.ARITHMETIC),
    sentence="The printed weights depend on l; for the counting host no relation touches a constant word, so they never give a looped target, and it serves all of these.",
)
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


@claim(
    "eq:lower_bound_matching_term",
    place="Appendix E, eq:lower_bound_matching_term and the coefficients α",
    statement="With equal attention, target minus host is Σ_w A^{L,h_L}⋯A^{1,h_1} X (M_w − E R_w U).",
    category=Category.LEMMA,
    scope="integer weights, positive row-stochastic rational matrices, n = 2",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="Both forward passes and the sum over head words agree as rational numbers.",
)
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


@claim(
    "app:lower_bound/two-tokens",
    place="Appendix E, n = 2 and X = (1, 0)",
    statement="For n = 2 and X = (1, 0)ᵀ the first row of target minus host is Σ_w (A_w)_{11} α_w: the pairing of v with α.",
    category=Category.REMARK,
    scope="d_in = 1, integer weights, positive row-stochastic rational matrices",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="Two tokens are enough: the first row of the difference is v·α.",
)
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


@claim(
    "lem:spanning",
    place="Appendix E, first lemma",
    statement="The vectors v = ((A_{1,h_1}⋯A_{L,h_L})_{11})_h over all row-stochastic A span R^{H^L}: with I where h = s_i and B = [0 1; 0 1] elsewhere, v is the basis vector of s.",
    scope="every H, L: B absorbs I and B on either side; the vectors themselves for H, L ≤ 3 and at (2,6), (3,4)",
    verdict=Verdict.HOLDS.by(Evidence.SYMBOLIC),
    sentence="I B = B I = B B = B settles every H and L; all vectors are computed on a grid as well.",
)
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


@claim(
    "lem:spanning/order",
    place="Appendix E, first lemma against the proof before it",
    statement="The lemma's product A_{1,h_1}⋯A_{L,h_L} is the product A_{L,h_L}⋯A_{1,h_1} of the unrolled sum.",
    category=Category.REMARK,
    scope="L ≥ 2 (equal at L = 1); the repair takes the unrolling's order",
    verdict=Verdict.REPAIRED.by(Evidence.ARITHMETIC),
    sentence="The order is reversed between the two places, and the (1,1) entries differ; harmless, for the same matrices give basis vectors in either order.",
)
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


@claim(
    "lem:null-vector",
    place="Appendix E, second lemma",
    statement="If m² < H^L then for all value matrices the H^L word products satisfy a linear relation y, and the weights 1[h = h*_l] of a word with y_{h*} ≠ 0 have products b with y·b ≠ 0, so b is no tr(R_w X).",
    scope="d_in = 1; three untied and three tied hosts at each shape, largest m with m² < H^L",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="The relation is solved by FLINT and verified, with its pairing, in plain integers.",
)
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


@claim(
    "lem:null-vector/sharp",
    place="Appendix E, second lemma, its hypothesis",
    statement="The hypothesis m² < H^L cannot be relaxed: at m² = H^L some value matrices have independent word products, and no relation exists.",
    category=Category.REMARK,
    scope="even L, m = H^{L/2}: the values of the two-sided register",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="The word products of the two-sided register are the H^L matrix units.",
)
def null_vector_sharp(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the word products of the two-sided register."""
    from utfproof.constructions.shared_attention import two_sided_host
    from utfproof.exact.symbolic.lower_bound import word_products

    for shape in (Shape(*s) for s in [(2, 2, 1, 1), (3, 2, 1, 1), (2, 4, 1, 1)]):
        m = least_square_root(shape.leaves)
        R = array(values_of(two_sided_host(shape, m)))
        found = rank_of_matrix(word_products(R, shape.heads, shape.layers))
        yield Instance(shape, found.value == shape.leaves == m * m, f"rank {found.value}", routes=found.routes, m=m)


@claim(
    "lem:null-vector/U-transposed",
    place="Appendix E, second lemma, E ∏R Uᵀ",
    statement="The lemma's product E R_w Uᵀ is defined for the U of the theorem, which is m×d_in.",
    category=Category.REMARK,
    scope="m ≥ 2, d_in = 1; the repair reads the lemma's U as d_in×m, the theorem's U transposed",
    verdict=Verdict.REPAIRED.by(Evidence.ARITHMETIC),
    sentence="Theorem and lemma type U differently (m×d_in and d_in×m); with the theorem's U the product has sizes that do not fit, with its transpose both products agree.",
)
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


@claim(
    "lem:null-vector/trace",
    place="Appendix E, second lemma, last display",
    statement="For d_in = 1, E R_w Uᵀ = tr(R_w Uᵀ E): the H^L products are linear in the m² entries of one matrix of rank one.",
    scope="d_in = 1, indeterminate E and U, integer values",
    verdict=Verdict.HOLDS.by(Evidence.SYMBOLIC),
    sentence="An identity of polynomials in E and U, expanded by SymPy and in plain integers.",
)
def trace(run: Run) -> Iterator[Instance | Figure]:
    """The padding identity at d_in = 1 is the trace identity."""
    yield from _padded(1)


@claim(
    "lem:null-vector/any-width",
    place="Appendix E, second lemma: W^{l,h} is d_in×d_in",
    statement="The lemma is true for every d_in: targets W^{l,h}·e_1e_1ᵀ reduce it to d_in = 1, entry (1,1) of E R_w U being tr(R_w X) with X the product of U's first column and E's first row.",
    category=Category.REMARK,
    scope="d_in = 2, indeterminate E and U, integer values, m² < H^L",
    verdict=Verdict.HOLDS.by(Evidence.SYMBOLIC),
    sentence="The lemma speaks of d_in×d_in matrices while its proof writes scalars; padding closes the gap.",
)
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


@claim(
    "lem:null-vector/looped-weights",
    place="Appendix E, second lemma and closing remark",
    statement="The weights 1[h = h*_l] are those of a looped target exactly when h* repeats one head.",
    category=Category.REMARK,
    scope="every H, L examined: all words",
    verdict=Verdict.HOLDS.by(Evidence.GRID),
    sentence="H of the H^L words are constant; all others make the weights depend on the layer.",
)
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
