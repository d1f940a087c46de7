"""Measures how well random hosts emulate against slack and depth, and writes the text that quotes the measurements.

python scripts/measure_slack.py            measure: results/slack-cpu.json (about 7 minutes on 2 cores)
python scripts/measure_slack.py --text     docs/random-hosts.md from that file
python scripts/measure_slack.py --check    leave with 1 if the text is not what the data say
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import statistics
import sys
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
from pages import ROOT, table

from utfproof.emulation.slack import RATIOS, RECOMMENDED_RATIO, REFINEMENTS, SlackRow, slack_study
from utfproof.ground.files import write_bytes
from utfproof.ground.generator import LAWS
from utfproof.paper.tables import PAPER_TABLE_SHAPES
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape

DATA = ROOT / "results" / "slack-cpu.json"
PAGE = ROOT / "docs" / "random-hosts.md"
ENDS = (1.0, RECOMMENDED_RATIO)
DEPTHS = (1, 2, 3, 4, 5)
THIRD = "0.3333333333333333"
SECTIONS: dict[str, dict[str, Any]] = {
    "depth": {"shapes": [(2, L, 4, 4) for L in DEPTHS], "ratios": RATIOS, "ties": (False, True), "trials": 5},
    "equal size": {
        "shapes": [(2, L, d, d) for L, d in zip(DEPTHS, (104, 39, 17, 8, 4), strict=True)],
        "ratios": ENDS,
        "trials": 5,
    },
    "one head": {"shapes": [(1, L, 8, 8) for L in (1, 2, 4, 6, 8)], "ratios": ENDS, "trials": 5},
    "initialisations": {
        "shapes": [(2, 4, 4, 4)],
        "ratios": ENDS,
        "laws": (
            "uniform",
            "uniform:1",
            f"uniform:{THIRD}",
            "uniform:0.1",
            "binomial",
            "signs",
            f"signs:{THIRD}",
            "orthogonal",
            f"orthogonal:{THIRD}",
            "rotated",
            f"rotated:{THIRD}",
        ),
        "ties": (False, True),
        "trials": 5,
    },
    "refinement": {
        "shapes": [(2, 2, 4, 4), (2, 4, 4, 4), (2, 2, 28, 30)],
        "ratios": ENDS,
        "refinements": REFINEMENTS,
        "trials": 5,
        "separate": True,
    },
    "table shapes": {
        "shapes": [PAPER_TABLE_SHAPES[name] for name in ("1-hop", "parentheses", "2-hop")],
        "ratios": (1.0, 1.01, 1.05, 1.1, 1.25, 2.0),
        "ties": (False, True),
        "trials": 3,
    },
    "4-hop": {
        "shapes": [PAPER_TABLE_SHAPES["4-hop"]],
        "ratios": (1.0, 1.05, 1.25),
        "ties": (False, True),
        "trials": 3,
    },
}


def rounded(value: Any) -> Any:
    """Measured numbers to four digits: seeds are exact, errors are one draw."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def measure() -> dict[str, Any]:
    """All sections."""
    warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
    sections = {}
    for name, setting in SECTIONS.items():
        keywords = {**setting, "shapes": [Shape(*dimensions) for dimensions in setting["shapes"]]}
        rows = slack_study(**keywords)
        sections[name] = {"setting": setting, "rows": [[rounded(v) for v in astuple(row)] for row in rows]}
        print(f"{name}: {len(rows)} rows", file=sys.stderr)
    return {
        "study": "slack",
        "command": "python scripts/measure_slack.py",
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": 0,
        "recommended_ratio": RECOMMENDED_RATIO,
        "fields": [field.name for field in fields(SlackRow)],
        "sections": sections,
    }


def written(document: dict[str, Any]) -> bytes:
    """JSON with one row a line."""
    marks: dict[str, str] = {}

    def marked(row: list[Any]) -> str:
        mark = f"row {len(marks)}"
        marks[json.dumps(mark)] = json.dumps(row)
        return mark

    for section in document["sections"].values():
        section["rows"] = [marked(row) for row in section["rows"]]
    lines = json.dumps(document, indent=1).splitlines()
    for i, line in enumerate(lines):
        text = line.strip().rstrip(",")
        if text in marks:
            lines[i] = line.replace(text, marks[text])
    return ("\n".join(lines) + "\n").encode()


