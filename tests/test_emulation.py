"""Emulation at scale: engines, chunks of attention, precisions, laws, one E for every context length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utfproof.attention import (
    ChunkedAttention,
    GivenAttention,
    RationalAttention,
    SeededAttention,
    SoftmaxAttention,
    chunked,
    parse_kernel,
)
from utfproof.constructions import build_host
from utfproof.emulation.compare import CompareSetting, compare, random_input, relative_error
from utfproof.emulation.engines import Engine, Placement
from utfproof.emulation.laws import TARGET_LAWS, draw_target
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.matching import Embedder, w_all
from utfproof.shapes import Shape

pytestmark = pytest.mark.numerical

SHAPE = Shape(2, 3, 2, 3)
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


def chunks_agree(kernel, rows, positions, width):
    queries, keys, x = np.random.default_rng(len(positions)).normal(size=(3, len(positions), width))
    whole = kernel(queries, keys, positions, layer=1, head=1) @ x
    chunked = ChunkedAttention(kernel, rows).attended(queries, keys, x, positions, layer=1, head=1)
    return np.allclose(chunked, whole, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rows", [1, 3, 7, 64, None])
def test_chunks_are_the_same_attention(name, rows):
    assert chunks_agree(KERNELS[name], rows, np.arange(17), 4)


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=12), st.booleans(), st.integers(1, 9), st.integers(1, 5))
def test_chunks_at_any_positions(positions, causal, window, rows):
    """Keys are only skipped where positions count upwards; elsewhere the mask decides, and each token sees itself."""
    assert chunks_agree(SoftmaxAttention(causal=causal, window=window), rows, np.array(positions), 2)


def test_a_hidden_key_is_never_looked_at():
    """A window leaves keys out of the products, not only out of the sum: NaN behind it does no harm."""
    queries, keys, x = np.random.default_rng(0).normal(size=(3, 40, 2))
    keys[0], x[0] = np.nan, np.nan
    kernel = ChunkedAttention(SoftmaxAttention(causal=True, window=4), rows=8)
    out = kernel.attended(queries, keys, x, np.arange(40), layer=0, head=0)
    assert np.isnan(out[0]).all()
    assert np.isfinite(out[16:]).all()


@pytest.mark.parametrize(("n", "block"), [(600, 256), (512, 256), (9, 2), (2, 1)])
def test_all_blocks_at_once_are_the_same_sums(n, block):
    """As on a GPU, with and without a rest, targets side by side or not."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    for before in ((), (3,), (2, 3)):
        a, b = (torch.randint(-9, 9, (*before, *size), generator=generator).double() for size in ((5, n), (n, 3)))
        assert torch.equal(chunked._all_blocks(a, b, n // block, block), a @ b)


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
    engines = ["m-wide"] + (["index-map"] if not name.startswith("random") else [])
    outputs = []
    for engine in (Engine(embedder, e) for e in engines):
        outputs.append(engine.run(x, engine.prepare(E), KERNELS[kernel]))
    for output in outputs:
        assert relative_error(output, outputs[0]) < 1e-11
        assert relative_error(output, target.forward(x, KERNELS[kernel])) < 1e-11


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
    assert report.holds is not False


def test_a_torch_device():
    pytest.importorskip("torch")
    kernels = [(n, KERNELS[n]) for n in ("softmax", "alibi", "rope", "seeded", "causal window")]
    for name, engine in (("tied", "m-wide"), ("tied", "index-map"), ("random", "m-wide")):
        setting = CompareSetting(engine=engine, device="cpu:0")
        report = compare(
            build_host(name, SHAPE), lambda t: draw_target(SHAPE, t), kernels, [5], trials=2, setting=setting
        )
        assert report.holds
        assert report.max_relative_error < 1e-11


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
    with pytest.raises(ResourceLimit, match="a context of 2000000000"):
        compare(build_host("random", SHAPE), [draw_target(SHAPE, 0)], [("softmax", SoftmaxAttention())], [2 * 10**9])
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


def test_unknown_laws():
    with pytest.raises(MalformedInput, match="target law 'cauchy' is unknown; choose uniform"):
        draw_target(SHAPE, 0, "cauchy")
