"""The paper's experiments as presets: every cell of its tables, in two settings.

| setting | positions | the sparse host | used for |
|---|---|---|---|
| paper | a learned vector for each position is added to E's row | sparse-front | the paper's tables |
| theory | none | sparse | hosts that are proved universal |

Both have pre-LN without gain, AdamW with weight decay 0.01, causal softmax with scale 1/sqrt(d), and k hops in every
k-hop sequence. Shapes, steps, batch sizes and learning rates are the paper's (`paper/tables.py`).
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any

from utfproof.errors import MalformedInput
from utfproof.ground.forms import is_number
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
from utfproof.training.task import LOSSES, Task
from utfproof.training.tasks import TASKS, kind_of, task_named

SETTINGS: dict[str, dict[str, str]] = {
    "paper": {"positions": "learned", "sparse": "sparse-front"},
    "theory": {"positions": "none", "sparse": "sparse"},
}
"""What the settings differ in: positions, and the construction of the sparse host."""

PAPER_HOSTS = ("sparse", "random", "trained")
HOSTS = (*PAPER_HOSTS, "trained-own-width", "residual-tree", "shared-key", "shared-query")
"""Hosts of presets. trained: the whole transformer, m-wide; trained-own-width: a target of width m = d_in."""
OTHER_HOSTS = ("sparse-front", "tied", "random-tied")
"""Constructions that a run can be asked for in place of a preset's host."""

VARIANTS: dict[str, dict[str, bool]] = {
    "attention": {"residual": False, "norm": False, "mlp": False},
    "residual": {"residual": True, "norm": False, "mlp": False},
    "residual-norm": {"residual": True, "norm": True, "mlp": False},
    "mlp": {"residual": True, "norm": False, "mlp": True},
    "mlp-norm": {"residual": True, "norm": True, "mlp": True},
}
"""The rows of the paper's ablation tables."""
PAPER_VARIANTS = dict(zip(VARIANTS, paper.VARIANTS, strict=True))
"""Their names in the paper's tables."""
PAPER_TASKS = tuple(paper.TABLE_ROWS)
MLP_FACTOR = 4
"""Width of an MLP over m."""


def _one_of(choices: Collection[str]) -> dict[str, Any]:
    return {"choices": choices}


def _whole(least: int) -> dict[str, Any]:
    return {"least": least}


_AMOUNT = {"amount": True}


@dataclass(frozen=True)
class Preset:
    """One experiment. MalformedInput for a field out of range."""

    name: str
    setting: str = field(metadata=_one_of(SETTINGS))
    task: str = field(metadata=_one_of(TASKS))
    heads: int = field(metadata=_whole(1))
    layers: int = field(metadata=_whole(1))
    head_dim: int = field(metadata=_whole(1))
    m: int = field(metadata=_whole(1))
    host: str = field(metadata=_one_of((*HOSTS, *OTHER_HOSTS)))
    residual: bool
    norm: bool
    mlp: bool
    steps: int = field(metadata=_whole(1))
    batch: int = field(metadata=_whole(1))
    learning_rate: float = field(metadata=_AMOUNT)
    warmup: int = field(metadata=_whole(0))
    loss: str = field(metadata=_one_of(LOSSES))
    positions: str = field(default="none", metadata=_one_of(("none", "learned")))
    weight_decay: float = field(default=0.01, metadata=_AMOUNT)
    decay: str = field(default="linear", metadata=_one_of(("linear", "constant", "cosine")))
    init_std: float = field(default=0.02, metadata=_AMOUNT)
    length: int = field(default=0, metadata=_whole(0))
    """Characters of a k-hop string, or most pairs of parentheses; 0: as many as in the paper."""
    min_hops: int = field(default=-1, metadata=_whole(-1))
    max_hops: int = field(default=-1, metadata=_whole(-1))
    """A k-hop training sequence asks for min_hops to max_hops hops, drawn uniformly; -1: always k."""
    norm_gain: bool = False
    """Whether frozen hosts train the gains and shifts of LN. Trained transformers always do."""
    max_grad_norm: float = field(default=0.0, metadata=_AMOUNT)
    """Gradients of larger norm are scaled down to it; 0: never."""

    @property
    def variant(self) -> str:
        """attention, residual, residual-norm, mlp or mlp-norm; other combinations joined by +."""
        return variant_of(asdict(self))

    @property
    def vocabulary(self) -> int:
        """d_in = d_out of the task."""
        return task_named(self.task).vocabulary

    @property
    def shape(self) -> Shape:
        """(H, L, d, d_in), without the residual stream: the shape whose m-bar is the paper's m."""
        return quiet_shape(self.heads, self.layers, self.head_dim, self.vocabulary)

    def make_task(self, *, scored: bool = False) -> Task:
        """The task with this preset's loss, length and hops; scored: with k hops always, as accuracy is measured."""
        options: dict[str, int] = {kind_of(self.task).length: self.length} if self.length else {}
        if self.max_hops >= 0 and not scored:
            options |= {"min_hops": self.min_hops, "max_hops": self.max_hops}
        return task_named(self.task, loss=self.loss, **options)

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, _checked(each.name, getattr(self, each.name), each.metadata, each.type))
        if (self.min_hops < 0) != (self.max_hops < 0) or (
            self.max_hops >= 0 and "max_hops" not in kind_of(self.task).options
        ):
            raise MalformedInput(
                f"give min_hops and max_hops together, from 0 on, for a k-hop task; got {self.min_hops}, {self.max_hops}"
            )
        if self.norm_gain and not self.norm:
            raise MalformedInput("norm_gain needs layer normalisation; choose variant residual-norm or mlp-norm")


