"""Certificates of the kinds identity, lower-bound and linear-test: evaluated without the words' algebra, and checked.

An identity is re-evaluated by substituting random integer matrices for the letters modulo a large prime, in hosts written
out from docs/certificate-format.md section 9.
"""

import copy
import itertools
import time

import numpy as np
import pytest
from cases import TABLE_SHAPES
from naive import dense, words
from test_shared_attention import naive_shared_attention

from utfproof.attention import RationalAttention
from utfproof.certificates import checker
from utfproof.certificates.format import Certificate
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.certificates.linear_test import linear_test_certificate, linear_test_weights, test_columns
from utfproof.certificates.lower_bounds import (
    dimension_bound,
    dimension_certificate,
    null_vector_certificate,
    span_certificate,
    span_dimension,
    target_entries,
)
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_trie_host
from utfproof.constructions.random import integer_target
from utfproof.constructions.shared_attention import counting_host, register_host, two_sided_host
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit, Undecided
from utfproof.exact import rational
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion
from utfproof.matching import isolating_target, r_all, w_all
from utfproof.shapes import Shape, column_at, linear_test_dimension, matching_dimension
from utfproof.systems import LoopedTarget
from utfproof.weights import write_host

P = 2**61 - 1
CASES = [
    ("shared-key", (2, 2, 3, 2)),
    ("shared-key", (1, 3, 2, 2)),
    ("shared-key", (3, 2, 1, 1)),
    ("shared-key", (2, 3, 1, 1)),
    ("shared-query", (2, 2, 3, 2)),
    ("shared-query", (2, 3, 2, 2)),
    ("shared-query", (3, 2, 1, 1)),
    ("shared-query", (1, 3, 2, 2)),
    ("register", (2, 3, 1, 2)),
    ("register", (3, 2, 2, 1)),
    ("register", (1, 2, 2, 2)),
    ("two-sided", (2, 4, 1, 1)),
    ("two-sided", (3, 2, 2, 2)),
    ("two-sided", (2, 4, 1, 2)),
    ("counting", (2, 6, 1, 1)),
    ("counting", (3, 3, 2, 1)),
    ("counting", (1, 3, 1, 1)),
    ("commuting-trie", (2, 3, 1, 1)),
    ("commuting-trie", (3, 2, 2, 1)),
    ("commuting-trie", (1, 3, 2, 1)),
]
LOWER = [
    ("matching", "all untied", None, (2, 2, 1, 2), 20),
    ("matching", "all tied", None, (2, 2, 2, 3), 36),
    ("shared attention", "all untied", "E", (2, 3, 1, 2), 16),
    ("shared attention", "all untied", "E and U", (2, 3, 1, 1), 3),
    ("shared attention", "all tied", "E", (2, 6, 1, 1), 7),
    ("shared attention", "all tied", "E and U", (3, 3, 1, 1), 4),
    ("functional", "all untied", None, (2, 1, 1, 2), 8),  # no room to share: M
    ("functional", "all untied", None, (3, 1, 1, 2), 11),
    ("functional", "all untied", None, (3, 1, 2, 2), 12),
]
"""notion, targets, free, shape, least m that is not below the bound."""


def verdict(certificate, folder, name="certificate.json"):
    """What the independent checker says."""
    certificate.write(folder / name)
    return checker.check_file(folder / name)


# --- evaluating an identity --------------------------------------------------------------------------------


