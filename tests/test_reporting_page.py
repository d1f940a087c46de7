"""The claims page, as text and in a browser."""

import copy
import hashlib
import json
import re
import subprocess
import sys
import time

import pytest
import test_reporting
from browser import BrowserMissing, open_browser
from test_reporting import HOSTILE, SHAPE, hostile

from utfproof.certificates import checker
from utfproof.errors import MalformedInput
from utfproof.reporting import document, page, pictures
from utfproof.reporting.page import html_page
from utfproof.shapes import Shape

drawn = test_reporting.drawn
run = test_reporting.run


# --- the page, as text --------------------------------------------------------------------------------------


def test_page_needs_nothing_from_outside(run):
    text = html_page(run, pictures.draw(SHAPE, ["tied"]), proofs="https://example.org/")
    assert not re.search(r"<(link|img|iframe|object|embed)\b", text)
    assert not re.search(r"\bsrc=|@import|url\(", text)
    outside = set(re.findall(r"https?://[^\"'<> ]+", text))
    assert outside == {"http://www.w3.org/2000/svg"} | {
        f"https://example.org/docs/proofs/{name}.md" for name in ("definition", "null-vector", "decision")
    }
    assert document.CAUTION in text
    assert all(name in text for name in document.NOTIONS)


def test_page_holds_each_certificate_to_the_byte(run):
    import html

    texts = re.findall(r'<pre class="canonical" data-digest="(\w+)">(.*?)</pre>', html_page(run), re.DOTALL)
    assert {digest for digest, _ in texts} == set(run["certificates"])
    for digest, text in texts:
        assert hashlib.sha256(html.unescape(text).encode()).hexdigest().startswith(digest)


def test_page_refuses_a_certificate_under_another_name(run):
    changed = copy.deepcopy(run)
    first = next(iter(changed["certificates"]))
    changed["certificates"][first]["shape"]["m"] += 1
    with pytest.raises(MalformedInput, match="has the digest"):
        html_page(changed)
    with pytest.raises(MalformedInput, match="no canonical form"):
        html_page({**run, "certificates": {"0" * 16: {"a": float("nan")}}})
    with pytest.raises(MalformedInput, match="no JSON object"):
        html_page({**run, "certificates": {"0" * 16: 3}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("E R_w", "E <math><msub><mi>R</mi><mi>w</mi></msub></math>"),
        (
            "R_Q^{l,h}",
            "<math><msubsup><mi>R</mi><mi>Q</mi><mrow><mi>l</mi><mo>,</mo><mi>h</mi></mrow></msubsup></math>",
        ),
        ("2^-53, 7", "<math><msup><mn>2</mn><mrow><mo>−</mo><mn>53</mn></mrow></msup></math>, 7"),
        ("m̄_loop < d", "<math><msub><mi>m̄</mi><mtext>loop</mtext></msub></math> &lt; d"),
        ("2d_in", "2<math><msub><mi>d</mi><mtext>in</mtext></msub></math>"),
        ("(1+S)^L", "(1+S<math><msup><mtext>)</mtext><mi>L</mi></msup></math>"),
        ("H^{d_in}", "<math><msup><mi>H</mi><msub><mi>d</mi><mtext>in</mtext></msub></msup></math>"),
        ("docs/r_all.md head_dim f_x.py", "docs/r_all.md head_dim f_x.py"),
        (
            "null_vector_certificate a_b_c x_longer 2^ab ^{<b>} _",
            "null_vector_certificate a_b_c x_longer 2^ab ^{&lt;b&gt;} _",
        ),
    ],
)
def test_indices_are_set(text, expected):
    assert page.prose(text) == expected


def test_page_of_nothing():
    text = html_page({"grid": "", "holds": True, "seconds": 0, "claims": []})
    assert "0 claims" in text


