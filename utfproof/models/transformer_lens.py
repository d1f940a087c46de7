"""TransformerLens' names and axes: blocks.{l}.attn.W_Q, W_K, W_V [H, D, d], W_O [H, d, D], b_Q, b_K, b_V [H, d], b_O [D];
embed.W_E [V, D], pos_embed.W_pos [P, D], unembed.W_U [D, V'], unembed.b_U [V']. Grouped heads: _W_K, _W_V [G, D, d] and
_b_K, _b_V [G, d].

These models always have a residual stream. What their tensors do not show: a normalisation without weights (LNPre, RMSPre), the
scale of the logits, the direction of attention; docs/embed-your-model.md says what is taken for granted.
"""

from __future__ import annotations

import re

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.models.model import (
    Claims,
    ImportedModel,
    attention_matrix,
    biased_target,
    parse_scale,
    said_heads,
    said_residual,
)
from utfproof.shapes import Shape

Layer = dict[str, np.ndarray]


def read_transformer_lens(
    claims: Claims, kernel: SoftmaxAttention, *, heads: int | None, residual: bool | None, scale: str
) -> ImportedModel:
    """The model of a TransformerLens state dict. MalformedInput naming the tensor that does not fit or is not carried."""
    file = claims.file
    if said_residual(file, residual) is False:
        raise file.refuse("TransformerLens models have a residual stream; --no-residual contradicts that")
    numbers = sorted(int(m[1]) for name in file.tensors if (m := re.fullmatch(r"blocks\.(\d+)\.attn\.W_Q", name)))
    if numbers != list(range(len(numbers))) or not numbers:
        claims.refuse_unsuitable()
        raise file.refuse(f"blocks.{{l}}.attn.W_Q is expected for l = 0, 1, ...; found {numbers or 'none'}")
    W_E = claims.take("embed.W_E", None, None)
    D = W_E.shape[1]
    W_pos = claims.take("pos_embed.W_pos", None, D) if claims.has("pos_embed.W_pos") else np.zeros((0, D))
    W_U = claims.take("unembed.W_U", D, None)
    b_U = claims.take_bias("unembed.b_U", W_U.shape[1])
    H, _, d = claims.take("blocks.0.attn.W_Q", None, D, None).shape
    said = said_heads(file, heads)
    if said not in (None, H):
        raise file.refuse(f"blocks.0.attn.W_Q has {H} heads, {said} were said")
    layers = [_layer(claims, number, H, D, d) for number in numbers]
    groups = {layer["W_K"].shape[0] for layer in layers}
    bookkeeping = claims.take_bookkeeping(kernel)
    claims.finish()
    factor = parse_scale(scale, d)

    def stacked(name: str, times: float = 1) -> np.ndarray:
        parts = [layer[name] for layer in layers]
        if name in ("W_K", "W_V", "b_K", "b_V"):
            parts = [np.repeat(part, H // part.shape[0], axis=0) for part in parts]
        return np.stack(parts) * times

    names = ("W_K", "W_V", "W_O", "b_K", "b_V", "b_O")
    arrays = {name: stacked(name) for name in names}
    arrays |= {name: stacked(name, factor) for name in ("W_Q", "b_Q")}
    arrays |= {"W_E": np.concatenate([W_E, W_pos]), "W_U": W_U, "b_U": b_U}
    V, P = len(W_E), len(W_pos)
    shape = Shape(H, len(layers), d, V + P, W_U.shape[1], residual=True)

    def original(tokens: np.ndarray, kernel: SoftmaxAttention) -> np.ndarray:
        x = W_E[tokens] + (W_pos[: len(tokens)] if P else 0)
        for layer in layers:
            x = x + _attention(layer, x, factor, kernel)
        return x @ W_U + b_U

    return ImportedModel("transformer-lens", biased_target(shape, arrays, V), original, V, P, max(groups), bookkeeping)


def _layer(claims: Claims, number: int, H: int, D: int, d: int) -> Layer:
    """The tensors of one layer, keys and values as they are stored."""
    prefix = f"blocks.{number}.attn."
    layer = {
        "W_Q": claims.take(prefix + "W_Q", H, D, d),
        "W_O": claims.take(prefix + "W_O", H, d, D),
        "b_Q": claims.take_bias(prefix + "b_Q", H, d),
        "b_O": claims.take_bias(prefix + "b_O", D),
    }
    grouped = "_" if claims.has(prefix + "_W_K") else ""
    W_K = claims.take(f"{prefix}{grouped}W_K", None if grouped else H, D, d)
    G = len(W_K)
    if H % G:
        raise claims.file.refuse(
            f"{prefix}{grouped}W_K has {G} heads, which do not divide the {H} heads of the queries"
        )
    layer |= {"W_K": W_K, "W_V": claims.take(f"{prefix}{grouped}W_V", G, D, d)}
    layer |= {name: claims.take_bias(f"{prefix}{grouped}{name}", G, d) for name in ("b_K", "b_V")}
    return layer


def _attention(layer: Layer, x: np.ndarray, factor: float, kernel: SoftmaxAttention) -> np.ndarray:
    """One attention layer as TransformerLens defines it: keys and values of a group repeated after they are computed."""
    q = np.einsum("nD,hDd->hnd", x, layer["W_Q"]) + layer["b_Q"][:, None]
    k = np.einsum("nD,hDd->hnd", x, layer["W_K"]) + layer["b_K"][:, None]
    v = np.einsum("nD,hDd->hnd", x, layer["W_V"]) + layer["b_V"][:, None]
    repeats = len(q) // len(k)
    k, v = np.repeat(k, repeats, axis=0), np.repeat(v, repeats, axis=0)
    pattern = attention_matrix(np.einsum("hnd,hmd->hnm", q, k) * factor, kernel)
    z = np.einsum("hnm,hmd->hnd", pattern, v)
    out: np.ndarray = np.einsum("hnd,hdD->nD", z, layer["W_O"]) + layer["b_O"]
    return out
