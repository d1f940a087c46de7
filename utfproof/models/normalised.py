"""Live models of one layer with a norm before it, and maybe one at the end, in fixed hosts with a norm of their own.

The rows of the host's stream are alpha y T + s: T an isometry of the model's stream y, s of a token (at its position) alone, so
that the host's root mean square is a constant times the model's, whatever the attention was; s holds what the layer reads.
docs/proofs/normalisation.md, sections 5 and 6, says why, and why two layers with a norm at the end have no such host.
A token and its position are one one-hot together, V P rows of E: side by side they do not serve (section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput, OutsideClass
from utfproof.ground.arrays import one_line
from utfproof.ground.notions import Notion
from utfproof.ground.resources import require_memory
from utfproof.models.attention import ModelAttention
from utfproof.models.comparison import AGREEMENT, Agreement, agreement, random_sequences
from utfproof.models.exporting import require_own, write_module
from utfproof.models.families.transformer_lens import FAMILY
from utfproof.models.importing import has_names
from utfproof.models.live import EXAMPLES, attention_modules, in_float64, live_tensors, module_outputs
from utfproof.models.reading import Reading, read_model
from utfproof.shapes import Shape
from utfproof.systems import Universal
from utfproof.weights import TensorFile

KAPPA = 2.0
"""The host's root mean square over the model's; any number above 1 does."""
WORDS = {"layer": "LayerNorm", "rms": "RMS"}


@one_line
@dataclass(frozen=True)
class OwnNorm:
    """kind: "layer" or "rms"; eps is added to the mean square; final: whether there is one before the readout too."""

    kind: str
    eps: float
    final: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows [n, width] over their root mean square, less their mean for LayerNorm."""
        centred = self.centred(x)
        return centred / self.size(x)[:, None]

    def centred(self, x: np.ndarray) -> np.ndarray:
        """The rows, less their mean for LayerNorm."""
        return x - x.mean(axis=-1, keepdims=True) if self.kind == "layer" else x

    def size(self, x: np.ndarray) -> np.ndarray:
        """sigma of every row [n]."""
        size: np.ndarray = np.sqrt((self.centred(x) ** 2).mean(axis=-1) + self.eps)
        return size

    def words(self) -> str:
        """For people."""
        return f"{WORDS[self.kind]} with eps = {self.eps:g}, before the layer" + (
            " and at the end" if self.final else ""
        )


@one_line
@dataclass(frozen=True, eq=False)
class NormalisedHost:
    """A host of one layer that normalises its own rows. system: its matrices, with a residual stream. It serves models whose
    rows' queries, keys and values fit beside their image when divided by theta, and where there is a norm at the end, with
    W_U of a norm of at most `bound` (0 where there is none)."""

    system: Universal
    norm: OwnNorm
    theta: float
    bound: float

    @property
    def m(self) -> int:
        """Embedding dimension."""
        return self.system.m

    def forward(self, rows: np.ndarray, attention: ModelAttention) -> np.ndarray:
        """Rows of E [n, m] -> outputs [n, d_out]."""
        inner, places, stream = self.norm(rows), np.arange(len(rows)), rows
        for head in range(self.system.shape.heads):
            query, key, value = self.system.maps(0, head)
            pattern = attention(inner @ query, inner @ key, places, layer=0, head=head)
            stream = stream + pattern @ inner @ value[0]
        return np.asarray((self.norm(stream) if self.norm.final else stream) @ self.system.U)


