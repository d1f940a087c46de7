"""The least host of a target: best effort, limits, tied hosts, the report."""

import dataclasses
import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from test_realization import drawn, full_rows, real, slow_least

from utfproof.attention import GivenAttention, RationalAttention, SoftmaxAttention, softmax
from utfproof.constructions import random_target
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.matching import r_all, w_all
from utfproof.models.realization import certificate as certificates
from utfproof.models.realization.besteffort import best_effort, output_bound
from utfproof.models.realization.hankel import least_dimension
from utfproof.models.realization.host import least_host, matches
from utfproof.models.realization.numerical import numerical_host, truncated_host
from utfproof.models.realization.report import minimize
from utfproof.models.realization.tied import tied_host
from utfproof.shapes import Shape
from utfproof.systems import Target
from utfproof.weights import read_target

pytestmark = pytest.mark.numerical


def in_floats(system):
    """The same host or target with its arrays in float64; index maps stay."""
    fields = {f.name: getattr(system, f.name) for f in dataclasses.fields(system)}
    return dataclasses.replace(system, **{k: x.astype(float) for k, x in fields.items() if isinstance(x, np.ndarray)})


def observed_error(host, target, E, kernel, *, contexts=(1, 2, 5, 17), groups=None):
    """The largest |UTF(X, E) - T(X)| met in float64 on random inputs of one-hots, one per group."""
    rng, identity, errors = np.random.default_rng(0), np.eye(host.shape.d_in), []
    spans = np.split(np.arange(host.shape.d_in), np.cumsum(groups or ())[:-1])
    host, target, E = in_floats(host), in_floats(target), np.asarray(E).astype(float)
    for n in np.repeat(contexts, 5):
        X = sum(identity[rng.choice(span, size=n)] for span in spans)
        errors.append(np.abs(host.forward(X, E, kernel) - target.forward(X, kernel)).max())
    return float(np.max(errors))


# --- best effort ---------------------------------------------------------------------------------------------

KERNELS = (
    SoftmaxAttention(),
    SoftmaxAttention(scale="1/sqrt(d)", causal=True),
    SoftmaxAttention(rope_base=100.0, causal=True),
    SoftmaxAttention(scale=3.0, window=2, alibi_heads=2),
)


@pytest.mark.parametrize("residual", [False, True])
def test_the_output_bound_holds(residual):
    rng = np.random.default_rng(8)
    informative = 0
    for scale in (0.1, 0.5):
        target = real(rng, Shape(2, 2, 2, 5, 3, residual=residual), 12, scale)
        least = numerical_host(target).host.m
        for m in (least - 1, least // 2, 1):
            host = truncated_host(target, m).host
            for kernel in KERNELS:
                found = best_effort(host, target, kernel=kernel)
                seen = observed_error(host, target, found.E, kernel)
                assert seen <= found.bound.error
                informative += not found.bound.vacuous
                if found.bound.vacuous:
                    assert found.bound.document()["vacuous"]
    assert informative


def test_the_output_bound_is_of_the_size_of_the_error():
    rng = np.random.default_rng(9)
    target = real(rng, Shape(1, 1, 2, 5, 3), 12, 0.2)
    host = truncated_host(target, 3).host
    kernel = SoftmaxAttention()
    found = best_effort(host, target, kernel=kernel)
    assert found.bound.error < 5 * observed_error(host, target, found.E, kernel)
    # an embedding that is further off is seen to be outside of that bound, and inside of its own
    worse = found.E + 0.5 * rng.standard_normal(found.E.shape)
    seen = observed_error(host, target, worse, kernel)
    assert seen > found.bound.error
    assert seen <= output_bound(host, target, worse, kernel=kernel).error


@pytest.mark.parametrize("name", ["R_Q", "R_K", "R_V", "U"])
def test_the_bound_covers_each_source_of_error_alone(name):
    rng = np.random.default_rng(24)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=True), 12, density=0.4)
    host, E, _ = least_host(target)
    kernel = SoftmaxAttention(scale=0.05)
    for factor in (Fraction(11, 10), Fraction(1, 2)):
        changed_host = dataclasses.replace(host, **{name: getattr(host, name) * factor})
        seen = observed_error(changed_host, target, E, kernel)
        assert 1e-6 < seen <= output_bound(changed_host, target, E, kernel=kernel).error


