"""Beside an inequality, a test that could fail: where the bound ends, prover and checker must refute no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from utfproof.certificates import checker
from utfproof.certificates.format import Certificate, shape_of
from utfproof.certificates.lower_bounds import dimension_certificate
from utfproof.claims.claim import BEYOND, Instance
from utfproof.errors import Undecided
from utfproof.ground.notions import Notion

PROVER, CHECKER = "prover beyond the bound", "checker beyond the bound"
FARTHEST = 10**9
"""Bounds that refute more than this hold for every m, and end nowhere."""


def beyond(made: Certificate, folder: Path) -> Instance | None:
    """Given an inequality that refutes some m: the least m' that it does not refute, found with the prover, and there the
    checker must refuse the same certificate with m' in it, having accepted it with m' - 1. None where every m is refuted."""
    document, shape = made.document, shape_of(made.document)
    said = document["claim"]

    def refuted(m: int) -> bool:
        try:
            dimension_certificate(
                shape,
                m,
                notion=Notion(said["notion"]),
                targets=said["targets"],
                free=said.get("free"),
                every=said["host"].get("every", "host"),
            )
        except Undecided:
            return False
        return True

    low = int(document["shape"]["m"])
    high = low + 1
    while refuted(high):
        low, high = high, 2 * high
        if high > FARTHEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    accepted, refused = (_code({**document, "shape": {**document["shape"], "m": m}}, folder) for m in (low, high))
    holds = accepted == checker.VALID and refused == checker.INVALID
    return Instance(
        shape, holds, f"m = {high} is not refuted, m = {low} is", routes=(PROVER, CHECKER), part=BEYOND, m=high
    )


def _code(document: dict[str, Any], folder: Path) -> int:
    path = folder / "beyond.json"
    Certificate(document).write(path)
    return int(checker.check_file(path).code)
