"""The pages of docs/: every command block runs and prints what the page shows; links, navigation and pictures are whole."""

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import console
import docs_griffe
import docs_hooks
import pytest
import yaml
from tiers import full_where

from utfproof.jobs.registry import commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
ELSEWHERE = {"your-construction.md": "test_testing.py"}
"""Pages whose blocks another file runs, as its own."""
SLOW = {"reproduce-the-tables.md", "search.md", "symbolic.md"}


class _Configuration(yaml.SafeLoader):
    """mkdocs.yml, its tags taken as text."""


_Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def configuration():
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Configuration)


def text_of(page):
    return (DOCS / page).read_text()


def with_blocks():
    return [page for page in PAGES if page not in ELSEWHERE and any(_is_run(block) for block in _blocks(page))]


def _blocks(page):
    """But for steps of recipes: tests/test_recipes.py."""
    return [block for block in console.blocks(text_of(page), page) if not block.recipe]


def _is_run(block):
    return block.is_console or block.language == "python"


# --- commands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", full_where(lambda page: page in SLOW, with_blocks()))
def test_commands_print_what_the_page_shows(page, furnished, capsys):
    assert console.run_page(text_of(page), page, furnished, capsys) >= 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", [page for page in with_blocks() if any(block.slow for block in _blocks(page))])
def test_slow_commands_too(page, furnished, capsys):
    assert console.run_page(text_of(page), page, furnished, capsys, slow=True, real=True) > 0


@pytest.mark.parametrize("page", PAGES)
def test_every_command_has_a_prompt(page):
    for block in _blocks(page):
        assert console.unprompted(block) == [], f"{block.place}: write `$ ` before commands"


@pytest.mark.parametrize("page", PAGES)
def test_slow_commands_have_a_short_form(page):
    quick, slow = set(), {}
    for block in _blocks(page):
        if block.is_console and not block.recipe:
            for command in console.commands(block):
                if block.needs_short_form:
                    slow[command.kind] = block.place
                elif not block.never and not block.slow:
                    quick.add(command.kind)
    assert {kind: place for kind, place in slow.items() if kind not in quick} == {}


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page):
    outside = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`(utfproof [a-z][^`]*)`", outside):
        words = re.sub(r"[|…\[\]]", " ", code).replace("'", "").replace('"', "").split()
        console.require_options([word for word in words if word != "..."])


@pytest.mark.parametrize("name", commands())
def test_every_command_is_shown_on_a_page(name):
    """One that explains it: the list of options and the recipes do not count."""
    pages = [page for page in PAGES if page not in ("options.md", "extend.md") and not page.startswith("schemas/")]
    assert any(re.search(rf"utfproof {re.escape(name)}\b", text_of(page)) for page in pages)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in [*PAGES, "../README.md", "../CONTRIBUTING.md"]:
        for block in _blocks(page):
            for target in console.make_targets(block):
                assert f"\n{target}:" in makefile, f"{block.place}: make {target}"


def test_pages_run_elsewhere_are():
    for page, where in ELSEWHERE.items():
        assert page in (ROOT / "tests" / where).read_text()


# --- the runner can fail -------------------------------------------------------------------------------------

PAGE = "# A page\n\n```\n$ utfproof certify tied -H 1 -L 1 -d 1 --d-in 1 -o a.json\n...\n$ utfproof check a.json\n{shown}```\n"
RIGHT = "valid     a.json: universal by matching: tied at H=1, L=1, d=1, d_in=1, d_out=1, m=3\n"
WRONG = {
    "a figure": (RIGHT.replace("m=3", "m=4"), "the page shows"),
    "a line too many": (RIGHT + "and more\n", "the end"),
    "a line too few": (RIGHT + RIGHT, "the end"),
    "the wrong exit code": (RIGHT + "$ utfproof check a.json      # exit code 1\n", "exit code 0, not 1"),
    "a command that fails": ("$ utfproof check b.json\n", "exit code 2, not 0"),
    "an option that is none": ("$ utfproof certify tied --heds 1\n", "no option --heds"),
    "a command that is none": ("$ utfproof certfy tied\n", "no command 'certfy'"),
    "a file that is not there": ("$ python scripts/nothing.py\n", "there is no scripts/nothing.py"),
    "a program of the system": ("$ git clone there\n", "not run by tests"),
    "text for what is left out": ("valid ... m=4\n", "the page shows"),
}


def test_a_right_page_passes(furnished, capsys):
    assert console.run_page(PAGE.format(shown=RIGHT), "page", furnished, capsys) == 2
    assert console.run_page(PAGE.format(shown="valid     a.json: ... m=3\n"), "page", furnished, capsys) == 2


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_page_is_seen(fault, furnished, capsys):
    shown, message = WRONG[fault]
    with pytest.raises(console.BadPage, match=message):
        console.run_page(PAGE.format(shown=shown), "page", furnished, capsys)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ((), [], True),
        (("a", "...", "c"), ["a", "c"], True),
        (("a", "...", "c"), ["a", "b", "b", "c"], True),
        (("a", "...", "c"), ["a", "c", "b"], False),
        (("...",), ["anything"], True),
        (("a ... c",), ["a b b c"], True),
        (("a ... c",), ["a b"], False),
        (("a",), ["a  ", ""], True),
        (("a",), ["a", "b"], False),
        (("...", "b", "...", "b"), ["b", "a", "b"], True),
        (("a.c",), ["abc"], False),
    ],
)
def test_output_is_compared(shown, printed, same):
    assert (console.first_difference(shown, printed) == "") == same


def test_blocks_are_found():
    page = "text\n\n    $ utfproof check a\n    valid\n\n* item\n\n      $ not a block\n\n"
    page += "<!-- slow -->\n```\n$ x \\\n  y  # exit code 3\n```\n"
    first, second = console.blocks(page, "page")
    assert (first.slow, second.slow) == (False, True)
    assert [command.expected for command in console.commands(first)] == [("valid",)]
    assert [(command.text, command.code) for command in console.commands(second)] == [("x y", 3)]
    with pytest.raises(console.BadPage, match="not closed"):
        console.blocks("```\n$ x\n", "page")