class Letters:
    """Random integer matrices modulo P for every letter of a target; rank(M) <= d is respected."""

    def __init__(self, shape, tied, seed):
        self.shape, self.tied, self.table = shape, tied, {}
        rng = np.random.default_rng(seed)
        d, b = shape.head_dim, shape.d_in

        def draw(rows, columns):
            return exact(rng.integers(1, 2**60, size=(rows, columns)))

        for layer in [0] if tied else range(1, shape.layers + 1):
            for h in range(shape.heads):
                q, k, v, o = draw(b, d), draw(b, d), draw(b, d), draw(d, b)
                at = f"{layer or ''}.{h}"
                self.table |= {"Q" + at: q, "K" + at: k, "M" + at: v @ o % P, "A" + at: q @ k.T % P}

    def place(self, name, layer, head):
        return self.table[f"{name}{'' if self.tied else layer}.{head}"]

    def word(self, letters):
        """The product; KeyError for a letter that the target does not have."""
        out = exact(np.eye(self.shape.d_in, dtype=int))
        for letter in letters:
            base = letter.rstrip("TI")
            value = self.table[base]
            if "I" in letter[len(base) :]:
                value = inverse(value)
            if "T" in letter[len(base) :]:
                value = value.T
            out = out @ value % P
        return out

    def product(self, word):
        return self.word([f"M{'' if self.tied else layer}.{h}" for layer, h in enumerate(word, 1)])


def inverse(matrix):
    from flint import nmod_mat

    size = len(matrix)
    found = nmod_mat(size, size, [int(x) for x in matrix.reshape(-1)], P).inv()
    return exact(np.array([[int(found[i, j]) for j in range(size)] for i in range(size)], dtype=object))


def naive_commuting_trie(shape, m):
    """Section 9: R_Q, R_K, R_V by head, and U."""
    H, L, d = shape.heads, shape.layers, shape.head_dim
    tuples = [c for c in itertools.product(range(L), repeat=H) if sum(c) < L]
    start = {(c, g): 2 * d * (i * H + g) for i, c in enumerate(tuples) for g in range(H)}
    after = 2 * d * H * len(tuples)
    counting, unembed = naive_shared_attention("counting", shape, m - after)
    queries, keys, values = {}, {}, {}
    for h in range(H):
        value = np.zeros((m, m), dtype=object)
        value[after:, after:] = counting[1, h]
        for c, g in start:
            if sum(c) < L - 1:
                up = tuple(k + (i == h) for i, k in enumerate(c))
                for i in range(2 * d):
                    value[start[up, g] + i, start[c, g] + i] = 1
        q, k = np.zeros((m, d), dtype=object), np.zeros((m, d), dtype=object)
        for i in range(d):
            q[start[(0,) * H, h] + i, i] = k[start[(0,) * H, h] + d + i, i] = 1
        queries[h], keys[h], values[h] = q, k, value
    U = np.zeros((m, 1), dtype=object)
    U[after:] = unembed
    return queries, keys, values, U


def host_of(name, shape, m):
    """(value(layer, head), query(layer, head), key(layer, head), U), dense; layers from 1; None where there is none."""
    if name == "commuting-trie":
        queries, keys, values, U = naive_commuting_trie(shape, m)
        return (lambda layer, h: values[h], lambda layer, h: queries[h], lambda layer, h: keys[h], U)
    if name in ("shared-key", "shared-query"):
        host = build_host(name, shape, m)
        return (
            lambda layer, h: dense(host.R_V[h]),
            lambda layer, h: dense(host.R_Q[h]),
            lambda layer, h: dense(host.R_K[h]),
            dense(host.U),
        )
    values, U = naive_shared_attention(name, shape, m)
    return (lambda layer, h: values[layer, h], None, None, U)


