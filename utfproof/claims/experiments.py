"""Section 5 and Appendices F, G: dimensions and figures of the tables, and what the text says of them.

These claims are about the paper's printed numbers (`paper.py`), not about new training runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from utfproof.claims.decisions import decided
from utfproof.claims.hosts import no_matching
from utfproof.claims.record import Category, Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.ground.notions import Notion, Scope
from utfproof.paper import tables as paper
from utfproof.shapes import Shape, matching_dimension, paper_dimension

FAR_FROM_OPTIMAL = 50.0
"""Our reading of "far from optimal", in percent."""
RECORD = (Evidence.RECORD,)
SPARSE, RANDOM, TRAINED = 0, 1, 2


def _row_shape(task: str) -> Shape:
    row = paper.TABLE_ROWS[task]
    return Shape(row["heads"], row["layers"], row["head_dim"], row["vocabulary"])


@claim(
    "tab:summary_results_combined/dimensions",
    place="Table 1, caption",
    statement="The embedding dimensions 1024, 456, 1024, 2280, 2280 of the experiments equal m̄ at their shapes.",
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="the five tasks, d_in = vocabulary size",
    verdict=Verdict.HOLDS.by(Evidence.CERTIFICATE),
    sentence="Each printed m is m̄ = M at its shape, and the repaired sparse host is universal by matching there.",
)
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


@claim(
    "tab:hyperparameters/shapes",
    place="Appendix G, both hyperparameter tables, captions of the tables and of the scaling figure, and Section 5.1",
    statement="The hyperparameter tables, the captions and the text name the same shapes: heads, layers, head dimension, vocabulary, m.",
    scope="both hyperparameter tables and the captions of all tables with accuracies and of the scaling figure, as they were recorded",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="No two of these places disagree about a shape.",
)
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


@claim(
    "tab:ablation_results/agree-with-summary",
    place="Tables 1-4",
    statement="Cells that stand in two tables (attention-only; residual and LN) agree.",
    scope="five tasks, three models",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="All 30 repeated cells agree.",
)
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


@claim(
    "sec:experiments/consistently-exceeds",
    place="Section 5.2.1, closing sentence of the ablations",
    statement="In every cell of the tables the sparse host is at least as accurate as the random one.",
    scope="five tasks, five variants",
    verdict=Verdict.FAILS.by(*RECORD),
    sentence="Three of the 25 cells contradict it: 2-hop with residual, 3-hop with MLP, 4-hop with MLP.",
)
def consistently(run: Run) -> Iterator[Instance | Figure]:
    """The recorded comparison in every cell."""
    holds = {"never below": lambda a, b: a >= b, "above": lambda a, b: a > b, "at times above": lambda a, b: True}
    contradicting = []
    for task, table in paper.ABLATIONS.items():
        for variant, row in table.items():
            fine = holds[paper.CONSISTENTLY](row[SPARSE], row[RANDOM])
            if not fine:
                contradicting.append(f"{task}, {variant}: {row[SPARSE]} < {row[RANDOM]}")
            yield Instance(f"{task}, {variant}", fine, f"sparse {row[SPARSE]}, random {row[RANDOM]}")
    yield Figure("contradicting cells", "; ".join(contradicting))


@claim(
    "sec:experiments/guessing",
    place="Section 5.2, attention-only results",
    statement="Attention-only, sparse and random hosts are above random guessing, 20 %, on every induction-head task, and far from optimal: below 50 %.",
    scope="attention-only cells of the sparse and random hosts; that guessing gives 20 % is not decided here",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="They lie between 29.4 and 39.4 %. (Two other cells lie below 20 %: 8.4, 1-hop fully trained, and 5.5, 1-hop random with residual.)",
)
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


@claim(
    "sec:experiments/residual-ln-sparse",
    place="Section 5.2",
    statement="With residual stream and layer normalisation the sparse host reaches 100 % on every induction-head task.",
    scope="1- to 4-hop",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="All four cells are 100 %.",
)
def sparse_with_residual(run: Run) -> Iterator[Instance | Figure]:
    """The summary table's column."""
    for task, row in paper.SUMMARY_RESIDUAL_LN.items():
        if task != "parentheses":
            yield Instance(task, row[SPARSE] == paper.SPARSE_WITH_RESIDUAL_LN, f"{row[SPARSE]}")


