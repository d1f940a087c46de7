"""The frontier: its figures, that lower bounds stay below what is reached, that every number's certificate is valid, and faults
planted in bounds and certificates."""

import dataclasses
import json
import tomllib
from math import comb, isqrt
from pathlib import Path

import numpy as np
import pytest
import second_checker
from hypothesis import given, settings
from hypothesis import strategies as st

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS, dimension_certificate
from utfproof.certificates.identities import identity_certificate
from utfproof.certificates.prover import certify
from utfproof.cli.app import run
from utfproof.errors import MalformedInput, NotDefined, Undecided
from utfproof.frontiers.bounds import BOUNDS, CERTIFIED, LOWER, PROVED, UPPER, require_claim
from utfproof.frontiers.interval import interval
from utfproof.frontiers.questions import ALL, ALMOST_ALL, ANY, BOTH, QUESTIONS, TIED, UNTIED, E, Question, implies
from utfproof.frontiers.streams import RESIDUAL_BOUNDS
from utfproof.frontiers.table import FORMULA, TRIVIAL, frontier, shapes
from utfproof.shapes import Shape
from utfproof.util.notions import Notion

M, A, F, S = Notion.MATCHING, Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL, Notion.SHARED_ATTENTION
OPTIONS = checker.Options()


def code(certificate, folder):
    path = folder / "case.json"
    certificate.write(path)
    return checker.check_file(path, OPTIONS).code


def sides(shape, question, notions=None):
    entry = frontier([Shape(*shape)], notions=notions or [question.notion]).at(Shape(*shape), question)
    return entry.proved.value, entry.reached.value


# --- figures -------------------------------------------------------------------------------------------------------


FIGURES = [
    # parentheses: M, shared-key, shared-query and the attention-matching bound
    ((4, 2, 24, 4), Question(M), (1024, 1024)),
    ((4, 2, 24, 4), Question(A), (97, 164)),
    ((4, 2, 24, 4), Question(A, None, UNTIED, ALMOST_ALL), (97, 144)),
    ((2, 4, 30, 30), Question(M), (2280, 2280)),
    ((2, 4, 30, 30), Question(A), (1380, 1815)),
    ((2, 4, 30, 30), Question(A, None, UNTIED, ALMOST_ALL), (1380, 1380)),
    ((2, 2, 28, 30), Question(A), (300, 375)),
    ((2, 3, 28, 30), Question(A), (659, 835)),
    ((2, 2, 28, 30), Question(A, None, UNTIED, ALMOST_ALL), (300, 369)),
    ((2, 3, 28, 30), Question(F, None, UNTIED, ALMOST_ALL), (659, 821)),
    # all targets, small shapes
    ((2, 2, 1, 2), Question(A), (20, 20)),
    ((3, 1, 1, 2), Question(A), (12, 12)),
    ((3, 1, 1, 2), Question(F), (12, 12)),
    ((5, 1, 1, 2), Question(A), (20, 20)),
    ((5, 1, 1, 2), Question(F), (18, 19)),
    ((2, 1, 2, 3), Question(A), (13, 13)),
    ((2, 1, 2, 3), Question(F), (12, 13)),
    ((1, 3, 1, 2), Question(A), (6, 6)),
    ((1, 4, 1, 3), Question(F), (8, 8)),
    ((1, 3, 1, 2), Question(A, host=TIED), (6, 8)),
    # one layer, functionally
    ((2, 1, 1, 2), Question(F), (8, 8)),
    ((2, 1, 1, 5), Question(F), (14, 14)),
    ((3, 1, 1, 3), Question(F), (14, 15)),
    ((1, 1, 1, 1), Question(F), (2, 2)),
    ((1, 1, 1, 1), Question(A), (3, 3)),
    ((4, 1, 4, 4), Question(F, None, UNTIED, ALMOST_ALL), (32, 32)),
    ((2, 2, 1, 1), Question(F, None, UNTIED, ALMOST_ALL), (10, 10)),
    ((2, 4, 30, 30), Question(F, None, UNTIED, ALMOST_ALL), (1380, 1380)),
    ((2, 2, 3, 2), Question(F, None, UNTIED, ALMOST_ALL), (20, 20)),
    ((2, 2, 2, 2), Question(F, None, TIED, ALMOST_ALL), (12, 20)),
    ((2, 3, 2, 2), Question(F, None, TIED, ALMOST_ALL), (16, 44)),
    ((1, 5, 1, 1), Question(F), (6, 6)),
    # outputs alone
    ((2, 4, 30, 30), Question(S, E), (480, 480)),
    ((2, 6, 1, 1), Question(S, E, TIED), (7, 7)),
    ((3, 4, 1, 1), Question(S, E, TIED), (15, 15)),
    ((2, 6, 1, 1), Question(S, BOTH), (8, 8)),
    ((4, 4, 1, 1), Question(S, BOTH), (16, 16)),
    ((3, 3, 1, 1), Question(S, BOTH, UNTIED, ALMOST_ALL), (6, 9)),
    ((3, 3, 1, 1), Question(S, BOTH), (6, 9)),
    ((2, 3, 1, 1), Question(S, BOTH), (4, 4)),
    ((5, 3, 1, 1), Question(S, BOTH), (12, 25)),
    ((3, 5, 1, 1), Question(S, BOTH, UNTIED, ALMOST_ALL), (16, 27)),
    ((3, 1, 1, 1), Question(S, BOTH), (3, 3)),
    ((7, 1, 1, 1), Question(S, BOTH), (4, 7)),
    ((2, 2, 2, 2), Question(S, BOTH), (4, 4)),
    ((2, 2, 1, 1), Question(S, BOTH, TIED, ALL, TIED), (3, 3)),
    ((2, 2, 1, 1), Question(S, BOTH, TIED), (2, 2)),
    ((2, 2, 1, 1), Question(S, BOTH, UNTIED, ALL, TIED), (3, 4)),
    ((2, 3, 1, 1), Question(S, BOTH, TIED, ALL, TIED), (3, 4)),
    ((2, 4, 1, 2), Question(S, E, TIED), (28, 32)),
    ((2, 4, 2, 2), Question(S, E, TIED), (32, 32)),
    ((2, 3, 1, 1), Question(M, None, TIED), (28, 28)),
]


