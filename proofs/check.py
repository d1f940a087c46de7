"""Compile the Coq library and list what every headline theorem rests on.

    python proofs/check.py [--jobs N] [--coqchk] [--write] [FOLDER]

The library is compiled anew into FOLDER/build; the answer is FOLDER/build/assumptions.json (FOLDER: the one of this file unless
said otherwise). Exit 1 when a source uses what could hide a gap, a file does not compile, a headline theorem does not
exist, rests on an axiom or says something else than statements.txt. --write renews statements.txt and the table of
README.md; --coqchk has Coq's separate checker read every compiled file, those of mathcomp too. Where Coq is
missing it is installed with apt-get, for root; else exit 3. Standard library only.
"""

from __future__ import annotations

import argparse
import graphlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from utfproof.claims.theorems import CLOSED, HEADLINES, RESULTS, Headline, digest, headlines

LIBRARY = "Utfproof"
PACKAGES = ("coq", "libcoq-mathcomp", "libcoq-mathcomp-multinomials")
"""Debian's names."""
OPTIONS = {"-w"}
"""What _CoqProject may pass to Coq: warnings, nothing that weakens the logic."""
STATEMENTS = "statements.txt"
MARK = "@@"

FORBIDDEN = (
    r"Axioms?|Parameters?|Conjectures?|Admitted|admit|Admit\s+Obligations|give_up|bypass_check|Primitive|Declare|Module|Load|"
    r"Unset\s+(?:Guard|Positivity|Universe)\s+Checking|Set\s+Type\s+In\s+Type|Rewrite\s+Rules?|native_compute|Redirect"
)
"""Words that could leave something unproved; none is needed here."""
OUTSIDE = r"Hypothes[ie]s|Variables?|Context"
"""Assumptions that are fine in a section, which discharges them, and axioms outside."""


