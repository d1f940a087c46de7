"""Models that people train: read from their own files or from live modules, compared, embedded, exported and realized.

The reader makes a target of the model (biases apart, positions as one-hots beside the tokens', the logits' factor in W_Q)
by the table of its family (`families/`), and keeps the model in its own form to compare with. What no embedding can carry
is refused with the reason and the name of the tensor or of the field. docs/embed-your-model.md is the guide.
"""

from __future__ import annotations

from utfproof.models.attention import LayerAttention, ModelAttention, Rotary, read_kernel, write_kernel
from utfproof.models.comparison import Agreement, compare, random_sequences, read_sequences
from utfproof.models.embedding import EmbeddedModel, embed_model
from utfproof.models.files import read_config
from utfproof.models.grouped import embed_grouped, grouped_matching_dimension, grouped_tree_host
from utfproof.models.importing import import_model, layouts, refuse_models
from utfproof.models.live import from_model, from_normalised_model, make_module
from utfproof.models.model import ImportedModel, attention_kernel
from utfproof.models.normalised import (
    OWN_NORM,
    EmbeddedNormalised,
    NormalisedHost,
    embed_normalised,
    read_normalised,
    write_normalised,
)

__all__ = [
    "OWN_NORM",
    "Agreement",
    "EmbeddedModel",
    "EmbeddedNormalised",
    "ImportedModel",
    "LayerAttention",
    "ModelAttention",
    "NormalisedHost",
    "Rotary",
    "attention_kernel",
    "compare",
    "embed_grouped",
    "embed_model",
    "embed_normalised",
    "from_model",
    "from_normalised_model",
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
