"""The seeds of the corpus, what is derived from them, and the judges: the checker, with NumPy too, the second judge, and the
verified checker where it is built. Each kind has two judges, three where both of the latter know it."""

import collections
import itertools
import json
import os
import resource
import shutil
import signal

import pytest
import second_checker
from certificate_forms import CERTIFICATES
from corpus import CORPUS, FILES, FOLDERS, canonical, derived, mutants, valid
from judges import UTFCHECK, verified, write_anew

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS

NUMPY = checker.Options(numpy=True)
built = pytest.mark.skipif(not UTFCHECK.is_file(), reason="the verified checker is not built (make checker)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_seeds(path):
    verdict = checker.check_file(path)
    assert verdict.code == checker.check_file(path, NUMPY).code == FILES[path], verdict
    assert verdict.message.isprintable()
    assert second_checker.judge(path.read_bytes(), path.parent) in (None, FILES[path])


def test_seeds_cover_the_format():
    for folder in FOLDERS:
        kinds = {
            json.loads(path.read_bytes()).get("kind") for path in FILES if path.parent.name == folder != "malformed"
        }
        assert folder == "malformed" or kinds == set(CERTIFICATES)
    claims = [(found["kind"], found["claim"], found["evidence"]) for _, found in valid()]
    methods = {(kind, evidence.get("method", "")) for kind, _, evidence in claims}
    assert {(name, kind.method) for name, all_ in checker.KINDS.items() for kind in all_.methods} <= methods
    named = {claim["host"].get("construction") for kind, claim, _ in claims if kind == "identity"}
    assert named == set(checker.IDENTITIES)
    bounds = {(c["notion"], c["targets"], c.get("free")) for kind, c, _ in claims if kind == "lower-bound"}
    assert {(row.notion.value, row.targets, row.free) for row in DIMENSION_ROWS} <= bounds


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_what_a_form_rules_out_is_malformed(kind, tmp_path):
    path, count = tmp_path / "derived.json", 0
    for name, found in derived(kind):
        raw = canonical(found)
        write_anew(path, raw)
        verdict = checker.check_file(path)
        assert verdict.code == checker.MALFORMED, (name, verdict)
        assert verdict.message.isprintable(), name
        assert second_checker.judge(raw) in (None, checker.MALFORMED), name
        count += 1
    assert count > 150


BATCH = 5000
"""Mutants that one process of the verified checker is given."""
LATE = -2
"""The code of a mutant that two seconds do not suffice for."""


class Late(checker.Stop):
    code = LATE


def code_of(raw, folder):
    """The checker's, in this process; a check that breaks off raises."""

    def ring(*_):
        raise Late

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        checker.check_document(checker.parse_canonical(raw), str(folder), checker.Options(), {})
    except checker.Stop as stop:
        return stop.code
    except (MemoryError, OverflowError):
        return checker.LIMIT
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return checker.VALID


def judged_alike(folder, count, number):
    """No check breaks off, and no judge says otherwise than the checker; how many mutants have each code."""
    for path in (CORPUS / "valid").iterdir():
        if path.suffix != ".json":
            shutil.copy(path, folder)
    counts, source = collections.Counter(), mutants(count, number)
    while batch := list(itertools.islice(source, BATCH)):
        codes = {}
        for at, (name, found) in enumerate(batch):
            raw = canonical(found)
            code = codes[folder / f"{at}.json"] = code_of(raw, folder)
            if code not in (checker.LIMIT, LATE):
                assert second_checker.judge(raw) in (None, code), (name, code, raw)
            (folder / f"{at}.json").write_bytes(raw)
        if UTFCHECK.is_file():
            for path, said in verified(folder).items():
                fits = codes[path] in (checker.LIMIT, LATE) or said in (None, codes[path] == checker.VALID)
                assert fits, (codes[path], said, path.read_bytes())
                counts["verified"] += said is not None
        counts.update(codes.values())
        for path in codes:
            path.unlink()
    return counts


@pytest.fixture
def limited():
    """Four gigabytes for this process and those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**32, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(("count", "number"), [
    (300, 0),
    pytest.param(5000, 1, marks=pytest.mark.full),
    pytest.param(int(os.environ.get("UTFPROOF_MUTANTS", 100_000)), 2, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_judges_agree_on_mutants(count, number, tmp_path, record_property):
    """UTFPROOF_MUTANTS: how many in the last case. No check breaks off or runs out of time."""
    counts = judged_alike(tmp_path, count, number)
    record_property("counts", dict(counts))
    print(dict(counts))
    assert counts[checker.VALID] > count // 50
    assert counts[checker.INVALID] > count // 50
    assert not counts[checker.INTERNAL]
    assert not counts[LATE]


@built
def test_the_verified_checker_agrees():
    found = verified(*(CORPUS / folder for folder in FOLDERS))
    wrong = {path: said for path, said in found.items() if said not in (None, FILES[path] == checker.VALID)}
    assert wrong == {}
    proved = {json.loads(path.read_bytes())["kind"] for path, said in found.items() if said}
    assert proved == set(CERTIFICATES) - {"enclosure", "gated-identity"}
