"""Section 3.1, untied: the dimension m-bar, the sparse theorem, its proof sketch and its construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import RationalAttention, visible
from utfproof.certificates.format import Certificate
from utfproof.claims import plain
from utfproof.claims.decisions import decided, small_input
from utfproof.claims.hosts import (
    TABLES,
    WIDE_TABLES,
    counted,
    heads,
    is_binary,
    most_nonzeros,
    no_matching,
    one_head,
    parameters,
)
from utfproof.claims.record import BESIDE, Category, Evidence, Figure, Instance, Run, Verdict, agree, label
from utfproof.claims.registry import claim
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.arrays import Array, transpose
from utfproof.ground.notions import Notion, Scope
from utfproof.matching import embed
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension, shared_key_dimension


@claim(
    "eq:m-bar/heads",
    place="Section 3.1, the definition of m̄, H > 1",
    statement="For H ≥ 2, m̄ = 2H(H^L − 1)/(H − 1)·d + H^L d_in equals M = 2dS + H^L d_in, the number of columns of R_all.",
    category=Category.COUNT,
    scope="H ≥ 2",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="2S = 2H(H^L − 1)/(H − 1): one d-wide query and key block for each head word, one d_in-wide block for each leaf.",
)
def m_bar_heads(run: Run) -> Iterator[Instance | Figure]:
    """The printed formula, the package's, and words counted one at a time."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        m = agree({"printed formula": printed.m_bar(shape), "shapes": paper_dimension(shape)})
        M = agree({"words counted": counted(shape), "shapes": matching_dimension(shape)})
        routes = ("printed formula", "words counted")
        yield Instance(shape, m.value == M.value, f"m-bar = {m.value}, M = {M.value}", routes=routes)


@claim(
    "eq:m-bar/single-head",
    place="Section 3.1, the definition of m̄, H = 1",
    statement="For H = 1, m̄ = (L+1) max{2d, d_in} is at least M = 2dL + d_in, with equality exactly when d_in = 2d.",
    category=Category.COUNT,
    scope="H = 1",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="L+1 blocks of one width hold L blocks of width 2d and one of width d_in; no room is wasted only at d_in = 2d.",
)
def m_bar_single(run: Run) -> Iterator[Instance | Figure]:
    """The printed formula against words counted one at a time."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 2, 1, 2), (1, 5, 3, 6), (1, 5, 3, 7)]):
        m = agree({"printed formula": printed.m_bar(shape), "shapes": paper_dimension(shape)}).value
        M = agree({"words counted": counted(shape), "shapes": matching_dimension(shape)}).value
        holds = m >= M and (m == M) == (shape.d_in == 2 * shape.head_dim)
        yield Instance(shape, holds, f"m-bar = {m}, M = {M}", routes=("printed formula", "words counted"))


@claim(
    "sec:constructing/minimal-dimension",
    place="Section 3, opening sentence",
    statement="The section sets out to determine the minimal m; what its theorems state, that m̄ suffices, does not determine it: less than m̄ does where d ≥ d_in.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H ≥ 2, d ≥ d_in; an aim, which cannot fail, and no theorem says that m̄ is least",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="For d ≥ d_in the shared-key tries need d_in(1 + 2S) < m̄ dimensions. At d_in = 1 products of readers need S + H^L, the least m at d = 1; for d_in ≥ 2 the least m is open.",
)
def minimal_dimension(run: Run) -> Iterator[Instance | Figure]:
    """Hosts below m-bar that are universal by attention-matching, hence as defined."""
    for shape, m, found in _shared_key(run):
        below = found.universal and m < paper_dimension(shape)
        yield Instance(shape, below, f"m-bar = {paper_dimension(shape)}", found, m=m)


def _shared_key(run: Run) -> Iterator[tuple[Shape, int, Certificate]]:
    """Shapes with H >= 2 and d >= d_in, the dimension of the shared-key tries, and their identity certificate."""
    from utfproof.certificates.identities import identity_certificate

    anchors = [(2, 1, 1, 1), *WIDE_TABLES]
    for shape in run.shapes(lambda s: heads(s) and s.head_dim >= s.d_in, anchors=anchors, largest=120):
        m = shared_key_dimension(shape)
        yield shape, m, identity_certificate("shared-key", shape, m)


@claim(
    "thm:sparse_universal_transformer/heads",
    place="Section 3.1, thm:sparse_universal_transformer, H ≥ 2",
    statement="For H ≥ 2 and every m ≥ m̄ there is a host of embedding dimension m that is universal for all untied targets.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H ≥ 2, every L, d, d_in; m = m̄ and m̄ + 3",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="The prefix tree with projections for R_V has rank R_all = M = m̄: universal by matching, which is more.",
)
def sparse_heads(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates for the prefix tree at m-bar, and padded."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        yield decided("sparse", shape, paper_dimension(shape))
        if matching_dimension(shape) <= 30:
            yield decided("sparse", shape, paper_dimension(shape) + 3)


@claim(
    "thm:sparse_universal_transformer/single-head",
    place="Section 3.1, thm:sparse_universal_transformer, H = 1",
    statement="For H = 1 and every m ≥ m̄ there is a host of embedding dimension m that is universal for all untied targets.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="H = 1, every L, d, d_in; m = m̄ and m̄ + 3",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="m̄ ≥ M = 2dL + d_in, and the prefix tree serves every m ≥ M by matching.",
)
def sparse_single(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates for the prefix tree at m-bar, and padded."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 5, 2, 3)]):
        yield decided("sparse", shape, paper_dimension(shape))
        yield decided("sparse", shape, paper_dimension(shape) + 3)


@claim(
    "thm:sparse_universal_transformer/least-heads",
    place="Section 3.1, thm:sparse_universal_transformer, H ≥ 2",
    statement="For H ≥ 2 no host with m < m̄ matches all untied targets: by matching m̄ is exact.",
    category=Category.NEW,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="H ≥ 2",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY, Evidence.WRITTEN),
    proof="docs/proofs/decision-theorem.md",
    sentence="Isolating targets force rank R_all = M, and M = m̄. It says nothing about universality as defined.",
)
def least_heads(run: Run) -> Iterator[Instance | Figure]:
    """Lower-bound certificates one below m-bar."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        yield no_matching(shape, paper_dimension(shape) - 1)


