"""The verified checker (proofs/checker) on its own: what it prints and refuses. test_corpus has it judge seeds and mutants."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from corpus import canonical, derived
from judges import UTFCHECK, verdicts_below

from utfproof.certificates import checker, checking
from utfproof.certificates.dimensions import dimension_certificate
from utfproof.certificates.lower_bounds import null_vector_certificate
from utfproof.certificates.prover import certify, certify_weights
from utfproof.constructions import build_host
from utfproof.shapes import Shape
from utfproof.weights import write_host

ROOT = Path(__file__).parents[1]
KINDS = (
    "rank-permutation",
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
    if not UTFCHECK.is_file():
        if os.environ.get("UTFPROOF_REQUIRE_CHECKER"):
            pytest.fail("UTFPROOF_REQUIRE_CHECKER is set and make checker has not run")
        pytest.skip("the verified checker is not built (make checker)")
    return str(UTFCHECK)


def verdicts(utfcheck, *paths):
    """Name -> verdict of every certificate below the paths."""
    done = subprocess.run([utfcheck, *map(str, paths)], capture_output=True, text=True, check=False, timeout=600)
    assert done.stderr == ""
    found = dict(re.findall(r"^(.*?\.json): (.*?)(?:, proved .*)?, [\d.]+ s$", done.stdout, re.MULTILINE))
    assert len(found) == done.stdout.count("\n")
    return {Path(name).name: said for name, said in found.items()}


def test_it_prints_what_it_proved(utfcheck, tmp_path):
    certify("tied", Shape(2, 2, 1, 2)).write(tmp_path / "a.json")
    (tmp_path / "b\nevil.json: valid, 0.0 s.json").write_text('{"format":"utfproof-certificate"}')
    done = subprocess.run([utfcheck, tmp_path], capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    shape = "d_in=2 d_out=2 head_dim=1 heads=2 layers=2 m=20"
    proved = f"rank-permutation: universal by matching, targets: all untied; host: tied; {shape}, "
    assert first.startswith(f"{tmp_path}/a.json: valid, proved {proved}")
    assert second.startswith(f"{tmp_path}/b\\x0aevil.json: valid, 0.0 s.json: rejected")


def test_what_it_does_not_cover_is_not_valid(utfcheck, tmp_path):
    certify("residual-key", Shape(2, 2, 2, 1, residual=True)).write(tmp_path / "a.json")
    done = subprocess.run([utfcheck, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, "kind not covered" in done.stdout) == (4, True)
    assert check(utfcheck, "--require", "proved", tmp_path)[0] == 4


def test_other_json_in_a_folder_is_passed_over(utfcheck, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert subprocess.run([utfcheck, tmp_path], capture_output=True, check=False).returncode == 2
    certify("tied", Shape(1, 1, 1, 1)).write(tmp_path / "a.json")
    assert verdicts(utfcheck, tmp_path) == {"a.json": "valid"}


def test_a_dense_host_beyond_its_bound_is_left_alone_at_once(utfcheck, tmp_path):
    """The host is drawn before a false witness shows: these would take minutes and gigabytes."""
    shape = {"heads": 2, "layers": 1, "head_dim": 1, "d_in": 2, "d_out": 2}
    host = {"construction": "random", "dtype": "float64", "law": "signs", "seed": 0}
    claim = {"host": host, "notion": "matching", "rank": 8, "targets": "all untied", "verdict": "universal"}
    evidence = {"inverse": [1] * 64, "method": "witness", "prime": 10007, "rows": list(range(8))}
    named = {"format": "utfproof-certificate", "kind": "rank-modular", "version": 2}
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
    named = {"format": "utfproof-certificate", "kind": "tied-kernel", "version": 2, "claim": claim, "shape": shape}
    for prime, expected in ((7, "kind not covered"), (11, "valid")):
        document = {**named, "evidence": {"basis": basis, "prime": prime}}
        path = tmp_path / f"{prime}.json"
        path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
        assert checker.check_file(path).code == 0
        [said] = verdicts(utfcheck, path).values()
        assert said.startswith(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_it_accepts_nothing_that_a_form_rules_out(utfcheck, tmp_path, kind):
    paths = []
    for number, (_, found) in enumerate(derived(kind)):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(canonical(found))
    said = set(verdicts(utfcheck, *paths).values())
    assert {verdict.split(" ")[0] for verdict in said} <= {"rejected", "kind"}


def test_another_spelling_of_the_same_json_is_rejected(utfcheck, tmp_path):
    text = (ROOT / "certificates" / "sparse-1-hop.json").read_text()
    for i, other in enumerate(
        (text + "\n", text.replace(":", ": ", 1), text.replace('"m":456', '"m":0456'), text[:-1])
    ):
        (tmp_path / f"{i}.json").write_text(other)
    assert all(said.startswith("rejected") for said in verdicts(utfcheck, tmp_path).values())


def check(utfcheck, *arguments):
    """Exit code and output of `utfproof check` with this program, which may be "" for none."""
    command = [sys.executable, "-m", "utfproof", "check", *map(str, arguments)]
    environment = {**os.environ, checking.VARIABLE: utfcheck}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout


def test_check_says_how_it_knows(utfcheck, tmp_path):
    """Proved, checked and cited; one that is proved is not cited as well."""
    shape = Shape(2, 2, 1, 1)
    certify("tied", shape).write(tmp_path / "a.json")
    certify("residual-key", Shape(2, 2, 2, 1, residual=True)).write(tmp_path / "b.json")
    dimension_certificate(shape, 3, notion="attention-matching", targets="generic untied").write(tmp_path / "c.json")
    dimension_certificate(shape, 3).write(tmp_path / "d.json")
    code, said = check(utfcheck, tmp_path)
    *lines, counts, trusted = said.splitlines()
    assert (code, [line.split()[0] for line in lines]) == (0, ["proved", "checked", "cited", "proved"])
    assert "; proved: rank-permutation: universal by matching, targets: all untied; host: tied; " in lines[0]
    assert "the bound is proved in docs/proofs/attention-matching-bound.md, section 1" in lines[2]
    assert "docs/proofs" not in lines[3]
    assert counts == "2 proved, 1 checked, 1 cited"
    assert trusted.startswith(f"proved by {utfcheck}: extracted by Coq ")
    assert re.search(r"compiled by OCaml [\d.]+ with Zarith .* lines of OCaml", trusted)
    document = json.loads(check(utfcheck, "--json", tmp_path)[1])
    assert document["counts"] == {"proved": 2, "checked": 1, "cited": 1}
    assert [row["status"] for row in document["results"]] == ["proved", "checked", "cited", "proved"]
    assert document["results"][1]["not_proved"] == "kind not covered (identity of this form)"
    assert [check(utfcheck, "--require", least, tmp_path)[0] for least in ("proved", "checked")] == [4, 4]
    assert check(utfcheck, "--require", "proved", tmp_path / "a.json", tmp_path / "d.json")[0] == 0


def test_numbers_that_come_round_again_in_machine_integers_are_not_taken_for_others(utfcheck, tmp_path):
    """4 (2^61 + n) = 4 n there."""
    path = certify("random", Shape(1, 1, 1, 1, 64), witness=True).write(tmp_path / "a.json")[-1]
    found = json.loads(path.read_bytes())
    found["evidence"]["inverse"]["length"] = str(2**61 + found["evidence"]["inverse"]["length"])
    path.write_bytes(canonical(found))
    assert checker.check_file(tmp_path / "a.json").code == 2
    assert {said.partition(" ")[0] for said in verdicts(utfcheck, tmp_path).values()} == {"rejected"}


def test_binomial_coefficients_of_many_heads_do_not_come_round_again(utfcheck, tmp_path):
    """C(L+H-1, H-1) is small where some C(L+H-1, k) on the way to it is beyond machine integers."""
    claim = {"host": {"every": "host"}, "notion": "shared attention", "targets": "all tied", "verdict": "not universal"}
    named = {"format": "utfproof-certificate", "kind": "lower-bound", "version": 2, "evidence": {"method": "dimension"}}
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


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize(("head_dim", "width"), [(1, 1), (1, 2), (2, 4), (2, 3)])
def test_narrow_heads_are_bounded_by_attention_matching(heads, head_dim, width, utfcheck, tmp_path):
    """M, where 2d <= d_in, and there are two heads or one layer; no other bound for all untied targets is a theorem there."""
    claim = {
        "host": {"every": "host"},
        "notion": "attention-matching",
        "targets": "all untied",
        "verdict": "not universal",
    }
    named = {"format": "utfproof-certificate", "kind": "lower-bound", "version": 2, "evidence": {"method": "dimension"}}
    expected = {}
    for layers in (1, 2):
        M = checker.Shape(heads, layers, head_dim, width, width, 1).columns
        narrow = 2 * head_dim <= width and (heads > 1 or layers == 1)
        for m in (M - 1, M):
            shape = {"d_in": width, "d_out": width, "head_dim": head_dim, "heads": heads, "layers": layers, "m": m}
            path = tmp_path / f"{layers}-{m}.json"
            path.write_text(
                json.dumps({**named, "claim": claim, "shape": shape}, sort_keys=True, separators=(",", ":"))
            )
            below = narrow and m < M
            expected[path.name] = "valid" if below else "kind not covered (lower-bound of this form)"
            if narrow:
                assert checker.check_file(path).code == (0 if below else 1)
    assert verdicts(utfcheck, tmp_path) == expected


def test_a_shape_too_large_to_be_read_is_left_alone_at_once(utfcheck, tmp_path):
    document = certify("sparse", Shape(1, 2, 1, 1), 9).document
    document["shape"]["layers"] = 10**5  # adding up so many powers takes minutes
    (tmp_path / "deep.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
    run = subprocess.run([utfcheck, "--seconds", "1", tmp_path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split(", ")[0]) == (
        4,
        f"{tmp_path}/deep.json: kind not covered (a shape of this size)",
    )


def test_integers_have_at_most_100000_digits(utfcheck, tmp_path):
    document = null_vector_certificate([np.array([[0]])], Shape(1, 2, 1, 1), tied=True).document
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
    write_host(tmp_path / "w.safetensors", build_host("random", Shape(1, 1, 1, 1), 4))
    certify_weights(tmp_path / "w.safetensors").write(tmp_path / "w.json")
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").symlink_to("nowhere")
    (tmp_path / "c.safetensors").mkdir()
    run = subprocess.run([utfcheck, tmp_path], capture_output=True, text=True, check=False, timeout=60)
    said = [line.split(": ")[1].split(",")[0] for line in run.stdout.splitlines()]
    assert (run.returncode, said) == (1, ["rejected (no regular file)", "valid"])
    assert [verdict.code for _, verdict in verdicts_below([tmp_path])] == [2, 0]


def test_a_rejected_certificate_decides_the_exit_status(utfcheck, tmp_path):
    """Whatever else there is, in either order."""
    bad, late = tmp_path / "bad.json", ROOT / "certificates" / "random-4-hop.json"
    bad.write_text("{}")
    for paths in ((bad, late, tmp_path / "none"), (tmp_path / "none", late, bad)):
        assert subprocess.run([utfcheck, "--seconds", "1", *paths], capture_output=True, check=False).returncode == 1


def test_without_the_program_nothing_is_proved(tmp_path):
    certify("tied", Shape(1, 1, 1, 1)).write(tmp_path / "a.json")
    dimension_certificate(Shape(1, 1, 1, 1), 2).write(tmp_path / "b.json")
    code, said = check("", tmp_path)
    assert (code, [line.split()[0] for line in said.splitlines()[:2]]) == (0, ["checked", "cited"])
    assert check("", "--require", "checked", tmp_path / "a.json")[0] == 0
    assert check("", "--require", "checked", tmp_path)[0] == 4
    assert check("", "--require", "proved", tmp_path / "a.json")[0] == 4
    assert check("/nowhere/utfcheck", tmp_path)[0] == 2


PROGRAMS = {
    "a judge that rejects": ("$3: rejected (the check fails), 0.0 s", 1, 70, "error"),
    "a judge that breaks off": ("", 2, 0, "checked"),
    "a judge that says valid and exits with 4": ("$3: valid, proved all, 0.0 s", 4, 0, "checked"),
    "a judge that exits with 0 and says nothing": ("", 0, 0, "checked"),
}


@pytest.mark.parametrize("judge", PROGRAMS)
def test_what_another_judge_can_do(judge, tmp_path):
    """It proves a certificate only by word and exit code; what it rejects has no verdict."""
    says, exits, code, status = PROGRAMS[judge]
    program = tmp_path / "utfcheck"
    program.write_text(f'#!/bin/sh\necho "{says}"\nexit {exits}\n')
    program.chmod(0o755)
    certify("tied", Shape(1, 1, 1, 1)).write(tmp_path / "a.json")
    found, said = check(str(program), "--json", tmp_path / "a.json")
    assert (found, json.loads(said)["results"][0]["status"]) == (code, status)


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
