"""Independent checker of utfproof certificates (docs/certificate-format.md, version 2).

    python -m utfproof.certificates.checker CERTIFICATE|FOLDER...
    python checker.py CERTIFICATE|FOLDER...

Exit status: 0 every certificate is valid; 1 one states something that was not established; else 70 a check broke off
with an internal error, which is no verdict; else 2 one is malformed; else 3 one is over a limit. (130: interrupted;
141: the report could not be written.) `utfproof check` runs this file in a process with the system's limits.

What is trusted: the Python interpreter with its standard library, and this file. Nothing is taken over from the program
that wrote a certificate; hosts are rebuilt here from the definitions of the format."""

from __future__ import annotations

import argparse
import bisect
import hashlib
import json
import math
import os
import re
import secrets
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import accumulate, chain, pairwise
from itertools import product as product_of
from operator import add, itemgetter, mul
from typing import Any, BinaryIO, ClassVar, TypeAlias

VALID, INVALID, MALFORMED, LIMIT, INTERNAL, SKIPPED = 0, 1, 2, 3, 70, -1
LABELS = {INVALID: "INVALID", MALFORMED: "MALFORMED", LIMIT: "LIMIT", INTERNAL: "ERROR"}
PROVED, CHECKED, CITED = "proved", "checked", "cited"  # what a valid certificate rests on, strongest first
FORMAT, VERSION = "utfproof-certificate", 2
NO_MEMORY, NO_FILE = "the memory did not suffice", "the file does not exist"
MAX_JSON = 64 * 2**20  # bytes of a certificate file
MAX_HEADER = 2**24  # bytes of the header of a file of weights
MAX_DIGITS = 100_000  # of one integer written as a string
MAX_WORD_BITS = 60  # H^L is computed only where L log2(H) is at most this; word numbers then hash to themselves
MAX_LAYERS = 2**26  # more than the letters of any file
MAX_ROWS = 2**32  # of a host of drawn or stored weights, whose rows are numbered in 32 bits
MAX_NUMBERS = 2**30  # of a target whose matrices are formed
MAX_BLOCKS = 2**22  # of a host of zeros and ones
INLINE = 4096  # longest inline array
INVERTIBLE = "untied with invertible M^(l,0)"
TARGETS = ("all untied", "all tied", INVERTIBLE)
GENERIC = ("generic untied", "generic tied")
TIED = (TARGETS[1], GENERIC[1])
RANDOM = ("random", "random-tied")
U32 = "I" if array("I").itemsize == 4 else "L"
M64 = 2**64 - 1
R_Q, R_K, R_V, CODE_U = 0, 1, 2, 3
Path = str | os.PathLike[str]
Matrix: TypeAlias = list[list[int]]
Grid: TypeAlias = list[list[Matrix]]  # by layer (one only if tied) and head
Pairs = list[tuple[int, int]]  # (position, nonzero value), positions increasing


class Stop(Exception):
    """Ends the check of one certificate with a verdict."""

    code = INVALID


class Malformed(Stop):
    code = MALFORMED


class OverLimit(Stop):
    code = LIMIT


@dataclass(frozen=True)
class Verdict:
    code: int
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """`proved`, if the verified checker accepted it, too; `cited`, if a bound of a written proof; else `checked`."""
        if self.code != VALID:
            return "MISSING" if self.message == NO_FILE else LABELS[self.code]
        return next((status for status in (PROVED, CITED) if status in self.facts), CHECKED)

    @property
    def line(self) -> str:
        """The message, and what was proved or is cited."""
        more = {PROVED: "proved:", CITED: "only the arithmetic is checked, the bound is proved in"}.get(self.status)
        return f"{self.message}; {more} {self.facts[self.status]}" if more else self.message


@dataclass(frozen=True)
class Options:
    numpy: bool = False  # ranks and witnesses modulo a prime with NumPy, many times faster
    weights: tuple[str, ...] = ()  # files and folders in which weights are looked for
    digests: dict[tuple[str, bool], str] = field(default_factory=dict, compare=False)  # of files, in one run


def figure(n: int) -> str:
    return str(n) if abs(n) < 10**15 else f"about {'-' if n < 0 else ''}2^{(n * n).bit_length() // 2}"


def stated(n: int) -> int | str:  # for reports; huge numbers could exceed CPython's bound on decimal digits
    return n if n < 2**63 else figure(n)


