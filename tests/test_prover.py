"""`certify`: what it writes is what the definition of the host says, the checker accepts it, and faults in it are caught."""

import dataclasses
from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import confirmed, verdict_on

from utfproof.certificates import checker, prover
from utfproof.certificates.identities import IDENTITIES
from utfproof.certificates.prover import certify
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import MalformedInput, NotDefined, Undecided, UtfproofError
from utfproof.exact import rational
from utfproof.shapes import Shape, matching_dimension
from utfproof.util import generator
from utfproof.util.arrays import exact

INDEX, RANDOM = tuple(checker.INDEX_HOSTS), checker.RANDOM


def exact_rank(name, shape, m, **options):
    """Of R_all by its definition, one word at a time."""
    host = build_host(name, shape, m, **options)
    if name in RANDOM:
        parts = {tensor: exact(getattr(host, tensor)) for tensor in ("R_Q", "R_K", "R_V", "U")}
        host = dataclasses.replace(host, **parts)
    return rational.rank(naive.r_all(host))


@st.composite
def questions(draw):
    """(name, shape, m or None, options) with a small R_all."""
    name = draw(st.sampled_from([*INDEX, *RANDOM]))
    d, d_in, d_out = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = Shape(draw(st.integers(1, 3)), draw(st.integers(1, 3)), d, d_in, d_out)
    M = matching_dimension(shape)
    assume(M <= (18 if name in RANDOM else 100))
    if name in INDEX:
        assume(CONSTRUCTIONS[name].defined(shape))
        extra = draw(st.sampled_from([None, 0, 1, 5]))
        return name, shape, None if extra is None else CONSTRUCTIONS[name].least_m(shape) + extra, {}
    seeds = st.integers(0, 10**6) | st.sampled_from([2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1])
    options = {"seed": draw(seeds), "law": draw(st.sampled_from(checker.LAWS)), "witness": draw(st.booleans())}
    options["dtype"] = draw(st.sampled_from(["float64", *checker.FORMATS]))
    return name, shape, draw(st.sampled_from([None, 1, max(1, M - 1), M, M + 2])), options


@given(questions())
@settings(max_examples=60)
def test_certificates_say_what_the_rank_is(tmp_path_factory, question):
    name, shape, m, options = question
    M = matching_dimension(shape)
    drawn = {key: value for key, value in options.items() if key != "witness"}
    try:
        rank = exact_rank(name, shape, M if m is None and name in RANDOM else m, **drawn)
        found = certify(name, shape, m, notion="matching", **options)
    except NotDefined:
        assume(False)
    except Undecided:
        assert rank == M
        return
    assert found.universal == (rank == M)
    folder = tmp_path_factory.mktemp("prover", numbered=True)
    assert confirmed(found, folder).code == 0
    again = certify(name, shape, m, notion="matching", **options)
    assert (again.to_bytes(), again.sidecars) == (found.to_bytes(), found.sidecars)


@pytest.mark.parametrize("prime", [3, 5, 8388593, 2**31 - 1])
@pytest.mark.parametrize("columns", [63, 64, 65, 130])
def test_elimination_beyond_one_panel(prime, columns):
    """Ranks modulo p against FLINT, deficient and full, tall and square."""
    from flint import nmod_mat

    source = np.random.default_rng(columns * prime)
    for rows in (columns, columns + 1, columns + 70):
        for drop in (0, 1, columns // 2):
            matrix = source.integers(0, prime, (rows, columns))
            for _ in range(drop):  # dependent columns at random places
                a, b, c = source.choice(columns, 3, replace=False)
                matrix[:, a] = (matrix[:, b] * int(source.integers(prime)) % prime + matrix[:, c]) % prime
            full = nmod_mat(rows, columns, matrix.reshape(-1).tolist(), prime).rank() == columns
            held = [checker.array(checker.U32, row) for row in matrix.tolist()]
            assert checker.rank_reaches(held, prime, len(held[0])) == full


# --- evidence -------------------------------------------------------------------------------------------------


def test_a_record_is_not_believed(monkeypatch):
    """What a construction's record says of it is no evidence: a wrong one is no certificate, small or large."""
    tied, key = CONSTRUCTIONS["tied"], IDENTITIES["shared-key"]
    monkeypatch.setitem(IDENTITIES, "shared-key", replace(key, identity="shared-query"))
    with pytest.raises(Undecided, match="record of shared-key"):
        certify("shared-key", Shape(2, 2, 1, 1))
    monkeypatch.setitem(CONSTRUCTIONS, "printed-tree-row", replace(tied, name="printed-tree-row"))
    with pytest.raises(Undecided, match="record of printed-tree-row"):
        certify("printed-tree-row", Shape(2, 4, 1, 2**18))


def test_a_witness_belongs_to_a_rank():
    for name, notion in (("shared-key", None), ("register", None), ("tied", None), ("random", "attention-matching")):
        with pytest.raises(MalformedInput, match="--witness belongs to"):
            certify(name, Shape(2, 2, 1, 1), notion=notion, witness=True)


# --- faults in the prover -----------------------------------------------------------------


def caught(folder, *arguments, **options):
    """How a wrong claim is stopped: by the prover ("refused") or by the checker ("rejected"); None if it is not."""
    try:
        found = prover.certify(*arguments, **options)
    except (UtfproofError, AssertionError):
        return "refused"
    return {0: None, 1: "rejected"}[verdict_on(found, folder).code]


def shifted_seed(seed, *arguments, stream_key=generator.stream_key, **options):
    return stream_key(seed + 1, *arguments, **options)


ARITHMETIC_FAULTS = {
    "M too large by one": (
        "certificates.hosts.matching_dimension",
        lambda shape: matching_dimension(shape) + 1,
        "random",
        (1, 1, 1, 1),
        {"m": 3},
    ),
    "rank always full": (
        "exact.gfp.rank",
        lambda matrix, *_, **__: matrix.shape[1],
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "kernel of nothing": (
        "certificates.rank.find_relation",
        lambda *_, **__: {0: 1},
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "another seed drawn": (
        "util.generator.stream_key",
        shifted_seed,
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "sum for difference of equal columns": (
        "certificates.rank.equal_columns",
        lambda matrix: {0: 1, 1: 1},
        "printed-looped",
        (2, 1, 1, 1),
        {"m": 6},
    ),
}


@pytest.mark.parametrize("fault", ARITHMETIC_FAULTS)
def test_fault_in_the_arithmetic_is_caught(fault, monkeypatch, tmp_path):
    attribute, wrong, name, dims, options = ARITHMETIC_FAULTS[fault]
    options = dict(options)
    arguments = (name, Shape(*dims), options.pop("m", None))
    assert caught(tmp_path, *arguments, **options) is None
    monkeypatch.setattr(f"utfproof.{attribute}", wrong)
    assert caught(tmp_path, *arguments, **options) == "rejected"
