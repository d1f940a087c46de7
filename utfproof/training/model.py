"""What is trained and what is frozen: E and U of a fixed host, or the whole transformer.

| host | fixed | trained |
|---|---|---|
| sparse, sparse-front, residual-tree, shared-key, ... | R_Q, R_K, R_V, index maps | E, U |
| random, random-tied | R_Q, R_K, R_V, drawn from a seed | E, U |
| trained | nothing | E, U, R_Q, R_K, R_V, drawn as the random host's |
| trained-own-width | nothing | E, U, W_Q, W_K, W_V, W_O: a target of width m |

With learned positions P is trained too. With LN a layer reads LN(x), and one more LN comes before U. With an MLP each
layer is followed by x + MLP(x), GELU. MLPs are drawn as torch's Linear, and frozen in frozen hosts.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from utfproof.constructions import CONSTRUCTIONS, build_host, dense_bytes
from utfproof.constructions.random import random_target
from utfproof.errors import MalformedInput
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape
from utfproof.systems import Target, Universal
from utfproof.training.presets import MLP_FACTOR, Preset
from utfproof.training.task import seeded
from utfproof.util.resources import require_memory

if TYPE_CHECKING:
    from torch import Tensor

TRAINED = "trained"
OWN_WIDTH = "trained-own-width"
RESIDUAL_TREE = "residual-tree"
TF32 = "tf32"
DTYPES = ("float32", "float64", "bfloat16", TF32)
"""tf32: float32 whose matrix products a GPU computes with factors rounded to 11 bits."""


@dataclass(eq=False)
class Model:
    """One model before or during training: parameters by name. host: None where the whole transformer is trained."""

    preset: Preset
    shape: Shape
    context: int
    host: Universal | None = None
    trained: dict[str, Tensor] = field(default_factory=dict)
    frozen: dict[str, Tensor] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """1/sqrt(d), of the attention logits."""
        return float(self.shape.head_dim) ** -0.5

    def __getitem__(self, name: str) -> Tensor:
        return self.trained[name] if name in self.trained else self.frozen[name]

    def __contains__(self, name: str) -> bool:
        return name in self.trained or name in self.frozen

    def parameters(self) -> list[Tensor]:
        """What an optimiser changes, in order of name."""
        return [self.trained[name] for name in sorted(self.trained)]

    def count(self) -> int:
        """Trained numbers."""
        return sum(tensor.numel() for tensor in self.trained.values())


def host_of(preset: Preset, seed: int, max_memory: int | None = None) -> Universal:
    """The fixed host of a preset; for `trained` the random host that it starts from. MalformedInput for a host that does
    not fit the preset."""
    shape = preset.shape
    if preset.host == RESIDUAL_TREE:
        if not preset.residual:
            raise MalformedInput("residual-tree is made for a residual stream; choose host sparse without one")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
            shape = shape.with_residual()
    name = {TRAINED: "random", RESIDUAL_TREE: "sparse"}.get(preset.host, preset.host)
    host = build_host(name, shape, preset.m, seed=seed, max_memory=max_memory)
    host.require_attention_only("training")
    return host


def build_model(
    preset: Preset,
    seed: int,
    context: int,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    max_memory: int | None = None,
) -> Model:
    """The model before training. Numbers are drawn on the CPU from the seed, and are the same on every device.
    ResourceLimit before allocating; MalformedInput for an unknown dtype."""
    import torch

    kept = getattr(torch, check_dtype(dtype, device))
    model = Model(preset, preset.shape, context)
    require_memory(32 * preset.m * (preset.vocabulary + context), f"E and P at m = {preset.m}", max_memory)
    trained, frozen = _draw(preset, seed, context)
    if preset.host != OWN_WIDTH:
        entry = CONSTRUCTIONS.get(preset.host)
        if preset.host == TRAINED or (entry is not None and entry.is_random):
            needed = 2 * dense_bytes(preset.shape, preset.m, tied=entry is not None and entry.tied)
            require_memory(needed, f"the host at {preset.shape}", max_memory)
        model.host = host_of(preset, seed, max_memory)
    if preset.host == TRAINED:
        trained |= {name: getattr(model.host, name) for name in ("R_Q", "R_K", "R_V")}
        model.host = None
    model.trained = {
        name: torch.as_tensor(np.asarray(value)).to(device=device, dtype=kept, copy=True).requires_grad_()
        for name, value in trained.items()
    }
    model.frozen = {name: torch.as_tensor(value).to(device=device, dtype=kept) for name, value in frozen.items()}
    return model


def check_dtype(dtype: str, device: str) -> str:
    """torch's name of the stored dtype. MalformedInput for an unknown one, and for tf32 without a GPU."""
    if dtype not in DTYPES:
        raise MalformedInput(f"dtype {dtype!r} is unknown; choose {', '.join(DTYPES)}")
    if dtype != TF32:
        return dtype
    if not device.startswith("cuda"):
        raise MalformedInput(f"dtype {TF32} needs a GPU; on device {device!r} choose float32")
    return "float32"


def is_trained(host: str) -> bool:
    """Whether the whole transformer is trained."""
    return host in (TRAINED, OWN_WIDTH)


def _draw(preset: Preset, seed: int, context: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(trained, frozen) before the host comes in: E, U, positions, own-width matrices, LN and MLPs, in float64."""
    import torch

    shape, m, L = preset.shape, preset.m, preset.layers
    generator = seeded(seed, "initial embedding", 0)

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
        norms = L * (1 + preset.mlp) + 1
        trained |= {"gain": torch.ones(norms, m, dtype=torch.float64), "shift": torch.zeros(norms, m).double()}
    if preset.mlp:
        width = MLP_FACTOR * m
        generator = seeded(seed, "MLP", 0)

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


def target_of(model: Model) -> Target:
    """A transformer trained at its own width as a target of the class (float64); E and U are its W_E and W_U.

    Learned positions are further coordinates of the input: d_in = vocabulary + context, and P is stacked below E.
    MalformedInput for other models, LN and MLPs.
    """
    preset = model.preset
    if "W_Q" not in model or preset.norm or preset.mlp:
        raise MalformedInput(
            "only a target trained at its own width, without normalisation and MLPs, can be embedded; "
            "train TASK/trained-own-width/attention (or residual)"
        )
    held = {name: tensor.detach().double().cpu().numpy() for name, tensor in model.trained.items()}
    W_E = np.concatenate([held[name] for name in ("E", "P") if name in held])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        shape = replace(model.shape, d_in=len(W_E), d_out=preset.vocabulary, residual=preset.residual)
    names = ("W_Q", "W_K", "W_V", "W_O")
    return Target(shape, **{name: held[name] for name in names}, W_E=W_E, W_U=held["U"])
