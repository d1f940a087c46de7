"""Faults planted in the prover are caught by the checker, and work is bounded by the limits."""

import dataclasses
import hashlib
import json
from fractions import Fraction

import make_corpus as corpus
import numpy as np
import pytest
import sceptic
from make_corpus import CORPUS
from sceptic import PERMUTATIONS, judge
from test_certificates import OPTIONS

from utfproof.certificates import checker, prover
from utfproof.certificates.format import integer_array
from utfproof.certificates.structure import Relation
from utfproof.constructions import build_host, tied
from utfproof.errors import UtfproofError
from utfproof.ground import generator
from utfproof.ground.selection import SelectionMatrix
from utfproof.shapes import Shape, matching_dimension

# --- faults in the prover --------------------------------------------------------------------------------------------


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
    found.write(folder / "wrong.json")
    verdict = checker.check_file(folder / "wrong.json", OPTIONS)
    assert "broke off" not in verdict.message
    expected = judge((folder / "wrong.json").read_bytes(), folder)
    assert expected is None or verdict.code == expected
    return {0: None, 1: "rejected"}[verdict.code]


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("fault", HOST_FAULTS)
def test_fault_in_a_construction_is_caught(name, fault, monkeypatch, tmp_path):
    shape = Shape(2, 2, 1, 2, 3)

    def faulty(*arguments, **options):
        return HOST_FAULTS[fault](build_host(*arguments, **options))

    assert caught(tmp_path, name, shape, 25) is None
    if name == "tied" and "layers" in fault:
        fault = "heads of the values exchanged"
    monkeypatch.setattr(prover, "build_host", faulty)
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
        "certificates.prover.matching_dimension",
        lambda shape: matching_dimension(shape) + 1,
        "tied",
        (2, 1, 1, 1),
        {},
    ),
    "rank always full": (
        "exact.gfp.rank",
        lambda matrix, *_, **__: matrix.shape[1],
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "kernel of nothing": (
        "certificates.prover.find_relation",
        lambda *_, **__: Relation({0: 1}, "none"),
        "random",
        (1, 1, 1, 1),
        {"seed": 3, "law": "signs"},
    ),
    "distance not squared": (
        "certificates.prover.distance_bound",
        lambda z, c: Fraction(1, 7),
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
        "certificates.prover._selection_kernel",
        lambda matrix: {0: 1, 1: 1},
        "printed-looped",
        (2, 1, 1, 1),
        {"m": 6},
    ),
    "sidecar in the wrong byte order": ("certificates.prover.integer_array", big_endian, "sparse", (1, 1, 1, 4095), {}),
}


@pytest.mark.parametrize("fault", ARITHMETIC_FAULTS)
def test_fault_in_the_arithmetic_is_caught(fault, monkeypatch, tmp_path):
    attribute, wrong, name, dims, options = ARITHMETIC_FAULTS[fault]
    options = dict(options)
    arguments = (name, Shape(*dims), options.pop("m", None))
    assert caught(tmp_path, *arguments, **options) is None
    monkeypatch.setattr(f"utfproof.{attribute}", wrong)
    assert caught(tmp_path, *arguments, **options) == "rejected"


LONG_WORD = corpus.statement(
    "identity",
    "shared attention",
    {"construction": "register"},
    (2, 16, 1, 1, 1),
    2**16,
    {"E": [[0, ["M1.0"] * 10**5]]},
    free="E",
)


def test_a_word_of_many_letters_is_no_work(tmp_path):
    """10^5 letters beside 2^16 words: at a random point both are read once, and what is claimed is false."""
    path = tmp_path / "long.json"
    path.write_bytes(sceptic.canonical(LONG_WORD))
    verdict = checker.check_file(path, checker.Options())
    assert (verdict.code, verdict.message) == (1, "the outputs are not what the target demands")


def test_other_long_lists_of_nothing(tmp_path):
    path = tmp_path / "long.json"
    with path.open("wb") as stream:
        stream.truncate(checker.MAX_JSON + 1)
    assert checker.check_file(path).code == 3
    path.write_bytes(b"[" * 2**20)
    assert checker.check_file(path).code == 2


@pytest.mark.parametrize(("digits", "code"), [(100_000, 0), (100_001, 3)])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_sign_is_no_digit(sign, digits, code, tmp_path):
    document = json.loads((CORPUS / "valid" / "null-vector-looped-h1-l2-m1.json").read_bytes())
    document["evidence"]["y"] = [[0, sign + "7" * digits]]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    assert checker.check_file(path).code == code
    assert judge(path.read_bytes(), tmp_path) == {0: 0, 3: None}[code]


@pytest.mark.parametrize("option", [["--max-memory", "4G"], ["--unknown"], []])  # fmt: skip
def test_wrong_options_are_refused(option, capsys):
    paths = [str(CORPUS / "valid")] if option else []
    with pytest.raises(SystemExit) as stop:
        checker.main([*option, *paths])
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
