"""Ways to run a host: m-wide or as index maps; on NumPy or a torch device; in a working precision.

Axis letters: n tokens, d head dimension, m embedding dimension.

| engine | what is multiplied |
|---|---|
| m-wide | the dense matrices of the host, whatever they are |
| index-map | only the columns that later layers read, for {0,1} hosts |

The host is the same function in both; rounding differs. Dense products that read the stream (R_Q, R_K, U) are summed in
blocks, which keeps their rounding error small (docs/emulation.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel, attend, blocked_product
from utfproof.errors import MalformedInput
from utfproof.matching import Embedder
from utfproof.systems import Universal
from utfproof.util.arrays import Array, hstack, is_torch, require_device, to_numpy, whole_products
from utfproof.util.resources import require_memory
from utfproof.util.selection import SelectionMatrix

ENGINES = ("m-wide", "index-map")
PRECISIONS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
"""Unit roundoff of each working precision."""
TINY = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126}
"""The least normal number of each."""
_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}

READ_BLOCK = 128
"""Coordinates of the stream summed at a time by R_Q, R_K and U."""


# --- where and in which numbers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """Device and working precision: NumPy for 'cpu' in float64 and float32, torch for everything else.

    Raises MalformedInput for an unknown precision, or a device that is not there.
    """

    device: str = "cpu"
    precision: str = "float64"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise MalformedInput(f"precision {self.precision!r} is unknown; choose {', '.join(PRECISIONS)}")
        if self.uses_torch:
            require_device(self.device)

    @property
    def uses_torch(self) -> bool:
        """Whether arrays are torch tensors."""
        return self.device != "cpu" or self.precision == "bfloat16"

    @property
    def roundoff(self) -> float:
        """Unit roundoff of the working precision."""
        return PRECISIONS[self.precision]

    @property
    def tiny(self) -> float:
        """Least normal number of the working precision."""
        return TINY[self.precision]

    def array(self, values: Any) -> Any:
        """A float array rounded to the working precision, on the device; anything else (index maps, None) as it is."""
        if values is None or isinstance(values, SelectionMatrix):
            return values
        if not self.uses_torch:
            return np.asarray(values).astype(self.precision, copy=False)
        import torch

        tensor = torch.as_tensor(np.ascontiguousarray(values)) if not is_torch(values) else values
        return tensor.to(device=self.device, dtype=getattr(torch, self.precision))

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """The float64 values that `array` holds."""
        if self.precision == "float64":
            return np.asarray(values, dtype=np.float64)
        held = self.array(values)
        return to_numpy(held.double() if is_torch(held) else held).astype(np.float64)

    def strict(self) -> AbstractContextManager[None]:
        """Products in the working precision itself."""
        return whole_products() if self.uses_torch else nullcontext()

    def probe(self, multiply: Callable[[Any, Any], Any] | None = None) -> None:
        """One product whose exact value is known: MalformedInput where it is rounded more than this precision rounds, as
        TF32 does to float32. multiply: the product to try, `@` unless said otherwise."""
        numbers = np.arange(1, 65)
        left = self.rounded(1 + (numbers[None] * 0.6180339887498949 + numbers[:, None] * 0.4142135623730951) % 1)
        right = left.T[:, ::-1]
        with self.strict():
            a, b = self.array(left), self.array(np.ascontiguousarray(right))
            found = a @ b if multiply is None else multiply(a, b)
        product = to_numpy(found.double() if is_torch(found) else found).astype(np.float64)
        error = float(np.abs(product / (left @ right) - 1).max())
        allowed = (left.shape[1] if self.precision != "bfloat16" else 2) * self.roundoff
        if not error <= allowed:
            raise MalformedInput(
                f"products on {self.device} are off by {error:.2g}, {self.precision} allows {allowed:.2g}: is TF32 on? "
                "(torch.backends.cuda.matmul.allow_tf32, NVIDIA_TF32_OVERRIDE)"
            )


_HOST_ARRAYS = ("R_Q", "R_K", "R_V", "U", "R_Vo")
_BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_E", "b_U", "constant")
_TARGET_ARRAYS = ("W_Q", "W_K", "W_V", "W_O", "W_E", "W_U", *_BIASES)


def changed(system: Any, change: Callable[[Any], Any]) -> Any:
    """A host or target with `change` applied to each of its dense arrays; index maps stay as they are."""
    arrays = {name: getattr(system, name, None) for name in (*_HOST_ARRAYS, *_TARGET_ARRAYS)}
    found = {name: change(array) for name, array in arrays.items() if isinstance(array, np.ndarray) or is_torch(array)}
    if getattr(system, "mlp", None) is not None:
        found["mlp"] = system.mlp.changed(change)
    return replace(system, **found) if found else system


# --- m-wide ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockedMatrix:
    """A dense matrix [m, columns] whose products x @ R are summed in blocks of READ_BLOCK coordinates."""

    array: Array

    __array_ufunc__ = None  # NumPy defers `x @ self` to __rmatmul__

    @property
    def shape(self) -> tuple[int, ...]:
        """As the array's."""
        return tuple(self.array.shape)

    def __rmatmul__(self, x: Array) -> Array:
        return blocked_product(x, self.array, READ_BLOCK)


