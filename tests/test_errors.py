"""Every command used wrongly, and in a bad world: one clear line, the right exit code, nothing half-written.

The faults stand in named tables: what is run, the exit code, and words that the line must have. All but signals and closed
streams run in this process.
"""

import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from utfproof import weights
from utfproof.cli.app import run
from utfproof.constructions import build_host, random_target
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.sweeps.folder import Folder
from utfproof.util import files

SMALL = ["-H", "2", "-L", "2", "-d", "2", "--d-in", "3"]
SUBPROCESS = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# --- a folder of good and broken files ----------------------------------------------------------------------------


def _hosts(folder):
    """Broken hosts: what is wrong, and words of the line."""
    good = {name: np.array(array) for name, array in weights.read_tensors(folder / "host.safetensors").tensors.items()}

    def changed(name, **changes):
        kept = {key: np.ascontiguousarray(array) for key, array in {**good, **changes}.items() if array is not None}
        save_file(kept, folder / f"{name}.safetensors")

    spoilt = good["R_V"].copy()
    spoilt[1, 0, 2, 3] = np.nan
    changed("nan", R_V=spoilt)
    spoilt = good["R_V"].copy()
    spoilt[0, 1, 0, 0] = -np.inf
    changed("inf", R_V=spoilt)
    changed("shape", R_V=good["R_V"][..., :-1])
    changed("axes", R_V=good["R_V"][0, 0])
    changed("bool", R_V=np.ones_like(good["R_V"], dtype=bool))
    changed("missing", R_V=None)
    changed("extra", bias=np.zeros(3))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The files, made once; each test works on a copy."""
    folder = tmp_path_factory.mktemp("errors")
    shape = Shape(2, 2, 2, 3)
    weights.write_host(folder / "host.safetensors", build_host("random", shape))
    weights.write_host(folder / "tied.safetensors", build_host("tied", shape), dtype="int8")
    weights.write_target(folder / "target.safetensors", random_target(shape, 1, width=4))
    facts = {"heads": "2", "layers": "2", "head_dim": "2", "d_in": "3"}
    weights.write_embedding(folder / "E.safetensors", np.ones((3, 36)), facts)
    weights.write_embedding(folder / "narrow.safetensors", np.ones((3, 35)), facts)
    _hosts(folder)
    tied = {name: np.array(array) for name, array in weights.read_tensors(folder / "tied.safetensors").tensors.items()}
    save_file(tied, folder / "unlabelled.safetensors")
    raw = (folder / "host.safetensors").read_bytes()
    (folder / "short.safetensors").write_bytes(raw[:-8])
    (folder / "header.safetensors").write_bytes(raw[:100])
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "garbage.safetensors").write_bytes(bytes(range(256)))
    (folder / "vast.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    (folder / "garbage.json").write_bytes(b"\xff\xfe{")
    (folder / "list.json").write_text("[]")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "garbage.toml").write_bytes(b"\xff\xfe[")
    (folder / "open.toml").write_text("x = [1")
    (folder / "old.json").write_text("what was here before")
    (folder / "folder.json").mkdir()
    (folder / "folder.safetensors").mkdir()
    return folder


@pytest.fixture
def place(store, tmp_path, monkeypatch):
    """A copy of the files, as the current folder."""
    folder = tmp_path / "here"
    shutil.copytree(store, folder)
    monkeypatch.chdir(folder)
    return folder


def content(folder):
    """Every file of a folder, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def require_packages(arguments):
    """Skip where the command needs a package that is not installed."""
    if arguments[0] in ("train", "tables"):
        pytest.importorskip("torch")
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")


