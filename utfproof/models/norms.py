"""Norms of trained models: what they do to rows, which tensors hold their gains and biases, and whom a host with a norm of its
own can serve (docs/proofs/normalisation.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from utfproof.ground.arrays import one_line

WORDS = {"layer": "LayerNorm", "rms": "RMS"}


@one_line
@dataclass(frozen=True)
class OwnNorm:
    """kind: "layer" or "rms"; eps is added to the mean square; final and first: whether there is one before the readout, and
    one before each layer."""

    kind: str
    eps: float
    final: bool
    first: bool = True

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
        places = ["before each layer"] * self.first + ["at the end"] * self.final
        return f"{WORDS[self.kind]} with eps = {self.eps:g}, {' and '.join(places)}"


@dataclass(frozen=True)
class NormTensors:
    """How a family stores its norms. kinds: the fact `norm` -> "layer" or "rms"; layer: name beside the attention module;
    last: pattern of the name of the one at the end; parts: the fact -> names of gain and bias, as far as they are stored.
    shown: the fact where the tensors show it, in families whose configuration does not say whether there is a norm; optional:
    parts that may be missing; idle: name beside the attention module of a norm that an MLP alone reads; needs: facts without
    which nobody knows where the norms stand."""

    kinds: Mapping[str, str]
    layer: str
    last: str
    parts: Mapping[str, Sequence[str]]
    shown: str = ""
    optional: tuple[str, ...] = ()
    idle: str = ""
    needs: tuple[str, ...] = ()

    def places(self, prefixes: Sequence[str]) -> list[str]:
        """Where each layer's norm stands."""
        return [f"{block}{self.layer}." for block in blocks(prefixes)]

    def at_end(self, names: Iterable[str], part: str) -> list[str]:
        """Where the last one may stand, by the name of its gain."""
        found = re.compile(rf"(.*\.)?({self.last})\.{part}$")
        return sorted(name[: -len(part)] for name in names if found.match(name))


def blocks(prefixes: Sequence[str]) -> list[str]:
    """What holds each attention module, with a dot behind it."""
    return [block + "." * bool(block) for block in (prefix.rstrip(".").rpartition(".")[0] for prefix in prefixes)]


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
    if L > 1 and not norm.first:
        return f"it has {L} layers and a norm at the end alone: {unknown} ({page} 6 is for one layer)", False
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
        return (
            "positional_embedding_type shortformer: positions for queries and keys alone are not read with norms",
            True,
        )
    if L == 2:
        for name in ("b_Q", "b_K"):
            if np.any(arrays[name][1]):
                said = f"{name} of layer 1 (with its norm's bias in it) is not zero: no host without biases matches it"
                return f"{said} ({page} 6)", True
    return "", True
