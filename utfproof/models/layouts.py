"""The two families of models that are read by the names of their tensors: TransformerLens (3 and 4) and plain PyTorch.

Tensors and `Settings` -> `Reading`. Every tensor is taken or refused by name. Fields that change outputs and that nobody says
stand in `Reading.unknown`. Any other model is given by its matrices (`from_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utfproof.attention import visible
from utfproof.models.attention import LayerAttention, ModelAttention, Rotary
from utfproof.models.reading import ANY_LENGTH, LAYER_ROLES, LONGEST, Reading
from utfproof.models.settings import ASKED, Settings, metadata_fields, unknown_fields
from utfproof.models.tensors import Claims, layer_prefixes, listed
from utfproof.weights import TensorFile

Arrays = dict[str, np.ndarray]
Tables = tuple[np.ndarray, np.ndarray]
"""cos and sin of rotated positions, [P, r]."""
HIDDEN = -1e4
"""Logits that hide a key are this or less."""
ROTATION = "rotary_adjacent_pairs"
EMBEDDINGS = ("embedding", "embed", "token_embedding", "tok_emb", "token_emb", "wte")
POSITIONS = ("pos", "position", "pos_embedding", "position_embedding", "pos_embed", "pos_emb", "wpe")
OUTPUTS = ("unembed", "unembedding", "lm_head", "head", "output", "out", "readout")


@dataclass(frozen=True)
class Layout:
    """Names of tensors. marks: of a layer's tensors behind the prefix of its attention, by which the layout is recognised;
    asked: fields that change outputs; arrays: the tensors as `Reading.arrays`; settled: fields that all its models share;
    assumed: fields as they are taken where nobody says them."""

    family: str
    title: str
    marks: tuple[str, ...]
    asked: tuple[str, ...]
    arrays: Callable[[Claims, list[str], Settings], Arrays]
    settled: Mapping[str, Any]
    assumed: Mapping[str, Any]


def _lens_3(claims: Claims, prefixes: list[str], settings: Settings) -> Arrays:
    """HookedTransformer: matrices act from the right, heads are an axis of their own."""
    V, D = claims.axes("embed.W_E", 2)
    H, _, d = claims.axes(prefixes[0] + "W_Q", 3)
    own = "" if claims.has(prefixes[0] + "W_K") else "_"
    G = claims.axes(f"{prefixes[0]}{own}W_K", 3)[0]
    shapes = {"W_Q": (H, D, d), "W_O": (H, d, D), "b_Q": (H, d), "b_O": (D,)}
    names = {name: name for name in shapes}
    for part in "KV":
        shapes |= {f"W_{part}": (G, D, d), f"b_{part}": (G, d)}
        names |= {f"W_{part}": f"{own}W_{part}", f"b_{part}": f"{own}b_{part}"}
    out = {
        role: np.stack([claims.take(at + names[role], shape, optional=role[0] == "b") for at in prefixes])
        for role, shape in shapes.items()
    }
    outputs = claims.axes("unembed.W_U", 2)[1]
    out |= {"W_E": claims.take("embed.W_E", (V, D)), "W_U": claims.take("unembed.W_U", (D, outputs))}
    out["b_U"] = claims.take("unembed.b_U", (outputs,), optional=True)
    out["W_pos"] = _positions(claims, "pos_embed.W_pos", D, settings)
    return out


def _lens_4(claims: Claims, prefixes: list[str], settings: Settings) -> Arrays:
    """TransformerBridge: linears act from the left; heads are consecutive rows."""
    names = {"W_E": "embed.weight tok_embed.weight", "W_pos": "pos_embed.weight pos.weight"}
    names["W_U"] = "unembed.weight head.weight"
    W_E, W_pos, W_U = (claims.first(found.split()) for found in names.values())
    D = claims.axes(W_E or "embed.weight", 2)[1]
    rows, H = claims.axes(prefixes[0] + "q.weight", 2)[0], settings.get("n_heads")
    if H is None or rows % H:
        raise claims.file.refuse(f"its {rows} rows of queries do not say the number of heads: pass --config or --heads")
    d = rows // H
    G = claims.axes(prefixes[0] + "k.weight", 2)[0] // d
    out: Arrays = {}
    for part, heads in (("Q", H), ("K", G), ("V", G)):
        low = part.lower()
        rows_of = [claims.take(f"{at}{low}.weight", (heads * d, D)).reshape(heads, d, D) for at in prefixes]
        biases = [claims.take(f"{at}{low}.bias", (heads * d,), optional=True).reshape(heads, d) for at in prefixes]
        out |= {f"W_{part}": np.stack(rows_of).swapaxes(-1, -2), f"b_{part}": np.stack(biases)}
    return out | _outputs(
        claims, [at + "o." for at in prefixes], (H, d, D), W_E, W_U or "unembed.weight", W_pos, settings
    )


def _pytorch(claims: Claims, prefixes: list[str], settings: Settings) -> Arrays:
    """nn.MultiheadAttention between an nn.Embedding and an nn.Linear, as scripts/train_induction.py writes them."""
    found = (_named(claims, modules) for modules in (EMBEDDINGS, POSITIONS, OUTPUTS))
    W_E, W_pos, W_U = found
    for word, name, modules in (("embedding", W_E, EMBEDDINGS), ("unembedding", W_U, OUTPUTS)):
        if not name:
            claims.refuse_unsuitable()
            looked = ", ".join(modules)
            raise claims.file.refuse(
                f"no {word} is found (looked for {looked}): name it so, or pass its parts to from_parts"
            )
    D, H = claims.axes(W_E, 2)[1], settings.get("n_heads")
    if H is None or D % H:
        said = f"{H} heads do not divide the width {D}" if H else "it does not store its number of heads"
        raise claims.file.refuse(f"{said}: pass --heads")
    d, L = D // H, len(prefixes)
    thirds = np.stack([claims.take(at + "in_proj_weight", (3 * D, D)) for at in prefixes])
    thirds = thirds.reshape(L, 3, H, d, D).transpose(1, 0, 2, 4, 3)
    biases = np.stack([claims.take(at + "in_proj_bias", (3 * D,), optional=True) for at in prefixes])
    biases = biases.reshape(L, 3, H, d).transpose(1, 0, 2, 3)
    out = {f"W_{part}": thirds[i] for i, part in enumerate("QKV")}
    out |= {f"b_{part}": biases[i] for i, part in enumerate("QKV")}
    return out | _outputs(claims, [at + "out_proj." for at in prefixes], (H, d, D), W_E, W_U, W_pos, settings)


def _outputs(
    claims: Claims, at: list[str], sizes: tuple[int, int, int], W_E: str, W_U: str, W_pos: str, settings: Settings
) -> Arrays:
    """W_O and b_O of linears [D, H d], embeddings and the last linear, which act from the left."""
    H, d, D = sizes
    W_O = np.stack([claims.take(place + "weight", (D, H * d)).reshape(D, H, d).transpose(1, 2, 0) for place in at])
    outputs = claims.axes(W_U, 2)[0]
    return {
        "W_O": W_O,
        "b_O": np.stack([claims.take(place + "bias", (D,), optional=True) for place in at]),
        "W_E": claims.take(W_E, (claims.axes(W_E, 2)[0], D)),
        "W_U": claims.take(W_U, (outputs, D)).T,
        "b_U": claims.take(W_U.removesuffix("weight") + "bias", (outputs,), optional=True),
        "W_pos": _positions(claims, W_pos, D, settings),
    }


def _named(claims: Claims, modules: tuple[str, ...]) -> str:
    """The weight of the module of one of these names, wherever it stands; "" where there is none."""
    ends = {f"{module}.weight" for module in modules}
    return claims.first(n for n in sorted(claims.file.tensors) if ".".join(n.split(".")[-2:]) in ends)


def _positions(claims: Claims, name: str, width: int, settings: Settings) -> np.ndarray:
    """Learned positions [P, D], P = 0 where there are none. MalformedInput where the settings say that there are some."""
    kind = settings.get("positional_embedding_type")
    rows = np.zeros((0, width))
    if claims.has(name):
        rows = claims.take(name, (claims.axes(name, 2)[0], width))
        if kind is None:
            settings.say("positional_embedding_type", "standard", f"tensor {name}")
    elif kind == "standard":
        place = settings.sources["positional_embedding_type"]
        raise claims.file.refuse(f"{place} says learned positions, and no tensor holds them")
    return rows if kind in (None, "standard") else rows[:0]


_USUAL = {"attention_dir": "causal", "scale": "1/sqrt(d)", "window_size": 0, "attn_scores_soft_cap": 0}
_LENS_ASKED = tuple(name for name in ASKED if name not in ("residual", "add_zero_attn"))
_LENS_ASSUMED = _USUAL | {ROTATION: False}
LAYOUTS = (
    Layout(
        "transformer-lens",
        "TransformerLens (HookedTransformer)",
        ("W_Q", "W_O"),
        _LENS_ASKED,
        _lens_3,
        {"residual": True},
        _LENS_ASSUMED,
    ),
    Layout(
        "transformer-lens",
        "TransformerLens 4 (TransformerBridge)",
        ("q.weight", "k.weight", "v.weight", "o.weight"),
        _LENS_ASKED,
        _lens_4,
        {"residual": True, ROTATION: True, "window_size": 0},
        _LENS_ASSUMED,
    ),
    Layout(
        "pytorch",
        "nn.MultiheadAttention",
        ("in_proj_weight", "out_proj.weight"),
        ("attention_dir", "window_size", "positional_embedding_type", "normalization_type", "add_zero_attn"),
        _pytorch,
        {"attn_scores_soft_cap": 0, "output_logits_soft_cap": None},
        _USUAL,
    ),
)
FAMILIES = tuple(dict.fromkeys(layout.family for layout in LAYOUTS))


def recognise(file: TensorFile, family: str | None = None) -> Layout:
    """The layout whose names these tensors have. MalformedInput for none, or for one of another family."""
    for layout in LAYOUTS:
        if layer_prefixes(file, layout.marks):
            if family not in (None, layout.family):
                raise file.refuse(f"--layout {family}: this file looks like {layout.title}, --layout {layout.family}")
            return layout
    Claims(file).refuse_unsuitable()
    raise file.refuse(
        f"no layout is recognised among {listed(file.tensors, 4) or 'no tensors'}. Known are TransformerLens names "
        "(blocks.0.attn.W_Q, blocks.0.attn.q.weight) and nn.MultiheadAttention (in_proj_weight). Any other model is read by "
        "from_parts, from its matrices (docs/embed-your-model.md)"
    )


def settings_of(file: TensorFile, layout: Layout, config: Mapping[str, Any] | None, strict: bool = True) -> Settings:
    """What the layout, a configuration and the file's metadata say. MalformedInput where they contradict one another."""
    settings = Settings(file)
    if config is not None:
        own = dict(config)
        if layout.marks[0] == "q.weight":  # a bridge obeys neither of these fields
            own.pop(ROTATION, None)
            own.pop("window_size", None)
            for name in ("use_attn_scale", "scale_attn_by_inverse_layer_idx", "use_local_attn"):
                wrong = own.get(name) not in (None, name == "use_attn_scale")
                if wrong and strict:
                    raise file.refuse(f"configuration field {name} = {own[name]}: a bridge does not obey it (--module)")
                own |= {name: name == "use_attn_scale"} if wrong else {}
        settings.read(own, "configuration", strict=strict)
    settings.read(metadata_fields(file.metadata), "metadata", strict=False)
    for name, value in layout.settled.items():
        settings.say(name, value, f"the layout of {layout.title}")
    return settings


