"""Certificates of kind `linear-test`: universality by attention-matching of random or stored hosts below M, for d >= d_in.

With keys asked to be (M_w 0) and queries asked only to begin with M_w A, the equations stay linear in E, and the first d_in of
the d columns of each R_w R_Q remain; full column rank suffices (docs/certificate-format.md section 8). A deficient rank proves
nothing, so there is no refutation by this test.
"""

from __future__ import annotations

import numpy as np

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined
from utfproof.errors import Undecided
from utfproof.exact import gfp
from utfproof.shapes import Shape, column_groups, linear_test_dimension
from utfproof.util.notions import Notion


def test_columns(shape: Shape) -> np.ndarray:
    """The columns of R_all that the test keeps, in order: all but the Q columns of coordinate d_in or more."""
    kept = []
    for group in column_groups(shape):
        width = min(group.width, shape.d_in) if group.kind == "Q" else group.width
        kept.append((group.start + np.arange(group.words)[:, None] * group.width + np.arange(width)).reshape(-1))
    return np.concatenate(kept)


test_columns.__test__ = False  # type: ignore[attr-defined]  # not a pytest test


class ByLinearTest:
    """Random hosts and stored ones, by attention-matching."""

    def can(self, host: Examined) -> bool:
        asked = host.notion is Notion.ATTENTION_MATCHING and host.source is not None
        return asked and host.square and host.shape.head_dim >= host.shape.d_in

    def build(self, host: Examined) -> Certificate:
        """The certificate of a host that passes. Undecided where the rank is not full, ResourceLimit before allocating."""
        source, shape, m = host.source, host.shape, host.m
        assert source is not None
        columns = linear_test_dimension(shape)
        if m < columns:
            raise Undecided(
                f"{source} has fewer rows than the linear test has columns, {columns}; this test decides nothing below that"
            )
        source.require_room("the linear test of", 8 * (3 * m * host.M + 4 * m * m), host.max_memory)
        tried = (gfp.SMALL_PRIMES[0], *gfp.DEFAULT_PRIMES)
        for p in tried:
            if gfp.rank(source.r_all(p)[:, test_columns(shape).tolist()], p, overwrite=True) == columns:
                evidence, notion = {"method": "recompute", "prime": p}, Notion.ATTENTION_MATCHING
                return certificate("linear-test", shape, m, host.document, evidence, rank=columns, notion=notion)
        raise Undecided(
            f"{source} has no full column rank in the linear test, modulo {', '.join(map(str, tried))}; a deficient rank "
            "proves nothing about attention-matching"
        )