def test_import_of_reports_is_light():
    code = (
        "import sys, utfproof.reporting.junit, utfproof.reporting.table; "
        "print('numpy' in sys.modules, 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- the page, in a browser ---------------------------------------------------------------------------------


VISIBLE = "return [...document.querySelectorAll('tbody.claim')].filter(b => b.getClientRects().length).map(b => b.id)"
OPEN = """
return [...document.querySelectorAll('tr.evidence')].filter(r => r.getClientRects().length).map(r => r.parentElement.id)
"""
SET = """
const [id, value] = arguments, e = document.getElementById(id);
if (e.type === 'checkbox') { if (e.checked !== value) e.click(); }
else { e.value = value; e.dispatchEvent(new Event('input', {bubbles: true})); }
"""
RESET = "document.querySelector('form.filters button[type=reset]').click()"
COUNT = "return document.getElementById('_count').textContent"


def cleared(browser):
    browser.run(RESET)
    for _ in range(50):
        if browser.run("return location.hash") == "":
            return
        time.sleep(0.02)
    raise AssertionError("the filters were not cleared")


def appended(monkeypatch, part, text):
    original = page.part
    monkeypatch.setattr(page, "part", lambda name: original(name) + (text if name == part else ""))


def filter_faults(browser, run):
    """Every filter and value whose visible claims or count are not what the document says."""
    cases = [
        (name, value) for name in page.FILTERS for value in {v for c in run["claims"] for v in page._values(c, name)}
    ]
    for name, value in sorted(cases):
        cleared(browser)
        browser.run(SET, f"_{name}", value)
        expected = [c["id"] for c in run["claims"] if value in page._values(c, name)]
        if sorted(browser.run(VISIBLE)) != sorted(expected):
            yield (name, value)
        if browser.run(COUNT) != f"{len(expected)} of {len(run['claims'])} claims shown":
            yield (name, value, "count")
    cleared(browser)
    browser.run(SET, "_broken", True)
    if browser.run(VISIBLE) != [c["id"] for c in run["claims"] if document.problems_of(c)]:
        yield "broken"
    cleared(browser)
    for words in ("prefix-tree HOST", "docs/proofs", "m̄_loop", "d_in·H^L", "nothing-like-this"):
        browser.run(SET, "_search", words)
        texts = {c["id"]: json.dumps(c, ensure_ascii=False).lower() for c in run["claims"]}
        found = [name for name, text in texts.items() if all(word in text for word in words.lower().split())]
        if sorted(browser.run(VISIBLE)) != sorted(found):
            yield ("search", words)
    cleared(browser)


def test_filters(browser, show, run, drawn):
    show(html_page(run, drawn))
    assert len(browser.run(VISIBLE)) == len(run["claims"])
    assert browser.run(OPEN) == []
    assert list(filter_faults(browser, run)) == []
    browser.run(SET, "_category", "new")
    browser.run(SET, "_notion", "matching")
    assert browser.run(VISIBLE) == [
        c["id"] for c in run["claims"] if (c["category"], c["notion"]) == ("new", "matching")
    ]
    headings = browser.run("""
        return [...document.querySelectorAll('tbody.section')].filter(b => b.getClientRects().length)
          .map(b => b.textContent.trim())""")
    assert headings == ["New: matching 2"]
    assert browser.console() == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("claim.hidden = !fits", "claim.hidden = fits"),
        ('.split("\\n").includes(select.value)', ".startsWith(select.value)"),
        ("(!broken.checked ||", "(true ||"),
        ("wanted.every(", "wanted.some("),
        ("shown += fits", "shown += 1"),
    ],
)
def test_planted_faults_in_the_filters_are_caught(browser, show, run, monkeypatch, right, wrong):
    original = page.part
    assert right in original("page.js")
    monkeypatch.setattr(page, "part", lambda name: original(name).replace(right, wrong))
    show(html_page(run))
    assert next(filter_faults(browser, run), None)


def test_permalinks_open_a_claim_even_behind_a_filter(browser, show, run):
    address = show(html_page(run), "#thm:designed-R/formal-row")
    assert browser.run(OPEN) == ["thm:designed-R/formal-row"]
    top = browser.run("return document.getElementById('thm:designed-R/formal-row').getBoundingClientRect().top")
    assert -1 <= top < 400
    browser.run(SET, "_verdict", "open")
    assert "thm:designed-R-looped" not in browser.run(VISIBLE)
    browser.run("location.hash = '#thm:designed-R-looped'")
    time.sleep(0.2)
    assert "thm:designed-R-looped" in browser.run(OPEN)
    assert len(browser.run(VISIBLE)) == len(run["claims"])
    browser.open(address + "#nothing")
    assert browser.run(OPEN) == []
    browser.open(address + "#%E0%A4%A")
    assert browser.run(OPEN) == []
    assert browser.console() == []


