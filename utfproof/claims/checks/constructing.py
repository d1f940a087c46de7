"""Section 3.1, untied: the dimension m-bar, the sparse theorem, its proof sketch and its construction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from utfproof.attention import RationalAttention, visible
from utfproof.certificates.format import Certificate
from utfproof.claims import plain
from utfproof.claims.bounds import too_small_at_depth
from utfproof.claims.claim import BESIDE, Figure, Instance, Run, agree, check, label
from utfproof.claims.decisions import decided, ranks, small_input, symbolic
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
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.ground.arrays import Array, transpose
from utfproof.matching import embed
from utfproof.paper import formulas as printed
from utfproof.shapes import Shape, matching_dimension, paper_dimension, shared_key_dimension


@check("eq:m-bar/heads")
def m_bar_heads(run: Run) -> Iterator[Instance | Figure]:
    """The printed formula, the package's, and words counted one at a time."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        m = agree({"printed formula": printed.m_bar(shape), "shapes": paper_dimension(shape)})
        M = agree({"words counted": counted(shape), "shapes": matching_dimension(shape)})
        routes = ("printed formula", "words counted")
        yield Instance(shape, m.value == M.value, f"m-bar = {m.value}, M = {M.value}", routes=routes)


@check("eq:m-bar/single-head")
def m_bar_single(run: Run) -> Iterator[Instance | Figure]:
    """The printed formula against words counted one at a time."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 2, 1, 2), (1, 5, 3, 6), (1, 5, 3, 7)]):
        m = agree({"printed formula": printed.m_bar(shape), "shapes": paper_dimension(shape)}).value
        M = agree({"words counted": counted(shape), "shapes": matching_dimension(shape)}).value
        holds = m >= M and (m == M) == (shape.d_in == 2 * shape.head_dim)
        yield Instance(shape, holds, f"m-bar = {m}, M = {M}", routes=("printed formula", "words counted"))


@check("sec:constructing/minimal-dimension")
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


@check("thm:sparse_universal_transformer/heads")
def sparse_heads(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates for the prefix tree at m-bar, and padded."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        yield decided("sparse", shape, paper_dimension(shape))
        if matching_dimension(shape) <= 30:
            yield decided("sparse", shape, paper_dimension(shape) + 3)


@check("thm:sparse_universal_transformer/single-head")
def sparse_single(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates for the prefix tree at m-bar, and padded."""
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 5, 2, 3)]):
        yield decided("sparse", shape, paper_dimension(shape))
        yield decided("sparse", shape, paper_dimension(shape) + 3)


@check("thm:sparse_universal_transformer/least-heads")
def least_heads(run: Run) -> Iterator[Instance | Figure]:
    """Lower-bound certificates one below m-bar."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), *TABLES]):
        yield no_matching(shape, paper_dimension(shape) - 1)


@check("thm:sparse_universal_transformer/least-single-head")
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


@check("thm:sparse_universal_transformer/binary")
def binary(run: Run) -> Iterator[Instance | Figure]:
    """Every entry looked at, and the index maps without repetition."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 2, 3)], largest=60):
        for name in ("sparse", "sparse-front"):
            host = build_host(name, shape)
            holds, routes = is_binary(host)
            yield Instance(shape, holds, name, routes=routes, m=host.m)


@check("thm:sparse_universal_transformer/nonzeros")
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


@check("thm:sparse_universal_transformer/proof")
def proof(run: Run) -> Iterator[Instance | Figure]:
    """Refutations of the printed constructions, certificates of the repaired ones."""
    for shape in run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2)], largest=36):
        names = ("printed-single-head",) if one_head(shape) else ("printed-tree-row", "printed-tree-column")
        for name in names:
            yield decided(name, shape)
        for name in ("sparse", "sparse-front"):
            yield decided(name, shape, paper_dimension(shape), part="repair")


@check("thm:sparse_universal_transformer/far-fewer")
def far_fewer(run: Run) -> Iterator[Instance | Figure]:
    """Identity certificates of the shared-key tries."""
    for shape, m, found in _shared_key(run):
        bar = paper_dimension(shape)
        yield Instance(shape, found.universal and m < bar, f"m-bar = {bar}", found, m=m)
        if label(shape) in ("(4,2,24,4)", "(2,4,30,30)"):
            yield Figure(label(shape), f"{m} against {bar}")


