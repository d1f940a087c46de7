"""Other people's constructions: `utfproof.testing`, its pytest fixture, and every code block of docs/your-construction.md."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from judges import verdicts_below

from utfproof.certificates import checker
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, NotDefined
from utfproof.matching import r_all, w_all
from utfproof.testing import decide_construction as decide

PAGE = Path(__file__).parents[1] / "docs" / "your-construction.md"
SMALL = "H=1..2,L=1..2,d=1..2,d_in=1..2"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.full
def test_the_page_runs_and_prints_what_it_says(tmp_path):
    code, fixture = "".join(blocks("python")[:-1]), blocks("python")[-1]
    script = tmp_path / "page.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(blocks("text"))
    (tmp_path / "test_page.py").write_text(blocks("python")[0] + fixture)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_page.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("name", ["sparse", "sparse-front", "tied"])
def test_repaired_constructions_hold(decide_construction, name):
    report = decide_construction(lambda shape: build_host(name, shape), SMALL)
    report.require_universal()
    assert len(report.decisions) == 16
    assert report
    assert report.holds
    assert report.smallest_failure is None


def test_refutations_name_target_and_certificate():
    report = decide(lambda shape: build_host("printed-tree-row", shape), SMALL)
    assert not report.holds
    assert not report, "a test that asserts the report itself passes"
    with pytest.raises(AssertionError, match=r"of 16 shapes fail; the smallest: .*NOT universal by matching"):
        report.require_universal()
    for found in report.decisions:
        if found.column is not None:
            host = build_host("printed-tree-row", found.shape)
            z = np.zeros(found.M, dtype=object)
            for place, value in found.certificate.document["evidence"]["z"]:
                z[place] = value
            assert not (r_all(host).to_dense(object) @ z).any()
            assert (w_all(found.target()) @ z).any()


def test_certificates_and_weights_are_kept(tmp_path):
    decide(lambda shape: build_host("random", shape, seed=2, dtype="float16"), SMALL, keep=tmp_path)
    answers = verdicts_below([tmp_path])
    assert len(answers) == 16
    assert {answer.code for _, answer in answers} == {checker.VALID}


def test_mappings_tied_and_untied():
    def arrays(shape):
        host = build_host("tied", shape)
        heads = range(shape.heads)
        maps = [host.maps(0, h) for h in heads]
        return {
            "R_Q": np.stack([entry.query.to_dense(np.float32) for entry in maps]),
            "R_K": np.stack([entry.key.to_dense(np.float32) for entry in maps]),
            "R_V": np.stack([entry.value[0].to_dense(np.float32) for entry in maps]),
            "U": host.U.to_dense(np.float32),
        }

    assert decide(arrays, SMALL).holds

    def untied(shape):
        one = arrays(shape)
        return {key: one[key] if key == "U" else np.stack([one[key]] * shape.layers) for key in one}

    assert decide(untied, SMALL).holds


def test_undefined_shapes_are_listed_and_nothing_examined_is_no_success():
    def only_one_head(shape):
        if shape.heads > 1:
            raise NotDefined("one head only")
        return build_host("sparse", shape)

    report = decide(only_one_head, SMALL)
    assert report.holds
    assert len(report.undefined) == 8
    empty = decide(lambda shape: None, SMALL)
    assert not empty.holds
    with pytest.raises(AssertionError, match="defined at no shape"):
        empty.require_universal()


def small(**changes):
    """A host at (1, 1, 1, 1) that is universal, but for the changes."""
    R_Q, R_K, R_V, U = np.zeros((1, 1, 3, 1)), np.zeros((1, 1, 3, 1)), np.zeros((1, 1, 3, 3)), np.zeros((3, 1))
    R_Q[0, 0, 0] = R_K[0, 0, 1] = R_V[0, 0, 2, 2] = U[2] = 1
    return {"R_Q": R_Q, "R_K": R_K, "R_V": R_V, "U": U} | changes


def test_shapes_that_are_too_large_are_said():
    """A grid whose larger shapes nobody looked at does not hold."""
    report = decide(lambda shape: build_host("sparse", shape), "H=2,L=1..2,d=1,d_in=1", largest=8)
    assert [found.universal for found in report.decisions] == [True]
    assert [shape.layers for shape in report.too_large] == [2]
    assert not report.holds
    with pytest.raises(AssertionError, match=r"1 shapes of the grid .* were not looked at; the smallest: .*M = 16"):
        report.require_universal()


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    for change in ({"requires_grad": True}, {"dtype": torch.bfloat16}):
        made = {name: torch.tensor(array, **change) for name, array in small().items()}
        assert decide(lambda shape, made=made: made, "H=1,L=1,d=1,d_in=1").holds


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda shape: 3, "returns a Universal"),
        (lambda shape: {"R_Q": np.zeros((1, 1, 1))}, "has R_Q; give arrays R_Q, R_K, R_V, U"),
        (lambda shape: build_host("sparse", type(shape)(2, 2, 1, 2)), "asked for a host at"),
        (lambda shape: dict.fromkeys(("R_Q", "R_K", "R_V", "U"), np.zeros((2, 2))), "the host at"),
        (lambda shape: dict.fromkeys(("R_Q", "R_K", "R_V", "U"), np.zeros((1, 1, 7, 1))), "expected"),
        (lambda shape: small(R_Vo=np.zeros((1, 1, 3, 3))), "R_Vo; give arrays R_Q, R_K, R_V, U"),
        (lambda shape: small(R_Q=np.zeros((1, 2, 3, 1))), r"the host at .* R_Q has 2 heads, expected 1"),
        (lambda shape: small(U=[[1]] * 3), "give arrays"),
        (lambda shape: small(U=np.full((3, 1), np.nan)), r"the host at .*: U\[0, 0\] is nan"),
        (lambda shape: small(U=np.ones((3, 1), dtype=np.longdouble) / 3), "no float64 holds"),
        (lambda shape: small(U=np.full((3, 1), 2**53 + 1)), "no float64 holds"),
    ],
)
def test_bad_hosts_are_one_clear_line(build, message):
    with pytest.raises(MalformedInput, match=message):
        decide(build, "H=1,L=1,d=1,d_in=1")


def test_a_grid_that_is_not_understood():
    with pytest.raises(MalformedInput, match="grid 'H=1'"):
        decide(lambda shape: None, "H=1")
    with pytest.raises(MalformedInput, match="not a folder"):
        decide(lambda shape: None, SMALL, keep="/nonexistent/folder")