class Recording:
    """A kernel that keeps the attention matrices it gives."""

    logits_only = True

    def __init__(self, kernel):
        self.kernel, self.seen = kernel, {}

    def __call__(self, queries, keys, positions, *, layer, head):
        self.seen[layer, head] = self.kernel(queries, keys, positions, layer=layer, head=head)
        return self.seen[layer, head]


@pytest.mark.parametrize("residual", [False, True])
def test_attention_differs_by_no_more_than_its_bound_in_every_layer(residual):
    # keys of the first layer alone are wrong: the second layer sees it through the stream only
    rng = np.random.default_rng(25)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=residual), 12)
    host, E, _ = least_host(target)
    R_K = host.R_K.copy()
    R_K[0] = R_K[0] * Fraction(3, 2)
    host = dataclasses.replace(host, R_K=R_K)
    kernel = SoftmaxAttention(scale=1e-4)
    bound = output_bound(host, target, E, kernel=kernel)
    ours, theirs = Recording(kernel), Recording(kernel)
    X = np.eye(3)[[0, 1, 2, 2, 0, 1]]
    floats = {name: getattr(host, name).astype(float) for name in ("R_Q", "R_K", "R_V", "U")}
    dataclasses.replace(host, **floats).forward(X, E.astype(float), ours)
    target.forward(X, theirs)
    worst = {at: np.abs(ours.seen[at] - theirs.seen[at]).sum(axis=1).max() for at in ours.seen}
    assert max(worst[1, head] for head in range(2)) > 1e-7
    assert all(worst[at] <= bound.attention[at] for at in worst)


def test_an_exact_host_has_the_bound_zero():
    rng = np.random.default_rng(10)
    target = drawn(rng, Shape(2, 2, 1, 3, 2, residual=True), 12)
    host, E, _ = least_host(target)
    bound = output_bound(host, target, E)
    assert bound.error < Fraction(1, 10**30)  # the radii of the balls
    assert not bound.vacuous


def test_bounds_with_positions_beside_tokens_and_attention_from_outside():
    rng = np.random.default_rng(12)
    target = real(rng, Shape(2, 2, 2, 7, 3, residual=True), 12, 0.3)
    host = truncated_host(target, 8).host
    kernel = SoftmaxAttention(causal=True)
    found = best_effort(host, target, kernel=kernel, groups=(4, 3))
    seen = observed_error(host, target, found.E, kernel, groups=(4, 3))
    assert seen <= found.bound.error
    with pytest.raises(MalformedInput, match="groups"):
        best_effort(host, target, groups=(4, 4))
    n = 4
    matrices = rng.random((2, 2, n, n))
    given = GivenAttention(matrices / matrices.sum(axis=-1, keepdims=True))
    outside = best_effort(host, target, kernel=given)
    assert set(outside.bound.attention.values()) == {0}
    assert observed_error(host, target, outside.E, given, contexts=(n,)) <= outside.bound.error
    with pytest.raises(MalformedInput, match="softmax"):
        output_bound(host, target, found.E, kernel=RationalAttention())


def test_one_group_is_not_enough_for_two_one_hots():
    # the planted fault: a bound for single one-hots does not cover sums of two
    shape = Shape(1, 1, 1, 4, 1)
    ones = np.ones((1, 1, 1, 1))
    target = Target(shape, 0 * ones, 0 * ones, ones, ones, np.ones((4, 1)), np.ones((1, 1)))
    host, _, _ = least_host(target)
    E = np.zeros((4, host.m))
    alone, pairs = (output_bound(host, target, E, groups=g).error for g in (None, (2, 2)))
    assert alone < observed_error(host, target, E, SoftmaxAttention(), groups=(2, 2)) <= pairs


def test_softmax_moves_by_at_most_twice_the_hyperbolic_tangent():
    rng = np.random.default_rng(14)
    closest = 0.0
    for _ in range(300):
        z = rng.standard_normal(4) * 3
        e = rng.random(4) * rng.choice([0.1, 1, 5])
        moved = np.abs(softmax(z + e) - softmax(z)).sum()
        bound = 2 * np.tanh((e.max() - e.min()) / 4)
        assert moved <= bound * (1 + 1e-12)
        closest = max(closest, moved / bound)
    assert closest > 0.9
    # reached by two entries
    e = 2.0
    moved = np.abs(softmax(np.array([-e / 2, 0.0]) + np.array([e, 0.0])) - softmax(np.array([-e / 2, 0.0]))).sum()
    assert moved == pytest.approx(2 * np.tanh(e / 4))


