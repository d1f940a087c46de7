"""The corpus of residual streams: every kind that knows them (docs/certificate-format.md), and every way to forget them."""

import copy
from fractions import Fraction

import numpy as np
from corpus_enclosures import ROUNDED
from corpus_residual_hosts import (
    PRIME,
    bound,
    deficient,
    emulation,
    kernel,
    linear,
    modular,
    of_file,
    permutation,
    place_of,
    refuting,
    repeated,
    repetitions,
    routed_entries,
    span,
    stream_document,
    stream_kernel,
    streaming,
    tied_target,
    triangular,
    witness,
    witnessed,
)
from corpus_weights import (
    RECOMPUTE,
    drawn_gauges,
    drawn_weights,
    of_weights,
    packed,
    pairs_of,
    safetensors,
    weights_shapes,
)
from make_corpus import (
    added,
    changed,
    document,
    drawn_targets,
    kernel_basis,
    kernel_evidence,
    matrix_of,
    proved,
    statement,
)
from sceptic import (
    Stored,
    canonical,
    digest_of,
    residue_rank,
    stream_dense,
    stream_M,
    stream_reduced,
)

ONE, SMALL, TWO = (1, 1, 1, 1, 1), (1, 2, 1, 1, 1), (2, 2, 1, 1, 1)


# --- the three folders -----------------------------------------------------------------------------------------------


def sound_weights(label, tied, dims, m, inner=None, kinds="I8"):
    """Drawn weights of full rank (of the reduced columns, if tied)."""
    wanted = stream_reduced(dims[0], dims[1], dims[2], dims[4]) if tied else stream_M(*dims)
    for seed in range(50):
        tensors = drawn_weights(tied, dims, m, seed, kinds, inner, size=3)
        if residue_rank(PRIME, stream_dense(Stored(tensors, tied, dims, m), dims, m)[0]) == wanted:
            return tensors
    raise AssertionError(label)


