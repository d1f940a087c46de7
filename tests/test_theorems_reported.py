"""Theorems behind claims: what stands in their results, and what reports make of it."""

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console
from test_machine_proofs import library

from utfproof.claims import runner, theorems
from utfproof.claims.grid import Grid
from utfproof.claims.registry import all_claims
from utfproof.reporting.document import summary, theorem_lines
from utfproof.reporting.page import html_page
from utfproof.reporting.table import print_claims

CLAIMS = all_claims()
SMALL = Grid.parse("H=1,L=1,d=1,d_in=1")
NAME = "eq:multi-head-stacked"
THEOREM = "MatchingSystem.matchesP"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Make a library whose results say this of the theorem; `change` edits the document."""
    library(tmp_path, {"MatchingSystem": "(* *)\n"}, (THEOREM,))
    monkeypatch.setattr(theorems, "PROOFS", tmp_path)

    def write(assumptions=(), **change):
        entry = {"file": "theories/MatchingSystem.v", "statement": "s", "assumptions": list(assumptions)}
        document = {"sources": theorems.digest(tmp_path), "theorems": {THEOREM: entry}} | change
        (tmp_path / "build").mkdir(exist_ok=True)
        (tmp_path / "build" / "assumptions.json").write_text(json.dumps(document))
        theorems._results.cache_clear()
        return tmp_path

    yield write
    theorems._results.cache_clear()


def decided():
    return runner.decide(CLAIMS[NAME], SMALL).document


def test_closed(results):
    results()
    found = decided()
    assert found["theorems"] == [{"name": THEOREM, "status": theorems.CLOSED, "detail": ""}]
    assert found["agrees"]
    assert found["basis"] == "proved"
    assert theorem_lines(found) == [f"machine-checked: {THEOREM} (closed under the global context)"]


def test_not_built(tmp_path, monkeypatch):
    monkeypatch.setattr(theorems, "PROOFS", tmp_path / "nowhere")  # as where only the package is installed
    found = decided()
    assert found["agrees"]
    assert found["basis"] == "cited"
    assert theorem_lines(found) == [f"not built here: {THEOREM}"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"sources": "0" * 64}, theorems.ABSENT),
        ({"assumptions": ["classic : forall P : Prop, P \\/ ~ P"]}, theorems.OPEN),
        ({"assumptions": theorems.AXIOMS}, theorems.OPEN),
        ({"theorems": {}}, theorems.MISSING),
        ({"theorems": {THEOREM: {"statement": "", "assumptions": []}}}, theorems.MISSING),
        ({"theorems": {THEOREM: {"statement": "s"}}}, theorems.MISSING),
        ({"theorems": {THEOREM: {"statement": "s", "assumptions": "none"}}}, theorems.MISSING),
        ({"theorems": 3}, theorems.MISSING),
    ],
)
def test_a_link_is_never_believed(results, change, status):
    results(**change)
    found = decided()
    assert found["theorems"][0]["status"] == status
    assert found["agrees"] is (status == theorems.ABSENT)
    assert bool(found["problems"]) is (status != theorems.ABSENT)
    assert found["basis"] == "cited"
    assert "(closed under the global context)" not in " ".join(theorem_lines(found))


def test_the_declared_axioms_are_named_in_reports():
    found = {"theorems": [{"name": "Softmax.zero", "status": theorems.DECLARED, "detail": ""}], "theorems_lack": None}
    assert theorem_lines(found) == [f"machine-checked: Softmax.zero ({theorems.DECLARED})"]


def test_results_that_cannot_be_read(results):
    folder = results()
    (folder / "build" / "assumptions.json").write_text('{"sources": ')
    theorems._results.cache_clear()
    assert "unreadable results" in decided()["problems"][0]


def test_part_of_a_claim_is_said_so(results):
    results()
    found = decided() | {"theorems_lack": "the inequality"}
    assert theorem_lines(found)[0].startswith("machine-checked: in part (missing: the inequality): ")
    page = html_page({"grid": "", "holds": True, "claims": [found]})
    assert "closed under the global context" in page
    assert "the inequality" in page


def test_only_what_was_compiled_counts_as_proved(results):
    for sources, counts in ((None, "1 proved, 0 checked, 0 cited"), ("0", "0 proved, 0 checked, 1 cited")):
        results() if sources is None else results(sources=sources)
        document = {"grid": "g", "holds": True, "claims": [decided()]}
        assert "1 with theorems for all sizes (make proofs compiles them)" in "\n".join(summary(document))
        console = Console(record=True, width=100, file=io.StringIO())
        print_claims(document, console)
        assert counts in (shown := console.export_text())
        assert THEOREM in shown.replace("\n", "")


def test_an_axiom_makes_verify_exit_1_and_is_in_every_report(results, tmp_path):
    folder = results(assumptions=["classic : forall P : Prop, P \\/ ~ P"])
    script = tmp_path / "on_an_axiom.py"
    script.write_text(
        "import sys; from pathlib import Path\nfrom utfproof.claims import theorems\nfrom utfproof.cli.app import run\n"
        f"theorems.PROOFS = Path({str(folder)!r})\nsys.exit(run(sys.argv[1:]))\n"
    )
    command = [sys.executable, str(script), "verify", NAME, "--workers", "1", "-o", str(tmp_path / "r.json")]
    command += ["--junit", str(tmp_path / "r.xml"), "--html", str(tmp_path / "p.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"utfproof: not as recorded: {NAME}"
    message = f"theorem {THEOREM}: rests on axioms: classic"
    assert json.loads((tmp_path / "r.json").read_text())["claims"][0]["problems"][0].startswith(message)
    root = ET.parse(tmp_path / "r.xml").getroot()
    assert [failure.get("message", "").startswith(message) for failure in root.iter("failure")] == [True]
    properties = {entry.get("name"): entry.get("value") for entry in root.iter("property")}
    assert properties[f"theorem: {THEOREM}"] == theorems.OPEN
    assert message in (tmp_path / "p.html").read_text()
