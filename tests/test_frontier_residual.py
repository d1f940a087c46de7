"""The frontier of residual streams: its figures, every host of its table run exactly, spans against ranks, lemmas at small
sizes, certificates, and faults planted in hosts, bounds and certificates."""

import dataclasses
import json
from fractions import Fraction
from itertools import product
from math import ceil, comb, isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from second_checker import wider_than_input

from utfproof.certificates import checker
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.prover import certify
from utfproof.claims.registry import all_claims
from utfproof.cli.app import run
from utfproof.constructions.random import integer_target
from utfproof.errors import MalformedInput, NotDefined, Undecided, UtfproofError
from utfproof.exact import gfp
from utfproof.frontiers import streams
from utfproof.frontiers.bounds import BOUNDS, IMPOSSIBLE, LOWER, UPPER, require_claim
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, BOTH, QUESTIONS, TIED, UNTIED, E, Question, implies
from utfproof.frontiers.streams import RESIDUAL_BOUNDS
from utfproof.frontiers.table import frontier, groups, shapes
from utfproof.matching import w_all
from utfproof.shapes import Shape, geometric, matching_dimension, tied_targets_dimension
from utfproof.systems import prefix_products
from utfproof.util.notions import Notion

M, A, F, S = Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL, Notion.SHARED_ATTENTION
OPTIONS = checker.Options()
PRIME = gfp.DEFAULT_PRIMES[0]
TIED_ALL = {"targets": TIED, "extent": ALL, "host": TIED}


def streaming(*dims):
    return Shape(*dims, residual=True)


def entry_of(shape, question):
    return frontier([shape], notions=[question.notion]).at(shape, question)


def sides(dims, question):
    entry = entry_of(streaming(*dims), question)
    return entry.proved.value, None if entry.reached is None else entry.reached.value


def rank(matrix):
    return gfp.rank(gfp.residues(matrix, PRIME), PRIME)


# --- figures -------------------------------------------------------------------------------------------------------

FIGURES = [
    ((2, 2, 1, 1), Question(M), (25, 25)),
    ((2, 4, 30, 30), Question(M), (7230, 7230)),
    ((4, 2, 24, 4), Question(M), (1252, 1252)),
    ((2, 2, 2, 2), Question(M, **TIED_ALL), (38, 38)),
    ((2, 2, 1, 1), Question(M, **TIED_ALL), (18, 19)),
    ((1, 3, 1, 2), Question(M, **TIED_ALL), (14, 14)),
    ((2, 2, 2, 2), Question(A), (34, 34)),
    ((4, 2, 24, 4), Question(A), (133, 196)),
    ((1, 2, 2, 1), Question(A), (7, 7)),
    ((2, 2, 3, 2), Question(F), (34, 34)),
    ((1, 2, 1, 3), Question(A, extent=ALMOST_ALL), (17, 18)),
    ((2, 2, 28, 30), Question(A), (509, 614)),
    ((2, 3, 1, 1), Question(F, None, UNTIED, ALMOST_ALL), (53, 53)),
    ((1, 2, 1, 1), Question(F), (7, 7)),
    ((2, 1, 3, 2), Question(A), (10, 10)),
    ((2, 1, 2, 2), Question(F), (10, 10)),
    ((1, 1, 1, 1), Question(F), (3, 3)),
    ((3, 1, 1, 2), Question(F), (13, 20)),
    ((2, 2, 1, 1), Question(A, **TIED_ALL), (8, 19)),
    ((2, 4, 30, 30), Question(S, E), (2430, 2430)),
    ((2, 3, 1, 1), Question(S, E, **TIED_ALL), (10, 15)),
    ((2, 2, 2, 2), Question(S, E, **TIED_ALL), (14, 14)),
    ((2, 2, 1, 1), Question(S, BOTH), (3, 9)),
    ((2, 2, 2, 2), Question(S, BOTH), (6, 18)),
    ((3, 3, 1, 1), Question(S, BOTH), (8, 64)),
    ((2, 3, 1, 1), Question(S, BOTH, TIED), (4, 15)),
    ((2, 2, 1, 1), Question(M, host=TIED), (25, None)),
    ((2, 2, 1, 1), Question(F, host=TIED), (17, None)),
]


@pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
@pytest.mark.parametrize(("dims", "question", "expected"), FIGURES, ids=lambda value: str(value))
def test_figures(dims, question, expected):
    if question == Question(A) and dims == (2, 2, 28, 30):
        # d < d_in: keys need blocks of their own
        expected = (509, matching_dimension(streaming(*dims)))
    if question == Question(F) and dims == (3, 1, 1, 2):
        expected = (13, matching_dimension(streaming(*dims)))
    assert sides(dims, question) == expected


