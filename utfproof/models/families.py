"""The families of models whose tensors are read by their names: TransformerLens (3 and 4) and plain PyTorch.

Every tensor is taken or refused by name. Any other model is given by its matrices (`from_parts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from utfproof.models.tensors import Claims, layer_prefixes, listed
from utfproof.weights import TensorFile

Arrays = dict[str, np.ndarray]
EMBEDDINGS = ("embedding", "embed", "token_embedding", "tok_emb", "token_emb", "wte")
POSITIONS = ("pos", "position", "pos_embedding", "position_embedding", "pos_embed", "pos_emb", "wpe")
OUTPUTS = ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout")
MASKS = ("mask", "attn_mask", "causal_mask")
BUFFERS = (*MASKS, "IGNORE", "rotary_cos", "rotary_sin")
"""Tensors that hold no weights. A live module shows what they do."""


@dataclass(frozen=True)
class Family:
    """marks: names of a layer's tensors behind the prefix of its attention, by which the family is recognised; arrays: the
    tensors as `Reading.arrays`, given the number of heads; asked: facts (`importing.FACTS`) that these tensors do not show."""

    name: str
    title: str
    marks: tuple[str, ...]
    arrays: Callable[[Claims, list[str], int | None], Arrays]
    asked: tuple[str, ...]


def _lens_3(claims: Claims, prefixes: list[str], heads: int | None) -> Arrays:
    """HookedTransformer: matrices act from the right, heads are an axis of their own."""
    V, D = claims.axes("embed.W_E", 2)
    H, _, d = claims.axes(prefixes[0] + "W_Q", 3)
    if heads not in (None, H):
        raise claims.file.refuse(f"{heads} heads were given, the tensors have {H}")
    own = "" if claims.has(prefixes[0] + "W_K") else "_"
    G = claims.axes(f"{prefixes[0]}{own}W_K", 3)[0]
    shapes = {"W_Q": (H, D, d), "W_O": (H, d, D), "b_Q": (H, d), "b_O": (D,)}
    shapes |= {f"{own}{kind}_{part}": size for part in "KV" for kind, size in (("W", (G, D, d)), ("b", (G, d)))}
    out = {
        name.lstrip("_"): np.stack([claims.take(at + name, shape, optional="b_" in name) for at in prefixes])
        for name, shape in shapes.items()
    }
    outputs = claims.axes("unembed.W_U", 2)[1]
    out |= {"W_E": claims.take("embed.W_E", (V, D)), "W_U": claims.take("unembed.W_U", (D, outputs))}
    out["b_U"] = claims.take("unembed.b_U", (outputs,), optional=True)
    return out | {"W_pos": _positions(claims, "pos_embed.W_pos", D)}


def _lens_4(claims: Claims, prefixes: list[str], heads: int | None) -> Arrays:
    """TransformerBridge: linears act from the left; heads are consecutive rows."""
    names = ("embed.weight tok_embed.weight", "pos_embed.weight pos.weight", "unembed.weight head.weight")
    W_E, W_pos, W_U = (claims.first(found.split()) for found in names)
    D = claims.axes(W_E or "embed.weight", 2)[1]
    H, d = _heads(claims, claims.axes(prefixes[0] + "q.weight", 2)[0], heads)
    G = claims.axes(prefixes[0] + "k.weight", 2)[0] // d
    out: Arrays = {}
    for part, count in (("Q", H), ("K", G), ("V", G)):
        low = part.lower()
        rows = [claims.take(f"{at}{low}.weight", (count * d, D)).reshape(count, d, D) for at in prefixes]
        biases = [claims.take(f"{at}{low}.bias", (count * d,), optional=True).reshape(count, d) for at in prefixes]
        out |= {f"W_{part}": np.stack(rows).swapaxes(-1, -2), f"b_{part}": np.stack(biases)}
    return out | _outputs(claims, [at + "o." for at in prefixes], (H, d, D), (W_E, W_U or "unembed.weight", W_pos))


def _pytorch(claims: Claims, prefixes: list[str], heads: int | None) -> Arrays:
    """nn.MultiheadAttention between an nn.Embedding and an nn.Linear, as scripts/train_induction.py writes them."""
    W_E, W_U, W_pos = (_named(claims, modules) for modules in (EMBEDDINGS, OUTPUTS, POSITIONS))
    for word, name, modules in (("embedding", W_E, EMBEDDINGS), ("unembedding", W_U, OUTPUTS)):
        if not name:
            claims.refuse_unsuitable()
            looked = ", ".join(modules)
            raise claims.file.refuse(
                f"no {word} is found (looked for {looked}): name it so, or pass its parts to from_parts"
            )
    D, L = claims.axes(W_E, 2)[1], len(prefixes)
    H, d = _heads(claims, D, heads)
    thirds = np.stack([claims.take(at + "in_proj_weight", (3 * D, D)) for at in prefixes])
    thirds = thirds.reshape(L, 3, H, d, D).transpose(1, 0, 2, 4, 3)
    biases = np.stack([claims.take(at + "in_proj_bias", (3 * D,), optional=True) for at in prefixes])
    biases = biases.reshape(L, 3, H, d).transpose(1, 0, 2, 3)
    out = {f"W_{part}": thirds[i] for i, part in enumerate("QKV")}
    out |= {f"b_{part}": biases[i] for i, part in enumerate("QKV")}
    return out | _outputs(claims, [at + "out_proj." for at in prefixes], (H, d, D), (W_E, W_U, W_pos))


def _heads(claims: Claims, rows: int, heads: int | None) -> tuple[int, int]:
    """(H, d) of the rows of all queries. MalformedInput if the number of heads is unknown or does not divide them."""
    if heads is None or rows % heads:
        said = (
            f"{heads} heads do not divide the width {rows}" if heads else "its tensors do not show the number of heads"
        )
        raise claims.file.refuse(f"{said}: pass --heads")
    return heads, rows // heads


def _outputs(claims: Claims, at: list[str], sizes: tuple[int, int, int], names: tuple[str, str, str]) -> Arrays:
    """W_O and b_O of linears [D, H d], and of these names the embedding, the last linear [O, D] and the positions."""
    (H, d, D), (W_E, W_U, W_pos) = sizes, names
    W_O = np.stack([claims.take(place + "weight", (D, H * d)).reshape(D, H, d).transpose(1, 2, 0) for place in at])
    outputs = claims.axes(W_U, 2)[0]
    return {
        "W_O": W_O,
        "b_O": np.stack([claims.take(place + "bias", (D,), optional=True) for place in at]),
        "W_E": claims.take(W_E, (claims.axes(W_E, 2)[0], D)),
        "W_U": claims.take(W_U, (outputs, D)).T,
        "b_U": claims.take(W_U.removesuffix("weight") + "bias", (outputs,), optional=True),
        "W_pos": _positions(claims, W_pos, D),
    }


def _named(claims: Claims, modules: tuple[str, ...]) -> str:
    """The weight of the module of one of these names, wherever it stands; "" where there is none."""
    ends = {f"{module}.weight" for module in modules}
    return claims.first(n for n in sorted(claims.file.tensors) if ".".join(n.split(".")[-2:]) in ends)


def _positions(claims: Claims, name: str, width: int) -> np.ndarray:
    """Learned positions [P, D], P = 0 where there are none."""
    return claims.take(name, (claims.axes(name, 2)[0], width)) if claims.has(name) else np.zeros((0, width))


_ASKED = ("attention_dir", "window", "normalization_type")
_LENS = (*_ASKED, "positional_embedding_type", "use_attn_scale", "attn_scores_soft_cap", "output_logits_soft_cap")
LENS_3 = Family("transformer-lens", "TransformerLens (HookedTransformer)", ("W_Q", "W_O"), _lens_3, _LENS)
LENS_4 = Family(
    "transformer-lens",
    "TransformerLens 4 (TransformerBridge)",
    ("q.weight", "k.weight", "v.weight", "o.weight"),
    _lens_4,
    _LENS,
)
PYTORCH = Family(
    "pytorch",
    "nn.MultiheadAttention",
    ("in_proj_weight", "out_proj.weight"),
    _pytorch,
    (*_ASKED, "add_zero_attn", "residual"),
)
FAMILIES = (LENS_3, LENS_4, PYTORCH)


def recognise(file: TensorFile, name: str | None = None) -> Family:
    """The family whose names these tensors have. MalformedInput for none, or for another one than `name`."""
    for family in FAMILIES:
        if layer_prefixes(file, family.marks):
            if name not in (None, family.name):
                raise file.refuse(f"--layout {name}: this file looks like {family.title}, --layout {family.name}")
            return family
    Claims(file).refuse_unsuitable()
    raise file.refuse(
        f"no layout is recognised among {listed(file.tensors, 4) or 'no tensors'}. Known are TransformerLens names "
        "(blocks.0.attn.W_Q, blocks.0.attn.q.weight) and nn.MultiheadAttention (in_proj_weight). Any other model is read by "
        "from_parts, from its matrices (docs/embed-your-model.md)"
    )


def read_arrays(file: TensorFile, family: Family, heads: int | None, buffers: tuple[str, ...]) -> Arrays:
    """`Reading.arrays` of these tensors. buffers: last parts of the names of tensors that are left out. MalformedInput for a
    tensor that is missing, has another shape, or is not understood."""
    claims = Claims(file)
    claims.taken |= {name for name in file.tensors if name.rsplit(".", 1)[-1] in buffers}
    found = family.arrays(claims, layer_prefixes(file, family.marks), heads)
    claims.finish()
    arrays = {name: np.ascontiguousarray(array) for name, array in found.items()}
    H, G = arrays["W_Q"].shape[1], arrays["W_K"].shape[1]
    if H % G:
        raise file.refuse(f"{G} heads of keys do not divide the {H} heads of queries")
    return arrays
