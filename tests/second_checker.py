"""A second judge of what the verified checker of proofs/checker does not cover: bounds, spans, hosts with gated MLPs.

    python tests/second_checker.py FILE...

Written from docs/certificate-format.md alone: it shares no code with the checker nor with the prover and imports nothing of
utfproof. Ranks are FLINT's and everything is done the slow way. Prints a line for each file; the exit status is 0 if all are
valid, else 1 if one is invalid, else 2 if one is malformed, else 3 if one is not judged here.
"""

import json
import secrets
import sys
from fractions import Fraction
from itertools import pairwise
from math import factorial, isqrt, prod
from pathlib import Path

import naive
import numpy as np
import rfc8785

SAFE = 2**53 - 1
FIELDS = ("heads", "layers", "head_dim", "d_in", "d_out", "m")


class TooLarge(Exception):
    """Beyond what is computed here."""


def by_length(H, first, last):
    return [w for t in range(first, last + 1) for w in naive.words(H, t)]


def dimension(H, L, d, d_in, d_out):
    """M, section 1."""
    S = L if H == 1 else sum(H**t for t in range(1, L + 1))
    return 2 * d * S + d_out * H**L


# ----------------------------------------------------------------------------------------------------
# The second opinion


class IllFormed(Exception):
    pass


def demand(condition):
    if not condition:
        raise IllFormed


def fields(value, *names):
    demand(type(value) is dict and sorted(value) == sorted(names))
    return [value[name] for name in names]


def whole(digits):
    """Python converts no more than 4300 digits at once."""
    return int(digits) if len(digits) <= 4000 else whole(digits[:-4000]) * 10**4000 + int(digits[-4000:])


def number(value):
    if type(value) is str:
        demand(value.isascii() and value.removeprefix("-").isdigit())
        digits = value.removeprefix("-")
        if len(digits) > 100_000:
            raise TooLarge
        size = whole(digits)
        demand(digits[0] != "0" and size > SAFE)
        return -size if value[0] == "-" else size
    demand(type(value) is int and abs(value) <= SAFE)
    return value


def canonical(value):
    """RFC 8785; integers up to 2^53 inclusive as numbers."""
    if type(value) is dict:
        return b"{%s}" % b",".join(rfc8785.dumps(k) + b":" + canonical(value[k]) for k in sorted(value))
    if type(value) is list:
        return b"[%s]" % b",".join(map(canonical, value))
    return b"%d" % value if type(value) is int and abs(value) <= SAFE else rfc8785.dumps(value)


def pairs(items):
    """An object's members; none may stand twice."""
    demand(len({key for key, _ in items}) == len(items))
    return dict(items)


def parsed(raw):
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs)
        demand(canonical(value) == raw)
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        raise IllFormed from None
    return value


def judge(raw: bytes, folder: Path | None = None) -> int | None:
    """0, 1 or 2 as section 14 has it for a certificate of these bytes; None for one that is not judged here."""
    if len(raw) > 64 * 2**20:
        return None
    try:
        return 0 if _holds(parsed(raw)) else 1
    except IllFormed:
        return 2
    except TooLarge:
        return None


def _holds(document):
    form, version, kind, shape, claim, evidence = fields(
        document, "format", "version", "kind", "shape", "claim", "evidence"
    )
    demand(form == "utfproof-certificate" and type(version) is int and version == 2)
    if kind == "gated-identity":
        return _gated(shape, claim, evidence)
    if kind != "lower-bound":
        raise TooLarge  # left to the verified checker and the prover
    demand(type(claim) is dict and claim.get("verdict") in ("universal", "not universal"))
    if type(shape) is not dict or "residual" not in shape:
        holds = _lower_bound(shape, claim, evidence)
    else:
        dims, m = dimensions(without_stream(shape))
        host, notion, targets = fields(claim, "host", "notion", "targets", "verdict")[:3]
        logits = notion in ("attention-matching", "functional")
        demand(logits or notion == "matching")
        demand(targets in ("all untied", "all tied", "generic untied", "generic tied"))
        holds = (stream_logits if logits else stream_bound)(host, targets, dims, m, evidence)
    return claim["verdict"] == "not universal" and holds()