@pytest.mark.parametrize(("shape", "question", "expected"), FIGURES, ids=lambda value: str(value))
def test_figures(shape, question, expected):
    assert sides(shape, question) == expected


def test_rows_are_the_mathematics():
    """Closed forms, solved for m here, against the least m of the rows."""

    def root(n):
        return isqrt(n - 1) + 1

    for shape in [
        Shape(h, length, d, b) for h in (1, 2, 3) for length in (1, 2, 3, 4) for d in (1, 2, 3) for b in (1, 2, 3)
    ]:
        H, L, d, b = shape.heads, shape.layers, shape.head_dim, shape.d_in
        e, r, words = min(d, b), min(H * min(d, b), b), H**L
        forms = H * (2 * e * b - e * e) + (L - 1) * H * (2 * e * r - e * e)
        wanted = {
            ("M", M, "generic untied", None): 2 * d * shape.word_count + b * words,
            ("logit forms", A, "generic untied", None): b * words - -forms // b,
            ("words", S, "generic untied", E): b * words,
            ("words", S, "generic untied", BOTH): root(words),
            ("counts", S, "generic tied", E): comb(L + H - 1, H - 1),
            ("parameter count", S, "generic untied", BOTH): -(-(b * b * (L * (H - 1) + 1) + 1) // (2 * b)),
            ("odd depth", S, "generic untied", BOTH): root(words + 1),
            ("one token", F, "generic untied", None): b,
        }
        for row in DIMENSION_ROWS:
            key = (row.name, row.notion, row.targets, row.free)
            if key in wanted and row.applies(shape):
                assert row.least(shape) == max(1, wanted[key]), (key, shape)


# --- every number has a valid certificate ------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("heads", "layers", "d", "b"), [((1, 2, 3), (1, 2, 3), 1, 1), ((1, 2, 5), (1, 3), 2, 2),
                                                         ((2, 3), (2, 4), 1, 2)])  # fmt: skip
def test_every_side_has_a_certificate_that_two_checkers_accept(heads, layers, d, b, tmp_path):
    found = frontier(shapes(heads, layers, d, b))
    assert not any(side.status == FORMULA for side in found.sides)
    paths = found.write(tmp_path)
    assert len(paths) == len(found.certificates)
    for path in paths:
        verdict, bound = checker.check_file(path, OPTIONS), found.certified[path.name][0]
        assert verdict.code == 0, path
        assert (verdict.status == "cited") == bound.arithmetic, path  # a theorem in Coq may prove it nevertheless
        assert second_checker.judge(path.read_bytes(), tmp_path) in (0, None), (
            path
        )  # None: a kind of the verified checker
    for entry in found.entries:
        for side in (entry.proved, entry.reached):
            assert side.status == "certificate" or (side.value == 1 and side.bound is None) or proved_only(side)


