"""Independent verification of `realization` certificates: integers and the standard library only (docs/minimal-hosts.md has
the format).

A certificate says that m is the least embedding dimension of any host, with the claimed heads, layers and head dimension,
that matches one target. Two things are verified. *m suffices*: a host and E of this dimension, with E R_all = W_all for every
word. *Less does not*: named rows W_E[i] M_w and named columns M_v W_Q, M_v W_K, M_v W_U of the target's Hankel matrix at one
layer boundary have a minor that is nonzero modulo an integer p, so any host holds so many independent states there; with a
residual stream, at later boundaries combinations of columns that vanish exactly on all states known before and have a nonzero
minor with new ones, which adds so many. (A minor that is nonzero modulo p is nonzero whether or not p is prime.)
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

FORMAT, VERSION, KIND = "utfproof-certificate", 1, "realization"
MAX_DIGITS = 4000
LIMIT = 2 * 10**8
"""Products of integers that a verification may take, estimated."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:/[1-9][0-9]*)?", re.ASCII)

Matrix = tuple[list[list[int]], int]
"""Integer rows over one common denominator."""


class Rejected(Exception):
    """The certificate is malformed, too large, or states something that was not established; the message says which."""


def _refuse(condition: bool, reason: str) -> None:
    if condition:
        raise Rejected(reason)


# --- reading -----------------------------------------------------------------------------------------------


def _fields(value: Any, names: set[str], what: str, optional: frozenset[str] = frozenset()) -> dict[str, Any]:
    _refuse(not isinstance(value, dict), f"{what} is no object")
    missing, unknown = names - value.keys(), value.keys() - names - optional
    _refuse(bool(missing), f"{what} has no {', '.join(sorted(missing))}")
    _refuse(bool(unknown), f"{what} has a field {', '.join(sorted(map(str, unknown)))[:60]} that is not known")
    return dict(value)


def _integer(value: Any, what: str, least: int, most: int) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    _refuse(not good, f"{what} is not an integer from {least} to {most}")
    return int(value)


def _list(value: Any, what: str, length: int | None = None) -> list[Any]:
    _refuse(not isinstance(value, list), f"{what} is no list")
    _refuse(length is not None and len(value) != length, f"{what} has {len(value)} entries, expected {length}")
    return list(value)


def _number(text: Any, what: str) -> Fraction:
    good = isinstance(text, str) and len(text) <= 2 * MAX_DIGITS + 2 and _NUMBER.fullmatch(text) is not None
    _refuse(not good, f"{what} is not a number such as 3 or -5/4, of at most {MAX_DIGITS} digits")
    parts = text.split("/")
    _refuse(max(map(len, parts)) > MAX_DIGITS + 1, f"{what} has more than {MAX_DIGITS} digits")
    value = Fraction(int(parts[0]), int(parts[1]) if len(parts) == 2 else 1)
    written = str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    _refuse(written != text, f"{what} is not in lowest terms")
    return value


