"""Section 1: the informal theorems and the overview figure. There d = d_in, and O( ) hides constants."""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.claims import plain
from utfproof.claims.bounds import below_root, side_by_side_bound, too_small_at_depth
from utfproof.claims.claim import Figure, Instance, Run, agree, check, each, label
from utfproof.claims.decisions import exact_emulation
from utfproof.claims.linear import full_rank_host
from utfproof.claims.verdicts import TOLERANCE
from utfproof.constructions import build_host
from utfproof.constructions.random import integer_target
from utfproof.matching import embed
from utfproof.paper import tables as paper
from utfproof.shapes import Shape


@check("intro:random/single-head")
def random_single_head(run: Run) -> Iterator[Instance | Figure]:
    """For each constant c, no host with m = c d at L = c."""
    for c in range(1, 9):
        for d in (1, 2):
            yield too_small_at_depth(c, d)
    yield Figure("least m allowed / d at L = 8", side_by_side_bound(Shape(1, 8, 2, 2)) // 2)


@each("intro:embedding-shape")
def embedding_shape(shape: Shape) -> Iterator[Instance]:
    """The number of rows of the E that embed finds, and of W_all word by word."""
    target = integer_target(shape)
    E = embed(build_host("tied", shape), target).E
    rows = agree({"embed": E.shape[0], "W_all": len(plain.equations(target))})
    yield rows.at(shape, f"E has {rows} rows", holds=rows.value == shape.d_in)


@each("intro:lower-bound", "thm:lower_bound_utf/untied", "thm:lower_bound_matching_attention/untied")
def lower_bound(shape: Shape) -> Iterator[Instance]:
    """No host at the largest m below the bound, at every (H, L)."""
    yield below_root(shape)


@check("fig:overview")
def overview(run: Run) -> Iterator[Instance | Figure]:
    """Exact emulation of small integer targets."""
    for shape in (Shape(1, 1, 1, 1), Shape(2, 1, 1, 2), Shape(2, 2, 1, 2)):
        hosts = {name: build_host(name, shape) for name in ("sparse", "tied")} | {"random": full_rank_host(shape)}
        for name, host in hosts.items():
            same = exact_emulation(host, integer_target(shape, 5))
            yield same.at(f"{label(shape)}, {name}", "equal rational outputs")


@check("intro:near-perfect")
def near_perfect(run: Run) -> Iterator[Instance | Figure]:
    """The best variant of each task and kind of host; how many of all cells reach that much."""
    high = cells = 0
    for task, table in paper.ABLATIONS.items():
        for column, kind in enumerate(("sparse", "random")):
            found = [row[column] for row in table.values()]
            high, cells = high + sum(v >= 100 - TOLERANCE for v in found), cells + len(found)
            yield Instance(f"{task}, {kind}", max(found) >= 100 - TOLERANCE, f"best {max(found)} %")
    yield Figure("cells of 95 % or more", f"{high} of {cells}")