def residue_rank(p, matrix):
    from flint import nmod_mat

    return int(nmod_mat(*matrix.shape, [int(x) % p for x in matrix.reshape(-1)], p).rank())


def dimensions(shape):
    """(H, L, d, d_in, d_out) and m of a certificate's shape."""
    *dims, m = [number(x) for x in fields(shape, *FIELDS)]
    demand(min(*dims, m) >= 1)
    if dims[0] > 1 and dims[1] * (dims[0] - 1).bit_length() > 60:
        raise TooLarge
    return dims, m


def plain_places(H, L, d, d_in, d_out):
    """As stream_places, without a stream."""
    if dimension(H, L, d, d_in, d_out) > 4000:
        raise TooLarge
    words = [(kind, w[:-1], w[-1], d) for kind in ("W_Q", "W_K") for w in by_length(H, 1, L)]
    words += [("U", w, None, d_out) for w in naive.words(H, L)]
    return [(kind, tuple(h + 1 for h in w), reader, j) for kind, w, reader, width in words for j in range(width)]


def prime_of(value):
    """(p, whether it is an odd prime)."""
    p = number(value)
    demand(2 <= p < 2**31)
    return p, p % 2 == 1 and all(p % k for k in range(3, isqrt(p) + 1, 2))


def multisets(L, H):
    """C(L+H-1, H-1), by a product of min(L, H-1) factors."""
    small, large = sorted((L, H - 1))
    out = 1
    for i in range(1, small + 1):
        out = out * (large + i) // i
    return out


def stated(claim):
    """(host, notion, targets, what is free) of a claim that may leave the last out."""
    free = ["free"] * ("free" in claim)
    return *fields(claim, "host", "notion", "targets", "verdict", *free)[:3], claim.get("free")


def _lower_bound(shape, claim, evidence):
    host, notion, targets, free = stated(claim)
    dims, m = dimensions(shape)
    H, L, d, d_in, d_out = dims
    generic = targets in ("generic untied", "generic tied")
    demand(generic or targets in ("all untied", "all tied"))
    demand(notion in ("matching", "functional", "shared attention", "attention-matching"))
    demand(free in (("E", "E and U") if notion == "shared attention" else (None,)))
    demand("free" in claim or free is None)
    method = evidence.get("method") if type(evidence) is dict else None
    if type(host) is dict and "every" in host:
        demand(fields(host, "every")[0] in ("host", "tied host") and method in ("dimension", "span"))
    else:
        _, system = fields(host, "R_V", "system")
        demand(system in ("shared-attention-universal", "looped-shared-attention-universal"))
        demand(method == "null-vector" and notion == "shared attention" and targets == "all untied")
        demand(free == "E and U")
        raise TooLarge  # left to the verified checker
    if method == "span":
        _, p, given = fields(evidence, "method", "prime", "targets")
        demand((notion == "matching" or (notion == "shared attention" and generic)) and d_in == d_out)
        return _span(*prime_of(p), given, targets.endswith(" tied"), dims, m, free, plain_places)
    fields(evidence, "method")
    leaves = H**L
    M = dimension(*dims)
    untied = targets in ("all untied", "generic untied")
    if generic:
        demand(d_in == d_out)
        if L > 10_000:
            raise TooLarge
        bounds = list(generic_bounds(notion, untied, free, H, L, d, d_in, host["every"] == "tied host"))
        demand(bounds)
        return lambda: any(too_small(m) for too_small in bounds)
    if notion == "attention-matching":
        demand(untied and d_in == d_out)
        if 2 * d <= d_in and (H >= 2 or L == 1):
            return lambda: m < M
        demand((H, L, d_in) == (1, 1, 1))
        return lambda: m < 3
    if (notion, untied, free) == ("shared attention", True, "E and U") and (H, L, d_in, d_out) == (3, 1, 1, 1):
        return lambda: m < 3
    if notion == "matching":
        demand(untied or (d_in >= L and d >= L))
        return lambda: m < M
    if (
        notion == "functional"
        and L == 1
        and d_in == d_out
        and untied
        and (d + d * H <= d_in or (H, d, d_in) == (2, 1, 2))
    ):
        return lambda: m < H * d_in + 2 * H * d
    if notion == "functional":
        demand(untied and L == 1 and d <= d_in == d_out)
        return lambda: Fraction(m) < H * (d_in + 2 * d - Fraction(d * d, d_in))
    if free == "E":
        return lambda: m < (d_out * leaves if untied else multisets(L, H))
    return lambda: m * m < (leaves if untied else multisets(L, H))


