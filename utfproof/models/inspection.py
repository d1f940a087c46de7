"""What the attention of a model shows that need not be embeddable: ranks, dead and shared heads, composition between layers.

The matrices are found by the names that libraries give them; norms, MLPs and biases are left out and named. Nothing here says
that a host acts as the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.tensors import layer_prefixes, listed
from utfproof.shapes import Shape, geometric, matching_dimension, tied_targets_dimension
from utfproof.weights import TensorFile, as_float64

SEPARATE = (
    ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight out_proj.weight dense.weight"),
    ("q.weight", "k.weight", "v.weight", "o.weight"),
    ("query.weight", "key.weight", "value.weight", "dense.weight out_proj.weight"),
)
"""Linears of queries, keys and values [H d, D], and of outputs [D, H d]."""
FUSED = (
    ("c_attn.weight", "c_proj.weight"),
    ("in_proj_weight", "out_proj.weight"),
    ("query_key_value.weight", "dense.weight"),
    ("qkv_proj.weight", "o_proj.weight"),
    ("Wqkv.weight", "out_proj.weight"),
    ("qkv.weight", "out.weight proj.weight"),
)
"""Queries, keys and values in one linear [(H + 2G) d, D] (or [D, (H + 2G) d]), and outputs."""
BY_HEAD = "query_key_value.weight"
"""The linear in which each head's queries, keys and values stand together."""
VOCABULARY = re.compile(r"(embed|wte|tok_emb|word_emb|W_E)[a-z_]*(\.weight)?$", re.IGNORECASE)
OBSTACLES = (
    (r"(^|[._])(ln|norm|layer_?norm|rms_?norm)|ln_|norm\.|_norm|layernorm", "norms", "docs/proofs/normalisation.md",
     "no host without norms matches almost any model with a norm after a layer or at the end; layer 0 is exact as a part"),
    (r"(mlp|ffn|feed_?forward|fc1|fc_in|c_fc|experts|W_in)", "MLPs", "docs/proofs/gated-mlp.md",
     "no softmax host without MLPs gives a relu on all contexts; hosts with gated MLPs serve models without norms"),
    (r"(bias|\.b_[QKVO])$", "biases", "docs/proofs/biases.md", "no obstacle: one constant coordinate carries them"),
)  # fmt: skip
"""Names of tensors, what they belong to, and the theorem about it."""
COMPOSED = 10
"""Compositions that are printed, the strongest first."""


