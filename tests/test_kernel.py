"""Refutations of given weights at any size: planted defects, and the sparse exact kernel vector that is found."""

from fractions import Fraction

import numpy as np
import pytest
import test_decide
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import r_all as naive_r_all

from utfproof.certificates import checker, kernel
from utfproof.certificates import rank as ranks
from utfproof.certificates.hosts import StoredWeights, dyadic_integers, flint_matrix
from utfproof.certificates.kernel import equal_columns
from utfproof.certificates.prover import certify_weights
from utfproof.errors import ResourceLimit, Undecided
from utfproof.exact import gfp, lifting, rational
from utfproof.shapes import Shape, matching_dimension
from utfproof.systems import Universal
from utfproof.util.arrays import exact
from utfproof.util.selection import SelectionMatrix, uniform

pytestmark = pytest.mark.numerical

SMALL, MIDDLE, LARGE = Shape(2, 2, 2, 2), Shape(2, 3, 4, 6), Shape(4, 2, 24, 24, 4)
DTYPES = ("float64", "float32", "bfloat16", "int8")


def host(shape, m=None, *, dtype="float32", tied=False, inner=None, seed=0):
    """Random tensors, exact in this format."""
    m = m or matching_dimension(shape)
    rng = np.random.default_rng(seed)

    def draw(*size):
        if dtype == "int8":
            return rng.integers(-9, 10, size=size).astype(np.int8)
        drawn = rng.normal(size=size).astype(np.float64 if dtype == "float64" else np.float32)
        return (drawn.view(np.uint32) & 0xFFFF0000).view(np.float32) if dtype == "bfloat16" else drawn

    return test_decide.host_tensors(draw, shape, m, tied=tied, inner=inner)


def save(folder, tensors, dtype="float32"):
    return test_decide.save(folder / "h.safetensors", tensors, dtype)


def decided(folder, tensors, shape, dtype="float32", **options):
    """The certificate, which the checker has accepted."""
    found = certify_weights(save(folder, tensors, dtype), layers=shape.layers, d_in=shape.d_in, **options)
    found.write(folder / "c.json")
    answer = checker.check_file(folder / "c.json")
    assert answer.code == 0, answer.message
    return found


def entries(found):
    return len(found.document["evidence"]["z"])


def change(name, index, value):
    """A defect: tensors[name][index] becomes value (of the tensors) in place."""

    def plant(tensors):
        tensors[name][index] = value(tensors) if callable(value) else value

    return plant


ALL = slice(None)
DEFECTS = {
    # name: (what is done to untied tensors, entries of z)
    "zero column": (change("R_K", (1, 0, ALL, 1), 0), 1),
    "zero values": (change("R_V", (0, 1), 0), 1),
    "proportional columns": (change("R_Q", (0, 1, ALL, 1), lambda t: -2 * t["R_Q"][0, 1, :, 0]), 2),
    "keys are queries": (change("R_K", (1, 1), lambda t: t["R_Q"][1, 1]), 2),
    "a repeated key": (change("R_K", (1, 1), lambda t: t["R_K"][1, 0]), 2),
    "a query is another's key": (change("R_K", (0, 1, ALL, 0), lambda t: t["R_Q"][0, 0, :, 1]), 2),
    "shared values": (change("R_V", (0, 1), lambda t: t["R_V"][0, 0]), 2),
    "shared last values": (change("R_V", (1, 1), lambda t: t["R_V"][1, 0]), 2),
    "values with one row": (change("R_V", (1, 0, slice(1, None)), 0), 2),
    "outputs": (change("U", (ALL, 1), lambda t: t["U"][:, 0]), 2),
}


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_planted_defects(tmp_path, name, dtype):
    """Every format at the small shape; at the larger one each defect in one format."""
    plant, count = DEFECTS[name]
    for shape in (SMALL, MIDDLE):
        if shape == MIDDLE and dtype != DTYPES[list(DEFECTS).index(name) % len(DTYPES)]:
            continue
        tensors = host(shape, matching_dimension(shape) + 1, dtype=dtype)
        plant(tensors)
        found = decided(tmp_path, tensors, shape, dtype)
        assert not found.universal
        assert entries(found) == count


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_defect(tmp_path, dtype):
    for shape in (SMALL, MIDDLE):
        assert decided(tmp_path, host(shape, dtype=dtype), shape, dtype).universal


