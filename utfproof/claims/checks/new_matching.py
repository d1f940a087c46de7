"""New results on matching: isolating targets, the decision theorem, ranks modulo primes, the three notions.

The emulation lemma stands in `new_emulation`; hosts that meet the bound, tied targets and hosts outside the theory in
`new_matching_hosts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from utfproof.certificates.linear_test import test_columns as linear_test_columns
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.certificates.sources import RandomDraw
from utfproof.claims import plain
from utfproof.claims.bounds import served
from utfproof.claims.claim import Agreed, Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, dense, exact_emulation, rank_modulo, rank_of
from utfproof.claims.linear import flint_rank, full_rank_host, integer_host
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.exact import gfp, rational
from utfproof.exact.symbolic.determinant import integer_determinant
from utfproof.matching import distance_bound, embed, isolating_target, r_all, w_all
from utfproof.shapes import (
    Shape,
    linear_test_dimension,
    matching_dimension,
    paper_looped_dimension,
    shared_key_dimension,
)
from utfproof.systems import Target, Universal

SMALLEST = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)]


# --- the decision theorem ------------------------------------------------------------------------------------------


@check("new:isolating-targets")
def isolating_targets(run: Run) -> Iterator[Instance | Figure]:
    """W_all of every isolating target, by the package and word by word."""
    for shape in run.shapes(anchors=SMALLEST, largest=24):
        M = matching_dimension(shape)
        unit = {
            column: [[int(i == 0 and j == column) for j in range(M)] for i in range(shape.d_in)] for column in range(M)
        }
        targets = {column: isolating_target(shape, column) for column in range(M)}
        own = sum(dense(w_all(target)).tolist() == unit[column] for column, target in targets.items())
        slow = sum(plain.equations(target) == unit[column] for column, target in targets.items())
        both = agree({"matching": own, "plain integers": slow})
        yield Instance(shape, both.value == M, f"{both.value} of {M} columns", routes=both.routes)
        if label(shape) == "(2,2,1,2)":
            yield Figure("targets at (2,2,1,2)", both.value)


@check("new:decision-theorem/full-rank")
def decision_full_rank(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of full rank, and an E solved for a sample target."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        M = matching_dimension(shape)
        for name in ("sparse", "tied", "random", "random-tied"):
            yield decided(name, shape, M)
        host, target = full_rank_host(shape), integer_target(shape, seed=1)
        E = rational.solve_left(dense(r_all(host)), dense(w_all(target)))
        solved = agree(
            {
                "plain Fractions": E is not None
                and plain.multiply(plain.rows(E), plain.equations(host)) == plain.equations(target),
                "matching": E is not None and bool((dense(E) @ dense(r_all(host)) == dense(w_all(target))).all()),
            }
        )
        yield Instance(shape, bool(solved), "E R_all = W_all solved exactly", routes=solved.routes, m=host.m)


@check("new:decision-theorem/deficient")
def decision_deficient(run: Run) -> Iterator[Instance | Figure]:
    """Hosts of deficient rank: z, its isolating target, and the unsolvable system."""
    for shape in run.shapes(anchors=SMALLEST, largest=16):
        M = matching_dimension(shape)
        hosts = [integer_host(shape, M, 2, equal_readers=True), integer_host(shape, M - 1, 2, tied=True)]
        for host in hosts + ([build_host("printed-looped", shape)] if shape.heads > 1 else []):
            matrix = dense(r_all(host))
            z = rational.kernel_vector(matrix)
            assert z is not None
            column = max(range(M), key=lambda j: abs(z[j]))
            target = isolating_target(shape, column)
            unsolvable = rational.solve_left(matrix, dense(w_all(target))) is None
            ours, theirs = (
                plain.multiply(rows, [[v] for v in z]) for rows in (plain.equations(host), plain.equations(target))
            )
            both = agree({"FLINT": unsolvable, "plain integers": any(map(any, theirs)) and not any(map(any, ours))})
            yield Instance(shape, both.value, f"column {column}", routes=both.routes, m=host.m)


@check("new:decision-theorem/distance")
def decision_distance(run: Run) -> Iterator[Instance | Figure]:
    """Exact least squares against z_c^2 / |z|^2."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        M = matching_dimension(shape)
        for host in (integer_host(shape, M, 2, equal_readers=True), integer_host(shape, M - 1, 3)):
            matrix = dense(r_all(host))
            z = rational.kernel_vector(matrix)
            assert z is not None
            column = max(range(M), key=lambda j: abs(z[j]))
            bound = distance_bound(z, column)
            deficiency = M - rank_of(host).value
            distances = agree({"row space": _distance_to_rows(matrix, column), "kernel": _kernel_part(matrix, column)})
            holds = distances.value >= bound > 0 and (deficiency > 1 or distances.value == bound)
            yield Instance(shape, holds, f"{distances.value} >= {bound}", routes=distances.routes, m=host.m)


