"""Certificates of kind `realization`: prover, checker and sceptic agree, and what they test is all needed."""

import dataclasses
import json
from fractions import Fraction

import corpus_forms
import corpus_realization
import make_corpus
import numpy as np
import pytest
import sceptic
from judges import OPTIONS, code_of, confirmed
from planting import changes_a_verdict
from test_certificate_fields import mutants, paired, text_of
from test_realization import drawn, real, slow_least

from utfproof.certificates import checker
from utfproof.errors import ResourceLimit
from utfproof.models.realization import certificate as prover
from utfproof.models.realization.certificate import certificate, require_valid, target_digest, target_document
from utfproof.models.realization.hankel import forms
from utfproof.models.realization.host import least_host
from utfproof.shapes import Shape
from utfproof.weights import write_target

pytestmark = pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")

FILES = {
    folder: sorted((make_corpus.CORPUS / folder).glob("realization-*.json"))
    for folder in ("valid", "invalid", "malformed")
}


def certified(target):
    host, E, least = least_host(target)
    return certificate(least, host, E)


# --- prover, checker and sceptic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("H", "L"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_least_hosts_are_certified(H, L, residual, tmp_path):
    rng = np.random.default_rng(10 * H + L)
    for density, D, d, d_out in ((1.0, 5, 1, 2), (0.4, 6, 2, 1), (0.25, 7, 1, 1)):
        target = drawn(rng, Shape(H, L, d, 2, d_out, residual=residual), D, density=density)
        found = certified(target)
        assert found.document["shape"]["m"] == slow_least(target)[0]
        verdict = confirmed(found, tmp_path)
        assert verdict.code == 0, verdict
        assert (verdict.facts["width"], verdict.facts["verdict"]) == (D, "least m")
        assert verdict.facts["target"] == target_digest(target_document(forms(target)))
        assert f"m = {found.document['shape']['m']}" in verdict.message


def test_lower_bounds_with_steps(tmp_path):
    rng, steps = np.random.default_rng(7), 0
    while steps < 2:
        target = drawn(rng, Shape(2, 3, 1, 1, 1, residual=True), 7, density=0.25)
        found = certified(target)
        taken = len(found.document["evidence"]["lower"]["steps"])
        if taken > steps:
            steps = taken
            assert confirmed(found, tmp_path).code == 0


@pytest.mark.parametrize("residual", [False, True])
def test_floats_fractions_and_kinds_of_targets(residual, tmp_path):
    """Dyadic denominators that differ by layer, values of any rank, tied targets, and long numbers."""
    rng = np.random.default_rng(3)
    shape = Shape(2, 2, 1, 3, 2, residual=residual)
    for target in (real(rng, shape, 6), drawn(rng, shape, 6, inner=4), drawn(rng, shape, 6, looped=True, density=0.5)):
        assert confirmed(certified(target), tmp_path).code == 0
    wide = real(rng, Shape(2, 2, 2, 12, 3, residual=residual), 16)
    wide.W_Q[0] *= 2.0**-300
    wide.W_E[:] *= 3.0**200
    found = certified(wide)
    assert max(len(str(x)) for layer in found.document["evidence"]["host"]["R_V"] for x in layer["numerators"]) > 300
    assert confirmed(found, tmp_path).code == 0


def test_the_prover_has_its_certificates_checked(monkeypatch):
    target = drawn(np.random.default_rng(2), Shape(1, 2, 1, 2, 1), 4)
    made = certified(target)
    require_valid(made)
    document = json.loads(made.to_bytes())
    document["evidence"]["lower"]["rows"].pop()
    document["evidence"]["lower"]["columns"].pop()
    with pytest.raises(AssertionError, match="is least: the rows of the lower bound show"):
        require_valid(dataclasses.replace(made, document=document))

    # a host that does not match, and rows that do not show the rank
    def fault(host, E, original=prover._host_document):
        E = E.copy()
        E[0, 0] += 1
        return original(host, E)

    with monkeypatch.context() as patch:
        patch.setattr(prover, "_host_document", fault)
        with pytest.raises(AssertionError, match="do not match"):
            require_valid(certified(target))
    with monkeypatch.context() as patch:
        patch.setattr(prover, "_column", lambda reader: ["OV", [0] * 2, 0])
        with pytest.raises(AssertionError):
            require_valid(certified(target))


def test_moduli(tmp_path):
    """One that divides a minor is passed over; one that divides denominators alone serves."""
    assert all(checker.is_prime(p) and 2 < p < 2**31 for p in prover.PRIMES)
    first, second = prover.PRIMES[:2]
    target = drawn(np.random.default_rng(6), Shape(1, 1, 1, 2, 1), 2)
    for factor, wanted in ((Fraction(first), second), (Fraction(1, first), first), (Fraction(first, second), None)):
        found = certified(dataclasses.replace(target, W_E=target.W_E.astype(object) * factor))
        p = found.document["evidence"]["lower"]["prime"]
        assert p == (wanted or second)
        assert confirmed(found, tmp_path).code == 0


