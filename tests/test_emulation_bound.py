"""The a priori bound of docs/emulation.md: never broken by a correct run, useful on tame targets, broken by planted faults."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from short_arithmetic import expected_error
from tiers import full_where

from utfproof.attention import (
    ChunkedAttention,
    GivenAttention,
    RationalAttention,
    SoftmaxAttention,
    parse_kernel,
    softmax,
)
from utfproof.constructions import build_host
from utfproof.constructions.random import random_host
from utfproof.emulation import bound, predict
from utfproof.emulation.bound import attention_difference, residual_sizes, settled
from utfproof.emulation.compare import CompareSetting, EmulationReport, compare, random_input
from utfproof.emulation.engines import PRECISIONS, BlockedMatrix, Engine, Placement
from utfproof.emulation.gains import host_gains, readings, selected_sizes, spectral_norm, weighted
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.emulation.predict import Predictor
from utfproof.errors import MalformedInput, SingularTarget
from utfproof.ground.selection import SelectionMatrix
from utfproof.matching import Embedder, r_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal

pytestmark = pytest.mark.numerical

SCALED = [("scaled", SoftmaxAttention(scale="1/sqrt(d)"))]
PARENTHESES = Shape(4, 2, 24, 4)


def host_of(name: str, shape: Shape, slack: float = 1.0) -> Universal:
    """A host by name; `factored` has R_V as a product of two square factors."""
    m = ceil(slack * matching_dimension(shape))
    if name == "factored":
        host = random_host(shape, m, seed=3)
        second = random_host(shape, m, seed=4).R_V
        return replace(host, R_Vo=second, construction="")
    if name.startswith("random"):
        return random_host(shape, m, seed=3, tied=name == "random-tied")
    return build_host(name, shape)


def run(
    host: Universal, target: Target, context: int = 17, kernels: Any = SCALED, inputs: str = "uniform", **setting: Any
) -> EmulationReport:
    return compare(host, [target], kernels, [context], seed=5, setting=CompareSetting(inputs=inputs, **setting))


# --- (1) never broken by a correct run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("law", TARGET_LAWS)
@pytest.mark.parametrize(
    ("name", "engine", "precision"),
    [
        ("sparse", "index-map", "float64"),
        ("sparse", "m-wide", "float32"),
        ("tied", "path-space", "float64"),
        ("tied", "index-map", "float32"),
        ("random", "m-wide", "float64"),
        ("random-tied", "path-space", "float64"),
        ("factored", "m-wide", "float32"),
        ("shared-key", "index-map", "float64"),
        ("shared-query", "path-space", "float32"),
    ],
)
@pytest.mark.parametrize("size", [(2, 2, 2, 2), (1, 4, 3, 3)])
def test_never_broken(law: str, name: str, engine: str, precision: str, size: tuple[int, ...]) -> None:
    shape = Shape(*size)
    host = host_of(name, shape, 1.25)
    kernels = [
        (text, parse_kernel(text, shape.heads, shape.head_dim)) for text in ("softmax", "scaled+causal+window:5")
    ]
    try:
        report = run(host, draw_target(shape, 1, law), 9, kernels, engine=engine, precision=precision)
    except SingularTarget:
        return  # outside what shared-query serves
    assert all(c.bound is not None and np.isfinite(c.bound) for c in report.comparisons)
    assert report.holds is not False, report.broken


@pytest.mark.parametrize("kernel", ["alibi", "causal+alibi", "rope", "scaled+causal+rope", "window:1", "given"])
@pytest.mark.parametrize("context", full_where(lambda context: context == 300, [1, 2, 300]))
def test_never_broken_by_any_attention(kernel: str, context: int) -> None:
    shape = Shape(2, 2, 2, 3)
    weights = np.random.default_rng(context).random((2, 2, context, context))
    matrices = weights / weights.sum(axis=-1, keepdims=True)
    entry = GivenAttention(matrices) if kernel == "given" else parse_kernel(kernel, 2, 2)
    for name in ("tied", "random"):
        for precision, inputs in (("float64", "uniform"), ("float32", "one-hot")):
            report = run(
                host_of(name, shape), draw_target(shape, 2), context, [(kernel, entry)], inputs, precision=precision
            )
            assert report.holds is not False, report.broken


def test_never_broken_by_batches_widths_and_repeated_heads() -> None:
    shape = Shape(3, 2, 2, 3, 2)
    targets = [draw_target(shape, seed, "uniform", width=5, tied=True) for seed in range(3)]
    for name in ("sparse", "random-tied"):
        setting = CompareSetting(batch=3, inputs="uniform")
        report = compare(host_of(name, shape, 1.25), targets, SCALED, [1, 20], trials=3, setting=setting)
        assert len(report.comparisons) == 6
        assert report.holds is not False, report.broken
    shape = Shape(3, 3, 2, 2)
    target = draw_target(shape, 1)
    for array in (target.W_Q, target.W_K, target.W_V, target.W_O):
        array[...] = array[:1, :1]
    for context in (1, 8):
        assert run(host_of("sparse", shape), target, context).holds


def test_bfloat16_within_its_bound() -> None:
    pytest.importorskip("torch")
    shape = Shape(2, 2, 2, 2)
    for name in ("tied", "random"):
        for engine in ("m-wide", "path-space"):
            assert (
                run(host_of(name, shape), draw_target(shape, 1), precision="bfloat16", engine=engine).holds is not False
            )


def test_an_embedding_that_overflows_is_refused() -> None:
    shape = Shape(2, 2, 2, 2)
    target = draw_target(shape, 1)
    large = replace(target, W_V=target.W_V * 2.0**80)
    with np.errstate(over="ignore"), pytest.raises(MalformedInput, match="overflows in float32"):
        run(host_of("sparse", shape), large, precision="float32")


def test_no_bound_for_attention_that_is_not_softmax() -> None:
    shape = Shape(1, 1, 1, 2)
    with pytest.raises(MalformedInput, match="no rounding bound for attention RationalAttention"):
        run(host_of("tied", shape), draw_target(shape, 1), kernels=[("rational", RationalAttention())])


@pytest.mark.parametrize("factor", [30, -1])
def test_no_bound_for_matrices_that_do_not_average(factor: int) -> None:
    """A correct run of matrices whose rows sum to 30 errs by more than averages could."""
    shape = Shape(2, 3, 2, 3)
    matrices = np.full((3, 2, 5, 5), 0.2)
    assert run(host_of("tied", shape), draw_target(shape, 1), 5, [("given", GivenAttention(matrices))]).holds
    single = GivenAttention(matrices.astype(np.float32))
    assert run(host_of("tied", shape), draw_target(shape, 1), 5, [("given", single)]).holds
    matrices[..., 0] *= factor
    matrices[..., 1:] += (factor < 0) * 0.1
    with pytest.raises(MalformedInput, match="no rounding bound for attention matrices with negative entries"):
        run(host_of("tied", shape), draw_target(shape, 1), 5, [("given", GivenAttention(matrices))])


# --- (3) useful --------------------------------------------------------------------------------------------------------


TAME = {
    "sparse": ("sparse", Shape(2, 2, 2, 3)),
    "tied": ("tied", Shape(2, 3, 4, 4)),
    "random": ("random", Shape(2, 2, 2, 3)),
    "random-tied": ("random-tied", Shape(1, 3, 2, 2)),
    "shared-key": ("shared-key", Shape(2, 2, 4, 4)),
    "tied, parentheses": ("tied", PARENTHESES),
    "sparse, parentheses": ("sparse", PARENTHESES),
}


def bounds_over_expected(name: str, shape: Shape, law: str, context: int) -> list[float]:
    """Bound over the error to be expected, in float64 and float32. One run's error is no measure: at (1,3,2,2) it is 5.2e-16
    with one OpenBLAS kernel and 2.5e-15 with another, where the bound is the same to two digits."""
    host, target = host_of(name, shape, 1.25), draw_target(shape, 1, law)
    size = expected_error(host, target, SCALED[0][1], random_input(shape, context, 5))
    found = []
    for precision, roundoff in PRECISIONS.items():
        if precision != "bfloat16":
            report = run(host, target, context, precision=precision)
            assert report.holds
            (comparison,) = report.comparisons
            assert comparison.bound is not None
            assert comparison.relative_error < 10 * size * roundoff  # what is expected is of the right size
            found.append(comparison.bound / (size * roundoff))
    return found


@pytest.mark.parametrize("law", ["uniform", "dead-heads"])
@pytest.mark.parametrize("case", TAME)
def test_within_ten_thousand_of_the_expected_error_on_tame_targets(law: str, case: str) -> None:
    assert max(bounds_over_expected(*TAME[case], law, 16)) < 1e4


@pytest.mark.parametrize("law", ["uniform", "dead-heads"])
@pytest.mark.parametrize(
    "case", [case if "," not in case else pytest.param(case, marks=pytest.mark.exhaustive) for case in TAME]
)
def test_within_ten_thousand_in_a_longer_context(law: str, case: str) -> None:
    assert max(bounds_over_expected(*TAME[case], law, 64)) < 1e4


def test_a_looser_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many deviations as there should be."""
    for module in (bound, predict):
        monkeypatch.setattr(module, "LAMBDA", 3 * module.LAMBDA)
    assert max(bounds_over_expected(*TAME["random-tied"], "uniform", 16)) > 1e4


