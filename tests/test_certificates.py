"""Certificates: the corpus, the prover against the checker, every mutation of a certificate, planted faults in the
prover, limits, and the command line of the checker. `sceptic.judge` is the independent second opinion."""

import dataclasses
import hashlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import corpus_enclosures
import make_corpus as corpus
import naive
import numpy as np
import pytest
import sceptic
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from make_corpus import CORPUS
from sceptic import DTYPES, INDEX, LAWS, PERMUTATIONS, RANDOM, judge
from tiers import full_where

from utfproof.certificates import checker, prover
from utfproof.certificates.format import integer_array
from utfproof.certificates.structure import Relation
from utfproof.constructions import CONSTRUCTIONS, build_host, tied
from utfproof.errors import NotDefined, Undecided, UtfproofError
from utfproof.exact import rational
from utfproof.ground import generator
from utfproof.ground.arrays import exact
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape, matching_dimension

LIMITS = checker.Limits(memory_bytes=2**30, operations=30 * 10**9)
FOLDERS = {"valid": 0, "invalid": 1, "malformed": 2}
FILES = [path for folder in FOLDERS for path in sorted((CORPUS / folder).glob("*.json"))]
MODULE = [sys.executable, "-m", "utfproof.certificates.checker"]


def run_checker(*arguments, **options):
    return subprocess.run(
        [*MODULE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600, **options
    )


# --- the corpus ----------------------------------------------------------------------------------------------


def test_corpus_covers_the_format():
    count = {folder: len(list((CORPUS / folder).glob("*.json"))) for folder in FOLDERS}
    assert count["valid"] > 120
    assert count["invalid"] > 85
    assert count["malformed"] > 400
    seen = set()
    for path in (CORPUS / "valid").glob("*.json"):
        found = json.loads(path.read_bytes())
        claim = found["claim"]
        host = claim["host"]
        seen.add((found["kind"], host.get("construction"), found["evidence"].get("method")))
        seen.add((found["kind"], host.get("system")))
        seen.add((host.get("construction"), host.get("law"), host.get("dtype")))
        seen.add((found["kind"], host.get("construction"), claim["notion"], claim["targets"], claim.get("free")))
        seen.add((found["kind"], claim["verdict"], *sorted(claim.get("attention", "").split("+"))))
        seen |= {(found["kind"], part.split(":")[0]) for part in claim.get("attention", "").split("+")}
    assert {("rank-permutation", name, None) for name in PERMUTATIONS} <= seen
    assert {("rank-modular", name, method) for name in RANDOM for method in ("recompute", "witness")} <= seen
    refuted = set(INDEX) - set(PERMUTATIONS) | set(RANDOM)
    assert {("rank-deficient", name, "kernel-vector") for name in refuted} <= seen
    below = {"printed-looped", "shared-key", "shared-query", *RANDOM}
    assert {("rank-deficient", name, "dimension") for name in below} <= seen
    assert {(name, law, dtype) for name in RANDOM for law in LAWS for dtype in DTYPES} <= seen
    assert {("linear-test", name, "recompute") for name in RANDOM} <= seen
    assert {("rank-deficient", name, "tied-target") for name in (*refuted - {"tied"}, None)} <= seen
    kinds = ("rank-modular", "rank-deficient", "linear-test", "tied-kernel")
    assert {(kind, system) for kind in kinds for system in ("universal", "looped-universal")} - seen == {
        ("tied-kernel", "universal")
    }
    rules = sceptic.RULES.items()
    assert {("identity", name, r[0], targets, r[2]) for name, r in rules for targets in r[1]} - seen == {
        ("identity", "shared-query", "attention-matching", "all untied", None)  # these need inverses
    }
    assert {("lower-bound", None, method) for method in ("dimension", "span", "null-vector")} <= seen
    bounds = {("lower-bound", None, *row[:3]) for row in corpus.table_of_bounds().values()}
    assert len(bounds) == 7
    assert bounds <= seen
    enclosed = {("enclosure", part) for part in ("softmax", "given", *sceptic.PARTS)}
    enclosed |= {("enclosure", verdict, "given") for verdict in ("within", "apart", "equal")}
    enclosed |= {("enclosure", verdict, "softmax") for verdict in ("within", "apart")}
    enclosed |= {("enclosure", name, "one emulation", "this one", None) for name in (*INDEX, *RANDOM, None)}
    assert enclosed <= seen
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.*")) < 4_000_000


@pytest.mark.full
def test_corpus_regenerates_byte_for_byte(tmp_path):
    assert corpus.build(tmp_path) == len(FILES)

    def contents(folder):
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert contents(tmp_path) == contents(CORPUS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_corpus(path, capsys):
    code = FOLDERS[path.parent.name]
    verdict = checker.check_file(path, LIMITS)
    assert verdict.code == code, verdict
    assert "broke off" not in verdict.message
    assert verdict.message
    assert checker.check_file(path, dataclasses.replace(LIMITS, numpy=True)).code == code
    assert checker.main([str(path)]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) == 1
    assert str(path) in out
    assert checker.LABELS[code] in out
    assert out.isascii()


@pytest.mark.parametrize("folder", FOLDERS)
def test_corpus_on_the_command_line(folder):
    done = run_checker(CORPUS / folder)
    assert (done.returncode, done.stderr) == (FOLDERS[folder], "")
    assert len(done.stdout.splitlines()) == len(list((CORPUS / folder).glob("*.json")))
    done = run_checker("--json", CORPUS / folder)
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == FOLDERS[folder]
    assert {entry["code"] for entry in found["results"]} == {FOLDERS[folder]}
    done = run_checker("--quiet", CORPUS / folder)
    assert done.returncode == FOLDERS[folder]
    assert bool(done.stdout) == (folder != "valid")


# --- the second opinion itself ---------------------------------------------------------------------------------

SHAPES = [(1, 1, 1, 1, 1), (2, 2, 1, 2, 2), (2, 2, 3, 2, 3), (2, 2, 3, 3, 1), (1, 3, 4, 2, 4), (1, 2, 1, 2, 5),
          (3, 2, 1, 1, 4), (3, 1, 2, 2, 1), (2, 3, 1, 1, 2), (2, 2, 2, 3, 5)]  # fmt: skip


@pytest.mark.parametrize("name", INDEX)
def test_judge_and_package_define_the_same_hosts(name):
    compared = 0
    for dims in SHAPES:
        try:
            least, columns = sceptic.index_columns(name, *dims)
        except sceptic.Undefined:
            with pytest.raises(NotDefined):
                CONSTRUCTIONS[name].defined(Shape(*dims))
            continue
        assert least == sceptic.least_m(name, *dims) == CONSTRUCTIONS[name].least_m(Shape(*dims))
        matrix = corpus.index_matrix(name, dims)
        assert (matrix == naive.r_all(sceptic.dense_index_host(name, dims, least))).all()
        assert (matrix == naive.r_all(build_host(name, Shape(*dims)))).all()
        assert columns == [sceptic.index_column(c, name, *dims) for c in range(matrix.shape[1])]
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("dtype", DTYPES)
def test_judge_and_package_define_the_same_random_hosts(name, dtype):
    for law in LAWS:
        for dims, m in [((2, 2, 1, 2, 1), 5), ((1, 2, 2, 1, 3), 7)]:
            floats = build_host(name, Shape(*dims), m, seed=2**64 - 3, law=law, dtype=dtype)
            parts = {tensor: exact(getattr(floats, tensor)) for tensor in ("R_Q", "R_K", "R_V", "U")}
            ours = corpus.matrix_of(name, dims, m, law=law, dtype=dtype, seed=2**64 - 3)
            assert (naive.r_all(dataclasses.replace(floats, **parts)) == ours).all()


# --- prover and checker ------------------------------------------------------------------------------------------


@st.composite
def questions(draw):
    """(name, dims, m or None, options) with a small R_all."""
    name = draw(st.sampled_from([*INDEX, *RANDOM]))
    heads = 1 if name == "printed-single-head" else draw(st.integers(1, 3))
    d_in, d_out = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    d = draw(st.integers(1, 3))
    if name == "shared-key":
        d = max(d, d_in)
    if name == "shared-query":
        d = max(d, d_out)
    dims = (heads, draw(st.integers(1, 3)), d, d_in, d_out)
    M = sceptic.dimension(*dims)
    if name in INDEX:
        assume(M <= 120)
        extra = draw(st.sampled_from([None, 0, 1, 5, M]))
        return name, dims, None if extra is None else sceptic.least_m(name, *dims) + extra, {}
    assume(M <= 18)
    options = {
        "seed": draw(st.integers(0, 10**6) | st.sampled_from([2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1])),
        "law": draw(st.sampled_from(LAWS)),
        "dtype": draw(st.sampled_from(DTYPES)),
    }
    if "witness" in inspect.signature(prover.certify).parameters:
        options["witness"] = draw(st.booleans())
    return name, dims, draw(st.sampled_from([None, 1, max(1, M - 1), M, M + 2])), options


@given(questions())
@settings(max_examples=120)
def test_certify_writes_what_the_checker_and_the_rank_confirm(tmp_path_factory, question):
    name, dims, m, options = question
    shape = Shape(*dims)
    M = sceptic.dimension(*dims)
    if name in INDEX:
        rank = rational.rank(corpus.index_matrix(name, dims))
    else:
        drawn = (name == "random-tied", options["dtype"], options["law"], options["seed"], *dims, M if m is None else m)
        rank = rational.rank(sceptic.random_integers(*drawn)[0])
    try:
        found = prover.certify(name, shape, m, notion="matching", **options)
    except Undecided:
        assert rank == M
        return
    assert found.universal == (rank == M)
    folder = tmp_path_factory.mktemp("roundtrip", numbered=True)
    found.write(folder / "a.json")
    prover.certify(name, shape, m, notion="matching", **options).write(folder / "b.json")
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    verdict = checker.check_file(folder / "a.json", LIMITS)
    assert verdict.code == 0, verdict
    assert judge((folder / "a.json").read_bytes(), folder) == 0


def code_of(folder, document):
    path = folder / "case.json"
    path.write_bytes(sceptic.canonical(document))
    return checker.check_file(path, LIMITS).code


@pytest.mark.parametrize("name", INDEX)
def test_columns_as_the_checker_sees_them(name, tmp_path):
    """z = e_c settles whether column c is zero, z = e_a - e_b whether two columns are equal."""
    for dims in SHAPES:
        try:
            least, columns = sceptic.index_columns(name, *dims)
        except sceptic.Undefined:
            continue
        M = len(columns)
        if M > 30:
            continue
        pairs = [(a, b) for a in range(M) for b in range(a)]
        for z in [{c: 1} for c in range(M)] + [{a: 1, b: -1} for a, b in pairs[:: max(1, len(pairs) // 60)]]:
            total = corpus.index_matrix(name, dims) @ [z.get(i, 0) for i in range(M)]
            found = corpus.document("rank-deficient", name, dims, least, corpus.kernel_evidence(z))
            assert code_of(tmp_path, found) == int(total.any()), (dims, z)


@given(st.data())
@settings(max_examples=60)
def test_kernel_vectors_are_accepted_and_their_neighbours_are_not(tmp_path_factory, data):
    name = data.draw(st.sampled_from([n for n in INDEX if n not in PERMUTATIONS]))
    dims = data.draw(st.sampled_from(SHAPES))
    try:
        least, columns = sceptic.index_columns(name, *dims)
    except sceptic.Undefined:
        assume(False)
    basis = corpus.kernel_basis(corpus.index_matrix(name, dims))
    assume(basis)
    z = {}
    for vector in data.draw(st.lists(st.sampled_from(basis), min_size=1, max_size=5)):
        scale = data.draw(st.integers(-5, 5) | st.sampled_from([2**53, 2**64, -(10**30)]))
        for i, v in vector.items():
            z[i] = z.get(i, 0) + scale * v
    z = {i: v for i, v in z.items() if v}
    assume(z)
    folder = tmp_path_factory.mktemp("kernel", numbered=True)
    found = corpus.document("rank-deficient", name, dims, least, corpus.kernel_evidence(z))
    assert code_of(folder, found) == 0
    place = data.draw(st.integers(0, len(columns) - 1))
    z[place] = z.get(place, 0) + data.draw(st.sampled_from([1, -1, 2**53, 2**61 - 1, 2**64]))
    z = {i: v for i, v in z.items() if v}
    assume(z)
    found = corpus.document("rank-deficient", name, dims, least, corpus.kernel_evidence(z))
    assert code_of(folder, found) == judge(sceptic.canonical(found), folder)


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


@pytest.mark.parametrize("law", LAWS)
def test_modular_certificates_at_small_primes(law, tmp_path):
    """Modulo 3 about half of all hosts are singular: both verdicts, many times."""
    count = [0, 0]
    for name in RANDOM:
        for dims, m in [((2, 1, 1, 1, 1), 6), ((1, 2, 1, 1, 2), 6), ((2, 2, 1, 1, 1), 17)]:
            for seed in range(16):
                found = corpus.document(
                    "rank-modular",
                    name,
                    dims,
                    m,
                    {"method": "recompute", "prime": 3},
                    rank=sceptic.dimension(*dims),
                    law=law,
                    seed=seed,
                    dtype=DTYPES[seed % 4],
                )
                code = code_of(tmp_path, found)
                assert code == judge(sceptic.canonical(found), tmp_path)
                count[code] += 1
    assert min(count) >= 10


# --- every field, every wrong value --------------------------------------------------------------------------------

SMALL = (2, 1, 1, 1, 1)
WORDS = ["", "x", "utfproof-certificate", "rank-permutation", "rank-modular", "rank-deficient", "matching", "functional",
         "all untied", "all", "universal", "not universal", *INDEX, *RANDOM, *LAWS, *DTYPES, "recompute", "dimension",
         "kernel-vector", "uint32", "uint64", "linear-test", "identity", "lower-bound", "attention-matching",
         "shared attention", "all tied", sceptic.INVERTIBLE, *sceptic.RULES, "E", "E and U", "host", "tied host", "span",
         "null-vector", "W_Q", "W_K", "W_O", "tied-target", "tied-kernel", "looped-universal", "enclosure", "one emulation",
         "this one", "within", "apart", "equal", "softmax", "given", "causal", "alibi", "interval", "rational", "target",
         "looped-target",
         "M1.0", "A1.0", "A1.0T", "M.0", "Q.0", "M1.0I",
         "M1.0IT", "shared-attention-universal", "looped-shared-attention-universal"]  # fmt: skip


def kernel_document(name, dims, m, **drawn):
    z = corpus.kernel_basis(corpus.matrix_of(name, dims, m, **drawn))[0]
    return corpus.document("rank-deficient", name, dims, m, corpus.kernel_evidence(z), **drawn)


def modular_document(name, dims, m, prime, **drawn):
    evidence = {"method": "recompute", "prime": prime}
    return corpus.document("rank-modular", name, dims, m, evidence, rank=sceptic.dimension(*dims), **drawn)


BASES = {
    "permutation-sparse": lambda: corpus.proved("sparse", SMALL)[0],
    "permutation-sparse-front": lambda: corpus.proved("sparse-front", (1, 2, 1, 1, 2))[0],
    "permutation-tied-padded": lambda: corpus.proved("tied", (2, 2, 1, 1, 1), 18)[0],
    "permutation-sidecar": lambda: corpus.proved("sparse", corpus.BIG)[0],
    "modular-random": lambda: modular_document("random", SMALL, 7, 8388593, seed=4),
    "modular-random-tied": lambda: modular_document(
        "random-tied", (1, 2, 1, 1, 1), 5, 101, seed=2**64 - 1, law="binomial", dtype="bfloat16"
    ),
    "witness-random": lambda: corpus.witness("random", (1, 1, 1, 1, 1), 5, 101, seed=5)[0],
    "witness-sidecar": lambda: corpus.witness("random-tied", corpus.TALL, 66, 65521, seed=6)[0],
    "dimension-random": lambda: corpus.document(
        "rank-deficient", "random", SMALL, 5, {"method": "dimension"}, seed=2**60
    ),
    "dimension-shared-query": lambda: corpus.document(
        "rank-deficient", "shared-query", (2, 1, 2, 1, 1), 4, {"method": "dimension"}
    ),
    "kernel-printed-looped": lambda: corpus.proved("printed-looped", SMALL, 6)[0],
    "kernel-printed-tree-row": lambda: kernel_document("printed-tree-row", (2, 1, 1, 1, 3), 10),
    "kernel-shared-key": lambda: kernel_document("shared-key", SMALL, 5),
    "kernel-random": lambda: kernel_document("random", (1, 1, 1, 1, 1), 3, law="signs", seed=3),
    "kernel-random-tied": lambda: kernel_document("random-tied", (1, 2, 1, 1, 1), 4, dtype="float32", seed=11),
    "linear-random": lambda: corpus.linear("random", (1, 1, 2, 1, 1), 5, seed=4),
    "identity-shared-key": lambda: corpus.identity("shared-key", (1, 1, 1, 1)),
    "identity-shared-query": lambda: corpus.identity("shared-query", (1, 1, 2, 2)),
    "identity-commuting-trie": lambda: corpus.identity("commuting-trie", (1, 1, 2, 1), 6),
    "identity-register": lambda: corpus.identity("register", (2, 1, 1, 2)),
    "identity-two-sided": lambda: corpus.identity("two-sided", (1, 2, 1, 1), 2),
    "identity-counting": lambda: corpus.identity("counting", (2, 1, 1, 1)),
    "bound-matching-tied": lambda: corpus.bound("matching", (2, 1, 1, 1, 1), 4, targets="all tied"),
    "bound-shared": lambda: corpus.bound("shared attention", (2, 2, 1, 1, 1), 1, free="E and U", every="tied host"),
    "bound-functional": lambda: corpus.bound("functional", (2, 1, 1, 1, 1), 3),
    "span": lambda: corpus.span((1, 1, 1, 1), 2, corpus.isolating(1, 1, 1, 1, True), prime=3),
    "null-vector": lambda: corpus.null_vector([[[[2]], [[4]]]], True, (2, 1, 1, 1, 1), {0: 2, 1: -1}),
    "weights-modular": lambda: WEIGHTS["weights-modular"][0],
    "weights-kernel": lambda: WEIGHTS["weights-kernel"][0],
    "tied-target": lambda: corpus.changed(
        corpus.tied_target("printed-looped", (2, 1, 1, 1, 1)), "evidence", "target", [["W_Q", 0, 0, 0, 0, 1]]
    ),
    "tied-kernel": lambda: WEIGHTS["tied-kernel"][0],
    "linear-gauged": lambda: corpus.gauged("random", (1, 1, 2, 1, 1), 5, 1, seed=4),
    "enclosure": lambda: corpus_enclosures.enclosure(
        "tied", (1, 1, 2, 1, 1), "scaled+alibi", 2, 20, seed=3, step=Fraction(1, 1000)
    )[0],
    "enclosure-given": lambda: corpus_enclosures.enclosure(
        "sparse", SMALL, "given", 2, 6, seed=1, step=Fraction(1, 100)
    )[0],
}


def weights_bases():
    """{name: (document, {file name: content})}"""
    tiny = (1, 1, 1, 1, 1)
    tensors = corpus.drawn_weights(False, tiny, 4, 5, "F16")
    few = corpus.drawn_weights(True, (1, 2, 1, 1, 1), 4, 6, corpus.MIXED)
    integers, factors = sceptic.Stored(few, True, (1, 2, 1, 1, 1), 4).integers()
    evidence = corpus.kernel_evidence(corpus.kernel_basis(integers * np.array(factors, dtype=object))[0])
    return {
        "weights-modular": corpus.of_weights(
            "rank-modular", False, tensors, tiny, 4, {"method": "recompute", "prime": 101}, label="modular", rank=3
        ),
        "weights-kernel": corpus.of_weights("rank-deficient", True, few, (1, 2, 1, 1, 1), 4, evidence, label="kernel"),
        "tied-kernel": corpus.tied_kernel((2, 2, 1), "kernel-of-tied-targets", prime=101),
    }


WEIGHTS = weights_bases()


class Pairs(list):
    """An object as the list of its members: can hold a key twice."""


def paired(value):
    if isinstance(value, dict):
        return Pairs((key, paired(inner)) for key, inner in sorted(value.items()))
    return [paired(inner) for inner in value] if isinstance(value, list) else value


def text_of(value):
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{text_of(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


def replacements(value):
    """(name, other value) for a value at any place."""
    for other in (None, True, False, 1.5, "x", [], Pairs(), [None], Pairs([("a", 1)]), -1, 0, 1, 2**31 - 1, 2**53,
                  2**53 + 1, str(2**53), str(2**53 + 1), str(10**30), str(-(10**30)), 10**30):  # fmt: skip
        yield text_of(other), other
    yield "in a list", [value]
    yield "in an object", Pairs([("value", value)])
    yield "as text", text_of(value)
    if type(value) is int:
        for name, other in {"+1": value + 1, "-1": value - 1, "+2": value + 2, "negated": -value, "doubled": 2 * value,
                            "+2^32": value + 2**32, "+2^64": str(value + 2**64), "as a string": str(value),
                            "as a float": float(value)}.items():  # fmt: skip
            yield name, other
    elif type(value) is str:
        for other in WORDS:
            yield f"now {other}", other
        yield "upper case", value.upper()
        yield "with a space", value + " "
        yield "with a nul", value + "\0"
        if value.isascii() and value.isdigit():
            yield "+1", str(int(value) + 1)
            yield "with a zero in front", "0" + value
            yield "as a number", int(value)
    elif isinstance(value, Pairs):
        yield "unsorted", Pairs(value[::-1])
        yield "without names", [inner for _, inner in value]
        yield "one more", Pairs(sorted([*value, ("zzz", 0)]))
    elif type(value) is list and value:
        yield "truncated", value[:-1]
        yield "without the first", value[1:]
        yield "last one twice", [*value, value[-1]]
        yield "a zero more", [*value, 0]
        yield "reversed", value[::-1]
        yield "rotated", [*value[1:], value[0]]
        yield "empty strings", [""] * len(value)
        for i in range(len(value) - 1):
            yield f"{i} and {i + 1} swapped", [*value[:i], value[i + 1], value[i], *value[i + 2 :]]
            yield f"{i} copied to {i + 1}", [*value[: i + 1], value[i], *value[i + 2 :]]


def mutants(value, name=""):
    """(name, mutant) for every place in a value, from the outside in."""
    for how, other in replacements(value):
        yield f"{name}: {how}", other
    if isinstance(value, Pairs):
        for i, (key, inner) in enumerate(value):
            place = f"{name}.{key}".strip(".")
            yield f"{place}: deleted", Pairs([*value[:i], *value[i + 1 :]])
            yield f"{place}: twice", Pairs([*value[:i], (key, inner), *value[i:]])
            yield f"{place}: twice, first null", Pairs([*value[:i], (key, None), *value[i:]])
            for other in (key + "_", key.upper(), "", key + "\0"):
                yield f"{place}: renamed {other}", Pairs(sorted([*value[:i], (other, inner), *value[i + 1 :]]))
            for how, changed in mutants(inner, place):
                yield how, Pairs([*value[:i], (key, changed), *value[i + 1 :]])
    elif type(value) is list:
        for i, inner in enumerate(value):
            yield f"{name}[{i}]: deleted", [*value[:i], *value[i + 1 :]]
            for how, changed in mutants(inner, f"{name}[{i}]"):
                yield how, [*value[:i], changed, *value[i + 1 :]]


GROWN = ("2147483647", '"9007199254740992"', '"9007199254740993"', '"1000000000000000000000000000000"', "+1", "+2",
         "doubled", "+2^32", "+2^64")  # fmt: skip
"""How `replacements` makes a number larger."""


ANY_NUMBER = (*GROWN, "0", "1", "-1", "negated", '"-1000000000000000000000000000000"')
"""How it changes one into any other integer."""


def each(place, *hows):
    return {f"{place}: {how}" for how in hows}


OTHER_SEEDS = ("0", "1", "2147483647", '"9007199254740992"', '"9007199254740993"')
ANY_D_IN = each("shape.d_in", *GROWN)  # R_all of most hosts does not involve d_in
ANY_D = each("shape.head_dim", *GROWN)
OTHER_WEIGHTS = ("-1", "2147483647", '"9007199254740992"', '"1000000000000000000000000000000"',
                 '"-1000000000000000000000000000000"', "+1", "negated", "doubled", "+2^32", "+2^64")  # fmt: skip
PADDED = each("shape.m", *GROWN)  # {0,1} hosts: more zero rows; all else is beyond M = rank
RENAMED = "claim.host.construction"
STILL_TRUE = {
    "permutation-sparse": ANY_D_IN | PADDED | each(RENAMED, "now sparse-front"),
    "permutation-sparse-front": ANY_D_IN | PADDED | each(RENAMED, "now sparse", "now tied"),
    "permutation-tied-padded": ANY_D_IN | PADDED | each("shape.m", "-1"),
    "permutation-sidecar": ANY_D_IN | PADDED | each(RENAMED, "now sparse-front", "now tied"),
    # almost every other host is universal, too, and almost every prime shows it
    "modular-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now signs", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    "modular-random-tied": ANY_D_IN
    | each(RENAMED, "now random")
    | each("claim.host.dtype", "now float64", "now float32", "now float16")
    | each("claim.host.law", "now uniform", "now signs")
    | each("claim.host.seed", *OTHER_SEEDS)
    | each("evidence.prime", "2147483647", "+2")
    | each("shape.m", "+1", "+2", "doubled"),
    # one layer is no loop
    "witness-random": ANY_D_IN | each(RENAMED, "now random-tied"),
    "witness-sidecar": ANY_D_IN | each(RENAMED, "now random"),
    # whatever has m < M
    "dimension-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now signs", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1")
    | each("shape.d_out", *GROWN)
    | each("shape.head_dim", *GROWN)
    # more than 2^60 head words are over the checker's limit
    | each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.layers", "+1", "+2", "doubled")
    | each("shape.m", "1", "-1"),
    "dimension-shared-query": ANY_D_IN
    | each("shape.head_dim", *GROWN, "1", "-1")
    | each("shape.heads", "1", "-1")
    | each("shape.m", "+1", "+2", "doubled"),
    # z is the difference of two columns that other hosts and shapes have equal (or zero), too
    "kernel-printed-looped": ANY_D_IN
    | PADDED
    | each(RENAMED, "now shared-query", "now printed-tree-row")
    | each("shape.d_out", "+1", "doubled"),
    "kernel-printed-tree-row": ANY_D_IN | PADDED | each(RENAMED, "now printed-looped") | each("shape.d_out", "1", "-1"),
    "kernel-shared-key": PADDED
    | each("evidence.column", "+1")
    | each("shape.head_dim", *set(GROWN) - {"+1", "+2", "doubled"}),
    # all entries are +-1 in every dtype, and one layer is no loop
    "kernel-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.seed", "1")
    | each("evidence.column", "+2"),
    "kernel-random-tied": ANY_D_IN,
    # almost every other host of this shape passes the test
    "linear-random": each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    # the identities hold for every head dimension (shared-key, shared-query: d >= d_in), and numbers are their transposes
    "identity-shared-key": ANY_D | PADDED | each("evidence.E[0][1][0]", "now A1.0T"),
    "identity-shared-query": ANY_D | PADDED,
    "identity-commuting-trie": PADDED | each("shape.m", "-1"),
    "identity-register": ANY_D | PADDED,
    "identity-two-sided": ANY_D | PADDED | each("shape.m", "-1", "1"),
    "identity-counting": ANY_D | PADDED,
    # a bound on m holds for less m and, where it grows with them, for more of the rest
    "bound-matching-tied": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.m", "+1", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("claim.targets", "now all untied"),
    "bound-shared": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.heads", "+1", "+2", "doubled")
    | each("shape.layers", "+1", "+2", "doubled", "-1", "1")
    | each("claim.host.every", "now host")
    | each("claim.targets", "now all tied")
    | each("claim.free", "now E"),
    "bound-functional": each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.m", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("claim.notion", "now matching"),
    # three targets in any order, with other weights that are not 0 modulo 3, at shapes with more columns
    "span": each("shape.head_dim", "+1", "+2", "doubled")
    | each("shape.heads", "+1", "+2", "doubled")
    | each("shape.layers", "+1", "+2", "doubled")
    | each("shape.m", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("evidence.prime", "2147483647", "+2")
    | each("evidence.targets", "last one twice", "reversed", "rotated", "0 and 1 swapped", "1 and 2 swapped").union(
        *(each(f"evidence.targets[{place}][5]", *OTHER_WEIGHTS) for place in ("0][0", "1][0", "2][0", "2][1"))
    ),
    # R_V^1 = 2 R_V^0: at any depth 2 R_w R_V^0 = R_w R_V^1
    "null-vector": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.layers", "+1", "+2", "doubled")
    | each("claim.host.system", "now shared-attention-universal")
    | each("evidence.word", "-1", "0"),
    "weights-modular": ANY_D_IN | each("evidence.prime", "2147483647", "+2"),
    "weights-kernel": ANY_D_IN,
    # columns 0 and 4 are equal in other hosts, too; and the only entry of the target can be any number but 0
    "tied-target": PADDED
    | each(RENAMED, "now shared-query", "now printed-tree-row")
    | each("evidence.target[0][5]", "+2", *OTHER_WEIGHTS, '"9007199254740993"'),
    "tied-kernel": each("evidence.prime", "2147483647", "+2"),
    # almost every other gauge will do, and almost every other host
    "linear-gauged": each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("evidence.gauges", "deleted")
    | each("evidence.gauges[0][0][0]", "reversed", "rotated", "0 and 1 swapped", "0 copied to 1")
    | each("evidence.gauges[0][0][0][0]", *GROWN, *OTHER_WEIGHTS, "0", "1")
    | each("evidence.gauges[0][0][0][1]", *GROWN, *OTHER_WEIGHTS, "0")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    # wider bounds; other hosts with the same matrices; without a mask tokens may change places
    "enclosure": each("claim.difference[0]", "1", "2147483647", '"9007199254740992"', '"9007199254740993"')
    | each("claim.difference[1]", '"1000000000000000000000000000000"', "+1")
    | each(RENAMED, "now sparse", "now sparse-front")
    | each("evidence.X.numerators", "reversed", "rotated", "0 and 1 swapped")
    | each("evidence.target.system", "now looped-target"),
    # queries and keys play no part
    "enclosure-given": each("claim.difference[0]", "1", "-1")
    | each("claim.difference[1]", *GROWN)
    | each(RENAMED, "now sparse-front", "now tied")
    | each(
        "evidence.E.numerators",
        *(f"{i} {how}" for i in range(3) for how in (f"and {i + 1} swapped", f"copied to {i + 1}")),
    )
    | each("evidence.target.system", "now looped-target").union(
        *(each(f"evidence.E.numerators[{i}]", *ANY_NUMBER) for i in range(4)),
        *(
            each(f"evidence.target.{tensor}.denominator", *GROWN, "1", "-1")
            | each(f"evidence.target.{tensor}.numerators", "reversed", "rotated", "0 and 1 swapped", "0 copied to 1")
            | each(f"evidence.target.{tensor}.numerators[0]", *ANY_NUMBER)
            | each(f"evidence.target.{tensor}.numerators[1]", *ANY_NUMBER)
            for tensor in ("W_Q", "W_K")
        ),
    ),
}
"""Mutants that are certificates of other true statements, by base. The judge confirms each."""


def copy_sidecars(folder):
    contents = corpus.proved("sparse", corpus.BIG)[1] | corpus.witness("random-tied", corpus.TALL, 66, 65521, seed=6)[1]
    for content in contents.values():
        (folder / f"{hashlib.sha256(content).hexdigest()}.bin").write_bytes(content)
    for _, files in WEIGHTS.values():
        for name, content in files.items():
            (folder / name).write_bytes(content)


FEW = {
    "permutation-sparse",
    "modular-random",
    "witness-random",
    "dimension-random",
    "kernel-random",
    "linear-random",
    "identity-shared-key",
    "bound-functional",
    "weights-modular",
}
"""One of each kind, the quick ones: mutated field by field in the first tier, all others in the second."""


@pytest.mark.parametrize("base", full_where(lambda base: base not in FEW, BASES))
def test_field_by_field(base, tmp_path):
    copy_sidecars(tmp_path)
    document = BASES[base]()
    original = sceptic.canonical(document)
    assert judge(original, tmp_path) == 0
    assert text_of(paired(document)).encode() == original
    path = tmp_path / "mutant.json"
    accepted, codes = set(), {}
    for name, mutant in mutants(paired(document)):
        raw = text_of(mutant).encode()
        if raw == original or ("sidecar" in base and re.match(r"evidence.rows\[(?!0]|1]|64])", name)):
            continue  # three of the 65 rows are enough
        path.write_bytes(raw)
        verdict = checker.check_file(path, LIMITS)
        expected = judge(raw, tmp_path)
        assert "broke off" not in verdict.message, (name, verdict)
        if verdict.code == 3:  # only where a number in the mutant is absurdly large
            assert any(len(digits) >= 10 for digits in "".join(c if c.isdigit() else " " for c in name).split()) or (
                "2^" in name
            ), (name, verdict)
        elif expected is None:
            assert verdict.code in (1, 2), (name, verdict)
        else:
            assert verdict.code == expected, (name, verdict)
        if base == "witness-random":
            assert checker.check_file(path, dataclasses.replace(LIMITS, numpy=True)).code == verdict.code, name
        codes[verdict.code] = codes.get(verdict.code, 0) + 1
        if verdict.code == 0:
            accepted.add(name)
    assert accepted == STILL_TRUE[base]
    assert codes[2] > 500


# --- faults in the prover --------------------------------------------------------------------------------------------


def altered(host, tensor, change):
    """The host with change(layer, head, matrix) in place of each matrix of one tensor (layers and heads from 0)."""
    if tensor == "U":
        return dataclasses.replace(host, U=change(0, 0, host.U))
    rows = [getattr(host, tensor)] if host.tied else getattr(host, tensor)
    grid = [tuple(change(layer, h, matrix) for h, matrix in enumerate(row)) for layer, row in enumerate(rows)]
    return dataclasses.replace(host, **{tensor: grid[0] if host.tied else grid})


def reader_off_by_one(host):
    def change(layer, head, matrix):
        moved = (matrix.row_cells + ((layer, head) == (0, 1))) % matrix.rows.cells
        return dataclasses.replace(matrix, row_cells=moved)

    return altered(host, "R_Q", change)


def u_at_the_wrong_block(host):
    return altered(host, "U", lambda layer, head, matrix: dataclasses.replace(matrix, row_cells=matrix.row_cells - 1))


def u_at_the_padding(host):
    cells = host.U.rows.cells
    return altered(
        host,
        "U",
        lambda layer, head, matrix: dataclasses.replace(
            matrix, row_cells=np.where(matrix.row_cells == matrix.row_cells.max(), cells - 1, matrix.row_cells)
        ),
    )


def value_dropped(host):
    def change(layer, head, matrix):
        return (
            matrix
            if (layer, head) != (0, 1)
            else SelectionMatrix(matrix.rows, matrix.columns, matrix.row_cells[1:], matrix.column_cells[1:])
        )

    return altered(host, "R_V", change)


def projection_dropped(host):
    everything = np.arange(host.U.rows.cells)
    return altered(
        host,
        "R_V",
        lambda layer, head, matrix: (
            matrix if (layer, head) != (0, 1) else SelectionMatrix(matrix.rows, matrix.columns, everything, everything)
        ),
    )


def heads_exchanged(tensor):
    def fault(host):
        rows = [getattr(host, tensor)] if host.tied else getattr(host, tensor)
        return altered(host, tensor, lambda layer, head, matrix: rows[layer][-1 - head])

    return fault


HOST_FAULTS = {
    "values transposed": lambda host: altered(host, "R_V", lambda layer, head, matrix: matrix.transposed()),
    "queries and keys exchanged": lambda host: dataclasses.replace(host, R_Q=host.R_K, R_K=host.R_Q),
    "one query reader off by one": reader_off_by_one,
    "u at the wrong block": u_at_the_wrong_block,
    "u in the padding": u_at_the_padding,
    "one block of one value dropped": value_dropped,
    "one value replaced by the identity": projection_dropped,
    "heads of the values exchanged": heads_exchanged("R_V"),
    "heads of the queries exchanged": heads_exchanged("R_Q"),
    "heads of the keys exchanged": heads_exchanged("R_K"),
    "layers of the values reversed": lambda host: dataclasses.replace(host, R_V=host.R_V[::-1]),
    "keys are the queries": lambda host: dataclasses.replace(host, R_K=host.R_Q),
}
OTHERWISE = {
    ("sparse", "values transposed"): None,  # they are diagonal: nothing has changed
    ("sparse", "one value replaced by the identity"): "refused",  # still of full rank, but no permutation
}


def caught(folder, *arguments, **options):
    """How a wrong claim is stopped: by the prover ("refused") or by the checker ("rejected"); None if it is not."""
    try:
        found = prover.certify(*arguments, **options)
    except (UtfproofError, AssertionError):
        return "refused"
    found.write(folder / "wrong.json")
    verdict = checker.check_file(folder / "wrong.json", LIMITS)
    assert "broke off" not in verdict.message
    expected = judge((folder / "wrong.json").read_bytes(), folder)
    assert expected is None or verdict.code == expected
    return {0: None, 1: "rejected"}[verdict.code]


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("fault", HOST_FAULTS)
def test_fault_in_a_construction_is_caught(name, fault, monkeypatch, tmp_path):
    shape = Shape(2, 2, 1, 2, 3)

    def faulty(*arguments, **options):
        return HOST_FAULTS[fault](build_host(*arguments, **options))

    assert caught(tmp_path, name, shape, 25) is None
    if name == "tied" and "layers" in fault:
        fault = "heads of the values exchanged"
    monkeypatch.setattr(prover, "build_host", faulty)
    assert caught(tmp_path, name, shape, 25) == OTHERWISE.get((name, fault), "rejected")


def wrong_trie(shape, head, first, last):
    """(w, h) for (h, w)."""
    H = shape.heads
    columns = [sum(H**k for k in range(first, t)) + w for t in range(first, last) for w in range(H**t)]
    rows = [sum(H**k for k in range(first, t + 1)) + w * H + head for t in range(first, last) for w in range(H**t)]
    return np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)


def wrong_register(shape, head):
    """(w_2, ..., w_L, h) for (h, w_1, ..., w_{L-1})."""
    words = np.arange(shape.leaves)
    return words % (shape.leaves // shape.heads) * shape.heads + head, words


@pytest.mark.parametrize(("part", "wrong"), [("trie_pairs", wrong_trie), ("register_pairs", wrong_register)])
def test_letters_in_the_wrong_order_are_caught(part, wrong, monkeypatch, tmp_path):
    shape = Shape(2, 3, 1, 2, 2)
    monkeypatch.setattr(tied, part, wrong)
    assert caught(tmp_path, "tied", shape) == "rejected"


def shifted_seed(seed, *arguments, stream_key=generator.stream_key, **options):
    return stream_key(seed + 1, *arguments, **options)


def big_endian(rows):
    array, _ = integer_array(np.arange(4097))
    content = np.asarray(rows).astype(">u4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return array | {"sidecar": digest}, {digest: content}


ARITHMETIC_FAULTS = {
    "M too large by one": (
        "certificates.prover.matching_dimension",
        lambda shape: matching_dimension(shape) + 1,
        "tied",
        (2, 1, 1, 1),
        {},
    ),
    "rank always full": (
        "exact.gfp.rank",
        lambda matrix, *_, **__: matrix.shape[1],
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "kernel of nothing": (
        "certificates.prover.find_relation",
        lambda *_, **__: Relation({0: 1}, "none"),
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "distance not squared": (
        "certificates.prover.distance_bound",
        lambda z, c: Fraction(1, 7),
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "another seed drawn": (
        "ground.generator.stream_key",
        shifted_seed,
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "sum for difference of equal columns": (
        "certificates.prover._selection_kernel",
        lambda matrix: {0: 1, 1: 1},
        "printed-looped",
        (2, 1, 1, 1),
        {"m": 6},
    ),
    "sidecar in the wrong byte order": ("certificates.prover.integer_array", big_endian, "sparse", (1, 1, 1, 4095), {}),
}


@pytest.mark.parametrize("fault", ARITHMETIC_FAULTS)
def test_fault_in_the_arithmetic_is_caught(fault, monkeypatch, tmp_path):
    attribute, wrong, name, dims, options = ARITHMETIC_FAULTS[fault]
    options = dict(options)
    arguments = (name, Shape(*dims), options.pop("m", None))
    assert caught(tmp_path, *arguments, **options) is None
    monkeypatch.setattr(f"utfproof.{attribute}", wrong)
    assert caught(tmp_path, *arguments, **options) == "rejected"


# --- limits ----------------------------------------------------------------------------------------------------------

GIANT = (4, 12, 64, 128, 128)
GIANT_M = sceptic.dimension(*GIANT)
ABSURD = {
    "random at the giant shape": corpus.document(
        "rank-modular", "random", GIANT, GIANT_M, {"method": "recompute", "prime": 3}, rank=GIANT_M
    ),
    "kernel of random at the giant shape": corpus.document(
        "rank-deficient", "random", GIANT, GIANT_M, corpus.kernel_evidence({0: 1, GIANT_M - 1: 1})
    ),
    "kernel of the giant tree": corpus.document(
        "rank-deficient", "sparse", GIANT, GIANT_M, corpus.kernel_evidence({0: 1, GIANT_M - 1: 1})
    ),
    "small M, giant m": corpus.document(
        "rank-modular", "random", SMALL, 10**9, {"method": "recompute", "prime": 3}, rank=6
    ),
    "10^9 heads": corpus.document(
        "rank-modular", "random", (10**9, 1, 1, 1, 1), 3 * 10**9, {"method": "recompute", "prime": 3}, rank=3 * 10**9
    ),
    "10^9 layers": corpus.document(
        "rank-modular",
        "random",
        (1, 10**9, 1, 1, 1),
        2 * 10**9 + 1,
        {"method": "recompute", "prime": 3},
        rank=2 * 10**9 + 1,
    ),
    "10^9 heads and layers": corpus.document(
        "rank-modular", "random", (10**9, 10**9, 1, 1, 1), 7, {"method": "recompute", "prime": 3}, rank=7
    ),
    "10^9 layers of sparse-front": corpus.document(
        "rank-deficient", "sparse-front", (1, 10**9, 1, 1, 1), 2 * 10**9 + 1, corpus.kernel_evidence({0: 1})
    ),
    "10^4000 layers": corpus.document(
        "rank-deficient",
        "tied",
        (1, 10**4000, 1, 1, 1),
        10**4001,
        corpus.kernel_evidence({10**4000: 1, 10**4000 + 7: 5}),
    ),
    "10^3000 heads": corpus.document(
        "rank-deficient", "tied", (10**3000, 1, 1, 1, 1), 10**3001, {"method": "dimension"}
    ),
    "linear test at the giant shape": corpus.linear("random", (4, 12, 128, 128, 128), 10**10),
    "tied kernel at the giant shape": corpus.changed(
        corpus.document(
            "tied-kernel", "random", (*GIANT[:3], 128, 128), GIANT_M, {"basis": [[[0, 1]]], "prime": 3}, rank=GIANT_M - 1
        ), "claim", "targets", "all tied",
    ),
    "tied kernel of 2^50 words": corpus.changed(
        corpus.document("tied-kernel", "random", (2, 50, 1, 1, 1), 2**60, {"basis": [[[0, 1]]], "prime": 3},
                        rank=sceptic.dimension(2, 50, 1, 1, 1) - 1), "claim", "targets", "all tied",
    ),
    "tied target at the giant shape": corpus.changed(
        corpus.document("rank-deficient", "random", GIANT, 10**9, {
            "method": "tied-target", "row": 0, "target": [["W_Q", 0, 0, 0, 0, 1]], "z": [[0, 1]]}),
        "claim", "targets", "all tied",
    ),
    "tied target of 10^9 layers": corpus.changed(
        corpus.document("rank-deficient", "printed-looped", (1, 10**9, 1, 1, 1), 10**10, {
            "method": "tied-target", "row": 0, "target": [["W_Q", 0, 0, 0, 0, 1]], "z": [[0, 1]]}),
        "claim", "targets", "all tied",
    ),
    "linear test of 10^9 heads": corpus.linear("random", (10**9, 1, 1, 1, 1), 3 * 10**9),
    "identity of 10^9 layers": corpus.statement(
        "identity", "attention-matching", {"construction": "shared-key"}, (1, 10**9, 1, 1, 1), 10**10, {"E": [[0, []]]}
    ),
    "identity of 2^50 words": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "register"},
        (2, 50, 1, 1, 1),
        2**50,
        {"E": [[0, []]]},
        free="E",
    ),
    "identity of 2^50 words, two-sided": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "two-sided"},
        (2, 50, 1, 1, 1),
        2**25,
        {"E": [[0, []]], "U": [[0, []]]},
        free="E and U",
    ),
    "counts of 10^9 heads": corpus.statement(
        "identity",
        "shared attention",
        {"construction": "counting"},
        (10**9, 1, 1, 1, 1),
        10**9,
        {"E": [[0, []]]},
        targets="all tied",
        free="E",
    ),
    "counts of 10^9 layers": corpus.statement(
        "identity",
        "matching",
        {"construction": "commuting-trie"},
        (1, 10**9, 1, 1, 1),
        10**10,
        {"E": [[0, []]]},
        targets="all tied",
    ),
    "span at the giant shape": corpus.span((4, 12, 64, 128), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "span of 2^58 words": corpus.span((2, 58, 1, 1), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "span of 10^9 layers": corpus.span((1, 10**9, 1, 1), 1, [[["W_Q", 1, 0, 0, 0, 1]]] * 2, targets="all untied"),
    "null vector of 10^9 layers": corpus.null_vector([[[[1]]]], True, (1, 10**9, 1, 1, 1), {0: 1}),
    "10^9 wide": corpus.document("rank-deficient", "random", (1, 1, 1, 1, 10**9), 2, corpus.kernel_evidence({3: 1})),
}  # fmt: skip


def checked_frugally(path, **limits):
    """The verdict, which must come at once and without allocating."""
    tracemalloc.start()
    try:
        start = time.process_time()
        verdict = checker.check_file(path, checker.Limits(**limits))
        assert time.process_time() - start < 2
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    return verdict


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_sizes_are_refused_at_once(name, tmp_path):
    path = tmp_path / "absurd.json"
    path.write_bytes(sceptic.canonical(ABSURD[name]))
    verdict = checked_frugally(path, memory_bytes=4 * 2**30)
    assert verdict.code == 3, verdict
    assert "allowed" in verdict.message or "more than" in verdict.message


LONG_WORD = corpus.statement(
    "identity",
    "shared attention",
    {"construction": "register"},
    (2, 16, 1, 1, 1),
    2**16,
    {"E": [[0, ["M1.0"] * 10**5]]},
    free="E",
)


def test_a_word_of_many_letters_is_no_work(tmp_path):
    """10^5 letters beside 2^16 words: at a random point both are read once, and what is claimed is false."""
    path = tmp_path / "long.json"
    path.write_bytes(sceptic.canonical(LONG_WORD))
    verdict = checker.check_file(path, checker.Limits(memory_bytes=4 * 2**30))
    assert (verdict.code, verdict.message) == (1, "the outputs are not what the target demands")


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_giant_sidecar_is_refused_at_once(name, tmp_path):
    reference = {"dtype": "uint32", "length": corpus.written(GIANT_M), "sidecar": "0" * 64}
    path = tmp_path / "giant.json"
    path.write_bytes(
        sceptic.canonical(corpus.document("rank-permutation", name, GIANT, GIANT_M, {"rows": reference}, rank=GIANT_M))
    )
    assert checked_frugally(path).code == 2  # it is not there
    try:
        (tmp_path / f"{'0' * 64}.bin").touch()
        os.truncate(tmp_path / f"{'0' * 64}.bin", 4 * GIANT_M)  # takes no room on the disk
    except OSError:
        pytest.skip("the file system has no sparse files")
    verdict = checked_frugally(path, memory_bytes=16 * 2**30)
    assert verdict.code == 3
    assert "allowed" in verdict.message


def test_other_long_lists_of_nothing(tmp_path):
    path = tmp_path / "long.json"
    with path.open("wb") as stream:
        stream.truncate(checker.MAX_JSON + 1)
    assert checked_frugally(path).code == 3
    path.write_bytes(b"[" * 2**20)
    assert checked_frugally(path, memory_bytes=2**30).code == 2
    path.write_bytes(sceptic.canonical(BASES["permutation-sparse"]()))
    assert checked_frugally(path, memory_bytes=100).code == 3


@pytest.mark.parametrize("base", ["permutation-sparse", "permutation-sidecar", "modular-random", "kernel-random",
                                  "kernel-printed-looped"])  # fmt: skip
def test_limits_are_kept_on_the_command_line(base, tmp_path, capsys):
    copy_sidecars(tmp_path)
    path = tmp_path / "a.json"
    path.write_bytes(sceptic.canonical(BASES[base]()))
    assert checker.main(["--max-memory", "100", str(path)]) == 3
    out = capsys.readouterr().out
    assert "LIMIT" in out
    assert len(out.splitlines()) == 1
    assert checker.main(["--max-memory", "1GiB", "--max-seconds", "60", str(path)]) == 0


@pytest.mark.parametrize("option", [["--max-memory", "0"], ["--max-memory", "-1"], ["--max-memory", "1e9"],
                                    ["--max-memory", "4X"], ["--max-memory", "٤"], ["--max-seconds", "0"],
                                    ["--max-seconds", "nan"], ["--unknown"], []])  # fmt: skip
def test_wrong_options_are_refused(option, capsys):
    paths = [str(CORPUS / "valid")] if option else []
    with pytest.raises(SystemExit) as stop:
        checker.main([*option, *paths])
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


# --- files and folders -----------------------------------------------------------------------------------------------


def some(folder):
    return next(path for path in sorted((CORPUS / folder).glob("*.json")) if "sidecar" not in path.name)


@pytest.mark.parametrize(("folders", "limit", "code"), [
    ("valid", False, 0), ("valid invalid", False, 1), ("valid malformed", False, 2), ("valid", True, 3),
    ("malformed invalid", False, 1), ("valid malformed", True, 2), ("valid invalid malformed", True, 1),
    ("invalid", True, 1),
])  # fmt: skip
def test_worst_verdict_decides_the_exit_status(folders, limit, code, tmp_path, capsys):
    for i, folder in enumerate(folders.split()):
        inner = tmp_path / f"{9 - i}"
        inner.mkdir()
        (inner / "case.json").write_bytes(some(folder).read_bytes())
        (inner / "notes.txt").write_bytes(b"not a certificate")
    if limit:
        (tmp_path / "big.json").write_bytes(sceptic.canonical(ABSURD["10^9 heads"]))
    assert checker.main(["--max-memory", "4G", str(tmp_path)]) == code
    out, err = capsys.readouterr()
    said = [line for line in out.splitlines() if not line.startswith("skipped")]
    assert len(said) == len(folders.split()) + limit
    assert err == ""
    assert checker.main(["--json", "--max-memory", "4G", str(tmp_path)]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    assert len(found["results"]) == len(folders.split()) + limit


def test_what_is_not_a_file_is_malformed(tmp_path):
    valid = some("valid").read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "valid.json").write_bytes(valid)
    os.mkfifo(tmp_path / "fifo.json")
    cases = [tmp_path / "missing.json", tmp_path / "fifo.json", tmp_path / "dangling.json", tmp_path / "loop.json",
             tmp_path / "valid.json" / "inner.json", tmp_path / ("x" * 300 + ".json"), Path("/" + "x/" * 3000),
             Path("/dev/null"), Path("/dev/zero"), tmp_path / "nul\0.json"]  # fmt: skip
    for path in cases:
        verdict = checker.check_file(path, LIMITS)
        assert verdict.code == 2, (path, verdict)
        assert "broke off" not in verdict.message
    verdict = checker.check_file(tmp_path / "empty", LIMITS)
    assert verdict.code == 2
    for folder in ("empty", "folder.json"):
        assert [v.code for _, v in checker.check_paths([tmp_path / folder], LIMITS)] == [2]
    done = run_checker(*cases[:-1], "", tmp_path / "empty")
    assert done.returncode == 2
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == len(cases) + 1
    done = run_checker(tmp_path)
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.count("MALFORMED") == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_is_malformed(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(some("valid").read_bytes())
    path.chmod(0)
    assert checker.check_file(path, LIMITS).code == 2
    inner = tmp_path / "inner"
    inner.mkdir(mode=0)
    try:
        assert {v.code for _, v in checker.check_paths([inner], LIMITS)} == {2}
    finally:
        inner.chmod(0o700)


def test_loops_and_strange_names(tmp_path, monkeypatch):
    valid = some("valid").read_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "up.json").symlink_to(tmp_path)
    names = ["a.json", "new\nline.json", "esc\x1b[31m.json", "--json.json", "-.json", " .json", "ü.json", "x" * 250 + ".json",
             os.fsdecode(b"\xff\xfe.json"), "\u202e.json", ".json", "quote'\".json", "back\\slash.json", "\r.json"]  # fmt: skip
    for name in names:
        (tmp_path / "a" / name).write_bytes(valid)
    for name in ("A.JSON", "json", "b.json.txt", "b.jsonl"):
        (tmp_path / "a" / name).write_bytes(b"")
    done = run_checker(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(names) + 3  # two links and a line for the other endings
    assert sum(line.startswith("skipped") for line in done.stdout.splitlines()) == 3
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert len(json.loads(run_checker("--json", tmp_path).stdout)["results"]) == len(names)
    monkeypatch.chdir(tmp_path / "a")
    for name in names:
        assert checker.check_file(name, LIMITS).code == 0
        assert checker.check_file(os.fsencode(name), LIMITS).code == 0
    done = run_checker("--", "--json.json", "-.json", " .json")
    assert done.returncode == 0
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert {v.code for _, v in checker.check_paths([tmp_path / "link"], LIMITS)} == {0}


def test_sidecar_is_looked_up_beside_the_certificate(tmp_path, monkeypatch):
    """Not in the working folder, not through a link; a plain relative file name works."""
    document, contents = corpus.proved("sparse", corpus.BIG)
    digest, content = next(iter(contents.items()))
    path, beside = tmp_path / "here" / "a.json", tmp_path / "here" / f"{digest}.bin"
    elsewhere = tmp_path / f"{digest}.bin"
    path.parent.mkdir()
    path.write_bytes(sceptic.canonical(document))
    elsewhere.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert checker.check_file(path, LIMITS).code == 2
    beside.symlink_to(elsewhere)
    assert checker.check_file(path, LIMITS).code == 2
    beside.unlink()
    beside.mkdir()
    assert checker.check_file(path, LIMITS).code == 2
    beside.rmdir()
    os.mkfifo(beside)
    assert checker.check_file(path, LIMITS).code == 2
    beside.unlink()
    os.link(elsewhere, beside)
    assert checker.check_file(path, LIMITS).code == 0
    monkeypatch.chdir(path.parent)
    assert checker.check_file("a.json", LIMITS).code == 0
    for position in (0, 1, 7777, len(content) - 1):
        beside.unlink()
        beside.write_bytes(content[:position] + bytes([content[position] ^ 128]) + content[position + 1 :])
        assert checker.check_file("a.json", LIMITS).code == 2


def test_sidecar_that_changes_while_it_is_read(tmp_path, monkeypatch):
    """What is checked is what was hashed: the file is read once."""
    document, contents = corpus.proved("sparse", corpus.BIG)
    digest, content = next(iter(contents.items()))
    (tmp_path / "a.json").write_bytes(sceptic.canonical(document))
    sidecar = tmp_path / f"{digest}.bin"
    sidecar.write_bytes(content)
    opened = []
    real = os.open

    def counting(path, *arguments, **options):
        if str(path).endswith(".bin"):
            opened.append(path)
            sidecar.write_bytes(bytes(len(content)))  # between the look at its size and the reading
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counting)
    assert checker.check_file(tmp_path / "a.json", LIMITS).code == 2
    assert len(opened) == 1


@pytest.mark.full
def test_report_of_a_closed_pipe_and_of_no_output(tmp_path):
    command = [*MODULE, str(CORPUS / "valid")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 141
    assert error == b""
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    if Path("/dev/full").exists():
        done = subprocess.run(
            ["sh", "-c", '"$@" >/dev/full', "sh", *command], capture_output=True, check=False, timeout=600
        )
        assert done.returncode == 141
        assert len(done.stderr.splitlines()) == 1
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_interrupt(options, tmp_path):
    """Ctrl-C in the middle of a slow certificate: status 130 and one line."""
    (tmp_path / "a.json").write_bytes(some("valid").read_bytes())
    slow = corpus.document(
        "rank-modular", "random", (2, 3, 4, 8, 8), 1500, {"method": "recompute", "prime": 8388593}, rank=176
    )
    (tmp_path / "b.json").write_bytes(sceptic.canonical(slow))
    code = "import sys; from utfproof.certificates import checker; print('ready', flush=True); sys.exit(checker.main())"
    with subprocess.Popen([sys.executable, "-c", code, *options, str(tmp_path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        if options:
            time.sleep(1)
        else:
            assert "valid" in process.stdout.readline()
            time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted\n"


def test_a_deep_folder_is_walked_without_recursion(tmp_path):
    folders = [tmp_path]
    try:
        for _ in range(1500):
            (folders[-1] / "a").mkdir()
            folders.append(folders[-1] / "a")
    except OSError:  # the file system's own limit on paths
        pass
    verdicts = checker.check_paths([tmp_path], LIMITS)
    for folder in reversed(folders[1:]):  # removing the tree is recursive elsewhere, too
        folder.rmdir()
    assert len(folders) > 1000
    assert [verdict.code for _, verdict in verdicts] == [2]


def test_colliding_word_numbers_are_out_of_reach(tmp_path):
    """Words k (2^61 - 1) would share one hash value; shapes with so many words are over the limit."""
    document = corpus.document(
        "rank-deficient", "tied", (2, 2000, 1, 1, 1), 2**2003, corpus.kernel_evidence({0: 1, 1: -1})
    )
    begin = time.process_time()
    (tmp_path / "c.json").write_bytes(sceptic.canonical(document))
    assert checker.check_file(tmp_path / "c.json", LIMITS).code == 3
    assert time.process_time() - begin < 2


def test_full_rank_without_a_kind_is_undecided():
    """shared-key at H = 1 and d = d_in: there m = M and R_all is a permutation, which no kind says of it."""
    with pytest.raises(Undecided, match="universal by matching here, but the certificate kind"):
        prover.certify("shared-key", Shape(1, 2, 2, 2), notion="matching")