class Failed(Exception):
    """The library is not in order; the lines say where."""

    def __init__(self, lines: list[str], code: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.code = code


# --- sources ------------------------------------------------------------------------------------------------


def without_comments(text: str) -> str:
    """The text with comments (they nest) and strings blanked, line by line in place."""
    kept, depth, quoted, i = [], 0, False, 0
    while i < len(text):
        pair = text[i : i + 2]
        if not quoted and pair in ("(*", "*)") and (depth or pair == "(*"):
            depth += 1 if pair == "(*" else -1
            kept.append("  ")
            i += 2
            continue
        quote = text[i] == '"'
        hidden = depth or quoted or quote
        quoted ^= quote
        kept.append(" " if hidden and text[i] != "\n" else text[i])
        i += 1
    return "".join(kept)


def gaps(name: str, text: str) -> list[str]:
    """Where a source uses what could leave something unproved, a line each."""
    code, found = without_comments(text), []
    for match in re.finditer(rf"(?<![\w'])(?<!Section )(?<!End )(?:{FORBIDDEN})(?![\w'])", code):
        found.append((match.start(), " ".join(match[0].split())))
    sections: list[str] = []
    for match in re.finditer(rf"(?:^|(?<=\.\s))\s*(?:#\[[^]]*\]\s*)?(?:Local\s+|Global\s+)?"
                             rf"(Section|End|{OUTSIDE})(?![\w'])\s*(\w*)", code, re.MULTILINE):  # fmt: skip
        word, label = match[1], match[2]
        if word == "Section":
            sections.append(label)
        elif word == "End":
            if label in sections:
                del sections[sections.index(label) :]
        elif not sections:
            found.append((match.start(1), f"{word} outside a section"))
    return [f"{name}:{code.count(chr(10), 0, at) + 1}: {what} is not allowed" for at, what in sorted(found)]


def stands_in(name: str, folder: Path) -> bool:
    """Whether the file of a headline states it as a theorem."""
    file, _, theorem = name.partition(".")
    path = folder / "theories" / f"{file}.v"
    words = r"(?:Theorem|Corollary|Proposition|Lemma)"
    return path.is_file() and bool(
        re.search(rf"^{words}\s+{re.escape(theorem)}(?![\w'])", without_comments(path.read_text()), re.MULTILINE)
    )


def options(folder: Path) -> list[str]:
    """Coq's arguments from _CoqProject. Failed for any but warnings."""
    words = (folder / "_CoqProject").read_text().split()
    found, i = [], 0
    while i < len(words):
        if words[i : i + 3] == ["-Q", "theories", LIBRARY]:
            i += 3
        elif words[i] == "-arg" and i + 1 < len(words):
            found.append(words[i + 1])
            i += 2
        else:
            raise Failed([f"_CoqProject: {words[i]} is not understood"])
    if set(found[::2]) - OPTIONS:
        raise Failed([f"_CoqProject: {' '.join(found)} passes more than warnings to Coq"])
    return found


# --- Coq ----------------------------------------------------------------------------------------------------


def ensure_coq() -> str:
    """Coq's version; installed with apt-get where it is missing and we are root. Failed (3) without it."""
    if shutil.which("coqc") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {' '.join(PACKAGES)}", flush=True)
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", "-qq", *command], capture_output=True, check=False)
    if shutil.which("coqc") is None:
        raise Failed([f"coqc is missing; install Coq 8.16 with mathcomp (Debian: {', '.join(PACKAGES)})"], 3)
    return coq("coqc", "--print-version").split()[0]


def coq(*command: str, cwd: Path | None = None) -> str:
    """What a command of Coq prints. Failed with its own words otherwise."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode != 0:
        raise Failed((done.stderr or done.stdout).strip().splitlines()[-20:] or [f"{command[0]} failed"])
    return done.stdout


def dependencies(folder: Path) -> dict[str, set[str]]:
    """File -> the files of the library that it needs."""
    names = {path.stem for path in (folder / "theories").glob("*.v")}
    text = coq("coqdep", "-Q", "theories", LIBRARY, *(f"theories/{name}.v" for name in sorted(names)), cwd=folder)
    found: dict[str, set[str]] = {name: set() for name in names}
    for line in text.replace("\\\n", " ").splitlines():
        targets, _, needed = line.partition(":")
        made = re.match(r"theories/(\w+)\.vo(?:\s|$)", targets)
        if made:
            found[made[1]] |= {name for name in re.findall(r"theories/(\w+)\.vo(?:\s|$)", needed) if name != made[1]}
    return found


def compile_all(folder: Path, flags: list[str], jobs: int) -> None:
    """Every file, each as soon as what it needs is there, `jobs` at a time. Failed with Coq's message."""
    order = graphlib.TopologicalSorter(dependencies(folder))
    order.prepare()

    def compiled(name: str) -> tuple[str, float]:
        start = time.perf_counter()
        out = f"build/{LIBRARY}/{name}.vo"
        coq("coqc", "-noglob", "-Q", f"build/{LIBRARY}", LIBRARY, *flags, "-o", out, f"theories/{name}.v", cwd=folder)
        return name, time.perf_counter() - start

    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[tuple[str, float]]] = set()
        while order.is_active():
            running |= {pool.submit(compiled, name) for name in order.get_ready()}
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                name, seconds = future.result()
                print(f"  {name} {seconds:.1f} s", flush=True)
                order.done(name)


def question(wanted: list[str], files: list[str], imports: str) -> str:
    """The Coq file that prints each theorem's statement and what it rests on, each behind a mark. All files are imported, so
    that names are printed without them where only one file has them."""
    stated = dict.fromkeys(name.partition(".")[0] for name in wanted)
    files = [file for file in files if file not in stated] + list(stated)
    lines = [
        imports.strip(),
        *(f"From {LIBRARY} Require Import {file}." for file in files),
        "Unset Printing Implicit Defensive. Set Printing Width 110.",
    ]
    for name in wanted:
        full = f"{LIBRARY}.{name}"
        for kind, command in (("statement", f"Check @{full}."), ("assumptions", f"Print Assumptions {full}.")):
            lines += [f'Goal True. idtac "{MARK} {kind} {name}". Abort.', command]
    return "\n".join(lines) + "\n"


