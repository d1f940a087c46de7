"""The paper's experiments as presets: task, shape, host, variant and optimiser of every cell of its tables.

Shapes, steps, learning rates, warm-up and batch sizes are each task's own; those of the paper's tasks are the paper's
(`paper/tables.py`). What the paper leaves unsaid is chosen here and listed in docs/experiments.md.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from utfproof.errors import MalformedInput
from utfproof.paper import tables as paper
from utfproof.shapes import (
    EffectiveHeadDimensionWarning,
    Shape,
    matching_dimension,
    paper_dimension,
    require_words,
    shared_key_dimension,
    shared_query_dimension,
)
from utfproof.training.task import LOSSES
from utfproof.training.tasks import TASKS, kind_of, task_named

if TYPE_CHECKING:
    from utfproof.training.task import Kind, Setting, Task

HOSTS = ("sparse", "random", "trained", "trained-own-width", "residual-tree", "shared-key", "shared-query")
"""sparse, random, trained: the paper's three models; trained-own-width: a target of the class itself, at its own width;
residual-tree: the sparse host that is built for a residual stream; shared-key, shared-query: the smaller hosts."""
OTHER_HOSTS = ("sparse-front", "tied", "random-tied")
"""Constructions that a run can be asked for in place of a preset's host, at the paper's m."""
PAPER_HOSTS = ("sparse", "random", "trained")

VARIANTS: dict[str, dict[str, bool]] = {
    "attention": {"residual": False, "norm": False, "mlp": False},
    "residual": {"residual": True, "norm": False, "mlp": False},
    "residual-norm": {"residual": True, "norm": True, "mlp": False},
    "mlp": {"residual": True, "norm": False, "mlp": True},
    "mlp-norm": {"residual": True, "norm": True, "mlp": True},
}
"""The rows of the paper's ablation tables."""
PAPER_VARIANTS = dict(zip(VARIANTS, paper.VARIANTS, strict=True))
"""How the paper's tables call them."""

PAPER_TASKS = tuple(paper.TABLE_ROWS)
POSITIONS = ("none", "learned")
DECAYS = ("linear", "constant", "cosine")
NORM_PLACES = ("pre", "post")
MLP_FACTOR = 4
"""Width of an MLP over m."""


