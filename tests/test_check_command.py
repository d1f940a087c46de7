"""How `check` finds its way among files: weights among neighbours, what is skipped, the order of verdicts, limits that are
those of the format's page, estimates that are near what a check takes."""

import dataclasses
import hashlib
import json
import re
import time
from pathlib import Path

import corpus
import numpy as np
import pytest
from judges import verdicts_below

from utfproof.attention import parse_kernel
from utfproof.certificates import checker
from utfproof.certificates.enclosures import enclosure_certificate
from utfproof.certificates.prover import certify_weights
from utfproof.cli.app import run as command
from utfproof.constructions import build_host, random_target
from utfproof.emulation.compare import random_input
from utfproof.emulation.enclosure import enclose, exact_embedding
from utfproof.shapes import Shape
from utfproof.systems import Target
from utfproof.weights import write_host

TINY = (1, 1, 1, 1, 1)
PAGE = Path(__file__).parent.parent / "docs" / "certificate-format.md"


def stored(folder, seed, name, dims=TINY, m=4):
    """A certificate and its weights in a folder."""
    path = folder / f"{name}.safetensors"
    write_host(path, build_host("random", Shape(*dims), m, seed=seed))
    certify_weights(path).write(folder / f"{name}.json")
    return folder / f"{name}.json"


def run(capsys, *arguments):
    code = checker.main([*map(str, arguments)])
    return code, capsys.readouterr()


# --- weights among other files ------------------------------------------------------------------------------------------


def sparse_file(path, header, size=10 * 2**30):
    """A file of 10 GiB, all holes but for its header."""
    text = json.dumps(header).encode()
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(size + 8 + len(text))


