"""The campaign of mutants finds nothing, and finds what is planted; statements are refuted without their evidence."""

import json

import campaign
import pytest
import truth
from make_corpus import CORPUS

from utfproof.certificates import checker


@pytest.mark.full
def test_a_short_campaign_finds_nothing(capsys, tmp_path):
    asked = ["--count", "300", "--seed", "3", "--json", str(tmp_path / "found.json"), "--log", str(tmp_path / "log")]
    assert campaign.main(asked) == 0
    assert "300 mutants: 0 accepted falsehoods, 0 wrong in all" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["statements of the accepted"]["rank-permutation"].keys() <= {"true", "not settled"}
    judged = (tmp_path / "log").read_text()
    assert campaign.main(asked) == 0  # nothing is judged twice
    assert (tmp_path / "log").read_text() == judged
    assert json.loads((tmp_path / "found.json").read_text()) == found


@pytest.mark.full
def test_a_checker_that_accepts_too_much_is_found(monkeypatch, capsys):
    monkeypatch.setattr(checker, "require_words", lambda *_: None)
    monkeypatch.setattr(checker, "require_kernel", lambda *_, **__: None)
    assert campaign.main(["--count", "600", "--seed", "3"]) == 1
    assert "FALSEHOOD: accepted by the checker alone" in capsys.readouterr().out


@pytest.mark.full
def test_judges_that_share_a_fault_are_found(monkeypatch, capsys):
    """Ranks that nobody looks at: what is accepted by all is refuted by its statement."""
    monkeypatch.setattr(checker, "rank_reaches", lambda *_: True)
    monkeypatch.setattr(campaign.sceptic, "judge", lambda *_: None)
    monkeypatch.setattr(campaign, "verified_verdicts", lambda _, place, count: [(None, 0.0)] * count)
    assert campaign.main(["--count", "600", "--seed", "3"]) == 1
    assert "FALSEHOOD: its statement is false" in capsys.readouterr().out


def test_a_judge_that_breaks_off_or_takes_long_is_found(tmp_path):
    path = tmp_path / "utfcheck"
    path.write_text('#!/bin/sh\necho "$3: valid, 0.1 s"\necho "$4: rejected (a reason\nof two lines), 0.2 s"\nexit 2\n')
    path.chmod(0o755)
    found = campaign.verified_verdicts(str(path), tmp_path, 3)
    assert found[:2] == [(0, 0.1), (1, 0.2)]
    assert len(found) == 3
    path.write_text("#!/bin/sh\nexit 3\n")
    ((said, _),) = campaign.verified_verdicts(str(path), tmp_path, 1)
    assert said.startswith("broke off: 3")


DEEP = {"construction": "symmetric-keys-deep"}
BEYOND = {  # shapes on which the second judge went on for minutes: kind, claim, evidence, shape
    "head_dim of a rational host": (
        "identity",
        {"host": DEEP, "notion": "attention-matching", "targets": "generic tied", "verdict": "universal"},
        {"E": "standard"},
        {"d_in": 1, "d_out": 1, "head_dim": 2**31 - 1, "heads": 2, "layers": 3, "m": 19},
    ),
    "layers of a bound": (
        "lower-bound",
        {
            "host": {"every": "host"},
            "notion": "attention-matching",
            "targets": "generic untied",
            "verdict": "not universal",
        },
        {"method": "dimension"},
        {"d_in": 2, "d_out": 2, "head_dim": 1, "heads": 1, "layers": 2**31 - 1, "m": 6},
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_the_second_judge_leaves_absurd_shapes_alone(name, tmp_path):
    kind, claim, evidence, shape = BEYOND[name]
    document = {"kind": kind, "claim": claim, "evidence": evidence, "shape": shape}
    raw = campaign.sceptic.canonical({"format": "utfproof-certificate", "version": 1, **document})
    assert campaign.timed(lambda: campaign.sceptic.judge(raw, tmp_path))[0] is None


FALSE = {  # another statement of a true certificate: the corpus' file, where, what stands there instead
    "a rank that a smaller host cannot have": ("witness-random", "shape", "m", lambda m: m - 1),
    "a host that is universal after all": ("deficient-dimension-random", "shape", "m", lambda m: 37),
    "a bound above a host that is known": ("bound-matching", "shape", "m", lambda m: 60),
    "a host below a bound that is known": ("identity-shared-key", "shape", "m", lambda m: 1),
    "a least dimension that is larger": ("realization-two", "shape", "m", lambda m: m + 1),
    "a least dimension that is smaller": ("realization-two", "shape", "m", lambda m: m - 1),
    "outputs that are closer": ("enclosure-given", "claim", "difference", lambda pair: [1, 2]),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_statement_is_refuted(name):
    stem, part, field, change = FALSE[name]
    seen = []
    for path in sorted((CORPUS / "valid").glob(f"{stem}*.json"))[:6]:
        document = json.loads(path.read_bytes())
        assert truth.of(document) is not False
        document[part][field] = change(document[part][field])
        try:
            seen.append(truth.of(document))
        except Exception:  # not even defined
            seen.append(None)
    assert False in seen


@pytest.mark.exhaustive
def test_a_campaign_finds_nothing():
    """The million of results/campaign-cpu.json takes about an hour of a processor."""
    assert campaign.main(["--count", "100000", "--seed", "5", "--processes", "2"]) == 0
