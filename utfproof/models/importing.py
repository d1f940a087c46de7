"""Models from safetensors files: their tensors by name, and what metadata and options say of the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utfproof.attention import visible
from utfproof.errors import MalformedInput
from utfproof.models.attention import LayerAttention, ModelAttention, layer_attention
from utfproof.models.families import LAYOUTS, MASKS, read_arrays, recognise
from utfproof.models.reading import ANY_LENGTH, Reading, biased_target
from utfproof.models.tensors import layer_prefixes
from utfproof.weights import TensorFile, read_tensors

LIVE = "--module"
OFF, ON = ("none", "null", "", "false", "0", "-1", "-1.0"), ("true",)
FACTS: dict[str, tuple[str, ...]] = {
    "attention_dir": ("causal", "bidirectional"),
    "window": (),
    "residual": ("true", "false"),
    "positional_embedding_type": ("standard", *OFF),
    **dict.fromkeys(("use_attn_scale", "attn_only"), ON),
    **dict.fromkeys(("normalization_type", "attn_scores_soft_cap", "output_logits_soft_cap", "add_zero_attn"), OFF),
    **dict.fromkeys(("use_qk_norm", "parallel_attn_mlp", "use_local_attn", "final_rms"), OFF),
}
"""What changes outputs and tensors do not show: fields of metadata, and their values that are read."""
SETTLED = {"attention_dir": "--attention", "window": "--attention", "residual": "--residual or --no-residual"}
"""The options that say these facts; the others are settled by LIVE."""
ALIASES = {"n_heads": "heads", "num_heads": "heads", "nhead": "heads", "window_size": "window"}


def import_model(
    path: Path | str,
    *,
    attention: str | None = None,
    heads: int | None = None,
    residual: bool | None = None,
    max_memory: int | None = None,
) -> Reading:
    """The model of a safetensors file with the names of TransformerLens or of nn.MultiheadAttention.

    attention: the visible keys (softmax, causal, window:W). heads and residual: what a PyTorch state dict does not show.
    Nothing here compares the reading with the model; `Reading.unknown` names the facts that are unknown. Raises MalformedInput
    with the tensor or the field.

    >>> import numpy as np
    >>> from safetensors.numpy import save_file
    >>> from utfproof import import_model
    >>> attn = {"in_proj_weight": np.ones((12, 4)), "out_proj.weight": np.ones((4, 4))}
    >>> ends = {"embed.weight": np.ones((5, 4)), "unembed.weight": np.ones((3, 4))}
    >>> save_file({**ends, **{f"layers.0.attn.{name}": tensor for name, tensor in attn.items()}}, "m.safetensors")
    >>> import_model("m.safetensors", heads=2, residual=True).vocabulary
    5
    """
    file = read_file(path, max_memory)
    layout, _ = recognise(file)
    if not layout.asked:
        raise file.refuse(f"tensors named {layout.readers[0]} do not say what the model computes: pass {LIVE}")
    said = _metadata(file)
    if attention is not None:
        layer = layer_attention(attention)
        _say(file, said, "attention_dir", "causal" if layer.causal else "bidirectional", "--attention")
        _say(file, said, "window", str(layer.window or 0), "--attention")
    if heads is not None:
        _say(file, said, "heads", str(heads), "--heads")
    if "residual" not in layout.asked:
        _say(file, said, "residual", "true", layout.title)
    if residual is not None:
        _say(file, said, "residual", str(residual).lower(), "--residual" if residual else "--no-residual")
    if "residual" not in said:
        raise file.refuse(f"a state dict does not show whether there is a residual stream: pass {SETTLED['residual']}")
    arrays = read_arrays(file, _number(file, said, "heads"), (*MASKS, "IGNORE"))
    L, H, _, d = arrays["W_Q"].shape
    layer = LayerAttention(said.get("attention_dir") != "bidirectional", _number(file, said, "window") or None)
    _require_masks(file, layer)
    facts = {name: said.get(name, "as usual (assumed: not in the file)") for name in ("residual", *layout.asked)}
    return Reading(
        layout.title,
        biased_target(arrays, np.full((L, H), d**-0.5), said["residual"] == "true"),
        ModelAttention((layer,) * L),
        len(arrays["W_E"]),
        len(arrays["W_pos"]),
        context=max(ANY_LENGTH, (layer.window or 0) + 1),
        facts={"attention": layer.words(), **facts},
        unknown=tuple(name for name in layout.asked if name not in said),
    )


def _metadata(file: TensorFile) -> dict[str, str]:
    """The facts that the file's metadata say. MalformedInput for a value that no embedding takes over."""
    said: dict[str, str] = {}
    for name, text in file.metadata.items():
        own, value = ALIASES.get(name, name), text.strip().lower()
        allowed = FACTS.get(own)
        if allowed and value not in allowed:
            raise file.refuse(
                f"metadata field {name} = {text[:40]}: no embedding takes it over from a file; {LIVE} reads the model live"
            )
        _say(file, said, own, "0" if own == "window" and value in OFF else value, name)
    return said


def _say(file: TensorFile, said: dict[str, str], name: str, value: str, source: str) -> None:
    """MalformedInput if another source says something else."""
    if said.setdefault(name, value) != value:
        raise file.refuse(f"{source} says {name} {value}, the metadata or the names of tensors say {said[name]}")


def _number(file: TensorFile, said: dict[str, str], name: str) -> int | None:
    """A whole number, or None if the file does not have it. MalformedInput for another value."""
    text = said.get(name)
    if text is not None and not (text.isdecimal() and len(text) < 9):
        raise file.refuse(f"{name} is {text[:40]}, expected a whole number")
    return None if text is None else int(text)


def _require_masks(file: TensorFile, layer: LayerAttention) -> None:
    """MalformedInput if a stored mask, of visible or hidden keys, or added to the logits, is not that of this attention."""
    for name, array in file.tensors.items():
        if layer.causal and name.rsplit(".", 1)[-1] in MASKS:  # TransformerLens does not use the others
            places = np.arange(array.shape[-1]) if array.ndim else np.arange(0)
            wanted = np.asarray(visible(places, places, causal=True, window=layer.window))
            stored = array.reshape(-1) == 0 if array.size and (array < 0).any() else array.reshape(-1) != 0
            if not any(np.array_equal(seen, wanted.reshape(-1)) for seen in (stored, ~stored)):
                raise file.refuse(f"{name} is not the mask of {layer.words()}, as --attention or the metadata says")


def is_model(path: Path | str, max_memory: int | None = None) -> bool:
    """Whether a file holds attention under a library's names, and not a target of this package."""
    if Path(path).suffix != ".safetensors":
        return False
    file = read_file(path, max_memory)
    return "W_O" not in file.tensors and any(layer_prefixes(file, (*names.readers, names.out)) for names in LAYOUTS)


def read_file(path: Path | str, max_memory: int | None = None) -> TensorFile:
    """The tensors of a safetensors file. MalformedInput for files of other kinds."""
    if Path(path).suffix != ".safetensors":
        raise MalformedInput(
            f"{path}: a model is read from .safetensors; save its state dict so, or compare it live ({LIVE})"
        )
    return read_tensors(path, max_memory=max_memory, booleans=True)
