"""Sweeps: sweep files, content keys, what jobs do, the folder of results and their table (Dask: test_sweeps_cluster)."""

import csv
import json
import sys
from pathlib import Path

import pytest

from utfproof import weights
from utfproof.certificates import checker
from utfproof.cli.registry import NAMES
from utfproof.constructions import build_host
from utfproof.errors import MalformedInput, ResourceLimit, Stopped
from utfproof.shapes import Shape
from utfproof.sweeps import cluster, jobs, spec, table
from utfproof.sweeps.folder import Folder
from utfproof.sweeps.jobs import code_digest, run_job
from utfproof.sweeps.run import run_sweep
from utfproof.sweeps.spec import MAX_JOBS, parse_spec, read_spec

EXAMPLE = Path(__file__).parent.parent / "docs" / "sweep-example.toml"
SMALL = {"heads": 2, "layers": 2, "head_dim": 2, "d_in": 3}


def sweep_of(*groups, name="s", folder=Path()):
    return parse_spec({"sweep": {"name": name}, "jobs": list(groups)}, folder)


def certify_group(**changes):
    return {"command": "certify", "construction": "random", **SMALL, **changes}


class Here:
    """Workers without processes: this one."""

    workers = 1

    def __init__(self, *_, function=run_job, **__):
        self.function = function

    def run(self, asked, code, max_memory):
        for job in asked:
            yield self.function(job, code, max_memory)


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
        ("[sweep]\nname = 'a'\n[[job]]\ncommand = 'certify'", "key 'job' is unknown; did you mean 'jobs'?"),
        ("[sweep\n", "is not TOML"),
        ("[[jobs]]\nheads = 2", "command is missing"),
        ("[[jobs]]\ncommand = 'prove'", "command 'prove' is unknown; choose verify, certify"),
        ("[[jobs]]\ncommand = 'train'", "number 1 (train): preset missing"),
        ("[[jobs]]\ncommand = 'certify'\nseeed = 1", "number 1 (certify): key 'seeed' is unknown; did you mean 'seed'?"),
        ("CERTIFY\nseed = []", "seed is an empty list"),
        ("CERTIFY\nseed = -1", "seed must be an integer from 0"),
        ("CERTIFY\nseed = '9..0'", "empty range '9..0'"),
        ("CERTIFY\nseed = '0...9'", "expected integers, or a range"),
        ("CERTIFY\nseed = true", "expected integers"),
        ("CERTIFY\nseed = 18446744073709551616", "18446744073709551615"),
        ("CERTIFY\nlaw = ['uniform', 'gauss']", "law 'gauss' is unknown"),
        ("CERTIFY\nwitness = 1", "witness has 1, expected true or false"),
        ("CERTIFY\nm = 0", "m must be a positive integer, got 0"),
        ("CERTIFY\nnotion = 'full'", "notion 'full' is unknown"),
        ("CERTIFY\nshape = 'parentheses'", "shape cannot be combined with heads"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nshape = [2, 2, 2, 3]", "shape has 2; write a list"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'random'\nshape = '5-hop'", "shape has '5-hop'"),
        ("[[jobs]]\ncommand = 'certify'\nconstruction = 'sparce'\nshape = '1-hop'", "'sparce' is unknown"),
        ("[[jobs]]\ncommand = 'emulate'\nhost = 'tied'\nshape = '1-hop'\ntolerance = -1", "tolerance must be positive"),
        ("[[jobs]]\ncommand = 'decide'\nweights = 'no.safetensors'", "cannot read"),
        ("[[jobs]]\ncommand = 'decide'\nweights = '*.none'", "no file fits"),
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


def test_too_many_jobs_are_refused_by_number():
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
        certify_group(seed=0, law="uniform", residual=False),
        dict(reversed(certify_group().items())),
        {"command": "certify", "construction": "random", "shape": [[2, 2, 2, 3]]},
    ]
    assert {sweep_of(group).jobs[0].key for group in same} == {plain.key}
    other = [{"seed": 1}, {"m": 37}, {"law": "signs"}, {"dtype": "float32"}, {"witness": True}, {"d_out": 2}]
    other += [{"construction": "random-tied"}, {"heads": 3}, {"notion": "attention-matching"}, {"residual": True}]
    assert len({plain.key} | {sweep_of(certify_group(**change)).jobs[0].key for change in other}) == 1 + len(other)
    assert sweep_of(certify_group(), certify_group(seed=0)).repeated == 1
    largest = sweep_of(certify_group(seed=2**64 - 1)).jobs[0]
    assert json.loads(jobs.canonical(largest.document))["parameters"]["seed"] == str(2**64 - 1)


