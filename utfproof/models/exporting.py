"""A host with its embedding as one short Python file that needs PyTorch and safetensors, and a safetensors file beside it.

The file holds a plain torch.nn.Module: the host's parameters are buffers (fixed), E is a parameter (the program). Index
maps are exported as the rows and columns of their ones, int32, and applied by a gather and a sum; dense parameters in
float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention import SoftmaxAttention
from utfproof.errors import MalformedInput, NotDefined
from utfproof.models.attention import Kernel, LayerAttention, ModelAttention
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.util.files import write_bytes
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix

HEAD = "A fixed transformer with one embedding, as a plain torch.nn.Module"
"""How an exported module begins: another export may replace such a file, and no other."""
TEMPLATE = '''"""{head}: it needs PyTorch and safetensors.

    model = Host()                  # reads the safetensors file of the same name beside this file
    y = model(tokens)               # integers [..., n] among {vocabulary} tokens -> outputs [..., n, {d_out}]
    y = model(x)                    # or any inputs x [..., n, {d_in}] in the module's own number type
    model.E                         # the program; everything else is fixed

Rows are tokens and matrices act on the right. Shape: {shape}, m = {m}.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

HEADS, LAYERS, RESIDUAL, TIED = {heads}, {layers}, {residual}, {tied}
VOCABULARY, POSITIONS = {vocabulary}, {positions}
LONGEST = {longest}  # the longest context that was compared with the model; None: any
SCALE = {scale!r}
ATTENTION = {attention}
MLP = {activation!r}  # its activation; None: the host has no MLPs


class Host(nn.Module):
    def __init__(self, weights=Path(__file__).with_suffix(".safetensors")):
        super().__init__()
        tensors = load_file(weights)
        self.E = nn.Parameter(tensors.pop("E"))
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def times(self, x, name):
        """x R for the parameter of this name: dense, two dense factors, or the places of its ones."""
        if hasattr(self, name):
            return x @ getattr(self, name)
        if hasattr(self, name + "_left"):
            return x @ getattr(self, name + "_left") @ getattr(self, name + "_right")
        rows, columns = getattr(self, name + "_rows"), getattr(self, name + "_columns")
        out = x.new_zeros(*x.shape[:-1], int(getattr(self, name + "_width")))
        return out.index_add(-1, columns, x.index_select(-1, rows))

    def mlp(self, x, layer):
        """The host's MLP, gated or not, with the biases that it has."""
        held = {{name[4:]: part[layer].to(x.dtype) for name, part in self.named_buffers() if name.startswith("mlp_")}}
        inner = x @ held["W_in"] + held.get("b_in", 0)
        gate = x @ held["W_gate"] + held.get("b_gate", 0) if "W_gate" in held else inner
        kind, _, approximate = MLP.partition("-")
        gate = getattr(nn.functional, kind)(gate, **({{"approximate": approximate}} if approximate else {{}}))
        return (gate * inner if "W_gate" in held else gate) @ held["W_out"] + held.get("b_out", 0)

    def attention(self, queries, keys, layer, head):
        by = ATTENTION[layer]
        logits = SCALE * (queries @ keys.transpose(-1, -2))
        n = logits.shape[-1]
        places = torch.arange(n, device=logits.device)
        distance = places[:, None] - places[None, :]
        if by["cap"] is not None:
            logits = by["cap"] * torch.tanh(logits / by["cap"])
        if by["bias"]:
            logits = logits + getattr(self, f"bias_{{layer}}")[head, :n, :n].to(logits.dtype)
        if by["causal"]:
            logits = logits.masked_fill(distance < 0, float("-inf"))
        if by["window"] is not None:
            logits = logits.masked_fill(distance.abs() >= by["window"], float("-inf"))
        return torch.softmax(logits, dim=-1)

    def rows(self, tokens):
        """The rows of E that these tokens read."""
        if hasattr(self, "ids"):
            same = tokens[..., None] == self.ids
            if not same.any(-1).all():
                raise ValueError("tokens that are not among the ids of this part")
            tokens = same.int().argmax(-1)
        if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= VOCABULARY):
            raise ValueError(f"tokens outside 0 ... {{VOCABULARY - 1}}")
        n = tokens.shape[-1]
        if hasattr(self, "ids"):
            return self.E[tokens * POSITIONS + torch.arange(n, device=tokens.device)]
        return self.E[tokens] + (self.E[VOCABULARY : VOCABULARY + n] if POSITIONS else 0)

    def forward(self, x):
        length = x.shape[-2 if x.is_floating_point() else -1]
        if LONGEST is not None and length > LONGEST:
            raise ValueError(f"{{length}} tokens, compared with the model on at most {{LONGEST}}")
        x = x @ self.E if x.is_floating_point() else self.rows(x)
        for layer in range(LAYERS):
            out = x if RESIDUAL else 0
            for head in range(HEADS):
                at = f"_{{head}}" if TIED else f"_{{layer}}_{{head}}"
                pattern = self.attention(self.times(x, "R_Q" + at), self.times(x, "R_K" + at), layer, head)
                out = out + self.times(pattern @ x, "R_V" + at)
            x = out if MLP is None else out + self.mlp(out, layer)
        return self.times(x, "U")
