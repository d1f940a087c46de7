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
from utfproof.models.families import read_attention
from utfproof.models.tensors import OBSTACLES, Claims, listed
from utfproof.shapes import Shape, geometric, matching_dimension, tied_targets_dimension
from utfproof.weights import TensorFile

VOCABULARY = re.compile(r"(embed|wte|tok_emb|word_emb|W_E)[a-z_]*(\.weight)?$", re.IGNORECASE)
BIASES = (
    "biases",
    "docs/proofs/biases.md",
    r"(bias|\.b_[QKVO])$",
    "no obstacle: one constant coordinate carries them",
)
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


def skeleton(file: TensorFile, heads: int | None) -> Skeleton:
    """The attention of the model of these tensors. heads: where tensors do not show them. MalformedInput where no names of
    attention are found, or sizes do not fit."""
    found = read_attention(Claims(file), heads)
    rows = [array.shape for name, array in file.tensors.items() if VOCABULARY.search(name) and array.ndim == 2]
    sizes = [shape[0] for shape in rows if shape[1] == found["W_Q"].shape[2]]
    kinds = {array.dtype for array in file.tensors.values() if array.dtype.kind == "f"}
    names = tuple(name for name, array in file.tensors.items() if array.ndim < 4)  # no masks [1, 1, n, n]
    eps = max(float(np.finfo(kind).eps) for kind in kinds)
    W_Q, W_K, W_V, W_O = (found[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
    return Skeleton(W_Q, W_K, W_V, W_O, max(sizes, default=None), names, eps)


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
    """The parts beside the attention, and which theorem is about each."""
    left = list(model.names)
    for what, page, pattern, says in (*OBSTACLES, BIASES):  # a tensor belongs to the first that fits
        found = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in found]
        if found:
            yield {"what": what, "found": listed(found, 2), "theorem": page, "says": says}
    if model.vocabulary and len(model.W_Q) > 1:
        m = hosts["logits, untied"]
        says = f"m = 2dH sum (H+1)^t + V (H+1)^L = {m:.3g}, least by matching for all targets of these sizes"
        size = f"V = {model.vocabulary}"
        yield {"what": "depth and vocabulary", "found": size, "theorem": "docs/proofs/residual.md", "says": says}
