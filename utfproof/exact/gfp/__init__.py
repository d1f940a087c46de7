"""Exact linear algebra modulo an odd prime below 2^27, on float64 matrix products (NumPy, or torch on any device).

`residues` turns weights into residues without rounding; `rank`, `rank_profile`, `determinant`, `inverse`, `nullspace`, `solve`
and `pluq` work on matrices of residues; FLINT answers the same questions with engine="flint". Why nothing is ever rounded
is argued in `field`; how elimination proceeds, in `elimination`.
"""

from utfproof.exact.gfp.conversion import residues, residues_of_floats, residues_of_integers
from utfproof.exact.gfp.field import (
    DEFAULT_PRIMES,
    block_length,
    centre,
    centred,
    check_prime,
)
from utfproof.exact.gfp.functions import (
    ENGINES,
    PLUQ,
    RankProfile,
    determinant,
    inverse,
    nullspace,
    pluq,
    rank,
    rank_profile,
    solve,
)
from utfproof.exact.gfp.matrix import ResidueMatrix, multiply

__all__ = [
    "DEFAULT_PRIMES",
    "ENGINES",
    "PLUQ",
    "RankProfile",
    "ResidueMatrix",
    "block_length",
    "centre",
    "centred",
    "check_prime",
    "determinant",
    "inverse",
    "multiply",
    "nullspace",
    "pluq",
    "rank",
    "rank_profile",
    "residues",
    "residues_of_floats",
    "residues_of_integers",
    "solve",
]
