"""TransformerLens 3: HookedTransformer. Matrices act from the right, heads are an axis of their own; there is always a
residual stream.

Positions: rows of W_pos added to the stream ("standard"), to the inputs of queries and keys alone ("shortformer"), rotated, or
ALiBi. Logits are divided by attn_scale where use_attn_scale is true. The mask, and with it a local window, is applied to causal
attention alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.models.configuration import (
    Facts,
    Meaning,
    cap,
    flag,
    harmless,
    limit,
    number,
    only,
    positive,
    sets,
    size,
    whole,
)
from utfproof.models.family import Arrays, Family, stacked
from utfproof.models.tensors import Claims

_LINEAR = "it is no part of attention by queries and keys that this reader knows"
_YES, _NO = {True: True, False: False}, (False, None)


def divisor(value: Any) -> float | None:
    """-1 stands for sqrt(d_head); other negative numbers are divided by."""
    return None if value is None or value == -1 else float(value)


def _even(value: Any) -> bool:
    return value is None or (whole(value, 2) and value % 2 == 0)


CONFIG = {
    "n_layers": sets("layers", size),
    "n_heads": sets("heads", size),
    "n_key_value_heads": sets("kv_heads", size),
    "d_head": sets("head_dim", size),
    "d_model": sets("width", size),
    "d_vocab": sets("vocabulary", size),
    "d_vocab_out": Meaning(
        "outputs", lambda n: n is None or whole(n, -1), "it is no number", lambda n: n if n and n > 0 else None
    ),
    "n_ctx": sets("context", size),
    "residual": only(True, None, why="TransformerLens models have a residual stream"),
    "attention_dir": sets("causal", {"causal": True, "bidirectional": False}),
    "use_attn_scale": sets("scaled", _YES),
    "attn_scale": Meaning(
        "divisor", lambda s: s is None or (number(s) and s != 0), "it is no number that divides", divisor
    ),
    "scale_attn_by_inverse_layer_idx": sets("scale_by_layer", _YES),
    "attn_scores_soft_cap": cap("cap", "it is neither a positive number nor one of 0, -1 and null (no cap)"),
    "use_local_attn": sets("local", _YES),
    "window_size": limit("window", 1),
    "attn_types": sets(
        "layer_types",
        lambda kinds: isinstance(kinds, list | tuple) and set(kinds) <= {"local", "global"},
        "expected a list of 'local' and 'global'",
    ),
    "positional_embedding_type": sets(
        "positions", {"standard": "learned", "rotary": "rotary", "alibi": "alibi", "shortformer": "shortformer"}
    ),
    "alibi_slopes": sets("slopes", lambda slopes: isinstance(slopes, list) and all(map(number, slopes))),
    "rotary_dim": Meaning("rotary_dim", _even, "expected an even number", lambda r: "all" if r is None else r),
    "rotary_base": sets("rotary_base", positive),
    "rotary_base_local": sets("rotary_base_local", positive),
    "rotary_scaling_factor": sets("rotary_factor", positive),
    "rotary_adjacent_pairs": sets("adjacent", flag),
    "normalization_type": sets(
        "norm", {None: "none", "LN": "LayerNorm", "LNPre": "LNPre", "RMS": "RMS", "RMSPre": "RMSPre"}
    ),
    "eps": sets("eps", lambda eps: number(eps) and eps >= 0),
    "ln_final": Meaning("final", lambda kind: isinstance(kind, str), "it is no class", lambda kind: kind != "Identity"),
    "attn_only": sets("mlp", {True: False, False: True}),
    "output_logits_soft_cap": cap("output_cap", "it is neither a positive number nor one of 0, -1 and null (no cap)"),
    "final_rms": only(*_NO, why="it normalises the last rows"),
    "parallel_attn_mlp": only(*_NO, why="it has MLPs beside its attention"),
    "post_embedding_ln": only(*_NO, why="it normalises the embedding"),
    "use_normalization_before_and_after": only(*_NO, why="it normalises what attention writes"),
    "use_qk_norm": only(*_NO, why="it normalises queries and keys, which this reader does not"),
    "clip_qkv": only(None, why="clipped queries, keys and values are not linear in the stream"),
    "use_logn_attn": only(*_NO, why="queries grow with their position, which this reader does not"),
    "use_dynamic_ntk_rope": only(*_NO, why="its rotation depends on the length of the context"),
    "use_NTK_by_parts_rope": only(*_NO, why="this rotation is read from a live module alone (--module)"),
    "use_yarn_rope": only(*_NO, why="this rotation is read from a live module alone (--module)"),
    "use_attention_sinks": only(*_NO, why="attention to no token: rows over the tokens no longer sum to 1"),
    "num_experts": only(None, 0, why="it has MLPs"),
    "relative_attention_num_buckets": only(None, why=_LINEAR),
    "relative_attention_max_distance": only(None, why=_LINEAR),
    "load_in_4bit": only(*_NO, why="its weights are quantised"),
    "quantization_method": only(None, why="its weights are quantised"),
    "original_architecture": only(
        None, "custom", "GPT2LMHeadModel", why="other architectures have layers of their own"
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
        "yarn_truncate yarn_global_attn_only norm_topk_prob tokens"
    ),
}
"""Fields of HookedTransformerConfig. Those named harmless change no output of an attention-only model, or only together with
a field that is refused."""
OFF = (
    "final_rms",
    "parallel_attn_mlp",
    "post_embedding_ln",
    "use_normalization_before_and_after",
    "use_qk_norm",
    "load_in_4bit",
    "scale_attn_by_inverse_layer_idx",
)
"""Fields that change outputs, are off in models that are read, and that every configuration of TransformerLens 2 to 4 has."""
WHOLE = ("attn_only", *OFF)
"""Fields without which a configuration does not say all that changes outputs."""
ASSUMED: dict[str, Any] = {
    **{"causal": True, "scale": "1/sqrt(d)", "positions": "learned", "norm": "none", "cap": 0.0, "output_cap": 0.0},
    **{"window": 0, "rotary_base": 10000.0, "rotary_dim": "all", "adjacent": False},
}


def _arrays(claims: Claims, prefixes: list[str], facts: Facts) -> Arrays:
    V, D = claims.axes("embed.W_E", 2)
    H, _, d = claims.axes(prefixes[0] + "W_Q", 3)
    own = "" if claims.has(prefixes[0] + "W_K") else "_"
    G = claims.axes(f"{prefixes[0]}{own}W_K", 3)[0]
    out = stacked(
        claims,
        prefixes,
        {
            "W_Q": ("W_Q", (H, D, d), ""),
            **{f"W_{part}": (f"{own}W_{part}", (G, D, d), "") for part in "KV"},
            "W_O": ("W_O", (H, d, D), ""),
            "b_Q": ("b_Q", (H, d), ""),
            **{f"b_{part}": (f"{own}b_{part}", (G, d), "") for part in "KV"},
            "b_O": ("b_O", (D,), ""),
        },
    )
    outputs = claims.axes("unembed.W_U", 2)[1]
    out |= {"W_E": claims.take("embed.W_E", (V, D)), "W_U": claims.take("unembed.W_U", (D, outputs))}
    out["b_U"] = claims.optional("unembed.b_U", (outputs,))
    out["W_pos"] = np.zeros((0, D))
    if claims.has("pos_embed.W_pos"):
        rows = claims.take("pos_embed.W_pos", (claims.axes("pos_embed.W_pos", 2)[0], D))
        out["W_pos"] = rows if facts.get("positions", "learned") in ("learned", "shortformer") else out["W_pos"]
    for part in ("cos", "sin"):
        if claims.has(f"{prefixes[0]}rotary_{part}"):
            name, shape = f"rotary_{part}", claims.axes(f"{prefixes[0]}rotary_{part}", 2)
            out[name] = np.stack([claims.take(prefix + name, shape) for prefix in prefixes])
    return out


def _live(module: Any, layers: list[Any]) -> dict[str, Any]:
    """The configuration, ALiBi's slopes as the library computes them (in float32), and what stands at the end. Rotations are
    read from the module's own tables, however they are scaled."""
    fields = dict(module.cfg.to_dict())
    for name in ("use_NTK_by_parts_rope", "use_yarn_rope"):
        fields.pop(name, None)
    if fields.get("normalization_type") is not None:
        fields["ln_final"] = type(module.ln_final).__name__
    if fields.get("positional_embedding_type") == "alibi":
        fields["alibi_slopes"] = [float(slope) for slope in layers[0].create_alibi_multipliers(fields["n_heads"])]
    return fields


def double(module: Any) -> None:
    """Layers cast to the configuration's number type. ALiBi's table, in float32, is made anew for every context, where it
    would be kept for the longest one seen."""
    import torch

    for part in module.modules():
        if hasattr(part, "cfg") and hasattr(part.cfg, "dtype"):
            part.cfg.dtype = torch.float64
        if hasattr(part, "alibi"):
            part.register_forward_pre_hook(lambda part, _: setattr(part, "alibi", None))


FAMILY = Family(
    name="transformer-lens",
    title="TransformerLens (HookedTransformer)",
    looks="TransformerLens names (blocks.0.attn.W_Q)",
    marks=("W_Q", "W_O"),
    fields=CONFIG,
    arrays=_arrays,
    settled={"stream": True, "single_slopes": True, "local_both_ways": False, "zero_attn": False},
    assumed=ASSUMED,
    whole=WHOLE,
    norms={"LayerNorm": ("w", "b"), "LNPre": (), "RMS": ("w",), "RMSPre": ()},
    live=_live,
    double=double,
)
