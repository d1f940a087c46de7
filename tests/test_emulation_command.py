"""Emulation: reports, sweeps of cases, the command."""

import json

import numpy as np
import pytest
from test_emulation import KERNELS, SHAPE

from utfproof.attention import (
    EVERY_KERNEL,
)
from utfproof.constructions import build_host
from utfproof.emulation.compare import EmulationReport, compare, random_input, relative_error
from utfproof.emulation.engines import Engine
from utfproof.emulation.laws import draw_target
from utfproof.emulation.sweep import Case, Plan, run_case, totals
from utfproof.matching import Embedder
from utfproof.shapes import Shape

pytestmark = pytest.mark.numerical


# --- reports, sweeps, the command --------------------------------------------------------------------------------------


def test_reports():
    report = compare(
        build_host("tied", SHAPE), lambda t: draw_target(SHAPE, t), [("causal", KERNELS["causal"])], [1, 5], trials=4
    )
    assert isinstance(report, EmulationReport)
    assert report.holds
    ratios = [c.bound / c.relative_error for c in report.comparisons if c.relative_error]
    assert report.ratios == (min(ratios), max(ratios))
    assert min(ratios) >= 1
    document = json.loads(json.dumps(report.document()))
    assert len(document["comparisons"]) == 8


def test_sweeps_refuse_with_reasons():
    plan = Plan(["causal", "rope"], [4])
    outcomes = [
        run_case(Case(shape, host, law), plan)
        for shape in (Shape(2, 2, 2, 2), Shape(2, 2, 2, 3), Shape(2, 2, 3, 3))
        for host in ("sparse", "shared-key", "shared-query")
        for law in ("uniform", "rank-one")
    ]
    by = {(o.case.shape.head_dim, o.case.shape.d_in, o.case.host, o.case.law): o for o in outcomes}
    assert by[2, 2, "sparse", "uniform"].report.holds
    assert by[2, 2, "shared-key", "rank-one"].left_out[0][0] == "rope"
    assert "M^(1,0) of this target is singular" in by[2, 2, "shared-query", "rank-one"].refusal
    assert "needs head_dim >= d_in" in by[2, 3, "shared-key", "uniform"].refusal
    assert by[3, 3, "sparse", "uniform"].left_out == (("rope", "RoPE needs an even head dimension, got 3"),)
    found = totals(outcomes)
    assert found["broken"] == found["failed"] == 0
    assert found["refused"] == sum(o.report is None for o in outcomes)
    assert found["runs"] == sum(len(o.report.comparisons) for o in outcomes if o.report)


def test_a_host_that_cannot_carry_is_no_refusal():
    outcome = run_case(Case(SHAPE, "random", "uniform"), Plan(["softmax"], [2], m=5))
    assert outcome.failed
    assert "cannot carry this target" in outcome.refusal


SMALL = ("-H", "2", "-L", "2", "-d", "2", "--d-in", "3")


@pytest.mark.full
def test_the_command_sweeps(cli):
    code, out, _ = cli(
        "emulate",
        "sparse,tied,random",
        *SMALL,
        "--attention",
        "all",
        "--target-law",
        "all",
        "--context",
        "1,9",
        "--json",
    )
    document = json.loads(out)
    assert code == 0
    assert document["totals"]["runs"] == 3 * 7 * len(EVERY_KERNEL) * 2
    assert document["totals"]["broken"] == 0
    code, out, _ = cli("emulate", "sparse,shared-key", *SMALL, "--context", "3")
    assert code == 0
    assert "refused: shared-key needs head_dim >= d_in" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["emulate", "sparse", "--shapes", "5-hop"], 2, "shape '5-hop' is unknown"),
        (["emulate", "sparse", "--shapes", "1-hop", "-H", "2"], 2, "--shapes names table shapes"),
        (["emulate", "sparse,nonsense", *SMALL], 2, "construction 'nonsense' is unknown"),
        (["emulate", "shared-key,shared-query", *SMALL], 2, "nothing could be run: shared-key needs"),
        (["emulate", "sparse", *SMALL, "--target-law", "cauchy"], 2, "target law 'cauchy' is unknown"),
        (["emulate", "sparse", *SMALL, "--inputs", "zeros"], 2, "--inputs 'zeros' is unknown"),
        (["emulate", "sparse", *SMALL, "--engine", "fast"], 2, "engine 'fast' is unknown"),
        (["emulate", "random", *SMALL, "--engine", "index-map"], 2, "this host is dense"),
        (["emulate", "sparse", *SMALL, "--precision", "float8"], 2, "precision 'float8' is unknown"),
        (["emulate", "sparse", *SMALL, "--batch", "0"], 2, "--batch must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--rows", "0"], 2, "--rows must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--output=c.json"], 2, "No such option: --output"),
        (["emulate", "sparse", *SMALL, "--digits", "30"], 2, "No such option: --digits"),
        (["emulate", "sparse,tied", *SMALL, "--target", "t.safetensors"], 2, "are about one host and one shape"),
        (["enclose", "sparse,tied", *SMALL], 2, "'sparse,tied' is neither a construction"),
        (["enclose", "sparse", *SMALL, "--digits", "0"], 2, "--digits must be a positive integer"),
        (["enclose", "sparse", *SMALL, "--context", "1,2"], 2, "context"),
        (["emulate", "random", *SMALL, "--m", "5"], 1, "cannot carry this target"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(cli, tmp_path, arguments, code, message):
    found, _, err = cli(*arguments)
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert found == code, err
    assert message in lines[0]
    assert len(lines) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_command_encloses(cli, tmp_path):
    code, out, _ = cli(
        "enclose", "tied", *SMALL, "--digits", "40", "--attention", "scaled+causal", "--context", "2", "-o", "c.json"
    )
    assert code == 0
    assert "outputs within 10^-40" in out
    assert cli("check", "c.json")[0] == 0


def test_an_enclosure_is_for_softmax(cli):
    code, _, err = cli("enclose", "tied", *SMALL, "--attention", "given")
    assert code == 2
    assert "an enclosure is for softmax attention" in err


def test_a_host_rounded_to_float32_is_noticed():
    """Float64 runs of float32 numbers: E rounded on the way breaks the bound by far."""
    host = build_host("tied", SHAPE)

    class Sneaky(Engine):
        def prepare(self, E):
            return super().prepare(E.astype(np.float32).astype(np.float64))

    target = draw_target(SHAPE, 0)
    report = compare(host, [target], [("causal", KERNELS["causal"])], [7])
    bound = report.comparisons[0].bound
    embedder = Embedder(host)
    engine = Sneaky(embedder)
    x = random_input(SHAPE, 7, 0, law="one-hot")
    output = engine.run(x, engine.prepare(embedder.embed(target).E), KERNELS["causal"])
    assert relative_error(output, target.forward(x, KERNELS["causal"])) > 100 * bound


@pytest.mark.exhaustive
def test_table_shapes_within_their_bounds(cli):
    """The four table shapes, all kernels, contexts up to 2048."""
    code, out, _ = cli(
        "emulate", "sparse,tied,shared-key,shared-query,random", "--shapes", "all", "--attention", "all",
        "--context", "1,64,512,2048", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 4  # shared-query at four layers: bounds of 1 and more
    assert document["totals"]["broken"] == 0
