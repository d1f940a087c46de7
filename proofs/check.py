"""Compile the Coq library and list what every headline theorem rests on, and the definitions that it speaks by.

    python proofs/check.py [--jobs N] [--coqchk] [--write] [FOLDER]

The library is compiled anew into FOLDER/build; the answer is FOLDER/build/assumptions.json (FOLDER: the one of this file unless
said otherwise), which is deleted first and written last, where everything is in order. Exit 1 when a source uses what could
hide a gap, a file does not compile, a headline theorem does not exist, rests on an axiom or says something else than
statements.txt, or a definition that it needs is no longer the one of definitions.txt. --write renews both and the tables of
README.md; --coqchk has Coq's separate checker read every compiled file, those of mathcomp too. FOLDER/softmax is a library upon
this one, compiled after it where mathcomp-analysis is installed, whose axioms its theorems may rest on (--coqchk leaves it
aside). Where Coq is missing it is installed with apt-get, for root; else exit 3. Standard library only.
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
import textwrap
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from utfproof.claims.theorems import (
    CLOSED,
    DECLARED,
    DEFINITIONS,
    HEADLINES,
    RESULTS,
    SOFTMAX,
    STATEMENTS,
    Headline,
    all_headlines,
    allowed,
    digest,
    headlines,
    libraries,
)

LIBRARY = "Utfproof"
PACKAGES = ("coq", "libcoq-mathcomp", "libcoq-mathcomp-multinomials")
ANALYSIS = "libcoq-mathcomp-analysis"
"""Debian's names; the last is for softmax/ alone."""
OPTIONS = {"-w"}
"""What _CoqProject may pass to Coq: warnings, nothing that weakens the logic."""
MARK = "@@"

FORBIDDEN = (
    r"Axioms?|Parameters?|Conjectures?|Admitted|admit|Admit\s+Obligations|give_up|bypass_check|Primitive|Declare|Module|Load|"
    r"Defined|"
    r"Unset\s+(?:Guard|Positivity|Universe)\s+Checking|Set\s+Type\s+In\s+Type|Rewrite\s+Rules?|native_compute|Redirect"
)
"""Words that could leave something unproved, or a definition where a lemma stands; none is needed here."""
TYPES = r"Record|Structure|Inductive|CoInductive|Variant|Class"
DEFINED = rf"Definition|Fixpoint|CoFixpoint|Function|Instance|Canonical|{TYPES}"
PROVED = r"Theorem|Corollary|Proposition|Lemma|Fact|Remark|Example"
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


def below(folder: Path) -> list[Path]:
    """The library that this one rests on, if it rests on one."""
    return [folder.parent] if folder.name == SOFTMAX else []


def theories(folder: Path) -> list[Path]:
    """The sources of a library, and of the one below it."""
    return [path for library in (*below(folder), folder) for path in sorted((library / "theories").glob("*.v"))]


def declared(folder: Path, words: str) -> list[str]:
    """File.name of everything that the sources introduce by one of these words, in the order of files and lines."""
    found = []
    for path in theories(folder):
        pattern = rf"^\s*(?:#\[[^]]*\]\s*)?(?:(?:Local|Global|Program)\s+)*(?:{words})\s+([\w']+)"
        names = re.findall(pattern, without_comments(path.read_text()), re.MULTILINE)
        found += [f"{path.stem}.{name}" for name in names]
    return found


def parts(folder: Path) -> dict[str, str]:
    """File.name of constructors and fields -> File.name of their type."""
    found: dict[str, str] = {}
    for path in theories(folder):
        code = without_comments(path.read_text())
        for name, body in re.findall(rf"^\s*(?:{TYPES})\s+([\w']+)(.*?)\.\s", code, re.MULTILINE | re.DOTALL):
            inside = body[body.index(":=") :]
            made = r"\{\s*([\w']+)\s*:|;\s*([\w']+)\s*:|:=\s*([\w']+)\s*(?=[{:|])|\|\s*([\w']+)"
            names = ["".join(match) for match in re.findall(made, inside)]
            found |= {f"{path.stem}.{part}": f"{path.stem}.{name}" for part in (*names, f"Build_{name}")}
    return found


