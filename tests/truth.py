"""Whether the statement of a certificate is true, by the definitions and the registries, whatever its evidence.

A word of its own in campaigns, where judges could share a mistake: hosts come from the package's constructions, which no judge
imports. True, False, or None where nothing here settles it: weights from a file, what the frontier's registry leaves open,
attention with positions, realizations with a residual stream, and whatever is too large to write out.
"""

import json
import warnings
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import fmpq, fmpq_mat

from utfproof.constructions import CONSTRUCTIONS, build_host
from utfproof.errors import UtfproofError
from utfproof.frontier.interval import interval
from utfproof.frontier.questions import ALL, ALMOST_ALL, ANY, TIED, UNTIED, Question
from utfproof.ground.notions import Notion
from utfproof.shapes import EffectiveHeadDimensionWarning, Shape

LARGEST = 1500
"""Entries of a matrix that is written out."""
RANGE = 10**6
"""Entries of a drawn target: one that is served by chance would lie on a hypersurface."""


def of(document):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveHeadDimensionWarning)
        return settled(document)


def settled(document):
    shape, claim = document["shape"], document["claim"]
    sizes = [int(shape[name]) for name in ("heads", "layers", "head_dim", "d_in", "d_out")]
    if max(sizes) > 64 or (sizes[0] + 1) ** sizes[1] > LARGEST:
        return None
    shape, m = Shape(*sizes, residual="residual" in shape), int(document["shape"]["m"])
    if claim["targets"] == "this one":
        settle = least_of_one if claim["verdict"] == "least m" else emulation
        return settle(shape, m, claim, document["evidence"])
    if "construction" not in claim["host"]:
        return impossible(shape, m, claim) if "every" in claim["host"] else None
    if claim["notion"] == "matching" and claim["targets"] in ("all untied", "all tied"):
        return matching(shape, m, json.dumps(claim["host"]), claim["targets"], claim["verdict"])
    return served(shape, m, claim)


def question(shape, claim):
    targets = claim["targets"]
    return Question(
        Notion(claim["notion"]),
        claim.get("free"),
        TIED if targets.endswith("tied") and not targets.endswith("untied") else UNTIED,
        ALL if targets.startswith("all") else ALMOST_ALL,
        TIED if claim["host"].get("every") == "tied host" else ANY,
    )


def impossible(shape, m, claim):
    """No host of this m: against the hosts and the bounds that the frontier knows."""
    known = interval(shape, question(shape, claim), quick=1000)
    if known.upper is not None and known.upper <= m:
        return False
    return True if known.lower > m else None


def served(shape, m, claim):
    """A host of this m serves: against the bounds that the frontier knows, and the registry of constructions."""
    if claim["targets"].startswith("untied with"):
        return None
    if interval(shape, question(shape, claim), quick=1000).lower > m:
        return claim["verdict"] == "not universal"
    entry = CONSTRUCTIONS.get(claim["host"]["construction"])
    if claim["verdict"] == "universal" and entry is not None and not entry.is_random:
        try:
            entry.require(shape)
            least = entry.least_m(shape)
        except UtfproofError:
            return None
        return True if entry.notion is not None and entry.notion.value == claim["notion"] and m >= least else None
    return None


# ----------------------------------------------------------------------------------------------------
# Matching: the rank of R_all, and the rows of a drawn target


def exact(matrix):
    """A matrix of the host as exact numbers [rows, columns]."""
    held = matrix.to_dense(object) if hasattr(matrix, "to_dense") else np.asarray(matrix)
    return np.array([[rational(x) for x in row] for row in held.tolist()], dtype=object).reshape(held.shape)


def rational(x):
    return fmpq(x) if isinstance(x, int) else fmpq(*Fraction(x).as_integer_ratio())


def columns(shape, enter, read, move, leave):
    """enter (None: the identity) times all columns of R_all, by read(which, layer, head) and move(layer, head), from 0."""

    def times(x, y):
        return y if x is None else x @ y

    prefixes, blocks = [enter], []
    for layer in range(shape.layers):
        for which in (0, 1):
            blocks += [times(x, read(which, layer, h)) for x in prefixes for h in range(shape.heads)]
        moves = [move(layer, h) for h in range(shape.heads)]
        prefixes = [y for x in prefixes for y in [*([x] * shape.residual), *(times(x, v) for v in moves)]]
    size = len(leave)
    eye = np.array([[fmpq(int(i == j)) for j in range(size)] for i in range(size)], dtype=object)
    return np.concatenate([*blocks, *(times(eye if x is None else x, leave) for x in prefixes)], axis=1)


def rank(matrix):
    rows, width = matrix.shape
    return fmpq_mat(rows, width, matrix.reshape(-1).tolist()).rank()


def host_of(shape, m, held):
    """(maps of a layer and head, U) in exact numbers; None for hosts that are not written out."""
    held = dict(held)
    name = held.pop("construction")
    if name not in CONSTRUCTIONS or not CONSTRUCTIONS[name].is_host:
        return None
    if "seed" in held:
        held["seed"] = int(held["seed"])
    host = build_host(name, shape, m, **held)
    known = {}

    def maps(layer, head):
        if (layer, head) not in known:
            query, key, value = host.maps(layer, head)
            v = exact(value[0])
            for factor in value[1:]:
                v = v @ exact(factor)
            known[layer, head] = exact(query), exact(key), v
        return known[layer, head]

    return maps, exact(host.U)


