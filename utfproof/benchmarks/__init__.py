"""Measurements side by side with what a user would otherwise use, in one run, as ratios."""
