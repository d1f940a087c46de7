"""What a configuration, a file's metadata and options say of a model beside its tensors, by TransformerLens' field names.

Every field is read, without effect, off, or refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from utfproof.weights import TensorFile

CONFIG = "--config with all of the model's cfg.to_dict()"
ASKED: dict[str, tuple[str, str]] = {
    "attention_dir": ("mask", "--attention causal, or softmax where positions see both ways"),
    "window_size": ("window", "--attention causal where there is none, or causal+window:W"),
    "scale": ("logits times", "--scale"),
    "positional_embedding_type": ("positions", '--config with "positional_embedding_type"'),
    "normalization_type": ("normalisation", '--config with "normalization_type" (null where there is none)'),
    "attn_scores_soft_cap": ("cap of logits", '--config with "attn_scores_soft_cap" (-1 where there is none)'),
    "output_logits_soft_cap": ("cap of outputs", '--config with "output_logits_soft_cap" (-1 where there is none)'),
    "add_zero_attn": ("attention to no token", '--config with "add_zero_attn"'),
    "residual": ("residual stream", "--residual or --no-residual"),
    "rotary_adjacent_pairs": ("adjacent pairs are rotated", '--config with "rotary_adjacent_pairs"'),
    "others": ("other fields of the configuration", CONFIG),
}
"""Fields that change outputs and that tensors do not show: the word for people, and the option that settles each."""


def number(value: Any) -> bool:
    """Whether a field's value is a finite number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def count(value: Any) -> bool:
    """Whether a field's value is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31


def among(*values: Any) -> Callable[[Any], bool]:
    """A test whether a field's value is one of these; True is not 1."""
    return lambda value: any(type(value) is type(known) and value == known for known in values)


_SWITCH = among(True, False)
READ: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("n_layers", "n_heads", "n_key_value_heads", "d_head", "d_model", "d_vocab", "n_ctx"), count),
    "d_vocab_out": lambda value: count(value) or value == -1,
    "attention_dir": among("causal", "bidirectional"),
    "window_size": lambda value: count(value) or value == 0,
    "attn_types": lambda kinds: isinstance(kinds, list | tuple) and set(kinds) <= {"local", "global"},
    "scale": lambda value: value == "1/sqrt(d)" or (number(value) and value != 0),
    "attn_scale": lambda value: number(value) and value != 0,
    "positional_embedding_type": among("standard", "rotary", "none"),
    "attn_scores_soft_cap": number,
    **dict.fromkeys(("use_attn_scale", "use_local_attn", "rotary_adjacent_pairs", "residual"), _SWITCH),
    "scale_attn_by_inverse_layer_idx": _SWITCH,
}
"""Fields that are read, and which values they have."""
OFF = {
    "normalization_type": "it normalises its rows, which no embedding takes over",
    "output_logits_soft_cap": "a cap of the outputs is not linear",
    "final_rms": "it normalises the last rows",
    "parallel_attn_mlp": "it has MLPs beside its attention",
    "post_embedding_ln": "it normalises the embedding",
    "use_normalization_before_and_after": "it normalises what attention writes",
    "use_qk_norm": "it normalises queries and keys",
    "clip_qkv": "clipped queries, keys and values are not linear in the stream",
    "use_logn_attn": "queries grow with their position",
    "use_dynamic_ntk_rope": "its rotation depends on the length of the context",
    "use_NTK_by_parts_rope": "this rotation is read from a live module alone (--module)",
    "use_yarn_rope": "this rotation is read from a live module alone (--module)",
    "rope_scaling": "this rotation is read from a live module alone (--module)",
    "use_attention_sinks": "attention to no token: rows over the tokens do not sum to 1",
    "add_zero_attn": "attention to no token: rows over the tokens do not sum to 1",
    "bias_k": "attention to no token: rows over the tokens do not sum to 1",
    "num_experts": "it has MLPs",
    "relative_attention_num_buckets": "its positions are read from a live module by from_parts alone",
    "relative_attention_max_distance": "its positions are read from a live module by from_parts alone",
    "load_in_4bit": "its weights are quantised",
    "quantization_method": "its weights are quantised",
}
"""Fields under which a model is read only where they are off: null, false, 0, -1 or none."""
WHOLE = (
    "final_rms",
    "parallel_attn_mlp",
    "post_embedding_ln",
    "use_normalization_before_and_after",
    "use_qk_norm",
    "load_in_4bit",
    "scale_attn_by_inverse_layer_idx",
    "attn_only",
)
"""Fields that change outputs and that every configuration of TransformerLens has."""
_NAMES = (
    "d_mlp device dtype use_attn_result use_split_qkv_input default_prepend_bos gated_mlp uses_rms_norm eps "
    "layer_norm_folding act_fn experts_per_token model_name use_hook_mlp_in use_attn_in train_seq_length ln_final "
    "ungroup_grouped_query_attention from_checkpoint checkpoint_index checkpoint_label_type checkpoint_value "
    "tokenizer_name init_mode n_devices seed initializer_range init_weights n_params use_hook_tokens "
    "tokenizer_prepends_bos tokenizer_appends_eos default_padding_side trust_remote_code attn_implementation "
    "decoder_start_token_id tie_word_embeddings NTK_by_parts_low_freq_factor NTK_by_parts_high_freq_factor "
    "NTK_by_parts_factor NTK_original_ctx_len yarn_factor yarn_attention_factor yarn_beta_fast yarn_beta_slow "
    "yarn_original_max_position_embeddings yarn_truncate yarn_global_attn_only norm_topk_prob "
    "rotary_dim rotary_base rotary_base_local rotary_scaling_factor "
    "task accuracy steps dropout batch_first written_by architecture original_architecture"
)
WITHOUT_EFFECT = frozenset(_NAMES.split())
"""Fields that change no output of an attention-only model, or only together with a field that is refused."""
ALIASES = {
    **dict.fromkeys(("heads", "num_heads", "nhead"), "n_heads"),
    **dict.fromkeys(("layers", "num_layers"), "n_layers"),
    "window": "window_size",
}


