"""Arithmetic with a short significand, to see how large rounding errors are apart from any library of linear algebra.

Products and sums over many terms depend on the order in which a library adds, and the error of one run is a draw: on one
processor it may be ten times smaller than on another. Here every stored number and every partial sum, in the plain order, is
rounded to BITS bits of a grid that is shifted from draw to draw; the root mean square of several draws is the size of the
error that a run is expected to have, and double precision underneath makes it the same everywhere.
"""

from typing import Any

import numpy as np

from utfproof.attention import AttentionKernel
from utfproof.matching import embed
from utfproof.systems import Target, Universal

BITS = 20
DRAWS = 8


class Short(np.ndarray):
    """A float64 array whose sums, products and elementary functions are rounded to BITS bits."""

    grid = 1.0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, Short) else value for value in inputs]
        if ufunc is np.maximum:
            return getattr(ufunc, method)(*plain, **options)
        if ufunc is np.matmul:
            left, right = plain
            found = np.zeros((*left.shape[:-1], right.shape[-1]))
            for k in range(left.shape[-1]):
                found = short(found + short(left[..., k, None] * right[..., k, None, :]))
        elif ufunc is np.add and method == "reduce":
            axis = options["axis"]
            columns = np.moveaxis(plain[0], axis, 0)
            found = columns[0]
            for column in columns[1:]:
                found = short(found + column)
            found = np.expand_dims(found, axis) if options.get("keepdims") else found
        else:
            found = short(getattr(ufunc, method)(*plain, **options))
        return found.view(Short)


def short(values: np.ndarray) -> np.ndarray:
    """Rounded to BITS bits of the present grid."""
    significand, exponent = np.frexp(values * Short.grid)
    return np.ldexp(np.rint(significand * 2.0**BITS), exponent - BITS) / Short.grid


def expected_error(host: Universal, target: Target, kernel: AttentionKernel, x: np.ndarray) -> float:
    """Root mean square over DRAWS runs of the host's relative error max |Z - Y| / max |Y|, in units of the roundoff."""

    def attention(queries: np.ndarray, keys: np.ndarray, positions: Any, **place: int) -> Any:
        return kernel(queries.view(Short), keys.view(Short), positions, **place)  # gathers return plain arrays

    E, right = embed(host, target).E, target.forward(x, kernel)
    generator = np.random.default_rng(1)
    errors = []
    for _ in range(DRAWS):
        Short.grid = generator.uniform(1, 2)
        found = np.asarray(host.forward(x.view(Short), short(E), attention))
        errors.append(np.abs(found - right).max() / np.abs(right).max())
    return float(np.sqrt(np.mean(np.square(errors)))) * 2.0**BITS
