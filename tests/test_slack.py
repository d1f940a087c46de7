"""Random hosts against slack and depth: exact residuals, refinement, initialisations, the prediction, the study, its plot."""

import json
import sys
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from utfproof.attention import parse_kernel
from utfproof.constructions import build_host
from utfproof.constructions.random import random_target
from utfproof.emulation import slack
from utfproof.emulation.compare import random_input, relative_error
from utfproof.emulation.initialisation import orthogonal_host, rescaled_host, rotated_host, value_gain
from utfproof.emulation.refine import ExactProducts, Factors, column_scale, refine_embedding, slice_bits
from utfproof.emulation.slack import RECOMMENDED_RATIO, SlackRow, plot_slack, predicted_norm, run_slack, slack_study
from utfproof.errors import CannotCarry, MalformedInput, NotDefined, ResourceLimit
from utfproof.exact import rational
from utfproof.ground.arrays import exact
from utfproof.matching import r_all, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal

pytestmark = pytest.mark.numerical

SMALL = Shape(2, 2, 2, 2)
EPSILON = float(np.finfo(np.float64).eps)


def problem(shape=SMALL, m=None, seed=0):
    host = build_host("random", shape, m, seed=seed)
    return r_all(host), w_all(random_target(shape, seed))


def exact_residual(matrix, right, E):
    return exact(right) - exact(E) @ exact(matrix)


# --- residuals and refinement ----------------------------------------------------------------------------------


def test_products_of_slices_never_round():
    for inner in (1, 2, 3, 64, 65, 456, 2280, 2850, 2**20):
        assert inner * 4 ** slice_bits(inner) <= 2**53
        assert inner * 4 ** (slice_bits(inner) + 1) > 2**53 / 4


@pytest.mark.parametrize("spread", [0, 8, 30])
def test_the_residual_is_that_of_rational_arithmetic(spread):
    generator = np.random.default_rng(spread)

    def drawn(*size):
        return generator.standard_normal(size) * 2.0 ** generator.integers(-spread, spread + 1, size)

    matrix, E = drawn(9, 7), drawn(3, 9)
    right = E @ matrix  # all but the rounding cancels
    truth = exact_residual(matrix, right, E)
    found = ExactProducts(matrix).residual(right, E)
    size = np.abs(E) @ np.abs(matrix)

    def worst(candidate):
        return max(
            abs(float(Fraction(float(c)) - t)) / s
            for c, t, s in zip(candidate.flat, truth.flat, size.flat, strict=True)
        )

    # found is rounded once: half a unit of its own last place, and nothing of the size of the terms
    assert worst(found) <= EPSILON * np.max(np.abs(found) / size) + 2.0**-95
    assert worst(right - E @ matrix) > 2.0**-60  # float64's own residual is no such thing
    # and where little cancels, every entry is the truth correctly rounded
    right = drawn(3, 7)
    truth = exact_residual(matrix, right, E).astype(np.float64)
    assert np.array_equal(ExactProducts(matrix).residual(right, E), truth)


def test_zero_rows_and_columns_have_residuals():
    matrix, E = np.zeros((3, 2)), np.zeros((2, 3))
    right = np.array([[1.0, -2.0], [0.0, 2.0**-300]])
    assert np.array_equal(ExactProducts(matrix).residual(right, E), right)


def test_refinement_reaches_the_rounding_of_E_and_says_so():
    matrix, right = problem(Shape(2, 2, 4, 4))  # m = M
    factors = Factors(matrix)
    start = factors.solve(right)
    E, residual = refine_embedding(matrix, right, start, factors=factors)
    scale = column_scale(matrix)

    def true_residual(candidate):
        difference = exact_residual(matrix, right, candidate).astype(np.float64) * scale
        return np.linalg.norm(difference) / np.linalg.norm(right * scale)

    assert residual == pytest.approx(true_residual(E), rel=1e-6)
    assert residual < true_residual(start) / 3
    assert residual < 0.5 * EPSILON * np.linalg.norm(E) * np.linalg.norm(matrix * scale) / np.linalg.norm(right * scale)
    # one unit in the last place elsewhere is seen
    spoiled = E.copy()
    spoiled[0, 0] *= 1 + 1e-12
    assert true_residual(spoiled) > 2 * residual


def test_refinement_repairs_a_spoiled_start_and_keeps_the_least_norm():
    matrix, right = problem(SMALL, 35)
    E, residual = refine_embedding(matrix, right, np.zeros((2, 35)))
    assert residual < 10 * EPSILON
    least = np.linalg.lstsq(matrix.T, right.T, rcond=None)[0].T
    assert np.linalg.norm(E) == pytest.approx(np.linalg.norm(least), rel=1e-10)


