"""The map of the house: rooms in the layers of pyproject.toml, and an arrow for each import between rooms.

python scripts/house_map.py FILE.svg
"""

import re
import sys
import tomllib
from pathlib import Path

import grimp

from utfproof.reporting.charts import chart

ROOT = Path(__file__).parents[1]


def layers() -> list[list[str]]:
    """The rooms of each layer, from the commands down to the shapes."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[name.removeprefix("utfproof.") for name in re.findall(r"utfproof\.\w+", row)] for row in rows]


def imports(rooms: set[str]) -> set[tuple[str, str]]:
    """(importing room, imported room), without those that follow from two others."""
    graph = grimp.build_graph("utfproof")
    edges = {
        (one, other)
        for one in rooms
        for other in rooms - {one}
        if graph.direct_import_exists(importer=f"utfproof.{one}", imported=f"utfproof.{other}", as_packages=True)
    }
    return {(a, c) for a, c in edges if not any((a, b) in edges and (b, c) in edges for b in rooms)}


def draw() -> str:
    """The picture as SVG."""
    rows = layers()
    place = {name: ((i + 1) / (len(row) + 1), -level) for level, row in enumerate(rows) for i, name in enumerate(row)}
    arrow = {"arrowstyle": "-|>", "color": "#8aa", "shrinkA": 12, "shrinkB": 14}
    with chart(8, 0.75 * len(rows)) as (axes, drawn):
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(0.5 - len(rows), 0.5))
        for one, other in sorted(imports(set(place))):
            axes.annotate("", place[other], place[one], arrowprops=arrow)
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#357"}
        for name, at in place.items():
            axes.text(*at, name, ha="center", va="center", color="#123", bbox=box)
        return str(drawn())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw())
