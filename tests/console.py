"""What pages show and how it is run: the commands in their code blocks, in order, in a folder of their own.

How a page is written:

* a block of commands begins each with `$ `; a `\\` at the end of a line continues it; two spaces and `# ...` are a comment,
  and `# exit code 1` in it is the exit code (0 unless said otherwise);
* the lines below a command are its standard output, all of it (trailing spaces aside), or nothing is compared. `...` stands
  for any text within a line, and for any lines where it is a line of its own;
* `<!-- slow -->` before a block: run in the exhaustive tier only, and the page shows a short form of the same command, or
  `<!-- slow: why -->` says why there is none;
* `<!-- needs torch -->` before a block: run where that package is installed; elsewhere the page's test skips in the end, after
  everything else on it has been run;
* `<!-- not run: why -->` before a block: never run (a cluster, a GPU); its options are looked up all the same;
* `<!-- recipe -->` before a block: a step of a recipe, applied to a copy of the repository by tests/test_recipes.py;
* a block that names a file (```toml title="grid.toml") is written to that file, other python blocks are executed, one
  namespace for a page, and a ```text block after one is what it prints; other toml blocks must be well-formed.
"""

import contextlib
import functools
import io
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from utfproof.cli.app import application, run

ROOT = Path(__file__).parents[1]
COPIED, LINKED = ("docs", "results", "scripts"), ("certificates", "proofs", "tests", "utfproof")
STAND_INS = {
    "python scripts/train_induction.py --out induction.safetensors": ("induction.safetensors", "induction.safetensors"),
}
"""Training takes too long for the default tier: the file that the command wrote once takes the place of its output."""
PROGRAMS = ("utfproof", "python", "make", "pip", "git", "cd", "dask", "pytest", "pre-commit")
MARKER = re.compile(r"<!-- (slow(?:: .+)?|not run: .+|needs \w+|recipe) -->")


class BadPage(Exception):
    """A page that does not keep to the rules above, or whose command does something else than it says."""


@dataclass(frozen=True)
class Block:
    """A code block: its first line's number, language ("" for none or an indented one), title, marker and lines."""

    place: str
    language: str
    title: str
    marker: str
    lines: tuple[str, ...]

    @property
    def slow(self) -> bool:
        return self.marker.startswith("slow")

    @property
    def needs_short_form(self) -> bool:
        """Long commands have one on their page, unless the marker says why not."""
        return self.marker == "slow"

    @property
    def never(self) -> bool:
        return self.marker.startswith("not run")

    @property
    def recipe(self) -> bool:
        return self.marker == "recipe"

    @property
    def missing(self) -> str:
        """The package that this block needs and that is not here; empty where there is none."""
        package = self.marker.removeprefix("needs ") if self.marker.startswith("needs ") else ""
        return package if package and find_spec(package) is None else ""

    @property
    def is_console(self) -> bool:
        return self.language in ("", "console") and any(line.startswith("$ ") for line in self.lines)


@dataclass(frozen=True)
class Command:
    """One command: words, the exit code and the output lines that its page promises."""

    place: str
    text: str
    code: int
    expected: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def kind(self) -> tuple[str, ...]:
        """Program and subcommands, without arguments."""
        words = self.words
        if words[0] != "utfproof":
            return tuple(words[:2])
        return ("utfproof", *words[1 : 1 + subcommand(words)[1]])