def options(folder: Path) -> list[str]:
    """Coq's arguments from _CoqProject. Failed for any but warnings."""
    words = (folder / "_CoqProject").read_text().split()
    found, i = [], 0
    while i < len(words):
        if words[i : i + 3] in (["-Q", "theories", LIBRARY], ["-Q", "../theories", LIBRARY]):
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
        install = ["install", "-y", "--no-install-recommends"]
        for command in (["update"], [*install, *PACKAGES], [*install, ANALYSIS]):
            subprocess.run(["apt-get", "-qq", *command], capture_output=True, check=False)
    if shutil.which("coqc") is None:
        raise Failed([f"coqc is missing; install Coq 8.16 with mathcomp (Debian: {', '.join(PACKAGES)})"], 3)
    return coq("coqc", "--print-version").split()[0]


def analysis() -> bool:
    """Whether mathcomp-analysis is installed, with its real exponential."""
    return (Path(coq("coqc", "-where").strip()) / "user-contrib/mathcomp/analysis/exp.vo").is_file()


def places(folder: Path) -> list[str]:
    """Coq's arguments for where compiled files lie, seen from a library's folder."""
    upward = ["-Q", f"../build/{LIBRARY}", LIBRARY] if below(folder) else []
    return [*upward, "-Q", f"build/{LIBRARY}", LIBRARY]


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
        coq("coqc", "-noglob", *places(folder), *flags, "-o", out, f"theories/{name}.v", cwd=folder)
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


def question(wanted: list[str], defined: list[str], files: list[str], imports: str) -> str:
    """The Coq file that prints each theorem's statement and what it rests on, and each definition, each behind a mark. All
    files are imported, so that names are printed without them where only one file has them."""
    stated = dict.fromkeys(name.partition(".")[0] for name in wanted)
    files = [file for file in files if file not in stated] + list(stated)
    lines = [
        imports.strip(),
        *(f"From {LIBRARY} Require Import {file}." for file in files),
        "Unset Printing Implicit Defensive. Set Printing Width 110. Set Printing Depth 1000000.",
    ]
    for name in wanted:
        full = f"{LIBRARY}.{name}"
        for kind, command in (("statement", f"Check @{full}."), ("assumptions", f"Print Assumptions {full}.")):
            lines += [f'Goal True. idtac "{MARK} {kind} {name}". Abort.', command]
    for name in defined:
        lines += [f'Goal True. idtac "{MARK} definition {name}". Abort.', f"Print {LIBRARY}.{name}."]
    return "\n".join(lines) + "\n"


def walk(wanted: list[str], defined: list[str]) -> str:
    """The Coq file that prints statements and definitions with every name that they use, implicit ones and notations' too."""
    files = dict.fromkeys(name.partition(".")[0] for name in [*wanted, *defined])
    lines = [f"From {LIBRARY} Require {file}." for file in files]
    lines.append("Set Printing All. Set Printing Depth 1000000. Set Printing Width 100000.")
    for names, kind, command in ((wanted, "statement", "Check @"), (defined, "definition", "Print ")):
        for name in names:
            lines += [f'Goal True. idtac "{MARK} {kind} {name}". Abort.', f"{command}{LIBRARY}.{name}."]
    return "\n".join(lines) + "\n"


def definitions(found: dict[str, dict[str, str]], proved: list[str], homes: dict[str, str]) -> dict[str, list[str]]:
    """Headline -> the definitions that its statement needs, directly or through other definitions, sorted. Proofs are not
    followed. Failed for a name of the library that is neither a definition, a part of one, nor a theorem."""
    homes = homes | {name: name for name, entry in found.items() if "definition" in entry}
    files = "|".join(sorted({name.partition(".")[0] for name in [*found, *proved]}))
    needs: dict[str, set[str]] = {}
    for name, entry in found.items():
        text = "\n".join(entry.values()).replace(f"{LIBRARY}.", "")
        names = set(re.findall(rf"(?<![\w'.])((?:{files})\.[\w']+)", text)) - set(proved)
        unknown = names - set(homes)
        if unknown:
            raise Failed([f"{name} needs {', '.join(sorted(unknown))}, which no source defines"])
        needs[name] = {homes[other] for other in names} - {name}
    answer = {}
    for name, entry in found.items():
        if "statement" in entry:
            reached, new = set(needs[name]), set(needs[name])
            while new:
                new = set().union(*(needs[other] for other in new)) - reached
                reached |= new
            answer[name] = sorted(reached)
    return answer


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
    """The statements as Coq prints them, each with the definitions that it needs."""
    head = "(* The headline theorems as Coq prints them, and the definitions that each needs; written by check.py --write. *)\n"
    entries = []
    for name, entry in theorems.items():
        needs = entry["definitions"]
        listed = ", ".join(needs) if isinstance(needs, list) and needs else "mathcomp's definitions alone"
        by = textwrap.fill(f"(* by {listed} *)", 110, subsequent_indent="   ", break_long_words=False)
        entries.append(f"\n{name} :\n{entry['statement']}\n{by}\n")
    return head + "".join(entries)