def test_values_are_the_page():
    """docs/frontier.md, its table, computed in another way at every small shape."""

    def root(n):
        return isqrt(n - 1) + 1

    def up(n, d):
        return -(-n // d)

    for H, L, d, b in product((1, 2, 3), (1, 2, 3, 4), (1, 2, 3), (1, 2, 3)):
        shape, e, words = streaming(H, L, d, b), min(d, b), (H + 1) ** L
        form = 2 * e * b - e * e
        s = [
            H**t if t <= e else (comb(t + H - 1, H - 1) if b == 1 else H * comb(t + H - 2, H - 1)) for t in range(L + 1)
        ]
        o = [
            b * H**t if t <= e else comb(t + H - 1, H - 1) + (b - 1) * H * comb(t + H - 2, H - 1) for t in range(L + 1)
        ]
        plus, q = b > 1, H + 1 if (H + 1) * d >= b else Fraction(b, b - H * d)
        readers = ceil(b * words + H * sum(q**t for t in range(L)) * Fraction(form, b))
        if d > b:
            readers = ceil(wider_than_input(H, L, d, b, H + 1)) if L > 1 else b * (words + H)
        wanted = {
            (M, None, UNTIED): 2 * d * H * sum((H + 1) ** t for t in range(L)) + b * words,
            (M, None, TIED): 2 * d * H * sum(s[:L]) + sum(o),
            (A, None, UNTIED): readers,
            (A, None, TIED): up(b * sum(o) + H * form, b),
            (F, None, UNTIED): readers,
            (S, E, UNTIED): b * words,
            (S, E, TIED): sum(o),
            (S, BOTH, UNTIED): max(b, root(words + plus), up(b * b + 1 + L * H * form, 2 * b)),
            (S, BOTH, TIED): max(b, root(sum(s) + plus), up(b * b + 1 + H * form, 2 * b)),
        }
        for (notion, free, targets), value in wanted.items():
            own = [
                bound.value(shape)
                for bound in RESIDUAL_BOUNDS
                if bound.side == LOWER and bound.applies(shape)
                and (bound.question.notion, bound.question.free, bound.question.targets) == (notion, free, targets)
            ]  # fmt: skip
            assert max(own) == value, (shape, notion, free, targets)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_lower_bounds_stay_below_what_is_reached(heads, layers, d, b):
    shape = streaming(heads, layers, d, b)
    found = frontier([shape], largest=3000)
    values = {entry.question: entry for entry in found.entries}
    for entry in found.entries:
        asked = entry.question
        never = asked.host == TIED and asked.targets == UNTIED and layers > 1
        assert (entry.impossible is not None) == never
        assert (entry.reached is None) == never
        assert entry.paper is None
        assert entry.reached is None or entry.proved.value <= entry.reached.value
    for strong, weak in product(QUESTIONS, QUESTIONS):
        if implies(strong, weak, shape.layers):
            assert values[weak].proved.value <= values[strong].proved.value
            if values[strong].reached is not None:
                assert values[weak].reached.value <= values[strong].reached.value
            if values[weak].impossible is not None:
                assert values[strong].impossible is not None


@pytest.mark.parametrize("heads", [1, 2, 3, 5])
@pytest.mark.parametrize("b", [1, 2, 3])
def test_one_layer_is_exact(heads, b):
    """d_in (2H + 1), functionally and by attention-matching, as soon as d >= d_in."""
    for notion in (A, F):
        entry = entry_of(streaming(heads, 1, b, b), Question(notion))
        assert entry.exact
        assert entry.reached.value == b * (2 * heads + 1)


def outputs(shape, matrix):
    return matrix[:, -shape.d_out * shape.words_at(shape.layers) :]


# --- spans and lemmas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(2, 2, 1, 1), (2, 2, 2, 2), (2, 3, 1, 1), (3, 2, 1, 1), (2, 2, 1, 2), (1, 3, 1, 2),
                                  (1, 4, 2, 3), (2, 3, 1, 2)])  # fmt: skip