def answers(output: str) -> dict[str, dict[str, str]]:
    """Name -> what Coq printed behind each of its marks."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(rf"^{MARK} ", output, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        kind, _, name = head.strip().partition(" ")
        found.setdefault(name, {})[kind] = text.strip("\n")
    return found


def assumptions(printed: str) -> list[str]:
    """What Print Assumptions says a theorem rests on, an entry each; empty only for Coq's own words that it is closed.
    Failed for an empty answer."""
    text = printed.strip()
    if text.casefold() == CLOSED.casefold():
        return []
    entries: list[str] = []
    for line in text.splitlines():
        if entries and line[:1].isspace():
            entries[-1] += " " + line.strip()
        elif line.strip() not in ("", "Axioms:", "Section Variables:", "Opaque constants:", "Transparent constants:"):
            entries.append(line.strip())
    if not entries:
        raise Failed([f"Print Assumptions said {printed!r}"])
    return entries


def statement(printed: str) -> str:
    """What Check says after the name: the statement, its lines dedented to the first."""
    lines = printed.splitlines()
    body = [line.rstrip() for line in lines[1:]]
    return "\n".join(line[7:] if line.startswith(" " * 7) else line.strip().removeprefix(": ") for line in body)


# --- the whole ----------------------------------------------------------------------------------------------


def imports_of(folder: Path) -> str:
    """What the statements are printed with."""
    import tomllib

    return str(tomllib.loads((folder / HEADLINES).read_text()).get("imports", ""))


def statements_page(theorems: dict[str, dict[str, object]]) -> str:
    """The statements as Coq prints them."""
    head = "(* The headline theorems as Coq prints them; written by python proofs/check.py --write. *)\n"
    return head + "".join(f"\n{name} :\n{entry['statement']}\n" for name, entry in theorems.items())


def check(folder: Path, jobs: int = 2, *, coqchk: bool = False, write: bool = False) -> dict[str, dict[str, object]]:
    """Compile and ask; the theorems with file, statement and assumptions, which are left in build/assumptions.json.
    Failed where something is not in order; then no answer is left that would say otherwise."""
    start = time.perf_counter()
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    wanted = headlines(folder)
    made_from = digest(folder)
    lines = [line for path in sorted((folder / "theories").glob("*.v")) for line in gaps(path.name, path.read_text())]
    absent = [name for name in wanted if not stands_in(name, folder)]
    lines += [f"headlines.toml: {name} is no theorem of {wanted[name].file}" for name in absent]
    if lines:
        raise Failed(lines)
    flags, version = options(folder), ensure_coq()
    (build / LIBRARY).mkdir(parents=True)
    print(f"Coq {version}", flush=True)
    compile_all(folder, flags, jobs)
    files = sorted(path.stem for path in (folder / "theories").glob("*.v"))
    (build / "Question.v").write_text(question(list(wanted), files, imports_of(folder)))
    output = coq("coqc", "-noglob", "-Q", f"build/{LIBRARY}", LIBRARY, *flags, "build/Question.v", cwd=folder)
    found = answers(output)
    theorems: dict[str, dict[str, object]] = {
        name: {
            "file": entry.file,
            "statement": statement(found[name]["statement"]),
            "assumptions": assumptions(found[name]["assumptions"]),
        }
        for name, entry in wanted.items()
    }
    if made_from != digest(folder):
        raise Failed(["the sources changed while they were compiled; once more, please"])
    document = {
        "format": "utfproof-assumptions",
        "version": 1,
        "coq": version,
        "sources": made_from,
        "theorems": theorems,
    }
    partial = folder / (RESULTS + ".new")
    partial.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    partial.replace(folder / RESULTS)
    if write:
        (folder / STATEMENTS).write_text(statements_page(theorems))
    _report(folder, theorems)
    if coqchk:
        _second_reading(folder)
    seconds = time.perf_counter() - start
    print(f"{len(theorems)} theorems, all {CLOSED}; {len(files)} files, {seconds:.0f} s")
    return theorems


def _report(folder: Path, theorems: dict[str, dict[str, object]]) -> None:
    """Print what each theorem rests on. Failed where one rests on something, or says something new."""
    lines = []
    for name, entry in theorems.items():
        rests = entry["assumptions"]
        print(f"{name}: {'; '.join(rests) if isinstance(rests, list) and rests else CLOSED}")
        if rests:
            lines.append(f"{name} rests on {rests}")
    known = folder / STATEMENTS
    if (known.read_text() if known.is_file() else "") != statements_page(theorems):
        lines.append(
            f"{STATEMENTS} is not what the theorems say; python proofs/check.py --write, and read the difference"
        )
    if lines:
        raise Failed(lines)


def _second_reading(folder: Path) -> None:
    """coqchk on the whole library and everything below it: no axioms, no unchecked definitions."""
    start = time.perf_counter()
    files = sorted(path.stem for path in (folder / "build" / LIBRARY).glob("*.vo"))
    command = ["coqchk", "-silent", "-o", "-Q", f"build/{LIBRARY}", LIBRARY, *(f"{LIBRARY}.{file}" for file in files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=folder)
    report = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    summary = [line.strip() for line in report if line.startswith("* ")]
    unclean = set(CLEAN) ^ set(summary)
    if done.returncode != 0 or unclean:
        raise Failed(["coqchk reports:", *(report[-30:] or ["nothing"])])
    print(f"coqchk: no axioms, nothing unchecked, {time.perf_counter() - start:.0f} s")


CLEAN = (
    "* Theory: Set is predicative",
    "* Axioms: <none>",
    "* Constants/Inductives relying on type-in-type: <none>",
    "* Constants/Inductives relying on unsafe (co)fixpoints: <none>",
    "* Inductives whose positivity is assumed: <none>",
)
"""coqchk's summary where nothing is assumed."""


