"""Section 5 and Appendices F, G: dimensions and figures of the tables, and what the text says of them.

These claims are about the paper's printed numbers (`paper.py`), not about new training runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided
from utfproof.claims.hosts import no_matching
from utfproof.claims.verdicts import TOLERANCE
from utfproof.paper import tables as paper
from utfproof.shapes import Shape, matching_dimension, paper_dimension

FAR_FROM_OPTIMAL = 50.0
"""Our reading of "far from optimal", in percent."""
SPARSE, RANDOM, TRAINED = 0, 1, 2


def _row_shape(task: str) -> Shape:
    row = paper.TABLE_ROWS[task]
    return Shape(row["heads"], row["layers"], row["head_dim"], row["vocabulary"])


@check("tab:summary_results_combined/dimensions")
def table_dimensions(run: Run) -> Iterator[Instance | Figure]:
    """m-bar by the formula, M by counting columns, and a certificate at the printed m."""
    for task, row in paper.TABLE_ROWS.items():
        shape = _row_shape(task)
        m_bar = paper_dimension(shape)
        yield Figure(task, m_bar)
        if row["m"] != m_bar or m_bar != matching_dimension(shape):
            both = agree({"formula": row["m"] == m_bar, "count of columns": row["m"] == matching_dimension(shape)})
            yield Instance(shape, bool(both), f"printed {row['m']}, m-bar {m_bar}", routes=both.routes)
        else:
            yield decided("sparse", shape, row["m"])


@check("tab:hyperparameters/shapes")
def hyperparameters(run: Run) -> Iterator[Instance | Figure]:
    """The recorded tables against each other."""
    for name, value in paper.HYPERPARAMETERS_PARENTHESES.items():
        yield Instance(f"parentheses, {name}", paper.TABLE_ROWS["parentheses"][name] == value, f"{value}")
    for task, layers in paper.LAYERS_PER_HOP.items():
        row = paper.TABLE_ROWS[task]
        same = all(paper.HYPERPARAMETERS_K_HOP[name] == row[name] for name in ("heads", "vocabulary"))
        yield Instance(task, same and row["layers"] == layers and task in paper.TRAINING_STEPS, f"{row}")
    for place, tasks in paper.OTHER_CAPTIONS.items():
        for task, said in tasks.items():
            differing = [name for name, value in said.items() if paper.TABLE_ROWS[task][name] != value]
            yield Instance(
                f"{task}, caption of {place}", not differing, ", ".join(differing) or "as in the first table"
            )


@check("tab:ablation_results/agree-with-summary")
def repeated_cells(run: Run) -> Iterator[Instance | Figure]:
    """Every cell that is printed twice."""
    cells = 0
    for table, variant in (
        (paper.SUMMARY_ATTENTION_ONLY, "attention-only"),
        (paper.SUMMARY_RESIDUAL_LN, "residual and LN"),
    ):
        for task, row in table.items():
            other = paper.ABLATIONS[task][variant]
            cells += len(row)
            yield Instance(f"{task}, {variant}", row == other, f"{row} against {other}")
    yield Figure("cells compared", cells)


@check("sec:experiments/consistently-exceeds")
def consistently(run: Run) -> Iterator[Instance | Figure]:
    """Every cell, within the tolerance; the cells in which the random host is ahead."""
    ahead = []
    for task, table in paper.ABLATIONS.items():
        for variant, row in table.items():
            if row[SPARSE] < row[RANDOM]:
                ahead.append(f"{task}, {variant}: {row[SPARSE]} < {row[RANDOM]}")
            fine = row[SPARSE] >= row[RANDOM] - TOLERANCE
            yield Instance(f"{task}, {variant}", fine, f"sparse {row[SPARSE]}, random {row[RANDOM]}")
    yield Figure("random host ahead", "; ".join(ahead))


@check("sec:experiments/guessing")
def guessing(run: Run) -> Iterator[Instance | Figure]:
    """The attention-only cells of the fixed hosts against the guessing level; every other cell below it, listed."""
    below = []
    for task, table in paper.ABLATIONS.items():
        if task == "parentheses":
            continue
        for variant, row in table.items():
            below += [f"{task}, {variant}: {cell}" for cell in row if cell < paper.GUESSING]
        for name, cell in zip(("sparse", "random"), table["attention-only"], strict=False):
            yield Instance(f"{task}, {name}", paper.GUESSING < cell < FAR_FROM_OPTIMAL, f"{cell} %")
    yield Figure("cells below", "; ".join(below))


@check("sec:experiments/residual-ln-sparse")
def sparse_with_residual(run: Run) -> Iterator[Instance | Figure]:
    """The summary table's column."""
    for task, row in paper.SUMMARY_RESIDUAL_LN.items():
        if task != "parentheses":
            yield Instance(task, row[SPARSE] == paper.SPARSE_WITH_RESIDUAL_LN, f"{row[SPARSE]}")


