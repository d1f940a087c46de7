"""Dense hosts with better conditioned R_all than i.i.d. entries give.

They come from floating-point QR factors, so a seed does not name them bit for bit on every machine: `construction` is
empty, and what certifies one is a file of its weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from utfproof.constructions import build_host, dense_bytes
from utfproof.errors import MalformedInput, NotDefined
from utfproof.ground.generator import check_seed, weight_matrix
from utfproof.ground.resources import require_memory
from utfproof.shapes import Shape, matching_dimension, positive_integer, require_plain
from utfproof.systems import TiedUniversal, Universal


def orthonormal(seed: int, tensor: str, rows: int, columns: int, *, layer: int = 0, head: int = 0) -> np.ndarray:
    """Orthonormal columns [rows, columns], rows >= columns, from the nearly Gaussian binomial law (nearly Haar)."""
    drawn = weight_matrix(seed, tensor, rows, columns, law="binomial", layer=layer, head=head)
    orthogonal, triangle = np.linalg.qr(drawn)
    signs = np.where(np.diag(triangle) < 0, -1.0, 1.0)  # else the law would depend on LAPACK's choice of signs
    result: np.ndarray = orthogonal * signs
    return result


def _checked(shape: Shape, m: int, seed: int, tied: bool, max_memory: int | None) -> int:
    check_seed(seed)
    require_plain(shape, "a host from QR factors")
    m, M = positive_integer("m", m), matching_dimension(shape)
    if m < M:
        raise NotDefined(f"a host that is universal by matching at {shape} needs m >= {M}, got {m}")
    require_memory(dense_bytes(shape, m, tied=tied) + 32 * m * m, f"a dense host at {shape}, m = {m},", max_memory)
    return m


def orthogonal_host(
    shape: Shape, m: int, *, seed: int = 0, tied: bool = False, gain: float = 1.0, max_memory: int | None = None
) -> Universal:
    """R_V = gain times a random orthogonal matrix; a layer's R_Q, R_K have orthonormal columns together, and so has U.

    Raises NotDefined for m < M and with a residual stream, ResourceLimit before allocating.
    """
    m = _checked(shape, m, seed, tied, max_memory)
    H, d = shape.heads, shape.head_dim
    layers = 1 if tied else shape.layers
    readers = np.empty((layers, 2 * H, m, d))
    values = np.empty((layers, H, m, m))
    for layer in range(layers):
        columns = orthonormal(seed, "R_Q", m, 2 * H * d, layer=layer)
        readers[layer] = np.moveaxis(columns.reshape(m, 2 * H, d), 1, 0)
        for head in range(H):
            values[layer, head] = orthonormal(seed, "R_V", m, m, layer=layer, head=head)
    values *= gain
    U = orthonormal(seed, "U", m, shape.d_out)
    return _host(shape, m, tied, readers[:, :H], readers[:, H:], values, U)


def rotated_host(
    shape: Shape, m: int, *, seed: int = 0, tied: bool = False, gain: float = 1.0, max_memory: int | None = None
) -> Universal:
    """The {0,1} host (`tied`, or `sparse` for untied ones) seen in a random orthonormal basis B: B R_V B^T, B R_Q, B U.

    Dense, and R_all has orthogonal columns up to rounding: at m = M already its condition number is that of a permutation.
    R_V is multiplied by `gain`. Raises NotDefined for m < M, ResourceLimit before allocating.
    """
    m = _checked(shape, m, seed, tied, max_memory)
    designed = build_host("tied" if tied else "sparse", shape, m, max_memory=max_memory)
    basis = orthonormal(seed, "R_V", m, m)
    H, d = shape.heads, shape.head_dim
    layers = 1 if tied else shape.layers
    queries, keys, values = np.empty((layers, H, m, d)), np.empty((layers, H, m, d)), np.empty((layers, H, m, m))
    for layer in range(layers):
        for head in range(H):
            maps = designed.maps(layer, head)
            queries[layer, head] = basis @ maps.query.to_dense(np.float64)
            keys[layer, head] = basis @ maps.key.to_dense(np.float64)
            values[layer, head] = gain * (basis @ maps.value[0].to_dense(np.float64) @ basis.T)
    return _host(shape, m, tied, queries, keys, values, basis @ designed.U.to_dense(np.float64))


def _host(
    shape: Shape, m: int, tied: bool, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, U: np.ndarray
) -> Universal:
    """Tied, or not, from arrays with a leading axis of layers."""
    if tied:
        return TiedUniversal(shape, m, queries[0], keys[0], values[0], U)
    return Universal(shape, m, queries, keys, values, U)


def value_gain(host: Universal) -> float:
    """Root mean square over layers and heads of ||R_V||_F / sqrt(m): how much longer R_V makes a random vector."""
    if host.R_Vo is not None or not isinstance(host.R_V, np.ndarray):
        raise MalformedInput("the gain is that of dense R_V; this host has factors or index maps")
    squares: np.ndarray = np.square(host.R_V, dtype=np.float64).sum(axis=(-2, -1)) / host.m
    return float(np.sqrt(squares.mean()))


def rescaled_host(host: Universal, factor: float) -> Universal:
    """The same host with each R_V multiplied by `factor`: other weights, so `construction` is dropped."""
    if not (np.isfinite(factor) and factor > 0):
        raise MalformedInput(f"the factor of R_V must be positive and finite, got {factor!r}")
    changes: dict[str, Any] = {"R_V": host.R_V * factor, "construction": ""}
    return replace(host, **changes)