# --- the table of README.md ---------------------------------------------------------------------------------

BEGIN, END = "<!-- theorems: written by check.py --write -->", "<!-- end of theorems -->"


def table(wanted: dict[str, Headline]) -> str:
    """Paper's label, theorem with its file, notion and targets, and what it says."""
    rows = ["| paper | theorem | notion; targets | says |", "|---|---|---|---|"]
    for entry in wanted.values():
        file, _, theorem = entry.name.partition(".")
        labels = ", ".join(f"`{label}`" for label in entry.labels) or "new"
        about = "; ".join(filter(None, (", ".join(entry.notions), ", ".join(entry.targets)))) or "–"
        rows.append(
            f"| {labels} | [{file}]({entry.file}).`{theorem}` | {about} | {entry.says.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(rows)


def with_table(page: str, wanted: dict[str, Headline]) -> str:
    """README.md with its table renewed."""
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    return f"{before}{BEGIN}\n{table(wanted)}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=2, help="files compiled at a time")
    parser.add_argument("--coqchk", action="store_true", help="have coqchk read everything as well (minutes)")
    parser.add_argument("--write", action="store_true", help="renew statements.txt and README.md's table")
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    try:
        if given.write:
            page = folder / "README.md"
            page.write_text(with_table(page.read_text(), headlines(folder)))
        check(folder, given.jobs, coqchk=given.coqchk, write=given.write)
    except Failed as failure:
        print("\n".join(f"proofs: {line}" for line in str(failure).splitlines()), file=sys.stderr)
        return failure.code
    except ValueError as error:
        print(f"proofs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
