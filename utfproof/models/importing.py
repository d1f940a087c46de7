"""Models from safetensors files: their tensors by name, and what metadata and options say of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from utfproof.attention import visible
from utfproof.errors import MalformedInput
from utfproof.models.attention import LayerAttention, ModelAttention, attention_kernel
from utfproof.models.families import FAMILIES, MASKS, Family, read_arrays, recognise
from utfproof.models.reading import ANY_LENGTH, Reading, scaled
from utfproof.models.tensors import layer_prefixes
from utfproof.weights import TensorFile, read_tensors

ANY_FAMILY = "auto"
LIVE = "--module"
OFF, ON = ("none", "null", "", "false", "0", "-1", "-1.0"), ("true",)
FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "attention_dir": (
        "mask",
        "--attention causal, or softmax where positions see both ways",
        ("causal", "bidirectional"),
    ),
    "window": ("window", "--attention causal where there is none, or causal+window:W", ()),
    "residual": ("residual stream", "--residual or --no-residual", ("true", "false")),
    "normalization_type": ("normalisation", LIVE, OFF),
    "positional_embedding_type": ("positions", LIVE, ("standard", *OFF)),
    "use_attn_scale": ("logits divided by sqrt(d)", LIVE, ON),
    "attn_scores_soft_cap": ("cap of logits", LIVE, OFF),
    "output_logits_soft_cap": ("cap of outputs", LIVE, OFF),
    "add_zero_attn": ("attention to no token", LIVE, OFF),
    **dict.fromkeys(("attn_only",), ("attention alone", LIVE, ON)),
    **{name: (name, LIVE, OFF) for name in ("use_qk_norm", "parallel_attn_mlp", "use_local_attn", "final_rms")},
}
"""What changes outputs and tensors do not show: the word for people, what settles it, and the values that are read."""
ALIASES = {"n_heads": "heads", "num_heads": "heads", "nhead": "heads", "window_size": "window"}


def layouts() -> tuple[str, ...]:
    """The names of all families, and `auto`, which finds the one whose names the file has."""
    return (ANY_FAMILY, *dict.fromkeys(family.name for family in FAMILIES))


class _Said:
    """What is said of a model, and who says it."""

    def __init__(self, file: TensorFile) -> None:
        self.file = file
        self.values: dict[str, tuple[str, str]] = {}
        for name, text in file.metadata.items():
            own, value = ALIASES.get(name, name), text.strip().lower()
            allowed = FACTS[own][2] if own in FACTS else ()
            if allowed and value not in allowed:
                raise file.refuse(
                    f"metadata field {name} = {text[:40]}: no embedding takes it over from a file; {LIVE} reads the model live"
                )
            self.say(own, "0" if own == "window" and value in OFF else value, "metadata")

    def say(self, name: str, value: str, source: str) -> None:
        """MalformedInput if another source says something else."""
        known, earlier = self.values.setdefault(name, (value, source))
        if known != value:
            raise self.file.refuse(f"{source} says {name} {value}, {earlier} says {known}")

    def number(self, name: str) -> int | None:
        """A whole number, None if nobody says it. MalformedInput for another value."""
        text, source = self.values.get(name, ("", ""))
        if source and not (text.isdecimal() and len(text) < 9):
            raise self.file.refuse(f"{source} says {name} {text[:40]}, expected a whole number")
        return int(text) if source else None

    def shown(self, family: Family, attention: ModelAttention, residual: bool) -> dict[str, str]:
        """Every fact on which outputs depend, with its source."""
        plain = {"0": "none", "true": "yes", "false": "no"}
        rows = {"attention": attention.words(), "residual stream": "yes" if residual else "no"}
        for name in family.asked:
            value, source = self.values.get(name, ("as usual", "assumed: nobody says"))
            rows[FACTS[name][0]] = f"{plain.get(value, value)} ({source})"
        return rows


def import_model(
    path: Path | str,
    layout: str = ANY_FAMILY,
    *,
    attention: str | None = None,
    heads: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> Reading:
    """The model of a safetensors file in this layout.

    attention: whom a position sees (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    Nothing here compares the reading with the model; `Reading.unknown` names the facts that nobody says. Raises MalformedInput
    with the tensor or the field.
    """
    if layout not in layouts():
        raise MalformedInput(f"layout {layout!r} is unknown; choose {', '.join(layouts())}")
    file = read_file(path, max_memory)
    family, said = recognise(file, None if layout == ANY_FAMILY else layout), _Said(file)
    if attention is not None:
        kernel = attention_kernel(attention)
        said.say("attention_dir", "causal" if kernel.causal else "bidirectional", "--attention")
        said.say("window", str(kernel.window or 0), "--attention")
    if heads is not None:
        said.say("heads", str(heads), "--heads")
    if family.name == "transformer-lens":
        said.say("residual", "true", f"the layout of {family.title}")
    if residual is not None:
        said.say("residual", str(residual).lower(), "--residual" if residual else "--no-residual")
    if "residual" not in said.values:
        raise file.refuse(f"a state dict does not show whether there is a residual stream: pass {FACTS['residual'][1]}")
    arrays = read_arrays(file, family, said.number("heads"), (*MASKS, "IGNORE"))
    L, H, _, d = arrays["W_Q"].shape
    causal = said.values.get("attention_dir", ("causal",))[0] == "causal"
    layer = LayerAttention(causal, said.number("window") or None)
    _require_masks(file, layer)
    by_layer, stream = ModelAttention((layer,) * L), said.values["residual"][0] == "true"
    return Reading(
        family.name,
        family.title,
        scaled(arrays, np.full((L, H), d**-0.5)),
        by_layer,
        stream,
        max(ANY_LENGTH, (layer.window or 0) + 1),
        said.shown(family, by_layer, stream),
        tuple(name for name in family.asked if name not in said.values),
    )


def _require_masks(file: TensorFile, layer: LayerAttention) -> None:
    """MalformedInput if a stored mask, of visible or hidden keys, or added to the logits, is not that of this attention."""
    for name, array in file.tensors.items():
        if layer.causal and name.rsplit(".", 1)[-1] in MASKS:  # TransformerLens does not use the others
            places = np.arange(array.shape[-1]) if array.ndim else np.arange(0)
            wanted = np.asarray(visible(places, places, causal=True, window=layer.window))
            stored = array.reshape(-1) == 0 if array.size and (array < 0).any() else array.reshape(-1) != 0
            if not any(np.array_equal(seen, wanted.reshape(-1)) for seen in (stored, ~stored)):
                raise file.refuse(f"{name} is not the mask of {layer.words()}, as --attention or the metadata says")


def refuse_models(path: Path | str, max_memory: int | None = None) -> None:
    """MalformedInput for a model's file without a layout, saying which one it has."""
    try:
        file = read_file(path, max_memory)
    except MalformedInput:
        return
    for family in FAMILIES:
        if "W_O" not in file.tensors and layer_prefixes(file, family.marks):
            raise file.refuse(f"this file looks like {family.title}: say --layout {family.name}, or --layout auto")


def read_file(path: Path | str, max_memory: int | None = None) -> TensorFile:
    """The tensors of a safetensors file, without the prefixes that wrappers put before every name. MalformedInput for files of
    other kinds."""
    if Path(path).suffix != ".safetensors":
        raise MalformedInput(
            f"{path}: a model is read from .safetensors; save its state dict so, or compare it live ({LIVE})"
        )
    file = read_tensors(path, max_memory=max_memory, booleans=True)
    for prefix in ("_orig_mod.", "module."):
        if file.tensors and all(name.startswith(prefix) for name in file.tensors):
            tensors: dict[str, Any] = {name.removeprefix(prefix): array for name, array in file.tensors.items()}
            types = {name.removeprefix(prefix): kind for name, kind in file.types.items()}
            file = TensorFile(file.path, tensors, file.metadata, types)
    return file
