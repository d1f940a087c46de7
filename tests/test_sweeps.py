"""Sweeps: sweep files, content keys, what jobs do, the folder of results and their table (Dask: test_sweeps_cluster)."""

import csv
import json
import sqlite3
import types
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from utfproof import weights
from utfproof.certificates import checker
from utfproof.cli import registry
from utfproof.cli.registry import in_sweep
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, ResourceLimit, Stopped
from utfproof.shapes import Shape
from utfproof.sweeps import cluster, jobs, run, spec, table
from utfproof.sweeps.jobs import REQUIRED, SweepTask, code_digest, run_batch, run_task, sources
from utfproof.sweeps.spec import MAX_JOBS, parse_spec, read_spec
from utfproof.sweeps.store import Store

EXAMPLE = Path(__file__).parent.parent / "docs" / "sweep-example.toml"
SMALL = {"heads": 2, "layers": 2, "head_dim": 2, "d_in": 3}


def sweep_of(*groups, name="s", folder=Path()):
    return parse_spec({"sweep": {"name": name}, "jobs": list(groups)}, folder, in_sweep)


def certify_group(**changes):
    return {"command": "certify", "construction": "random", **SMALL, **changes}


SWEPT = [name for name in registry.NAMES if name not in registry.APART]


class Here:
    """Workers without processes: this one, one batch after another."""

    workers = 1

    def __init__(self, *_, **__):
        pass

    def run(self, batches, function=run_batch):
        yield from map(function, batches)


def run_sweep(sweep, folder, workers=None, **more):
    return run.run_sweep(sweep, folder, workers or Here(), find=in_sweep, **more)


@pytest.fixture
def here(monkeypatch):
    """The command `sweep` runs its jobs in this process."""
    monkeypatch.setattr(cluster, "DaskWorkers", Here)
    monkeypatch.setattr(cluster, "require_dask", lambda: None)


