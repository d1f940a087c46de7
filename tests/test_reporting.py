"""Reports of claims: JUnit XML, the terminal, and the page."""

import hashlib
import html
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
import rfc8785
from rich.console import Console

from utfproof.certificates.prover import certify
from utfproof.reporting import document
from utfproof.reporting.junit import junit_xml
from utfproof.reporting.mathematics import formulas
from utfproof.reporting.page import html_page
from utfproof.reporting.table import print_claims
from utfproof.shapes import Shape

SHAPE = Shape(2, 2, 1, 2)


# --- a made-up run ------------------------------------------------------------------------------------------


def claim(id, verdict="holds", notion="matching", **fields):
    return {
        "id": id,
        "section": "A Universal transformer",
        "place": "Appendix A",
        "statement": "At m = 2dS + d_in·H^L the prefix-tree host carries every untied target.",
        "category": "theorem",
        "notion": notion,
        "targets": "all untied",
        "scope": "H ≥ 1, every L, d, d_in",
        "recorded": verdict,
        "verdict": verdict,
        "agrees": True,
        "problems": [],
        "evidence": ["exact certificate"],
        "basis": "checked",
        "proof": None,
        "theorems": [],
        "theorems_lack": None,
        "sentence": "R_all is a permutation matrix, so every right-hand side is reached.",
        "figures": {"rank of R_all at (2,2,1,2)": 20, "M at (2,2,1,2)": 20},
        "smallest": "(2,1,1,2), m = 8",
        "counterexample": None,
        "instances": [],
        "seconds": 0.125,
        "processor_seconds": 0.125,
        **dict.fromkeys(("quotation", "free", "hosts", "attention", "cause", "grid_note")),
    } | fields


def certified(name, values):
    made = certify(name, Shape(*values))
    data = made.to_bytes()
    return hashlib.sha256(data).hexdigest()[:16], data, made.universal


def instance(at, outcome, detail, certificate=None, part="", routes=()):
    keys = ("at", "outcome", "detail", "certificate", "part", "routes")
    return dict(zip(keys, (at, outcome, detail, certificate, part, list(routes)), strict=True))


def sample():
    """A dozen claims, five certificates, one claim that is not as recorded."""
    certificates = {}

    def decided(name, values, part=""):
        digest, data, universal = certified(name, values)
        certificates[digest] = json.loads(data)
        return instance(str(values), "holds" if universal else "fails", f"{name}, rank computed", digest, part)

    small, middle = (2, 1, 1, 2), (2, 2, 1, 2)
    first = decided("sparse", small)
    claims = [
        claim("def:utf", category="definition", notion="functional", section="2 Preliminaries", evidence=["written proof"],
              proof="docs/proofs/definition.md", statement="A universal transformer is fixed up to its embedding E.",
              figures={}, targets=None, smallest=None),
        claim("lem:unroll", category="lemma", notion=None, section="2 Preliminaries", evidence=["symbolic identity"],
              statement="The output is Σ over head words w of P_w X M_w.",
              instances=[instance("(2,2,1,2)", "holds", "identity of 14 terms", routes=("SymPy", "plain integers"))]),
        claim("count:informal/H=1", verdict="fails as printed", category="count", section="2 Preliminaries",
              evidence=["exact arithmetic"], smallest=None, counterexample="(1,2,1,1)",
              statement="The informal bound m = O(H^L d) suffices for one head.", sentence="Depth enters: M = 2dL + d_in."),
        claim("thm:sparse_universal_transformer", instances=[first, decided("sparse", middle), decided("tied", small)]),
        claim("thm:designed-R/formal-row", verdict="holds after repair", counterexample="(2,1,1,2), m = 8",
              evidence=["exact certificate", "exhaustive on a grid"],
              statement="The formal recursion for R_V, read as acting on rows, gives a universal transformer.",
              instances=[decided("printed-tree-row", small), {**first, "part": "repair"}]),
        claim("thm:designed-R-looped", verdict="fails as printed", section="C, D Looped universal transformers",
              smallest=None, counterexample="(2,1,1,2), m = 6", instances=[decided("printed-looped", small)],
              figures={"m̄_loop at (2,1,1,2)": 6, "M at (2,1,1,2)": 8, "share": 0.75, "below": True}),
        claim("thm:looped_random-R", verdict="fails as printed", section="C, D Looped universal transformers",
              evidence=["exact arithmetic", "exhaustive on a grid"], smallest=None, counterexample="(2,2,1,1)"),
        claim("tab:summary/2-hop", category="table", notion=None, section="5 Experimental studies",
              evidence=["figures recorded from the paper"], smallest=None, targets=None),
        claim("thm:lower_bound_utf", notion="shared attention", section="E Lower bound", category="theorem",
              evidence=["written proof", "exact certificate"], proof="docs/proofs/null-vector.md"),
        claim("new:decision", category="new", section="New: matching", evidence=["written proof", "exhaustive on a grid"],
              proof="docs/proofs/decision.md"),
        claim("new:shared-key", category="new", notion="attention-matching", section="New: below M and lower bounds",
              evidence=["symbolic identity", "sampled float64"], scope="d ≥ d_in"),
        claim("new:least-m/functional", verdict="open", category="new", notion="functional", smallest=None,
              section="New: below M and lower bounds", evidence=["exhaustive on a grid"],
              instances=[instance("(2,2,1,2)", "open", "neither shown nor refuted")]),
        claim("new:tied-targets", verdict="holds", recorded="open", category="new", section="New: matching", agrees=False,
              problems=["the verdict is 'holds', recorded is 'open'", "figure 'rank' is 28, recorded is 32"]),
    ]  # fmt: skip
    claims.sort(key=lambda entry: entry["section"].startswith("New"))
    return {
        "grid": "H=1..3,L=1..3,d=1..2,d_in=1..3",
        "holds": False,
        "seconds": 31.25,
        "claims": claims,
        "certificates": dict(sorted(certificates.items())),
    }


