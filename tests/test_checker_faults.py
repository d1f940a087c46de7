"""Faults planted in the checker: each changes the verdict on a seed of the corpus."""

from fractions import Fraction

import pytest
from corpus import FILES, FOLDERS
from fault_injection import changes_a_verdict, judged

from utfproof.certificates import checker

BY_CODE = [[path for path, code in FILES.items() if code == wanted] for wanted in FOLDERS.values()]

# --- other text ----------------------------------------------------------------------------------------------

TEXTS = {
    "the flag is dropped": ("in held.items()}, residual=residual)", "in held.items()})"),
    "false is a flag": ('value.get("residual", True) is not True', 'type(value.get("residual", True)) is not bool'),
    "letters without 0": ("        return self.heads + self.residual\n", "        return self.heads\n"),
    "letter 0 forgotten in the traced columns": ("longer = list(lists) if stream else []", "longer = []"),
    "heads are their own letters": ("block[layer - 1] == head + self.s.residual", "block[layer - 1] == head"),
    "letter 0 forgotten in R_all": ("                row.extend(below[i])", "                row.extend(bytes(len(below[i])))"),
    "letter 0 forgotten in a witness": ("(packing.pack(row[::letters]) if s.residual else 0)", "0"),
    "witness: words in another order": ("row[h + s.residual :: letters]", "row[heads - h :: letters]"),
    "witness: head h is letter h": ("row[h + s.residual :: letters]", "row[h :: letters]"),
    "letter 0 forgotten in a kernel": (
        "                    include(target, {i: system.scale * x for i, x in vector.items()})", "                    pass"),
    "units forgotten in the stream of a kernel": ("{i: system.scale * x for i, x", "{i: x for i, x"),
    "units forgotten in readers of a kernel": ("system.scale ** (s.layers + 1 - layer)", "1"),
    "any column of a kernel vector": ("if s.residual and route(s, self.column) >", "if False and route(s, self.column) >"),
    "words of readers counted over heads": ("key=s.readers)", "key=s.words)"),
    "columns may begin in one row": ("seen.find(1, start, start + width) >= 0", "False"),
    "a version before": ('integer(version, "version") != VERSION', 'integer(version, "version") > VERSION'),
    "tied hosts for all m at L = 1": ('claim.construction == "every tied host" and s.layers > 1', 'claim.construction == '
                                      '"every tied host"'),
    "every host for all m": ('claim.construction == "every tied host" and s.layers > 1', "s.layers > 1"),
    "bound for tied targets without paths": ("square and min(s.d_in, s.head_dim) >= s.layers:", "square:"),
    "bound for tied targets with M": ('return s.m, s.reduced_columns, "m and 2dS', 'return s.m, s.columns, "m and 2dS'),
    "rows of the plain table": ("        return residual_bound(claim)", "        pass"),
    "the plain constructions": ("return (RESIDUAL_HOSTS if claim.shape.residual else INDEX_HOSTS).get",
                                "return INDEX_HOSTS.get"),
    "identities with a stream": (
        "shape.residual != issubclass(kind, ResidualKey)", "shape.residual < issubclass(kind, ResidualKey)"),
    "untied targets for the tries": ("and not (reduced and one):", "and not reduced:"),
    "readers of a kernel counted over letters": ("code == CODE_U else (s.heads,", "code == CODE_U else (s.letters,"),
    "shared attention spans": ("(shared and not s.residual)", "shared"),
    "no stream in the runs": ("        if attention.shape.residual:\n            total = stream", "        if False:\n"
                              "            total = stream"),
    "outputs of the longest words only": ("range(0 if reduced else s.layers, s.layers + 1)", "range(s.layers, s.layers + 1)"),
    "the digest without the stream's line": ('sha.update(b"residual true\\n" * s.residual)', "pass"),
    "entries that are not finite": ("top & mask == mask", "top & mask > mask"),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", TEXTS)
def test_a_change_of_the_text_changes_a_verdict(fault):
    assert changes_a_verdict(checker, TEXTS[fault], BY_CODE)


# --- other functions -----------------------------------------------------------------------------------------


def commuting(self, x, length, rows=checker.Point.rows):
    """M_w of the letters in another order."""
    found = rows(self, x, length)
    known = dict(found)
    return [(w, known[tuple(sorted(w))]) for w, _ in found]


def uninverted(matrix, q):
    return matrix


def words_added_up(host, runs, weights, q, weighted_words=checker.weighted_words):
    return weighted_words(host, runs, [[1] * len(numbers) for numbers in weights], q)


def unweighted(self, x, weights, weighted=checker.Point.weighted):
    return weighted(self, x, [[1] * len(numbers) for numbers in weights])


def halves_exchanged(self, layer, head, block, source=checker.TwoSided.source):
    return source(self, self.L + 1 - layer, head, block)


def count_too_many(self, layer, head, block):
    return checker.raised(block, max(head, 1))


def off_by_one(claim, bound=checker.dimension_bound):
    have, *rest = bound(claim)
    return have - 1, *rest


def bounds_off_by_one(claim, words, generic_bounds=checker.generic_bounds):
    return ((have - 1, *rest) for have, *rest in generic_bounds(claim, words))


def queries_for_keys(shape, entries, by_layer=checker.by_layer):
    layers = by_layer(shape, entries)
    return {layer: [(0 if part == 1 else part, *rest) for part, *rest in found] for layer, found in layers.items()}


def of_targets(wrong, layered=checker.layered):
    """Products with the targets' matrices are wrong, those with the host's as they are."""

    def changed(s, z, system):
        host = getattr(system, "host", None)
        return wrong if isinstance(host, checker.GivenHost) else layered(s, z, system)

    return changed


def exchanged(kind):
    """Its source, for the last head in place of the first."""
    source = kind.source
    return lambda self, layer, head, block: source(self, layer, self.H - 1 - head, block)


def reversed_parts(kind):
    reads = kind.reads
    return lambda self, part, layer, head: reads(self, 1 - part, layer, head)


PATCHED = {
    "words compared as multisets": (checker.Point, "rows", commuting),
    "matrices not inverted": (checker, "inverse_modulo", uninverted),
    "matrices not transposed": (checker, "turned", lambda matrix: [list(row) for row in matrix]),
    "words of the host added up": (checker, "weighted_words", words_added_up),
    "words of the target added up": (checker.Point, "weighted", unweighted),
    "halves of the two-sided register exchanged": (checker.TwoSided, "source", halves_exchanged),
    "the first head counted": (checker.Counting, "source", count_too_many),
    "bounds off by one": (checker, "dimension_bound", off_by_one),
    "generic bounds off by one": (checker, "generic_bounds", bounds_off_by_one),
    "every rank reached": (checker, "rank_reaches", lambda rows, p, wanted: True),
    "every number prime": (checker, "require_prime", lambda p: None),
    "no column dropped": (checker.LinearTest, "columns", classmethod(lambda cls, claim: claim.shape.columns)),
    "W_all z always zero": (checker, "layered", of_targets({})),
    "W_all z never zero": (checker, "layered", of_targets({0: 1})),
    "queries for keys": (checker, "by_layer", queries_for_keys),
    "kernels not tested": (checker, "require_kernel", lambda *_: None),
    "units of weights left out": (checker.WeightsHost, "units", lambda self, code: Fraction(1)),
    "NaN tolerated": (checker, "require_finite", lambda tensors: None),
    "coefficients reduced modulo 2^127 - 1": (checker, "random_prime", lambda: 2**127 - 1),
    "tied targets read as untied": (checker, "TIED", ("all tied",)),
    "heads of the tries exchanged": (checker.Tries, "source", exchanged(checker.Tries)),
    "queries of shared-key for keys": (checker.SharedKey, "reads", reversed_parts(checker.SharedKey)),
    "queries of shared-query for keys": (checker.SharedQuery, "reads", reversed_parts(checker.SharedQuery)),
    "U at a child": (checker.SharedKey, "outputs", lambda self: self.run(("K", (0,)), width=self.out)),
    "U of nothing": (checker.Register, "outputs", lambda self: []),
    "blocks all in one place": (checker.IndexHost, "first", lambda self, block: 0),
    "letters are forgotten": (checker.Sparse, "source", lambda self, layer, head, block: block),
    "keys are queries": (checker.Tied, "reads", lambda self, part, layer, head: self.half(0, ("T", (head,)))),
    "every head in front": (
        checker.SparseFront, "move",
        lambda self, layer, head, block: (block, 2 * self.H * self.d, self.size[layer]),
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("fault", PATCHED)
def test_another_function_changes_a_verdict(fault, monkeypatch):
    owner, name, wrong = PATCHED[fault]
    monkeypatch.setattr(owner, name, wrong)
    assert any(judged(checker, path) != code for path, code in FILES.items())