def _checked(name: str, value: Any, limits: Mapping[str, Any], kind: Any) -> Any:
    """The value of a field; MalformedInput unless it is within the field's limits."""
    if "choices" in limits and value not in limits["choices"]:
        near = difflib.get_close_matches(str(value), limits["choices"], 3, 0.5) or tuple(limits["choices"])[:7]
        raise MalformedInput(f"{name} {value!r} is unknown; choose {', '.join(near)}")
    if kind == "bool" and not isinstance(value, bool):
        raise MalformedInput(f"{name} must be true or false, got {value!r}")
    if "least" in limits and (type(value) is not int or value < limits["least"]):
        raise MalformedInput(f"{name} must be an integer from {limits['least']} on, got {value!r}")
    if "amount" not in limits:
        return value
    if not is_number(value) or value < 0:
        raise MalformedInput(f"{name} must be a finite number from 0 on, got {value!r}")
    return float(value)  # 1 and 1.0 are one experiment


def variant_of(values: Any) -> str:
    """The variant of a preset's fields."""
    flags = {name: values[name] for name in ("residual", "norm", "mlp")}
    for name, row in VARIANTS.items():
        if row == flags:
            return name
    return "+".join(name for name, on in flags.items() if on)


def quiet_shape(heads: int, layers: int, head_dim: int, d_in: int, *, residual: bool = False) -> Shape:
    """A shape without the warning that d exceeds d_in: the paper's parentheses have d = 24 and d_in = 4.
    ResourceLimit where H^L is beyond any machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        shape = Shape(heads, layers, head_dim, d_in, residual=residual)
    require_words(shape)
    return shape


def default_m(host: str, heads: int, layers: int, head_dim: int, d_in: int) -> int:
    """The embedding dimension of a host: the paper's m-bar, d_in for trained-own-width, else the construction's least."""
    shape = quiet_shape(heads, layers, head_dim, d_in, residual=host == "residual-tree")
    least = {
        "trained-own-width": lambda: d_in,
        "residual-tree": lambda: matching_dimension(shape),
        "shared-key": lambda: shared_key_dimension(shape),
        "shared-query": lambda: shared_query_dimension(shape),
    }
    return least.get(host, lambda: paper_dimension(shape))()


def _cells(setting: str) -> dict[str, Preset]:
    only = {"residual-tree": ("residual",), "shared-key": ("attention",), "shared-query": ("attention",)}
    names = [
        (task, host, variant)
        for task, kind in TASKS.items()
        if kind.setting is not None
        for host in HOSTS
        for variant in only.get(host, tuple(VARIANTS))
    ]
    return {"/".join(name): _cell(setting, *name) for name in names}


def _cell(setting: str, task: str, host: str, variant: str) -> Preset:
    kind, chosen = kind_of(task), SETTINGS[setting]
    assert kind.setting is not None
    numbers, made = dict(kind.setting), kind.make()
    if host not in PAPER_HOSTS or "m" not in numbers:
        numbers["m"] = default_m(host, numbers["heads"], numbers["layers"], numbers["head_dim"], made.vocabulary)
    return Preset(
        name=f"{task}/{host}/{variant}",
        setting=setting,
        task=task,
        host=chosen["sparse"] if host == "sparse" else host,
        loss=made.loss,
        positions=chosen["positions"],
        **{**VARIANTS[variant], **numbers},
    )


PRESETS: dict[str, dict[str, Preset]] = {setting: _cells(setting) for setting in SETTINGS}
"""By setting, then by name, TASK/HOST/VARIANT: the cells of the paper's tables, other hosts, other tasks."""


@cache
def home_of(setting: str, task: str, host: str, variant: str) -> Preset | None:
    """The preset that an experiment is a change of: the cell with this construction, else the task's cell of this variant
    with the construction put in. None for a task without presets."""
    cells = [cell for cell in PRESETS[setting].values() if cell.task == task and cell.variant == variant]
    for cell in cells:
        if cell.host == host:
            return cell
    return preset(cells[0].name, setting, host=host) if cells else None


def preset(name: str, setting: str = "paper", /, **overrides: Any) -> Preset:
    """The preset of that name with some fields changed (None: unchanged). m follows a changed shape or host.
    MalformedInput for an unknown name, with near ones, and for an unknown or impossible field."""
    if setting not in SETTINGS:
        raise MalformedInput(f"setting {setting!r} is unknown; choose {' or '.join(SETTINGS)}")
    if name not in PRESETS[setting]:
        near = difflib.get_close_matches(name, PRESETS[setting], 3, 0.4)
        hint = f"near: {', '.join(near)}" if near else "names are TASK/HOST/VARIANT, such as 1-hop/sparse/residual-norm"
        raise MalformedInput(f"preset {name!r} is unknown; {hint}")
    changes = {key: value for key, value in overrides.items() if value is not None}
    if unknown := set(changes) - (field_names() - {"name", "setting"}):
        raise MalformedInput(f"presets have no field {', '.join(sorted(unknown))}")
    changed = replace(PRESETS[setting][name], **changes)
    if "m" not in changes and {"heads", "layers", "head_dim", "host", "task"} & set(changes):
        m = default_m(changed.host, changed.heads, changed.layers, changed.head_dim, changed.vocabulary)
        changed = replace(changed, m=m)
    changed.make_task()  # a length or hops that the task does not have
    return changed


def field_names() -> set[str]:
    """Names of a preset's fields."""
    return {field.name for field in fields(Preset)}
