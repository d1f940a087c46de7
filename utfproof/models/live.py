"""A live torch.nn.Module is the authority on what it computes: its reading is compared with its own forward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.models.attention import ModelAttention
from utfproof.models.comparison import AGREEMENT, Agreement, Comparison, Coverage
from utfproof.models.families import BUFFERS, Arrays, Family, read_arrays, recognise
from utfproof.models.measuring import measured_attention, measured_rotation
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
from utfproof.models.reading import ANY_LENGTH, LAYER_ROLES, Forward, Reading, scaled

SINGLE = 1e-5
"""Outputs that are computed in float32 differ by less."""
FEW = 16
"""Sequences that are enough to tell one reading from another."""
WIDEST = 256
"""Positions on which attention is measured, at most."""
BATCH = 4
"""Sequences on which attention is measured."""


def whole_model(module: Any, seed: int = 0) -> Reading:
    """The whole model of a live module of a known family, compared with the module's own forward pass in float64.

    The matrices are read by their names. Mask, window, cap, factor, bias and rotation are measured on the logits. The module is
    copied, never changed. Raises MalformedInput naming the tensor that no embedding carries, or the first output at which the
    reading and the module differ.
    """
    require_module(module)
    twin = in_float64(module)
    file, forward = live_tensors(twin), module_outputs(twin)
    family = recognise(file)
    heads = _calls(twin, np.zeros((1, 2), dtype=np.int64))[0].queries.shape[1]
    arrays = read_arrays(file, family, heads, BUFFERS)
    tokens, calls = _sampled(twin, arrays, np.random.default_rng(seed))
    if len(calls) != len(arrays["W_Q"]):
        raise file.refuse(f"{len(calls)} attentions are computed, its tensors are of {len(arrays['W_Q'])} layers")
    found: list[tuple[Reading, Agreement]] = []
    for residual, learned in product((True, False), (True, False) if len(arrays["W_pos"]) else (True,)):
        read = arrays if learned else {**arrays, "W_pos": arrays["W_pos"][:0]}  # which some models keep beside ALiBi
        reading = _measured(family, read, tokens, calls, residual)
        few = [tokens for tokens, _ in zip(sequences(reading, seed), range(FEW), strict=False)]
        found.append((reading, _agreement(reading, forward, batches(reading, iter(few)))[0]))
        if found[-1][1].within(AGREEMENT):
            return confirmed(reading, forward, f"the forward pass of {type(module).__name__}{TWIN}", seed)
    raise file.refuse(_differs(*min(found, key=lambda pair: np.nan_to_num(pair[1].relative_difference, nan=np.inf))))


def _calls(twin: Any, tokens: np.ndarray) -> list[Any]:
    """The attention calls on tokens [B, n], at least one."""
    from utfproof.models.tracing import attention_calls

    place = type(twin).__name__
    with callers_code(f"{place} does not run on tokens {list(tokens.shape)}"):
        calls = attention_calls(twin, require_torch().from_numpy(tokens))
    if not calls:
        raise MalformedInput(f"{place}: no attention was seen, no softmax between two batched products of torch")
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


def _measured(family: Family, arrays: Arrays, tokens: np.ndarray, calls: list[Any], residual: bool) -> Reading:
    """The model of these matrices, layer by layer with the attention that the calls on these tokens show."""
    x, n = arrays["W_E"][tokens], tokens.shape[1]
    x = x + arrays["W_pos"][:n] if len(arrays["W_pos"]) else x
    layers, factors = [], []
    for layer, call in enumerate(calls):
        W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = (arrays[name][layer] for name in LAYER_ROLES)
        q, k, v = (x[:, None] @ W + b[:, None] for W, b in ((W_Q, b_Q), (W_K, b_K), (W_V, b_V)))
        k, v = (np.repeat(part, len(W_Q) // len(W_K), axis=1) for part in (k, v))
        rotary = measured_rotation(q, call.queries.double().numpy())
        if rotary is not None:
            q, k = rotary(q, np.arange(n)), rotary(k, np.arange(n))
        attention, factor = measured_attention(q, k, call)
        layers.append(replace(attention, rotary=rotary))
        factors.append(factor)
        added = (call.logits.softmax(-1).double().numpy() @ v @ W_O).sum(axis=1) + b_O
        x = x + added if residual else added
    by_layer = ModelAttention(tuple(layers))
    facts = {
        "attention": by_layer.words(),
        "logits times": ", ".join(dict.fromkeys(f"{value:.6g}" for factor in factors for value in factor))
        + " (measured)",
        "residual stream": f"{'yes' if residual else 'no'} (the module's own outputs)",
    }
    found = scaled(arrays, np.array(factors))
    return Reading(family.name, family.title, found, by_layer, residual, context=n, facts=facts)


def confirmed(reading: Reading, forward: Forward, witness: str, seed: int = 0) -> Reading:
    """The reading with the module's own outputs as its witness, compared on `probes`. MalformedInput with the first output that
    differs."""
    agreement, coverage = _agreement(reading, forward, probes(reading, seed))
    if not agreement.within(AGREEMENT):
        raise MalformedInput(f"{witness}: {_differs(reading, agreement)}")
    difference = agreement.relative_difference
    return replace(reading, witness=witness, coverage=coverage, forward=forward, difference=difference, unknown=())


def _agreement(reading: Reading, forward: Forward, tried: Iterable[np.ndarray]) -> tuple[Agreement, Coverage]:
    """The reading against the module's outputs on batches of tokens, up to the first difference, and what was compared."""
    comparison, seen, largest = Comparison(reading.arrays["b_U"]), [], 0
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
        seen += list(batch)
        largest = max(largest, len(batch))
        if comparison.first is not None and not comparison.result().within(AGREEMENT):
            break
    return comparison.result(), Coverage.of(seen, reading.vocabulary, largest)


def _differs(reading: Reading, agreement: Agreement) -> str:
    """Where a reading and the module differ first."""
    single = " (float32 somewhere in it would explain so little)" if agreement.within(SINGLE) else ""
    first = "" if agreement.first is None else f" First on {agreement.first.words('the reading gives', 'the module')}."
    return (
        "it was read as another function than its own forward pass computes: outputs differ by "
        f"{agreement.relative_difference:.3g} relative{single}.{first} It was taken as {reading.summary()}"
    )
