"""Certificates of the kind identity: checked, and the checker's embeddings evaluated in dense hosts, word by word.

The hosts are written out from docs/certificate-format.md section 9.
"""

import itertools
import time

import numpy as np
import pytest
from cases import TABLE_SHAPES
from naive import dense, words
from test_shared_attention import naive_shared_attention

from utfproof.certificates import checker
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.constructions import build_host
from utfproof.constructions.counting import commuting_trie_host
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit
from utfproof.shapes import Shape
from utfproof.util.arrays import exact
from utfproof.util.notions import Notion

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


def placed(host, rows, m):
    """A row of m numbers by the blocks of the checker's host."""
    row = np.zeros(m, dtype=object)
    for block, numbers in rows.items():
        row[host.first(block) : host.first(block) + len(numbers)] = numbers
    return row


def holds(document):
    """The claim's equations for the checker's E (and U) at a target drawn modulo P, in a dense host, word by word."""
    claim, fields = document["claim"], document["shape"]
    shape = Shape(*(fields[k] for k in ("heads", "layers", "head_dim", "d_in", "d_out")))
    m, name = fields["m"], claim["host"]["construction"]
    asked = checker.Claim(checker.KINDS["identity"], checker.Shape(**fields), name, targets=claim["targets"])
    point, host = checker.Point(asked, P), checker.IDENTITIES[name][0](asked.shape)
    units = np.eye(shape.d_in, dtype=int).tolist()
    value, query, key, U = host_of(name, shape, m)
    E = np.array([placed(host, host.embed(point, unit), m) for unit in units])
    if claim.get("free") == "E and U":
        U = np.array([placed(host, host.unembed(point, unit), m) for unit in units]).T
    heads = {
        (at, h): [exact(np.array(x)) for x in found]
        for at, row in enumerate(point.heads, 1)
        for h, found in enumerate(row)
    }
    routed, product = {(): E}, {(): exact(np.eye(shape.d_in, dtype=int))}
    for layer in range(1, shape.layers + 1):
        for w in words(shape.heads, layer):
            _, _, W_V, W_O = heads[layer, w[-1]]
            routed[w] = routed[w[:-1]] @ value(layer, w[-1]) % P
            product[w] = product[w[:-1]] @ W_V % P @ W_O % P
    if any(((routed[w] @ U - product[w]) % P).any() for w in words(shape.heads, shape.layers)):
        return False
    for layer, h in itertools.product(range(1, shape.layers + 1), range(shape.heads)) if query else ():
        prefixes, (W_Q, W_K, *_) = words(shape.heads, layer - 1), heads[layer, h]
        q = {w: routed[w] @ query(layer, h) for w in prefixes}
        k = {w: routed[w] @ key(layer, h) for w in prefixes}
        for w, v in itertools.product(prefixes, prefixes):
            wanted = product[w] @ W_Q % P @ (product[v] @ W_K % P).T
            if ((q[w] @ k[v].T - wanted) % P).any():
                return False
            if claim["notion"] == "matching" and ((q[w] - product[w] @ W_Q) % P).any():
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
        (lambda: identity_certificate("shared-key", Shape(2, 30, 1, 1)), ResourceLimit, "blocks of E"),
        (lambda: identity_certificate("register", Shape(2, 2, 1, 1), 0), MalformedInput, "positive integer"),
    ],
)
def test_identity_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
