"""x-transformers, attention-only: a TransformerWrapper around an Encoder or a Decoder of attention layers.

Its modules have no configuration, so their attributes are read one by one; one that this table does not know is refused.
Learned positions are multiplied by D^(-1/2). Its norms are read where they stand before each layer, at the end, or after the
only layer, which is the same. Those by F.normalize have eps = 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from utfproof.models.family import EMBEDDED, USUAL, Family, Meaning, harmless, linears, only, sets, whole
from utfproof.models.norms import NormTensors

_EXTRA = "it changes attention or the stream in a way that this reader does not know"
_PLAIN = (None, False, 0)

_NORMS = {"LayerNorm": "layer", "RMSNorm": "rms", "ScaleNorm": "rms", "SimpleRMSNorm": "rms"}

_ATTENTION = {
    "attn.scale": sets("scale"),
    "attn.heads": sets("heads"),
    "attn.kv_heads": sets("kv_heads"),
    "attn.causal": sets("causal", {True: True, False: False}),
    "attn.max_attend_past": Meaning(
        "window",
        lambda n: n is None or whole(n),
        "it is no number of positions, nor null",
        lambda n: 0 if n is None else n + 1,
    ),
    "attend.causal": sets("causal", {True: True, False: False}),
    "attend.softclamp_logits": sets("clamped", {True: True, False: False}),
    "attend.logit_softclamp_value": sets("clamp"),
    "attend.attn_fn": only("softmax", why="its attention is no softmax"),
    "attend.scale": sets("scale"),
    "layers.dim": sets("width"),
    "layers.attn_dim_head": sets("head_dim"),
    "layers.num_attn_layers": sets("layers"),
    "layers.positions": sets("positions", {"learned": "learned", "none": "none", "rotary": "rotary", "alibi": "alibi"}),
    "layers.slopes": sets("slopes", lambda s: None if s is None else tuple(s)),
    "layers.rel_pos": only(None, "AlibiPositionalBias", why="relative positions of this kind are not read"),
    "layers.rotary_pos_emb": only(None, "RotaryEmbedding", why="a rotation of this kind is not read"),
    "layers.rotary_scale": only(None, why="rotations that also shrink (xpos) are not read"),
    "layers.layer_types": Meaning(
        only=lambda kinds: isinstance(kinds, tuple | list) and set(kinds) == {"a"},
        why="it has layers that are no self-attention",
    ),
    "layers.residuals": only("Residual", why="what a layer gives is not simply added"),
    "layers.scale_residual_constant": only(1, 1.0, why="the stream is scaled"),
    "layers.blocks": only("Attention", why="it has layers that are no self-attention"),
    "layers.rotated_heads": only("all", why="some heads are not rotated"),
    "layers.norms": sets("norm", {"Identity": "none", **{name: name for name in _NORMS}}),
    "layers.norm_eps": sets("eps"),
    "layers.norm_offset": sets("offset"),
    "layers.norm_first": sets("first"),
    "layers.norm_final": sets("final"),
    "layers.other_norms": only("Identity", why="it normalises its rows elsewhere (docs/proofs/normalisation.md)"),
    "wrapper.num_tokens": sets("vocabulary"),
    "wrapper.position_factor": sets("position_factor"),
    "wrapper.pos_emb": only("always", why="positions of this kind are not read"),
    "wrapper.project_emb": only("Identity", why="embeddings of another width than the stream (emb_dim) are not read"),
    "wrapper.tie_embedding_scale": only(
        None, why="an unembedding that is the embedding, scaled (tie_embedding), is not read: give it its own weights"
    ),
    "wrapper.output_is_log_prob": only(False, why="its outputs are normalised"),
}
_OFF = {
    "attn": "to_latent_q to_latent_kv to_rotateable_k use_latent_q use_latent_kv qkv_receive_diff_residuals laser to_v_gate "
    "to_output_gate to_v_head_gate qk_norm q_rmsnorm k_rmsnorm value_rmsnorm data_dependent_alibi rel_proj_pos_bias head_scale "
    "sparse_topk num_mem_kv attn_on_attn orthog_projected_values orthog_projected_values_per_head hybrid_module hybrid_norms "
    "hybrid_mix hybrid_mask_kwarg sublayer_dropout",
    "attend": "inverted_attention pre_softmax_talking_heads post_softmax_talking_heads pre_scale_post_talking_heads selective "
    "cog_signed l2_distance add_zero_kv head_learned_sink head_attn_sink cope flash_pack_seq",
    "layers": "stream_emb polar_pos_emb sandwich_norm pre_and_post_norm residual_attn cross_residual_attn cross_attend "
    "norm_need_condition post_branch_fn_needs_condition need_condition num_cross_attn_layers num_ff_layers residual_scale "
    "softclamp_output unet_skips reinject_input reinject_input_proj learned_reinject_input_gate add_value_residual "
    "depth_scale_residual scale_residual",
    "wrapper": "max_mem_len l2norm_embed embeds ff_deep_embed recycling recycled_proj looped exit_gate cls_token attn_pool "
    "average_pool_embed to_mixture combine_mixture sigsoftmax_logits has_multiple_heads add_continuous_pred_head "
    "num_memory_tokens memory_tokens_interspersed_every squeeze_out_last_dim",
}
_IDLE = {
    "attn": "training groups laser_softclamp_value gate_values_headwise output_gate_headwise to_v_gate_activation "
    "qk_norm_groups qk_norm_dim_scale qk_norm_q_scale qk_norm_k_scale qk_norm_scale to_value_residual_mix rotate_num_heads "
    "can_cache_kv",
    "attend": "training create_causal_mask dropout flash",
    "layers": "training causal attn_heads disable_abs_pos_emb pre_norm dim_condition has_custom_layer_types len_default_block "
    "layers_execute_order depth layer_dropouts cross_attn_tokens_dropout softclamp_output_value can_cache_kv resi_dual",
    "wrapper": "training emb_dim num_cls_tokens max_seq_len shift_mem_down emb_frac_gradient train_max_recycle_steps "
    "train_max_looped_steps can_cache_kv can_cache_kv_outside_max_seq_len input_not_include_cache",
}


def _table() -> dict[str, Meaning]:
    out = dict(_ATTENTION)
    for part, names in _OFF.items():
        out |= {f"{part}.{name}": only(*_PLAIN, why=_EXTRA) for name in names.split()}
    for part, names in _IDLE.items():
        out |= harmless(*(f"{part}.{name}" for name in names.split()))
    return out | {"layers.num_residual_streams": only(1, why=_EXTRA)}


def _said(value: Any) -> Any:
    """An attribute as JSON would hold it: modules and functions by their names."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_said(v) for v in value]
    inner = getattr(value, "func", value)
    return str(getattr(inner, "__name__", type(value).__name__))


