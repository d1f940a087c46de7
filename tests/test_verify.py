"""`utfproof verify` as a user meets it: selection, outputs, exit codes, bad input, Ctrl-C."""

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import fault_injection
import pytest
from rich.console import Console

from utfproof.claims.registry import all_claims
from utfproof.cli.app import run
from utfproof.reporting.table import print_summary

FEW = ["intro:sparse", "tab:hyperparameters"]


def verify(*arguments, **options):
    command = [sys.executable, "-m", "utfproof", "verify", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200, **options)


def test_a_selection_prints_a_table(capsys):
    assert run(["verify", *FEW, "--workers", "1"]) == 0
    printed = capsys.readouterr()
    for name in ("intro:sparse/heads", "intro:sparse/single-head", "tab:hyperparameters/shapes"):
        assert name in printed.out.replace("\n", "")
    assert printed.err == ""


@pytest.mark.full
def test_many_claims_are_a_screenful_whatever_the_width(capsys, monkeypatch):
    """Verdicts by section, and by name what fails or is open; up to five claims are shown with statements."""
    printed = {}
    for width in ("80", "140"):
        monkeypatch.setenv("COLUMNS", width)
        assert run(["verify", "thm:designed-R*", "--workers", "1"]) == 0
        printed[width] = capsys.readouterr().out
    assert printed["80"] == printed["140"]
    lines = printed["80"].splitlines()
    assert len(lines) < 25
    assert max(map(len, lines)) < 80
    fails = [entry.id for entry in all_claims().values() if entry.id.startswith("thm:designed-R")
             and entry.verdict.value == "fails as printed"]  # fmt: skip
    assert len(fails) > 2
    assert all(any(name in line for line in lines) for name in fails)
    assert "For H > 1" not in printed["80"]


def test_a_summary_names_what_is_broken_and_how_to_see_the_rest():
    def entry(name, verdict, **more):
        blank = {key: [] for key in ("theorems", "problems", "evidence")} | {"section": "S", "counterexample": None}
        return (
            dict.fromkeys(("cause", "grid_note", "basis"))
            | blank
            | {"id": name, "verdict": verdict, "recorded": verdict, "agrees": True}
            | more
        )

    claims = [entry("a", "holds"), entry("b", "fails as printed", counterexample="(1,1,1,1)"), entry("c", "open")]
    claims += [entry(name, "fails as printed", cause="one slip") for name in ("e", "f")]
    claims.append(entry("d", "holds", recorded="open", problems=["the verdict is 'holds', recorded is 'open'"]))
    console = Console(record=True, width=80, file=io.StringIO())
    print_summary({"grid": "g", "holds": False, "claims": claims}, console)
    printed = console.export_text()
    for words in (
        "b  at (1,1,1,1)",
        "d: not as recorded",
        "6 claims: 2 holds, 3 fails as printed, 1 open (2 causes)",
        "  one slip\n",
        "--html",
    ):
        assert words in printed
    assert "1 NOT as recorded" in printed


