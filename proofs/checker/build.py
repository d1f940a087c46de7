"""Build the verified checker: compile its theories, ask Coq what their soundness theorems rest on, extract, link.

    python proofs/checker/build.py

The binary is proofs/checker/utfcheck; everything else goes to proofs/checker/build. Exit 1 where a theory does not compile,
uses what could hide a gap, or rests on an axiom; 3 without Coq, OCaml or Zarith (installed with apt-get for root). The
library of proofs/ is built first where it is not. Standard library only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import check

from utfproof.claims.theorems import CLOSED, PROOFS, standing

HERE = Path(__file__).resolve().parent
THEORIES = (
    ("Integers", "Layers", "Streams"),
    ("Witness", "Hosts"),
    ("Triangular", "Arithmetic"),
    ("Identity", "Kernel"),
    ("Certificate",),
)
"""Those of a row need the rows above, and are compiled side by side; Extract comes last."""
BY_HAND = ("zar.ml", "sha256.ml", "json.ml", "weights.ml", "main.ml")
OCAML = (BY_HAND[0], "program.mli", "program.ml", "built.ml", *BY_HAND[1:])
PACKAGES = ("ocaml-nox", "ocaml-findlib", "libzarith-ocaml-dev")
"""Debian's names."""
BINARY = HERE / "utfcheck"


def build() -> None:
    """The binary, or Failed."""
    start = time.perf_counter()
    BINARY.unlink(missing_ok=True)
    gaps = [
        line for row in THEORIES for name in row for line in check.gaps(f"{name}.v", (HERE / f"{name}.v").read_text())
    ]
    if gaps:
        raise check.Failed(gaps)
    check.ensure_coq()
    ensure_ocaml()
    if any(found.status != CLOSED for found in standing(["Decision.decision_theorem"])):
        check.check(PROOFS)
    place = HERE / "build"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    options = ["-noglob", "-w", "none", "-Q", str(PROOFS / "build" / check.LIBRARY), check.LIBRARY]
    options += ["-Q", str(place), "UtfproofChecker"]

    def compiled(name: str) -> None:
        check.coq("coqc", *options, "-o", str(place / f"{name}.vo"), str(HERE / f"{name}.v"), cwd=place)
        print(f"  {name} {time.perf_counter() - start:.1f} s", flush=True)

    for row in THEORIES:
        with ThreadPoolExecutor() as pool:
            list(pool.map(compiled, row))
    said = check.coq("coqc", *options, "-o", str(place / "Extract.vo"), str(HERE / "Extract.v"), cwd=place)
    asked = (HERE / "Extract.v").read_text().count("Print Assumptions")
    if said.split("\n").count("Closed under the global context") != asked or "Axioms:" in said:
        raise check.Failed(["a soundness theorem rests on something:", *said.splitlines()])
    for name in OCAML:
        if (HERE / name).is_file():
            shutil.copy(HERE / name, place)
    (place / "built.ml").write_text(f"let trusted = {json.dumps(trusted())}\n")
    command = ["ocamlfind", "ocamlopt", "-package", "zarith,unix", "-linkpkg"]
    check.coq(*command, "-w", "-a", "-o", str(BINARY), *OCAML, cwd=place)
    print(f"{asked} soundness theorems, all {CLOSED}; proofs/checker/utfcheck, {time.perf_counter() - start:.0f} s")


def trusted() -> str:
    """What a verdict of the binary rests on beside the theorems, for `utfcheck --version`."""
    coq = check.coq("coqc", "--print-version").split()[0]
    ocaml = check.coq("ocamlfind", "ocamlopt", "-version").strip()
    zarith = check.coq("ocamlfind", "query", "-format", "%v", "zarith").strip()
    lines = sum(len((HERE / name).read_text().splitlines()) for name in BY_HAND)
    written = f"{lines} lines of OCaml ({', '.join(BY_HAND)})"
    return f"extracted by Coq {coq}, compiled by OCaml {ocaml} with Zarith {zarith}; trusted by hand: {written}"


def ensure_ocaml() -> None:
    """Install OCaml and Zarith where they are missing and we may. Failed (3) without them."""

    def there() -> bool:
        found = shutil.which("ocamlfind") and shutil.which("ocamlopt")
        return bool(found) and subprocess.run(["ocamlfind", "query", "-qe", "zarith"], check=False).returncode == 0

    if not there() and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *PACKAGES], capture_output=True, check=False
        )
    if not there():
        raise check.Failed([f"OCaml with Zarith is missing (Debian: {', '.join(PACKAGES)})"], 3)


def main() -> int:
    """The command line; its exit code."""
    try:
        build()
    except check.Failed as failure:
        print("\n".join(f"checker: {line}" for line in str(failure).splitlines()), file=sys.stderr)
        return int(failure.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