def refused(capsys, folder, arguments, code, words):
    """The command ends with this code and one line that has these words, and the folder is as before."""
    before = content(folder)
    found = run([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith("note: ")]
    assert found == code, printed.err
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("utfproof: ")
    assert words in lines[0]
    assert content(folder) == before


# --- inputs ------------------------------------------------------------------------------------------------------

READS_HOST = {
    "decide": ["decide", "FILE", "-o", "c.json"],
    "refute-lower": ["refute-lower", "FILE", "-o", "c.json"],
    "embed": ["embed", "FILE", "target.safetensors", "-o", "o.safetensors"],
    "emulate": ["emulate", "FILE", "--target", "target.safetensors"],
    "export": ["export", "FILE", "E.safetensors", "-o", "m.py"],
}
READS_OTHER = {
    "embed a target": ["embed", "sparse", "FILE", "-o", "o.safetensors"],
    "emulate a target": ["emulate", "sparse", "--target", "FILE"],
    "emulate with E": ["emulate", "sparse", "--target", "target.safetensors", "--embedding", "FILE"],
    "export E": ["export", "sparse", "FILE", "-o", "m.py"],
    "embed a model": ["embed", "sparse", "FILE", "-o", "o.safetensors"],
}
NO_TENSORS = {
    "absent.safetensors": "cannot read absent.safetensors: No such file",
    "folder.safetensors": "no regular file",
    "short.safetensors": "not a safetensors file",
    "header.safetensors": "not a safetensors file",
    "empty.safetensors": "not a safetensors file",
    "garbage.safetensors": "not a safetensors file",
    "vast.safetensors": "not a safetensors file",
}
BAD_HOSTS = {
    "nan.safetensors": "R_V[1, 0, 2, 3] is nan; weights must be finite",
    "inf.safetensors": "R_V[0, 1, 0, 0] is -inf; weights must be finite",
    "shape.safetensors": "expected [36, 36]",
    "axes.safetensors": "R_V has",
    "bool.safetensors": "R_V has type BOOL; floats or integers are expected",
    "missing.safetensors": "tensor R_V is missing",
    "extra.safetensors": "tensor bias is not understood",
}


@pytest.mark.parametrize("fault", NO_TENSORS)
@pytest.mark.parametrize("command", [*READS_HOST, *READS_OTHER])
def test_files_that_hold_no_tensors(place, capsys, command, fault):
    arguments = {**READS_HOST, **READS_OTHER}[command]
    refused(capsys, place, [fault if a == "FILE" else a for a in arguments], 2, NO_TENSORS[fault])


@pytest.mark.parametrize("fault", BAD_HOSTS)
@pytest.mark.parametrize("command", ["decide", "embed", "emulate"])
def test_hosts_that_are_none(place, capsys, command, fault):
    words = "R_V" if fault in ("shape.safetensors", "axes.safetensors") else BAD_HOSTS[fault]
    refused(capsys, place, [fault if a == "FILE" else a for a in READS_HOST[command]], 2, words)


DOCUMENTS = {
    "a grid that is absent": (["sweep", "no.toml"], 2, "cannot read no.toml"),
    "a grid of garbage": (["sweep", "garbage.toml"], 2, "not TOML"),
    "a grid left open": (["sweep", "open.toml"], 2, "not TOML"),
    "results that are a file": (["tables", "--results", "old.json"], 2, "is no folder"),
    "a run folder that is a file": (["train", "parentheses/sparse/attention", "-o", "old.json"], 2, "name a folder"),
    "a results folder that is a file": (
        ["train", "parentheses/sparse/attention", "--results", "old.json"],
        2,
        "name a folder",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_are_none(place, capsys, name):
    require_packages(DOCUMENTS[name][0])
    refused(capsys, place, *DOCUMENTS[name])


# --- outputs -----------------------------------------------------------------------------------------------------

WRITES = {
    "certify": ["certify", "tied", *SMALL, "-o", "OUT"],
    "decide": ["decide", "host.safetensors", "-o", "OUT"],
    "refute-lower": ["refute-lower", "host.safetensors", "-o", "OUT"],
    "build": ["build", "tied", *SMALL, "-o", "OUT"],
    "build target": ["build", "target", *SMALL, "-o", "OUT"],
    "embed": ["embed", "sparse", "target.safetensors", "-o", "OUT"],
    "embed --minimize": ["embed", "least.safetensors", "target.safetensors", "--minimize", "-o", "OUT"],
    "export": ["export", "sparse", "E.safetensors", "-o", "OUT"],
    "enclose": ["enclose", "tied", *SMALL, "--digits", 5, "--context", 2, "-o", "OUT"],
    "search numerical": ["search", "numerical", "-H", 2, "-L", 2, "--m", 2, "-o", "OUT"],
    "search exhaustive": ["search", "exhaustive", "-H", 2, "-L", 2, "--m", 2, "-o", "OUT"],
    "bench all": ["bench", "all", "-o", "OUT"],
    "verify --html": ["verify", "--html", "OUT"],
    "verify --junit": ["verify", "--junit", "OUT"],
    "verify -o": ["verify", "-o", "OUT"],
}
NO_PLACE = {
    "no such folder": ("no/c.json", "folder no does not exist"),
    "a folder": ("folder.json", "it is a folder; name a file"),
    "a name too long": ("x" * 300 + ".json", "File name too long"),
}


@pytest.mark.parametrize("fault", NO_PLACE)
@pytest.mark.parametrize("command", WRITES)
def test_outputs_that_cannot_be_written_are_refused_first(place, capsys, command, fault):
    """Before any work: none of these lasts."""
    path, words = NO_PLACE[fault]
    began = time.process_time()
    refused(capsys, place, [path if a == "OUT" else a for a in WRITES[command]], 2, words)
    assert time.process_time() - began < 10


@pytest.mark.parametrize("path", ["/dev/null", "", "folder.safetensors/../folder.safetensors"])
def test_devices_and_no_name(place, capsys, path):
    refused(capsys, place, ["build", "tied", *SMALL, "-o", path], 2, "name a file")


NAMELESS = {
    "a run": ["train", "parentheses/sparse/attention", "--steps", 1, "-o", ""],
    "results": ["tables", "--results", ""],
    "a sweep": ["sweep", "sweep.toml", "-o", ""],
    "certificates": ["frontier", "-H", 1, "-L", 1, "--certificates", ""],
}


@pytest.mark.parametrize("arguments", NAMELESS.values(), ids=NAMELESS)
def test_a_variable_that_is_not_set_is_not_the_working_directory(place, capsys, arguments):
    refused(capsys, place, arguments, 2, "an empty name; name a file or a folder")


PICTURES = {
    "frontier": ["frontier", "--plot", "OUT"],
}


@pytest.mark.parametrize("command", PICTURES)
@pytest.mark.parametrize(
    ("path", "words"), [("p.xyz", "choose a name that ends in"), ("no/p.png", "folder no does not")]
)
def test_pictures_are_refused_first(place, capsys, command, path, words):
    pytest.importorskip("matplotlib")
    refused(capsys, place, [path if a == "OUT" else a for a in PICTURES[command]], 2, words)


@contextmanager
def small_files():
    """No file may grow beyond 64 bytes, as on a full disk: around the command alone, for pytest may write to a file itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = {
    "certify": ["certify", "random", *SMALL, "-o", "old.json"],
    "decide": ["decide", "tied.safetensors", "-o", "old.json"],
    "build": ["build", "tied", *SMALL, "-o", "old.safetensors"],
    "embed": ["embed", "sparse", "target.safetensors", "-o", "old.json"],
    "embed --minimize": ["embed", "least.safetensors", "target.safetensors", "--minimize", "-o", "old.json"],
    "export": ["export", "sparse", "E.safetensors", "-o", "m.py"],
    "frontier": ["frontier", "-H", 1, "-L", 2, "--plot", "p.svg"],
    "search": ["search", "exhaustive", "-H", 1, "-L", 1, "--m", 1, "-o", "old.json"],
}


@pytest.mark.parametrize("command", FULL)
def test_a_full_disk(place, capsys, command):
    """What was there stays, and of several files none appears."""
    require_packages(FULL[command])
    with small_files():
        refused(capsys, place, FULL[command], 74, "File too large")


def test_a_full_file_system(place):
    """A file system of 64 KiB of its own, where that may be mounted."""
    (place / "small").mkdir()
    script = (
        "mount -t tmpfs -o size=64k none small && cp old.json small/host.safetensors && "
        '"$0" -m utfproof build random -H 2 -L 3 -d 4 --d-in 8 -o small/host.safetensors; echo code $?; ls -A small'
    )
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable]
    if (
        shutil.which("unshare") is None
        or shutil.which("mount") is None
        or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode
    ):
        pytest.skip("no file system may be mounted here")
    done = subprocess.run(command, capture_output=True, text=True, env=SUBPROCESS, check=False)
    if "code" not in done.stdout:
        pytest.skip("no file system may be mounted here")
    assert done.stdout.split() == ["code", "74", "host.safetensors"]
    assert done.stderr == "utfproof: cannot write small/host.safetensors: No space left on device\n"


@pytest.fixture
def nobody():
    """A folder outside of root's, and this process without root's rights, where it has them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "old.json").write_text("old")
    (folder / "own").mkdir()
    (folder / "own").chmod(0o777)
    (folder / "own" / "kept.json").write_text("kept")
    (folder / "own" / "kept.json").chmod(0o444)
    folder.chmod(0o555)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(before)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("new.json", "no permission in folder"),
        ("old.json", "may not be changed"),
        ("own/kept.json", "may not be changed"),
    ],
)
def test_no_permission(nobody, capsys, name, words):
    """A folder that may not be written to, and a file that may not be changed in one that may."""
    if name == "old.json" and os.access(nobody / name, os.W_OK, effective_ids=True):
        words = "no permission in folder"  # one's own file
    refused(capsys, nobody, ["build", "tied", *SMALL, "-o", str(nobody / name)], 2, words)
    with pytest.raises(MalformedInput, match="cannot write"):
        files.write_bytes(nobody / name, b"new")


