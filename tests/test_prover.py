"""`certify`: what it writes is what the definition of the host says, the checker accepts it, and faults in it are caught."""

import dataclasses
import hashlib
from dataclasses import replace
from fractions import Fraction

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import confirmed, verdict_on

from utfproof.certificates import checker, prover, rank
from utfproof.certificates.format import ROWS_WRITTEN_OUT, STANDARD, WRITTEN_OUT, integer_array
from utfproof.certificates.identities import IDENTITIES, identity_certificate, identity_size, is_standard
from utfproof.certificates.prover import certify
from utfproof.constructions import CONSTRUCTIONS, build_host, tied
from utfproof.errors import MalformedInput, NotDefined, ResourceLimit, Undecided, UtfproofError
from utfproof.exact import rational
from utfproof.ground import generator
from utfproof.ground.arrays import exact
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape, matching_dimension

INDEX, RANDOM = tuple(checker.INDEX_HOSTS), checker.RANDOM


def exact_rank(name, shape, m, **options):
    """Of R_all by its definition, one word at a time."""
    host = build_host(name, shape, m, **options)
    if name in RANDOM:
        parts = {tensor: exact(getattr(host, tensor)) for tensor in ("R_Q", "R_K", "R_V", "U")}
        host = dataclasses.replace(host, **parts)
    return rational.rank(naive.r_all(host))


@st.composite
def questions(draw):
    """(name, shape, m or None, options) with a small R_all."""
    name = draw(st.sampled_from([*INDEX, *RANDOM]))
    d, d_in, d_out = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = Shape(draw(st.integers(1, 3)), draw(st.integers(1, 3)), d, d_in, d_out)
    M = matching_dimension(shape)
    assume(M <= (18 if name in RANDOM else 100))
    if name in INDEX:
        assume(CONSTRUCTIONS[name].defined(shape))
        extra = draw(st.sampled_from([None, 0, 1, 5]))
        return name, shape, None if extra is None else CONSTRUCTIONS[name].least_m(shape) + extra, {}
    seeds = st.integers(0, 10**6) | st.sampled_from([2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1])
    options = {"seed": draw(seeds), "law": draw(st.sampled_from(checker.LAWS)), "witness": draw(st.booleans())}
    options["dtype"] = draw(st.sampled_from(["float64", *checker.FORMATS]))
    return name, shape, draw(st.sampled_from([None, 1, max(1, M - 1), M, M + 2])), options


@given(questions())
@settings(max_examples=60)
def test_certificates_say_what_the_rank_is(tmp_path_factory, question):
    name, shape, m, options = question
    M = matching_dimension(shape)
    drawn = {key: value for key, value in options.items() if key != "witness"}
    try:
        rank = exact_rank(name, shape, M if m is None and name in RANDOM else m, **drawn)
        found = certify(name, shape, m, notion="matching", **options)
    except NotDefined:
        assume(False)
    except Undecided:
        assert rank == M
        return
    assert found.universal == (rank == M)
    folder = tmp_path_factory.mktemp("prover", numbered=True)
    assert confirmed(found, folder).code == 0
    again = certify(name, shape, m, notion="matching", **options)
    assert (again.to_bytes(), again.sidecars) == (found.to_bytes(), found.sidecars)


