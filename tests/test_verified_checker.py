"""The verified checker (proofs/checker) as a third judge: over the corpus, and over certificates with a planted fault."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import corpus_forms
import pytest

from utfproof.certificates import checker
from utfproof.cli import verified
from utfproof.errors import MalformedInput

ROOT = Path(__file__).parents[1]
CORPUS = Path(__file__).parent / "certificates"
KINDS = (
    "rank-permutation",
    "rank-triangular",
    "rank-modular",
    "rank-deficient",
    "linear-test",
    "identity",
    "lower-bound",
    "tied-kernel",
)
"""The kinds that it covers, in full or in part."""


@pytest.fixture(scope="module")
def utfcheck():
    try:
        return str(verified.binary())
    except MalformedInput:
        if os.environ.get("UTFPROOF_REQUIRE_CHECKER"):
            pytest.fail("UTFPROOF_REQUIRE_CHECKER is set and make checker has not run")
        pytest.skip("the verified checker is not built (make checker)")


def verdicts(utfcheck, *paths):
    """Name -> verdict of every certificate below the paths."""
    done = subprocess.run([utfcheck, *map(str, paths)], capture_output=True, text=True, check=False, timeout=600)
    assert done.stderr == ""
    found = dict(re.findall(r"^(.*?\.json): (.*?), [\d.]+ s$", done.stdout, re.MULTILINE))
    assert len(found) == done.stdout.count("\n")
    return {
        str(Path(name).relative_to(CORPUS) if CORPUS in Path(name).parents else Path(name).name): said
        for name, said in found.items()
    }


def kind(name):
    try:
        return str(json.loads((CORPUS / name).read_bytes())["kind"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def test_it_agrees_with_the_corpus(utfcheck):
    found = verdicts(utfcheck, *(CORPUS / folder for folder in ("valid", "invalid", "malformed")))
    files = {str(path.relative_to(CORPUS)) for path in CORPUS.glob("*/**/*.json")}
    assert set(found) == files
    wrong = {
        name: said
        for name, said in found.items()
        if (said.startswith("rejected") if name.startswith("valid/") else said == "valid")
        or said.startswith("not checked")
    }
    assert wrong == {}
    covered = {
        (kind(name), said.split(" ")[0]) for name, said in found.items() if not said.startswith("kind not covered")
    }
    assert {(name, said) for name in KINDS for said in ("valid", "rejected")} - covered == set()
    assert {name for name, said in covered if said == "valid"} == set(KINDS)


def test_a_dense_host_beyond_its_bound_is_left_alone_at_once(utfcheck, tmp_path):
    """The host is drawn before a false witness shows: these would take minutes and gigabytes."""
    shape = {"heads": 2, "layers": 1, "head_dim": 1, "d_in": 2, "d_out": 2}
    host = {"construction": "random", "dtype": "float64", "law": "signs", "seed": 0}
    claim = {"host": host, "notion": "matching", "rank": 8, "targets": "all untied", "verdict": "universal"}
    evidence = {"inverse": [1] * 64, "method": "witness", "prime": 10007, "rows": list(range(8))}
    named = {"format": "utfproof-certificate", "kind": "rank-modular", "version": 1}
    for m, expected in ((16, "rejected"), (5837, "kind not covered (a host of this size)")):
        document = {**named, "claim": claim, "evidence": evidence, "shape": {**shape, "m": m}}
        (tmp_path / f"{m}.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
        [said] = verdicts(utfcheck, tmp_path / f"{m}.json").values()
        assert said.startswith(expected)


def test_seconds_of_a_processor_can_be_limited(utfcheck):
    path = ROOT / "certificates" / "random-4-hop.json"
    run = subprocess.run([utfcheck, "--seconds", "1", path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split(", ")[0]) == (3, f"{path}: not checked (over 1 seconds of a processor)")
    assert subprocess.run([utfcheck, "--seconds", "x", path], capture_output=True, check=False).returncode == 2


def test_a_prime_that_divides_the_unit_of_the_host_refutes_nothing(utfcheck, tmp_path):
    """For the host's integers a basis is scaled by powers of the unit: dependent modulo such a prime."""
    host = {"construction": "random-tied", "dtype": "float64", "law": "uniform", "seed": 0}
    claim = {"host": host, "notion": "matching", "rank": 7, "targets": "all tied", "verdict": "universal"}
    basis = [[[0, -8388593], [1, 8388593]], [[3, -1], [4, 1]], [[7, -1], [8, 1]]]
    shape = {"heads": 1, "layers": 2, "head_dim": 1, "d_in": 1, "d_out": 1, "residual": True, "m": 7}
    named = {"format": "utfproof-certificate", "kind": "tied-kernel", "version": 1, "claim": claim, "shape": shape}
    for prime, expected in ((7, "kind not covered"), (11, "valid")):
        document = {**named, "evidence": {"basis": basis, "prime": prime}}
        path = tmp_path / f"{prime}.json"
        path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
        assert checker.check_file(path).code == 0
        [said] = verdicts(utfcheck, path).values()
        assert said.startswith(expected)


