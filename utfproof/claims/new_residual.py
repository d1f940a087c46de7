"""Residual streams: the number of matching equations, hosts that meet it, and what tied hosts can and cannot match.

Letter 0 is the stream itself; R_V^{l,0} = M^{l,0} = I. Words are over H + 1 letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.claims import plain
from utfproof.claims.decisions import rank_of_matrix, small_input
from utfproof.claims.linear import determinant_of, integer_host
from utfproof.claims.record import Agreed, Category, Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.claims.small_models import array
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.residual import embed_residual_tied, embed_residual_tree, tied_obstruction
from utfproof.matching import r_all, w_all
from utfproof.notions import Notion
from utfproof.shapes import Shape, matching_dimension, tied_targets_dimension
from utfproof.systems import Target, Universal

PAGE = "docs/proofs/residual.md"
SHAPES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 2), (2, 2, 1, 1), (1, 3, 1, 1), (1, 2, 2, 1)]


# --- the definitions, word by word --------------------------------------------------------------------------------


def _maps(system: Any, layer: int, head: int) -> tuple[plain.Rows, plain.Rows, plain.Rows]:
    """(query, key, value) of a head, target's or host's."""
    if isinstance(system, Target):
        w_q, w_k, w_v, w_o = system.parameters(layer, head)
        return plain.rows(w_q), plain.rows(w_k), plain.product([w_v, w_o])
    maps = system.maps(layer, head)
    return plain.rows(maps.query), plain.rows(maps.key), plain.product(maps.value)


def _equations(system: Any, width: int, output: plain.Rows) -> plain.Rows:
    """R_all or W_all: Q, K by prefix over {0, ..., H} and reading head, then OV by word, from the definition."""
    H, L = system.shape.heads, system.shape.layers

    def prefix(word: tuple[int, ...]) -> plain.Rows:
        out = plain.identity(width)
        for layer, letter in enumerate(word):
            if letter:
                out = plain.multiply(out, _maps(system, layer, letter - 1)[2])
        return out

    blocks = []
    for kind in (0, 1):
        for length in range(L):
            for word in plain.words(H + 1, length):
                blocks += [plain.multiply(prefix(word), _maps(system, length, head)[kind]) for head in range(H)]
    blocks += [plain.multiply(prefix(word), output) for word in plain.words(H + 1, L)]
    return plain.beside(blocks)


def _forward(system: Any, state: plain.Rows, output: plain.Rows) -> plain.Rows:
    """The stream plus every head's term, layer by layer, in plain Fractions with rational attention."""
    for layer in range(system.shape.layers):
        total = state
        for head in range(system.shape.heads):
            query, key, value = _maps(system, layer, head)
            mixed = plain.rational_attention(plain.multiply(state, query), plain.multiply(state, key), layer + 1, head)
            total = plain.add(total, plain.multiply(plain.multiply(mixed, state), value))
        state = total
    return plain.multiply(state, output)


def _host_rows(host: Universal) -> plain.Rows:
    return _equations(host, host.m, plain.rows(host.U))


def _target_rows(target: Target) -> plain.Rows:
    return _equations(target, target.width, plain.identity(target.width))


def _matched(host: Universal, E: Any, target: Target) -> Agreed:
    """Whether E R_all = W_all and host and target give the same outputs: the package's, and the definitions."""
    from utfproof.attention import RationalAttention

    x, kernel, e = small_input(host.shape, 2), RationalAttention(), plain.rows(E)
    own = bool((array(e) @ r_all(host) == w_all(target)).all())
    ours = host.forward(array(x), array(e), kernel)
    own &= bool((ours == target.forward(array(x), kernel)).all())
    slow = plain.multiply(e, _host_rows(host)) == _target_rows(target)
    slow &= _forward(host, plain.multiply(x, e), plain.rows(host.U)) == _forward(
        target, x, plain.identity(target.width)
    )
    return agree({"package": own, "plain Fractions": slow})


def _streaming(shape: Shape) -> Shape:
    return Shape(shape.heads, shape.layers, shape.head_dim, shape.d_in, shape.d_out, residual=True)


def _shapes(run: Run, largest: int) -> list[Shape]:
    """Shapes with a residual stream, M_res <= largest."""
    anchors = [(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 1)]
    found = run.shapes(lambda shape: matching_dimension(_streaming(shape)) <= largest, anchors=anchors)
    return [_streaming(shape) for shape in found]


# --- claims --------------------------------------------------------------------------------------------------------


