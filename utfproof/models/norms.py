"""Norms of trained models: what they do to rows, which tensors hold their gains and biases, and whom a host with a norm of its
own can serve (docs/proofs/normalisation.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from utfproof.ground.arrays import one_line

WORDS = {"layer": "LayerNorm", "rms": "RMS"}


@one_line
@dataclass(frozen=True)
class OwnNorm:
    """kind: "layer" or "rms"; eps is added to the mean square; final: whether there is one before the readout too."""

    kind: str
    eps: float
    final: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows [n, width] over their root mean square, less their mean for LayerNorm."""
        centred = self.centred(x)
        return centred / self.size(x)[:, None]

    def centred(self, x: np.ndarray) -> np.ndarray:
        """The rows, less their mean for LayerNorm."""
        return x - x.mean(axis=-1, keepdims=True) if self.kind == "layer" else x

    def size(self, x: np.ndarray) -> np.ndarray:
        """sigma of every row [n]."""
        size: np.ndarray = np.sqrt((self.centred(x) ** 2).mean(axis=-1) + self.eps)
        return size

    def words(self) -> str:
        """For people."""
        end = " and at the end" if self.final else ""
        return f"{WORDS[self.kind]} with eps = {self.eps:g}, before each layer{end}"


@dataclass(frozen=True)
class NormTensors:
    """How a family stores its norms. kinds: the fact `norm` -> "layer" or "rms"; layer: name beside the attention module;
    last: name of the one at the end; parts: the fact -> names of gain and bias, as far as they are stored."""

    kinds: Mapping[str, str]
    layer: str
    last: str
    parts: Mapping[str, Sequence[str]]

    def names(self, kind: str, prefixes: Sequence[str], final: bool) -> list[tuple[str, ...]]:
        """Gain and bias of every layer's norm, then of the last one."""
        before = [prefix.rstrip(".").rpartition(".")[0] for prefix in prefixes]
        places = [f"{block}.{self.layer}." if block else f"{self.layer}." for block in before]
        return [tuple(place + part for part in self.parts[kind]) for place in places + [f"{self.last}."] * final]


def folded(
    arrays: Mapping[str, np.ndarray], gains: Sequence[Sequence[np.ndarray]], final: bool
) -> dict[str, np.ndarray]:
    """Gains and biases of the norms as part of the matrices that read them. gains: (gain, bias), (gain,) or () of each layer's
    norm and of the last one."""
    out = {name: np.array(array) for name, array in arrays.items()}
    for layer, parts in enumerate(gains[: len(out["W_Q"])]):
        for part in "QKV":
            weights, biases = out[f"W_{part}"][layer], out[f"b_{part}"][layer]
            biases += np.einsum("i,hid->hd", parts[1], weights) if len(parts) > 1 else 0
            weights *= parts[0][:, None] if parts else 1
    last = gains[-1] if final else ()
    out["b_U"] += last[1] @ out["W_U"] if len(last) > 1 else 0
    out["W_U"] *= last[0][:, None] if last else 1
    return out


def why_not_served(norm: OwnNorm, arrays: Mapping[str, np.ndarray], shortformer: bool) -> str:
    """Why no fixed host with a norm of its own is known for such a model, "" where one is. arrays: as `Reading` has them, gains
    and biases of norms folded in."""
    L, H, D, d = arrays["W_Q"].shape
    page = "docs/proofs/normalisation.md, section"
    effective = D - (norm.kind == "layer")
    if L > 2 or (L == 2 and norm.final):
        many = "three layers or more" if L > 2 else "two layers and a norm at the end"
        differences = min(effective, (len(arrays["W_pos"]) or len(arrays["W_E"])) - 1)  # of the rows of one context
        if effective >= 2 and H * min(d, differences) >= effective:
            return f"it has {many}: a fixed host with a norm of its own matches almost none of them ({page} 7)"
        return f"it has {many}, and heads too narrow for {page} 7: no host for them is known, nor that there is none"
    if not norm.eps >= 0 or (norm.eps == 0 and (norm.final or L == 2)):
        return f"eps = {norm.eps:g}: a host for a norm at the end, or for two layers, needs eps > 0 ({page} 6 and 9)"
    if shortformer:
        return "positional_embedding_type shortformer: positions for queries and keys alone are not read with norms"
    if norm.final and np.any(arrays["b_U"]):
        return (
            "unembed.b_U + ln_final.b W_U is not zero: no host with a norm at its end and no bias after it adds a constant "
            f"({page} 6)"
        )
    if L == 2:
        for name in ("b_Q", "b_K"):
            if np.any(arrays[name][1]):
                return f"{name} of layer 1 (with its norm's bias in it) is not zero: no host without biases gives it ({page} 6)"
    return ""
