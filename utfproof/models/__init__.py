"""Models that people train, read from their own files: TransformerLens names, and plain PyTorch state dicts.

The importer makes a target of the file (biases apart, positions as one-hots beside the tokens', the logits' scale in
W_Q), and keeps the model in its original form to compare with. What no embedding can carry is refused with the reason
and the tensor's name. docs/embed-your-model.md is the guide.
"""

from __future__ import annotations

from pathlib import Path

from utfproof.errors import MalformedInput
from utfproof.models.grouped import embed_grouped, grouped_matching_dimension, grouped_tree_host
from utfproof.models.model import (
    Agreement,
    ImportedModel,
    attention_kernel,
    compare,
    open_claims,
    random_sequences,
    read_sequences,
)
from utfproof.models.multihead import parse_names, read_multihead
from utfproof.models.transformer_lens import read_transformer_lens

__all__ = [
    "LAYOUTS",
    "Agreement",
    "ImportedModel",
    "attention_kernel",
    "compare",
    "embed_grouped",
    "grouped_matching_dimension",
    "grouped_tree_host",
    "import_model",
    "random_sequences",
    "read_sequences",
]

LAYOUTS = ("transformer-lens", "pytorch")
"""Layouts of model files, besides the package's own (docs/weights.md)."""


def import_model(
    path: Path | str,
    layout: str,
    *,
    attention: str = "causal",
    heads: int | None = None,
    residual: bool | None = None,
    names: str | None = None,
    scale: str = "1/sqrt(d)",
    max_memory: int | None = None,
) -> ImportedModel:
    """The model of a safetensors file in this layout.

    attention: whom a position sees (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    names: its roles, as --names. scale: what logits are multiplied by. Raises MalformedInput with the tensor and the reason.
    """
    if layout not in LAYOUTS:
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(LAYOUTS)}")
    kernel = attention_kernel(attention)
    roles = parse_names(names)
    claims = open_claims(path, max_memory)
    if layout == "transformer-lens":
        if roles:
            raise MalformedInput("--names is for --layout pytorch; TransformerLens names are fixed")
        return read_transformer_lens(claims, kernel, heads=heads, residual=residual, scale=scale)
    return read_multihead(claims, kernel, heads=heads, residual=residual, names=roles, scale=scale)
