"""Certificates about residual streams: prover, checker and sceptic agree, and no stream is forgotten or made up."""

import dataclasses
import json
import random
from fractions import Fraction

import corpus_residual
import make_corpus
import numpy as np
import pytest
import sceptic
from judges import OPTIONS, code_of, confirmed
from planting import changes_a_verdict, mutated
from test_certificate_fields import mutants, paired, text_of
from test_residual import naive_r_all, streaming

from utfproof.certificates import checker
from utfproof.certificates.dimensions import DIMENSION_ROWS
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.certificates.linear_test import linear_test_certificate
from utfproof.certificates.lower_bounds import (
    dimension_certificate,
    null_vector_certificate,
    span_certificate,
    span_dimension,
)
from utfproof.certificates.prover import certify
from utfproof.certificates.residual import missed_distance, reduced_columns, streaming_certificate
from utfproof.certificates.tied import certify_tied, span_upper_bound
from utfproof.constructions import CONSTRUCTIONS, build_host, construction
from utfproof.errors import MalformedInput, NotDefined, Undecided
from utfproof.ground.notions import Notion
from utfproof.matching import isolating_target, r_all, refuting_column, w_all
from utfproof.shapes import (
    Shape,
    column_at,
    column_groups,
    linear_test_dimension,
    matching_dimension,
    tied_targets_dimension,
)

SHAPES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 2), (2, 2, 1, 2), (1, 3, 1, 2), (3, 2, 1, 1), (2, 1, 1, 2, 3)]
FILES = {
    folder: sorted((make_corpus.CORPUS / folder).glob("residual-*.json"))
    for folder in ("valid", "invalid", "malformed")
}


def claim_of(found):
    return found.document["claim"]


# --- every kind, by prover, checker and sceptic ------------------------------------------------------------------


@pytest.mark.parametrize("dims", SHAPES)
def test_prover_checker_and_sceptic_agree(dims, tmp_path):
    shape = streaming(*dims)
    untied = shape.layers == 1
    expected = {
        "sparse": ("rank-triangular", "all untied", True, matching_dimension(shape)),
        "tied": ("rank-permutation", "all untied" if untied else "all tied", True, tied_targets_dimension(shape)),
        "random": ("rank-modular", "all untied", True, matching_dimension(shape)),
        "random-tied": (
            "rank-modular" if untied else "rank-deficient",
            "all untied",
            untied,
            matching_dimension(shape),
        ),
    }
    for name, (kind, targets, universal, rank) in expected.items():
        found = certify(name, shape)
        assert (found.kind, claim_of(found)["targets"], found.universal) == (kind, targets, universal)
        assert claim_of(found).get("rank", rank) == rank
        assert found.document["shape"]["residual"] is True
        assert confirmed(found, tmp_path).code == 0
        plain = json.loads(found.to_bytes())
        del plain["shape"]["residual"]
        path = tmp_path / "plain.json"
        path.write_bytes(sceptic.canonical(plain))
        assert checker.check_file(path, OPTIONS).code in (1, 2)
    below = certify("random", shape, matching_dimension(shape) - 1)
    assert below.document["evidence"] == {"method": "dimension"}
    assert confirmed(below, tmp_path).code == 0


def test_witnesses(tmp_path):
    for dims, m, options in [((2, 1, 1, 2), None, {}), ((1, 2, 1, 2), 14, {"law": "signs", "seed": 4}),
                             ((2, 2, 1, 1), 27, {"dtype": "bfloat16"})]:  # fmt: skip
        found = certify("random", streaming(*dims), m, witness=True, **options)
        assert found.document["evidence"]["method"] == "witness"
        assert confirmed(found, tmp_path).code == 0
    with pytest.raises(MalformedInput, match="witness"):
        certify("sparse", streaming(2, 1, 1, 2), witness=True)