@claim(
    "thm:sparse_universal_transformer/least-single-head",
    place="Section 3.1, thm:sparse_universal_transformer, H = 1",
    statement="For H = 1 the least m that matches all untied targets is 2dL + d_in: less than the m̄ that suffices unless d_in = 2d.",
    category=Category.NEW,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="H = 1",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE, Evidence.INEQUALITY, Evidence.WRITTEN),
    proof="docs/proofs/decision-theorem.md",
    sentence="The prefix tree matches at M = 2dL + d_in, and nothing does at M − 1; m̄ = (L+1) max{2d, d_in} is M at d_in = 2d alone.",
)
def least_single(run: Run) -> Iterator[Instance | Figure]:
    """The prefix tree at M, nothing at M - 1, and M against m-bar."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 1, 1, 2), (1, 3, 2, 2)]):
        m, M = paper_dimension(shape), counted(shape)
        found = decided("sparse", shape, M)
        less = (M < m) == (shape.d_in != 2 * shape.head_dim)
        yield Instance(shape, found.holds and less, f"matched at {M}, m-bar = {m}", found.certificate, m=M)
        yield no_matching(shape, M - 1)
        if M > 1:
            yield no_matching(shape, M - 1, part=BESIDE)
        if shape == Shape(1, 3, 2, 2):
            yield Figure("(1,3,2,2): m-bar", m)
            yield Figure("(1,3,2,2): least m by matching", M)


@claim(
    "thm:sparse_universal_transformer/binary",
    place="Section 3.1, thm:sparse_universal_transformer",
    statement="All entries of the host's R_Q, R_K, R_V and U are 0 or 1.",
    scope="both repaired prefix trees, every shape",
    verdict=Verdict.HOLDS.by(Evidence.GRID),
    sentence="Each parameter is a selection matrix without repeated cells.",
)
def binary(run: Run) -> Iterator[Instance | Figure]:
    """Every entry looked at, and the index maps without repetition."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 2, 3)], largest=60):
        for name in ("sparse", "sparse-front"):
            host = build_host(name, shape)
            holds, routes = is_binary(host)
            yield Instance(shape, holds, name, routes=routes, m=host.m)