def test_refinement_refuses_what_it_cannot_do():
    matrix, right = problem()
    E = np.zeros((2, matrix.shape[0]))
    with pytest.raises(MalformedInput, match="sizes differ"):
        refine_embedding(matrix, right, E[:, 1:])
    with pytest.raises(MalformedInput, match="sizes differ"):
        refine_embedding(matrix[:, 1:], right, E)
    with pytest.raises(MalformedInput, match="float64 matrix"):
        refine_embedding(matrix.astype(np.float32), right, E)
    with pytest.raises(MalformedInput, match="not finite"):
        refine_embedding(matrix, right * np.nan, E)
    with pytest.raises(MalformedInput, match="not finite"):
        refine_embedding(matrix * np.inf, right, E)
    with pytest.raises(ResourceLimit):
        refine_embedding(matrix, right, E, max_memory=1000)
    with pytest.raises(CannotCarry) as found:
        refine_embedding(matrix[:-2], right, E[:, :-2])
    assert (found.value.rank, found.value.columns) == (matrix.shape[0] - 2, matrix.shape[1])
    twice = matrix.copy()
    twice[:, 5] = twice[:, 4]
    with pytest.raises(CannotCarry):
        refine_embedding(twice, right, E)


# --- initialisations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_orthogonal_hosts_are_orthogonal_and_emulate(tied):
    shape, m = Shape(2, 2, 2, 3), 45
    host = orthogonal_host(shape, m, seed=3, tied=tied, gain=0.5)
    assert host.tied is tied
    assert host.construction == ""
    assert value_gain(host) == pytest.approx(0.5)
    for layer in range(shape.layers):
        maps = [host.maps(layer, head) for head in range(2)]
        for entry in maps:
            assert np.allclose(entry.value[0] @ entry.value[0].T, 0.25 * np.eye(m), atol=1e-14)
        readers = np.concatenate([part for entry in maps for part in (entry.query, entry.key)], axis=1)
        assert np.allclose(readers.T @ readers, np.eye(8), atol=1e-14)
    assert emulation_error(host) < 1e-13
    other = orthogonal_host(shape, m, seed=4, tied=tied)
    assert not np.allclose(other.U, host.U)


def emulation_error(host):
    shape = host.shape
    target, kernel, x = random_target(shape, 1), parse_kernel("causal+rope", shape.heads, 2), random_input(shape, 5, 1)
    E, _ = refine_embedding(r_all(host), w_all(target), np.zeros((shape.d_in, host.m)))
    return relative_error(host.forward(x, E, kernel), target.forward(x, kernel))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("m", [36, 40])
def test_rotated_hosts_are_as_well_conditioned_as_a_permutation(tied, m):
    shape = Shape(2, 2, 2, 3)
    host = rotated_host(shape, m, seed=2, tied=tied)
    matrix = r_all(host)
    assert np.allclose(matrix.T @ matrix, np.eye(36), atol=1e-13)
    assert Factors(matrix).condition() < 1 + 1e-12
    assert np.mean(host.R_V != 0) > 0.99  # dense all the same
    assert emulation_error(host) < 1e-14
    assert Factors(r_all(build_host("random", shape, m))).condition() > 10


def test_float_hosts_are_certified_from_their_weights():
    shape = Shape(2, 1, 1, 2)
    M = matching_dimension(shape)
    for host in (rotated_host(shape, M), orthogonal_host(shape, M)):
        arrays = {name: exact(getattr(host, name)) for name in ("R_Q", "R_K", "R_V", "U")}
        assert rational.rank(r_all(replace(host, **arrays))) == M


def test_hosts_below_M_and_bad_factors_are_refused():
    for make in (orthogonal_host, rotated_host):
        with pytest.raises(NotDefined, match="m >= 32"):
            make(SMALL, 31)
        with pytest.raises(MalformedInput):
            make(SMALL, 32, seed=-1)
        with pytest.raises(ResourceLimit):
            make(SMALL, 32, max_memory=1000)
    host = build_host("random", SMALL)
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(MalformedInput):
            rescaled_host(host, factor)
    with pytest.raises(MalformedInput):
        value_gain(build_host("sparse", SMALL))
    doubled = rescaled_host(host, 2.0)
    assert (doubled.construction, value_gain(doubled)) == ("", pytest.approx(2 * value_gain(host)))


# --- the prediction --------------------------------------------------------------------------------------------


def gaussian_host(shape, m, generator, reader, value):
    lead = (shape.layers, shape.heads, m)
    return Universal(
        shape,
        m,
        reader * generator.standard_normal((*lead, shape.head_dim)),
        reader * generator.standard_normal((*lead, shape.head_dim)),
        value * generator.standard_normal((*lead, m)),
        reader * generator.standard_normal((m, shape.d_out)),
    )


