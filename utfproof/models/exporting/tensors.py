"""Tensors of an exported host: safetensors of mixed types, and the host under TransformerLens' names.

A TransformerLens model is X <- X + sum_h A^h X W_V^h W_O^h with W_V [m, d_head], W_O [d_head, m], so a host with a residual
stream has that form as soon as d_head is no smaller than d and than the inner width of its R_V: W_V = R_V, W_O = I for a
dense one (d_head = m), the two factors of a factored one, and one column per unit entry of an index map. Queries and keys
are padded with zero columns. A host without a residual stream has no such form: nothing there takes the stream away again.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention.causal import Causal
from utfproof.attention.scale import Scale
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.files import atomic_file
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.models.attention import Kernel, ModelAttention
from utfproof.models.settings import WHOLE
from utfproof.systems import Universal, dense

_TYPES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32", "|i1": "I8", "|b1": "BOOL"}


MODULE_HEAD = "A fixed transformer with one embedding, as a plain torch.nn.Module"
"""How an exported module begins."""
MARK = {"written_by": "utfproof export"}
"""Metadata of every file of tensors that is exported: another run may replace such a file, and no other."""
HEADER = 1 << 20
"""Bytes read to look for the mark; exported headers are far shorter, and metadata comes first in them."""


def require_own(*paths: Path) -> None:
    """MalformedInput, before any work, where an export would take the place of a file that none has written."""
    for path in paths:
        try:
            with path.open("rb") as stream:
                start = stream.read(HEADER)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise MalformedInput(f"cannot read {path}, which would be replaced: {error.strerror or error}") from error
        if (
            MODULE_HEAD.encode() not in start[:200]
            and json.dumps(MARK, separators=(",", ":"))[1:-1].encode() not in start
        ):
            raise MalformedInput(
                f"{path} is there and was not written by utfproof export; choose another name, or move it away"
            )


def write_arrays(path: Path | str, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """A safetensors file of arrays of float64, float32, int64, int32, int8 or bool; the same arrays give the same bytes.
    Wider types come first, so that every array is aligned."""
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    held = {name: array.reshape(arrays[name].shape) for name, array in held.items()}
    order = sorted(held, key=lambda name: (-held[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted({**metadata, **MARK}.items()))}
    offset = 0
    for name in order:
        array = held[name]
        kind = _TYPES.get(array.dtype.newbyteorder("<").str)
        if kind is None:
            raise MalformedInput(f"{name} has type {array.dtype}, which is not exported")
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            stream.write(held[name].astype(held[name].dtype.newbyteorder("<"), copy=False).tobytes())


def require_embedding(host: Universal, E: np.ndarray, vocabulary: int, positions: int) -> None:
    """MalformedInput unless E [d_in, m] fits the host and its rows are these tokens and positions."""
    if E.ndim != 2 or E.shape != (host.shape.d_in, host.m):
        raise MalformedInput(f"E has shape {list(E.shape)}, this host needs [{host.shape.d_in}, {host.m}]")
    if vocabulary + positions != host.shape.d_in or vocabulary < 1 or positions < 0:
        raise MalformedInput(
            f"{vocabulary} tokens and {positions} positions are not the d_in = {host.shape.d_in} rows of E"
        )


def _inner_width(host: Universal) -> int:
    """Columns that the widest R_V needs as a product."""
    width = 0
    for layer in range(1 if host.tied else host.shape.layers):
        for head in range(host.shape.heads):
            value = host.maps(layer, head).value
            if len(value) == 2:
                width = max(width, int(value[0].shape[1]))
            else:
                width = max(width, value[0].nonzeros if isinstance(value[0], SelectionMatrix) else host.m)
    return width


def _value_factors(value: Any, m: int) -> tuple[np.ndarray, np.ndarray]:
    """R_V as [m, k] times [k, m], exactly."""
    if len(value) == 2:
        return dense(value[0]), dense(value[1])
    if not isinstance(value[0], SelectionMatrix):
        return np.asarray(value[0]), np.eye(m)
    rows, columns = value[0].coordinates()
    numbers = np.arange(len(rows))
    left, right = np.zeros((m, len(rows))), np.zeros((len(rows), m))
    left[rows, numbers] = right[numbers, columns] = 1
    return left, right


def transformer_lens_tensors(
    host: Universal,
    E: np.ndarray,
    kernel: Kernel,
    *,
    vocabulary: int,
    positions: int,
    context: int = 64,
    max_memory: int | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(tensors, metadata) of the host with E [V + P, m] under TransformerLens' names, float64, all biases zero.

    Without learned positions W_pos is zero for `context` of them. W_Q holds the factor sqrt(d_head) that TransformerLens
    divides logits by. NotDefined for hosts without a residual stream and for attention with other parts than a scale and a
    causal mask; ResourceLimit before allocating.
    """
    shape, m = host.shape, host.m
    require_embedding(host, E, vocabulary, positions)
    host.require_attention_only("this layout of tensors")
    if not shape.residual:
        raise NotDefined("TransformerLens models have a residual stream and this host has none: no such tensors exist")
    if isinstance(kernel, ModelAttention) or not all(isinstance(part, Scale | Causal) for part in kernel.parts):
        raise NotDefined("TransformerLens tensors are written for softmax and causal attention, scaled or not")
    d, d_head = shape.head_dim, max(shape.head_dim, _inner_width(host))
    per_head = 4 * m * d_head
    require_memory(
        8 * shape.layers * shape.heads * per_head, f"TransformerLens tensors at {shape}, d_head = {d_head},", max_memory
    )
    rows = max(positions, 0) or context
    tensors: dict[str, np.ndarray] = {
        "embed.W_E": E[:vocabulary],
        "pos_embed.W_pos": E[vocabulary:] if positions else np.zeros((rows, m)),
        "unembed.W_U": dense(host.U),
        "unembed.b_U": np.zeros(shape.d_out),
    }
    for layer in range(shape.layers):
        W_Q, W_K, W_V = (np.zeros((shape.heads, m, d_head)) for _ in range(3))
        W_O = np.zeros((shape.heads, d_head, m))
        for head in range(shape.heads):
            maps = host.maps(layer, head)
            W_Q[head, :, :d] = dense(maps.query) * (math.sqrt(d_head) * kernel.factor(d))
            W_K[head, :, :d] = dense(maps.key)
            left, right = _value_factors(maps.value, m)
            W_V[head, :, : left.shape[1]] = left
            W_O[head, : left.shape[1]] = right
        prefix = f"blocks.{layer}.attn."
        tensors |= {
            prefix + name: array for name, array in zip(("W_Q", "W_K", "W_V", "W_O"), (W_Q, W_K, W_V, W_O), strict=True)
        }
        tensors |= {f"{prefix}b_{kind}": np.zeros((shape.heads, d_head)) for kind in "QKV"}
        tensors[prefix + "b_O"] = np.zeros(m)
    metadata = {
        "n_layers": str(shape.layers),
        "n_heads": str(shape.heads),
        "d_model": str(m),
        "d_head": str(d_head),
        "d_vocab": str(vocabulary),
        "d_vocab_out": str(shape.d_out),
        "n_ctx": str(rows),
        "attention_dir": "causal" if kernel.causal else "bidirectional",
        "attn_only": "true",
        "use_attn_scale": "true",
        "attn_scale": repr(math.sqrt(d_head)),
        "use_local_attn": "false",
        "attn_scores_soft_cap": "-1.0",
        "normalization_type": "none",
        "positional_embedding_type": "standard",
        "output_logits_soft_cap": "-1.0",
        **{name: "false" for name in WHOLE if name != "attn_only"},
    }
    return {name: np.asarray(array, dtype=np.float64) for name, array in tensors.items()}, metadata
