"""Exported modules, read back: a live `Host` is a model like any other, with the host's width and E for its embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utfproof.ground.resources import require_memory
from utfproof.models.attention import LayerAttention, ModelAttention, Rotary
from utfproof.models.family import Family
from utfproof.models.norms import OwnNorm
from utfproof.models.reading import Reading
from utfproof.weights import TensorFile

CONSTANTS = ("HEADS", "LAYERS", "RESIDUAL", "TIED", "VOCABULARY", "POSITIONS", "SCALE", "NORM", "PAIRS", "ATTENTION")
"""What the text of an exported module says and its tensors do not show."""
FAMILY = Family(
    name="exported",
    title="a module that utfproof export wrote",
    layer={},
    outer={},
    outer_names={},
    marks=(),
    config={},
)


def exported_constants(module: Any) -> dict[str, Any] | None:
    """The constants in the text of an exported module; None for any other module."""
    known: Mapping[str, Any] = getattr(type(module).forward, "__globals__", {})
    if not (hasattr(module, "E") and hasattr(module, "times") and all(name in known for name in CONSTANTS)):
        return None
    return {name: known[name] for name in CONSTANTS}


def read_exported(file: TensorFile, said: Mapping[str, Any], norms: bool = False) -> Reading:
    """The model that an exported module is: W_V W_O = R_V, by its two factors, by the places of its ones, or with W_O = I.
    norms: whether one with a norm of its own is wanted. MalformedInput where tensors are missing or do not fit;
    ResourceLimit before they are padded to one width."""
    own, pairs = said["NORM"], said["POSITIONS"] if said["PAIRS"] else 0
    if norms != (own is not None):
        raise file.refuse(
            "its text says no norm of its own"
            if norms
            else "its text says a norm of its own: from_normalised_model reads it back"
        )
    tensors, H, L, V = file.tensors, said["HEADS"], said["LAYERS"], said["VOCABULARY"] * (pairs or 1)
    E = _tensor(file, "E")
    m, names = E.shape[1], [[_at(said, layer, head) for head in range(H)] for layer in range(L)]
    if len(E) != V + (0 if pairs else said["POSITIONS"]):
        raise file.refuse(
            f"E has {len(E)} rows, its text says {said['VOCABULARY']} tokens and {said['POSITIONS']} positions"
        )
    values = [[_factors(file, "R_V" + at, m) for at in row] for row in names]
    queries, keys = ([[_dense(file, part + at, m) for at in row] for row in names] for part in ("R_Q", "R_K"))
    width = max(array.shape[1] for row in (*queries, *(tuple(v[0] for v in row) for row in values)) for array in row)
    require_memory(32 * L * H * m * width, f"reading a module of {L} x {H} heads, m = {m},", None)
    arrays = {f"b_{kind}": np.zeros((L, H, width)) for kind in "QKV"}
    arrays |= {"W_E": E[:V], "W_pos": E[V:], "W_U": _dense(file, "U", m), "b_O": np.zeros((L, m))}
    arrays["b_U"] = _tensor(file, "constant") if "constant" in tensors else np.zeros(arrays["W_U"].shape[1])
    arrays |= {"W_Q": _padded(queries, m, width), "W_K": _padded(keys, m, width)}
    arrays["W_V"] = _padded([[left for left, _ in row] for row in values], m, width)
    arrays["W_O"] = _padded([[right.T for _, right in row] for row in values], m, width).swapaxes(2, 3)
    attention = ModelAttention(tuple(_attention(file, by, layer) for layer, by in enumerate(said["ATTENTION"])))
    if len(attention.layers) != L:
        raise file.refuse(f"its text says {L} layers, and the attention of {len(attention.layers)}")
    source = "the module's text"
    assumptions = {
        "logits times": f"{said['SCALE']} ({source})",
        "residual stream": f"{'yes' if said['RESIDUAL'] else 'no'} ({source})",
        "attention": f"{attention.words()} ({source})",
    }
    taken = {
        role: name for role, name in (("W_E", "E"), ("W_pos", "E"), ("W_U", "U")) if name in tensors or role != "W_U"
    }
    factors = (float(said["SCALE"]),) * L
    stream = bool(said["RESIDUAL"])
    norm = (
        None
        if own is None
        else OwnNorm(own["kind"], float(own["eps"]), "end" in own["places"], "layer" in own["places"])
    )
    if norm is not None:
        assumptions["normalisation"] = f"{norm.words()} ({source})"
    return Reading(
        FAMILY, arrays, factors, attention, stream, False, (), taken, (), assumptions, (), (), norm=norm, pairs=pairs
    )


def _at(said: Mapping[str, Any], layer: int, head: int) -> str:
    return f"_{head}" if said["TIED"] else f"_{layer}_{head}"


def _tensor(file: TensorFile, name: str) -> np.ndarray:
    if name not in file.tensors:
        raise file.refuse(f"tensor {name} is missing")
    return file.tensors[name]


def _factors(file: TensorFile, name: str, m: int) -> tuple[np.ndarray, np.ndarray]:
    """A value map as [m, k] times [k, m]."""
    if name + "_left" in file.tensors:
        return _tensor(file, name + "_left"), _tensor(file, name + "_right")
    if name in file.tensors:
        return file.tensors[name], np.eye(m)
    rows, columns = (_tensor(file, name + part).astype(np.int64) for part in ("_rows", "_columns"))
    left, right = np.zeros((m, len(rows))), np.zeros((len(rows), m))
    left[rows, np.arange(len(rows))] = right[np.arange(len(rows)), columns] = 1
    return left, right


def _dense(file: TensorFile, name: str, m: int) -> np.ndarray:
    """A reader [m, k]."""
    if name in file.tensors:
        return file.tensors[name]
    rows, columns = (_tensor(file, name + part).astype(np.int64) for part in ("_rows", "_columns"))
    out = np.zeros((m, int(_tensor(file, name + "_width"))))
    np.add.at(out, (rows, columns), 1)
    return out


def _padded(grid: list[list[np.ndarray]], m: int, width: int) -> np.ndarray:
    """[L, H, m, width] of matrices of fewer columns."""
    out = np.zeros((len(grid), len(grid[0]), m, width))
    for layer, row in enumerate(grid):
        for head, matrix in enumerate(row):
            out[layer, head, :, : matrix.shape[1]] = matrix
    return out


def _attention(file: TensorFile, by: Mapping[str, Any], layer: int) -> LayerAttention:
    rotary = None
    if by["rotary"]:
        rotary = Rotary(_tensor(file, f"cos_{layer}"), _tensor(file, f"sin_{layer}"), by["adjacent"])
    return LayerAttention(by["causal"], by["window"], by["cap"], tuple(by["slopes"]), by["single"], rotary)
