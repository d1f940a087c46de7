"""`utfproof bench exact`: settings refused before anything runs, what the document says, and how disagreement is reported."""

import json
import sys

import pytest

from utfproof.benchmarks import exact, fflas, timing
from utfproof.cli.app import run as command_line
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.jobs import bench

QUICK = ("--skip", "fflas-ffpack,sympy", "--repetitions", "2", "--threads", "1")
REFUSED = {
    "no sizes": ({"sizes": ()}, MalformedInput, "sizes must be between"),
    "size zero": ({"sizes": (0,)}, MalformedInput, "sizes must be between"),
    "too large": ({"sizes": (8193,)}, MalformedInput, "sizes must be between"),
    "no threads": ({"threads": 0}, MalformedInput, "from 1 to 1024"),
    "no repetitions": ({"repetitions": 0}, MalformedInput, "start at 1"),
    "composite": ({"prime": 9}, MalformedInput, "odd prime"),
    "skip ourselves": ({"skip": ("utfproof",)}, MalformedInput, "cannot skip utfproof"),
    "unknown contestant": ({"skip": ("magma",)}, MalformedInput, "cannot skip magma"),
    "unknown device": ({"device": "tpu"}, MalformedInput, "choose cpu or cuda"),
}


def run(*arguments):
    """Exit code of the command."""
    return command_line(["bench", *arguments])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_settings_refused(name):
    fields, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        exact.run(exact.ExactSetting(**fields))


def test_memory_is_refused_first():
    with pytest.raises(ResourceLimit, match="comparison at n = 8192"):
        exact.run(exact.ExactSetting(sizes=(8192,)), 2**20)
    assert run("exact", "--sizes", "2280", "--max-memory", "1M") == 3
    assert run("exact", "--sizes", "many") == 2


def test_cuda_without_a_device_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MalformedInput, match="no CUDA device"):
        timing.check_device("cuda")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MalformedInput, match="needs torch"):
        timing.check_device("cuda")


def test_one_run(capsys, tmp_path):
    path = tmp_path / "out.json"
    assert run("exact", "--sizes", "40,90", *QUICK, "--json", "-o", str(path)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(path.read_text())
    assert document["absent"] == {"fflas-ffpack": "skipped", "sympy": "skipped"}
    assert document["setting"]["threads"] == 1
    assert [entry["n"] for entry in document["results"]] == [40, 90]
    for entry in document["results"]:
        assert entry["ranks"] == dict.fromkeys(("utfproof", "utfproof with copy", "flint"), entry["n"])
        assert entry["agree"]
        assert [len(times) for times in entry["seconds"].values()] == [2, 2, 2, 2]
        assert entry["flint_conversion_seconds"] > 0
        assert set(entry["ratios"]) == {"flint over our time", "share of the product's speed"}


def test_table_for_people(capsys):
    assert run("exact", "--sizes", "16", "--skip", "fflas-ffpack", "--repetitions", "1") == 0
    out = capsys.readouterr().out
    for word in ("n = 16", "ratios at 16", "flint", "without fflas-ffpack", "BLAS of utfproof"):
        assert word in out


def test_summary_counts_operations():
    found = exact.summary(
        300,
        {
            "utfproof": [2.0, 1.0, 3.0],
            "product": [1.0],
            "flint": [8.0],
            "fflas-ffpack modular": [4.0],
            "fflas-ffpack balanced": [5.0],
        },
        {"utfproof": 300, "flint": 299},
        None,
    )
    assert not found["agree"]
    assert found["gflops"]["utfproof"] == pytest.approx(2 / 3 * 300**3 / 2 / 1e9)
    assert found["gflops"]["product"] == pytest.approx(2 * 300**3 / 1e9)
    assert found["ratios"] == {
        "time over fflas-ffpack (its faster field)": 0.5,
        "best time over fflas-ffpack's best": 0.25,
        "flint over our time": 4.0,
        "share of the product's speed": pytest.approx(1 / 6),
    }


def test_disagreement_is_an_error(monkeypatch):
    entry = exact.summary(8, {"utfproof": [1.0], "flint": [1.0]}, {"utfproof": 8, "flint": 7}, 0.1)
    monkeypatch.setattr(exact, "run", lambda *_: {"results": [entry], "blas": {}, "absent": {}})
    assert "n = 8" in str(bench.BenchExact(sizes="8").run().failure)
    assert run("exact", "--sizes", "8") == 1


def test_a_dead_measuring_process_is_reported(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ResourceLimit, match="ended with code"):
        exact.run(exact.ExactSetting(sizes=(4,)))


def test_plot(monkeypatch, tmp_path):
    assert run("exact", "--sizes", "8", "--plot", str(tmp_path / "none" / "speed.svg")) == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MalformedInput, match="pictures need matplotlib"):
        bench.BenchExact(sizes="8", plot=tmp_path / "speed.svg").run()
    with pytest.raises(MalformedInput, match="pictures need matplotlib"):
        exact.plot({}, str(tmp_path / "speed.svg"))


def test_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    entries = [exact.summary(n, {"utfproof": [1.0], "product": [1.0]}, {"utfproof": n}, None) for n in (8, 16)]
    path = tmp_path / "speed.svg"
    exact.plot({"setting": {"prime": 3, "threads": 1}, "results": entries}, str(path))
    assert "GFLOP" in path.read_text()


def test_fflas_without_a_compiler_or_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(fflas.shutil, "which", lambda name: None)
    with pytest.raises(fflas.Unavailable, match=r"no g\+\+"):
        fflas.Fflas()
    monkeypatch.setattr(fflas.shutil, "which", lambda name: "/bin/false")
    monkeypatch.setattr(fflas, "HEADERS", tmp_path / "absent")
    with pytest.raises(fflas.Unavailable, match="no FFLAS-FFPACK headers"):
        fflas.Fflas()
    monkeypatch.setattr(fflas, "HEADERS", tmp_path)
    with pytest.raises(fflas.Unavailable, match="does not compile"):
        fflas.Fflas()


@pytest.mark.exhaustive
def test_fflas_agrees():
    import numpy as np

    from utfproof.exact import gfp

    p = gfp.DEFAULT_PRIMES[0]
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-(p // 2), p // 2, size=shape).astype(float) for shape in ((200, 150), (150, 200)))
    matrix = gfp.multiply(left, right, p)
    try:
        driver = fflas.Fflas()
    except fflas.Unavailable as reason:
        pytest.skip(str(reason))
    with driver:
        driver.load(matrix, p)
        assert {found.rank for found in driver.run().values()} == {150} == {gfp.rank(matrix, p)}


def test_stages_of_the_measuring_process_are_shown(capsys):
    """They begin in a child; a pipe shows them as any other."""
    assert command_line(["bench", "exact", "--sizes", "8,16", *QUICK, "--progress", "plain"]) == 0
    assert "bench exact, 2 sizes" in capsys.readouterr().err