def quote(value: object) -> str:
    text = ascii(value) if isinstance(value, (str, int)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


# ----------------------------------------------------------------------------------------------------
# Shapes (section 1)


@dataclass(frozen=True)
class Shape:
    heads: int
    layers: int
    head_dim: int
    d_in: int
    d_out: int
    m: int
    residual: bool = False

    @property
    def letters(self) -> int:
        """Of a word: the heads; with a residual stream 0 stands for it, and h + 1 for head h."""
        return self.heads + self.residual

    def words(self, length: int) -> int:
        """H + H^2 + ... + H^length."""
        h = self.heads
        return length if h == 1 else (h ** (length + 1) - h) // (h - 1)

    def readers(self, length: int) -> int:
        """Words of at most `length` letters the last of which is a head that reads; without a stream words(length)."""
        g = self.letters
        return self.heads * (length if g == 1 else (g**length - 1) // (g - 1))

    @property
    def leaves(self) -> int:
        return self.letters**self.layers

    @property
    def columns(self) -> int:
        return 2 * self.head_dim * self.readers(self.layers) + self.d_out * self.leaves

    @property
    def reduced_columns(self) -> int:
        """With a residual stream: the columns of words without the letter 0, of outputs those of every length up to
        L."""
        every = self.words(self.layers)
        return 2 * self.head_dim * every + self.d_out * (1 + every)

    @property
    def counts(self) -> int:
        """How many ways there are to count L letters of H kinds: C(L+H-1, H-1)."""
        return math.comb(self.layers + self.heads - 1, self.heads - 1)

    def without_m(self) -> str:
        names = ("H", "L", "d", "d_in", "d_out")
        values = (self.heads, self.layers, self.head_dim, self.d_in, self.d_out)
        said = ", ".join(f"{name}={figure(value)}" for name, value in zip(names, values, strict=True))
        return said + ", residual stream" * self.residual

    def __str__(self) -> str:
        return f"{self.without_m()}, m={figure(self.m)}"


SIZES = ("heads", "layers", "head_dim", "d_in", "d_out", "m")


def read_shape(value: object) -> Shape:
    residual = isinstance(value, dict) and "residual" in value
    held = dict(zip(SIZES, record(value, "shape", *SIZES, *["residual"] * residual), strict=False))
    if isinstance(value, dict) and value.get("residual", True) is not True:
        raise Malformed("residual is neither true nor left out")
    shape = Shape(**{name: integer(size, name) for name, size in held.items()}, residual=residual)
    if min(getattr(shape, name) for name in SIZES) < 1:
        raise Malformed("the shape has a number that is not positive")
    if shape.layers > MAX_LAYERS:
        raise OverLimit(f"there are {figure(shape.layers)} layers, allowed are {MAX_LAYERS}")
    if shape.letters > 1 and shape.layers * (shape.letters - 1).bit_length() > MAX_WORD_BITS:
        raise OverLimit(f"there can be more than 2^{MAX_WORD_BITS} head words of length L")
    return shape


def unit_matrix(n: int) -> Matrix:
    return [[int(i == j) for j in range(n)] for i in range(n)]


def turned(matrix: Iterable[Iterable[int]]) -> Matrix:
    return list(map(list, zip(*matrix, strict=True)))


# ----------------------------------------------------------------------------------------------------
# THE KERNEL

# ----------------------------------------------------------------------------------------------------
# Kernel 1: files and the canonical JSON form (section 2)


def open_regular(path: str, follow: bool) -> BinaryIO:
    """A regular file, opened; never blocks on a pipe."""
    if "\0" in path:
        raise Malformed("there is no such file")
    info = os.stat(path) if follow else os.lstat(path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not stat.S_ISREG(info.st_mode):
        raise Malformed("not a regular file" + ("" if follow else f" (sidecar {os.path.basename(path)})"))
    descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    handle = open(descriptor, "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        handle.close()
        raise Malformed("not a regular file")
    return handle


def read_regular(path: str, cap: int, follow: bool) -> Iterator[bytes]:
    """The bytes of a regular file in pieces; raises OverLimit above `cap` bytes."""
    with open_regular(path, follow) as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > cap:
            raise OverLimit(f"the file has {size} bytes, allowed are {cap}")
        total = 0
        while piece := handle.read(2**20):
            total += len(piece)
            if total > cap:
                raise OverLimit(f"the file has more than {cap} bytes")
            yield piece


def parse_canonical(raw: bytes) -> Any:
    """The JSON value, if `raw` is exactly its canonical form."""

    def number(text: str) -> int:
        if len(text) > 17 or abs(int(text)) >= 2**53:
            raise Malformed("an integer of 2^53 or more that is not written as a string")
        return int(text)

    def reject(text: str) -> Any:
        raise Malformed(f"{quote(text)} is not an integer")

    try:
        # Canonical bytes of ASCII strings are ASCII: only control characters may be escaped.
        value = json.loads(
            raw.decode("ascii"),
            parse_int=number,
            parse_float=reject,
            parse_constant=reject,
            object_pairs_hook=unique,
        )
        again = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        same = again.encode("utf-8") == raw
    except RecursionError:
        raise Malformed("nested too deeply") from None
    except ValueError as error:
        raise Malformed(f"not a certificate in canonical form, which is JSON ({str(error)[:80]})") from None
    if not same:
        raise Malformed("not a certificate in canonical form; write it anew by RFC 8785: sorted keys, no white space")
    return value  # true, false and null can still occur; whoever reads a field demands its type


def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without duplicate keys."""
    if len(result := dict(items)) != len(items):
        raise Malformed("a duplicate key")
    return result


def decimal(digits: str) -> int:
    """int(digits) without CPython's bound on the number of digits."""
    if len(digits) <= 600:
        return int(digits)
    low = len(digits) // 2
    return decimal(digits[:-low]) * 10**low + decimal(digits[-low:])


def integer(value: object, what: str) -> int:
    """An integer in either of its two written forms; bool is not one."""
    if type(value) is int:
        return value
    if isinstance(value, str) and re.fullmatch("-?[1-9][0-9]*", value, re.ASCII):
        if len(digits := value.removeprefix("-")) > MAX_DIGITS:
            raise OverLimit(f"{what} has {len(digits)} digits, allowed are {MAX_DIGITS}")
        number = decimal(digits)
        if number >= 2**53:
            return -number if value[0] == "-" else number
    raise Malformed(f"{what} is not an integer in canonical form: {quote(value)}")


def record(value: object, what: str, *names: str) -> list[Any]:
    """The values of an object that must have exactly the fields `names`."""
    if not isinstance(value, dict):
        raise Malformed(f"{what} is not an object")
    if missing := [name for name in names if name not in value]:
        raise Malformed(f"{what} lacks the field {missing[0]}")
    if unknown := [name for name in value if name not in names]:
        raise Malformed(f"{what} has the unknown field {quote(unknown[0])}")
    return [value[name] for name in names]


def choice(value: object, what: str, *allowed: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise Malformed(f"{what} is {quote(value)}, known: {', '.join(allowed)}")
    return value


def swapped(numbers: array[int]) -> array[int]:
    """Little-endian <-> native order, in place."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# ----------------------------------------------------------------------------------------------------
# Kernel 2: rules that read the fields of a certificate. rule(value, what it is called, the claim so far) is the value read.
# Bounds are numbers, or functions of the claim.

Rule: TypeAlias = "Callable[[Any, str, Claim], Any]"
Bound: TypeAlias = "int | Callable[[Claim], int]"


def given(rule: Rule, *, optional: bool = False, name: str = "") -> Any:
    """A field of the evidence, as its kind's class declares it; `name` where it is called otherwise there."""
    held = {"rule": rule, "optional": optional, "name": name}
    return field(metadata=held, default=None) if optional else field(metadata=held)


def at(bound: Bound, claim: Claim) -> int:
    return bound if isinstance(bound, int) else bound(claim)


def number(least: Bound, end: Bound | None = None) -> Rule:
    """An integer of least ... end - 1."""

    def rule(value: Any, what: str, claim: Claim) -> int:
        found, low = integer(value, what), at(least, claim)
        if found < low or (end is not None and found >= at(end, claim)):
            last = "" if end is None else figure(at(end, claim) - 1)
            raise Malformed(f"{what} is {figure(found)}, outside {figure(low)}..{last}")
        return found

    return rule


def one_of(*names: str) -> Rule:
    return lambda value, what, _: choice(value, what, *names)


def many(item: Rule, count: Bound | None = None, least: int = 0) -> Rule:
    """An array of so many items (of at least so many)."""

    def rule(value: Any, what: str, claim: Claim) -> list[Any]:
        wanted = None if count is None else at(count, claim)
        if not isinstance(value, list) or len(value) < least or wanted not in (None, len(value)):
            asked = f"{'' if wanted is None else figure(wanted) + ' '}entries" + f", at least {least}" * bool(least)
            raise Malformed(f"{what} is not an array of {asked}")
        return [item(entry, f"an entry of {what}", claim) for entry in value]

    return rule


def tuple_of(*items: Rule) -> Rule:
    """An array with one entry for each rule."""

    def rule(value: Any, what: str, claim: Claim) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(items):
            raise Malformed(f"{what} is not an array of {len(items)} entries")
        return [item(entry, what, claim) for item, entry in zip(items, value, strict=True)]

    return rule


def entry(value: Any, what: str, _: Claim) -> int:
    return integer(value, what)


def matrix(rows: Bound, columns: Bound) -> Rule:
    return many(many(entry, columns), rows)


def grid(rows: Bound, columns: Bound) -> Rule:
    """Matrices by layer (one layer only if the host is tied) and head."""
    return many(many(matrix(rows, columns), lambda c: c.shape.heads), lambda c: 1 if c.tied else c.shape.layers)


def pairs(length: Bound) -> Rule:
    """A vector of this length by its nonzero entries: (position, value), positions increasing."""

    def rule(value: Any, what: str, claim: Claim) -> Pairs:
        if not isinstance(value, list) or not 1 <= len(value) <= INLINE:
            raise Malformed(f"{what} is not an array of 1 to {INLINE} entries")
        found, last = [], -1
        for pair in value:
            position, x = tuple_of(number(0, length), entry)(pair, what, claim)
            if position <= last or x == 0:
                raise Malformed(f"the positions of {what} do not increase strictly, or a value is 0")
            found.append((position, x))
            last = position
        return found

    return rule


def digest(value: Any, what: str, _: Claim) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value, re.ASCII):
        raise Malformed(f"{what} is not a digest of 64 lower-case hexadecimal digits")
    return value


def residues(length: Callable[[Claim], int], code: Callable[[Claim], str] = lambda _: U32) -> Rule:
    """An array, inline or in a sidecar, of unsigned numbers of this type; a list where some are none, which is not
    malformed but can't be right."""

    def rule(value: Any, what: str, claim: Claim) -> array[int] | list[int]:
        wanted, kind = length(claim), code(claim)
        size = array(kind).itemsize
        if isinstance(value, list):
            if len(value) != wanted or wanted > INLINE:
                where = " in a sidecar" if wanted > INLINE else ""
                raise Malformed(f"{what} has {len(value)} inline entries, expected are {figure(wanted)}{where}")
            entries = [integer(entry, what) for entry in value]
            return array(kind, entries) if all(0 <= entry < 2 ** (8 * size) for entry in entries) else entries
        dtype, count, name = record(value, what, "dtype", "length", "sidecar")
        choice(dtype, f"dtype of {what}", f"uint{8 * size}")
        if integer(count, f"length of {what}") != wanted or wanted <= INLINE:
            where = " inline" if wanted <= INLINE else ""
            raise Malformed(f"{what} is a sidecar of {quote(count)} entries, expected are {figure(wanted)}{where}")
        path = os.path.join(claim.folder, digest(name, f"the sidecar of {what}", claim) + ".bin")
        try:
            if (found := os.lstat(path).st_size) != size * wanted:
                raise Malformed(f"sidecar {name}.bin has {found} bytes, expected are {figure(size * wanted)}")
            numbers, sha = array(kind), hashlib.sha256()
            for piece in read_regular(path, size * wanted, follow=False):
                sha.update(piece)
                numbers.frombytes(piece[: len(piece) // size * size])
        except OSError as error:
            raise Malformed(f"sidecar {name}.bin: {error.strerror}") from None
        if sha.hexdigest() != name or len(numbers) != wanted:
            raise Malformed(f"sidecar {name}.bin does not have the content that its name states")
        return swapped(numbers)

    return rule


def unsigned(numbers: array[int] | list[int], what: str) -> array[int]:
    if isinstance(numbers, list):
        raise Stop(f"{what} has an entry that is negative or too large")
    return numbers


def prime(value: Any, what: str, claim: Claim) -> int:
    """That it is one is looked at later: another number is not malformed."""
    return int(number(2, 2**31)(value, what, claim))


# ----------------------------------------------------------------------------------------------------
# Kernel 3: one certificate (sections 2-4 and 14), its claim and its kind


@dataclass
class Claim:
    kind: type[Kind]
    shape: Shape
    construction: str = ""
    dtype: str = ""
    law: str = ""
    seed: int = 0
    weights: dict[str, Tensor] | None = None
    weights_digest: str = ""
    tied: bool = False
    notion: str = "matching"
    targets: str = "all untied"
    free: str = ""
    folder: str = ""
    options: Options = field(default_factory=Options)
    values: Grid = field(default_factory=list)  # R_V, where it stands in the claim
    stated: dict[str, Any] = field(default_factory=dict)  # fields of the claim, as they are read
    read: dict[str, Any] = field(default_factory=dict)  # of the evidence, for the rules that read what follows
    digests: dict[str, str] = field(default_factory=dict)  # of parts of the evidence

    @property
    def how(self) -> str:
        """The notion and, for the kinds that differ in them, the targets and what depends on the target."""
        if self.kind.brief and self.targets == TARGETS[0]:
            return f"by {self.notion}"
        notion = "in the functional sense" if self.notion == "functional" else f"by {self.notion}"
        return f"{notion} (targets: {self.targets}{'; ' + self.free + ' free' if self.free else ''})"

    def __str__(self) -> str:
        if self.construction.startswith("every"):
            return f"{self.construction} with m <= {figure(self.shape.m)} at {self.shape.without_m()}"
        drawn = f" ({self.law}, {self.dtype}, seed {self.seed})" if self.construction in RANDOM else ""
        return f"{self.construction}{drawn} at {self.shape}"


KINDS: dict[str, type[Kind]] = {}


@dataclass
class Kind:
    """A kind of certificate, or of its methods: what it can state, the fields of its evidence with the rules that read
    them, and how its check reduces to the kernel. A class with a `name` is a kind; where there are `several` methods,
    those derived from it are."""

    claim: Claim
    name: ClassVar[str] = ""
    method: ClassVar[str] = ""
    verdicts: ClassVar[tuple[str, ...]] = ("universal", "not universal")  # that can be written
    proves: ClassVar[tuple[str, ...]] = ("universal",)  # of these
    notions: ClassVar[tuple[str, ...]] = ("matching",)
    targets: ClassVar[tuple[str, ...]] = TARGETS[:1]
    ranked: ClassVar[bool] = True  # "universal" comes with a rank
    brief: ClassVar[bool] = True  # untied targets go without saying
    stored: ClassVar[bool] = True  # weights from a file can be meant
    methods: ClassVar[list[type[Kind]]] = []
    serves: ClassVar[Any] = staticmethod(lambda claim: True)  # which claims a method is for
    constructions: ClassVar[Any] = staticmethod(lambda claim: (*INDEX_HOSTS, *RANDOM))  # that the kind is for

    def __init_subclass__(cls, *, several: bool = False) -> None:
        if "name" in cls.__dict__:
            KINDS[cls.name], cls.methods = cls, []
        if not several:
            cls.methods.append(cls)

    @classmethod
    def fields_stated(cls, statement: dict[str, Any], verdict: str) -> dict[str, Rule]:
        """Fields of the claim that this kind has beyond those of all."""
        return {}

    @classmethod
    def columns(cls, claim: Claim) -> int:
        """How many columns of R_all, or of the test matrix, are looked at."""
        return claim.shape.columns

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        """Fills in the host."""
        if "weights" in host:
            system, named = record(host, "host", "system", "weights")
            claim.tied = choice(system, "system", "universal", "looped-universal") == "looped-universal"
            claim.weights_digest = digest(named, "weights", claim)
            if not cls.stored:
                raise Malformed(f"{cls.name} is not for weights from a file")
            claim.weights = find_weights(named, claim)
            claim.construction = f"{system} weights {named[:16]}"
            return
        name = choice(host.get("construction"), "construction", *INDEX_HOSTS, *RANDOM)
        claim.construction, claim.tied = name, name == "random-tied"
        if name in RANDOM:
            _, dtype, law, seed = record(host, "host", "construction", "dtype", "law", "seed")
            claim.dtype = choice(dtype, "dtype", "float64", *FORMATS)
            claim.law, claim.seed = choice(law, "law", *LAWS), number(0, 2**64)(seed, "seed", claim)
        else:
            record(host, "host", "construction")
            hosts = RESIDUAL_HOSTS if claim.shape.residual else INDEX_HOSTS
            if name not in hosts:
                raise Malformed(f"{name} is not defined with a residual stream, the shape is {claim.shape}")
            require_least(claim, hosts[name].least(claim.shape))
        if name not in cls.constructions(claim):
            raise Malformed(f"{cls.name} is not for the construction {name}")

    def rank(self) -> tuple[int, str]:
        """Of R_all or the test matrix, and what it is called."""
        return self.columns(self.claim), "M"

    def check(self) -> None:
        """Stop where the evidence does not establish the claim."""
        raise NotImplementedError

    def says(self, verdict: str, facts: dict[str, Any]) -> str:
        return f"{verdict} {self.claim.how}: {self.claim}"


def require_least(claim: Claim, least: int | None) -> None:
    if least is None:
        raise Malformed(f"{claim.construction} is not defined at {claim.shape}")
    if claim.shape.m < least:
        raise Malformed(f"{claim.construction} needs m >= {figure(least)}, m is {figure(claim.shape.m)}")


def require_squares(claim: Claim, *, where: bool = True) -> None:
    if where and claim.shape.d_in != claim.shape.d_out:
        raise Malformed(f"{claim.kind.name} is for d_in = d_out here, the shape is {claim.shape}")


def read_evidence(claim: Claim, evidence: object) -> Kind:
    """The kind with its method, and with all fields read."""
    known = {kind.method: kind for kind in claim.kind.methods if kind.serves(claim)}
    kind, held = claim.kind, evidence if isinstance(evidence, dict) else {}
    if list(known) != [""]:
        known[""] = known[choice(held.get("method"), "the evidence's method", *known)]
    kind = known[""]
    declared = {f.metadata["name"] or f.name: f for f in fields(kind) if f.metadata}
    names = [name for name, f in declared.items() if name in held or not f.metadata["optional"]]
    for name, value in zip(names, record(evidence, "evidence", *names, *["method"] * bool(kind.method)), strict=False):
        claim.read[name] = declared[name].metadata["rule"](value, name, claim)
    return kind(claim, **{declared[name].name: claim.read[name] for name in names})


def check_document(document: object, folder: str, options: Options, facts: dict[str, Any]) -> str:
    """What a valid certificate proves. Fills `facts` as far as it gets."""
    certificate_format, version, kind_name, shape, statement, evidence = record(
        document, "the certificate", "format", "version", "kind", "shape", "claim", "evidence"
    )
    choice(certificate_format, "format", FORMAT)
    if integer(version, "version") != VERSION:
        raise Malformed(f"the certificate is of version {quote(version)}, this is a checker of version {VERSION}")
    facts["kind"] = choice(kind_name, "kind", *KINDS)
    kind = KINDS[facts["kind"]]
    if not isinstance(statement, dict):
        raise Malformed("claim is not an object")
    verdict = choice(statement.get("verdict"), "the claim's verdict", *kind.verdicts)
    notion = choice(statement.get("notion"), "notion", *kind.notions)
    rules: dict[str, Any] = {"targets": one_of(*kind.targets)}  # that do not look at the claim
    rules |= {"free": one_of("E", "E and U")} if notion == "shared attention" else {}
    rules |= {"rank": entry} if kind.ranked and verdict == "universal" else {}
    more = kind.fields_stated(statement, verdict)
    host, _, _, *_ = record(statement, "claim", "host", "notion", "verdict", *rules, *more)
    said = {"verdict": verdict} | {name: rule(statement[name], name, None) for name, rule in rules.items()}
    claim = Claim(
        kind, read_shape(shape), notion=notion, targets=said["targets"], free=said.get("free", ""), stated=said
    )
    claim.folder, claim.options = folder, options
    said |= {name: rule(statement[name], name, claim) for name, rule in more.items()}
    facts |= {"notion": notion, "targets": claim.targets, "verdict": verdict} | (
        {"free": claim.free} if claim.free else {}
    )
    facts["shape"] = {name: stated(value) for name, value in vars(claim.shape).items() if value is not False}
    if not isinstance(host, dict):
        raise Malformed("host is not an object")
    kind.read_host(claim, host)
    facts["construction"] = claim.construction
    if claim.weights is not None:
        facts["weights"] = claim.weights_digest
    found = read_evidence(claim, evidence)
    facts |= claim.digests
    if verdict not in kind.proves:
        raise Stop(f'{kind.name} does not prove "{verdict}"')
    if "rank" in claim.stated:
        rank, name = found.rank()
        if claim.stated["rank"] != rank:
            raise Stop(f"the rank is stated as {figure(claim.stated['rank'])}, {name} is {figure(rank)}")
        facts["rank"] = stated(rank)
    if claim.weights is not None:
        require_finite(claim.weights)
    found.check()
    return found.says(verdict, facts)


# ----------------------------------------------------------------------------------------------------
# Kernel 4: the layered product
#
# S_{L+1} = U and S_l = [R_Q^{l,h}, R_K^{l,h}, R_V^{l,h} S_{l+1} over all heads h] has the columns of R_all for l = 1; with a
# residual stream S_{l+1} itself is a part of S_l, too. Weighted by a vector z, whose part for the words ending in w is meant by
# z(w), this is
#     R_all z = G_0(),   G_L(w) = U z_OV(w),
#     G_{l-1}(w) = sum over h of  R_Q^{l,h} z_Q(w,h) + R_K^{l,h} z_K(w,h) + R_V^{l,h} G_l(w,h),
# with a residual stream also G_l(w,0), head h being letter h + 1. W_all z is the same with W_Q, W_K, W_V W_O and no U.
# The vectors here are c^(L + 1 - l) G_l, c a number such that c times each matrix has integers.

Entry = tuple[int, int, int, int]  # (part, number of the word, column within the word's block, value)
Held: TypeAlias = dict[Any, int]  # a vector by its coordinates
Wanted: TypeAlias = list[tuple[Held, int, int]]  # a vector, to which a column is to be added so many times


def by_layer(s: Shape, entries: Pairs) -> dict[int, list[Entry]]:
    """The entries of z by the layer of their columns; those of the OV columns under L + 1, as part 2."""
    half = s.head_dim * s.readers(s.layers)
    result: dict[int, list[Entry]] = {}
    for position, value in entries:
        if position >= 2 * half:
            word, column = divmod(position - 2 * half, s.d_out)
            result.setdefault(s.layers + 1, []).append((2, word, column, value))
            continue
        part, position = divmod(position, half)
        word, column = divmod(position, s.head_dim)  # the word's number among all, by length
        layer = bisect.bisect(range(s.layers + 1), word, key=s.readers)  # least with word < readers(layer)
        result.setdefault(layer, []).append((part, word - s.readers(layer - 1), column, value))
    return result


def include(vector: Held, more: Held) -> None:
    for i, x in more.items():
        vector[i] = vector.get(i, 0) + x


class IndexVectors:
    """Vectors of a host of zeros and ones."""

    scale, q = 1, 0

    def __init__(self, host: IndexHost) -> None:
        self.host = host

    def read(self, code: int, layer: int, head: int, wanted: Wanted) -> None:
        """Adds multiples of columns to vectors."""
        runs = self.host.outputs() if code == CODE_U else self.host.reads(code, layer, head)
        for vector, column, value in wanted:
            include(vector, {(block, offset + column): value for block, offset, width in runs if column < width})

    def times(self, layer: int, head: int, wanted: list[tuple[Held, Held]]) -> None:
        """Adds R_V times the second vector to the first one."""
        for target, vector in wanted:
            for (block, offset), value in vector.items():
                step = self.host.move(layer, head, block)
                if step is not None and offset < step[2]:
                    include(target, {(step[0], offset + step[1]): value})


class DenseVectors:
    """Vectors of a host of matrices, modulo q if it is given; with p the residues of the host's integers take the place of
    entries, and nothing is reduced."""

    def __init__(self, host: DenseHost | GivenHost, q: int = 0, p: int = 0) -> None:
        self.host, self.s, self.q, self.p = host, host.s, q, p
        self.scale = 1 if p else math.lcm(*(host.units(code).denominator for code in (R_Q, R_K, R_V, CODE_U)))

    def rows(self, code: int, layer: int, head: int, columns: int) -> Iterator[tuple[int, list[int]]]:
        unit, p = int(self.host.units(code) * self.scale), self.p
        for i, row in enumerate(self.host.rows(code, layer, head, columns, p)):
            yield i, [x % p for x in row] if p else [unit * x for x in row]

    def read(self, code: int, layer: int, head: int, wanted: Wanted) -> None:
        for i, row in self.rows(code, layer, head, self.s.d_out if code == CODE_U else self.s.head_dim):
            for vector, column, value in wanted:
                vector[i] = vector.get(i, 0) + row[column] * value

    def times(self, layer: int, head: int, wanted: list[tuple[Held, Held]]) -> None:
        lists = [(target, [vector.get(i, 0) for i in range(self.s.m)]) for target, vector in wanted]
        for i, row in self.rows(R_V, layer, head, self.s.m):
            for target, vector in lists:
                total = target.get(i, 0) + sum(map(mul, row, vector))
                target[i] = total % self.q if self.q else total


def layered(s: Shape, z: Pairs, system: IndexVectors | DenseVectors) -> Held:
    """c^(L + 1) R_all z by its nonzero coordinates. Only words on the way to a nonzero entry of z are visited. The words of
    z_Q and z_K are numbered n H + h, n the number of w among those of its length."""
    layers = by_layer(s, z)

    def read(into: dict[int, Held], code: int, layer: int, found: list[Entry]) -> None:
        up, scale = (1, 1) if code == CODE_U else (s.heads, system.scale ** (s.layers + 1 - layer))
        by_head: dict[int, Wanted] = {}
        for _, word, column, value in found:
            by_head.setdefault(word % up, []).append((into.setdefault(word // up, {}), column, value * scale))
        for head, wanted in by_head.items():
            system.read(code, layer, head, wanted)

    vectors: dict[int, Held] = {}
    read(vectors, CODE_U, 1, layers.get(s.layers + 1, []))
    for layer in range(s.layers, 0, -1):
        shorter: dict[int, Held] = {}
        by_letter: dict[int, list[tuple[Held, Held]]] = {}
        for word, vector in vectors.items():
            parent, letter = divmod(word, s.letters)
            by_letter.setdefault(letter, []).append((shorter.setdefault(parent, {}), vector))
        for letter, wanted in by_letter.items():
            if s.residual and letter == 0:
                for target, vector in wanted:
                    include(target, {i: system.scale * x for i, x in vector.items()})
            else:
                system.times(layer, letter - s.residual, wanted)
        for code in (R_Q, R_K):
            read(shorter, code, layer, [entry for entry in layers.get(layer, []) if entry[0] == code])
        vectors = shorter
    return {i: x for i, x in vectors.get(0, {}).items() if (x % system.q if system.q else x)}


def require_kernel(claim: Claim, z: Pairs) -> None:
    """R_all z = 0, exactly."""
    kind = index_kind(claim)
    system = DenseVectors(dense_host(claim)) if kind is None else IndexVectors(kind(claim.shape))
    if layered(claim.shape, z, system):
        raise Stop("R_all z is not zero")


# ----------------------------------------------------------------------------------------------------
# Kernel 5: the rank modulo a prime
#
# A minor that is nonzero modulo a prime is nonzero, so columns that are independent there are independent. No rank that is too
# small modulo a prime shows anything. Units scale columns of R_all by nonzero constants and leave the rank as it is.


class Packing:
    """Rows modulo p as one integer each, so that a linear combination of rows runs inside the interpreter's
    big integers. A row a_0, a_1, ... (0 <= a_j < p) is packed as sum a_j 2^(8 w j).

    A combination takes `terms` rows with coefficients |c| <= (p-1)/2 (below 2^30: one digit in CPython). Its
    entries have size at most B := terms*(p-1)/2*p. Adding B, a multiple of p, to each makes them lie in
    0..2B, and 2B < 2^(8w): so the slots of the sum are exactly these entries, and one reduction at the end
    is enough."""

    def __init__(self, p: int, terms: int) -> None:
        self.p, self.half = p, (p - 1) // 2
        self.bias = terms * self.half * p
        self.bytes = ((2 * self.bias).bit_length() + 7) // 8

    def balanced(self, numbers: Iterable[int]) -> list[int]:
        p, half = self.p, self.half
        return [(x + half) % p - half for x in numbers]

    def pack(self, row: array[int]) -> int:
        raw, w = swapped(row[:]).tobytes(), self.bytes
        slots = bytearray(len(row) * w)
        for byte in range(min(4, w)):  # an entry is below p, and p < 2^(8w)
            slots[byte::w] = raw[byte::4]
        return int.from_bytes(slots, "little")

    def biases(self, columns: int) -> int:
        return int.from_bytes(self.bias.to_bytes(self.bytes, "little") * columns, "little")

    def unpack(self, packed: int, columns: int) -> array[int]:
        """The entries modulo p."""
        p, w, number = self.p, self.bytes, int.from_bytes
        raw = packed.to_bytes(columns * w, "little")
        return array(U32, [number(raw[j : j + w], "little") % p for j in range(0, columns * w, w)])


def dense_matrix(host: DenseHost | GivenHost, p: int, queries: int | None = None) -> list[array[int]]:
    """The rows of S_1 modulo p; with `queries`, only the first so many of the d columns of every R_Q are used. A tied host's
    matrices are drawn again in every layer, not kept."""
    s = host.s
    packing = Packing(p, s.m)
    rows = [array(U32, [x % p for x in row]) for row in host.rows(CODE_U, 1, 0, s.d_out, p)]
    for layer in range(s.layers, 0, -1):
        columns = len(rows[0])
        packed, biases = [packing.pack(row) for row in rows], packing.biases(columns)
        reads: list[Iterator[list[int]]] = []
        for h in range(s.heads):
            reads.append(row[:queries] for row in host.rows(R_Q, layer, h, s.head_dim, p))
            reads.append(host.rows(R_K, layer, h, s.head_dim, p))
        values = [host.rows(R_V, layer, h, s.m, p) for h in range(s.heads)]
        below, rows = rows, []
        for i in range(s.m):
            row = array(U32, [x % p for x in chain.from_iterable(map(next, reads))])
            if s.residual:
                row.extend(below[i])
            for matrix in values:
                total = sum(map(mul, packing.balanced(next(matrix)), packed), biases)
                row.extend(packing.unpack(total, columns))
            rows.append(row)
    return rows


Pivots: TypeAlias = "list[tuple[int, array[int]]]"  # (column, row): row[column] is 1, and 0 in all others


def clear(row: array[int], heads: list[int], packed: list[int], packing: Packing) -> array[int]:
    """The row minus the combination of the packed pivot rows that makes it zero in their pivot columns `heads`."""
    coefficients = packing.balanced(-row[column] for column in heads)
    start = packing.pack(row) + packing.biases(len(row))
    return packing.unpack(sum(map(mul, coefficients, packed), start), len(row))


def echelon(rows: list[array[int]], packing: Packing) -> Pivots:
    """A basis of the row space in which every row has a pivot column that is zero in all others."""
    if len(rows) == 1:
        row, p = rows[0], packing.p
        column = next((j for j, x in enumerate(row) if x), None)
        if column is None:
            return []
        inverse = pow(row[column], -1, p)
        return [(column, array(U32, [x * inverse % p for x in row]))]
    middle = len(rows) // 2
    upper = echelon(rows[:middle], packing)
    heads, packed = [column for column, _ in upper], [packing.pack(row) for _, row in upper]
    lower = echelon([clear(row, heads, packed, packing) for row in rows[middle:]], packing)
    heads, packed = [column for column, _ in lower], [packing.pack(row) for _, row in lower]
    return [(column, clear(row, heads, packed, packing)) for column, row in upper] + lower


def rank_reaches(rows: list[array[int]], p: int, wanted: int) -> bool:
    """Whether the rank modulo p is at least `wanted`."""
    return len(echelon(rows, Packing(p, len(rows) + 1))) >= wanted  # a row itself is a term with coefficient 1


def is_prime(n: int, bases: Iterable[int] = (2, 3, 5, 7)) -> bool:
    """Miller-Rabin for odd n; the bases 2, 3, 5, 7 decide every n < 3 215 031 751."""
    odd = (n - 1) // ((n - 1) & (1 - n))
    twos = ((n - 1) // odd).bit_length() - 1
    for base in bases:
        x = pow(base, odd, n)
        if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True


def require_prime(p: int) -> None:
    if p % 2 == 0 or not (p in (3, 5, 7) if p < 11 else is_prime(p)):
        raise Stop(f"{p} is not an odd prime")


# ----------------------------------------------------------------------------------------------------
# HOSTS OF ZEROS AND ONES (sections 4.1-4.6, 9): named blocks of coordinates, and where R_V moves them
#
# Words are tuples of letters. Column i of a block of R_V is the unit vector of coordinate i of the block's source, as far as
# both are wide; without a source it is zero.

Block: TypeAlias = tuple[Any, ...]
Run: TypeAlias = tuple[Block, int, int]  # (block, offset, width): columns 0..width-1 are the units of offset.. in block
Columns: TypeAlias = "dict[Any, Run]"  # some runs, each by what it is called
WordTuple: TypeAlias = tuple[int, ...]
Rows: TypeAlias = "dict[Block, list[int]]"  # one row of E by blocks


def all_words(letters: int, length: int) -> list[WordTuple]:
    return list(product_of(range(letters), repeat=length))


def count_tuples(places: int, total: int) -> list[WordTuple]:
    """Tuples of so many integers >= 0 with sum at most `total`, in lexicographic order."""
    found: list[WordTuple] = [()]
    for _ in range(places):
        found = [(*counts, n) for counts in found for n in range(total - sum(counts) + 1)]
    return found


class IndexHost:
    """Blocks by name, in the order in which they are added."""

    def __init__(self, s: Shape) -> None:
        self.s, self.H, self.L, self.d, self.out = s, s.heads, s.layers, s.head_dim, s.d_out
        self.blocks: dict[Block, tuple[int, int]] = {}  # first coordinate, width
        self.end = 0
        for name, width in self.listed():
            if len(self.blocks) == MAX_BLOCKS:
                raise OverLimit(f"the host has more than {MAX_BLOCKS} blocks")
            self.blocks[name] = (self.end, width)
            self.end += width

    @classmethod
    def least(cls, s: Shape) -> int | None:
        """The least embedding dimension; None where the construction is not defined."""
        return s.columns

    def listed(self) -> Iterator[tuple[Block, int]]:
        """Blocks with their widths, in order."""
        raise NotImplementedError

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        """R_Q (part 0) or R_K (part 1)."""
        raise NotImplementedError

    def outputs(self) -> list[Run]:
        """U."""
        raise NotImplementedError

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        """The block that R_V sends to this one; it may be none of the host's."""
        raise NotImplementedError

    def move(self, layer: int, head: int, block: Block) -> Run | None:
        """The columns of R_V that belong to a block, as (block', shift, limit): column i < limit is the unit
        of coordinate i + shift of block', the others are zero. None: all are zero."""
        source = self.source(layer, head, block)
        if source not in self.blocks:
            return None
        return source, 0, min(self.blocks[source][1], self.blocks[block][1])

    def act(self, layer: int, columns: Columns) -> list[Columns]:
        """What the R_V of each head makes of runs; those that become zero are left out."""
        found: list[Columns] = [{} for _ in range(self.H)]
        for head, (name, (block, offset, width)) in product_of(range(self.H), columns.items()):
            target, shift, limit = self.move(layer, head, block) or (block, 0, 0)
            if limit > offset:
                found[head][name] = target, offset + shift, min(width, limit - offset)
        return found

    def first(self, block: Block) -> int:
        return self.blocks[block][0]

    def run(self, *names: Block, width: int) -> list[Run]:
        return [(name, 0, min(width, self.blocks[name][1])) for name in names if name in self.blocks]

    def embed(self, point: Point, x: list[int]) -> Rows:
        """x E at a target, by blocks."""
        raise NotImplementedError


class Tree(IndexHost):
    def listed(self) -> Iterator[tuple[Block, int]]:
        for length in range(self.L + 1):
            for w in all_words(self.s.letters, length):
                yield w, 2 * self.H * self.d if length < self.L else self.out

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        offset = (part * self.H + head) * self.d
        return [(w, offset, self.d) for w in all_words(self.s.letters, layer - 1)]

    def outputs(self) -> list[Run]:
        return [(w, 0, self.out) for w in all_words(self.s.letters, self.L)]


class Sparse(Tree):
    def source(self, layer: int, head: int, block: Block) -> Block | None:
        return block if block[layer - 1 : layer] == (head + self.s.residual,) else None

    def act(self, layer: int, columns: Columns) -> list[Columns]:
        found: list[Columns] = [{} for _ in range(self.s.letters)]
        for name, run in columns.items():
            if len(run[0]) >= layer:
                found[run[0][layer - 1]][name] = run
        return found[self.s.residual :]


class PrintedTreeRow(Tree):
    def source(self, layer: int, head: int, block: Block) -> Block | None:
        return block[:-1] if len(block) == layer and block[-1] == head else None


class PrintedTreeColumn(Tree):
    def source(self, layer: int, head: int, block: Block) -> Block | None:
        return (*block, head) if len(block) == layer - 1 else None


class SparseFront(IndexHost):
    """One block, the whole space."""

    def listed(self) -> Iterator[tuple[Block, int]]:
        self.size = [self.out]  # T_L, ..., T_0; then reversed
        for _ in range(self.L):
            self.size.append(2 * self.H * self.d + self.H * self.size[-1])
        self.size.reverse()
        yield (), self.size[0]

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((), (part * self.H + head) * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Run | None:
        return block, 2 * self.H * self.d + head * self.size[layer], self.size[layer]


class Tries(IndexHost):
    """Blocks (trie, word) of words over heads. A trie is (name, least length, width of its blocks, that of the longest); the
    one called R, of words of length L, is a register."""

    tries: ClassVar[Any]  # of a shape
    output: Block = ("R", None)  # None: the word of L times the letter 0

    @classmethod
    def least(cls, s: Shape) -> int | None:
        longest = s.heads**s.layers
        shorter = [1 + s.words(s.layers - 1) - (1 + s.words(t - 1) if t else 0) for _, t, *_ in cls.tries(s)]
        return sum(w * count + last * longest for count, (*_, w, last) in zip(shorter, cls.tries(s), strict=True))

    def listed(self) -> Iterator[tuple[Block, int]]:
        for trie, least, width, last in self.tries(self.s):
            for length in range(least, self.L + 1):
                yield from (((trie, w), last if length == self.L else width) for w in all_words(self.H, length))

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        trie, w = block
        return trie, (head, *(w[:-1] if trie == "R" else w))

    def outputs(self) -> list[Run]:
        trie, word = self.output
        return self.run((trie, (0,) * self.L if word is None else word), width=self.out)

    def half(self, part: int, block: Block) -> list[Run]:
        return [(block, part * self.d, self.d)]


class Tied(Tries):
    tries = staticmethod(lambda s: [("T", 1, *(2 * s.head_dim,) * 2), ("R", s.layers, *(s.d_out,) * 2)])

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return self.half(part, ("T", (head,)))


class ResidualTied(Tied):
    """`tied` with a residual stream: the trie of queries and keys, and that of outputs."""

    tries = staticmethod(lambda s: [("T", 1, *(2 * s.head_dim,) * 2), ("O", 0, *(s.d_out,) * 2)])
    output = ("O", ())


class SharedQuery(Tries):
    """The trie holds the keys; the register serves the queries too."""

    tries = staticmethod(lambda s: [("K", 1, *(s.d_out,) * 2), ("R", s.layers, *(s.d_out,) * 2)])

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return super().least(s) if s.head_dim >= s.d_out else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return self.run(("K", (head,)), width=self.out) if part else self.outputs()

    def embed(self, point: Point, x: list[int]) -> Rows:
        found, behind = point.outputs("R", x), unit_matrix(self.s.d_in)
        for layer in range(self.L, 0, -1):
            behind = point.product(turned(inverse_modulo(point.values[layer - 1][0], point.q)), behind)
            for head in range(self.H):
                key = point.product(turned(point.form(layer, head)), behind)
                found |= point.read("K", x, layer, head, key)
        return found


class SharedKey(Tries):
    tries = staticmethod(lambda s: [("Q", 1, *(s.d_in,) * 2), ("K", 0, max(s.d_in, s.d_out), s.d_out)])
    output = ("K", ())

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return super().least(s) if s.head_dim >= s.d_in else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return self.run(("K", ()) if part else ("Q", (head,)), width=self.s.d_in)

    def embed(self, point: Point, x: list[int]) -> Rows:
        found = {("K", w): row for length in range(self.L + 1) for w, row in point.rows(x, length)}
        for layer, head in product_of(range(1, self.L + 1), range(self.H)):
            found |= point.read("Q", x, layer, head, point.form(layer, head))
        return found


class PrintedLooped(Tied):
    tries = staticmethod(lambda s: [("T", 0, *(max(2 * s.head_dim, s.d_out),) * 2)])
    output: Block = ("T", ())


class PrintedSingleHead(PrintedLooped):
    output = ("T", None)

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return super().least(s) if s.heads == 1 else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return self.half(part, ("T", (0,) * (layer - 1)))


INDEX_HOSTS: dict[str, type[IndexHost]] = {
    "sparse": Sparse,
    "sparse-front": SparseFront,
    "tied": Tied,
    "shared-key": SharedKey,
    "shared-query": SharedQuery,
    "printed-single-head": PrintedSingleHead,
    "printed-tree-row": PrintedTreeRow,
    "printed-tree-column": PrintedTreeColumn,
    "printed-looped": PrintedLooped,
}
RESIDUAL_HOSTS: dict[str, type[IndexHost]] = {"sparse": Sparse, "tied": ResidualTied}
PERMUTATIONS = ("sparse", "sparse-front", "tied")


def index_kind(claim: Claim) -> type[IndexHost] | None:
    """The class of the claim's construction; None for dense hosts."""
    return (RESIDUAL_HOSTS if claim.shape.residual else INDEX_HOSTS).get(claim.construction)


class Register(Tries):
    tries = staticmethod(lambda s: [("R", s.layers, *(s.d_out,) * 2)])

    def embed(self, point: Point, x: list[int]) -> Rows:
        return point.outputs("R", x)


class TwoSided(IndexHost):
    """Block w belongs to the word w of length k = L/2, rounded up in E, and to its last L - k letters in U. There is no U."""

    def __init__(self, s: Shape) -> None:
        self.k = (s.layers + 1) // 2
        self.front = (0,) * (2 * self.k - s.layers)  # of words of length L - k
        super().__init__(s)

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return int(s.d_out * s.heads ** ((s.layers + 1) // 2))

    def listed(self) -> Iterator[tuple[Block, int]]:
        return ((w, self.out) for w in all_words(self.H, self.k))

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        if layer <= self.k:  # rows (head, s), columns (s, 0)
            return (head, *block[:-1]) if block[-1] == 0 else None
        short = block[: len(self.front)] == self.front
        return (0, *block[:-1]) if short and block[-1] == head else None  # rows (0, s), columns (s, head)

    def embed(self, point: Point, x: list[int]) -> Rows:
        return dict(point.rows(x, self.k))

    def unembed(self, point: Point, y: list[int]) -> Rows:
        found: Rows = {(): y}
        for layer in range(self.L, self.k, -1):
            values = [turned(value) for value in point.values[layer - 1]]
            found = {(h, *w): point.times(v, value) for w, v in found.items() for h, value in enumerate(values)}
        return {(*self.front, *w): v for w, v in found.items()}


class Counting(IndexHost):
    """Coordinate (c_1, ..., c_{H-1}) is a block of width 1."""

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return s.counts if s.d_in == 1 else None

    def listed(self) -> Iterator[tuple[Block, int]]:
        return ((("C", *counts), 1) for counts in count_tuples(self.H - 1, self.L))

    def outputs(self) -> list[Run]:
        return self.run(("C", *(0,) * (self.H - 1)), width=1)

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        return raised(block, head) if head else block

    def embed(self, point: Point, x: list[int]) -> Rows:
        rows: Rows = {}
        for block in self.blocks:
            if block[0] == "C":
                rows[block] = point.power(x, (self.L - sum(block[1:]), *block[1:]))
        return rows


def raised(block: Block, place: int) -> Block:
    return (*block[:place], block[place] + 1, *block[place + 1 :])


class CommutingTrie(Counting):
    """Blocks (g, c_0, ..., c_{H-1}) of the trie, then the coordinates of Counting."""

    @classmethod
    def least(cls, s: Shape) -> int | None:
        trie = 2 * s.head_dim * s.heads * math.comb(s.layers - 1 + s.heads, s.heads)
        return trie + s.counts if s.d_in == 1 else None

    def listed(self) -> Iterator[tuple[Block, int]]:
        for counts in count_tuples(self.H, self.L - 1):
            yield from (((g, *counts), 2 * self.d) for g in range(self.H))
        yield from super().listed()

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((head, *(0,) * self.H), part * self.d, self.d)]

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        return super().source(layer, head, block) if block[0] == "C" else raised(block, 1 + head)

    def embed(self, point: Point, x: list[int]) -> Rows:
        found = super().embed(point, x)
        for block in self.blocks:
            if block[0] != "C":
                w_q, w_k, *_ = point.heads[0][block[0]]
                row = point.power(x, block[1:])
                found[block] = point.times(row, w_q) + point.times(row, w_k)
        return found


def full_groups(heads: int, size: int) -> list[list[int]]:
    return [list(range(i, i + size)) for i in range(0, heads - size + 1, size)]


class SharedQueryGroups(Tries):
    """The key trie K, the query trie Q and the register R."""

    def listed(self) -> Iterator[tuple[Block, int]]:
        s = self.s
        size = -(-s.d_in // s.head_dim)
        first, later = full_groups(s.heads, size), full_groups(s.heads, min(size, s.heads))
        self.groups = [first, *([later] * (s.layers - 1))]
        for part in "KQ":
            for length in range(1, s.layers + 1):
                last = {group[-1] for group in self.groups[length - 1]} if part == "Q" else set()
                yield from (((part, w), s.head_dim) for w in all_words(s.heads, length) if w[-1] not in last)
        yield from ((("R", w), s.d_in) for w in all_words(s.heads, s.layers))

    @classmethod
    def least(cls, s: Shape) -> int | None:
        if s.head_dim > s.d_in:
            return None
        size = -(-s.d_in // s.head_dim)
        saved = s.heads // size + s.heads // min(size, s.heads) * s.words(s.layers - 1)
        return s.d_in * s.heads**s.layers + s.head_dim * (2 * s.words(s.layers) - saved)

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        group = next((group for group in self.groups[-1] if group[-1] == head), None)
        names = [("Q", (head,))] if group is None else [("R", (0,) * self.L), *(("Q", (x,)) for x in group)]
        return self.run(*([("K", (head,))] if part else names), width=self.d)

    def embed(self, point: Point, x: list[int]) -> Rows:
        s = self.s
        found = point.outputs("R", x)
        later = unit_matrix(s.d_in)
        for layer in range(s.layers, 0, -1):
            later = point.product(point.values[layer - 1][0], later)  # Y_l
            u = [row[: s.head_dim] for row in later]
            gauges: dict[int, Matrix] = {}
            for group in self.groups[layer - 1]:
                short = s.head_dim * len(group) < s.d_in
                front = list(chain(*(head[3] for head in point.heads[layer - 2]))) if short else None
                gauges |= dict(zip(group, point.gauges(layer, group, u, front), strict=True))
            queries, keys = point.gauged(layer, gauges)
            held = list(queries)
            for group in self.groups[-1] if layer == 1 and not self.groups[0] else []:
                others = [queries[other] for other in group[:-1]]
                held[group[-1]] = [
                    [(a - b - sum(rest)) % point.q for a, b, *rest in zip(*rows, strict=True)]
                    for rows in zip(queries[group[-1]], u, *others, strict=True)
                ]
            for h in range(s.heads):
                found |= point.read("K", x, layer, h, keys[h])
                found |= {
                    name: row for name, row in point.read("Q", x, layer, h, held[h]).items() if name in self.blocks
                }
        return found


class ResidualKey(IndexHost):
    """Blocks (head, w) for the words w of length l - 1 over 0 ... H, then the outputs ("O", w)."""

    def listed(self) -> Iterator[tuple[Block, int]]:
        for length in range(self.L):
            yield from (((h, w), self.s.d_in) for w in all_words(self.s.letters, length) for h in range(self.H))
        yield from ((("O", w), self.s.d_in) for w in all_words(self.s.letters, self.L))

    @classmethod
    def least(cls, s: Shape) -> int | None:
        return s.d_in * (2 * s.leaves - 1) if s.head_dim >= s.d_in else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return self.outputs() if part else self.run((head, (0,) * (layer - 1)), width=self.d)

    def outputs(self) -> list[Run]:
        return self.run(("O", (0,) * self.L), width=self.s.d_in)

    def source(self, layer: int, head: int, block: Block) -> Block | None:
        kind, w = block
        return (kind, (*w[: layer - 1], head + 1, *w[layer:])) if len(w) >= layer and w[layer - 1] == 0 else None

    def embed(self, point: Point, x: list[int]) -> Rows:
        found = point.outputs("O", x)
        for layer, head in product_of(range(1, self.L + 1), range(self.H)):
            form = point.form(layer, head)
            found |= {(head, w): point.times(row, form) for w, row in point.rows(x, layer - 1)}
        return found


# ----------------------------------------------------------------------------------------------------
# RANDOM HOSTS (section 4.7)

GOLDEN, MIX1, MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FORMATS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}  # significand, least exponent
LAWS = ("uniform", "signs", "binomial")


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * MIX1 & M64
    z = (z ^ (z >> 27)) * MIX2 & M64
    return z ^ (z >> 31)


@lru_cache(maxsize=4)
def lanes(count: int) -> tuple[int, int, int, int, int, int]:
    """Constants for `count` 64-bit numbers side by side in one integer, 128 bits apart."""
    ones = int.from_bytes((b"\1" + bytes(15)) * count, "little")
    steps = array("Q", bytes(16 * count))
    steps[::2] = array("Q", range(count))
    ramp = int.from_bytes(swapped(steps).tobytes(), "little") * GOLDEN  # lane i holds i*G
    return ones, ramp, ones * M64, ones * (2**34 - 1), ones * (2**37 - 1), ones * (2**33 - 1)


def draw(key: int, first: int, count: int) -> bytes:
    """mix(key + G*(i+1)) for i = first, ..., first+count-1, each in the low half of 16 little-endian bytes.

    Every lane is below 2^64 before a product, so the product stays within its 128 bits; the masks reduce
    modulo 2^64 and cut off what a shift brings in from the lane above."""
    ones, ramp, m64, m34, m37, m33 = lanes(count)
    z = ((key + GOLDEN * (first + 1) & M64) * ones + ramp) & m64
    z = (z ^ (z >> 30 & m34)) * MIX1 & m64
    z = (z ^ (z >> 27 & m37)) * MIX2 & m64
    z ^= z >> 31 & m33
    return z.to_bytes(16 * count, "little")


class RandomHost:
    """entry = integer * unit, the integers being those of section 4.7: for float64 the numerators, for other
    dtypes the rounded entries as multiples of the exact products' power of two."""

    def __init__(self, claim: Claim) -> None:
        self.s, self.tied, self.seed = claim.shape, claim.tied, claim.seed
        self.dtype, self.law = claim.dtype, claim.law
        t = 0
        while (root := math.isqrt(4**t // self.s.m)) < 2**20:
            t += 1
        self.scale, self.exponent = {"uniform": (root, -t - 32), "signs": (1, 0), "binomial": (root, -t - 2)}[self.law]
        exact = self.dtype == "float64"
        self.unit = Fraction(2) ** self.exponent * (self.scale if exact else 1)
        self.table = [n if exact else self.rounded(n) for n in range(-32, 33)]  # signs and binomial

    def rounded(self, numerator: int) -> int:
        """numerator * scale * 2^exponent rounded to the dtype, ties to even, as a multiple of 2^exponent."""
        bits, least = FORMATS[self.dtype]
        size = abs(numerator) * self.scale
        drop = max(size.bit_length() - bits, least - self.exponent)
        if drop > 0:
            size = (size + (1 << drop - 1) - 1 + (size >> drop & 1)) >> drop << drop
        return size if numerator >= 0 else -size

    def units(self, code: int) -> Fraction:
        return self.unit

    def rows(self, code: int, layer: int, head: int, columns: int, p: int = 0) -> Iterator[list[int]]:
        """The integers of one matrix, row by row (modulo p in any representation, if p is given); layers from 1."""
        key = mix(self.seed)
        for number in (code, 0 if self.tied or code == CODE_U else layer - 1, head):
            key = mix(key + GOLDEN * (number + 1) & M64)
        table = self.table
        for row in range(self.s.m):
            raw = draw(key, row * columns, columns)
            if self.law == "binomial":
                yield [table[x.bit_count()] for x in swapped(array("Q", raw))[::2]]
                continue
            tops = swapped(array(U32, raw))[1::4]  # x >> 32
            if self.law == "signs":
                yield [table[31] if x >> 31 else table[33] for x in tops]
            elif self.dtype == "float64":
                yield [x + x - 0xFFFFFFFF for x in tops]  # 2x + 1 - 2^32
            else:
                rounded = self.rounded
                yield [rounded(x + x - 0xFFFFFFFF) for x in tops]


# ----------------------------------------------------------------------------------------------------
# HOSTS OF WEIGHTS FROM A FILE (section 4.8)

# type: (array code, bits before the significand's 52, 23, 10 or 7, exponent of the least positive number)
FLOATS = {"F64": ("Q", 52, -1074), "F32": (U32, 23, -149), "F16": ("H", 10, -24), "BF16": ("H", 7, -133)}
INTEGERS = {
    **{"I8": "b", "I16": "h", "I32": U32.lower(), "I64": "q"},
    **{"U8": "B", "U16": "H", "U32": U32, "U64": "Q"},
}
TENSORS = {R_Q: "R_Q", R_K: "R_K", R_V: "R_V", CODE_U: "U"}


@dataclass(frozen=True)
class Tensor:
    dtype: str
    sizes: tuple[int, ...]
    data: bytes = b""

    @property
    def code(self) -> str:
        return INTEGERS[self.dtype] if self.dtype in INTEGERS else FLOATS[self.dtype][0]


def read_header(handle: BinaryIO) -> tuple[int, dict[str, Tensor]]:
    """Where the data of a safetensors file start, and its tensors in the order of their data, which is not read; Malformed
    if it is another file."""
    size = os.fstat(handle.fileno()).st_size
    length = int.from_bytes(handle.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER):
        raise Malformed("not a safetensors file")
    try:
        header = json.loads(handle.read(length).decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise Malformed("not a safetensors file (its header is no JSON)") from None
    if not isinstance(header, dict):
        raise Malformed("not a safetensors file (its header is no object)")
    header.pop("__metadata__", None)
    entries, end = [], 0
    for name, value in header.items():
        dtype, sizes, offsets = record(value, f"tensor {quote(name)}", "dtype", "shape", "data_offsets")
        for numbers, most in ((sizes, 8), (offsets, 2)):
            whole = isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
            if not whole or len(numbers) > most:
                raise Malformed("a tensor has no proper shape or offsets")
        entries.append((offsets, name, Tensor(choice(dtype, "type of a tensor", *FLOATS, *INTEGERS), tuple(sizes))))
    for offsets, name, tensor in sorted(entries, key=itemgetter(0)):
        stop = end + math.prod(tensor.sizes) * array(tensor.code).itemsize
        if offsets != [end, stop]:
            raise Malformed(f"tensor {quote(name)} does not take the place of its shape")
        end = stop
    if 8 + length + end != size:
        raise Malformed("the file does not end with its tensors")
    return 8 + length, {name: tensor for _, name, tensor in sorted(entries, key=itemgetter(0))}


def read_weights(path: str, claim: Claim) -> tuple[str, dict[str, Tensor]]:
    """The digest and the tensors of a host of the claim's sizes; Malformed, without reading data, if it holds others."""
    s, sha = claim.shape, hashlib.sha256()
    lead = (s.heads,) if claim.tied else (s.layers, s.heads)
    with open_regular(path, follow=True) as handle:
        start, tensors = read_header(handle)
        expected = {"R_Q": (*lead, s.m, s.head_dim), "R_K": (*lead, s.m, s.head_dim), "U": (s.m, s.d_out)}
        if "R_Vv" in tensors:
            inner = (tensors["R_Vv"].sizes or (0,))[-1]
            expected |= {"R_Vv": (*lead, s.m, inner), "R_Vo": (*lead, inner, s.m)}
        else:
            expected |= {"R_V": (*lead, s.m, s.m)}
        if {name: tensor.sizes for name, tensor in tensors.items()} != expected:
            raise Malformed("the file holds other tensors")
        handle.seek(start)
        for name, tensor in tensors.items():
            size = math.prod(tensor.sizes) * array(tensor.code).itemsize
            tensors[name] = replace(tensor, data=handle.read(size))
            if len(tensors[name].data) != size:
                raise Malformed("a file of weights ended while it was read")
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name} {tensor.dtype} {','.join(map(str, tensor.sizes))}\n".encode())
        sha.update(tensor.data)
    sha.update(b"residual true\n" * s.residual)
    return sha.hexdigest(), tensors


def find_weights(wanted: str, claim: Claim) -> dict[str, Tensor]:
    """The tensors with this digest: in the files given, among the certificate's neighbours, in the folders given. What other
    digest a file had before is remembered; one that is used has been hashed now."""
    folders = [place for place in claim.options.weights if os.path.isdir(place)]
    paths = [place for place in claim.options.weights if place not in folders]
    for place in [claim.folder or ".", *folders]:
        with suppress(OSError):
            names = sorted(name for name in os.listdir(place) if name.endswith(".safetensors"))
            paths += [os.path.join(place, name) for name in names]
    for path in dict.fromkeys(paths):
        key = (path, claim.shape.residual)
        if claim.options.digests.get(key, wanted) == wanted:
            with suppress(Malformed, OSError):
                claim.options.digests[key], tensors = read_weights(path, claim)
                if claim.options.digests[key] == wanted:
                    return tensors
    raise Malformed(
        f"no weights of this shape with the digest {wanted[:16]}... beside the certificate or under --weights"
    )


def require_finite(tensors: dict[str, Tensor]) -> None:
    """The largest exponent is that of infinities and NaN. It is in the last two bytes of a number; the last comes first."""
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS:
            mask = {"F64": 0x7FF0, "F32": 0x7F80, "F16": 0x7C00, "BF16": 0x7F80}[tensor.dtype]
            size = array(tensor.code).itemsize
            last = tensor.data[size - 1 :: size]
            if any(byte in last for byte in range(256) if byte & mask >> 8 == mask >> 8):
                tops = swapped(array("H", tensor.data))[size // 2 - 1 :: size // 2]
                if any(top & mask == mask for top in set(tops)):
                    raise Stop(f"{name} has an entry that is not finite")


class WeightsHost:
    """Entries of a file as integers: a float is multiplied by the power of two that makes every number of its
    type an integer (section 4.8)."""

    def __init__(self, claim: Claim) -> None:
        assert claim.weights is not None
        self.s, self.tensors, self.tied = claim.shape, claim.weights, claim.tied
        self.inner = self.tensors["R_Vv"].sizes[-1] if "R_Vv" in self.tensors else None

    def units(self, code: int) -> Fraction:
        names = [TENSORS[code]] if code != R_V or self.inner is None else ["R_Vv", "R_Vo"]
        types = [self.tensors[name].dtype for name in names]
        return math.prod((Fraction(2) ** FLOATS[t][2] for t in types if t in FLOATS), start=Fraction(1))

    def rows(self, code: int, layer: int, head: int, columns: int, p: int = 0) -> Iterator[list[int]]:
        """The integers of one matrix, row by row (modulo p in any representation, if p is given); layers from 1."""
        if code != R_V or self.inner is None:
            yield from self.stored(TENSORS[code], layer, head, self.s.m, columns, p)
            return
        second = list(zip(*self.stored("R_Vo", layer, head, self.inner, columns, p), strict=True))
        for row in self.stored("R_Vv", layer, head, self.s.m, self.inner, p):
            yield [sum(map(mul, row, column)) for column in second] if second else [0] * columns

    def stored(self, name: str, layer: int, head: int, height: int, width: int, p: int) -> Iterator[list[int]]:
        tensor = self.tensors[name]
        number = 0 if name == "U" else head if self.tied else (layer - 1) * self.s.heads + head
        size = array(tensor.code).itemsize * width
        for at in (row * size for row in range(number * height, (number + 1) * height)):
            row = swapped(array(tensor.code, tensor.data[at : at + size]))
            if tensor.dtype not in FLOATS:
                yield row.tolist()
                continue
            bits, (slope, offset) = FLOATS[tensor.dtype][1], significands(tensor.dtype, p)
            low = 2**bits - 1
            yield [slope[x >> bits] * (x & low) + offset[x >> bits] for x in row]


@lru_cache(maxsize=8)
def significands(dtype: str, p: int) -> tuple[list[int], list[int]]:
    """For each value of sign and exponent: an entry's integer is slope * (its significand bits) + offset."""
    code, bits, _ = FLOATS[dtype]
    exponents = 2 ** (8 * array(code).itemsize - 1 - bits)
    # exponent fields 0 (subnormal) and 1 share a power of two; the last field is that of infinities and NaN
    slope = [pow(2, max(k - 1, 0), p or None) for k in range(exponents - 1)] + [0]
    offset = [0, *(x << bits for x in slope[1:])]
    return slope + [-x for x in slope], offset + [-x for x in offset]


DenseHost: TypeAlias = "RandomHost | WeightsHost"


def dense_host(claim: Claim) -> DenseHost:
    if claim.shape.m > MAX_ROWS:
        raise OverLimit(f"m is {figure(claim.shape.m)}, allowed are {MAX_ROWS} for drawn and stored weights")
    return RandomHost(claim) if claim.weights is None else WeightsHost(claim)


@dataclass(frozen=True)
class GivenHost:
    """Matrices R_Q, R_K and R_V by layer (one only if it is tied) and head, and U the identity."""

    s: Shape
    heads: list[list[tuple[Matrix, Matrix, Matrix]]]

    def rows(self, code: int, layer: int, head: int, columns: int, p: int = 0) -> Iterator[list[int]]:
        yield from unit_matrix(self.s.m) if code == CODE_U else self.heads[(layer - 1) % len(self.heads)][head][code]

    def units(self, code: int) -> Fraction:
        return Fraction(1)


# ----------------------------------------------------------------------------------------------------
# KINDS ABOUT RANKS (sections 5-8, 11)


def pull_back(host: IndexHost, readers: list[list[Run]], depth: int, stream: bool) -> Iterator[list[tuple[int, int]]]:
    """R_w x for every word w of length `depth` in lexicographic order and, within it, every x of `readers`, no two of whose
    runs are in the same block; with `stream` words over the letters 0 ... H.

    R_w = R_V^{1,h_1} ... R_V^{depth,h_depth} acts on columns from its last factor on, so each round prepends
    a letter to all words at once, and the words share the work on their common endings."""
    held = [{block: (offset, width) for block, offset, width in runs} for runs in readers]
    words = [{block: (block, 0, host.blocks[block][1]) for block in set().union(*held)}]
    for layer in range(depth, 0, -1):
        longer = zip(*(host.act(layer, columns) for columns in words), strict=True)
        words = list(chain(words if stream else [], *longer))  # letter 0 leaves all as it is
    for columns in words:
        reached = {block: (host.first(to) + at, width) for block, (to, at, width) in columns.items()}
        for read in held:
            both = [(*reached[block], *read[block]) for block in reached.keys() & read.keys()]
            yield [(row + offset, min(width, end - offset)) for row, end, offset, width in both if end > offset]


def traced(host: IndexHost, lengths: Iterable[int], stream: bool) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """The columns of R_all, one reader and word after the other: the sum of which runs they are, and how many columns.
    Outputs are those of words of these lengths; with `stream` words have the letter 0, too."""
    for part, layer in product_of((0, 1), range(1, host.L + 1)):
        reads = [host.reads(part, layer, head) for head in range(host.H)]
        yield from ((runs, host.d) for runs in pull_back(host, reads, layer - 1, stream))
    for length in lengths:
        yield from ((runs, host.out) for runs in pull_back(host, [host.outputs()], length, stream))


def require_first_rows(host: IndexHost, blocks: Iterator[tuple[list[tuple[int, int]], int]], columns: int) -> None:
    """The first rows in which the columns are not zero are all different: then the columns are independent. Every run starts
    at the columns' block, so that the run that begins first has the first row of each of them."""
    seen, column = bytearray(host.end), 0
    for runs, width in blocks:
        start, limit = min(runs, default=(0, 0))
        if limit < width:
            raise Stop(f"one of the {width} columns from {column} on is zero")
        if start + width > host.end or seen.find(1, start, start + width) >= 0:
            raise Stop(f"the columns from {column} on begin in a row where another one begins")
        seen[start : start + width] = b"\1" * width
        column += width
    if column != columns:
        raise Stop(f"R_all has {column} columns instead of {columns}")


def require_inverse(host: DenseHost, p: int, chosen: array[int], inverse: array[int], numpy: bool) -> None:
    """B (R_all x)[chosen] = x modulo p for random vectors x, drawn here after the certificate is fixed. A wrong B
    passes with probability at most 1/p for each, 2^-100 in all."""
    columns, k = len(chosen), next(k for k in range(1, 101) if p**k >= 2**100)
    x = [uniform(p, columns) for _ in range(k)]
    if numpy:
        good = numpy_module().witness_holds(host, p, chosen, inverse, x)
    else:
        s, packing = host.s, Packing(p, columns)
        # all x in one vector of integers >= 0, a slot for each; no sum is longer than a slot
        slot = (p * (p * (s.heads * (s.m + 2 * s.head_dim) + s.d_out + 1)) ** (s.layers + 1)).bit_length()
        z = [sum(entry << slot * n for n, entry in enumerate(entries)) for entries in zip(*x, strict=True)]
        product = layered(s, [*enumerate(z)], DenseVectors(host, p=p))
        slots = [[product.get(row, 0) >> slot * n & (1 << slot) - 1 for n in range(k)] for row in chosen]
        packed = [packing.pack(array(U32, [entry % p for entry in entries])) for entries in slots]
        biases = packing.biases(k)
        good = all(
            packing.unpack(sum(map(mul, packing.balanced(inverse[i * columns : (i + 1) * columns]), packed), biases), k)
            == array(U32, (probe[i] for probe in x))
            for i in range(columns)
        )
    if not good:
        raise Stop(f"the witness is not the inverse modulo {p} of the chosen rows of R_all")


def uniform(p: int, count: int) -> array[int]:
    """So many independent numbers, uniform in 0 ... p-1: bits from the operating system, those of p and above thrown away."""
    mask, found = 2 ** p.bit_length() - 1, array(U32)
    while len(found) < count:
        found.extend(x for y in array(U32, secrets.token_bytes(8 * count)) if (x := y & mask) < p)
    return found[:count]


@dataclass
class Permutation(Kind):
    """Every column of R_all is traced, block by block, through the definitions of R_V, R_Q, R_K and U. If they begin in
    different rows, then rank R_all = M. For tied hosts and tied targets with a residual stream columns of R_all and W_all
    repeat alike; those looked at are the words without the letter 0, of outputs of all lengths up to L."""

    name = "rank-permutation"
    targets = TARGETS[:2]
    stored = False
    constructions = staticmethod(lambda claim: tuple(RESIDUAL_HOSTS) if claim.shape.residual else PERMUTATIONS)

    @classmethod
    def reduced(cls, claim: Claim) -> bool:
        return claim.shape.residual and claim.construction == "tied"

    @classmethod
    def columns(cls, claim: Claim) -> int:
        return claim.shape.reduced_columns if cls.reduced(claim) else claim.shape.columns

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        super().read_host(claim, host)
        reduced, one = cls.reduced(claim), claim.shape.layers == 1
        if claim.targets != ("all tied" if reduced else "all untied") and not (reduced and one):
            raise Malformed(f"{claim.construction} at {claim.shape} is not for {claim.targets} targets")

    def rank(self) -> tuple[int, str]:
        return self.columns(self.claim), "2dS + d_out (1 + S)" if self.reduced(self.claim) else "M"

    def check(self) -> None:
        s, kind, reduced = self.claim.shape, index_kind(self.claim), self.reduced(self.claim)
        assert kind is not None
        lengths = range(0 if reduced else s.layers, s.layers + 1)
        host = kind(s)
        require_first_rows(host, traced(host, lengths, stream=s.residual and not reduced), self.columns(self.claim))


def require_rank_of_host(kind: Kind, p: int, columns: int, name: str) -> None:
    require_prime(p)
    if kind.claim.shape.m < columns:
        raise Stop(f"the rank is at most m = {figure(kind.claim.shape.m)} and {name} = {figure(columns)}")


@dataclass
class Modular(Kind, several=True):
    """If the columns of R_all, an integer matrix, are independent modulo a prime, its rank over the rationals is M."""

    name = "rank-modular"
    prime: int = given(prime)

    constructions = staticmethod(lambda claim: RANDOM)


def host_rank_reaches(claim: Claim, p: int, wanted: int, queries: int | None = None) -> bool:
    if claim.options.numpy:
        return bool(numpy_module().columns_independent(dense_host(claim), p, wanted, queries))
    return rank_reaches(dense_matrix(dense_host(claim), p, queries), p, wanted)


@dataclass
class Recompute(Modular):
    """Kernel: layered product (all columns), rank witness (elimination: this form has no witness)."""

    method = "recompute"
    matrix: ClassVar[str] = "R_all"
    queries: ClassVar[Any] = staticmethod(lambda s: s.head_dim)  # columns of every R_Q that are looked at

    def check(self) -> None:
        claim, p, (columns, name), queries = self.claim, self.prime, self.rank(), self.queries(self.claim.shape)
        require_rank_of_host(self, p, columns, name)
        if not host_rank_reaches(claim, p, columns, queries):
            raise Stop(f"the rank of {self.matrix} modulo {p} is below {name} = {columns}")


@dataclass
class Witness(Modular):
    """Kernel: layered product (R_all x), rank witness (an inverse of M rows)."""

    method = "witness"
    rows: Any = given(residues(lambda claim: claim.shape.columns))
    inverse: Any = given(
        residues(
            lambda claim: claim.shape.columns**2,
            lambda c: "B" if c.read["prime"] < 2**8 else "H" if c.read["prime"] < 2**16 else U32,
        )
    )

    def __post_init__(self) -> None:
        if any(later <= earlier for earlier, later in pairwise(self.rows)):
            raise Malformed("rows do not increase strictly")

    def check(self) -> None:
        s, p = self.claim.shape, self.prime
        require_rank_of_host(self, p, s.columns, "M")
        rows, inverse = unsigned(self.rows, "rows"), unsigned(self.inverse, "inverse")
        if rows[-1] >= s.m:
            raise Stop(f"row {rows[-1]} is not below m = {s.m}")
        rest = inverse.tobytes().translate(None, bytes(range(p))) if inverse.typecode == "B" else inverse
        if max(rest, default=0) >= p:
            raise Stop(f"the inverse has an entry {max(rest)}, not below p = {p}")
        require_inverse(dense_host(self.claim), p, rows, inverse, self.claim.options.numpy)


@dataclass
class LinearTest(Recompute):
    """As `recompute`, with the first d_in of the d columns of every R_w R_Q. If the columns are independent, some E gives
    keys (M_w 0) and queries that begin with M_w A: then all logits are those of the target."""

    name = "linear-test"
    method = "recompute"
    notions = ("attention-matching",)
    brief = False
    matrix = "the test matrix"
    queries = staticmethod(lambda s: s.d_in)

    @classmethod
    def columns(cls, claim: Claim) -> int:
        return claim.shape.columns - (claim.shape.head_dim - claim.shape.d_in) * claim.shape.readers(claim.shape.layers)

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        if not claim.shape.d_in == claim.shape.d_out <= claim.shape.head_dim:
            raise Malformed(f"the linear test is for d_in = d_out <= d, the shape is {claim.shape}")
        super().read_host(claim, host)

    def rank(self) -> tuple[int, str]:
        return self.columns(self.claim), "the number of its columns"


TARGET = ("W_Q", "W_K", "W_V", "W_O")


def target_sizes(s: Shape) -> dict[str, tuple[int, int]]:
    """Of the matrices of a target of width d_in."""
    inwards = (s.d_in, s.head_dim)
    return {"W_Q": inwards, "W_K": inwards, "W_V": inwards, "W_O": inwards[::-1]}


def target_host(s: Shape, tensors: dict[tuple[str, int, int], Matrix], tied: bool, q: int = 0) -> GivenHost:
    """A target of width d_in = d_out as a host, whose R_all is W_all; with q its values are reduced modulo q."""

    def head(layer: int, h: int) -> tuple[Matrix, Matrix, Matrix]:
        w_q, w_k, w_v, w_o = (tensors[name, layer, h] for name in TARGET)
        values = [[sum(map(mul, row, column)) for column in zip(*w_o, strict=True)] for row in w_v]
        return w_q, w_k, [[x % q for x in row] for row in values] if q else values

    layers = [0] if tied else range(1, s.layers + 1)
    return GivenHost(replace(s, m=s.d_in), [[head(layer, h) for h in range(s.heads)] for layer in layers])


def require_target(s: Shape) -> None:
    if 4 * s.heads * s.layers * s.d_in * s.head_dim > MAX_NUMBERS:
        raise OverLimit(f"a target at {s} has more than {MAX_NUMBERS} numbers")


def sparse_target(value: Any, what: str, claim: Claim) -> GivenHost:
    """A target by its nonzero entries [tensor, l, h, i, j, v], in increasing order, as a host; modulo the prime if one has
    been read."""
    s, tied, p, sizes = claim.shape, claim.targets in TIED, claim.read.get("prime", 0), target_sizes(claim.shape)
    entries: dict[tuple[Any, ...], int] = {}
    last: tuple[Any, ...] = ()
    for tensor, layer, head, i, j, v in many(tuple_of(one_of(*sorted(sizes)), *[entry] * 5))(value, what, claim):
        place, (height, width) = (tensor, layer, head, i, j), sizes[tensor]
        if not (0 <= head < s.heads and 0 <= i < height and 0 <= j < width):
            raise Malformed(f"an entry of {tensor} lies outside")
        if layer != 0 if tied else not 1 <= layer <= s.layers:
            raise Malformed(f"an entry of {tensor} is at layer {figure(layer)}")
        if place <= last or v == 0:
            raise Malformed("the entries of a target do not increase strictly, or one is 0")
        entries[place] = v % p if p else v
        last = place
    require_target(s)
    heads = product_of(TARGET, [0] if tied else range(1, s.layers + 1), range(s.heads))
    tensors = {at: [[0] * sizes[at[0]][1] for _ in range(sizes[at[0]][0])] for at in heads}
    for (*at, i, j), v in entries.items():
        tensors[*at][i][j] = v
    return target_host(s, tensors, tied)


@dataclass
class Deficient(Kind, several=True):
    """Some target is missed."""

    name = "rank-deficient"
    proves = ("not universal",)
    targets = TARGETS[:2]

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        require_squares(claim, where=claim.targets == "all tied")
        super().read_host(claim, host)


@dataclass
class TooFewRows(Deficient):
    """m < M bounds the rank."""

    method = "dimension"

    serves = staticmethod(lambda claim: claim.targets == "all untied")

    def check(self) -> None:
        m, columns = self.claim.shape.m, self.claim.shape.columns
        if m >= columns:
            raise Stop(f"m = {figure(m)} is not below M = {figure(columns)}")


@dataclass
class KernelVector(Deficient):
    """R_all z = 0 in exact integers, with z_c != 0. Then E R_all z = 0 for every E, whereas W_all z != 0 for the target
    that isolates column c. With a residual stream no target isolates a column, but the one routed along its word shows no
    other entry of z if none of them has a word with fewer letters (section 7). Kernel: layered product."""

    method = "kernel-vector"
    column: int = given(number(0, lambda c: c.shape.columns))
    z: Pairs = given(pairs(lambda c: c.shape.columns))

    serves = staticmethod(lambda claim: claim.targets == "all untied")

    def check(self) -> None:
        s = self.claim.shape
        if self.column not in dict(self.z):
            raise Stop(f"z is zero at column {figure(self.column)}")
        if s.residual and route(s, self.column) > min(route(s, position) for position, _ in self.z):
            raise Stop(f"column {figure(self.column)} has not the fewest letters among those of z")
        require_kernel(self.claim, self.z)


def route(s: Shape, column: int) -> tuple[bool, int]:
    """Whether the column is read by a head, and how many letters of its word, but for that head, are not 0."""
    ((_, ((part, word, _, _),)),) = by_layer(s, [(column, 1)]).items()
    word, letters = word if part == 2 else word // s.heads, 0
    while word:
        word, letter = divmod(word, s.letters)
        letters += letter > 0
    return part < 2, letters


@dataclass
class TiedTargetMiss(Deficient):
    """R_all z = 0 and W_all z != 0 for a tied target that is given, in exact integers. Kernel: layered product."""

    method = "tied-target"
    row: int = given(number(0, lambda c: c.shape.d_in))
    target: GivenHost = given(sparse_target)
    z: Pairs = given(pairs(lambda c: c.shape.columns))

    serves = staticmethod(lambda claim: claim.targets == "all tied")

    def check(self) -> None:
        if self.row not in layered(self.claim.shape, self.z, DenseVectors(self.target)):
            raise Stop(f"W_all z of this target is zero in row {figure(self.row)}")
        require_kernel(self.claim, self.z)


@dataclass
class TiedKernel(Kind):
    """The rank of R_all modulo a prime is at least M - k, and k independent vectors z are in its kernel (exact integers):
    they span it. W_all z = 0 for all tied targets is an identity of integer polynomials in their entries. Then every row of
    every W_all is a combination of rows of R_all. Kernel: layered product, elimination, identity at a random point."""

    name = "tied-kernel"
    targets = TARGETS[1:2]
    brief = False
    basis: list[Pairs] = given(many(pairs(lambda c: c.shape.columns), least=1))
    prime: int = given(prime)

    constructions = staticmethod(lambda claim: RANDOM)

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        require_squares(claim)
        super().read_host(claim, host)

    def rank(self) -> tuple[int, str]:
        return self.claim.shape.columns - len(self.basis), f"M - {len(self.basis)}"

    def check(self) -> None:
        claim, s, p, (rank, name) = self.claim, self.claim.shape, self.prime, self.rank()
        require_rank_of_host(self, p, rank, name)
        support = {
            position: at for at, position in enumerate(sorted({position for z in self.basis for position, _ in z}))
        }
        rows = [array(U32, bytes(4 * len(support))) for _ in self.basis]
        for row, z in zip(rows, self.basis, strict=True):
            for position, value in z:
                row[support[position]] = value % p
        if not rank_reaches(rows, p, len(rows)):
            raise Stop(f"the {len(self.basis)} vectors of the basis are not independent modulo {p}")
        q = random_prime()
        sizes = target_sizes(s)
        drawn = {(name, 0, h): random_matrix(q, *sizes[name]) for name in TARGET for h in range(s.heads)}
        target = DenseVectors(target_host(s, drawn, tied=True, q=q), q)
        if any(layered(s, z, target) for z in self.basis):
            raise Stop("W_all z is not zero for every tied target")
        for z in self.basis:  # they are in the kernel, and nothing else is
            require_kernel(claim, z)
        if not host_rank_reaches(claim, p, rank):
            raise Stop(f"the rank of R_all modulo {p} is below {name} = {rank}")


# ----------------------------------------------------------------------------------------------------
# IDENTITIES AT A RANDOM POINT (section 9)
#
# Equations that are to hold for all words hold, as polynomials, if they do when the letters of each layer are added up with
# indeterminate weights, whose products are different monomials for different words. A polynomial of degree D that is not zero
# modulo q vanishes at a random point with probability at most D/q, and modulo few primes of 192 bits it is zero if it is not
# zero over the integers. Prime and point are drawn here, after the certificate is fixed. Where inverses occur, denominators
# are thought multiplied out: an equation then holds for all targets that have them.


def random_prime() -> int:
    """Of 192 bits: a wrong equation passes below 2^-100 (section 9). Miller-Rabin with 64 random bases: composite with
    probability below 2^-120."""
    while True:
        n = secrets.randbits(192) | 1 << 191 | 1
        if is_prime(n, (2 + secrets.randbelow(n - 3) for _ in range(64))):
            return n


def random_matrix(q: int, rows: int, columns: int) -> Matrix:
    return [[secrets.randbelow(q) for _ in range(columns)] for _ in range(rows)]


def inverse_modulo(matrix: Matrix, q: int) -> Matrix:
    """A drawn matrix is singular with a probability below its size / q."""
    rows = [[*row, *(int(i == j) for j in range(len(matrix)))] for i, row in enumerate(matrix)]
    for column in range(len(rows)):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if pivot is None:
            raise Stop("a matrix that E inverts is singular at a random target, so at every target")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = pow(rows[column][column], -1, q)
        rows[column] = [x * scale % q for x in rows[column]]
        for i, row in enumerate(rows):
            if i != column and (x := row[column]):
                rows[i] = [(a - x * b) % q for a, b in zip(row, rows[column], strict=True)]
    return [row[len(rows) :] for row in rows]


class Point:
    """A target drawn at random modulo a prime q: W_Q, W_K, W_V, W_O by layer and head, M = W_V W_O, and rows x M_w."""

    def __init__(self, claim: Claim, q: int) -> None:
        s = self.s = claim.shape
        self.q, tied, sizes = q, claim.targets in TIED, target_sizes(s).values()
        drawn = [
            [[random_matrix(q, *size) for size in sizes] for _ in range(s.heads)]
            for _ in range(1 if tied else s.layers)
        ]
        self.heads = drawn * s.layers if tied else drawn
        values = [[self.product(head[2], head[3]) for head in row] for row in drawn]
        self.values = values * s.layers if tied else values
        self.known: dict[tuple[int, ...], list[list[tuple[WordTuple, list[int]]]]] = {}

    def times(self, x: list[int], matrix: Matrix) -> list[int]:
        return [sum(map(mul, x, column)) % self.q for column in zip(*matrix, strict=True)]

    def product(self, x: Matrix, y: Matrix) -> Matrix:
        columns = list(zip(*y, strict=True))
        return [[sum(map(mul, row, column)) % self.q for column in columns] for row in x]

    def form(self, layer: int, head: int) -> Matrix:
        w_q, w_k, *_ = self.heads[layer - 1][head]
        return self.product(w_q, turned(w_k))

    def rows(self, x: list[int], length: int) -> list[tuple[WordTuple, list[int]]]:
        """(w, x M_w) for the words of this length in order; with a residual stream over its letters."""
        held = self.known.setdefault(tuple(x), [[((), x)]])
        while len(held) <= length:
            values, longer = self.values[len(held) - 1], []
            for w, row in held[-1]:
                moved = [row] * self.s.residual + [self.times(row, value) for value in values]
                longer += [((*w, letter), found) for letter, found in enumerate(moved)]
            held.append(longer)
        return held[length]

    def outputs(self, name: str, x: list[int]) -> Rows:
        return {(name, w): row for w, row in self.rows(x, self.s.layers)}

    def read(self, name: str, x: list[int], layer: int, head: int, matrix: Matrix) -> Rows:
        """x M_w times a matrix in the blocks (w, head) of a layer."""
        return {(name, (*w, head)): self.times(row, matrix) for w, row in self.rows(x, layer - 1)}

    def power(self, x: list[int], counts: Iterable[int]) -> list[int]:
        """x times the product of the M_h, as often as counted, of a tied target with d_in = 1."""
        factors = (pow(value[0][0], count, self.q) for value, count in zip(self.values[0], counts, strict=True))
        return [reduce(lambda a, b: a * b % self.q, factors, x[0])]

    def weighted(self, x: list[int], weights: Matrix) -> list[int]:
        """x times the sum of all M_w with the weights of their words."""
        for numbers, values in zip(weights, self.values, strict=False):
            moved = [x] * self.s.residual + [self.times(x, value) for value in values]
            x = [sum(map(mul, numbers, entries)) % self.q for entries in zip(*moved, strict=True)]
        return x

    def gauges(self, layer: int, group: list[int], u: Matrix, front: Matrix | None = None) -> list[Matrix]:
        """G of each head of a group whose last one reads u and the others' blocks: q (-G, ..., -G, G) = u, q the W_Q
        side by side, multiplied by `front` first where there is one."""
        q = [list(chain(*rows)) for rows in zip(*(self.heads[layer - 1][h][0] for h in group), strict=True)]
        if front is not None:
            q, u = self.product(front, q), self.product(front, u)
        square = inverse_modulo(self.product(q, turned(q)), self.q)
        stacked, d = self.product(turned(q), self.product(square, u)), self.s.head_dim
        parts = [stacked[k * d : (k + 1) * d] for k in range(len(group))]
        return [*([[-x % self.q for x in row] for row in part] for part in parts[:-1]), parts[-1]]

    def gauged(self, layer: int, gauges: dict[int, Matrix]) -> tuple[list[Matrix], list[Matrix]]:
        """W_Q G and W_K G^-T of every head."""
        queries, keys = [], []
        for h, (w_q, w_k, *_) in enumerate(self.heads[layer - 1]):
            if h in gauges:
                inverse = inverse_modulo(gauges[h], self.q)
                w_q, w_k = self.product(w_q, gauges[h]), self.product(w_k, turned(inverse))
            queries.append(w_q)
            keys.append(w_k)
        return queries, keys


Runs = dict[Run, int]  # the sum of what the runs stand for, with coefficients


def weighted_words(host: IndexHost, runs: Runs, weights: Matrix, q: int) -> Runs:
    """The sum of all R_w, with the weights of their words, times what the runs stand for."""
    for layer in range(len(weights), 0, -1):
        moved: Runs = {}
        columns = {run: run for run in runs}
        for letter, reached in enumerate([columns] * host.s.residual + host.act(layer, columns)):
            for run, target in reached.items():
                moved[target] = (moved.get(target, 0) + weights[layer - 1][letter] * runs[run]) % q
        runs = moved
    return runs


def require_identity(claim: Claim, host: IndexHost) -> None:
    """What the notion demands of queries, keys and outputs, for all words, multiplied by random vectors from the left.

    Section 9 bounds the degrees of the equations by 64 (d_in + 1) (d + 1) (L + 1). All equations share one point, and a false
    one has to pass there. No number of a target is too many for MAX_NUMBERS, so it does with probability below 2^-100."""
    s, q = claim.shape, random_prime()
    point = Point(claim, q)
    (x,), (y,), (right,) = random_matrix(q, 1, s.d_in), random_matrix(q, 1, s.d_in), random_matrix(q, 1, s.d_out)
    first, second = random_matrix(q, s.layers, s.letters), random_matrix(q, s.layers, s.letters)
    E, F = host.embed(point, x), host.embed(point, y)

    def read(rows: Rows, runs: Runs, weights: Matrix) -> list[int]:
        """A row of E times the sum of all R_w with weights times what the runs stand for."""
        result = [0] * max((width for *_, width in runs), default=0)
        for (block, offset, limit), value in weighted_words(host, runs, weights, q).items():
            for j, entry in enumerate(rows.get(block, [])[offset : offset + limit]):
                result[j] = (result[j] + value * entry) % q
        return result

    for layer in range(1, s.layers + 1) if claim.notion != "shared attention" else ():
        m_x, m_y = point.weighted(x, first[: layer - 1]), point.weighted(y, second[: layer - 1])
        for head in range(s.heads):
            query = read(E, dict.fromkeys(host.reads(0, layer, head), 1), first[: layer - 1])
            key = read(F, dict.fromkeys(host.reads(1, layer, head), 1), second[: layer - 1])
            w_q, w_k, *_ = point.heads[layer - 1][head]
            if claim.notion == "matching":
                good = query == point.times(m_x, w_q) and key == point.times(m_y, w_k)
            else:
                demanded = sum(map(mul, point.times(m_x, w_q), point.times(m_y, w_k)))
                good = (sum(map(mul, query, key)) - demanded) % q == 0
            if not good:
                raise Stop(f"the queries and keys of layer {layer}, head {head} are not what the target demands")
    wanted = point.weighted(x, first)
    if isinstance(host, TwoSided):
        wanted = [sum(map(mul, wanted, right)) % q]
        runs = {(w, j, 1): value for w, row in host.unembed(point, right).items() for j, value in enumerate(row)}
    else:
        runs = dict.fromkeys(host.outputs(), 1)
    if read(E, runs, first) != wanted:
        raise Stop("the outputs are not what the target demands")


# What certificates of the kind `identity` can say of a construction: host, notion, targets, what is free besides E
IDENTITIES: dict[str, tuple[type[IndexHost], str, tuple[str, ...], str]] = {
    "shared-key": (SharedKey, "attention-matching", ("all untied",), ""),
    "shared-query": (SharedQuery, "attention-matching", (INVERTIBLE,), ""),
    "commuting-trie": (CommutingTrie, "matching", ("all tied",), ""),
    "register": (Register, "shared attention", ("all untied",), "E"),
    "two-sided": (TwoSided, "shared attention", ("all untied",), "E and U"),
    "counting": (Counting, "shared attention", ("all tied",), "E"),
    "shared-query-groups": (SharedQueryGroups, "attention-matching", GENERIC, ""),
    "residual-key": (ResidualKey, "attention-matching", TARGETS[:2], ""),
}
# shared-query at H = d_in = 1: where an M^{l,0} has no inverse the target is zero, and E = 0 serves it
FUNCTIONAL = (SharedQuery, "functional", ("all untied",), "")


@dataclass
class Identities(Kind):
    """E (and U) are rational functions of the target. E R_w U = M_w, and what the notion demands of queries and keys, hold for
    all words w and all targets whose inverses are used. Kernel: identity at a random point."""

    name = "identity"
    notions = ("attention-matching", "matching", "shared attention", "functional")
    targets = (*TARGETS, *GENERIC)
    ranked = brief = False

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        shape = claim.shape
        name = claim.construction = choice(host.get("construction"), "construction", *IDENTITIES)
        record(host, "host", "construction")
        functional = name == "shared-query" and claim.notion == "functional" and shape.heads == shape.d_in == 1
        kind, notion, targets, free = FUNCTIONAL if functional else IDENTITIES[name]
        if (claim.notion, claim.free) != (notion, free) or claim.targets not in targets:
            raise Malformed(f"no identity says that {name} is universal {claim.how}")
        require_squares(claim)
        if shape.residual != issubclass(kind, ResidualKey):
            raise Malformed(f"{name} is not defined {'with' if shape.residual else 'without'} a residual stream")
        require_least(claim, kind.least(shape))

    def check(self) -> None:
        require_target(self.claim.shape)
        require_identity(self.claim, IDENTITIES[self.claim.construction][0](self.claim.shape))


# ----------------------------------------------------------------------------------------------------
# HOSTS WITH GATED MLPS (section 16)
#
# A product (a, b, c, sign) adds sign y_a y_b to coordinate c: two hidden units, since g(z) - g(-z) = z. Constants are equal in
# all rows: attention writes to none, and every product has one. So other coordinates are sums over words w of A_w X times
# matrices. At a single row the A_w are numbers, whose monomials tell the words apart, and rows with sum 1 span all.

INPUTS = "rows that sum to 1"
READ = ("q", "k", "v", "o", "out")  # what is no constant
Product: TypeAlias = tuple[int, int, int, int]


class GatedHost:
    """`gated`, or if it is tied `gated-tied`: coordinates by name and slot."""

    def __init__(self, s: Shape, tied: bool) -> None:
        self.s, self.tied, self.slots, w = s, tied, (2 if tied else s.layers) - 1, s.heads * s.head_dim
        once = {"1": 1, "q": w, "k": w, "v": w, "o": w, "out": s.d_out, "last": w * s.d_out}
        widths = {(name, 1): width for name, width in once.items()}
        for slot in range(1, self.slots + 1):
            widths |= dict.fromkeys(product_of("QKV" if slot == 1 else "Q", [slot]), w * w)
        for slot in range(1, self.slots):
            widths |= dict.fromkeys(product_of("YZ", [slot]), (w - s.head_dim) * w) | {("p", slot): w - 1}
        ends = list(accumulate(widths.values(), initial=0))
        self.at = {place: range(*ends) for place, ends in zip(widths, pairwise(ends), strict=True)}
        self.end = ends[-1]

    @staticmethod
    def least(s: Shape, tied: bool) -> int:
        w, slots = s.heads * s.head_dim, (2 if tied else s.layers) - 1
        constants = 3 * w**2 + (slots - 1) * (3 * w**2 - 2 * w * s.head_dim + w - 1) if slots else 0
        return constants + w * s.d_out + 4 * w + s.d_out + 1

    def products(self) -> list[Product]:
        """What the MLP of every block adds."""
        at, d, w, found = self.at, self.s.head_dim, len(self.at["o", 1]), list[Product]()
        powers = [*at["1", 1], *at.get(("p", 1), ())]
        for matrix, to in (("last", "out"), ("Q", "q"), ("K", "k"), ("V", "v")):
            places = product_of(at["o", 1], at[to, 1])
            found += [(i, entry, j, 1) for entry, (i, j) in zip(at.get((matrix, 1), ()), places, strict=False)]
        for matrix, below in ("KY", "VZ") if self.slots > 1 else ():  # P (I; below)
            for c, (i, j) in zip(at[matrix, 1], product_of(range(w), repeat=2), strict=True):
                found += [(powers[k - i], powers[0], c, 1) for k in range(i, d) if k == j % d]
                found += [(powers[k - i], at[below, 1][(k - d) * w + j], c, 1) for k in range(max(i, d), w)]
        moved = [] if self.tied else [place for place in at if place[0] in ("Q", "Y", "Z", "p")]
        for name, slot in moved:
            later = at.get((name, slot + 1), ())
            found += [(entry, powers[0], c, 1) for entry, c in zip(later, at[name, slot], strict=False)]
        cleared = [*((name, 1) for name in (*READ, *"KV" * (self.slots > 1))), *moved]
        return found + [(entry, powers[0], entry, -1) for place in cleared for entry in at[place]]


def require_tables(host: GatedHost) -> None:
    """Queries, keys and outputs of the host are those that tables demand, drawn modulo a prime."""
    s, at, q, products = host.s, host.at, random_prime(), host.products()
    d, w, y = s.head_dim, s.heads * s.head_dim, [0] * host.end  # y: one row of the host's stream
    fixed = {c for (name, _), entries in at.items() if name not in READ for c in entries}
    if not all((a in fixed) + (b in fixed) > (c in fixed) for a, b, c, _ in products):
        raise Stop("a product has no constant, or changes one")

    def times(x: list[int], matrix: Matrix) -> list[int]:
        return [sum(map(mul, x, column)) % q for column in zip(*matrix, strict=True)]

    def held(name: str, slot: int, matrix: Matrix) -> Matrix:
        for c, x in zip(at[name, slot], chain.from_iterable(matrix), strict=True):
            y[c] = x
        return matrix

    tables, top = (
        [[random_matrix(q, s.d_in, w) for _ in "QKV"]],
        [[int(k == j % d) for j in range(w)] for k in range(d)],
    )
    for slot in range(1, host.slots + 1):
        table = [held(name, slot, random_matrix(q, w, w)) for name in ("QKV" if slot == 1 else "Q")]
        if slot > 1:
            powers = [1, *held("p", slot - 1, random_matrix(q, 1, w - 1))[0]]
            for name in "YZ":
                below = held(name, slot - 1, random_matrix(q, w - d, w))
                table.append([times([0] * i + powers[: w - i], top + below) for i in range(w)])
        tables.append(table)
    held("1", 1, [[1]])
    last, (x,) = held("last", 1, random_matrix(q, w, s.d_out)), random_matrix(q, 1, s.d_in)
    x[-1] = (1 - sum(x[:-1])) % q
    for name, matrix in zip("qkv", tables[0], strict=True):
        held(name, 1, [times(x, matrix)])
    for layer in range(1, s.layers + 1):
        query, key, value = (times(x, matrix) for matrix in tables[min(layer, len(tables)) - 1])
        if [query, key] != [[y[c] for c in at[name, 1]] for name in "qk"]:
            raise Stop(f"the queries or keys of layer {layer} are not what the target demands")
        attention = [a for (a,) in random_matrix(q, s.heads, 1) for _ in range(d)]
        x = [a * v % q for a, v in zip(attention, value, strict=True)]
        for a, o, v in zip(attention, at["o", 1], at["v", 1], strict=True):
            y[o] += a * y[v]
        before = y[:]
        for left, right, to, sign in products:
            y[to] += sign * before[left] * before[right]
        y = [entry % q for entry in y]
    if [y[c] for c in at["out", 1]] != times(x, last):
        raise Stop("the outputs are not what the target demands")


@dataclass
class GatedIdentity(Kind):
    """E is a polynomial in tables that every target has (section 16). Kernel: identity at a random point."""

    name = "gated-identity"
    notions = ("attention-matching", "functional")
    targets = TARGETS[:2]
    ranked = brief = False

    @classmethod
    def fields_stated(cls, statement: dict[str, Any], verdict: str) -> dict[str, Rule]:
        return {"inputs": one_of(INPUTS)}

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        name = claim.construction = choice(host.get("construction"), "construction", "gated", "gated-tied")
        record(host, "host", "construction")
        claim.tied = name == "gated-tied"
        if (claim.notion, claim.targets) != (cls.notions[claim.tied], TARGETS[claim.tied]) or claim.shape.residual:
            raise Malformed(f"{name} at {claim.shape} is not universal {claim.how}")
        require_least(claim, GatedHost.least(claim.shape, claim.tied))

    def check(self) -> None:
        s = self.claim.shape
        require_target(s)
        size = GatedHost.least(s, self.claim.tied) + 2 * (s.heads * s.head_dim) ** 3
        if max(256, s.layers) * size > MAX_NUMBERS:
            raise OverLimit(
                f"a block has up to {figure(size)} products, allowed are {MAX_NUMBERS // max(256, s.layers)}"
            )
        require_tables(GatedHost(s, self.claim.tied))

    def says(self, verdict: str, facts: dict[str, Any]) -> str:
        facts["inputs"] = INPUTS
        return f"{verdict} {self.claim.how} on inputs with {INPUTS}: {self.claim}"


# ----------------------------------------------------------------------------------------------------
# LOWER BOUNDS (section 10)

EVERY = ("host", "tied host")
GIVEN = ("shared-attention-universal", "looped-shared-attention-universal")
Inequality: TypeAlias = tuple[int, int, str, str]  # a, b, what they are, and where it is proved that a < b refutes


def dimension_bound(claim: Claim) -> Inequality:
    """No host is universal if a < b. The tables of section 10.1."""
    s, words = claim.shape, claim.shape.heads**claim.shape.layers
    shared, b = "shared-attention.md, section", s.d_in
    # one layer: queries and keys of all heads can be independent, or two heads of dimension one at d_in = 2
    no_room = s.head_dim * (s.heads + 1) <= b or (s.heads, s.head_dim, b) == (2, 1, 2)
    if s.residual:
        return residual_bound(claim)
    match claim.notion, claim.targets, claim.free:
        case "matching", "all untied", _:
            return s.m, s.columns, "m and M", "decision-theorem.md, section 3"
        case "matching", "all tied", _ if min(b, s.head_dim) >= s.layers:
            return s.m, s.columns, "m and M", "decision-theorem.md, section 5"
        case "shared attention", "all untied", "E":
            return s.m, s.d_out * words, "m and d_out H^L", f"{shared} 2"
        case "shared attention", "all untied", "E and U" if (s.heads, s.layers, b, s.d_out) == (3, 1, 1, 1):
            return s.m, 3, "m and 3", "frontier.md, section 4"
        case "shared attention", "all untied", "E and U":
            return s.m**2, words, "m^2 and H^L", f"{shared} 3"
        case "shared attention", "all tied", "E":
            return s.m, s.counts, "m and C(L+H-1, H-1)", f"{shared} 7"
        case "shared attention", "all tied", "E and U":
            return s.m**2, s.counts, "m^2 and C(L+H-1, H-1)", f"{shared} 7"
        case "functional", "all untied", _ if s.layers == 1 and b == s.d_out and no_room:
            return s.m, s.columns, "m and M", "sharper-frontier.md, Theorem D"
        case "functional", "all untied", _ if s.layers == 1 and s.head_dim <= b == s.d_out:
            needed = s.heads * (b**2 + 2 * s.head_dim * b - s.head_dim**2)
            return b * s.m, needed, "d_in m and H (d_in^2 + 2 d d_in - d^2)", "fibre-dimension.md, section 2"
        case "attention-matching", "all untied", _ if s.heads == s.layers == b == s.d_out == 1:
            return s.m, 3, "m and 3", "fibre-dimension.md, section 3"
        case "attention-matching", "all untied", _ if 2 * s.head_dim <= b == s.d_out and (s.heads > 1 or s.layers == 1):
            return s.m, s.columns, "m and M", "all-targets.md, Theorem N"
    if claim.targets in GENERIC and b == s.d_out:
        rows = list(generic_bounds(claim, words))
        if rows:
            return violated(rows)
    raise Malformed(f"the format has no bound {claim.how} at {s}")


def violated(rows: list[Inequality]) -> Inequality:
    """The first that m violates, if there is one."""
    return next((row for row in rows if row[0] < row[1]), rows[0])


def residual_bound(claim: Claim) -> Inequality:
    """The third table of section 10.1."""
    s = claim.shape
    square = s.d_in == s.d_out
    if claim.notion == "matching" and (claim.targets == "all untied" or (claim.targets == "generic untied" and square)):
        if claim.construction == "every tied host" and s.layers > 1:  # the words (0, ..., 0, h) and (h, 0, ..., 0)
            return 0, 1, "whatever m, equal and different columns", "residual.md, section 3"
        return s.m, s.columns, "m and M", "residual.md, section 1"
    if claim.notion == "matching" and claim.targets in TIED and square and min(s.d_in, s.head_dim) >= s.layers:
        return s.m, s.reduced_columns, "m and 2dS + d_out (1 + S)", "residual.md, section 4"
    if claim.notion in ("attention-matching", "functional") and claim.targets == GENERIC[0] and square:
        b, narrow, words = s.d_in, min(s.head_dim, s.d_in), s.leaves
        forms = 2 * narrow * b - narrow**2
        have, front = b * (s.m - b * words), "d_in (m - d_in (H+1)^L) and "
        rows = [(have, s.layers * s.heads * forms, front + "L H (2 d' d_in - d'^2)", "residual-frontier.md, section 4")]
        if s.head_dim <= b:
            rest = b - s.heads * s.head_dim
            x, y = (s.letters, 1) if rest <= s.head_dim else (b, rest)
            room = sum(x**t * y ** (s.layers - 1 - t) for t in range(s.layers))
            what = front + "H (2 d d_in - d^2) (1 + q + ... + q^(L-1))"
            rows.append((have * y ** (s.layers - 1), s.heads * forms * room, what, "sharper-frontier.md, Theorem C"))
        elif s.layers > 1:
            rows += wide_bounds(s, words, s.letters)
        return violated(rows)
    raise Malformed(f"the format has no bound {claim.how} at {s}")


def wide_bounds(s: Shape, words: int, letters: int) -> list[Inequality]:
    """d > d_in, L >= 2; `letters` behind each other make the words."""
    b, H, L, t = s.d_in, s.heads, s.layers, (s.head_dim - s.d_in) // 2
    found = [min(letters, b**2), *(min(letters ** (q // 2), b) * min(letters ** (-(-q // 2)), b) for q in range(2, L))]
    needed = b**2 * (words + H + H * sum(found)) - H * t * (s.head_dim - t) * sum(found)
    what = "d_in m and d_in^2 (words + H (K_0 + ... + K_{L-1})) - H t (d - t) (K_1 + ... + K_{L-1})"
    return [
        (s.m, b * (words + L * H) + 1, "m and d_in (words + L H) + 1", "wide-heads.md, Theorem A"),
        (b * s.m, needed, what, "wide-heads.md, Theorem C"),
    ]


def generic_bounds(claim: Claim, words: int) -> Iterator[Inequality]:
    """The second table of section 10.1; d_in = d_out."""
    s, m, b, H, L = claim.shape, claim.shape.m, claim.shape.d_in, claim.shape.heads, claim.shape.layers
    narrow = min(s.head_dim, b)
    paths = narrow >= L  # tied targets can follow every path
    untied = claim.targets == GENERIC[0]
    shared, frontier, three = (
        "shared-attention.md, section",
        "frontier.md, section",
        "three-dimensions-do-not-suffice.md",
    )
    decision = f"decision-theorem.md, section {3 if untied else 5}"
    match claim.notion, claim.free:
        case "matching", _:
            if untied or paths:
                yield m, s.columns, "m and M", decision
            elif b == 1:
                spanned = 2 * s.head_dim * H * math.comb(L - 1 + H, H) + s.counts
                yield m, spanned, "m and 2dH C(L-1+H, H) + C(L+H-1, H-1)", f"{frontier} 1"
        case "attention-matching" | "functional", _ if untied:
            later = min(H * narrow, b)
            forms = 2 * narrow * b - narrow**2 + (L - 1) * (2 * narrow * later - narrow**2)
            what = "d_in (m - d_in H^L) and the dimension of the logit forms"
            yield b * (m - b * words), H * forms, what, "attention-matching-bound.md, section 1"
            if s.head_dim <= b:
                S = s.words(L)
                linear = b**2 * words + 2 * narrow * b * S - narrow**2 * H - narrow**2 * b * (S - H) // later
                what = "d_in m and d_in^2 H^L + 2 d d_in S - d^2 (H + d_in (S - H) / r)"
                yield b * m, linear, what, "sharper-frontier.md, Theorem A"
            elif H > 1 and L > 1:
                yield from wide_bounds(s, words, H)
        case "attention-matching" | "functional", _:
            if paths or b == 1:
                have, forms = b * (m - (b * words if paths else s.counts)), H * (2 * narrow * b - narrow**2)
                yield have, forms, "d_in (m - outputs) and H (2 d' d_in - d'^2)", f"{frontier} 2"
            if claim.notion == "functional":
                yield m, b, "m and d_in", f"{frontier} 3"
                yield m, s.counts, "m and C(L+H-1, H-1)", f"{shared} 7"
                if L > 1:
                    count = (H - 1) * narrow * (b - 1) + 2 * b * narrow - narrow**2 - b
                    yield b * m, count, "d_in m and the dimension of the outputs along separate paths", f"{frontier} 3"
        case "shared attention", "E":
            if untied or paths:
                yield m, b * words, "m and d_in H^L", f"{shared} 2" if untied else decision
            else:
                yield m, s.counts, "m and C(L+H-1, H-1)", f"{shared} 7"
        case "shared attention", "E and U":
            yield m, narrow, "m and the rank of one product", f"{frontier} 4"
            if untied or paths:
                yield m**2, words, "m^2 and H^L", f"{shared} 3" if untied else f"{frontier} 4"
            else:
                yield m**2, s.counts, "m^2 and C(L+H-1, H-1)", f"{shared} 7"
            if untied and ((b == 1 and H > 1 and L % 2) or (b > 1 and max(H, s.head_dim) > 1)):
                yield m**2, words + 1, "m^2 and H^L + 1", f"{three}, Theorem 2" if b == 1 else f"{shared} 3"
            if untied and s.head_dim >= b:
                what = "2 d_in m - 1 and d_in^2 (L(H-1) + 1)"
                yield 2 * b * m - 1, b**2 * (L * (H - 1) + 1), what, f"{shared} 4"
            if untied and (H, L, b) == (2, 3, 1):
                yield m, 4, "m and 4", f"{three}, Theorem 1"
            if not untied and claim.construction == "every tied host" and (H, b) == (2, 1) and L in (2, 3):
                yield m, 3, "m and 3", f"{three}, Theorem 3"


@dataclass
class LowerBound(Kind, several=True):
    """No host of this m, or not the given one, is universal."""

    name = "lower-bound"
    proves = ("not universal",)
    notions = ("matching", "shared attention", "functional", "attention-matching")
    targets = (*TARGETS[:2], *GENERIC)
    ranked = brief = False

    @classmethod
    def read_host(cls, claim: Claim, host: dict[str, Any]) -> None:
        if "every" in host:
            (every,) = record(host, "host", "every")
            claim.construction = "every " + choice(every, "every", *EVERY)
            return
        values, system = record(host, "host", "R_V", "system")
        claim.tied = choice(system, "system", *GIVEN) == GIVEN[1]
        claim.construction = f"the given {system} host"
        if claim.shape.residual:
            raise Malformed(
                f"{cls.name} of a given host is not defined with a residual stream, the shape is {claim.shape}"
            )
        if (claim.notion, claim.targets, claim.free) != ("shared attention", "all untied", "E and U"):
            raise Malformed("a given host is for shared attention, all untied targets, E and U free")
        claim.values = grid(claim.shape.m, claim.shape.m)(values, "R_V", claim)


@dataclass
class Arithmetic(LowerBound):
    """An inequality that is proved in docs/proofs, and that m violates. No primitive of the kernel."""

    method = "dimension"

    serves = staticmethod(lambda claim: not claim.values)

    def __post_init__(self) -> None:
        self.bound = dimension_bound(self.claim)

    def check(self) -> None:
        have, needed, names, _ = self.bound
        if have >= needed:
            raise Stop(f"{names} are {figure(have)} and {figure(needed)}: not below the bound")

    def says(self, verdict: str, facts: dict[str, Any]) -> str:
        page, turned = self.bound[3], self.claim.notion == "functional" and self.claim.targets in GENERIC
        by = ", by docs/proofs/functional-is-attention-matching.md" * (
            turned and not page.startswith("frontier.md, section 3")
        )
        facts[CITED] = f"docs/proofs/{page}{by}"
        return super().says(verdict, facts)


@dataclass
class Span(LowerBound):
    """More than m independent rows of W_all, which E R_all would span with m rows. Kernel: elimination."""

    method = "span"
    prime: int = given(prime)
    given_targets: list[GivenHost] = given(many(sparse_target, least=1), name="targets")

    serves = staticmethod(lambda claim: not claim.values)

    def __post_init__(self) -> None:
        s, shared = self.claim.shape, self.claim.notion == "shared attention" and self.claim.targets in GENERIC
        if not (self.claim.notion == "matching" or (shared and not s.residual)) or s.d_in != s.d_out:
            raise Malformed(f"the method span is not for claims {self.claim.how} at {s}")

    def check(self) -> None:
        claim, s, p, targets = self.claim, self.claim.shape, self.prime, self.given_targets
        both, words = claim.free == "E and U", s.leaves
        # rows for each target, columns, and the rank that m allows
        height, columns, most = s.d_in, s.columns, s.m
        if claim.notion == "shared attention":
            height, columns, most = (s.d_in**2, words, s.m**2) if both else (s.d_in, s.d_in * words, s.m)
        count, allowed = height * len(targets), "m^2" if both else "m"
        require_prime(p)
        if min(count, columns) <= most:
            raise Stop(
                f"{figure(count)} rows of {figure(columns)} columns have no rank above {allowed} = {figure(most)}"
            )
        rows = []
        for target in targets:
            if claim.notion != "matching":  # outputs only
                without: list[list[Any]] = [
                    [([[]] * s.d_in, [[]] * s.d_in, values) for *_, values in layer] for layer in target.heads
                ]
                target = replace(target, heads=without)
            found = dense_matrix(target, p)
            rows += [row[j :: s.d_in] for row in found for j in range(s.d_in)] if both else found
        if not rank_reaches(rows, p, most + 1):
            raise Stop(f"the rank of the targets' rows modulo {p} is not above {allowed} = {most}")


@dataclass
class NullVector(LowerBound):
    """sum y_w R_w = 0 with y_s != 0, while sum y_w M_w = y_s for the target that is 1 along s. Kernel: layered product."""

    method = "null-vector"
    word: int = given(number(0, lambda c: c.shape.heads**c.shape.layers))
    y: Pairs = given(pairs(lambda c: c.shape.heads**c.shape.layers))

    serves = staticmethod(lambda claim: bool(claim.values))

    def check(self) -> None:
        s = self.claim.shape
        if self.word not in dict(self.y):
            raise Stop(f"y is zero at the word {figure(self.word)}")
        wide = replace(s, d_out=s.m)
        system = DenseVectors(GivenHost(wide, [[([], [], values) for values in layer] for layer in self.claim.values]))
        first = wide.columns - wide.leaves * s.m  # of the OV columns
        for j in range(s.m):
            if layered(wide, [(first + word * s.m + j, value) for word, value in self.y], system):
                raise Stop("the sum of y_w R_w is not zero")


# ----------------------------------------------------------------------------------------------------
# ENCLOSURES (section 12): arithmetic with errors. Numbers are integers times a unit. `bits` is the precision: results are
# brought to the unit 2^-bits, rounded down.

Bounds = tuple[int, int]  # a number lies between these, in units of 2^-bits
PARTS = ("scaled", "causal", "window", "alibi", "rope")


@dataclass
class Ball:
    """A matrix: every entry divided by `unit` is within `error` of the integer in `rows`."""

    rows: Matrix
    unit: Fraction = Fraction(1)
    error: int = 0

    def at(self, bits: int) -> Ball:
        """In units of 2^-bits."""
        up, down = self.unit.numerator << bits, self.unit.denominator
        rows = [[x * up // down for x in row] for row in self.rows]
        return Ball(rows, Fraction(1, 1 << bits), -(-self.error * up // down) + 1)

    def top(self) -> int:
        return max(abs(x) for row in self.rows for x in row)

    def transposed(self) -> Ball:
        return Ball([list(column) for column in zip(*self.rows, strict=True)], self.unit, self.error)

    def times(self, other: Ball, bits: int) -> Ball:
        """|sum (a+s)(b+t) - sum ab| <= sum |a||t| + |b||s| + |s||t|."""
        columns = other.transposed().rows
        rows = [[sum(map(mul, row, column)) for column in columns] for row in self.rows]
        error = len(other.rows) * self.error * other.error
        if self.error:
            error += self.error * max(sum(map(abs, column)) for column in columns)
        if other.error:
            error += other.error * max(sum(map(abs, row)) for row in self.rows)
        return Ball(rows, self.unit * other.unit, error).at(bits)

    def plus(self, other: Ball) -> Ball:
        """Both have one unit."""
        rows = [[*map(add, x, y)] for x, y in zip(self.rows, other.rows, strict=True)]
        return Ball(rows, self.unit, self.error + other.error)

    def selected(self, sources: list[list[int]]) -> Ball:
        """Each column is the sum of the columns named."""
        rows = [[sum(row[i] for i in places) for places in sources] for row in self.rows]
        return Ball(rows, self.unit, self.error * max(map(len, sources)))


def taylor(x: int, bits: int) -> list[int]:
    """x^k / k! for k = 0, 1, ... and 0 <= x <= 1/2, rounded down until 0. A term is short by less than 2: what the one
    before it is short by is at least halved, and 1 is lost. So all the terms left out are together less than 2, too."""
    terms = [1 << bits]
    while terms[-1]:
        terms.append(terms[-1] * x // (len(terms) << bits))
    return terms


def halved(x: int, bits: int) -> tuple[int, int, list[int], int]:
    """(halvings s, a higher precision, the Taylor terms of |x| / 2^s, the error of any sum of them with signs)."""
    halvings = (abs(x) >> bits).bit_length() + math.isqrt(bits)
    work = bits + 2 * halvings + 16
    terms = taylor(abs(x) << (work - bits - halvings), work)
    return halvings, work, terms, 2 * len(terms) + 2


def exponential(x: int, bits: int) -> Bounds:
    """e^x for x up to about 1. An error of a number up to 1 doubles when it is squared; the spare bits allow for
    that."""
    if x < -bits << bits:
        return 0, 1  # e^-bits < 2^-bits
    halvings, work, terms, error = halved(x, bits)
    middle = sum(terms[::2]) + (sum(terms[1::2]) if x > 0 else -sum(terms[1::2]))
    low, high = max(0, middle - error), middle + error
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    return low >> work - bits, -(-high >> work - bits)


def cosine_sine(x: int, bits: int) -> tuple[int, int, int]:
    """(cos x, sin x, the error of both) for x >= 0, by doubling the angle. With |cos| + |sin| < 1.4143 an error e turns
    into less than 2.83 e + 1 and a multiple of e^2, which is far below e/6: e stays below 2^-bits in the end."""
    halvings, work, terms, error = halved(x, bits)
    cos, sin = sum(terms[::4]) - sum(terms[2::4]), sum(terms[1::4]) - sum(terms[3::4])
    for _ in range(halvings):
        cos, sin, error = cos * cos - sin * sin >> work, 2 * cos * sin >> work, 3 * error + 2
    spare = work - bits
    return cos >> spare, sin >> spare, (error >> spare) + 2


def integer_root(n: int, degree: int) -> int:
    """The largest x with x^degree <= n, for n >= 1, by Newton's steps from above."""
    if degree == 2:
        return math.isqrt(n)
    x = 1 << -(-n.bit_length() // degree)
    while (y := ((degree - 1) * x + n // x ** (degree - 1)) // degree) < x:
        x = y
    return x


@lru_cache(maxsize=256)
def root(n: int, q: int, degree: int, bits: int) -> Bounds:
    """(n/q)^(1/degree)."""
    power = n << bits * degree
    low = integer_root(power // q, degree)
    return low, low + (low**degree * q != power)


@dataclass(frozen=True)
class Attention:
    """An attention map: softmax with its parts."""

    shape: Shape
    name: str
    parts: frozenset[str]
    window: int

    def visible(self, i: int, tokens: int) -> list[int]:
        last = i if "causal" in self.parts else tokens - 1
        return [j for j in range(last + 1) if not self.window or abs(i - j) < self.window]

    def matrix(self, x: Ball, query: Linear, key: Linear, head: int, bits: int) -> Ball:
        queries, keys = query(x), key(x)
        if "rope" in self.parts:
            queries, keys = self.rotated(queries, bits), self.rotated(keys, bits)
        logits = queries.times(keys.transposed(), bits)
        if "scaled" in self.parts:
            low, high = root(1, self.shape.head_dim, 2, bits)
            error = logits.error * high + logits.top() * (high - low)
            logits = Ball([[s * low for s in row] for row in logits.rows], logits.unit / 2**bits, error).at(bits)
        if "alibi" in self.parts:
            # 2^(-8(h+1)/H)
            low, high = root(1, 2 ** (8 * (head + 1)), self.shape.heads, bits)
            rows = [[s - low * abs(i - j) for j, s in enumerate(row)] for i, row in enumerate(logits.rows)]
            logits = Ball(rows, logits.unit, logits.error + (high - low) * len(rows))
        return self.softmax(logits, bits)

    def rotated(self, x: Ball, bits: int) -> Ball:
        d = self.shape.head_dim
        rows: Matrix = [[] for _ in x.rows]
        worst = 0
        for t in range(d // 2):
            common = math.gcd(2 * t, d)
            low, high = root(1, 10000 ** (2 * t // common), d // common, bits)  # 10000^(-2t/d)
            for i, row in enumerate(x.rows):
                cos, sin, error = cosine_sine(low * i, bits)
                worst = max(worst, error + (high - low) * i)
                a, b = row[2 * t : 2 * t + 2]
                rows[i] += [a * cos - b * sin, a * sin + b * cos]
        error = 2 * x.error * ((1 << bits) + worst) + 2 * x.top() * worst
        return Ball(rows, x.unit / 2**bits, error).at(bits)

    def softmax(self, logits: Ball, bits: int) -> Ball:
        """With an error e of the logits, e^s (1-e) <= e^(s-e) and e^(s+e) <= e^s (1+2e) for e <= 1/2."""
        one, e, rows, worst = 1 << bits, logits.error, [], 0
        for i, row in enumerate(logits.rows):
            seen = self.visible(i, len(row))
            bounds = dict.fromkeys(seen, (0, one))  # if nothing is known of the logits
            if 2 * e <= one:
                top = max(row[j] for j in seen)
                found = {j: exponential(row[j] - top, bits) for j in seen}
                found = {
                    j: (low * (one - e) >> bits, -(-high * (one + 2 * e) >> bits)) for j, (low, high) in found.items()
                }
                least, most = map(sum, zip(*found.values(), strict=True))
                bounds = {j: ((low << bits) // most, -((-high << bits) // least)) for j, (low, high) in found.items()}
            worst = max(worst, *(high - low for low, high in bounds.values()))
            rows.append([sum(bounds[j]) // 2 if j in bounds else 0 for j in range(len(row))])
        return Ball(rows, Fraction(1, one), worst // 2 + 1)


Linear = Callable[[Ball], Ball]
HeadMaps = Callable[[int, int], tuple[Linear, Linear, Linear]]  # (layer, head) -> what x is multiplied by


def by(matrix: Ball, bits: int) -> Linear:
    return lambda ball: ball.times(matrix, bits)


def run_system(x: Ball, maps: HeadMaps, attention: Attention, bits: int) -> Ball:
    """X^l = sum over h of A^{l,h} X^{l-1} V^{l,h}, plus X^{l-1} with a residual stream."""
    for layer in range(1, attention.shape.layers + 1):
        total = x if attention.shape.residual else None
        for head in range(attention.shape.heads):
            query, key, value = maps(layer, head)
            term = attention.matrix(x, query, key, head, bits).times(value(x), bits)
            total = term if total is None else total.plus(term)
        assert total is not None
        x = total
    return x


def run_index_host(host: IndexHost, x: Ball, E: Ball, attention: Attention, bits: int) -> Ball:
    """Columns of the host's matrices are sums of unit vectors: what they are multiplied by is added up."""

    def adding(sources: list[list[int]]) -> Linear:
        return lambda ball: ball.selected(sources)

    def read(runs: list[Run], width: int) -> Linear:
        starts = [(host.first(block) + offset, limit) for block, offset, limit in runs]
        return adding([[start + j for start, limit in starts if j < limit] for j in range(width)])

    def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
        values: list[list[int]] = []
        for block, (_, width) in host.blocks.items():
            source, shift, limit = host.move(layer, head, block) or (block, 0, 0)
            start = host.first(source) + shift
            values += [[start + j] if j < limit else [] for j in range(width)]
        values += [[]] * (host.s.m - host.end)
        query, key = (read(host.reads(part, layer, head), host.d) for part in (0, 1))
        return query, key, adding(values)

    return read(host.outputs(), host.out)(run_system(x.times(E, bits), maps, attention, bits))


def run_dense_host(host: DenseHost, x: Ball, E: Ball, attention: Attention, bits: int) -> Ball:
    s = host.s

    def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
        widths = ((R_Q, s.head_dim), (R_K, s.head_dim), (R_V, s.m))
        query, key, value = (by(host_ball(host, code, layer, head, n), bits) for code, n in widths)
        return query, key, value

    ran = run_system(x.times(E, bits), maps, attention, bits)
    return ran.times(host_ball(host, CODE_U, 1, 0, s.d_out), bits)


def host_ball(host: DenseHost, code: int, layer: int, head: int, columns: int) -> Ball:
    """One of the host's matrices, exactly; a common power of two of its entries goes into the unit."""
    rows, unit = list(host.rows(code, layer, head, columns)), host.units(code)
    union = 0
    for x in chain.from_iterable(rows):
        union |= x
    if (common := (union & -union).bit_length() - 1) > 0:
        rows, unit = [[x >> common for x in row] for row in rows], unit * 2**common
    return Ball(rows, unit)


@dataclass(frozen=True)
class GivenTarget:
    """A target's tensors by layer (one only if it is tied) and head; W_E and W_U may be missing."""

    shape: Shape
    width: int
    tensors: dict[str, list[list[Ball]]]

    def output(self, x: Ball, attention: Attention, bits: int) -> Ball:
        """T(X)."""

        def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
            grids = (self.tensors[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
            q, k, v, o = (by(grid[(layer - 1) % len(grid)][head], bits) for grid in grids)
            return q, k, lambda ball: o(v(ball))

        x = x.at(bits)
        if "W_E" in self.tensors:
            x = x.times(self.tensors["W_E"][0][0], bits)
        x = run_system(x, maps, attention, bits)
        return x.times(self.tensors["W_U"][0][0], bits) if "W_U" in self.tensors else x


def numbers(rows: Bound, columns: Bound, count: Bound = 1) -> Rule:
    """`count` matrices with one denominator."""

    def rule(value: Any, what: str, claim: Claim) -> list[Ball]:
        across, down, many_ = at(columns, claim), at(rows, claim), at(count, claim)
        denominator, numerators = record(value, what, "denominator", "numerators")
        q = number(1)(denominator, f"denominator of {what}", claim)
        flat = many(entry, many_ * down * across)(numerators, f"numerators of {what}", claim)
        lines = [flat[at : at + across] for at in range(0, len(flat), across)]
        return [Ball(lines[at : at + down], Fraction(1, q)) for at in range(0, len(lines), down)]

    return rule


def given_target(value: Any, what: str, claim: Claim) -> GivenTarget:
    s, around = claim.shape, [name for name in ("W_E", "W_U") if isinstance(value, dict) and name in value]
    names = ["W_Q", "W_K", "W_V", "W_O", *around]
    *tensors, system, width = record(value, what, *names, "system", "width")
    layers = 1 if choice(system, "the target's system", "target", "looped-target") == "looped-target" else s.layers
    D, d = number(1)(width, "width", claim), s.head_dim
    if ("W_E" not in around and s.d_in != D) or ("W_U" not in around and s.d_out != D):
        raise Malformed(f"a target of width {figure(D)} without W_E and W_U is not for {s}")
    sizes = {"W_Q": (D, d), "W_K": (D, d), "W_V": (D, d), "W_O": (d, D), "W_E": (s.d_in, D), "W_U": (D, s.d_out)}
    found = {}
    for name, tensor in zip(names, tensors, strict=True):
        across, down = (1, 1) if name in around else (s.heads, layers)
        flat = numbers(*sizes[name], across * down)(tensor, name, claim)
        found[name] = [flat[at : at + across] for at in range(0, len(flat), across)]
    return GivenTarget(s, D, found)


def with_digest(rule: Rule) -> Rule:
    """Keeps the digest of what is read, too."""

    def both(value: Any, what: str, claim: Claim) -> Any:
        found = rule(value, what, claim)
        raw = json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
        claim.digests[what] = hashlib.sha256(raw).hexdigest()
        return found

    return both


def attention_map(value: Any, what: str, claim: Claim) -> Attention:
    if value == "softmax":
        return Attention(claim.shape, value, frozenset(), 0)
    said = value.split("+") if isinstance(value, str) else []
    names = [part.partition(":")[0] for part in said]
    if not said or names != [name for name in PARTS if name in names]:
        raise Malformed(f"{what} is {quote(value)}, known: softmax, or {', '.join(PARTS)} in this order")
    window = 0
    for part, name in zip(said, names, strict=True):
        if name == "window" and re.fullmatch("window:[1-9][0-9]{0,17}", part, re.ASCII):
            window = int(part[7:])
        elif part != name or name == "window":
            raise Malformed(f"{what} has the part {quote(part)}")
    if "rope" in names and claim.shape.head_dim % 2:
        raise Malformed("rope needs an even head dimension")
    return Attention(claim.shape, str(value), frozenset(names), window)


BOUND = ("target", "E", "X")  # what a claim names by digests


@dataclass
class Enclosure(Kind):
    """Host and target are run on the input in integers with error bounds that every operation carries along. The bounds
    stated are compared with what comes out; the precision is raised until that settles it."""

    name = "enclosure"
    verdicts = proves = ("within", "apart")
    notions = ("one emulation",)
    targets = ("this one",)
    target: GivenTarget = given(with_digest(given_target))
    E: list[Ball] = given(with_digest(numbers(lambda c: c.shape.d_in, lambda c: c.shape.m)))
    X: list[Ball] = given(with_digest(numbers(lambda c: c.stated["context"], lambda c: c.shape.d_in)))

    @classmethod
    def fields_stated(cls, statement: dict[str, Any], verdict: str) -> dict[str, Rule]:
        rules = {"attention": attention_map, "context": number(1)}
        rules |= {"digits": number(1), "difference": tuple_of(entry, entry)}
        return rules | dict.fromkeys(BOUND, digest)

    def __post_init__(self) -> None:
        stated = self.claim.stated
        self.attention, self.digits, (self.low, self.high) = stated["attention"], stated["digits"], stated["difference"]
        if not 0 <= self.low < self.high:
            raise Malformed("difference is not a pair 0 <= a < b")
        if self.digits > MAX_DIGITS:
            raise OverLimit(f"digits is {figure(self.digits)}, allowed are {MAX_DIGITS}")

    def difference(self, bits: int) -> tuple[Fraction, Fraction]:
        """Bounds of the largest entry of |UTF(X, E) - T(X)|."""
        claim, (E,), (X,) = self.claim, self.E, self.X
        kind = index_kind(claim)
        if kind is not None:
            ours = run_index_host(kind(claim.shape), X, E, self.attention, bits)
        else:
            ours = run_dense_host(dense_host(claim), X, E, self.attention, bits)
        theirs = self.target.output(X, self.attention, bits)
        u, v = ours.unit, theirs.unit
        both = zip(chain.from_iterable(ours.rows), chain.from_iterable(theirs.rows), strict=True)
        largest, error = max(abs(x * u - y * v) for x, y in both), ours.error * u + theirs.error * v
        return max(Fraction(0), largest - error), largest + error

    def check(self) -> None:
        claim, low, high, verdict = self.claim, self.low, self.high, self.claim.stated["verdict"]
        if wrong := [name for name in BOUND if claim.stated[name] != claim.digests[name]]:
            raise Stop(f"the {wrong[0]} given is not the one that the claim names")
        if verdict != ("apart" if low else "within"):
            raise Stop(f'the difference stated does not say "{verdict}"')
        bits = 64 + 4 * self.digits
        most = max(16 * bits, 2**13)
        while True:
            least, largest = (10**self.digits * bound for bound in self.difference(bits))
            if low <= least and largest <= high:
                return
            if least > high or largest < low:
                raise Stop(f"the outputs are {'less' if largest < low else 'more'} than stated apart")
            if bits >= most:
                raise Stop(f"the difference stated could not be established with {bits} bits")
            bits *= 2

    def says(self, verdict: str, facts: dict[str, Any]) -> str:
        where, context, low, high = self.attention.name, self.claim.stated["context"], self.low, self.high
        facts |= {"attention": where, "context": context}
        facts |= {"digits": self.digits, "difference": [stated(low), stated(high)]}
        least = f"at least {scientific(low, self.digits, up=False)} and " if low else ""
        found = f"the outputs are {least}at most {scientific(high, self.digits, up=True)} apart"
        names = ", ".join(f"{name} {facts[name][:16]}" for name in BOUND)
        return f"{verdict}, {found} ({names}; attention {where}, n = {context}): {self.claim}"


def scientific(n: int, digits: int, *, up: bool) -> str:
    """n * 10^-digits to a few digits, rounded up or down."""
    dropped = max(0, n.bit_length() * 30103 // 100000 - 5)  # log10(2) = 0.30103
    text = str(-(-n // 10**dropped) if up else n // 10**dropped)
    return f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{len(text) - 1 + dropped - digits}"


# ----------------------------------------------------------------------------------------------------
# PUBLIC FUNCTIONS AND THE COMMAND LINE


def numpy_module() -> Any:
    try:
        from utfproof.certificates import checker_numpy
    except ImportError as error:
        raise OverLimit(f"--numpy needs NumPy and the file checker_numpy.py of the package ({error})") from None
    return checker_numpy


def check_file(path: Path, options: Options | None = None) -> Verdict:
    """The verdict on one certificate file. Raises nothing but KeyboardInterrupt."""
    return judge(path, Options() if options is None else replace(options, digests={}))


def judge(path: Path, options: Options, in_folder: bool = False) -> Verdict:
    """The verdict on one file. A JSON file that was met in a folder and is no certificate is SKIPPED."""
    facts: dict[str, Any] = {}
    try:
        path = os.fsdecode(path)
        raw = b"".join(read_regular(path, MAX_JSON, follow=True))
        if in_folder and something_else(raw):
            return Verdict(SKIPPED, f"JSON without the format {FORMAT}; name the file to have it checked")
        proved = check_document(parse_canonical(raw), os.path.dirname(path), options, facts)
        return Verdict(VALID, proved, facts)
    except Stop as stop:
        return Verdict(stop.code, str(stop), facts)
    except FileNotFoundError:
        return Verdict(MALFORMED, NO_FILE, facts)
    except OSError as error:
        return Verdict(MALFORMED, f"cannot be read: {error.strerror or error}", facts)
    except UnicodeError:
        return Verdict(MALFORMED, "no file can have this name", facts)
    except (MemoryError, OverflowError):  # the latter where a length is beyond the machine's integers
        return Verdict(LIMIT, NO_MEMORY, facts)
    except Exception as error:  # nothing is established by a check that breaks off, and nothing refuted
        return Verdict(INTERNAL, f"no verdict, the check broke off: {type(error).__name__}: {quote(str(error))}", facts)


def something_else(raw: bytes) -> bool:
    """Whether these are JSON, canonical or not, that does not call itself a certificate."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return not (isinstance(value, dict) and value.get("format") == FORMAT)


Skipped = list[tuple[str, str]]  # (path, reason)
Judge = Callable[[str, bool], Verdict]  # of a path, and of whether it was met in a folder


def find_certificates(folder: str, skipped: Skipped) -> tuple[list[str], list[OSError]]:
    """The files *.json below a folder, sorted, and what could not be listed. Adds links to folders to `skipped`."""
    found, errors, waiting = [], list[OSError](), [folder]
    while waiting:  # os.walk is recursive in some versions
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir() and entry.is_symlink():
                        skipped.append((entry.path, "a link to a folder is not followed; name it to have it checked"))
                    elif entry.is_dir():
                        waiting.append(entry.path)
                    elif entry.name.endswith(".json"):
                        found.append(entry.path)
        except OSError as unreadable:
            errors.append(unreadable)
    return sorted(found), errors


def verdicts(paths: Iterable[Path], judge: Judge, skipped: Skipped) -> Iterator[tuple[str, Verdict]]:
    """On certificate files, and on the certificates in folders, recursively."""
    for given in map(os.fsdecode, paths):
        if not os.path.isdir(given):
            yield given, judge(given, False)
            continue
        found, errors = find_certificates(given, skipped)
        certificates = 0
        for path in found:
            verdict = judge(path, True)
            if verdict.code == SKIPPED:
                skipped.append((path, verdict.message))
            else:
                certificates += 1
                yield path, verdict
        for error in errors:
            yield os.fsdecode(error.filename or given), Verdict(MALFORMED, f"cannot be read: {error.strerror}")
        if not certificates and not errors:
            yield given, Verdict(MALFORMED, "a folder without certificates")


def exit_code(found: list[Verdict]) -> int:
    present = {verdict.code for verdict in found} or {MALFORMED}
    return next((code for code in (INVALID, INTERNAL, MALFORMED, LIMIT) if code in present), VALID)


def plain(text: str) -> str:
    """One line of ASCII, whatever a file is called."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)


def report(
    paths: Iterable[Path],
    judge: Judge,
    *,
    as_json: bool = False,
    quiet: bool = False,
    trusted: str = "",
    code_of: Callable[[list[Verdict]], int] = exit_code,
) -> int:
    """Print the verdicts on the paths. `trusted`: the program by which certificates are proved."""
    done, results, skipped = list[Verdict](), [], list[tuple[str, str]]()
    for path, verdict in verdicts(paths, judge, skipped):
        done.append(verdict)
        if as_json:
            said = {"path": plain(path), "code": verdict.code, "status": verdict.status.lower()}
            results.append({**said, "message": verdict.message, **verdict.facts})
        elif verdict.code != VALID or not quiet:
            print(plain(f"{verdict.status:9} {path}: {verdict.line}"), flush=True)
    code = code_of(done)
    counts = {status: sum(verdict.status == status for verdict in done) for status in (PROVED, CHECKED, CITED)}
    if as_json:
        passed = [{"path": plain(path), "reason": reason} for path, reason in sorted(skipped)]
        whole = {"exit_code": code, "counts": counts, "trusted": trusted, "results": results, "skipped": passed}
        print(json.dumps(whole, indent=1), flush=True)
        return code
    for path, reason in sorted(skipped):
        print(plain(f"skipped   {path}: {reason}"), flush=True)
    if sum(counts.values()) > 1 and not quiet:
        print(", ".join(f"{count} {status}" for status, count in counts.items()), flush=True)
    if counts[PROVED] and not quiet:
        print(plain(trusted), flush=True)
    return code


def reported(paths: Iterable[Path], judge: Judge, **settings: Any) -> int:
    """The exit status of `report`, also where it is interrupted or its output cannot be written."""
    try:
        return report(paths, judge, **settings)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:  # `judge` raises none, so this comes from the output
        if sys.stdout is not None:  # its buffer must not be flushed into the same error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"cannot write the report: {error.strerror}", file=sys.stderr)
        return 141


def main(argv: list[str] | None = None) -> int:
    known = argparse.ArgumentParser("checker", description="Checks utfproof certificates.")
    known.add_argument("paths", nargs="+", metavar="CERTIFICATE|FOLDER")
    known.add_argument("--json", action="store_true", help="print one JSON object")
    known.add_argument(
        "--weights", action="append", default=[], metavar="FILE|FOLDER", help="where weights are looked for"
    )
    known.add_argument("--numpy", action="store_true", help="ranks and witnesses with NumPy (trusted then, too)")
    args = known.parse_args(argv)
    options = Options(args.numpy, tuple(args.weights))
    return reported(args.paths, lambda path, in_folder: judge(path, options, in_folder), as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