@pytest.mark.parametrize(
    ("dtype", "plant"),
    [
        ("float64", change("R_Q", 1, lambda t: t["R_Q"][0])),
        ("float32", change("R_V", 1, lambda t: t["R_V"][0])),
        ("bfloat16", change("R_K", (0, ALL, 0), 0)),
        ("int8", change("R_V", 0, 0)),
    ],
)
def test_tied_hosts(tmp_path, dtype, plant):
    tensors = host(MIDDLE, dtype=dtype, tied=True)
    assert decided(tmp_path, tensors, MIDDLE, dtype).universal  # tied weights alone are no defect
    plant(tensors)
    assert not decided(tmp_path, tensors, MIDDLE, dtype).universal


@pytest.mark.parametrize(
    ("dtype", "tied"), [("float64", False), ("float32", True), ("bfloat16", False), ("int8", True)]
)
def test_values_of_low_inner_dimension(tmp_path, dtype, tied):
    inner = 5
    found = decided(tmp_path, host(MIDDLE, dtype=dtype, tied=tied, inner=inner), MIDDLE, dtype)
    assert not found.universal
    assert entries(found) <= inner + 1
    # with as many inner dimensions as there are columns below, nothing is lost
    assert certify_weights(save(tmp_path, host(MIDDLE, dtype=dtype, tied=tied, inner=72), dtype), layers=3).universal


def test_a_coordinate_that_is_never_read(tmp_path):
    """No sparse relation exists: every column takes part, with long integers."""
    tensors = host(SMALL)
    for name in ("R_Q", "R_K", "R_V"):
        tensors[name][0, :, 3] = 0
    assert entries(decided(tmp_path, tensors, SMALL)) == matching_dimension(SMALL)


@settings(max_examples=50)
@given(
    H=st.integers(1, 2),
    L=st.integers(1, 3),
    d=st.integers(1, 2),
    slack=st.integers(0, 2),
    wanted=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    tied=st.booleans(),
    high=st.integers(2, 5),
    seed=st.integers(0, 2**32),
)
def test_verdicts_and_kernels_by_the_definition(tmp_path_factory, H, L, d, slack, wanted, tied, high, seed):
    """Low-rank integer hosts: universal exactly where the rational rank of R_all, word by word, is M."""
    shape = Shape(H, L, d, d)
    M = matching_dimension(shape)
    tensors = host(shape, M + slack, dtype="int8", tied=tied, seed=seed)
    rng = np.random.default_rng(seed)
    for name in tensors:
        tensors[name] = rng.integers(-1, high - 1, size=tensors[name].shape).astype(np.int8)
    flat = tensors["R_V"].reshape(-1, M + slack, M + slack)
    for k, rank in enumerate(wanted[: len(flat)]):
        if rank < 9:
            left, right = rng.integers(-1, 2, size=(M + slack, rank)), rng.integers(-1, 2, size=(rank, M + slack))
            flat[k] = left @ right
    folder = tmp_path_factory.mktemp("low")
    found = decided(folder, tensors, shape, "int8")
    parts = {name: exact(a) for name, a in tensors.items()}
    matrix = naive_r_all(Universal(shape, M + slack, **parts))
    assert found.universal == (rational.rank(matrix) == M)
    if not found.universal:
        z = np.zeros(M, dtype=object)
        for place, value in found.document["evidence"]["z"]:
            z[place] = int(value)
        assert z.any()
        assert not (matrix @ z).any()


# --- primes that mislead -------------------------------------------------------------------------------------------


def test_primes_that_mislead(tmp_path):
    """A column that all the default primes divide is no defect; a true one beside it is found all the same."""
    product = int(np.prod(np.array(gfp.DEFAULT_PRIMES, dtype=object)))
    tensors = {
        "R_Q": np.array([1, 0, 0]).reshape(1, 1, 3, 1),
        "R_K": np.array([0, 1, 0]).reshape(1, 1, 3, 1),
        "R_V": np.eye(3, dtype=np.int64)[None, None],
        "U": np.array([[0], [0], [product]]),
    }
    path = tmp_path / "h.safetensors"

    def store():
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(a, dtype=np.int64) for name, a in tensors.items()}, path)

    store()
    found = certify_weights(path)
    found.write(tmp_path / "c.json")
    assert found.universal
    assert found.document["evidence"]["prime"] not in gfp.DEFAULT_PRIMES
    assert checker.check_file(tmp_path / "c.json").code == 0
    tensors["R_K"] = tensors["R_Q"]
    store()
    for witness in (False, True):
        found = certify_weights(path, witness=witness)
        found.write(tmp_path / "c.json")
        assert not found.universal
        assert checker.check_file(tmp_path / "c.json").code == 0