HOSTILE = "</script><img src=x onerror=\"window.hit=1\"><svg onload='window.hit=1'>&amp;'\"`{{7*7}}\u202e\x00\x1b[31m\ud800𝓜 ∀ü"


def hostile():
    """Every text of every claim is an attack."""
    attacked = sample()
    for number, entry in enumerate(attacked["claims"]):
        for field in ("section", "place", "statement", "scope", "targets", "sentence", "category"):
            entry[field] = HOSTILE
        entry["id"] = f"{HOSTILE} {number}" if number else "x" * 3000
        entry["proof"] = "javascript:window.hit=1" if number % 2 else HOSTILE
        entry["evidence"], entry["problems"], entry["agrees"] = [HOSTILE], [HOSTILE], False
        entry["figures"] = {HOSTILE: HOSTILE}
        entry["theorems"] = [{"name": HOSTILE, "status": HOSTILE, "detail": HOSTILE}]
        entry["theorems_lack"] = HOSTILE
        entry["smallest"] = entry["counterexample"] = HOSTILE
        entry["instances"] = [
            instance(HOSTILE, HOSTILE, HOSTILE * 20, certificate=HOSTILE, part=HOSTILE, routes=[HOSTILE]),
            *entry["instances"],
        ]
    attacked["claims"][0]["notion"] = attacked["claims"][1]["verdict"] = attacked["grid"] = HOSTILE
    certificate = {"kind": HOSTILE.replace("\ud800", ""), "claim": {"verdict": "</pre><b>"}, "evidence": {}}
    data = rfc8785.dumps(certificate)
    attacked["certificates"][hashlib.sha256(data).hexdigest()[:16]] = certificate
    return attacked


@pytest.fixture(scope="module")
def run():
    return sample()


# --- the document -------------------------------------------------------------------------------------------


def test_the_summary_says_what_is_not_as_recorded(run):
    assert "1 NOT as recorded" in "\n".join(document.summary(run))
    assert "all as recorded" in "\n".join(document.summary({"holds": True, "claims": [claim("a")]}))


def test_plain_text():
    assert document.plain("a\x1b[31m\u202eb\r\nc\td\ud800é𝓜") == "a\ufffd[31m\ufffdb\nc\td\ufffdé𝓜"


# --- JUnit --------------------------------------------------------------------------------------------------


