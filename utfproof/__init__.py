"""utfproof: can a fixed transformer act as every transformer of a class when only its input embedding changes?

Importing the package is light: NumPy, SciPy, FLINT, torch and SymPy are loaded when something needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Shape": "utfproof.shapes",
    "Target": "utfproof.systems",
    "Universal": "utfproof.systems",
    "SharedAttentionUniversal": "utfproof.systems",
    "SoftmaxAttention": "utfproof.attention",
    "GivenAttention": "utfproof.attention",
    "RationalAttention": "utfproof.attention",
    "build_host": "utfproof.constructions",
    "random_target": "utfproof.constructions",
    "embed": "utfproof.matching",
    "embed_model": "utfproof.models",
    "from_model": "utfproof.models",
    "from_parts": "utfproof.models",
    "import_model": "utfproof.models",
    "r_all": "utfproof.matching",
    "w_all": "utfproof.matching",
    "certify": "utfproof.certificates.prover",
    "check": "utfproof.certificates.checking",
    "decide": "utfproof.decision.host",
    "emulate": "utfproof.emulation.emulate",
    "frontier": "utfproof.frontiers.table",
}

__all__ = [
    "__version__",
    "Shape",
    "Target",
    "Universal",
    "SharedAttentionUniversal",
    "SoftmaxAttention",
    "GivenAttention",
    "RationalAttention",
    "build_host",
    "random_target",
    "embed",
    "embed_model",
    "from_model",
    "from_parts",
    "import_model",
    "r_all",
    "w_all",
    "certify",
    "check",
    "decide",
    "emulate",
    "frontier",
]

if TYPE_CHECKING:
    from utfproof.attention import GivenAttention, RationalAttention, SoftmaxAttention
    from utfproof.certificates.checking import check
    from utfproof.certificates.prover import certify
    from utfproof.constructions import build_host, random_target
    from utfproof.decision.host import decide
    from utfproof.emulation.emulate import emulate
    from utfproof.frontiers.table import frontier
    from utfproof.matching import embed, r_all, w_all
    from utfproof.models import embed_model, from_model, from_parts, import_model
    from utfproof.shapes import Shape
    from utfproof.systems import SharedAttentionUniversal, Target, Universal


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'utfproof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
