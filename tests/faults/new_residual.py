"""Faults that the claims about residual streams must notice."""

from planting import Fault

FAULTS = [
    Fault(
        "M_res: queries and keys of one head",
        "utfproof.shapes",
        "    readers = shape.heads * geometric(shape.letters, 0, shape.layers - 1)\n    return 2 *",
        "    readers = (1 if shape.residual else shape.heads) * geometric(shape.letters, 0, shape.layers - 1)\n    return 2 *",
        ("new:residual/dimension", "new:residual/decision", "new:residual/random"),
    ),
    Fault(
        "residual tree: letters count from 0",
        "utfproof.constructions.sparse",
        "words[letter == head + shape.residual]",
        "words[letter == head]",
        ("new:residual/moebius",),
    ),
    Fault(
        "residual tree: U reads the blocks above the leaves",
        "utfproof.constructions.sparse",
        "    leaves = starts[-1] + np.arange(shape.words_at(shape.layers))",
        "    leaves = starts[-1] + np.arange(shape.words_at(shape.layers) - shape.residual)",
        ("new:residual/unimodular", "new:residual/moebius"),
    ),
    Fault(
        "Möbius transform with the wrong sign",
        "utfproof.constructions.residual",
        "            zero = zero - split[:, letter : letter + 1]",
        "            zero = zero + split[:, letter : letter + 1]",
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
    Fault(
        "triangular certificate: rows in the wrong order",
        "utfproof.certificates.residual",
        "    rows = _reduced_rows(shape, matrix) if entry.tied else _pivots(matrix)",
        "    rows = _reduced_rows(shape, matrix) if entry.tied else _pivots(matrix)[::-1].copy()",
        ("new:residual/unimodular",),
    ),
    Fault(
        "the bound M holds without the words with zeros",
        "utfproof.certificates.dimensions",
        'lambda s, m: (m, matching_dimension(s)), "m and M", applies,',
        'lambda s, m: (m, tied_targets_dimension(s)), "m and M", applies,',
        ("new:residual/decision",),
    ),
    Fault(
        "tied hosts lose words from three layers on",
        "utfproof.certificates.dimensions",
        "    if not shape.residual or shape.layers < 2:",
        "    if not shape.residual or shape.layers < 3:",
        ("new:residual/tied-host",),
    ),
    Fault(
        "tied targets see words with zeros",
        "utfproof.certificates.dimensions",
        "lambda s, m: (m, tied_targets_dimension(s)),",
        "lambda s, m: (m, matching_dimension(s)),",
        ("new:residual/tied-targets",),
    ),
    Fault(
        "relation of tied hosts: a word of its own",
        "utfproof.certificates.residual",
        "for word in ((*zeros, 1), (1, *zeros)))",
        "for word in ((*zeros, 1), (*zeros, 0)))",
        ("new:residual/tied-host",),
    ),
    Fault(
        "reduced columns: rows in the wrong order",
        "utfproof.certificates.residual",
        "    rows = _reduced_rows(shape, matrix) if entry.tied else _pivots(matrix)",
        "    rows = _reduced_rows(shape, matrix)[::-1].copy() if entry.tied else _pivots(matrix)",
        ("new:residual/tied-targets",),
    ),
    Fault(
        "routed targets: outputs of the stream alone keep W_E",
        "utfproof.matching.equations",
        "        W_E[0, coordinate] = 1",
        "        W_E[0, 0] = 1",
        ("new:residual/decision",),
    ),
]
