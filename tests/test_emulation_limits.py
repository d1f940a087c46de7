"""Emulation at the limits of float64: nothing is decided by a bound that overflows, underflows or says nothing."""

import json

import numpy as np
import pytest

from utfproof.attention import SeededAttention, SoftmaxAttention
from utfproof.constructions import build_host
from utfproof.emulation import compare as compare_module
from utfproof.emulation.compare import CompareSetting, Comparison, EmulationReport, compare
from utfproof.emulation.laws import draw_target
from utfproof.emulation.norms import block_norms, length, raised, spectral_norm
from utfproof.errors import MalformedInput
from utfproof.matching import embed
from utfproof.shapes import Shape
from utfproof.systems import Target, Universal
from utfproof.util.notions import Notion
from utfproof.weights import write_target

pytestmark = pytest.mark.numerical

SMALL = Shape(2, 2, 1, 2)
KERNELS = [("softmax", SoftmaxAttention()), ("causal", SoftmaxAttention(causal=True))]


def scaled(**factors):
    """A target whose tensors are multiplied by these factors."""
    target = draw_target(SMALL, 0)
    for name, factor in factors.items():
        getattr(target, name)[...] *= factor
    return target


def run(host, target, contexts=(2, 5), **options):
    return compare(build_host(host, SMALL), [target], KERNELS, contexts, **options)


# --- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "bound", "tolerance", "agrees"),
    [
        (1e-16, 1e-12, None, True),
        (1e-11, 1e-12, None, False),
        (1e-16, np.nan, None, None),
        (1e-16, np.inf, None, None),
        (1e-16, 1.0, None, None),
        (3.0, 2.0, None, False),
        (np.nan, 1e-12, None, None),
        (np.inf, 1e-12, None, None),
        (1e-16, None, None, None),
        (1e-16, None, 1e-9, True),
        (1e-8, None, 1e-9, False),
        (1e-16, 5.0, 1e-9, True),
        (1e-16, np.nan, 1e-9, True),
        (np.nan, None, 1e-9, None),
    ],
)
def test_verdict_of_a_run(error, bound, tolerance, agrees):
    found = Comparison(0, "softmax", 2, error, bound)
    assert found.agrees(tolerance) is agrees
    assert (found.undecided(tolerance) is None) == (agrees is not None)
    report = EmulationReport(Notion.MATCHING, tolerance, (found,), None, None)
    assert report.holds is agrees
    assert (report.undecided is None) == (agrees is not None)
    assert len(report.open) == (agrees is None)


def test_one_broken_run_decides_and_one_open_run_leaves_open():
    good, wrong, silent = (Comparison(0, "softmax", 2, 1e-9, bound) for bound in (1e-6, 1e-12, 7.0))
    for runs, holds in (((good, silent), None), ((good, silent, wrong), False), ((good,), True)):
        assert EmulationReport(Notion.MATCHING, None, runs, None, None).holds is holds


# --- targets of any size -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tied", "random"])
@pytest.mark.parametrize("power", [-480, -300, -160, 160, 300, 480])
@pytest.mark.parametrize("engine", ["m-wide", None])
def test_the_bound_of_a_scaled_target_is_scaled(name, power, engine):
    """Powers of two are exact: nothing but overflow and underflow tells the scaled run from the plain one."""
    setting = CompareSetting(engine=engine)
    plain = run(name, scaled(), setting=setting)
    found = run(name, scaled(W_V=2.0**power, W_Q=2.0**-power, W_O=2.0 ** (-power)), setting=setting)
    assert plain.holds
    assert found.holds is not False
    assert all(np.isfinite(run.bound) for run in found.comparisons)


def test_large_weights_have_a_bound():
    target = scaled()
    target.W_V[1, 0, 0, 0] = 1e155
    report = run("tied", target)
    assert report.holds
    assert max(run.bound for run in report.comparisons) < 1e-10


@pytest.mark.parametrize("factors", [{"W_V": 1e-80, "W_O": 1e-80}, {"W_V": 1e-160}])
@pytest.mark.parametrize("host", ["tied", "random"])
@pytest.mark.parametrize("engine", ["m-wide", None])
def test_underflow_is_no_difference(factors, host, engine):
    report = run(host, scaled(**factors), setting=CompareSetting(engine=engine))
    assert report.holds is None
    assert not report.broken
    assert "the bound says nothing" in report.undecided


@pytest.mark.parametrize("power", range(-560, -480, 8))
@pytest.mark.parametrize("host", ["sparse", "tied", "random"])
def test_the_bound_holds_on_the_way_into_underflow(power, host):
    report = run(host, scaled(W_V=2.0**power))
    assert not report.broken, report.comparisons


@pytest.mark.parametrize("power", range(-80, -40, 6))
def test_the_bound_holds_on_the_way_into_underflow_of_float32(power):
    for host in ("tied", "random"):
        report = run(host, scaled(W_V=2.0**power), setting=CompareSetting(precision="float32"))
        assert not report.broken, report.comparisons


def test_underflow_does_not_refute_a_given_embedding():
    target = scaled(W_V=1e-160)
    E = embed(build_host("tied", SMALL), target).E
    assert run("tied", target, embedding=E).holds is None
    large = scaled()
    large.W_V[1, 0, 0, 0] = 1e155
    assert run("tied", large, embedding=embed(build_host("tied", SMALL), large).E).holds


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_equations_are_those_of_the_embedding_whatever_it_runs_in(precision):
    """A lower precision rounds host and E for the run, by more than the equations allow: it is no fault of E."""
    target, setting = scaled(), CompareSetting(precision=precision)
    E = embed(build_host("random", SMALL), target).E
    report = run("random", target, setting=setting, embedding=E)
    assert report.holds, report.unsolved
    assert report.notion is Notion.MATCHING
    E[0, 0] *= 1 + 1e-9
    report = run("random", target, setting=setting, embedding=E)
    assert report.holds is False
    assert report.notion is Notion.FUNCTIONAL
    assert "E R_all - W_all is off by" in report.unsolved


