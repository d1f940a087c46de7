"""Certificates that name a standard embedding, or the rows of a permutation, instead of writing them out: what they stand for,
faults planted in the hosts that the checker follows, limits, and where the prover uses them."""

import tracemalloc
from dataclasses import replace

import corpus_standard as corpus
import pytest
import sceptic
from make_corpus import CORPUS, changed

from utfproof.certificates import checker
from utfproof.certificates.format import ROWS_WRITTEN_OUT, STANDARD, WRITTEN_OUT
from utfproof.certificates.identities import IDENTITIES, identity_certificate
from utfproof.certificates.prover import certify
from utfproof.constructions import CONSTRUCTIONS
from utfproof.errors import MalformedInput, ResourceLimit, Undecided
from utfproof.shapes import Shape, matching_dimension

OPTIONS = checker.Options()
HOSTS = {"register": checker.Register, "shared-key": checker.SharedKey, "shared-query": checker.SharedQuery}
SHAPES = [(2, 1, 1, 1), (2, 3, 1, 1), (3, 2, 2, 2), (2, 2, 3, 3), (1, 3, 2, 2)]


def verdict(document, folder, limits=OPTIONS):
    path = folder / "case.json"
    path.write_bytes(sceptic.canonical(document))
    return checker.check_file(path, limits)


def written_out(document):
    """The same with the blocks that the format's table gives."""
    shape = document["shape"]
    blocks = sceptic.standard_embedding(
        document["claim"]["host"]["construction"], shape["heads"], shape["layers"], shape["d_in"]
    )
    return changed(document, "evidence", "E", blocks)


# --- what it stands for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("name", [*HOSTS, "shared-query-functional"])
def test_both_forms_say_the_same(name, dims, tmp_path):
    if name == "shared-query-functional" and dims != (1, 3, 2, 2):
        return
    dims = (1, 3, 1, 1) if name == "shared-query-functional" else dims
    shape = Shape(*dims)
    short = identity_certificate(name, shape, standard=True).document
    long = identity_certificate(name, shape, standard=False).document
    assert short["evidence"] == {"E": "standard"}
    assert written_out(short) == long
    assert changed(short, "evidence", 0) == changed(long, "evidence", 0)
    for document in (short, long):
        assert verdict(document, tmp_path).code == 0
        assert sceptic.judge(sceptic.canonical(document), CORPUS) == 0


def test_a_condition_on_the_targets_is_not_dropped(tmp_path):
    base = identity_certificate("shared-query", Shape(2, 2, 1, 1), standard=True).document
    assert base["claim"]["targets"] == sceptic.INVERTIBLE
    found = verdict(changed(base, "claim", "targets", "all untied"), tmp_path)
    assert (found.code, found.message) == (1, 'inverses occur, and the targets are "all untied"')


# --- faults planted in the hosts ------------------------------------------------------------------------------------


def followed_moves(name, dims, folder, monkeypatch):
    """(layer, head, block) of every move that the check of the standard form follows."""
    seen, move = [], HOSTS[name].move
    with monkeypatch.context() as patch:
        patch.setattr(HOSTS[name], "move", lambda self, *at: seen.append(at) or move(self, *at))
        assert verdict(corpus.standard(name, dims), folder).code == 0
    return seen


