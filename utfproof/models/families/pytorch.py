"""Plain PyTorch: layers of nn.MultiheadAttention between an nn.Embedding and an nn.Linear, as scripts/train_induction.py
writes them.

A state dict shows neither the number of heads nor the mask nor whether there is a residual stream, nor norms without
parameters around the attention. A live module shows the heads; its own outputs decide the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.models.configuration import Facts, Meaning, harmless, limit, number, only, sets, size
from utfproof.models.families.transformer_lens import CONFIG
from utfproof.models.family import Arrays, Family, stacked
from utfproof.models.tensors import Claims

EMBEDDINGS = ("embedding", "embed", "token_embedding", "tok_emb", "token_emb", "wte")
POSITIONS = ("pos", "position", "pos_embedding", "position_embedding", "pos_embed", "pos_emb", "wpe")
OUTPUTS = ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout")


def _named(claims: Claims, modules: tuple[str, ...]) -> str:
    """The weight of the module of one of these names, wherever it stands; "" where there is none."""
    ends = {f"{module}.weight" for module in modules}
    return claims.first(n for n in sorted(claims.file.tensors) if ".".join(n.split(".")[-2:]) in ends)


def _arrays(claims: Claims, prefixes: list[str], facts: Facts) -> Arrays:
    W_E, W_pos, W_U = (_named(claims, modules) for modules in (EMBEDDINGS, POSITIONS, OUTPUTS))
    for word, name, modules in (("embedding", W_E, EMBEDDINGS), ("unembedding", W_U, OUTPUTS)):
        if not name:
            claims.refuse_unsuitable()
            raise claims.file.refuse(
                f"no {word} is found (looked for {', '.join(modules)}): name it so, or pass its parts to from_parts"
            )
    V, D = claims.axes(W_E, 2)
    H = facts.get("heads")
    if H is None or D % H:
        said = f"{H} heads do not divide the width {D}" if H else "it does not store its number of heads"
        raise claims.file.refuse(f"{said}: pass --heads")
    d = D // H
    thirds = stacked(
        claims, prefixes, {"W": ("in_proj_weight", (3 * D, D), ""), "b_in": ("in_proj_bias", (3 * D,), "")}
    )
    L = len(prefixes)
    weights = thirds["W"].reshape(L, 3, H, d, D).transpose(1, 0, 2, 4, 3)
    biases = thirds["b_in"].reshape(L, 3, H, d).transpose(1, 0, 2, 3)
    out = {f"W_{part}": np.ascontiguousarray(weights[i]) for i, part in enumerate("QKV")}
    out |= {f"b_{part}": np.ascontiguousarray(biases[i]) for i, part in enumerate("QKV")}
    out |= stacked(
        claims, prefixes, {"W_O": ("out_proj.weight", (H, D, d), "D (h d)"), "b_O": ("out_proj.bias", (D,), "")}
    )
    outputs = claims.axes(W_U, 2)[0]
    out |= {"W_E": claims.take(W_E, (V, D)), "W_U": claims.take(W_U, (outputs, D)).T.copy()}
    out["b_U"] = claims.optional(W_U.removesuffix("weight") + "bias", (outputs,))
    out["W_pos"] = claims.take(W_pos, (claims.axes(W_pos, 2)[0], D)) if W_pos else np.zeros((0, D))
    if W_pos and facts.get("positions") is None:
        facts.set("positions", "learned", f"tensor {W_pos}")
    return out


def _live(module: Any, layers: list[Any]) -> dict[str, Any]:
    """The fields of the attention modules, which have to agree."""
    found: dict[str, Any] = {}
    for part in layers:
        values = {"num_heads": part.num_heads, "add_zero_attn": part.add_zero_attn}
        values["bias_k"] = None if part.bias_k is None else "given"
        for name, value in values.items():
            found[name] = value if found.get(name, value) == value else str([found[name], value])
    return found


FAMILY = Family(
    name="pytorch",
    title="nn.MultiheadAttention",
    looks="nn.MultiheadAttention (in_proj_weight)",
    marks=("in_proj_weight", "out_proj.weight"),
    fields={
        **{name: meaning for name, meaning in CONFIG.items() if not meaning.fact and meaning.why},
        **{name: CONFIG[name] for name in ("attention_dir", "attn_scores_soft_cap", "output_logits_soft_cap")},
        **dict.fromkeys(("heads", "num_heads", "n_heads", "nhead"), sets("heads", size)),
        **dict.fromkeys(("layers", "num_layers"), sets("layers", size)),
        "d_model": sets("width", size),
        "residual": sets("stream", {True: True, False: False}),
        "causal": sets("causal", {True: True, False: False}),
        "window": limit("window"),
        "scale": Meaning("scale", lambda s: s == "1/sqrt(d)" or (number(s) and s != 0), "expected '1/sqrt(d)'"),
        "positional_embedding_type": sets("positions", {"standard": "learned", None: "none"}),
        "normalization_type": sets("norm", {None: "none"}, "norms are read from TransformerLens models alone"),
        "add_zero_attn": Meaning(
            "zero_attn", lambda s: s in (False, None), "attention to no token: rows over tokens do not sum to 1", bool
        ),
        "bias_k": only(None, why="a key for no token (add_bias_kv): rows over the tokens no longer sum to 1"),
        **harmless("task accuracy steps seed dropout batch_first"),
    },
    arrays=_arrays,
    settled={"scale": "1/sqrt(d)", "cap": 0.0, "output_cap": 0.0, "mlp": False},
    assumed={"causal": True, "window": 0, "positions": "learned", "norm": "none", "zero_attn": False},
    live=_live,
)
