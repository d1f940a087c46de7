"""Independent checker of utfproof certificates (docs/certificate-format.md, version 1).

    python -m utfproof.certificates.checker CERTIFICATE|FOLDER...
    python checker.py CERTIFICATE|FOLDER...

Exit status: 0 every certificate is valid; 1 one states something that was not established; else 2 one is
malformed; else 3 one needs more memory, arithmetic or file size than the limits allow. (130: interrupted;
141: the report could not be written.)

What is trusted: the Python interpreter with its standard library, and this file. Nothing is taken over from
the program that wrote a certificate; hosts are rebuilt here from the definitions of the format. Why the kinds
are sound:

* rank-permutation. Every column of R_all is traced, block by block, through the definitions of R_V, R_Q,
  R_K and U. If the columns are pairwise different unit vectors, then rank R_all = M, and the matching
  equations are solvable for every target. Rows that are not written out are those found.
* rank-triangular (residual streams: the stream is a letter more, whose value matrix is the identity). Every column's
  ones are traced, letter by letter. If each has a 1 in its own row and that row is zero in all later columns, M rows
  of R_all are a triangular matrix with unit diagonal. For tied hosts and tied targets columns of R_all and W_all
  repeat alike, and rank-permutation looks at the different ones.
* rank-modular. The generator is re-run, and the integer matrix R_all is formed and eliminated modulo a prime.
  If its columns are independent there, an M x M minor is nonzero modulo the prime, hence nonzero, and the
  rank over the rationals is M. Units scale columns of R_all by nonzero constants and leave the rank as it is.
  With a witness, an inverse B of M rows of R_all, B (R_all x) = x is tested on random vectors x drawn here, so
  many that a wrong B passes with probability at most 2^-100.
* rank-deficient. m < M bounds the rank; or R_all z = 0 is verified in exact integers, with z_c != 0. Then
  E R_all z = 0 for every E, whereas W_all z != 0 for the target that isolates column c. With a residual stream no
  target isolates a column; the one routed along its word is built here, and W_all z is computed in exact integers.
  For tied targets one of them is given, and W_all z is computed in the same way.
* tied-kernel. The rank of R_all modulo a prime is at least M - k, and k independent vectors z are in its kernel
  (exact integers): they span it. W_all z = 0 for all tied targets is an identity of integer polynomials in their
  entries. It is tested at a random point modulo a random prime of 192 bits; a false one passes with probability below
  2^-100. Then every row of every W_all is a combination of rows of R_all.
* linear-test. As rank-modular, with the d_in columns of every R_w R_Q C^T in place of the d columns of R_w R_Q; C
  is the evidence's, or (I 0). If the columns are independent, some E gives keys M_w C and queries x with
  x C^T = M_w A: then all logits are those of the target.
* identity. E (and U) consist of blocks that are words in the target's matrices. E R_w U = M_w, and what the notion
  demands of queries and keys, hold for all words w if they hold, as polynomials, when the heads of each layer are added
  up with indeterminate weights, whose monomials are the words. That is tested at a random point modulo a random prime,
  where a wrong equation holds with probability below 2^-100. It is so for every target, or for every target with
  invertible M^(l,0) where inverses of these are used, which the claim then has to say.
  In the standard embeddings one block holds the word that a reader demands, and the block read, followed through the
  host's definition, has to be that one.
* lower-bound. The arithmetic of a bound proved in docs/proofs; or more than m independent rows of W_all, which
  E R_all would span with m rows; or sum y_w R_w = 0 with y_s != 0, while sum y_w M_w = y_s for the target that
  is 1 along the word s.
* enclosure. Host and target are run on the input, as the format defines them, in integers with error bounds that every
  operation carries along: rounding, remainders of series, roots. The bounds stated are compared with what comes out;
  the precision is raised until that settles it. With attention given as rational matrices nothing is rounded.
* realization. One target: E R_w R_Q = M_w W_Q and so on hold for all words w if they hold, as polynomials, when the heads
  of each layer are added up with indeterminate weights, whose monomials are the words. That is tested in exact integers
  at a random point, where a wrong equation vanishes with probability below 2^-100. No smaller host does it: rows
  W_E M_w and columns that read them have a minor that is nonzero modulo a prime, while any host writes it as a product
  through its m coordinates. With a residual stream states stay, and combinations of columns that vanish on all states
  known before and have a nonzero minor with new ones add so many.

Work and memory are estimated from the claim before anything of that size is allocated.
"""

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
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial, reduce
from itertools import chain, compress, pairwise
from itertools import product as product_of
from operator import add, itemgetter, mul
from typing import Any, BinaryIO, TypeAlias

VALID, INVALID, MALFORMED, LIMIT = 0, 1, 2, 3
LABELS = ("valid", "INVALID", "MALFORMED", "LIMIT")
MAX_JSON = 64 * 2**20  # bytes of a certificate file
MAX_HEADER = 2**24  # bytes of the header of a file of weights
MAX_DIGITS = 100_000  # of one integer written as a string
MAX_WORD_BITS = 60  # H^L is computed only where L log2(H) is at most this; word numbers then hash to themselves
INLINE = 4096  # longest inline array
STANDARD = "standard"  # in place of an array that a construction's definition gives
U32 = "I" if array("I").itemsize == 4 else "L"
M64 = 2**64 - 1


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


def default_memory() -> int:
    """80 % of the physical memory, or of the control group's share of it where that is less."""
    sizes = []
    try:
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        sizes.append(8 * 2**30)
    groups = ["/sys/fs/cgroup"]
    try:
        with open("/proc/self/cgroup", encoding="ascii") as lines:
            groups += ["/sys/fs/cgroup" + line[3:].strip() for line in lines if line.startswith("0::")]
    except (OSError, ValueError):
        pass
    for group in groups:
        try:
            with open(os.path.join(group, "memory.max"), encoding="ascii") as text:
                sizes.append(int(text.read()))
        except (OSError, ValueError):  # no such file, or "max"
            pass
    return min(sizes) * 4 // 5


@dataclass(frozen=True)
class Limits:
    """`operations` caps the estimated work; 10^9 of them take about a second on an ordinary core."""

    memory_bytes: int = field(default_factory=default_memory)
    operations: int = 3600 * 10**9
    numpy: bool = False  # witnesses are checked with NumPy, many times faster
    weights: tuple[str, ...] = ()  # files and folders in which weights are looked for
    target: str = ""  # a file of the one target that certificates are to be about
    files: WeightFiles = field(default_factory=lambda: WeightFiles(), compare=False, repr=False)  # those of one run

    def require(self, memory: int, operations: int) -> None:
        if memory > self.memory_bytes:
            raise OverLimit(f"needs about {figure(memory)} bytes of memory, allowed are {figure(self.memory_bytes)}")
        if operations > self.operations:
            raise OverLimit(
                f"needs about {figure(-(-operations // 10**9))} s of arithmetic, "
                f"allowed are {figure(self.operations // 10**9)} s"
            )


def figure(n: int) -> str:
    return str(n) if abs(n) < 10**15 else f"about {'-' if n < 0 else ''}2^{abs(n).bit_length() - 1}"


def stated(n: int) -> int | str:
    """For reports: huge numbers are cut down (they could exceed CPython's bound on decimal digits)."""
    return n if n < 2**63 else figure(n)