@pytest.mark.filterwarnings("ignore::utfproof.shapes.EffectiveHeadDimensionWarning")
def test_linear_test(tmp_path):
    for dims in [(1, 2, 2, 1), (2, 1, 3, 2)]:
        shape = streaming(*dims)
        found = certify("random", shape, linear_test_dimension(shape), notion="attention-matching")
        assert (found.kind, claim_of(found)["rank"]) == ("linear-test", linear_test_dimension(shape))
        assert linear_test_dimension(shape) < matching_dimension(shape)
        assert confirmed(found, tmp_path).code == 0
    with pytest.raises(Undecided, match="no full column rank"):  # repeated columns
        linear_test_certificate("random-tied", streaming(1, 2, 2, 1), 14)


def test_large_constructions_are_quick(tmp_path):
    found = certify("sparse", streaming(3, 4, 2, 3))
    assert found.sidecars == {}
    found.write(tmp_path / "a.json")
    assert checker.check_file(tmp_path / "a.json", OPTIONS).code == 0
    found = certify("tied", streaming(4, 6, 2, 3))
    assert found.sidecars
    found.write(tmp_path / "a.json")
    assert checker.check_file(tmp_path / "a.json", OPTIONS).code == 0


def test_what_knows_no_stream_refuses_it():
    shape = streaming(2, 3, 2, 2)
    small = streaming(1, 1, 1, 1)
    for name, entry in CONSTRUCTIONS.items():
        if not entry.streams:
            for ask in (certify, certify_tied):
                with pytest.raises(NotDefined, match="without a residual stream only"):
                    ask(name, shape)
    streams = {name for name, entry in CONSTRUCTIONS.items() if entry.streams}
    for name in set(IDENTITIES) - streams:
        with pytest.raises(NotDefined, match="without a residual stream only"):
            identity_certificate(name, small)
    assert {"residual-key", "residual-query"} <= streams & set(IDENTITIES)
    for notion in ("attention-matching", "functional", "shared attention"):
        for targets in ("all untied", "all tied", "generic untied", "generic tied"):
            for free in (None, "E", "E and U"):
                if free is None and targets == "generic untied" and notion != "shared attention":
                    continue  # the logit forms
                with pytest.raises(MalformedInput, match="no dimension bound"):
                    dimension_certificate(small, 1, notion=Notion(notion), targets=targets, free=free)
    with pytest.raises(NotDefined):
        null_vector_certificate([[np.eye(1, dtype=int)]], small, tied=False)
    with pytest.raises(NotDefined):
        span_certificate(small, 1, tied=True, notion=Notion.SHARED_ATTENTION, free="E", generic=True)
    with pytest.raises(MalformedInput):
        streaming_certificate(construction("random"), small, 4, {}, None)
    with pytest.raises(Undecided, match="attention-matching"):
        certify("tied", shape, notion="attention-matching")


# --- the pieces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (1, 3, 1, 2), (2, 2, 1, 2), (2, 2, 2, 2, 3), (3, 1, 2, 2, 1)])
@pytest.mark.parametrize("name", ["sparse", "tied"])
def test_columns_of_the_constructions(name, dims):
    """Package, sceptic, and the checker's blocks, entry by entry."""
    shape = streaming(*dims)
    host = build_host(name, shape)
    matrix = naive_r_all(host)
    five = (*dims, dims[3])[:5]
    columns = list(sceptic.stream_columns(name, five).values())
    assert sceptic.stream_least(name, *five) == host.m
    theirs = checker.RESIDUAL_HOSTS[name](checker.Shape(*five, host.m, residual=True))
    lists = []
    for part in (0, 1):
        for layer in range(1, shape.layers + 1):
            reads = [theirs.reads(part, layer, h) for h in range(shape.heads)]
            lists += [(runs, shape.head_dim) for runs in checker.pull_back(theirs, reads, layer - 1, True)]
    lists += [(runs, shape.d_out) for runs in checker.pull_back(theirs, [theirs.outputs()], shape.layers, True)]
    place = 0
    for runs, width in lists:
        for j in range(width):
            rows = sorted(theirs.first(block) + offset + j for block, offset, limit in runs if j < limit)
            assert rows == sorted(columns[place]) == list(np.flatnonzero(matrix[:, place]))
            place += 1
    assert place == matrix.shape[1] == matching_dimension(shape)
    if name == "tied":
        kept = matrix[:, reduced_columns(shape)]
        assert (kept.sum(axis=0) == 1).all()
        assert (kept.sum(axis=1) <= 1).all()


