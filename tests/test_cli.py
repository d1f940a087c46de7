"""The command line as a user meets it: exit codes, one line per error, JSON, files all or nothing."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from cases import TABLE_SHAPES

from utfproof import weights
from utfproof.cli.app import run
from utfproof.constructions import build_host, random_target
from utfproof.matching import embed
from utfproof.shapes import Shape

SMALL = ["-H", "2", "-L", "2", "-d", "2", "--d-in", "3"]
WIDE = ["-H", "2", "-L", "2", "-d", "3", "--d-in", "2"]


@pytest.fixture
def files(tmp_path):
    """A target, a host that can carry it, and one that cannot."""
    shape = Shape(2, 2, 2, 3)
    weights.write_target(tmp_path / "target.safetensors", random_target(shape, 1, width=4))
    weights.write_host(tmp_path / "tied.safetensors", build_host("tied", shape), dtype="int8")
    weights.write_host(tmp_path / "random.safetensors", build_host("random", shape))
    weights.write_host(tmp_path / "broken.safetensors", build_host("printed-tree-row", shape), dtype="int8")
    return tmp_path


@pytest.mark.parametrize(
    ("construction", "shape", "code", "verdict"),
    [
        ("sparse", SMALL, 0, "universal by matching"),
        ("sparse-front", SMALL, 0, "universal by matching"),
        ("tied", [*SMALL, "--d-out", "2"], 0, "universal by matching"),
        ("random", SMALL, 0, "universal by matching"),
        (
            "random-tied",
            [*SMALL, "--law", "signs", "--seed", "18446744073709551615"],
            0,
            "universal by matching",
        ),
        ("random", [*SMALL, "--law", "binomial", "--dtype", "bfloat16"], 0, "universal by matching"),
        ("random", [*SMALL, "--m", "35"], 1, "not universal by matching"),
        ("printed-tree-row", SMALL, 1, "not universal by matching"),
        ("printed-tree-column", SMALL, 1, "not universal by matching"),
        ("printed-looped", SMALL, 1, "not universal by matching"),
        ("printed-looped", ["-H", "1", "-L", "2", "-d", "2", "--d-in", "3"], 1, "not universal by matching"),
        (
            "printed-single-head",
            ["-H", "1", "-L", "2", "-d", "2", "--d-in", "3"],
            1,
            "not universal by matching",
        ),
        ("shared-key", [*WIDE, "--notion", "matching"], 1, "not universal by matching"),
        ("shared-key", WIDE, 0, "universal by attention-matching"),
        ("shared-query", [*WIDE, "--notion", "attention-matching"], 0, "universal by attention-matching"),
        ("random", [*WIDE, "--notion", "attention-matching"], 0, "universal by attention-matching"),
        ("random-tied", [*WIDE, "--notion", "attention-matching", "--m", "38"], 0, "universal by attention-matching"),
    ],
)
def test_certify_then_check(cli, construction, shape, code, verdict):
    found, out, _ = cli("certify", construction, *shape, "-o", "c.json", "--json")
    document = json.loads(out)
    assert (found, document["verdict"], document["notion"]) == (code, verdict, verdict.rpartition(" by ")[2])
    checked, out, _ = cli("check", "c.json")
    assert checked == 0
    assert verdict in out
    found, out, _ = cli("certify", construction, *shape, "-o", "again.json")
    assert found == code
    assert verdict in " ".join(out.split())


def test_certificates_say_the_same_bytes(cli, tmp_path):
    for name in ("a.json", "b.json"):
        assert cli("certify", "random", *SMALL, "--seed", 3, "-o", name)[0] == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["certify", "sparse", *SMALL[:-2], "-o", "c.json"], 2, "--d-in missing"),
        (["certify", "sparce", *SMALL, "-o", "c.json"], 2, "CONSTRUCTION 'sparce' is unknown; did you mean 'sparse'?"),
        (["certify", "sparse", *SMALL], 2, "output"),
        (["certify", "sparse", *SMALL, "-o", "c.txt"], 2, "ends in .json"),
        (["certify", "sparse", *SMALL, "-o", "no/c.json"], 2, "folder no does not exist"),
        (["certify", "sparse", *SMALL, "--m", "35", "-o", "c.json"], 2, "needs m >= 36, got 35"),
        (["certify", "sparse", *SMALL, "--m", "0", "-o", "c.json"], 2, "m must be a positive integer"),
        (["certify", "sparse", "-H", "0", *SMALL[2:], "-o", "c.json"], 2, "heads must be a positive integer, got 0"),
        (["certify", "sparse", "-H", "2.5", *SMALL[2:], "-o", "c.json"], 2, "--heads"),
        (["certify", "random", *SMALL, "--seed", "-1", "-o", "c.json"], 2, "seed must be"),
        (["certify", "random", *SMALL, "--law", "gauss", "-o", "c.json"], 2, "law 'gauss' is unknown"),
        (["certify", "random", *SMALL, "--dtype", "int8", "-o", "c.json"], 2, "dtype 'int8' is unknown"),
        (["certify", "shared-key", *SMALL, "-o", "c.json"], 2, "needs head_dim >= d_in"),
        (["certify", "shared-key", *WIDE, "--d-out", "1", "-o", "c.json"], 4, "no certificate kind decides shared-key by attention-matching"),
        (["certify", "random", *SMALL, "--notion", "attention-matching", "-o", "c.json"], 4, "ask with --notion matching"),
        (["certify", "sparse", *SMALL, "--notion", "full", "-o", "c.json"], 2, "notion 'full' is unknown"),
        (["certify", "sparse", *SMALL, "--notion", "functional", "-o", "c.json"], 4, "no certificate kind decides sparse by functional"),
        (["certify", "sparse", "-H", "4", "-L", "12", "-d", "64", "--d-in", "128", "-o", "c.json"], 3, "the limit is"),
        (["certify", "sparse", "-H", "4", "-L", "100", "-d", "1", "--d-in", "1", "-o", "c.json"], 3, "head words"),
        (["certify", "random", "-H", "4", "-L", "4", "-d", "64", "--d-in", "64", "--max-memory", "1G", "-o", "c.json"], 3, "1.0 GiB"),
        (["certify", "sparse", *SMALL, "--max-memory", "lots", "-o", "c.json"], 2, "is not a size"),
        (["build", "target", *SMALL, "--m", "3", "-o", "t.safetensors"], 2, "a target has --width"),
        (["build", "sparse", *SMALL, "--width", "3", "-o", "t.safetensors"], 2, "belong to 'build target'"),
        (["build", "random", *SMALL, "--dtype", "int8", "-o", "t.safetensors"], 2, "dtype 'int8' is unknown"),
        (["build", "sparse", "-H", "4", "-L", "6", "-d", "64", "--d-in", "128", "-o", "t.safetensors"], 3, "a file of sparse"),
        (["embed", "sparse", "nothing.safetensors", "-o", "E.safetensors"], 2, "cannot read nothing.safetensors"),
        (["embed", "sparce", "nothing.safetensors", "-o", "E.safetensors"], 2, "cannot read nothing.safetensors"),
        (["emulate", "sparse", *SMALL, "--context", "1,,2"], 2, "has an empty item"),
        (["emulate", "sparse", *SMALL, "--context", "0"], 2, "--context must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--context", "-3"], 2, "'-3'"),
        (["emulate", "sparse", *SMALL, "--trials", "0"], 2, "--trials must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--attention", "relu"], 2, "attention 'relu' is unknown"),
        (["emulate", "sparse", *WIDE, "--attention", "rope"], 2, "RoPE needs an even head dimension, got 3"),
        (["emulate", "shared-key", "-H", "2", "-L", "1", "-d", "2", "--d-in", "2", "--attention", "rope"], 2, "matches attention logits only"),
        (["emulate", "sparse", *SMALL, "--tolerance", "0"], 2, "--tolerance must be positive"),
        (["emulate", "sparse", *SMALL, "--embedding", "E.safetensors"], 2, "pass --target"),
        (["emulate", "sparse", *SMALL, "--device", "nonsense"], 2, "device 'nonsense'"),
        (["emulate", "nonsense", *SMALL], 2, "neither a construction"),
        (["emulate", "sparse", *SMALL, "--context", "1000000000"], 3, "a context of 1000000000"),
        (["check", "nothing.json"], 2, None),
        (["check"], 2, "Missing argument 'CERTIFICATE|FOLDER'"),
        (["check", "x.json", "--max-seconds", "-1"], 2, "--max-seconds"),
        (["nonsense"], 2, "No such command"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line_and_its_code(cli, tmp_path, arguments, code, message):
    found, out, err = cli(*arguments)
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert found == code, err
    if message is not None:
        assert len(lines) == 1
        assert message in lines[0]
        assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.parametrize("host", ["sparse", "tied", "random", "tied.safetensors", "random.safetensors"])
def test_embed_then_emulate(cli, files, host):
    code, out, _ = cli("embed", host, "target.safetensors", "-o", "E.safetensors", "--json")
    document = json.loads(out)
    assert (code, document["notion"], document["rank"]) == (0, "matching", 36)
    for extra in ([], ["--embedding", "E.safetensors"]):
        code, out, _ = cli(
            "emulate",
            host,
            "--target",
            "target.safetensors",
            *extra,
            "--attention",
            "softmax,rope+causal",
            "--json",
        )
        report = json.loads(out)
        assert code == 0
        assert report["holds"]
        assert len(report["comparisons"]) == 6
        assert report["max_relative_error"] < 1e-10


def test_a_wrong_embedding_is_caught(cli, files):
    cli("embed", "sparse", "target.safetensors", "-o", "E.safetensors")
    E = weights.read_embedding("E.safetensors").copy()
    E[0, 0] *= 1 + 1e-6
    weights.write_embedding("bad.safetensors", E)
    code, out, _ = cli("emulate", "sparse", "--target", "target.safetensors", "--embedding", "bad.safetensors")
    assert code == 1
    assert "E does not solve the equations" in out
    # judged by its outputs alone, if that is what is asked
    judged = ("emulate", "sparse", "--target", "target.safetensors", "--embedding", "bad.safetensors", "--tolerance")
    assert cli(*judged, "1e-3")[0] == 0
    code, out, _ = cli(*judged, "1e-9")
    assert code == 1
    assert "outputs DIFFER" in out
    E[0, 0] = 0
    weights.write_embedding("narrow.safetensors", E[:, :-1])
    code, _, err = cli("emulate", "sparse", "--target", "target.safetensors", "--embedding", "narrow.safetensors")
    assert code == 2
    assert "E has shape [3, 35], expected [3, 36]" in err


def test_a_host_that_cannot_carry_the_target(cli, files):
    for host in ("broken.safetensors", "printed-tree-row"):
        code, out, err = cli("embed", host, "target.safetensors", "-o", "E.safetensors")
        assert (code, out) == (1, "")
        assert "rank R_all = 8 of M = 36" in err
        assert "residual" in err
    assert not (files / "E.safetensors").exists()


@pytest.mark.parametrize("construction", ["shared-key", "shared-query"])
def test_attention_matching_hosts_say_so(cli, construction):
    assert cli("build", "target", *WIDE, "-o", "t.safetensors", "--seed", 3)[0] == 0
    assert cli("build", construction, *WIDE, "-o", "h.safetensors")[0] == 0
    for host in (construction, "h.safetensors"):
        code, out, _ = cli("embed", host, "t.safetensors", "-o", "E.safetensors", "--json")
        assert (code, json.loads(out)["notion"]) == (0, "attention-matching")
        code, out, _ = cli("emulate", host, "--target", "t.safetensors", "--json")
        assert (code, json.loads(out)["notion"]) == (0, "attention-matching")


def test_shape_options_are_checked_against_the_file(cli, files):
    code, _, err = cli("embed", "sparse", "target.safetensors", "--heads", 3, "-o", "E.safetensors")
    assert code == 2
    assert "--heads 3 contradicts the file, which has heads = 2" in err
    code, _, err = cli("embed", "tied.safetensors", "target.safetensors", "--m", 37, "-o", "E.safetensors")
    assert code == 2
    assert "--m 37 contradicts" in err


def test_an_input_is_never_overwritten(cli, files):
    before = (files / "target.safetensors").read_bytes()
    for host, output in (("sparse", "target.safetensors"), ("tied.safetensors", "./tied.safetensors")):
        code, _, err = cli("embed", host, "target.safetensors", "-o", output)
        assert code == 2
        assert "would overwrite an input" in err
    assert (files / "target.safetensors").read_bytes() == before


def test_padding_and_seeds(cli, files):
    code, _, _ = cli("embed", "random", "target.safetensors", "--m", 45, "--seed", 9, "-o", "E.safetensors", "--json")
    assert code == 0
    assert weights.read_embedding("E.safetensors").shape == (3, 45)
    host = build_host("random", Shape(2, 2, 2, 3), 45, seed=9)
    expected = embed(host, weights.read_target("target.safetensors")).E
    assert np.array_equal(weights.read_embedding("E.safetensors"), expected)


def test_effective_head_dimension_is_noted_once(cli):
    _, _, err = cli("certify", "sparse", *WIDE, "-o", "c.json")
    assert err.count("effective head dimension is 2") == 1


def test_random_targets_of_other_kinds(cli):
    code, out, _ = cli(
        "emulate", "tied", *SMALL, "--tied-targets", "--width", 5, "--trials", 3, "--context", "1,4", "--json"
    )
    report = json.loads(out)
    assert (code, len(report["comparisons"])) == (0, 12)
    assert report["max_relative_error"] < 1e-12


def test_version(cli):
    assert cli("--version")[1].startswith("utfproof ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt, 130, "utfproof: interrupted; nothing half-written is left\n"),
        (ZeroDivisionError("planted"), 70, "internal error, nothing was decided: ZeroDivisionError: planted"),
    ],
)
def test_what_is_broken_off_is_no_verdict_and_leaves_nothing(cli, monkeypatch, tmp_path, error, code, said):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("utfproof.certificates.prover.certify", broken)
    found, out, err = cli("certify", "sparse", *SMALL, "-o", "c.json")
    assert (found, out) == (code, "")
    assert said in err
    assert code == 70 or err == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["utfproof", "utfproof.certificates.checker"])
def test_modules_run(module, tmp_path):
    path = tmp_path / "c.json"
    assert run(["certify", "tied", *SMALL, "-o", str(path)]) == 0
    arguments = [str(path)] if module.endswith("checker") else ["check", str(path)]
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "universal by matching" in done.stdout


def test_a_closed_pipe_is_quiet(tmp_path):
    command = f"{sys.executable} -m utfproof emulate sparse -H 2 -L 2 -d 2 --d-in 3 | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_twenty_million_dimensions(cli, name):
    """(4,6,64,128), m = 1.2 million: certified and checked in linear time; the exhaustive tier has (4,8,64,128)."""
    shape = ["-H", "4", "-L", "6", "-d", "64", "--d-in", "128"]
    assert cli("certify", name, *shape, "-o", "c.json")[0] == 0
    assert cli("check", "c.json")[0] == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["sparse", "tied", "sparse-front"])
def test_m_of_twenty_million(cli, name):
    shape = ["-H", "4", "-L", "8", "-d", "64", "--d-in", "128"]
    assert cli("certify", name, *shape, "-o", "c.json")[0] == 0
    assert cli("check", "c.json")[0] == 0


@pytest.mark.full
@pytest.mark.parametrize("name", TABLE_SHAPES)
@pytest.mark.parametrize("construction", ["sparse", "tied"])
def test_table_shapes_emulate(cli, name, construction):
    H, L, d, d_in = TABLE_SHAPES[name]
    shape = ["-H", H, "-L", L, "-d", d, "--d-in", d_in]
    code, out, _ = cli(
        "emulate", construction, *shape, "--context", "1,7,64", "--attention", "softmax,causal,rope", "--json"
    )
    assert code == 0
    assert json.loads(out)["max_relative_error"] < 1e-12


HUGE = "1" + "0" * 30


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["emulate", "sparse", "-H", HUGE, "-L", "2", "-d", "3", "--d-in", "4"], 3),
        (["emulate", "sparse", "-H", "2", "-L", HUGE, "-d", "3", "--d-in", "4"], 3),
        (["emulate", "sparse", *SMALL, "--width", HUGE], 3),
        (["build", "target", "-H", "2", "-L", "300000000", "-d", "3", "--d-in", "4", "-o", "t.safetensors"], 3),
        (["build", "target", *SMALL, "--width", "3000000", "--max-memory", "50M", "-o", "t.safetensors"], 3),
        (["certify", "sparse", "-H", "2", "-L", "2", "-d", "1" + "0" * 400, "--d-in", "4", "-o", "c.json"], 3),
        (["certify", "tied", *SMALL, "--max-memory", "1" + "0" * 400, "-o", "c.json"], 2),
        (["certify", "random", *SMALL, "--device", "meta", "-o", "c.json"], 2),
        (["certify", "tied", *SMALL, "-o", "x" * 300 + ".json"], 2),
    ],
)
def test_absurd_sizes_are_refused_at_once(cli, tmp_path, arguments, code):
    found, _, err = cli(*arguments)
    assert found == code
    assert "internal error" not in err
    assert list(tmp_path.iterdir()) == []


def test_overflowing_weights_do_not_embed(cli, files):
    target = random_target(Shape(2, 2, 2, 3), 1)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        getattr(target, name)[...] *= 1e200
    weights.write_target("huge.safetensors", target)
    for host in ("sparse", "random"):
        code, _, err = cli("embed", host, "huge.safetensors", "-o", "E.safetensors")
        assert code == 2
        assert "not finite" in err
    assert not (files / "E.safetensors").exists()


def test_file_names_are_not_markup(cli, tmp_path):
    for name in ("[link=x]y.json", "é[bold].json", "[/b].json"):
        code, out, _ = cli("certify", "tied", *SMALL, "-o", name if "/" not in name else "b].json")
        assert code == 0
        assert name.rsplit("/", maxsplit=1)[-1] in out


def test_json_has_no_bare_nan(cli, files):
    E = weights.read_embedding("E.safetensors") if (files / "E.safetensors").exists() else np.zeros((3, 36))
    E[0, 0] = 1e308
    weights.write_embedding("wild.safetensors", E)
    _, out, _ = cli("emulate", "sparse", "--target", "target.safetensors", "--embedding", "wild.safetensors", "--json")
    json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))


def test_said_layers_must_agree_with_the_file(cli, files):
    weights.write_target("looped.safetensors", random_target(Shape(2, 2, 2, 3), 1, tied=True))
    code, _, err = cli("embed", "tied", "looped.safetensors", "--layers", 3, "-o", "E.safetensors")
    assert code == 2
    assert "metadata says 2 layers, 3 were said" in err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pipe.safetensors", ["embed", "sparse", "pipe.safetensors", "-o", "E.safetensors"]),
        ("pipe.npy", ["rank", "pipe.npy"]),
        ("pipe.toml", ["sweep", "pipe.toml", "-o", "folder"]),
    ],
)
@pytest.mark.parametrize("device", [False, True])
def test_what_could_be_read_for_ever_is_refused(cli, tmp_path, name, arguments, device):
    (tmp_path / name).symlink_to("/dev/zero") if device else os.mkfifo(tmp_path / name)
    code, _, err = cli(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.count("cannot read") == 1
    assert "no regular file" in err


def test_an_interrupt_inside_an_exec_keeps_the_exit_code(tmp_path):
    """CPython marks a KeyboardInterrupt that leaves the exec of a string as unhandled for good, and -m then dies by SIGINT."""
    (tmp_path / "interrupted.py").write_text(
        "from utfproof.cli import app, main\n"
        "def run(arguments, begin):\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt:\n"
        "        return 143\n"
        "app.run = run\n"
        "main()\n"
    )
    found = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False, capture_output=True)
    assert found.returncode == 143, found.stderr.decode()


CERTIFY = ["certify", "tied", "-H", "2", "-L", "2", "-d", "1", "--d-in", "2"]


@pytest.mark.parametrize("columns", ["0", "1", "8", "12"])
def test_a_narrow_terminal_shows_the_verdict(tmp_path, monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert run([*CERTIFY, "-o", str(tmp_path / "a.json")]) == 0
    assert "universal by matching" in capsys.readouterr().out


@pytest.mark.full
def test_plots_need_no_display(tmp_path):
    """Jupyter names a backend of its own to whatever it starts."""
    pytest.importorskip("matplotlib")
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "--plot", str(tmp_path / "f.png")]
    environment = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    subprocess.run(
        [sys.executable, "-m", "utfproof", "frontier", *shape], env=environment, check=True, capture_output=True
    )
    assert (tmp_path / "f.png").stat().st_size


def test_control_characters_are_written_out(tmp_path, monkeypatch, capsys):
    """Of file names, in lines and in tables."""
    monkeypatch.chdir(tmp_path)
    assert run([*CERTIFY, "-o", "a\x1b[31m.json"]) == 0
    assert run(["decide", "b\x1b]0;\n\x07.safetensors", "-o", "c.json"]) == 2
    said = capsys.readouterr()
    assert "a\\x1b[31m.json" in said.out
    assert "b\\x1b]0; \\x07.safetensors" in said.err
    assert "\x1b" not in said.out + said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("number", ["1_0", " 2", "2 ", "\u0662"])
def test_numbers_are_digits(tmp_path, capsys, number):
    assert (
        run(["certify", "tied", "-H", number, "-L", "2", "-d", "1", "--d-in", "2", "-o", str(tmp_path / "a.json")]) == 2
    )
    assert "is not a valid integer" in capsys.readouterr().err
    assert run(["search", "exhaustive", "-H", "2", "-L", "2", "--m", "2", "--seconds", number]) == 2
    assert "is not a valid float" in capsys.readouterr().err


def test_outputs_that_say_something_else(tmp_path, monkeypatch, capsys):
    """A folder's name."""
    monkeypatch.chdir(tmp_path)
    assert run([*CERTIFY, "-o", "a.json/"]) == 2
    assert "a.json/ names a folder; name a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_one_line_without_notes(tmp_path, capsys):
    wide = ["-H", "2", "-L", "2", "--d-in", "2", "-d", "9" * 23]
    assert run(["certify", "random", *wide, "-o", str(tmp_path / "o.json")]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["certify", "tied", *WIDE, "-o", str(tmp_path / "o.json")]) == 0
    assert capsys.readouterr().err.startswith("note: head_dim 3 exceeds d_in 2")


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch, capsys):
    (tmp_path / "sweep.toml").write_text("")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for words in (["report", str(tmp_path), "-o", "x.html"], [*CERTIFY, "-o", "a.json"]):
        assert run(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
