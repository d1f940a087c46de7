"""The host that a HOST argument means."""

from __future__ import annotations

from utfproof.cli import questions as options
from utfproof.errors import MalformedInput
from utfproof.shapes import Shape
from utfproof.systems import Universal


def load_host(
    host: str, shape: Shape, *, layers: int | None, m: int | None, seed: int, law: str, dtype: str, limit: int | None
) -> Universal:
    """A file's host, or a construction at this shape."""
    from utfproof.constructions import build_host
    from utfproof.weights import read_host

    if options.is_host_file(host):
        stream = True if shape.residual else None  # a host's own metadata may still say otherwise
        found = read_host(host, layers=layers, d_in=shape.d_in, residual=stream, max_memory=limit)
        if m is not None and m != found.m:
            raise MalformedInput(f"--m {m} contradicts {host}, which has m = {found.m}")
        return found
    return build_host(host, shape, m, seed=seed, law=law, dtype=dtype, max_memory=limit)