def read_model(layout: Layout, settings: Settings, tables: Tables | None = None) -> Reading:
    """The model of these tensors. tables: the rotation's own. MalformedInput names the tensor or the field."""
    file, prefixes = settings.file, layer_prefixes(settings.file, layout.marks)
    claims = Claims(file)
    arrays = {name: np.ascontiguousarray(array) for name, array in layout.arrays(claims, prefixes, settings).items()}
    sizes = _sizes(arrays, settings, len(prefixes))
    asked = [name for name in layout.asked if name != ROTATION or settings.get("positional_embedding_type") == "rotary"]
    unknown = unknown_fields(settings, asked)
    if settings.get("residual") is None:
        raise file.refuse(f"a state dict does not show whether there is a residual stream: pass {ASKED['residual'][1]}")
    for name, value in layout.assumed.items():
        settings.values.setdefault(name, value)
    attention = ModelAttention(_layers(claims, settings, sizes, prefixes, tables))
    _take_masks(claims, attention.layers, prefixes)
    claims.finish()
    if not settings.said("normalization_type"):
        _refuse_centred(file, arrays)
    factors = _factors(settings, sizes)
    windows = [min(layer.window + 1, LONGEST) for layer in attention.layers if layer.window]
    return Reading(
        layout.family,
        layout.title,
        arrays,
        factors,
        attention,
        bool(settings.get("residual")),
        min(settings.get("n_ctx", LONGEST), max([ANY_LENGTH, *windows])),
        _shown(settings, layout, unknown, factors, attention),
        unknown,
    )


