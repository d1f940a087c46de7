"""Models that people train: tensors -> `Reading` -> target, compared, embedded, exported; and one target's least host.

Tensors are read by their names (TransformerLens, plain PyTorch), or given as matrices; a live module's own outputs decide. What
no embedding carries is refused with the reason and the name of the tensor or the field. docs/embed-your-model.md is the guide.
"""

from __future__ import annotations

from utfproof.models.attention import LayerAttention
from utfproof.models.comparison import Agreement
from utfproof.models.embedding import Embedded, compare, embed_model
from utfproof.models.importing import import_model
from utfproof.models.live import from_model
from utfproof.models.parts import from_parts
from utfproof.models.probes import random_sequences
from utfproof.models.reading import Reading

__all__ = [
    "Agreement",
    "Embedded",
    "LayerAttention",
    "Reading",
    "compare",
    "embed_model",
    "from_model",
    "from_parts",
    "import_model",
    "random_sequences",
]