@check("sec:experiments/residual-ln-random")
def random_with_residual(run: Run) -> Iterator[Instance | Figure]:
    """Least and greatest cell against the stated range."""
    cells = {task: row[RANDOM] for task, row in paper.SUMMARY_RESIDUAL_LN.items() if task != "parentheses"}
    low, high = paper.RANDOM_RANGE
    for task, cell in cells.items():
        yield Instance(task, low <= cell <= high, f"{cell}")
    yield Instance("ends of the range", (min(cells.values()), max(cells.values())) == (low, high))
    yield Figure("least", min(cells.values()))
    yield Figure("greatest", max(cells.values()))


@check("sec:experiments/parentheses-robust")
def parentheses_robust(run: Run) -> Iterator[Instance | Figure]:
    """The ablation table of parentheses."""
    for variant, row in paper.ABLATIONS["parentheses"].items():
        yield Instance(f"sparse, {variant}", row[SPARSE] == paper.ROBUST_PARENTHESES, f"{row[SPARSE]}")
    for variant, cell in paper.RANDOM_PARENTHESES.items():
        yield Instance(f"random, {variant}", paper.ABLATIONS["parentheses"][variant][RANDOM] == cell, f"{cell}")


@check("sec:experiments/normalisation-helps")
def normalisation_helps(run: Run) -> Iterator[Instance | Figure]:
    """Attention-only against residual and LN."""
    rises = []
    for task, table in paper.ABLATIONS.items():
        if task == "parentheses":
            continue
        for model, name in ((SPARSE, "sparse"), (RANDOM, "random")):
            rise = round(table["residual and LN"][model] - table["attention-only"][model], 1)
            rises.append(rise)
            yield Instance(f"{task}, {name}", rise > 0, f"rises by {rise}")
    yield Figure("least rise", min(rises))


@check("task:two-hop-example")
def two_hop_example(run: Run) -> Iterator[Instance | Figure]:
    """The hops by following positions, and by the appendix's rewriting of whole strings."""
    text = paper.TWO_HOP_INPUT
    for hops in (1, 2):
        found = agree({"positions": _hop(text, hops), "strings": _hop_strings(text, hops)[-1]})
        yield Figure(f"{hops}-hop", found.value)
        if hops == 2:
            yield Instance(text, found.value == paper.TWO_HOP_OUTPUT, f"output {found.value}", routes=found.routes)


def _hop(text: str, hops: int) -> str:
    """The hop from the last position: to the position after the latest earlier occurrence of the current symbol."""
    place = len(text) - 1
    for _ in range(hops):
        earlier = text.rfind(text[place], 0, place)
        if earlier < 0:
            return "-"
        place = earlier + 1
    return text[place]


def _hop_strings(text: str, hops: int) -> list[str]:
    """The same for every position at once: symbols and their source indices, rewritten hop by hop ("-": none)."""
    sources: list[int | None] = list(range(len(text)))
    for _ in range(hops):
        following: list[int | None] = []
        for source in sources:
            earlier = [j for j in range(source) if text[j] == text[source]] if source is not None else []
            following.append(earlier[-1] + 1 if earlier else None)
        sources = following
    return ["-" if source is None else text[source] for source in sources]


@check("fig:scaling_law/standard-width")
def standard_width(run: Run) -> Iterator[Instance | Figure]:
    """A random host of width Hd is refuted by dimension at the shapes of the scaling plots and on the grid."""
    for shape in run.shapes(anchors=[(2, 3, 28, 30)], largest=300):
        width = {"m = H d": shape.heads * shape.head_dim, "m = m-bar": paper_dimension(shape)}[
            paper.STANDARD_PARAMETRISATION
        ]
        if width >= matching_dimension(shape):
            yield Instance(shape, False, f"{width} is not below M", m=width)
            continue
        yield no_matching(shape, width)
    hop = _row_shape("2-hop")
    yield Figure("m and M at the 2-hop shape", f"{hop.heads * hop.head_dim} and {matching_dimension(hop)}")


@check("sec:experiments/vocabulary")
def vocabulary(run: Run) -> Iterator[Instance | Figure]:
    """d_in from m, H, L and d, in two ways."""
    for task, row in paper.TABLE_ROWS.items():
        H, L, d, m = row["heads"], row["layers"], row["head_dim"], row["m"]
        solved = (m - 2 * d * sum(H**t for t in range(1, L + 1))) // H**L
        tried = [width for width in range(1, 200) if paper_dimension(Shape(H, L, d, width)) == m]
        found = agree({"solved": [solved], "tried": tried})
        yield Figure(task, solved)
        yield Instance(task, found.value == [row["vocabulary"]], f"d_in = {solved}", routes=found.routes)
