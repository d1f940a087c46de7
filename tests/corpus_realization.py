"""The corpus of least hosts: one target each, and every way to name a wrong one, to miss a word or to count a state twice.

Hosts are built slowly from all words (docs/proofs/least-host-of-one-target.md), with fractions.
"""

from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from least_hosts import built, drawn, moved_target, named, nothing, numbers, of_numbers, stepping
from make_corpus import added, changed, written
from sceptic import canonical, judge

# --- the three folders -------------------------------------------------------------------------------------------------

ONE, TWO, DEEP, HEADS = (1, 1, 1, 1, 1), (2, 2, 1, 2, 1), (1, 3, 1, 1, 1), (2, 2, 1, 1, 1)


@cache
def sound():
    large = drawn((1, 1, 1, 2, 1), 2, 3)
    large["W_E"] = large["W_E"] * Fraction(10**20 + 39, 7)
    loose = built(TWO, drawn(TWO, 4, 5, 0.7))
    for name in ("R_V", "R_Q"):
        layer = loose["evidence"]["host"][name][1]
        layer = {"denominator": 6 * layer["denominator"], "numerators": [6 * x for x in layer["numerators"]]}
        loose = changed(loose, "evidence", "host", name, 1, layer)
    wide = (2, 1, 2, 3, 2)
    out = {
        "one": built(ONE, drawn(ONE, 2, 1)),
        "one-stream": built(ONE, drawn(ONE, 3, 2), True),
        "two": built(TWO, drawn(TWO, 5, 1)),
        "two-stream": built(TWO, drawn(TWO, 5, 1), True),
        "two-thin": built(TWO, drawn(TWO, 6, 2, 0.4)),
        "two-thin-stream": built(TWO, drawn(TWO, 6, 2, 0.4), True),
        "two-latest": built(TWO, drawn(TWO, 5, 1), latest=True),
        "two-latest-stream": built(TWO, drawn(TWO, 5, 8, 0.6), True, latest=True),
        "three-heads": built((3, 1, 1, 2, 1), drawn((3, 1, 1, 2, 1), 4, 3)),
        "three-heads-stream": built((3, 1, 1, 2, 1), drawn((3, 1, 1, 2, 1), 4, 3), True),
        "two-numbers": of_numbers(2, [[2, 3]]),
        "four-numbers": of_numbers(2, [[2, 3], [5, 7]]),
        "one-word": of_numbers(2, [[2, 0], [0, 3]], start=0),
        "number-and-stream": of_numbers(1, [[3]], True),
        "small-stream": built((1, 2, 1, 1, 1), drawn((1, 2, 1, 1, 1), 2, 2), True),
        "deep": built(DEEP, drawn(DEEP, 4, 1)),
        "deep-stream": built(DEEP, drawn(DEEP, 4, 1), True),
        "wide": built(wide, drawn(wide, 5, 4)),
        "wide-stream": built(wide, drawn(wide, 5, 4, 0.5), True),
        "full-values": built(TWO, drawn(TWO, 4, 6, rank=4)),
        "fractions": built(TWO, drawn(TWO, 3, 7, denominators=(1, 2, 3, 5))),
        "fractions-stream": built(TWO, drawn(TWO, 4, 7, 0.6, denominators=(1, 2, 3, 5)), True),
        "large-numbers": built((1, 1, 1, 2, 1), large),
        "loose-denominators": loose,
        "tied-target": built(TWO, drawn(TWO, 4, 9, tied=True)),
        "tied-target-stream": built(TWO, drawn(TWO, 4, 9, 0.6, tied=True), True),
        "nothing": built(TWO, nothing(TWO, 3)),
        "nothing-stream": built(TWO, nothing(TWO, 2), True),
        "prime-65521": built(TWO, drawn(TWO, 5, 1), prime=65521),
        "prime-13-stream": built(HEADS, drawn(HEADS, 3, 5), True, prime=13),
        "step": stepping(HEADS, 6, 0.3),
        "step-of-fractions": stepping(HEADS, 5, 0.35, denominators=(1, 2, 3)),
        "two-steps": stepping((2, 3, 1, 1, 1), 7, 0.3, 2, first=87),
        "step-of-two-rows": stepping((2, 2, 1, 2, 1), 7, 0.3, rows=2),
        "combined": built((1, 2, 1, 1, 3), drawn((1, 2, 1, 1, 3), 5, 5, 0.5), True),
        "combined-fractions": built(
            (2, 2, 1, 1, 2), drawn((2, 2, 1, 1, 2), 6, 129, 0.4, denominators=(1, 2, 3)), True
        ),
        "stays": built((1, 2, 1, 1, 1), moved_target(), True),
    }  # fmt: skip
    for name in ("one", "two", "two-stream", "deep-stream"):
        lower = out[name]["evidence"]["lower"]
        if len(lower["rows"]) > 1:
            turned = changed(out[name], "evidence", "lower", "rows", lower["rows"][::-1])
            out[f"{name}-rows-reversed"] = turned
    return out


