"""Tensors and what is said of them -> `Reading`.

Every tensor is claimed by the family's table or refused by name; every field of the configuration sets a fact, is harmless, or
is refused by name. Facts that change outputs and that nobody says stand in `Reading.unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from utfproof.attention import visible
from utfproof.models.attention import LayerAttention, ModelAttention, Rotary
from utfproof.models.configuration import FACTS, OWN_OUTPUTS, ROTATION, Facts, metadata_fields
from utfproof.models.families import families
from utfproof.models.family import Arrays, Family
from utfproof.models.norms import OwnNorm, read_norm
from utfproof.models.reading import ANY_LENGTH, LAYER_ROLES, LONGEST, NORMALISED, Reading
from utfproof.models.tensors import Claims, layer_prefixes, listed
from utfproof.weights import TensorFile

Said = Mapping[str, tuple[Any, str]]
"""Facts with their sources, as options say them."""
Tables = tuple[np.ndarray, np.ndarray]
"""cos and sin of rotated positions, [P, r]."""
HIDDEN = -1e4
"""Logits that hide a key are this or less."""


def recognise(file: TensorFile) -> Family:
    """The one family whose names these tensors have. MalformedInput for none, with what is looked for."""
    for family in families().values():
        if layer_prefixes(file, family.marks):
            return family
    Claims(file).refuse_unsuitable()
    known = "; ".join(family.looks for family in families().values())
    raise file.refuse(
        f"no layout is recognised among {listed(file.tensors, 4) or 'no tensors'}. Known are: {known}. "
        "Any other model is read by from_parts, from its matrices (docs/embed-your-model.md)"
    )


def read_model(
    file: TensorFile,
    family: Family,
    config: Mapping[str, Any] | None = None,
    said: Said | None = None,
    tables: Tables | None = None,
    live: bool = False,
) -> Reading:
    """The model of these tensors by the family's table. config: its configuration, every field of which must be known; said:
    facts and who says them; tables: the rotation's own; live: they are a module's, whose outputs are compared. MalformedInput
    names the tensor or the field."""
    facts = Facts(file)
    for name, value in family.settled.items():
        facts.set(name, value, f"the layout of {family.title}")
    if config is not None:
        facts.read(family.fields, config, "configuration", family.title)
    not_read = facts.read(family.fields, metadata_fields(file.metadata), "metadata")
    for name, (value, source) in (said or {}).items():
        facts.set(name, value, source)
    for name, allowed, why in (("mlp", False, "it has MLPs"), ("output_cap", 0.0, "a cap of the output is not linear")):
        if facts.get(name, allowed) != allowed:
            raise file.refuse(f"{facts.sources[name]} says {FACTS[name][0]} {facts.get(name)}: {why}")
    claims, prefixes = Claims(file), layer_prefixes(file, family.marks)
    if not prefixes:
        claims.refuse_unsuitable()
        raise file.refuse(f"no {family.marks[0]} of {family.title} is found")
    arrays = family.arrays(claims, prefixes, facts)
    sizes = _sizes(arrays, facts, len(prefixes))
    stored = [arrays.pop(f"rotary_{part}", None) for part in ("cos", "sin")]
    assumed = _assumed(family, facts, arrays)
    whole = {*(config or {}), *file.metadata}
    tabled = tables is not None or stored[0] is not None
    unknown = _unknown(facts, assumed, [name for name in family.whole if name not in whole], tabled)
    facts.values = {**assumed, **facts.values}
    if config is not None and not live:
        _require_whole(claims, family, prefixes, facts)
    layers = _layers(facts, sizes, tables, stored)
    norm: OwnNorm | None = None
    if facts.get("norm") != "none":
        norm, arrays = read_norm(claims, facts, arrays, prefixes, family.norms)
    left_out = _bookkeeping(claims, layers, prefixes, _masks_unused(family, facts))
    claims.finish()
    if "norm" not in facts.sources:
        _refuse_centred(file, arrays)
    if facts.get("stream") is None:
        raise file.refuse(f"a state dict does not show whether there is a residual stream: pass {FACTS['stream'][1]}")
    windows = [min(layer.window + 1, LONGEST) for layer in layers if layer.window]
    return Reading(
        family.name,
        family.title,
        arrays,
        _factors(facts, sizes),
        ModelAttention(layers),
        bool(facts.get("stream")),
        facts.get("positions") == "shortformer",
        norm,
        min(facts.get("context", LONGEST), max([ANY_LENGTH, *windows])),
        _shown(facts, family, unknown, ModelAttention(layers), norm),
        unknown,
        not_read,
        left_out,
    )


def _sizes(arrays: Arrays, facts: Facts, layers: int) -> dict[str, int]:
    """The model's sizes. MalformedInput where a configuration says others."""
    _, H, D, d = arrays["W_Q"].shape
    G = arrays["W_K"].shape[1]
    found = {"layers": layers, "heads": H, "kv_heads": G, "head_dim": d, "width": D}
    found |= {"vocabulary": len(arrays["W_E"]), "outputs": arrays["W_U"].shape[1]}
    if len(arrays["W_pos"]):
        found["context"] = len(arrays["W_pos"])
    for name, value in found.items():
        if facts.get(name, value) != value:
            raise facts.file.refuse(f"{facts.sources[name]} says {name} {facts.get(name)}, the tensors have {value}")
    if H % G:
        raise facts.file.refuse(f"{G} heads of keys do not divide the {H} heads of queries")
    for role in LAYER_ROLES:
        if not np.isfinite(arrays[role]).all():
            raise facts.file.refuse(f"{role} holds numbers that are not finite")
    return found


