"""Enclosures of one emulation: ball arithmetic against mpmath and float64, certificates against both checkers, planted faults,
and the checker's own interval functions."""

import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import naive
import numpy as np
import pytest
from corpus import canonical

from utfproof.attention import SoftmaxAttention, parse_kernel
from utfproof.certificates import checker
from utfproof.certificates.enclosures import enclosure_certificate, numbers
from utfproof.commands.enclose import decimal, named_host
from utfproof.constructions import build_host, random_target
from utfproof.emulation.compare import random_input
from utfproof.emulation.enclosure import enclose, exact_host
from utfproof.matching import embed, exact_target
from utfproof.shapes import Shape
from utfproof.util.arrays import exact
from utfproof.weights import write_embedding, write_host, write_target

pytestmark = pytest.mark.numerical

KERNELS = ("softmax", "scaled", "causal", "window:2", "alibi", "rope", "scaled+causal+window:2+alibi+rope")
HOSTS = {
    "sparse": (2, 2, 2, 2, 3),
    "sparse-front": (2, 1, 2, 3, 2),
    "tied": (3, 2, 2, 2, 2),
    "random": (2, 1, 2, 2, 1),
    "random-tied": (1, 2, 2, 1, 2),
    "shared-key": (2, 2, 2, 2, 2),
    "shared-query": (2, 1, 2, 2, 2),
}
LOGITS_ONLY = ("shared-key", "shared-query")


def case(name, dims=None, *, seed=1, n=3, width=None):
    """(host, target, exact E, X)."""
    shape = Shape(*(HOSTS[name] if dims is None else dims))
    host, target = build_host(name, shape), random_target(shape, seed, width=width)
    return host, target, embed(exact_host(host), exact_target(target)).E, random_input(shape, n, seed)


def stochastic(source, L, H, n):
    """Matrices with nonnegative rational rows that sum to 1."""
    out = np.empty((L, H, n, n), dtype=object)
    for place in np.ndindex(L, H, n):
        row = [source.randint(0, 3) for _ in range(n - 1)]
        out[place] = [Fraction(x, 3 * n) for x in [*row, 3 * n - sum(row)]]
    return out


def written(folder, found):
    path = folder / "enclosure.json"
    found.write(path)
    return path


def certify_enclosure(named, host, target, E, X, kernel, digits):
    return enclosure_certificate(named, host, target, E, X, kernel, enclose(host, target, E, X, kernel, digits))


def code_of(path):
    return checker.check_file(path).code


def changed(path, **claim):
    """The certificate at this path with other fields of the claim."""
    found = json.loads(path.read_bytes())
    found["claim"] |= claim
    other = path.with_name("changed.json")
    other.write_bytes(canonical(found))
    return other


# --- prover and both checkers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", HOSTS)
def test_exact_embeddings_are_within_any_number_of_digits(name, kernel, tmp_path):
    host, target, E, X = case(name)
    attention = parse_kernel(kernel, host.shape.heads, host.shape.head_dim)
    serves = name not in LOGITS_ONLY or attention.logits_only
    for digits in (30, 100):
        found = enclose(host, target, E, X, attention, digits)
        assert found.verdict == ("within" if serves else "apart")
        assert found.units[1] == 1 or not serves
    certificate = certify_enclosure(
        named_host(name, host, {"seed": 0, "law": "uniform", "dtype": "float64"}, None),
        host,
        target,
        E,
        X,
        attention,
        digits,
    )
    assert not certificate.universal
    assert code_of(written(tmp_path, certificate)) == 0


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["sparse", "random", "shared-key"])
def test_float64_embeddings_are_apart_by_what_mpmath_says(name, kernel, tmp_path):
    host, target, E, X = case(name)
    E = embed(host, target).E if name == "random" else np.asarray(E, dtype=np.float64)
    attention = parse_kernel(kernel, host.shape.heads, host.shape.head_dim)
    found = enclose(host, target, E, X, attention, 40)
    assert found.verdict == "apart"
    assert found.units[1] - found.units[0] <= 2
    with mpmath.workdps(80):
        reference = in_mpmath(exact_host(host), exact_target(target), exact(E), exact(X), kernel)
        assert found.lower <= fraction(reference) <= found.upper
    if attention.logits_only or name not in LOGITS_ONLY:
        assert found.upper < Fraction(1, 10**10)
    floats = np.abs(host.forward(X, E, attention) - target.forward(X, attention)).max()
    assert abs(floats - float(found.upper)) < 1e-9
    certificate = certify_enclosure(
        named_host(name, host, {"seed": 0, "law": "uniform", "dtype": "float64"}, None),
        host,
        target,
        E,
        X,
        attention,
        40,
    )
    path = written(tmp_path, certificate)
    assert code_of(path) == 0
    low, high = found.units
    for wrong in ([low - 9, low - 1], [high + 1, high + 9], [10 * low, 10 * high]):
        other = changed(path, difference=[written_number(x) for x in wrong])
        assert code_of(other) == 1, wrong
    assert code_of(changed(path, difference=[0, 1], verdict="within")) == 1
    assert code_of(changed(path, difference=[written_number(x) for x in (low - 9, high + 9)])) == 0


