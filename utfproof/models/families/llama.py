"""Separate linears q_proj, k_proj, v_proj, o_proj, as Llama and its kin in transformers have them: rotated queries and keys,
grouped heads, a residual stream. Their MLPs have to be taken out (or be zero) for attention alone to be left; their norms are
read in one or two layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any

import numpy as np

from utfproof.models.families.gpt2 import COMMON, config_of
from utfproof.models.family import EMBEDDED, WORDS, Family, Meaning, harmless, linears, maximum, number, only, sets
from utfproof.models.foreign import config_object, widened
from utfproof.models.norms import NormTensors


def _rope(value: Any) -> Any:
    return None if value is None else value.get("rope_theta")


def _usual(value: Any) -> bool:
    if not isinstance(value, dict):
        return value is None
    usual = (
        bool(value) and value.get("rope_type", "default") == "default" and value.keys() <= {"rope_type", "rope_theta"}
    )
    return usual and ("rope_theta" not in value or number(value["rope_theta"]))


CODE = {
    "causal": True,
    "scale": "1/sqrt(d)",
    "positions": "rotary",
    "norm": "none",
    "cap": 0.0,
    "rotary_dim": "all",
    "adjacent": False,
}
"""What the code of Llama and Mistral does. Others of these names rotate a part of each head or adjacent pairs, have another
factor or a cap, or norms without parameters. Llama's own norms have a gain, so tensors show whether they were taken out."""


def _implied(config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama has no window, whatever its configuration says of one, and biases where attention_bias says so; Mistral none."""
    kind = config.get("model_type")
    if kind not in ("llama", "mistral"):
        return {}
    if kind == "mistral":
        return {**CODE, "biased": False}
    return {**CODE, "window": 0, **({} if "attention_bias" in config else {"biased": False})}


def _tables(module: Any, layers: Mapping[str, Any], n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """cos and sin as the model's own rotary module computes them, in float32."""
    import torch

    for name, part in module.named_modules():
        if name.endswith("rotary_emb"):
            positions = torch.arange(n)[None]
            with torch.no_grad():
                cos, sin = part(torch.zeros(1, dtype=torch.float64), positions)
            pairs = cos.shape[-1] // 2
            return cos[0, :, :pairs].double().cpu().numpy(), sin[0, :, :pairs].double().cpu().numpy()
    return None


_EAGER = "eager_attention_forward"


def _double(module: Any) -> None:
    """Its norms, and its attention where that softmaxes in float32, by their own code with another meaning of that word."""
    eager = getattr(config_object(module), "_attn_implementation", None) == "eager"
    for part in module.modules():
        if (hasattr(part, "variance_epsilon") or (eager and hasattr(part, "q_proj"))) and "forward" not in vars(part):
            part.forward = MethodType(widened(type(part).forward, _EAGER), part)


FAMILY = Family(
    name="llama",
    title="separate q, k, v, o projections (Llama)",
    layer=linears("q_proj", "k_proj", "v_proj", "o_proj"),
    outer={role: EMBEDDED[role] for role in ("W_E", "W_U", "b_U")},
    outer_names={"W_E": (r"embed_tokens\.weight",), "W_U": (r"lm_head\.weight",), "b_U": ()},
    marks=(("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"),),
    config={
        **WORDS,
        "num_hidden_layers": sets("layers"),
        "num_attention_heads": sets("heads"),
        "num_key_value_heads": sets("kv_heads"),
        "head_dim": sets("head_dim"),
        "hidden_size": sets("width"),
        "vocab_size": sets("vocabulary"),
        "max_position_embeddings": sets("context"),
        "tie_word_embeddings": sets("tied"),
        "heads": sets("heads"),
        "rope_theta": Meaning("rotary_base", number, "it is no number"),
        "rope_parameters": Meaning("rotary_base", _usual, "this scaling of the rotation is not read", _rope),
        "rope_scaling": only(None, why="this scaling of the rotation is not read"),
        "rms_norm_eps": sets("eps"),
        "sliding_window": maximum("window", 1),
        "attention_bias": sets("biased"),
        "model_type": only("llama", "mistral", why="other architectures order their layers in their own way"),
        "pretraining_tp": only(1, why="slices of the weights are multiplied one by one"),
        **COMMON,
        **harmless("attention_dropout", "mlp_bias", "intermediate_size", "hidden_act"),
    },
    settled={
        "stream": True,
        "head_order": "consecutive rows",
    },
    assumed={**CODE, "rotary_base": 10000.0, "window": 0},
    implies=_implied,
    buffers=(r"rotary_emb\.inv_freq$",),
    tied_output=True,
    live=config_of,
    double=_double,
    norms=NormTensors(
        kinds={"RMSNorm": "rms"},
        layer="input_layernorm",
        last="norm",
        parts={"RMSNorm": ("weight",)},
        shown="RMSNorm",
        idle="post_attention_layernorm",
    ),
    rotary=_tables,
    looks="separate projections (layers.0.self_attn.q_proj.weight)",
)
