"""`utfproof bench emulate`: settings refused before anything runs, what the document says, and a wrong host caught."""

import json
import statistics
import sys
from dataclasses import replace

import numpy as np
import pytest

from utfproof import matching
from utfproof.benchmarks import emulate, timing
from utfproof.cli.app import application
from utfproof.errors import MalformedInput, Refuted, ResourceLimit, UtfproofError
from utfproof.shapes import Shape, matching_dimension

TINY = {"tiny": (2, 2, 3, 2), "narrow": (2, 1, 1, 2)}
ALL = ["target"]
ALL += [f"random {engine}" for engine in ("m-wide", "path-space")]
ALL += [
    f"{host} {engine}"
    for host in ("sparse", "tied", "shared-key", "shared-query")
    for engine in ("m-wide", "index-map", "path-space")
]
QUICK = ("--context", "9", "--repetitions", "2", "--threads", "1")
REFUSED = {
    "no shapes": (("--shapes", ""), "shapes"),
    "unknown shape": (("--shapes", "5-hop"), "5-hop"),
    "no context": (("--context", "0"), "start at 1"),
    "no threads": (("--threads", "0"), "from 1 to 1024"),
    "no repetitions": (("--repetitions", "0"), "start at 1"),
    "unknown device": (("--device", "tpu"), "choose cpu or cuda"),
    "unknown precision": (("--precision", "int8"), "int8"),
    "unknown host": (("--hosts", "random,dense"), "dense"),
    "no hosts": (("--hosts", ""), "construction"),
    "a host as printed": (("--hosts", "printed-looped"), "no universal host"),
    "seed": (("--seed", "-1"), "seed"),
    "folder": (("-o", "/nowhere/at/all.json"), "does not exist"),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(timing, "PAPER_TABLE_SHAPES", {**timing.PAPER_TABLE_SHAPES, **TINY})
    monkeypatch.setattr(emulate, "_SAMPLE", 0.0)
    monkeypatch.setattr(emulate, "PAUSE", 0.0)


def run(*arguments):
    """Exit code and message of the command, as cli.app maps errors."""
    app = application("bench")
    try:
        app(["bench", "emulate", *arguments], standalone_mode=False)
    except UtfproofError as error:
        return error.exit_code, str(error)
    return 0, ""


def setting(*names, **fields):
    fields = {"context": 9, "repetitions": 2, "threads": 1, **fields}
    return emulate.EmulateSetting(tuple((name, TINY[name]) for name in names), **fields)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_refused(name):
    arguments, word = REFUSED[name]
    code, message = run(*arguments)
    assert code == 2
    assert word in message
    assert "\n" not in message


def test_memory_is_refused_first():
    code, message = run("--shapes", "4-hop", "--max-memory", "100M")
    assert code == 3
    assert message.startswith("the comparison at 4-hop needs about")
    # index maps and a small host do not need the dense random one
    few = emulate.EmulateSetting((("4-hop", (2, 4, 30, 30)),), hosts=("shared-query",))
    all_of_them = replace(few, hosts=emulate.HOSTS)
    shape = Shape(2, 4, 30, 30)
    assert few._memory(shape) < 2**29 < all_of_them._memory(shape)
    assert all_of_them._memory(shape) > 2 * 8 * 2 * 4 * 2280**2


def test_one_run(capsys, tmp_path):
    """Through the measuring process, as a user runs it."""
    path = tmp_path / "out.json"
    hosts = ["random", "shared-query"]
    assert run("--shapes", "tiny", "--hosts", ",".join(hosts), *QUICK, "--json", "-o", str(path)) == (0, "")
    printed = capsys.readouterr().out
    document = json.loads(printed)
    assert document == json.loads(path.read_text())
    assert document["benchmark"] == "emulate"
    assert document["setting"]["hosts"] == hosts
    assert {key: document["setting"][key] for key in ("context", "threads", "repetitions", "device", "precision")} == {
        "context": 9,
        "threads": 1,
        "repetitions": 2,
        "device": "cpu",
        "precision": "float64",
    }
    (result,) = document["results"]
    assert result["shape"] == "tiny"
    assert result["dimensions"] == list(TINY["tiny"])
    names = [name for name in ALL if name.split()[0] in ("target", *hosts)]
    assert [entry["name"] for entry in result["contestants"]] == names
    assert str(tmp_path) not in printed


def test_document():
    document = emulate.measure(setting("tiny", repetitions=3))
    (result,) = document["results"]
    M = matching_dimension(Shape(*TINY["tiny"]))
    assert result["matching_dimension"] == M
    assert result["absent"] == {}
    entries = {entry["name"]: entry for entry in result["contestants"]}
    assert {entry["m"] for name, entry in entries.items() if name.split()[0] in ("random", "sparse", "tied")} == {M}
    assert entries["shared-key m-wide"]["m"] == 2 * 13
    assert entries["shared-query m-wide"]["m"] == 2 * 10
    for entry in entries.values():
        assert entry["relative_error"] < 1e-9
        assert len(entry["seconds"]) == len(entry["processor_seconds"]) == 3
        assert entry["median_seconds"] == statistics.median(entry["seconds"])
        assert entry["best_seconds"] == min(entry["seconds"])
        assert entry["tokens_per_second"] == pytest.approx(9 / entry["median_seconds"])
        for other in ("target", "random m-wide"):
            expected = entry["median_seconds"] / entries[other]["median_seconds"]
            assert entry["ratios"][f"time over {other}"] == pytest.approx(expected)
    assert entries["target"]["ratios"]["time over target"] == 1
    notions = {name: entry["notion"] for name, entry in entries.items()}
    assert notions["target"] is None
    assert notions["tied index-map"] == "matching"
    assert notions["shared-key path-space"] == "attention-matching"
    logits, everything, numbers = (group["contestants"] for group in result["same_function"])
    assert logits == ALL
    assert everything == [name for name in ALL if not name.startswith("shared")]
    assert numbers == [f"{host} path-space" for host in ("random", "sparse", "tied")]


def test_hosts_that_are_not_defined_are_named():
    (result,) = emulate.measure(setting("narrow", hosts=("shared-key", "sparse")))["results"]
    assert set(result["absent"]) == {"shared-key"}
    assert "head_dim" in result["absent"]["shared-key"]
    assert {entry["host"] for entry in result["contestants"]} == {None, "sparse"}
    assert all("time over random m-wide" not in entry["ratios"] for entry in result["contestants"])


@pytest.mark.parametrize(("precision", "least", "most"), [("float32", 1e-10, 1e-3), ("bfloat16", 1e-5, 1.0)])
def test_lower_precision_is_compared_with_the_truth(precision, least, most):
    if precision == "bfloat16":
        pytest.importorskip("torch")
    document = emulate.measure(setting("tiny", precision=precision, hosts=("random", "tied")))
    errors = [entry["relative_error"] for entry in document["results"][0]["contestants"]]
    assert all(least < error < most for error in errors)
    assert ("torch" in document["blas"]) == (precision == "bfloat16")


@pytest.mark.parametrize("host", ["random", "tied", "shared-query"])
def test_a_wrong_embedding_is_refused(monkeypatch, host):
    """E off by a part in a thousand in one entry of its largest column: no times come out."""
    genuine = matching.Embedder.embed

    def off(self, target):
        found = genuine(self, target)
        E = np.array(found.E)
        E[np.unravel_index(np.argmax(np.abs(E)), E.shape)] *= 1.001
        return replace(found, E=E)

    emulate.measure(setting("tiny", hosts=(host,)))
    monkeypatch.setattr(matching.Embedder, "embed", off)
    with pytest.raises(Refuted, match=f"{host} m-wide at tiny does not act as the target"):
        emulate.measure(setting("tiny", hosts=(host,)))


def test_a_wrong_engine_is_refused(monkeypatch):
    from utfproof.emulation.engines import PathHost

    forward = PathHost.forward
    monkeypatch.setattr(PathHost, "forward", lambda self, x, kernel: forward(self, x, kernel) * np.nan)
    with pytest.raises(Refuted, match="tied path-space at tiny"):
        emulate.measure(setting("tiny", hosts=("tied",), precision="float32"))


def test_errors_of_the_measuring_process_come_back(monkeypatch, capsys):
    import io

    monkeypatch.setattr(emulate, "measure", lambda _: (_ for _ in ()).throw(Refuted("not the target")))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"shapes": [["tiny", [2, 2, 2, 2]]], "hosts": ["tied"]})))
    emulate.main()
    answer = capsys.readouterr().out
    assert json.loads(answer) == {"error": "Refuted", "message": "not the target"}

    with monkeypatch.context() as patch:
        patch.setattr(emulate, "run_child", lambda *_: answer)
        with pytest.raises(Refuted, match="not the target"):
            emulate.run(["tiny"])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ResourceLimit, match="ended with code 1"):
        emulate.run(["tiny"])


