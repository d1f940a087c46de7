"""A part of a real model that is attention-only exactly: the output of its first layer's attention, on chosen tokens.

Before the first layer nothing mixes tokens: whatever a norm, a rotation or a bias does there, queries, keys and values are
functions of (token, position). So each pair is one row of E, and what is left is softmax attention and the output's matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from utfproof.attention import visible
from utfproof.errors import MalformedInput
from utfproof.ground.resources import require_memory
from utfproof.models.attention import LayerAttention, ModelAttention
from utfproof.models.live import callers_code, confirmed, in_float64, require_module, whole_model
from utfproof.models.reading import Reading
from utfproof.shapes import positive_integer

HIDDEN = -5e3
"""Logits below this hide a key."""
PART = "part"
"""The family of a part of a model."""
LOGITS = 2**22
"""Logits that one run of the model computes, about."""


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
    twin, ids = in_float64(module), _ids(tokens)
    place = type(module).__name__
    P = positive_integer("positions", positions)
    with callers_code(f"{place} does not run on token ids [batch, n] at {P} positions"):
        name, spot = _spot(twin, upto, ids[:1].repeat(P)[None])
    source = _Source(twin, spot, name or place, ids, P)
    q, k, v = source.rows(max_memory)
    layer, scale = source.kernel(np.random.default_rng(seed))
    W_O, b_O = source.output(q.shape[1], v.shape[-1])
    G = _groups(k, v)
    arrays = _arrays(q * scale[:, None], k[:, :: q.shape[1] // G], v[:, :: q.shape[1] // G], W_O, b_O)
    T, (H, d), D = len(ids), arrays["W_Q"].shape[1::2], len(b_O)
    softmax = " and softmax in float64 (its own is in float32)" if source.upcast else ""
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
        (1.0,),
        ModelAttention((layer,)),
        stream=False,
        context=P,
        facts=facts,
        ids=ids,
    )
    witness = f"the activations at {name or place} of {place} in float64{softmax} and evaluation mode"
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


def _spot(twin: Any, upto: str | None, tokens: np.ndarray) -> tuple[str, Any]:
    """Name and submodule whose output is asked for."""
    import torch

    from utfproof.models.tracing import first_attention

    if upto is None:
        with torch.no_grad():
            return first_attention(twin, torch.from_numpy(tokens))
    spot = twin
    for step in upto.split("."):
        spot = spot[int(step)] if step.isdigit() and hasattr(spot, "__getitem__") else getattr(spot, step, None)
    if not isinstance(spot, torch.nn.Module):
        close = get_close_matches(upto, [name for name, _ in twin.named_modules()], 3, 0.4)
        raise MalformedInput(f"upto {upto!r} names no submodule; close are {', '.join(close) or 'none'}")
    return upto, spot


class _Source:
    """The module, run up to the attention output, on token numbers 0 ... T-1."""

    def __init__(self, twin: Any, spot: Any, name: str, ids: np.ndarray, positions: int) -> None:
        self.twin, self.spot, self.name, self.ids, self.positions = twin, spot, name, ids, positions
        self.upcast = False

    def _run(self, tokens: np.ndarray, probe: Any = None) -> tuple[Any, np.ndarray]:
        """The one attention call on tokens [batch, n], and the output [batch, n, D]."""
        import torch

        from utfproof.models.tracing import attention_before

        given = torch.from_numpy(self.ids[tokens])
        with (
            torch.no_grad(),
            callers_code(f"{self.name} is not reached on tokens {list(tokens.shape)}"),
        ):
            trace, out = attention_before(self.twin, self.spot, given, probe)
        self.upcast = trace.upcast
        if len(trace.calls) != 1:
            raise MalformedInput(
                f"{len(trace.calls)} attentions are computed up to {self.name}: upto has to name the output of the first "
                "layer's attention. Later layers read norms and MLPs of what attention mixed, which no theorem here serves"
            )
        if not isinstance(out, torch.Tensor) or out.shape[:2] != tokens.shape or out.ndim != 3:
            raise MalformedInput(f"the output at {self.name} is not [batch, n, width] for tokens [batch, n]")
        return trace.calls[0], out.detach().double().numpy()

    def asked(self, tokens: np.ndarray) -> np.ndarray:
        """Token numbers [batch, n] -> activations [batch, n, D]."""
        return self._run(np.asarray(tokens))[1]

    def rows(self, max_memory: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries, keys and values [T P, H, d] of every token at every position, keys and values repeated for shared ones."""
        T, P, parts = len(self.ids), self.positions, []
        first, _ = self._run(np.zeros((1, P), dtype=np.int64))
        H, d = first.queries.shape[1], max(first.queries.shape[-1], first.values.shape[-1])
        require_memory(8 * 6 * T * P * H * d, f"the rows of {T} tokens at {P} positions", max_memory)
        step = max(1, LOGITS // (H * P * P))
        for start in range(0, T, step):
            numbers = np.arange(start, min(T, start + step))
            call, _ = self._run(np.repeat(numbers[:, None], P, axis=1))
            held = [call.queries, *(x.repeat_interleave(H // x.shape[1], 1) for x in (call.keys, call.values))]
            parts.append([x.transpose(1, 2).flatten(0, 1).double().numpy() for x in held])
        q, k, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        return q, k, v

    def kernel(self, rng: np.random.Generator) -> tuple[LayerAttention, np.ndarray]:
        """The attention as logits show it, and what q k^T is multiplied by, head by head [H]."""
        call, _ = self._run(rng.integers(0, len(self.ids), (4, self.positions)))
        keys = call.keys.repeat_interleave(call.queries.shape[1] // call.keys.shape[1], 1)
        products = (call.queries @ keys.transpose(-1, -2)).double().numpy()
        logits = call.logits.double().numpy()
        seen = logits > HIDDEN
        causal, window = _mask(seen)
        cap = None
        if call.capped is not None:
            inner, outer = (x.double().numpy().reshape(logits.shape) for x in call.capped)
            shown = np.abs(outer) * seen
            at = np.unravel_index(int(np.argmax(shown)), shown.shape)
            cap = float(f"{logits[at] / outer[at]:.12g}") if shown[at] else None
            logits = inner * (cap or 1.0)
        scale, bias = _affine(products, logits, seen)
        hidden = _hidden(seen, causal, window)
        if hidden is not None:
            bias = np.where(hidden, -np.inf, 0.0 if bias is None else bias)
        return LayerAttention(causal, window, cap, bias), scale

    def output(self, heads: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """W_O [H, d_v, D] and the bias [D], by probes in place of the heads' outputs."""
        import torch

        P, count = self.positions, heads * width
        batch = -(-(count + 2) // P) + 1
        slots = np.zeros((batch * P, count))
        slots[1 : count + 1] = np.eye(count)
        probe = torch.from_numpy(slots.reshape(batch, P, heads, width).transpose(0, 2, 1, 3).copy())
        tokens = (np.arange(batch)[:, None] + np.arange(P)) % len(self.ids)
        out = self._run(tokens, probe)[1].reshape(batch * P, -1)
        bias, rest = out[0], out[count + 1 :]
        if np.abs(rest - bias).max() > 1e-12 * max(1.0, float(np.abs(out).max())):
            raise MalformedInput(
                f"the output at {self.name} holds more than the attention's: with all heads at zero it differs from token to "
                "token (a residual stream, say). Name the module of the output's matrix instead"
            )
        return (out[1 : count + 1] - bias).reshape(heads, width, -1), bias


def _mask(seen: np.ndarray) -> tuple[bool, int | None]:
    """causal and window of the keys that are seen [B, H, n, n]: at most these are."""
    n = seen.shape[-1]
    distance = np.arange(n)[:, None] - np.arange(n)[None]
    causal = not seen[..., distance < 0].any()
    reach = int(np.abs(distance)[seen.any(axis=(0, 1))].max(initial=0)) + 1
    return causal or n == 1, reach if reach < n else None


def _hidden(seen: np.ndarray, causal: bool, window: int | None) -> np.ndarray | None:
    """The keys [H, n, n] that a mask of positions hides beside these; None where there are none."""
    places = np.arange(seen.shape[-1])
    usual = visible(places, places, causal=causal, window=window)
    hidden: np.ndarray = np.logical_not(seen.any(axis=0))
    hidden = hidden if usual is None else np.logical_and(hidden, usual)
    return hidden if hidden.any() else None


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


def _groups(k: np.ndarray, v: np.ndarray) -> int:
    """G: consecutive heads share keys and values."""
    H = k.shape[1]
    for G in (g for g in range(1, H) if H % g == 0):
        shared = [np.repeat(x[:, :: H // G], H // G, axis=1) for x in (k, v)]
        if np.array_equal(shared[0], k) and np.array_equal(shared[1], v):
            return G
    return H


def _arrays(q: np.ndarray, k: np.ndarray, v: np.ndarray, W_O: np.ndarray, b_O: np.ndarray) -> dict[str, np.ndarray]:
    """`Reading.arrays` of these rows q [R, H, d], k, v [R, G, d]: W_E holds them side by side, the maps select them."""
    d, D, (H, G) = max(q.shape[-1], v.shape[-1]), len(b_O), (q.shape[1], k.shape[1])
    q, k, v = (np.pad(x, ((0, 0), (0, 0), (0, d - x.shape[-1]))) for x in (q, k, v))
    rows = np.concatenate([x.reshape(len(x), -1) for x in (q, k, v)], axis=1)
    width = max(rows.shape[1], D)
    select = np.eye(width)[:, : (H + 2 * G) * d].reshape(width, H + 2 * G, d).transpose(1, 0, 2)
    out = np.zeros((1, H, d, width))
    out[0, :, : W_O.shape[1], :D] = W_O
    return {
        "W_E": np.pad(rows, ((0, 0), (0, width - rows.shape[1]))),
        "W_pos": np.zeros((0, width)),
        "W_U": np.eye(width, D),
        "W_Q": select[None, :H],
        "W_K": select[None, H : H + G],
        "W_V": select[None, H + G :],
        "W_O": out,
        "b_Q": np.zeros((1, H, d)),
        **{name: np.zeros((1, G, d)) for name in ("b_K", "b_V")},
        "b_O": np.zeros((1, width)),
        "b_U": b_O,
    }