def proved_only(side):
    """By a bound whose record rests on a written proof, such as roots of polynomials, which no certificate writes."""
    return side.status == PROVED and side.bound.evidence == PROVED


@pytest.mark.full
def test_every_number_of_the_default_table_has_a_certificate(tmp_path):
    """At the deepest shapes the constructions' certificates name what they do not write out; nothing is left to formulas."""
    found = frontier([Shape(3, 10, 1, 1), Shape(4, 10, 1, 1)])
    sides = [side for entry in found.entries for side in (entry.proved, entry.reached)]
    assert {side.status for side in sides if not proved_only(side)} <= {CERTIFIED, TRIVIAL}
    assert any(map(proved_only, sides))
    named = {name for name, made in found.certificates.items() if not made.document["evidence"]}
    for construction in ("register", "shared-query", "tied"):
        assert any(name.endswith(f"{construction}-h4-l10-d1-in1.json") for name in named)
    assert max(len(made.to_bytes()) for made in found.certificates.values()) < 2**20
    for construction in ("register", "shared-query"):  # of about 10^5 words
        made = next(found.certificates[name] for name in named if name.endswith(f"{construction}-h3-l10-d1-in1.json"))
        assert code(made, tmp_path) == 0


def test_theorems_of_bounds_are_headlines_of_the_library():
    headlines = tomllib.loads((Path(__file__).parents[1] / "proofs" / "headlines.toml").read_text())["theorem"]
    theorems = {bound.theorem for bound in (*BOUNDS, *RESIDUAL_BOUNDS)} - {""}
    assert theorems <= {theorem["name"] for theorem in headlines}
    assert "Decision.matching_lower_bound" in theorems


def test_the_linear_test_is_in_the_registry(tmp_path):
    bound = next(bound for bound in BOUNDS if bound.name == "linear test")
    shape = Shape(2, 1, 2, 1)
    made = bound.certificate(shape, bound.value(shape))
    require_claim(made, bound, shape, 8)
    assert code(made, tmp_path) == 0
    assert not bound.applies(Shape(2, 1, 1, 1))


# --- propagation -------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_lower_bounds_stay_below_what_is_reached(heads, layers, d, b):
    shape = Shape(heads, layers, d, b)
    found = frontier([shape], largest=3000)
    values = {entry.question: entry for entry in found.entries}
    for entry in found.entries:
        assert entry.proved.value <= entry.reached.value, entry
    for strong in QUESTIONS:
        for weak in QUESTIONS:
            if implies(strong, weak, shape.layers):
                assert values[weak].proved.value <= values[strong].proved.value
                assert values[weak].reached.value <= values[strong].reached.value


@pytest.mark.parametrize("layers", [1, 3])
def test_implications_are_an_order(layers):
    shape = Shape(2, layers, 1, 1)
    for a in QUESTIONS:
        assert implies(a, a, shape.layers)
        for b in QUESTIONS:
            for c in QUESTIONS:
                if implies(a, b, shape.layers) and implies(b, c, shape.layers):
                    assert implies(a, c, shape.layers)


def test_what_does_not_follow():
    shape = Shape(2, 2, 1, 1)
    for strong, weak in [
        (Question(F), Question(S, BOTH)),
        (Question(F), Question(A)),
        (Question(S, E), Question(F)),
        (Question(S, BOTH), Question(S, E)),
        (Question(M, None, UNTIED, ALMOST_ALL), Question(M)),
        (Question(M, None, UNTIED, ALMOST_ALL), Question(M, None, TIED, ALMOST_ALL)),
        (Question(M, None, TIED), Question(M)),
        (Question(M), Question(M, host=TIED)),
    ]:
        assert not implies(strong, weak, shape.layers)
    assert implies(Question(M, None, TIED), Question(M, host=TIED), 1)


