"""Small models by the constructors of the libraries that people use, compared with their own forward pass, or frozen for tests.

Usage, in an environment with torch, the library and this package:
    python scripts/freeze_models.py transformer-lens              # compare every model with its library, live
    python scripts/freeze_models.py transformers --write FILE     # and freeze them: tensors, configuration, tokens, logits

LIBRARY is transformer-lens (2 and 3), transformer-lens-bridge (4), transformers, x-transformers, torch, or nanogpt, whose
model.py stands in the folder that NANOGPT names. Every model is either
embedded in hosts whose exported modules agree with the library's own forward pass within 1e-9 relative in float64, or refused
with a message that names the field or tensor said here. Anything else is a failure, and the exit code 1. LIBRARY guide runs the
first lines of docs/embed-your-model.md with TransformerLens 3.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from utfproof.errors import CannotCarry, MalformedInput, NotDefined, Undecided
from utfproof.models import from_model, from_normalised_model
from utfproof.models.exporting import transformer_lens_tensors, write_arrays
from utfproof.models.normalised import write_tensors

LIMIT = 1e-9
TL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 6,
    "n_ctx": 7,
    "d_head": 4,
    "n_heads": 2,
    "d_vocab": 5,
    "attn_only": True,
}
TL |= {"normalization_type": None, "device": "cpu"}


@dataclass(frozen=True)
class Case:
    """A model: its name, how it is made, and the field or tensor by which it is refused ("" where it is embedded). normalised:
    whether it is one for hosts with a norm of their own; constant: it has a bias after its last norm, beside the host."""

    name: str
    make: Callable[[], nn.Module]
    refused: str = ""
    normalised: bool = False
    constant: bool = False


def drawn(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every parameter drawn, biases and embeddings too, as float32 numbers."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return module.eval()


def trained(module: nn.Module, steps: int = 40) -> nn.Module:
    """The module after a few steps on repeating its first token."""
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(steps):
        tokens = torch.randint(5, (16, 7))
        loss = nn.functional.cross_entropy(module(tokens)[:, -1], tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return module.eval()


# --- the libraries -----------------------------------------------------------------------------------------

_SHAPES: dict[str, dict[str, Any]] = {
    "one layer, eight heads": {"n_layers": 1, "n_heads": 8, "d_head": 2},
    "three layers": {"n_layers": 3, "d_head": 2},
    "four layers, one head": {"n_layers": 4, "n_heads": 1, "d_head": 3},
    "four heads, odd width": {"n_heads": 4, "d_head": 1, "d_model": 7},
    "wide heads": {"d_head": 9},
    "other outputs": {"d_vocab_out": 3},
    "both ways": {"attention_dir": "bidirectional"},
    "own factor": {"attn_scale": 0.7},
    "grouped heads": {"n_heads": 4, "n_key_value_heads": 2, "d_head": 2},
    "one head of keys": {"n_heads": 3, "n_key_value_heads": 1, "d_head": 2},
    "rotary": {"positional_embedding_type": "rotary", "rotary_dim": 4},
    "capped logits": {"attn_scores_soft_cap": 0.5},
}
_OLD: dict[str, dict[str, Any]] = {
    "no factor": {"use_attn_scale": False},
    "factor by layer": {"scale_attn_by_inverse_layer_idx": True},
    "rotary, adjacent, in part": {
        "positional_embedding_type": "rotary",
        "rotary_dim": 2,
        "rotary_adjacent_pairs": True,
    },
    "ALiBi": {"positional_embedding_type": "alibi"},
    "ALiBi, six heads": {"positional_embedding_type": "alibi", "n_heads": 6, "d_head": 2},
    "negative factor": {"attn_scale": -3.0},
    "local, both ways": {
        "use_local_attn": True,
        "window_size": 2,
        "attn_types": ["local", "local"],
        "attention_dir": "bidirectional",
    },
    "shortformer": {"positional_embedding_type": "shortformer"},
    "local in one layer": {"use_local_attn": True, "window_size": 3, "attn_types": ["global", "local"]},
    "local": {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "local"]},
}
_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "LayerNorm": ({"normalization_type": "LN"}, "normalization_type"),
    "folded LayerNorm": ({"normalization_type": "LNPre"}, "normalization_type"),
    "RMS": ({"normalization_type": "RMS"}, "normalization_type"),
    "MLP": ({"attn_only": False, "act_fn": "relu"}, "attn_only"),
    "capped outputs": ({"output_logits_soft_cap": 1.0}, "output_logits_soft_cap"),
}
_REFUSED_OLD: dict[str, tuple[dict[str, Any], str]] = {
    "parallel MLP": ({"attn_only": False, "act_fn": "relu", "parallel_attn_mlp": True}, "parallel_attn_mlp"),
    "normalised queries": ({"use_qk_norm": True}, "use_qk_norm"),
    "ALiBi both ways": (
        {"positional_embedding_type": "alibi", "attention_dir": "bidirectional"},
        "positional_embedding_type",
    ),
}
_REFUSED_NEW: dict[str, tuple[dict[str, Any], str]] = {
    "no factor": ({"use_attn_scale": False}, "use_attn_scale"),
    "local": ({"use_local_attn": True, "window_size": 3, "attn_types": ["local", "local"]}, "use_local_attn"),
}


def _lens(make: Callable[..., nn.Module], good: dict[str, Any], bad: dict[str, Any]) -> Iterator[Case]:
    def built(extra: dict[str, Any]) -> nn.Module:
        return drawn(make(**{**TL, **extra}))

    yield Case("plain", partial(built, {}))
    yield Case("trained a little", lambda: trained(make(**TL)))
    for name, extra in good.items():
        yield Case(name, partial(built, extra))
    for name, (extra, field) in bad.items():
        yield Case(name, partial(built, extra), field)


def transformer_lens() -> Iterator[Case]:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    def make(**config: Any) -> nn.Module:
        module: nn.Module = HookedTransformer(HookedTransformerConfig(**config))
        return module

    yield from _lens(make, {**_SHAPES, **_OLD}, {**_REFUSED, **_REFUSED_OLD})
    yield from _normalised(make)


def _normalised(make: Callable[..., nn.Module], always: bool = False) -> Iterator[Case]:
    """Models for hosts with a norm of their own. always: there is no model without a norm at the end."""

    def normed(kind: str, final: bool, teach: bool = False, bias: bool = False, **extra: Any) -> nn.Module:
        """bias: with biases that no host gives, after the last norm and for queries and keys after the first layer. Two layers
        write rows of mean zero."""
        module: Any = make(**{**TL, "n_layers": 1, "normalization_type": kind, **extra})
        after = []
        for name, value in module.named_parameters():
            at_end = re.search(r"(unembed|head).*(b_U|bias)$|(ln_final|ln_out).*(\.b|bias)$", name)
            later = re.search(r"(blocks|layers)\.[1-9].*(b_Q|b_K|ln1\.b|\b(q|k|ln1)\..*bias)$", name)
            after += [value] if later or (final and at_end) else []
        for part in after if not bias else ():
            part.requires_grad_(False)
        if not final:
            module.ln_final = nn.Identity()
        module = trained(module) if teach else drawn(module)
        module = module.double() if len(module.blocks) > 1 else module
        with torch.no_grad():
            for part in after if not bias else ():
                part.zero_()
            for block in list(module.blocks)[:-1] if kind.startswith("LN") else ():
                for name, part in block.named_parameters():
                    if re.search(r"(W_O|b_O|\bo\..*(weight|bias))$", name):
                        part -= part.mean(0 if name.endswith("weight") else -1, keepdim=True)
        return module

    for kind in ("LN", "LNPre", "RMS", "RMSPre"):
        for final in (True,) if always else (True, False):
            name = f"one layer, {kind}{', and at the end' if final else ''}"
            yield Case(name, partial(normed, kind, final), normalised=True)
    yield Case("one layer, LN, trained a little", partial(normed, "LN", True, teach=True), normalised=True)
    grouped: dict[str, Any] = {"n_heads": 4, "n_key_value_heads": 2, "d_head": 2, "attention_dir": "bidirectional"}
    yield Case("one layer, LN, grouped heads, both ways", partial(normed, "LN", True, **grouped), normalised=True)
    yield Case("one layer, LNPre, rotary", partial(normed, "LNPre", True, **_SHAPES["rotary"]), normalised=True)
    after = partial(normed, "LN", True, bias=True)
    yield Case("one layer, LN, a bias after it", after, normalised=True, constant=True)
    yield Case("two layers, LN", partial(normed, "LN", True, n_layers=2), "section 7", normalised=True)
    trained_so = partial(normed, "LN", True, n_layers=2, teach=True, bias=True)
    yield Case("two layers, LN, trained a little", trained_so, "section 7", normalised=True)
    yield Case("RMS at the end alone", partial(normed, "LN", True, final_rms=True), "final_rms", normalised=True)
    if always:
        return
    for kind in ("LN", "LNPre", "RMS", "RMSPre"):
        yield Case(f"two layers, {kind}, none at the end", partial(normed, kind, False, n_layers=2), normalised=True)
    yield Case("two layers, RMS, grouped heads", partial(normed, "RMS", False, n_layers=2, **grouped), normalised=True)
    biased = partial(normed, "RMS", False, n_layers=2, bias=True)
    yield Case("two layers, RMS, biases", biased, "b_Q of layer 1", normalised=True)


def transformer_lens_bridge() -> Iterator[Case]:
    from transformer_lens import TransformerBridge, TransformerBridgeConfig

    def make(**config: Any) -> nn.Module:
        module: nn.Module = TransformerBridge.boot_native(TransformerBridgeConfig(**config))
        return module

    yield from _lens(make, _SHAPES, {**_REFUSED, **_REFUSED_NEW})
    yield from _normalised(make, always=True)


class Nothing(nn.Module):
    """An MLP that adds nothing."""

    def forward(self, x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        return torch.zeros_like(x)


def without(part: nn.Module, *names: str, keep: str = "") -> None:
    """The module without these norms, but for those to keep."""
    for name in names:
        if name not in keep.split():
            setattr(part, name, nn.Identity())


def transformers() -> Iterator[Case]:
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
    )

    def gpt2(bare: bool = True, idle: bool = False, keep: str = "", **config: Any) -> nn.Module:
        """keep: names of norms that stay."""
        sizes = {"n_layer": 2, "n_head": 2, "n_embd": 6, "n_positions": 7, "vocab_size": 5, "n_inner": 4}
        module = GPT2LMHeadModel(GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **config}))
        for block in module.transformer.h if bare else ():
            without(block, "ln_1", "ln_2", keep=keep)
            block.mlp = block.mlp if idle else Nothing()
        without(module.transformer, *["ln_f"] * bare, keep=keep)
        module = drawn(module)
        for block in module.transformer.h if idle else ():
            nn.init.zeros_(block.mlp.c_proj.weight)
            nn.init.zeros_(block.mlp.c_proj.bias)
        return module

    def normed_gpt2(bias: bool = False, **options: Any) -> nn.Module:
        """With norms; bias: with one after the last. Two layers write rows of mean zero, and the second has no biases before
        its logits."""
        module: Any = gpt2(**options).double()
        with torch.no_grad():
            if hasattr(module.transformer.ln_f, "bias") and not bias:
                module.transformer.ln_f.bias.zero_()
            for block in module.transformer.h[1:]:
                if hasattr(block.ln_1, "bias"):
                    block.ln_1.bias.zero_()
                block.attn.c_attn.bias[:12].zero_()
            for block in module.transformer.h[:-1]:
                for part in (block.attn.c_proj.weight, block.attn.c_proj.bias):
                    part -= part.mean(-1, keepdim=True)
        return module

    def llama(
        model: Any = LlamaForCausalLM, kind: Any = LlamaConfig, bare: bool = True, keep: str = "", **config: Any
    ) -> nn.Module:
        sizes = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
        sizes |= {"vocab_size": 5, "intermediate_size": 4, "max_position_embeddings": 9}
        module = model(kind(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **config}))
        for block in module.model.layers if bare else ():
            without(block, "input_layernorm", "post_attention_layernorm", keep=keep)
            block.mlp = Nothing()
        without(module.model, *["norm"] * bare, keep=keep)
        return drawn(module)

    yield Case("GPT-2", gpt2)
    yield Case("GPT-2, one layer, three heads", lambda: gpt2(n_layer=1, n_head=3))
    yield Case("GPT-2, untied", lambda: gpt2(tie_word_embeddings=False))
    yield Case("GPT-2, factor by layer", lambda: gpt2(scale_attn_by_inverse_layer_idx=True))
    yield Case("GPT-2, no factor", lambda: gpt2(scale_attn_weights=False))
    yield Case("GPT-2, idle MLPs", lambda: gpt2(idle=True))
    yield Case("GPT-2 in full", lambda: gpt2(bare=False), "ln_1")
    yield Case("Llama", llama)
    yield Case("Llama with biases", lambda: llama(attention_bias=True, num_key_value_heads=2))
    yield Case("Llama, four heads, two of keys", lambda: llama(num_attention_heads=4, num_key_value_heads=2))
    yield Case("Llama, eager", lambda: llama(attn_implementation="eager"))
    yield Case("Llama, tied", lambda: llama(tie_word_embeddings=True))
    yield Case("Llama, other base", lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 100.0}))
    yield Case("Mistral, window", lambda: llama(MistralForCausalLM, MistralConfig, sliding_window=3))
    yield Case("Llama in full", lambda: llama(bare=False), "layernorm")
    scaled = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    yield Case("Llama, scaled rotation", lambda: llama(rope_parameters=scaled), "rope_parameters")
    one: dict[str, Any] = {"n_layer": 1}
    both: dict[str, Any] = {"keep": "ln_1 ln_f"}
    two: dict[str, Any] = {"keep": "ln_1"}
    llamas: dict[str, Any] = {"keep": "input_layernorm norm"}
    normed: dict[str, tuple[Callable[[], nn.Module], str]] = {
        "GPT-2, one layer with its norms": (lambda: normed_gpt2(**one, **both), ""),
        "GPT-2, one layer, a norm before it": (lambda: normed_gpt2(**one, **two), ""),
        "GPT-2, one layer, a norm at the end": (lambda: normed_gpt2(**one, keep="ln_f"), ""),
        "GPT-2, one layer, all norms, idle MLPs": (
            lambda: normed_gpt2(**one, keep="ln_1 ln_2 ln_f", idle=True),
            "",
        ),
        "GPT-2, two layers, none at the end": (lambda: normed_gpt2(**two), ""),
        "GPT-2, two layers with its norms": (lambda: normed_gpt2(**both), "section 7"),
        "GPT-2, two layers, a norm at the end": (lambda: normed_gpt2(keep="ln_f"), "at the end alone"),
        "GPT-2, three layers, narrow heads": (
            lambda: gpt2(n_layer=3, n_head=2, n_embd=6, keep="ln_1 ln_f", n_positions=2),
            "too narrow",
        ),
        "Llama, one layer with its norms": (lambda: llama(num_hidden_layers=1, **llamas), ""),
        "Llama, two layers, none at the end": (lambda: llama(keep="input_layernorm"), ""),
        "Llama, two layers with its norms": (lambda: llama(**llamas), "section 7"),
    }
    for name, (make, refused) in normed.items():
        yield Case(name, make, refused, normalised=True)
    biased = partial(normed_gpt2, bias=True, **one, **both)
    yield Case("GPT-2, one layer with its norms, a bias after it", biased, normalised=True, constant=True)


def x_transformers() -> Iterator[Case]:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    def make(
        kind: Any = Decoder,
        bare: bool = True,
        final: bool = False,
        wrapper: dict[str, Any] | None = None,
        **layers: Any,
    ) -> nn.Module:
        """bare: without norms; final: with one at the end."""
        depth = layers.pop("depth", 2)
        sizes = {"dim": 6, "depth": depth, "heads": 2, "attn_dim_head": 3, "custom_layers": ("a",) * depth, **layers}
        module = TransformerWrapper(num_tokens=5, max_seq_len=7, attn_layers=kind(**sizes), **(wrapper or {}))
        for block in module.attn_layers.layers if bare else ():
            block[0][0] = nn.Identity()
        without(module.attn_layers, *["final_norm"] * (not final))
        return drawn(module)

    def centred(**options: Any) -> nn.Module:
        """Two layers that write rows of mean zero."""
        module: Any = make(bare=False, **options).double()
        with torch.no_grad():
            weight = module.attn_layers.layers[0][1].to_out.weight
            weight -= weight.mean(0, keepdim=True)
        return module

    unplaced = {"use_abs_pos_emb": False}
    yield Case("decoder", make)
    yield Case("encoder", lambda: make(Encoder))
    yield Case("one layer", lambda: make(depth=1, heads=4))
    yield Case("three layers", lambda: make(depth=3, attn_dim_head=2))
    yield Case("grouped heads", lambda: make(heads=4, attn_kv_heads=2))
    yield Case("one head of keys", lambda: make(heads=3, attn_kv_heads=1))
    yield Case("no positions", lambda: make(wrapper=unplaced))
    yield Case("rotary in part", lambda: make(rotary_pos_emb=True, attn_dim_head=20, wrapper=unplaced))
    yield Case("one head", lambda: make(heads=1), "to_out")
    yield Case("ALiBi", lambda: make(alibi_pos_bias=True, heads=3, wrapper=unplaced))
    yield Case("capped logits", lambda: make(attn_softclamp_logits=True, attn_logit_softclamp_value=0.5))
    yield Case("with its norms", lambda: make(bare=False, final=True), "layers.norms")
    one: dict[str, Any] = {"depth": 1, "bare": False}
    normed: dict[str, tuple[dict[str, Any], str]] = {
        "one layer, LayerNorm": ({"final": True}, ""),
        "one layer, LayerNorm, none at the end": ({}, ""),
        "one layer, LayerNorm from an offset": ({"final": True, "norm_add_unit_offset": True}, ""),
        "one layer, LayerNorm after it": ({"pre_norm": False}, ""),
        "one layer, RMSNorm, none at the end": ({"use_rmsnorm": True}, ""),
        "one layer, ScaleNorm, none at the end": ({"use_scalenorm": True}, ""),
        "one layer, SimpleRMSNorm, none at the end": ({"use_simple_rmsnorm": True}, ""),
        "one layer, RMSNorm": ({"use_rmsnorm": True, "final": True}, "eps = 0 and a norm at the end"),
        "two layers, RMSNorm, none at the end": ({"use_rmsnorm": True, "depth": 2}, "eps = 0 and two layers"),
        "two layers, LayerNorm": ({"depth": 2, "final": True}, "section 7"),
        "two layers, LayerNorm after them": ({"depth": 2, "pre_norm": False}, "layers.other_norms"),
        "one layer, norms before and after": ({"sandwich_norm": True}, "sandwich_norm"),
        "one layer, dynamic tanh": ({"use_dynamic_tanh": True}, "layers.norms"),
    }
    for name, (options, refused) in normed.items():
        yield Case(name, partial(make, **{**one, **options}), refused, normalised=True)
    yield Case("two layers, LayerNorm, none at the end", centred, normalised=True)
    yield Case("normalised queries", lambda: make(attn_qk_norm=True), "attn.qk_norm")
    yield Case("shifted tokens", lambda: make(shift_tokens=1), "layers.blocks")
    yield Case("scaled stream", lambda: make(scale_residual_constant=0.5), "layers.scale_residual_constant")
    yield Case("orthogonal updates", lambda: make(orthog_residual=True), "layers.residuals")
    yield Case("talking heads", lambda: make(attn_pre_talking_heads=True), "talking_heads")
    yield Case("memories", lambda: make(attn_num_mem_kv=2), "attn.num_mem_kv")
    yield Case("gated values", lambda: make(attn_gate_values=True), "to_v_gate")
    yield Case("shifted by T5", lambda: make(rel_pos_bias=True, wrapper=unplaced), "layers.rel_pos")


class Stack(nn.Module):
    """Attention layers between an embedding and a readout."""

    def __init__(
        self,
        heads: int,
        layers: int,
        stream: bool,
        causal: bool,
        bias: bool = True,
        encoder: bool = False,
        norms: bool = False,
        first: bool = True,
    ) -> None:
        super().__init__()
        self.stream, self.causal, self.norms = stream, causal, norms
        self.embedding, self.pos = nn.Embedding(5, 6), nn.Parameter(torch.zeros(1, 7, 6))
        make = nn.TransformerEncoderLayer if encoder else nn.MultiheadAttention
        options: dict[str, Any] = {"dim_feedforward": 4, "norm_first": first} if encoder else {}
        self.layers = nn.ModuleList(make(6, heads, batch_first=True, bias=bias, **options) for _ in range(layers))
        for layer in self.layers if encoder else ():
            layer.norm1, layer.norm2 = (layer.norm1, layer.norm2) if norms else (nn.Identity(), nn.Identity())
        self.unembed = nn.Linear(6, 5, bias=bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        n = tokens.shape[1]
        x = self.embedding(tokens) + self.pos[:, :n]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1) if self.causal else None
        for layer in self.layers:
            if self.norms:
                x = layer(x, src_mask=mask)
            elif isinstance(layer, nn.TransformerEncoderLayer):
                x = x + layer._sa_block(x, mask, None)
            else:
                added = layer(x, x, x, attn_mask=mask, need_weights=False)[0]
                x = x + added if self.stream else added
        out: torch.Tensor = self.unembed(x)
        return out


def plain_torch() -> Iterator[Case]:
    def encoder(layers: int = 2, full: bool = False, **options: Any) -> nn.Module:
        module: Any = drawn(Stack(2, layers, True, encoder=True, **options))
        for layer in module.layers if not full else ():
            nn.init.zeros_(layer.linear2.weight)
            nn.init.zeros_(layer.linear2.bias)
        return module

    def stack(*sizes: Any) -> nn.Module:
        return drawn(Stack(*sizes))

    for heads, layers in ((1, 2), (2, 2), (3, 1), (2, 3)):
        for stream in (True, False):
            for causal in (True, False):
                said = f"{heads} heads, {layers} layers, {'' if stream else 'no '}stream, {'causal' if causal else 'both ways'}"
                yield Case(said, partial(stack, heads, layers, stream, causal))
    yield Case("no biases", lambda: drawn(Stack(2, 2, True, True, bias=False)))
    yield Case("encoder layers", lambda: encoder(causal=False))
    yield Case("encoder layers, causal", lambda: encoder(causal=True))
    yield Case("encoder layers in full", lambda: encoder(causal=False, norms=True, full=True), "norm1")
    one = partial(encoder, layers=1, causal=True, norms=True)
    yield Case("one encoder layer, norms first", one, normalised=True)
    yield Case("one encoder layer, norms last", partial(one, first=False), "norm_first", normalised=True)


def nanogpt() -> Iterator[Case]:
    upstream = loaded(Path(os.environ["NANOGPT"], "model.py"))

    def make(bare: bool = True, idle: bool = False, keep: str = "", **config: Any) -> nn.Module:
        sizes = {"n_layer": 2, "n_head": 2, "n_embd": 6, "block_size": 7, "vocab_size": 5, "dropout": 0.1, **config}
        module = upstream.GPT(upstream.GPTConfig(**sizes))
        for block in module.transformer.h if bare else ():
            without(block, "ln_1", "ln_2", keep=keep)
            block.mlp = block.mlp if idle else Nothing()
        without(module.transformer, *["ln_f"] * bare, keep=keep)
        module = drawn(module)
        for block in module.transformer.h if idle else ():
            for part in block.mlp.c_proj.parameters():
                nn.init.zeros_(part)
        return module

    yield Case("with biases", lambda: make(bias=True))
    yield Case("without biases", lambda: make(bias=False))
    yield Case("one layer, three heads", lambda: make(n_layer=1, n_head=3, bias=True))
    yield Case("idle MLPs", lambda: make(idle=True, bias=True))
    yield Case("in full", lambda: make(bare=False, bias=True), "ln_1")
    yield Case("in full, without biases", lambda: make(bare=False, bias=False), "ln_1")
    all_norms = partial(make, keep="ln_1 ln_2 ln_f", idle=True)
    yield Case("one layer with its norms", partial(all_norms, n_layer=1, bias=False), normalised=True)
    biased = partial(all_norms, n_layer=1, bias=True)
    yield Case("one layer with its norms and biases", biased, normalised=True, constant=True)
    yield Case("two layers with its norms", partial(all_norms, bias=False), "section 7", normalised=True)


LIBRARIES: dict[str, tuple[Callable[[], Iterator[Case]], str]] = {
    "transformer-lens": (transformer_lens, "transformer-lens"),
    "transformer-lens-bridge": (transformer_lens_bridge, "transformer-lens"),
    "transformers": (transformers, "transformers"),
    "x-transformers": (x_transformers, "x-transformers"),
    "torch": (plain_torch, "torch"),
    "nanogpt": (nanogpt, "torch"),
}

# --- comparing and freezing --------------------------------------------------------------------------------


def loaded(path: Path) -> Any:
    """The module of a Python file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def exported_outputs(path: Path, tokens: np.ndarray) -> np.ndarray:
    """What an exported module gives."""
    with torch.no_grad():
        return np.asarray(loaded(path).Host()(torch.from_numpy(tokens)).numpy())


