"""Emulation: does UTF(X, E) equal T(X) in floating point, and how closely?"""
