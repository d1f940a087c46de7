"""A campaign of mutants: certificates of the corpus and drawn ones, changed in form, content or bytes, before three judges.

    python tests/campaign.py --count 1000000 [--seed 1] [--begin 0] [--processes 2] [--log FILE] [--accepted FILE] [--json FILE]

The judges are the checker, the second judge of tests/sceptic.py and, where it is built, the verified checker. Mutants come in
parts of PART, each drawn from (seed, number of the part) alone and logged as one line when it is judged: run again with the
same log, a campaign goes on where it was stopped (with other judges it begins anew). Every accepted certificate's statement
is looked at once more, without its evidence, by tests/truth.py. Prints how the verdicts agree, and every mutant that should not
be: a falsehood (accepted by the checker where another judge, or the statement itself, says otherwise), a judge that broke off,
one over SLOW seconds of a processor, another disagreement. Exit status 0 if there is none.
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import make_corpus as corpus
import sceptic
import truth
from test_certificate_fields import Pairs, paired, text_of
from test_certificates import OPTIONS, copy_sidecars
from test_fuzz_checker import (
    Hangs,
    any_statement,
    corpus_files,
    corpus_inputs,
    inputs,
    part,
    places,
    put,
    stop,
    with_files_of_the_corpus,
)

from utfproof.certificates import checker
from utfproof.cli import verified
from utfproof.errors import MalformedInput

SLOW = 20
PART = 2000
VERDICTS = {0: "valid", 1: "invalid", 2: "malformed", 3: "over a limit", None: "not judged"}
TRUTHS = {True: "true", False: "false", None: "not settled"}
KINDS = sorted(checker.KINDS)


# ----------------------------------------------------------------------------------------------------
# Mutants


def words_of(documents):
    """Field -> every word that stands in it somewhere."""
    found = {}
    for document in documents:
        for path in places(document):
            above = part(document, path[:-1]) if path else None
            if isinstance(above, Pairs) and isinstance(word := above[path[-1]][1], str):
                found.setdefault(above[path[-1]][0], set()).add(word)
    return {field: sorted(words) for field, words in found.items()}


def nudged(source, tree, words):
    """Mostly still of a certificate's form: numbers nearby or from elsewhere in it, entries swapped, other words of a field."""
    for _ in range(source.choice([1, 1, 1, 2])):
        paths = [path for path in places(tree) if path]
        field = source.choice(["claim", "evidence", "shape", ""])  # evenly, however long the evidence is
        within = [path for path in paths if not field or tree[path[0]][0] == field]
        path = source.choice(within or paths)
        inner, above = part(tree, path), part(tree, path[:-1])
        if type(inner) is int or (isinstance(inner, str) and re.fullmatch("-?[0-9]{1,400}", inner)):
            numbers = [n for p in paths if type(n := part(tree, p)) is int]
            new = source.choice([int(inner) + 1, int(inner) - 1, -int(inner), 2 * int(inner), *numbers[:50]])
            tree = put(tree, path, lambda _, new=new: corpus.written(new))
        elif isinstance(inner, str) and isinstance(above, Pairs):
            known = words.get(above[path[-1]][0], [inner])
            tree = put(tree, path, lambda _, known=known: source.choice(known))
        elif type(inner) is list and inner:
            i, j, new = source.randrange(len(inner)), source.randrange(len(inner)), list(inner)
            how = source.randrange(4)
            if how == 0:
                del new[i]
            elif how == 1:
                new.insert(i, inner[j])
            else:
                new[i], new[j] = (new[j], new[i]) if how == 2 else (new[j], new[j])
            tree = put(tree, path, lambda _, new=new: new)
    return tree


@lru_cache(maxsize=1)
def material():
    """Certificates of the corpus that can be read, by kind, and the words that stand in their fields."""
    kinds = [
        [paired(json.loads(path.read_bytes())) for path in paths]
        for (folder, _), paths in corpus_files(3000).items()
        if folder != "malformed"
    ]
    return kinds, words_of(tree for trees in kinds for tree in trees)


def nudged_inputs(seed):
    """Certificates of the corpus that the judges accept or find false, and drawn statements, nudged."""
    source = random.Random(seed)
    kinds, words = material()
    while True:
        tree = source.choice(source.choice(kinds)) if source.random() < 0.7 else paired(any_statement(source))
        yield "nudged", text_of(nudged(source, tree, words)).encode()


