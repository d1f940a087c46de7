"""The matrices of a model by the names that libraries give them.

A whole model is read from a file under the names of TransformerLens (3 and 4) and of plain PyTorch, and live under every name
of the table. Any other model is given by its matrices (`from_parts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utfproof.models.reading import Arrays
from utfproof.models.tensors import Claims, layer_prefixes, listed
from utfproof.weights import TensorFile

EMBEDDINGS = ("embedding", "embed", "token_embedding", "tok_emb", "tok_embed", "token_emb", "wte")
POSITIONS = ("pos", "position", "pos_embedding", "position_embedding", "pos_embed", "pos_emb", "wpe")
OUTPUTS = ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout")
MASKS = ("mask", "attn_mask", "causal_mask")
BUFFERS = (*MASKS, "IGNORE", "rotary_cos", "rotary_sin")
"""Tensors that hold no weights. A live module shows what they do."""
_ASKED = ("attention_dir", "window", "normalization_type")
_LENS = (*_ASKED, "positional_embedding_type", "use_attn_scale", "attn_scores_soft_cap", "output_logits_soft_cap")


@dataclass(frozen=True)
class Layout:
    """Names of a layer's tensors behind the prefix of its attention. readers: the linears [H d, D] of queries, keys and values,
    or one of all three; out: [D, H d]. asked: facts (`importing.FACTS`) that these tensors do not show; none: only the live
    module shows what they mean."""

    title: str
    readers: tuple[str, ...]
    out: str
    asked: tuple[str, ...] = ()


BY_HEAD = Layout("TransformerLens (HookedTransformer)", ("W_Q",), "W_O", _LENS)
"""Matrices act from the right, heads are an axis of their own: W_Q, W_K, W_V [H, D, d] and W_O [H, d, D]."""
MIXED = "query_key_value.weight"
"""The linear layer that holds queries, keys and values of a group of heads."""
LAYOUTS = (
    BY_HEAD,
    Layout("TransformerLens 4 (TransformerBridge)", ("q.weight", "k.weight", "v.weight"), "o.weight", _LENS),
    Layout("nn.MultiheadAttention", ("in_proj_weight",), "out_proj.weight", (*_ASKED, "add_zero_attn", "residual")),
    *(
        Layout("names of transformers", tuple(readers.split()), out)
        for readers, outs in (
            ("q_proj.weight k_proj.weight v_proj.weight", "o_proj.weight out_proj.weight dense.weight"),
            ("query.weight key.weight value.weight", "dense.weight out_proj.weight"),
            ("c_attn.weight", "c_proj.weight"),
            (MIXED, "dense.weight"),
            ("qkv_proj.weight", "o_proj.weight"),
            ("Wqkv.weight", "out_proj.weight"),
            ("qkv.weight", "out.weight proj.weight"),
        )
        for out in outs.split()
    ),
)


def recognise(file: TensorFile) -> tuple[Layout, list[str]]:
    """The layout of these names, and the prefix of each layer's attention. MalformedInput where there is none."""
    for layout in LAYOUTS:
        if prefixes := layer_prefixes(file, (*layout.readers, layout.out)):
            return layout, prefixes
    raise file.refuse(
        f"no attention is found among {listed(file.tensors, 4) or 'no tensors'}. Names such as blocks.0.attn.W_Q, "
        "blocks.0.attn.q.weight and in_proj_weight are known. Any other model is read by from_parts, from its matrices "
        "(docs/embed-your-model.md)"
    )


def read_attention(claims: Claims, heads: int | None) -> Arrays:
    """W_Q, W_K, W_V, W_O, b_Q, b_K, b_V and b_O of `reading.Arrays`. heads: H, which some tensors do not show. MalformedInput
    where sizes do not fit."""
    layout, prefixes = recognise(claims.file)
    read = _by_head if layout is BY_HEAD else _by_rows
    layers = [read(claims, layout, prefix, heads) for prefix in prefixes]
    for name, first in layers[0].items():
        if other := next((layer[name].shape for layer in layers if layer[name].shape != first.shape), None):
            raise claims.file.refuse(f"{name} has shape {list(first.shape)} in layer 0, {list(other)} in another")
    arrays = {name: np.stack([layer[name] for layer in layers]) for name in layers[0]}
    H, G = arrays["W_Q"].shape[1], arrays["W_K"].shape[1]
    if H % G:
        raise claims.file.refuse(f"{G} heads of keys do not divide the {H} heads of queries")
    return arrays


def _by_head(claims: Claims, _: Layout, at: str, heads: int | None) -> Arrays:
    """A layer of HookedTransformer; _W_K, _W_V and their biases where heads share keys and values."""
    H, D, d = claims.axes(at + "W_Q", 3)
    if heads not in (None, H):
        raise claims.file.refuse(f"{heads} heads were given, the tensors have {H}")
    own = "" if at + "W_K" in claims.file.tensors else "_"
    G = claims.axes(f"{at}{own}W_K", 3)[0]
    shapes = {"W_Q": (H, D, d), "W_O": (H, d, D), "b_Q": (H, d), "b_O": (D,)}
    shapes |= {f"{own}{kind}_{part}": size for part in "KV" for kind, size in (("W", (G, D, d)), ("b", (G, d)))}
    return {name.lstrip("_"): claims.take(at + name, shape, optional="b_" in name) for name, shape in shapes.items()}