def wider_than_input(H, L, d, b, letters):
    """The bound at d > d_in and L >= 2, for words in so many letters."""
    t = (d - b) // 2
    spread = [1, min(letters, b * b)]
    while len(spread) < L:
        half, odd = divmod(len(spread), 2)
        spread.append(min(b, letters**half) * min(b, letters ** (half + odd)))
    rest = sum(spread[1:L])
    lost = Fraction(t * (d - t), b)
    return max(b * letters**L + b * L * H + 1, b * letters**L + b * H + H * rest * (b - lost))


def generic_bounds(notion, untied, free, H, L, d, b, tied_host):
    """Predicates of m, one for each line of the second table that applies; any of them refutes."""
    e = min(d, b)
    walks = d >= L and b >= L
    if notion == "matching":
        if untied or walks:
            yield lambda m: m < dimension(H, L, d, b, b)
        elif b == 1:
            yield lambda m: m < 2 * d * H * multisets(L - 1, H + 1) + multisets(L, H)
    if notion in ("attention-matching", "functional"):
        form = Fraction(2 * e * b - e * e, b)
        if untied:
            r = min(H * e, b)
            later = Fraction(2 * e * r - e * e, b)
            yield lambda m: m < b * H**L + H * form + H * (L - 1) * later
            if d <= b:
                S = sum(H**t for t in range(1, L + 1))
                yield lambda m: m < b * H**L + 2 * d * S - d * d * (Fraction(H, b) + Fraction(S - H, r))
            elif H >= 2 and L >= 2:
                yield lambda m: m < wider_than_input(H, L, d, b, H)
        elif walks or b == 1:
            yield lambda m: m < (b * H**L if walks else multisets(L, H)) + H * form
    if notion == "functional" and not untied:
        yield lambda m: m < max(b, multisets(L, H))
        if L > 1:
            yield lambda m: b * m < (H - 1) * (b - 1) * e + b * e + e * b - e * e - b
    if notion == "shared attention" and free == "E":
        yield lambda m: m < (b * H**L if untied or walks else multisets(L, H))
    if notion == "shared attention" and free == "E and U":
        yield lambda m: m * m < (H**L if untied or walks else multisets(L, H))
        yield lambda m: m < e
        if untied:
            if b == 1 and H >= 2 and L % 2 == 1:
                yield lambda m: m * m <= H**L
            if b >= 2 and (H >= 2 or d >= 2):
                yield lambda m: m * m <= H**L
            if d >= b:
                yield lambda m: 2 * b * m <= b * b * (L * (H - 1) + 1)
            if b == 1 and H == 2 and L == 3:
                yield lambda m: m <= 3
        elif tied_host and b == 1 and H == 2 and L in (2, 3):
            yield lambda m: m <= 2


def target_sizes(d, d_in):
    return {"W_Q": (d_in, d), "W_K": (d_in, d), "W_V": (d_in, d), "W_O": (d, d_in)}


def target_table(entries, tied, H, L, d, d_in):
    """{(tensor, layer, head, row, column): entry} of a target as section 10.2 writes it."""
    sizes = target_sizes(d, d_in)
    demand(type(entries) is list)
    places, table = [], {}
    for entry in entries:
        demand(type(entry) is list and len(entry) == 6 and type(entry[0]) is str and entry[0] in sizes)
        tensor, (layer, h, i, j, v) = entry[0], map(number, entry[1:])
        demand((layer == 0 if tied else 1 <= layer <= L) and 0 <= h < H and v != 0)
        demand(0 <= i < sizes[tensor][0] and 0 <= j < sizes[tensor][1])
        places.append((tensor, layer, h, i, j))
        table[places[-1]] = v
    demand(all(a < b for a, b in pairwise(places)))
    return table