def blocks(text: str, page: str) -> list[Block]:
    """Every code block of a Markdown text, fenced or indented."""
    found: list[Block] = []
    marker, fence, head, kept, start = "", "", "", [], 0
    indented, previous_blank, in_list = False, True, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if fence:
            if line.strip() == fence:
                language, _, rest = head.partition(" ")
                title = re.search(r'title="([^"]+)"', rest)
                found.append(Block(f"{page}:{start}", language, title[1] if title else "", marker, tuple(kept)))
                fence, marker = "", ""
            else:
                kept.append(line)
            continue
        if indented and line.strip() and not line.startswith("    "):
            found.append(Block(f"{page}:{start}", "", "", marker, _stripped(kept)))
            indented, marker = False, ""
        opening = re.match(r"(`{3,})(.*)$", line)
        if opening:
            fence, head, kept, start = opening[1], opening[2].strip(), [], number
            continue
        if indented:
            kept.append(line[4:])
        elif line.startswith("    ") and previous_blank and not in_list:
            indented, kept, start = True, [line[4:]], number
        elif line.strip():
            mark = MARKER.fullmatch(line.strip())
            marker = mark[1] if mark else ""
            in_list = bool(re.match(r"\s*([*-]|\d+\.) ", line)) or (in_list and line.startswith(" "))
        previous_blank = not line.strip()
    if indented:
        found.append(Block(f"{page}:{start}", "", "", marker, _stripped(kept)))
    if fence:
        raise BadPage(f"{page}:{start}: the block is not closed")
    return found


def _stripped(lines: list[str]) -> tuple[str, ...]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return tuple(lines)