# --- (2) broken by a wrong run -----------------------------------------------------------------------------------------


def single(values: np.ndarray) -> np.ndarray:
    """Rounded to float32 and back."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def ten_bits(values: np.ndarray) -> np.ndarray:
    """Rounded to a significand of 11 bits, ten of them stored, as TF32 does with the factors of a product."""
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    return np.ldexp(np.rint(mantissa * 2**11) / 2**11, exponent)


def change_run(patch: pytest.MonkeyPatch, change: Any) -> None:
    """`change` gets the input, the prepared embedding and the attention, and returns them."""
    plain = Engine.run
    patch.setattr(Engine, "run", lambda self, x, prepared, kernel: plain(self, *change(x, prepared, kernel)))


def change_runner(patch: pytest.MonkeyPatch, change: Any) -> None:
    """`change` gets the host that is run, after everything else has been prepared from the right one."""
    plain = Engine.__init__

    def changed(self: Engine, *args: Any, **options: Any) -> None:
        plain(self, *args, **options)
        self._runner = change(self._runner)

    patch.setattr(Engine, "__init__", changed)


def other_attention(kernel: Any, **options: Any) -> Any:
    kernel.kernel = ChunkedAttention(replace(kernel.kernel.kernel, **options))
    return kernel


def rounded_host(host: Universal, change: Any) -> Universal:
    def grid(values: Any) -> Any:
        if isinstance(values, BlockedMatrix):
            return BlockedMatrix(grid(values.array))
        if isinstance(values, np.ndarray):
            return change(values).astype(values.dtype)
        return tuple(grid(value) for value in values)

    return replace(host, **{name: grid(getattr(host, name)) for name in ("R_Q", "R_K", "R_V", "U")})


def extra_one(host: Universal) -> Universal:
    """One cell of U that was 0 becomes an identity."""
    U = host.U
    assert isinstance(U, SelectionMatrix)
    taken = int(U.row_cells[0])
    more = SelectionMatrix(U.rows, U.columns, np.append(U.row_cells, taken + 1), np.append(U.column_cells, 0))
    return replace(host, U=more)


def off_by_a_billionth(E: np.ndarray) -> np.ndarray:
    E = E.copy()
    largest = np.unravel_index(np.argmax(np.abs(E)), E.shape)
    E[largest] *= 1 + 1e-9
    return E


HOST_FAULTS = {
    "swapped heads": lambda host: replace(host, R_Q=tuple(heads[::-1] for heads in host.R_Q)),
    "weights in float32": lambda host: rounded_host(host, single),
}
RUN_FAULTS = {
    "wrong mask": lambda x, E, kernel: (x, E, other_attention(kernel, causal=True)),
    "wrong scale": lambda x, E, kernel: (x, E, other_attention(kernel, scale=1.0)),
    "E in float32": lambda x, E, kernel: (x, single(E), kernel),
    "X in float32": lambda x, E, kernel: (single(x), E, kernel),
    "one entry of E": lambda x, E, kernel: (x, off_by_a_billionth(E), kernel),
}


@pytest.mark.parametrize("name", ["sparse", "random"])
@pytest.mark.parametrize("fault", [*HOST_FAULTS, *RUN_FAULTS])
def test_planted_fault_breaks_the_bound(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "weights in float32" and name == "sparse":
        pytest.skip("zeros and ones are exact in float32")
    shape = Shape(2, 2, 2, 2)
    host, target = host_of(name, shape, 1.25), draw_target(shape, 1)
    assert run(host, target, engine="m-wide").holds
    if fault in HOST_FAULTS:
        change_runner(monkeypatch, HOST_FAULTS[fault])
    else:
        change_run(monkeypatch, RUN_FAULTS[fault])
    report = run(host, target, engine="m-wide")
    assert not report.holds, report.comparisons


def test_one_more_entry_of_an_index_map_host_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(2, 2, 2, 2)
    host, target = host_of("sparse", shape), draw_target(shape, 1)
    assert run(host, target).holds
    change_runner(monkeypatch, extra_one)
    assert not run(host, target).holds


def test_products_in_ten_bits_break_the_bound_of_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(2, 2, 2, 2)
    host, target = host_of("tied", shape), draw_target(shape, 1)
    assert run(host, target, engine="m-wide", precision="float32").holds
    change_run(monkeypatch, lambda x, E, kernel: (ten_bits(x).astype(x.dtype), ten_bits(E).astype(E.dtype), kernel))
    assert not run(host, target, engine="m-wide", precision="float32").holds


# --- its parts ---------------------------------------------------------------------------------------------------------


def test_residual_counts_another_row_for_every_word() -> None:
    """Word 0 may attend to token 0 and word 1 to token 1, so what each row misses adds up."""
    shape = Shape(2, 1, 1, 2)
    difference = np.zeros((2, matching_dimension(shape)))
    difference[0, 4], difference[1, 6] = 3.0, 5.0  # output 0 of word (0) in row 0, of word (1) in row 1
    sizes = residual_sizes(difference, shape, np.eye(2))
    assert sizes[(2, -1, -1)] == 8.0
    assert sizes[(0, 0, 0)] == 0.0


def test_softmax_moves_by_at_most_the_largest_change_of_a_logit() -> None:
    rng = np.random.default_rng(0)
    for size in (0.01, 0.5, 1.5):
        logits = rng.standard_normal((200, 6)) * 3
        change = rng.choice([-size, size], logits.shape)
        apart = np.abs(softmax(logits + change) - softmax(logits)).sum(axis=1).max()
        assert 0.3 * size < apart <= size


def test_attention_difference_of_logits_far_off_is_two() -> None:
    assert attention_difference(SoftmaxAttention(), 10.0, 10.0, 5.0, 5.0, 4, 8, 2.0**-53)[0] == 2.0
    small, _ = attention_difference(SoftmaxAttention(), 1.0, 1.0, 1e-9, 1e-9, 4, 8, 2.0**-53)
    assert 2e-9 < small < 2.1e-9
    with_gap, _ = attention_difference(SoftmaxAttention(), 0.0, 1.0, 0.0, 0.0, 4, 8, 2.0**-53, 1e-6)
    assert with_gap > 1e-6


@pytest.mark.full
def test_norm_of_a_large_matrix_is_bounded() -> None:
    rng = np.random.default_rng(1)
    for matrix in (rng.standard_normal((515, 520)), np.outer(rng.random(520), rng.random(515)), np.eye(513) * 1e-9):
        exact = np.linalg.norm(matrix, 2)
        assert exact <= spectral_norm(matrix) <= 3.5 * exact
    assert spectral_norm(np.zeros((600, 600))) == 0.0


@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_sizes_and_noise_of_an_index_map_stream(name: str) -> None:
    """Entry sizes hold for the stream, and noise of these sizes reaches a reading by no more than `weighted` says."""
    shape = Shape(2, 2, 2, 2)
    host = host_of(name, shape)
    rng = np.random.default_rng(3)
    E, rows = rng.standard_normal((2, host.m)), rng.standard_normal((5, 2))
    sizes = selected_sizes(host, E, rows)
    stream = rows @ E
    for layer in range(2):
        stream = sum(stream @ host.maps(layer, head).value[0] for head in range(2))
        assert (np.abs(stream) <= sizes[layer + 1] * (1 + 1e-12)).all()
    columns = r_all(host)
    gains = host_gains(host, columns)
    found = dict(zip(readings(shape), weighted(shape, gains.selected[0], sizes[0], through=False), strict=True))
    scaled = sizes[0][:, None] * columns.to_dense(np.float64)
    outputs = scaled[:, -shape.leaves * 2 :].reshape(host.m, -1, 2)
    assert found[(2, -1, -1)] == pytest.approx(np.linalg.norm(outputs, axis=0).max(axis=1).sum())
    first = scaled[:, :2]  # the queries of layer 1, head 0
    assert found[(0, 0, 0)] == pytest.approx(np.linalg.norm(first, 2))


def test_norms_of_a_dense_host() -> None:
    shape = Shape(2, 2, 2, 3)
    host = host_of("random", shape)
    columns = r_all(host)
    gains = host_gains(host, columns)
    words = [columns[:, start : start + 2] for start in (4, 8)]  # queries of layer 2, head 0, by words (0) and (1)
    assert gains.full[0][(0, 1, 0)].two == pytest.approx(sum(np.linalg.norm(b, 2) for b in words))
    assert gains.full[0][(0, 1, 0)].inf == pytest.approx(sum(np.linalg.norm(b, axis=1).max() for b in words))
    assert gains.through[0][(0, 1, 0)] == gains.full[0][(0, 1, 0)]
    assert gains.through[0][(0, 0, 0)].two == 0.0
    assert gains.full[2][(2, -1, -1)].two == pytest.approx(np.linalg.norm(host.U, axis=0).max())


def test_attention_that_is_off_makes_the_stream_larger() -> None:
    """The stream cancels where attention is right; where it is off by 2, only its hull bounds it."""
    shape = Shape(2, 2, 2, 2)
    host = host_of("random", shape)
    target = draw_target(shape, 1)
    embedder = Embedder(host)
    prediction = Predictor(Engine(embedder, "m-wide", Placement())).of(target, embedder.embed(target).E)
    noise: Any = prediction.noise(random_input(shape, 6, 0), ChunkedAttention(SoftmaxAttention()))
    dense = noise.__self__
    calm, off = noise([0.0, 0.0, 0.0]), noise([0.0, 2.0, 2.0])
    assert all(off.size[key] > calm.size[key] for key in readings(shape) if key[1] != 0)
    assert off.size[(0, 0, 0)] == calm.size[(0, 0, 0)]
    two, _, _, carried = dense._carried([0.0, 2.0, 2.0])
    assert two[1:] == pytest.approx([h + c for h, c in zip(dense.sizes.hull[1:], carried[1:], strict=True)])
    assert dense.sizes.two[2] < 0.5 * dense.sizes.hull[2]


def test_settled_asks_again_until_sizes_agree() -> None:
    class Found:
        def __init__(self, error: float) -> None:
            self.error, self.apart = error, [error, error]

    asked: list[list[float]] = []

    def noise_of(apart: list[float]) -> Any:
        asked.append(apart)
        return 1.0 + sum(apart)

    assert settled(noise_of, Found, 2) == 13.0
    assert asked == [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 4.0, 8.0]]