@claim(
    "thm:sparse_universal_transformer/nonzeros",
    place="Section 3.1, thm:sparse_universal_transformer",
    statement="No parameter matrix has more than m nonzero entries.",
    scope="both repaired prefix trees, every shape",
    verdict=Verdict.HOLDS.by(Evidence.GRID),
    sentence="R_V^{1,h} has (M − 2dH)/H ones, R_Q^{l,h} and R_K^{l,h} have d·H^{l−1}, U has d_in·H^L in the prefix tree of projections.",
)
def nonzeros(run: Run) -> Iterator[Instance | Figure]:
    """The fullest matrix of each host against m."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 2, 3)], largest=60):
        for name in ("sparse", "sparse-front"):
            host = build_host(name, shape)
            most, routes = most_nonzeros(host)
            yield Instance(shape, most <= host.m, f"{name}: at most {most}", routes=routes, m=host.m)
    found = {name: matrix.nonzeros for name, matrix in parameters(build_host("sparse", Shape(2, 2, 28, 30)))}
    yield Figure("ones of R_V^{1,1} at (2,2,28,30)", found["R_V[0,0]"])
    yield Figure("ones of R_Q^{2,1} at (2,2,28,30)", found["R_Q[1,0]"])
    yield Figure("ones of U at (2,2,28,30)", found["U"])


@claim(
    "thm:sparse_universal_transformer/proof",
    place="Section 3.1, thm:sparse_universal_transformer, its printed proof (lem:single_head, thm:designed-R)",
    statement="The constructions as printed satisfy the matching equations for all targets: lem:single_head at m̄ for H = 1, the formal "
    "R_V of thm:designed-R at m̄ for H ≥ 2. In repair: the prefix trees.",
    about=Scope.of(Notion.MATCHING, "all untied", hosts="examined"),
    scope="every shape, rows or columns",
    verdict=Verdict.REPAIRED.by(Evidence.CERTIFICATE),
    sentence="As printed, R_V moves blocks that later readers look for elsewhere, or erases them; with projections, or with readers at "
    "the front, the proof goes through.",
)
def proof(run: Run) -> Iterator[Instance | Figure]:
    """Refutations of the printed constructions, certificates of the repaired ones."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)], largest=36):
        names = ("printed-single-head",) if one_head(shape) else ("printed-tree-row", "printed-tree-column")
        for name in names:
            yield decided(name, shape)
        for name in ("sparse", "sparse-front"):
            yield decided(name, shape, paper_dimension(shape), part="repair")