def compare(case: Case, folder: Path) -> tuple[str, str]:
    """("ok", "refused" or "wrong", what was found)."""
    module = case.make()
    if case.normalised:
        return compare_normalised(case, module, folder)
    try:
        model = from_model(module)
    except MalformedInput as error:
        return ("refused" if case.refused and case.refused in str(error) else "wrong"), str(error)
    if case.refused:
        return "wrong", f"it is read, and should be refused by {case.refused}"
    found = []
    tokens = np.random.default_rng(5).integers(0, model.vocabulary, min(6, model.reading.longest))
    expected = model.outputs(tokens)
    for host in ("sparse", "tied", "random"):
        try:
            embedded = model.embed(host)
        except CannotCarry:
            if host == "tied" and model.target.shape.residual and model.target.shape.layers > 1:
                found.append("tied: cannot carry it")
                continue
            return "wrong", f"{host} cannot carry it"
        path = embedded.export(folder / f"host{len(list(folder.iterdir()))}.py")
        by = np.abs(exported_outputs(path, tokens) - expected).max() / np.abs(expected).max()
        by = float(np.max([by, embedded.agreement.relative_difference]))
        if not by <= LIMIT:
            return "wrong", f"{host} differs by {by:.3g}"
        found.append(f"{host} {by:.1e}")
        if host == "sparse" and "HookedTransformer" in type(module).__name__:
            written = under_lens_names(embedded, folder / "lens.safetensors")
            by = 0.0 if written is None else loaded_back(written, tokens, expected)
            if not by <= LIMIT:
                return "wrong", f"under its library's own names the {host} host differs by {by:.3g}"
            found.append("not exported under these names" if written is None else f"loaded back {by:.1e}")
    return "ok", ", ".join(found)


