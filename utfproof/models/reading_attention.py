"""A model's attention, layer by layer, as its facts and tensors show it."""

from __future__ import annotations

import numpy as np

from utfproof.models.attention import LayerAttention, Rotary
from utfproof.models.facts import Facts
from utfproof.models.family import ANY_LENGTH
from utfproof.models.tensors import Claims


def factors(facts: Facts, sizes: dict[str, int]) -> tuple[float, ...]:
    """What each layer's logits are multiplied by."""
    scale = facts.get("scale")
    if scale is None or scale == "1/sqrt(d)":
        divisor = facts.get("divisor")
        usual = 1 / (float(np.sqrt(sizes["d"])) if divisor is None else float(divisor))
        scale = usual if facts.get("scaled", True) or scale is not None else 1.0
    by_layer = bool(facts.get("scale_by_layer", False))
    return tuple(float(scale) / (layer + 1 if by_layer else 1) for layer in range(sizes["L"]))


def layer_attentions(
    claims: Claims,
    facts: Facts,
    arrays: dict[str, np.ndarray],
    sizes: dict[str, int],
    tables: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[LayerAttention, ...]:
    """Each layer's attention, by the facts."""
    file, positions, causal = claims.file, facts.get("positions"), bool(facts.get("causal", True))
    cos, sin = arrays.pop("rot_cos", None), arrays.pop("rot_sin", None)
    window, kinds = facts.get("window") or None, facts.get("layer_types")
    if facts.get("local") is False or (not causal and facts.get("local_both_ways") is False):
        window, kinds = None, None
    elif facts.get("local") and window is None:
        raise file.refuse(f"{facts.sources['local']} says local attention, and nobody says the window")
    if kinds is not None and len(kinds) != sizes["L"]:
        raise file.refuse(f"{facts.sources['layer_types']} names {len(kinds)} layers, {sizes['L']} are found")
    if facts.get("clamped") and facts.get("clamp") is None:
        raise file.refuse(f"{facts.sources['clamped']} says that logits are capped, and nobody says at which value")
    slopes = facts.get("slopes")
    if positions == "alibi":
        if facts.get("clamped"):
            raise file.refuse(
                f"{facts.sources['clamped']} says that logits are capped after ALiBi's bias, and caps are read before it"
            )
        if not causal:
            raise file.refuse(f"{facts.sources['positions']} says ALiBi, which is read for causal attention alone")
        slopes = geometric_slopes(sizes["H"]) if slopes is None else slopes
        if len(slopes) != sizes["H"]:
            raise file.refuse(f"{facts.sources['slopes']} has {len(slopes)} slopes for {sizes['H']} heads")
    cap = facts.get("clamp") if facts.get("clamped") else facts.get("cap") or None
    out = []
    for layer in range(sizes["L"]):
        local = kinds is None or kinds[layer] == "local"
        rotary = None
        if positions == "rotary":
            given = tables if tables is not None else None
            if given is None and cos is not None and sin is not None:  # every angle stands there twice
                pairs = cos.shape[2] // 2
                step = slice(0, 2 * pairs, 2) if facts.get("adjacent") else slice(pairs)
                given = cos[layer][:, step], sin[layer][:, step]
            rotary = _rotary(facts, sizes, given, bool(kinds) and local)
        single = bool(facts.get("single_slopes", False))
        out.append(LayerAttention(causal, window if local else None, cap, tuple(slopes or ()), single, rotary))
    return tuple(out)


def geometric_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's 2^(-8 h / H), h = 1 ... H."""
    return tuple(2.0 ** (-8 * h / heads) for h in range(1, heads + 1))


def _rotary(facts: Facts, sizes: dict[str, int], tables: tuple[np.ndarray, np.ndarray] | None, local: bool) -> Rotary:
    """The rotation: the model's own tables where there are any, the usual formula otherwise."""
    adjacent = bool(facts.get("adjacent", False))
    if tables is not None:
        return Rotary(tables[0].astype(np.float64), tables[1].astype(np.float64), adjacent)
    said = facts.get("rotary_dim", "all")
    turned = sizes["d"] if said == "all" else said
    if turned > sizes["d"] or turned % 2 or facts.get("frequencies", turned) != turned:
        who = facts.sources.get("rotary_dim", f"the layout, whose heads have {sizes['d']},")
        stored = f", {facts.sources['frequencies']} {facts.get('frequencies')}" if facts.get("frequencies") else ""
        raise facts.file.refuse(
            f"{who} says {said} coordinates rotate{stored}: expected an even number, the same, at most {sizes['d']}"
        )
    base = (
        facts.get("rotary_base_local")
        if local and facts.get("rotary_base_local")
        else facts.get("rotary_base", 10000.0)
    )
    return Rotary.of_base(
        sizes.get("P", ANY_LENGTH), turned // 2, float(base), adjacent, float(facts.get("rotary_factor") or 1.0)
    )