def valid():
    H1 = (1, 2, 1, 1, 2)
    M = stream_M(*SMALL)
    Q_only = (1, 3, 1, 1, 1)
    early, late = place_of(Q_only, "W_Q", (0, 1), 0, 0), place_of(Q_only, "W_Q", (1, 0), 0, 0)
    untied, looped = sound_weights("a", False, SMALL, M), sound_weights("b", True, SMALL, M)
    factored = sound_weights(
        "c", False, ONE, 4, 3, {"R_Q": "F16", "R_K": "I8", "R_Vv": "BF16", "R_Vo": "F32", "U": "F64"}
    )
    deep, flat = (2, 3, 1, 1, 1), (1, 1, 1, 1, 2)  # the stream's own outputs, d_in != d_out
    given = drawn_targets(7, True, 1, 2, 1, 1, 1)
    out = {
        **{f"triangular-{i}": triangular(dims) for i, dims in
           enumerate([ONE, SMALL, TWO, H1, (2, 1, 1, 2, 1), (3, 1, 1, 1, 1), (1, 3, 1, 1, 1), (2, 2, 1, 2, 2)])},
        "triangular-padded": triangular(SMALL, 15),
        **{f"permutation-{i}": permutation(dims) for i, dims in
           enumerate([ONE, SMALL, TWO, H1, (2, 2, 2, 2, 3), (1, 4, 1, 1, 1), (2, 1, 1, 1, 1)])},
        "permutation-padded": permutation(SMALL, 10**6),
        "permutation-one-layer-untied": permutation((2, 1, 1, 2, 2), targets="all untied"),
        "modular-random": modular("random", TWO),
        "modular-random-wide": modular("random", H1, 14, law="signs", seed=3),
        "modular-random-float16": modular("random", SMALL, dtype="float16", law="binomial", seed=1),
        "modular-random-tied-one-layer": modular("random-tied", (2, 1, 1, 1, 1)),
        "witness-random": witness("random", SMALL),
        "witness-random-wide": witness("random", H1, 14, p=65521, seed=2),
        "witness-random-tied-one-layer": witness("random-tied", (2, 1, 1, 1, 1), law="binomial"),
        "dimension-random": stream_document("rank-deficient", "random", TWO, 24, {"method": "dimension"}),
        "dimension-tied": stream_document("rank-deficient", "tied", TWO, 20, {"method": "dimension"}),
        "kernel-random-tied": deficient("random-tied", SMALL, 12, repeated(SMALL)),
        "kernel-random-tied-other-head": deficient("random-tied", TWO, 8, repeated(TWO, 1)),
        "kernel-tied": deficient("tied", TWO, 19, repeated(TWO)),
        "kernel-tied-wide": deficient("tied", H1, 10**6, repeated(H1)),
        "kernel-queries": deficient("random-tied", Q_only, 5, {early: 1, late: -1}),
        "kernel-queries-of-tied": deficient("tied", Q_only, 12, {early: -2, late: 2}),
        "kernel-random": deficient("random", SMALL, 9, law="signs"),
        "kernel-random-rounded": deficient("random", SMALL, 8, law="binomial", dtype="bfloat16"),
        "kernel-stream": deficient("random", flat, 4, law="signs", column=place_of(flat, "U", (0,), None, 1), seed=1),
        "kernel-stream-square": deficient("random", (1, 1, 1, 2, 2), 4, law="signs", seed=1),
        "kernel-stream-binomial": deficient("random", flat, 5, law="binomial", column=place_of(flat, "U", (0,), None, 1)),
        "kernel-with-a-longer-word": deficient("random", SMALL, 9, law="signs", column=9),
        "kernel-with-a-later-letter": deficient("random", SMALL, 9, law="binomial",
                                                column=place_of(SMALL, "U", (0, 1), None, 0)),
        "kernel-with-a-later-coordinate": deficient("random", H1, 13, law="signs",
                                                    column=place_of(H1, "U", (1, 0), None, 1)),
        "kernel-queries-of-two-heads": deficient("random-tied", deep, 5, {place_of(deep, "W_Q", (0, 2), 1, 0): 1,
                                                                          place_of(deep, "W_Q", (2, 0), 1, 0): -1}),
        "tied-target-random": tied_target("random", SMALL, 6, law="signs"),
        "tied-target-random-tied": tied_target("random-tied", SMALL, 6, law="signs"),
        "linear-random": linear("random", (1, 2, 2, 1, 1)),
        "linear-random-gauged": linear("random", (1, 2, 2, 1, 1), 13, drawn_gauges(2, 1, 1, 2, 4)),
        "linear-random-tied-one-layer": linear("random-tied", (2, 1, 2, 1, 1)),
        "tied-kernel": kernel("random-tied", SMALL, 7),
        "tied-kernel-wide": kernel("random-tied", (1, 2, 2, 2, 2), 20, law="binomial"),
        "tied-kernel-two-heads": kernel("random-tied", TWO, 25, law="signs", seed=5),
        "bound": bound(TWO, 24),
        "bound-wide": bound((2, 2, 1, 2, 3), 42),
        "bound-huge": bound((2, 30, 1, 1, 1), 10**9),
        "bound-generic": bound(TWO, 24, "generic untied"),
        "bound-of-tied-hosts": bound(TWO, 10**9, every="tied host"),
        "bound-of-tied-hosts-generic": bound(SMALL, 2**80, "generic untied", "tied host"),
        "bound-of-tied-hosts-one-layer": bound(ONE, 3, every="tied host"),
        "bound-tied": bound((2, 2, 2, 2, 2), 37, "all tied"),
        "bound-tied-generic": bound((2, 2, 2, 2, 2), 37, "generic tied"),
        "span": span(SMALL, 9, routed_entries(SMALL)),
        "span-two-heads": span(TWO, 24, routed_entries(TWO)),
        "span-wide-generic": span((1, 1, 1, 2, 2), 5, routed_entries((1, 1, 1, 2, 2)), "generic untied"),
        "span-tied": span(SMALL, 4, given, "all tied"),
        "span-tied-generic": span(SMALL, 4, given, "generic tied"),
    }  # fmt: skip
    found = {name: (held, {}) for name, held in out.items()}
    found |= {
        "weights-modular": of_file("rank-modular", False, untied, SMALL, M, RECOMPUTE, "residual-a", rank=M),
        "weights-witness": of_file("rank-modular", False, untied, SMALL, M,
                                   witnessed(stream_dense(Stored(untied, False, SMALL, M), SMALL, M)[0], 251),
                                   "residual-a", rank=M),
        "weights-factored": of_file("rank-modular", False, factored, ONE, 4, RECOMPUTE, "residual-c", rank=4),
        "weights-kernel": of_file("rank-deficient", True, looped, SMALL, M, stream_kernel(repeated(SMALL), SMALL,
                                  refuting(repeated(SMALL), SMALL)), "residual-b"),
        "weights-tied-kernel": of_file("tied-kernel", True, looped, SMALL, M, kernel("random-tied", SMALL, M)["evidence"],
                                       "residual-b", rank=7, targets="all tied"),
        "enclosure-sparse": emulation("sparse", SMALL, "causal", 2),
        "enclosure-sparse-rounded": emulation("sparse", TWO, "scaled+causal", 2, step=ROUNDED, seed=1),
        "enclosure-tied": emulation("tied", TWO, "causal+alibi", 3, tied_target=True, seed=2),
        "enclosure-random": emulation("random", ONE, "rope" if ONE[2] % 2 == 0 else "window:1", 2, seed=3),
        "enclosure-equal": emulation("sparse", TWO, "given", 2, seed=4, verdict="equal"),
        "enclosure-equal-tied": emulation("tied", SMALL, "given", 3, tied_target=True, seed=5, verdict="equal", m=9),
        "enclosure-equal-random": emulation("random", ONE, "given", 2, seed=6, verdict="equal", law="binomial"),
        "enclosure-given-apart": emulation("sparse", SMALL, "given", 2, 9, step=Fraction(1, 81), seed=7),
    }  # fmt: skip
    whole = sound_weights("e", False, SMALL, M, kinds="F16")
    for case, said, by_stream in [("digest", None, True), ("metadata", "true", False), ("both", "true", True)]:
        held, _ = of_file("rank-modular", False, whole, SMALL, M, RECOMPUTE, case, rank=M)
        held["claim"]["host"]["weights"] = digest_of(whole, by_stream)
        raw = safetensors(whole, None if said is None else {"residual": said})
        found[f"weights-stream-by-{case}"] = held, {f"residual-stream-by-{case}.safetensors": raw}
    return {f"residual-{name}": pair for name, pair in found.items()}