def _distance_to_rows(matrix: np.ndarray, column: int) -> Fraction:
    """Squared distance of the unit vector of a column to the row space: a ratio of Gram determinants, in plain integers."""
    basis: plain.Rows = []
    for row in plain.rows(matrix):
        if plain.rank([*basis, row]) > len(basis):
            basis.append(row)
    unit = [int(j == column) for j in range(matrix.shape[1])]
    wide, gram = (plain.multiply(rows, plain.transpose(rows)) for rows in ([*basis, unit], basis))
    return Fraction(integer_determinant(wide), integer_determinant(gram))


def _kernel_part(matrix: np.ndarray, column: int) -> Fraction:
    """|projection of the unit vector onto the kernel|^2, by FLINT: its nullspace, and the inverse of that one's Gram matrix."""
    from flint import fmpq_mat, fmpz_mat

    space, nullity = fmpz_mat(plain.rows(matrix)).nullspace()
    kernel = fmpz_mat([[int(space[i, j]) for i in range(matrix.shape[1])] for j in range(nullity)])
    part = fmpq_mat(fmpz_mat([[int(kernel[j, column]) for j in range(nullity)]]))
    found = (part * fmpq_mat(kernel * kernel.transpose()).inv() * part.transpose())[0, 0]
    return Fraction(int(found.p), int(found.q))


@check("new:matching-lower-bound")
def matching_lower_bound(run: Run) -> Iterator[Instance | Figure]:
    """A lower bound at M - 1, certificates at M."""
    for shape in run.shapes(anchors=SMALLEST, largest=120):
        M = matching_dimension(shape)
        refuted = dimension_certificate(shape, M - 1)
        yield Instance(shape, not refuted.universal, f"no host below M = {M}", refuted, m=M - 1)
        for name in ("sparse", "tied"):
            yield decided(name, shape, M)


# --- ranks modulo a prime ------------------------------------------------------------------------------------------


@check("new:one-instance/full")
def one_instance(run: Run) -> Iterator[Instance | Figure]:
    """Full rank modulo a prime and over the rationals at one host; certificates at others drawn by other laws."""
    for shape in run.shapes(anchors=SMALLEST, largest=12):
        host = full_rank_host(shape)
        M = matching_dimension(shape)
        rank = rank_of(host)
        yield Instance(shape, rank.value == M, "full modulo a prime and over the rationals", routes=rank.routes, m=M)
        for law in ("uniform", "binomial"):
            yield decided("random", shape, M, seed=5, law=law)


@check("new:one-instance/deficient")
def deficient_modulo(run: Run) -> Iterator[Instance | Figure]:
    """Integer hosts of full rank whose determinant 3 divides."""
    for shape in run.shapes(anchors=SMALLEST, largest=10):
        M = matching_dimension(shape)
        for seed in range(60):
            host = integer_host(shape, M, seed)
            matrix = dense(r_all(host))
            if rank_modulo(matrix, 3) == M or rank_modulo(matrix) < M:
                continue
            flint = agree({"own engine": rank_modulo(matrix, 3), "FLINT": flint_rank(matrix, 3)})
            full = rank_of(host)
            detail = f"rank {flint.value} modulo 3, {full.value} over the rationals"
            yield Instance(shape, flint.value < M == full.value, detail, routes=full.routes, m=M)
            break


