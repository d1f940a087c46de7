"""Random hosts and random targets from the seeded generator (docs/certificate-format.md section 4.7).

A random host with m >= M is universal by matching almost surely (thm:random_universal_transformer); whether a given
seed is, a rank certificate decides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from utfproof.constructions.record import Construction
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape, matching_dimension, positive_integer, require_shape
from utfproof.systems import Target, Universal
from utfproof.systems.biases import BiasedTarget
from utfproof.systems.mlp import MLP
from utfproof.util.generator import integer_matrix, weight_matrix
from utfproof.util.laws import check_dtype, check_law, check_seed
from utfproof.util.notions import Notion
from utfproof.util.resources import require_memory


def random_host(
    shape: Shape, m: int, *, seed: int = 0, law: str = "uniform", dtype: str = "float64", tied: bool = False
) -> Universal:
    """Host with i.i.d. entries: R_Q, R_K [(L,) H, m, d], R_V [(L,) H, m, m], U [m, d_out], NumPy arrays."""
    check_law(law), check_dtype(dtype), check_seed(seed)
    lead = (1 if tied else shape.layers, shape.heads)

    def grid(tensor: str, columns: int) -> np.ndarray:
        first = weight_matrix(seed, tensor, 1, 1, law=law, dtype=dtype)
        out = np.empty((*lead, m, columns), dtype=first.dtype)
        for layer in range(lead[0]):
            for head in range(lead[1]):
                out[layer, head] = weight_matrix(seed, tensor, m, columns, law=law, dtype=dtype, layer=layer, head=head)
        return out[0] if tied else out

    return Universal(
        shape,
        m,
        grid("R_Q", shape.head_dim),
        grid("R_K", shape.head_dim),
        grid("R_V", m),
        weight_matrix(seed, "U", m, shape.d_out, law=law, dtype=dtype),
        "random-tied" if tied else "random",
    )


Draw = Callable[[str, int, int, int, int], np.ndarray]
"""Entries [rows, columns] of a tensor, by its name and sizes, at a layer and a head."""


def _drawn(shape: Shape, D: int, tied: bool, draw: Draw) -> Target:
    """A target of width D, W_E and W_U drawn where D differs from d_in or d_out."""
    lead, d = (1 if tied else shape.layers, shape.heads), shape.head_dim

    def grid(tensor: str, rows: int, columns: int) -> np.ndarray:
        out = np.stack([draw(tensor, rows, columns, *place) for place in np.ndindex(lead)]).reshape(
            *lead, rows, columns
        )
        return out[0] if tied else out

    W_Q, W_K, W_V, W_O = grid("W_Q", D, d), grid("W_K", D, d), grid("W_V", D, d), grid("W_O", d, D)
    W_E = W_U = None
    if not D == shape.d_in == shape.d_out:
        W_E, W_U = draw("W_E", shape.d_in, D, 0, 0), draw("W_U", D, shape.d_out, 0, 0)
    return Target(shape, W_Q, W_K, W_V, W_O, W_E, W_U)


def random_target(
    shape: Shape,
    seed: int = 0,
    *,
    width: int | None = None,
    law: str = "uniform",
    dtype: str = "float64",
    tied: bool = False,
    max_memory: int | None = None,
) -> Target:
    """Target with i.i.d. entries of variance about 1/fan-in (times 1/3 for the uniform law), NumPy arrays.

    width D defaults to d_in; W_E and W_U are drawn when D differs from d_in or d_out.

    >>> from utfproof import Shape, random_target
    >>> random_target(Shape(2, 2, 2, 3), seed=1, width=6).W_E.shape
    (3, 6)
    """
    require_shape(shape)
    D = shape.d_in if width is None else positive_integer("width", width)
    # 16 bytes an entry while drawn, and some hundreds a head
    heads = (1 if tied else shape.layers) * shape.heads * (64 * D * shape.head_dim + 500)
    require_memory(heads + 16 * D * (shape.d_in + shape.d_out), f"a random target at {shape}, width {D},", max_memory)

    def draw(tensor: str, rows: int, columns: int, layer: int, head: int) -> np.ndarray:
        return weight_matrix(seed, tensor, rows, columns, law=law, dtype=dtype, layer=layer, head=head)

    return _drawn(shape, D, tied, draw)


def random_model(
    shape: Shape,
    seed: int = 0,
    *,
    width: int,
    hidden: int,
    activation: str = "silu",
    law: str = "uniform",
    max_memory: int | None = None,
) -> BiasedTarget:
    """A target with gated MLPs of this width K and biases everywhere, drawn as `random_target` draws; float64. shape: with a
    residual stream."""
    D, K = positive_integer("width", width), positive_integer("hidden", hidden)
    L, H, d = shape.layers, shape.heads, shape.head_dim
    require_memory(32 * L * D * (4 * H * d + 3 * K), f"a target at {shape}, widths {D} and {K},", max_memory)
    streams = iter(range(H, H + 64))  # one behind the heads' for each tensor

    def draw(rows: int, columns: int, *, lead: tuple[int, ...] = (L,)) -> np.ndarray:
        stream = next(streams)
        matrices = [
            weight_matrix(seed, "W_V", rows, columns, law=law, layer=layer, head=stream)
            for layer in range(lead[0] if lead else 1)
        ]
        return np.stack(matrices) if lead else matrices[0]

    mlp = MLP(
        activation,
        W_in=draw(D, K),
        W_out=draw(K, D),
        W_gate=draw(D, K),
        b_in=draw(1, K)[:, 0],
        b_gate=draw(1, K)[:, 0],
        b_out=draw(1, D)[:, 0],
    )
    plain = random_target(shape, seed, width=D, law=law)
    W_E = draw(shape.d_in, D, lead=())
    W_U = draw(D, shape.d_out, lead=())
    biases = {name: draw(H, d) for name in ("b_Q", "b_K", "b_V")}
    return BiasedTarget(
        shape, plain.W_Q, plain.W_K, plain.W_V, plain.W_O, W_E, W_U, **biases,
        b_O=draw(1, D)[:, 0], b_E=draw(1, D, lead=())[0], b_U=draw(1, shape.d_out, lead=())[0], mlp=mlp,
    )  # fmt: skip


def integer_target(shape: Shape, seed: int = 0, *, tied: bool = False, bound: int = 2) -> Target:
    """Target of width d_in = d_out with integer weights in -bound ... bound (object arrays), for exact arithmetic.

    Raises MalformedInput where d_out differs from d_in.
    """
    if shape.d_in != shape.d_out:
        raise MalformedInput(f"integer targets have d_out = d_in, got {shape}")

    def draw(tensor: str, rows: int, columns: int, layer: int, head: int) -> np.ndarray:
        numbers = integer_matrix(seed, tensor, rows, columns, law="uniform", layer=layer, head=head).astype(object)
        return numbers // 2 % (2 * bound + 1) - bound

    return _drawn(shape, shape.d_in, tied, draw)


RANDOM = Construction(
    "random",
    "i.i.d. weights from a seed",
    False,
    Notion.MATCHING,
    lambda shape: 1,
    default_m=matching_dimension,
    streams=True,
    is_random=True,
    rebuilt=True,
)

RANDOM_TIED = Construction(
    "random-tied",
    "i.i.d. weights from a seed, weight-tied",
    True,
    Notion.MATCHING,
    lambda shape: 1,
    default_m=matching_dimension,
    streams=True,
    is_random=True,
    rebuilt=True,
)
