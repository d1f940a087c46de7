"""The notebooks of docs/notebooks/, executed: as Markdown for the site, and in tests.

python scripts/notebooks.py [NAME …]   (executes all unless some are named, and prints a line for each)
"""

from __future__ import annotations

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"


def names() -> list[str]:
    """The notebooks, without `.ipynb`."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def executed(name: str) -> Any:
    """The notebook with its outputs. It runs in out/notebooks; nbclient raises CellExecutionError if a cell fails."""
    import nbformat
    from nbclient import NotebookClient

    work = ROOT / "out" / "notebooks"
    work.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(work)}}).execute()


def page(name: str) -> str:
    """The executed notebook as Markdown, pictures inside."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_notebook_node(executed(name))
    for file, content in resources["outputs"].items():
        text = text.replace(f"]({file})", f"](data:image/png;base64,{b64encode(content).decode()})")
    return text


if __name__ == "__main__":
    for chosen in sys.argv[1:] or names():
        executed(chosen)
        print(f"{chosen}: executed")