def quote(value: object) -> str:
    text = ascii(value) if isinstance(value, (str, int)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


# ----------------------------------------------------------------------------------------------------
# Files and the canonical JSON form (section 2)


def open_regular(path: str, follow: bool) -> BinaryIO:
    """A regular file, opened; never blocks on a pipe."""
    if "\0" in path:
        raise Malformed("no such file")
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
        raise Malformed(f"not a canonical JSON file ({str(error)[:80]})") from None
    if not same:
        raise Malformed("not in canonical form")
    return value  # true, false and null can still occur; whoever reads a field demands its type


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
        if len(value) > MAX_DIGITS:
            raise OverLimit(f"{what} has {len(value)} digits, allowed are {MAX_DIGITS}")
        number = decimal(value.removeprefix("-"))
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


def integer_array(
    value: object, what: str, length: int, folder: str, limits: Limits, dtype: str = "uint32"
) -> array[int] | list[int]:
    """An array of `length` integers, inline or in a sidecar, as unsigned 32-bit (or 16-bit) numbers; a list where some are
    none, which is not malformed but can't be right."""
    code, size = {"uint32": (U32, 4), "uint16": ("H", 2)}[dtype]
    if isinstance(value, list):
        if len(value) != length or length > INLINE:
            raise Malformed(
                f"{what} has {len(value)} inline entries, expected are {figure(length)}"
                + (" in a sidecar" if length > INLINE else "")
            )
        entries = [integer(entry, what) for entry in value]
        return array(code, entries) if all(0 <= entry < 2 ** (8 * size) for entry in entries) else entries
    stated_dtype, count, digest = record(value, what, "dtype", "length", "sidecar")
    choice(stated_dtype, f"dtype of {what}", dtype)
    if integer(count, f"length of {what}") != length or length <= INLINE:
        raise Malformed(
            f"{what} is a sidecar of {quote(count)} entries, expected are {figure(length)}"
            + (" inline" if length <= INLINE else "")
        )
    read_digest(digest, f"the sidecar of {what}")
    path = os.path.join(folder, digest + ".bin")
    try:
        found = os.lstat(path).st_size
        if found != size * length:
            raise Malformed(f"sidecar {digest}.bin has {found} bytes, expected are {figure(size * length)}")
        limits.require((size + 1) * length, 10 * length)
        numbers, sha, rest = array(code), hashlib.sha256(), b""
        for piece in read_regular(path, size * length, follow=False):
            sha.update(piece)
            piece = rest + piece
            whole = len(piece) // size * size
            numbers.frombytes(piece[:whole])
            rest = piece[whole:]
    except OSError as error:
        raise Malformed(f"sidecar {digest}.bin: {error.strerror}") from None
    if sha.hexdigest() != digest or rest or len(numbers) != length:
        raise Malformed(f"sidecar {digest}.bin does not have the content that its name states")
    return swapped(numbers)


def unsigned(numbers: array[int] | list[int], what: str) -> array[int]:
    if isinstance(numbers, list):
        raise Stop(f"{what} has an entry that is negative or too large")
    return numbers


def swapped(numbers: array[int]) -> array[int]:
    """Little-endian <-> native order, in place."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


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
        """Words of length L."""
        return self.letters**self.layers

    @property
    def nodes(self) -> int:
        """Words of length 0 ... L."""
        return self.readers(self.layers) // self.heads + self.leaves

    @property
    def columns(self) -> int:
        """M."""
        return 2 * self.head_dim * self.readers(self.layers) + self.d_out * self.leaves

    @property
    def reduced_columns(self) -> int:
        """With a residual stream: the columns of words without the letter 0, of outputs those of every length up to L."""
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


def read_shape(value: object) -> Shape:
    names = ["heads", "layers", "head_dim", "d_in", "d_out", "m"]
    residual = isinstance(value, dict) and "residual" in value
    held = dict(zip(names, record(value, "shape", *names, *["residual"] * residual), strict=False))
    if isinstance(value, dict) and value.get("residual", True) is not True:
        raise Malformed("residual is neither true nor left out")
    shape = Shape(**{name: integer(number, name) for name, number in held.items()}, residual=residual)
    if min(getattr(shape, name) for name in names) < 1:
        raise Malformed("the shape has a number that is not positive")
    if shape.letters > 1 and shape.layers * (shape.letters - 1).bit_length() > MAX_WORD_BITS:
        raise OverLimit(f"there can be more than 2^{MAX_WORD_BITS} head words of length L")
    return shape


# ----------------------------------------------------------------------------------------------------
# The constructions whose matrices are identities between runs of coordinates (sections 4.1-4.6)
#
# A coordinate is named by (block, offset). The n-th word w of length t is named (t, n); then (h, w) is
# (t+1, h*H^t + n) and (w, h) is (t+1, n*H + h). Only rank-permutation, rank-triangular and enclosure need the numbers of
# the coordinates (`first`); for a kernel vector any injective naming does. With a residual stream the words of `sparse`
# have H + 1 letters, and letter 0 moves nothing: `move` is asked about heads only.

Block = tuple[int, ...]
Run = tuple[Block, int, int]  # (block, offset, width): columns 0..width-1 are the units of offset.. in block
Step = tuple[Block, int, int] | None
Place = tuple[Block, int]  # a coordinate: (block, offset)


class IndexHost:
    spread = False  # whether a column of R_Q, R_K or U can have more than one 1

    def __init__(self, shape: Shape) -> None:
        self.s = shape
        self.H, self.L, self.d, self.out = shape.heads, shape.layers, shape.head_dim, shape.d_out
        self.power = [shape.letters**t for t in range(self.L + 1)]

    @staticmethod
    def least(s: Shape) -> int | None:
        """The least embedding dimension; None where the construction is not defined."""
        return s.columns

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        """R_Q (part 0) or R_K (part 1)."""
        raise NotImplementedError

    def outputs(self) -> list[Run]:
        """U."""
        raise NotImplementedError

    def move(self, layer: int, head: int, block: Block) -> Step:
        """The columns of R_V that belong to a block, as (block', shift, limit): column i < limit is the unit
        of coordinate i + shift of block', the others are zero. None: all are zero."""
        raise NotImplementedError

    def first(self, block: Block) -> int:
        """The number of the block's first coordinate."""
        raise NotImplementedError

    def extent(self) -> int:
        """How many coordinates the construction has, without those that are zero."""
        return self.least(self.s) or 0

    def place(self, coordinate: int) -> Place | None:
        """Where a coordinate is, of constructions with a free U; None beyond the last."""
        raise NotImplementedError


class Sparse(IndexHost):
    spread = True

    def width(self, length: int) -> int:
        return 2 * self.H * self.d if length < self.L else self.out

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        offset = (part * self.H + head) * self.d
        return [((layer - 1, n), offset, self.d) for n in range(self.power[layer - 1])]

    def outputs(self) -> list[Run]:
        return [((self.L, n), 0, self.out) for n in range(self.power[self.L])]

    def move(self, layer: int, head: int, block: Block) -> Step:
        length, n = block
        if length < layer or n // self.power[length - layer] % self.s.letters != head + self.s.residual:
            return None
        return block, 0, self.width(length)

    def first(self, block: Block) -> int:
        length, n = block
        return 2 * self.d * self.s.readers(length) + n * self.width(length)


class SparseFront(IndexHost):
    """One block, the whole space."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.size = [self.out]  # T_L, ..., T_0; then reversed
        for _ in range(self.L):
            self.size.append(2 * self.H * self.d + self.H * self.size[-1])
        self.size.reverse()

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((), (part * self.H + head) * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        return block, 2 * self.H * self.d + head * self.size[layer], self.size[layer]

    def first(self, block: Block) -> int:
        return 0


class Tied(IndexHost):
    """Blocks (0, t, n) of the trie and (1, L, n) of the register."""

    def trie_width(self) -> int:
        return 2 * self.d

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((0, 1, head), part * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((1, self.L, 0), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        register, length, n = block
        if register:
            return (1, length, head * self.power[length - 1] + n // self.H), 0, self.out
        if length == self.L:
            return None
        return (0, length + 1, head * self.power[length] + n), 0, self.trie_width()

    def first(self, block: Block) -> int:
        register, length, n = block
        if register:
            return self.trie_width() * self.s.words(self.L) + n * self.out
        return self.trie_width() * (self.s.words(length - 1) + n)


class ResidualTied(IndexHost):
    """`tied` with a residual stream. Blocks (0, t, n) of the Q and K trie and (1, t, n) of the output trie; words without
    the letter 0."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.power = [self.H**t for t in range(self.L + 1)]

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.reduced_columns

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((0, 1, head), part * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((1, 0, 0), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        trie, length, n = block
        if length == self.L:
            return None
        return (trie, length + 1, head * self.power[length] + n), 0, self.out if trie else 2 * self.d

    def first(self, block: Block) -> int:
        trie, length, n = block
        shorter = self.s.words(length - 1) + n
        return 2 * self.d * self.s.words(self.L) + self.out * (1 + shorter) if trie else 2 * self.d * shorter


class SharedQuery(Tied):
    """The trie holds the keys; the register serves the queries too."""

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.d_out * (s.words(s.layers) + s.heads**s.layers) if s.head_dim >= s.d_out else None

    def trie_width(self) -> int:
        return self.out

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((0, 1, head) if part else (1, self.L, 0), 0, self.out)]


class SharedKey(IndexHost):
    """Blocks (0, t, n) of the query trie and (1, t, n) of the key trie."""

    @staticmethod
    def least(s: Shape) -> int | None:
        every, longest = s.words(s.layers), s.heads**s.layers
        keys = max(s.d_in, s.d_out) * (1 + every - longest) + s.d_out * longest
        return s.d_in * every + keys if s.head_dim >= s.d_in else None

    def width(self, trie: int, length: int) -> int:
        if trie == 0:
            return self.s.d_in
        return max(self.s.d_in, self.out) if length < self.L else self.out

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((1, 0, 0) if part else (0, 1, head), 0, self.s.d_in)]

    def outputs(self) -> list[Run]:
        return [((1, 0, 0), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        trie, length, n = block
        if length == self.L:
            return None
        width = min(self.width(trie, length), self.width(trie, length + 1))
        return (trie, length + 1, head * self.power[length] + n), 0, width

    def first(self, block: Block) -> int:
        trie, length, n = block
        if trie == 0:
            return self.s.d_in * (self.s.words(length - 1) + n)
        shorter = 1 + self.s.words(length - 1)  # 0 for the root
        return self.s.d_in * self.s.words(self.L) + self.width(1, 0) * shorter + n * self.width(1, length)


class PrintedSingleHead(IndexHost):
    """Block B_i is (i,)."""

    @staticmethod
    def least(s: Shape) -> int | None:
        return (s.layers + 1) * max(2 * s.head_dim, s.d_out) if s.heads == 1 else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((layer,), part * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((self.L + 1,), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        return ((block[0] + 1,), 0, max(2 * self.d, self.out)) if block[0] <= self.L else None

    def first(self, block: Block) -> int:
        return (block[0] - 1) * max(2 * self.d, self.out)


class PrintedTreeRow(Sparse):
    def move(self, layer: int, head: int, block: Block) -> Step:
        length, n = block
        if length != layer or n % self.H != head:
            return None
        return (length - 1, n // self.H), 0, min(self.width(length), self.width(length - 1))


class PrintedTreeColumn(Sparse):
    def move(self, layer: int, head: int, block: Block) -> Step:
        length, n = block
        if length != layer - 1:
            return None
        return (length + 1, n * self.H + head), 0, min(self.width(length), self.width(length + 1))


class PrintedLooped(IndexHost):
    @staticmethod
    def least(s: Shape) -> int | None:
        return (1 + s.words(s.layers)) * max(2 * s.head_dim, s.d_out)

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((1, head), part * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((0, 0), 0, self.out)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        length, n = block
        if length == self.L:
            return None
        return (length + 1, head * self.power[length] + n), 0, max(2 * self.d, self.out)

    def first(self, block: Block) -> int:
        length, n = block
        return max(2 * self.d, self.out) * (1 + self.s.words(length - 1) + n)  # the root is 0


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


# ----------------------------------------------------------------------------------------------------
# rank-permutation and rank-triangular (section 5)


def pull_back(host: IndexHost, lists: list[list[Run]], depth: int, stream: bool = False) -> list[list[Run]]:
    """R_w x for every word w of length `depth` in lexicographic order and, within it, every x of `lists`; with `stream`
    words over the letters 0 ... H.

    R_w = R_V^{1,h_1} ... R_V^{depth,h_depth} acts on columns from its last factor on, so each round prepends
    a letter to all words at once, and the words share the work on their common endings."""
    for layer in range(depth, 0, -1):
        longer = list(lists) if stream else []  # letter 0 leaves all as it is
        for head in range(host.H):
            for runs in lists:
                kept = []
                for block, offset, width in runs:
                    if (step := host.move(layer, head, block)) is not None:
                        target, shift, limit = step
                        if (moved := min(width, limit - offset)) > 0:
                            kept.append((target, offset + shift, moved))
                longer.append(kept)
        lists = longer
    return lists


def check_permutation(claim: Claim, kind: type[IndexHost], rows: array[int] | None, limits: Limits) -> None:
    """All columns of R_all; for `tied` with a residual stream those of words without the letter 0, of outputs the words of
    all lengths up to L. Without `rows` their places are what the definitions say."""
    s, columns = claim.shape, claim.columns
    # A word's list and run take about 300 bytes, in two generations of H^L words.
    moves = 3 * s.layers * s.words(s.layers) * (s.heads if kind.spread else 1) * (s.layers if s.residual else 1)
    limits.require(5 * columns + 12 * max(s.head_dim, s.d_out) + 600 * s.heads**s.layers, 600 * moves + 60 * columns)
    host = kind(s)
    seen = bytearray(columns)
    column = 0

    def block_is(runs: list[Run], width: int) -> None:
        """The next `width` columns are those of one traced block."""
        nonlocal column
        # Every run starts at the block's column 0, so all columns are unit vectors if and only if there is
        # exactly one run and it has the full width.
        if len(runs) != 1 or runs[0][2] != width:
            raise Stop(f"the columns from {column} on are not unit vectors")
        start = host.first(runs[0][0]) + runs[0][1]
        if rows is not None and rows[column : column + width] != array(U32, range(start, start + width)):
            wrong = next(c for c in range(width) if rows[column + c] != start + c)
            raise Stop(
                f"column {column + wrong} of R_all has its 1 in row {start + wrong}, not in row {rows[column + wrong]}"
            )
        if start + width > min(s.m, len(seen)) or seen.find(1, start, start + width) >= 0:
            raise Stop(f"the rows of the columns from {column} on are not new rows below m")
        seen[start : start + width] = b"\1" * width
        column += width

    for part in (0, 1):
        for layer in range(1, host.L + 1):
            reads = [host.reads(part, layer, head) for head in range(host.H)]
            for runs in pull_back(host, reads, layer - 1):
                block_is(runs, host.d)
    for length in range(0 if s.residual else host.L, host.L + 1):
        for runs in pull_back(host, [host.outputs()], length):
            block_is(runs, host.out)
    if column != columns:
        raise Stop(f"R_all has {column} columns instead of {columns}")


def check_triangular(host: IndexHost, rows: array[int], limits: Limits) -> None:
    """Column c has a 1 in row rows[c], which is zero in every column after c."""
    s, columns = host.s, len(rows)
    spread = (2 * s.heads + 1) ** s.layers  # runs of all words of length L: each zero of a word leaves every letter
    ones = 2 * s.head_dim * s.heads * (spread - 1) // (2 * s.heads) + s.d_out * spread
    limits.require(30 * columns + 400 * spread, 300 * ones + 1500 * s.layers * spread + 200 * columns)
    owner = array("q", b"\xff" * (8 * columns))  # of a row: the column whose 1 it is to hold, or -1
    for column, row in enumerate(rows):
        if row >= columns or owner[row] >= 0:
            raise Stop(f"row {row} of column {column} is not a new one of the construction's")
        owner[row] = column
    column = 0

    def next_block(runs: list[Run], width: int) -> None:
        nonlocal column
        for j in range(width):
            found = 0
            for block, offset, limit in runs:
                if j < limit:
                    row = host.first(block) + offset + j
                    found += row == rows[column]
                    if owner[row] < column:
                        raise Stop(
                            f"column {column} of R_all has a 1 in row {row}, that of column {owner[row]} before it"
                        )
            if found != 1:
                raise Stop(f"column {column} of R_all has no 1 in row {rows[column]}")
            column += 1

    for part in (0, 1):
        for layer in range(1, host.L + 1):
            reads = [host.reads(part, layer, head) for head in range(host.H)]
            for runs in pull_back(host, reads, layer - 1, s.residual):
                next_block(runs, host.d)
    for runs in pull_back(host, [host.outputs()], host.L, s.residual):
        next_block(runs, host.out)
    if column != columns:
        raise Stop(f"R_all has {column} columns instead of {columns}")


# ----------------------------------------------------------------------------------------------------
# Random hosts (section 4.7)

GOLDEN, MIX1, MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
R_Q, R_K, R_V, CODE_U = 0, 1, 2, 3
FORMATS = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}  # significand, least exponent
LAWS = ("uniform", "signs", "binomial")
RANDOM = ("random", "random-tied")


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
# Weights from a file (section 4.8)

# type: (array code, bits before the significand's 52, 23, 10 or 7, exponent of the least positive number)
FLOATS = {"F64": ("Q", 52, -1074), "F32": (U32, 23, -149), "F16": ("H", 10, -24), "BF16": ("H", 7, -133)}
INTEGERS = {
    **{"I8": "b", "I16": "h", "I32": U32.lower(), "I64": "q"},
    **{"U8": "B", "U16": "H", "U32": U32, "U64": "Q"},
}
Sizes = dict[str, tuple[int, ...]]
TENSORS = {R_Q: "R_Q", R_K: "R_K", R_V: "R_V", CODE_U: "U"}
HOST_TENSORS = {*TENSORS.values(), "R_Vv", "R_Vo"}


@dataclass(frozen=True)
class Tensor:
    dtype: str
    sizes: tuple[int, ...]
    data: memoryview

    @property
    def code(self) -> str:
        return type_code(self.dtype)


def type_code(dtype: str) -> str:
    return INTEGERS[dtype] if dtype in INTEGERS else FLOATS[dtype][0]


STREAM_LINE = b"residual true\n"  # of the canonical content of a host that has a residual stream
TARGET_TENSORS = {"W_Q", "W_K", "W_V", "W_O", "W_E", "W_U"}
Placed = tuple[str, tuple[int, ...], int, int]  # of a header: type, sizes, the first byte of the data and the one after


@dataclass(frozen=True)
class Header:
    placed: dict[str, Placed]
    residual: object  # what the metadata says of a residual stream: None, "true" or "false"

    @property
    def sizes(self) -> Sizes:
        return {name: sizes for name, (_, sizes, *_) in self.placed.items()}

    def streams(self) -> tuple[bool, ...]:
        """Of hosts without and with a residual stream, those which the file can hold."""
        return tuple(streamed for streamed in (False, True) if self.residual in (None, "true" if streamed else "false"))


def read_header(handle: BinaryIO, names: set[str] = HOST_TENSORS) -> Header:
    """What a safetensors file of tensors with these names holds; Malformed if it is another file. No data is read."""
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
    metadata = header.pop("__metadata__", None)
    if not header.keys() <= names:
        raise Malformed("the file holds other tensors")
    found: dict[str, Placed] = {}
    entries = {
        name: record(entry, f"tensor {quote(name)}", "dtype", "shape", "data_offsets") for name, entry in header.items()
    }
    for _, sizes, offsets in entries.values():
        for numbers in (sizes, offsets):
            if not isinstance(numbers, list) or any(type(n) is not int or n < 0 for n in numbers):
                raise Malformed("a tensor has no proper shape or offsets")
        if len(sizes) > 8 or len(offsets) != 2:
            raise Malformed("a tensor has no proper shape or offsets")
    end = start = 8 + length
    for name, (dtype, sizes, (begin, stop)) in sorted(entries.items(), key=lambda entry: entry[1][2]):
        choice(dtype, f"type of {quote(name)}", *FLOATS, *INTEGERS)
        if start + begin != end or stop - begin != math.prod(sizes) * array(type_code(dtype)).itemsize:
            raise Malformed(f"tensor {quote(name)} does not take the place of its shape")
        found[name], end = (dtype, tuple(sizes), start + begin, start + stop), start + stop
    if end != size:
        raise Malformed("the file does not end with its tensors")
    return Header(found, metadata.get("residual") if isinstance(metadata, dict) else None)


def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without duplicate keys."""
    if len(result := dict(items)) != len(items):
        raise Malformed("a duplicate key")
    return result


def exponent_fields(tensor: Tensor) -> set[int]:
    """The values that the exponents have in a tensor of floats, but for its zeros."""
    code, bits, _ = FLOATS[tensor.dtype]
    mask, step = 2 ** (8 * array(code).itemsize - 1 - bits) - 1, 2**16 * array(code).itemsize
    found: set[int] = set()
    for at in range(0, len(tensor.data), step):
        numbers = swapped(array(code, tensor.data[at : at + step].tobytes()))
        found.update({x >> bits & mask for x in numbers if x & (mask << bits | 2**bits - 1)})
    return found


def require_finite(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype in FLOATS:
            code, bits, _ = FLOATS[tensor.dtype]
            if 2 ** (8 * array(code).itemsize - 1 - bits) - 1 in exponent_fields(tensor):  # infinities and NaN
                raise Stop(f"{name} has an entry that is not finite")


def canonical_digests(handle: BinaryIO, header: Header, keep: dict[str, bytearray] | None = None) -> tuple[str, str]:
    """Of the content without and with the line for a residual stream. It is read piece by piece; with `keep` it is kept
    there, too."""
    sha = hashlib.sha256()
    for name in sorted(header.placed):
        dtype, sizes, at, stop = header.placed[name]
        sha.update(f"{name} {dtype} {','.join(map(str, sizes))}\n".encode())
        handle.seek(at)
        while at < stop:
            piece = handle.read(min(2**20, stop - at))
            if not piece:
                raise Malformed("a file of weights ended while it was read")
            sha.update(piece)
            at += len(piece)
            if keep is not None:
                keep.setdefault(name, bytearray()).extend(piece)
    plain = sha.hexdigest()
    sha.update(STREAM_LINE)
    return plain, sha.hexdigest()


def host_sizes(s: Shape, tied: bool, inner: int | None) -> Sizes:
    """The sizes that a host's tensors must have at this shape; `inner`: the width of factored values, None where there are
    no factors."""
    lead = (s.heads,) if tied else (s.layers, s.heads)
    expected = {"R_Q": (*lead, s.m, s.head_dim), "R_K": (*lead, s.m, s.head_dim), "U": (s.m, s.d_out)}
    if inner is None:
        return expected | {"R_V": (*lead, s.m, s.m)}
    return expected | {"R_Vv": (*lead, s.m, inner), "R_Vo": (*lead, inner, s.m)}


Look = frozenset[tuple[str, tuple[int, ...]]]


def look(sizes: Sizes) -> Look:
    """What the files of hosts that a certificate can be about have in common: their sizes, whatever the inner width."""
    if len(sizes.get("R_Vv", ())) > 2 and len(sizes.get("R_Vo", ())) > 2:
        first, second = sizes["R_Vv"], sizes["R_Vo"]
        if first[-1] == second[-2]:
            sizes = sizes | {"R_Vv": (*first[:-1], 0), "R_Vo": (*second[:-2], 0, second[-1])}
    return frozenset(sizes.items())


@dataclass
class Folder:
    """The files of hosts in one place: those not yet hashed by their looks, the others by digest and by whether the host
    is said to have a residual stream."""

    waiting: dict[Look, list[str]] = field(default_factory=dict)
    hashed: dict[tuple[str, bool], str] = field(default_factory=dict)

    def enter(self, digests: tuple[str, str], header: Header, path: str) -> None:
        """The digest without the line for the stream names hosts of both kinds: certificates for those with a stream have
        it, too, if they were written before there was one with it."""
        for streamed in header.streams():
            for digest in digests[: 1 + streamed]:
                self.hashed.setdefault((digest, streamed), path)


class WeightFiles:
    """Where weights are looked for. In one run every folder is listed, every header read and every file hashed at most
    once; and a file is hashed anew when it is read for a certificate, so nothing rests on what is remembered here."""

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {}

    def folder(self, place: str) -> Folder:
        if (known := self.folders.get(place)) is not None:
            return known
        found = self.folders[place] = Folder()
        try:
            paths = [place]
            if os.path.isdir(place):
                with os.scandir(place) as entries:
                    paths = sorted(entry.path for entry in entries if entry.name.endswith(".safetensors"))
        except OSError:
            return found
        for path in reversed(paths):
            try:
                with open_regular(path, follow=True) as handle:
                    header = read_header(handle)
            except (Malformed, OSError):
                continue  # some other file
            found.waiting.setdefault(look(header.sizes), []).append(path)
        return found

    def find(self, digest: str, residual: bool, folder: str, looks: list[Look], limits: Limits) -> dict[str, Tensor]:
        """The tensors with this digest: those of the files given come first, then the certificate's neighbours, then the
        folders given. Files that look as the shape asks for are hashed first."""
        wanted = digest, residual
        files = [place for place in limits.weights if not os.path.isdir(place)]
        folders = [self.folder(place) for place in dict.fromkeys([*files, folder or ".", *limits.weights])]
        for known in folders:
            if wanted in known.hashed:
                return self.load(known.hashed[wanted], wanted, limits)
        self.over: OverLimit | None = None
        for known in folders:
            for sizes in looks:
                if found := self.hashed_until(wanted, known, sizes, limits):
                    return self.load(found, wanted, limits)
        for known in folders:
            for sizes in [*known.waiting]:
                if found := self.hashed_until(wanted, known, sizes, limits):
                    return self.load(found, wanted, limits)
        if self.over is not None:
            raise self.over
        if any((digest, not residual) in known.hashed for known in folders):
            raise Malformed(
                f"the weights {digest[:16]}... are those of a host with{'out' * residual} a residual stream, and the shape "
                f"says that there is {'one' if residual else 'none'}"
            )
        raise Malformed(f"no weights with the digest {digest[:16]}... beside the certificate or under --weights")

    def hashed_until(self, wanted: tuple[str, bool], known: Folder, sizes: Look, limits: Limits) -> str | None:
        """The path of the file that is wanted among those with this look."""
        waiting, left = known.waiting.pop(sizes, []), []
        found = None
        while waiting and found is None:
            path = waiting.pop()
            try:
                with open_regular(path, follow=True) as handle:
                    limits.require(0, os.fstat(handle.fileno()).st_size)
                    header = read_header(handle)
                    digests = canonical_digests(handle, header)
            except OverLimit as limit:
                self.over = limit  # the wanted file may be a smaller one
                left.append(path)
            except (Malformed, OSError):
                pass
            else:
                known.enter(digests, header, path)
                found = known.hashed.get(wanted)
        if waiting or left:
            known.waiting[sizes] = left + waiting
        return found

    def load(self, path: str, wanted: tuple[str, bool], limits: Limits) -> dict[str, Tensor]:
        header, digests, tensors = read_tensors(path, HOST_TENSORS, limits)
        now = Folder()
        now.enter(digests, header, path)
        if wanted not in now.hashed:
            raise Malformed("the weights changed while they were read")
        return tensors


def read_tensors(path: str, names: set[str], limits: Limits) -> tuple[Header, tuple[str, str], dict[str, Tensor]]:
    try:
        with open_regular(path, follow=True) as handle:
            header, kept = read_header(handle, names), dict[str, bytearray]()
            size = os.fstat(handle.fileno()).st_size
            limits.require(2 * size, 4 * size)
            digests = canonical_digests(handle, header, kept)
    except OSError as error:
        raise Malformed(f"the weights cannot be read: {error.strerror}") from None
    return (
        header,
        digests,
        {
            name: Tensor(dtype, sizes, memoryview(kept.get(name, b"")))
            for name, (dtype, sizes, *_) in header.placed.items()
        },
    )


def require_host_tensors(tensors: dict[str, Tensor]) -> None:
    values = {"R_Vv", "R_Vo"} if "R_Vv" in tensors else {"R_V"}
    if tensors.keys() != {"R_Q", "R_K", "U", *values}:
        raise Malformed(f"the weights have the tensors {', '.join(map(quote, sorted(tensors)))}")


class WeightsHost:
    """Entries of a file as integers: a float is multiplied by the power of two that makes every number of its
    type an integer (section 4.8)."""

    def __init__(self, claim: Claim) -> None:
        assert claim.weights is not None
        self.s, self.tensors, self.tied = claim.shape, claim.weights, claim.tied
        self.factored = "R_Vv" in self.tensors
        self.inner = (self.tensors["R_Vv"].sizes or (0,))[-1] if self.factored else 0
        for name, sizes in host_sizes(self.s, self.tied, self.inner if self.factored else None).items():
            if self.tensors[name].sizes != sizes:
                raise Stop(f"{name} has the shape {list(self.tensors[name].sizes)}, the certificate's is {list(sizes)}")

    def units(self, code: int) -> Fraction:
        names = ["R_Vv", "R_Vo"] if code == R_V and self.factored else [TENSORS[code]]
        types = [self.tensors[name].dtype for name in names]
        return math.prod((Fraction(2) ** FLOATS[t][2] for t in types if t in FLOATS), start=Fraction(1))

    def rows(self, code: int, layer: int, head: int, columns: int, p: int = 0) -> Iterator[list[int]]:
        """The integers of one matrix, row by row (modulo p in any representation, if p is given); layers from 1."""
        if code != R_V or not self.factored:
            yield from self.stored(TENSORS[code], layer, head, self.s.m, columns, p)
            return
        second = list(zip(*self.stored("R_Vo", layer, head, self.inner, columns, p), strict=True))
        for row in self.stored("R_Vv", layer, head, self.s.m, self.inner, p):
            yield [sum(map(mul, row, column)) for column in second] if second else [0] * columns

    def stored(self, name: str, layer: int, head: int, height: int, width: int, p: int) -> Iterator[list[int]]:
        number = 0 if name == "U" else head if self.tied else (layer - 1) * self.s.heads + head
        return stored_rows(self.tensors[name], name, number, height, width, p)


def stored_rows(tensor: Tensor, name: str, number: int, height: int, width: int, p: int = 0) -> Iterator[list[int]]:
    """The rows of one of a tensor's matrices, in integers (modulo p, if p is given)."""
    size = array(tensor.code).itemsize * width
    start = number * height * size
    if tensor.dtype not in FLOATS:
        for at in (start + row * size for row in range(height)):
            yield swapped(array(tensor.code, tensor.data[at : at + size].tobytes())).tolist()
        return
    _, bits, _ = FLOATS[tensor.dtype]
    slope, offset = significands(tensor.dtype, p)
    low = 2**bits - 1
    for at in (start + row * size for row in range(height)):
        row = swapped(array(tensor.code, tensor.data[at : at + size].tobytes()))
        try:
            yield [slope[x >> bits] * (x & low) + offset[x >> bits] for x in row]
        except TypeError:  # the tables hold no number for exponents of infinities and NaN
            raise Stop(f"{name} has an entry that is not finite") from None


@lru_cache(maxsize=8)
def significands(dtype: str, p: int) -> tuple[list[Any], list[Any]]:
    """For each value of sign and exponent: an entry's integer is slope * (its significand bits) + offset."""
    code, bits, _ = FLOATS[dtype]
    exponents = 2 ** (8 * array(code).itemsize - 1 - bits)
    # exponent fields 0 (subnormal) and 1 share a power of two; the last field is that of infinities and NaN
    slope: list[Any] = [pow(2, max(k - 1, 0), p or None) for k in range(exponents - 1)] + [None]
    offset = [0, *(x << bits for x in slope[1:-1]), None]
    return slope + [x if x is None else -x for x in slope], offset + [x if x is None else -x for x in offset]


DenseHost: TypeAlias = "RandomHost | WeightsHost"


def dense_host(claim: Claim) -> DenseHost:
    return RandomHost(claim) if claim.weights is None else WeightsHost(claim)


# ----------------------------------------------------------------------------------------------------
# rank-modular (section 6)


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


Matrix: TypeAlias = "list[list[int]]"
Grid: TypeAlias = "list[list[Matrix]]"  # by layer (one only if tied) and head


def dense_matrix(host: DenseHost, p: int, queries: int | None = None, gauges: Grid | None = None) -> list[array[int]]:
    """The rows of R_all modulo p, with the columns in another order (which does not change the rank); with
    `queries`, only the first so many of the d columns of every R_Q are used; with `gauges`, those of R_Q C^T.

    Built from the last layer: S_{L+1} = U and S_l = [R_Q^{l,h}, R_K^{l,h}, R_V^{l,h} S_{l+1} over all h], so
    that S_1 has the columns of R_all; with a residual stream S_{l+1} itself is a part of S_l, too. A tied host's matrices
    are drawn again in every layer, not kept."""
    s = host.s
    packing = Packing(p, s.m)
    rows = [array(U32, [x % p for x in row]) for row in host.rows(CODE_U, 1, 0, s.d_out, p)]
    for layer in range(s.layers, 0, -1):
        columns = len(rows[0])
        packed, biases = [packing.pack(row) for row in rows], packing.biases(columns)
        reads: list[Iterator[list[int]]] = []
        for code, width in ((R_Q, queries), (R_K, None)):
            for h in range(s.heads):
                change: Callable[[list[int]], list[int]] = itemgetter(slice(width))
                if code == R_Q and gauges is not None:
                    change = partial(times_transposed, gauges[0 if host.tied else layer - 1][h])
                reads.append(map(change, host.rows(code, layer, h, s.head_dim, p)))
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


def times_transposed(matrix: Matrix, row: list[int]) -> list[int]:
    return [sum(map(mul, row, other)) for other in matrix]


PANEL = 64
Pivots: TypeAlias = "list[tuple[int, array[int]]]"  # (column, row): row[column] is 1, and 0 in all others


def clear(
    row: array[int], heads: list[int], packed: list[int], packing: Packing, keep: bytes | None = None
) -> array[int]:
    """The row minus the combination of the packed pivot rows that makes it zero in their pivot columns
    `heads`; with `keep`, only the columns that it flags (and that the packed rows consist of)."""
    coefficients = packing.balanced(-row[column] for column in heads)
    if keep is not None:
        row = array(U32, compress(row, keep))
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


def full_column_rank(rows: list[array[int]], p: int) -> bool:
    """Whether the columns are independent modulo p. Consumes `rows`."""
    return rank_reaches(rows, p, len(rows[0]))


def rank_reaches(rows: list[array[int]], p: int, wanted: int) -> bool:
    """Whether the rank modulo p is at least `wanted`. Consumes `rows`.

    A panel of rows is brought to echelon form and cleared from all others, all its pivots at once; its pivot
    columns are then zero there and are left out. A panel row that depends on the others is dropped."""
    packing = Packing(p, PANEL + 1)  # a row itself counts as a term with coefficient 1
    columns = len(rows[0])
    while wanted > 0:
        if min(len(rows), columns) < wanted:
            return False
        pivots = echelon(rows[:PANEL], packing)
        heads = [column for column, _ in pivots]
        taken = set(heads)
        keep = bytes(column not in taken for column in range(columns))
        columns -= len(heads)
        wanted -= len(heads)
        packed = [packing.pack(array(U32, compress(row, keep))) for _, row in pivots]
        del rows[:PANEL]
        if len(rows) >= wanted > 0:
            for number, row in enumerate(rows):
                rows[number] = clear(row, heads, packed, packing, keep)
    return True


def is_prime(n: int) -> bool:
    """Miller-Rabin; the bases 2, 3, 5, 7 decide every n < 3 215 031 751."""
    if n < 11:
        return n in (2, 3, 5, 7)
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7):
        x = pow(base, odd, n)
        if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True


def require_prime(p: int) -> None:
    if p == 2 or not is_prime(p):
        raise Stop(f"{p} is not an odd prime")


def require_modular(claim: Claim, p: int) -> None:
    """What every method of this kind needs."""
    require_prime(p)
    if claim.shape.m < claim.columns:
        raise Stop(
            f"the rank is at most m = {figure(claim.shape.m)} and {claim.columns_name} = {figure(claim.columns)}"
        )


def drawing_work(claim: Claim) -> int:
    """Estimated work of drawing every matrix of a random host once (a tied one's once a layer)."""
    s = claim.shape
    rounding = claim.law == "uniform" and claim.dtype != "float64"
    if claim.weights is not None and "R_Vv" in claim.weights:  # values are multiplied out
        inner = (claim.weights["R_Vv"].sizes or (0,))[-1]
        return s.layers * s.heads * s.m * (s.m * inner * 60 + 2 * s.head_dim * 250)
    return s.layers * s.heads * s.m * (s.m + 2 * s.head_dim) * (900 if rounding else 250)


def drawn_bits(claim: Claim, *, exact: bool) -> int:
    """About how many bits the integers of a dense host have; unless `exact` without the power of two common to a matrix."""
    if claim.weights is None:
        return 64
    most = {"R_Vv": 0, "R_Vo": 0, "": 0}  # values that are factored are multiplied out
    for name, tensor in claim.weights.items():
        bits = 8 * array(tensor.code).itemsize
        if tensor.dtype in FLOATS:
            fields = exponent_fields(tensor) or {0}
            bits = max(fields) + FLOATS[tensor.dtype][1] + 1 - (0 if exact else max(0, min(fields) - 1))
        place = name if name in most else ""
        most[place] = max(most[place], bits)
    return max(most[""], most["R_Vv"] + most["R_Vo"] + claim.shape.m.bit_length())


def check_modular(claim: Claim, p: int, limits: Limits, gauges: Grid | None = None) -> None:
    require_modular(claim, p)
    require_matrix(claim, p, limits, gauges is not None)
    if gauges is not None:
        gauges = [[[[x % p for x in row] for row in matrix] for matrix in layer] for layer in gauges]
    if not full_column_rank(dense_matrix(dense_host(claim), p, claim.queries, gauges), p):
        matrix = "R_all" if claim.kind == "rank-modular" else "the test matrix"
        raise Stop(f"the rank of {matrix} modulo {p} is below {claim.columns_name} = {claim.columns}")


def require_matrix(claim: Claim, p: int, limits: Limits, gauged: bool = False) -> None:
    """What forming R_all (or the test matrix) modulo p and finding its rank takes."""
    s, columns = claim.shape, claim.columns
    limits.require(4 * s.m * columns, s.m * columns)  # from here on L <= M <= m are of moderate size
    widths = [s.d_out]  # of S_{L+1}, S_L, ..., S_1
    for _ in range(s.layers):
        widths.append(s.heads * (claim.queries + s.head_dim) + s.letters * widths[-1])
    slot = Packing(p, s.m).bytes
    memory = s.m * (4 * columns + (4 + slot * 16 // 15) * widths[-2]) + 300 * s.m + 64 * columns * PANEL
    eliminated = columns * columns * (3 * s.m - columns) // 6
    products = s.heads * s.m * s.m * sum(widths[:-1]) + eliminated
    reduced = s.m * sum(widths) + eliminated // PANEL + 7 * s.m * columns
    gauging = s.layers * s.heads * (s.m + 1) * s.d_in * s.head_dim * 60 if gauged else 0
    limits.require(memory, drawing_work(claim) + gauging + products * slot * 2 // 3 + reduced * 200)


# The witness method (section 6.2). Vectors x and T(w) are kept for all words of one length and all probes at
# once: number `probe * (words of that length) + (word's number)`, so that the words ending in letter a are [a::letters].


def probes(p: int) -> int:
    """The least k with p^k >= 2^100."""
    k = 1
    while p**k < 2**100:
        k += 1
    return k


def tabulate(x: list[array[int]], start: int, words: int, width: int, offset: int) -> array[int]:
    """Coordinate `offset` of the blocks of `width` columns from `start` on, one block a word, for all probes."""
    stop = start + words * width
    return array(U32, chain.from_iterable(probe[start + offset : stop : width] for probe in x))


def times_probes(host: DenseHost, p: int, x: list[array[int]]) -> list[array[int]]:
    """R_all x modulo p for all probes: m rows, one entry a probe. R_all is not formed."""
    s = host.s
    d, heads, letters = s.head_dim, s.heads, s.letters
    quarter = d * s.readers(s.layers)  # all Q columns, and all K columns
    words = s.leaves
    packing = Packing(p, probe_terms(s))
    packed = [packing.pack(tabulate(x, 2 * quarter, words, s.d_out, c)) for c in range(s.d_out)]
    biases = packing.biases(words * len(x))
    rows = [
        packing.unpack(sum(map(mul, packing.balanced(row), packed), biases), words * len(x))
        for row in host.rows(CODE_U, 1, 0, s.d_out, p)
    ]
    for layer in range(s.layers, 0, -1):
        start = d * s.readers(layer - 1)
        words //= letters
        packed, matrices = [], []
        for h in range(heads):
            packed += [packing.pack(row[h + s.residual :: letters]) for row in rows]
            matrices.append(host.rows(R_V, layer, h, s.m, p))
            for code, first in ((R_Q, start), (R_K, quarter + start)):
                packed += [packing.pack(tabulate(x, first, words * heads, d, c)[h::heads]) for c in range(d)]
                matrices.append(host.rows(code, layer, h, d, p))
        biases, slots = packing.biases(words * len(x)), words * len(x)
        # words that end in letter 0 add what is there already
        starts = [biases + (packing.pack(row[::letters]) if s.residual else 0) for row in rows]
        rows = [
            packing.unpack(sum(map(mul, packing.balanced(chain.from_iterable(parts)), packed), begin), slots)
            for begin, parts in zip(starts, zip(*matrices, strict=True), strict=True)
        ]
    return rows


def probe_terms(s: Shape) -> int:
    """How many rows are added up at most; that of letter 0 counts as one with coefficient 1."""
    return max(s.heads * (s.m + 2 * s.head_dim) + s.residual, s.d_out)


def check_witness(
    claim: Claim, p: int, rows: array[int] | list[int], entries: array[int] | list[int], limits: Limits
) -> None:
    s, columns, numpy = claim.shape, claim.shape.columns, limits.numpy
    require_modular(claim, p)
    chosen, inverse = unsigned(rows, "rows"), unsigned(entries, "inverse")
    if chosen[-1] >= s.m:
        raise Stop(f"row {chosen[-1]} is not below m = {s.m}")
    if max(inverse) >= p:
        raise Stop(f"the inverse has an entry {max(inverse)}, not below p = {p}")
    k = probes(p)
    words = s.leaves
    slot = Packing(p, probe_terms(s)).bytes
    memory = (
        s.m * k * words * (4 + (3 if s.residual else 2) * slot)
        + 200 * s.heads * (s.m + 2 * s.head_dim)
        + 8 * k * columns
    )
    products = (s.readers(s.layers) * s.m * (s.m + 2 * s.head_dim) + words * s.m * s.d_out + columns**2) * k
    numbers = s.layers * s.heads * s.m * (s.m + 2 * s.head_dim) + columns**2
    work = drawing_work(claim) + numbers * 250 + products * slot * 2 // 3
    limits.require(memory + (64 * s.m * s.m if numpy else 0), work // 20 if numpy else work)
    x = [array(U32, (secrets.randbelow(p) for _ in range(columns))) for _ in range(k)]
    if numpy:
        fast = numpy_module()
        good = fast.witness_holds(dense_host(claim), p, chosen, inverse, x)
    else:
        product = times_probes(dense_host(claim), p, x)
        packing = Packing(p, columns)
        packed = [packing.pack(product[row]) for row in chosen]
        biases = packing.biases(k)
        good = all(
            packing.unpack(sum(map(mul, packing.balanced(inverse[i * columns : (i + 1) * columns]), packed), biases), k)
            == array(U32, (probe[i] for probe in x))
            for i in range(columns)
        )
    if not good:
        raise Stop(f"the witness is not the inverse modulo {p} of the chosen rows of R_all")


def numpy_module() -> Any:
    try:
        from utfproof.certificates import checker_numpy
    except ImportError as error:
        raise OverLimit(f"--numpy needs NumPy and the file checker_numpy.py of the package ({error})") from None
    return checker_numpy


# ----------------------------------------------------------------------------------------------------
# rank-deficient (section 7)

Target = dict[tuple[str, int, int], dict[int, dict[int, int]]]  # (tensor, layer, head) -> row -> column -> entry
Pairs = list[tuple[int, int]]  # (position, nonzero value), positions increasing
Entry = tuple[int, int, int, int]  # (part, number of the word, column within the word's block, value)


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


# R_all z = G_0(), where G_L(w) = U z_OV(w) and, going up,
#     G_{l-1}(w) = sum over h of  R_Q^{l,h} z_Q(w,h) + R_K^{l,h} z_K(w,h) + R_V^{l,h} G_l(w,h),
# with a residual stream also G_l(w,0), head h being letter h + 1. Only words on the way to a nonzero entry of z are
# visited. The words of z_Q and z_K are numbered n H + h, n the number of w among those of its length.


def index_product_is_zero(host: IndexHost, layers: dict[int, list[Entry]]) -> bool:
    Held = dict[tuple[Block, int], int]

    def add(vector: Held, runs: list[Run], column: int, value: int) -> None:
        for block, offset, width in runs:
            if column < width:
                name = (block, offset + column)
                vector[name] = vector.get(name, 0) + value

    vectors: dict[int, Held] = {}
    for _, word, column, value in layers.get(host.L + 1, []):
        add(vectors.setdefault(word, {}), host.outputs(), column, value)
    for layer in range(host.L, 0, -1):
        shorter: dict[int, Held] = {}
        for word, vector in vectors.items():
            parent, letter = divmod(word, host.s.letters)
            target = shorter.setdefault(parent, {})
            for (block, offset), value in vector.items():
                step = stays(block, letter, host) or host.move(layer, letter - host.s.residual, block)
                if value and step is not None and offset < step[2]:
                    name = (step[0], offset + step[1])
                    target[name] = target.get(name, 0) + value
        for part, word, column, value in layers.get(layer, []):
            parent, head = divmod(word, host.H)
            add(shorter.setdefault(parent, {}), host.reads(part, layer, head), column, value)
        vectors = shorter
    return not any(value for vector in vectors.values() for value in vector.values())


def stays(block: Block, letter: int, host: IndexHost) -> Step:
    """The step of a residual stream's letter 0; None for heads."""
    return (block, 0, max(2 * host.H * host.d, host.out)) if host.s.residual and letter == 0 else None


def dense_product_is_zero(host: DenseHost, layers: dict[int, list[Entry]]) -> bool:
    """In integers: the vectors below are multiples c_l G_l, c_l being a common denominator of what G_l is made of."""
    s = host.s

    def read(
        code: int, layer: int, entries: list[Entry], columns: int, scale: int, sums: dict[int, list[int]], up: int
    ) -> None:
        """Adds scale times the product of each matrix of this code and layer with its part of z."""
        for head in sorted({word % up for _, word, _, _ in entries}):
            mine = [
                (sums.setdefault(word // up, [0] * s.m), column, scale * value)
                for _, word, column, value in entries
                if word % up == head
            ]
            for i, row in enumerate(host.rows(code, layer, head, columns)):
                for vector, column, value in mine:
                    vector[i] += row[column] * value

    vectors: dict[int, list[int]] = {}
    common = host.units(CODE_U).denominator
    read(CODE_U, 1, layers.get(s.layers + 1, []), s.d_out, host.units(CODE_U).numerator, vectors, 1)
    for layer in range(s.layers, 0, -1):
        value_unit = host.units(R_V)
        factor = value_unit.denominator * math.lcm(host.units(R_Q).denominator, host.units(R_K).denominator)
        scale = int(value_unit * factor)
        shorter: dict[int, list[int]] = {}
        for letter in sorted({word % s.letters for word in vectors}):
            mine = [
                (shorter.setdefault(word // s.letters, [0] * s.m), vector)
                for word, vector in vectors.items()
                if word % s.letters == letter
            ]
            if s.residual and letter == 0:
                for target, vector in mine:
                    target[:] = map(add, target, [factor * x for x in vector])
                continue
            for i, row in enumerate(host.rows(R_V, layer, letter - s.residual, s.m)):
                for target, vector in mine:
                    target[i] += scale * sum(map(mul, row, vector))
        common *= factor
        for code in (R_Q, R_K):
            entries = [entry for entry in layers.get(layer, []) if entry[0] == code]
            read(code, layer, entries, s.head_dim, int(host.units(code) * common), shorter, s.heads)
        vectors = shorter
    return not any(x for vector in vectors.values() for x in vector)


def read_kernel(evidence: list[Any], columns: int) -> tuple[int, Pairs, int, int]:
    """column, the entries of z, n and q; every demand on their form."""
    column, distance, pairs = evidence
    column = integer(column, "column")
    if not isinstance(distance, list) or len(distance) != 2:
        raise Malformed("distance_squared is not a pair")
    n, q = (integer(x, "distance_squared") for x in distance)
    if q <= 0 or math.gcd(n, q) != 1:
        raise Malformed("distance_squared is not in lowest terms")
    if not 0 <= column < columns:
        raise Malformed("the isolated column is not one of the M columns")
    return column, read_pairs(pairs, "z", columns), n, q


def read_pairs(pairs: object, name: str, length: int) -> Pairs:
    """A vector of this length by its nonzero entries: (position, value)."""
    if not isinstance(pairs, list) or not 1 <= len(pairs) <= INLINE:
        raise Malformed(f"{name} is not an array of 1 to {INLINE} entries")
    entries, last = [], -1
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Malformed(f"{name} has an entry that is not a pair")
        position, value = integer(pair[0], f"a position of {name}"), integer(pair[1], f"a value of {name}")
        if position <= last or value == 0:
            raise Malformed(f"the positions of {name} do not increase strictly, or a value is 0")
        entries.append((position, value))
        last = position
    if last >= length:
        raise Malformed(f"a position of {name} is not below {figure(length)}")
    return entries


def check_kernel(claim: Claim, kernel: tuple[int, Pairs, int, int], limits: Limits) -> None:
    column, entries, n, q = kernel
    if (top := dict(entries).get(column)) is None:
        raise Stop(f"z is zero at column {figure(column)}")
    if claim.shape.residual:
        missed = sum(x * x for x in routed_product(claim.shape, column, entries, limits).values())
        if missed == 0:
            raise Stop("W_all z of the routed target is zero")
    else:
        missed = top * top
    if n * sum(value * value for _, value in entries) != q * missed:
        raise Stop("distance_squared is not |W_all z|^2 / |z|^2")
    require_kernel(claim, entries, limits)


def routed_product(s: Shape, column: int, z: Pairs, limits: Limits) -> dict[int, int]:
    """W_all z, by its nonzero coordinates, of the target that is routed along the word of a column (section 7)."""
    limits.require(*target_work(s, z, 2 * s.layers + 1, value_bits(z), 1))
    ((layer, ((part, word, coordinate, _),)),) = by_layer(s, [(column, 1)]).items()
    if part < 2:
        word, head = divmod(word, s.heads)
    letters = []  # of the layers layer - 1, ..., 1
    for _ in range(layer - 1):
        word, letter = divmod(word, s.letters)
        letters.append(letter)
    route = [(at, letter - 1) for at, letter in enumerate(reversed(letters), 1) if letter]
    target: Target = {}
    for at, h in route:
        target["W_V", at, h] = target["W_O", at, h] = {0: {0: 1}}
    if part < 2:
        target["W_" + "QK"[part], layer, head] = {0: {coordinate: 1}}
    elif route:
        target["W_O", *route[-1]] = {0: {coordinate: 1}}
    product = target_product(s, target, by_layer(s, z), tied=False)
    if part == 2 and not route and s.d_in != s.d_out:  # W_E picks the coordinate in its row 0
        product[0] = product.get(coordinate, 0)
    return {i: x for i, x in product.items() if i < s.d_in}


def require_kernel(claim: Claim, entries: Pairs, limits: Limits, times: int = 1) -> None:
    """R_all z = 0, exactly. `times`: of how many vectors like this one the work is to be allowed for."""
    s = claim.shape
    limits.require(100 * s.layers, 1000 * s.layers)
    layers = by_layer(s, entries)
    bits = value_bits(entries)
    if (kind := index_kind(claim)) is not None:
        starts = sum(len(found) * (s.letters ** (layer - 1) if kind.spread else 1) for layer, found in layers.items())
        limits.require((300 + bits // 8) * starts, (1500 + bits // 8) * starts * (s.layers + 1) * times)
        zero = index_product_is_zero(kind(s), layers)
    else:
        words = visited(s, entries)
        bits += (s.layers + 1) * (200 if claim.weights is None else 2300) + s.layers * s.m.bit_length()
        drawn = s.layers * s.heads * s.m * (s.m + 2 * s.head_dim) + s.m * s.d_out
        limits.require(
            words * s.m * (40 + bits // 7) + 500 * max(s.m, s.d_out, s.head_dim),
            (drawn * 900 + words * s.m * s.m * (60 + bits // 16)) * times,
        )
        zero = dense_product_is_zero(dense_host(claim), layers)
    if not zero:
        raise Stop("R_all z is not zero")


def visited(s: Shape, entries: Pairs) -> int:
    """At most so many words lie on the way to the entries."""
    return min(len(entries) * (s.layers + 1), s.nodes)


def value_bits(entries: Pairs) -> int:
    return max(abs(value).bit_length() for _, value in entries)


# ----------------------------------------------------------------------------------------------------
# Random points: an equation of polynomials that does not hold fails at one modulo a random prime, but for a probability
# below 2^-100

POINT_PRIME_BITS = 192  # of the random prime: a wrong equation passes below 2^-100 (degrees and heights: section 9.2)


SMALL_PRIMES = math.prod(n for n in range(3, 400) if all(n % k for k in range(2, n)))


class Unlucky(Stop):
    """A matrix is singular at the drawn point."""


def random_prime(bits: int = POINT_PRIME_BITS) -> int:
    """Miller-Rabin with 64 random bases: composite with probability below 2^-120."""
    while True:
        n = secrets.randbits(bits) | 1 << (bits - 1) | 1
        if math.gcd(n, SMALL_PRIMES) > 1:
            continue
        odd = (n - 1) // ((n - 1) & (1 - n))
        twos = ((n - 1) // odd).bit_length() - 1
        for _ in range(64):
            x = pow(2 + secrets.randbelow(n - 3), odd, n)
            if x not in (1, n - 1) and not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
                break
        else:
            return n


def inverse_modulo(matrix: Matrix, q: int) -> Matrix:
    """A drawn matrix is singular with a probability below its size / q."""
    rows = [[*row, *(int(i == j) for j in range(len(matrix)))] for i, row in enumerate(matrix)]
    for column in range(len(rows)):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if pivot is None:
            raise Unlucky("a matrix drawn at random has no inverse")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = pow(rows[column][column], -1, q)
        rows[column] = [x * scale % q for x in rows[column]]
        for i, row in enumerate(rows):
            if i != column and (x := row[column]):
                rows[i] = [(a - x * b) % q for a, b in zip(row, rows[column], strict=True)]
    return [row[len(rows) :] for row in rows]


# ----------------------------------------------------------------------------------------------------
# Tied targets: a target against a kernel vector (section 7), and tied-kernel (section 11)
#
# W_all z = G_0(), where G_L(w) = z_OV(w) and
#     G_{l-1}(w) = sum over h of  W_Q^h z_Q(w,h) + W_K^h z_K(w,h) + W_V^h (W_O^h G_l(w,h)),
# with a residual stream also G_l(w,0).


def target_product(
    s: Shape, target: Target, layers: dict[int, list[Entry]], q: int = 0, tied: bool = True
) -> dict[int, int]:
    """W_all z by its nonzero coordinates, in integers or modulo q."""
    none: dict[int, dict[int, int]] = {}

    def times(matrix: dict[int, dict[int, int]], vector: dict[int, int]) -> dict[int, int]:
        result = {}
        for i, row in matrix.items():
            total = sum(x * vector[j] for j, x in row.items() if j in vector)
            if total := total % q if q else total:
                result[i] = total
        return result

    def include(vector: dict[int, int], more: dict[int, int]) -> None:
        for i, x in more.items():
            vector[i] = vector.get(i, 0) + x

    vectors: dict[int, dict[int, int]] = {}
    for _, word, column, value in layers.get(s.layers + 1, []):
        include(vectors.setdefault(word, {}), {column: value})
    for layer in range(s.layers, 0, -1):
        shorter: dict[int, dict[int, int]] = {}
        at = 0 if tied else layer
        for word, vector in vectors.items():
            parent, letter = divmod(word, s.letters)
            if s.residual and letter == 0:
                include(shorter.setdefault(parent, {}), vector)
                continue
            head = letter - s.residual
            inner = times(target.get(("W_O", at, head), none), vector)
            include(shorter.setdefault(parent, {}), times(target.get(("W_V", at, head), none), inner))
        for part, word, column, value in layers.get(layer, []):
            parent, head = divmod(word, s.heads)
            reader = target.get(("W_" + "QK"[part], at, head), none)
            include(shorter.setdefault(parent, {}), times(reader, {column: value}))
        vectors = shorter
    return {i: x for i, x in vectors.get(0, {}).items() if (x % q if q else x)}


def target_work(s: Shape, entries: Pairs, size: int, bits: int, entry: int) -> tuple[int, int]:
    """(memory, operations) of target_product; numbers grow to `bits`, the target has `size` entries of `entry` bits."""
    words = visited(s, entries)
    kept = min(s.d_out, len(entries)) if s.residual else 0  # what letter 0 carries along
    return words * (400 + (min(size, s.d_in) + kept) * (100 + bits // 7)), (2 * words + len(entries)) * (
        1000 + (size + kept) * (200 + bits // 8 + bits * entry // 500)
    )


def check_tied_target(claim: Claim, target: Target, row: int, z: Pairs, limits: Limits) -> None:
    s = claim.shape
    size = target_size(target)
    entry = max(
        (abs(x).bit_length() for matrix in target.values() for line in matrix.values() for x in line.values()),
        default=0,
    )
    grown = value_bits(z) + (2 * s.layers + 1) * (entry + size.bit_length())
    limits.require(*target_work(s, z, size, grown, entry))
    if row not in target_product(s, target, by_layer(s, z)):
        raise Stop(f"W_all z of this target is zero in row {figure(row)}")
    require_kernel(claim, z, limits)


def random_tied_target(s: Shape, q: int) -> Target:
    sizes = {"W_Q": (s.d_in, s.head_dim), "W_K": (s.d_in, s.head_dim), "W_V": (s.d_in, s.head_dim)}
    sizes["W_O"] = (s.head_dim, s.d_in)
    return {
        (tensor, 0, head): {i: {j: secrets.randbelow(q) for j in range(columns)} for i in range(rows)}
        for tensor, (rows, columns) in sizes.items()
        for head in range(s.heads)
    }


def check_tied_kernel(claim: Claim, basis: list[Pairs], p: int, limits: Limits) -> None:
    s, k = claim.shape, len(basis)
    require_prime(p)
    if s.m < claim.rank:
        raise Stop(f"the rank is at most m = {figure(s.m)} and M - {k} = {figure(claim.rank)}")
    require_matrix(claim, p, limits)
    # the vectors are independent
    support = sorted({position for z in basis for position, _ in z})
    limits.require(
        (4 * k + 64 * PANEL) * len(support) + 200 * k, k * k * len(support) * 20 + 400 * (k + PANEL) * len(support)
    )
    place = {position: at for at, position in enumerate(support)}
    rows = []
    for z in basis:
        row = array(U32, bytes(4 * len(support)))
        for position, value in z:
            row[place[position]] = value % p
        rows.append(row)
    if not rank_reaches(rows, p, k):
        raise Stop(f"the {k} vectors of the basis are not independent modulo {p}")
    # they are annihilated by every target
    limits.require(100 * s.layers, 1000 * (s.layers + sum(map(len, basis))) + 10**8)
    q = random_prime()
    size, bits = 4 * s.heads * s.d_in * s.head_dim, 2 * q.bit_length() + s.m.bit_length()
    estimates = [target_work(s, z, size // s.heads, bits, bits) for z in basis]
    limits.require(
        max(memory for memory, _ in estimates) + size * (150 + bits // 8),
        sum(work for _, work in estimates) + 2000 * size,
    )
    target = random_tied_target(s, q)
    if any(target_product(s, target, by_layer(s, z), q) for z in basis):
        raise Stop("W_all z is not zero for every tied target")
    # they are in the kernel, and nothing else is
    for z in basis:
        require_kernel(claim, z, limits, k)
    if not rank_reaches(dense_matrix(dense_host(claim), p), p, claim.rank):
        raise Stop(f"the rank of R_all modulo {p} is below M - {k} = {claim.rank}")


# ----------------------------------------------------------------------------------------------------
# identity (section 9)


class Register(Tied):
    """Only the register, blocks (1, L, n)."""

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.d_out * s.heads**s.layers

    def trie_width(self) -> int:
        return 0


class TwoSided(IndexHost):
    """Block (n,) is that of the n-th word of length L/2. There is no U."""

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.d_out * s.heads ** (s.layers // 2) if s.layers % 2 == 0 else None

    def move(self, layer: int, head: int, block: Block) -> Step:
        (n,), half = block, self.L // 2
        if layer <= half:  # rows (head, s), columns (s, 0)
            return ((head * self.power[half - 1] + n // self.H,), 0, self.out) if n % self.H == 0 else None
        return ((n // self.H,), 0, self.out) if n % self.H == head else None  # rows (0, s), columns (s, head)

    def first(self, block: Block) -> int:
        return block[0] * self.out

    def extent(self) -> int:
        return self.out * self.power[self.L // 2]

    def place(self, coordinate: int) -> Place | None:
        return ((coordinate // self.out,), coordinate % self.out) if coordinate < self.extent() else None


class Middle(IndexHost):
    """Block (n, i) is the i-th part of the block of the n-th word of length k. There is no U."""

    def __init__(self, shape: Shape, edges: list[tuple[int, int]]) -> None:
        super().__init__(shape)
        self.half, self.parts = self.L // 2, parts(edges)
        self.routes: list[dict[int, list[int]]] = [{} for _ in range(self.H)]  # part of U's side -> parts of E's side
        for head, (i, j) in enumerate(edges):
            self.routes[head][j] = [i]

    def move(self, layer: int, head: int, block: Block) -> Step:
        n, i = block
        if layer == self.half + 1:
            found = self.routes[head].get(i) if n == 0 else None
            return ((0, found[0]), 0, self.out) if found else None
        if layer <= self.half:
            return ((head * self.power[self.half - 1] + n // self.H, i), 0, self.out) if n % self.H == 0 else None
        return ((n // self.H, i), 0, self.out) if n % self.H == head else None

    def first(self, block: Block) -> int:
        return (block[0] * self.parts + block[1]) * self.out

    def extent(self) -> int:
        return self.out * self.parts * self.power[self.half]

    def place(self, coordinate: int) -> Place | None:
        if coordinate >= self.extent():
            return None
        return divmod(coordinate // self.out, self.parts), coordinate % self.out


class Polynomial(Middle):
    """The middle layer multiplies polynomials: head h sends part i of E's side to part h - i of U's side. Its edges are the
    pairs (i, j) in any order."""

    def __init__(self, shape: Shape, _: object = None) -> None:
        left, right = degrees(shape)
        super().__init__(shape, [(left, right)])
        self.routes = [{} for _ in range(self.H)]
        for i in range(left + 1):
            for j in range(right + 1):
                self.routes[i + j][j] = [i]

    @staticmethod
    def least(s: Shape) -> int | None:
        if s.d_in != 1 or s.layers % 2 == 0 or s.heads % 4 == 3:
            return None
        return int((degrees(s)[0] + 1) * s.heads ** (s.layers // 2))


def degrees(s: Shape) -> tuple[int, int]:
    """Degrees of the two factors."""
    return s.heads // 2, (s.heads - 1) // 2


def parts(edges: list[tuple[int, int]]) -> int:
    """q: how many parts a block of `middle` has."""
    return 1 + max(max(edge) for edge in edges)


def tuple_number(counts: Block, total: int) -> int:
    """How many tuples of this length with sum at most `total` come before this one, lexicographically."""
    number = 0
    for later, count in zip(range(len(counts) - 1, -1, -1), counts, strict=True):
        number += math.comb(total + later + 1, later + 1) - math.comb(total - count + later + 1, later + 1)
        total -= count
    return number


def raised(counts: Block, place: int) -> Block:
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


class Counting(IndexHost):
    """Coordinate (c_1, ..., c_{H-1}) is a block of width 1."""

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.counts if s.d_in == 1 else None

    def outputs(self) -> list[Run]:
        return [((0,) * (self.H - 1), 0, 1)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        if head == 0:
            return block, 0, 1
        return (raised(block, head - 1), 0, 1) if sum(block) < self.L else None

    def first(self, block: Block) -> int:
        return tuple_number(block, self.L)


class TwoSidedCounting(Counting):
    """Block (c_1, ..., c_{H-1}), sum at most k = L/2 rounded up. There is no U."""

    tuples: list[Block] = []  # noqa: RUF012

    @staticmethod
    def least(s: Shape) -> int | None:
        if s.d_in != 1 or s.layers == 1:
            return None
        return math.comb((s.layers + 1) // 2 + s.heads - 1, s.heads - 1)

    def move(self, layer: int, head: int, block: Block) -> Step:
        half, origin = (self.L + 1) // 2, (0,) * (self.H - 1)
        if layer <= half:
            if head == 0:
                return block, 0, 1
            return (raised(block, head - 1), 0, 1) if sum(block) < half else None
        below = block if head == 0 else lowered(block, head - 1)  # rows c, columns c raised
        return (below, 0, 1) if below is not None and (layer > half + 1 or below == origin) else None

    def first(self, block: Block) -> int:
        return tuple_number(block, (self.L + 1) // 2)

    def place(self, coordinate: int) -> Place | None:
        if not self.tuples:
            self.tuples = sorted(tuples_up_to(self.H - 1, (self.L + 1) // 2))
        return (self.tuples[coordinate], 0) if coordinate < len(self.tuples) else None


def lowered(counts: Block, place: int) -> Block | None:
    return (*counts[:place], counts[place] - 1, *counts[place + 1 :]) if counts[place] else None


class CommutingTrie(Counting):
    """Blocks (0, g, c_0, ..., c_{H-1}) of the trie, then the coordinates (1, c_1, ..., c_{H-1}) of Counting."""

    @staticmethod
    def trie_size(s: Shape) -> int:
        return 2 * s.head_dim * s.heads * math.comb(s.layers - 1 + s.heads, s.heads)

    @staticmethod
    def least(s: Shape) -> int | None:
        return CommutingTrie.trie_size(s) + s.counts if s.d_in == 1 else None

    def reads(self, part: int, layer: int, head: int) -> list[Run]:
        return [((0, head, *(0,) * self.H), part * self.d, self.d)]

    def outputs(self) -> list[Run]:
        return [((1, *(0,) * (self.H - 1)), 0, 1)]

    def move(self, layer: int, head: int, block: Block) -> Step:
        if block[0] == 0:
            return (raised(block, 2 + head), 0, 2 * self.d) if sum(block[2:]) < self.L - 1 else None
        step = super().move(layer, head, block[1:])
        return None if step is None else ((1, *step[0]), 0, 1)

    def first(self, block: Block) -> int:
        if block[0] == 0:
            return 2 * self.d * (tuple_number(block[2:], self.L - 1) * self.H + block[1])
        return self.trie_size(self.s) + tuple_number(block[1:], self.L)


INVERTIBLE = "untied with invertible M^(l,0)"
INVERTIBLE_MIDDLE = "untied with invertible M^(k+1,h)"
TARGETS = ("all untied", "all tied", INVERTIBLE, INVERTIBLE_MIDDLE)
GENERIC = ("generic untied", "generic tied")
TIED = (TARGETS[1], GENERIC[1])


@dataclass(frozen=True)
class Identity:
    """What a construction's certificates of this kind can say."""

    host: type[IndexHost]
    notion: str
    targets: tuple[str, ...]
    free: str = ""


IDENTITIES = {
    "shared-key": Identity(SharedKey, "attention-matching", ("all untied",)),
    "shared-query": Identity(SharedQuery, "attention-matching", ("all untied", INVERTIBLE)),
    "commuting-trie": Identity(CommutingTrie, "matching", ("all tied",)),
    "register": Identity(Register, "shared attention", ("all untied",), "E"),
    "two-sided": Identity(TwoSided, "shared attention", ("all untied",), "E and U"),
    "counting": Identity(Counting, "shared attention", ("all tied",), "E"),
    "middle": Identity(Middle, "shared attention", ("all untied", INVERTIBLE_MIDDLE), "E and U"),
    "polynomial": Identity(Polynomial, "shared attention", ("all untied",), "E and U"),
    "two-sided-counting": Identity(TwoSidedCounting, "shared attention", ("all tied",), "E and U"),
}
FUNCTIONAL = Identity(SharedQuery, "functional", ("all untied",))  # of shared-query at H = d_in = 1

Letter = tuple[str, int, int, bool, bool]  # (M, A, Q or K; layer, 0 for tied targets; head; transposed; inverse)
Word = tuple[Letter, ...]
LETTER = re.compile(r"([MAQKPU])([1-9][0-9]*)?\.(0|[1-9][0-9]*)(T|I|IT)?", re.ASCII)


def read_letter(text: object, claim: Claim) -> Letter:
    found = LETTER.fullmatch(text) if isinstance(text, str) else None
    factor = found is not None and found[1] in "PU"  # a coefficient of one of the two polynomials
    if found is None or (found[2] is None) != (claim.targets == "all tied" or factor):
        raise Malformed(f"{quote(text)} is not a letter")
    if len(found[0]) > MAX_DIGITS:
        raise OverLimit(f"a letter has {len(found[0])} characters, allowed are {MAX_DIGITS}")
    name, layer, head, suffix = found[1], decimal(found[2] or "0"), decimal(found[3]), found[4] or ""
    if factor:
        most = degrees(claim.shape)[name == "U"]
        if suffix or claim.construction != "polynomial" or head > most:
            raise Malformed(f"the letter {quote(text)} is not for {claim.construction}")
        return name, 0, head, False, False
    if layer > claim.shape.layers or head >= claim.shape.heads:
        raise Malformed(f"the letter {quote(text)} names no layer and head of the target")
    if name in "QK" and (suffix or claim.construction != "commuting-trie"):
        raise Malformed(f"the letter {quote(text)} is not for {claim.construction}")
    if "I" in suffix:
        middle = claim.construction == "middle" and layer == claim.shape.layers // 2 + 1
        if name != "M" or not (middle or (claim.construction == "shared-query" and head == 0)):
            raise Malformed(f"the letter {quote(text)} is an inverse that is not allowed")
    return name, layer, head, "T" in suffix, "I" in suffix


class Blocks:
    """The blocks of E (columns of width d_in, or d after Q or K) or of U (rows)."""

    def __init__(self, value: object, what: str, claim: Claim) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.words: list[Word] = []
        self.inverses = False
        if not isinstance(value, list):
            raise Malformed(f"{what} is not an array of blocks")
        letters: dict[str, Letter] = {}
        end = 0
        for block in value:
            if not isinstance(block, list) or len(block) != 2 or not isinstance(block[1], list):
                raise Malformed(f"{what} has a block that is not a pair of a start and a word")
            start = integer(block[0], f"a start in {what}")
            word: list[Letter] = []
            for text in block[1]:
                letter = letters.get(text) if isinstance(text, str) else None
                if letter is None:
                    letters[text] = letter = read_letter(text, claim)
                if word and word[-1][0] in "QKP":
                    raise Malformed(f"{what} has a word that goes on after {word[-1][0]}")
                if (letter[0] in "PU" and letter[0] != "PU"[what == "U"]) or (letter[0] == "U" and word):
                    raise Malformed(f"{what} has a word with the letter {text}")
                self.inverses |= letter[4]
                word.append(letter)
            if start < end:
                raise Malformed(f"the blocks of {what} overlap or do not increase")
            end = start + (claim.shape.head_dim if word and word[-1][0] in "QK" else claim.shape.d_in)
            self.starts.append(start)
            self.ends.append(end)
            self.words.append(tuple(word))
        if end > claim.shape.m:
            raise Malformed(f"a block of {what} does not end below m")


Runs = dict[Run, int]  # the sum of what the runs stand for, with coefficients
Vector = list[int]


class WordPoint:
    """A target drawn at random modulo a prime q, and products of row vectors with its matrices."""

    def __init__(self, claim: Claim, q: int) -> None:
        self.claim, self.q = claim, q
        self.drawn: dict[tuple[str, int, int], Matrix] = {}
        self.inverses: dict[tuple[str, int, int], Matrix] = {}

    def matrix(self, name: str, layer: int, head: int) -> Matrix:
        key, s = (name, layer, head), self.claim.shape
        if (known := self.drawn.get(key)) is not None:
            return known
        if self.claim.construction == "polynomial" and name == "M" and layer == s.layers // 2 + 1:
            left, right = degrees(s)  # the coefficient of a product of two polynomials
            pairs = [(i, head - i) for i in range(left + 1) if 0 <= head - i <= right]
            found = [[sum(self.matrix("P", 0, i)[0][0] * self.matrix("U", 0, j)[0][0] for i, j in pairs) % self.q]]
        else:
            columns = s.head_dim if name in "QK" else s.d_in
            found = [[secrets.randbelow(self.q) for _ in range(columns)] for _ in range(s.d_in)]
        return self.drawn.setdefault(key, found)

    def times(self, x: Vector, letter: Letter) -> Vector:
        """The row vector times a letter."""
        name, layer, head, turned, inverse = letter
        matrix = self.matrix(name, layer, head)
        if inverse:
            known = self.inverses.get((name, layer, head))
            matrix = self.inverses[name, layer, head] = known or inverse_modulo(matrix, self.q)
        columns = matrix if turned else zip(*matrix, strict=True)
        return [sum(map(mul, x, column)) % self.q for column in columns]

    def row(self, x: Vector, word: Word) -> Vector:
        return reduce(self.times, word, x)

    def column(self, word: Word, y: Vector) -> Vector:
        """The word times a column vector."""
        turned = [(name, layer, head, not transposed, inverse) for name, layer, head, transposed, inverse in word]
        return reduce(self.times, reversed(turned), y)

    def weighted(self, x: Vector, weights: Matrix) -> Vector:
        """x times the sum of all M_w with the weights of their words."""
        tied = self.claim.targets == "all tied"
        for layer, numbers in enumerate(weights, 1):
            moved = (self.times(x, ("M", 0 if tied else layer, h, False, False)) for h in range(len(numbers)))
            x = [sum(map(mul, numbers, entries)) % self.q for entries in zip(*moved, strict=True)]
        return x


def weighted_words(host: IndexHost, runs: Runs, weights: Matrix, q: int) -> Runs:
    """The sum of all R_w, with the weights of their words, times what the runs stand for."""
    for layer in range(len(weights), 0, -1):
        moved: Runs = {}
        for (block, offset, width), value in runs.items():
            for head, weight in enumerate(weights[layer - 1]):
                target, shift, limit = host.move(layer, head, block) or (block, 0, 0)
                if limit > offset:
                    run = target, offset + shift, min(width, limit - offset)
                    moved[run] = (moved.get(run, 0) + weight * value) % q
        runs = moved
    return runs


def check_identity(claim: Claim, e: Blocks, u: Blocks | None, limits: Limits) -> None:
    """All words at once, at a random point. The letters of each layer are added up with weights, whose products are
    different monomials for different words, so an equation of polynomials in the weights, in the target's entries, and in
    those of vectors that all is multiplied with, holds if and only if it holds for each word. Where inverses occur,
    denominators are thought multiplied out: it holds for all targets that have them.

    A polynomial of degree D that is not zero modulo q vanishes at a random point with probability at most D/q. With n
    letters in the longest word D is below (2 n + 4 L + 4) (d_in + 1) + 4 L. Its coefficients have less than D (3 + log2
    d_in) d_in + 2 log2 m bits, so that a random prime of 192 bits divides one that is not zero with probability below that
    number / 2^183. A file has fewer than 2^26 letters and d_in fewer than 2^26: both together are far below 2^-100."""
    s = claim.shape
    inverses = e.inverses or (u is not None and u.inverses)
    # functional, H = d_in = 1: where an M^{l,0} has no inverse the target is zero, and E = 0 serves it
    if claim.notion != "functional" and inverses != (claim.targets in (INVERTIBLE, INVERTIBLE_MIDDLE)):
        raise Stop(f'{"inverses occur" if inverses else "no inverse occurs"}, and the targets are "{claim.targets}"')
    require_identity(claim, e, u, limits)
    host, q = identity_host(claim), random_prime()
    point = WordPoint(claim, q)

    def draw(count: int) -> Vector:
        return [secrets.randbelow(q) for _ in range(count)]

    def embedded(x: Vector) -> dict[int, int]:
        """x E, by coordinate."""
        rows = ((start, point.row(x, word)) for start, word in zip(e.starts, e.words, strict=True))
        return {start + j: value for start, row in rows for j, value in enumerate(row)}

    def read(E: dict[int, int], runs: Runs, weights: Matrix) -> Vector:
        """E times the sum of all R_w with weights times what the runs stand for; what lies beyond is zero."""
        result = [0] * max((width for *_, width in runs), default=0)
        for (block, offset, limit), value in weighted_words(host, runs, weights, q).items():
            start = host.first(block) + offset
            for j in range(limit):
                result[j] = (result[j] + value * E.get(start + j, 0)) % q
        return result

    x, y, right = draw(s.d_in), draw(s.d_in), draw(s.d_out)
    first, second = ([draw(s.heads) for _ in range(s.layers)] for _ in "xy")
    E, F = embedded(x), embedded(y)
    for layer in range(1, s.layers + 1) if claim.notion != "shared attention" else ():
        before, other = first[: layer - 1], second[: layer - 1]
        for head in range(s.heads):
            query = read(E, dict.fromkeys(host.reads(0, layer, head), 1), before)
            key = read(F, dict.fromkeys(host.reads(1, layer, head), 1), other)
            m_x, m_y = point.weighted(x, before), point.weighted(y, other)
            if claim.notion == "matching":
                good = query == point.times(m_x, ("Q", 0, head, False, False))
                good = good and key == point.times(m_y, ("K", 0, head, False, False))
            else:
                a = ("A", 0 if claim.targets == "all tied" else layer, head, False, False)
                good = (sum(map(mul, query, key)) - sum(map(mul, point.times(m_x, a), m_y))) % q == 0
            if not good:
                raise Stop(f"the queries and keys of layer {layer}, head {head} are not what the target demands")
    if u is None:
        outputs = read(E, dict.fromkeys(host.outputs(), 1), first)
    else:
        rows: Runs = {}  # U times `right`
        for start, word in zip(u.starts, u.words, strict=True):
            for j, value in enumerate(point.column(word, right)):
                if (place := host.place(start + j)) is not None:
                    rows[*place, 1] = value
        outputs = read(E, rows, first) or [0]
    wanted = point.weighted(x, first)
    if outputs != (wanted if u is None else [sum(map(mul, wanted, right)) % q]):
        raise Stop("the outputs are not what the target demands")


def require_identity(claim: Claim, e: Blocks, u: Blocks | None, limits: Limits) -> None:
    s, every = claim.shape, claim.shape.layers * claim.shape.heads
    pulls = 1 if claim.notion == "shared attention" else 2 * every + 1
    limits.require(400 * every, 3000 * pulls * every)  # from here on the layers are not too many for a list
    runs = identity_host(claim).extent()
    moves = every * runs
    if u is None:  # a reader's run goes to no more places than there are words
        runs = min(runs, s.heads**s.layers)
        moves = min(moves, 4 * s.heads**s.layers if s.heads > 1 else s.layers)
    width = max(s.d_in, s.head_dim) if claim.construction == "commuting-trie" else s.d_in
    letters = sum(1 + len(word) for blocks in (e, u) if blocks for word in blocks.words)
    numbers = 2 * len(e.words) * width + every * (3 * s.d_in * width + 8) + (len(u.words) * s.d_in if u else 0)
    limits.require(numbers * 150 + 500 * runs, 3000 * pulls * moves + 10**8)
    work = (2 * letters + 2 * pulls * every) * s.d_in * width * 150 + pulls * runs * width * 400
    limits.require(0, work + 3000 * pulls * moves + every * s.d_in**3 * 150 * e.inverses + 10**8)


def followed(host: IndexHost, depth: int, runs: list[Run]) -> Iterator[tuple[int, Run]]:
    """R_w x for the one run x of a reader and every word w of length `depth`, as (number of w, the run). One that is zero
    stops the check. Words share the work on their common endings, and few are held at a time."""
    if len(runs) != 1:
        raise Stop("some query, key or output reads more than one run")
    waiting = [(depth, 0, *runs[0])]
    while waiting:
        layer, word, block, offset, width = waiting.pop()
        if layer == 0:
            yield word, (block, offset, width)
            continue
        for head in range(host.H):
            target, shift, limit = host.move(layer, head, block) or (block, 0, 0)
            if limit <= offset:
                raise Stop("some query, key or output reads nothing of E")
            number = head * host.power[depth - layer] + word  # of (head, w)
            waiting.append((layer - 1, number, target, offset + shift, min(width, limit - offset)))


def check_standard(claim: Claim, limits: Limits) -> None:
    """The standard embedding: block i holds the columns b i, ..., b i + b - 1 and a word that is known from i, for
    `register` M_w, w the i-th word of length L; for `shared-key` M_w A^{l,h} for the words (w,h) of length 1 ... L, then M_w
    for those of length 0 ... L; for `shared-query` M_w A^{l,h}^T (M^{l,0} ... M^{L,0})^-T, then M_w for those of length L.

    With x = M_w A, y = M_v; or x = M_w M^{l,0} ... M^{L,0}, y = M_v A^T (M^{l,0} ... M^{L,0})^-T, x y^T = M_w A M_v^T. So
    each reader demands one word, which stands in one block, and the number of the block that it reads has to be that
    block's."""
    s, name = claim.shape, claim.construction
    keyed = name == "shared-query"
    if claim.notion != "functional" and keyed != (claim.targets == INVERTIBLE):
        raise Stop(f'{"inverses occur" if keyed else "no inverse occurs"}, and the targets are "{claim.targets}"')
    every, longest = s.words(s.layers), s.heads**s.layers
    # words of length 1 ... l - 1 for each reader of layer l, and those of length 1 ... L; and each word's end
    shorter = s.layers * (s.layers - 1) // 2 if s.heads == 1 else (every - s.layers * s.heads) // (s.heads - 1)
    moves = every + longest + (0 if name == "register" else 2 * (s.heads * shorter + every))
    limits.require(10**5 + 600 * s.heads * s.layers, 3000 * moves)
    host = identity_host(claim)
    first = 0 if name == "register" else every  # block of the first word of the register, or of the key trie
    powers = [s.heads**t for t in range(s.layers + 1)]

    def read(part: str, wanted: int, run: Run, layer: int = 0, head: int = 0) -> None:
        block, offset, width = run
        start = host.first(block) + offset
        if start != wanted * s.d_in or width != s.d_in:
            at = f" at layer {layer}, head {head}" if layer else ""
            raise Stop(
                f"{part}{at} reads {figure(width)} coordinates from {figure(start)} on, not block {figure(wanted)} of E"
            )

    for layer in range(1, s.layers + 1) if first else ():
        before, after = s.words(layer - 1), powers[s.layers - layer + 1]
        for head in range(s.heads):
            for word, run in followed(host, layer - 1, host.reads(0, layer, head)):
                read("the query", first + word * after if keyed else before + word * s.heads + head, run, layer, head)
            # w is the word number 1 + (H + ... + H^(l-2)) + w of length 0 ... L, the empty one number 0
            for word, run in followed(host, layer - 1, host.reads(1, layer, head)):
                shared = first + (1 + s.words(layer - 2) + word if layer > 1 else 0)
                read("the key", before + word * s.heads + head if keyed else shared, run, layer, head)
    if name == "shared-key":
        first += 1 + s.words(s.layers - 1)
    for word, run in followed(host, s.layers, host.outputs()):
        read("the output", first + word, run)


def identity_host(claim: Claim) -> IndexHost:
    kind = IDENTITIES[claim.construction].host
    return Middle(claim.shape, list(claim.edges)) if kind is Middle else kind(claim.shape)


def tuples_up_to(length: int, total: int) -> list[Block]:
    """Tuples of this length of integers >= 0 with sum at most `total`."""
    found: list[Block] = [()]
    for _ in range(length):
        found = [(*c, more) for c in found for more in range(total - sum(c) + 1)]
    return found


def read_identity(claim: Claim, evidence: object, limits: Limits) -> Callable[[], None]:
    values = record(evidence, "evidence", "E", *(["U"] if claim.free == "E and U" else []))
    if claim.construction in DRAWN:
        choice(values[0], "E", STANDARD)
        return lambda: check_drawn(claim, limits)
    if values[0] == STANDARD and claim.construction in ("register", "shared-key", "shared-query"):
        return lambda: check_standard(claim, limits)
    e, *u = (Blocks(value, name, claim) for value, name in zip(values, "EU", strict=False))
    return lambda: check_identity(claim, e, u[0] if u else None, limits)


# ----------------------------------------------------------------------------------------------------
# identity of a rational embedding, at a drawn point (section 9.2)

Residues: TypeAlias = list[list[int]]
Columns: TypeAlias = list[list[int]]  # of a reader: the coordinates that each of them adds up


class Point:
    """A target drawn modulo p, all of its entries at random; a tied one repeats its first layer."""

    def __init__(self, s: Shape, tied: bool) -> None:
        self.p, self.s = random_prime(POINT_PRIME_BITS), s
        b, d = s.d_in, s.head_dim
        sizes = ((b, d), (b, d), (b, d), (d, b))
        rows = [
            [[self.random(*size) for size in sizes] for _ in range(s.heads)] for _ in range(1 if tied else s.layers)
        ]
        self.heads = rows * s.layers if tied else rows
        self.values = [[self.times(head[2], head[3]) for head in row] for row in self.heads]
        self.prefixes = [[self.identity(b)]]  # M_w by length, in lexicographic order; letter 0 is the stream
        for row in self.values:
            longer = []
            for x in self.prefixes[-1]:
                longer += [x] * s.residual + [self.times(x, value) for value in row]
            self.prefixes.append(longer)

    def random(self, rows: int, columns: int) -> Residues:
        return [[secrets.randbelow(self.p) for _ in range(columns)] for _ in range(rows)]

    @staticmethod
    def identity(n: int) -> Residues:
        return [[int(i == j) for j in range(n)] for i in range(n)]

    def times(self, x: Residues, y: Residues) -> Residues:
        columns = list(zip(*y, strict=True))
        return [[sum(map(mul, row, column)) % self.p for column in columns] for row in x]

    def combine(self, x: Residues, y: Residues, sign: int) -> Residues:
        return [[(a + sign * b) % self.p for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)]

    def inverse(self, x: Residues) -> Residues:
        return inverse_modulo(x, self.p)

    def gauges(self, layer: int, group: list[int], u: Residues, front: Residues | None = None) -> list[Residues]:
        """G of each head of a group whose last one reads u and the others' blocks: q (-G, ..., -G, G) = u, q the W_Q side by
        side, multiplied by `front` first where there is one."""
        q = [list(chain(*rows)) for rows in zip(*(self.heads[layer][h][0] for h in group), strict=True)]
        if front is not None:
            q, u = self.times(front, q), self.times(front, u)
        turned = list(map(list, zip(*q, strict=True)))
        stacked = self.times(turned, self.times(self.inverse(self.times(q, turned)), u))
        d = self.s.head_dim
        parts = [stacked[k * d : (k + 1) * d] for k in range(len(group))]
        return [*([[-x % self.p for x in row] for row in part] for part in parts[:-1]), parts[-1]]

    def readers(self, layer: int, gauges: dict[int, Residues]) -> tuple[list[Residues], list[Residues]]:
        """W_Q G and W_K G^-T of every head."""
        queries, keys = [], []
        for h, (w_q, w_k, *_) in enumerate(self.heads[layer]):
            if h in gauges:
                inverse = self.inverse(gauges[h])
                w_q, w_k = self.times(w_q, gauges[h]), self.times(w_k, list(map(list, zip(*inverse, strict=True))))
            queries.append(w_q)
            keys.append(w_k)
        return queries, keys


class Drawn:
    """A host whose embedding is a rational function of the target."""

    tied = False

    def __init__(self, s: Shape) -> None:
        self.s, self.end = s, 0
        self.blocks: dict[Any, tuple[int, int]] = {}

    @staticmethod
    def least(s: Shape) -> int | None:
        """The least embedding dimension; None where the host is not defined."""
        raise NotImplementedError

    def add(self, name: Any, width: int) -> None:
        self.blocks[name] = (self.end, width)
        self.end += width

    def columns(self, names: Iterable[Any], width: int) -> Columns:
        """Of the sum of these blocks: column c adds up their coordinates c."""
        found = [self.blocks[name] for name in names if name in self.blocks]
        return [[first + c for first, wide in found if c < wide] for c in range(width)]

    def reads(self, part: int, layer: int, head: int) -> Columns:
        raise NotImplementedError

    def outputs(self) -> Columns:
        raise NotImplementedError

    def source(self, layer: int, head: int, name: Any) -> Any:
        """The block that R_V sends to this one."""
        raise NotImplementedError

    def move(self, layer: int, head: int) -> dict[int, int]:
        """R_V: which coordinate each column takes, if any."""
        found: dict[int, int] = {}
        for name, (first, width) in self.blocks.items():
            source = self.blocks.get(self.source(layer, head, name))
            if source is not None:
                found |= {first + c: source[0] + c for c in range(width)}
        return found

    def embed(self, point: Point) -> dict[Any, Residues]:
        """What E has in each block."""
        raise NotImplementedError


def full_groups(heads: int, size: int) -> list[list[int]]:
    return [list(range(i, i + size)) for i in range(0, heads - size + 1, size)]


class SharedQueryGroups(Drawn):
    """Blocks ("K", w), ("Q", w), ("R", w) of the key trie, the query trie and the register; words are tuples of heads."""

    tied = True

    def __init__(self, s: Shape) -> None:
        super().__init__(s)
        size = -(-s.d_in // s.head_dim)
        first, later = full_groups(s.heads, size), full_groups(s.heads, min(size, s.heads))
        self.groups = [first, *([later] * (s.layers - 1))]
        for part in "KQ":
            for length in range(1, s.layers + 1):
                last = {group[-1] for group in self.groups[length - 1]} if part == "Q" else set()
                for w in all_words(s.heads, length):
                    if w[-1] not in last:
                        self.add((part, w), s.head_dim)
        for w in all_words(s.heads, s.layers):
            self.add(("R", w), s.d_in)

    @staticmethod
    def least(s: Shape) -> int | None:
        if s.head_dim > s.d_in:
            return None
        size = -(-s.d_in // s.head_dim)
        saved = s.heads // size + s.heads // min(size, s.heads) * s.words(s.layers - 1)
        return s.d_in * s.heads**s.layers + s.head_dim * (2 * s.words(s.layers) - saved)

    def reads(self, part: int, layer: int, head: int) -> Columns:
        group = next((group for group in self.groups[-1] if group[-1] == head), None)
        names = [("Q", (head,))] if group is None else [("R", (0,) * self.s.layers), *(("Q", (x,)) for x in group)]
        return self.columns([("K", (head,))] if part else names, self.s.head_dim)

    def outputs(self) -> Columns:
        return self.columns([("R", (0,) * self.s.layers)], self.s.d_in)

    def source(self, layer: int, head: int, name: Any) -> Any:
        kind, w = name
        return (kind, (head, *(w[:-1] if kind == "R" else w)))

    def embed(self, point: Point) -> dict[Any, Residues]:
        s = self.s
        found: dict[Any, Residues] = {}
        later = point.identity(s.d_in)
        for layer in reversed(range(s.layers)):
            later = point.times(point.values[layer][0], later)  # Y_l
            u = [row[: s.head_dim] for row in later]
            gauges: dict[int, Residues] = {}
            for group in self.groups[layer]:
                short = s.head_dim * len(group) < s.d_in
                front = list(chain(*(head[3] for head in point.heads[layer - 1]))) if short else None
                gauges |= dict(zip(group, point.gauges(layer, group, u, front), strict=True))
            queries, keys = point.readers(layer, gauges)
            held = list(queries)
            for group in self.groups[-1] if layer == 0 and not self.groups[0] else []:
                missing = point.combine(queries[group[-1]], u, -1)
                for x in group[:-1]:
                    missing = point.combine(missing, queries[x], -1)
                held[group[-1]] = missing
            for w, product in zip(all_words(s.heads, layer), point.prefixes[layer], strict=True):
                for h in range(s.heads):
                    found["K", (*w, h)] = point.times(product, keys[h])
                    if ("Q", (*w, h)) in self.blocks:
                        found["Q", (*w, h)] = point.times(product, held[h])
        words = all_words(s.heads, s.layers)
        return found | {("R", w): product for w, product in zip(words, point.prefixes[-1], strict=True)}


class ResidualReaders(Drawn):
    """Blocks (reader, l, w) for the words w of length l - 1 over 0 ... H, then the outputs ("O", L + 1, w)."""

    width = 0
    readers: list[Any]

    def lay(self, readers: list[Any], width: int) -> None:
        self.readers, s = readers, self.s
        for length in range(s.layers):
            for w in all_words(s.letters, length):
                for reader in readers:
                    self.add((reader, w), width)
        for w in all_words(s.letters, s.layers):
            self.add(("O", w), s.d_in)

    def outputs(self) -> Columns:
        return self.columns([("O", (0,) * self.s.layers)], self.s.d_in)

    def source(self, layer: int, head: int, name: Any) -> Any:
        kind, w = name
        return (kind, (*w[: layer - 1], head + 1, *w[layer:])) if len(w) >= layer and w[layer - 1] == 0 else None

    def filled(self, point: Point, readers: Callable[[int], list[Residues]]) -> dict[Any, Residues]:
        s = self.s
        found: dict[Any, Residues] = {}
        for layer in range(s.layers):
            held = readers(layer)
            for w, product in zip(all_words(s.letters, layer), point.prefixes[layer], strict=True):
                found |= {(r, w): point.times(product, x) for r, x in zip(self.readers, held, strict=True)}
        words = all_words(s.letters, s.layers)
        return found | {("O", w): product for w, product in zip(words, point.prefixes[-1], strict=True)}


class ResidualKey(ResidualReaders):
    def __init__(self, s: Shape) -> None:
        super().__init__(s)
        self.lay([("Q", h) for h in range(s.heads)], s.d_in)

    @staticmethod
    def least(s: Shape) -> int | None:
        return s.d_in * (2 * s.leaves - 1) if s.head_dim >= s.d_in else None

    def reads(self, part: int, layer: int, head: int) -> Columns:
        name = ("O", (0,) * self.s.layers) if part else (("Q", head), (0,) * (layer - 1))
        return self.columns([name], self.s.head_dim)

    def embed(self, point: Point) -> dict[Any, Residues]:
        def readers(layer: int) -> list[Residues]:
            return [point.times(w_q, list(map(list, zip(*w_k, strict=True)))) for w_q, w_k, *_ in point.heads[layer]]

        return self.filled(point, readers)


class ResidualQuery(ResidualReaders):
    def __init__(self, s: Shape) -> None:
        super().__init__(s)
        self.groups = full_groups(s.heads, -(-s.d_in // s.head_dim))
        self.last = {group[-1]: group for group in self.groups}
        keys = [("K", h) for h in range(s.heads)]
        self.lay(keys + [("Q", h) for h in range(s.heads) if h not in self.last], s.head_dim)

    @staticmethod
    def least(s: Shape) -> int | None:
        if s.head_dim > s.d_in:
            return None
        saved = s.heads // -(-s.d_in // s.head_dim)
        return s.d_in * s.leaves + s.head_dim * (2 * s.heads - saved) * ((s.leaves - 1) // s.heads)

    def reads(self, part: int, layer: int, head: int) -> Columns:
        w = (0,) * (layer - 1)
        names = [("O", (0,) * self.s.layers), *((("Q", x), w) for x in self.last.get(head, [])[:-1])]
        own = [(("K" if part else "Q", head), w)]
        return self.columns(names if head in self.last and not part else own, self.s.head_dim)

    def embed(self, point: Point) -> dict[Any, Residues]:
        d, unit = self.s.head_dim, point.identity(self.s.d_in)

        def readers(layer: int) -> list[Residues]:
            gauges: dict[int, Residues] = {}
            for group in self.groups:
                found = point.gauges(layer, group, [row[:d] for row in unit])
                gauges |= dict(zip(group, found, strict=True))
            queries, keys = point.readers(layer, gauges)
            return [(keys if part == "K" else queries)[h] for part, h in self.readers]

        return self.filled(point, readers)


class SymmetricKeys(Drawn):
    """d_in = 1. Numbers a, u, g and s of E, one by one; what stands where after the first letter is `after`."""

    def __init__(self, s: Shape) -> None:
        super().__init__(s)
        H, L = s.heads, s.layers
        self.e = e = min(s.head_dim, H)
        between = [(w, layer) for layer in range(2, L + 1) for w in all_words(H, layer - 2)]
        states: list[Any] = [
            ("Q", layer, h, w, c) for layer in range(2, L + 1) for h in range(H) for w in all_words(H, layer - 2)
            for c in range(e)
        ]  # fmt: skip
        states += [("K", v, c) for v in all_words(H, L - 2) for c in range(e)]
        states += [("O", v, k) for v in all_words(H, L - 2) for k in range(1, H)]
        self.after = {name: i for i, name in enumerate(states)}
        self.after |= {("O", v, 0): self.after["K", v, 0] for v in all_words(H, L - 2)}
        numbers: list[Any] = [("a", h) for h in range(H)] + [("u", w) for w in all_words(H, L)]
        for layer in range(2, L + 1):
            for h in range(H):
                for w, at in between:
                    if at == layer:
                        numbers += [("g", layer, h, w, -1), *(("g", layer, h, w, i) for i in range(e, H))]
        numbers += [("s", v, c, j) for v in all_words(H, L - 2) for c in range(1, e) for j in range(c, H)]
        places: dict[Any, int] = {}
        if L == 2:
            places = {("a", h): self.after["Q", 2, h, (), 0] for h in range(H)} | {
                ("u", (0, 0)): self.after["K", (), 0]
            }
        free = iter(sorted(set(range(len(numbers))) - set(places.values())))
        self.blocks = {name: (places[name] if name in places else next(free), 1) for name in numbers}

    @staticmethod
    def least(s: Shape) -> int | None:
        raise NotImplementedError

    def at(self, *name: Any) -> int:
        return self.blocks[name][0]

    def move(self, layer: int, head: int) -> dict[int, int]:
        H, L, e = self.s.heads, self.s.layers, self.e
        if layer > 1:
            return self.later(layer, head)
        found = {}
        for name, place in self.after.items():
            if name[0] == "Q" and name[4] == min(head, e - 1):
                found[place] = self.at("g", name[1], name[2], name[3], -1 if head < e else head)
            elif name[0] == "K":
                low, high = min(head, name[2]), max(head, name[2])
                found[place] = self.at("s", name[1], low, high) if low else self.at("u", (high, *name[1], 0))
            elif name[0] == "O":
                found[place] = self.at("u", (head, *name[1], name[2]))
        if L == 2:
            found[e * H + e + H - 1] = self.after["O", (), head]
        return found

    def later(self, layer: int, head: int) -> dict[int, int]:
        raise NotImplementedError

    def embed(self, point: Point) -> dict[Any, Residues]:
        s, p, e = self.s, point.p, self.e
        M = [[value[0][0] for value in row] for row in point.values]
        A = [[sum(map(mul, head[0][0], head[1][0])) % p for head in row] for row in point.heads]
        if not all((*M[0][:e], *(row[0] for row in M))):
            raise Unlucky

        def along(word: tuple[int, ...], first: int) -> int:
            value = 1
            for layer, head in enumerate(word, first):
                value = value * M[layer][head] % p
            return value

        alpha = M[-1][0] * pow(M[0][0], -1, p) % p
        found: dict[Any, int] = {}
        for name in self.blocks:
            if name[0] == "u":
                found[name] = along(name[1], 0)
            elif name[0] == "s":
                found[name] = alpha * M[0][name[2]] * M[0][name[3]] * along(name[1], 1) % p
            elif name[0] == "g":
                _, layer, h, w, i = name
                scale = alpha * along((0,) * (s.layers - layer), layer - 1) % p
                ratio = 1 if i < 0 else M[0][i] * pow(M[0][e - 1], -1, p)
                found[name] = A[layer - 1][h] * along(w, 1) * ratio * pow(scale, -1, p) % p
        held = {self.blocks[name][0]: value for name, value in found.items()}
        first = pow(found["u", (0,) * s.layers], -1, p)
        for h in range(s.heads):
            queries, keys = self.reads(0, 1, h), self.reads(1, 1, h)
            rest = (
                sum(held[i] * held[j] for [i], [j] in zip(queries[1:e], keys[1:e], strict=True)) if s.layers == 2 else 0
            )
            found["a", h] = (A[0][h] - rest) * first % p
        return {name: [[value]] for name, value in found.items()}


class SymmetricKeysShallow(SymmetricKeys):
    """L = 2, tied."""

    tied = True

    @staticmethod
    def least(s: Shape) -> int | None:
        H, e = s.heads, min(s.head_dim, s.heads)
        return 2 * H**2 + H - e * (e - 1) // 2 if s.d_in == 1 and s.layers == 2 and e > 1 else None

    def later(self, layer: int, head: int) -> dict[int, int]:
        return self.move(1, head)

    def reads(self, part: int, layer: int, head: int) -> Columns:
        names = [("K", (), c) if part else ("Q", 2, head, (), c) for c in range(self.e)]
        return [[self.after[name]] for name in names] + [[] for _ in range(self.s.head_dim - self.e)]

    def outputs(self) -> Columns:
        return [[self.e * self.s.heads + self.e + self.s.heads - 1]]


class SymmetricKeysDeep(SymmetricKeys):
    """L >= 3, untied."""

    @staticmethod
    def least(s: Shape) -> int | None:
        H, L, e = s.heads, s.layers, min(s.head_dim, s.heads)
        if s.d_in > 1 or L < 3 or e < 2:
            return None
        shorter = s.words(L - 1)
        held = H**L + H + shorter * (H - e + 1) + H ** (L - 2) * (H * (e - 1) - e * (e - 1) // 2)
        return max(held, shorter * e + H ** (L - 2) * (e + H - 1))

    def later(self, layer: int, head: int) -> dict[int, int]:
        if layer == self.s.layers:
            return {0: self.after["O", (0,) * (layer - 2), head]}
        found = {}
        for name, place in self.after.items():
            at = 3 if name[0] == "Q" else 1
            w = name[at]
            if len(w) >= layer - 1 and w[layer - 2] == 0:
                longer = (*w[: layer - 2], head, *w[layer - 1 :])
                found[place] = self.after[(*name[:at], longer, *name[at + 1 :])]
        return found

    def reads(self, part: int, layer: int, head: int) -> Columns:
        nothing: Columns = [[] for _ in range(self.s.head_dim)]
        if layer == 1:
            return [[self.at("u", (0,) * self.s.layers) if part else self.at("a", head)], *nothing[1:]]
        w = (0,) * (self.s.layers - 2)
        names = [("K", w, c) if part else ("Q", layer, head, w[: layer - 2], c) for c in range(self.e)]
        return [[self.after[name]] for name in names] + nothing[self.e :]

    def outputs(self) -> Columns:
        return [[0]]


def all_words(letters: int, length: int) -> list[tuple[int, ...]]:
    return list(product_of(range(letters), repeat=length))


EVERYWHERE = ("all untied", "all tied")
DRAWN: dict[str, tuple[type[Drawn], tuple[str, ...], bool]] = {
    "shared-query-groups": (SharedQueryGroups, GENERIC, False),
    "residual-key": (ResidualKey, EVERYWHERE, True),
    "residual-query": (ResidualQuery, GENERIC, True),
    "symmetric-keys": (SymmetricKeysShallow, GENERIC, False),
    "symmetric-keys-deep": (SymmetricKeysDeep, GENERIC, False),
}  # host, the targets that a certificate can speak of, whether there is a residual stream


def check_drawn(claim: Claim, limits: Limits) -> None:
    """The equations of attention-matching, as identities of rational functions, at a random point modulo a random prime: for
    every layer and head x^T (Q K^T - D A D^T) y = 0 for random x and y, Q, K and D the E R_w R_Q, E R_w R_K and M_w stacked."""
    s = claim.shape
    kind = DRAWN[claim.construction][0]
    readers, b, d = s.readers(s.layers), s.d_in, s.head_dim
    reads = 2 * d * readers + b * s.leaves
    solved = s.layers * s.heads * (8 * b**3 + 8 * b * b * d)
    limits.require(
        200 * s.layers * s.heads * s.m + 300 * b * reads,
        600 * (reads * (b * b + s.layers) + solved + s.nodes * b**3) + 10**9,
    )
    host, point = kind(s), Point(s, claim.targets in TIED)
    p = point.p
    try:
        blocks = host.embed(point)
    except Unlucky:
        raise Stop("a matrix that E inverts is singular at a random target, so at every target") from None
    E: dict[int, tuple[int, ...]] = {}  # by columns
    for name, (first, width) in host.blocks.items():
        for c, column in zip(range(width), zip(*blocks[name], strict=True), strict=True):
            E[first + c] = column
    if max(E, default=0) >= s.m:
        raise Stop("E has a column beyond m")
    maps = [[host.move(layer, h) for h in range(s.heads)] for layer in ([1] if host.tied else range(1, s.layers + 1))]

    def stacked(columns: Columns, depth: int) -> Residues:
        """E R_w of these columns, for the words w of this length, stacked."""
        waiting = [columns]
        for layer in reversed(range(depth)):
            steps = maps[0] if host.tied else maps[layer]
            longer = [
                [[step[i] for i in column if i in step] for column in columns] for step in steps for columns in waiting
            ]
            waiting = (waiting if s.residual else []) + longer
        rows = []
        for reader in waiting:
            sums = [
                [sum(part) % p for part in zip(*(E[i] for i in column if i in E), strict=True)] for column in reader
            ]
            rows += list(zip(*(column or [0] * b for column in sums), strict=True))
        return rows  # type: ignore[return-value]

    for layer in range(1, s.layers + 1):
        D = [row for product in point.prefixes[layer - 1] for row in product]
        for h in range(s.heads):
            left, right = ([[secrets.randbelow(p) for _ in D]] for _ in range(2))
            queries, keys = (stacked(host.reads(part, layer, h), layer - 1) for part in (0, 1))
            w_q, w_k = point.heads[layer - 1][h][:2]
            ours = [point.times(x, table)[0] for x, table in ((left, queries), (right, keys))]
            theirs = [point.times(point.times(x, D), w)[0] for x, w in ((left, w_q), (right, w_k))]
            if (sum(map(mul, *ours)) - sum(map(mul, *theirs))) % p:
                raise Stop(f"the logits at layer {layer}, head {h} are not what the target demands")
    if [tuple(row) for row in stacked(host.outputs(), s.layers)] != [tuple(r) for x in point.prefixes[-1] for r in x]:
        raise Stop("the outputs are not what the target demands")


# ----------------------------------------------------------------------------------------------------
# lower-bound (section 10)

EVERY = ("host", "tied host")
GIVEN = ("shared-attention-universal", "looped-shared-attention-universal")


def dimension_bound(claim: Claim) -> tuple[int, int, str]:
    """(a, b, what they are): no host is universal if a < b. The tables of section 10.1."""
    s, words = claim.shape, claim.shape.heads**claim.shape.layers
    if s.residual:
        return residual_bound(claim)
    match claim.notion, claim.targets, claim.free:
        case "matching", "all untied", _:
            return s.m, s.columns, "m and M"
        case "matching", "all tied", _ if min(s.d_in, s.head_dim) >= s.layers:
            return s.m, s.columns, "m and M"
        case "shared attention", "all untied", "E":
            return s.m, s.d_out * words, "m and d_out H^L"
        case "shared attention", "all untied", "E and U" if (s.heads, s.layers, s.d_in, s.d_out) == (3, 1, 1, 1):
            return s.m, 3, "m and 3"
        case "shared attention", "all untied", "E and U":
            return s.m**2, words, "m^2 and H^L"
        case "shared attention", "all tied", "E":
            return s.m, s.counts, "m and C(L+H-1, H-1)"
        case "shared attention", "all tied", "E and U":
            return s.m**2, s.counts, "m^2 and C(L+H-1, H-1)"
        case "functional", "all untied", _ if s.layers == 1 and s.d_in == s.d_out and no_room(s):
            return s.m, s.columns, "m and M"
        case "functional", "all untied", _ if s.layers == 1 and s.head_dim <= s.d_in == s.d_out:
            bound = s.heads * (s.d_in**2 + 2 * s.head_dim * s.d_in - s.head_dim**2)
            return s.d_in * s.m, bound, "d_in m and H (d_in^2 + 2 d d_in - d^2)"
        case "attention-matching", "all untied", _ if s.heads == s.layers == s.d_in == s.d_out == 1:
            return s.m, 3, "m and 3"
    if claim.targets in GENERIC and s.d_in == s.d_out:
        rows = list(generic_bounds(claim, words))
        if rows:  # the first that m violates, if there is one
            return next((row for row in rows if row[0] < row[1]), rows[0])
    raise Malformed(f"the format has no bound {claim.how} at {s}")


def no_room(s: Shape) -> bool:
    """One layer: queries and keys of all heads can be independent, or two heads of dimension one at d_in = 2."""
    return s.head_dim * (s.heads + 1) <= s.d_in or (s.heads, s.head_dim, s.d_in) == (2, 1, 2)


def residual_bound(claim: Claim) -> tuple[int, int, str]:
    """The third table of section 10.1."""
    s = claim.shape
    square = s.d_in == s.d_out
    if claim.notion == "matching" and (claim.targets == "all untied" or (claim.targets == "generic untied" and square)):
        if claim.construction == "every tied host" and s.layers > 1:
            return 0, 1, "whatever m, equal and different columns"  # of the words (0, ..., 0, h) and (h, 0, ..., 0)
        return s.m, s.columns, "m and M"
    if claim.notion == "matching" and claim.targets in TIED and square and min(s.d_in, s.head_dim) >= s.layers:
        return s.m, s.reduced_columns, "m and 2dS + d_out (1 + S)"
    if claim.notion in ("attention-matching", "functional") and claim.targets == GENERIC[0] and square:
        b, narrow, words = s.d_in, min(s.head_dim, s.d_in), s.leaves
        forms = 2 * narrow * b - narrow**2
        rows = [
            (b * (s.m - b * words), s.layers * s.heads * forms, "d_in (m - d_in (H+1)^L) and L H (2 d' d_in - d'^2)")
        ]
        if s.head_dim <= b:
            rest = b - s.heads * s.head_dim
            x, y = (s.letters, 1) if rest <= s.head_dim else (b, rest)
            linear = s.heads * forms * sum(x**t * y ** (s.layers - 1 - t) for t in range(s.layers))
            rows.append((
                b * (s.m - b * words) * y ** (s.layers - 1), linear,
                "d_in (m - d_in (H+1)^L) and H (2 d d_in - d^2) (1 + q + ... + q^(L-1))",
            ))  # fmt: skip
        elif s.layers > 1:
            rows += wide_bounds(s, words, s.letters)
        return next((row for row in rows if row[0] < row[1]), rows[0])
    raise Malformed(f"the format has no bound {claim.how} at {s}")


def wide_bounds(s: Shape, words: int, letters: int) -> list[tuple[int, int, str]]:
    """d > d_in, L >= 2; `letters` behind each other make the words."""
    b, H, L, t = s.d_in, s.heads, s.layers, (s.head_dim - s.d_in) // 2
    found = [min(letters, b**2), *(min(letters ** (q // 2), b) * min(letters ** (-(-q // 2)), b) for q in range(2, L))]
    needed = b**2 * (words + H + H * sum(found)) - H * t * (s.head_dim - t) * sum(found)
    what = "d_in m and d_in^2 (words + H (K_0 + ... + K_{L-1})) - H t (d - t) (K_1 + ... + K_{L-1})"
    return [(s.m, b * (words + L * H) + 1, "m and d_in (words + L H) + 1"), (b * s.m, needed, what)]


def generic_bounds(claim: Claim, words: int) -> Iterator[tuple[int, int, str]]:
    """The second table of section 10.1; d_in = d_out."""
    s, m, b, H, L = claim.shape, claim.shape.m, claim.shape.d_in, claim.shape.heads, claim.shape.layers
    narrow = min(s.head_dim, b)
    paths = narrow >= L  # tied targets can follow every path
    untied = claim.targets == GENERIC[0]
    match claim.notion, claim.free:
        case "matching", _:
            if untied or paths:
                yield m, s.columns, "m and M"
            elif b == 1:
                spanned = 2 * s.head_dim * H * math.comb(L - 1 + H, H) + s.counts
                yield m, spanned, "m and 2dH C(L-1+H, H) + C(L+H-1, H-1)"
        case "attention-matching" | "functional", _ if untied:
            later = min(H * narrow, b)
            forms = 2 * narrow * b - narrow**2 + (L - 1) * (2 * narrow * later - narrow**2)
            yield b * (m - b * words), H * forms, "d_in (m - d_in H^L) and the dimension of the logit forms"
            if s.head_dim <= b:
                S = s.words(L)
                linear = b**2 * words + 2 * narrow * b * S - narrow**2 * H - narrow**2 * b * (S - H) // later
                yield b * m, linear, "d_in m and d_in^2 H^L + 2 d d_in S - d^2 (H + d_in (S - H) / r)"
            elif H > 1 and L > 1:
                yield from wide_bounds(s, words, H)
        case "attention-matching" | "functional", _:
            if paths or b == 1:
                outputs = b * words if paths else s.counts
                yield b * (m - outputs), H * (2 * narrow * b - narrow**2), "d_in (m - outputs) and H (2 d' d_in - d'^2)"
            if claim.notion == "functional":
                yield m, b, "m and d_in"
                yield m, s.counts, "m and C(L+H-1, H-1)"
                if L > 1:
                    count = (H - 1) * narrow * (b - 1) + 2 * b * narrow - narrow**2 - b
                    yield b * m, count, "d_in m and the dimension of the outputs along separate paths"
        case "shared attention", "E":
            if untied or paths:
                yield m, b * words, "m and d_in H^L"
            else:
                yield m, s.counts, "m and C(L+H-1, H-1)"
        case "shared attention", "E and U":
            yield m, narrow, "m and the rank of one product"
            yield (
                m**2,
                words if untied or paths else s.counts,
                "m^2 and H^L" if untied or paths else "m^2 and C(L+H-1, H-1)",
            )
            if untied and ((b == 1 and H > 1 and L % 2) or (b > 1 and max(H, s.head_dim) > 1)):
                yield m**2, words + 1, "m^2 and H^L + 1"
            if untied and s.head_dim >= b:
                yield 2 * b * m - 1, b**2 * (L * (H - 1) + 1), "2 d_in m - 1 and d_in^2 (L(H-1) + 1)"
            if untied and (H, L, b) == (2, 3, 1):
                yield m, 4, "m and 4"
            if not untied and claim.construction == "every tied host" and (H, b) == (2, 1) and L in (2, 3):
                yield m, 3, "m and 3"


def read_dimension(claim: Claim) -> Callable[[], None]:
    have, needed, names = dimension_bound(claim)

    def check() -> None:
        if have >= needed:
            raise Stop(f"{names} are {figure(have)} and {figure(needed)}: not below the bound")

    return check


def read_targets(value: object, claim: Claim, p: int) -> list[Target]:
    """The targets' nonzero entries modulo p."""
    if not isinstance(value, list) or not value:
        raise Malformed("targets is not an array of targets")
    return [read_target(entries, claim, p) for entries in value]


def read_target(entries: object, claim: Claim, p: int = 0) -> Target:
    """The target's nonzero entries (modulo p, if p is given)."""
    s, tied = claim.shape, claim.targets in TIED
    widths = {"W_K": s.head_dim, "W_O": s.d_in, "W_Q": s.head_dim, "W_V": s.head_dim}
    if not isinstance(entries, list):
        raise Malformed("a target is not an array of entries")
    target: Target = {}
    last: tuple[Any, ...] = ()
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 6:
            raise Malformed("an entry of a target is not [tensor, l, h, i, j, v]")
        tensor = choice(entry[0], "tensor", *widths)
        layer, head, i, j, v = (integer(number, f"a number of {tensor}") for number in entry[1:])
        place = (tensor, layer, head, i, j)
        height = s.head_dim if tensor == "W_O" else s.d_in
        if not (0 <= head < s.heads and 0 <= i < height and 0 <= j < widths[tensor]):
            raise Malformed(f"an entry of {tensor} lies outside")
        if layer != 0 if tied else not 1 <= layer <= s.layers:
            raise Malformed(f"an entry of {tensor} is at layer {figure(layer)}")
        if place <= last or v == 0:
            raise Malformed("the entries of a target do not increase strictly, or one is 0")
        last = place
        target.setdefault((tensor, layer, head), {}).setdefault(i, {})[j] = v % p if p else v
    return target


def target_size(target: Target) -> int:
    return sum(len(row) for matrix in target.values() for row in matrix.values())


def sparse_times(row: dict[int, int], matrix: dict[int, dict[int, int]], p: int) -> dict[int, int]:
    result: dict[int, int] = {}
    for i, x in row.items():
        for j, y in matrix.get(i, {}).items():
            result[j] = (result.get(j, 0) + x * y) % p
    return {j: x for j, x in result.items() if x}


def target_row(s: Shape, target: Target, tied: bool, i: int, p: int) -> array[int]:
    """Row i of W_all modulo p. Only words w with a nonzero row i of M_w are followed."""
    row = array(U32, bytes(4 * s.columns))
    half = s.head_dim * s.readers(s.layers)
    none: dict[int, dict[int, int]] = {}
    rows = {0: {i: 1}}  # the number of w among the words of its length -> row i of M_w
    for layer in range(1, s.layers + 1):
        longer = {word * s.letters: vector for word, vector in rows.items()} if s.residual else {}
        for word, vector in rows.items():
            for head in range(s.heads):
                at = (0 if tied else layer, head)
                start = s.head_dim * (s.readers(layer - 1) + word * s.heads + head)
                for first, tensor in ((start, "W_Q"), (half + start, "W_K")):
                    for j, x in sparse_times(vector, target.get((tensor, *at), none), p).items():
                        row[first + j] = x
                moved = sparse_times(vector, target.get(("W_V", *at), none), p)
                if moved := sparse_times(moved, target.get(("W_O", *at), none), p):
                    longer[word * s.letters + head + s.residual] = moved
        rows = longer
    for word, vector in rows.items():
        for j, x in vector.items():
            row[2 * half + word * s.d_out + j] = x
    return row


def check_span(claim: Claim, p: int, targets: list[Target], limits: Limits) -> None:
    s, both = claim.shape, claim.free == "E and U"
    words = s.leaves
    # rows for each target, columns, and the rank that m allows
    height, columns, most = s.d_in, s.columns, s.m
    if claim.notion == "shared attention":
        height, columns, most = (s.d_in**2, words, s.m**2) if both else (s.d_in, s.d_in * words, s.m)
    count, allowed = height * len(targets), "m^2" if both else "m"
    require_prime(p)
    if min(count, columns) <= most:
        raise Stop(f"{figure(count)} rows of {figure(columns)} columns have no rank above {allowed} = {figure(most)}")
    limits.require((4 * count + 64 * PANEL) * columns, count * columns)
    size = max(map(target_size, targets))
    slot = Packing(p, PANEL + 1).bytes
    rank = most + 1
    follow = count * s.nodes * (1000 + 300 * min(size, 4 * s.d_in * s.head_dim))
    eliminated = (rank + PANEL) * columns * count
    limits.require(
        count * (4 * columns + 200) + 64 * PANEL * columns + words * (300 + 100 * min(size, s.d_in))
        + 4 * s.d_in * s.columns,
        follow + eliminated * slot + (count // PANEL + 10) * count * columns * 200,
    )  # fmt: skip
    rows = []
    for target in targets:
        for i in range(s.d_in):
            row = target_row(s, target, claim.targets in TIED, i, p)
            outputs = row[len(row) - s.d_in * words :]
            if both:
                rows += [outputs[j :: s.d_in] for j in range(s.d_in)]
            else:
                rows.append(row if claim.notion == "matching" else outputs)
    if not rank_reaches(rows, p, rank):
        raise Stop(f"the rank of the targets' rows modulo {p} is not above {allowed} = {most}")


def read_matrix(value: object, name: str, rows: int, columns: int) -> Matrix:
    if not isinstance(value, list) or len(value) != rows:
        raise Malformed(f"a matrix of {name} does not have {figure(rows)} rows")
    if any(not isinstance(row, list) or len(row) != columns for row in value):
        raise Malformed(f"a matrix of {name} has a row that does not have {figure(columns)} entries")
    return [[integer(x, f"an entry of {name}") for x in row] for row in value]


def read_grid(value: object, name: str, claim: Claim, rows: int, columns: int) -> Grid:
    """Matrices by layer (one layer only if the host is tied) and head."""
    s, layers = claim.shape, 1 if claim.tied else claim.shape.layers
    if not isinstance(value, list) or len(value) != layers:
        raise Malformed(f"{name} is not an array of the layers")
    if any(not isinstance(matrices, list) or len(matrices) != s.heads for matrices in value):
        raise Malformed(f"{name} has a layer that is not an array of the heads")
    return [[read_matrix(matrix, name, rows, columns) for matrix in matrices] for matrices in value]


def check_null_vector(claim: Claim, values: Grid, y: Pairs, word: int, limits: Limits) -> None:
    """sum y_w R_w = G_0(), where G_L(w) = y_w I and G_{l-1}(w) = sum over h of R_V^{l,h} G_l(w,h)."""
    s = claim.shape
    if word not in dict(y):
        raise Stop(f"y is zero at the word {figure(word)}")
    entry = max(abs(x).bit_length() for layer in values for matrix in layer for row in matrix for x in row)
    grown = max(abs(v).bit_length() for _, v in y) + s.layers * (entry + (s.m * s.heads).bit_length())
    visited = min(len(y) * s.layers, s.words(s.layers))
    limits.require(
        visited * s.m**2 * (60 + grown // 7) + 500 * s.layers,
        visited * s.m**3 * (100 + grown // 8 + entry * grown // 500) + 1000 * s.layers,
    )
    sums: dict[int, Matrix] = {n: [[v * (i == j) for j in range(s.m)] for i in range(s.m)] for n, v in y}
    for layer in range(s.layers, 0, -1):
        shorter: dict[int, Matrix] = {}
        for number, matrix in sums.items():
            parent, head = divmod(number, s.heads)
            columns = list(zip(*matrix, strict=True))
            product = [
                [sum(map(mul, row, column)) for column in columns]
                for row in values[0 if claim.tied else layer - 1][head]
            ]
            old = shorter.get(parent)
            shorter[parent] = product if old is None else [[*map(add, a, b)] for a, b in zip(old, product, strict=True)]
        sums = shorter
    if any(x for matrix in sums.values() for row in matrix for x in row):
        raise Stop("the sum of y_w R_w is not zero")


def read_lower_bound(claim: Claim, host: dict[str, Any], evidence: object, limits: Limits) -> Callable[[], None]:
    method = choice(
        evidence.get("method") if isinstance(evidence, dict) else None,
        "the evidence's method",
        *(["dimension", "span"] if "every" in host else ["null-vector"]),
    )
    if method == "dimension":
        record(evidence, "evidence", "method")
        return read_dimension(claim)
    if method == "span":
        prime, listed, _ = record(evidence, "evidence", "prime", "targets", "method")
        shared = claim.notion == "shared attention" and claim.targets in GENERIC
        shared = shared and not claim.shape.residual
        if not (claim.notion == "matching" or shared) or claim.shape.d_in != claim.shape.d_out:
            raise Malformed(f"the method span is not for claims {claim.how} at {claim.shape}")
        p = read_prime(prime)
        targets = read_targets(listed, claim, p)
        return lambda: check_span(claim, p, targets, limits)
    number, pairs, _ = record(evidence, "evidence", "word", "y", "method")
    if (claim.notion, claim.targets, claim.free) != ("shared attention", "all untied", "E and U"):
        raise Malformed("the method null-vector is for shared attention, all untied targets, E and U free")
    word, words = integer(number, "word"), claim.shape.heads**claim.shape.layers
    if not 0 <= word < words:
        raise Malformed("word is not the number of a word of length L")
    y = read_pairs(pairs, "y", words)
    matrices = read_grid(host["R_V"], "R_V", claim, claim.shape.m, claim.shape.m)
    return lambda: check_null_vector(claim, matrices, y, word, limits)


# ----------------------------------------------------------------------------------------------------
# enclosure (section 12): how far apart two outputs are, in integers with stated errors
#
# Numbers are integers times a unit. `bits` is the precision: results are brought to the unit 2^-bits, rounded down;
# bits = 0 stands for exact arithmetic, where units multiply and nothing is rounded.

Bounds = tuple[int, int]  # a number lies between these, in units of 2^-bits
Names = list[list[Place]]  # by column, the coordinates that have a 1 in it
PARTS = ("scaled", "causal", "window", "alibi", "rope")


@dataclass
class Ball:
    """A matrix: every entry divided by `unit` is within `error` of the integer in `rows`."""

    rows: Matrix
    unit: Fraction = Fraction(1)
    error: int = 0

    def at(self, bits: int) -> Ball:
        """In units of 2^-bits."""
        if not bits:
            return self
        up, down = self.unit.numerator << bits, self.unit.denominator
        rows = [[x * up // down for x in row] for row in self.rows]
        return Ball(rows, Fraction(1, 1 << bits), -(-self.error * up // down) + 1)

    def top(self) -> int:
        return max(abs(x) for row in self.rows for x in row)

    def magnitude(self) -> int:
        """No entry is above 2 to this power."""
        return self.top().bit_length() + self.unit.numerator.bit_length() - self.unit.denominator.bit_length() + 1

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
        """Both have one unit, but for exact matrices."""
        if self.unit != other.unit:
            a, b = self.unit, other.unit
            unit = Fraction(
                math.gcd(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator
            )
            return self.in_units(unit).plus(other.in_units(unit))
        rows = [[*map(add, x, y)] for x, y in zip(self.rows, other.rows, strict=True)]
        return Ball(rows, self.unit, self.error + other.error)

    def in_units(self, unit: Fraction) -> Ball:
        """In units of which this one's is a multiple."""
        factor = int(self.unit / unit)
        return Ball([[factor * x for x in row] for row in self.rows], unit, factor * self.error)

    def selected(self, sources: list[list[int]]) -> Ball:
        """Each column is the sum of the columns named."""
        rows = [[sum(row[i] for i in places) for places in sources] for row in self.rows]
        return Ball(rows, self.unit, self.error * max(map(len, sources)))


def taylor(x: int, bits: int) -> list[int]:
    """x^k / k! for k = 0, 1, ... and 0 <= x <= 1/2, rounded down until 0. A term is short by less than 2: what the one before
    it is short by is at least halved, and 1 is lost. So all the terms left out are together less than 2, too."""
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
    """e^x for x up to about 1. An error of a number up to 1 doubles when it is squared; the spare bits allow for that."""
    if x < -bits << bits:
        return 0, 1  # e^-bits < 2^-bits
    halvings, work, terms, error = halved(x, bits)
    middle = sum(terms[::2]) + (sum(terms[1::2]) if x > 0 else -sum(terms[1::2]))
    low, high = max(0, middle - error), middle + error
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    return low >> work - bits, -(-high >> work - bits)


def cosine_sine(x: int, bits: int) -> tuple[int, int, int]:
    """(cos x, sin x, the error of both) for x >= 0, by doubling the angle. With |cos| + |sin| < 1.4143 an error e turns into
    less than 2.83 e + 1 and a multiple of e^2, which is far below e/6: e stays below 2^-bits in the end."""
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
    """An attention map: softmax with its parts, or matrices given for every layer and head."""

    shape: Shape
    name: str
    parts: frozenset[str]
    window: int
    given: tuple[Ball, ...] = ()

    def visible(self, i: int, tokens: int) -> list[int]:
        last = i if "causal" in self.parts else tokens - 1
        return [j for j in range(last + 1) if not self.window or abs(i - j) < self.window]

    def matrix(self, x: Ball, query: Linear, key: Linear, layer: int, head: int, bits: int) -> Ball:
        if self.given:
            return self.given[(layer - 1) * self.shape.heads + head]
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


def run_system(
    x: Ball, maps: HeadMaps, attention: Attention, bits: int, stream: Callable[[int], Linear] | None = None
) -> Ball:
    """X^l = sum over h of A^{l,h} X^{l-1} V^{l,h}, plus X^{l-1} with a residual stream (brought to the next layer's
    coordinates by `stream`, where these are others)."""
    for layer in range(1, attention.shape.layers + 1):
        total: Ball | None = None
        if attention.shape.residual:
            total = stream(layer)(x) if stream else x
        for head in range(attention.shape.heads):
            query, key, value = maps(layer, head)
            term = attention.matrix(x, query, key, layer, head, bits).times(value(x), bits)
            total = term if total is None else total.plus(term)
        assert total is not None
        x = total
    return x


def named(runs: list[Run], width: int) -> Names:
    return [[(block, offset + j) for block, offset, limit in runs if j < limit] for j in range(width)]


def run_index_host(host: IndexHost, x: Ball, E: Ball, attention: Attention, bits: int) -> Ball:
    """Only the coordinates that can reach the output or a reader are followed, from the last layer back."""
    tables: list[list[tuple[Names, Names, Names]]] = []
    outputs = named(host.outputs(), host.out)
    wanted = dict.fromkeys(chain.from_iterable(outputs))
    levels = [wanted]
    for layer in range(host.L, 0, -1):
        heads = []
        for h in range(host.H):
            values: Names = []
            for block, offset in wanted:
                step = host.move(layer, h, block)
                values.append([(step[0], offset + step[1])] if step is not None and offset < step[2] else [])
            heads.append((*(named(host.reads(part, layer, h), host.d) for part in (0, 1)), values))
        kept = wanted if host.s.residual else {}
        wanted = kept | dict.fromkeys(chain.from_iterable(chain.from_iterable(chain.from_iterable(heads))))
        tables.append(heads)  # type: ignore[arg-type]
        levels.append(wanted)
    tables.reverse()
    levels.reverse()
    places = [{place: number for number, place in enumerate(level)} for level in levels]

    def selecting(names: Names, layer: int) -> Linear:
        sources = [[places[layer][place] for place in column] for column in names]
        return lambda ball: ball.selected(sources)

    def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
        query, key, value = tables[layer - 1][head]
        return selecting(query, layer - 1), selecting(key, layer - 1), selecting(value, layer - 1)

    def stream(layer: int) -> Linear:
        return selecting([[place] for place in levels[layer]], layer - 1)

    start = E.selected([[host.first(block) + offset] for block, offset in levels[0]])
    return selecting(outputs, host.L)(run_system(x.times(start, bits), maps, attention, bits, stream))


def run_dense_host(host: DenseHost, x: Ball, E: Ball, attention: Attention, bits: int) -> Ball:
    s = host.s

    def by(code: int, layer: int, head: int, columns: int) -> Linear:
        def multiply(ball: Ball) -> Ball:
            return ball.times(host_ball(host, code, layer, head, columns, bits), bits)

        return multiply

    def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
        query, key, value = (by(code, layer, head, s.m if code == R_V else s.head_dim) for code in (R_Q, R_K, R_V))
        return query, key, value

    return by(CODE_U, 1, 0, s.d_out)(run_system(x.times(E, bits), maps, attention, bits))


def host_ball(host: DenseHost, code: int, layer: int, head: int, columns: int, bits: int) -> Ball:
    """One of the host's matrices, exactly. In exact arithmetic all of one kind must have one unit; otherwise a common
    power of two goes into it."""
    rows, unit = list(host.rows(code, layer, head, columns)), host.units(code)
    union = 0
    for x in chain.from_iterable(rows):
        union |= x
    if bits and (common := (union & -union).bit_length() - 1) > 0:
        rows, unit = [[x >> common for x in row] for row in rows], unit * 2**common
    return Ball(rows, unit)


@dataclass(frozen=True)
class Emulation:
    """What the evidence gives: a target's tensors by name, an embedding E and an input X, all exact."""

    target: dict[str, list[list[Ball]]]  # by layer (one only if it is tied) and head
    width: int
    E: Ball
    X: Ball
    attention: Attention

    def output(self, bits: int) -> Ball:
        """T(X)."""

        def by(matrix: Ball) -> Linear:
            return lambda ball: ball.times(matrix, bits)

        def maps(layer: int, head: int) -> tuple[Linear, Linear, Linear]:
            grids = (self.target[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
            q, k, v, o = (by(grid[0 if len(grid) == 1 else layer - 1][head]) for grid in grids)
            return q, k, lambda ball: o(v(ball))

        x = self.X.at(bits)
        if "W_E" in self.target:
            x = by(self.target["W_E"][0][0])(x)
        x = run_system(x, maps, self.attention, bits)
        return by(self.target["W_U"][0][0])(x) if "W_U" in self.target else x

    def difference(self, claim: Claim, bits: int) -> tuple[Fraction, Fraction]:
        """Bounds of the largest entry of |UTF(X, E) - T(X)|."""
        kind = index_kind(claim)
        if kind is not None:
            ours = run_index_host(kind(claim.shape), self.X, self.E, self.attention, bits)
        else:
            ours = run_dense_host(dense_host(claim), self.X, self.E, self.attention, bits)
        theirs = self.output(bits)
        u, v = ours.unit, theirs.unit
        largest = max(
            abs(x * u - y * v)
            for row, other in zip(ours.rows, theirs.rows, strict=True)
            for x, y in zip(row, other, strict=True)
        )
        error = ours.error * u + theirs.error * v
        return max(Fraction(0), largest - error), largest + error

    def require(self, claim: Claim, bits: int, limits: Limits) -> None:
        """What one run takes: numbers of `bits` after the point and what stands before it; without bits, numbers that grow by
        what each layer multiplies into them."""
        s, n, D, pairs = claim.shape, len(self.X.rows), self.width, claim.shape.layers * claim.shape.heads
        dense = index_kind(claim) is None
        host = drawn_bits(claim, exact=not bits) if dense else 0
        parts = [ball for grid in self.target.values() for layer in grid for ball in layer]
        given, theirs = entry_bits(self.attention.given), entry_bits(parts)
        e, x = entry_bits([self.E]), entry_bits([self.X])
        ours = e + x + s.d_in.bit_length()  # of X E, before it is rounded
        rounding = n * s.m * (product_time(ours, bits) if bits else 0)
        work = n * s.d_in * s.m * product_time(x, e) + 200 * s.d_in * s.m + rounding
        first = 60 + ours // 7
        if bits:
            ours, theirs_now = (bits + 16 + max(0, b) for b in (self.E.magnitude() + self.X.magnitude(), x))
        else:
            theirs_now = x + theirs
        steps = range(s.layers if not bits else 1)
        every = s.heads if not bits else pairs
        for _ in steps:  # one after the other, or all at once where they cost the same
            work += (
                every * n * n * (s.m * product_time(ours, given or bits) + D * product_time(theirs_now, given or bits))
            )
            if not self.attention.given:
                work += every * n * n * s.head_dim * (product_time(ours, ours) + product_time(theirs_now, theirs_now))
            work += every * n * 4 * D * s.head_dim * product_time(theirs_now, theirs)
            work += every * n * (s.m + 2 * s.head_dim) * (s.m * product_time(ours, host) if dense else 300)
            work += every * n * (s.m + D) * (product_time(ours, bits) if bits else 100)
            if not bits:
                ours += given + host + s.m.bit_length() + n.bit_length()
                theirs_now += given + 2 * theirs + 2 * D.bit_length() + n.bit_length()
        work += n * s.d_out * (s.m * product_time(ours, host) if dense else 300) + n * D * s.d_out * product_time(
            theirs_now, theirs
        )
        if not self.attention.given:
            root = math.isqrt(bits)
            work += (
                2 * pairs * n * (n + s.head_dim) * (3000 + (4 * root + 20) * product_time(bits + 2 * root, bits) // 2)
            )
        work += 1000 * pairs * s.m + (drawing_work(claim) if dense else 0)
        if claim.weights is not None:  # entries are shifted to their places, and back
            work += 5 * 10**6 + pairs * s.m * (s.m + 2 * s.head_dim) * 600
        for part, degree in (("alibi", s.heads), ("rope", s.head_dim)):  # so many roots of this degree
            if part in self.attention.parts:
                work += degree * 100 * (200 + (bits * degree) ** 2 // 600)
        memory = 8 * n * (s.m + D + n) * (60 + max(ours, theirs_now) // 7) + n * s.m * first
        memory += 3 * s.d_in * s.m * (60 + e // 7) + (2 * s.m * (s.m + s.head_dim) * (60 + host // 7) if dense else 0)
        limits.require(memory + (0 if dense else 30 * (s.layers + 1) * s.heads * s.m * 60), work)


def read_numbers(value: object, name: str, rows: int, columns: int, count: int = 1) -> list[Ball]:
    """`count` matrices with one denominator."""
    denominator, numerators = record(value, name, "denominator", "numerators")
    q = integer(denominator, f"denominator of {name}")
    if q < 1:
        raise Malformed(f"the denominator of {name} is not positive")
    if not isinstance(numerators, list) or len(numerators) != count * rows * columns:
        raise Malformed(f"{name} does not have {figure(count * rows * columns)} numerators")
    flat = [integer(x, f"an entry of {name}") for x in numerators]
    lines = [flat[at : at + columns] for at in range(0, len(flat), columns)]
    return [Ball(lines[at : at + rows], Fraction(1, q)) for at in range(0, len(lines), rows)]


def read_given_target(value: object, s: Shape) -> tuple[dict[str, list[list[Ball]]], int]:
    """The tensors of the target and its width."""
    names = ["W_Q", "W_K", "W_V", "W_O"]
    names += [name for name in ("W_E", "W_U") if isinstance(value, dict) and name in value]
    *tensors, system, width = record(value, "target", *names, "system", "width")
    tied = choice(system, "the target's system", "target", "looped-target") == "looped-target"
    D, d, layers = integer(width, "width"), s.head_dim, 1 if tied else s.layers
    if D < 1 or ("W_E" not in names and s.d_in != D) or ("W_U" not in names and s.d_out != D):
        raise Malformed(f"a target of width {figure(D)} without W_E and W_U is not for {s}")
    sizes = {"W_Q": (D, d), "W_K": (D, d), "W_V": (D, d), "W_O": (d, D), "W_E": (s.d_in, D), "W_U": (D, s.d_out)}
    target = {}
    for name, tensor in zip(names, tensors, strict=True):
        across, down = (1, 1) if name in ("W_E", "W_U") else (s.heads, layers)
        flat = read_numbers(tensor, name, *sizes[name], across * down)
        target[name] = [flat[at : at + across] for at in range(0, len(flat), across)]
    return target, D


def read_attention(text: object, s: Shape) -> Attention:
    if text in ("softmax", "given"):
        return Attention(s, str(text), frozenset(), 0)
    parts = text.split("+") if isinstance(text, str) else []
    names = [part.partition(":")[0] for part in parts]
    if not parts or names != [name for name in PARTS if name in names]:
        raise Malformed(f"attention is {quote(text)}, known: softmax, given, or {', '.join(PARTS)} in this order")
    window = 0
    for part, name in zip(parts, names, strict=True):
        if name == "window" and re.fullmatch("window:[1-9][0-9]{0,17}", part, re.ASCII):
            window = int(part[7:])
        elif part != name or name == "window":
            raise Malformed(f"attention has the part {quote(part)}")
    if "rope" in names and s.head_dim % 2:
        raise Malformed("rope needs an even head dimension")
    return Attention(s, str(text), frozenset(names), window)


BOUND = ("target", "E", "X")  # what a claim names by digests


def read_digest(value: object, what: str) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value, re.ASCII):
        raise Malformed(f"{what} is not a digest of 64 lower-case hexadecimal digits")
    return value


def digest_of(value: object) -> str:
    """Of a part of a certificate, in canonical form."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def read_enclosure(
    claim: Claim, claimed: dict[str, Any], evidence: object, limits: Limits, facts: dict[str, Any]
) -> Callable[[], None]:
    s, verdict = claim.shape, claimed["verdict"]
    attention, n = read_attention(claimed["attention"], s), integer(claimed["context"], "context")
    given = attention.name == "given"
    if n < 1:
        raise Malformed("context is not positive")
    if verdict == "equal" and not given:
        raise Malformed('"equal" is for given attention only')
    digits, low, high = 0, 0, 0
    if verdict != "equal":
        digits, bounds = integer(claimed["digits"], "digits"), claimed["difference"]
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise Malformed("difference is not a pair")
        low, high = (integer(x, "difference") for x in bounds)
        if digits < 1 or not 0 <= low < high:
            raise Malformed("digits is not positive, or difference not a pair 0 <= a < b")
    names = ["method", "target", "E", "X"] + ["attention"] * given
    method, target, embedding, x, *matrices = record(evidence, "evidence", *names)
    choice(method, "the evidence's method", "rational" if given else "interval")
    tensors, width = read_given_target(target, s)
    if given:
        held = read_numbers(matrices[0], "attention", n, n, s.layers * s.heads)
        for row in chain.from_iterable(ball.rows for ball in held):
            if min(row) < 0 or sum(row) != held[0].unit.denominator:
                raise Malformed("a row of a given attention matrix has a negative entry, or does not sum to 1")
        attention = replace(attention, given=tuple(held))
    (E,), (X,) = read_numbers(embedding, "E", s.d_in, s.m), read_numbers(x, "X", n, s.d_in)
    emulation = Emulation(tensors, width, E, X, attention)
    if digits > MAX_DIGITS:
        raise OverLimit(f"digits is {figure(digits)}, allowed are {MAX_DIGITS}")
    named = {name: read_digest(claimed[name], name) for name in BOUND if name in claimed}
    found = {"target": digest_of(target), "E": digest_of(embedding), "X": digest_of(x)}
    facts |= found
    if limits.target:
        require_target(GivenTarget.of_enclosure(s, tensors, width), limits)

    def check() -> None:
        if wrong := [name for name in named if named[name] != found[name]]:
            raise Stop(f"the {wrong[0]} given is not the one that the claim names")
        check_enclosure(claim, emulation, verdict, digits, low, high, limits)

    return check


def check_enclosure(
    claim: Claim, emulation: Emulation, verdict: str, digits: int, low: int, high: int, limits: Limits
) -> None:
    if verdict != "equal" and verdict != ("apart" if low else "within"):
        raise Stop(f'the difference stated does not say "{verdict}"')
    bits = 0 if emulation.attention.given else 64 + 4 * digits
    most = max(16 * bits, 2**13)
    while True:
        emulation.require(claim, bits, limits)
        least, largest = (10**digits * bound for bound in emulation.difference(claim, bits))
        if low <= least and largest <= high:
            return
        if least > high or largest < low:
            raise Stop(
                "the outputs differ"
                if verdict == "equal"
                else f"the outputs are {'less' if largest < low else 'more'} than stated apart"
            )
        if bits >= most:
            raise Stop(f"the difference stated could not be established with {bits} bits")
        bits *= 2


# ----------------------------------------------------------------------------------------------------
# realization (section 13): the least host of one target

POINT_BITS = 128  # of the random weights. A file has fewer than 2^26 layers, so a wrong equation passes below 2^-100


@dataclass(frozen=True)
class Forms:
    """The matrices of a host with its embedding, or of a target: rows enter, are read and moved in each layer, and leave."""

    enter: Ball
    read: dict[str, list[list[Ball]]]  # "Q" and "K", by layer and head
    move: list[list[Ball]]
    leave: Ball


State = tuple[int, list[int]]  # row i of W_E M_w, as (i, w)
Reader = tuple[str, list[int], int]  # a column: (kind, the letters from the boundary on, coordinate)


@dataclass(frozen=True)
class Minor:
    """Rows and columns of the target's Hankel matrix at a boundary; with combinations, these take the columns' place."""

    boundary: int
    rows: list[State]
    columns: list[Reader]
    combinations: Matrix | None = None


@dataclass(frozen=True)
class Realization:
    shape: Shape
    host: Forms
    target: Forms
    width: int
    p: int
    minors: list[Minor]

    def require(self, limits: Limits) -> None:
        s, D = self.shape, self.width
        entries, states, memory, work = 0, [], 0, 0
        for forms, width in ((self.host, s.m), (self.target, D)):
            x = entry_bits([forms.enter])
            states.append([x])  # by boundary, the bits of what has been added up
            for layer, move in enumerate(forms.move):
                read = entry_bits(chain(forms.read["Q"][layer], forms.read["K"][layer]))
                v = entry_bits(move) + POINT_BITS + (s.letters * width).bit_length()
                work += 2 * s.heads * s.d_in * s.head_dim * width * product_time(x, read)
                work += s.heads * width**2 * product_time(POINT_BITS, v) + s.d_in * width**2 * product_time(x, v)
                memory = max(memory, (width**2 + s.d_in * (2 * width + s.head_dim)) * (60 + (x + v + read) // 7))
                x += v
                states[-1].append(x)
                entries += s.d_in * width * (60 + x // 7)
            work += s.d_in * s.d_out * width * product_time(x, entry_bits([forms.leave]))
        ours, theirs = states
        readers = 2 * s.heads * s.layers * s.head_dim + s.d_out
        work += 4 * s.d_in * readers * product_time(2 * ours[-1], 2 * theirs[-1])  # of what has come out
        moved, last = entry_bits(chain.from_iterable(self.target.move)), entry_bits([self.target.leave])
        read = max(last, entry_bits(chain.from_iterable(chain(self.target.read["Q"], self.target.read["K"]))))
        work += (s.layers * s.heads * D * (D + 2 * s.head_dim) + D * (s.d_in + s.d_out)) * (60 + moved)
        entries += (s.layers * s.heads * D * (D + 2 * s.head_dim) + D * (s.d_in + s.d_out)) * 36
        for minor in self.minors:
            rows, columns = len(minor.rows), len(minor.columns)
            work += (rows + columns) * s.layers * D**2 * 100 + rows * columns * D * 100 + rows**3 * 20
            least = (rows + columns) * D * 40 + 40 * rows**2
            if minor.combinations is not None:
                factor = max(abs(v).bit_length() for line in minor.combinations for v in line)
                c = read + (s.layers - minor.boundary) * (moved + D.bit_length())
                z = c + factor + columns.bit_length()
                work += columns * (s.layers - minor.boundary) * D**2 * product_time(c, moved)
                work += rows * columns * D * product_time(c, factor)
                work += s.d_in * rows * D * product_time(theirs[minor.boundary - 1], z)
                least += (columns + rows) * D * (60 + z // 7)
            memory = max(memory, least)
        limits.require(memory + entries, work + 1000 * s.layers * s.heads)


def entry_bits(balls: Iterable[Ball]) -> int:
    """Of the longest numerator or denominator."""
    return max((max(ball.top().bit_length(), ball.unit.denominator.bit_length()) for ball in balls), default=0)


def product_time(a: int, b: int) -> int:
    """Of two integers of so many bits, added to a sum, in nanoseconds."""
    return 100 + (a + b) // 10 + a * b // 900


def read_layers(value: object, name: str, s: Shape, rows: int, columns: int, *, least: bool) -> list[list[Ball]]:
    """Numbers for every layer, those of its heads' matrices."""
    if not isinstance(value, list) or len(value) != s.layers:
        raise Malformed(f"{name} is not an array of the layers")
    return [read_tensor(layer, name, rows, columns, s.heads, least=least) for layer in value]


def read_tensor(value: object, name: str, rows: int, columns: int, count: int = 1, *, least: bool) -> list[Ball]:
    """Numbers; `least`: with their least denominator."""
    found = read_numbers(value, name, rows, columns, count)
    numerators = chain.from_iterable(chain.from_iterable(ball.rows for ball in found))
    if least and math.gcd(found[0].unit.denominator, *numerators) != 1:
        raise Malformed(f"{name} is not written with its least denominator")
    return found


def read_forms(value: object, what: str, s: Shape, names: tuple[str, ...], width: int, *, least: bool) -> Forms:
    """names: of what rows enter by, of queries, keys, values, and of what they leave by."""
    fields = dict(zip(names, record(value, what, *names, *(["width"] if least else [])), strict=False))
    enter, query, key, move, leave = names
    d = s.head_dim
    return Forms(
        read_tensor(fields[enter], enter, s.d_in, width, least=least)[0],
        {kind: read_layers(fields[name], name, s, width, d, least=least) for kind, name in (("Q", query), ("K", key))},
        read_layers(fields[move], move, s, width, width, least=least),
        read_tensor(fields[leave], leave, width, s.d_out, least=least)[0],
    )


def read_within(value: object, what: str, end: int, start: int = 0) -> int:
    number = integer(value, what)
    if not start <= number < end:
        raise Malformed(f"{what} is outside {start}..{figure(end - 1)}")
    return number


def read_word(value: object, s: Shape, lengths: range) -> list[int]:
    if not isinstance(value, list) or len(value) not in lengths:
        raise Malformed("a word does not have the length that its place asks for")
    return [read_within(letter, "a letter", s.letters) for letter in value]


def read_state(value: object, s: Shape, boundary: int) -> State:
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed("a row is not a pair of an input and a word")
    word = read_word(value[1], s, range(boundary, boundary + 1))
    return read_within(value[0], "the input of a row", s.d_in), word


def read_reader(value: object, s: Shape, boundary: int) -> Reader:
    if not isinstance(value, list) or len(value) != 3:
        raise Malformed("a column is not a triple of a kind, a word and a coordinate")
    kind, left = choice(value[0], "the kind of a column", "Q", "K", "OV"), s.layers - boundary
    word = read_word(value[1], s, range(left, left + 1) if kind == "OV" else range(1, left + 1))
    if kind != "OV" and word[-1] < s.residual:
        raise Malformed("the word of a Q or K column does not end in a head")
    return kind, word, read_within(value[2], "the coordinate of a column", s.d_out if kind == "OV" else s.head_dim)


def read_minor(rows: object, columns: object, combinations: object, s: Shape, boundary: int) -> Minor:
    """combinations: None where the columns themselves are taken."""
    if not isinstance(rows, list) or not isinstance(columns, list):
        raise Malformed("rows or columns is not an array")
    states = [read_state(row, s, boundary) for row in rows]
    readers = [read_reader(column, s, boundary) for column in columns]
    if combinations is None:
        if len(states) != len(readers):
            raise Malformed("there are not as many columns as rows")
        return Minor(boundary, states, readers)
    if not states or not readers:
        raise Malformed("a step has no rows or no columns")
    return Minor(boundary, states, readers, read_matrix(combinations, "combinations", len(states), len(readers)))


def read_lower(value: object, s: Shape) -> tuple[int, list[Minor]]:
    """The prime, and the first minor with those of the steps."""
    boundary, columns, prime, rows, steps = record(value, "lower", "boundary", "columns", "prime", "rows", "steps")
    p, at = read_prime(prime), read_within(boundary, "boundary", s.layers + 1)
    minors = [read_minor(rows, columns, None, s, at)]
    if not isinstance(steps, list):
        raise Malformed("steps is not an array")
    if steps and not s.residual:
        raise Malformed("there are steps without a residual stream")
    for step in steps:
        boundary, combinations, columns, rows = record(step, "a step", "boundary", "combinations", "columns", "rows")
        at = read_within(boundary, "the boundary of a step", s.layers + 1, at + 1)
        minors.append(read_minor(rows, columns, [] if combinations is None else combinations, s, at))
    return p, minors


def read_realization(
    claim: Claim, claimed: dict[str, Any], evidence: object, limits: Limits, facts: dict[str, Any]
) -> Callable[[], None]:
    s, digest = claim.shape, read_digest(claimed["target"], "target")
    host, lower, target = record(evidence, "evidence", "host", "lower", "target")
    D = integer(target.get("width") if isinstance(target, dict) else None, "the target's width")
    if D < 1:
        raise Malformed("the target's width is not positive")
    ours = read_forms(host, "the host", s, ("E", "R_Q", "R_K", "R_V", "U"), s.m, least=False)
    theirs = read_forms(target, "the target", s, ("W_E", "W_Q", "W_K", "M", "W_U"), D, least=True)
    p, minors = read_lower(lower, s)
    found = Realization(s, ours, theirs, D, p, minors)
    if limits.target:
        require_target(GivenTarget(s, D, theirs), limits)
    facts |= {"target": digest, "width": stated(D)}

    def check() -> None:
        if digest_of(target) != digest:
            raise Stop("the target given is not the one that the claim names")
        require_prime(p)
        count = max(1, sum(len(minor.rows) for minor in minors))
        if count != s.m:
            raise Stop(f"the rows of the lower bound show m >= {figure(count)}, stated is {figure(s.m)}")
        found.require(limits)
        check_realization(found)

    return check


@dataclass(frozen=True)
class GivenTarget:
    """The target that a certificate is about: for every layer and head what reads, and what moves by the products
    W_V W_O."""

    shape: Shape
    width: int
    forms: Forms

    @staticmethod
    def of_enclosure(s: Shape, tensors: dict[str, list[list[Ball]]], width: int) -> GivenTarget:
        """Matrices by layer (one only if it is tied) and head; W_E and W_U may be missing."""
        one = Ball([[int(i == j) for j in range(width)] for i in range(width)])
        layers = range(s.layers)
        grids = {
            name: [tensors[name][0 if len(tensors[name]) == 1 else at] for at in layers] for name in ("W_Q", "W_K")
        }
        values = [tensors["W_V"][0 if len(tensors["W_V"]) == 1 else at] for at in layers]
        others = [tensors["W_O"][0 if len(tensors["W_O"]) == 1 else at] for at in layers]
        moves = [[v.times(o, 0) for v, o in zip(*heads, strict=True)] for heads in zip(values, others, strict=True)]
        enter = tensors["W_E"][0][0] if "W_E" in tensors else one
        leave = tensors["W_U"][0][0] if "W_U" in tensors else one
        return GivenTarget(s, width, Forms(enter, {"Q": grids["W_Q"], "K": grids["W_K"]}, moves, leave))


def require_target(given: GivenTarget, limits: Limits) -> None:
    """Whether the target is that of the file given (--target): the same numbers, of the same width. A file is a safetensors
    file with W_Q, W_K [L, H, D, d], W_V [L, H, D, r] and W_O [L, H, r, D], for tied targets without the axis L, and perhaps
    W_E [d_in, D] and W_U [D, d_out]."""
    header, _, tensors = read_tensors(limits.target, TARGET_TENSORS, limits)
    s, D = given.shape, given.width
    if not {"W_Q", "W_K", "W_V", "W_O"} <= tensors.keys():
        raise Malformed("the file given as the target lacks W_Q, W_K, W_V or W_O")
    sizes = header.sizes
    lead = sizes["W_Q"][:-2]
    rank = (sizes["W_V"] or (0,))[-1]
    expected = {"W_Q": (D, s.head_dim), "W_K": (D, s.head_dim), "W_V": (D, rank), "W_O": (rank, D)}
    fits = lead in ((s.heads,), (s.layers, s.heads)) and all(
        sizes[name] == (*lead, *expected[name]) for name in expected
    )
    around = {"W_E": (s.d_in, D), "W_U": (D, s.d_out)}
    fits = fits and all(sizes[name] == around[name] for name in around if name in sizes)
    fits = fits and ("W_E" in sizes or s.d_in == D) and ("W_U" in sizes or s.d_out == D)
    if not fits:
        raise Stop("the target of the file given has other shapes than the one that the certificate is about")
    if s.residual not in header.streams():
        raise Stop("the target of the file given is said to have another residual stream")
    count = sum(len(tensor.data) // array(tensor.code).itemsize for tensor in tensors.values())
    limits.require(
        600 * count + 300 * s.layers * s.heads * D * D, 2000 * count + 2000 * s.layers * s.heads * D * D * rank
    )

    def matrices(name: str) -> list[list[Ball]]:
        """By layer and head."""
        tensor = tensors[name]
        height, width = (expected | around)[name]
        unit = Fraction(2) ** FLOATS[tensor.dtype][2] if tensor.dtype in FLOATS else Fraction(1)
        flat = [
            Ball([*stored_rows(tensor, name, number, height, width)], unit)
            for number in range(math.prod(sizes[name][:-2]))
        ]
        across = s.heads if name in expected else 1
        return [flat[at : at + across] for at in range(0, len(flat), across)]

    found = GivenTarget.of_enclosure(s, {name: matrices(name) for name in tensors}, D).forms
    ours = given.forms
    pairs = [(ours.enter, found.enter), (ours.leave, found.leave)]
    for mine, theirs in ((ours.read["Q"], found.read["Q"]), (ours.read["K"], found.read["K"]), (ours.move, found.move)):
        pairs += zip(chain.from_iterable(mine), chain.from_iterable(theirs), strict=True)
    if not all(same(a, b) for a, b in pairs):
        raise Stop("the target of the file given is not the one that the certificate is about")


def onward(x: Ball, move: list[Ball], weights: list[int], stream: bool) -> Ball:
    """x times the sum of a layer's letters with their weights."""
    rows = [
        [sum(map(mul, weights[stream:], entries)) for entries in zip(*lines, strict=True)]
        for lines in zip(*(ball.rows for ball in move), strict=True)
    ]
    moved = x.times(Ball(rows, move[0].unit), 0)
    return moved.plus(Ball([[weights[0] * v for v in row] for row in x.rows], x.unit)) if stream else moved


def same(a: Ball, b: Ball) -> bool:
    u, v = a.unit.numerator * b.unit.denominator, b.unit.numerator * a.unit.denominator
    return all(
        x * u == y * v for row, other in zip(a.rows, b.rows, strict=True) for x, y in zip(row, other, strict=True)
    )


def check_realization(found: Realization) -> None:
    s, host, target = found.shape, found.host, found.target
    x, y = host.enter, target.enter
    states = [y]  # by boundary, the sum of all W_E M_w with the weights of their words
    for layer in range(s.layers):
        for kind, head in ((kind, head) for kind in "QK" for head in range(s.heads)):
            if not same(x.times(host.read[kind][layer][head], 0), y.times(target.read[kind][layer][head], 0)):
                raise Stop(f"the {kind} columns of layer {layer + 1}, head {head} do not match")
        weights = [secrets.randbits(POINT_BITS) for _ in range(s.letters)]
        x, y = onward(x, host.move[layer], weights, s.residual), onward(y, target.move[layer], weights, s.residual)
        states.append(y)
    if not same(x.times(host.leave, 0), y.times(target.leave, 0)):
        raise Stop("the OV columns do not match")
    small = modulo(target, found.p)
    for minor in found.minors:
        check_minor(found, minor, small, states)


def modulo(forms: Forms, p: int) -> Forms:
    """The numerators modulo p."""

    def small(ball: Ball) -> Ball:
        return Ball([[v % p for v in row] for row in ball.rows])

    read = {kind: [[*map(small, heads)] for heads in layers] for kind, layers in forms.read.items()}
    return Forms(small(forms.enter), read, [[*map(small, heads)] for heads in forms.move], small(forms.leave))


def reached(s: Shape, forms: Forms, state: State, p: int) -> list[int]:
    """Row i of W_E M_w in the numerators, modulo p."""
    row = forms.enter.rows[state[0]]
    for move, letter in zip(forms.move, state[1], strict=False):
        if letter >= s.residual:
            row = [sum(map(mul, row, column)) % p for column in zip(*move[letter - s.residual].rows, strict=True)]
    return row


def reading(s: Shape, forms: Forms, boundary: int, reader: Reader, p: int = 0) -> list[int]:
    """A column in the numerators, modulo p if it is given."""
    kind, word, coordinate = reader
    last = forms.leave
    if kind != "OV":
        last, word = forms.read[kind][boundary + len(word) - 1][word[-1] - s.residual], word[:-1]
    column = [row[coordinate] for row in last.rows]
    for layer in range(boundary + len(word), boundary, -1):
        letter = word[layer - boundary - 1]
        if letter >= s.residual:
            column = [sum(map(mul, row, column)) for row in forms.move[layer - 1][letter - s.residual].rows]
            column = [v % p for v in column] if p else column
    return column


def check_minor(found: Realization, minor: Minor, small: Forms, states: list[Ball]) -> None:
    s, p, at = found.shape, found.p, minor.boundary
    if not minor.rows:
        return
    if minor.combinations is None:
        columns = [reading(s, small, at, reader, p) for reader in minor.columns]
    else:
        parts = [*zip(*(reading(s, found.target, at, reader) for reader in minor.columns), strict=True)]
        columns = [[sum(map(mul, line, entries)) for entries in parts] for line in minor.combinations]
        if any(sum(map(mul, row, column)) for row in states[at - 1].rows for column in columns):
            raise Stop(f"the combinations at boundary {at} do not vanish on the states known before")
        columns = [[v % p for v in column] for column in columns]
    rows = (reached(s, small, state, p) for state in minor.rows)
    table = [array(U32, [sum(map(mul, row, column)) % p for column in columns]) for row in rows]
    if not rank_reaches(table, p, len(table)):
        raise Stop(f"the minor at boundary {at} is zero modulo {p}")


# ----------------------------------------------------------------------------------------------------
# One certificate (sections 2-4 and 14)

KINDS = (
    *("rank-permutation", "rank-modular", "rank-deficient", "linear-test", "identity", "lower-bound"),
    *("tied-kernel", "enclosure", "rank-triangular", "realization"),
)
NOTIONS = {
    "enclosure": ("one emulation",),
    "linear-test": ("attention-matching",),
    "identity": ("attention-matching", "matching", "shared attention", "functional"),
    "lower-bound": ("matching", "shared attention", "functional", "attention-matching"),
}  # of the other kinds: matching
REFUTATIONS = ("rank-deficient", "lower-bound")
TARGETS_OF = {
    "enclosure": ("this one",),
    "realization": ("this one",),
    "identity": (*TARGETS, *GENERIC),
    "lower-bound": (*TARGETS[:2], *GENERIC),
    "rank-deficient": TARGETS[:2],
    "rank-permutation": TARGETS[:2],
    "tied-kernel": TARGETS[1:2],
}  # of the other kinds: all untied


@dataclass(frozen=True)
class Claim:
    kind: str
    shape: Shape
    construction: str
    dtype: str = ""
    law: str = ""
    seed: int = 0
    weights: dict[str, Tensor] | None = None
    weights_digest: str = ""
    tied: bool = False
    notion: str = "matching"
    targets: str = "all untied"
    free: str = ""
    nullity: int = 0  # of R_all, as a tied-kernel has it
    edges: tuple[tuple[int, int], ...] = ()  # of the construction `middle`

    @property
    def queries(self) -> int:
        """How many columns of every R_Q are looked at."""
        return self.shape.d_in if self.kind == "linear-test" else self.shape.head_dim

    @property
    def columns(self) -> int:
        """The number of columns of R_all, or of the test matrix, or of those that are looked at."""
        if self.kind == "rank-permutation" and self.shape.residual:
            return self.shape.reduced_columns
        return self.shape.columns - (self.shape.head_dim - self.queries) * self.shape.readers(self.shape.layers)

    @property
    def rank(self) -> int:
        return self.columns - self.nullity

    @property
    def columns_name(self) -> str:
        if self.nullity:
            return f"M - {self.nullity}"
        if self.kind == "rank-permutation" and self.shape.residual:
            return "2dS + d_out (1 + S)"
        return "the number of its columns" if self.kind == "linear-test" else "M"

    @property
    def how(self) -> str:
        """The notion and, for the kinds that differ in them, the targets and what depends on the target."""
        if self.kind.startswith("rank-") and self.targets == TARGETS[0]:
            return f"by {self.notion}"
        notion = "in the functional sense" if self.notion == "functional" else f"by {self.notion}"
        return f"{notion} (targets: {self.targets}{'; ' + self.free + ' free' if self.free else ''})"

    def __str__(self) -> str:
        if self.kind == "lower-bound" and self.construction.startswith("every"):
            return f"{self.construction} with m <= {figure(self.shape.m)} at {self.shape.without_m()}"
        drawn = f" ({self.law}, {self.dtype}, seed {self.seed})" if self.construction in RANDOM else ""
        return f"{self.construction}{drawn} at {self.shape}"


def read_claim(claim: Claim, host: object, folder: str, limits: Limits) -> Claim:
    """The claim with its host; so far it has the kind, the shape, the notion, the targets and what is free."""
    kind, shape = claim.kind, claim.shape
    if not isinstance(host, dict):
        raise Malformed("host is not an object")
    if kind == "linear-test" and not shape.d_in == shape.d_out <= shape.head_dim:
        raise Malformed(f"the linear test is for d_in = d_out <= d, the shape is {shape}")
    if claim.targets == "all tied" and kind in ("rank-deficient", "tied-kernel") and shape.d_in != shape.d_out:
        raise Malformed(f"{kind} is for tied targets with d_in = d_out only, the shape is {shape}")
    require_stream(claim, host)
    if kind == "realization":
        (every,) = record(host, "host", "every")
        return replace(claim, construction="every " + choice(every, "every", "host"))
    if kind == "lower-bound":
        if "every" in host:
            (every,) = record(host, "host", "every")
            return replace(claim, construction="every " + choice(every, "every", *EVERY))
        _, system = record(host, "host", "R_V", "system")
        tied = choice(system, "system", *GIVEN) == GIVEN[1]
        return replace(claim, construction=f"the given {system} host", tied=tied)
    if "weights" in host and kind != "identity":
        system, digest = record(host, "host", "system", "weights")
        tied = choice(system, "system", "universal", "looped-universal") == "looped-universal"
        read_digest(digest, "weights")
        if kind in ("rank-permutation", "rank-triangular"):
            raise Malformed(f"{kind} is not for weights from a file")
        looks = [look(host_sizes(shape, tied, inner)) for inner in (None, 0)]
        tensors = limits.files.find(digest, shape.residual, folder, looks, limits)
        require_host_tensors(tensors)
        claim = replace(claim, construction=f"{system} weights {digest[:16]}", weights=tensors, tied=tied)
        return replace(claim, weights_digest=digest)
    known = (*IDENTITIES, *DRAWN) if kind == "identity" else (*INDEX_HOSTS, *RANDOM)
    name = choice(host.get("construction"), "construction", *known)
    if name in RANDOM:
        _, dtype, law, seed = record(host, "host", "construction", "dtype", "law", "seed")
        claim = replace(
            claim,
            construction=name,
            dtype=choice(dtype, "dtype", "float64", *FORMATS),
            law=choice(law, "law", *LAWS),
            seed=integer(seed, "seed"),
            tied=name == "random-tied",
        )
        if not 0 <= claim.seed < 2**64:
            raise Malformed("seed is outside 0..2^64-1")
    else:
        record(host, "host", "construction", *(["edges"] if name == "middle" else []))
        claim = replace(claim, construction=name)
        if name in DRAWN:
            return read_drawn(claim)
        rule = IDENTITIES[name] if kind == "identity" else None
        if name == "shared-query" and claim.notion == "functional" and shape.heads == shape.d_in == 1:
            rule = FUNCTIONAL
        if rule is not None:
            if (claim.notion, claim.free) != (rule.notion, rule.free) or claim.targets not in rule.targets:
                raise Malformed(f"no identity says that {name} is universal {claim.how}")
            if shape.d_in != shape.d_out:
                raise Malformed(f"{kind} is for d_in = d_out, the shape is {shape}")
        if rule is not None and rule.host is Middle:
            claim = replace(claim, edges=read_edges(host["edges"], shape))
            least = middle_least(shape, list(claim.edges))
            if claim.targets == INVERTIBLE_MIDDLE and shape.head_dim < shape.d_in:
                raise Malformed(f"no matrices M are invertible at {shape}")
        else:
            least = (rule.host if rule else (RESIDUAL_HOSTS if shape.residual else INDEX_HOSTS)[name]).least(shape)
        if least is None:
            raise Malformed(f"{name} is not defined at {shape}")
        if shape.m < least:
            raise Malformed(f"{name} needs m >= {figure(least)}, m is {figure(shape.m)}")
    dense = dict.fromkeys(("rank-modular", "linear-test", "tied-kernel"), RANDOM)
    unit = ("tied",) if shape.residual else PERMUTATIONS
    allowed = {"rank-permutation": unit, "rank-triangular": ("sparse",), **dense}.get(kind)
    if allowed is not None and name not in allowed:
        raise Malformed(f"{kind} is not for the construction {name}")
    return claim


def read_drawn(claim: Claim) -> Claim:
    """The claim, if the format has an identity of a rational embedding that says it."""
    shape, name = claim.shape, claim.construction
    host, targets, stream = DRAWN[name]
    if claim.notion != "attention-matching" or claim.targets not in targets or shape.d_in != shape.d_out:
        raise Malformed(f"no identity says that {name} is universal {claim.how} at {shape}")
    least = host.least(shape) if shape.residual == stream else None
    if least is None:
        raise Malformed(f"{name} is not defined at {shape}")
    if shape.m < least:
        raise Malformed(f"{name} needs m >= {figure(least)}, m is {figure(shape.m)}")
    return claim


def require_stream(claim: Claim, host: dict[str, Any]) -> None:
    """Malformed where a residual stream is there and the kind or the construction knows none, or the other way round."""
    kind, shape = claim.kind, claim.shape
    if kind == "rank-triangular" and not shape.residual:
        raise Malformed(f"{kind} is for residual streams only, the shape is {shape}")
    if kind == "rank-permutation":
        if claim.targets == "all tied" and not shape.residual:
            raise Malformed(f"{kind} is for tied targets with a residual stream only, the shape is {shape}")
        if claim.targets == "all untied" and shape.residual and shape.layers > 1:
            raise Malformed(f"{kind} with a residual stream is for tied targets, unless L = 1; the shape is {shape}")
    if not shape.residual:
        return
    name = host.get("construction")
    drawn = isinstance(name, str) and name in DRAWN
    if (kind == "identity" and not drawn) or (kind == "lower-bound" and "every" not in host):
        raise Malformed(f"{kind} of a given host is not defined with a residual stream, the shape is {shape}")
    if isinstance(name, str) and name in INDEX_HOSTS and name not in RESIDUAL_HOSTS:
        raise Malformed(f"{name} is not defined with a residual stream, the shape is {shape}")


def read_edges(value: object, s: Shape) -> tuple[tuple[int, int], ...]:
    """One pair for each head."""
    if not isinstance(value, list) or len(value) != s.heads:
        raise Malformed("edges is not an array of one pair for each head")
    if any(not isinstance(edge, list) or len(edge) != 2 for edge in value):
        raise Malformed("edges has an entry that is not a pair")
    edges = tuple((integer(i, "a number of edges"), integer(j, "a number of edges")) for i, j in value)
    if any(not 0 <= x <= s.heads for edge in edges for x in edge):
        raise Malformed("edges has a number outside 0..H")
    return edges


def middle_least(s: Shape, edges: list[tuple[int, int]]) -> int | None:
    return int(s.d_in * parts(edges) * s.heads ** (s.layers // 2)) if s.layers % 2 else None


def check_document(document: object, folder: str, limits: Limits, facts: dict[str, Any]) -> str:
    """What a valid certificate proves. Fills `facts` as far as it gets."""
    certificate_format, version, kind, shape_record, statement, evidence = record(
        document, "the certificate", "format", "version", "kind", "shape", "claim", "evidence"
    )
    choice(certificate_format, "format", "utfproof-certificate")
    if integer(version, "version") != 1:
        raise Malformed(f"version {quote(version)} is unknown")
    facts["kind"] = kind = choice(kind, "kind", *KINDS)
    if not isinstance(statement, dict):
        raise Malformed("claim is not an object")
    verdicts = {"enclosure": ("within", "apart", "equal"), "realization": ("least m",)}
    known = verdicts.get(kind, ("universal", "not universal"))
    verdict = choice(statement.get("verdict"), "the claim's verdict", *known)
    notion = choice(statement.get("notion"), "notion", *NOTIONS.get(kind, ("matching",)))
    names = ["host", "notion", "targets", "verdict"]
    ranked = verdict == "universal" and kind not in ("identity", "lower-bound")
    names += ["rank"] * ranked + ["free"] * (notion == "shared attention")
    names += ["target"] * (kind == "realization")
    if kind == "enclosure":
        names += ["attention", "context"] + ["digits", "difference"] * (verdict != "equal")
        names += [name for name in BOUND if any(name in statement for name in BOUND)]  # all of them, or none
    claimed = dict(zip(names, record(statement, "claim", *names), strict=True))
    targets = choice(claimed["targets"], "targets", *TARGETS_OF.get(kind, TARGETS[:1]))
    free = choice(claimed["free"], "free", "E", "E and U") if "free" in claimed else ""
    facts |= {"notion": notion, "targets": targets, "verdict": verdict} | ({"free": free} if free else {})
    rank = integer(claimed["rank"], "rank") if ranked else None
    shape = read_shape(shape_record)
    facts["shape"] = {name: stated(value) for name, value in vars(shape).items() if value is not False}
    start = Claim(kind, shape, "", notion=notion, targets=targets, free=free)
    claim = read_claim(start, claimed["host"], folder, limits)
    facts["construction"] = claim.construction
    if claim.weights is not None:
        facts["weights"] = claim.weights_digest
    if kind == "rank-deficient":
        check = read_deficient(claim, evidence, limits)
    elif kind in ("rank-permutation", "rank-triangular"):
        check = read_permutation(claim, evidence, folder, limits)
    elif kind == "identity":
        check = read_identity(claim, evidence, limits)
    elif kind == "lower-bound":
        check = read_lower_bound(claim, claimed["host"], evidence, limits)
    elif kind == "tied-kernel":
        basis, p = read_tied_kernel(claim, evidence)
        claim = narrowed = replace(claim, nullity=len(basis))
        check = lambda: check_tied_kernel(narrowed, basis, p, limits)  # noqa: E731
    elif kind == "enclosure":
        check = read_enclosure(claim, claimed, evidence, limits, facts)
    elif kind == "realization":
        check = read_realization(claim, claimed, evidence, limits, facts)
    else:
        check = read_modular(claim, evidence, folder, limits)
    if limits.target and kind not in verdicts:
        raise Stop("the certificate is not about one target, hence not about the one given")
    if kind not in verdicts and verdict != ("not universal" if kind in REFUTATIONS else "universal"):
        raise Stop(f'{kind} does not prove "{verdict}"')
    if rank is not None:
        if rank != claim.rank:
            raise Stop(f"the rank is stated as {figure(rank)}, {claim.columns_name} is {figure(claim.rank)}")
        facts["rank"] = stated(rank)
    if claim.weights is not None:
        WeightsHost(claim)  # complains about other shapes
        limits.require(0, 60 * sum(len(held.data) // array(held.code).itemsize for held in claim.weights.values()))
        require_finite(claim.weights)
    check()
    if kind == "enclosure":
        return f"{emulated(claimed, facts)}: {claim}"
    if kind == "realization":
        return (
            f"{verdict} {claim.how}: m = {figure(shape.m)} for target {claimed['target'][:16]} at {shape.without_m()}"
        )
    return f"{verdict} {claim.how}: {claim}"


def scientific(n: int, digits: int, *, up: bool) -> str:
    """n * 10^-digits to a few digits, rounded up or down."""
    dropped = max(0, n.bit_length() * 30103 // 100000 - 5)  # log10(2) = 0.30103
    text = str(-(-n // 10**dropped) if up else n // 10**dropped)
    return f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{len(text) - 1 + dropped - digits}"


def emulated(claimed: dict[str, Any], facts: dict[str, Any]) -> str:
    """What was shown of one emulation."""
    facts |= {"attention": claimed["attention"], "context": claimed["context"]}
    found = "the outputs are equal exactly"
    if claimed["verdict"] != "equal":
        digits, (low, high) = claimed["digits"], (integer(x, "difference") for x in claimed["difference"])
        facts |= {"digits": digits, "difference": [stated(low), stated(high)]}
        least = f"at least {scientific(low, digits, up=False)} and " if low else ""
        found = f"the outputs are {least}at most {scientific(high, digits, up=True)} apart"
    where = f"attention {claimed['attention']}, n = {claimed['context']}"
    named = ", ".join(f"{name} {facts[name][:16]}" for name in BOUND)
    return f"{claimed['verdict']}, {found} ({named}; {where})"


def read_deficient(claim: Claim, evidence: object, limits: Limits) -> Callable[[], None]:
    method = choice(
        evidence.get("method") if isinstance(evidence, dict) else None,
        "the evidence's method",
        *(["dimension", "kernel-vector"] if claim.targets == TARGETS[0] else ["tied-target"]),
    )
    columns = claim.shape.columns
    if method == "tied-target":
        row, entries, pairs = record(evidence, "evidence", "row", "target", "z", "method")[:3]
        row = integer(row, "row")
        if not 0 <= row < claim.shape.d_in:
            raise Malformed("row is not one of the d_in rows")
        target, z = read_target(entries, claim), read_pairs(pairs, "z", columns)
        return lambda: check_tied_target(claim, target, row, z, limits)
    if method == "kernel-vector":
        parts = record(evidence, "evidence", "column", "distance_squared", "z", "method")[:3]
        kernel = read_kernel(parts, columns)
        return lambda: check_kernel(claim, kernel, limits)
    record(evidence, "evidence", "method")

    def check() -> None:
        if claim.shape.m >= columns:
            raise Stop(f"m = {figure(claim.shape.m)} is not below M = {figure(columns)}")

    return check


def read_tied_kernel(claim: Claim, evidence: object) -> tuple[list[Pairs], int]:
    vectors, prime = record(evidence, "evidence", "basis", "prime")
    if not isinstance(vectors, list) or not vectors:
        raise Malformed("basis is not an array of vectors")
    return [read_pairs(pairs, "a vector of the basis", claim.shape.columns) for pairs in vectors], read_prime(prime)


def read_prime(value: object) -> int:
    p = integer(value, "prime")
    if not 2 <= p < 2**31:
        raise Malformed("prime is outside 3..2^31-1")
    return p


def read_modular(claim: Claim, evidence: object, folder: str, limits: Limits) -> Callable[[], None]:
    method = choice(
        evidence.get("method") if isinstance(evidence, dict) else None,
        "the evidence's method",
        "recompute",
        *(["witness"] if claim.kind == "rank-modular" else []),
    )
    names = ["prime"] if method == "recompute" else ["prime", "rows", "inverse"]
    if claim.kind == "linear-test" and isinstance(evidence, dict) and "gauges" in evidence:
        names.append("gauges")
    prime, *arrays = record(evidence, "evidence", *names, "method")[:-1]
    p = read_prime(prime)
    if method == "recompute":
        gauges = read_grid(arrays[0], "gauges", claim, claim.shape.d_in, claim.shape.head_dim) if arrays else None
        return lambda: check_modular(claim, p, limits, gauges)
    columns = claim.shape.columns
    rows = integer_array(arrays[0], "rows", columns, folder, limits)
    if any(later <= earlier for earlier, later in pairwise(rows)):
        raise Malformed("rows do not increase strictly")
    inverse = integer_array(arrays[1], "inverse", columns**2, folder, limits, "uint16" if p < 2**16 else "uint32")
    return lambda: check_witness(claim, p, rows, inverse, limits)


def read_permutation(claim: Claim, evidence: object, folder: str, limits: Limits) -> Callable[[], None]:
    (value,) = record(evidence, "evidence", "rows")
    kind, permuted = index_kind(claim), claim.kind == "rank-permutation"
    assert kind is not None
    if permuted and value == STANDARD:
        return lambda: check_permutation(claim, kind, None, limits)
    rows = integer_array(value, "rows", claim.columns, folder, limits)
    if permuted:
        return lambda: check_permutation(claim, kind, unsigned(rows, "rows"), limits)
    return lambda: check_triangular(kind(claim.shape), unsigned(rows, "rows"), limits)


# ----------------------------------------------------------------------------------------------------
# Public functions and the command line

Path = str | os.PathLike[str]


def check_file(path: Path, limits: Limits | None = None) -> Verdict:
    """The verdict on one certificate file. Raises nothing but KeyboardInterrupt."""
    limits = fresh(limits)
    return judged(path, limits)


def fresh(limits: Limits | None) -> Limits:
    """For a new run, which knows no files of weights yet."""
    return Limits() if limits is None else replace(limits, files=WeightFiles())


def judged(path: Path, limits: Limits) -> Verdict:
    facts: dict[str, Any] = {}
    try:
        path = os.fsdecode(path)
        raw = b"".join(read_regular(path, MAX_JSON, follow=True))
        limits.require(100 * len(raw), 500 * len(raw))
        proved = check_document(parse_canonical(raw), os.path.dirname(path), limits, facts)
        return Verdict(VALID, proved, facts)
    except Stop as stop:
        return Verdict(stop.code, str(stop), facts)
    except OSError as error:
        return Verdict(MALFORMED, f"cannot be read: {error.strerror or error}", facts)
    except UnicodeError:
        return Verdict(MALFORMED, "no file can have this name", facts)
    except MemoryError:
        return Verdict(LIMIT, "the memory did not suffice", facts)
    except Exception as error:  # nothing is established by a check that breaks off
        return Verdict(INVALID, f"the check broke off: {type(error).__name__}: {quote(str(error))}", facts)
    finally:
        lanes.cache_clear()  # constants as long as a row
        root.cache_clear()


BESIDE = (".bin", ".safetensors")  # what may lie beside certificates, which end in .json


def find_certificates(paths: Iterable[Path], skipped: list[tuple[str, str]]) -> Iterator[tuple[str, str | None]]:
    """Each certificate file with None, and each path that yields none with the reason. Adds to `skipped` what else is met
    in folders and not looked at, with the reason."""
    for given in map(os.fsdecode, paths):
        if not os.path.isdir(given):
            yield given, None
            continue
        errors: list[OSError] = []
        found, waiting = [], [given]
        while waiting:  # os.walk is recursive in some versions
            folder = waiting.pop()
            others: dict[str, int] = {}  # by ending
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        ending = os.path.splitext(entry.name)[1]
                        if entry.is_dir() and entry.is_symlink():
                            skipped.append(
                                (entry.path, "a link to a folder is not followed; name it to have it checked")
                            )
                        elif entry.is_dir():
                            waiting.append(entry.path)
                        elif entry.name.endswith(".json"):
                            found.append(entry.path)
                        elif ending not in BESIDE:
                            others[ending] = others.get(ending, 0) + 1
            except OSError as unreadable:
                errors.append(unreadable)
            if others:
                kinds = ", ".join(
                    f"{count} {ending or 'without an ending'}" for ending, count in sorted(others.items())
                )
                why = f"other endings than .json ({kinds}) are not looked at; name a file to have it checked"
                skipped.append((folder, why))
        yield from ((name, None) for name in sorted(found))
        for error in errors:
            yield os.fsdecode(error.filename or given), f"cannot be read: {error.strerror}"
        if not found and not errors:
            yield given, "a folder without certificates"


def verdicts(
    paths: Iterable[Path], limits: Limits, skipped: list[tuple[str, str]] | None = None
) -> Iterator[tuple[str, Verdict]]:
    """One run: weights are looked for once in each folder."""
    limits = fresh(limits)
    for path, trouble in find_certificates(paths, [] if skipped is None else skipped):
        yield path, judged(path, limits) if trouble is None else Verdict(MALFORMED, trouble)


def check_paths(paths: Iterable[Path], limits: Limits | None = None) -> list[tuple[str, Verdict]]:
    """The verdicts on certificate files and on all *.json in folders (recursively, sorted)."""
    return list(verdicts(paths, Limits() if limits is None else limits))


def exit_code(codes: Iterable[int]) -> int:
    present = set(codes)
    return next((code for code in (INVALID, MALFORMED, LIMIT) if code in present), VALID)


def plain(text: str) -> str:
    """One line of ASCII, whatever a file is called."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)


def memory_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18})([kKmMgGtT]?)(i?B)?", text, re.ASCII)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{quote(text)} is not a number of bytes, such as 500M or 4G")
    return int(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " ")


def seconds(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text, re.ASCII) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{quote(text)} is not a positive number of seconds")
    return int(text)


def report(args: argparse.Namespace, limits: Limits, watch: Callable[[str], None] | None = None) -> int:
    codes, results, skipped = [], [], list[tuple[str, str]]()
    for path, verdict in verdicts(args.paths, limits, skipped):
        if args.kind is not None and verdict.facts.get("kind", args.kind) != args.kind:
            skipped.append((path, f"not of kind {args.kind}"))
            continue
        codes.append(verdict.code)
        if watch is not None:
            watch(path)
        if args.json:
            results.append(
                {
                    "path": plain(path),
                    "code": verdict.code,
                    "status": LABELS[verdict.code].lower(),
                    "message": verdict.message,
                    **verdict.facts,
                }
            )
        elif verdict.code != VALID or not args.quiet:
            print(plain(f"{LABELS[verdict.code]:9} {path}: {verdict.message}"), flush=True)
    code = exit_code(codes) if codes else MALFORMED
    if args.json:
        passed = [{"path": plain(path), "reason": reason} for path, reason in sorted(skipped)]
        print(json.dumps({"exit_code": code, "results": results, "skipped": passed}, indent=1), flush=True)
        return code
    for path, reason in sorted(skipped):
        print(plain(f"skipped   {path}: {reason}"), flush=True)
    return code


# Functions that can refuse a certificate, find a file or say what is stated, but have no part in accepting: costs only
# refuse, files are hashed where they are read (WeightFiles.load), and words are for people.
ESTIMATES = [
    "require",
    "require_identity",
    "require_matrix",
    "drawing_work",
    "drawn_bits",
    "product_time",
    "target_work",
    "entry_bits",
]
ESTIMATES += ["magnitude", "value_bits", "default_memory", "find", "hashed_until", "folder", "look"]
WORDING = ["figure", "quote", "stated", "scientific", "emulated", "how", "columns_name", "without_m", "__str__"]


def code_run(path: Path, limits: Limits) -> tuple[Verdict, list[int], list[str]]:
    """The verdict on a certificate, and what its check makes one trust of this file: the numbers of the lines of every
    function that ran and of the constants and classes that these name; and all lines of the file."""
    import ast

    ran: set[Any] = set()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename == __file__ and code.co_name not in (*ESTIMATES, *WORDING):
            ran.add(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        verdict = check_file(path, limits)
    finally:
        sys.setprofile(before)
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    starts, names = {code.co_firstlineno for code in ran}, set().union(*(code.co_names for code in ran))
    found: set[int] = set()

    def take(node: Any) -> None:
        found.update(range(first_line(node), node.end_lineno + 1))

    def first_line(node: Any) -> int:
        return int(min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))]))

    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and first_line(node) in starts:
            take(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if names & {target.id for target in targets if isinstance(target, ast.Name)}:
                take(node)
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            held = [part for part in methods if first_line(part) in starts]
            if held or (node.name in names and not methods):
                take(node)
                for part in methods:
                    if part not in held:
                        found.difference_update(range(first_line(part), part.end_lineno + 1))  # type: ignore[operator]
    return verdict, sorted(found), text.splitlines()


def show(paths: Iterable[Path], limits: Limits, kind: str | None) -> int:
    """Print, for each certificate (of one kind), the lines of this file that its check rests on."""
    codes = []
    for path, trouble in find_certificates(paths, []):
        if trouble is not None:
            verdict, numbers, lines = Verdict(MALFORMED, trouble), list[int](), list[str]()
        else:
            verdict, numbers, lines = code_run(path, limits)
        if kind in (None, verdict.facts.get("kind", kind)):
            codes.append(verdict.code)
            said = f"{LABELS[verdict.code]:9} {path}: {verdict.message}; {len(numbers)} of {len(lines)} lines ran"
            print(plain(said), flush=True)
            for number in numbers:
                print(f"{number:5} {lines[number - 1]}")
    return exit_code(codes) if codes else MALFORMED


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def main(argv: list[str] | None = None, program: str = "checker", watch: Callable[[str], None] | None = None) -> int:
    """The command line; `watch` is told the path of each certificate that is done."""
    parser = Parser(
        prog=program,
        description="Checks utfproof certificates. Exit status: 0 all are valid; "
        "1 one is invalid; else 2 one is malformed; else 3 one is over a limit.",
        epilog=f"Example: {program} certificates/",
    )
    parser.add_argument("paths", nargs="+", metavar="CERTIFICATE|FOLDER")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="say nothing about valid certificates")
    parser.add_argument(
        "--max-memory",
        type=memory_size,
        metavar="BYTES",
        help="such as 500M or 4G (default: 80%% of the machine's)",
    )
    parser.add_argument(
        "--max-seconds",
        type=seconds,
        default=3600,
        metavar="N",
        help="bound on the estimated time of one certificate (default 3600)",
    )
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="FILE|FOLDER",
        help="a file of weights, tried before those beside the certificate, or a folder of them, tried after",
    )
    parser.add_argument(
        "--target",
        metavar="FILE",
        help="the target, as a safetensors file, that certificates must be about (kinds enclosure and realization)",
    )
    parser.add_argument("--kind", choices=KINDS, metavar="KIND", help="look at certificates of this kind only")
    parser.add_argument(
        "--show", action="store_true", help="print the lines of the checker that each certificate's check rests on"
    )
    parser.add_argument("--numpy", action="store_true", help="check witnesses with NumPy (trusted then, too)")
    args = parser.parse_args(argv)
    if missing := [place for place in args.weights if not os.path.exists(place)]:
        parser.error(f"--weights {quote(missing[0])}: there is no such file or folder")
    if args.target and not os.path.isfile(args.target):
        parser.error(f"--target {quote(args.target)}: there is no such file")
    memory, operations = args.max_memory or default_memory(), args.max_seconds * 10**9
    try:
        limits = Limits(memory, operations, args.numpy, tuple(args.weights), args.target or "")
        return show(args.paths, limits, args.kind) if args.show else report(args, limits, watch)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:  # check_file raises none, so this comes from the output
        if sys.stdout is not None:  # its buffer must not be flushed into the same error at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"cannot write the report: {error.strerror}", file=sys.stderr)
        return 141


if __name__ == "__main__":
    sys.exit(main())