def holds(document, seed=1):
    """The claim's equations for one random target modulo P; a letter that this target lacks counts as a failure."""
    claim, fields = document["claim"], document["shape"]
    shape = Shape(*(fields[k] for k in ("heads", "layers", "head_dim", "d_in", "d_out")))
    m, name = fields["m"], claim["host"]["construction"]
    letters = Letters(shape, claim["targets"] == "all tied", seed)
    value, query, key, U = host_of(name, shape, m)
    E = np.zeros((shape.d_in, m), dtype=object)
    try:
        for start, word in document["evidence"]["E"]:
            block = letters.word(word)
            E[:, start : start + block.shape[1]] = block
        if claim.get("free") == "E and U":
            U = np.zeros((m, shape.d_in), dtype=object)
            for start, word in document["evidence"]["U"]:
                U[start : start + shape.d_in] = letters.word(word)
    except KeyError:
        return False
    routed = {(): E}
    for layer in range(1, shape.layers + 1):
        for w in words(shape.heads, layer):
            routed[w] = routed[w[:-1]] @ value(layer, w[-1]) % P
    if any(((routed[w] @ U - letters.product(w)) % P).any() for w in words(shape.heads, shape.layers)):
        return False
    if claim["notion"] == "shared attention":
        return True
    for layer in range(1, shape.layers + 1):
        prefixes = words(shape.heads, layer - 1)
        for h in range(shape.heads):
            q = {w: routed[w] @ query(layer, h) for w in prefixes}
            k = {w: routed[w] @ key(layer, h) for w in prefixes}
            if claim["notion"] == "matching":
                for w in prefixes:
                    wanted = (letters.place(n, layer, h) for n in "QK")
                    for found, right in zip((q[w], k[w]), wanted, strict=True):
                        if ((found - letters.product(w) @ right) % P).any():
                            return False
                continue
            form = letters.place("A", layer, h)
            for w, v in itertools.product(prefixes, prefixes):
                wanted = letters.product(w) @ form @ letters.product(v).T
                if ((q[w] @ k[v].T - wanted) % P).any():
                    return False
    return True


@pytest.mark.parametrize(("name", "dims"), CASES)
@pytest.mark.parametrize("padding", [0, 2])
def test_identities_hold_and_are_valid(name, dims, padding, tmp_path):
    shape = Shape(*dims)
    least = IDENTITIES[name].least_m(shape)
    certificate = identity_certificate(name, shape, least + padding)
    assert (certificate.kind, certificate.universal) == ("identity", True)
    assert holds(certificate.document)
    assert holds(certificate.document, seed=2)
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message


def test_least_m_is_the_default_and_less_is_refused():
    for name, dims in CASES:
        shape = Shape(*dims)
        least = IDENTITIES[name].least_m(shape)
        assert identity_certificate(name, shape).document["shape"]["m"] == least
        if least > 1:
            with pytest.raises(NotDefined, match=f"needs m >= {least}, got {least - 1}"):
                identity_certificate(name, shape, least - 1)


def test_naive_hosts_are_the_constructions():
    """The hosts that the identities are evaluated in are those that the package builds."""
    shape = Shape(2, 3, 2, 1)
    built = commuting_trie_host(shape, 54)
    queries, keys, values, U = naive_commuting_trie(shape, 54)
    for h in range(2):
        assert np.array_equal(dense(built.R_Q[h]), queries[h])
        assert np.array_equal(dense(built.R_K[h]), keys[h])
        assert np.array_equal(dense(built.R_V[h]), values[h])
    assert np.array_equal(dense(built.U), U)


def edited(certificate, edit):
    document = copy.deepcopy(certificate.document)
    edit(document)
    return Certificate(document)


def swap_first_letters(document):
    """The first word whose first two letters differ, with these exchanged."""
    for block in document["evidence"]["E"]:
        if len(block[1]) > 1 and block[1][0] != block[1][1]:
            block[1][:2] = block[1][1::-1]
            return


def shift_words(document):
    """Every word one block further."""
    blocks = document["evidence"]["E"]
    moved = [block[1] for block in blocks]
    for block, word in zip(blocks, moved[1:] + moved[:1], strict=True):
        block[1] = word


def next_head(document):
    """The last value letter of the last word names another head."""
    word = document["evidence"]["E"][-1][1]
    at = max(i for i, letter in enumerate(word) if letter[0] == "M")
    stem, head = word[at].split(".")
    word[at] = f"{stem}.{1 - int(head)}"


