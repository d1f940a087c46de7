"""A host of Llama's own family for every Llama-like model with bounded weights (docs/proofs/llama.md).

RMS norms before attention, before the MLP and before U; softmax attention; SwiGLU. The target's weights are constants of the
host's stream, and gated units multiply by them. One large constant makes the host's own norm divide by rho, up to a relative
1/rho^2. The target's norm takes three blocks: a sum of squares, s^(-1/2) by SiLU units, a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from utfproof.attention import AttentionKernel, SoftmaxAttention
from utfproof.constructions.multiplying import Places, Product, hidden_units, times
from utfproof.errors import MalformedInput, OutsideClass
from utfproof.systems.mlp import activated
from utfproof.util.resources import require_memory

RHO = 1e7
"""The root mean square of the host's rows: its own norm is off by 1/(2 rho^2) times the target's mean square."""
LLAMA_ATTENTION = SoftmaxAttention(scale="1/sqrt(d)", causal=True, rope_base=10000.0)


class Block(NamedTuple):
    """x <- x + sum_h A^h nu(x) V^h O^h, then x <- x + (silu(nu(x) gate) * (nu(x) factor)) out.

    heads: (Q, K, V, O) of each, [width, d] three times and [d, width]; none: the heads are idle. gate, factor: [width, K], out
    [K, width]. Dense or sparse.
    """

    heads: Sequence[tuple[Any, Any, Any, Any]]
    gate: Any
    factor: Any
    out: Any


@dataclass(frozen=True, eq=False)
class LlamaLike:
    """A model of the family: rows embedding [V, width], blocks, unembedding [width, V] behind the last norm, and eps of all
    norms. Gains of norms are within the matrices behind them."""

    embedding: np.ndarray
    blocks: Sequence[Block]
    unembedding: Any
    eps: float
    attention: AttentionKernel = LLAMA_ATTENTION

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, V] of token ids [n], in float64."""
        x, positions = self.embedding[tokens], np.arange(len(tokens))
        for number, block in enumerate(self.blocks):
            z, moved = self._norm(x), x.copy() if len(block.heads) else x
            for head, (Q, K, V, out) in enumerate(block.heads):
                weights = self.attention(z @ Q, z @ K, positions, layer=number, head=head)
                moved += (weights @ (z @ V)) @ out
            z = self._norm(moved)
            x = moved + (activated("silu", z @ block.gate) * (z @ block.factor)) @ block.out
        return np.asarray(self._norm(x) @ self.unembedding)

    def _norm(self, x: np.ndarray) -> np.ndarray:
        """RMS norm of rows [n, width]."""
        root: np.ndarray = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return x / root


@dataclass(frozen=True)
class LlamaClass:
    """Targets of these sizes whose matrices (of all heads together; rows of W_E) have operator norms of at most `bound`.

    heads H, layers L, head_dim d, width D, hidden K, vocabulary V; eps of their norms.
    """

    heads: int
    layers: int
    head_dim: int
    width: int
    hidden: int
    vocabulary: int
    eps: float = 1e-6
    bound: float = 4.0
    attention: AttentionKernel = LLAMA_ATTENTION

    @cached_property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Shapes of a layer's matrices."""
        D, H, K = self.width, self.heads * self.head_dim, self.hidden
        return {"Q": (D, H), "K": (D, H), "V": (D, H), "O": (H, D), "gate": (D, K), "factor": (D, K), "out": (K, D)}

    @property
    def m(self) -> int:
        """The host's width: 4 + D + max(4 H d, 2K + K D, V) + L (4 H d D + 3 D K) + D V."""
        D, K, V = self.width, self.hidden, self.vocabulary
        scratch = max(4 * self.heads * self.head_dim, 2 * K + K * D, V)
        return 4 + D + scratch + self.layers * sum(map(prod, self.matrices.values())) + D * V

    @property
    def largest_mean_square(self) -> float:
        """Above the mean square plus eps of every row that a target normalises: |nu| <= sqrt(D), |silu(z)| <= |z|."""
        B, D = self.bound, self.width
        longest = B + self.layers * (np.sqrt(self.heads * D) * B**2 + D * B**3)
        return float((2 * longest) ** 2 / D + self.eps)

    @property
    def squares(self) -> float:
        """At least the sum of squares of a target's matrices, E apart."""
        ranks = self.layers * sum(min(shape) for shape in self.matrices.values()) + min(self.width, self.vocabulary)
        return float(self.bound**2 * ranks)

    def require(self, target: LlamaLike) -> None:
        """OutsideClass unless the target is of this class."""
        weights = dict(zip(("W_E", "W_U"), (target.embedding, target.unembedding), strict=True))
        for layer, block in enumerate(target.blocks):
            weights |= {f"{name} of layer {layer}": matrix for name, matrix in stacked(block).items()}
        sizes = (len(target.blocks), target.embedding.shape, {len(block.heads) for block in target.blocks})
        if sizes != (self.layers, (self.vocabulary, self.width), {self.heads}) or target.eps != self.eps:
            raise OutsideClass(f"the target's sizes are {sizes} with eps {target.eps}; the host is for {self}")
        for name, matrix in weights.items():
            norm = float(np.linalg.norm(matrix, axis=1).max() if name == "W_E" else np.linalg.norm(matrix, 2))
            if not norm <= self.bound:
                raise OutsideClass(
                    f"{name} has the norm {norm:.3g}; the host is for norms up to {self.bound:g}; choose a larger bound"
                )