def test_junit(run):
    root = ET.fromstring(junit_xml(run))
    cases = root.findall("testsuite/testcase")
    assert [(c.get("classname"), c.get("name")) for c in cases] == [
        (entry["section"], entry["id"]) for members in document.sections_of(run).values() for entry in members
    ]
    assert (root.get("tests"), root.get("failures")) == ("13", "1")
    failed = [c for c in cases if c.find("failure") is not None]
    assert [c.get("name") for c in failed] == ["new:tied-targets"]
    assert failed[0].findtext("failure").splitlines() == run["claims"][-1]["problems"] or "28" in failed[0].findtext(
        "failure"
    )
    assert all(c.get("time") == "0.125" for c in cases)
    looped = next(c for c in cases if c.get("name") == "thm:designed-R-looped")
    properties = {p.get("name"): p.get("value") for p in looped.findall("properties/property")}
    assert properties["verdict"] == "fails as printed"
    assert properties["notion"] == "matching"
    assert properties["figure: m̄_loop at (2,1,1,2)"] == "6"
    assert properties["figure: below"] == "true"
    assert "share: 0.75" in looped.findtext("system-out")
    sums = [sum(int(s.get(name)) for s in root.findall("testsuite")) for name in ("tests", "failures")]
    assert sums == [13, 1]


def test_junit_is_well_formed_for_any_text():
    attacked = hostile()
    text = junit_xml(attacked)
    root = ET.fromstring(text.encode())
    assert len(root.findall("testsuite/testcase")) == len(attacked["claims"])
    assert document.plain(HOSTILE) in root.find("testsuite/testcase/system-out").text


# --- the terminal -------------------------------------------------------------------------------------------


def printed(run, width, color=None):
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=bool(color), color_system=color)
    print_claims(run, console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120, 160, 200])
def test_table_is_readable(run, width):
    text = printed(run, width)
    assert max(map(len, text.splitlines())) <= width
    squeezed = re.sub(r"\s+", "", text)
    for entry in run["claims"]:
        if width >= 80:
            assert entry["id"] in squeezed
    for problem in run["claims"][-1]["problems"]:
        assert re.sub(r"\s+", "", problem) in squeezed
    assert "BROKEN" in text
    below = text[text.index("new:tied-targets: not as recorded") :]
    assert "1 NOT as recorded" in re.sub(r"\s+", " ", below)


def test_table_at_80_columns_keeps_words_whole(run):
    text = printed(run, 80)
    for word in ("fails as printed", "holds after repair", "attention-matching", "shared attention"):
        assert word in text


def test_table_colours(run):
    text = printed(run, 160, color="standard")
    for style, word in (
        ("32", "holds"),
        ("36", "holds after repair"),
        ("33", "fails as"),
        ("35", "open"),
        ("1;31", "BROKEN"),
    ):
        assert f"\x1b[{style}m{word}" in text
    assert "BROKEN" not in printed({**run, "holds": True, "claims": run["claims"][:1]}, 160)


def test_table_never_reads_markup_or_control_characters():
    attacked = sample()
    attacked["claims"][0].update(id="[bold red]x[/]", statement="[link=http://a]b[/link]\x1b]0;title\x07")
    text = printed(attacked, 160, color="standard")
    assert "[bold red]x[/]" in text
    assert "[link=http://a]b[/link]" in text
    assert "\x1b]" not in text


# --- the page -----------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_has_every_claim_and_certificate(run):
    text = html_page(run)
    tags = Tags(text)
    entries = [a for a in tags.named("details") if a.get("class") == "claim"]
    assert [a["id"] for a in entries] == [c["id"] for s in document.sections_of(run).values() for c in s]
    assert {a["data-verdict"] for a in entries} == set(document.VERDICTS)
    for digest, content in run["certificates"].items():
        assert f'id="certificate-{digest}"' in text
        assert html.escape(rfc8785.dumps(content).decode(), quote=False).replace('"', "&#34;") in text
    assert '<b class="wrong">not as recorded</b>' in text
    assert {name["name"] for name in tags.named("select")} == {"verdict", "notion", "evidence"}


def test_texts_of_claims_are_never_markup():
    text = html_page(hostile())
    tags = Tags(text)
    assert not tags.named("img")
    assert not tags.named("svg")
    assert len(tags.named("script")) == 1
    assert not [name for _, attributes in tags.found for name in attributes if name.startswith("on")]
    assert not [a for a in tags.named("a") if not a["href"].startswith("#")]
    assert not re.search("[\u202e\x00\x1b\ud800]", text)


def test_the_page_loads_nothing(run):
    tags = Tags(html_page(run))
    assert not tags.named("link")
    assert not [a for _, a in tags.found if "src" in a]
    policy = next(a["content"] for a in tags.named("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_formulas_are_mathml(run):
    assert "<math><msup><mi>H</mi><mi>L</mi></msup></math>" in html_page(run)
    assert formulas("file_name R_V^{l,h} d_in").count("<math>") == 2