def next_layer(document):
    """The first value letter of the last word names another layer."""
    word = document["evidence"]["E"][-1][1]
    word[0] = "M2" + word[0][word[0].index(".") :]


def drop_letter(document):
    document["evidence"]["E"][-1][1].pop()


def drop_block(document):
    document["evidence"]["E"].pop()


def swap_halves(document):
    evidence = document["evidence"]
    evidence["E"], evidence["U"] = evidence["U"], evidence["E"]


def exchange_q_and_k(document):
    for block in document["evidence"]["E"]:
        last = block[1][-1] if block[1] else ""
        if last[:1] in ("Q", "K"):
            block[1][-1] = {"Q": "K", "K": "Q"}[last[0]] + last[1:]


def untransposed(document):
    for block in document["evidence"]["E"]:
        block[1][:] = [letter.replace("IT", "I") for letter in block[1]]


def plain_forms(document):
    for block in document["evidence"]["E"]:
        block[1][:] = [letter[:-1] if letter[0] == "A" else letter for letter in block[1]]


def claimed(targets):
    def edit(document):
        document["claim"]["targets"] = targets

    return edit


FAULTS = [
    ("shared-key", (2, 2, 3, 2), swap_first_letters),
    ("shared-key", (2, 2, 3, 2), shift_words),
    ("shared-key", (2, 2, 3, 2), next_head),
    ("shared-key", (2, 2, 3, 2), next_layer),
    ("shared-key", (2, 2, 3, 2), drop_letter),
    ("shared-key", (2, 2, 3, 2), drop_block),
    ("shared-key", (2, 2, 3, 2), claimed("all tied")),
    ("shared-query", (2, 3, 2, 2), swap_first_letters),
    ("shared-query", (2, 3, 2, 2), next_head),
    ("shared-query", (2, 3, 2, 2), untransposed),
    ("shared-query", (2, 3, 2, 2), plain_forms),
    ("shared-query", (2, 3, 2, 2), drop_block),
    ("register", (2, 3, 1, 2), swap_first_letters),
    ("register", (2, 3, 1, 2), shift_words),
    ("register", (2, 3, 1, 1), shift_words),
    ("register", (2, 3, 1, 1), next_head),
    ("register", (2, 3, 1, 1), claimed("all tied")),
    ("two-sided", (2, 4, 1, 1), swap_halves),
    ("two-sided", (2, 4, 1, 2), swap_halves),
    ("two-sided", (2, 4, 1, 2), swap_first_letters),
    ("two-sided", (2, 4, 1, 1), shift_words),
    ("two-sided", (2, 4, 1, 1), drop_block),
    ("counting", (2, 6, 1, 1), shift_words),
    ("counting", (2, 6, 1, 1), next_head),
    ("counting", (2, 6, 1, 1), drop_letter),
    ("counting", (2, 6, 1, 1), claimed("all untied")),
    ("commuting-trie", (2, 3, 1, 1), exchange_q_and_k),
    ("commuting-trie", (2, 3, 1, 1), shift_words),
    ("commuting-trie", (2, 3, 1, 1), next_head),
    ("commuting-trie", (2, 3, 1, 1), drop_block),
    ("commuting-trie", (2, 3, 1, 1), claimed("all untied")),
]


@pytest.mark.parametrize(("name", "dims", "fault"), FAULTS)
def test_planted_faults_are_caught(name, dims, fault, tmp_path):
    good = identity_certificate(name, Shape(*dims))
    bad = edited(good, fault)
    assert bad.document != good.document
    assert not holds(bad.document)
    found = verdict(bad, tmp_path)
    assert found.code in (1, 2), found.message


def test_order_of_letters_is_free_for_scalars(tmp_path):
    """d_in = 1: a word in another order is the same number, for both judges."""
    scalar = edited(identity_certificate("register", Shape(2, 3, 1, 1)), swap_first_letters)
    assert holds(scalar.document)
    assert verdict(scalar, tmp_path).code == 0


