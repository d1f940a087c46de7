"""Write the corpus of certificates as an archive with the SHA-256 of each file: python scripts/corpus.py ARCHIVE.tar

The folders valid, invalid and malformed say which verdict a checker has to give. Equal corpora give equal archives.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "certificates"


def main(archive: str) -> None:
    """Write the archive and print its own SHA-256."""
    files = {path.relative_to(CORPUS).as_posix(): path.read_bytes() for path in CORPUS.rglob("*") if path.is_file()}
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as out:
        for name, content in [("SHA256SUMS", sums.encode()), *sorted(files.items())]:
            entry = tarfile.TarInfo(f"corpus/{name}")
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
    print(f"{hashlib.sha256(Path(archive).read_bytes()).hexdigest()}  {archive}, {len(files)} files")


if __name__ == "__main__":
    main(sys.argv[1])