# --- sweep files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sweep = 3", "table [sweep] with a name is missing"),
        ("[sweep]\nname = 'a/b'", "name must be letters"),
        ("[sweep]\nname = 'a'\nseed = 3", "key 'seed' is unknown"),
        ("[sweep]\nname = 'a'", "no jobs"),
        ("[sweep]\nname = 'a'\n[jobs]\ncommand = 'certify'", "no jobs"),
        ("[sweep]\nname = 'a'\n[[job]]\ncommand = 'certify'", "key 'job' is unknown; did you mean 'jobs'?"),
        ("[sweep\n", "is not TOML"),
        ("[[jobs]]\nheads = 2", "command is missing"),
        ("[[jobs]]\ncommand = 'prove'", "command 'prove' is unknown; choose verify, certify"),
        ("[[jobs]]\ncommand = 'train'", "number 1 (train): preset missing"),
        ("[[jobs]]\ncommand = 'certify'\nseeed = 1", "number 1 (certify): key 'seeed' is unknown; did you mean 'seed'?"),
        ("[[jobs]]\ncommand = 'certify'\nheads = 2", "number 1 (certify): construction missing"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'tied'\nheads = 2", "--layers, --head-dim, --d-in missing"),
        ("CERTIFY\nseed = []", "seed is an empty list"),
        ("CERTIFY\nseed = -1", "seed must be an integer from 0"),
        ("CERTIFY\nseed = '9..0'", "empty range '9..0'"),
        ("CERTIFY\nseed = '0...9'", "expected integers, or a range"),
        ("CERTIFY\nseed = true", "expected integers"),
        ("CERTIFY\nseed = 1.5", "expected integers"),
        ("CERTIFY\nseed = 18446744073709551616", "18446744073709551615"),
        ("CERTIFY\nlaw = 'gauss'", "law 'gauss' is unknown; choose uniform"),
        ("CERTIFY\nlaw = ['uniform', 'gauss']", "law 'gauss' is unknown"),
        ("CERTIFY\nwitness = 1", "witness has 1, expected true or false"),
        ("CERTIFY\nresidual = 1", "residual has 1, expected true or false"),
        ("[[jobs]]\ncommand = 'verify'\nresidual = true", "key 'residual' is unknown"),
        ("CERTIFY\nm = 0", "m must be a positive integer, got 0"),
        ("CERTIFY\nnotion = 'full'", "notion 'full' is unknown"),
        ("CERTIFY\nshape = 'parentheses'", "shape cannot be combined with heads"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nshape = [2, 2, 2, 3]", "shape has 2; write a list"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nshape = [[2, 2, 2]]", "shape has [2, 2, 2]"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nshape = '5-hop'", "shape has '5-hop'"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'sparce'\nshape = '1-hop'", "'sparce' is unknown"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'tied'\nshape = '1-hop'\nwitness = true", "witness belongs to"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\nattention = 'relu'", "attention 'relu' is unknown"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\ncontext = '1,,2'", "empty item"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\ncontext = 0", "context must be a positive"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\nengine = 'fast'", "engine 'fast' is unknown"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\ntolerance = -1", "tolerance must be positive"),
        ("[[jobs]]\ncommand = 'decide'\nweights = 'no.safetensors'", "cannot read"),
        ("[[jobs]]\ncommand = 'decide'\nweights = '*.none'", "no file fits"),
        ("[[jobs]]\ncommand = 'verify'\nclaim = 'thm:none'", "no claim is called 'thm:none'"),
        ("[[jobs]]\ncommand = 'verify'\ngrid = 'H=1'", "grid 'H=1' lacks"),
    ],
)  # fmt: skip
def test_a_wrong_file_gets_one_line_before_anything_runs(cli, tmp_path, text, message):
    head = "" if text.startswith(("[sweep", "sweep")) else "[sweep]\nname = 'a'\n"
    certify = "[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nheads = 2\nlayers = 2\nhead_dim = 2\nd_in = 3"
    (tmp_path / "s.toml").write_text(head + text.replace("CERTIFY", certify))
    code, out, err = cli("sweep", "s.toml")
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_too_many_jobs_are_refused_by_number(tmp_path):
    with pytest.raises(ResourceLimit, match=f"more than {MAX_JOBS}"):
        sweep_of(certify_group(seed=["0..9999", "20000..99999"], heads="1..99"))
    with pytest.raises(ResourceLimit, match="more than"):
        sweep_of(certify_group(seed="0..18446744073709551615"))


def test_grids_are_products_in_the_order_of_the_file():
    found = sweep_of(certify_group(heads=[1, 2], seed=["3..4", 9])).jobs
    assert [(job.parameters["heads"], job.parameters["seed"]) for job in found] == [
        (1, 3), (1, 4), (1, 9), (2, 3), (2, 4), (2, 9),
    ]  # fmt: skip
    assert len({job.key for job in found}) == 6


def test_a_key_is_the_content_of_a_job():
    plain = sweep_of(certify_group()).jobs[0]
    same = [
        certify_group(seed=0, law="uniform", d_out=3, m=36, residual=False),
        dict(reversed(certify_group(notion="matching").items())),
        {"command": "certify", "construction": "random", "shape": [[2, 2, 2, 3]]},
        {"command": "certify", "construction": "random", "shape": [[2, 2, 2, 3, 3]]},
    ]
    assert {sweep_of(group).jobs[0].key for group in same} == {plain.key}
    other = [{"seed": 1}, {"m": 37}, {"law": "signs"}, {"dtype": "float32"}, {"witness": True}, {"d_out": 2}]
    other += [{"construction": "random-tied"}, {"heads": 3}, {"device": "cuda"}, {"notion": "attention-matching"}]
    other += [{"residual": True}]
    assert len({plain.key} | {sweep_of(certify_group(**change)).jobs[0].key for change in other}) == 1 + len(other)
    largest = sweep_of(certify_group(seed=2**64 - 1)).jobs[0]
    assert json.loads(jobs.canonical(largest.document))["parameters"]["seed"] == str(2**64 - 1)


def test_a_seed_that_is_not_used_makes_no_more_jobs():
    found = sweep_of(certify_group(construction=["sparse", "random"], seed="0..9"))
    assert (len(found.jobs), found.repeated) == (11, 9)