def test_python_blocks_share_names_and_are_compared(furnished, capsys):
    page = "```python\na = 2\n```\n\n```python\nprint(a)\n```\n\n```text\n{}\n```\n"
    assert console.run_page(page.format(2), "page", furnished, capsys) == 2
    with pytest.raises(console.BadPage, match="printed is '2'"):
        console.run_page(page.format(3), "page", furnished, capsys)


def test_commands_without_a_prompt_are_seen():
    (block,) = console.blocks("```\nutfproof check a\nmake test\n```\n", "page")
    assert console.unprompted(block) == ["utfproof check a"]
    assert console.make_targets(block) == ["test"]


# --- the site ------------------------------------------------------------------------------------------------


def _navigation(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _navigation(value)


def test_navigation_has_every_page_once():
    listed = list(_navigation(configuration()["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {*PAGES, *docs_hooks.INCLUDED.values()}


def test_the_site_fetches_nothing():
    chosen = configuration()
    assert chosen["theme"]["font"] is False
    assert chosen["strict"] is True
    assert chosen["extra"]["generator"] is False
    assert {name for plugin in chosen["plugins"] for name in plugin} == {"search", "mkdocstrings"}
    assert "extra_javascript" not in chosen
    assert "repo_url" not in chosen  # the theme would ask the hosting site for figures
    assert not re.search(r"url\(|@import", (DOCS / "site.css").read_text())
    for path in (DOCS / "pictures").glob("*.svg"):
        assert not re.search(r"href|url\(|@import|<script", path.read_text()), path


def _anchors(markdown):
    """Identifiers of headings, as Python-Markdown makes them."""
    found, outside = [], re.sub(r"^```.*?^```", "", markdown, flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.+?)\s*#*$", outside, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).encode("ascii", "ignore").decode()
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        found.append(name if name not in found else f"{name}_{found.count(name)}")
    return found


def _links(page):
    source = ROOT / docs_hooks.source_of(page)
    outside = re.sub(r"^```.*?^```|`[^`\n]*`", "", source.read_text(), flags=re.DOTALL | re.MULTILINE)
    return source, re.findall(r"\]\(([^)\s]+)\)", outside)


@pytest.mark.parametrize("page", [*PAGES, *docs_hooks.INCLUDED.values()])
def test_links_lead_somewhere(page):
    source, links = _links(page)
    for link in links:
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (source.parent / path).resolve() if path else source
        assert target.exists(), f"{source.relative_to(ROOT)}: {link}"
        if anchor:
            assert anchor in _anchors(target.read_text()), f"{source.relative_to(ROOT)}: {link}"


@pytest.mark.parametrize("page", [*PAGES, *docs_hooks.INCLUDED.values()])
def test_the_site_builder_takes_brackets_for_text(page):
    """`[a][b]` would be a reference to b, and a list needs an empty line before it."""
    text = (ROOT / docs_hooks.source_of(page)).read_text()
    outside = re.sub(r"^```.*?^```|`[^`\n]*`|^    .*$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r".*\]\[.*", outside) == []
    lines = outside.splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"[*-] ", line):
            assert not before.strip() or re.match(r"[*-] |\s", before), f"{page}: an empty line before {line[:60]!r}"


def test_links_out_of_the_pages():
    source = "[a](../proofs/README.md#b) [c](../pyproject.toml) [d](claims.md) `[e](../x)` [f](https://g) [h](#i)"
    made = docs_hooks.site_links(source, "trust.md")
    assert made == "[a](machine-checked-proofs.md#b) c [d](claims.md) `[e](../x)` [f](https://g) [h](#i)"
    assert docs_hooks.site_links("[a](residual.md)", "proofs/frontier.md") == "[a](residual.md)"
    assert (
        docs_hooks.site_links("[a](../docs/claims.md) [b](theories/Words.v)", "machine-checked-proofs.md")
        == "[a](claims.md) b"
    )


def test_pictures_are_inlined_without_their_own_colours():
    made = docs_hooks.inlined('<p><img alt="x" src="pictures/notions.svg" /></p>')
    assert made.startswith("<p><svg ")
    assert "<style>" not in made
    assert made.endswith("</svg></p>")


def test_pictures_are_what_the_script_draws(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "draw_pictures.py"), "--check"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0, (
        "run python scripts/draw_pictures.py"
    )
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    shutil.copytree(DOCS / "pictures", tmp_path / "docs" / "pictures")
    (tmp_path / "results").symlink_to(ROOT / "results")
    picture = tmp_path / "docs" / "pictures" / "least-m.svg"
    picture.write_text(picture.read_text().replace("… 39", "… 38"))
    done = subprocess.run(
        [sys.executable, "scripts/draw_pictures.py", "--check"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "docs/pictures/least-m.svg is not what python scripts/draw_pictures.py writes\n",
    )


def test_every_module_is_in_the_reference():
    named = set()
    for path in (DOCS / "api").glob("*.md"):
        for name in re.findall(r"^::: utfproof\.([\w.]+)$", path.read_text(), flags=re.MULTILINE):
            place = ROOT / "utfproof" / name.replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").exists(), f"{path.name}: {name}"
            assert name not in named
            named.add(name)
    modules = {
        path.stem for path in (ROOT / "utfproof").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {name.split(".")[0] for name in named} == modules - {"cli", "__init__", "__main__"}


def test_docstrings_are_prose():
    prose = docs_griffe.prose("R_V [L][H], `[a][b]`, m < M\n\n    [c][d]")
    assert prose == "R_V \\[L]\\[H], `[a][b]`, m &lt; M\n\n    [c][d]"
