"""What is trained and what is frozen: E and U of a fixed host, or the whole transformer.

| host | fixed | trained |
|---|---|---|
| sparse, residual-tree, shared-key, shared-query, ... | R_Q, R_K, R_V, index maps | E, U |
| random, random-tied | R_Q, R_K, R_V, drawn from a seed | E, U |
| trained | nothing | E, U, R_Q, R_K, R_V, drawn as the random host's |
| trained-own-width | nothing | E, U, W_Q, W_K, W_V, W_O: a target of width D = m |

A residual stream may run around any of them: `sparse` is then the plain prefix tree with a stream beside it, as in the paper,
`residual-tree` the tree over one more letter, made for it. With LN a layer reads LN(x) and adds to x, and one more LN stands
before U (or, post, LN is applied to the stream after each layer); with an MLP each layer is followed by x + MLP(x), GELU
(without a residual stream nothing is added). LN has gains and shifts where the host is trained, or where that is asked for.
MLPs are drawn as torch's Linear, and frozen in frozen hosts. Attention is causal softmax with scale 1/sqrt(d).

Every parameter has a leading axis of seeds S: models of several seeds side by side, independent of each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, build_host, dense_bytes, hosts
from utfproof.constructions.random import random_target
from utfproof.errors import MalformedInput
from utfproof.ground.generator import check_seed
from utfproof.ground.resources import require_memory
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape
from utfproof.systems import Target, Universal
from utfproof.training.task import seeded

if TYPE_CHECKING:
    from torch import Tensor

    from utfproof.training.presets import Preset

TRAINED = "trained"
OWN_WIDTH = "trained-own-width"
RESIDUAL_TREE = "residual-tree"
NORM_EPSILON = 1e-5
TF32 = "tf32"
DTYPES = ("float32", "float64", "bfloat16", TF32)
"""tf32: float32, in whose products a GPU rounds the factors to a significand of 11 bits."""


@dataclass(eq=False)
class Model:
    """Parameters of S models of one architecture, [S, ...] each. hosts: one for each seed, or one for all; None for
    trained-own-width. frozen: tensors that no optimiser sees."""

    shape: Shape
    m: int
    seeds: tuple[int, ...]
    context: int
    residual: bool = False
    norm: bool = False
    mlp: bool = False
    norm_place: str = "pre"
    hosts: tuple[Universal, ...] | None = None
    trained: dict[str, Tensor] = field(default_factory=dict)
    frozen: dict[str, Tensor] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """1/sqrt(d), of the logits."""
        return float(self.shape.head_dim) ** -0.5

    @property
    def letters(self) -> int:
        """Letters of head words: the heads, and the stream where there is one (letter 0)."""
        return self.shape.heads + self.residual

    @property
    def linear(self) -> bool:
        """Whether the stream passes through linear maps only: neither LN nor MLPs."""
        return not (self.norm or self.mlp)

    @property
    def learned_positions(self) -> bool:
        """Whether a learned vector is added for each position."""
        return "P" in self.trained

    def __getitem__(self, name: str) -> Tensor:
        return self.trained[name] if name in self.trained else self.frozen[name]

    def __contains__(self, name: str) -> bool:
        return name in self.trained or name in self.frozen

    def host(self, number: int) -> Universal:
        """The host of the model of this number."""
        if self.hosts is None:
            raise MalformedInput("a target trained at its own width has no host")
        return self.hosts[number % len(self.hosts)]

    def parameters(self) -> list[Tensor]:
        """What an optimiser changes, in order of name."""
        return [self.trained[name] for name in sorted(self.trained)]

    def count(self) -> int:
        """Trained numbers of one model."""
        return sum(tensor.numel() for tensor in self.trained.values()) // len(self.seeds)

    def single(self, number: int) -> Model:
        """The model of one seed, parameters copied and detached."""
        hosts = None if self.hosts is None else (self.host(number),)
        trained = {name: t[number : number + 1].detach().clone() for name, t in self.trained.items()}
        frozen = {name: t[number : number + 1] for name, t in self.frozen.items()}
        return replace(self, seeds=(self.seeds[number],), hosts=hosts, trained=trained, frozen=frozen)


def host_of(preset: Preset, seed: int, max_memory: int | None = None) -> Universal:
    """The fixed host of a preset; for trained ones the random host that they start from. Random hosts are drawn from the run's
    own seed."""
    shape = preset.shape
    if preset.host == RESIDUAL_TREE:
        if not preset.residual:
            raise MalformedInput("residual-tree is made for a residual stream; choose host sparse without one")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
            shape = shape.with_residual()
    name = {TRAINED: "random", RESIDUAL_TREE: "sparse"}.get(preset.host, preset.host)
    if name not in CONSTRUCTIONS:
        known = [*hosts(printed=False), TRAINED, OWN_WIDTH]
        raise MalformedInput(f"host {preset.host!r} is unknown; choose {', '.join([*known, RESIDUAL_TREE])}")
    return build_host(name, shape, preset.m, seed=seed, max_memory=max_memory)


def build_model(
    preset: Preset,
    seeds: Sequence[int],
    context: int,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    max_memory: int | None = None,
) -> Model:
    """The models of these seeds as they stand before training. Every number is drawn on the CPU from its seed, and is the same
    on every device.

    Raises MalformedInput for an unknown host or dtype; ResourceLimit before allocating.
    """
    import torch

    kept = check_dtype(dtype, device)
    for seed in seeds:
        check_seed(seed)
    if not seeds:
        raise MalformedInput("no seeds given; at least one is needed")
    shape, m = preset.shape, preset.m
    entry = CONSTRUCTIONS.get(preset.host)
    drawn = preset.host == TRAINED or (entry is not None and entry.is_random)
    if drawn:
        tied = entry is not None and entry.tied
        require_memory(2 * len(seeds) * dense_bytes(shape, m, tied=tied), f"{len(seeds)} hosts at {shape}", max_memory)
    model = Model(shape, m, tuple(seeds), context, preset.residual, preset.norm, preset.mlp, preset.norm_place)
    parts = [_draw(preset, seed, context) for seed in seeds]
    hosts: list[Universal] = []
    if preset.host != OWN_WIDTH:
        hosts = [host_of(preset, seed, max_memory) for seed in (seeds if drawn else seeds[:1])]
        model.hosts = tuple(hosts)
    if preset.host == TRAINED:
        for part, host in zip(parts, hosts, strict=True):
            part[0].update({name: getattr(host, name) for name in ("R_Q", "R_K", "R_V")})
        model.hosts = None

    def stacked(index: int, name: str) -> Tensor:
        values = [torch.as_tensor(np.asarray(part[index][name])) for part in parts]
        return torch.stack(values).to(device=device, dtype=getattr(torch, kept))

    model.trained = {name: stacked(0, name).requires_grad_() for name in parts[0][0]}
    model.frozen = {name: stacked(1, name) for name in parts[0][1]}
    return model


def check_dtype(dtype: str, device: str) -> str:
    """torch's name of what numbers are kept in. MalformedInput for an unknown dtype, and for one that the device has not."""
    if dtype not in DTYPES:
        raise MalformedInput(f"dtype {dtype!r} is unknown; choose {', '.join(DTYPES)}")
    if dtype != TF32:
        return dtype
    if not device.startswith("cuda"):
        raise MalformedInput(f"dtype {TF32} is a GPU's; on device {device!r} choose float32")
    return "float32"


