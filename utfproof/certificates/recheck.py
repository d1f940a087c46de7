"""What the independent checker says of a certificate before it is handed on."""

from __future__ import annotations

from utfproof.certificates import checker
from utfproof.certificates.format import Certificate
from utfproof.errors import ResourceLimit


def fault(made: Certificate, what: str, max_memory: int | None = None) -> checker.Stop | None:
    """Why the checker does not accept it; None where it does.

    Raises ResourceLimit, which begins with `what`, where checking takes more than the checker's limits.
    """
    limits = checker.Limits() if max_memory is None else checker.Limits(memory_bytes=max_memory)
    try:
        checker.check_document(checker.parse_canonical(made.to_bytes()), "", limits, {})
    except checker.OverLimit as error:
        raise ResourceLimit(f"{what} {error}") from None
    except checker.Stop as error:
        return error
    return None