@pytest.mark.parametrize("prime", [3, 5, 8388593, 2**31 - 1])
@pytest.mark.parametrize("columns", [63, 64, 65, 130])
def test_elimination_beyond_one_panel(prime, columns):
    """Ranks modulo p against FLINT, deficient and full, tall and square."""
    from flint import nmod_mat

    source = np.random.default_rng(columns * prime)
    for rows in (columns, columns + 1, columns + 70):
        for drop in (0, 1, columns // 2):
            matrix = source.integers(0, prime, (rows, columns))
            for _ in range(drop):  # dependent columns at random places
                a, b, c = source.choice(columns, 3, replace=False)
                matrix[:, a] = (matrix[:, b] * int(source.integers(prime)) % prime + matrix[:, c]) % prime
            full = nmod_mat(rows, columns, matrix.reshape(-1).tolist(), prime).rank() == columns
            held = [checker.array(checker.U32, row) for row in matrix.tolist()]
            assert checker.rank_reaches(held, prime, len(held[0])) == full


# --- evidence -------------------------------------------------------------------------------------------------


def test_small_certificates_are_written_out_and_large_ones_named(tmp_path):
    for name in ("register", "shared-key", "shared-query"):
        for heads, layers, named in ((2, 5, False), (4, 6, False), (4, 10, True)):
            shape = Shape(heads, layers, 1, 1)
            assert is_standard(name, shape) == (identity_size(name, shape) >= WRITTEN_OUT) == named
            if not named:
                continue
            found = identity_certificate(name, shape)
            assert found.document["evidence"] == {"E": STANDARD}
            assert found.document["shape"]["m"] == IDENTITIES[name].least_m(shape)
            assert len(found.to_bytes()) < 1000
    for name in ("tied", "sparse", "sparse-front"):
        wide = Shape(2, 4, 1, 2**18)  # few words of many columns
        small, large = certify(name, Shape(2, 3, 1, 1)), certify(name, wide)
        assert len(small.document["evidence"]["rows"]) == matching_dimension(Shape(2, 3, 1, 1))
        assert large.document["evidence"] == {"rows": STANDARD}
        assert not large.sidecars
        assert matching_dimension(wide) > ROWS_WRITTEN_OUT
        assert verdict_on(large, tmp_path).code == 0
    assert verdict_on(identity_certificate("shared-key", Shape(3, 8, 1, 1), standard=True), tmp_path).code == 0


def test_the_prover_refuses():
    spelled_out = {name for name, entry in IDENTITIES.items() if entry.identity.words is not None}
    assert spelled_out < set(IDENTITIES)  # rational functions are never written out
    for name in spelled_out - {"register", "shared-key", "shared-query", "shared-query-functional"}:
        shape = Shape(2, 3 if "middle" in name or name == "polynomial" else 2, 1, 1)
        with pytest.raises(MalformedInput, match="no standard embedding"):
            identity_certificate(name, shape, standard=True)
        assert IDENTITIES[name].identity.moves is None
    for name in ("register", "shared-key", "shared-query"):
        with pytest.raises(ResourceLimit, match="moves"):
            identity_certificate(name, Shape(2, 40, 1, 1))
    with pytest.raises(ResourceLimit, match="checking tied"):
        certify("tied", Shape(4, 10, 1, 1), max_memory=10**8)


def test_a_record_is_not_believed(monkeypatch):
    """What a construction's record says of it is no evidence: a wrong one is no certificate, small or large."""
    key, tied = CONSTRUCTIONS["shared-key"], CONSTRUCTIONS["tied"]
    wrong = replace(
        key.identity, words=lambda shape: ([(start, []) for start, _ in key.identity.words(shape)[0]], None)
    )
    monkeypatch.setitem(IDENTITIES, "shared-key", replace(IDENTITIES["shared-key"], identity=wrong))
    with pytest.raises(Undecided, match="record of shared-key"):
        certify("shared-key", Shape(2, 2, 1, 1))
    monkeypatch.setitem(CONSTRUCTIONS, "printed-tree-row", replace(tied, name="printed-tree-row"))
    with pytest.raises(Undecided, match="record of printed-tree-row"):
        certify("printed-tree-row", Shape(2, 4, 1, 2**18))


def test_a_witness_belongs_to_a_rank():
    for name, notion in (("shared-key", None), ("register", None), ("tied", None), ("random", "attention-matching")):
        with pytest.raises(MalformedInput, match="--witness belongs to"):
            certify(name, Shape(2, 2, 1, 1), notion=notion, witness=True)


# --- faults in constructions and in the prover ---------------------------------------------------------------


def altered(host, tensor, change):
    """The host with change(layer, head, matrix) in place of each matrix of one tensor (layers and heads from 0)."""
    if tensor == "U":
        return dataclasses.replace(host, U=change(0, 0, host.U))
    rows = [getattr(host, tensor)] if host.tied else getattr(host, tensor)
    grid = [tuple(change(layer, h, matrix) for h, matrix in enumerate(row)) for layer, row in enumerate(rows)]
    return dataclasses.replace(host, **{tensor: grid[0] if host.tied else grid})


def reader_off_by_one(host):
    def change(layer, head, matrix):
        moved = (matrix.row_cells + ((layer, head) == (0, 1))) % matrix.rows.cells
        return dataclasses.replace(matrix, row_cells=moved)

    return altered(host, "R_Q", change)


def u_at_the_wrong_block(host):
    return altered(host, "U", lambda layer, head, matrix: dataclasses.replace(matrix, row_cells=matrix.row_cells - 1))


def u_at_the_padding(host):
    cells = host.U.rows.cells
    return altered(
        host,
        "U",
        lambda layer, head, matrix: dataclasses.replace(
            matrix, row_cells=np.where(matrix.row_cells == matrix.row_cells.max(), cells - 1, matrix.row_cells)
        ),
    )


def value_dropped(host):
    def change(layer, head, matrix):
        return (
            matrix
            if (layer, head) != (0, 1)
            else SelectionMatrix(matrix.rows, matrix.columns, matrix.row_cells[1:], matrix.column_cells[1:])
        )

    return altered(host, "R_V", change)


def projection_dropped(host):
    everything = np.arange(host.U.rows.cells)
    return altered(
        host,
        "R_V",
        lambda layer, head, matrix: (
            matrix if (layer, head) != (0, 1) else SelectionMatrix(matrix.rows, matrix.columns, everything, everything)
        ),
    )


def heads_exchanged(tensor):
    def fault(host):
        rows = [getattr(host, tensor)] if host.tied else getattr(host, tensor)
        return altered(host, tensor, lambda layer, head, matrix: rows[layer][-1 - head])

    return fault


HOST_FAULTS = {
    "values transposed": lambda host: altered(host, "R_V", lambda layer, head, matrix: matrix.transposed()),
    "queries and keys exchanged": lambda host: dataclasses.replace(host, R_Q=host.R_K, R_K=host.R_Q),
    "one query reader off by one": reader_off_by_one,
    "u at the wrong block": u_at_the_wrong_block,
    "u in the padding": u_at_the_padding,
    "one block of one value dropped": value_dropped,
    "one value replaced by the identity": projection_dropped,
    "heads of the values exchanged": heads_exchanged("R_V"),
    "heads of the queries exchanged": heads_exchanged("R_Q"),
    "heads of the keys exchanged": heads_exchanged("R_K"),
    "layers of the values reversed": lambda host: dataclasses.replace(host, R_V=host.R_V[::-1]),
    "keys are the queries": lambda host: dataclasses.replace(host, R_K=host.R_Q),
}
OTHERWISE = {
    ("sparse", "values transposed"): None,  # they are diagonal: nothing has changed
    ("sparse", "one value replaced by the identity"): "refused",  # still of full rank, but no permutation
}


def caught(folder, *arguments, **options):
    """How a wrong claim is stopped: by the prover ("refused") or by the checker ("rejected"); None if it is not."""
    try:
        found = prover.certify(*arguments, **options)
    except (UtfproofError, AssertionError):
        return "refused"
    return {0: None, 1: "rejected"}[verdict_on(found, folder).code]


@pytest.mark.parametrize("name", checker.PERMUTATIONS)
@pytest.mark.parametrize("fault", HOST_FAULTS)
def test_a_fault_in_a_construction_is_caught(name, fault, monkeypatch, tmp_path):
    shape = Shape(2, 2, 1, 2, 3)

    def faulty(*arguments, **options):
        return HOST_FAULTS[fault](build_host(*arguments, **options))

    assert caught(tmp_path, name, shape, 25) is None
    if name == "tied" and "layers" in fault:
        fault = "heads of the values exchanged"
    monkeypatch.setattr(rank, "build_host", faulty)
    assert caught(tmp_path, name, shape, 25) == OTHERWISE.get((name, fault), "rejected")


def wrong_trie(shape, head, first, last):
    """(w, h) for (h, w)."""
    H = shape.heads
    columns = [sum(H**k for k in range(first, t)) + w for t in range(first, last) for w in range(H**t)]
    rows = [sum(H**k for k in range(first, t + 1)) + w * H + head for t in range(first, last) for w in range(H**t)]
    return np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)