# --- the text ------------------------------------------------------------------------------------------------------


def show(value: float) -> str:
    """Two digits, in the shorter of the two ways."""
    if value >= 1000 or value < 0.1:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


class Section:
    """Rows of a section, and medians of them."""

    def __init__(self, document: dict[str, Any], name: str) -> None:
        self.rows = [SlackRow(*row) for row in document["sections"][name]["rows"]]
        self.trials = document["sections"][name]["setting"]["trials"]

    def chosen(self, **wanted: Any) -> list[SlackRow]:
        """Rows with these values."""
        return [row for row in self.rows if all(getattr(row, key) == value for key, value in wanted.items())]

    def median(self, value: str, **wanted: Any) -> float:
        """Median of a value over the rows with these values."""
        return statistics.median(getattr(row, value) for row in self.chosen(**wanted))

    def distinct(self, key: str) -> list[Any]:
        """Values of a field, in order of appearance."""
        return list(dict.fromkeys(getattr(row, key) for row in self.rows))


def shape_text(row: SlackRow) -> str:
    """(H, L, d, d_in)."""
    return f"({row.heads},{row.layers},{row.head_dim},{row.d_in})"


def depth_table(section: Section) -> str:
    """Condition, cancellation and error at both ends, one row a shape, untied / tied where both were measured."""
    rows = []
    for layers in section.distinct("layers"):
        cells = []
        for value in ("condition", "cancellation", "error"):
            for ratio in ENDS:
                pair = [section.median(value, layers=layers, ratio=ratio, tied=t) for t in section.distinct("tied")]
                cells.append(" / ".join(map(show, pair)))
        first = section.chosen(layers=layers)[0]
        rows.append([shape_text(first), str(first.columns), *cells])
    names = [f"{value}, {end}" for value in ("κ", "cancellation", "error") for end in ("m = M", "1.25 M")]
    return table(["shape", "M", *names], rows)


def ratio_table(section: Section, value: str, tied: bool) -> str:
    """A value against m / M, one row a depth."""
    ratios = section.distinct("ratio")
    rows = [
        [str(layers), *(show(section.median(value, layers=layers, ratio=ratio, tied=tied)) for ratio in ratios)]
        for layers in section.distinct("layers")
    ]
    return table(["L", *(f"{ratio:g}" for ratio in ratios)], rows)


def law_table(section: Section) -> str:
    """Initialisations at one shape, untied / tied."""
    rows = []
    for law in section.distinct("law"):
        cells = [f"{section.median('gain', law=law):.2g}"]
        for value in ("condition", "error"):
            for ratio in ENDS:
                pair = [section.median(value, law=law, ratio=ratio, tied=tied) for tied in (False, True)]
                cells.append(" / ".join(map(show, pair)))
        rows.append([law.replace(THIRD, "1/3"), *cells])
    names = [f"{value}, {end}" for value in ("κ", "error") for end in ("m = M", "1.25 M")]
    return table(["initialisation", "gain of R_V", *names], rows)


def refinement_table(section: Section) -> str:
    """What each way of solving leaves in the residual and in the output."""
    rows = []
    for layers, width in dict.fromkeys((row.layers, row.head_dim) for row in section.rows):
        for ratio in ENDS:
            for name in section.distinct("refinement"):
                wanted = {"layers": layers, "head_dim": width, "ratio": ratio, "refinement": name}
                cells = [
                    show(section.median(v, **wanted)) for v in ("misfit", "error", "error_of_E", "error_of_rounding")
                ]
                rows.append([shape_text(section.chosen(**wanted)[0]), f"{ratio:g}", name, *cells])
    return table(["shape", "m / M", "E", "residual", "error", "by E alone", "by the forward pass alone"], rows)


