"""The attention that a module computes, seen from outside: queries, keys, values and logits of each call.

Every form of attention (fused calls, einsum, products with a softmax between them) reaches torch's dispatcher as a batched
product, a softmax and a batched product. Probes can replace the heads' outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from utfproof.errors import MalformedInput
from utfproof.models.modules import callers_code
from utfproof.util.resources import require_memory

FACTORS = {"bmm": (0, 1), "baddbmm": (1, 2)}
"""Arguments of torch's batched products that are their factors."""
UNSEEN = (
    "no attention was seen: no softmax between two batched products of torch (matmul, bmm, einsum of two tensors or a fused "
    "attention); write its products so"
)
LOGITS = 2**22
"""Logits that one run of a model computes, about."""


@dataclass
class Call:
    """One attention: queries and keys [B, H, n, d], values [B, H, n, d_v], logits [B, H, n, n] as the softmax takes them, and
    what tanh was applied to before (None: no tanh). Keys and values that heads share are repeated."""

    queries: Any
    keys: Any
    logits: Any
    values: Any = None
    capped: tuple[Any, Any] | None = None


class Reached(Exception):
    """What is asked for is there."""

    def __init__(self, found: Any) -> None:
        self.found = found


class AttentionTrace(TorchDispatchMode):
    """Records the attention calls of a batch.

    probe [B, H, n, d_v]: replaces the heads' outputs. Logits in float64 stay so where the module rounds them to float32, and
    with `wide` queries and keys too; `single` then says that the module computes its logits or its softmax in float32.
    running: the submodules that run, outermost first; with them the trace stops at the first attention.
    """

    def __init__(self, batch: int, probe: Any = None, wide: bool = False, running: list[Any] | None = None) -> None:
        super().__init__()
        self.batch, self.probe, self.wide, self.single, self.running = batch, probe, wide, wide, running
        self.calls: list[Call] = []
        self._scores: tuple[Any, Any] | None = None
        self._tanh: tuple[Any, Any] | None = None
        self._open: Call | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        rounds = name == "_to_copy" and kwargs.get("dtype") == torch.float32 and args[0].dtype == torch.float64
        if rounds and (self._scores is not None or (self.wide and args[0].ndim == 4)):
            self.single, kwargs = True, {**kwargs, "dtype": torch.float64}
        if name in ("_softmax", "_safe_softmax") and self._scores is not None:
            self._at_softmax(self._scores, args[0])
        out = func(*args, **kwargs)
        if name == "tanh" and self._scores is not None and self._tanh is None:
            self._tanh = (args[0], out)
        if name not in FACTORS:
            return out
        left, right = (args[i] for i in FACTORS[name])
        return self._multiplied(left, right, out)

    def _at_softmax(self, scores: tuple[Any, Any], logits: Any) -> None:
        """The softmax of an attention takes these logits, made of these scores."""
        if self.running:
            raise Reached(self.running[-1])
        left, right = scores
        n = left.shape[-2]
        if logits.shape[-2:] != (n, n):
            raise MalformedInput(
                f"its softmax is over {logits.shape[-1]} logits for {n} tokens: attention to no token (sinks)"
            )
        self.single = self.single or logits.dtype == torch.float32
        q, k, z = (self._by_heads(x) for x in (left, right.transpose(-1, -2), logits))
        self._open = Call(q, k, z, None, self._tanh)
        self._scores = self._tanh = None

    def _by_heads(self, x: Any) -> Any:
        """[B, H, n, ...] of [B H, n, ...]."""
        return x.reshape(self.batch, -1, *x.shape[-2:])

    def _multiplied(self, left: Any, right: Any, out: Any) -> Any:
        """A product: the scores, or after a softmax the heads' outputs."""
        if self._open is None:
            if left.shape[-2] == right.shape[-1]:
                self._scores = (left, right)
            return out
        if left.shape[-1] != self._open.logits.shape[-1]:
            return out
        self._open.values = self._by_heads(right)
        self.calls.append(self._open)
        self._open = None
        return out if self.probe is None else self.probe.to(out.dtype).reshape(out.shape).clone()


