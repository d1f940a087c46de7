"""Symbolic identities and exact certificates behind the theory's lemmas, with no host or target in them.

free_algebra   unrolling, equal attention and equal outputs, as identities of words
generic        R_all with one symbol per parameter entry, and its multilinearity
determinant    the determinant polynomial of R_all, along lines and in full; its degree; Schwartz-Zippel bounds
blocks         the row permutation that turns a {0,1} R_all into identity blocks
lower_bound    the spanning lemma and the null-vector lemma

Every identity is computed along two routes, which must agree. Names are loaded when asked for: importing the package
loads neither SymPy nor FLINT.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "results": ("IdentityResult", "RoutesDisagree"),
    "words": ("Letter",),
    "free_algebra": (
        "equal_attention",
        "equal_attention_step",
        "equal_output",
        "literal_counterexample",
        "printed_prose_word",
        "unrolled_word",
        "unrolling",
        "unrolling_step",
    ),
    "generic": ("GenericMatrix", "Multilinearity", "generic_r_all", "generic_terms", "multilinearity"),
    "determinant": (
        "DeterminantPolynomial",
        "GridBound",
        "LinePolynomial",
        "along_line",
        "column_degrees",
        "determinant_degree",
        "determinant_polynomial",
        "float_grid_bound",
        "homogeneous_columns",
        "largest_atom",
        "line_polynomial",
        "schwartz_zippel_bound",
    ),
    "blocks": ("BlockDiagonal", "block_diagonal", "block_sizes"),
    "lower_bound": (
        "NullVector",
        "Spanning",
        "absorbing_identity",
        "null_vector",
        "padding_identity",
        "spanning",
        "word_products",
    ),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