@pytest.mark.parametrize("name", ["shared-key", "shared-query"])
@pytest.mark.parametrize("table", ["parentheses", "4-hop"])
def test_table_shapes_are_quick(name, table, tmp_path):
    shape = Shape(*TABLE_SHAPES[table])
    start = time.process_time()
    certificate = identity_certificate(name, shape)
    assert time.process_time() - start < 2
    expected = {
        ("shared-key", "parentheses"): 164,
        ("shared-key", "4-hop"): 1830,
        ("shared-query", "parentheses"): 144,
        ("shared-query", "4-hop"): 1380,
    }
    assert certificate.document["shape"]["m"] == expected[name, table]
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message


def test_looped_counterexample(tmp_path):
    """thm:lower_bound_utf for looped targets: m = 7 serves at H = 2, L = 6, below 2^(6/2) = 8."""
    certificate = identity_certificate("counting", Shape(2, 6, 1, 1))
    assert certificate.document["shape"]["m"] == 7
    assert 7**2 < 2**6
    assert certificate.document["claim"]["targets"] == "all tied"
    assert holds(certificate.document)
    assert verdict(certificate, tmp_path).code == 0
    # and 7 is least, by a certificate too
    assert verdict(tied_bound(Shape(2, 6, 1, 1), 6), tmp_path).code == 0


def tied_bound(shape, m):
    return dimension_certificate(shape, m, notion=Notion.SHARED_ATTENTION, targets="all tied", free="E")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: identity_certificate("sparse", Shape(2, 2, 1, 1)), MalformedInput, "no identity certificates"),
        (lambda: identity_certificate("two-sided", Shape(2, 3, 1, 1)), NotDefined, "even number of layers"),
        (lambda: identity_certificate("counting", Shape(2, 3, 1, 2)), NotDefined, "d_in = d_out = 1"),
        (lambda: identity_certificate("commuting-trie", Shape(2, 3, 1, 2)), NotDefined, "d_in = d_out = 1"),
        (lambda: identity_certificate("shared-key", Shape(2, 2, 1, 2)), NotDefined, "head_dim >= d_in"),
        (lambda: identity_certificate("shared-query", Shape(2, 2, 3, 2, 3)), NotDefined, "d_in = d_out"),
        (lambda: identity_certificate("register", Shape(2, 2, 3, 2, 3)), NotDefined, "d_in = d_out"),
        (lambda: identity_certificate("register", Shape(9, 99, 1, 1)), ResourceLimit, "2\\^60"),
        (lambda: identity_certificate("shared-key", Shape(2, 30, 1, 1), max_memory=10**9), ResourceLimit, "needs"),
        (lambda: identity_certificate("register", Shape(2, 2, 1, 1), 0), MalformedInput, "positive integer"),
    ],
)
def test_identity_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- lower bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("notion", "targets", "free", "dims", "least"), LOWER)
def test_dimension_bounds(notion, targets, free, dims, least, tmp_path):
    shape, kind = Shape(*dims), Notion(notion)
    for m in (1, least - 1):
        certificate = dimension_certificate(shape, m, notion=kind, targets=targets, free=free)
        assert (certificate.kind, certificate.universal) == ("lower-bound", False)
        found = verdict(certificate, tmp_path)
        assert found.code == 0, found.message
    with pytest.raises(Undecided, match="not below the bound"):
        dimension_certificate(shape, least, notion=kind, targets=targets, free=free)
    false = edited(certificate, lambda document: document["shape"].update(m=least))
    assert verdict(false, tmp_path).code == 1
    tied = dimension_certificate(shape, 1, notion=kind, targets=targets, free=free, every="tied host")
    assert verdict(tied, tmp_path).code == 0


