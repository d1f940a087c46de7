"""Linear algebra modulo p: two engines, integers as the judge, the ends of the exact range, conversions, planted faults."""

from fractions import Fraction

import flint_modular as flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import full_where

from utfproof.errors import MalformedInput
from utfproof.exact import gfp
from utfproof.exact.gfp import elimination, field, kernels

pytestmark = pytest.mark.numerical

LARGEST = 134217689
"""The largest prime below 2^27."""
PRIMES = (3, 5, 101, 65521, gfp.DEFAULT_PRIMES[0], LARGEST)
FLOAT32 = (3, 5, 101, *gfp.SMALL_PRIMES, 251)
"""Primes for matrices of float32."""
SMALL = (elimination.THIN, elimination._TINY, elimination.PANEL)
BORDERS = sorted({edge + offset for edge in SMALL for offset in (-1, 0, 1)})


def entries(rng, rows, columns, p):
    return rng.integers(-(p // 2), p // 2, size=(rows, columns), endpoint=True).astype(float)


def low_rank(rng, m, n, p):
    inner = int(rng.integers(0, min(m, n) + 1))
    return gfp.multiply(entries(rng, m, inner, p), entries(rng, inner, n, p), p)


def permuted_identity(rng, m, n, p):
    out, k = np.zeros((m, n)), min(m, n)
    out[rng.permutation(m)[:k], rng.permutation(n)[:k]] = 1
    return out


def zero_blocks(rng, m, n, p):
    out = entries(rng, m, n, p)
    out[rng.random(m) < 0.4] = 0
    out[:, rng.random(n) < 0.4] = 0
    return out


def equal_rows(rng, m, n, p):
    return np.repeat(entries(rng, 1, n, p), m, axis=0)


def late_pivots(rng, m, n, p):
    """Anti-diagonal block form: no leading minor is invertible without exchanges."""
    out = entries(rng, m, n, p)
    out[: m // 2, : n // 2] = 0
    return out


FAMILIES = {
    "random": entries,
    "low rank": low_rank,
    "permuted identity": permuted_identity,
    "zero blocks": zero_blocks,
    "equal rows": equal_rows,
    "late pivots": late_pivots,
    "sparse": lambda rng, m, n, p: (rng.random((m, n)) < 0.02) * float(p // 2),
    "all p-1": lambda rng, m, n, p: np.full((m, n), p - 1.0),
    "extreme signs": lambda rng, m, n, p: rng.choice([-float(p // 2), float(p // 2)], size=(m, n)),
    "zero": lambda rng, m, n, p: np.zeros((m, n)),
}
SHAPES = (
    (0, 0),
    (0, 5),
    (5, 0),
    (1, 1),
    (1, 40),
    (40, 1),
    (3, 150),
    (150, 3),
    (20, 20),
    (70, 40),
    (40, 70),
    (140, 140),
)


@st.composite
def matrices(draw):
    dtype = draw(st.sampled_from(["float64", "float32"]))
    p = draw(st.sampled_from(PRIMES if dtype == "float64" else FLOAT32))
    m, n = draw(st.integers(0, 24)), draw(st.integers(0, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))](rng, m, n, p).astype(dtype), p


def ints(array):
    return [[int(x) for x in row] for row in np.asarray(array)]


def integer_product(a, b, p):
    """a b modulo p in Python integers."""
    left = np.array(ints(a), dtype=object).reshape(np.shape(a))
    right = np.array(ints(b), dtype=object).reshape(np.shape(b))
    return left @ right % p if left.shape[1] else np.zeros((left.shape[0], right.shape[1]), dtype=object)


def modulo(a, p):
    return np.array(ints(a), dtype=object).reshape(np.shape(a)) % p


def same(a, b, p):
    return np.shape(a) == np.shape(b) and bool((modulo(a, p) == modulo(b, p)).all())


def is_centred(a, p):
    a = np.asarray(a)
    return a.dtype in (np.float64, np.float32) and bool((np.abs(a) <= p // 2).all()) and bool((a == np.rint(a)).all())


def check_everything(matrix, p):
    """FLINT agrees, and the identities hold in integers."""
    m, n = matrix.shape
    before = matrix.copy()
    rank = gfp.rank(matrix, p)
    assert rank == flint.rank(matrix, p) == gfp.rank(matrix.copy(), p, overwrite=True)
    profile = gfp.rank_profile(matrix, p)
    assert profile == flint.rank_profile(matrix, p)
    assert len(profile.rows) == len(profile.columns) == rank

    kernel = gfp.nullspace(matrix, p)
    assert kernel.shape == (n, n - rank)
    assert is_centred(kernel, p)
    assert same(kernel, flint.nullspace(matrix, p), p)
    assert not integer_product(matrix, kernel, p).any()

    k = min(m, n)
    square = np.ascontiguousarray(matrix[:k, :k])
    inverse = gfp.inverse(square, p)
    again = gfp.inverse(square.copy(), p, overwrite=True)
    assert (again is None) == (inverse is None)
    assert again is None or np.array_equal(again, inverse)
    assert (inverse is None) == (flint.determinant(square, p) == 0)
    if inverse is not None:
        assert is_centred(inverse, p)
        assert same(integer_product(square, inverse, p), np.eye(k), p)
        assert same(inverse, flint.inverse(square, p), p)
    assert (matrix == before).all()


# --- the two engines ---------------------------------------------------------------------------------------


@given(matrices())
def test_small_matrices_of_every_family(case):
    check_everything(*case)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_families_at_all_shapes(family, shape):
    index = SHAPES.index(shape) + sorted(FAMILIES).index(family)
    p, small = PRIMES[index % len(PRIMES)], FLOAT32[index % len(FLOAT32)]
    check_everything(FAMILIES[family](np.random.default_rng(index), *shape, p), p)
    check_everything(FAMILIES[family](np.random.default_rng(index), *shape, small).astype(np.float32), small)


@pytest.mark.parametrize("p", [3, gfp.DEFAULT_PRIMES[0], LARGEST])
@pytest.mark.parametrize("size", full_where(lambda size: size > 100, BORDERS))
def test_panel_borders(size, p):
    rng = np.random.default_rng(size)
    check_everything(entries(rng, size, size, p), p)
    check_everything(late_pivots(rng, size, size + 1, p), p)
    if p == 3:
        check_everything(entries(rng, size, size, 127).astype(np.float32), 127)


def test_large_enough_for_every_level_of_the_recursion():
    rng = np.random.default_rng(5)
    p = gfp.DEFAULT_PRIMES[0]
    wide = entries(rng, 300, 700, p)
    wide[37] = 0
    wide[:, 100:180] = wide[:, 20:100]
    assert gfp.rank(wide, p) == gfp.rank(wide.T, p) == flint.rank(wide, p) == 299
    assert gfp.rank_profile(wide, p) == flint.rank_profile(wide, p)


@pytest.mark.exhaustive
def test_thousands_of_matrices():
    rng = np.random.default_rng(2026)
    for seed in range(4000):
        p = int(rng.choice(PRIMES))
        m, n = (int(x) for x in rng.integers(0, 40 if seed % 8 else 300, size=2))
        family = sorted(FAMILIES)[seed % len(FAMILIES)]
        check_everything(FAMILIES[family](np.random.default_rng(seed), m, n, p), p)


@pytest.mark.exhaustive
@pytest.mark.parametrize("p", [3, 5])
def test_all_three_by_three_matrices_modulo_three_and_two_by_three_modulo_five(p):
    from itertools import product

    shape = (3, 3) if p == 3 else (2, 3)
    for values in product(range(p), repeat=shape[0] * shape[1]):
        check_everything(np.array(values, dtype=float).reshape(shape), p)


# --- the ends of the exact range ---------------------------------------------------------------------------


def test_block_length_is_the_largest_that_is_exact():
    for p in PRIMES:
        h = (p + 1) // 2
        length = gfp.block_length(p)
        assert length >= 1
        assert length * h * h + h <= field.LIMITS["float64"] < (length + 1) * h * h + h
    for p in FLOAT32:
        h, length = (p + 1) // 2, gfp.block_length(p, "float32")
        assert length > 500
        assert length * h * h + h <= field.LIMITS["float32"] < (length + 1) * h * h + h
    assert gfp.block_length(LARGEST) == 1
    assert gfp.block_length(134217757) == 0  # the next prime
    for p in gfp.DEFAULT_PRIMES:
        assert gfp.block_length(p) == 4096


@pytest.mark.parametrize(("p", "dtype"), [(p, "float64") for p in PRIMES] + [(p, "float32") for p in FLOAT32])
def test_reduction_at_the_limit(p, dtype):
    h, limit = (p + 1) // 2, field.LIMITS[dtype]
    values = [limit - i for i in range(2000)] + [k * p + (p // 2) + i for k in (0, 1, 10**6) for i in range(3)]
    values = [v for v in values if v <= limit]
    array = np.array([values, [-v for v in values]], dtype=dtype)
    numbers = [values, [-v for v in values]]
    kernels.NumpyKernels(p, dtype).reduce(reduced := array.copy())
    assert np.abs(reduced).max() <= h
    assert (modulo(reduced, p) == np.array(numbers, dtype=object) % p).all()
    exact = gfp.centred(array, p)
    assert is_centred(exact, p)
    assert (modulo(exact, p) == np.array(numbers, dtype=object) % p).all()


@pytest.mark.parametrize("p", [PRIMES[3], gfp.DEFAULT_PRIMES[0], LARGEST, *FLOAT32[2:]])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("value", ["p-1", "half", "minus half", "mixed"])
def test_longest_products(p, offset, value):
    """Inner dimension at the block length, all entries of the largest size, uncentred ones included."""
    dtype = gfp.dtype_for(p)
    inner = min(gfp.block_length(p, dtype), 5000) + offset
    x = {"p-1": p - 1.0, "half": p // 2, "minus half": -(p // 2), "mixed": p // 2}[value]
    a, b = np.full((2, inner), x, dtype), np.full((inner, 2), x, dtype)
    if value == "mixed":
        a[:, ::2] *= -1
        b[1::3] *= -1
    a, b = gfp.centred(a, p), gfp.centred(b, p)
    # the engine's own residues may reach (p+1)/2
    if value == "half":
        a, b = a + 1, b + 1
    assert same(gfp.multiply(a, b, p), integer_product(a, b, p), p)


def test_delayed_sums_reach_their_limit(monkeypatch):
    """Elimination with the shortest sums allowed, and with long ones, gives the same rank profile."""
    rng = np.random.default_rng(3)
    p = gfp.DEFAULT_PRIMES[0]
    matrix = low_rank(rng, 200, 190, p)
    expected = gfp.rank_profile(matrix, p)
    for length in (1, 2, 7, 16, 64, 100):
        monkeypatch.setattr(field, "block_length", lambda p, dtype="", length=length: length)
        assert gfp.rank_profile(matrix, p) == expected


@pytest.mark.parametrize("factor", [3, 16])
def test_planted_fault_a_block_too_long_is_caught_by_integers(monkeypatch, factor):
    p = LARGEST
    a, b = np.full((1, 48), p // 2 * 1.0), np.full((48, 1), p // 2 * 1.0)
    b[::5] -= np.arange(10)[:, None]
    expected = integer_product(a, b, p)
    assert same(gfp.multiply(a, b, p), expected, p)
    monkeypatch.setattr(field, "block_length", lambda p, dtype="": factor)
    assert not same(gfp.multiply(a, b, p), expected, p)


def test_planted_fault_debt_forgotten(monkeypatch):
    """If products already summed are not counted, elimination leaves the exact range and FLINT notices."""
    p = 94906249
    matrix = entries(np.random.default_rng(4), 300, 300, p)
    expected = flint.inverse(matrix, p)
    assert same(gfp.inverse(matrix, p), expected, p)
    honest = kernels.Kernels.accumulate
    monkeypatch.setattr(kernels.Kernels, "accumulate", lambda self, c, a, b, debt: honest(self, c, a, b, 0) * 0 + 1)
    monkeypatch.setattr(field, "block_length", lambda p, dtype="": 300)
    found = gfp.inverse(matrix, p)
    assert found is None or not same(found, expected, p)


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 1, 0, -3, 4, 9, 91, 2**27 + 29, True, 3.0, "3"])
def test_moduli_refused(p):
    with pytest.raises(MalformedInput, match="modulus"):
        gfp.rank(np.eye(2), p)
    with pytest.raises(MalformedInput, match="modulus"):
        gfp.residues(np.eye(2), p)


def test_matrices_refused():
    for bad in (np.nan, np.inf, 2.0**53):
        with pytest.raises(MalformedInput, match="not finite or beyond"):
            gfp.rank(np.array([[1.0, bad]]), 3)
    for wrong in (np.eye(2, dtype=np.float32), np.eye(2, dtype=int), np.zeros(3)):
        with pytest.raises(MalformedInput, match="float64 matrix"):
            gfp.rank(wrong, 65521)
    with pytest.raises(MalformedInput, match="beyond 2\\^23"):
        gfp.rank(np.full((1, 1), 2.0**23, np.float32), 3)
    with pytest.raises(MalformedInput, match="float32 and float64 do not multiply"):
        gfp.multiply(np.eye(2, dtype=np.float32), np.eye(2), 3)
    with pytest.raises(MalformedInput, match="square"):
        gfp.inverse(np.zeros((2, 3)), 3)
    with pytest.raises(MalformedInput, match="do not multiply"):
        gfp.multiply(np.eye(2), np.zeros((3, 1)), 3)


# --- conversion --------------------------------------------------------------------------------------------

HARD_FLOATS = (0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, 1e-320, 0.1, -1 / 3, 1.0, 2.0**52 + 1)


def expected_residue(value, p):
    exact = Fraction(value)
    return exact.numerator * pow(exact.denominator, -1, p) % p


@pytest.mark.parametrize("p", PRIMES)
def test_hard_floats(p):
    array = np.array([HARD_FLOATS])
    found = gfp.residues(array, p)
    assert is_centred(found, p)
    assert [int(x) % p for x in found[0]] == [expected_residue(v, p) for v in HARD_FLOATS]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.sampled_from(PRIMES))
def test_floats(values, p):
    found = gfp.residues(np.array(values), p)
    assert [int(x) % p for x in found] == [expected_residue(v, p) for v in values]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["float64", "float16", "torch", "bfloat16"])
def test_not_finite_is_refused_by_name_and_index(bad, kind):
    array = np.zeros((2, 3, 4))
    array[1, 2, 0] = bad
    if kind == "float16":
        array = array.astype(np.float16)
    elif kind in ("torch", "bfloat16"):
        torch = pytest.importorskip("torch")
        array = torch.from_numpy(array).to(torch.bfloat16 if kind == "bfloat16" else torch.float64)
    with pytest.raises(MalformedInput, match=r"^R_V entry \(1, 2, 0\) is (nan|-?inf); only finite"):
        gfp.residues(array, 101, name="R_V")


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.sampled_from(PRIMES))
@settings(max_examples=30)
def test_integers(values, p):
    for array in (np.array(values, dtype=np.int64), np.array(values, dtype=object)):
        found = gfp.residues(array, p)
        assert is_centred(found, p)
        assert [int(x) % p for x in found] == [v % p for v in values]


def test_values_without_residues_are_refused():
    with pytest.raises(MalformedInput, match=r"U entry \(1,\) is 2/15: its denominator is zero modulo 5"):
        gfp.residues(np.array([1, Fraction(2, 15)], dtype=object), 5, name="U")
    with pytest.raises(MalformedInput, match="expected an int or a Fraction"):
        gfp.residues(np.array([0.5], dtype=object), 5)
    for dtype in (complex, "U3", np.longdouble):
        with pytest.raises(MalformedInput, match=r"entries of type .* have no residues"):
            gfp.residues(np.zeros(2).astype(dtype), 5)


# --- torch and drawn matrices ------------------------------------------------------------------------------


def check_tensor(matrix, p, device):
    """Every function gives on a tensor what it gives on the array."""
    import torch

    def tensor(array):
        return torch.from_numpy(array.copy()).to(device)

    def agree(found, expected):
        if expected is None:
            assert found is None
            return
        assert found.device.type == device
        assert np.array_equal(found.cpu().numpy(), expected)

    there = tensor(matrix)
    assert gfp.rank(there, p) == gfp.rank(matrix, p)
    assert gfp.rank_profile(there, p) == gfp.rank_profile(matrix, p)
    agree(gfp.nullspace(there, p), gfp.nullspace(matrix, p))
    agree(gfp.centred(there, p), gfp.centred(matrix, p))
    k = min(matrix.shape)
    agree(gfp.inverse(there[:k, :k], p), gfp.inverse(matrix[:k, :k], p))
    assert (there.cpu().numpy() == matrix).all()


# two pools of spinning threads in one process slow each other down on small matrices
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("device", "largest"),
    [
        pytest.param("cpu", (150, 140), marks=pytest.mark.full),
        pytest.param("cuda", (500, 640), marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_torch_gives_the_same(family, device, largest):
    for index, shape in enumerate(((0, 3), (3, 0), (1, 1), (30, 20), (20, 90), largest)):
        p = PRIMES[index]
        check_tensor(FAMILIES[family](np.random.default_rng(index), *shape, p), p, device)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(1, 1), (9, 20), (130, 121)])
def test_torch_multiplies_residues_of_small_primes_as_bytes(shape, device, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(kernels.TorchKernels, "int8", property(lambda _: True, lambda *_: None), raising=False)
    p = gfp.SMALL_PRIMES[0]
    matrix = np.random.default_rng(shape[0]).integers(-63, 64, shape).astype(np.float32)
    matrix[-1] = matrix[0]
    there = torch.from_numpy(matrix).to(device)
    assert gfp.rank(there, p) == gfp.rank(matrix, p)
    product = gfp.multiply(there, there.T.contiguous(), p)
    assert np.array_equal(product.cpu().numpy(), gfp.multiply(matrix, matrix.T, p))


def test_full_rank_is_proved_by_the_first_small_prime_that_shows_it():
    found = gfp.full_rank_prime(lambda p: np.diag([127 % p, 1, 1]).astype(np.float32))
    assert found == gfp.SMALL_PRIMES[1]
    tried = []

    def product(p):
        tried.append(p)
        return np.diag([127 * 113 * 109 % p, 1, 1]).astype(np.float32)

    assert gfp.full_rank_prime(product) is None
    assert tried == list(gfp.SMALL_PRIMES)
    assert gfp.full_rank_prime(lambda p: tried.append(p) or np.zeros((3, 3), np.float32)) is None
    assert tried[3:] == [gfp.SMALL_PRIMES[0]]


@pytest.mark.parametrize("device", [None, "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_drawn_matrices(device):
    if device is not None:
        torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    p = gfp.DEFAULT_PRIMES[0]
    a, b = entries(rng, 6, 5, p), entries(rng, 5, 4, p)
    draws = []

    def draw():
        draws.append(1)
        return a if device is None else torch.from_numpy(a).to(device)

    first = gfp.ResidueMatrix((6, 5), p, draw)
    second = gfp.ResidueMatrix.of(b if device is None else torch.from_numpy(b).to(device), p)
    product = first @ second
    joined = product.hstack_with([first.materialise()])
    assert joined.shape == (6, 9)
    array = joined.array if device is None else joined.array.cpu().numpy()
    assert same(array[:, :4], integer_product(a, b, p), p)
    assert same(array[:, 4:], a, p)
    assert gfp.rank(joined.array, p) == 5
    assert len(draws) == 2
    with pytest.raises(TypeError):
        _ = first @ 3


@pytest.mark.parametrize("p", [3, 65521, 2097143, (1 << 25) - 39, 134217689])
@pytest.mark.parametrize("factor", [1, 12345, -7])
def test_floats_of_every_kind_have_the_residues_of_their_fractions(p, factor):
    """Both routes: one power of two for a whole chunk, and a table of exponents."""
    rng = np.random.default_rng(p)
    arrays = [
        rng.standard_normal((20, 30)),
        (rng.integers(-(2**31), 2**31, (20, 30)) * 2 + 1) * 2.0**-50,
        rng.standard_normal((9, 9)).astype(np.float32),
        np.array([[0.0, 5e-324, 1.7e308]]),
        np.zeros((2, 2)),
        np.array([[2.0**53 - 1, 1 - 2.0**53, 2.0**52 + 1, 1.0]]),
        np.full((3, 3), 2.0**-1074 * 12345),
        np.array([[2.0**53 - 1, 2.0**-20]]),
        np.array([[2.0**950, 5e-324]]),
        np.array([[2.0**60, 2.0**-1000]]),
    ]
    for array in arrays:
        fractions = [Fraction(float(x)) * factor for x in array.reshape(-1)]
        wanted = [gfp.centre(f.numerator * pow(f.denominator, -1, p), p) for f in fractions]
        assert gfp.residues(array, p, factor=factor).reshape(-1).tolist() == wanted
        if p < 2**8:
            found = gfp.residues(array, p, factor=factor, dtype="float32")
            assert found.dtype == np.float32
            assert found.reshape(-1).tolist() == wanted