# --- the notions ---------------------------------------------------------------------------------------------------


@check("new:notions/implications")
def implications(run: Run) -> Iterator[Instance | Figure]:
    """Logit forms and outputs of hosts with a matching E, and of an attention-matching one."""
    for shape in run.shapes(anchors=SMALLEST, largest=16):
        target = integer_target(shape, seed=3)
        names = ["sparse", "tied"] + (["shared-key"] if shape.head_dim >= shape.d_in else [])
        for name in names:
            host = build_host(name, shape)
            logits, outputs = _equal_logits(host, target), exact_emulation(host, target, contexts=(2,))
            yield Instance(
                f"{name} at {label(shape)}",
                logits.value and outputs.value,
                "logit forms, outputs",
                routes=logits.routes,
            )


def _equal_logits(host: Universal, target: Target) -> Agreed:
    """Whether all logit forms agree: on blocks of E R_all and W_all, and formed word by word in plain integers."""
    shape, E = host.shape, dense(embed(host, target).E)
    d, S, own, slow, start = shape.head_dim, shape.word_count, True, True, 0
    left, right = E @ dense(r_all(host)), dense(w_all(target))
    for layer in range(shape.layers):
        prefixes = list(plain.words(shape.heads, layer))
        for head in range(shape.heads):
            readers = [start + number * shape.heads + head for number in range(len(prefixes))]
            maps, parts = host.maps(layer, head), target.parameters(layer, head)
            for (i, w), (j, v) in itertools.product(zip(readers, prefixes, strict=True), repeat=2):
                q, k = slice(i * d, (i + 1) * d), slice((S + j) * d, (S + j + 1) * d)
                own &= bool((left[:, q] @ left[:, k].T == right[:, q] @ right[:, k].T).all())
                query, key = (plain.product([E, plain.routed(host, x), m]) for x, m in ((w, maps.query), (v, maps.key)))
                wanted = [plain.product([plain.routed(target, x), m]) for x, m in ((w, parts[0]), (v, parts[1]))]
                theirs = plain.multiply(wanted[0], plain.transpose(wanted[1]))
                slow &= plain.multiply(query, plain.transpose(key)) == theirs
        start += len(prefixes) * shape.heads
    return agree({"blocks of R_all": own, "plain integers": slow})


@check("new:notions/strict")
def strict(run: Run) -> Iterator[Instance | Figure]:
    """An identity for attention-matching, a lower bound for matching."""
    for shape in run.shapes(lambda s: s.head_dim >= s.d_in, anchors=[(1, 1, 2, 1), (2, 1, 1, 1)]):
        m = shared_key_dimension(shape)
        if m >= matching_dimension(shape):
            continue
        refuted = dimension_certificate(shape, m)
        yield served("shared-key", shape, m, detail="universal by attention-matching")
        yield Instance(shape, not refuted.universal, "not universal by matching", refuted, m=m)


@check("new:linear-test/parentheses")
def linear_test_parentheses(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the linear test's columns at the shape of the parentheses task."""
    shape = Shape(4, 2, 24, 4)
    m, prime = linear_test_dimension(shape), gfp.DEFAULT_PRIMES[0]
    columns = RandomDraw(shape, m, 0, "uniform", "float64", True).r_all(prime)[:, linear_test_columns(shape)]
    rank = agree({"own engine": gfp.rank(columns, prime), "FLINT": flint_rank(columns, prime)})
    yield Instance(shape, columns.shape[1] == rank.value == m, f"rank {rank.value}", routes=rank.routes, m=m)
    yield Figure("rank of the test's columns", rank.value)
    yield Figure("printed looped dimension", paper_looped_dimension(shape))
    yield Figure("M", matching_dimension(shape))
