"""Section 5 and Appendices F, G: the paper's printed numbers, and its sentences about them. No new training runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.decisions import decided
from utfproof.claims.verdicts import TOLERANCE
from utfproof.paper import tables as paper
from utfproof.shapes import Shape, matching_dimension, paper_dimension

FAR_FROM_OPTIMAL = 50.0
"""Our reading of "far from optimal", in percent."""
KINDS = ("sparse", "random")
"""The first two columns of the tables."""
HOPS = ("1-hop", "2-hop", "3-hop", "4-hop")


# --- tables --------------------------------------------------------------------------------------------------------


@check("tab:summary_results_combined/dimensions")
def table_dimensions(run: Run) -> Iterator[Instance | Figure]:
    """m-bar by the formula, M by counting columns, and a certificate at the printed m."""
    for row in paper.TABLE_ROWS.values():
        shape = Shape(row["heads"], row["layers"], row["head_dim"], row["vocabulary"])
        if {row["m"]} == {paper_dimension(shape), matching_dimension(shape)}:
            yield decided("sparse", shape, row["m"])
        else:
            yield Instance(shape, False, f"printed {row['m']}, m-bar {paper_dimension(shape)}")


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
        for task, caption in tasks.items():
            differing = [name for name, value in caption.items() if paper.TABLE_ROWS[task][name] != value]
            detail = ", ".join(differing) or "as in the first table"
            yield Instance(f"{task}, caption of {place}", not differing, detail)


@check("tab:ablation_results/agree-with-summary")
def repeated_cells(run: Run) -> Iterator[Instance | Figure]:
    """Every cell that is printed twice."""
    twice = {"attention-only": paper.SUMMARY_ATTENTION_ONLY, "residual and LN": paper.SUMMARY_RESIDUAL_LN}
    for variant, table in twice.items():
        for task, row in table.items():
            other = paper.ABLATIONS[task][variant]
            yield Instance(f"{task}, {variant}", row == other, f"{row} against {other}")


# --- accuracies ----------------------------------------------------------------------------------------------------


@check("sec:experiments/consistently-exceeds")
def consistently(run: Run) -> Iterator[Instance | Figure]:
    """Every cell, within the tolerance; the cells in which the random host is ahead."""
    ahead = []
    for task, table in paper.ABLATIONS.items():
        for variant, (sparse, random, _) in table.items():
            if sparse < random:
                ahead.append(f"{task}, {variant}: {sparse} < {random}")
            yield Instance(f"{task}, {variant}", sparse >= random - TOLERANCE, f"sparse {sparse}, random {random}")
    yield Figure("random host ahead", "; ".join(ahead))


@check("sec:experiments/guessing")
def guessing(run: Run) -> Iterator[Instance | Figure]:
    """The attention-only cells of the fixed hosts against the guessing level; every other cell below it, listed."""
    for task in HOPS:
        for name, cell in zip(KINDS, paper.ABLATIONS[task]["attention-only"], strict=False):
            yield Instance(f"{task}, {name}", paper.GUESSING < cell < FAR_FROM_OPTIMAL, f"{cell} %")
    rows = [(task, variant, row) for task in HOPS for variant, row in paper.ABLATIONS[task].items()]
    below = [f"{task}, {variant}: {cell}" for task, variant, row in rows for cell in row if cell < paper.GUESSING]
    yield Figure("cells below", "; ".join(below))


@check("sec:experiments/residual-ln-random")
def random_with_residual(run: Run) -> Iterator[Instance | Figure]:
    """Least and greatest cell against the stated range."""
    cells = {task: paper.SUMMARY_RESIDUAL_LN[task][1] for task in HOPS}
    low, high = paper.RANDOM_RANGE
    for task, cell in cells.items():
        yield Instance(task, low <= cell <= high, f"{cell}")
    ends = min(cells.values()), max(cells.values())
    yield Instance("ends of the range", ends == (low, high), f"{ends[0]} to {ends[1]}")


@check("sec:experiments/parentheses-robust")
def parentheses_robust(run: Run) -> Iterator[Instance | Figure]:
    """The ablation table of parentheses."""
    for variant, row in paper.ABLATIONS["parentheses"].items():
        yield Instance(f"sparse, {variant}", row[0] == paper.ROBUST_PARENTHESES, f"{row[0]}")
    for variant, cell in paper.RANDOM_PARENTHESES.items():
        yield Instance(f"random, {variant}", paper.ABLATIONS["parentheses"][variant][1] == cell, f"{cell}")


@check("sec:experiments/normalisation-helps")
def normalisation_helps(run: Run) -> Iterator[Instance | Figure]:
    """Attention-only against residual and LN."""
    for task in HOPS:
        table = paper.ABLATIONS[task]
        for name, before, after in zip(KINDS, table["attention-only"], table["residual and LN"], strict=False):
            yield Instance(f"{task}, {name}", after > before, f"rises by {after - before:.1f}")


@check("sec:experiments/more-depth")
def more_depth(run: Run) -> Iterator[Instance | Figure]:
    """Each task against the next deeper one: the accuracy, and what the fully trained model is ahead."""
    for column, kind in enumerate(KINDS):
        for task, deeper in pairwise(HOPS):
            if paper.TABLE_ROWS[deeper]["layers"] > paper.TABLE_ROWS[task]["layers"]:
                near, far = (paper.SUMMARY_ATTENTION_ONLY[name] for name in (task, deeper))
                lower, farther = far[column] < near[column], far[-1] - far[column] > near[-1] - near[column]
                detail = f"{near[column]} of {near[-1]} to {far[column]} of {far[-1]}"
                yield Instance(f"{kind}, {task} to {deeper}", lower if lower == farther else None, detail)


@check("sec:experiments/frozen-mlp")
def frozen_mlp(run: Run) -> Iterator[Instance | Figure]:
    """Both kinds of host: with LN without and with MLPs; with MLPs without and with LN."""
    table = paper.ABLATIONS["2-hop"]
    for column, kind in enumerate(KINDS):
        before, after, without = (table[name][column] for name in ("residual and LN", "MLP and LN", "MLP"))
        kept, gained = before - after <= TOLERANCE, after - without > 0
        yield Instance(kind, kept if kept == gained else None, f"{before} to {after}; beside MLPs {without} to {after}")


# --- tasks and training ----------------------------------------------------------------------------------------------


@check("task:two-hop-example")
def two_hop_example(run: Run) -> Iterator[Instance | Figure]:
    """The hops by following positions, and by the appendix's rewriting of whole strings."""
    text = paper.TWO_HOP_INPUT
    found = agree({"positions": _hop(text, 2), "strings": _hop_strings(text, 2)[-1]})
    yield found.at(text, f"output {found}", holds=found.value == paper.TWO_HOP_OUTPUT)


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