def is_trained(host: str) -> bool:
    """Whether the whole transformer is trained."""
    return host in (TRAINED, OWN_WIDTH)


def _draw(preset: Preset, seed: int, context: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(trained, frozen) of one seed before hosts come in: E, U, positions, own-width matrices, MLPs and LN."""
    import torch

    shape, m, L = preset.shape, preset.m, preset.layers
    generator = seeded(seed, "initial embedding", 0, "cpu")

    def normal(*size: int) -> Tensor:
        return preset.init_std * torch.randn(*size, generator=generator, dtype=torch.float64)

    trained: dict[str, Any] = {"E": normal(shape.d_in, m), "U": normal(m, shape.d_out)}
    frozen: dict[str, Any] = {}
    if preset.positions == "learned":
        trained["P"] = normal(context, m)
    whole = is_trained(preset.host)
    if preset.host == OWN_WIDTH:
        target = random_target(shape, seed, width=m)
        trained.update({name: getattr(target, name) for name in ("W_Q", "W_K", "W_V", "W_O")})
    if preset.norm and (whole or preset.norm_gain):
        norms = L * (1 + preset.mlp) + (preset.norm_place == "pre")
        trained |= {"gain": torch.ones(norms, m, dtype=torch.float64), "shift": torch.zeros(norms, m).double()}
    if preset.mlp:
        width = preset.mlp_width
        generator = seeded(seed, "MLP", 0, "cpu")

        def uniform(fan_in: int, *size: int) -> Tensor:
            return (2 * torch.rand(*size, generator=generator, dtype=torch.float64) - 1) * fan_in**-0.5

        (trained if whole else frozen).update(
            {
                "mlp_in": uniform(m, L, m, width),
                "mlp_in_bias": uniform(m, L, width),
                "mlp_out": uniform(width, L, width, m),
                "mlp_out_bias": uniform(width, L, m),
            }
        )
    return trained, frozen


def target_of(model: Model, number: int = 0) -> Target:
    """A transformer trained at its own width as a target of the class (float64), to be embedded into hosts: E and U are its W_E
    and W_U. MalformedInput for other models, LN, MLPs and learned positions."""
    if "W_Q" not in model or not model.linear or model.learned_positions:
        raise MalformedInput("only attention (and a residual stream) trained at its own width is a target of the class")
    held = {name: tensor[number].detach().double().cpu().numpy() for name, tensor in model.trained.items()}
    shape = model.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        shape = Shape(shape.heads, shape.layers, shape.head_dim, shape.d_in, shape.d_out, residual=model.residual)
    names = ("W_Q", "W_K", "W_V", "W_O")
    return Target(shape, **{name: held[name] for name in names}, W_E=held["E"], W_U=held["U"])


def dense(matrix: Any) -> np.ndarray:
    """A host's parameter as float64."""
    if isinstance(matrix, SelectionMatrix):
        return matrix.to_dense(np.float64)
    return np.asarray(matrix, dtype=np.float64)


def projection(matrix: Any) -> np.ndarray | None:
    """The diagonal [m] of a coordinate projection (float64), None for other matrices."""
    if not isinstance(matrix, SelectionMatrix):
        return None
    rows, columns = matrix.coordinates()
    if not np.array_equal(rows, columns) or len(np.unique(rows)) != len(rows):
        return None
    diagonal = np.zeros(matrix.shape[0])
    diagonal[rows] = 1
    return diagonal
