"""TransformerLens 4: TransformerBridge, native models. Linears act from the left; heads are consecutive rows.

The bridge reads fewer fields than HookedTransformer did: positions are learned or rotated (adjacent pairs), and
use_attn_scale = False is not obeyed (logits are divided by sqrt(d_head) then).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from utfproof.models.families.transformer_lens import ASSUMED, CONFIG, NORMS, divisor, double
from utfproof.models.family import EMBEDDED, Family, Meaning, harmless, linears, number, only, sets


def _config(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    cfg = module.cfg
    fields = dict(cfg.to_dict() if hasattr(cfg, "to_dict") else vars(cfg))
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


def _tables(module: Any, layers: Mapping[str, Any], n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """cos and sin as the bridge holds them, computed in float32."""
    for part in module.modules():
        if hasattr(part, "cos_cached"):
            cos, sin = (getattr(part, name)[:n, ::2].double().cpu().numpy() for name in ("cos_cached", "sin_cached"))
            return cos, sin
    return None


UNUSED = tuple(
    harmless(
        "split_attention_weights qk_norm_after_rope rotary_interleaved_cos_sin per_layer_head_dim scale_embedding is_stateful "
        "per_layer_num_key_value_heads rmsnorm_uses_offset is_audio_model is_visual_model is_multimodal vision_hidden_size "
        "vision_num_layers vision_num_heads mm_tokens_per_image"
    )
)
"""Fields of other architectures, which are off in native bridges."""

FAMILY = Family(
    name="transformer-lens-bridge",
    title="TransformerLens 4 (TransformerBridge)",
    layer=linears("q", "k", "v", "o"),
    outer=EMBEDDED,
    outer_names={
        "W_E": (r"embed\.weight", r"tok_embed\.weight"),
        "W_pos": (r"pos_embed\.weight", r"pos\.weight"),
        "W_U": (r"unembed\.weight", r"head\.weight"),
        "b_U": (r"unembed\.bias", r"head\.bias"),
    },
    marks=(("q.weight", "k.weight", "v.weight", "o.weight"),),
    config={
        **CONFIG,
        "use_attn_scale": Meaning(
            "scaled", (True,), "the bridge does not obey it: say True, or compare with the live module"
        ),
        "attn_scale": Meaning(
            "divisor",
            lambda s: s is None or (number(s) and (s > 0 or s == -1)),
            "native bridges divide by positive numbers alone, and by the usual sqrt(d_head) for others",
            divisor,
        ),
        "positional_embedding_type": sets("positions", {"standard": "learned", "rotary": "rotary"}),
        "use_local_attn": Meaning("local", (False, None), "native bridges have no local attention", bool),
        **{name: only(None, False, why="native bridges do not have it") for name in UNUSED},
        "scale_attn_by_inverse_layer_idx": only(False, None, why="native bridges do not obey it"),
        "architecture": only(None, "TransformerLensNative", why="only native bridges are read by these names"),
        "rope_scaling": only(None, why="this scaling of the rotation is not read"),
        **harmless(
            "window_size attn_types rotary_adjacent_pairs tokenizer_appends_eos default_padding_side attn_implementation"
        ),
    },
    settled={"stream": True, "head_order": "consecutive rows", "adjacent": True},
    assumed=ASSUMED,
    live=_config,
    double=_double,
    norms=replace(NORMS, parts={"LayerNorm": ("weight", "bias"), "LNPre": (), "RMS": ("weight",), "RMSPre": ()}),
    rotary=_tables,
    looks="TransformerLens 4 names (blocks.0.attn.q.weight)",
)
