"""Symbolic identities and exact certificates behind the theory's lemmas, with no host or target in them.

words          words of letters that do not commute, in plain Python and in SymPy
statements     the letters of the lemmas: layer recursion, closed words, matching equations
free_algebra   unrolling, equal attention and equal outputs, as identities of words
generic        R_all with one symbol per parameter entry, and its multilinearity
determinant    the determinant polynomial of R_all, along lines and in full; its degree; Schwartz-Zippel bounds
blocks         the row permutation that turns a {0,1} R_all into identity blocks
lower_bound    the spanning lemma and the null-vector lemma
normalisation  exact square roots and sums of four squares
"""