# --- limits --------------------------------------------------------------------------------------------------


def test_widths_out_of_reach_are_refused():
    wide = np.zeros((1, 1, 600, 1))
    target = Target(Shape(1, 1, 1, 2, 1), wide, wide, wide, wide.swapaxes(-1, -2), np.ones((2, 600)), np.ones((600, 1)))
    with pytest.raises(ResourceLimit, match="width 600"):
        least_dimension(target)
    assert numerical_host(target).host.m == 1


def test_numbers_too_long_for_a_certificate():
    held = drawn(np.random.default_rng(6), Shape(1, 1, 1, 2, 1), 2)
    for digits, fits in ((5000, True), (120_000, False)):
        target = held.W_E.astype(object)
        target[0, 0] = 10**digits
        host, E, least = least_host(dataclasses.replace(held, W_E=target))
        if fits:
            certificates.require_valid(certificates.certificate(least, host, E))
            continue
        with pytest.raises(ResourceLimit, match="digits"):
            certificates.certificate(least, host, E)


# --- tied hosts, the report ----------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [False, True])
def test_tied_hosts_of_tied_targets(residual):
    rng = np.random.default_rng(15)
    decided = set()
    for density in (1.0, 0.5, 0.3, 0.2):
        target = drawn(rng, Shape(2, 2, 1, 2, 2, residual=residual), 7, density=density, looped=True)
        found = tied_host(target)
        assert found.lower == slow_least(target)[0] <= found.upper <= 7
        assert (found.E @ r_all(found.host) == w_all(target)).all()
        decided.add(found.lower == found.upper)
    assert True in decided
    with pytest.raises(MalformedInput, match="untied"):
        tied_host(drawn(rng, Shape(1, 1, 1, 1), 1))


@pytest.mark.full
def test_report():
    rng = np.random.default_rng(16)
    target = real(rng, Shape(2, 2, 2, 30, 3, residual=True), 30)
    target.W_V[1, 1] = 0
    result = minimize(target, m=5, kernel=SoftmaxAttention(causal=True))
    document = json.loads(json.dumps(result.document))
    assert document["least"]["dead_heads"] == [[1, 1]]
    assert document["without_dead_heads"]["m"] < document["least"]["m"] == result.host.m
    assert document["numerical"]["m"] == result.host.m
    assert document["best_effort"]["m"] <= 5
    certificates.require_valid(result.certificate)
    assert matches(result.host, result.E, target)


def test_report_of_a_trained_target():
    target = read_target(Path(__file__).parent / "data" / "parentheses.safetensors")
    document = minimize(target, m=1).document
    assert document["least"]["m"] <= target.width
    assert document["host"]["m"] == document["least"]["m"]


def test_short_products_of_all_words_agree_with_the_staircase():
    # every word, not only those of the basis: E R_w read by everything
    target = drawn(np.random.default_rng(17), Shape(2, 2, 1, 2, 1, residual=True), 5, density=0.5)
    host, E, _ = least_host(target)
    for length, layer in itertools.product(range(2), range(2)):
        if length > layer:
            continue
        for word, wanted in full_rows(target, layer):
            x = E
            for at, letter in enumerate(word):
                if letter:
                    x = x @ host.R_V[at, letter - 1]
            for head in range(2):
                assert (x @ host.R_Q[layer, head] == wanted @ target.W_Q[layer, head]).all()


def test_structure_is_named():
    """A dead head, a repeated one and queries of rank one, planted and named; without them nothing is said."""
    shape = Shape(2, 2, 2, 5, residual=True)
    plain = random_target(shape, seed=3)
    said = minimize(plain, certify=False)
    assert said.certificate is None
    assert not any(said.document["structure"].values())
    W_Q, W_K, W_V, W_O = (np.array(getattr(plain, name)) for name in ("W_Q", "W_K", "W_V", "W_O"))
    W_O[1, 1] = 0
    W_Q[0, 1], W_K[0, 1], W_V[0, 1], W_O[0, 1] = W_Q[0, 0], W_K[0, 0], W_V[0, 0], W_O[0, 0]
    W_Q[1, 0, :, 1] = 0
    found = minimize(Target(shape, W_Q, W_K, W_V, W_O), certify=False).document["structure"]
    assert found["dead heads"] == ["1.1"]
    assert found["repeated heads"] == ["0.1 is 0.0"]
    assert found["low-rank queries"] == ["1.0 (1 of 2)"]


