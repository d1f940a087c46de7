"""Faults planted in the checker: each changes the verdict on a seed of the corpus."""

from fractions import Fraction

import pytest
from corpus import FILES, FOLDERS
from planting import changes_a_verdict, judged

from utfproof.certificates import checker

BY_CODE = [[path for path, code in FILES.items() if code == wanted] for wanted in FOLDERS.values()]

# --- other text ----------------------------------------------------------------------------------------------

STREAMS = {
    "the flag is dropped": ("in held.items()}, residual=residual)", "in held.items()})"),
    "false is a flag": ('value.get("residual", True) is not True', 'type(value.get("residual", True)) is not bool'),
    "letters without 0": ("        return self.heads + self.residual\n", "        return self.heads\n"),
    "letter 0 forgotten in the traced columns": ("longer = list(lists) if stream else []", "longer = []"),
    "letter 0 last in the traced columns": (
        "        lists = longer\n    return lists", "        lists = longer[len(lists):] + longer[:len(lists)] if stream else "
        "longer\n    return lists"),
    "heads are their own letters": ("% self.s.letters != head + self.s.residual", "% self.s.letters != head"),
    "letter 0 forgotten in R_all": ("                row.extend(below[i])", "                row.extend(bytes(len(below[i])))"),
    "letter 0 forgotten in a witness": ("(packing.pack(row[::letters]) if s.residual else 0)", "0"),
    "witness: words in another order": ("row[h + s.residual :: letters]", "row[heads - h :: letters]"),
    "witness: head h is letter h": ("row[h + s.residual :: letters]", "row[h :: letters]"),
    "letter 0 forgotten in a kernel": (
        "                for target, vector in wanted:\n                    include(target, vector)",
        "                pass"),
    "a unit forgotten in a dense kernel": ("moved += letter > 0", "moved += 1"),
    "sub-words ignored": ("missed = sum(x * x for x in routed_product(claim.shape, self.column, self.z).values())",
                          "missed = top * top"),
    "letter 0 forgotten in a target's rows": (
        "{word * s.letters: vector for word, vector in rows.items()} if s.residual else {}", "{}"),
    "words of readers counted over heads": ("key=s.readers)", "key=s.words)"),
    "a 1 in an earlier column's row": ("if met := [row for row in ones if seen[row]]:", "if met := []:"),
    "tied hosts for all m at L = 1": ('claim.construction == "every tied host" and s.layers > 1', 'claim.construction == '
                                      '"every tied host"'),
    "every host for all m": ('claim.construction == "every tied host" and s.layers > 1', "s.layers > 1"),
    "bound for tied targets without paths": ("square and min(s.d_in, s.head_dim) >= s.layers:", "square:"),
    "bound for tied targets with M": ('return s.m, s.reduced_columns, "m and 2dS', 'return s.m, s.columns, "m and 2dS'),
    "rows of the plain table": ("        return residual_bound(claim)", "        pass"),
    "constructions without a stream": (
        "hosts = RESIDUAL_HOSTS if claim.shape.residual else INDEX_HOSTS", "hosts = INDEX_HOSTS | RESIDUAL_HOSTS"),
    "identities with a stream": (
        "        if shape.residual != issubclass(kind, ResidualReaders):",
        "        if shape.residual < issubclass(kind, ResidualReaders):"),
    "the plain constructions": ("return (RESIDUAL_HOSTS if claim.shape.residual else INDEX_HOSTS).get",
                                "return INDEX_HOSTS.get"),
    "untied targets for the tries": (
        "if not tied and s.residual and s.layers > 1:", "if False:"),
    "readers of a dense kernel counted over letters": (
        "up = 1 if code == CODE_U else s.heads",
        "up = 1 if code == CODE_U else s.letters"),
    "readers of a target's rows counted over letters": ("word * s.heads + head)", "word * s.letters + head)"),
    "a routed target's letters read backwards": (
        "enumerate(reversed(letters), 1) if letter]", "enumerate(letters, 1) if letter]"),
    "a routed target's first letter alone": ("for at, h in route:", "for at, h in route[:1]:"),
    "the output of a routed target at coordinate 0": (
        'target["W_O", *route[-1]] = {0: {coordinate: 1}}', 'target["W_O", *route[-1]] = {0: {0: 1}}'),
    "W_E forgotten where widths differ": ("        product[0] = product.get(coordinate, 0)", "        pass"),
    "triangular without a stream": (
        "        if not claim.shape.residual:\n            raise Malformed(f\"{cls.name} is for residual",
        "        if False:\n            raise Malformed(f\"{cls.name} is for residual"),
    "tied targets without a stream": ("        if tied and not s.residual:", "        if False:"),
    "shared attention spans": ("(shared and not s.residual)", "shared"),
    "no stream in the runs": ("        if attention.shape.residual:\n            total = stream", "        if False:\n"
                              "            total = stream"),
    "units mixed up": ("return self.in_units(unit).plus(other.in_units(unit))",
                       "return Ball(self.rows, unit, self.error).plus(Ball(other.rows, unit, other.error))"),
    "outputs of the longest words only": ("range(0 if s.residual else s.layers, s.layers + 1)",
                                          "range(s.layers, s.layers + 1)"),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", STREAMS)
def test_a_change_of_the_text_changes_a_verdict(fault):
    assert changes_a_verdict(checker, STREAMS[fault], BY_CODE)


# --- other functions -----------------------------------------------------------------------------------------


def commuting(self, x, word, row=checker.WordPoint.row):
    return row(self, x, tuple(sorted(word)))


def layerless(self, name, layer, head, matrix=checker.WordPoint.matrix):
    return matrix(self, name, min(layer, 1), head)


def upright(self, x, letter, times=checker.WordPoint.times):
    return times(self, x, (*letter[:3], False, letter[4]))


def uninverted(self, x, letter, times=checker.WordPoint.times):
    return times(self, x, (*letter[:4], False))


def words_added_up(host, runs, weights, q, weighted_words=checker.weighted_words):
    return weighted_words(host, runs, [[1] * len(numbers) for numbers in weights], q)


def unweighted(self, x, weights, weighted=checker.WordPoint.weighted):
    return weighted(self, x, [[1] * len(numbers) for numbers in weights])


def halves_exchanged(self, layer, head, block, move=checker.TwoSided.move):
    return move(self, self.L + 1 - layer, head, block)


def count_too_many(self, layer, head, block):
    return (checker.raised(block, max(head, 1) - 1), 0, 1) if sum(block) < self.L else None


def off_by_one(claim, bound=checker.dimension_bound):
    have, *rest = bound(claim)
    return have - 1, *rest


def queries_for_keys(shape, entries, by_layer=checker.by_layer):
    layers = by_layer(shape, entries)
    return {layer: [(0 if part == 1 else part, *rest) for part, *rest in found] for layer, found in layers.items()}


def of_targets(wrong, layered=checker.layered):
    """Products with the targets' matrices are wrong, those with the host's as they are."""
    return lambda *at: (wrong if isinstance(at[2], checker.TargetVectors) else layered)(*at)


class Anything:
    def __contains__(self, value):
        return True


def bounds_off_by_one(claim, words, generic_bounds=checker.generic_bounds):
    return ((have - 1, *rest) for have, *rest in generic_bounds(claim, words))


def heads_exchanged(self, layer, head, block, move=checker.Tied.move):
    return move(self, layer, self.H - 1 - head, block)


def keys_exchanged(self, layer, head, block, move=checker.SharedKey.move):
    return move(self, layer, self.H - 1 - head, block)


def keys_elsewhere(self, part, layer, head, reads=checker.SharedKey.reads):
    return [((1, 1, 0) if part else (0, 1, head), 0, self.s.d_in)]


PATCHED = {
    "words compared as multisets": (checker.WordPoint, "row", commuting),
    "layers of letters ignored": (checker.WordPoint, "matrix", layerless),
    "letters not transposed": (checker.WordPoint, "times", upright),
    "letters not inverted": (checker.WordPoint, "times", uninverted),
    "words of the host added up": (checker, "weighted_words", words_added_up),
    "words of the target added up": (checker.WordPoint, "weighted", unweighted),
    "halves of the two-sided register exchanged": (checker.TwoSided, "move", halves_exchanged),
    "the first head counted": (checker.Counting, "move", count_too_many),
    "tuples numbered by their sum": (checker, "tuple_number", lambda counts, total: sum(counts)),
    "bounds off by one": (checker, "dimension_bound", off_by_one),
    "every rank reached": (checker, "rank_reaches", lambda rows, p, wanted: True),
    "every number prime": (checker, "require_prime", lambda p: None),
    "no column dropped": (checker.LinearTest, "columns", classmethod(lambda cls, claim: claim.shape.columns)),
    "gauges ignored": (checker, "times_transposed", lambda matrix, row: row[: len(matrix)]),
    "a gauge for its transpose": (checker, "times_transposed", lambda matrix, row: row[-len(matrix) :]),
    "W_all z always zero": (checker, "layered", of_targets(lambda *_: {})),
    "W_all z never zero": (checker, "layered", of_targets(lambda *_: {0: 1})),
    "W_all z of row 0 always": (checker, "layered", of_targets(lambda *_: dict.fromkeys(range(9), 1))),
    "queries for keys": (checker, "by_layer", queries_for_keys),
    "kernels not tested": (checker, "require_kernel", lambda *_: None),
    "units of weights left out": (checker.WeightsHost, "units", lambda self, code: Fraction(1)),
    "NaN tolerated": (checker, "require_finite", lambda tensors, numpy: None),
    "any file will do": (checker.Header, "names", lambda self, digests, streamed: Anything()),
    "coefficients reduced modulo 2^127 - 1": (checker, "random_prime", lambda: 2**127 - 1),
}


PATCHED |= {
    "words compared by letters": (checker, "reduce", lambda word, commute: tuple(sorted(x[:3] for x in word))),
    "generic bounds off by one": (checker, "generic_bounds", bounds_off_by_one),
    "tied targets read as untied": (checker, "TIED", ("all tied",)),
}


STANDARD = {
    "heads of the register": ("register", checker.Tied, "move", heads_exchanged),
    "heads of the tries": ("shared-key", checker.SharedKey, "move", keys_exchanged),
    "heads of shared-query": ("shared-query", checker.Tied, "move", heads_exchanged),
    "U in the trie": ("shared-query", checker.Tied, "outputs", lambda self: [((0, 1, 0), 0, self.out)]),
    "U at a child": ("shared-key", checker.SharedKey, "outputs", lambda self: [((1, 1, 0), 0, self.out)]),
    "U twice": ("register", checker.Tied, "outputs", lambda self: [((1, self.L, 0), 0, self.out)] * 2),
    "U narrow": ("register", checker.Tied, "outputs", lambda self: [((1, self.L, 0), 0, self.out - 1)]),
    "U of nothing": ("register", checker.Tied, "outputs", lambda self: []),
    "keys from a child": ("shared-key", checker.SharedKey, "reads", keys_elsewhere),
    "queries for keys": (
        "shared-key", checker.SharedKey, "reads",
        lambda self, part, layer, head, reads=checker.SharedKey.reads: reads(self, 1 - part, layer, head),
    ),
    "keys for queries": (
        "shared-query", checker.SharedQuery, "reads",
        lambda self, part, layer, head, reads=checker.SharedQuery.reads: reads(self, 1 - part, layer, head),
    ),
    "reader of another head": (
        "shared-query", checker.SharedQuery, "reads",
        lambda self, part, layer, head, reads=checker.SharedQuery.reads: reads(self, part, layer, self.H - 1 - head),
    ),
    "blocks one coordinate on": (
        "register", checker.Tied, "first", lambda self, block, first=checker.Tied.first: first(self, block) + 1,
    ),
    "the trie's root is missing": (
        "shared-key", checker.SharedKey, "first",
        lambda self, block, first=checker.SharedKey.first: first(self, block) - (block[0] and self.s.d_in),
    ),
}  # fmt: skip


ROWS = {
    "heads of the trie are one": (
        "tied", checker.Tied, "move",
        lambda self, layer, head, block, move=checker.Tied.move: move(self, layer, 0, block),
    ),
    "a block is zero": (
        "tied", checker.Tied, "move",
        lambda self, layer, head, block, move=checker.Tied.move: (
            None if block == (0, 1, 1) else move(self, layer, head, block)
        ),
    ),
    "a block is cut short": (
        "tied", checker.Tied, "move",
        lambda self, layer, head, block, move=checker.Tied.move: (
            (*step[:2], 1) if (step := move(self, layer, head, block)) else None
        ),
    ),
    "the register lies on the trie": ("tied", checker.Tied, "first", lambda self, block: block[2]),
    "keys are queries": (
        "tied", checker.Tied, "reads",
        lambda self, part, layer, head, reads=checker.Tied.reads: reads(self, 0, layer, head),
    ),
    "letters are forgotten": (
        "sparse", checker.Sparse, "move", lambda self, layer, head, block: (block, 0, self.width(block[0])),
    ),
    "every head in front": (
        "sparse-front", checker.SparseFront, "move",
        lambda self, layer, head, block: (block, 2 * self.H * self.d, self.size[layer]),
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("fault", PATCHED | STANDARD | ROWS)
def test_another_function_changes_a_verdict(fault, monkeypatch):
    owner, name, wrong = (PATCHED | STANDARD | ROWS)[fault][-3:]
    monkeypatch.setattr(owner, name, wrong)
    assert any(judged(checker, path) != code for path, code in FILES.items())
