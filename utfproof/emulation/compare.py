"""Run targets and hosts side by side and measure how far their outputs are apart.

A host runs m-wide (random hosts, or weights from a file) or as index maps (sparse, tied and the shared ones); both are
the one forward pass of `systems`. Numbers are float64; the device is passed explicitly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from utfproof.arrays import Array, require_device, to_numpy
from utfproof.attention import AttentionKernel
from utfproof.errors import MalformedInput
from utfproof.generator import integer_matrix
from utfproof.matching import Embedding, embed
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.selection import SelectionMatrix
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal

DEFAULT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Comparison:
    """One run: which target, kernel and context length n; max |Z - Y| / max |Y| over the outputs Y of the target."""

    trial: int
    attention: str
    context: int
    relative_error: float


@dataclass(frozen=True)
class EmulationReport:
    """All comparisons of one host, the notion its embeddings achieve, and whether every error is within the tolerance."""

    notion: Notion
    tolerance: float
    comparisons: tuple[Comparison, ...]
    condition: float | None
    residual: float | None

    @property
    def max_relative_error(self) -> float:
        """The largest error; NaN if any is NaN."""
        return float(np.max([c.relative_error for c in self.comparisons]))

    @property
    def holds(self) -> bool:
        """Every error within the tolerance (a NaN is not)."""
        return all(c.relative_error <= self.tolerance for c in self.comparisons)

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "notion": self.notion.value,
            "holds": self.holds,
            "max_relative_error": self.max_relative_error,
            "tolerance": self.tolerance,
            "condition": self.condition,
            "residual": self.residual,
            "comparisons": [asdict(c) for c in self.comparisons],
        }


def relative_error(output: Array, reference: Array) -> float:
    """max |output - reference| / max |reference| (absolute where the reference is zero throughout)."""
    output, reference = to_numpy(output), to_numpy(reference)
    scale = float(np.max(np.abs(reference), initial=0.0))
    error = float(np.max(np.abs(output - reference), initial=0.0))
    return error / scale if scale else error


def random_input(shape: Shape, context: int, seed: int, trial: int = 0) -> np.ndarray:
    """X [n, d_in], uniform on (-1, 1), from the seeded generator."""
    numerators = integer_matrix(seed, "X", context, shape.d_in, law="uniform", layer=trial, head=context)
    return numerators.astype(np.float64) * 2.0**-32


def require_compatible(host: Universal, kernels: Iterable[tuple[str, AttentionKernel]]) -> None:
    """MalformedInput for a kernel that an attention-matching host cannot serve."""
    if host.construction not in ("shared-key", "shared-query"):
        return
    for name, kernel in kernels:
        if not kernel.logits_only:
            raise MalformedInput(
                f"{host.construction} matches attention logits only, and attention {name!r} looks at queries and keys "
                "separately (RoPE): use a host that is universal by matching (sparse, tied, random)"
            )


def run_memory(host: Universal, context: int) -> int:
    """Bytes of the widest layer: H value streams [n, m] with gathers, and attention matrices [n, n]."""
    per_head = 3 if isinstance(host.U, SelectionMatrix) else 1
    return 8 * (context * host.m * (host.shape.heads * per_head + 3) + 5 * context * context)


def compare(
    host: Universal,
    targets: Sequence[Target] | Callable[[int], Target],
    kernels: Sequence[tuple[str, AttentionKernel]],
    contexts: Sequence[int],
    *,
    trials: int = 1,
    seed: int = 0,
    device: str = "cpu",
    tolerance: float = DEFAULT_TOLERANCE,
    embedding: np.ndarray | None = None,
    max_memory: int | None = None,
    progress: Callable[[], None] | None = None,
) -> EmulationReport:
    """Embed each target once, then run it and the host on the same inputs for every kernel and context length.

    One host and one E serve every n and kernel. `embedding` uses this E instead of solving for one.
    Raises what `embed` raises, MalformedInput for a kernel the host cannot serve, ResourceLimit before allocating.
    """
    require_compatible(host, kernels)
    for context in contexts:
        require_memory(run_memory(host, context), f"a context of {context} at m = {host.m}", max_memory)
    place = _placement(device)
    placed_host = placed(host, place)
    results: list[Comparison] = []
    conditions, residuals = [], []
    notion = Notion.MATCHING
    for trial in range(trials):
        target = targets(trial) if callable(targets) else targets[trial]
        if embedding is None:
            found = embed(host, target, max_memory=max_memory)
        else:
            expected = (host.shape.d_in, host.m)
            if embedding.shape != expected:
                raise MalformedInput(f"E has shape {list(embedding.shape)}, expected {list(expected)}")
            found = Embedding(embedding, Notion.FUNCTIONAL, "given")
        notion = found.notion
        conditions.append(found.condition)
        residuals.append(found.residual)
        runs = _runs(placed_host, placed(target, place), place(found.E), kernels, contexts, seed, trial, place)
        for result in runs:
            results.append(result)
            if progress is not None:
                progress()
    return EmulationReport(notion, tolerance, tuple(results), _largest(conditions), _largest(residuals))


def _runs(
    host: Universal,
    target: Target,
    E: Array,
    kernels: Sequence[tuple[str, AttentionKernel]],
    contexts: Sequence[int],
    seed: int,
    trial: int,
    place: Callable[[Any], Any],
) -> Iterator[Comparison]:
    for context in contexts:
        x = place(random_input(host.shape, context, seed, trial))
        for name, kernel in kernels:
            error = relative_error(host.forward(x, E, kernel), target.forward(x, kernel))
            yield Comparison(trial, name, context, error)


def _largest(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None


def _placement(device: str) -> Callable[[Any], Any]:
    """A function that moves arrays to where they are computed: NumPy on the CPU, torch float64 elsewhere."""
    if device == "cpu":
        return lambda array: array
    torch = require_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    return lambda array: torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float64, device=device)


def placed(system: Any, place: Callable[[Any], Any]) -> Any:
    """A host or target with its dense arrays moved; index maps stay as they are."""
    changes = {}
    for name in ("R_Q", "R_K", "R_V", "U", "R_Vo", "W_Q", "W_K", "W_V", "W_O", "W_E", "W_U"):
        array = getattr(system, name, None)
        if isinstance(array, np.ndarray):
            changes[name] = place(array.astype(np.float64, copy=False))
    return replace(system, **changes) if changes else system