@pytest.mark.parametrize("dims", [(1, 2, 1, 1, 1), (2, 2, 1, 2, 2), (2, 2, 1, 2, 3), (1, 3, 2, 3, 1), (3, 1, 1, 1, 2)])
def test_routed_targets(dims):
    """The checker's product, the sceptic's matrix and the package's target, for every column."""
    shape = Shape(*dims, residual=True)
    M, source = matching_dimension(shape), random.Random(1)
    s = checker.Shape(*dims, 1, residual=True)
    for column in range(M):
        right = np.asarray(w_all(isolating_target(shape, column)), dtype=object)
        assert (right == sceptic.stream_routed(dims, column)).all()
        z = {i: source.choice([-2, -1, 1, 3]) for i in {column, *(source.randrange(M) for _ in range(6))}}
        image = [sum(line[i] * v for i, v in z.items()) for line in right]
        found = checker.routed_product(s, column, sorted(z.items()))
        assert [found.get(i, 0) for i in range(shape.d_in)] == image
        chosen = refuting_column(shape, [z.get(i, 0) for i in range(M)])
        missed = np.asarray(w_all(isolating_target(shape, chosen)), dtype=object)
        square = sum(sum(line[i] * v for i, v in z.items()) ** 2 for line in missed)
        assert missed_distance(shape, chosen, z) == Fraction(int(square), sum(v * v for v in z.values())) > 0


@pytest.mark.full
def test_what_targets_span():
    """Routed targets span all M columns; tied ones the words without zeros, or less where numbers commute."""
    for dims in [(1, 2, 1, 1, 1), (2, 2, 1, 1, 1), (1, 1, 1, 2, 2)]:
        shape = Shape(*dims, residual=True)
        given, places = corpus_residual.routed_entries(dims), sceptic.stream_places
        rows = [sceptic.target_rows(entries, False, dims, places)() for entries in given]
        assert sceptic.residue_rank(2**31 - 1, np.concatenate(rows)) == matching_dimension(shape)
    for dims in [(1, 2, 2, 2), (2, 2, 2, 2)]:
        assert span_dimension(streaming(*dims), tied=True) == tied_targets_dimension(streaming(*dims))
    for dims in [(2, 2, 1, 1), (2, 3, 2, 1), (3, 2, 1, 1)]:
        shape = streaming(*dims)
        assert span_dimension(shape, tied=True) == span_upper_bound(shape) < tied_targets_dimension(shape)
        assert span_dimension(shape, tied=False) == matching_dimension(shape)


