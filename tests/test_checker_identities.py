"""The checker's kinds linear-test, identity and lower-bound: its index maps against the definitions, its word algebra
against matrices, the bounds against exact ranks, what its messages say, sizes, and faults planted in the checker."""

import itertools
import math
import random
import time
from array import array
from fractions import Fraction
from types import SimpleNamespace

import make_corpus as corpus
import naive
import numpy as np
import pytest
import sceptic
from hypothesis import given
from hypothesis import strategies as st
from judges import OPTIONS, verdict_on
from make_corpus import ATTENTION, CORPUS, SCALAR
from sceptic import INVERTIBLE, RULES
from test_decide import save

from utfproof import weights
from utfproof.certificates import checker

NEW = ("linear-", "identity-", "bound-", "span-", "null-vector-", "tied-", "weights-")
DIMS = [(1, 1, 1, 1), (2, 1, 2, 1), (2, 2, 2, 2), (3, 2, 2, 2), (1, 4, 2, 2), (2, 4, 1, 1), (3, 2, 2, 1), (2, 3, 3, 1)]


def defined(name, dims):
    _, L, d, b = dims
    return not ((name in ATTENTION and d < b) or (name in SCALAR and b > 1) or (name == "two-sided" and L % 2))


# --- hosts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_the_checker_follows_coordinates_as_defined(name):
    """Where R_w takes each column of a reader, by the checker's block maps and by column-wise products."""
    compared = 0
    for dims in [dims for dims in DIMS if defined(name, dims)]:
        H, L, d, b = dims
        Q, K, V, U = sceptic.identity_host(name, H, L, d, b)
        least = sceptic.identity_least(name, H, L, d, b)
        shape = checker.Shape(H, L, d, b, b, least)
        host = checker.IDENTITIES[name][0](shape)
        assert host.least(shape) == least
        values = {(layer, h): V(layer, h) for layer in range(1, L + 1) for h in range(H)}
        readers = []  # (depth, runs of the checker, {column: [rows]} of the definition)
        for layer in range(1, L + 1):
            for h in range(H if Q is not None else 0):
                for part, reader in enumerate((Q, K)):
                    readers.append((layer - 1, host.reads(part, layer, h), reader(layer, h)))
        if U is None:
            blocks = [((n, 0), 0, b) for n in range(H ** (L // 2))]
            readers += [(L, [run], {j: [host.first(run[0]) + j] for j in range(b)}) for run in blocks]
        else:
            readers.append((L, host.outputs(), U))
        for depth, (run,), reader in readers:
            found = {}
            for word in naive.words(H, depth):
                alone = [[int(h == letter) for h in range(H)] for letter in word]
                for (block, offset, width), times in checker.weighted_words(host, {run: 1}, alone, 2).items():
                    if times == 0:  # another word's
                        continue
                    assert times == 1
                    assert word not in found
                    found[word] = [host.first(block) + offset + j for j in range(width)]
            for word in naive.words(H, depth):
                expected = [sceptic.routed(values, word, dict.fromkeys(reader.get(j, ()), 1)) for j in range(run[2])]
                assert [{row: 1} for row in found.get(word, [])] == [column for column in expected if column]
                compared += 1
    assert compared > 20


@pytest.mark.parametrize(("length", "total"), [(0, 3), (1, 4), (2, 5), (3, 3), (4, 2)])
def test_numbers_of_tuples(length, total):
    listed = [c for c in itertools.product(range(total + 1), repeat=length) if sum(c) <= total]
    assert [checker.tuple_number(c, total) for c in listed] == list(range(math.comb(total + length, length)))


# --- words at a random point -------------------------------------------------------------------------------------------

letters = st.tuples(st.sampled_from("MMMA"), st.just(1), st.integers(0, 1), st.booleans(), st.booleans())


@given(st.lists(letters, max_size=7), st.integers(1, 3))
def test_words_are_products_of_the_matrices_drawn(word, size):
    from flint import nmod_mat

    p = sceptic.LARGE
    point = checker.WordPoint(
        checker.Claim(checker.KINDS["identity"], checker.Shape(2, 1, size, size, size, 99), "shared-query"), p
    )

    def product():
        out = nmod_mat(size, size, [int(i == j) for i in range(size) for j in range(size)], p)
        for kind, layer, head, turned, inverse in word:
            matrix = nmod_mat(size, size, [x for row in point.matrix(kind, layer, head) for x in row], p)
            matrix = matrix.inv() if inverse else matrix
            out = out * (matrix.transpose() if turned else matrix)
        return out

    dense = [[int(x) for x in row] for row in product().table()]
    for i in range(size):
        unit = [int(i == j) for j in range(size)]
        assert point.row(unit, tuple(word)) == dense[i]
        assert point.column(tuple(word), unit) == [row[i] for row in dense]


def test_weights_tell_all_words_apart():
    """x times the sum of M_w with weights, against the sum over all words."""
    p = sceptic.LARGE
    shape = checker.Shape(2, 3, 2, 2, 2, 99)
    for targets in ("all untied", "all tied"):
        point = checker.WordPoint(checker.Claim(checker.KINDS["identity"], shape, "register", targets=targets), p)
        weights = [[3, 5], [7, 11], [13, 17]]
        total = [0, 0]
        for word in naive.words(2, 3):
            scale = math.prod(weights[layer][h] for layer, h in enumerate(word))
            letters = tuple(
                ("M", 0 if targets == "all tied" else layer, h, False, False) for layer, h in enumerate(word, 1)
            )
            total = [(a + scale * b) % p for a, b in zip(total, point.row([1, 2], letters), strict=True)]
        assert point.weighted([1, 2], weights) == total


def test_primes_are_random_and_large():
    from flint import fmpz

    found = {checker.random_prime() for _ in range(3)}
    assert len(found) == 3
    assert all(q.bit_length() == 192 and fmpz(q).is_prime() for q in found)


# --- linear test -----------------------------------------------------------------------------------------------------


def test_the_linear_test_drops_the_right_columns():
    """The columns that the checker keeps, up to their order, are those of the definition."""
    for tied in (False, True):
        name, dims, m, p = "random-tied" if tied else "random", (2, 2, 3, 2, 2), 5, 10007
        drawn = (tied, "float64", "uniform", 9, *dims, m)
        matrix = sceptic.random_integers(*drawn)[0] % p
        queries = 3 * 6
        kept = [c for c in range(matrix.shape[1]) if c >= queries or c % 3 < 2]
        claim = checker.Claim(
            checker.KINDS["linear-test"], checker.Shape(*dims, m), name, "float64", "uniform", 9, tied=tied
        )
        rows = checker.dense_matrix(checker.dense_host(claim), p, claim.shape.d_in)
        assert claim.kind.columns(claim) == len(kept) == len(rows[0])
        assert sorted(zip(*rows, strict=True)) == sorted(tuple(map(int, column)) for column in matrix[:, kept].T)


@pytest.mark.parametrize("looped", [False, True])
def test_linear_test_of_weights(looped, tmp_path):
    """40 dimensions of M = 44; with one key reader repeated the test fails."""
    source = np.random.default_rng(1)
    lead = (2,) if looped else (2, 2)
    sizes = {"R_Q": (*lead, 40, 3), "R_K": (*lead, 40, 3), "R_V": (*lead, 40, 40), "U": (40, 2)}
    tensors = {name: source.integers(-9, 10, size).astype(np.int8) for name, size in sizes.items()}
    document = corpus.linear("random", (2, 2, 3, 2, 2), 40)
    for code in (0, 1):
        path = save(tmp_path / f"{code}.safetensors", tensors, "int8")
        system = "looped-universal" if looped else "universal"
        document["claim"]["host"] = {"system": system, "weights": weights.read_tensors(path).digest()}
        verdict = verdict_on(document, tmp_path)
        assert verdict.code == code, verdict
        assert "attention-matching" in (verdict.message if code == 0 else "attention-matching")
        tensors["R_K"][..., 0] = tensors["R_K"][..., 1]


# --- bounds ----------------------------------------------------------------------------------------------------------


def rank_of(rows):
    from flint import fmpz_mat

    return fmpz_mat(rows).rank()


@pytest.mark.parametrize(
    ("dims", "rank"),
    [((2, 2, 2, 2), 32), ((2, 2, 2, 3), 36), ((1, 3, 3, 3), 21), ((2, 3, 3, 3), 108), ((2, 3, 1, 1), 28), ((2, 2, 1, 1), 15),
     ((2, 3, 1, 3), 52)],
)  # fmt: skip
def test_what_tied_targets_span(dims, rank, tmp_path):
    """M where d_in >= L and d >= L, as the table of section 10.1 has it (and elsewhere, too), less where d_in = 1. As
    the definitions say (plain integers), and as the checker says (at m = rank - 1 and rank)."""
    H, L, d, d_in = dims
    M = sceptic.dimension(H, L, d, d_in, d_in)
    covered = min(d, d_in) >= L
    assert rank == M or not covered
    given_targets = corpus.drawn_targets(2 * M // d_in + 2, True, *dims, 4)
    rows = []
    for entries in given_targets if M < 60 else []:
        sizes = {"W_Q": (d_in, d), "W_K": (d_in, d), "W_V": (d_in, d), "W_O": (d, d_in)}
        table = {(tensor, h): np.zeros(size, dtype=object) for tensor, size in sizes.items() for h in range(H)}
        for tensor, _, h, i, j, v in entries:
            table[tensor, h][i, j] = v

        def parameters(layer, h, table=table):
            return [table[tensor, h] for tensor in ("W_Q", "W_K", "W_V", "W_O")]

        products = {(): np.array([[int(i == j) for j in range(d_in)] for i in range(d_in)], dtype=object)}
        for w in sceptic.by_length(H, 1, L):
            _, _, value, out = parameters(0, w[-1])
            products[w] = products[w[:-1]] @ value @ out
        blocks = [products[w[:-1]] @ parameters(0, w[-1])[part] for part in (0, 1) for w in sceptic.by_length(H, 1, L)]
        rows += np.concatenate([*blocks, *(products[w] for w in naive.words(H, L))], axis=1).tolist()
    if rows:
        assert rank_of([[int(x) for x in row] for row in rows]) == rank
    for m, code in ((rank - 1, 0), (rank, 1)):
        assert verdict_on(corpus.span(dims, m, given_targets), tmp_path).code == code
    if covered:
        assert verdict_on(corpus.span(dims, M - 1, corpus.isolating(*dims, True)), tmp_path).code == 0
        assert verdict_on(corpus.bound("matching", (*dims, d_in), M - 1, targets="all tied"), tmp_path).code == 0
    else:
        assert verdict_on(corpus.bound("matching", (*dims, d_in), 1, targets="all tied"), tmp_path).code == 2


@pytest.mark.parametrize(("H", "L"), [(1, 3), (2, 2), (2, 5), (3, 3)])
def test_bounds_on_shared_attention_are_ranks(H, L, tmp_path):
    """The outputs of targets of width 1 span H^L or (tied) C(L+H-1, H-1) dimensions; a host that reaches it exists."""
    source = random.Random(1)
    for tied, name, count in ((False, "register", H**L), (True, "counting", math.comb(L + H - 1, H - 1))):
        rows = []
        for _ in range(count + 3):
            x = {(layer, h): source.randint(1, 50) for layer in range(L) for h in range(H)}
            rows.append([math.prod(x[0 if tied else t, h] for t, h in enumerate(w)) for w in naive.words(H, L)])
        assert rank_of(rows) == count
        targets = "all tied" if tied else "all untied"
        dims = (H, L, 1, 1, 1)
        if count > 1:
            below = corpus.bound("shared attention", dims, count - 1, targets=targets, free="E")
            assert verdict_on(below, tmp_path).code == 0
        at = corpus.bound("shared attention", dims, count, targets=targets, free="E")
        assert verdict_on(at, tmp_path).code == 1
        assert verdict_on(corpus.identity(name, (H, L, 1, 1), count), tmp_path).code == 0


def test_the_looped_lower_bound_as_stated_is_refuted(tmp_path):
    """m^2 >= H^L fails for tied targets at H = 2, L = 6: `counting` serves them all with m = 7, and 7^2 < 2^6. With untied
    targets 7 do not suffice, whatever is free."""
    assert verdict_on(corpus.identity("counting", (2, 6, 1, 1), 7), tmp_path).code == 0
    dims = (2, 6, 1, 1, 1)
    for every in ("host", "tied host"):
        found = corpus.bound("shared attention", dims, 7, free="E and U", every=every)
        assert verdict_on(found, tmp_path).code == 0
    assert verdict_on(corpus.bound("shared attention", dims, 7, targets="all tied", free="E and U"), tmp_path).code == 1
    assert verdict_on(corpus.identity("two-sided", (2, 6, 1, 1), 8), tmp_path).code == 0


def test_rows_of_targets_are_those_of_the_definition():
    source = random.Random(3)
    for tied in (False, True):
        for dims in [(2, 3, 2, 2), (1, 2, 3, 2), (3, 2, 1, 1)]:
            H, L, d, d_in = dims
            (entries,) = corpus.drawn_targets(1, tied, *dims, source.randrange(100))
            sizes = {"W_Q": (d_in, d), "W_K": (d_in, d), "W_V": (d_in, d), "W_O": (d, d_in)}
            shape = SimpleNamespace(heads=H, layers=L)
            table = {key: np.zeros((L, H, *size), dtype=object) for key, size in sizes.items()}
            for tensor, layer, h, i, j, v in entries:
                for at in range(L) if tied else [layer - 1]:
                    table[tensor][at, h, i, j] = v
            products = {(): np.array([[int(i == j) for j in range(d_in)] for i in range(d_in)], dtype=object)}
            for w in sceptic.by_length(H, 1, L):
                at = (len(w) - 1, w[-1])
                products[w] = products[w[:-1]] @ table["W_V"][at] @ table["W_O"][at]
            blocks = [
                products[w[:-1]] @ table[t][len(w) - 1, w[-1]]
                for t in ("W_Q", "W_K")
                for w in sceptic.by_length(H, 1, L)
            ]
            blocks += [products[w] for w in naive.words(H, L)]
            expected = np.concatenate(blocks, axis=1) % 10007
            claim = checker.Claim(
                checker.KINDS["lower-bound"],
                checker.Shape(H, L, d, d_in, d_in, 1),
                "every host",
                targets="all tied" if tied else "all untied",
            )
            claim.read["prime"] = 10007
            target = checker.sparse_target(entries, "target", claim)
            assert shape.layers == L
            for i in range(d_in):
                assert checker.target_row(claim.shape, target, tied, i, 10007).tolist() == expected[i].tolist()


@pytest.mark.parametrize("p", [3, 101, 2**31 - 1])
def test_ranks_that_are_not_full(p):
    from flint import nmod_mat

    source = np.random.default_rng(p)
    for rows, columns, inner in [(5, 9, 3), (70, 65, 64), (130, 20, 20), (100, 90, 66), (65, 80, 65), (3, 3, 0)]:
        matrix = source.integers(0, p, (rows, inner)).astype(object) @ source.integers(0, p, (inner, columns)) % p
        matrix = matrix.reshape(rows, columns)
        rank = nmod_mat(rows, columns, [int(x) for x in matrix.reshape(-1)], p).rank()
        for wanted in {0, 1, rank - 1, rank, rank + 1, min(rows, columns)} - {-1}:
            held = [array(checker.U32, [int(x) for x in row]) for row in matrix]
            assert checker.rank_reaches(held, p, wanted) == (rank >= wanted), (rows, columns, wanted)


# --- what is said ----------------------------------------------------------------------------------------------------

SAID = {
    "identity-counting-below-the-looped-bound": (
        "universal by shared attention (targets: all tied; E free): counting at H=2, L=6, d=1, d_in=1, d_out=1, m=7"
    ),
    "identity-shared-key-h2-l2-d2-in2": (
        "universal by attention-matching (targets: all untied): shared-key at H=2, L=2, d=2, d_in=2, d_out=2, m=26"
    ),
    "identity-shared-query-h2-l2-d2-in2": (
        "universal by attention-matching (targets: untied with invertible M^(l,0)): "
        "shared-query at H=2, L=2, d=2, d_in=2, d_out=2, m=20"
    ),
    "identity-two-sided-h2-l2-d2-in2": (
        "universal by shared attention (targets: all untied; E and U free): two-sided at H=2, L=2, d=2, d_in=2, d_out=2, m=4"
    ),
    "bound-shared-untied-E-and-U-host": (
        "not universal by shared attention (targets: all untied; E and U free): "
        "every host with m <= 7 at H=2, L=6, d=1, d_in=1, d_out=1"
    ),
    "bound-functional-low-rank-tied-host": (
        "not universal in the functional sense (targets: all untied): "
        "every tied host with m <= 11 at H=2, L=1, d=2, d_in=3, d_out=3"
    ),
    "tied-kernel-h2-l3-d1": (
        "universal by matching (targets: all tied): looped-universal weights {} at H=2, L=3, d=1, d_in=1, d_out=1, m=28"
    ),
    "tied-target-printed-looped-h2-l3-d1-in1-out1": (
        "not universal by matching (targets: all tied): printed-looped at H=2, L=3, d=1, d_in=1, d_out=1, m=30"
    ),
    "span-tied-commuting-targets": (
        "not universal by matching (targets: all tied): every tied host with m <= 27 at H=2, L=3, d=1, d_in=1, d_out=1"
    ),
    "null-vector-looped-commutator": (
        "not universal by shared attention (targets: all untied; E and U free): "
        "the given looped-shared-attention-universal host at H=2, L=2, d=1, d_in=1, d_out=1, m=2"
    ),
    "linear-random-h2-l2-d3-in2-out2-m38": (
        "universal by attention-matching (targets: all untied): "
        "random (uniform, float64, seed 3) at H=2, L=2, d=3, d_in=2, d_out=2, m=38"
    ),
    "modular-random-h1-l1-d1-in1-out1": (
        "universal by matching: random (uniform, float64, seed 7) at H=1, L=1, d=1, d_in=1, d_out=1, m=3"
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_verdicts_name_the_notion_the_targets_and_what_is_free(case):
    path = CORPUS / "valid" / f"{case}.json"
    verdict = checker.check_file(path, OPTIONS)
    digest = sceptic.parsed(path.read_bytes())["claim"]["host"].get("weights", "")[:16]
    assert (verdict.code, verdict.message) == (0, SAID[case].format(digest))


@pytest.mark.full
def test_facts_name_them_too():
    for path in (CORPUS / "valid").glob("*.json"):
        facts = checker.check_file(path, OPTIONS).facts
        claim = sceptic.parsed(path.read_bytes())["claim"]
        assert {key: facts.get(key) for key in ("notion", "targets", "free", "verdict")} == {
            key: claim.get(key) for key in ("notion", "targets", "free", "verdict")
        }


# --- sizes -----------------------------------------------------------------------------------------------------------


LARGE = [
    *((name, dims) for name in ATTENTION for dims in [(2, 4, 30, 30), (4, 2, 24, 4)]),
    *(pytest.param(name, (2, 10, 8, 8), marks=pytest.mark.full) for name in ATTENTION),
    *(("register", (2, 12, 2, 2)), ("two-sided", (2, 12, 2, 2))),
    *(("counting", (2, 30, 1, 1)), ("counting", (5, 8, 1, 1)), ("commuting-trie", (3, 8, 2, 1))),
]


@pytest.mark.parametrize(("name", "dims"), LARGE)
def test_large_identities_are_checked_in_no_time(name, dims, tmp_path):
    """The shapes of the paper and beyond; and one wrong letter in the last block is found."""
    found = corpus.identity(name, dims)
    start = time.process_time()
    verdict = verdict_on(found, tmp_path)
    assert verdict.code == 0, verdict
    assert time.process_time() - start < 5
    word = found["evidence"]["E"][-1][1]
    word[-1] = word[-1].replace(".1", ".0") if ".1" in word[-1] else word[-1][:-1] + "0"
    assert verdict_on(found, tmp_path).code == 1


# --- faults planted in the checker --------------------------------------------------------------------------------------


def new_files():
    return [
        (path, code)
        for code, folder in enumerate(("valid", "invalid"))
        for path in sorted((CORPUS / folder).glob("*.json"))
        if path.name.startswith(NEW)
    ]


def commuting(self, x, word, row=checker.WordPoint.row):
    return row(self, x, tuple(sorted(word)))


def layerless(self, name, layer, head, matrix=checker.WordPoint.matrix):
    return matrix(self, name, min(layer, 1), head)


def upright(self, x, letter, times=checker.WordPoint.times):
    return times(self, x, (*letter[:3], False, letter[4]))


def uninverted(self, x, letter, times=checker.WordPoint.times):
    return times(self, x, (*letter[:4], False))


def words_added_up(host, runs, weights, q, weighted_words=checker.weighted_words):
    return weighted_words(host, runs, [[1] * len(numbers) for numbers in weights], q)


def unweighted(self, x, weights, weighted=checker.WordPoint.weighted):
    return weighted(self, x, [[1] * len(numbers) for numbers in weights])


def halves_exchanged(self, layer, head, block, move=checker.TwoSided.move):
    return move(self, self.L + 1 - layer, head, block)


def count_too_many(self, layer, head, block):
    return (checker.raised(block, max(head, 1) - 1), 0, 1) if sum(block) < self.L else None


def off_by_one(claim, bound=checker.dimension_bound):
    have, needed, names = bound(claim)
    return have - 1, needed, names


def queries_for_keys(shape, entries, by_layer=checker.by_layer):
    layers = by_layer(shape, entries)
    return {layer: [(0 if part == 1 else part, *rest) for part, *rest in found] for layer, found in layers.items()}


def of_targets(wrong, layered=checker.layered):
    """Products with the targets' matrices are wrong, those with the host's as they are."""
    return lambda *at: (wrong if isinstance(at[2], checker.TargetVectors) else layered)(*at)


class AnyFile(dict):
    """Every digest names the file."""

    def __contains__(self, key):
        return True

    def get(self, key):
        return next(iter(self.values()))

    __getitem__ = get


FAULTS = {
    "words compared as multisets": (checker.WordPoint, "row", commuting),
    "layers of letters ignored": (checker.WordPoint, "matrix", layerless),
    "letters not transposed": (checker.WordPoint, "times", upright),
    "letters not inverted": (checker.WordPoint, "times", uninverted),
    "words of the host added up": (checker, "weighted_words", words_added_up),
    "words of the target added up": (checker.WordPoint, "weighted", unweighted),
    "halves of the two-sided register exchanged": (checker.TwoSided, "move", halves_exchanged),
    "the first head counted": (checker.Counting, "move", count_too_many),
    "tuples numbered by their sum": (checker, "tuple_number", lambda counts, total: sum(counts)),
    "bounds off by one": (checker, "dimension_bound", off_by_one),
    "every rank reached": (checker, "rank_reaches", lambda rows, p, wanted: True),
    "every number prime": (checker, "require_prime", lambda p: None),
    "no column dropped": (checker.LinearTest, "columns", classmethod(lambda cls, claim: claim.shape.columns)),
    "gauges ignored": (checker, "times_transposed", lambda matrix, row: row[: len(matrix)]),
    "a gauge for its transpose": (checker, "times_transposed", lambda matrix, row: row[-len(matrix) :]),
    "W_all z always zero": (checker, "layered", of_targets(lambda *_: {})),
    "W_all z never zero": (checker, "layered", of_targets(lambda *_: {0: 1})),
    "W_all z of row 0 always": (checker, "layered", of_targets(lambda *_: dict.fromkeys(range(9), 1))),
    "queries for keys": (checker, "by_layer", queries_for_keys),
    "kernels not tested": (checker, "require_kernel", lambda *_: None),
    "units of weights left out": (checker.WeightsHost, "units", lambda self, code: Fraction(1)),
    "NaN tolerated": (checker, "require_finite", lambda tensors: None),
    "any file will do": (
        checker.Folder,
        "enter",
        lambda self, digests, header, path: setattr(self, "hashed", AnyFile({"": path})),
    ),
    "coefficients reduced modulo 2^127 - 1": (checker, "random_prime", lambda: 2**127 - 1),
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_the_checker_change_a_verdict_of_the_corpus(fault, monkeypatch):
    owner, name, wrong = FAULTS[fault]
    monkeypatch.setattr(owner, name, wrong)
    assert any(checker.check_file(path, OPTIONS).code != code for path, code in new_files())


def test_files_for_the_faults_are_there():
    """That none changes without a fault, test_corpus sees."""
    assert len(new_files()) > 300
    assert {RULES[name][1][-1] for name in RULES} == {"all untied", "all tied", INVERTIBLE}
