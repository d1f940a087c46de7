"""Exact linear algebra modulo an odd prime below 2^27, on float64 or float32 matrix products (NumPy, or torch on any
device; int8 products on CUDA).

`residues` turns weights into residues without rounding; `rank`, `rank_profile`, `inverse` and `nullspace` work on
matrices of residues. Why nothing is ever rounded is argued in `field`; how elimination proceeds, in `elimination`.
"""

from utfproof.exact.gfp.conversion import residues, residues_of_floats, residues_of_integers
from utfproof.exact.gfp.field import (
    DEFAULT_PRIMES,
    SMALL_PRIMES,
    block_length,
    centre,
    centred,
    check_prime,
    dtype_for,
)
from utfproof.exact.gfp.functions import (
    RankProfile,
    full_rank_prime,
    inverse,
    nullspace,
    rank,
    rank_profile,
)
from utfproof.exact.gfp.matrix import ResidueMatrix, multiply

__all__ = [
    "DEFAULT_PRIMES",
    "SMALL_PRIMES",
    "RankProfile",
    "ResidueMatrix",
    "block_length",
    "centre",
    "centred",
    "check_prime",
    "dtype_for",
    "full_rank_prime",
    "inverse",
    "multiply",
    "nullspace",
    "rank",
    "rank_profile",
    "residues",
    "residues_of_floats",
    "residues_of_integers",
]
