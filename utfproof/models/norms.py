"""Norms of trained models: what they do to rows, how TransformerLens stores them, and whom a host with a norm of its own can
serve (docs/proofs/normalisation.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from utfproof.ground.arrays import one_line
from utfproof.models.configuration import Facts
from utfproof.models.tensors import Claims

WORDS = {"layer": "LayerNorm", "rms": "RMS"}
KINDS = {"LayerNorm": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
"""The fact `norm` -> the kind of norm."""


@one_line
@dataclass(frozen=True)
class OwnNorm:
    """One before each layer. kind: "layer" or "rms"; eps is added to the mean square; final: whether there is one before the
    readout too."""

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


def read_norm(
    claims: Claims,
    facts: Facts,
    arrays: dict[str, np.ndarray],
    prefixes: list[str],
    stored: Mapping[str, Sequence[str]],
) -> tuple[OwnNorm, dict[str, np.ndarray]]:
    """The norm that the facts say, and the arrays with its gains and biases in them. stored: names of gain and bias by the
    fact. MalformedInput where a tensor is missing, or nobody says eps."""
    kind, eps = facts.get("norm"), facts.get("eps")
    if eps is None or kind not in stored:
        said = "and nobody says eps, which is added to the mean square" if kind in stored else "which is not read here"
        raise claims.file.refuse(f"{facts.sources['norm']} says {kind}, {said}: give the configuration")
    final = bool(facts.get("final", True))
    blocks = [prefix.rstrip(".").rpartition(".")[0] for prefix in prefixes]
    places = [f"{block}.ln1." for block in blocks] + ["ln_final."] * final
    width = arrays["W_E"].shape[1]
    for name in (place + part for place in places for part in stored[kind]):
        if not claims.has(name):
            raise claims.file.refuse(f"{facts.sources['norm']} says {kind}, and tensor {name} is missing")
    gains = [[claims.take(place + part, (width,)) for part in stored[kind]] for place in places]
    return OwnNorm(KINDS[kind], float(eps), final), folded(arrays, gains, final)


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


def not_served(norm: OwnNorm, arrays: Mapping[str, np.ndarray], shortformer: bool) -> tuple[str, bool]:
    """Why no fixed host with a norm of its own is known for such a model, "" where one is; and whether it is known that there
    is none (for almost no model, where the page says so). arrays: as `Reading` has them, gains and biases folded in."""
    L, H, D, d = arrays["W_Q"].shape
    page = "docs/proofs/normalisation.md, section"
    unknown = "no host for them is known, nor that there is none"
    effective = D - (norm.kind == "layer")
    many = "three layers or more" if L > 2 else "two layers and a norm at the end"
    if L > 2 or (L == 2 and norm.final):
        differences = min(effective, (len(arrays["W_pos"]) or len(arrays["W_E"])) - 1)  # of the rows of one context
        wide = effective >= 2 and H * min(d, differences) >= effective
        three = len(arrays["W_pos"]) not in (1, 2)  # rows of a context, which the proof needs
        if wide and three:
            return f"it has {many}: a fixed host with a norm of its own matches almost none of them ({page} 7)", True
        why = "contexts too short" if wide else "heads too narrow"
        return f"it has {many}, and {why} for {page} 7: {unknown}", False
    if not norm.eps >= 0:
        return f"eps = {norm.eps:g} is no number that is added to a mean square", True
    if norm.eps == 0 and (norm.final or L == 2):
        where = "a norm at the end" if norm.final else "two layers"
        return (
            f"eps = 0 and {where}: hosts are known for eps > 0 alone, and what there is for eps = 0 in {page} 9",
            False,
        )
    if shortformer:
        return "positions for queries and keys alone (shortformer) are not read with norms", True
    for name in ("b_Q", "b_K") if L == 2 else ():
        if np.any(arrays[name][1]):
            said = f"{name} of layer 1 (with its norm's bias in it) is not zero: no host without biases matches it"
            return f"{said} ({page} 6)", True
    return "", True