def compare_normalised(case: Case, module: nn.Module, folder: Path) -> tuple[str, str]:
    """The same for a model with norms and a host with a norm of its own; without one it has to be refused."""
    try:
        from_model(module)
        return "wrong", "it is read as a model without a norm"
    except MalformedInput:
        pass
    try:
        model = from_normalised_model(module)
        embedded = model.embed(plus_constant=case.constant)
    except (MalformedInput, Undecided) as error:
        return ("refused" if case.refused and case.refused in str(error) else "wrong"), str(error)
    if case.refused:
        return "wrong", f"it is read, and should be refused by {case.refused}"
    if case.constant != embedded.verdict.startswith("up to a constant"):
        return "wrong", f"a constant after the last norm is passed over in silence: {embedded.verdict}"
    tokens = np.random.default_rng(5).integers(0, model.vocabulary, 6)
    expected = model.outputs(tokens)
    found = exported_outputs(embedded.export(folder / "host.py"), tokens)
    by = np.abs(found - expected).max() / np.abs(expected).max()
    by = float(np.max([by, embedded.agreement.relative_difference]))
    said = f"a host with a norm of its own {by:.1e}"
    written = under_lens_names(embedded, folder / "lens.safetensors") if "Hooked" in type(module).__name__ else None
    if written is not None:
        pairs = tokens * model.positions + np.arange(len(tokens)) if model.positions else tokens
        again = loaded_back(written, pairs, expected)
        by, said = float(np.max([by, again])), f"{said}, loaded back {again:.1e}"
    return ("ok" if by <= LIMIT else "wrong"), said


