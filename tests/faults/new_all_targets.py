"""Faults that the claim about products of readers must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "products of readers: three that do not take all values",
        "utfproof.frontier.product_host",
        "TRIPLE = (((1, 0, 0), (1, -2, 0)),",
        "TRIPLE = (((1, 0, 0), (1, 2, 0)),",
        ("new:all-targets/products",),
    ),
    Fault(
        "products of readers: the forms of another layer",
        "utfproof.frontier.product_host",
        "        out[: len(rows), 0] = rows[i]",
        "        out[: len(rows), 0] = rows[i - 1]",
        ("new:all-targets/products",),
    ),
]
