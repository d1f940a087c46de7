"""Certificates: their format, the prover that writes them, and the independent checker."""
