"""TransformerLens 2 and 3: HookedTransformer. Matrices act from the right, heads are an axis of their own; there is
always a residual stream.

Positions: rows of W_pos added to the stream ("standard"), to the inputs of queries and keys alone ("shortformer"), rotated, or
ALiBi, which leaves W_pos unused. Logits are divided by attn_scale where use_attn_scale is true. The mask, and with it a local
window, is applied to causal attention alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utfproof.models.family import USUAL, WORDS, Family, Meaning, harmless, maximum, number, only, sets, tensor, whole
from utfproof.models.norms import NormTensors

_NORMS = {None: "none", "LN": "LayerNorm", "LNPre": "LNPre", "RMS": "RMS", "RMSPre": "RMSPre"}
_POSITIONS = {
    "standard": "learned",
    "rotary": "rotary",
    "alibi": "alibi",
    "shortformer": "shortformer",
}


def divisor(value: Any) -> float | None:
    """-1 stands for sqrt(d_head); other negative numbers are divided by."""
    return None if value is None or value == -1 else float(value)


ASSUMED = {**USUAL, "adjacent": False}
_LINEAR = "it is no part of attention by queries and keys that this reader knows"

NORMS = NormTensors(
    kinds={"LayerNorm": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"},
    layer="ln1",
    last="ln_final",
    parts={"LayerNorm": ("w", "b"), "LNPre": (), "RMS": ("w",), "RMSPre": ()},
)

CONFIG = {
    "n_layers": sets("layers"),
    "n_heads": sets("heads"),
    "n_key_value_heads": sets("kv_heads"),
    "d_head": sets("head_dim"),
    "d_model": sets("width"),
    "d_vocab": sets("vocabulary"),
    "d_vocab_out": Meaning(
        "outputs",
        lambda n: n is None or whole(n, -1),
        "it is no number of outputs, -1 where they are as many as tokens",
        lambda n: n if n and n > 0 else None,
    ),
    "n_ctx": sets("context"),
    "heads": sets("heads"),
    "num_heads": sets("heads"),
    "residual": only(True, None, why="TransformerLens models have a residual stream"),
    "attention_dir": WORDS["attention_dir"],
    "use_attn_scale": sets("scaled", {True: True, False: False}),
    "attn_scale": Meaning(
        "divisor", lambda s: s is None or (number(s) and s != 0), "it is no number that divides", divisor
    ),
    "scale_attn_by_inverse_layer_idx": sets("scale_by_layer", {True: True, False: False}),
    "attn_scores_soft_cap": WORDS["attn_scores_soft_cap"],
    "use_local_attn": sets("local", {True: True, False: False}),
    "window_size": maximum("window", 1),
    "window": only(None, why="TransformerLens calls it window_size"),
    "attn_types": sets("layer_types"),
    "positional_embedding_type": sets("positions", _POSITIONS),
    "alibi_slopes": sets("slopes", lambda slopes: None if slopes is None else tuple(slopes)),
    "rotary_dim": WORDS["rotary_dim"],
    "rotary_base": sets("rotary_base"),
    "rotary_base_local": sets("rotary_base_local"),
    "rotary_scaling_factor": sets("rotary_factor"),
    "rotary_adjacent_pairs": sets("adjacent"),
    "normalization_type": sets("norm", _NORMS),
    "eps": sets("eps"),
    "ln_final": Meaning("final", lambda kind: isinstance(kind, str), "it is no class", lambda kind: kind != "Identity"),
    "attn_only": sets("mlp", {True: False, False: True}),
    "final_rms": only(False, None, why="it normalises the last rows"),
    "output_logits_soft_cap": only(-1, -1.0, 0, 0.0, None, why="a cap of the output is not linear"),
    "parallel_attn_mlp": only(False, None, why="it has MLPs beside its attention"),
    "post_embedding_ln": only(False, None, why="it normalises the embedding"),
    "use_normalization_before_and_after": only(False, None, why="it normalises what attention writes"),
    "use_qk_norm": only(False, None, why="it normalises queries and keys, which this reader does not"),
    "clip_qkv": only(None, why="clipped queries, keys and values are not linear in the stream"),
    "use_logn_attn": only(False, None, why="queries grow with their position, which this reader does not"),
    "use_dynamic_ntk_rope": only(False, None, why="its rotation depends on the length of the context"),
    "use_NTK_by_parts_rope": only(False, None, why="this scaling of the rotation is not read"),
    "use_yarn_rope": only(False, None, why="this scaling of the rotation is not read"),
    "use_attention_sinks": only(False, None, why="attention to no token: rows over the tokens no longer sum to 1"),
    "num_experts": only(None, 0, why="it has MLPs"),
    "relative_attention_num_buckets": only(None, why=_LINEAR),
    "relative_attention_max_distance": only(None, why=_LINEAR),
    "load_in_4bit": only(False, None, why="its weights are quantised"),
    "quantization_method": only(None, why="its weights are quantised"),
    "original_architecture": only(
        None, "custom", "GPT2LMHeadModel", why="other architectures order their layers in their own way"
    ),
    **harmless(
        "d_mlp device dtype use_attn_result use_split_qkv_input default_prepend_bos gated_mlp "
        "uses_rms_norm layer_norm_folding act_fn experts_per_token model_name use_hook_mlp_in use_attn_in "
        "train_seq_length ungroup_grouped_query_attention from_checkpoint checkpoint_index "
        "checkpoint_label_type checkpoint_value tokenizer_name init_mode n_devices seed initializer_range "
        "init_weights n_params use_hook_tokens tokenizer_prepends_bos trust_remote_code "
        "decoder_start_token_id tie_word_embeddings NTK_by_parts_low_freq_factor "
        "NTK_by_parts_high_freq_factor NTK_by_parts_factor NTK_original_ctx_len yarn_factor "
        "yarn_attention_factor yarn_beta_fast yarn_beta_slow yarn_original_max_position_embeddings "
        "yarn_truncate yarn_global_attn_only norm_topk_prob"
    ),
}
"""Fields of HookedTransformerConfig. Those named harmless change no output of an attention-only model, or only together with
a field that is refused."""


def _config(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, ALiBi's slopes as the library computes them (in float32), and what stands at the end."""
    fields = dict(module.cfg.to_dict())
    if fields.get("normalization_type") is not None:
        fields["ln_final"] = type(module.ln_final).__name__
    if fields.get("positional_embedding_type") == "alibi":
        slopes = next(iter(layers.values())).create_alibi_multipliers(fields["n_heads"])
        fields["alibi_slopes"] = [float(slope) for slope in slopes]
    return fields


