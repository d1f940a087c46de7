"""Every field of a certificate, replaced, dropped, doubled and renamed: the checker names what is wrong."""

import dataclasses
import json
import re

import pytest
import sceptic
from judges import write_anew
from sceptic import DTYPES, INDEX, LAWS, RANDOM, judge
from test_certificates import BASES, OPTIONS, copy_sidecars
from tiers import full_where

from utfproof.certificates import checker

WORDS = ["", "x", "utfproof-certificate", "rank-permutation", "rank-modular", "rank-deficient", "matching", "functional",
         "all untied", "all", "universal", "not universal", *INDEX, *RANDOM, *LAWS, *DTYPES, "recompute", "dimension",
         "kernel-vector", "uint32", "uint64", "linear-test", "identity", "lower-bound", "attention-matching",
         "shared attention", "all tied", sceptic.INVERTIBLE, *sceptic.RULES, "E", "E and U", "host", "tied host", "span",
         "null-vector", "W_Q", "W_K", "W_O", "tied-target", "tied-kernel", "looped-universal", "enclosure", "one emulation",
         "this one", "within", "apart", "equal", "softmax", "given", "causal", "alibi", "interval", "rational", "target",
         "looped-target",
         "M1.0", "A1.0", "A1.0T", "M.0", "Q.0", "M1.0I",
         "M1.0IT", "shared-attention-universal", "looped-shared-attention-universal"]  # fmt: skip


class Pairs(list):
    """An object as the list of its members: can hold a key twice."""


def paired(value):
    if isinstance(value, dict):
        return Pairs((key, paired(inner)) for key, inner in sorted(value.items()))
    return [paired(inner) for inner in value] if isinstance(value, list) else value