@dataclass(frozen=True, eq=False)
class Skeleton:
    """The attention matrices of a model, acting on rows from the right: W_Q [L, H, D, d], W_K, W_V [L, G, D, d], W_O
    [L, H, d, D]; vocabulary: rows of the embedding, None where none was found; names: of all tensors; eps: of their type."""

    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray
    vocabulary: int | None
    names: tuple[str, ...]
    eps: float

    def head(self, layer: int, head: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """W_Q, W_K, W_V [D, d] and W_O [d, D] of a head."""
        group = head * self.W_K.shape[1] // self.W_Q.shape[1]
        return self.W_Q[layer, head], self.W_K[layer, group], self.W_V[layer, group], self.W_O[layer, head]


def skeleton(file: TensorFile, heads: int | None, kv_heads: int | None = None) -> Skeleton:
    """The attention of the model of these tensors. heads, kv_heads: where tensors do not show them. MalformedInput where no
    names of attention are found, or sizes do not fit."""
    if prefixes := layer_prefixes(file, ("W_Q", "W_O")):
        own = "" if prefixes[0] + "W_K" in file.tensors else "_"
        parts = [[as_float64(file, at + name) for at in prefixes] for name in ("W_Q", f"{own}W_K", f"{own}W_V", "W_O")]
        W_Q, W_K, W_V, W_O = (np.stack(part) if part[0].ndim == 3 else part[0] for part in parts)
        if not W_Q.ndim == W_K.ndim == W_V.ndim == W_O.ndim == 4:
            raise file.refuse("expected W_Q, W_K, W_V [H, D, d] and W_O [H, d, D] for each layer")
    else:
        if heads is None:
            raise file.refuse("its tensors do not show the number of heads: pass --heads (and --kv-heads)")
        found = [_layer(file, *names, heads, kv_heads or heads) for names in _linears(file)]
        if not found:
            raise file.refuse(f"no attention is found among {listed(file.tensors, 6)}")
        W_Q, W_K, W_V, W_O = (np.stack(part) for part in zip(*found, strict=True))
    rows = [array.shape for name, array in file.tensors.items() if VOCABULARY.search(name) and array.ndim == 2]
    sizes = [shape[0] for shape in rows if shape[1] == W_Q.shape[2]]
    kinds = {array.dtype for array in file.tensors.values() if array.dtype.kind == "f"}
    eps = max(float(np.finfo(kind).eps) for kind in kinds)
    named = tuple(
        name for name, array in file.tensors.items() if array.ndim < 4 or "W_" in name
    )  # no masks [1, 1, n, n]
    return Skeleton(W_Q, W_K, W_V, W_O, max(sizes, default=None), named, eps)


def _linears(file: TensorFile) -> Iterator[tuple[list[str], str]]:
    """(names of the linears of queries, keys and values, or of the fused one; name of the outputs' linear), layer by layer."""
    for *readers, outs in (*SEPARATE, *FUSED):
        for out in outs.split():
            if prefixes := layer_prefixes(file, (readers[0], *readers[1:], out)):
                yield from (([at + name for name in readers], at + out) for at in prefixes)
                return


def _layer(file: TensorFile, readers: list[str], out: str, H: int, G: int) -> tuple[np.ndarray, ...]:
    """W_Q [H, D, d], W_K, W_V [G, D, d] and W_O [H, d, D] of a layer."""
    held, W_O = [as_float64(file, name) for name in readers], as_float64(file, out)
    if len(held) == 1 and held[0].shape[0] == W_O.shape[1] and held[0].shape[1] != W_O.shape[0]:
        held, W_O = [held[0].T], W_O.T  # Conv1D of GPT-2 acts from the right
    D = held[0].shape[1]
    if len(held) == 1:
        rows, parts = held[0].shape[0], H + 2 * G
        if rows % parts:
            raise file.refuse(
                f"{readers[0]} has {rows} rows, which {H} heads and {G} of keys do not divide: pass --heads"
            )
        fused = held[0].reshape(parts, rows // parts, D)
        if readers[0].endswith(BY_HEAD) and H == G:
            held = list(fused.reshape(H, 3, -1, D).transpose(1, 0, 2, 3))
        else:
            held = np.split(fused, [H, H + G])
    elif held[0].shape[0] % H or held[1].shape[0] % (held[0].shape[0] // H):
        raise file.refuse(f"{readers[0]} has {held[0].shape[0]} rows, which {H} heads do not divide: pass --heads")
    d = held[0].size // D // H
    q, k, v = (part.reshape(-1, d, D).swapaxes(-1, -2) for part in held)
    if W_O.size != H * d * D or H % len(k) or len(v) != len(k):
        raise file.refuse(
            f"{out} has shape {list(W_O.shape)}, which does not fit {H} heads of dimension {d}: pass --heads"
        )
    return q, k, v, W_O.reshape(D, H, d).transpose(1, 2, 0)


def inspect_model(model: Skeleton) -> dict[str, Any]:
    """Ranks, dead and shared heads, composition scores (Elhage et al., 2021; strongest first) and hosts of a model's attention.

    Singular values below D eps of the largest one count as zero. least_m is for all targets of the skeleton's sizes, whose
    outputs are the stream or the logits. MalformedInput for weights that are not finite.
    """
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        if not np.isfinite(getattr(model, name)).all():
            raise MalformedInput(f"{name} holds numbers that are not finite")
    L, H, D, d = model.W_Q.shape
    G, V = model.W_K.shape[1], model.vocabulary
    shape = Shape(H, L, d, V or D, D, residual=True)
    hosts = {"stream, untied": matching_dimension(shape), "stream, tied": tied_targets_dimension(shape)}
    if G < H:  # key columns of a group are equal: docs/proofs/biases.md
        hosts[f"stream, {G} heads of keys"] = hosts["stream, untied"] - d * (H - G) * geometric(shape.letters, 0, L - 1)
    if V:
        hosts["logits, untied"] = matching_dimension(Shape(H, L, d, V, V, residual=True))
    return {
        "shape": shape.document(None),
        "kv_heads": G,
        "width": D,
        "heads": list(_heads(model, D * model.eps)),
        "composition": sorted(_compositions(model), key=lambda row: -row["score"]),
        "least_m": hosts,
        "obstacles": list(_obstacles(model, hosts)),
    }


def _heads(model: Skeleton, limit: float) -> Iterator[dict[str, Any]]:
    """A record for each head: ranks of its QK and OV circuits [D, D], whether it is dead, and an earlier head of its layer
    with the same matrices."""
    L, H, D, d = model.W_Q.shape
    for layer in range(L):
        for head in range(H):
            W_Q, W_K, W_V, W_O = own = model.head(layer, head)
            qk, ov = _rank(W_Q, W_K.T, limit), _rank(W_V, W_O, limit)
            record = {"head": f"{layer}.{head}", "rank_QK": qk, "rank_OV": ov, "full": min(d, D), "dead": ov == 0}
            for name, part in (("repeats_queries_keys", slice(0, 2)), ("repeats_values_outputs", slice(2, 4))):
                earlier = (k for k in range(head) if all(map(np.array_equal, own[part], model.head(layer, k)[part])))
                record[name] = next((f"{layer}.{k}" for k in earlier), None)
            yield record


def _rank(left: np.ndarray, right: np.ndarray, limit: float) -> int:
    """Singular values of left [D, d] right [d, D] above `limit` of the largest; exactly 0 for a zero factor."""
    sizes = np.linalg.svd(_triangle(left) @ _triangle(right.T).T, compute_uv=False)
    return int((sizes > limit * sizes[0]).sum()) if sizes[0] > 0 else 0


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """R of QR: [d, d] with the same products R^T R."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def _compositions(model: Skeleton) -> Iterator[dict[str, Any]]:
    """What each head reads, through Q, K or V, of what each earlier head writes: |product| / (|reader| |writer|) in Frobenius
    norms, where neither is zero."""
    L, H = model.W_Q.shape[:2]
    norm = np.linalg.norm
    heads = {(layer, head): model.head(layer, head) for layer in range(L) for head in range(H)}
    small = {at: tuple(map(_triangle, (q, k, v, o.T))) for at, (q, k, v, o) in heads.items()}
    for reader, (q, k, v, _) in heads.items():
        r_q, r_k, r_v, r_o = small[reader]
        ways = (("Q", q, r_k, norm(r_q @ r_k.T)), ("K", k, r_q, norm(r_q @ r_k.T)), ("V", v, r_o, norm(r_v @ r_o.T)))
        for writer in (at for at in heads if at[0] < reader[0]):
            W_O, left = heads[writer][3], small[writer][2]
            written = norm(left @ small[writer][3].T)
            for kind, read, other, size in ways:
                if written and size:
                    score = float(norm(left @ (W_O @ read) @ other.T) / (written * size))
                    yield {
                        "kind": kind,
                        "reader": f"{reader[0]}.{reader[1]}",
                        "writer": f"{writer[0]}.{writer[1]}",
                        "score": score,
                    }


def _obstacles(model: Skeleton, hosts: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """What stands beside the skeleton, and which theorem is about it."""
    left = list(model.names)
    for pattern, what, page, says in OBSTACLES:  # a tensor belongs to the first that fits
        found = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in found]
        if found:
            yield {"what": what, "found": listed(found, 2), "theorem": page, "says": says}
    if model.vocabulary and len(model.W_Q) > 1:
        m = hosts["logits, untied"]
        says = f"m = 2dH sum (H+1)^t + V (H+1)^L = {m:.3g}, least by matching for all targets of these sizes"
        yield {
            "what": "depth and vocabulary",
            "found": f"V = {model.vocabulary}",
            "theorem": "docs/proofs/residual.md",
            "says": says,
        }