@claim(
    "new:residual/dimension",
    place=PAGE,
    statement="With a residual stream the matching equations have M_res = 2dH Σ_{t<L}(H+1)^t + d_in(H+1)^L columns.",
    category=Category.NEW,
    scope="every shape examined; d_in = d_out",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.ARITHMETIC,),
    sentence="The formula is the number of columns of W_all, formed from the definition and by the package.",
    figures={"M_res at (2,1,1,2)": 10, "M_res at (2,2,1,1)": 25, "M_res at (2,4,30,30)": 7230},
    smallest="(1,1,1,1) residual",
)
def dimension(run: Run) -> Iterator[Instance | Figure]:
    """Columns of W_all, counted twice, against the formula."""
    for shape in _shapes(run, 120):
        target = integer_target(shape, 1)
        found = agree({"package": w_all(target).shape[1], "plain": len(_target_rows(target)[0])})
        yield Instance(shape, found.value == matching_dimension(shape), f"M_res = {found.value}", routes=found.routes)
    for entry in ((2, 1, 1, 2), (2, 2, 1, 1), (2, 4, 30, 30)):
        yield Figure("M_res at ({},{},{},{})".format(*entry), matching_dimension(Shape(*entry, residual=True)))


@claim(
    "new:residual/unimodular",
    place=PAGE,
    statement="The prefix-tree host over H + 1 letters, with R_V^{l,0} = I, has a unimodular R_all at m = M_res: it matches every untied residual target with integer arithmetic.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="every H, L, d, d_in = d_out; determinants at shapes with M_res ≤ 30",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="Inclusion and exclusion over the zero letters: the determinant is +1 or −1, by FLINT and by plain integers.",
    smallest="(1,1,1,1) residual, m = 4",
    proof=PAGE,
)
def unimodular(run: Run) -> Iterator[Instance | Figure]:
    """The determinant of R_all from the definition; the package's R_all is the same matrix."""
    for shape in _shapes(run, 30):
        m = matching_dimension(shape)
        host = build_host("sparse", shape, m)
        rows = _host_rows(host)
        same = agree({"definition": rows, "package": plain.rows(r_all(host))})
        found = determinant_of(rows)
        holds = found.value in (1, -1) and len(rows) == m
        yield Instance(shape, holds, f"determinant {found.value}", routes=(*found.routes, *same.routes), m=m)


@claim(
    "new:residual/moebius",
    place=PAGE,
    statement="A Möbius transform over the zero letters gives the embedding of any untied residual target in that host, and the outputs agree.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="sampled integer targets",
    scope="shapes with M_res ≤ 30, n = 2, exact rational attention",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.ARITHMETIC,),
    sentence="E R_all = W_all and equal rational outputs, by the package and by the definitions.",
    smallest="(1,1,1,1) residual, m = 4",
)
def moebius(run: Run) -> Iterator[Instance | Figure]:
    """Equations and outputs for integer targets."""
    for shape in _shapes(run, 30):
        m, target = matching_dimension(shape), integer_target(shape, 3)
        found = _matched(build_host("sparse", shape, m), embed_residual_tree(shape, m, target), target)
        yield Instance(shape, bool(found), "equations and outputs", routes=found.routes, m=m)


@claim(
    "new:residual/decision",
    place=PAGE,
    statement="For fixed parameters all untied residual targets are matched if and only if rank R_all = M_res: the rows W_all of targets that route along sub-words span everything, so m ≥ M_res.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="every H, L, d, d_in = d_out; the span computed at shapes with M_res ≤ 30",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="A word stays alive when letters become 0, so a family of routed targets replaces the single isolating one; their rows have rank M_res.",
    smallest="(1,1,1,1) residual, m = 4",
    proof=PAGE,
)
def decision(run: Run) -> Iterator[Instance | Figure]:
    """The rank of the rows W_all over the routed 0/1 targets."""
    for shape in _shapes(run, 30):
        rows: dict[tuple[int, ...], None] = {}
        for target in _routed_targets(shape):
            rows.update(dict.fromkeys(tuple(int(v) for v in row) for row in w_all(target) if any(row)))
        found = rank_of_matrix([list(row) for row in rows])
        m = matching_dimension(shape)
        yield Instance(shape, found.value == m, f"rank {found.value} from {len(rows)} rows", routes=found.routes, m=m)


def _routed_targets(shape: Shape) -> Iterator[Target]:
    """M = e_1 e_1ᵀ along a word over {0, ..., H} (0: nothing in that layer), then W_Q, W_K = e_1 e_jᵀ behind it, or e_1 e_jᵀ as its
    last M: all 0/1."""
    H, L, d, a = shape.heads, shape.layers, shape.head_dim, shape.d_in

    def blank() -> list[np.ndarray]:
        return [np.zeros((L, H, a, d), dtype=object) for _ in range(3)] + [np.zeros((L, H, d, a), dtype=object)]

    for length in range(L + 1):
        for word in plain.words(H + 1, length):
            W_Q, W_K, W_V, W_O = blank()
            letters = [(layer, letter - 1) for layer, letter in enumerate(word) if letter]
            for layer, head in letters:
                W_V[layer, head, 0, 0] = W_O[layer, head, 0, 0] = 1
            if length == L:
                for j in range(a):
                    last = W_O.copy()
                    if letters:
                        last[letters[-1]][0] = 0
                        last[(*letters[-1], 0, j)] = 1
                    yield Target(shape, W_Q, W_K, W_V, last)
                continue
            for head in range(H):
                for j in range(d):
                    for which in (0, 1):
                        readers = blank()[:2]
                        readers[which][length, head, 0, j] = 1
                        yield Target(shape, readers[0], readers[1], W_V, W_O)