def _sizes(arrays: Arrays, settings: Settings, layers: int) -> dict[str, int]:
    """The model's sizes. MalformedInput where a configuration says others."""
    _, H, D, d = arrays["W_Q"].shape
    G = arrays["W_K"].shape[1]
    found = {"n_layers": layers, "n_heads": H, "n_key_value_heads": G, "d_head": d, "d_model": D}
    found |= {"d_vocab": len(arrays["W_E"]), "d_vocab_out": arrays["W_U"].shape[1]}
    if len(arrays["W_pos"]):
        found["n_ctx"] = len(arrays["W_pos"])
    for name, value in found.items():
        if settings.get(name, value) not in (value, -1):
            raise settings.file.refuse(
                f"{settings.sources[name]} says {name} {settings.get(name)}, the tensors have {value}"
            )
    if H % G:
        raise settings.file.refuse(f"{G} heads of keys do not divide the {H} heads of queries")
    for role in LAYER_ROLES:
        if not np.isfinite(arrays[role]).all():
            raise settings.file.refuse(f"{role} holds numbers that are not finite")
    return found


def _factors(settings: Settings, sizes: Mapping[str, int]) -> tuple[float, ...]:
    """What each layer's logits are multiplied by. MalformedInput where --scale contradicts a configuration."""
    scale = settings.get("scale")
    if settings.said("scale") and settings.said("attn_scale", "use_attn_scale"):
        place = settings.sources.get("attn_scale", settings.sources.get("use_attn_scale"))
        raise settings.file.refuse(f"{settings.sources['scale']} and {place} both say the scale: leave one out")
    if scale == "1/sqrt(d)":
        scale = (
            1 / float(settings.get("attn_scale", np.sqrt(sizes["d_head"])))
            if settings.get("use_attn_scale", True)
            else 1
        )
    by_layer = settings.get("scale_attn_by_inverse_layer_idx", False)
    return tuple(float(scale) / (layer + 1 if by_layer else 1) for layer in range(sizes["n_layers"]))


