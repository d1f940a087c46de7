"""Models with norms in fixed hosts with a norm of their own: one layer, or two layers without a norm at the end.

A bias after a norm at the end is beyond every such host; where it is asked for, the model's own is a constant beside E.

The rows of the host's stream are alpha y T + s: T an isometry of the model's stream y, s of a token (at its position) alone, so
that the host's root mean square is a constant times the model's, whatever the attention was; s holds what layer 1 reads, the
image what is read after it. docs/proofs/normalisation.md, sections 5 and 6, says why, and why more has no such host.
A token and its position are one one-hot together, V P rows of E: side by side they do not serve (section 4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, NotDefined, OutsideClass, Undecided
from utfproof.ground.arrays import one_line
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.models.attention import Kernel, read_kernel
from utfproof.models.comparison import AGREEMENT, compare_outputs
from utfproof.models.coverage import read_limits
from utfproof.models.embedding import TRIALS, Embedded
from utfproof.models.exporting import require_own, transformer_lens_tensors, write_arrays, write_module
from utfproof.models.norms import OwnNorm, not_served
from utfproof.models.probes import random_sequences
from utfproof.models.reading import Reading
from utfproof.shapes import Shape, decimal
from utfproof.systems import Universal

OWN_NORM = "own-norm"
"""The host with a norm of its own, as a host's name."""
AFTER_THE_LAST = (
    "b_U + b W_U, b the bias of the norm at the end, is not zero: no host with a norm at its end and no bias after it adds a "
    "constant (docs/proofs/normalisation.md, section 6); with plus_constant (--plus-constant) it is added to the host's outputs"
)
KAPPA = 2.0
"""The host's root mean square over the model's; any number above 1 does."""


