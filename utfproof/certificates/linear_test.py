"""Certificates of kind `linear-test`: universality by attention-matching of random or stored hosts below M, for d >= d_in.

With keys asked to be M_w C, C = [I 0] (d_in x d), and queries asked only for their first d_in columns times A, the equations
stay linear in E and R_all loses the Q columns of coordinate d_in or more; full column rank suffices
(docs/certificate-format.md section 8). A deficient rank proves nothing, so there is no refutation by this test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from utfproof.arrays import require_device
from utfproof.certificates.format import Certificate, certificate
from utfproof.certificates.prover import host_document
from utfproof.certificates.sources import DenseSource, RandomDraw, StoredWeights
from utfproof.constructions import construction
from utfproof.errors import MalformedInput, NotDefined, Undecided
from utfproof.exact import gfp
from utfproof.generator import check_dtype, check_law, check_seed
from utfproof.notions import Notion
from utfproof.resources import require_memory
from utfproof.shapes import Shape, column_groups, linear_test_dimension, matching_dimension, positive_integer
from utfproof.weights import host_shape, read_tensors, require_finite


def require_linear_test(shape: Shape) -> None:
    """NotDefined unless d_in = d_out <= d."""
    if shape.d_in != shape.d_out or shape.head_dim < shape.d_in:
        raise NotDefined(f"the linear test is for d_in = d_out <= head_dim, got {shape}, d_out = {shape.d_out}")


def test_columns(shape: Shape) -> np.ndarray:
    """The columns of R_all that the test keeps, in order: all but the Q columns of coordinate d_in or more."""
    kept = []
    for group in column_groups(shape):
        width = min(group.width, shape.d_in) if group.kind == "Q" else group.width
        kept.append((group.start + np.arange(group.words)[:, None] * group.width + np.arange(width)).reshape(-1))
    return np.concatenate(kept)


test_columns.__test__ = False  # type: ignore[attr-defined]  # not a pytest test


def linear_test_certificate(
    name: str,
    shape: Shape,
    m: int | None = None,
    *,
    seed: int = 0,
    law: str = "uniform",
    dtype: str = "float64",
    device: str = "cpu",
    primes: tuple[int, ...] | None = None,
    max_memory: int | None = None,
) -> Certificate:
    """Universality by attention-matching, for all untied targets, of `random` or `random-tied`; m defaults to the number of
    columns, (d + d_in) S + d_in H^L. primes: tried in turn.

    Raises MalformedInput for other constructions, NotDefined unless d_in = d_out <= d, Undecided where the rank found is not
    full (which proves nothing), ResourceLimit before allocating.
    """
    entry = construction(name)
    if not entry.is_random:
        raise MalformedInput(f"the linear test is for random, random-tied and weights from a file, got {name!r}")
    require_linear_test(shape)
    m = linear_test_dimension(shape) if m is None else positive_integer("m", m)
    host = host_document(entry, seed=check_seed(seed), law=check_law(law), dtype=check_dtype(dtype))
    return _certified(RandomDraw(shape, m, seed, law, dtype, entry.tied, device), host, primes, max_memory)


def linear_test_weights(
    path: Path | str,
    *,
    layers: int | None = None,
    d_in: int | None = None,
    device: str = "cpu",
    primes: tuple[int, ...] | None = None,
    max_memory: int | None = None,
) -> Certificate:
    """The same for a host given as a file; the certificate is bound to the file's content. layers and d_in as for
    `certify_weights`."""
    file = read_tensors(path, max_memory=max_memory)
    shape, m, tied = host_shape(file, layers=layers, d_in=d_in)
    for name in file.tensors:
        require_finite(file, name)
    require_linear_test(shape)
    host = {"system": "looped-universal" if tied else "universal", "weights": file.digest()}
    return _certified(StoredWeights(shape, m, file, tied, device), host, primes, max_memory)


def _certified(
    source: DenseSource, host: dict[str, Any], primes: tuple[int, ...] | None, max_memory: int | None
) -> Certificate:
    shape, m = source.shape, source.m
    columns, M = linear_test_dimension(shape), matching_dimension(shape)
    if m < columns:
        raise Undecided(
            f"{source} has fewer rows than the linear test has columns, {columns}; this test decides nothing below that"
        )
    if source.device != "cpu":
        require_device(source.device)
    require_memory(8 * (3 * m * M + 4 * m * m), f"the linear test of {source}", max_memory)
    kept = test_columns(shape).tolist()
    tried = primes or gfp.DEFAULT_PRIMES
    for p in tried:
        if gfp.rank(source.r_all(p)[:, kept], p, overwrite=True) == columns:
            return certificate(
                "linear-test",
                shape,
                m,
                host,
                {"method": "recompute", "prime": p},
                rank=columns,
                notion=Notion.ATTENTION_MATCHING,
            )
    raise Undecided(
        f"{source} has no full column rank in the linear test modulo {', '.join(map(str, tried))}; a deficient rank "
        "proves nothing about attention-matching"
    )