def test_spans_of_tied_targets(dims):
    """Ranks of many targets' rows are at least what the formulas say; equal for numbers, where paths fit, and at H = 1."""
    shape = streaming(*dims)
    targets = [integer_target(shape, 100 + i, tied=True, bound=16) for i in range(2 * tied_targets_dimension(shape))]
    tables = np.array([outputs(shape, w_all(t)) for t in targets])
    count, b = shape.words_at(shape.layers), shape.d_in
    found = (
        rank(np.concatenate([w_all(t) for t in targets])),
        rank(tables.reshape(-1, b * count)),
        rank(tables.reshape(-1, b, count, b).transpose(0, 1, 3, 2).reshape(-1, count)),
    )
    formulas = (streams.spanned_matching(shape), streams.spanned_outputs(shape), streams.spanned_products(shape))
    assert all(have >= say for have, say in zip(found, formulas, strict=True)), (found, formulas)
    if b == 1 or min(shape.head_dim, b) >= shape.layers:
        assert found == formulas
    if min(shape.head_dim, b) >= shape.layers:
        assert formulas[:2] == (tied_targets_dimension(shape), b * geometric(shape.heads, 0, shape.layers))


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (2, 2), (1, 3), (3, 2)])
def test_spanning_lemma(heads, layers):
    """In the contexts of the lemma the first rows of P_w form a unitriangular matrix; no context isolates a word."""
    words = list(product(range(heads + 1), repeat=layers))
    same, other = np.eye(2, dtype=int), np.array([[0, 1], [0, 1]])
    seen = np.zeros((len(words), len(words)), dtype=int)
    for i, s in enumerate(words):
        for j, v in enumerate(words):
            path = same
            for at, letter in enumerate(v):
                path = (same if letter in (0, s[at]) else other) @ path
            seen[i, j] = path[0, 0]
            assert seen[i, j] == all(a in (0, c) for a, c in zip(v, s, strict=True))
    order = sorted(range(len(words)), key=lambda i: sum(letter > 0 for letter in words[i]))
    ordered = seen[np.ix_(order, order)]
    assert (np.triu(ordered, 1) == 0).all()
    assert (np.diag(ordered) == 1).all()
    assert seen.sum() > len(words)


def test_heads_with_different_forms_and_the_stream_are_independent():
    """Lemma 1 of the fibre dimension with the summand X M_0: A^1 X, ..., A^k X and X have independent columns."""
    rng = np.random.default_rng(0)
    b, forms = 2, [rng.normal(size=(2, 2)) for _ in range(3)] + [np.zeros((2, 2))]
    rows = []
    for _ in range(30):
        x = rng.normal(size=(3, b))
        parts = [x]
        for form in forms:
            logits = x @ form @ x.T
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            parts.append(weights / weights.sum(axis=1, keepdims=True) @ x)
        rows.append(np.concatenate(parts, axis=1))
    values = np.linalg.svd(np.concatenate(rows), compute_uv=False)
    assert (values > 1e-6 * values[0]).all()
    assert len(values) == (len(forms) + 1) * b


@pytest.mark.parametrize(("heads", "m", "b"), [(3, 2, 1), (2, 4, 2), (5, 3, 1)])
def test_parameters_of_a_host_with_both_free(heads, m, b):
    """The image of {E U = I} under E R^h U has dimension at most 2bm - b^2 - 1."""
    rng = np.random.default_rng(2)
    R = [rng.normal(size=(m, m)) for _ in range(heads + 4)]
    e = rng.normal(size=(b, m))
    u = np.linalg.pinv(e)
    columns, constraint = [], []
    for which, size in ((0, (b, m)), (1, (m, b))):
        for at in np.ndindex(size):
            step = np.zeros(size)
            step[at] = 1
            columns.append(np.concatenate([(step @ r @ u if which == 0 else e @ r @ step).ravel() for r in R]))
            constraint.append((step @ u if which == 0 else e @ step).ravel())
    _, values, kernel = np.linalg.svd(np.array(constraint).T)
    tangent = kernel[(values > 1e-9).sum() :]
    found = np.linalg.svd(tangent @ np.array(columns), compute_uv=False)
    dimension = int((found > 1e-9 * found[0]).sum())
    assert dimension == 2 * b * m - b * b - 1


def test_words_with_the_same_letters_in_other_places():
    """What no tied host can do: R_w is that of the word without zeros, M_w of untied targets is not."""
    shape = streaming(2, 2, 1, 2)
    target = integer_target(shape, 4)
    table = prefix_products(target, 2)
    assert (table[1] != table[3]).any()  # (0, 1) and (1, 0)
    tied = prefix_products(integer_target(shape, 4, tied=True), 2)
    assert (tied[1] == tied[3]).all()


# --- certificates ------------------------------------------------------------------------------------------------------


def test_certificates_by_matching(tmp_path):
    """Both sides by matching have certificates that the checker accepts, and so has the negative result."""
    found = frontier(shapes((1, 2), (1, 2), 2, 2, residual=True), notions=[M])
    for entry in found.entries:
        sides_ = (entry.proved, entry.reached, entry.impossible)
        assert all(side is None or side.status == "certificate" for side in sides_), entry
    paths = found.write(tmp_path)
    assert sum("impossible" in path.name for path in paths) == 2
    for path in paths:
        assert checker.check_file(path, OPTIONS).code == 0, path
        document = json.loads(path.read_bytes())
        assert document["shape"]["residual"] is True


