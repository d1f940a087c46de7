"""Certificates as files and folders: what is no file, what cannot be read, what changes meanwhile, pipes, interrupts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import make_corpus as corpus
import pytest
import sceptic
from make_corpus import CORPUS
from test_certificates import MODULE, OPTIONS, SMALL, run_checker

from utfproof.certificates import checker, prover
from utfproof.errors import Undecided
from utfproof.shapes import Shape

# --- limits ----------------------------------------------------------------------------------------------------------

GIANT = (4, 12, 64, 128, 128)
GIANT_M = sceptic.dimension(*GIANT)
ABSURD = {
    "random at the giant shape": corpus.document(
        "rank-modular", "random", GIANT, GIANT_M, {"method": "recompute", "prime": 3}, rank=GIANT_M
    ),
    "kernel of random at the giant shape": corpus.document(
        "rank-deficient", "random", GIANT, GIANT_M, corpus.kernel_evidence({0: 1, GIANT_M - 1: 1})
    ),
    "kernel of the giant tree": corpus.document(
        "rank-deficient", "sparse", GIANT, GIANT_M, corpus.kernel_evidence({0: 1, GIANT_M - 1: 1})
    ),
    "small M, giant m": corpus.document(
        "rank-modular", "random", SMALL, 10**9, {"method": "recompute", "prime": 3}, rank=6
    ),
    "10^9 heads": corpus.document(
        "rank-modular", "random", (10**9, 1, 1, 1, 1), 3 * 10**9, {"method": "recompute", "prime": 3}, rank=3 * 10**9
    ),
    "10^9 layers": corpus.document(
        "rank-modular",
        "random",
        (1, 10**9, 1, 1, 1),
        2 * 10**9 + 1,
        {"method": "recompute", "prime": 3},
        rank=2 * 10**9 + 1,
    ),
    "10^9 heads and layers": corpus.document(
        "rank-modular", "random", (10**9, 10**9, 1, 1, 1), 7, {"method": "recompute", "prime": 3}, rank=7
    ),
    "10^9 layers of sparse-front": corpus.document(
        "rank-deficient", "sparse-front", (1, 10**9, 1, 1, 1), 2 * 10**9 + 1, corpus.kernel_evidence({0: 1})
    ),
    "10^4000 layers": corpus.document(
        "rank-deficient",
        "tied",
        (1, 10**4000, 1, 1, 1),
        10**4001,
        corpus.kernel_evidence({10**4000: 1, 10**4000 + 7: 5}),
    ),
    "10^3000 heads": corpus.document(
        "rank-deficient", "tied", (10**3000, 1, 1, 1, 1), 10**3001, {"method": "dimension"}
    ),
    "linear test at the giant shape": corpus.linear("random", (4, 12, 128, 128, 128), 10**10),
    "tied kernel at the giant shape": corpus.changed(
        corpus.document(
            "tied-kernel", "random", (*GIANT[:3], 128, 128), GIANT_M, {"basis": [[[0, 1]]], "prime": 3}, rank=GIANT_M - 1
        ), "claim", "targets", "all tied",
    ),
    "tied kernel of 2^50 words": corpus.changed(
        corpus.document("tied-kernel", "random", (2, 50, 1, 1, 1), 2**60, {"basis": [[[0, 1]]], "prime": 3},
                        rank=sceptic.dimension(2, 50, 1, 1, 1) - 1), "claim", "targets", "all tied",
    ),
    "tied target at the giant shape": corpus.changed(
        corpus.document("rank-deficient", "random", GIANT, 10**9, {
            "method": "tied-target", "row": 0, "target": [["W_Q", 0, 0, 0, 0, 1]], "z": [[0, 1]]}),
        "claim", "targets", "all tied",
    ),
    "tied target of 10^9 layers": corpus.changed(
        corpus.document("rank-deficient", "printed-looped", (1, 10**9, 1, 1, 1), 10**10, {
            "method": "tied-target", "row": 0, "target": [["W_Q", 0, 0, 0, 0, 1]], "z": [[0, 1]]}),
        "claim", "targets", "all tied",
    ),
    "linear test of 10^9 heads": corpus.linear("random", (10**9, 1, 1, 1, 1), 3 * 10**9),
    "identity of 10^9 layers": corpus.statement(
        "identity", "attention-matching", {"construction": "shared-key"}, (1, 10**9, 1, 1, 1), 10**10, {"E": [[0, []]]}
    ),
    "identity of 2^50 words": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "register"},
        (2, 50, 1, 1, 1),
        2**50,
        {"E": [[0, []]]},
        free="E",
    ),
    "identity of 2^50 words, two-sided": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "two-sided"},
        (2, 50, 1, 1, 1),
        2**25,
        {"E": [[0, []]], "U": [[0, []]]},
        free="E and U",
    ),
    "counts of 10^9 heads": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "counting"},
        (10**9, 1, 1, 1, 1),
        10**9,
        {"E": [[0, []]]},
        targets="all tied",
        free="E",
    ),
    "counts of 10^9 layers": corpus.statement(
        "identity",
        "matching",
        {"construction": "commuting-trie"},
        (1, 10**9, 1, 1, 1),
        10**10,
        {"E": [[0, []]]},
        targets="all tied",
    ),
    "span at the giant shape": corpus.span((4, 12, 64, 128), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "span of 2^58 words": corpus.span((2, 58, 1, 1), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "span of 10^9 layers": corpus.span((1, 10**9, 1, 1), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "null vector of 10^9 layers": corpus.null_vector([[[[1]]]], True, (1, 10**9, 1, 1, 1), {0: 1}),
    "10^9 wide": corpus.document("rank-deficient", "random", (1, 1, 1, 1, 10**9), 2, corpus.kernel_evidence({3: 1})),
}  # fmt: skip


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
        (tmp_path / "big.json").open("wb").truncate(checker.MAX_JSON + 1)
    assert checker.main([str(tmp_path)]) == code
    out, err = capsys.readouterr()
    said = [line for line in out.splitlines() if not line.startswith("skipped")]
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
        verdict = checker.check_file(path, OPTIONS)
        assert verdict.code == 2, (path, verdict)
        assert "broke off" not in verdict.message
    verdict = checker.check_file(tmp_path / "empty", OPTIONS)
    assert verdict.code == 2
    for folder in ("empty", "folder.json"):
        assert [v.code for _, v in checker.check_paths([tmp_path / folder], OPTIONS)] == [2]
    done = run_checker(*cases[:-1], "", tmp_path / "empty")
    assert done.returncode == 2
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(cases) + 1
    done = run_checker(tmp_path)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.count("MALFORMED") == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_is_malformed(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(some("valid").read_bytes())
    path.chmod(0)
    assert checker.check_file(path, OPTIONS).code == 2
    inner = tmp_path / "inner"
    inner.mkdir(mode=0)
    try:
        assert {v.code for _, v in checker.check_paths([inner], OPTIONS)} == {2}
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
    assert len(done.stdout.splitlines()) == len(names) + 3  # two links and a line for the other endings
    assert sum(line.startswith("skipped") for line in done.stdout.splitlines()) == 3
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert len(json.loads(run_checker("--json", tmp_path).stdout)["results"]) == len(names)
    monkeypatch.chdir(tmp_path / "a")
    for name in names:
        assert checker.check_file(name, OPTIONS).code == 0
        assert checker.check_file(os.fsencode(name), OPTIONS).code == 0
    done = run_checker("--", "--json.json", "-.json", " .json")
    assert done.returncode == 0
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert {v.code for _, v in checker.check_paths([tmp_path / "link"], OPTIONS)} == {0}


def test_sidecar_is_looked_up_beside_the_certificate(tmp_path, monkeypatch):
    """Not in the working folder, not through a link; a plain relative file name works."""
    document, contents = corpus.proved("sparse", corpus.BIG)
    digest, content = next(iter(contents.items()))
    path, beside = tmp_path / "here" / "a.json", tmp_path / "here" / f"{digest}.bin"
    elsewhere = tmp_path / f"{digest}.bin"
    path.parent.mkdir()
    path.write_bytes(sceptic.canonical(document))
    elsewhere.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert checker.check_file(path, OPTIONS).code == 2
    beside.symlink_to(elsewhere)
    assert checker.check_file(path, OPTIONS).code == 2
    beside.unlink()
    beside.mkdir()
    assert checker.check_file(path, OPTIONS).code == 2
    beside.rmdir()
    os.mkfifo(beside)
    assert checker.check_file(path, OPTIONS).code == 2
    beside.unlink()
    os.link(elsewhere, beside)
    assert checker.check_file(path, OPTIONS).code == 0
    monkeypatch.chdir(path.parent)
    assert checker.check_file("a.json", OPTIONS).code == 0
    for position in (0, 1, 7777, len(content) - 1):
        beside.unlink()
        beside.write_bytes(content[:position] + bytes([content[position] ^ 128]) + content[position + 1 :])
        assert checker.check_file("a.json", OPTIONS).code == 2


def test_sidecar_that_changes_while_it_is_read(tmp_path, monkeypatch):
    """What is checked is what was hashed: the file is read once."""
    document, contents = corpus.proved("sparse", corpus.BIG)
    digest, content = next(iter(contents.items()))
    (tmp_path / "a.json").write_bytes(sceptic.canonical(document))
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
    assert checker.check_file(tmp_path / "a.json", OPTIONS).code == 2
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
    (tmp_path / "b.json").write_bytes(sceptic.canonical(slow))
    code = "import sys; from utfproof.certificates import checker; print('ready', flush=True); sys.exit(checker.main())"
    with subprocess.Popen([sys.executable, "-c", code, *options, str(tmp_path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        if options:
            time.sleep(1)
        else:
            assert "valid" in process.stdout.readline()
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
    verdicts = checker.check_paths([tmp_path], OPTIONS)
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
    (tmp_path / "c.json").write_bytes(sceptic.canonical(document))
    assert checker.check_file(tmp_path / "c.json", OPTIONS).code == 3
    assert time.process_time() - begin < 2


def test_full_rank_without_a_kind_is_undecided():
    """shared-key at H = 1 and d = d_in: there m = M and R_all is a permutation, which no kind says of it."""
    with pytest.raises(Undecided, match="universal by matching here, but the certificate kind"):
        prover.certify("shared-key", Shape(1, 2, 2, 2), notion="matching")
