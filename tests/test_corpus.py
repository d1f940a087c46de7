"""The seeds of the corpus, what is derived from them, and the judges: the checker, with NumPy too, the second judge, and the
verified checker where it is built. Each kind has two judges, three where both of the latter know it."""

import json

import pytest
import sceptic
from corpus import CORPUS, FILES, FOLDERS, canonical, derived, mutants, valid
from judges import UTFCHECK, verified, write_anew

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS
from utfproof.certificates.forms import CERTIFICATES
from utfproof.certificates.limited import Limited

NUMPY = checker.Options(numpy=True)
built = pytest.mark.skipif(not UTFCHECK.is_file(), reason="the verified checker is not built (make checker)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_seeds(path):
    verdict = checker.check_file(path)
    assert verdict.code == checker.check_file(path, NUMPY).code == FILES[path], verdict
    assert verdict.message.isprintable()
    assert sceptic.judge(path.read_bytes(), path.parent) in (None, FILES[path])


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
        assert sceptic.judge(raw) in (None, checker.MALFORMED), name
        count += 1
    assert count > 150


def judged_alike(folder, count, number):
    """No check breaks off, and no judge says otherwise than the checker; how many of the mutants are valid, and invalid."""
    codes = {}
    with Limited(checker.Options(), 2**30, 5) as limited:
        for at, (name, found) in enumerate(mutants(count, number)):
            path, raw = folder / f"{at}.json", canonical(found)
            path.write_bytes(raw)
            verdict = limited.judge(str(path), False)
            codes[path] = verdict.code
            assert verdict.code != checker.INTERNAL, (name, verdict, raw)
            if verdict.code != checker.LIMIT:
                assert sceptic.judge(raw) in (None, verdict.code), (name, verdict, raw)
    if UTFCHECK.is_file():
        for path, said in verified(folder).items():
            fits = said is None or codes[path] == checker.LIMIT or said == (codes[path] == checker.VALID)
            assert fits, (codes[path], said, path.read_bytes())
    values = list(codes.values())
    return values.count(checker.VALID), values.count(checker.INVALID)


@pytest.mark.parametrize(("count", "number"), [
    (300, 0),
    pytest.param(5000, 1, marks=pytest.mark.full),
    *(pytest.param(100_000, number, marks=pytest.mark.exhaustive) for number in range(2, 12)),
])  # fmt: skip
def test_judges_agree_on_mutants(count, number, tmp_path):
    good, bad = judged_alike(tmp_path, count, number)
    assert good > count // 50
    assert bad > count // 50


@built
def test_the_verified_checker_agrees():
    found = verified(*(CORPUS / folder for folder in FOLDERS))
    wrong = {path: said for path, said in found.items() if said not in (None, FILES[path] == checker.VALID)}
    assert wrong == {}
    proved = {json.loads(path.read_bytes())["kind"] for path, said in found.items() if said}
    assert proved == set(CERTIFICATES) - {"enclosure"}