def _matrix(value: Any, rows: int, columns: int, what: str) -> Matrix:
    table = [
        [_number(x, f"an entry of {what}") for x in _list(row, f"a row of {what}", columns)]
        for row in _list(value, what, rows)
    ]
    common = lcm(*(x.denominator for row in table for x in row))
    return [[x.numerator * (common // x.denominator) for x in row] for row in table], common


def _grid(value: Any, layers: int, heads: int, rows: int, columns: int, what: str) -> list[list[Matrix]]:
    return [
        [_matrix(x, rows, columns, what) for x in _list(row, f"a layer of {what}", heads)]
        for row in _list(value, what, layers)
    ]


def target_digest(target: dict[str, Any]) -> str:
    """SHA-256 of the target's canonical JSON: sorted keys, no spaces, numbers as strings in lowest terms."""
    return hashlib.sha256(json.dumps(target, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# --- arithmetic --------------------------------------------------------------------------------------------


def _times(a: Matrix, b: Matrix) -> Matrix:
    columns = list(zip(*b[0], strict=True)) if b[0] else []
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a[0]], a[1] * b[1]


def _equal(a: Matrix, b: Matrix) -> bool:
    return all(x * b[1] == y * a[1] for r, s in zip(a[0], b[0], strict=True) for x, y in zip(r, s, strict=True))


def _zero(a: Matrix) -> bool:
    return not any(x for row in a[0] for x in row)


def _nonsingular(rows: list[list[int]], p: int) -> bool:
    """Whether an elimination modulo p (any integer above 1) shows that the determinant is nonzero modulo p."""
    table = [[x % p for x in row] for row in rows]
    for k in range(len(table)):
        for i in range(k, len(table)):
            try:
                inverse = pow(table[i][k], -1, p)
            except ValueError:
                continue
            table[k], table[i] = table[i], table[k]
            break
        else:
            return False
        for i in range(k + 1, len(table)):
            factor = table[i][k] * inverse % p
            if factor:
                table[i] = [(x - factor * y) % p for x, y in zip(table[i], table[k], strict=True)]
    return True


# --- the certificate ---------------------------------------------------------------------------------------


class _Target:
    """The target's forms: W_E, W_Q, W_K, M, W_U."""

    def __init__(self, document: Any, shape: dict[str, int], residual: bool) -> None:
        fields = _fields(document, {"W_E", "W_Q", "W_K", "M", "W_U"}, "the target")
        rows = _list(fields["W_U"], "W_U of the target")
        _refuse(not rows, "the target has width 0")
        H, L, d, D = shape["heads"], shape["layers"], shape["head_dim"], len(rows)
        self.H, self.L, self.D, self.residual = H, L, D, residual
        self.d, self.d_in, self.d_out = d, shape["d_in"], shape["d_out"]
        self.W_E = _matrix(fields["W_E"], self.d_in, D, "W_E")
        self.W_Q = _grid(fields["W_Q"], L, H, D, d, "W_Q")
        self.W_K = _grid(fields["W_K"], L, H, D, d, "W_K")
        self.M = _grid(fields["M"], L, H, D, D, "M")
        self.W_U = _matrix(fields["W_U"], D, self.d_out, "W_U")

    def words(self, length: int) -> list[tuple[int, ...]]:
        return list(itertools.product(range(self.H + self.residual), repeat=length))

    def word(self, value: Any, length: int, what: str) -> tuple[int, ...]:
        letters = _list(value, what, length)
        return tuple(_integer(x, f"a letter of {what}", 0, self.H + self.residual - 1) for x in letters)

    def row(self, value: Any, length: int) -> Matrix:
        """W_E[i] M_w of a pair [i, w]."""
        i, letters = _list(value, "a row's name", 2)
        held: Matrix = ([self.W_E[0][_integer(i, "the input of a row", 0, self.d_in - 1)]], self.W_E[1])
        for layer, letter in enumerate(self.word(letters, length, "a row's word")):
            if letter >= self.residual:
                held = _times(held, self.M[layer][letter - self.residual])
        return held

    def column(self, value: Any, boundary: int) -> Matrix:
        """M_v W_Q, M_v W_K or M_v W_U, one column [D, 1], of [kind, layer, word, coordinate]."""
        kind, layer, letters, coordinate = _list(value, "a column's name", 4)
        if kind == "OV":
            _refuse(layer != self.L, "an OV column that does not read at the last layer")
            word, source = self.word(letters, self.L - boundary, "a column's word"), self.W_U
            width = self.d_out
        else:
            _refuse(kind not in ("Q", "K"), "a column's kind is not Q, K or OV")
            at = _integer(layer, "the layer of a column", boundary + 1, self.L)
            word = self.word(letters, at - boundary, "a column's word")
            _refuse(word[-1] < self.residual, "the stream reads no queries or keys")
            source = (self.W_Q if kind == "Q" else self.W_K)[at - 1][word[-1] - self.residual]
            word, width = word[:-1], self.d
        c = _integer(coordinate, "the coordinate of a column", 0, width - 1)
        held: Matrix = ([[row[c]] for row in source[0]], source[1])
        for offset, letter in reversed(list(enumerate(word))):
            if letter >= self.residual:
                held = _times(self.M[boundary + offset][letter - self.residual], held)
        return held


def _below(rows: Sequence[Matrix]) -> Matrix:
    common = lcm(*(den for _, den in rows))
    return [[x * (common // den) for x in held[0]] for held, den in rows], common


def _beside(columns: Sequence[Matrix]) -> Matrix:
    common = lcm(*(den for _, den in columns))
    height = len(columns[0][0])
    return [[held[i][0] * (common // den) for held, den in columns] for i in range(height)], common


def _minor(rows: Matrix, columns: Matrix, p: int, what: str) -> None:
    table, denominator = _times(rows, columns)
    # the determinant of the rational minor is that of the integers over a power of the denominator
    _refuse(denominator % p == 0, f"p divides a denominator of {what}")
    _refuse(not _nonsingular(table, p), f"{what} is singular modulo p, or p is of no use")


def _verify_host(evidence: dict[str, Any], target: _Target, m: int) -> None:
    fields = _fields(evidence["host"], {"R_Q", "R_K", "R_V", "U", "E"}, "the host")
    H, L = target.H, target.L
    R_Q = _grid(fields["R_Q"], L, H, m, target.d, "R_Q")
    R_K = _grid(fields["R_K"], L, H, m, target.d, "R_K")
    R_V = _grid(fields["R_V"], L, H, m, m, "R_V")
    U = _matrix(fields["U"], m, target.d_out, "U")
    pairs = [(_matrix(fields["E"], target.d_in, m, "E"), target.W_E)]
    for layer in range(L):
        after = []
        for ours, theirs in pairs:
            if target.residual:
                after.append((ours, theirs))
            for h in range(H):
                same = _equal(_times(ours, R_Q[layer][h]), _times(theirs, target.W_Q[layer][h]))
                _refuse(not same, f"queries of layer {layer + 1}, head {h} do not match")
                same = _equal(_times(ours, R_K[layer][h]), _times(theirs, target.W_K[layer][h]))
                _refuse(not same, f"keys of layer {layer + 1}, head {h} do not match")
                after.append((_times(ours, R_V[layer][h]), _times(theirs, target.M[layer][h])))
        pairs = after
    for ours, theirs in pairs:
        _refuse(not _equal(_times(ours, U), _times(theirs, target.W_U)), "outputs do not match")


def _verify_lower(evidence: dict[str, Any], target: _Target, m: int) -> None:
    fields = _fields(evidence["lower"], {"p", "start", "rows", "columns", "steps"}, "the lower bound")
    p = _integer(fields["p"], "p", 2, 2**53 - 1)
    at = _integer(fields["start"], "start", 0, target.L)
    names, readers = _list(fields["rows"], "rows"), _list(fields["columns"], "columns")
    _refuse(len(names) != len(readers), "a minor needs as many rows as columns")
    found = len(names)
    _refuse(found > m, "more rows than m")
    if found:
        rows = _below([target.row(name, at) for name in names])
        _minor(rows, _beside([target.column(name, at) for name in readers]), p, f"the minor at boundary {at}")
    steps = _list(fields["steps"], "steps")
    _refuse(bool(steps) and not target.residual, "states do not stay without a residual stream, so steps do not add")
    for value in steps:
        step = _fields(value, {"boundary", "rows", "columns", "coefficients"}, "a step")
        at = _integer(step["boundary"], "the boundary of a step", at + 1, target.L)
        names, readers = _list(step["rows"], "rows of a step"), _list(step["columns"], "columns of a step")
        _refuse(
            not (0 < len(names) <= m and 0 < len(readers) <= target.D), "a step has no rows or columns, or too many"
        )
        combined = _times(
            _beside([target.column(name, at) for name in readers]),
            _matrix(step["coefficients"], len(readers), len(names), "coefficients of a step"),
        )
        known = [combined]
        for layer in reversed(range(at - 1)):
            known += [_times(target.M[layer][h], held) for held in known for h in range(target.H)]
        vanish = all(_zero(_times(target.W_E, held)) for held in known)
        _refuse(not vanish, f"the combinations at boundary {at} do not vanish on the states known before")
        _minor(_below([target.row(name, at) for name in names]), combined, p, f"the minor of the step at boundary {at}")
        found += len(names)
    _refuse(max(1, found) != m, f"the lower bound reaches {max(1, found)} only, the claim is {m}")


def verify_realization(document: Any, *, target: Any = None, limit: int = LIMIT) -> str:
    """Verify a certificate; returns what it establishes, in words.

    target: the target's forms where they do not stand in the certificate; their digest has to be the claim's. Raises Rejected.
    """
    top = _fields(document, {"format", "version", "kind", "shape", "claim", "evidence"}, "the certificate")
    _refuse((top["format"], top["version"], top["kind"]) != (FORMAT, VERSION, KIND), "not a realization certificate")
    names = ("heads", "layers", "head_dim", "d_in", "d_out", "m")
    fields = _fields(top["shape"], set(names), "shape", frozenset({"residual"}))
    shape = {name: _integer(fields[name], name, 1, 10**6) for name in names}
    residual = fields.get("residual", False)
    _refuse(not isinstance(residual, bool), "residual is not true or false")
    claim = _fields(top["claim"], {"target", "notion", "verdict"}, "claim")
    _refuse(claim["notion"] != "matching", "the notion is not matching")
    _refuse(claim["verdict"] != "least m", "the verdict is not 'least m'")
    evidence = _fields(top["evidence"], {"host", "lower"}, "evidence", frozenset({"target"}))
    _refuse("target" not in evidence and target is None, "the target is neither in the certificate nor given")
    held = evidence["target"] if target is None else target
    _refuse("target" in evidence and held != evidence["target"], "the target given is not the certificate's")
    m, letters = shape["m"], shape["heads"] + residual
    wide = len(held["W_U"]) if isinstance(held, dict) and isinstance(held.get("W_U"), list) else 1
    words = letters ** shape["layers"] if shape["layers"] < 64 else LIMIT
    work = shape["layers"] * shape["heads"] * words * shape["d_in"] * (m * m + wide * wide)
    _refuse(work > limit, f"verification would take about {work:.2g} products, the limit is {limit:.2g}")
    try:
        digest = target_digest(held)
    except (TypeError, ValueError) as error:
        raise Rejected("the target is not JSON") from error
    _refuse(digest != claim["target"], "the target is not the one claimed: digests differ")
    forms = _Target(held, shape, residual)
    _verify_host(evidence, forms, m)
    _verify_lower(evidence, forms, m)
    stream = "with a residual stream " if residual else ""
    return (
        f"m = {m} is the least embedding dimension of a host {stream}with {shape['heads']} heads, {shape['layers']} layers and "
        f"head dimension {shape['head_dim']} that matches target {digest[:16]} of width {forms.D}"
    )