def paper_table(sections: Sequence[Section]) -> str:
    """The table shapes of the paper."""
    names = {dimensions: name for name, dimensions in PAPER_TABLE_SHAPES.items()}
    ratios = sections[0].distinct("ratio")
    rows = []
    for section in sections:
        for shape in dict.fromkeys((r.heads, r.layers, r.head_dim, r.d_in) for r in section.rows):
            wanted = dict(zip(("heads", "layers", "head_dim", "d_in"), shape, strict=True))
            for value in ("condition", "error", "error_float32"):
                cells = []
                for ratio in ratios:
                    if section.chosen(ratio=ratio, **wanted):
                        pair = [section.median(value, ratio=ratio, tied=tied, **wanted) for tied in (False, True)]
                        cells.append(" / ".join(map(show, pair)))
                    else:
                        cells.append("")
                label = {"condition": "κ", "error": "error", "error_float32": "error, float32"}[value]
                rows.append([f"{names[shape]}, M = {section.chosen(**wanted)[0].columns}", label, *cells])
    return table(["shape", "", *(f"{ratio:g}" for ratio in ratios)], rows)


def spread(values: Sequence[float]) -> str:
    """From the least to the largest."""
    return f"{show(min(values))} to {show(max(values))}"


def wrapped(text: str) -> str:
    """Paragraphs and list entries filled to the page's width; tables, titles and formulas as they are."""
    blocks = []
    for block in text.split("\n\n"):
        entries = re.split(r"\n(?=\* |\d\. )", block.strip("\n"))
        if block.lstrip("\n").startswith(("|", "#", "    ")):
            blocks.append(block.strip("\n"))
            continue
        lines = []
        for entry in entries:
            mark = re.match(r"(\* |\d\. )?", entry)
            indent = " " * len(mark.group()) if mark else ""
            lines += textwrap.wrap(
                " ".join(entry.split()), 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def page(document: dict[str, Any]) -> str:
    """The whole section."""
    sections = {name: Section(document, name) for name in document["sections"]}
    depth, equal, single = sections["depth"], sections["equal size"], sections["one head"]
    laws, refined, tables, largest = (
        sections[name] for name in ("initialisations", "refinement", "table shapes", "4-hop")
    )
    every = [row for section in sections.values() for row in section.rows]
    uniform = [row for row in every if row.predicted is not None or row.law.partition(":")[0] in LAWS]
    explained = [row.error / (2.0**-52 * row.cancellation) for row in uniform]
    errors = [row.error for row in uniform]
    narrow = statistics.median(row.error_float32 / row.error for row in uniform)
    predicted = {
        tied: [
            row.predicted / row.cancellation
            for row in every
            if row.predicted is not None and row.ratio >= RECOMMENDED_RATIO and row.tied is tied and row.columns > 100
        ]
        for tied in (False, True)
    }
    deepest = max(DEPTHS)
    ends = {ratio: [r.condition for r in depth.rows if (r.ratio, r.layers) == (ratio, deepest)] for ratio in ENDS}

    def gain(section: Section, value: str, low: float, high: float, **wanted: Any) -> str:
        return show(section.median(value, ratio=low, **wanted) / section.median(value, ratio=high, **wanted))

    def tail(ratio: float) -> str:
        """The largest error over its case's median, cases of i.i.d. entries."""
        cases: dict[Any, list[float]] = {}
        for section in (depth, equal, laws, tables, largest):
            for r in section.rows:
                if r.ratio == ratio and r.law.partition(":")[0] in LAWS:
                    cases.setdefault((r.heads, r.layers, r.head_dim, r.law, r.tied), []).append(r.error)
        return show(max(max(values) / statistics.median(values) for values in cases.values()))

    def paired(value: str) -> str:
        """Median over draws of one step's figure over that of extended precision."""
        pairs: dict[Any, dict[str, float]] = {}
        for r in refined.rows:
            pairs.setdefault((r.layers, r.head_dim, r.m, r.seed), {})[r.refinement] = getattr(r, value)
        return show(statistics.median(found["one step"] / found["extended"] for found in pairs.values()))

    extended = [r for r in refined.chosen(refinement="extended") if r.error_of_E and r.error_of_rounding]
    shares = [(r.error_of_rounding or 0) / (r.error_of_E or 1) for r in extended]
    deep, shallow = (equal.median("error", layers=n, ratio=RECOMMENDED_RATIO) for n in (deepest, min(DEPTHS)))
    slope = equal.median("gain", ratio=RECOMMENDED_RATIO) * 3
    kept = {law: laws.median("condition", law=law, ratio=RECOMMENDED_RATIO) for law in ("orthogonal", "uniform")}
    filled = TEXT.format(
        command=document["command"],
        cores=document["cores"],
        python=document["python"],
        trials=depth.trials,
        rows=len(every),
        uniform_rows=len(uniform),
        ratio=f"{RECOMMENDED_RATIO:g}",
        cost=f"{RECOMMENDED_RATIO**2:.2f}",
        least_ratio="1.05",
        share=f"{100 * sum(1 < value < 50 for value in explained) / len(explained):.0f}",
        orders=f"{math.log10(max(errors) / min(errors)):.0f}",
        narrow=show(narrow),
        depth=depth_table(depth),
        ratios=ratio_table(depth, "error", False),
        equal=depth_table(equal),
        single=depth_table(single),
        laws=law_table(laws),
        refined=refinement_table(refined),
        tables=paper_table([tables, largest]),
        untied_low=f"{min(predicted[False]):.2f}",
        untied_high=f"{max(predicted[False]):.2f}",
        tied_low=f"{min(predicted[True]):.2f}",
        tied_high=f"{max(predicted[True]):.2f}",
        bounded=f"{math.prod(1 / (1 - 2.0**-j) for j in range(1, 60)):.2f}",
        deepest=deepest,
        gain_growth=show(slope ** (deepest - min(DEPTHS))),
        equal_growth=show(deep / shallow),
        seeds=len(ends[1.0]),
        condition_spread=spread(ends[1.0]),
        slack_spread=spread(ends[RECOMMENDED_RATIO]),
        recommended_gain=gain(depth, "error", 1.0, RECOMMENDED_RATIO, layers=deepest),
        doubled_gain=gain(depth, "error", RECOMMENDED_RATIO, 2.0, layers=deepest),
        four_hop=gain(largest, "error", 1.0, RECOMMENDED_RATIO),
        orthogonal=show(kept["orthogonal"] / kept["uniform"]),
        residual_gain=paired("misfit"),
        error_gain=paired("error"),
        pass_share=show(statistics.median(shares)),
        signs=show(laws.median("error", law="signs", ratio=RECOMMENDED_RATIO)),
        signs_rescaled=show(laws.median("error", law=f"signs:{THIRD}", ratio=RECOMMENDED_RATIO)),
        tail=tail(1.0),
        slack_tail=tail(RECOMMENDED_RATIO),
    )
    return wrapped(filled)


TEXT = """\
# Random hosts: why the error grows with depth, and what helps

**Take m = {ratio} M for a random host.** At m = M the equations E R_all = W_all have a solution, but R_all is a
square random matrix: its smallest singular value is of the order of 1/m of its largest, and varies so much from
draw to draw that ||E||^2 has no mean. At m = {ratio} M it is about 1 - sqrt(M/m) (one layer, columns of
length one), whatever the size. This costs (m/M)^2 = {cost} times the work and gains a factor of {recommended_gain}
in the output at (2,5,4,4), and of {four_hop} at the 4-hop shape; doubling m instead gains a further {doubled_gain}.
Where dimensions are dear, {least_ratio} M does a good part of it: from m = M + 2 on the mean is finite.

Figures are medians (of {trials} seeds unless said otherwise) from `results/slack-cpu.json` ({rows} rows;
`{command}`, {cores} cores, Python {python}). The error is the largest one of the outputs over their largest entry,
in float64, for 8 tokens, scaled causal softmax and targets of the uniform law. "a / b" is untied / tied.

## What the error is made of

Call *cancellation* the root mean square of E's entries over that of the output columns of W_all, each divided by
the length of its column of R_all: how many times smaller E R_w U = M_w comes out than products of vectors in
general position would. In {share} % of the {uniform_rows} rows with i.i.d. entries the error is between 1 and 50
times 2^-52 times the cancellation, while the errors themselves span {orders} orders of magnitude; the same pass in
float32 errs {narrow} times as much (2^29 = 5.4e8). So it is rounding, multiplied by the cancellation.

For an untied host with independent Gaussian entries (deviation s in readers, g/sqrt(m) in R_V) the mean of ||E||^2
is known exactly, at every depth. From the last layer backwards the columns are G T, with G Gaussian, [m, M_k], and
independent of T, and the mean of (G^T G)^-1 is 1/(m - M_k - 1) over the entries' variance. So columns of W_all
whose words pass k - 1 value matrices before they are read add

    ||W_columns||^2 g^(-2(k-1)) m^(k-1) / (s^2 (m - M_1 - 1) ... (m - M_k - 1)),

where M_k is M of the layers k ... L, and d_out for k = L + 1. `emulation.slack.predicted_norm` computes the sum.
From m = {ratio} M on, at M > 100, predicted over measured cancellation is {untied_low} to {untied_high} for untied
hosts and {tied_low} to {tied_high} for tied ones, although the proof covers Gaussian entries of untied hosts only.
The formula names three causes of growth with depth:

1. *The square factor*, m - M - 1. At m = M the mean is infinite; the typical size grows with M, and M like H^L.
   Slack removes it.
2. *The gain*. The host's stream shrinks by g a layer and M_w by the target's own gain (1/3 for targets of the
   uniform law, where g = 0.58), and the output is what is left of their quotient to the power L. Slack does nothing
   about it: from L = 1 to L = {deepest} at equal M it makes {gain_growth}, and the error at {ratio} M grows by
   {equal_growth}.
3. *The inner factors*, m/(m - M_k - 1) for k >= 2. As M_(k+1) = M_k/H - 2d, their product is below {bounded} at H =
   2 for every depth; with one head it grows exponentially with L, at a rate that slack lowers.

{depth}

Error against m / M, untied:

{ratios}

At (nearly) equal M, depth alone:

{equal}

One head:

{single}

## What helps, and what does not

* **Slack** does. It also takes the luck out: at (2,5,4,4) the κ of {seeds} draws goes from {condition_spread} at m
  = M, and from {slack_spread} at {ratio} M.
* **The gain of R_V** does. Multiplying R_V by a constant leaves κ (columns scaled) as it is and changes the
  cancellation. A gain no larger than the targets' is best; a smaller one loses little here. The law `signs`
  (entries ±1) has gain sqrt(m): at depth 4 it errs by {signs} with all its slack, and by {signs_rescaled} with R_V
  rescaled (`emulation.initialisation.rescaled_host`).
* **Orthogonal R_V and readers** (`orthogonal_host`) have {orthogonal} times the κ of the uniform law at {ratio} M,
  but are no remedy at m = M; and their gain is 1, so for these targets they are worse than the uniform law until
  rescaled.
* **A designed host in a random basis** (`rotated_host`: B R_V B^T of the {{0,1}} host) has κ = 1 at m = M, with
  dense weights. What is lost at m = M is lost to independent entries, not to density.

At (2,4,4,4); NAME:GAIN sets the gain (for `rotated`, on the coordinates that R_V keeps):

{laws}

* **Scaling columns** changes nothing: Householder QR is indifferent to it ("unscaled" and "scaled" below).
* **Residuals in twice the working precision** (`emulation.refine.refine_embedding`) bring the residual down by a
  factor of {residual_gain} against one step in float64, to what rounding E's entries leaves; the output's error
  changes by a factor of {error_gain} (median over the same draws). Even with this E the float64 forward pass alone
  makes {pass_share} times the error that E alone makes, so E is not worth more digits:

{refined}

## The paper's table shapes

Medians of 3 seeds, against m / M:

{tables}

## Limits

* κ is a symptom: what decides is the cancellation, which depends on the target. Where M_w shrink less from layer to
  layer than here, deep hosts lose less than here, and the other way round.
* Medians of few seeds. At m = M errors have heavy tails: the worst of a handful of draws is up to {tail} times its
  median, at {ratio} M up to {slack_tail} times.
* One input of 8 tokens and one attention kernel; logits are small with these targets. Large logits turn errors of
  queries and keys into errors of attention.
* The rows in float32 solve for E in float64 and round it.
* `orthogonal_host` and `rotated_host` come from floating-point QR: a seed does not name them bit for bit on other
  machines. Their weights can be certified from a file, like any others.
"""


def main(arguments: list[str]) -> int:
    """Measure, write the text, or check it."""
    if arguments not in ([], ["--text"], ["--check"]):
        print(__doc__)
        return 2
    if not arguments:
        write_bytes(DATA, written(measure()))
        return 0
    text = page(json.loads(DATA.read_text(encoding="utf-8")))
    if arguments == ["--check"]:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.name} {'is' if same else 'is not'} what the data say")
        return 0 if same else 1
    write_bytes(PAGE, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