def wrong_register(shape, head):
    """(w_2, ..., w_L, h) for (h, w_1, ..., w_{L-1})."""
    words = np.arange(shape.leaves)
    return words % (shape.leaves // shape.heads) * shape.heads + head, words


@pytest.mark.parametrize(("part", "wrong"), [("trie_pairs", wrong_trie), ("register_pairs", wrong_register)])
def test_letters_in_the_wrong_order_are_caught(part, wrong, monkeypatch, tmp_path):
    shape = Shape(2, 3, 1, 2, 2)
    monkeypatch.setattr(tied, part, wrong)
    assert caught(tmp_path, "tied", shape) == "rejected"


def shifted_seed(seed, *arguments, stream_key=generator.stream_key, **options):
    return stream_key(seed + 1, *arguments, **options)


def big_endian(rows):
    array, _ = integer_array(np.arange(4097))
    content = np.asarray(rows).astype(">u4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return array | {"sidecar": digest}, {digest: content}


ARITHMETIC_FAULTS = {
    "M too large by one": (
        "certificates.hosts.matching_dimension",
        lambda shape: matching_dimension(shape) + 1,
        "random",
        (1, 1, 1, 1),
        {"m": 3},
    ),
    "rank always full": (
        "exact.gfp.rank",
        lambda matrix, *_, **__: matrix.shape[1],
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "kernel of nothing": (
        "certificates.rank.find_relation",
        lambda *_, **__: {0: 1},
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "distance not squared": (
        "certificates.rank.missed_distance",
        lambda *_: Fraction(1, 7),
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "another seed drawn": (
        "ground.generator.stream_key",
        shifted_seed,
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "sum for difference of equal columns": (
        "certificates.rank.equal_columns",
        lambda matrix: {0: 1, 1: 1},
        "printed-looped",
        (2, 1, 1, 1),
        {"m": 6},
    ),
    "sidecar in the wrong byte order": ("certificates.format.integer_array", big_endian, "sparse", (1, 1, 1, 4095), {}),
}


@pytest.mark.parametrize("fault", ARITHMETIC_FAULTS)
def test_fault_in_the_arithmetic_is_caught(fault, monkeypatch, tmp_path):
    attribute, wrong, name, dims, options = ARITHMETIC_FAULTS[fault]
    options = dict(options)
    arguments = (name, Shape(*dims), options.pop("m", None))
    assert caught(tmp_path, *arguments, **options) is None
    monkeypatch.setattr(f"utfproof.{attribute}", wrong)
    assert caught(tmp_path, *arguments, **options) == "rejected"