def test_formats_enter_the_key(monkeypatch):
    before = sweep_of(certify_group()).jobs[0].key
    monkeypatch.setattr("utfproof.certificates.format.VERSION", 2)
    assert sweep_of(certify_group()).jobs[0].key != before


def test_the_example_of_the_documentation_is_understood():
    assert {job.command for job in read_spec(EXAMPLE, in_sweep).jobs} == {"certify", "emulate", "verify"}


# --- what jobs do --------------------------------------------------------------------------------------------------


def one(group, folder=Path()):
    """The answer of the only job of a group."""
    (job,) = sweep_of(group, folder=folder).jobs
    return run_task(SweepTask(job, code_digest(), in_sweep))


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "universal"),
        ({"witness": True, "law": "signs"}, "universal"),
        ({"m": 35}, "not universal"),
        ({"construction": "printed-tree-row"}, "not universal"),
        ({"construction": "shared-key"}, "refused"),
        ({"construction": "sparse", "m": 35}, "refused"),
        ({"notion": "attention-matching"}, "undecided"),
        ({"d_in": 2, "notion": "attention-matching"}, "universal"),
        ({"residual": True, "construction": "sparse"}, "universal"),
        ({"residual": True, "construction": "sparse", "m": 36}, "refused"),
        ({"residual": True, "m": 36}, "not universal"),
        ({"residual": True, "construction": "shared-key", "d_in": 2}, "refused"),
        ({"construction": "residual-key", "d_in": 2}, "refused"),
        ({"residual": True, "construction": "residual-key", "d_in": 2}, "universal"),
    ],
)
def test_certify(tmp_path, changes, verdict):
    answer = one(certify_group(**changes))
    assert answer.result["result"]["verdict"] == verdict, answer
    for name, data in answer.files.items():
        (tmp_path / name).write_bytes(data)
    assert bool(answer.files) == (verdict in ("universal", "not universal"))
    if answer.files:
        assert checker.check_file(tmp_path / f"{answer.key}.json").code == checker.VALID
        written = json.loads((tmp_path / f"{answer.key}.json").read_text())
        assert written["shape"].get("residual", False) == changes.get("residual", False)


def test_decide_names_weights_by_content_and_never_by_path(tmp_path):
    shape = Shape(2, 2, 2, 3)
    weights.write_host(tmp_path / "tied.safetensors", build_host("tied", shape), dtype="int8")
    weights.write_host(tmp_path / "broken.safetensors", build_host("printed-tree-row", shape), dtype="int8")
    (tmp_path / "again.safetensors").write_bytes((tmp_path / "tied.safetensors").read_bytes())
    found = sweep_of({"command": "decide", "weights": "*.safetensors"}, folder=tmp_path)
    assert (len(found.jobs), found.repeated) == (2, 1)
    answers = [run_task(SweepTask(job, code_digest(), in_sweep)) for job in found.jobs]
    assert sorted(a.result["result"]["verdict"] for a in answers) == ["not universal", "universal"]
    assert str(tmp_path) not in json.dumps([a.result for a in answers])
    weights.write_host(tmp_path / "tied.safetensors", build_host("sparse", shape), dtype="int8")
    weights.write_host(tmp_path / "again.safetensors", build_host("sparse", shape), dtype="int8")
    assert "has changed" in "".join(
        run_task(SweepTask(job, code_digest(), in_sweep)).failure or "" for job in found.jobs
    )