class PlainEinsum(TorchFunctionMode):
    """Computes einsum of two tensors as one batched product. torch itself does so unless an axis has size 1."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.functional.einsum and len(args) == 3 and "." not in args[0]:
            return self.product(*args)
        return func(*args, **(kwargs or {}))

    @staticmethod
    def product(equation: str, left: Any, right: Any) -> Any:
        """The einsum of two tensors; an axis that is summed in one tensor alone, repeated or widened is left to torch."""
        (a, b), _, out = (x.split(",") for x in equation.replace(" ", "").partition("->"))
        every = [*a, *b]
        alone = [x for x in every if every.count(x) == 1 and x not in out[0]]
        widened = [x for x in a if x in b and left.shape[a.index(x)] != right.shape[b.index(x)]]
        if not out[0] or alone or widened or len({*a}) < len(a) or len({*b}) < len(b):
            return torch.einsum(equation, left, right)
        batch = [x for x in a if x in b and x in out[0]]
        rows, summed = [x for x in a if x not in b], [x for x in a if x in b and x not in out[0]]
        columns = [x for x in b if x not in a]
        sizes = dict(zip(every, [*left.shape, *right.shape], strict=True))
        left = left.permute([a.index(x) for x in (*batch, *rows, *summed)])
        right = right.permute([b.index(x) for x in (*batch, *summed, *columns)])
        B, R, S, C = (prod(sizes[x] for x in letters) for letters in (batch, rows, summed, columns))
        found = torch.bmm(left.reshape(B, R, S), right.reshape(B, S, C))
        order = [*batch, *rows, *columns]
        return found.reshape([sizes[x] for x in order]).permute([order.index(x) for x in out[0]])


@contextmanager
def plain_products(trace: AttentionTrace) -> Iterator[AttentionTrace]:
    """Runs torch's fused attentions as products that `trace` sees."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), PlainEinsum(), trace:
            yield trace
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def attention_calls(module: Any, tokens: Any) -> list[Call]:
    """All attention calls of `module` on tokens [B, n]."""
    with plain_products(AttentionTrace(len(tokens))) as trace:
        module(tokens)
    return trace.calls


def output_at(module: Any, spot: Any, tokens: Any, trace: AttentionTrace | None = None) -> Any:
    """The output of the submodule `spot` when `module` runs on tokens [B, n]; trace: what sees, or changes, its attention."""

    def reached(_: Any, __: Any, output: Any) -> None:
        raise Reached(output[0] if isinstance(output, tuple | list) else getattr(output, "last_hidden_state", output))

    handle = spot.register_forward_hook(reached)
    try:
        with torch.no_grad() if trace is None else plain_products(trace):
            module(tokens)
    except Reached as end:
        return end.found
    finally:
        handle.remove()
    raise MalformedInput("the module named by upto does not run on tokens")


def submodule(twin: Any, upto: str | None, tokens: np.ndarray) -> tuple[str, Any]:
    """Name and submodule whose output is asked for; without a name the innermost that computes the first attention."""
    names: dict[Any, str] = {part: name for name, part in twin.named_modules()}
    if upto is not None:
        try:
            spot = attrgetter(upto)(twin)
        except AttributeError:
            spot = None
        if not isinstance(spot, torch.nn.Module):
            close = get_close_matches(upto, names.values(), 3, 0.4)
            raise MalformedInput(f"upto {upto!r} names no submodule; close are {', '.join(close) or 'none'}")
        return upto, spot
    running: list[Any] = []
    handles = [part.register_forward_pre_hook(lambda part, _: running.append(part)) for part in names]
    handles += [part.register_forward_hook(lambda *_: running.__delitem__(-1)) for part in names]
    try:
        with plain_products(AttentionTrace(len(tokens), running=running)):
            twin(torch.from_numpy(tokens))
    except Reached as end:
        return names[end.found], end.found
    finally:
        for handle in handles:
            handle.remove()
    raise MalformedInput(UNSEEN)


