"""The checker on random input, with a fixed seed: well-formed statements that may be false, mutated certificates, and
bytes. Each verdict is compared with `sceptic.judge`; nothing is accepted that the judge does not confirm."""

import copy
import json
import random
import re
import shutil
import signal
import time
from fractions import Fraction

import corpus_enclosures
import corpus_identities
import corpus_weights
import make_corpus as corpus
import pytest
import sceptic
from judges import write_anew
from sceptic import DTYPES, INDEX, LAWS, PERMUTATIONS, RANDOM, judge
from test_certificate_fields import Pairs, paired, replacements, text_of
from test_certificates import BASES, OPTIONS, WEIGHTS, copy_sidecars

from utfproof.certificates import checker

TOKENS = [b"null", b"true", b"-0", b"1E3", b"1e400", b"0.0", b"NaN", b"-Infinity", b'"', b"\\", b"\\u0000", b"\\ud800",
          b"\\u006d", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r\n", b" ", b"[", b"]", b"{", b"}", b",", b":", b"[" * 2000,
          b'{"":' * 2000, b"9" * 400, b"-", b"+1", b"00", b'"__class__":1,', b'"\\u0660"', b"\xd9\xa0",
          b"9007199254740993", b'"9007199254740993"', b'"-9007199254740993"', b"18446744073709551616"]  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 7, -1, 2**31 - 1, 2**32, 2**53, 2**53 + 1, 2**61 - 1, 2**64 - 1, 2**64, 10**30)


def statement(source):
    """A well-formed certificate of a small host; true or not."""
    name = source.choice([*INDEX, *RANDOM])
    H = 1 if name == "printed-single-head" else source.choice([1, 2, 2, 3])
    L, d_in, d_out = source.randint(1, 2 if H > 1 else 3), source.randint(1, 3), source.randint(1, 3)
    d = source.randint(1, 3)
    d = max(d, d_in if name == "shared-key" else d_out if name == "shared-query" else 1)
    dims = (H, L, d, d_in, d_out)
    M = sceptic.dimension(*dims)
    if name in RANDOM and M > 16:
        return statement(source)
    least = sceptic.least_m(name, *dims) if name in INDEX else 1
    m = max(least, source.choice([least, M, M, M + 1, M - 1, least + 3]))
    drawn = {}
    if name in RANDOM:
        drawn = {"seed": source.choice([source.getrandbits(3), source.getrandbits(64)]), "law": source.choice(LAWS),
                 "dtype": source.choice(DTYPES)}  # fmt: skip
    kind = source.choice(["dimension", "kernel", "kernel", "main", "main", "main"])
    if kind == "dimension" or m > 40:
        return corpus.document("rank-deficient", name, dims, m, {"method": "dimension"}, **drawn)
    if kind == "main" and name in RANDOM:
        p = source.choice([3, 3, 5, 7, 101, 8388593, 2**31 - 1, 9, 15, 2047, 2])
        host = (name == "random-tied", *(drawn.get(field) for field in ("dtype", "law", "seed")), *dims, m)
        if p not in (2, 9, 15, 2047) and source.random() < 0.4 and sceptic.rank_modulo(p, *host) == M:
            found, _ = corpus.witness(name, dims, m, p, **drawn)
            if source.random() < 0.6:
                inverse = found["evidence"]["inverse"]
                inverse[source.randrange(len(inverse))] = source.randrange(p)
            return found
        return corpus.document("rank-modular", name, dims, m, {"method": "recompute", "prime": p}, rank=M, **drawn)
    if kind == "main" and name in PERMUTATIONS:
        rows = [next(iter(column)) for column in sceptic.index_columns(name, *dims)[1]]
        for _ in range(source.choice([0, 0, 1, 1, 2])):
            a, b = source.randrange(M), source.randrange(M)
            rows[a], rows[b] = rows[b], source.choice([rows[a], rows[a], source.randrange(m)])
        return corpus.document("rank-permutation", name, dims, m, {"rows": rows}, rank=M)
    z = {source.randrange(M): source.choice([1, -1, 2, 2**64, -(10**20)]) for _ in range(source.randint(1, 3))}
    if source.random() < 0.7:
        basis = corpus.kernel_basis(corpus.matrix_of(name, dims, m, **drawn))
        z = {}
        for vector in source.choices(basis, k=source.randint(1, 3)) if basis else []:
            scale = source.choice([1, 1, -3, 2**40])
            for i, v in vector.items():
                z[i] = z.get(i, 0) + scale * v
        if source.random() < 0.4 or not basis:
            i = source.randrange(M)
            z[i] = z.get(i, 0) + source.choice([1, -1, 2**61 - 1, 2**64])
        z = {i: v for i, v in z.items() if v} or {0: 1}
    return corpus.document("rank-deficient", name, dims, m, corpus.kernel_evidence(z), **drawn)


