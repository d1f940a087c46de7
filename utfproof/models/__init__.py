"""Models that people train: tensors -> `Reading` -> target, compared, embedded, exported; and one target's least host.

A file's or a live module's tensors are read by the table of its family (`families/`), or given as parts. What no embedding can
carry is refused with the reason and the name of the tensor or of the field. docs/embed-your-model.md is the guide.
"""

from __future__ import annotations

from utfproof.models.attention import LayerAttention, ModelAttention, Rotary, read_kernel, write_kernel
from utfproof.models.comparison import Agreement, compare, read_sequences
from utfproof.models.embedding import Embedded, embed_model
from utfproof.models.files import read_config
from utfproof.models.grouped import embed_grouped, grouped_matching_dimension, grouped_tree_host
from utfproof.models.importing import attention_kernel, import_model, layouts, refuse_models
from utfproof.models.live import make_module
from utfproof.models.own_norm import OWN_NORM, NormalisedHost, embed_normalised, read_normalised, write_normalised
from utfproof.models.part import from_model
from utfproof.models.parts import from_parts
from utfproof.models.probes import random_sequences
from utfproof.models.reading import Reading

__all__ = [
    "OWN_NORM",
    "Agreement",
    "Embedded",
    "LayerAttention",
    "ModelAttention",
    "NormalisedHost",
    "Reading",
    "Rotary",
    "attention_kernel",
    "compare",
    "embed_grouped",
    "embed_model",
    "embed_normalised",
    "from_model",
    "from_parts",
    "grouped_matching_dimension",
    "grouped_tree_host",
    "import_model",
    "layouts",
    "make_module",
    "random_sequences",
    "read_config",
    "read_kernel",
    "read_normalised",
    "read_sequences",
    "refuse_models",
    "write_kernel",
    "write_normalised",
]