@lru_cache(maxsize=10_000)
def matching(shape, m, host, targets, verdict):
    words = (shape.heads + shape.residual) ** shape.layers
    if m * max(m, words * (shape.d_out + 2 * shape.head_dim * shape.heads)) > LARGEST:
        return None
    found = host_of(shape, m, json.loads(host))
    if found is None:
        return None
    maps, u = found
    R = columns(shape, None, lambda which, layer, h: maps(layer, h)[which], lambda layer, h: maps(layer, h)[2], u)
    if targets == "all untied":
        serves = rank(R) == R.shape[1]
    else:
        serves = rank(np.concatenate([R, tied_target(shape)])) == rank(R)
    return serves == (verdict == "universal")


def tied_target(shape):
    """W_all of a drawn tied target with d_out = d_in."""
    source = np.random.default_rng(1)
    b, d = shape.d_in, shape.head_dim

    def drawn(rows, width):
        return source.integers(-RANGE, RANGE, (rows, width)).astype(object) * fmpq(1)

    heads = [(drawn(b, d), drawn(b, d), drawn(b, d) @ drawn(d, b)) for _ in range(shape.heads)]
    eye = np.array([[fmpq(int(i == j)) for j in range(shape.d_out)] for i in range(b)], dtype=object)
    return columns(shape, None, lambda which, _, h: heads[h][which], lambda _, h: heads[h][2], eye)


# ----------------------------------------------------------------------------------------------------
# One target


def numbers(held, rows, width):
    """Exact numbers [count, rows, width]."""
    entries = [fmpq(int(x), int(held["denominator"])) for x in held["numerators"]]
    return np.array(entries, dtype=object).reshape(-1, rows, width)


def least_of_one(shape, m, claim, evidence):
    """The largest rank of W_all's words cut in two at a layer is the least m, without a residual stream."""
    given = evidence["target"]
    D = int(given["width"])
    if shape.residual or D * D * shape.heads**shape.layers > LARGEST:
        return None
    W_Q, W_K = ([numbers(x, D, shape.head_dim) for x in given[name]] for name in ("W_Q", "W_K"))
    M = [numbers(x, D, D) for x in given["M"]]
    first, last = numbers(given["W_E"], shape.d_in, D)[0], numbers(given["W_U"], D, shape.d_out)[0]
    least, rows = 1, [first]
    for boundary in range(shape.layers + 1):
        rest = Shape(shape.heads, max(1, shape.layers - boundary), shape.head_dim, shape.head_dim)
        after = last
        if boundary < shape.layers:
            after = columns(
                rest,
                None,
                lambda which, layer, h, at=boundary: (W_Q, W_K)[which][at + layer][h],
                lambda layer, h, at=boundary: M[at + layer][h],
                last,
            )
        least = max(least, rank(np.concatenate(rows) @ after))
        if boundary < shape.layers:
            rows = [row @ M[boundary][h] for row in rows for h in range(shape.heads)]
    return least == m


def emulation(shape, m, claim, evidence):
    """Forward passes in float64: False where the outputs are far from what is stated, True where well inside it."""
    parts = claim["attention"].split("+")
    n = int(claim["context"])
    if not set(parts) <= {"softmax", "causal", "scaled", "given"} or claim["verdict"] == "equal" or n > 20 or m > 200:
        return None
    found = host_of(shape, m, claim["host"]) if "construction" in claim["host"] else None
    if found is None:
        return None
    maps, u = found
    given = evidence["target"]
    D, layers = int(given["width"]), 1 if given["system"] == "looped-target" else shape.layers
    sizes = dict.fromkeys(("W_Q", "W_K", "W_V"), (D, shape.head_dim)) | {"W_O": (shape.head_dim, D)}
    W = {name: numbers(given[name], *size) for name, size in sizes.items()}
    enter = numbers(given["W_E"], shape.d_in, D)[0] if "W_E" in given else np.eye(D)
    leave = numbers(given["W_U"], D, shape.d_out)[0] if "W_U" in given else np.eye(D)
    X, E = numbers(evidence["X"], n, shape.d_in)[0], numbers(evidence["E"], shape.d_in, m)[0]

    def theirs(layer, h):
        at = (layer if layers > 1 else 0) * shape.heads + h
        return W["W_Q"][at], W["W_K"][at], W["W_V"][at] @ W["W_O"][at]

    outside = numbers(evidence["attention"], n, n).astype(float) if "attention" in evidence else None
    both = [
        forward(shape, X.astype(float) @ E.astype(float), maps, u, parts, outside),
        forward(shape, X.astype(float) @ enter.astype(float), theirs, leave, parts, outside),
    ]
    if not np.isfinite(both).all():
        return None
    difference, doubt = np.abs(both[0] - both[1]).max(), 1e-6 * (1 + np.abs(both[1]).max())
    low, high = (int(x) / 10 ** int(claim["digits"]) for x in claim["difference"])
    if difference < low - doubt or difference > high + doubt:
        return False
    return True if low <= max(0, difference - doubt) and difference + doubt <= high else None


def forward(shape, Z, maps, u, parts, outside):
    for layer in range(shape.layers):
        step = Z.copy() if shape.residual else np.zeros_like(Z)
        for h in range(shape.heads):
            query, key, value = (np.asarray(x, dtype=float) for x in maps(layer, h))
            logits = (Z @ query) @ (Z @ key).T
            if "scaled" in parts:
                logits = logits / np.sqrt(shape.head_dim)
            if "causal" in parts:
                logits = np.where(np.tril(np.ones_like(logits)) > 0, logits, -np.inf)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            step = step + (weights if outside is None else outside[layer * shape.heads + h]) @ Z @ value
        Z = step
    return Z @ np.asarray(u, dtype=float)
