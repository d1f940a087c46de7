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

from utfproof.certificates import checker
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.format import Certificate
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.constructions import build_host
from utfproof.constructions.commuting import commuting_trie_host
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.ground.arrays import exact
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape

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