@one_line
@dataclass(frozen=True)
class NormalisedHost:
    """A host that normalises its own rows, for all models of this shape (d_in: rows of E), width D and norm whose rows'
    queries, keys and values fit beside their image when divided by theta, and for which what is read after layer 1, [D, ...]
    side by side, has a norm of at most `bound` (0 where nothing is). Its matrices are made of these numbers alone."""

    shape: Shape
    width: int
    norm: OwnNorm
    theta: float
    bound: float

    @property
    def image(self) -> int:
        """Width of the image: the outputs, and with a norm after layer 1 all that is read there and what completes the
        isometry."""
        H, d, outputs = self.shape.heads, self.shape.head_dim, self.shape.d_out
        inner = H * (2 * d + outputs) if self.shape.layers == 2 else 0
        return outputs + (inner + self.width if self.bound else 0)

    @property
    def half(self) -> int:
        """m, but for LayerNorm half of it: rows (z, -z) have mean zero and the mean square of z."""
        H, d, outputs = self.shape.heads, self.shape.head_dim, self.shape.d_out
        return self.image + 2 * d * H + H * self.image + (outputs if self.shape.layers == 2 else 0) + 1

    @property
    def m(self) -> int:
        """Embedding dimension."""
        return self.half * (2 if self.norm.kind == "layer" else 1)

    @property
    def alpha(self) -> float:
        """The image over the model's stream."""
        return float(KAPPA * np.sqrt(self.half / self.width))

    @cached_property
    def system(self) -> Universal:
        """Its matrices: theta times blocks of the program are layer 1's queries, keys and what is added to the image; layer
        2's are blocks of the image."""
        H, L, d, out, half = self.shape.heads, self.shape.layers, self.shape.head_dim, self.shape.d_out, self.half
        width, back = self.image, self.bound * KAPPA / self.alpha
        R_Q, R_K, R_V, R_Vo = (np.zeros((L, H, half, columns)) for columns in (d, d, width, width))
        R_Vo, U = R_Vo.swapaxes(2, 3), np.zeros((half, out))
        for h in range(H):
            for readers, block in ((R_Q, h), (R_K, H + h)):
                readers[0, h, width + block * d : width + (block + 1) * d] = self.theta * np.eye(d)
                if L == 2:
                    readers[1, h, out + block * d : out + (block + 1) * d] = back * np.eye(d)
            start = width + 2 * d * H + h * width
            R_V[0, h, start : start + width], R_Vo[0, h, :, :width] = self.theta * np.eye(width), np.eye(width)
            if L == 2:
                start = out + 2 * d * H + h * out
                R_V[1, h, start : start + out, :out], R_Vo[1, h, :out, :out] = KAPPA * np.eye(out), np.eye(out)
        U[:out] = (back if self.norm.final else back / KAPPA if self.bound else 1.0) * np.eye(out)
        if L == 2:
            U[half - 1 - out : half - 1] = self.theta * np.eye(out)
        if self.norm.kind == "layer":
            R_Q, R_K, U, R_V = (np.concatenate([part, -part], axis=-2) / 2 for part in (R_Q, R_K, U, R_V))
            R_Vo = np.concatenate([R_Vo, -R_Vo], axis=-1)
        return Universal(self.shape, self.m, R_Q, R_K, R_V, U, R_Vo=np.ascontiguousarray(R_Vo))

    def forward(self, rows: np.ndarray, attention: Kernel) -> np.ndarray:
        """Rows of E [n, m] -> outputs [n, d_out]."""
        places, stream = np.arange(len(rows)), rows
        for layer in range(self.shape.layers):
            inner = self.norm(stream)
            for head in range(self.shape.heads):
                query, key, value = self.system.maps(layer, head)
                pattern = attention(inner @ query, inner @ key, places, layer=layer, head=head)
                stream = stream + pattern @ (inner @ value[0]) @ value[1]
        return np.asarray((self.norm(stream) if self.norm.final else stream) @ self.system.U)

    def facts(self) -> dict[str, str]:
        """Metadata: all that it is made of."""
        names = ("heads", "layers", "head_dim", "d_in", "d_out")
        numbers = {name: getattr(self.shape, name) for name in names} | asdict(self.norm)
        numbers |= {"width": self.width, "theta": self.theta, "bound": self.bound, "m": self.m, "residual": True}
        return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in numbers.items()}

    @staticmethod
    def of_facts(facts: Mapping[str, str]) -> NormalisedHost:
        """The inverse of `facts`. MalformedInput naming what is missing or contradicts."""
        kinds: dict[str, type[int] | type[float]] = {
            "heads": int,
            "layers": int,
            "head_dim": int,
            "d_in": int,
            "d_out": int,
            "width": int,
        }
        kinds |= {"theta": float, "bound": float, "eps": float}
        found: dict[str, Any] = {}
        for name, kind in kinds.items():
            try:
                found[name] = kind(facts[name])
            except (KeyError, ValueError) as error:
                raise MalformedInput(f"the embedding's metadata do not say {name} of its host: {error}") from error
            if not (0 <= found[name] < float("inf")) or (kind is int and not found[name]):
                raise MalformedInput(f"the embedding's metadata field {name} is {facts[name]}")
        kind_of, final = facts.get("kind"), facts.get("final")
        if kind_of not in ("layer", "rms") or final not in ("true", "false") or facts.get("residual") != "true":
            raise MalformedInput("the embedding's metadata do not say kind, final and residual of its host")
        norm = OwnNorm(kind_of, found["eps"], final == "true")
        sizes = (found[name] for name in ("heads", "layers", "head_dim", "d_in", "d_out"))
        host = NormalisedHost(Shape(*sizes, residual=True), found["width"], norm, found["theta"], found["bound"])
        most, bounded = 1 if norm.final else 2, norm.final or host.shape.layers == 2
        if host.shape.layers > most or bool(host.bound) != bounded:
            told = f"{host.shape.layers} layers, final {final}, bound {host.bound:g}"
            raise MalformedInput(f"the embedding's metadata say {told}: no host with a norm of its own is so")
        if facts.get("m") != str(host.m):
            raise MalformedInput(f"the embedding's metadata say m = {facts.get('m')}, its host has m = {host.m}")
        return host


def module_facts(host: NormalisedHost, positions: int) -> dict[str, Any]:
    """What an exported module needs beside host and E: the norm, and whether E has a row for every token at every position."""
    places = ("layer",) + ("end",) * host.norm.final
    return {"norm": {"kind": host.norm.kind, "eps": host.norm.eps, "places": places}, "pairs": positions > 0}


def write_normalised(path: Path | str, E: np.ndarray, facts: Mapping[str, str], max_memory: int | None = None) -> Path:
    """The host that E's metadata describe, with E, as a plain torch.nn.Module. MalformedInput in place of a file that no export
    wrote."""
    host, kernel, vocabulary, positions, constant = read_normalised(facts, len(E), max_memory)
    path = Path(path)
    require_own(path, path.with_suffix(".safetensors"))
    sizes: dict[str, Any] = {"vocabulary": vocabulary, "positions": positions, "constant": constant}
    limits = read_limits(facts, vocabulary)
    write_module(path, host.system, E, kernel, **sizes, limits=limits, **module_facts(host, positions))
    return path


