"""Any attention-only model by its matrices, in ten lines; the comparison with its own forward pass decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import LayerAttention, ModelAttention, layer_attention
from utfproof.models.live import confirmed
from utfproof.models.modules import TWIN, in_float64, module_outputs
from utfproof.models.reading import ANY_LENGTH, BY_MATRICES, Reading, biased_target, facts_of
from utfproof.systems.mlp import MLP


def from_parts(
    W_E: Any,
    W_Q: Any,
    W_K: Any,
    W_V: Any,
    W_O: Any,
    W_U: Any,
    *,
    attention: str | LayerAttention | Sequence[LayerAttention] = "causal",
    positions: Any = None,
    scale: float | str = "1/sqrt(d)",
    residual: bool = True,
    b_Q: Any = None,
    b_K: Any = None,
    b_V: Any = None,
    b_O: Any = None,
    b_U: Any = None,
    mlp: MLP | None = None,
    forward: Any = None,
    context: int = ANY_LENGTH,
    seed: int = 0,
) -> Reading:
    """The model of these matrices, which act on rows from the right, compared with `forward` in float64.

    W_E [V, D]; W_Q [L, H, D, d]; W_K, W_V [L, G, D, d], G dividing H; W_O [L, H, d, D]; W_U [D, O]; biases b_Q [L, H, d],
    b_K, b_V [L, G, d], b_O [L, D], b_U [O]; positions [P, D], added to the embedding: arrays, tensors or lists of them, one a
    layer. attention: "causal", "softmax" (both ways), "causal+window:W", or a LayerAttention (bias, cap, rope_base), for all
    layers or one for each. scale: what logits are multiplied by. residual: whether there is a residual stream. mlp: of each
    layer, x <- x + MLP(x) behind its attention, without norms (a host such as mlp-D-K serves it). forward: the
    torch.nn.Module, or a function of a tensor of tokens [batch, n], that gives logits [batch, n, O]; without one nothing here
    compares the reading with a model. context: the longest context to try where there are no positions.

    MalformedInput for shapes that do not fit, or with the first output at which the matrices and `forward` differ.

    >>> import numpy as np
    >>> from utfproof import embed_model, from_parts
    >>> W = np.ones((1, 1, 4, 2))  # one layer, one head, D = 4, d = 2
    >>> model = from_parts(np.eye(3, 4), W, W, W, W.swapaxes(2, 3), np.eye(4, 3))
    >>> embed_model(model, "sparse").E.shape
    (3, 10)
    """
    L, H, D, d = _array(W_Q, "W_Q", (None,) * 4).shape
    G = _array(W_K, "W_K", (L, None, D, d)).shape[1]
    if H % G:
        raise MalformedInput(f"W_K has {G} heads, which do not divide the {H} heads of W_Q")
    V, outputs = _array(W_E, "W_E", (None, D)).shape[0], _array(W_U, "W_U", (D, None)).shape[1]
    P = 0 if positions is None else _array(positions, "positions", (None, D)).shape[0]
    arrays = {
        "W_E": _array(W_E, "W_E", (V, D)),
        "W_pos": _array(positions, "positions", (P, D)),
        "W_U": _array(W_U, "W_U", (D, outputs)),
        "W_Q": _array(W_Q, "W_Q", (L, H, D, d)),
        "W_K": _array(W_K, "W_K", (L, G, D, d)),
        "W_V": _array(W_V, "W_V", (L, G, D, d)),
        "W_O": _array(W_O, "W_O", (L, H, d, D)),
        "b_Q": _array(b_Q, "b_Q", (L, H, d)),
        "b_K": _array(b_K, "b_K", (L, G, d)),
        "b_V": _array(b_V, "b_V", (L, G, d)),
        "b_O": _array(b_O, "b_O", (L, D)),
        "b_U": _array(b_U, "b_U", (outputs,)),
    }
    factors = np.full((L, H), d**-0.5 if scale == "1/sqrt(d)" else float(scale))
    target = biased_target(arrays, factors, residual, mlp)
    given = layer_attention(attention) if isinstance(attention, str) else attention
    by_layer = ModelAttention((given,) * L if isinstance(given, LayerAttention) else tuple(given))
    by_layer.require_fit(H, d, L)
    facts = facts_of(by_layer, factors, residual, "the caller")
    reading = Reading(BY_MATRICES, target, by_layer, V, P, context, facts)
    if forward is None:
        return reading
    live, mode = (in_float64(forward), TWIN) if hasattr(forward, "state_dict") else (forward, "")
    witness = f"the forward pass of {getattr(forward, '__name__', type(forward).__name__)}{mode}"
    return confirmed(reading, module_outputs(live), witness, seed)


def _array(value: Any, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """An array, a tensor or a list of them as float64, of this shape (None: any size); zeros where there is none.
    MalformedInput for another shape and for numbers that are not finite."""
    if value is None or 0 in shape:
        return np.zeros([n or 0 for n in shape])
    if isinstance(value, list | tuple) and any(hasattr(part, "detach") for part in value):
        value = [part.detach().cpu().double().numpy() for part in value]
    held = value.detach().cpu().double().numpy() if hasattr(value, "detach") else value
    try:
        array = np.array(held, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MalformedInput(f"{name} is no array of numbers: {error}") from error
    sizes = zip(array.shape, shape, strict=False)
    if array.ndim != len(shape) or 0 in array.shape or any(n not in (None, found) for found, n in sizes):
        expected = "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
        raise MalformedInput(f"{name} has shape {list(array.shape)}, expected {expected}")
    if not np.isfinite(array).all():
        raise MalformedInput(f"{name} holds numbers that are not finite")
    return array
