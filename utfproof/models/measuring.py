"""What attention a module computes, measured on its logits: mask, window, cap, factor and bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.attention import visible
from utfproof.models.attention import LayerAttention

HIDDEN = -5e3
"""Logits below this hide a key."""


def measured_attention(queries: np.ndarray, keys: np.ndarray, call: Any) -> tuple[LayerAttention, np.ndarray]:
    """The attention of a `tracing.Call`, and what q k^T is multiplied by, head by head [H].

    queries, keys [B, H, n, d]: those whose products the logits are made of.
    """
    products, logits = queries @ keys.swapaxes(-1, -2), call.logits.double().numpy()
    seen = logits > HIDDEN
    causal, window, hidden = _mask(seen)
    cap = None
    if call.capped is not None:
        inner, outer = (x.double().numpy().reshape(logits.shape) for x in call.capped)
        shown = np.abs(outer) * seen
        at = np.unravel_index(int(np.argmax(shown)), shown.shape)
        cap = float(f"{logits[at] / outer[at]:.12g}") if shown[at] else None
        logits = inner * (cap or 1.0)
    scale, bias = _affine(products, logits, seen)
    if hidden.any():
        bias = np.where(hidden, -np.inf, 0.0 if bias is None else bias)
    return LayerAttention(causal, window, cap, bias), scale


def _mask(seen: np.ndarray) -> tuple[bool, int | None, np.ndarray]:
    """causal and window of the keys that are seen [B, H, n, n], and the keys [H, n, n] that other masks hide."""
    places, shown = np.arange(seen.shape[-1]), np.asarray(seen.any(axis=0))
    distance = places[:, None] - places
    causal = not shown[:, distance < 0].any()
    reach = int(np.abs(distance)[shown.any(axis=0)].max(initial=0)) + 1
    window = reach if reach < len(places) else None
    usual = visible(places, places, causal=causal, window=window)
    return causal, window, np.logical_not(shown) & (True if usual is None else usual)


def _affine(products: np.ndarray, logits: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """scale [H] and bias [H, n, n] with logits = scale q k^T + bias where keys are seen, up to a constant of each row; all
    arguments [B, H, n, n]. The bias is None where it is rounding."""
    scales, biases, own = [], [], np.arange(products.shape[-1])
    for head in range(products.shape[1]):
        x, y = (np.where(seen[:, head], part[:, head], 0.0) for part in (products, logits))
        x, y = (part - part[:, own, own][..., None] for part in (x, y))
        x, y = (np.where(seen[:, head], part, 0.0) for part in (x, y))
        moved = [part - part.mean(axis=0) for part in (x, y)]  # a bias is the same for all tokens
        size = float((moved[0] ** 2).sum())
        shown = size > 1e-20 * float((x**2).sum())
        scales.append(float((moved[0] * moved[1]).sum()) / size if shown else 1.0)
        biases.append((y - scales[-1] * x).mean(axis=0))
    noise = 1e-12 * max(1.0, float(np.abs(logits[seen]).max(initial=0.0)))
    return np.array(scales), np.array(biases) if np.abs(biases).max() > noise else None