# --- planted faults ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [LOWER, UPPER])
def test_a_value_off_by_one_is_refused(side):
    """One more than is proved, one less than is reached: no certificate can be made, and nothing is printed."""
    step = 1 if side == LOWER else -1
    refused = 0
    for bound in BOUNDS:
        shape = next((s for s in (Shape(2, 3, 1, 1), Shape(3, 1, 1, 1), Shape(2, 2, 2, 2), Shape(2, 3, 2, 2), Shape(1, 1, 1, 1),
                                  Shape(2, 2, 3, 2)) if bound.applies(s)), None)  # fmt: skip
        if bound.side != side or shape is None or bound.certificate is None:
            continue
        wrong = dataclasses.replace(bound, value=lambda s, bound=bound: bound.value(s) + step)
        if side == LOWER and _stronger_row(bound, shape):
            continue  # another row of the same claim proves more: the certificate is true
        with pytest.raises((Undecided, NotDefined, MalformedInput)):
            made_and_compared(wrong, shape)
        refused += 1
    assert refused >= (12 if side == LOWER else 11)


def made_and_compared(bound, shape):
    value = bound.value(shape)
    require_claim(bound.certificate(shape, value), bound, shape, value)


def _stronger_row(bound, shape):
    return any(
        other.side == LOWER and other is not bound and other.question == bound.question
        and other.name != "span" and other.applies(shape) and other.value(shape) > bound.value(shape)
        for other in BOUNDS
    )  # fmt: skip


def test_the_table_stops_at_a_bound_off_by_one():
    def raised(bound):
        return dataclasses.replace(bound, value=lambda shape: bound.value(shape) + 1)

    chosen = [b for b in BOUNDS if b.name == "M" and b.question == Question(M, None, UNTIED, ALMOST_ALL)]
    assert (
        frontier([Shape(2, 2, 1, 1)], notions=[M], bounds=chosen).at(Shape(2, 2, 1, 1), Question(M)).proved.value == 16
    )
    with pytest.raises(Undecided):
        _ = frontier([Shape(2, 2, 1, 1)], notions=[M], bounds=[raised(b) for b in chosen]).certificates


def test_a_forged_dimension_is_refused_by_the_checker(tmp_path):
    """What the prover's arithmetic would let through were it wrong, the checker's does not."""
    shape = Shape(2, 2, 2, 2)
    for bound in (b for b in BOUNDS if b.side == LOWER and b.name != "span" and b.applies(shape)):
        if _stronger_row(bound, shape) or bound.value(shape) < 2:
            continue
        made = bound.certificate(shape, bound.value(shape))
        assert code(made, tmp_path) == 0
        made.document["shape"]["m"] += 1
        assert code(made, tmp_path) == 1


def test_a_certificate_of_another_claim_is_refused():
    shape = Shape(2, 2, 1, 1)
    lower = next(b for b in BOUNDS if b.name == "logit forms")
    value = lower.value(shape)
    for made in (
        dimension_certificate(shape, value - 1, notion=M, targets="generic untied"),  # another notion
        dimension_certificate(Shape(2, 3, 1, 1), value - 1, notion=A, targets="generic untied"),  # another shape
        dimension_certificate(shape, value - 2, notion=A, targets="generic untied"),  # another m
        dimension_certificate(shape, value - 1, notion=A, targets="generic untied", every="tied host"),  # other hosts
        dimension_certificate(shape, 4, notion=A, targets="generic tied"),  # other targets
        identity_certificate("shared-key", shape),  # another verdict
    ):
        with pytest.raises(Undecided):
            require_claim(made, lower, shape, value)
    everyone = next(b for b in BOUNDS if b.name == "shared-key")
    with pytest.raises(Undecided, match="invertible"):  # almost all targets are not all
        require_claim(identity_certificate("shared-query", shape, 13), everyone, shape, 13)
    tied = next(b for b in BOUNDS if b.name == "register")
    with pytest.raises(Undecided):
        require_claim(identity_certificate("two-sided", shape, 4), tied, shape, 4)
    with pytest.raises(Undecided, match="shared attention"):  # attention from outside is less than logits that agree
        require_claim(identity_certificate("register", shape, 13), everyone, shape, 13)
    stronger = certify("random-tied", Shape(1, 1, 2, 1), 5, notion=A)
    require_claim(stronger, tied, Shape(1, 1, 2, 1), 5)  # logits that agree are more


def test_bounds_for_all_targets_are_not_taken_for_almost_all():
    """m = 2 is too few at (1,1,1,1) by attention-matching for all targets, and enough for almost all."""
    assert sides((1, 1, 1, 1), Question(A)) == (3, 3)
    assert sides((1, 1, 1, 1), Question(A, None, UNTIED, ALMOST_ALL)) == (2, 2)


