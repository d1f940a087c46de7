"""A part of a real model that is attention-only exactly: the output of its first layer's attention, on chosen tokens.

Before the first layer nothing mixes tokens: whatever a norm, a rotation or a bias does there, queries, keys and values are
functions of (token, position). So each pair is one row of E, and what is left is softmax attention and the output's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import ModelAttention
from utfproof.models.live import confirmed, whole_model
from utfproof.models.measuring import measured_attention
from utfproof.models.modules import callers_code, in_float64, require_module
from utfproof.models.reading import Reading
from utfproof.shapes import positive_integer

PART = "part"
"""The family of a part of a model."""


def from_model(
    module: Any,
    *,
    tokens: Sequence[int] | None = None,
    positions: int | None = None,
    upto: str | None = None,
    layer: int | None = None,
    part: str | None = None,
    seed: int = 0,
    max_memory: int | None = None,
) -> Reading:
    """A live module as a target, compared with its own forward pass in float64: the whole model (`live.whole_model`), or the
    attention output of its first layer.

    tokens, positions: only that part is meant, on these token ids and at most so many positions; upto names the submodule that
    gives it, or layer=0, part="attention" finds it. The module is copied, never changed. Raises MalformedInput naming the
    tensor or field that is not read, or the first output that differs.
    """
    if all(value is None for value in (tokens, positions, upto, layer, part)):
        return whole_model(module, seed)
    require_module(module)
    if tokens is None or positions is None:
        raise MalformedInput(
            "a part of a model is taken for given token ids and positions: pass tokens=[...], positions=n"
        )
    if (layer or 0, part or "attention") != (0, "attention"):
        raise MalformedInput(
            f"layer {layer}, part {part!r}: only the attention of layer 0 is attention-only (layer=0, part='attention'); "
            "later layers read norms and MLPs of what attention mixed"
        )
    return _part_of(module, tokens, positions, upto, seed, max_memory)


def _part_of(
    module: Any, tokens: Sequence[int], positions: int, upto: str | None, seed: int, max_memory: int | None
) -> Reading:
    """The attention output of a model's first layer for these token ids on at most `positions` positions, compared with the
    module's own activations in float64. upto: the name of the submodule whose output is meant (by default the one that
    computes the first attention). MalformedInput where that is no attention of (token, position) rows alone, or at the first
    activation that differs."""
    from utfproof.models.tracing import TracedPart, submodule

    twin, ids = in_float64(module), _ids(tokens)
    place = type(module).__name__
    P = positive_integer("positions", positions)
    with callers_code(f"{place} does not run on token ids [batch, n] at {P} positions"):
        name, spot = submodule(twin, upto, ids[:1].repeat(P)[None])
    source = TracedPart(twin, spot, name or place, ids, P)
    q, k, v = source.rows(max_memory)
    call = source.call(np.random.default_rng(seed).integers(0, len(ids), (4, P)))
    layer, scale = measured_attention(call.queries.double().numpy(), call.keys.double().numpy(), call)
    W_O, b_O = source.output(q.shape[1], v.shape[-1])
    arrays = _arrays(q * scale[:, None], k, v, W_O, b_O)
    T, (H, d), D = len(ids), arrays["W_Q"].shape[1::2], len(b_O)
    facts = {
        "part": f"the attention output at {name or place} of {place}",
        "attention": layer.words(),
        "rows of E": f"{T} tokens x {P} positions, with all that a row alone decides (norm, positions, rotations)",
        "least m for all such targets": f"2 d H + d_out H = 2*{d}*{H} + {D}*{H} = {2 * d * H + D * H}, whatever the tokens",
    }
    reading = Reading(
        PART,
        f"the attention output at {name or place} of {place}",
        arrays,
        ModelAttention((layer,)),
        stream=False,
        context=P,
        facts=facts,
        ids=ids,
    )
    witness = f"the activations at {name or place} of {place} in float64 and evaluation mode{source.widened}"
    return confirmed(reading, source.asked, witness, seed)


def _ids(tokens: Sequence[int]) -> np.ndarray:
    """Token ids [T]. MalformedInput where they are none, or repeat."""
    ids = np.asarray(tokens)
    if (
        ids.ndim != 1
        or ids.dtype.kind not in "iu"
        or not ids.size
        or len(set(ids.tolist())) < ids.size
        or ids.min() < 0
    ):
        raise MalformedInput("tokens are different token ids: integers from 0 on, at least one")
    return ids.astype(np.int64)


def _arrays(q: np.ndarray, k: np.ndarray, v: np.ndarray, W_O: np.ndarray, b_O: np.ndarray) -> dict[str, np.ndarray]:
    """`Reading.arrays` of these rows q, k, v [R, H, d]: W_E holds them side by side, the maps select them."""
    d, D, H = max(q.shape[-1], v.shape[-1]), len(b_O), q.shape[1]
    q, k, v = (np.pad(x, ((0, 0), (0, 0), (0, d - x.shape[-1]))) for x in (q, k, v))
    rows = np.concatenate([x.reshape(len(x), -1) for x in (q, k, v)], axis=1)
    width = max(rows.shape[1], D)
    select = np.eye(width)[:, : 3 * H * d].reshape(width, 3, 1, H, d).transpose(1, 2, 3, 0, 4)
    out = np.zeros((1, H, d, width))
    out[0, :, : W_O.shape[1], :D] = W_O
    return {
        "W_E": np.pad(rows, ((0, 0), (0, width - rows.shape[1]))),
        "W_pos": np.zeros((0, width)),
        "W_U": np.eye(width, D),
        **dict(zip(("W_Q", "W_K", "W_V"), select, strict=True)),
        "W_O": out,
        **{name: np.zeros((1, H, d)) for name in ("b_Q", "b_K", "b_V")},
        "b_O": np.zeros((1, width)),
        "b_U": b_O,
    }
