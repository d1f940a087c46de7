"""TransformerLens 4: TransformerBridge, native models. Linears act from the left; heads are consecutive rows.

The bridge reads fewer fields than HookedTransformer did: positions are learned or rotated (adjacent pairs), and
use_attn_scale = False is not obeyed (logits are divided by sqrt(d_head) then).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.models.configuration import Facts, Meaning, harmless, number, only, sets
from utfproof.models.families.transformer_lens import ASSUMED, CONFIG, WHOLE, divisor, double
from utfproof.models.family import Arrays, Family, stacked
from utfproof.models.tensors import Claims

_UNUSED = (
    "split_attention_weights qk_norm_after_rope rotary_interleaved_cos_sin per_layer_head_dim scale_embedding is_stateful "
    "per_layer_num_key_value_heads rmsnorm_uses_offset is_audio_model is_visual_model is_multimodal vision_hidden_size "
    "vision_num_layers vision_num_heads mm_tokens_per_image"
)
"""Fields of other architectures, which are off in native bridges."""
_NAMES = {
    "W_E": ("embed.weight", "tok_embed.weight"),
    "W_pos": ("pos_embed.weight", "pos.weight"),
    "W_U": ("unembed.weight", "head.weight"),
}


def _arrays(claims: Claims, prefixes: list[str], facts: Facts) -> Arrays:
    names = {role: claims.first(found) or found[0] for role, found in _NAMES.items()}
    V, D = claims.axes(names["W_E"], 2)
    H = facts.get("heads")
    rows = claims.axes(prefixes[0] + "q.weight", 2)[0]
    if H is None or rows % H:
        raise claims.file.refuse(f"its {rows} rows of queries do not say the number of heads: pass --config or --heads")
    d = rows // H
    G = claims.axes(prefixes[0] + "k.weight", 2)[0] // d
    out = stacked(
        claims,
        prefixes,
        {
            "W_Q": ("q.weight", (H, D, d), "(h d) D"),
            "W_K": ("k.weight", (G, D, d), "(h d) D"),
            "W_V": ("v.weight", (G, D, d), "(h d) D"),
            "W_O": ("o.weight", (H, D, d), "D (h d)"),
            "b_Q": ("q.bias", (H, d), "(h d)"),
            "b_K": ("k.bias", (G, d), "(h d)"),
            "b_V": ("v.bias", (G, d), "(h d)"),
            "b_O": ("o.bias", (D,), ""),
        },
    )
    outputs = claims.axes(names["W_U"], 2)[0]
    out |= {"W_E": claims.take(names["W_E"], (V, D)), "W_U": claims.take(names["W_U"], (outputs, D)).T.copy()}
    out["b_U"] = claims.optional(names["W_U"].removesuffix("weight") + "bias", (outputs,))
    learned = claims.has(names["W_pos"])
    out["W_pos"] = claims.take(names["W_pos"], (claims.axes(names["W_pos"], 2)[0], D)) if learned else np.zeros((0, D))
    return out


def _live(module: Any, layers: list[Any]) -> dict[str, Any]:
    cfg = module.cfg
    fields = dict(cfg.to_dict() if hasattr(cfg, "to_dict") else vars(cfg))
    fields["use_attn_scale"] = True  # what the code does; its outputs are compared
    if fields.get("normalization_type") is not None:
        fields["ln_final"] = type(module.ln_final).__name__
    return fields


def _double(module: Any) -> None:
    """Its own norms in the number type of the stream; those of the model that it wraps compute in float32."""
    double(module)
    for part in module.modules():
        if hasattr(part, "use_native_layernorm_autograd"):
            part.use_native_layernorm_autograd = False
            part.config.layer_norm_folding = False


def _tables(module: Any, positions: int) -> tuple[np.ndarray, np.ndarray] | None:
    """cos and sin as the bridge holds them, computed in float32."""
    for part in module.modules():
        if hasattr(part, "cos_cached"):
            cos, sin = (
                getattr(part, name)[:positions, ::2].double().cpu().numpy() for name in ("cos_cached", "sin_cached")
            )
            return cos, sin
    return None


FAMILY = Family(
    name="transformer-lens-bridge",
    title="TransformerLens 4 (TransformerBridge)",
    looks="TransformerLens 4 names (blocks.0.attn.q.weight)",
    marks=("q.weight", "k.weight", "v.weight", "o.weight"),
    fields={
        **CONFIG,
        "use_attn_scale": Meaning("scaled", lambda s: s is True, "the bridge does not obey it: compare live, --module"),
        "attn_scale": Meaning(
            "divisor",
            lambda s: s is None or (number(s) and (s > 0 or s == -1)),
            "native bridges divide by positive numbers alone, and by the usual sqrt(d_head) for others",
            divisor,
        ),
        "positional_embedding_type": sets("positions", {"standard": "learned", "rotary": "rotary"}),
        "use_local_attn": Meaning(
            "local", lambda s: s in (False, None), "native bridges have no local attention", bool
        ),
        **{name: only(None, False, why="native bridges do not have it") for name in _UNUSED.split()},
        "scale_attn_by_inverse_layer_idx": only(False, None, why="native bridges do not obey it"),
        "architecture": only(None, "TransformerLensNative", why="only native bridges are read by these names"),
        "rope_scaling": only(None, why="this scaling of the rotation is not read"),
        **harmless(
            "window_size attn_types rotary_adjacent_pairs tokenizer_appends_eos default_padding_side attn_implementation"
        ),
    },
    arrays=_arrays,
    settled={"stream": True, "adjacent": True, "zero_attn": False},
    assumed=ASSUMED,
    whole=WHOLE,
    norms={"LayerNorm": ("weight", "bias"), "LNPre": (), "RMS": ("weight",), "RMSPre": ()},
    live=_live,
    double=_double,
    tables=_tables,
)