def test_a_sweeps_folder_that_may_not_be_written(nobody):
    """It is there already, so making it is no trial."""
    with pytest.raises(MalformedInput, match="no permission"), Folder(nobody).opened("s", "c"):
        pass


# --- options -----------------------------------------------------------------------------------------------------

BILLION = "1000000000"
LONG = ["-H", "2", "-L", BILLION, "-d", "2", "--d-in", "3"]
CERTIFY = ["certify", "random", *SMALL, "-o", "c.json"]
SEARCH = ["search", "numerical", "-H", "2", "-L", "2", "--m", "2"]
OPTIONS = {
    # numbers beyond any machine, refused before anything is computed with them
    "a billion layers": (["certify", "tied", *LONG, "-o", "c.json"], 3, "more than 2^60 head words"),
    "a billion layers, dense": (["certify", "random", *LONG, "-o", "c.json"], 3, "more than 2^60 head words"),
    "a trillion heads": (
        ["certify", "sparse", "-H", BILLION + "000", *SMALL[2:], "-o", "c.json"],
        3,
        "choose a smaller",
    ),
    "a billion layers, one head": (
        ["build", "sparse", "-H", "1", *LONG[2:], "-o", "h.safetensors"],
        3,
        "2^60 head words or 2^20 layers",
    ),
    "a billion layers, emulated": (["emulate", "sparse", *LONG], 3, "choose a smaller shape"),
    "a billion layers of a looped host": (
        ["decide", "unlabelled.safetensors", "--layers", BILLION, "-o", "c.json"],
        3,
        "more than 2^60 head words",
    ),
    "the same by attention-matching": (
        ["decide", "unlabelled.safetensors", "--layers", BILLION, "-o", "c.json", "--notion", "attention-matching"],
        3,
        "more than 2^60 head words",
    ),
    "a search of a billion layers": (["search", "numerical", "-H", 2, "-L", BILLION, "--m", 2], 3, "2^60 head words"),
    "hosts of a billion layers": (["search", "exhaustive", "-H", 2, "-L", BILLION, "--m", 1], 3, "2^60 head words"),
    "an E of a trillion columns": (
        ["embed", "sparse", "target.safetensors", "-o", "o.safetensors", "--m", BILLION + "000"],
        3,
        "the limit is",
    ),
    "a frontier too wide": (["frontier", "-H", "1..64", "-L", "1..64"], 2, "at most 400 are shown"),
    # memory
    "no memory to certify": ([*CERTIFY, "--max-memory", "1"], 3, "the limit is 1 B"),
    "no memory to decide": (["decide", "host.safetensors", "-o", "c.json", "--max-memory", "1"], 3, "the limit is 1 B"),
    "no memory to embed": (
        ["embed", "sparse", "target.safetensors", "-o", "o.safetensors", "--max-memory", "1"],
        3,
        "1 B",
    ),
    "no memory to emulate": (["emulate", "sparse", *SMALL, "--max-memory", "1"], 3, "the limit is 1 B"),
    "no memory to search": ([*SEARCH, "--max-memory", "1"], 3, "the limit is 1 B"),
    "memory in words": ([*CERTIFY, "--max-memory", "lots"], 2, "is not a size"),
    # numbers that are none
    "minus one head": (
        ["certify", "tied", "-H", "-1", *SMALL[2:], "-o", "c.json"],
        2,
        "heads must be a positive integer",
    ),
    "half a layer": (["certify", "tied", "-H", "2", "-L", "1.5", *SMALL[4:], "-o", "c.json"], 2, "--layers"),
    "a negative seed": ([*CERTIFY, "--seed", "-1"], 2, "seed must be an integer from 0 to 18446744073709551615"),
    "a negative seed to search": ([*SEARCH, "--seed", "-1"], 2, "seed must be an integer"),
    "a negative seed to train": (
        ["train", "parentheses/sparse/attention", "--seed", "-1"],
        2,
        "seed must be an integer",
    ),
    "a tolerance that is none": (
        ["emulate", "sparse", *SMALL, "--tolerance", "nan"],
        2,
        "--tolerance must be positive",
    ),
    "no time": (["search", "exhaustive", "-H", 2, "-L", 2, "--m", 2, "--seconds", 0], 2, "--seconds must be positive"),
    "time that is none": (
        ["search", "exhaustive", "-H", 2, "-L", 2, "--m", 2, "--seconds", "nan"],
        2,
        "--seconds must be",
    ),
    "no restarts": ([*SEARCH, "--restarts", 0], 2, "restarts must be a positive integer"),
    "no workers": (["verify", "--workers", 0], 2, "--workers must be an integer from 1 to 1024"),
    "threads of training without end": (
        ["train", "parentheses/sparse/attention", "--threads", BILLION],
        2,
        "--threads must be an integer from 1 to 1024",
    ),
    "workers without end": (["verify", "--workers", BILLION], 2, "--workers must be an integer from 1 to 1024"),
    "no steps to train": (
        ["train", "parentheses/sparse/attention", "--steps", 0],
        2,
        "--steps must be a positive integer",
    ),
    "a grid of nothing": (["verify", "--grid", "H=0,L=1,d=1,d_in=1"], 2, "expected positive integers"),
    "heads in words": (["frontier", "-H", "a"], 2, "is no list of numbers"),
    # names that nobody knows
    "a construction": (
        ["certify", "sparce", *SMALL, "-o", "c.json"],
        2,
        "CONSTRUCTION 'sparce' is unknown; did you mean 'sparse'?",
    ),
    "a host": (["embed", "sparce", "target.safetensors", "-o", "o.safetensors"], 2, "neither a construction"),
    "a notion": (["decide", "host.safetensors", "-o", "c.json", "--notion", "full"], 2, "choose matching"),
    "an engine": (["emulate", "sparse", *SMALL, "--engine", "quantum"], 2, "choose m-wide, index-map"),
    "a preset": (["train", "nothing"], 2, "names are TASK/HOST/VARIANT"),
    "a preset of too many layers": (
        ["train", "parentheses/sparse/attention", "--set", "layers=1000000000"],
        3,
        "more than 2^60 head words",
    ),
    "a claim": (["verify", "thm:nothing"], 2, "no claim is called"),
    "a command": (["nothing"], 2, "No such command"),
    "a command of a group": (["bench", "nothing"], 2, "No such command"),
    "an option": ([*CERTIFY, "--nothing"], 2, "No such option"),
    # options that contradict each other, or would change nothing
    "--seed of a fixed host": (["certify", "sparse", *SMALL, "--seed", "-1", "-o", "c.json"], 2, "seed must be"),
    "--dtype of a fixed host": (["certify", "tied", *SMALL, "--dtype", "float3", "-o", "c.json"], 2, "dtype 'float3'"),
    "--seed of a fixed file": (["build", "tied", *SMALL, "--seed", "-2", "-o", "h.safetensors"], 2, "seed must be"),
    "--law of a fixed host": (["emulate", "sparse", *SMALL, "--law", "sign"], 2, "law 'sign' is unknown"),
    "--trials of one target": (
        ["emulate", "sparse", "--target", "target.safetensors", "--trials", "3"],
        2,
        "--trials, --width",
    ),
    "--width of one target": (["emulate", "sparse", "--target", "target.safetensors", "--width", "3"], 2, "--width"),
    "--list and --html": (
        ["verify", "--list", "--html", "c.html"],
        2,
        "--html would change nothing: --list decides nothing",
    ),
    "--list and how it is decided": (
        ["verify", "--list", "--grid", "H=1,L=1,d=1,d_in=1"],
        2,
        "--grid would change nothing: --list decides nothing",
    ),
    "an input as output": (["embed", "sparse", "target.safetensors", "-o", "target.safetensors"], 2, "would overwrite"),
    "an E of another host": (
        ["export", "sparse", "narrow.safetensors", "-o", "m.py"],
        2,
        "this host needs [3, 36]",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(place, capsys, name):
    require_packages(OPTIONS[name][0])
    began = time.process_time()
    refused(capsys, place, *OPTIONS[name])
    assert time.process_time() - began < 10
