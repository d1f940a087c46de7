"""Whether a stored result says what its certificate claims: one rule for sweeps, tables and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIMENSIONS = ("heads", "layers", "head_dim", "d_in", "d_out", "m")


def needs_certificate(result: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether a result claims what only a certificate can show."""
    decided = job["command"] in ("certify", "decide") and result["verdict"] not in ("undecided", "refused")
    return decided or "kind" in result


def contradiction(result: Mapping[str, Any], certificate: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """How they differ, "" where they agree. parameters: the job's; those that a host or a shape has are compared.

    Raises KeyError, TypeError or AttributeError where one of them lacks what its kind has.
    """
    claim, shape = certificate["claim"], certificate["shape"]
    claimed = {**claim, "kind": certificate["kind"]}
    told = ["verdict", "kind", *(name for name in ("notion", "targets") if name in result)]
    pairs = [(name, result[name], claimed.get(name)) for name in told]
    host = {**claim.get("host", {}), "notion": claim["notion"]}
    pairs += [(name, str(parameters[name]), str(host[name])) for name in sorted(host.keys() & parameters.keys())]
    pairs += [(name, parameters[name], shape.get(name)) for name in DIMENSIONS if name in parameters]
    return next((f"has {name} {one}, its certificate has {other}" for name, one, other in pairs if one != other), "")
