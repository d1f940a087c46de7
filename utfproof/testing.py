"""Decide your own construction: a function from a shape to a host, run through the registry's decision on a grid of shapes.

    report = decide_construction(my_host, "H=1..2,L=1..3,d=1..2,d_in=1..3")
    report.require_universal()          # AssertionError naming the smallest shape that fails, and why

Every shape gets a rank certificate bound to the host's weights, re-checked by the independent checker; by matching,
exactly (mathematics: the decision theorem). In pytest the fixture `decide_construction` is this function.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utfproof.claims.grid import DEFAULT_GRID, Grid
from utfproof.errors import MalformedFile, MalformedInput, NotDefined, Refuted, ResourceLimit, Undecided
from utfproof.shapes import Column, EffectiveHeadDimensionWarning, Shape, column_at, column_index, matching_dimension
from utfproof.util.notions import Notion

if TYPE_CHECKING:
    from utfproof.certificates.format import Certificate
    from utfproof.systems import Target, Universal

Build = Callable[[Shape], Any]
"""From a shape to a host: a `Universal`, or a mapping with the arrays R_Q, R_K, R_V and U
([L, H, m, d], [L, H, m, d], [L, H, m, m], [m, d_out]; without the L axis for a weight-tied host) and nothing else. None or
NotDefined where the construction does not exist."""
PARTS = ("R_Q", "R_K", "R_V", "U")
"""Of a host that is given as a mapping."""


@dataclass(frozen=True)
class Decision:
    """One shape: is the host universal *by matching* for all untied targets?

    universal: True, False, or None where it was not decided (`reason` says why). certificate: bound to the weights of
    the host, accepted by the independent checker. column: for a kernel vector, a column of R_all that cannot be served.
    """

    shape: Shape
    m: int
    universal: bool | None
    reason: str
    certificate: Certificate | None = None
    column: Column | None = None

    notion = Notion.MATCHING

    @property
    def M(self) -> int:
        """Columns of R_all: the least m of any host that is universal by matching."""
        return matching_dimension(self.shape)

    def target(self) -> Target | None:
        """The isolating 0/1 target that the host cannot match, where a kernel vector refutes it."""
        from utfproof.matching import isolating_target

        return None if self.column is None else isolating_target(self.shape, column_index(self.shape, self.column))

    def __str__(self) -> str:
        answers = {True: "universal", False: "NOT universal", None: "undecided"}
        return f"{self.shape}, m = {self.m}: {answers[self.universal]} by matching: {self.reason}"


@dataclass(frozen=True)
class ConstructionReport:
    """Decisions in order of M, the shapes at which the construction is not defined, and those that were not looked at, as too
    large."""

    decisions: tuple[Decision, ...]
    undefined: tuple[Shape, ...]
    grid: str
    too_large: tuple[Shape, ...] = ()

    @property
    def holds(self) -> bool:
        """Universal by matching at every shape of the grid where it is defined, all looked at, and defined somewhere."""
        return not self.too_large and bool(self.decisions) and all(found.universal is True for found in self.decisions)

    def __bool__(self) -> bool:
        """`holds`: a test that asserts the report itself must not pass because it is an object."""
        return self.holds

    @property
    def smallest_failure(self) -> Decision | None:
        """The first decision that is not "universal"."""
        return next((found for found in self.decisions if found.universal is not True), None)

    def require_universal(self) -> None:
        """AssertionError naming the smallest shape that fails, or one that was not looked at, or that nothing was examined."""
        if not self.decisions and not self.too_large:
            raise AssertionError(f"the construction is defined at no shape of the grid {self.grid}")
        failing = [found for found in self.decisions if found.universal is not True]
        if failing:
            raise AssertionError(
                f"{len(failing)} of {len(self.decisions)} shapes fail; the smallest: {failing[0]} "
                "(this does not decide functional universality)"
            )
        if self.too_large:
            first = self.too_large[0]
            raise AssertionError(
                f"{len(self.too_large)} shapes of the grid {self.grid} were not looked at; the smallest: {first}, "
                f"M = {matching_dimension(first)}: raise `largest`, or choose a smaller grid"
            )


def decide_construction(
    build: Build, grid: str = DEFAULT_GRID, *, largest: int = 400, keep: Path | str | None = None
) -> ConstructionReport:
    """Decide universality by matching of `build(shape)` at every shape of the grid with M <= `largest`, in order of M. Larger
    ones are named in the report, which then does not hold.

    keep: an existing folder that receives each certificate with its weights, for `utfproof check`. Raises MalformedInput
    for a grid that is not understood and for a host whose arrays do not fit, naming the shape it was asked for.

    >>> from utfproof import build_host
    >>> from utfproof.testing import decide_construction
    >>> decide_construction(lambda shape: build_host("sparse", shape), "H=1..2,L=1,d=1,d_in=1").holds
    True
    """
    from utfproof.claims.claim import Instance

    parsed = Grid.parse(grid)
    if keep is not None and not Path(keep).is_dir():
        raise MalformedInput(f"{keep} is not a folder; make it first")
    decisions: list[Decision] = []
    undefined: list[Shape] = []
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory()))
        shapes = sorted(parsed.shapes(), key=lambda s: Instance(s, None).order)
        for shape in (shape for shape in shapes if matching_dimension(shape) <= largest):
            host = _host(build, shape)
            if host is None:
                undefined.append(shape)
            else:
                decisions.append(_decide(host, shape, folder))
    too_large = tuple(shape for shape in shapes if matching_dimension(shape) > largest)
    return ConstructionReport(tuple(decisions), tuple(undefined), grid, too_large)


def _host(build: Build, shape: Shape) -> Universal | None:
    """The host at this shape, None where it is not defined; MalformedInput naming the shape for one that does not fit."""
    from utfproof.systems import Universal

    try:
        found = build(shape)
    except NotDefined:
        return None
    if isinstance(found, Mapping):
        if {*found} != {*PARTS} or not all(hasattr(array, "shape") for array in found.values()):
            raise MalformedInput(
                f"the host at {shape} has {', '.join(map(str, found))}; give arrays {', '.join(PARTS)}"
            )
        try:
            found = Universal(shape, int(found["U"].shape[0]), *(found[name] for name in PARTS))
        except MalformedInput as error:
            raise MalformedInput(f"the host at {shape}: {error}") from error
    if found is not None and not isinstance(found, Universal):
        raise MalformedInput(f"a construction returns a Universal or a mapping of arrays, got {type(found).__name__}")
    if found is not None and found.shape != shape:
        raise MalformedInput(f"asked for a host at {shape}, got one at {found.shape}")
    return found


def _decide(host: Universal, shape: Shape, folder: Path) -> Decision:
    """Write the weights, certify them, and have the independent checker read the certificate."""
    from utfproof.certificates import checker
    from utfproof.certificates.prover import certify_weights
    from utfproof.weights import write_host

    name = f"H{shape.heads}-L{shape.layers}-d{shape.head_dim}-in{shape.d_in}"
    weights = folder / f"{name}.safetensors"
    try:
        _require_float64(host)
        write_host(weights, host)
        found = certify_weights(weights, layers=shape.layers, d_in=shape.d_in)
    except MalformedFile as error:  # the file is of our own making
        raise MalformedInput(f"the host at {shape}: {str(error).removeprefix(f'{weights}: ')}") from error
    except (Undecided, ResourceLimit) as error:
        return Decision(shape, host.m, None, str(error))
    path = found.write(folder / f"{name}.json")[-1]
    answer = checker.check_file(path, checker.Options(weights=(str(weights),)))
    if answer.code != checker.VALID:
        raise Refuted(f"the checker does not accept the certificate at {shape}: {answer.message}")
    evidence = found.document["evidence"]
    column = None
    if found.universal:
        reason = f"rank R_all = M = {matching_dimension(shape)}"
    elif evidence["method"] == "dimension":
        reason = f"m = {host.m} < M = {matching_dimension(shape)}"
    else:
        column = column_at(shape, int(evidence["column"]))
        reason = (
            f"R_all z = 0 for an integer z with {len(evidence['z'])} entries; it hits column {column.kind} of head word "
            f"{column.word}, coordinate {column.coordinate}"
        )
    return Decision(shape, host.m, found.universal, reason, found, column)


def _require_float64(host: Universal) -> None:
    """MalformedInput for numbers that float64 would round: the verdict would be about another host."""
    import numpy as np

    from utfproof.weights import dense

    heads = [host.maps(layer, head) for layer in range(host.shape.layers) for head in range(host.shape.heads)]
    for matrix in [host.U, *(each for maps in heads for each in (maps.query, maps.key, *maps.value))]:
        array = dense(matrix)
        plain = array.dtype in (np.float64, np.float32, np.float16)
        if not plain and (array.astype(object) != array.astype(np.float64).astype(object)).any():
            raise MalformedInput(f"{array.dtype} numbers that no float64 holds; give integers or floats that it holds")