@pytest.mark.full
@pytest.mark.parametrize("dims", [(2, 3, 2, 2), (3, 2, 1, 1)])
@pytest.mark.parametrize("name", HOSTS)
def test_every_move_is_followed_and_counts(name, dims, tmp_path, monkeypatch):
    """Each single move sent to another block, shifted, cut short, or to nothing: the verdict is that of the words written
    out, which is invalid, but for letters that the register forgets on the way."""
    short = corpus.standard(name, dims)
    H, L, _, b = dims
    seen = followed_moves(name, dims, tmp_path, monkeypatch)
    words = sum(H**t for t in range(1, L + 1))
    readers = 0 if name == "register" else 2 * H * sum(H**t for layer in range(1, L + 1) for t in range(1, layer))
    assert len(seen) == words + readers
    assert IDENTITIES[name].moves(Shape(*dims)) == len(seen) + H**L + (0 if name == "register" else 2 * words)
    codes: dict[bool, list[int]] = {True: [], False: []}
    move = HOSTS[name].move
    for at in dict.fromkeys(seen):
        target, shift, limit = move(HOSTS[name](checker.Shape(*dims[:4], b, short["shape"]["m"])), *at)
        trie, length, number = target
        elsewhere = [(trie, length, (number + 1) % H**length), (1 - trie, L, 0)]
        steps = [
            None,
            (target, shift, limit - 1),
            (target, shift + 1, limit),
            *((to, shift, limit) for to in elsewhere),
        ]
        for step in steps:
            with monkeypatch.context() as patch:
                patch.setattr(
                    HOSTS[name], "move", lambda self, *now, at=at, step=step: step if now == at else move(self, *now)
                )
                found = [verdict(form, tmp_path).code for form in (short, written_out(short))]
                assert found[0] == found[1], (at, step)
                codes[step is None or step[:2] != (target, shift)].append(found[0])
                assert found[0] == 1 or (trie and name != "shared-key" and step[1:] == (shift, limit))
    assert sum(codes[True]) > 0.75 * len(codes[True])
    assert all(codes[False])


def heads_exchanged(self, layer, head, block, move=checker.Tied.move):
    return move(self, layer, self.H - 1 - head, block)


def keys_exchanged(self, layer, head, block, move=checker.SharedKey.move):
    return move(self, layer, self.H - 1 - head, block)


def keys_elsewhere(self, part, layer, head, reads=checker.SharedKey.reads):
    return [((1, 1, 0) if part else (0, 1, head), 0, self.s.d_in)]