def loaded_back(path: Path, tokens: np.ndarray, expected: np.ndarray) -> float:
    """How far a HookedTransformer that has loaded this export under its names is from what is expected of it. Only the
    library's buffers may be missing from the export, and nothing may be left over."""
    from safetensors import safe_open
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    with safe_open(path, "pt") as file:
        names = file.keys()
        said, held = file.metadata(), {name: file.get_tensor(name) for name in names}
    sizes = {
        name: int(said[name])
        for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx")
    }
    norm = said["normalization_type"]
    config = HookedTransformerConfig(
        **sizes,
        attn_only=True,
        normalization_type=None if norm == "none" else norm,
        eps=float(said.get("eps", 1e-5)),
        attention_dir=said["attention_dir"],
        use_attn_scale=True,
        attn_scale=float(said["attn_scale"]),
        positional_embedding_type=said["positional_embedding_type"],
        dtype=torch.float64,
        device="cpu",
    )
    module = HookedTransformer(config)
    result = module.load_state_dict(held, strict=False)
    left = [name for name in result.missing_keys if not name.endswith((".mask", ".IGNORE"))]
    if left or result.unexpected_keys:
        raise ValueError(f"HookedTransformer misses {left} and does not know {result.unexpected_keys}")
    with torch.no_grad():
        found = np.asarray(module(torch.from_numpy(tokens)[None])[0].numpy())
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def under_lens_names(embedded: Any, path: Path) -> Path | None:
    """The host and E in a file under TransformerLens' names; None where they have no such form."""
    model = embedded.model
    try:
        if model.reading.norm is not None:
            sizes = (model.positions, 64, None, embedded.constant)
            write_tensors(path, embedded.host, embedded.E, model.attention, *sizes)
        else:
            said = {"vocabulary": model.vocabulary, "positions": model.positions}
            write_arrays(path, *transformer_lens_tensors(embedded.host, embedded.E, model.attention, **said))
    except NotDefined:
        return None
    return path


