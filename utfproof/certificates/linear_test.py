"""Certificates of kind `linear-test`: universality by attention-matching of random or stored hosts below M, for d >= d_in.

Fix a gauge C (d_in x d, integers) for every layer and head; the default is [I 0]. With keys asked to be M_w C and queries x
asked only for x C^T = M_w A, the equations stay linear in E, and the d columns of each R_w R_Q become the d_in columns of
R_w R_Q C^T; full column rank suffices (docs/certificate-format.md section 8). A deficient rank proves nothing, so there is no
refutation by this test; where the default gauge fails, drawn ones are tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.hosts import Examined
from utfproof.errors import Undecided
from utfproof.exact import gfp
from utfproof.ground.arrays import hstack, is_torch
from utfproof.ground.generator import integer_matrix
from utfproof.ground.notions import Notion
from utfproof.shapes import Shape, column_groups, linear_test_dimension

GAUGES = 3
"""Seeds of drawn gauges that are tried after the default one."""


def test_columns(shape: Shape) -> np.ndarray:
    """The columns of R_all that the test keeps, in order: all but the Q columns of coordinate d_in or more."""
    kept = []
    for group in column_groups(shape):
        width = min(group.width, shape.d_in) if group.kind == "Q" else group.width
        kept.append((group.start + np.arange(group.words)[:, None] * group.width + np.arange(width)).reshape(-1))
    return np.concatenate(kept)


def drawn_gauges(shape: Shape, tied: bool, seed: int) -> np.ndarray:
    """Small integer gauges [L, H, d_in, d], for a tied host [1, H, d_in, d]; seed below 2^32."""
    layers = 1 if tied else shape.layers
    matrices = [
        integer_matrix(seed, "W_K", shape.d_in, shape.head_dim, law="binomial", layer=layer, head=head)
        for layer in range(layers)
        for head in range(shape.heads)
    ]
    return np.stack(matrices).reshape(layers, shape.heads, shape.d_in, shape.head_dim).astype(np.int64)


def test_matrix(matrix: Any, shape: Shape, p: int, gauges: np.ndarray | None) -> Any:
    """The columns that the test ranks, from R_all modulo p [m, M] (centred residues); gauges as `drawn_gauges` has them."""
    if gauges is None:
        return matrix[:, test_columns(shape).tolist()]
    blocks, start = [], 0
    for group in column_groups(shape):
        if group.kind != "Q":
            continue
        for word in range(group.words):
            gauge = gauges[0 if len(gauges) == 1 else group.length - 1, word % shape.heads]
            columns = matrix[:, group.start + word * group.width : group.start + (word + 1) * group.width]
            right = gfp.residues(np.ascontiguousarray(gauge.T), p, dtype=str(columns.dtype).removeprefix("torch."))
            if is_torch(columns):
                import torch

                right = torch.from_numpy(right).to(columns.device)
            blocks.append(gfp.multiply(columns, right, p))
        start = group.start + group.words * group.width
    return hstack([*blocks, matrix[:, start:]])


test_matrix.__test__ = False  # type: ignore[attr-defined]  # not a pytest test
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
            matrix = source.r_all(p)
            for seed in [None, *range(GAUGES)]:
                gauges = None if seed is None else drawn_gauges(shape, source.tied, seed)
                if gfp.rank(test_matrix(matrix, shape, p, gauges), p, overwrite=True) == columns:
                    evidence = {"method": "recompute", "prime": p}
                    if gauges is not None:
                        evidence["gauges"] = gauges.tolist()
                    notion = Notion.ATTENTION_MATCHING
                    return certificate("linear-test", shape, m, host.document, evidence, rank=columns, notion=notion)
        raise Undecided(
            f"{source} has no full column rank in the linear test, with the gauge [I 0] or {GAUGES} drawn ones, modulo "
            f"{', '.join(map(str, tried))}; a deficient rank proves nothing about attention-matching"
        )