@claim(
    "new:residual/random",
    place=PAGE,
    statement="Random hosts of m = M_res, untied, have a full-rank R_all with a residual stream too: one such host makes almost every host universal by matching.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="shapes with M_res ≤ 40; one integer host each",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="The exact rank is M_res for one integer host at each shape, so some minor is a nonzero polynomial.",
    smallest="(1,1,1,1) residual, m = 4",
    proof=PAGE,
)
def random_hosts(run: Run) -> Iterator[Instance | Figure]:
    """The rank of R_all of one integer host, at m = M_res; one dimension less gives one less."""
    for shape in _shapes(run, 40):
        m = matching_dimension(shape)
        host = integer_host(shape, m, 3)
        matrix = r_all(host)
        found = rank_of_matrix(matrix)
        short = rank_of_matrix(r_all(integer_host(shape, m - 1, 3))) if m <= 12 else None
        holds = found.value == m == matrix.shape[1] and (short is None or short.value < m)
        yield Instance(shape, holds, f"rank {found.value}", routes=found.routes, m=m)


@claim(
    "new:residual/tied-host",
    place=PAGE,
    statement="For L ≥ 2 no tied host, of any m, matches all untied residual targets: the words 0…0h and h0…0 have the same R_w, while the target's M_w differ.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="all untied",
    scope="L ≥ 2, every H, d, d_in, m; two tied hosts and one target at each shape",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="Two blocks of columns of R_all are equal whatever the tied host is; the target's two blocks differ.",
    smallest="(1,2,1,1) residual",
    proof=PAGE,
)
def tied_host(run: Run) -> Iterator[Instance | Figure]:
    """Equal columns in two tied hosts, and the target's gap, by the package and from the definition."""
    for shape in (Shape(*entry, residual=True) for entry in [(1, 2, 1, 1), (2, 2, 1, 1), (1, 3, 1, 1), (2, 2, 1, 2)]):
        target = integer_target(shape, 5)
        found = tied_obstruction(target)
        if found is None:
            yield Instance(shape, False, "this target shows no difference")
            continue
        hosts = [integer_host(shape, matching_dimension(shape) + 2, 3, tied=True)]
        hosts.append(build_host("tied", shape, tied_targets_dimension(shape)))
        own, slow = bool((found.gap != 0).any()), True
        wanted = plain.transpose(_target_rows(target))
        for j in range(shape.d_out):
            a, b = found.left + j, found.right + j
            for host in hosts:
                columns, listed = plain.transpose(plain.rows(r_all(host))), plain.transpose(_host_rows(host))
                own &= columns[a] == columns[b]
                slow &= listed[a] == listed[b]
        theirs = w_all(target).T
        slow &= any(wanted[found.left + j] != wanted[found.right + j] for j in range(shape.d_out))
        own &= any(bool((theirs[found.left + j] != theirs[found.right + j]).any()) for j in range(shape.d_out))
        both = agree({"package": own, "plain Fractions": slow})
        yield Instance(shape, bool(both), f"columns {found.left} and {found.right}", routes=both.routes)


@claim(
    "new:residual/tied-targets",
    place=PAGE,
    statement="For tied residual targets the equations are indexed by words without zeros, 2dS + d_in(1 + S) of them, and a tied host of that many dimensions matches all.",
    category=Category.NEW,
    notion=Notion.MATCHING,
    targets="all tied",
    scope="every H, L, d, d_in = d_out; integer targets at shapes with M_res ≤ 30; least for d, d_in ≥ L by the proof",
    verdict=Verdict.HOLDS,
    evidence=(Evidence.WRITTEN, Evidence.ARITHMETIC),
    sentence="Distinct columns of the host's R_all are distinct unit vectors, as many as the formula says.",
    figures={"m at (2,2,1,1)": 19, "M_res at (2,2,1,1)": 25},
    smallest="(1,1,1,1) residual, m = 4",
    proof=PAGE,
)
def tied_targets(run: Run) -> Iterator[Instance | Figure]:
    """Distinct columns against the formula; equations and outputs for tied integer targets."""
    for shape in _shapes(run, 30):
        m, target = tied_targets_dimension(shape), integer_target(shape, 3, tied=True)
        host = build_host("tied", shape, m)
        found = _matched(host, embed_residual_tied(shape, m, target), target)
        columns = {tuple(column) for column in plain.transpose(_host_rows(host))}
        units = all(sum(column) == 1 and set(column) <= {0, 1} for column in columns)
        holds = bool(found) and units and len(columns) == m
        yield Instance(shape, holds, f"{len(columns)} distinct columns", routes=found.routes, m=m)
    yield Figure("m at (2,2,1,1)", tied_targets_dimension(Shape(2, 2, 1, 1, residual=True)))
    yield Figure("M_res at (2,2,1,1)", matching_dimension(Shape(2, 2, 1, 1, residual=True)))
