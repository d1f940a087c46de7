"""Softmax and sums in blocks, on NumPy arrays, torch tensors and exact numbers."""

from __future__ import annotations

import math

import numpy as np

from utfproof.ground.arrays import Array, is_exact, is_torch, namespace

KEY_BLOCK = 256
"""Keys summed at a time by ChunkedAttention."""


def like(reference: Array, values: np.ndarray) -> Array:
    """`values` with the dtype (unless boolean) and device of `reference`."""
    if is_exact(reference):
        return values
    if is_torch(reference):
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(reference.device)
        return tensor if tensor.dtype == torch.bool else tensor.to(reference.dtype)
    return values if values.dtype == bool else values.astype(reference.dtype)


def masked(logits: Array, mask: np.ndarray | None) -> Array:
    """Logits with minus infinity where the mask is False."""
    if mask is None:
        return logits
    return namespace(logits).where(like(logits, mask), logits, -math.inf)


def softmax_weights(logits: Array) -> tuple[Array, Array]:
    """exp(logits - their row's maximum) [..., rows, columns], and the row sums [..., rows, 1]."""
    xp = namespace(logits)
    weights = xp.exp(logits - xp.amax(logits, axis=-1, keepdims=True))
    return weights, weights.sum(axis=-1, keepdims=True)


def softmax(logits: Array, mask: np.ndarray | None = None) -> Array:
    """Row-wise softmax of [..., n, n] logits, over the visible keys."""
    weights, total = softmax_weights(masked(logits, mask))
    return weights / total


def blocked_product(weights: Array, x: Array, block: int = KEY_BLOCK) -> Array:
    """weights @ x, the sum over the inner index taken in blocks; on a GPU those of all whole blocks at once, where together
    they are no larger than the weights."""
    n, width = x.shape[-2:]
    whole = n // block
    if whole > 1 and width <= block and is_torch(x) and x.device.type != "cpu":
        return _all_blocks(weights, x, whole, block)
    total = weights[..., :block] @ x[..., :block, :]
    for start in range(block, n, block):
        total += weights[..., start : start + block] @ x[..., start : start + block, :]
    return total


def _all_blocks(weights: Array, x: Array, whole: int, block: int) -> Array:
    """The same for torch tensors in one product: a launch for each block would take longer than its sums."""
    cut = whole * block
    apart = weights[..., :cut].unflatten(-1, (whole, block)).transpose(-2, -3)
    total = (apart @ x[..., :cut, :].unflatten(-2, (whole, block))).sum(-3)
    return total if cut == x.shape[-2] else total + weights[..., cut:] @ x[..., cut:, :]