def _assumed(family: Family, facts: Facts, arrays: Arrays) -> dict[str, Any]:
    """The facts as they are taken where nobody says otherwise. MalformedInput where positions are said that no tensor holds."""
    assumed = dict(family.assumed)
    if facts.get("positions") in ("learned", "shortformer") and not len(arrays["W_pos"]):
        raise facts.file.refuse(f"{facts.sources['positions']} says learned positions, and no tensor holds them")
    if facts.get("positions") in ("none", "rotary", "alibi") and len(arrays["W_pos"]):
        arrays["W_pos"] = arrays["W_pos"][:0]
    if not len(arrays["W_pos"]) and assumed["positions"] == "learned":
        assumed["positions"] = "none"
    return {name: value for name, value in assumed.items() if name not in facts.values}


def _unknown(facts: Facts, assumed: Mapping[str, Any], missing: list[str], tabled: bool) -> tuple[str, ...]:
    """Facts that change outputs and that nobody said. missing: fields that a whole configuration has; tabled: the rotation's
    tables are there."""
    said = set()
    for name, others in {"scale": ("scaled", "divisor"), "window": ("local",)}.items():
        said |= {name} if any(other in facts.values for other in others) else set()
    if facts.get("positions", assumed.get("positions")) != "rotary":
        said.update(ROTATION)
    said |= {"rotary_base", "rotary_dim"} if tabled else set()
    found = [name for name in FACTS if name in assumed and name not in said]
    return (*found, *(["others"] if missing else []))


def _require_whole(claims: Claims, family: Family, prefixes: list[str], facts: Facts) -> None:
    """MalformedInput where a tensor is missing that the code of this configuration uses: another module was saved."""
    if family.name == "pytorch":
        return
    beside = {name for name in claims.file.tensors if name.startswith(prefixes[0])}
    biases = [f"b_{part}" for part in "QKVO"] if "W_Q" in family.marks else [f"{part}.bias" for part in "qkvo"]
    wanted = [prefixes[0] + name for name in biases if prefixes[0] + "_" + name not in beside]
    wanted += ["unembed.b_U"] if "W_Q" in family.marks else []
    for name in wanted:
        if name not in claims.file.tensors:
            raise claims.file.refuse(
                f"the configuration's code has a tensor {name}, and the file has none: another model was saved. Leave out "
                "--config and say its facts by options, or compare the live module (--module)"
            )


