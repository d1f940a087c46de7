"""The picture of the frontier: m against L, lower and upper, on a logarithmic scale."""

from __future__ import annotations

from pathlib import Path

from utfproof.frontiers.table import Frontier, groups
from utfproof.util.plots import picture_format, write_figure


def plot(found: Frontier, path: Path | str) -> None:
    """One panel for each group of questions: per number of heads a line for what is reached (a certificate for each filled
    point, none for hollow ones) and a dashed one for what is proved, with the gap between them shaded.

    MalformedInput where matplotlib is missing or `path` cannot be written.
    """
    picture_format(path)
    from utfproof.util.plots import open_figure

    panels = groups(found)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = open_figure((5.2 * columns, 3.4 * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    heads = sorted({entry.shape.heads for entry in found.entries})
    for axes, group in zip(grid.flat, panels, strict=False):
        for color, head in enumerate(heads):
            entries = [e for e in found.of[group.questions[0]] if e.shape.heads == head]
            layers = [e.shape.layers for e in entries]
            proved = [e.proved.value for e in entries]
            axes.plot(layers, proved, "--", color=f"C{color}", linewidth=1)
            if all(e.reached is not None for e in entries):
                sides = [e.reached for e in entries if e.reached is not None]
                reached = [side.value for side in sides]
                axes.plot(layers, reached, color=f"C{color}", label=f"H = {head}")
                axes.fill_between(layers, proved, reached, color=f"C{color}", alpha=0.12, linewidth=0)
                for length, side in zip(layers, sides, strict=True):
                    hollow = side.status != "certificate"
                    axes.plot([length], [side.value], "o", color=f"C{color}", markersize=4,
                              markerfacecolor="white" if hollow else f"C{color}")  # fmt: skip
        axes.set_yscale("log")
        axes.set_title(group.title.replace(" (", "\n("), fontsize=8)
        axes.set_xticks(sorted({entry.shape.layers for entry in found.entries}))
        axes.grid(alpha=0.3)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    grid[0][0].legend(fontsize="small")
    for row in grid:
        row[0].set_ylabel("m")
    for axes in grid[-1]:
        axes.set_xlabel("layers L")
    figure.suptitle("least m: reached (line) and proved (dashed)", fontsize=10)
    write_figure(figure, path)