def _config(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of the wrapper, its layers and every attention (which have to agree)."""
    found: dict[str, Any] = {}
    stack = module.attn_layers
    parts = [("wrapper", module), ("layers", stack)]
    parts += [("attn", part) for part in layers.values()] + [("attend", part.attend) for part in layers.values()]
    for kind, part in parts:
        for name, value in vars(part).items():
            if not name.startswith("_"):
                key, value = f"{kind}.{name}", _said(value)
                found[key] = value if found.get(key, value) == value else str([found[key], value])
    rotary, relative = stack.rotary_pos_emb, stack.rel_pos
    found["layers.rotary_pos_emb"] = None if rotary is None else type(rotary).__name__
    found["layers.rel_pos"] = None if relative is None else type(relative).__name__
    found["layers.rotary_scale"] = None if rotary is None or rotary.scale is None else "given"
    slopes = getattr(relative, "slopes", None)
    found["layers.slopes"] = None if slopes is None else [float(s) for s in slopes.reshape(-1)]
    learned = type(module.pos_emb).__name__ == "AbsolutePositionalEmbedding"
    kind = "rotary" if rotary is not None else "alibi" if relative is not None else "learned" if learned else "none"
    if learned and kind != "learned":
        kind = f"learned and {kind}"
    found["layers.positions"] = kind
    found["wrapper.position_factor"] = float(getattr(module.pos_emb, "scale", 1.0)) if learned else 1.0
    found["wrapper.project_emb"] = type(module.project_emb).__name__
    found |= _norms(module)
    residuals = [block[2] for block in stack.layers]
    found["layers.scale_residual"] = (
        None if all(getattr(r, "residual_scale", None) is None for r in residuals) else "given"
    )
    found["layers.residuals"] = ", ".join(sorted({type(r).__name__ for r in residuals}))
    found["layers.scale_residual_constant"] = max(getattr(r, "scale_residual_constant", 1.0) for r in residuals)
    found["layers.blocks"] = ", ".join(sorted({type(block[1]).__name__ for block in stack.layers}))
    found["layers.rotated_heads"] = "all" if found["attn.rotate_num_heads"] == found["attn.heads"] else "some"
    return found


def _norms(module: Any) -> dict[str, Any]:
    """The norms: those before each layer and the one at the end (after the only layer), and what else there is."""
    stack = module.attn_layers

    def kinds(parts: Iterable[Any]) -> list[str]:
        return sorted({"Identity" if part is None else type(part).__name__ for part in parts})

    before, last = [block[0][0] for block in stack.layers], stack.final_norm
    others = [norm for block in stack.layers for norm in list(block[0])[1:]] + [module.post_emb_norm]
    after = stack.layers[-1][0][2]
    if len(stack.layers) == 1 and kinds([last]) == ["Identity"] and after is not None:
        others, last = [part for part in others if part is not after], after
    placed = [part for part in (*before, last) if kinds([part]) != ["Identity"]]
    first = kinds(before) != ["Identity"]
    found: dict[str, Any] = {
        "layers.norms": ", ".join(kinds([*(before if first else ()), *placed])) or "Identity",
        "layers.norm_first": first,
        "layers.norm_final": kinds([last]) != ["Identity"],
        "layers.other_norms": ", ".join(kinds(others)) or "Identity",
    }
    numbers = {(getattr(getattr(p, "ln", None), "eps", 0.0), float(getattr(p, "unit_offset", 0))) for p in placed}
    eps, offset = next(iter(numbers)) if len(numbers) == 1 else (str(sorted(numbers)), 0.0)
    return found | ({"layers.norm_eps": eps, "layers.norm_offset": offset} if placed else {})


def _double(module: Any) -> None:
    """Its softmax is told to compute in float32."""
    from functools import partial

    import torch

    for part in module.modules():
        given = getattr(part, "attn_fn", None)
        if isinstance(given, partial) and given.keywords.get("dtype") == torch.float32:
            part.attn_fn = partial(given.func, *given.args, **{**given.keywords, "dtype": torch.float64})


def _tables(module: Any, layers: Mapping[str, Any], n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """cos and sin of its own frequencies."""
    rotary = module.attn_layers.rotary_pos_emb
    if rotary is None:
        return None
    angles = np.arange(n)[:, None] * rotary.inv_freq.double().cpu().numpy() / rotary.interpolation_factor
    return np.cos(angles), np.sin(angles)


FAMILY = Family(
    name="x-transformers",
    title="x-transformers",
    layer=linears("to_q", "to_k", "to_v", "to_out"),
    outer=EMBEDDED,
    outer_names={
        "W_E": (r"token_emb\.emb\.weight",),
        "W_pos": (r"pos_emb\.emb\.weight",),
        "W_U": (r"to_logits\.weight",),
        "b_U": (),
    },
    marks=(("to_q.weight", "to_k.weight", "to_v.weight"),),
    config={**_table(), "heads": sets("heads")},
    settled={"stream": True, "adjacent": True, "head_order": "consecutive rows", "tiled_groups": True},
    assumed={**USUAL, "position_factor": "1/sqrt(D)"},
    norms=NormTensors(
        kinds=_NORMS,
        layer="0.0",
        last=r"attn_layers\.final_norm|attn_layers\.layers\.0\.0\.2",
        parts={"LayerNorm": ("gamma",), "RMSNorm": ("g",), "ScaleNorm": ("g",), "SimpleRMSNorm": ()},
    ),
    buffers=(r"rotary_pos_emb\.inv_freq$", r"rel_pos\.slopes$"),
    live=_config,
    double=_double,
    rotary=_tables,
    looks="x-transformers names (attn_layers.layers.0.1.to_q.weight)",
)
