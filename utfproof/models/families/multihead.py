"""Plain PyTorch: nn.MultiheadAttention, also inside nn.TransformerEncoderLayer, between an nn.Embedding and an nn.Linear.

A state dict shows neither the number of heads nor the mask nor whether there is a residual stream, nor norms without
parameters around the attention, which no nn.MultiheadAttention rules out. A live module shows the heads; its own outputs decide
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utfproof.models.family import EMBEDDED, WORDS, Family, harmless, maximum, only, sets, tensor
from utfproof.models.norms import NormTensors

EMBEDDINGS = ("embedding", "embed", "token_embedding", "tok_embedding", "tok_emb", "token_emb", "wte")
POSITIONS = (
    "pos",
    "position",
    "positions",
    "pos_embedding",
    "position_embedding",
    "pos_embed",
    "pos_emb",
    "wpe",
    "positional_embedding",
)
OUTPUTS = ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout")


def _names(modules: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(rf"{module}\.weight" for module in modules)


def _config(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the attention modules, which have to agree, and of the encoder layers around them."""
    fields = ("num_heads", "kdim", "vdim", "add_zero_attn")
    found: dict[str, Any] = {}
    for prefix, part in layers.items():
        block = module.get_submodule(prefix.rstrip(".").rpartition(".")[0])
        values = {name: getattr(part, name) for name in fields}
        values |= {name: None for name in ("kdim", "vdim") if values[name] == part.embed_dim}
        values |= {"norm_first": block.norm_first} if hasattr(block, "norm_first") else {}
        values |= {"layer_norm_eps": block.norm1.eps} if hasattr(getattr(block, "norm1", None), "eps") else {}
        for name, value in values.items():
            found[name] = value if found.get(name, value) == value else str([found[name], value])
        found["bias_k"] = None if part.bias_k is None else "given"
    return found


FAMILY = Family(
    name="pytorch",
    title="nn.MultiheadAttention",
    layer={
        "in_proj_weight": tensor("(c H d) D", "W_Q", "W_K", "W_V"),
        "q_proj_weight": tensor("(H d) D", "W_Q"),
        "k_proj_weight": tensor("(H d) D", "W_K"),
        "v_proj_weight": tensor("(H d) D", "W_V"),
        "in_proj_bias": tensor("(c H d)", "b_Q", "b_K", "b_V"),
        "out_proj.weight": tensor("D (H d)", "W_O"),
        "out_proj.bias": tensor("D", "b_O"),
    },
    outer=EMBEDDED,
    outer_names={
        "W_E": _names(EMBEDDINGS),
        "W_pos": (*_names(POSITIONS), *POSITIONS),
        "W_U": _names(OUTPUTS),
        "b_U": (),
    },
    marks=(
        ("in_proj_weight", "out_proj.weight"),
        ("q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"),
    ),
    config={
        **WORDS,
        "heads": sets("heads"),
        "num_heads": sets("heads"),
        "n_heads": sets("heads"),
        "nhead": sets("heads"),
        "residual": sets("stream", {True: True, False: False}),
        "causal": sets("causal", {True: True, False: False}),
        "window": maximum("window"),
        "scale": sets("scale"),
        "layers": sets("layers"),
        "num_layers": sets("layers"),
        "d_model": sets("width"),
        "norm_first": sets("norm_first"),
        "layer_norm_eps": sets("eps"),
        "add_zero_attn": only(False, None, why="attention to no token: rows over the tokens no longer sum to 1"),
        "add_bias_kv": only(False, None, why="a key and value for no token"),
        "bias_k": only(None, why="a key and value for no token (add_bias_kv)"),
        "kdim": only(None, why="keys of another width than the stream are not self-attention"),
        "vdim": only(None, why="values of another width than the stream are not self-attention"),
        **harmless("batch_first", "dropout"),
    },
    settled={
        "scale": "1/sqrt(d)",
        "cap": 0.0,
        "head_order": "consecutive rows of each third",
    },
    assumed={"causal": True, "window": 0, "positions": "learned", "norm": "none"},
    shows_positions=True,
    live=_config,
    norms=NormTensors(
        kinds={"LayerNorm": "layer"},
        layer="norm1",
        last="norm|ln_f|final_norm|norm_f",
        parts={"LayerNorm": ("weight", "bias")},
        shown="LayerNorm",
        optional=("bias",),
        idle="norm2",
        needs=("norm_first",),
    ),
    looks="nn.MultiheadAttention (in_proj_weight)",
)