def filed(table):
    return {f"realization-{name}": (found, {}) for name, found in table.items()}


def valid():
    return filed(sound())


def code_of(found):
    return judge(canonical(found), Path("."))


def moved_numerator(found, *path, code=1, rename=False):
    """With the first numerator one larger that makes the certificate what the code says; None if no one does."""
    held = found["evidence"]
    for step in path:
        held = held[step]
    for i, x in enumerate(held["numerators"]):
        other = changed(found, "evidence", *path, "numerators", i, written(int(x) + 1))
        other = named(other) if rename else other
        if code_of(other) == code:
            return other
    return None


def resized(found, kept):
    """The host with these coordinates of the old one, in this order; None for a zero coordinate. The claim's m follows."""
    host, shape = found["evidence"]["host"], found["shape"]
    m, H, d, d_in, d_out = (shape[name] for name in ("m", "heads", "head_dim", "d_in", "d_out"))

    def entries(held, count, rows, columns, down, across):
        flat = [int(x) for x in held["numerators"]]
        cut = [flat[n * rows * columns : (n + 1) * rows * columns] for n in range(count)]
        down, across = (kept if asked else range(size) for asked, size in ((down, rows), (across, columns)))
        picked = [0 if i is None or j is None else part[i * columns + j] for part in cut for i in down for j in across]
        return {"denominator": held["denominator"], "numerators": [written(x) for x in picked]}

    new = {
        "E": entries(host["E"], 1, d_in, m, False, True),
        "U": entries(host["U"], 1, m, d_out, True, False),
        "R_Q": [entries(layer, H, m, d, True, False) for layer in host["R_Q"]],
        "R_K": [entries(layer, H, m, d, True, False) for layer in host["R_K"]],
        "R_V": [entries(layer, H, m, m, True, True) for layer in host["R_V"]],
    }
    return changed(changed(found, "evidence", "host", new), "shape", "m", len(kept))


def with_lower(found, **fields):
    lower = found["evidence"]["lower"]
    return changed(found, "evidence", "lower", {**lower, **fields})


def flagged(found):
    """The residual flag dropped or added."""
    if "residual" in found["shape"]:
        return changed(found, "shape", "residual", ...)
    return added(found, "shape", "residual", True)


def returning_target():
    """One head, e_1 -> e_2 -> e_1: what is read at the end vanishes on what layer 1 wrote, but not on what was there before."""
    W = moved_target()
    M = np.full((2, 1, 2, 2), Fraction(0), dtype=object)
    M[0, 0, 0, 1] = M[1, 0, 1, 0] = 1
    return W | {"M": M, "W_U": W["W_E"].T.copy()}


def counted_twice(W):
    """A second row that is there before, by the name of a step."""
    found = built((1, 2, 1, 1, 1), W, True)
    assert found["shape"]["m"] == 2
    letters = [0] if not W["M"][1, 0, 1, 0] else [1]
    step = {"boundary": 2, "combinations": [[1]], "columns": [["OV", [], 0]], "rows": [[0, [letters[0], 1]]]}
    return with_lower(found, boundary=1, columns=[["OV", letters, 0]], rows=[[0, [1]]], steps=[step])