@one_line
@dataclass(frozen=True, eq=False)
class NormalisedModel:
    """A live model of one layer with norms. reading: its tensors with gains and biases of the norms folded in, in this
    package's axes; forward: tokens [n] -> the module's own logits; agreement: of the reading with it."""

    reading: Reading
    norm: OwnNorm
    witness: str
    forward: Callable[[np.ndarray], np.ndarray]
    agreement: Agreement | None = None

    def index(self, tokens: np.ndarray) -> np.ndarray:
        """Rows of E: token P + position, or the token where there are no learned positions."""
        P = self.reading.positions
        if tokens.min() < 0 or tokens.max() >= self.reading.vocabulary or (P and len(tokens) > P):
            raise MalformedInput(f"expected at most {P or 'any'} tokens in 0 ... {self.reading.vocabulary - 1}")
        return tokens * P + np.arange(len(tokens)) if P else tokens

    def rows(self) -> np.ndarray:
        """The model's own row of every token at every position [V P, D], or of every token."""
        a = self.reading.arrays
        if not self.reading.positions:
            return a["W_E"]
        pairs: np.ndarray = a["W_E"][:, None] + a["W_pos"][None]
        return pairs.reshape(-1, pairs.shape[-1])

    def layer(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a row asks, shows and passes on: queries, keys [H, rows, d] and values [H, rows, D]. The biases of values and of
        the output are in the values: rows of attention sum to 1."""
        a = {name: array[0] for name, array in self.reading.arrays.items() if array.ndim > 2 or name == "b_O"}
        inner, H = self.norm(self.rows()), len(a["W_Q"])
        group = [h * len(a["W_K"]) // H for h in range(H)]
        queries = np.stack([self.reading.factors[0] * (inner @ a["W_Q"][h] + a["b_Q"][h]) for h in range(H)])
        keys = np.stack([inner @ a["W_K"][g] + a["b_K"][g] for g in group])
        values = np.stack([(inner @ a["W_V"][g] + a["b_V"][g]) @ a["W_O"][h] for h, g in enumerate(group)])
        values[0] += a["b_O"]
        return queries, keys, values

    def original(self, tokens: np.ndarray) -> np.ndarray:
        """Logits [n, d_out] by the model's own formulas, as they were read."""
        at, places, a = self.index(tokens), np.arange(len(tokens)), self.reading.arrays
        queries, keys, values = self.layer()
        stream = self.rows()[at]
        for h in range(len(queries)):
            pattern = self.reading.attention(queries[h][at], keys[h][at], places, layer=0, head=h)
            stream = stream + pattern @ values[h][at]
        return (self.norm(stream) if self.norm.final else stream) @ a["W_U"] + a["b_U"]

    def compared(self, outputs: Callable[[np.ndarray], np.ndarray], count: int, seed: int) -> Agreement:
        """Of these outputs with the module's own, on random tokens of several lengths."""
        return agreement([(outputs(t), self.forward(t)) for t in random_sequences(self.reading, count, seed)])

    def embed(
        self, host: NormalisedHost | None = None, *, seed: int = 0, max_memory: int | None = None
    ) -> EmbeddedNormalised:
        """E in a host with a norm of its own of the same kind, compared with the module. host: this one, or one whose scales
        are the powers of two that this model needs. OutsideClass where the model exceeds the host's bounds, MalformedInput
        where it has another shape or norm; ResourceLimit before allocating."""
        places, width = self.reading.vocabulary * max(1, self.reading.positions), self.reading.arrays["W_E"].shape[1]
        heads, outputs = self.reading.arrays["W_Q"].shape[1], self.reading.arrays["W_U"].shape[1]
        m = 2 * ((outputs + width) * (heads + 1) + 2 * heads * self.reading.arrays["W_Q"].shape[3] + 1)
        needed = 8 * (places * (heads + 2) * m + 3 * heads * m * m)
        require_memory(needed, f"a host with a norm of its own, m = {m},", max_memory)
        found, E = build(self, host)
        result = self.compared(lambda t: found.forward(E[self.index(t)], self.reading.attention), 16, seed)
        return EmbeddedNormalised(self, found, E, result)


@one_line
@dataclass(frozen=True, eq=False)
class EmbeddedNormalised:
    """A host with a norm of its own, and the E [V P, m] under which it was found to act as the model."""

    model: NormalisedModel
    host: NormalisedHost
    E: np.ndarray
    agreement: Agreement
    tolerance: float = AGREEMENT
    notion: Notion = Notion.MATCHING

    @property
    def agrees(self) -> bool:
        """Whether outputs differ by no more than the tolerance."""
        return self.agreement.within(self.tolerance)

    @property
    def verdict(self) -> str:
        """One sentence: what the host acts as, by which notion, on whose word, and of what kind it is."""
        if not self.agrees:
            return f"the outputs differ, by {self.agreement.relative_difference:.3g} relative: nothing is written"
        host = self.host
        return (
            f"the host acts as the model, by {self.notion.value}: compared with {self.model.witness}. The host normalises its "
            f"own rows ({host.norm.words()}), so it serves models of this shape within bounds alone: what a row asks, shows "
            f"and passes on at most {host.theta:g} times its room"
            + (f", |W_U| at most {host.bound:g}" if host.norm.final else "")
        )

    def export(self, path: Path | str) -> Path:
        """Write the host with E as a plain torch.nn.Module in a .py file, tensors beside it. MalformedInput where outputs
        differ, and in place of a file that no export wrote."""
        path = Path(path)
        if not self.agrees:
            raise MalformedInput(self.verdict)
        require_own(path, path.with_suffix(".safetensors"))
        reading, norm = self.model.reading, self.host.norm
        places = ("layer", "end") if norm.final else ("layer",)
        write_module(
            path,
            self.host.system,
            self.E,
            reading.attention,
            vocabulary=reading.vocabulary,
            positions=reading.positions,
            norm={"kind": norm.kind, "eps": norm.eps, "places": places},
            pairs=reading.positions > 0,
        )
        return path

    def __str__(self) -> str:
        found = self.agreement
        return (
            f"{self.verdict}\nm = {self.host.m}, {len(self.E)} rows of E; largest relative difference of outputs "
            f"{found.relative_difference:.3g} on {found.sequences} sequences, {found.positions} positions"
        )


def _power(value: float) -> float:
    """The least power of two that is no smaller, at least 1."""
    return float(2.0 ** max(0, int(np.ceil(np.log2(value))))) if value > 0 else 1.0


def _image(model: NormalisedModel, values: np.ndarray, m: int, bound: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows [V P, k] and values [H, V P, k] in the coordinates that a norm at the end and the readout see, and its factor."""
    rows, W_U, b_U, norm = model.rows(), model.reading.arrays["W_U"], model.reading.arrays["b_U"], model.norm
    if not norm.final:  # nothing normalises the sum: the outputs themselves will do
        return rows @ W_U + b_U, values @ W_U, 1.0
    squares, vectors = np.linalg.eigh(np.eye(len(W_U)) - W_U @ W_U.T / bound**2)
    T = np.concatenate([W_U / bound, (vectors * np.sqrt(np.clip(squares, 0, None))) @ vectors.T], axis=1)
    alpha = KAPPA * np.sqrt(m / len(W_U))
    return alpha * norm.centred(rows) @ T, alpha * norm.centred(values) @ T, KAPPA * bound / alpha


def build(model: NormalisedModel, host: NormalisedHost | None = None) -> tuple[NormalisedHost, np.ndarray]:
    """The host, whose scales are powers of two no smaller than the model needs, or the given one's; and E [V P, m]."""
    queries, keys, values = model.layer()
    (H, N, d), norm, W_U = queries.shape, model.norm, model.reading.arrays["W_U"]
    outputs = W_U.shape[1]
    width = outputs + len(W_U) if norm.final else outputs
    m = width + 2 * d * H + H * width + 1
    needed = float(np.linalg.norm(W_U, 2)) if norm.final else 0.0
    bound = host.bound if host is not None else _power(needed) if norm.final else 0.0
    if needed > bound:
        raise OutsideClass(
            f"|W_U| = {needed:.3g} exceeds the bound {bound:g} of this host, whose own rows are normalised"
        )
    image, written, factor = _image(model, values, m, bound)
    wanted = np.concatenate([*queries, *keys, *written], axis=1)
    if norm.final:  # sigma of the host's row is kappa times the model's, before and after the layer
        size, room = KAPPA * norm.size(model.rows()), np.full(N, m * norm.eps * (KAPPA**2 - 1))
    else:
        reach = _power(float((image**2).sum(axis=1).max()))
        size, room = np.full(N, np.sqrt(norm.eps + 2 * reach / m)), 2 * reach - (image**2).sum(axis=1)
    needed = float((np.linalg.norm(wanted, axis=1) * size / np.sqrt(room)).max())
    theta = _power(needed) if host is None else host.theta
    if needed > theta:
        raise OutsideClass(
            f"what rows ask, show and pass on is {needed:.3g} times their room, beyond the bound {theta:g} of this host"
        )
    program = wanted * (size / theta)[:, None]
    spare = np.sqrt(np.clip(room - (program**2).sum(axis=1), 0, None))
    E = np.concatenate([image, program, spare[:, None]], axis=1)
    system = _system(Shape(H, 1, d, N, outputs, residual=True), m, width, theta, factor)
    if norm.kind == "layer":  # rows (z, -z): their mean is zero and their mean square that of z
        E, system = np.concatenate([E, -E], axis=1), _mirrored(system)
    found = NormalisedHost(system, norm, theta, bound)
    if host is not None and not _same(host, found):
        raise MalformedInput(
            f"this host is made for {host.system.shape} and {host.norm.words()}; the model needs others"
        )
    return found, E


def _system(shape: Shape, m: int, width: int, theta: float, factor: float) -> Universal:
    """Its matrices, no model in them: theta times blocks of the program are queries, keys, and what is added to the image."""
    H, d = shape.heads, shape.head_dim
    R_Q, R_K, R_V, U = (
        np.zeros((1, H, m, d)),
        np.zeros((1, H, m, d)),
        np.zeros((1, H, m, m)),
        np.zeros((m, shape.d_out)),
    )
    for h in range(H):
        for readers, block in ((R_Q, h), (R_K, H + h)):
            readers[0, h, width + block * d : width + (block + 1) * d] = theta * np.eye(d)
        start = width + 2 * d * H + h * width
        R_V[0, h, start : start + width, :width] = theta * np.eye(width)
    U[: shape.d_out] = factor * np.eye(shape.d_out)
    return Universal(shape, m, R_Q, R_K, R_V, U)


def _mirrored(host: Universal) -> Universal:
    """The host on rows (z, -z), 2m wide."""
    R_Q, R_K, U, R_V = (np.concatenate([part, -part], axis=-2) / 2 for part in (host.R_Q, host.R_K, host.U, host.R_V))
    return Universal(host.shape, 2 * host.m, R_Q, R_K, np.concatenate([R_V, -R_V], axis=-1), U)


def _same(host: NormalisedHost, other: NormalisedHost) -> bool:
    """Whether two hosts are one, entry by entry."""
    if host.norm != other.norm or host.system.shape != other.system.shape or host.m != other.m:
        return False
    return all(
        np.array_equal(getattr(host.system, name), getattr(other.system, name)) for name in ("R_Q", "R_K", "R_V", "U")
    )


# --- live modules ------------------------------------------------------------------------------------------

_KINDS = {"LN": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
_NORMS = {"LayerNorm": "layer", "LayerNormPre": "layer", "RMSNorm": "rms", "RMSNormPre": "rms"}


def from_normalised_model(module: Any, *, seed: int = 0) -> NormalisedModel:
    """The model of a live HookedTransformer (TransformerLens 2 and 3) of one layer with a norm before it, and maybe one at the
    end (`ln_final`; an nn.Identity in its place means none), compared with its own forward pass in float64.

    Raises MalformedInput, naming what no host with a norm of its own carries (or this construction does not): more layers, a
    bias after the last norm, eps = 0 with a norm at the end, positions for queries and keys alone.
    """
    if not all(hasattr(module, name) for name in ("cfg", "blocks", "ln_final", "embed")):
        raise MalformedInput(f"normalised models are read from a live HookedTransformer, got {type(module).__name__}")
    twin = in_float64(module)
    file = live_tensors(twin)
    if not has_names(FAMILY, file):
        raise file.refuse(f"its tensors are not those of {FAMILY.title}, of which alone models with norms are read")
    fields = dict(FAMILY.live(twin, attention_modules(twin, file, FAMILY))) if FAMILY.live else {}
    norm = _norm(twin, fields, file)
    if FAMILY.double is not None:
        FAMILY.double(twin)
    gains = {
        n: np.asarray(a, dtype=np.float64)
        for n, a in file.tensors.items()
        if n.startswith(("blocks.0.ln1.", "ln_final."))
    }
    plain = replace(file, tensors={n: a for n, a in file.tensors.items() if n not in gains})
    reading = _folded(read_model(plain, FAMILY, {**fields, "normalization_type": None}), gains, norm.final)
    if reading.shortformer:
        raise file.refuse(
            "positional_embedding_type shortformer: positions for queries and keys alone are not read here"
        )
    if norm.final and np.any(reading.arrays["b_U"]):
        raise file.refuse(
            "unembed.b_U + ln_final.b W_U is not zero: no host with a norm at its end and no bias after it adds a constant "
            "(docs/embed-your-model.md)"
        )
    model = NormalisedModel(reading, norm, f"the forward pass of {type(module).__name__}", module_outputs(twin))
    found = model.compared(model.original, EXAMPLES, seed)
    if not found.within(AGREEMENT):
        raise file.refuse(
            f"it was read as another function than its own forward pass computes: they differ by "
            f"{found.relative_difference:.3g} relative. It was taken as {norm.words()}"
        )
    return replace(model, agreement=found)


def _norm(twin: Any, fields: dict[str, Any], file: TensorFile) -> OwnNorm:
    """The norm, as configuration and modules say it."""
    kind = _KINDS.get(fields.get("normalization_type") or "")
    if kind is None:
        said = fields.get("normalization_type")
        raise file.refuse(
            f"normalization_type {said!r} is none that is read here; from_model reads models without a norm"
        )
    layers = len(twin.blocks)
    final = type(twin.ln_final).__name__ != "Identity"
    if layers != 1:
        why = (
            "a fixed host with a norm of its own matches almost none of those with a norm at the end, or of three layers "
            "(docs/proofs/normalisation.md, section 7)"
            if final or layers > 2
            else "two layers without a norm at the end have such a host (section 6) that is not written out for models"
        )
        raise file.refuse(f"it has {layers} layers with norms, and one is read: {why}")
    for name, part in (("blocks.0.ln1", twin.blocks[0].ln1), ("ln_final", twin.ln_final)):
        found = type(part).__name__
        if _NORMS.get(found) != kind and not (name == "ln_final" and not final):
            raise file.refuse(f"{name} is a {found}, and normalization_type says {fields['normalization_type']}")
    eps = float(fields["eps"])
    if not eps >= 0 or (final and eps == 0):
        raise file.refuse(f"eps = {eps:g}: a host for a norm at the end needs eps > 0")
    return OwnNorm(kind, eps, final)


def _folded(reading: Reading, gains: dict[str, np.ndarray], final: bool) -> Reading:
    """Gains and biases of the norms, as part of the matrices that read them."""
    arrays = dict(reading.arrays)
    gain, bias = gains.get("blocks.0.ln1.w"), gains.get("blocks.0.ln1.b")
    for part in "QKV":
        if bias is not None:
            arrays[f"b_{part}"] = arrays[f"b_{part}"] + np.einsum("i,lhid->lhd", bias, arrays[f"W_{part}"])
        if gain is not None:
            arrays[f"W_{part}"] = arrays[f"W_{part}"] * gain[:, None]
    gain, bias = gains.get("ln_final.w"), gains.get("ln_final.b")
    if final and bias is not None:
        arrays["b_U"] = arrays["b_U"] + bias @ arrays["W_U"]
    if final and gain is not None:
        arrays["W_U"] = arrays["W_U"] * gain[:, None]
    return replace(reading, arrays=arrays)
