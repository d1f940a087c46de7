"""Emulation at scale: engines, chunks of attention, batches, precisions, laws, sweeps, one E for every context length."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utfproof.attention import (
    EVERY_KERNEL,
    ChunkedAttention,
    GivenAttention,
    RationalAttention,
    SeededAttention,
    SoftmaxAttention,
    blocked_product,
    chunked,
    parse_kernel,
)
from utfproof.attention.causal import Causal
from utfproof.attention.window import Window
from utfproof.constructions import build_host
from utfproof.emulation.compare import CompareSetting, EmulationReport, compare, random_input, relative_error
from utfproof.emulation.engines import Engine, PathHost, Placement, changed, path_columns, stack_targets
from utfproof.emulation.laws import TAME, TARGET_LAWS, draw_target
from utfproof.emulation.observe import first_growth
from utfproof.emulation.sweep import Case, Plan, run_case, totals
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.matching import Embedder, w_all
from utfproof.shapes import Shape

pytestmark = pytest.mark.numerical

SHAPE = Shape(2, 3, 2, 3)
WIDE = Shape(3, 2, 2, 2)
HOSTS = ("sparse", "sparse-front", "tied", "random", "random-tied")
KERNELS = {
    "softmax": SoftmaxAttention(),
    "causal": SoftmaxAttention(causal=True),
    "window": SoftmaxAttention(window=3),
    "causal window": SoftmaxAttention(causal=True, window=2, scale="1/sqrt(d)"),
    "alibi": SoftmaxAttention(alibi_heads=2),
    "rope": SoftmaxAttention(rope_base=100.0, causal=True),
    "seeded": SeededAttention(),
    "rational": RationalAttention(causal=True),
}


# --- attention in chunks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rows", [1, 3, 7, 64, None])
def test_chunks_are_the_same_attention(name, rows):
    rng = np.random.default_rng(0)
    queries, keys, x = rng.normal(size=(3, 17, 4))
    kernel, positions = KERNELS[name], np.arange(17)
    whole = kernel(queries, keys, positions, layer=1, head=1) @ x
    chunked = ChunkedAttention(kernel, rows).attended(queries, keys, x, positions, layer=1, head=1)
    assert np.allclose(chunked, whole, rtol=1e-13, atol=1e-15)


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=12), st.booleans(), st.integers(1, 9), st.integers(1, 5))
def test_chunks_at_any_positions(positions, causal, window, rows):
    """Keys are only skipped where positions count upwards; elsewhere the mask decides, and each token sees itself."""
    n = len(positions)
    rng = np.random.default_rng(n)
    queries, keys, x = rng.normal(size=(3, n, 2))
    kernel = SoftmaxAttention(causal=causal, window=window)
    whole = kernel(queries, keys, np.array(positions), layer=0, head=0) @ x
    chunked = ChunkedAttention(kernel, rows).attended(queries, keys, x, np.array(positions), layer=0, head=0)
    assert np.allclose(chunked, whole, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (Causal, lambda self, start, stop, n: (0, start + 2)),
        (Window, lambda self, start, stop, n: (max(0, stop - self.value - 1), min(n, start + self.value))),
        (Window, lambda self, start, stop, n: (max(0, stop - self.value), min(n, start + self.value + 1))),
    ],
)
def test_a_key_that_is_taken_for_seen_by_all_is_noticed(monkeypatch, part, wrong):
    """A chunk masks nothing within the stretch that its part calls clear."""
    queries, keys, x = np.random.default_rng(0).normal(size=(3, 40, 2))
    kernel, places = SoftmaxAttention(causal=part is Causal, window=9), np.arange(40)
    whole = kernel(queries, keys, places, layer=0, head=0) @ x
    chunks = ChunkedAttention(kernel, 4)
    assert np.allclose(chunks.attended(queries, keys, x, places, layer=0, head=0), whole, rtol=1e-13, atol=1e-15)
    monkeypatch.setattr(part, "clear", wrong)
    assert not np.allclose(chunks.attended(queries, keys, x, places, layer=0, head=0), whole, rtol=1e-6)


def test_masks_are_built_once(monkeypatch):
    built, visible = [], Causal.visible
    monkeypatch.setattr(
        Causal, "visible", lambda self, distance: built.append(distance.shape) or visible(self, distance)
    )
    chunked._hidden.cache_clear()
    queries, keys, x = np.random.default_rng(0).normal(size=(3, 64, 2))
    for head in range(3):
        ChunkedAttention(SoftmaxAttention(causal=True), 8).attended(queries, keys, x, np.arange(64), layer=0, head=head)
    assert built == [(8, 7)]
    chunked._hidden.cache_clear()


def test_a_hidden_key_is_never_looked_at():
    """A window leaves keys out of the products, not only out of the sum: NaN behind it does no harm."""
    queries, keys, x = np.random.default_rng(0).normal(size=(3, 40, 2))
    keys[0], x[0] = np.nan, np.nan
    kernel = ChunkedAttention(SoftmaxAttention(causal=True, window=4), rows=8)
    out = kernel.attended(queries, keys, x, np.arange(40), layer=0, head=0)
    assert np.isnan(out[0]).all()
    assert np.isfinite(out[16:]).all()


def test_blocked_products_are_exact_on_integers():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (5, 700)), rng.integers(-9, 9, (700, 3))
    for block in (1, 7, 256, 700, 1000):
        assert np.array_equal(blocked_product(a, b, block), a @ b)


def test_matrices_from_outside():
    kernel = parse_kernel("given", 2, 3)
    assert isinstance(kernel, SeededAttention)
    assert isinstance(kernel, GivenAttention)
    assert kernel.logits_only
    matrix = kernel(np.zeros((9, 2)), np.zeros((9, 2)), np.arange(9), layer=1, head=0)
    assert np.allclose(matrix.sum(axis=1), 1, atol=1e-15)
    assert (matrix > 0).all()
    other = kernel(np.ones((9, 2)), np.zeros((9, 2)), np.arange(9), layer=1, head=1)
    assert not np.allclose(matrix, other)
    with pytest.raises(MalformedInput, match="use given alone"):
        parse_kernel("given+causal", 2, 3)


# --- engines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("kernel", ["causal", "rope", "seeded"])
def test_engines_are_one_function(name, kernel):
    embedder = Embedder(build_host(name, SHAPE))
    target = draw_target(SHAPE, 1)
    E, x = embedder.embed(target).E, random_input(SHAPE, 11, 3)
    engines = ["m-wide", "path-space"] + (["index-map"] if not name.startswith("random") else [])
    outputs = []
    for engine in (Engine(embedder, e) for e in engines):
        outputs.append(engine.run(x, engine.prepare(E), KERNELS[kernel]))
    for output in outputs:
        assert relative_error(output, outputs[0]) < 1e-11
        assert relative_error(output, target.forward(x, KERNELS[kernel])) < 1e-11


def test_path_space_is_exact_on_rationals():
    """With E R_all = W_all and exact attention the run in path space equals the target as rational numbers."""
    from utfproof.constructions.random import integer_target
    from utfproof.ground.arrays import exact

    target = integer_target(SHAPE, 4)
    x = exact(np.arange(6).reshape(2, 3) - 2)
    kernel = RationalAttention(causal=True)
    found = PathHost(SHAPE, w_all(target)).forward(x, kernel)
    assert (found == target.forward(x, kernel)).all()
    wrong = w_all(target)
    wrong[0, -1] += 1
    assert (PathHost(SHAPE, wrong).forward(x, kernel) != target.forward(x, kernel)).any()


def test_streams_are_the_paths():
    """Streams hold P_w = A^{l,h_l} ... A^{1,h_1} X, in the order of words."""
    kernel = SeededAttention()
    x = random_input(WIDE, 4, 0)
    streams = PathHost(WIDE, w_all(draw_target(WIDE, 0))).streams(x, kernel)
    A = [[kernel(x, x, None, layer=layer, head=head) for head in range(3)] for layer in range(2)]
    assert np.allclose(streams[1].reshape(4, 3, 2)[:, 2], A[0][2] @ x)
    assert np.allclose(streams[2].reshape(4, 3, 3, 2)[:, 2, 1], A[1][1] @ A[0][2] @ x)


@pytest.mark.parametrize("engine", ["m-wide", "path-space", "index-map"])
@pytest.mark.parametrize("tied", [False, True])
def test_batches_are_the_same_runs(engine, tied):
    host = build_host("tied", SHAPE)
    kernels = [(n, KERNELS[n]) for n in ("causal", "rope")]

    def targets(trial):
        return draw_target(SHAPE, trial, tied=tied, width=5)

    one, several = (
        compare(host, targets, kernels, [1, 6], trials=5, setting=CompareSetting(engine=engine, batch=batch))
        for batch in (1, 3)
    )
    key = [(c.trial, c.context, c.attention) for c in one.comparisons]
    assert sorted(key) == sorted((c.trial, c.context, c.attention) for c in several.comparisons)
    assert several.holds
    assert max(c.relative_error for c in several.comparisons) < 1e-13


def test_batches_need_like_targets():
    with pytest.raises(MalformedInput, match="must agree in shape, width and tying"):
        stack_targets([draw_target(SHAPE, 0), draw_target(SHAPE, 0, tied=True)])


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_precisions(precision):
    if precision == "bfloat16":
        pytest.importorskip("torch")
    setting = CompareSetting(precision=precision)
    report = compare(
        build_host("sparse", SHAPE), [draw_target(SHAPE, 0)], [("causal", KERNELS["causal"])], [9], setting=setting
    )
    size = {"float64": 1e-15, "float32": 1e-6, "bfloat16": 0.1}[precision]
    assert size / 1e4 < report.max_relative_error < size * 10
    assert report.holds


def test_a_torch_device():
    pytest.importorskip("torch")
    for name in ("tied", "random"):
        for engine in ("m-wide", "path-space"):
            setting = CompareSetting(engine=engine, device="cpu:0", batch=2)
            kernels = [(n, KERNELS[n]) for n in ("softmax", "alibi", "rope", "seeded", "causal window")]
            report = compare(
                build_host(name, SHAPE), lambda t: draw_target(SHAPE, t), kernels, [5], trials=2, setting=setting
            )
            assert report.holds
            assert report.max_relative_error < 1e-11


def test_strict_products_put_the_flags_back():
    torch = pytest.importorskip("torch")
    flags = torch.backends.cuda.matmul
    before = flags.allow_tf32
    try:
        flags.allow_tf32 = True
        with Placement("cpu:0").strict():
            assert not flags.allow_tf32
        assert flags.allow_tf32
    finally:
        flags.allow_tf32 = before


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_products_are_probed(precision):
    """Every engine tries one product first: TF32 left on, or float32 in place of float64, is refused by name."""
    torch = pytest.importorskip("torch")
    place = Placement("cpu:0", precision)
    place.probe()

    def short(bits):
        def round_to(a):
            mantissa, exponent = torch.frexp(a.double())
            return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent).to(a.dtype)

        return lambda a, b: round_to(a) @ round_to(b)

    bits = {"float64": 24, "float32": 11, "bfloat16": 4}[precision]
    with pytest.raises(MalformedInput, match=f"{precision} allows"):
        place.probe(short(bits))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_given_matrices_follow_the_run(precision):
    """Matrices from outside come in the numbers of the run, not in their own."""
    torch = pytest.importorskip("torch")
    matrices = np.full((1, 1, 3, 3), 1 / 3)
    tensor = Placement("cpu:0", precision).array(np.ones((3, 2)))
    assert GivenAttention(matrices)(tensor, tensor, None, layer=0, head=0).dtype == getattr(torch, precision)
    x = np.ones((3, 2), dtype=np.float32)
    assert GivenAttention(matrices)(x, x, None, layer=0, head=0).dtype == np.float32


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (CompareSetting(engine="wide"), "engine 'wide' is unknown"),
        (CompareSetting(engine="index-map"), "this host is dense"),
        (CompareSetting(precision="float8"), "precision 'float8' is unknown"),
        (CompareSetting(inputs="zeros"), "inputs 'zeros' are unknown"),
    ],
)
def test_settings_that_cannot_be(setting, message):
    with pytest.raises(MalformedInput, match=message):
        compare(
            build_host("random", SHAPE),
            [draw_target(SHAPE, 0)],
            [("softmax", SoftmaxAttention())],
            [2],
            setting=setting,
        )


def test_memory_is_refused_before_it_is_taken():
    for engine in ("m-wide", "path-space"):
        with pytest.raises(ResourceLimit, match="a context of 2000000000"):
            compare(
                build_host("random", SHAPE),
                [draw_target(SHAPE, 0)],
                [("softmax", SoftmaxAttention())],
                [2 * 10**9],
                setting=CompareSetting(engine=engine),
            )
    with pytest.raises(ResourceLimit, match="the dense host"):
        Engine(Embedder(build_host("sparse", Shape(4, 6, 64, 128)), max_memory=2**30), "m-wide")


# --- one host, one E, every context length -----------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("name", ["sparse", "tied", "random", "shared-key"])
def test_one_embedding_serves_every_context(name, monkeypatch):
    """E is found once and prepared once; nothing but X changes with n."""
    counts = {"embed": 0, "prepare": 0}

    def counted(cls, method, key):
        original = getattr(cls, method)

        def wrapper(self, *arguments, **options):
            counts[key] += 1
            return original(self, *arguments, **options)

        monkeypatch.setattr(cls, method, wrapper)

    counted(Embedder, "embed", "embed")
    counted(Engine, "prepare", "prepare")
    shape = Shape(2, 2, 3, 3)
    kernel = SoftmaxAttention(causal=True, window=5)
    report = compare(
        build_host(name, shape), [draw_target(shape, 2)], [("window", kernel)], [1, 2, 3, 17, 400, 4096, 65536]
    )
    assert report.holds
    assert [c.context for c in report.comparisons] == [1, 2, 3, 17, 400, 4096, 65536]
    assert (counts["embed"], counts["prepare"]) == (1, 1)


# --- laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", TARGET_LAWS)
@pytest.mark.parametrize("tied", [False, True])
def test_laws(law, tied):
    target = draw_target(SHAPE, 5, law, tied=tied, width=4)
    again = draw_target(SHAPE, 5, law, tied=tied, width=4)
    assert np.array_equal(target.W_V, again.W_V)
    assert not np.array_equal(target.W_V, draw_target(SHAPE, 6, law, tied=tied, width=4).W_V)
    ranks = {np.linalg.matrix_rank(target.parameters(l, h)[2]) for l in range(3) for h in range(2)}  # noqa: E741
    assert ranks <= ({1} if law == "rank-one" else {1, 2} if law == "signs" else {2})
    if law == "dead-heads":
        assert np.array_equal(target.parameters(0, 0)[0], target.parameters(0, 1)[0])
    assert np.isfinite(w_all(target)).all()


def test_a_dead_head():
    target = draw_target(WIDE, 0, "dead-heads")
    assert not target.W_V[:, -1].any()
    assert target.W_V[:, 0].any()


def test_unknown_laws():
    assert set(TAME) <= set(TARGET_LAWS)
    with pytest.raises(MalformedInput, match="target law 'cauchy' is unknown; choose uniform"):
        draw_target(SHAPE, 0, "cauchy")


def test_one_hot_inputs():
    x = random_input(SHAPE, 50, 0, law="one-hot")
    assert set(np.unique(x)) == {0.0, 1.0}
    assert (x.sum(axis=1) == 1).all()
    assert len(np.unique(x.argmax(axis=1))) == 3


# --- reports, sweeps, the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "layer"),
    [
        ((0.0, 0.0, 0.0), None),
        ((1e-16, 2e-16, 3e-16), None),
        ((1e-16, 1e-12, 2e-12), 2),
        ((1e-3, 1e-3, 1e-3), 1),
        ((0.0, 0.0, 0.5), 3),
        ((0.0, float("nan"), 0.5), 2),
    ],
)
def test_first_growth(errors, layer):
    assert first_growth(errors) == layer


def test_a_broken_run_is_named():
    """A host with a wrong mask in its second layer: exit by the bound, and the layer where it starts."""

    class Wrong:
        logits_only = True

        def __call__(self, queries, keys, positions, *, layer, head):
            return SoftmaxAttention(causal=layer != 1)(queries, keys, positions, layer=layer, head=head)

    host = build_host("tied", SHAPE)
    target = draw_target(SHAPE, 0)
    embedder = Embedder(host)
    engine = Engine(embedder)
    x = random_input(SHAPE, 6, 0)
    E = embedder.embed(target).E
    wrong = engine.run(x, engine.prepare(E), Wrong())
    assert relative_error(wrong, target.forward(x, SoftmaxAttention(causal=True))) > 1e-3


def test_reports():
    report = compare(
        build_host("tied", SHAPE), lambda t: draw_target(SHAPE, t), [("causal", KERNELS["causal"])], [1, 5], trials=4
    )
    assert isinstance(report, EmulationReport)
    assert report.holds
    ratios = [c.bound / c.relative_error for c in report.comparisons if c.relative_error]
    assert report.ratios == (min(ratios), max(ratios))
    assert min(ratios) >= 1
    document = json.loads(json.dumps(report.document()))
    assert set(document["quantiles"]) == {"median", "90 %", "99 %"}
    assert len(document["comparisons"]) == 8
    assert all(len(c["layer_errors"]) == SHAPE.layers + 1 for c in document["comparisons"])


def test_sweeps_refuse_with_reasons():
    plan = Plan(["causal", "rope"], [4])
    outcomes = [
        run_case(Case(shape, host, law), plan)
        for shape in (Shape(2, 2, 2, 2), Shape(2, 2, 2, 3), Shape(2, 2, 3, 3))
        for host in ("sparse", "shared-key", "shared-query")
        for law in ("uniform", "rank-one")
    ]
    by = {(o.case.shape.head_dim, o.case.shape.d_in, o.case.host, o.case.law): o for o in outcomes}
    assert by[2, 2, "sparse", "uniform"].report.holds
    assert by[2, 2, "shared-key", "rank-one"].left_out[0][0] == "rope"
    assert "M^(1,0) of this target is singular" in by[2, 2, "shared-query", "rank-one"].refusal
    assert "needs head_dim >= d_in" in by[2, 3, "shared-key", "uniform"].refusal
    assert by[3, 3, "sparse", "uniform"].left_out == (("rope", "RoPE needs an even head dimension, got 3"),)
    found = totals(outcomes)
    assert found["broken"] == found["failed"] == 0
    assert found["refused"] == sum(o.report is None for o in outcomes)
    assert found["runs"] == sum(len(o.report.comparisons) for o in outcomes if o.report)


def test_a_host_that_cannot_carry_is_no_refusal():
    outcome = run_case(Case(SHAPE, "random", "uniform"), Plan(["softmax"], [2], m=5))
    assert outcome.failed
    assert "cannot carry this target" in outcome.refusal


SMALL = ("-H", "2", "-L", "2", "-d", "2", "--d-in", "3")


@pytest.mark.full
def test_the_command_sweeps(cli):
    code, out, _ = cli(
        "emulate",
        "sparse,tied,random",
        *SMALL,
        "--attention",
        "all",
        "--target-law",
        "all",
        "--context",
        "1,9",
        "--json",
    )
    document = json.loads(out)
    assert code == 0
    assert document["totals"]["runs"] == 3 * 7 * len(EVERY_KERNEL) * 2
    assert document["totals"]["broken"] == 0
    code, out, _ = cli("emulate", "sparse,shared-key", *SMALL, "--context", "3")
    assert code == 0
    assert "refused: shared-key needs head_dim >= d_in" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["emulate", "sparse", "--shapes", "5-hop"], 2, "shape '5-hop' is unknown"),
        (["emulate", "sparse", "--shapes", "1-hop", "-H", "2"], 2, "--shapes names table shapes"),
        (["emulate", "sparse,nonsense", *SMALL], 2, "construction 'nonsense' is unknown"),
        (["emulate", "shared-key,shared-query", *SMALL], 2, "nothing could be run: shared-key needs"),
        (["emulate", "sparse", *SMALL, "--target-law", "cauchy"], 2, "target law 'cauchy' is unknown"),
        (["emulate", "sparse", *SMALL, "--inputs", "zeros"], 2, "--inputs 'zeros' is unknown"),
        (["emulate", "sparse", *SMALL, "--engine", "fast"], 2, "engine 'fast' is unknown"),
        (["emulate", "random", *SMALL, "--engine", "index-map"], 2, "this host is dense"),
        (["emulate", "sparse", *SMALL, "--precision", "float8"], 2, "precision 'float8' is unknown"),
        (["emulate", "sparse", *SMALL, "--batch", "0"], 2, "--batch must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--rows", "0"], 2, "--rows must be a positive integer"),
        (["emulate", "sparse", *SMALL, "--output=c.json"], 2, "emulate has no option --output any more: utfproof enclose"),
        (["emulate", "sparse", *SMALL, "--digits", "30"], 2, "emulate has no option --digits any more: utfproof enclose"),
        (["emulate", "random", *SMALL, "--plot", "p.png"], 2, "emulate has no option --plot any more: utfproof slack"),
        (["emulate", "sparse,tied", *SMALL, "--target", "t.safetensors"], 2, "are about one host and one shape"),
        (["enclose", "sparse,tied", *SMALL], 2, "'sparse,tied' is neither a construction"),
        (["enclose", "sparse", *SMALL, "--digits", "0"], 2, "--digits must be a positive integer"),
        (["enclose", "sparse", *SMALL, "--context", "1,2"], 2, "context"),
        (["slack", "sparse", *SMALL, "-o", "p.png"], 2, "'sparse' is unknown; choose random, random-tied"),
        (["slack", "random", *SMALL, "-o", "nowhere/p.png"], 2, "folder nowhere does not exist"),
        (["emulate", "random", *SMALL, "--m", "5"], 1, "cannot carry this target"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line(cli, tmp_path, arguments, code, message):
    found, _, err = cli(*arguments)
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert found == code, err
    assert message in lines[0]
    assert len(lines) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_command_plots(cli, tmp_path):
    pytest.importorskip("matplotlib")
    code, out, _ = cli("slack", "random", "-H", "2", "-L", "1", "-d", "1", "--d-in", "2", "-o", "p.svg")
    assert code == 0
    assert "recommended m" in out
    assert (tmp_path / "p.svg").stat().st_size > 1000


def test_the_command_encloses(cli, tmp_path):
    code, out, _ = cli(
        "enclose", "tied", *SMALL, "--digits", "40", "--attention", "scaled+causal", "--context", "2", "-o", "c.json"
    )
    assert code == 0
    assert "outputs within 10^-40" in out
    assert cli("check", "c.json")[0] == 0


def test_the_command_compares_rationals(cli, tmp_path):
    """Attention matrices from outside are rational: the outputs are equal, and nothing is rounded."""
    for host in ("tied", "random"):
        code, out, _ = cli(
            "enclose", host, "-H", "2", "-L", "2", "-d", "1", "--d-in", "2", "--digits", "20", "--attention", "given",
            "--context", "3", "-o", f"{host}.json",
        )  # fmt: skip
        assert code == 0
        assert "outputs are equal, as rational numbers" in out
        code, out, _ = cli("check", f"{host}.json")
        assert code == 0
        assert "equal" in out


def test_a_host_rounded_to_float32_is_noticed():
    """Float64 runs of float32 numbers: E rounded on the way breaks the bound by far."""
    host = build_host("tied", SHAPE)

    class Sneaky(Engine):
        def prepare(self, E):
            return super().prepare(E.astype(np.float32).astype(np.float64))

    target = draw_target(SHAPE, 0)
    report = compare(host, [target], [("causal", KERNELS["causal"])], [7])
    bound = report.comparisons[0].bound
    embedder = Embedder(host)
    engine = Sneaky(embedder)
    x = random_input(SHAPE, 7, 0, law="one-hot")
    output = engine.run(x, engine.prepare(embedder.embed(target).E), KERNELS["causal"])
    assert relative_error(output, target.forward(x, KERNELS["causal"])) > 100 * bound


def test_columns_in_path_space_are_gathered():
    host = build_host("tied", SHAPE)
    embedder = Embedder(host)
    target = draw_target(SHAPE, 0)
    assert np.array_equal(path_columns(embedder, embedder.embed(target).E), w_all(target))
    assert changed(host, lambda a: a + 1) is host  # index maps have no dense arrays


@pytest.mark.exhaustive
def test_table_shapes_within_their_bounds(cli):
    """The four table shapes, all kernels, contexts up to 2048."""
    code, out, _ = cli(
        "emulate", "sparse,tied,shared-key,shared-query,random", "--shapes", "all", "--attention", "all",
        "--context", "1,64,512,2048", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert document["totals"]["broken"] == 0
    assert document["totals"]["bound_over_error_tame"][1] < 1e4  # condition up to 100


@pytest.mark.gpu
def test_on_a_gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        pytest.skip("no CUDA device")
    for name in ("tied", "random"):
        for engine in ("m-wide", "path-space"):
            for precision in ("float64", "float32"):
                setting = CompareSetting(engine=engine, device="cuda", precision=precision, batch=4)
                kernels = [(n, KERNELS[n]) for n in ("softmax", "alibi", "rope", "seeded", "causal window")]
                report = compare(
                    build_host(name, SHAPE),
                    lambda t: draw_target(SHAPE, t),
                    kernels,
                    [5, 300],
                    trials=4,
                    setting=setting,
                )
                assert report.holds
