"""Pictures by matplotlib (extra `plots`): checked before anything is computed, written all or nothing."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Any

from utfproof.errors import MalformedInput, install
from utfproof.util.files import require_writable, write_bytes


def open_figure(size: tuple[float, float]) -> Any:
    """A matplotlib figure of this width and height in inches, with a constrained layout. Always drawn by Agg: the backend that
    MPLBACKEND names may not be importable here. MalformedInput where matplotlib is missing."""
    os.environ["MPLBACKEND"] = "Agg"
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MalformedInput(f"pictures need matplotlib: {install('matplotlib')}") from None
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def picture_format(path: Path | str) -> str:
    """The picture's format by its suffix; MalformedInput where matplotlib or the folder is missing, or the format unknown."""
    known = open_figure((1, 1)).canvas.get_supported_filetypes()
    suffix = Path(path).suffix.lower().lstrip(".")
    if suffix not in known:
        endings = ", ".join(f".{name}" for name in sorted(known))
        raise MalformedInput(f"cannot plot to {path}: choose a name that ends in {endings}")
    require_writable(path)
    return suffix


def write_figure(figure: Any, path: Path | str) -> None:
    """A matplotlib figure under `path`, in the format of its suffix. MalformedInput where that cannot be."""
    buffer = BytesIO()
    figure.savefig(buffer, format=picture_format(path))
    write_bytes(path, buffer.getvalue())