@pytest.mark.parametrize("witness", [False, True])
@pytest.mark.parametrize("divisor", ["127", "127 and 113", "all odd primes up to 127"])
def test_small_primes_that_divide_the_determinant(tmp_path, divisor, witness):
    """det R_all = q k v u; full rank modulo another prime is found, and only an exact relation refutes."""
    from safetensors.numpy import save_file

    odd = [p for p in range(3, 128, 2) if all(p % q for q in range(3, p, 2))]
    primes = {"127": [127], "127 and 113": [127, 113]}.get(divisor, odd)
    q, k, v, u = (int(np.prod(np.array(primes[i::4], dtype=object))) for i in range(4))
    R_Q, R_K, R_V, U = (np.zeros(size, dtype=np.int64) for size in ((1, 1, 3, 1), (1, 1, 3, 1), (1, 1, 3, 3), (3, 1)))
    R_Q[0, 0, 0], R_K[0, 0, 1], R_V[0, 0, 2, 2], U[2] = q, k, v, u
    tensors = {"R_Q": R_Q, "R_K": R_K, "R_V": R_V, "U": U}
    path = tmp_path / "h.safetensors"
    for deficient in (False, True):
        if deficient:
            R_K[0, 0] = 2 * R_Q[0, 0]
        save_file(tensors, path)
        found = certify_weights(path, witness=witness)
        found.write(tmp_path / "c.json")
        assert found.universal is not deficient
        if not deficient:
            used = found.document["evidence"]["prime"]
            assert used == {"127": 113, "127 and 113": 109}.get(
                divisor, (ranks.WITNESS_PRIMES if witness else gfp.DEFAULT_PRIMES)[0]
            )
        for numpy in (False, True):
            assert checker.check_file(tmp_path / "c.json", checker.Options(numpy=numpy)).code == 0


def test_misled_without_end_is_undecided(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "_recomputed", lambda *_: (0, {}))
    with pytest.raises(Undecided, match="modulo 12 primes, which proves nothing"):
        certify_weights(save(tmp_path, host(SMALL)))


# --- limits --------------------------------------------------------------------------------------------------------


def hidden_row(tmp_path):
    tensors = host(SMALL)
    for name in ("R_Q", "R_K", "R_V"):
        tensors[name][0, :, 3] = 0
    return save(tmp_path, tensors)


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("utfproof.exact.lifting.MAX_BITS", 900, "with entries of about .* digits"),
        ("utfproof.exact.lifting.MAX_TOTAL_BITS", 900, "in all can be stored"),
        ("utfproof.exact.lifting.MAX_WORK", 10, r"takes about .* multiplications \(the limit is"),
        (
            "utfproof.certificates.kernel.INLINE_LIMIT",
            5,
            "a kernel vector of 32 entries, a certificate holds at most 5",
        ),
        ("utfproof.certificates.format.MAX_DIGITS", 100, "at most 100"),
    ],
)
def test_limits_say_the_figure(tmp_path, monkeypatch, target, value, message):
    path = hidden_row(tmp_path)
    # entries of some hundred digits: nothing short enough for the quick part, and long enough to be written as a string
    monkeypatch.setattr("utfproof.exact.lifting.SHORT_BITS", 60)
    monkeypatch.setattr("utfproof.certificates.format.LONG_BITS", 64)
    assert not certify_weights(path).universal
    monkeypatch.setattr(target, value)
    with pytest.raises(ResourceLimit, match=message):
        certify_weights(path)


def test_memory_is_estimated_first(tmp_path):
    tensors = host(MIDDLE)
    tensors["R_V"][0, 1] = 0
    path = save(tmp_path, tensors)
    size = path.stat().st_size
    with pytest.raises(ResourceLimit, match="needs about"):
        certify_weights(path, max_memory=4 * size + 1000)


# --- the parts -----------------------------------------------------------------------------------------------------


@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    rank=st.integers(0, 9),
    bits=st.sampled_from([1, 2, 20, 200]),
    short=st.sampled_from([60, 2000]),
    seed=st.integers(0, 2**32),
)
def test_relations_are_exact(rows, columns, rank, bits, short, seed):
    import random

    rng = random.Random(seed)

    def draw(r, c):
        return np.array([rng.randint(-(2**bits), 2**bits) for _ in range(r * c)], dtype=object).reshape(r, c)

    matrix = draw(rows, columns) if rank > min(rows, columns) else draw(rows, rank) @ draw(rank, columns)
    if rank == 0:
        matrix = np.zeros((rows, columns), dtype=object) + 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifting, "SHORT_BITS", short)
        z = lifting.relation(flint_matrix(matrix), "a test", 2097097)
    expected = rational.kernel_vector(matrix)
    assert (z is None) == (expected is None)
    if z is not None:
        assert any(z)
        assert not (matrix @ np.array(z, dtype=object)).any()
        assert np.gcd.reduce(np.array(z, dtype=object)) == 1