def commands(block: Block) -> list[Command]:
    """The commands of a console block with what is printed below each."""
    found: list[tuple[str, list[str]]] = []
    continued = False
    for line in block.lines:
        if continued:
            found[-1] = (f"{found[-1][0][:-1].rstrip()} {line.strip()}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise BadPage(f"{block.place}: output before the first command: {line!r}")
        continued = not found[-1][1] and found[-1][0].endswith("\\")
    result = []
    for text, printed in found:
        words, _, comment = text.partition("  #")
        code = re.search(r"exit code (\d+)", comment)
        result.append(Command(block.place, words.strip(), int(code[1]) if code else 0, _stripped(printed)))
    return result


def unprompted(block: Block) -> list[str]:
    """Lines that look like commands in a block that has no `$ `; `make TARGET` alone is allowed, its target is looked up."""
    if block.language not in ("", "console", "sh", "bash", "shell") or block.is_console:
        return []
    return [line for line in block.lines if line.split(" ")[0] in PROGRAMS and not line.startswith("make ")]


def make_targets(block: Block) -> list[str]:
    """The targets of `make` lines, with `$ ` or without."""
    if block.language not in ("", "console"):
        return []
    return re.findall(r"^(?:\$ )?make ([\w-]+)", "\n".join(block.lines), flags=re.MULTILINE)


@functools.cache
def command_line() -> object:
    """The command line as its parser sees it."""
    return typer.main.get_command(application())


def subcommand(words: list[str]) -> tuple[object, int]:
    """The command-line object of `utfproof ...` and how many words name it; BadPage where there is none."""
    command: object = command_line()
    used = 0
    while isinstance(getattr(command, "commands", None), dict):
        name = words[1 + used] if len(words) > 1 + used else "--help"
        if name.startswith("-"):
            break
        if name not in command.commands:  # type: ignore[attr-defined]
            raise BadPage(f"{shlex.join(words)}: there is no command {name!r}")
        command, used = command.commands[name], used + 1  # type: ignore[attr-defined]
    return command, used


def require_options(words: list[str]) -> None:
    """BadPage unless the command and all its options exist; `check` has a parser of its own."""
    command, used = subcommand(words)
    if words[1 : 1 + used] == ["check"]:
        return
    known = {"--help"}
    for parameter in command.params:  # type: ignore[attr-defined]
        known |= {*parameter.opts, *parameter.secondary_opts}
    for word in words[1 + used :]:
        if re.match(r"--?[A-Za-z]", word) and word.split("=")[0] not in known:
            raise BadPage(f"{shlex.join(words)}: there is no option {word}")


def pattern(line: str) -> re.Pattern[str]:
    """A shown line as a regular expression: `...` is any text."""
    return re.compile(".*".join(re.escape(part) for part in line.rstrip().split("...")))


def first_difference(shown: tuple[str, ...], printed: list[str]) -> str:
    """What differs first between the lines shown and those printed; the empty string where nothing does."""
    lines = [line.rstrip() for line in printed]
    while lines and not lines[-1]:
        lines.pop()
    reachable = {0}  # how many printed lines may be used up so far
    for line in shown:
        if line.strip() == "...":
            reachable = set(range(min(reachable), len(lines) + 1))
            continue
        wanted = pattern(line)
        following = {n + 1 for n in reachable if n < len(lines) and wanted.fullmatch(lines[n])}
        if not following:
            got = lines[min(reachable)] if min(reachable) < len(lines) else "(the end)"
            return f"the page shows {line!r}, printed is {got!r}"
        reachable = following
    return "" if len(lines) in reachable else f"printed as well: {lines[min(reachable)]!r}"


def furnish(folder: Path) -> None:
    """What pages take for granted: the repository's folders, under `folder`; nothing of the repository is written to."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def run_command(command: Command, folder: Path, capsys, *, real: bool = False) -> None:
    """Run one command in `folder`, the present one; BadPage where code or output differ from the page."""
    words = command.words
    if words[0] == "utfproof":
        capsys.readouterr()
        code = run(words[1:])
        printed, errors = capsys.readouterr()
    elif words[0] == "make":
        return  # stages of CI; their targets are looked up
    elif words[0] == "python":
        if not (folder / words[1]).exists() and words[1] != "-m":
            raise BadPage(f"{command.place}: there is no {words[1]}")
        if command.text in STAND_INS and not real:
            source, name = STAND_INS[command.text]
            shutil.copy(ROOT / "tests" / "data" / source, folder / name)
            return
        done = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
        code, printed, errors = done.returncode, done.stdout, done.stderr
    else:
        raise BadPage(f"{command.place}: {words[0]} is not run by tests: mark the block as not run, with the reason")
    if code != command.code:
        raise BadPage(f"{command.place}: {command.text}: exit code {code}, not {command.code}: {errors.strip()[-400:]}")
    difference = first_difference(command.expected, printed.splitlines()) if command.expected else ""
    if difference:
        raise BadPage(f"{command.place}: {command.text}: {difference}")


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Modules that a page wrote can be imported, as they could where it was run, and are forgotten afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            source = getattr(sys.modules[name], "__file__", None)
            if source and Path(source).parent == folder:
                del sys.modules[name]


def run_page(text: str, page: str, folder: Path, capsys, *, slow: bool = False, real: bool = False) -> int:
    """Run a page in `folder` (the present one, furnished) and return how many commands and python blocks ran.

    slow: the slow blocks as well. real: train instead of copying what was trained.
    """
    names: dict[str, object] = {"__name__": "page"}
    ran, said = 0, None
    missing = ""
    for block in blocks(text, page):
        if block.recipe:
            continue
        if block.missing:
            missing = block.missing
            continue
        source = "\n".join(block.lines) + "\n"
        if block.title:
            (folder / block.title).write_text(source)
        elif block.language == "toml":
            tomllib.loads(source)
        elif block.language == "python":
            compiled = compile(source, block.place, "exec")
            said = None
            if not block.never and (slow or not block.slow):
                output = io.StringIO()
                with contextlib.redirect_stdout(output), importable(folder):
                    exec(compiled, names)
                said, ran = output.getvalue(), ran + 1
        elif block.language == "text" and said is not None:
            difference = first_difference(block.lines, said.splitlines())
            if difference:
                raise BadPage(f"{block.place}: {difference}")
            said = None
        elif block.is_console:
            for command in commands(block):
                if command.words[0] == "utfproof":
                    require_options(command.words)
                if not block.never and (slow or not block.slow):
                    run_command(command, folder, capsys, real=real)
                    ran += 1
    if missing:
        pytest.importorskip(missing)
    return ran
