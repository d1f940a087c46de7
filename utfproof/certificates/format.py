"""Writing certificates: canonical JSON (RFC 8785) and sidecars named by their SHA-256 (docs/certificate-format.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, ResourceLimit
from utfproof.shapes import Shape
from utfproof.util.arrays import one_line
from utfproof.util.files import write_bytes
from utfproof.util.notions import Notion

FORMAT = "utfproof-certificate"
VERSION = 2
INLINE_LIMIT = 4096
"""Integer arrays up to this length stand in the JSON itself."""
SAFE_INTEGER = 2**53 - 1
"""Integers beyond this (in size) are written as decimal strings."""
MAX_DIGITS = 100_000
"""Most decimal digits of an integer."""
LONG_BITS = 10_000
"""Longer integers are written by FLINT: Python's own conversion refuses some."""


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
    """An integer as the format writes it, however long. ResourceLimit beyond the digits that a certificate holds."""
    if abs(value) <= SAFE_INTEGER:
        return value
    if value.bit_length() <= LONG_BITS:
        return str(value)
    from flint import fmpz

    text = str(fmpz(value))
    if len(text) > MAX_DIGITS:
        raise ResourceLimit(f"an integer has {len(text)} digits, an integer of a certificate has at most {MAX_DIGITS}")
    return text


def pairs(z: Mapping[int, int], what: str) -> list[list[int | str]]:
    """The nonzero entries of a vector, given by position. ResourceLimit where they are too many to be written."""
    if len(z) > INLINE_LIMIT:
        raise ResourceLimit(f"{what} has {len(z)} entries, a certificate holds at most {INLINE_LIMIT}")
    return [[integer(i), integer(z[i])] for i in sorted(z)]


def integer_array(values: np.ndarray) -> tuple[Any, dict[str, bytes]]:
    """Nonnegative integers: inline when few, else a sidecar reference and its content. uint8 and uint16 are kept, others become
    uint32."""
    if len(values) <= INLINE_LIMIT:
        return values.tolist(), {}
    dtype = values.dtype.name if values.dtype.name in ("uint8", "uint16") else "uint32"
    if int(values.max()) > np.iinfo(dtype).max:
        raise MalformedInput(
            f"an entry {int(values.max())} does not fit {dtype}; the certificate format has no wider one"
        )
    content = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return {"dtype": dtype, "length": len(values), "sidecar": digest}, {digest: content}


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
    verdict: str | None = None,
    notion: str = Notion.MATCHING,
    targets: str = "all untied",
    free: str | None = None,
    **more: Any,
) -> Certificate:
    """A certificate. Arrays in the evidence are written inline or as sidecars.

    rank: the number of columns, for kinds that certify it. verdict: "universal" with a rank, else "not universal", unless
    given. free: "E" or "E and U", for shared attention. more: further fields of the claim.
    """
    default = "not universal" if rank is None else "universal"
    claim = {"host": host, "notion": str(notion), "targets": targets, "verdict": verdict or default, **more}
    if rank is not None:
        claim["rank"] = integer(rank)
    if free is not None:
        claim["free"] = free
    sidecars: dict[str, bytes] = {}
    for name, value in evidence.items():
        if isinstance(value, np.ndarray):
            evidence[name], content = integer_array(value)
            sidecars |= content
    document = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "shape": {name: integer(value) for name, value in shape.document(m).items()},
        "claim": claim,
        "evidence": evidence,
    }
    return Certificate(document, sidecars)
