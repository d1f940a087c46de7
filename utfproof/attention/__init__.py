"""Attention kernels: (queries, keys, positions) -> attention matrix, shared by targets and hosts.

Axis letters: n tokens, d head dimension. Queries and keys are [n, d], the result is [n, n] with rows summing to 1.
A kernel sees the layer and head too (ALiBi's slopes, matrices given from outside). Every kernel here is a function
of queries, keys and positions alone, so the emulation lemma applies to all of them; those with
`logits_only` depend on q k^T alone, which the attention-matching hosts need.
"""

from __future__ import annotations

from typing import Protocol

from utfproof.attention.chunked import KEY_BLOCK, ChunkedAttention, blocked_product
from utfproof.attention.outside import GivenAttention, RationalAttention, SeededAttention
from utfproof.attention.softmax import KERNEL_NAMES, SoftmaxAttention, like, softmax, visible
from utfproof.errors import MalformedInput
from utfproof.util.arrays import Array

__all__ = [
    "EVERY_KERNEL",
    "KERNEL_NAMES",
    "KEY_BLOCK",
    "AttentionKernel",
    "ChunkedAttention",
    "GivenAttention",
    "RationalAttention",
    "SeededAttention",
    "SoftmaxAttention",
    "attend",
    "blocked_product",
    "like",
    "named_kernel",
    "parse_kernel",
    "softmax",
    "visible",
]


class AttentionKernel(Protocol):
    """What a forward pass asks of a kernel."""

    @property
    def logits_only(self) -> bool:
        """True if the attention matrix depends on queries and keys through q k^T only."""
        ...

    def __call__(self, queries: Array, keys: Array, positions: Array, *, layer: int, head: int) -> Array:
        """Attention matrix [n, n]; layer and head count from 0, positions [n] are integers."""
        ...


def attend(
    kernel: AttentionKernel, queries: Array, keys: Array, x: Array, positions: Array, *, layer: int, head: int
) -> Array:
    """The attention matrix times the rows of x [..., n, width]: by the kernel's own `attended` where it has one."""
    attended = getattr(kernel, "attended", None)
    if attended is not None:
        return attended(queries, keys, x, positions, layer=layer, head=head)
    return kernel(queries, keys, positions, layer=layer, head=head) @ x


EVERY_KERNEL = (*(name.replace(":W", ":64") for name in KERNEL_NAMES), "scaled+causal+alibi", "given")
"""One of each kind, and matrices from outside: what `--attention all` means."""


def named_kernel(text: str, heads: int) -> SoftmaxAttention | SeededAttention:
    """A kernel from its command-line name, whether or not heads are fit for it. MalformedInput for an unknown name."""
    if text.strip() == "given":
        return SeededAttention()
    return SoftmaxAttention.named(text, heads)


def parse_kernel(text: str, heads: int, head_dim: int) -> SoftmaxAttention | SeededAttention:
    """A kernel from its command-line name: 'softmax', or parts joined by '+', as in 'scaled+causal+window:8'; or 'given',
    row-stochastic matrices from outside.

    scaled is 1/sqrt(d); alibi uses slopes for `heads` heads; rope needs an even `head_dim`. MalformedInput otherwise.
    """
    kernel = named_kernel(text, heads)
    if reason := kernel.unfit(head_dim):
        raise MalformedInput(reason)
    return kernel
