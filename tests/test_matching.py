"""R_all, W_all, isolating targets and embeddings: exact identities, the emulation lemma, the decision theorem."""

from fractions import Fraction

import numpy as np
import pytest
from cases import MATCHING, SHARED, SMALL_SHAPES, TABLE_SHAPES, UNEQUAL_SHAPES
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from naive import r_all as naive_r_all
from naive import w_all as naive_w_all

from utfproof.attention import RationalAttention, parse_kernel
from utfproof.constructions import build_host, random_target
from utfproof.emulation.compare import compare, random_input, relative_error
from utfproof.errors import CannotCarry, MalformedInput, OutsideClass, ResourceLimit, SingularTarget, Undecided
from utfproof.exact import rational
from utfproof.matching import FloatSolver, distance_bound, embed, exact_target, floats, isolating_target, r_all, w_all
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Target, Universal
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion

pytestmark = pytest.mark.numerical


@st.composite
def shapes(draw, wide=False, unequal=False):
    H, L = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d_in = draw(st.integers(1, 3))
    d = draw(st.integers(d_in if wide else 1, 4))
    d_out = draw(st.integers(1, d if wide else 4)) if unequal else d_in
    return Shape(H, L, d, d_in, d_out)


def small_integers(rng, *shape):
    return exact(rng.integers(-2, 3, size=shape))


def integer_target(shape, seed, width=None):
    """A random target with small integer weights, exact."""
    rng = np.random.default_rng(seed)
    D = shape.d_in if width is None else width
    H, L, d = shape.heads, shape.layers, shape.head_dim
    parts = [small_integers(rng, L, H, D, d) for _ in range(3)] + [small_integers(rng, L, H, d, D)]
    plain = D == shape.d_in == shape.d_out
    ends = [None, None] if plain else [small_integers(rng, shape.d_in, D), small_integers(rng, D, shape.d_out)]
    return Target(shape, *parts, *ends)


def integer_host(shape, m, seed, tied=False):
    rng = np.random.default_rng(seed)
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    d = shape.head_dim
    return Universal(
        shape,
        m,
        small_integers(rng, *lead, m, d),
        small_integers(rng, *lead, m, d),
        small_integers(rng, *lead, m, m),
        small_integers(rng, m, shape.d_out),
    )


@given(shapes(unequal=True), st.integers(0, 10**6), st.booleans())
def test_dense_r_all_is_the_definition(shape, seed, tied):
    host = integer_host(shape, 3, seed, tied)
    assert np.array_equal(r_all(host), naive_r_all(host))


@given(shapes(unequal=True), st.integers(1, 4), st.integers(0, 10**6))
def test_w_all_is_the_definition(shape, width, seed):
    target = integer_target(shape, seed, width)
    assert np.array_equal(w_all(target), naive_w_all(target))


@pytest.mark.parametrize("dims", [*SMALL_SHAPES, *UNEQUAL_SHAPES])
def test_isolating_targets_isolate(dims):
    shape = Shape(*dims)
    for column in range(matching_dimension(shape)):
        W = w_all(isolating_target(shape, column))
        assert (np.count_nonzero(W), W[0, column]) == (1, 1)


@given(
    shapes(unequal=True),
    st.integers(1, 5),
    st.integers(0, 10**6),
    st.sampled_from(MATCHING),
    st.integers(0, 2),
)
def test_matching_hosts_emulate_exactly(shape, width, seed, name, padding):
    """The emulation lemma as an equality of rationals, with attention that depends on the logits, and any width."""
    target = integer_target(shape, seed, width)
    host = build_host(name, shape, matching_dimension(shape) + padding)
    found = embed(host, target)
    assert (found.notion, found.method, found.rank) == (
        Notion.MATCHING,
        "closed form",
        matching_dimension(shape),
    )
    assert np.array_equal(found.E @ r_all(host).to_dense(object), w_all(target))
    x = small_integers(np.random.default_rng(seed), 3, shape.d_in)
    for kernel in (RationalAttention(), RationalAttention(causal=True)):
        assert np.array_equal(host.forward(x, found.E, kernel), target.forward(x, kernel))