def stacked(block: Block) -> dict[str, np.ndarray]:
    """The matrices of a target's block by the names of `LlamaClass.matrices`, heads side by side."""
    *reads, outs = zip(*block.heads, strict=True)
    joined = {name: np.hstack(part) for name, part in zip("QKV", reads, strict=True)}
    return joined | {"O": np.vstack(outs), "gate": block.gate, "factor": block.factor, "out": block.out}


@dataclass(frozen=True, eq=False)
class LlamaHost:
    """The host for a class: its blocks are fixed, `embed` gives E [V, m] of a target."""

    members: LlamaClass
    at: Places
    blocks: Sequence[Block]
    unembedding: Any
    constant: float

    @property
    def m(self) -> int:
        """The width (`LlamaClass.m`)."""
        return self.members.m

    def embed(self, target: LlamaLike) -> LlamaLike:
        """The host with E of this target. OutsideClass where the target is none of the class."""
        members, at = self.members, self.at
        members.require(target)
        row = np.zeros(self.m)
        for layer, block in enumerate(target.blocks):
            for name, matrix in stacked(block).items():
                row[at((name, layer))] = matrix
        row[at("U")] = target.unembedding
        row[at("pad")] = np.sqrt(members.squares - row @ row)
        row[at("one")] = self.constant
        E = np.tile(row, (members.vocabulary, 1))
        E[:, at("y")] = target.embedding
        return LlamaLike(E, self.blocks, self.unembedding, members.eps, members.attention)


def llama_host(members: LlamaClass, rho: float = RHO) -> LlamaHost:
    """The host of 8 L + 3 blocks. ResourceLimit before allocating."""
    entries = 16 * members.layers * sum(map(prod, members.matrices.values()))
    require_memory(16 * entries + 8 * (members.vocabulary + 1) * members.m, f"a host of width m = {members.m}")
    at = _places(members)
    constant = float(np.sqrt(at.size * (rho**2 - members.eps) - members.squares))
    build = _Builder(members, at, rho, constant)
    blocks = [block for layer in range(members.layers) for block in build.layer(layer)]
    out = at("scratch")[: members.vocabulary]
    blocks += [build.block([*build.squares(), build.linear(at("U"), out)]), build.inverse_root([]), build.scale(out)]
    return LlamaHost(members, at, blocks, build.read(out), constant)


def _places(members: LlamaClass) -> Places:
    """Coordinates: "one", "pad", "y" [D], "s", "r", "scratch", and all of the target's matrices."""
    at, D, K, H = Places(), members.width, members.hidden, members.heads * members.head_dim
    for name, size in (("one", 1), ("pad", 1), ("y", D), ("s", 1), ("r", 1)):
        at(name, size)
    at("scratch", max(4 * H, 2 * K + K * D, members.vocabulary))
    for layer in range(members.layers):
        for name, shape in members.matrices.items():
            at((name, layer), *shape)
    at("U", D, members.vocabulary)
    return at


