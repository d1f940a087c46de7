"""Faults that the claims about middle layers of any width and looped targets must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "krylov: the shift goes the other way",
        "utfproof.constructions.krylov",
        "np.eye(size, k=-1, dtype=np.int64)",
        "np.eye(size, k=1, dtype=np.int64)",
        ("new:shared-attention/krylov",),
    ),
    Fault(
        "krylov: U holds the other head's weights",
        "utfproof.constructions.krylov",
        "right = np.vstack([solution @ first,",
        "right = np.vstack([solution @ second,",
        ("new:shared-attention/krylov",),
    ),
    Fault(
        "middle layer: vertices one wider than d_in",
        "utfproof.constructions.middle",
        "    return shape.d_in * int(shape.heads ** (shape.layers // 2)) * bilinear.size",
        "    return (shape.d_in + 1) * int(shape.heads ** (shape.layers // 2)) * bilinear.size",
        ("new:shared-attention/stars-any-width", "new:shared-attention/path-any-width"),
    ),
    Fault(
        "two-sided counting counts letters of the longer half twice",
        "utfproof.constructions.shared_attention",
        "    return comb((shape.layers + 1) // 2 + shape.heads - 1, shape.heads - 1)",
        "    return comb((shape.layers + 1) // 2 + shape.heads, shape.heads)",
        ("new:looped-shared/two-sided",),
    ),
]