FAULTS = {
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


ROWS_FAULTS = {
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


@pytest.mark.parametrize("fault", [*FAULTS, *ROWS_FAULTS])
def test_faults_in_the_hosts_are_found(fault, tmp_path, monkeypatch):
    """Where an embedding is the standard one, and where rows are not written out."""
    name, owner, attribute, wrong = (FAULTS | ROWS_FAULTS)[fault]
    document = corpus.standard(name, (2, 3, 2, 2)) if fault in FAULTS else corpus.rows(name, (2, 3, 2, 2, 2))
    assert verdict(document, tmp_path).code == 0
    monkeypatch.setattr(owner, attribute, wrong)
    assert verdict(document, tmp_path).code == 1


def first_word_only(host, depth, runs, followed=checker.followed):
    yield next(followed(host, depth, runs))


def test_all_words_are_followed(tmp_path, monkeypatch):
    """One wrong move, at the end of one word: unseen by a checker that looks at one word."""
    move = checker.SharedKey.move
    monkeypatch.setattr(
        checker.SharedKey, "move",
        lambda self, *at: ((1, 3, 0), 0, self.out) if at == (1, 0, (1, 2, 3)) else move(self, *at),
    )  # fmt: skip
    document = corpus.standard("shared-key", (2, 3, 1, 1))
    found = verdict(document, tmp_path)
    assert (found.code, found.message) == (1, "the output reads 1 coordinates from 21 on, not block 24 of E")
    monkeypatch.setattr(checker, "followed", first_word_only)
    assert verdict(document, tmp_path).code == 0


def test_the_register_reads_the_same_wherever_U_stands(tmp_path, monkeypatch):
    """All letters of U's own block are gone after L moves: no fault, and not taken for one."""
    monkeypatch.setattr(checker.Tied, "outputs", lambda self: [((1, self.L, 1), 0, self.out)])
    document = corpus.standard("register", (2, 3, 2, 2))
    assert verdict(document, tmp_path).code == verdict(written_out(document), tmp_path).code == 0


@pytest.mark.parametrize("name", HOSTS)
def test_memory_does_not_grow_with_the_words(name, tmp_path):
    document = corpus.standard(name, (4, 6, 1, 1)) if name == "register" else corpus.standard(name, (4, 5, 2, 2))
    tracemalloc.start()
    try:
        assert verdict(document, tmp_path).code == 0
        assert tracemalloc.get_traced_memory()[1] < 300_000 + 2**20 + 2**16  # a file is read in pieces of 2^20 bytes
    finally:
        tracemalloc.stop()


# --- the prover ---------------------------------------------------------------------------------------------------------


def test_small_certificates_are_written_out_and_large_ones_named(tmp_path):
    for name in HOSTS:
        for heads, layers, named in ((2, 5, False), (4, 6, False), (4, 10, True)):
            shape = Shape(heads, layers, 1, 1)
            kind = IDENTITIES[name]
            assert kind.is_standard(shape) == (kind.numbers(shape) > WRITTEN_OUT) == named
            if not named:
                continue
            found = identity_certificate(name, shape)
            assert found.document["evidence"] == {"E": STANDARD}
            assert found.document["shape"]["m"] == kind.least_m(shape)
            assert len(found.to_bytes()) < 1000
    for name in ("tied", "sparse", "sparse-front"):
        wide = Shape(2, 4, 1, 2**18)  # few words of many columns
        small, large = certify(name, Shape(2, 3, 1, 1)), certify(name, wide)
        assert len(small.document["evidence"]["rows"]) == matching_dimension(Shape(2, 3, 1, 1))
        assert large.document["evidence"] == {"rows": STANDARD}
        assert not large.sidecars
        assert matching_dimension(wide) > ROWS_WRITTEN_OUT
        assert verdict(large.document, tmp_path).code == 0
    assert verdict(identity_certificate("shared-key", Shape(3, 8, 1, 1), standard=True).document, tmp_path).code == 0


def test_the_prover_refuses():
    spelled_out = {name for name, kind in IDENTITIES.items() if kind.words is not None}
    assert spelled_out < set(IDENTITIES)  # rational functions are never written out
    for name in spelled_out - {*HOSTS, "shared-query-functional"}:
        shape = Shape(2, 3 if "middle" in name or name == "polynomial" else 2, 1, 1)
        with pytest.raises(MalformedInput, match="no standard embedding"):
            identity_certificate(name, shape, standard=True)
        assert IDENTITIES[name].moves is None
    for name in HOSTS:
        with pytest.raises(ResourceLimit, match="moves"):
            identity_certificate(name, Shape(2, 40, 1, 1))
    with pytest.raises(ResourceLimit, match="checking tied"):
        certify("tied", Shape(4, 10, 1, 1), max_memory=10**8)


def test_a_record_is_not_believed(monkeypatch):
    """What a construction's record says of it is no evidence: a wrong one is no certificate, small or large."""
    key, tied = CONSTRUCTIONS["shared-key"], CONSTRUCTIONS["tied"]
    wrong = replace(
        key.identity, words=lambda shape: ([(start, []) for start, _ in key.identity.words(shape)[0]], None)
    )
    monkeypatch.setitem(IDENTITIES, "shared-key", replace(IDENTITIES["shared-key"], identity=wrong))
    with pytest.raises(Undecided, match="record of shared-key"):
        certify("shared-key", Shape(2, 2, 1, 1))
    monkeypatch.setitem(CONSTRUCTIONS, "printed-tree-row", replace(tied, name="printed-tree-row"))
    with pytest.raises(Undecided, match="record of printed-tree-row"):
        certify("printed-tree-row", Shape(2, 4, 1, 2**18))


def test_a_witness_belongs_to_a_rank():
    for name, notion in (("shared-key", None), ("register", None), ("tied", None), ("random", "attention-matching")):
        with pytest.raises(MalformedInput, match="--witness belongs to"):
            certify(name, Shape(2, 2, 1, 1), notion=notion, witness=True)