def another_letter(source, letter, dims):
    H, L = dims[:2]
    head, layer = source.randrange(H), source.randint(1, L) if letter[1] != "." else ""
    suffix = source.choice(["", "", "T", "I", "IT"])
    return source.choice(
        [
            f"{letter[0]}{layer}.{head}",
            f"M{layer}.{head}{suffix}",
            f"A{layer}.{head}",
            letter.removesuffix("T"),
            f"{letter}T",
        ]
    )


def identity_statement(source):
    """An identity with up to three changes to its words and blocks."""
    name = source.choice(list(sceptic.RULES))
    H, L, d, b = source.randint(1, 3), source.randint(1, 3), source.randint(1, 3), source.choice([1, 1, 2])
    b = 1 if name in corpus.SCALAR else b
    d = max(d, b) if name in corpus.ATTENTION else d
    dims = (H, 2 if name == "two-sided" else L, d, b)
    found = corpus.identity(name, dims)
    found["shape"]["m"] += source.choice([0, 0, 3])
    if name == "shared-query":
        found["claim"]["targets"] = source.choice([sceptic.INVERTIBLE] * 9 + ["all untied"])
    for _ in range(source.choice([0, 1, 1, 1, 2, 3])):
        blocks = found["evidence"][source.choice(list(found["evidence"]))]
        a, c = source.choice(blocks), source.choice(blocks)
        word, how = a[1], source.randrange(9)
        if how == 0:
            a[1], c[1] = c[1], a[1]
        elif how == 1:
            a[1] = c[1]
        elif how == 2 and word:
            i = source.randrange(len(word))
            word[i] = another_letter(source, word[i], dims)
        elif how == 3 and word:
            del word[source.randrange(len(word))]
        elif how == 4 and word:
            word.insert(source.randint(0, len(word)), another_letter(source, word[0], dims))
        elif how == 5 and len(word) > 1:
            i, j = source.randrange(len(word)), source.randrange(len(word))
            word[i], word[j] = word[j], word[i]
        elif how == 6:
            a[0] += source.choice([1, -1, b])
        elif how == 7:
            blocks.remove(a)
            break
        elif how == 8:
            blocks.append([found["shape"]["m"] - b, list(word)])
    return found


def lower_bound_statement(source):
    how = source.randrange(3)
    if how == 0:
        notion, targets, free, dims, least = source.choice(list(corpus_identities.table_of_bounds().values()))
        dims = tuple(max(1, n + source.choice([0, 0, 0, 1, -1])) for n in dims)
        return corpus.bound(notion, dims, max(1, least + source.choice([-2, -1, 0, 1])), targets=targets, free=free)
    H, L, d, d_in = source.randint(1, 2), source.randint(1, 3), source.randint(1, 2), source.randint(1, 2)
    if how == 1:
        tied = source.random() < 0.6
        M = sceptic.dimension(H, L, d, d_in, d_in)
        count = M // d_in + source.choice([0, 1, 2])
        given = corpus.drawn_targets(count, tied, H, L, d, d_in, source.randrange(1000))
        if source.random() < 0.3:
            given[-1] = given[0]
        prime, less = source.choice([3, 5, 101, 2**31 - 1, 9]), source.choice([1, 1, 2, 3, 5])
        targets = "all tied" if tied else "all untied"
        return corpus.span((H, L, d, d_in), max(1, M - less), given, targets=targets, prime=prime)
    looped, m = source.random() < 0.5, source.randint(1, 2)
    R = corpus.drawn_values(looped, H, L, m, source.randrange(1000), source.choice([1, 1, 2, 10**17]))
    try:
        y = corpus.word_kernel(R, looped, H, L)
    except IndexError:  # the words are independent
        y = {}
    if source.random() < 0.4 or not y:
        i = source.randrange(H**L)
        y = {i: v for i, v in (y | {i: y.get(i, 0) + source.choice([1, -1, 2**64])}).items() if v} or {0: 1}
    s = source.choice([*y, source.randrange(H**L)])
    R = [[[[corpus.written(x) for x in row] for row in matrix] for matrix in layer] for layer in R]
    return corpus.null_vector(R, looped, (H, L, d, d_in, source.randint(1, 2)), y, s)


