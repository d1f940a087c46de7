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
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

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
from utfproof.training.task import Task
from utfproof.training.tasks import TASKS, kind_of, task_named

SETTINGS: dict[str, dict[str, str]] = {
    "paper": {"positions": "learned", "sparse": "sparse-front"},
    "theory": {"positions": "none", "sparse": "sparse"},
}
"""What the settings differ in: positions, and the construction of the sparse host."""
PAPER_HOSTS = ("sparse", "random", "trained")
Host = Literal[
    "sparse", "random", "trained", "trained-own-width",
    "sparse-front", "residual-tree", "shared-key", "shared-query", "tied", "random-tied",
]  # fmt: skip
"""The first four are hosts of presets; a run can ask for the others. trained: the whole transformer, m-wide;
trained-own-width: a target of width m = d_in."""
HOSTS = get_args(Host)[:4]

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

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""Of every dataclass that is read from a file or from options: no other types, no other fields."""
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, config=STRICT)
class Preset:
    """One experiment. ValueError for a field out of range."""

    setting: Literal["paper", "theory"]
    task: Annotated[str, AfterValidator(lambda name: kind_of(name).name)]
    heads: Positive
    layers: Positive
    head_dim: Positive
    m: Positive
    host: Host
    residual: bool
    norm: bool
    mlp: bool
    steps: Positive
    batch: Positive
    learning_rate: Amount
    warmup: Whole
    loss: Literal["answer", "sequence"]
    positions: Literal["none", "learned"] = "none"
    weight_decay: Amount = 0.01
    decay: Literal["linear", "constant", "cosine"] = "linear"
    init_std: Amount = 0.02
    length: Whole = 0
    """Characters of a k-hop string, or most pairs of parentheses; 0: as many as in the paper."""
    min_hops: Annotated[int, Field(ge=-1)] = -1
    max_hops: Annotated[int, Field(ge=-1)] = -1
    """A k-hop training sequence asks for min_hops to max_hops hops, drawn uniformly; -1: always k."""
    norm_gain: bool = False
    """Whether frozen hosts train the gains and shifts of LN. Trained transformers always do."""
    max_grad_norm: Amount = 0.0
    """Gradients of larger norm are scaled down to it; 0: never."""

    def __post_init__(self) -> None:
        if (self.min_hops < 0) != (self.max_hops < 0) or (
            self.max_hops >= 0 and "max_hops" not in kind_of(self.task).options
        ):
            raise ValueError(
                f"give min_hops and max_hops together, from 0 on, for a k-hop task; got {self.min_hops}, {self.max_hops}"
            )
        if self.norm_gain and not self.norm:
            raise ValueError("norm_gain needs layer normalisation; choose variant residual-norm or mlp-norm")

    @property
    def name(self) -> str:
        """TASK/HOST/VARIANT."""
        return f"{self.task}/{self.host}/{self.variant}"

    @property
    def variant(self) -> str:
        """attention, residual, residual-norm, mlp or mlp-norm; "other" for what the paper does not have."""
        flags = {"residual": self.residual, "norm": self.norm, "mlp": self.mlp}
        return next((name for name, row in VARIANTS.items() if row == flags), "other")

    @property
    def column(self) -> str:
        """The host of the paper's tables that this one is, "" for others."""
        if self.host == SETTINGS[self.setting]["sparse"]:
            return "sparse"
        return self.host if self.host in PAPER_HOSTS[1:] else ""

    @property
    def home(self) -> Preset | None:
        """The cell that this experiment is a change of: that of its host, else the task's cell of its variant with the host
        put in. None for a task without presets."""
        return _home(self.setting, self.task, self.host, self.variant)

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

    def with_host(self, host: str) -> Preset:
        """The same with another host, at its m."""
        return replace(self, host=host).with_least_m()  # type: ignore[arg-type]

    def with_least_m(self) -> Preset:
        """The same at the m of its host: the paper's m-bar, d_in for trained-own-width, else the construction's least."""
        shape = quiet_shape(
            self.heads, self.layers, self.head_dim, self.vocabulary, residual=self.host == "residual-tree"
        )
        least = {
            "trained-own-width": lambda shape: shape.d_in,
            "residual-tree": matching_dimension,
            "shared-key": shared_key_dimension,
            "shared-query": shared_query_dimension,
        }
        return replace(self, m=least.get(self.host, paper_dimension)(shape))


def quiet_shape(heads: int, layers: int, head_dim: int, d_in: int, *, residual: bool = False) -> Shape:
    """A shape without the warning that d exceeds d_in: the paper's parentheses have d = 24 and d_in = 4.
    ResourceLimit where H^L is beyond any machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        shape = Shape(heads, layers, head_dim, d_in, residual=residual)
    require_words(shape)
    return shape


T = TypeVar("T")


def read(kind: type[T], text: str | bytes, source: str) -> T:
    """A dataclass from its JSON. MalformedInput naming the source, the field and what is wrong."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise MalformedInput(f"{source}: {first_fault(error)}") from None


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong, in a line."""
    found = error.errors()[0]
    said = found["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    given = "" if found["type"] in ("value_error", "missing", "json_invalid") else f", got {found['input']!r:.60}"
    return " ".join(f"{'.'.join(map(str, found['loc']))} {said}{given}".split())


def _cells(setting: str) -> dict[str, Preset]:
    return {
        f"{task}/{host}/{variant}": _cell(setting, task, host, variant)
        for task, kind in TASKS.items()
        if kind.setting is not None
        for host in HOSTS
        for variant in VARIANTS
    }


def _cell(setting: str, task: str, host: str, variant: str) -> Preset:
    kind, chosen = kind_of(task), SETTINGS[setting]
    assert kind.setting is not None
    name = chosen["sparse"] if host == "sparse" else host
    given: dict[str, Any] = {"m": 1, **kind.setting, **VARIANTS[variant], "host": name, "loss": kind.make().loss}
    made = Preset(setting=setting, task=task, positions=chosen["positions"], **given)  # type: ignore[arg-type]
    return made if host in PAPER_HOSTS and "m" in kind.setting else made.with_least_m()


PRESETS: dict[str, dict[str, Preset]] = {setting: _cells(setting) for setting in SETTINGS}
"""By setting, then by name, TASK/HOST/VARIANT: the cells of the paper's tables, targets at their own width, other tasks."""


@cache
def _home(setting: str, task: str, host: str, variant: str) -> Preset | None:
    cells = [cell for cell in PRESETS[setting].values() if (cell.task, cell.variant) == (task, variant)]
    other = [cells[0].with_host(host)] if cells else []
    return next((cell for cell in [*cells, *other] if cell.host == host), None)


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
    if unknown := set(changes) - ({each.name for each in fields(Preset)} - {"setting"}):
        raise MalformedInput(f"presets have no field {', '.join(sorted(unknown))}")
    try:
        changed = Preset(**{**asdict(PRESETS[setting][name]), **changes})
        if "m" not in changes and {"heads", "layers", "head_dim", "host", "task"} & set(changes):
            changed = changed.with_least_m()
    except ValidationError as error:
        raise MalformedInput(first_fault(error)) from None
    changed.make_task()  # a length or hops that the task does not have
    return changed
