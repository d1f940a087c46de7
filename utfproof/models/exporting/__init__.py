"""Hosts with an embedding, written for those without this package: a plain torch.nn.Module, or TransformerLens' names."""

from __future__ import annotations

from utfproof.models.exporting.module import write_module
from utfproof.models.exporting.tensors import require_own, transformer_lens_tensors, write_arrays

__all__ = ["require_own", "transformer_lens_tensors", "write_arrays", "write_module"]