def _factors(facts: Facts, sizes: Mapping[str, int]) -> tuple[float, ...]:
    """What each layer's logits are multiplied by."""
    scale, divisor = facts.get("scale"), facts.get("divisor")
    if scale is None or scale == "1/sqrt(d)":
        usual = 1 / (float(np.sqrt(sizes["head_dim"])) if divisor is None else float(divisor))
        scale = usual if facts.get("scaled", True) else 1.0
    by_layer = bool(facts.get("scale_by_layer", False))
    return tuple(float(scale) / (layer + 1 if by_layer else 1) for layer in range(sizes["layers"]))


def _layers(
    facts: Facts, sizes: Mapping[str, int], tables: Tables | None, stored: list[np.ndarray | None]
) -> tuple[LayerAttention, ...]:
    """Each layer's attention, by the facts."""
    file, positions, causal = facts.file, facts.get("positions"), bool(facts.get("causal"))
    window, kinds = facts.get("window") or None, facts.get("layer_types")
    if facts.get("local") is False or (not causal and facts.get("local_both_ways") is False):
        window, kinds = None, None
    elif facts.get("local") and window is None:
        raise file.refuse(f"{facts.sources['local']} says local attention, and nobody says the window")
    if kinds is not None and len(kinds) != sizes["layers"]:
        raise file.refuse(f"{facts.sources['layer_types']} names {len(kinds)} layers, {sizes['layers']} are found")
    slopes = tuple(facts.get("slopes") or ())
    if positions == "alibi":
        if not causal:
            raise file.refuse(f"{facts.sources['positions']} says ALiBi, which is read for causal attention alone")
        slopes = slopes or geometric_slopes(sizes["heads"])
        if len(slopes) != sizes["heads"]:
            raise file.refuse(f"{len(slopes)} slopes of ALiBi are said, for {sizes['heads']} heads")
    if positions != "rotary" and stored[0] is not None:
        raise file.refuse(
            f"rotary_cos holds rotated positions, and the positions are {positions}: give the configuration"
        )
    out = []
    for layer in range(sizes["layers"]):
        local = kinds is None or kinds[layer] == "local"
        rotary = None
        if positions == "rotary":
            rotary = _rotary(facts, sizes, tables or _stored_tables(facts, stored, layer), bool(kinds) and local)
        single = bool(facts.get("single_slopes", False))
        out.append(LayerAttention(causal, window if local else None, facts.get("cap") or None, slopes, single, rotary))
    return tuple(out)


def geometric_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's 2^(-8 h / H), h = 1 ... H."""
    return tuple(2.0 ** (-8 * h / heads) for h in range(1, heads + 1))


def _stored_tables(facts: Facts, stored: list[np.ndarray | None], layer: int) -> Tables | None:
    """The rotation that the file holds, in which every angle stands twice."""
    cos, sin = stored
    if cos is None or sin is None:
        return None
    pairs = cos.shape[2] // 2
    step = slice(0, 2 * pairs, 2) if facts.get("adjacent") else slice(pairs)
    return cos[layer][:, step], sin[layer][:, step]


