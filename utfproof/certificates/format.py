"""Writing certificates: canonical JSON (RFC 8785) and sidecars named by their SHA-256 (docs/certificate-format.md)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.ground.files import write_bytes
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape

FORMAT = "utfproof-certificate"
VERSION = 1
INLINE_LIMIT = 4096
"""Integer arrays up to this length stand in the JSON itself."""
STANDARD = "standard"
"""Stands for an array that the format derives from a construction's definition."""
WRITTEN_OUT = 100_000
"""Such an array of blocks is written out if it takes up to this many numbers and letters."""
ROWS_WRITTEN_OUT = 2_000_000
"""Such rows of a permutation, of 4 bytes each, are written out up to this many."""
SAFE_INTEGER = 2**53 - 1
"""Integers beyond this (in size) are written as decimal strings."""


@one_line
@dataclass(frozen=True)
class Certificate:
    """A certificate's JSON object and the sidecars it names (content by SHA-256)."""

    document: dict[str, Any]
    sidecars: dict[str, bytes] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """By its name in docs/certificate-format.md."""
        return str(self.document["kind"])

    @property
    def universal(self) -> bool:
        """True if it certifies universality by the claim's notion, False if it refutes it, or (an enclosure, about
        one target) says nothing of it."""
        return self.document["claim"]["verdict"] == "universal"

    def to_bytes(self) -> bytes:
        """The canonical JSON."""
        import rfc8785

        return rfc8785.dumps(self.document)

    def write(self, path: Path | str) -> list[Path]:
        """Write sidecars, then the certificate (each atomically); returns the paths written."""
        path = Path(path)
        if path.suffix != ".json":
            raise MalformedInput(f"a certificate's file name ends in .json, got {path}")
        written = []
        for digest, content in self.sidecars.items():
            sidecar = path.parent / f"{digest}.bin"
            write_bytes(sidecar, content)
            written.append(sidecar)
        write_bytes(path, self.to_bytes())
        return [*written, path]


def integer(value: int) -> int | str:
    """An integer as the format writes it."""
    return value if abs(value) <= SAFE_INTEGER else str(value)


def integer_array(values: np.ndarray, dtype: str = "uint32") -> tuple[Any, dict[str, bytes]]:
    """Nonnegative integers of this dtype: inline when short, else a sidecar reference and its content."""
    if len(values) <= INLINE_LIMIT:
        return [int(v) for v in values], {}
    kind = np.dtype(dtype).newbyteorder("<")
    if int(values.max()) > np.iinfo(dtype).max:
        raise MalformedInput(
            f"an entry {int(values.max())} does not fit {dtype} in version 1 of the certificate format"
        )
    content = np.ascontiguousarray(values, dtype=kind).tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"dtype": dtype, "length": len(values), "sidecar": digest}, {digest: content}


def shape_document(shape: Shape, m: int) -> dict[str, Any]:
    """The `shape` field."""
    fields = {name: getattr(shape, name) for name in ("heads", "layers", "head_dim", "d_in", "d_out")}
    written: dict[str, Any] = {name: integer(value) for name, value in {**fields, "m": m}.items()}
    return {**written, "residual": True} if shape.residual else written


def shape_of(document: dict[str, Any]) -> Shape:
    """The shape that a certificate's document states, without its m."""
    stated = document["shape"]
    numbers = (int(stated[name]) for name in ("heads", "layers", "head_dim", "d_in", "d_out"))
    return Shape(*numbers, residual=stated.get("residual", False))


def certificate(
    kind: str,
    shape: Shape,
    m: int,
    host: dict[str, Any],
    evidence: dict[str, Any],
    *,
    rank: int | None = None,
    sidecars: dict[str, bytes] | None = None,
    notion: Notion = Notion.MATCHING,
    targets: str = "all untied",
    free: str | None = None,
    universal: bool | None = None,
) -> Certificate:
    """A version 1 certificate. `rank`: the number of columns, for kinds that certify it; it makes the verdict "universal"
    unless `universal` says otherwise. free: "E" or "E and U", for shared attention."""
    claim: dict[str, Any] = {
        "host": host,
        "notion": notion.value,
        "targets": targets,
        "verdict": "universal" if (rank is not None if universal is None else universal) else "not universal",
    }
    if rank is not None:
        claim["rank"] = integer(rank)
    if free is not None:
        claim["free"] = free
    return stating(kind, shape, m, claim, evidence, sidecars)


def stating(
    kind: str,
    shape: Shape,
    m: int,
    claim: dict[str, Any],
    evidence: dict[str, Any],
    sidecars: dict[str, bytes] | None = None,
) -> Certificate:
    """A version 1 certificate with this claim, which need not be about universality."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "shape": shape_document(shape, m),
        "claim": claim,
        "evidence": evidence,
    }
    return Certificate(document, sidecars or {})