def invalid():
    found, out = sound(), {}
    bases = ("two", "two-stream", "step-of-two-rows", "fractions-stream")
    for base in bases:
        for name in ("E", "U"):
            out[f"{base}-{name}-off"] = moved_numerator(found[base], "host", name)
        for name in ("W_E", "W_U"):
            out[f"{base}-{name}-off"] = moved_numerator(found[base], "target", name, rename=True)
            out[f"{base}-{name}-off-under-the-old-digest"] = moved_numerator(found[base], "target", name)
        for layer in range(len(found[base]["evidence"]["host"]["R_V"])):
            for name in ("R_Q", "R_K", "R_V"):
                out[f"{base}-{name}-off-in-layer-{layer + 1}"] = moved_numerator(found[base], "host", name, layer)
            for name in ("W_Q", "W_K", "M"):
                out[f"{base}-{name}-off-in-layer-{layer + 1}"] = moved_numerator(
                    found[base], "target", name, layer, rename=True
                )
        host, m = found[base]["evidence"]["host"], found[base]["shape"]["m"]
        for path in (("E",), ("U",), ("R_K", 0), ("R_V", 0)):
            held = host
            for step in path:
                held = held[step]
            if any(int(x) for x in held["numerators"]):
                place = "-of-layer-1" if path[1:] else ""
                halved = changed(found[base], "evidence", "host", *path, "denominator", 2 * held["denominator"])
                out[f"{base}-{path[0]}-halved{place}"] = halved
        for name, other in (("R_Q", "R_K"), ("R_K", "R_Q")):
            out[f"{base}-{name}-in-both-places"] = changed(found[base], "evidence", "host", name, host[other])
        out[f"{base}-layers-exchanged"] = changed(found[base], "evidence", "host", "R_V", host["R_V"][::-1])
        padded = resized(found[base], [*range(m), None])
        lower = found[base]["evidence"]["lower"]
        out[f"{base}-m-one-too-large"] = padded
        out[f"{base}-m-one-too-large-with-a-row-twice"] = with_lower(
            padded, rows=[*lower["rows"], lower["rows"][0]], columns=[*lower["columns"], lower["columns"][-1]]
        )
        for drop in range(m):
            smaller = resized(found[base], [k for k in range(m) if k != drop])
            smaller = with_lower(smaller, rows=lower["rows"][1:], columns=lower["columns"][1:])
            out[f"{base}-m-one-too-small-without-coordinate-{drop}"] = smaller
        one_less = {"rows": lower["rows"][1:], "columns": lower["columns"][1:]}
        out[f"{base}-a-row-dropped"] = with_lower(found[base], **one_less)
        out[f"{base}-another-digest"] = changed(found[base], "claim", "target", found["one"]["claim"]["target"])
        out[f"{base}-a-row-in-place-of-another"] = with_lower(found[base], rows=lower["rows"][:1] * len(lower["rows"]))
        for p in (2, 4, 9, 2**31 - 3, 2**31 - 2, 46337 * 46327) if base == bases[0] else (2**31 - 3,):
            out[f"{base}-modulo-{p}"] = changed(found[base], "evidence", "lower", "prime", p)
    for base in ("two", "two-stream", "fractions-stream", "wide-stream", "full-values"):
        p = next((p for p in range(3, 400, 2) if all(p % k for k in range(3, p, 2))
                  and code_of(changed(found[base], "evidence", "lower", "prime", p)) == 1), None)  # fmt: skip
        if p is not None:
            out[f"{base}-prime-that-divides-the-minor"] = changed(found[base], "evidence", "lower", "prime", p)
    for base in ("step", "step-of-two-rows", "two-steps", "step-of-fractions", "combined", "combined-fractions"):
        lower = found[base]["evidence"]["lower"]
        out[f"{base}-step-dropped"] = with_lower(found[base], steps=lower["steps"][1:])
        for at, step in enumerate(lower["steps"]):
            place = "evidence", "lower", "steps", at
            sums = step["combinations"]
            zero = [[0] * len(step["columns"]), *sums[1:]]
            out[f"{base}-step-{at}-sum-zero"] = changed(found[base], *place, "combinations", zero)
            for j, x in enumerate(sums[0]):
                other = changed(found[base], *place, "combinations", 0, j, written(int(x) + 1))
                if code_of(other) == 1:
                    out[f"{base}-step-{at}-sum-off-at-{j}"] = other
            known = [[0, [0] * step["boundary"]]] * len(step["rows"])
            out[f"{base}-step-{at}-of-known-rows"] = changed(found[base], *place, "rows", known)
    for label, W in (
        ("vanishes-on-what-was-there", moved_target()),
        ("vanishes-on-what-was-written", returning_target()),
    ):
        out[f"sum-{label}-alone"] = counted_twice(W)
    for base in ("stays", "deep-stream"):
        padded = resized(found[base], [*range(found[base]["shape"]["m"]), None])
        L = padded["shape"]["layers"]
        at = max(L - 1, padded["evidence"]["lower"]["boundary"] + 1)
        step = {"boundary": at, "combinations": [[1]], "columns": [["OV", [0] * (L - at), 0]], "rows": [[0, [1] * at]]}
        out[f"{base}-one-too-large-with-a-step"] = with_lower(padded, steps=[step])
    # hosts that match some words only
    for dims, D, seed in ((TWO, 5, 1), (DEEP, 4, 1)):
        W = drawn(dims, D, seed)
        plain, stream = built(dims, W), built(dims, W, True)
        small, m = plain["shape"]["m"], stream["shape"]["m"]
        other = resized(plain, [*range(small), *[None] * (m - small)])
        label = "-".join(map(str, dims))
        out[f"{label}-host-without-the-stream"] = changed(stream, "evidence", "host", other["evidence"]["host"])
        other = changed(plain, "evidence", "host", stream["evidence"]["host"])
        out[f"{label}-host-of-the-stream"] = changed(other, "shape", "m", m)
    # words that sums of words do not tell apart
    host = found["two-numbers"]["evidence"]["host"]
    (layer,) = host["R_V"]
    turned = {**layer, "numerators": layer["numerators"][::-1]}
    out["two-numbers-heads-exchanged"] = changed(found["two-numbers"], "evidence", "host", "R_V", [turned])
    host = found["four-numbers"]["evidence"]["host"]
    out["four-numbers-layers-exchanged"] = changed(found["four-numbers"], "evidence", "host", "R_V", host["R_V"][::-1])
    other = changed(found["number-and-stream"], "evidence", "host", "U", numbers([2]))
    other = changed(other, "evidence", "host", "R_V", [numbers([1])])
    out["number-and-stream-exchanged"] = other
    for name in ("one", "one-stream"):
        nought = resized(found[name], [None])
        out[f"{name}-host-zero"] = nought
    out["nothing-m-two"] = resized(found["nothing"], [0, None])
    out |= {f"{name}-flag-turned": flagged(base) for name, base in found.items() if code_of(flagged(base)) == 1}
    out = {name: content for name, content in out.items() if content is not None}
    for name in ("E", "U", "R_Q", "R_K", "R_V", "W_E", "W_U", "W_Q", "W_K", "M"):
        assert sum(f"-{name}-off" in case for case in out) > 2, name
    assert sum("-sum-off-at-" in case for case in out) > 2
    return filed(out)