def definitions_page(
    theorems: dict[str, dict[str, object]], printed: dict[str, dict[str, str]], order: list[str], known: str = ""
) -> str:
    """The definitions that some headline needs, as Coq prints them, in the order of files and lines, with their number of
    headlines. known: the page of the library below; what stands there is left out."""
    counts: dict[str, int] = {}
    for entry in theorems.values():
        needs = entry["definitions"]
        for name in needs if isinstance(needs, list) else ():
            if f"\n(* {name}: " not in known:
                counts[name] = counts.get(name, 0) + 1
    more = ", besides those of the library below" if known else ""
    head = (
        f"(* The {len(counts)} definitions that the headline theorems speak by{more}; written by check.py --write. *)\n"
    )
    texts = [
        f"\n(* {name}: {counts[name]} theorems *)\n{printed[name]['definition'].partition(chr(10) * 2)[0]}\n"
        for name in order
        if name in counts
    ]
    return head + "".join(texts)


def check(folder: Path, jobs: int = 2, *, coqchk: bool = False, write: bool = False) -> dict[str, dict[str, object]]:
    """Compile and ask; the theorems with file, statement, definitions and assumptions, which are left in
    build/assumptions.json. Failed where something is not in order; then there is no such file."""
    start = time.perf_counter()
    build = folder / "build"
    (folder / RESULTS).unlink(missing_ok=True)
    shutil.rmtree(build, ignore_errors=True)
    wanted = headlines(folder)
    made_from = digest(folder, pages=False)
    lines = [line for path in sorted((folder / "theories").glob("*.v")) for line in gaps(path.name, path.read_text())]
    absent = [name for name in wanted if not stands_in(name, folder)]
    lines += [f"headlines.toml: {name} is no theorem of {wanted[name].file}" for name in absent]
    if lines:
        raise Failed(lines)
    flags, version = options(folder), ensure_coq()
    (build / LIBRARY).mkdir(parents=True)
    print(f"Coq {version}", flush=True)
    compile_all(folder, flags, jobs)
    theorems, pages = _asked(folder, wanted, flags)
    if made_from != digest(folder, pages=False):
        raise Failed(["the sources changed while they were compiled; once more, please"])
    if write:
        for page, text in pages.items():
            (folder / page).write_text(text)
    _report(folder, theorems, pages)
    if coqchk:
        _second_reading(folder)
    _record(folder, version, theorems)
    files, seconds = len(list((folder / "theories").glob("*.v"))), time.perf_counter() - start
    print(f"{len(theorems)} theorems, all {DECLARED if allowed(folder) else CLOSED}; {files} files, {seconds:.0f} s")
    return theorems


def _asked(
    folder: Path, wanted: dict[str, Headline], flags: list[str]
) -> tuple[dict[str, dict[str, object]], dict[str, str]]:
    """What Coq says of each headline, and the pages that show it."""
    defined = list(dict.fromkeys(declared(folder, DEFINED)))
    walked = answers(_ask(folder, "Walk", walk(list(wanted), defined), flags))
    needs = definitions(walked, declared(folder, PROVED), parts(folder))
    used = [name for name in defined if any(name in names for names in needs.values())]
    own = {path.stem for path in (folder / "theories").glob("*.v")}
    files = sorted(own | {name.partition(".")[0] for name in used})
    known = "".join((library / DEFINITIONS).read_text() for library in below(folder))
    found = answers(_ask(folder, "Question", question(list(wanted), used, files, imports_of(folder)), flags))
    theorems: dict[str, dict[str, object]] = {
        name: {
            "file": entry.file,
            "statement": statement(found[name]["statement"]),
            "definitions": needs[name],
            "assumptions": assumptions(found[name]["assumptions"]),
        }
        for name, entry in wanted.items()
    }
    return theorems, {
        STATEMENTS: statements_page(theorems),
        DEFINITIONS: definitions_page(theorems, found, used, known),
    }