def _span(p, prime, given, tied, dims, m, free, places):
    demand(type(given) is list and given)
    tables = [target_rows(entries, tied, dims, places) for entries in given]
    H, L, _, _, d_out = dims

    def holds():
        if not prime:
            return False
        rows = np.concatenate([rows() for rows in tables])
        if free is not None:
            rows = rows[:, -d_out * H**L :]
        if free == "E and U":
            rows = rows.reshape(-1, H**L, d_out).transpose(0, 2, 1).reshape(-1, H**L)
        return residue_rank(p, rows) > (m * m if free == "E and U" else m)

    return holds


# Softmax attention by mpmath's intervals (section 12.1)

PARTS = ("scaled", "causal", "window", "alibi", "rope")


def attention_parts(text, d):
    """{part: its number or None}; empty for softmax, None for given attention."""
    if text in ("softmax", "given"):
        return {} if text == "softmax" else None
    demand(type(text) is str)
    parts = {}
    for part in text.split("+"):
        name, *rest = part.split(":")
        demand(name in PARTS and name not in parts and len(rest) == (name == "window"))
        if rest:
            demand(rest[0].isascii() and rest[0].isdigit() and rest[0][0] != "0" and len(rest[0]) <= 18)
        parts[name] = int(rest[0]) if rest else None
    demand(list(parts) == [name for name in PARTS if name in parts])
    demand("rope" not in parts or d % 2 == 0)
    return parts


def product(x, y):
    return x * y


def interval(x):
    from mpmath import iv

    x = Fraction(x)
    return iv.mpf(x.numerator) / iv.mpf(x.denominator)


def softmaxed(queries, keys, parts, h, H, d):
    from mpmath import iv

    n = len(queries)
    if "rope" in parts:
        queries, keys = ([turned(row, i, d) for i, row in enumerate(rows)] for rows in (queries, keys))
    out = []
    for i in range(n):
        seen = [j for j in range(n) if ("causal" not in parts or j <= i) and abs(i - j) < parts.get("window", n)]
        logits = {}
        for j in seen:
            s = sum(map(product, queries[i], keys[j]))
            if "scaled" in parts:
                s = s / iv.sqrt(iv.mpf(d))
            if "alibi" in parts:
                s = s - abs(i - j) * power(2, Fraction(8 * (h + 1), H))
            logits[j] = s
        out.append(
            [
                1 / sum(iv.exp(logits[other] - logits[j]) for other in seen) if j in logits else iv.mpf(0)
                for j in range(n)
            ]
        )
    return out


def power(base, exponent):
    """base^-exponent."""
    from mpmath import iv

    return iv.exp(-interval(exponent) * iv.log(iv.mpf(base)))