'''


def require_own(path: Path) -> None:
    """MalformedInput, before any work, if an export to this .py file would replace files that no export has written."""
    there = [file for file in (path, path.with_suffix(".safetensors")) if file.exists()]
    try:
        own = path.exists() and HEAD.encode() in path.read_bytes()[: 2 * len(HEAD)]
    except OSError as error:
        raise MalformedInput(f"cannot read {path}, which would be replaced: {error.strerror or error}") from error
    if there and not own:
        raise MalformedInput(
            f"{there[0]} is there and was not written by utfproof export; choose another name, or move it away"
        )


def _stored(name: str, matrices: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """The tensors of one parameter."""
    if len(matrices) == 2:
        left, right = (np.asarray(matrix, dtype=np.float64) for matrix in matrices)
        return {name + "_left": left, name + "_right": right}
    matrix = matrices[0]
    if not isinstance(matrix, SelectionMatrix):
        held = matrix.materialise() if hasattr(matrix, "materialise") else matrix
        return {name: np.asarray(held, dtype=np.float64)}
    rows, columns = matrix.coordinates()
    return {
        name + "_rows": rows.astype(np.int32),
        name + "_columns": columns.astype(np.int32),
        name + "_width": np.array(matrix.shape[1], dtype=np.int32),
    }


def _layers(kernel: Kernel, shape: Shape) -> tuple[LayerAttention, ...]:
    """Each layer's attention. MalformedInput where it is not for this shape, NotDefined for ALiBi and RoPE by formula."""
    if isinstance(kernel, ModelAttention):
        kernel.require_fit(shape.heads, shape.head_dim, shape.layers)
        layers, formula = kernel.layers, any(layer.rope_base is not None for layer in kernel.layers)
    else:
        layers = (LayerAttention(kernel.causal, kernel.window),) * shape.layers
        formula = kernel != SoftmaxAttention(kernel.scale, kernel.causal, kernel.window)
    if formula:
        raise NotDefined("modules are exported for softmax attention with a scale, a causal mask and a window")
    return layers


def _arrays(host: Universal, layers: tuple[LayerAttention, ...]) -> dict[str, np.ndarray]:
    """The host's parameters and the tables of its attention, by the names that the module's text has."""
    shape, arrays = host.shape, _stored("U", (host.U,))
    for layer in range(1 if host.tied else shape.layers):
        for head in range(shape.heads):
            maps, at = host.maps(layer, head), f"_{head}" if host.tied else f"_{layer}_{head}"
            arrays |= _stored("R_Q" + at, (maps.query,)) | _stored("R_K" + at, (maps.key,))
            arrays |= _stored("R_V" + at, tuple(maps.value))
    for name, array in host.mlp.arrays.items() if host.mlp is not None else ():
        one = np.asarray(array, dtype=np.float64)
        one = one[None] if one.ndim == 1 + (name[0] == "W") else one  # tied weights have no axis of layers
        arrays[f"mlp_{name}"] = np.broadcast_to(one, (shape.layers, *one.shape[1:]))
    for number, by in enumerate(layers):
        if by.bias is not None:
            arrays[f"bias_{number}"] = by.bias
    return arrays


def write_module(
    path: Path | str,
    host: Universal,
    E: np.ndarray,
    kernel: Kernel,
    *,
    vocabulary: int,
    positions: int,
    ids: np.ndarray | None = None,
    context: int | None = None,
    max_memory: int | None = None,
) -> Path:
    """Write `path` (a .py file with a torch.nn.Module named Host) and the safetensors file of the same name beside it, which is
    returned. ids: the model's own ids of the tokens, where E has a row for every token at every position; context:
    the longest that was compared with the model, beyond which the module refuses. NotDefined for ALiBi and
    RoPE; ResourceLimit before anything is allocated."""
    path = Path(path)
    if path.suffix != ".py":
        raise MalformedInput(f"a module is written to a .py file, got {path}")
    require_own(path)
    from safetensors.numpy import save

    shape = host.shape
    if E.shape != (shape.d_in, host.m):
        raise MalformedInput(f"E has shape {list(E.shape)}, this host needs [{shape.d_in}, {host.m}]")
    rows = vocabulary + positions if ids is None else vocabulary * positions
    if rows != shape.d_in or vocabulary < 1 or positions < 0:
        raise MalformedInput(f"{vocabulary} tokens and {positions} positions are not the {shape.d_in} rows of E")
    layers = _layers(kernel, shape)
    tables = [int(layer.positions()) for layer in layers if layer.positions() < math.inf]
    require_memory(24 * shape.d_in * host.m, f"exporting a host at {shape}, m = {host.m},", max_memory)
    arrays = {"E": np.asarray(E, dtype=np.float64), **_arrays(host, layers)}
    arrays |= {"ids": ids.astype(np.int64)} if ids is not None else {}
    by = ({**asdict(layer), "bias": layer.bias is not None} for layer in layers)
    text = TEMPLATE.format(
        head=HEAD,
        d_in=shape.d_in,
        d_out=shape.d_out,
        shape=shape,
        m=host.m,
        heads=shape.heads,
        layers=shape.layers,
        residual=shape.residual or host.mlp is not None,
        activation=None if host.mlp is None else host.mlp.activation,
        tied=host.tied,
        vocabulary=vocabulary,
        positions=positions,
        longest=min([n for n in (positions, context, *tables) if n], default=None),
        scale=kernel.factor(shape.head_dim) if isinstance(kernel, SoftmaxAttention) else 1.0,
        attention="[\n    " + ",\n    ".join(map(repr, by)) + ",\n]",
    )
    weights = path.with_suffix(".safetensors")
    write_bytes(weights, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    write_bytes(path, text.encode())
    return weights