def wide_host(host: Universal, place: Placement) -> Universal:
    """The same host with dense matrices in the working precision, its readers summed in blocks."""

    def dense(matrix: Any) -> Any:
        array = matrix.to_dense(np.float64) if isinstance(matrix, SelectionMatrix) else matrix
        return place.array(array)

    def grid(values: Any, read: bool) -> Any:
        if isinstance(values, SelectionMatrix) or getattr(values, "ndim", 0) == 2:
            return BlockedMatrix(dense(values)) if read else dense(values)
        return tuple(grid(value, read) for value in values)

    return replace(
        host,
        R_Q=grid(host.R_Q, True),
        R_K=grid(host.R_K, True),
        R_V=grid(host.R_V, False),
        R_Vo=None if host.R_Vo is None else grid(host.R_Vo, False),
        U=grid(host.U, True),
        mlp=None if host.mlp is None else host.mlp.changed(place.array),
    )


# --- index maps --------------------------------------------------------------------------------------------------


class ReadHost:
    """A {0,1} host that computes what later layers read, Z^l = X^l S_l, in place of the stream X^l after l layers.

    S_L = U; S_{l-1} joins R_Q^{l,h} and R_K^{l,h} of all heads, S_l for a residual stream, and R_V^{l,h} S_l of all heads. So
    the columns of Z^{l-1} are a layer's queries, keys and values themselves, and Z^l = sum_h A^{l,h} (values of h).

    columns: S_0, an index map [m, k_0]. widths: k_0 ... k_L, the columns of each S_l. S_l is made here from the host's own maps
    and not from R_all, so that a wrong R_all is noticed.
    """

    def __init__(self, host: Universal) -> None:
        self.shape = host.shape
        self.columns, self.widths = host.U, [host.U.shape[1]]
        for layer in reversed(range(host.shape.layers)):
            maps = [host.maps(layer, head) for head in range(host.shape.heads)]
            moved = [reduce(lambda found, matrix: matrix @ found, reversed(h.value), self.columns) for h in maps]
            stream = [self.columns] * host.shape.residual
            self.columns = hstack([*(h.query for h in maps), *(h.key for h in maps), *stream, *moved])
            self.widths.insert(0, self.columns.shape[1])

    def parts(self, layer: int) -> tuple[list[slice], list[slice], list[slice]]:
        """Columns of Z^layer: queries, keys and values by head; values begin with the stream's own where there is one."""
        H, d, width = self.shape.heads, self.shape.head_dim, self.widths[layer + 1]
        queries, keys = ([slice(at, at + d) for at in range(first, first + H * d, d)] for first in (0, H * d))
        starts = range(2 * H * d, self.widths[layer], width)
        return queries, keys, [slice(at, at + width) for at in starts]

    def forward(self, x: Array, columns: Array, kernel: AttentionKernel) -> Array:
        """UTF(X, E): x [n, d_in], columns = E S_0 [d_in, k_0] -> [n, d_out]. The first layer's values are (A X) (E S_0)."""
        positions, residual = np.arange(x.shape[-2]), self.shape.residual
        z = x @ columns[..., : self.parts(0)[2][residual].start]
        for layer in range(self.shape.layers):
            queries, keys, values = self.parts(layer)
            terms = [z[..., part] for part in values[:residual]]
            for head, part in enumerate(values[residual:]):
                value = z[..., part] if layer else x
                moved = attend(
                    kernel, z[..., queries[head]], z[..., keys[head]], value, positions, layer=layer, head=head
                )
                terms.append(moved if layer else moved @ columns[..., part])
            z = reduce(add, terms)
        return z

    def memory(self, context: int) -> int:
        """Bytes of a run's widest layer, the first or the second."""
        letters, heads = self.shape.letters, 2 * self.shape.heads * self.shape.head_dim
        return 8 * (context * (heads + (letters + 2) * self.widths[1]) + _chunk(context))