def linear_statement(source):
    d_in = source.randint(1, 2)
    H, L, d = source.randint(1, 2), source.randint(1, 2), source.randint(d_in, 3)
    name, seed = source.choice(RANDOM), source.getrandbits(8)
    found = corpus.linear(name, (H, L, d, d_in, d_in), 1, source.choice([3, 3, 5, 8388593, 9]), seed=seed)
    found["shape"]["m"] = max(1, found["claim"]["rank"] + source.choice([0, 0, 1, -1]))
    return found


def tied_statement(source):
    """Of the method tied-target, or of the kind tied-kernel about random hosts or the file of WEIGHTS."""
    if source.random() < 0.3:
        found = copy.deepcopy(WEIGHTS["tied-kernel"][0])
        found["evidence"]["prime"] = source.choice([3, 101, 2**31 - 1, 9])
        (z,) = found["evidence"]["basis"]
        how = source.randrange(6)
        if how == 0:
            z[source.randrange(2)][1] += source.choice([1, 2**40])
        elif how == 1:
            z[0][0] -= source.randint(1, 5)
        elif how == 2:
            for pair in z:
                pair[1] *= source.choice([-1, 2, 3, 101])
        elif how == 3:
            found["shape"]["m"] += source.choice([1, -1])
        return found
    name = source.choice(["printed-looped", "printed-tree-row", "shared-key", "shared-query", *RANDOM])
    H, L, d_in = source.randint(1, 2), source.randint(1, 2), source.randint(1, 2)
    d = source.randint(d_in, 2)
    dims = (H, L, d, d_in, d_in)
    drawn = {}
    least, M = 1, sceptic.dimension(*dims)
    if name in RANDOM:
        drawn = {"seed": source.getrandbits(8), "law": source.choice(LAWS), "dtype": source.choice(DTYPES)}
        if M > 20:
            return tied_statement(source)
    else:
        least = sceptic.least_m(name, *dims)
    m = max(least, M - source.randint(0, 3))
    basis = corpus.kernel_basis(corpus.matrix_of(name, dims, m, **drawn))
    if name in RANDOM and basis and source.random() < 0.3:
        evidence = {"basis": [corpus_weights.pairs_of(z) for z in basis], "prime": 2**31 - 1}
        found = corpus.document("tied-kernel", name, dims, m, evidence, rank=M - len(basis), **drawn)
        return corpus.changed(found, "claim", "targets", "all tied")
    z = dict(source.choice(basis)) if basis else {source.randrange(M): 1}
    if source.random() < 0.3:
        z[source.randrange(M)] = source.choice([1, -1, 2**64])
    (target,) = corpus.drawn_targets(1, True, H, L, d, d_in, source.randrange(1000))
    target = [entry for entry in target if source.random() < source.choice([1, 1, 0.5])]
    evidence = {
        "method": "tied-target",
        "row": source.randrange(d_in),
        "target": target,
        "z": corpus_weights.pairs_of(z),
    }
    return corpus.changed(document_of(name, dims, m, evidence, drawn), "claim", "targets", "all tied")


def document_of(name, dims, m, evidence, drawn):
    return corpus.document("rank-deficient", name, dims, m, evidence, **drawn)