def write_tensors(
    path: Path | str,
    host: NormalisedHost,
    E: np.ndarray,
    kernel: Kernel,
    positions: int,
    context: int,
    limit: int | None = None,
    constant: np.ndarray | None = None,
) -> dict[str, str]:
    """The host with E under TransformerLens' names; its metadata. With learned positions its tokens are the rows of E, token
    P + position. NotDefined without a norm at the end, which every such model has, and as `transformer_lens_tensors`."""
    if not host.norm.final:
        raise NotDefined("TransformerLens models with norms have one at the end (ln_final), and this host has none")
    tensors, said = transformer_lens_tensors(
        host.system, E, kernel, vocabulary=len(E), positions=0, context=positions or context, max_memory=limit
    )
    tensors |= {"unembed.b_U": constant} if constant is not None else {}
    said |= {"normalization_type": {"layer": "LNPre", "rms": "RMSPre"}[host.norm.kind], "eps": repr(host.norm.eps)}
    said |= {"tokens": f"{positions} token + position"} if positions else {}
    write_arrays(path, tensors, said)
    return said


def read_normalised(
    facts: Mapping[str, str], rows: int, max_memory: int | None = None
) -> tuple[NormalisedHost, Kernel, int, int, np.ndarray | None]:
    """Host, attention, tokens, learned positions and the constant of the outputs of an embedding with `rows` rows, by its
    metadata. MalformedInput where they contradict."""
    host = NormalisedHost.of_facts(facts)
    V, P = (decimal(facts.get(name)) for name in ("vocabulary", "positions"))
    if not V or P is None or V * max(P, 1) != host.shape.d_in or rows != host.shape.d_in:
        said = f"{facts.get('vocabulary')} tokens, {facts.get('positions')} positions"
        raise MalformedInput(f"E has {rows} rows, its metadata say {said}")
    require_memory(
        32 * host.shape.layers * host.shape.heads * host.m * host.image, f"a host with m = {host.m}", max_memory
    )
    kernel = read_kernel(facts.get("attention", ""), host.shape.heads, host.shape.head_dim)
    if "constant" not in facts:
        return host, kernel, V, P, None
    try:
        constant = np.array(json.loads(facts["constant"]), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise MalformedInput(f"the embedding's metadata field constant is no list of numbers: {error}") from error
    if constant.shape != (host.shape.d_out,) or not np.isfinite(constant).all() or not host.norm.final:
        raise MalformedInput(
            f"the embedding's metadata field constant is not {host.shape.d_out} numbers after a last norm"
        )
    return host, kernel, V, P, constant


def _index(reading: Reading, tokens: np.ndarray) -> np.ndarray:
    """Rows of E: token P + position, or the token where there are no learned positions."""
    P = reading.positions
    if tokens.min() < 0 or tokens.max() >= reading.vocabulary or (P and len(tokens) > P):
        raise MalformedInput(f"expected at most {P or 'any'} tokens in 0 ... {reading.vocabulary - 1}")
    return tokens * P + np.arange(len(tokens)) if P else tokens


def _rows(reading: Reading) -> np.ndarray:
    """The model's own row of every token at every position [V P, D], or of every token."""
    a = reading.arrays
    if not reading.positions:
        return a["W_E"]
    pairs: np.ndarray = a["W_E"][:, None] + a["W_pos"][None]
    return pairs.reshape(-1, pairs.shape[-1])


def _layer(reading: Reading, norm: OwnNorm, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a row asks, shows and passes on in layer 1: queries, keys [H, rows, d] and values [H, rows, D]. The biases of
    values and of the output are in the values: rows of attention sum to 1."""
    a = {name: array[0] for name, array in reading.arrays.items() if array.ndim > 2 or name == "b_O"}
    inner, H = norm(rows), len(a["W_Q"])
    group = [h * len(a["W_K"]) // H for h in range(H)]
    queries = np.stack([reading.factors[0] * (inner @ a["W_Q"][h] + a["b_Q"][h]) for h in range(H)])
    keys = np.stack([inner @ a["W_K"][g] + a["b_K"][g] for g in group])
    values = np.stack([(inner @ a["W_V"][g] + a["b_V"][g]) @ a["W_O"][h] for h, g in enumerate(group)])
    values[0] += a["b_O"]
    return queries, keys, values


def _read_later(reading: Reading, norm: OwnNorm) -> np.ndarray:
    """What is read after layer 1, side by side [D, ...]: the outputs, and with two layers the queries, keys and values'
    outputs of layer 2; [D, 0] where nothing normalises the stream again."""
    a = reading.arrays
    if len(a["W_Q"]) == 1:
        return a["W_U"] if norm.final else a["W_U"][:, :0]
    W_Q, W_K, W_V, W_O = (a[name][1] for name in ("W_Q", "W_K", "W_V", "W_O"))
    group = [h * len(W_K) // len(W_Q) for h in range(len(W_Q))]
    queries = [reading.factors[1] * matrix for matrix in W_Q]
    outputs = [W_V[g] @ W_O[h] @ a["W_U"] for h, g in enumerate(group)]
    return np.concatenate([a["W_U"], *queries, *(W_K[g] for g in group), *outputs], axis=1)


def _constant(reading: Reading, norm: OwnNorm, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """With two layers, what outputs hold of a row beside what its image gives [rows, O]: the biases, and for LayerNorm the
    share of its mean. MalformedInput where attention moves that share."""
    a = reading.arrays
    W_V, W_O, b_V, b_O = (a[name][1] for name in ("W_V", "W_O", "b_V", "b_O"))
    added = b_O + sum(b_V[h * len(W_V) // len(W_O)] @ W_O[h] for h in range(len(W_O)))
    out = np.tile(added @ a["W_U"] + a["b_U"], (len(rows), 1))
    if norm.kind == "layer":
        share = a["W_U"].sum(axis=0)
        moved = float(np.abs(values.mean(axis=-1)).max() * np.abs(share).max())
        if moved > AGREEMENT * float(np.abs(rows @ a["W_U"]).max()):
            raise MalformedInput(
                "outputs hold the mean of what layer 1 writes, which no host with a LayerNorm sees: centre the writing "
                "weights, or the columns of W_U (docs/proofs/normalisation.md, section 6)"
            )
        out += rows.mean(axis=1)[:, None] * share
    return out


def _power(value: float) -> float:
    """The least power of two that is no smaller, at least 1."""
    return float(2.0 ** max(0, int(np.ceil(np.log2(value))))) if value > 0 else 1.0


def build(reading: Reading, host: NormalisedHost | None = None) -> tuple[NormalisedHost, np.ndarray]:
    """The host, whose scales are powers of two no smaller than the model needs, or the given one; and E [V P, m].
    OutsideClass where the model exceeds the host's bounds, MalformedInput where it has another shape or norm."""
    found, rows, W_U = _of_kind(reading), _rows(reading), reading.arrays["W_U"]
    norm = found.norm
    queries, keys, values = _layer(reading, norm, rows)
    later = _read_later(reading, norm)
    needed = float(np.linalg.norm(later, 2)) if later.size else 0.0
    found = replace(found, bound=_power(needed)) if later.size else found
    if host is not None:
        if replace(host, theta=1.0, bound=found.bound) != found:
            raise MalformedInput(
                f"this host is made for {host.shape}, width {host.width} and {host.norm.words()}; the model needs others"
            )
        if needed > host.bound:
            raise OutsideClass(
                f"what is read after layer 1 has norm {needed:.3g}, beyond the bound {host.bound:g} of this host"
            )
        found = host
    constant = [_constant(reading, norm, rows, values)] if found.shape.layers == 2 else []
    if later.size:  # sigma of the host's row is kappa times the model's, before and after layer 1
        squares, vectors = np.linalg.eigh(np.eye(len(W_U)) - later @ later.T / found.bound**2)
        rest = (vectors * np.sqrt(np.clip(squares, 0, None))) @ vectors.T
        T = found.alpha * np.concatenate([later / found.bound, rest], axis=1)
        image, written = norm.centred(rows) @ T, norm.centred(values) @ T
        size = KAPPA * norm.size(rows)
        room = np.full(len(rows), found.half * norm.eps * (KAPPA**2 - 1))
    else:  # nothing normalises the sum: the image is the outputs themselves
        image, written = rows @ W_U + reading.arrays["b_U"], values @ W_U
        reach = _power(float((image**2).sum(axis=1).max()))
        size, room = np.full(len(rows), np.sqrt(norm.eps + 2 * reach / found.half)), 2 * reach - (image**2).sum(axis=1)
    parts = [part * size[:, None] for part in (*queries, *keys, *written)] + constant
    wanted = np.concatenate(parts, axis=1)
    needed = float((np.linalg.norm(wanted, axis=1) / np.sqrt(room)).max())
    if host is None:
        found = replace(found, theta=_power(needed))
    elif needed > host.theta:
        raise OutsideClass(
            f"what rows ask, show and pass on is {needed:.3g} times their room, beyond the bound {host.theta:g} of this host"
        )
    program = wanted / found.theta
    spare = np.sqrt(np.clip(room - (program**2).sum(axis=1), 0, None))
    E = np.concatenate([image, program, spare[:, None]], axis=1)
    return found, np.concatenate([E, -E], axis=1) if norm.kind == "layer" else E


def _of_kind(reading: Reading) -> NormalisedHost:
    """The host for models of this kind, its scales not yet those that this one needs. MalformedInput for a model without a
    norm and for models that no host serves, Undecided where that is not known."""
    if reading.norm is None:
        raise MalformedInput(f"{reading.title} says no norm; this host is for models that have one")
    why, known = not_served(reading.norm, reading.arrays, reading.shortformer)
    if why:
        raise MalformedInput(why) if known else Undecided(why)
    L, H, D, d = reading.arrays["W_Q"].shape
    rows = reading.vocabulary * (reading.positions or 1)
    shape = Shape(H, L, d, rows, reading.arrays["W_U"].shape[1], residual=True)
    return NormalisedHost(shape, D, reading.norm, 1.0, 1.0 if reading.norm.final or L == 2 else 0.0)


def embed_normalised(
    model: Reading,
    host: NormalisedHost | None = None,
    *,
    plus_constant: bool = False,
    seed: int = 0,
    sequences: Sequence[np.ndarray] | None = None,
    tolerance: float = AGREEMENT,
    max_memory: int | None = None,
) -> Embedded:
    """E in a host with a norm of its own of the same kind, compared with the model's outputs. host: this one, or one whose
    scales are the powers of two that this model needs. plus_constant: a model's bias after a norm at the end is added to the
    host's outputs. Raises as `build`, MalformedInput where there is such a bias without `plus_constant`, and ResourceLimit
    before allocating."""
    kind = _of_kind(model) if host is None else host
    constant = None
    if model.norm is not None and model.norm.final and np.any(model.arrays["b_U"]):
        if not plus_constant:
            raise MalformedInput(AFTER_THE_LAST)
        constant = model.arrays["b_U"]
    needed = 8 * (
        kind.shape.d_in * (kind.shape.heads + 2) * kind.m + 3 * kind.shape.layers * kind.shape.heads * kind.m**2
    )
    require_memory(needed, f"a host with a norm of its own, m = {kind.m},", max_memory)
    found, E = build(model, host)
    tried = random_sequences(model, TRIALS, seed) if sequences is None else sequences
    return compare_normalised(model, found, E, tried, tolerance, constant)


def compare_normalised(
    model: Reading,
    host: NormalisedHost,
    E: np.ndarray,
    sequences: Sequence[np.ndarray],
    tolerance: float = AGREEMENT,
    constant: np.ndarray | None = None,
) -> Embedded:
    """The host with E, and the constant of the outputs where there is one, beside the model on these sequences of tokens, and
    on those of the model's references. MalformedInput where E does not fit."""
    if E.shape != (host.shape.d_in, host.m) or host.shape.d_in != model.vocabulary * (model.positions or 1):
        raise MalformedInput(f"E has shape {list(E.shape)}, the host takes [{host.shape.d_in}, {host.m}]")

    def outputs(tokens: np.ndarray) -> np.ndarray:
        return host.forward(E[_index(model, tokens)], model.kernel) + (0 if constant is None else constant)

    bounds = f"what a row asks, shows and passes on at most {host.theta:g} times its room" + (
        f", the norm of what is read after layer 1 at most {host.bound:g}" if host.bound else ""
    )
    return Embedded(
        model,
        host,
        OWN_NORM,
        E,
        compare_outputs(model, outputs, sequences),
        Notion.MATCHING,
        {"host": OWN_NORM, **host.facts()},
        host.system,
        tolerance=tolerance,
        module=module_facts(host, model.positions),
        constant=constant,
        caveat=(
            f". The host normalises its own rows ({host.norm.words()}), so it serves models of this shape within bounds alone: "
            f"{bounds}"
        ),
    )
