"""Certificates as files and folders: what is no file, what cannot be read, what changes meanwhile, pipes, interrupts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import corpus
import pytest
from corpus import CORPUS, canonical
from judges import verdicts_below

from utfproof.certificates import checker, prover
from utfproof.errors import Undecided
from utfproof.shapes import Shape

MODULE = [sys.executable, "-m", "utfproof.certificates.checker"]


def run_checker(*arguments, **options):
    return subprocess.run(
        [*MODULE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600, **options
    )


# --- files and folders -----------------------------------------------------------------------------------------------


def some(folder):
    return next(path for path in sorted((CORPUS / folder).glob("*.json")) if "sidecar" not in path.name)


@pytest.mark.parametrize(("folders", "limit", "code"), [
    ("valid", False, 0), ("valid invalid", False, 1), ("valid malformed", False, 2), ("valid", True, 3),
    ("malformed invalid", False, 1), ("valid malformed", True, 2), ("valid invalid malformed", True, 1),
    ("invalid", True, 1),
])  # fmt: skip
def test_worst_verdict_decides_the_exit_status(folders, limit, code, tmp_path, capsys):
    for i, folder in enumerate(folders.split()):
        inner = tmp_path / f"{9 - i}"
        inner.mkdir()
        (inner / "case.json").write_bytes(some(folder).read_bytes())
        (inner / "notes.txt").write_bytes(b"not a certificate")
    if limit:
        with (tmp_path / "big.json").open("wb") as file:
            file.truncate(checker.MAX_JSON + 1)
    assert checker.main([str(tmp_path)]) == code
    out, err = capsys.readouterr()
    said = [line for line in out.splitlines() if ": " in line and not line.startswith("skipped")]
    assert len(said) == len(folders.split()) + limit
    assert err == ""
    assert checker.main(["--json", str(tmp_path)]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    assert len(found["results"]) == len(folders.split()) + limit


def test_what_is_not_a_file_is_malformed(tmp_path):
    valid = some("valid").read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "valid.json").write_bytes(valid)
    os.mkfifo(tmp_path / "fifo.json")
    cases = [tmp_path / "missing.json", tmp_path / "fifo.json", tmp_path / "dangling.json", tmp_path / "loop.json",
             tmp_path / "valid.json" / "inner.json", tmp_path / ("x" * 300 + ".json"), Path("/" + "x/" * 3000),
             Path("/dev/null"), Path("/dev/zero"), tmp_path / "nul\0.json"]  # fmt: skip
    for path in cases:
        verdict = checker.check_file(path)
        assert verdict.code == 2, (path, verdict)
    verdict = checker.check_file(tmp_path / "empty")
    assert verdict.code == 2
    for folder in ("empty", "folder.json"):
        assert [v.code for _, v in verdicts_below([tmp_path / folder])] == [2]
    done = run_checker(*cases[:-1], "", tmp_path / "empty")
    assert done.returncode == 2
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(cases) + 1
    done = run_checker(tmp_path)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 4
    assert (done.stdout.count("MALFORMED"), done.stdout.count("MISSING")) == (2, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_is_malformed(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(some("valid").read_bytes())
    path.chmod(0)
    assert checker.check_file(path).code == 2
    inner = tmp_path / "inner"
    inner.mkdir(mode=0)
    try:
        assert {v.code for _, v in verdicts_below([inner])} == {2}
    finally:
        inner.chmod(0o700)


def test_loops_and_strange_names(tmp_path, monkeypatch):
    valid = some("valid").read_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "up.json").symlink_to(tmp_path)
    names = ["a.json", "new\nline.json", "esc\x1b[31m.json", "--json.json", "-.json", " .json", "ü.json", "x" * 250 + ".json",
             os.fsdecode(b"\xff\xfe.json"), "\u202e.json", ".json", "quote'\".json", "back\\slash.json", "\r.json"]  # fmt: skip
    for name in names:
        (tmp_path / "a" / name).write_bytes(valid)
    for name in ("A.JSON", "json", "b.json.txt", "b.jsonl"):
        (tmp_path / "a" / name).write_bytes(b"")
    done = run_checker(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(names) + 3  # two links, and the counts
    assert sum(line.startswith("skipped") for line in done.stdout.splitlines()) == 2
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert len(json.loads(run_checker("--json", tmp_path).stdout)["results"]) == len(names)
    monkeypatch.chdir(tmp_path / "a")
    for name in names:
        assert checker.check_file(name).code == 0
        assert checker.check_file(os.fsencode(name)).code == 0
    done = run_checker("--", "--json.json", "-.json", " .json")
    assert done.returncode == 0
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert {v.code for _, v in verdicts_below([tmp_path / "link"])} == {0}


def test_sidecar_is_looked_up_beside_the_certificate(tmp_path, monkeypatch):
    """Not in the working folder, not through a link; a plain relative file name works."""
    found = prover.certify("random", Shape(1, 1, 1, 1, 63), witness=True)  # M = 65: 4225 bytes in a sidecar
    document, ((digest, content),) = found.document, found.sidecars.items()
    path, beside = tmp_path / "here" / "a.json", tmp_path / "here" / f"{digest}.bin"
    elsewhere = tmp_path / f"{digest}.bin"
    path.parent.mkdir()
    path.write_bytes(canonical(document))
    elsewhere.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert checker.check_file(path).code == 2
    beside.symlink_to(elsewhere)
    assert checker.check_file(path).code == 2
    beside.unlink()
    beside.mkdir()
    assert checker.check_file(path).code == 2
    beside.rmdir()
    os.mkfifo(beside)
    assert checker.check_file(path).code == 2
    beside.unlink()
    os.link(elsewhere, beside)
    assert checker.check_file(path).code == 0
    monkeypatch.chdir(path.parent)
    assert checker.check_file("a.json").code == 0
    for position in (0, 1, 777, len(content) - 1):
        beside.unlink()
        beside.write_bytes(content[:position] + bytes([content[position] ^ 128]) + content[position + 1 :])
        assert checker.check_file("a.json").code == 2


def test_sidecar_that_changes_while_it_is_read(tmp_path, monkeypatch):
    """What is checked is what was hashed: the file is read once."""
    found = prover.certify("random", Shape(1, 1, 1, 1, 63), witness=True)  # M = 65: 4225 bytes in a sidecar
    document, ((digest, content),) = found.document, found.sidecars.items()
    (tmp_path / "a.json").write_bytes(canonical(document))
    sidecar = tmp_path / f"{digest}.bin"
    sidecar.write_bytes(content)
    opened = []
    real = os.open

    def counting(path, *arguments, **options):
        if str(path).endswith(".bin"):
            opened.append(path)
            sidecar.write_bytes(bytes(len(content)))  # between the look at its size and the reading
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counting)
    assert checker.check_file(tmp_path / "a.json").code == 2
    assert len(opened) == 1


@pytest.mark.full
def test_report_of_a_closed_pipe_and_of_no_output(tmp_path):
    command = [*MODULE, str(CORPUS / "valid")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 141
    assert error == b""
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    if Path("/dev/full").exists():
        done = subprocess.run(
            ["sh", "-c", '"$@" >/dev/full', "sh", *command], capture_output=True, check=False, timeout=600
        )
        assert done.returncode == 141
        assert len(done.stderr.splitlines()) == 1
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_interrupt(options, tmp_path):
    """Ctrl-C in the middle of a slow certificate: status 130 and one line."""
    (tmp_path / "a.json").write_bytes(some("valid").read_bytes())
    slow = corpus.document(
        "rank-modular", "random", (2, 3, 4, 8, 8), 1500, {"method": "recompute", "prime": 8388593}, rank=176
    )
    (tmp_path / "b.json").write_bytes(canonical(slow))
    code = "import sys; from utfproof.certificates import checker; print('ready', flush=True); sys.exit(checker.main())"
    with subprocess.Popen([sys.executable, "-c", code, *options, str(tmp_path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        if options:
            time.sleep(1)
        else:
            assert "checked" in process.stdout.readline()
            time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted\n"


def test_a_deep_folder_is_walked_without_recursion(tmp_path):
    folders = [tmp_path]
    try:
        for _ in range(1500):
            (folders[-1] / "a").mkdir()
            folders.append(folders[-1] / "a")
    except OSError:  # the file system's own limit on paths
        pass
    verdicts = verdicts_below([tmp_path])
    for folder in reversed(folders[1:]):  # removing the tree is recursive elsewhere, too
        folder.rmdir()
    assert len(folders) > 1000
    assert [verdict.code for _, verdict in verdicts] == [2]


def test_colliding_word_numbers_are_out_of_reach(tmp_path):
    """Words k (2^61 - 1) would share one hash value; shapes with so many words are over the limit."""
    document = corpus.document(
        "rank-deficient", "tied", (2, 2000, 1, 1, 1), 2**2003, corpus.kernel_evidence({0: 1, 1: -1})
    )
    begin = time.process_time()
    (tmp_path / "c.json").write_bytes(canonical(document))
    assert checker.check_file(tmp_path / "c.json").code == 3
    assert time.process_time() - begin < 2


def test_full_rank_without_a_kind_is_undecided():
    """shared-key at H = 1 and d = d_in: there m = M and R_all is a permutation, which no kind says of it."""
    with pytest.raises(Undecided, match="the certificate kind for full rank"):
        prover.certify("shared-key", Shape(1, 2, 2, 2), notion="matching")