def frozen(case: Case) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tensors and record of a model: state dict, configuration, tokens and the library's own logits in float64."""
    from utfproof.models import live

    module = case.make()
    twin = live.in_float64(module)
    file = live.live_tensors(twin)
    record: dict[str, Any] = {"refused": case.refused, "normalised": case.normalised, "constant": case.constant}
    family = live.recognise(file)
    parts = live.attention_modules(twin, file, family)
    record |= {"family": family.name, "config": {} if family.live is None else family.live(twin, parts)}
    tensors = {name: _narrow(np.asarray(array)) for name, array in file.tensors.items()}
    if not case.refused:
        model = from_model(module, norms=case.normalised)
        if family.name == "pytorch":
            record["config"] |= {"residual": model.reading.stream, "causal": model.reading.attention.layers[0].causal}
        rotary = model.reading.attention.layers[0].rotary
        if rotary is not None:
            tensors |= {"frozen.cos": rotary.cos, "frozen.sin": rotary.sin}
        n = min(7, model.reading.longest)
        tokens = np.random.default_rng(7).integers(0, model.vocabulary, (3, n)).astype(np.int64)
        tensors |= {"frozen.tokens": tokens, "frozen.logits": np.stack([model.outputs(row) for row in tokens])}
    record["config"] = json.loads(json.dumps(record["config"], default=str))
    return tensors, record