def test_list_names_every_claim(capsys):
    assert run(["verify", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[18:].strip() for line in lines] == list(all_claims())


def test_json_on_standard_output_and_in_a_file(tmp_path, capsys):
    assert run(["verify", *FEW, "--json", "--workers", "1"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert run(["verify", *FEW, "-o", str(tmp_path / "out.json"), "--json", "--workers", "1"]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.json").read_text()
    second = json.loads((tmp_path / "out.json").read_text())

    def timeless(document):
        claims = [{**entry, "seconds": 0, "processor_seconds": 0} for entry in document["claims"]]
        return {**document, "seconds": 0, "claims": claims}

    assert timeless(first) == timeless(second)
    assert len(first["claims"]) == 3


@pytest.mark.full
def test_workers_give_the_same_document(capsys):
    documents = []
    for workers in ("1", "2", "3"):
        done = verify(*FEW, "--json", "--workers", workers)
        assert (done.returncode, done.stderr) == (0, "")
        document = json.loads(done.stdout)
        for entry in document["claims"]:
            del entry["seconds"], entry["processor_seconds"]
        documents.append((document["claims"], document["certificates"]))
    assert documents[0] == documents[1] == documents[2]


def test_junit_and_page(tmp_path):
    assert (
        run(["verify", *FEW, "--junit", str(tmp_path / "r.xml"), "--html", str(tmp_path / "p.html"), "--workers", "1"])
        == 0
    )
    root = ET.parse(tmp_path / "r.xml").getroot()
    assert len(list(root.iter("testcase"))) == 3
    assert not list(root.iter("failure"))
    page = (tmp_path / "p.html").read_text()
    assert "intro:sparse/heads" in page


def test_junit_skips_what_is_open_and_says_what_fails_as_printed(tmp_path):
    names = ["thm:random_looped_universal_transformer/open", "intro:near-perfect", "sec:experiments/guessing"]
    assert run(["verify", *names, "--junit", str(tmp_path / "r.xml"), "--workers", "1"]) == 0
    root = ET.parse(tmp_path / "r.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("3", "0", "1")
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases["thm:random_looped_universal_transformer/open"].find("skipped") is not None
    assert (
        cases["intro:near-perfect"].find("system-out").text.startswith("FAILS AS PRINTED (recorded: fails as printed)")
    )
    assert cases["sec:experiments/guessing"].find("system-out").text.startswith("HOLDS")


def test_certificates_are_left_and_check(tmp_path, capsys):
    assert run(["verify", "intro:sparse", "--certificates", str(tmp_path), "--workers", "1"]) == 0
    capsys.readouterr()
    assert run(["check", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("*.json"))) > 10


def test_larger_grids(capsys):
    assert run(["verify", "intro:sparse", "--grid", "H=2..4,L=1..2,d=1+3,d_in=1..4", "--json", "--workers", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any("(4,2,3,3)" in found["at"] for entry in document["claims"] for found in entry["instances"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["thm:nonsense"], 2, "no claim is called 'thm:nonsense'"),
        (["--grid", "H=1"], 2, "lacks L, d, d_in"),
        (["--grid", "H=1..999999,L=1,d=1,d_in=1"], 3, "more than"),
        (["--workers", "0"], 2, "--workers must be an integer from 1 to 1024"),
        (["--html", "/nonexistent/folder/p.html"], 2, "folder /nonexistent/folder does not exist"),
        (["--json", "a.json"], 2, "a.json is no claim; --json prints on standard output, -o a.json writes a file"),
        (["--html", "x", "--junit", "x"], 2, "name one file"),
        (["--html", "x", "-o", "./x"], 2, "--output and --html name one file, x; give each output a file of its own"),
        (["--progress", "loud"], 2, "choose auto, plain, none"),
        (["--certificates", "/nonexistent/folder"], 2, "is not a folder"),
        (["--nonsense"], 2, "No such option"),
    ],
)
def test_bad_input_is_one_line(arguments, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["verify", *arguments]) == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_planted_fault_exits_1_and_is_in_every_report(tmp_path):
    """The whole command, in a process of its own, on code with a fault in it."""
    fault = fault_injection.tables()["the guessing level lowered"]
    script = tmp_path / "faulty.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(fault_injection.__file__).parent)!r})\n"
        "import fault_injection\n"
        "from utfproof.claims.registry import all_claims\n"
        "from utfproof.cli.app import run\n"
        "all_claims()\n"
        f"fault_injection.plant(fault_injection.tables()[{fault.name!r}])\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    command = [sys.executable, str(script), "verify", *fault.breaks, "intro:sparse", "--workers", "1"]
    command += ["--junit", str(tmp_path / "r.xml"), "--html", str(tmp_path / "p.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"utfproof: not as recorded: {', '.join(fault.breaks)}"
    failures = list(ET.parse(tmp_path / "r.xml").getroot().iter("failure"))
    assert len(failures) == len(fault.breaks)
    assert "recorded" in (tmp_path / "p.html").read_text()