def test_weights_may_be_said_to_have_a_residual_stream(tmp_path):
    """The same numbers with a stream and without one are two hosts; what the metadata says is not contradicted."""
    host, streaming = (build_host("sparse", Shape(2, 2, 2, 3, residual=stream)) for stream in (False, True))
    weights.write_host(tmp_path / "plain.safetensors", host, dtype="int8")
    weights.write_host(tmp_path / "streaming.safetensors", streaming, dtype="int8")
    save_file(load_file(tmp_path / "plain.safetensors"), tmp_path / "silent.safetensors")  # without the metadata
    asked = {"command": "decide", "weights": "silent.safetensors"}
    assert one(asked, tmp_path).result["result"]["verdict"] == "universal"
    assert one({**asked, "residual": True}, tmp_path).result["result"]["verdict"] == "not universal"
    keys = [
        sweep_of({**asked, "residual": said}, folder=tmp_path).jobs[0].key for said in (False, True)
    ]  # fmt: skip
    assert keys[0] == sweep_of(asked, folder=tmp_path).jobs[0].key != keys[1]
    named = {"command": "decide", "weights": "streaming.safetensors"}
    assert one(named, tmp_path).key == one({**named, "residual": True}, tmp_path).key
    assert one(named, tmp_path).result["result"]["verdict"] == "universal"
    with pytest.raises(MalformedInput, match="residual"):
        sweep_of({**named, "residual": False}, folder=tmp_path)


def test_every_command_is_known_to_sweeps(tmp_path):
    """With its own keys, without being written down a second time; what they check is said in one line."""
    for name in SWEPT:
        with pytest.raises(MalformedInput, match="key 'nonsense' is unknown"):
            sweep_of({"command": name, "nonsense": 1})


def test_every_key_takes_its_own_default():
    for name in SWEPT:
        for key, known in in_sweep(name).keys.items():
            if known.default not in (REQUIRED, None):
                assert list(spec._values("here", known, known.default)) == [known.default], (name, key)


@pytest.mark.parametrize("command", ["rank", "embed"])
def test_a_command_that_needs_a_file_is_refused_before_anything_runs(command):
    arguments = {"rank": {}, "embed": {"host": "random", **SMALL}}[command]
    with pytest.raises(MalformedInput, match="run the command by itself"):
        sweep_of({"command": command, **arguments})


def test_a_command_that_says_nothing_of_sweeps_is_run_as_it_is(tmp_path):
    shape = {"heads": 1, "layers": 1, "head_dim": 1, "d_in": 1}
    result = one({"command": "symbolic", **shape, "tied": True, "entries": True}).result
    assert result["result"]["verdict"] == "holds"
    assert result["result"]["degree"] > 0
    assert result["result"]["r_all"]["entries"]
    built = one({"command": "build", "what": "tied", **shape}).result
    assert [entry["file"] for entry in built["files"]] == [f"{built['key']}.json"]
    assert built["result"]["file"] == f"{built['key']}.json"
    assert built["result"]["m"] == 3


def test_an_undecided_host_gives_no_path_either(tmp_path, monkeypatch):
    weights.write_host(tmp_path / "random.safetensors", build_host("random", Shape(2, 2, 2, 3)))
    monkeypatch.setattr("utfproof.certificates.prover._modular_evidence", lambda *_: (0, None))
    monkeypatch.setattr("utfproof.certificates.prover.find_relation", lambda *_, **__: None)
    result = one({"command": "decide", "weights": "random.safetensors"}, tmp_path).result["result"]
    assert result["verdict"] == "undecided"
    assert "R_all of the weights at" in result["reason"]
    assert str(tmp_path) not in result["reason"]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "outputs agree"),
        ({"attention": "softmax,rope", "context": "1,7", "trials": 2}, "outputs agree"),
        ({"residual": True}, "outputs agree"),
        ({"residual": True, "m": 36}, "refused"),
        ({"host": "shared-key"}, "refused"),
        ({"tolerance": 1e-300, "context": 7}, "outputs differ"),
        ({"engine": "index-map", "host": "random"}, "refused"),
    ],
)
def test_emulate(changes, verdict):
    result = one({"command": "emulate", "host": "sparse", **SMALL, **changes}).result["result"]
    assert result["verdict"] == verdict
    if verdict not in ("refused", "refuted"):
        assert result["shape"].get("residual", False) == changes.get("residual", False)


def test_verify_keeps_certificates_and_no_time(tmp_path):
    group = {"command": "verify", "claim": "thm:designed-R/statement", "grid": "H=1..2,L=1..2,d=1,d_in=1..2"}
    first, second = one(group), one(group)
    assert first.result == second.result
    assert [name for name in first.result["result"] if "seconds" in name] == []
    assert [entry["file"] for entry in first.result["files"]] == sorted(first.files)


