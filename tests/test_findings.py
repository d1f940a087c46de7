"""The figures beside a verdict: margins against their own definitions, rounding told from low rank, misses and words."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from naive import r_all as naive_r_all
from test_decide import random_tensors, save

from utfproof import weights
from utfproof.attention import SoftmaxAttention
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.certificates.prover import certify
from utfproof.constructions import build_host, random_target
from utfproof.decision import counterexample, findings, margin
from utfproof.decision.verdict import HostVerdict, decision_of
from utfproof.emulation.compare import random_input
from utfproof.errors import Undecided
from utfproof.exact import rational
from utfproof.ground.arrays import exact
from utfproof.ground.generator import round_to
from utfproof.ground.notions import Hosts, Notion, Scope, Targets
from utfproof.matching import Embedder, isolating_target, r_all, w_all
from utfproof.shapes import Column, Shape, column_index, matching_dimension
from utfproof.weights import stored_host

pytestmark = pytest.mark.numerical

FORMATS = ("float32", "float16", "bfloat16")


def stored(tmp_path, tensors, dtype="float64", **options):
    return stored_host(save(tmp_path / "h.safetensors", tensors, dtype), **options)


def host_of(tmp_path, name, shape, m=None, dtype="float64", seed=0):
    """(path, stored host, host in float64) of a random construction."""
    path = tmp_path / "h.safetensors"
    weights.write_host(path, build_host(name, shape, m, seed=seed, dtype=dtype), dtype=dtype)
    return path, stored_host(path), weights.read_host(path)


# --- margins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "random-tied"])
@pytest.mark.parametrize("m", [None, 25])
def test_margin_is_that_of_numerical_rank(tmp_path, name, m):
    _, kept, host = host_of(tmp_path, name, Shape(2, 2, 1, 2), m)
    found = margin.margin_of(kept, host, universal=True)
    solver = Embedder(host).solver
    assert (found.rank, found.rounded) == (solver.rank, None)
    assert found.condition == pytest.approx(solver.condition)
    assert found.sigma_max >= 1 >= found.sigma_min


@pytest.mark.parametrize("place", [(2, 2, 2, 3), (1, 3, 2, 3), (3, 1, 2, 4), (2, 3, 1, 1)])
@pytest.mark.parametrize("m_over", [1, 1.3])
def test_errors_that_the_margin_promises(tmp_path, place, m_over):
    """Rounding E stays within u kappa, a pass in float32 within its estimate; neither is idle by more than 10^4."""
    shape = Shape(*place)
    m = int(matching_dimension(shape) * m_over)
    _, kept, host = host_of(tmp_path, "random", shape, m, dtype="float32", seed=1)
    found = margin.margin_of(kept, host, universal=True)
    target = random_target(shape, 3)
    matrix, W = r_all(host), w_all(target)
    lengths = np.linalg.norm(matrix, axis=0)
    # the least-norm solution of the scaled equations, by a route of its own
    E = (W / lengths) @ np.linalg.pinv(matrix / lengths)
    for name, kind in (("float32", "float32"), ("bfloat16", "bfloat16")):
        rounded = round_to(E, kind).astype(np.float64)
        error = np.linalg.norm((rounded @ matrix - W) / lengths) / np.linalg.norm(W / lengths)
        bound = found.errors[name].embedding
        assert bound / 1e4 < error <= bound
    # word by word in float32, as a pass does
    short = replace(host, **{n: getattr(host, n).astype(np.float32) for n in ("R_Q", "R_K", "R_V", "U")})
    routes, passed = [E.astype(np.float32)], {"Q": [], "K": []}
    for layer in range(shape.layers):
        maps = [short.maps(layer, h) for h in range(shape.heads)]
        passed["Q"] += [e @ entry.query for e in routes for entry in maps]
        passed["K"] += [e @ entry.key for e in routes for entry in maps]
        routes = [e @ entry.value[0] for e in routes for entry in maps]
    done = np.concatenate([*passed["Q"], *passed["K"], *(e @ short.U for e in routes)], axis=1)
    assert done.dtype == np.float32
    error = np.linalg.norm((done - W) / lengths) / np.linalg.norm(W / lengths)
    assert found.errors["float32"].forward / 1e4 < error < found.errors["float32"].forward


# --- rounding or rank ----------------------------------------------------------------------------------------


def rounded_to(array, name):
    return round_to(array, name).astype(np.float64)


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [8, 36, 100])
def test_honest_random_values_have_full_rank_up_to_rounding(name, size):
    rng = np.random.default_rng(size)
    for draw in (rng.normal, lambda size: rng.uniform(-1, 1, size)):
        for _ in range(25):
            matrix = rounded_to(draw(size=(size, size)), name)
            assert margin.rounding_format(matrix) == name
            assert margin.rounding_rank(matrix, name) >= size - 2


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("size", "inner"), [(8, 1), (8, 4), (36, 2), (36, 18), (100, 1), (100, 50)])
def test_rounded_products_have_the_rank_of_their_factors(name, size, inner):
    rng = np.random.default_rng(size + inner)
    for _ in range(10):
        left, right = (rounded_to(rng.normal(size=s), name) for s in ((size, inner), (inner, size)))
        matrix = rounded_to(left @ right, name)
        assert margin.rounding_rank(matrix, name) == inner
        assert size > 36 or rational.rank(exact(matrix)) > inner
        assert margin.rounding_rank(rounded_to(matrix * 3, name), name) == inner  # rounded twice


@pytest.mark.parametrize(
    "matrix",
    [
        np.eye(5),
        np.ones((4, 4)) * 100 + np.eye(4),  # small integers: exact, however close to rank one
        np.array([[0.5, 0.25], [3.0, -7.0]]),
        np.zeros((3, 3)),
    ],
)
def test_exact_looking_values_are_not_rounded(matrix):
    assert margin.rounding_format(matrix) is None


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("place", [(2, 2, 2, 3), (1, 1, 1, 30), (1, 2, 1, 1), (3, 2, 1, 1), (2, 1, 1, 40)])
def test_honest_hosts_are_never_told_that_rounding_did_it(tmp_path, name, place):
    for seed in range(3):
        for kind in ("random", "random-tied"):
            _, kept, _ = host_of(tmp_path, kind, Shape(*place), dtype=name, seed=seed)
            assert margin.rounded_values(kept) is None


def test_a_short_product_in_a_longer_file_is_still_recognised(tmp_path):
    rng = np.random.default_rng(0)
    tensors = random_tensors(rng, Shape(2, 2, 2, 3), 36)
    left, right = rng.normal(size=(2, 2, 36, 2)), rng.normal(size=(2, 2, 2, 36))
    tensors["R_V"] = (left.astype(np.float32) @ right.astype(np.float32)).astype(np.float64)
    found = margin.rounded_values(stored(tmp_path, tensors))
    assert (found.format, found.ranks, found.bound) == ("float32", ((2, 2), (2, 2)), 12)
    # only in the last layer: 2dH + 2 there, then 2dH + twice that
    tensors["R_V"][0] = rng.normal(size=(2, 36, 36))
    found = margin.rounded_values(stored(tmp_path, tensors))
    assert (found.ranks, found.bound) == (((36, 36), (2, 2)), 32)
    # values of low rank where that costs nothing: nothing is said
    tensors["U"] = rng.normal(size=(36, 2))
    found = margin.rounded_values(stored(tmp_path, tensors))
    assert found is None


@pytest.mark.parametrize("seed", range(20))
def test_rank_bound_is_a_bound(seed):
    rng = np.random.default_rng(seed)
    H, L, d, d_in = (int(v) for v in rng.integers(1, 4, 4))
    L = min(L, 2)
    shape, m = Shape(H, L, d, d_in), int(rng.integers(1, 12))
    inner = rng.integers(0, m + 1, size=(L, H))
    tensors = random_tensors(rng, shape, m)
    tensors["R_V"] = np.array(
        [
            [rng.integers(-3, 4, (m, inner[a, h])) @ rng.integers(-3, 4, (inner[a, h], m)) for h in range(H)]
            for a in range(L)
        ]
    )
    from utfproof.systems import Universal

    rank = rational.rank(naive_r_all(Universal(shape, m, **{n: exact(a) for n, a in tensors.items()})))
    ranks = tuple(tuple(int(r) for r in row) for row in inner)
    assert rank <= margin.rank_bound(shape, m, ranks)


# --- misses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [(2, 2, 2, 3), (1, 3, 1, 2), (3, 1, 2, 2), (2, 2, 1, 2, 3)])
def test_visible_targets_keep_the_route(place):
    shape = Shape(*place)
    for column in range(0, matching_dimension(shape), 3):
        kind, word, _ = counterexample.column_at(shape, column)
        shown, plain = counterexample.visible_target(shape, column, seed=5), isolating_target(shape, column)
        route = len(word) if kind == "OV" else len(word) - 1
        assert (shown.W_V[:route] == plain.W_V[:route]).all()
        assert (shown.W_O[:route] == plain.W_O[:route]).all()
        assert shown.W_Q.any(axis=(2, 3)).all()
        assert (shown.W_Q != counterexample.visible_target(shape, column, seed=6).W_Q).any()
        shown, _ = counterexample.visible_counterexample(counterexample.Counterexample(shape, column))
        x = random_input(shape, 5, 0)
        assert np.abs(counterexample._as_float(shown).forward(x, SoftmaxAttention())).max() > 0


def test_a_host_that_matches_shows_no_miss(tmp_path):
    shape = Shape(2, 2, 2, 3)
    host = build_host("random", shape)
    found = counterexample.measure_difference(host, counterexample.visible_target(shape, 30))
    assert np.max([found.output_error, found.logit_error, found.misfit]) < 1e-9
    # and with one reader spoilt it does
    R_Q = host.R_Q.copy()
    R_Q[1, 1] = R_Q[1, 0]
    column = column_index(shape, Column("Q", (0, 1), 0))
    found = counterexample.measure_difference(replace(host, R_Q=R_Q), counterexample.visible_target(shape, column))
    assert min(found.output_error, found.logit_error, found.misfit) > 1e-3


def test_distances_are_rounded_down_and_have_any_number_of_digits():
    z = {3: 10**6000 + 1, 5: 1}
    found = counterexample.Counterexample(Shape(2, 1, 1, 2), 3, z, certified=True)
    assert found.distance_squared == Fraction((10**6000 + 1) ** 2, (10**6000 + 1) ** 2 + 1)
    assert (
        counterexample.in_decimals(found.distance_squared, 6) == 1.0
        or counterexample.in_decimals(found.distance_squared, 6) < 1
    )
    assert counterexample.in_decimals(Fraction(1, 2), 6) == 0.707106
    assert "n of 12001 and q of 12001 digits" in findings._distance(found.distance_squared, "|z_c|", "")
    assert counterexample.stored_integer(counterexample.written(z[3])) == z[3]
    assert (counterexample.stored_integer("17"), counterexample.stored_integer(-3), counterexample.written(-3)) == (
        17,
        -3,
        "-3",
    )


def test_columns_in_words():
    shape = Shape(2, 2, 2, 3)
    words = [counterexample.column_in_words(shape, column_index(shape, Column(*c))) for c in (
        ("Q", (1,), 0), ("K", (0, 1), 1), ("OV", (1, 0), 2))]  # fmt: skip
    assert words[0].endswith("head word (1), coordinate 0: a query of layer 1, head 1, on the input itself")
    assert words[1].endswith("head word (0, 1), coordinate 1: a key of layer 2, head 1, after the route (0)")
    assert words[2].endswith("head word (1, 0), coordinate 2: an output after that route")


# --- words ---------------------------------------------------------------------------------------------------


def test_a_certificate_decides_only_what_its_scope_supports():
    shape = Shape(2, 2, 2, 2)
    for_all, matched = Targets.parse("all untied"), certify("sparse", shape)
    for notion in (Notion.MATCHING, Notion.ATTENTION_MATCHING):
        question = Scope(notion, for_all, Hosts(examined=True))
        found = decision_of(matched, question)
        assert (found.universal, found.scope) == (True, question)
    refuted = dimension_certificate(shape, 1)
    assert decision_of(refuted, Scope(Notion.MATCHING, for_all, Hosts(examined=True))).verdict is HostVerdict.REFUTED
    with pytest.raises(Undecided, match="does not decide"):  # not matched says nothing of attention-matching
        decision_of(refuted, Scope(Notion.ATTENTION_MATCHING, for_all, Hosts(examined=True)))
    almost = certify("shared-query-groups", shape)
    with pytest.raises(Undecided, match="does not decide"):
        decision_of(almost, Scope(Notion.ATTENTION_MATCHING, for_all, Hosts(tied=True, examined=True)))
    question = Scope(Notion.ATTENTION_MATCHING, Targets.parse("almost all untied"), Hosts(tied=True, examined=True))
    assert decision_of(almost, question).universal
    with pytest.raises(Undecided, match="does not decide"):  # almost all untied targets: perhaps no tied one
        decision_of(almost, replace(question, targets=Targets.parse("almost all tied")))
