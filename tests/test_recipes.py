"""docs/extend.md literally: each recipe's snippets are applied to a copy of the repository, and what it promises holds there.

A recipe is a section of the page. Its blocks are marked `<!-- recipe -->`: a new file, or a change as the lines to keep, drop
and add (`@@` between changes, each of which fits at one place; lines to add alone go to the end), both with the file's name
as title; and commands with what they print. Files below scratch/ are examples' own.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import console
import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extend.md"
MOST = {"construction": 6, "certificate kind": 6, "attention kernel": 4, "training task": 3, "command": 3}
"""Recipes by their headings, and how many files each may name."""
GENERATED = ("tests/certificates/",)
"""What scripts write, which is not counted."""
SCRATCH = "scratch/"
LEFT_OUT = ("tests/certificates/", "certificates/", "results/", "proofs/")
"""Folders that a copy has as links."""


class NotLiteral(Exception):
    """A snippet that does not fit the repository, or a promise that does not hold with it."""


def recipes(text):
    """{heading without its article: its marked blocks} of a page."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        marked = [block for block in console.blocks(body, heading) if block.recipe]
        if marked:
            found[re.sub(r"^An? ", "", heading.strip())] = marked
    return found


def files_of(blocks):
    """The files of the repository that a recipe names."""
    return {block.title for block in blocks if block.title and not block.title.startswith(SCRATCH)}


def changed(text, lines, place):
    """The text with a snippet of kept, dropped and added lines put in; every part of it fits once."""
    parts, lines = [[]], list(lines)
    for line in lines:
        if line == "@@":
            parts.append([])
        else:
            parts[-1].append(line or " ")
    for part in parts:
        if {line[0] for line in part} - set(" +-") or all(line[0] == " " for line in part):
            raise NotLiteral(f"{place}: lines begin with a space, + or -, and something changes: {part}")
        if all(line[0] == "+" for line in part):
            text += "".join(f"{line[1:]}\n" for line in part)
            continue
        old, new = ("".join(f"{line[1:]}\n" for line in part if line[0] in kept) for kept in (" -", " +"))
        at = [found.start() for found in re.finditer(rf"^{re.escape(old.rstrip(chr(10)))}", text, flags=re.MULTILINE)]
        if len(at) != 1:
            raise NotLiteral(f"{place}: fits at {len(at)} places: {old!r}")
        text = text[: at[0]] + new.rstrip("\n") + text[at[0] + len(old.rstrip("\n")) :]
    return text


def apply(blocks, folder):
    """Put a recipe's files and changes into a copy."""
    for block in blocks:
        if not block.title:
            continue
        path = folder / block.title
        if block.language == "diff":
            path.write_text(changed(path.read_text(), block.lines, block.place))
        elif path.exists():
            raise NotLiteral(f"{block.place}: {block.title} exists")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(block.lines) + "\n")


def run(command, folder):
    """Run a command in a copy; NotLiteral where code or output differ from the page."""
    words = command.words
    programs = {"utfproof": [sys.executable, "-m", "utfproof"], "python": [sys.executable]}
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "80"}
    environment["PYTEST_ADDOPTS"] = "-p no:cacheprovider"
    done = subprocess.run(
        [*programs.get(words[0], words[:1]), *words[1:]],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != command.code:
        raise NotLiteral(f"{command.text}: exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    difference = console.first_difference(command.expected, done.stdout.splitlines()) if command.expected else ""
    if difference:
        raise NotLiteral(f"{command.text}: {difference}")


def run_all(blocks, folder):
    for block in blocks:
        if block.is_console:
            for command in console.commands(block):
                run(command, folder)


@pytest.fixture(scope="module")
def listed():
    """The repository's files: tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("a copy is made of the files that git knows")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture
def copy(listed, tmp_path):
    folder = tmp_path / "copy"
    for name in listed:
        if not name.startswith(LEFT_OUT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for name in LEFT_OUT:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name.rstrip("/")).symlink_to(ROOT / name)
    (folder / SCRATCH).mkdir()
    return folder


def touched(folder, listed):
    """Files of a copy that differ from the repository's, or are not there."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    names = {
        name
        for name in names
        if not name.startswith((SCRATCH, ".hypothesis/", *LEFT_OUT)) and "__pycache__" not in name
    }
    own = {name for name in listed if not name.startswith(LEFT_OUT)}
    return (names ^ own) | {name for name in names & own if (folder / name).read_bytes() != (ROOT / name).read_bytes()}


RECIPES = recipes(PAGE.read_text())


def test_the_page_has_a_recipe_for_each():
    assert RECIPES.keys() == MOST.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_few_files(name):
    assert 0 < len(files_of(RECIPES[name])) <= MOST[name]
    assert any(block.is_console for block in RECIPES[name])


@pytest.mark.full
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_all_that_it_takes(name, copy, listed):
    apply(RECIPES[name], copy)
    run_all(RECIPES[name], copy)
    assert {path for path in touched(copy, listed) if not path.startswith(GENERATED)} == files_of(RECIPES[name])


def without(blocks, title):
    return [block for block in blocks if block.title != title]


@pytest.mark.full
def test_a_recipe_that_forgets_the_registry_fails(copy):
    blocks = without(RECIPES["construction"], "utfproof/constructions/__init__.py")
    apply(blocks, copy)
    with pytest.raises(NotLiteral, match="unknown"):
        run_all(blocks, copy)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name in RECIPES for title in sorted(files_of(RECIPES[name]))]
)
def test_each_file_of_a_recipe_is_needed(name, title, copy):
    """Without it some promise does not hold."""
    blocks = without(RECIPES[name], title)
    apply(blocks, copy)
    with pytest.raises(NotLiteral):
        run_all(blocks, copy)


@pytest.mark.parametrize(
    ("snippet", "message"),
    [
        ([" a = 1", "+b = 2"], None),
        ([" c", "+b = 2"], "fits at 0 places"),
        ([" x", "+b = 2"], "fits at 2 places"),
        ([" a = 1"], "something changes"),
        (["a = 1", "+b = 2"], "begin with a space"),
    ],
)
def test_a_recipe_whose_snippet_does_not_fit_is_refused(snippet, message):
    text = "x\na = 1\nx\n"
    if message is None:
        assert changed(text, snippet, "here") == "x\na = 1\nb = 2\nx\n"
    else:
        with pytest.raises(NotLiteral, match=message):
            changed(text, snippet, "here")