def _narrow(array: np.ndarray) -> np.ndarray:
    """float32 where that holds the same numbers."""
    small = array.astype(np.float32) if array.dtype == np.float64 else array
    return small if np.array_equal(small, array, equal_nan=array.dtype.kind == "f") else array


def guide() -> int:
    """Run the first lines of docs/embed-your-model.md and compare what they print with what the page shows."""
    text = (Path(__file__).parents[1] / "docs" / "embed-your-model.md").read_text()
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", text, re.DOTALL)[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    lines = [line for line in printed.getvalue().splitlines() if not line.startswith("Moving model")]
    print("\n".join(lines))
    return int(lines[0] != shown.splitlines()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare models with their libraries, live, or freeze them.")
    parser.add_argument("library", choices=[*LIBRARIES, "guide"])
    parser.add_argument("--write", type=Path, help="the safetensors file to freeze them into")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if args.library == "guide":
        return guide()
    cases, distribution = LIBRARIES[args.library]
    counts = {"ok": 0, "refused": 0, "wrong": 0}
    arrays: dict[str, np.ndarray] = {}
    records: dict[str, Any] = {}
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            verdict, said = compare(case, Path(folder))
        counts[verdict] += 1
        print(f"{verdict:8} {case.name}: {said[:150]}", flush=True)
        if args.write is not None:
            tensors, records[case.name] = frozen(case)
            arrays |= {f"{case.name}/{name}": array for name, array in tensors.items()}
    if args.write is not None:
        versions = {name: version(name) for name in (distribution, "torch", "numpy")}
        if args.library == "nanogpt":
            versions["nanoGPT"] = hashlib.sha256(Path(os.environ["NANOGPT"], "model.py").read_bytes()).hexdigest()
        write_arrays(args.write, arrays, {"versions": json.dumps(versions), "models": json.dumps(records)})
    print(f"{args.library} {version(distribution)}: {counts}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
