"""Faults that the claims about residual streams must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "M_res: queries and keys of one head",
        "utfproof.constructions.residual",
        "    return 2 * shape.head_dim * shape.heads * inner + shape.d_out * letters**shape.layers",
        "    return 2 * shape.head_dim * inner + shape.d_out * letters**shape.layers",
        ("new:residual/dimension", "new:residual/decision", "new:residual/random"),
    ),
    Fault(
        "residual tree: letters count from 0",
        "utfproof.constructions.residual",
        "words[letter == head + 1], 0,",
        "words[letter == head], 0,",
        ("new:residual/moebius",),
    ),
    Fault(
        "residual tree: U reads the blocks above the leaves",
        "utfproof.constructions.residual",
        "    return Universal(shape, m, queries, keys, values, read(L, 0, shape.d_out))",
        "    return Universal(shape, m, queries, keys, values, read(L - 1, 0, shape.d_out))",
        ("new:residual/unimodular", "new:residual/moebius"),
    ),
    Fault(
        "Möbius transform with the wrong sign",
        "utfproof.constructions.residual",
        "                    values[i] = values[i] - values[i + a * stride]",
        "                    values[i] = values[i] + values[i + a * stride]",
        ("new:residual/moebius",),
    ),
    Fault(
        "tied obstruction: letters count from 0",
        "utfproof.constructions.residual",
        "(tuple(head + 1 if place == at else 0",
        "(tuple(head if place == at else 0",
        ("new:residual/tied-host",),
    ),
    Fault(
        "residual tries: keys hold queries",
        "utfproof.constructions.residual",
        "                E[:, trie + d : trie + 2 * d] = product @ w_k",
        "                E[:, trie + d : trie + 2 * d] = product @ w_q",
        ("new:residual/tied-targets",),
    ),
]