def test_filters_stand_in_the_address(browser, show, run):
    address = show(html_page(run))
    browser.run(SET, "_verdict", "fails as printed")
    browser.run(SET, "_sort", "place-")
    shown, fragment = browser.run(VISIBLE), browser.run("return location.hash")
    browser.open(address + fragment)
    assert browser.run(VISIBLE) == shown
    assert shown == sorted((c["id"] for c in run["claims"] if c["verdict"] == "fails as printed"), reverse=True)


def test_sorting(browser, show, run):
    show(html_page(run))
    paper = browser.run(VISIBLE)
    assert paper == [c["id"] for members in document.sections_of(run).values() for c in members]
    click = "document.querySelector(`th[data-sort=${arguments[0]}] button`).click(); " + VISIBLE
    state = "return document.querySelector(`th[data-sort=${arguments[0]}]`).getAttribute('aria-sort')"
    verdicts = {c["id"]: document.VERDICTS.index(c["verdict"]) for c in run["claims"]}
    up = [verdicts[name] for name in browser.run(click, "verdict")]
    assert (up, browser.run(state, "verdict")) == (sorted(up), "ascending")
    down = [verdicts[name] for name in browser.run(click, "verdict")]
    assert (down, browser.run(state, "verdict")) == (sorted(down, reverse=True), "descending")
    assert browser.run(click, "verdict") == paper
    assert browser.run(state, "verdict") is None


def test_keyboard(browser, show, run):
    show(html_page(run))
    browser.run("document.querySelector('button.toggle').focus()")
    browser.press("\ue007")
    assert browser.run(OPEN) == [run["claims"][0]["id"]]
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press(" ")
    assert browser.run(OPEN) == []
    unnamed = browser.run("""
        return [...document.querySelectorAll('input, select, button, [role=region], svg[role=img]')].filter(e =>
          !e.labels?.length && !e.textContent.trim() && !e.getAttribute('aria-label')).length""")
    assert unnamed == 0
    assert browser.run("return document.getElementById('_count').getAttribute('aria-live')") == "polite"


def test_downloads_are_certificates(browser, show, run, tmp_path):
    folder = tmp_path / "downloads"
    folder.mkdir()
    browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    show(html_page(run), "#thm:sparse_universal_transformer")
    digest = browser.run("""
        const button = document.querySelector('tbody.open button.certificate');
        button.click();
        document.querySelector('tbody.open .panel a.download').click();
        return button.dataset.certificate""")
    path = folder / f"{digest}.json"
    for _ in range(100):
        if path.exists() and path.stat().st_size:
            break
        time.sleep(0.05)
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(digest)
    assert checker.check_file(path, checker.Options()).code == checker.VALID
    shown = browser.run("return document.querySelector('tbody.open .panel pre').textContent")
    assert json.loads(shown) == run["certificates"][digest]
    assert "\n  " in shown
    said = browser.run("document.querySelector('tbody.open button.certificate').click(); "
                       "return document.querySelectorAll('tbody.open .panel').length")  # fmt: skip
    assert said == 0
    assert browser.console() == []


def test_pictures_are_chosen(browser, show, run, drawn):
    show(html_page(run, drawn))
    shown = """
        const pick = (id, value) => { const e = document.getElementById(id); e.value = value;
          e.dispatchEvent(new Event('change', {bubbles: true})); };
        if (arguments[0]) pick('_shape', arguments[0]);
        if (arguments[1]) pick('_construction', arguments[1]);
        const hosts = [...document.querySelectorAll('.host')].filter(e => e.getClientRects().length);
        return [hosts.map(e => [e.dataset.shape, e.dataset.construction]), !document.getElementById('_no-picture').hidden]"""
    first, second = str(SHAPE), str(Shape(2, 1, 2, 2))
    assert browser.run(shown, "", "") == [[[first, "sparse"]], False]
    assert browser.run(shown, second, "tied") == [[[second, "tied"]], False]
    assert browser.run(shown, first, "shared-key") == [[], True]


