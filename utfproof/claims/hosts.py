"""Entries of {0,1} hosts: what claims say of a host's parameter matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utfproof.claims import plain
from utfproof.claims.claim import Agreed, agree
from utfproof.systems import Universal
from utfproof.util.selection import SelectionMatrix


def parameters(host: Universal) -> Iterator[tuple[str, SelectionMatrix]]:
    """Every parameter matrix of a {0,1} host with its name."""
    for layer in range(1 if host.tied else host.shape.layers):
        for head in range(host.shape.heads):
            maps = host.maps(layer, head)
            yield f"R_Q[{layer},{head}]", maps.query
            yield f"R_K[{layer},{head}]", maps.key
            for value in maps.value:
                yield f"R_V[{layer},{head}]", value
    yield "U", host.U


def most_ones(host: Universal) -> Agreed:
    """The largest number of ones of a parameter matrix whose other entries are all 0, None if another has other entries: by
    the index maps (no cell twice), and by looking at each entry."""
    maps: list[int | None] = []
    entries: list[int | None] = []
    for _, matrix in parameters(host):
        rows, columns = matrix.coordinates()
        once = len(np.unique(rows * matrix.shape[1] + columns)) == matrix.nonzeros
        maps.append(matrix.nonzeros if once else None)
        listed = [value for row in plain.rows(matrix) for value in row]
        entries.append(sum(listed) if all(value in (0, 1) for value in listed) else None)
    largest = [None if None in found else max(found) for found in (maps, entries)]  # type: ignore[type-var]
    return agree({"index maps": largest[0], "plain integers": largest[1]})