@settings(max_examples=60)
@given(shapes(wide=True, unequal=True), st.integers(0, 10**6), st.sampled_from(SHARED), st.data())
def test_attention_matching_hosts_emulate_exactly(shape, seed, name, data):
    bound = shape.d_in if name == "shared-key" else min(shape.d_in, shape.d_out)
    width = data.draw(st.integers(1, bound))
    target = integer_target(shape, seed, width)
    host = build_host(name, shape)
    try:
        found = embed(host, target)
    except OutsideClass:
        assert name == "shared-query"
        singular = [rational.rank(target.value_form(layer, 0)) < width for layer in range(shape.layers)]
        assume(any(singular) or rational.rank(target.unembedding()) < width)
        return
    assert found.notion is Notion.ATTENTION_MATCHING
    x = small_integers(np.random.default_rng(seed), 3, shape.d_in)
    kernel = RationalAttention(causal=True)
    assert np.array_equal(host.forward(x, found.E, kernel), target.forward(x, kernel))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "m"), [("shared-key", 164), ("shared-query", 144)])
def test_shared_hosts_at_the_parentheses_shape_in_floats(name, m, seed):
    shape = Shape(*TABLE_SHAPES["parentheses"])
    kernels = [(text, parse_kernel(text, 4, 24)) for text in ("softmax", "scaled+causal", "alibi", "window:3")]
    report = compare(build_host(name, shape), [random_target(shape, seed)], kernels, [1, 7, 61], seed=seed)
    assert report.notion is Notion.ATTENTION_MATCHING
    assert report.holds
    assert report.max_relative_error < 1e-9


def test_shared_hosts_do_not_survive_rope():
    """Why rope is refused for them: the error is of order one, where a matching host is exact."""
    shape = Shape(2, 2, 4, 2)
    kernel = parse_kernel("rope", 2, 4)
    x = random_input(shape, 9, 0)
    target = random_target(shape, 0, law="signs")
    errors = {}
    for name in ("shared-key", "shared-query", "sparse"):
        host = build_host(name, shape)
        errors[name] = relative_error(host.forward(x, embed(host, target).E, kernel), target.forward(x, kernel))
    assert errors["sparse"] < 1e-12
    assert min(errors["shared-key"], errors["shared-query"]) > 1e-2
    for name in SHARED:
        with pytest.raises(MalformedInput, match="matches attention logits only"):
            compare(build_host(name, shape), [target], [("rope", kernel)], [3])


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("layer", [0, 1])
def test_singular_targets_are_refused_with_the_layer(layer, exactly):
    shape = Shape(2, 2, 3, 2)
    target = random_target(shape, 0)
    target.W_V[layer, 0, 1] = target.W_V[layer, 0, 0]
    if exactly:
        target = exact_target(target)
    with pytest.raises(SingularTarget, match=rf"M\^\({layer + 1},0\) of this target is singular"):
        embed(build_host("shared-query", shape), target)
    embed(build_host("shared-key", shape), target)  # serves all targets


@pytest.mark.parametrize("name", SHARED)
def test_too_wide_targets_are_refused(name):
    shape = Shape(2, 2, 3, 2)
    with pytest.raises(OutsideClass, match="this one has width 3; use a host that is universal by matching"):
        embed(build_host(name, shape), random_target(shape, 0, width=3))


def test_unembedding_that_loses_rank_is_refused():
    shape = Shape(2, 2, 3, 2)
    target = random_target(shape, 0)
    lossy = Target(shape, target.W_Q, target.W_K, target.W_V, target.W_O, np.eye(2), np.ones((2, 2)))
    with pytest.raises(OutsideClass, match="W_U of rank D"):
        embed(build_host("shared-query", shape), lossy)