@check("sec:constructing/unrolled")
def unrolled(run: Run) -> Iterator[Instance | Figure]:
    """Identities of words for a target and a host, tied or not."""
    from utfproof.exact.symbolic import unrolling, unrolling_step

    for H, L in sorted({(s.heads, s.layers) for s in run.shapes(anchors=[(1, 1, 1, 1), (2, 2, 1, 1), (2, 3, 1, 1)])}):
        for system in ("target", "host"):
            yield symbolic(f"H = {H}, L = {L}, {system}", unrolling(H, L, system=system, tied=L == 3))
    for system in ("target", "host"):
        yield symbolic(f"H = 2, layer l from layer l-1, {system}", unrolling_step(2, system=system))


@check("sec:constructing/two-conditions")
def two_conditions(run: Run) -> Iterator[Instance | Figure]:
    """The emulation lemma as identities of words; each dropped equation must spoil it."""
    from utfproof.exact.symbolic import equal_attention_step, equal_output

    for H, L in ((1, 1), (1, 3), (2, 1), (2, 2)):
        yield symbolic(f"H = {H}, L = {L}", equal_output(H, L))
        for dropped in (("OV", (H - 1,) * L), ("Q", (H - 1,) * L), ("K", (0,))):
            without = equal_output(H, L, dropped=dropped)
            where = f"H = {H}, L = {L}, without {dropped[0]} of the word {dropped[1]}"
            yield Instance(where, not without.holds, without.difference, routes=without.routes)
    yield symbolic("H = 3, equal paths given", equal_attention_step(3))


@check("sec:constructing/construction")
def construction(run: Run) -> Iterator[Instance | Figure]:
    """Certificates of both prefix trees."""
    yield from ranks(run.shapes(anchors=[(1, 1, 1, 1), *TABLES]), "sparse", "sparse-front")


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


@check("sec:constructing/masking")
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


# --- Section 3.2, last sentence: the order of m that suffices ---------------------------------------------------------


def _served(name: str, shape: Shape, m: int, part: str = "") -> Instance:
    """A certificate at m, or a failure where m is below M."""
    below = agree({"formula": m < matching_dimension(shape), "words counted": m < counted(shape)})
    if below:
        return Instance(shape, False, f"M = {counted(shape)}", routes=below.routes, part=part, m=m)
    return decided(name, shape, m, part=part)


@check("sec:constructing/theta-dimension/heads")
def theta_heads(run: Run) -> Iterator[Instance | Figure]:
    """Certificates at five times H^L max{d, d_in}."""
    for shape in run.shapes(heads, anchors=[(2, 1, 1, 1), (2, 2, 28, 30)], largest=120):
        for name in ("sparse", "tied"):
            yield _served(name, shape, printed.theta_dimension(shape, printed.ENOUGH))
    for name, shape in (
        ("M / (H^L max{d, d_in}) at (2,1,1,1)", Shape(2, 1, 1, 1)),
        ("the same at (2,8,1,1)", Shape(2, 8, 1, 1)),
    ):
        yield Figure(name, str(Fraction(matching_dimension(shape), printed.theta_dimension(shape, 1))))


@check("sec:constructing/theta-dimension/single-head")
def theta_single(run: Run) -> Iterator[Instance | Figure]:
    """Each constant at the depth of the same number; the prefix tree at 3 L max{d, d_in}."""
    for constant in range(1, 9):
        yield too_small_at_depth(constant, 1)
    for shape in run.shapes(one_head, anchors=[(1, 1, 1, 1), (1, 8, 1, 1)]):
        m = printed.theta_dimension(shape, printed.ENOUGH_A_LAYER * shape.layers)
        yield _served("sparse", shape, m, part=BESIDE)


@check("sec:constructing/almost-all")
def almost_all(run: Run) -> Iterator[Instance | Figure]:
    """Rank certificates of one seed, untied and tied, at m = M."""
    yield from ranks(
        run.shapes(anchors=[(1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1)], largest=30), "random", "random-tied"
    )