def _layers(
    claims: Claims, settings: Settings, sizes: Mapping[str, int], prefixes: list[str], tables: Tables | None
) -> tuple[LayerAttention, ...]:
    """Each layer's attention, by the settings."""
    causal, window = settings.get("attention_dir") == "causal", settings.get("window_size") or None
    kinds, local = settings.get("attn_types"), settings.get("use_local_attn")
    if local is False or (not causal and local is not None):  # TransformerLens masks causal attention alone
        window = None
    elif local and window is None:
        raise settings.file.refuse(
            f"{settings.sources['use_local_attn']} says local attention, and nobody says the window"
        )
    if kinds is not None and len(kinds) != len(prefixes):
        raise settings.file.refuse(
            f"{settings.sources['attn_types']} names {len(kinds)} layers, {len(prefixes)} are found"
        )
    cap = settings.get("attn_scores_soft_cap")
    out = []
    for layer, prefix in enumerate(prefixes):
        near = kinds is None or kinds[layer] == "local"
        rotary = None
        if settings.get("positional_embedding_type") == "rotary":
            rotary = _rotary(settings, _stored_tables(claims, settings, prefix) or tables)
        out.append(LayerAttention(causal, window if near else None, cap if cap and cap > 0 else None, None, rotary))
    return tuple(out)


