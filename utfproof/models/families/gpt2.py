"""GPT-2 as transformers writes it: c_attn and c_proj are Conv1D, whose weights [in, out] act from the right.

A GPT-2 has layer norms and MLPs; what is read is the attention-only model that is left where the MLPs are taken out, or their
last matrices are zero, with its norms (in one or two layers) or without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any

from utfproof.models.family import EMBEDDED, WORDS, Family, Tensor, harmless, only, sets, tensor
from utfproof.models.foreign import config_fields, widened
from utfproof.models.norms import NormTensors

NAMES = {"W_E": (r"wte\.weight",), "W_pos": (r"wpe\.weight",), "W_U": (r"lm_head\.weight",), "b_U": ()}
FIELDS = {
    "n_layer": sets("layers"),
    "n_head": sets("heads"),
    "n_embd": sets("width"),
    "vocab_size": sets("vocabulary"),
    "heads": sets("heads"),
}
NORMS = NormTensors(
    kinds={"LayerNorm": "layer"},
    layer="ln_1",
    last="ln_f",
    parts={"LayerNorm": ("weight", "bias")},
    shown="LayerNorm",
    optional=("bias",),
    idle="ln_2",
)
CODE = {"causal": True, "positions": "learned", "norm": "none", "cap": 0.0, "window": 0}
"""What the code of GPT-2 and nanoGPT does; other architectures store tensors under the same names."""


def rows(weight: str, output: str) -> dict[str, Tensor]:
    """Queries, keys and values in one tensor of these axes, and the output."""
    return {
        "c_attn.weight": tensor(weight, "W_Q", "W_K", "W_V"),
        "c_attn.bias": tensor("(c H d)", "b_Q", "b_K", "b_V"),
        "c_proj.weight": tensor(output, "W_O"),
        "c_proj.bias": tensor("D", "b_O"),
    }


def config_of(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the model, and the heads that its attention says where no configuration does."""
    shown = {str(heads) for part in layers.values() if isinstance(heads := getattr(part, "n_head", None), int)}
    return {**({"n_head": int(*shown)} if len(shown) == 1 else {}), **config_fields(module)}


_UPCAST = "_upcast_and_reordered_attn"


def _double(module: Any) -> None:
    """Its attention where that computes in float32 (reorder_and_upcast_attn), by its own code with another meaning of that
    word."""
    for part in module.modules():
        if (
            getattr(part, "reorder_and_upcast_attn", False)
            and hasattr(type(part), _UPCAST)
            and _UPCAST not in vars(part)
        ):
            setattr(part, _UPCAST, MethodType(widened(getattr(type(part), _UPCAST)), part))


COMMON = harmless(
    "transformers_version architectures output_hidden_states return_dict dtype torch_dtype "
    "chunk_size_feed_forward is_encoder_decoder id2label label2id problem_type use_cache bos_token_id "
    "eos_token_id pad_token_id _name_or_path output_attentions initializer_range label_names "
    "tokenizer_class name_or_path task_specific_params"
)
"""Fields of every transformers configuration that change no output."""

OTHERS = "other architectures compute something else under the same names"
HEADS = "consecutive columns of each third"


def _implied(config: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers' GPT2Model does, and its defaults for fields that older configurations do not have."""
    if config.get("model_type") != "gpt2":
        return {}
    defaults = {"scaled": "scale_attn_weights", "scale_by_layer": "scale_attn_by_inverse_layer_idx"}
    return {
        **CODE,
        "head_order": HEADS,
        **{fact: fact == "scaled" for fact, name in defaults.items() if name not in config},
    }


FAMILY = Family(
    name="gpt2",
    title="GPT-2 (transformers)",
    layer=rows("D (c H d)", "(H d) D"),
    outer=EMBEDDED,
    outer_names=NAMES,
    marks=(("c_attn.weight", "c_proj.weight"),),
    config={
        **WORDS,
        **FIELDS,
        "model_type": only("gpt2", why=OTHERS),
        "head_order": sets("head_order", {HEADS: HEADS}),
        "n_positions": sets("context"),
        "n_ctx": sets("context"),
        "scale_attn_weights": sets("scaled", {True: True, False: False}),
        "scale_attn_by_inverse_layer_idx": sets("scale_by_layer", {True: True, False: False}),
        "tie_word_embeddings": sets("tied"),
        "layer_norm_epsilon": sets("eps"),
        "add_cross_attention": only(False, None, why="cross attention reads another stream"),
        **COMMON,
        **harmless(
            "n_inner activation_function resid_pdrop embd_pdrop attn_pdrop summary_type "
            "summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
            "reorder_and_upcast_attn"
        ),
    },
    settled={"stream": True},
    assumed={**CODE, "scale": "1/sqrt(d)", "head_order": HEADS},
    shows_positions=True,
    implies=_implied,
    buffers=(r"attn\.bias$", r"attn\.masked_bias$"),
    tied_output=True,
    live=config_of,
    double=_double,
    norms=NORMS,
    recognised=lambda tensors: _wide(tensors, 1),
    looks="GPT-2 names (h.0.attn.c_attn.weight)",
)


def _wide(tensors: Mapping[str, Any], axis: int) -> bool:
    """Whether c_attn has three times as many columns as rows (axis 1), or rows as columns (axis 0)."""
    shapes = [a.shape for name, a in tensors.items() if name.endswith("c_attn.weight")]
    return all(len(s) == 2 and s[axis] == 3 * s[1 - axis] for s in shapes)


def stored_as_linear(tensors: Mapping[str, Any]) -> bool:
    """Whether c_attn is an nn.Linear, as nanoGPT has it."""
    return _wide(tensors, 0)