@pytest.mark.parametrize(
    ("dims", "notion", "targets", "free"),
    [
        ((2, 3, 2, 2), "matching", "all tied", None),
        ((2, 2, 1, 2), "functional", "all untied", None),
        ((2, 1, 3, 2), "functional", "all untied", None),
        ((2, 1, 1, 2), "functional", "all tied", None),
        ((2, 1, 1, 2), "attention-matching", "all untied", None),
        ((2, 1, 1, 2), "shared attention", "all untied", None),
        ((2, 1, 1, 2), "matching", "all untied", "E"),
        ((2, 1, 1, 2), "matching", "some", None),
    ],
)
def test_no_bound_where_none_is_proved(dims, notion, targets, free):
    with pytest.raises(MalformedInput, match="no dimension bound is proved"):
        dimension_bound(Shape(*dims), 1, notion=notion, targets=targets, free=free)


def test_dimension_bound_misuse():
    with pytest.raises(MalformedInput, match="every is"):
        dimension_certificate(Shape(2, 2, 1, 1), 1, every="nobody")
    with pytest.raises(ResourceLimit):
        dimension_certificate(Shape(2, 10**7, 1, 1), 1)


SPANS = [
    ((2, 3, 1, 1), True, 28),
    ((2, 3, 1, 1), False, 36),
    ((2, 2, 1, 1), True, 15),
    ((2, 2, 2, 2), True, 32),
    ((2, 1, 1, 2), True, 8),
    ((1, 3, 1, 1), True, 7),
    ((2, 2, 1, 2), False, 20),
]
"""Shape, tied, dimension of the span of the rows W_all."""


@pytest.mark.parametrize(("dims", "tied", "dimension"), SPANS)
def test_spans(dims, tied, dimension, tmp_path):
    shape = Shape(*dims)
    assert span_dimension(shape, tied=tied) == dimension
    certificate = span_certificate(shape, dimension - 1, tied=tied)
    assert (certificate.kind, certificate.universal) == ("lower-bound", False)
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message
    with pytest.raises(Undecided):
        span_certificate(shape, dimension, tied=tied)
    for fault in (
        lambda document: document["shape"].update(m=dimension),
        lambda document: document["evidence"]["targets"].pop(),
        lambda document: document["evidence"].update(targets=document["evidence"]["targets"][:1] * dimension),
        lambda document: document["claim"].update(targets="all untied" if tied else "all tied"),
    ):
        assert verdict(edited(certificate, fault), tmp_path).code in (1, 2)


def test_span_of_given_targets(tmp_path):
    """Isolating targets: one unit row each."""
    shape = Shape(2, 2, 1, 2)
    targets = [isolating_target(shape, column) for column in range(10)]
    certificate = span_certificate(shape, 9, targets, tied=False)
    assert verdict(certificate, tmp_path).code == 0
    assert all(len(entries) <= 5 for entries in certificate.document["evidence"]["targets"])
    with pytest.raises(Undecided, match="rank 10"):
        span_certificate(shape, 10, targets, tied=False)
    with pytest.raises(Undecided, match="rank 0"):
        span_certificate(shape, 1, [], tied=False)
    with pytest.raises(MalformedInput, match="class tied"):
        span_certificate(shape, 9, targets, tied=True)
    with pytest.raises(MalformedInput, match="not of the class untied"):
        span_certificate(Shape(2, 2, 1, 3), 9, targets, tied=False)
    with pytest.raises(MalformedInput, match="d_in = d_out"):
        span_certificate(Shape(2, 2, 1, 2, 3), 9, tied=False)
    half = LoopedTarget(Shape(1, 1, 1, 1), *(exact(np.array([[[0.5]]])) for _ in range(4)))
    with pytest.raises(MalformedInput, match="integer targets"):
        target_entries(half)


def test_integer_targets_are_small_and_repeat():
    shape = Shape(2, 2, 1, 2)
    first, again, other = (integer_target(shape, seed, bound=16) for seed in (1, 1, 2))
    assert np.array_equal(first.W_V, again.W_V)
    assert not np.array_equal(first.W_V, other.W_V)
    assert max(abs(int(v)) for v in first.W_V.reshape(-1)) <= 16
    rows = np.concatenate([w_all(integer_target(shape, seed, bound=16)) for seed in range(12)])
    assert rational.rank(rows) == matching_dimension(shape)


