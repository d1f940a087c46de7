"""Faults that the claims about shared attention must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "odd depth: the one that a square needs is lost",
        "utfproof.certificates.dimensions",
        's.leaves + 1), "m^2 and H^L + 1",\n              lambda s: _square(s) and s.d_in == 1',
        's.leaves), "m^2 and H^L + 1",\n              lambda s: _square(s) and s.d_in == 1',
        ("new:shared-attention/odd-least",),
    ),
    Fault(
        "register: blocks named by the reversed word",
        "utfproof.constructions.shared_attention",
        "    return [(i * shape.d_in, values(word)) for i, word in enumerate(words)], None",
        "    return [(i * shape.d_in, values(word[::-1])) for i, word in enumerate(words)], None",
        ("new:shared-attention/E-free",),
    ),
    Fault(
        "family of the products: no gauge between layers",
        "utfproof.certificates.dimensions",
        "(shape.layers * (shape.heads - 1) + 1)",
        "(shape.layers * shape.heads)",
        (
            "new:shared-attention/parameter-count",
            "new:shared-attention/two-layers-of-width-two",
        ),
    ),
    Fault(
        "parameter count: no fibre",
        "utfproof.certificates.dimensions",
        "lambda s, m: (2 * s.d_in * m - 1, word_family_dimension(s))",
        "lambda s, m: (2 * s.d_in * m, word_family_dimension(s))",
        ("new:shared-attention/one-layer",),
    ),
    Fault(
        "square root rounded down",
        "utfproof.certificates.dimensions",
        "    return isqrt(count - 1) + 1",
        "    return isqrt(count)",
        (
            "new:shared-attention/odd",
            "new:shared-attention/any-width",
            "new:shared-attention/three-three",
            "new:shared-attention/two-three",
            "new:shared-attention/odd-path",
        ),
    ),
    Fault(
        "path: every second edge is a repetition",
        "utfproof.constructions.middle",
        "    places = [((h + 1) // 2, h // 2) for h in range(H)]",
        "    places = [(h // 2, h // 2) for h in range(H)]",
        (
            "new:shared-attention/odd-path",
            "new:shared-attention/one-layer",
            "new:shared-attention/three-three",
            "new:shared-attention/two-three",
            "new:bilinear/least",
        ),
    ),
    Fault(
        "two stars: leaves exchanged",
        "utfproof.constructions.middle",
        "        return [one, *c[half:]], [one, *c[:half]]",
        "        return [one, *c[:half]], [one, *c[half:]]",
        ("new:shared-attention/odd-all",),
    ),
    Fault(
        "two stars: one coordinate too many",
        "utfproof.constructions.middle",
        "_units(places, (H - half + 1, half + 1))",
        "_units(places, (H - half + 2, half + 1))",
        ("new:bilinear/three", "new:shared-attention/odd-all"),
    ),
    Fault(
        "corrected products: both readers at the same points",
        "utfproof.claims.new_bilinear",
        "list(range(i + 1, 2 * i + 2))",
        "list(range(i + 1))",
        ("new:bilinear/three-mod-four",),
    ),
    Fault(
        "polynomial: the leading coefficient is lost",
        "utfproof.constructions.middle",
        "    return list(scale * p), list(u)",
        "    return list(p), list(u)",
        ("new:bilinear/onto",),
    ),
    Fault(
        "looped count: heads and layers exchanged",
        "utfproof.certificates.dimensions",
        "            return m * m, _counts(s)",
        "            return m * m, comb(s.layers + s.heads - 1, s.layers - 1)",
        ("new:looped-shared/both-free",),
    ),
    Fault(
        "looped targets: all heads share one value matrix",
        "utfproof.systems",
        "        return self.W_Q[head], self.W_K[head], self.W_V[head], self.W_O[head]",
        "        return self.W_Q[head], self.W_K[head], self.W_V[0], self.W_O[head]",
        ("new:looped-shared/wide",),
    ),
    Fault(
        "the square-root bound one too small",
        "utfproof.certificates.dimensions",
        "    return isqrt(count - 1) + 1",
        "    return isqrt(count - 1)",
        ("new:shared-attention/wide",),
    ),
    Fault(
        "parameters of E counted, those of U forgotten",
        "utfproof.certificates.dimensions",
        "lambda s, m: (2 * s.d_in * m - 1, word_family_dimension(s))",
        "lambda s, m: (s.d_in * m - 1, word_family_dimension(s))",
        ("new:shared-attention/wide-all",),
    ),
]
