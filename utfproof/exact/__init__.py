"""Exact linear algebra, with no transformer in it: residues modulo a prime (`gfp`) and rationals (`rational`)."""
