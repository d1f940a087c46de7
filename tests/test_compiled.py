"""Compiled code of training beside torch's operations and products written out, with any number of threads; its faults."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from utfproof.ground import compiler  # noqa: E402
from utfproof.training import compiled, kernel  # noqa: E402

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="no g++")


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch, one_thread):
    """Blocks of 8, and tensors that are made empty hold NaN: what is never written shows, whatever memory held before."""
    monkeypatch.setattr(kernel, "_BLOCK", 8)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.ones(1).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / a.norm().clamp_min(1e-300))


SHAPES = [
    (3, 99, 2, 10, 10, None),
    (3, 50, 3, 7, 21, None),
    (2, 99, 1, 40, 40, 6),
    (2, 17, 4, 5, 9, 5),
    (2, 1, 1, 3, 3, None),
]
"""Sequences, keys, rows of a position, widths of keys and values, positions asked (in any order)."""


def both_ways(function, shape, shared: bool, dtype=torch.float64) -> list[torch.Tensor]:
    """Averages and gradients of an attention's autograd function."""
    N, n, repeat, e, f, k = shape
    generator = torch.Generator().manual_seed(0)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    look = None if k is None else torch.randint(0, n, (N, k), generator=generator)
    rows = (k or n) * repeat
    q, k, v = (draw(*size).requires_grad_() for size in ((N, rows, e), (N, n, e), (N, n, f)))
    values = k if shared else v
    found = function.apply(q, k, values, look, repeat)
    gradient = draw(*found.shape)
    return [found.detach(), *torch.autograd.grad(found, (q, k) if shared else (q, k, v), gradient)]


def largest_gap(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    gaps = [gap(a, b) if a.any() else float(b.abs().max()) for a, b in zip(first, second, strict=True)]
    return float(torch.tensor(gaps).max())  # NaN if one is, where Python's max is any


SHARED = [(shape, False) for shape in SHAPES] + [(shape, True) for shape in SHAPES if shape[3] == shape[4]]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-14), (torch.float32, 3e-6)])
@pytest.mark.parametrize(("shape", "shared"), SHARED)
def test_compiled_attention_is_that_of_torch_s_operations(shape, shared, dtype, bound):
    known = both_ways(kernel._function(), shape, shared)
    found = both_ways(compiled.compiled_attention(), shape, shared, dtype)
    assert largest_gap(known, [x.double() for x in found]) < bound
    torch.set_num_threads(3)
    assert all(map(torch.equal, found, both_ways(compiled.compiled_attention(), shape, shared, dtype)))


FAULTS = {
    "one key more": ("(look ? look[place] : place) + 1", "(look ? look[place] : place) + 2"),
    "positions in order": ("look ? look[place] : place", "place"),
    "another head's sum": ("unit[i] = units[place]", "unit[i] = units[b * rows]"),
    "softmax without its share": ("(at(slopes + i * keys + j) - lost[i])", "(at(slopes + i * keys + j))"),
    "values that are no keys": ("wide_e,\n                       shared);", "wide_e,\n                       false);"),
    "a row too late": ("while (most[row / ROWS] <= key) row += ROWS;", "row = key + ROWS;"),
    "what lies past a row": ("for (long j = whole<T>(part.most); j < keys", "for (long j = keys; j < keys"),
    "a short series": ("TERMS = 13", "TERMS = 5"),
    "a strip forgotten": ("C + row * wide + j, wide, k > 0", "C + row * wide + j, wide, false"),
    "the end of a row alone": ("sums + row * C * L, direct > 0", "sums + row * C * L, false"),
    "a row's end left out": ("direct < deep && row < padded", "false"),
    "averages of all but one": ("k < seen[b]", "k + 1 < seen[b]"),
    "states in order": ("x + index[b * n + k] * m + j", "x + index[b * n] * m + j"),
    "edges not averaged": ("for (; first < last; first++)", "for (; false; first++)"),
    "weights' edges": ("for (long j = whole_m; j < m; j++)", "for (long j = m; j < m; j++)"),
    "weights that nobody sees": ("std::fill(to + i * n + seen[b]", "std::fill(to + i * n + n"),
    "a state met once": ("typename K::V sum = to;", "typename K::V sum = {};"),
    "one row of four": ("by_rows(rows, [&]", "by_rows(1, [&]"),
}