@pytest.mark.parametrize("side", [LOWER, UPPER])
def test_a_value_off_by_one_is_refused(side):
    step = 1 if side == LOWER else -1
    shape, refused = streaming(2, 2, 2, 2), 0
    for bound in RESIDUAL_BOUNDS:
        if bound.side != side or bound.certificate is None or not bound.applies(shape) or bound.name == "logit forms":
            continue  # the logit forms' bound is below another one of the same claim here
        value = bound.value(shape)
        require_claim(bound.certificate(shape, value), bound, shape, value)
        with pytest.raises((Undecided, NotDefined, MalformedInput)):
            require_claim(bound.certificate(shape, value + step), bound, shape, value + step)
        refused += 1
    assert refused >= 2


def test_a_certificate_without_the_stream_is_refused():
    stream, plain = streaming(2, 2, 2, 2), Shape(2, 2, 2, 2)
    bound = next(b for b in RESIDUAL_BOUNDS if b.name == "M" and b.question.extent == ALL)
    with pytest.raises(Undecided, match="another shape"):
        require_claim(dimension_certificate(plain, 31), bound, stream, 32)
    sparse = next(b for b in RESIDUAL_BOUNDS if b.name == "sparse")
    with pytest.raises(Undecided, match="another shape"):
        require_claim(certify("sparse", plain, 50), sparse, stream, 50)
    never = next(b for b in RESIDUAL_BOUNDS if b.side == IMPOSSIBLE and b.certificate is not None)
    with pytest.raises(Undecided, match="all untied targets, not matching: almost all untied targets, tied host"):
        require_claim(dimension_certificate(stream, 49), never, stream, 49)


def test_bounds_of_one_kind_of_shape_are_not_taken_for_the_other():
    plain, stream = Shape(2, 2, 2, 2), streaming(2, 2, 2, 2)
    both = frontier([plain, stream], notions=[M, S])
    assert both.at(plain, Question(M)).reached.value == 32
    assert both.at(stream, Question(M)).reached.value == 50 == matching_dimension(stream)
    assert not any(bound.residual for bound in BOUNDS)
    assert all(entry.reached is None for entry in frontier([stream], bounds=BOUNDS).entries)
    assert {"-residual" in name for name in both.certificates} == {True, False}


def test_a_host_that_cannot_be_stops_the_table():
    wrong = dataclasses.replace(
        next(b for b in RESIDUAL_BOUNDS if b.name == "output tree"), question=Question(S, E, host=TIED)
    )
    with pytest.raises(Undecided, match="one of the two is wrong"):
        frontier([streaming(2, 2, 1, 1)], notions=[S], bounds=[*RESIDUAL_BOUNDS, wrong])


def test_claims_that_are_named_are_registered():
    named = {bound.claim for bound in RESIDUAL_BOUNDS if bound.claim}
    assert {"new:residual/decision", "new:residual/unimodular", "new:residual/tied-host"} <= named
    assert named <= set(all_claims())


# --- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_command(tmp_path, capsys):
    picture = tmp_path / "m.png"
    folder = tmp_path / "proofs"
    assert run(["frontier", "--residual", "-H", "1..2", "-L", "1..2", "--plot", str(picture),
                "--certificates", str(folder)]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert err == ""
    assert "none: no host of any m serves these targets." in out
    assert "† " in out
    assert "paper" not in out
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert checker.main([str(folder)]) == 0
    capsys.readouterr()
    assert run(["frontier", "--residual", "-H", "2", "-L", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    entries = {(e["notion"], e["free"], e["targets"], e["extent"], e["host"]): e for e in document["entries"]}
    entry = entries["matching", None, UNTIED, ALL, TIED]
    assert entry["shape"]["residual"] is True
    assert entry["reached"] is None
    assert entry["impossible"]["claim"] == "new:residual/tied-host"
    assert entries["matching", None, UNTIED, ALL, ANY]["exact"]
    assert "impossible" not in entries["matching", None, UNTIED, ALL, ANY]
    assert document["sides"]["proof"] > 0


def test_present_output_is_as_it_was(capsys):
    assert run(["frontier", "-H", "2", "-L", "2", "-d", "2", "--d-in", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["sides"]) == {"certificate"}
    assert set(document["rests_on"]) == {"proved", "checked", "cited"}
    assert all("residual" not in e["shape"] and "impossible" not in e for e in document["entries"])
    assert "claim" not in json.dumps(document)


def test_groups_lose_no_question():
    found = frontier(shapes([2], [1, 2], 1, 1, residual=True))
    merged = groups(found)
    assert sorted(str(q) for group in merged for q in group.questions) == sorted(map(str, QUESTIONS))
    tied = [g for g in merged if any(q == Question(M, None, UNTIED, ALMOST_ALL, TIED) for q in g.questions)]
    assert len(tied) == 1
    assert issubclass(Undecided, UtfproofError)
