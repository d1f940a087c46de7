"""The campaign of mutants finds nothing, and finds what is planted."""

import campaign
import pytest

from utfproof.certificates import checker


@pytest.mark.full
def test_a_short_campaign_finds_nothing(capsys):
    assert campaign.main(["--count", "300", "--seed", "3"]) == 0
    assert "300 mutants: 0 accepted falsehoods, 0 wrong in all" in capsys.readouterr().out


@pytest.mark.full
def test_a_checker_that_accepts_too_much_is_found(monkeypatch, capsys):
    monkeypatch.setattr(checker, "require_words", lambda *_: None)
    monkeypatch.setattr(checker, "require_kernel", lambda *_, **__: None)
    assert campaign.main(["--count", "600", "--seed", "3"]) == 1
    assert "FALSEHOOD" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_a_campaign_finds_nothing():
    assert campaign.main(["--count", "100000", "--seed", "5"]) == 0