def entry(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def large_host(size=10 * 2**30):
    """The header of a host of another shape."""
    held, at = {}, 0
    for name, sizes in (("R_K", [1, 1, 1, 1]), ("R_Q", [1, 1, 1, 1]), ("R_V", [1, 1, 1, 1]), ("U", [1, (size - 3)])):
        count = sizes[-1]
        held[name] = entry("U8", sizes, at, at + count)
        at += count
    return held


NEIGHBOURS = {
    "zeros": None,
    "another model": {"wte.weight": entry("F32", [2**18, 10 * 2**10], 0, 10 * 2**30)},
    "another host": large_host(),
}


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_huge_neighbour_costs_nothing(neighbour, tmp_path, monkeypatch):
    path = stored(tmp_path, 1, "m")
    header = NEIGHBOURS[neighbour]
    with (tmp_path / "a.safetensors").open("wb") as out:
        out.truncate(10 * 2**30)
    if header is not None:
        sparse_file(tmp_path / "a.safetensors", header)
    start = time.process_time()
    assert checker.check_file(path).code == 0
    assert time.process_time() - start < 1


def counted(digest, read):
    def noted(path, *arguments):
        read.append(path)
        return digest(path, *arguments)

    return noted


def test_many_certificates_beside_many_weights_cost_linearly(tmp_path, monkeypatch):
    count = 30
    for seed in range(count):
        stored(tmp_path, seed, f"c{seed}")
    read = []
    monkeypatch.setattr(checker, "read_weights", counted(checker.read_weights, read))
    assert {verdict.code for _, verdict in verdicts_below([tmp_path])} == {0}
    assert len(read) <= 2 * count


def test_weights_named_on_the_command_line_come_first(tmp_path, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    path = stored(here, 1, "m")
    given = (here / "m.safetensors").rename(there / "given.safetensors")
    stored(here, 2, "other")
    assert run(capsys, path)[0] == 2
    assert run(capsys, path, "--weights", given)[0] == 0
    assert run(capsys, path, "--weights", there)[0] == 0
    assert run(capsys, path, "--weights", tmp_path / "nowhere")[0] == 2


def test_what_changes_in_a_run_is_hashed_anew(tmp_path):
    """What is remembered of a file decides nothing."""
    path = stored(tmp_path, 1, "m")
    run = checker.Options()
    assert checker.judge(path, run).code == 0
    raw = bytearray((tmp_path / "m.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "m.safetensors").write_bytes(raw)
    verdict = checker.judge(path, run)
    assert (verdict.code, verdict.message[:10]) == (2, "no weights")


def test_digests_are_whole_in_the_json(tmp_path, capsys):
    path = stored(tmp_path, 1, "m")
    _, said = run(capsys, "--json", path)
    digest = json.loads(path.read_bytes())["claim"]["host"]["weights"]
    assert json.loads(said.out)["results"][0]["weights"] == digest


# --- what is not looked at ----------------------------------------------------------------------------------------------


def test_what_is_skipped_is_said(tmp_path, capsys):
    folder = tmp_path / "some"
    folder.mkdir()
    stored(folder, 1, "m")
    (folder / "upper.JSON").write_bytes(b"x")
    (folder / "notes.md").write_bytes(b"x")
    (folder / "LICENSE").write_bytes(b"x")
    (tmp_path / "elsewhere").mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    code, said = run(capsys, folder)
    assert (code, said.err) == (0, "")
    valid, link = said.out.splitlines()
    assert valid.startswith("checked")
    assert link == f"skipped   {folder / 'link'}: a link to a folder is not followed; name it to have it checked"
    _, said = run(capsys, "--json", folder)
    assert [entry["path"] for entry in json.loads(said.out)["skipped"]] == [str(folder / "link")]


# --- the order of verdicts, and limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[-1, 1, 2], [0, 1, 2**32], [0, 1, 2**64]])
def test_form_is_judged_before_content(rows, tmp_path):
    """A row that is out of range is invalid, unless something is malformed."""
    document = corpus.document("rank-modular", "random", TINY, 4, {}, rank=3)
    document["evidence"] = {
        "inverse": [1, 0, 0, 0, 1, 0, 0, 0, 1],
        "method": "witness",
        "prime": 101,
        "rows": [corpus.written(row) for row in rows],
    }

    def judged():
        path = tmp_path / "case.json"
        path.write_bytes(corpus.canonical(document))
        code = checker.check_file(path).code
        return code

    assert judged() == 1
    document["evidence"]["inverse"][0] = -1
    assert judged() == 1
    document["evidence"]["inverse"].append(0)
    assert judged() == 2


def test_limits_are_those_of_the_page():
    table = PAGE.read_text(encoding="utf-8").split("*Numeric limits.*")[1]
    said = [int(number) for number in re.findall(r": ([0-9]+)$", table, re.MULTILINE)]
    inline = checker.INLINE
    assert said == [
        *(checker.MAX_JSON, checker.MAX_DIGITS, checker.MAX_WORD_BITS, inline, inline),
        *(checker.MAX_HEADER, checker.MAX_LAYERS, checker.MAX_ROWS, checker.MAX_NUMBERS, checker.MAX_BLOCKS),
    ]


def test_a_length_beyond_machine_integers_is_over_a_limit(tmp_path):
    shape = {"heads": str(2**53), "layers": 1, "head_dim": str(2**53), "d_in": 2, "d_out": 2, "m": 1}
    claim = {"host": {"every": "host"}, "notion": "matching", "targets": "all untied", "verdict": "not universal"}
    evidence = {"method": "span", "prime": 2**31 - 1, "targets": [[["W_Q", 1, 0, 0, 0, 1]]]}
    named = {"format": "utfproof-certificate", "version": 2, "kind": "lower-bound"}
    (tmp_path / "c.json").write_bytes(corpus.canonical({**named, "shape": shape, "claim": claim, "evidence": evidence}))
    assert checker.check_file(tmp_path / "c.json").code == checker.LIMIT


# --- what a certificate is about ----------------------------------------------------------------------------------------


def enclosure_of(target):
    shape = Shape(2, 1, 2, 2, 2)
    host, X, kernel = build_host("tied", shape), random_input(shape, 3, 0), parse_kernel("softmax", 2, 2)
    E = exact_embedding(host, target).E
    found = enclose(host, target, E, X, kernel, 5)
    return enclosure_certificate({"construction": "tied"}, host, target, E, X, kernel, found)


def test_reports_of_other_targets_differ(tmp_path):
    """With the target and E zeroed the outputs are as near as before; the report says what was compared."""
    shape = Shape(2, 1, 2, 2, 2)
    target = random_target(shape, seed=1)
    zero = Target(shape, *(np.zeros_like(getattr(target, name)) for name in ("W_Q", "W_K", "W_V", "W_O")))
    messages, facts = set(), []
    for name, found in {"drawn": enclosure_of(target), "zero": enclosure_of(zero)}.items():
        found.write(tmp_path / f"{name}.json")
        verdict = checker.check_file(tmp_path / f"{name}.json")
        assert verdict.code == 0
        messages.add(verdict.message)
        facts.append(verdict.facts)
        for part in ("target", "E", "X"):
            digest = hashlib.sha256(corpus.canonical(found.document["evidence"][part])).hexdigest()
            assert verdict.facts[part] == found.document["claim"][part] == digest
            assert f"{part} {digest[:16]}" in verdict.message
    assert len(messages) == 2
    assert {part for part in ("target", "E", "X") if facts[0][part] != facts[1][part]} == {"target", "E"}


def test_the_prover_binds_the_stream(tmp_path):
    """The digest of a host with a residual stream is not that of the same numbers without one."""
    digests = set()
    for residual in (False, True):
        shape = Shape(1, 1, 1, 1, 1, residual=residual)
        path = tmp_path / f"{residual}.safetensors"
        host = build_host("random", Shape(1, 1, 1, 1, 1), 4)
        write_host(path, dataclasses.replace(host, shape=shape))
        found = certify_weights(path)
        found.write(tmp_path / f"{residual}.json")
        assert checker.check_file(tmp_path / f"{residual}.json").code == 0
        digests.add(found.document["claim"]["host"]["weights"])
    assert len(digests) == 2


def test_a_refutation_is_valid_and_not_what_universal_requires(tmp_path, capsys):
    shape = ["-H", "1", "-L", "1", "-d", "1", "--d-in", "1"]
    assert command(["certify", "tied", *shape, "-o", str(tmp_path / "good.json")]) == 0
    assert command(["check", str(tmp_path), "--require", "universal", "--require", "checked"]) == 0
    assert command(["certify", "random", *shape, "--m", "2", "-o", str(tmp_path / "small.json")]) == 1
    assert command(["check", str(tmp_path)]) == 0
    capsys.readouterr()
    assert command(["check", str(tmp_path), "--require", "universal"]) == 4
    _, err = capsys.readouterr()
    assert f"not every certificate shows that its host is universal: {tmp_path / 'small.json'}" in err
    assert command(["check", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().out.startswith("MISSING")
