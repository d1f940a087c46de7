"""Certificates: the corpus, the prover against the checker, every mutation of a certificate, planted faults in the
prover, limits, and the command line of the checker. `sceptic.judge` is the independent second opinion."""

import contextlib
import dataclasses
import hashlib
import inspect
import io
import json
import subprocess
import sys
from fractions import Fraction

import corpus_enclosures
import corpus_forms
import corpus_identities
import corpus_weights
import make_corpus as corpus
import naive
import numpy as np
import pytest
import sceptic
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import OPTIONS, verdict_on, write_anew
from make_corpus import CORPUS
from sceptic import DTYPES, INDEX, LAWS, PERMUTATIONS, RANDOM, judge

from utfproof.certificates import checker, prover
from utfproof.certificates.forms import CERTIFICATES
from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import Undecided
from utfproof.exact import rational
from utfproof.ground.arrays import exact
from utfproof.shapes import Shape

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
    assert count["malformed"] > 1000
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
    bounds = {("lower-bound", None, *row[:3]) for row in corpus_identities.table_of_bounds().values()}
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


@pytest.fixture(scope="module")
def lines():
    """What the checker prints on the folders of the corpus, a line a file."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for folder, code in FOLDERS.items():
            assert checker.main([str(path) for path in FILES if path.parent.name == folder]) == code
    found = printed.getvalue().splitlines()
    assert len(found) == len(FILES)
    return dict(zip(FILES, found, strict=True))


@pytest.fixture(scope="module")
def with_numpy():
    """Limits of one run: the headers of weights are read once."""
    return dataclasses.replace(OPTIONS, numpy=True)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_corpus(path, lines, with_numpy):
    code = FOLDERS[path.parent.name]
    verdict = checker.judge(path, with_numpy)
    assert verdict.code == code, verdict
    assert verdict.message
    assert lines[path].startswith(f"{checker.LABELS[code]:9} {path}: ")
    assert lines[path].isascii()
    assert "broke off" not in verdict.message + lines[path]


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_what_a_form_rules_out(kind, tmp_path):
    path, count = tmp_path / "derived.json", 0
    for name, document in corpus_forms.derived(kind):
        raw = corpus.encoded(document)
        write_anew(path, raw)
        verdict = checker.check_file(path, OPTIONS)
        assert (verdict.code, judge(raw, tmp_path)) == (2, 2), (name, verdict)
        assert verdict.message.isprintable(), name
        assert "broke off" not in verdict.message, name
        count += 1
    assert count > 200


@pytest.mark.parametrize("folder", FOLDERS)
def test_corpus_on_the_command_line(folder):
    """All forms of output; `test_corpus` has every file."""
    paths, code = sorted((CORPUS / folder).glob("*.json"))[:20], FOLDERS[folder]
    done = run_checker("--json", *paths)
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], done.stderr) == (code, code, "")
    assert [entry["code"] for entry in found["results"]] == [code] * 20
    done = run_checker(*paths)
    assert (done.returncode, done.stderr) == (code, "")
    assert len(done.stdout.splitlines()) == 20
    done = run_checker("--quiet", *paths)
    assert done.returncode == code
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
            assert not CONSTRUCTIONS[name].defined(Shape(*dims))
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
    verdict = checker.check_file(folder / "a.json", OPTIONS)
    assert verdict.code == 0, verdict
    assert judge((folder / "a.json").read_bytes(), folder) == 0


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
            assert verdict_on(found, tmp_path).code == int(total.any()), (dims, z)


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
    assert verdict_on(found, folder).code == 0
    place = data.draw(st.integers(0, len(columns) - 1))
    z[place] = z.get(place, 0) + data.draw(st.sampled_from([1, -1, 2**53, 2**61 - 1, 2**64]))
    z = {i: v for i, v in z.items() if v}
    assume(z)
    found = corpus.document("rank-deficient", name, dims, least, corpus.kernel_evidence(z))
    assert verdict_on(found, folder).code == judge(sceptic.canonical(found), folder)


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
                code = verdict_on(found, tmp_path).code
                assert code == judge(sceptic.canonical(found), tmp_path)
                count[code] += 1
    assert min(count) >= 10


# --- every field, every wrong value --------------------------------------------------------------------------------

SMALL = (2, 1, 1, 1, 1)


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
        corpus_weights.tied_target("printed-looped", (2, 1, 1, 1, 1)), "evidence", "target", [["W_Q", 0, 0, 0, 0, 1]]
    ),
    "tied-kernel": lambda: WEIGHTS["tied-kernel"][0],
    "linear-gauged": lambda: corpus_weights.gauged("random", (1, 1, 2, 1, 1), 5, 1, seed=4),
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
    tensors = corpus_weights.drawn_weights(False, tiny, 4, 5, "F16")
    few = corpus_weights.drawn_weights(True, (1, 2, 1, 1, 1), 4, 6, corpus_weights.MIXED)
    integers, factors = sceptic.Stored(few, True, (1, 2, 1, 1, 1), 4).integers()
    evidence = corpus.kernel_evidence(corpus.kernel_basis(integers * np.array(factors, dtype=object))[0])
    return {
        "weights-modular": corpus_weights.of_weights(
            "rank-modular", False, tensors, tiny, 4, {"method": "recompute", "prime": 101}, label="modular", rank=3
        ),
        "weights-kernel": corpus_weights.of_weights(
            "rank-deficient", True, few, (1, 2, 1, 1, 1), 4, evidence, label="kernel"
        ),
        "tied-kernel": corpus_weights.tied_kernel((2, 2, 1), "kernel-of-tied-targets", prime=101),
    }


WEIGHTS = weights_bases()


def copy_sidecars(folder):
    contents = corpus.proved("sparse", corpus.BIG)[1] | corpus.witness("random-tied", corpus.TALL, 66, 65521, seed=6)[1]
    for content in contents.values():
        (folder / f"{hashlib.sha256(content).hexdigest()}.bin").write_bytes(content)
    for _, files in WEIGHTS.values():
        for name, content in files.items():
            (folder / name).write_bytes(content)