class Counting(np.ndarray):
    """Counts the multiplications of its matrix products."""

    total = 0

    def __array_function__(self, func, types, args, kwargs):
        result = super().__array_function__(func, types, args, kwargs)
        return result.view(Counting) if isinstance(result, np.ndarray) else result

    def __matmul__(self, other):
        if not isinstance(other, np.ndarray):
            return other.__rmatmul__(self)
        result = np.matmul(np.asarray(self), np.asarray(other))
        Counting.total += result.size * self.shape[-1]
        return result.view(Counting)


@pytest.mark.parametrize("engine", ["target", "m-wide", "path-space", "index-map"])
@pytest.mark.parametrize("dimensions", [(2, 2, 3, 2), (3, 2, 2, 3), (1, 3, 2, 2)])
def test_multiplications_are_those_of_the_forward_pass(engine, dimensions):
    """Counted in the products themselves, with an attention map that costs none."""
    from utfproof.constructions import build_host
    from utfproof.emulation.engines import Engine
    from utfproof.emulation.laws import draw_target

    class Free:
        logits_only = True

        def attended(self, queries, keys, x, positions, *, layer, head):
            return x

    shape, context = Shape(*dimensions), 5
    target = draw_target(shape, 0)
    x = np.eye(shape.d_in)[np.arange(context) % shape.d_in].view(Counting)
    m, lumped = shape.d_in, None
    if engine == "target":
        Counting.total = 0
        target.forward(x, Free())
    else:
        embedder = matching.Embedder(build_host("tied", shape))
        runner = Engine(embedder, engine)
        prepared = runner.prepare(embedder.embed(target).E)
        m, lumped = embedder.host.m, runner.lumped
        Counting.total = 0
        runner.run(x, prepared, Free())
    assert Counting.total == context * emulate.multiplications(shape, engine, m, lumped)