def mutants(seed, number):
    """The mutants of one part."""
    seed = f"{seed} {number}"
    near, streams = nudged_inputs(seed), (corpus_inputs(PART, seed), inputs(PART, seed))
    return [next(near if i % 2 else streams[i // 2 % 2]) for i in range(PART)]


# ----------------------------------------------------------------------------------------------------
# Judges


def timed(judge):
    """(what the judge says, seconds of a processor)."""
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 3 * SLOW)
    try:
        return judge(), time.process_time() - start
    except Hangs:
        return "hangs", time.process_time() - start
    except Exception as error:
        return f"broke off: {type(error).__name__}: {error}", time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def verified_verdicts(binary, place, count):
    """(What the verified checker says, its seconds) of each file: None where it does not cover it, or without a binary. One
    process reads all of them; where it ends early it is started again behind the file at which it did."""
    said, codes = [], {b"valid": 0, b"rejected": 1, b"kind": None, b"not": 3}
    line = re.compile(rb"^" + re.escape(bytes(place)) + rb"/[0-9]+\.json: (valid|rejected|kind|not)")
    limit = 5 * SLOW
    while binary and len(said) < count:
        run = subprocess.run(
            [binary, "--seconds", str(SLOW // 2), *(place / f"{i:04}.json" for i in range(len(said), count))],
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
        )
        lines = re.split(rb"(?m)(?=^" + re.escape(bytes(place)) + rb"/)", run.stdout)  # a reason can hold any bytes
        for found in filter(None, map(line.match, lines)):
            took = re.search(rb", ([0-9.]+) s\n\Z", found.string)
            seconds = float(took[1]) if took else 0.0  # on a clock: others may have had the processor
            if seconds > SLOW:
                seconds = alone(binary, place / f"{len(said):04}.json")
            said.append((codes[found[1]], seconds))
        if len(said) < count:
            said.append((f"broke off: {run.returncode} {run.stderr[-200:]!r}", 0.0))
    return said or [(None, 0.0)] * count


def alone(binary, path):
    """The seconds of a processor that the verified checker takes for one file."""

    def taken():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = taken()
    subprocess.run([binary, "--seconds", str(SLOW // 2), path], capture_output=True, check=False)
    return taken() - before


def problem_of(first, second, third, false):
    """What is wrong with three verdicts (a number, None where a judge can't say, a word where it broke off), or ""."""
    if odd := [verdict for verdict in (first, second, third) if isinstance(verdict, str)]:
        return odd[0]
    if first == 0 and (second in (1, 2) or third == 1 or false):
        return "FALSEHOOD: " + (false or "accepted by the checker alone")
    if second is not None and first not in (3, second):
        return "the second judge disagrees"
    if third == 0 and first in (1, 2):
        return "the verified checker disagrees"
    return ""


def kind_of(raw):
    try:
        kind = json.loads(raw)["kind"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "unreadable"
    return kind if kind in KINDS else "unreadable"


def judged(seed, number, folder, binary, size=PART):
    """One part: {"seen": [kind, verdicts, times], "truth": ..., "wrong": ..., "slowest": ..., "accepted": ...}."""
    folder = Path(folder)
    signal.signal(signal.SIGPROF, stop)
    drawn = mutants(seed, number)[:size]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for path in folder.iterdir():
            if path.suffix in (".bin", ".safetensors"):
                (Path(place) / path.name).hardlink_to(path)
        paths = [Path(place) / f"{i:04}.json" for i in range(len(drawn))]
        for path, (_, raw) in zip(paths, drawn, strict=True):
            path.write_bytes(raw)
        thirds = verified_verdicts(binary, Path(place), len(drawn))
        seen, told, wrong, slowest, accepted = Counter(), Counter(), [], 0.0, []
        for path, (how, raw), (third, last) in zip(paths, drawn, thirds, strict=True):
            verdict, took = timed(lambda path=path: checker.check_file(path, OPTIONS))
            first = verdict if isinstance(verdict, str) else verdict.code
            if not isinstance(verdict, str) and "broke off" in verdict.message:
                first = verdict.message
            second, also = timed(lambda raw=raw, place=place: sceptic.judge(raw, Path(place)))
            longest, kind, false = max(took, also, last), kind_of(raw), ""
            if first == 0:
                true, _ = timed(lambda raw=raw: truth.of(json.loads(raw)))
                false = "its statement is false" if true is False else true if isinstance(true, str) else ""
                told[kind, TRUTHS.get(true, "broke off")] += 1
                accepted.append(raw.decode())
            seen[kind, *(VERDICTS.get(verdict, "broke off") for verdict in (first, second, third))] += 1
            slowest = max(slowest, longest)
            if said := problem_of(first, second, third, false) or "over the time" * (longest > SLOW):
                wrong.append([how, said, [first, second, third], raw.decode("latin-1")])
    counts = {
        "seen": [[*key, n] for key, n in sorted(seen.items())],
        "truth": [[*key, n] for key, n in sorted(told.items())],
    }
    return {"part": number, **counts, "wrong": wrong, "slowest": slowest, "accepted": accepted}


# ----------------------------------------------------------------------------------------------------
# The campaign


@contextmanager
def held(folder):
    """The corpus as it is now, whatever is done to the files meanwhile."""
    place = corpus.CORPUS
    shutil.copytree(place, folder / "corpus")
    corpus.CORPUS = folder / "corpus"
    (folder / "files").mkdir()
    copy_sidecars(folder / "files")
    with_files_of_the_corpus(folder / "files")
    try:
        yield str(folder / "files")
    finally:
        corpus.CORPUS = place


def digests():
    """Of the judges' sources: what a log and its figures belong to."""
    here = Path(__file__).resolve().parent
    place = here.parent / "proofs" / "checker"
    proofs = sorted([*place.glob("*.v"), *place.glob("*.ml")])
    sources = {
        "checker": [Path(checker.__file__)],
        "second judge": [Path(sceptic.__file__)],
        "verified checker": proofs,
    }
    return {
        name: hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
        for name, paths in sources.items()
    }


def run_part(task):
    return judged(*task)


def campaign(numbers, size, seed, processes, log, accepted):
    """The logged parts, those of before included."""
    try:
        binary = str(verified.binary())
    except MalformedInput:
        binary = ""
    done, asked = {}, [seed, digests()]
    if log and log.exists():
        done = {
            row["part"]: row
            for row in map(json.loads, log.read_text().splitlines())
            if [row["seed"], row["judges"]] == asked
        }
    with tempfile.TemporaryDirectory() as folder, held(Path(folder)) as files:
        tasks = [(seed, number, files, binary, size) for number in numbers if number not in done]
        pool = multiprocessing.get_context("fork").Pool(processes) if processes > 1 else None
        for row in pool.imap_unordered(run_part, tasks) if pool else map(run_part, tasks):
            if accepted:
                with accepted.open("a") as out:
                    out.writelines(f"{text}\n" for text in row["accepted"])
            row |= {"seed": seed, "judges": asked[1], "accepted": len(row["accepted"])}
            done[row["part"]] = row
            if log:
                with log.open("a") as out:
                    out.write(json.dumps(row) + "\n")
            for how, problem, verdicts, raw in row["wrong"]:
                print(f"{problem} ({how}, {verdicts}): {raw[:600]!r}", flush=True)
            if len(done) % 20 == 0:
                print(f"{len(done)} parts of {len(numbers)}", file=sys.stderr, flush=True)
        if pool:
            pool.close()
            pool.join()
    return [done[number] for number in numbers]


def summary(rows, seed):
    """What results/campaign-cpu.json keeps."""
    seen, told = Counter(), Counter()
    for row in rows:
        seen.update({tuple(key): n for *key, n in row["seen"]})
        told.update({tuple(key): n for *key, n in row["truth"]})
    counts = {}
    for (kind, *verdicts), n in sorted(seen.items()):
        counts.setdefault(kind, {})[" / ".join(verdicts)] = n
    statements = {}
    for (kind, said), n in sorted(told.items()):
        statements.setdefault(kind, {})[said] = n
    wrong = Counter(problem.split(":")[0] for row in rows for _, problem, *_ in row["wrong"])
    return {
        "seed": seed,
        "mutants": sum(seen.values()),
        "judges": digests(),
        "verdicts (checker / second judge / verified checker)": counts,
        "statements of the accepted": statements,
        "wrong": dict(wrong),
        "slowest check, seconds of a processor": round(max(row["slowest"] for row in rows), 1),
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0, help="the number of the first part")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--log", type=Path, help="one line a part; a campaign with a log goes on where it was stopped")
    parser.add_argument("--accepted", type=Path, help="where the accepted certificates are kept")
    parser.add_argument("--json", type=Path, help="where the counts are written")
    args = parser.parse_args(arguments)
    size = min(PART, args.count)
    numbers = range(args.begin, args.begin - (-args.count // size))
    rows = campaign(numbers, size, args.seed, args.processes, args.log, args.accepted)
    found = summary(rows, args.seed)
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if args.json:
        args.json.write_text(text)
    print(text)
    falsehoods, wrong = found["wrong"].get("FALSEHOOD", 0), sum(found["wrong"].values())
    print(f"{found['mutants']} mutants: {falsehoods} accepted falsehoods, {wrong} wrong in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
