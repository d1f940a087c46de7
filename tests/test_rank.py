"""`utfproof rank`: ranks of matrices in files, and what is refused."""

import json

import numpy as np
import pytest

from utfproof.cli.app import run

MATRICES = {
    "integers": lambda rng: rng.integers(-9, 9, (30, 40)),
    "floats": lambda rng: rng.normal(size=(40, 30)),
    "halves": lambda rng: rng.normal(size=(20, 20)).astype(np.float16),
    "determinant divisible by 127": lambda rng: (
        np.diag([127.0, *[1.0] * 9]) + np.triu(rng.integers(-9, 9, (10, 10)), 1)
    ),
    "determinant 3 * 5 * ... * 127": lambda rng: np.diag([p for p in range(3, 128) if all(p % q for q in range(2, p))]),
    "deficient": lambda rng: rng.integers(-9, 9, (30, 5)) @ rng.integers(-9, 9, (5, 40)),
}


@pytest.mark.parametrize("name", sorted(MATRICES))
def test_ranks(tmp_path, capsys, name):
    matrix = MATRICES[name](np.random.default_rng(3))
    file = str(tmp_path / "matrix.npy")
    np.save(file, matrix)
    assert run(["rank", file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rank = np.linalg.matrix_rank(matrix.astype(float))
    assert document["rank"] == rank
    assert document["exact"] == (rank == min(matrix.shape))
    assert [len(document["dependent_rows"]), len(document["dependent_columns"])] == [n - rank for n in matrix.shape]
    assert run(["rank", file]) == 0
    assert f"{rank} modulo" in capsys.readouterr().out


REFUSED = {
    "no file": (["none.npy"], 2, "cannot read"),
    "no matrix": (["cube.npy"], 2, "a matrix is expected"),
    "text": (["words.npy"], 2, "have no residues here"),
    "no npy": (["garbage.npy"], 2, "cannot read"),
    "infinite": (["infinite.npy"], 2, "inf"),
    "little memory": (["small.npy", "--max-memory", "1M"], 3, "--max-memory"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    for place, matrix in (
        ("cube", np.zeros((2, 2, 2))),
        ("words", np.array([["a"]])),
        ("infinite", np.array([[1.0, np.inf]])),
        ("small", np.eye(3)),
    ):
        np.save(f"{place}.npy", matrix)
    (tmp_path / "garbage.npy").write_bytes(b"garbage")
    arguments, code, message = REFUSED[name]
    assert run(["rank", *arguments]) == code
    assert message in capsys.readouterr().err