def double(module: Any) -> None:
    """Layers cast to the configuration's number type. ALiBi's table, in float32, is made anew for every context, where it
    would be kept for the longest one seen: so outputs do not depend on what was run before."""
    import torch

    for part in module.modules():
        if hasattr(part, "cfg") and hasattr(part.cfg, "dtype"):
            part.cfg.dtype = torch.float64
        if hasattr(part, "alibi"):
            part.register_forward_pre_hook(lambda part, _: setattr(part, "alibi", None))


FAMILY = Family(
    name="transformer-lens",
    title="TransformerLens (HookedTransformer)",
    layer={
        "W_Q": tensor("H D d", "W_Q"),
        "W_K": tensor("G D d", "W_K"),
        "W_V": tensor("G D d", "W_V"),
        "_W_K": tensor("G D d", "W_K"),
        "_W_V": tensor("G D d", "W_V"),
        "W_O": tensor("H d D", "W_O"),
        "b_Q": tensor("H d", "b_Q"),
        "b_K": tensor("G d", "b_K"),
        "b_V": tensor("G d", "b_V"),
        "_b_K": tensor("G d", "b_K"),
        "_b_V": tensor("G d", "b_V"),
        "b_O": tensor("D", "b_O"),
        "rotary_cos": tensor("N R", "rot_cos"),
        "rotary_sin": tensor("N R", "rot_sin"),
    },
    outer={
        "W_E": tensor("V D", "W_E"),
        "W_pos": tensor("P D", "W_pos"),
        "W_U": tensor("D O", "W_U"),
        "b_U": tensor("O", "b_U"),
    },
    outer_names={
        "W_E": (r"embed\.W_E",),
        "W_pos": (r"pos_embed\.W_pos",),
        "W_U": (r"unembed\.W_U",),
        "b_U": (r"unembed\.b_U",),
    },
    marks=(("W_Q", "W_O"),),
    config=CONFIG,
    settled={"stream": True, "head_order": "an axis of its own", "single_slopes": True, "local_both_ways": False},
    assumed=ASSUMED,
    live=_config,
    double=double,
    norms=NORMS,
    looks="TransformerLens names (blocks.0.attn.W_Q)",
)