# --- one engine ---------------------------------------------------------------------------------------------------


def default_engine(host: Universal) -> str:
    """index-map for {0,1} hosts of attention alone, m-wide otherwise."""
    return "index-map" if isinstance(host.U, SelectionMatrix) and host.mlp is None else "m-wide"


def check_engine(host: Universal, engine: str | None) -> str:
    """The engine's name, the host's own where none is asked for; MalformedInput where it cannot run this host."""
    if engine is None:
        return default_engine(host)
    if engine not in ENGINES:
        raise MalformedInput(f"engine {engine!r} is unknown; choose {', '.join(ENGINES)}")
    if engine == "index-map" and default_engine(host) != "index-map":
        raise MalformedInput(
            "engine index-map runs {0,1} hosts of index maps; this host is dense or has MLPs: use m-wide"
        )
    return engine


def dense_memory(host: Universal) -> int:
    """Bytes of a host's dense float64 parameters."""
    layers = 1 if host.tied else host.shape.layers
    mlp = 0 if host.mlp is None else sum(int(np.prod(array.shape)) for array in host.mlp.arrays.values())
    return 8 * (
        mlp + layers * host.shape.heads * host.m * (host.m + 2 * host.shape.head_dim) + host.m * host.shape.d_out
    )


def copied_memory(host: Universal, place: Placement) -> int:
    """Bytes that `wide_host` takes: dense float64 matrices stay where they are; of others each is copied, by way of one in
    float64."""
    if not place.uses_torch and place.precision == "float64" and not isinstance(host.U, SelectionMatrix):
        return 0
    return dense_memory(host) * _BYTES[place.precision] // 8 + 8 * host.m**2


class Engine:
    """A host made ready to run: `run(x, E, kernel)` in one of the ENGINES, on one device, in one precision.

    Raises MalformedInput for an engine that cannot run this host, ResourceLimit before dense matrices are allocated.
    """

    def __init__(self, embedder: Embedder, name: str | None = None, place: Placement | None = None) -> None:
        self.embedder = embedder
        self.host = embedder.host
        self.place = place or Placement()
        self.name = check_engine(self.host, name)
        self.place.probe()
        if self.name == "index-map":
            self._runner: ReadHost | Universal = ReadHost(self.host)
        else:
            require_memory(
                copied_memory(self.host, self.place),
                f"the dense host at {self.host.shape}, m = {self.host.m},",
                embedder.max_memory,
            )
            self._runner = wide_host(self.host, self.place)

    @property
    def read(self) -> ReadHost | None:
        """What is run of an index map."""
        return self._runner if isinstance(self._runner, ReadHost) else None

    def held(self, E: np.ndarray) -> np.ndarray:
        """What `prepare` places, in float64: E [d_in, m] rounded, or the columns of it that an index map reads."""
        rounded = self.place.rounded(E)
        return rounded if self.read is None else self.place.rounded(rounded @ self.read.columns)

    def prepare(self, E: np.ndarray) -> Any:
        """What `run` needs of an embedding E [d_in, m], placed."""
        return self.place.array(self.held(E))

    def run(self, x: Array, prepared: Array, kernel: AttentionKernel) -> Array:
        """UTF(X, E) for x [n, d_in], already placed."""
        with self.place.strict():
            return self._runner.forward(x, prepared, kernel)

    def memory(self, context: int) -> int:
        """Bytes of the widest layer of a run, and of the embedding: streams of all heads, a chunk of attention."""
        host, shape = self.host, self.host.shape
        embedding = 8 * shape.d_in * host.m
        if self.read is not None:
            return self.read.memory(context) + embedding
        hidden = 0 if host.mlp is None else 4 * host.mlp.width
        streams = context * (hidden + host.m * (shape.heads + shape.residual + 3))
        return 8 * (streams + _chunk(context)) + embedding


def _chunk(context: int) -> int:
    """Numbers of a chunk of attention: logits, weights and temporaries."""
    return 4 * min(max(1 << 22, 16 * context), context * context)