class TracedPart:
    """The module, run up to the attention output, on token numbers 0 ... T-1."""

    def __init__(self, twin: Any, spot: Any, name: str, ids: np.ndarray, positions: int) -> None:
        self.twin, self.spot, self.name, self.ids, self.positions = twin, spot, name, ids, positions
        self.single = self.wide = False
        self.wide = self.call(np.zeros((1, positions), dtype=np.int64)).queries.dtype == torch.float32

    @property
    def widened(self) -> str:
        """Which of the module's own types are replaced, for people."""
        what = "queries, keys, logits and softmax" if self.wide else "softmax"
        return f", with {what} in float64 (its own are in float32)" if self.single else ""

    def _output(self, tokens: np.ndarray, trace: AttentionTrace | None) -> np.ndarray:
        """The output [batch, n, D] for tokens [batch, n]."""
        with callers_code(f"{self.name} is not reached on tokens {list(tokens.shape)}"):
            out = output_at(self.twin, self.spot, torch.from_numpy(self.ids[tokens]), trace)
        if not isinstance(out, torch.Tensor) or out.shape[:2] != tokens.shape or out.ndim != 3:
            raise MalformedInput(f"the output at {self.name} is not [batch, n, width] for tokens [batch, n]")
        return np.asarray(out.detach().double().numpy())

    def _traced(self, tokens: np.ndarray, probe: Any = None) -> tuple[Call, np.ndarray]:
        """The one attention call on tokens [batch, n], and the output; probe: in place of the heads' outputs."""
        trace = AttentionTrace(len(tokens), probe, self.wide)
        out = self._output(tokens, trace)
        self.single = trace.single
        if len(trace.calls) != 1:
            raise MalformedInput(
                f"{len(trace.calls)} attentions are computed up to {self.name}: upto has to name the output of the first "
                "layer's attention. Later layers read norms and MLPs of what attention mixed, which no theorem here serves"
            )
        return trace.calls[0], out

    def call(self, tokens: np.ndarray) -> Call:
        """The one attention call on tokens [batch, n]."""
        return self._traced(tokens)[0]

    def asked(self, tokens: np.ndarray) -> np.ndarray:
        """Token numbers [batch, n] -> activations [batch, n, D]: the module's own, but for what `widened` says."""
        return self._output(tokens, AttentionTrace(len(tokens), None, self.wide) if self.single else None)

    def rows(self, max_memory: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Queries, keys and values [T P, H, d] of every token at every position."""
        T, P, parts = len(self.ids), self.positions, []
        first = self.call(np.zeros((1, P), dtype=np.int64))
        H, d = first.queries.shape[1], max(first.queries.shape[-1], first.values.shape[-1])
        require_memory(8 * 6 * T * P * H * d, f"the rows of {T} tokens at {P} positions", max_memory)
        step = max(1, LOGITS // (H * P * P))
        for start in range(0, T, step):
            numbers = np.arange(start, min(T, start + step))
            call = self.call(np.repeat(numbers[:, None], P, axis=1))
            held = (call.queries, call.keys, call.values)
            parts.append([x.transpose(1, 2).flatten(0, 1).double().numpy() for x in held])
        q, k, v = (np.concatenate(part) for part in zip(*parts, strict=True))
        return q, k, v

    def output(self, heads: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """W_O [H, d_v, D] and the bias [D], by probes in place of the heads' outputs."""
        P, count = self.positions, heads * width
        batch = -(-(count + 2) // P) + 1
        slots = np.zeros((batch * P, count))
        slots[1 : count + 1] = np.eye(count)
        probe = torch.from_numpy(slots.reshape(batch, P, heads, width).transpose(0, 2, 1, 3).copy())
        tokens = (np.arange(batch)[:, None] + np.arange(P)) % len(self.ids)
        out = self._traced(tokens, probe)[1].reshape(batch * P, -1)
        bias, rest = out[0], out[count + 1 :]
        if np.abs(rest - bias).max() > 1e-12 * max(1.0, float(np.abs(out).max())):
            raise MalformedInput(
                f"the output at {self.name} holds more than the attention's: with all heads at zero it differs from token to "
                "token (a residual stream, say). Name the module of the output's matrix instead, by upto: "
                + ", ".join(f"{self.name}.{name}" for name, _ in self.spot.named_modules() if name)
            )
        return (out[1 : count + 1] - bias).reshape(heads, width, -1), bias