def malformed():
    found, out = sound(), {}
    base, step = found["small-stream"], found["step"]
    assert base["evidence"]["lower"]["boundary"] == 1
    plain = found["two"]

    def add(name, document, *path_and_value):
        assert name not in out, name
        out[name] = changed(document, *path_and_value)

    evidence, lower = ("evidence",), ("evidence", "lower")
    for name in ("rows", "columns"):
        add(f"evidence-lower-{name}-array", base, *lower, name, [[]])
    for name in ("combinations", "columns", "rows"):
        add(f"step-{name}-empty", step, *lower, "steps", 0, name, [])
    held = step["evidence"]["lower"]["steps"]
    at = step["evidence"]["lower"]["boundary"]
    add("steps-at-one-boundary", step, *lower, "steps", held + held)
    add("step-at-the-first-boundary", step, *lower, "steps", 0, "boundary", at)
    add("step-above-the-last-boundary", step, *lower, "steps", 0, "boundary", 3)
    add("step-with-a-sum-more", step, *lower, "steps", 0, "combinations", held[0]["combinations"] * 2)
    add("step-with-a-row-more", step, *lower, "steps", 0, "rows", held[0]["rows"] * 2)
    add("step-with-a-column-more", step, *lower, "steps", 0, "columns", held[0]["columns"] * 2)
    add("step-with-a-sum-too-short", step, *lower, "steps", 0, "combinations", [held[0]["combinations"][0][1:]])
    add("step-without-a-stream", plain, *lower, "steps", held)
    empty = changed(step, *lower, "steps", 0, "rows", [])
    add("step-with-nothing", empty, *lower, "steps", 0, "combinations", [])
    more = {"boundary": 2, "combinations": [[1]], "columns": [["OV", [], 0]], "rows": [[0, [0, 1]]]}
    padded = resized(found["four-numbers"], [0, None])
    add(
        "step-of-heads-alone",
        with_lower(padded, boundary=1, columns=[["OV", [0], 0]], rows=[[0, [0]]]),
        *lower,
        "steps",
        [more],
    )
    add("steps-backwards", found["two-steps"], *lower, "steps", found["two-steps"]["evidence"]["lower"]["steps"][::-1])
    add("host-of-other-hosts", base, "claim", "host", {"every": "tied host"})
    digest = base["claim"]["target"]
    for case, value in {"short": digest[:-1], "long": digest + "0", "upper-case": digest.upper(), "empty": "",
                        "with-a-newline": digest[:-1] + "\n"}.items():  # fmt: skip
        if value != digest:
            add(f"digest-{case}", base, "claim", "target", value)
    for case, value in {
        "universal": "universal", "not-universal": "not universal", "m": "least", "within": "within",
    }.items():  # fmt: skip
        add(f"verdict-{case}", base, "claim", "verdict", value)
    for case, p in {
        "one": 1, "zero": 0, "of-32-bits": 2**31 + 11, "large": 2**53 - 111, "huge": str(2**61 - 1),
    }.items():  # fmt: skip
        add(f"prime-{case}", base, *lower, "prime", p)
    for case, value in {"above": 3, "negative": -1}.items():
        add(f"boundary-{case}", base, *lower, "boundary", value)
    row, column = base["evidence"]["lower"]["rows"][0], base["evidence"]["lower"]["columns"][0]
    i, w = row
    for case, value in {
        "empty": [], "input-alone": [i], "three": [i, w, 0], "input-negative": [-1, w], "input-too-large": [2, w],
        "word-short": [i, w[1:]], "word-long": [i, [*w, 0]],
        "letter-too-large": [i, [3] * len(w)], "letter-negative": [i, [-1] * len(w)], "letter-string": [i, ["1"] * len(w)],
    }.items():  # fmt: skip
        add(f"row-{case}", base, *lower, "rows", 0, value)
    kind, v, c = column
    for case, value in {
        "empty": [], "pair": [kind, v], "four": [kind, 1, v, c],
        "kind-lower-case": [kind.lower(), v, c], "kind-W_Q": ["W_Q", v, c], "kind-V": ["V", v, c],
        "letter-too-large": [kind, [3] * len(v), c], "letter-negative": [kind, [-1] * len(v), c],
        "query-of-the-stream": ["Q", [0], 0], "key-of-the-stream": ["K", [0], 0], "query-of-no-word": ["Q", [], 0],
        "query-beyond-the-last-layer": ["Q", [1, 1], 0], "output-short": ["OV", [], 0], "output-long": ["OV", [1, 1, 1], 0],
        "coordinate-too-large": [kind, v, 1], "coordinate-negative": [kind, v, -1],
    }.items():  # fmt: skip
        add(f"column-{case}", base, *lower, "columns", 0, value)
    for case, value in {"too-large": [0, [2] * plain["evidence"]["lower"]["boundary"]]}.items():
        add(f"letter-without-a-stream-{case}", plain, *lower, "rows", 0, value)
    add("a-column-more", base, *lower, "columns", [*base["evidence"]["lower"]["columns"], column])
    add("a-row-more", base, *lower, "rows", [*base["evidence"]["lower"]["rows"], row])
    for name in ("W_E", "W_U"):
        tensor_ = base["evidence"]["target"][name]
        twice = {"denominator": 2, "numerators": [2 * x for x in tensor_["numerators"]]}
        out[f"{name}-not-with-the-least-denominator"] = named(changed(base, "evidence", "target", name, twice))
    for name in ("W_Q", "W_K", "M"):
        layer = base["evidence"]["target"][name][1]
        twice = {"denominator": 3, "numerators": [3 * x for x in layer["numerators"]]}
        out[f"{name}-not-with-the-least-denominator"] = named(changed(base, "evidence", "target", name, 1, twice))
    zero = {"denominator": 2, "numerators": [0] * 2}
    out["zeros-not-with-the-least-denominator"] = named(changed(base, "evidence", "target", "W_E", zero))
    for place in (("host", "E"), ("host", "R_V", 0), ("target", "M", 1), ("target", "W_U")):
        held = base["evidence"]
        for part in place:
            held = held[part]
        label = "-".join(map(str, place))
        for case, value in {"zero": 0, "negative": -1}.items():
            add(f"{label}-denominator-{case}", base, *evidence, *place, "denominator", value)
        listed = held["numerators"]
        for case, value in {"fewer": listed[1:], "more": [*listed, 0]}.items():
            add(f"{label}-numerators-{case}", base, *evidence, *place, "numerators", value)
    for name in ("R_Q", "R_K", "R_V"):
        held = base["evidence"]["host"][name]
        add(f"host-{name}-of-a-layer-less", base, *evidence, "host", name, held[1:])
        add(f"host-{name}-of-a-layer-more", base, *evidence, "host", name, [*held, held[0]])
    for case, value in {"zero": 0, "less": 1, "more": 3, "huge": str(2**70)}.items():
        out[f"width-{case}"] = named(changed(base, "evidence", "target", "width", value))
    for name in ("m", "heads", "layers", "head_dim", "d_in", "d_out"):
        add(f"shape-{name}-one-more", base, "shape", name, base["shape"][name] + 1)
    factors = changed(base, "evidence", "target", "M", ...)
    factors = added(factors, "evidence", "target", "W_V", base["evidence"]["target"]["W_Q"])
    out["target-in-factors"] = named(added(factors, "evidence", "target", "W_O", base["evidence"]["target"]["W_Q"]))
    out |= {f"{name}-flag-turned": flagged(x) for name, x in found.items() if code_of(flagged(x)) == 2}
    return filed(out)