@pytest.mark.full
@pytest.mark.parametrize("dimensions", [(2, 3, 1, 2), (1, 3, 2, 2), (3, 2, 1, 1)])
def test_the_norm_of_E_is_as_predicted(dimensions):
    shape = Shape(*dimensions)
    m = 2 * matching_dimension(shape)
    generator = np.random.default_rng(0)
    right = generator.standard_normal((2, matching_dimension(shape)))  # the formula holds for any right-hand side
    reader, value = 0.3, 0.2
    squares = []
    for _ in range(150):
        E = Factors(r_all(gaussian_host(shape, m, generator, reader, value))).solve(right)
        squares.append(np.sum(E**2))
    mean, spread = np.mean(squares), np.std(squares) / len(squares) ** 0.5
    assert spread < 0.05 * mean  # else the test could not fail
    predicted = predicted_norm(shape, m, right, reader=reader, value=value) ** 2
    assert abs(mean - predicted) < 4 * spread
    for wrong in ({"reader": reader, "value": 1.2 * value}, {"reader": 1.2 * reader, "value": value}):
        assert abs(mean - predicted_norm(shape, m, right, **wrong) ** 2) > 4 * spread
    assert abs(mean - predicted_norm(shape, m + m // 4, right, reader=reader, value=value) ** 2) > 4 * spread


def test_the_mean_norm_is_infinite_up_to_one_dimension_more():
    _, right = problem()
    assert predicted_norm(SMALL, 33, right, reader=1, value=1) is None
    assert predicted_norm(SMALL, 34, right, reader=1, value=1) > 0


# --- the study -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    shapes = [Shape(2, layers, 3, 3) for layers in (1, 3)]
    return slack_study(shapes, (1, 1.25, 2), ("uniform", "uniform:1"), ties=(False, True), trials=2)


def middle(rows, value, **wanted):
    chosen = [getattr(r, value) for r in rows if all(getattr(r, k) == v for k, v in wanted.items())]
    assert chosen
    return float(np.median(chosen))


@pytest.mark.full
def test_each_row_is_what_was_asked(rows):
    assert len(rows) == 2 * 3 * 2 * 2 * 2
    assert [f.name for f in fields(SlackRow)] == list(vars(rows[0]))
    for row in rows:
        assert row.columns == matching_dimension(Shape(row.heads, row.layers, row.head_dim, row.d_in))
        assert 0 <= row.m - row.ratio * row.columns < 1
        assert row.condition >= 1
        assert 0 < row.misfit < 1e-10
        assert 0 < row.error < 1e-9
    assert {row.seed for row in rows} == {0, 1}
    hosts = {(row.seed, row.layers, row.ratio): row.condition for row in rows if row.law == "uniform" and not row.tied}
    assert len(set(hosts.values())) == len(hosts)  # each draw is another host
    assert middle(rows, "gain", law="uniform:1") == pytest.approx(1, abs=1e-12)
    assert middle(rows, "gain", law="uniform") == pytest.approx(3**-0.5, abs=0.02)


@pytest.mark.full
def test_slack_helps_and_gain_hurts(rows):
    for tied in (False, True):
        for name in ("condition", "misfit", "cancellation", "error"):
            at = {ratio: middle(rows, name, ratio=ratio, tied=tied, law="uniform", layers=3) for ratio in (1, 1.25, 2)}
            assert at[1] > (1.5 if name == "error" else 3) * at[1.25]
            if name != "error":  # there the rest is the noise of rounding
                assert at[1.25] > 1.1 * at[2]
        gains = [
            middle(rows, "cancellation", law=law, layers=3, tied=tied, ratio=2) for law in ("uniform:1", "uniform")
        ]
        assert gains[0] > 3 * gains[1]
        same = [middle(rows, "condition", law=law, layers=3, tied=tied, ratio=2) for law in ("uniform:1", "uniform")]
        assert same[0] == pytest.approx(same[1], rel=1e-6)  # scaled columns: the gain is no matter of condition


def test_cancellation_explains_the_error(rows):
    for row in rows:
        assert 0.3 < row.error / (EPSILON * row.cancellation) < 60
        # the same pass in float32 loses 2^29 times as much
        assert 2.0**24 < row.error_float32 / row.error < 2.0**34
        if row.ratio >= 1.25 and row.layers > 1:
            assert row.predicted == pytest.approx(row.cancellation, rel=0.5)
    assert all(row.predicted is None for row in rows if row.ratio == 1)


def test_the_sources_add_up(monkeypatch):
    if slack._WIDER:
        found = slack_study([SMALL], (1, 1.25), trials=3, separate=True)
        assert len(found) == 6
        for row in found:
            # the reference's own rounding is a few units
            assert row.error <= row.error_of_E + row.error_of_rounding + 20 * EPSILON
            assert min(row.error_of_E, row.error_of_rounding) > row.error / 100
    monkeypatch.setattr(slack, "_WIDER", False)
    (row,) = slack_study([SMALL], (1,), separate=True)
    assert row.error_of_E is None
    assert row.error_of_rounding is None


def test_refinements_differ_in_the_residual_and_hardly_in_the_output():
    found = slack_study([Shape(2, 3, 3, 3)], (1,), refinements=slack.REFINEMENTS, trials=3)
    residual = {name: middle(found, "misfit", refinement=name) for name in slack.REFINEMENTS}
    error = {name: middle(found, "error", refinement=name) for name in slack.REFINEMENTS}
    assert residual["unscaled"] == pytest.approx(residual["scaled"], rel=0.5)
    assert residual["extended"] < residual["one step"] < residual["scaled"]
    assert error["extended"] > error["one step"] / 10


@pytest.mark.parametrize("law", ["binomial", "signs", "orthogonal:0.5", "rotated", "rotated:0.5"])
def test_every_initialisation_is_studied(law):
    (row,) = slack_study([SMALL], (1.25,), (law,), ties=(True,))
    assert row.error < 1e-10
    assert (row.predicted is None) == (law.partition(":")[0] in ("orthogonal", "rotated"))


def test_the_study_refuses_nonsense():
    cases = [
        ({"ratios": (0.99,)}, "start at 1"),
        ({"ratios": (float("nan"),)}, "start at 1"),
        ({"laws": ("gaussian",)}, "unknown"),
        ({"laws": ("uniform:0",)}, "unknown"),
        ({"laws": ("uniform:x",)}, "unknown"),
        ({"refinements": ("twice",)}, "unknown"),
        ({"trials": 0}, "positive"),
        ({"seed": 2**64 - 1, "trials": 2}, "seed"),
    ]
    for options, message in cases:
        with pytest.raises(MalformedInput, match=message):
            slack_study([SMALL], **options)
    with pytest.raises(ResourceLimit):
        slack_study([SMALL], max_memory=1000)
    with pytest.raises(MalformedInput, match="random hosts"):
        run_slack(SMALL, "sparse")


# --- the entry point and the plot ------------------------------------------------------------------------------


def test_run_slack_measures_both_ends_at_every_depth_and_plots(tmp_path):
    pytest.importorskip("matplotlib")
    calls = []
    path = tmp_path / "slack.svg"
    found = run_slack(SMALL, "random-tied", (1.5,), 7, 2, path, progress=lambda: calls.append(1))
    assert len(calls) == len(found) == slack.slack_steps(SMALL, (1.5,), 2) == 12
    assert {row.layers for row in found} == {1, 2}
    assert {row.ratio for row in found} == {1.0, RECOMMENDED_RATIO, 1.5}
    assert all(row.tied and row.seed in (7, 8) for row in found)
    assert b"<svg" in path.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["slack.svg"]
    assert json.loads(json.dumps(slack.document(found)))["rows"][0]["layers"] == 1


def test_a_plot_that_cannot_be_made_is_refused_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr(slack, "slack_study", lambda *a, **k: pytest.fail("measured first"))
    pytest.importorskip("matplotlib")
    with pytest.raises(MalformedInput, match="ends in"):
        run_slack(SMALL, plot_path=tmp_path / "slack.docx")
    with pytest.raises(MalformedInput, match="does not exist"):
        run_slack(SMALL, plot_path=tmp_path / "nowhere" / "slack.png")
    with pytest.raises(MalformedInput, match="no rows"):
        plot_slack([], tmp_path / "slack.png")
    assert not list(tmp_path.iterdir())


def test_a_plot_needs_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(slack, "slack_study", lambda *a, **k: pytest.fail("measured first"))
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MalformedInput, match=" -m pip install matplotlib"):
        run_slack(SMALL, plot_path=tmp_path / "slack.png")
    assert not list(tmp_path.iterdir())


def test_the_committed_measurements_have_these_fields():
    document = json.loads((Path(__file__).parents[1] / "results" / "slack-cpu.json").read_text())
    assert document["fields"] == [field.name for field in fields(SlackRow)]
    assert document["recommended_ratio"] == RECOMMENDED_RATIO
    for section in document["sections"].values():
        assert section["rows"]
        assert all(len(row) == len(document["fields"]) for row in section["rows"])
