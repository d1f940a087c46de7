"""Symbolic identities and exact certificates behind the theory's lemmas, with no host or target in them.

words          words of letters that do not commute, in plain Python and in SymPy
free_algebra   unrolling, equal attention and equal outputs, as identities of words
determinant    the determinant polynomial of R_all: its degree; Schwartz-Zippel bounds
normalisation  exact square roots and sums of four squares
"""
