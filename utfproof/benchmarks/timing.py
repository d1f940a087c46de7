"""The machine that a measurement's document describes."""

from __future__ import annotations

import os
import platform
from typing import Any


def circumstances() -> dict[str, Any]:
    """Where and with what this runs; the load average is that of the moment."""
    return {
        "versions": _versions(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def library() -> str:
    """The BLAS that NumPy runs."""
    import numpy as np

    config: dict[str, Any] = np.show_config(mode="dicts") or {}  # type: ignore[assignment]
    found = config.get("Build Dependencies", {}).get("blas", {})
    return (
        f"NumPy's {found.get('name', 'BLAS')}: {found.get('openblas configuration', found.get('version', 'unknown'))}"
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("utfproof", "numpy", "python-flint", "sympy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