def gauged_statement(source):
    found = linear_statement(source)
    shape = found["shape"]
    layers = 1 if found["claim"]["host"]["construction"] == "random-tied" else shape["layers"]
    gauges = corpus_weights.drawn_gauges(
        layers, shape["heads"], shape["d_in"], shape["head_dim"], source.randrange(1000)
    )
    found["evidence"]["gauges"] = gauges
    if source.random() < 0.2:
        gauges[0][0] = [[0] * shape["head_dim"]] * shape["d_in"]
    return found


def enclosure_statement(source):
    """Of any host, with an exact, a rounded or any other E, and up to two changes."""
    name = source.choice([*INDEX, *RANDOM])
    H = 1 if name == "printed-single-head" else source.randint(1, 2)
    L, d, d_in, d_out = (source.randint(1, 2) for _ in range(4))
    if name in corpus.ATTENTION:
        d_out = d_in
        d = max(d, d_in)
    dims = (H, L, d, d_in, d_out)
    M = sceptic.dimension(*dims)
    if M > (9 if name in RANDOM else 20):
        return enclosure_statement(source)
    names = [part for part in sceptic.PARTS if source.random() < 0.3 and (part != "rope" or d == 2)]
    parts = [f"window:{source.randint(1, 3)}" if part == "window" else part for part in names]
    attention = source.choice(["+".join(parts) or "softmax"] * 3 + ["given"])
    options = {
        "seed": source.getrandbits(3),
        "step": source.choice([None, corpus_enclosures.ROUNDED, Fraction(1, 100)]),
    }
    m = sceptic.least_m(name, *dims) if name in INDEX else M
    if name.startswith("printed"):
        options["E"] = corpus_enclosures.drawn(source, d_in, m)
    options["width"] = None if name in corpus.ATTENTION else source.choice([None, 1, 2])
    digits = source.choice([1, 3, 15, 30])
    try:
        found, _ = corpus_enclosures.enclosure(name, dims, attention, source.randint(1, 3), digits, m=m, **options)
    except (AssertionError, ZeroDivisionError):  # out of this host's reach
        return enclosure_statement(source)
    claim, evidence = found["claim"], found["evidence"]
    for _ in range(source.choice([0, 0, 1, 1, 2])):
        how = source.randrange(8)
        if how < 3:
            low, high = map(int, claim["difference"])
            low, high = source.choice(
                [
                    (low - 5, high),
                    (low, high + 5),
                    (high, high + 9),
                    (0, low),
                    (0, 1),
                    (low // 10, high // 10),
                    (low, 10**40),
                ]
            )
            claim["difference"] = [corpus.written(x) for x in (low, high)]
        elif how == 3:
            claim["verdict"] = source.choice(["within", "apart", "equal"])
        elif how == 4:
            claim["digits"] = source.randint(1, 40)
        elif how == 5:
            claim["attention"] = source.choice(
                ["softmax", "causal", "scaled", "alibi", "causal+alibi", "rope", "window:1"]
            )
        else:
            tensor = source.choice(["E", "X", *(name for name in evidence["target"] if name.startswith("W"))])
            numbers = (evidence if tensor in ("E", "X") else evidence["target"])[tensor]["numerators"]
            place = source.randrange(len(numbers))
            numbers[place] = corpus.written(int(numbers[place]) + source.choice([1, -1, 2**30]))
    if claim["verdict"] == "equal":
        claim = {key: value for key, value in claim.items() if key not in ("digits", "difference")}
    return found | {"claim": claim}


STATEMENTS = [statement, statement, identity_statement, identity_statement, lower_bound_statement, linear_statement,
              tied_statement, gauged_statement, enclosure_statement]  # fmt: skip


def any_statement(source):
    return source.choice(STATEMENTS)(source)


def places(value, path=()):
    yield path
    if isinstance(value, Pairs):
        for i, (_, inner) in enumerate(value):
            yield from places(inner, (*path, i))
    elif type(value) is list:
        for i, inner in enumerate(value):
            yield from places(inner, (*path, i))


def put(value, path, change):
    """The value with change(part) in place of the part at the path; `...` removes it."""
    if not path:
        return change(value)
    i, *rest = path
    if isinstance(value, Pairs):
        key, inner = value[i]
        new = put(inner, rest, change)
        return Pairs([*value[:i], *([] if new is ... else [(key, new)]), *value[i + 1 :]])
    new = put(value[i], rest, change)
    return [*value[:i], *([] if new is ... else [new]), *value[i + 1 :]]


def part(value, path):
    for i in path:
        value = value[i][1] if isinstance(value, Pairs) else value[i]
    return value


def structured(source, tree, other):
    for _ in range(source.choice([1, 1, 2, 3])):
        path = source.choice(list(places(tree)))
        how = source.random()
        if how < 0.5:
            tree = put(tree, path, lambda inner: source.choice(list(replacements(inner)))[1])
        elif how < 0.6 and path:
            tree = put(tree, path, lambda inner: ...)
        elif how < 0.8:
            tree = put(tree, path, lambda inner: source.choice(NUMBERS) if type(inner) is int else inner)
        else:  # a part of another certificate
            donor = part(other, source.choice(list(places(other))))
            tree = put(tree, path, lambda inner, donor=donor: donor)
        if not isinstance(tree, Pairs):
            break
    return text_of(tree).encode()


def damaged(source, raw, other):
    raw = bytearray(raw)
    for _ in range(source.choice([1, 1, 1, 2, 5])):
        at, to = sorted((source.randrange(len(raw) + 1), source.randrange(len(raw) + 1)))
        how = source.randrange(8)
        if how == 0 and at < len(raw):
            raw[at] ^= 1 << source.randrange(8)
        elif how == 1:
            del raw[at : min(to, at + source.choice([1, 2, 30]))]
        elif how == 2:
            raw[at:at] = source.choice(TOKENS)
        elif how == 3:
            raw[at:at] = raw[at : min(to, at + 40)]
        elif how == 4:
            raw[at : at + 1] = source.randbytes(source.choice([1, 1, 8]))
        elif how == 5:
            raw[at:] = other[source.randrange(len(other)) :]
        elif how == 6 and (digits := [i for i, c in enumerate(raw) if 48 <= c < 58]):
            raw[source.choice(digits)] = source.randrange(48, 58)
        else:
            raw[at : min(to, at + 20)] = source.choice(TOKENS)
    return bytes(raw)


def inputs(count, seed):
    source = random.Random(seed)
    bases = [sceptic.canonical(make()) for make in BASES.values()]
    trees = [paired(make()) for name, make in BASES.items() if name != "witness-sidecar"]
    for _ in range(count):
        how = source.random()
        if how < 0.45:
            yield "statement", sceptic.canonical(any_statement(source))
        elif how < 0.65:
            yield "structured", structured(source, source.choice(trees), source.choice(trees))
        elif how < 0.75:
            yield "structured statement", structured(source, paired(any_statement(source)), source.choice(trees))
        elif how < 0.98:
            yield "bytes", damaged(source, source.choice(bases), source.choice(bases))
        else:
            yield "noise", source.randbytes(source.choice([0, 1, 2, 50, 1000]))


def corpus_files(largest):
    """(folder, kind) -> certificates of the corpus below this size."""
    kinds = {}
    for folder in ("valid", "invalid", "malformed"):
        for path in sorted((corpus.CORPUS / folder).glob("*.json")):
            if 0 < path.stat().st_size < largest:
                kinds.setdefault((folder, path.name.split("-")[0]), []).append(path)
    return kinds


def corpus_inputs(count, seed):
    """Certificates of the corpus of every kind, with up to three changes to the structure or five to the bytes."""
    source = random.Random(seed)
    kinds = list(corpus_files(20_000).values())
    for _ in range(count):
        raw, other = (source.choice(source.choice(kinds)).read_bytes() for _ in range(2))
        try:
            trees = [paired(json.loads(x)) for x in (raw, other)]
            text_of(trees[0])
        except (ValueError, RecursionError, UnicodeError):
            trees = []
        if trees and source.random() < 0.6:
            yield "corpus", structured(source, *trees)
        else:
            yield "corpus bytes", damaged(source, raw, other)


class Hangs(AssertionError):
    pass


def stop(*_):
    raise Hangs("a check took longer than 20 s")


def fuzz(count, seed, folder, source=inputs):
    copy_sidecars(folder)
    path = folder / "fuzz.json"
    seen = {}
    for how, raw in source(count, seed):
        write_anew(path, raw)
        start = time.process_time()
        old = signal.signal(signal.SIGALRM, stop)
        signal.alarm(20)
        try:
            verdict = checker.check_file(path, OPTIONS)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, old)
        assert "Hangs" not in verdict.message, raw[:2000]
        assert time.process_time() - start < 5, raw[:2000]
        assert verdict.code in (0, 1, 2, 3)
        assert "broke off" not in verdict.message, (verdict, raw[:2000])
        expected = judge(raw, folder)
        if verdict.code == 3:
            assert "head words" in verdict.message or re.search(rb"[0-9]{5}", raw), (verdict, raw[:2000])
        elif expected is None:
            assert verdict.code in (1, 2), (verdict, raw[:2000])
        else:
            assert verdict.code == expected, (verdict, expected, raw[:2000])
        seen[how, verdict.code] = seen.get((how, verdict.code), 0) + 1
    return seen