def _ask(folder: Path, name: str, text: str, flags: list[str]) -> str:
    """What Coq prints for these commands."""
    (folder / "build" / f"{name}.v").write_text(text)
    return coq("coqc", "-noglob", *places(folder), *flags, f"build/{name}.v", cwd=folder)


def _record(folder: Path, version: str, theorems: dict[str, dict[str, object]]) -> None:
    """Leave the answer, bound to sources, statements and definitions by their digest."""
    document = {
        "format": "utfproof-assumptions",
        "version": 2,
        "coq": version,
        "sources": digest(folder),
        "theorems": theorems,
    }
    partial = folder / (RESULTS + ".new")
    partial.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    partial.replace(folder / RESULTS)


def _report(folder: Path, theorems: dict[str, dict[str, object]], pages: dict[str, str]) -> None:
    """Print what each theorem rests on. Failed where that is an axiom that is not allowed, or one says something new."""
    lines = []
    for name, entry in theorems.items():
        rests = entry["assumptions"]
        assert isinstance(rests, list)
        print(f"{name}: {'; '.join(axiom.partition(' : ')[0] for axiom in rests) if rests else CLOSED}")
        if more := [axiom for axiom in rests if axiom not in allowed(folder)]:
            lines.append(f"{name} rests on {more}")
    for page, text in pages.items():
        known = folder / page
        if (known.read_text() if known.is_file() else "") != text:
            lines.append(
                f"{page} is not what the theorems say; python proofs/check.py --write, and read the difference"
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


# --- the tables of README.md --------------------------------------------------------------------------------

BEGIN, END = "<!-- theorems: written by check.py --write -->", "<!-- end of theorems -->"


def table(wanted: dict[str, Headline]) -> str:
    """Paper's label, theorem with its file, notion and targets, and what it says."""
    rows = ["| paper | theorem | notion; targets | says |", "|---|---|---|---|"]
    for entry in wanted.values():
        file, _, theorem = entry.name.partition(".")
        labels = ", ".join(f"`{label}`" for label in entry.labels) or "new"
        about = "; ".join(filter(None, (", ".join(entry.notions), ", ".join(entry.targets)))) or "–"
        rows.append(f"| {labels} | [{file}]({entry.file}).`{theorem}` | {about} | {cell(entry.says)} |")
    return "\n".join(rows)


def cell(text: str) -> str:
    """Text for a cell."""
    return text.replace("|", "\\|")


def with_table(page: str, wanted: dict[str, Headline]) -> str:
    """README.md with its table renewed."""
    if BEGIN not in page:
        return page
    return f"{page.split(BEGIN)[0]}{BEGIN}\n{table(wanted)}\n{END}{page.split(END)[1]}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=2, help="files compiled at a time")
    parser.add_argument("--coqchk", action="store_true", help="have coqchk read everything as well (minutes)")
    parser.add_argument(
        "--write", action="store_true", help="renew statements.txt, definitions.txt and README.md's tables"
    )
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    for library in libraries(folder):
        (library / RESULTS).unlink(missing_ok=True)
    try:
        if given.write:
            page = folder / "README.md"
            page.write_text(with_table(page.read_text(), all_headlines(folder)))
        check(folder, given.jobs, coqchk=given.coqchk, write=given.write)
        for library in libraries(folder)[1:]:
            if analysis():
                check(library, given.jobs, write=given.write)
            else:
                print(f"{library.name}: left out, mathcomp-analysis is missing (Debian: {ANALYSIS})")
    except Failed as failure:
        print("\n".join(f"proofs: {line}" for line in str(failure).splitlines()), file=sys.stderr)
        return failure.code
    except (ValueError, OSError) as error:
        print(f"proofs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