def test_many_words_take_no_longer(tmp_path):
    """10^9 words and more, added up with weights; one wrong entry shows."""
    target = drawn(np.random.default_rng(8), Shape(5, 14, 1, 2, 1, residual=True), 3, density=0.7)
    found = certified(target)
    path = tmp_path / "c.json"
    found.write(path)
    assert checker.check_file(path, checker.Options()).code == 0
    document = json.loads(path.read_bytes())
    layer = document["evidence"]["host"]["R_V"][6]["numerators"]
    layer[0] = str(10**20) if layer[0] == 1 else 1
    path.write_bytes(sceptic.canonical(document))
    assert checker.check_file(path, OPTIONS).code == 1


def test_limits_of_the_prover(monkeypatch):
    target = drawn(np.random.default_rng(2), Shape(1, 2, 1, 2, 1), 4)
    host, E, least = least_host(target)
    with monkeypatch.context() as patch:
        patch.setattr(checker, "MAX_JSON", 500)
        with pytest.raises(ResourceLimit, match="bytes"):
            certificate(least, host, E)
    with monkeypatch.context() as patch:
        patch.setattr(prover, "PRIMES", ())
        with pytest.raises(ResourceLimit, match="moduli"):
            certificate(least, host, E)


def test_command(tmp_path, cli):
    write_target(tmp_path / "t.safetensors", drawn(np.random.default_rng(4), Shape(2, 2, 1, 3, 3), 3))
    arguments = ["embed", "least.safetensors", "t.safetensors", "--minimize", "-o", "E.safetensors"]
    assert cli(*arguments, "--certificate", "c.json")[0] == 0
    code, out, _ = cli("check", "c.json")
    assert code == 0
    assert "least m by matching" in out
    code, _, err = cli(*arguments, "--certificate", "c.txt")
    assert code == 2
    assert ".json" in err
    document = json.loads((tmp_path / "c.json").read_bytes())
    document["shape"]["m"] += 1
    (tmp_path / "c.json").write_bytes(sceptic.canonical(document))
    assert cli("check", "c.json")[0] == 2
    document["shape"]["m"] -= 1
    document["claim"]["target"] = "0" * 64
    (tmp_path / "c.json").write_bytes(sceptic.canonical(document))
    assert cli("check", "c.json")[0] == 1


# --- the corpus --------------------------------------------------------------------------------------------------------


def test_corpus_reaches_every_reason():
    said = " ".join(checker.check_file(path, OPTIONS).message for path in FILES["invalid"])
    for reason in ("Q columns of layer 1", "K columns of layer 2", "OV columns", "not the one that the claim names",
                   "is zero modulo", "do not vanish", "rows of the lower bound show", "is not an odd prime"):  # fmt: skip
        assert reason in said
    documents = [json.loads(path.read_bytes()) for path in FILES["valid"]]
    for stream in (False, True):
        kinds = [c[0] for x in documents if x["shape"].get("residual", False) is stream
                 for c in x["evidence"]["lower"]["columns"]]  # fmt: skip
        assert set(kinds) == {"Q", "K", "OV"}
    assert {len(x["evidence"]["lower"]["steps"]) for x in documents} == {0, 1, 2}
    assert {x["evidence"]["lower"]["boundary"] for x in documents} >= {0, 1, 2}


BASES = {"small-stream": 5, "one": 4, "combined": 11, "step": 17, "two-numbers": 4, "fractions-stream": 31}
"""With one of so many mutants taken."""


@pytest.mark.full
@pytest.mark.parametrize("name", BASES)
def test_mutated_fields(name, tmp_path):
    """Both judges agree on every mutant; a claim's mutant is never valid."""
    document = paired(corpus_realization.sound()[name])
    original = text_of(document).encode()
    assert code_of(original, tmp_path) == 0 == sceptic.judge(original, tmp_path)
    codes = {0: 0, 1: 0, 2: 0, 3: 0}
    for number, (how, mutant) in enumerate(mutants(document)):
        if number % BASES[name] and "residual" not in how:
            continue
        raw = text_of(mutant).encode()
        if raw == original:
            continue
        code, second = code_of(raw, tmp_path), sceptic.judge(raw, tmp_path)
        assert second is None or second == code or code == 3, how
        assert code != 0 or second == 0, how
        assert code != 0 or how.startswith(("evidence.host", "evidence.lower", "shape.")), how
        codes[code] += 1
    assert min(codes[1], codes[2]) > 20
    # an entry that nothing meets may change; rows, columns and primes that serve as well may stand in
    assert codes[0] < 0.25 * sum(codes.values())


# --- limits ------------------------------------------------------------------------------------------------------------


# --- faults in the checker ---------------------------------------------------------------------------------------------


