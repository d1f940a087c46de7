"""The checker on one certificate, and the second judge beside it."""

import dataclasses

import sceptic

from utfproof.certificates import checker

OPTIONS = checker.Options()


def write_anew(path, raw):
    """Write a file anew. Some file systems wait for the disk when one is overwritten, and thousands are, here."""
    path.unlink(missing_ok=True)
    path.write_bytes(raw)


def verdict_on(found, folder, limits=OPTIONS):
    """The checker's; `found`: a certificate, or its document."""
    path = folder / "certificate.json"
    if isinstance(found, dict):
        write_anew(path, sceptic.canonical(found))
    else:
        found.write(path)
    return checker.check_file(path, limits)


def confirmed(found, folder):
    """The same with NumPy and without; the second judge says the same, or leaves it alone."""
    verdict = verdict_on(found, folder)
    assert "broke off" not in verdict.message
    assert verdict_on(found, folder, dataclasses.replace(OPTIONS, numpy=True)).code == verdict.code
    assert sceptic.judge((folder / "certificate.json").read_bytes(), folder) in (None, verdict.code), verdict
    return verdict


def code_of(raw, folder):
    """The checker's verdict on these bytes as if in this folder (weights are looked for there)."""
    try:
        checker.check_document(checker.parse_canonical(raw), str(folder), OPTIONS, {})
    except checker.Stop as stop:
        return stop.code
    return 0
