"""The pages of docs/: every command block runs and prints what the page shows; links and navigation are whole."""

import re
from pathlib import Path

import console
import docs_griffe
import docs_hooks
import notebooks
import pytest
import yaml
from tiers import full_where

from utfproof.cli.registry import NAMES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
ELSEWHERE = {"your-construction.md": "test_testing.py"}
"""Pages whose blocks another file runs, as its own."""
SLOW = {"search.md"}
WRITTEN = {"claims.html", "options.md", *(f"notebooks/{name}.md" for name in notebooks.names())}
"""Pages that the site's build writes and that others link to."""


class _Configuration(yaml.SafeLoader):
    """mkdocs.yml, its tags taken as text."""


_Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def configuration():
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Configuration)


def text_of(page):
    return (ROOT / docs_hooks.source_of(page)).read_text()


def blocks(page):
    """But for steps of recipes: tests/test_recipes.py."""
    return [block for block in console.blocks(text_of(page), page) if not block.recipe]


def with_blocks():
    run = [page for page in PAGES if any(block.is_console or block.language == "python" for block in blocks(page))]
    return [page for page in run if page not in ELSEWHERE]


# --- commands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", full_where(lambda page: page in SLOW, with_blocks()))
def test_commands_print_what_the_page_shows(page, furnished, capsys):
    assert console.run_page(text_of(page), page, furnished, capsys) >= 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", [page for page in with_blocks() if any(block.slow for block in blocks(page))])
def test_slow_commands_too(page, furnished, capsys):
    assert console.run_page(text_of(page), page, furnished, capsys, slow=True, real=True) > 0


@pytest.mark.parametrize("page", PAGES)
def test_every_command_has_a_prompt(page):
    for block in blocks(page):
        assert console.unprompted(block) == [], f"{block.place}: write `$ ` before commands"


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page):
    outside = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`(utfproof [a-z][^`]*)`", outside):
        words = re.sub(r"[|…\[\]]", " ", code).replace("'", "").replace('"', "").split()
        console.require_options([word for word in words if word != "..."])


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_shown_on_a_page(name):
    pages = [page for page in PAGES if page != "extend.md"]
    assert any(re.search(rf"utfproof {re.escape(name)}\b", text_of(page)) for page in pages)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in [*PAGES, "../README.md", "../CONTRIBUTING.md"]:
        for block in blocks(page):
            for target in console.make_targets(block):
                assert f"\n{target}:" in makefile, f"{block.place}: make {target}"


def test_pages_run_elsewhere_are():
    for page, where in ELSEWHERE.items():
        assert page in (ROOT / "tests" / where).read_text()


# --- the runner can fail -------------------------------------------------------------------------------------

PAGE = "# A page\n\n```\n$ utfproof certify tied -H 1 -L 1 -d 1 --d-in 1 -o a.json\n...\n$ utfproof check a.json\n{shown}```\n"
RIGHT = "checked   a.json: universal by matching: tied at H=1, L=1, d=1, d_in=1, d_out=1, m=3\n"
WRONG = {
    "a figure": (RIGHT.replace("m=3", "m=4"), "the page shows"),
    "a line too many": (RIGHT + "and more\n", "the end"),
    "a line too few": (RIGHT + RIGHT, "the end"),
    "the wrong exit code": (RIGHT + "$ utfproof check a.json      # exit code 1\n", "exit code 0, not 1"),
    "an option that is none": ("$ utfproof certify tied --heds 1\n", "no option --heds"),
    "a command that is none": ("$ utfproof certfy tied\n", "no command 'certfy'"),
    "a file that is not there": ("$ python scripts/nothing.py\n", "there is no scripts/nothing.py"),
    "a program of the system": ("$ git clone there\n", "not run by tests"),
}


def test_a_right_page_passes(furnished, capsys):
    assert console.run_page(PAGE.format(shown=RIGHT), "page", furnished, capsys) == 2


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_page_is_seen(fault, furnished, capsys):
    shown, message = WRONG[fault]
    with pytest.raises(console.BadPage, match=message):
        console.run_page(PAGE.format(shown=shown), "page", furnished, capsys)


def test_python_blocks_share_names_and_are_compared(furnished, capsys):
    page = "```python\na = 2\n```\n\n```python\nprint(a)\n```\n\n```text\n{}\n```\n"
    assert console.run_page(page.format(2), "page", furnished, capsys) == 2
    with pytest.raises(console.BadPage, match="printed is '2'"):
        console.run_page(page.format(3), "page", furnished, capsys)


# --- the site ------------------------------------------------------------------------------------------------


def navigation(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else navigation(value)


def test_navigation_has_every_page_once():
    listed = list(navigation(configuration()["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {*PAGES, *docs_hooks.INCLUDED.values(), *WRITTEN}


def test_the_site_fetches_nothing():
    chosen = configuration()
    assert chosen["theme"]["font"] is False
    assert chosen["strict"] is True
    assert "extra_javascript" not in chosen
    assert "repo_url" not in chosen  # the theme would ask the hosting site for figures
    assert re.findall(r"url\(.*?\)|@import", (DOCS / "site.css").read_text()) == ['url("math.woff")']
    for path in (DOCS / "pictures").glob("*.svg"):
        assert not re.search(r"href|url\(|@import|<script", path.read_text()), path


def anchors(markdown):
    """Identifiers of headings, as Python-Markdown makes them."""
    found, outside = [], re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.+?)\s*#*$", outside, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).encode("ascii", "ignore").decode()
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        found.append(name if name not in found else f"{name}_{found.count(name)}")
    return found


@pytest.mark.parametrize("page", [*PAGES, *docs_hooks.INCLUDED.values(), "../README.md"])
def test_links_lead_somewhere(page):
    source = (ROOT / docs_hooks.source_of(page)).resolve()
    outside = re.sub(r"^```.*?^```|`[^`\n]*`", "", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", outside):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (source.parent / path).resolve() if path else source
        if target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in WRITTEN:
            continue
        assert target.exists(), f"{source.relative_to(ROOT)}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{source.relative_to(ROOT)}: {link}"


