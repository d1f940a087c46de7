"""The certificates in the repository: complete, valid, and byte for byte what `certify` writes today."""

from pathlib import Path

import pytest
from cases import TABLE_SHAPES

from utfproof.certificates import checker
from utfproof.certificates.prover import certify
from utfproof.shapes import Shape

FOLDER = Path(__file__).parents[1] / "certificates"
WITNESSED = ("2-hop", "4-hop")
"""Random hosts large enough that recomputing their rank takes a checker minutes."""
COMMITTED = [(construction, name) for construction in ("sparse", "tied", "random") for name in TABLE_SHAPES]
each = pytest.mark.parametrize(
    ("construction", "name"),
    [
        pytest.param(*pair, marks=pytest.mark.full if pair[0] == "random" and pair[1] != "1-hop" else ())
        for pair in COMMITTED
    ],
)


def test_nothing_else_is_there():
    expected = {f"{construction}-{name}.json" for construction, name in COMMITTED}
    assert {path.name for path in FOLDER.glob("*.json")} == expected
    assert len(list(FOLDER.glob("*.bin"))) == len(WITNESSED)
    assert {path.suffix for path in FOLDER.iterdir()} == {".json", ".bin"}


@each
def test_certify_writes_the_same(construction, name, tmp_path):
    witness = construction == "random" and name in WITNESSED
    written = certify(construction, Shape(*TABLE_SHAPES[name]), witness=witness).write(tmp_path / "c.json")
    assert written[-1].read_bytes() == (FOLDER / f"{construction}-{name}.json").read_bytes()
    for sidecar in written[:-1]:
        assert sidecar.read_bytes() == (FOLDER / sidecar.name).read_bytes()


@each
def test_the_checker_agrees(construction, name):
    verdict = checker.check_file(FOLDER / f"{construction}-{name}.json", checker.Options(numpy=True))
    assert verdict.code == 0
    assert verdict.message.startswith("universal by matching")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TABLE_SHAPES)
def test_the_checker_agrees_with_the_standard_library_alone(name):
    assert checker.check_file(FOLDER / f"random-{name}.json").code == 0


@pytest.mark.full
@pytest.mark.parametrize("name", WITNESSED)
def test_a_witness_with_one_wrong_entry_is_rejected(name, tmp_path):
    """The sidecar renamed to its new digest, so that only the arithmetic can tell."""
    import hashlib
    import json

    import rfc8785

    document = json.loads((FOLDER / f"random-{name}.json").read_bytes())
    reference = document["evidence"]["inverse"]
    content = bytearray((FOLDER / f"{reference['sidecar']}.bin").read_bytes())
    content[-2:] = ((int.from_bytes(content[-2:], "little") + 1) % document["evidence"]["prime"]).to_bytes(2, "little")
    reference["sidecar"] = hashlib.sha256(content).hexdigest()
    (tmp_path / f"{reference['sidecar']}.bin").write_bytes(content)
    (tmp_path / "c.json").write_bytes(rfc8785.dumps(document))
    verdict = checker.check_file(tmp_path / "c.json", checker.Options(numpy=True))
    assert (verdict.code, "the witness is not the inverse" in verdict.message) == (1, True)
