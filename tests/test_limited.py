"""`check` under the system's limits: what is too large or too long is over a limit, and the rest is still judged."""

import json
import os
import signal
import subprocess
import sys

import pytest
from corpus import CORPUS, canonical

from utfproof.certificates import checker
from utfproof.certificates.checking import Judge
from utfproof.cli.app import run

GOOD = CORPUS / "valid" / "permutation-sparse-front-h1-l1-d1-in1-out1.json"


def counting(heads, m):
    """288 bytes that make the checker follow C(H + 1, 2) tuples of counts."""
    shape = {"heads": heads, "layers": 2, "head_dim": 1, "d_in": 1, "d_out": 1, "m": m}
    claim = {"free": "E", "host": {"construction": "counting"}, "notion": "shared attention", "targets": "all tied"}
    evidence = {}
    named = {"format": "utfproof-certificate", "kind": "identity", "version": 2}
    return {**named, "shape": shape, "claim": claim | {"verdict": "universal"}, "evidence": evidence}


@pytest.fixture
def folder(tmp_path):
    """A certificate that needs far more than the limits below, between two that need nothing."""
    for name in ("a", "c"):
        (tmp_path / f"{name}.json").write_bytes(GOOD.read_bytes())
    (tmp_path / "b.json").write_bytes(canonical(counting(3000, 4501500)))
    return tmp_path


def codes(limited, folder):
    return [limited(str(path), True).code for path in sorted(folder.glob("*.json"))]


@pytest.mark.full
def test_time_is_limited(folder):
    with Judge(checker.Options(), 2**30, 1) as limited:
        assert codes(limited, folder) == [0, 3, 0]


@pytest.mark.full
def test_memory_is_limited_by_the_system(folder):
    (folder / "b.json").write_bytes(canonical(counting(1000, 500500)))
    with Judge(checker.Options(), 2**27, 60) as limited:
        assert codes(limited, folder) == [0, 3, 0]
        assert "134217728 bytes" in limited(str(folder / "b.json"), True).message


def test_a_check_that_dies_gives_no_verdict(folder):
    with Judge(checker.Options(), 2**30, 60) as limited:
        assert limited(str(GOOD), False).code == 0
        for number, code in ((signal.SIGSEGV, checker.INTERNAL), (signal.SIGKILL, checker.LIMIT)):
            os.kill(limited.child.pid, number)
            limited.child.wait()
            assert limited(str(GOOD), False).code == code
            assert limited(str(GOOD), False).code == 0  # in a new process


def test_an_exception_in_a_check_is_no_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checker.Permutation, "check", lambda self: 1 / 0)
    assert checker.main([str(GOOD)]) == 70
    assert capsys.readouterr().out.startswith(f"ERROR     {GOOD}: no verdict, the check broke off: ZeroDivisionError")
    (tmp_path / "b.json").write_bytes(b"{}")
    assert checker.main([str(GOOD), str(tmp_path / "b.json")]) == 70  # before malformed ones


def test_a_folder_of_other_json_is_passed_over(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"vocab_size": 1.5}')
    (tmp_path / "list.json").write_text("[]")
    assert checker.main([str(tmp_path)]) == 2  # nothing there is a certificate
    assert "a folder without certificates" in capsys.readouterr().out
    (tmp_path / "a.json").write_bytes(GOOD.read_bytes())
    assert checker.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("skipped") == 2
    assert f"skipped   {tmp_path / 'config.json'}: JSON without the format utfproof-certificate" in said
    (tmp_path / "half.json").write_bytes(GOOD.read_bytes()[:-1])
    assert checker.main([str(tmp_path)]) == 2  # this may have been one
    assert checker.main([str(tmp_path / "config.json")]) == 2  # it was named


def command(*words):
    done = subprocess.run([sys.executable, "-m", "utfproof", "check", *map(str, words)], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("option", [["--max-memory", "0"], ["--max-memory", "-1"], ["--max-memory", "4X"],
                                    ["--max-seconds", "0"], ["--max-seconds", "nan"], ["--max-seconds", "٤"]])  # fmt: skip
def test_wrong_limits_are_refused(option):
    assert run(["check", *option, str(GOOD)]) == 2


@pytest.mark.full
def test_the_command_reports_limits(folder):
    done = command("--json", "--max-seconds", "1", folder)
    assert done.returncode == 3
    assert [row["status"] for row in json.loads(done.stdout)["results"]] == ["checked", "limit", "checked"]