def fraction(value):
    """The number that an mpf is."""
    return Fraction(*mpmath.libmp.to_rational(value._mpf_))


def written_number(n):
    return n if abs(n) <= 2**53 - 1 else str(n)


def in_mpmath(host, target, E, X, kernel):
    """max |UTF - T| in mpmath's floats, everything written out."""
    H, L, d = host.shape.heads, host.shape.layers, host.shape.head_dim
    parts = dict(part.partition(":")[::2] for part in kernel.split("+"))
    n = len(X)

    def number(x):
        return mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator

    def lifted(matrix):
        return mpmath.matrix([[number(x) for x in row] for row in naive.dense(matrix).tolist()])

    def turned(x):
        x = x.copy()
        for i in range(n):
            for t in range(d // 2):
                z = mpmath.mpc(x[i, 2 * t], x[i, 2 * t + 1]) * mpmath.expj(
                    i * mpmath.mpf(10000) ** (-mpmath.mpf(2 * t) / d)
                )
                x[i, 2 * t], x[i, 2 * t + 1] = z.real, z.imag
        return x

    def attention(q, k, h):
        if "rope" in parts:
            q, k = turned(q), turned(k)
        s = q * k.T
        A = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                away = abs(i - j)
                s[i, j] = s[i, j] / mpmath.sqrt(d if "scaled" in parts else 1)
                s[i, j] -= away * mpmath.mpf(2) ** (-mpmath.mpf(8 * (h + 1)) / H) * ("alibi" in parts)
                hidden = ("causal" in parts and j > i) or ("window" in parts and away >= int(parts["window"]))
                A[i, j] = 0 if hidden else mpmath.exp(s[i, j])
            total = mpmath.fsum(A[i, j] for j in range(n))
            for j in range(n):
                A[i, j] /= total
        return A

    def run(x, maps):
        for layer in range(L):
            total = mpmath.matrix(n, x.cols)
            for h in range(H):
                q, k, v = maps(layer, h)
                total += attention(x * q, x * k, h) * x * v
            x = total
        return x

    def host_maps(layer, h):
        q, k, value = host.maps(layer, h)
        return lifted(q), lifted(k), lifted(value[0])

    def target_maps(layer, h):
        q, k, v, o = map(lifted, target.parameters(layer, h))
        return q, k, v * o

    x = lifted(X)
    ours = run(x * lifted(E), host_maps) * lifted(host.U)
    theirs = run(x * lifted(target.embedding()), target_maps) * lifted(target.unembedding())
    return max(abs(z) for z in ours - theirs)


# --- planted faults ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A certificate that holds, and what it is made of."""
    host, target, E, X = case("tied", (2, 2, 2, 2), n=4)
    kernel = parse_kernel("scaled+causal+alibi", 2, 2)
    folder = tmp_path_factory.mktemp("good")
    found = certify_enclosure({"construction": "tied"}, host, target, E, X, kernel, 30)
    path = written(folder, found)
    assert code_of(path) == 0
    return SimpleNamespace(host=host, target=target, E=E, X=X, kernel=kernel, path=path)


@pytest.mark.parametrize("part", [10**12, 10**20])
def test_an_entry_of_E_that_is_off_is_seen(good, part, tmp_path):
    """At most entries of E; a few digits are lost on the way through keys."""
    seen = 0
    for place in np.ndindex(good.E.shape):
        E = good.E.copy()
        E[place] *= 1 + Fraction(1, part)
        found = enclose(good.host, good.target, E, good.X, good.kernel, 30)
        if found.verdict == "within":
            continue
        seen += 1
        assert Fraction(1, 10**9) / part < found.lower <= found.upper < Fraction(10) / part
        if seen in (1, 20):
            certificate = certify_enclosure(
                {"construction": "tied"}, good.host, good.target, E, good.X, good.kernel, 30
            )
            assert code_of(written(tmp_path, certificate)) == 0  # apart
            document = json.loads(good.path.read_bytes())
            document["evidence"]["E"] = numbers(E)
            (tmp_path / "off.json").write_bytes(canonical(document))
            assert code_of(tmp_path / "off.json") == 1
    assert seen >= good.E.size // 2


@pytest.mark.parametrize(
    "other", ["scaled+causal", "scaled+alibi", "causal+alibi", "softmax", "scaled+causal+window:1"]
)
def test_a_wrong_mask_scale_or_bias_is_seen(good, other, tmp_path):
    """A target run with another kernel than the host: every part of the kernel makes a difference."""
    E = good.E.copy()
    E[:, : 4 * (2 + 4)] *= 1 + Fraction(1, 10**6)  # the queries and keys of the trie
    certificate = certify_enclosure({"construction": "tied"}, good.host, good.target, E, good.X, good.kernel, 40)
    path = written(tmp_path, certificate)
    assert code_of(path) == 0
    assert code_of(changed(path, attention=other)) == 1


def test_a_flipped_entry_of_the_host_is_seen(good, tmp_path):
    flipped = exact_host(build_host("random", Shape(2, 1, 1, 2), 8, seed=5))
    target = random_target(flipped.shape, 1)
    E, X = embed(flipped, exact_target(target)).E, random_input(flipped.shape, 3, 0)
    kernel = SoftmaxAttention()
    assert enclose(flipped, target, E, X, kernel, 30).verdict == "within"
    named = {"construction": "random", "dtype": "float64", "law": "uniform", "seed": 5}
    path = written(tmp_path, certify_enclosure(named, flipped, target, E, X, kernel, 30))
    assert code_of(path) == 0
    R_V = flipped.R_V.copy()
    R_V[0, 1, 3, 2] = -R_V[0, 1, 3, 2]
    assert enclose(replace(flipped, R_V=R_V), target, E, X, kernel, 30).verdict == "apart"
    assert code_of(changed(path, host=named | {"seed": 6})) == 1
    # a prover whose host is not the one it names
    E = embed(replace(flipped, R_V=R_V), exact_target(target)).E
    certificate = certify_enclosure(named, replace(flipped, R_V=R_V), target, E, X, kernel, 30)
    assert code_of(written(tmp_path, certificate)) == 1


def test_an_enclosure_that_is_too_narrow_is_rejected(good, tmp_path):
    """A prover that halves its upper bound, or computes with 20 bits."""
    E = np.asarray(good.E, dtype=np.float64)
    found = enclose(good.host, good.target, E, good.X, good.kernel, 40)
    narrow = replace(found, lower=found.lower / 2, upper=found.lower * 3 / 4)
    certificate = enclosure_certificate(
        {"construction": "tied"}, good.host, good.target, E, good.X, good.kernel, narrow
    )
    assert code_of(written(tmp_path, certificate)) == 1


# --- weights from a file, and the command's helper ---------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_weights_of_a_file(cli, tied, tmp_path):
    host = build_host("random-tied" if tied else "random", Shape(2, 1, 1, 2), 9, seed=7, dtype="float32")
    path = tmp_path / "host.safetensors"
    write_host(path, host)
    target = random_target(host.shape, 3)
    write_target(tmp_path / "t.safetensors", target)
    asked = ["enclose", path, "--target", "t.safetensors", "--attention", "causal", "--context", 3, "--json"]
    code, out, _ = cli(*asked, "-o", "c.json")
    assert (code, json.loads(out)["verdict"]) == (0, "within")
    assert code_of(tmp_path / "c.json") == 0
    write_embedding(tmp_path / "E.safetensors", embed(host, target).E)
    code, out, _ = cli(*asked, "--embedding", "E.safetensors", "-o", "d.json")
    assert (code, json.loads(out)["verdict"], json.loads(out)["embedding"]) == (1, "apart", "given")
    assert code_of(tmp_path / "d.json") == 0
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert code_of(tmp_path / "c.json") == 2  # no such weights any more


def test_decimals_are_written_to_the_last_digit():
    assert [decimal(*x) for x in ((0, 5), (1, 3), (1000, 3), (1234, 2), (50, 3))] == [
        "0",
        "0.001",
        "1",
        "12.34",
        "0.050",
    ]
    assert checker.scientific(1, 30, up=True) == "1e-30"
    assert checker.scientific(123456789012, 20, up=False) in ("1.2345e-9", "1.23456e-9", "1.234567e-9")
    for n in (*range(1, 200), 10**9 - 1, 99999, 10**50 + 1, 7**400):
        for digits in (1, 17, 300):
            low, high = (Fraction(checker.scientific(n, digits, up=up)) for up in (False, True))
            assert low <= Fraction(n, 10**digits) <= high <= low * (1 + Fraction(1, 1000))


def scaled(value, bits):
    """An mpf as the fraction value * 2^bits."""
    return fraction(value) * 2**bits