@example(Shape(1, 3, 1, 1), 13750, True, 0)
@given(shapes(), st.integers(0, 2**32), st.booleans(), st.integers(0, 3))
def test_random_hosts_embed_and_say_how_well(shape, seed, tied, slack):
    M = matching_dimension(shape)
    assume(M <= 120)
    host = build_host("random-tied" if tied else "random", shape, M + slack, seed=seed)
    target = random_target(shape, seed, width=shape.d_in + 1)
    found = embed(host, target)
    assume(found.condition < 1e8)
    assert (found.notion, found.method, found.rank, found.columns) == (Notion.MATCHING, "least squares", M, M)
    assert found.relative_residual < 1e-16 * found.condition * M
    dense = r_all(host)
    scaled = dense / np.linalg.norm(dense, axis=0)
    assert found.condition == pytest.approx(np.linalg.cond(scaled), rel=1e-4)
    x, kernel = (
        random_input(shape, 6, seed % 2**64),
        parse_kernel("scaled+causal", shape.heads, shape.head_dim),
    )
    outputs = target.forward(x, kernel)
    # E R_all is W_all to rounding of its largest entries, which may lie far above the outputs
    above = np.abs(x).max() * np.abs(w_all(target)).max() / np.abs(outputs).max()
    error = relative_error(host.forward(x, found.E, kernel), outputs)
    assert error < 1e-13 * found.condition * M * max(1.0, above)


@given(shapes(), st.integers(0, 10**6))
def test_exact_dense_hosts_embed_exactly(shape, seed):
    M = matching_dimension(shape)
    assume(M <= 40)
    host = integer_host(shape, M, seed)
    target = integer_target(shape, seed)
    R, W = r_all(host), w_all(target)
    if rational.rank(R) == M:
        found = embed(host, target)
        assert found.method == "rational solve"
        assert np.array_equal(found.E @ R, W)
        return
    z = rational.kernel_vector(R)
    assert not (R @ np.array(z, dtype=object)).any()
    column = max(range(M), key=lambda c: abs(z[c]))
    with pytest.raises(CannotCarry, match="by matching: rank R_all"):
        embed(host, isolating_target(shape, column))


def test_floats_among_objects_are_the_rationals_that_they_are():
    """Arrays of objects are exact; their products as floats would round."""
    shape = Shape(2, 1, 1, 2)

    def objects(model, names):
        return [getattr(model, name).astype(object) for name in names.split()]

    target = Target(shape, *objects(random_target(shape, seed=1), "W_Q W_K W_V W_O"))
    assert all(isinstance(x, Fraction) for x in w_all(target).reshape(-1))
    drawn = build_host("random", shape)
    host = Universal(shape, drawn.m, *objects(drawn, "R_Q R_K R_V U"))
    found = embed(host, target)
    assert found.method == "rational solve"
    assert np.array_equal(found.E @ r_all(host), w_all(target))


@pytest.mark.parametrize("name", ["printed-tree-row", "printed-tree-column", "printed-looped"])
@pytest.mark.parametrize("dims", [(2, 1, 1, 2), (2, 2, 1, 2), (2, 2, 2, 3)])
def test_deficient_hosts_refuse_isolating_targets_at_the_stated_distance(name, dims):
    """Decision theorem, the refuting half: R_all z = 0, and the isolating target is missed by at least |W z| / |z|."""
    shape = Shape(*dims)
    host = build_host(name, shape)
    R = r_all(host).to_dense(object)
    z = rational.kernel_vector(R)
    column = max(range(len(z)), key=lambda c: abs(z[c]))
    target = isolating_target(shape, column)
    with pytest.raises(CannotCarry) as caught:
        embed(host, target)
    assert caught.value.rank == rational.rank(R) < caught.value.columns == matching_dimension(shape)
    # least squares over the reals against the exact bound
    W = w_all(target).astype(float)
    best = np.linalg.lstsq(R.astype(float).T, W.T, rcond=None)[0].T
    miss = np.linalg.norm(best @ R.astype(float) - W)
    bound = distance_bound(z, column)
    assert isinstance(bound, Fraction)
    assert miss >= float(bound) ** 0.5 * (1 - 1e-12)
    assert caught.value.relative_residual >= float(bound) ** 0.5 * (1 - 1e-9)