@claim(
    "sec:experiments/residual-ln-random",
    place="Section 5.2",
    statement="With residual stream and layer normalisation random hosts reach between 85.7 % and 96.1 % on the induction-head tasks.",
    scope="1- to 4-hop",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="Both ends of the range are attained: 85.7 at 2-hop, 96.1 at 1-hop.",
)
def random_with_residual(run: Run) -> Iterator[Instance | Figure]:
    """Least and greatest cell against the stated range."""
    cells = {task: row[RANDOM] for task, row in paper.SUMMARY_RESIDUAL_LN.items() if task != "parentheses"}
    low, high = paper.RANDOM_RANGE
    for task, cell in cells.items():
        yield Instance(task, low <= cell <= high, f"{cell}")
    yield Instance("ends of the range", (min(cells.values()), max(cells.values())) == (low, high))
    yield Figure("least", min(cells.values()))
    yield Figure("greatest", max(cells.values()))


@claim(
    "sec:experiments/parentheses-robust",
    place="Section 5.2.1, ablation studies",
    statement="On parentheses the sparse host reaches 100 % in every variant, and the random host rises from 94.4 % to 100 % with residual and LN or with MLPs.",
    scope="five variants",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="All nine cells are as the text says.",
)
def parentheses_robust(run: Run) -> Iterator[Instance | Figure]:
    """The ablation table of parentheses."""
    for variant, row in paper.ABLATIONS["parentheses"].items():
        yield Instance(f"sparse, {variant}", row[SPARSE] == paper.ROBUST_PARENTHESES, f"{row[SPARSE]}")
    for variant, cell in paper.RANDOM_PARENTHESES.items():
        yield Instance(f"random, {variant}", paper.ABLATIONS["parentheses"][variant][RANDOM] == cell, f"{cell}")


@claim(
    "sec:experiments/normalisation-helps",
    place="Section 5.2.1 and Appendix F",
    statement="Adding residual stream and layer normalisation raises the accuracy of both kinds of fixed host on every induction-head task.",
    scope="1- to 4-hop, sparse and random",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="Each of the eight cells rises, by at least 50 points.",
)
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


@claim(
    "task:two-hop-example",
    place="Section 5.1, k-hop induction heads",
    statement="For the input aabccabca the 2-hop output at the last position is c.",
    scope="the worked example",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="Two hops back from the last a: to the b after the previous a, then to the c after the previous b. A test vector for the task.",
)
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


@claim(
    "fig:scaling_law/standard-width",
    place="Section 5.2.2 and Figure 2, right",
    statement="A host of the usual width m = Hd is not universal by matching for its own class, whatever its weights.",
    about=Scope.of(Notion.MATCHING, "all untied"),
    scope="every shape: M ≥ 2dH > Hd",
    verdict=Verdict.HOLDS.by(Evidence.INEQUALITY),
    sentence="M ≥ 2dH is more than twice the usual width, so the right-hand plot explores m far below what matching needs; this says nothing of functional universality.",
)
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


@claim(
    "sec:experiments/vocabulary",
    place="Section 5.1",
    statement="With one-hot tokens d_in is the vocabulary size: 4 for parentheses, 30 for the k-hop tasks; the printed m belong to these.",
    category=Category.COUNT,
    scope="five tasks",
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="Solving m̄ = m for d_in at each shape gives back the stated vocabulary sizes.",
)
def vocabulary(run: Run) -> Iterator[Instance | Figure]:
    """d_in from m, H, L and d, in two ways."""
    for task, row in paper.TABLE_ROWS.items():
        H, L, d, m = row["heads"], row["layers"], row["head_dim"], row["m"]
        solved = (m - 2 * d * sum(H**t for t in range(1, L + 1))) // H**L
        tried = [width for width in range(1, 200) if paper_dimension(Shape(H, L, d, width)) == m]
        found = agree({"solved": [solved], "tried": tried})
        yield Figure(task, solved)
        yield Instance(task, found.value == [row["vocabulary"]], f"d_in = {solved}", routes=found.routes)
