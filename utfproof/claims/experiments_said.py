"""Section 5 and its appendices: what is said of the experiments, and of how they were made, beside the tables."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from utfproof.claims.record import Evidence, Figure, Instance, Run, Verdict, agree
from utfproof.claims.registry import claim
from utfproof.paper import tables as paper

RECORD = (Evidence.RECORD,)
HOPS = ("1-hop", "2-hop", "3-hop", "4-hop")
KINDS = ("sparse", "random")
SLACK = 5.0
"""Our reading of "robust": at most so many points lost."""


@claim(
    "sec:experiments/more-depth",
    place="Section 5.2, attention-only results",
    statement="Attention-only, optimization becomes harder as the task requires more depth: by the accuracy of the fixed hosts, or by what they lack of the fully trained transformer's.",
    scope="sparse and random hosts, attention-only, where the depth grows: 1-hop, 2-hop, 3-hop (depths 2, 3, 4); undecided where the two measures disagree",
    verdict=Verdict.OPEN.by(Evidence.OPEN),
    sentence="Printed accuracies rise where the depth grows, and so does what is missing: neither measures difficulty alone, as what guessing reaches, and what full training finds, differ too.",
)
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


@claim(
    "sec:experiments/frozen-mlp",
    place="Section 5.2.1, ablation studies",
    statement="At 2-hop that residual connections and layer normalisation improve the performance is robust when frozen random MLPs are added: by what is reached with both, or by what they gain beside MLPs.",
    scope="2-hop, for both kinds of fixed host; read as at most five points less than without MLPs, or as a gain over MLPs alone; undecided where the two readings disagree",
    verdict=Verdict.OPEN.by(*RECORD, Evidence.OPEN),
    sentence="The sparse host is robust either way. The random host gains beside MLPs, and falls from 85.7 to 66.2 %.",
)
def frozen_mlp(run: Run) -> Iterator[Instance | Figure]:
    """Both kinds of host: with LN without and with MLPs; with MLPs without and with LN."""
    table = paper.ABLATIONS["2-hop"]
    for column, kind in enumerate(KINDS):
        before, after, without = (table[name][column] for name in ("residual and LN", "MLP and LN", "MLP"))
        kept, gained = before - after <= SLACK, after - without > 0
        yield Instance(kind, kept if kept == gained else None, f"{before} to {after}; beside MLPs {without} to {after}")
    yield Figure("points that the random host loses", round(table["residual and LN"][1] - table["MLP and LN"][1], 1))


@claim(
    "sec:experiments/vocabulary-of-parentheses",
    place="Section 5.1 against Appendix G",
    statement="The four symbols of the parenthesis task are two parentheses and two labels, in the section on tasks and in the appendix on data alike.",
    scope="the two descriptions; they agree on four symbols",
    verdict=Verdict.FAILS.by(*RECORD),
    sentence="The appendix has padding or end, the two parentheses and a query token: no tokens beside the parentheses, which are the answers too, are labels there.",
)
def vocabulary_of_parentheses(run: Run) -> Iterator[Instance | Figure]:
    """Both lists of symbols."""
    said, made = paper.PARENTHESIS_SYMBOLS, paper.PARENTHESIS_TOKENS
    yield Instance("how many", len(said) == len(made) == paper.HYPERPARAMETERS_PARENTHESES["vocabulary"], "4 and 4")
    yield Instance("parentheses", said[:2] == tuple(t for t in made if "parenthesis" in t), "in both")
    for symbol in sorted({s for s in said if s not in made}):
        yield Instance(symbol, False, "not a token of the appendix")


@claim(
    "sec:experiments/initialisation",
    place="Section 5.1, architectures",
    statement="Uniform(−1/√m, 1/√m) is the default of a PyTorch linear layer with m inputs: uniform with bound gain · √(3/m), gain² = 2/(1 + 5).",
    scope="m = 456, 1024, 2280; the layers that read the stream of width m: R_Q, R_K, R_V",
    verdict=Verdict.HOLDS.by(Evidence.SINGLE),
    sentence="The square of PyTorch's bound is the fraction 1/m (the tests hold the formula against torch.nn.Linear itself).",
)
def initialisation(run: Run) -> Iterator[Instance | Figure]:
    """kaiming_uniform with a = √5, as torch.nn.Linear uses it: the bound's square."""
    for m in sorted({row["m"] for row in paper.TABLE_ROWS.values()}):
        square = linear_bound_squared(m)
        yield Instance(f"m = {m}", square == Fraction(1, m), f"bound² = {square}")


def linear_bound_squared(inputs: int) -> Fraction:
    """(gain · √(3/fan_in))², gain² = 2/(1 + a²), a² = 5: what torch.nn.Linear draws its weights within."""
    return Fraction(2, 1 + 5) * 3 / inputs


@claim(
    "sec:experiments/lengths",
    place="Section 5.1 against Appendix G",
    statement="Inputs of at most 60 parentheses are those of the appendix, of length at most 2·max_len: with max_len = 30.",
    scope="read charitably: the appendix does not give max_len",
    verdict=Verdict.HOLDS.by(*RECORD),
    sentence="60 is even, and max_len = 30 pairs make it; whether padding and query count is not said.",
)
def lengths(run: Run) -> Iterator[Instance | Figure]:
    """60 as twice a number of pairs."""
    half, odd = divmod(paper.MOST_PARENTHESES, 2)
    yield Instance("parentheses", odd == 0, f"2 · {half}")
    yield Figure("max_len", half)


@claim(
    "task:two-hop-example/neighbours",
    place="Section 5.1 against Appendix G, k-hop induction heads",
    statement="The worked example aabccabca of the task's definition is none of the inputs that the appendix generates, in which no two neighbours are equal.",
    scope='the example; "each subsequent character is sampled uniformly subject to being different from the previous"',
    verdict=Verdict.HOLDS.by(Evidence.ARITHMETIC),
    sentence="It has aa and cc. It explains the definition, by which its output c is right (task:two-hop-example).",
)
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
