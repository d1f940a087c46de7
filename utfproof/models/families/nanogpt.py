"""nanoGPT: GPT-2's names with nn.Linear, whose weights [out, in] act from the left."""

from __future__ import annotations

from utfproof.models.families.gpt2 import NAMES, OUTER, stored_as_linear
from utfproof.models.family import Family, harmless, sets, tensor

FAMILY = Family(
    name="nanogpt",
    title="nanoGPT",
    layer={
        "c_attn.weight": tensor("(c H d) D", "W_Q", "W_K", "W_V"),
        "c_attn.bias": tensor("(c H d)", "b_Q", "b_K", "b_V"),
        "c_proj.weight": tensor("D (H d)", "W_O"),
        "c_proj.bias": tensor("D", "b_O"),
    },
    outer=OUTER,
    outer_names=NAMES,
    marks=(("c_attn.weight", "c_proj.weight"),),
    config={
        "n_layer": sets("layers"),
        "n_head": sets("heads"),
        "n_embd": sets("width"),
        "block_size": sets("context"),
        "vocab_size": sets("vocabulary"),
        "heads": sets("heads"),
        **harmless("dropout", "bias"),
    },
    settled={
        "stream": True,
        "causal": True,
        "scale": "1/sqrt(d)",
        "positions": "learned",
        "norm": "none",
        "cap": 0.0,
        "window": 0,
        "head_order": "consecutive rows of each third",
    },
    buffers=(r"attn\.bias$",),
    live=lambda module, layers: dict(vars(module.config)),
    recognised=stored_as_linear,
    looks="nanoGPT names (h.0.attn.c_attn.weight)",
)