@dataclass(frozen=True)
class _Builder:
    """Blocks of the host from sums of products of coordinates."""

    members: LlamaClass
    at: Places
    rho: float
    constant: float

    def layer(self, layer: int) -> list[Block]:
        """The eight blocks of a target's layer."""
        H, d, K = self.members.heads, self.members.head_dim, self.members.hidden
        scratch, y, at = self.at("scratch"), self.at("y"), self.at
        q, k, v, o = scratch[: 4 * H * d].reshape(4, H * d)
        a, b, c = scratch[:K], scratch[K : 2 * K], scratch[2 * K : 2 * K + K * len(y)].reshape(K, -1)
        reads = [self.linear(at((name, layer)), x) for name, x in (("Q", q), ("K", k), ("V", v))]
        gates = [self.linear(at((name, layer)), x) for name, x in (("gate", a), ("factor", b))]
        heads = [
            (*(self.read(x[h * d : (h + 1) * d]) for x in (q, k, v)), self._write(o[h * d : (h + 1) * d]))
            for h in range(H)
        ]
        W_O, W_out = at(("O", layer)), at(("out", layer))
        return [
            self.block([*self.squares(), *reads]),
            self.inverse_root([]),
            self.scale(np.concatenate([q, k, v])),
            self.block([times(o, W_O, y), self.clear(scratch[: 4 * H * d])], heads),
            self.block([*self.squares(), *gates]),
            self.inverse_root([Product(np.repeat(b, len(y)), W_out.reshape(-1), c.reshape(-1)), self.clear(b)]),
            self.scale(np.concatenate([a, c.reshape(-1)])),
            self.block(
                [
                    Product(np.repeat(a, len(y)), c.reshape(-1), np.tile(y, K), gated=True),
                    self.clear(np.concatenate([a, c.reshape(-1)])),
                ]
            ),
        ]

    def squares(self) -> list[Product]:
        """s += |y|^2 / D + eps."""
        y, one, s = self.at("y"), self.at("one"), self.at("s")
        return [Product(y, y, np.repeat(s, len(y)), 1 / len(y)), Product(one, one, s, self.members.eps)]

    def linear(self, matrix: np.ndarray, to: np.ndarray) -> Product:
        """y[to] += y W, for the coordinates [D, k] of W."""
        return times(self.at("y"), matrix, to)

    def clear(self, places: np.ndarray) -> Product:
        """These coordinates become 0."""
        return Product(places, np.repeat(self.at("one"), len(places)), places, -1.0)

    def scale(self, places: np.ndarray) -> Block:
        """These coordinates are multiplied by r; s and r become 0."""
        r = self.at("r")
        done = self.clear(np.concatenate([self.at("s"), r]))
        return self.block([Product(np.repeat(r, len(places)), places, places), self.clear(places), done])

    def inverse_root(self, terms: list[Product]) -> Block:
        """r += s^(-1/2), by SiLU units, and these terms."""
        units, constant, slope = inverse_root_units(self.members.eps, self.members.largest_mean_square)
        s, r, one = self.at("s"), self.at("r"), self.at("one")
        return self.block([*terms, Product(one, one, r, constant), Product(s, one, r, slope)], units=units)

    def block(self, terms: list[Product], heads: Sequence[Any] = (), units: np.ndarray | None = None) -> Block:
        """The block whose MLP adds all these terms. units [n, 3]: it adds sum w silu(a s + b) to r as well."""
        gate, factor, to, half, sign = hidden_units(terms)
        count, unit = len(gate), np.arange(len(gate))
        gates = [(gate, unit, half * self._factor(gate))]
        factors, outs = [(factor, unit, self._factor(factor))], [(unit, to, half * sign)]
        if units is not None:
            unit = np.arange(count, count + len(units))
            s, r, one = (np.repeat(self.at(name), len(units)) for name in ("s", "r", "one"))
            gates += [(s, unit, units[:, 0] * self._factor(s)), (one, unit, units[:, 1] * self._factor(one))]
            factors.append((one, unit, self._factor(one)))
            outs.append((unit, r, units[:, 2]))
            count += len(units)
        m = self.at.size
        return Block(heads, *(_sparse(*each) for each in ((gates, m, count), (factors, m, count), (outs, count, m))))

    def read(self, places: np.ndarray) -> Any:
        """[m, k]: the values at these coordinates, from the normalised row."""
        return _sparse([(places, np.arange(len(places)), self._factor(places))], self.at.size, len(places))

    def _write(self, places: np.ndarray) -> Any:
        return _sparse([(np.arange(len(places)), places, np.ones(len(places)))], len(places), self.at.size)

    def _factor(self, places: np.ndarray) -> np.ndarray:
        """What undoes the host's norm; the large constant is read as 1."""
        return np.where(places == self.at("one").item(), self.rho / self.constant, self.rho)


def _sparse(entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]], rows: int, columns: int) -> Any:
    from scipy.sparse import csr_array

    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    return csr_array((value, (row, column)), shape=(rows, columns))


STEP, SHIFT, TAIL = 0.3, 33.0, 1e-14
"""Step of the trapezoid rule; e^(-z) is read where SiLU's argument is below -SHIFT; relative size of what is left out."""


def inverse_root_units(least: float, largest: float) -> tuple[np.ndarray, float, float]:
    """(units [n, 3] of (a, b, w), c0, c1): s^(-1/2) is sum w silu(a s + b) + c0 + c1 s for least <= s <= largest, up to about
    1e-12 of its size.

    s^(-1/2) = pi^(-1/2) times the integral of e^(x/2) exp(-s e^x), by the trapezoid rule; exp(-z) = e^c silu(-z-c) -
    e^(c+1) silu(-z-c-1) up to e^(-c); c0 + c1 s is what lies below the first node, to first order.
    """
    if not 0 < least < largest < np.inf:
        raise MalformedInput(f"norms need eps > 0 below their largest mean square, got {least} and {largest}")
    digits = -np.log(TAIL)
    first, last = -np.log(largest) - 0.4 * digits - 1, np.log(1 / least) + np.log(digits + 3)
    x = np.arange(np.floor(first / STEP), np.ceil(last / STEP) + 1) * STEP
    weight = STEP * np.exp(x / 2) / np.sqrt(np.pi)
    units = [np.stack([-np.exp(x), np.full_like(x, -c), sign * weight * np.exp(c)], 1) for c, sign in _SHIFTS]
    q = np.exp(-STEP / 2)
    c0, c1 = weight[0] * q / (1 - q), -weight[0] * np.exp(x[0]) * q**3 / (1 - q**3)
    return np.concatenate(units), float(c0), float(c1)


_SHIFTS = ((SHIFT, 1.0), (SHIFT + 1, -1.0))