def test_the_example_of_the_documentation_is_understood():
    assert {job.command for job in read_spec(EXAMPLE).jobs} == {"certify", "emulate", "verify"}


def test_every_command_is_known_to_sweeps_and_takes_its_own_defaults():
    for name in (name for name in NAMES if name not in spec.APART):
        with pytest.raises(MalformedInput, match="key 'nonsense' is unknown"):
            sweep_of({"command": name, "nonsense": 1})
        for key, known in spec.keys_of(name, "here").items():
            if known.default is not None:
                assert list(spec._values("here", known, known.default)) == [known.default], (name, key)


# --- what jobs do --------------------------------------------------------------------------------------------------


def one(group, folder=Path()):
    """The answer of the only job of a group."""
    (job,) = sweep_of(group, folder=folder).jobs
    return run_job(job, code_digest())


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "universal by matching"),
        ({"witness": True, "law": "signs"}, "universal by matching"),
        ({"m": 35}, "not universal by matching"),
        ({"construction": "printed-tree-row"}, "not universal by matching"),
        ({"construction": "shared-key"}, "not defined"),
        ({"notion": "attention-matching"}, "undecided"),
        ({"d_in": 2, "notion": "attention-matching"}, "universal by attention-matching"),
        ({"residual": True, "construction": "sparse"}, "universal by matching"),
        ({"residual": True, "construction": "tied"}, "universal by matching (all tied)"),
        ({"residual": True, "m": 36}, "not universal by matching"),
    ],
)
def test_certify(tmp_path, changes, verdict):
    answer = one(certify_group(**changes))
    assert jobs.verdict_of(answer.line) == verdict, answer
    for name, data in answer.files.items():
        (tmp_path / name).write_bytes(data)
    assert bool(answer.files) == ("universal" in verdict)
    if answer.files:
        assert checker.check_file(tmp_path / f"{answer.key}.json").code == checker.VALID
        written = json.loads((tmp_path / f"{answer.key}.json").read_text())
        assert written["shape"].get("residual", False) == changes.get("residual", False)


def test_decide_takes_files_by_content_and_says_no_path(tmp_path):
    shape = Shape(2, 2, 2, 3)
    for name, made in (("tied", "tied"), ("broken", "printed-tree-row")):
        weights.write_host(tmp_path / f"{name}.safetensors", build_host(made, shape), dtype="int8")
    found = sweep_of({"command": "decide", "weights": "*.safetensors"}, folder=tmp_path)
    answers = [run_job(job, code_digest()) for job in found.jobs]
    assert [jobs.verdict_of(a.line) for a in answers] == ["not universal by matching", "universal by matching"]
    assert str(tmp_path) not in json.dumps([a.line for a in answers])
    weights.write_host(tmp_path / "tied.safetensors", build_host("sparse", shape), dtype="int8")
    assert "has changed" in run_job(found.jobs[1], code_digest()).failure
    assert sweep_of({"command": "decide", "weights": "tied.safetensors"}, folder=tmp_path).jobs[0].key != answers[1].key


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        ({"command": "emulate", "host": "sparse", **SMALL}, "outputs agree"),
        ({"command": "emulate", "host": "sparse", **SMALL, "attention": "softmax,rope", "residual": True}, "outputs agree"),
        ({"command": "emulate", "host": "sparse", **SMALL, "tolerance": 1e-300, "context": 7}, "outputs differ"),
        ({"command": "verify", "claim": "thm:designed-R/statement", "grid": "H=1,L=1,d=1,d_in=1"}, "exit code 0"),
        ({"command": "build", "what": "tied", **SMALL}, "exit code 0"),
        ({"command": "rank", "matrix": "eye.npy"}, "exit code 0"),
    ],
)  # fmt: skip
def test_other_commands_run_as_they_are(tmp_path, group, verdict):
    np = pytest.importorskip("numpy")
    np.save(tmp_path / "eye.npy", np.eye(3))
    answer = one(group, tmp_path)
    assert jobs.verdict_of(answer.line) == verdict
    assert str(tmp_path) not in json.dumps(answer.line)