def test_attention_is_counted_over_visible_keys():
    shape = Shape(2, 2, 3, 2)
    # 1 + 2 + 3 keys for three tokens, four heads, 3 multiplications a logit and 20 for the average
    assert 3 * emulate.attention_multiplications(shape, "m-wide", 20, None, 3) == 6 * 4 * 23
    # two streams of width 2, then two of width 4
    assert 3 * emulate.attention_multiplications(shape, "path-space", 20, None, 3) == 6 * (2 * (3 + 2) + 2 * (3 + 4))


def test_ratios_are_of_medians():
    times = {
        "target": [emulate.Seconds(1.0, 0.5), emulate.Seconds(9.0, 0.5), emulate.Seconds(2.0, 0.5)],
        "sparse m-wide": [emulate.Seconds(3.0, 2.0), emulate.Seconds(8.0, 1.0), emulate.Seconds(1.0, 4.0)],
    }
    found = emulate.summary("sparse m-wide", 6, times, processor=True)
    assert found["median_seconds"] == 3.0
    assert found["best_seconds"] == 1.0
    assert found["tokens_per_second"] == 2.0
    assert found["ratios"] == {"time over target": 1.5, "processor time over target": 4.0}
    on_gpu = emulate.summary("sparse m-wide", 6, times, processor=False)
    assert on_gpu["processor_seconds"] is None
    assert on_gpu["ratios"] == {"time over target": 1.5}


def test_table_for_people_and_plot(monkeypatch, capsys, tmp_path):
    document = emulate.measure(setting("tiny", "narrow", hosts=("random", "shared-key")))
    monkeypatch.setattr(emulate, "run", lambda *_, **__: document)
    monkeypatch.setenv("COLUMNS", "120")
    assert run() == (0, "")
    out = capsys.readouterr().out
    for word in ("tiny: target", "tiny: shared-key index-map, m = 26", "tokens/s", "narrow, without shared-key"):
        assert word in out
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MalformedInput, match="pictures need matplotlib"):
        emulate.plot(document, str(tmp_path / "speed.svg"))


def test_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    document = emulate.measure(setting("tiny", "narrow", hosts=("tied",)))
    emulate.plot(document, str(tmp_path / "speed.svg"))
    assert (tmp_path / "speed.svg").stat().st_size > 0


@pytest.mark.gpu
def test_on_a_gpu():
    document = emulate.measure(setting("tiny", device="cuda"))
    (result,) = document["results"]
    assert [entry["name"] for entry in result["contestants"]] == ALL
    assert all(entry["processor_seconds"] is None for entry in result["contestants"])