def without(found):
    return changed(found, "shape", "residual", ...)


def exchanged(found, path, i, j):
    """Two entries of an array exchanged."""
    result = copy.deepcopy(found)
    held = result
    for step in path:
        held = held[step]
    held[i], held[j] = held[j], held[i]
    return result


def bumped(found, path, by=1):
    result = copy.deepcopy(found)
    held = result
    for step in path[:-1]:
        held = held[step]
    held[path[-1]] += by
    return result


def invalid():
    out = {}
    T, P, m = triangular(SMALL), permutation(SMALL), stream_M(*SMALL)
    rows = ("evidence", "rows")
    out |= {
        "triangular-two-rows-exchanged": exchanged(T, rows, 0, 1),
        "triangular-last-rows-exchanged": exchanged(T, rows, -1, -2),
        "triangular-stream-and-head-exchanged": exchanged(T, rows, 6, 7),
        "triangular-the-row-of-the-next-column": changed(T, *rows, 6, T["evidence"]["rows"][7]),
        "triangular-a-row-twice": changed(T, *rows, 1, T["evidence"]["rows"][0]),
        "triangular-a-row-beyond-m": changed(T, *rows, 9, 10),
        "triangular-a-row-of-the-padding": changed(changed(T, "shape", "m", 11), *rows, 9, 10),
        "triangular-rows-reversed": changed(T, *rows, T["evidence"]["rows"][::-1]),
        "triangular-rank": changed(T, "claim", "rank", 9),
        "triangular-verdict": changed(changed(T, "claim", "verdict", "not universal"), "claim", "rank", ...),
        "triangular-of-two-heads": changed(triangular((2, 1, 1, 1, 1)), *rows, [0, 1, 2, 3, 5, 4, 6]),
        "permutation-two-rows-exchanged": exchanged(P, rows, 0, 1),
        "permutation-outputs-exchanged": exchanged(P, rows, -1, -2),
        "permutation-a-row-twice": changed(P, *rows, 1, P["evidence"]["rows"][0]),
        "permutation-a-row-beyond": changed(P, *rows, 6, 7),
        "permutation-rank": changed(P, "claim", "rank", 8),
        "permutation-verdict": changed(changed(P, "claim", "verdict", "not universal"), "claim", "rank", ...),
        "modular-of-a-tied-host": modular("random-tied", SMALL),
        "modular-of-a-tied-host-wide": modular("random-tied", TWO, 40),
        "modular-m-below-M": modular("random", SMALL, 9),
        "modular-rank-of-the-plain-shape": changed(modular("random", SMALL), "claim", "rank", 5),
        "modular-prime-composite": modular("random", SMALL, p=8388595),
        "modular-verdict": changed(changed(modular("random", SMALL), "claim", "verdict", "not universal"), "claim",
                                   "rank", ...),
        "dimension-at-M": stream_document("rank-deficient", "random", TWO, 25, {"method": "dimension"}),
        "dimension-verdict": changed(added(stream_document("rank-deficient", "random", TWO, 24, {"method": "dimension"}),
                                           "claim", "rank", 25), "claim", "verdict", "universal"),
        "linear-of-a-tied-host": linear("random-tied", (1, 2, 2, 1, 1)),
        "linear-rank-of-the-plain-shape": changed(linear("random", (1, 2, 2, 1, 1)), "claim", "rank", 7),
        "linear-singular-gauge": linear("random", (1, 2, 2, 1, 1), 13, [[[[0, 0]]], [[[1, 0]]]]),
        "bound-at-M": bound(TWO, 25),
        "bound-generic-at-M": bound(TWO, 25, "generic untied"),
        "bound-tied-hosts-one-layer-at-M": bound(ONE, 4, every="tied host"),
        "bound-tied-at-the-dimension": bound((2, 2, 2, 2, 2), 38, "all tied"),
        "bound-tied-with-M": bound((2, 2, 2, 2, 2), 41, "generic tied"),
        "bound-verdict": changed(bound(TWO, 24), "claim", "verdict", "universal"),
        "bound-tied-hosts-verdict": changed(bound(TWO, 24, every="tied host"), "claim", "verdict", "universal"),
        "span-at-M": span(SMALL, 10, routed_entries(SMALL)),
        "span-of-targets-without-a-route": span(SMALL, 9, [e for e in routed_entries(SMALL) if e]),
        "span-tied-at-their-dimension": span(SMALL, 7, drawn_targets(12, True, 1, 2, 1, 1, 1), "all tied"),
        "span-prime-composite": span(SMALL, 9, routed_entries(SMALL), prime=2**31 - 3),
        "span-verdict": changed(span(SMALL, 9, routed_entries(SMALL)), "claim", "verdict", "universal"),
    }  # fmt: skip
    W = witness("random", SMALL)
    out |= {
        "witness-entry": bumped(W, ("evidence", "inverse", 0), -W["evidence"]["inverse"][0] or 1),
        "witness-last-entry": changed(W, "evidence", "inverse", -1, (W["evidence"]["inverse"][-1] + 1) % 251),
        "witness-entry-at-p": changed(W, "evidence", "inverse", 3, 251),
        "witness-another-prime": changed(W, "evidence", "prime", 257),
        "witness-row-beyond-m": changed(W, "evidence", "rows", 9, 10),
        "witness-another-seed": changed(W, "claim", "host", "seed", 1),
        "witness-tied": changed(W, "claim", "host", "construction", "random-tied"),
    }
    first = repeated(SMALL)
    K = deficient("random-tied", SMALL, 12, first)
    plus = dict.fromkeys(first, 1)
    other = max(first, key=lambda c: c != refuting(first, SMALL))
    out |= {
        "kernel-of-an-untied-host": changed(K, "claim", "host", "construction", "random"),
        "kernel-signs": deficient("random-tied", SMALL, 12, plus),
        "kernel-column-outside-z": changed(K, "evidence", "column", 6),
        "kernel-distance": changed(K, "evidence", "distance_squared", [1, 1]),
        "kernel-distance-negative": changed(K, "evidence", "distance_squared", [-1, 2]),
        "kernel-distance-zero": changed(K, "evidence", "distance_squared", [0, 1]),
        "kernel-value": changed(K, "evidence", "z", 0, 1, 2),
        "kernel-a-position-moved": changed(K, "evidence", "z", 1, 0, 9),
        "kernel-verdict": changed(added(K, "claim", "rank", 10), "claim", "verdict", "universal"),
        "kernel-of-sparse": deficient("sparse", SMALL, 10, first),
        "kernel-one-column": deficient("random-tied", SMALL, 12, {other: 1}),
    }
    # every target routed here has W_all z = 0 where the shorter word takes away what the longer one gives
    away = {place_of(SMALL, "U", (0, 0), None, 0): 1, place_of(SMALL, "U", (0, 1), None, 0): -1}
    held = deficient("random", SMALL, 9, away, column=place_of(SMALL, "U", (0, 1), None, 0))
    assert held["evidence"]["distance_squared"] == [0, 1]
    out["kernel-missed-by-nothing"] = held
    out["kernel-missed-by-nothing-with-the-isolated-entry"] = changed(held, "evidence", "distance_squared", [1, 2])
    TT = tied_target("random", SMALL, 6, law="signs")
    repeat = {"z": pairs_of(repetitions(SMALL)[0])}
    out |= {
        "tied-target-zero": changed(TT, "evidence", "target", []),
        "tied-target-z": bumped(TT, ("evidence", "z", 0, 1), 2**40),
        "tied-target-of-a-repetition": changed(tied_target("random-tied", SMALL, 6, law="signs"), "evidence",
                                               tied_target("random-tied", SMALL, 6, law="signs")["evidence"] | repeat),
        "tied-target-verdict": changed(added(TT, "claim", "rank", 10), "claim", "verdict", "universal"),
    }  # fmt: skip
    TK, basis = kernel("random-tied", SMALL, 7), repetitions(SMALL)
    out |= {
        "tied-kernel-m-below-the-rank": kernel("random-tied", SMALL, 6),
        "tied-kernel-a-vector-less": kernel("random-tied", SMALL, 7, basis[1:]),
        "tied-kernel-a-vector-twice": kernel("random-tied", SMALL, 7, [*basis[:-1], basis[0]]),
        "tied-kernel-a-vector-zero-modulo-p": kernel("random-tied", SMALL, 7, [{i: PRIME * v for i, v in basis[0].items()},
                                                                              *basis[1:]]),
        "tied-kernel-signs": kernel("random-tied", SMALL, 7, [dict.fromkeys(basis[0], 1), *basis[1:]]),
        "tied-kernel-of-an-untied-host": changed(TK, "claim", "host", "construction", "random"),
        "tied-kernel-of-no-repetition": kernel("random-tied", SMALL, 7, [{0: 1, 2: -1}, *basis[1:]]),
        "tied-kernel-prime-composite": kernel("random-tied", SMALL, 7, p=8388595),
        "tied-kernel-rank": changed(TK, "claim", "rank", 10),
        "tied-kernel-verdict": changed(changed(TK, "claim", "verdict", "not universal"), "claim", "rank", ...),
    }  # fmt: skip
    # the stream forgotten, or added, in certificates whose form allows it
    plain = document("rank-modular", "random", SMALL, 12, {"method": "recompute", "prime": PRIME}, rank=5)
    out |= {
        "dropped-modular": without(modular("random", SMALL)),
        "dropped-linear": without(linear("random", (1, 2, 2, 1, 1))),
        "dropped-dimension": without(stream_document("rank-deficient", "random", SMALL, 9, {"method": "dimension"})),
        "dropped-bound": without(bound(TWO, 24)),
        "dropped-bound-of-tied-hosts": without(bound(TWO, 10**9, every="tied host")),
        "dropped-span": without(span(SMALL, 9, routed_entries(SMALL))),
        "dropped-kernel-queries": without(stream_document("rank-deficient", "random-tied", (1, 3, 1, 1, 1), 5, {
            "method": "kernel-vector", "column": 2, "distance_squared": [1, 2], "z": [[2, 1], [4, -1]]})),
        "added-modular": streaming(plain),
        "added-linear": changed(linear("random", (1, 2, 2, 1, 1)), "claim", "rank", 7),
        "added-dimension": streaming(document("rank-deficient", "random", SMALL, 10, {"method": "dimension"})),
        "added-kernel": streaming(document("rank-deficient", "random", SMALL, 4, kernel_evidence(
            kernel_basis(matrix_of("random", SMALL, 4, law="signs"))[0]), law="signs")),
    }  # fmt: skip
    found = {name: (held, {}) for name, held in out.items()}
    tensors = sound_weights("a", False, SMALL, m)
    looped = sound_weights("b", True, SMALL, m)
    good, files = of_file("rank-modular", False, tensors, SMALL, m, RECOMPUTE, "residual-a", rank=m)
    found["weights-dropped"] = without(good), files
    # the output of the stream equals that of head 0 of layer 2, which the target of the word (0, 1) has as well
    shapes = weights_shapes(False, SMALL, 4)
    numbers = {"R_Q": [1, 2, 3, 4] * 2, "R_K": [2, 1, 1, 3] * 2, "U": [1, 2, 0, 1]}
    numbers["R_V"] = [*range(16), *np.eye(4, dtype=int).reshape(-1).tolist()]
    same = {name: ("I8", shapes[name], packed("I8", values)) for name, values in numbers.items()}
    both, _ = of_file("rank-deficient", False, same, SMALL, 4, held["evidence"], "residual-d")
    found["weights-kernel-missed-by-nothing"] = both, {"residual-d.safetensors": safetensors(same)}
    found["weights-looped-modular"] = of_file("rank-modular", True, looped, SMALL, m, RECOMPUTE, "residual-b", rank=m)
    found["weights-kernel-of-untied"] = of_file("rank-deficient", False, tensors, SMALL, m, K["evidence"], "residual-a")
    for name, (held, more) in {
        "enclosure-dropped": (without(emulation("sparse", ONE, "given", 2, seed=4, m=4)[0]), {}),
        "enclosure-equal-rounded": emulation("sparse", SMALL, "given", 2, step=Fraction(1, 81), verdict="equal"),
        "enclosure-tied-for-an-untied-target": emulation_of_another(),
    }.items():
        found[name] = held, more
    return {f"residual-{name}": pair for name, pair in found.items()}


