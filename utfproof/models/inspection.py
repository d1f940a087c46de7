"""What the attention of a model shows that need not be embeddable: ranks, dead and shared heads, composition between layers.

The matrices are found by the names that libraries give them; norms, MLPs and biases are left out and named. Nothing here says
that a host acts as the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.families import read_attention
from utfproof.models.reading import Arrays
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


Heads = dict[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""(layer, head) -> W_Q, W_K, W_V [D, d] and W_O [d, D]."""


def inspect_model(file: TensorFile, heads: int | None) -> dict[str, Any]:
    """Ranks, dead and shared heads, composition scores (Elhage et al., 2021; strongest first) and hosts of a model's attention.

    heads: where tensors do not show them. Singular values below D eps of the largest one count as zero. least_m is for all
    targets of the skeleton's sizes, whose outputs are the stream or the logits. MalformedInput where no names of attention are
    found, sizes do not fit, or weights are not finite.
    """
    arrays = read_attention(Claims(file), heads)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        if not np.isfinite(arrays[name]).all():
            raise MalformedInput(f"{name} holds numbers that are not finite")
    (L, H, D, d), G = arrays["W_Q"].shape, arrays["W_K"].shape[1]
    rows = (array.shape for name, array in file.tensors.items() if VOCABULARY.search(name) and array.ndim == 2)
    V = max((shape[0] for shape in rows if shape[1] == D), default=None)
    eps = max(float(np.finfo(array.dtype).eps) for array in file.tensors.values() if array.dtype.kind == "f")
    shape = Shape(H, L, d, V or D, D, residual=True)
    hosts = {"stream, untied": matching_dimension(shape), "stream, tied": tied_targets_dimension(shape)}
    if G < H:  # key columns of a group are equal: docs/proofs/biases.md
        hosts[f"stream, {G} heads of keys"] = hosts["stream, untied"] - d * (H - G) * geometric(shape.letters, 0, L - 1)
    if V:
        hosts["logits, untied"] = matching_dimension(Shape(H, L, d, V, V, residual=True))
    by_head = heads_of(arrays)
    names = [name for name, array in file.tensors.items() if array.ndim < 4]  # no masks [1, 1, n, n]
    return {
        "shape": shape.document(None),
        "kv_heads": G,
        "width": D,
        "heads": [_head(by_head, at, D * eps) for at in by_head],
        "composition": sorted(_compositions(by_head), key=lambda row: -row["score"]),
        "least_m": hosts,
        "obstacles": list(_obstacles(names, hosts.get("logits, untied") if L > 1 else None, V)),
    }


def heads_of(arrays: Arrays) -> Heads:
    """The matrices of each head; keys and values of its group."""
    (L, H), G = arrays["W_Q"].shape[:2], arrays["W_K"].shape[1]
    groups = {"W_Q": H, "W_K": G, "W_V": G, "W_O": H}
    return {
        (layer, head): tuple(arrays[name][layer, head * count // H] for name, count in groups.items())
        for layer in range(L)
        for head in range(H)
    }


def _head(heads: Heads, at: tuple[int, int], limit: float) -> dict[str, Any]:
    """Ranks of a head's QK and OV circuits [D, D], whether it is dead, and an earlier head of its layer with the same
    matrices."""
    W_Q, W_K, W_V, W_O = own = heads[at]
    qk, ov = _rank(W_Q, W_K.T, limit), _rank(W_V, W_O, limit)
    record = {"head": f"{at[0]}.{at[1]}", "rank_QK": qk, "rank_OV": ov, "full": min(W_Q.shape), "dead": ov == 0}
    for name, part in (("repeats_queries_keys", slice(0, 2)), ("repeats_values_outputs", slice(2, 4))):
        earlier = (k for k in range(at[1]) if all(map(np.array_equal, own[part], heads[at[0], k][part])))
        record[name] = next((f"{at[0]}.{k}" for k in earlier), None)
    return record


def _rank(left: np.ndarray, right: np.ndarray, limit: float) -> int:
    """Singular values of left [D, d] right [d, D] above `limit` of the largest; exactly 0 for a zero factor."""
    sizes = np.linalg.svd(_triangle(left) @ _triangle(right.T).T, compute_uv=False)
    return int((sizes > limit * sizes[0]).sum()) if sizes[0] > 0 else 0


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """R of QR: [d, d] with the same products R^T R."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def _compositions(heads: Heads) -> Iterator[dict[str, Any]]:
    """What each head reads, through Q, K or V, of what each earlier head writes: |product| / (|reader| |writer|) in Frobenius
    norms, where neither is zero."""
    norm = np.linalg.norm
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
                    names = {role: f"{at[0]}.{at[1]}" for role, at in (("reader", reader), ("writer", writer))}
                    yield {"kind": kind, **names, "score": score}


def _obstacles(left: list[str], m: int | None, vocabulary: int | None) -> Iterator[dict[str, str]]:
    """The parts beside the attention, and which theorem is about each. left: names of tensors; m: for the logits of all targets
    of these sizes, None for one layer."""
    for what, page, pattern, says in (*OBSTACLES, BIASES):  # a tensor belongs to the first that fits
        found = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in found]
        if found:
            yield {"what": what, "found": listed(found, 2), "theorem": page, "says": says}
    if m:
        says = f"m = 2dH sum (H+1)^t + V (H+1)^L = {m:.3g}, least by matching for all targets of these sizes"
        size = f"V = {vocabulary}"
        yield {"what": "depth and vocabulary", "found": size, "theorem": "docs/proofs/residual.md", "says": says}