@pytest.mark.parametrize(
    ("dims", "m", "tied"), [((2, 4, 1, 1), 3, False), ((2, 5, 1, 1), 5, True), ((3, 2, 1, 1), 2, False)]
)
def test_null_vectors(dims, m, tied, tmp_path):
    shape = Shape(*dims)
    rng = np.random.default_rng(m)
    lead = (shape.heads,) if tied else (shape.layers, shape.heads)
    R_V = rng.integers(-3, 4, size=(*lead, m, m))
    certificate = null_vector_certificate(R_V, shape, tied=tied)
    assert (certificate.kind, certificate.universal) == ("lower-bound", False)
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message

    def nudge(document):
        document["claim"]["host"]["R_V"][0][0][0][0] += 1

    def scale(document):
        pair = document["evidence"]["y"][0]
        pair[1] = int(pair[1]) * 2 if abs(int(pair[1])) < 2**50 else str(int(pair[1]) * 2)

    for fault in (nudge, scale):
        assert verdict(edited(certificate, fault), tmp_path).code == 1


def test_null_vectors_of_constructions(tmp_path):
    """two-sided at m = H^(L/2) has independent word products, one that is tied or counts has not."""
    shape = Shape(2, 4, 1, 1)
    with pytest.raises(Undecided, match="linearly independent"):
        null_vector_certificate(two_sided_host(shape, 4).R_V, shape, tied=False)
    with pytest.raises(Undecided, match="linearly independent"):
        null_vector_certificate(register_host(shape, 16).R_V, shape, tied=True)
    assert verdict(null_vector_certificate(counting_host(shape, 5).R_V, shape, tied=True), tmp_path).code == 0


@pytest.mark.parametrize(
    ("R_V", "shape", "tied", "error", "message"),
    [
        (np.ones((2, 2, 2)), Shape(2, 3, 1, 1), True, MalformedInput, "integer matrices"),
        (np.ones((3, 2, 2), dtype=int), Shape(2, 3, 1, 1), True, MalformedInput, "3 heads, expected 2"),
        (np.ones((2, 2, 2, 2), dtype=int), Shape(2, 3, 1, 1), False, MalformedInput, "2 layers, expected 3"),
        (np.ones((2, 2, 3), dtype=int), Shape(2, 3, 1, 1), True, MalformedInput, "square"),
        (np.ones((2, 50, 50), dtype=int), Shape(2, 10, 1, 1), True, ResourceLimit, "null vector"),
    ],
)
def test_null_vector_refusals(R_V, shape, tied, error, message):
    with pytest.raises(error, match=message):
        null_vector_certificate(R_V, shape, tied=tied)


# --- the linear test ---------------------------------------------------------------------------------------


def test_columns_of_the_linear_test():
    for dims in ((2, 2, 3, 2), (1, 3, 2, 2), (3, 1, 4, 2), (2, 2, 2, 2)):
        shape = Shape(*dims)
        kept = test_columns(shape)
        assert len(kept) == linear_test_dimension(shape)
        named = [column_at(shape, int(c)) for c in kept]
        assert all(column.kind != "Q" or column.coordinate < shape.d_in for column in named)
        assert list(kept) == sorted(set(kept.tolist()))