@pytest.mark.parametrize("page", PAGES)
def test_tables_in_pages_are_known(page):
    assert set(docs_hooks.TABLE.findall(text_of(page))) <= set(docs_hooks.TABLES)


def test_links_out_of_the_pages():
    source = "[a](../proofs/README.md#b) [c](../pyproject.toml) [d](search.md) `[e](../x)` [f](https://g) [h](#i)"
    made = docs_hooks.site_links(source, "trust.md")
    assert made == "[a](machine-checked-proofs.md#b) c [d](search.md) `[e](../x)` [f](https://g) [h](#i)"


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    made = docs_hooks.formulas("If $R_V^{l,h}$ and `$x$` cost 2\\$ then\n\n$$ a \\le b $$\n")
    assert made.count("<math") == 2
    assert "`$x$`" in made
    assert "cost 2$ then" in made
    assert '<div class="formula"><math' in made


def test_formulas_have_the_spaces_of_tex():
    pytest.importorskip("latex2mathml")
    made = docs_hooks.formulas(r"$|w| = \min(a/b, c)$ and $\operatorname{Sol}(G) := \{E: Q_w(E) K_v(E) = G M_w\}$")
    assert made.count('<mo stretchy="false" lspace="0" rspace="0">') == 3
    assert "<mi>Sol</mi>" in made
    assert made.count('<span class="long">') == 1


def test_formulas_stay_within_their_paragraph():
    pytest.importorskip("latex2mathml")
    markdown = pytest.importorskip("markdown")
    text = docs_hooks.formulas("For *every $x$*\n$y := 1$ holds.\n")
    made = markdown.markdown(text, extensions=[docs_hooks.inline_mathematics()])
    assert (made.count("<p>"), made.count("<em>"), made.count("<math")) == (1, 1, 2)
    assert "<mo>:=</mo>" in made


def test_indices_are_set_outside_code():
    made = docs_hooks.indices("<p>d_in <code>d_in</code> <a href='d_in'>H^L</a></p>")
    assert made.count("<math>") == 2
    assert "<code>d_in</code>" in made
    assert "href='d_in'" in made


def test_pictures_are_inlined_without_their_own_colours():
    made = docs_hooks.inlined('<p><img alt="x" src="pictures/notions.svg" /></p>')
    assert made.startswith("<p><svg ")
    assert "<style>" not in made


def test_options_have_every_command():
    pytest.importorskip("typer")
    text = docs_hooks.options()
    assert "## `utfproof certify`\n" in text
    assert "--heads" in text


def test_docstrings_are_prose():
    prose = docs_griffe.prose("R_V [L][H], `[a][b]`, m < M\n\n    [c][d]")
    assert prose == "R_V \\[L]\\[H], `[a][b]`, m &lt; M\n\n    [c][d]"
    assert docs_griffe.prose("m < M\n\n>>> 1 < 2\nTrue\n") == "m &lt; M\n\n```pycon\n>>> 1 < 2\nTrue\n```"
