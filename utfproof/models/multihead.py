"""State dicts of plain PyTorch models made of nn.Embedding, nn.MultiheadAttention and nn.Linear.

Per layer, under any prefix with the layer's number in it: in_proj_weight [3D, D] (or q_proj_weight, k_proj_weight,
v_proj_weight [D, D]), in_proj_bias [3D], out_proj.weight [D, D], out_proj.bias [D]. Beside them the token embedding
[V, D], the learned positions [P, D] and the unembedding, an nn.Linear's weight [V', D] and bias [V']. Such files show
neither the number of heads nor whether there is a residual stream: both have to be said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.errors import MalformedInput
from utfproof.models.model import (
    Claims,
    ImportedModel,
    attention_matrix,
    biased_target,
    parse_scale,
    said_heads,
    said_residual,
)
from utfproof.shapes import Shape, positive_integer

ROLES = {
    "embedding": ("embedding", "embed", "token_embedding", "tok_embedding", "tok_emb", "token_emb", "wte"),
    "pos": ("pos", "position", "positions", "pos_embedding", "position_embedding", "pos_embed", "pos_emb", "wpe"),
    "unembed": ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout"),
}
"""Module names under which each role is looked for (the last part of the name before `.weight`)."""

Layer = dict[str, np.ndarray]


def parse_names(text: str | None) -> dict[str, str]:
    """--names: 'embedding=tok.weight,pos=wpe.weight,unembed=head.weight,layers=h.{}.attn' as a map from roles to names."""
    names: dict[str, str] = {}
    for part in [] if text is None else text.split(","):
        role, _, name = part.strip().partition("=")
        if role not in (*ROLES, "layers") or not name:
            raise MalformedInput(f"--names takes ROLE=NAME with a role of {', '.join(ROLES)}, layers; got {part!r}")
        names[role] = name
    if "layers" in names and names["layers"].count("{}") != 1:
        raise MalformedInput(f"--names layers={names['layers']}: write {{}} where the number of the layer stands")
    return names


def read_multihead(
    claims: Claims,
    kernel: SoftmaxAttention,
    *,
    heads: int | None,
    residual: bool | None,
    names: Mapping[str, str],
    scale: str,
) -> ImportedModel:
    """The model of a plain PyTorch state dict. MalformedInput naming the tensor that does not fit or is not carried."""
    file = claims.file
    prefixes = _layer_prefixes(claims, names.get("layers"))
    embedding = _role(claims, "embedding", names, required=True)
    W_E = claims.take(embedding, None, None)
    D = W_E.shape[1]
    position = _role(claims, "pos", names, required=False)
    W_pos = claims.take(position, None, D) if position else np.zeros((0, D))
    unembed = _role(claims, "unembed", names, required=True)
    W_out = claims.take(unembed, None, D)  # nn.Linear: [outputs, D]
    bias = unembed.removesuffix("weight") + "bias"
    b_U = claims.take_bias(bias, len(W_out)) if unembed.endswith("weight") else np.zeros(len(W_out))
    layers = [_layer(claims, prefix, D) for prefix in prefixes]
    bookkeeping = claims.take_bookkeeping(kernel)
    claims.finish()
    H, stream = said_heads(file, heads), said_residual(file, residual)
    if H is None:
        raise file.refuse("nn.MultiheadAttention does not store its number of heads: pass --heads")
    if stream is None:
        raise file.refuse(
            "a state dict does not show whether there is a residual stream: pass --residual or --no-residual"
        )
    if D % positive_integer("--heads", H):
        raise file.refuse(f"width {D} is no multiple of {H} heads")
    d = D // H
    factor = parse_scale(scale, d)

    def split(matrix: np.ndarray) -> np.ndarray:
        """[D, D] acting on columns, its rows in blocks of heads -> [H, D, d] acting on rows."""
        return matrix.reshape(H, d, D).transpose(0, 2, 1)

    arrays = {
        "W_Q": np.stack([split(layer["q"]) * factor for layer in layers]),
        "W_K": np.stack([split(layer["k"]) for layer in layers]),
        "W_V": np.stack([split(layer["v"]) for layer in layers]),
        "W_O": np.stack([layer["out"].T.reshape(H, d, D) for layer in layers]),
        "b_Q": np.stack([layer["b"][:D].reshape(H, d) * factor for layer in layers]),
        "b_K": np.stack([layer["b"][D : 2 * D].reshape(H, d) for layer in layers]),
        "b_V": np.stack([layer["b"][2 * D :].reshape(H, d) for layer in layers]),
        "b_O": np.stack([layer["b_out"] for layer in layers]),
        "W_E": np.concatenate([W_E, W_pos]),
        "W_U": W_out.T,
        "b_U": b_U,
    }
    V, P = len(W_E), len(W_pos)
    shape = Shape(H, len(layers), d, V + P, len(W_out), residual=stream)

    def original(tokens: np.ndarray, kernel: SoftmaxAttention) -> np.ndarray:
        x = W_E[tokens] + (W_pos[: len(tokens)] if P else 0)
        for layer in layers:
            out = _attention(layer, x, H, factor, kernel)
            x = x + out if stream else out
        return x @ W_out.T + b_U

    roles = {"embedding": embedding, "pos": position, "unembed": unembed, "layers": ", ".join(prefixes)}
    return ImportedModel("pytorch", biased_target(shape, arrays, V), original, V, P, H, bookkeeping, roles)


def _layer_prefixes(claims: Claims, template: str | None) -> list[str]:
    """Prefixes of the attention layers, in order: names that differ in one number alone, which counts 0, 1, ... ."""
    ends = ("in_proj_weight", "q_proj_weight")
    found = {name[: -len(end)] for name in claims.file.tensors for end in ends if name.endswith(end)}
    if template is not None:
        before, after = template.split("{}")
        pattern = re.escape(before) + r"\d+" + re.escape(after.rstrip(".") + ".")
        found = {prefix for prefix in found if re.fullmatch(pattern, prefix)}
    if not found:
        claims.refuse_unsuitable()
        raise claims.file.refuse("no in_proj_weight or q_proj_weight of an nn.MultiheadAttention is found")
    if len(found) == 1:
        return list(found)
    parts = {tuple(re.split(r"(\d+)", prefix)) for prefix in found}
    lengths = {len(p) for p in parts}
    places = [i for i in range(min(lengths)) if len({p[i] for p in parts}) > 1] if len(lengths) == 1 else []
    if len(places) != 1 or places[0] % 2 == 0:
        raise claims.file.refuse(
            f"the order of the attention layers is unclear from {', '.join(sorted(found)[:6])}; "
            "say --names layers=PREFIX.{}.NAME"
        )
    ordered = sorted(parts, key=lambda p: int(p[places[0]]))
    numbers = [int(p[places[0]]) for p in ordered]
    if numbers != list(range(len(numbers))):
        raise claims.file.refuse(f"attention layers are numbered {numbers}, expected 0, 1, ... without a gap")
    return ["".join(p) for p in ordered]


def _role(claims: Claims, role: str, names: Mapping[str, str], *, required: bool) -> str:
    """The name of the tensor in this role, "" where there is none and none is needed."""
    if role in names:
        return names[role]
    known = ROLES[role]
    found = [n for n in claims.file.tensors if n.endswith(".weight") and n.split(".")[-2] in known]
    if len(found) == 1:
        return found[0]
    if not found and not required:
        return ""
    claims.refuse_unsuitable()
    problem = f"several tensors could be the {role}: {', '.join(sorted(found))}" if found else f"no {role} is found"
    raise claims.file.refuse(f"{problem}; say --names {role}=NAME (looked for {', '.join(known)})")


def _layer(claims: Claims, prefix: str, D: int) -> Layer:
    """q, k, v [D, D] as PyTorch stores them, b [3D], out [D, D], b_out [D]."""
    if claims.has(prefix + "in_proj_weight"):
        q, k, v = np.split(claims.take(prefix + "in_proj_weight", 3 * D, D), 3)
    else:
        q, k, v = (claims.take(f"{prefix}{kind}_proj_weight", D, D) for kind in "qkv")
    return {
        "q": q,
        "k": k,
        "v": v,
        "b": claims.take_bias(prefix + "in_proj_bias", 3 * D),
        "out": claims.take(prefix + "out_proj.weight", D, D),
        "b_out": claims.take_bias(prefix + "out_proj.bias", D),
    }


def _attention(layer: Layer, x: np.ndarray, H: int, factor: float, kernel: SoftmaxAttention) -> np.ndarray:
    """One nn.MultiheadAttention of x with itself, as PyTorch defines it: one wide product, heads cut out of its columns."""
    n, D = x.shape
    projected = x @ np.concatenate([layer["q"], layer["k"], layer["v"]]).T + layer["b"]
    q, k, v = (part.reshape(n, H, D // H).swapaxes(0, 1) for part in np.split(projected, 3, axis=1))
    pattern = attention_matrix(factor * (q @ k.swapaxes(1, 2)), kernel)
    joined = (pattern @ v).swapaxes(0, 1).reshape(n, D)
    out: np.ndarray = joined @ layer["out"].T + layer["b_out"]
    return out
