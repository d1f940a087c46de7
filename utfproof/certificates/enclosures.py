"""Certificates of kind `enclosure`: one host, target, embedding E and input X, and how far apart the two outputs are.

The claim is not about universality: it is about the target, E and X in the evidence
(docs/certificate-format.md section 12).
"""

from __future__ import annotations

import hashlib
from math import lcm
from typing import Any

from utfproof.attention import SoftmaxAttention, named_kernel
from utfproof.certificates.format import Certificate, certificate, integer
from utfproof.emulation.enclosure import Enclosure
from utfproof.errors import MalformedInput
from utfproof.systems import Target, Universal
from utfproof.util.arrays import Array, exact

LONGEST = 10**18
"""Windows of this size and more have no name."""


def attention_name(kernel: SoftmaxAttention, heads: int) -> str:
    """The claim's `attention`: "softmax", or its options in their fixed order. MalformedInput for what has no name."""
    name = kernel.written()
    if (kernel.window or 0) >= LONGEST or named_kernel(name, heads) != kernel:
        raise MalformedInput(
            f"the certificate format has no name for {kernel}; it knows scale 1/sqrt(d), ALiBi's slopes for the shape's "
            f"{heads} heads, and RoPE with base 10000"
        )
    return name


def numbers(array: Array) -> dict[str, Any]:
    """Exact numbers (floats are dyadic rationals), in order of the last axis first, with their least common denominator."""
    flat = exact(array).reshape(-1)
    denominator = lcm(*(int(x.denominator) for x in flat))
    numerators = [integer(int(x * denominator)) for x in flat]
    return {"denominator": integer(denominator), "numerators": numerators}


def enclosure_certificate(
    named: dict[str, Any],
    host: Universal,
    target: Target,
    E: Array,
    X: Array,
    kernel: SoftmaxAttention,
    found: Enclosure,
) -> Certificate:
    """The certificate that states an enclosure already found.

    named: the claim's `host`, as `hosts.host_document` gives it, or {"system": …, "weights": digest}; `host` is that host. The
    verdict is "within" 10^-digits, or "apart". MalformedInput for a kernel that the format has no name for.
    """
    import rfc8785

    weights = ["W_Q", "W_K", "W_V", "W_O"] + [name for name in ("W_E", "W_U") if getattr(target, name) is not None]
    system = {"system": "looped-target" if target.tied else "target", "width": integer(target.width)}
    evidence = {
        "target": {name: numbers(getattr(target, name)) for name in weights} | system,
        "E": numbers(E),
        "X": numbers(X),
    }
    digests: dict[str, Any] = {n: hashlib.sha256(rfc8785.dumps(value)).hexdigest() for n, value in evidence.items()}
    return certificate(
        "enclosure",
        host.shape,
        host.m,
        named,
        evidence,
        notion="one emulation",
        targets="this one",
        verdict=found.verdict,
        attention=attention_name(kernel, host.shape.heads),
        context=integer(len(X)),
        digits=found.digits,
        difference=[integer(unit) for unit in found.units],
        **digests,
    )