def test_a_claim_whose_check_stopped_has_no_result(monkeypatch):
    outcome = types.SimpleNamespace(document={"problems": ["the check stopped: needs 9 GiB"]})
    monkeypatch.setattr("utfproof.claims.runner.decide", lambda *_: outcome)
    answer = one({"command": "verify", "claim": "thm:designed-R/statement"})
    assert (answer.result, answer.failure) == (None, "the check stopped: needs 9 GiB")


@pytest.mark.parametrize(
    ("raised", "message", "resource"),
    [
        (ResourceLimit("needs 9 GiB"), "needs 9 GiB", True),
        (MemoryError(), "out of memory", True),
        (ZeroDivisionError("division\nby zero"), "internal error, nothing was decided: ZeroDivisionError: division by", False),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_the_answer(monkeypatch, raised, message, resource):
    def fail(*_, **__):
        raise raised

    monkeypatch.setattr("utfproof.certificates.prover.certify", fail)
    answer = one(certify_group())
    assert answer.result is None
    assert message in answer.failure
    assert answer.resource is resource


def test_a_missing_device_is_no_result():
    pytest.importorskip("torch")
    assert "is not available here" in one(certify_group(device="nonsense")).failure
    group = {"command": "emulate", "host": "sparse", **SMALL, "device": "nonsense"}
    assert "is not available here" in one(group).failure


def test_what_results_depend_on():
    """Code, and the data that it reads: a claim is held against its record."""
    found = sources()
    assert {"shapes.py", "claims/sections/optimality.toml"} <= found.keys()
    assert not [name for name in found if name.startswith(("cli/", "reporting/", "benchmarks/"))]


def test_other_code_computes_nothing():
    (job,) = sweep_of(certify_group()).jobs
    answer = run_task(SweepTask(job, "0" * 64, in_sweep))
    assert answer.result is None
    assert "other code" in answer.failure


def test_numbers_that_json_lacks_become_plain():
    np = pytest.importorskip("numpy")
    found = jobs.plain({"a": np.float64("nan"), "b": [np.int64(3), 2**60, True], "c": (float("inf"), np.float32(0.5))})
    assert found == {"a": None, "b": [3, str(2**60), True], "c": [None, 0.5]}
    with pytest.raises(TypeError):
        jobs.plain({"x": object()})


# --- the folder ----------------------------------------------------------------------------------------------------


def counting(calls):
    def function(tasks):
        calls.extend(task.job.parameters["seed"] for task in tasks)
        return run_batch(tasks)

    return function


def change(folder, key, edit):
    """Edit the stored result of a job, as a forger would."""
    with closing(sqlite3.connect(folder / "results.db")) as db, db:
        (line,) = db.execute("SELECT line FROM results WHERE key = ?", (key,)).fetchone()
        document = json.loads(zlib.decompress(line))
        edit(document, db)
        db.execute("UPDATE results SET line = ? WHERE key = ?", (zlib.compress(jobs.canonical(document)), key))
    db.close()


def test_only_what_is_missing_runs(tmp_path):
    calls = []
    few, more = sweep_of(certify_group(seed="0..3")), sweep_of(certify_group(seed="0..5"))
    assert run_sweep(few, tmp_path / "s", function=counting(calls)).before == 0
    first = (tmp_path / "s" / "results.jsonl").read_bytes()
    assert calls == [0, 1, 2, 3]
    summary = run_sweep(few, tmp_path / "s", function=counting(calls))
    assert (len(calls), summary.before, summary.finished, summary.exit_code) == (4, 4, 4, 0)
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == first
    run_sweep(more, tmp_path / "s", function=counting(calls))
    assert calls[4:] == [4, 5]
    assert (tmp_path / "s" / "results.jsonl").read_bytes().startswith(first)
    run_sweep(few, tmp_path / "s")
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == first


def lost_file(document, db):
    db.execute("DELETE FROM files WHERE sha256 = ?", (document["files"][0]["sha256"],))


def other_file(document, db):
    data = zlib.compress(b"{}")
    db.execute("UPDATE files SET data = ? WHERE sha256 = ?", (data, document["files"][0]["sha256"]))


def swapped(document, db):
    """The certificate of another seed under its own digest."""
    rows = db.execute("SELECT line FROM results").fetchall()
    entries = [json.loads(zlib.decompress(line))["files"][0] for (line,) in rows]
    document["files"][0]["sha256"] = next(e["sha256"] for e in entries if e["sha256"] != document["files"][0]["sha256"])


FORGERIES = {
    "flipped": lambda document, _: document["result"].update(verdict="not universal"),
    "other kind": lambda document, _: document["result"].update(kind="rank-deficient"),
    "another job": lambda document, _: document["job"]["parameters"].update(seed=7),
    "no certificate": lambda document, _: document.update(files=[]),
    "no kind": lambda document, _: document.update(files=[], result={"verdict": "not universal"}),
    "a path": lambda document, _: document["files"][0].update(file="/dev/zero"),
    "lost file": lost_file,
    "other file": other_file,
    "swapped": swapped,
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_result_that_contradicts_its_certificate_is_refused_and_runs_again(cli, tmp_path, forgery):
    sweep, calls = sweep_of(certify_group(seed="0..2")), []
    run_sweep(sweep, tmp_path / "s")
    before = (tmp_path / "s" / "results.jsonl").read_bytes()
    change(tmp_path / "s", sweep.jobs[0].key, forgery)
    code, out, err = cli("collect", "s", "-o", "s.csv", "--certificates", "c")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "run the sweep again" in err
    assert not (tmp_path / "s.csv").exists()
    run_sweep(sweep, tmp_path / "s", function=counting(calls))
    assert calls == [0]
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == before


def test_results_of_other_code_or_another_sweep_are_not_mixed_in(tmp_path):
    sweep = sweep_of(certify_group())
    run_sweep(sweep, tmp_path / "s")
    with pytest.raises(MalformedInput, match="belongs to sweep 's', not 't'"):
        run_sweep(sweep_of(certify_group(), name="t"), tmp_path / "s")
    with closing(sqlite3.connect(tmp_path / "s" / "results.db")) as db, db:
        db.execute("UPDATE sweep SET code = 'x'")
    db.close()
    with pytest.raises(MalformedInput, match="come from other code"):
        run_sweep(sweep, tmp_path / "s")
    assert run_sweep(sweep, tmp_path / "s", reuse=True).before == 1
    (tmp_path / "s" / "results.db").unlink()
    with pytest.raises(MalformedInput, match="not a sweep's folder"):
        run_sweep(sweep, tmp_path / "s")


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_folder_without_a_sweeps_database_is_one_line(cli, tmp_path, content):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "results.db").write_bytes(content)
    code, out, err = cli("collect", "s")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "results.db is" in err


def test_one_driver_at_a_time(tmp_path):
    sweep = sweep_of(certify_group())
    with Store(tmp_path).opened("s", "c", jobs=1), pytest.raises(MalformedInput, match="another sweep is running"):
        run_sweep(sweep, tmp_path, reuse=True)
    assert run_sweep(sweep, tmp_path, reuse=True).finished == 1


def test_an_interrupt_says_how_far_it_came(tmp_path):
    def function(tasks):
        if any(task.job.parameters["seed"] == 2 for task in tasks):
            raise KeyboardInterrupt
        return run_batch(tasks)

    sweep = sweep_of(certify_group(seed="0..4"))
    with pytest.raises(Stopped, match=r"of 5 finished; run again to resume") as stopped:
        run_sweep(sweep, tmp_path, function=function)
    assert stopped.value.exit_code == 130
    assert not (tmp_path / "results.jsonl").exists()
    assert run_sweep(sweep, tmp_path).before > 0


# --- the command line ----------------------------------------------------------------------------------------------


def spec_text(seeds, shape="[2, 2, 2, 3]", construction='"random"', extra=""):
    return (
        f'[sweep]\nname = "s"\n[[jobs]]\ncommand = "certify"\nconstruction = {construction}\nshape = [{shape}]\n'
        f'seed = "0..{seeds}"\n{extra}'
    )


@pytest.mark.usefixtures("here")
def test_sweep_then_collect(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(3, extra="m = [35, 36]\n"))
    code, out, _ = cli("sweep", "s.toml", "--dry-run", "--json")
    assert (code, json.loads(out)["jobs"], (tmp_path / "s").exists()) == (0, 8, False)
    code, out, err = cli("sweep", "s.toml", "--json")
    assert (code, err) == (0, "")
    counted = {entry["verdict"]: entry["jobs"] for entry in json.loads(out)["verdicts"]}
    assert counted == {"universal by matching": 4, "not universal by matching": 4}
    code, out, _ = cli("collect", "s", "-o", "t.csv", "--timings", "--certificates", "c")
    assert code == 0
    assert "8 of 8 jobs finished" in out
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["seed"], row["m"], row["verdict"]) for row in rows] == [
        (str(seed), m, verdict) for seed in range(4) for m, verdict in (("35", "not universal"), ("36", "universal"))
    ]
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert cli("check", "c")[0] == 0


