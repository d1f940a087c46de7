"""A model's tensors and configuration, read by the table of its family: `Reading`, the model in this package's own axes.

Every tensor is claimed by the table or refused by name, every field of the configuration sets a fact, is harmless, or is
refused by name. Facts that change outputs and that nobody says stand in `Reading.unknown`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.errors import MalformedInput
from utfproof.ground.arrays import one_line
from utfproof.models.attention import Kernel, ModelAttention
from utfproof.models.bookkeeping import read_frequencies, take_bookkeeping
from utfproof.models.facts import OWN_OUTPUTS, Facts
from utfproof.models.family import ANY_LENGTH, CANONICAL, FACTS, LONGEST, ROTATION, SIZES, Family
from utfproof.models.norms import OwnNorm, blocks
from utfproof.models.reading_attention import factors, layer_attentions
from utfproof.models.reading_norms import read_norms
from utfproof.models.tensors import Axes, Claims, find_layers, find_outer
from utfproof.shapes import Shape
from utfproof.systems.biases import BiasedTarget
from utfproof.weights import TensorFile

NORMALISED = (
    "it normalises its rows, which no embedding before and no readout after it can take over: a host without a norm of its own "
    "serves such models in one layer only, one with a norm in at most two (docs/proofs/normalisation.md); "
    "HOST own-norm, or from_normalised_model, is for those"
)
MLP = "it has MLPs, which no fixed attention-only host gives: docs/embed-your-model.md says what can be promised"
LAYER_ROLES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


@one_line
@dataclass(frozen=True, eq=False)
class Reading:
    """A model as it was read. arrays: W_E [V, D], W_pos [P, D], W_U [D, O], b_U [O], and per layer W_Q [L, H, D, d], W_K, W_V
    [L, G, D, d], W_O [L, H, d, D], b_Q [L, H, d], b_K, b_V [L, G, d], b_O [L, D]; factors: what each layer's logits are
    multiplied by. known: facts with their source; unknown: facts that change outputs and that nobody said. norm: where rows are
    normalised, its gains and biases being part of the matrices; pairs: P where W_E has a row for every token at every position,
    token P + position, and else 0."""

    family: Family
    arrays: dict[str, np.ndarray]
    factors: tuple[float, ...]
    attention: ModelAttention
    stream: bool
    shortformer: bool
    prefixes: tuple[str, ...]
    roles: dict[str, str]
    bookkeeping: tuple[str, ...]
    assumptions: dict[str, str]
    unknown: tuple[str, ...]
    not_read: tuple[str, ...]
    context: int = ANY_LENGTH
    norm: OwnNorm | None = None
    pairs: int = 0

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.arrays["W_E"]) // (self.pairs or 1)

    @property
    def positions(self) -> int:
        """P, 0 without learned positions."""
        return self.pairs or len(self.arrays["W_pos"])

    @property
    def longest(self) -> int:
        """The longest context to try."""
        tables = [len(layer.rotary.cos) for layer in self.attention.layers if layer.rotary is not None]
        return min([self.positions or self.context, *tables])

    def stages(self, given: np.ndarray, kernel: Kernel | None = None) -> dict[str, np.ndarray]:
        """The model's own formulas, tensor by tensor in the file's grouping: the stream before each layer, what its attention
        adds, and the logits [n, O]. given: tokens [n], or inputs [n, V + P]."""
        a, places = self.arrays, np.arange(len(given))
        attention = self.attention if kernel is None else kernel
        if given.ndim == 2:
            x, at = given[:, : self.vocabulary] @ a["W_E"], given[:, self.vocabulary :] @ a["W_pos"]
        else:
            x = a["W_E"][given * self.pairs + places if self.pairs else given]
            at = a["W_pos"][: len(given)] if len(a["W_pos"]) else np.zeros((1, x.shape[1]))
        out: dict[str, np.ndarray] = {}
        if not self.shortformer:
            x, at = x + at, np.zeros((1, x.shape[1]))
        for layer, factor in enumerate(self.factors):
            W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O = (a[name][layer] for name in LAYER_ROLES)
            inner = self.norm(x) if self.norm is not None and self.norm.first else x
            out[f"input of layer {layer}"] = inner
            added = np.broadcast_to(b_O, x.shape)
            for head in range(len(W_Q)):
                group = head * len(W_K) // len(W_Q)
                q = factor * ((inner + at) @ W_Q[head] + b_Q[head])
                k, v = (inner + at) @ W_K[group] + b_K[group], inner @ W_V[group] + b_V[group]
                added = added + attention(q, k, places, layer=layer, head=head) @ v @ W_O[head]
            out[f"attention of layer {layer}"] = added
            x = x + added if self.stream else added
        last = x if self.norm is None or not self.norm.final else self.norm(x)
        out["logits"] = last @ a["W_U"] + a["b_U"]
        return out

    def biases(self) -> str:
        """Which biases there are, for people."""
        names = [name for name in ("b_Q", "b_K", "b_V", "b_O", "b_U") if np.any(self.arrays[name])]
        return ", ".join(names) or "none"

    def target(self) -> BiasedTarget:
        """The target: factors in W_Q and b_Q, shared keys and values repeated, positions added to queries and keys alone as
        coordinates of their own that no layer writes."""
        a = self.arrays
        if self.norm is not None:
            raise MalformedInput("a model with norms is no target of hosts without one")
        L, H, D, d = a["W_Q"].shape
        repeats = H // a["W_K"].shape[1]
        factors = np.array(self.factors)
        arrays = {name: np.repeat(a[name], repeats, axis=1) for name in ("W_K", "W_V", "b_K", "b_V")}
        arrays["W_Q"], arrays["b_Q"] = a["W_Q"] * factors[:, None, None, None], a["b_Q"] * factors[:, None, None]
        arrays |= {name: a[name] for name in ("W_O", "b_O", "W_U", "b_U")}
        arrays["W_E"] = np.concatenate([a["W_E"], a["W_pos"]])
        if self.shortformer:
            for name in ("W_Q", "W_K"):
                arrays[name] = np.concatenate([arrays[name], arrays[name]], axis=2)
            arrays["W_V"] = np.concatenate([arrays["W_V"], np.zeros((L, H, D, d))], axis=2)
            arrays["W_O"] = np.concatenate([arrays["W_O"], np.zeros((L, H, d, D))], axis=3)
            arrays["b_O"] = np.concatenate([arrays["b_O"], np.zeros((L, D))], axis=1)
            arrays["W_U"] = np.concatenate([arrays["W_U"], np.zeros_like(a["W_U"])])
            V, P = self.vocabulary, self.positions
            arrays["W_E"] = np.block([[a["W_E"], np.zeros((V, D))], [np.zeros((P, D)), a["W_pos"]]])
        constant = np.zeros(self.vocabulary + self.positions)
        constant[: self.vocabulary] = 1
        shape = Shape(H, L, d, len(constant), a["W_U"].shape[1], residual=self.stream)
        return BiasedTarget(shape, **arrays, constant=constant)


def read_model(
    file: TensorFile,
    family: Family,
    config: Mapping[str, Any] | None = None,
    said: Mapping[str, tuple[Any, str]] | None = None,
    names: Mapping[str, str] | None = None,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    norms: bool = False,
) -> Reading:
    """The model of these tensors by the family's table. config: its configuration, every field of which must be known; said:
    facts and who says them; norms: a model with norms is wanted, for a host with a norm of its own. MalformedInput names the
    tensor or the field."""
    facts = Facts(file, {}, {})
    for name, value in family.settled.items():
        facts.set(name, value, f"the layout of {family.title}")
    not_read = () if config is None else facts.read(family, config, "configuration", whole=True)
    not_read += facts.read(family, _spoken(file.metadata), "metadata", whole=False)
    for name, (value, source) in (said or {}).items():
        facts.set(name, value, source)
    _refuse_what_no_embedding_carries(facts, norms)
    claims = Claims(file)
    prefixes = find_layers(claims, family, (names or {}).get("layers"))
    outer = find_outer(claims, family, names or {})
    assumed = _assumed(facts, family, outer)
    positions = facts.get("positions", assumed.get("positions"))
    read_frequencies(claims, family, facts, positions, rotated=tables is not None)
    arrays, sizes = _arrays(claims, family, prefixes, outer, facts)
    unknown = _unknown(facts, assumed, tabled=tables is not None or "rot_cos" in arrays)
    facts.values = {**{name: v for name, v in assumed.items() if name in unknown or name not in FACTS}, **facts.values}
    layers = layer_attentions(claims, facts, arrays, sizes, tables)
    norm = None
    if norms:
        norm, arrays = read_norms(claims, family, facts, arrays, prefixes)
    added = blocks(prefixes) if facts.get("stream") else []
    beside = family.norms.idle if norm and family.norms else ""
    unused = family.settled.get("local_both_ways") is False or facts.sources.get("causal") == OWN_OUTPUTS
    bookkeeping = take_bookkeeping(claims, family, layers, prefixes, added, beside, unused)
    claims.finish()
    if norm is None:
        _refuse_centred(facts, file, arrays)
    stream = facts.get("stream")
    if stream is None:
        raise file.refuse(
            "a state dict does not show whether there is a residual stream: pass --residual or --no-residual"
        )
    return Reading(
        family,
        arrays,
        factors(facts, sizes),
        ModelAttention(layers),
        bool(stream),
        facts.get("positions") == "shortformer",
        tuple(prefixes),
        {**outer, "layers": ", ".join(prefix.rstrip(".") for prefix in prefixes)},
        bookkeeping,
        _assumptions(facts, family, unknown, ModelAttention(layers), norm),
        unknown,
        not_read,
        min(sizes.get("P", LONGEST), max([ANY_LENGTH, *(min(by.window + 1, LONGEST) for by in layers if by.window)])),
        norm,
    )


def _spoken(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Metadata's texts as values: true, false, none, numbers, lists and objects in JSON."""
    words = {"true": True, "false": False, "none": None, "null": None, "": None}

    def value(text: str) -> Any:
        low = text.strip().lower()
        if low in words:
            return words[low]
        for kind in (int, float):
            try:
                return kind(low)
            except ValueError:
                continue
        with suppress(ValueError, RecursionError):
            return json.loads(text) if text.startswith(("[", "{")) else text
        return text

    return {name: value(text) for name, text in metadata.items()}


