"""Which of the two layouts a folder of results has: a file for each result (`store`), or segments of many (`segments`)."""

from __future__ import annotations

import json
from pathlib import Path

from utfproof.sweeps.segments import Segments
from utfproof.sweeps.store import Store

LAYOUTS = (Store, Segments)


def layout(folder: Path) -> type[Store] | type[Segments] | None:
    """The layout that sweep.json says; None where there is none, or one that is no head."""
    try:
        version = json.loads((folder / "sweep.json").read_bytes())["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return next((kind for kind in LAYOUTS if kind.version == version), None)