def test_training_runs_in_a_sweep_and_leaves_no_files(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    group = {"command": "train", "preset": "1-hop/sparse/attention", "steps": 2, "batch": 2, "eval_sequences": 4}
    found = one({**group, "setting": "theory"}).line["result"]
    assert found["runs"][0]["steps"] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "message", "resource"),
    [
        (ResourceLimit("needs 9 GiB"), "needs 9 GiB", True),
        (MemoryError(), "out of memory", True),
        (ZeroDivisionError("division\nby zero"), "internal error, nothing was decided: ZeroDivisionError: division by", False),
        (MalformedInput("wrong"), "wrong", False),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_the_answer(monkeypatch, raised, message, resource):
    def fail(*_, **__):
        raise raised

    monkeypatch.setattr("utfproof.certificates.prover.certify", fail)
    answer = one(certify_group())
    assert answer.line is None
    assert message in answer.failure
    assert answer.resource is resource


def test_other_code_computes_nothing():
    (job,) = sweep_of(certify_group()).jobs
    answer = run_job(job, "0" * 64)
    assert answer.line is None
    assert "other code" in answer.failure


def test_numbers_that_json_lacks_become_plain():
    np = pytest.importorskip("numpy")
    found = jobs.plain({"a": np.float64("nan"), "b": [np.int64(3), 2**60, True], "c": (float("inf"), np.float32(0.5))})
    assert found == {"a": None, "b": [3, str(2**60), True], "c": [None, 0.5]}


# --- the folder ----------------------------------------------------------------------------------------------------


def counting(calls):
    def function(job, *more):
        calls.append(job.parameters["seed"])
        return run_job(job, *more)

    return Here(function=function)


def test_only_what_is_missing_runs(tmp_path):
    calls = []
    few, more = sweep_of(certify_group(seed="0..3")), sweep_of(certify_group(seed="0..5"))
    assert run_sweep(few, tmp_path / "s", counting(calls)).before == 0
    first = (tmp_path / "s" / "results.jsonl").read_bytes()
    assert calls == [0, 1, 2, 3]
    summary = run_sweep(few, tmp_path / "s", counting(calls))
    assert (len(calls), summary.before, len(summary.lines), summary.exit_code) == (4, 4, 4, 0)
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == first
    run_sweep(more, tmp_path / "s", counting(calls))
    assert calls[4:] == [4, 5]
    assert (tmp_path / "s" / "results.jsonl").read_bytes().startswith(first)


@pytest.mark.parametrize("damage", ["half a line", "a lost file", "another file", "another job", "a path"])
def test_what_is_damaged_runs_again(tmp_path, damage):
    sweep, calls = sweep_of(certify_group(seed="0..1")), []
    run_sweep(sweep, tmp_path, Here())
    lines, first = tmp_path / "results.jsonl", tmp_path / "files" / f"{sweep.jobs[0].key}.json"
    before = lines.read_bytes()
    if damage == "half a line":
        lines.write_bytes(b"".join(reversed(before.splitlines(keepends=True)))[:-9])
    elif damage == "another job":
        lines.write_bytes(before.replace(b'"seed":0', b'"seed":7'))
    elif damage == "a path":
        lines.write_bytes(before.replace(f"{sweep.jobs[0].key}.json".encode(), b"/dev/zero"))
    elif damage == "a lost file":
        first.unlink()
    else:
        first.write_bytes(b"{}")
    run_sweep(sweep, tmp_path, counting(calls))
    assert calls == [0]
    assert lines.read_bytes() == before


def test_results_of_other_code_or_another_sweep_are_not_mixed_in(tmp_path):
    sweep = sweep_of(certify_group())
    run_sweep(sweep, tmp_path / "s", Here())
    with pytest.raises(MalformedInput, match="belongs to another sweep than 't'"):
        run_sweep(sweep_of(certify_group(), name="t"), tmp_path / "s", Here())
    (tmp_path / "s" / "sweep.json").write_text('{"name": "s", "code": "x"}')
    with pytest.raises(MalformedInput, match="come from other code"):
        run_sweep(sweep, tmp_path / "s", Here())
    assert run_sweep(sweep, tmp_path / "s", Here(), reuse=True).before == 1
    (tmp_path / "s" / "sweep.json").unlink()
    with pytest.raises(MalformedInput, match=r"no sweep\.json"):
        run_sweep(sweep, tmp_path / "s", Here())


def test_one_driver_at_a_time(tmp_path):
    sweep = sweep_of(certify_group())
    with Folder(tmp_path).opened("s", "c"), pytest.raises(MalformedInput, match="another sweep is running"):
        run_sweep(sweep, tmp_path, Here(), reuse=True)
    assert len(run_sweep(sweep, tmp_path, Here(), reuse=True).lines) == 1


def test_an_interrupt_says_how_far_it_came(tmp_path):
    def function(job, *more):
        if job.parameters["seed"] == 2:
            raise KeyboardInterrupt
        return run_job(job, *more)

    sweep = sweep_of(certify_group(seed="0..4"))
    with pytest.raises(Stopped, match=r"2 of 5 finished; run again to resume") as stopped:
        run_sweep(sweep, tmp_path, Here(function=function))
    assert stopped.value.exit_code == 130
    assert run_sweep(sweep, tmp_path, Here()).before == 2


# --- the command line ----------------------------------------------------------------------------------------------


def spec_text(seeds, shape="[2, 2, 2, 3]", extra=""):
    return (
        f'[sweep]\nname = "s"\n[[jobs]]\ncommand = "certify"\nconstruction = "random"\nshape = [{shape}]\n'
        f'seed = "0..{seeds}"\n{extra}'
    )


@pytest.mark.usefixtures("here")
def test_the_command_and_its_table(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(3, extra="m = [35, 36]\n"))
    code, out, _ = cli("sweep", "s.toml", "--dry-run", "--json")
    assert (code, json.loads(out)["jobs"], (tmp_path / "s").exists()) == (0, 8, False)
    code, out, err = cli("sweep", "s.toml", "--json", "--table", "t.csv")
    assert (code, err) == (0, "")
    counted = {entry["verdict"]: entry["jobs"] for entry in json.loads(out)["verdicts"]}
    assert counted == {"universal by matching": 4, "not universal by matching": 4}
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["seed"], row["m"], row["verdict"]) for row in rows] == [
        (str(seed), m, verdict) for seed in range(4) for m, verdict in (("35", "not universal"), ("36", "universal"))
    ]
    assert cli("check", "s/files")[0] == 0


