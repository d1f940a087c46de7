"""The attention that a module computes, seen from outside: queries, keys, values and logits of each call.

Probes can replace the heads' outputs. Fused calls (`scaled_dot_product_attention`) and products with a softmax between them are
seen alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from utfproof.errors import MalformedInput

PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Positional arguments of scaled_dot_product_attention."""


@dataclass
class Call:
    """One attention: queries [B, H, n, d], keys [B, G, n, d], values [B, G, n, d_v], logits [B, H, n, n] as the softmax takes
    them, and what tanh was applied to before (None: no tanh)."""

    queries: Any
    keys: Any
    logits: Any
    values: Any = None
    capped: tuple[Any, Any] | None = None


class Reached(Exception):
    """The module whose output is asked for has run."""

    def __init__(self, output: Any) -> None:
        self.output = output


class AttentionTrace(TorchFunctionMode):
    """Records the attention calls of a batch. probe [B, H, n, d_v]: given in place of the heads' outputs. A softmax of float64
    logits stays in float64, where the module asks for float32 (`upcast` says so then)."""

    def __init__(self, batch: int, probe: Any = None) -> None:
        super().__init__()
        self.batch, self.probe, self.upcast = batch, probe, False
        self.calls: list[Call] = []
        self._scores: tuple[Any, Any, Any] | None = None
        self._tanh: tuple[Any, Any] | None = None
        self._open: Call | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            return self._fused(func, args, kwargs)
        if name == "softmax" and self._scores is not None:
            return self._softmax(func, args, dict(kwargs))
        if name == "float" and self._scores is not None and args[0].dtype == torch.float64:
            self.upcast = True
            return args[0]
        out = func(*args, **kwargs)
        if name == "tanh" and self._scores is not None and self._tanh is None:
            self._tanh = (args[0], out)
        product = _product(name, args, kwargs) if name in PRODUCTS else None
        return out if product is None else self._multiplied(*product, out)

    def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = dict(zip(FUSED, args, strict=False)) | kwargs
        q, k, v, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
        if q.ndim != 4 or q.shape[-2] != k.shape[-2]:
            raise MalformedInput(
                f"its queries have shape {list(q.shape)} and its keys {list(k.shape)}: not one for each token"
            )
        scale = given.get("scale") or q.shape[-1] ** -0.5
        logits = scale * (q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2))
        if given.get("is_causal"):
            mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
        if mask is not None:
            logits = logits.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else logits + mask
        self.calls.append(Call(q, k, logits, v))
        return func(*args, **kwargs) if self.probe is None else self.probe.clone()

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        logits = args[0] if args else kwargs["input"]
        assert self._scores is not None  # softmax is looked at after scores alone
        left, right, _ = self._scores
        n = left.shape[-2]
        if logits.shape[-2:] != (n, n):
            raise MalformedInput(
                f"its softmax is over {logits.shape[-1]} logits for {n} tokens: attention to no token (sinks)"
            )
        if kwargs.get("dtype") is not None and logits.dtype == torch.float64:
            self.upcast = self.upcast or kwargs["dtype"] != torch.float64
            kwargs["dtype"] = None
        q, k = self._by_heads(left), self._by_heads(right.transpose(-1, -2))
        self._open = Call(q, k, self._by_heads(logits), None, self._tanh)
        self._scores = self._tanh = None
        return func(*args, **kwargs)

    def _by_heads(self, x: Any) -> Any:
        """[B, H, n, ...] of [B H, n, ...]."""
        return x.reshape(self.batch, -1, *x.shape[-2:])

    def _multiplied(self, left: Any, right: Any, order: list[int] | None, out: Any) -> Any:
        """A product: the scores, or after a softmax the heads' outputs."""
        if self._open is None:
            if left.shape[-2] == right.shape[-1]:
                self._scores = (left, right, order)
            return out
        if left.shape[-1] != right.shape[-2] or left.shape[-1] != self._open.logits.shape[-1]:
            return out
        self._open.values = self._by_heads(right)
        self.calls.append(self._open)
        self._open = None
        if self.probe is None:
            return out
        probe = self.probe if out.ndim == 4 else self.probe.flatten(0, 1)
        return (probe if order is None else probe.permute(order)).reshape(out.shape).clone()


def _product(name: str, args: Any, kwargs: Any) -> tuple[Any, Any, list[int] | None] | None:
    """The factors [..., n, a] and [..., a, m] of a product, and for einsum how its output permutes [..., n, m]."""
    if name == "baddbmm":
        left, right = (kwargs[key] if key in kwargs else args[i] for i, key in ((1, "batch1"), (2, "batch2")))
        return left, right, None
    if name != "einsum":
        given = (*args, *kwargs.values())
        return (given[0], given[1], None) if given[0].ndim > 2 and given[1].ndim > 2 else None
    equation, tensors = args[0], args[1] if isinstance(args[1], list | tuple) else args[1:]
    inputs, _, output = str(equation).replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != 2 or "." in inputs or not output:
        return None
    first, second = names
    batch = [c for c in first if c in second and c in output]
    inner = [c for c in first if c in second and c not in output]
    row, column = ([c for c in own if c not in other] for own, other in ((first, second), (second, first)))
    if len(inner) != 1 or len(row) != 1 or len(column) != 1:
        return None
    left = tensors[0].permute([first.index(c) for c in (*batch, *row, *inner)])
    right = tensors[1].permute([second.index(c) for c in (*batch, *inner, *column)])
    order = [*batch, *row, *column]
    return left, right, [order.index(c) for c in output]


def attention_before(module: Any, spot: Any, tokens: Any, probe: Any = None) -> tuple[AttentionTrace, Any]:
    """The attention calls of `module` on tokens [B, n] until the submodule `spot` has run, and the output of that."""
    trace = AttentionTrace(len(tokens), probe)

    def reached(_: Any, __: Any, output: Any) -> None:
        raise Reached(output[0] if isinstance(output, tuple | list) else getattr(output, "last_hidden_state", output))

    handle = spot.register_forward_hook(reached)
    try:
        with trace:
            module(tokens)
    except Reached as end:
        return trace, end.output
    finally:
        handle.remove()
    raise MalformedInput("the module named by upto does not run on tokens")


def first_attention(module: Any, tokens: Any) -> tuple[str, Any]:
    """Name and submodule that computes the first attention of `module` on tokens [B, n]."""
    active: list[tuple[str, Any]] = []

    class Find(AttentionTrace):
        def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
            raise Reached(active[-1])

        def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
            raise Reached(active[-1])

    handles = []
    for name, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(lambda p, _, name=name: active.append((name, p))))
        handles.append(part.register_forward_hook(lambda *_: active.pop() and None))
    try:
        with Find(len(tokens)):
            module(tokens)
    except Reached as end:
        return end.output
    finally:
        for handle in handles:
            handle.remove()
    raise MalformedInput(
        "no attention was seen: neither scaled_dot_product_attention nor a softmax between two products of torch"
    )
