"""What the independent checker says of a certificate before it is handed on."""

from __future__ import annotations

from utfproof.certificates import checker
from utfproof.certificates.format import Certificate
from utfproof.errors import ResourceLimit


def fault(made: Certificate, what: str) -> checker.Stop | None:
    """Why the checker does not accept it; None where it does.

    Raises ResourceLimit, which begins with `what`, where the format admits no certificate of this size.
    """
    try:
        checker.check_document(checker.parse_canonical(made.to_bytes()), "", checker.Options(), {})
    except checker.OverLimit as error:
        raise ResourceLimit(f"{what} {error}") from None
    except checker.Stop as error:
        return error
    return None