@dataclass(frozen=True)
class Preset:
    """One experiment. `m` is the embedding dimension (for trained-own-width: the width of the target, d_in by default)."""

    name: str
    task: str
    heads: int
    layers: int
    head_dim: int
    m: int
    host: str
    residual: bool
    norm: bool
    mlp: bool
    mlp_width: int
    steps: int
    batch: int
    learning_rate: float
    warmup: int
    loss: str
    positions: str = "none"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    decay: str = "linear"
    init_std: float = 0.02
    seed: int = 0
    length: int = 0
    """Characters of a k-hop string, or most pairs of parentheses; 0: as many as in the paper."""
    grow_from: int = 0
    """Strings of the first step are so long, and grow to their whole length by half of all steps; 0: never shorter."""
    min_hops: int = -1
    """With max_hops: a k-hop sequence asks for so many hops, drawn uniformly; -1: always k. Accuracy is always that at k."""
    max_hops: int = -1
    norm_place: str = "pre"
    """With LN. pre: what a layer reads, and once before U. post: the stream after each layer."""
    norm_gain: bool = False
    """With LN: whether frozen hosts train its gains and shifts too. Trained transformers always do."""
    max_grad_norm: float = 0.0
    """The norm of all gradients together that a step takes at most: larger ones are scaled down to it; 0: as they are."""

    @classmethod
    def of_fields(cls, values: Mapping[str, Any]) -> Preset:
        """As files hold it, named after what it is: it may be called after the cell that it is a change of, such as with
        another host. KeyError and TypeError for other fields."""
        point = cls(**{**values, "betas": tuple(values["betas"])})
        return replace(point, name=f"{point.task}/{point.host}/{point.variant}")

    @property
    def variant(self) -> str:
        """attention, residual, residual-norm, mlp or mlp-norm; other combinations joined by +."""
        flags = {name: getattr(self, name) for name in ("residual", "norm", "mlp")}
        for name, row in VARIANTS.items():
            if row == flags:
                return name
        return "+".join(name for name, on in flags.items() if on)

    @property
    def vocabulary(self) -> int:
        """d_in = d_out of the task."""
        return task_named(self.task).vocabulary

    @property
    def shape(self) -> Shape:
        """(H, L, d, d_in), without the residual stream: the shape whose m-bar is the paper's m."""
        return quiet_shape(self.heads, self.layers, self.head_dim, self.vocabulary)

    @property
    def whole_length(self) -> int:
        """`length`, or the task's own."""
        return int(getattr(self.make_task(), kind_of(self.task).length))

    def make_task(self, *, scored: bool = False, step: int | None = None) -> Task:
        """The task with this preset's loss, length and hops; scored: the one that accuracy is measured on, with k hops always;
        step: the one of that step, where strings grow. MalformedInput for a length or hops that it does not have."""
        length = self.length
        if self.grow_from and step is not None:
            whole = self.whole_length
            length = min(whole, self.grow_from + 2 * step * (whole - self.grow_from) // self.steps)
        options: dict[str, int] = {kind_of(self.task).length: length} if length else {}
        if self.max_hops >= 0 and not scored:
            options |= {"min_hops": self.min_hops, "max_hops": self.max_hops}
        return task_named(self.task, loss=self.loss, **options)

    def __post_init__(self) -> None:
        known = {
            "task": tuple(TASKS),
            "host": (*HOSTS, *OTHER_HOSTS),
            "positions": POSITIONS,
            "decay": DECAYS,
            "loss": LOSSES,
            "norm_place": NORM_PLACES,
        }
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                near = ", ".join(difflib.get_close_matches(str(getattr(self, name)), choices, 3, 0.5) or choices[:7])
                raise MalformedInput(f"{name} {getattr(self, name)!r} is unknown; choose {near}")
        hops = (self.min_hops, self.max_hops)
        fitting = "max_hops" in kind_of(self.task).options and all(type(h) is int and h >= 0 for h in hops)
        if hops != (-1, -1) and not fitting:
            raise MalformedInput(
                f"min_hops and max_hops belong together, to k-hop tasks, from 0 on; got {hops[0]} and {hops[1]}"
            )
        for name in ("residual", "norm", "mlp", "norm_gain"):
            if not isinstance(getattr(self, name), bool):
                raise MalformedInput(f"{name} is true or false, got {getattr(self, name)!r}")
        if not self.norm and (self.norm_gain or self.norm_place != "pre"):
            raise MalformedInput("norm_place and norm_gain belong to layer normalisation, which this preset has not")
        least = dict.fromkeys(("heads", "layers", "head_dim", "m", "steps", "batch"), 1)
        least |= {**dict.fromkeys(("length", "grow_from", "warmup", "seed"), 0), "mlp_width": int(self.mlp)}
        for name, bound in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < bound:
                raise MalformedInput(f"{name} must be an integer from {bound} on, got {value!r}")
        if self.grow_from > self.whole_length:
            raise MalformedInput(
                f"strings cannot grow from grow_from {self.grow_from} to their length {self.whole_length}"
            )
        for name in ("learning_rate", "weight_decay", "init_std", "max_grad_norm", "betas"):
            values = getattr(self, name) if name == "betas" else (getattr(self, name),)
            try:
                fine = all(type(value) is not bool and math.isfinite(value) and value >= 0 for value in values) and (
                    name != "betas" or len(values) == 2
                )
            except (TypeError, OverflowError):  # no number, or one that no float holds
                fine = False
            if not fine or (name == "betas" and max(values) >= 1):
                raise MalformedInput(f"{name} {getattr(self, name)!r} is out of range")
            held = tuple(map(float, values))  # 1 and 1.0 are one experiment
            object.__setattr__(self, name, held if name == "betas" else held[0])


def quiet_shape(heads: int, layers: int, head_dim: int, d_in: int, *, residual: bool = False) -> Shape:
    """A shape without the remark that d exceeds d_in: the paper's own shape for parentheses has d = 24 and d_in = 4.
    ResourceLimit before H^L is computed where it is beyond any machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        shape = Shape(heads, layers, head_dim, d_in, residual=residual)
    require_words(shape)
    return shape


def default_m(host: str, heads: int, layers: int, head_dim: int, d_in: int) -> int:
    """The embedding dimension of a host unless said otherwise: the paper's m-bar; d_in for a target at its own width; the
    least m of the construction for the hosts that the paper does not have."""
    shape = quiet_shape(heads, layers, head_dim, d_in, residual=host == "residual-tree")
    least = {
        "trained-own-width": lambda: d_in,
        "residual-tree": lambda: matching_dimension(shape),
        "shared-key": lambda: shared_key_dimension(shape),
        "shared-query": lambda: shared_query_dimension(shape),
    }
    return least.get(host, lambda: paper_dimension(shape))()


def _cell(kind: Kind, setting: Setting, host: str, variant: str) -> Preset:
    task, numbers = kind.make(), asdict(setting)
    m = numbers.pop("m") if host in PAPER_HOSTS else None
    if m is None:
        m = default_m(host, setting.heads, setting.layers, setting.head_dim, task.vocabulary)
    flags = VARIANTS[variant]
    return Preset(
        **numbers | flags | {"m": m},
        name=f"{kind.name}/{host}/{variant}",
        task=kind.name,
        host=host,
        mlp_width=MLP_FACTOR * m if flags["mlp"] else 0,
        loss=task.loss,
    )


def cells_of(kind: Kind) -> dict[str, Preset]:
    """A task's presets by name; none without a setting."""
    if kind.setting is None:
        return {}
    variants = {"residual-tree": ("residual",), "shared-key": ("attention",), "shared-query": ("attention",)}
    cells = [_cell(kind, kind.setting, host, v) for host in HOSTS for v in variants.get(host, tuple(VARIANTS))]
    return {cell.name: cell for cell in cells}


PRESETS: dict[str, Preset] = {name: cell for kind in TASKS.values() for name, cell in cells_of(kind).items()}
"""Every cell of the paper's tables, the hosts that it does not have, and other tasks' cells, by name: TASK/HOST/VARIANT."""


@cache
def home_of(task: str, host: str, residual: bool, norm: bool, mlp: bool) -> Preset | None:
    """The preset that an experiment is a change of: the cell of its task, host and variant; where there is none of that name,
    the task's own setting with this host and these parts. None for a task without a setting."""
    parts = {"residual": residual, "norm": norm, "mlp": mlp}
    cells = [cell for cell in PRESETS.values() if cell.task == task]
    for cell in cells:
        if cell.host == host and all(getattr(cell, name) == on for name, on in parts.items()):
            return cell
    return preset(cells[0].name, host=host, **parts) if cells else None


def preset(name: str, /, **overrides: Any) -> Preset:
    """The preset of that name with some fields changed (None: unchanged). m follows a changed shape, and mlp_width m, unless
    given themselves. MalformedInput for an unknown name, with near ones, and for an unknown or impossible field."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 3, 0.4)
        hint = (
            f"near: {', '.join(near)}" if near else "names are TASK/HOST/VARIANT, such as parentheses/sparse/attention"
        )
        raise MalformedInput(f"preset {name!r} is unknown; {hint}")
    base = PRESETS[name]
    changes = {key: value for key, value in overrides.items() if value is not None}
    if unknown := set(changes) - (field_names() - {"name"}):
        raise MalformedInput(f"presets have no field {', '.join(sorted(unknown))}")
    if "betas" in changes and isinstance(changes["betas"], list):
        changes["betas"] = tuple(changes["betas"])
    kept = {key: value for key, value in changes.items() if key not in ("m", "mlp_width")}
    changed = replace(base, **kept, mlp_width=MLP_FACTOR * base.m)  # until m is known
    m = changes.get("m")
    if m is None:
        reshaped = {"heads", "layers", "head_dim", "host", "task"} & set(changes)
        m = (
            default_m(changed.host, changed.heads, changed.layers, changed.head_dim, changed.vocabulary)
            if reshaped
            else base.m
        )
    changed = replace(changed, m=m)
    return replace(changed, mlp_width=changes.get("mlp_width", MLP_FACTOR * m if changed.mlp else 0))


def upstream_fields(name: str) -> dict[str, Any]:
    """What the public code does that the paper builds on, where the paper is silent: fields for a preset of this name. Each
    task's file says whose code and what."""
    return dict(kind_of(preset(name).task).upstream)


def field_names() -> set[str]:
    """Names of a preset's fields."""
    return {field.name for field in fields(Preset)}


# --- the scaling figure --------------------------------------------------------------------------------------

SCALING_TASK = "2-hop"
SCALING_SEEDS = 5
SCALING_PANELS = ("m-bar", "Hd", "ratio")
SCALING_HEAD_DIMS = {"m-bar": (4, 8, 16, 28, 56, 112), "Hd": (28, 56, 112, 224, 512)}
"""The paper does not say which head dimensions it swept; these take both panels to the m of its table or beyond."""
SCALING_RATIOS = (0.5, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 2.0)
"""Our own panel: m over m-bar at the paper's 2-hop shape."""


def scaling_presets(panel: str, name: str = "2-hop/random/residual-norm", /, **overrides: Any) -> list[Preset]:
    """The points of one panel of the figure: "m-bar", "Hd", "ratio" (m from 0.5 to 2 times m-bar at the paper's shape), or
    "all" three, each point once. name: the preset that is changed, a 2-hop one; overrides: fields changed at all points alike.

    MalformedInput for another panel or task, or where what the panel sweeps is given too.
    """
    if panel not in (*SCALING_PANELS, "all"):
        raise MalformedInput(f"panel {panel!r} is unknown; choose {', '.join((*SCALING_PANELS, 'all'))}")
    if swept := {"m", "head_dim", "mlp_width"} & set(overrides):
        raise MalformedInput(f"the scaling figure sweeps m and head_dim; leave out {', '.join(sorted(swept))}")
    home = preset(name, **overrides)
    if home.task != SCALING_TASK or home.host not in PAPER_HOSTS:
        raise MalformedInput(
            f"the scaling figure is about {SCALING_TASK} and hosts {', '.join(PAPER_HOSTS)}; got {home.task}/{home.host}"
        )
    if panel == "all":
        every = [point for each in SCALING_PANELS for point in scaling_presets(each, name, **overrides)]
        return list(dict.fromkeys(every))
    if panel == "ratio":
        return [preset(name, **overrides, m=round(ratio * home.m)) for ratio in SCALING_RATIOS]
    points = [preset(name, **overrides, head_dim=d) for d in SCALING_HEAD_DIMS[panel]]
    return points if panel == "m-bar" else [replace_m(point, point.heads * point.head_dim) for point in points]


def replace_m(point: Preset, m: int) -> Preset:
    """The preset at another m; the MLP's width follows."""
    return replace(point, m=m, mlp_width=MLP_FACTOR * m if point.mlp else 0)