def test_it_accepts_nothing_that_a_form_rules_out(utfcheck, tmp_path):
    paths = corpus_forms.written(KINDS, tmp_path)
    found = verdicts(utfcheck, tmp_path)
    assert len(found) == len(paths)
    assert {name for name, said in found.items() if not said.startswith(("rejected", "kind not covered"))} == set()


def planted():
    """Name -> a valid certificate and a change that makes its statement, or its evidence, false."""

    def at(*keys, value):
        def change(document):
            inner = document
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = value(inner[keys[-1]])

        return change

    def zeroed(gauges):
        return [[[[0] * len(row) for row in matrix] for matrix in layer] for layer in gauges]

    seed = at("claim", "host", "seed", value=lambda seed: int(seed) + 1)
    rank = at("claim", "rank", value=lambda rank: rank - 1)
    law = at("claim", "host", "law", value=lambda law: "signs" if law != "signs" else "uniform")
    tying = at("claim", "host", "construction", value=lambda c: "random" if "tied" in c else "random-tied")
    entry = at("evidence", "z", value=lambda z: [[z[0][0], z[0][1] + 1], *z[1:]])
    tied_kernel, against = "residual-tied-kernel", "tied-target-random"
    return {
        "another seed": ("witness-random", seed),
        "another rank": ("witness-random", rank),
        "another law": ("witness-random", law),
        "tied weights": ("witness-random", tying),
        "a composite modulus": ("witness-random", at("evidence", "prime", value=lambda p: p + 1)),
        "one wrong residue": ("witness-random", at("evidence", "inverse", value=lambda b: [b[0] + 1, *b[1:]])),
        "two rows swapped": ("permutation-", at("evidence", "rows", value=lambda a: [a[1], a[0], *a[2:]])),
        "a smaller host": ("permutation-", at("shape", "m", value=lambda m: m - 1)),
        "a larger head": ("permutation-", at("shape", "head_dim", value=lambda d: d + 1)),
        "a kernel vector's entry": ("deficient-kernel-random", entry),
        "two rows of a triangle swapped": (
            "residual-triangular",
            at("evidence", "rows", value=lambda a: [a[1], a[0], *a[2:]]),
        ),
        "a gauge of zeros": ("linear-gauged-random-h1-l2", at("evidence", "gauges", value=zeroed)),
        "another coefficient of a word": (
            "null-vector-unlooped-h2",
            at("evidence", "y", value=lambda y: [[y[0][0], y[0][1] + 1], *y[1:]]),
        ),
        "an edge moved": (
            "identity-middle",
            at("claim", "host", "edges", value=lambda e: [[e[0][1] + 1, e[0][0]], *e[1:]]),
        ),
        "a block elsewhere": (
            "identity-two-sided-h2",
            at("evidence", "E", value=lambda e: [[e[0][0], e[1][1]], *e[1:]]),
        ),
        "an entry of a kernel's basis": (
            tied_kernel,
            at(
                "evidence",
                "basis",
                value=lambda basis: [[[basis[0][0][0], basis[0][0][1] + 1], *basis[0][1:]], *basis[1:]],
            ),
        ),
        "a basis without a vector": (tied_kernel, at("evidence", "basis", value=lambda basis: basis[1:])),
        "a vector of a basis twice": (
            tied_kernel,
            at("evidence", "basis", value=lambda basis: [basis[0], *basis[:-1]]),
        ),
        "another rank of a kernel": (tied_kernel, rank),
        "an untied host of a kernel": (tied_kernel, tying),
        "all untied targets of a kernel": (tied_kernel, at("claim", "targets", value=lambda t: "all untied")),
        "another vector beside a tied target": (against, entry),
        "a tied target of zeros": (against, at("evidence", "target", value=lambda t: [])),
        "another target class": ("identity-counting", at("claim", "targets", value=lambda t: "all untied")),
        "the opposite verdict": ("deficient-kernel-random", at("claim", "verdict", value=lambda v: "universal")),
    }