def turned(row, position, d):
    from mpmath import iv

    out = []
    for t in range(d // 2):
        angle = position * power(10000, Fraction(2 * t, d))
        x, y = row[2 * t], row[2 * t + 1]
        out += [x * iv.cos(angle) - y * iv.sin(angle), x * iv.sin(angle) + y * iv.cos(angle)]
    return out


# ----------------------------------------------------------------------------------------------------
# Residual streams: words over the letters 0 ... H (letter h + 1 is head h), everything dense and word by word


def without_stream(shape):
    """The shape's other fields; `residual` is true or the certificate is malformed."""
    demand(shape["residual"] is True)
    rest = {name: value for name, value in shape.items() if name != "residual"}
    (H, L, *_), _ = dimensions(rest)
    if L * H.bit_length() > 60:
        raise TooLarge
    return rest


def stream_places(H, L, d, d_in, d_out):
    """(kind, letters before the reader or output, reading head, coordinate) of every column, in canonical order."""
    if 2 * d * H * L * (H + 1) ** (L - 1) + d_out * (H + 1) ** L > 20_000:
        raise TooLarge
    found = []
    for kind in ("W_Q", "W_K"):
        for length in range(L):
            for w in naive.words(H + 1, length):
                found += [(kind, w, h, j) for h in range(H) for j in range(d)]
    return found + [("U", w, None, j) for w in naive.words(H + 1, L) for j in range(d_out)]


def stream_M(H, L, d, d_in, d_out):
    return 2 * d * H * sum((H + 1) ** t for t in range(L)) + d_out * (H + 1) ** L


def stream_reduced(H, L, d, d_out):
    S = sum(H**t for t in range(1, L + 1))
    return 2 * d * S + d_out * (1 + S)


def w_all(weights, places, W_E=None, W_U=None):
    """W_all from {(tensor, layer, head): matrix}, layers from 1; places: of its columns, as stream_places has them."""
    product = {(): np.eye(weights["W_V", 1, 0].shape[0], dtype=object) if W_E is None else W_E}
    columns, blocks = [], {}
    for kind, w, h, j in places:
        if w not in product:
            before, place = product[w[:-1]], (len(w), w[-1] - 1)
            product[w] = before.dot(weights["W_V", *place]).dot(weights["W_O", *place]) if w[-1] else before
        if (kind, w, h) not in blocks:
            end = product[w]
            if kind == "U":
                blocks[kind, w, h] = end if W_U is None else end.dot(W_U)
            else:
                blocks[kind, w, h] = end.dot(weights[kind, len(w) + 1, h])
        columns.append(blocks[kind, w, h][:, j])
    return np.array(columns, dtype=object).T


def zero_weights(dims, D):
    """All zero."""
    H, L, d, *_ = dims
    if max(D, d) > 50 or H * L > 2000:
        raise TooLarge
    return {
        (tensor, layer, h): np.zeros(size, dtype=object)
        for tensor, size in target_sizes(d, D).items()
        for layer in range(1, L + 1)
        for h in range(H)
    }


def target_rows(entries, tied, dims, places):
    """Rows of W_all of a target given by its entries."""
    H, L, d, d_in, _ = dims
    table = target_table(entries, tied, H, L, d, d_in)

    def rows():
        weights = zero_weights(dims, d_in)
        for (tensor, layer, h, i, j), v in table.items():
            for at in range(1, L + 1) if tied else [layer]:
                weights[tensor, at, h][i, j] = v
        return w_all(weights, places(*dims))

    return rows


def stream_logits(host, targets, dims, m, evidence):
    H, L, d, b, d_out = dims
    demand(fields(host, "every")[0] in ("host", "tied host") and fields(evidence, "method") == ["dimension"])
    demand(targets == "generic untied" and b == d_out)
    e, words = min(d, b), (H + 1) ** L
    form = 2 * e - Fraction(e * e, b)
    if d > b and L > 1:
        return lambda: m < wider_than_input(H, L, d, b, H + 1)
    q = H + 1 if H * d + d >= b else Fraction(b, b - H * d)
    return lambda: m < b * words + H * form * sum(q**t for t in range(L))


def stream_bound(host, targets, dims, m, evidence):
    H, L, d, d_in, d_out = dims
    (every,) = fields(host, "every")
    demand(every in ("host", "tied host"))
    method = evidence.get("method") if type(evidence) is dict else None
    if method == "dimension":
        fields(evidence, "method")
        demand(targets == "all untied" or d_in == d_out)
        if targets.endswith("untied"):
            return lambda: m < stream_M(*dims) or (every == "tied host" and L > 1)
        demand(min(d_in, d) >= L)
        return lambda: m < stream_reduced(H, L, d, d_out)
    _, p, given = fields(evidence, "method", "prime", "targets")
    demand(method == "span" and d_in == d_out)
    return _span(*prime_of(p), given, targets.endswith(" tied"), dims, m, None, stream_places)


# ----------------------------------------------------------------------------------------------------
# Hosts with gated MLPs (section 16): the host's matrices run beside a target, modulo a prime. Tokens, weights and attention are
# drawn; the gate is z below p/2 and 0 above, so that g(z) - g(-z) = z.

GATED_PRIME = 2**61 - 1


def _gated(shape, claim, evidence):
    host, inputs, notion, targets, verdict = fields(claim, "host", "inputs", "notion", "targets", "verdict")
    (name,) = fields(host, "construction")
    demand(name in ("gated", "gated-tied") and inputs == "rows that sum to 1")
    asked = ("attention-matching", "all untied") if name == "gated" else ("functional", "all tied")
    demand((notion, targets) == asked and verdict in ("universal", "not universal"))
    demand(type(evidence) is dict and not evidence)
    dims, m = dimensions(shape)
    H, L, d, d_in, d_out = dims
    T, w = L if name == "gated" else 2, H * d
    least = 1 + 4 * w + d_out + w * d_out + (T > 1) * 2 * w * w + (T - 1) * w * w
    least += max(T - 2, 0) * (2 * (w - d) * w + w - 1)
    demand(m >= least)
    if max(least, d_in) > 3000:
        raise TooLarge
    return verdict == "universal" and gated_serves(dims, T, name == "gated-tied", gated_places(w, d, d_out, T, least))


def gated_places(w, d, d_out, T, least):
    """{name: numbers of its coordinates, as a matrix}."""
    order = [("1", 1, 1), *((x, 1, w) for x in "qkvo"), ("out", 1, d_out), ("last", w, d_out)]
    for t in range(1, T):
        order += [(f"Q{t}", w, w), *((x, w, w) for x in "KV" if t == 1)]
    for t in range(1, T - 1):
        order += [(f"Y{t}", w - d, w), (f"Z{t}", w - d, w), (f"p{t}", 1, w - 1)]
    at, size = {}, 0
    for name, rows, columns in order:
        at[name] = np.arange(size, size + rows * columns).reshape(rows, columns)
        size += rows * columns
    assert size == least
    return at


def gated_units(w, d, T, tied, at):
    """Rows (a, b, c, sign): MLPs add sign y_a y_b to y_c."""
    one, o = at["1"][0, 0], at["o"][0]
    units = [(o[i], at["last"][i, j], to, 1) for i in range(w) for j, to in enumerate(at["out"][0])]
    replaced = ["q", "k", "v", "o", "out"]
    for x, name in (("q", "Q1"), ("k", "K"), ("v", "V")) if T > 1 else ():
        units += [(o[i], at[name][i, j], at[x][0, j], 1) for i in range(w) for j in range(w)]
    for x, name in (("K", "Y1"), ("V", "Z1")) if T > 2 else ():
        replaced.append(x)
        for i in range(w):
            for k, power in enumerate([one, *at["p1"][0]][: w - i], i):
                for j in range(w):
                    if k >= d or j % d == k:
                        units.append((power, at[name][k - d, j] if k >= d else one, at[x][i, j], 1))
    for name in [] if tied else [name for name in at if name[0] in "QYZp"]:
        replaced.append(name)
        after = at.get(f"{name[0]}{int(name[1:]) + 1}", np.zeros((0, 0), dtype=int))
        units += [(a, one, c, 1) for a, c in zip(after.reshape(-1), at[name].reshape(-1), strict=False)]
    return units + [(c, one, c, -1) for name in replaced for c in at[name].reshape(-1)]


def gated_embedding(dims, T, at, weights, p):
    """E, from the weights {(tensor, layer, head)} of a target whose products with W_O have full rank."""
    H, L, d, d_in, _ = dims
    w, beside = H * d, np.hstack
    E = np.zeros((d_in, 1 + max(int(places.max(initial=0)) for places in at.values())), dtype=object)

    def hold(name, values):
        E[:, at[name].reshape(-1)] = values.reshape(1, -1) % p

    for name in "QKV":
        E[:, at[name.lower()][0]] = weights["W_E"].dot(beside([weights[f"W_{name}", 1, h] for h in range(H)])) % p
    hold("1", np.ones(1, dtype=object))
    below = np.vstack([weights["W_O", 1, h] for h in range(H)])
    for layer in range(2, T + 1):
        tables = {x: [below.dot(weights[f"W_{x}", min(layer, L), h]) % p for h in range(H)] for x in "QKV"}
        below = np.vstack([weights["W_O", min(layer, L), h] for h in range(H)])
        if layer == 2:
            hold("K", beside(tables["K"]))
            hold("V", beside(tables["V"]))
        else:
            base = secrets.randbelow(p)
            powers = [pow(base, k, p) * pow(factorial(k), -1, p) % p for k in range(w)]
            shifted = np.array([[0] * i + powers[: w - i] for i in range(w)], dtype=object)  # exp(base N)
            signs = [(-1) ** k * powers[k] for k in range(1, w)]
            hold(f"p{layer - 2}", np.array(signs, dtype=object))
            bases = {x: [shifted.dot(table) % p for table in tables[x]] for x in "KV"}
            for x, name in (("K", "Y"), ("V", "Z")):
                hold(f"{name}{layer - 2}", beside([A[d:].dot(inverse(A[:d], p)) for A in bases[x]]))
            tables["Q"] = [Q.dot(A[:d].T) % p for Q, A in zip(tables["Q"], bases["K"], strict=True)]
            moved = [A[:d].dot(below[h * d : (h + 1) * d]) for h, A in enumerate(bases["V"])]
            below = np.vstack(moved) % p
        hold(f"Q{layer - 1}", beside(tables["Q"]))
    hold("last", below.dot(weights["W_U"]))
    return E


def inverse(matrix, p):
    """Modulo p, with FLINT."""
    from flint import fmpz_mod_ctx, fmpz_mod_mat

    rows = fmpz_mod_mat([[int(x) % p for x in row] for row in matrix], fmpz_mod_ctx(p)).inv()
    return np.array([[int(x) for x in row] for row in rows.tolist()], dtype=object)


def gated_serves(dims, T, tied, at):
    """Whether host and target agree at three tokens."""
    (H, L, d, d_in, d_out), p = dims, GATED_PRIME
    w = H * d

    def drawn(*size):
        return np.array([secrets.randbelow(p) for _ in range(prod(size))], dtype=object).reshape(size)

    weights = {"W_E": drawn(d_in, w), "W_U": drawn(w, d_out)}
    for tensor, size in target_sizes(d, w).items():
        for layer in range(1, L + 1):
            for h in range(H):
                known = weights.get((tensor, 1, h)) if tied else None
                weights[tensor, layer, h] = drawn(*size) if known is None else known
    X = drawn(3, d_in)
    X[:, -1] = (1 - X[:, :-1].sum(axis=1)) % p
    masks, units = drawn(L + 1, H, 3, 3), np.array(gated_units(w, d, T, tied, at), dtype=object).T
    a, b, c, sign = (part.astype(np.int64) for part in units)
    Y, S = X.dot(gated_embedding(dims, T, at, weights, p)) % p, X.dot(weights["W_E"]) % p
    heads = [slice(h * d, (h + 1) * d) for h in range(H)]
    for layer in range(1, L + 1):
        moved, new = np.zeros_like(S), Y.copy()
        for h, part in enumerate(heads):
            query, key, value, out = (weights[tensor, layer, h] for tensor in ("W_Q", "W_K", "W_V", "W_O"))
            logits = S.dot(query).dot(S.dot(key).T) % p
            if (Y[:, at["q"][0, part]].dot(Y[:, at["k"][0, part]].T) % p != logits).any():
                return False
            attention = (logits * logits + masks[layer, h]) % p
            moved += attention.dot(S).dot(value).dot(out)
            new[:, at["o"][0, part]] += attention.dot(Y[:, at["v"][0, part]])
        S, Y = moved % p, new % p
        gate, factor = Y[:, a], Y[:, b]
        hidden = np.where(gate < p // 2 + 1, gate, 0) * factor - np.where(-gate % p < p // 2 + 1, -gate % p, 0) * factor
        for unit, to in enumerate(c):
            new[:, to] += int(sign[unit]) * hidden[:, unit]
        Y = new % p
    return bool((Y[:, at["out"][0]] == S.dot(weights["W_U"]) % p).all())


def main(paths):
    words = {0: "valid", 1: "INVALID", 2: "MALFORMED", None: "TOO LARGE"}
    found = []
    for path in map(Path, paths):
        try:
            verdict = judge(path.read_bytes(), path.parent)
        except OSError:
            verdict = 2
        found.append(3 if verdict is None else verdict)
        print(f"{words[verdict]:9} {path}", flush=True)
    return next((code for code in (1, 2, 3) if code in found), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