DRAWN = "            weights = [secrets.randbits(POINT_BITS) for _ in range(s.letters)]\n"
FAULTS = {
    "words added up": (DRAWN, "            weights = [1] * s.letters\n"),
    "one weight for a head in every layer": (DRAWN, "            weights = [5, 7, 11, 13][: s.letters]\n"),
    "no weight for the stream": (DRAWN, DRAWN + "            weights[0] *= not s.residual\n"),
    "the stream forgotten": (" if stream else moved", " if False else moved"),
    "the stream's weight for the first head": ("weights[stream:], entries)", "weights[: len(entries)], entries)"),
    "queries not compared": ('for kind in "QK" for head', 'for kind in "K" for head'),
    "keys not compared": ('for kind in "QK" for head', 'for kind in "Q" for head'),
    "the first head alone compared": ('for kind in "QK" for head in range(s.heads))', 'for kind in "QK" for head in range(1))'),
    "outputs not compared": ("    if not same(x.times(host.leave, 0), y.times(target.leave, 0)):", "    if False:"),
    "denominators ignored": ("        x * u == y * v for row", "        x == y for row"),
    "any digest": ('        if self.claim.digests["target"] != self.claim.stated["target"]:', "        if False:"),
    "any denominator": ("    if least and math.gcd(", "    if False and math.gcd("),
    "composite moduli": ("        require_prime(self.prime)\n        count = ", "        count = "),
    "too few rows": ("        if count != s.m:", "        if count > s.m:"),
    "a minor of rank one less": ("rank_reaches(table, p, len(table)):", "rank_reaches(table, p, len(table) - 1):"),
    "combinations that do not vanish": (
        "        if any(sum(map(mul, row, column)) for row in states[at - 1].rows for column in columns):",
        "        if False:"),
    "vanishing on inputs alone": ("for row in states[at - 1].rows for", "for row in states[0].rows for"),
    "vanishing on new states, too": ("for row in states[at - 1].rows for", "for row in states[at].rows for"),
    "combinations ignored": ("columns = [[sum(map(mul, line, entries)) for entries", "columns = [[sum(entries) for entries"),
    "the first column of a combination": (
        "sum(map(mul, line, entries)) for entries in parts]", "line[0] * entries[0] for entries in parts]"),
    "steps at one boundary": ("number(at + 1, end)", "number(at, end)"),
    "steps without a stream": (
        "        if not claim.shape.residual:\n            raise Malformed(\"there are steps",
        "        if False:\n            raise Malformed(\"there are steps"),
    "an empty step": ("    if not states or not readers:", "    if False:"),
    "a minor that is not square": ("    elif len(states) != len(readers):", "    elif False:"),
    "a stream that reads": ('    if kind != "OV" and word[-1] < s.residual:', "    if False:"),
    "outputs in the middle": ('len(word) != left if kind == "OV" else', 'len(word) > left if kind == "OV" else'),
    "queries of no word": ("not 1 <= len(word) <= left:", "not len(word) <= left:"),
    "queries beyond the end": ("not 1 <= len(word) <= left:", "not 1 <= len(word) <= left + 1:"),
    "words of rows of any length": ("many(letter, boundary)))(rows", "many(letter)))(rows"),
    "letters of rows without the stream": (
        "state[1], strict=False):\n        if letter >= s.residual:", "state[1], strict=False):\n        if True:"),
    "letters of rows shifted": ("zip(*move[letter - s.residual].rows", "zip(*move[letter - 1].rows"),
    "words of rows backwards": ("zip(forms.move, state[1], strict=False)", "zip(forms.move, state[1][::-1], strict=False)"),
    "words of columns backwards": ("letter = word[layer - boundary - 1]", "letter = word[boundary - layer]"),
    "columns of another layer": ("[boundary + len(word) - 1][word[-1] - s.residual]", "[boundary][word[-1] - s.residual]"),
    "columns moved by other layers": ("in forms.move[layer - 1][letter - s.residual].rows]",
                                      "in forms.move[layer - boundary - 1][letter - s.residual].rows]"),
    "heads of the columns shifted": ("[word[-1] - s.residual], word[:-1]", "[word[-1] - 1], word[:-1]"),
    "keys for queries": ("forms.read[kind][boundary", 'forms.read["Q"][boundary'),
    "the first coordinate": ("column = [row[coordinate] for row in last.rows]", "column = [row[0] for row in last.rows]"),
    "tied hosts": ('choice(every, "every", "host")\n', 'choice(every, "every", *EVERY)\n'),
    "any target": (
        '    targets = ("this one",)\n    brief = False\n',
        '    targets = (*TARGETS, "this one")\n    brief = False\n'),
}  # fmt: skip


@pytest.fixture(scope="module")
def ruled_out(tmp_path_factory):
    return corpus_forms.written(("realization",), tmp_path_factory.mktemp("forms"))


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_checker_change_a_verdict(fault, ruled_out):
    assert changes_a_verdict(checker, FAULTS[fault], [FILES["valid"], FILES["invalid"], FILES["malformed"] + ruled_out])