def test_bounds(tmp_path):
    shape = streaming(2, 2, 2, 2)
    for targets, every, most in [("all untied", "host", 56), ("generic untied", "host", 56), ("all tied", "host", 37),
                                 ("generic tied", "tied host", 37)]:  # fmt: skip
        bound = matching_dimension(shape) if targets.endswith("untied") else tied_targets_dimension(shape)
        found = dimension_certificate(shape, bound - 1, targets=targets, every=every)
        assert bound - 1 <= most
        assert confirmed(found, tmp_path).code == 0
        with pytest.raises(Undecided):
            dimension_certificate(shape, bound, targets=targets, every=every)
    for targets in ("all untied", "generic untied"):
        assert confirmed(dimension_certificate(shape, 10**30, targets=targets, every="tied host"), tmp_path).code == 0
    with pytest.raises(Undecided):
        dimension_certificate(streaming(2, 1, 2, 2), 100, every="tied host")
    for row in DIMENSION_ROWS:  # no row of plain shapes applies here, and the other way round
        assert not (row.applies(shape) and row.applies(shape.without_residual()))
        assert row.residual or not row.applies(shape)
    small = streaming(1, 2, 1, 2)
    assert confirmed(span_certificate(small, matching_dimension(small) - 1, tied=False), tmp_path).code == 0
    assert (
        confirmed(span_certificate(small, span_dimension(small, tied=True) - 1, tied=True, generic=True), tmp_path).code
        == 0
    )
    for dims in [(1, 2, 1, 1), (2, 2, 1, 1), (2, 1, 2, 2)]:
        least = streaming(*dims)
        given = [isolating_target(least, column) for column in range(matching_dimension(least))]
        found = span_certificate(least, matching_dimension(least) - 1, given, tied=False, generic=True)
        assert confirmed(found, tmp_path).code == 0
        with pytest.raises(Undecided):  # all of them are needed
            span_certificate(least, matching_dimension(least) - 1, given[: len(given) // 2], tied=False)


# --- every field, every wrong value ------------------------------------------------------------------------------


def repeated_columns(name, m):
    return corpus_residual.deficient(name, corpus_residual.SMALL, m, corpus_residual.repeated(corpus_residual.SMALL))


BASES = {
    "triangular": (lambda: corpus_residual.triangular((1, 1, 1, 1, 1)), 4),
    "triangular-padded": (lambda: corpus_residual.triangular(corpus_residual.SMALL, 11), 15),
    "permutation": (lambda: corpus_residual.permutation(corpus_residual.SMALL), 5),
    "modular": (lambda: corpus_residual.modular("random", (1, 1, 1, 1, 1), 5, law="signs", seed=3), 9),
    "witness": (lambda: corpus_residual.witness("random", (1, 1, 1, 1, 1)), 25),
    "kernel": (lambda: repeated_columns("random-tied", 4), 9),
    "kernel-tied": (lambda: repeated_columns("tied", 7), 9),
    "tied-kernel": (lambda: corpus_residual.kernel("random-tied", (1, 2, 1, 1, 1), 7), 40),
    "bound": (lambda: corpus_residual.bound((2, 2, 1, 1, 1), 24), 6),
    "bound-of-tied-hosts": (lambda: corpus_residual.bound((2, 2, 1, 1, 1), 99, every="tied host"), 6),
    "span": (lambda: corpus_residual.span((1, 1, 1, 1, 1), 3, corpus_residual.routed_entries((1, 1, 1, 1, 1))), 20),
}  # fmt: skip
"""With one of so many mutants taken."""


@pytest.mark.parametrize("name", BASES)
def test_mutated_fields(name, tmp_path):
    """Both judges agree on every mutant; what stays valid is another true statement."""
    base, step = BASES[name]
    document = paired(base())
    raw = text_of(document).encode()
    assert code_of(raw, tmp_path) == 0 == sceptic.judge(raw, tmp_path)
    seen = set()
    for number, (how, mutant) in enumerate(mutants(document)):
        raw = text_of(mutant).encode()
        if number % step and "residual" not in how:
            continue
        code = code_of(raw, tmp_path)
        second = sceptic.judge(raw, tmp_path)
        assert second is None or (second == 0) == (code == 0), how
        if code == 0:  # what the sceptic finds too large: a bound, zero rows, or a width that R_all does not involve
            assert second == 0 or name.startswith("bound") or ".m:" in how or ".d_in:" in how, how
        if "shape.residual" in how and code == 0:
            assert json.loads(raw)["shape"].get("residual", True) is True
        seen.add(code)
    assert seen >= {1, 2}


# --- forgetting it -----------------------------------------------------------------------------------------------


def test_corpus_has_every_kind_that_knows_streams():
    kinds = {json.loads(path.read_bytes())["kind"] for path in FILES["valid"]}
    assert kinds == set(checker.KINDS) - {"identity", "realization"}


@pytest.mark.parametrize("flagged", [True, False])
def test_the_flag_decides(flagged):
    """The flag dropped from a valid certificate, or added to one: another statement, which the sceptic finds false too unless
    it is a bound that holds all the more. No certificate of a construction stays valid, and none of an identity."""
    changed = 0
    for path in sorted((make_corpus.CORPUS / "valid").glob("*.json")):
        document = json.loads(path.read_bytes())
        if ("residual" in document["shape"]) is not flagged or path.stat().st_size > 3000:
            continue
        if flagged:
            del document["shape"]["residual"]
        else:
            document["shape"]["residual"] = True
        raw = sceptic.canonical(document)
        code = code_of(raw, path.parent)
        second = sceptic.judge(raw, path.parent)
        if second is not None:
            assert code == second, path
        if code == 0:
            bounds = document["kind"] == "lower-bound" or document["evidence"].get("method") == "dimension"
            assert bounds or document["kind"] == "enclosure" or second == 0, path
            if document["kind"] == "enclosure" and not flagged:  # words without 0 stay matched
                assert document["claim"]["verdict"] != "equal", path
        changed += 1
    assert changed > (60 if flagged else 300)


SOURCE_FAULTS = {
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
    "sub-words ignored": ("missed = sum(x * x for x in routed_product(claim.shape, self.column, self.z, limits).values())",
                          "missed = top * top"),
    "a zero miss is a miss": ("            if missed == 0:", "            if missed < 0:"),
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


@pytest.mark.full
@pytest.mark.parametrize("fault", SOURCE_FAULTS)
def test_faults_in_the_checker_change_a_verdict(fault):
    assert changes_a_verdict(checker, SOURCE_FAULTS[fault], FILES.values())


def test_faults_in_the_numpy_checker_change_a_verdict():
    from utfproof.certificates import checker_numpy

    for old, new in [("        if s.residual:\n            total", "        if False:\n            total"),
                     ("head + s.residual :: letters", "head::letters")]:  # fmt: skip
        module = mutated(checker_numpy, old, new)
        limits = dataclasses.replace(OPTIONS, numpy=True)
        original = checker.numpy_module
        try:
            checker.numpy_module = lambda module=module: module
            assert any(checker.check_file(p, limits).code != 0 for p in FILES["valid"] if "witness" in p.name)
        finally:
            checker.numpy_module = original


def test_column_order_is_that_of_the_shapes():
    """by_layer and the sceptic's places against shapes.column_at."""
    for dims in [(1, 3, 1, 2, 2), (2, 2, 2, 1, 3), (3, 2, 1, 1, 1)]:
        shape, s = Shape(*dims, residual=True), checker.Shape(*dims, 1, residual=True)
        assert s.columns == matching_dimension(shape) == sceptic.stream_M(*dims)
        assert s.reduced_columns == tied_targets_dimension(shape) == len(reduced_columns(shape))
        groups = {(g.kind, g.length): g for g in column_groups(shape)}
        for place, (kind, w, h, j) in enumerate(sceptic.stream_places(*dims)):
            column = column_at(shape, place)
            name = {"W_Q": "Q", "W_K": "K", "U": "OV"}[kind]
            assert (column.kind, column.coordinate) == (name, j)
            assert column.word == (w if h is None else (*w, h + 1))
            ((layer, ((part, number, coordinate, _),)),) = checker.by_layer(s, [(place, 1)]).items()
            assert (part, coordinate) == (("Q", "K", "OV").index(name), j)
            assert layer == (shape.layers + 1 if part == 2 else len(column.word))
            group = groups[name, len(column.word)]
            assert number == (place - group.start) // group.width


def test_r_all_of_dense_hosts_modulo_a_prime():
    """The checker's R_all up to order, and its product with a vector, against words multiplied out."""
    p = 65521
    dims, m = (2, 2, 1, 2, 1), 9
    drawn = (False, "float64", "uniform", 3, *dims, m)
    matrix, _ = sceptic.stream_dense(drawn, dims, m)
    claim = checker.Claim(
        checker.KINDS["rank-modular"], checker.Shape(*dims, m, residual=True), "random", "float64", "uniform", 3
    )
    host = checker.dense_host(claim)
    rows = checker.dense_matrix(host, p)
    ours = sorted(tuple(int(x) % p for x in column) for column in matrix.T)
    assert sorted(zip(*map(list, rows), strict=True)) == ours
    x = [checker.array(checker.U32, (random.Random(k).randrange(p) for _ in range(matrix.shape[1]))) for k in range(2)]
    wanted = [[sum(int(a) * b for a, b in zip(row, probe, strict=True)) % p for probe in x] for row in matrix]
    assert [list(row) for row in checker.times_probes(host, p, x)] == wanted
    assert (np.asarray(r_all(build_host("random", Shape(*dims, residual=True), m, seed=3))).shape) == matrix.shape