def test_a_deficient_host_may_carry_some_target():
    """Rank decides for all targets; a single one may be in reach, and then its E is right."""
    shape = Shape(2, 1, 1, 2)
    host = build_host("printed-tree-row", shape)
    nothing = Target(shape, *(np.zeros((1, 2, 2, 1)) for _ in range(3)), np.zeros((1, 2, 1, 2)))
    found = embed(host, nothing)
    assert found.rank == 4 < found.columns
    assert found.relative_residual == 0


@pytest.mark.parametrize(
    ("big", "error"), [(1e3, CannotCarry), (1e12, Undecided), (1e14, Undecided), (1e18, Undecided)]
)
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_one_large_entry_hides_no_column_that_is_missed(big, error, place):
    """Heads that share R_V: the residual of most columns is rounding beside one that is 10^14 times as large. The same host
    carries a target of its own kind, with an entry of every size."""
    shape = Shape(2, 2, 2, 3)
    host = build_host("random", shape)
    host.R_V[0, 1] = host.R_V[0, 0]
    target = random_target(shape, 3)
    target.W_Q[place] *= big
    with pytest.raises((CannotCarry, error), match=r"cannot carry|float64 does not see"):
        embed(host, target)
    target.W_V[0, 1], target.W_O[0, 1] = target.W_V[0, 0], target.W_O[0, 0]
    if big < 1e6:
        found = embed(host, target)
        assert found.rank < found.columns


def test_a_row_that_is_missed_is_not_hidden_by_a_larger_one():
    shape = Shape(2, 2, 2, 3)
    host = build_host("random", shape)
    host.R_V[0, 1] = host.R_V[0, 0]
    target = random_target(shape, 3)
    target.W_V[0, 1], target.W_O[0, 1] = target.W_V[0, 0], target.W_O[0, 0]
    solver = FloatSolver(r_all(host), shape)
    right = w_all(target)
    solver.solve(right * np.array([[1e14], [1.0], [1.0]]))
    right[1] = w_all(random_target(shape, 4))[1]
    with pytest.raises(CannotCarry):
        solver.solve(right * np.array([[1e14], [1.0], [1.0]]))


def test_too_few_dimensions():
    shape = Shape(2, 1, 2, 2)
    host = build_host("random", shape, matching_dimension(shape) - 1)
    with pytest.raises(
        CannotCarry, match=f"rank R_all = {matching_dimension(shape) - 1} of M = {matching_dimension(shape)}"
    ):
        embed(host, random_target(shape, 0))


def test_torch_targets_get_torch_embeddings():
    torch = pytest.importorskip("torch")
    from utfproof.emulation.engines import changed

    shape = Shape(2, 2, 2, 2)
    target = random_target(shape, 1)
    on_torch = changed(target, torch.from_numpy)
    for name in ("tied", "shared-key", "shared-query", "random"):
        host = build_host(name, shape)
        found = embed(host, on_torch).E
        assert isinstance(found, torch.Tensor)
        assert np.allclose(found.numpy(), embed(host, target).E, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("host", "target", "error", "message"),
    [
        (Shape(2, 2, 2, 2), Shape(2, 2, 1, 2), MalformedInput, "differ in head_dim: host 2, target 1"),
        (Shape(2, 2, 2, 2), Shape(2, 1, 2, 2), MalformedInput, "differ in layers"),
        (Shape(2, 2, 2, 2), Shape(2, 2, 2, 2, 3), MalformedInput, "differ in d_out"),
    ],
)
def test_shapes_must_agree(host, target, error, message):
    with pytest.raises(error, match=message):
        embed(build_host("sparse", host), random_target(target, 0))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8])