@pytest.mark.usefixtures("here")
def test_failures_set_the_exit_code_and_are_named(cli, tmp_path):
    (tmp_path / "s.toml").write_text(spec_text(4, shape="[2, 4, 8, 8]"))
    code, _, err = cli("sweep", "s.toml", "--max-memory", "1M")
    assert code == 3
    assert "5 of 5 jobs could not be run, see s/failures.jsonl" in err
    assert "(and 2 more)" in err
    assert (tmp_path / "s" / "results.jsonl").read_bytes() == b""
    assert len((tmp_path / "s" / "failures.jsonl").read_text().splitlines()) == 5


@pytest.mark.usefixtures("here")
def test_parquet_has_types(cli, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    emulate = '[[jobs]]\ncommand = "emulate"\nhost = "sparse"\nshape = [[2, 2, 2, 3]]\ncontext = "1,7"\n'
    (tmp_path / "s.toml").write_text(spec_text(1).replace('"0..1"', f"[1, '{2**64 - 1}..{2**64 - 1}']") + emulate)
    assert cli("sweep", "s.toml", "--table", "t.parquet")[0] == 0
    read = pq.read_table(tmp_path / "t.parquet")
    types = {"heads": "int64", "seed": "string", "witness": "bool", "max_relative_error": "double"}
    assert {name: str(read.schema.field(name).type) for name in types} == types
    assert read.column("context").to_pylist()[2] == "1,7"


def test_a_table_that_cannot_be_written_is_refused_first(cli, tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(spec_text(1))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for name, message in {"t.parquet": "needs pyarrow", "t.txt": "ends in .parquet or .csv"}.items():
        code, out, err = cli("sweep", "s.toml", "--table", name)
        assert (code, out, message in err, err.count("\n")) == (2, "", True, 1)


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x")', "+1", "-1", "@SUM(A1)", "\t=1"])
def test_cells_are_no_formulas_and_hold_no_escapes(tmp_path, text):
    result = {"verdict": text, "reason": "\x1b[2J", "m": -3}
    line = {"key": "k", "job": {"command": "c", "parameters": {}}, "files": [], "result": result}
    table.write_table([line], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert (row["verdict"], row["reason"], row["m"]) == (f"'{text}", r"\x1b[2J", "-3")