@pytest.mark.full
def test_random_input(tmp_path):
    seen = fuzz(1600, 1, tmp_path)
    assert min(seen["statement", 0], seen["statement", 1]) > 100  # both verdicts, from well-formed statements
    assert min(seen["structured", 2], seen["bytes", 2]) > 100
    assert ("noise", 0) not in seen


def with_files_of_the_corpus(folder):
    for place in ("invalid", "valid"):  # where two have one name, the valid one
        for path in sorted((corpus.CORPUS / place).iterdir()):
            if path.suffix != ".json":
                shutil.copy(path, folder / f"{place}-{path.name}" if path.suffix == ".safetensors" else folder)


@pytest.mark.parametrize(
    ("count", "seed", "least"),
    [(300, 1, 0), *(pytest.param(3000, seed, 20, marks=pytest.mark.exhaustive) for seed in range(2, 10))],
)
def test_mutated_corpus(count, seed, least, tmp_path):
    with_files_of_the_corpus(tmp_path)
    seen = fuzz(count, seed, tmp_path, corpus_inputs)
    assert min(seen["corpus", code] for code in (0, 1, 2)) > least


def fuzz_weights(count, seed, folder):
    """Damaged files of weights. Where one can still be read, the certificate names its digest."""
    source = random.Random(seed)
    bases = list(WEIGHTS.values())
    seen = {}
    place, path = folder / "fuzz.safetensors", folder / "fuzz.json"
    for _ in range(count):
        document, files = source.choice(bases)
        (raw,) = files.values()
        length = int.from_bytes(raw[:8], "little")
        if source.random() < 0.5:  # within the header, or a certificate's numbers
            header = damaged(source, raw[8 : 8 + length], raw[8 : 8 + length])
            raw = len(header).to_bytes(8, "little") + header + raw[8 + length :]
        else:
            raw = raw[: 8 + length] + damaged(source, raw[8 + length :], raw)[: len(raw) - 8 - length]
            if source.random() < 0.2:
                raw = damaged(source, raw, raw)
        write_anew(place, raw)
        found = sceptic.tensors_of(raw)
        if found is not None and all(name.isascii() for name in found):
            document = corpus.changed(document, "claim", "host", "weights", sceptic.digest_of(found))
        write_anew(path, sceptic.canonical(document))
        verdict = checker.check_file(path, OPTIONS)
        assert "broke off" not in verdict.message, (verdict, raw[:2000])
        assert verdict.code == judge(path.read_bytes(), folder), (verdict, raw[:2000])
        seen[verdict.code] = seen.get(verdict.code, 0) + 1
    return seen


def test_damaged_weights(tmp_path):
    seen = fuzz_weights(300, 1, tmp_path)
    assert min(seen.get(code, 0) for code in (0, 1, 2)) > 5, seen


@pytest.mark.exhaustive
def test_more_damaged_weights(tmp_path):
    assert min(fuzz_weights(8000, 2, tmp_path).values()) > 100


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 10))
def test_more_random_input(seed, tmp_path):
    fuzz(4000, seed, tmp_path)
