"""Rank beyond memory: the engine in memory as the judge, runs that were killed, files that have changed, planted faults."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gfp import FAMILIES, LARGEST, PRIMES, SHAPES, matrices
from tiers import full_where

from utfproof.cli.app import run
from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.exact import gfp, out_of_core
from utfproof.exact.out_of_core import ColumnSource, memory_needed, rank_profile_on_disk

pytestmark = pytest.mark.numerical
P = gfp.DEFAULT_PRIMES[0]


@pytest.fixture
def width(monkeypatch):
    """Sets how many columns a block has."""

    def of(columns):
        monkeypatch.setattr(out_of_core, "block_width", lambda rows, all_of_them, limit=None: min(columns, all_of_them))

    return of


def source(matrix, p, name="a matrix", asked=None):
    def fill(part, out):
        if asked is not None:
            asked.append(part.start)
        out[:] = gfp.centred(matrix[:, part], p)

    return ColumnSource(name, *matrix.shape, p, fill)


def deficient(rng, m, n, rank, p=P):
    left, right = (rng.integers(0, p, shape).astype(float) for shape in ((m, rank), (rank, n)))
    return gfp.multiply(gfp.centred(left, p), gfp.centred(right, p), p)


@pytest.mark.parametrize("columns", full_where(lambda width: width != 7, [1, 7, 64, 1000]))
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_profiles_are_those_of_the_engine_in_memory(tmp_path, width, family, columns):
    width(columns)
    for index, shape in enumerate(SHAPES if columns > 1 else SHAPES[:8]):
        for p in PRIMES[index % 2 :: 2]:
            matrix = FAMILIES[family](np.random.default_rng(index), *shape, p)
            found = rank_profile_on_disk(source(matrix, p), tmp_path / f"{index}-{p}")
            assert found.profile == gfp.rank_profile(matrix, p), (shape, p)
            assert found.rank == gfp.rank(matrix, p, engine="flint")


@settings(max_examples=60, deadline=None)
@given(matrices(), st.integers(1, 30))
def test_blocks_of_any_width_give_one_answer(tmp_path_factory, drawn, columns):
    matrix, p = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_core, "block_width", lambda rows, every, limit=None: min(columns, every))
        found = rank_profile_on_disk(source(matrix, p), tmp_path_factory.mktemp("blocks") / "here")
    assert found.profile == gfp.rank_profile(matrix, p, engine="flint")


def test_sums_are_reduced_before_they_are_too_long(tmp_path, width, monkeypatch):
    """The largest prime leaves room for one product only; here nothing may be put off."""
    width(11)
    matrix = FAMILIES["random"](np.random.default_rng(0), 60, 60, LARGEST)
    assert gfp.block_length(LARGEST) == 1
    assert rank_profile_on_disk(source(matrix, LARGEST), tmp_path / "right").rank == 60


def killed_after(count):
    class Killed(BaseException):
        pass

    honest, done = out_of_core._Store.write, []

    def write(self, *given):
        if len(done) == count:
            raise Killed
        done.append(1)
        return honest(self, *given)

    return Killed, write


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_run_that_was_killed_goes_on(tmp_path, width, monkeypatch, count):
    width(9)
    matrix = deficient(np.random.default_rng(count), 50, 60, 33)
    killed, write = killed_after(count)
    with monkeypatch.context() as patch:
        patch.setattr(out_of_core._Store, "write", write)
        with pytest.raises(killed):
            rank_profile_on_disk(source(matrix, P), tmp_path)
    asked = []
    found = rank_profile_on_disk(source(matrix, P, asked=asked), tmp_path)
    assert found.profile == gfp.rank_profile(matrix, P)
    assert found.traffic.settled == count
    assert asked == list(range(9 * count, 60, 9))
    assert rank_profile_on_disk(source(matrix, P), tmp_path).traffic.settled == 7  # and there is nothing left to do


def test_columns_behind_the_last_pivot_are_not_asked_for(tmp_path, width):
    width(10)
    asked = []
    matrix = FAMILIES["random"](np.random.default_rng(0), 20, 200, P)
    assert rank_profile_on_disk(source(matrix, P, asked=asked), tmp_path).rank == 20
    assert asked == [0, 10]


@pytest.mark.parametrize("other", [{"name": "another"}, {"p": 101}, {"columns": 59}])
def test_blocks_of_another_matrix_are_refused(tmp_path, width, other):
    width(9)
    matrix = deficient(np.random.default_rng(0), 50, 60, 33)
    rank_profile_on_disk(source(matrix, P), tmp_path)
    asked = source(matrix[:, : other.get("columns", 60)], other.get("p", P), other.get("name", "a matrix"))
    with pytest.raises(MalformedInput, match="another matrix"):
        rank_profile_on_disk(asked, tmp_path)


@pytest.mark.parametrize("place", ["G", "positions", "length"])
def test_a_block_that_has_changed_is_seen(tmp_path, width, place):
    width(9)
    matrix = FAMILIES["random"](np.random.default_rng(0), 30, 30, P)
    rank_profile_on_disk(source(matrix, P), tmp_path)
    (tmp_path / "block-3.bin").unlink()  # so that there is something to do
    file = tmp_path / "block-0.bin"
    data = bytearray(file.read_bytes())
    at = {"G": 16 + 8 * 9 + 40, "positions": 16 + 4, "length": -1}[place]
    data = data[:at] if at < 0 else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    file.write_bytes(data)
    with pytest.raises(MalformedInput, match=r"block-0\.bin is not what was written"):
        rank_profile_on_disk(source(matrix, P), tmp_path)


def test_nothing_rests_on_a_block_that_has_changed(tmp_path, width):
    """Also where all blocks are there, and those without pivots, so that no G is applied again."""
    width(9)
    matrix = deficient(np.random.default_rng(0), 30, 30, 12)
    rank_profile_on_disk(source(matrix, P), tmp_path)
    for file in sorted(tmp_path.glob("block-*.bin")):
        written = file.read_bytes()
        for at in range(len(written)):
            file.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
            with pytest.raises(MalformedInput, match=rf"{file.name} is not what was written"):
                rank_profile_on_disk(source(matrix, P), tmp_path)
        file.write_bytes(written)


@pytest.mark.parametrize("other", [8, 10])
def test_blocks_of_another_width_are_refused(tmp_path, width, other):
    """Columns would be left out, or met twice."""
    width(9)
    matrix = FAMILIES["random"](np.random.default_rng(0), 30, 30, P)
    rank_profile_on_disk(source(matrix, P), tmp_path)
    told = tmp_path / "matrix.json"
    told.write_text(told.read_text().replace('"width": 9', f'"width": {other}'))
    with pytest.raises(MalformedInput, match=r"block-0\.bin is not what was written"):
        rank_profile_on_disk(source(matrix, P), tmp_path)


@pytest.mark.parametrize("rows", [100, 3000, 30000, 100000])
def test_blocks_fill_the_limit(rows):
    held = out_of_core.held_memory()
    limit = held + 8 * rows * rows // 10 + 2 * 2**20
    found = out_of_core.block_width(rows, rows, limit)
    assert memory_needed(rows, found) <= limit - held
    assert memory_needed(rows, 2 * found + 2) > limit - held - 2**20 - 2**22 or found == rows


def test_a_limit_too_small_is_refused_first(tmp_path):
    with pytest.raises(ResourceLimit, match="16 columns of a matrix of 100000 rows"):
        rank_profile_on_disk(ColumnSource("large", 10**5, 10**5, P, None), tmp_path / "none", max_memory=10**6)
    assert not (tmp_path / "none").exists()


FAULTS = {
    "an update is left out": ("_apply", lambda block, work, top, debt, *more: (work[len(top) :], debt)),
    "gaps stay open": ("_close_gaps", lambda work, positions: None),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_planted_faults_are_caught(tmp_path, width, monkeypatch, name):
    width(10)
    matrix = FAMILIES["late pivots"](np.random.default_rng(1), 40, 40, P)
    matrix[:, 30:] = gfp.centred(matrix[:, :10] + matrix[:, 10:20], P)
    honest = gfp.rank_profile(matrix, P)
    assert rank_profile_on_disk(source(matrix, P), tmp_path / "right").profile == honest
    monkeypatch.setattr(out_of_core, *FAULTS[name])
    assert rank_profile_on_disk(source(matrix, P), tmp_path / "wrong").profile != honest


# --- the command -------------------------------------------------------------------------------------------


def stored(path, matrix):
    if path.suffix == ".npy":
        np.save(path, matrix)
    else:
        from safetensors.numpy import save_file

        save_file({"A": matrix}, path)
    return str(path)


MATRICES = {
    "integers": lambda rng: rng.integers(-9, 9, (30, 40)),
    "floats": lambda rng: rng.normal(size=(40, 30)),
    "halves": lambda rng: rng.normal(size=(20, 20)).astype(np.float16),
    "deficient": lambda rng: rng.integers(-9, 9, (30, 5)) @ rng.integers(-9, 9, (5, 40)),
    "deficient by one": lambda rng: rng.integers(-9, 9, (30, 29)) @ rng.integers(-9, 9, (29, 40)),
}


@pytest.mark.parametrize("kind", [".npy", ".safetensors"])
@pytest.mark.parametrize("name", sorted(MATRICES))
def test_command(tmp_path, capsys, name, kind):
    matrix = MATRICES[name](np.random.default_rng(3))
    file = stored(tmp_path / f"matrix{kind}", matrix)
    assert run(["rank", file, "--json", "--folder", str(tmp_path / "blocks")]) == 0
    said = json.loads(capsys.readouterr().out)
    rank = np.linalg.matrix_rank(matrix.astype(float))
    assert said["rank"] == rank
    assert said["exact"] == (rank == min(matrix.shape))
    assert [len(said["dependent_rows"]), len(said["dependent_columns"])] == [size - rank for size in matrix.shape]
    assert run(["rank", file]) == 0
    assert f"{rank} modulo" in capsys.readouterr().out


def test_command_goes_on_with_the_same_file_only(tmp_path, capsys):
    """Of one size and name: another file, and the same one written anew."""
    rng, folder = np.random.default_rng(3), str(tmp_path / "blocks")
    (tmp_path / "other").mkdir()
    file, other = (stored(tmp_path / place, rng.normal(size=(9, 9))) for place in ("a.npy", "other/a.npy"))
    assert run(["rank", file, "--folder", folder]) == 0
    times = Path(file).stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run(["rank", other, "--folder", folder]) == 2
    assert run(["rank", file, "--folder", folder]) == 0
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))
    assert run(["rank", file, "--folder", folder]) == 2
    assert capsys.readouterr().err.count("another matrix") == 2


REFUSED = {
    "no file": (["none.npy"], 2, "cannot read"),
    "no matrix": (["cube.npy"], 2, "a matrix is expected"),
    "text": (["words.npy"], 2, "have no residues here"),
    "no npy": (["garbage.npy"], 2, "cannot read"),
    "infinite": (["infinite.npy"], 2, "inf"),
    "composite": (["small.npy", "--prime", "9"], 2, "odd prime"),
    "tensor of an npy": (["small.npy", "--tensor", "A"], 2, "--tensor belongs to"),
    "no such tensor": (["small.safetensors", "--tensor", "B"], 2, "holds A"),
    "little memory": (["small.npy", "--max-memory", "1M"], 3, "--max-memory"),
    "no folder": (["small.npy", "--folder", "none/none"], 2, "cannot make folder"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_command_refuses(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    for place, matrix in (
        ("cube", np.zeros((2, 2, 2))),
        ("words", np.array([["a"]])),
        ("infinite", np.array([[1.0, np.inf]])),
        ("small", np.eye(3)),
    ):
        np.save(f"{place}.npy", matrix)
    stored(tmp_path / "small.safetensors", np.eye(3))
    (tmp_path / "garbage.npy").write_bytes(b"garbage")
    arguments, code, message = REFUSED[name]
    assert run(["rank", *arguments]) == code
    assert message in capsys.readouterr().err