def test_everything_is_there_without_scripts(browser, show, run, drawn):
    text = html_page(run, drawn)
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(text)
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
        assert len(browser.run(OPEN)) == len(run["claims"])
        assert browser.run("return document.querySelectorAll('.host svg').length") == len(drawn)
        assert browser.run("return getComputedStyle(document.querySelector('form.filters')).display") == "none"
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_print_shows_everything(browser, show, run):
    show(html_page(run))
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    try:
        assert len(browser.run(OPEN)) == len(run["claims"])
        assert browser.run("return getComputedStyle(document.querySelector('form.filters')).display") == "none"
    finally:
        browser.devtools("Emulation.setEmulatedMedia", media="")


def test_a_missing_browser_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrowserMissing, match="chromedriver"), open_browser():
        pass


WIDER = """
    const wide = document.documentElement.scrollWidth > innerWidth ? ['page'] : [];
    for (const e of document.querySelectorAll('body *')) {
      if (e.closest('.scroll, svg, .hidden, .skip, pre')) continue;
      const box = e.getBoundingClientRect();
      if (box.width && box.right > innerWidth + 1) wide.push(e.tagName + '.' + e.className);
    }
    return wide"""


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_sideways_scrolling(browser, show, run, drawn, width):
    for text in (html_page(run, drawn), html_page(hostile())):
        show(text)
        browser.run(
            "document.getElementById('_open-all').click(); document.querySelector('button.certificate')?.click()"
        )
        browser.window(width)
        assert browser.run("return innerWidth") == width
        assert browser.run(WIDER) == []


def test_a_planted_wide_element_is_caught(browser, show, run, monkeypatch):
    appended(monkeypatch, "page.css", ".lead { min-width: 900px; }")
    show(html_page(run))
    browser.window(390)
    assert browser.run(WIDER)


def inertness_faults(browser):
    """Signs that data became markup or ran."""
    counts = browser.run("""
        return {hit: window.hit ?? 0, images: document.querySelectorAll('img').length,
          scripts: document.querySelectorAll('script').length - 1,
          handlers: [...document.querySelectorAll('*')].filter(
            e => [...e.attributes].some(a => a.name.startsWith('on'))).length,
          links: [...document.querySelectorAll('a')].filter(a => a.protocol === 'javascript:').length,
          bold: document.querySelectorAll('b').length}""")
    return {name: count for name, count in counts.items() if count} | ({"console": 1} if browser.console() else {})


def test_hostile_text_is_inert(browser, show):
    attacked = hostile()
    show(html_page(attacked))
    browser.run("document.getElementById('_open-all').click();"
                "document.querySelectorAll('details').forEach(d => { d.open = true; })")  # fmt: skip
    time.sleep(0.1)
    assert inertness_faults(browser) == {}
    assert len(browser.run(VISIBLE)) == len(attacked["claims"])
    statement = browser.run("return document.querySelector('.statement').textContent")
    assert statement == document.plain(HOSTILE)
    browser.run("location.hash = document.querySelectorAll('a.permalink')[3].getAttribute('href')")
    time.sleep(0.1)
    assert inertness_faults(browser) == {}


@pytest.mark.parametrize("fault", ["escape", "certificates"])
def test_dropped_escaping_is_caught(browser, show, monkeypatch, fault):
    if fault == "escape":
        monkeypatch.setattr(page, "escape", document.plain)
    else:
        from types import SimpleNamespace

        from utfproof.reporting import certificates

        monkeypatch.setattr(certificates, "html", SimpleNamespace(escape=str))
    show(html_page(hostile()))
    assert inertness_faults(browser)


def test_the_policy_blocks_what_escaping_would_miss(browser, show, monkeypatch):
    """The second line: even unescaped, nothing runs."""
    monkeypatch.setattr(page, "escape", document.plain)
    show(html_page(hostile()))
    assert browser.run("return window.hit ?? 0") == 0


def test_errors_of_the_script_are_caught(browser, show, run, monkeypatch):
    appended(monkeypatch, "page.js", "nothing();")
    show(html_page(run))
    assert browser.console()


def test_colours_have_contrast(browser, show, run):
    """WCAG's 4.5 to 1 for every text of the page, light and dark."""
    show(html_page(run))
    for dark in (False, True):
        browser.window(1280, dark=dark)
        worst = browser.run("""
            const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(
              v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return Math.min(...[...document.querySelectorAll('body *')].map(e => {
              const ink = light(getComputedStyle(e).color);
              return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05); }))""")
        assert worst >= 4.5
