"""Hosts with a residual stream in files and on the command line: decided, certified, checked."""

import dataclasses
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from judges import confirmed
from safetensors.numpy import save_file
from test_certificates_residual import claim_of
from test_residual import naive_r_all, streaming

from utfproof.certificates.prover import certify_weights
from utfproof.certificates.tied import repetitions
from utfproof.constructions import build_host
from utfproof.decision.counterexample import counterexample
from utfproof.decision.verdict import decide_attention_matching, decide_matching, decide_tied_targets
from utfproof.errors import MalformedInput
from utfproof.matching import w_all
from utfproof.shapes import (
    Shape,
    linear_test_dimension,
    matching_dimension,
    tied_targets_dimension,
)
from utfproof.systems import Universal
from utfproof.util.arrays import exact
from utfproof.weights import host_metadata, read_target, stored_host, write_host

# --- hosts in files ----------------------------------------------------------------------------------------------


def integer_weights(shape, m, seed, *, tied=False, inner=None, size=3):
    rng = np.random.default_rng(seed)
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    draw = lambda *dims: rng.integers(-size, size + 1, size=(*lead, *dims)).astype(np.float64)  # noqa: E731
    first = draw(m, m) if inner is None else draw(m, inner)
    second = None if inner is None else draw(inner, m)
    U = rng.integers(-size, size + 1, size=(m, shape.d_out)).astype(np.float64)
    return Universal(shape, m, draw(m, shape.head_dim), draw(m, shape.head_dim), first, U, R_Vo=second)


def stored(host, folder, name="host"):
    path = folder / f"{name}.safetensors"
    if host.R_Vo is None:
        write_host(path, host)
        return path
    tensors = {"R_Q": host.R_Q, "R_K": host.R_K, "R_Vv": host.R_V, "R_Vo": host.R_Vo, "U": host.U}
    save_file(tensors, path, metadata=host_metadata(host))
    return path


def with_values(host, **changes):
    arrays = {tensor: np.array(getattr(host, tensor)) for tensor in ("R_Q", "R_K", "R_V")}
    for tensor, (place, value) in changes.items():
        arrays[tensor][place] = value
    return dataclasses.replace(host, **arrays)


REPEATS = {
    "two heads equal": lambda h: with_values(h, R_V=((0, 1), h.R_V[0, 0])),
    "values zero": lambda h: with_values(h, R_V=((1, 0), 0)),
    "value of a later layer zero": lambda h: with_values(h, R_V=((0, 0), 0)),
    "query equals key": lambda h: with_values(h, R_K=((1, 1), h.R_Q[1, 1])),
    "values of rank one": lambda h: with_values(h, R_V=((0, 1), np.outer(h.R_V[0, 1][:, 0], h.R_V[0, 1][0]))),
    "value the identity": lambda h: with_values(h, R_V=((1, 0), np.eye(h.m))),
    "query read by the stream": lambda h: with_values(h, R_Q=((1, 0), h.R_Q[0, 0])),
}


@pytest.mark.full
@pytest.mark.parametrize("case", REPEATS)
def test_what_makes_columns_dependent(case, tmp_path):
    """Repeated, zero and low-rank matrices are found with a stream, too."""
    shape = streaming(2, 2, 1, 1)
    host = REPEATS[case](integer_weights(shape, matching_dimension(shape) + 1, 3))
    found = certify_weights(stored(host, tmp_path))
    assert not found.universal
    assert confirmed(found, tmp_path).code == 0
    z = {int(i): int(v) for i, v in found.document["evidence"]["z"]}
    matrix = naive_r_all(dataclasses.replace(host, **{t: exact(np.array(getattr(host, t))) for t in
                                                      ("R_Q", "R_K", "R_V", "U")}))  # fmt: skip
    assert not any(sum(row[i] * v for i, v in z.items()) for row in matrix)


@pytest.mark.full
def test_factored_values(tmp_path):
    shape = streaming(2, 2, 1, 2)
    M = matching_dimension(shape)
    found = certify_weights(stored(integer_weights(shape, M, 1, inner=5), tmp_path))
    assert not found.universal
    assert confirmed(found, tmp_path).code == 0
    wide = certify_weights(stored(integer_weights(shape, M + 2, 2, inner=10), tmp_path))
    assert wide.universal
    assert confirmed(wide, tmp_path).code == 0


def test_tied_hosts_in_files(tmp_path):
    """Not all untied targets, whatever m; all tied ones."""
    shape = streaming(1, 2, 1, 2)
    for m in (3, tied_targets_dimension(shape), matching_dimension(shape) + 1):
        path = stored(integer_weights(shape, m, m, tied=True), tmp_path)
        decision = decide_matching(stored_host(path))
        assert (decision.universal, str(decision.targets), decision.residual) == (False, "all untied", True)
        assert confirmed(decision.certificate, tmp_path).code == 0
        missed = counterexample(stored_host(path), decision)
        assert missed.certified
        assert missed.distance_squared == Fraction(1, 2)
        assert np.asarray(w_all(missed.target))[0, missed.column] == 1
        tied = decide_tied_targets(stored_host(path))
        assert str(tied.targets) == "all tied"
        assert tied.universal == (m >= tied_targets_dimension(shape))
        assert tied.certificate.kind == ("tied-kernel" if tied.universal else "lower-bound")
        assert confirmed(tied.certificate, tmp_path).code == 0
        with pytest.raises(MalformedInput, match="--no-residual"):
            stored_host(path, residual=False)
    # what looks at the repetitions alone must see when more columns are dependent
    flat = with_values(integer_weights(shape, 40, 9, tied=True), R_V=(0, 0))
    refuted = decide_tied_targets(stored_host(stored(flat, tmp_path)))
    assert not refuted.universal
    assert refuted.certificate.document["evidence"]["method"] == "tied-target"
    assert confirmed(refuted.certificate, tmp_path).code == 0
    for z in repetitions(shape):
        assert sorted(v for v in z if v) == [-1, 1]