def _refuse_what_no_embedding_carries(facts: Facts, norms: bool) -> None:
    for name, allowed, reason in (("norm", "none", NORMALISED), ("mlp", False, MLP))[norms:]:
        value = facts.get(name, allowed)
        if value != allowed:
            raise facts.file.refuse(f"{facts.sources[name]} says {FACTS[name]} {value!r}: {reason}")


def _arrays(
    claims: Claims, family: Family, prefixes: list[str], outer: dict[str, str], facts: Facts
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The tensors in this package's axes, and the sizes of the letters."""
    said = _said_sizes(claims, facts, prefixes)
    P = said.pop("P", None)
    words = {letter: facts.sources[name] for letter, name in SIZES.items() if name in facts.sources}
    axes = Axes(claims, family, said, words)
    unused = facts.get("positions", "learned") not in ("learned", "shortformer")
    plan = [(name, family.outer[role]) for role, name in outer.items() if name and not (unused and role == "W_pos")]
    plan += [
        (prefix + name, entry)
        for prefix in prefixes
        for name, entry in family.layer.items()
        if claims.has(prefix + name)
    ]
    axes.solve(plan)
    found: dict[str, np.ndarray] = {}
    for role, name in outer.items():
        if name and not (unused and role == "W_pos"):
            found |= axes.take(name, family.outer[role])
    if unused and outer.get("W_pos"):
        claims.taken.add(outer["W_pos"])
    if P is not None and "W_pos" in found and len(found["W_pos"]) != P and not facts.get("position_rows"):
        raise claims.file.refuse(
            f"{outer['W_pos']} has {len(found['W_pos'])} positions, {facts.sources['context']} says {P}"
        )
    _outer_defaults(claims, family, facts, found, outer)
    found |= _of_layers(claims, family, prefixes, axes, facts)
    sizes = dict(axes.sizes)
    if sizes["H"] % sizes["G"]:
        raise claims.file.refuse(f"{sizes['G']} heads of keys do not divide the {sizes['H']} heads of queries")
    if facts.get("tiled_groups"):
        _bring_groups_together(found, sizes, facts)
    return found, {**sizes, "L": len(prefixes)} | ({} if P is None else {"P": P})


def _said_sizes(claims: Claims, facts: Facts, prefixes: list[str]) -> dict[str, int]:
    """The sizes that a configuration says, by letter; layers, which must be as many as are found, are left out."""
    said = {letter: facts.values[name] for letter, name in SIZES.items() if facts.values.get(name) is not None}
    if said.get("L", len(prefixes)) != len(prefixes):
        raise claims.file.refuse(f"{facts.sources['layers']} says {said['L']} layers, {len(prefixes)} are found")
    said.pop("L", None)
    return said


def _of_layers(claims: Claims, family: Family, prefixes: list[str], axes: Axes, facts: Facts) -> dict[str, np.ndarray]:
    """The tensors of all layers, [L, ...] by role."""
    found: dict[str, np.ndarray] = {}
    layers = []
    _refuse_biases(claims, family, prefixes, facts)
    for prefix in prefixes:
        parts: dict[str, np.ndarray] = {}
        for name, entry in family.layer.items():
            if claims.has(prefix + name):
                parts |= axes.take(prefix + name, entry)
        for role in family.required:
            if role not in parts:
                wanted = [prefix + name for name, entry in family.layer.items() if role in entry.roles]
                raise claims.file.refuse(f"tensor {' or '.join(wanted)} is missing")
        layers.append(parts)
    for role in LAYER_ROLES:
        expected = tuple(axes.sizes[letter] for letter in CANONICAL[role].split())
        found[role] = np.stack([parts.get(role, np.zeros(expected)) for parts in layers])
    for role in ("rot_cos", "rot_sin"):
        if any(role in parts for parts in layers) and facts.get("positions") != "rotary":
            raise claims.file.refuse(
                f"{prefixes[0]}rotary_{role[4:]} holds positions that rotate queries and keys, and "
                f"{facts.sources.get('positions', 'no configuration')} says {facts.get('positions')}: give the configuration"
            )
        if all(role in parts for parts in layers):
            found[role] = np.stack([parts[role] for parts in layers])
    return found


def _refuse_biases(claims: Claims, family: Family, prefixes: list[str], facts: Facts) -> None:
    """MalformedInput for biases in the file of a model that has none by its configuration: who loads it leaves them out."""
    held = [
        prefix + name
        for prefix in prefixes
        for name, entry in family.layer.items()
        if all(role.startswith("b_") for role in entry.roles) and claims.has(prefix + name)
    ]
    if held and facts.get("biased") is False:
        raise claims.file.refuse(
            f"{facts.sources['biased']} says that attention has no biases, and {held[0]} is in the file"
        )


def _bring_groups_together(found: dict[str, np.ndarray], sizes: dict[str, int], facts: Facts) -> None:
    """Head h reads group h mod G: heads of a group are made neighbours, in place; outputs are a sum over heads."""
    order = [h for g in range(sizes["G"]) for h in range(g, sizes["H"], sizes["G"])]
    for role in ("W_Q", "b_Q", "W_O"):
        found[role] = found[role][:, order]
    if slopes := facts.get("slopes"):
        if len(slopes) != sizes["H"]:
            raise facts.file.refuse(f"{facts.sources['slopes']} has {len(slopes)} slopes, {sizes['H']} heads are found")
        facts.values["slopes"] = tuple(facts.values["slopes"][h] for h in order)


def _outer_defaults(
    claims: Claims, family: Family, facts: Facts, found: dict[str, np.ndarray], outer: dict[str, str]
) -> None:
    """A tied output, no positions, no bias of the output."""
    file = claims.file
    if "W_U" not in found:
        if not facts.get("tied"):
            claims.refuse_unsuitable()
            raise file.refuse(
                "no unembed is found (W_U); say --names unembed=NAME"
                + (
                    ""
                    if not family.tied_output
                    else "; the configuration's tie_word_embeddings says whether it is the embedding"
                )
            )
        found["W_U"], outer["W_U"] = found["W_E"].T.copy(), outer["W_E"]
    elif facts.get("tied") and not np.array_equal(found["W_U"], found["W_E"].T):
        raise file.refuse(
            f"{facts.sources['tied']} says that {outer['W_U']} is {outer['W_E']}, and they differ: who loads it ties them"
        )
    rows = found.get("W_pos", np.zeros((0, found["W_E"].shape[1])))
    skipped = int(facts.get("position_rows", 0))
    factor = facts.get("position_factor", family.assumed.get("position_factor", 1.0))
    factor = rows.shape[1] ** -0.5 if factor == "1/sqrt(D)" else float(factor)
    found["W_pos"] = rows[skipped:] * factor
    found.setdefault("b_U", np.zeros(found["W_U"].shape[1]))
    said = facts.get("positions")
    if said in ("learned", "shortformer") and not len(found["W_pos"]):
        raise file.refuse(f"{facts.sources['positions']} says learned positions, and no tensor holds them")


def _assumed(facts: Facts, family: Family, outer: Mapping[str, str]) -> dict[str, Any]:
    """The facts as they are taken where nobody says otherwise; rows of positions, or that there are none, say it themselves."""
    assumed = dict(family.assumed)
    if assumed.get("positions") == "learned" and not outer.get("W_pos"):
        assumed["positions"] = "none"
    elif family.shows_positions and outer.get("W_pos") and facts.get("positions") is None:
        facts.set("positions", "learned", f"tensor {outer['W_pos']}")
    return assumed


def _unknown(facts: Facts, assumed: Mapping[str, Any], *, tabled: bool) -> tuple[str, ...]:
    """Facts that change outputs and that nobody said. tabled: the rotation's tables are there."""
    said = {name for name in FACTS if name in facts.values}
    for name, others in {"scale": ("scaled", "divisor"), "window": ("local",), "cap": ("clamped",)}.items():
        said |= {name} if any(other in facts.values for other in others) else set()
    if facts.get("positions", assumed.get("positions")) != "rotary":
        said.update(ROTATION)
    said |= {"rotary_base", "rotary_dim"} if tabled else set()
    return tuple(name for name in FACTS if name not in said and name in assumed)


def _assumptions(
    facts: Facts, family: Family, unknown: Iterable[str], attention: ModelAttention, norm: OwnNorm | None
) -> dict[str, str]:
    """Every fact that changes outputs, as it was taken and on whose word."""
    rows = {}
    unknown = set(unknown)
    for name, word in FACTS.items():
        if name not in facts.values or (name in ROTATION and facts.get("positions") != "rotary"):
            continue
        value = facts.values[name]
        source = "assumed: nobody says" if name in unknown else facts.sources.get(name, f"the layout of {family.title}")
        rows[word] = f"{norm.words() if norm and name == 'norm' else _said(name, value)} ({source})"
    rows["attention"] = attention.words()
    return rows


def _said(name: str, value: Any) -> str:
    if name == "stream":
        return "yes" if value else "no"
    if name == "causal":
        return "causal" if value else "both ways"
    if name == "adjacent":
        return "yes" if value else "no"
    return "none" if value in (None, False, "none") else str(value)


def _refuse_centred(facts: Facts, file: TensorFile, arrays: dict[str, np.ndarray]) -> None:
    """Weights whose columns all sum to zero are what folding a LayerNorm leaves: refused unless someone says that there is no
    norm, or an example shows it."""
    if facts.sources.get("norm") is not None:
        return
    parts = [arrays[name] for name in ("W_Q", "W_K", "W_V")]
    if arrays["W_Q"].shape[2] < 3:
        return
    sums = max(float(np.abs(part.sum(axis=2)).max()) for part in parts)
    size = min(float(np.abs(part).sum(axis=2).max()) for part in parts)
    if size > 0 and sums < 1e-5 * size:
        raise file.refuse(
            "the columns of W_Q, W_K and W_V sum to zero, as folding a LayerNorm leaves them: "
            f"if the model has one, {NORMALISED}; if not, say so (configuration field normalization_type)"
        )