def _stored_tables(claims: Claims, settings: Settings, prefix: str) -> Tables | None:
    """The rotation that the file holds, in which every angle stands twice."""
    if not claims.has(prefix + "rotary_cos"):
        return None
    cos, sin = (claims.take(f"{prefix}rotary_{n}", claims.axes(f"{prefix}rotary_{n}", 2)) for n in ("cos", "sin"))
    pairs = cos.shape[1] // 2
    step = slice(0, 2 * pairs, 2) if settings.get(ROTATION) else slice(pairs)
    return cos[:, step], sin[:, step]


def _rotary(settings: Settings, tables: Tables | None) -> Rotary:
    """The rotation by the model's own tables. MalformedInput where a file does not hold them."""
    if tables is None:
        raise settings.file.refuse(
            "it rotates positions, and the file holds no tables of cos and sin: compare it live (--module)"
        )
    return Rotary(tables[0].astype(np.float64), tables[1].astype(np.float64), settings.get(ROTATION))


def _take_masks(claims: Claims, layers: tuple[LayerAttention, ...], prefixes: list[str]) -> None:
    """Take the tensors that hold no weights: masks [n, n], which have to be those of their layers, and what hides keys."""
    for name in sorted(claims.file.tensors.keys() - claims.taken):
        array, last = claims.file.tensors[name], name.rsplit(".", 1)[-1]
        if last == "IGNORE" and array.size == 1 and array.reshape(-1)[0] <= HIDDEN:
            claims.taken.add(name)
        elif last in ("mask", "attn_mask", "causal_mask"):
            own = [layer for layer, prefix in zip(layers, prefixes, strict=True) if name.startswith(prefix)]
            for layer in own or layers:
                if array.size and layer.causal:  # bidirectional TransformerLens models keep a mask that they do not use
                    _require_mask(claims.file, name, array, layer)
            claims.taken.add(name)


def _require_mask(file: TensorFile, name: str, array: np.ndarray, layer: LayerAttention) -> None:
    """A stored mask says who sees whom: true (or 0, where masks are added) for visible keys, or the other way round."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        raise file.refuse(f"{name} has shape {list(array.shape)}, expected a mask [n, n]")
    stored, places = array.reshape(array.shape[-2:]), np.arange(array.shape[-1])
    added = bool((stored < 0).any())
    seen = stored == 0 if added else stored != 0
    shown = visible(places, places, causal=layer.causal, window=layer.window)
    wanted = np.ones_like(seen) if shown is None else shown
    numbers = (stored <= HIDDEN) | seen if added else (stored == 1) | ~seen
    if not numbers.all() or not (np.array_equal(seen, wanted) or np.array_equal(~seen, wanted)):
        raise file.refuse(f"{name} is not the mask of {layer.words()}, as --attention or the configuration says")


def _shown(
    settings: Settings, layout: Layout, unknown: tuple[str, ...], factors: tuple[float, ...], attention: ModelAttention
) -> dict[str, str]:
    """Every field that changes outputs, as it was taken and on whose word."""
    rows = {}
    for name, (word, _) in ASKED.items():
        if name == ROTATION and settings.get("positional_embedding_type") != "rotary":
            continue
        if name in unknown or settings.said(name):
            value = factors[0] if name == "scale" else settings.get(name)
            value = ("yes" if value else "no") if isinstance(value, bool) else value
            source = "assumed: nobody says" if name in unknown else settings.sources[name]
            rows[word] = f"{value or 'none'} ({source})"
    return rows | {"attention": attention.words()}


def _refuse_centred(file: TensorFile, arrays: Arrays) -> None:
    """Weights whose columns all sum to zero are what folding a LayerNorm leaves: refused unless someone says that there is no
    norm."""
    parts = [arrays[name] for name in ("W_Q", "W_K", "W_V")]
    sums = max(float(np.abs(part.sum(axis=2)).max()) for part in parts)
    largest = min(float(np.abs(part).sum(axis=2).max()) for part in parts)
    if arrays["W_Q"].shape[2] > 2 and largest > 0 and sums < 1e-5 * largest:
        raise file.refuse(
            "the columns of W_Q, W_K and W_V sum to zero, as folding a LayerNorm leaves them: no embedding takes over a norm "
            "(docs/proofs/normalisation.md). If the model has none, say so (configuration field normalization_type)"
        )