@pytest.mark.usefixtures("here")
def test_failures_set_the_exit_code_and_are_named(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(4, shape="[2, 4, 8, 8]"))
    code, _, err = cli("sweep", "s.toml", "--max-memory", "1M")
    assert code == 3
    assert "5 of 5 jobs could not be run, see s/failures.jsonl" in err
    assert "(and 2 more)" in err
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == b""


@pytest.mark.usefixtures("here")
def test_collect_names_weights_as_check_does(cli, tmp_path):
    cli("build", "random", *["-H", "2", "-L", "1", "-d", "1", "--d-in", "1", "-o", "w.safetensors"])
    (tmp_path / "d.toml").write_text('[sweep]\nname = "d"\n[[jobs]]\ncommand = "decide"\nweights = "w.safetensors"\n')
    assert cli("sweep", "d.toml")[0] == 0
    (count,) = json.loads(cli("collect", "d", "--json")[1])["counts"]
    assert len(count["subject"]) == 16


def test_collect_keeps_notions_and_targets_apart(cli, tmp_path):
    notions = certify_group(d_in=2, notion=["matching", "attention-matching"])
    groups = [notions, certify_group(construction="tied", residual=True)]
    run_sweep(sweep_of(*groups), tmp_path / "s")
    counts = json.loads(cli("collect", "s", "-o", "t.csv", "--json")[1])["counts"]
    assert sorted((entry["notion"], entry["targets"]) for entry in counts) == [
        ("attention-matching", "all untied"), ("matching", "all tied"), ("matching", "all untied"),
    ]  # fmt: skip