def _by_rows(claims: Claims, layout: Layout, at: str, H: int | None) -> Arrays:
    """A layer of linears, whose rows are consecutive heads; a bias is one more column of them."""
    file, name = claims.file, at + layout.readers[0]
    if H is None:
        raise file.refuse("its tensors do not show the number of heads: pass --heads")
    fused = len(layout.readers) == 1
    turned = fused and claims.axes(name, 2)[0] == claims.axes(at + layout.out, 2)[1]  # Conv1D acts from the right
    held = [_linear(claims, at + reader, turned) for reader in layout.readers]
    out = _linear(claims, at + layout.out, turned)
    W_O, b_O = out[:, :-1], out[:, -1]
    D, d = held[0].shape[1] - 1, W_O.shape[1] // H
    misfit = f"{name} has shape {list(file.tensors[name].shape)}, which does not fit {H} heads: pass --heads"
    if W_O.shape != (D, H * d) or not d or any(len(part) % d or part.shape[1] != D + 1 for part in held):
        raise file.refuse(misfit)
    parts = [part.reshape(-1, d, D + 1) for part in held]
    if fused and (groups := (len(parts[0]) - H) // 2) > 0 and H % groups == 0 and len(parts[0]) == H + 2 * groups:
        if name.endswith(MIXED):
            mixed = parts[0].reshape(groups, -1, d, D + 1)
            parts = [mixed[:, :-2].reshape(H, d, D + 1), mixed[:, -2], mixed[:, -1]]
        else:
            parts = np.split(parts[0], [H, H + groups])
    if len(parts) != 3 or len(parts[0]) != H or len(parts[1]) != len(parts[2]):
        raise file.refuse(misfit)
    arrays = {f"W_{kind}": part[..., :-1].swapaxes(-1, -2) for kind, part in zip("QKV", parts, strict=True)}
    arrays |= {f"b_{kind}": part[..., -1] for kind, part in zip("QKV", parts, strict=True)}
    return arrays | {"W_O": W_O.reshape(D, H, d).transpose(1, 2, 0), "b_O": b_O}


def _linear(claims: Claims, name: str, turned: bool = False) -> np.ndarray:
    """A linear and its bias side by side: [out, in + 1]."""
    weight = claims.take(name, claims.axes(name, 2))
    weight = weight.T if turned else weight
    named = name.removesuffix("weight") + "bias" if name.endswith("weight") else name.replace("W_U", "b_U")
    bias = claims.take(named, weight.shape[:1], optional=True)
    return np.concatenate([weight, bias[:, None]], axis=1)


def read_arrays(file: TensorFile, heads: int | None, buffers: tuple[str, ...]) -> Arrays:
    """`Reading.arrays` of a whole model. buffers: last parts of the names of tensors that are left out. MalformedInput for a
    tensor that is missing, has another shape, or is not understood."""
    claims = Claims(file)
    claims.taken |= {name for name in file.tensors if name.rsplit(".", 1)[-1] in buffers}
    arrays = read_attention(claims, heads)
    D = arrays["W_Q"].shape[2]
    W_E, W_U, W_pos = (_named(claims, modules) for modules in (EMBEDDINGS, OUTPUTS, POSITIONS))
    for word, name, modules in (("embedding", W_E, EMBEDDINGS), ("unembedding", W_U, OUTPUTS)):
        if not name:
            claims.refuse_unsuitable()
            looked = ", ".join(modules)
            raise file.refuse(f"no {word} is found (looked for {looked}): name it so, or pass its parts to from_parts")
    last = _linear(claims, W_U, turned=W_U.endswith("W_U"))
    arrays |= {"W_U": last[:, :-1].T, "b_U": last[:, -1]}
    arrays["W_E"] = claims.take(W_E, (claims.axes(W_E, 2)[0], D))
    arrays["W_pos"] = claims.take(W_pos, (claims.axes(W_pos, 2)[0], D)) if W_pos else np.zeros((0, D))
    if len(arrays["W_U"]) != D:
        raise file.refuse(f"{W_U} has shape {list(file.tensors[W_U].shape)}, which does not fit the width {D}")
    claims.finish()
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _named(claims: Claims, modules: tuple[str, ...]) -> str:
    """The weight of the outermost module of one of these names; "" where there is none. MalformedInput for several."""
    ends = {f"{module}.{weight}" for module in modules for weight in ("weight", "W_E", "W_pos", "W_U")}
    every = [name for name in sorted(claims.file.tensors) if ".".join(name.split(".")[-2:]) in ends]
    found = [name for name in every if name.count(".") == min(other.count(".") for other in every)]
    if len(found) > 1:
        raise claims.file.refuse(f"several tensors could be meant: {listed(found)}; keep one of them")
    return found[0] if found else ""