@pytest.mark.parametrize("name", ["random", "random-tied"])
@pytest.mark.parametrize("dims", [(2, 2, 3, 2), (1, 3, 2, 2), (2, 1, 4, 1)])
def test_linear_test(name, dims, tmp_path):
    shape = Shape(*dims)
    columns = linear_test_dimension(shape)
    for m, law, dtype in ((None, "uniform", "float64"), (columns + 2, "binomial", "float32")):
        certificate = linear_test_certificate(name, shape, m, seed=5, law=law, dtype=dtype)
        assert (certificate.kind, certificate.universal) == ("linear-test", True)
        assert certificate.document["claim"]["rank"] == columns
        assert certificate.document["shape"]["m"] == (m or columns)
        found = verdict(certificate, tmp_path)
        assert found.code == 0, found.message
    with pytest.raises(Undecided, match="fewer rows"):
        linear_test_certificate(name, shape, columns - 1, seed=5)
    for fault in (
        lambda document: document["claim"].update(rank=columns - 1),
        lambda document: document["shape"].update(m=columns - 1),
        lambda document: document["claim"].update(notion="matching"),
        lambda document: document["evidence"].update(prime=15),
    ):
        assert verdict(edited(certificate, fault), tmp_path).code in (1, 2)


def test_linear_test_embedding_serves_every_logit():
    """Why the rank suffices: at m below M, the E it gives makes logits and outputs the target's, exactly."""
    shape = Shape(2, 2, 3, 2)
    m = linear_test_dimension(shape)
    assert m < matching_dimension(shape)
    rng = np.random.default_rng(0)
    host = build_host("random-tied", shape, m, seed=1, law="signs")
    matrix = exact(r_all(host))[:, test_columns(shape)]
    target = integer_target(shape, 3, tied=False)
    # right-hand sides: queries M_w A, keys M_w C, outputs M_w
    C = exact(np.eye(2, 3, dtype=int))
    forms = {(layer, h): target.attention_form(layer, h) for layer in range(2) for h in range(2)}
    product = {(): exact(np.eye(2, dtype=int))}
    for layer in (0, 1):
        for w in words(2, layer + 1):
            product[w] = product[w[:-1]] @ target.value_form(layer, w[-1])
    queries = [product[w[:-1]] @ forms[len(w) - 1, w[-1]] for n in (1, 2) for w in words(2, n)]
    keys = [product[w[:-1]] @ C for n in (1, 2) for w in words(2, n)]
    right = np.concatenate([*queries, *keys, *(product[w] for w in words(2, 2))], axis=1)
    E = rational.solve_left(matrix, right)
    assert E is not None
    x = exact(rng.integers(-2, 3, size=(3, 2)))
    for kernel in (RationalAttention(), RationalAttention(causal=True)):
        exact_host = type(host)(shape, m, *(exact(a) for a in (host.R_Q, host.R_K, host.R_V, host.U)))
        assert np.array_equal(exact_host.forward(x, E, kernel), target.forward(x, kernel))


def test_linear_test_refusals():
    with pytest.raises(MalformedInput, match="random, random-tied"):
        linear_test_certificate("sparse", Shape(2, 2, 3, 2))
    with pytest.raises(NotDefined, match="d_in = d_out <= head_dim"):
        linear_test_certificate("random", Shape(2, 2, 1, 2))
    with pytest.raises(NotDefined, match="d_in = d_out <= head_dim"):
        linear_test_certificate("random", Shape(2, 2, 3, 2, 3))

    def modulo_three():
        for seed in range(50):  # 9 entries modulo 3: some of these are singular there
            linear_test_certificate("random", Shape(1, 1, 1, 1), seed=seed, law="signs", primes=(3,))

    with pytest.raises(Undecided, match="modulo 3; a deficient rank proves nothing"):
        modulo_three()
    with pytest.raises(ResourceLimit):
        linear_test_certificate("random", Shape(2, 4, 30, 30), max_memory=10**6)


def test_linear_test_of_weights(tmp_path):
    shape = Shape(2, 2, 3, 2)
    m = linear_test_dimension(shape)
    path = tmp_path / "host.safetensors"
    write_host(path, build_host("random", shape, m, seed=4))
    certificate = linear_test_weights(path, d_in=2)
    assert certificate.document["claim"]["rank"] == m
    found = verdict(certificate, tmp_path)
    assert found.code == 0, found.message