@claim(
    "thm:sparse_universal_transformer/far-fewer",
    place="Section 3.1, thm:sparse_universal_transformer, beside it",
    statement="For H ≥ 2 and d ≥ d_in a tied {0,1} host of dimension d_in(1 + 2S) < m̄ serves all untied targets.",
    category=Category.NEW,
    about=Scope.of(Notion.ATTENTION_MATCHING, "all untied", hosts="tied"),
    scope="H ≥ 2, d ≥ d_in; attention that depends on the logits alone",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="Queries hold X A and keys X, so all heads share one key block; not by matching, and not with rotary positions.",
)
def far_fewer(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates of the shared-key tries."""
    for shape, m, found in _shared_key(run):
        bar = paper_dimension(shape)
        yield Instance(shape, found.universal and m < bar, f"m-bar = {bar}", found, m=m)
        if label(shape) in ("(4,2,24,4)", "(2,4,30,30)"):
            yield Figure(label(shape), f"{m} against {bar}")


@claim(
    "sec:constructing/unrolled",
    place="Section 3.1, proof sketch, unrolled outputs",
    statement="T(X) = Σ_w A_w X M_w and UTF(X, E) = Σ_w Ã_w X E R_w U over the H^L head words w, with A_w = A^{L,h_L} ⋯ A^{1,h_1}.",
    category=Category.THEOREM,
    scope="every shape, m and attention",
    verdict=Verdict.HOLDS.by(Evidence.SYMBOLIC),
    sentence="The layer recursion expands into one summand for each head word.",
)
def unrolled(run: Run) -> Iterator[Instance | Figure]:
    """Identities of words for a target and a host, tied or not."""
    from utfproof.exact.symbolic import unrolling, unrolling_step

    for H, L in sorted({(s.heads, s.layers) for s in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1)])}):
        for system in ("target", "host"):
            found = unrolling(H, L, system=system, tied=L == 3)
            yield Instance(f"H = {H}, L = {L}, {system}", found.holds, found.difference, routes=found.routes)
    for system in ("target", "host"):
        found = unrolling_step(2, system=system)
        yield Instance(f"H = 2, layer l from layer l-1, {system}", found.holds, found.difference, routes=found.routes)


@claim(
    "sec:constructing/two-conditions",
    place="Section 3.1, proof sketch, the two conditions",
    statement="Equal attention matrices in every layer and head, and E R_w U = M_w for all words of length L, make the input-output "
    "maps equal.",
    category=Category.THEOREM,
    about=Scope.of(Notion.ATTENTION_MATCHING, "all untied"),
    scope="every shape, m and attention; equal attention here by the query and key equations, and with given letters in the induction step",
    verdict=Verdict.HOLDS.by(Evidence.SYMBOLIC),
    sentence="The two unrolled sums agree summand by summand; without one of the conditions they do not.",
)
def two_conditions(run: Run) -> Iterator[Instance | Figure]:
    """The emulation lemma as identities of words; each dropped equation must spoil it."""
    from utfproof.exact.symbolic import equal_attention_step, equal_output

    for H, L in ((1, 1), (1, 3), (2, 1), (2, 2)):
        found = equal_output(H, L)
        yield Instance(f"H = {H}, L = {L}", found.holds, found.difference, routes=found.routes)
        for dropped in (("OV", (H - 1,) * L), ("Q", (H - 1,) * L), ("K", (0,))):
            without = equal_output(H, L, dropped=dropped)
            where = f"H = {H}, L = {L}, without {dropped[0]} of the word {dropped[1]}"
            yield Instance(where, not without.holds, without.difference, routes=without.routes)
    step = equal_attention_step(3)
    yield Instance("H = 3, equal paths given", step.holds, step.difference, routes=step.routes)


@claim(
    "sec:constructing/construction",
    place="Section 3.1, construction",
    statement="The recursive description can be carried out: an H-ary tree of blocks in which R_V^{l,h} routes to the child h, R_Q^{l,h} and "
    "R_K^{l,h} read the h-th sub-block at depth l−1, and U reads the leaves, has rank R_all = M at m = M.",
    category=Category.THEOREM,
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="every shape; R_V as a projection, or moving the subtree to the front",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="Both ways make R_all a permutation matrix; the formal definition in the appendix is another matter.",
)
def construction(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of both prefix trees."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), *TABLES]):
        for name in ("sparse", "sparse-front"):
            yield decided(name, shape)


# --- masks ----------------------------------------------------------------------------------------------------

MASKS: dict[str, tuple[bool, int | None]] = {
    "causal": (True, None),
    "window of 2": (False, 2),
    "causal, window of 2": (True, 2),
}
"""Name -> (causal, window): a window of w lets a token see those less than w away."""


def masked(causal: bool, window: int | None) -> plain.Attention:
    """Rows proportional to 1 + s + s², s = q·k, over the visible keys, in Fractions."""

    def attention(queries: plain.Rows, keys: plain.Rows, layer: int, head: int) -> plain.Rows:
        out = []
        for i, row in enumerate(plain.rational_attention(queries, keys, layer, head)):
            kept = [
                value if not (causal and j > i) and (window is None or abs(i - j) < window) else 0
                for j, value in enumerate(row)
            ]
            total = sum(kept)
            out.append([value / total for value in kept])
        return out

    return attention


@dataclass(frozen=True)
class MaskedRational:
    """The same for the package's forward pass, with the package's own masks."""

    causal: bool
    window: int | None

    logits_only = True

    def __call__(self, queries: Array, keys: Array, positions: Any, *, layer: int, head: int) -> np.ndarray:
        if self.window is None:
            own: np.ndarray = RationalAttention(causal=self.causal)(queries, keys, positions, layer=layer, head=head)
            return own
        logits = queries @ transpose(keys)
        places = np.asarray(positions)
        mask = visible(places, places, causal=self.causal, window=self.window)
        assert mask is not None
        weights = np.where(mask, 1 + logits + logits * logits, 0)
        return np.array(
            [plain.rows([[v / sum(row) for v in row]])[0] for row in plain.rows(weights * plain.Fraction(1))]
        )


@claim(
    "sec:constructing/masking",
    place="Section 3.1, remark on attention masks",
    statement="Causal and windowed masks change nothing: with the same E the masked host equals the masked target.",
    about=Scope.of(Notion.FUNCTIONAL, "all untied"),
    scope="the repaired sparse and tied hosts, every shape; examined at n = 1, 2, 4",
    verdict=Verdict.HOLDS.by(Evidence.GRID),
    sentence="Masked attention is still a function of queries, keys and positions; outputs agree as rational numbers.",
)
def masking(run: Run) -> Iterator[Instance | Figure]:
    """Exact outputs under masks: plain Fractions, and the package's forward pass with its own masks."""
    for shape in run.shapes(anchors=[(1, 2, 1, 1), (2, 1, 1, 2), (2, 2, 1, 1)], largest=14):
        target = integer_target(shape)
        for name in ("sparse", "tied"):
            host = build_host(name, shape)
            E = embed(host, target).E
            for kind, (causal, window) in MASKS.items():
                slow, own = masked(causal, window), MaskedRational(causal, window)
                holds = True
                for n in (1, 2, 4):
                    x = small_input(shape, n)
                    array = np.array(x, dtype=object)
                    wanted = {
                        "plain Fractions": plain.run_target(target, x, slow),
                        "systems": plain.rows(target.forward(array, own)),
                    }
                    found = {
                        "plain Fractions": plain.run_host(host, E, x, slow),
                        "systems": plain.rows(host.forward(array, E, own)),
                    }
                    holds &= agree(wanted).value == agree(found).value
                yield Instance(shape, holds, f"{name}, {kind}", routes=("plain Fractions", "systems"), m=host.m)