def text_of(value):
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{text_of(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


def replacements(value):
    """(name, other value) for a value at any place."""
    for other in (None, True, False, 1.5, "x", [], Pairs(), [None], Pairs([("a", 1)]), -1, 0, 1, 2**31 - 1, 2**53,
                  2**53 + 1, str(2**53), str(2**53 + 1), str(10**30), str(-(10**30)), 10**30):  # fmt: skip
        yield text_of(other), other
    yield "in a list", [value]
    yield "in an object", Pairs([("value", value)])
    yield "as text", text_of(value)
    if type(value) is int:
        for name, other in {"+1": value + 1, "-1": value - 1, "+2": value + 2, "negated": -value, "doubled": 2 * value,
                            "+2^32": value + 2**32, "+2^64": str(value + 2**64), "as a string": str(value),
                            "as a float": float(value)}.items():  # fmt: skip
            yield name, other
    elif type(value) is str:
        for other in WORDS:
            yield f"now {other}", other
        yield "upper case", value.upper()
        yield "with a space", value + " "
        yield "with a nul", value + "\0"
        if value.isascii() and value.isdigit():
            yield "+1", str(int(value) + 1)
            yield "with a zero in front", "0" + value
            yield "as a number", int(value)
    elif isinstance(value, Pairs):
        yield "unsorted", Pairs(value[::-1])
        yield "without names", [inner for _, inner in value]
        yield "one more", Pairs(sorted([*value, ("zzz", 0)]))
    elif type(value) is list and value:
        yield "truncated", value[:-1]
        yield "without the first", value[1:]
        yield "last one twice", [*value, value[-1]]
        yield "a zero more", [*value, 0]
        yield "reversed", value[::-1]
        yield "rotated", [*value[1:], value[0]]
        yield "empty strings", [""] * len(value)
        for i in range(len(value) - 1):
            yield f"{i} and {i + 1} swapped", [*value[:i], value[i + 1], value[i], *value[i + 2 :]]
            yield f"{i} copied to {i + 1}", [*value[: i + 1], value[i], *value[i + 2 :]]


def mutants(value, name=""):
    """(name, mutant) for every place in a value, from the outside in."""
    for how, other in replacements(value):
        yield f"{name}: {how}", other
    if isinstance(value, Pairs):
        for i, (key, inner) in enumerate(value):
            place = f"{name}.{key}".strip(".")
            yield f"{place}: deleted", Pairs([*value[:i], *value[i + 1 :]])
            yield f"{place}: twice", Pairs([*value[:i], (key, inner), *value[i:]])
            yield f"{place}: twice, first null", Pairs([*value[:i], (key, None), *value[i:]])
            for other in (key + "_", key.upper(), "", key + "\0"):
                yield f"{place}: renamed {other}", Pairs(sorted([*value[:i], (other, inner), *value[i + 1 :]]))
            for how, changed in mutants(inner, place):
                yield how, Pairs([*value[:i], (key, changed), *value[i + 1 :]])
    elif type(value) is list:
        for i, inner in enumerate(value):
            yield f"{name}[{i}]: deleted", [*value[:i], *value[i + 1 :]]
            for how, changed in mutants(inner, f"{name}[{i}]"):
                yield how, [*value[:i], changed, *value[i + 1 :]]


GROWN = ("2147483647", '"9007199254740992"', '"9007199254740993"', '"1000000000000000000000000000000"', "+1", "+2",
         "doubled", "+2^32", "+2^64")  # fmt: skip
"""How `replacements` makes a number larger."""


ANY_NUMBER = (*GROWN, "0", "1", "-1", "negated", '"-1000000000000000000000000000000"')
"""How it changes one into any other integer."""


def each(place, *hows):
    return {f"{place}: {how}" for how in hows}


OTHER_SEEDS = ("0", "1", "2147483647", '"9007199254740992"', '"9007199254740993"')
ANY_D_IN = each("shape.d_in", *GROWN)  # R_all of most hosts does not involve d_in
ANY_D = each("shape.head_dim", *GROWN)
OTHER_WEIGHTS = ("-1", "2147483647", '"9007199254740992"', '"1000000000000000000000000000000"',
                 '"-1000000000000000000000000000000"', "+1", "negated", "doubled", "+2^32", "+2^64")  # fmt: skip
PADDED = each("shape.m", *GROWN)  # {0,1} hosts: more zero rows; all else is beyond M = rank
RENAMED = "claim.host.construction"
STILL_TRUE = {
    "permutation-sparse": ANY_D_IN | PADDED | each(RENAMED, "now sparse-front"),
    "permutation-sparse-front": ANY_D_IN | PADDED | each(RENAMED, "now sparse", "now tied"),
    "permutation-tied-padded": ANY_D_IN | PADDED | each("shape.m", "-1"),
    "permutation-sidecar": ANY_D_IN | PADDED | each(RENAMED, "now sparse-front", "now tied"),
    # almost every other host is universal, too, and almost every prime shows it
    "modular-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now signs", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    "modular-random-tied": ANY_D_IN
    | each(RENAMED, "now random")
    | each("claim.host.dtype", "now float64", "now float32", "now float16")
    | each("claim.host.law", "now uniform", "now signs")
    | each("claim.host.seed", *OTHER_SEEDS)
    | each("evidence.prime", "2147483647", "+2")
    | each("shape.m", "+1", "+2", "doubled"),
    # one layer is no loop
    "witness-random": ANY_D_IN | each(RENAMED, "now random-tied"),
    "witness-sidecar": ANY_D_IN | each(RENAMED, "now random"),
    # whatever has m < M
    "dimension-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now signs", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1")
    | each("shape.d_out", *GROWN)
    | each("shape.head_dim", *GROWN)
    # more than 2^60 head words are over the checker's limit
    | each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.layers", "+1", "+2", "doubled")
    | each("shape.m", "1", "-1"),
    "dimension-shared-query": ANY_D_IN
    | each("shape.head_dim", *GROWN, "1", "-1")
    | each("shape.heads", "1", "-1")
    | each("shape.m", "+1", "+2", "doubled"),
    # z is the difference of two columns that other hosts and shapes have equal (or zero), too
    "kernel-printed-looped": ANY_D_IN
    | PADDED
    | each(RENAMED, "now shared-query", "now printed-tree-row")
    | each("shape.d_out", "+1", "doubled"),
    "kernel-printed-tree-row": ANY_D_IN | PADDED | each(RENAMED, "now printed-looped") | each("shape.d_out", "1", "-1"),
    "kernel-shared-key": PADDED
    | each("evidence.column", "+1")
    | each("shape.head_dim", *set(GROWN) - {"+1", "+2", "doubled"}),
    # all entries are +-1 in every dtype, and one layer is no loop
    "kernel-random": ANY_D_IN
    | each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.seed", "1")
    | each("evidence.column", "+2"),
    "kernel-random-tied": ANY_D_IN,
    # almost every other host of this shape passes the test
    "linear-random": each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    # the identities hold for every head dimension (shared-key, shared-query: d >= d_in), and numbers are their transposes
    "identity-shared-key": ANY_D | PADDED | each("evidence.E[0][1][0]", "now A1.0T"),
    "identity-shared-query": ANY_D | PADDED,
    "identity-commuting-trie": PADDED | each("shape.m", "-1"),
    "identity-register": ANY_D | PADDED,
    "identity-two-sided": ANY_D | PADDED | each("shape.m", "-1", "1"),
    "identity-counting": ANY_D | PADDED,
    # a bound on m holds for less m and, where it grows with them, for more of the rest
    "bound-matching-tied": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.m", "+1", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("claim.targets", "now all untied"),
    "bound-shared": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.heads", "+1", "+2", "doubled")
    | each("shape.layers", "+1", "+2", "doubled", "-1", "1")
    | each("claim.host.every", "now host")
    | each("claim.targets", "now all tied")
    | each("claim.free", "now E"),
    "bound-functional": each("shape.heads", *set(GROWN) - {'"1000000000000000000000000000000"', "+2^64"})
    | each("shape.m", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("claim.notion", "now matching"),
    # three targets in any order, with other weights that are not 0 modulo 3, at shapes with more columns
    "span": each("shape.head_dim", "+1", "+2", "doubled")
    | each("shape.heads", "+1", "+2", "doubled")
    | each("shape.layers", "+1", "+2", "doubled")
    | each("shape.m", "-1", "1")
    | each("claim.host.every", "now tied host")
    | each("evidence.prime", "2147483647", "+2")
    | each("evidence.targets", "last one twice", "reversed", "rotated", "0 and 1 swapped", "1 and 2 swapped").union(
        *(each(f"evidence.targets[{place}][5]", *OTHER_WEIGHTS) for place in ("0][0", "1][0", "2][0", "2][1"))
    ),
    # R_V^1 = 2 R_V^0: at any depth 2 R_w R_V^0 = R_w R_V^1
    "null-vector": ANY_D_IN
    | ANY_D
    | each("shape.d_out", *GROWN)
    | each("shape.layers", "+1", "+2", "doubled")
    | each("claim.host.system", "now shared-attention-universal")
    | each("evidence.word", "-1", "0"),
    "weights-modular": ANY_D_IN | each("evidence.prime", "2147483647", "+2"),
    "weights-kernel": ANY_D_IN,
    # columns 0 and 4 are equal in other hosts, too; and the only entry of the target can be any number but 0
    "tied-target": PADDED
    | each(RENAMED, "now shared-query", "now printed-tree-row")
    | each("evidence.target[0][5]", "+2", *OTHER_WEIGHTS, '"9007199254740993"'),
    "tied-kernel": each("evidence.prime", "2147483647", "+2"),
    # almost every other gauge will do, and almost every other host
    "linear-gauged": each(RENAMED, "now random-tied")
    | each("claim.host.dtype", "now float32", "now float16", "now bfloat16")
    | each("claim.host.law", "now binomial")
    | each("claim.host.seed", *OTHER_SEEDS, "+1", "-1", "+2", "doubled", "+2^32")
    | each("evidence.prime", "2147483647")
    | each("evidence.gauges", "deleted")
    | each("evidence.gauges[0][0][0]", "reversed", "rotated", "0 and 1 swapped", "0 copied to 1")
    | each("evidence.gauges[0][0][0][0]", *GROWN, *OTHER_WEIGHTS, "0", "1")
    | each("evidence.gauges[0][0][0][1]", *GROWN, *OTHER_WEIGHTS, "0")
    | each("shape.m", "+1", "-1", "+2", "doubled"),
    # wider bounds; other hosts with the same matrices; without a mask tokens may change places
    "enclosure": each("claim.difference[0]", "1", "2147483647", '"9007199254740992"', '"9007199254740993"')
    | each("claim.difference[1]", '"1000000000000000000000000000000"', "+1")
    | each(RENAMED, "now sparse", "now sparse-front")
    | each("evidence.X.numerators", "reversed", "rotated", "0 and 1 swapped")
    | each("evidence.target.system", "now looped-target"),
    # queries and keys play no part
    "enclosure-given": each("claim.difference[0]", "1", "-1")
    | each("claim.difference[1]", *GROWN)
    | each(RENAMED, "now sparse-front", "now tied")
    | each(
        "evidence.E.numerators",
        *(f"{i} {how}" for i in range(3) for how in (f"and {i + 1} swapped", f"copied to {i + 1}")),
    )
    | each("evidence.target.system", "now looped-target").union(
        *(each(f"evidence.E.numerators[{i}]", *ANY_NUMBER) for i in range(4)),
        *(
            each(f"evidence.target.{tensor}.denominator", *GROWN, "1", "-1")
            | each(f"evidence.target.{tensor}.numerators", "reversed", "rotated", "0 and 1 swapped", "0 copied to 1")
            | each(f"evidence.target.{tensor}.numerators[0]", *ANY_NUMBER)
            | each(f"evidence.target.{tensor}.numerators[1]", *ANY_NUMBER)
            for tensor in ("W_Q", "W_K")
        ),
    ),
}
"""Mutants that are certificates of other true statements, by base. The judge confirms each."""


FEW = {
    "permutation-sparse",
    "modular-random",
    "witness-random",
    "dimension-random",
    "kernel-random",
    "linear-random",
    "identity-shared-key",
    "bound-functional",
    "weights-modular",
}
"""One of each kind, the quick ones: mutated field by field in the first tier, all others in the second."""


@pytest.mark.parametrize("base", full_where(lambda base: base not in FEW, BASES))
def test_field_by_field(base, tmp_path):
    copy_sidecars(tmp_path)
    document = BASES[base]()
    original = sceptic.canonical(document)
    assert judge(original, tmp_path) == 0
    assert text_of(paired(document)).encode() == original
    path = tmp_path / "mutant.json"
    accepted, codes = set(), {}
    for name, mutant in mutants(paired(document)):
        raw = text_of(mutant).encode()
        if raw == original or ("sidecar" in base and re.match(r"evidence.rows\[(?!0]|1]|64])", name)):
            continue  # three of the 65 rows are enough
        write_anew(path, raw)
        verdict = checker.check_file(path, OPTIONS)
        expected = judge(raw, tmp_path)
        assert "broke off" not in verdict.message, (name, verdict)
        if verdict.code == 3:  # only where a number in the mutant is absurdly large
            assert any(len(digits) >= 10 for digits in "".join(c if c.isdigit() else " " for c in name).split()) or (
                "2^" in name
            ), (name, verdict)
        elif expected is None:
            assert verdict.code in (1, 2), (name, verdict)
        else:
            assert verdict.code == expected, (name, verdict)
        if base == "witness-random":
            assert checker.check_file(path, dataclasses.replace(OPTIONS, numpy=True)).code == verdict.code, name
        codes[verdict.code] = codes.get(verdict.code, 0) + 1
        if verdict.code == 0:
            accepted.add(name)
    assert accepted == STILL_TRUE[base]
    assert codes[2] > 500