def test_equations_beyond_float64_are_not_forgotten_for_others_that_hold():
    """E R_Q = 10^150 where W_Q = 0; what rounding explains there is beyond float64. Keys and outputs are right."""
    shape, one = Shape(1, 1, 1, 1), np.ones((1, 1, 1, 1))
    query, key = np.array([[[[0], [1e150]]]]), np.array([[[[0.0], [1]]]])
    host = Universal(shape, 2, query, key, np.zeros((1, 1, 2, 2)), np.zeros((2, 1)))
    target = Target(shape, 0 * one, one, 0 * one, one)
    with np.errstate(over="ignore"):
        report = compare(host, [target], KERNELS, [1], embedding=np.array([[1e200, 1]]))
    assert report.holds is None
    assert report.notion is Notion.FUNCTIONAL
    assert "beyond float64: row 0 of E R_all - W_all is off by 1e+150 in the queries of layer 1" in report.undecided


def test_an_embedding_is_for_one_target():
    with pytest.raises(MalformedInput, match="an embedding belongs to one target, got 2 trials"):
        run("tied", scaled(), trials=2, embedding=np.zeros((2, 1)))


def test_without_bound_or_tolerance_nothing_is_decided():
    report = run("tied", scaled(), setting=CompareSetting(bounds=False))
    assert report.holds is None
    assert "neither a bound nor a tolerance" in report.undecided


@pytest.mark.full
def test_a_deep_graded_target_overflows_without_an_accident():
    shape = Shape(1, 200, 1, 1)
    with np.errstate(all="ignore"):
        report = compare(build_host("tied", shape), [draw_target(shape, 0, "graded")], KERNELS, [1])
    assert not report.broken
    assert report.holds is None
    assert "beyond" in report.undecided


# --- the command -------------------------------------------------------------------------------------------------------


def test_the_command_leaves_undecided_with_4(cli, tmp_path):
    write_target(tmp_path / "small.safetensors", scaled(W_V=1e-40, W_O=1e-40))
    arguments = ["emulate", "random", "--target", "small.safetensors", "--context", "2"]
    code, out, _ = cli(*arguments)
    assert code == 4
    assert "undecided (matching)" in out
    assert "outputs agree" not in out
    code, out, _ = cli(*arguments, "--json")
    assert code == 4
    assert json.loads(out)["holds"] is None
    assert json.loads(out)["undecided"] == 2
    assert cli("emulate", "tied", "--target", "small.safetensors", "--context", "2", "--tolerance", "1e-9")[0] == 0
    code, out, _ = cli("emulate", "sparse", "-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "--no-bounds")
    assert code == 4
    assert "neither a bound nor a tolerance" in " ".join(out.split())


# --- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-600, 1.0, 2.0**600, 2.0**1000])
def test_norms_scale(scale):
    matrix = np.random.default_rng(0).standard_normal((6, 4))
    assert np.array_equal(length(matrix * scale, 0), length(matrix, 0) * scale)
    assert length(matrix * scale) == length(matrix) * scale
    assert length(matrix) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    assert spectral_norm(matrix * scale) == pytest.approx(spectral_norm(matrix) * scale, rel=1e-12)
    blocks = np.stack([matrix, matrix * scale])
    assert block_norms(blocks) == pytest.approx(np.array([1, scale]) * np.linalg.norm(matrix, 2), rel=1e-8)


@pytest.mark.parametrize(("rows", "columns"), [(40, 40), (60, 20), (20, 60)])
def test_norms_of_large_matrices_are_bounds_without_a_draw(rows, columns, monkeypatch):
    """An upper bound, at most the rank's 8th root above."""
    monkeypatch.setattr("utfproof.emulation.norms._EXACT_NORM", 8)
    rng = np.random.default_rng(1)
    for matrix in (rng.standard_normal((rows, columns)), np.eye(rows, columns), np.ones((rows, columns))):
        right = np.linalg.norm(matrix, 2)
        assert right <= spectral_norm(matrix) <= right * min(rows, columns) ** 0.125 * (1 + 1e-9)


def test_norms_of_what_is_not_finite():
    matrix = np.array([[1.0, np.inf], [0.0, 1.0]])
    assert spectral_norm(matrix) == np.inf
    assert not np.isfinite(length(np.array([np.nan, 1.0])))
    assert np.isinf(block_norms(matrix[None])).all()
    assert raised(1.5, 10**6) == np.inf


# --- memory ------------------------------------------------------------------------------------------------------------


def test_matrices_from_outside_are_counted_before_they_are_drawn(cli, monkeypatch):
    """n^2 numbers, however few the host's own are."""
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "--max-memory", "2GB"]
    monkeypatch.setattr(SeededAttention, "_weights", lambda *_: pytest.fail("drawn"))
    code, _, err = cli("emulate", "tied", *shape, "--attention", "given", "--context", "20000")
    assert (code, "a context of 20000 at m = 3" in err) == (3, True)


def test_an_enclosure_is_refused_before_its_input_is_drawn(cli, monkeypatch):
    monkeypatch.setattr(compare_module, "random_input", lambda *_: pytest.fail("drawn"))
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1"]
    code, _, err = cli("enclose", "tied", *shape, "--context", "100000000000")
    assert (code, "n = 100000000000, needs about" in err) == (3, True)
    assert "the limit is 10000" in cli("enclose", "tied", *shape, "--digits", "10001")[2]