# --- the middle layer, and a bound by calculus ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 2, 1, 1), (2, 2, 2, 2), (2, 2, 1, 2), (2, 3, 1, 1), (1, 3, 2, 2)])
def test_separate_paths_stay_below_the_rank_of_the_differential(shape):
    """Outputs of a drawn softmax target at many contexts, differentiated: their rank is at least the bound times d_in."""
    H, L, d, b = shape
    rng = np.random.default_rng(3)
    theta = [rng.normal(size=(1, H, *size)) for size in ((b, d), (b, d), (b, d), (d, b))]
    contexts = rng.normal(size=(12 * H * L * d, 4, b)) * 1.5

    def outputs(W):
        x = contexts
        for _ in range(L):
            new = 0
            for h in range(H):
                q, k, v, o = (w[0, h] for w in W)
                logits = (x @ q) @ (x @ k).transpose(0, 2, 1)
                a = np.exp(logits - logits.max(axis=2, keepdims=True))
                new = new + (a / a.sum(axis=2, keepdims=True)) @ x @ v @ o
            x = new
        return x.ravel()

    rows = []
    for tensor, array in enumerate(theta):
        for index in np.ndindex(array.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [w.copy() for w in theta]
                moved[tensor][index] += step
                ends.append(outputs(moved))
            rows.append((ends[0] - ends[1]) / 2e-5)
    values = np.linalg.svd(np.array(rows), compute_uv=False)
    rank = int((values > 1e-6 * values[0]).sum())
    for row in DIMENSION_ROWS:
        if row.name == "separate paths" and row.applies(Shape(*shape)):
            assert row.least(Shape(*shape)) <= -(-rank // shape[3])


# --- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_command(tmp_path, capsys):
    folder = tmp_path / "proofs"
    folder.mkdir()
    arguments = ["frontier", "--heads", "1..2", "--layers", "1..3", "--certificates", str(folder)]
    assert run([*arguments, "--plot", str(tmp_path / "m.png")]) == 0
    out, err = capsys.readouterr()
    assert "shared attention, E and U free — untied targets (all; any host)" in out
    assert "attention-matching — untied targets (almost all; any host or tied host)" in out
    assert err == ""
    assert (tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"
    assert checker.main([str(folder)]) == 0
    capsys.readouterr()
    assert run(["frontier", "-H", "2", "-L", "3", "--notion", "shared-attention", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    entry = next(
        e for e in document["entries"]
        if (e["free"], e["targets"], e["extent"], e["host"]) == (BOTH, UNTIED, ALL, ANY)
    )  # fmt: skip
    assert (entry["proved"]["m"], entry["reached"]["m"], entry["exact"]) == (4, 4, True)
    assert entry["proved"]["file"].startswith("lower-shared-attention-e-and-u")
    assert entry["paper"] == {"label": "thm:lower_bound_utf", "m": 3, "refuted": False, "side": "lower"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--heads", "0"], "--heads"),
        (["--heads", "3..1"], "--heads"),
        (["--layers", "x"], "--layers"),
        (["--notion", "Matching"], "--notion"),
        (["--certificates", "/nowhere/at/all"], "folder"),
        (["--plot", "m.nothing"], "plot"),
        (["--heads", "1..64", "--layers", "1..64"], "shapes"),
    ],
)
def test_command_refuses(arguments, word, capsys):
    assert run(["frontier", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert word in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("shape", ["-H 2 -L 2", "-H 4 -L 8 -d 8 --d-in 16", "-H 3 -L 4 -d 2 --d-in 2 --residual"])
def test_one_shape_is_a_paragraph_and_one_table_of_a_hundred_columns(capsys, shape):
    assert run(["frontier", *shape.split()]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert out.count("least m  ") == 1


def test_the_frontier_of_numbers_is_closed_for_all_targets():
    """d = d_in = 1: S + H^L, functionally and by attention-matching, but by attention-matching at one head and one layer."""
    for H in range(1, 5):
        for L in range(1, 5):
            shape = Shape(H, L, 1, 1)
            for notion in (Notion.ATTENTION_MATCHING, Notion.FUNCTIONAL):
                for extent in (ALL, ALMOST_ALL):
                    known = interval(shape, Question(notion, extent=extent))
                    alone = (H, L, notion, extent) == (1, 1, Notion.ATTENTION_MATCHING, ALL)
                    assert known.closed
                    assert known.lower == (3 if alone else shape.word_count + shape.leaves)