def _rotary(facts: Facts, sizes: Mapping[str, int], tables: Tables | None, local: bool) -> Rotary:
    """The rotation: the model's own tables where there are any, the usual formula otherwise."""
    adjacent = bool(facts.get("adjacent", False))
    if tables is not None:
        return Rotary(tables[0].astype(np.float64), tables[1].astype(np.float64), adjacent)
    said = facts.get("rotary_dim")
    turned = sizes["head_dim"] if said == "all" else said
    if turned > sizes["head_dim"] or turned % 2:
        raise facts.file.refuse(f"{said} coordinates rotate: expected an even number, at most {sizes['head_dim']}")
    base = (local and facts.get("rotary_base_local")) or facts.get("rotary_base")
    positions = facts.get("context", ANY_LENGTH)
    return Rotary.of_base(positions, turned // 2, float(base), adjacent, float(facts.get("rotary_factor") or 1.0))


def _masks_unused(family: Family, facts: Facts) -> bool:
    return facts.get("local_both_ways") is False or facts.sources.get("causal") == OWN_OUTPUTS


def _bookkeeping(
    claims: Claims, layers: tuple[LayerAttention, ...], prefixes: list[str], unused: bool
) -> tuple[str, ...]:
    """Claim the tensors that hold no weights: masks, which have to be those of the attention as it was read, and what hides
    keys. unused: masks are left alone where attention looks both ways."""
    found = []
    for name in sorted(claims.file.tensors.keys() - claims.taken):
        array, last = claims.file.tensors[name], name.rsplit(".", 1)[-1]
        if last == "IGNORE" and array.size == 1 and array.reshape(-1)[0] <= HIDDEN:
            found.append(name)
        elif last in ("mask", "attn_mask", "causal_mask"):
            own = [layer for layer, prefix in zip(layers, prefixes, strict=True) if name.startswith(prefix)]
            for layer in own or layers:
                _require_mask(claims, name, array, layer, unused and not layer.causal)
            found.append(name)
    claims.taken.update(found)
    return tuple(found)


def _require_mask(claims: Claims, name: str, array: np.ndarray, layer: LayerAttention, unused: bool) -> None:
    """A stored mask [..., n, n] says who sees whom: true (or 0, where masks are added) for visible keys. One that is not used,
    or has no entries, says nothing."""
    file = claims.file
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        raise file.refuse(f"{name} has shape {list(array.shape)}, expected a mask [n, n]")
    if unused or not array.size:
        return
    stored, places = array.reshape(array.shape[-2:]), np.arange(array.shape[-1])
    added = bool((stored < 0).any())
    seen = stored == 0 if added else stored != 0
    if not ((stored <= HIDDEN) | seen if added else (stored == 1) | ~seen).all():
        raise file.refuse(f"{name} is no mask: it holds other numbers than 0 and 1, or 0 and {HIDDEN:g} or less")
    shown = visible(places, places, causal=layer.causal, window=layer.window)
    wanted = np.ones_like(seen) if shown is None else shown
    if not (np.array_equal(seen, wanted) or np.array_equal(~seen, wanted)):
        raise file.refuse(
            f"{name} is not the mask of --attention, or of the configuration: for it {layer.words()} is expected"
        )


def _shown(
    facts: Facts, family: Family, unknown: tuple[str, ...], attention: ModelAttention, norm: OwnNorm | None
) -> dict[str, str]:
    """Every fact that changes outputs, as it was taken and on whose word."""
    rows = {}
    for name, (word, _) in FACTS.items():
        if name not in facts.values or (name in ROTATION and facts.get("positions") != "rotary"):
            continue
        value = facts.values[name]
        source = "assumed: nobody says" if name in unknown else facts.sources.get(name, f"the layout of {family.title}")
        rows[word] = f"{norm.words() if norm and name == 'norm' else _said(name, value)} ({source})"
    rows["attention"] = attention.words()
    return rows


def _said(name: str, value: Any) -> str:
    if name in ("stream", "adjacent"):
        return "yes" if value else "no"
    if name == "causal":
        return "causal" if value else "both ways"
    return "none" if value in (None, False, 0, "none") else str(value)


def _refuse_centred(file: TensorFile, arrays: Arrays) -> None:
    """Weights whose columns all sum to zero are what folding a LayerNorm leaves: refused unless someone says that there is no
    norm."""
    parts = [arrays[name] for name in ("W_Q", "W_K", "W_V")]
    if arrays["W_Q"].shape[2] < 3:
        return
    sums = max(float(np.abs(part.sum(axis=2)).max()) for part in parts)
    largest = min(float(np.abs(part).sum(axis=2).max()) for part in parts)
    if largest > 0 and sums < 1e-5 * largest:
        raise file.refuse(
            "the columns of W_Q, W_K and W_V sum to zero, as folding a LayerNorm leaves them: "
            f"if the model has one, {NORMALISED}; if not, say so (configuration field normalization_type)"
        )