def test_collect_writes_parquet_with_types(cli, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    groups = [certify_group(seed=[1, 2**64 - 1]), {"command": "emulate", "host": "sparse", **SMALL, "context": "1,7"}]
    run_sweep(sweep_of(*groups), tmp_path / "s")
    code, out, _ = cli("collect", "s", "--json")
    assert (code, json.loads(out)["file"]) == (0, "s/results.parquet")
    read = pq.read_table(tmp_path / "s" / "results.parquet")
    types = {"heads": "int64", "seed": "string", "witness": "bool", "max_relative_error": "double"}
    assert {name: str(read.schema.field(name).type) for name in types} == types
    assert read.column("context").to_pylist()[2] == "1,7"


def test_collect_without_pyarrow_and_without_a_sweep(cli, tmp_path, monkeypatch):
    run_sweep(sweep_of(certify_group()), tmp_path / "s")
    monkeypatch.setattr(table, "has_pyarrow", lambda: False)
    code, out, _ = cli("collect", "s", "--json")
    assert (code, json.loads(out)["file"]) == (0, "s/results.csv")
    wrong = {("s", "-o", "t.parquet"): "needs pyarrow", ("s", "-o", "t.txt"): "ends in .parquet or .csv"}
    for arguments, message in {**wrong, ("nothing",): "nothing is not a sweep's folder"}.items():
        code, out, err = cli("collect", *arguments)
        assert (code, message in err, err.count("\n")) == (2, True, 1)
