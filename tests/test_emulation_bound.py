"""The bound of docs/emulation.md: never broken by a correct run or by steered low bits, broken by planted faults."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
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
from utfproof.emulation import compare as compare_module
from utfproof.emulation.bound import RIGOROUS, Inputs
from utfproof.emulation.compare import CompareSetting, Comparison, EmulationReport, compare
from utfproof.emulation.engines import BlockedMatrix, Engine, ReadHost
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.errors import MalformedInput, SingularTarget
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal
from utfproof.util.selection import SelectionMatrix

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


# --- never broken by a correct run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("law", TARGET_LAWS)
@pytest.mark.parametrize(
    ("name", "engine", "precision"),
    [
        ("sparse", "index-map", "float64"),
        ("sparse", "m-wide", "float32"),
        ("tied", "m-wide", "float64"),
        ("tied", "index-map", "float32"),
        ("random", "m-wide", "float64"),
        ("random-tied", "m-wide", "float64"),
        ("factored", "m-wide", "float32"),
        ("shared-key", "index-map", "float64"),
        ("shared-query", "m-wide", "float32"),
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
    assert report.holds is not False, report.broken
    for found in report.comparisons:
        assert found.bound is not None
        assert found.estimate is not None
        assert found.relative_error < min(found.estimate, found.bound), found


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


def test_never_broken_by_widths_and_repeated_heads() -> None:
    shape = Shape(3, 2, 2, 3, 2)
    targets = [draw_target(shape, seed, "uniform", width=5, tied=True) for seed in range(3)]
    for name in ("sparse", "random-tied"):
        setting = CompareSetting(inputs="uniform")
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
        assert run(host_of(name, shape), draw_target(shape, 1), precision="bfloat16").holds is not False


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


# --- broken by a wrong run -----------------------------------------------------------------------------------------


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
        self._runner = change(self._runner) if self.read is None else ReadHost(change(self.host))

    patch.setattr(Engine, "__init__", changed)


def other_attention(kernel: Any, **options: Any) -> Any:
    return ChunkedAttention(replace(kernel.kernel, **options))


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
    (found,) = run(host, target, engine="m-wide").comparisons
    assert found.bound is not None
    assert found.estimate is not None
    assert found.relative_error > (found.bound if name == "sparse" else found.estimate), found


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


def test_softmax_moves_by_at_most_the_largest_change_of_a_logit() -> None:
    rng = np.random.default_rng(0)
    for size in (0.01, 0.5, 1.5):
        logits = rng.standard_normal((200, 6)) * 3
        change = rng.choice([-size, size], logits.shape)
        apart = np.abs(softmax(logits + change) - softmax(logits)).sum(axis=1).max()
        assert 0.3 * size < apart <= size


def test_inputs_meet_another_row_for_every_word() -> None:
    """Word 0 may attend to token 0 and word 1 to token 1, so what each row misses adds up."""
    blocks = np.zeros((2, 2, 1))
    blocks[0, 0], blocks[1, 1] = 3.0, 5.0
    assert Inputs.of(np.eye(2)).met(blocks, entries=True) == Inputs.of(np.eye(2)).met(blocks) == 8.0


def test_sums_in_float32_err_by_no_more_than_their_units() -> None:
    """Steered low bits: every addition of a run of halves of a unit rounds the same way."""
    k = 1000
    terms = np.full(k, 1 + 2.0**-24 * 1.5, dtype=np.float64).astype(np.float32)
    total = np.float32(0)
    for term in terms:
        total = np.float32(total + term)
    error = abs(float(total) - terms.astype(np.float64).sum()) / terms.astype(np.float64).sum()
    assert error <= RIGOROUS.units(k, 2.0**-24)


# --- steered low bits --------------------------------------------------------------------------------------------------


def steered(layers: int) -> tuple[Shape, np.ndarray, np.ndarray]:
    """Attention matrices [L, 1, n, n] whose weights are chosen so that every layer rounds the same way, and values."""
    n, ways = 256, []
    one, other = np.float32(1.25), np.float32(1) + np.float32(2.0**-23 * 63)

    def mixed(value: np.float32, delta: float) -> tuple[np.float32, float, np.ndarray]:
        weights = np.full(n, 2.0**-8, dtype=np.float32)
        weights[-1], weights[-2] = 2.0**-8 * (1 + delta), 2.0**-8 * (1 - delta)
        x = np.full((n, 3), value, dtype=np.float32)
        x[-1] = one
        exact = float((weights.astype(np.float64) @ x.astype(np.float64))[0])
        return (np.tile(weights, (n, 1)) @ x)[0, 0], exact, weights

    value = other
    for _ in range(layers):
        found = []
        for delta in np.round(np.linspace(-0.02, 0.02, 257) * 2**15) / 2**15:
            next_value, _, weights = mixed(value, delta)
            after, exact, _ = mixed(next_value, 0.0)
            found.append((float(after) - exact, next_value, weights))
        _, value, weights = min(found, key=lambda entry: entry[0])
        ways.append(weights)
    matrices = np.zeros((layers, 1, n, n))
    for layer, weights in enumerate(ways):
        matrices[layer, 0, :] = weights
        matrices[layer, 0, -1] = np.eye(n)[-1]
    return Shape(1, layers, 1, 2), matrices, np.array([float(one), float(other)])


@pytest.mark.full
@pytest.mark.parametrize("layers", [8, 16])
def test_steered_low_bits_stay_within_the_bound(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They exceed the estimate, which takes rounding errors for independent ones."""
    shape, matrices, values = steered(layers)
    W_V, W_O = np.zeros((layers, 1, 2, 1)), np.zeros((layers, 1, 1, 2))
    W_O[:, :, 0, 0] = W_V[:, :, 0, 0] = 1
    W_V[0, 0, :, 0] = values
    target = Target(shape, np.zeros_like(W_V), np.zeros_like(W_V), W_V, W_O)
    x = np.eye(2)[[1] * 255 + [0]]
    monkeypatch.setattr(compare_module, "random_input", lambda *_, **__: x)
    kernels = [("given", GivenAttention(matrices))]
    report = run(host_of("sparse", shape), target, 256, kernels, engine="m-wide", precision="float32")
    (found,) = report.comparisons
    assert report.holds is True
    assert found.bound is not None
    assert found.estimate is not None
    assert 2 < found.bound / found.relative_error < 20
    if layers == 16:
        assert found.relative_error > found.estimate


def test_a_dense_host_in_float32_rests_on_the_estimate() -> None:
    shape = Shape(2, 3, 4, 4)
    report = run(host_of("random", shape), draw_target(shape, 1), precision="float32")
    assert report.holds is True
    assert report.rests_on_estimate
    assert report.document()["rests_on"] == "estimate"
    assert all(c.bound is not None and c.bound > 1 for c in report.comparisons)


@pytest.mark.parametrize(("error", "agrees"), [(1e-4, True), (1e-2, None), (2.0, None), (50.0, False)])
def test_an_error_beyond_the_estimate_alone_decides_nothing(error: float, agrees: bool | None) -> None:
    assert Comparison(0, "softmax", 2, error, bound=10.0, estimate=1e-3).agrees(None) is agrees