def emulation_of_another():
    """The E of one target, stated to be equal for another."""
    found, files = emulation("tied", SMALL, "given", 2, tied_target=True, seed=5, verdict="equal")
    return bumped(found, ("evidence", "target", "W_V", "numerators", 0)), files


def malformed():
    T, P = triangular(SMALL), permutation(SMALL)
    R, K = modular("random", SMALL), deficient("random-tied", SMALL, 12, repeated(SMALL))
    B, S = bound(TWO, 24), span(SMALL, 9, routed_entries(SMALL))
    out = {}
    for label, held in {
        "triangular": T, "permutation": P, "modular": R, "kernel": K, "bound": B, "span": S,
        "linear": linear("random", (1, 2, 2, 1, 1)), "tied-kernel": kernel("random-tied", SMALL, 7),
    }.items():  # fmt: skip
        out[f"{label}-flag-false"] = changed(held, "shape", "residual", False)
    for name in ("sparse-front", "shared-key", "shared-query", "printed-single-head", "printed-tree-row", "printed-looped",
                 "register", "counting", "commuting-trie", "tied", "random", "no-such"):  # fmt: skip
        out[f"triangular-of-{name}"] = changed(changed(T, "claim", "host", "construction", name), "shape", "m", 99)
    for name in ("sparse", "sparse-front", "shared-key"):
        out[f"permutation-of-{name}"] = changed(changed(P, "claim", "host", "construction", name), "shape", "m", 99)
        if name != "sparse":
            evidence = {"method": "dimension"}
            out[f"dimension-of-{name}"] = stream_document("rank-deficient", name, SMALL, 9, evidence)
    other = {
        "triangular-without-the-stream": without(T),
        "triangular-of-a-plain-shape": changed(proved("sparse", SMALL)[0], "kind", "rank-triangular"),
        "permutation-of-a-plain-shape-for-tied-targets": changed(proved("tied", SMALL)[0], "claim", "targets", "all tied"),
        "triangular-m-below": changed(T, "shape", "m", 9),
        "triangular-m-of-the-plain-shape": changed(T, "shape", "m", 5),
        "triangular-a-row-less": changed(T, "evidence", "rows", T["evidence"]["rows"][:-1]),
        "triangular-a-row-more": changed(T, "evidence", "rows", [*T["evidence"]["rows"], 10]),
        "triangular-of-another-shape": changed(T, "shape", "heads", 2),
        "permutation-of-plain-shapes-for-tied-targets": without(P),
        "permutation-for-untied-targets": changed(P, "claim", "targets", "all untied"),
        "permutation-m-below": changed(P, "shape", "m", 6),
        "permutation-rows-of-all-words": changed(P, "evidence", "rows", list(range(10))),
        "kernel-position-beyond-M": changed(K, "evidence", "z", 1, 0, 10),
        "kernel-column-beyond-M": changed(K, "evidence", "column", 10),
        "kernel-for-tied-targets": changed(K, "claim", "targets", "all tied"),
        "kernel-distance-reducible": changed(K, "evidence", "distance_squared", [2, 4]),
        "dropped-kernel": without(deficient("tied", TWO, 19, repeated(TWO))),
        "dropped-kernel-of-random-tied": without(K),
        "dropped-triangular": without(triangular(TWO)),
        "dropped-permutation": without(permutation(TWO)),
        "added-permutation-of-sparse": streaming(proved("sparse", SMALL)[0]),
        "added-permutation-of-tied": streaming(proved("tied", SMALL)[0]),
        "added-kernel-of-printed-looped": streaming(proved("printed-looped", SMALL)[0]),
        "bound-functional": changed(B, "claim", "notion", "functional"),
        "bound-attention-matching": changed(B, "claim", "notion", "attention-matching"),
        "bound-shared-attention": added(changed(B, "claim", "notion", "shared attention"), "claim", "free", "E"),
        "bound-shared-attention-both": added(changed(B, "claim", "notion", "shared attention"), "claim", "free", "E and U"),
        "bound-tied-without-paths": bound(TWO, 1, "all tied"),
        "bound-tied-wide": bound((2, 2, 2, 2, 3), 1, "all tied"),
        "bound-generic-wide": bound((2, 2, 1, 2, 3), 1, "generic untied"),
        "bound-every": changed(B, "claim", "host", {"every": "host with a residual stream"}),
        "span-wide": changed(S, "shape", "d_out", 2),
        "span-shared-attention": added(changed(changed(S, "claim", "notion", "shared attention"), "claim", "targets",
                                               "generic untied"), "claim", "free", "E"),
        "span-entry-of-letter-0": changed(S, "evidence", "targets", [[["W_V", 0, 0, 0, 0, 1]]]),
        "span-entry-of-head-1": changed(S, "evidence", "targets", [[["W_V", 1, 1, 0, 0, 1]]]),
        "null-vector": streaming(statement(
            "lower-bound", "shared attention", {"R_V": [[[[1]], [[1]]]], "system": "shared-attention-universal"},
            (2, 1, 1, 1, 1), 1, {"method": "null-vector", "word": 0, "y": [[0, 1], [1, -1]]}, free="E and U")),
        "identity": streaming(statement("identity", "shared attention", {"construction": "counting"}, (1, 1, 1, 1, 1), 1,
                                        {"E": [[0, ["M.0"]]]}, targets="all tied", free="E")),
        "identity-of-tied": streaming(statement("identity", "matching", {"construction": "tied"}, ONE, 4,
                                                {"E": []}, targets="all tied")),
        "witness-of-the-plain-size": changed(witness("random", SMALL), "evidence", "inverse", [0] * 25),
        "linear-wide": changed(linear("random", (1, 2, 2, 1, 1)), "shape", "d_out", 2),
        "tied-kernel-wide": changed(kernel("random-tied", SMALL, 7), "shape", "d_out", 2),
    }  # fmt: skip
    found = {f"residual-{name}": (held, {}) for name, held in (out | other).items()}
    raw = canonical(T)
    found["residual-flag-twice"] = raw.replace(b'"residual":true', b'"residual":true,"residual":true')
    found["residual-flag-with-a-space"] = raw.replace(b'"residual":true', b'"residual": true')
    for case, said, residual, by_stream in [
        ("a-stream-not-in-the-certificate", "true", False, False),
        ("no-stream-in-the-file", "false", True, False),
        ("a-stream-in-the-digest-alone", None, False, True),
        ("no-stream-in-the-file-but-in-the-digest", "false", True, True),
        ("a-stream-named-otherwise", "yes", True, False),
    ]:
        drawn = drawn_weights(False, SMALL, 10, 900 + len(case), "F16", size=3)
        held, _ = of_weights("rank-modular", False, drawn, SMALL, 10, RECOMPUTE, label=case, rank=10 if residual else 5)
        held["claim"]["host"]["weights"] = digest_of(drawn, by_stream)
        file = safetensors(drawn, None if said is None else {"residual": said})
        found[f"residual-weights-{case}"] = (
            streaming(held) if residual else held,
            {f"residual-{case}.safetensors": file},
        )
    found["residual-flag-not-in-order"] = raw.replace(b'"m":10,"residual":true', b'"residual":true,"m":10')
    return found
