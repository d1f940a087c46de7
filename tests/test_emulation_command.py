"""Emulation: reports and the command."""

import json

import numpy as np
import pytest
from test_emulation import KERNELS, SHAPE

from utfproof.constructions import build_host
from utfproof.emulation.compare import EmulationReport, compare, random_input, relative_error
from utfproof.emulation.engines import Engine
from utfproof.emulation.laws import draw_target
from utfproof.matching import Embedder
from utfproof.paper.tables import PAPER_TABLE_SHAPES

pytestmark = pytest.mark.numerical


# --- reports, the command ----------------------------------------------------------------------------------------------


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


SMALL = ("-H", "2", "-L", "2", "-d", "2", "--d-in", "3")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["emulate", "sparse", *SMALL, "--target-law", "cauchy"], 2, "--target-law 'cauchy' is unknown"),
        (["emulate", "sparse", *SMALL, "--inputs", "zeros"], 2, "--inputs 'zeros' is unknown"),
        (["emulate", "sparse", *SMALL, "--engine", "fast"], 2, "engine 'fast' is unknown"),
        (["emulate", "random", *SMALL, "--engine", "index-map"], 2, "this host is dense"),
        (["emulate", "sparse", *SMALL, "--precision", "float8"], 2, "precision 'float8' is unknown"),
        (["emulate", "sparse,tied", *SMALL], 2, "'sparse,tied' is neither a construction"),
        (["emulate", "shared-key", "-H", "2", "-L", "2", "-d", "2", "--d-in", "2", "--attention", "rope"], 2,
         "matches attention logits only"),
        (["emulate", "sparse", *SMALL, "--output=c.json"], 2, "No such option: --output"),
        (["emulate", "sparse", *SMALL, "--digits", "30"], 2, "No such option: --digits"),
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
@pytest.mark.parametrize("host", ["sparse", "tied", "random"])
@pytest.mark.parametrize("shape", PAPER_TABLE_SHAPES.values())
def test_table_shapes_within_their_bounds(cli, host, shape):
    """All kernels that fit, contexts up to 512."""
    sizes = [text for pair in zip(("-H", "-L", "-d", "--d-in"), map(str, shape), strict=True) for text in pair]
    code, out, _ = cli("emulate", host, *sizes, "--attention", "all", "--context", "1,64,512", "--json")
    assert code == 0
    assert json.loads(out)["holds"]
