"""The checker on one certificate, and the judges beside it: the second one, and the verified one where it is built."""

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import corpus
import second_checker

from utfproof.certificates import checker

UTFCHECK = Path(os.environ.get("UTFPROOF_UTFCHECK") or Path(__file__).parents[1] / "proofs" / "checker" / "utfcheck")
OPTIONS = checker.Options()


def write_anew(path, raw):
    """Write a file anew. Some file systems wait for the disk when one is overwritten, and thousands are, here."""
    path.unlink(missing_ok=True)
    path.write_bytes(raw)


def verdict_on(found, folder, options=OPTIONS):
    """The checker's; `found`: a certificate, or its document."""
    path = folder / "certificate.json"
    if isinstance(found, dict):
        write_anew(path, corpus.canonical(found))
    else:
        found.write(path)
    return checker.check_file(path, options)


def verdicts_below(paths):
    """(path, verdict) on files, and on the certificates in folders."""
    options = checker.Options()
    return list(checker.verdicts(paths, lambda path, in_folder: checker.judge(path, options, in_folder), []))


def confirmed(found, folder):
    """The same with NumPy and without; the second judge says the same, or leaves it alone."""
    verdict = verdict_on(found, folder)
    assert verdict.code != checker.INTERNAL
    assert verdict_on(found, folder, dataclasses.replace(OPTIONS, numpy=True)).code == verdict.code
    assert second_checker.judge((folder / "certificate.json").read_bytes(), folder) in (None, verdict.code), verdict
    return verdict


def verified(*paths, seconds=20):
    """What the verified checker says of certificates below the paths: True or False, None for one that it does not cover."""
    command = [str(UTFCHECK), "--seconds", str(seconds), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    words = {"vali": True, "reje": False}
    found = re.findall(r"^(.*?\.json): (....)", done.stdout, re.MULTILINE)
    return {Path(path): words.get(word) for path, word in found}
