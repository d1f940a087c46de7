"""Faults that the claim about approximate hosts must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "approximate hosts: a mean over targets of one sign",
        "utfproof.claims.new_approximate",
        "product((1, -1), repeat=",
        "product((1, 1), repeat=",
        ("new:approximate/outputs",),
    ),
    Fault(
        "approximate hosts: the error of a root",
        "utfproof.claims.new_approximate",
        "share == 1 - Fraction(m, K)",
        "share**2 == 1 - Fraction(m, K)",
        ("new:approximate/outputs",),
    ),
]