def test_random_tied_for_tied_targets(tmp_path):
    for dims in [(1, 2, 1, 1), (2, 2, 1, 2)]:
        shape = streaming(*dims)
        found = certify_weights(stored(build_host("random-tied", shape), tmp_path), tied_targets=True)
        assert (found.kind, claim_of(found)["rank"]) == ("tied-kernel", tied_targets_dimension(shape))
        assert confirmed(found, tmp_path).code == 0
    untied = certify_weights(stored(build_host("random", streaming(1, 2, 1, 1)), tmp_path), tied_targets=True)
    assert claim_of(untied)["targets"] == "all untied"
    between = build_host("random", streaming(1, 2, 1, 1), 8, law="signs")
    assert confirmed(certify_weights(stored(between, tmp_path), tied_targets=True), tmp_path).code == 0


def test_the_stream_is_part_of_the_question(tmp_path):
    """The same weights with and without: the file's metadata, or the option, decides; never neither."""
    plain = Shape(1, 2, 1, 1)
    host = integer_weights(plain, 6, 1)
    path = stored(host, tmp_path)
    assert certify_weights(path).universal
    found = certify_weights(path, residual=True)
    assert not found.universal
    assert found.document["shape"]["residual"] is True
    assert confirmed(found, tmp_path).code == 0
    with pytest.raises(MalformedInput, match="--no-residual"):
        certify_weights(stored(dataclasses.replace(host, shape=streaming(1, 2, 1, 1)), tmp_path, "b"), residual=False)
    assert not certify_weights(path, residual=True, tied_targets=True).universal


@pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
def test_attention_matching(tmp_path):
    shape = streaming(1, 2, 2, 1)
    path = stored(integer_weights(shape, linear_test_dimension(shape), 5), tmp_path)
    found = decide_attention_matching(stored_host(path))
    assert found.universal
    assert confirmed(found.certificate, tmp_path).code == 0
    path = stored(integer_weights(shape, linear_test_dimension(shape) - 1, 5), tmp_path)
    found = decide_attention_matching(stored_host(path))
    assert found.certificate is None


# --- the command line --------------------------------------------------------------------------------------------


DIMS = ("--heads", 2, "--layers", 2, "--head-dim", 1, "--d-in", 2)


def test_certify_command(tmp_path, cli):
    expected = {
        "tied": (0, "all tied"),
        "sparse": (0, "all untied"),
        "random": (0, "all untied"),
        "random-tied": (1, "all untied"),
    }
    for name, (code, targets) in expected.items():
        found, out, _ = cli("certify", name, *DIMS, "--residual", "-o", f"{name}.json", "--json")
        assert (found, json.loads(out)["targets"]) == (code, targets)
        assert cli("certify", name, *DIMS, "--residual", "-o", f"{name}.json")[0] == code
    assert cli("check", tmp_path)[0] == 0
    code, out, err = cli("certify", "sparse-front", *DIMS, "--residual", "-o", "no.json")
    assert (code, out) == (2, "")
    assert "residual stream" in err
    assert len(err.splitlines()) == 1
    code, _, err = cli("certify", "tied", *DIMS, "--residual", "--notion", "functional", "-o", "no.json")
    assert (code, len(err.splitlines())) == (4, 1)
    assert not Path("no.json").exists()


def test_decide_command(tmp_path, cli):
    shape = streaming(2, 2, 1, 2)
    path = stored(build_host("random-tied", shape, seed=2), tmp_path)
    code, out, _ = cli("decide", path, "-o", "a.json", "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["targets"]) == (1, "not universal by matching", "all untied")
    assert document["missed"]["word"] == [0, 1]
    assert "h + 1 for head h" in document["missed"]["in_words"]
    target = read_target("a.target.safetensors")
    assert target.shape == shape
    assert np.asarray(w_all(target))[0, document["missed"]["column"]] == 1
    assert "no residual stream" not in out
    code, out, _ = cli("decide", path, "-o", "b.json", "--tied-targets")
    assert code == 0
    assert "all tied" in out
    code, _, err = cli("decide", path, "-o", "c.json", "--no-residual")
    assert (code, len(err.splitlines())) == (2, 1)
    plain = stored(integer_weights(Shape(1, 2, 1, 1), 6, 1), tmp_path, "plain")
    assert cli("decide", plain, "-o", "c.json")[0] == 0
    assert cli("decide", plain, "-o", "d.json", "--residual")[0] == 1
    assert cli("decide", stored(build_host("random", shape), tmp_path, "r"), "-o", "e.json")[0] == 0
    assert cli("check", tmp_path)[0] == 0
    code, out, err = cli("refute-lower", path, "-o", "f.json")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "without a residual stream only" in err
