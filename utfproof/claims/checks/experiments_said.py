"""Section 5 and its appendices: what is said of the experiments, and of how they were made, beside the tables."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from utfproof.claims.claim import Figure, Instance, Run, agree, check
from utfproof.claims.verdicts import TOLERANCE
from utfproof.paper import tables as paper

HOPS = ("1-hop", "2-hop", "3-hop", "4-hop")
KINDS = ("sparse", "random")


@check("sec:experiments/more-depth")
def more_depth(run: Run) -> Iterator[Instance | Figure]:
    """Each task against the next deeper one, by both measures."""
    depths = [(task, int(paper.TABLE_ROWS[task]["layers"])) for task in HOPS]
    for column, kind in enumerate(KINDS):
        cells = {task: paper.SUMMARY_ATTENTION_ONLY[task] for task in HOPS}
        missing = {task: round(row[-1] - row[column], 1) for task, row in cells.items()}
        for (task, depth), (following, deeper) in pairwise(depths):
            if deeper > depth:
                lower = cells[following][column] < cells[task][column]
                farther = missing[following] > missing[task]
                detail = f"{cells[task][column]} to {cells[following][column]}, missing {missing[task]} to {missing[following]}"
                yield Instance(f"{kind}, {task} to {following}", lower if lower == farther else None, detail)
        yield Figure(f"{kind}, attention-only", ", ".join(str(row[column]) for row in cells.values()))
        yield Figure(f"{kind}, missing of the fully trained", ", ".join(map(str, missing.values())))


@check("sec:experiments/frozen-mlp")
def frozen_mlp(run: Run) -> Iterator[Instance | Figure]:
    """Both kinds of host: with LN without and with MLPs; with MLPs without and with LN."""
    table = paper.ABLATIONS["2-hop"]
    for column, kind in enumerate(KINDS):
        before, after, without = (table[name][column] for name in ("residual and LN", "MLP and LN", "MLP"))
        kept, gained = before - after <= TOLERANCE, after - without > 0
        yield Instance(kind, kept if kept == gained else None, f"{before} to {after}; beside MLPs {without} to {after}")
    yield Figure("points that the random host loses", round(table["residual and LN"][1] - table["MLP and LN"][1], 1))


@check("sec:experiments/vocabulary-of-parentheses")
def vocabulary_of_parentheses(run: Run) -> Iterator[Instance | Figure]:
    """Both lists of symbols."""
    said, made = paper.PARENTHESIS_SYMBOLS, paper.PARENTHESIS_TOKENS
    yield Instance("how many", len(said) == len(made) == paper.HYPERPARAMETERS_PARENTHESES["vocabulary"], "4 and 4")
    for name, listed in (("section", said), ("appendix", made)):
        yield Instance(
            f"parentheses, {name}", sum("parenthesis" in symbol for symbol in listed) == 2, ", ".join(listed)
        )


@check("sec:experiments/initialisation")
def initialisation(run: Run) -> Iterator[Instance | Figure]:
    """kaiming_uniform with a = √5, as torch.nn.Linear uses it: the bound's square."""
    for m in sorted({row["m"] for row in paper.TABLE_ROWS.values()}):
        square = linear_bound_squared(m)
        yield Instance(f"m = {m}", square == Fraction(1, m), f"bound² = {square}")


def linear_bound_squared(inputs: int) -> Fraction:
    """(gain · √(3/fan_in))², gain² = 2/(1 + a²), a² = 5: what torch.nn.Linear draws its weights within."""
    return Fraction(2, 1 + 5) * 3 / inputs


@check("sec:experiments/lengths")
def lengths(run: Run) -> Iterator[Instance | Figure]:
    """60 as twice a number of pairs."""
    half, odd = divmod(paper.MOST_PARENTHESES, 2)
    yield Instance("parentheses", odd == 0, f"2 · {half}")
    yield Figure("max_len", half)


@check("task:two-hop-example/neighbours")
def neighbours(run: Run) -> Iterator[Instance | Figure]:
    """Pairs of equal neighbours, by position and by the text's runs."""
    text = paper.TWO_HOP_INPUT
    runs = "".join(f"{a} " if a != b else a for a, b in pairwise(text)) + text[-1]
    equal = agree(
        {
            "positions": [text[i : i + 2] for i in range(len(text) - 1) if text[i] == text[i + 1]],
            "runs": [run for run in runs.split() if len(run) > 1],
        }
    )
    yield Instance(text, bool(equal.value), ", ".join(equal.value), routes=equal.routes)
    yield Figure("equal neighbours", len(equal.value))
