"""Certificates of kind `realization`: prover, checker and sceptic agree, and what they test is all needed."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from corpus import canonical
from judges import OPTIONS, confirmed
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
    path.write_bytes(canonical(document))
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
    (tmp_path / "c.json").write_bytes(canonical(document))
    assert cli("check", "c.json")[0] == 2
    document["shape"]["m"] -= 1
    document["claim"]["target"] = "0" * 64
    (tmp_path / "c.json").write_bytes(canonical(document))
    assert cli("check", "c.json")[0] == 1


# --- the corpus --------------------------------------------------------------------------------------------------------


"""With one of so many mutants taken."""


# --- limits ------------------------------------------------------------------------------------------------------------


# --- faults in the checker ---------------------------------------------------------------------------------------------