def test_an_unlucky_prime_finds_nothing_false():
    p = 2097097
    assert lifting.relation(flint_matrix(np.array([[p, 0], [0, 1]], dtype=object)), "a test", p) is None
    assert lifting.relation(flint_matrix(np.array([[1, 1], [1, 1 + p]], dtype=object)), "a test", p) is None


def test_equal_columns_of_index_maps():
    """Columns e_0, e_1, e_0 + e_1 of a {0,1} matrix: no two are equal, none is zero."""
    rows, columns = np.array([0, 1, 0, 1, 2]), np.array([0, 1, 2, 2, 3])
    assert equal_columns(SelectionMatrix(uniform(4, 1), uniform(4, 1), rows, columns)) is None
    rows = np.array([0, 1, 0, 0, 1])
    columns = np.array([0, 1, 2, 3, 3])
    assert equal_columns(SelectionMatrix(uniform(4, 1), uniform(4, 1), rows, columns)) == {0: 1, 2: -1}
    assert equal_columns(SelectionMatrix(uniform(4, 1), uniform(3, 1), rows[:2], columns[:2])) == {2: 1}


def test_circuits_are_minimal_and_the_cheapest_first():
    p, rng = 2097143, np.random.default_rng(0)
    matrix = rng.integers(-5, 6, size=(12, 9)).astype(np.float64)
    matrix[:, 8] = matrix[:, 0] + matrix[:, 3] - matrix[:, 5]
    matrix[:, 6] = 2 * matrix[:, 1]
    found = list(lifting.circuits(matrix, p, np.ones(9)))
    assert found == [[1, 6], [0, 3, 5, 8]]
    # a column that costs more is left for last
    heavy = np.ones(9)
    heavy[1] = 5
    assert next(lifting.circuits(matrix, p, heavy)) == [0, 3, 5, 8]
    assert not list(lifting.circuits(matrix[:, :6], p, np.ones(6)))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.sampled_from([np.float64, np.float32, np.float16]),
)
def test_dyadic_integers_are_exact(values, kind):
    with np.errstate(over="ignore"):
        array = np.array(values).astype(kind)[None]
    array[~np.isfinite(array)] = 0
    integers, exponent = dyadic_integers(array)
    for integer, value in zip(integers[0].tolist(), array[0].tolist(), strict=True):
        assert integer * Fraction(2) ** exponent == Fraction(value)


# --- planted faults ------------------------------------------------------------------------------------------------


def wrong_relation(columns, what, p):
    z = RELATION(columns, what, p)
    return None if z is None else [z[0] + 1, *z[1:]]


def wrong_column(shape, index):
    found = COLUMN(shape, index)
    return found._replace(kind={"Q": "K", "K": "Q"}.get(found.kind, found.kind))


RELATION, COLUMN = lifting.relation, kernel.column_at


@pytest.mark.parametrize(
    ("module", "name", "fault"), [(kernel, "column_at", wrong_column), (lifting, "relation", wrong_relation)]
)
def test_faults_in_the_search_are_caught(tmp_path, monkeypatch, module, name, fault):
    path = save(tmp_path, host(MIDDLE, inner=9))
    assert not certify_weights(path).universal
    monkeypatch.setattr(module, name, fault)
    try:
        certify_weights(path).write(tmp_path / "c.json")
    except Undecided:
        return
    assert checker.check_file(tmp_path / "c.json").code == 1


def test_faults_in_the_weights_are_caught_by_the_checker(tmp_path, monkeypatch):
    """Entries that are read wrongly by search and test alike."""
    read = StoredWeights.exact

    def misread(self, tensor, layer, head):
        matrix, unit = read(self, tensor, layer, head)
        if tensor == "R_Vo":
            matrix[0, 0] += 1
        return matrix, unit

    monkeypatch.setattr(StoredWeights, "exact", misread)
    certify_weights(save(tmp_path, host(MIDDLE, inner=9))).write(tmp_path / "c.json")
    assert checker.check_file(tmp_path / "c.json").code == 1