def test_integer_weights_do_not_wrap(dtype):
    shape, big = Shape(1, 3, 1, 1), np.iinfo(dtype).max
    ones = np.full((3, 1, 1, 1), big, dtype=dtype)
    W = w_all(Target(shape, ones, ones, ones, ones))
    assert int(W[0, -1]) == int(big) ** 6
    host = Universal(shape, 1, ones, ones, ones, np.full((1, 1), big, dtype=dtype))
    assert int(r_all(host)[0, -1]) == int(big) ** 4


def test_a_host_that_only_carries_the_name_is_refused():
    import dataclasses

    shape = Shape(2, 2, 3, 2)
    for name in SHARED:
        host = build_host(name, shape)
        swapped = dataclasses.replace(host, R_V=host.R_V[::-1])
        with pytest.raises(MalformedInput, match=f"carries the name {name} but its matrices differ"):
            embed(swapped, random_target(shape, 0))


def test_memory_is_guarded_before_solving():
    shape = Shape(2, 3, 4, 4)
    with pytest.raises(ResourceLimit, match=r"needs about .* beside"):
        embed(build_host("random", shape), random_target(shape, 0), max_memory=100_000)


@pytest.mark.parametrize("size", [1e307, 1e308])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("random", Shape(2, 1, 1, 2)),
        ("printed-tree-row", Shape(2, 2, 1, 2)),
        ("sparse", Shape(1, 2, 1, 1, residual=True)),
        ("sparse", Shape(1, 3, 1, 1, residual=True)),
    ],
)
def test_numbers_beyond_float64_do_not_match(name, shape, size):
    """W_all itself is finite, and E or a norm is not: NaN is below every bound."""
    target, drawn = random_target(shape, 1), np.random.default_rng(0)
    for _ in range(8):
        for array in (target.W_Q, target.W_K):
            array[...] = 1.7 * size * drawn.choice([-1.0, 1.0], size=array.shape)
        try:
            found = embed(build_host(name, shape), target)
        except (MalformedInput, CannotCarry, Undecided):
            continue
        assert np.isfinite(found.E).all()
        assert found.relative_residual <= floats.CLOSE


def test_nan_weights_do_not_pass():
    shape = Shape(1, 1, 1, 1)
    host, target = build_host("random", shape), random_target(shape, 0)
    host.R_V[0, 0, 0, 0] = np.nan
    with pytest.raises(MalformedInput, match="not finite"):
        embed(host, target)


_HOSTS: dict = {}


def _cached_host(name, shape):
    return _HOSTS.setdefault((name, shape), build_host(name, shape))


@pytest.mark.full
@pytest.mark.parametrize(("rows", "columns"), [(520, 520), (560, 520)])
@pytest.mark.parametrize("wanted", [1e1, 1e8, 1e16])
def test_the_condition_of_a_large_matrix_is_estimated(rows, columns, wanted):
    """Where float64 sees it; else the singular values decide the rank."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.standard_normal((n, columns)))[0] for n in (rows, columns))
    matrix = left * np.geomspace(1, 1 / wanted, columns) @ right
    found = FloatSolver(matrix, Shape(1, 1, 1, 1))
    if wanted > 1e15:
        assert (found.estimated, found.rank < columns) == (False, True)
        return
    scaled = matrix * found.scale
    true = np.linalg.cond(scaled.T if rows == columns else np.linalg.qr(scaled)[1], 1)
    assert found.estimated
    assert true / 10 <= found.condition <= 1.01 * true
    solved = found.solve(rng.standard_normal((3, columns)))
    assert solved.condition_estimated
    assert solved.relative_residual < 1e-16 * true * columns