def test_a_curve_falls_with_m_and_its_bound_holds():
    """Keys that hardly matter: the curve has a point below the least m, whose proven bound says something, and holds."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.curve import error_curve

    shape = Shape(1, 1, 1, 3)
    target = random_target(shape, seed=1)
    W_V, W_O = np.array(target.W_V, dtype=float), np.array(target.W_O, dtype=float)
    W_Q, W_K = 0.1 * np.asarray(target.W_Q, dtype=float), 1e-5 * np.asarray(target.W_K, dtype=float)
    weak = Target(shape, W_Q, W_K, W_V, W_O)
    rng = np.random.default_rng(0)
    x = np.eye(3)[rng.integers(0, 3, 6)]

    def observe(host, E):
        return float(np.abs(host.forward(x, E, SoftmaxAttention()) - weak.forward(x, SoftmaxAttention())).max())

    points = error_curve(weak, observe=observe)
    assert [p.m for p in points] == sorted((p.m for p in points), reverse=True)
    assert len(points) > 1
    assert all(p.observed <= p.bound + 1e-12 for p in points)
    assert points[0].observed < 1e-12
    assert any(p.m < points[0].m and not p.vacuous for p in points)


def weak_model(residual=True, layers=2):
    """A target whose last two of six coordinates hardly matter, in floats, and one-hot inputs for it."""
    shape = Shape(2, layers, 2, 6, 3, residual=residual)
    rng = np.random.default_rng(3)
    small = np.array([1, 1, 1, 1, 1e-3, 1e-3])
    W_Q, W_K, W_V = (rng.normal(size=(layers, 2, 6, 2)) * small[:, None] for _ in range(3))
    W_O, W_U = 0.5 * rng.normal(size=(layers, 2, 2, 6)) * small, rng.normal(size=(6, 3)) * small[:, None]
    target = Target(shape, W_Q, W_K, W_V, W_O, W_E=np.eye(6), W_U=W_U)
    return target, [np.eye(6)[rng.integers(0, 6, n)] for n in (1, 4, 7)]


@pytest.mark.parametrize("residual", [True, False])
def test_the_error_on_given_inputs_is_proven_and_tight(residual):
    """It bounds the float outputs' difference, and is hardly larger; another host, or a change of E, is seen in it."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.given import GivenInputs

    target, inputs = weak_model(residual)
    kernel = SoftmaxAttention(causal=True)
    given = GivenInputs(target, inputs, kernel)
    fitted = given.projections()
    for m in (1, 3, 5, fitted.rank):
        host, E = fitted.host(m)
        seen = max(float(np.abs(host.forward(x, E, kernel) - target.forward(x, kernel)).max()) for x in inputs)
        proven = float(given.error(host, E))
        assert seen - 1e-12 <= proven <= seen * (1 + 1e-9) + 1e-12
    assert proven < 1e-12  # as many dimensions as the inputs reach: the target's own outputs
    E[2] += 1e-3
    assert float(given.error(host, E)) > 1e-5
    with pytest.raises(MalformedInput, match="host and target differ"):
        given.error(host, E[:, :-1])


def test_the_least_host_within_a_tolerance():
    """Fewer dimensions for a larger tolerance, each proven; none for one that rounding alone exceeds."""
    from utfproof.attention import SoftmaxAttention
    from utfproof.models.realization.curve import error_curve, least_within
    from utfproof.models.realization.given import GivenInputs

    target, inputs = weak_model()
    given = GivenInputs(target, inputs, SoftmaxAttention())
    sizes = []
    for within in (1e-9, 1e-2, 10.0):
        host, E, error = least_within(target, given, within)
        assert error <= within
        assert float(given.error(host, E) / given.scale) <= error
        sizes.append(host.m)
    assert sizes[0] >= 6 > sizes[1] > sizes[2] == 1
    assert least_within(target, given, 1e-30) is None
    points = error_curve(target, given=given)
    assert next(p.given for p in points if p.m == sizes[1]) <= 1e-2
