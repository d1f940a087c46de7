"""The report as a command and in a browser; hostile text."""

import hashlib
import html
import json
import re
import shlex
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
import test_report
from test_report import RESULTS, at, changed, page_of, run
from test_reporting import HOSTILE, hostile
from test_reporting_page import WIDER

from utfproof.cli import app as command_line
from utfproof.reporting import report, report_charts, report_read
from utfproof.reporting.document import plain

folder = test_report.folder
parts = test_report.parts


# --- the command ---------------------------------------------------------------------------------------------


def test_command(folder, capsys):
    page = folder / "report.html"
    assert run(folder, "-o", page) == 0
    first = page.read_bytes()
    assert "not understood" in capsys.readouterr().out
    assert run(folder, "-o", page, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert page.read_bytes() == first, "the page is no part of itself"
    assert document["not_understood"] == ["notes.txt", "other.json"]
    assert document["files"]["verify"] == ["verify.json"]
    assert document["bytes"] == len(first)
    for wrong in ([folder, "-o", folder / "verify.json"], [folder, "-o", folder / "no" / "p.html"], ["-o", page]):
        assert run(*wrong) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_a_folder_it_says_what_to_run(capsys):
    import typer.main

    assert run() == 0
    said = capsys.readouterr().out
    group = typer.main.get_command(command_line.application())
    commands = [line.strip() for line in said.splitlines() if line.strip().startswith("utfproof ")]
    assert len(commands) == len(report.COMMANDS)
    for line in commands:
        arguments = shlex.split(line.split(" > ")[0])[1:]
        found, context = group, typer.Context(group)
        while hasattr(found, "get_command"):
            found = found.get_command(context, arguments.pop(0))
            assert found is not None, line
        found.make_context("x", arguments)  # every option exists
    assert run("--json") == 0
    assert len(json.loads(capsys.readouterr().out)["commands"]) == len(commands)


# --- hostile text --------------------------------------------------------------------------------------------


def hostile_folder(place):
    attacked = hostile()
    for number, entry in enumerate(attacked["claims"]):
        entry["id"] = f"{HOSTILE} {number}"
        entry["notion"] = HOSTILE
        entry["verdict"] = entry["recorded"] = "open"
    attacked["claims"][0]["id"] = "x" * 3000
    attacked["holds"], attacked["grid"] = False, HOSTILE
    # half of a character is refused (test_report_numbers.py)
    (place / "verify.json").write_text(json.dumps(attacked).replace(r"\ud800", ""))
    text = HOSTILE.replace("\ud800", "")

    def emulation(document):
        document["cases"][0].update(host=text, target_law=text)
        document["cases"][1]["comparisons"][0]["attention"] = text
        refused = next(case for case in document["cases"] if case["refused"])
        refused["refused"] = text

    def bench(document):
        document["processor"] = document["setting"]["device"] = text
        document["results"][0]["shape"] = document["results"][0]["contestants"][3]["name"] = text
        document["results"][0]["absent"] = {text: text}

    changed(place, "emulate-tables.json", emulation)
    changed(place, "bench-emulate-cpu.json", bench)
    changed(place, "bench-certify-cpu.json", at("results", 0, "shape", text))
    changed(place, "bench-train.json", at("results", 0, "task", text))
    changed(place, "frontier.json", at("entries", 0, "paper", "label", text))
    for path in (place / "training").glob("2-hop*"):
        changed(place / "training", path.name, at("device", text))
    (place / "<img src=x onerror=hit()>.txt").write_text("")
    (place / "odd.json").write_text(json.dumps({text: 1}))
    return place


class Elements(HTMLParser):
    """Names and attributes of all elements."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def markup_faults(text):
    found = Elements(text).found
    allowed = {"html", "head", "meta", "title", "style", "body", "a", "header", "main", "footer", "nav", "section", "div", "p",
               "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure",
               "figcaption", "details", "summary", "code", "strong", "span", "sub", "sup", "button", "script", "svg", "g",
               "path", "rect", "circle", "text", "tspan", "math", "msub", "msup", "msubsup", "mi", "mn", "mo", "mrow",
               "mtext"}  # fmt: skip
    faults = [tag for tag, _ in found if tag not in allowed]
    faults += [
        name for _, attrs in found for name in attrs if name.startswith("on") or name in ("src", "style", "srcset")
    ]
    faults += [value for _, attrs in found if not (value := attrs.get("href", "#")).startswith("#")]
    return faults + ["script"] * (sum(tag == "script" for tag, _ in found) - 1)


def test_hostile_text_stays_text(folder, monkeypatch):
    text = page_of(hostile_folder(folder))
    assert markup_faults(text) == []
    assert html.escape(plain(HOSTILE.replace("\ud800", "")), quote=True).split("^")[0] in text
    from utfproof.reporting import report_parts

    monkeypatch.setattr(report_parts, "prose", plain)
    assert markup_faults(page_of(folder))


def test_the_page_is_self_contained(folder):
    text = page_of(folder)
    assert markup_faults(text) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\")|@import|url\(", text) == []
    assert "default-src 'none'" in text
    ids = [attrs["id"] for _, attrs in Elements(text).found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {attrs["href"][1:] for tag, attrs in Elements(text).found if tag == "a"}
    assert targets <= set(ids)


# --- in a browser --------------------------------------------------------------------------------------------


TAB, ENTER = "\ue004", "\ue007"
PAPER = "return getComputedStyle(document.body).backgroundColor"
FOCUS = """
    const e = document.activeElement;
    return e === document.body ? '' : e.id || e.getAttribute('href') || e.tagName + ':' + e.textContent.trim().slice(0, 30)"""


def appended(monkeypatch, part, text):
    original = report.part
    monkeypatch.setattr(report, "part", lambda name: original(name) + (text if name == part else ""))


def test_the_console_is_free_of_errors(browser, show, folder, monkeypatch):
    show(page_of(folder))
    assert browser.console() == []
    assert browser.run("return document.querySelectorAll('main svg').length") > 40
    appended(monkeypatch, "report.js", "nothing();")
    show(page_of(folder))
    assert browser.console()


def test_keyboard(browser, show, folder):
    show(page_of(folder))
    links = [f"#_{name}" for name in ("claims", "frontier", "emulation", "bench", "training", "files")]
    met = []
    for _ in range(2 + len(links)):
        browser.press(TAB)
        met.append(browser.run(FOCUS))
    assert met == ["#_main", "_theme", *links]
    wanted = browser.run("""
        return [...document.querySelectorAll('main :is(a[href], button, summary, [tabindex="0"])')].filter(
          e => e.getClientRects().length && !e.closest('details:not([open]) > :not(summary)')).length""")
    orders = []
    for _ in range(wanted):
        browser.press(TAB)
        orders.append(
            browser.run("const b = document.activeElement.getBoundingClientRect(); return [b.top + scrollY, b.left]")
        )
    inside = "return document.activeElement.closest('main') !== null"
    assert browser.run(inside)
    assert len({tuple(place) for place in orders}) == wanted, "each one once"
    browser.press(TAB)
    assert not browser.run(inside), "and no others"
    browser.run("document.querySelector('figure summary').focus()")
    for expected in (True, False):
        browser.press(ENTER)
        assert browser.run("return document.activeElement.parentElement.open") is expected
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    unnamed = browser.run("""
        return [...document.querySelectorAll('button, summary, [role=region], svg[role=img]')].filter(e =>
          !e.textContent.trim() && !e.getAttribute('aria-label')).length""")
    assert unnamed == 0


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_sideways_scrolling(browser, show, folder, width, monkeypatch):
    unfolded = "document.querySelectorAll('details').forEach(d => { d.open = true; })"
    pages = [page_of(folder), page_of(hostile_folder(folder))]
    for text in pages:
        show(text, width=width)
        browser.run(unfolded)
        assert browser.run("return innerWidth") == width
        assert browser.run(WIDER) == []
    if width == 390:
        appended(monkeypatch, "report.css", "ul.state { min-width: 900px; }")
        show(page_of(folder), width=width)
        assert browser.run(WIDER)


def test_light_and_dark(browser, show, folder):
    text = page_of(folder)
    show(text)
    light = browser.run(PAPER)
    show(text, dark=True)
    dark = browser.run(PAPER)
    assert dark != light
    label = "return document.querySelector('#_theme').textContent"
    assert browser.run(label) == "Light page"
    browser.run("document.querySelector('#_theme').focus()")
    browser.press(ENTER)
    assert (browser.run(PAPER), browser.run(label)) == (light, "Dark page")
    browser.press(" ")
    assert (browser.run(PAPER), browser.run(label)) == (dark, "Light page")
    show(text)
    browser.run("document.querySelector('#_theme').click()")
    assert browser.run(PAPER) == dark
    browser.window(1280, dark=True)
    browser.window(1280)
    assert browser.run(PAPER) == dark, "what was chosen stays"
    assert browser.console() == []


CONTRAST = """
    const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(
      v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const over = (c) => (Math.max(light(c), paper) + .05) / (Math.min(light(c), paper) + .05);
    const text = [...document.querySelectorAll('body *')].map(e => over(getComputedStyle(e).color));
    const marks = [...document.querySelectorAll('svg :is(circle, path, rect)')].map(e => getComputedStyle(e).stroke).filter(
      c => c.startsWith('rgb('));
    return [Math.min(...text), Math.min(...marks.map(over))]"""


def test_colours_have_contrast(browser, show, folder, monkeypatch):
    """WCAG's 4.5 to 1 for texts and 3 to 1 for marks, light and dark, by the system's choice and by the button."""
    text = page_of(folder)
    for dark, press in ((False, False), (True, False), (False, True), (True, True)):
        show(text, dark=dark)
        if press:
            browser.run("document.querySelector('#_theme').click()")
        texts, marks = browser.run(CONTRAST)
        assert texts >= 4.5
        assert marks >= 3
    appended(monkeypatch, "report.css", "table.data td { color: #999; }")
    show(page_of(folder))
    assert browser.run(CONTRAST)[0] < 4.5


MISPLACED = """
    const found = [];
    for (const drawing of document.querySelectorAll('figure.plot svg[role=img]')) {
      const box = drawing.getBoundingClientRect();
      const texts = [...drawing.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);
      for (const [index, [said, t]] of texts.entries()) {
        if (t.left < box.left - 1 || t.right > box.right + 1 || t.top < box.top - 1 || t.bottom > box.bottom + 1)
          found.push('clipped: ' + said);
        for (const [other, o] of texts.slice(0, index))
          if (Math.min(t.right, o.right) - Math.max(t.left, o.left) > 1
              && Math.min(t.bottom, o.bottom) - Math.max(t.top, o.top) > 5)
            found.push(said + ' on ' + other);
      }
    }
    return found"""


def test_labels_are_whole_and_apart(browser, show, tmp_path, monkeypatch):
    """On the page of the project's own results: no label leaves its drawing, and none lies on another one."""
    show(page_of(RESULTS))
    assert browser.run(MISPLACED) == []
    monkeypatch.setattr(report_charts, "label_width", lambda label: 10.0)
    show(page_of(RESULTS))
    assert browser.run(MISPLACED)


HIDDEN = """
    return [...document.querySelectorAll('details > :not(summary) td')].filter(e => !e.checkVisibility(
      {contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true})).length"""


def test_paper(browser, show, folder):
    show(page_of(folder), dark=True)
    assert browser.run(HIDDEN) > 0
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run(HIDDEN) == 0
        assert browser.run("return getComputedStyle(document.querySelector('#_theme')).display") == "none"
        assert browser.run("return getComputedStyle(document.querySelector('td')).color") == "rgb(0, 0, 0)"
        clipped = browser.run("""
            return [...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length""")
        assert clipped == 0
    finally:
        browser.devtools("Emulation.setEmulatedMedia", media="")
    for _ in range(50):  # the page is told of it a little later
        if browser.run(HIDDEN):
            break
        time.sleep(0.05)
    assert browser.run(HIDDEN) > 0, "folded again afterwards"
    printed = browser.devtools("Page.printToPDF", printBackground=False)
    assert len(printed["data"]) > 100_000


def test_without_scripts(browser, show, folder):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(page_of(folder))
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        assert browser.run("return document.querySelector('#_theme').getClientRects().length") == 0
        assert browser.run("return document.querySelectorAll('main > section').length") == 6
        browser.devtools("Emulation.setEmulatedMedia", media="print")
        assert browser.run(HIDDEN) == 0
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        browser.devtools("Emulation.setEmulatedMedia", media="")


def test_hostile_text_is_inert(browser, show, folder, monkeypatch):
    from utfproof.reporting import report_parts

    place = hostile_folder(folder)
    show(page_of(place))
    faults = """
        return [window.hit ?? 0, document.querySelectorAll('img, iframe, object').length,
          document.querySelectorAll('script').length - 1]"""
    assert browser.run(faults) == [0, 0, 0]
    assert browser.console() == []
    monkeypatch.setattr(report_parts, "prose", plain)
    show(page_of(place))
    hit, *others = browser.run(faults)
    assert hit == 0, "the policy is the second line"
    assert any(others)


def test_formulas_are_drawn_by_the_browser_itself(show, browser):
    """Indices stand below the line of their base and exponents above it, smaller than it; nothing is loaded."""
    from utfproof.reporting.mathematics import formulas

    css = (Path(report.__file__).parent / "report.css").read_text()
    show(f"<!doctype html><meta charset=utf-8><style>{css}</style><p>{formulas('x R_V^{l,h} M_w H^L (a+b)_h')}</p>")
    where = browser.run(
        "return [...document.querySelectorAll('msub, msup, msubsup')].map(e => [e.localName,"
        " ...[...e.children].map(c => { const r = c.getBoundingClientRect(); return [r.top, r.bottom]; })])"
    )
    assert [name for name, *_ in where] == ["msubsup", "msub", "msup", "msub"]
    for name, base, *scripts in where:
        for script in scripts:
            assert script[1] - script[0] < base[1] - base[0]
        if name != "msup":
            assert scripts[0][1] > base[1]
        if name != "msub":
            assert scripts[-1][0] < base[0]
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def test_files_that_are_no_documents_are_told_apart(tmp_path):
    """What commands write beside documents; a file that only bears the ending is not understood."""
    digest = hashlib.sha256(b"numbers").hexdigest()
    log = '{"device": "cpu", "preset": {}, "seeds": [0]}'
    wanted = {
        f"{digest}.bin": (b"numbers", "sidecar"),
        f"{digest[::-1]}.bin": (b"numbers", None),
        "log.jsonl": (log.encode(), "unfinished"),
        "checkpoint.json": (b'{"format": "utfproof-training-checkpoint"}', "unfinished"),
        "results.db": (b"SQLite format 3\0...", "archive"),
        "000001.zip": (b"PK\x03\x04...", "archive"),
        "other.zip": (b"no archive", None),
        "a.png": (b"\x89PNG...", "picture"),
        "b.png": (b"no picture", None),
        "c.html": (b"<!doctype html><p>", "page"),
        "d.py": (b"print()", None),
        "e.py": (b'"""A fixed transformer with one embedding, as a plain torch.nn.Module: it', "module"),
    }
    for name, (content, _) in wanted.items():
        (tmp_path / name).write_bytes(content)
    found = report_read.gather(tmp_path)
    assert {source.name: source.kind for source in found.sources} == {name: kind for name, (_, kind) in wanted.items()}


def test_what_other_commands_write_is_understood(tmp_path, monkeypatch, capsys):
    """Certificates, outputs of single commands, a sweep's lines; what has a wrong form is no certificate."""
    monkeypatch.chdir(tmp_path)
    for source in (Path(__file__).parent / "data" / "outputs").glob("*.json"):
        shutil.copy(source, tmp_path / source.name)
    assert command_line.run(["certify", "tied", *["-H", "1", "-L", "1", "-d", "1", "--d-in", "1", "-o", "c.json"]]) == 0
    job = {"key": "k", "job": {"command": "certify", "parameters": {}}, "result": {"verdict": "universal"}, "files": []}
    (tmp_path / "results.jsonl").write_text(f"{json.dumps(job)}\n{json.dumps(job)}\n")
    (tmp_path / "odd.json").write_text(
        json.dumps({**json.loads((tmp_path / "c.json").read_text()), "shape": {"m": "x"}})
    )
    (tmp_path / "broken.jsonl").write_text("{}\n{")
    capsys.readouterr()
    assert command_line.run(["report", ".", "-o", "r.html", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"]["certificate"] == ["c.json"]
    assert document["files"]["sweep"] == ["results.jsonl"]
    assert {"train.json", "refute-lower.json", "search-numerical.json"} <= set(document["files"]["output"])
    assert set(document["not_understood"]) == {"broken.jsonl", "odd.json"}
    page_text = (tmp_path / "r.html").read_text()
    assert "rank-permutation" in page_text
    assert "utfproof refute-lower" in page_text
    assert markup_faults(page_text) == []
