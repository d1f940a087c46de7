"""A whole Llama-like model of transformers inside one fixed host of the same family, approximately (docs/proofs/llama.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.constructions.llama import RHO, Block, LlamaClass, LlamaHost, LlamaLike, llama_host
from utfproof.errors import MalformedInput
from utfproof.models.modules import callers_code, in_float64, live_tensors, module_outputs, require_module
from utfproof.models.tensors import Claims
from utfproof.util.arrays import one_line

BOUND = 8.0
"""Operator norms that a host is made for unless the caller says otherwise."""
SEQUENCES = 24
SINGLE = 1e-5
"""Outputs that are computed in float32 differ by less."""


@one_line
@dataclass(frozen=True, eq=False)
class EmbeddedLlama:
    """A host with the E of one model, compared with the model's own outputs.

    from_reading: largest relative difference of outputs between the host and the model as it was read, in float64;
    from_module: between the host and the module itself.
    """

    name: str
    reading: LlamaLike
    host: LlamaHost
    model: LlamaLike
    from_reading: float
    from_module: float
    context: int

    @property
    def E(self) -> np.ndarray:
        """[V, m], the only part of the host that depends on the model."""
        return self.model.embedding

    def __str__(self) -> str:
        members = self.host.members
        return (
            f"the host's outputs are within {self.from_module:.2g} of {self.name}'s, relative to the largest, and within "
            f"{self.from_reading:.2g} of the same model with norms and rotations in float64: measured on {SEQUENCES} random "
            f"sequences of up to {self.context} tokens, not proved\n"
            f"m = {self.host.m}, {len(self.host.blocks)} blocks; one host for all models of these sizes whose matrices have "
            f"norms of at most {members.bound:g}"
        )


def embed_llama(
    module: Any,
    host: LlamaHost | None = None,
    *,
    bound: float = BOUND,
    rho: float = RHO,
    context: int = 64,
    seed: int = 0,
) -> EmbeddedLlama:
    """E of a LlamaForCausalLM (or MistralForCausalLM) in the host for its sizes, compared on random token ids.

    host: an earlier one, to be used again. Raises MalformedInput for a module that is read as another function than it
    computes, OutsideClass where it is not of the host's class.
    """
    reading, d, hidden = read_llama(module)
    if host is None:
        V, D = reading.embedding.shape
        sizes = len(reading.blocks[0].heads), len(reading.blocks), d, D, hidden, V
        host = llama_host(LlamaClass(*sizes, reading.eps, bound, reading.attention), rho)
    if host.members.attention != reading.attention:
        raise MalformedInput(f"the host has the attention {host.members.attention}, the model {reading.attention}")
    forward, model, rng = module_outputs(in_float64(module)), host.embed(reading), np.random.default_rng(seed)
    apart = np.zeros(3)
    for length in np.unique(np.linspace(1, context, SEQUENCES).astype(int)):
        tokens = rng.integers(0, len(reading.embedding), length)
        read, ours, own = reading.outputs(tokens), model.outputs(tokens), forward(tokens[None])[0]
        apart = np.maximum(apart, [np.abs(x).max() / np.abs(read).max() for x in (read - ours, ours - own, own - read)])
    name = type(module).__name__
    if not apart[2] <= SINGLE:
        raise MalformedInput(f"{name} was read as another function than it computes: outputs differ by {apart[2]:.3g}")
    return EmbeddedLlama(name, reading, host, model, float(apart[0]), float(apart[1]), context)


def read_llama(module: Any) -> tuple[LlamaLike, int, int]:
    """(model in float64, head dimension, width of its MLPs). Gains go into the matrices behind them, shared keys and values
    are repeated, rotated pairs are put side by side. MalformedInput naming a tensor that is not read."""
    require_module(module)
    name, config, claims = type(module).__name__, getattr(module, "config", None), Claims(live_tensors(module))

    def read(tensor: str, axes: int = 2) -> np.ndarray:
        return claims.take(f"{tensor}.weight", claims.axes(f"{tensor}.weight", axes))

    with callers_code(f"{name} has not the parts of transformers' LlamaForCausalLM"):
        sizes = config.num_attention_heads, config.num_key_value_heads  # type: ignore[union-attr]
        layers, eps = config.num_hidden_layers, float(config.rms_norm_eps)  # type: ignore[union-attr]
        attention = SoftmaxAttention(
            scale="1/sqrt(d)", causal=True, window=getattr(config, "sliding_window", None), rope_base=_base(config)
        )
        blocks = [_block(read, f"model.layers.{layer}.", *sizes) for layer in range(layers)]
        head = (read("lm_head") * read("model.norm", 1)).T
        model = LlamaLike(read("model.embed_tokens"), blocks, head, eps, attention)
    if left := sorted(claims.file.tensors.keys() - claims.taken):
        raise MalformedInput(f"{name}: {left[0]} is not read; a Llama-like model has no such tensor")
    if any(getattr(config, field, "silu") != "silu" for field in ("hidden_act", "hidden_activation")):
        raise MalformedInput(f"{name}: the MLP's activation is {config.hidden_act!r}; this host has silu")  # type: ignore[union-attr]
    return model, blocks[0].heads[0][0].shape[1], blocks[0].gate.shape[1]


def _block(read: Callable[..., np.ndarray], place: str, H: int, groups: int) -> Block:
    """One layer: matrices [in, out] with the gains of the norms before them."""
    before, after = read(place + "input_layernorm", 1), read(place + "post_attention_layernorm", 1)
    q, k, v = (read(f"{place}self_attn.{x}_proj") * before for x in "qkv")
    out, d = read(place + "self_attn.o_proj"), len(q) // H
    pairs = np.arange(d).reshape(2, -1).T.reshape(-1)  # coordinates i and i + d/2 turn together
    Q, outs = q.reshape(H, d, -1), out.T.reshape(H, d, -1)
    K, V = (np.repeat(x.reshape(groups, d, -1), H // groups, axis=0) for x in (k, v))
    heads = [(Q[h][pairs].T, K[h][pairs].T, V[h].T, outs[h]) for h in range(H)]
    gate, factor = (read(f"{place}mlp.{x}_proj") * after for x in ("gate", "up"))
    return Block(heads, gate.T, factor.T, read(place + "mlp.down_proj").T)


def _base(config: Any) -> float:
    """The base of the rotations. MalformedInput for scaled ones."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type", "default") != "default":
        raise MalformedInput(f"rotations of type {rope['rope_type']!r}: this host has those of one base")
    return float(rope.get("rope_theta") or config.rope_theta)