def few_products(x: torch.Tensor, y: torch.Tensor) -> float:
    """The largest relative difference of products of few rows, either way."""
    found = [compiled.few_times(x, y), compiled.few_times(x, y.t().contiguous().t())]
    return float(torch.tensor([gap((x.double() @ y.double()), product.double()) for product in found]).max())


def few_factors(dtype=torch.float64) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    sizes = [
        (5, 228, 180),
        (10, 70, 99),
        (3, 1, 1),
        (20, 130, 257),
        (8, 64, 48),
        (17, 33, 1024),
        *((rows, 37, 50) for rows in range(1, 33)),
    ]
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    return [(draw(rows, a), draw(a, b)) for rows, a, b in sizes]


def averages_both_ways(sizes, dtype=torch.float64) -> list[list[torch.Tensor]]:
    """Averages and both gradients, by compiled code and written out; sizes: sequences, rows, n, states, m."""
    (B, rows, n, states, m), generator = sizes, torch.Generator().manual_seed(0)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    A, x, g = draw(B, rows, n), draw(states, m), draw(B, rows, m)
    index = torch.randint(0, states, (B, n), generator=generator)
    seen = torch.randint(1, n + 1, (B,), generator=generator)
    visible = torch.arange(n) < seen[:, None, None]
    A = A * visible
    found = [compiled.averages(A, x, index, seen), *compiled.averages_back(A, x, index, seen, g)]
    wide = [tensor.double().requires_grad_() for tensor in (A, x)]
    known = wide[0] @ wide[1][index]
    known.backward(g.double())
    return [found, [known.detach(), wide[0].grad * visible, wide[1].grad]]


AVERAGES = [(7, 4, 9, 5, 64), (5, 1, 6, 11, 37), (3, 6, 8, 4, 130), (2, 3, 1, 1, 16), (4, 9, 20, 30, 97)]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-14), (torch.float32, 1e-5)])
@pytest.mark.parametrize("sizes", AVERAGES)
def test_averages_of_shared_states(sizes, dtype, bound):
    found, known = averages_both_ways(sizes, dtype)
    assert largest_gap(known, [x.double() for x in found]) < bound
    torch.set_num_threads(3)
    assert all(map(torch.equal, found, averages_both_ways(sizes, dtype)[0]))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-14), (torch.float32, 1e-5)])
def test_few_rows_times_a_large_matrix(dtype, bound):
    for x, y in few_factors(dtype):
        assert few_products(x, y) < bound
        found = compiled.few_times(x, y)
        torch.set_num_threads(3)
        assert torch.equal(found, compiled.few_times(x, y))
        torch.set_num_threads(1)


BEHIND = """
import ctypes, mmap, sys, torch
from utfproof.training import compiled
rows, inner, width = map(int, sys.argv[1:])
libc = ctypes.CDLL(None)
held = []
def placed(count):  # the last number stands before a page that may not be read
    size = -(-4 * count // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    held.append(pages)
    return torch.frombuffer(pages, dtype=torch.float32, count=count, offset=size - 4 * count)
x, y = placed(rows * inner).view(rows, inner), placed(inner * width).view(inner, width)
x.fill_(1), y.fill_(1)
for found in (compiled.few_times(x, y), ):
    assert torch.equal(found, torch.full((rows, width), float(inner)))
print("right", flush=True)
import os; os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded as Linux does it")
@pytest.mark.parametrize("shape", [(3, 16385, 4), (4, 8200, 7), (3, 33, 1000), (2, 65537, 15)])
def test_nothing_behind_a_matrix_is_read(shape):
    arguments = [sys.executable, "-c", BEHIND, *map(str, shape)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_compiled_code_is_seen(fault, monkeypatch, tmp_path):
    text, (good, bad) = compiled.SOURCE.read_text(), FAULTS[fault]
    assert good in text
    (tmp_path / "compiled.cpp").write_text(text.replace(good, bad))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "SOURCE", tmp_path / "compiled.cpp")
    monkeypatch.setattr(compiler, "_OPTIONS", ("-O1", *compiler._OPTIONS[1:]))
    function = compiled.compiled_attention()
    gaps = (largest_gap(both_ways(kernel._function(), *which), both_ways(function, *which)) for which in SHARED)
    products = (few_products(x, y) for x, y in few_factors())
    averages = (largest_gap(*reversed(averages_both_ways(sizes))) for sizes in AVERAGES)
    assert any(not wrong <= 1e-9 for wrong in (*products, *gaps, *averages))