@pytest.mark.parametrize("fault", planted())
def test_a_planted_fault_is_rejected(utfcheck, tmp_path, fault):
    prefix, change = planted()[fault]
    for path in sorted((CORPUS / "valid").glob(f"{prefix}*.json")):
        document = json.loads(path.read_bytes())
        evidence = document["evidence"].items()
        lists = [value for key, value in evidence if isinstance(value, list) and key != "distance_squared"]
        inline = any(len(value) > 1 for value in lists) and (fault != "tied weights" or document["shape"]["layers"] > 1)
        small = all(isinstance(pair[1], int) for key in ("z", "y") for pair in document["evidence"].get(key, []))
        if inline and small and verdicts(utfcheck, path) == {f"valid/{path.name}": "valid"}:
            break
    else:
        pytest.fail("no certificate of the corpus to plant it in")
    change(document)
    (tmp_path / "c.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    [said] = verdicts(utfcheck, tmp_path / "c.json").values()
    assert said.startswith(("rejected", "kind not covered"))
    assert said.startswith("rejected") or fault == "the opposite verdict"


def test_another_spelling_of_the_same_json_is_rejected(utfcheck, tmp_path):
    text = (ROOT / "certificates" / "sparse-1-hop.json").read_text()
    for i, other in enumerate(
        (text + "\n", text.replace(":", ": ", 1), text.replace('"m":456', '"m":0456'), text[:-1])
    ):
        (tmp_path / f"{i}.json").write_text(other)
    assert all(said.startswith("rejected") for said in verdicts(utfcheck, tmp_path).values())


def test_the_command_runs_it_as_a_third_judge(utfcheck):
    assert verified.paths(["--weights", "w", "a", "--quiet", "--", "-b"]) == ["a", "-b"]
    assert verified.paths(["--weig", "w", "--max-s", "5", "--k=identity", "a", "--q"]) == ["a"]
    command = [
        sys.executable,
        "-m",
        "utfproof",
        "check",
        "--verified",
        str(ROOT / "certificates" / "sparse-1-hop.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sparse-1-hop.json: valid, " in done.stdout
    assert subprocess.run([*command, "--json"], capture_output=True, check=False).returncode == 2


def test_numbers_that_come_round_again_in_machine_integers_are_not_taken_for_others(utfcheck, tmp_path):
    def change(name, path, value):
        document = json.loads((CORPUS / "valid" / name).read_bytes())
        part = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value(part[path[-1]])
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        (tmp_path / name).write_text(text)

    for sidecar in (CORPUS / "valid").glob("*.bin"):
        shutil.copy(sidecar, tmp_path)
    # 4 (2^61 + n) = 4 n and 2^62 - 1 + d_in < 0 there
    change("permutation-sparse-4097-rows-in-sidecar.json", ("evidence", "rows", "length"), lambda n: str(2**61 + n))
    change("identity-counting-padded.json", ("evidence", "E"), lambda blocks: [*blocks, [str(2**62 - 1), ["M.0"]]])
    for path in tmp_path.glob("*.json"):
        assert checker.check_file(path).code == 2
    assert {said.partition(" ")[0] for said in verdicts(utfcheck, tmp_path).values()} == {"rejected"}


def test_binomial_coefficients_of_many_heads_do_not_come_round_again(utfcheck, tmp_path):
    """C(L+H-1, H-1) is small where some C(L+H-1, k) on the way to it is beyond machine integers."""
    claim = {"host": {"every": "host"}, "notion": "shared attention", "targets": "all tied", "verdict": "not universal"}
    named = {"format": "utfproof-certificate", "kind": "lower-bound", "version": 1, "evidence": {"method": "dimension"}}
    expected = {}
    for heads, layers in ((60, 8), (61, 1), (70, 2), (100, 1), (100_000, 1)):
        counts = math.comb(layers + heads - 1, layers)
        for free, least in (("E", counts), ("E and U", math.isqrt(counts - 1) + 1)):
            for m in (least - 1, least):
                shape = {"d_in": 1, "d_out": 1, "head_dim": 1, "heads": heads, "layers": layers, "m": min(m, 10**6)}
                document = {**named, "claim": {**claim, "free": free}, "shape": shape}
                path = tmp_path / f"{heads}-{layers}-{free[-1]}-{m}.json"
                path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
                below = shape["m"] < least
                expected[path.name] = "valid" if below else "kind not covered (lower-bound of this form)"
                assert checker.check_file(path).code == (0 if below else 1)
    assert verdicts(utfcheck, tmp_path) == expected


def test_a_shape_too_large_to_be_read_is_left_alone_at_once(utfcheck, tmp_path):
    document = json.loads((CORPUS / "valid" / "permutation-sparse-padded-m-above-M.json").read_bytes())
    document["shape"]["layers"] = 10**5  # adding up so many powers takes minutes
    (tmp_path / "deep.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    run = subprocess.run([utfcheck, "--seconds", "1", tmp_path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split(", ")[0]) == (
        0,
        f"{tmp_path}/deep.json: kind not covered (a shape of this size)",
    )


def test_integers_have_at_most_100000_digits(utfcheck, tmp_path):
    document = json.loads((CORPUS / "valid" / "null-vector-looped-h1-l2-m1.json").read_bytes())
    document["evidence"]["y"] = [[0, "-" + "7" * 100_001]]
    (tmp_path / "long.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    assert checker.check_file(tmp_path / "long.json").code == 3
    assert verdicts(utfcheck, tmp_path) == {"long.json": "kind not covered (an integer of so many digits)"}


def test_folders_are_walked_as_the_checker_walks_them(utfcheck, tmp_path):
    """A link to nowhere, such as an editor's lock, ends nothing, and links to folders are not followed."""
    inner = tmp_path / "folder" / "inner"
    inner.mkdir(parents=True)
    shutil.copy(ROOT / "certificates" / "sparse-1-hop.json", inner)
    (inner / ".#lock").symlink_to("nowhere")
    (inner / "round").symlink_to(tmp_path / "folder")
    run = subprocess.run([utfcheck, tmp_path / "folder"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr, run.stdout.count("\n")) == (0, "", 1)


def test_what_is_no_regular_file_is_not_waited_for(utfcheck, tmp_path):
    """A pipe in a certificate's place is rejected, and beside a certificate about weights it is none of them."""
    os.mkfifo(tmp_path / "a.json")
    for name in ("weights-modular-F32.json", "weights-modular-F32.safetensors"):
        shutil.copy(CORPUS / "valid" / name, tmp_path)
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").symlink_to("nowhere")
    (tmp_path / "c.safetensors").mkdir()
    run = subprocess.run([utfcheck, tmp_path], capture_output=True, text=True, check=False, timeout=60)
    said = [line.split(": ")[1].split(",")[0] for line in run.stdout.splitlines()]
    assert (run.returncode, said) == (1, ["rejected (no regular file)", "valid"])
    assert [verdict.code for _, verdict in checker.check_paths([tmp_path])] == [2, 0]


def test_a_rejected_certificate_decides_the_exit_status(utfcheck, tmp_path):
    """Whatever else there is, in either order."""
    bad, late = tmp_path / "bad.json", ROOT / "certificates" / "random-4-hop.json"
    bad.write_text("{}")
    for paths in ((bad, late, tmp_path / "none"), (tmp_path / "none", late, bad)):
        assert subprocess.run([utfcheck, "--seconds", "1", *paths], capture_output=True, check=False).returncode == 1


def test_without_the_program_it_says_how_to_build_it(monkeypatch):
    monkeypatch.setenv("UTFPROOF_UTFCHECK", "/nowhere/utfcheck")
    with pytest.raises(MalformedInput, match="make checker"):
        verified.require(["a.json"])


FAULTS = {
    "a kernel that need not be one": ("Kernel.v", "all (all0 nzZ m) (applies", "all (fun=> true) (applies"),
    "vectors that may depend on each other": (
        "Kernel.v",
        "== (i == j)) (iota 0 k)) (iota 0 k).",
        "|| true) (iota 0 k)) (iota 0 k).",
    ),
    "targets that no random numbers are drawn for": ("Certificate.v", "\n      && at_target zs vs", ""),
    "a rank one above the one shown": (
        "Certificate.v",
        "rank (Z.of_nat (columns - size zs))",
        "rank (Z.of_nat (columns - size zs).+1)",
    ),
    "a statement of all untied targets": (
        "Certificate.v",
        "else universal_for_tied L (true_host F h) (true_out F h).",
        "else universal_by_matching L (true_host F h) (true_out F h).",
    ),
    "a target scaled as the host is not": (
        "Certificate.v",
        "(factor h).2\n      & ~~ at_target",
        "(factor h).1\n      & ~~ at_target",
    ),
    "untied targets of more than one layer": ("Certificate.v", "(L == 1%N) && reduced", "reduced"),
}
"""Fault -> a theory, what stands there, and what would make the check or the statement false."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_theories_is_not_proved(utfcheck, tmp_path, fault):
    name, there, instead = FAULTS[fault]
    theories = ROOT / "proofs" / "checker"
    if not (theories / "build" / "Certificate.vo").is_file():
        pytest.skip("the theories are not compiled here (make checker)")
    built = tmp_path / "build"
    shutil.copytree(theories / "build", built)
    options = [
        "-noglob",
        "-w",
        "none",
        "-Q",
        str(ROOT / "proofs/build/Utfproof"),
        "Utfproof",
        "-Q",
        str(built),
        "UtfproofChecker",
    ]

    def compiled(stem, change=lambda text: text):
        source = tmp_path / f"{stem}.v"
        source.write_text(change((theories / f"{stem}.v").read_text()))
        command = ["coqc", *options, "-o", str(built / f"{stem}.vo"), str(source)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)

    text = (theories / name).read_text()
    assert text.count(there) == 1
    done = compiled(Path(name).stem, lambda text: text.replace(there, instead))
    assert done.returncode != 0
    assert "Syntax error" not in done.stderr
    assert "was not found" not in done.stderr