def _off(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str) and value.lower() == "none") or value in (0, -1)


class Settings:
    """What is said of the model of a file, and who says it."""

    def __init__(self, file: TensorFile) -> None:
        self.file = file
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """What is said of this field, or the default."""
        return self.values.get(name, default)

    def say(self, name: str, value: Any, source: str) -> None:
        """Record a field. MalformedInput where another source says something else."""
        known = self.values.setdefault(name, value)
        earlier = self.sources.setdefault(name, source)
        if known != value:
            raise self.file.refuse(f"{source} says {name} {value}, {earlier} says {known}")

    def read(self, fields: Mapping[str, Any], source: str, *, strict: bool) -> None:
        """Record the fields of a configuration. strict: an unknown one is refused, else it is left out.
        MalformedInput naming a field under whose value the model is not read."""
        for name, value in fields.items():
            own, place = ALIASES.get(name, name), f"{source} field {name} = {repr(value)[:60]}"
            if own == "causal" and isinstance(value, bool):
                own, value = "attention_dir", "causal" if value else "bidirectional"
            if own == "attn_only":
                if value is not True:
                    raise self.file.refuse(f"{place}: it has MLPs")
                self.say(own, True, place)
            elif own in OFF:
                if not _off(value):
                    raise self.file.refuse(f"{place}: {OFF[own]}")
                self.say(own, None, place)
            elif own in READ:
                self._record(own, value, place)
            elif own not in WITHOUT_EFFECT and strict and not _off(value):
                raise self.file.refuse(f"{place} is not known, and may change outputs")

    def _record(self, name: str, value: Any, place: str) -> None:
        if name in ("window_size", "attn_scores_soft_cap", "positional_embedding_type") and _off(value):
            if name == "positional_embedding_type":
                self.say(name, "none", place)
            elif name == "attn_scores_soft_cap" or value != -1:
                self.say(name, 0, place)
        elif value is not None and not (name == "attn_scale" and value == -1):
            if not READ[name](value):
                raise self.file.refuse(f"{place}: this value is not read; from_parts reads any attention-only model")
            self.say(name, value, place)
        elif name == "attn_scale":
            self.sources.setdefault(name, place)

    def said(self, *names: str) -> bool:
        """Whether anybody says one of these fields."""
        return any(name in self.sources for name in names)


def metadata_fields(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Metadata's texts as values: true, false, none, numbers, lists and objects in JSON."""
    words = {"true": True, "false": False, "none": None, "null": None, "": None}

    def value(text: str) -> Any:
        low = text.strip().lower()
        if low in words:
            return words[low]
        with suppress(ValueError, RecursionError):
            return json.loads(text)
        return text

    return {name: value(text) for name, text in metadata.items()}


def unknown_fields(settings: Settings, asked: Iterable[str]) -> tuple[str, ...]:
    """Of the fields on which a family's outputs depend, those that nobody says."""
    others = {"scale": ("attn_scale", "use_attn_scale"), "window_size": ("use_local_attn",)}
    left = [name for name in asked if not settings.said(name, *others.get(name, ()))]
    whole = "others" in left and all(settings.said(name) for name in WHOLE)
    return tuple(name for name in left if not (whole and name == "others"))
