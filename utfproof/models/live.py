"""A live torch.nn.Module is the authority on what it computes: its reading is compared with its own forward pass.

A whole model is read by the names of its tensors. Of other models the output of the first layer's attention is attention-only
exactly, on chosen tokens. Before it nothing mixes tokens: whatever a norm, a rotation or a bias does there, queries, keys and
values are functions of (token, position). Each pair is one row of E, and what is left is softmax attention and the output's
matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import ModelAttention
from utfproof.models.comparison import AGREEMENT, Agreement, Comparison, Coverage
from utfproof.models.families import BUFFERS, read_arrays, recognise
from utfproof.models.measuring import measured_attention
from utfproof.models.modules import (
    TWIN,
    callers_code,
    in_float64,
    live_tensors,
    module_outputs,
    require_module,
    require_torch,
)
from utfproof.models.probes import batches, probes, sequences
from utfproof.models.reading import ANY_LENGTH, Arrays, Forward, Reading, biased_target, facts_of
from utfproof.shapes import positive_integer

FEW = 16
"""Sequences that are enough to tell one reading from another."""
WIDEST = 256
"""Positions on which attention is measured, at most."""
BATCH = 4
"""Sequences on which attention is measured."""


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
    """A live module as a target, compared with its own forward pass in float64: the whole model, or the attention output of its
    first layer.

    tokens, positions: only that part is meant, on these token ids and at most so many positions; upto names the submodule that
    gives it, or layer=0, part="attention" finds it. The module is copied, never changed. Raises MalformedInput naming the
    tensor or field that is not read, or the first output that differs.

    >>> import torch
    >>> from utfproof import from_model
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embed, self.attn = torch.nn.Embedding(5, 4), torch.nn.MultiheadAttention(4, 2, batch_first=True)
    ...
    ...     def forward(self, tokens):
    ...         x = self.embed(tokens)
    ...         return self.attn(x, x, x, need_weights=False)[0]
    >>> from_model(Model(), tokens=[0, 1], positions=3, upto="attn").title
    'the attention output at attn of Model'
    """
    require_module(module)
    if all(value is None for value in (tokens, positions, upto, layer, part)):
        return _whole(module, seed)
    if tokens is None or positions is None:
        raise MalformedInput(
            "a part of a model is taken for token ids and positions: pass --tokens, --positions (Python: tokens, positions)"
        )
    if (layer or 0, part or "attention") != (0, "attention"):
        raise MalformedInput(
            f"layer {layer}, part {part!r}: only the attention of layer 0 is attention-only (layer=0, part='attention'); "
            "later layers read norms and MLPs of what attention mixed"
        )
    return _part(module, _ids(tokens), positive_integer("positions", positions), upto, seed, max_memory)


# --- a whole model ---------------------------------------------------------------------------------------------


def _whole(module: Any, seed: int) -> Reading:
    """The matrices are read by their names. Mask, window, cap, factor and bias are measured on the logits."""
    twin = in_float64(module)
    file, forward = live_tensors(twin), module_outputs(twin)
    title = recognise(file)[0].title
    heads = _calls(twin, np.zeros((1, 2), dtype=np.int64))[0].queries.shape[1]
    arrays = read_arrays(file, heads, BUFFERS)
    tokens, calls = _sampled(twin, arrays, np.random.default_rng(seed))
    if len(calls) != len(arrays["W_Q"]):
        raise file.refuse(f"{len(calls)} attentions are computed, its tensors are of {len(arrays['W_Q'])} layers")
    tried: list[tuple[Agreement, Reading]] = []
    for stream, learned in product((True, False), (True, False) if len(arrays["W_pos"]) else (True,)):
        read = arrays if learned else {**arrays, "W_pos": arrays["W_pos"][:0]}  # which some models keep beside ALiBi
        reading = _measured(title, read, tokens, calls, stream)
        few = batches(reading, islice(sequences(reading, seed), FEW))
        tried.append((_agreement(reading, forward, few)[0], reading))
        if tried[-1][0].within(AGREEMENT):
            return confirmed(reading, forward, f"the forward pass of {type(module).__name__}{TWIN}", seed)
    closest = min(tried, key=lambda pair: np.nan_to_num(pair[0].relative_difference, nan=np.inf))
    raise file.refuse(
        f"{_differs(*closest)}. Rotations by positions are read in the first layer alone: pass --tokens and --positions "
        "(in Python tokens, positions, or from_parts)"
    )


def _calls(twin: Any, tokens: np.ndarray) -> list[Any]:
    """The attention calls on tokens [B, n], at least one."""
    from utfproof.models.tracing import UNSEEN, attention_calls

    place = type(twin).__name__
    with callers_code(f"{place} does not run on tokens {list(tokens.shape)}"):
        calls = attention_calls(twin, require_torch().from_numpy(tokens))
    if not calls:
        raise MalformedInput(f"{place}: {UNSEEN}")
    return calls


def _sampled(twin: Any, arrays: Arrays, rng: np.random.Generator) -> tuple[np.ndarray, list[Any]]:
    """Random tokens [B, n] and the attention calls on them; n: all learned positions up to WIDEST, or ANY_LENGTH, halved until
    the module runs."""
    n = min(len(arrays["W_pos"]), WIDEST) or ANY_LENGTH
    while True:
        tokens = rng.integers(0, len(arrays["W_E"]), (BATCH, n))
        try:
            return tokens, _calls(twin, tokens)
        except MalformedInput:
            if n == 1 or len(arrays["W_pos"]):
                raise
        n //= 2


def _measured(title: str, arrays: Arrays, tokens: np.ndarray, calls: list[Any], stream: bool) -> Reading:
    """The model of these matrices, layer by layer with the attention that the calls on these tokens show."""
    target = biased_target(arrays, np.ones(arrays["W_Q"].shape[:2]), stream)
    x, n = arrays["W_E"][tokens], tokens.shape[1]
    x = x + arrays["W_pos"][:n] if len(arrays["W_pos"]) else x
    layers, factors = [], []
    for layer, call in enumerate(calls):
        q, k, v = (
            x[:, None] @ getattr(target, f"W_{kind}")[layer] + getattr(target, f"b_{kind}")[layer][:, None]
            for kind in "QKV"
        )
        attention, factor = measured_attention(q, k, call)
        layers.append(attention)
        factors.append(factor)
        added = (call.logits.softmax(-1).double().numpy() @ v @ target.W_O[layer]).sum(axis=1) + target.b_O[layer]
        x = x + added if stream else added
    by_layer, scale = ModelAttention(tuple(layers)), np.array(factors)
    found, facts = biased_target(arrays, scale, stream), facts_of(by_layer, scale, stream, "measured")
    return Reading(title, found, by_layer, len(arrays["W_E"]), len(arrays["W_pos"]), n, facts)


# --- the attention of the first layer ----------------------------------------------------------------------------


def _part(module: Any, ids: np.ndarray, P: int, upto: str | None, seed: int, max_memory: int | None) -> Reading:
    """The attention output of a model's first layer. upto: the name of the submodule whose output is meant (by default the one
    that computes the first attention). MalformedInput where that is no attention of (token, position) rows alone, or at the
    first activation that differs."""
    from utfproof.models.tracing import TracedPart, submodule

    twin, place = in_float64(module), type(module).__name__
    with callers_code(f"{place} does not run on token ids [batch, n] at {P} positions"):
        name, spot = submodule(twin, upto, ids[:1].repeat(P)[None])
    source = TracedPart(twin, spot, name or place, ids, P)
    q, k, v = source.rows(max_memory)
    call = source.call(np.random.default_rng(seed).integers(0, len(ids), (BATCH, P)))
    layer, scale = measured_attention(call.queries.double().numpy(), call.keys.double().numpy(), call)
    W_O, b_O = source.output(q.shape[1], v.shape[-1])
    target = biased_target(_of_rows(q, k, v, W_O, b_O), scale[None], stream=False)
    (H, d), D = (target.shape.heads, target.shape.head_dim), len(b_O)
    title = f"the attention output at {name or place} of {place}"
    facts = {
        "part": title,
        "attention": layer.words(),
        "rows of E": f"{len(ids)} tokens x {P} positions, with all that a row alone decides (norm, positions, rotations)",
        "least m for all such targets": f"2 d H + d_out H = 2*{d}*{H} + {D}*{H} = {2 * d * H + D * H}, whatever the tokens",
    }
    reading = Reading(title, target, ModelAttention((layer,)), len(ids), P, P, facts, ids=ids)
    witness = f"the activations at {name or place} of {place} in float64 and evaluation mode{source.widened}"
    return confirmed(reading, source.asked, witness, seed)


def _ids(tokens: Sequence[int]) -> np.ndarray:
    """Token ids [T]. MalformedInput where they are none, or repeat."""
    ids = np.asarray(tokens)
    numbers = ids.ndim == 1 and ids.dtype.kind in "iu" and ids.size > 0
    if not numbers or len(set(ids.tolist())) < ids.size or ids.min() < 0:
        raise MalformedInput("tokens are different token ids: integers from 0 on, at least one")
    return ids.astype(np.int64)


def _of_rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, W_O: np.ndarray, b_O: np.ndarray) -> Arrays:
    """The model of these rows q, k, v [R, H, d]: W_E holds them side by side, the maps select them."""
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


# --- the comparison --------------------------------------------------------------------------------------------


def confirmed(reading: Reading, forward: Forward, witness: str, seed: int = 0) -> Reading:
    """The reading with the module's own outputs as its witness, compared on `probes`. MalformedInput with the first output that
    differs."""
    agreement, coverage = _agreement(reading, forward, probes(reading, seed))
    if not agreement.within(AGREEMENT):
        raise MalformedInput(f"{witness}: {_differs(agreement, reading)}")
    return replace(reading, witness=witness, coverage=coverage, forward=forward, unknown=())


def _agreement(reading: Reading, forward: Forward, tried: Iterable[np.ndarray]) -> tuple[Agreement, Coverage]:
    """The reading against the module's outputs on batches of tokens, up to the first difference, and what was compared."""
    comparison, count, lengths, largest = Comparison(reading.target.bias("b_U")), 0, set(), 0
    seen = np.zeros(reading.vocabulary, dtype=bool)
    for batch in tried:
        expected = forward(batch)
        wanted = (*batch.shape, reading.shape.d_out)
        if expected.shape != wanted:
            raise MalformedInput(f"its outputs have shape {list(expected.shape)}, its tensors say {list(wanted)}")
        for row, (tokens, logits) in enumerate(zip(batch, expected, strict=True)):
            found, told = reading.original(tokens), tokens if reading.ids is None else reading.ids[tokens]
            comparison.add(told, found, logits)
            if row % 4 == 1:  # alone: an answer must not depend on the batch
                comparison.add(told, found, forward(tokens[None])[0])
        seen[batch] = True
        lengths.add(batch.shape[1])
        count, largest = count + len(batch), max(largest, len(batch))
        if comparison.first is not None and not comparison.result().within(AGREEMENT):
            break
    return comparison.result(), Coverage(count, tuple(sorted(lengths)), seen, largest)


def _differs(agreement: Agreement, reading: Reading) -> str:
    """Where a reading and the module differ first."""
    first = "" if agreement.first is None else f" First on {agreement.first}."
    facts = "; ".join(f"{word}: {value}" for word, value in reading.facts.items())
    return (
        "it was read as another function than its own forward pass computes: outputs differ by "
        f"{agreement.relative_difference:.3g} relative.{first} It was taken as {facts}"
    )
