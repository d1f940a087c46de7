"""Faults that the claims of Appendix A must notice: in the symbolic lemmas, the trees and the printed constructions."""

from planting import Fault

STATEMENTS = "utfproof.exact.symbolic.statements"
TREE = "utfproof.constructions.sparse"
FAULTS = [
    Fault(
        "attention matrices in the order of the values",
        STATEMENTS,
        "return (*reversed(attention), *systems.start(system), *systems.values(system, word))",
        "return (*attention, *systems.start(system), *systems.values(system, word))",
        ("sec:constructing/unrolled", "lem:unroll", "lem:multiunroll", "lem:multiunroll/prose"),
    ),
    Fault(
        "keys equated with the target's queries",
        STATEMENTS,
        "return host, (*self.values(TARGET, prefix), self.reader(TARGET, kind, layer, head))",
        'return host, (*self.values(TARGET, prefix), self.reader(TARGET, "Q", layer, head))',
        (
            "lem:eqatt",
            "lem:equal-io",
            "lem:multieqatt/all-layers",
            "lem:multieqatt/literal",
            "lem:equal-io-multi",
            "sec:constructing/two-conditions",
            "def:universal-transformer/uniform-in-n",
        ),
    ),
    Fault(
        "a dropped equation is used all the same",
        STATEMENTS,
        "if (kind, word) != dropped)",
        "if word != dropped)",
        (
            "lem:eqatt",
            "lem:equal-io",
            "lem:multieqatt/all-layers",
            "lem:equal-io-multi",
            "sec:constructing/two-conditions",
        ),
    ),
    Fault(
        "output equation without its last layer",
        STATEMENTS,
        "return (E, *self.values(HOST, word), U), self.values(TARGET, word)",
        "return (E, *self.values(HOST, word), U), self.values(TARGET, word[:-1])",
        ("lem:equal-io", "lem:equal-io-multi", "sec:constructing/two-conditions"),
    ),
    Fault(
        "the misprint mended",
        STATEMENTS,
        "return (*reversed(attention), X, *(letter for value in values for letter in (E, value)))",
        "return (*reversed(attention), X, E, *values)",
        ("lem:multiunroll/prose",),
    ),
    Fault(
        "the counterexample's layer 1 agrees",
        "utfproof.exact.symbolic.free_algebra",
        "target, host = gap(layer_one(1)), gap(layer_one(0))",
        "target, host = gap(layer_one(1)), gap(layer_one(1))",
        ("lem:multieqatt/literal",),
    ),
    Fault(
        "the single-head construction without its shift",
        "utfproof.constructions.as_printed",
        "    blocks = np.arange(L)\n    shift = pieces(cells, cells, (blocks + 1) * b, blocks * b, b, unit)",
        "    blocks = np.arange(L + 1)\n    shift = pieces(cells, cells, blocks * b, blocks * b, b, unit)",
        ("lem:single_head/construction", "lem:single_head/equivalently", "thm:sparse_universal_transformer/proof"),
    ),
    Fault(
        "the single-head shift goes right",
        "utfproof.constructions.as_printed",
        "shift = pieces(cells, cells, (blocks + 1) * b, blocks * b, b, unit)",
        "shift = pieces(cells, cells, blocks * b, (blocks + 1) * b, b, unit)",
        ("lem:single_head/equivalently",),
    ),
    Fault(
        "the theorem's m without the query and key factor",
        "utfproof.paper.formulas",
        "return sum(H**t * 2 * H * shape.head_dim for t in range(L)) + H**L * shape.d_in",
        "return sum(H**t * H * shape.head_dim for t in range(L)) + H**L * shape.d_in",
        ("thm:designed-R/statement", "thm:designed-R/dimension", "thm:designed-R/blocks"),
    ),
    Fault(
        "internal blocks without their keys",
        TREE,
        "starts.append(starts[-1] + 2 * H * shape.words_at(depth))",
        "starts.append(starts[-1] + H * shape.words_at(depth))",
        ("thm:designed-R/blocks",),
    ),
    Fault(
        "both readings of the formal R_V the same",
        TREE,
        "return move.transposed() if transposed else move",
        "return move",
        ("thm:designed-R/formal-column",),
    ),
    Fault(
        "the formal R_V copies into the first child only",
        TREE,
        "children = parents * shape.heads + head",
        "children = parents * shape.heads",
        ("thm:designed-R/formal-row", "thm:designed-R/formal-column"),
    ),
    Fault(
        "keys read from the query sub-blocks",
        TREE,
        "sub_blocks(depth, H + h)",
        "sub_blocks(depth, h)",
        (
            "thm:designed-R/sum-across-prefixes",
            "thm:designed-R/selector-identity",
            "thm:designed-R/statement",
            "thm:sparse_universal_transformer/heads",
        ),
    ),
    Fault(
        "a subtree taken from where the root's readers stand",
        TREE,
        "start = 2 * H * d + head * sizes[depth]",
        "start = head * sizes[depth]",
        (
            "thm:designed-R/recursive",
            "fig:E-block",
            "sec:constructing/construction",
            "thm:sparse_universal_transformer/proof",
        ),
    ),
]
